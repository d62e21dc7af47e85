//! The flows of a family on one worker, and the assignment of a batch's packets to members.
use super::about::KeyFromParts;
use super::chooser::{AssignmentSink, BatchPacket, MemberChooser};
use super::flow_records::FlowAccounts;
use super::follow::{FlowEventKind, Followed};
use super::nat_flows::{NatFlows, answer_key};
use super::others::OtherPackets;
use super::placement::Placement;
use super::service::Service;
use super::tally::BalancerCounters;
use artery_flow::balance::{Choice, Local, MemberId};
use artery_flow::{
    Answer, FlowCursor, FlowId, FlowKey, FlowRecord, FlowState, FlowTable, Imported, KeyedPacket, OwnerId,
    PacketInfo, Pattern, RecordSource, Scope, Seed, Tick,
};
use std::time::Duration;

/// Flows that are restored at a time.
const CHUNK: usize = 1024;
/// Room for ended flows until they are processed: more than one round or flush ends between two looks.
const ENDS: usize = 8192;

/// All flows are scanned in this time, if they are not too many for that: while no packet
/// comes, 40,000 a second.
const ROUND: Duration = Duration::from_secs(2);
/// How many flows one scan covers.
const LEAST: usize = 64;
const MOST: usize = 4096;

/// Packets of a batch that are for the service, and the table of their flows.
pub(super) struct FamilyFlows<K> {
    /// None where flows are not remembered.
    pub(super) flows: Option<FlowTable<K>>,
    /// What packets to the services have in common.
    services: Box<[Pattern<K>]>,
    /// Number of packets recorded for flows; only so many entries of the vectors below are valid.
    pub(super) count: usize,
    keys: Vec<K>,
    /// For each key: the packet in the batch, and its properties.
    views: Vec<(BatchPacket, PacketInfo)>,
    found: Vec<Option<FlowId>>,
    pub(super) others: OtherPackets<K>,
}

impl<K: KeyFromParts> FamilyFlows<K> {
    /// With the table that `table` creates, given whether there are services of the family.
    pub(super) fn new<E>(
        table: impl FnOnce(bool) -> Result<Option<FlowTable<K>>, E>,
        services: &[Service],
    ) -> Result<FamilyFlows<K>, E> {
        let services: Box<[Pattern<K>]> = services.iter().filter_map(Service::key_pattern).collect();
        let mut flows = table(!services.is_empty())?;
        flows.iter_mut().for_each(|flows| flows.report_ends(ENDS));
        let (keys, sights, found) = Default::default();
        Ok(FamilyFlows {
            flows,
            services,
            count: 0,
            keys,
            views: sights,
            found,
            others: OtherPackets::default(),
        })
    }

