//! Cables and bridges that fail and come back.

use crate::net::{Net, millis, random_net, seconds};
use crate::oracle::check;
use artery_table::stp::{PortState, Settings, Version};
use artery_table::synthetic::Random;
use std::time::Duration;

#[test]
fn a_cut_in_a_ring_is_healed_at_once_and_addresses_are_forgotten() {
    let mut net = Net::of(4, Settings::default());
    (0..4).for_each(|at| _ = net.cable(&[at, (at + 1) % 4], millis(1)));
    net.all_up();
    net.run(seconds(10));
    net.flushes.clear();
    net.down(0);
    net.run(millis(50));
    assert!(net.is_whole(), "{}", net.describe());
    let mut flushed: Vec<usize> = net.flushes.iter().map(|(_, end)| end.0).collect();
    flushed.sort();
    flushed.dedup();
    assert_eq!(flushed, [0, 1, 2, 3], "everybody's way to somebody has changed");
    net.run(seconds(3));
    check(&net, "cut");

    net.up(0);
    net.run(seconds(1));
    assert!(net.is_whole());
    net.run(seconds(2));
    check(&net, "healed");
}

#[test]
fn cables_that_fail_and_come_back_leave_a_tree() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut net = random_net(&mut random, false);
        net.all_up();
        net.run(seconds(10));
        for step in 0..10 {
            let cable = random.below(net.cables.len() as u64) as usize;
            if net.cables[cable].is_up {
                net.down(cable)
            } else {
                net.up(cable)
            }
            net.run(seconds(40));
            check(&net, &format!("seed {seed} step {step}"));
        }
    }
}

#[test]
fn another_bridge_is_the_root_when_the_root_is_gone() {
    for seed in 0..100 {
        let mut net = random_net(&mut Random::new(seed), false);
        net.all_up();
        net.run(seconds(10));
        let root = net.bridges[0].view().root.id;
        let root = net.bridges.iter().position(|it| it.view().id == root).unwrap();
        net.fail(root);
        net.run(seconds(60));
        check(&net, &format!("seed {seed}"));
    }
}

#[test]
fn a_root_that_falls_silent_is_missed_after_three_hello_times() {
    let mut net = Net::of(3, Settings::default());
    (0..3).for_each(|at| _ = net.cable(&[at, (at + 1) % 3], millis(1)));
    net.all_up();
    net.run(seconds(10));
    let root = net.bridges[0].view().id;
    net.deaf = vec![(1, 1), (2, 2)];
    net.run(seconds(4));
    assert_eq!(net.bridges[1].view().root.id, root);
    // Both still forward on the dead links; nobody can know better.
    net.circles = Some(0);
    net.run(seconds(3));
    assert_eq!(net.bridges[1].view().root.id, net.bridges[1].view().id);
    assert_eq!(net.bridges[2].view().root.id, net.bridges[1].view().id);
}

#[test]
fn a_link_that_is_deaf_on_one_side_makes_no_circle() {
    // The bridge that hears nothing takes its port for designated. The other sees that it learns, and keeps off.
    let mut net = Net::of(3, Settings::default());
    (0..3).for_each(|at| _ = net.cable(&[at, (at + 1) % 3], millis(1)));
    net.all_up();
    net.run(seconds(10));
    net.circles = Some(0);
    net.deaf = vec![(2, 1)];
    net.run(seconds(100));
    assert_eq!(net.state((1, 2)), PortState::Discarding);
    net.circles = None;
    net.run(seconds(300));
}

/// Faults at random times, and then a tree. Says how often there was a circle.
fn harm(seed: u64, shared: bool, old: u8, slow: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut net = random_net(&mut random, shared);
    for cable in &mut net.cables {
        cable.delay *= slow as u32;
    }
    for bridge in 0..net.bridges.len() {
        if random.percent(old) {
            net.act(bridge, |it, now, actions| {
                let settings = Settings { version: Version::Stp, ..*it.settings() };
                it.set(settings, now, actions).unwrap();
            });
        }
    }
    net.circles = Some(0);
    net.all_up();
    net.run(seconds(3));
    let pauses = if old > 0 || shared { 30_000_000 } else { 4_000_000 };
    for _ in 0..20 {
        let cable = random.below(net.cables.len() as u64) as usize;
        if random.percent(10) {
            net.fail(random.below(net.bridges.len() as u64) as usize);
        } else if net.cables[cable].is_up {
            net.down(cable);
        } else {
            net.up(cable);
        }
        net.run(Duration::from_micros(random.below(pauses)));
    }
    let circles = net.circles.take().unwrap_or(0);
    net.circles = Some(0);
    net.run(seconds(200));
    check(&net, &format!("seed {seed}"));
    circles + net.circles.unwrap_or(0)
}

#[test]
fn random_faults_at_random_times_never_make_a_circle() {
    let hunt = std::env::var("HUNT").ok().map_or(200, |it| it.parse().unwrap());
    for (shared, old, slow) in [(false, 0, 1), (false, 0, 10), (true, 0, 1), (false, 100, 1), (true, 50, 1), (false, 50, 1)] {
        let bad: Vec<(u64, u64)> = (0..hunt).map(|seed| (seed, harm(seed, shared, old, slow))).filter(|it| it.1 > 0).collect();
        println!("HUNT shared {shared} old {old} slow {slow}: {} bad {:?}", bad.len(), &bad[..bad.len().min(20)]);
    }
}
