//! What is to become of a frame: what its packet's family says, and what goes before and after that for both.
use super::icmp;
use super::slow::LINK;
use super::verdict::{Came, FlowOf, Message, Origin, Told, Verdict, View};
use super::{judge4, judge6};
use artery_engine::DropReason;
use artery_table::PortId;
use artery_table::router::PortView;
use artery_wire::{EtherType, Ethernet, Icmp6Error, IcmpError, Ip6Headers, IpProtocol, Ipv4};
use std::net::IpAddr;

/// What the tables don't say about the router itself.
#[derive(Clone, Copy)]
pub(super) struct Own<'a> {
    /// Whether it may use an address of a port: nobody else claims it.
    pub(super) is_usable: &'a dyn Fn(PortId, IpAddr) -> bool,
    /// Whether there is a host behind it.
    pub(super) has_host: bool,
}

/// Judges a frame. If it is yet to be cut into segments, none is longer than `longest` from the IP header on.
pub(super) fn judge(
    frame: &[u8],
    longest: usize,
    came: Came,
    view: &View<'_>,
    own: Own<'_>,
    flow: FlowOf<'_>,
) -> Verdict {
    let Ok(ethernet) = Ethernet::new(frame) else { return Verdict::Discard(DropReason::TooShort) };
    let packet = frame.get(LINK..).unwrap_or_default();
    let verdict = match ethernet.ether_type() {
        EtherType::ARP => Verdict::Neighbor(Message::Arp),
        EtherType::IPV4 => judge4::judge(packet, longest, came, view, flow),
        EtherType::IPV6 => judge6::judge(packet, longest, came, view, flow),
        _ => Verdict::Discard(DropReason::UnknownEtherType),
    };
    match verdict {
        Verdict::Answer | Verdict::Reassemble | Verdict::Host if is_unclaimed(packet, view.ports, own) => {
            Verdict::Discard(DropReason::Unclaimed)
        }
        // The host itself need not hear what it says.
        Verdict::Host if !own.has_host || came.from == Origin::Host || is_virtual(packet, view.ports) => {
            without_host(packet, came)
        }
        verdict => verdict,
    }
}

/// What becomes of a packet for the host where there is none. Who speaks to a port at which nobody listens hears so.
fn without_host(packet: &[u8], came: Came) -> Verdict {
    match nobody_listens(packet).filter(|_| !came.to.is_many()) {
        Some(told) => Verdict::Error(told, DropReason::Local),
        None => Verdict::Discard(DropReason::Local),
    }
}

/// Whether a packet is for a virtual address, which the host does not have.
fn is_virtual(packet: &[u8], ports: &[PortView]) -> bool {
    icmp::ends(packet).is_some_and(|(_, to)| ports.iter().any(|port| answers_for(port, to)))
}

/// Whether an address is a virtual one of a port.
fn answers_for(port: &PortView, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => port.virtual_v4.iter().any(|(own, _)| *own == address.to_bits()),
        IpAddr::V6(address) => port.virtual_v6.iter().any(|(own, _)| *own == address.to_bits()),
    }
}

/// What is said of a port at which nobody listens.
fn nobody_listens(packet: &[u8]) -> Option<Told> {
    if let Ok(ip) = Ipv4::new(packet) {
        return (ip.protocol() == IpProtocol::UDP).then(|| Told::V4(IcmpError::unreachable(IcmpError::PORT)));
    }
    let headers = Ip6Headers::read(packet).ok()?;
    (headers.protocol == IpProtocol::UDP).then(|| Told::V6(Icmp6Error::unreachable(Icmp6Error::PORT)))
}

/// Whether a packet is for an address that ports have, and may not use.
fn is_unclaimed(packet: &[u8], ports: &[PortView], own: Own<'_>) -> bool {
    let Some((_, to)) = icmp::ends(packet) else { return false };
    let mut owners =
        (0..).map(PortId).zip(ports).filter(|(_, port)| owns(port, to)).map(|(id, _)| id).peekable();
    // Ports with one link address have one link-local address, each on its own link.
    owners.peek().is_some() && !owners.any(|port| (own.is_usable)(port, to))
}

fn owns(port: &PortView, address: IpAddr) -> bool {
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
