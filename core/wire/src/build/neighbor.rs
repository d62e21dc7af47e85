//! Frames of address resolution, for both families.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Frame, Literal, ether};
use crate::nd::{self, AdvertisementFlags, LinkEndpoint};
use crate::{ArpOperation, EtherAddr};

/// Builds the broadcast ARP request for `target`.
pub fn arp_request(
    sender: impl Literal<EtherAddr>,
    sender_ip: impl Literal<Ipv4Addr>,
    target_ip: impl Literal<Ipv4Addr>,
) -> Frame {
    let (me, target) = ((sender.address(), sender_ip.address()), (EtherAddr::ZERO, target_ip.address()));
    ether(EtherAddr::BROADCAST, me.0).arp(ArpOperation::REQUEST, me, target)
}

/// Builds the frame that tells `target` that `sender` has `sender_ip`.
pub fn arp_reply(
    sender: impl Literal<EtherAddr>,
    sender_ip: impl Literal<Ipv4Addr>,
    target: impl Literal<EtherAddr>,
    target_ip: impl Literal<Ipv4Addr>,
) -> Frame {
    let (me, you) = ((sender.address(), sender_ip.address()), (target.address(), target_ip.address()));
    ether(you.0, me.0).arp(ArpOperation::REPLY, me, you)
}

/// Builds the multicast frame that asks who has `target_ip`; from `::`, it probes whether anyone has.
pub fn neighbor_solicitation(
    sender: impl Literal<EtherAddr>,
    sender_ip: impl Literal<Ipv6Addr>,
    target_ip: impl Literal<Ipv6Addr>,
) -> Frame {
    let me = LinkEndpoint { ether: sender.address(), ip: sender_ip.address() };
    Frame(nd::neighbor_solicitation(me, target_ip.address(), None))
}

/// Builds the frame that answers `target` that `sender` has `sender_ip` and is not a router.
pub fn neighbor_advertisement(
    sender: impl Literal<EtherAddr>,
    sender_ip: impl Literal<Ipv6Addr>,
    target: impl Literal<EtherAddr>,
    target_ip: impl Literal<Ipv6Addr>,
) -> Frame {
    let me = LinkEndpoint { ether: sender.address(), ip: sender_ip.address() };
    let you = LinkEndpoint { ether: target.address(), ip: target_ip.address() };
    let flags = AdvertisementFlags { router: false, solicited: true, overrides: true };
    Frame(nd::neighbor_advertisement(me, you, me, flags))
}
