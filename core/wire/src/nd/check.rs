//! Whether a message may be believed (RFC 4861 sections 6.1, 7.1 and 8.1).

use std::error::Error;
use std::fmt;
use std::net::Ipv6Addr;

use super::{
    HOP_LIMIT, NdOptions, NeighborAdvertisement, NeighborSolicitation, Redirect, RouterAdvertisement,
    RouterSolicitation, is_solicited_node,
};
use crate::{Icmp6, Icmp6Type, IpProtocol, Ipv6, Malformed};

/// A message that passed every check which its bytes and addresses allow.
#[derive(Clone, Copy, Debug)]
pub enum NdMessage<'a> {
    /// A neighbor solicitation (RFC 4861 section 4.3).
    NeighborSolicitation(NeighborSolicitation<&'a [u8]>),
    /// A neighbor advertisement (RFC 4861 section 4.4).
    NeighborAdvertisement(NeighborAdvertisement<&'a [u8]>),
    /// A router solicitation (RFC 4861 section 4.1).
    RouterSolicitation(RouterSolicitation<&'a [u8]>),
    /// A router advertisement (RFC 4861 section 4.2).
    RouterAdvertisement(RouterAdvertisement<&'a [u8]>),
    /// A redirect; whether its sender is the present first hop, who is to know.
    Redirect(Redirect<&'a [u8]>),
}

/// Why a packet is not a valid neighbor discovery message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NdFault {
    /// It is another packet: not ICMPv6, or of another type.
    Other,
    /// It is too short, or has a malformed option.
    Malformed(Malformed),
    /// The hop limit is not 255: the packet may come from another link.
    HopLimit,
    /// The checksum is wrong.
    Checksum,
    /// The code is not 0.
    Code,
    /// The target, or the destination of a redirect, is a multicast address.
    Multicast,
    /// A source link address comes from the unspecified address.
    LinkOfNobody,
    /// A solicitation from the unspecified address goes elsewhere than to a solicited-node address.
    Destination,
    /// An advertisement to a multicast address says that it was solicited.
    Solicited,
    /// The source of a router's message is not a link-local address.
    Source,
    /// The target of a redirect is neither link-local nor the destination.
    Target,
}

impl fmt::Display for NdFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NdFault::Other => "not neighbor discovery",
            NdFault::Malformed(malformed) => return malformed.fmt(f),
            NdFault::HopLimit => "hop limit below 255",
            NdFault::Checksum => "bad checksum",
            NdFault::Code => "bad code",
            NdFault::Multicast => "multicast target",
            NdFault::LinkOfNobody => "link address from the unspecified address",
            NdFault::Destination => "probe to another address than a solicited-node one",
            NdFault::Solicited => "solicited advertisement to a multicast address",
            NdFault::Source => "router message from an address that is not link-local",
            NdFault::Target => "redirect to a target that is not link-local",
        })
    }
}

impl Error for NdFault {}

impl From<Malformed> for NdFault {
    fn from(malformed: Malformed) -> NdFault {
        NdFault::Malformed(malformed)
    }
}

