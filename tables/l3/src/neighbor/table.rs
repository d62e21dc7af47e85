//! The neighbors of one port in one protocol, as we find them ourselves: an [`L2Engine`] for any
//! [`Protocol`].
//!
//! What a call costs does not depend on how many neighbors there are, except for listing, flushing, and a
//! port that goes down, which clear every word at once (some 20 ns each) and leave the rest to polls.
//! [`poll`](L2Engine::poll) does what is due, `CHANGES` of each kind at most at a time, and once a second
//! looks whether workers have used those whose use matters, at most `LOOKS` at a time: a load for each.
//! `examples/neighbors.rs` measures all that.
//!
//! Bounds: a number of neighbors, and a rate of new solicitations. In a full table a new neighbor takes the
//! place of one that was never known, else of one that was heard of and never used, else of one that has not
//! been used for some time. A neighbor that is in use, static or pinned stays.
use super::engine::{
    Action, Happened, Kind, L2Engine, Limit, NeighborCounters, NeighborEvent, NeighborView, PortChange,
    Resolution,
};
use super::entries::{At, Entries, IDLE, Rank, Slot, Trial};
use super::index::{Key, NeighborReader};
use super::links::NeighborId;
use super::neighbor_ids::NeighborIds;
use super::protocol::{Effect, Event, NeighborEntry, NeighborUpdate, NeighborUpdateKind, Protocol, State};
use super::rate::Rate;
use artery_wire::EtherAddr;
use artery_wire::Random;
use std::sync::Arc;
use std::time::Duration;

/// Most timers that one poll runs, most neighbors that it finds used, and most that it forgets.
const CHANGES: usize = 256;
/// Most neighbors whose use one poll checks.
const USE_CHECKS: usize = 1024;
/// How often the use of each of them is checked.
const USE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How many neighbors may turn out to be in use before one of them is evicted.
const TRIES: usize = 16;
/// Number of neighbors of a full table whose use is checked at a time.
const TRIALS: usize = 64;

/// Bounds of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborLimits {
    /// Largest number of neighbors in the table.
    pub entries: usize,
    /// Most solicitations of unknown neighbors in a second.
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

/// The neighbors of one port in one protocol.
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
    /// The neighbor whose use is checked next, from the end down, during a round.
    looking: Option<usize>,
    next_look: Duration,
    /// The neighbor whose use is checked next, when the table is full.
    next_trial: At,
}

