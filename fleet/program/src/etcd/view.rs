//! What is known of the keys in etcd, as they were when it was heard last.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::document::Document;
use super::revision::{Candidate, Check, Content, Drained, Member, MemberState, Revision, parse};
use super::store::{Pair, Snapshot};
use crate::config::is_word;
use crate::envelope::Refusal;

pub(crate) const CONFIG: &str = "config";
pub(crate) const CANDIDATE: &str = "candidate";
pub(crate) const DRAINED: &str = "drained";
pub(crate) const MACHINE: &str = "machine/";
pub(crate) const CHECK: &str = "check/";

/// Most machines whose lease has ended that are remembered; of them, and of keys, most that are named.
const MOST: usize = 64;

/// The keys of a fleet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    pub(crate) machines: BTreeMap<String, Member>,
    pub(crate) revision: Option<Revision>,
    /// The revision of etcd that changed `config`; 0 if there is none.
    pub(crate) config_changed: i64,
    pub(crate) candidate: Option<Candidate>,
    /// The same for `candidate`.
    pub(crate) candidate_changed: i64,
    /// That of the command that wrote it; 0 if no command of ours did.
    pub(crate) candidate_lease: i64,
    pub(crate) checks: BTreeMap<String, Check>,
    pub(crate) drained: Drained,
    /// The same for `drained`.
    pub(crate) drained_changed: i64,
}

impl Keys {
    /// Reads all keys; what is refused is left out, and given to `refuse`.
    pub(crate) fn of(snapshot: &Snapshot, mut refuse: impl FnMut(&str, Refusal)) -> Keys {
        let mut keys = Keys::default();
        for pair in &snapshot.pairs {
            if let Err(refusal) = keys.set(pair) {
                refuse(&pair.key, refusal);
            }
        }
        keys
    }

