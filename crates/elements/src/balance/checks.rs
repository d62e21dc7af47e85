//! Asks members whether they are well, and lets the balancer know. One copy of all workers does.
use super::shared::SharedBalancer;
use artery_device::{NoProbe, ProbeError, ProbeKind, Prober};
use artery_table::balance::{Check, Health, Member, Probe, State, Step};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked for members that have come or gone.
const LOOK: Duration = Duration::from_millis(500);

/// The checks of all members.
pub(super) struct Checks {
    check: Check,
    kind: ProbeKind,
    prober: Prober,
    patients: BTreeMap<Arc<str>, Patient>,
    /// Whose result a token is, and of which of its probes.
    asked: HashMap<u64, (Arc<str>, u64)>,
    last_token: u64,
}

/// A member, and what is known of it.
struct Patient {
    to: SocketAddr,
    health: Health,
    /// What was wrong the last time.
    fault: Option<String>,
}

impl Checks {
    /// None of any member yet.
    pub(super) fn new(check: Check) -> Result<Checks, NoProbe> {
        let kind = match &check.probe {
            Probe::Tcp => ProbeKind::Tcp,
            Probe::Http { path, status } => {
                ProbeKind::Http { path: path.clone(), host: None, status: *status }
            }
            Probe::Ping => ProbeKind::Ping,
        };
        let (prober, patients, asked) = (Prober::new()?, BTreeMap::new(), HashMap::new());
        Ok(Checks { check, kind, prober, patients, asked, last_token: 0 })
    }

    /// What tells that there are answers.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.prober.as_fd()
    }

    /// Hears answers, sends what is due, and lets the balancer know who is up. Returns when to do so again, and what is to
    /// be said.
    pub(super) fn run(&mut self, shared: &SharedBalancer, now: Duration) -> (Duration, Vec<String>) {
        self.follow(shared, now);
        let mut said = Vec::new();
        let results: Vec<_> = self.prober.poll(now).collect();
        for (token, result) in results {
            self.hear(token, result, shared, now, &mut said);
        }
        let names: Vec<_> = self.patients.keys().cloned().collect();
        let mut next = now.saturating_add(LOOK);
        for name in names {
            next = next.min(self.ask(&name, shared, now, &mut said));
        }
        (self.prober.due().map_or(next, |due| due.max(now).min(next)), said)
    }

    /// Takes in members that have come, and leaves those that are gone. Their first probes are spread over a period.
    fn follow(&mut self, shared: &SharedBalancer, now: Duration) {
        let members: BTreeMap<Arc<str>, SocketAddr> = {
            let members = shared.members();
            members.views().map(|view| (view.member.name.clone(), place(&view.member, shared))).collect()
        };
        self.patients.retain(|name, patient| members.get(name) == Some(&patient.to));
        let patients = &self.patients;
        let gone = self.asked.iter().filter(|(_, (name, _))| !patients.contains_key(name));
        let gone: Vec<u64> = gone.map(|(token, _)| *token).collect();
        for token in gone {
            self.prober.cancel(token);
            self.asked.remove(&token);
        }
        let count = members.len().max(1) as u32;
        for (number, (name, to)) in (0..).zip(members) {
            let first = now.saturating_add(self.check.every / count * number);
            let health = || Health::new(&self.check, first);
            self.patients.entry(name).or_insert_with(|| Patient { to, health: health(), fault: None });
        }
    }

    /// Does what a member's health asks for until it is to wait, and says until when.
    fn ask(
        &mut self,
        name: &Arc<str>,
        shared: &SharedBalancer,
        now: Duration,
        said: &mut Vec<String>,
    ) -> Duration {
        loop {
            let Some(patient) = self.patients.get_mut(name) else { return now.saturating_add(LOOK) };
            match patient.health.poll(now) {
                Step::Wait(until) => return until,
                Step::Changed(state) => {
                    let fault = patient.fault.get_or_insert_with(|| "no answer".into()).clone();
                    said.extend(tell(name, patient.to, state, &fault, shared, now));
                }
                Step::Send(probe) => {
                    self.last_token += 1;
                    let (token, timeout) = (self.last_token, self.check.timeout);
                    match self.prober.start(&self.kind, patient.to, token, now, timeout) {
                        Ok(()) => drop(self.asked.insert(token, (name.clone(), probe))),
                        // It has no result then, which counts as a failure when its time is over.
                        Err(why) => patient.fault = Some(why.to_string()),
                    }
                }
            }
        }
    }

    fn hear(
        &mut self,
        token: u64,
        result: Result<(), ProbeError>,
        shared: &SharedBalancer,
        now: Duration,
        said: &mut Vec<String>,
    ) {
        let Some((name, probe)) = self.asked.remove(&token) else { return };
        let Some(patient) = self.patients.get_mut(&name) else { return };
        let has_passed = result.is_ok();
        patient.fault = result.err().map(|error| error.why.to_string());
        if let Some(state) = patient.health.result(probe, has_passed) {
            let fault = patient.fault.clone().unwrap_or_default();
            said.extend(tell(&name, patient.to, state, &fault, shared, now));
        }
    }
}

/// Where a member is asked.
fn place(member: &Member, shared: &SharedBalancer) -> SocketAddr {
    let port = member.port.or_else(|| shared.services.iter().find_map(|service| service.port));
    SocketAddr::new(member.address, port.unwrap_or(0))
}

/// Lets the balancer know of a member's state, and says what users are to hear.
fn tell(
    name: &str,
    at: SocketAddr,
    state: State,
    fault: &str,
    shared: &SharedBalancer,
    now: Duration,
) -> Option<String> {
    // One that is gone meanwhile has no state.
    shared.members().set_up(name, state == State::Up, now).ok()?;
    Some(match state {
        State::Up => format!("{name} at {at} is up"),
        _ => format!("{name} at {at} is down: {fault}"),
    })
}
