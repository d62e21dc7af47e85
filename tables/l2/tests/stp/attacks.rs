//! Strangers that send whatever they like.

use super::net::{End, Net, millis, seconds};
use super::oracle::check;
use artery_l2::stp::{Action, PortState, Settings};
use artery_wire::Random;
use artery_wire::{Bpdu, BpduFlags, BpduRole, BpduTime, BridgeId, Configuration, EtherAddr};
use proptest::prelude::*;
use std::time::Duration;

const STRANGER: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 0x66]);

/// What a stranger may say that takes itself for the root, or for anything else.
fn lie(random: &mut Random) -> Bpdu {
    let id = |random: &mut Random| BridgeId {
        priority: 4096 * random.below(16) as u16,
        address: EtherAddr([2, 0, 0, 0, 0, random.below(5) as u8]),
    };
    let roles = [BpduRole::Alternate, BpduRole::Root, BpduRole::Designated];
    let time = |random: &mut Random| BpduTime(random.next() as u16);
    let told = Configuration {
        flags: BpduFlags(random.next() as u8).with_role(roles[random.below(3) as usize]),
        root: id(random),
        cost: if random.percent(50) { random.below(100_000) as u32 } else { random.next() as u32 },
        bridge: id(random),
        port: 0x8000 | random.below(4) as u16,
        message_age: if random.percent(80) { BpduTime(0) } else { time(random) },
        max_age: time(random),
        hello_time: time(random),
        forward_delay: time(random),
    };
    match random.below(10) {
        0 => Bpdu::Notification,
        1..5 => Bpdu::Configuration(told),
        _ => Bpdu::Rapid(told),
    }
}

/// A ring of three, with a cable to a stranger at the first bridge.
fn ring_and_stranger() -> (Net, End) {
    let mut net = Net::of(3, Settings::default());
    (0..3).for_each(|at| _ = net.cable(&[at, (at + 1) % 3], millis(1)));
    let strange = net.cable(&[0], millis(1));
    let end = net.cables[strange].ends[0];
    net.deaf = vec![end];
    net.all_up();
    net.run(seconds(10));
    (net, end)
}

fn hear(net: &mut Net, end: End, frame: &[u8]) {
    net.act(end.0, |bridge, now, actions| bridge.receive_frame(end.1, frame, now, actions).unwrap());
}

#[test]
fn a_flood_of_lies_is_bounded_and_forgotten() {
    for seed in 0..10 {
        let (mut net, end) = ring_and_stranger();
        let mut random = Random::new(seed);
        let (sent, flushed) = (net.sent, net.flushes.len());
        // A stranger that claims to be the root may well cause loops: by its messages no bridge is behind it.
        net.circles = Some(0);
        for _ in 0..20_000 {
            hear(&mut net, end, &lie(&mut random).build_frame(STRANGER));
            net.run(Duration::from_micros(500));
        }
        let counters = net.bridges[0].port(end.1).unwrap().counters;
        assert_eq!(counters.received, 20_000, "seed {seed}");
        assert!(counters.limited >= 20_000 - 11 * 100, "seed {seed}: {counters:?}");
        // Seven ports for ten seconds and a burst.
        assert!(net.sent - sent <= 7 * 16, "seed {seed}: {} messages", net.sent - sent);
        assert!(net.flushes.len() - flushed <= 7 * 4 * 11, "seed {seed}: {}", net.flushes.len() - flushed);
        net.run(seconds(60));
        net.circles = None;
        check(&net, &format!("seed {seed}"));
        assert!(net.bridges.iter().all(|bridge| bridge.view().unsettled == 0));
    }
}

#[test]
fn changes_that_are_told_without_end_flush_four_times_a_second() {
    let (mut net, end) = ring_and_stranger();
    net.flushes.clear();
    for _ in 0..10_000 {
        hear(&mut net, end, &Bpdu::Notification.build_frame(STRANGER));
        net.run(millis(1));
    }
    let at_one = net.flushes.iter().filter(|(_, it)| *it == (0, 1)).count();
    assert!((1..=44).contains(&at_one), "{at_one}");
}

#[test]
fn rubbish_is_counted_and_nothing_else() {
    let (mut net, end) = ring_and_stranger();
    let before = net.describe();
    let good = Bpdu::Notification.build_frame(STRANGER);
    for cut in 0..21 {
        hear(&mut net, end, &good[..cut]);
    }
    let counters = net.bridges[0].port(end.1).unwrap().counters;
    assert_eq!((counters.received, counters.malformed), (21, 21));
    assert_eq!(net.describe(), before);
}

#[test]
fn a_host_port_that_hears_a_bridge_is_one_no_more() {
    let (mut net, end) = ring_and_stranger();
    assert!(net.bridges[0].port(end.1).unwrap().is_edge);
    assert_eq!(net.state(end), PortState::Forwarding);
    let mut random = Random::new(1);
    hear(&mut net, end, &lie(&mut random).build_frame(STRANGER));
    assert!(!net.bridges[0].port(end.1).unwrap().is_edge);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_is_heard_whenever_the_machines_come_to_an_end(
        seed: u64,
        gaps in prop::collection::vec(0u64..3_000_000, 1..60),
    ) {
        let (mut net, end) = ring_and_stranger();
        net.circles = Some(0);
        let mut random = Random::new(seed);
        for gap in gaps {
            let mut frame = lie(&mut random).build_frame(STRANGER);
            if random.percent(20) {
                frame[random.below(60) as usize] ^= random.next() as u8;
            }
            let mut count = 0;
            net.act(end.0, |bridge, now, actions| {
                bridge.receive_frame(end.1, &frame, now, actions).unwrap();
                count = actions.iter().filter(|it| matches!(it, Action::State { .. })).count();
            });
            prop_assert!(count <= 12, "{count} changes of state for a message");
            net.run(Duration::from_micros(gap));
        }
        prop_assert!(net.bridges.iter().all(|bridge| bridge.view().unsettled == 0));
    }
}
