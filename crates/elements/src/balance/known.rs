//! What one worker knows of the flows of a family, and how it finds out who has those of a batch.
use super::exchange::Taken;
use super::follow::{Follow, What};
use super::service::Service;
use super::tally::Tally;
use crate::router::flow::xor;
use artery_table::balance::{Choice, Flow, Local, MemberId};
use artery_table::flow::{
    Answer, FlowCursor, FlowId, FlowKey, FlowRecord, FlowState, FlowTable, Imported, Scope, Seed, Seen,
    Sight, Tick,
};
use artery_wire::TcpFlags;
use std::time::Duration;

/// Flows that are taken over at a time.
const CHUNK: usize = 1024;
/// Flows that may end until somebody takes note: more than any part of a batch, a round or a flush makes end.
const ENDS: usize = 8192;

/// Packets of a batch that are for the service, and the table of their flows.
pub(super) struct Known<K> {
    /// None where flows are not remembered.
    pub(super) flows: Option<FlowTable<K>>,
    keys: Vec<K>,
    /// Of each key: where its packet is in the batch, and what the packet looks like.
    sights: Vec<(usize, Sight)>,
    found: Vec<Option<FlowId>>,
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

impl<K: FlowKey> Known<K> {
    pub(super) fn new(mut flows: Option<FlowTable<K>>) -> Known<K> {
        flows.iter_mut().for_each(|flows| flows.report_ends(ENDS));
        Known { flows, keys: Vec::new(), sights: Vec::new(), found: Vec::new() }
    }

    /// Forgets the last batch.
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.sights.clear();
    }

    /// Notes a packet of the batch, from its IP header on, if it belongs to a flow of a service. Says whether it does.
    #[inline]
    pub(super) fn note(&mut self, at: usize, packet: &[u8], services: &[Service]) -> bool {
        let Some(Seen { key, sight }) = K::of(packet, Scope::Connection, 0) else { return false };
        let ([_, address], [_, port]) = (key.addresses(), key.ports());
        if !services.iter().any(|service| service.is_at(address, port, sight.protocol)) {
            return false;
        }
        self.keys.push(key);
        self.sights.push((at, sight));
        true
    }

    /// Finds out who has the flows of the noted packets, and tells by place in the batch.
    pub(super) fn assign(
        &mut self,
        by: &mut Chooser<'_>,
        tally: &mut Tally,
        mut tell: impl FnMut(usize, MemberId),
    ) {
        let Known { flows, keys, sights, found } = self;
        let Some(flows) = flows.as_mut().filter(|_| !by.choice.method().is_for_packets()) else {
            for (key, (at, _)) in keys.iter().zip(sights) {
                by.pick(key).into_iter().for_each(|id| tell(*at, id));
            }
            return;
        };
        let now = Tick::at(by.now);
        flows.find_batch(keys, found);
        // Those that are known come first: a new flow may take the place of one that isn't proven.
        let all = || keys.iter().zip(&*sights).zip(&*found);
        for ((key, (at, sight)), id) in all() {
            let Some(id) = id else { continue };
            let (before, is_new) = (by.before(flows, *id), opens_again(flows, *id, sight));
            if let Some(answer) = flows.touch(*id, sight, now) {
                by.after(flows, *id, before);
                let member = match by.choice.living(answer.action) {
                    Some(member) if !is_new || by.choice.takes_new(member) => Some(member),
                    _ => by.anew(flows, *id, key, tally),
                };
                member.into_iter().for_each(|member| tell(*at, member));
            }
        }
        for ((key, (at, sight)), _) in all().filter(|(_, id)| id.is_none()) {
            by.meet(flows, key, sight, tally).into_iter().for_each(|member| tell(*at, member));
        }
    }
}

/// Whether a packet opens a connection in the place of one that has ended, by the same addresses and ports: that is a new
/// flow to a member that takes none.
#[inline]
fn opens_again<K: FlowKey>(flows: &FlowTable<K>, id: FlowId, sight: &Sight) -> bool {
    let opens = sight.flags.intersects(TcpFlags::SYN) && !sight.flags.intersects(TcpFlags::ACK);
    opens && flows.get(id).is_some_and(|flow| matches!(flow.state(), FlowState::Fin | FlowState::Closed))
}

impl Chooser<'_> {
    #[inline]
    fn pick<K: FlowKey>(&mut self, key: &K) -> Option<MemberId> {
        let flow = Flow { hash: key.hash(self.seed), xor: xor(key.addresses(), key.ports()) };
        self.choice.pick(self.local, flow, self.now)
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

    /// Gives a flow that was not known a member, and remembers it.
    fn meet<K: FlowKey>(
        &mut self,
        flows: &mut FlowTable<K>,
        key: &K,
        sight: &Sight,
        tally: &mut Tally,
    ) -> Option<MemberId> {
        // An earlier packet of the batch may have come first.
        if let Some(known) = flows.find(key).and_then(|id| flows.get(id))
            && let Some(member) = self.choice.living(known.answer().action)
        {
            let id = known.id();
            let before = self.before(flows, id);
            flows.touch(id, sight, Tick::at(self.now));
            self.after(flows, id, before);
            return Some(member);
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

impl<K: FlowKey> Known<K> {
    /// Takes over the flows of another balancer's copy, as far as this one has members of the same names.
    pub(super) fn take_over(
        &mut self,
        old: &mut Known<K>,
        local: &mut Local,
        (ours, theirs): (&Choice, &Choice),
        now: Tick,
    ) {
        let (Some(flows), Some(old)) = (&mut self.flows, &old.flows) else { return };
        let (mut at, mut records) = (Some(FlowCursor::default()), Vec::new());
        while let Some(from) = at {
            at = old.export(from, CHUNK, now, &mut records);
            for mut record in records.drain(..) {
                let name = theirs.member(record.answer.action).map(|member| &member.name);
                if let Some(member) = name.and_then(|name| ours.named(name)) {
                    record.answer = Answer { action: member.action(), generation: ours.generation() };
                    // One for which there is no room is met anew.
                    if flows.import(&record, now).is_ok() {
                        local.began(member);
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
        self.settle(incoming.local, incoming.follow, incoming.choice);
    }

    /// Tells of flows that have ended.
    #[inline]
    pub(super) fn settle(&mut self, local: &mut Local, follow: &mut Follow, choice: &Choice) {
        for end in self.flows.iter_mut().flat_map(FlowTable::take_ends) {
            local.ended(end.answer.action);
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
    pub(super) taken: Taken,
    pub(super) now: Tick,
}

impl Incoming<'_> {
    /// Takes one in; `old` is whose it was here.
    fn take<K: FlowKey>(&mut self, flows: &mut FlowTable<K>, record: &FlowRecord<K>, old: Option<u32>) {
        let id = match flows.import(record, self.now) {
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
        MemberId::of(record.answer.action).into_iter().for_each(|member| self.local.began(member));
        if self.follow.is_on() {
            self.follow.tell(flows.get(id), What::Import, self.choice);
        }
    }
}
