//! Runs health checks of members, and tells the balancer which are up. One copy of all workers does.
use super::shared::SharedBalancer;
use artery_device::{NoProbe, ProbeError, ProbeKind, Prober};
use artery_flow::balance::{Check, Health, Member, Probe, State, Step};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// How often the list of members is read again.
const LOOK: Duration = Duration::from_millis(500);

/// The checks of all members.
pub(super) struct HealthChecks {
    check: Check,
    kind: ProbeKind,
    prober: Prober,
    members: BTreeMap<Arc<str>, MemberHealth>,
    /// The member of each probe by its token, and the number of the probe.
    probes: HashMap<u64, (Arc<str>, u64)>,
    last_token: u64,
}

/// A member and the state of its health check.
struct MemberHealth {
    to: SocketAddr,
    health: Health,
    /// What was wrong the last time.
    fault: Option<String>,
}

/// A member that is up or down by its check, unlike before.
struct StateChange {
    name: Arc<str>,
    at: SocketAddr,
    is_up: bool,
    fault: String,
}

impl StateChange {
    fn to_message(&self) -> String {
        let StateChange { name, at, fault, .. } = self;
        if self.is_up { format!("{name} at {at} is up") } else { format!("{name} at {at} is down: {fault}") }
    }
}

impl HealthChecks {
    /// None of any member yet.
    pub(super) fn new(check: Check) -> Result<HealthChecks, NoProbe> {
        let kind = match &check.probe {
            Probe::Tcp => ProbeKind::Tcp,
            Probe::Http { path, status } => {
                ProbeKind::Http { path: path.clone(), host: None, status: *status }
            }
            Probe::Ping => ProbeKind::Ping,
        };
        let (prober, patients, asked) = (Prober::new()?, BTreeMap::new(), HashMap::new());
        Ok(HealthChecks { check, kind, prober, members: patients, probes: asked, last_token: 0 })
    }

    /// Goes on where the checks of a balancer end that this one replaces: members keep their state, and are
    /// checked as this one says from their next probes on.
    pub(super) fn take_over(&mut self, old: HealthChecks, shared: &SharedBalancer, now: Duration) {
        let HealthChecks { prober, mut members, probes, last_token, .. } = old;
        members.values_mut().for_each(|member| member.health.set_check(&self.check));
        (self.prober, self.members, self.probes, self.last_token) = (prober, members, probes, last_token);
        self.sync_members(shared, now);
        shared.lock_members().update_health(|member| self.found(member), now);
    }

    /// Whether a member's checks pass, if there was a result.
    fn found(&self, member: &Member) -> Option<bool> {
        match self.members.get(&member.name)?.health.state() {
            State::Unproven => None,
            state => Some(state == State::Up),
        }
    }

    /// Becomes readable when there are probe answers.
    pub(super) fn prober_fd(&self) -> BorrowedFd<'_> {
        self.prober.as_fd()
    }

    /// Reads probe answers, sends the probes that are due, and tells the balancer which members are up.
    /// Returns when to call it again, and the messages to log.
    pub(super) fn run_checks(&mut self, shared: &SharedBalancer, now: Duration) -> (Duration, Vec<String>) {
        self.sync_members(shared, now);
        let mut changes = Vec::new();
        let results: Vec<_> = self.prober.poll(now).collect();
        for (token, result) in results {
            self.handle_result(token, result, &mut changes);
        }
        let names: Vec<_> = self.members.keys().cloned().collect();
        let mut next = now.saturating_add(LOOK);
        for name in names {
            next = next.min(self.poll_member(&name, now, &mut changes));
        }
        let by_name: HashMap<&str, bool> =
            changes.iter().map(|change| (&*change.name, change.is_up)).collect();
        // One of a planned change may have been checked for another one before.
        if shared.lock_members().awaits_planned() {
            shared.lock_members().update_health(|member| self.found(member), now);
        }
        if !changes.is_empty() {
            shared.lock_members().update_health(|member| by_name.get(&*member.name).copied(), now);
        }
        let messages = changes.iter().map(StateChange::to_message).collect();
        (self.prober.due().map_or(next, |due| due.max(now).min(next)), messages)
    }

    /// Adds new members and those of a planned change, and removes those that are gone. Their first probes
    /// are spread over a period.
    fn sync_members(&mut self, shared: &SharedBalancer, now: Duration) {
        let (members, planned) = {
            let members = shared.lock_members();
            let address = |member: &Member| (member.name.clone(), probe_address(member, shared));
            let planned: BTreeMap<_, _> = members.planned_members().map(address).collect();
            let present = members.view_members().map(|view| address(&view.member));
            (present.chain(planned.clone()).collect::<BTreeMap<Arc<str>, SocketAddr>>(), planned)
        };
        self.members.retain(|name, patient| members.get(name) == Some(&patient.to));
        let patients = &self.members;
        let gone = self.probes.iter().filter(|(_, (name, _))| !patients.contains_key(name));
        let gone: Vec<u64> = gone.map(|(token, _)| *token).collect();
        for token in gone {
            self.prober.cancel(token);
            self.probes.remove(&token);
        }
        let count = members.len().max(1) as u32;
        for (number, (name, to)) in (0..).zip(members) {
            // A planned change waits for the health of the members that it adds.
            let first = match planned.contains_key(&name) {
                true => now,
                false => now.saturating_add(self.check.every / count * number),
            };
            let health = || Health::new(&self.check, first);
            self.members.entry(name).or_insert_with(|| MemberHealth { to, health: health(), fault: None });
        }
    }

    /// Polls a member's check until it waits; returns until when.
    fn poll_member(&mut self, name: &Arc<str>, now: Duration, changes: &mut Vec<StateChange>) -> Duration {
        loop {
            let Some(patient) = self.members.get_mut(name) else { return now.saturating_add(LOOK) };
            match patient.health.poll(now) {
                Step::Wait(until) => return until,
                Step::Changed(state) => {
                    let fault = patient.fault.get_or_insert_with(|| "no answer".into()).clone();
                    let (name, at, is_up) = (name.clone(), patient.to, state == State::Up);
                    changes.push(StateChange { name, at, is_up, fault });
                }
                Step::Send(probe) => {
                    self.last_token += 1;
                    let (token, timeout) = (self.last_token, self.check.timeout);
                    match self.prober.start(&self.kind, patient.to, token, now, timeout) {
                        Ok(()) => drop(self.probes.insert(token, (name.clone(), probe))),
                        // It has no result then, which counts as a failure when its time is over.
                        Err(why) => patient.fault = Some(why.to_string()),
                    }
                }
            }
        }
    }

    fn handle_result(&mut self, token: u64, result: Result<(), ProbeError>, changes: &mut Vec<StateChange>) {
        let Some((name, probe)) = self.probes.remove(&token) else { return };
        let Some(patient) = self.members.get_mut(&name) else { return };
        let has_passed = result.is_ok();
        patient.fault = result.err().map(|error| error.why.to_string());
        if let Some(state) = patient.health.record_result(probe, has_passed) {
            let fault = patient.fault.clone().unwrap_or_default();
            changes.push(StateChange { name, at: patient.to, is_up: state == State::Up, fault });
        }
    }
}

/// The address and port that a member is probed at.
fn probe_address(member: &Member, shared: &SharedBalancer) -> SocketAddr {
    let port = member.port.or_else(|| shared.services.iter().find_map(|service| service.port));
    SocketAddr::new(member.address, port.unwrap_or(0))
}
