//! A full feed: how long it takes to load, and what its routes cost when a next hop dies.
use super::rig::*;
use artery_l3::PortId;
use artery_l3::next_hop::Selection;
use artery_l3::path::Outcome;
use artery_l3::router::{RouteSpec, RouterError, Target};
use artery_lpm::load::AnyPrefix;
use artery_lpm::synthetic::{FULL_FEED_V4, FULL_FEED_V6, generate_prefixes};
use artery_lpm::{Address, Prefix};
use std::time::Instant;

fn gateway(port: u16, host: u8) -> String {
    format!("10.0.{port}.{host}")
}

#[test]
fn a_next_hop_that_dies_under_a_full_feed_moves_traffic_without_a_look_at_routes() {
    let mut rig = Rig::new(4);
    // Twelve gateways, and four groups of three.
    let single = |n: u16| RouteSpec::via(ip(&gateway(n % 4, 200 + n as u8)));
    let group = |n: u8| {
        let members = (0..3).map(|port| (ip(&gateway(port, 200 + n)), 1 + u32::from(port)));
        let selection = [Selection::Hash, Selection::RESILIENT, Selection::Xor, Selection::PerPacket];
        RouteSpec::multipath(members, selection[usize::from(n)])
    };
    let specs: Vec<RouteSpec> = (0..12).map(single).chain((0..4).map(group)).collect();
    (0..3).flat_map(|port| (200..212).map(move |host| (port, host))).for_each(|(port, host)| {
        rig.know(port, &gateway(port, host), host);
    });
    let v4 = generate_prefixes::<u32>(FULL_FEED_V4, 1);
    let start = Instant::now();
    rig.tables.load_routes(&specs, v4.iter().enumerate().map(|(n, prefix)| (*prefix, n % 16)), NOW).unwrap();
    println!("{} IPv4 routes by 16 next hops loaded in {:.2?}", v4.len(), start.elapsed());
    let v6 = generate_prefixes::<u128>(FULL_FEED_V6, 1);
    let via6 = [RouteSpec::via(ip("2001:db8:1::fe")), RouteSpec::via(ip("2001:db8:2::fe"))];
    let start = Instant::now();
    rig.tables.load_routes(&via6, v6.iter().enumerate().map(|(n, prefix)| (*prefix, n % 2)), NOW).unwrap();
    println!("{} IPv6 routes by 2 next hops loaded in {:.2?}", v6.len(), start.elapsed());

    let before = rig.tables.work_done();
    let start = Instant::now();
    rig.tables.set_up(PortId(1), false, NOW).unwrap();
    let took = start.elapsed();
    let after = rig.tables.work_done();
    println!(
        "a port went down under {} routes in {took:.2?}: {after:?}, before {before:?}",
        v4.len() + v6.len()
    );
    assert_eq!(after.routes, before.routes, "routes were touched");
    // Gateways, groups and networks of the port: as many as there are, whatever the routes.
    assert!(after.groups - before.groups <= 20, "{} groups worked out", after.groups - before.groups);
    let (start, changes) = (Instant::now(), 50_000);
    for (n, to) in v4.iter().step_by(v4.len() / changes).enumerate() {
        rig.tables.replace_route(AnyPrefix::V4(*to), &specs[(n + 5) % 16], NOW).unwrap();
    }
    println!("{changes} routes replaced, each in {:.2?}", start.elapsed() / changes as u32);
    v4.iter().step_by(97).for_each(|prefix| avoids_port_1(&mut rig, prefix.first()));

    let (start, before) = (Instant::now(), rig.tables.work_done());
    rig.tables.withdraw_gateway(PortId(0), ip(&gateway(0, 200)), true);
    println!("a gateway was withdrawn in {:.2?}", start.elapsed());
    assert_eq!(rig.tables.work_done().routes, before.routes);
    assert!(rig.tables.work_done().groups - before.groups <= 2);
}

/// A packet whose only next hop is on port 1 gets the outcome of a port that is down; others
/// go by another port.
fn avoids_port_1(rig: &mut Rig, to: u32) {
    let group = rig.tables.lookup_route(to.to_ip()).unwrap().group;
    let members = rig.tables.group_view(group).unwrap().members;
    let turn = rig.turns.turn();
    let decision = rig.readers.v4.lookup_path(&turn, to, |_| to.wrapping_mul(0x9e37_79b9));
    if members.iter().all(|member| member.hop.port() == Some(PortId(1))) {
        assert_eq!((decision.outcome, decision.port), (Outcome::PortDown, PortId(1)));
    } else {
        assert_ne!(decision.port, PortId(1));
    }
}

#[test]
fn a_gateway_of_a_whole_feed_is_one_neighbor() {
    let mut rig = Rig::new(1);
    let specs = [RouteSpec::via(ip("10.0.0.254"))];
    rig.tables
        .load_routes(&specs, generate_prefixes::<u32>(50_000, 2).into_iter().map(|prefix| (prefix, 0)), NOW)
        .unwrap();
    let neighbors = rig.tables.neighbors::<u32>(PortId(0), NOW);
    assert_eq!(neighbors.iter().map(|n| (n.address, n.pins)).collect::<Vec<_>>(), [(0x0a00_00fe, 1)]);
    let routes = rig.tables.work_done().routes;
    rig.know(0, "10.0.0.254", 9);
    assert_eq!(rig.tables.work_done().routes, routes);
    rig.tables.load_routes::<u32>(&[], [], NOW).unwrap();
    assert!(rig.tables.neighbors::<u32>(PortId(0), NOW).iter().all(|n| n.pins == 0));
}

