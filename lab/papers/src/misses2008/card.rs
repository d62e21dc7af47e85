//! An element that models a network card and the inner half of its driver.
//!
//! It takes buffers from the pool, has packets in them without writing a byte where it can help it - as a
//! card does that writes past the processor -, hands them to the router's port, and takes back what the
//! router sends. It runs on the router's own worker, alternately with it, and takes the time: what passes
//! between two of its runs is the router's.

use super::case::{Buffers, Case, Depth};
use super::graph::{FRAME, TTL, frame, neighbor, was_forwarded};
use artery_bench::perf::{Counters, fence, forget};
use artery_device::{MemoryRx, MemoryTx, RxQueue as _, TxQueue as _};
use artery_engine::{Args, Batch, Class, Context, Element, Packet, Phase, Pool, StartError};
use artery_packet::{BATCH, BIG_FRAME};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::mem::take;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The class of the card; no configuration outside this experiment has one.
pub(super) static CARD: Class = Class {
    name: "Card",
    group: "lab",
    summary: "hands packets to a port in memory and takes them back",
    manual: "Stands for a network card.",
    example: "Card;",
    ports: "0/0",
    phase: Phase::Acting,
    build: |args: &mut Args<'_>| Ok(Box::new(Card { deal: args.resource(), job: None })),
    ..Class::DEFAULT
};

/// Places for a packet within a big frame: one in each line, a prime number of them.
pub(super) const PLACES: usize = 1021;
/// Where the first of them begins.
const FIRST_PLACE: usize = 128;
/// How often a frame is used before it is rewritten: each use may take one hop.
const USES: u8 = TTL - 55;
/// A turn that took longer was another program's, at least in part.
const DISTURBED: Duration = Duration::from_micros(50);
/// Of so many packets that come back, one is examined.
const EXAMINED: u64 = 1000;
/// Runs without a packet after which what has not come back never will.
const LAST_RUNS: u32 = 1000;

/// Where the card finds what to do.
#[derive(Default)]
pub(super) struct Deal(Mutex<Option<Job>>);

impl Deal {
    /// Lets the card begin.
    pub(super) fn post(&self, job: Job) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(job);
    }
    fn receive(&self) -> Option<Job> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handed {
    /// Number of packets handed over.
    pub packets: u64,
    /// Bytes of all these packets.
    pub bytes: u64,
}

/// Packets that came back and were examined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Examined {
    /// Packets that came back and were checked.
    pub packets: u64,
    /// Those that were not as a router must send them.
    pub wrong: u64,
}

/// How the time was spent, in nanoseconds. Turns that were disturbed are in none of them but the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// By the router, in turns with packets.
    pub busy: u64,
    /// Packets in these turns.
    pub packets: u64,
    /// By the card, in these turns.
    pub card: u64,
    /// In turns without packets, by both.
    pub idle: u64,
    /// In turns that others disturbed.
    pub disturbed: u64,
}

/// Misses of a packet, the card's among them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// Of the first-level data cache.
    pub d1: f64,
    /// Of the last level, where the processor counts that.
    pub last: Option<f64>,
}

/// What the card saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What it handed to the router.
    pub handed: Handed,
    /// Packets that came back.
    pub returned: u64,
    /// What was found of them.
    pub examined: Examined,
    /// How the time was spent.
    pub spent: Spent,
    /// Misses by the processor's counters, or why there are none.
    pub misses: Result<Counted, String>,
}

impl Outcome {
    /// Nanoseconds that the router took for a packet.
    pub fn nanos_per_packet(&self) -> f64 {
        self.spent.busy as f64 / self.spent.packets as f64
    }
    /// The same with what the card took, which is mostly to take a buffer.
    pub fn nanos_with_card(&self) -> f64 {
        (self.spent.busy + self.spent.card) as f64 / self.spent.packets as f64
    }
    /// Percent of the time that the router had nothing to do. That of the card counts as such: a
    /// real one works beside.
    pub fn idle(&self) -> f64 {
        let Spent { busy, card, idle, .. } = self.spent;
        100.0 * (idle + card) as f64 / (idle + card + busy) as f64
    }
    /// Packets a second, while no other process had the processor.
    pub fn offered(&self) -> f64 {
        let Spent { busy, card, idle, packets, .. } = self.spent;
        1e9 * packets as f64 / (busy + card + idle) as f64
    }
}

/// What the card has to do.
pub(super) struct Job {
    case: Case,
    tx: MemoryTx,
    rx: MemoryRx,
    report: Sender<Outcome>,
    buffers: Option<Supply>,
    batch: Batch,
    /// Packets before the time is taken.
    warm_up: u64,
    pace: Pace,
    turn: Option<Turn>,
    handed: Handed,
    returned: u64,
    examined: Examined,
    spent: Spent,
    counters: Option<Counting>,
    empty_runs: u32,
}

