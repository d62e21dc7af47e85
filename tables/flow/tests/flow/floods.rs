//! What floods of flows and keys made to collide can and cannot do.
use super::rig::*;
use artery_flow::{Flow4, FlowKey, FlowLimits, FlowSettings, FlowTable, Full, Seed};
use artery_storage::Pages;

#[test]
fn a_flood_leaves_known_flows_their_places_and_memory_its_bounds() {
    let mut table = table::<Flow4>(20_000, 1000);
    let known: Vec<_> = (0..5000).map(|n| establish(&mut table, n, at(0)).unwrap()).collect();
    for n in 0..1_000_000 {
        let (key, sight) = if n % 2 == 0 { (tcp(1 << 20 | n), SYN) } else { (udp(1 << 20 | n), DATAGRAM) };
        table.insert(&key, answer(0), &sight, at(1)).unwrap();
        assert!(table.len() <= 6000);
        if n % 64 == 0 {
            table.maintain_flows(at(1), 64);
        }
    }
    for (n, id) in known.into_iter().enumerate() {
        assert_eq!(table.find(&tcp(n as u32)), Some(id));
        assert_eq!(table.touch_flow(id, &ACK, at(1)), Some(answer(n as u32)));
    }
    let stats = table.stats();
    assert_eq!((stats.young, stats.displaced_young, stats.refused_full), (1000, 999_000, 0));
    (0..1000).for_each(|n| assert!(table.find(&tcp(1 << 20 | ((999_000 + n) & !1))).is_some()));
}

#[test]
fn a_table_full_of_proven_flows_refuses_and_counts_others() {
    let mut table = table::<Flow4>(1000, 100);
    (0..1000).for_each(|n| assert!(establish(&mut table, n, at(0)).is_ok()));
    (1000..1100).for_each(|n| assert_eq!(table.insert(&tcp(n), answer(n), &SYN, at(0)), Err(Full)));
    assert_eq!((table.len(), table.stats().refused_full), (1000, 100));
    assert!((0..1000).all(|n| table.find(&tcp(n)).is_some()));
    assert!(table.find(&tcp(0)).is_some_and(|id| table.remove(id)));
    assert!(table.insert(&tcp(5000), answer(1), &SYN, at(0)).is_ok());
    assert!(table.insert(&tcp(5001), answer(1), &SYN, at(0)).is_ok(), "the young one makes room");
    assert_eq!(table.find(&tcp(5000)), None);
}

#[test]
fn the_oldest_young_flow_makes_room_and_those_proven_meanwhile_do_not() {
    let mut table = table::<Flow4>(1000, 4);
    (0..4).for_each(|n| attempt(&mut table, n, at(0)));
    let third = table.find(&tcp(2)).unwrap();
    table.touch_flow(third, &ACK, at(0));
    let known = |table: &mut FlowTable<Flow4>| -> Vec<u32> {
        (0..12).filter(|n| table.find(&tcp(*n)).is_some()).collect()
    };
    for (n, expected) in [
        (4, vec![0, 1, 2, 3, 4]),
        (5, vec![1, 2, 3, 4, 5]),
        (6, vec![2, 3, 4, 5, 6]),
        (7, vec![2, 4, 5, 6, 7]),
        (8, vec![2, 5, 6, 7, 8]),
    ] {
        table.insert(&tcp(n), answer(n), &SYN, at(0)).unwrap();
        assert_eq!(known(&mut table), expected, "after {n}");
    }
}

#[test]
fn an_entry_that_became_anothers_is_not_taken_for_the_young_one_it_was() {
    let mut table = table::<Flow4>(1000, 4);
    let first = table.insert(&tcp(0), answer(0), &SYN, at(0)).unwrap();
    table.insert(&tcp(1), answer(1), &SYN, at(0)).unwrap();
    table.remove(first);
    assert_eq!(table.insert(&tcp(2), answer(2), &SYN, at(0)), Ok(first));
    (3..6).for_each(|n| attempt(&mut table, n, at(0)));
    assert_eq!((table.find(&tcp(1)), table.find(&tcp(2))), (None, Some(first)));
}

