//! Static routes.
use super::rig::*;
use artery_l3::PortId;
use artery_l3::path::Outcome;
use artery_l3::router::{RouteSpec, Source, Target};

#[test]
fn the_longest_prefix_decides_which_gateway_a_packet_goes_to() {
    let mut rig = Rig::new(2);
    rig.add("0.0.0.0/0", &via("10.0.0.254")).unwrap();
    rig.add("192.0.2.0/24", &via("10.0.1.254")).unwrap();
    rig.add("2001:db8:ff::/48", &via("2001:db8:1::fe")).unwrap();
    assert_eq!(rig.outcome("192.0.2.1"), Outcome::Unresolved);
    rig.know(0, "10.0.0.254", 9);
    rig.know(1, "10.0.1.254", 8);
    rig.know(1, "2001:db8:1::fe", 7);
    assert_eq!(rig.sent("192.0.2.1"), Some((1, mac(1, 8))));
    assert_eq!(rig.sent("8.8.8.8"), Some((0, mac(0, 9))));
    assert_eq!(rig.sent("2001:db8:ff::1"), Some((1, mac(1, 7))));
    assert_eq!(rig.outcome("2001:db9::1"), Outcome::NoRoute);
    rig.delete("192.0.2.0/24").unwrap();
    assert_eq!(rig.sent("192.0.2.1"), Some((0, mac(0, 9))));
}

#[test]
fn ipv4_goes_through_an_ipv6_router() {
    let mut rig = Rig::new(1);
    rig.add("192.0.2.0/24", &via("2001:db8:0::fe")).unwrap();
    rig.add("198.51.100.0/24", &via_port(0, "fe80::9")).unwrap();
    rig.know(0, "2001:db8:0::fe", 5);
    rig.know(0, "fe80::9", 6);
    assert_eq!(rig.sent("192.0.2.7"), Some((0, mac(0, 5))));
    assert_eq!(rig.sent("198.51.100.7"), Some((0, mac(0, 6))));
}

#[test]
fn routes_can_lead_to_ends() {
    let mut rig = Rig::new(1);
    let ends = [
        ("192.0.2.0/24", Target::Blackhole, Outcome::Blackhole),
        ("192.0.2.0/26", Target::Unreachable, Outcome::Unreachable),
        ("192.0.2.0/28", Target::Prohibited, Outcome::Prohibited),
        ("192.0.2.1/32", Target::Local, Outcome::Local),
    ];
    for (to, target, _) in ends {
        rig.add(to, &RouteSpec::to(target)).unwrap();
    }
    let outcomes = ["192.0.2.99", "192.0.2.40", "192.0.2.9", "192.0.2.1"].map(|to| rig.outcome(to));
    assert_eq!(outcomes.to_vec(), ends.map(|(_, _, outcome)| outcome));
}

#[test]
fn a_route_without_gateway_leads_to_hosts_on_the_link() {
    let mut rig = Rig::new(2);
    rig.add("192.0.2.0/24", &RouteSpec::to(Target::on_link(PortId(1)))).unwrap();
    assert_eq!(rig.outcome("192.0.2.5"), Outcome::Unresolved);
    rig.know(1, "192.0.2.5", 5);
    assert_eq!(rig.sent("192.0.2.5"), Some((1, mac(1, 5))));
    assert_eq!(rig.outcome("192.0.2.6"), Outcome::Unresolved);
}

#[test]
fn equal_next_hops_are_one_and_go_with_their_last_route() {
    let mut rig = Rig::new(2);
    let before = (rig.tables.next_hops(), rig.tables.group_views().len());
    rig.add("192.0.2.0/24", &via("10.0.0.254")).unwrap();
    rig.add("198.51.100.0/24", &via("10.0.0.254")).unwrap();
    rig.add("2001:db8:ff::/48", &via("2001:db8:0::fe")).unwrap();
    rig.add("203.0.113.0/24", &via("2001:db8:0::fe")).unwrap();
    assert_eq!((rig.tables.next_hops(), rig.tables.group_views().len()), (before.0 + 2, before.1 + 2));
    let pins = |rig: &Rig| -> Vec<u32> {
        rig.tables.neighbors::<u32>(PortId(0), NOW).iter().map(|neighbor| neighbor.pins).collect()
    };
    assert_eq!(pins(&rig), [1]);
    rig.delete("192.0.2.0/24").unwrap();
    assert_eq!(pins(&rig), [1]);
    for to in ["198.51.100.0/24", "2001:db8:ff::/48", "203.0.113.0/24"] {
        rig.delete(to).unwrap();
    }
    assert_eq!(pins(&rig), []);
    assert_eq!((rig.tables.next_hops(), rig.tables.group_views().len()), before);
}

