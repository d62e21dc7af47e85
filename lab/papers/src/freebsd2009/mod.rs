//! The experiment of 2009 (Li and Macy): routes and neighbors in one table or in two, and what locks cost.
//!
//! Threads send small packets as fast as they can, through tables that they share: the unified one of 4.4BSD
//! (L), the split ones of FreeBSD 8 (S), these with what each socket keeps (P), as a pipeline (D) and with
//! the flow table of 2009 (F), with lookups that copy (C), our own (E), and these with our own flow table
//! (G). A driver is a stub of known cost. All of them stand on the same locks, tree, packets and stub, so
//! that they differ only in what is compared. Every claim of the paper is judged.

mod blocks;
mod case;
mod claims;
mod copied;
mod curves;
mod deletion;
mod driver;
mod engine;
mod figures;
mod flowed;
mod flows;
mod guard;
mod legacy;
mod lltable;
mod lock;
mod network;
mod our_flows;
mod ours;
mod pipeline;
mod plan;
mod report;
mod size;
mod split;
mod tree;
mod workload;
mod writes;

pub use case::{Case, LockKind, Run};
pub use engine::EngineName;
pub use workload::{Verified, Workload};
pub use writes::{SUBCOMMAND as WRITES, Writes, run_marked, shared_writes};

use artery_bench::cachegrind::{Caches, L5420, each_packet};
use artery_bench::child::{self, by_all_processors};
use artery_bench::results::Delivery;
use artery_rig::console::{print, progress};
use artery_rig::machine::Machine;
use artery_rig::program;
use clap::Args;
use figures::{Figures, Point};
use plan::{DRIVERS, Plan};
use report::Report;
use std::path::Path;

/// The hidden subcommand that carries out one run.
pub const SUBCOMMAND: &str = "freebsd2009-run";

/// How much is measured, and where it goes.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(flatten)]
    delivery: Delivery,
    /// How long a sample of figures 7 and 9 takes, in milliseconds: 15,000 in 2009, 300 if
    /// not said (--quick: 60)
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    sample: Option<u64>,
}

/// Measures, judges, prints, and writes files.
pub fn run(Options { delivery, sample }: &Options) -> anyhow::Result<()> {
    let plan = delivery.manner.plan(Plan::FULL, Plan::QUICK);
    let plan = Plan { millis: sample.unwrap_or(plan.millis), ..plan };
    let machine = Machine::here();
    delivery.begin(&machine)?;
    let [routes, neighbors] = size::split();
    let mut figures = Figures { lines: [size::legacy(), routes, neighbors], ..Figures::default() };
    measure_rates(&plan, &mut figures)?;
    watch_locks(&plan, &mut figures)?;
    measure_other_rates(&plan, machine.cores, &mut figures)?;
    leave_locks_out(&plan, &mut figures)?;
    delete_networks(&plan, &mut figures)?;
    if machine.cores > 1 {
        figures.hand_over = Some(pipeline::hand_over_nanos(100_000));
    }
    let remarks = count(&plan, &mut figures)?;
    delivery.deliver(&Report { machine, plan, figures, remarks })
}

/// Carries out one run and prints its figures.
pub fn run_one(case: &Case) -> anyhow::Result<()> {
    Ok(print(&serde_json::to_string(&case.run()?)?)?)
}

/// The points of the paper's figures. Engines take turns, so that what disturbs disturbs all.
fn measure_rates(plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    for &threads in plan.threads {
        progress(&format!("rates: {threads} of {} threads", plan.threads.last().unwrap_or(&0)));
        for driver in DRIVERS {
            for engine in EngineName::ALL {
                let point = Point { workload: Workload::W1, driver, threads, engine };
                let run = run_in_child(&case(point, plan.samples, plan.millis))?;
                figures.rates.insert(point, run.rates);
            }
        }
    }
    Ok(())
}

fn run_in_child(case: &Case) -> anyhow::Result<Run> {
    child::run(SUBCOMMAND, case)
}

fn case(point: Point, samples: usize, millis: u64) -> Case {
    let Point { workload, driver, threads, engine } = point;
    Case { threads, driver, samples, millis, ..Case::new(engine, workload) }
}

