//! Packets for the router itself.
use super::rig::*;
use artery_engine::DropReason;
use artery_wire::build::{Ip4, Ip6, arp_request, ether, icmp_echo, ip4, ip6};
use artery_wire::nd::{self, LinkEndpoint, NdMessage};
use artery_wire::{Arp, EtherAddr, Icmp, Icmp6, Icmp6Type, IcmpType, Ipv4, Ipv6};
use std::net::Ipv6Addr;

#[test]
fn an_echo_request_to_any_address_of_the_router_is_answered() {
    let mut rig = rig();
    for address in ["10.0.1.1", "10.0.2.1"] {
        rig.push4(icmp_echo("10.0.1.9", address, 5, 6).payload([3; 56]));
        let reply = ip4().src(address).dst("10.0.1.9").ttl(64).icmp_echo_reply(5, 6).payload([3; 56]);
        assert_eq!(rig.only(A), ether(PEER, STATION_A).ip4(reply).bytes());
    }
    for address in ["2001:db8:1::1", "2001:db8:2::1"] {
        rig.push6(ip6().src("2001:db8:1::9").dst(address).icmp_echo(5, 6).payload([3; 56]));
        let reply = ip6().src(address).dst("2001:db8:1::9").icmp_echo_reply(5, 6).payload([3; 56]);
        assert_eq!(rig.only(A), ether(PEER, STATION_A).ip6(reply).bytes());
    }
    assert_eq!(rig.counter("echo-replies"), 4);
}

#[test]
fn an_echo_request_to_the_link_local_address_is_answered_on_its_link() {
    let mut rig = rig();
    rig.push6(ip6().src("fe80::9").dst("fe80::ff:fe00:1").icmp_echo(5, 6));
    let reply = ip6().src("fe80::ff:fe00:1").dst("fe80::9").icmp_echo_reply(5, 6);
    assert_eq!(rig.only(A), ether(PEER, STATION_A).ip6(reply).bytes());
}

#[test]
fn a_flood_of_echo_requests_is_answered_in_part() {
    let mut rig = rig_with("ICMP_EACH 20");
    for _ in 0..500 {
        rig.push4(icmp_echo("10.0.1.9", "10.0.1.1", 5, 6));
    }
    assert_eq!((rig.sent(A).len(), rig.counter("echo-replies-limited")), (20, 480));
    assert_eq!(rig.drops(DropReason::RateLimited), 480);
}

/// The fragments of an echo request with so much payload.
fn fragments(len: usize) -> Vec<Vec<u8>> {
    let whole = icmp_echo("10.0.1.9", "10.0.1.1", 5, 6).payload(vec![4; len]).bytes()[20..].to_vec();
    let count = whole.len().div_ceil(800);
    let part = |(n, bytes): (usize, &[u8])| {
        let packet =
            ip4().src("10.0.1.9").dst("10.0.1.1").id(9).fragment(800 * n, n + 1 < count).raw(1, bytes);
        ether(STATION_A, PEER).ip4(packet).bytes()
    };
    whole.chunks(800).enumerate().map(part).collect()
}

#[test]
fn a_long_echo_request_is_put_together_and_its_reply_cut() {
    let mut rig = rig();
    for frame in fragments(4000).into_iter().rev() {
        rig.silent();
        rig.bench.push(A, frame);
    }
    let mut message: Vec<u8> = Vec::new();
    for frame in rig.sent(A) {
        let ip = Ipv4::new(&frame[14..]).unwrap();
        assert_eq!(ip.fragment_offset(), message.len());
        assert!(frame.len() <= 1514);
        message.extend(ip.payload());
    }
    let icmp = Icmp::new(&message[..]).unwrap();
    assert_eq!(icmp.icmp_type(), IcmpType::ECHO_REPLY);
    assert!(icmp.checksum_is_valid());
    assert_eq!(icmp.payload(), &[4; 4000][..]);
    assert_eq!(rig.counter("reassembled"), 1);
}

#[test]
fn a_long_ipv6_echo_request_is_put_together_and_its_reply_cut() {
    let mut rig = rig();
    let us = || ip6().src("2001:db8:1::9").dst("2001:db8:1::1");
    let whole = us().icmp_echo(5, 6).payload(vec![4; 4000]).bytes()[40..].to_vec();
    for (n, part) in whole.chunks(1200).enumerate() {
        rig.silent();
        rig.push6(us().fragment(1200 * n, 1200 * (n + 1) < whole.len(), 3).raw(58, part));
    }
    let mut message: Vec<u8> = Vec::new();
    for frame in rig.sent(A) {
        let ip = Ipv6::new(&frame[14..]).unwrap();
        assert!(frame.len() <= 1514 && ip.next_header().0 == 44);
        message.extend(&ip.payload()[8..]);
    }
    let icmp = Icmp6::new(&message[..]).unwrap();
    let address = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    assert!(icmp.checksum_is_valid(address("2001:db8:1::1"), address("2001:db8:1::9")));
    assert_eq!((icmp.icmp_type(), icmp.payload()), (Icmp6Type::ECHO_REPLY, &[4; 4000][..]));
}

