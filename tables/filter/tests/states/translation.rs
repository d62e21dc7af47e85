//! `nat-to`, `rdr-to`, `binat-to` and their pools.
use crate::world::{EM0, InterfaceNames, SYN_ACK, World, interface};
use artery_filter::dissect::FilterDropReason;
use artery_filter::engine::{FilterVerdict, StateRange};
use artery_filter::facts::Direction;
use artery_wire::build::{Ip4, ip4, ip6};
use artery_wire::{IcmpType, Ipv4, Udp};

const NAT: &str = "block in\npass out inet from 10.0.0.0/24 nat-to 192.0.2.1\n\
    pass out inet6 from fd00::/64 nat-to 2001:db8::1";

fn inside(host: u8, port: u16) -> Ip4 {
    ip4().src([10, 0, 0, host]).dst("7.7.7.7").udp(port, 53).payload([3; 21])
}

/// The port that a datagram has as its source.
fn port(bytes: &[u8]) -> u16 {
    Udp::new(Ipv4::new(bytes).unwrap().payload()).unwrap().src_port()
}

#[test]
fn a_datagram_goes_out_with_another_source_and_its_answer_comes_back() {
    let mut world = World::new(NAT);
    let sent = world.leaves(inside(9, 1000));
    let chosen = port(&sent);
    assert!(chosen > 50_000);
    let outside = ip4().src("192.0.2.1").dst("7.7.7.7").udp(chosen, 53).payload([3; 21]);
    assert_eq!(sent, outside.bytes());
    let answer = ip4().src("7.7.7.7").dst("192.0.2.1").udp(53, chosen).payload([4; 9]);
    let expected = ip4().src("7.7.7.7").dst("10.0.0.9").udp(53, 1000).payload([4; 9]);
    assert_eq!(world.comes(answer), expected.bytes());
    assert_eq!(port(&world.leaves(inside(9, 1000))), chosen, "the state keeps it");
    world.refuses(ip4().src("7.7.7.8").dst("192.0.2.1").udp(53, chosen), FilterDropReason::Match);
}

#[test]
fn states_that_change_packets_are_known_for_it_without_their_rules_and_elsewhere() {
    let mut world = World::new("pass");
    world.leaves(inside(9, 999));
    assert!(!world.filter.changes_packets());
    for rules in [NAT, "pass out proto udp set tos 4", "pass out proto udp scrub (no-df)"] {
        let mut world = World::new(rules);
        world.leaves(inside(9, 1000));
        world.reload("pass");
        let mut records = Vec::new();
        world.filter.dump_states(StateRange::ALL, &InterfaceNames, &world.compiled, &mut records);
        let mut other = World::new("pass");
        assert_eq!(other.filter.restore_states(&records, false, interface, &other.compiled), Ok(1));
        assert!(world.filter.changes_packets() && other.filter.changes_packets(), "{rules}");
    }
}

#[test]
fn ipv6_is_translated_as_well() {
    let mut world = World::new(NAT);
    let sent = world.leaves(ip6().src("fd00::9").dst("2001:db8:7::7").tcp(1000, 80).seq(5));
    let chosen = u16::from_be_bytes([sent[40], sent[41]]);
    assert_eq!(sent, ip6().src("2001:db8::1").dst("2001:db8:7::7").tcp(chosen, 80).seq(5).bytes());
    let answer = ip6().src("2001:db8:7::7").dst("2001:db8::1").tcp(80, chosen).flags(SYN_ACK).seq(77).ack(6);
    let expected = ip6().src("2001:db8:7::7").dst("fd00::9").tcp(80, 1000).flags(SYN_ACK).seq(77).ack(6);
    assert_eq!(world.comes(answer), expected.bytes());
}

