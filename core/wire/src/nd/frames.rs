//! Whole frames with a message each, ready to be sent.

use std::net::Ipv6Addr;

use super::option::{REDIRECTED, SOURCE_LINK, TARGET_LINK, UNIT};
use super::{
    ALL_NODES, ALL_ROUTERS, HOP_LIMIT, NeighborAdvertisement, NeighborSolicitation, Redirect,
    RouterSolicitation, solicited_node,
};
use crate::bytes::clamped_slice;
use crate::{EtherAddr, EtherType, Icmp6, IpProtocol, Ipv6, LinkEndpoint, Malformed, build_ethernet_frame};

/// What an advertisement says of itself and of its target (RFC 4861 section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct AdvertisementFlags {
    /// The target is a router (R).
    pub router: bool,
    /// The advertisement answers a solicitation (S).
    pub solicited: bool,
    /// Another link address known for the target gives way to this one (O).
    pub overrides: bool,
}

/// Longest redirect from its IP header on: no link has a smaller MTU (RFC 4861 section 4.5).
const MAX_REDIRECT: usize = 1280;

/// Builds a neighbor solicitation for `target`: its last known owner when `to` is given, else everyone.
///
/// From the unspecified address it is a probe for duplicates (RFC 4862 section 5.4.2) and
/// tells no link address.
pub fn neighbor_solicitation(
    from: LinkEndpoint<Ipv6Addr>,
    target: Ipv6Addr,
    to: Option<EtherAddr>,
) -> Vec<u8> {
    let to = match to {
        Some(ether) => LinkEndpoint { ether, ip: target },
        None => LinkEndpoint::multicast_group(solicited_node(target)),
    };
    let mut message = vec![0; NeighborSolicitation::<&[u8]>::LEN];
    fill_message(NeighborSolicitation::init(&mut message), |mut message| message.set_target(target));
    add_source_link(&mut message, from);
    build_frame(from, to, &message)
}

/// Builds a neighbor advertisement to `to` with the link address of `target`.
pub fn neighbor_advertisement(
    from: LinkEndpoint<Ipv6Addr>,
    to: LinkEndpoint<Ipv6Addr>,
    target: LinkEndpoint<Ipv6Addr>,
    flags: AdvertisementFlags,
) -> Vec<u8> {
    let mut message = vec![0; NeighborAdvertisement::<&[u8]>::LEN];
    fill_message(NeighborAdvertisement::init(&mut message), |mut message| {
        message.set_target(target.ip);
        message.set_flags(flags);
    });
    add_link(&mut message, TARGET_LINK, target.ether);
    build_frame(from, to, &message)
}

/// Builds an unsolicited neighbor advertisement to all nodes for `from` (RFC 4861 section 7.2.6).
pub fn unsolicited_advertisement(from: LinkEndpoint<Ipv6Addr>, router: bool, overrides: bool) -> Vec<u8> {
    let flags = AdvertisementFlags { router, solicited: false, overrides };
    neighbor_advertisement(from, LinkEndpoint::multicast_group(ALL_NODES), from, flags)
}

/// Builds a router solicitation to all routers.
pub fn router_solicitation(from: LinkEndpoint<Ipv6Addr>) -> Vec<u8> {
    let mut message = vec![0; RouterSolicitation::<&[u8]>::LEN];
    fill_message(RouterSolicitation::init(&mut message), |_| ());
    add_source_link(&mut message, from);
    build_frame(from, LinkEndpoint::multicast_group(ALL_ROUTERS), &message)
}

/// Builds a frame that tells `to`, the sender of `packet`, to send what goes where that packet went by
/// `target`, whose link address is included if known. The packet is quoted as far as there is room.
pub fn redirect(
    from: LinkEndpoint<Ipv6Addr>,
    to: LinkEndpoint<Ipv6Addr>,
    target: Ipv6Addr,
    link: Option<EtherAddr>,
    packet: &[u8],
) -> Result<Vec<u8>, Malformed> {
    let ip = Ipv6::new(packet)?;
    let mut message = vec![0; Redirect::<&[u8]>::LEN];
    fill_message(Redirect::init(&mut message), |mut message| {
        message.set_target(target);
        message.set_destination(ip.dst());
    });
    if let Some(link) = link {
        add_link(&mut message, TARGET_LINK, link);
    }
    let whole = clamped_slice(packet, 0, Ipv6::<&[u8]>::LEN + usize::from(ip.payload_length()));
    add_redirected(&mut message, whole);
    Ok(build_frame(from, to, &message))
}

