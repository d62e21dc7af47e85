//! VRFs: which routes a port's packets go by, and what rules keep.
use super::*;

const RED: u32 = 7;
const BLUE: u32 = 8;

fn vrf(index: u32, name: &str, table: u32) -> Link {
    Link { name: name.into(), kind: LinkKind::Vrf { table }, ..link(index, true, true) }
}

/// Four interfaces, VRFs red (table 100) and blue (table 200), and the rule that comes with them.
fn start_vrfs() -> (Mirror, RecordingSink) {
    let (mut mirror, mut sink) = start(4);
    sink.follows_vrfs = true;
    for family in [Family::V4, Family::V6] {
        let mut l3mdev = rule(family, 1000, RuleAction::Table(0));
        l3mdev.selectors.is_vrf = true;
        mirror.apply_change(came(Record::Rule(l3mdev)), &mut sink);
    }
    for vrf in [vrf(RED, "red", 100), vrf(BLUE, "blue", 200)] {
        mirror.apply_change(came(Record::Link(vrf)), &mut sink);
    }
    (mirror, sink)
}

fn join(mirror: &mut Mirror, sink: &mut RecordingSink, port: u32, master: Option<u32>) {
    let port = Link { master, ..link(port, true, true) };
    mirror.apply_change(came(Record::Link(port)), sink);
}

/// What is done with packets that come in by an interface, in words.
fn way_from(sink: &RecordingSink, link: u32, address: &str) -> String {
    match sink.lookup_from(link, address.parse().unwrap()) {
        None => "none".into(),
        Some(NextHopSet::Kernel) => "kernel".into(),
        Some(NextHopSet::Hops(hops)) => format!("%{}", hops[0].link),
    }
}

#[test]
fn the_same_prefix_leads_elsewhere_in_each_vrf_and_routes_leak_where_they_say() {
    let (mut mirror, mut sink) = start_vrfs();
    for (table, out) in [(254, 1), (100, 2), (200, 3)] {
        add(&mut mirror, &mut sink, route(table, "10.1.0.0/16", RouteKind::Unicast, &[hop(out, "")]));
        add(&mut mirror, &mut sink, route(table, "2001:db8::/32", RouteKind::Unicast, &[hop(out, "")]));
    }
    // Red has a route out by a port of blue, and what red has no route for goes by main.
    add(&mut mirror, &mut sink, route(100, "10.2.0.0/16", RouteKind::Unicast, &[hop(3, "")]));
    add(&mut mirror, &mut sink, route(254, "10.3.0.0/16", RouteKind::Unicast, &[hop(1, "")]));
    for (port, master) in [(2, RED), (3, BLUE)] {
        join(&mut mirror, &mut sink, port, Some(master));
    }
    let ways = |sink: &RecordingSink, address: &str| [1, 2, 3].map(|port| way_from(sink, port, address));
    assert_eq!(ways(&sink, "10.1.0.1"), ["%1", "%2", "%3"]);
    assert_eq!(ways(&sink, "2001:db8::1"), ["%1", "%2", "%3"]);
    assert_eq!(ways(&sink, "10.2.0.1"), ["none", "%3", "none"]);
    assert_eq!(ways(&sink, "10.3.0.1"), ["%1", "%1", "%1"]);
    // With a default route that refuses, as the manual of VRFs wants it, nothing goes by main any more.
    let refusal = Route { priority: 4_278_198_272, ..route(100, "0.0.0.0/0", RouteKind::Unreachable, &[]) };
    add(&mut mirror, &mut sink, refusal.clone());
    assert_eq!(ways(&sink, "10.3.0.1"), ["%1", "kernel", "%1"]);
    assert_eq!(sink.vrfs[&100].v4.len(), 3, "routes of main that are never reached are not sent");
    add(&mut mirror, &mut sink, route(254, "10.4.0.0/16", RouteKind::Unicast, &[hop(1, "")]));
    assert_eq!((ways(&sink, "10.4.0.1")[1].as_str(), sink.vrfs[&100].v4.len()), ("kernel", 3));
    mirror.apply_change(went(Record::Route(refusal)), &mut sink);
    assert_eq!(ways(&sink, "10.4.0.1"), ["%1", "%1", "%1"]);
}

#[test]
fn a_port_that_moves_goes_by_no_old_table_and_a_vrf_that_is_gone_leaves_nothing() {
    let (mut mirror, mut sink) = start_vrfs();
    for (table, out) in [(254, 1), (100, 2), (200, 3)] {
        add(&mut mirror, &mut sink, route(table, "10.1.0.0/16", RouteKind::Unicast, &[hop(out, "")]));
    }
    for (master, way) in [(Some(RED), "%2"), (Some(BLUE), "%3"), (None, "%1"), (Some(RED), "%2")] {
        join(&mut mirror, &mut sink, 4, master);
        assert_eq!(way_from(&sink, 4, "10.1.0.1"), way);
    }
    assert_eq!(sink.vrfs.keys().collect::<Vec<_>>(), [&100], "blue has no port");
    // The kernel frees ports first; a master that is not known keeps a port with the kernel.
    mirror.apply_change(went(Record::Link(vrf(RED, "red", 100))), &mut sink);
    assert_eq!(way_from(&sink, 4, "10.1.0.1"), "kernel");
    join(&mut mirror, &mut sink, 4, None);
    assert_eq!((way_from(&sink, 4, "10.1.0.1").as_str(), sink.vrfs.len()), ("%1", 0));
    // One that comes back may have another table.
    mirror.apply_change(came(Record::Link(vrf(RED, "red", 200))), &mut sink);
    join(&mut mirror, &mut sink, 4, Some(RED));
    assert_eq!(way_from(&sink, 4, "10.1.0.1"), "%3");
}

