//! The rules of a packet filter, as its copies on several workers share them: changed behind a lock that no packet takes.
use super::egress;
use super::errands::{self, Errand, Errands};
use super::file_size::FileSize;
use super::log_file::{LogFile, LogFiles};
use super::parse_rules::{join_lines, parse_rules};
use crate::router::shared::SharedRouter;
use artery_engine::HandlerError;
use artery_filter::anchors::Anchors;
use artery_filter::engine::{Counted, Settings, Status};
use artery_filter::evaluate::{Compiled, Counters, load};
use artery_filter::facts::Interface;
use artery_filter::names::Interfaces;
use artery_filter::options::{Limit, Limits, OptionLine, SetOption, Syncookies};
use artery_filter::rule::{Keep, Rule, Ruleset};
use artery_filter::states::{Names, Reservation};
use artery_filter::syntax::{self, Environment, Site, file_in};
use artery_filter::tables::Tables;
use artery_rcu::{Domain, Published};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::ToSocketAddrs as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// How much is told of the filter's own doings if nothing else is said.
const DEFAULT_DEBUG: &str = "err";
/// Longest text of rules that is taken.
const LONGEST: usize = 64 << 20;

/// A filter's rules and what workers count for them.
pub(crate) struct SharedFilter {
    ruling: Published<Arc<Ruling>>,
    /// What each worker has counted, as of when it was last asked.
    counted: Mutex<Vec<Counted>>,
    /// Where packets of rules with `log` are written, once that is known.
    log: OnceLock<LogFile>,
    logs: Arc<LogFiles>,
    /// Most bytes of a log that is begun later.
    longest_log: FileSize,
    control: Arc<Mutex<Control>>,
    /// What workers have done by a thread.
    errands: Errands,
    /// What each worker counts for the rules that it has.
    counters: Mutex<Vec<Option<Arc<Counters>>>>,
}

/// Rules that hold from some instant on.
pub(crate) struct Ruling {
    pub(super) compiled: Compiled,
    pub(super) settings: Settings,
    pub(super) interfaces: Interfaces,
    /// Whether rules change packets in more than their passing.
    pub(super) may_change: bool,
}

impl Ruling {
    /// Whether interfaces have the same names and numbers.
    pub(super) fn names_the_same(&self, other: &Ruling) -> bool {
        let names = |ruling: &Ruling| {
            ruling.interfaces.0.iter().map(|record| record.name.clone()).collect::<Vec<_>>()
        };
        names(self) == names(other)
    }
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
    /// Since when the filter is on, or off.
    since: Option<Duration>,
    /// Since when it counts what comes and leaves by interfaces.
    counting_since: Duration,
    latest: Arc<Ruling>,
    etc: Option<PathBuf>,
    site: Site,
    workers: u32,
    /// The interfaces as they were said to be.
    pub(super) said: Interfaces,
    /// What the host calls those of ports, where they are its own.
    pub(super) devices: Vec<String>,
    /// Whose default routes say which ports are in the group `egress`, if it is around a router.
    pub(super) router: Option<Arc<SharedRouter>>,
    /// The anchors of which the latest load had rule sets, the main rule set among them.
    loaded: Vec<String>,
    /// What is odd about the rules that were loaded last.
    odd: Vec<String>,
    /// Whether it has taken over what another filter was told.
    has_inherited: bool,
}

/// What a filter has besides its rules.
pub(crate) struct Around {
    /// Where packets of rules with `log` are written, if that is known yet.
    pub(crate) log: Option<LogFile>,
    /// All log files of the router.
    pub(crate) logs: Arc<LogFiles>,
    /// Most bytes of a log.
    pub(crate) longest_log: FileSize,
    /// The folder that rules mean by /etc.
    pub(crate) etc: Option<PathBuf>,
    /// Where it is.
    pub(crate) site: Site,
    /// What the host calls the interfaces of ports, in their order, if rules are to know what it has there.
    pub(crate) devices: Vec<String>,
    /// The router that it is around, if it knows one.
    pub(crate) router: Option<Arc<SharedRouter>>,
}

