//! The slow path of a router, for exceptions from the fast path, on one worker.
//!
//! A packet is classified first, which changes nothing, and then handled by its verdict. Packets that the
//! router sends itself are classified and sent like any other. Packets that wait for a neighbor are
//! classified again when the wait is over.
use super::claims::{ClaimAction, Claims};
use super::classify::{LocalState, classify};
use super::icmp::{self, IcmpSource, IcmpSuppressed};
use super::limits::{Rate, RateBucket, RateLimits};
use super::local_fragments::{Fragments, no_fragments};
use super::pending_queue::{Neighbor, PendingPacket, PendingQueue};
use super::shared_state::{Counters, SharedState, lock_mutex};
use super::verdict::{
    EgressPlan, IcmpReply, IngressInfo, LinkDestination, NeighborMessage, Origin, RouterVerdict, TablesView,
};
use artery_engine::{Batch, Context, DropReason, Packet, Time, anno};
use artery_forward::decision_cache;
use artery_forward::events::{AddressEvent, Event};
use artery_forward::fast_path::LINK;
use artery_forward::flow;
use artery_forward::flow::FlowHasher;
use artery_forward::order::ChangeMark;
use artery_forward::shared::SharedRouter;
use artery_l3::neighbor::Link;
use artery_l3::neighbor::claim::ClaimEffect;
use artery_l3::path::{ForwardDecision, Outcome};
use artery_l3::router::{PortAction, PortView};
use artery_l3::{PortId, router::Tables};
use artery_rcu::Turn;
use artery_wire::{EtherAddr, EtherType, Ethernet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How the slow path behaves.
#[derive(Clone, Debug)]
pub(super) struct SlowPathSettings {
    /// The host's MAC address, if there is a host.
    pub(super) host: Option<EtherAddr>,
    /// Whether each port has an interface of its own on the host.
    pub(super) has_host_ports: bool,
    /// Most packets that wait for one neighbor, on each worker.
    pub(super) hold: usize,
    /// Errors, redirects and answers in all, and to one destination.
    pub(super) icmp: Rate,
    pub(super) icmp_each: Rate,
    /// Rate of processed messages between neighbors.
    pub(super) messages: Rate,
    /// Rate of unknown neighbors that control is asked to resolve.
    pub(super) resolutions: Rate,
}

/// What a call of the slow path works with.
pub(super) struct SlowPathContext<'a, 'c> {
    pub(super) router: &'a SharedRouter,
    pub(super) cx: &'a mut Context<'c>,
    pub(super) turn: &'a Turn<'a>,
    pub(super) now: Duration,
}

impl<'a, 'c: 'a> SlowPathContext<'a, 'c> {
    pub(super) fn new(router: &'a SharedRouter, cx: &'a mut Context<'c>) -> SlowPathContext<'a, 'c> {
        let (turn, now) = (cx.turn(), cx.now().since_epoch());
        SlowPathContext { router, cx, turn, now }
    }
    /// The router's ports and routes, in this turn.
    pub(super) fn view(&self) -> TablesView<'a> {
        let readers = self.router.readers();
        TablesView { ports: readers.ports.read(self.turn), v4: &readers.v4, v6: &readers.v6, turn: self.turn }
    }
    pub(super) fn port(&self, port: PortId) -> Option<&'a PortView> {
        self.view().port(port)
    }
    /// The link state of a neighbor.
    pub(super) fn neighbor_link(&self, &(port, address): &Neighbor) -> Link {
        self.view().neighbor_link(port, address)
    }
    /// Reports to control that a neighbor is used.
    pub(super) fn report_use(&self, (port, address): &Neighbor) {
        let TablesView { v4, v6, turn, .. } = self.view();
        match address {
            IpAddr::V4(address) => {
                v4.find_neighbor(turn, *port, address.to_bits()).map(|id| v4.report_use(id))
            }
            IpAddr::V6(address) => {
                v6.find_neighbor(turn, *port, address.to_bits()).map(|id| v6.report_use(id))
            }
        };
    }
    /// Sends bytes as a frame by a port.
    pub(super) fn send_frame(&mut self, port: PortId, frame: &[u8]) -> bool {
        match self.cx.pool().packet_from(frame) {
            Some(packet) => self.cx.send(port.0.into(), packet),
            None => {
                self.cx.count_discarded(DropReason::PoolEmpty, 1);
                return false;
            }
        }
        true
    }
}

