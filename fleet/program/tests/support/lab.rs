//! Machines of a fleet on a rig: each has a namespace with `eth0`, and an `artery-fleet` that announces the
//! service there. Their routers play captures, and need no interfaces.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use artery_netlink::rtnetlink::Rtnetlink;
use artery_rig::{Host, Result, Rig, Switch};

use super::support::{Fleet, Router, Settings};

/// The address that is announced.
pub const SERVICE: &str = "192.0.2.1";
/// Far more than anything here may take on a machine that has other things to do.
pub const BOUND: Duration = Duration::from_secs(2);

/// A machine: its namespace, its router and its `artery-fleet`.
pub struct Machine {
    pub host: Host,
    pub router: Router,
    pub fleet: Fleet,
}

pub struct Lab {
    rig: Rig,
    pub switch: Switch,
    program: PathBuf,
    folder: tempfile::TempDir,
    machines: usize,
}

pub fn address(number: usize) -> String {
    format!("10.77.2.{number}")
}

pub fn name(number: usize) -> String {
    format!("m{number}")
}

impl Lab {
    /// A lab for so many machines, none of which is there yet.
    pub fn new(rig: &Rig, program: &Path, machines: usize) -> Result<Lab> {
        let (switch, folder) = (rig.switch("middle")?, tempfile::tempdir().unwrap());
        Ok(Lab { rig: rig.clone(), switch, program: program.to_path_buf(), folder, machines })
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A machine whose router runs, and whose `artery-fleet` has just been started with these
    /// lines of `[announce]`.
    pub fn machine(&self, number: usize, announce: &str) -> Result<Machine> {
        let host = self.rig.host(&name(number))?;
        self.rig.plug(&host, "eth0", &self.switch)?;
        host.address("eth0", &format!("{}/24", address(number)))?;
        let router = self.router(number);
        let fleet = self.fleet(number, &router, announce);
        Ok(Machine { host, router, fleet })
    }

    /// A router for a machine, as it is started again.
    pub fn router(&self, number: usize) -> Router {
        Router::start(&self.program, self.folder(), &name(number))
    }

    pub fn fleet(&self, number: usize, router: &Router, announce: &str) -> Fleet {
        let others = (1..=self.machines).filter(|other| *other != number);
        let namespace = format!("{}{}", self.rig.prefix(), name(number));
        let settings = Settings {
            fleet: "web",
            balancer: "b",
            machine: &name(number),
            files: &name(number),
            listen: format!("{}:7447", address(number)),
            peers: others.map(|other| format!("{}:7447", address(other))).collect(),
            socket: &router.socket,
            more: format!("insecure = true\n[announce]\n{announce}\n"),
            prefix: ["ip", "netns", "exec", &namespace].map(String::from).to_vec(),
        };
        Fleet::start(self.folder(), &settings)
    }
}

/// Whether a host has the service's address.
pub fn is_announced(host: &Host) -> Result<bool> {
    let service: IpAddr = SERVICE.parse().unwrap();
    host.enter(|| {
        let addresses = Rtnetlink::open().and_then(|mut rtnetlink| rtnetlink.addresses()).unwrap();
        addresses.iter().any(|one| one.address == service)
    })
}

/// Waits until something is so, asking each millisecond, and says how long it took.
pub fn time_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<Duration> {
    let begun = Instant::now();
    while !is_so()? {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(begun.elapsed())
}

/// Waits for a withdrawal after a failure; it must come soon.
pub fn await_withdrawal(what: &str, is_withdrawn: impl FnMut() -> Result<bool>) -> Result<()> {
    let took = time_until(what, is_withdrawn)?;
    println!("measured: {what}: {} ms", took.as_millis());
    assert!(took < BOUND, "{what}: {took:?}");
    Ok(())
}