/// Packets before the time is taken: until every buffer was used once.
fn warm_up(case: &Case) -> u64 {
    let buffers = match case.buffers {
        Buffers::Fifo(count) => count as u64,
        Buffers::Hot | Buffers::Flushed | Buffers::Cycled(_) => 0,
    };
    (case.packets / 10).max(buffers.min(case.packets / 2))
}

/// A run of the card, and what the router does until its next.
struct Turn {
    packets: u64,
    began: Instant,
    ended: Instant,
}

impl Job {
    pub(super) fn new(case: Case, tx: MemoryTx, rx: MemoryRx, report: Sender<Outcome>) -> Job {
        Job {
            case,
            tx,
            rx,
            report,
            buffers: None,
            batch: Batch::default(),
            warm_up: warm_up(&case),
            pace: Pace::new(case.rate, case.burst),
            turn: None,
            handed: Handed::default(),
            returned: 0,
            examined: Examined::default(),
            spent: Spent::default(),
            counters: None,
            empty_runs: 0,
        }
    }

    /// Does what a card does in a moment; gives how many packets it handed over, and none when all is done.
    fn run(&mut self, pool: &'static Pool) -> Option<u64> {
        // What was sent is the router's to take back, as by a driver: at other depths it
        // gives packets back itself.
        self.drain_returned(pool);
        let began = Instant::now();
        if let Some(turn) = self.turn.take()
            && self.handed.packets > self.warm_up
        {
            self.spent.add(&turn, began);
        }
        let packets = self.hand_over(pool, began);
        if packets == 0 && self.is_over() {
            return None;
        }
        self.turn = Some(Turn { packets, began, ended: Instant::now() });
        Some(packets)
    }

    fn is_over(&mut self) -> bool {
        if self.handed.packets < self.case.packets {
            return false;
        }
        self.empty_runs += 1;
        self.returned == self.handed.packets || self.empty_runs > LAST_RUNS
    }

    /// Takes back what the router sent, and looks at some of it.
    fn drain_returned(&mut self, pool: &'static Pool) {
        let mut batch = take(&mut self.batch);
        while let Ok(1..) = self.rx.receive(pool, BATCH, &mut batch) {
            for packet in batch.iter() {
                self.returned += 1;
                if self.returned.is_multiple_of(EXAMINED) {
                    self.examined.packets += 1;
                    self.examined.wrong += u64::from(!was_forwarded(packet.data()));
                }
            }
            batch.free_packets();
        }
        self.batch = batch;
    }

    fn hand_over(&mut self, pool: &'static Pool, now: Instant) -> u64 {
        let left = self.case.packets - self.handed.packets;
        let due = self.pace.due(now).min(left as usize);
        if due == 0 {
            return 0;
        }
        if self.case.count && self.counters.is_none() && self.handed.packets >= self.warm_up {
            self.counters = Some(Counting::begin(self.handed.packets));
        }
        let buffers = self.buffers.get_or_insert_with(|| Supply::new(self.case.buffers, pool));
        let mut batch = take(&mut self.batch);
        buffers.fill_batch(due, &mut batch);
        // What is asked for must have been forgotten before.
        if self.case.buffers == Buffers::Flushed {
            batch.iter().for_each(|packet| {
                forget(packet.data());
            });
            fence();
        }
        if self.case.prefetch {
            batch.iter().for_each(Packet::prefetch);
        }
        let (before, bytes) = (batch.len(), batch.iter().map(|packet| packet.len() as u64).sum::<u64>());
        if self.case.depth == Depth::Card {
            batch.free_packets();
        } else {
            // The router has taken all of the last batch, or the port is full; a port in memory reports that.
            let _ = self.tx.transmit(&mut batch);
        }
        let packets = (before - batch.len()) as u64;
        self.handed.packets += packets;
        self.handed.bytes += bytes - batch.iter().map(|packet| packet.len() as u64).sum::<u64>();
        batch.free_packets();
        self.batch = batch;
        packets
    }

    fn outcome(&mut self) -> Outcome {
        let misses = match self.counters.take() {
            None => Err("not asked for".to_string()),
            Some(counting) => counting.end(self.handed.packets),
        };
        let Job { handed, returned, examined, spent, .. } = *self;
        Outcome { handed, returned, examined, spent, misses }
    }
}

