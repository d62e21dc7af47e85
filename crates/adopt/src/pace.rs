//! How long it takes until a change that the kernel tells of is heeded.
use std::time::Duration;

/// The durations of turns in which there were changes. One that is told while a turn goes on waits for its end, so it is
/// heeded within two.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    turns: u64,
    sum: Duration,
    longest: Duration,
    within: [u64; Pace::BOUNDS.len()],
}

impl Pace {
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

    pub(crate) fn add(&mut self, time: Duration) {
        self.turns += 1;
        self.sum += time;
        self.longest = self.longest.max(time);
        let bounds = Pace::BOUNDS.iter().zip(&mut self.within);
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
    pub fn within(&self) -> [u64; Pace::BOUNDS.len()] {
        self.within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_counted_by_all_bounds_that_they_keep() {
        let mut pace = Pace::default();
        [1, 6, 2000].into_iter().for_each(|time| pace.add(Duration::from_millis(time)));
        assert_eq!(pace.within(), [0, 1, 1, 2, 2, 2, 2, 2]);
        assert_eq!((pace.turns(), pace.longest().as_millis(), pace.sum().as_millis()), (3, 2000, 2007));
    }
}
