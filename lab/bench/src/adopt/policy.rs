//! `artery-bench adopt --policy`: connections past a firewall, and past one that masquerades, beside the
//! kernel with the same rules.
//!
//! Each figure is of hosts of their own, so that no connection of another one is left. Flows of UDP differ in
//! their far addresses; the program `artery` adopts the ports before they begin. Processors' time is that of
//! this process, which sends and forwards in line on one of them, and that of `artery` on the other.
pub(super) mod reaction;
mod report;

use super::bed::{Bed, TARGETS, index, refusal};
use super::programs::{Frames, Sink};
use crate::fib::timing::Pinned;
use crate::results::Delivery;
use crate::wire::processor::Account;
use anyhow::{Context as _, ensure};
use artery_rig::console::progress;
use artery_rig::machine::Machine;
use artery_rig::program;
use artery_rig::{Host, Process};
use artery_wire::EtherAddr;
use report::Report;
use rustix::time::{ClockId, clock_gettime};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// Where far addresses begin, and the near one; what a masquerading gateway shows instead.
const FAR: Ipv4Addr = Ipv4Addr::new(20, 0, 0, 0);
const NEAR: &str = "198.18.0.2";
const GATEWAY: &str = "198.19.0.1";
/// Seconds that entries of UDP live, longer than a run takes.
const TIMEOUT: &str = "600";
/// Frames of new connections each way: so few that adopt asks nothing about them, and more.
const FRAMES_OF_NEW: [usize; 2] = [1, 8];
const SETTLING: Duration = Duration::from_millis(300);
/// How long connections may take to be forwarded, and frames to arrive.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    Filter,
    Masquerade,
}

impl Rules {
    const ALL: [Rules; 2] = [Rules::Filter, Rules::Masquerade];

    fn name(self) -> &'static str {
        match self {
            Rules::Filter => "established accept, policy drop",
            Rules::Masquerade => "the same, and masquerading",
        }
    }

    fn text(self) -> String {
        let filter = "table inet f { chain forward { type filter hook forward priority 0; policy drop; \
            ct state established,related accept; iifname eth0 accept; }; }";
        let masquerade =
            "table ip n { chain out { type nat hook postrouting priority 100; oifname eth1 masquerade; }; }";
        match self {
            Rules::Filter => filter.to_owned(),
            Rules::Masquerade => format!("{filter}; {masquerade}"),
        }
    }

    /// Where answers go to.
    fn near(self) -> IpAddr {
        let near = if self == Rules::Filter { NEAR } else { GATEWAY };
        near.parse().expect("an address")
    }
}

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forwarder {
    Kernel,
    Xdp,
    Tc,
}

impl Forwarder {
    const ALL: [Forwarder; 3] = [Forwarder::Kernel, Forwarder::Xdp, Forwarder::Tc];
    /// XDP would lose what hosts on such links leave to a card.
    const OF_TCP: [Forwarder; 2] = [Forwarder::Kernel, Forwarder::Tc];

    fn name(self) -> &'static str {
        match self {
            Forwarder::Kernel => "kernel",
            Forwarder::Xdp => "artery adopt, XDP",
            Forwarder::Tc => "artery adopt, tc",
        }
    }

    fn path(self) -> Option<&'static str> {
        match self {
            Forwarder::Kernel => None,
            Forwarder::Xdp => Some("xdp"),
            Forwarder::Tc => Some("tc"),
        }
    }
}

/// How much is run.
struct Plan {
    rounds: usize,
    flows: &'static [usize],
    /// Frames of a run.
    frames: u32,
    /// Connections that are opened in a run.
    new: usize,
    /// Seconds of a run of iperf3.
    seconds: u32,
}

impl Plan {
    const FLOWS: &[usize] = &[1 << 12, 1 << 16];
    const FULL: Plan = Plan { rounds: 7, flows: Plan::FLOWS, frames: 1 << 22, new: 1 << 16, seconds: 4 };
    const QUICK: Plan = Plan { rounds: 3, flows: Plan::FLOWS, frames: 1 << 20, new: 1 << 14, seconds: 1 };
}

