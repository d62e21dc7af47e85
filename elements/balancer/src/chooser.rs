//! Chooses members for packets: known flows keep theirs, new ones get one by the method.
use super::follow::{FlowEventKind, Followed};
use super::placement::{Placement, flow_hashes};
use super::tally::BalancerCounters;
use artery_flow::balance::{Choice, Local, MemberId};
use artery_flow::{
    Answer, FlowId, FlowKey, FlowSnapshot, FlowState, FlowTable, KeyedPacket, PacketInfo, Seed, Tick,
};
use artery_wire::TcpFlags;
use std::time::Duration;

/// Receives which member gets each packet.
pub(super) trait AssignmentSink {
    /// Reports the member that gets `packet`; None if no member takes it.
    fn on_assigned(&mut self, packet: BatchPacket, member: Option<MemberId>);
    /// The same for most packets: those of known flows.
    #[inline(always)]
    fn on_known(&mut self, packet: BatchPacket, member: MemberId) {
        self.on_assigned(packet, Some(member));
    }
}

/// A packet that was noted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BatchPacket {
    at: u32,
    /// Whether the frame's own fields allow the fast path.
    pub(super) is_fast_path: bool,
}

impl BatchPacket {
    #[inline(always)]
    pub(super) fn new(at: usize, is_plain: bool) -> BatchPacket {
        BatchPacket { at: at as u32, is_fast_path: is_plain }
    }
    /// Index of the packet in the batch.
    #[inline(always)]
    pub(super) fn index(self) -> usize {
        self.at as usize
    }
}

/// What members are chosen by.
pub(super) struct MemberChooser<'a> {
    pub(super) choice: &'a Choice,
    pub(super) local: &'a mut Local,
    pub(super) followed: &'a mut Followed,
    /// Of the hash that all machines with these members share.
    pub(super) seed: &'a Seed,
    pub(super) now: Duration,
}

/// Whether a packet opens a connection.
#[inline]
pub(super) fn is_opening(sight: &PacketInfo) -> bool {
    sight.flags.intersects(TcpFlags::SYN) && !sight.flags.intersects(TcpFlags::ACK)
}

