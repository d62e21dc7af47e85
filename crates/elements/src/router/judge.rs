//! What is to become of a frame: what its packet's family says, and what goes before and after that for both.
use super::icmp;
use super::slow::LINK;
use super::verdict::{Came, FlowOf, Message, Verdict, View};
use super::{judge4, judge6};
use artery_engine::DropReason;
use artery_table::PortId;
use artery_table::router::PortView;
use artery_wire::{EtherType, Ethernet};
use std::net::IpAddr;

/// Whether the router may use an address of a port: nobody else claims it.
pub(super) type IsUsable<'a> = &'a dyn Fn(PortId, IpAddr) -> bool;

/// Judges a frame. If it is yet to be cut into segments, none is longer than `longest` from the IP header on.
pub(super) fn judge(
    frame: &[u8],
    longest: usize,
    came: Came,
    view: &View<'_>,
    is_usable: IsUsable<'_>,
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
    let is_for_us = matches!(verdict, Verdict::Answer | Verdict::Reassemble | Verdict::Host);
    if is_for_us && is_unclaimed(packet, view.ports, is_usable) {
        return Verdict::Discard(DropReason::Unclaimed);
    }
    verdict
}

/// Whether a packet is for an address that ports have, and may not use.
fn is_unclaimed(packet: &[u8], ports: &[PortView], is_usable: IsUsable<'_>) -> bool {
    let Some((_, to)) = icmp::ends(packet) else { return false };
    let mut owners = (0..).map(PortId).zip(ports).filter(|(_, port)| owns(port, to)).map(|(id, _)| id).peekable();
    // Ports with one link address have one link-local address, each on its own link.
    owners.peek().is_some() && !owners.any(|port| is_usable(port, to))
}

fn owns(port: &PortView, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => port.v4.iter().any(|(own, _)| *own == address.to_bits()),
        IpAddr::V6(address) => {
            let own = address.to_bits();
            port.link_local == own || port.v6.iter().any(|(other, _)| *other == own)
        }
    }
}
