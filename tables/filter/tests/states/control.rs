//! Other rules under way, dumps, counters of rules, switching off.
use super::connections::{client, connect, server};
use crate::world::{ACK, EM0, InterfaceNames, World, interface};
use artery_filter::dissect::FilterDropReason;
use artery_filter::engine::{FilterVerdict, StateRange};
use artery_filter::evaluate::{Counters, RuleId};
use artery_filter::facts::{Direction, Interface};
use artery_filter::states::{DumpError, Verbosity};
use artery_wire::build::ip4;

#[test]
fn connections_outlive_their_rules() {
    let mut world =
        World::new("set timeout tcp.established 5000\nblock in\npass out keep state (tcp.established 77)");
    connect(&mut world);
    world.reload("block all");
    world.comes(server().flags(ACK).seq(5001).ack(1001).payload([1; 9]));
    world.withholds(client().src("10.0.0.8").seq(1), FilterDropReason::Match);
    // What the rule said of the state holds on.
    world.sleep(76.0);
    world.maintain();
    assert_eq!(world.states(), 1);
    world.sleep(2.0);
    world.maintain();
    assert_eq!(world.states(), 0);
}

#[test]
fn a_tag_is_the_same_one_when_other_rules_name_others_before_it() {
    let mut world = World::new("block\npass in on em0 tag known");
    let datagram = || ip4().src("192.0.2.9").dst("7.7.7.7").udp(1000, 53);
    let before = world.passes(EM0, Direction::In, datagram());
    world.reload("match on lo0 tag other\nblock\npass in on em0 tag known");
    let after = world.passes(EM0, Direction::In, datagram());
    assert_eq!([before, after].map(|passed| world.compiled.tags().name(passed.tag)), ["known"; 2]);
}

#[test]
fn no_packet_of_a_connection_is_lost_by_a_thousand_reloads() {
    let mut world = World::new("block in\npass out");
    connect(&mut world);
    for n in 0..1000_u32 {
        if n.is_multiple_of(10) {
            world.reload(if n.is_multiple_of(20) { "block in\npass out label x" } else { "block all" });
        }
        let data = server().flags(ACK).seq(5001 + n * 9).ack(1001).payload([n as u8; 9]);
        world.comes(data);
        world.leaves(client().flags(ACK).seq(1001).ack(5001 + n * 9 + 9));
    }
    assert_eq!(world.filter.collect_counters().state_table[1], 1);
}

#[test]
fn rules_count_on_when_other_rule_sets_are_loaded_and_anew_when_their_own_is() {
    let rules = "anchor inner\nblock\npass out proto udp to port 53 keep state (max 2)\n\
                 pass out proto udp to port 54 once\n\
                 pass out inet proto udp to port 55 nat-to 192.0.2.128/25 round-robin sticky-address";
    let mut world = World::new(rules);
    let datagram = |from: u16, to: u16| ip4().src("10.0.0.9").dst("7.7.7.7").udp(from, to);
    let source = |sent: Vec<u8>| sent[12..16].to_vec();
    world.leaves(datagram(1, 53));
    world.leaves(datagram(1, 54));
    let given = source(world.leaves(datagram(1, 55)));
    for _ in 0..2 {
        world.load_anchor("inner", "match out label one\nmatch out label two");
    }
    let count = |world: &World, rule| Counters::sum_rule([&*world.filter.counters()], RuleId(rule));
    let total = count(&world, 2);
    assert_eq!((total.packets, total.states, total.created), ([0, 1], 1, 1));
    assert_eq!(source(world.leaves(datagram(2, 55))), given);
    world.leaves(datagram(2, 53));
    world.withholds(datagram(3, 53), FilterDropReason::StateLimit);
    world.withholds(datagram(2, 54), FilterDropReason::Match);
    assert_eq!((count(&world, 2).states, count(&world, 5).packets), (2, [0, 4]));
    world.reload(rules);
    assert_eq!((count(&world, 2).created, count(&world, 5).packets), (0, [0, 4]));
    world.leaves(datagram(3, 53));
    world.leaves(datagram(2, 54));
}

#[test]
fn rules_count_the_packets_of_their_states() {
    let mut world = World::new("match out label m\nblock in\npass out");
    connect(&mut world);
    world.comes(server().flags(ACK).seq(5001).ack(1001).payload([1; 9]));
    let counters = world.filter.counters();
    let totals = [0, 2].map(|rule| Counters::sum_rule([&*counters], RuleId(rule)));
    assert!(totals.iter().all(|total| (total.packets, total.bytes) == ([2, 2], [89, 80])), "{totals:?}");
    assert_eq!((totals[1].states, totals[1].created), (1, 1));
    world.flush();
    assert_eq!(Counters::sum_rule([&*counters], RuleId(2)).states, 0);
}

