//! Packets of every kind, cut at every length, with and without lengths and checksums that then fit, and
//! damaged: every parser reads or refuses them, and what it reads is in the bytes.

use artery_wire::build::{arp_request, ether, ip4, ip6, neighbor_advertisement, neighbor_solicitation};
use artery_wire::nd::{
    NdMessage, NdOptions, NeighborAdvertisement, NeighborSolicitation, Redirect, RouterAdvertisement,
    RouterSolicitation,
};
use artery_wire::{
    Arp, EtherAddr, Ethernet, Icmp, Icmp6, Icmp6Error, Icmp6Type, IcmpError, IcmpType, Ip6Headers,
    Ip6Options, IpProtocol, Ipv4, Ipv4Assembly, Ipv4Fragments, Ipv4Options, Ipv4Prefix, Ipv6, LinkEndpoint,
    Tcp, Udp, VlanTag, describe, flow_hash, nd,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Takes bytes for what it parses and uses all that it then offers; says whether they were accepted.
type Parser = fn(&mut [u8]) -> bool;

const PARSERS: [(&str, Parser); 25] = [
    ("ethernet", ethernet),
    ("arp", arp),
    ("ipv4", ipv4),
    ("ipv4_options", ipv4_options),
    ("ipv4_fragments", ipv4_fragments),
    ("ipv4_assembly", ipv4_assembly),
    ("ipv6", ipv6),
    ("ip6_headers", ip6_headers),
    ("ip6_options", ip6_options),
    ("tcp", tcp),
    ("udp", udp),
    ("icmp", icmp),
    ("icmp6", icmp6),
    ("nd::check", nd_message),
    ("nd::option", nd_options),
    ("nd::NeighborSolicitation", nd_solicitation),
    ("nd::NeighborAdvertisement", nd_advertisement),
    ("nd::RouterSolicitation", nd_router_solicitation),
    ("nd::RouterAdvertisement", nd_router_advertisement),
    ("nd::Redirect", nd_redirect),
    ("error_message::v4", error_message_v4),
    ("error_message::v6", error_message_v6),
    ("nd::frames", |packet| nd::redirect(ROUTER, ROUTER, ROUTER.ip, None, packet).is_ok()),
    ("flow", |frame| flow_hash(frame) != 0),
    ("describe", described),
];

const ROUTER: LinkEndpoint<Ipv6Addr> = LinkEndpoint { ether: EtherAddr([2; 6]), ip: Ipv6Addr::LOCALHOST };

/// Asserts that a part is within the bytes that it was read from.
#[track_caller]
fn inside(outer: &Range<*const u8>, part: &[u8]) {
    let inner = part.as_ptr_range();
    assert!(part.is_empty() || (outer.start <= inner.start && inner.end <= outer.end), "a part is elsewhere");
}

fn ethernet(bytes: &mut [u8]) -> bool {
    let all = bytes.as_ptr_range();
    let Ok(mut frame) = Ethernet::new(bytes) else { return false };
    let _ = (frame.dst(), frame.src(), frame.ether_type(), frame.payload_type(), frame.inner_vlan());
    inside(&all, frame.payload());
    assert_eq!(frame.set_vlan(VlanTag(7)), frame.vlan().is_some());
    true
}

fn arp(bytes: &mut [u8]) -> bool {
    let Ok(arp) = Arp::new(bytes) else { return false };
    let _ = (arp.sender_ether(), arp.sender_ip(), arp.target_ether(), arp.target_ip(), arp.operation());
    true
}

fn ipv4(bytes: &mut [u8]) -> bool {
    let all = bytes.as_ptr_range();
    let Ok(mut ip) = Ipv4::new(bytes) else { return false };
    [ip.header(), ip.options(), ip.payload()].iter().for_each(|part| inside(&all, part));
    let _ = (ip.checksum_is_valid(), ip.check_total_length(), ip.fragment_offset(), ip.src(), ip.dst());
    inside(&all, ip.payload_mut());
    ip.decrement_ttl();
    ip.fill_checksum();
    ip.checksum_is_valid()
}

fn ipv4_options(bytes: &mut [u8]) -> bool {
    let all = bytes.as_ptr_range();
    let Ok(ip) = Ipv4::new(&*bytes) else { return false };
    if let Some(route) = Ipv4Options::new(ip.options()).source_route() {
        let _ = (route.is_strict(), route.next_hop(), route.reverse_addresses().count());
    }
    let mut options = Ipv4Options::new(ip.options());
    options.all(|option| option.map(|option| inside(&all, option.bytes)).is_ok())
}

fn ipv4_fragments(bytes: &mut [u8]) -> bool {
    for mtu in [0, 28, 68, 1500] {
        for fragment in Ipv4Fragments::split_packet(bytes, mtu).into_iter().flatten() {
            inside(&bytes.as_ptr_range(), fragment.payload());
            assert!(fragment.to_bytes().len() <= mtu);
        }
    }
    Ipv4Fragments::split_packet(bytes, 1500).is_ok()
}

fn ipv4_assembly(bytes: &mut [u8]) -> bool {
    let mut assembly = Ipv4Assembly::default();
    let first = ip4().fragment(0, true).raw(17, [0; 8]).bytes();
    assembly.add_fragment(&first).expect("it is sound");
    let taken = assembly.add_fragment(bytes).is_ok();
    assert!(assembly.memory() < 1 << 17 && assembly.first_fragment().is_some());
    taken
}

fn ipv6(bytes: &mut [u8]) -> bool {
    let all = bytes.as_ptr_range();
    let Ok(mut ip) = Ipv6::new(bytes) else { return false };
    inside(&all, ip.payload());
    inside(&all, ip.payload_mut());
    let _ = (ip.traffic_class(), ip.flow_label(), ip.hop_limit(), ip.src(), ip.dst());
    ip.check_payload_length().is_ok()
}

fn ip6_headers(bytes: &mut [u8]) -> bool {
    match Ip6Headers::parse_packet(bytes) {
        Ok(headers) => {
            assert!((40..=bytes.len()).contains(&headers.offset));
            assert_eq!(bytes[headers.named_at], headers.protocol.0);
            if let Some(options) = headers.hop_by_hop {
                let _ = options.check_options(false);
            }
            true
        }
        Err(fault) => {
            assert!(!fault.to_string().is_empty());
            let _ = Icmp6Error::for_headers(fault);
            false
        }
    }
}

fn ip6_options(bytes: &mut [u8]) -> bool {
    let options = Ip6Options::new(bytes, 40);
    let _ = options.check_options(true).map_err(Icmp6Error::for_option);
    let mut read =
        options.clone().map(|option| option.map(|option| inside(&bytes.as_ptr_range(), option.body)));
    options.check_options(false).is_ok() && read.all(|option| option.is_ok())
}

fn tcp(bytes: &mut [u8]) -> bool {
    let Ok(tcp) = Tcp::new(&*bytes) else { return false };
    [tcp.options(), tcp.payload()].iter().for_each(|part| inside(&bytes.as_ptr_range(), part));
    assert_eq!(tcp.header_len() + tcp.payload().len(), bytes.len());
    let _ = (tcp.src_port(), tcp.dst_port(), tcp.seq(), tcp.ack(), tcp.window(), tcp.urgent(), tcp.flags());
    true
}

fn udp(bytes: &mut [u8]) -> bool {
    let Ok(udp) = Udp::new(&*bytes) else { return false };
    inside(&bytes.as_ptr_range(), udp.payload());
    let _ = (udp.src_port(), udp.dst_port(), udp.checksum());
    udp.check_length().is_ok()
}

fn icmp(bytes: &mut [u8]) -> bool {
    let all = bytes.as_ptr_range();
    let Ok(mut icmp) = Icmp::new(bytes) else { return false };
    inside(&all, icmp.payload());
    let _ = (icmp.icmp_type(), icmp.code(), icmp.echo_id(), icmp.echo_seq(), icmp.rest());
    icmp.fill_checksum();
    icmp.checksum_is_valid()
}

fn icmp6(bytes: &mut [u8]) -> bool {
    let all = bytes.as_ptr_range();
    let Ok(mut icmp) = Icmp6::new(bytes) else { return false };
    inside(&all, icmp.payload());
    let _ = (icmp.icmp_type(), icmp.code(), icmp.echo_id(), icmp.echo_seq(), icmp.rest());
    icmp.fill_checksum(ROUTER.ip, ROUTER.ip);
    icmp.checksum_is_valid(ROUTER.ip, ROUTER.ip)
}

fn nd_message(bytes: &mut [u8]) -> bool {
    let options = match NdMessage::parse_packet(bytes) {
        Ok(NdMessage::NeighborSolicitation(message)) => message.options().check_all(),
        Ok(NdMessage::NeighborAdvertisement(message)) => message.options().check_all(),
        Ok(NdMessage::RouterSolicitation(message)) => message.options().check_all(),
        Ok(NdMessage::RouterAdvertisement(message)) => message.options().check_all(),
        Ok(NdMessage::Redirect(message)) => message.options().check_all(),
        Err(_) => return false,
    };
    assert_eq!(options, Ok(()), "a message with malformed options was believed");
    true
}

fn nd_options(bytes: &mut [u8]) -> bool {
    let options = NdOptions::new(bytes);
    let _ = (options.source_link(), options.target_link());
    assert!(options.clone().count() <= bytes.len() / 8 + 1);
    options.check_all().is_ok()
}

fn nd_solicitation(bytes: &mut [u8]) -> bool {
    NeighborSolicitation::new(bytes).map(|message| (message.target(), message.source_link())).is_ok()
}

fn nd_advertisement(bytes: &mut [u8]) -> bool {
    let Ok(message) = NeighborAdvertisement::new(bytes) else { return false };
    let _ = (message.is_router(), message.is_solicited(), message.overrides());
    let _ = (message.target(), message.target_link());
    true
}

fn nd_router_solicitation(bytes: &mut [u8]) -> bool {
    RouterSolicitation::new(bytes).map(|message| message.source_link()).is_ok()
}

fn nd_router_advertisement(bytes: &mut [u8]) -> bool {
    let Ok(message) = RouterAdvertisement::new(bytes) else { return false };
    let _ = (message.current_hop_limit(), message.is_managed(), message.has_other_configuration());
    let _ = (message.router_lifetime(), message.reachable_time(), message.retransmit_time());
    let _ = message.source_link();
    true
}

fn nd_redirect(bytes: &mut [u8]) -> bool {
    let Ok(message) = Redirect::new(bytes) else { return false };
    let _ = (message.target(), message.destination(), message.target_link());
    true
}

fn error_message_v4(bytes: &mut [u8]) -> bool {
    let Ok(answer) = IcmpError::time_exceeded().answer_to(bytes, false, |_| false) else { return false };
    let made = answer.build_packet(bytes, Ipv4Addr::LOCALHOST, 1);
    let ip = Ipv4::new(&made).expect("an error is an IPv4 packet");
    assert!(made.len() <= 576 && ip.check_total_length().is_ok() && ip.checksum_is_valid());
    true
}

fn error_message_v6(bytes: &mut [u8]) -> bool {
    let Ok(answer) = Icmp6Error::time_exceeded().answer_to(bytes, false) else { return false };
    let made = answer.build_packet(bytes, ROUTER.ip);
    let ip = Ipv6::new(&made).expect("an error is an IPv6 packet");
    assert!(made.len() <= 1280 && ip.check_payload_length().is_ok());
    true
}

fn described(bytes: &mut [u8]) -> bool {
    let lines = [describe::frame(bytes).to_string(), describe::packet(bytes).to_string()];
    assert!(lines.iter().all(|line| !line.is_empty() && !line.contains(char::is_control)), "{lines:?}");
    lines.iter().any(|line| !line.contains("truncated") && !line.contains("not IP"))
}

const A: &str = "02:00:00:00:00:0a";
const B: &str = "02:00:00:00:00:0b";

/// Frames in which there is something to read for every parser.
fn frames() -> Vec<Vec<u8>> {
    let mut frames = vec![
        arp_request(A, "10.0.0.1", "10.0.0.2").bytes(),
        neighbor_solicitation(A, "2001:db8::1", "2001:db8::2").bytes(),
        neighbor_advertisement(A, "2001:db8::1", B, "2001:db8::2").bytes(),
        nd::router_solicitation(LinkEndpoint { ether: EtherAddr([2; 6]), ip: "fe80::1".parse().unwrap() }),
        ether(B, A).vlan(9).vlan(7).ip4(ip4().udp(1, 2).payload("tagged")).bytes(),
    ];
    frames.extend(ipv4_packets().into_iter().map(|packet| ether(B, A).ip4(packet).bytes()));
    frames.extend(ipv6_packets().into_iter().map(|packet| ether(B, A).ip6(packet).bytes()));
    frames
}

fn ipv4_packets() -> Vec<artery_wire::build::Ip4> {
    let quoted = ip4().options([1, 148, 4, 0, 0]).udp(1, 33434).payload([7; 12]).bytes();
    let record = [7, 11, 8, 10, 0, 0, 9, 0, 0, 0, 0];
    let mut packets = vec![
        ip4().options([131, 11, 8, 10, 0, 0, 9, 10, 0, 0, 8]).tcp(1, 2).payload("data"),
        ip4().options([137, 7, 4, 10, 0, 0, 9, 148, 4, 0, 0]).udp(1, 2).payload([7; 60]),
        ip4().options(record).icmp_echo(1, 2).payload("echo"),
        ip4().options([68, 12, 9, 1, 10, 0, 0, 1, 0, 0, 0, 0]).raw(89, [7; 9]),
        ip4().fragment(0, true).udp(1, 2).payload([7; 16]),
        ip4().fragment(24, false).raw(17, [7; 13]),
    ];
    let errors = [(3, 1), (3, 3), (3, 4), (5, 1), (11, 0), (12, 0)];
    packets
        .extend(errors.map(|(kind, code)| ip4().icmp(IcmpType(kind), code, [0, 0, 5, 0]).payload(&quoted)));
    packets
}

fn ipv6_packets() -> Vec<artery_wire::build::Ip6> {
    let on_link = || ip6().src("fe80::1").dst("ff02::1").hop_limit(255);
    let quoted = ip6().extension(60, [1, 4, 0, 0, 0, 0]).udp(1, 2).payload([7; 12]).bytes();
    let target: [u8; 16] = "fe80::2".parse::<Ipv6Addr>().unwrap().octets();
    let (link, mtu) = ([1, 1, 2, 0, 0, 0, 0, 1], [5, 1, 0, 0, 0, 0, 5, 0]);
    let prefix = [&[3, 4, 64, 0xc0][..], &[0, 0, 9, 9], &[0xff; 4], &[0; 4], &target].concat();
    let redirected = [&[4, 1 + quoted.len().div_ceil(8) as u8, 0, 0, 0, 0, 0, 0][..], &quoted].concat();
    let redirect = [&target[..], &[0x20; 16], &[2, 1, 2, 0, 0, 0, 0, 2], &redirected].concat();
    let mut packets = vec![
        ip6().extension(0, [5, 2, 0, 0, 1, 0]).extension(43, [4, 1, 0, 0, 0, 0]).udp(1, 2).payload("data"),
        ip6()
            .extension(0, [0xc2, 4, 0, 1, 0, 0])
            .extension(60, [1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            .tcp(1, 2),
        ip6().extension(51, [7; 22]).fragment(0, true, 7).udp(1, 2).payload([7; 16]),
        ip6().fragment(24, false, 7).raw(17, [7; 9]),
        ip6().icmp_echo(1, 2).payload("echo"),
        on_link()
            .icmp(Icmp6Type::ROUTER_ADVERTISEMENT, 0, [64, 0xc0, 7, 8])
            .payload([&[0; 8][..], &link, &mtu, &prefix].concat()),
        on_link().dst("fe80::9").icmp(Icmp6Type::REDIRECT, 0, [0; 4]).payload(redirect),
    ];
    packets.extend((1..=4).map(|kind| ip6().icmp(Icmp6Type(kind), 0, [0, 0, 5, 0]).payload(&quoted)));
    packets
}

/// Gives what was cut, or damaged, right lengths and checksums, so that they are not what it is refused for.
fn repair(frame: &mut [u8]) {
    let Some((_, packet)) = frame.split_at_mut_checked(14) else { return };
    let len = packet.len() as u16;
    if let Ok(mut ip) = Ipv4::new(&mut *packet) {
        ip.set_total_length(len);
        ip.fill_checksum();
    } else if let Ok(mut ip) = Ipv6::new(packet) {
        ip.set_payload_length(len - 40);
        let (src, dst) = (ip.src(), ip.dst());
        if ip.next_header() == IpProtocol::ICMPV6
            && let Ok(mut icmp) = Icmp6::new(ip.payload_mut())
        {
            icmp.fill_checksum(src, dst);
        }
    }
}

/// Where in a frame something may begin: the frame itself, and each second byte where
/// headers and options are.
fn starts(frame: &[u8]) -> impl Iterator<Item = usize> {
    [0].into_iter().chain((14..frame.len().min(130)).step_by(2))
}

/// Offers all that may begin in a frame to a parser; returns how much it accepted, and how much there was.
fn offer(parse: Parser, frame: &[u8]) -> (usize, usize) {
    let accepted = starts(frame).filter(|start| parse(&mut frame[*start..].to_vec())).count();
    (accepted, starts(frame).count())
}

#[test]
fn what_is_cut_at_any_length_is_read_or_refused_by_every_parser() {
    for (name, parse) in PARSERS {
        let (mut accepted, mut all) = (0, 0);
        for frame in frames() {
            for len in 0..=frame.len() {
                let cut = frame[..len].to_vec();
                let mut repaired = cut.clone();
                repair(&mut repaired);
                for (some, of) in [offer(parse, &cut), offer(parse, &repaired)] {
                    (accepted, all) = (accepted + some, all + of);
                }
            }
        }
        assert!(0 < accepted && accepted < all, "{name} accepted {accepted} of {all}");
    }
}

proptest! {
    #[test]
    fn what_is_cut_and_damaged_is_read_or_refused_by_every_parser(
        which: Index, len: Index, damage in vec((any::<Index>(), any::<u8>()), 0..6), repaired: bool,
    ) {
        let mut frame = which.get(&frames()).clone();
        for (at, byte) in damage {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        frame.truncate(len.index(frame.len() + 1));
        if repaired {
            repair(&mut frame);
        }
        for (_, parse) in PARSERS {
            offer(parse, &frame);
        }
    }

    #[test]
    fn any_text_is_an_address_or_a_prefix_or_refused(text in "[0-9a-f:./-]{0,24}|.{0,24}") {
        for len in (0..=text.len()).filter(|len| text.is_char_boundary(*len)) {
            let text = &text[..len];
            if let Ok(address) = text.parse::<EtherAddr>() {
                prop_assert_eq!(address.to_string().parse::<EtherAddr>().ok(), Some(address));
            }
            if let Ok(prefix) = text.parse::<Ipv4Prefix>() {
                prop_assert_eq!(prefix.to_string().parse::<Ipv4Prefix>().ok(), Some(prefix));
            }
        }
    }
}