    /// Clears the last batch, and prepares for one of so many packets.
    #[inline]
    pub(super) fn begin_batch(&mut self, packets: usize) -> BatchFlows<'_, K> {
        self.others.clear();
        // Imports leave keys of their own here.
        if self.keys.len().min(self.views.len()) < packets {
            self.keys.resize(packets, K::default());
            self.views.resize(packets, Default::default());
        }
        let FamilyFlows { keys, views: sights, services, others, .. } = self;
        let first = services.first().copied().unwrap_or_else(Pattern::match_none);
        BatchFlows { keys, sights, services, first, others, count: 0 }
    }

    /// How many packets were noted.
    pub(super) fn recorded_count(&self) -> usize {
        self.count + self.others.count()
    }

    /// Maintains flows, after so much time.
    pub(super) fn maintain_flows(&mut self, now: Duration, since: Duration) {
        if let Some(flows) = &mut self.flows {
            let share =
                u64::from(flows.len()).saturating_mul(since.as_micros() as u64) / ROUND.as_micros() as u64;
            flows.maintain_flows(Tick::from_time(now), (share as usize).clamp(LEAST, MOST));
        }
        self.others.expire_old(now);
    }

    /// Assigns the recorded packets that show no flow of their own, after all others of the batch.
    #[inline]
    pub(super) fn assign_others(
        &mut self,
        by: &mut MemberChooser<'_>,
        tally: &mut BalancerCounters,
        to: &mut impl AssignmentSink,
    ) {
        if self.others.count() > 0 {
            self.others.assign_members(&mut self.flows, by, tally, to);
        }
    }

    /// Looks up the flows of the recorded packets, and reports all members, in any order.
    #[inline]
    pub(super) fn assign_members(
        &mut self,
        by: &mut MemberChooser<'_>,
        tally: &mut BalancerCounters,
        to: &mut impl AssignmentSink,
    ) {
        let FamilyFlows { flows, keys, views: sights, found, count, .. } = self;
        let (keys, sights) = (&keys[..*count], &sights[..*count]);
        if keys.is_empty() {
            return;
        }
        let Some(flows) = flows.as_mut().filter(|_| !by.choice.method().is_for_packets()) else {
            for (key, (packet, _)) in keys.iter().zip(sights) {
                match by.pick_member(key) {
                    Some(member) => to.on_known(*packet, member),
                    None => to.on_assigned(*packet, None),
                }
            }
            return;
        };
        let now = Tick::from_time(by.now);
        flows.find_batch(keys, found);
        let mut are_new = false;
        // Known flows come first: a new flow may replace an unproven one.
        for ((key, (packet, sight)), id) in keys.iter().zip(sights).zip(&*found) {
            let Some(id) = *id else {
                are_new = true;
                continue;
            };
            // Packets that open or end a connection don't pass here, and a follower needs no
            // event for the others.
            let answer = flows.touch_fast(id, sight, now);
            match answer.and_then(|answer| by.choice.living_member(answer.action)) {
                Some(member) => to.on_known(*packet, member),
                None => {
                    to.on_assigned(*packet, by.revisit_flow(flows, id, key, sight, answer.is_some(), tally))
                }
            }
        }
        if are_new {
            by.assign_new_flows(flows, keys.iter().zip(sights).zip(&*found), tally, to);
        }
    }
}

/// Records the packets of a batch: apart from the rest, so that the data changed by each packet
/// is in the cache.
pub(super) struct BatchFlows<'a, K> {
    keys: &'a mut [K],
    sights: &'a mut [(BatchPacket, PacketInfo)],
    services: &'a [Pattern<K>],
    /// The first of them, for most there is one.
    first: Pattern<K>,
    others: &'a mut OtherPackets<K>,
    /// Packets of flows so far.
    pub(super) count: usize,
}

