//! How much is run.

use std::time::Duration;

/// How much is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Turns of each way.
    pub(super) rounds: usize,
    /// Seconds of a run of iperf3: 10 in 2021.
    pub(super) seconds: u32,
    /// How long frames are sent.
    pub(super) trial: Duration,
}

impl Plan {
    /// As long as in 2021, three times.
    pub(super) const FULL: Plan = Plan { rounds: 3, seconds: 10, trial: Duration::from_secs(2) };
    /// Enough to see whether something is wrong.
    pub(super) const QUICK: Plan = Plan { rounds: 1, seconds: 3, trial: Duration::from_millis(500) };
}
