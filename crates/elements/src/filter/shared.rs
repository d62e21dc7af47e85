//! The rules of a packet filter, as its copies on several workers share them: changed behind a lock that no packet takes.
use artery_engine::HandlerError;
use artery_filter::anchors::Anchors;
use artery_filter::engine::{Counted, Settings, Status};
use artery_filter::evaluate::{Compiled, Counters, load};
use artery_filter::facts::Interface;
use artery_filter::log::{LogRecord, file_header};
use artery_filter::names::Interfaces;
use artery_filter::options::{Limit, SetOption, Syncookies};
use artery_filter::rule::{Keep, Place, Ruleset};
use artery_filter::states::Names;
use artery_filter::syntax::{self, Environment, parse, unsupported};
use artery_filter::tables::{TableEntry, Tables};
use artery_rcu::{Domain, Published};
use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::{self, Write as _};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest text of rules that is taken.
const LONGEST: usize = 64 << 20;

/// A filter's rules and what workers count for them.
pub(crate) struct SharedFilter {
    ruling: Published<Arc<Ruling>>,
    /// What each worker has counted, as of when it was last asked.
    counted: Mutex<Vec<Counted>>,
    /// Where packets of rules with `log` are written.
    log: Mutex<Option<File>>,
    control: Mutex<Control>,
    /// What each worker counts for the rules that it has.
    counters: Mutex<Vec<Option<Arc<Counters>>>>,
}

/// Rules that hold from some instant on.
pub(crate) struct Ruling {
    pub(super) compiled: Compiled,
    pub(super) settings: Settings,
    pub(super) interfaces: Interfaces,
    /// Whether packets may be changed in more than their passing.
    pub(super) may_change: bool,
}

impl Names for Ruling {
    fn interface(&self, interface: Interface) -> &str {
        self.interfaces.get(interface).map_or("", |record| &record.name)
    }
}

/// What is changed.
pub(super) struct Control {
    pub(super) anchors: Anchors,
    pub(super) tables: Tables,
    pub(super) interfaces: Interfaces,
    pub(super) names: syntax::Names,
    settings: Settings,
    debug: String,
    syncookies: Syncookies,
    /// Since when the filter is on, or off.
    since: Option<Duration>,
    latest: Arc<Ruling>,
}

impl SharedFilter {
    /// A filter on so many workers that knows these interfaces and lets all pass.
    pub(crate) fn new(domain: &Arc<Domain>, interfaces: Interfaces, workers: usize) -> SharedFilter {
        let (anchors, mut tables, settings) = (Anchors::default(), Tables::new(domain), Settings::default());
        let compiled = Compiled::new(&anchors, &mut tables, &interfaces);
        let latest = Arc::new(Ruling::new(compiled, &settings, &interfaces));
        let control = Control {
            anchors,
            tables,
            interfaces,
            names: syntax::Names::builtin(),
            settings,
            debug: "err".into(),
            syncookies: Syncookies::Never,
            since: None,
            latest: latest.clone(),
        };
        SharedFilter {
            ruling: Published::new(domain, latest),
            counted: Mutex::new(vec![Counted::default(); workers]),
            log: Mutex::default(),
            control: Mutex::new(control),
            counters: Mutex::new(vec![None; workers]),
        }
    }

    /// What workers go by.
    pub(super) fn ruling(&self) -> &Published<Arc<Ruling>> {
        &self.ruling
    }
    /// The same for who has no turn.
    pub(super) fn ruling_now(&self) -> Arc<Ruling> {
        self.control().latest.clone()
    }

    /// Notes when packets began to be filtered.
    pub(super) fn begin(&self, now: Duration) {
        self.control().since.get_or_insert(now);
    }

    /// For who changes something.
    pub(super) fn control(&self) -> MutexGuard<'_, Control> {
        // Rules are published last: a panic before leaves what workers see as it was.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what a worker counts from now on.
    pub(super) fn count_by(&self, worker: usize, counters: Arc<Counters>) {
        let mut all = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = all.get_mut(worker) {
            *place = Some(counters);
        }
    }

    /// Takes what a worker has counted up to now.
    pub(super) fn note_counted(&self, worker: usize, counted: Counted) {
        let mut all = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = all.get_mut(worker) {
            *place = counted;
        }
    }