#[test]
fn pings_have_identifiers_instead_of_ports() {
    let mut world = World::new(NAT);
    let ping = |host: u8| ip4().src([10, 0, 0, host]).dst("7.7.7.7").icmp_echo(5, 1);
    let id = |bytes: &[u8]| u16::from_be_bytes([bytes[24], bytes[25]]);
    let [one, other] = [8, 9].map(|host| world.leaves(ping(host)));
    assert_ne!(id(&one), id(&other));
    assert_eq!(one, ip4().src("192.0.2.1").dst("7.7.7.7").icmp_echo(id(&one), 1).bytes());
    let reply = ip4().src("7.7.7.7").dst("192.0.2.1").icmp_echo_reply(id(&other), 1);
    let expected = ip4().src("7.7.7.7").dst("10.0.0.9").icmp_echo_reply(5, 1).bytes();
    assert_eq!(world.comes(reply), expected);
}

#[test]
fn errors_about_translated_packets_reach_their_senders() {
    let mut world = World::new(NAT);
    let sent = world.leaves(inside(9, 1000));
    let error = |to: &str, quoted: &[u8]| {
        ip4().src("8.8.8.8").dst(to).icmp(IcmpType::TIME_EXCEEDED, 0, [0; 4]).payload(quoted).bytes()
    };
    let expected = error("10.0.0.9", &inside(9, 1000).bytes());
    assert_eq!(world.comes(error("192.0.2.1", &sent)), expected);
}

#[test]
fn redirections_lead_to_another_host_and_answers_seem_to_come_from_the_first() {
    let mut world =
        World::new("block all\npass in proto tcp to 192.0.2.1 port 80 rdr-to 10.0.0.80 port 8080");
    let ask = ip4().src("7.7.7.7").dst("192.0.2.1").tcp(1000, 80).seq(9);
    assert_eq!(world.comes(ask), ip4().src("7.7.7.7").dst("10.0.0.80").tcp(1000, 8080).seq(9).bytes());
    let answer = ip4().src("10.0.0.80").dst("7.7.7.7").tcp(8080, 1000).flags(SYN_ACK).seq(1).ack(10);
    let expected = ip4().src("192.0.2.1").dst("7.7.7.7").tcp(80, 1000).flags(SYN_ACK).seq(1).ack(10);
    assert_eq!(world.leaves(answer), expected.bytes());
}

#[test]
fn binat_works_both_ways_and_keeps_ports() {
    let mut world = World::new("block all\npass on em0 inet from 10.0.0.9 to any binat-to 192.0.2.9");
    let sent = world.leaves(inside(9, 1000));
    assert_eq!(sent, inside(9, 1000).src("192.0.2.9").bytes());
}

#[test]
fn a_pool_without_free_ports_drops_and_counts() {
    let mut world = World::new("pass out inet from 10.0.0.0/24 nat-to 192.0.2.1 port 60000:60001");
    let mut chosen: Vec<_> = (1..=2).map(|port_of| port(&world.leaves(inside(9, port_of)))).collect();
    chosen.sort();
    assert_eq!(chosen, [60_000, 60_001]);
    world.withholds(inside(9, 3), FilterDropReason::Translate);
    assert_eq!(world.reason(FilterDropReason::Translate), 1);
    // Another destination is another matter.
    world.leaves(inside(9, 3).dst("7.7.7.8"));
    world.flush();
    world.leaves(inside(9, 3));
}

#[test]
fn static_ports_stay_and_collide() {
    let mut world = World::new("pass out inet from 10.0.0.0/24 nat-to 192.0.2.1 static-port");
    assert_eq!(port(&world.leaves(inside(8, 1000))), 1000);
    world.withholds(inside(9, 1000), FilterDropReason::Translate);
}

#[test]
fn sources_stick_to_their_addresses() {
    let pool = "pass out inet from 10.0.0.0/24 nat-to 192.0.2.128/25 round-robin sticky-address";
    let mut world = World::new(pool);
    let mut source = |host, port_of| Ipv4::new(&world.leaves(inside(host, port_of))[..]).unwrap().src();
    let first = source(1, 1);
    assert_ne!(source(2, 1), first);
    assert!((2..20).all(|port_of| source(1, port_of) == first));
    assert_eq!(world.filter.sources().count(), 2);
}

