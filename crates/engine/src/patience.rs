//! Whether a worker with nothing to do waits awake or asleep.
//!
//! Falling asleep and being woken costs some microseconds, of which the waker pays a part. A worker that has lately waited
//! for less than that waits awake for a moment first; one that has waited longer sleeps at once, so that a router
//! without traffic costs nothing. Whoever prefers latency to an idle processor says for how long to wait awake instead.
use std::time::Duration;

/// Waits up to here are better spent awake.
const SHORT: Duration = Duration::from_micros(30);
/// For how long a worker waits awake at most.
const AWAKE: Duration = Duration::from_micros(50);
/// Longer waits count as this long: a pause is forgotten after a few short waits.
const LONGEST: Duration = Duration::from_micros(150);

/// How a worker waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// As it has learned from its waits.
    Learned {
        /// How long the next wait is likely to be: the mean of the last ones, the latest counting most.
        likely: Duration,
    },
    /// As it was told: awake for so long, whatever it has met.
    Told(Duration),
}

impl Patience {
    /// That of a worker that has not waited yet; `told` is for how long it shall wait awake, if anybody cares.
    pub(crate) fn new(told: Option<Duration>) -> Patience {
        told.map_or(Patience::Learned { likely: LONGEST }, Patience::Told)
    }
    /// For how long to wait awake. A worker that is told to does so only where a packet or a timer may end the wait:
    /// commands are not worth a processor.
    pub(crate) fn awake(self, is_dormant: bool) -> Duration {
        match self {
            Patience::Learned { likely } if likely < SHORT => AWAKE,
            Patience::Told(awake) if !is_dormant => awake,
            _ => Duration::ZERO,
        }
    }
    /// Learns from a wait.
    pub(crate) fn learn(&mut self, waited: Duration) {
        if let Patience::Learned { likely } = self {
            *likely = (*likely * 7 + waited.min(LONGEST)) / 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(waits: impl IntoIterator<Item = u64>) -> Patience {
        learned(Patience::new(None), waits)
    }
    fn learned(mut patience: Patience, waits: impl IntoIterator<Item = u64>) -> Patience {
        waits.into_iter().for_each(|micros| patience.learn(Duration::from_micros(micros)));
        patience
    }

    #[test]
    fn short_waits_are_spent_awake_and_long_ones_asleep() {
        assert_eq!(Patience::new(None).awake(false), Duration::ZERO);
        assert_eq!(after([5; 40]).awake(false), AWAKE);
        assert_eq!(after([1_000_000; 40]).awake(false), Duration::ZERO);
        assert_eq!(after([60; 40]).awake(false), Duration::ZERO, "it would be in vain");
    }

    #[test]
    fn a_pause_among_short_waits_is_soon_forgotten_and_a_long_one_ends_the_waste() {
        let busy = || vec![5; 40];
        assert_eq!(after(busy().into_iter().chain([1_000_000])).awake(false), AWAKE);
        assert_eq!(after(busy().into_iter().chain([1_000_000; 3])).awake(false), Duration::ZERO);
        assert_eq!(after(busy().into_iter().chain([1_000_000; 3]).chain([5; 20])).awake(false), AWAKE);
    }

    #[test]
    fn who_is_told_how_long_to_wait_awake_learns_nothing_else() {
        for told in [Duration::ZERO, Duration::from_millis(20), Duration::MAX] {
            for waits in [[5; 40], [1_000_000; 40]] {
                let patience = learned(Patience::new(Some(told)), waits);
                assert_eq!(patience.awake(false), told);
                assert_eq!(patience.awake(true), Duration::ZERO, "for commands alone");
            }
        }
        assert_eq!(after([5; 40]).awake(true), AWAKE, "calls between workers are short waits too");
    }
}