    pub(crate) fn set(&mut self, pair: &Pair) -> Result<(), Refusal> {
        let Pair { key, value, changed, lease } = pair;
        match key.as_str() {
            CONFIG => {
                // A revision that can't be read can be replaced.
                self.config_changed = *changed;
                let revision: Revision = parse(value)?;
                revision.content.iter().try_for_each(check_content)?;
                self.revision = Some(revision);
            }
            CANDIDATE => {
                // What can't be read does not count as one, also where there was one.
                (self.candidate, self.candidate_changed, self.candidate_lease) = (None, *changed, *lease);
                let candidate: Candidate = parse(value)?;
                check_content(&candidate.content)?;
                self.candidate = Some(candidate);
            }
            DRAINED => {
                // One that can't be read can be replaced.
                self.drained_changed = *changed;
                let drained: Drained = parse(value)?;
                let mut members = drained.machines.values().flatten();
                if !drained.machines.keys().all(|name| is_word(name)) || !members.all(|name| is_member(name))
                {
                    return Err(Refusal::Malformed);
                }
                self.drained = drained;
            }
            key => {
                if let Some(name) = key.strip_prefix(MACHINE).filter(|name| is_word(name)) {
                    // What stays when its process ends names none that lives, and would stop changes.
                    if *lease == 0 {
                        return Err(Refusal::Malformed);
                    }
                    let member: Member = parse(value)?;
                    let MemberState { up, down, .. } = &member.state;
                    if !up.iter().chain(down).all(|name| is_member(name)) {
                        return Err(Refusal::Malformed);
                    }
                    self.machines.insert(name.to_string(), member);
                } else if let Some(name) = key.strip_prefix(CHECK).filter(|name| is_word(name)) {
                    self.checks.insert(name.to_string(), parse(value)?);
                } else {
                    return Err(Refusal::Malformed);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, key: &str) {
        match key {
            // The machines keep what they have.
            CONFIG => self.config_changed = 0,
            DRAINED => (self.drained, self.drained_changed) = (Drained::default(), 0),
            CANDIDATE => {
                (self.candidate, self.candidate_changed, self.candidate_lease) = (None, 0, 0);
            }
            key => {
                if let Some(name) = key.strip_prefix(MACHINE) {
                    self.machines.remove(name);
                } else if let Some(name) = key.strip_prefix(CHECK) {
                    self.checks.remove(name);
                }
            }
        }
    }
}

/// Whether a member of a balancer can be called so.
fn is_member(name: &str) -> bool {
    artery_flow::balance::Member::is_name(name)
}

/// How far machines are with a change that is planned.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlannedReport {
    /// Machines whose peers have all flows that will be exceptions.
    pub(crate) prepared: Vec<String>,
    /// The others that live, and why they never will; empty while it is not known.
    pub(crate) unprepared: Vec<(String, String)>,
}

impl PlannedReport {
    pub(crate) fn to_text(&self) -> String {
        let names = |names: &[String]| if names.is_empty() { "no one".to_string() } else { names.join(", ") };
        let late = self.unprepared.iter().map(|(machine, why)| match why.is_empty() {
            true => machine.clone(),
            false => format!("{machine} ({})", why.replace('\n', " ")),
        });
        let late: Vec<String> = late.collect();
        let late = if late.is_empty() { String::new() } else { format!(", not by {}", late.join(", ")) };
        format!("prepared by {}{late}", names(&self.prepared))
    }
}

impl Keys {
    /// How far machines are with the candidate, once it is planned.
    pub(crate) fn planned(&self) -> Option<PlannedReport> {
        let candidate = self.candidate.as_ref().filter(|candidate| candidate.is_planned)?;
        let mut report = PlannedReport::default();
        for (name, member) in &self.machines {
            let prepared = member.state.prepared.as_ref();
            match prepared.filter(|prepared| prepared.candidate == candidate.id) {
                Some(prepared) if prepared.failure.is_empty() => report.prepared.push(name.clone()),
                Some(prepared) => report.unprepared.push((name.clone(), prepared.failure.clone())),
                None => report.unprepared.push((name.clone(), String::new())),
            }
        }
        Some(report)
    }
}

/// A configuration that does not parse as a fleet's file was written by something else than this program.
fn check_content(content: &Content) -> Result<(), Refusal> {
    Document::parse(&content.text).map(drop).map_err(|_| Refusal::Malformed)
}

/// Whether a router has the fleet's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agreement {
    /// Also where there is none.
    Agrees,
    Differs,
    /// Etcd is not reached.
    Unknown,
}

/// What the status says of etcd.
pub(crate) struct View {
    /// How long a machine that is cut off from etcd lives for the others.
    lease: Duration,
    state: Mutex<State>,
}

struct State {
    keys: Keys,
    /// Machines whose lease has ended, as they were, and when.
    gone: BTreeMap<String, (Member, Instant)>,
    is_connected: bool,
    since: Instant,
    error: String,
    pending_until: Option<Instant>,
    refused: BTreeMap<Refusal, u64>,
    named: HashSet<(String, Refusal)>,
}

impl View {
    pub(crate) fn new(lease: Duration) -> View {
        let state = Mutex::new(State {
            keys: Keys::default(),
            gone: BTreeMap::new(),
            is_connected: false,
            since: Instant::now(),
            error: "it was not asked yet".to_string(),
            pending_until: None,
            refused: BTreeMap::new(),
            named: HashSet::new(),
        });
        View { lease, state }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, keys: &Keys, pending_until: Option<Instant>) {
        let state = &mut *self.lock();
        let now = Instant::now();
        for (name, member) in &state.keys.machines {
            if !keys.machines.contains_key(name) && state.gone.len() < MOST {
                state.gone.insert(name.clone(), (member.clone(), now));
            }
        }
        state.gone.retain(|name, _| !keys.machines.contains_key(name));
        state.keys.clone_from(keys);
        state.pending_until = pending_until;
        if !state.is_connected {
            (state.is_connected, state.since) = (true, now);
            state.error.clear();
        }
    }

    /// Etcd is not reached, or refuses this machine; says so once.
    pub(crate) fn lose(&self, error: String) {
        let mut state = self.lock();
        if state.is_connected {
            (state.is_connected, state.since) = (false, Instant::now());
        }
        if state.error.is_empty() {
            eprintln!("artery-fleet: the fleet's configuration can't be followed: {error}");
        }
        state.error = error;
    }

    /// Counts what is refused; names each key and reason once.
    pub(crate) fn refuse(&self, key: &str, refusal: Refusal) {
        let mut state = self.lock();
        *state.refused.entry(refusal).or_default() += 1;
        let is_new = state.named.len() < MOST && state.named.insert((key.to_string(), refusal));
        drop(state);
        if is_new {
            eprintln!("artery-fleet: the key {key} in etcd is refused: {}", refusal.explanation());
        }
    }

