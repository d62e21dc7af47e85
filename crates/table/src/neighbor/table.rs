//! The neighbors of one port in one protocol, as we find them ourselves: an [`L2Engine`] for any [`Protocol`].
//!
//! What a call costs does not depend on how many neighbors there are, but for listing, and for flushing and a port
//! that goes down, which clear every word at once (some 20 ns each) and leave the rest to polls.
//! [`poll`](L2Engine::poll) does what is due, `CHANGES` of each kind at most at a time, and once a second looks
//! whether workers have used those whose use matters, at most `LOOKS` at a time: a load for each.
//! `examples/neighbors.rs` measures all that.
//!
//! Bounds: so many neighbors, and so many new questions a second. In a full table a new neighbor takes the place of
//! one that was never known, else of one that was heard of and never used, else of one that has not been used for some
//! time. Whoever is in use, static or pinned stays.
use super::engine::{
    Action, Happened, Kind, L2Engine, Limit, NeighborCounters, NeighborEvent, NeighborView, PortChange,
    Resolution,
};
use super::entries::{At, Entries, IDLE, Rank, Slot, Trial};
use super::index::{Key, NeighborReader};
use super::links::NeighborId;
use super::places::Places;
use super::protocol::{Effect, Entry, Event, Heard, HeardKind, Protocol, State};
use super::rate::Rate;
use crate::synthetic::Random;
use artery_wire::EtherAddr;
use std::sync::Arc;
use std::time::Duration;

/// Most timers that one poll runs, most neighbors that it finds used, and most that it forgets.
const CHANGES: usize = 256;
/// Most neighbors that one poll looks at whether they were used.
const LOOKS: usize = 1024;
/// How often each of them is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How many neighbors may turn out to be in use before one of them is pushed out.
const TRIES: usize = 16;
/// How many neighbors a full table asks at a time whether they are used.
const TRIALS: usize = 64;

/// Bounds of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborLimits {
    /// Most neighbors.
    pub entries: usize,
    /// Most unknown neighbors asked for in a second.
    pub per_second: u32,
    /// Most of them at once after a rest.
    pub burst: u32,
}

impl Default for NeighborLimits {
    /// Room for a /16 on link.
    fn default() -> NeighborLimits {
        NeighborLimits { entries: 1 << 17, per_second: 1000, burst: 1000 }
    }
}

/// See the module.
pub struct NeighborTable<A, P> {
    protocol: P,
    limits: NeighborLimits,
    entries: Entries<A>,
    rate: Rate,
    random: Random,
    actions: Vec<Action<A>>,
    counters: NeighborCounters,
    /// What the protocol wants, while it is carried out.
    effects: Vec<Effect>,
    /// Who is looked at next, from the end down, while a round is under way.
    looking: Option<usize>,
    next_look: Duration,
    /// Who is asked next whether it is used, when the table is full.
    next_trial: At,
}

impl<A: Key, P: Protocol> NeighborTable<A, P> {
    /// An empty table whose neighbors' words are among `places`. The protocol's random times follow from `seed`.
    pub fn new(places: &Arc<Places>, protocol: P, limits: NeighborLimits, seed: u64) -> NeighborTable<A, P> {
        NeighborTable {
            protocol,
            limits,
            entries: Entries::new(places),
            rate: Rate::new(limits.per_second, limits.burst),
            random: Random::new(seed),
            actions: Vec::new(),
            counters: NeighborCounters::default(),
            effects: Vec::new(),
            looking: None,
            next_look: Duration::ZERO,
            next_trial: 0,
        }
    }

    /// Its rules.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }
    /// What is known of one neighbor, as the protocol knows it.
    pub fn entry(&self, address: A) -> Option<&Entry> {
        self.entries.slot(self.entries.find(address)?).known()
    }
}

