//! `artery-bench adopt`: forwarding in the kernel's hooks by our tables, beside the kernel's own and beside a
//! program that looks up in the kernel's tables.
//!
//! The kernel sends frames of 60 bytes from a program (XDP live frames) by a virtual link, which forwarders
//! send on by another one, behind which a program counts and drops them. One processor does all of that in
//! line, so a figure is the cost of the whole path. Forwarders take turns in every round. The cost of a
//! program alone comes from runs on frames that are not sent, minus the same runs without it.

mod bed;
mod policy;
pub(crate) mod programs;
mod report;

use crate::fib::timing::Pinned;
use crate::fib::{self, Family, LoadedFamily, Traffic};
use crate::forward::is_far;
use crate::results::OnFeed;
use anyhow::Context as _;
use artery_lpm::Prefix;
use artery_rig::console::progress;
use artery_rig::machine::Machine;
use bed::{Bed, Running, TARGETS, index, refusal};
use clap::Args;
use programs::{Frames, KernelLookup};
use report::Report;
use std::net::IpAddr;

/// Destinations of the rows with random ones, a power of two.
const DESTINATIONS: usize = 1 << 18;
/// A row that is named in errors, too.
const LOOKUP_ROW: &str = "XDP with the kernel's lookup";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdoptForwarder {
    Kernel,
    /// By a program that asks the kernel's tables.
    Lookup,
    OursByXdp,
    OursByTc,
    /// The program `artery`, whose graph is on all processors: it is in no row of one.
    OursByGraph,
}

impl AdoptForwarder {
    const IN_LINE: [AdoptForwarder; 4] =
        [AdoptForwarder::Kernel, AdoptForwarder::Lookup, AdoptForwarder::OursByXdp, AdoptForwarder::OursByTc];
    /// XDP would lose what hosts on such links leave to a card, so that the program itself takes tc there.
    const TCP: [AdoptForwarder; 3] =
        [AdoptForwarder::Kernel, AdoptForwarder::OursByTc, AdoptForwarder::OursByGraph];

    fn name(self) -> &'static str {
        match self {
            AdoptForwarder::Kernel => "kernel",
            AdoptForwarder::Lookup => LOOKUP_ROW,
            AdoptForwarder::OursByXdp => "artery adopt, XDP",
            AdoptForwarder::OursByTc => "artery adopt, tc",
            AdoptForwarder::OursByGraph => "artery adopt, graph",
        }
    }
}

/// How much is run.
struct Plan {
    rounds: usize,
    /// Frames of a run in line.
    frames: u32,
    /// Runs of a program by itself.
    repeat: u32,
    /// Seconds of a run of iperf3.
    seconds: u32,
}

impl Plan {
    const FULL: Plan = Plan { rounds: 7, frames: 1 << 20, repeat: 1 << 21, seconds: 4 };
    const QUICK: Plan = Plan { rounds: 3, frames: 1 << 18, repeat: 1 << 19, seconds: 1 };
}

/// Traffic of a family.
struct Load {
    name: String,
    frames: Frames,
}

/// What is measured.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    #[command(flatten)]
    feed: OnFeed,
    /// Connections past a firewall and masquerading instead, beside the kernel with the same rules
    #[arg(long, conflicts_with = "table")]
    policy: bool,
    /// How soon changed rules hold for connections past a firewall instead
    #[arg(long, conflicts_with_all = ["table", "policy"])]
    reaction: bool,
}

/// Measures, prints, and writes files.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if options.policy {
        return policy::run(&options.feed.delivery);
    }
    if options.reaction {
        return policy::reaction::run(&options.feed.delivery);
    }
    let options = &options.feed;
    let plan = options.delivery.manner.plan(Plan::FULL, Plan::QUICK);
    let mut report = Report::new(Machine::here());
    match Bed::new() {
        Ok(bed) => {
            let loads = loads(options, &plan, &bed, &mut report)?;
            // Sessions and programs are of the namespace that they were made in.
            bed.r.enter(|| measure(&plan, &bed, &loads, &mut report))??;
        }
        Err(error) => report.figures.skip("everything", &refusal(&error)),
    }
    options.delivery.deliver(&report)
}

/// Fills the tables of both families, and makes frames for them. In between is measured what is asked
/// of one family alone.
fn loads(options: &OnFeed, plan: &Plan, bed: &Bed, report: &mut Report) -> anyhow::Result<Vec<Load>> {
    let folder = tempfile::tempdir().context("a folder for routes")?;
    let loaded = fib::load(options.table.as_deref())?;
    let options = fib::Options { table: options.table.clone(), ..fib::Options::default() };
    let mut loads = Vec::new();
    let mut add = |report: &mut Report, family: u8, taken: usize, to: Vec<IpAddr>| {
        report.figures.remark(format!("IPv{family}: {taken} routes by 16 gateways"));
        for (what, destinations) in [("random destinations", &to[..]), ("one destination", &to[..1])] {
            let name = format!("IPv{family}, {what}");
            loads.push(Load { name, frames: bed.frames(destinations)? });
        }
        anyhow::Ok(())
    };
    let v4 = prefixes::<u32>(&options, &loaded);
    let v6 = prefixes::<u128>(&options, &loaded);
    progress(&format!("loading {} + {} routes into the kernel", v4.len(), v6.len()));
    if !v4.is_empty() {
        let taken = bed.load(&v4, folder.path())?;
        add(report, 4, taken, destinations(&v4).map(|to| IpAddr::V4(to.into())).collect())?;
        bed.r.enter(|| opening(plan, bed, report))?;
    }
    if !v6.is_empty() {
        let taken = bed.load(&v6, folder.path())?;
        add(report, 6, taken, destinations(&v6).map(|to| IpAddr::V6(to.into())).collect())?;
    }
    Ok(loads)
}

