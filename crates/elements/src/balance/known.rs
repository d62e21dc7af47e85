//! What one worker knows of the flows of a family, and how it finds out who has those of a batch.
use super::about::Between;
use super::exchange::Taken;
use super::follow::{Follow, What};
use super::nat_flows::{NatFlows, answer_key};
use super::others::Others;
use super::service::Service;
use super::tally::Tally;
use crate::router::flow::xor;
use artery_table::balance::{Choice, Flow, Local, MemberId};
use artery_table::flow::{
    Answer, FlowCursor, FlowId, FlowKey, FlowRecord, FlowState, FlowTable, Imported, Pattern, Scope, Seed,
    Seen, Sight, Tick,
};
use artery_wire::TcpFlags;
use std::time::Duration;

/// Flows that are taken over at a time.
const CHUNK: usize = 1024;
/// Flows that may end until somebody takes note: more than what comes between two looks, a round or a flush makes end.
const ENDS: usize = 8192;

/// All flows are looked at in this time, if they are not too many for that: while no packet comes, 40,000 a second.
const ROUND: Duration = Duration::from_secs(2);
/// How many are looked at together.
const LEAST: usize = 64;
const MOST: usize = 4096;

/// Packets of a batch that are for the service, and the table of their flows.
pub(super) struct Known<K> {
    /// None where flows are not remembered.
    pub(super) flows: Option<FlowTable<K>>,
    /// What packets to the services have in common.
    services: Box<[Pattern<K>]>,
    /// Packets of flows that were noted: of so many the following says something.
    pub(super) count: usize,
    keys: Vec<K>,
    /// Of each key: which packet has it, and what the packet looks like.
    sights: Vec<(Noted, Sight)>,
    found: Vec<Option<FlowId>>,
    pub(super) others: Others<K>,
}

/// Who is told whose packets are.
pub(super) trait Tell {
    /// Hears who has a packet; none if nobody takes it.
    fn tell(&mut self, packet: Noted, member: Option<MemberId>);
    /// The same of most packets: of those whose flow is known.
    #[inline(always)]
    fn known(&mut self, packet: Noted, member: MemberId) {
        self.tell(packet, Some(member));
    }
}

/// A packet that was noted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noted {
    at: u32,
    /// Whether its frame may be forwarded as far as it says itself.
    pub(super) is_plain: bool,
}

impl Noted {
    #[inline(always)]
    pub(super) fn new(at: usize, is_plain: bool) -> Noted {
        Noted { at: at as u32, is_plain }
    }
    /// Its place in the batch.
    #[inline(always)]
    pub(super) fn at(self) -> usize {
        self.at as usize
    }
}

/// What members are chosen by.
pub(super) struct Chooser<'a> {
    pub(super) choice: &'a Choice,
    pub(super) local: &'a mut Local,
    pub(super) follow: &'a mut Follow,
    /// Of the hash that all machines with these members share.
    pub(super) seed: &'a Seed,
    pub(super) now: Duration,
}

impl<K: Between> Known<K> {
    /// With the table that is made for who has a service of the family, or has not.
    pub(super) fn new<E>(
        table: impl FnOnce(bool) -> Result<Option<FlowTable<K>>, E>,
        services: &[Service],
    ) -> Result<Known<K>, E> {
        let services: Box<[Pattern<K>]> = services.iter().filter_map(Service::pattern).collect();
        let mut flows = table(!services.is_empty())?;
        flows.iter_mut().for_each(|flows| flows.report_ends(ENDS));
        let (keys, sights, found) = Default::default();
        Ok(Known { flows, services, count: 0, keys, sights, found, others: Others::default() })
    }