    /// Whether the router of this machine has the fleet's configuration.
    pub(crate) fn agreement(&self, machine: &str) -> Agreement {
        let state = self.lock();
        if !state.is_connected {
            return Agreement::Unknown;
        }
        let Some(revision) = &state.keys.revision else { return Agreement::Agrees };
        let member = state.keys.machines.get(machine).map(|member| &member.state);
        let has_it =
            |member: &MemberState| member.is_router_connected && member.revision == Some(revision.number);
        if member.is_some_and(has_it) { Agreement::Agrees } else { Agreement::Differs }
    }

    /// Members that a machine which is drained does not reach; none if it is not. One that is cut off from
    /// etcd for as long as it lives for the others is drained no more: then it does what it finds by itself.
    pub(crate) fn drained(&self, machine: &str) -> Option<Vec<String>> {
        let state = self.lock();
        let is_valid = state.is_connected || state.since.elapsed() < self.lease;
        state.keys.drained.machines.get(machine).filter(|_| is_valid).cloned()
    }

    pub(crate) fn report(&self) -> ConfigurationReport {
        let state = self.lock();
        let now = Instant::now();
        let revision = state.keys.revision.as_ref();
        let left = state.pending_until.map(|until| until.saturating_duration_since(now).as_secs());
        let refused = [Refusal::Malformed, Refusal::OtherVersion, Refusal::SameName]
            .map(|reason| (reason.name().to_string(), state.refused.get(&reason).copied().unwrap_or(0)));
        ConfigurationReport {
            is_connected: state.is_connected,
            state_ms: now.duration_since(state.since).as_millis() as u64,
            error: state.error.clone(),
            revision: revision.map(|revision| revision.number),
            undone_in_seconds: left,
            undone: revision.and_then(|revision| revision.undone.clone()),
            planned: state.keys.planned(),
            machines: state.machines(now),
            refused: refused.into(),
        }
    }
}

impl State {
    /// All machines that live, have lived, or are in the configuration.
    fn machines(&self, now: Instant) -> Vec<MachineReport> {
        let document = self.keys.revision.as_ref().and_then(|revision| revision.content.as_ref());
        let document = document.and_then(|content| Document::parse(&content.text).ok());
        let configured = document.iter().flat_map(Document::machines).map(str::to_string);
        let known = self.keys.machines.keys().chain(self.gone.keys()).cloned();
        let names: std::collections::BTreeSet<String> = known.chain(configured).collect();
        let digest = usual_digest(self.keys.machines.values());
        let report = |machine: String| {
            let living = self.keys.machines.get(&machine);
            let gone = self.gone.get(&machine);
            let member = living.or(gone.map(|(member, _)| member)).map(|member| &member.state);
            let explanation = match (living, gone) {
                (None, Some((_, since))) => format!("absent for {} s", now.duration_since(*since).as_secs()),
                (None, None) => "absent".to_string(),
                (Some(member), _) => self.difference(member, digest.as_deref()),
            };
            let differs = !explanation.is_empty();
            let drained = self.keys.drained.machines.get(&machine).filter(|_| living.is_some());
            let drained = drained.cloned().unwrap_or_default();
            MachineReport {
                drained,
                machine,
                is_living: living.is_some(),
                revision: member.and_then(|member| member.revision),
                digest: member.and_then(|member| member.digest.clone()),
                down: member.map_or(Vec::new(), |member| member.down.clone()),
                differs,
                explanation,
            }
        };
        names.into_iter().map(report).collect()
    }