#[test]
fn fragments_that_overlap_are_of_no_use_and_counted() {
    let mut rig = rig();
    let part = |offset, more, bytes: &[u8]| {
        ip4().src("10.0.1.9").dst("10.0.1.1").id(9).fragment(offset, more).raw(1, bytes)
    };
    rig.push4(part(0, true, &[8; 16]));
    rig.push4(part(8, true, &[9; 16]));
    assert_eq!(rig.drops(DropReason::BadFragment), 1);
    rig.push4(part(24, false, &[9; 16]));
    rig.push4(part(0, true, &[8; 9]));
    assert_eq!(rig.drops(DropReason::BadFragment), 2, "a fragment of odd length");
    rig.silent();
}

/// A fragment of 800 bytes to the router, of a packet with this id, in IPv4 and in IPv6.
fn part4(id: u16, offset: usize) -> Ip4 {
    ip4().src("10.0.1.9").dst("10.0.1.1").id(id).fragment(offset, true).raw(1, [8; 800])
}
fn part6(id: u32, offset: usize) -> Ip6 {
    ip6().src("2001:db8:1::9").dst("2001:db8:1::1").fragment(offset, true, id).raw(58, [128; 800])
}

#[test]
fn who_sent_the_first_fragment_of_a_packet_is_told_when_the_others_have_not_come_for_a_minute() {
    let mut rig = rig();
    rig.push4(part4(9, 0));
    rig.pass_ms(500);
    rig.push6(part6(9, 800));
    rig.pass_ms(500);
    rig.push6(part6(9, 0));
    rig.pass_ms(58_500);
    rig.silent();
    rig.pass_ms(700);
    let frame = rig.only(A);
    let ip = Ipv4::new(&frame[14..]).unwrap();
    let icmp = Icmp::new(ip.payload()).unwrap();
    assert_eq!((icmp.icmp_type(), icmp.code()), (IcmpType::TIME_EXCEEDED, 1));
    assert_eq!(icmp.payload(), &part4(9, 0).bytes()[..548]);
    rig.pass_ms(500);
    let frame = rig.only(A);
    let ip = Ipv6::new(&frame[14..]).unwrap();
    assert_eq!((ip.src(), ip.dst()), ("2001:db8:1::1".parse().unwrap(), "2001:db8:1::9".parse().unwrap()));
    let icmp = Icmp6::new(ip.payload()).unwrap();
    assert_eq!((icmp.icmp_type(), icmp.code(), icmp.rest()), (Icmp6Type::TIME_EXCEEDED, 1, [0; 4]));
    assert_eq!(icmp.payload(), part6(9, 0).bytes());
    assert_eq!((rig.drops(DropReason::Incomplete), rig.counter("icmp-errors")), (2, 2));
}

#[test]
fn nobody_is_told_of_a_packet_whose_first_fragment_did_not_come() {
    let mut rig = rig();
    rig.push4(part4(9, 800));
    rig.push6(part6(9, 800));
    rig.pass_ms(61_000);
    rig.silent();
    assert_eq!((rig.drops(DropReason::Incomplete), rig.counter("icmp-errors-forbidden")), (2, 0));
}

#[test]
fn errors_about_packets_that_were_not_put_together_are_limited_like_others() {
    let mut rig = rig_with("ICMP_EACH 10");
    for id in 0..30 {
        rig.push4(part4(id, 0));
        rig.push6(part6(id.into(), 0));
    }
    rig.pass_ms(61_000);
    assert_eq!(rig.drops(DropReason::Incomplete), 60);
    assert_eq!((rig.sent(A).len(), rig.counter("icmp-errors-limited")), (20, 40));
}

#[test]
fn fragments_take_a_bounded_room() {
    let mut rig = rig();
    for id in 0..2000 {
        rig.push4(ip4().src("10.0.1.9").dst("10.0.1.1").id(id).fragment(65_000, true).raw(1, [0; 8]));
    }
    assert!(rig.drops(DropReason::Incomplete) >= 1900);
}

#[test]
fn the_rest_goes_to_the_host_with_its_station() {
    let mut rig = rig();
    for (dst, to) in
        [("10.0.1.1", STATION_A), ("224.0.0.5", "1:0:5e:0:0:5"), ("10.0.1.255", "ff:ff:ff:ff:ff:ff")]
    {
        let packet = ip4().src("10.0.1.9").dst(dst).tcp(1, 179);
        rig.bench.push(A, ether(to, PEER).ip4(packet.clone()).bytes());
        assert_eq!(rig.only(HOST), ether(OWN_HOST, STATION_A).ip4(packet).bytes(), "{dst}");
    }
}