/// Measures, prints, and writes files.
pub(super) fn run(delivery: &Delivery) -> anyhow::Result<()> {
    let plan = delivery.manner.plan(Plan::FULL, Plan::QUICK);
    let mut report = Report::new(Machine::here());
    for round in 1..=plan.rounds {
        for rules in Rules::ALL {
            progress(&format!("round {round} of {}: {}", plan.rounds, rules.name()));
            for flows in plan.flows {
                of_all(&Forwarder::ALL, &mut report, |by, report| {
                    established(&plan, rules, *flows, by, report)
                });
            }
            for frames in FRAMES_OF_NEW {
                of_all(&Forwarder::ALL, &mut report, |by, report| opening(&plan, rules, frames, by, report));
            }
            of_all(&Forwarder::OF_TCP, &mut report, |by, report| tcp(&plan, rules, by, report));
        }
    }
    delivery.deliver(&report)
}

fn of_all(
    all: &[Forwarder],
    report: &mut Report,
    mut measure: impl FnMut(Forwarder, &mut Report) -> anyhow::Result<()>,
) {
    for by in all {
        if let Err(error) = measure(*by, report) {
            report.figures.skip(by.name(), &format!("{error:#}"));
        }
    }
}

/// Hosts in a row with rules in the middle, and who forwards there.
struct Gateway {
    bed: Bed,
    adopted: Option<Adopted>,
    /// What counts behind the links on both sides.
    far: Sink,
    near: Sink,
    forth: Frames,
    back: Frames,
}

struct Adopted {
    process: Process,
    socket: tempfile::TempDir,
}

impl Gateway {
    fn open(rules: Rules, by: Forwarder, flows: usize) -> anyhow::Result<Gateway> {
        let bed = filtered(rules)?;
        let adopted = by.path().map(|path| adopt(&bed.r, path)).transpose()?;
        let is_by_xdp = by == Forwarder::Xdp;
        let sink = |host: &Host| -> anyhow::Result<Sink> {
            host.enter(|| Sink::new(index("eth0")?, is_by_xdp))?.context("counting what arrives")
        };
        let (far, near) = (sink(&bed.b)?, sink(&bed.a)?);
        let addresses: Vec<IpAddr> = (1..=flows as u32).map(|at| far_address(at).into()).collect();
        let mac = |port: &str| -> anyhow::Result<EtherAddr> {
            bed.r.mac(port)?.parse().with_context(|| format!("the address of {port}"))
        };
        let forth = Frames::new(mac("eth0")?, NEAR.parse()?, &addresses)?;
        let back = Frames::answers(mac("eth1")?, &addresses, rules.near())?;
        Ok(Gateway { bed, adopted, far, near, forth, back })
    }

    /// Sends a frame of each flow, and an answer to each, and waits until all have arrived.
    fn exchange(&self, flows: u32) -> anyhow::Result<()> {
        self.send_forth(flows)?;
        let before = self.near.count()?;
        self.bed.b.enter(|| self.back.send(index("eth0")?, flows))??;
        until("answers arrive", || Ok(self.near.count()? - before >= u64::from(flows) * 99 / 100))
    }

    fn send_forth(&self, frames: u32) -> anyhow::Result<()> {
        let before = self.far.count()?;
        self.bed.a.enter(|| self.forth.send(index("eth0")?, frames))??;
        until("frames arrive", || Ok(self.far.count()? - before >= u64::from(frames) * 99 / 100))
    }

    /// Sends frames of each flow and answers until they go past rules, where that is what is measured.
    fn exchange_until_followed(&self, flows: usize) -> anyhow::Result<()> {
        until(&format!("{flows} connections are forwarded"), || {
            self.exchange(flows as u32)?;
            let Some(adopted) = &self.adopted else { return Ok(true) };
            let state = self.bed.r.command([program::artery()?]).args(["handler", "-u"]);
            let state = state.arg(adopted.socket.path().join("control")).arg("state").run()?.stdout;
            let state: serde_json::Value = serde_json::from_str(&state).context("the state")?;
            // A few may find no room.
            Ok(state["connections"]["forwarded"].as_u64() >= Some(flows as u64 * 99 / 100))
        })
    }

    /// Seconds of processors: of this process, and of who adopts.
    fn processor_time(&self) -> f64 {
        let own = clock_gettime(ClockId::ProcessCPUTime);
        let own = own.tv_sec as f64 + own.tv_nsec as f64 / 1e9;
        own + self.adopted.as_ref().map_or(0.0, |adopted| Account::Process(adopted.process.id()).seconds())
    }
}

fn far_address(number: u32) -> Ipv4Addr {
    // Neither a network's first address nor its last.
    Ipv4Addr::from_bits(FAR.to_bits() + ((number / 200) << 8) + number % 200 + 1)
}

