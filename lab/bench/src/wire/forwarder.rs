//! The forwarders that are compared: ours, the kernel, DPDK's testpmd, and a loop that does nothing else.

use super::bed::{Bed, PATIENCE, Shape};
use super::part::{BEGINS, Part};
use super::processor::{Account, ENDS, FORWARDER};
use crate::engine_bench::HugePages;
use artery_rig::conf::ROUTER;
use artery_rig::program;
use artery_rig::{Command, Process, Result, RigError, Signal};
use std::path::Path;
use std::time::Duration;

/// Both directions of a wire, by one METHOD for the interfaces.
const CABLE: &str = "
FromDevice(eth0, PROMISC true, SNIFFER false, METHOD $METHOD) -> Queue(1024) -> ToDevice(eth1, METHOD \
    $METHOD);
FromDevice(eth1, PROMISC true, SNIFFER false, METHOD $METHOD) -> Queue(1024) -> ToDevice(eth0, METHOD \
    $METHOD);
";
/// How long a router polls before it sleeps, if so configured: longer than from one ping to the next.
const LONG_AWAKE: &str = "100ms";
/// How long testpmd may take to begin.
const SLOW_START: Duration = Duration::from_secs(20);
/// Huge pages that testpmd needs.
const PAGES: u64 = 256;
/// Forwarders go ahead of other programs.
const AHEAD: [&str; 3] = ["nice", "-n", "-19"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forwarder {
    Bare,
    Cable(Method),
    Router(Method),
    RouterAwake,
    /// A router that keeps its rights.
    RouterUnconfined,
    Kernel {
        steered: bool,
    },
    Testpmd(Method),
}

/// How a user-space program reaches an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Linux,
    Xdp,
}

use Method::{Linux, Xdp};

/// All of them, in the order of the report.
pub(crate) const ALL: [Forwarder; 11] = [
    Forwarder::Bare,
    Forwarder::Cable(Linux),
    Forwarder::Cable(Xdp),
    Forwarder::Router(Linux),
    Forwarder::RouterAwake,
    Forwarder::RouterUnconfined,
    Forwarder::Router(Xdp),
    Forwarder::Kernel { steered: false },
    Forwarder::Kernel { steered: true },
    Forwarder::Testpmd(Linux),
    Forwarder::Testpmd(Xdp),
];

/// A forwarder at work; it ends when this is dropped.
pub(crate) struct Running {
    process: Option<Process>,
    /// Whether the kernel forwards on the forwarder's processor.
    steered: bool,
    _pages: Option<HugePages>,
}

impl Forwarder {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Forwarder::Bare => "bare",
            Forwarder::Cable(Linux) => "cable",
            Forwarder::Cable(Xdp) => "cable-xdp",
            Forwarder::Router(Linux) => "router",
            Forwarder::Router(Xdp) => "router-xdp",
            Forwarder::RouterAwake => "router-awake",
            Forwarder::RouterUnconfined => "router-no-sandbox",
            Forwarder::Kernel { steered: false } => "kernel",
            Forwarder::Kernel { steered: true } => "kernel-rps",
            Forwarder::Testpmd(Linux) => "testpmd",
            Forwarder::Testpmd(Xdp) => "testpmd-xdp",
        }
    }

    pub(crate) fn what(self) -> String {
        let by = |method| if method == Linux { "AF_PACKET" } else { "AF_XDP" };
        match self {
            Forwarder::Bare => "a loop over our AF_PACKET ring and sendmmsg, without a graph".into(),
            Forwarder::Cable(method) => {
                format!("artery: FromDevice -> Queue -> ToDevice, both ways, {}", by(method))
            }
            Forwarder::Router(method) => format!("artery: conf/router.click, {}", by(method)),
            Forwarder::RouterAwake => {
                format!("the same by AF_PACKET, run with --awake {LONG_AWAKE}: its processor is never idle")
            }
            Forwarder::RouterUnconfined => "the same by AF_PACKET, run with --no-sandbox".into(),
            Forwarder::Kernel { steered: false } => {
                "ip_forward as it comes: in line with the sender, on its processor".into()
            }
            Forwarder::Kernel { steered: true } => {
                "ip_forward on the forwarder's processor, by receive packet steering".into()
            }
            Forwarder::Testpmd(method) => format!("DPDK testpmd, io mode, {}", by(method)),
        }
    }

    /// The processor that it forwards on.
    pub(crate) fn processor(self) -> usize {
        if self == (Forwarder::Kernel { steered: false }) { ENDS } else { FORWARDER }
    }

    pub(crate) fn shape(self) -> Shape {
        match self {
            Forwarder::Router(_)
            | Forwarder::RouterAwake
            | Forwarder::RouterUnconfined
            | Forwarder::Kernel { .. } => Shape::Routed,
            _ => Shape::Wired,
        }
    }

    /// Whether it runs only where it is named.
    pub(crate) fn is_optional(self) -> bool {
        self == Forwarder::RouterUnconfined
    }

    /// Starts it and waits until it forwards.
    pub(crate) fn start(self, bed: &Bed) -> Result<Running> {
        self.start_by(&program::artery()?, bed)
    }

    /// The same, by a build of `artery` of the caller's choice where it is one that runs that.
    pub(crate) fn start_by(self, program: &Path, bed: &Bed) -> Result<Running> {
        let mut running = Running { process: None, steered: false, _pages: None };
        match self {
            Forwarder::Kernel { steered } => {
                bed.r.forwarding(true)?;
                if steered {
                    bed.steer(FORWARDER)?;
                    running.steered = true;
                }
            }
            Forwarder::Bare => {
                let command = pinned(bed).arg(program_path(program::this())?).args(Part::Bare.words());
                running.process = Some(begun(command, BEGINS, PATIENCE)?);
            }
            Forwarder::Cable(method) => {
                running.process = Some(artery(program, bed, &by(CABLE, method), &[])?)
            }
            Forwarder::Router(method) => {
                running.process = Some(artery(program, bed, &routing_by(method), &[])?)
            }
            Forwarder::RouterAwake => {
                running.process = Some(artery(program, bed, &routing_by(Linux), &["--awake", LONG_AWAKE])?);
            }
            Forwarder::RouterUnconfined => {
                running.process = Some(artery(program, bed, &routing_by(Linux), &["--no-sandbox"])?);
            }
            Forwarder::Testpmd(method) => {
                running._pages = Some(HugePages::at_least(PAGES).ok_or_else(no_huge_pages)?);
                running.process = Some(testpmd(bed, method)?);
            }
        }
        if matches!(self, Forwarder::Cable(Xdp) | Forwarder::Router(Xdp)) {
            running.must_use_xdp(bed)?;
        }
        running.must_forward(bed)?;
        Ok(running)
    }
}