    /// What workers had counted when they were last asked.
    pub(super) fn counted(&self) -> Vec<Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has packets that are logged written to a file, anew.
    pub(super) fn log_to(&self, path: &str) -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(&file_header())?;
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(())
    }

    /// Writes packets to the log, if there is one. What can't be written is lost: packets don't wait for a disk.
    pub(super) fn log(&self, records: &[LogRecord], now: Duration) {
        if records.is_empty() {
            return;
        }
        if let Some(file) = &mut *self.log.lock().unwrap_or_else(PoisonError::into_inner) {
            let mut bytes = Vec::new();
            records.iter().for_each(|record| record.write(now, &mut bytes));
            let _ = file.write_all(&bytes);
        }
    }

    /// What all workers count.
    pub(super) fn counters(&self) -> Vec<Arc<Counters>> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).iter().flatten().cloned().collect()
    }

    /// Loads a text into the anchor of a path, the empty one being the main rule set. With mistakes, of which all are told,
    /// nothing changes.
    pub(crate) fn load(&self, path: &str, name: &str, text: &[u8], now: Duration) -> Result<(), String> {
        if text.len() > LONGEST {
            return Err(format!("{name}: {} bytes are more than the {LONGEST} that are taken", text.len()));
        }
        let mut control = self.control();
        let ruleset = control.parse(name, text)?;
        let options = ruleset.options.clone();
        let wishes = ruleset.clone();
        let Control { anchors, tables, interfaces, .. } = &mut *control;
        let compiled =
            load((path, ruleset), anchors, tables, interfaces, now).map_err(|errors| lines(&errors))?;
        if path.is_empty() {
            control.take_options(&wishes, options.iter().map(|line| &line.option));
        }
        self.publish(&mut control, compiled);
        Ok(())
    }

    /// Compiles what is there anew and publishes it: after rules were forgotten, or the filter was turned on or off.
    pub(super) fn renew(&self, control: &mut Control) {
        let compiled = Compiled::new(&control.anchors, &mut control.tables, &control.interfaces);
        self.publish(control, compiled);
    }

    fn publish(&self, control: &mut Control, compiled: Compiled) {
        let ruling = Ruling::new(compiled, &control.settings, &control.interfaces);
        control.latest = Arc::new(ruling);
        self.ruling.publish(control.latest.clone());
    }

    /// Puts the address of a source that went too far into a table. It may be full, which its counters say.
    pub(super) fn overload(&self, address: IpAddr, table: &str, now: Duration) {
        let length = if address.is_ipv4() { 32 } else { 128 };
        let entry = TableEntry::new(address, length, false);
        let _ = self.control().tables.add("", table, &[entry], now);
    }
}

impl Control {
    /// Turns the filter on or off; says whether it was otherwise.
    pub(super) fn enable(&mut self, is_enabled: bool, now: Duration) -> bool {
        let changes = self.settings.is_enabled != is_enabled;
        if changes {
            self.settings.is_enabled = is_enabled;
            self.since = Some(now);
        }
        changes
    }

    /// What `pfctl -s info` prints beside counts.
    pub(super) fn status(&self, now: Duration) -> Status<'_> {
        let name = self.settings.log_interface.and_then(|interface| self.interfaces.get(interface));
        Status {
            is_enabled: self.settings.is_enabled,
            since: self.since.map(|since| now.saturating_sub(since)),
            debug: &self.debug,
            host_id: self.settings.host_id,
            checksum: self.checksum(),
            log_interface: name.map(|record| record.name.as_str()),
            syncookies: self.syncookies,
            state_limit: self.settings.limits.limit(Limit::States),
        }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What workers go by, or will with their next batch.
    pub(super) fn latest(&self) -> &Ruling {
        &self.latest
    }

    /// A number that other rules have otherwise.
    fn checksum(&self) -> [u8; 16] {
        let halves = [0_u8, 1].map(|half| {
            let mut hasher = DefaultHasher::new();
            half.hash(&mut hasher);
            let style = syntax::print::Style::new(&self.names);
            for (path, ruleset) in self.anchors.iter() {
                (path, syntax::print::rules(ruleset, &style)).hash(&mut hasher);
            }
            hasher.finish().to_be_bytes()
        });
        let mut checksum = [0; 16];
        checksum[..8].copy_from_slice(&halves[0]);
        checksum[8..].copy_from_slice(&halves[1]);
        checksum
    }

    fn parse(&self, name: &str, text: &[u8]) -> Result<Ruleset, String> {
        let environment = Environment {
            interfaces: self.interfaces.clone(),
            names: self.names.clone(),
            read_file: Box::new(|file| std::fs::read(file).map_err(|error| error.to_string())),
            find_host: Box::new(|host| {
                (host, 0).to_socket_addrs().map(|all| all.map(|one| one.ip()).collect()).unwrap_or_default()
            }),
        };
        let parsed =
            parse(name, text, &environment, &syntax::Settings::default()).map_err(|faults| lines(&faults))?;
        let unsupported: Vec<String> =
            unsupported(&parsed.ruleset).iter().map(|(place, what)| not_supported(place, what)).collect();
        if unsupported.is_empty() { Ok(parsed.ruleset) } else { Err(unsupported.join("\n")) }
    }

    fn take_options<'a>(&mut self, ruleset: &Ruleset, options: impl Iterator<Item = &'a SetOption>) {
        let interfaces = &self.interfaces;
        let is_enabled = self.settings.is_enabled;
        self.settings = Settings { is_enabled, ..Settings::of(ruleset, |name| interfaces.number(name)) };
        for option in options {
            match option {
                SetOption::Debug(level) => self.debug = level.clone(),
                SetOption::Syncookies(when) => self.syncookies = *when,
                _ => (),
            }
        }
    }
}

impl Ruling {
    fn new(compiled: Compiled, settings: &Settings, interfaces: &Interfaces) -> Ruling {
        let mut rules = compiled.rules().iter().map(|record| &record.rule);
        let may_change = rules.any(|rule| {
            let translates = rule.nat.is_some() || rule.redirect.is_some();
            let writes = rule.scrub.is_given || rule.set.tos.is_some();
            translates || writes || matches!(rule.state.keep, Keep::Modulate | Keep::Synproxy)
        });
        Ruling { compiled, settings: settings.clone(), interfaces: interfaces.clone(), may_change }
    }
}

fn not_supported(place: &Place, what: &str) -> String {
    format!("{}:{}: not supported: {what}", place.file, place.line)
}

fn lines<E: ToString>(errors: &[E]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

pub(super) fn refused(why: impl Into<String>) -> HandlerError {
    HandlerError::refused(why)
}
