//! The rules of a packet filter, shared by its copies on several workers, and changed under a lock that no
//! packet takes.
use super::control_tasks::{ControlTask, ControlTasks};
use super::file_size::FileSize;
use super::interfaces;
use super::log_file::{LogFile, LogFiles};
use super::parse_rules::{join_lines, parse_rules};
use artery_engine::HandlerError;
use artery_filter::anchors::Anchors;
use artery_filter::engine::{FilterCounters, FilterSettings, FilterStatus};
use artery_filter::evaluate::{Compiled, Counters, load_rulesets};
use artery_filter::facts::Interface;
use artery_filter::names::Interfaces;
use artery_filter::options::{Limit, Limits, OptionLine, SetOption, Syncookies};
use artery_filter::rule::{Rule, Ruleset, StateKeeping};
use artery_filter::states::{InterfaceLookup, Reservation};
use artery_filter::syntax::{self, Environment, FilterSite, file_in};
use artery_filter::tables::Tables;
use artery_forward::shared::SharedRouter;
use artery_rcu::{Domain, Published};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::ToSocketAddrs as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The log level of the filter's own messages without `set debug`.
const DEFAULT_DEBUG: &str = "err";
/// Longest text of rules that is accepted, in bytes.
const LONGEST: usize = 64 << 20;

/// A filter's rules and what workers count for them.
pub(crate) struct SharedFilter {
    ruling: Published<Arc<ActiveRules>>,
    /// What each worker had counted at its last report.
    counted: Mutex<Vec<FilterCounters>>,
    /// The log file for packets of rules with `log`, once it is open.
    log: OnceLock<LogFile>,
    logs: Arc<LogFiles>,
    /// Most bytes of a log that is opened later.
    longest_log: FileSize,
    control: Arc<Mutex<Control>>,
    /// Queue of tasks for the control thread.
    control_tasks: ControlTasks,
    /// The counters of each worker for its current rules.
    counters: Mutex<Vec<Option<Arc<Counters>>>>,
}

/// The rules that apply from some time on.
pub(crate) struct ActiveRules {
    pub(super) compiled: Compiled,
    pub(super) settings: FilterSettings,
    pub(super) interfaces: Interfaces,
    /// Whether rules change packets in more than their passing.
    pub(super) may_change: bool,
}

impl ActiveRules {
    /// Whether interfaces have the same names and numbers.
    pub(super) fn names_the_same(&self, other: &ActiveRules) -> bool {
        let names = |ruling: &ActiveRules| {
            ruling.interfaces.0.iter().map(|record| record.name.clone()).collect::<Vec<_>>()
        };
        names(self) == names(other)
    }
}

impl InterfaceLookup for ActiveRules {
    fn interface(&self, interface: Interface) -> &str {
        self.interfaces.get(interface).map_or("", |record| &record.name)
    }
}

/// Configuration that changes while the filter runs; guarded by the control lock.
pub(super) struct Control {
    pub(super) anchors: Anchors,
    pub(super) tables: Tables,
    pub(super) interfaces: Interfaces,
    pub(super) names: syntax::NumberedNames,
    settings: FilterSettings,
    debug: String,
    /// Since when the filter is on, or off.
    since: Option<Duration>,
    /// When the counters of interfaces started.
    counting_since: Duration,
    latest: Arc<ActiveRules>,
    etc: Option<PathBuf>,
    site: FilterSite,
    workers: u32,
    /// The configured interfaces, without the host's addresses.
    pub(super) said: Interfaces,
    /// What the host calls those of ports, where they are its own.
    pub(super) devices: Vec<String>,
    /// The router whose default routes determine the group `egress`, if the filter is around a router.
    pub(super) router: Option<Arc<SharedRouter>>,
    /// The anchors that the latest load replaced, including the main rule set.
    loaded: Vec<String>,
    /// Warnings of the latest load.
    warnings: Vec<String>,
    /// Whether it has inherited the rules of a predecessor.
    has_inherited: bool,
}

