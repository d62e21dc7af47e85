//! What the signals of the system do to a running router.
use crate::replace::Replacer;
use crate::voice::Voice;
use artery_elements::ClaimedSignals;
use artery_engine::Handle;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle as Watch, Signals};
use std::thread::JoinHandle;

/// Watches for signals until it is ended.
pub(crate) struct Watcher {
    watch: Watch,
    thread: JoinHandle<()>,
}

impl Watcher {
    /// From now on the first SIGINT or SIGTERM asks the router to stop, and to send what it holds first; the second ends
    /// it at once. A signal that a script waits for does neither. SIGHUP replaces the configuration where that is allowed, and is a SIGTERM elsewhere.
    pub(crate) fn start(handle: Handle, replacer: Option<Replacer>, voice: Voice) -> anyhow::Result<Watcher> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let watch = signals.handle();
        let claimed = handle.resources().get::<ClaimedSignals>();
        let body = move || {
            let mut asked = false;
            for signal in &mut signals {
                match signal {
                    SIGHUP if replacer.is_some() => replace(replacer.as_ref(), voice),
                    _ if claimed.contains(signal) => {}
                    _ if asked => handle.end(),
                    _ => {
                        asked = true;
                        handle.request_drained_stop();
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

fn replace(replacer: Option<&Replacer>, voice: Voice) {
    match replacer.map(Replacer::reread) {
        Some(Ok(warnings)) => {
            voice.complain_of(&warnings);
            voice.say("the configuration was replaced");
        }
        Some(Err(errors)) => {
            voice.complain_of(&errors);
            voice.say("the configuration was not replaced");
        }
        None => {}
    }
}
