//! Etherparse as the oracle: what is built here it reads the same, and of any bytes both say the same.

use artery_wire::build::{Ip4, arp_reply, ether, ip4, ip6};
use artery_wire::{Arp, EtherAddr, EtherType, Ethernet, Icmp, IcmpType, Ipv4, Ipv6, Tcp, TcpFlags, Udp};
use etherparse::{
    ArpOperation, ArpPacketSlice, Ethernet2HeaderSlice, Icmpv4Slice, Icmpv4Type, Ipv4HeaderSlice,
    Ipv6HeaderSlice, LinkExtHeader, LinkHeader, NetHeaders, PacketHeaders, TcpHeaderSlice, TransportHeader,
    UdpHeaderSlice,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn any_ip4() -> impl Strategy<Value = Ip4> {
    let fragment = (any::<bool>(), any::<bool>(), 0_usize..8192);
    let numbers = any::<([u8; 4], [u8; 4], u8, u16, u8)>();
    (numbers, fragment, vec(Just(1_u8), 0..40)).prop_map(|((src, dst, tos, id, ttl), fragment, options)| {
        let packet = ip4().src(src).dst(dst).tos(tos).id(id).ttl(ttl).options(options);
        let packet = if fragment.0 { packet.dont_fragment() } else { packet };
        packet.fragment(fragment.2 * 8, fragment.1)
    })
}

fn any_payload() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..100)
}

/// Bytes that often begin as `header` would, with some of them changed and the end cut off.
fn mutated(header: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((0..header.len(), any::<u8>()), 0..4);
    (changes, 0..=header.len()).prop_map(move |(changes, len)| {
        let mut bytes = header.clone();
        changes.into_iter().for_each(|(at, value)| bytes[at] = value);
        bytes.truncate(len);
        bytes
    })
}

