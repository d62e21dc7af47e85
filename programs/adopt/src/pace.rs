//! How long it takes until a change that the kernel notifies of takes effect.
use std::time::Duration;

/// The durations of turns in which there were changes. A change that arrives during a turn waits for its end,
/// so it takes effect within two turns.
#[derive(Clone, Debug, Default)]
pub struct TurnTimes {
    turns: u64,
    sum: Duration,
    longest: Duration,
    within: [u64; TurnTimes::BOUNDS.len()],
}

impl TurnTimes {
    /// What turns are counted by.
    pub const BOUNDS: [Duration; 8] = [
        Duration::from_micros(100),
        Duration::from_millis(1),
        Duration::from_millis(5),
        Duration::from_millis(10),
        Duration::from_millis(50),
        Duration::from_millis(100),
        Duration::from_millis(500),
        Duration::from_secs(1),
    ];

    pub(crate) fn record_turn(&mut self, time: Duration) {
        self.turns += 1;
        self.sum += time;
        self.longest = self.longest.max(time);
        let bounds = TurnTimes::BOUNDS.iter().zip(&mut self.within);
        bounds.filter(|(bound, _)| time <= **bound).for_each(|(_, count)| *count += 1);
    }

    /// How many turns there were.
    pub fn turns(&self) -> u64 {
        self.turns
    }
    /// How long they took together.
    pub fn sum(&self) -> Duration {
        self.sum
    }
    /// How long the longest took.
    pub fn longest(&self) -> Duration {
        self.longest
    }
    /// How many took no longer than each of [`BOUNDS`](Self::BOUNDS).
    pub fn within(&self) -> [u64; TurnTimes::BOUNDS.len()] {
        self.within
    }
}

/// Lag of changes that is reported when it is exceeded: removed routes are still used for so long.
const MOST_LAG: Duration = Duration::from_secs(1);
/// How late they may be to be in time again.
const LITTLE_LAG: Duration = Duration::from_millis(200);

/// Tracks the lag with which changes of the kernel's tables are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// How long those that were read last had waited, or those that wait have at least.
    pub now: Duration,
    /// The longest since the start.
    pub longest: Duration,
    /// Whether that is too long.
    pub is_too_long: bool,
}

impl Lag {
    /// Notes how late they are now; says whether it has become too long, or is no longer.
    pub(crate) fn follow(&mut self, now: Duration) -> bool {
        self.now = now;
        self.longest = self.longest.max(now);
        let is_too_long = now > if self.is_too_long { LITTLE_LAG } else { MOST_LAG };
        std::mem::replace(&mut self.is_too_long, is_too_long) != is_too_long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_is_too_long_beyond_a_second_and_until_it_is_little() {
        let mut lag = Lag::default();
        let mut follow = |millis| (lag.follow(Duration::from_millis(millis)), lag.is_too_long);
        assert_eq!([1, 1000, 1001].map(&mut follow), [(false, false), (false, false), (true, true)]);
        assert_eq!([900, 201, 200].map(&mut follow), [(false, true), (false, true), (true, false)]);
        assert_eq!((lag.now.as_millis(), lag.longest.as_millis()), (200, 1001));
    }

    #[test]
    fn turns_are_counted_by_all_bounds_that_they_keep() {
        let mut pace = TurnTimes::default();
        [1, 6, 2000].into_iter().for_each(|time| pace.record_turn(Duration::from_millis(time)));
        assert_eq!(pace.within(), [0, 1, 1, 2, 2, 2, 2, 2]);
        assert_eq!((pace.turns(), pace.longest().as_millis(), pace.sum().as_millis()), (3, 2000, 2007));
    }
}
