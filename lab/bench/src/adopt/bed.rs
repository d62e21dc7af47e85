//! What forwarders stand between: a host that sends, the forwarder's host with a full table,
//! and one that counts.

use super::programs::{Frames, KernelLookup, Sink};
use super::{AdoptForwarder, LOOKUP_ROW};
use anyhow::{Context as _, ensure};
use artery_adopt::Session;
use artery_adopt::blockers;
use artery_adopt::fast::Mode;
use artery_device::bpf::{Attachment, Instruction};
use artery_lpm::{Address, Prefix};
use artery_rig::program;
use artery_rig::{Host, Process, Result, Rig, RigError};
use artery_wire::EtherAddr;
use artery_wire::Random;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Gateways that routes lead to.
const GATEWAYS: u32 = 16;
/// Networks on either side of the forwarder (RFC 2544, RFC 5180).
const ADDRESSES: [[&str; 3]; 4] = [
    ["r", "eth0", "198.18.0.1/24"],
    ["r", "eth1", "198.19.0.1/16"],
    ["r", "eth0", "2001:2::1/64"],
    ["r", "eth1", "2001:2:0:1::1/64"],
];
const SOURCES: [&str; 2] = ["198.18.0.2", "2001:2::2"];
/// The host that counts, which is also the first gateway.
pub(super) const TARGETS: [&str; 2] = ["198.19.0.2", "2001:2:0:1::2"];
/// How ip(8) begins a message about a line that it, or the kernel, refuses.
const REFUSED_LINE: &str = "Command failed";
/// How long frames may still arrive after the last was sent.
const LATEST: Duration = Duration::from_secs(2);
/// How long the program may take to read full tables.
const START: Duration = Duration::from_secs(60);

fn gateway(is_ipv6: bool, number: u32) -> IpAddr {
    match is_ipv6 {
        false => Ipv4Addr::from_bits(0xc613_0002 + number).into(),
        true => Ipv6Addr::from_bits(0x2001_0002_0000_0001 << 64 | u128::from(2 + number)).into(),
    }
}

/// The three hosts in a row.
pub(super) struct Bed {
    pub(super) a: Host,
    pub(super) r: Host,
    pub(super) b: Host,
}

/// A way of forwarding at work; it ends when this is dropped.
pub(super) struct Running {
    sink: Option<Sink>,
    _lookup: Option<Attachment>,
    session: Option<Session>,
    _program: Option<Process>,
    /// How long the tables took to be read and laid out.
    pub(super) opened: Option<Duration>,
}

impl Bed {
    pub(super) fn new() -> Result<Bed> {
        let rig = Rig::new("adopt")?;
        let (a, r, b) = (rig.host("a")?, rig.host("r")?, rig.host("b")?);
        rig.link(&a, "eth0", &r, "eth0")?;
        rig.link(&b, "eth0", &r, "eth1")?;
        for [_, interface, address] in ADDRESSES {
            r.address(interface, address)?;
        }
        r.forwarding(true)?;
        a.address("eth0", "198.18.0.2/24")?.route("default", "198.18.0.1")?;
        a.address("eth0", "2001:2::2/64")?.route("default", "2001:2::1")?;
        b.address("eth0", "198.19.0.2/16")?.route("default", "198.19.0.1")?;
        b.address("eth0", "2001:2:0:1::2/64")?.route("default", "2001:2:0:1::1")?;
        // What comes by redirection the receiving end takes only as a whole poll of frames.
        for host in [&a, &r] {
            host.run(["ethtool", "-K", "eth0", "gro", "on"])?;
        }
        let bed = Bed { a, r, b };
        bed.install_neighbors()?;
        Ok(bed)
    }

    /// Adds permanent neighbor entries, so that no host solicits a neighbor while frames arrive.
    fn install_neighbors(&self) -> Result<()> {
        let (near, far) = (self.a.mac("eth0")?, self.b.mac("eth0")?);
        let know = |host: &Host, interface: &str, address: &str, mac: &str| {
            let words =
                ["ip", "neighbor", "replace", address, "lladdr", mac, "dev", interface, "nud", "permanent"];
            host.run(words).map(drop)
        };
        SOURCES.iter().try_for_each(|source| know(&self.r, "eth0", source, &near))?;
        for is_ipv6 in [false, true] {
            for number in 0..GATEWAYS {
                know(&self.r, "eth1", &gateway(is_ipv6, number).to_string(), &far)?;
            }
        }
        let own = self.r.mac("eth0")?;
        ["198.18.0.1", "2001:2::1"].iter().try_for_each(|address| know(&self.a, "eth0", address, &own))?;
        let own = self.r.mac("eth1")?;
        ["198.19.0.1", "2001:2:0:1::1"].iter().try_for_each(|address| know(&self.b, "eth0", address, &own))
    }