#[test]
fn thousands_of_groups_load_and_follow_a_gateway_that_dies() {
    let mut rig = Rig::new(3);
    // Groups of two, of which every one has another gateway on port 0.
    let group = |n: u32| {
        let first = std::net::Ipv4Addr::from_bits(0x0a00_0000 | (n / 100) << 8 | (2 + n % 100)).into();
        RouteSpec::multipath([(first, 1), (ip("10.0.200.9"), 1)], Selection::RESILIENT)
    };
    rig.address(0, "10.0.128.1", 16).unwrap();
    let specs: Vec<RouteSpec> = (300..2300).map(group).collect();
    let start = Instant::now();
    let routes = (0..2000).map(|n| (Prefix::of(0x0b00_0000 | (n as u32) << 8, 24), n));
    rig.tables.load_routes(&specs, routes, NOW).unwrap();
    println!("2000 groups of 256 buckets loaded in {:.2?}", start.elapsed());
    let gateways = |rig: &mut Rig| -> std::collections::HashSet<_> {
        let flows = (0..64u32).map(|flow| flow.wrapping_mul(0x9e37_79b9));
        let explained: Vec<_> = flows.map(|flow| rig.explain("11.0.7.1", flow)).collect();
        let members = explained.iter().map(|explained| (explained.group, explained.member.unwrap_or(0)));
        members
            .map(|(group, member)| rig.tables.group_member(group, member).unwrap().gateway().unwrap().1)
            .collect()
    };
    assert_eq!(gateways(&mut rig), [ip("10.0.200.9"), ip("10.0.3.9")].into());
    let start = Instant::now();
    assert!(rig.tables.withdraw_gateway(PortId(0), ip("10.0.200.9"), true));
    println!("a gateway of all of them withdrawn in {:.2?}", start.elapsed());
    assert_eq!(gateways(&mut rig), [ip("10.0.3.9")].into());
}

#[test]
fn a_feed_takes_the_place_of_static_routes_alone() {
    let mut rig = Rig::new(2);
    rig.add("192.0.2.0/24", &via("10.0.0.9")).unwrap();
    rig.add("2001:db8:ff::/48", &via("2001:db8:0::9")).unwrap();
    rig.address(1, "203.0.113.1", 24).unwrap();
    let specs = [via("10.0.1.9"), via("10.0.1.8")];
    let feed = ["198.51.100.0/24", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4"];
    let feed = feed.map(|to| if let AnyPrefix::V4(prefix) = prefix(to) { prefix } else { unreachable!() });
    rig.tables.load_routes(&specs, feed.into_iter().zip([0, 1, 0, 0]), NOW).unwrap();
    let via = |rig: &Rig, to: &str| {
        let group = rig.tables.lookup_route(ip(to)).map(|route| route.group)?;
        Some(rig.tables.group_view(group).unwrap().members[0].hop.to_string())
    };
    assert_eq!(via(&rig, "192.0.2.1"), None);
    assert_eq!(via(&rig, "198.51.100.1").unwrap(), "via 10.0.1.8 port 1");
    assert_eq!(via(&rig, "203.0.113.7").unwrap(), "on-link port 1");
    assert_eq!(via(&rig, "240.1.1.1").unwrap(), "via 10.0.1.9 port 1");
    assert_eq!(via(&rig, "127.0.0.1").unwrap(), "martian");
    assert_eq!(via(&rig, "2001:db8:ff::1").unwrap(), "via 2001:db8::9 port 0");
    // The route that waited for the network to go forwards then.
    rig.tables.remove_address(PortId(1), ip("203.0.113.1"), NOW).unwrap();
    assert_eq!(via(&rig, "203.0.113.7").unwrap(), "via 10.0.1.9 port 1");
    rig.tables.load_routes::<u32>(&specs, [], NOW).unwrap();
    assert_eq!(["198.51.100.1", "203.0.113.7"].map(|to| via(&rig, to)), [None, None]);
    assert_eq!(via(&rig, "240.1.1.1").unwrap(), "martian");
}

#[test]
fn a_feed_that_is_wrong_changes_nothing() {
    let mut rig = Rig::new(1);
    rig.add("192.0.2.0/24", &via("10.0.0.9")).unwrap();
    let before = rig.tables.next_hops();
    let feed = [(Prefix::of(0x0b00_0000_u32, 8), 1)];
    let good = RouteSpec::via(ip("10.0.0.8"));
    assert!(matches!(
        rig.tables.load_routes(std::slice::from_ref(&good), feed, NOW),
        Err(RouterError::NoSuchSpec(1))
    ));
    let bad = RouteSpec::to(Target::via(ip("172.16.0.1")));
    assert!(matches!(
        rig.tables.load_routes(&[good, bad], feed, NOW),
        Err(RouterError::GatewayOffLink { .. })
    ));
    assert_eq!((rig.tables.next_hops(), rig.tables.get(prefix("11.0.0.0/8"))), (before, None));
    assert!(rig.tables.get(prefix("192.0.2.0/24")).is_some());
}
