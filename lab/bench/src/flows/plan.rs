//! How much is run.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Flow counts that are measured.
    pub(super) sizes: &'static [u32],
    /// Runs of each row; the median counts.
    pub(super) rounds: usize,
    /// How long a run looks up.
    pub(super) trial: Duration,
    /// The same under routes that change.
    pub(super) changing: Duration,
    /// Tables that are filled, of each size.
    pub(super) tables: usize,
    /// Runs of which each pause is the least.
    pub(super) pauses: usize,
    /// Flows that are shared out among members.
    pub(super) shared: u32,
    /// Flows of the packets that go round in routers.
    pub(super) routed: &'static [u32],
    /// Runs of each router, and how long one takes.
    pub(super) router_rounds: usize,
    pub(super) router_time: Duration,
}

impl Plan {
    /// Enough for figures to be quoted.
    pub(super) const FULL: Plan = Plan {
        sizes: &[1000, 10_000, 100_000, 1_000_000, 4_000_000, 16_000_000],
        rounds: 9,
        trial: Duration::from_millis(200),
        changing: Duration::from_millis(300),
        tables: 5,
        pauses: 6,
        shared: 1 << 20,
        routed: &[1000, 100_000, 1_000_000, 16_000_000],
        router_rounds: 7,
        router_time: Duration::from_secs(3),
    };
    /// Enough to see whether something is wrong.
    pub(super) const QUICK: Plan = Plan {
        sizes: &[1000, 10_000, 100_000, 1_000_000],
        rounds: 5,
        trial: Duration::from_millis(20),
        changing: Duration::from_millis(40),
        tables: 3,
        pauses: 3,
        shared: 1 << 18,
        routed: &[1000, 100_000, 1_000_000],
        router_rounds: 3,
        router_time: Duration::from_millis(400),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_claimed_of_is_measured() {
        for plan in [Plan::FULL, Plan::QUICK] {
            assert!([100_000, 1_000_000].iter().all(|flows| plan.routed.contains(flows)));
            assert!([100_000, 1_000_000].iter().all(|flows| plan.sizes.contains(flows)));
        }
        assert_eq!(Plan::FULL.sizes.last(), Some(&16_000_000));
    }
}
