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
    /// Turns of each switch in memory, and how long one is.
    pub(super) memory: (usize, Duration),
}

impl Plan {
    /// As long as in 2021, three times.
    pub(super) const FULL: Plan =
        Plan { rounds: 3, seconds: 10, trial: Duration::from_secs(2), memory: (7, Duration::from_secs(1)) };
    /// Enough to see whether something is wrong.
    pub(super) const QUICK: Plan = Plan {
        rounds: 1,
        seconds: 3,
        trial: Duration::from_millis(500),
        memory: (3, Duration::from_millis(300)),
    };
}
