//! `artery-bench vm`: what people type to open a machine.

use super::folder::quoted;
use super::{Kernel, Machine, Network, Nic, try_matrix};
use crate::console::progress;
use clap::{Args, Subcommand};
use std::process::ExitCode;
use std::time::Duration;

/// What is done with machines.
#[derive(Subcommand)]
pub enum Vm {
    /// Boot a machine and run a command in it as root
    Run(Run),
    /// Run the matrix of kernels, cards and what runs there, and write a report
    Matrix(try_matrix::Options),
    /// Fetch kernels and unpack them, which booting does by itself, too
    Fetch {
        /// Which kernels: a series such as 6.1, or unstable
        #[arg(required = true)]
        kernels: Vec<Kernel>,
    },
}

/// A machine and a command.
#[derive(Args)]
pub struct Run {
    /// A series such as 6.1, or unstable
    kernel: Kernel,
    /// virtio-net, e1000e or vmxnet3, then any of ,queues=N ,offloads=on|off ,wire=tap|hub
    nic: Nic,
    /// Processors of the virtual machine
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Memory of the virtual machine, in MiB
    #[arg(long, default_value_t = 1024)]
    memory: u32,
    /// Leave the cards eth0 to eth3 as they come up: no hosts, no addresses
    #[arg(long, conflicts_with = "router")]
    bare: bool,
    /// Put the router's ports eth1 and eth2 into a namespace of this name, not into the machine itself
    #[arg(long)]
    router: Option<String>,
    /// Seconds that the machine may take
    #[arg(long, default_value_t = 300)]
    limit: u64,
    /// Show the kernel's log at the end, too
    #[arg(long)]
    log: bool,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Does it; the status is the command's.
pub fn run(vm: &Vm) -> anyhow::Result<ExitCode> {
    match vm {
        Vm::Run(options) => boot(options),
        Vm::Matrix(options) => try_matrix::run(options),
        Vm::Fetch { kernels } => {
            for kernel in kernels {
                let unpacked = super::fetch::newest(kernel)?;
                println!("{kernel}: {}", unpacked.release);
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn boot(options: &Run) -> anyhow::Result<ExitCode> {
    let network = match &options.router {
        _ if options.bare => Network::Bare,
        Some(name) => Network::RouterIn(name.clone()),
        None => Network::Line,
    };
    let machine = Machine {
        cpus: options.cpus,
        memory: options.memory,
        network,
        limit: Duration::from_secs(options.limit),
        ..Machine::new(options.kernel.clone(), options.nic.clone())
    };
    let words: Vec<String> = options.command.iter().map(|word| quoted(word)).collect();
    let outcome = machine.run_and_show(&words.join(" "), std::io::stdout(), std::io::stderr())?;
    if options.log {
        eprint!("{}", outcome.log);
    }
    progress(&format!("vm: Linux {} booted in {:.1} s", outcome.release, outcome.boot.as_secs_f64()));
    Ok(u8::try_from(outcome.status).map_or(ExitCode::FAILURE, ExitCode::from))
}
