//! What each change of members means for new flows and for known ones.
use super::rig::{NOW, Rig, flow, flows, member, names};
use artery_flow::balance::{BalanceError, Down, MOST_MEMBERS, Members, Method, Replaced, Settings, Slots};

#[test]
fn without_members_nobody_takes_a_flow_and_no_number_means_one() {
    for method in Method::ALL {
        let mut rig = Rig::with(method, &[]);
        assert_eq!(rig.pick(flow(1), NOW), None, "{method}");
        rig.add("a 10.0.0.1 weight 0").unwrap();
        assert_eq!(rig.pick(flow(1), NOW), None, "{method}");
        rig.members.set_weight("a", 1, NOW).unwrap();
        let id = rig.pick(flow(1), NOW).unwrap();
        rig.members.remove("a", NOW).unwrap();
        assert_eq!((rig.pick(flow(1), NOW), rig.member(id)), (None, None), "{method}");
        assert!(rig.members.is_empty());
    }
}

#[test]
fn a_drained_member_keeps_its_flows_and_gets_no_more() {
    for method in Method::ALL {
        let mut rig = Rig::with(method, &[1, 1, 1]);
        let id = rig.id("m1");
        rig.members.set_weight("m1", 0, NOW).unwrap();
        assert!(names(&mut rig, &flows(1000)).iter().all(|name| name.as_deref() != Some("m1")), "{method}");
        assert_eq!(rig.member(id).unwrap().weight, 0);
        let view = rig.members.view_member("m1").unwrap();
        assert_eq!((view.takes_new, view.slots, view.is_up), (false, 0, true));
        rig.members.set_weight("m1", 5, NOW).unwrap();
        assert_eq!(rig.id("m1"), id);
    }
}

#[test]
fn a_number_never_means_another_member() {
    let mut rig = Rig::with(Method::MAGLEV, &[1]);
    let first = rig.id("m0");
    rig.members.remove("m0", NOW).unwrap();
    let second = rig.add("m0 10.0.0.1").unwrap();
    assert_eq!(first.place(), second.place());
    assert_ne!(first, second);
    assert_eq!((rig.member(first), rig.member(second).is_some()), (None, true));
}

#[test]
fn what_has_another_address_is_another_member() {
    let mut rig = Rig::with(Method::MAGLEV, &[1, 1]);
    let (old, stays) = (rig.id("m0"), rig.id("m1"));
    let list = ["m0 10.0.0.99", "m1 10.0.0.2 weight 3", "m2 10.0.0.3"];
    let list = || list.map(|text| text.parse().unwrap()).to_vec();
    let replaced = rig.members.replace_members(list(), NOW).unwrap();
    assert_eq!(replaced, Replaced { added: 2, removed: 1, changed: 1 });
    assert_eq!(rig.member(old), None);
    assert_eq!(rig.member(stays).unwrap().weight, 3);
    let generation = rig.members.generation();
    assert_eq!(rig.members.replace_members(list(), NOW), Ok(Replaced::default()));
    assert_eq!(rig.members.generation(), generation, "nothing is published where nothing changes");
}

#[test]
fn flows_of_a_member_that_is_down_move_or_stay_as_was_said() {
    for down in [Down::Moves, Down::Stays] {
        let mut rig = Rig::new(Settings { down, ..Settings::default() });
        let id = rig.add("a 10.0.0.1").unwrap();
        rig.add("b 10.0.0.2").unwrap();
        rig.set_up("a", false);
        assert!(names(&mut rig, &flows(100)).iter().all(|name| name.as_deref() == Some("b")));
        assert_eq!(rig.member(id).is_some(), down == Down::Stays);
        assert_eq!(rig.named("a").is_some(), down == Down::Stays);
        rig.set_up("a", true);
        assert!(rig.member(id).is_some(), "it is still the same");
    }
}

