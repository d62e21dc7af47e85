//! `artery-bench fib`: every engine for longest-prefix matches, under every model of traffic, in
//! every mode of lookup.
//!
//! No engine is timed before it has agreed with the oracle on random and boundary addresses, also after
//! updates. Engines take turns within a round, so that what disturbs the machine disturbs all; the median of
//! the rounds counts. Before each trial the caches are flushed, then warmed by the engine's own work.

mod bare;
mod catalog;
mod dpdk;
pub mod engine;
mod family;
mod gate;
mod names;
mod oracle;
mod ours;
mod radix;
mod report;
mod rivals;
pub mod timing;
mod traffic;
mod updates;

pub use catalog::{Catalog, Entry};
pub use family::Family;
pub use gate::{Checked, Gate, check};
pub use oracle::{Oracle, probes};
pub use ours::{ArtAlone, Lookup};
pub use radix::Radix;
pub use traffic::Traffic;
pub(crate) use traffic::{drawn, running_sums};
pub use updates::{Routes, busiest};

use crate::results::Delivery;
use anyhow::{Context as _, ensure};
use artery_lpm::load::Routes as Loaded;
use artery_lpm::synthetic::{self, correlated_groups, random_groups};
use artery_lpm::{Group, NO_GROUP, Prefix};
use artery_rig::console::progress;
use artery_rig::machine::Machine;
use bare::Bare;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use engine::{Engine, Mode};
use report::{Report, Row};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use timing::{Flusher, Pinned, trial};

/// Which tables to measure, and with what.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Routes to load: text or an MRT dump, packed by gzip or not; without, a synthetic table
    /// of the Internet's shape
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,
    /// Only this engine; may come several times
    #[arg(long, value_name = "NAME")]
    pub engine: Vec<String>,
    /// Only this family, 4 or 6
    #[arg(long, value_parser = ["4", "6"])]
    pub family: Option<String>,
    /// Only this model of traffic; may come several times
    #[arg(long)]
    pub traffic: Vec<Traffic>,
    /// Only this way of asking; may come several times
    #[arg(long)]
    pub mode: Vec<Mode>,
    /// Rounds; the median counts
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub rounds: Option<usize>,
    /// Measure lookups, and no updates
    #[arg(long)]
    pub lookups_only: bool,
    /// 16 next-hop groups, mostly the same within a network, instead of 64 at random
    #[arg(long)]
    pub correlated: bool,
    /// The program that runs DPDK's tables, as "make bench-dpdk" builds it
    #[arg(long, value_name = "PROGRAM")]
    pub dpdk: Option<PathBuf>,
    /// How much, and where to
    #[command(flatten)]
    pub delivery: Delivery,
}

impl Options {
    /// Whether a family takes part.
    fn wants(&self, family: u8) -> bool {
        self.family.as_deref().is_none_or(|wanted| wanted == family.to_string())
    }
    /// Whether an engine takes part.
    fn wants_engine(&self, name: &str) -> bool {
        self.engine.is_empty() || self.engine.iter().any(|wanted| wanted == name)
    }
}

/// How much is run.
pub(crate) struct Plan {
    rounds: usize,
    trial: Duration,
    addresses: usize,
    probes: usize,
    churn: Duration,
    pairs: usize,
}

impl Plan {
    const FULL: Plan = Plan {
        rounds: 7,
        trial: Duration::from_millis(30),
        addresses: 1 << 20,
        probes: 1_000_000,
        churn: Duration::from_millis(500),
        pairs: 15,
    };
    const QUICK: Plan = Plan {
        rounds: 3,
        trial: Duration::from_millis(10),
        addresses: 1 << 18,
        probes: 100_000,
        churn: Duration::from_millis(100),
        pairs: 5,
    };

    fn of(options: &Options) -> Plan {
        let plan = options.delivery.manner.plan(Plan::FULL, Plan::QUICK);
        Plan { rounds: options.rounds.unwrap_or(plan.rounds), ..plan }
    }
}

/// Measures, prints, and writes files.
pub fn run(options: &Options) -> anyhow::Result<()> {
    names::check(options)?;
    let plan = Plan::of(options);
    let loaded = load(options.table.as_deref())?;
    let mut report = Report::new(Machine::here(), plan.rounds, options.delivery.manner.json);
    let pinned = Pinned::to(0);
    if options.wants(4) {
        family::<u32>(options, &plan, &loaded, &mut report)?;
    }
    if options.wants(6) {
        family::<u128>(options, &plan, &loaded, &mut report)?;
    }
    drop(pinned);
    ensure!(
        !report.rows.is_empty(),
        "nothing to measure: the file has no routes of the family that is wanted"
    );
    report.print()?;
    options.delivery.out.as_deref().map_or(Ok(()), |folder| report.write(folder))
}

