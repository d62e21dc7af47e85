//! Messages between neighbors: received and decided about, and sent: questions, answers, announcements.
use super::claims::ClaimAction;
use super::held::Neighbor;
use super::order::Order;
use super::slow::{Job, LINK, Slow};
use super::verdict::{Message, View};
use super::waiting::link;
use crate::ether::arp_frame::arp_frame;
use artery_engine::{DropReason, Packet};
use artery_table::neighbor::arp_input::{self, ArpOutcome, ArpPort, ArpReply, ArpSurroundings};
use artery_table::neighbor::claim::ClaimEffect;
use artery_table::neighbor::nd_input::{self, NdOutcome, NdPort, NdSurroundings};
use artery_table::neighbor::{Action, Ask};
use artery_table::path::Outcome;
use artery_table::router::{PortAction, PortView, Tables};
use artery_table::{PortId, Prefix};
use artery_wire::nd::{self, NdMessage, Station};
use artery_wire::{Arp, ArpOperation, EtherAddr, EtherType, Ethernet, Ipv6};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl Slow {
    /// Takes a message that a port received.
    pub(super) fn take_message(
        &mut self,
        packet: Packet,
        id: PortId,
        message: Message,
        job: &mut Job<'_, '_>,
    ) {
        let Some(port) = job.port(id) else { return job.cx.discard(packet, DropReason::PortDown) };
        let bytes = packet.data().get(LINK..).unwrap_or_default();
        let sender = match message {
            Message::Arp => Arp::new(bytes).ok().map(|arp| IpAddr::V4(arp.sender_ip())),
            Message::Nd => nd_subject(bytes).map(IpAddr::V6),
        };
        let from = sender.map(|sender| (id, sender));
        let is_known = from.is_some_and(|from| is_station_of(packet.data(), &from, &job.view()));
        if !self.may_look(from, is_known, job.now) {
            self.counters.messages_limited += 1;
            return job.cx.discard(packet, DropReason::RateLimited);
        }
        let is_heeded = match message {
            Message::Arp => self.take_arp(bytes, id, port, job),
            Message::Nd => self.take_nd(packet.data(), id, port, job),
        };
        let is_heeded = is_heeded | self.copy_to_host_port(&packet, id, message, job);
        // What it said may be what packets wait for.
        self.look(job);
        job.cx.discard(packet, if is_heeded { DropReason::Consumed } else { DropReason::NotForUs });
    }

    fn take_arp(&mut self, bytes: &[u8], id: PortId, port: &PortView, job: &mut Job<'_, '_>) -> bool {
        self.counters.arp += 1;
        let (now, view, order) = (job.now, job.view(), job.router.order());
        let leaves_by = |address: Ipv4Addr| {
            let decision = view.v4.explain(view.turn, address.to_bits(), |_| 0).decision;
            let leaves = matches!(decision.outcome, Outcome::Forward | Outcome::Unresolved | Outcome::Failed);
            leaves.then_some(decision.port)
        };
        let outcome = self.change(job, |tables, claims, actions| {
            let outcome = arp_outcome(bytes, id, port, tables, &claims.v4(id, port), &leaves_by, now);
            if let Some(heard) = outcome.heard {
                let hear = || tables.hear(id, heard.address.to_bits(), heard.heard, heard.for_us, now);
                hear_of((id, heard.address.into()), &view, order, hear);
            }
            if let Some(conflict) = outcome.conflict {
                claims.conflict((id, conflict.address.into()), conflict.with, now, actions);
            }
            outcome
        });
        self.counters.conflicts += u64::from(outcome.conflict.is_some());
        if let Some(reply) = outcome.reply
            && job.send(id, &arp_reply(&reply, port.address))
        {
            self.counters.answers += 1;
        }
        outcome.note.is_none()
    }

    fn take_nd(&mut self, frame: &[u8], id: PortId, port: &PortView, job: &mut Job<'_, '_>) -> bool {
        self.counters.nd += 1;
        let (now, view, order) = (job.now, job.view(), job.router.order());
        let outcome = self.change(job, |tables, claims, actions| {
            let outcome = nd_outcome(frame, id, port, tables, &claims.v6(id, port), now);
            if let Some(heard) = outcome.heard {
                let hear = || tables.hear(id, heard.address.to_bits(), heard.heard, heard.for_us, now);
                hear_of((id, heard.address.into()), &view, order, hear);
            }
            if let Some(conflict) = outcome.conflict {
                claims.conflict((id, conflict.address.into()), conflict.with, now, actions);
            }
            outcome
        });
        self.counters.conflicts += u64::from(outcome.conflict.is_some());
        if let Some(reply) = outcome.reply
            && job.send(id, &nd::neighbor_advertisement(reply.from, reply.to, reply.target, reply.flags))
        {
            self.counters.answers += 1;
        }
        outcome.note.is_none()
    }

    /// Does what a port's engine wants.
    pub(super) fn act(&mut self, id: PortId, action: &PortAction, job: &mut Job<'_, '_>) {
        let Some(port) = job.port(id) else { return };
        let frame = match *action {
            PortAction::V4(Action::Ask { address, to }) => {
                Some(self.arp_question(id, port, address.into(), to))
            }
            PortAction::V6(Action::Ask { address, to }) => self.nd_question(id, port, address.into(), to),
            PortAction::V4(Action::Event(_)) | PortAction::V6(Action::Event(_)) => return,
        };
        if let Some(frame) = frame
            && job.send(id, &frame)
        {
            self.counters.questions += 1;
        }
    }

    /// Who has an address? Without an address of our own to ask from, it is asked as who has none does.
    fn arp_question(&self, id: PortId, port: &PortView, target: Ipv4Addr, to: Ask) -> Vec<u8> {
        let usable = |own: &&(u32, u8)| self.is_usable(id, IpAddr::V4(own.0.into()));
        let is_near = |own: &&(u32, u8)| Prefix::of(own.0, own.1).contains(target.to_bits());
        let near = port.v4.iter().filter(usable).find(is_near);
        let own = near.or_else(|| port.v4.iter().find(usable));
        let sender = own.map_or(Ipv4Addr::UNSPECIFIED, |own| own.0.into());
        let to = match to {
            Ask::Everyone => EtherAddr::BROADCAST,
            Ask::Unicast(station) => station,
        };
        let (sender, target) = ((port.address, sender), (EtherAddr::ZERO, target));
        arp_frame(to, ArpOperation::REQUEST, sender, target).to_vec()
    }

    /// The same by Neighbor Discovery, where nobody without an address asks: to ask so is to claim.
    fn nd_question(&self, id: PortId, port: &PortView, target: Ipv6Addr, to: Ask) -> Option<Vec<u8>> {
        let usable = |own: u128| self.is_usable(id, IpAddr::V6(own.into())).then_some(own);
        let is_near = |own: &&(u128, u8)| Prefix::of(own.0, own.1).contains(target.to_bits());
        let near = port.v6.iter().filter(is_near).find_map(|own| usable(own.0));
        let own = near
            .or_else(|| usable(port.link_local))
            .or_else(|| port.v6.iter().find_map(|own| usable(own.0)))?;
        let to = match to {
            Ask::Everyone => None,
            Ask::Unicast(station) => Some(station),
        };
        Some(nd::neighbor_solicitation(Station { ether: port.address, ip: own.into() }, target, to))
    }

    /// Does what the claim of an address wants.
    pub(super) fn act_on_claim(&mut self, action: &ClaimAction, job: &mut Job<'_, '_>) {
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
                Station { ether: port.address, ip: Ipv6Addr::UNSPECIFIED },
                own,
                None,
            ),
            IpAddr::V6(own) => {
                nd::unsolicited_advertisement(Station { ether: port.address, ip: own }, true, true)
            }
        };
        if job.send(id, &frame) {
            self.counters.announcements += 1;
        }
    }

    /// Answers the host, for which the router is whoever it asks for.
    pub(super) fn host_asks(&mut self, packet: Packet, job: &mut Job<'_, '_>) {
        let answer = host_answer(packet.data(), job.view().ports);
        if let Some(frame) = answer
            && let Some(reply) = job.cx.pool().packet_from(&frame)
        {
            self.counters.answers += 1;
            job.cx.send_or_discard(job.router.ports(), reply, DropReason::Local);
            return job.cx.discard(packet, DropReason::Consumed);
        }
        job.cx.discard(packet, DropReason::NotForUs);
    }
}