pub(super) struct SlowPath {
    pub(super) settings: SlowPathSettings,
    pub(super) shared: Arc<SharedState>,
    pub(super) counters: Counters,
    /// The published copy of the counters.
    published_counters: Arc<Mutex<Counters>>,
    pub(super) pending: PendingQueue<PendingPacket>,
    pub(super) limits: RateLimits,
    messages: RateBucket,
    /// Messages of neighbors that packets wait for.
    answers: RateBucket,
    /// Messages from the known MAC addresses of neighbors.
    confirmations: RateBucket,
    pub(super) asks: RateBucket,
    flows: FlowHasher,
    pub(super) fragments: Fragments,
    /// Identification for the IP headers of the router's packets.
    pub(super) ids: u32,
    pub(super) failures_seen: u64,
    /// The number of the worker, under which its progress is published to its fast path.
    pub(super) worker: usize,
    pub(super) seen_changes: ChangeMark,
    /// When pending packets are checked next, even without news.
    pub(super) next_poll: Duration,
    /// When the tables and claims have a timer due.
    due: Option<Duration>,
    /// The actions that they require; kept to reuse the memory.
    actions: Vec<(PortId, PortAction)>,
    claim_actions: Vec<ClaimAction>,
}

impl SlowPath {
    /// The slow path of a worker, of which there are so many.
    pub(super) fn new(
        settings: SlowPathSettings,
        together: &Arc<SharedState>,
        (worker, workers): (usize, usize),
        ids: u32,
    ) -> SlowPath {
        let counters = together.add_worker();
        SlowPath {
            counters: Counters::default(),
            published_counters: counters,
            pending: PendingQueue::new(settings.hold, together.packet_budget()),
            limits: RateLimits::new(
                settings.icmp.split_among(workers),
                settings.icmp_each.split_among(workers),
            ),
            messages: RateBucket::new(settings.messages.split_among(workers)),
            answers: RateBucket::new(settings.messages.split_among(workers)),
            confirmations: RateBucket::new(settings.messages.split_among(workers)),
            asks: RateBucket::new(settings.resolutions.split_among(workers)),
            flows: FlowHasher::default(),
            fragments: no_fragments(),
            ids,
            failures_seen: 0,
            worker,
            seen_changes: ChangeMark::NOTHING,
            next_poll: Duration::ZERO,
            due: Some(Duration::ZERO),
            actions: Vec::new(),
            claim_actions: Vec::new(),
            shared: together.clone(),
            settings,
        }
    }

    /// Receives a frame from a port or from the host.
    pub(super) fn receive(&mut self, packet: Packet, from: Origin, job: &mut SlowPathContext<'_, '_>) {
        let came = match job.view().ingress_info(packet.data(), from) {
            Ok(came) => came,
            Err(reason) => return job.cx.discard(packet, reason),
        };
        let kind = Ethernet::new(packet.data()).map(|ethernet| ethernet.ether_type());
        let came = IngressInfo {
            redirected_to: kind.ok().and_then(|kind| decision_cache::destination_annotation(&packet, kind)),
            ..came
        };
        match (kind, from) {
            // Received only since the port receives all frames, as ports with VLANs do.
            (Ok(EtherType::ARP), _) if came.to == LinkDestination::Other => {
                job.cx.discard(packet, DropReason::OtherStation)
            }
            (Ok(EtherType::ARP), Origin::Port(port)) => {
                self.receive_message(packet, port, NeighborMessage::Arp, job)
            }
            (Ok(EtherType::ARP), _) => self.receive_host_arp(packet, job),
            (Ok(EtherType::IPV6), Origin::Host) => self.receive_from_host(packet, came, job),
            (Ok(EtherType::IPV4 | EtherType::IPV6), _) => self.handle(packet, came, job),
            (Ok(_), _) if self.is_for_host_port(came) => self.hand_to_host(packet, came, job),
            _ => job.cx.discard(packet, DropReason::UnknownEtherType),
        }
    }

