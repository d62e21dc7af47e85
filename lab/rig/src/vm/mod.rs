//! Machines that boot: stock kernels with the cards that QEMU emulates, on the files of this host.
//!
//! ```no_run
//! use artery_rig::vm::Machine;
//! # fn main() -> anyhow::Result<()> {
//! let machine = Machine::new("6.1".parse()?, "virtio-net,queues=2".parse()?);
//! let outcome = machine.run("ip netns exec a ping -c 3 10.0.2.2")?;
//! assert_eq!(outcome.status, 0, "{}", outcome.stdout);
//! # Ok(()) }
//! ```
//!
//! A machine has four cards. Two hosts, `a` and `b`, are namespaces inside it, each with `eth0`; `eth1` and
//! `eth2` are the ports of the router between them, which is the machine itself or a namespace (see
//! `guest/start.sh` for the addresses). The script runs as root in the folder that the caller is in. What it
//! writes goes to memory and is gone with the machine.
//!
//! QEMU runs in a namespace of a [`Rig`](crate::Rig), which ends it however the caller ends.
//!
//! Why it is so: docs/decisions/0022-virtual-machines.md.

mod accelerator;
mod apt;
mod cache;
pub mod command;
mod cpio;
mod fetch;
mod folder;
mod initramfs;
mod kernel;
mod matrix;
mod nic;
mod qemu;
mod rows;
mod run;
mod tool;
mod try_matrix;
mod wires;

pub use cache::VARIABLE as CACHE_VARIABLE;
pub use kernel::Kernel;
pub use nic::{Model, Nic, Wire};
pub use run::Outcome;

use std::time::Duration;

/// A machine that is described, and does not run yet.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The kernel that it boots.
    pub kernel: Kernel,
    /// How its network cards are made.
    pub nic: Nic,
    /// Number of its virtual processors.
    pub cpus: u32,
    /// Its memory in MiB.
    pub memory: u32,
    /// Whether hosts and router are made.
    pub network: Network,
    /// How long it may take from start to end.
    pub limit: Duration,
}

/// What is made of the cards before the script runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// Nothing: eth0 to eth3 are down.
    Bare,
    /// Hosts `a` and `b`; the router is the machine itself.
    Line,
    /// The same with the router in a namespace of this name.
    RouterIn(String),
}

impl Machine {
    /// A machine with two processors and 1 GiB, hosts and router, and five minutes to live.
    pub fn new(kernel: Kernel, nic: Nic) -> Machine {
        Machine {
            kernel,
            nic,
            cpus: 2,
            memory: 1024,
            network: Network::Line,
            limit: Duration::from_secs(300),
        }
    }
}
