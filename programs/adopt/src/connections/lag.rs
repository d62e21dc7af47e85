//! How late events of connections are read. Until the end of an entry is read, packets of its flow are
//! forwarded, so that this must have a bound.
use crate::pace::Lag;
use std::time::{Duration, Instant};

/// How late events may be before packets of all connections go to the kernel.
const MOST: Duration = Duration::from_secs(1);
/// For how long all must have been read in time then until they are forwarded again.
const CALM: Duration = Duration::from_secs(2);

/// Follows how long events may have waited that are read, or left.
#[derive(Debug, Default)]
pub(super) struct EventLag {
    /// When all that waited had been read last; none before the first turn, as no connection was forwarded.
    all_read: Option<Instant>,
    /// For how long the process has slept since then, until there would be events.
    slept: Duration,
    /// When some were left, or late, last.
    unsettled: Option<Instant>,
    lag: Lag,
}

impl EventLag {
    pub(super) fn status(&self) -> Lag {
        self.lag
    }

    /// Follows a turn: the process slept for `slept` before it, and has read events since, with `is_all` all
    /// of them. What waited has arrived since all were read last, but not while the process slept: an
    /// event would have woken it.
    pub(super) fn follow(&mut self, now: Instant, slept: Duration, is_all: bool) {
        let Some(all_read) = self.all_read else {
            self.all_read = Some(now);
            return;
        };
        self.slept += slept;
        let waited = now.saturating_duration_since(all_read).saturating_sub(self.slept);
        self.lag.now = waited;
        self.lag.longest = self.lag.longest.max(waited);
        let is_late = waited > MOST;
        if is_late || !is_all {
            self.unsettled = Some(now);
        }
        let is_calm = self.unsettled.is_none_or(|last| now.saturating_duration_since(last) >= CALM);
        self.lag.is_too_long = is_late || self.lag.is_too_long && !is_calm;
        if is_all {
            (self.all_read, self.slept) = (Some(now), Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows turns at milliseconds since the start; says the lag, and whether it is too long.
    fn turns() -> impl FnMut(u64, u64, bool) -> (u128, bool) {
        let start = Instant::now();
        let mut lag = EventLag::default();
        // However long the start took.
        lag.follow(start, Duration::from_secs(3600), false);
        assert_eq!(lag.status(), Lag::default());
        move |at, slept, is_all| {
            lag.follow(start + Duration::from_millis(at), Duration::from_millis(slept), is_all);
            assert!(lag.status().longest >= lag.status().now);
            (lag.status().now.as_millis(), lag.status().is_too_long)
        }
    }

    #[test]
    fn events_are_late_beyond_a_second_and_until_all_were_read_in_time_for_a_while() {
        let mut follow = turns();
        assert_eq!(follow(900, 890, true), (10, false));
        assert_eq!(follow(1000, 0, false), (100, false));
        assert_eq!(follow(1900, 0, false), (1000, false));
        assert_eq!(follow(1901, 0, false), (1001, true));
        assert_eq!(follow(2000, 0, true), (1100, true), "what is read at last was late, too");
        assert_eq!(follow(3999, 1990, true), (9, true), "they may come back at once");
        assert_eq!(follow(4000, 0, true), (1, false));
        assert_eq!(follow(4100, 0, false), (100, false), "a few are no matter");
    }

    #[test]
    fn a_process_that_stood_still_was_late_whether_it_reads_all_at_once_or_not_and_one_that_slept_was_not() {
        let mut follow = turns();
        assert_eq!(follow(5000, 5000, true), (0, false));
        assert_eq!(follow(6300, 250, true), (1050, true));
        assert_eq!(follow(8299, 1999, true), (0, true));
        assert_eq!(follow(8300, 1, true), (0, false));
    }
}
