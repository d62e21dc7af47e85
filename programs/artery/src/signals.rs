//! What the signals of the system do to a running router.
use crate::output::{self, Output};
use crate::reload::ReloadRequests;
use anyhow::Context as _;
use artery_click::ClaimedSignals;
use artery_device::privsep::drop_capabilities;
use artery_engine::Handle;
use rustix::event::Timespec;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle as Watch, Signals};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A SIGHUP that comes before the router runs, or when it has ended: it must not end the process.
#[derive(Clone, Default)]
pub(crate) struct EarlyHangup(Arc<AtomicBool>);

impl EarlyHangup {
    /// Catches SIGHUP from now until the process ends.
    pub(crate) fn catch() -> anyhow::Result<EarlyHangup> {
        let hangup = EarlyHangup::default();
        signal_hook::flag::register(SIGHUP, hangup.0.clone())?;
        Ok(hangup)
    }

    pub(crate) fn has_come(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Says which signal ends the process before a router runs, as while its configuration is read.
pub(crate) struct EarlyEnd {
    watch: Watch,
    thread: Option<JoinHandle<()>>,
}

impl EarlyEnd {
    /// From now on; SIGINT and SIGTERM end the process as they would without it.
    pub(crate) fn watch(voice: Output) -> anyhow::Result<EarlyEnd> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let watch = signals.handle();
        let (confined, is_confined) = sync_channel(1);
        let body = move || {
            // The thread exists before the other threads' rights are given up, and needs none.
            let _ = confined.send(drop_capabilities());
            if let Some(signal) = first_of(&mut signals) {
                die(voice, signal, "before the router was started");
            }
        };
        let thread = std::thread::Builder::new().name("early signals".to_string()).spawn(body)?;
        is_confined.recv()??;
        Ok(EarlyEnd { watch, thread: Some(thread) })
    }
}

/// The first signal until the watch is closed. One that came just before has no other receiver.
fn first_of(signals: &mut Signals) -> Option<i32> {
    let first = signals.forever().next();
    first.or_else(|| signals.pending().next())
}

impl Drop for EarlyEnd {
    fn drop(&mut self) {
        self.watch.close();
        if let Some(thread) = self.thread.take() {
            // It ends the process if there was a signal, and does not panic.
            let _ = thread.join();
        }
    }
}

/// Signals that come before a router runs.
pub(crate) struct EarlySignals {
    pub(crate) hangup: EarlyHangup,
    pub(crate) end: Option<EarlyEnd>,
}

impl EarlySignals {
    /// Catches SIGHUP from now on; SIGINT and SIGTERM end the process without a line that says so.
    pub(crate) fn catch() -> anyhow::Result<EarlySignals> {
        Ok(EarlySignals { hangup: EarlyHangup::catch()?, end: None })
    }

    /// The same, and a line says which signal ends the process.
    pub(crate) fn watch(voice: Output) -> anyhow::Result<EarlySignals> {
        Ok(EarlySignals { hangup: EarlyHangup::catch()?, end: Some(EarlyEnd::watch(voice)?) })
    }
}

/// Reports why the process ends, and ends it by the signal, as its parent expects.
fn die(voice: Output, signal: i32, what: &str) {
    let name = name(signal);
    voice.log_event("ended", &format!("ended: {name} was received {what}"), &[("signal", name)]);
    // It does not return for these signals.
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}

/// Flags that signals set.
struct SignalFlags(Vec<(i32, Arc<AtomicBool>, SigId)>);

impl SignalFlags {
    fn register(signals: &[i32]) -> std::io::Result<SignalFlags> {
        let register = |signal: &i32| {
            let flag = Arc::new(AtomicBool::new(false));
            let id = signal_hook::flag::register(*signal, flag.clone())?;
            Ok((*signal, flag, id))
        };
        signals.iter().map(register).collect::<std::io::Result<_>>().map(SignalFlags)
    }

    /// Gives the signals that came.
    fn unregister(self) -> BTreeSet<i32> {
        let came = self.0.into_iter().filter_map(|(signal, flag, id)| {
            signal_hook::low_level::unregister(id);
            flag.load(Relaxed).then_some(signal)
        });
        came.collect()
    }
}

/// Watches for signals until it is ended.
pub(crate) struct Watcher {
    watch: Watch,
    thread: JoinHandle<bool>,
    has_finished: Arc<AtomicBool>,
    voice: Option<Output>,
}

/// How long a worker may take to answer after a signal (a script that loops never does), and how long what is
/// printed after it may find no room (it may have no reader).
const ANSWER: Duration = Duration::from_millis(1500);
/// How long a run may take to end although a worker did not answer.
const END: Duration = Duration::from_millis(300);

impl Watcher {
    /// From now on SIGHUP requests a reload. The first SIGINT or SIGTERM asks the router to stop, and to
    /// send what it holds first; the second ends it at once; `voice` says both, if there is one. A signal
    /// that a script of the configuration waits for does nothing else. Where a worker does not answer the
    /// process ends at once.
    pub(crate) fn start(
        handle: Handle,
        reloads: ReloadRequests,
        early: EarlySignals,
        voice: Option<Output>,
    ) -> anyhow::Result<Watcher> {
        // Signals between the two watches are known by flags; those that both know are one.
        let between = SignalFlags::register(&[SIGINT, SIGTERM])?;
        drop(early.end);
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let mut first = between.unregister();
        first.extend(signals.pending());
        let watch = signals.handle();
        let claimed = handle.resources().get::<ClaimedSignals>();
        // The configuration was read before the signal came, and may be out of date.
        if early.hangup.has_come() && !claimed.contains(SIGHUP) {
            reloads.request();
        }
        let has_finished = Arc::new(AtomicBool::new(false));
        let finished = has_finished.clone();
        let body = move || {
            let (mut is_stopping, mut is_terminated) = (false, false);
            for signal in first.into_iter().chain(signals.forever()) {
                match signal {
                    _ if claimed.contains(signal) => {}
                    SIGHUP => reloads.request(),
                    _ => {
                        is_terminated |= signal == SIGTERM;
                        say_end(voice, signal, is_stopping);
                        handle.record_end(&format!("{} was received", name(signal)));
                        match std::mem::replace(&mut is_stopping, true) {
                            false => handle.request_drained_stop(),
                            true => handle.end_run(),
                        }
                        end_if_stuck(&handle, &finished, voice, signal);
                    }
                }
            }
            is_terminated
        };
        let thread = std::thread::Builder::new().name("signals".to_string()).spawn(body)?;
        Ok(Watcher { watch, thread, has_finished, voice })
    }

