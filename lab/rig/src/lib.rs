//! Hosts, routers, switches and links in network namespaces, described in a few lines and always cleaned up.
//!
//! ```no_run
//! use artery_rig::Rig;
//! fn main() {
//!     artery_rig::test("ping-through-router", |rig: &Rig| {
//!         let (a, r, b) = (rig.host("a")?, rig.host("r")?, rig.host("b")?);
//!         rig.link(&a, "eth0", &r, "eth0")?.mtu(9000)?;
//!         rig.link(&r, "eth1", &b, "eth0")?;
//!         a.address("eth0", "10.0.1.2/24")?.route("default", "10.0.1.1")?;
//!         b.address("eth0", "10.0.2.2/24")?.route("default", "10.0.2.1")?;
//!         r.address("eth0", "10.0.1.1/24")?.address("eth1", "10.0.2.1/24")?.forwarding(true)?;
//!         assert_eq!(a.ping("10.0.2.2", 3)?.received, 3);
//!         Ok(())
//!     });
//! }
//! ```
//!
//! What a test needs beyond that: [`Host::run`] and [`Host::spawn`] for any program, [`Host::capture`]
//! for what went over an interface, [`Host::iperf3`] and [`Traffic`] for load, [`Daemons`] for BIRD and FRR,
//! [`Line`] for the topology above ready made.
//!
//! Namespaces are named `art-<pid>-<n>-<host>`, where pid is the process that owns the rig. They go,
//! with every process inside, when the rig and its last [`Host`] are dropped; when the owner dies,
//! however it dies; and at the latest when the next rig on this machine is made. The shell script in
//! `cleanup.rs` does all three.
//!
//! Tests and measurements share more than hosts: [`vm`] boots stock kernels, [`program`] finds the program
//! `artery` or builds a router in this process, [`conf`] has the configurations of the tree.
//!
//! Not here: knowledge of any element. A router on a rig is a host that runs a program.
#![forbid(unsafe_code)]

mod capture;
mod cleanup;
mod command;
pub mod conf;
pub mod console;
mod daemons;
mod echo_server;
mod endpoint;
mod error;
mod histogram;
mod host;
mod iperf3;
mod kernel_counters;
mod line;
mod link;
mod live_frames;
pub mod machine;
mod namespace;
mod output;
mod ping;
mod process;
pub mod program;
mod raw;
mod receiver;
mod sender;
mod traffic;
pub mod vm;

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub use capture::{Capture, Frame};
pub use command::Command;
pub use daemons::Daemons;
pub use echo_server::EchoServer;
pub use endpoint::Endpoint;
pub use error::{Failure, Result, RigError, Skip};
pub use histogram::{Histogram, Latency};
pub use host::{Counters, Host, Neighbor};
pub use iperf3::Throughput;
pub use line::Line;
pub use link::{Link, Switch};
pub use live_frames::{LiveFrames, STAMP};
pub use output::CommandOutput;
pub use ping::{PingReport, RoundTrip};
pub use process::Process;
pub use raw::Injector;
pub use rustix::process::Signal;
pub use traffic::{Traffic, TrafficReport};

use cleanup::Watchdog;
use host::Place;

/// A set of hosts, switches and links that lives as long as this value or any [`Host`] made from it.
#[derive(Clone)]
pub struct Rig {
    shared: Arc<Shared>,
}

/// What the hosts of one rig share; dropping the last reference removes the namespaces.
struct Shared {
    label: String,
    prefix: String,
    places: Mutex<BTreeMap<String, Arc<Place>>>,
    _watchdog: Watchdog,
}

/// Numbers the rigs of this process, so that tests in parallel threads do not meet.
static RIGS: AtomicU32 = AtomicU32::new(1);

impl Rig {
    /// Makes an empty rig; `label` names it in messages. Fails with [`RigError::Skip`] where
    /// rigs cannot be made.
    pub fn new(label: &str) -> Result<Rig> {
        if !rustix::process::geteuid().is_root() {
            return Err(Skip::NeedsRoot.into());
        }
        command::find_tool("ip".as_ref())?;
        cleanup::sweep_once()?;
        let prefix = format!("art-{}-{}-", std::process::id(), RIGS.fetch_add(1, Ordering::Relaxed));
        let watchdog = Watchdog::start(&prefix)?;
        let shared = Shared { label: label.into(), prefix, places: Mutex::default(), _watchdog: watchdog };
        Ok(Rig { shared: Arc::new(shared) })
    }

    /// Makes a host: a network namespace with loopback up and IPv6 addresses usable at once.
    pub fn host(&self, name: &str) -> Result<Host> {
        namespace::check_host_name(name)?;
        let place = {
            let mut places = self.places();
            if places.contains_key(name) {
                return Err(RigError::NameTaken { name: name.into() });
            }
            let place = Arc::new(Place::new(name, &self.shared.prefix, places.len()));
            places.insert(name.into(), place.clone());
            place
        };
        let host = Host::new(self.shared.clone(), place);
        host.create_namespace().inspect_err(|_| {
            self.places().remove(name);
        })?;
        Ok(host)
    }

    /// Finds a host or switch made earlier.
    pub fn find(&self, name: &str) -> Result<Host> {
        let places = self.places();
        match places.get(name) {
            Some(place) => Ok(Host::new(self.shared.clone(), place.clone())),
            None => Err(RigError::UnknownHost { name: name.into(), known: places.keys().cloned().collect() }),
        }
    }

    /// Makes a switch: a Linux bridge in a namespace of its own, forwarding at once
    /// and without spanning tree.
    pub fn switch(&self, name: &str) -> Result<Switch> {
        Switch::create(self.host(name)?)
    }

    /// Joins two hosts by a veth pair; both ends are up when this returns.
    pub fn link(
        &self,
        left: &Host,
        left_interface: &str,
        right: &Host,
        right_interface: &str,
    ) -> Result<Link> {
        Link::create((left, left_interface), (right, right_interface))
    }

    /// Plugs a new interface of `host` into a switch.
    pub fn plug(&self, host: &Host, interface: &str, switch: &Switch) -> Result<Link> {
        switch.plug(host, interface)
    }

    /// Makes the usual three hosts in a row, addressed and routed: see [`Line`].
    pub fn line(&self) -> Result<Line> {
        Line::create(self)
    }

    /// The beginning of the names of this rig's namespaces.
    pub fn prefix(&self) -> &str {
        &self.shared.prefix
    }

    fn places(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Place>>> {
        self.shared.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a test on a fresh rig: passes when `body` does, panics with its error, and says so when
/// it must be skipped.
///
/// A missing tool counts as a reason to skip wherever in the body it shows. With `ARTERY_RIG=required` in the
/// environment a test is skipped for what the kernel lacks only: missing rights and missing tools fail it.
pub fn test(label: &str, body: impl FnOnce(&Rig) -> Result<()>) {
    let run = || Rig::new(label).and_then(|rig| body(&rig));
    match panic::catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => {}
        Ok(Err(RigError::Skip(reason))) if may_skip(&reason) => {
            let line = format!("{label}: skipped: {reason}\n");
            // Straight to the stream: the test harness hides what `eprintln!` writes in a test that passes.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
        Ok(Err(error)) => panic!("{label}: {error}"),
        Err(cause) => panic::resume_unwind(cause),
    }
}

/// Whether a test may be skipped even where tests are required: another kernel can't be demanded.
fn may_skip(reason: &Skip) -> bool {
    let required = std::env::var_os("ARTERY_RIG").is_some_and(|value| value == "required");
    !required || matches!(reason, Skip::KernelLacks(_))
}