impl Spent {
    /// Adds a turn that ends now.
    fn add(&mut self, turn: &Turn, now: Instant) {
        let (card, rest) = (turn.ended - turn.began, now - turn.ended);
        if card > DISTURBED || rest > DISTURBED {
            self.disturbed += (card + rest).as_nanos() as u64;
        } else if turn.packets == 0 {
            self.idle += (card + rest).as_nanos() as u64;
        } else {
            self.packets += turn.packets;
            self.card += card.as_nanos() as u64;
            self.busy += rest.as_nanos() as u64;
        }
    }
}

/// When packets are due.
struct Pace {
    burst: usize,
    /// Time between two packets; none when they are always due.
    interval: Option<Duration>,
    next: Option<Instant>,
}

impl Pace {
    fn new(rate: Option<f64>, burst: usize) -> Pace {
        let interval = rate.filter(|rate| *rate > 0.0).map(|rate| Duration::from_secs_f64(1.0 / rate));
        Pace { burst, interval, next: None }
    }

    /// How many packets are due.
    fn due(&mut self, now: Instant) -> usize {
        let Some(interval) = self.interval else { return self.burst };
        let next = *self.next.get_or_insert(now);
        let late = now.saturating_duration_since(next);
        if now < next {
            return 0;
        }
        let due = (late.as_nanos() / interval.as_nanos().max(1)) as usize + 1;
        if due > self.burst {
            // What was not sent while others had the processor is not sent in a heap later:
            // no wire does that.
            self.next = Some(now + interval);
            return 1;
        }
        self.next = Some(next + interval * due as u32);
        due
    }
}

/// Where the card's buffers come from, with a packet in each.
struct Supply {
    kind: Buffers,
    pool: &'static Pool,
    frame: [u8; FRAME],
    /// Free buffers in the order of their return, for all but the pool's own order, which is the reverse.
    free: VecDeque<Packet>,
    /// By common frame: how often it was used since it was written.
    uses: Vec<u8>,
    /// By big frame: the place of its next packet. Each goes through its places in turn, in
    /// whatever order frames come.
    places: Vec<u16>,
    /// Where the packet in the first big frame begins.
    first: usize,
}

impl Supply {
    fn new(kind: Buffers, pool: &'static Pool) -> Supply {
        let mut supply = Supply {
            kind,
            pool,
            frame: frame(),
            free: VecDeque::new(),
            uses: vec![0; pool.frames()],
            places: Vec::new(),
            first: 0,
        };
        supply.collect();
        // Bytes are there before anybody counts.
        if let Buffers::Cycled(_) = kind {
            let Supply { free, frame, places, first, .. } = &mut supply;
            *first = free.iter().map(address).min().unwrap_or(0);
            // Packets that come one after the other should not have the same place in all of their frames.
            *places = (0..free.len()).map(|frame| (37 * frame % PLACES) as u16).collect();
            for packet in free.iter_mut() {
                (0..PLACES).for_each(|place| {
                    set_frame_place(packet, place);
                    packet.data_mut().copy_from_slice(frame);
                });
                set_frame_place(packet, 0);
            }
        }
        supply
    }

    /// Puts what was given back behind what is free.
    fn collect(&mut self) {
        let pool = self.pool;
        match self.kind {
            Buffers::Hot | Buffers::Flushed => {}
            Buffers::Cycled(_) => self.free.extend(std::iter::from_fn(|| pool.alloc_big_packet())),
            Buffers::Fifo(_) => self.free.extend(std::iter::from_fn(|| pool.alloc_packet())),
        }
    }

    /// Adds packets to a batch.
    fn fill_batch(&mut self, count: usize, into: &mut Batch) {
        self.collect();
        match self.kind {
            Buffers::Hot | Buffers::Flushed => {
                self.pool.alloc_packets(count, into);
            }
            Buffers::Cycled(_) | Buffers::Fifo(_) => {
                let count = count.min(self.free.len());
                into.extend(self.free.drain(..count));
            }
        }
        into.iter_mut().for_each(|packet| self.fill(packet));
    }

    /// Has a packet in a buffer: one that was there before, where it can.
    fn fill(&mut self, packet: &mut Packet) {
        if let Some(frame) = self.pool.frame_of(packet) {
            let Ok(bytes) = packet.append(FRAME) else { return };
            let uses = &mut self.uses[frame as usize];
            if *uses == 0 {
                bytes.copy_from_slice(&self.frame);
            }
            *uses = (*uses + 1) % USES;
            return;
        }
        // Frames lie side by side, and packets begin near the beginning of each.
        let frame = (address(packet) + BIG_FRAME / 2).saturating_sub(self.first) / BIG_FRAME;
        let Some(place) = self.places.get_mut(frame) else { return };
        set_frame_place(packet, usize::from(*place));
        *place = (*place + 1) % PLACES as u16;
    }
}

fn address(packet: &Packet) -> usize {
    packet.data().as_ptr() as usize
}

