//! The clock of a router: real, or simulated for tests that should not wait.
use artery_packet::Time;
use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the time once a task run; see [`Clock::forget`].
#[derive(Clone, Debug)]
pub struct Clock {
    /// Set in simulated time only.
    simulated: Option<Time>,
    /// What was read since the last [`Clock::forget`].
    read: Option<Time>,
}

impl Clock {
    /// The machine's clock.
    pub fn real() -> Clock {
        Clock { simulated: None, read: None }
    }
    /// A clock that stands still until it is told to [`Clock::jump`].
    pub fn simulated(start: Time) -> Clock {
        Clock { simulated: Some(start), read: None }
    }
    /// Whether time is simulated.
    pub fn is_simulated(&self) -> bool {
        self.simulated.is_some()
    }
    /// Now. Reading the machine's clock costs some 20 ns, so it is read at most once a task run.
    #[inline]
    pub fn now(&mut self) -> Time {
        match (self.simulated, self.read) {
            (Some(time), _) | (None, Some(time)) => time,
            (None, None) => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let now = Time::ZERO + since;
                self.read = Some(now);
                now
            }
        }
    }
    /// Lets the next [`Clock::now`] read the clock anew.
    #[inline]
    pub fn forget(&mut self) {
        self.read = None;
    }
    /// Moves simulated time on to `time`; never back. Does nothing in real time.
    pub fn jump(&mut self, time: Time) {
        self.simulated = self.simulated.map(|now| now.max(time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_time_moves_only_when_told_and_never_back() {
        let mut clock = Clock::simulated(Time(5));
        assert_eq!(clock.now(), Time(5));
        clock.jump(Time(9));
        clock.jump(Time(7));
        assert_eq!(clock.now(), Time(9));
    }

    #[test]
    fn real_time_is_read_once_until_forgotten() {
        let mut clock = Clock::real();
        let first = clock.now();
        assert_eq!(clock.now(), first);
        clock.forget();
        assert!(clock.now() >= first);
    }
}