impl MemberChooser<'_> {
    #[inline]
    pub(super) fn pick_member<K: FlowKey>(&mut self, key: &K) -> Option<MemberId> {
        self.choice.pick_member(self.local, flow_hashes(key, self.seed), self.now)
    }

    /// Assigns a single packet to a member.
    pub(super) fn assign_single<K: FlowKey>(
        &mut self,
        flows: &mut Option<FlowTable<K>>,
        KeyedPacket { key, info: sight }: &KeyedPacket<K>,
        tally: &mut BalancerCounters,
    ) -> Option<MemberId> {
        match flows.as_mut().filter(|_| !self.choice.method().is_for_packets()) {
            Some(flows) => self.assign_flow(flows, key, sight, tally),
            None => self.pick_member(key),
        }
    }

    /// The member that most likely owns the flow of a packet that is not itself part of it: the recorded
    /// member, or else the one that a new flow would get. Changes nothing.
    pub(super) fn likely_member<K: FlowKey>(
        &self,
        flows: &mut Option<FlowTable<K>>,
        key: &K,
    ) -> Option<MemberId> {
        let flows = flows.as_mut().filter(|_| !self.choice.method().is_for_packets());
        let known = flows.and_then(|flows| {
            let id = flows.find(key)?;
            Some(flows.get(id)?.answer().action)
        });
        let living = known.and_then(|action| self.choice.living_member(action));
        living.or_else(|| self.choice.guess_member(self.local, flow_hashes(key, self.seed), self.now))
    }

    /// Records what a packet has changed of a flow.
    #[cold]
    fn record_change<K: FlowKey>(&mut self, flows: &FlowTable<K>, id: FlowId, before: FlowSnapshot) {
        self.followed.all.record_change(flows.get(id), before, self.choice);
        self.followed.exceptions.record_change(flows.get(id), before, self.choice, self.now);
    }

    fn build_answer(&self, member: MemberId) -> Answer {
        Answer { action: member.action(), generation: self.choice.generation() }
    }

    /// Records a packet of a known flow, unless it `is_noted`, and returns the flow's member; the path for
    /// packets that change the state. Changes become events for a follower. A packet that opens a connection
    /// again, with the addresses and ports of an ended one, counts as a new flow: it gets another member if
    /// its own takes no new flows.
    #[inline(never)]
    pub(super) fn revisit_flow<K: FlowKey>(
        &mut self,
        flows: &mut FlowTable<K>,
        id: FlowId,
        key: &K,
        sight: &PacketInfo,
        is_noted: bool,
        tally: &mut BalancerCounters,
    ) -> Option<MemberId> {
        if is_noted {
            return self.reassign_flow(flows, id, key, tally);
        }
        let before = self.followed.is_on().then(|| flows.snapshot(id));
        let has_ended = |state| matches!(state, FlowState::Fin | FlowState::Closed);
        let is_new = is_opening(sight) && flows.get(id).is_some_and(|flow| has_ended(flow.state()));
        let answer = flows.touch_flow(id, sight, Tick::from_time(self.now))?;
        if let Some(before) = before.filter(|before| *before != flows.snapshot(id)) {
            self.record_change(flows, id, before);
        }
        match self.choice.living_member(answer.action) {
            Some(member) if !is_new || self.choice.takes_new(member) => Some(member),
            _ => self.reassign_flow(flows, id, key, tally),
        }
    }

    /// Assigns a flow to another member if its own is gone, or takes it no more.
    #[cold]
    fn reassign_flow<K: FlowKey>(
        &mut self,
        flows: &mut FlowTable<K>,
        id: FlowId,
        key: &K,
        tally: &mut BalancerCounters,
    ) -> Option<MemberId> {
        let member = self.pick_member(key)?;
        let old = flows.get(id)?.answer().action;
        flows.update_answer(id, self.build_answer(member));
        self.local.flow_ended(old);
        self.local.flow_began(member);
        if self.followed.is_on() {
            self.followed.all.record_move(flows.get(id), old, self.choice);
            let placement = Placement { choice: self.choice, seed: self.seed };
            self.followed.exceptions.compare_changed(flows, id, placement, self.now);
        }
        tally.moved += 1;
        Some(member)
    }

    /// Assigns the flows of a batch that were not found.
    #[inline(never)]
    pub(super) fn assign_new_flows<'p, K: FlowKey>(
        &mut self,
        flows: &mut FlowTable<K>,
        packets: impl Iterator<Item = ((&'p K, &'p (BatchPacket, PacketInfo)), &'p Option<FlowId>)>,
        tally: &mut BalancerCounters,
        to: &mut impl AssignmentSink,
    ) {
        for ((key, (packet, sight)), _) in packets.filter(|(_, id)| id.is_none()) {
            to.on_assigned(*packet, self.assign_flow(flows, key, sight, tally));
        }
    }

    /// Assigns a new flow to a member, and records it.
    fn assign_flow<K: FlowKey>(
        &mut self,
        flows: &mut FlowTable<K>,
        key: &K,
        sight: &PacketInfo,
        tally: &mut BalancerCounters,
    ) -> Option<MemberId> {
        // An earlier packet of the batch may have created it.
        if let Some(id) = flows.find(key) {
            return self.revisit_flow(flows, id, key, sight, false, tally);
        }
        let member = self.pick_member(key)?;
        match flows.insert(key, self.build_answer(member), sight, Tick::from_time(self.now)) {
            Ok(id) => {
                self.local.flow_began(member);
                if self.followed.is_on() {
                    self.record_new(flows, id);
                }
            }
            Err(_) => tally.unremembered += 1,
        }
        Some(member)
    }

    #[cold]
    fn record_new<K: FlowKey>(&mut self, flows: &FlowTable<K>, id: FlowId) {
        self.followed.all.record_flow(flows.get(id), FlowEventKind::Insert, self.choice);
        // METHOD chose its member just now: only by another table it can be an exception.
        if !self.choice.others().is_empty() {
            let placement = Placement { choice: self.choice, seed: self.seed };
            self.followed.exceptions.compare_changed(flows, id, placement, self.now);
        }
    }
}
