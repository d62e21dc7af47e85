//! How long frames wait in receive queues until the router takes them: a histogram that any thread can read.
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Bounds of the counts in microseconds, in the series 1, 2, 5. A last count is of all that waited longer.
pub const DELAY_BOUNDS: [u64; 13] =
    [10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000];
const COUNTS: usize = DELAY_BOUNDS.len() + 1;

/// How long the oldest frame of each batch that a port received had waited in the kernel's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Batches, by the bound of [`DELAY_BOUNDS`] that their delay does not exceed; the last of
    /// those beyond all bounds.
    pub counts: [u64; COUNTS],
    /// The sum of all delays, in microseconds.
    pub sum: u64,
}

impl Delays {
    /// How many delays were counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The least bound, in microseconds, that this part of the delays, from 0 to 1, does not exceed. The
    /// inner `None` means longer than all bounds, the outer no delays.
    pub fn quantile(&self, part: f64) -> Option<Option<u64>> {
        let rank = ((self.total() as f64 * part).ceil() as u64).max(1);
        let mut passed = 0;
        let reached = |count: &u64| {
            passed += count;
            passed >= rank
        };
        Some(DELAY_BOUNDS.get(self.counts.iter().position(reached)?).copied())
    }
}

impl Add for Delays {
    type Output = Delays;
    fn add(self, other: Delays) -> Delays {
        let counts = std::array::from_fn(|at| self.counts[at].wrapping_add(other.counts[at]));
        Delays { counts, sum: self.sum.wrapping_add(other.sum) }
    }
}

impl Sub for Delays {
    type Output = Delays;
    /// The delays counted since `earlier`. All of them, where a port was closed or opened again in between.
    fn sub(self, earlier: Delays) -> Delays {
        if self.counts.iter().zip(&earlier.counts).any(|(now, before)| now < before) {
            return self;
        }
        let counts = std::array::from_fn(|at| self.counts[at] - earlier.counts[at]);
        Delays { counts, sum: self.sum.saturating_sub(earlier.sum) }
    }
}

/// The counts of one queue, in cache lines of their own: the queue's worker writes, anybody reads.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct DelayHistogram {
    counts: [AtomicU64; COUNTS],
    sum: AtomicU64,
}

impl DelayHistogram {
    /// Counts a delay. Only one thread may at a time.
    #[inline]
    pub(crate) fn record(&self, delay: Duration) {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        let at = DELAY_BOUNDS.partition_point(|bound| *bound < micros);
        let add = |count: &AtomicU64, more| count.store(count.load(Relaxed).wrapping_add(more), Relaxed);
        add(&self.counts[at], 1);
        add(&self.sum, micros);
    }
    pub(crate) fn read(&self) -> Delays {
        let counts = std::array::from_fn(|at| self.counts[at].load(Relaxed));
        Delays { counts, sum: self.sum.load(Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(micros: &[u64]) -> Delays {
        let counts = DelayHistogram::default();
        micros.iter().for_each(|micros| counts.record(Duration::from_micros(*micros)));
        counts.read()
    }

    #[test]
    fn a_delay_counts_at_the_least_bound_that_it_does_not_exceed() {
        for (micros, at) in [(0, 0), (10, 0), (11, 1), (100_000, 12), (100_001, 13)] {
            let counted = delays(&[micros]);
            assert_eq!((counted.counts[at], counted.total(), counted.sum), (1, 1, micros), "{micros}");
        }
    }

    #[test]
    fn quantiles_are_bounds() {
        assert_eq!(Delays::default().quantile(0.99), None);
        let counted = delays(&[5, 5, 5, 40, 900_000]);
        let quantiles = [0.0, 0.5, 0.8, 0.99].map(|part| counted.quantile(part).unwrap());
        assert_eq!(quantiles, [Some(10), Some(10), Some(50), None]);
    }

    #[test]
    fn what_was_added_is_all_where_a_port_was_opened_anew() {
        let (earlier, now) = (delays(&[5, 40]), delays(&[5, 40, 40]));
        assert_eq!(now - earlier, delays(&[40]));
        assert_eq!(earlier - now, earlier);
        assert_eq!((now - earlier) + earlier, now);
    }
}
