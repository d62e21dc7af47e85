//! Replaces the running configuration by another one.
use crate::load::{Reading, load};
use crate::output::Output;
use artery_device::Ports;
use artery_engine::{BuildStage, Handle, Monitor, Monitors, Problem};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// By when elements of a new configuration have taken what those of the old one held.
pub(crate) const SETTLED: Duration = Duration::from_secs(2);

/// Replaces the configuration of one router.
#[derive(Clone)]
pub(crate) struct Replacer {
    handle: Handle,
    reading: Reading,
    output: Output,
    /// Held while a configuration is replaced: one after the other.
    turn: Arc<Mutex<()>>,
    closing: Arc<Mutex<Option<Closing>>>,
}

/// Work that is left for the thread that closes unused ports.
#[derive(Clone, Copy)]
struct Closing {
    due: Instant,
    rounds: u32,
}

impl Closing {
    /// After a replacement: a worker that gets no processor may hold what it used for longer than others.
    fn begin() -> Closing {
        Closing { due: Instant::now() + SETTLED, rounds: 3 }
    }
    /// What follows a round.
    fn next(self) -> Option<Closing> {
        let rounds = self.rounds - 1;
        (rounds > 0).then(|| Closing { due: Instant::now() + SETTLED, rounds })
    }
}

impl Replacer {
    pub(crate) fn new(handle: Handle, reading: Reading, voice: Output) -> Replacer {
        let voice = match voice {
            Output::Artery { .. } => Output::Artery { colour: false },
            other => other,
        };
        Replacer { handle, reading, output: voice, turn: Arc::default(), closing: Arc::default() }
    }

    /// The router that is replaced, as it runs now.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// How messages of the router are written.
    pub(crate) fn voice(&self) -> Output {
        self.output
    }

    /// Finds mistakes that a text has whatever the router has. Gives warnings, a line each.
    pub(crate) fn check(&self, name: &str, text: &str) -> Result<String, String> {
        let loaded = load(name, text, &self.reading);
        let faults = self.output.format_faults(&loaded);
        if loaded.has_errors() { Err(faults) } else { Ok(faults) }
    }

    /// Replaces the configuration by `text`, which messages call `name`. On an error the old one stays.
    pub(crate) fn replace(&self, name: &str, text: &str) -> Result<String, String> {
        let _turn = lock(&self.turn);
        let mut loaded = load(name, text, &self.reading);
        if loaded.has_errors() {
            return Err(self.output.format_faults(&loaded));
        }
        // An editor may leave the file empty for a moment, and a shell does so for a file that is not there.
        if loaded.ir.nodes.is_empty() {
            return Err(format!("{name}: configuration has no elements\n"));
        }
        let ports = self.handle.resources().get::<Ports>();
        ports.begin_replacement();
        let lost_before = self.handle.lost_to_replacement();
        let result = self.handle.replace_graph(&loaded.ir, &loaded.processing);
        let is_replaced = result.is_ok();
        let unchanged = ports.end_replacement(is_replaced);
        if is_replaced {
            self.handle.plan().set_source(text);
            self.close_unused_ports();
        }
        loaded.problems = result.unwrap_or_else(|problems| problems);
        loaded.problems.extend(unchanged.iter().map(|error| warning(error.to_string())));
        loaded.problems.extend(loss(self.handle.lost_to_replacement() - lost_before));
        let faults = self.output.format_faults(&loaded);
        if is_replaced { Ok(faults) } else { Err(faults) }
    }

    /// The same for a text written to `hotconfig`.
    pub(crate) fn hotconfig(&self, text: &str) -> Result<String, String> {
        self.replace("config", text)
    }

    /// The same for a script, which does not wait for the outcome: it is printed on standard error.
    pub(crate) fn replace_later(&self, text: String) {
        let replacer = self.clone();
        let spawned = std::thread::Builder::new().name("replacer".to_string()).spawn(move || {
            let (Ok(faults) | Err(faults)) = replacer.hotconfig(&text);
            replacer.output.complain_of(&faults);
        });
        if let Err(error) = spawned {
            self.output.print_error(&format!("can't replace the configuration: {error}"));
        }
    }

    /// Closes what the new configuration does not use, when it had the time to take what it does. A thread
    /// that is at it starts again: however many replacements there are, there is one.
    fn close_unused_ports(&self) {
        if lock(&self.closing).replace(Closing::begin()).is_some() {
            return;
        }
        let replacer = self.clone();
        let close = move || while replacer.close_when_due() {};
        if std::thread::Builder::new().name("ports".to_string()).spawn(close).is_err() {
            // They stay open until the next replacement.
            *lock(&self.closing) = None;
        }
    }

    /// Sleeps until a round is due, or does it; says whether there is more to do.
    fn close_when_due(&self) -> bool {
        let Some(closing) = *lock(&self.closing) else { return false };
        let wait = closing.due.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            std::thread::sleep(wait);
            return true;
        }
        let resources = self.handle.resources();
        let (ports, monitors) = (resources.get::<Ports>(), resources.get::<Monitors>());
        // The next port of that number is another.
        ports.close_unused(|port| monitors.set_monitor(port, Monitor::default()));
        let mut now = lock(&self.closing);
        // A replacement meanwhile needs all rounds.
        if now.is_some_and(|now| now.due == closing.due) {
            *now = closing.next();
        }
        now.is_some()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A warning of packets that waited where the new configuration has nothing to take them.
fn loss(packets: u64) -> Option<Problem> {
    let what = "packets replaced, for want of an element of the same name and class";
    (packets > 0).then(|| warning(format!("{what}: {packets}")))
}

fn warning(message: String) -> Problem {
    Problem {
        node: None,
        stage: BuildStage::Initializing,
        message,
        help: None,
        is_warning: true,
        texts: Vec::new(),
    }
}
