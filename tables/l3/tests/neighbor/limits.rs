//! Scans and floods: memory stays bounded, and whoever is in use stays.
use super::rig::*;
use artery_l3::neighbor::arp::ArpProtocol;
use artery_l3::neighbor::nd::NdProtocol;
use artery_l3::neighbor::{
    Happened, Kind, L2Engine, Limit, Link, NeighborLimits, NeighborUpdateKind, NudSettings, PortChange,
};

const LIVE: std::ops::Range<u32> = 0..50;

fn limits(entries: usize) -> NeighborLimits {
    NeighborLimits { entries, ..NeighborLimits::default() }
}
/// No bound but the number of entries.
fn hurried(entries: usize) -> NeighborLimits {
    NeighborLimits { entries, per_second: 1_000_000_000, burst: 1_000_000_000 }
}

/// A table whose first neighbors are there and in use.
fn with_live(limits: NeighborLimits) -> Rig<u32, ArpProtocol> {
    with_live_by(ArpProtocol::default(), limits)
}

fn with_live_by(protocol: ArpProtocol, limits: NeighborLimits) -> Rig<u32, ArpProtocol> {
    let mut rig = Rig::with(protocol, limits, 1 << 18, 1 << 17);
    for n in LIVE {
        rig.there.insert(n, mac(n));
        assert_eq!(rig.send(n), Sent::To(mac(n)));
    }
    rig
}

fn assert_live(rig: &mut Rig<u32, ArpProtocol>) {
    LIVE.for_each(|n| assert_eq!(rig.send(n), Sent::To(mac(n)), "neighbor {n} at {:?}", rig.now));
}

/// Sends to addresses that no host has, at a given rate, while other neighbors are in use.
fn scan(rig: &mut Rig<u32, ArpProtocol>, targets: u32, per_second: u32) -> (usize, usize) {
    let (mut most, mut most_ids) = (0, 0);
    for n in 0..targets {
        rig.send(0x0a00_0000 + n);
        if n % (per_second / 20) == 0 {
            assert_live(rig);
            rig.run_for(ms(50));
            (most, most_ids) = (most.max(rig.table.len()), most_ids.max(rig.places.in_use()));
            (rig.asks, rig.events) = (Vec::new(), Vec::new());
        }
    }
    (most, most_ids)
}

#[test]
fn a_scan_of_a_16_on_link_asks_for_a_thousand_a_second_and_leaves_live_neighbors_alone() {
    let mut rig = with_live(NeighborLimits::default());
    let (most, ids) = scan(&mut rig, 1 << 16, 10_000);
    assert!(most == ids && most < 9000, "{most}");
    let counters = rig.table.counters();
    assert!((6500..=8500).contains(&(65_536 + 50 - counters.over_rate)), "{counters:?}");
    assert_eq!((counters.over_entries, counters.over_total, counters.pushed_out), (0, 0, 0));
    rig.run_for(secs(60));
    assert_eq!(rig.table.len(), LIVE.len());
}

#[test]
fn a_scan_that_goes_on_for_lifetimes_stays_within_a_small_table_and_leaves_live_neighbors_alone() {
    let mut rig = with_live(hurried(200));
    let (most, ids) = scan(&mut rig, 1 << 20, 400);
    assert!(rig.now > secs(2600));
    assert_eq!((most, ids), (200, 200));
    let pushed_out = rig.table.counters().pushed_out;
    assert!(pushed_out > 1_000_000, "{pushed_out} made room for others");
    assert_live(&mut rig);
}

#[test]
fn a_fast_scan_of_a_whole_8_costs_no_memory() {
    let mut rig = with_live(NeighborLimits::default());
    for n in 0..1 << 24 {
        rig.table.resolve(0x0a00_0000 + n, secs(10));
    }
    assert_eq!(rig.table.len(), 50 + 1000, "one burst");
    rig.run_to(secs(10));
    assert_live(&mut rig);
}

