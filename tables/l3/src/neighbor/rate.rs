//! How often something may happen.
use std::time::Duration;

/// A rate: this many a second, and this many at once after a rest.
#[derive(Clone, Debug)]
pub(super) struct Rate {
    interval: Duration,
    tolerance: Duration,
    /// Up to when permits have been handed out.
    taken_until: Duration,
}

impl Rate {
    /// Both are at least one.
    pub(super) fn new(per_second: u32, burst: u32) -> Rate {
        let interval = Duration::from_secs(1) / per_second.max(1);
        Rate { interval, tolerance: interval * burst.max(1), taken_until: Duration::ZERO }
    }

    /// Takes a permit, if there is one.
    pub(super) fn try_acquire(&mut self, now: Duration) -> bool {
        let until = self.taken_until.max(now) + self.interval;
        let is_allowed = until <= now + self.tolerance;
        if is_allowed {
            self.taken_until = until;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_and_then_so_many_a_second() {
        let mut rate = Rate::new(100, 10);
        let taken = |rate: &mut Rate, from_ms: u64, to_ms: u64| {
            (from_ms * 10..to_ms * 10)
                .filter(|tenth| rate.try_acquire(Duration::from_micros(tenth * 100)))
                .count()
        };
        assert_eq!(taken(&mut rate, 5000, 5001), 10);
        assert_eq!(taken(&mut rate, 5001, 6001), 100);
        assert_eq!(taken(&mut rate, 9000, 9001), 10);
    }
}