    /// Classifies a frame with an IP packet.
    fn classify(
        &mut self,
        packet: &Packet,
        came: IngressInfo,
        job: &SlowPathContext<'_, '_>,
    ) -> RouterVerdict {
        let has_host = self.has_host(job);
        let SlowPath { flows, shared: together, .. } = self;
        let frame = packet.data();
        let longest = if packet.has_offload() { packet.segment_len(LINK) } else { usize::MAX };
        let own = LocalState { is_usable: &|port, address| together.is_usable(port, address), has_host };
        classify(frame, longest, came, &job.view(), own, &mut |method| flows.flow_number(frame, method))
    }

    /// Handles a frame that holds an IP packet, by its verdict.
    pub(super) fn handle(&mut self, packet: Packet, came: IngressInfo, job: &mut SlowPathContext<'_, '_>) {
        let verdict = self.classify(&packet, came, job);
        if packet.has_offload() && !can_keep_offloads(&packet, &verdict) {
            return self.handle_after_offloads(packet, came, job);
        }
        match verdict {
            RouterVerdict::Forward(leave) => self.forward_packet(packet, &leave, came, job),
            RouterVerdict::Hold(leave) => self.hold_packet(packet, &leave, came, job),
            RouterVerdict::EchoReply => self.answer_echo(packet, came, job),
            RouterVerdict::Reassemble => self.reassemble_fragment(packet, came, job),
            RouterVerdict::Host => self.hand_to_host(packet, came, job),
            RouterVerdict::Neighbor(message) => match came.from {
                Origin::Port(port) => self.receive_message(packet, port, message, job),
                _ => self.receive_host_arp(packet, job),
            },
            RouterVerdict::Error(reply, reason) => {
                self.send_icmp_error(reply, packet.data().get(LINK..).unwrap_or_default(), came, job);
                job.cx.discard(packet, reason);
            }
            RouterVerdict::Discard(reason) => job.cx.discard(packet, reason),
        }
    }

    /// Deals with what a packet is when all is done that its sender left.
    fn handle_after_offloads(
        &mut self,
        packet: Packet,
        came: IngressInfo,
        job: &mut SlowPathContext<'_, '_>,
    ) {
        let mut packets = job.cx.scratch_batch();
        packets.push(packet);
        job.cx.apply_offloads(&mut packets);
        packets.drain().for_each(|packet| self.handle(packet, came, job));
        job.cx.recycle_batch(packets);
    }

    /// Sends an ICMP error to the sender of a packet, given from its IP header on.
    pub(super) fn send_icmp_error(
        &mut self,
        reply: IcmpReply,
        packet: &[u8],
        came: IngressInfo,
        job: &mut SlowPathContext<'_, '_>,
    ) {
        if came.from == Origin::Router {
            return;
        }
        let is_usable = |port, address| self.is_usable(port, address);
        let port = icmp::error_port(packet, came, &job.view());
        let from = IcmpSource { ports: job.view().ports, port, is_usable: &is_usable };
        let error = match icmp::build_error(reply, packet, came.to.is_many(), from) {
            Ok(error) => error,
            Err(IcmpSuppressed::Forbidden(_)) => return self.counters.errors_forbidden += 1,
            Err(IcmpSuppressed::NoAddress) => return,
        };
        // The error is built only now: in a flood of packets that cause errors each costs only the
        // check of the limit.
        if !self.limits.try_acquire(error.destination(), job.now) {
            return self.counters.errors_limited += 1;
        }
        self.counters.errors += 1;
        let error = error.build_packet(packet, self.next_id());
        self.send_reply(&error, came, job);
    }

    /// The next identification for the header of a packet of the router.
    pub(super) fn next_id(&mut self) -> u16 {
        self.ids = self.ids.wrapping_add(1);
        self.ids as u16
    }