    /// Forgets the last batch, and is ready to note packets of one of so many.
    #[inline]
    pub(super) fn notes(&mut self, packets: usize) -> Notes<'_, K> {
        self.others.clear();
        // Imports leave other keys here.
        if self.keys.len().min(self.sights.len()) < packets {
            self.keys.resize(packets, K::default());
            self.sights.resize(packets, Default::default());
        }
        let Known { keys, sights, services, others, .. } = self;
        let first = services.first().copied().unwrap_or_else(Pattern::nothing);
        Notes { keys, sights, services, first, others, count: 0 }
    }

    /// How many packets were noted.
    pub(super) fn noted(&self) -> usize {
        self.count + self.others.count()
    }

    /// Looks after flows, after so much time.
    pub(super) fn maintain(&mut self, now: Duration, since: Duration) {
        if let Some(flows) = &mut self.flows {
            let share =
                u64::from(flows.len()).saturating_mul(since.as_micros() as u64) / ROUND.as_micros() as u64;
            flows.maintain(Tick::at(now), (share as usize).clamp(LEAST, MOST));
        }
        self.others.forget(now);
    }

    /// Finds out whose the noted packets are that show no flow of their own, when that is known of all others of the batch.
    #[inline]
    pub(super) fn assign_others(&mut self, by: &mut Chooser<'_>, tally: &mut Tally, to: &mut impl Tell) {
        if self.others.count() > 0 {
            self.others.assign(&mut self.flows, by, tally, to);
        }
    }

    /// Finds out who has the flows of the noted packets, and tells of all, in any order.
    #[inline]
    pub(super) fn assign(&mut self, by: &mut Chooser<'_>, tally: &mut Tally, to: &mut impl Tell) {
        let Known { flows, keys, sights, found, count, .. } = self;
        let (keys, sights) = (&keys[..*count], &sights[..*count]);
        if keys.is_empty() {
            return;
        }
        let Some(flows) = flows.as_mut().filter(|_| !by.choice.method().is_for_packets()) else {
            for (key, (packet, _)) in keys.iter().zip(sights) {
                match by.pick(key) {
                    Some(member) => to.known(*packet, member),
                    None => to.tell(*packet, None),
                }
            }
            return;
        };
        let now = Tick::at(by.now);
        flows.find_batch(keys, found);
        let mut are_new = false;
        // Those that are known come first: a new flow may take the place of one that isn't proven.
        for ((key, (packet, sight)), id) in keys.iter().zip(sights).zip(&*found) {
            let Some(id) = *id else {
                are_new = true;
                continue;
            };
            // Nothing that opens or ends a connection gets by here, and nobody who follows need hear of what does.
            let answer = flows.glance(id, sight, now);
            match answer.and_then(|answer| by.choice.living(answer.action)) {
                Some(member) => to.known(*packet, member),
                None => to.tell(*packet, by.meet_again(flows, id, key, sight, answer.is_some(), tally)),
            }
        }
        if are_new {
            by.meet_new(flows, keys.iter().zip(sights).zip(&*found), tally, to);
        }
    }
}

/// Takes notes of a batch: apart from the rest, so that what changes with each packet is at hand.
pub(super) struct Notes<'a, K> {
    keys: &'a mut [K],
    sights: &'a mut [(Noted, Sight)],
    services: &'a [Pattern<K>],
    /// The first of them, for most there is one.
    first: Pattern<K>,
    others: &'a mut Others<K>,
    /// Packets of flows so far.
    pub(super) count: usize,
}

impl<K: Between> Notes<'_, K> {
    /// Notes a packet of the batch, from its IP header on, if it belongs to a flow of a service. Says whether it does.
    #[inline(always)]
    pub(super) fn note(&mut self, noted: Noted, packet: &[u8]) -> bool {
        match K::of(packet, Scope::Connection, 0) {
            Some(seen) => self.note_seen(noted, seen),
            None => self.others.note(noted, packet, self.services),
        }
    }

    /// The same of a packet in a plain frame.
    #[inline(always)]
    pub(super) fn note_plain(&mut self, noted: Noted, packet: &[u8]) -> bool {
        match K::of_sound(packet, 0) {
            Some(seen) => self.note_seen(noted, seen),
            None => match seen_closer(packet) {
                Some(seen) => self.note_seen(noted, seen),
                None => self.others.note(noted, packet, self.services),
            },
        }
    }

    #[inline(always)]
    fn note_seen(&mut self, noted: Noted, Seen { key, sight }: Seen<K>) -> bool {
        if !self.first.has(&key) && !is_further(&key, self.services) {
            return false;
        }
        if let Some(place) = self.keys.get_mut(self.count)
            && let Some(sight_place) = self.sights.get_mut(self.count)
        {
            *place = key;
            *sight_place = (noted, sight);
            self.count += 1;
            return true;
        }
        false
    }
}

/// What a packet shows that is not as most are. Kept apart, so that what is seen of those stays at hand.
#[inline(never)]
fn seen_closer<K: FlowKey>(packet: &[u8]) -> Option<Seen<K>> {
    K::of(packet, Scope::Connection, 0)
}

/// Whether a packet is for a service that is not the first.
#[inline(never)]
fn is_further<K: FlowKey>(key: &K, services: &[Pattern<K>]) -> bool {
    services.iter().skip(1).any(|service| service.has(key))
}

/// Whether a packet opens a connection.
#[inline]
pub(super) fn opens(sight: &Sight) -> bool {
    sight.flags.intersects(TcpFlags::SYN) && !sight.flags.intersects(TcpFlags::ACK)
}

