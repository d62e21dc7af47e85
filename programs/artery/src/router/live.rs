//! The configuration of a running router, and its replacement by another one.
use super::configuration::{self, BESIDE_A_FILE, Candidate, Configuration, Origin};
use super::machine::HeldPort;
use super::options::RouterOptions;
use super::service::{Names, name_elements, names, plans};
use super::{Fpm, Plan, called, check_plan as tables, host, machine, pf, read, text, vlans};
use crate::config_input::ConfigInput;
use crate::control_socket::OwnHandlers;
use crate::options::{matches_of, usage_error};
use crate::reload::{ConfigurationSource, Reread};
use crate::replace::Replacer;
use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What the command line says, or the file that it names.
pub(super) fn candidate_of_call(options: RouterOptions) -> Result<Candidate, Vec<String>> {
    let said = Configuration::of_matches(&matches_of("router"));
    let Some(file) = &options.file else {
        return Ok(Candidate { configuration: said, options, origin: Origin::default() });
    };
    if let Some(other) = said.keys().find(|key| !BESIDE_A_FILE.contains(key)) {
        usage_error(&format!("--{other} can't stand beside {0}; write it into {0}", file.display()));
    }
    let mut candidate = read_file(&file.display().to_string())?;
    if let Some(twice) = said.keys().find(|key| candidate.configuration.keys().any(|other| other == *key)) {
        usage_error(&format!("--{twice} stands in {}, too; leave out one", file.display()));
    }
    let beside = options;
    let options = &mut candidate.options;
    options.file = beside.file;
    (options.print, options.report.verbose) = (beside.print, beside.report.verbose);
    options.report.sandbox.sandbox |= beside.report.sandbox.sandbox;
    options.report.sandbox.no_sandbox = beside.report.sandbox.no_sandbox;
    if !beside.report.sandbox.allow_path.is_empty() {
        options.report.sandbox.allow_path = beside.report.sandbox.allow_path;
    }
    if !beside.running.socket.is_empty() {
        options.running.socket = beside.running.socket;
    }
    if said.keys().any(|key| key == "log") {
        options.report.log = beside.report.log;
    }
    Ok(candidate)
}

fn read_file(name: &str) -> Result<Candidate, Vec<String>> {
    let text = ConfigInput::File(name.into()).read().map_err(|error| vec![error])?;
    configuration::parse(name, &text)
}

/// The plan of a candidate, as far as it makes sense; what does not is added to `mistakes`.
pub(super) fn judge(candidate: &Candidate, mistakes: &mut Vec<String>) -> Plan {
    let mut plan = read::plan(&candidate.options, mistakes);
    vlans::find(&mut plan);
    tables::judge(&plan, mistakes);
    plan
}

/// A candidate that nothing is wrong with.
pub(super) struct Prepared {
    candidate: Candidate,
    hosts: Vec<String>,
    services: Names,
    /// What elements of services get to know while this is planned.
    plans: Vec<(String, String)>,
    devices: HashSet<String>,
    rules: Option<String>,
    /// The configuration for the engine.
    pub(super) text: String,
    pub(super) warnings: Vec<String>,
    /// Ports that the router did not have before.
    taken: Vec<HeldPort>,
}

/// What the router would be made of, without what the machine has.
pub(super) fn print_only(
    candidate: Candidate,
    mut plan: Plan,
    mut mistakes: Vec<String>,
) -> Result<Prepared, Vec<String>> {
    pf::judge_rules(&candidate.options, &mut plan, &mut mistakes);
    prepare(candidate, plan, Vec::new(), mistakes)
}

/// Takes the ports of a router that starts.
pub(super) fn prepare_start(
    candidate: Candidate,
    mut plan: Plan,
    mut mistakes: Vec<String>,
) -> Result<Prepared, Vec<String>> {
    pf::judge_rules(&candidate.options, &mut plan, &mut mistakes);
    let taken = machine::claim_interfaces(&mut plan, &HashSet::new(), &mut mistakes);
    machine::check_host(&plan, &HashSet::new(), &mut mistakes);
    prepare(candidate, plan, taken, mistakes)
}

