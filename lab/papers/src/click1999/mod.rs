//! The experiment of May 1999: 24,000 packets a second by a configuration, 33,000 by Linux,
//! on the same machine.
//!
//! The configuration runs as printed: over a wire between namespaces (E1), and in memory, one call for each
//! element and packet (E2) or for each batch (E3), beside a function that does the same without a graph
//! (E4) and beside Linux (E5). E6 adds what its author had left out. What matters are ratios: the machines
//! of then are gone.

mod case;
mod claims;
mod forwarder;
mod frames;
mod graph;
mod plan;
mod report;
mod wire;

pub use case::{Case, Job, Run};
pub use forwarder::{Neighbors, Verdict, forward};
pub use frames::{DARKSTAR, FRAME, PAYLOAD, TSB, TestStation, ZEUS, segment};
pub use graph::with_ends;
pub use wire::{INTERFACE, Segment};

use artery_bench::cachegrind::{Count, PENTIUM_PRO, each_packet};
use artery_bench::child;
use artery_bench::results::Delivery;
use artery_rig::console::{print, progress};
use artery_rig::machine::Machine;
use artery_rig::program;
use artery_rig::{Rig, RigError};
use plan::{Plan, WIRE};
use report::Report;
use std::collections::BTreeMap;
use std::path::Path;

/// The hidden subcommand that carries out one run.
pub const SUBCOMMAND: &str = "click1999-run";

/// Figures of several runs, by what was run.
type Runs<K> = BTreeMap<K, Vec<f64>>;

/// Measures, prints, and writes files.
pub fn run(delivery: &Delivery) -> anyhow::Result<()> {
    let plan = delivery.manner.plan(Plan::FULL, Plan::QUICK);
    let machine = Machine::here();
    delivery.begin(&machine)?;
    let memory = in_memory(&plan)?;
    let mut remarks = Vec::new();
    let instructions = match program::tool("valgrind") {
        Some(valgrind) => count_instructions(&valgrind, &plan)?,
        None => {
            remarks.push("No instructions were counted: valgrind is not installed.".to_string());
            BTreeMap::new()
        }
    };
    let wire = match over_the_wire(&plan) {
        Ok((runs, dropped)) => {
            remarks.push(dropped);
            runs
        }
        Err(RigError::Skip(reason)) => {
            remarks.push(format!("Nothing was measured over a wire (E1, E5): {reason}."));
            BTreeMap::new()
        }
        Err(error) => return Err(error.into()),
    };
    delivery.deliver(&Report { machine, plan, memory, instructions, wire, remarks })
}

/// Carries out one run and prints its figures.
pub fn run_one(job: &Job) -> anyhow::Result<()> {
    Ok(print(&serde_json::to_string(&job.run()?)?)?)
}

/// Nanoseconds of a packet, by case and burst. The cases take turns, so that what disturbs disturbs all.
fn in_memory(plan: &Plan) -> anyhow::Result<Runs<(Case, usize)>> {
    let mut runs: Runs<(Case, usize)> = BTreeMap::new();
    for repetition in 1..=plan.repetitions {
        progress(&format!("in memory: round {repetition} of {}", plan.repetitions));
        for (case, burst) in plan::cases() {
            let run: Run = child::run(SUBCOMMAND, &Job { case, packets: plan.packets, burst })?;
            runs.entry((case, burst)).or_default().push(run.nanos_per_packet());
        }
    }
    Ok(runs)
}

fn count_instructions(valgrind: &Path, plan: &Plan) -> anyhow::Result<BTreeMap<(Case, usize), Count>> {
    let count = |(case, burst): (Case, usize)| {
        progress(&format!("instructions: {case} at burst {burst}"));
        let run = |packets| child::command(SUBCOMMAND, &Job { case, packets, burst });
        Ok(((case, burst), each_packet(valgrind, &PENTIUM_PRO, plan.counted, run)?))
    };
    plan::cases().map(count).collect()
}

/// Packets a second over the wire: TCP and a flood, alternately through our program and through Linux. And a
/// sentence on what the queue of the configuration dropped.
fn over_the_wire(plan: &Plan) -> Result<(Runs<&'static str>, String), RigError> {
    let rig = Rig::new("click1999")?;
    let segment = Segment::new(&rig)?;
    segment.as_in_1999()?;
    let tcp = || segment.tcp(plan.seconds);
    let flood = || Ok(segment.flood(plan.flood())?.received_per_second);
    let mut dropped = [String::new(), String::new()];
    let mut runs: Runs<&'static str> = BTreeMap::new();
    let mut keep = |name, value| runs.entry(name).or_default().push(value);
    for repetition in 1..=plan.wire_repetitions {
        progress(&format!("over the wire: round {repetition} of {}", plan.wire_repetitions));
        keep(WIRE[0], through_artery(&segment, tcp, &mut dropped[0])?);
        keep(WIRE[1], through_artery(&segment, flood, &mut dropped[1])?);
        segment.darkstar.forwarding(true)?;
        keep(WIRE[2], tcp()?);
        keep(WIRE[3], flood()?);
        segment.darkstar.forwarding(false)?;
    }
    let [tcp, flood] = dropped;
    let remark = format!(
        "In the last runs of E1, the queue of 20 dropped {tcp} packets of TCP and {flood} of the flood."
    );
    Ok((runs, remark))
}

/// Measures with the configuration at work on darkstar, and reads what its queue dropped.
fn through_artery(
    segment: &Segment,
    measure: impl FnOnce() -> Result<f64, RigError>,
    dropped: &mut String,
) -> Result<f64, RigError> {
    let router = segment.start_router(&["--handler", "outq.drops"])?;
    let value = measure()?;
    *dropped = segment.stop_router(router)?.stdout.trim().to_string();
    Ok(value)
}