impl<'a> NdMessage<'a> {
    /// Reads the message that an IPv6 packet carries right after its fixed header, and checks it.
    ///
    /// A message in a fragment is not to be believed (RFC 6980), and behind other extension
    /// headers none is sent.
    pub fn parse_packet(packet: &'a [u8]) -> Result<NdMessage<'a>, NdFault> {
        let ip = Ipv6::new(packet)?;
        if ip.next_header() != IpProtocol::ICMPV6 {
            return Err(NdFault::Other);
        }
        ip.check_payload_length()?;
        let message = &packet[Ipv6::<&[u8]>::LEN..][..ip.payload_length().into()];
        let icmp = Icmp6::new(message)?;
        if !(Icmp6Type::ROUTER_SOLICITATION.0..=Icmp6Type::REDIRECT.0).contains(&icmp.icmp_type().0) {
            return Err(NdFault::Other);
        }
        check_envelope(&ip, &icmp)?;
        let (src, dst) = (ip.src(), ip.dst());
        match icmp.icmp_type() {
            Icmp6Type::NEIGHBOR_SOLICITATION => neighbor_solicitation(message, src, dst),
            Icmp6Type::NEIGHBOR_ADVERTISEMENT => neighbor_advertisement(message, dst),
            Icmp6Type::ROUTER_SOLICITATION => router_solicitation(message, src),
            Icmp6Type::ROUTER_ADVERTISEMENT => router_advertisement(message, src),
            _ => parse_redirect(message, src),
        }
    }
}

/// Requirements of all five messages.
fn check_envelope(ip: &Ipv6<&[u8]>, icmp: &Icmp6<&[u8]>) -> Result<(), NdFault> {
    if ip.hop_limit() != HOP_LIMIT {
        return Err(NdFault::HopLimit);
    }
    if !icmp.checksum_is_valid(ip.src(), ip.dst()) {
        return Err(NdFault::Checksum);
    }
    if icmp.code() == 0 { Ok(()) } else { Err(NdFault::Code) }
}

/// Validates by section 7.1.1.
fn neighbor_solicitation(bytes: &[u8], src: Ipv6Addr, dst: Ipv6Addr) -> Result<NdMessage<'_>, NdFault> {
    let message = NeighborSolicitation::new(bytes)?;
    message.options().check_all()?;
    if message.target().is_multicast() {
        return Err(NdFault::Multicast);
    }
    if src.is_unspecified() && !is_solicited_node(dst) {
        return Err(NdFault::Destination);
    }
    check_source_link(message.options(), src)?;
    Ok(NdMessage::NeighborSolicitation(message))
}

/// Validates by section 7.1.2.
fn neighbor_advertisement(bytes: &[u8], dst: Ipv6Addr) -> Result<NdMessage<'_>, NdFault> {
    let message = NeighborAdvertisement::new(bytes)?;
    message.options().check_all()?;
    if message.target().is_multicast() {
        return Err(NdFault::Multicast);
    }
    if dst.is_multicast() && message.is_solicited() {
        return Err(NdFault::Solicited);
    }
    Ok(NdMessage::NeighborAdvertisement(message))
}

/// Validates by section 6.1.1.
fn router_solicitation(bytes: &[u8], src: Ipv6Addr) -> Result<NdMessage<'_>, NdFault> {
    let message = RouterSolicitation::new(bytes)?;
    message.options().check_all()?;
    check_source_link(message.options(), src)?;
    Ok(NdMessage::RouterSolicitation(message))
}

/// Validates by section 6.1.2.
fn router_advertisement(bytes: &[u8], src: Ipv6Addr) -> Result<NdMessage<'_>, NdFault> {
    let message = RouterAdvertisement::new(bytes)?;
    message.options().check_all()?;
    if !src.is_unicast_link_local() {
        return Err(NdFault::Source);
    }
    Ok(NdMessage::RouterAdvertisement(message))
}

/// Validates by section 8.1.
fn parse_redirect(bytes: &[u8], src: Ipv6Addr) -> Result<NdMessage<'_>, NdFault> {
    let message = Redirect::new(bytes)?;
    message.options().check_all()?;
    if !src.is_unicast_link_local() {
        return Err(NdFault::Source);
    }
    if message.destination().is_multicast() {
        return Err(NdFault::Multicast);
    }
    let on_link = message.target() == message.destination();
    if !on_link && !message.target().is_unicast_link_local() {
        return Err(NdFault::Target);
    }
    Ok(NdMessage::Redirect(message))
}

