//! How much is run, and in which order.

use super::case::Case;
use super::graph::CHAIN;
use artery_engine::BATCH;
use std::time::Duration;

/// How much is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Packets of a run in memory.
    pub(super) packets: u64,
    /// Runs of each case in memory.
    pub(super) repetitions: usize,
    /// Packets of the shorter of two runs that are counted instruction by instruction.
    pub(super) counted: u64,
    /// Runs over the wire.
    pub(super) wire_repetitions: usize,
    /// Seconds of a run over the wire.
    pub(super) seconds: u32,
}

impl Plan {
    /// Enough for figures to be quoted.
    pub(super) const FULL: Plan =
        Plan { packets: 5_000_000, repetitions: 9, counted: 50_000, wire_repetitions: 5, seconds: 3 };
    /// Enough to see whether something is wrong.
    pub(super) const QUICK: Plan =
        Plan { packets: 1_000_000, repetitions: 3, counted: 10_000, wire_repetitions: 1, seconds: 1 };

    /// How long a flood lasts.
    pub(super) fn flood(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }
}

/// What is run over the wire.
pub(super) const WIRE: [&str; 4] = ["E1 TCP", "E1 UDP flood", "E5 TCP", "E5 UDP flood"];

/// What is run in memory, and at which burst.
pub(super) fn cases() -> impl Iterator<Item = (Case, usize)> {
    let prefixes = (0..=CHAIN.len()).map(Case::Prefix);
    let all = prefixes.chain([Case::Graph, Case::Roomy, Case::Completed, Case::Forwarder]);
    all.flat_map(|case| [1, BATCH].map(|burst| (case, burst)))
}
