//! Messages between neighbors: received and decided about, and sent: questions, answers, announcements.
use super::claims::ClaimAction;
use super::pending_queue::Neighbor;
use super::slow_path::{SlowPath, SlowPathContext};
use super::verdict::{NeighborMessage, TablesView};
use artery_common::arp_frame::arp_frame;
use artery_engine::{DropReason, Packet};
use artery_forward::fast_path::LINK;
use artery_forward::order::ReorderGuard;
use artery_l3::PortId;
use artery_l3::neighbor::arp_input::{self, ArpOutcome, ArpPort, ArpReply, ArpSurroundings};
use artery_l3::neighbor::claim::ClaimEffect;
use artery_l3::neighbor::nd_input::{self, NdOutcome, NdPort, NdSurroundings};
use artery_l3::neighbor::{Action, SolicitTarget};
use artery_l3::path::Outcome;
use artery_l3::router::{PortAction, PortView, Tables};
use artery_lpm::Prefix;
use artery_wire::nd::{self, LinkEndpoint, NdMessage};
use artery_wire::{Arp, ArpOperation, EtherAddr, EtherType, Ethernet, Ipv6};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl SlowPath {
    /// Handles a message that a port received.
    pub(super) fn receive_message(
        &mut self,
        packet: Packet,
        id: PortId,
        message: NeighborMessage,
        job: &mut SlowPathContext<'_, '_>,
    ) {
        let Some(port) = job.port(id) else { return job.cx.discard(packet, DropReason::PortDown) };
        let bytes = packet.data().get(LINK..).unwrap_or_default();
        let sender = match message {
            NeighborMessage::Arp => Arp::new(bytes).ok().map(|arp| IpAddr::V4(arp.sender_ip())),
            NeighborMessage::Nd => nd_subject(bytes).map(IpAddr::V6),
        };
        let from = sender.map(|sender| (id, sender));
        let is_known = from.is_some_and(|from| is_sent_by_neighbor(packet.data(), &from, &job.view()));
        if !self.may_accept_message(from, is_known, job.now) {
            self.counters.messages_limited += 1;
            return job.cx.discard(packet, DropReason::RateLimited);
        }
        let is_heeded = match message {
            NeighborMessage::Arp => self.receive_arp(bytes, id, port, job),
            NeighborMessage::Nd => self.receive_nd(packet.data(), id, port, job),
        };
        let is_heeded = is_heeded | self.copy_to_host_port(&packet, id, message, job);
        // The message may have resolved a neighbor that packets wait for.
        self.poll_pending(job);
        job.cx.discard(packet, if is_heeded { DropReason::Consumed } else { DropReason::NotForUs });
    }

    fn receive_arp(
        &mut self,
        bytes: &[u8],
        id: PortId,
        port: &PortView,
        job: &mut SlowPathContext<'_, '_>,
    ) -> bool {
        self.counters.arp += 1;
        let (now, view, order) = (job.now, job.view(), job.router.reorder_guard());
        let leaves_by = |address: Ipv4Addr| {
            let decision = view.v4.explain_path(view.turn, address.to_bits(), |_| 0).decision;
            let leaves = matches!(decision.outcome, Outcome::Forward | Outcome::Unresolved | Outcome::Failed);
            leaves.then_some(decision.port)
        };
        let outcome = self.change_tables(job, |tables, claims, actions| {
            let outcome =
                arp_outcome(bytes, id, port, tables, &claims.ipv4_addresses(id, port), &leaves_by, now);
            if let Some(heard) = outcome.update {
                let hear =
                    || tables.learn_neighbor(id, heard.address.to_bits(), heard.heard, heard.for_us, now);
                learn_neighbor((id, heard.address.into()), &view, order, hear);
            }
            if let Some(conflict) = outcome.conflict {
                claims.report_conflict((id, conflict.address.into()), conflict.with, now, actions);
            }
            outcome
        });
        self.counters.conflicts += u64::from(outcome.conflict.is_some());
        if let Some(reply) = outcome.reply
            && job.send_frame(id, &arp_reply(&reply, port.address))
        {
            self.counters.answers += 1;
        }
        outcome.note.is_none()
    }

    fn receive_nd(
        &mut self,
        frame: &[u8],
        id: PortId,
        port: &PortView,
        job: &mut SlowPathContext<'_, '_>,
    ) -> bool {
        self.counters.nd += 1;
        let (now, view, order) = (job.now, job.view(), job.router.reorder_guard());
        let outcome = self.change_tables(job, |tables, claims, actions| {
            let outcome = nd_outcome(frame, id, port, tables, &claims.ipv6_addresses(id, port), now);
            if let Some(heard) = outcome.heard {
                let hear =
                    || tables.learn_neighbor(id, heard.address.to_bits(), heard.heard, heard.for_us, now);
                learn_neighbor((id, heard.address.into()), &view, order, hear);
            }
            if let Some(conflict) = outcome.conflict {
                claims.report_conflict((id, conflict.address.into()), conflict.with, now, actions);
            }
            outcome
        });
        self.counters.conflicts += u64::from(outcome.conflict.is_some());
        if let Some(reply) = outcome.reply
            && job
                .send_frame(id, &nd::neighbor_advertisement(reply.from, reply.to, reply.target, reply.flags))
        {
            self.counters.answers += 1;
        }
        outcome.note.is_none()
    }

    /// Executes an action of a port's engine.
    pub(super) fn apply_action(
        &mut self,
        id: PortId,
        action: &PortAction,
        job: &mut SlowPathContext<'_, '_>,
    ) {
        let Some(port) = job.port(id) else { return };
        let frame = match *action {
            PortAction::V4(Action::Ask { address: ip, to }) => {
                Some(self.build_arp_request(id, port, ip.into(), to))
            }
            PortAction::V6(Action::Ask { address: ip, to }) => {
                self.build_solicitation(id, port, ip.into(), to)
            }
            PortAction::V4(Action::Event(_)) | PortAction::V6(Action::Event(_)) => return,
        };
        if let Some(frame) = frame
            && job.send_frame(id, &frame)
        {
            self.counters.questions += 1;
        }
    }

    /// The ARP request for an address. Without a usable own address it is sent like a probe.
    fn build_arp_request(&self, id: PortId, port: &PortView, target: Ipv4Addr, to: SolicitTarget) -> Vec<u8> {
        let usable = |own: &&(u32, u8)| self.is_usable(id, IpAddr::V4(own.0.into()));
        let is_near = |own: &&(u32, u8)| Prefix::of(own.0, own.1).contains(target.to_bits());
        let near = port.v4.iter().filter(usable).find(is_near);
        let own = near.or_else(|| port.v4.iter().find(usable));
        let sender = own.map_or(Ipv4Addr::UNSPECIFIED, |own| own.0.into());
        let to = match to {
            SolicitTarget::Multicast => EtherAddr::BROADCAST,
            SolicitTarget::Unicast(station) => station,
        };
        let (sender, target) = ((port.address, sender), (EtherAddr::ZERO, target));
        arp_frame(to, ArpOperation::REQUEST, sender, target).to_vec()
    }

    /// The same by Neighbor Discovery, where a solicitation without a source address is a probe (RFC 4862).
    fn build_solicitation(
        &self,
        id: PortId,
        port: &PortView,
        target: Ipv6Addr,
        to: SolicitTarget,
    ) -> Option<Vec<u8>> {
        let usable = |own: u128| self.is_usable(id, IpAddr::V6(own.into())).then_some(own);
        let is_near = |own: &&(u128, u8)| Prefix::of(own.0, own.1).contains(target.to_bits());
        let near = port.v6.iter().filter(is_near).find_map(|own| usable(own.0));
        let own = near
            .or_else(|| usable(port.link_local))
            .or_else(|| port.v6.iter().find_map(|own| usable(own.0)))?;
        let to = match to {
            SolicitTarget::Multicast => None,
            SolicitTarget::Unicast(station) => Some(station),
        };
        Some(nd::neighbor_solicitation(LinkEndpoint { ether: port.address, ip: own.into() }, target, to))
    }

    /// Executes an action of an address claim.
    pub(super) fn apply_claim_action(&mut self, action: &ClaimAction, job: &mut SlowPathContext<'_, '_>) {
        let ClaimAction { port: id, address, effect } = *action;
        let Some(port) = job.port(id) else { return };
        let is_probe = match effect {
            ClaimEffect::SendProbe => true,
            ClaimEffect::SendAnnouncement | ClaimEffect::Defend => false,
            ClaimEffect::Usable | ClaimEffect::Unusable | ClaimEffect::Conflict { .. } => return,
        };
        let frame = match address {
            IpAddr::V4(own) => {
                let sender = if is_probe { Ipv4Addr::UNSPECIFIED } else { own };
                let (sender, target) = ((port.address, sender), (EtherAddr::ZERO, own));
                arp_frame(EtherAddr::BROADCAST, ArpOperation::REQUEST, sender, target).to_vec()
            }
            IpAddr::V6(own) if is_probe => nd::neighbor_solicitation(
                LinkEndpoint { ether: port.address, ip: Ipv6Addr::UNSPECIFIED },
                own,
                None,
            ),
            IpAddr::V6(own) => {
                nd::unsolicited_advertisement(LinkEndpoint { ether: port.address, ip: own }, true, true)
            }
        };
        if job.send_frame(id, &frame) {
            self.counters.announcements += 1;
        }
    }

    /// Answers ARP requests of the host: the router answers for any address.
    pub(super) fn receive_host_arp(&mut self, packet: Packet, job: &mut SlowPathContext<'_, '_>) {
        let answer = answer_host(packet.data(), job.view().ports);
        if let Some(frame) = answer
            && let Some(reply) = job.cx.pool().packet_from(&frame)
        {
            self.counters.answers += 1;
            job.cx.send_or_discard(job.router.port_count(), reply, DropReason::Local);
            return job.cx.discard(packet, DropReason::Consumed);
        }
        job.cx.discard(packet, DropReason::NotForUs);
    }
}