proptest! {
    #[test]
    fn an_ipv4_header_is_read_as_it_was_built(packet in any_ip4(), protocol: u8, payload in any_payload()) {
        let bytes = packet.raw(protocol, &payload).bytes();
        let theirs = Ipv4HeaderSlice::from_slice(&bytes).unwrap();
        let ours = Ipv4::new(&bytes).unwrap();
        prop_assert_eq!(ours.check_total_length(), Ok(()));
        prop_assert_eq!(ours.payload(), &payload[..]);
        prop_assert_eq!(ours.checksum(), theirs.to_header().calc_header_checksum());
        prop_assert!(ours.checksum_is_valid());
        prop_assert_eq!(usize::from(theirs.total_len()), bytes.len());
        assert_same_ipv4(&ours, &theirs)?;
    }

    #[test]
    fn udp_is_read_as_it_was_built(src: [u8; 4], dst: [u8; 4], ports: (u16, u16), payload in any_payload()) {
        let bytes = ip4().src(src).dst(dst).udp(ports.0, ports.1).payload(&payload).bytes();
        let packet = PacketHeaders::from_ip_slice(&bytes).unwrap();
        let (Some(NetHeaders::Ipv4(ip, _)), Some(TransportHeader::Udp(udp))) = (packet.net, packet.transport)
        else {
            panic!("not UDP on IPv4");
        };
        prop_assert_eq!((udp.source_port, udp.destination_port), ports);
        prop_assert_eq!(usize::from(udp.length), 8 + payload.len());
        prop_assert_eq!(udp.checksum, udp.calc_checksum_ipv4(&ip, &payload).unwrap());
        prop_assert_eq!(packet.payload.slice(), &payload[..]);
    }

    #[test]
    fn udp_on_ipv6_is_read_as_it_was_built(
        addrs: ([u8; 16], [u8; 16]),
        class: u8,
        label in 0_u32..1 << 20,
        hops: u8,
        payload in any_payload(),
    ) {
        let packet = ip6().src(addrs.0).dst(addrs.1).traffic_class(class).flow_label(label).hop_limit(hops);
        let bytes = packet.udp(1234, 53).payload(&payload).bytes();
        assert_same_ipv6(&Ipv6::new(&bytes).unwrap(), &Ipv6HeaderSlice::from_slice(&bytes).unwrap())?;
        let packet = PacketHeaders::from_ip_slice(&bytes).unwrap();
        let (Some(NetHeaders::Ipv6(ip, _)), Some(TransportHeader::Udp(udp))) = (packet.net, packet.transport)
        else {
            panic!("not UDP on IPv6");
        };
        prop_assert_eq!((ip.source, ip.destination, ip.hop_limit), (addrs.0, addrs.1, hops));
        prop_assert_eq!((ip.traffic_class, ip.flow_label.value()), (class, label));
        prop_assert_eq!(udp.checksum, udp.calc_checksum_ipv6(&ip, &payload).unwrap());
        prop_assert_eq!(packet.payload.slice(), &payload[..]);
    }

    #[test]
    fn tcp_is_read_as_it_was_built(
        ports: (u16, u16),
        seq: u32,
        ack: u32,
        flags: u8,
        window: u16,
        payload in any_payload(),
    ) {
        let packet = ip4().tcp(ports.0, ports.1).seq(seq).ack(ack).flags(TcpFlags(flags)).window(window);
        let bytes = packet.payload(&payload).bytes();
        let ip = Ipv4HeaderSlice::from_slice(&bytes).unwrap();
        let theirs = TcpHeaderSlice::from_slice(&bytes[20..]).unwrap();
        let ours = Tcp::new(&bytes[20..]).unwrap();
        prop_assert_eq!((theirs.source_port(), theirs.destination_port()), ports);
        prop_assert_eq!((theirs.sequence_number(), theirs.acknowledgment_number()), (seq, ack));
        prop_assert_eq!((theirs.window_size(), ours.flags().0), (window, flags));
        prop_assert_eq!(theirs.checksum(), theirs.calc_checksum_ipv4(&ip, &payload).unwrap());
        prop_assert_eq!(ours.payload(), &payload[..]);
        assert_same_tcp(&ours, &theirs)?;
    }

    #[test]
    fn icmp_echo_is_read_as_it_was_built(id: u16, seq: u16, payload in any_payload()) {
        let bytes = ip4().icmp_echo(id, seq).payload(&payload).bytes();
        let theirs = Icmpv4Slice::from_slice(&bytes[20..]).unwrap();
        let Icmpv4Type::EchoRequest(echo) = theirs.icmp_type() else { panic!("not an echo request") };
        prop_assert_eq!((echo.id, echo.seq), (id, seq));
        prop_assert_eq!(theirs.checksum(), theirs.icmp_type().calc_checksum(&payload));
        let ours = Icmp::new(&bytes[20..]).unwrap();
        prop_assert_eq!((ours.echo_id(), ours.echo_seq(), ours.payload()), (id, seq, &payload[..]));
        prop_assert_eq!((ours.icmp_type(), ours.code()), (IcmpType::ECHO_REQUEST, 0));
        prop_assert!(ours.checksum_is_valid());
    }

    #[test]
    fn a_frame_is_read_as_it_was_built(dst: [u8; 6], src: [u8; 6], tags in vec(0_u16..4096, 0..=2)) {
        let builder = tags.iter().fold(ether(dst, src), |builder, id| builder.vlan(*id));
        let bytes = builder.ip4(ip4().udp(1, 2).payload("x")).bytes();
        let theirs = PacketHeaders::from_ethernet_slice(&bytes).unwrap();
        let Some(LinkHeader::Ethernet2(header)) = theirs.link else { panic!("not Ethernet") };
        prop_assert_eq!((header.destination, header.source), (dst, src));
        let ids: Vec<u16> = theirs
            .link_exts
            .iter()
            .map(|tag| match tag {
                LinkExtHeader::Vlan(vlan) => vlan.vlan_id.value(),
                LinkExtHeader::Macsec(_) => panic!("no MACsec was built"),
            })
            .collect();
        prop_assert_eq!(&ids, &tags);
        prop_assert!(matches!(theirs.transport, Some(TransportHeader::Udp(_))));
        let ours = Ethernet::new(&bytes).unwrap();
        let read: Vec<u16> =
            [ours.vlan(), ours.inner_vlan()].into_iter().flatten().map(|tag| tag.id()).collect();
        prop_assert_eq!((read, ours.payload_type()), (tags, EtherType::IPV4));
    }

    #[test]
    fn arp_is_read_as_it_was_built(me: ([u8; 6], [u8; 4]), you: ([u8; 6], [u8; 4])) {
        let bytes = arp_reply(me.0, me.1, you.0, you.1).bytes();
        let Some(NetHeaders::Arp(arp)) = PacketHeaders::from_ethernet_slice(&bytes).unwrap().net else {
            panic!("not ARP");
        };
        prop_assert_eq!(arp.operation, ArpOperation::REPLY);
        prop_assert_eq!((arp.sender_hw_addr(), arp.sender_protocol_addr()), (&me.0[..], &me.1[..]));
        prop_assert_eq!((arp.target_hw_addr(), arp.target_protocol_addr()), (&you.0[..], &you.1[..]));
    }

    #[test]
    fn both_take_the_same_bytes_for_ipv4(bytes in mutated(ip4().options([1; 12]).raw(9, [0; 9]).bytes())) {
        match (Ipv4::new(&bytes), Ipv4HeaderSlice::from_slice(&bytes)) {
            (Ok(ours), Ok(theirs)) => assert_same_ipv4(&ours, &theirs)?,
            (ours, theirs) => prop_assert_eq!(ours.is_ok(), theirs.is_ok()),
        }
    }

    #[test]
    fn both_take_the_same_bytes_for_ipv6(bytes in mutated(ip6().udp(1, 2).bytes())) {
        match (Ipv6::new(&bytes), Ipv6HeaderSlice::from_slice(&bytes)) {
            (Ok(ours), Ok(theirs)) => assert_same_ipv6(&ours, &theirs)?,
            (ours, theirs) => prop_assert_eq!(ours.is_ok(), theirs.is_ok()),
        }
    }

    #[test]
    fn both_take_the_same_bytes_for_tcp(
        bytes in mutated(ip4().tcp(1, 2).payload([0; 50]).bytes()[20..].to_vec()),
    ) {
        match (Tcp::new(&bytes), TcpHeaderSlice::from_slice(&bytes)) {
            (Ok(ours), Ok(theirs)) => assert_same_tcp(&ours, &theirs)?,
            (ours, theirs) => prop_assert_eq!(ours.is_ok(), theirs.is_ok()),
        }
    }

    #[test]
    fn both_take_the_same_bytes_for_udp(
        bytes in mutated(ip4().udp(1, 2).payload("x").bytes()[20..].to_vec()),
    ) {
        match (Udp::new(&bytes), UdpHeaderSlice::from_slice(&bytes)) {
            (Ok(ours), Ok(theirs)) => {
                prop_assert_eq!(ours.src_port(), theirs.source_port());
                prop_assert_eq!(ours.dst_port(), theirs.destination_port());
                prop_assert_eq!((ours.length(), ours.checksum()), (theirs.length(), theirs.checksum()));
            }
            (ours, theirs) => prop_assert_eq!(ours.is_ok(), theirs.is_ok()),
        }
    }

    #[test]
    fn both_take_the_same_bytes_for_ethernet(bytes in mutated(vec![0x81; 30])) {
        match (Ethernet::new(&bytes), Ethernet2HeaderSlice::from_slice(&bytes)) {
            (Ok(ours), Ok(theirs)) => {
                prop_assert_eq!((ours.dst().0, ours.src().0), (theirs.destination(), theirs.source()));
                prop_assert_eq!(ours.ether_type().0, theirs.ether_type().0);
            }
            (ours, theirs) => prop_assert_eq!(ours.is_ok(), theirs.is_ok()),
        }
    }

    /// Etherparse takes any pair of address kinds; of those, we take one.
    #[test]
    fn what_is_arp_here_is_arp_for_ipv4_on_ethernet_there(
        bytes in mutated(arp_reply([2; 6], [1; 4], [4; 6], [3; 4]).bytes()[14..].to_vec()),
    ) {
        let theirs = ArpPacketSlice::from_slice(&bytes).ok();
        let theirs = theirs.and_then(|theirs| theirs.to_packet().try_eth_ipv4().ok());
        match (Arp::new(&bytes), theirs) {
            (Ok(ours), Some(theirs)) => {
                prop_assert_eq!(ours.operation().0, theirs.operation.0);
                prop_assert_eq!(ours.sender_ether(), EtherAddr(theirs.sender_mac));
                prop_assert_eq!(ours.sender_ip().octets(), theirs.sender_ipv4);
                prop_assert_eq!(ours.target_ether(), EtherAddr(theirs.target_mac));
                prop_assert_eq!(ours.target_ip().octets(), theirs.target_ipv4);
            }
            (ours, theirs) => prop_assert_eq!(ours.is_ok(), theirs.is_some()),
        }
    }
}

