//! What is timed in memory, and one run of it.

use super::forwarder::{Neighbors, Verdict, forward};
use super::frames::{TSB, ZEUS, segment};
use super::graph::{CHAIN, Ends, completed, in_memory, prefix, roomy};
use anyhow::{Context as _, ensure};
use artery_engine::{BATCH, Batch, Pool, Router, RouterSettings, Sink};
use artery_rig::program::checked;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Instant;

/// Frames of the pool: enough for queues and batches, few enough to stay in the cache.
const FRAMES: (usize, usize) = (1024, 2);

/// Something that forwards packets from memory to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Case {
    /// The first elements of the chain only; none leaves source and sink.
    Prefix(usize),
    /// Every element of the configuration.
    Graph,
    /// The configuration with a queue that holds more than a batch.
    Roomy,
    /// The configuration with what its author had left out.
    Completed,
    /// The function that does the same without a graph.
    Forwarder,
}

/// One run in a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// What forwards.
    pub case: Case,
    /// How many packets to forward.
    pub packets: u64,
    /// How many packets to forward at once, at most.
    pub burst: usize,
}

/// What one run forwarded, and in what time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Number of packets that were forwarded.
    pub packets: u64,
    /// Duration of the run in nanoseconds.
    pub nanoseconds: u64,
}

impl Run {
    /// Time of one packet, in nanoseconds.
    pub fn nanos_per_packet(&self) -> f64 {
        self.nanoseconds as f64 / self.packets.max(1) as f64
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Case::Prefix(length) => write!(f, "prefix-{length}"),
            Case::Graph => f.write_str("graph"),
            Case::Roomy => f.write_str("roomy"),
            Case::Completed => f.write_str("completed"),
            Case::Forwarder => f.write_str("forwarder"),
        }
    }
}

impl Job {
    /// Runs it in this process.
    pub fn run(&self) -> anyhow::Result<Run> {
        let Job { case, packets, burst } = *self;
        let ends = Ends { packets, one_by_one: burst == 1 };
        match case {
            Case::Prefix(length) => {
                ensure!(length <= CHAIN.len(), "the chain has {} elements, not {length}", CHAIN.len());
                run_graph(&prefix(length, ends), burst)
            }
            Case::Graph => run_graph(&in_memory(ends), burst),
            Case::Roomy => run_graph(&roomy(ends), burst),
            Case::Completed => run_graph(&completed(ends), burst),
            Case::Forwarder => run_forwarder(packets, burst),
        }
    }
}

fn run_graph(text: &str, burst: usize) -> anyhow::Result<Run> {
    let settings =
        RouterSettings { burst, frames: FRAMES, chatter: Sink::Stderr, ..RouterSettings::default() };
    let router: Router = checked("1999 in memory", text)?.build(settings)?;
    let plan = router.plan();
    router.accept_calls();
    let running = router.start();
    let handle = running.handle();
    if plan.resolve_exact("arpq").is_some() {
        for station in [ZEUS, TSB] {
            handle.write_handler("arpq.insert", &format!("{} {}", station.ip, station.mac))?;
        }
    }
    let start = Instant::now();
    handle.write_handler("zeus.active", "true")?;
    let finished = running.wait().map_err(|worker| anyhow::anyhow!("{worker} panicked"))?;
    let nanoseconds = start.elapsed().as_nanos() as u64;
    let sent = plan.resolve_exact("sent").context("the configuration has no element 'sent'")?;
    let packets = finished.counts()[sent].drops.total();
    ensure!(packets > 0, "no packet was forwarded");
    Ok(Run { packets, nanoseconds })
}

/// Fills packets of a pool with the same frame as the graphs' source, forwards them, and gives them back.
fn run_forwarder(packets: u64, burst: usize) -> anyhow::Result<Run> {
    let burst = burst.clamp(1, BATCH);
    let pool = Pool::new(FRAMES.0, FRAMES.1)?;
    let neighbors = Neighbors::of(&[ZEUS, TSB]);
    let frame = segment(&ZEUS, &TSB, 64);
    let mut batch = Batch::default();
    let mut sent = 0;
    let start = Instant::now();
    for _ in 0..packets.div_ceil(burst as u64) {
        pool.alloc_packets(burst, &mut batch);
        for packet in batch.iter_mut() {
            let Ok(bytes) = packet.append(frame.len()) else { continue };
            bytes.copy_from_slice(&frame);
            sent += u64::from(forward(packet.data_mut(), &neighbors) == Verdict::Send);
        }
        batch.free_packets();
    }
    let nanoseconds = start.elapsed().as_nanos() as u64;
    ensure!(sent > 0, "no packet was forwarded");
    Ok(Run { packets: sent, nanoseconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_forwards_all_packets_at_both_bursts() {
        let prefixes = (0..=CHAIN.len()).map(Case::Prefix);
        for case in prefixes.chain([Case::Graph, Case::Roomy, Case::Completed, Case::Forwarder]) {
            for burst in [1, BATCH] {
                let job = Job { case, packets: 20_000, burst };
                let run = job.run().unwrap_or_else(|error| panic!("{case}: {error}"));
                // The run ends with the last packet made: some may be under way in the queue.
                assert!((19_900..=20_032).contains(&run.packets), "{case} at burst {burst}: {run:?}");
            }
        }
    }
}