fn check_source_link(options: NdOptions<'_>, src: Ipv6Addr) -> Result<(), NdFault> {
    if src.is_unspecified() && options.source_link().is_some() {
        return Err(NdFault::LinkOfNobody);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Ip6, ip6};
    use crate::nd::{ALL_NODES, ALL_ROUTERS, solicited_node};
    use proptest::prelude::*;

    const SOURCE_LINK: [u8; 8] = [1, 1, 2, 0, 0, 0, 0, 1];
    const TARGET_LINK: [u8; 8] = [2, 1, 2, 0, 0, 0, 0, 2];
    const ENDLESS: [u8; 8] = [14, 0, 0, 0, 0, 0, 0, 0];
    const SOLICITED: [u8; 4] = [0x40, 0, 0, 0];
    const NO_FLAGS: [u8; 4] = [0; 4];

    fn address(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    /// A packet from and to link-local addresses.
    fn packet(icmp_type: Icmp6Type, rest: [u8; 4], body: &[&[u8]]) -> Ip6 {
        let packet = ip6().src("fe80::1").dst("fe80::2").hop_limit(255);
        packet.icmp(icmp_type, 0, rest).payload(body.concat())
    }

    fn solicitation(target: &str, options: &[u8]) -> Ip6 {
        packet(Icmp6Type::NEIGHBOR_SOLICITATION, NO_FLAGS, &[&address(target).octets(), options])
    }

    fn advertisement(rest: [u8; 4], target: &str, options: &[u8]) -> Ip6 {
        packet(Icmp6Type::NEIGHBOR_ADVERTISEMENT, rest, &[&address(target).octets(), options])
    }

    fn router(options: &[u8]) -> Ip6 {
        packet(Icmp6Type::ROUTER_ADVERTISEMENT, [64, 0xc0, 7, 8], &[&[0, 0, 0, 9, 0, 0, 0, 8], options])
    }

    fn redirected(target: &str, destination: &str, options: &[u8]) -> Ip6 {
        let addresses = [address(target).octets(), address(destination).octets()].concat();
        packet(Icmp6Type::REDIRECT, NO_FLAGS, &[&addresses, options])
    }

    fn all() -> [Ip6; 5] {
        [
            solicitation("2001:db8::2", &SOURCE_LINK),
            advertisement(SOLICITED, "2001:db8::2", &TARGET_LINK),
            packet(Icmp6Type::ROUTER_SOLICITATION, NO_FLAGS, &[&SOURCE_LINK]),
            router(&SOURCE_LINK),
            redirected("fe80::9", "2001:db8::9", &TARGET_LINK),
        ]
    }

    #[track_caller]
    fn expect_fault(packet: Ip6, fault: NdFault) {
        assert_eq!(NdMessage::parse_packet(&packet.bytes()).unwrap_err(), fault);
    }

    #[test]
    fn each_sound_message_is_read() {
        let [bytes @ .., router, redirect] = all().map(|packet| packet.bytes());
        for bytes in bytes {
            assert!(NdMessage::parse_packet(&bytes).is_ok());
        }
        let Ok(NdMessage::RouterAdvertisement(router)) = NdMessage::parse_packet(&router) else {
            panic!("no router")
        };
        assert_eq!((router.current_hop_limit(), router.router_lifetime().as_secs()), (64, 0x708));
        assert!(router.is_managed() && router.has_other_configuration());
        assert_eq!((router.reachable_time().as_millis(), router.retransmit_time().as_millis()), (9, 8));
        let Ok(NdMessage::Redirect(redirect)) = NdMessage::parse_packet(&redirect) else {
            panic!("no redirect")
        };
        assert_eq!((redirect.target(), redirect.destination()), (address("fe80::9"), address("2001:db8::9")));
        assert_eq!(redirect.target_link().unwrap().0, [2, 0, 0, 0, 0, 2]);
    }

    #[test]
    fn what_may_come_from_another_link_is_not_believed() {
        all().into_iter().for_each(|packet| expect_fault(packet.hop_limit(254), NdFault::HopLimit));
    }

    #[test]
    fn a_wrong_checksum_code_or_option_spoils_each_message() {
        for packet in all() {
            let mut bytes = packet.bytes();
            bytes[45] ^= 1;
            assert_eq!(NdMessage::parse_packet(&bytes).unwrap_err(), NdFault::Checksum);
            let mut message = Icmp6::new(&mut bytes[40..]).unwrap();
            message.set_code(1);
            message.fill_checksum(address("fe80::1"), address("fe80::2"));
            assert_eq!(NdMessage::parse_packet(&bytes).unwrap_err(), NdFault::Code);
        }
        let endless = NdFault::Malformed(Malformed::Length);
        expect_fault(solicitation("2001:db8::2", &ENDLESS), endless);
        expect_fault(advertisement(NO_FLAGS, "2001:db8::2", &ENDLESS), endless);
        expect_fault(packet(Icmp6Type::ROUTER_SOLICITATION, NO_FLAGS, &[&ENDLESS]), endless);
        expect_fault(router(&ENDLESS), endless);
        expect_fault(redirected("fe80::9", "2001:db8::9", &ENDLESS), endless);
    }

    #[test]
    fn a_multicast_target_is_refused() {
        expect_fault(solicitation("ff02::1", &[]), NdFault::Multicast);
        expect_fault(advertisement(NO_FLAGS, "ff02::1", &[]), NdFault::Multicast);
        expect_fault(redirected("fe80::9", "ff0e::9", &[]), NdFault::Multicast);
    }

    #[test]
    fn the_unspecified_address_asks_at_solicited_node_addresses_and_has_no_link_address() {
        let group = solicited_node(address("2001:db8::2"));
        let probe = |options: &[u8]| solicitation("2001:db8::2", options).src("::").dst(group);
        assert!(NdMessage::parse_packet(&probe(&[]).bytes()).is_ok());
        expect_fault(probe(&[]).dst("2001:db8::2"), NdFault::Destination);
        expect_fault(probe(&[]).dst(ALL_NODES), NdFault::Destination);
        expect_fault(probe(&SOURCE_LINK), NdFault::LinkOfNobody);
        let asks = |options: &[u8]| packet(Icmp6Type::ROUTER_SOLICITATION, NO_FLAGS, &[options]).src("::");
        assert!(NdMessage::parse_packet(&asks(&[]).dst(ALL_ROUTERS).bytes()).is_ok());
        expect_fault(asks(&SOURCE_LINK), NdFault::LinkOfNobody);
    }

    #[test]
    fn an_advertisement_to_all_was_not_solicited() {
        expect_fault(advertisement(SOLICITED, "2001:db8::2", &[]).dst(ALL_NODES), NdFault::Solicited);
        let unasked = advertisement(NO_FLAGS, "2001:db8::2", &[]).dst(ALL_NODES).bytes();
        assert!(NdMessage::parse_packet(&unasked).is_ok());
    }

    #[test]
    fn routers_speak_from_link_local_addresses() {
        expect_fault(router(&[]).src("2001:db8::1"), NdFault::Source);
        expect_fault(redirected("fe80::9", "2001:db8::9", &[]).src("2001:db8::1"), NdFault::Source);
        expect_fault(redirected("2001:db8::8", "2001:db8::9", &[]), NdFault::Target);
        assert!(NdMessage::parse_packet(&redirected("2001:db8::9", "2001:db8::9", &[]).bytes()).is_ok());
    }

    #[test]
    fn other_packets_are_told_apart() {
        expect_fault(ip6().udp(1, 2).hop_limit(255), NdFault::Other);
        expect_fault(ip6().icmp_echo(1, 2), NdFault::Other);
    }

    #[test]
    fn a_packet_cut_short_is_malformed_at_every_length() {
        for packet in all() {
            let bytes = packet.bytes();
            for len in 0..bytes.len() {
                assert!(
                    matches!(NdMessage::parse_packet(&bytes[..len]), Err(NdFault::Malformed(_))),
                    "{len}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn any_message_is_read_or_refused(
            which in 133_u8..138, body in prop::collection::vec(0_u8..6, 0..80), flags: [u8; 4],
        ) {
            let bytes = packet(Icmp6Type(which), flags, &[&body]).bytes();
            match NdMessage::parse_packet(&bytes) {
                Ok(NdMessage::NeighborSolicitation(message)) => {
                    prop_assert!(message.target().octets() == body[..16] && which == 135);
                    message.source_link();
                }
                Ok(NdMessage::NeighborAdvertisement(message)) => {
                    prop_assert!(message.target().octets() == body[..16] && which == 136);
                    message.target_link();
                }
                Ok(_) | Err(_) => {}
            }
        }
    }
}
