//! One run: an engine, a workload, threads, and for how long.

use super::driver::Driver;
use super::engine::{Engine, EngineName, OfBlocks, OfCopies, OfFlows, OfLegacy, OfOurFlows, OfOurs, OfSplit};
use super::legacy::Legacy;
use super::lock::{Alone, Locks, Plain, Tally, Watched, take_tally};
use super::network::{Packet, Sender};
use super::pipeline;
use super::split::Split;
use super::workload::{Before, Book, Trace, Verified, Workload};
use anyhow::{bail, ensure};
use artery_bench::fib::timing::pin;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::*};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// What the locks of a run are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LockKind {
    /// Plain locks, without counters
    Plain,
    /// Locks that are counted and timed
    Watched,
    /// None: for one thread
    Alone,
}

/// One run: an engine, a workload, and how it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The engine that looks up next hops
    pub engine: EngineName,
    /// The destinations that packets are sent to
    pub workload: Workload,
    /// Number of threads that send
    pub threads: usize,
    /// Nanoseconds that the driver takes for a packet beside its copying
    pub driver: u32,
    /// Milliseconds of a sample
    pub millis: u64,
    /// How many samples there are
    pub samples: usize,
    /// How the tables are locked
    pub locks: LockKind,
    /// Number of other neighbors in the table
    pub neighbors: u32,
    /// Packets to send by one thread, without a look at the clock
    pub packets: Option<u64>,
}

/// What a run has found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Million packets a second of all threads, by sample.
    pub rates: Vec<f64>,
    /// Packets that locks and counts were counted for.
    pub packets: u64,
    /// Locks taken for a packet.
    pub locks: f64,
    /// Those of them that another thread had.
    pub contended: f64,
    /// Atomic read-modify-writes for a packet.
    pub rmw: f64,
    /// Percent of the threads' time in locks and counts.
    pub locked: f64,
    /// What was found out about packets while routes and neighbors changed.
    pub verified: Verified,
    /// Nodes of the tree that a lookup visits, on average.
    pub nodes: Option<f64>,
}

/// Packets that are handed over at once.
pub(super) const BATCH: usize = 32;
/// Packets between two looks at what the others want.
const ROUND: usize = 64 * BATCH;
/// Packets of a sample, at least.
const LEAST: u64 = 4 * ROUND as u64;
/// For how long caches fill before anything is measured, at least.
const WARM_UP: Duration = Duration::from_millis(30);

/// What threads are to do.
pub(super) const WARMING: u8 = 0;
pub(super) const MEASURING: u8 = 1;
pub(super) const OVER: u8 = 2;

/// How far a thread is; on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Progress {
    pub(super) packets: AtomicU64,
    is_warm: AtomicBool,
    /// It could not even begin.
    is_over: AtomicBool,
}

/// What all threads of a run see.
pub(super) struct Stage {
    pub(super) phase: AtomicU8,
    pub(super) threads: Vec<Progress>,
    pub(super) book: Option<Book>,
}

/// What a thread has found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    tally: Tally,
    packets: u64,
    busy: Duration,
    pub(super) verified: Verified,
}

impl Stage {
    fn new(case: &Case) -> Stage {
        Stage {
            phase: AtomicU8::new(WARMING),
            threads: (0..case.threads).map(|_| Progress::default()).collect(),
            book: (case.workload == Workload::W4).then(Book::new),
        }
    }

    /// Takes samples while threads work, and then ends the run.
    fn sample(&self, case: &Case) -> Vec<f64> {
        let start = Instant::now();
        while start.elapsed() < WARM_UP || !self.threads.iter().all(|thread| thread.is_warm.load(Acquire)) {
            thread::sleep(Duration::from_millis(1));
        }
        self.phase.store(MEASURING, Release);
        let packets = || self.threads.iter().map(|thread| thread.packets.load(Relaxed)).sum::<u64>();
        let sample = |_| {
            let (start, before) = (Instant::now(), packets());
            thread::sleep(Duration::from_millis(case.millis));
            // Where others have the processors, a sample takes longer.
            let are_over = || self.threads.iter().all(|thread| thread.is_over.load(Acquire));
            while packets() < before + LEAST && !are_over() {
                thread::sleep(Duration::from_millis(1));
            }
            (packets() - before) as f64 / start.elapsed().as_secs_f64() / 1e6
        };
        let rates = (0..case.samples).map(sample).collect();
        self.phase.store(OVER, Release);
        rates
    }
}