/// Lets the tables hear of a neighbor.
fn hear_of<E>(neighbor: Neighbor, view: &View<'_>, order: &Order, hear: impl FnOnce() -> Result<(), E>) {
    let is_known = link(&neighbor, view).is_ready();
    // The port is there, as its frame came in: nothing can be wrong.
    let _ = if is_known { hear() } else { order.make_known(hear) };
}

fn arp_outcome(
    bytes: &[u8],
    id: PortId,
    port: &PortView,
    tables: &Tables,
    own: &[artery_table::neighbor::claim::OwnAddress<u32>],
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
    own: &[artery_table::neighbor::claim::OwnAddress<u128>],
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

/// Whom a message of Neighbor Discovery is about.
fn nd_subject(packet: &[u8]) -> Option<Ipv6Addr> {
    match NdMessage::read(packet).ok()? {
        NdMessage::NeighborAdvertisement(message) => Some(message.target()),
        _ => Ipv6::new(packet).ok().map(|ip| ip.src()),
    }
}

/// Whether a frame comes from the station that the neighbor is known to have.
fn is_station_of(frame: &[u8], neighbor: &Neighbor, view: &View<'_>) -> bool {
    let station = link(neighbor, view).address();
    station.is_some() && station == Ethernet::new(frame).ok().map(|frame| frame.src())
}

/// A reply from the port's station, which tells that of the address.
fn arp_reply(reply: &ArpReply, from: EtherAddr) -> Vec<u8> {
    let (sender, target) = ((reply.sender_link, reply.sender), (reply.target_link, reply.target));
    let mut frame = arp_frame(reply.destination, ArpOperation::REPLY, sender, target).to_vec();
    frame[6..12].copy_from_slice(&from.0);
    frame
}

/// The router's station towards the host: that of the first port.
pub(super) fn station_for_host(ports: &[PortView]) -> EtherAddr {
    ports.first().map_or(EtherAddr([2, 0, 0, 0, 0, 0]), |port| port.address)
}

/// The answer to what the host asks on its own link, where nobody but the router is. It has the router's addresses, so
/// when it asks for one of them, it asks whether another has it.
fn host_answer(frame: &[u8], ports: &[PortView]) -> Option<Vec<u8>> {
    let station = station_for_host(ports);
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
    let NdMessage::NeighborSolicitation(asked) = NdMessage::read(bytes).ok()? else { return None };
    let (ip, target) = (Ipv6::new(bytes).ok()?, asked.target());
    let has = |port: &PortView| {
        port.link_local == target.to_bits() || port.v6.iter().any(|(own, _)| *own == target.to_bits())
    };
    if ports.iter().any(has) || ip.src().is_unspecified() {
        return None;
    }
    let to = Station { ether: asked.source_link().unwrap_or(Ethernet::new(frame).ok()?.src()), ip: ip.src() };
    let own = Station { ether: station, ip: target };
    let flags = nd::AdvertisementFlags { router: true, solicited: true, overrides: true };
    Some(nd::neighbor_advertisement(own, to, own, flags))
}
