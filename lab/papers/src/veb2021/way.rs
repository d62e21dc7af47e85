//! What joins the two hosts: the four of May 2021, and what they are to be compared with here.

use artery_bench::wire::bed::{Bed, PATIENCE, Shape};
use artery_rig::program;
use artery_rig::{Command, Process, Result, RigError, Signal};
use std::fs;
use std::io;

use std::time::Duration;
use tempfile::TempDir;

/// The files of 2021, as printed: what its author wrote about `bridge0` and the others, and pf's.
const BRIDGE0: &str = include_str!("../../../../conf/veb2021/hostname.bridge0");
const CNMAC: &str = include_str!("../../../../conf/veb2021/hostname.cnmac0");
pub(super) const PF: &str = include_str!("../../../../conf/veb2021/pf.conf");

/// The interfaces here for those of 2021. Two of them have no host at the other end, as then.
const MAP: &str = "cnmac0=eth0,cnmac1=eth1,cnmac2=eth2,cnmac3=eth3";
const PORTS: [&str; 4] = ["eth0", "eth1", "eth2", "eth3"];

/// Frames through our program without a switch, both ways.
const CABLE: &str = "
FromDevice(eth0, PROMISC true, SNIFFER false) -> ToDevice(eth1);
FromDevice(eth1, PROMISC true, SNIFFER false) -> ToDevice(eth0);
";

/// How long a switch may take to begin.
const SLOW_START: Duration = Duration::from_secs(20);

/// What joins the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LinkSetup {
    Direct,
    Bridge,
    Veb,
    VebWithPf,
    Cable,
    LinuxBridge,
}

/// All of them: first those of 2021, in its order.
pub(super) const ALL: [LinkSetup; 6] = [
    LinkSetup::Direct,
    LinkSetup::Bridge,
    LinkSetup::Veb,
    LinkSetup::VebWithPf,
    LinkSetup::Cable,
    LinkSetup::LinuxBridge,
];

/// What was published: megabits a second of the whole run, those of a second in the
/// middle, and the processors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Published {
    pub(super) receiver: f64,
    pub(super) steady: &'static str,
    pub(super) processors: &'static str,
}

/// A way at work; it ends when this is dropped.
pub(super) struct Running {
    process: Option<Process>,
    _files: Option<TempDir>,
}

impl LinkSetup {
    pub(super) fn name(self) -> &'static str {
        match self {
            LinkSetup::Direct => "direct",
            LinkSetup::Bridge => "bridge",
            LinkSetup::Veb => "veb",
            LinkSetup::VebWithPf => "veb+link1",
            LinkSetup::Cable => "cable",
            LinkSetup::LinuxBridge => "linux-bridge",
        }
    }

    pub(super) fn what(self) -> &'static str {
        match self {
            LinkSetup::Direct => "the hosts' interfaces joined, nothing in between",
            LinkSetup::Bridge => "bridge(4) rebuilt: one queue, one thread, one lock, pf always on",
            LinkSetup::Veb => "artery up with hostname.veb0 as printed",
            LinkSetup::VebWithPf => {
                "the same with link1, so that frames pass pf with the two lines of the source"
            }
            LinkSetup::Cable => "artery without a switch: FromDevice -> ToDevice, both ways",
            LinkSetup::LinuxBridge => "the bridge of this kernel, in the name of whoever sends",
        }
    }

    /// What was published of it.
    pub(super) fn published(self) -> Option<Published> {
        let row = |receiver, steady, processors| Some(Published { receiver, steady, processors });
        match self {
            LinkSetup::Direct => row(919.0, "934", "-"),
            LinkSetup::Bridge => row(417.0, "420–441", "one at 99 %, three idle"),
            LinkSetup::Veb => row(909.0, "934", "two at 30–40 %"),
            LinkSetup::VebWithPf => row(645.0, "603–684", "not given"),
            LinkSetup::Cable | LinkSetup::LinuxBridge => None,
        }
    }

    pub(super) fn shape(self) -> Shape {
        if self == LinkSetup::Direct { Shape::Direct } else { Shape::Wired }
    }

    /// Starts it and waits until the hosts reach each other.
    pub(super) fn start(self, bed: &Bed) -> Result<Running> {
        let mut running = Running { process: None, _files: None };
        match self {
            LinkSetup::Direct => (),
            LinkSetup::Bridge => running.bridge(bed)?,
            LinkSetup::Veb => running.veb(bed, BRIDGE0)?,
            LinkSetup::VebWithPf => {
                running.veb(bed, &format!("{}link1\n", BRIDGE0.trim_end().to_owned() + "\n"))?
            }
            LinkSetup::Cable => {
                let words = ["run", "--workers", "2", "-o", "-", "-e", CABLE];
                running.begin(bed.r.command([program::artery()?]).args(words), ";\n")?;
            }
            LinkSetup::LinuxBridge => bridged(bed)?,
        }
        if !bed.forwards_within(PATIENCE)? {
            return Err(running.unseen());
        }
        Ok(running)
    }
}

