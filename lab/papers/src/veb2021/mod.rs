//! The experiment of May 2021: OpenBSD's new switch veb(4) beside the old bridge(4), by
//! iperf3 between two hosts.
//!
//! The files are those that were published. Each way between the hosts has its turn in every round, in
//! fresh namespaces, by links of 1 Gbit/s as then and by links without a limit; and frames of 60 bytes,
//! which the author wished for.

mod addresses;
mod bridge;
mod ends;
mod memory;
mod part;
mod plan;
mod report;
mod way;

pub use part::{Part, SUBCOMMAND, run as run_part};

use anyhow::Context as _;
use artery_bench::cachegrind::finish;
use artery_bench::results::{Delivery, number};
use artery_bench::wire::bed::Bed;
use artery_bench::wire::processor::threads;
use artery_rig::console::progress;
use artery_rig::machine::Machine;
use artery_rig::program;
use artery_rig::{Result, Rig, RigError};
use memory::{IN_MEMORY, Memory};
use plan::Plan;
use report::{FRAMES, Figure, Links, Report};
use std::time::Instant;
use way::{ALL, LinkSetup, Running};

/// Measures, prints, and writes files.
pub fn run(delivery: &Delivery) -> anyhow::Result<()> {
    let plan = delivery.manner.plan(Plan::FULL, Plan::QUICK);
    let machine = Machine::here();
    delivery.begin(&machine)?;
    let mut report = Report::new(machine, plan);
    in_memory(&plan, &mut report)?;
    match Rig::new("veb2021") {
        Ok(_) => over_the_wire(&plan, &mut report),
        Err(error) => report.skip("everything over the wire", &error.to_string()),
    }
    delivery.deliver(&report)
}

/// Runs each switch of [`IN_MEMORY`] in turn, in a process of its own.
fn in_memory(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let (rounds, time) = plan.memory;
    for _ in 0..rounds {
        for (switch, workers, hosts) in IN_MEMORY {
            let memory = Memory { switch, workers, hosts, millis: time.as_millis() as u64 };
            progress(&format!("in memory: {memory}"));
            let mut command = std::process::Command::new(program::this()?);
            let output = finish(command.args([SUBCOMMAND, "memory"]).args(memory.words()))?;
            let said = String::from_utf8_lossy(&output.stdout);
            report
                .add_memory(memory, said.trim().parse().with_context(|| format!("'{said}' is not a rate"))?);
        }
    }
    Ok(())
}

fn over_the_wire(plan: &Plan, report: &mut Report) {
    for round in 1..=plan.rounds {
        for (links, way) in Links::ALL.into_iter().flat_map(|l| ALL.map(|w| (l, w))) {
            progress(&format!("round {round} of {}: {} by {links}", plan.rounds, way.name()));
            if let Err(error) = turn(plan, links, way, report) {
                report.skip(&format!("{} by {links}", way.name()), &error.to_string());
            }
        }
    }
}

/// One way by one kind of links: TCP, and where nothing limits them, frames.
fn turn(plan: &Plan, links: Links, way: LinkSetup, report: &mut Report) -> Result<()> {
    let bed = Bed::new(way.shape())?;
    let running = way.start(&bed)?;
    if let Some(rate) = links.rate() {
        bed.limit(rate)?;
    }
    if links == Links::Frames {
        bed.a.offloads("eth0", false)?;
        bed.b.offloads("eth0", false)?;
    }
    tcp(plan, &bed, &running, |figure| report.add(links, way, figure))?;
    if links == Links::Unlimited && way != LinkSetup::Direct {
        bed.prepare_load()?;
        let forwarded = bed.offer(None, plan.trial)?.forwarded() / 1e6;
        progress(&format!("{}: {} {FRAMES}", way.name(), number(forwarded)));
        report.add_frames(way, forwarded);
    }
    running.end()
}

/// What iperf3 says, and the part of the time that each thread of the switch has worked meanwhile.
fn tcp(plan: &Plan, bed: &Bed, running: &Running, keep: impl FnOnce(Figure)) -> Result<(), RigError> {
    let used = || running.id().map(threads).unwrap_or_default();
    let (start, before) = (Instant::now(), used());
    let seconds = plan.seconds.to_string();
    let options = ["-t", &seconds, "--connect-timeout", "3000"];
    let throughput = bed.a.iperf3(&bed.b, bed.target, &options)?;
    let lasted = start.elapsed().as_secs_f64().min(f64::from(plan.seconds));
    let of = |id: u32| before.iter().find(|(known, _)| *known == id).map_or(0.0, |(_, seconds)| *seconds);
    let mut busy: Vec<f64> =
        used().into_iter().map(|(id, seconds)| 100.0 * (seconds - of(id)) / lasted).collect();
    busy.sort_by(|a, b| b.total_cmp(a));
    keep(Figure::new(&throughput, busy));
    Ok(())
}