#[test]
fn a_flood_that_has_ended_hides_no_young_flow_that_could_make_room() {
    let mut table = table::<Flow4>(1000, 400);
    (0..300).for_each(|n| assert!(table.insert(&tcp(n), answer(n), &SYN, at(0)).is_ok()));
    go_round(&mut table, at(1000));
    assert_eq!(table.len(), 0);
    table.set_limits(FlowLimits { flows: 2, young: 2 });
    attempt(&mut table, 1000, at(1000));
    assert!(establish(&mut table, 1001, at(1000)).is_ok());
    attempt(&mut table, 1002, at(1000));
    let known: Vec<u32> = (1000..1003).filter(|n| table.find(&tcp(*n)).is_some()).collect();
    assert_eq!((known, table.stats().refused_full), (vec![1001, 1002], 0));
}

#[test]
fn lowered_limits_hold_at_once_for_new_flows_and_soon_for_young_ones() {
    let mut table = table::<Flow4>(1000, 500);
    (0..300).for_each(|n| assert!(establish(&mut table, n, at(0)).is_ok()));
    (300..600).for_each(|n| assert!(table.insert(&tcp(n), answer(n), &SYN, at(0)).is_ok()));
    table.set_limits(FlowLimits { flows: 200, young: 10 });
    go_round(&mut table, at(0));
    assert_eq!((table.len(), table.stats().young), (310, 10));
    (600..700).for_each(|n| assert!(table.insert(&tcp(n), answer(n), &SYN, at(0)).is_ok()));
    assert_eq!((table.len(), table.stats().young), (310, 10));
    table.set_limits(FlowLimits { flows: u32::MAX, young: u32::MAX });
    assert_eq!(table.limits(), FlowLimits { flows: 1000, young: 500 });
    (700..1400).for_each(|n| assert!(table.insert(&tcp(n), answer(n), &SYN, at(0)).is_ok()));
    assert_eq!((table.len(), table.stats().young), (800, 500));
}

#[test]
fn keys_that_collide_for_who_knows_the_seed_are_refused_and_hurt_nobody() {
    let seed = Seed::new([5, 6]);
    let limits = FlowLimits { flows: 10_000, young: 10_000 };
    let mut table = FlowTable::<Flow4>::new(limits, FlowSettings::default(), seed, &Pages).unwrap();
    let like = tcp(0).hash(&seed);
    let collides = |n: &u32| (tcp(*n).hash(&seed) ^ like) & 0xfff == 0;
    let keys: Vec<u32> = (0..1 << 20).filter(collides).collect();
    assert!(keys.len() > 200);
    let (placed, refused): (Vec<u32>, Vec<u32>) =
        keys.iter().partition(|n| table.insert(&tcp(**n), answer(**n), &SYN, at(0)).is_ok());
    assert_eq!((placed.len(), table.stats().refused_crowded), (60, refused.len() as u64));
    let known: Vec<u32> = (1 << 20..(1 << 20) + 3000).filter(|n| !collides(n)).collect();
    let (known, unlucky): (Vec<u32>, Vec<u32>) =
        known.iter().partition(|n| establish(&mut table, **n, at(0)).is_ok());
    assert!(unlucky.len() < 100, "{} others of 3000 have found the bucket full", unlucky.len());
    for n in placed.iter().chain(&known) {
        assert!(table.find(&tcp(*n)).is_some_and(|id| table.touch_flow(id, &ACK, at(0)) == Some(answer(*n))));
    }
    assert!(refused.iter().all(|n| table.find(&tcp(*n)).is_none()));
    placed.iter().for_each(|n| assert!(table.find(&tcp(*n)).is_some_and(|id| table.remove(id))));
    assert!(known.iter().all(|n| table.find(&tcp(*n)).is_some()));
    assert!(table.insert(&tcp(refused[0]), answer(0), &SYN, at(0)).is_ok());
}