fn prepare(
    candidate: Candidate,
    plan: Plan,
    taken: Vec<HeldPort>,
    mistakes: Vec<String>,
) -> Result<Prepared, Vec<String>> {
    if !mistakes.is_empty() {
        return Err(candidate.origin.locate_all(mistakes));
    }
    let warnings =
        host::warnings(&plan).into_iter().chain(plan.fpm.as_ref().and_then(Fpm::warning)).collect();
    let text = text::configuration(&plan, &called()).map_err(|error| vec![error.to_string()])?;
    let devices = plan.ports.iter().map(|port| port.device().to_string()).collect();
    let (services, plans) = (names(&plan.services), plans(&plan));
    let hosts = plan.host_interfaces().map(str::to_string).collect();
    let rules = plan.rules;
    Ok(Prepared { candidate, hosts, services, plans, devices, rules, text, warnings, taken })
}

/// The configuration of a running router.
struct State {
    candidate: Candidate,
    /// Names of the host's interfaces, now and before: those of before are there for a while
    /// after they were changed.
    hosts: HashSet<String>,
    services: Names,
    ports: Vec<HeldPort>,
    /// The text of the filter's rules when they were last read.
    rules: Option<String>,
    /// Whether a reload is under way.
    reloads: bool,
    /// A change that is undone unless it is confirmed.
    pending: Option<Pending>,
    /// How often something was applied that is to be confirmed.
    applied: u64,
}

/// A change that is to be confirmed.
struct Pending {
    before: Before,
    number: u64,
    until: Instant,
}

/// What a change is undone to.
struct Before {
    candidate: Candidate,
    rules: Option<RulesBefore>,
    /// Routes and neighbors that were set by hand, and that the change removed.
    by_hand: [BTreeSet<String>; 2],
}

impl Before {
    /// The state now, with all routes and neighbors that were set by hand.
    fn find(state: &State, replacer: &Replacer) -> Before {
        let rules = state.rules.clone();
        let rules = rules.map(|text| RulesBefore { text, checksum: checksum(replacer) });
        Before { candidate: state.candidate.clone(), rules, by_hand: set_by_hand(replacer) }
    }
}

/// A router's configuration while it runs.
pub(super) struct Live(Shared);

type Shared = Arc<Mutex<State>>;

fn lock(state: &Shared) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    pub(super) fn new(prepared: Prepared) -> Live {
        let Prepared { candidate, hosts, services, rules, taken, .. } = prepared;
        Live(Arc::new(Mutex::new(State {
            candidate,
            hosts: hosts.into_iter().collect(),
            services,
            ports: taken,
            rules,
            reloads: false,
            pending: None,
            applied: 0,
        })))
    }
}

impl State {
    /// Checks a new configuration and claims its new ports.
    fn prepare(&self, candidate: Candidate) -> Result<Prepared, Vec<String>> {
        let running = &self.candidate.configuration;
        let later =
            running.changes(&candidate.configuration).into_iter().filter(|change| change.is_at_start());
        let later = later.map(|change| format!("{}: not before the router is started again", change.line()));
        let later: Vec<String> = later.collect();
        let candidate = candidate.for_running(running)?;
        let mut mistakes = Vec::new();
        let mut plan = judge(&candidate, &mut mistakes);
        name_elements(&mut plan.services, &self.services);
        pf::judge_rules(&candidate.options, &mut plan, &mut mistakes);
        let held = self.ports.iter().map(|port| port.device.clone()).collect();
        let taken = machine::claim_interfaces(&mut plan, &held, &mut mistakes);
        machine::check_host(&plan, &self.hosts, &mut mistakes);
        let mut prepared = prepare(candidate, plan, taken, mistakes)?;
        // Addresses that the host has on its interface are those that the router gave it.
        prepared.warnings = later;
        Ok(prepared)
    }

