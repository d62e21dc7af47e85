//! Whether frames that programs of XDP send to ports leave them.
//!
//! A driver may run programs, report that it sends redirected frames, and yet take none. All frames are lost
//! until the ports change to another path.
use crate::fast::Deliveries;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often the counters are read.
pub(crate) const INTERVAL: Duration = Duration::from_millis(500);
/// For how long a port must have taken nothing, from before the first frame that it dropped.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many frames it must have dropped.
const FEWEST: u64 = 2;
/// Limit on frames in flight to a driver while counters are read: some batches of 64 frames for
/// each of many processors.
const MOST_UNDERWAY: u64 = 4096;

/// The counts of ports since each of them took a frame.
#[derive(Debug, Default)]
pub(crate) struct DeliveryWatch {
    windows: BTreeMap<u32, Window>,
}

#[derive(Debug)]
struct Window {
    began: Instant,
    sent: u64,
    dropped: u64,
}

impl DeliveryWatch {
    /// Compares counts with those of before; returns the interfaces whose drivers take nothing.
    pub(crate) fn ports_that_take_nothing(
        &mut self,
        now: Instant,
        counted: Vec<(u32, Deliveries)>,
    ) -> Vec<u32> {
        let takes_nothing = |(link, counted)| self.takes_nothing(now, link, counted).then_some(link);
        counted.into_iter().filter_map(takes_nothing).collect()
    }

    fn takes_nothing(&mut self, now: Instant, link: u32, counted: Deliveries) -> bool {
        let fresh = || Window { began: now, sent: counted.sent, dropped: counted.dropped };
        let window = self.windows.entry(link).or_insert_with(fresh);
        if counted.sent < window.sent {
            // A tunnel leaves by another port now, with all that it has sent.
            *window = fresh();
        }
        let sent = counted.sent.saturating_sub(window.sent);
        let dropped = counted.dropped.saturating_sub(window.dropped);
        let underway = (sent / 20).min(MOST_UNDERWAY);
        if dropped == 0 || sent.saturating_sub(dropped) > underway {
            *window = fresh();
            return false;
        }
        dropped >= FEWEST && now.saturating_duration_since(window.began) >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a port takes nothing, by how many frames were sent to it and dropped there
    /// in one interval after another.
    fn takes_nothing(intervals: &[(u64, u64)]) -> bool {
        let (mut deliveries, start) = (DeliveryWatch::default(), Instant::now());
        let (mut counted, mut found) = (Deliveries::default(), false);
        for (number, (sent, dropped)) in intervals.iter().enumerate() {
            counted.sent += sent;
            counted.dropped += dropped;
            let now = start + INTERVAL * number as u32;
            found = !deliveries.ports_that_take_nothing(now, vec![(7, counted)]).is_empty();
        }
        found
    }

    #[test]
    fn a_port_that_drops_all_for_a_second_takes_nothing() {
        assert!(takes_nothing(&[(0, 0), (1, 1), (1, 1)]));
        assert!(takes_nothing(&[(5, 0), (0, 0), (1, 1), (0, 0), (1, 1)]), "a ping a second");
        assert!(takes_nothing(&[(0, 0), (100_000, 99_900), (100_000, 100_050)]), "some are under way");
        assert!(!takes_nothing(&[(0, 0), (1, 1)]), "too early");
        assert!(!takes_nothing(&[(0, 0), (1, 1), (0, 0)]), "too few");
        assert!(!takes_nothing(&[(0, 0), (9, 9), (9, 8)]), "one was taken");
        assert!(!takes_nothing(&[(0, 0), (9, 9), (9, 8), (9, 9)]), "one was taken a moment ago");
        assert!(
            !takes_nothing(&[(0, 0), (10_000_000, 9_900_000), (10_000_000, 9_900_000)]),
            "it is overloaded"
        );
        assert!(!takes_nothing(&[(0, 0), (0, 0), (0, 0)]), "nothing was sent");
    }

    #[test]
    fn a_port_that_a_tunnel_has_left_is_not_one_that_takes_nothing() {
        let (mut deliveries, start) = (DeliveryWatch::default(), Instant::now());
        let mut takes_nothing = |number, sent, dropped| {
            let now = start + INTERVAL * number;
            !deliveries.ports_that_take_nothing(now, vec![(7, Deliveries { sent, dropped })]).is_empty()
        };
        // The tunnel had sent a million.
        for (number, (sent, dropped)) in [(1_000_000, 0), (5, 2), (8, 2), (11, 2)].into_iter().enumerate() {
            assert!(!takes_nothing(number as u32, sent, dropped), "{number}");
        }
    }
}
