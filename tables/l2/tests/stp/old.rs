//! Neighbors that speak the protocol of 1998 only, and bridges that are set to it.

use super::net::{Net, millis, random_net, seconds};
use super::oracle::check;
use artery_l2::stp::{Action, Bridge, Link, PortSettings, PortState, Role, Settings, Version};
use artery_wire::Random;
use artery_wire::{Bpdu, BpduFlags, BpduTime, BridgeId, Configuration, EtherAddr};

const OLD: Settings = Settings {
    priority: 32768,
    hello_time: 2,
    forward_delay: 15,
    max_age: 20,
    hold_count: 6,
    version: Version::Stp,
};

fn mixed(seed: u64, share: u8) -> Net {
    let mut random = Random::new(seed);
    let mut net = random_net(&mut random, true);
    for bridge in 0..net.bridges.len() {
        if random.percent(share) {
            net.act(bridge, |it, now, actions| {
                let settings = Settings { version: Version::Stp, ..*it.settings() };
                // Costs of the ports are within what the old protocol can say.
                it.set_settings(settings, now, actions).unwrap();
            });
        }
    }
    net
}

#[test]
fn networks_of_old_bridges_converge_by_timers() {
    for seed in 0..50 {
        let mut net = mixed(seed, 100);
        net.all_up();
        net.run(seconds(60));
        check(&net, &format!("seed {seed}"));
    }
}

#[test]
fn networks_of_old_and_rapid_bridges_converge_by_timers() {
    for seed in 0..100 {
        let mut net = mixed(seed, 50);
        net.all_up();
        net.run(seconds(100));
        check(&net, &format!("seed {seed}"));
    }
}

#[test]
fn a_port_speaks_the_protocol_of_its_neighbor_and_the_rapid_one_when_that_is_heard() {
    let mut net = Net::of(2, Settings::default());
    net.cable(&[0, 1], millis(1));
    net.act(1, |bridge, now, actions| bridge.set_settings(OLD, now, actions).unwrap());
    net.all_up();
    net.run(seconds(10));
    assert_eq!(net.bridges[0].port(1).unwrap().version, Version::Stp);
    assert_eq!(net.bridges[0].port(1).unwrap().state_name(), "listening");
    net.run(seconds(40));
    check(&net, "an old one");

    net.act(1, |bridge, now, actions| bridge.set_settings(Settings::default(), now, actions).unwrap());
    net.run(seconds(10));
    assert_eq!(net.bridges[0].port(1).unwrap().version, Version::Rstp);
    check(&net, "a rapid one");
}

const NEIGHBOR: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 0x99]);

/// What a neighbor of the old protocol says that is the root.
fn said(flags: BpduFlags) -> [u8; Bpdu::FRAME_LEN] {
    let id = BridgeId { priority: 0, address: NEIGHBOR };
    Bpdu::Configuration(Configuration {
        flags,
        root: id,
        cost: 0,
        bridge: id,
        port: 0x8001,
        message_age: BpduTime(0),
        max_age: BpduTime::seconds(20),
        hello_time: BpduTime::seconds(2),
        forward_delay: BpduTime::seconds(15),
    })
    .build_frame(NEIGHBOR)
}

/// A bridge of the old protocol with a root behind port 1 and no bridge behind port 2, after 40 s.
fn under_a_root() -> (Bridge, std::time::Duration) {
    let mut bridge = Bridge::new(EtherAddr([2, 0, 0, 0, 0, 1]), OLD).unwrap();
    let mut actions = Vec::new();
    for port in 1..=2 {
        bridge.add_port(port, EtherAddr([2, 0, 0, 0, 1, port as u8]), PortSettings::default()).unwrap();
        bridge.link_up(port, Link::GIGABIT, seconds(0), &mut actions).unwrap();
    }
    for second in 1..=60 {
        bridge.tick(seconds(second), &mut actions);
        bridge.receive_frame(1, &said(BpduFlags::default()), seconds(second), &mut actions).unwrap();
    }
    (bridge, seconds(60))
}

fn sent_on(actions: &[Action], wanted: u16) -> Vec<Bpdu> {
    let frames = actions.iter().filter_map(|action| match action {
        Action::Send { port, frame } if *port == wanted => Some(Bpdu::in_frame(frame).unwrap()),
        _ => None,
    });
    frames.collect()
}

#[test]
fn an_old_port_listens_learns_and_forwards_after_two_delays() {
    let mut bridge = Bridge::new(EtherAddr([2, 0, 0, 0, 0, 1]), OLD).unwrap();
    let mut actions = Vec::new();
    bridge.add_port(1, EtherAddr([2, 0, 0, 0, 1, 1]), PortSettings::default()).unwrap();
    bridge.link_up(1, Link::GIGABIT, seconds(0), &mut actions).unwrap();
    let mut names = vec![bridge.port(1).unwrap().state_name()];
    for second in 1..=60 {
        bridge.tick(seconds(second), &mut actions);
        names.push(bridge.port(1).unwrap().state_name());
    }
    names.dedup();
    assert_eq!(names, ["listening", "learning", "forwarding"]);
}

#[test]
fn a_change_is_told_up_the_tree_until_it_is_acknowledged() {
    let (mut bridge, now) = under_a_root();
    let mut actions = Vec::new();
    bridge.receive_frame(2, &Bpdu::Notification.build_frame(NEIGHBOR), now, &mut actions).unwrap();
    bridge.tick(now + seconds(1), &mut actions);
    bridge.tick(now + seconds(3), &mut actions);
    assert!(sent_on(&actions, 1).contains(&Bpdu::Notification), "up to the root: {actions:?}");
    let acknowledges = |bpdu: &Bpdu| match bpdu {
        Bpdu::Configuration(received) => received.flags.has(BpduFlags::TOPOLOGY_CHANGE_ACK),
        _ => false,
    };
    assert!(sent_on(&actions, 2).iter().any(acknowledges), "and down: it was heard");

    let later = now + seconds(4);
    bridge.receive_frame(1, &said(BpduFlags::TOPOLOGY_CHANGE_ACK), later, &mut actions).unwrap();
    actions.clear();
    for second in 0..10 {
        bridge.tick(later + seconds(second), &mut actions);
        bridge.receive_frame(1, &said(BpduFlags::default()), later + seconds(second), &mut actions).unwrap();
    }
    assert_eq!(sent_on(&actions, 1), [], "the root knows");
}

#[test]
fn a_change_told_by_the_root_flushes_the_other_ports() {
    let (mut bridge, now) = under_a_root();
    assert_eq!(bridge.port(1).unwrap().role, Role::Root);
    assert_eq!(bridge.port(2).unwrap().state, PortState::Forwarding);
    let mut actions = Vec::new();
    bridge.receive_frame(1, &said(BpduFlags::TOPOLOGY_CHANGE), now, &mut actions).unwrap();
    assert!(actions.contains(&Action::Flush { port: 2 }) && !actions.contains(&Action::Flush { port: 1 }));
}

#[test]
fn words_that_are_older_than_they_may_be_are_not_heard() {
    let (mut bridge, now) = under_a_root();
    let mut frame = said(BpduFlags::default());
    // The message's age: the highest allowed.
    frame[44..46].copy_from_slice(&[20, 0]);
    let before = bridge.port(1).unwrap().counters.malformed;
    bridge.receive_frame(1, &frame, now, &mut Vec::new()).unwrap();
    assert_eq!(bridge.port(1).unwrap().counters.malformed, before + 1);
}