#[test]
fn what_is_wrong_is_said_and_changes_nothing() {
    let mut rig = Rig::new(2);
    rig.add("192.0.2.0/24", &via("10.0.0.254")).unwrap();
    let route = |port, gateway: Option<&str>| {
        RouteSpec::to(Target::Via { port, gateway: gateway.map(ip), mtu: None })
    };
    let with = |next_hops| RouteSpec { next_hops, ..RouteSpec::default() };
    let gateway = Target::via(ip("10.0.0.9"));
    for (to, spec, object, remedy) in [
        ("192.0.2.0/24", via("10.0.1.254"), "192.0.2.0/24: File exists", "replace it"),
        ("10.0.1.0/24", via("10.0.0.254"), "10.0.1.0/24: File exists", "remove the address"),
        ("10.1.0.0/16", route(Some(PortId(9)), None), "port 9: no such port", "count from 0"),
        ("10.1.0.0/16", via("172.16.0.1"), "gateway 172.16.0.1: no port", "add such an address"),
        ("10.1.0.0/16", route(Some(PortId(1)), Some("10.0.0.9")), "port eth1 has no address", "name no port"),
        ("10.1.0.0/16", via("10.0.0.1"), "own address, on port eth0", "next router"),
        ("10.1.0.0/16", via("10.0.0.255"), "not the address of one host", "next router"),
        ("10.1.0.0/16", via("224.0.0.1"), "not the address of one host", "next router"),
        ("10.1.0.0/16", via("fe80::1"), "can be on any link", "name the port"),
        ("2001:db8:ff::/48", via("10.0.0.9"), "needs an IPv6 gateway", "IPv6 address"),
        ("10.1.0.0/16", route(None, None), "neither port nor gateway", "name one"),
        ("10.1.0.0/16", with(vec![]), "no next hop", "name a gateway"),
        ("10.1.0.0/16", with(vec![(gateway, 0)]), "weight 0", "from 1 on"),
        ("10.1.0.0/16", with(vec![(gateway, 1), (Target::Blackhole, 1)]), "one of several", "be alone"),
        ("10.1.0.0/16", with(vec![(gateway, 1); 129]), "129 next hops", "128"),
    ] {
        let before = (rig.tables.route_count::<u32>(), rig.tables.next_hops());
        let error = rig.add(to, &spec).unwrap_err().to_string();
        assert!(error.contains(object) && error.contains(remedy), "{to}: {error}");
        assert_eq!((rig.tables.route_count::<u32>(), rig.tables.next_hops()), before, "{error}");
    }
    let error = |rig: &mut Rig, to| rig.delete(to).unwrap_err().to_string();
    assert!(error(&mut rig, "192.0.2.0/25").contains("192.0.2.0/25: not in table"));
    assert!(error(&mut rig, "10.0.1.0/24").contains("remove the address"));
    assert!(error(&mut rig, "127.0.0.0/8").contains("not in table"));
}

#[test]
fn a_static_route_may_take_a_built_in_ones_place_and_gives_it_back() {
    let mut rig = Rig::new(1);
    rig.know(0, "10.0.0.9", 9);
    assert_eq!(rig.outcome("240.1.2.3"), Outcome::Martian);
    rig.add("240.0.0.0/4", &via("10.0.0.9")).unwrap();
    assert_eq!(rig.sent("240.1.2.3"), Some((0, mac(0, 9))));
    rig.delete("240.0.0.0/4").unwrap();
    assert_eq!(rig.outcome("240.1.2.3"), Outcome::Martian);
}

#[test]
fn a_route_is_shown_with_its_source_and_next_hops() {
    let mut rig = Rig::new(2);
    rig.add("192.0.2.0/24", &via("10.0.0.254")).unwrap();
    // On-link hosts have no routes of their own (T15).
    rig.know(1, "10.0.1.77", 77);
    let shown = |rig: &Rig, to: &str| {
        let route = rig.tables.lookup_route(ip(to)).unwrap();
        let hop = rig.tables.group_view(route.group).unwrap().members[0].hop;
        (route.prefix.to_string(), route.source, hop.to_string())
    };
    let connected = ("10.0.1.0/24".into(), Source::Connected(PortId(1)), "on-link port 1".into());
    assert_eq!(shown(&rig, "10.0.1.77"), connected);
    let via = ("192.0.2.0/24".into(), Source::Static, "via 10.0.0.254 port 0".into());
    assert_eq!(shown(&rig, "192.0.2.77"), via);
    assert_eq!(rig.tables.get(prefix("10.0.1.0/24")), rig.tables.lookup_route(ip("10.0.1.77")));
    assert!(rig.tables.lookup_route(ip("9.9.9.9")).is_none());
}