    /// Sends a packet of the router about one with this ingress.
    pub(super) fn send_reply(
        &mut self,
        packet: &[u8],
        about: IngressInfo,
        job: &mut SlowPathContext<'_, '_>,
    ) {
        let kind = if packet[0] >> 4 == 4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let mut frame = vec![0; LINK];
        frame[12..].copy_from_slice(&kind.0.to_be_bytes());
        frame.extend(packet);
        let Some(packet) = job.cx.pool().packet_from(&frame) else {
            return job.cx.count_discarded(DropReason::PoolEmpty, 1);
        };
        self.send_own(packet, about, job);
    }

    /// Sends a frame of the router, whose link header is still to be made: to the host if it answers the
    /// host, by the port if its destination is on that link only, else by the routes.
    pub(super) fn send_own(&mut self, packet: Packet, about: IngressInfo, job: &mut SlowPathContext<'_, '_>) {
        let to = packet.data().get(LINK..).and_then(flow::source_and_destination).map(|(_, to)| to);
        match (about.from, to) {
            (Origin::Host, _) => self.hand_to_host(packet, about, job),
            (Origin::Port(port), Some(IpAddr::V6(to))) if to.is_unicast_link_local() => {
                self.send_on_link(packet, port, to.into(), job);
            }
            _ => self.handle(packet, IngressInfo::FROM_ROUTER, job),
        }
    }

    /// Sends frames of the router's own elements, each by the port that its paint names.
    pub(super) fn receive_own(&mut self, batch: &mut Batch, job: &mut SlowPathContext<'_, '_>) {
        // Sending may have changed the tables.
        self.schedule_now();
        self.poll(job);
        for packet in batch.drain() {
            let [port] = packet.annotation(anno::PAINT);
            let port = PortId(port.into());
            match packet.data().get(LINK..).and_then(flow::source_and_destination) {
                None => job.cx.discard(packet, DropReason::Malformed),
                Some((from, _)) if !self.is_usable(port, from) => {
                    job.cx.discard(packet, DropReason::Unclaimed)
                }
                Some((_, to)) => self.send_on_link(packet, port, to, job),
            }
        }
    }

    /// Sends a frame of the router to a neighbor, bypassing the routes.
    pub(super) fn send_on_link(
        &mut self,
        packet: Packet,
        port: PortId,
        to: IpAddr,
        job: &mut SlowPathContext<'_, '_>,
    ) {
        match self.on_link(port, to, job) {
            Some(leave) if leave.decision.link.is_ready() => {
                self.forward_packet(packet, &leave, IngressInfo::FROM_ROUTER, job)
            }
            Some(leave) => self.hold_packet(packet, &leave, IngressInfo::FROM_ROUTER, job),
            None => job.cx.discard(packet, DropReason::PortDown),
        }
    }

    /// The adjacency of a neighbor on a port's link.
    fn on_link(&self, port: PortId, to: IpAddr, job: &SlowPathContext<'_, '_>) -> Option<EgressPlan> {
        let view = job.port(port).filter(|port| port.is_up)?;
        let link = job.neighbor_link(&(port, to));
        let outcome = if link.is_ready() { Outcome::Forward } else { Outcome::Unresolved };
        let decision = ForwardDecision { link, port, mtu: view.mtu, outcome };
        Some(EgressPlan { decision, next_hop: to, is_hop: false, is_cut: false, redirect: None })
    }

