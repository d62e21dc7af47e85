//! The experiment of July 2008: cache misses of a packet, and what monitor mode saves.
//!
//! A short router forwards from a port in memory to another, with the first of them at every level of monitor
//! mode in turn: how long a packet takes, how idle the processor is at the two rates of then, and how often
//! it misses. Packets come cold, as from a card that writes past the processor, and hot. Everything runs on
//! one processor, the card too; see `card.rs` for what is counted as whose time.

mod card;
mod case;
mod chase;
mod claims;
mod figures;
mod graph;
mod plan;
mod published;
mod report;

pub use card::{Counted, Examined, Handed, Outcome, Spent};
pub use case::{Buffers, Case, Depth, Run};

use anyhow::ensure;
use artery_bench::cachegrind::{Caches, each_packet};
use artery_bench::child::{self, by_all_processors};
use artery_bench::fib::timing::{Pinned, last_level_cache};
use artery_bench::perf::Counters;
use artery_bench::results::Delivery;
use artery_rig::console::{print, progress};
use artery_rig::machine::Machine;
use artery_rig::program;
use case::{BURST, LADDER};
use chase::Chase;
use figures::{By, CacheState, Figures, Misses, OFF, Order};
use plan::{FEW, Plan, many, many_simulated, real, simulated};
use published::RATES;
use report::Report;
use std::path::Path;

/// The hidden subcommand that carries out one run.
pub const SUBCOMMAND: &str = "misses2008-run";

/// Measures, judges, prints, and writes files.
pub fn run(delivery: &Delivery) -> anyhow::Result<()> {
    let plan = delivery.manner.plan(Plan::FULL, Plan::QUICK);
    let machine = Machine::here();
    delivery.begin(&machine)?;
    let mut figures = Figures::default();
    measure_times(&plan, &mut figures)?;
    measure_idle_times(&plan, &mut figures)?;
    let remarks = count_misses(&plan, &mut figures)?;
    delivery.deliver(&Report { machine, plan, figures, remarks })
}

/// Carries out one run and prints its figures.
pub fn run_one(case: &Case) -> anyhow::Result<()> {
    Ok(print(&serde_json::to_string(&case.run()?)?)?)
}

/// Carries out one run in a child. One in which a packet came to harm is an error, not a figure.
fn run_in_child(case: &Case) -> anyhow::Result<Run> {
    let run: Run = child::run(SUBCOMMAND, case)?;
    ensure!(run.card.examined.wrong == 0, "{case:?}: packets were sent that are not as they must be");
    ensure!(run.card.spent.packets > 0, "{case:?}: others had the processor all the time");
    Ok(run)
}

/// A run of so many packets, as fast as can be.
fn case(depth: &str, buffers: Buffers, packets: u64) -> anyhow::Result<Case> {
    let depth = depth.parse().map_err(anyhow::Error::msg)?;
    Ok(Case { depth, buffers, packets, burst: BURST, rate: None, prefetch: false, count: false })
}

/// Times of all depths and ways, of both orders of buffers, and of a miss. They take turns, so that
/// what disturbs disturbs all.
fn measure_times(plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    let mut chase = Chase::new(2 * last_level_cache());
    for round in 1..=plan.rounds {
        progress(&format!("times: round {round} of {}", plan.rounds));
        for (rung, depth) in LADDER.into_iter().enumerate() {
            for way in [CacheState::Hot, CacheState::Cold, CacheState::Prefetched] {
                let prefetch = way == CacheState::Prefetched;
                let run = run_in_child(&Case { prefetch, ..case(depth, real(way), plan.packets)? })?;
                figures.audit(&run);
                figures.times.entry((way, rung)).or_default().push(run.card.nanos_per_packet());
            }
        }
        let many = many();
        let orders = [
            (Order::Lifo, Buffers::Hot, plan.packets),
            (Order::Fifo, Buffers::Fifo(many), plan.packets.max(2 * many as u64)),
        ];
        for (order, buffers, packets) in orders {
            let run = run_in_child(&case(LADDER[OFF], buffers, packets)?)?;
            figures.audit(&run);
            figures.buffers.entry(order).or_default().push(run.card.nanos_with_card());
        }
        let _pinned = Pinned::to(0);
        figures.miss.extend(chase.short());
        figures.far.push(chase.long(plan.steps));
    }
    Ok(())
}

/// Idle time of all depths at the rates of 2008.
fn measure_idle_times(plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    for round in 1..=plan.rounds {
        progress(&format!("idle time: round {round} of {}", plan.rounds));
        for (rate, (rung, depth)) in
            RATES.into_iter().flat_map(|rate| LADDER.iter().enumerate().map(move |at| (rate, at)))
        {
            let a_second = f64::from(rate) * 1000.0;
            let packets = (a_second * plan.paced.as_secs_f64()) as u64;
            let case = case(depth, real(CacheState::Cold), packets)?;
            let run = run_in_child(&Case { rate: Some(a_second), ..case })?;
            figures.audit(&run);
            figures.idle.entry((rate, rung)).or_default().push((run.card.idle(), run.card.offered()));
        }
    }
    Ok(())
}

