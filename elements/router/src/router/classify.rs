//! Classifies a frame: the checks of both families, and the dispatch to the family of its packet.
use super::verdict::{
    FlowOf, IcmpReply, IngressInfo, LinkDestination, NeighborMessage, Origin, RouterVerdict, TablesView,
};
use super::{classify_ipv4, classify_ipv6};
use artery_engine::DropReason;
use artery_forward::fast_path::LINK;
use artery_forward::flow;
use artery_l3::PortId;
use artery_l3::router::PortView;
use artery_wire::{
    EtherType, Ethernet, Icmp6, Icmp6Error, Icmp6Type, IcmpError, Ip6Headers, IpProtocol, Ipv4, Ipv6,
};
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
        EtherType::ARP if came.to == LinkDestination::Other => {
            RouterVerdict::Discard(DropReason::OtherStation)
        }
        EtherType::ARP => RouterVerdict::Neighbor(NeighborMessage::Arp),
        EtherType::IPV4 => classify_ipv4::classify(packet, longest, came, view, flow),
        EtherType::IPV6 => classify_ipv6::classify(packet, longest, came, view, flow),
        _ => RouterVerdict::Discard(DropReason::UnknownEtherType),
    };
    match verdict {
        RouterVerdict::EchoReply | RouterVerdict::Reassemble | RouterVerdict::Host
            if is_unclaimed(packet, view.ports, own) =>
        {
            RouterVerdict::Discard(DropReason::Unclaimed)
        }
        RouterVerdict::Host if !own.has_host && is_group_echo(packet) => RouterVerdict::EchoReply,
        // The host does not need packets that it sent itself.
        RouterVerdict::Host
            if !own.has_host || came.from == Origin::Host || is_virtual(packet, view.ports) =>
        {
            without_host(packet, came)
        }
        verdict => verdict,
    }
}

/// The verdict on a packet for the host of a router without one. The sender of UDP gets port unreachable,
/// and of protocols other than TCP that the protocol is unknown.
fn without_host(packet: &[u8], came: IngressInfo) -> RouterVerdict {
    match no_listener_reply(packet).filter(|_| !came.to.is_many()) {
        Some(reply) => RouterVerdict::Error(reply, DropReason::Local),
        None => RouterVerdict::Discard(DropReason::Local),
    }
}

/// Whether a packet is for a virtual address, which the host does not have.
fn is_virtual(packet: &[u8], ports: &[PortView]) -> bool {
    flow::source_and_destination(packet).is_some_and(|(_, to)| ports.iter().any(|port| answers_for(port, to)))
}

/// Whether an address is a virtual one of a port.
fn answers_for(port: &PortView, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => port.virtual_v4.iter().any(|(own, _)| *own == address.to_bits()),
        IpAddr::V6(address) => port.virtual_v6.iter().any(|(own, _)| *own == address.to_bits()),
    }
}

/// Whether it is an echo request to all nodes or all routers of the link (RFC 4291 section 2.7.1). Those to
/// groups of IPv4 are not answered (RFC 1812 section 4.3.3.6 allows that).
fn is_group_echo(packet: &[u8]) -> bool {
    let Ok(ip) = Ipv6::new(packet) else { return false };
    let is_group = matches!(ip.dst().segments(), [0xff02, 0, 0, 0, 0, 0, 0, 1 | 2]);
    let Some(headers) = is_group.then(|| Ip6Headers::parse_packet(packet).ok()).flatten() else {
        return false;
    };
    let end = Ipv6::<&[u8]>::LEN + usize::from(ip.payload_length());
    let message = packet.get(headers.offset..end).filter(|_| headers.protocol == IpProtocol::ICMPV6);
    message.and_then(|message| Icmp6::new(message).ok()).is_some_and(|icmp| {
        icmp.icmp_type() == Icmp6Type::ECHO_REQUEST && icmp.checksum_is_valid(ip.src(), ip.dst())
    })
}

/// The ICMP error for a port without a listener (RFC 1122 section 4.1.3.1), or for a protocol without a
/// handler (RFC 1122 section 3.2.2.1, RFC 8200 section 4).
fn no_listener_reply(packet: &[u8]) -> Option<IcmpReply> {
    if let Ok(ip) = Ipv4::new(packet) {
        return match ip.protocol() {
            IpProtocol::TCP | IpProtocol::ICMP => None,
            IpProtocol::UDP => Some(IcmpReply::V4(IcmpError::unreachable(IcmpError::PORT))),
            _ => Some(IcmpReply::V4(IcmpError::unreachable(IcmpError::PROTOCOL))),
        };
    }
    let headers = Ip6Headers::parse_packet(packet).ok()?;
    match headers.protocol {
        IpProtocol::TCP | IpProtocol::ICMPV6 | IpProtocol::NO_NEXT_HEADER => None,
        IpProtocol::UDP => Some(IcmpReply::V6(Icmp6Error::unreachable(Icmp6Error::PORT))),
        _ => {
            let named_at = headers.named_at as u32;
            Some(IcmpReply::V6(Icmp6Error::parameter_problem(Icmp6Error::UNKNOWN_NEXT_HEADER, named_at)))
        }
    }
}

/// Whether a packet is for an address that ports have, and may not use.
fn is_unclaimed(packet: &[u8], ports: &[PortView], own: LocalState<'_>) -> bool {
    let Some((_, to)) = flow::source_and_destination(packet) else { return false };
    let mut owners = (0..)
        .map(PortId)
        .zip(ports)
        .filter(|(_, port)| is_own_address(port, to))
        .map(|(id, _)| id)
        .peekable();
    // Ports with one link address have one link-local address, each on its own link.
    owners.peek().is_some() && !owners.any(|port| (own.is_usable)(port, to))
}

pub(super) fn is_own_address(port: &PortView, address: IpAddr) -> bool {
    answers_for(port, address) || has_address(port, address)
}

/// Whether an address is one that the port was given, or its link-local one.
pub(super) fn has_address(port: &PortView, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => port.v4.iter().any(|(own, _)| *own == address.to_bits()),
        IpAddr::V6(address) => {
            let own = address.to_bits();
            port.link_local == own || port.v6.iter().any(|(other, _)| *other == own)
        }
    }
}