#[test]
fn when_all_are_down_all_are_used_unless_that_is_not_wanted() {
    for method in Method::ALL {
        for fails_open in [true, false] {
            let mut rig = Rig::new(Settings { method, fails_open, starts_up: false, ..Settings::default() });
            let id = rig.add("a 10.0.0.1").unwrap();
            rig.add("b 10.0.0.2").unwrap();
            assert_eq!(rig.pick(flow(1), NOW).is_some(), fails_open, "{method}");
            assert_eq!(rig.member(id).is_some(), fails_open);
            rig.set_up("b", true);
            assert_eq!(rig.name(flow(1), NOW).as_deref(), Some("b"));
            assert_eq!(rig.member(id), None);
        }
    }
}

#[test]
fn a_drained_member_that_is_up_does_not_keep_the_rest_from_failing_open() {
    let mut rig = Rig::with(Method::MAGLEV, &[0, 1]);
    rig.set_up("m1", false);
    assert_eq!(rig.name(flow(1), NOW).as_deref(), Some("m1"));
    rig.members.set_weight("m1", 0, NOW).unwrap();
    assert_eq!(rig.name(flow(1), NOW), None);
}

#[test]
fn machines_with_the_same_members_agree_whatever_their_history() {
    for method in [Method::MAGLEV, Method::Hash, Method::Xor] {
        let mut one = Rig::with(method, &[1, 2, 3, 4]);
        let mut other = Rig::with(method, &[]);
        for text in
            ["x 10.9.9.9", "m3 10.0.0.4 weight 4", "m2 10.0.0.3", "m0 10.0.0.1", "m1 10.0.0.2 weight 2"]
        {
            other.add(text).unwrap();
        }
        other.members.remove("x", NOW).unwrap();
        other.members.set_weight("m2", 3, NOW).unwrap();
        let flows = flows(10_000);
        assert_eq!(names(&mut one, &flows), names(&mut other, &flows), "{method}");
    }
}

#[test]
fn the_members_of_a_configuration_make_one_choice() {
    let with = |method, list| {
        let rig = Rig::with(method, &[]);
        Members::new(&rig.domain, Settings { method, ..Settings::default() }).unwrap().with_members(list)
    };
    for method in Method::ALL {
        let list: Vec<_> = (0..50).map(|n| member(n, 1 + n as u32 % 3)).collect();
        let mut rig = Rig::with(method, &[]);
        let generation = rig.members.generation();
        rig.members.replace_members(list.clone(), NOW).unwrap();
        let members = with(method, list).unwrap();
        let slots = |members: &Members| members.view_members().map(|view| view.slots).collect::<Vec<_>>();
        assert_eq!(slots(&members), slots(&rig.members), "{method}");
        assert_eq!((members.generation(), rig.members.generation()), (1, generation + 1));
    }
    let list = vec![member(5, 1), member(6, 1), member(5, 1)];
    let error = with(Method::MAGLEV, list).err();
    assert_eq!(error, Some((2, BalanceError::Exists("m5".to_string()))));
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut rig = Rig::with(Method::MAGLEV, &[1, 1]);
    let (generation, living) = (rig.members.generation(), rig.living());
    let no_such = |name: &str| BalanceError::NoSuchMember(name.to_string());
    assert_eq!(rig.add("m0 10.0.0.9"), Err(BalanceError::Exists("m0".to_string())));
    assert_eq!(rig.members.remove("m9", NOW), Err(no_such("m9")));
    assert_eq!(rig.members.set_weight("m9", 1, NOW), Err(no_such("m9")));
    rig.set_up("m9", false);
    assert!(matches!(rig.add("b 0.0.0.0"), Err(BalanceError::NoHost { .. })));
    let twice = vec![member(5, 1), member(6, 1), member(5, 1)];
    assert_eq!(rig.members.replace_members(twice, NOW), Err(BalanceError::Exists("m5".to_string())));
    let many = (0..=MOST_MEMBERS).map(|n| member(n, 1)).collect();
    assert_eq!(rig.members.replace_members(many, NOW), Err(BalanceError::TooMany(MOST_MEMBERS + 1)));
    let mut set = |method| rig.members.update_settings(Settings { method, ..Settings::default() }, NOW);
    let few = Method::Maglev(Slots::new(2).unwrap());
    set(few).unwrap();
    set(Method::MAGLEV).unwrap();
    let buckets = |buckets| Method::Resilient { buckets, idle: NOW, force: None };
    assert_eq!(set(buckets(1)), Err(BalanceError::TooFewSlots { members: 2, slots: 1 }));
    assert_eq!(set(buckets(0)), Err(BalanceError::Buckets(0)));
    assert_eq!(set(buckets(1 << 17)), Err(BalanceError::Buckets(1 << 17)));
    assert_eq!(set(Method::Flowlet { gap: NOW }), Err(BalanceError::Gap(NOW)));
    assert_eq!((rig.members.generation(), rig.living()), (generation + 2, living));
}

