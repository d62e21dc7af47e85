//! The clock of a router: real, or simulated for tests that should not wait.
//!
//! Real time is the time of day when a clock was first read, plus what a monotonic clock has counted since.
//! So timers go off on time although the machine's time of day is set meanwhile. Such a step is not followed:
//! until the program is restarted, [`Clock::now`] differs from the time of day by it.
use artery_packet::Time;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Reads the time once in each task run; see [`Clock::invalidate`].
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
    /// What was read since the last [`Clock::invalidate`]; in real time only.
    read: Option<Time>,
}

/// Where a clock has its time from.
#[derive(Clone, Copy, Debug)]
enum Source {
    Simulated(Time),
    Real(&'static Machine),
}

/// The clocks of a machine.
#[derive(Debug)]
struct Machine {
    time_of_day: fn() -> Time,
    steady: fn() -> Instant,
    /// What both said at first. One for all routers and their graphs: they hand moments to each other.
    start: OnceLock<(Time, Instant)>,
}

static MACHINE: Machine = Machine {
    time_of_day: || Time::ZERO + SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
    steady: Instant::now,
    start: OnceLock::new(),
};

impl Machine {
    fn now(&self) -> Time {
        let (time, then) = self.start.get_or_init(|| ((self.time_of_day)(), (self.steady)()));
        *time + (self.steady)().saturating_duration_since(*then)
    }
}

impl Clock {
    /// The machine's clock, real time.
    pub fn real() -> Clock {
        Clock::from_machine(&MACHINE)
    }
    fn from_machine(machine: &'static Machine) -> Clock {
        Clock { source: Source::Real(machine), read: None }
    }
    /// A clock that stands still until [`Clock::advance_to`].
    pub fn simulated(start: Time) -> Clock {
        Clock { source: Source::Simulated(start), read: None }
    }
    /// Whether time is simulated.
    pub fn is_simulated(&self) -> bool {
        matches!(self.source, Source::Simulated(_))
    }
    /// Now. Reading the machine's clock costs some 20 ns, so it is read at most once a task run.
    #[inline]
    pub fn now(&mut self) -> Time {
        match (self.source, self.read) {
            (Source::Simulated(time), _) | (_, Some(time)) => time,
            (Source::Real(machine), None) => {
                let now = machine.now();
                self.read = Some(now);
                now
            }
        }
    }
    /// What [`Clock::now`] read since the last [`Clock::invalidate`], if anything; simulated time always.
    #[inline]
    pub(crate) fn last_read(&self) -> Option<Time> {
        match self.source {
            Source::Simulated(time) => Some(time),
            Source::Real(_) => self.read,
        }
    }
    /// Makes the next [`Clock::now`] read the clock again.
    #[inline]
    pub fn invalidate(&mut self) {
        self.read = None;
    }
    /// Moves simulated time on to `time`; never back. Does nothing in real time.
    pub fn advance_to(&mut self, time: Time) {
        if let Source::Simulated(now) = &mut self.source {
            *now = time.max(*now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_time_moves_only_when_told_and_never_back() {
        let mut clock = Clock::simulated(Time(5));
        assert_eq!(clock.now(), Time(5));
        clock.advance_to(Time(9));
        clock.advance_to(Time(7));
        assert_eq!(clock.now(), Time(9));
    }

    #[test]
    fn real_time_is_read_once_until_forgotten() {
        let mut clock = Clock::real();
        let first = clock.now();
        assert_eq!(clock.now(), first);
        clock.invalidate();
        assert!(clock.now() >= first);
    }

    /// A machine whose clocks a test sets.
    mod fake {
        use super::*;
        use std::cell::Cell;
        use std::time::Duration;

        thread_local! {
            static TIME_OF_DAY: Cell<Time> = const { Cell::new(Time::ZERO) };
            static STEADY: Cell<Instant> = Cell::new(Instant::now());
        }

        pub(super) static MACHINE: Machine =
            Machine { time_of_day: || TIME_OF_DAY.get(), steady: || STEADY.get(), start: OnceLock::new() };

        pub(super) fn set(time: Time) {
            TIME_OF_DAY.set(time);
        }
        pub(super) fn pass(seconds: u64) {
            STEADY.set(STEADY.get() + Duration::from_secs(seconds));
            TIME_OF_DAY.set(TIME_OF_DAY.get() + Duration::from_secs(seconds));
        }
    }

    #[test]
    fn real_time_starts_with_the_time_of_day_and_goes_on_evenly_when_that_is_set() {
        fake::set(Time::new(5000, 0));
        let mut clock = Clock::from_machine(&fake::MACHINE);
        assert_eq!(clock.now(), Time::new(5000, 0));
        for step in [Time::new(1, 0), Time::new(90_000, 0)] {
            fake::set(step);
            fake::pass(10);
        }
        clock.invalidate();
        assert_eq!(clock.now(), Time::new(5020, 0));
        let mut later = Clock::from_machine(&fake::MACHINE);
        assert_eq!(later.now(), Time::new(5020, 0), "a graph that replaces another has its time");
    }
}