impl Progress {
    /// Reports how far the thread is, and returns the phase that control has set.
    pub(super) fn report(&self, stage: &Stage, packets: u64, is_warm: bool) -> u8 {
        self.packets.store(packets, Relaxed);
        if is_warm && !self.is_warm.load(Relaxed) {
            self.is_warm.store(true, Release);
        }
        stage.phase.load(Acquire)
    }
}

/// Sends its packets again and again until the run is over.
fn work(stage: &Stage, thread: usize, case: &Case, packets: &[Packet], sender: &mut impl Sender) -> Part {
    let (mut driver, mut sent, mut before) = (Driver::new(case.driver), Vec::new(), Before::default());
    let (mut part, start, mut began) = (Part::default(), Instant::now(), None);
    let mut count = 0u64;
    loop {
        for round in packets.chunks(ROUND) {
            for batch in round.chunks(BATCH) {
                if let Some(book) = &stage.book {
                    book.before(batch, &mut before);
                }
                sender.send(batch, &mut sent);
                driver.transmit(batch, &sent);
                if let Some(book) = &stage.book {
                    book.verify(batch, &sent, &before, &mut part.verified);
                }
            }
            count += round.len() as u64;
            sender.tick(start.elapsed().as_secs() as u32);
            let phase = stage.threads[thread].report(stage, count, count >= packets.len() as u64);
            if phase != WARMING && began.is_none() {
                take_tally();
                began = Some((count, Instant::now()));
            }
            if phase == OVER {
                let (first, since) = began.unwrap_or((count, start));
                (part.packets, part.busy) = (count - first, since.elapsed());
                part.tally = take_tally();
                return part;
            }
        }
    }
}

fn sum_up(rates: Vec<f64>, parts: &[Part]) -> Run {
    let (mut tally, mut verified) = (Tally::default(), Verified::default());
    for part in parts {
        tally.add(part.tally);
        verified.add(part.verified);
    }
    let packets: u64 = parts.iter().map(|part| part.packets).sum();
    let busy: f64 = parts.iter().map(|part| part.busy.as_nanos() as f64).sum();
    let each = |count: u64| count as f64 / packets.max(1) as f64;
    Run {
        rates,
        packets,
        locks: each(tally.locks),
        contended: each(tally.contended),
        rmw: each(tally.rmw),
        locked: (100.0 * tally.nanos / busy.max(1.0)).max(0.0),
        verified,
        nodes: None,
    }
}

fn room(case: &Case) -> usize {
    4096 + case.neighbors as usize
}

/// All answers of a sender have to be right before anything is measured.
fn check(trace: &Trace, sender: &mut impl Sender) -> anyhow::Result<()> {
    let (mut sent, batches) = (Vec::new(), trace.packets.chunks(BATCH));
    for (packets, wanted) in batches.zip(trace.wanted.chunks(BATCH)) {
        sender.send(packets, &mut sent);
        ensure!(sent == wanted, "of {packets:x?}, {sent:?} became, not {wanted:?}");
    }
    Ok(())
}

/// Several threads that share tables.
fn shared<E: Engine>(case: &Case) -> anyhow::Result<Run>
where
    E::Tables: Sync,
{
    let tables = E::tables(room(case))?;
    let trace = furnish::<E>(case, &tables)?;
    let (stage, is_over) = (Stage::new(case), AtomicBool::new(false));
    let (rates, parts) = thread::scope(|scope| {
        let workers: Vec<_> = (0..case.threads)
            .map(|thread| {
                let (stage, tables) = (&stage, &tables);
                let packets = case.workload.part(&trace.packets, thread, case.threads);
                scope.spawn(move || {
                    let _over = Over(&stage.threads[thread]);
                    pin_one_of_many(thread);
                    let mut sender = E::sender(tables, packets.len())?;
                    Ok(work(stage, thread, case, &packets, &mut sender))
                })
            })
            .collect();
        let churn = stage.book.as_ref().map(|book| scope.spawn(|| book.churn(&tables, &is_over)));
        let rates = stage.sample(case);
        is_over.store(true, Relaxed);
        let parts = joined(workers);
        joined(churn)?;
        anyhow::Ok((rates, parts?))
    })?;
    Ok(Run { nodes: nodes::<E>(&tables, &trace), ..sum_up(rates, &parts) })
}