#[test]
fn a_flood_of_strangers_does_not_push_out_who_is_in_use() {
    let mut rig = with_live(limits(1000));
    rig.table.set_neighbor(100, mac(100), Kind::Static, rig.now).unwrap();
    rig.table.pin_neighbor(101, rig.now).unwrap();
    for n in 0..100_000 {
        rig.hear(0x0b00_0000 + n, mac(666), NeighborUpdateKind::Solicitation);
        assert!(rig.table.len() <= 1000);
        if n % 1000 == 0 {
            assert_live(&mut rig);
            rig.run_for(ms(100));
            (rig.asks, rig.events) = (Vec::new(), Vec::new());
        }
    }
    assert_live(&mut rig);
    assert_eq!((rig.send(100), rig.link(101).is_some()), (Sent::To(mac(100)), true));
    assert!(rig.table.counters().pushed_out > 99_000);
}

#[test]
fn a_stranger_that_is_then_used_is_none_any_more() {
    let mut rig = Rig::<u32, ArpProtocol>::new(limits(10));
    rig.hear(1, mac(1), NeighborUpdateKind::Solicitation);
    assert_eq!(rig.send(1), Sent::To(mac(1)));
    (10..100).for_each(|n| rig.hear(n, mac(n), NeighborUpdateKind::Solicitation));
    assert_eq!(rig.send(1), Sent::To(mac(1)));
    assert_eq!(rig.events_of(10).last(), Some(&Happened::PushedOut));
}

#[test]
fn who_was_never_known_goes_first_then_strangers_then_who_is_idle() {
    let mut rig = Rig::<u128, NdProtocol>::new(hurried(6));
    rig.there.extend([(1, mac(1)), (2, mac(2))]);
    rig.send(1); // will be stale and idle
    rig.run_for(secs(100));
    rig.send(2); // in use
    rig.hear(3, mac(3), NeighborUpdateKind::Solicitation);
    rig.send(4); // never answers
    rig.send(5); // nor does this one
    rig.table.pin_neighbor(6, rig.now).unwrap();
    rig.send(6);
    let mut out = Vec::new();
    for n in 10..13 {
        rig.there.insert(n, mac(n as u32));
        rig.send(n);
        let pushed_out = rig.events.iter().filter(|event| event.2 == Happened::PushedOut);
        out.extend(pushed_out.map(|event| event.1));
        rig.events.clear();
    }
    assert_eq!(out, [4, 5, 3]);
    rig.there.insert(13, mac(13));
    assert_eq!(rig.send(13), Sent::To(mac(13)));
    assert_eq!(rig.events_of(1).last(), Some(&Happened::PushedOut));
    assert_eq!(rig.send(2), Sent::To(mac(2)));
    // All that are left are in use, or pinned.
    assert_eq!(rig.send(14), Sent::Dropped(Limit::Entries));
    assert_eq!(rig.table.counters().over_entries, 1);
    assert_eq!(rig.table.set_neighbor(15, mac(15), Kind::Static, rig.now), Err(Limit::Entries));
    assert_eq!(rig.table.pin_neighbor(15, rig.now), Err(Limit::Entries));
}

#[test]
fn a_stale_neighbor_that_was_used_a_moment_ago_is_not_idle() {
    let mut rig = Rig::<u128, NdProtocol>::new(hurried(2));
    rig.there.extend([(1, mac(1)), (2, mac(2)), (3, mac(3))]);
    rig.send(1);
    rig.send(2);
    rig.run_for(secs(100));
    assert_eq!(rig.send(1), Sent::To(mac(1)));
    assert_eq!(rig.send(3), Sent::To(mac(3)));
    assert_eq!((rig.send(1), rig.link(2)), (Sent::To(mac(1)), None));
}