/// What can be asked of it.
impl<A: Key, P: Protocol> L2Engine<A> for NeighborTable<A, P> {
    fn resolve(&mut self, address: A, now: Duration) -> Resolution {
        if self.entries.is_down() {
            return Resolution::Failed;
        }
        let at = match self.for_packet(address, now) {
            Ok(at) => at,
            Err(limit) => return Resolution::Refused(limit),
        };
        let slot = self.entries.slot_mut(at);
        slot.trial = Trial::Passed;
        let entry = slot.entry.get_or_insert_with(Entry::new);
        if entry.usable().is_none() || entry.wants_report() {
            self.step(at, Event::Packet, now);
        } else {
            self.entries.settle(at, now);
        }
        self.resolution(address)
    }

    fn pin(&mut self, address: A, now: Duration) -> Result<NeighborId, Limit> {
        let at = self.find_or_add(address, now)?;
        let slot = self.entries.slot_mut(at);
        (slot.pins, slot.trial) = (slot.pins + 1, Trial::Passed);
        let id = slot.id;
        self.entries.settle(at, now);
        Ok(id)
    }

    fn unpin(&mut self, address: A, now: Duration) {
        let Some(at) = self.find_now(address, now) else { return };
        let slot = self.entries.slot_mut(at);
        slot.pins = slot.pins.saturating_sub(1);
        if slot.pins == 0 && slot.entry.is_none() {
            self.entries.forget(at, now);
        } else {
            self.entries.settle(at, now);
        }
    }

    fn hear(&mut self, address: A, heard: Heard, for_us: bool, now: Duration) {
        if self.entries.is_down() {
            return;
        }
        let known = self.find_now(address, now).filter(|at| self.entries.slot(*at).entry.is_some());
        if known.is_none() && !self.protocol.may_create(&heard, for_us) {
            return;
        }
        let Ok(at) = self.find_or_add(address, now) else { return };
        let slot = self.entries.slot_mut(at);
        if slot.entry.is_none() {
            slot.entry = Some(Entry::new());
            slot.trial = if slot.pins == 0 { Trial::Untried } else { Trial::Passed };
        }
        self.step(at, Event::Heard(heard), now);
    }

    fn confirm(&mut self, address: A, now: Duration) {
        let Some(at) = self.find_now(address, now) else { return };
        self.entries.slot_mut(at).trial = Trial::Passed;
        self.step(at, Event::Confirmed, now);
    }

    fn set(&mut self, address: A, link: EtherAddr, kind: Kind, now: Duration) -> Result<(), Limit> {
        let at = self.find_or_add(address, now)?;
        let entry = match kind {
            Kind::Static => Entry::fixed(link, false),
            Kind::Published => Entry::fixed(link, true),
            Kind::Temporary => self.answered(link, now),
        };
        let slot = self.entries.slot_mut(at);
        // One that was silent is there again for those who were told that it is not.
        let before = slot.entry.replace(entry).filter(|entry| entry.state != State::Unreachable);
        let before = before.and_then(|entry| entry.usable());
        slot.trial = Trial::Passed;
        self.entries.settle(at, now);
        match before {
            None => self.happened(at, Happened::Resolved(link)),
            Some(from) if from != link => self.happened(at, Happened::Moved { from, to: link }),
            Some(_) => {}
        }
        Ok(())
    }

    fn delete(&mut self, address: A, now: Duration) -> bool {
        let known = self.find_now(address, now).filter(|at| self.entries.slot(*at).entry.is_some());
        if let Some(at) = known {
            self.delete_at(at, now);
        }
        known.is_some()
    }

    fn flush(&mut self, now: Duration) -> usize {
        let count = self.entries.doom_learnt();
        self.bury(now);
        count
    }

    /// With the link down no word is ready, static ones neither. Another link address of the port's own changes
    /// nothing that is known of others.
    fn port_changed(&mut self, change: PortChange, now: Duration) {
        match change {
            PortChange::Down => {
                self.entries.set_down(true);
                self.flush(now);
            }
            PortChange::Up => self.entries.set_down(false),
            PortChange::LinkAddress => {}
        }
    }