    /// Changes the tables or the claims, and executes the actions that follow.
    pub(super) fn change_tables<T>(
        &mut self,
        job: &mut SlowPathContext<'_, '_>,
        what: impl FnOnce(&mut Tables, &mut Claims, &mut Vec<ClaimAction>) -> T,
    ) -> T {
        let mut actions = std::mem::take(&mut self.actions);
        let mut claim_actions = std::mem::take(&mut self.claim_actions);
        let done = {
            let mut tables = job.router.lock_tables();
            let mut claims = self.shared.lock_claims();
            let done = what(&mut tables, &mut claims, &mut claim_actions);
            if claims.is_news(tables.ports_version()) {
                claims.sync_ports(tables.port_views(), job.now, &mut claim_actions);
                job.router.record_port_changes(job.now, &tables, tables.port_views());
            }
            let due = [tables.poll(job.now), claims.poll(job.now, &mut claim_actions)];
            self.due = due.into_iter().flatten().min();
            tables.drain_actions(&mut actions);
            self.shared.record_failures(&actions);
            actions
                .iter()
                .for_each(|(port, action)| job.router.record_action(job.now, &tables, *port, action));
            self.shared.update_unusable(&claims);
            record_claim_events(&claim_actions, &claims, job);
            done
        };
        actions.drain(..).for_each(|(port, action)| self.apply_action(port, &action, job));
        claim_actions.drain(..).for_each(|action| self.apply_claim_action(&action, job));
        (self.actions, self.claim_actions) = (actions, claim_actions);
        done
    }

    /// Runs due timers: of the tables, the claims, pending packets, and fragments.
    pub(super) fn poll(&mut self, job: &mut SlowPathContext<'_, '_>) {
        if self.due.is_some_and(|due| due <= job.now) {
            self.change_tables(job, |_, _, _| ());
            self.next_poll = Duration::ZERO;
        }
        self.poll_pending(job);
        self.forget_fragments(job);
    }

    /// Schedules a poll of tables and claims now, whatever their timers.
    pub(super) fn schedule_now(&mut self) {
        self.due = Some(Duration::ZERO);
    }

    /// Ends a call: publishes the counters, and schedules the next call.
    pub(super) fn finish_call(&self, job: &mut SlowPathContext<'_, '_>) {
        *lock_mutex(&self.published_counters) = self.counters;
        let holds = !self.pending.is_empty();
        job.router.reorder_guard().record_progress(self.worker, holds.then_some(self.seen_changes));
        let look = holds.then_some(self.next_poll);
        let next = [self.due, look, self.fragments.next_deadline()].into_iter().flatten().min();
        // At the time that is due, not just before: timers compare.
        job.cx.wake_at(next.map_or(Time::NEVER, |next| Time::ZERO + next));
    }

    /// Whether a message from a neighbor may be processed. Messages of neighbors that packets wait for, and
    /// those from a neighbor's known MAC address, have rate limits of their own: in a flood they would get
    /// lost, and a message that only claims to be one may be forged.
    pub(super) fn may_accept_message(
        &mut self,
        from: Option<Neighbor>,
        is_known: bool,
        now: Duration,
    ) -> bool {
        let is_waited_for = from.is_some_and(|neighbor| self.pending.contains(&neighbor));
        is_waited_for && self.answers.try_acquire(now)
            || is_known && self.confirmations.try_acquire(now)
            || self.messages.try_acquire(now)
    }

    pub(super) fn is_usable(&self, port: PortId, address: IpAddr) -> bool {
        self.shared.is_usable(port, address)
    }
}

/// Whether a packet may keep its offloads for its verdict: a packet that is held, fragmented, quoted or
/// answered must be as it goes over a wire.
fn can_keep_offloads(packet: &Packet, verdict: &RouterVerdict) -> bool {
    match verdict {
        RouterVerdict::Forward(leave) => !leave.is_cut && leave.redirect.is_none(),
        RouterVerdict::Host => packet.offload().is_some_and(|left| left.segments.is_some()),
        RouterVerdict::Discard(_) => true,
        _ => false,
    }
}

/// Records events of the router's addresses.
fn record_claim_events(actions: &[ClaimAction], claims: &Claims, job: &SlowPathContext<'_, '_>) {
    for ClaimAction { port, address, effect } in actions.iter().copied() {
        let what = match effect {
            ClaimEffect::Usable => AddressEvent::Claimed,
            ClaimEffect::Conflict { with } if claims.is_usable((port, address)) => {
                AddressEvent::Defended(Some(with))
            }
            ClaimEffect::Conflict { with } => AddressEvent::Duplicate(Some(with)),
            _ => continue,
        };
        job.router.record_event(job.now, Event::Address { port, address, what });
    }
}