/// Passes a message from a neighbor to the tables.
fn learn_neighbor<E>(
    neighbor: Neighbor,
    view: &TablesView<'_>,
    order: &ReorderGuard,
    hear: impl FnOnce() -> Result<(), E>,
) {
    let is_known = view.neighbor_link(neighbor.0, neighbor.1).is_ready();
    // The port exists, since its frame was received, so this can't fail.
    let _ = if is_known { hear() } else { order.make_known(hear) };
}

fn arp_outcome(
    bytes: &[u8],
    id: PortId,
    port: &PortView,
    tables: &Tables,
    own: &[artery_l3::neighbor::claim::OwnAddress<u32>],
    leaves_by: &dyn Fn(Ipv4Addr) -> Option<PortId>,
    now: std::time::Duration,
) -> ArpOutcome {
    let known = |at: PortId, address: Ipv4Addr| tables.neighbor::<u32>(at, address.to_bits(), now);
    let elsewhere = |address| {
        let others = (0..tables.port_views().len() as u16).map(PortId).filter(|other| *other != id);
        others.into_iter().find(|other| known(*other, address).is_some_and(|view| view.link.is_some()))
    };
    let published = |address| known(id, address).filter(|view| view.is_published)?.link;
    let around = ArpSurroundings { elsewhere: &elsewhere, published: &published, leaves_by };
    let on = ArpPort {
        id,
        link: port.address,
        addresses: own,
        speaks: true,
        learns: !port.settings.static_arp,
        allows_groups: false,
        is_proxy: port.settings.proxy_arp,
    };
    arp_input::receive(bytes, &on, &around)
}

