//! Keeps the programs' flows as the kernel has its connections.
mod review;

use super::existing::ExistingConnections;
use super::judgement::{Judge, Judged};
use super::keeper::ConnectionKeeper;
use super::lag::EventLag;
use super::message::{Entry, Event, TCP};
use super::sockets::{EntrySockets, EventsRead};
use super::timeouts::{Timeouts, Traffic};
use crate::blockers::setting;
use crate::fast::{Accelerator, FlowAction, FlowKeeper, FlowKey};
use crate::kernel::Family;
use crate::pace::Lag;
use crate::policy::{Interface, Policy};
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Limit on known connections; others stay with the kernel.
const MOST_CONNECTIONS: usize = 1 << 20;
/// Events that are read at once, flows that the kernel is asked about, entries that are renewed, and
/// connections that are reviewed.
const AT_ONCE: usize = 2048;
const QUESTIONS_AT_ONCE: usize = 256;
/// Questions of one message: their answers have room in a socket.
const QUESTIONS_TOGETHER: usize = 32;
const RENEWALS_AT_ONCE: usize = 128;
const REVIEWS_AT_ONCE: usize = 1024;
/// How long until the next of those.
const BETWEEN: Duration = Duration::from_millis(10);
/// How long changes of routes are collected.
const REROUTING: Duration = Duration::from_millis(20);
/// How often it is looked whether connections that could not be forwarded can be.
const REVIEW: Duration = Duration::from_secs(1);
/// The longest that the process may sleep while connections are forwarded. One that sleeps for longer stands
/// still, and ends wait.
const SLEEP: Duration = Duration::from_millis(250);
/// How often entries of TCP are renewed that had traffic. The kernel keeps those with data that wait for an
/// acknowledgment for five minutes.
const RENEWAL: Duration = Duration::from_secs(60);

/// Whether connections of a family may be forwarded past the user's rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FamilyConsent {
    pub(crate) is_given: bool,
    /// Whether rules are asked about each connection; otherwise the operator has said that they need not be.
    pub(crate) asks_rules: bool,
    /// Whether it matters that the kernel would call segments invalid that are out of window.
    pub(crate) minds_windows: bool,
    /// Whether the kernel translates addresses now: without its hooks it does not, whatever its entries say.
    pub(crate) translates: bool,
}

/// How many connections are known and forwarded, for `artery top`, metrics and the end report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionStatus {
    /// Connections of TCP, UDP and echoes of which enough packets came for the kernel to be asked about them.
    pub known: usize,
    /// Of those, the ones that are forwarded past the user's rules.
    pub forwarded: usize,
    /// Of the known ones, those that began while no process listened, and are compared each second.
    pub existing: usize,
    /// Of the known ones, those that stay with the kernel, by [`ConnectionKeeper`].
    pub kept: [usize; ConnectionKeeper::ALL.len()],
    /// All entries of the kernel, if that can be read.
    pub tracked: Option<usize>,
    /// How late events are read.
    pub lag: Lag,
    /// How often events were lost, and all connections left to the kernel until it is asked about them again.
    pub overruns: u64,
}

/// Asks the kernel about connections (ctnetlink) of which programs see packets, hears when they end, and has
/// those forwarded that may be.
#[derive(Debug)]
pub struct ConnectionTracker {
    sockets: EntrySockets,
    lag: EventLag,
    /// If connections without events are forwarded, too.
    pub(super) existing: Option<ExistingConnections>,
    pub(super) known: HashMap<u32, Known>,
    /// Those that are established and not forwarded.
    pending: HashSet<u32>,
    /// Those that rules or windows keep, whose packets are not counted by that yet.
    uncounted: HashSet<u32>,
    pub(super) consent: [FamilyConsent; 2],
    judge: Judge,
    /// Those that are forwarded at certain ports alone.
    bound: HashSet<u32>,
    timeouts: Timeouts,
    ticks_of_a_second: u64,
    /// Entries of TCP that are to be looked at for renewal.
    renewals: Vec<u32>,
    /// Connections of which it is to be found out whether they can be forwarded now.
    reviews: Vec<u32>,
    reviewed: Instant,
    renewed: Instant,
    /// Since when routes may lead elsewhere that rules ask for.
    rerouted: Option<Instant>,
    overruns: u64,
    forwarded: usize,
}

#[derive(Debug)]
pub(super) struct Known {
    pub(super) entry: Entry,
    flows: Option<Flows>,
    /// What keeps it in the kernel, unless it is forwarded.
    pub(super) kept_by: Option<ConnectionKeeper>,
    has_asked: bool,
    /// A packet was seen that may close it.
    is_closing: bool,
    traffic: Traffic,
    /// The ports that packets of both directions left by when it was first asked about.
    exits: [Option<u32>; 2],
    /// What rules say of it, if they were asked.
    judged: Option<Judged>,
}

