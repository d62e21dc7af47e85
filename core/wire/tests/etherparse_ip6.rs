//! Etherparse as the oracle for ICMPv6, neighbor discovery, extension headers and errors of both versions.

use artery_wire::build::{ip4, ip6};
use artery_wire::nd::{self, AdvertisementFlags, NdOption, NdOptions};
use artery_wire::{
    EtherAddr, Icmp6, Icmp6Error, Icmp6Type, IcmpError, Ip6Fault, Ip6Headers, Ipv6, LinkEndpoint,
};
use etherparse::icmpv6::{Icmpv6PayloadSlice, NdpOptionSlice, NdpOptionsIterator};
use etherparse::{
    Icmpv4Slice, Icmpv6Slice, Icmpv6Type, IpNumber, Ipv4HeaderSlice, Ipv6ExtensionsSlice, Ipv6HeaderSlice,
    NetSlice, SlicedPacket, TransportSlice,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::net::{Ipv4Addr, Ipv6Addr};

fn any_station() -> impl Strategy<Value = LinkEndpoint<Ipv6Addr>> {
    let addresses = any::<([u8; 6], [u8; 16])>();
    addresses.prop_map(|(ether, ip)| LinkEndpoint { ether: EtherAddr(ether), ip: Ipv6Addr::from(ip) })
}

/// What etherparse finds in a frame with an ICMPv6 message whose checksum and lengths are right.
fn read_frame(frame: &[u8]) -> (EtherAddr, Ipv6Addr, Icmpv6Slice<'_>) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) = (packet.net, packet.transport)
    else {
        panic!("not ICMPv6");
    };
    assert_eq!(14 + 40 + usize::from(ip.header().payload_length()), frame.len());
    assert_eq!(ip.header().hop_limit(), 255);
    assert!(icmp.is_checksum_valid(ip.header().source(), ip.header().destination()));
    let destination = packet.link.unwrap().to_header().unwrap().ethernet2().unwrap().destination;
    (EtherAddr(destination), ip.header().destination_addr(), icmp)
}

fn links(options: NdpOptionsIterator<'_>) -> Vec<(u8, Vec<u8>)> {
    options
        .map(|option| match option.unwrap() {
            NdpOptionSlice::SourceLinkLayerAddress(link) => (1, link.link_layer_address().to_vec()),
            NdpOptionSlice::TargetLinkLayerAddress(link) => (2, link.link_layer_address().to_vec()),
            NdpOptionSlice::RedirectedHeader(header) => (4, header.redirected_packet().to_vec()),
            other => panic!("no {other:?} was built"),
        })
        .collect()
}

proptest! {
    #[test]
    fn echo_is_read_as_it_was_built(
        id: u16,
        seq: u16,
        addrs: ([u8; 16], [u8; 16]),
        payload in vec(any::<u8>(), 0..100),
    ) {
        let bytes = ip6().src(addrs.0).dst(addrs.1).icmp_echo(id, seq).payload(&payload).bytes();
        let theirs = Icmpv6Slice::from_slice(&bytes[40..]).unwrap();
        let Icmpv6Type::EchoRequest(echo) = theirs.icmp_type() else { panic!("not an echo request") };
        prop_assert_eq!((echo.id, echo.seq, theirs.payload()), (id, seq, &payload[..]));
        prop_assert!(theirs.is_checksum_valid(addrs.0, addrs.1));
        let ours = Icmp6::new(&bytes[40..]).unwrap();
        prop_assert_eq!((ours.echo_id(), ours.echo_seq(), ours.payload()), (id, seq, &payload[..]));
        prop_assert_eq!((ours.icmp_type(), ours.checksum()), (Icmp6Type::ECHO_REQUEST, theirs.checksum()));
    }

    #[test]
    fn both_say_the_same_of_a_checksum(
        bytes in vec(any::<u8>(), 8..60),
        addrs: ([u8; 16], [u8; 16]),
        right: bool,
    ) {
        let mut bytes = bytes;
        let (src, dst) = (Ipv6Addr::from(addrs.0), Ipv6Addr::from(addrs.1));
        if right {
            Icmp6::new(&mut bytes).unwrap().fill_checksum(src, dst);
        }
        let theirs = Icmpv6Slice::from_slice(&bytes).unwrap().is_checksum_valid(addrs.0, addrs.1);
        prop_assert_eq!(Icmp6::new(&bytes).unwrap().checksum_is_valid(src, dst), theirs);
        prop_assert!(theirs || !right);
    }

    #[test]
    fn a_solicitation_is_read_as_it_was_built(
        from in any_station(),
        target: [u8; 16],
        known: Option<[u8; 6]>,
    ) {
        let target = Ipv6Addr::from(target);
        let frame = nd::neighbor_solicitation(from, target, known.map(EtherAddr));
        let (ether, ip, icmp) = read_frame(&frame);
        let Ok(Icmpv6PayloadSlice::NeighborSolicitation(message)) = icmp.payload_slice() else {
            panic!("other")
        };
        prop_assert_eq!(message.target_address(), target);
        let told = if from.ip.is_unspecified() { vec![] } else { vec![(1, from.ether.0.to_vec())] };
        prop_assert_eq!(links(message.options_iterator()), told);
        let group = nd::solicited_node(target);
        let to = known.map_or((EtherAddr::multicast_v6(group), group), |known| (EtherAddr(known), target));
        prop_assert_eq!((ether, ip), to);
    }

    #[test]
    fn an_advertisement_is_read_as_it_was_built(
        from in any_station(),
        to in any_station(),
        target in any_station(),
        flags: (bool, bool, bool),
    ) {
        let (router, solicited, overrides) = flags;
        let frame =
            nd::neighbor_advertisement(from, to, target, AdvertisementFlags { router, solicited, overrides });
        let (ether, ip, icmp) = read_frame(&frame);
        prop_assert_eq!((ether, ip), (to.ether, to.ip));
        let Icmpv6Type::NeighborAdvertisement(header) = icmp.icmp_type() else { panic!("other") };
        prop_assert_eq!((header.router, header.solicited, header.r#override), flags);
        let Ok(Icmpv6PayloadSlice::NeighborAdvertisement(message)) = icmp.payload_slice() else {
            panic!("other")
        };
        prop_assert_eq!(message.target_address(), target.ip);
        prop_assert_eq!(links(message.options_iterator()), [(2, target.ether.0.to_vec())]);
    }

    #[test]
    fn routers_are_asked_as_etherparse_would(from in any_station(), router: bool, overrides: bool) {
        let asked = nd::router_solicitation(from);
        let (ether, ip, icmp) = read_frame(&asked);
        prop_assert_eq!((ether.to_string(), ip), ("33:33:00:00:00:02".into(), nd::ALL_ROUTERS));
        prop_assert_eq!(icmp.icmp_type(), Icmpv6Type::RouterSolicitation);
        let told = nd::unsolicited_advertisement(from, router, overrides);
        let (ether, ip, icmp) = read_frame(&told);
        prop_assert_eq!((ether.to_string(), ip), ("33:33:00:00:00:01".into(), nd::ALL_NODES));
        prop_assert!(
            matches!(icmp.icmp_type(), Icmpv6Type::NeighborAdvertisement(flags) if !flags.solicited)
        );
    }

    #[test]
    fn a_redirect_is_read_as_it_was_built(
        from in any_station(),
        to in any_station(),
        target in any_station(),
        len in 0_usize..1500,
    ) {
        let packet = ip6().udp(1, 2).payload(vec![7; len]).bytes();
        let frame = nd::redirect(from, to, target.ip, Some(target.ether), &packet).unwrap();
        let (ether, ip, icmp) = read_frame(&frame);
        prop_assert_eq!((ether, ip), (to.ether, to.ip));
        let Ok(Icmpv6PayloadSlice::Redirect(message)) = icmp.payload_slice() else { panic!("other") };
        prop_assert_eq!(message.target_address(), target.ip);
        prop_assert_eq!(message.destination_address(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2));
        let options = links(message.options_iterator());
        prop_assert_eq!((options.len(), &options[0]), (2, &(2, target.ether.0.to_vec())));
        prop_assert!(options[1].1.starts_with(&packet[..packet.len().min(1184)]));
    }

    #[test]
    fn both_read_the_same_options(bytes in vec(select(&[0_u8, 1, 2, 3, 4, 5, 9][..]), 0..120)) {
        let theirs = NdpOptionsIterator::from_slice(&bytes).take_while(Result::is_ok).flatten();
        for (ours, theirs) in NdOptions::new(&bytes).flatten().zip(theirs) {
            match (ours, theirs) {
                (NdOption::SourceLink(ours), NdpOptionSlice::SourceLinkLayerAddress(theirs)) => {
                    prop_assert_eq!(&ours.0[..], theirs.link_layer_address());
                }
                (NdOption::TargetLink(ours), NdpOptionSlice::TargetLinkLayerAddress(theirs)) => {
                    prop_assert_eq!(&ours.0[..], theirs.link_layer_address());
                }
                (NdOption::Mtu(ours), NdpOptionSlice::Mtu(theirs)) => prop_assert_eq!(ours, theirs.mtu()),
                (NdOption::Prefix(ours), NdpOptionSlice::PrefixInformation(theirs)) => {
                    prop_assert_eq!(ours.prefix.octets(), theirs.prefix());
                    prop_assert_eq!(ours.len, theirs.prefix_length());
                    prop_assert_eq!(ours.on_link, theirs.on_link());
                    prop_assert_eq!(ours.autonomous, theirs.autonomous_address_configuration());
                }
                (NdOption::Redirected(ours), NdpOptionSlice::RedirectedHeader(theirs)) => {
                    prop_assert_eq!(ours, theirs.redirected_packet());
                }
                (NdOption::Other { kind, body }, NdpOptionSlice::Unknown(theirs)) => {
                    prop_assert_eq!((kind, body), (theirs.option_type().0, theirs.data()));
                }
                (ours, theirs) => prop_assert!(false, "{:?} is {:?}", ours, theirs),
            }
        }
    }

    /// Etherparse looks into later fragments and through any number of headers; up to there both
    /// go the same way.
    #[test]
    fn both_go_the_same_way_through_extension_headers(
        first in select(&[0_u8, 43, 44, 51, 60, 17][..]),
        body in vec(select(&[0_u8, 1, 2, 43, 44, 51, 60, 17][..]), 0..150),
    ) {
        let bytes = ip6().raw(first, &body).bytes();
        let theirs = Ipv6ExtensionsSlice::from_slice(IpNumber(first), &bytes[40..]);
        match (Ip6Headers::parse_packet(&bytes), theirs) {
            (Ok(ours), _) if ours.is_later_fragment() => {}
            (Err(Ip6Fault::TooMany), _) => {}
            (Ok(ours), Ok((_, next, rest))) => {
                prop_assert_eq!((ours.protocol.0, ours.offset), (next.0, bytes.len() - rest.len()));
            }
            (ours, theirs) => prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?} {:?}", ours, theirs),
        }
    }

    #[test]
    fn icmp_errors_are_read_as_they_were_made(
        mtu: u16,
        tos: u8,
        len in 0_usize..1500,
        pointer: u8,
        gateway: [u8; 4],
    ) {
        let cause = ip4().tos(tos).udp(1, 2).payload(vec![7; len]).bytes();
        let router = LinkEndpoint { ether: EtherAddr([2; 6]), ip: Ipv4Addr::new(10, 0, 0, 254) };
        for error in [
            IcmpError::need_fragmentation(mtu),
            IcmpError::time_exceeded(),
            IcmpError::parameter_problem(pointer),
            IcmpError::redirect(gateway.into()),
        ] {
            let answer = error.answer_to(&cause, false, |_| false).unwrap();
            let frame = answer.build_frame(&cause, router, EtherAddr([4; 6]), 9);
            let packet = SlicedPacket::from_ethernet(&frame).unwrap();
            let Some(TransportSlice::Icmpv4(icmp)) = packet.transport else { panic!("not ICMP") };
            let ip = Ipv4HeaderSlice::from_slice(&frame[14..]).unwrap();
            prop_assert_eq!(ip.header_checksum(), ip.to_header().calc_header_checksum());
            prop_assert_eq!(ip.source_addr(), router.ip);
            prop_assert_eq!(ip.destination_addr(), Ipv4Addr::new(10, 0, 0, 1));
            prop_assert_eq!(icmp.type_u8(), error.icmp_type.0);
            prop_assert_eq!(icmp.code_u8(), error.code);
            prop_assert_eq!(icmp.bytes5to8(), error.rest);
            let theirs = Icmpv4Slice::from_slice(icmp.slice()).unwrap();
            prop_assert_eq!(theirs.checksum(), theirs.icmp_type().calc_checksum(icmp.payload()));
            prop_assert_eq!(icmp.payload(), &cause[..cause.len().min(548)]);
        }
    }

    #[test]
    fn icmpv6_errors_are_read_as_they_were_made(
        mtu: u32,
        len in 0_usize..1500,
        code in 0_u8..7,
        pointer: u32,
    ) {
        let cause = ip6().udp(1, 2).payload(vec![7; len]).bytes();
        let router = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xff);
        for error in [
            Icmp6Error::unreachable(code),
            Icmp6Error::packet_too_big(mtu),
            Icmp6Error::time_exceeded(),
            Icmp6Error::parameter_problem(code % 3, pointer),
        ] {
            let made = error.answer_to(&cause, false).unwrap().build_packet(&cause, router);
            let ip = Ipv6HeaderSlice::from_slice(&made).unwrap();
            prop_assert_eq!(usize::from(ip.payload_length()), made.len() - 40);
            prop_assert_eq!(ip.source_addr(), router);
            prop_assert_eq!(ip.destination_addr(), Ipv6::new(&cause).unwrap().src());
            let icmp = Icmpv6Slice::from_slice(&made[40..]).unwrap();
            prop_assert!(icmp.is_checksum_valid(ip.source(), ip.destination()));
            let known = !matches!(icmp.icmp_type(), Icmpv6Type::Unknown { .. });
            prop_assert!(known);
            prop_assert_eq!((icmp.type_u8(), icmp.code_u8()), (error.icmp_type.0, error.code));
            prop_assert_eq!(icmp.bytes5to8(), error.rest.to_be_bytes());
            prop_assert_eq!(icmp.payload(), &cause[..cause.len().min(1232)]);
        }
    }
}