#[test]
fn sources_stick_to_addresses_of_each_pool_of_the_rules_that_hold() {
    let sticky =
        |nat: &str| format!("pass out inet from 10.0.0.0/24 nat-to {nat} round-robin sticky-address");
    let mut world = World::new(&sticky("192.0.2.128/25"));
    world.leaves(inside(1, 1));
    world.reload(&sticky("198.51.100.0/24"));
    let sent = world.leaves(inside(1, 2));
    assert_eq!(Ipv4::new(&sent[..]).unwrap().src().octets()[0], 198);
    let mut world = World::new(
        "pass in inet rdr-to 10.9.0.0/24 round-robin sticky-address route-to 192.0.2.128/25 round-robin \
         sticky-address",
    );
    let came = world.comes(inside(1, 1));
    let Some(std::net::IpAddr::V4(gateway)) = world.filter.route_to().gateway else {
        panic!("it is not assigned")
    };
    let first = [Ipv4::new(&came[..]).unwrap().dst(), gateway].map(|address| address.octets()[0]);
    assert_eq!(first, [10, 192]);
}

#[test]
fn tables_are_pools_that_take_turns() {
    let rules =
        "table <pool> { 192.0.2.5, 192.0.2.7 }\npass out inet from 10.0.0.0/24 nat-to <pool> round-robin";
    let mut world = World::new(rules);
    let mut source = |port_of| Ipv4::new(&world.leaves(inside(9, port_of))[..]).unwrap().src().octets()[3];
    let mut met: Vec<_> = (1..5).map(&mut source).collect();
    assert_eq!(met[..2], met[2..]);
    met.sort();
    assert_eq!(met, [5, 5, 7, 7]);
}

#[test]
fn match_rules_translate_before_others_look() {
    let mut world =
        World::new("block out\nmatch out inet from 10.0.0.0/24 nat-to 192.0.2.1\npass out from 192.0.2.1");
    let sent = world.leaves(inside(9, 1000));
    assert_eq!(Ipv4::new(&sent[..]).unwrap().src(), std::net::Ipv4Addr::new(192, 0, 2, 1));
    world.withholds(ip4().src("10.1.0.9").udp(1, 2), FilterDropReason::Match);
}

#[test]
fn many_flows_of_any_kind_come_back_to_where_they_began() {
    let mut world = World::new(NAT);
    let mut taken = std::collections::HashSet::new();
    for n in 0..3000_u16 {
        let (host, own) = ((n % 200) as u8 + 1, 1000 + n / 200);
        let sent = world.leaves(inside(host, own));
        assert!(taken.insert(port(&sent)), "each has its own port");
        let answer = ip4().src("7.7.7.7").dst("192.0.2.1").udp(53, port(&sent)).payload([n as u8; 5]);
        let expected = ip4().src("7.7.7.7").dst([10, 0, 0, host]).udp(53, own).payload([n as u8; 5]);
        assert_eq!(world.comes(answer), expected.bytes());
    }
}

#[test]
fn packets_are_led_where_rules_say() {
    let mut world =
        World::new("pass out inet from 10.0.0.0/24 route-to 192.0.2.254\npass in inet reply-to 192.0.2.253");
    for _ in 0..2 {
        assert!(world.passes(EM0, Direction::Out, inside(9, 1)).has_way);
        assert_eq!(world.filter.route_to().gateway, Some([192, 0, 2, 254].into()));
    }
    let ask = ip4().src("7.7.7.7").dst("10.0.0.9").udp(5, 6);
    assert!(!world.passes(EM0, Direction::In, ask).has_way);
    let mut reply = ip4().src("10.0.0.9").dst("7.7.7.7").udp(6, 5).bytes();
    let verdict = world.test(EM0, Direction::Out, &mut reply);
    assert!(matches!(verdict, FilterVerdict::Pass(passed) if passed.has_way));
    assert_eq!(world.filter.route_to().gateway, Some([192, 0, 2, 253].into()));
}
