//! What a stranger may make a port do in a second.

use std::time::Duration;

/// Messages that a port takes in a second. Ten neighbors on a shared link, at the most that the
/// standard lets each say.
pub(super) const MAX_RECEIVED: u32 = 100;
/// Flushes of a port's addresses in a second; more are done as one, at its end.
pub(super) const MOST_FLUSHES: u32 = 4;

const SECOND: Duration = Duration::from_secs(1);

/// Counts in seconds that begin with what is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    end: Duration,
    count: u32,
}

impl Window {
    /// Takes one of this many permits.
    pub(super) fn try_acquire(&mut self, now: Duration, most: u32) -> bool {
        if self.end <= now {
            *self = Window { end: now.saturating_add(SECOND), count: 0 };
        }
        let is_left = self.count < most;
        self.count += u32::from(is_left);
        is_left
    }
}

/// Limits flushes on request: few enough to learn addresses between them, and none lost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flushes {
    window: Window,
    is_due: bool,
}

impl Flushes {
    /// Says whether to flush now; otherwise that is due later.
    pub(super) fn try_flush(&mut self, now: Duration) -> bool {
        self.is_due = !self.window.try_acquire(now, MOST_FLUSHES);
        !self.is_due
    }

    /// When the one that is due shall be done.
    pub(super) fn due_at(&self) -> Option<Duration> {
        self.is_due.then_some(self.window.end)
    }

    /// Says whether one is to be done now that was due.
    pub(super) fn poll_due(&mut self, now: Duration) -> bool {
        self.due_at().is_some_and(|due| due <= now) && self.try_flush(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_taken_in_a_second() {
        let mut window = Window::default();
        let taken = (0..3000).filter(|ms| window.try_acquire(Duration::from_millis(*ms), 5)).count();
        assert_eq!(taken, 15);
    }

    #[test]
    fn a_flush_too_many_is_done_at_the_end_of_the_second() {
        let mut flushes = Flushes::default();
        let at = Duration::from_millis;
        let done: Vec<bool> = (0..6).map(|ms| flushes.try_flush(at(100 + ms))).collect();
        assert_eq!(done, [true, true, true, true, false, false]);
        assert_eq!(flushes.due_at(), Some(at(1100)));
        assert!(!flushes.poll_due(at(1099)) && flushes.poll_due(at(1100)));
        assert_eq!(flushes.due_at(), None);
    }
}