/// A message of the right length can be made of any bytes that are as long.
fn fill_message<M>(message: Result<M, Malformed>, fill: impl FnOnce(M)) {
    fill(message.expect("room was made for the message"));
}

fn add_source_link(message: &mut Vec<u8>, from: LinkEndpoint<Ipv6Addr>) {
    if !from.ip.is_unspecified() {
        add_link(message, SOURCE_LINK, from.ether);
    }
}

fn add_link(message: &mut Vec<u8>, kind: u8, link: EtherAddr) {
    message.extend([kind, 1]);
    message.extend(link.0);
}

/// Adds as much of a packet as there is room for, padded to whole units.
fn add_redirected(message: &mut Vec<u8>, packet: &[u8]) {
    let room = (MAX_REDIRECT - Ipv6::<&[u8]>::LEN).saturating_sub(message.len() + UNIT) & !(UNIT - 1);
    let quoted = clamped_slice(packet, 0, room);
    let units = 1 + quoted.len().div_ceil(UNIT);
    message.extend([REDIRECTED, units as u8, 0, 0, 0, 0, 0, 0]);
    message.extend(quoted);
    message.resize(message.len().next_multiple_of(UNIT), 0);
}

/// Puts the headers before a message and fills in its checksum.
fn build_frame(from: LinkEndpoint<Ipv6Addr>, to: LinkEndpoint<Ipv6Addr>, message: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; Ipv6::<&[u8]>::LEN];
    packet.extend(message);
    fill_message(Ipv6::init(&mut packet), |mut ip| {
        ip.set_payload_length(message.len() as u16);
        ip.set_next_header(IpProtocol::ICMPV6);
        ip.set_hop_limit(HOP_LIMIT);
        ip.set_src(from.ip);
        ip.set_dst(to.ip);
        fill_message(Icmp6::new(ip.payload_mut()), |mut icmp| icmp.fill_checksum(from.ip, to.ip));
    });
    build_ethernet_frame(to.ether, from.ether, EtherType::IPV6, &packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ethernet;
    use crate::build::ip6;
    use crate::nd::{NdMessage, NdOption};
    use proptest::prelude::*;

    const ROUTER: LinkEndpoint<Ipv6Addr> =
        LinkEndpoint { ether: EtherAddr([2, 0, 0, 0, 0, 1]), ip: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1) };
    const HOST: LinkEndpoint<Ipv6Addr> = LinkEndpoint {
        ether: EtherAddr([2, 0, 0, 0, 0, 9]),
        ip: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9),
    };

    #[track_caller]
    fn read(frame: &[u8]) -> (EtherAddr, Ipv6Addr, NdMessage<'_>) {
        let ethernet = Ethernet::new(frame).unwrap();
        assert_eq!(ethernet.ether_type(), EtherType::IPV6);
        let ip = Ipv6::new(&frame[14..]).unwrap();
        (ethernet.dst(), ip.dst(), NdMessage::parse_packet(&frame[14..]).unwrap())
    }

    #[test]
    fn everyone_is_asked_at_the_solicited_node_address() {
        let target = "2001:db8::12:3456".parse().unwrap();
        let frame = neighbor_solicitation(ROUTER, target, None);
        let (ether, ip, NdMessage::NeighborSolicitation(message)) = read(&frame) else { panic!("other") };
        assert_eq!(ether, "33:33:ff:12:34:56".parse().unwrap());
        assert_eq!(ip, "ff02::1:ff12:3456".parse::<Ipv6Addr>().unwrap());
        assert_eq!((message.target(), message.source_link()), (target, Some(ROUTER.ether)));
    }

    #[test]
    fn one_neighbor_is_asked_at_its_own_address() {
        let frame = neighbor_solicitation(ROUTER, HOST.ip, Some(HOST.ether));
        let (ether, ip, NdMessage::NeighborSolicitation(message)) = read(&frame) else { panic!("other") };
        assert_eq!((ether, ip, message.target()), (HOST.ether, HOST.ip, HOST.ip));
    }

    #[test]
    fn a_probe_for_duplicates_tells_no_link_address() {
        let nobody = LinkEndpoint { ip: Ipv6Addr::UNSPECIFIED, ..ROUTER };
        let frame = neighbor_solicitation(nobody, HOST.ip, None);
        let (_, ip, NdMessage::NeighborSolicitation(message)) = read(&frame) else { panic!("other") };
        assert_eq!((ip, message.source_link()), (solicited_node(HOST.ip), None));
        let frame = router_solicitation(nobody);
        let (_, _, NdMessage::RouterSolicitation(message)) = read(&frame) else { panic!("other") };
        assert_eq!(message.source_link(), None);
    }

    #[test]
    fn an_advertisement_says_what_its_flags_say() {
        for bits in 0..8 {
            let flags = AdvertisementFlags {
                router: bits & 4 != 0,
                solicited: bits & 2 != 0,
                overrides: bits & 1 != 0,
            };
            let frame = neighbor_advertisement(ROUTER, HOST, ROUTER, flags);
            let (ether, _, NdMessage::NeighborAdvertisement(message)) = read(&frame) else { panic!("other") };
            let read = AdvertisementFlags {
                router: message.is_router(),
                solicited: message.is_solicited(),
                overrides: message.overrides(),
            };
            assert_eq!((ether, read), (HOST.ether, flags));
            assert_eq!((message.target(), message.target_link()), (ROUTER.ip, Some(ROUTER.ether)));
        }
    }

    #[test]
    fn an_unsolicited_advertisement_goes_to_all_nodes() {
        let frame = unsolicited_advertisement(ROUTER, true, true);
        let (ether, ip, NdMessage::NeighborAdvertisement(message)) = read(&frame) else { panic!("other") };
        assert_eq!((ether, ip), ("33:33:0:0:0:1".parse().unwrap(), ALL_NODES));
        assert!(message.is_router() && message.overrides() && !message.is_solicited());
    }

    #[test]
    fn routers_are_asked_at_the_address_of_all_routers() {
        let frame = router_solicitation(HOST);
        let (ether, ip, NdMessage::RouterSolicitation(message)) = read(&frame) else { panic!("other") };
        assert_eq!((ether, ip), ("33:33:0:0:0:2".parse().unwrap(), ALL_ROUTERS));
        assert_eq!(message.source_link(), Some(HOST.ether));
    }

    #[test]
    fn a_redirect_of_no_packet_is_refused() {
        assert_eq!(redirect(ROUTER, HOST, HOST.ip, None, &[0x60; 39]).unwrap_err(), Malformed::Truncated);
    }

    proptest! {
        #[test]
        fn a_redirect_quotes_what_fits(len in 0_usize..2000, padding in 0_usize..20, known: bool) {
            let packet = ip6().dst("2001:db8:9::9").udp(1, 2).payload(vec![7; len]).bytes();
            let target = "fe80::99".parse().unwrap();
            let link = known.then_some(EtherAddr([2, 0, 0, 0, 9, 9]));
            let padded = [&packet[..], &vec![0xee; padding]].concat();
            let frame = redirect(ROUTER, HOST, target, link, &padded).unwrap();
            prop_assert!(frame.len() <= 14 + 1280);
            let (_, _, NdMessage::Redirect(message)) = read(&frame) else { panic!("other") };
            prop_assert_eq!((message.target(), message.target_link()), (target, link));
            prop_assert_eq!(message.destination(), Ipv6::new(&packet).unwrap().dst());
            let Some(Ok(NdOption::Redirected(quoted))) = message.options().last() else { panic!("no quote") };
            let fitting = packet.len().min(1192 - if known { 8 } else { 0 });
            prop_assert_eq!(&quoted[..fitting], &packet[..fitting]);
            prop_assert!(quoted.len() < fitting + 8 && quoted[fitting..].iter().all(|byte| *byte == 0));
        }
    }
}