fn watch_locks(plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    for &threads in plan.threads {
        progress(&format!("locks: {threads} of {} threads", plan.threads.last().unwrap_or(&0)));
        for driver in DRIVERS {
            for engine in EngineName::WITH_LOCKS {
                let point = Point { workload: Workload::W1, driver, threads, engine };
                let watched = Case { locks: LockKind::Watched, ..case(point, 1, plan.watched) };
                figures.watched.insert(point, run_in_child(&watched)?);
            }
        }
    }
    Ok(())
}

fn measure_other_rates(plan: &Plan, cores: usize, figures: &mut Figures) -> anyhow::Result<()> {
    for workload in [Workload::W2, Workload::W3, Workload::W4] {
        progress(&format!("workload {}", workload.name()));
        for threads in plan.few_threads(cores) {
            for engine in EngineName::ALL {
                let point = Point { workload, driver: 0, threads, engine };
                let run = run_in_child(&case(point, plan.samples, plan.others))?;
                figures.rates.insert(point, run.rates);
                if workload == Workload::W4 {
                    figures.verified.entry(engine).or_default().add(run.verified);
                }
            }
        }
    }
    Ok(())
}

/// One thread that has its tables for itself, with locks and without.
fn leave_locks_out(plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    progress("locks and none");
    for _ in 0..plan.repetitions {
        for engine in [EngineName::L, EngineName::S, EngineName::P, EngineName::F] {
            for (n, locks) in [LockKind::Plain, LockKind::Alone].into_iter().enumerate() {
                let point = Point { workload: Workload::W1, driver: DRIVERS[0], threads: 1, engine };
                let run = run_in_child(&Case { locks, ..case(point, 1, plan.others) })?;
                figures.alone.entry(engine).or_default()[n].extend(run.rates);
            }
        }
    }
    Ok(())
}

fn delete_networks(plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    progress("networks that are deleted");
    for engine in deletion::ENGINES {
        for population in deletion::POPULATIONS {
            let runs: anyhow::Result<Vec<f64>> =
                (0..plan.repetitions).map(|_| deletion::millis(engine, population)).collect();
            figures.deletions.push((engine, population, runs?));
        }
    }
    Ok(())
}

/// Counts what valgrind can count, and says by whom it was counted.
fn count(plan: &Plan, figures: &mut Figures) -> anyhow::Result<Vec<String>> {
    let Some(valgrind) = program::tool("valgrind") else {
        return Ok(vec!["Misses and stores were not counted: valgrind is not installed.".to_string()]);
    };
    let caches = Caches::here().unwrap_or(L5420);
    count_misses(plan, &valgrind, &caches, figures)?;
    count_writes(plan, &valgrind, figures)?;
    Ok(vec![format!(
        "Misses are those of valgrind's cachegrind, with caches of {} bytes (D1) and {} (L2), as (misses of \
         2N packets - misses of N) / N: it has no prefetch. Stores are those of its lackey, where our tables \
         forward by {}.",
        caches.d1.bytes,
        caches.last.bytes,
        if plan.whole { "their FIB" } else { "ART" }
    )])
}

fn count_misses(plan: &Plan, valgrind: &Path, caches: &Caches, figures: &mut Figures) -> anyhow::Result<()> {
    let tasks = plan::counted(plan);
    let counts = by_all_processors("misses, by cachegrind", &tasks, |(case, packets)| {
        let of_packets = |packets| Case { packets: Some(packets), ..*case };
        let count = each_packet(valgrind, caches, *packets, |n| child::command(SUBCOMMAND, &of_packets(n)))?;
        anyhow::Ok((count, run_in_child(&of_packets(1))?.nodes))
    })?;
    for ((case, _), (count, nodes)) in tasks.iter().zip(counts) {
        let what = (case.workload, case.neighbors, case.engine);
        figures.misses.insert((caches.name, what), count);
        figures.nodes.extend(nodes.map(|nodes| (what, nodes)));
    }
    Ok(())
}

fn count_writes(plan: &Plan, valgrind: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let engines = EngineName::ALL.into_iter().filter(|engine| *engine != EngineName::D).collect::<Vec<_>>();
    let program = program::this()?;
    let found = by_all_processors("stores, by lackey", &engines, |engine| {
        shared_writes(valgrind, &program, *engine, plan.whole)
    })?;
    figures.writes.extend(engines.into_iter().zip(found));
    Ok(())
}
