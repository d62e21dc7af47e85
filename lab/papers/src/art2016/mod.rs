//! The experiment of June 2016: ART against the radix tree of BSD, for forwarding on one processor.
//!
//! It sent 800,000 packets a second to every address of a /24, a /20 and a /16 in turn, through tables that
//! had little more than a route for 11.0/16 (R1). Its figures exist only as pictures, so there are none to
//! compare with; what it claims is judged here, on its own table and on a full feed (R3), by lookups in a
//! closed loop and by a paced stream of packets that one thread forwards.

mod claims;
mod heaps;
mod open_loop;
mod report;
mod scenario;
mod tables;

pub use artery_bench::results::OnFeed as Options;

use anyhow::{Context as _, ensure};
use artery_bench::fib::engine::{Engine, Mode};
use artery_bench::fib::timing::{Flusher, Pinned, trial};
use artery_bench::fib::{Catalog, Checked, Gate, Options as FibOptions, load as load_file, routes};
use artery_lpm::{Group, Prefix};
use artery_rig::console::progress;
use artery_rig::machine::Machine;
use open_loop::{Paced, knee, paced};
use report::{ClosedRow, MemoryRow, OpenRow, Report};
use scenario::{Scenario, Table};
use std::time::Duration;

/// How much is run.
struct Plan {
    repetitions: usize,
    trial: Duration,
    /// How long packets are sent at one rate.
    stream: Duration,
    /// Halvings of the interval in which the greatest rate without loss lies.
    halvings: usize,
    /// Whether that rate is looked for with engines that the experiment did not have, too.
    all_knees: bool,
    /// Addresses that every engine is checked with.
    probes: usize,
    /// How long heaps come and go.
    heaps: Duration,
}

impl Plan {
    const FULL: Plan = Plan {
        repetitions: 10,
        trial: Duration::from_millis(50),
        stream: Duration::from_secs(5),
        halvings: 7,
        all_knees: true,
        probes: 1_000_000,
        heaps: Duration::from_secs(1),
    };
    const QUICK: Plan = Plan {
        repetitions: 3,
        trial: Duration::from_millis(10),
        stream: Duration::from_secs(2),
        halvings: 5,
        all_knees: false,
        probes: 100_000,
        heaps: Duration::from_millis(200),
    };
}

/// The engines of the experiment.
const OF_2016: [&str; 4] = ["bsd-radix", "art 8/4x6", "art 8/8/8/8", "art 16/8/8"];
/// Those that stand beside them.
const OF_2026: [&str; 4] = ["fib-fast", "fib-small", "prefix-trie", "treebitmap"];

/// Measures, judges, prints, and writes files.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let plan = options.delivery.manner.plan(Plan::FULL, Plan::QUICK);
    let fib = FibOptions { table: options.table.clone(), ..FibOptions::default() };
    let loaded = load_file(options.table.as_deref())?;
    let (feed, feed6) = (routes::<u32>(&fib, &loaded), routes::<u128>(&fib, &loaded));
    ensure!(!feed.is_empty(), "the file has no routes of IPv4, which this experiment forwards by");
    let mut report = Report::new(Machine::here(), feed.len(), plan.repetitions);
    let tables = [Table::as_run(), Table::full(feed)];
    count_tables(&tables, &feed6, &mut report)?;
    let pinned = Pinned::to(0);
    tables.iter().try_for_each(|table| both_loops(&plan, table, &mut report))?;
    progress("heaps of 16 bits that come and go");
    report.heaps = heaps::measure(report.processors(), plan.heaps)?;
    drop(pinned);
    options.delivery.deliver(&report)
}

fn both_loops(plan: &Plan, table: &Table, report: &mut Report) -> anyhow::Result<()> {
    progress(&format!("{}: asking the oracle", table.name));
    let gate = Gate::new(&table.routes, plan.probes);
    closed_loop(plan, table, &gate, report)?;
    open_loop(plan, table, &gate, report)
}