fn assert_same_ipv4(ours: &Ipv4<&Vec<u8>>, theirs: &Ipv4HeaderSlice<'_>) -> Result<(), TestCaseError> {
    prop_assert_eq!((ours.version(), ours.ihl()), (theirs.version(), theirs.ihl()));
    prop_assert_eq!(ours.tos(), theirs.dcp().value() << 2 | theirs.ecn().value());
    prop_assert_eq!((ours.total_length(), ours.id()), (theirs.total_len(), theirs.identification()));
    prop_assert_eq!(ours.dont_fragment(), theirs.dont_fragment());
    prop_assert_eq!(ours.more_fragments(), theirs.more_fragments());
    prop_assert_eq!(ours.fragment_offset(), usize::from(theirs.fragments_offset().value()) * 8);
    prop_assert_eq!(ours.is_fragment(), theirs.is_fragmenting_payload());
    prop_assert_eq!((ours.ttl(), ours.protocol().0), (theirs.ttl(), theirs.protocol().0));
    prop_assert_eq!(ours.checksum(), theirs.header_checksum());
    prop_assert_eq!((ours.src(), ours.dst()), (theirs.source_addr(), theirs.destination_addr()));
    prop_assert_eq!(ours.options(), theirs.options());
    Ok(())
}

fn assert_same_ipv6(ours: &Ipv6<&Vec<u8>>, theirs: &Ipv6HeaderSlice<'_>) -> Result<(), TestCaseError> {
    prop_assert_eq!((ours.version(), ours.traffic_class()), (theirs.version(), theirs.traffic_class()));
    prop_assert_eq!(ours.flow_label(), theirs.flow_label().value());
    prop_assert_eq!(ours.payload_length(), theirs.payload_length());
    prop_assert_eq!((ours.next_header().0, ours.hop_limit()), (theirs.next_header().0, theirs.hop_limit()));
    prop_assert_eq!((ours.src(), ours.dst()), (theirs.source_addr(), theirs.destination_addr()));
    Ok(())
}

fn assert_same_tcp<T: AsRef<[u8]>>(ours: &Tcp<T>, theirs: &TcpHeaderSlice<'_>) -> Result<(), TestCaseError> {
    prop_assert_eq!((ours.src_port(), ours.dst_port()), (theirs.source_port(), theirs.destination_port()));
    prop_assert_eq!((ours.seq(), ours.ack()), (theirs.sequence_number(), theirs.acknowledgment_number()));
    let flags = [
        (TcpFlags::FIN, theirs.fin()),
        (TcpFlags::SYN, theirs.syn()),
        (TcpFlags::RST, theirs.rst()),
        (TcpFlags::PSH, theirs.psh()),
        (TcpFlags::ACK, theirs.ack()),
        (TcpFlags::URG, theirs.urg()),
        (TcpFlags::ECE, theirs.ece()),
        (TcpFlags::CWR, theirs.cwr()),
    ];
    prop_assert!(flags.into_iter().all(|(flag, set)| ours.flags().contains(flag) == set));
    prop_assert_eq!((ours.window(), ours.checksum()), (theirs.window_size(), theirs.checksum()));
    prop_assert_eq!((ours.urgent(), ours.options()), (theirs.urgent_pointer(), theirs.options()));
    Ok(())
}