#[test]
fn without_host_it_ends_and_who_speaks_to_a_port_hears_that_nobody_listens() {
    let mut rig = rig_with("");
    rig.push4(ip4().src("10.0.1.9").dst("10.0.1.1").tcp(1, 179));
    rig.silent();
    rig.push4(ip4().src("10.0.1.9").dst("10.0.1.1").udp(1, 33434));
    let frame = rig.only(A);
    let ip = Ipv4::new(&frame[14..]).unwrap();
    let icmp = Icmp::new(ip.payload()).unwrap();
    assert_eq!((icmp.icmp_type(), icmp.code()), (IcmpType::UNREACHABLE, 3));
    assert_eq!(rig.drops(DropReason::Local), 2);
}

#[test]
fn the_host_finds_the_router_at_every_address_but_its_own() {
    let mut rig = rig();
    rig.bench.push(HOST, arp_request(OWN_HOST, "10.0.1.1", "10.0.1.9").bytes());
    let frame = rig.only(HOST);
    let arp = Arp::new(&frame[14..]).unwrap();
    assert_eq!((arp.sender_ether(), arp.sender_ip()), (station(STATION_A), [10, 0, 1, 9].into()));
    for (asker, target) in [("10.0.1.1", "10.0.2.1"), ("10.0.1.1", "10.0.1.1"), ("0.0.0.0", "10.0.1.9")] {
        rig.bench.push(HOST, arp_request(OWN_HOST, asker, target).bytes());
        rig.silent();
    }
}

#[test]
fn the_host_finds_the_router_by_neighbor_discovery_and_what_it_says_there_stays_there() {
    let mut rig = rig();
    let host = LinkEndpoint { ether: station(OWN_HOST), ip: "2001:db8:1::1".parse().unwrap() };
    let target: Ipv6Addr = "2001:db8:1::9".parse().unwrap();
    for known in [None, Some(station(STATION_A))] {
        rig.bench.push(HOST, nd::neighbor_solicitation(host, target, known));
        let frame = rig.only(HOST);
        let NdMessage::NeighborAdvertisement(answer) = NdMessage::parse_packet(&frame[14..]).unwrap() else {
            panic!()
        };
        assert_eq!((answer.target(), answer.target_link()), (target, Some(station(STATION_A))));
    }
    // Its own address: it asks whether another has it.
    rig.bench.push(HOST, nd::neighbor_solicitation(host, "2001:db8:2::1".parse().unwrap(), None));
    rig.silent();
}

#[test]
fn what_is_for_an_address_that_is_not_ours_yet_is_neither_answered_nor_the_hosts() {
    let config = format!(
        "PORT a 2001:db8:1::1/64 ETHER {STATION_A}, PORT b 10.0.2.1/24 ETHER {STATION_B},
         NEIGHBOR a 2001:db8:1::9 {PEER}, HOST {OWN_HOST}"
    );
    let mut rig = Rig { bench: bench(&config) };
    let us = || ip6().src("2001:db8:1::9").dst("2001:db8:1::1");
    for packet in [us().icmp_echo(1, 2), us().udp(1, 2), us().icmp_echo(1, 3).fragment(0, true, 7)] {
        rig.push6(packet);
    }
    assert_eq!(rig.drops(DropReason::Unclaimed), 3);
    rig.pass_ms(10_000);
    rig.take_all();
    rig.push6(us().icmp_echo(1, 4));
    assert_eq!(rig.only(A).len(), 62);
}

#[test]
fn what_the_host_sends_to_groups_and_to_all_ends_and_is_counted_by_name() {
    let mut rig = rig();
    let all = EtherAddr::BROADCAST;
    let hello = ip4().src("10.0.2.1").dst("224.0.0.5").ttl(1).raw(89, [2; 44]);
    rig.bench.push(HOST, ether("01:00:5e:00:00:05", OWN_HOST).ip4(hello).bytes());
    let hello = ip6().src("fe80::9").dst("ff02::5").hop_limit(1).raw(89, [3; 36]);
    rig.bench.push(HOST, ether("33:33:00:00:00:05", OWN_HOST).ip6(hello).bytes());
    assert_eq!(rig.drops(DropReason::Multicast), 2);
    for (src, dst) in [("0.0.0.0", "255.255.255.255"), ("10.0.2.1", "10.0.2.255")] {
        let discover = ip4().src(src).dst(dst).udp(68, 67).payload([1; 240]);
        rig.bench.push(HOST, ether(all, OWN_HOST).ip4(discover).bytes());
    }
    assert_eq!(rig.drops(DropReason::Broadcast), 2);
    rig.silent();
}