#[test]
fn a_small_table_has_room_for_as_many_members_as_slots() {
    let mut rig = Rig::with(Method::Maglev(Slots::new(3).unwrap()), &[1, 1, 1]);
    assert!(rig.members.view_members().all(|view| view.slots == 1));
    assert_eq!(rig.add("more 10.0.0.9"), Err(BalanceError::TooFewSlots { members: 4, slots: 3 }));
}

#[test]
fn errors_say_what_is_wrong_and_what_to_do() {
    let said = [
        (BalanceError::Exists("a".into()), "member a: File exists, there is one of this name; "),
        (BalanceError::NoSuchMember("a".into()), "member a: no such member; "),
        (BalanceError::Name("a b".into()), "member \"a b\": not a name; take "),
        (BalanceError::TooMany(5000), "5000 members: there can be 4096; "),
        (BalanceError::TooFewSlots { members: 9, slots: 7 }, "9 members on 7 slots: "),
        (BalanceError::Buckets(0), "0 buckets: there can be 1 to 65536; "),
        (BalanceError::Gap(NOW), "gap 1000s: it can be up to 60s; "),
    ];
    for (error, beginning) in said {
        assert!(error.to_string().starts_with(beginning), "{error}");
    }
}

#[test]
fn a_guess_is_who_a_new_flow_would_get_by_its_hash_and_changes_nothing() {
    let methods = [Method::Maglev(Slots::DEFAULT), Method::Hash, Method::Xor, Method::RESILIENT];
    for method in methods {
        let mut rig = Rig::with(method, &[1, 2, 0, 3]);
        for flow in flows(500) {
            let guess = rig.guess(flow, NOW);
            assert_eq!((guess.is_some(), rig.pick(flow, NOW)), (true, guess), "{method}");
        }
    }
    for method in Method::ALL {
        let [mut one, mut other] = [Rig::with(method, &[1, 2, 0, 3]), Rig::with(method, &[1, 2, 0, 3])];
        for flow in flows(500) {
            let guesses = [0, 0].map(|_| one.guess(flow, NOW));
            assert_eq!(guesses[0], guesses[1], "{method}");
            assert!(guesses[0].is_some_and(|id| id != one.id("m2")), "who takes no new flows has few");
            assert_eq!(one.pick(flow, NOW), other.pick(flow, NOW), "{method}");
        }
        assert_eq!(Rig::with(method, &[0, 0]).guess(flow(1), NOW), None, "{method}");
    }
}

#[test]
fn a_guess_at_a_flowlet_is_its_member_until_it_falls_silent() {
    let gap = std::time::Duration::from_micros(500);
    let mut rig = Rig::with(Method::Flowlet { gap }, &[1; 7]);
    for flow in flows(100) {
        let member = rig.pick(flow, NOW);
        assert_eq!(rig.guess(flow, NOW + gap / 2), member);
    }
}