impl SharedFilter {
    /// A filter on so many workers that knows these interfaces and lets all pass; rules mean `etc` by /etc if it is given.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        said: Interfaces,
        workers: usize,
        around: Around,
    ) -> SharedFilter {
        // What can't be read now is followed later, or told then.
        let mut interfaces = errands::at_host(&said, &around.devices, true).unwrap_or_else(|_| said.clone());
        if let Some(router) = &around.router {
            egress::mark(&mut interfaces, router);
        }
        let (anchors, mut tables, settings) = (Anchors::default(), Tables::new(domain), Settings::default());
        let compiled = Compiled::new(&anchors, &mut tables, &interfaces);
        let latest = Arc::new(Ruling::new(compiled, &settings, &interfaces));
        let control = Control {
            anchors,
            tables,
            interfaces,
            names: syntax::Names::of_machine(),
            settings,
            debug: DEFAULT_DEBUG.into(),
            since: None,
            counting_since: Duration::ZERO,
            latest: latest.clone(),
            etc: around.etc,
            site: around.site,
            workers: workers as u32,
            said,
            devices: around.devices,
            router: around.router,
            loaded: Vec::new(),
            odd: Vec::new(),
            has_inherited: false,
        };
        SharedFilter {
            ruling: Published::new(domain, latest),
            counted: Mutex::new(vec![Counted::default(); workers]),
            log: around.log.map_or_else(OnceLock::new, OnceLock::from),
            logs: around.logs,
            longest_log: around.longest_log,
            control: Arc::new(Mutex::new(control)),
            errands: Errands::default(),
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
        let mut control = self.control();
        control.since.get_or_insert(now);
        if control.counting_since.is_zero() {
            control.counting_since = now;
        }
        control.tables.begin_time(now);
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

    /// The file of packets that are logged, if there is one.
    pub(super) fn log(&self) -> Option<&LogFile> {
        self.log.get()
    }

    /// Begins to log to a file; one that was begun before stays.
    pub(super) fn begin_log(&self, path: &str) -> io::Result<()> {
        if self.log.get().is_none() {
            let workers = self.counted().len();
            // Whoever was faster has begun one.
            let _ = self.log.set(LogFile::open(path, self.longest_log, workers, &self.logs)?);
        }
        Ok(())
    }

    /// What all workers count.
    pub(super) fn counters(&self) -> Vec<Arc<Counters>> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).iter().flatten().cloned().collect()
    }

    /// Loads texts into the anchors of paths, the empty one being the main rule set, whose text is called
    /// `name`. With mistakes nothing changes; the error has all mistakes of the first text with any. Gives
    /// warnings, a line each.
    pub(crate) fn load(
        &self,
        name: &str,
        texts: &[(&str, &[u8])],
        now: Duration,
    ) -> Result<Vec<String>, String> {
        let length: usize = texts.iter().map(|(_, text)| text.len()).sum();
        if length > LONGEST {
            return Err(format!("{name}: {length} bytes are more than the {LONGEST} that are taken"));
        }
        let mut control = self.control();
        control.mark_egress();
        let name_of = |path: &str| if path.is_empty() { name.into() } else { format!("anchor {path}") };
        let mut warnings = Vec::new();
        let (environment, site) = (control.environment(), control.site);
        let parsed = texts
            .iter()
            .map(|(path, text)| parse_rules(path, &name_of(path), text, &environment, site, &mut warnings));
        let rulesets: Vec<_> = parsed.collect::<Result<_, _>>()?;
        drop(environment);
        let overloads = |rule: &Rule| rule.state.options.overload.is_some();
        if rulesets.iter().flatten().any(|(_, ruleset)| ruleset.has_rule(&overloads)) {
            self.begin_errands().map_err(|error| {
                format!("{name}: can't start the thread that rules with overload need: {error}")
            })?;
        }
        let loaded = rulesets.iter().flatten().map(|(path, _)| path.clone()).collect();
        let compiled = control.compile(rulesets.concat(), now)?;
        control.loaded = loaded;
        control.odd = warnings.clone();
        if texts.iter().any(|(path, _)| path.is_empty()) {
            control.take_options();
        }
        self.publish(&mut control, compiled);
        Ok(warnings)
    }

    /// Compiles what is there anew and publishes it: after rules were forgotten, or the filter was turned on or off.
    pub(super) fn renew(&self, control: &mut Control) {
        let compiled = Compiled::new(&control.anchors, &mut control.tables, &control.interfaces);
        self.publish(control, compiled);
    }

    fn publish(&self, control: &mut Control, mut compiled: Compiled) {
        compiled.succeed(&control.latest.compiled);
        let ruling = Ruling::new(compiled, &control.settings, &control.interfaces);
        control.latest = Arc::new(ruling);
        self.ruling.publish(control.latest.clone());
    }

    /// Has something done by a thread; says whether it will be.
    pub(super) fn send(&self, errand: Errand) -> bool {
        self.errands.send(errand)
    }

    /// Has errands done from now on.
    pub(super) fn begin_errands(&self) -> io::Result<()> {
        self.errands.begin(&self.control)
    }

    /// Has rules follow the addresses that the host has at ports. Call it whenever they may be others; says whether it will be
    /// done.
    pub(crate) fn follow_addresses(&self) -> io::Result<bool> {
        self.begin_errands()?;
        Ok(self.send(Errand::Addresses))
    }

    /// Takes over what was told a filter that this one takes the place of, unless that was done: workers do it one after the
    /// other. With `keeps_rules` that is all: rules, tables and options, compiled anew for the interfaces here. Otherwise it is
    /// as if the rules of this filter had been loaded there: tables of which they give no addresses keep what they hold,
    /// anchors that they don't load stay, and so does whether the filter is on. Gives why that can't be.
    pub(super) fn inherit(&self, old: &SharedFilter, keeps_rules: bool, now: Duration) -> Result<(), String> {
        let mut control = self.control();
        if control.has_inherited || std::ptr::eq(self, old) {
            return Ok(());
        }
        let mut before = old.control();
        control.has_inherited = true;
        if let Some(log) = old.log()
            && self.log().is_none()
        {
            // What was begun while the filter ran goes on; where it can't, the file of rules says nothing of a log.
            let _ = self.begin_log(&log.path().display().to_string());
        }
        let loaded =
            if keeps_rules { Ok(control.take_all(&mut before)) } else { control.load_over(&mut before, now) };
        let compiled = loaded?;
        control.latest = before.latest.clone();
        drop(before);
        self.publish(&mut control, compiled);
        Ok(())
    }
}