/// Reads the routes of a file, which must have at least one. `None` if no file is given.
pub fn load(table: Option<&Path>) -> anyhow::Result<Loaded> {
    let Some(table) = table else { return Ok(Loaded::default()) };
    let loaded = artery_feed::read(table)?;
    ensure!(!(loaded.v4.is_empty() && loaded.v6.is_empty()), "{} has no routes", table.display());
    Ok(loaded)
}

/// The routes to measure with, in order; those whose way is not said get groups.
pub fn routes<A: LoadedFamily>(options: &Options, loaded: &Loaded) -> Vec<(Prefix<A>, Group)> {
    const SEED: u64 = 1;
    let given = match options.table {
        Some(_) => A::routes(loaded).to_vec(),
        None => synthetic::generate_prefixes(A::FULL_FEED, SEED)
            .into_iter()
            .map(|prefix| (prefix, NO_GROUP))
            .collect(),
    };
    let prefixes: Vec<_> = given.iter().map(|route| route.0).collect();
    let drawn = match options.correlated {
        true => correlated_groups(&prefixes, 16, SEED),
        false => random_groups(&prefixes, 64, SEED),
    };
    let either = |(given, drawn): ((_, Group), _)| if given.1 == NO_GROUP { drawn } else { given };
    given.into_iter().zip(drawn).map(either).collect()
}

/// A family whose routes a file may hold.
pub trait LoadedFamily: Catalog {
    /// The family's routes among those loaded.
    fn routes(loaded: &Loaded) -> &[(Prefix<Self>, Group)];
}

impl LoadedFamily for u32 {
    fn routes(loaded: &Loaded) -> &[(Prefix<u32>, Group)] {
        &loaded.v4
    }
}

impl LoadedFamily for u128 {
    fn routes(loaded: &Loaded) -> &[(Prefix<u128>, Group)] {
        &loaded.v6
    }
}

fn family<A: LoadedFamily>(
    options: &Options,
    plan: &Plan,
    loaded: &Loaded,
    report: &mut Report,
) -> anyhow::Result<()> {
    let routes = routes::<A>(options, loaded);
    if routes.is_empty() {
        progress(&format!("the file has no routes of IPv{}", A::NUMBER));
        return Ok(());
    }
    let prefixes: Vec<_> = routes.iter().map(|route| route.0).collect();
    let traffics = chosen(&options.traffic, &Traffic::ALL);
    let traffic: Vec<(Traffic, Vec<A>)> =
        traffics.into_iter().map(|model| (model, model.draw(&prefixes, plan.addresses, 7))).collect();
    let mut contenders = contenders(options, plan, &routes, report)?;
    let dpdks =
        dpdk::engines(A::NUMBER).filter(|engine| options.wants_engine(engine.name)).collect::<Vec<_>>();
    if let Some(program) = options.dpdk.as_deref().filter(|_| !dpdks.is_empty()) {
        let oracle = Oracle::new(&routes);
        contenders.extend(dpdk::contenders(program, &dpdks, &routes, &traffic, &oracle, plan.probes)?);
    }
    if A::NUMBER == 4 && options.engine.is_empty() {
        contenders.extend(Bare::all()?.into_iter().map(Contender::Bare));
    }
    race(options, plan, &traffic, &mut contenders, routes.len(), report)?;
    if !options.lookups_only {
        let pfx = Traffic::Pfx.draw(&prefixes, plan.addresses, 8);
        for contender in &mut contenders {
            measure_updates(contender, plan, &routes, &pfx, report)?;
        }
    }
    Ok(())
}

fn chosen<T: Copy>(wanted: &[T], all: &[T]) -> Vec<T> {
    if wanted.is_empty() { all.to_vec() } else { wanted.to_vec() }
}

enum Contender<A> {
    Here(Box<dyn Engine<A>>),
    Dpdk(dpdk::Contender),
    Bare(Bare),
}