    fn poll(&mut self, now: Duration) -> Option<Duration> {
        for _ in 0..CHANGES {
            match self.entries.first_timer() {
                Some((due, at)) if due <= now => self.timer(at, now),
                _ => break,
            }
        }
        self.bury(now);
        let burials = self.entries.has_doomed().then_some(now);
        let looks = self.look(now);
        let timer = self.entries.first_timer().map(|(due, _)| due.max(now));
        [burials, looks, timer].into_iter().flatten().min()
    }

    fn take_actions(&mut self, into: &mut Vec<Action<A>>) {
        into.append(&mut self.actions);
    }

    fn reader(&self) -> NeighborReader<A> {
        self.entries.reader()
    }
    fn find(&self, address: A, now: Duration) -> Option<NeighborView<A>> {
        let slot = self.entries.slot(self.entries.find(address)?);
        slot.is_there().then(|| slot.view(now))
    }
    fn entries(&self, now: Duration) -> Vec<NeighborView<A>> {
        let slots = self.entries.all().into_iter().map(|at| self.entries.slot(at));
        slots.filter(|slot| slot.is_there()).map(|slot| slot.view(now)).collect()
    }
    fn len(&self) -> usize {
        self.entries.len()
    }
    fn counters(&self) -> NeighborCounters {
        self.counters
    }
}

/// What happens to one neighbor.
impl<A: Key, P: Protocol> NeighborTable<A, P> {
    /// Lets an event happen to a neighbor that has an entry, and carries out what follows: workers see it first, so
    /// that who is told of it finds it done.
    fn step(&mut self, at: At, event: Event, now: Duration) {
        let Some(entry) = self.entries.slot_mut(at).entry.as_mut() else { return };
        let mut effects = std::mem::take(&mut self.effects);
        self.protocol.step(entry, event, now, &mut self.random, &mut effects);
        self.entries.settle(at, now);
        for effect in &effects {
            self.carry_out(at, *effect);
        }
        if effects.iter().any(|effect| effect.ends()) {
            self.entries.forget(at, now);
        }
        effects.clear();
        self.effects = effects;
    }

    fn carry_out(&mut self, at: At, effect: Effect) {
        let slot = self.entries.slot(at);
        match effect {
            Effect::Ask(to) => {
                self.actions.push(Action::Ask { address: slot.address, to });
                self.counters.asked += 1;
            }
            Effect::Resolved => {
                if let Some(link) = slot.entry.as_ref().and_then(Entry::usable) {
                    self.happened(at, Happened::Resolved(link));
                }
            }
            Effect::Moved { from, to } => self.happened(at, Happened::Moved { from, to }),
            Effect::Doubted { kept, offered } => {
                self.happened(at, Happened::Doubted { kept, heard: offered });
            }
            Effect::Refused { kept, offered } => {
                self.happened(at, Happened::Refused { kept, heard: offered });
            }
            Effect::Unreachable => self.happened(at, Happened::Failed),
            Effect::Deleted => self.happened(at, Happened::TimedOut),
            Effect::Expired => self.happened(at, Happened::Expired),
            Effect::NoLongerRouter => self.happened(at, Happened::NoLongerRouter),
        }
    }

    /// Tells, and counts.
    fn happened(&mut self, at: At, what: Happened) {
        let slot = self.entries.slot(at);
        self.actions.push(Action::Event(NeighborEvent { address: slot.address, id: slot.id, what }));
        let counters = &mut self.counters;
        let counter = match what {
            Happened::Resolved(_) => &mut counters.resolved,
            Happened::Moved { .. } => &mut counters.moved,
            Happened::Doubted { .. } => &mut counters.doubted,
            Happened::Refused { .. } => &mut counters.refused,
            Happened::Failed => &mut counters.failed,
            Happened::Expired => &mut counters.expired,
            Happened::TimedOut => &mut counters.timed_out,
            Happened::Deleted => &mut counters.deleted,
            Happened::PushedOut => &mut counters.pushed_out,
            Happened::NoLongerRouter => &mut counters.no_longer_router,
        };
        *counter += 1;
    }