impl Known {
    /// Whether its packets are forwarded past rules.
    pub(super) fn is_forwarded(&self) -> bool {
        self.flows.is_some() && self.kept_by.is_none()
    }
}

type Flows = [(FlowKey, FlowAction); 2];

impl ConnectionTracker {
    /// Listens from now on. Connections that began while none did are compared each second, if they are to
    /// be forwarded, too.
    pub(crate) fn open(now: Instant, compares_existing: bool) -> io::Result<ConnectionTracker> {
        Ok(ConnectionTracker {
            sockets: EntrySockets::open()?,
            lag: EventLag::default(),
            existing: compares_existing.then(|| ExistingConnections::new(now)),
            known: HashMap::new(),
            pending: HashSet::new(),
            uncounted: HashSet::new(),
            consent: [FamilyConsent::default(); 2],
            judge: Judge::default(),
            bound: HashSet::new(),
            timeouts: Timeouts::read(),
            ticks_of_a_second: 0,
            renewals: Vec::new(),
            reviews: Vec::new(),
            reviewed: now,
            renewed: now,
            rerouted: None,
            overruns: 0,
            forwarded: 0,
        })
    }

    /// Counts of now; overruns since the start.
    pub fn status(&self) -> ConnectionStatus {
        let mut kept = [0; ConnectionKeeper::ALL.len()];
        self.known.values().filter_map(|known| known.kept_by).for_each(|by| kept[by as usize] += 1);
        let tracked = setting("netfilter/nf_conntrack_count").ok().flatten();
        ConnectionStatus {
            known: self.known.len(),
            forwarded: self.forwarded,
            existing: self.existing.as_ref().map_or(0, ExistingConnections::len),
            kept,
            lag: self.lag.status(),
            tracked: tracked.and_then(|tracked| usize::try_from(tracked).ok()),
            overruns: self.overruns,
        }
    }

    /// How late events are read.
    pub(crate) fn lag(&self) -> Lag {
        self.lag.status()
    }

    /// Says for which families it is allowed, by IPv4 and IPv6, and by which rules.
    pub(crate) fn set_consent(
        &mut self,
        consent: [FamilyConsent; 2],
        policy: Arc<Policy>,
        accelerator: &mut Accelerator,
    ) {
        let has_new_rules = self.judge.set_policy(policy);
        if std::mem::replace(&mut self.consent, consent) != consent || has_new_rules {
            self.begin_anew(accelerator);
        }
    }

    /// Says what interfaces have the numbers of ports.
    pub(crate) fn set_ports(&mut self, ports: HashMap<u32, Interface>, accelerator: &mut Accelerator) {
        if self.judge.set_ports(ports) {
            self.begin_anew(accelerator);
        }
    }

    /// Has all connections judged once more.
    fn begin_anew(&mut self, accelerator: &mut Accelerator) {
        // Which flow tables it has them in now is for the kernel to say.
        self.known.values_mut().for_each(|known| known.entry.forget_offload());
        // What other rules say of each may take long to find out: until then they are the kernel's.
        let all: Vec<u32> = self.known.keys().copied().collect();
        let (at_once, later) = all.into_iter().partition::<Vec<u32>, _>(|id| {
            let known = &self.known[id];
            let asks_rules = self.consent_of(&known.entry).asks_rules;
            known.flows.is_none() && !known.entry.is_established()
                || !asks_rules
                || self.judge.is_open_to_all(&known.entry)
        });
        later.iter().for_each(|id| self.leave(*id, accelerator));
        at_once.into_iter().for_each(|id| self.review(id, accelerator));
        self.reviews.extend(later);
    }

    fn consent_of(&self, entry: &Entry) -> FamilyConsent {
        self.consent[usize::from(entry.family == Family::V6)]
    }