/// Says that the packet is in this place of its big frame.
fn set_frame_place(packet: &mut Packet, place: usize) {
    // All places are within a big frame.
    let _ = packet.set_place(FIRST_PLACE + 64 * place, FRAME);
}

/// Counts by the processor's counters.
struct Counting {
    since: u64,
    counters: Result<(Counters, artery_bench::perf::Misses), String>,
}

impl Counting {
    fn begin(since: u64) -> Counting {
        let begun = Counters::of_this_thread().and_then(|mut counters| {
            let before = counters.read()?;
            Ok((counters, before))
        });
        Counting { since, counters: begun.map_err(|error| error.to_string()) }
    }

    fn end(self, packets: u64) -> Result<Counted, String> {
        let (mut counters, before) = self.counters?;
        let after = counters.read().map_err(|error| error.to_string())?;
        let each =
            |before: f64, after: f64| (after - before) / packets.saturating_sub(self.since).max(1) as f64;
        let last = before.last.zip(after.last).map(|(before, after)| each(before, after));
        Ok(Counted { d1: each(before.d1, after.d1), last })
    }
}

struct Card {
    deal: Arc<Deal>,
    job: Option<Box<Job>>,
}

impl Element for Card {
    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(job) = &mut self.job else { return false };
        match job.run(cx.pool()) {
            Some(packets) => {
                cx.schedule();
                packets > 0
            }
            None => {
                let outcome = job.outcome();
                // The waiting side may have given up.
                let _ = job.report.send(outcome);
                self.job = None;
                cx.end_run();
                true
            }
        }
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        self.job = self.deal.receive().map(Box::new);
        let told = cx.write_handler("neighbors.insert", &neighbor());
        told.map_err(|error| StartError::new(error.to_string()))?;
        cx.schedule();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);

    #[test]
    fn packets_are_due_at_their_pace_and_those_missed_are_not_made_up_for() {
        let start = Instant::now();
        let mut pace = Pace::new(Some(1e6), 4);
        let due = [0, 0, 1, 4, 4, 100, 100, 101].map(|micros| pace.due(start + micros * MICRO));
        assert_eq!(due, [1, 0, 1, 3, 0, 1, 0, 1]);
        assert_eq!(Pace::new(None, 4).due(start), 4);
    }

    #[test]
    fn a_turn_is_busy_idle_or_disturbed() {
        let start = Instant::now();
        let turn = |packets| Turn { packets, began: start, ended: start + 2 * MICRO };
        let mut spent = Spent::default();
        spent.add(&turn(3), start + 7 * MICRO);
        spent.add(&turn(0), start + 12 * MICRO);
        spent.add(&turn(9), start + 1000 * MICRO);
        let wanted = Spent { busy: 5000, packets: 3, card: 2000, idle: 12_000, disturbed: 1_000_000 };
        assert_eq!(spent, wanted);
        let (handed, examined) = (Handed::default(), Examined::default());
        let outcome = Outcome { handed, returned: 0, examined, spent, misses: Err(String::new()) };
        assert!((outcome.nanos_per_packet() - 5000.0 / 3.0).abs() < 1e-9);
        assert!((outcome.nanos_with_card() - 7000.0 / 3.0).abs() < 1e-9);
        assert!((outcome.idle() - 100.0 * 14.0 / 19.0).abs() < 1e-9);
        assert!((outcome.offered() - 3.0 / 19e-6).abs() < 1e-3);
    }

    #[test]
    fn every_packet_of_big_frames_has_another_place_until_all_were_used() {
        let pool = Pool::new(64, 64).unwrap();
        let mut supply = Supply::new(Buffers::Cycled(64), pool);
        let mut seen = std::collections::HashSet::new();
        let mut batch = Batch::default();
        for _ in 0..2 * PLACES {
            supply.fill_batch(32, &mut batch);
            for packet in batch.iter() {
                assert_eq!(packet.data(), frame());
                assert!(seen.insert(packet.data().as_ptr() as usize), "{} places were used", seen.len());
            }
            batch.free_packets();
        }
        assert_eq!(seen.len(), 64 * PLACES);
    }

    #[test]
    fn buffers_freed_longest_ago_are_taken_first() {
        let pool = Pool::new(128, 1).unwrap();
        let (mut supply, mut batch) = (Supply::new(Buffers::Fifo(128), pool), Batch::default());
        let mut frames = Vec::new();
        for _ in 0..4 {
            supply.fill_batch(32, &mut batch);
            frames.extend(batch.iter().map(|packet| pool.frame_of(packet).unwrap()));
            batch.free_packets();
        }
        frames.sort_unstable();
        assert_eq!(frames, (0..128).collect::<Vec<_>>(), "each once before any twice");
    }
}
