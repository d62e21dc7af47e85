//! How long states live.
use super::connections::{client, connect, server};
use crate::world::{ACK, FIN_ACK, RST, SYN_ACK, World};
use artery_wire::build::ip4;

/// A state must be there just before `seconds` have passed, and be gone then.
#[track_caller]
fn expect(mut world: World, seconds: f64, what: &str) {
    assert_eq!(world.states(), 1, "{what}");
    world.sleep(seconds - 0.01);
    world.maintain();
    assert_eq!(world.states(), 1, "{what} lives for {seconds}");
    world.sleep(0.02);
    world.maintain();
    assert_eq!(world.states(), 0, "{what} lives for no more than {seconds}");
}

fn world() -> World {
    World::new("pass")
}

#[test]
fn each_stage_has_its_timeout() {
    let mut first = world();
    first.leaves(client().seq(1000));
    expect(first, 120.0, "tcp.first");
    let mut opening = world();
    opening.leaves(client().seq(1000));
    opening.comes(server().flags(SYN_ACK).seq(5000).ack(1001));
    expect(opening, 30.0, "tcp.opening");
    let established = || {
        let mut world = world();
        connect(&mut world);
        world
    };
    expect(established(), 86_400.0, "tcp.established");
    let closing = || {
        let mut world = established();
        world.leaves(client().flags(FIN_ACK).seq(1001).ack(5001));
        world
    };
    expect(closing(), 900.0, "tcp.closing");
    let finwait = || {
        let mut world = closing();
        world.comes(server().flags(FIN_ACK).seq(5001).ack(1002));
        world
    };
    expect(finwait(), 45.0, "tcp.finwait");
    let mut closed = finwait();
    closed.leaves(client().flags(ACK).seq(1002).ack(5002));
    expect(closed, 90.0, "tcp.closed");
    let mut reset = established();
    reset.leaves(client().flags(RST).seq(1001));
    expect(reset, 90.0, "tcp.closed");
}

#[test]
fn other_protocols_have_their_own() {
    let there = |protocol: u8| ip4().src("1.1.1.1").dst("2.2.2.2").raw(protocol, [0, 1, 0, 2, 0, 8, 0, 0]);
    let back = |protocol: u8| ip4().src("2.2.2.2").dst("1.1.1.1").raw(protocol, [0, 2, 0, 1, 0, 8, 0, 0]);
    for (protocol, name) in [(17, "udp"), (253, "other")] {
        let mut first = world();
        first.leaves(there(protocol));
        expect(first, 60.0, &format!("{name}.first"));
        let mut single = world();
        single.leaves(there(protocol));
        single.leaves(there(protocol));
        expect(single, 30.0, &format!("{name}.single"));
        let mut multiple = world();
        multiple.leaves(there(protocol));
        multiple.comes(back(protocol));
        multiple.leaves(there(protocol));
        expect(multiple, 60.0, &format!("{name}.multiple"));
    }
    let mut ping = world();
    ping.leaves(ip4().src("1.1.1.1").dst("2.2.2.2").icmp_echo(1, 1));
    let mut answered = world();
    answered.leaves(ip4().src("1.1.1.1").dst("2.2.2.2").icmp_echo(1, 1));
    answered.comes(ip4().src("2.2.2.2").dst("1.1.1.1").icmp_echo_reply(1, 1));
    expect(ping, 20.0, "icmp.first");
    expect(answered, 10.0, "icmp.error");
}

#[test]
fn rules_and_options_change_them() {
    let mut own = World::new("pass keep state (udp.first 7)");
    own.leaves(ip4().udp(1, 2));
    expect(own, 7.0, "a rule's own");
    let mut set = World::new("set timeout udp.first 9\npass");
    set.leaves(ip4().udp(1, 2));
    expect(set, 9.0, "that of the options");
    let mut optimised = World::new("set optimization aggressive\npass");
    optimised.leaves(client().seq(1000));
    expect(optimised, 30.0, "that of the optimization");
}

#[test]
fn a_state_that_is_over_is_not_found_even_before_it_is_removed() {
    let mut world = World::new("block in\npass out");
    world.leaves(ip4().src("1.1.1.1").dst("2.2.2.2").udp(1, 2));
    world.sleep(60.1);
    world.refuses(
        ip4().src("2.2.2.2").dst("1.1.1.1").udp(2, 1),
        artery_filter::dissect::FilterDropReason::Match,
    );
    assert_eq!(world.states(), 0);
}

#[test]
fn lifetimes_shrink_as_states_become_many() {
    let rules = "set limit states 1000\nset timeout { adaptive.start 600, adaptive.end 1200 }\npass";
    for (states, seconds) in [(600_u16, 60.0), (900, 30.0)] {
        let mut world = World::new(rules);
        for port in 1..=states {
            world.leaves(ip4().udp(port, 53));
        }
        world.sleep(seconds - 0.1);
        assert_eq!(world.maintain(), 0, "{states}");
        world.sleep(0.2);
        assert!(world.maintain() > 0, "{states}");
    }
}

#[test]
fn a_clock_that_goes_back_ends_nothing() {
    let mut world = world();
    world.leaves(ip4().udp(1, 2));
    world.now -= std::time::Duration::from_secs(500);
    world.maintain();
    assert_eq!(world.states(), 1);
}
