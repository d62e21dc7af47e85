//! What is bounded: states, states of rules, of sources, connections, floods.
use super::connections::{client, connect, server};
use crate::world::{ACK, SYN_ACK, World};
use artery_filter::dissect::FilterDropReason;
use artery_filter::engine::{FilterEvent, LimitCounter};
use artery_filter::rule::Flush;
use artery_wire::build::{Ip4, ip4};

fn limit(world: &World, counter: LimitCounter) -> u64 {
    world.filter.collect_counters().limits[counter as usize]
}

fn datagram(host: u8, port: u16) -> Ip4 {
    ip4().src([10, 0, 0, host]).dst("7.7.7.7").udp(port, 53)
}

#[test]
fn there_are_no_more_states_than_the_limit() {
    let mut world = World::new("set limit states 3\npass");
    (1..=3).for_each(|port| drop(world.leaves(datagram(9, port))));
    world.withholds(datagram(9, 4), FilterDropReason::Memory);
    world.leaves(datagram(9, 2));
    world.sleep(100.0);
    world.maintain();
    world.leaves(datagram(9, 4));
}

#[test]
fn a_rule_has_no_more_states_than_it_says() {
    let mut world = World::new("pass out keep state (max 2)");
    (1..=2).for_each(|port| drop(world.leaves(datagram(9, port))));
    world.withholds(datagram(9, 3), FilterDropReason::StateLimit);
    assert_eq!(limit(&world, LimitCounter::MaxStates), 1);
}

#[test]
fn a_source_has_no_more_states_than_its_rule_says() {
    let mut world = World::new("pass out keep state (max-src-states 2, max-src-nodes 2)");
    (1..=2).for_each(|port| drop(world.leaves(datagram(9, port))));
    world.withholds(datagram(9, 3), FilterDropReason::SourceLimit);
    world.leaves(datagram(8, 1));
    world.withholds(datagram(7, 1), FilterDropReason::SourceLimit);
    assert_eq!(limit(&world, LimitCounter::MaxSourceStates), 1);
    assert_eq!(limit(&world, LimitCounter::MaxSourceNodes), 1);
    world.flush();
    world.leaves(datagram(9, 3));
}

#[test]
fn a_source_with_too_many_connections_comes_into_a_table_and_loses_its_states() {
    let rules = "table <bad> persist\nblock in\n\
                 pass out proto tcp keep state (max-src-conn 2, overload <bad> flush)\npass out proto udp";
    let mut world = World::new(rules);
    world.leaves(datagram(9, 1));
    for port in [1, 2] {
        world.leaves(client().tcp(port, 80).seq(1000));
        world.comes(server().tcp(80, port).flags(SYN_ACK).seq(5000).ack(1001));
        world.leaves(client().tcp(port, 80).flags(ACK).seq(1001).ack(5001));
    }
    world.leaves(client().tcp(3, 80).seq(1000));
    world.comes(server().tcp(80, 3).flags(SYN_ACK).seq(5000).ack(1001));
    world.withholds(client().tcp(3, 80).flags(ACK).seq(1001).ack(5001), FilterDropReason::SourceLimit);
    let expected = FilterEvent::Overload {
        address: [10, 0, 0, 9].into(),
        anchor: "".into(),
        table: "bad".into(),
        flush: Flush::Rule,
    };
    assert_eq!(world.events(), [expected]);
    // Connections of the rule are over, what other rules let pass is not.
    world.withholds(client().tcp(1, 80).flags(ACK).seq(1001).ack(5001), FilterDropReason::StateMismatch);
    world.leaves(datagram(9, 1));
    assert_eq!(limit(&world, LimitCounter::MaxSourceConnections), 1);
    assert_eq!(limit(&world, LimitCounter::OverloadFlush), 1);
}

#[test]
fn a_connection_too_many_ends_without_flush_and_others_of_its_source_go_on() {
    let mut world = World::new("block in\npass out proto tcp keep state (max-src-conn 1)");
    for port in [1, 2] {
        world.leaves(client().tcp(port, 80).seq(1000));
        world.comes(server().tcp(80, port).flags(SYN_ACK).seq(5000).ack(1001));
        let last = client().tcp(port, 80).flags(ACK).seq(1001).ack(5001);
        match port {
            1 => drop(world.leaves(last)),
            _ => world.withholds(last, FilterDropReason::SourceLimit),
        }
    }
    // What is sent again does not keep it, either.
    for _ in 0..8 {
        world.sleep(10.0);
        world.withholds(client().tcp(2, 80).flags(ACK).seq(1001).ack(5001), FilterDropReason::StateMismatch);
        world
            .refuses(server().tcp(80, 2).flags(SYN_ACK).seq(5000).ack(1001), FilterDropReason::StateMismatch);
        world.leaves(client().tcp(1, 80).flags(ACK).seq(1001).ack(5001));
    }
    world.sleep(15.0);
    world.maintain();
    assert_eq!(world.states(), 1);
}

#[test]
fn connections_in_a_time_are_limited() {
    let mut world = World::new("pass keep state (max-src-conn-rate 3/10)");
    let attempt = |world: &mut World, port| {
        world.leaves(client().tcp(port, 80).seq(1000));
        world.comes(server().tcp(80, port).flags(SYN_ACK).seq(5000).ack(1001));
        let mut last = client().tcp(port, 80).flags(ACK).seq(1001).ack(5001).bytes();
        let verdict = world.test(crate::world::EM0, artery_filter::facts::Direction::Out, &mut last);
        matches!(verdict, artery_filter::engine::FilterVerdict::Pass(_))
    };
    assert!((1..=3).all(|port| attempt(&mut world, port)));
    assert!(!attempt(&mut world, 4));
    world.sleep(20.0);
    assert!(attempt(&mut world, 5));
}

#[test]
fn a_flood_of_syns_fills_the_table_and_known_connections_go_on() {
    let mut world = World::new("set limit states 1000\npass");
    connect(&mut world);
    let (mut passed, mut refused) = (0, 0);
    for n in 0..20_000_u32 {
        let from = std::net::Ipv4Addr::from(0x0b00_0000 + n);
        let mut syn = ip4().src(from).dst("10.0.0.9").tcp(7, 80).seq(n).bytes();
        match world.test(crate::world::EM0, artery_filter::facts::Direction::In, &mut syn) {
            artery_filter::engine::FilterVerdict::Pass(_) => passed += 1,
            _ => refused += 1,
        }
        if n.is_multiple_of(100) {
            world.comes(server().flags(ACK).seq(5001).ack(1001).payload([1; 9]));
        }
    }
    // Lifetimes shrink as states become many, so that some make room for others.
    assert!(world.states() <= 1000);
    assert!(passed >= 999 && refused > 0, "{passed} passed, {refused} did not");
    assert_eq!(world.reason(FilterDropReason::Memory), refused);
}