    /// Makes the prepared configuration the router's current one.
    fn accept(&mut self, prepared: Prepared) {
        let Prepared { candidate, hosts, services, devices, rules, taken, .. } = prepared;
        (self.candidate, self.services, self.rules) = (candidate, services, rules);
        self.hosts.extend(hosts);
        self.ports.retain(|port| devices.contains(&port.device));
        self.ports.extend(taken);
    }

    /// Replaces the configuration. Gives warnings, a line each.
    fn change(&mut self, candidate: Candidate, replacer: &Replacer) -> Result<String, String> {
        let name = candidate.origin.file.clone().unwrap_or_default();
        let prepared = self.prepare(candidate).map_err(|mistakes| lines(&mistakes))?;
        let said = replacer.replace(&name, &prepared.text)?;
        self.accept(prepared);
        Ok(said)
    }

    /// Returns to what there was before a change. Gives warnings, a line each.
    fn restore(&mut self, before: Before, replacer: &Replacer) -> Result<String, String> {
        let mut said = self.change(before.candidate, replacer)?;
        if let Some(rules) = before.rules.filter(|rules| self.rules.as_ref() != Some(&rules.text)) {
            match rules.restore(replacer) {
                Ok(()) => self.rules = Some(rules.text),
                Err(why) => said.push_str(&format!("the rules from before are not in force: {why}\n")),
            }
        }
        for (kind, removed) in BY_HAND.iter().zip(&before.by_hand) {
            for text in removed {
                if let Err(error) = replacer.handle().write_handler(kind.add, text) {
                    let name = kind.name;
                    said.push_str(&format!("the {name} {text}, which was added by hand, is gone: {error}\n"));
                }
            }
        }
        Ok(said)
    }

    /// Why nothing can be changed now.
    fn busy(&self) -> Result<(), String> {
        match &self.pending {
            Some(pending) => Err(format!(
                "what was applied is not confirmed and is undone in {} s; run 'artery confirm' or wait",
                pending.left().as_secs()
            )),
            None if self.reloads => Err("the router is reloading; try again".to_string()),
            None => Ok(()),
        }
    }
}

/// The rules of the filter before a change.
struct RulesBefore {
    text: String,
    /// Of the rules in use, which may be others than those of the text, by `pfctl -f`.
    checksum: Option<String>,
}

impl RulesBefore {
    /// Has the filter use them again, whatever their file says now.
    fn restore(&self, replacer: &Replacer) -> Result<(), String> {
        let handle = replacer.handle();
        handle.write_handler(pf::LOAD, &format!("\n{}", self.text)).map_err(|error| error.to_string())?;
        let is_same = self.checksum == checksum(replacer);
        is_same.then_some(()).ok_or_else(|| "pfctl had loaded others than those of the file".to_string())
    }
}

fn checksum(replacer: &Replacer) -> Option<String> {
    replacer.handle().read_handler(pf::ASK, "checksum").ok()
}

/// What handlers of the router set by hand, and how.
struct ByHand {
    name: &'static str,
    /// What was set, a line each, as `add` takes it.
    list: &'static str,
    add: &'static str,
}

const BY_HAND: [ByHand; 2] = [
    ByHand { name: "route", list: "ip.routes_by_hand", add: "ip.add_route" },
    ByHand { name: "neighbor", list: "ip.neighbors_by_hand", add: "ip.add_neighbor" },
];

/// What was set by hand, in the order of [`BY_HAND`].
fn set_by_hand(replacer: &Replacer) -> [BTreeSet<String>; 2] {
    BY_HAND.map(|kind| {
        // A router that does not answer now has none to keep.
        let all = replacer.handle().read_handler(kind.list, "").unwrap_or_default();
        all.lines().map(str::to_string).collect()
    })
}

