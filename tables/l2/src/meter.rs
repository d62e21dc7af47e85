//! How many frames of a kind may pass in a second, for all workers together.
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What may pass at once after a rest, in time.
const BURST: u64 = 100_000_000;
const SECOND: u64 = 1_000_000_000;

/// Up to when permits have been handed out, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Meter(AtomicU64);

impl Meter {
    /// Takes a permit, of this many a second, if there is one.
    pub(super) fn try_acquire(&self, limit: u32, now: Duration) -> bool {
        let Some(interval) = SECOND.checked_div(limit.into()) else { return false };
        let now = now.as_nanos() as u64;
        let until = |taken: u64| {
            let until = taken.max(now) + interval;
            // One frame passes in any case, even where a permit takes longer than the burst.
            (until <= now + BURST.max(interval)).then_some(until)
        };
        self.0.fetch_update(Relaxed, Relaxed, until).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_pass_in_a_second_however_often_it_is_tried() {
        for limit in [1, 50, 1000] {
            let meter = Meter::default();
            let passed = (0..100_000)
                .filter(|n| meter.try_acquire(limit, Duration::from_micros(1_000_000 + n * 100)))
                .count();
            let expected = limit as usize * 10;
            assert!((expected..=expected + limit as usize / 10 + 1).contains(&passed), "{passed} of {limit}");
        }
        assert!(!Meter::default().try_acquire(0, Duration::from_secs(9)));
    }
}