impl Chooser<'_> {
    #[inline]
    fn pick<K: FlowKey>(&mut self, key: &K) -> Option<MemberId> {
        self.choice.pick(self.local, self.flow(key), self.now)
    }

    #[inline]
    fn flow<K: FlowKey>(&self, key: &K) -> Flow {
        Flow { hash: key.hash(self.seed), xor: xor(key.addresses(), key.ports()) }
    }

    /// Finds out who has the flow of a packet that comes by itself.
    pub(super) fn one<K: FlowKey>(
        &mut self,
        flows: &mut Option<FlowTable<K>>,
        Seen { key, sight }: &Seen<K>,
        tally: &mut Tally,
    ) -> Option<MemberId> {
        match flows.as_mut().filter(|_| !self.choice.method().is_for_packets()) {
            Some(flows) => self.meet(flows, key, sight, tally),
            None => self.pick(key),
        }
    }

    /// Who most likely has a flow, for a packet that is no part of it: who is remembered, or else who would get it. Nothing
    /// changes by that.
    pub(super) fn likely<K: FlowKey>(&self, flows: &mut Option<FlowTable<K>>, key: &K) -> Option<MemberId> {
        let flows = flows.as_mut().filter(|_| !self.choice.method().is_for_packets());
        let known = flows.and_then(|flows| {
            let id = flows.find(key)?;
            Some(flows.get(id)?.answer().action)
        });
        let living = known.and_then(|action| self.choice.living(action));
        living.or_else(|| self.choice.guess(self.local, self.flow(key), self.now))
    }

    /// How a flow looks before a packet, if somebody follows.
    #[inline]
    fn before<K: FlowKey>(&self, flows: &FlowTable<K>, id: FlowId) -> Option<(FlowState, bool)> {
        let view = if self.follow.is_on() { flows.get(id)? } else { return None };
        Some((view.state(), view.is_young()))
    }

    /// Tells what has changed since.
    #[inline]
    fn after<K: FlowKey>(&mut self, flows: &FlowTable<K>, id: FlowId, before: Option<(FlowState, bool)>) {
        if let Some(before) = before {
            self.follow.touched(flows.get(id), before, self.choice);
        }
    }

    fn answer(&self, member: MemberId) -> Answer {
        Answer { action: member.action(), generation: self.choice.generation() }
    }

    /// Finds out who has a flow that is known, where more is to be done than to note the packet, unless that `is_noted`:
    /// who follows is told, and what opens a connection in the place of one that has ended, by the same addresses and
    /// ports, is a new flow to a member that takes none.
    #[inline(never)]
    fn meet_again<K: FlowKey>(
        &mut self,
        flows: &mut FlowTable<K>,
        id: FlowId,
        key: &K,
        sight: &Sight,
        is_noted: bool,
        tally: &mut Tally,
    ) -> Option<MemberId> {
        if is_noted {
            return self.anew(flows, id, key, tally);
        }
        let before = self.before(flows, id);
        let has_ended = |state| matches!(state, FlowState::Fin | FlowState::Closed);
        let is_new = opens(sight) && flows.get(id).is_some_and(|flow| has_ended(flow.state()));
        let answer = flows.touch(id, sight, Tick::at(self.now))?;
        self.after(flows, id, before);
        match self.choice.living(answer.action) {
            Some(member) if !is_new || self.choice.takes_new(member) => Some(member),
            _ => self.anew(flows, id, key, tally),
        }
    }

    /// Gives a flow whose member is gone, or takes it no more, another one.
    #[cold]
    fn anew<K: FlowKey>(
        &mut self,
        flows: &mut FlowTable<K>,
        id: FlowId,
        key: &K,
        tally: &mut Tally,
    ) -> Option<MemberId> {
        let member = self.pick(key)?;
        let old = flows.get(id)?.answer().action;
        flows.renew(id, self.answer(member));
        self.local.ended(old);
        self.local.began(member);
        if self.follow.is_on() {
            self.follow.moved(flows.get(id), old, self.choice);
        }
        tally.moved += 1;
        Some(member)
    }

    /// Gives the flows of a batch that were not found a member each.
    #[inline(never)]
    fn meet_new<'p, K: FlowKey>(
        &mut self,
        flows: &mut FlowTable<K>,
        packets: impl Iterator<Item = ((&'p K, &'p (Noted, Sight)), &'p Option<FlowId>)>,
        tally: &mut Tally,
        to: &mut impl Tell,
    ) {
        for ((key, (packet, sight)), _) in packets.filter(|(_, id)| id.is_none()) {
            to.tell(*packet, self.meet(flows, key, sight, tally));
        }
    }

    /// Gives a flow that was not known a member, and remembers it.
    fn meet<K: FlowKey>(
        &mut self,
        flows: &mut FlowTable<K>,
        key: &K,
        sight: &Sight,
        tally: &mut Tally,
    ) -> Option<MemberId> {
        // An earlier packet of the batch may have come first.
        if let Some(id) = flows.find(key) {
            return self.meet_again(flows, id, key, sight, false, tally);
        }
        let member = self.pick(key)?;
        match flows.insert(key, self.answer(member), sight, Tick::at(self.now)) {
            Ok(id) => {
                self.local.began(member);
                if self.follow.is_on() {
                    self.follow.tell(flows.get(id), What::Insert, self.choice);
                }
            }
            Err(_) => tally.unremembered += 1,
        }
        Some(member)
    }
}