/// What threads have found, if none of them failed.
fn joined<'s, T>(
    threads: impl IntoIterator<Item = ScopedJoinHandle<'s, anyhow::Result<T>>>,
) -> anyhow::Result<Vec<T>> {
    // All are waited for, whichever fails.
    let all: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
    all.into_iter().map(|found| found.unwrap_or_else(|_| bail!("a thread panicked"))).collect()
}

/// Threads that are more than processors share those.
fn pin_one_of_many(thread: usize) {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    pin(thread % processors.max(1));
}

fn furnish<E: Engine>(case: &Case, tables: &E::Tables) -> anyhow::Result<Trace> {
    case.workload.furnish(tables, case.neighbors)?;
    let trace = case.workload.trace(case.neighbors);
    check(&trace, &mut E::sender(tables, trace.packets.len())?)?;
    Ok(trace)
}

fn nodes<E: Engine>(tables: &E::Tables, trace: &Trace) -> Option<f64> {
    let depths = trace.packets.iter().map(|packet| E::depth(tables, packet.destination));
    let sum = depths.sum::<Option<usize>>()?;
    Some(sum as f64 / trace.packets.len() as f64)
}

/// Says that a thread is over, however it ends.
struct Over<'a>(&'a Progress);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Release);
        self.0.is_warm.store(true, Release);
    }
}

/// One thread that has the tables for itself.
fn alone<E: Engine>(case: &Case) -> anyhow::Result<Run> {
    let case = &Case { threads: 1, ..*case };
    let stage = Stage::new(case);
    thread::scope(|scope| {
        let worker = scope.spawn(|| -> anyhow::Result<Part> {
            pin(0);
            let _over = Over(&stage.threads[0]);
            let tables = E::tables(room(case))?;
            let trace = furnish::<E>(case, &tables)?;
            let mut sender = E::sender(&tables, trace.packets.len())?;
            Ok(work(&stage, 0, case, &trace.packets, &mut sender))
        });
        let rates = stage.sample(case);
        Ok(sum_up(rates, &joined([worker])?))
    })
}

/// So many packets by this thread: for who counts what they cost.
fn counted<E: Engine>(case: &Case, packets: u64) -> anyhow::Result<Run> {
    let tables = E::tables(room(case))?;
    let trace = furnish::<E>(case, &tables)?;
    let mut sender = E::sender(&tables, trace.packets.len())?;
    let (mut driver, mut sent) = (Driver::new(0), Vec::new());
    let mut left = packets;
    while left > 0 {
        for batch in trace.packets.chunks(BATCH) {
            let batch = &batch[..batch.len().min(left as usize)];
            left -= batch.len() as u64;
            sender.send(batch, &mut sent);
            driver.transmit(batch, &sent);
        }
    }
    Ok(Run { packets: driver.out, nodes: nodes::<E>(&tables, &trace), ..Run::default() })
}

impl Case {
    /// A case with nothing special.
    pub fn new(engine: EngineName, workload: Workload) -> Case {
        Case {
            engine,
            workload,
            threads: 1,
            driver: 0,
            millis: 100,
            samples: 1,
            locks: LockKind::Plain,
            neighbors: 0,
            packets: None,
        }
    }

    /// Runs it in this process.
    pub fn run(&self) -> anyhow::Result<Run> {
        ensure!((1..=64).contains(&self.threads), "1 to 64 threads can send");
        ensure!(self.samples > 0 && self.millis > 0, "there must be a sample, and it takes time");
        ensure!(self.neighbors < 1 << 16, "a /16 has no room for so many neighbors");
        ensure!(self.workload != Workload::Near || self.neighbors > 0, "there must be neighbors to send to");
        if let Some(packets) = self.packets {
            return self.run_counted(packets);
        }
        match self.locks {
            LockKind::Plain => self.run_by::<Plain>(),
            LockKind::Watched => self.run_by::<Watched>(),
            LockKind::Alone => match self.engine {
                EngineName::L => alone::<OfLegacy<Alone>>(self),
                EngineName::S => alone::<OfSplit<Alone>>(self),
                EngineName::P => alone::<OfBlocks<Alone>>(self),
                EngineName::F => alone::<OfFlows<Alone>>(self),
                other => anyhow::bail!("{other:?} has no locks to be left out, or needs two threads"),
            },
        }
    }