impl<K: KeyFromParts> BatchFlows<'_, K> {
    /// Records a packet of the batch, from its IP header on, if it belongs to a flow of a service.
    /// Returns whether it does.
    #[inline(always)]
    pub(super) fn record_packet(&mut self, noted: BatchPacket, packet: &[u8]) -> bool {
        match K::parse_packet(packet, Scope::Connection, 0) {
            Some(seen) => self.record_seen(noted, seen),
            None => self.others.record_packet(noted, packet, self.services),
        }
    }

    /// The same for a packet in a frame for the fast path.
    #[inline(always)]
    pub(super) fn record_fast_path(&mut self, noted: BatchPacket, packet: &[u8]) -> bool {
        match K::of_sound(packet, 0) {
            Some(seen) => self.record_seen(noted, seen),
            None => match parse_closer(packet) {
                Some(seen) => self.record_seen(noted, seen),
                None => self.others.record_packet(noted, packet, self.services),
            },
        }
    }

    #[inline(always)]
    fn record_seen(&mut self, noted: BatchPacket, KeyedPacket { key, info: sight }: KeyedPacket<K>) -> bool {
        if !self.first.matches_key(&key) && !is_for_other_service(&key, self.services) {
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

/// Parses a packet that is not of the usual form. Out of line, so that the common case stays in the cache.
#[inline(never)]
fn parse_closer<K: FlowKey>(packet: &[u8]) -> Option<KeyedPacket<K>> {
    K::parse_packet(packet, Scope::Connection, 0)
}

/// Whether a packet is for a service that is not the first.
#[inline(never)]
fn is_for_other_service<K: FlowKey>(key: &K, services: &[Pattern<K>]) -> bool {
    services.iter().skip(1).any(|service| service.matches_key(key))
}

impl<K: KeyFromParts> FamilyFlows<K> {
    /// Restores the flows of another balancer's copy whose members exist here by the same name. Where packets
    /// are translated, `nat` learns of the flows too.
    pub(super) fn restore_flows(
        &mut self,
        old: &mut FamilyFlows<K>,
        local: &mut Local,
        nat: Option<&NatFlows>,
        (ours, theirs): (&Choice, &Choice),
        now: Duration,
    ) {
        let (Some(flows), Some(old)) = (&mut self.flows, &old.flows) else { return };
        let (mut at, mut records) = (Some(FlowCursor::default()), Vec::new());
        let tick = Tick::from_time(now);
        while let Some(from) = at {
            at = old.walk_flows(from, CHUNK, |view| {
                records.push((view.full_record(tick), old.unreported(view.id())));
            });
            for (mut record, unreported) in records.drain(..) {
                let name = theirs.member(record.answer.action).map(|member| &member.name);
                if let Some(member) = name.and_then(|name| ours.find_named(name)) {
                    record.answer = Answer { action: member.action(), generation: ours.generation() };
                    // A flow that finds no room is a new flow when its next packet comes.
                    if let Ok(Imported::New(id) | Imported::Newer(id) | Imported::Known(id)) =
                        flows.restore_record(&record, tick)
                    {
                        unreported.iter().for_each(|period| flows.continue_account(id, *period));
                        local.flow_began(member);
                        record_answers(nat, &record, ours, now);
                    }
                }
            }
        }
    }

    /// Imports flows from another balancer.
    pub(super) fn import_flows(&mut self, records: &[Incoming<K>], incoming: &mut FlowImport<'_>) {
        let Some(flows) = &mut self.flows else { return };
        self.keys.clear();
        self.keys.extend(records.iter().map(Incoming::key));
        // The lookups wait for memory together, and find flows that get another member.
        flows.find_batch(&self.keys, &mut self.found);
        for (record, found) in records.iter().zip(&self.found) {
            match record {
                Incoming::Flow(record, owner) => {
                    // A record before this one may have made, moved or ended the flow.
                    let is_still =
                        |id: &FlowId| flows.get(*id).is_some_and(|known| known.key() == record.key);
                    let known = found.filter(is_still).or_else(|| flows.find(&record.key));
                    let old = known.and_then(|id| flows.get(id)).map(|known| known.answer().action);
                    incoming.import_flow(flows, record, *owner, old);
                }
                Incoming::Ended(key, owner, epoch) => {
                    let is_removed = flows.remove_copy(key, *owner, *epoch);
                    incoming.taken.ended += u64::from(is_removed);
                }
            }
            if incoming.followed.is_on() {
                // A flow that makes room may come again further on: its end comes first.
                incoming.process_ended_flows(flows);
            }
        }
        incoming.process_ended_flows(flows);
    }

    /// Says how long an owner of copies lives, and which of them it still has.
    pub(super) fn keep_copies(&mut self, owner: OwnerId, until: Tick, confirmed_since: Tick) {
        if let Some(flows) = &mut self.flows {
            flows.keep_copies(owner, until, confirmed_since);
        }
    }

    /// Reports flows that have ended.
    #[inline]
    pub(super) fn process_ended_flows(
        &mut self,
        local: &mut Local,
        reports: (&mut Followed, &mut FlowAccounts),
        nat: Option<&NatFlows>,
        choice: &Choice,
        now: Duration,
    ) {
        if let Some(flows) = &mut self.flows {
            report_ends(flows, local, reports, nat, choice, now);
        }
    }
}

/// Reports flows of a table that have ended.
#[inline]
fn report_ends<K: KeyFromParts>(
    flows: &mut FlowTable<K>,
    local: &mut Local,
    (followed, accounts): (&mut Followed, &mut FlowAccounts),
    nat: Option<&NatFlows>,
    choice: &Choice,
    now: Duration,
) {
    for end in flows.drain_ends() {
        local.flow_ended(end.answer.action);
        // A closed connection has no more answers; a direct one may reuse its ports.
        if let Some(nat) = nat.filter(|_| matches!(end.state, FlowState::Fin | FlowState::Closed))
            && let Some(member) = choice.member(end.answer.action)
            && let Some(answer) = answer_key(&end.key, member)
        {
            nat.remove_flow(&answer);
        }
        accounts.record_end(&end, choice, now);
        if followed.is_on() {
            followed.all.record_end(&end, choice);
            followed.exceptions.record_end(&end);
        }
    }
}

/// The results for imported flows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ImportStats {
    pub(super) new: u64,
    pub(super) newer: u64,
    pub(super) known: u64,
    pub(super) no_room: u64,
    pub(super) no_member: u64,
    pub(super) no_service: u64,
    pub(super) ended: u64,
}

/// What comes of another machine.
#[derive(Clone, Copy, Debug)]
pub(super) enum Incoming<K> {
    Flow(FlowRecord<K>, OwnerId),
    /// A flow of this owner's has ended, which was in this takeover epoch.
    Ended(K, OwnerId, u16),
}

impl<K: Copy> Incoming<K> {
    fn key(&self) -> K {
        match self {
            Incoming::Flow(record, _) => record.key,
            Incoming::Ended(key, ..) => *key,
        }
    }
}

impl ImportStats {
    pub(super) fn add(&mut self, more: ImportStats) {
        self.new += more.new;
        self.newer += more.newer;
        self.known += more.known;
        self.no_room += more.no_room;
        self.no_member += more.no_member;
        self.no_service += more.no_service;
        self.ended += more.ended;
    }
}

/// The parties of an import.
pub(super) struct FlowImport<'a> {
    pub(super) choice: &'a Choice,
    pub(super) local: &'a mut Local,
    pub(super) seed: &'a Seed,
    pub(super) followed: &'a mut Followed,
    pub(super) accounts: &'a mut FlowAccounts,
    /// The flows that are translated, where packets are.
    pub(super) nat: Option<&'a NatFlows>,
    pub(super) taken: ImportStats,
    pub(super) now: Duration,
}

