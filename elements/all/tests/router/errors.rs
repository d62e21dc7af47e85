//! ICMP errors to senders of packets that end (RFC 1812 section 4.3, RFC 4443), and when none is sent.
use super::rig::*;
use artery_engine::DropReason;
use artery_wire::build::{Ip4, Ip6, ether, ip4, ip6};
use artery_wire::{Icmp, Icmp6, Icmp6Type, IcmpType, Ipv4, Ipv6};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Type, code and second word of the error that comes back, from the address of the port the packet came by.
#[track_caller]
fn told(rig: &mut Rig, packet: Ip4) -> (IcmpType, u8, [u8; 4]) {
    let cause = packet.bytes();
    rig.push4(packet);
    let frame = rig.only(A);
    assert_eq!(stations(&frame), (station(PEER), station(STATION_A)));
    let ip = Ipv4::new(&frame[14..]).unwrap();
    assert_eq!((ip.src(), ip.dst()), (Ipv4Addr::new(10, 0, 1, 1), Ipv4Addr::new(10, 0, 1, 9)));
    let icmp = Icmp::new(ip.payload()).unwrap();
    assert_eq!(icmp.payload(), &cause[..cause.len().min(548)], "the packet as it came");
    (icmp.icmp_type(), icmp.code(), icmp.rest())
}

#[track_caller]
fn told6(rig: &mut Rig, packet: Ip6) -> (Icmp6Type, u8, [u8; 4]) {
    rig.push6(packet);
    let frame = rig.only(A);
    let ip = Ipv6::new(&frame[14..]).unwrap();
    assert_eq!(ip.src(), "2001:db8:1::1".parse::<Ipv6Addr>().unwrap());
    let icmp = Icmp6::new(ip.payload()).unwrap();
    (icmp.icmp_type(), icmp.code(), icmp.rest())
}

#[test]
fn who_sends_with_too_few_hops_is_told_by_the_port_it_sent_to() {
    let mut rig = rig();
    assert_eq!(told(&mut rig, through().ttl(1)), (IcmpType::TIME_EXCEEDED, 0, [0; 4]));
    assert_eq!(told6(&mut rig, through6().hop_limit(1)), (Icmp6Type::TIME_EXCEEDED, 0, [0; 4]));
    assert_eq!((rig.drops(DropReason::TtlExpired), rig.counter("icmp-errors")), (2, 2));
}

#[test]
fn path_mtu_discovery_is_told_the_mtu_of_the_next_hop() {
    let mut rig = rig_of(
        "PORT a 10.0.1.1/24 2001:db8:1::1/64 ETHER 2:0:0:0:0:1,
         PORT b 10.0.2.1/24 2001:db8:2::1/64 ETHER 2:0:0:0:0:2 MTU 1400, NEIGHBOR a 10.0.1.9 2:0:0:0:1:9,
         NEIGHBOR a 2001:db8:1::9 2:0:0:0:1:9, ROUTE 20.0.0.0/8 10.0.2.254, ROUTE 2001:db8:20::/48 \
         2001:db8:2::fe, DAD false",
    );
    let long = through().dont_fragment().payload(vec![1; 1390]);
    assert_eq!(told(&mut rig, long), (IcmpType::UNREACHABLE, 4, [0, 0, 0x05, 0x78]));
    let long = through6().payload(vec![1; 1390]);
    assert_eq!(told6(&mut rig, long), (Icmp6Type::PACKET_TOO_BIG, 0, [0, 0, 0x05, 0x78]));
    assert_eq!(rig.drops(DropReason::TooBig), 2);
}

#[test]
fn destinations_that_lead_nowhere_are_told_of_by_their_code() {
    let mut rig = rig();
    let code = |rig: &mut Rig, dst| told(rig, through().dst(dst)).1;
    let codes = ["99.0.0.1", "22.0.0.1", "23.0.0.1"].map(|dst| code(&mut rig, dst));
    assert_eq!(codes, [0, 1, 13]);
    let codes = ["2001:db8:99::1", "2001:db8:22::1"].map(|dst| told6(&mut rig, through6().dst(dst)).1);
    assert_eq!(codes, [0, 6]);
    rig.push4(through().dst("21.0.0.1"));
    rig.silent();
}