impl<A: Family> Contender<A> {
    fn name(&self) -> String {
        match self {
            Contender::Here(engine) => engine.name(),
            Contender::Dpdk(contender) => contender.name(),
            Contender::Bare(array) => array.name(),
        }
    }
    fn bytes(&self) -> Option<u64> {
        match self {
            Contender::Here(engine) => Some(engine.bytes()),
            Contender::Dpdk(contender) => contender.bytes(),
            Contender::Bare(array) => Some(array.bytes()),
        }
    }
    fn trial(
        &mut self,
        mode: Mode,
        (model, addresses): &(Traffic, Vec<A>),
        budget: Duration,
    ) -> anyhow::Result<f64> {
        match self {
            Contender::Here(engine) => Ok(trial(engine.reader(), mode, addresses, budget)),
            Contender::Dpdk(contender) => contender.trial(mode, *model, budget),
            Contender::Bare(array) => Ok(trial(array, mode, addresses, budget)),
        }
    }
}

/// Loads the engines that are wanted, and sees to it that their answers are right.
fn contenders<A: Catalog>(
    options: &Options,
    plan: &Plan,
    routes: &Routes<A>,
    report: &mut Report,
) -> anyhow::Result<Vec<Contender<A>>> {
    let (mut contenders, mut checked) = (Vec::new(), Checked::default());
    let gate = Gate::new(routes, plan.probes);
    for entry in A::engines() {
        if !options.wants_engine(entry.name) {
            continue;
        }
        progress(&format!("IPv{}: loading {} routes into {}", A::NUMBER, routes.len(), entry.name));
        let start = Instant::now();
        let mut engine = (entry.load)(routes).with_context(|| format!("loading {}", entry.name))?;
        let row = Row::new(A::NUMBER, entry.name, routes.len()).bytes(engine.bytes(), engine.writer_bytes());
        report.add(row.load(start.elapsed().as_secs_f64()))?;
        checked += gate.check(&mut *engine)?;
        contenders.push(Contender::Here(engine));
    }
    progress(&format!("IPv{}: {checked}", A::NUMBER));
    Ok(contenders)
}

/// Times all contenders. They alternate within each round.
fn race<A: Family>(
    options: &Options,
    plan: &Plan,
    traffic: &[(Traffic, Vec<A>)],
    contenders: &mut [Contender<A>],
    prefixes: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut flusher = Flusher::new();
    for addresses in traffic {
        for mode in chosen(&options.mode, &Mode::ALL) {
            progress(&format!("IPv{}: {} {}", A::NUMBER, addresses.0.name(), mode.name()));
            let mut nanos = vec![Vec::new(); contenders.len()];
            for _ in 0..plan.rounds {
                for (contender, nanos) in contenders.iter_mut().zip(&mut nanos) {
                    flusher.flush();
                    nanos.push(contender.trial(mode, addresses, plan.trial)?);
                }
            }
            for (contender, nanos) in contenders.iter().zip(&nanos) {
                let row = Row::new(A::NUMBER, &contender.name(), prefixes).bytes(contender.bytes(), 0);
                report.add(row.lookups(addresses.0, mode, nanos))?;
            }
        }
    }
    Ok(())
}

fn measure_updates<A: Family>(
    contender: &mut Contender<A>,
    plan: &Plan,
    routes: &Routes<A>,
    addresses: &[A],
    report: &mut Report,
) -> anyhow::Result<()> {
    let row = Row::new(A::NUMBER, &contender.name(), routes.len());
    progress(&format!("IPv{}: updates of {}", A::NUMBER, contender.name()));
    let engine = match contender {
        Contender::Here(engine) => engine,
        Contender::Bare(_) => return Ok(()),
        Contender::Dpdk(contender) => {
            if let Some(rate) = contender.updates(plan.churn)? {
                report.add(row.updates("alone", &[rate]))?;
            }
            return Ok(());
        }
    };
    let rates: Vec<f64> =
        (0..plan.rounds).map(|seed| updates::rate(&mut **engine, routes, plan.churn, seed as u64)).collect();
    report.add(row.clone().updates("alone", &rates))?;
    let here = updates::together(&mut **engine, routes, addresses, plan.trial * 5, plan.pairs);
    if let Some(together) = here {
        report.add(
            row.clone().updates("with a reader on another thread", &together.rates).losses(&together.losses),
        )?;
    }
    let times = if plan.rounds > 3 { 101 } else { 11 };
    for (name, prefix) in updates::worst(routes) {
        for (kind, micros) in updates::KINDS.iter().zip(updates::single(&mut **engine, prefix, times)) {
            report.add(row.clone().single(&format!("{name} {kind}"), micros))?;
        }
        updates::restore(&mut **engine, routes, prefix);
    }
    gate::check(&mut **engine, routes, plan.probes / 10)?;
    Ok(())
}