impl Running {
    /// `artery up` with the files of 2021, of which `hostname.veb0` is given.
    fn veb(&mut self, bed: &Bed, hostname: &str) -> Result<()> {
        more_ports(bed)?;
        let files = tempfile::tempdir().map_err(system)?;
        let write = |name: &str, text: &str| fs::write(files.path().join(name), text).map_err(system);
        write("hostname.veb0", hostname)?;
        write("pf.conf", PF)?;
        (0..PORTS.len()).try_for_each(|n| write(&format!("hostname.cnmac{n}"), CNMAC))?;
        let command = bed.r.command([program::artery()?]).args(["up", "--etc"]).arg(files.path());
        let command = command.args(["--map", MAP, "--workers", "2"]);
        let socket = files.path().join("socket");
        self.begin(command.arg("--socket").arg(socket), "")?;
        self._files = Some(files);
        Ok(())
    }

    /// The baseline of the lab, with pf and its two lines.
    fn bridge(&mut self, bed: &Bed) -> Result<()> {
        more_ports(bed)?;
        let this = program::this().map_err(|error| system(io::Error::other(error.to_string())))?;
        let files = tempfile::tempdir().map_err(system)?;
        let rules = files.path().join("pf.conf");
        fs::write(&rules, PF).map_err(system)?;
        let command = bed.r.command([this]).args([super::SUBCOMMAND, "bridge", "--pf"]).arg(rules);
        self.begin(command.args(PORTS), super::part::BEGINS)?;
        self._files = Some(files);
        Ok(())
    }

    fn begin(&mut self, command: Command, sign: &str) -> Result<()> {
        let process = command.spawn()?;
        if !sign.is_empty() {
            process.wait_for(sign, SLOW_START)?;
        }
        self.process = Some(process);
        Ok(())
    }

    /// The process that forwards, if one does.
    pub(super) fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Ends it as it wants to be ended; an error if it had ended before.
    pub(super) fn end(mut self) -> Result<()> {
        let Some(process) = &mut self.process else { return Ok(()) };
        if !process.is_running() {
            return Err(RigError::Failed(process.failure()));
        }
        process.signal(Signal::INT);
        if process.wait(PATIENCE).is_err() {
            process.kill();
        }
        Ok(())
    }

    fn unseen(&self) -> RigError {
        match &self.process {
            Some(process) => RigError::NotSeen(process.failure(), "that it forwards".into()),
            None => system(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Adds two ports, each without a host at the other end.
fn more_ports(bed: &Bed) -> Result<()> {
    for port in &PORTS[2..] {
        let end = format!("{port}-end");
        bed.r.run(["ip", "link", "add", port, "type", "veth", "peer", "name", &end])?;
        bed.r.up(port)?.up(&end)?;
    }
    Ok(())
}

/// The kernel's own bridge between the forwarder's interfaces.
fn bridged(bed: &Bed) -> Result<()> {
    bed.r.run(["ip", "link", "add", "bridge", "type", "bridge", "forward_delay", "0"])?;
    for port in &PORTS[..2] {
        bed.r.run(["ip", "link", "set", port, "master", "bridge"])?;
    }
    bed.r.up("bridge").map(|_| ())
}

fn system(error: io::Error) -> RigError {
    RigError::System("the switch could not be started".into(), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_those_that_were_printed() {
        let lines = |text: &str| {
            text.lines().map(str::trim).filter(|l| !l.is_empty()).map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(lines(BRIDGE0), ["add cnmac0", "add cnmac1", "add cnmac2", "add cnmac3", "up"]);
        assert_eq!(lines(CNMAC), ["up"]);
        assert_eq!(lines(PF), ["set skip on lo0", "pass"]);
    }

    #[test]
    fn every_way_has_a_name_of_its_own_and_four_were_published() {
        let names: std::collections::BTreeSet<&str> = ALL.iter().map(|way| way.name()).collect();
        assert_eq!(names.len(), ALL.len());
        assert_eq!(ALL.iter().filter(|way| way.published().is_some()).count(), 4);
    }
}
