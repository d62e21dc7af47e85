//! Floods and scans: the memory they take is bounded, they are counted, and other traffic still passes.
use super::rig::*;
use artery_engine::DropReason;
use artery_wire::build::{arp_reply, arp_request, ether, ip4};
use artery_wire::nd::{self, LinkEndpoint};
use std::net::Ipv4Addr;

/// A packet of another flow still passes.
#[track_caller]
fn others_pass(rig: &mut Rig) {
    rig.take_all();
    rig.push4(through());
    assert_eq!(rig.only(B), ether(GATEWAY, STATION_B).ip4(through().ttl(8)).bytes());
}

#[test]
fn a_scan_of_a_big_network_holds_no_more_packets_than_it_may() {
    let mut rig = rig_of(
        "PORT a 10.0.1.1/24 ETHER 2:0:0:0:0:1, PORT b 30.0.0.1/8 10.0.2.1/24 ETHER 2:0:0:0:0:2, NEIGHBOR a \
         10.0.1.9 2:0:0:0:1:9,
         NEIGHBOR b 10.0.2.254 2:0:0:0:2:fe, ROUTE 20.0.0.0/8 10.0.2.254, DAD false, HOLD_ALL 100",
    );
    for n in 0..50_000_u32 {
        rig.push4(through().dst(Ipv4Addr::from_bits(0x1e00_1000 + 100 * n)));
        rig.bench.drain_sent(B);
    }
    assert_eq!(rig.counter("held"), 100);
    assert!(rig.counter("neighbor-questions-sent") <= 1000, "so many may be asked for at once");
    let refused = rig.drops(DropReason::NeighborLimit) + rig.drops(DropReason::NeighborUnresolved);
    assert_eq!(refused, 50_000 - 100, "the others end for want of room");
    others_pass(&mut rig);
    // A neighbor that answers still gets through, and pending packets are dropped eventually.
    rig.pass_ms(60_000);
    assert_eq!(rig.drops(DropReason::NeighborFailed), 100);
    rig.take_all();
    rig.push4(through().dst("30.0.0.9"));
    rig.bench.push(B, arp_reply("2:0:0:0:2:9", "30.0.0.9", STATION_B, "30.0.0.1").bytes());
    assert_eq!(rig.sent(B).len(), 2, "the question and the packet");
}

#[test]
fn an_arp_flood_is_looked_at_in_part_and_what_somebody_waits_for_always_is() {
    let mut rig = rig_with("MESSAGE_RATE 100");
    rig.push4(through().dst("10.0.2.5"));
    for n in 0..10_000_u32 {
        let asker = Ipv4Addr::from_bits(0x0a00_0200 + n % 200 + 10);
        rig.bench.push(B, arp_request("2:0:0:0:7:7", asker, "10.0.2.1").bytes());
        rig.bench.drain_sent(B);
    }
    // Those that were learnt are known then, and have a limit of their own.
    assert_eq!(rig.counter("arp-received"), 200);
    assert_eq!(rig.counter("neighbor-messages-limited"), 9_800);
    assert_eq!(rig.drops(DropReason::RateLimited), 9_800);
    rig.bench.push(B, arp_reply("2:0:0:0:2:5", "10.0.2.5", STATION_B, "10.0.2.1").bytes());
    assert_eq!(rig.sent(B).len(), 1, "the packet that waited");
    others_pass(&mut rig);
}

#[test]
fn messages_that_only_say_to_be_what_somebody_waits_for_are_looked_at_in_part() {
    let mut rig = rig_with("MESSAGE_RATE 100");
    rig.push4(through().dst("10.0.2.5"));
    for _ in 0..10_000 {
        // No host has this MAC address.
        rig.bench.push(B, arp_reply("ff:ff:ff:ff:ff:ff", "10.0.2.5", STATION_B, "10.0.2.1").bytes());
    }
    assert_eq!((rig.counter("arp-received"), rig.counter("released")), (200, 0));
    assert_eq!(rig.drops(DropReason::RateLimited), 9_800);
}

#[test]
fn a_flood_of_solicitations_is_looked_at_in_part() {
    let mut rig = rig_with("MESSAGE_RATE 100");
    for n in 0..2_000_u16 {
        let asker = LinkEndpoint { ether: station("2:0:0:0:7:7"), ip: [0xfe80, 0, 0, 0, 0, 0, 7, n].into() };
        rig.bench.push(B, nd::neighbor_solicitation(asker, "2001:db8:2::1".parse().unwrap(), None));
        rig.bench.drain_sent(B);
    }
    assert_eq!((rig.counter("nd-received"), rig.counter("neighbor-messages-limited")), (100, 1_900));
    others_pass(&mut rig);
}

#[test]
fn spoofed_gratuitous_messages_make_nobody_known_and_move_no_static_neighbor() {
    let mut rig = rig();
    for n in 0..5_000_u32 {
        let spoofed = Ipv4Addr::from_bits(0x0a00_0200 + n % 250 + 2);
        rig.bench.push(B, arp_request("2:0:0:0:6:66", spoofed, spoofed).bytes());
    }
    rig.silent();
    others_pass(&mut rig);
    rig.push4(through().dst("10.0.2.7"));
    let frame = rig.only(B);
    assert!(stations(&frame).0.is_broadcast(), "it has to be asked for");
}

#[test]
fn a_flood_of_expired_packets_is_answered_in_part() {
    let mut rig = rig_with("ICMP_RATE 100");
    for n in 0..20_000_u32 {
        let src = Ipv4Addr::from_bits(0x1400_0000 + n);
        rig.push4(ip4().src(src).dst("20.9.9.9").ttl(1).udp(1, 2));
    }
    let errors = rig.counter("icmp-errors");
    assert!(errors <= 100, "{errors}");
    assert_eq!(rig.drops(DropReason::TtlExpired), 20_000);
    assert_eq!(rig.counter("icmp-errors-limited"), 20_000 - errors);
    others_pass(&mut rig);
}
