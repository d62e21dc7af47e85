//! Renews the programs' lease while this process follows the kernel.
//!
//! The main loop reports progress; a thread of its own renews the lease, so that a wait in the kernel (for a
//! lock, or for runs of programs to end) does not stop forwarding. A process that is stopped renews nothing.
//! When it goes on its tables are old, so that only the main loop may renew a lease that has ended, once it
//! has read all that changed meanwhile.
use artery_device::bpf::Lease;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the main loop may go without progress before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(3);

/// Renews a lease until it is dropped.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    shared: Arc<LeaseThread>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct LeaseThread {
    lease: Arc<Lease>,
    state: Mutex<HeartbeatState>,
}

#[derive(Debug)]
struct HeartbeatState {
    /// When the main loop last reported progress.
    progressed: Instant,
    renewed: Instant,
    /// Whether the lease has ended, and is the main loop's to renew.
    has_ended: bool,
    is_dropped: bool,
}

impl Heartbeat {
    /// Renews the lease, and begins to keep it.
    pub(crate) fn start(lease: Arc<Lease>) -> io::Result<Heartbeat> {
        lease.renew()?;
        let now = Instant::now();
        let state = HeartbeatState { progressed: now, renewed: now, has_ended: false, is_dropped: false };
        let shared = Arc::new(LeaseThread { lease, state: Mutex::new(state) });
        let of_thread = shared.clone();
        let renew = move || {
            while of_thread.renew_if_due(Instant::now()) {
                thread::park_timeout(Lease::RENEWAL);
            }
        };
        let thread = thread::Builder::new().name("heartbeat".to_owned()).spawn(renew)?;
        Ok(Heartbeat { shared, thread: Some(thread) })
    }

    /// Reports that the main loop goes on, in the middle of a turn.
    pub(crate) fn report_progress(&self) {
        self.shared.lock().progressed = Instant::now();
    }

    /// Reports that the main loop has taken a turn. `is_current` says that it has read all that changed,
    /// which a lease that has ended waits for.
    pub(crate) fn report_turn(&self, is_current: bool) -> io::Result<()> {
        let mut state = self.shared.lock();
        state.progressed = Instant::now();
        if state.has_ended && is_current {
            self.shared.lease.renew()?;
            state.renewed = Instant::now();
            state.has_ended = false;
        }
        Ok(())
    }
}

impl LeaseThread {
    fn lock(&self) -> MutexGuard<'_, HeartbeatState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews the lease if it is to be; says whether to go on.
    fn renew_if_due(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let is_late = now.saturating_duration_since(state.renewed) >= Lease::TERM;
        let is_hung = now.saturating_duration_since(state.progressed) >= PATIENCE;
        state.has_ended |= is_late || is_hung;
        // What can't be renewed ends by itself, and then counts as late.
        if !state.has_ended && self.lease.renew().is_ok() {
            state.renewed = now;
        }
        !state.is_dropped
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.shared.lock().is_dropped = true;
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does not panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_when_the_main_loop_hangs_or_the_process_was_stopped_until_all_is_read() {
        let Ok(lease) = Lease::new() else { return eprintln!("skipped: BPF maps need CAP_BPF") };
        let start = Instant::now();
        let after = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let state = HeartbeatState { progressed: start, renewed: start, has_ended: false, is_dropped: false };
        let shared = Arc::new(LeaseThread { lease: Arc::new(lease), state: Mutex::new(state) });
        let heartbeat = Heartbeat { shared: shared.clone(), thread: None };
        let has_ended = || shared.lock().has_ended;
        (1..29).for_each(|tenths| assert!(shared.renew_if_due(after(f64::from(tenths) / 10.0))));
        assert!(!has_ended(), "the main loop may take a while");
        shared.renew_if_due(after(3.0));
        assert!(has_ended());
        heartbeat.report_turn(false).unwrap();
        assert!(has_ended(), "it has not read everything");
        heartbeat.report_turn(true).unwrap();
        assert!(!has_ended() && shared.lease.holds().unwrap());
        let renewed = shared.lock().renewed;
        shared.renew_if_due(renewed + Lease::TERM);
        assert!(has_ended(), "the thread did not run for so long, whatever the main loop says");
    }
}