impl Control {
    /// Takes rules, tables and options of another filter. Workers of that go by what it has published for as long as they live.
    fn take_all(&mut self, before: &mut Control) -> Compiled {
        self.anchors = before.anchors.clone();
        std::mem::swap(&mut self.tables, &mut before.tables);
        self.settings = before.settings.clone();
        (self.debug, self.since) = (before.debug.clone(), before.since);
        Compiled::new(&self.anchors, &mut self.tables, &self.interfaces)
    }

    /// Loads the rules that were loaded here over those of another filter, whose tables it takes. With mistakes all stays.
    fn load_over(&mut self, before: &mut Control, now: Duration) -> Result<Compiled, String> {
        (self.settings.is_enabled, self.since) = (before.settings.is_enabled, before.since);
        let ruleset = |path: &String| Some((path.clone(), Ruleset::clone(self.anchors.get(path)?)));
        let rulesets = self.loaded.iter().filter_map(ruleset).collect();
        let mut anchors = before.anchors.clone();
        std::mem::swap(&mut self.tables, &mut before.tables);
        self.limit_tables(&self.settings.limits.clone());
        let compiled = load(rulesets, &mut anchors, &mut self.tables, &self.interfaces, now);
        match compiled {
            Ok(compiled) => {
                self.anchors = anchors;
                Ok(compiled)
            }
            Err(errors) => {
                std::mem::swap(&mut self.tables, &mut before.tables);
                Err(join_lines(&errors))
            }
        }
    }

    /// Turns the filter on or off; says whether it was otherwise.
    pub(super) fn enable(&mut self, is_enabled: bool, now: Duration) -> bool {
        let changes = self.settings.is_enabled != is_enabled;
        if changes {
            self.settings.is_enabled = is_enabled;
            self.since = Some(now);
        }
        changes
    }

    /// The interfaces as they were said to be, and what the host calls those of ports.
    pub(super) fn said(&self) -> (Interfaces, Vec<String>) {
        (self.said.clone(), self.devices.clone())
    }

    /// Makes rules that speak of interfaces' addresses follow these.
    pub(super) fn follow(&mut self, interfaces: Interfaces) {
        self.interfaces = interfaces;
        self.latest.compiled.follow(&self.interfaces);
    }

    /// Sets how much is told of the filter's own doings, as `set debug` does.
    pub(super) fn set_debug(&mut self, level: &str) {
        self.debug = level.into();
    }

    /// Makes all options what they are if none is set, unless there is no memory for that; rules, and whether the filter is
    /// on, stay.
    pub(super) fn reset_options(&mut self) -> Result<(), String> {
        self.check_states(&Limits::default())?;
        self.anchors.flush_options();
        self.settings = Settings { is_enabled: self.settings.is_enabled, ..Settings::default() };
        self.debug = DEFAULT_DEBUG.into();
        self.limit_tables(&Limits::default());
        Ok(())
    }

    /// What `set loginterface` says, and the interfaces that it means now.
    fn log_interface(&self) -> Option<(&str, Vec<Interface>)> {
        let name = self.settings.log_interface.as_ref()?;
        let meant = |interfaces: &Interfaces| {
            let each = (0..).map(Interface).zip(&interfaces.0);
            each.filter(|(_, record)| record.is_called(name)).map(|(interface, _)| interface).collect()
        };
        Some((&name.0, meant(&self.interfaces_now())))
    }