#[test]
fn wrong_options_are_pointed_to_and_source_routes_refused() {
    let mut rig = rig();
    let wrong = through().options([7, 7, 3, 0, 0, 0, 0, 0]);
    rig.push4(wrong);
    let frame = rig.only(A);
    let icmp = Icmp::new(Ipv4::new(&frame[14..]).unwrap().payload().to_vec()).unwrap();
    assert_eq!((icmp.icmp_type(), icmp.rest()), (IcmpType::PARAMETER_PROBLEM, [22, 0, 0, 0]));
    rig.push4(through().options([131, 7, 4, 20, 0, 0, 1, 0]));
    let frame = rig.only(A);
    let ip = Ipv4::new(&frame[14..]).unwrap();
    let icmp = Icmp::new(ip.payload()).unwrap();
    assert_eq!((icmp.icmp_type(), icmp.code()), (IcmpType::UNREACHABLE, 5));
    let jumbo = through6().extension(0, [0xc2, 4, 0, 1, 0, 0]);
    assert_eq!(told6(&mut rig, jumbo), (Icmp6Type::PARAMETER_PROBLEM, 2, [0, 0, 0, 42]));
}

#[test]
fn no_error_is_sent_about_errors_fragments_groups_and_nobody() {
    let mut rig = rig();
    for packet in [
        through().ttl(1).icmp(IcmpType::UNREACHABLE, 0, [0; 4]),
        through().ttl(1).fragment(800, true).payload([0; 96]),
    ] {
        rig.push4(packet);
        rig.silent();
    }
    rig.push6(through6().hop_limit(1).icmp(Icmp6Type::TIME_EXCEEDED, 0, [0; 4]));
    rig.silent();
    rig.bench.push(A, ether("ff:ff:ff:ff:ff:ff", PEER).ip4(through().ttl(1)).bytes());
    rig.silent();
    assert_eq!((rig.drops(DropReason::TtlExpired), rig.counter("icmp-errors-forbidden")), (3, 3));
}

#[test]
fn a_link_local_sender_is_told_from_the_link_local_address() {
    let mut rig = rig();
    rig.push6(ip6().src("fe80::9").dst("2001:db8:20::1").hop_limit(9).udp(1, 2));
    let frame = rig.only(A);
    let ip = Ipv6::new(&frame[14..]).unwrap();
    assert_eq!(ip.src(), "fe80::ff:fe00:1".parse::<Ipv6Addr>().unwrap());
    let icmp = Icmp6::new(ip.payload()).unwrap();
    assert_eq!((icmp.icmp_type(), icmp.code()), (Icmp6Type::UNREACHABLE, 2));
}

#[test]
fn errors_are_limited_for_each_destination_and_in_all_and_counted() {
    let mut rig = rig_with("ICMP_EACH 10, ICMP_RATE 50");
    for _ in 0..1000 {
        rig.push4(through().ttl(1));
    }
    assert_eq!(rig.sent(A).len(), 10);
    assert_eq!((rig.counter("icmp-errors"), rig.counter("icmp-errors-limited")), (10, 990));
    rig.pass_ms(1000);
    for n in 0..200 {
        rig.push4(ip4().src([20, 1, 0, n]).dst("99.0.0.1").ttl(9).udp(1, 2));
    }
    assert_eq!(rig.sent(B).len(), 50);
}

#[test]
fn the_host_hears_of_its_packets_too() {
    let mut rig = rig();
    rig.bench.push(HOST, ether(STATION_A, OWN_HOST).ip4(through().src("10.0.1.1").dst("99.0.0.1")).bytes());
    let frame = rig.only(HOST);
    assert_eq!(stations(&frame).0, station(OWN_HOST));
    let ip = Ipv4::new(&frame[14..]).unwrap();
    assert_eq!(Icmp::new(ip.payload()).unwrap().icmp_type(), IcmpType::UNREACHABLE);
}