    /// How a machine differs from what the fleet agreed on; empty if it does not.
    fn difference(&self, member: &Member, digest: Option<&str>) -> String {
        let state = &member.state;
        let wanted = self.keys.revision.as_ref().map(|revision| revision.number);
        if !state.is_router_connected {
            return "its router is not reached".to_string();
        }
        if let Some((number, why)) = state.failure.as_ref().filter(|(number, _)| Some(*number) == wanted) {
            return format!("can't take revision {number}: {}", why.replace('\n', "; "));
        }
        if wanted.is_some() && state.revision != wanted {
            return "has not taken the revision".to_string();
        }
        if state.is_changed {
            return "its router was changed by hand".to_string();
        }
        match (&state.digest, digest) {
            (Some(own), Some(usual)) if own != usual && state.down.is_empty() => {
                format!("its table is not {usual}")
            }
            (Some(own), Some(usual)) if own != usual => {
                format!("its table is not {usual}; down there: {}", state.down.join(", "))
            }
            _ => String::new(),
        }
    }
}

/// The digest that most machines have; of those that are equally many the first one.
fn usual_digest<'a>(members: impl Iterator<Item = &'a Member>) -> Option<String> {
    let mut counts = BTreeMap::new();
    for digest in members.filter_map(|member| member.state.digest.as_ref()) {
        *counts.entry(digest).or_insert(0) += 1;
    }
    let most = counts.values().copied().max()?;
    counts.into_iter().find(|(_, count)| *count == most).map(|(digest, _)| digest.clone())
}

/// The fleet's configuration in the status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConfigurationReport {
    pub(crate) is_connected: bool,
    /// Since it is or is not.
    pub(crate) state_ms: u64,
    pub(crate) error: String,
    pub(crate) revision: Option<u64>,
    /// None once the revision is confirmed.
    pub(crate) undone_in_seconds: Option<u64>,
    /// Why the revision before was undone.
    pub(crate) undone: Option<String>,
    /// The change that is planned, if there is one.
    pub(crate) planned: Option<PlannedReport>,
    pub(crate) machines: Vec<MachineReport>,
    /// Keys that were refused, by reason.
    pub(crate) refused: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MachineReport {
    pub(crate) machine: String,
    /// Whether its lease lasts.
    pub(crate) is_living: bool,
    pub(crate) revision: Option<u64>,
    pub(crate) digest: Option<String>,
    /// Members that its router's own checks find down.
    pub(crate) down: Vec<String>,
    /// Members for which it is not announced, since it alone does not reach them.
    pub(crate) drained: Vec<String>,
    pub(crate) differs: bool,
    /// How it differs from the revision; empty if it agrees.
    pub(crate) explanation: String,
}