    /// What a packet's sender is to do, after the neighbor has been given the packet.
    fn resolution(&self, address: A) -> Resolution {
        let slot = self.entries.find(address).map(|at| self.entries.slot(at));
        let known = slot.and_then(|slot| Some((slot.id, slot.entry.as_ref()?)));
        match known {
            Some((id, entry)) if entry.usable().is_some() => Resolution::Ready(id),
            Some((id, entry)) if !entry.has_failed() => Resolution::Hold(id),
            _ => Resolution::Failed,
        }
    }

    /// Forgets what is known of a neighbor, because someone wants it.
    fn delete_at(&mut self, at: At, now: Duration) {
        self.happened(at, Happened::Deleted);
        self.entries.forget(at, now);
    }

    /// Forgets the next few of those that are doomed.
    fn bury(&mut self, now: Duration) {
        for _ in 0..CHANGES {
            let Some(at) = self.entries.next_doomed() else { return };
            self.delete_at(at, now);
        }
    }

    /// Where a neighbor is; what counts no more is forgotten first.
    fn find_now(&mut self, address: A, now: Duration) -> Option<At> {
        let at = self.entries.find(address)?;
        if !self.entries.slot(at).is_doomed {
            return Some(at);
        }
        self.delete_at(at, now);
        self.entries.find(address)
    }

    /// The entry of a neighbor that has just answered.
    fn answered(&mut self, link: EtherAddr, now: Duration) -> Entry {
        let kind = HeardKind::Advertisement { solicited: true, overrides: true };
        let heard = Heard { link: Some(link), kind, router: None };
        let mut entry = Entry::new();
        for event in [Event::Heard(heard), Event::Confirmed] {
            self.protocol.step(&mut entry, event, now, &mut self.random, &mut self.effects);
        }
        self.effects.clear();
        entry
    }
}

/// Time, and use.
impl<A: Key, P: Protocol> NeighborTable<A, P> {
    /// A neighbor's timer is due.
    fn timer(&mut self, at: At, now: Duration) {
        if self.entries.slot(at).is_doomed {
            return self.delete_at(at, now);
        }
        let used = self.entries.take_use(at);
        let was_seen_used = std::mem::take(&mut self.entries.slot_mut(at).was_used);
        self.step(at, Event::Timer { used: used || was_seen_used }, now);
    }

    /// Looks whether those were used whose use matters, and says when to look again.
    fn look(&mut self, now: Duration) -> Option<Duration> {
        if self.looking.is_none() && now >= self.next_look {
            self.looking = Some(self.entries.watched().len());
            self.next_look = now + LOOK_INTERVAL;
        }
        if let Some(end) = self.looking.take() {
            // Those who leave meanwhile are replaced by the last, which were looked at; who is new comes behind them.
            let end = end.min(self.entries.watched().len());
            let first = self.look_at(end, now);
            if first > 0 {
                self.looking = Some(first);
                return Some(now);
            }
        }
        (!self.entries.watched().is_empty()).then_some(self.next_look)
    }

    /// Looks at the next few in front of `end`, and says how many are left in front of those.
    fn look_at(&mut self, end: usize, now: Duration) -> usize {
        let (first, mut used) = (end.saturating_sub(LOOKS), 0);
        for place in (first..end).rev() {
            if let Some(at) = self.entries.watched().get(place).copied()
                && self.entries.take_use(at)
            {
                self.was_used(at, now);
                used += 1;
                if used == CHANGES {
                    return place;
                }
            }
        }
        first
    }