/// Hosts whose middle one has rules, and a route to all far addresses.
fn filtered(rules: Rules) -> anyhow::Result<Bed> {
    let bed = Bed::new().map_err(|error| anyhow::anyhow!(refusal(&error)))?;
    bed.r.run(["ip", "route", "add", "20.0.0.0/8", "via", TARGETS[0]])?;
    for (host, port) in [(&bed.r, "eth1"), (&bed.b, "eth0")] {
        host.run(["ethtool", "-K", port, "gro", "on"])?;
    }
    bed.r.run(["nft", &rules.text()])?;
    for setting in ["nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"] {
        bed.r.sysctl(&format!("net.netfilter.{setting}"), TIMEOUT)?;
    }
    bed.r.sysctl("net.netfilter.nf_conntrack_tcp_be_liberal", "1")?;
    Ok(bed)
}

fn adopt(host: &Host, path: &str) -> anyhow::Result<Adopted> {
    let socket = tempfile::tempdir().context("a folder for a socket")?;
    let command =
        host.command([program::artery()?]).args(["adopt", "--established=rules", "--path", path, "-u"]);
    let process = command.arg(socket.path().join("control")).args(["eth0", "eth1"]).spawn()?;
    process.wait_for("forwarding\n", PATIENCE)?;
    Ok(Adopted { process, socket })
}

fn until(what: &str, mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Frames a second of established connections.
fn established(
    plan: &Plan,
    rules: Rules,
    flows: usize,
    by: Forwarder,
    report: &mut Report,
) -> anyhow::Result<()> {
    let gateway = Gateway::open(rules, by, flows)?;
    let _pinned = Pinned::to(0);
    gateway.exchange_until_followed(flows)?;
    // Caches and predictors are warm then.
    gateway.send_forth(plan.frames / 16)?;
    let by_kernel = || gateway.bed.r.kernel_counter("IpForwDatagrams");
    let (kernel, processors, began) = (by_kernel()?, gateway.processor_time(), Instant::now());
    gateway.send_forth(plan.frames)?;
    let (time, used) = (began.elapsed().as_secs_f64(), gateway.processor_time() - processors);
    let frames = f64::from(plan.frames);
    let row = format!("{}, {flows} flows", rules.name());
    report.figures.add(&row, by.name(), "Mpps", frames / time / 1e6);
    report.figures.add(&row, by.name(), report::BY_PROCESSORS, frames / used / 1e6);
    let kernel = (by_kernel()? - kernel) as f64;
    report.figures.add(&row, by.name(), report::SHARE, (frames - kernel) / frames * 100.0);
    Ok(())
}

/// New connections a second, each of so many frames and as many answers.
fn opening(
    plan: &Plan,
    rules: Rules,
    frames: usize,
    by: Forwarder,
    report: &mut Report,
) -> anyhow::Result<()> {
    let gateway = Gateway::open(rules, by, plan.new)?;
    let _pinned = Pinned::to(0);
    let (processors, began) = (gateway.processor_time(), Instant::now());
    for _ in 0..frames {
        gateway.exchange(plan.new as u32)?;
    }
    let time = began.elapsed().as_secs_f64();
    // What they have adopt do is not done yet.
    std::thread::sleep(SETTLING);
    let used = gateway.processor_time() - processors;
    let row = format!("{}, new connections of {} packets", rules.name(), 2 * frames);
    report.figures.add(&row, by.name(), "k/s", plan.new as f64 / time / 1e3);
    report.figures.add(&row, by.name(), report::NEW_BY_PROCESSORS, plan.new as f64 / used / 1e3);
    Ok(())
}

/// TCP of programs that know nothing of this, with the links as they come.
fn tcp(plan: &Plan, rules: Rules, by: Forwarder, report: &mut Report) -> anyhow::Result<()> {
    let bed = filtered(rules)?;
    let _adopted = by.path().map(|path| adopt(&bed.r, path)).transpose()?;
    let seconds = plan.seconds.to_string();
    let options = ["-t", &seconds, "-A", "0,0", "--connect-timeout", "3000"];
    let rate = bed.a.iperf3(&bed.b, TARGETS[0], &options)?.bits_per_second;
    report.figures.add(&format!("{}, one connection of TCP", rules.name()), by.name(), "Gbit/s", rate / 1e9);
    Ok(())
}
