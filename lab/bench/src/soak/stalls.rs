//! Times in which the machine itself did not run runnable programs: queues overflow then, with any forwarder.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long the watching thread sleeps, and how much longer that may take.
const NAP: Duration = Duration::from_millis(10);
const LATE: Duration = Duration::from_millis(150);
/// How long after a stall losses are its own: queues are emptied, and other programs wake up late.
const AFTERMATH: Duration = Duration::from_secs(3);
/// What part of the time may be stalls.
const MOST: f64 = 0.05;

/// Stalls since this was made, by times from then on.
pub(super) struct Stalls {
    began: Instant,
    found: Mutex<Vec<(Duration, Duration)>>,
    is_over: AtomicBool,
}

impl Stalls {
    /// Starts a thread that watches until [`Stalls::end`].
    pub(super) fn watch() -> Arc<Stalls> {
        let stalls = Arc::new(Stalls {
            began: Instant::now(),
            found: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let watched = stalls.clone();
        thread::spawn(move || {
            while !watched.is_over.load(Relaxed) {
                let from = watched.began.elapsed();
                thread::sleep(NAP);
                watched.record_stall(from, watched.began.elapsed());
            }
        });
        stalls
    }

    pub(super) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    /// The instant that times count from.
    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// Whether what was sent at a time may be lost because of a stall.
    pub(super) fn cover(&self, time: Duration) -> bool {
        let is_near =
            |(from, to): &(Duration, Duration)| *from <= time + AFTERMATH && time <= *to + AFTERMATH;
        self.found.lock().unwrap_or_else(PoisonError::into_inner).iter().any(is_near)
    }

    /// How long stalls were together.
    pub(super) fn total(&self) -> Duration {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.iter().map(|(from, to)| *to - *from).sum()
    }

    /// Why a soak of this length says nothing on such a machine.
    pub(super) fn excess(&self, whole: Duration) -> Option<String> {
        let (stalled, whole) = (self.total().as_secs_f64(), whole.as_secs_f64());
        let what = format!(
            "the machine ran no programs for {stalled:.1} s of {whole:.0} s; soak a machine with less to do"
        );
        (stalled > MOST * whole).then_some(what)
    }

    fn record_stall(&self, from: Duration, to: Duration) {
        if to.saturating_sub(from) > NAP + LATE {
            self.found.lock().unwrap_or_else(PoisonError::into_inner).push((from, to));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nap_that_took_too_long_covers_what_was_sent_around_it() {
        let stalls =
            Stalls { began: Instant::now(), found: Mutex::default(), is_over: AtomicBool::new(true) };
        let at = |milliseconds| Duration::from_millis(milliseconds);
        stalls.record_stall(at(1000), at(1100));
        assert!(!stalls.cover(at(1050)), "late, but not too late");
        stalls.record_stall(at(20_000), at(20_500));
        let result = [10_000, 18_000, 20_100, 23_000, 30_000].map(|time| stalls.cover(at(time)));
        assert_eq!(result, [false, true, true, true, false]);
        assert_eq!(stalls.total(), at(500));
        assert!(stalls.excess(at(9000)).is_some() && stalls.excess(at(11_000)).is_none());
    }
}