impl Pending {
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

fn lines(sentences: &[String]) -> String {
    sentences.iter().map(|sentence| format!("{sentence}\n")).collect()
}

/// Ends a reload, however it comes out.
struct Reloading(Shared);

impl Drop for Reloading {
    fn drop(&mut self) {
        lock(&self.0).reloads = false;
    }
}

impl ConfigurationSource for Live {
    /// Reads the file again, or the files that options name. Mistakes in files of routes are found by the
    /// element that reads them; rules are checked as at the start.
    fn reread(&self) -> Result<Reread, Vec<String>> {
        let mut state = lock(&self.0);
        state.busy().map_err(|why| vec![why])?;
        let candidate = match &state.candidate.origin.file {
            None => state.candidate.clone(),
            Some(file) => read_file(file)?,
        };
        let prepared = state.prepare(candidate)?;
        state.reloads = true;
        let (text, reloading) = (prepared.text.clone(), Reloading(self.0.clone()));
        let mut reread = Reread::new(ConfigInput::Text(String::new()).name(), text);
        reread.warnings.clone_from(&prepared.warnings);
        reread.accepted = Box::new(move || lock(&reloading.0).accept(prepared));
        Ok(reread)
    }

    fn handlers(&self, replacer: &Replacer) -> Option<Arc<dyn OwnHandlers>> {
        Some(Arc::new(ConfigurationHandlers { state: self.0.clone(), replacer: replacer.clone() }))
    }
}

/// The handlers of a router's configuration.
struct ConfigurationHandlers {
    state: Shared,
    replacer: Replacer,
}

/// Reads as the file that makes the router.
pub(crate) const CONFIGURATION: &str = "router_config";
/// Written with a line `SECONDS FILE` and what FILE says; undone after the seconds, unless they are 0.
pub(crate) const APPLY: &str = "router_apply";
/// Written with the same: checks it, and changes nothing.
const CHECK: &str = "router_check";
/// Written with the same: has services find the flows that it would give another member, as long as SECONDS
/// last; 0 SECONDS end that, whatever follows.
const PLAN: &str = "router_plan";
/// Written to confirm the change that was applied.
pub(crate) const CONFIRM: &str = "router_confirm";

impl OwnHandlers for ConfigurationHandlers {
    fn read(&self, handler: &str) -> Option<Result<String, String>> {
        (handler == CONFIGURATION).then(|| Ok(self.configuration()))
    }

    fn write(&self, handler: &str, value: &str) -> Option<Result<String, String>> {
        match handler {
            APPLY => Some(self.apply(value)),
            CHECK => Some(self.check(value)),
            PLAN => Some(self.plan(value)),
            CONFIRM => Some(self.confirm()),
            _ => None,
        }
    }
}

impl ConfigurationHandlers {
    fn configuration(&self) -> String {
        let state = lock(&self.state);
        let pending = state.pending.as_ref().map_or(String::new(), |pending| {
            format!(
                "# Not confirmed: undone in {} s, unless 'artery confirm' is run.\n",
                pending.left().as_secs()
            )
        });
        pending + &state.candidate.configuration.to_toml()
    }

    fn check(&self, value: &str) -> Result<String, String> {
        let (_, file, candidate) = parse_request(value)?;
        let state = lock(&self.state);
        state.busy()?;
        let prepared = state.prepare(candidate).map_err(|mistakes| lines(&mistakes))?;
        self.replacer.check(file, &prepared.text)
    }

    fn plan(&self, value: &str) -> Result<String, String> {
        let seconds = value.split([' ', '\n']).next().unwrap_or_default();
        let state = lock(&self.state);
        if seconds == "0" {
            self.abandon_plans(&state);
            return Ok(String::new());
        }
        let (_, file, candidate) = parse_request(value)?;
        state.busy()?;
        let prepared = state.prepare(candidate).map_err(|mistakes| lines(&mistakes))?;
        for (_, element) in &state.services {
            let plan = prepared.plans.iter().find(|(name, _)| name == element);
            let text = plan.map_or("0".to_string(), |(_, plan)| format!("{seconds}\n{plan}"));
            if let Err(error) = self.replacer.handle().write_handler(&format!("{element}.plan"), &text) {
                self.abandon_plans(&state);
                return Err(format!("{file}: {element}: {error}"));
            }
        }
        Ok(String::new())
    }