#[test]
fn a_sink_that_takes_no_vrfs_keeps_their_ports_with_the_kernel() {
    let (mut mirror, mut sink) = start_vrfs();
    sink.follows_vrfs = false;
    add(&mut mirror, &mut sink, route(254, "10.1.0.0/16", RouteKind::Unicast, &[hop(1, "")]));
    join(&mut mirror, &mut sink, 4, Some(RED));
    assert_eq!((way_from(&sink, 4, "10.1.0.1"), sink.vrfs.len()), ("kernel".into(), 0));
    let bridge = Link { kind: LinkKind::Other("bridge".into()), ..link(9, true, true) };
    mirror.apply_change(came(Record::Link(bridge)), &mut sink);
    join(&mut mirror, &mut sink, 4, Some(9));
    assert_eq!(way_from(&sink, 4, "10.1.0.1"), "%1", "what bridges keep is found elsewhere");
    join(&mut mirror, &mut sink, 4, Some(RED));
    sink.follows_vrfs = true;
    mirror.review_vrfs(&mut sink);
    assert_eq!((way_from(&sink, 4, "10.1.0.1"), sink.vrfs.len()), ("%1".into(), 1));
}

#[test]
fn rules_that_name_a_vrf_or_its_port_keep_its_ports_and_no_others() {
    let selects: [fn(&mut Selectors); 5] = [
        |selectors| selectors.input = Some("red".into()),
        |selectors| selectors.input = Some("eth2".into()),
        |selectors| selectors.output = Some("red".into()),
        |selectors| (selectors.is_vrf, selectors.input) = (true, Some("eth2".into())),
        |selectors| (selectors.is_vrf, selectors.from) = (true, Some(("10.0.0.0".parse().unwrap(), 8))),
    ];
    for (number, select) in selects.into_iter().enumerate() {
        let (mut mirror, mut sink) = start_vrfs();
        add(&mut mirror, &mut sink, route(9, "10.0.0.0/8", RouteKind::Unicast, &[hop(1, "")]));
        join(&mut mirror, &mut sink, 2, Some(RED));
        let mut rule = rule(Family::V4, 900, RuleAction::Table(9));
        select(&mut rule.selectors);
        mirror.apply_change(came(Record::Rule(rule.clone())), &mut sink);
        assert_eq!(sink.exclusions[0], Exclusion::From(vec![2]), "{number}: {rule}");
        join(&mut mirror, &mut sink, 3, Some(RED));
        let kept = if matches!(number, 1 | 3) { vec![2] } else { vec![2, 3] };
        assert_eq!(sink.exclusions[0], Exclusion::From(kept), "{number}: {rule}");
        assert_eq!(mirror.exclusion_reasons().count(), 1);
        join(&mut mirror, &mut sink, 2, None);
        join(&mut mirror, &mut sink, 3, None);
        let kept = if matches!(number, 1) { Exclusion::From(vec![2]) } else { Exclusion::Nothing };
        assert_eq!(sink.exclusions[0], kept, "{number}: {rule}");
    }
}

#[test]
fn a_rule_behind_that_of_vrfs_keeps_only_who_gets_there() {
    let (mut mirror, mut sink) = start_vrfs();
    join(&mut mirror, &mut sink, 2, Some(RED));
    add(&mut mirror, &mut sink, route(9, "0.0.0.0/0", RouteKind::Unicast, &[hop(1, "")]));
    let mut refusal = rule(Family::V4, 1001, RuleAction::Refuse);
    refusal.selectors.is_vrf = true;
    mirror.apply_change(came(Record::Rule(refusal)), &mut sink);
    mirror.apply_change(came(Record::Rule(rule(Family::V4, 1002, RuleAction::Table(9)))), &mut sink);
    assert_eq!([1, 2].map(|port| way_from(&sink, port, "10.1.0.1")), ["%1", "none"]);
    assert_eq!(sink.exclusions[0], Exclusion::Nothing);
    let strange = rule(Family::V4, 999, RuleAction::Other(17));
    let mut of_vrfs = strange.clone();
    of_vrfs.selectors.is_vrf = true;
    mirror.apply_change(came(Record::Rule(of_vrfs)), &mut sink);
    assert_eq!(sink.exclusions[0], Exclusion::From(vec![2]));
    mirror.apply_change(came(Record::Rule(strange)), &mut sink);
    assert_eq!(sink.exclusions[0], Exclusion::Everything);
}