    /// Runs it with locks of a kind that threads can share; some engines have none.
    fn run_by<L: Locks>(&self) -> anyhow::Result<Run>
    where
        Legacy<L>: Sync,
        Split<L>: Sync,
    {
        match self.engine {
            EngineName::L => shared::<OfLegacy<L>>(self),
            EngineName::S => shared::<OfSplit<L>>(self),
            EngineName::P => shared::<OfBlocks<L>>(self),
            EngineName::D => pipelined::<L>(self),
            EngineName::F => shared::<OfFlows<L>>(self),
            EngineName::C => shared::<OfCopies>(self),
            EngineName::E => shared::<OfOurs>(self),
            EngineName::G => shared::<OfOurFlows<OfOurs>>(self),
        }
    }

    fn run_counted(&self, packets: u64) -> anyhow::Result<Run> {
        match self.engine {
            EngineName::L => counted::<OfLegacy<Plain>>(self, packets),
            EngineName::S => counted::<OfSplit<Plain>>(self, packets),
            EngineName::P => counted::<OfBlocks<Plain>>(self, packets),
            EngineName::F => counted::<OfFlows<Plain>>(self, packets),
            EngineName::C => counted::<OfCopies>(self, packets),
            EngineName::E => counted::<OfOurs>(self, packets),
            EngineName::G => counted::<OfOurFlows<OfOurs>>(self, packets),
            EngineName::D => anyhow::bail!("D needs two threads for a packet"),
        }
    }
}

/// Each sender is two threads: one finds routes, the other neighbors.
fn pipelined<L: Locks>(case: &Case) -> anyhow::Result<Run>
where
    Split<L>: Sync,
{
    let tables = OfSplit::<L>::tables(room(case))?;
    let trace = furnish::<OfSplit<L>>(case, &tables)?;
    let (stage, is_over) = (Stage::new(case), AtomicBool::new(false));
    let (rates, mut parts, linked) = thread::scope(|scope| {
        let (mut routers, mut linkers) = (Vec::new(), Vec::new());
        for thread in 0..case.threads {
            let (stage, tables) = (&stage, &tables);
            let packets = case.workload.part(&trace.packets, thread, case.threads);
            let (to, from) = pipeline::ring();
            routers.push(scope.spawn(move || {
                pin_one_of_many(2 * thread);
                Ok(pipeline::route(stage, tables, &packets, to))
            }));
            linkers.push(scope.spawn(move || {
                let _over = Over(&stage.threads[thread]);
                pin_one_of_many(2 * thread + 1);
                Ok(pipeline::link(stage, thread, tables, case.driver, from))
            }));
        }
        let churn = stage.book.as_ref().map(|book| scope.spawn(|| book.churn(&tables, &is_over)));
        let rates = stage.sample(case);
        is_over.store(true, Relaxed);
        let (routed, linked) = (joined(routers), joined(linkers));
        joined(churn)?;
        anyhow::Ok((rates, routed?, linked?))
    })?;
    // Each packet went through both halves.
    parts.iter_mut().for_each(|part| part.packets = 0);
    parts.extend(linked);
    Ok(sum_up(rates, &parts))
}

/// Counts locks and time of a half of the pipeline from the moment on that something is measured.
pub(super) struct Meter {
    start: Instant,
    began: Option<(u64, Instant)>,
}