    /// Has services know of no change that is planned.
    fn abandon_plans(&self, state: &State) {
        for (_, element) in &state.services {
            // An element that does not answer forgets it by itself.
            let _ = self.replacer.handle().write_handler(&format!("{element}.plan"), "0");
        }
    }

    fn apply(&self, value: &str) -> Result<String, String> {
        let (confirm, file, candidate) = parse_request(value)?;
        let mut state = lock(&self.state);
        state.busy()?;
        let before = (!confirm.is_zero()).then(|| Before::find(&state, &self.replacer));
        let mut said = state.change(candidate, &self.replacer)?;
        said.extend(why_unreadable_later(file));
        self.replacer.voice().log_event(
            "applied",
            &format!("the configuration of {file} was applied"),
            &[("file", file)],
        );
        if let Some(mut before) = before {
            let kept = set_by_hand(&self.replacer);
            for (removed, kept) in before.by_hand.iter_mut().zip(&kept) {
                removed.retain(|text| !kept.contains(text));
            }
            self.start_confirmation(&mut state, before, confirm)?;
        }
        Ok(said)
    }

    fn start_confirmation(&self, state: &mut State, before: Before, confirm: Duration) -> Result<(), String> {
        state.applied += 1;
        let number = state.applied;
        state.pending = Some(Pending { before, number, until: Instant::now() + confirm });
        let (shared, replacer) = (self.state.clone(), self.replacer.clone());
        let body = move || {
            std::thread::sleep(confirm);
            undo(&shared, number, &replacer);
        };
        // A change that could not be undone later is undone now.
        std::thread::Builder::new().name("confirm".to_string()).spawn(body).map(drop).map_err(|error| {
            let undone = state.pending.take().map(|pending| state.restore(pending.before, &self.replacer));
            format!("can't start the thread that undoes this ({error}), so it was undone at once: {undone:?}")
        })
    }

    fn confirm(&self) -> Result<String, String> {
        let confirmed = lock(&self.state).pending.take();
        confirmed.map(|_| String::new()).ok_or_else(|| "nothing waits to be confirmed".to_string())
    }
}

/// Why SIGHUP could not have the file read that was applied: `artery apply` has read it by its own rights.
fn why_unreadable_later(file: &str) -> Option<String> {
    let path = Path::new(file);
    let why = match std::fs::metadata(path) {
        // artery-fleet hands over text without a file, and SIGHUP is not how it is read again.
        _ if path.is_relative() => return None,
        // Reading a pipe or a terminal would wait, and its text is gone.
        Ok(data) if !data.is_file() => format!("{file}: not a regular file"),
        _ => ConfigInput::File(path.into()).read().err()?,
    };
    Some(format!("it is in force, but SIGHUP can't have it read again: {why}\n"))
}

/// The time to confirm, the file and what it says.
fn parse_request(value: &str) -> Result<(Duration, &str, Candidate), String> {
    let (head, text) = value.split_once('\n').unwrap_or((value, ""));
    let (seconds, file) = head.split_once(' ').unwrap_or((head, ""));
    let confirm = seconds.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let confirm =
        confirm.filter(|_| !file.is_empty()).ok_or_else(|| format!("'{head}': write SECONDS FILE"))?;
    let candidate = configuration::parse(file, text).map_err(|mistakes| lines(&mistakes))?;
    Ok((confirm, file, candidate))
}

/// Undoes a change, unless it was confirmed.
fn undo(shared: &Shared, number: u64, replacer: &Replacer) {
    let mut state = lock(shared);
    let Some(pending) = state.pending.take_if(|pending| pending.number == number) else { return };
    let voice = replacer.voice();
    match state.restore(pending.before, replacer) {
        Ok(said) => {
            voice.complain_of(&said);
            voice.log_event("undone", "what was applied was not confirmed, and is undone", &[]);
        }
        Err(why) => {
            voice.complain_of(&why);
            voice.print_error("what was applied was not confirmed, and can't be undone: it stays");
        }
    }
}