/// What a filter has besides its rules.
pub(crate) struct FilterParts {
    /// The log file for packets of rules with `log`, if it is already open.
    pub(crate) log: Option<LogFile>,
    /// All log files of the router.
    pub(crate) logs: Arc<LogFiles>,
    /// Most bytes of a log.
    pub(crate) longest_log: FileSize,
    /// The folder that rules mean by /etc.
    pub(crate) etc: Option<PathBuf>,
    /// The kind of element that the filter belongs to, which decides what rules may say.
    pub(crate) site: FilterSite,
    /// The host's names of the interfaces of ports, in their order, if rules use the host's addresses.
    pub(crate) devices: Vec<String>,
    /// The router that the filter is around, if given.
    pub(crate) router: Option<Arc<SharedRouter>>,
}

impl SharedFilter {
    /// A filter for so many workers and these interfaces, which passes everything. Rules mean `etc` by /etc
    /// if it is given.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        said: Interfaces,
        workers: usize,
        around: FilterParts,
    ) -> SharedFilter {
        // Addresses that can't be read now are read by the control thread, which reports errors.
        let mut interfaces =
            interfaces::at_host(&said, &around.devices, true).unwrap_or_else(|_| said.clone());
        if let Some(router) = &around.router {
            interfaces::update_egress_group(&mut interfaces, router);
        }
        let (anchors, mut tables, settings) =
            (Anchors::default(), Tables::new(domain), FilterSettings::default());
        let compiled = Compiled::new(&anchors, &mut tables, &interfaces);
        let latest = Arc::new(ActiveRules::new(compiled, &settings, &interfaces));
        let control = Control {
            anchors,
            tables,
            interfaces,
            names: syntax::NumberedNames::of_machine(),
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
            warnings: Vec::new(),
            has_inherited: false,
        };
        SharedFilter {
            ruling: Published::new(domain, latest),
            counted: Mutex::new(vec![FilterCounters::default(); workers]),
            log: around.log.map_or_else(OnceLock::new, OnceLock::from),
            logs: around.logs,
            longest_log: around.longest_log,
            control: Arc::new(Mutex::new(control)),
            control_tasks: ControlTasks::default(),
            counters: Mutex::new(vec![None; workers]),
        }
    }

    /// What workers go by.
    pub(super) fn active_rules(&self) -> &Published<Arc<ActiveRules>> {
        &self.ruling
    }
    /// The same for a caller without a turn.
    pub(super) fn active_rules_now(&self) -> Arc<ActiveRules> {
        self.lock_control().latest.clone()
    }

    /// Notes when packets began to be filtered.
    pub(super) fn start_counting(&self, now: Duration) {
        let mut control = self.lock_control();
        control.since.get_or_insert(now);
        if control.counting_since.is_zero() {
            control.counting_since = now;
        }
        control.tables.begin_time(now);
    }

    /// Locks the state that changes.
    pub(super) fn lock_control(&self) -> MutexGuard<'_, Control> {
        // Rules are published last: a panic before leaves what workers see as it was.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the counters of a worker, for its current rules.
    pub(super) fn count_by(&self, worker: usize, counters: Arc<Counters>) {
        let mut all = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = all.get_mut(worker) {
            *place = Some(counters);
        }
    }

    /// Stores the counts of a worker up to now.
    pub(super) fn store_counters(&self, worker: usize, counted: FilterCounters) {
        let mut all = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = all.get_mut(worker) {
            *place = counted;
        }
    }

    /// What workers had counted at their last report.
    pub(super) fn worker_counters(&self) -> Vec<FilterCounters> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The file of packets that are logged, if there is one.
    pub(super) fn log_file(&self) -> Option<&LogFile> {
        self.log.get()
    }

    /// Opens a log file; a log that is already open stays.
    pub(super) fn begin_log(&self, path: &str) -> io::Result<()> {
        if self.log.get().is_none() {
            let workers = self.worker_counters().len();
            // Another thread may have opened one first.
            let _ = self.log.set(LogFile::open(path, self.longest_log, workers, &self.logs)?);
        }
        Ok(())
    }

    /// What all workers count.
    pub(super) fn counters(&self) -> Vec<Arc<Counters>> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).iter().flatten().cloned().collect()
    }

    /// Loads texts into the anchors of paths, the empty one being the main rule set, whose text is called
    /// `name`. With errors nothing changes; the error lists all errors of the first text with any. Returns
    /// warnings, a line each.
    pub(crate) fn load_texts(
        &self,
        name: &str,
        texts: &[(&str, &[u8])],
        now: Duration,
    ) -> Result<Vec<String>, String> {
        let length: usize = texts.iter().map(|(_, text)| text.len()).sum();
        if length > LONGEST {
            return Err(format!("{name}: {length} bytes are more than the {LONGEST} that are taken"));
        }
        let mut control = self.lock_control();
        control.mark_egress();
        let name_of = |path: &str| if path.is_empty() { name.into() } else { format!("anchor {path}") };
        let mut warnings = Vec::new();
        let (environment, site) = (control.parse_environment(), control.site);
        let parsed = texts
            .iter()
            .map(|(path, text)| parse_rules(path, &name_of(path), text, &environment, site, &mut warnings));
        let rulesets: Vec<_> = parsed.collect::<Result<_, _>>()?;
        drop(environment);
        let overloads = |rule: &Rule| rule.state.options.overload.is_some();
        if rulesets.iter().flatten().any(|(_, ruleset)| ruleset.has_rule(&overloads)) {
            self.start_control_tasks().map_err(|error| {
                format!("{name}: can't start the thread that rules with overload need: {error}")
            })?;
        }
        let loaded = rulesets.iter().flatten().map(|(path, _)| path.clone()).collect();
        let compiled = control.compile_rulesets(rulesets.concat(), now)?;
        control.loaded = loaded;
        control.warnings = warnings.clone();
        if texts.iter().any(|(path, _)| path.is_empty()) {
            control.apply_options();
        }
        self.publish_rules(&mut control, compiled);
        Ok(warnings)
    }

    /// Compiles the current rules again and publishes them, after rules were flushed or the filter
    /// was enabled or disabled.
    pub(super) fn recompile_rules(&self, control: &mut Control) {
        let compiled = Compiled::new(&control.anchors, &mut control.tables, &control.interfaces);
        self.publish_rules(control, compiled);
    }

    fn publish_rules(&self, control: &mut Control, mut compiled: Compiled) {
        compiled.inherit_counters(&control.latest.compiled);
        let ruling = ActiveRules::new(compiled, &control.settings, &control.interfaces);
        control.latest = Arc::new(ruling);
        self.ruling.publish(control.latest.clone());
    }

    /// Queues a control task; false if it can't be queued.
    pub(super) fn send_task(&self, errand: ControlTask) -> bool {
        self.control_tasks.send_task(errand)
    }

    /// Starts the control thread, unless it runs already.
    pub(super) fn start_control_tasks(&self) -> io::Result<()> {
        self.control_tasks.start_thread(&self.control)
    }

    /// Queues a task that makes rules follow the addresses that the host has at ports. Call it whenever they
    /// may have changed; false if the task can't be queued.
    pub(crate) fn follow_addresses(&self) -> io::Result<bool> {
        self.start_control_tasks()?;
        Ok(self.send_task(ControlTask::Addresses))
    }

    /// Inherits rules from the filter that this one replaces, unless another worker has already done
    /// so: workers replace it one after the other. With `keeps_rules` it inherits all of rules, tables
    /// and options, compiled again for the interfaces here. Otherwise the result is as if the rules of
    /// this filter had been loaded in the old one: tables without addresses in the rules keep their
    /// contents, anchors that the rules don't load stay, and so does whether the filter is enabled. The
    /// error says why that failed.
    pub(super) fn inherit_rules(
        &self,
        old: &SharedFilter,
        keeps_rules: bool,
        now: Duration,
    ) -> Result<(), String> {
        let mut control = self.lock_control();
        if control.has_inherited || std::ptr::eq(self, old) {
            return Ok(());
        }
        let mut before = old.lock_control();
        control.has_inherited = true;
        if let Some(log) = old.log_file()
            && self.log_file().is_none()
        {
            // A log that was started at run time continues. If it can't be opened, the rules
            // still work without it.
            let _ = self.begin_log(&log.path().display().to_string());
        }
        let loaded = if keeps_rules {
            Ok(control.inherit_from(&mut before))
        } else {
            control.load_over(&mut before, now)
        };
        let compiled = loaded?;
        control.latest = before.latest.clone();
        drop(before);
        self.publish_rules(&mut control, compiled);
        Ok(())
    }
}

