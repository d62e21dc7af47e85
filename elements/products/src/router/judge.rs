//! Classifies a frame: the checks of both families, and the dispatch to the family of its packet.
use super::icmp;
use super::slow::LINK;
use super::verdict::{FlowOf, IcmpReply, IngressInfo, NeighborMessage, Origin, RouterVerdict, TablesView};
use super::{judge4, judge6};
use artery_engine::DropReason;
use artery_l3::PortId;
use artery_l3::router::PortView;
use artery_wire::{EtherType, Ethernet, Icmp6Error, IcmpError, Ip6Headers, IpProtocol, Ipv4};
use std::net::IpAddr;

/// State of the router that is not in its tables.
#[derive(Clone, Copy)]
pub(super) struct LocalState<'a> {
    /// Whether the router may use an address of a port: its claim succeeded.
    pub(super) is_usable: &'a dyn Fn(PortId, IpAddr) -> bool,
    /// Whether there is a host behind it.
    pub(super) has_host: bool,
}

/// Classifies a frame. If it is yet to be cut into segments, none is longer than `longest` from
/// the IP header on.
pub(super) fn classify(
    frame: &[u8],
    longest: usize,
    came: IngressInfo,
    view: &TablesView<'_>,
    own: LocalState<'_>,
    flow: FlowOf<'_>,
) -> RouterVerdict {
    let Ok(ethernet) = Ethernet::new(frame) else { return RouterVerdict::Discard(DropReason::TooShort) };
    let packet = frame.get(LINK..).unwrap_or_default();
    let verdict = match ethernet.ether_type() {
        EtherType::ARP => RouterVerdict::Neighbor(NeighborMessage::Arp),
        EtherType::IPV4 => judge4::classify(packet, longest, came, view, flow),
        EtherType::IPV6 => judge6::classify(packet, longest, came, view, flow),
        _ => RouterVerdict::Discard(DropReason::UnknownEtherType),
    };
    match verdict {
        RouterVerdict::EchoReply | RouterVerdict::Reassemble | RouterVerdict::Host
            if is_unclaimed(packet, view.ports, own) =>
        {
            RouterVerdict::Discard(DropReason::Unclaimed)
        }
        // The host does not need packets that it sent itself.
        RouterVerdict::Host
            if !own.has_host || came.from == Origin::Host || is_virtual(packet, view.ports) =>
        {
            without_host(packet, came)
        }
        verdict => verdict,
    }
}

/// The verdict on a packet for the host of a router without one. The sender of UDP gets port unreachable.
fn without_host(packet: &[u8], came: IngressInfo) -> RouterVerdict {
    match port_unreachable_reply(packet).filter(|_| !came.to.is_many()) {
        Some(told) => RouterVerdict::Error(told, DropReason::Local),
        None => RouterVerdict::Discard(DropReason::Local),
    }
}

/// Whether a packet is for a virtual address, which the host does not have.
fn is_virtual(packet: &[u8], ports: &[PortView]) -> bool {
    icmp::source_and_destination(packet).is_some_and(|(_, to)| ports.iter().any(|port| answers_for(port, to)))
}

/// Whether an address is a virtual one of a port.
fn answers_for(port: &PortView, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => port.virtual_v4.iter().any(|(own, _)| *own == address.to_bits()),
        IpAddr::V6(address) => port.virtual_v6.iter().any(|(own, _)| *own == address.to_bits()),
    }
}

/// The ICMP error for a port without a listener.
fn port_unreachable_reply(packet: &[u8]) -> Option<IcmpReply> {
    if let Ok(ip) = Ipv4::new(packet) {
        return (ip.protocol() == IpProtocol::UDP)
            .then(|| IcmpReply::V4(IcmpError::unreachable(IcmpError::PORT)));
    }
    let headers = Ip6Headers::parse_packet(packet).ok()?;
    (headers.protocol == IpProtocol::UDP).then(|| IcmpReply::V6(Icmp6Error::unreachable(Icmp6Error::PORT)))
}

/// Whether a packet is for an address that ports have, and may not use.
fn is_unclaimed(packet: &[u8], ports: &[PortView], own: LocalState<'_>) -> bool {
    let Some((_, to)) = icmp::source_and_destination(packet) else { return false };
    let mut owners = (0..)
        .map(PortId)
        .zip(ports)
        .filter(|(_, port)| is_own_address(port, to))
        .map(|(id, _)| id)
        .peekable();
    // Ports with one link address have one link-local address, each on its own link.
    owners.peek().is_some() && !owners.any(|port| (own.is_usable)(port, to))
}

fn is_own_address(port: &PortView, address: IpAddr) -> bool {
    if answers_for(port, address) {
        return true;
    }
    match address {
        IpAddr::V4(address) => port.v4.iter().any(|(own, _)| *own == address.to_bits()),
        IpAddr::V6(address) => {
            let own = address.to_bits();
            port.link_local == own || port.v6.iter().any(|(other, _)| *other == own)
        }
    }
}