    /// A neighbor was used whose use mattered.
    fn was_used(&mut self, at: At, now: Duration) {
        let slot = self.entries.slot_mut(at);
        if slot.is_doomed {
            return;
        }
        (slot.trial, slot.was_used) = (Trial::Passed, true);
        if self.entries.slot(at).entry.as_ref().is_some_and(Entry::wants_report) {
            self.step(at, Event::Packet, now);
        } else {
            self.entries.settle(at, now);
        }
        self.entries.renew_rank(at, now);
    }
}

/// Room.
impl<A: Key, P: Protocol> NeighborTable<A, P> {
    /// The place of a packet's neighbor. Questions for new ones are counted, but for those that next hops need.
    fn for_packet(&mut self, address: A, now: Duration) -> Result<At, Limit> {
        if self.find_now(address, now).is_none() && !self.rate.take(now) {
            self.counters.over_rate += 1;
            return Err(Limit::Rate);
        }
        self.find_or_add(address, now)
    }

    fn find_or_add(&mut self, address: A, now: Duration) -> Result<At, Limit> {
        if let Some(at) = self.find_now(address, now) {
            return Ok(at);
        }
        if self.entries.len() >= self.limits.entries && !self.push_one_out(now) {
            self.counters.over_entries += 1;
            return Err(Limit::Entries);
        }
        let added = match self.entries.add(address) {
            Err(_) if self.push_one_out(now) => self.entries.add(address),
            added => added,
        };
        added.inspect_err(|_| self.counters.over_total += 1)
    }

    /// Makes room. Who turns out to be in use stays.
    fn push_one_out(&mut self, now: Duration) -> bool {
        if let Some(at) = self.entries.next_doomed() {
            self.delete_at(at, now);
            return true;
        }
        for _ in 0..TRIES {
            let Some((rank, since, at)) = self.entries.first_victim() else { break };
            if rank == Rank::Idle && now.saturating_sub(since) < IDLE {
                break;
            }
            if rank == Rank::NeverValid || !self.entries.take_use(at) {
                self.happened(at, Happened::PushedOut);
                self.entries.forget(at, now);
                return true;
            }
            self.was_used(at, now);
        }
        self.put_on_trial(now);
        false
    }

    /// Wants to hear of the next few neighbors whether they are used.
    fn put_on_trial(&mut self, now: Duration) {
        for _ in 0..TRIALS.min(self.entries.end()) {
            self.next_trial = (self.next_trial + 1) % self.entries.end();
            let slot = self.entries.slot_mut(self.next_trial);
            let is_known = slot.known().is_some_and(|entry| !entry.is_static && entry.usable().is_some());
            if is_known && slot.pins == 0 && slot.trial == Trial::Passed {
                slot.trial = Trial::Anew;
                self.entries.settle(self.next_trial, now);
            }
        }
    }
}

impl<A: Key> Slot<A> {
    /// Whether it is listed.
    fn is_there(&self) -> bool {
        self.pins > 0 || !self.is_doomed
    }
    /// As it is listed.
    fn view(&self, now: Duration) -> NeighborView<A> {
        let entry = self.known();
        let ends = entry.and_then(|entry| entry.expires.or(entry.deadline));
        NeighborView {
            address: self.address,
            id: self.id,
            link: entry.and_then(Entry::usable),
            state: entry.map_or("NONE", name),
            expires_in: ends.map(|ends| ends.saturating_sub(now)),
            is_static: entry.is_some_and(|entry| entry.is_static),
            is_published: entry.is_some_and(|entry| entry.is_published),
            is_router: entry.is_some_and(|entry| entry.is_router),
            pins: self.pins,
            asked: entry.map_or(0, |entry| entry.asked),
        }
    }
}

/// The name that `ip neigh` has for a state.
fn name(entry: &Entry) -> &'static str {
    match entry.state {
        _ if entry.is_static => "PERMANENT",
        State::Incomplete => "INCOMPLETE",
        State::Reachable => "REACHABLE",
        State::Stale => "STALE",
        State::Delay => "DELAY",
        State::Doubt | State::Probe | State::Unreachable => "PROBE",
        State::Failed => "FAILED",
    }
}