    /// What `pfctl -s info` prints beside counts.
    pub(super) fn status(&self, now: Duration) -> Status<'_> {
        Status {
            is_enabled: self.settings.is_enabled,
            since: self.since.map(|since| now.saturating_sub(since)),
            debug: &self.debug,
            host_id: self.settings.host_id,
            checksum: self.checksum(),
            log_interface: self.log_interface(),
            // Others are refused when rules are loaded.
            syncookies: Syncookies::Never,
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
    pub(super) fn checksum(&self) -> [u8; 16] {
        let halves = [0_u8, 1].map(|half| {
            let mut hasher = DefaultHasher::new();
            half.hash(&mut hasher);
            let style = syntax::print::Style::for_reading(&self.names);
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

    /// What is odd about the rules that were loaded last, a line for each thing.
    pub(super) fn odd(&self) -> String {
        self.odd.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Notes that interfaces count from nothing.
    pub(super) fn count_anew(&mut self, now: Duration) {
        self.counting_since = now;
    }

    /// Since when interfaces have counted.
    pub(super) fn counting_since(&self) -> Duration {
        self.counting_since
    }

    /// The folder that rules mean by /etc, if it is another.
    pub(super) fn etc(&self) -> Option<&Path> {
        self.etc.as_deref()
    }

    fn environment(&self) -> Environment<'_> {
        let read_file = |name: &str| {
            let file = self.etc.as_deref().map_or_else(|| name.into(), |etc| file_in(etc, name));
            artery_device::files::read(file).map_err(|error| error.to_string())
        };
        Environment {
            interfaces: self.interfaces.clone(),
            names: self.names.clone(),
            read_file: Box::new(read_file),
            find_host: Box::new(|host| {
                (host, 0).to_socket_addrs().map(|all| all.map(|one| one.ip()).collect()).unwrap_or_default()
            }),
        }
    }

    /// Puts rule sets in place, all or none of them, and compiles what is there then.
    fn compile(&mut self, rulesets: Vec<(String, Ruleset)>, now: Duration) -> Result<Compiled, String> {
        if let Some((_, main)) = rulesets.iter().find(|(path, _)| path.is_empty()) {
            let limits = main.limits();
            self.check_states(&limits).map_err(|why| at_limit_of_states(main) + &why)?;
            self.limit_tables(&limits);
        }
        let Control { anchors, tables, interfaces, .. } = self;
        load(rulesets, anchors, tables, interfaces, now).map_err(|errors| {
            self.limit_tables(&self.settings.limits.clone());
            join_lines(&errors)
        })
    }

    /// Whether there is memory for a higher limit of states: what all workers will take of it, each for itself, is taken for a
    /// moment. They find out too late to refuse rules.
    fn check_states(&self, limits: &Limits) -> Result<(), String> {
        let limit = limits.limit(Limit::States);
        if limit <= self.settings.limits.limit(Limit::States) {
            return Ok(());
        }
        let all: io::Result<Vec<Reservation>> = (0..self.workers).map(|_| Reservation::new(limit)).collect();
        all.map(drop).map_err(|error| {
            let megabytes = Reservation::bytes(limit).saturating_mul(self.workers.into()) >> 20;
            let takers = if self.workers == 1 {
                "1 worker takes".into()
            } else {
                format!("{} workers take", self.workers)
            };
            let remedy = "`set limit states` to fewer, or give the router more memory";
            format!("no memory for {limit} states: {takers} {megabytes} MiB, {error}; {remedy}")
        })
    }

    fn limit_tables(&mut self, limits: &Limits) {
        self.tables.most_tables = limits.limit(Limit::Tables) as usize;
        self.tables.most_entries = limits.limit(Limit::TableEntries) as usize;
    }

    /// Does what the options of the main rule set say.
    fn take_options(&mut self) {
        let Some(main) = self.anchors.get("").cloned() else { return };
        let is_enabled = self.settings.is_enabled;
        self.settings = Settings { is_enabled, ..Settings::of(&main) };
        for line in &main.options {
            if let SetOption::Debug(level) = &line.option {
                self.debug = level.clone();
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

/// The line that limits states, as the beginning of an error.
fn at_limit_of_states(main: &Ruleset) -> String {
    let is_it = |line: &&OptionLine| matches!(line.option, SetOption::Limit(Limit::States, _));
    let line = main.options.iter().rfind(is_it);
    line.map_or_else(String::new, |line| format!("{}:{}: ", line.place.file, line.place.line))
}

pub(super) fn refused(why: impl Into<String>) -> HandlerError {
    HandlerError::refused(why)
}