impl Meter {
    pub(super) fn new() -> Meter {
        Meter { start: Instant::now(), began: None }
    }
    /// Follows the phase; says what was found when the run is over.
    pub(super) fn follow(&mut self, phase: u8, packets: u64) -> Option<Part> {
        if phase != WARMING && self.began.is_none() {
            take_tally();
            self.began = Some((packets, Instant::now()));
        }
        (phase == OVER).then(|| {
            let (first, since) = self.began.unwrap_or((packets, self.start));
            let (tally, busy) = (take_tally(), since.elapsed());
            Part { tally, packets: packets - first, busy, verified: Verified::default() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(engine: EngineName, workload: Workload) -> Case {
        Case { millis: 10, neighbors: 50, ..Case::new(engine, workload) }
    }

    #[test]
    fn every_engine_gives_right_answers_in_every_workload_and_by_several_threads() {
        for engine in EngineName::ALL {
            for workload in [Workload::W1, Workload::W2, Workload::Near] {
                let run = Case { threads: 2, samples: 2, ..short(engine, workload) }.run();
                let run = run.unwrap_or_else(|error| panic!("{engine:?} {workload:?}: {error:#}"));
                assert!(run.rates.len() == 2 && run.rates[0] > 0.0, "{engine:?} {workload:?}: {run:?}");
            }
        }
    }

    #[test]
    fn no_packet_leaves_with_a_freed_link_address_while_routes_and_neighbors_change() {
        for engine in EngineName::ALL {
            let run = Case { threads: 2, millis: 300, ..short(engine, Workload::W4) }.run().unwrap();
            let Verified { packets, wrong, lost, .. } = run.verified;
            assert!(packets > 1000 && (wrong, lost) == (0, 0), "{engine:?}: {run:?}");
        }
    }

    #[test]
    fn engines_without_a_cache_and_our_flow_table_follow_every_route_at_once() {
        for engine in [EngineName::L, EngineName::S, EngineName::C, EngineName::E, EngineName::G] {
            let run = Case { threads: 2, millis: 200, ..short(engine, Workload::W4) }.run().unwrap();
            assert_eq!(run.verified.stale, 0, "{engine:?}: {run:?}");
        }
        let kept = Case { millis: 200, ..short(EngineName::F, Workload::W4) }.run().unwrap();
        assert!(kept.verified.stale > 0, "what the table of 2009 got wrong is seen: {kept:?}");
    }

    #[test]
    fn locks_of_a_packet_are_counted() {
        let run = |engine| {
            // Long enough that a thread which is held up at the end of a run does not matter.
            Case { locks: LockKind::Watched, threads: 2, millis: 300, ..short(engine, Workload::W1) }
                .run()
                .unwrap()
        };
        for (engine, locks) in [(EngineName::L, 5.0), (EngineName::S, 5.0), (EngineName::D, 5.0)] {
            let run = run(engine);
            assert!((run.locks - locks).abs() < 0.5, "{engine:?}: {run:?}");
            assert!((run.rmw - 2.0 * run.locks).abs() < 0.01, "{engine:?}: {run:?}");
            assert!(run.locked > 0.0, "{engine:?}: {run:?}");
        }
        for engine in [EngineName::P, EngineName::F] {
            let run = run(engine);
            assert!(run.locks < 0.1 && run.locked < 5.0, "{engine:?}: {run:?}");
        }
    }

    #[test]
    fn one_thread_needs_no_locks() {
        for engine in [EngineName::L, EngineName::S] {
            let run = Case { locks: LockKind::Alone, ..short(engine, Workload::W1) }.run().unwrap();
            assert!(run.rates[0] > 0.0 && run.locks == 0.0);
        }
        assert!(Case { locks: LockKind::Alone, ..short(EngineName::E, Workload::W1) }.run().is_err());
    }

    #[test]
    fn as_many_packets_as_wanted_are_sent() {
        for engine in EngineName::ALL {
            let run = Case { packets: Some(5000), ..short(engine, Workload::W1) }.run();
            match engine {
                EngineName::D => assert!(run.is_err()),
                _ => assert_eq!(run.unwrap().packets, 5000),
            }
        }
    }

    #[test]
    fn neighbors_make_the_unified_tree_deeper_and_no_other() {
        let nodes = |engine, neighbors| {
            let case = Case { neighbors, packets: Some(1), ..Case::new(engine, Workload::Near) };
            case.run().unwrap().nodes.unwrap()
        };
        assert!(nodes(EngineName::L, 5000) > nodes(EngineName::L, 10) + 3.0);
        assert_eq!(nodes(EngineName::S, 5000), nodes(EngineName::S, 10));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let case = short(EngineName::L, Workload::W1);
        for wrong in [
            Case { threads: 0, ..case },
            Case { samples: 0, ..case },
            Case { neighbors: 1 << 16, ..case },
            Case { neighbors: 0, workload: Workload::Near, ..case },
        ] {
            assert!(wrong.run().is_err(), "{wrong:?}");
        }
    }
}