#[test]
fn members_are_known_by_where_they_are_as_long_as_flows_can_have_them() {
    let mut rig = Rig::new(Settings::default());
    let has = |rig: &mut Rig, at: [u8; 4], port| rig.has_member_at(at.into(), port, Some(80));
    rig.add("a 10.0.0.1").unwrap();
    rig.add("b 10.0.0.1:8080").unwrap();
    rig.add("c 10.0.0.2 weight 0").unwrap();
    assert!(has(&mut rig, [10, 0, 0, 1], 80) && has(&mut rig, [10, 0, 0, 1], 8080));
    assert!(has(&mut rig, [10, 0, 0, 2], 80) && !has(&mut rig, [10, 0, 0, 2], 8080));
    rig.members.remove("a", NOW).unwrap();
    assert!(!has(&mut rig, [10, 0, 0, 1], 80) && has(&mut rig, [10, 0, 0, 1], 8080));
    rig.set_up("b", false);
    rig.add("d 10.0.0.4").unwrap();
    assert!(!has(&mut rig, [10, 0, 0, 1], 8080) && has(&mut rig, [10, 0, 0, 4], 80));
}

#[test]
fn what_the_table_has_for_a_flow_is_what_a_new_one_gets_where_the_method_is_pure() {
    for method in Method::ALL.into_iter().filter(|method| method.is_pure()) {
        for weights in [&[][..], &[1], &[1, 2, 0, 3]] {
            let mut rig = Rig::with(method, weights);
            assert!((0..500).all(|n| rig.table_member(flow(n)) == rig.pick(flow(n), NOW)), "{method}");
        }
    }
}

#[test]
fn digests_of_tables_are_the_same_if_every_slot_has_the_same_member() {
    let slots = |count| Method::Maglev(Slots::new(count).unwrap());
    let digest = |method, weights: &[u32]| Rig::with(method, weights).digest();
    // Others have these, too: a change here has machines differ when half of them are updated.
    let known = [Method::MAGLEV, slots(251), Method::Hash, Method::Xor].map(|m| digest(m, &[1, 2]).unwrap());
    let expected =
        [0x4eb0_2fe6_764f_5fe0, 0x1d06_3969_5d12_65d8, 0x1c80_5aae_e3c8_69cf, 0xced6_61d9_185e_4e81];
    assert_eq!(known, expected);
    // Twice the weights are the same shares of as many slots.
    assert_eq!(digest(Method::MAGLEV, &[2, 4]), Some(known[0]));
    let mut all: Vec<u64> = known.to_vec();
    for method in [Method::MAGLEV, slots(251), Method::Hash, Method::Xor] {
        for weights in [&[][..], &[0], &[1], &[2, 1], &[0, 1], &[1, 1, 1], &[1, 0, 1]] {
            all.push(digest(method, weights).unwrap());
        }
    }
    all.sort_unstable();
    all.dedup();
    // Tables without slots are the same, of both sizes of maglev, too.
    assert_eq!(all.len(), 4 + 4 * 5 + 3);
    assert_ne!(digest(Method::Xor, &[1, 100]), digest(Method::Xor, &[1, 101]));
    let others = Method::ALL.into_iter().filter(|method| !method.is_pure());
    others.for_each(|method| assert_eq!(digest(method, &[1, 2]), None, "{method}"));
}

#[test]
fn two_members_that_change_places_in_the_table_change_its_digest() {
    let mut rig = Rig::new(Settings { method: Method::Hash, ..Settings::default() });
    rig.add("a 10.0.0.1").unwrap();
    rig.add("b 10.0.0.2").unwrap();
    let mut other = Rig::new(Settings { method: Method::Hash, ..Settings::default() });
    other.add("a 10.0.0.1").unwrap();
    let of_one = other.digest();
    other.add("c 10.0.0.2").unwrap();
    assert_ne!(rig.digest(), other.digest());
    // Addresses and places don't matter.
    other.members.remove("c", NOW).unwrap();
    assert_eq!(other.digest(), of_one);
    other.members.remove("a", NOW).unwrap();
    other.add("b 10.9.0.2").unwrap();
    other.add("a 10.9.0.1").unwrap();
    assert_eq!(rig.digest(), other.digest());
}