#[test]
fn another_filter_goes_on_where_a_dump_was_taken() {
    let rules = "set state-policy if-bound\nblock in\npass out inet from 10.0.0.0/24 nat-to 192.0.2.1";
    let mut world = World::new(rules);
    let datagram = || ip4().src("10.0.0.9").dst("7.7.7.7").udp(1000, 53);
    let sent = world.leaves(datagram());
    world.leaves(ip4().src("10.0.0.8").dst("7.7.7.7").tcp(1, 2));
    world.sleep(2.0);
    world.maintain();
    let mut dump = Vec::new();
    // Range by range; the last holds nothing.
    for from in 0..3 {
        world.filter.dump_states(StateRange { from, places: 1 }, &InterfaceNames, &world.compiled, &mut dump);
    }
    let mut other = World::new(&format!("set hostid 7\n{rules}"));
    other.now = std::time::Duration::from_secs(50);
    other.maintain();
    assert_eq!(other.filter.restore_states(&dump, true, interface, &other.compiled), Ok(2));
    assert_eq!(other.filter.restore_states(&dump, true, interface, &other.compiled), Ok(0), "they are there");
    assert_eq!(other.leaves(datagram()), sent);
    let list = other.list(Verbosity::VeryVerbose);
    assert!(list.contains("age 00:00:02") && list.contains("creatorid: 00000001"), "{list}");
    let found = other.filter.restore_states(b"rubbish", true, interface, &other.compiled);
    assert_eq!(found, Err(DumpError::Short(0)));
}

#[test]
fn what_a_state_wants_of_its_packets_goes_with_it() {
    let rules = "pass out inet proto udp set tos 0x10 scrub (min-ttl 99) tag inside";
    let mut world = World::new(rules);
    let datagram = || ip4().src("10.0.0.9").dst("7.7.7.7").ttl(5).udp(1000, 53);
    let sent = world.leaves(datagram());
    let mut dump = Vec::new();
    world.filter.dump_states(StateRange::ALL, &InterfaceNames, &world.compiled, &mut dump);
    let mut other = World::new("block tagged inside\npass out no state");
    let unlike = other.leaves(datagram());
    assert_ne!(sent, unlike);
    assert_eq!(other.filter.restore_states(&dump, false, interface, &other.compiled), Ok(1));
    assert_eq!(other.leaves(datagram()), sent);
    other.filter.end_in(StateRange { from: 0, places: 1 }, |_| true);
    assert_eq!(other.leaves(datagram()), unlike);
}

#[test]
fn states_are_gone_through_part_by_part() {
    let mut world = World::new("pass out");
    for port in 1..=10 {
        world.leaves(ip4().udp(port, 53));
    }
    let (mut from, mut seen) = (Some(0), 0);
    while let Some(first) = from {
        let part = StateRange { from: first, places: 3 };
        seen += world.filter.states_in(part).count();
        from = world.filter.next_start(part);
    }
    assert_eq!(seen, 10);
    let part = StateRange { from: 3, places: 6 };
    let there = world.filter.states_in(part).count();
    assert!((1..10).contains(&there), "{there}");
    let killed = world.filter.end_in(part, |state| state.keys()[0].ports[0] != 0);
    assert_eq!((killed.0, world.states()), (there, 10 - there));
    let beyond = StateRange { from: u32::MAX, places: 3 };
    assert_eq!((world.filter.states_in(beyond).count(), world.filter.next_start(beyond)), (0, None));
}

#[test]
fn both_states_of_a_connection_have_places_side_by_side_which_are_used_again() {
    let mut world = World::new("pass");
    let places = |world: &mut World, port: u16| {
        let datagram = || ip4().udp(port, 53);
        let entered = world.passes(EM0, Direction::In, datagram()).state;
        world.hint = entered;
        let left = world.passes(crate::world::EM1, Direction::Out, datagram()).state;
        [entered, left].map(|state| state.unwrap().to_bits() - 1)
    };
    for round in 0..3 {
        for port in 1..=10 {
            let [one, other] = places(&mut world, port);
            assert!(one ^ other == 1 && one < 20, "{round}: {one}, {other}");
        }
        // One of two, then the other: no place is lost, and none is given twice.
        let is_of_em0 = |state: &artery_filter::states::StateView<'_>| state.direction() == Direction::In;
        assert_eq!((world.filter.end_in(StateRange::ALL, is_of_em0).0, world.states()), (10, 10));
        assert_eq!((world.filter.end_in(StateRange::ALL, |_| true).0, world.states()), (10, 0));
    }
    // A state whose neighbor has ended gets another one.
    let [one, other] = places(&mut world, 1);
    world.filter.end_in(StateRange { from: other, places: 1 }, |_| true);
    assert_eq!(places(&mut world, 1), [one, other]);
}

#[test]
fn skipped_interfaces_and_a_filter_that_is_off_let_everything_pass() {
    let mut world = World::new("set skip on lo0\nblock all");
    world.refuses(ip4().udp(1, 2), FilterDropReason::Match);
    let passed = world.test(Interface(0), Direction::In, &mut ip4().udp(1, 2).bytes());
    assert!(matches!(passed, FilterVerdict::Pass(_)));
    world.disable();
    world.comes(ip4().udp(1, 2));
}

#[test]
fn traffic_is_counted_at_each_interface() {
    let mut world = World::new("pass\nblock in proto tcp");
    world.comes(ip4().udp(1, 2));
    world.refuses(ip4().tcp(1, 2), FilterDropReason::Match);
    world.test(crate::world::EM1, Direction::In, &mut ip4().udp(3, 4).bytes());
    world.test(EM0, Direction::Out, &mut artery_wire::build::ip6().udp(3, 4).bytes());
    let counted = world.filter.collect_counters();
    let at_em0 = counted.interfaces[EM0.0 as usize];
    assert_eq!(at_em0.packets, [[[1, 1], [0, 0]], [[0, 0], [1, 0]]]);
    assert_eq!(at_em0.bytes, [[[28, 40], [0, 0]], [[0, 0], [48, 0]]]);
    assert_eq!(counted.interfaces[crate::world::EM1.0 as usize].packets[0], [[1, 0], [0, 0]]);
}