/// Counts ART's tables with all routes, which have to be right before anything is timed.
fn count_tables(
    tables: &[Table],
    feed6: &[(Prefix<u128>, Group)],
    report: &mut Report,
) -> anyhow::Result<()> {
    for table in tables {
        progress(&format!("{}: counting ART's tables", table.name));
        report.levels.push((table.name, tables::levels(&table.routes)?));
    }
    if !feed6.is_empty() {
        report.default_of_ipv6 = Some(tables::default_of_ipv6(feed6)?);
    }
    Ok(())
}

/// An engine with a table, whose answers are right.
struct Loaded {
    name: &'static str,
    engine: Box<dyn Engine<u32>>,
    /// Its memory before it was checked by updates, which leave gaps.
    memory: MemoryRow,
}

/// Loads engines with a table, and sees to it that their answers are right.
fn load(
    table: &Table,
    gate: &Gate<u32>,
    names: &[&'static str],
    checked: &mut Checked,
) -> anyhow::Result<Vec<Loaded>> {
    let mut engines = Vec::new();
    for &name in names {
        let entry = u32::engines().into_iter().find(|entry| entry.name == name);
        let entry = entry.with_context(|| format!("unknown engine {name}"))?;
        let mut engine = (entry.load)(&table.routes)?;
        let (bytes, writer) = (engine.bytes(), engine.writer_bytes());
        let memory = MemoryRow { table: table.name, engine: name, bytes, writer };
        *checked += gate.check(&mut *engine)?;
        engines.push(Loaded { name, engine, memory });
    }
    Ok(engines)
}

fn closed_loop(plan: &Plan, table: &Table, gate: &Gate<u32>, report: &mut Report) -> anyhow::Result<()> {
    progress(&format!("{}: loading engines", table.name));
    let mut engines = load(table, gate, &[OF_2016, OF_2026].concat(), &mut report.checked)?;
    report.memory.extend(engines.iter().map(|loaded| loaded.memory));
    let mut flusher = Flusher::new();
    for destinations in table.destinations() {
        let addresses = destinations.addresses(table);
        for mode in [Mode::Independent, Mode::Batch] {
            progress(&format!("{}: {} {}", table.name, destinations.name(), mode.name()));
            let mut nanos = vec![Vec::new(); engines.len()];
            for _ in 0..plan.repetitions {
                for (Loaded { engine, .. }, nanos) in engines.iter_mut().zip(&mut nanos) {
                    flusher.flush();
                    nanos.push(trial(engine.reader(), mode, &addresses, plan.trial));
                }
            }
            for (Loaded { name, .. }, nanos) in engines.iter().zip(nanos) {
                let scenario = Scenario { table: table.name, destinations };
                let rates = nanos.iter().map(|nanos| 1000.0 / nanos).collect();
                report.closed.push(ClosedRow { scenario, engine: name, mode, rates });
            }
        }
    }
    Ok(())
}

/// Packets a second in the experiment: all that the processor could do, short of livelock.
const RATE_2016: f64 = 800_000.0;

fn open_loop(plan: &Plan, table: &Table, gate: &Gate<u32>, report: &mut Report) -> anyhow::Result<()> {
    let destinations = table.streamed();
    let addresses = destinations.addresses(table);
    let engines = load(table, gate, &[&OF_2016[..], &OF_2026[..2]].concat(), &mut report.checked)?;
    for Loaded { name, mut engine, .. } in engines {
        progress(&format!("{}: {} by packets through {name}", table.name, destinations.name()));
        let at_rate = paced(engine.reader(), &addresses, RATE_2016, plan.stream);
        let is_wanted = plan.all_knees || (OF_2016.contains(&name) && table.is_full());
        let knee =
            is_wanted.then(|| knee(engine.reader(), &addresses, plan.stream / 4, plan.halvings)).flatten();
        let scenario = Scenario { table: table.name, destinations };
        report.open.push(OpenRow { scenario, engine: name, at_rate, knee });
    }
    Ok(())
}