impl<K: Between> Known<K> {
    /// Takes over the flows of another balancer's copy, as far as this one has members of the same names. Where packets are
    /// translated, `nat` is told of them.
    pub(super) fn take_over(
        &mut self,
        old: &mut Known<K>,
        local: &mut Local,
        nat: Option<&NatFlows>,
        (ours, theirs): (&Choice, &Choice),
        now: Duration,
    ) {
        let (Some(flows), Some(old)) = (&mut self.flows, &old.flows) else { return };
        let (mut at, mut records) = (Some(FlowCursor::default()), Vec::new());
        while let Some(from) = at {
            at = old.export(from, CHUNK, Tick::at(now), &mut records);
            for mut record in records.drain(..) {
                let name = theirs.member(record.answer.action).map(|member| &member.name);
                if let Some(member) = name.and_then(|name| ours.named(name)) {
                    record.answer = Answer { action: member.action(), generation: ours.generation() };
                    // One for which there is no room is met anew.
                    if flows.import(&record, Tick::at(now)).is_ok() {
                        local.began(member);
                        note_answers(nat, &record, ours, now);
                    }
                }
            }
        }
    }

    /// Takes flows in that came from elsewhere.
    pub(super) fn take_in(&mut self, records: &[FlowRecord<K>], incoming: &mut Incoming<'_>) {
        let Some(flows) = &mut self.flows else { return };
        self.keys.clear();
        self.keys.extend(records.iter().map(|record| record.key));
        // They wait for memory together, and it is known whose those are that get another member.
        flows.find_batch(&self.keys, &mut self.found);
        for (record, found) in records.iter().zip(&self.found) {
            let old = found.and_then(|id| flows.get(id)).map(|known| known.answer().action);
            incoming.take(flows, record, old);
        }
        self.settle(incoming.local, incoming.follow, incoming.nat, incoming.choice);
    }

    /// Tells of flows that have ended.
    #[inline]
    pub(super) fn settle(
        &mut self,
        local: &mut Local,
        follow: &mut Follow,
        nat: Option<&NatFlows>,
        choice: &Choice,
    ) {
        for end in self.flows.iter_mut().flat_map(FlowTable::take_ends) {
            local.ended(end.answer.action);
            // A connection that was closed has no more answers; another one may use its ports, directly.
            if let Some(nat) = nat.filter(|_| matches!(end.state, FlowState::Fin | FlowState::Closed))
                && let Some(member) = choice.member(end.answer.action)
                && let Some(answer) = answer_key(&end.key, member)
            {
                nat.forget(&answer);
            }
            if follow.is_on() {
                follow.ended(&end, choice);
            }
        }
    }
}

/// What has to do with flows that come from elsewhere.
pub(super) struct Incoming<'a> {
    pub(super) choice: &'a Choice,
    pub(super) local: &'a mut Local,
    pub(super) follow: &'a mut Follow,
    /// The flows that are translated, where packets are.
    pub(super) nat: Option<&'a NatFlows>,
    pub(super) taken: Taken,
    pub(super) now: Duration,
}

/// Lets the answers of a flow that came from elsewhere be translated.
fn note_answers<K: Between>(nat: Option<&NatFlows>, record: &FlowRecord<K>, choice: &Choice, now: Duration) {
    if let Some(nat) = nat
        && let Some(member) = choice.member(record.answer.action)
        && let Some(answer) = answer_key(&record.key, member)
    {
        nat.record(&answer, now);
    }
}

impl Incoming<'_> {
    /// Takes one in; `old` is whose it was here.
    fn take<K: Between>(&mut self, flows: &mut FlowTable<K>, record: &FlowRecord<K>, old: Option<u32>) {
        let id = match flows.import(record, Tick::at(self.now)) {
            Ok(Imported::Known(_)) => {
                self.taken.known += 1;
                return;
            }
            Err(_) => {
                self.taken.no_room += 1;
                return;
            }
            Ok(Imported::New(id)) => {
                self.taken.new += 1;
                id
            }
            Ok(Imported::Newer(id)) => {
                self.taken.newer += 1;
                old.into_iter().for_each(|old| self.local.ended(old));
                id
            }
        };
        note_answers(self.nat, record, self.choice, self.now);
        MemberId::of(record.answer.action).into_iter().for_each(|member| self.local.began(member));
        if self.follow.is_on() {
            self.follow.tell(flows.get(id), What::Import, self.choice);
        }
    }
}