    /// Reads events, and does what is due; `slept` is for how long the process was to sleep, and did, since
    /// the last time. Returns how long nothing more is due unless there are events.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        slept: Duration,
        accelerator: &mut Accelerator,
    ) -> io::Result<Duration> {
        if self.ticks_of_a_second == 0 {
            self.ticks_of_a_second = accelerator.lease().ticks_of_a_second()?;
        }
        let has_candidates = self.ask_about_candidates(accelerator);
        let has_events = self.read_events(accelerator);
        // That takes time, too.
        self.lag.follow(Instant::now(), slept, !has_events);
        let has_more = has_candidates | has_events;
        let compared = self.compare_existing(now, accelerator);
        if now.saturating_duration_since(self.reviewed) >= REVIEW {
            self.reviewed = now;
            self.begin_reviews(accelerator)?;
            self.count_kept(accelerator);
        }
        let interval = RENEWAL.min(Duration::from_secs(u64::from(self.timeouts.tcp)) / 4).max(REVIEW);
        if self.renewals.is_empty() && now.saturating_duration_since(self.renewed) >= interval {
            self.renewed = now;
            let is_tcp = |known: &Known| known.is_forwarded() && known.entry.protocol() == TCP;
            self.renewals = self.known.iter().filter(|(_, known)| is_tcp(known)).map(|(id, _)| *id).collect();
        }
        if self.rerouted.is_some_and(|since| now.saturating_duration_since(since) >= REROUTING) {
            self.rerouted = None;
            self.follow_routes(accelerator);
        }
        self.renew_some(accelerator);
        let from = self.reviews.len().saturating_sub(REVIEWS_AT_ONCE);
        self.reviews.split_off(from).into_iter().for_each(|id| self.review(id, accelerator));
        self.read_answers(accelerator);
        let is_idle = self.renewals.is_empty() && self.reviews.is_empty() && self.rerouted.is_none();
        let wait = match (has_more, is_idle) {
            (true, _) => Duration::ZERO,
            (false, false) => BETWEEN,
            (false, true) if self.forwarded > 0 => SLEEP,
            (false, true) => REVIEW,
        };
        Ok(wait.min(compared))
    }

    /// Takes it that routes have changed.
    pub(crate) fn note_routes(&mut self, now: Instant) {
        if self.judge.asks_routes() {
            self.rerouted.get_or_insert(now);
        }
    }

    /// Reviews connections whose rules ask for routes that lead elsewhere now.
    fn follow_routes(&mut self, accelerator: &mut Accelerator) {
        let has_moved = |id: &&u32| {
            let Some(known) = self.known.get(id) else { return false };
            let egresses = known.entry.directions().map(|to| accelerator.egress(to.destination));
            known.judged.is_none_or(|judged| !judged.is_of(egresses))
        };
        let moved: Vec<u32> = self.bound.iter().filter(has_moved).copied().collect();
        moved.into_iter().for_each(|id| self.review(id, accelerator));
    }

    /// Has connections reviewed that could not be forwarded; all of them once timeouts have changed.
    fn begin_reviews(&mut self, accelerator: &Accelerator) -> io::Result<()> {
        let ticks = accelerator.lease().ticks_of_a_second()?;
        // It is measured, and each change has flows written again.
        let is_same_clock = ticks.abs_diff(self.ticks_of_a_second) * 10 <= ticks;
        if !is_same_clock {
            self.ticks_of_a_second = ticks;
        }
        let timeouts = Timeouts::read();
        if std::mem::replace(&mut self.timeouts, timeouts) != timeouts || !is_same_clock {
            self.reviews = self.known.keys().copied().collect();
        } else if self.reviews.is_empty() {
            self.reviews.extend(self.pending.iter().chain(&self.bound));
        }
        Ok(())
    }

    /// Has packets of connections counted by what keeps them. Short ones end before that is due.
    fn count_kept(&mut self, accelerator: &mut Accelerator) {
        let Some(table) = accelerator.flows_mut() else { return };
        let some: Vec<u32> = self.uncounted.iter().take(REVIEWS_AT_ONCE).copied().collect();
        for id in some {
            self.uncounted.remove(&id);
            let Some(known) = self.known.get_mut(&id).filter(|known| known.flows.is_none()) else { continue };
            let kept_by = match known.kept_by {
                Some(ConnectionKeeper::Rule) => FlowKeeper::Rule,
                Some(ConnectionKeeper::Window) => FlowKeeper::Window,
                _ => continue,
            };
            let flows = known.entry.directions().map(|direction| {
                (direction.arrives, FlowAction { kept_by: Some(kept_by), ..FlowAction::default() })
            });
            if flows.iter().all(|(key, _)| table.insert_kept(*key, kept_by)) {
                known.flows = Some(flows);
            } else {
                flows.iter().for_each(|(key, _)| table.remove(key));
            }
        }
    }

    /// Asks about flows that programs saw packets of; says whether there may be more.
    fn ask_about_candidates(&mut self, accelerator: &mut Accelerator) -> bool {
        let keys =
            accelerator.flows_mut().map_or(Vec::new(), |table| table.drain_candidates(QUESTIONS_AT_ONCE));
        for some in keys.chunks(QUESTIONS_TOGETHER) {
            self.existing.iter_mut().for_each(|existing| existing.add_asked(some));
            // A flow that was not asked about comes again.
            if self.sockets.ask(some) {
                self.read_answers(accelerator);
            }
        }
        keys.len() == QUESTIONS_AT_ONCE
    }

    fn read_answers(&mut self, accelerator: &mut Accelerator) {
        // What is applied may send requests, whose answers come behind.
        while let Some(answers) = self.sockets.next_answer() {
            for answer in answers {
                self.existing.iter_mut().for_each(|existing| existing.remove_answered(&answer));
                self.apply(answer, accelerator);
            }
        }
    }

    /// Reads what waits; says whether there may be more.
    fn read_events(&mut self, accelerator: &mut Accelerator) -> bool {
        for _ in 0..AT_ONCE {
            match self.sockets.next_events() {
                EventsRead::Some(events) => {
                    events.into_iter().for_each(|event| self.apply(event, accelerator))
                }
                EventsRead::Nothing => return false,
                EventsRead::Lost => {
                    // What ended meanwhile is not known.
                    self.overruns += 1;
                    self.forget_all(accelerator);
                    // The rest of the process has its turn before events may be lost once more.
                    return true;
                }
            }
        }
        true
    }

    pub(super) fn apply(&mut self, event: Event, accelerator: &mut Accelerator) {
        match event {
            Event::Gone(id) => {
                self.leave(id, accelerator);
                self.known.remove(&id);
                self.pending.remove(&id);
                self.uncounted.remove(&id);
                self.bound.remove(&id);
            }
            Event::There(entry) if entry.is_dying() => self.apply(Event::Gone(entry.id), accelerator),
            Event::There(entry) => {
                let id = entry.id;
                match self.known.get_mut(&id) {
                    // The number of one whose end was not heard of.
                    Some(known) if known.entry.original != entry.original => {
                        self.apply(Event::Gone(id), accelerator);
                        self.add(*entry);
                    }
                    Some(known) => known.entry.follow(*entry),
                    None => self.add(*entry),
                }
                self.note_closing(id, accelerator);
                self.review(id, accelerator);
            }
            Event::Other => {}
        }
    }

    fn add(&mut self, entry: Entry) {
        if self.known.len() < MOST_CONNECTIONS {
            let known = Known {
                entry,
                flows: None,
                kept_by: Some(ConnectionKeeper::Opening),
                has_asked: false,
                is_closing: false,
                traffic: Traffic::default(),
                exits: [None; 2],
                judged: None,
            };
            self.known.insert(known.entry.id, known);
        }
    }

    /// Takes a connection for closing if programs saw a packet that may close it. What the kernel decides
    /// by that packet stands.
    fn note_closing(&mut self, id: u32, accelerator: &mut Accelerator) {
        let (Some(known), Some(table)) = (self.known.get_mut(&id), accelerator.flows_mut()) else { return };
        let is_closing =
            |(key, _): &(FlowKey, FlowAction)| table.note(key).is_some_and(|note| note.is_closing);
        known.is_closing |= known.flows.iter().flatten().any(is_closing);
    }

    /// Leaves all to the kernel. Programs tell of the flows that go on.
    pub(crate) fn forget_all(&mut self, accelerator: &mut Accelerator) {
        let known: Vec<u32> = self.known.keys().copied().collect();
        known.into_iter().for_each(|id| self.leave(id, accelerator));
        self.known.clear();
        self.existing.iter_mut().for_each(ExistingConnections::forget_all);
        self.pending.clear();
        self.uncounted.clear();
        self.bound.clear();
    }

    /// Renews entries of TCP that had traffic since this was done last.
    fn renew_some(&mut self, accelerator: &mut Accelerator) {
        let from = self.renewals.len().saturating_sub(RENEWALS_AT_ONCE);
        for id in self.renewals.split_off(from) {
            let Some(known) = self.known.get_mut(&id).filter(|known| known.is_forwarded()) else { continue };
            let (Some(flows), Some(table)) = (&known.flows, accelerator.flows_mut()) else { continue };
            let notes = flows.each_ref().map(|(key, _)| table.note(key));
            let [Some(there), Some(back)] = notes else { continue };
            if there.is_closing || back.is_closing {
                // The ring was full when a program saw that packet.
                self.note_closing(id, accelerator);
                self.review(id, accelerator);
                continue;
            }
            if let Some(timeout) = known.traffic.renewal([there.stamp, back.stamp], &self.timeouts) {
                // One that can't be sent is for the next time.
                let _ = self.sockets.request(&known.entry.to_timeout_request(timeout));
            }
        }
    }
}

impl AsFd for ConnectionTracker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sockets.as_fd()
    }
}