    /// Gives the forwarder's host routes, each by one of the gateways, and says how many its kernel took.
    pub(super) fn load<A: Address>(&self, prefixes: &[Prefix<A>], folder: &Path) -> anyhow::Result<usize> {
        let (mut random, mut lines) = (Random::new(1), String::new());
        let is_ipv6 = A::BITS == 128;
        for prefix in prefixes {
            let by = gateway(is_ipv6, random.below(GATEWAYS.into()) as u32);
            writeln!(lines, "route replace {prefix} via {by}").expect("a string takes all");
        }
        let file = folder.join("routes");
        std::fs::write(&file, lines).context("writing routes")?;
        let family = if is_ipv6 { "-6" } else { "-4" };
        let load = || Command::new("ip").args([family, "-force", "-batch"]).arg(&file).output();
        let output = self.r.enter(load)?.context("loading routes")?;
        let told = String::from_utf8_lossy(&output.stderr);
        let refused = told.lines().filter(|line| line.starts_with(REFUSED_LINE)).count();
        // At a word that it can't read ip(8) ends, without counting the lines that it leaves.
        let is_read = output.status.success() || refused > 0;
        let taken = if is_read { prefixes.len().saturating_sub(refused) } else { 0 };
        // Some of a feed's prefixes no kernel takes: a comparison is none the worse for them.
        ensure!(
            taken > prefixes.len() / 100 * 99,
            "the kernel took {taken} of {} routes: {}",
            prefixes.len(),
            told.lines().next().unwrap_or("ip(8) does not say why")
        );
        Ok(taken)
    }

    /// Frames to destinations of a family.
    pub(super) fn frames(&self, destinations: &[IpAddr]) -> anyhow::Result<Frames> {
        let source = SOURCES[usize::from(destinations[0].is_ipv6())].parse()?;
        let to: EtherAddr = self.r.mac("eth0")?.parse().context("the address of eth0")?;
        Ok(Frames::new(to, source, destinations)?)
    }

    /// Begins with a way of forwarding, and what counts behind it; called in the forwarder's namespace.
    pub(super) fn begin(&self, way: AdoptForwarder, counts: bool) -> anyhow::Result<Running> {
        let is_by_xdp = matches!(way, AdoptForwarder::Lookup | AdoptForwarder::OursByXdp);
        let new_sink = || Sink::new(index("eth0")?, is_by_xdp);
        let sink =
            if counts { Some(self.b.enter(new_sink)?.context("counting what arrives")?) } else { None };
        let mut running = Running { sink, _lookup: None, session: None, _program: None, opened: None };
        match way {
            AdoptForwarder::Kernel => {}
            AdoptForwarder::Lookup => {
                let lookup = KernelLookup::new(index("eth1")?)?;
                running._lookup = Some(lookup.attach(index("eth0")?).context(LOOKUP_ROW)?);
            }
            AdoptForwarder::OursByXdp | AdoptForwarder::OursByTc => {
                let start = Instant::now();
                running.session = Some(open(if is_by_xdp { Mode::Native } else { Mode::Tc })?);
                running.opened = Some(start.elapsed());
            }
            AdoptForwarder::OursByGraph => running._program = Some(self.adopt_by_graph()?),
        }
        Ok(running)
    }

    fn adopt_by_graph(&self) -> Result<Process> {
        let adopt = self.r.command([program::artery()?]).args(["adopt", "--path", "graph", "eth0", "eth1"]);
        let adopting = adopt.spawn()?;
        adopting.wait_for("artery: forwarding\n", START)?;
        Ok(adopting)
    }

    /// Sends frames and gives how many arrived in a second; called on the processor that is to
    /// do all the work.
    pub(super) fn rate(&self, running: &Running, frames: &Frames, count: u32) -> anyhow::Result<f64> {
        let sink = running.sink.as_ref().context("no sink counts")?;
        let before = sink.count()?;
        let (sent, time) = self.a.enter(|| {
            let interface = index("eth0")?;
            let start = Instant::now();
            frames.send(interface, count)?;
            Ok::<_, io::Error>((count, start.elapsed()))
        })??;
        let deadline = Instant::now() + LATEST;
        let mut arrived = sink.count()? - before;
        while arrived < u64::from(sent) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
            arrived = sink.count()? - before;
        }
        // What is not routed is dropped at once, which would make a forwarder fast.
        ensure!(arrived > u64::from(sent) / 100 * 99, "{arrived} of {sent} frames arrived");
        Ok(arrived as f64 / time.as_secs_f64())
    }
}

impl Running {
    /// Our program for what comes by the first interface.
    pub(super) fn program(&self) -> anyhow::Result<Vec<Instruction>> {
        let session = self.session.as_ref().context("it forwards")?;
        session.accelerator().program(index("eth0")?).context("it has a program")
    }
}

/// Adopts both interfaces, which nothing keeps.
fn open(mode: Mode) -> anyhow::Result<Session> {
    let port = |name: &str| anyhow::Ok((blockers::port(name)?.context("no such interface")?, mode));
    let session = Session::open(&[port("eth0")?, port("eth1")?], None, Instant::now())?;
    // The session isn't polled while frames are sent and counted.
    session.accelerator().lease().renew_for_good()?;
    let kept = session.blockers().iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    ensure!(kept.is_empty(), "traffic stays with the kernel: {kept}");
    let refusing = session.without_redirect().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
    ensure!(refusing.is_empty(), "{refusing}: the other end neither joins frames nor has a program");
    Ok(session)
}

/// The number of an interface of this thread's namespace.
pub(super) fn index(name: &str) -> io::Result<u32> {
    Ok(blockers::port(name)?.ok_or(io::ErrorKind::NotFound)?.index)
}

/// Whether a rig can't be made here, and why.
pub(super) fn refusal(error: &RigError) -> String {
    error.to_string()
}
