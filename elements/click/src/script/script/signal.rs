//! Signals that a script waits for. A signal handler writes a byte to a socket, which the worker polls.
use artery_engine::{ArgError, Context, Interest};
use signal_hook::consts::{self, FORBIDDEN};
use signal_hook::low_level::{pipe, unregister};
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

/// Signals that scripts handle. While one is registered, the program does not end on it, be it INT or TERM.
#[derive(Debug, Default)]
pub struct ClaimedSignals(Mutex<Vec<i32>>);

impl ClaimedSignals {
    /// Whether a script answers this signal.
    pub fn contains(&self, signal: i32) -> bool {
        self.lock_signals().contains(&signal)
    }
    fn lock_signals(&self) -> std::sync::MutexGuard<'_, Vec<i32>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// The reading end of the socket. Dropping it unregisters the signals.
pub(super) struct SignalPipe {
    stream: UnixStream,
    handlers: Vec<signal_hook::SigId>,
    signals: Vec<i32>,
    claimed: Arc<ClaimedSignals>,
}

impl SignalPipe {
    /// Registers for these signals; `None` when there are none.
    pub(super) fn open_pipe(
        signals: &[i32],
        claimed: &Arc<ClaimedSignals>,
    ) -> Result<Option<SignalPipe>, ArgError> {
        if signals.is_empty() {
            return Ok(None);
        }
        let failed = |error| ArgError::wrong(format!("signals can't be waited for: {error}"));
        let (stream, end) = UnixStream::pair().map_err(failed)?;
        stream.set_nonblocking(true).map_err(failed)?;
        let mut this =
            SignalPipe { stream, handlers: Vec::new(), signals: Vec::new(), claimed: claimed.clone() };
        for &signal in signals {
            if FORBIDDEN.contains(&signal) {
                return Err(ArgError::wrong(format!("bad signal number: {signal} can't be caught")));
            }
            let id = pipe::register(signal, end.try_clone().map_err(failed)?).map_err(failed)?;
            this.handlers.push(id);
            this.signals.push(signal);
            claimed.lock_signals().push(signal);
        }
        Ok(Some(this))
    }

    /// Whether a signal came since the last call.
    pub(super) fn drain_signals(&mut self) -> bool {
        let mut bytes = [0; 64];
        let mut came = false;
        while matches!(self.stream.read(&mut bytes), Ok(n) if n > 0) {
            came = true;
        }
        came
    }

    /// Makes the element's task run when a signal arrives.
    pub(super) fn watch_signals(&self, cx: &mut Context<'_>) {
        cx.watch_file(self.stream.as_fd(), Interest::Readable);
    }
}

impl Drop for SignalPipe {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            unregister(handler);
        }
        let mut claimed = self.claimed.lock_signals();
        for signal in &self.signals {
            if let Some(at) = claimed.iter().position(|claim| claim == signal) {
                claimed.remove(at);
            }
        }
    }
}

/// A signal's number, given by name or number.
pub(super) fn by_name(word: &str) -> Option<i32> {
    Some(match word {
        "ABRT" => consts::SIGABRT,
        "ALRM" => consts::SIGALRM,
        "HUP" => consts::SIGHUP,
        "INT" => consts::SIGINT,
        "IO" => consts::SIGIO,
        "PIPE" => consts::SIGPIPE,
        "QUIT" => consts::SIGQUIT,
        "TERM" => consts::SIGTERM,
        "TSTP" => consts::SIGTSTP,
        "USR1" => consts::SIGUSR1,
        "USR2" => consts::SIGUSR2,
        number => number.parse().ok().filter(|n| (1..32).contains(n))?,
    })
}
