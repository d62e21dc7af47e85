//! The router's time: nanoseconds since the epoch, or since a simulated start.
use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The epoch itself, which also stands for "not set".
    pub const ZERO: Time = Time(0);
    /// A moment that never comes.
    pub const NEVER: Time = Time(u64::MAX);

    /// Makes a moment from seconds and the nanoseconds within the second.
    pub const fn new(seconds: u64, nanos: u32) -> Time {
        Time(seconds.saturating_mul(1_000_000_000).saturating_add(nanos as u64))
    }
    /// Whole seconds since the epoch.
    pub const fn seconds(self) -> u64 {
        self.0 / 1_000_000_000
    }
    /// Nanoseconds within the second.
    pub const fn subsec_nanos(self) -> u32 {
        (self.0 % 1_000_000_000) as u32
    }
    /// Year, month and day of the month, in UTC.
    pub fn date(self) -> (u64, u64, u64) {
        let mut day = self.seconds() / 86_400;
        let is_leap =
            |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let mut year = 1970;
        while day >= 365 + u64::from(is_leap(year)) {
            day -= 365 + u64::from(is_leap(year));
            year += 1;
        }
        let mut month = 1;
        for days in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
            if day < days {
                break;
            }
            day -= days;
            month += 1;
        }
        (year, month, day + 1)
    }
    /// How long after the epoch this moment is.
    pub const fn since_epoch(self) -> Duration {
        self.since(Time::ZERO)
    }
    /// How long after `earlier` this moment is; zero when it is before.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, by: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, by: Duration) -> Time {
        Time(self.0.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Seconds with six places, or nine when the moment is finer than a microsecond (Click's spelling).
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.subsec_nanos() {
            n if n % 1000 == 0 => write!(f, "{}.{:06}", self.seconds(), n / 1000),
            n => write!(f, "{}.{n:09}", self.seconds()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_micro_or_nanoseconds() {
        assert_eq!(Time::new(3, 5_000).to_string(), "3.000005");
        assert_eq!(Time::new(3, 5).to_string(), "3.000000005");
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Time::NEVER + Duration::from_secs(1), Time::NEVER);
        assert_eq!(Time::ZERO - Duration::from_secs(1), Time::ZERO);
        assert_eq!(Time(5).since(Time(7)), Duration::ZERO);
    }
}