fn no_huge_pages() -> RigError {
    RigError::System("testpmd needs huge pages".into(), std::io::ErrorKind::OutOfMemory.into())
}

impl Running {
    /// Where the forwarder's processor time is accounted; `None` where it works in the context of the sender.
    pub(crate) fn account(&self) -> Option<Account> {
        match &self.process {
            Some(process) => Some(Account::Process(process.id())),
            None => self.steered.then_some(Account::Processor),
        }
    }

    /// An error if it has ended.
    pub(crate) fn must_live(&mut self) -> Result<()> {
        let Some(process) = &mut self.process else { return Ok(()) };
        if process.is_running() { Ok(()) } else { Err(RigError::Failed(process.failure())) }
    }

    /// Ends it as it wants to be ended, so that it gives back what it holds.
    pub(crate) fn end(mut self) -> Result<()> {
        if let Some(process) = &mut self.process {
            process.signal(Signal::INT);
            if process.wait(PATIENCE).is_err() {
                process.kill();
            }
        }
        Ok(())
    }

    fn must_forward(&mut self, bed: &Bed) -> Result<()> {
        if bed.forwards_within(PATIENCE)? {
            return Ok(());
        }
        Err(self.unseen("that it forwards"))
    }

    /// A version of the program that does not know the method would be measured by the other way.
    fn must_use_xdp(&self, bed: &Bed) -> Result<()> {
        let link = bed.r.run(["ip", "-j", "link", "show", "eth0"])?.stdout;
        if link.contains("\"xdp\"") { Ok(()) } else { Err(self.unseen("that it receives by AF_XDP")) }
    }

    fn unseen(&self, wanted: &str) -> RigError {
        match &self.process {
            Some(process) => RigError::NotSeen(process.failure(), wanted.into()),
            None => RigError::System(
                format!("the kernel did not show {wanted}"),
                std::io::ErrorKind::TimedOut.into(),
            ),
        }
    }
}

fn by(text: &str, method: Method) -> String {
    text.replace("$METHOD", if method == Linux { "LINUX" } else { "XDP" })
}

/// The router's configuration, with the method said at its devices.
fn routing_by(method: Method) -> String {
    let text = ROUTER.replace("FromDevice($device,", "FromDevice($device, METHOD $METHOD,");
    by(&text.replace("ToDevice($device)", "ToDevice($device, METHOD $METHOD)"), method)
}

/// The beginning of a command on the forwarder's processor.
fn pinned(bed: &Bed) -> Command {
    bed.r.command(AHEAD).args(["taskset", "-c", &FORWARDER.to_string()])
}

fn begun(command: Command, sign: &str, limit: Duration) -> Result<Process> {
    let process = command.spawn()?;
    process.wait_for(sign, limit)?;
    Ok(process)
}

/// Runs a configuration; it is written once everything has started.
fn artery(program: &Path, bed: &Bed, text: &str, options: &[&str]) -> Result<Process> {
    let command = pinned(bed).arg(program).args(["run", "-o", "-", "-e", text]);
    begun(command.args(options), ";\n", PATIENCE)
}

fn testpmd(bed: &Bed, method: Method) -> Result<Process> {
    let driver = if method == Linux { "net_af_packet" } else { "net_af_xdp" };
    let device = |n: u8| format!("{driver}{n},iface=eth{n}");
    // The first processor is for commands, which there are none of.
    let command = bed.r.command(AHEAD).args(["dpdk-testpmd", "-l", "0,1", "--no-pci", "--in-memory"]);
    let command = command.arg(format!("--file-prefix=wire{}", std::process::id()));
    let command = command.args(["--vdev", &device(0), "--vdev", &device(1), "--"]);
    let command = command.args(["--forward-mode=io", "--auto-start", "--no-mlockall", "--stats-period=1"]);
    begun(command, "NIC statistics", SLOW_START)
}

fn program_path(found: anyhow::Result<std::path::PathBuf>) -> Result<std::path::PathBuf> {
    found.map_err(|error| RigError::System(error.to_string(), std::io::ErrorKind::NotFound.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_forwarder_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = ALL.iter().map(|forwarder| forwarder.name()).collect();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn configurations_name_their_method_at_every_device() {
        for text in [by(CABLE, Xdp), routing_by(Xdp)] {
            assert_eq!(text.matches("Device(").count(), text.matches("METHOD XDP").count(), "{text}");
        }
        assert!(!routing_by(Linux).contains("$METHOD"));
    }
}
