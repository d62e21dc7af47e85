//! How many events are due for an even rate.
use artery_engine::Time;
use std::time::Duration;

/// Counts events against the number due. Unlike a token bucket it works in whole seconds: events missed in
/// one can be made up for in the next.
#[derive(Clone, Debug)]
pub(super) struct Gap {
    rate: u64,
    /// What happened in this second, less what was missed before.
    count: i64,
    /// This second; none before the first question.
    second: Option<u64>,
}

impl Gap {
    pub(super) fn new(rate: u64) -> Gap {
        Gap { rate, count: 0, second: None }
    }
    pub(super) fn rate(&self) -> u64 {
        self.rate
    }
    pub(super) fn set_rate(&mut self, rate: u64) {
        if rate != self.rate {
            *self = Gap::new(rate);
        }
    }
    /// Restarts the count, at the same rate.
    pub(super) fn reset_count(&mut self) {
        self.second = None;
    }
    /// How many may happen now.
    pub(super) fn due_count(&mut self, now: Time) -> u64 {
        let scaled = u128::from(now.subsec_nanos()) * u128::from(self.rate);
        let due = (scaled / SECOND) as i64;
        match self.second {
            // Less than half a gap after the last moment that was due, one may happen at once.
            None => self.count = due + i64::from(scaled % SECOND > SECOND / 2),
            Some(second) if now.seconds() > second && self.count > 0 => self.count -= self.rate as i64,
            Some(_) => {}
        }
        self.second = Some(self.second.map_or(now.seconds(), |second| second.max(now.seconds())));
        if self.rate == 0 { 0 } else { (due - self.count + 1).max(0) as u64 }
    }
    pub(super) fn record_events(&mut self, n: u64) {
        self.count = self.count.saturating_add_unsigned(n);
    }
    /// When the next will be due, if none is now.
    pub(super) fn next(&self) -> Time {
        let (Some(second), 1..) = (self.second, self.rate) else { return Time::NEVER };
        let nanos = (u128::from(self.count.max(0).unsigned_abs()) * SECOND).div_ceil(u128::from(self.rate));
        Time::new(second, 0) + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

const SECOND: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// How many happen in `seconds` when everything due happens, asking every `step`.
    fn total(rate: u64, step: Duration, seconds: u64) -> u64 {
        let (mut gap, mut now, mut total) = (Gap::new(rate), Time::new(1000, 0), 0);
        while now < Time::new(1000 + seconds, 0) {
            let due = gap.due_count(now);
            gap.record_events(due);
            total += due;
            now = now + step;
        }
        total
    }

    #[test]
    fn as_many_happen_as_the_rate_says() {
        for (rate, step) in [(1, 10), (10, 1), (1000, 1), (1000, 7), (123_457, 1)] {
            let total = total(rate, Duration::from_millis(step), 10);
            assert!((rate * 99 / 10..=rate * 10 + 1).contains(&total), "{rate} {step}: {total}");
        }
    }

    #[test]
    fn the_next_is_due_when_it_says() {
        let mut gap = Gap::new(3);
        let mut now = Time::new(1000, 0);
        for _ in 0..20 {
            assert_eq!(gap.due_count(now), 1);
            gap.record_events(1);
            assert_eq!(gap.due_count(now), 0);
            now = gap.next();
            assert_eq!(gap.due_count(Time(now.0 - 1)), 0);
        }
    }

    #[test]
    fn nothing_is_ever_due_at_rate_zero() {
        let mut gap = Gap::new(0);
        assert_eq!((gap.due_count(Time::new(5, 0)), gap.due_count(Time::new(9, 7))), (0, 0));
        assert_eq!(gap.next(), Time::NEVER);
    }
}