/// How long it takes to begin with what is loaded so far.
fn opening(plan: &Plan, bed: &Bed, report: &mut Report) {
    for way in (0..plan.rounds).flat_map(|_| [AdoptForwarder::OursByXdp, AdoptForwarder::OursByTc]) {
        begin(bed, way, report::OPENED_IPV4, report);
    }
}

/// The prefixes of a table, except those inside the hosts' own networks: such routes would hide the gateways.
fn prefixes<A: LoadedFamily>(options: &fib::Options, loaded: &artery_lpm::load::Routes) -> Vec<Prefix<A>> {
    let is_loaded = |prefix: &Prefix<A>| prefix.len() == 0 || is_far(prefix.first());
    fib::routes::<A>(options, loaded).into_iter().map(|route| route.0).filter(is_loaded).collect()
}

fn destinations<A: Family>(prefixes: &[Prefix<A>]) -> impl Iterator<Item = A> {
    // Some of those drawn are the forwarder's neighbors, or belong to no host: therefore more are drawn.
    let drawn = Traffic::Pfx.draw(prefixes, DESTINATIONS + DESTINATIONS / 4, 7);
    drawn.into_iter().filter(|address| is_far(*address)).take(DESTINATIONS)
}

fn measure(plan: &Plan, bed: &Bed, loads: &[Load], report: &mut Report) -> anyhow::Result<()> {
    without_flow_tables(bed, report);
    for round in 1..=plan.rounds {
        progress(&format!("round {round} of {}", plan.rounds));
        for way in AdoptForwarder::IN_LINE {
            in_line(plan, bed, loads, way, report)?;
        }
        alone(plan, bed, loads, report)?;
        for way in AdoptForwarder::TCP {
            tcp(plan, bed, way, report);
        }
    }
    Ok(())
}

/// Says whether the kernel has flow tables, which the rows are without: they hold flows, of which there are
/// as many here as destinations.
fn without_flow_tables(bed: &Bed, report: &mut Report) {
    const TABLE: &str =
        "table inet flows { flowtable fast { hook ingress priority 0; devices = { eth0, eth1 }; } }";
    let has = bed.r.run(["nft", TABLE]).and_then(|_| bed.r.run(["nft", "delete", "table", "inet", "flows"]));
    report.figures.remark(match has {
        Ok(_) => "nftables' flow tables, which the kernel has, were not measured".to_owned(),
        Err(_) => "nftables' flow tables can't be measured: the kernel was built without them".to_owned(),
    });
}

/// Begins with a way, and adds to a row how long that took; notes why if it can't.
fn begin(bed: &Bed, way: AdoptForwarder, row: &str, report: &mut Report) -> Option<Running> {
    match bed.begin(way, true) {
        Ok(running) => {
            if let Some(opened) = running.opened {
                report.figures.add(row, way.name(), "s", opened.as_secs_f64());
            }
            Some(running)
        }
        Err(error) => {
            report.figures.skip(way.name(), &format!("{error:#}"));
            None
        }
    }
}

/// Frames a second, all the way.
fn in_line(
    plan: &Plan,
    bed: &Bed,
    loads: &[Load],
    way: AdoptForwarder,
    report: &mut Report,
) -> anyhow::Result<()> {
    let Some(running) = begin(bed, way, report::OPENED, report) else { return Ok(()) };
    for load in loads {
        let _pinned = Pinned::to(0);
        // Warm up caches and predictors, which may hold another forwarder's state.
        let rate = bed
            .rate(&running, &load.frames, plan.frames / 16)
            .and_then(|_| bed.rate(&running, &load.frames, plan.frames))
            .with_context(|| format!("{}, {}", way.name(), load.name))?;
        report.figures.add(&load.name, way.name(), "Mpps", rate / 1e6);
    }
    Ok(())
}

/// What the programs take by themselves.
fn alone(plan: &Plan, bed: &Bed, loads: &[Load], report: &mut Report) -> anyhow::Result<()> {
    let lookup = KernelLookup::new(index("eth1")?)?;
    let ours = bed.begin(AdoptForwarder::OursByXdp, true)?;
    let programs = [
        (AdoptForwarder::Lookup, lookup.program(index("eth0")?)),
        (AdoptForwarder::OursByXdp, ours.program()?),
    ];
    let _pinned = Pinned::to(0);
    for load in loads {
        for (way, program) in &programs {
            let nanoseconds = load.frames.cost(program, plan.repeat)?;
            report.figures.add(&report::alone(&load.name), way.name(), "ns", nanoseconds);
        }
    }
    Ok(())
}

/// TCP of programs that know nothing of this, with the links as they come.
fn tcp(plan: &Plan, bed: &Bed, way: AdoptForwarder, report: &mut Report) {
    let rate = || -> anyhow::Result<f64> {
        let _running = bed.begin(way, false)?;
        let seconds = plan.seconds.to_string();
        let options = ["-t", &seconds, "-A", "0,0", "--connect-timeout", "3000"];
        Ok(bed.a.iperf3(&bed.b, TARGETS[0], &options)?.bits_per_second)
    };
    match rate() {
        Ok(rate) => report.figures.add(report::TCP, way.name(), "Gbit/s", rate / 1e9),
        Err(error) => report.figures.skip(&format!("{}: {}", way.name(), report::TCP), &format!("{error:#}")),
    }
}