#[test]
fn a_full_table_finds_out_who_has_fallen_silent() {
    // Reachable for long, but only some are used.
    let settings = NudSettings { reachable: secs(2400), ..NudSettings::arp() };
    let mut rig = with_live_by(ArpProtocol { settings }, hurried(1000));
    for n in 100..1050 {
        rig.there.insert(n, mac(n));
        assert_eq!(rig.send(n), Sent::To(mac(n)));
    }
    rig.there.insert(2000, mac(2000));
    assert_eq!(rig.send(2000), Sent::Dropped(Limit::Entries));
    while rig.send(2000) != Sent::To(mac(2000)) {
        assert!(rig.now < secs(15), "someone should have made room");
        rig.run_for(ms(100));
        assert_live(&mut rig);
    }
    // Those who are used are soon left alone again.
    rig.run_for(secs(2));
    assert_live(&mut rig);
    rig.run_for(secs(2));
    assert!(LIVE.into_iter().all(|n| !rig.link(n).unwrap().wants_report()));
}

#[test]
fn tables_of_one_router_share_a_bound() {
    let mut rig = Rig::<u32, ArpProtocol>::with(ArpProtocol::default(), hurried(100), 200, 5);
    let mut other = artery_l3::neighbor::NeighborTable::<u128, _>::new(
        &rig.places,
        NdProtocol::default(),
        hurried(100),
        2,
    );
    (0..3).for_each(|n| assert!(other.pin_neighbor(n, secs(0)).is_ok()));
    (0..2).for_each(|n| assert!(rig.table.pin_neighbor(n, secs(0)).is_ok()));
    assert_eq!((rig.send(9), rig.table.counters().over_total), (Sent::Dropped(Limit::Total), 1));
    other.unpin_neighbor(0, secs(0));
    assert_eq!(rig.send(9), Sent::Waits);
    // One's own that were never known make room, another table's don't.
    assert_eq!((rig.send(10), rig.events_of(9)), (Sent::Waits, vec![Happened::PushedOut]));
    assert_eq!(other.pin_neighbor(0, secs(0)), Err(Limit::Total));
}

#[test]
fn next_hops_are_asked_for_whatever_the_rate() {
    let mut rig = Rig::<u32, ArpProtocol>::new(NeighborLimits { per_second: 1, burst: 1, entries: 10 });
    rig.table.pin_neighbor(1, rig.now).unwrap();
    assert_eq!((rig.send(2), rig.send(3)), (Sent::Waits, Sent::Dropped(Limit::Rate)));
    assert_eq!((rig.send(1), rig.table.counters().over_rate), (Sent::Waits, 1));
}

#[test]
fn polls_do_what_is_due_in_pieces() {
    let mut rig = Rig::<u32, ArpProtocol>::new(hurried(1 << 17));
    (0..65_536).for_each(|n| assert_eq!(rig.send(n), Sent::Waits));
    rig.asks.clear();
    let mut polls = 0;
    while rig.table.poll(secs(1)) == Some(secs(1)) {
        let mut actions = Vec::new();
        rig.table.drain_actions(&mut actions);
        assert!(actions.len() <= 256, "{} in one poll", actions.len());
        polls += 1;
    }
    assert!((255..=257).contains(&polls), "{polls}");
    assert_eq!(rig.table.counters().asked, 2 * 65_536);
}

/// A table of many neighbors, all known and none used since, and one static.
fn with_many(count: u32) -> Rig<u32, ArpProtocol> {
    let mut rig = Rig::new(hurried(1 << 17));
    for n in 0..count {
        rig.there.insert(n, mac(n));
        assert_eq!(rig.send(n), Sent::To(mac(n)));
    }
    rig.table.set_neighbor(count, mac(count), Kind::Static, rig.now).unwrap();
    rig.carry_out();
    (rig.asks, rig.events) = (Vec::new(), Vec::new());
    rig
}

