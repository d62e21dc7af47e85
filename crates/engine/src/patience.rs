//! Whether a worker with nothing to do waits awake or asleep.
//!
//! Falling asleep and being woken costs some microseconds, of which the waker pays a part. A worker that has lately waited
//! for less than that waits awake for a moment first; one that has waited longer sleeps at once, so that a router
//! without traffic costs nothing.
use std::time::Duration;

/// Waits up to here are better spent awake.
const SHORT: Duration = Duration::from_micros(30);
/// For how long a worker waits awake at most.
const AWAKE: Duration = Duration::from_micros(50);
/// Longer waits count as this long: a pause is forgotten after a few short waits.
const LONGEST: Duration = Duration::from_micros(150);

/// What a worker has learned from its waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// How long the next wait is likely to be: the mean of the last ones, the latest counting most.
    likely: Duration,
}

impl Patience {
    /// That of a worker that has not waited yet.
    pub(crate) const NEW: Patience = Patience { likely: LONGEST };

    /// For how long to wait awake.
    pub(crate) fn awake(self) -> Duration {
        if self.likely < SHORT { AWAKE } else { Duration::ZERO }
    }
    /// Learns from a wait.
    pub(crate) fn learn(&mut self, waited: Duration) {
        self.likely = (self.likely * 7 + waited.min(LONGEST)) / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(waits: impl IntoIterator<Item = u64>) -> Patience {
        let mut patience = Patience::NEW;
        waits.into_iter().for_each(|micros| patience.learn(Duration::from_micros(micros)));
        patience
    }

    #[test]
    fn short_waits_are_spent_awake_and_long_ones_asleep() {
        assert_eq!(Patience::NEW.awake(), Duration::ZERO);
        assert_eq!(after([5; 40]).awake(), AWAKE);
        assert_eq!(after([1_000_000; 40]).awake(), Duration::ZERO);
        assert_eq!(after([60; 40]).awake(), Duration::ZERO, "it would be in vain");
    }

    #[test]
    fn a_pause_among_short_waits_is_soon_forgotten_and_a_long_one_ends_the_waste() {
        let busy = || vec![5; 40];
        assert_eq!(after(busy().into_iter().chain([1_000_000])).awake(), AWAKE);
        assert_eq!(after(busy().into_iter().chain([1_000_000; 3])).awake(), Duration::ZERO);
        assert_eq!(after(busy().into_iter().chain([1_000_000; 3]).chain([5; 20])).awake(), AWAKE);
    }
}