impl Control {
    /// Takes rules, tables and options of another filter. Its workers keep using what it has
    /// published while they live.
    fn inherit_from(&mut self, before: &mut Control) -> Compiled {
        self.anchors = before.anchors.clone();
        std::mem::swap(&mut self.tables, &mut before.tables);
        self.settings = before.settings.clone();
        (self.debug, self.since) = (before.debug.clone(), before.since);
        Compiled::new(&self.anchors, &mut self.tables, &self.interfaces)
    }

    /// Loads the rules of this filter over those of another filter, whose tables it takes. With errors the
    /// rules and tables stay as they are.
    fn load_over(&mut self, before: &mut Control, now: Duration) -> Result<Compiled, String> {
        (self.settings.is_enabled, self.since) = (before.settings.is_enabled, before.since);
        let ruleset = |path: &String| Some((path.clone(), Ruleset::clone(self.anchors.get(path)?)));
        let rulesets = self.loaded.iter().filter_map(ruleset).collect();
        let mut anchors = before.anchors.clone();
        std::mem::swap(&mut self.tables, &mut before.tables);
        self.limit_tables(&self.settings.limits.clone());
        let compiled = load_rulesets(rulesets, &mut anchors, &mut self.tables, &self.interfaces, now);
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

    /// Enables or disables the filter; returns whether that changed anything.
    pub(super) fn set_enabled(&mut self, is_enabled: bool, now: Duration) -> bool {
        let changes = self.settings.is_enabled != is_enabled;
        if changes {
            self.settings.is_enabled = is_enabled;
            self.since = Some(now);
        }
        changes
    }

    /// The interfaces as configured, and the host's names of those of ports.
    pub(super) fn configured_interfaces(&self) -> (Interfaces, Vec<String>) {
        (self.said.clone(), self.devices.clone())
    }

    /// Updates the addresses that rules take from interfaces.
    pub(super) fn set_interfaces(&mut self, interfaces: Interfaces) {
        self.interfaces = interfaces;
        self.latest.compiled.update_interfaces(&self.interfaces);
    }

    /// Sets the log level of the filter's own messages, as `set debug` does.
    pub(super) fn set_debug(&mut self, level: &str) {
        self.debug = level.into();
    }

    /// Resets all options to their defaults, unless memory for that is lacking. Rules, and whether the
    /// filter is enabled, stay.
    pub(super) fn reset_options(&mut self) -> Result<(), String> {
        self.check_states(&Limits::default())?;
        self.anchors.flush_options();
        self.settings = FilterSettings { is_enabled: self.settings.is_enabled, ..FilterSettings::default() };
        self.debug = DEFAULT_DEBUG.into();
        self.limit_tables(&Limits::default());
        Ok(())
    }

    /// The setting `set loginterface`, and the interfaces that it stands for now.
    fn log_interface(&self) -> Option<(&str, Vec<Interface>)> {
        let name = self.settings.log_interface.as_ref()?;
        let meant = |interfaces: &Interfaces| {
            let each = (0..).map(Interface).zip(&interfaces.0);
            each.filter(|(_, record)| record.is_called(name)).map(|(interface, _)| interface).collect()
        };
        Some((&name.0, meant(&self.interfaces_now())))
    }

    /// What `pfctl -s info` prints beside counts.
    pub(super) fn status(&self, now: Duration) -> FilterStatus<'_> {
        FilterStatus {
            is_enabled: self.settings.is_enabled,
            since: self.since.map(|since| now.saturating_sub(since)),
            debug: &self.debug,
            host_id: self.settings.host_id,
            checksum: self.rules_checksum(),
            log_interface: self.log_interface(),
            // Other values are refused when rules are loaded.
            syncookies: Syncookies::Never,
            state_limit: self.settings.limits.limit(Limit::States),
        }
    }