#[test]
fn a_flush_of_many_is_seen_at_once_and_tidied_up_bit_by_bit() {
    let mut rig = with_many(3000);
    rig.table.pin_neighbor(2999, rig.now).unwrap();
    let ids: Vec<_> = rig.table.entries(rig.now).iter().map(|view| view.id).collect();
    assert_eq!(rig.table.flush_neighbors(rig.now), 3000);
    let known = ids.iter().filter(|id| rig.links.get(**id) != Link::UNKNOWN).count();
    let listed: Vec<u32> = rig.table.entries(rig.now).iter().map(|view| view.address).collect();
    assert_eq!((known, listed, rig.table.flush_neighbors(rig.now)), (1, vec![2999, 3000], 0));
    // Whatever is done to one of them finds nothing known of it, whether it was tidied up or not.
    for n in 0..3000 {
        match n % 6 {
            0 => assert_eq!(rig.send(n), Sent::To(mac(n))),
            1 => assert!(!rig.table.delete_neighbor(n, rig.now)),
            2 => rig.table.learn_neighbor(n, heard(mac(n), NeighborUpdateKind::Unsolicited), false, rig.now),
            3 => rig.table.confirm_neighbor(n, rig.now),
            4 => assert!(rig.table.pin_neighbor(n, rig.now).is_ok()),
            _ => assert!(rig.table.find_neighbor(n, rig.now).is_none_or(|view| view.state == "NONE")),
        }
    }
    let mut polls = 0;
    while rig.table.poll(rig.now) == Some(rig.now) {
        polls += 1;
    }
    rig.carry_out();
    assert!(polls <= 2, "most were tidied up when they were met: {polls}");
    assert_eq!((rig.table.len(), rig.places.in_use()), (1002, 1002), "500 known, 501 pinned, one static");
    let count_of = |what| rig.events.iter().filter(|event| event.2 == what).count();
    assert_eq!((count_of(Happened::Deleted), rig.table.counters().deleted), (3000, 3000));
    assert_eq!((rig.link(0), rig.link(3000)), (Some(Link::ready(mac(0))), Some(Link::ready(mac(3000)))));
}

#[test]
fn a_port_that_comes_back_at_once_brings_back_no_neighbor_but_static_ones() {
    let mut rig = with_many(3000);
    rig.table.port_changed(PortChange::Down, rig.now);
    assert!((0..=3000).all(|n| rig.link(n).is_none_or(|link| link == Link::UNKNOWN)));
    rig.table.port_changed(PortChange::Up, rig.now);
    rig.run_for(ms(1));
    assert_eq!((rig.table.len(), rig.events.len()), (1, 3000));
    assert_eq!(rig.link(3000), Some(Link::ready(mac(3000))));
}

#[test]
fn a_doomed_neighbor_whose_timer_is_due_or_that_makes_room_is_forgotten_once() {
    let mut rig = with_many(3000);
    rig.table.flush_neighbors(rig.now);
    rig.now = secs(5000);
    rig.run_for(ms(1));
    assert_eq!((rig.table.len(), rig.events.len(), rig.table.counters().deleted), (1, 3000, 3000));
    assert_eq!(rig.places.in_use(), 1);

    let mut rig = Rig::<u32, ArpProtocol>::new(hurried(1000));
    (0..1000).for_each(|n| rig.hear(n, mac(n), NeighborUpdateKind::Solicitation));
    rig.table.flush_neighbors(rig.now);
    (2000..3000).for_each(|n| rig.hear(n, mac(n), NeighborUpdateKind::Solicitation));
    rig.run_for(secs(2));
    assert_eq!((rig.table.len(), rig.places.in_use()), (1000, 1000));
    let counters = rig.table.counters();
    assert_eq!((counters.deleted + counters.pushed_out, counters.over_entries), (1000, 0));
}

#[test]
fn polls_find_use_in_pieces() {
    let mut rig = Rig::<u32, ArpProtocol>::new(hurried(1 << 17));
    (0..5000).for_each(|n| rig.hear(n, mac(n), NeighborUpdateKind::Solicitation));
    (0..5000).filter(|n| n % 2 == 0).for_each(|n| assert_eq!(rig.send(n), Sent::To(mac(n))));
    let watched =
        |rig: &mut Rig<u32, ArpProtocol>| (0..5000).filter(|n| rig.link(*n).unwrap().wants_report()).count();
    assert_eq!(watched(&mut rig), 5000);
    let mut before = 5000;
    while rig.table.poll(secs(1)) == Some(secs(1)) {
        let left = watched(&mut rig);
        assert!(before - left <= 256, "{} in one poll", before - left);
        before = left;
    }
    assert_eq!(watched(&mut rig), 2500);
}