fn nd_outcome(
    frame: &[u8],
    id: PortId,
    port: &PortView,
    tables: &Tables,
    own: &[artery_l3::neighbor::claim::OwnAddress<u128>],
    now: std::time::Duration,
) -> NdOutcome {
    let published = |address: Ipv6Addr| {
        tables.neighbor::<u128>(id, address.to_bits(), now).filter(|view| view.is_published)?.link
    };
    // RFC 4291 section 2.6.1: a network's first address is that of all of its routers.
    let anycast: Vec<Ipv6Addr> = (port.v6.iter())
        .filter(|(own, len)| *len < 127 && Prefix::of(*own, *len).first() != *own)
        .map(|(own, len)| Prefix::of(*own, *len).first().into())
        .collect();
    let on = NdPort {
        id,
        link: port.address,
        addresses: own,
        anycast: &anycast,
        routes: true,
        learns: !port.settings.static_arp,
    };
    let sender = Ethernet::new(frame).map_or(EtherAddr::ZERO, |ethernet| ethernet.src());
    let packet = frame.get(LINK..).unwrap_or_default();
    nd_input::receive(packet, sender, &on, &NdSurroundings { published: &published })
}

/// The address that a Neighbor Discovery message is about.
fn nd_subject(packet: &[u8]) -> Option<Ipv6Addr> {
    match NdMessage::parse_packet(packet).ok()? {
        NdMessage::NeighborAdvertisement(message) => Some(message.target()),
        _ => Ipv6::new(packet).ok().map(|ip| ip.src()),
    }
}

