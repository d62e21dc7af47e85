//! Time as an entry keeps it: 32 bits that count tenths of a millisecond, and wrap after 119 hours.
use std::time::Duration;

/// An instant, in tenths of a millisecond since any fixed one of the caller's.
///
/// Of two instants the later one is known as long as they are less than 59 hours apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick(pub(super) u32);

/// Ticks in a second.
pub(super) const PER_SECOND: u64 = 10_000;
/// Longest age that can be distinguished from a time in the future; half a day is left for
/// a table without maintenance.
const MOST_TICKS: u64 = 48 * 3600 * PER_SECOND;

impl Tick {
    /// The tick that an instant falls into; compute it once for a batch.
    #[inline]
    pub fn from_time(now: Duration) -> Tick {
        let ticks = now.as_secs().wrapping_mul(PER_SECOND).wrapping_add(u64::from(now.subsec_micros() / 100));
        Tick(ticks as u32)
    }

    /// How long before `now` it was; zero if it is later.
    pub fn age(self, now: Tick) -> Duration {
        ticks_to_duration(now.since(self).unwrap_or(0))
    }

    /// Ticks from `earlier` until now; none if that is not earlier.
    #[inline]
    pub(super) fn since(self, earlier: Tick) -> Option<u32> {
        let ticks = self.0.wrapping_sub(earlier.0);
        (ticks as i32 >= 0).then_some(ticks)
    }

    /// The instant so long before; at most 48 hours.
    pub fn earlier(self, by: Duration) -> Tick {
        self.before(by)
    }

    /// The instant that was `idle` ago.
    pub(super) fn before(self, idle: Duration) -> Tick {
        Tick(self.0.wrapping_sub(ticks_of(idle)))
    }
}

/// A length of time in ticks, at most 48 hours.
pub(super) fn ticks_of(time: Duration) -> u32 {
    let ticks = time.as_secs().saturating_mul(PER_SECOND).saturating_add((time.subsec_micros() / 100).into());
    ticks.min(MOST_TICKS) as u32
}

/// A number of ticks as a length of time.
pub(super) fn ticks_to_duration(ticks: u32) -> Duration {
    Duration::from_micros(u64::from(ticks) * 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_is_right_across_the_wrap() {
        let wrap = Duration::from_micros((1 << 32) * 100);
        for start in [Duration::ZERO, wrap - Duration::from_secs(1), wrap * 7 - Duration::from_millis(1)] {
            let (then, now) = (Tick::from_time(start), Tick::from_time(start + Duration::from_secs(40_000)));
            assert_eq!(now.since(then), Some(400_000_000));
            assert_eq!(then.since(now), None);
        }
    }

    #[test]
    fn long_times_are_cut_to_what_can_be_told() {
        assert_eq!(ticks_to_duration(ticks_of(Duration::MAX)), Duration::from_secs(48 * 3600));
        assert_eq!(ticks_to_duration(ticks_of(Duration::from_micros(12_345))), Duration::from_micros(12_300));
    }
}