impl<A: Key, P: Protocol> NeighborTable<A, P> {
    /// An empty table whose neighbors' words are among `places`. The protocol's random
    /// times follow from `seed`.
    pub fn new(
        places: &Arc<NeighborIds>,
        protocol: P,
        limits: NeighborLimits,
        seed: u64,
    ) -> NeighborTable<A, P> {
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

    /// The protocol that drives the table's entries.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }
    /// What is known of one neighbor, as the protocol knows it.
    pub fn entry(&self, address: A) -> Option<&NeighborEntry> {
        self.entries.slot(self.entries.find(address)?).known_entry()
    }
}

/// Operations for control: see [`L2Engine`].
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
        let entry = slot.entry.get_or_insert_with(NeighborEntry::new);
        if entry.usable_link().is_none() || entry.wants_report() {
            self.step_entry(at, Event::Packet, now);
        } else {
            self.entries.sync_neighbor(at, now);
        }
        self.resolution_of(address)
    }

    fn pin_neighbor(&mut self, address: A, now: Duration) -> Result<NeighborId, Limit> {
        let at = self.find_or_add(address, now)?;
        let slot = self.entries.slot_mut(at);
        (slot.pins, slot.trial) = (slot.pins + 1, Trial::Passed);
        let id = slot.id;
        self.entries.sync_neighbor(at, now);
        Ok(id)
    }

    fn unpin_neighbor(&mut self, address: A, now: Duration) {
        let Some(at) = self.find_now(address, now) else { return };
        let slot = self.entries.slot_mut(at);
        slot.pins = slot.pins.saturating_sub(1);
        if slot.pins == 0 && slot.entry.is_none() {
            self.entries.forget_neighbor(at, now);
        } else {
            self.entries.sync_neighbor(at, now);
        }
    }

    fn learn_neighbor(&mut self, address: A, heard: NeighborUpdate, for_us: bool, now: Duration) {
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
            slot.entry = Some(NeighborEntry::new());
            slot.trial = if slot.pins == 0 { Trial::Untried } else { Trial::Passed };
        }
        self.step_entry(at, Event::Learned(heard), now);
    }

    fn confirm_neighbor(&mut self, address: A, now: Duration) {
        let Some(at) = self.find_now(address, now) else { return };
        self.entries.slot_mut(at).trial = Trial::Passed;
        self.step_entry(at, Event::Confirmed, now);
    }

    fn set_neighbor(&mut self, address: A, link: EtherAddr, kind: Kind, now: Duration) -> Result<(), Limit> {
        let at = self.find_or_add(address, now)?;
        let entry = match kind {
            Kind::Static => NeighborEntry::new_static(link, false),
            Kind::Published => NeighborEntry::new_static(link, true),
            Kind::Temporary => self.answered_entry(link, now),
        };
        let slot = self.entries.slot_mut(at);
        // A neighbor that was reported unreachable is reported as back.
        let before = slot.entry.replace(entry).filter(|entry| entry.state != State::Unreachable);
        let before = before.and_then(|entry| entry.usable_link());
        slot.trial = Trial::Passed;
        self.entries.sync_neighbor(at, now);
        match before {
            None => self.report_event(at, Happened::Resolved(link)),
            Some(from) if from != link => self.report_event(at, Happened::Moved { from, to: link }),
            Some(_) => {}
        }
        Ok(())
    }

    fn learned_entries(&self) -> Vec<(A, NeighborEntry)> {
        let slots = self.entries.all_sorted().into_iter().map(|at| self.entries.slot(at));
        let known = slots.filter_map(|slot| Some((slot.address, slot.known_entry()?)));
        known.filter(|(_, entry)| !entry.is_static).map(|(address, entry)| (address, entry.clone())).collect()
    }

    /// Entries without a link address are left out, and all where the protocol itself would learn none.
    fn restore_neighbor(&mut self, address: A, entry: NeighborEntry, now: Duration) -> Result<(), Limit> {
        let heard = NeighborUpdate { link: entry.link, kind: NeighborUpdateKind::Solicitation, router: None };
        if !self.protocol.may_create(&heard, true) {
            return Ok(());
        }
        let at = self.find_or_add(address, now)?;
        let link = entry.usable_link();
        let is_silent = matches!(entry.state, State::Unreachable | State::Failed);
        let slot = self.entries.slot_mut(at);
        (slot.entry, slot.trial) = (Some(entry), Trial::Passed);
        self.entries.sync_neighbor(at, now);
        if let Some(link) = link {
            self.report_event(at, Happened::Resolved(link));
        }
        if is_silent {
            self.report_event(at, Happened::Failed);
        }
        Ok(())
    }

    fn delete_neighbor(&mut self, address: A, now: Duration) -> bool {
        let known = self.find_now(address, now).filter(|at| self.entries.slot(*at).entry.is_some());
        if let Some(at) = known {
            self.delete_at(at, now);
        }
        known.is_some()
    }

    fn flush_neighbors(&mut self, now: Duration) -> usize {
        let count = self.entries.mark_learned_for_removal();
        self.remove_doomed(now);
        count
    }

    /// With the link down no word is ready, static ones neither. Another link address of the port's own
    /// changes nothing that is known of others.
    fn port_changed(&mut self, change: PortChange, now: Duration) {
        match change {
            PortChange::Down => {
                self.entries.set_down(true);
                self.flush_neighbors(now);
            }
            PortChange::Up => self.entries.set_down(false),
            PortChange::LinkAddress => {}
        }
    }

    fn poll(&mut self, now: Duration) -> Option<Duration> {
        for _ in 0..CHANGES {
            match self.entries.first_timer() {
                Some((due, at)) if due <= now => self.fire_timer(at, now),
                _ => break,
            }
        }
        self.remove_doomed(now);
        let burials = self.entries.has_marked().then_some(now);
        let looks = self.check_use(now);
        let timer = self.entries.first_timer().map(|(due, _)| due.max(now));
        [burials, looks, timer].into_iter().flatten().min()
    }

    fn drain_actions(&mut self, into: &mut Vec<Action<A>>) {
        into.append(&mut self.actions);
    }

    fn reader(&self) -> NeighborReader<A> {
        self.entries.reader()
    }
    fn find_neighbor(&self, address: A, now: Duration) -> Option<NeighborView<A>> {
        let slot = self.entries.slot(self.entries.find(address)?);
        slot.is_there().then(|| slot.view(now))
    }
    fn entries(&self, now: Duration) -> Vec<NeighborView<A>> {
        let slots = self.entries.all_sorted().into_iter().map(|at| self.entries.slot(at));
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
    /// Applies an event to a neighbor's entry and carries out the effects: workers see them
    /// before they are reported.
    fn step_entry(&mut self, at: At, event: Event, now: Duration) {
        let Some(entry) = self.entries.slot_mut(at).entry.as_mut() else { return };
        let mut effects = std::mem::take(&mut self.effects);
        self.protocol.step(entry, event, now, &mut self.random, &mut effects);
        self.entries.sync_neighbor(at, now);
        for effect in &effects {
            self.carry_out(at, *effect);
        }
        if effects.iter().any(|effect| effect.is_end()) {
            self.entries.forget_neighbor(at, now);
        }
        effects.clear();
        self.effects = effects;
    }

    fn carry_out(&mut self, at: At, effect: Effect) {
        let slot = self.entries.slot(at);
        match effect {
            Effect::Solicit(to) => {
                self.actions.push(Action::Ask { address: slot.address, to });
                self.counters.asked += 1;
            }
            Effect::Resolved => {
                if let Some(link) = slot.entry.as_ref().and_then(NeighborEntry::usable_link) {
                    self.report_event(at, Happened::Resolved(link));
                }
            }
            Effect::Moved { from, to } => self.report_event(at, Happened::Moved { from, to }),
            Effect::Doubted { kept, offered } => {
                self.report_event(at, Happened::Contested { kept, heard: offered });
            }
            Effect::Refused { kept, offered } => {
                self.report_event(at, Happened::Refused { kept, heard: offered });
            }
            Effect::Unreachable => self.report_event(at, Happened::Failed),
            Effect::Deleted => self.report_event(at, Happened::TimedOut),
            Effect::Expired => self.report_event(at, Happened::Expired),
            Effect::NoLongerRouter => self.report_event(at, Happened::NoLongerRouter),
        }
    }

    /// Queues an event for the caller and counts it.
    fn report_event(&mut self, at: At, what: Happened) {
        let slot = self.entries.slot(at);
        self.actions.push(Action::Event(NeighborEvent { address: slot.address, id: slot.id, what }));
        let counters = &mut self.counters;
        let counter = match what {
            Happened::Resolved(_) => &mut counters.resolved,
            Happened::Moved { .. } => &mut counters.moved,
            Happened::Contested { .. } => &mut counters.doubted,
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
    fn resolution_of(&self, address: A) -> Resolution {
        let slot = self.entries.find(address).map(|at| self.entries.slot(at));
        let known = slot.and_then(|slot| Some((slot.id, slot.entry.as_ref()?)));
        match known {
            Some((id, entry)) if entry.usable_link().is_some() => Resolution::Ready(id),
            Some((id, entry)) if !entry.has_failed() => Resolution::Hold(id),
            _ => Resolution::Failed,
        }
    }

    /// Forgets what is known of a neighbor, because someone wants it.
    fn delete_at(&mut self, at: At, now: Duration) {
        self.report_event(at, Happened::Deleted);
        self.entries.forget_neighbor(at, now);
    }

    /// Forgets the next few of those that are doomed.
    fn remove_doomed(&mut self, now: Duration) {
        for _ in 0..CHANGES {
            let Some(at) = self.entries.next_marked() else { return };
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
    fn answered_entry(&mut self, link: EtherAddr, now: Duration) -> NeighborEntry {
        let kind = NeighborUpdateKind::Advertisement { solicited: true, overrides: true };
        let heard = NeighborUpdate { link: Some(link), kind, router: None };
        let mut entry = NeighborEntry::new();
        for event in [Event::Learned(heard), Event::Confirmed] {
            self.protocol.step(&mut entry, event, now, &mut self.random, &mut self.effects);
        }
        self.effects.clear();
        entry
    }
}

/// Timers, and checks of use.
impl<A: Key, P: Protocol> NeighborTable<A, P> {
    /// A neighbor's timer is due.
    fn fire_timer(&mut self, at: At, now: Duration) {
        if self.entries.slot(at).is_doomed {
            return self.delete_at(at, now);
        }
        let used = self.entries.clear_used(at);
        let was_seen_used = std::mem::take(&mut self.entries.slot_mut(at).was_used);
        self.step_entry(at, Event::Timer { used: used || was_seen_used }, now);
    }

    /// Looks whether those were used whose use matters, and says when to look again.
    fn check_use(&mut self, now: Duration) -> Option<Duration> {
        if self.looking.is_none() && now >= self.next_look {
            self.looking = Some(self.entries.watched().len());
            self.next_look = now + USE_CHECK_INTERVAL;
        }
        if let Some(end) = self.looking.take() {
            // Those who leave meanwhile are replaced by the last, which were looked at; who is new comes
            // behind them.
            let end = end.min(self.entries.watched().len());
            let first = self.check_watched(end, now);
            if first > 0 {
                self.looking = Some(first);
                return Some(now);
            }
        }
        (!self.entries.watched().is_empty()).then_some(self.next_look)
    }

    /// Looks at the next few in front of `end`, and says how many are left in front of those.
    fn check_watched(&mut self, end: usize, now: Duration) -> usize {
        let (first, mut used) = (end.saturating_sub(USE_CHECKS), 0);
        for place in (first..end).rev() {
            if let Some(at) = self.entries.watched().get(place).copied()
                && self.entries.clear_used(at)
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
        if self.entries.slot(at).entry.as_ref().is_some_and(NeighborEntry::wants_report) {
            self.step_entry(at, Event::Packet, now);
        } else {
            self.entries.sync_neighbor(at, now);
        }
        self.entries.renew_rank(at, now);
    }
}

/// Limits, and room for new entries.
impl<A: Key, P: Protocol> NeighborTable<A, P> {
    /// The place of a packet's neighbor. Solicitations of new ones count against the rate, except of those
    /// that next hops need.
    fn for_packet(&mut self, address: A, now: Duration) -> Result<At, Limit> {
        if self.find_now(address, now).is_none() && !self.rate.try_acquire(now) {
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
        let added = match self.entries.add_neighbor(address) {
            Err(_) if self.push_one_out(now) => self.entries.add_neighbor(address),
            added => added,
        };
        added.inspect_err(|_| self.counters.over_total += 1)
    }

    /// Makes room. Neighbors that turn out to be in use stay.
    fn push_one_out(&mut self, now: Duration) -> bool {
        if let Some(at) = self.entries.next_marked() {
            self.delete_at(at, now);
            return true;
        }
        for _ in 0..TRIES {
            let Some((rank, since, at)) = self.entries.first_victim() else { break };
            if rank == Rank::Idle && now.saturating_sub(since) < IDLE {
                break;
            }
            if rank == Rank::NeverValid || !self.entries.clear_used(at) {
                self.report_event(at, Happened::PushedOut);
                self.entries.forget_neighbor(at, now);
                return true;
            }
            self.was_used(at, now);
        }
        self.start_trials(now);
        false
    }

    /// Requests reports of use for the next few neighbors.
    fn start_trials(&mut self, now: Duration) {
        for _ in 0..TRIALS.min(self.entries.end()) {
            self.next_trial = (self.next_trial + 1) % self.entries.end();
            let slot = self.entries.slot_mut(self.next_trial);
            let is_known =
                slot.known_entry().is_some_and(|entry| !entry.is_static && entry.usable_link().is_some());
            if is_known && slot.pins == 0 && slot.trial == Trial::Passed {
                slot.trial = Trial::Anew;
                self.entries.sync_neighbor(self.next_trial, now);
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
        let entry = self.known_entry();
        let ends = entry.and_then(|entry| entry.expires.or(entry.deadline));
        NeighborView {
            address: self.address,
            id: self.id,
            link: entry.and_then(NeighborEntry::usable_link),
            state: entry.map_or("NONE", state_name),
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
fn state_name(entry: &NeighborEntry) -> &'static str {
    match entry.state {
        _ if entry.is_static => "PERMANENT",
        State::Incomplete => "INCOMPLETE",
        State::Reachable => "REACHABLE",
        State::Stale => "STALE",
        State::Delay => "DELAY",
        State::Contested | State::Probe | State::Unreachable => "PROBE",
        State::Failed => "FAILED",
    }
}