/// Whether a frame comes from the neighbor's known MAC address.
fn is_sent_by_neighbor(frame: &[u8], neighbor: &Neighbor, view: &TablesView<'_>) -> bool {
    let station = view.neighbor_link(neighbor.0, neighbor.1).address();
    station.is_some() && station == Ethernet::new(frame).ok().map(|frame| frame.src())
}

/// A reply from the port's MAC address, with the link address of the IP address.
fn arp_reply(reply: &ArpReply, from: EtherAddr) -> Vec<u8> {
    let (sender, target) = ((reply.sender_link, reply.sender), (reply.target_link, reply.target));
    let mut frame = arp_frame(reply.destination, ArpOperation::REPLY, sender, target).to_vec();
    frame[6..12].copy_from_slice(&from.0);
    frame
}

/// The router's MAC address towards the host: that of the first port.
pub(super) fn mac_for_host(ports: &[PortView]) -> EtherAddr {
    ports.first().map_or(EtherAddr([2, 0, 0, 0, 0, 0]), |port| port.address)
}

/// The reply to what the host solicits on its own link, where only the router is. The host has the router's
/// addresses, so a request for one of them is a probe for duplicates.
fn answer_host(frame: &[u8], ports: &[PortView]) -> Option<Vec<u8>> {
    let station = mac_for_host(ports);
    let bytes = frame.get(LINK..)?;
    if Ethernet::new(frame).ok()?.ether_type() == EtherType::ARP {
        let asked = Arp::new(bytes).ok().filter(Arp::is_request)?;
        let (asker, target) = (asked.sender_ip(), asked.target_ip());
        let is_ours = ports.iter().any(|port| port.v4.iter().any(|(own, _)| *own == target.to_bits()));
        if is_ours || asker == target || asker.is_unspecified() {
            return None;
        }
        let (sender, target) = ((station, target), (asked.sender_ether(), asker));
        return Some(arp_frame(target.0, ArpOperation::REPLY, sender, target).to_vec());
    }
    let NdMessage::NeighborSolicitation(asked) = NdMessage::parse_packet(bytes).ok()? else { return None };
    let (ip, target) = (Ipv6::new(bytes).ok()?, asked.target());
    let has = |port: &PortView| {
        port.link_local == target.to_bits() || port.v6.iter().any(|(own, _)| *own == target.to_bits())
    };
    if ports.iter().any(has) || ip.src().is_unspecified() {
        return None;
    }
    let to =
        LinkEndpoint { ether: asked.source_link().unwrap_or(Ethernet::new(frame).ok()?.src()), ip: ip.src() };
    let own = LinkEndpoint { ether: station, ip: target };
    let flags = nd::AdvertisementFlags { router: true, solicited: true, overrides: true };
    Some(nd::neighbor_advertisement(own, to, own, flags))
}
