//! What the signals of the system do to a running router.
use crate::reload::ReloadRequests;
use crate::voice::Voice;
use anyhow::Context as _;
use artery_elements::ClaimedSignals;
use artery_engine::Handle;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle as Watch, Signals};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

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

/// Watches for signals until it is ended.
pub(crate) struct Watcher {
    watch: Watch,
    thread: JoinHandle<()>,
}

impl Watcher {
    /// From now on SIGHUP requests a reload. The first SIGINT or SIGTERM asks the router to stop, and to send what it holds
    /// first; the second ends it at once; `voice` says both, if there is one. A signal that a script of the configuration
    /// waits for does nothing else.
    pub(crate) fn start(
        handle: Handle,
        reloads: ReloadRequests,
        early: &EarlyHangup,
        voice: Option<Voice>,
    ) -> anyhow::Result<Watcher> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let watch = signals.handle();
        let claimed = handle.resources().get::<ClaimedSignals>();
        // What was read when it came may be out of date.
        if early.has_come() && !claimed.contains(SIGHUP) {
            reloads.request();
        }
        let body = move || {
            let mut is_stopping = false;
            for signal in &mut signals {
                match signal {
                    _ if claimed.contains(signal) => {}
                    SIGHUP => reloads.request(),
                    _ => {
                        say_end(voice, signal, is_stopping);
                        match std::mem::replace(&mut is_stopping, true) {
                            false => handle.request_drained_stop(),
                            true => handle.end(),
                        }
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("signals".to_string()).spawn(body)?;
        Ok(Watcher { watch, thread })
    }

    /// Stops watching.
    pub(crate) fn end(self) {
        self.watch.close();
        // A watcher that panicked has nothing left to do.
        let _ = self.thread.join();
    }
}

fn say_end(voice: Option<Voice>, signal: i32, is_stopping: bool) {
    let Some(voice) = voice else { return };
    let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
    let what = match is_stopping {
        false => format!("stopping: {name} was received; a second signal ends the router at once"),
        true => format!("ending at once: {name} was received again"),
    };
    voice.tell("stopping", &what, &[("signal", name)]);
}

/// A flag that SIGINT, SIGTERM and SIGHUP set from now on, for commands that look at something until they are told to end: they
/// leave the router and the terminal as these were.
pub(crate) fn end_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, ends.clone()).context("can't wait for signals")?;
    }
    Ok(ends)
}