/// Counts misses by the processor, or else by cachegrind; says which, and why.
fn count_misses(plan: &Plan, figures: &mut Figures) -> anyhow::Result<Vec<String>> {
    let refusal = match Counters::of_this_thread() {
        Ok(_) => {
            count_by_processor(plan, figures)?;
            let who = "the processor's own counters (perf events), of the worker's thread outside the kernel";
            return Ok(vec![format!("Misses were counted by {who}; loads alone.")]);
        }
        Err(error) => format!("The processor's counters are not available here (perf_event_open: {error})"),
    };
    let Some(valgrind) = program::tool("valgrind") else {
        return Ok(vec![format!("not measured: misses. {refusal}, and valgrind is not installed.")]);
    };
    count_by_cachegrind(plan, &valgrind, figures)?;
    let remark = format!(
        "{refusal}, so misses were counted by valgrind's cachegrind, as (misses of 2N packets - misses of N) \
         / N, loads and stores. Valgrind has no AVX-512: it is the AVX2 path that is counted. It has no \
         prefetch either, neither the program's nor the hardware's. Addresses are the same in every run: in \
         caches of two ways, such as k8's, another layout would have a few misses more or less."
    );
    Ok(vec![remark])
}

fn count_by_processor(plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    progress("misses, by the processor");
    let count = |case: Case| -> anyhow::Result<Option<Misses>> {
        let run = run_in_child(&Case { count: true, ..case })?;
        Ok(run.card.misses.ok().map(|misses| Misses { d1: misses.d1, last: misses.last }))
    };
    for depth in LADDER.into_iter().chain(["card"]) {
        for way in [CacheState::Hot, CacheState::Cold, CacheState::Prefetched] {
            let case =
                Case { prefetch: way == CacheState::Prefetched, ..case(depth, real(way), plan.packets)? };
            if let Some(misses) = count(case)? {
                figures.misses.insert((By::Processor, way, depth), misses);
            }
        }
    }
    let many = many();
    for (order, buffers) in [(Order::Lifo, Buffers::Hot), (Order::Fifo, Buffers::Fifo(many))] {
        if let Some(misses) = count(case(LADDER[OFF], buffers, plan.packets.max(2 * many as u64))?)? {
            figures.buffer_misses.insert((By::Processor, order), misses);
        }
    }
    Ok(())
}

/// What cachegrind is to count.
#[derive(Clone, Copy)]
enum Task {
    Ladder(CacheState, &'static str),
    Buffers(Order),
}

fn count_by_cachegrind(plan: &Plan, valgrind: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let tasks = simulations(plan);
    let found = by_all_processors("misses, by cachegrind", &tasks, |(caches, task)| {
        simulate(plan, valgrind, caches, *task)
    })?;
    for ((caches, task), misses) in tasks.into_iter().zip(found) {
        let by = By::Cachegrind(caches.name);
        match task {
            Task::Ladder(way, depth) => figures.misses.insert((by, way, depth), misses),
            Task::Buffers(order) => figures.buffer_misses.insert((by, order), misses),
        };
    }
    Ok(())
}

/// All that is counted, with its caches. Hot packets and orders of buffers: for this machine's caches and the
/// first of the others.
fn simulations(plan: &Plan) -> Vec<(Caches, Task)> {
    let here = Caches::here();
    let mut tasks = Vec::new();
    for (n, caches) in here.iter().chain(plan.caches).enumerate() {
        let ways: &[CacheState] =
            if n == 0 { &[CacheState::Cold, CacheState::Hot] } else { &[CacheState::Cold] };
        for way in ways {
            let depths = LADDER.into_iter().chain(["card"]);
            tasks.extend(depths.map(|depth| (*caches, Task::Ladder(*way, depth))));
        }
        if n < 2 {
            tasks.extend([Order::Lifo, Order::Fifo].map(|order| (*caches, Task::Buffers(order))));
        }
    }
    tasks
}

fn simulate(plan: &Plan, valgrind: &Path, caches: &Caches, task: Task) -> anyhow::Result<Misses> {
    let count = |depth, buffers, packets| {
        each_packet(valgrind, caches, packets, |n| child::command(SUBCOMMAND, &case(depth, buffers, n)?))
    };
    let many = many_simulated(caches);
    let misses = match task {
        Task::Ladder(way, depth) => {
            let buffers = simulated(way, caches);
            let all: Misses = count(depth, buffers, plan.counted(caches))?.into();
            match buffers {
                // So many descriptors would themselves miss the first level.
                Buffers::Cycled(buffers) if buffers > FEW => {
                    Misses { d1: count(depth, Buffers::Cycled(FEW), plan.counted)?.d1, ..all }
                }
                _ => all,
            }
        }
        Task::Buffers(Order::Lifo) => count(LADDER[OFF], Buffers::Hot, plan.counted)?.into(),
        Task::Buffers(Order::Fifo) => {
            count(LADDER[OFF], Buffers::Fifo(many), plan.counted.max(many as u64))?.into()
        }
    };
    Ok(misses)
}