impl ConfigurationReport {
    pub(crate) fn to_text(&self) -> String {
        let seconds = Duration::from_millis(self.state_ms).as_secs();
        let mut text = match self.is_connected {
            true => "etcd: followed\n".to_string(),
            false => {
                format!("etcd: not followed for {seconds} s, the router keeps what it has: {}\n", self.error)
            }
        };
        let revision = self.revision.map_or("none".to_string(), |number| number.to_string());
        let pending = self.undone_in_seconds.map_or(String::new(), |seconds| {
            format!(", undone in {seconds} s unless 'artery-fleet confirm' is run")
        });
        let undone =
            self.undone.as_ref().map_or(String::new(), |why| format!("; {}", why.replace('\n', "; ")));
        let _ = writeln!(text, "revision: {revision}{pending}{undone}");
        if let Some(planned) = &self.planned {
            let _ = writeln!(text, "planned change: {}", planned.to_text());
        }
        let refused: Vec<_> = self.refused.iter().filter(|(_, count)| **count > 0).collect();
        let words: Vec<_> = refused.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        if !words.is_empty() {
            let _ = writeln!(text, "refused keys: {}", words.join(", "));
        }
        let _ = writeln!(text, "\n{:<16}  {:<8}  {:<16}  STATE", "MACHINE", "REVISION", "DIGEST");
        for machine in &self.machines {
            let revision = machine.revision.map_or("-".to_string(), |number| number.to_string());
            let digest = machine.digest.as_deref().unwrap_or("-");
            let state = match machine.differs {
                false => "agrees".to_string(),
                true => format!("differs: {}", machine.explanation),
            };
            let drained = match machine.drained.is_empty() {
                true => String::new(),
                false => format!("; drained, it alone does not reach {}", machine.drained.join(", ")),
            };
            let _ = writeln!(text, "{:<16}  {revision:<8}  {digest:<16}  {state}{drained}", machine.machine);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::revision::to_json;
    use super::*;

    fn pair(key: &str, value: &[u8]) -> Pair {
        Pair { key: key.to_string(), value: value.to_vec(), changed: 3, lease: 9 }
    }

    fn member(revision: u64, digest: &str) -> Member {
        let digest = Some(digest.to_string());
        let state =
            MemberState { is_router_connected: true, revision: Some(revision), digest, ..Default::default() };
        Member { run: 1, is_announced: false, state }
    }

    fn keys(machines: &[(&str, Member)]) -> Keys {
        let text = "[machine.m1]\n[machine.m2]\n[machine.m9]\n".to_string();
        let content = Some(Content { text, seed: 1 });
        let revision = Revision { number: 4, id: 1, content, pending: None, undone: None };
        let mut keys = Keys::default();
        keys.set(&pair(CONFIG, &to_json(&revision))).unwrap();
        for (name, member) in machines {
            keys.set(&pair(&format!("{MACHINE}{name}"), &to_json(member))).unwrap();
        }
        keys
    }

    #[test]
    fn machines_that_are_not_as_agreed_differ_and_say_how() {
        let view = View::new(Duration::from_secs(5));
        view.set(&keys(&[("m1", member(4, "a")), ("m3", member(4, "a")), ("m5", member(4, "a"))]), None);
        let mut failed = member(3, "a");
        failed.state.failure = Some((4, "no such interface\neth9".to_string()));
        let mut without = member(4, "c");
        without.state.down = vec!["web1".to_string(), "web2".to_string()];
        let mut changed = member(4, "a");
        changed.state.is_changed = true;
        view.set(
            &keys(&[
                ("m1", member(4, "a")),
                ("m2", member(3, "a")),
                ("m4", member(4, "b")),
                ("m5", failed),
                ("m6", changed),
                ("m8", without),
                ("m7", Member { run: 1, is_announced: false, state: MemberState::default() }),
            ]),
            None,
        );
        let report = view.report();
        let said: Vec<_> =
            report.machines.iter().map(|one| (one.machine.as_str(), one.explanation.as_str())).collect();
        let expected = [
            ("m1", ""),
            ("m2", "has not taken the revision"),
            ("m3", "absent for 0 s"),
            ("m4", "its table is not a"),
            ("m5", "can't take revision 4: no such interface; eth9"),
            ("m6", "its router was changed by hand"),
            ("m7", "its router is not reached"),
            ("m8", "its table is not a; down there: web1, web2"),
            ("m9", "absent"),
        ];
        assert_eq!(said, expected);
        assert_eq!(report.machines[2].revision, Some(4), "what it had when it was heard last");
    }

    #[test]
    fn keys_that_are_malformed_or_of_another_version_are_refused_and_the_revision_stays() {
        let mut keys = keys(&[]);
        let before = keys.revision.clone();
        let strange = Revision {
            number: 5,
            content: Some(Content { text: "port = 1\n".to_string(), seed: 1 }),
            ..before.clone().unwrap()
        };
        let mut strange_member = member(4, "a");
        strange_member.state.down = vec!["a b".to_string()];
        let drained = br#"{"format":1,"id":1,"machines":{"m2":["web1"]}}"#;
        keys.set(&pair(DRAINED, drained)).unwrap();
        for (key, value, refusal) in [
            (CONFIG, &b"x"[..], Refusal::Malformed),
            (CONFIG, br#"{"format":2}"#, Refusal::OtherVersion),
            (CONFIG, &to_json(&strange), Refusal::Malformed),
            ("machine/m1", b"{}", Refusal::Malformed),
            ("machine/a b", b"{}", Refusal::Malformed),
            ("machine/m1", &to_json(&strange_member), Refusal::Malformed),
            (DRAINED, br#"{"format":1,"id":1,"machines":{"a b":[]}}"#, Refusal::Malformed),
            (DRAINED, br#"{"format":1,"id":1,"machines":{"m1":["\n"]}}"#, Refusal::Malformed),
            (DRAINED, br#"{"format":3}"#, Refusal::OtherVersion),
            ("other", b"{}", Refusal::Malformed),
        ] {
            assert_eq!(keys.set(&pair(key, value)), Err(refusal), "{key}");
        }
        assert_eq!(keys.revision, before);
        // One without a lease would live for ever.
        let lasting = Pair { lease: 0, ..pair("machine/m1", &to_json(&member(4, "a"))) };
        assert_eq!(keys.set(&lasting), Err(Refusal::Malformed));
        assert!(keys.machines.is_empty());
        assert_eq!(keys.drained.machines, [("m2".to_string(), vec!["web1".to_string()])].into());
    }
}
