//! Cables and bridges that fail and come back.

use super::net::{Net, millis, random_net, seconds};
use super::oracle::check;
use artery_l2::stp::{PortState, Settings, Version};
use artery_wire::Random;
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
    assert_eq!(flushed, [0, 1, 2, 3], "all paths have changed");
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
    // Both still forward on the dead links; neither bridge can know better.
    net.circles = Some(0);
    net.run(seconds(3));
    assert_eq!(net.bridges[1].view().root.id, net.bridges[1].view().id);
    assert_eq!(net.bridges[2].view().root.id, net.bridges[1].view().id);
}

#[test]
fn a_link_that_is_deaf_on_one_side_makes_no_circle() {
    // The bridge that receives nothing takes its port for designated. The other sees that it learns, and
    // keeps off.
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

/// What a network is like.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// Whether some cables have three or four ends.
    shared: bool,
    /// How many bridges in a hundred speak the protocol of 1998.
    old: u8,
    /// How many times slower than usual its cables are.
    slow: u32,
}

/// A network in which faults happen at random times. There is never a circle, and a tree in the end.
fn harm(seed: u64, kind: Kind) {
    let mut random = Random::new(seed);
    let mut net = random_net(&mut random, kind.shared);
    net.cables.iter_mut().for_each(|cable| cable.delay *= kind.slow);
    for bridge in 0..net.bridges.len() {
        if random.percent(kind.old) {
            let settings = Settings { version: Version::Stp, ..*net.bridges[bridge].settings() };
            net.act(bridge, |it, now, actions| it.set_settings(settings, now, actions).unwrap());
        }
    }
    net.all_up();
    net.run(seconds(3));
    let has_timers = kind.shared || kind.old > 0;
    for _ in 0..20 {
        let cable = random.below(net.cables.len() as u64) as usize;
        match net.cables[cable].is_up {
            _ if random.percent(10) => net.fail(random.below(net.bridges.len() as u64) as usize),
            true => net.down(cable),
            false => net.up(cable),
        }
        net.run(Duration::from_micros(random.below(if has_timers { 30_000_000 } else { 4_000_000 })));
    }
    net.run(seconds(if has_timers { 200 } else { 60 }));
    check(&net, &format!("seed {seed}, {kind:?}"));
}

/// Networks of each kind: more by the variable `ARTERY_STP_SEEDS`.
fn seeds() -> u64 {
    std::env::var("ARTERY_STP_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

#[test]
fn random_faults_at_random_times_never_make_a_circle() {
    let usual = Kind { shared: false, old: 0, slow: 1 };
    for kind in [usual, Kind { slow: 10, ..usual }, Kind { shared: true, ..usual }] {
        (0..seeds()).for_each(|seed| harm(seed, kind));
    }
}

#[test]
fn nor_do_they_where_old_bridges_are() {
    let old = Kind { shared: false, old: 100, slow: 1 };
    for kind in [old, Kind { old: 50, ..old }, Kind { old: 50, shared: true, ..old }] {
        (0..seeds()).for_each(|seed| harm(seed, kind));
    }
    // The old root port has to close although the new one was open already.
    harm(2203, Kind { old: 50, ..old });
}
