//! Networks that are switched on: a tree within a second, and no circle on the way.

use super::net::{Net, millis, random_net, seconds};
use super::oracle::check;
use artery_l2::stp::{PortSettings, PortState, Settings};
use artery_wire::Random;
use std::time::Duration;

fn ring(bridges: usize) -> Net {
    let mut net = Net::of(bridges, Settings::default());
    (0..bridges).for_each(|at| _ = net.cable(&[at, (at + 1) % bridges], millis(1)));
    net
}

/// Frames reach everybody within a second. Ports that lead to no other bridge, as the other side is blocked,
/// may take more: the rate of each port is limited.
#[track_caller]
fn settle(net: &mut Net, what: &str) {
    net.all_up();
    net.run(seconds(1));
    assert!(net.is_whole(), "{what}: {}", net.describe());
    net.run(seconds(2));
    check(net, what);
}

fn blocked(net: &Net) -> usize {
    let ends = net.cables.iter().filter(|cable| cable.is_up).flat_map(|cable| &cable.ends);
    ends.filter(|end| net.state(**end) != PortState::Forwarding).count()
}

#[test]
fn a_ring_of_three_is_open_at_one_port_within_a_second() {
    let mut net = ring(3);
    net.all_up();
    net.run(millis(100));
    check(&net, "ring of three");
    assert_eq!(blocked(&net), 1);
    assert!(net.is_whole());
}

#[test]
fn rings_and_full_meshes_of_up_to_eight_converge_within_a_second() {
    for bridges in 3..=8 {
        let mut net = ring(bridges);
        settle(&mut net, "ring");

        let mut net = Net::of(bridges, Settings::default());
        for a in 0..bridges {
            (0..a).for_each(|b| _ = net.cable(&[a, b], millis(1)));
        }
        settle(&mut net, "mesh");
        assert_eq!(blocked(&net), (bridges - 1) * (bridges - 2) / 2);
    }
}

#[test]
fn random_networks_of_two_at_each_cable_converge_within_a_second() {
    for seed in 0..300 {
        let mut net = random_net(&mut Random::new(seed), false);
        settle(&mut net, &format!("seed {seed}"));
    }
}

#[test]
fn random_networks_with_shared_cables_converge_by_timers() {
    for seed in 0..100 {
        let mut net = random_net(&mut Random::new(seed), true);
        net.all_up();
        net.run(seconds(60));
        check(&net, &format!("seed {seed}"));
    }
}

#[test]
fn cables_may_come_one_after_another() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut net = random_net(&mut random, false);
        for cable in 0..net.cables.len() {
            net.up(cable);
            net.run(Duration::from_micros(random.below(3_000_000)));
        }
        net.run(seconds(3));
        check(&net, &format!("seed {seed}"));
    }
}

#[test]
fn a_port_with_hosts_alone_forwards_after_three_seconds_and_at_once_if_it_is_known() {
    let mut net = Net::of(1, Settings::default());
    let hosts = net.cable(&[0], millis(1));
    let known = net.port(0, PortSettings { edge: true, ..PortSettings::default() });
    let known = net.cable_between(vec![known], millis(1));
    // A cable of one end brings what is sent back; these two are to bring nothing.
    net.deaf = vec![(0, 1), (0, 2)];
    net.up(hosts);
    net.up(known);
    assert_eq!(net.state((0, 2)), PortState::Forwarding);
    net.run(millis(2999));
    assert_eq!(net.state((0, 1)), PortState::Discarding);
    net.run(millis(2));
    assert_eq!(net.state((0, 1)), PortState::Forwarding);
}

#[test]
fn a_quiet_network_says_one_message_a_cable_every_two_seconds() {
    let mut net = ring(4);
    net.all_up();
    net.run(seconds(10));
    let before = net.sent;
    net.run(seconds(100));
    assert_eq!(net.sent - before, 4 * 50);
}

#[test]
fn a_better_priority_moves_the_root() {
    let mut net = ring(4);
    net.all_up();
    net.run(seconds(5));
    net.act(2, |bridge, now, actions| {
        bridge.set_settings(Settings { priority: 4096, ..Settings::default() }, now, actions).unwrap();
    });
    net.run(seconds(2));
    check(&net, "a new root");
    assert_eq!(net.bridges[0].view().root.id, net.bridges[2].view().id);
}

#[test]
fn a_cost_moves_the_blocked_port() {
    let mut net = ring(3);
    net.all_up();
    net.run(seconds(5));
    net.act(1, |bridge, now, actions| {
        let settings = PortSettings { cost: Some(1_000_000), ..PortSettings::default() };
        bridge.set_port(1, settings, now, actions).unwrap();
    });
    net.run(seconds(3));
    check(&net, "a dear port");
    assert_eq!(net.state((1, 1)), PortState::Discarding);
}