    pub(super) fn settings(&self) -> &FilterSettings {
        &self.settings
    }

    /// The rules that workers use, now or from their next batch on.
    pub(super) fn latest(&self) -> &ActiveRules {
        &self.latest
    }

    /// A checksum that differs for other rules.
    pub(super) fn rules_checksum(&self) -> [u8; 16] {
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

    /// Warnings of the latest load, one a line.
    pub(super) fn warnings_text(&self) -> String {
        self.warnings.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Records that the counters of interfaces were reset.
    pub(super) fn restart_counters(&mut self, now: Duration) {
        self.counting_since = now;
    }

    /// Since when interfaces have counted.
    pub(super) fn counting_since(&self) -> Duration {
        self.counting_since
    }

    /// The folder that rules mean by /etc, if it is another.
    pub(super) fn etc_folder(&self) -> Option<&Path> {
        self.etc.as_deref()
    }

    fn parse_environment(&self) -> Environment<'_> {
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

    /// Replaces rule sets, all or none of them, and compiles the result.
    fn compile_rulesets(
        &mut self,
        rulesets: Vec<(String, Ruleset)>,
        now: Duration,
    ) -> Result<Compiled, String> {
        if let Some((_, main)) = rulesets.iter().find(|(path, _)| path.is_empty()) {
            let limits = main.effective_limits();
            self.check_states(&limits).map_err(|why| at_limit_of_states(main) + &why)?;
            self.limit_tables(&limits);
        }
        let Control { anchors, tables, interfaces, .. } = self;
        load_rulesets(rulesets, anchors, tables, interfaces, now).map_err(|errors| {
            self.limit_tables(&self.settings.limits.clone());
            join_lines(&errors)
        })
    }

    /// Checks that there is memory for a higher limit of states, by allocating for a moment what all workers
    /// will allocate, each for itself. They would find out too late to refuse rules.
    fn check_states(&self, limits: &Limits) -> Result<(), String> {
        let limit = limits.limit(Limit::States);
        if limit <= self.settings.limits.limit(Limit::States) {
            return Ok(());
        }
        let all: io::Result<Vec<Reservation>> = (0..self.workers).map(|_| Reservation::new(limit)).collect();
        all.map(drop).map_err(|error| {
            let megabytes = Reservation::memory_size(limit).saturating_mul(self.workers.into()) >> 20;
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

    /// Applies the options of the main rule set.
    fn apply_options(&mut self) {
        let Some(main) = self.anchors.get("").cloned() else { return };
        let is_enabled = self.settings.is_enabled;
        self.settings = FilterSettings { is_enabled, ..FilterSettings::from_ruleset(&main) };
        for line in &main.options {
            if let SetOption::Debug(level) = &line.option {
                self.debug = level.clone();
            }
        }
    }
}

impl ActiveRules {
    fn new(compiled: Compiled, settings: &FilterSettings, interfaces: &Interfaces) -> ActiveRules {
        let mut rules = compiled.rules().iter().map(|record| &record.rule);
        let may_change = rules.any(|rule| {
            let translates = rule.nat.is_some() || rule.redirect.is_some();
            let writes = rule.scrub.is_given || rule.set.tos.is_some();
            translates || writes || matches!(rule.state.keep, StateKeeping::Modulate | StateKeeping::Synproxy)
        });
        ActiveRules { compiled, settings: settings.clone(), interfaces: interfaces.clone(), may_change }
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