    /// From now on SIGINT and SIGTERM end the process as they would without a watcher: all that is left is to
    /// print. After a SIGTERM it ends also if that is not read.
    pub(crate) fn end(self) -> anyhow::Result<()> {
        self.has_finished.store(true, Relaxed);
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_default(signal, Arc::new(AtomicBool::new(true)))?;
        }
        self.watch.close();
        // A watcher that panicked has nothing left to do.
        if self.thread.join().unwrap_or_default() {
            let voice = self.voice.unwrap_or(Output::for_terminal());
            spawn(move || {
                wait_until_unread();
                die(voice, SIGTERM, "and the output is not read");
            });
        }
        Ok(())
    }
}

/// Waits until standard output or standard error has had no room for [`ANSWER`] or so.
fn wait_until_unread() {
    loop {
        std::thread::sleep(ANSWER);
        if !output::has_room(&std::io::stdout(), Timespec::default())
            || !output::has_room(&std::io::stderr(), Timespec::default())
        {
            return;
        }
    }
}

fn spawn(body: impl FnOnce() + Send + 'static) {
    // Without threads a second signal may do better.
    let _ = std::thread::Builder::new().name("end".to_string()).spawn(body);
}

/// Ends the process where a worker is stuck, as in a script that loops. The check has threads of its own, and
/// the caller does not wait.
fn end_if_stuck(handle: &Handle, has_finished: &Arc<AtomicBool>, voice: Option<Output>, signal: i32) {
    let (answer, answered) = sync_channel(1);
    let (asked, has_finished) = (handle.clone(), has_finished.clone());
    let ask = move || {
        // The waiting thread may have given up.
        let _ = answer.try_send(asked.is_responsive());
    };
    let handle = handle.clone();
    let wait = move || {
        let deadline = Instant::now() + ANSWER;
        let ends_by = |limit| holds_by(limit, || has_finished.load(Relaxed));
        let stuck = match answered.recv_timeout(ANSWER) {
            // A script may put the end off; a configuration, which may wait for a file, may not.
            Ok(true) => match holds_by(deadline, || !handle.is_replacing() || has_finished.load(Relaxed)) {
                true => None,
                false => Some("while a new configuration was being built"),
            },
            Ok(false) => (!ends_by(Instant::now() + END)).then_some("and a worker does not answer"),
            Err(_) => (!has_finished.load(Relaxed)).then_some("and a worker does not answer"),
        };
        if let Some(what) = stuck {
            die(voice.unwrap_or(Output::for_terminal()), signal, what);
        }
    };
    spawn(ask);
    spawn(wait);
}

fn holds_by(deadline: Instant, holds: impl Fn() -> bool) -> bool {
    while !holds() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}

fn name(signal: i32) -> &'static str {
    if signal == SIGINT { "SIGINT" } else { "SIGTERM" }
}

fn say_end(voice: Option<Output>, signal: i32, is_stopping: bool) {
    let Some(voice) = voice else { return };
    let name = name(signal);
    let what = match is_stopping {
        false => format!("stopping: {name} was received; a second signal ends the router at once"),
        true => format!("ending at once: {name} was received again"),
    };
    voice.log_event("stopping", &what, &[("signal", name)]);
}

/// A flag that SIGINT, SIGTERM and SIGHUP set from now on, for commands that watch something until they are
/// interrupted: they leave the router and the terminal as these were. What they print may have no reader,
/// then the signal ends the process.
pub(crate) fn end_flag() -> anyhow::Result<Arc<AtomicBool>> {
    const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];
    let ends = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new(SIGNALS).context("can't wait for signals")?;
    for signal in SIGNALS {
        signal_hook::flag::register(signal, ends.clone()).context("can't wait for signals")?;
    }
    spawn(move || {
        if let Some(signal) = signals.forever().next() {
            wait_until_unread();
            // It does not return for these signals.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::consts::SIGUSR2;

    #[test]
    fn a_signal_before_the_end_of_a_watch_is_not_lost() {
        let mut signals = Signals::new([SIGUSR2]).unwrap();
        signal_hook::low_level::raise(SIGUSR2).unwrap();
        signals.handle().close();
        assert_eq!(first_of(&mut signals), Some(SIGUSR2));
        assert_eq!(first_of(&mut signals), None);
    }
}
