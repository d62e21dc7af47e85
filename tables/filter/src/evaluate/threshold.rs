//! A rate that many may count and that is forgotten little by little, as `max-pkt-rate`
//! and `max-src-conn-rate` need it.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What one event counts: the forgetting is done in thousandths.
const ONE: u64 = 1000;

/// A rate of events in a time, and what was seen of it.
#[derive(Debug, Default)]
pub struct Threshold {
    limit: u64,
    seconds: u64,
    /// The second of the last event, and above it (32 bits) the count.
    seen: AtomicU64,
}

impl Threshold {
    /// So many events in so many seconds.
    pub fn new(events: u32, seconds: u32) -> Threshold {
        let limit = (u64::from(events) * ONE).min(u64::from(u32::MAX) - ONE);
        Threshold { limit, seconds: u64::from(seconds.max(1)), seen: AtomicU64::new(0) }
    }

    /// Counts an event; false if there are more than may be.
    pub fn count_event(&self, now: Duration) -> bool {
        let before = self.seen.fetch_update(Relaxed, Relaxed, |seen| Some(self.next(seen, now)));
        self.next(before.unwrap_or_else(|seen| seen), now) >> 32 <= self.limit
    }

    /// Whether an event would be among those that may be; it is not counted.
    pub fn would_pass(&self, now: Duration) -> bool {
        self.next(self.seen.load(Relaxed), now) >> 32 <= self.limit
    }

    /// What is seen after one more event.
    fn next(&self, seen: u64, now: Duration) -> u64 {
        let now = now.as_secs() & u64::from(u32::MAX);
        let (count, last) = (seen >> 32, seen & u64::from(u32::MAX));
        let passed = now.saturating_sub(last).min(self.seconds);
        let left = count - count * passed / self.seconds;
        ((left + ONE).min(self.limit + ONE) << 32) | now.max(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_events_pass_in_the_time_and_more_when_it_is_over() {
        let threshold = Threshold::new(3, 10);
        let count = |seconds| threshold.count_event(Duration::from_secs(seconds));
        assert_eq!([0, 0, 1, 1, 2].map(count), [true, true, true, false, false]);
        let asks = |seconds| threshold.would_pass(Duration::from_secs(seconds));
        assert_eq!([2, 2, 12, 12].map(asks), [false, false, true, true]);
        assert!(count(12));
        assert_eq!([12, 12, 12].map(count), [true, true, false]);
    }
}
