//! Groups as they are learned, against a list of all reports.
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const VLAN: u16 = 1;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(1_000_000 + seconds)
}

fn key(vlan: u16, group: &str) -> GroupKey {
    GroupKey { vlan, group: group.parse().unwrap() }
}

fn asking(address: &str) -> Orders {
    let own_ipv6 = Some("fe80::5".parse().unwrap());
    Orders { querier: Some(address.parse().unwrap()), vlans: vec![VLAN], own_ipv6 }
}

fn ask(groups: &mut Groups, port: u16, source: &str, seconds: u64) {
    let message = Membership::Query { source: source.parse().unwrap(), group: None };
    groups.snoop_message((port, VLAN), message, false, at(seconds));
}

/// Queries sent in a second, in words.
fn asked(groups: &mut Groups, orders: &Orders, seconds: u64) -> String {
    let words = groups.tick(orders, at(seconds)).into_iter().map(|query| {
        let group = query.group.map_or("all".to_string(), |group| group.to_string());
        format!("{} {} {group}", query.vlan, query.source)
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Where members are known, by VLAN and family.
fn known(groups: &Groups) -> Vec<(u16, bool)> {
    let mut known: Vec<_> = groups.view().realms.keys().map(|realm| (realm.vlan, realm.is_ipv6)).collect();
    known.sort_unstable();
    known
}

#[test]
fn members_are_known_once_all_had_the_time_to_answer_and_as_long_as_somebody_asks() {
    let (mut groups, nobody) = (Groups::default(), Orders::default());
    ask(&mut groups, 3, "0.0.0.0", 0);
    assert!(groups.realms.is_empty(), "a sender without an address is not a router");
    ask(&mut groups, 3, "10.0.0.1", 0);
    for (seconds, is_known) in [(0, false), (9, false), (10, true), (255, false), (256, false)] {
        assert_eq!(asked(&mut groups, &nobody, seconds), "");
        assert_eq!(known(&groups), if is_known { vec![(VLAN, false)] } else { vec![] }, "{seconds}");
    }
    assert!(groups.realms.is_empty());
    ask(&mut groups, 3, "fe80::1", 300);
    asked(&mut groups, &nobody, 310);
    assert_eq!(known(&groups), [(VLAN, true)]);
    assert_eq!(groups.list_routers(at(310)), [(VLAN, true, 3, 245)]);
}

#[test]
fn the_switch_asks_twice_at_first_then_every_two_minutes_unless_somebody_with_a_lower_address_does() {
    let (mut groups, orders) = (Groups::default(), asking("10.0.0.5"));
    let both = "1 10.0.0.5 all, 1 fe80::5 all";
    let times: Vec<u64> = (0..320).filter(|second| asked(&mut groups, &orders, *second) == both).collect();
    assert_eq!(times, [0, 31, 62, 187, 312]);
    assert_eq!(known(&groups), [(VLAN, false), (VLAN, true)]);
    ask(&mut groups, 2, "10.0.0.9", 320);
    ask(&mut groups, 2, "fe80::1", 320);
    assert_eq!(asked(&mut groups, &orders, 437), "1 10.0.0.5 all", "the lower address asks");
    ask(&mut groups, 2, "10.0.0.1", 440);
    assert_eq!(asked(&mut groups, &orders, 562), "");
    assert_eq!(asked(&mut groups, &orders, 800), both, "the others are gone");
    groups.restart_queries();
    assert_eq!(asked(&mut groups, &asking("10.0.0.6"), 801), "1 10.0.0.6 all, 1 fe80::5 all");
}

#[test]
fn whoever_is_left_in_a_group_is_asked_before_it_ends() {
    let (mut groups, orders) = (Groups::default(), asking("10.0.0.5"));
    asked(&mut groups, &orders, 0);
    let group = key(VLAN, "239.1.1.1");
    groups.join_group(group, 1, at(1));
    groups.join_group(group, 2, at(1));
    groups.leave_group(group, 1, false, at(5));
    assert_eq!(asked(&mut groups, &orders, 5), "1 10.0.0.5 239.1.1.1");
    assert_eq!(asked(&mut groups, &orders, 6), "1 10.0.0.5 239.1.1.1");
    assert_eq!(asked(&mut groups, &orders, 7), "");
    assert_eq!(groups.list_members(at(7)), [(group, 2, 254)]);
    // A member answers.
    groups.leave_group(group, 2, false, at(10));
    groups.join_group(group, 2, at(11));
    asked(&mut groups, &orders, 13);
    assert_eq!(groups.list_members(at(13)), [(group, 2, 258)]);
    groups.leave_group(group, 2, true, at(14));
    assert_eq!((groups.list_members(at(14)), groups.members.len()), (vec![], 0));
    // No query is sent for a group without members.
    groups.leave_group(group, 2, false, at(15));
    assert_eq!(asked(&mut groups, &orders, 16), "");
}

#[test]
fn when_ways_have_changed_frames_go_to_all_until_hosts_have_answered() {
    let (mut groups, nobody) = (Groups::default(), Orders::default());
    ask(&mut groups, 3, "10.0.0.1", 0);
    asked(&mut groups, &nobody, 10);
    groups.mark_changed();
    assert_eq!(asked(&mut groups, &nobody, 11), "1 0.0.0.0 all");
    assert_eq!(known(&groups), []);
    assert_eq!(asked(&mut groups, &nobody, 21), "");
    assert_eq!(known(&groups), [(VLAN, false)]);
}

#[test]
fn there_is_an_end_to_groups_and_to_what_is_asked() {
    let (mut groups, orders) = (Groups::default(), asking("10.0.0.5"));
    let one = |n: u32| GroupKey { vlan: VLAN, group: IpAddr::V4(Ipv4Addr::from(0xef01_0000 + n)) };
    for n in 0..MOST_GROUPS as u32 {
        assert!(groups.join_group(one(n), 1, at(0)));
    }
    assert!(!groups.join_group(one(MOST_GROUPS as u32), 1, at(0)) && groups.view().is_full);
    assert!(groups.join_group(one(7), 2, at(0)), "one that is known has room");
    asked(&mut groups, &orders, 0);
    for n in 0..MOST_GROUPS as u32 {
        groups.leave_group(one(n), 1, false, at(1));
    }
    assert_eq!(groups.tick(&orders, at(1)).len(), 256);
    asked(&mut groups, &orders, 3);
    assert_eq!(groups.list_members(at(3)), [(one(7), 2, 257)]);
}

#[test]
fn what_changes_quickly_is_shown_a_hundred_times_a_second_at_most() {
    let mut groups = Groups::default();
    let time = |n: u64| at(0) + Duration::from_millis(n);
    let shown = (0..1000).filter(|n| {
        let group = key(VLAN, "239.1.1.1");
        if n % 2 == 0 {
            assert!(groups.join_group(group, 1, time(*n)))
        } else {
            groups.leave_group(group, 1, true, time(*n))
        }
        groups.changed_view(time(*n)).is_some()
    });
    assert_eq!(shown.count(), 100);
    groups.join_group(key(VLAN, "239.1.1.2"), 1, time(1000));
    assert!(groups.changed_view(time(1000)).is_some(), "once is enough");
    assert!(groups.changed_view(time(2000)).is_none(), "once is enough");
}

#[test]
fn groups_of_the_link_itself_are_not_kept() {
    let mut groups = Groups::default();
    for group in ["224.0.0.251", "ff02::fb", "ff01::1"] {
        let report = artery_wire::membership::Reports::One(Some((group.parse().unwrap(), true)));
        groups.snoop_message((1, VLAN), Membership::Report(report), false, at(0));
    }
    assert!(groups.members.is_empty());
    assert!(!is_for_all("239.0.0.1".parse().unwrap()) && !is_for_all("ff05::1".parse().unwrap()));
}

#[derive(Clone, Debug)]
enum Event {
    Join(GroupKey, u16),
    Leave(GroupKey, u16, bool),
    Wait(u64),
    Forget(u16),
}

fn event() -> impl Strategy<Value = Event> {
    let group = (1..3_u16, 0..4_usize)
        .prop_map(|(vlan, n)| key(vlan, ["239.1.1.1", "239.1.1.2", "ff05::1", "ff0e::1"][n]));
    prop_oneof![
        4 => (group.clone(), 0..4_u16).prop_map(|(group, port)| Event::Join(group, port)),
        2 => (group, 0..4_u16, any::<bool>()).prop_map(|(group, port, fast)| Event::Leave(group, port, fast)),
        2 => prop_oneof![1..4_u64, 1..300_u64].prop_map(Event::Wait),
        1 => (0..4_u16).prop_map(Event::Forget),
    ]
}

proptest! {
    #[test]
    fn members_are_those_who_said_so_last(events in prop::collection::vec(event(), 0..60)) {
        let (mut groups, orders) = (Groups::default(), asking("10.0.0.5"));
        let mut model: BTreeMap<(GroupKey, u16), u64> = BTreeMap::new();
        let mut now = 0;
        for event in events {
            match event {
                Event::Join(key, port) => {
                    prop_assert!(groups.join_group(key, port, at(now)));
                    model.insert((key, port), now + 260);
                }
                Event::Leave(key, port, is_fast) => {
                    groups.leave_group(key, port, is_fast, at(now));
                    if is_fast {
                        model.remove(&(key, port));
                    } else if let Some(until) = model.get_mut(&(key, port)) {
                        *until = (*until).min(now + 2);
                    }
                }
                Event::Wait(seconds) => {
                    now += seconds;
                    groups.tick(&orders, at(now));
                    model.retain(|_, until| *until > now);
                }
                Event::Forget(port) => {
                    groups.forget_port(port);
                    model.retain(|(_, of), _| *of != port);
                }
            }
            let expected: Vec<_> =
                model.iter().map(|((key, port), until)| (*key, *port, until - now)).collect();
            prop_assert_eq!(groups.list_members(at(now)), expected);
            let view = groups.view();
            for (key, ports) in &view.members {
                prop_assert!(
                    !ports.is_empty() && ports.iter().all(|port| model.contains_key(&(*key, *port)))
                );
            }
        }
    }
}