/// Records an imported flow for the translation of its answers.
fn record_answers<K: KeyFromParts>(
    nat: Option<&NatFlows>,
    record: &FlowRecord<K>,
    choice: &Choice,
    now: Duration,
) {
    if let Some(nat) = nat
        && let Some(member) = choice.member(record.answer.action)
        && let Some(answer) = answer_key(&record.key, member)
    {
        nat.record_flow(&answer, now);
    }
}

impl FlowImport<'_> {
    /// Imports one flow; `old` is its member here before.
    fn import_flow<K: KeyFromParts>(
        &mut self,
        flows: &mut FlowTable<K>,
        record: &FlowRecord<K>,
        owner: OwnerId,
        old: Option<u32>,
    ) {
        let wins_ties = old.is_some_and(|old| self.is_preferred(record.answer.action, old));
        let source = RecordSource { owner, wins_ties };
        let id = match flows.import_record(record, source, Tick::from_time(self.now)) {
            Ok(Imported::Known(id)) => {
                self.taken.known += 1;
                // Where packets of the flow come by another router, only imports keep its answers known.
                let known = flows.get(id).filter(|flow| flow.is_imported());
                if known.is_some_and(|flow| flow.answer().action == record.answer.action) {
                    record_answers(self.nat, record, self.choice, self.now);
                }
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
                old.into_iter().for_each(|old| self.local.flow_ended(old));
                id
            }
        };
        record_answers(self.nat, record, self.choice, self.now);
        MemberId::from_action(record.answer.action)
            .into_iter()
            .for_each(|member| self.local.flow_began(member));
        if self.followed.is_on() {
            self.followed.all.record_flow(flows.get(id), FlowEventKind::Import, self.choice);
            let placement = Placement { choice: self.choice, seed: self.seed };
            self.followed.exceptions.compare_changed(flows, id, placement, self.now);
        }
    }

    /// Whether a member counts, where records of the same age name two: that of the lower name, since all
    /// machines know members by names alone.
    fn is_preferred(&self, action: u32, old: u32) -> bool {
        let name = |action| self.choice.member(action).map(|member| &*member.name);
        action != old && name(action) < name(old)
    }

    fn process_ended_flows<K: KeyFromParts>(&mut self, flows: &mut FlowTable<K>) {
        let reports = (&mut *self.followed, &mut *self.accounts);
        report_ends(flows, self.local, reports, self.nat, self.choice, self.now);
    }
}
