//! How late events of connections are read. Until the end of an entry is read, packets of its flow are
//! forwarded, so that this must have a bound.
use crate::pace::Lag;
use std::time::{Duration, Instant};

/// How late events may be before packets of all connections go to the kernel.
const MOST: Duration = Duration::from_secs(1);
/// For how long all must have been read in time then until they are forwarded again.
const CALM: Duration = Duration::from_secs(2);

/// Follows whether all events that wait have been read. What waits has arrived since all were read last.
#[derive(Debug)]
pub(super) struct EventLag {
    all_read: Instant,
    /// When some were left last.
    left: Option<Instant>,
    lag: Lag,
}

impl EventLag {
    pub(super) fn new(now: Instant) -> EventLag {
        EventLag { all_read: now, left: None, lag: Lag::default() }
    }

    pub(super) fn status(&self) -> Lag {
        self.lag
    }

    /// Takes it that some events were read, and whether these were all.
    pub(super) fn follow(&mut self, now: Instant, is_all: bool) {
        if is_all {
            self.all_read = now;
        } else {
            self.left = Some(now);
        }
        self.lag.now = now.saturating_duration_since(self.all_read);
        self.lag.longest = self.lag.longest.max(self.lag.now);
        let is_calm = self.left.is_none_or(|last| now.saturating_duration_since(last) >= CALM);
        self.lag.is_too_long = self.lag.now > MOST || self.lag.is_too_long && !is_calm;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_late_beyond_a_second_and_until_all_were_read_in_time_for_a_while() {
        let start = Instant::now();
        let mut lag = EventLag::new(start);
        let mut follow = |millis: u64, is_all: bool| {
            lag.follow(start + Duration::from_millis(millis), is_all);
            (lag.status().now.as_millis(), lag.status().is_too_long)
        };
        assert_eq!(follow(900, true), (0, false));
        assert_eq!(follow(1000, false), (100, false));
        assert_eq!(follow(1900, false), (1000, false));
        assert_eq!(follow(1901, false), (1001, true));
        assert_eq!(follow(2000, true), (0, true), "they may come back at once");
        assert_eq!(follow(3900, true), (0, true));
        assert_eq!(follow(3901, true), (0, false));
        assert_eq!(follow(4000, false), (99, false), "a few are no matter");
        assert_eq!(lag.status().longest.as_millis(), 1001);
    }
}
