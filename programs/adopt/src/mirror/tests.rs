//! The mirror against an evaluator that goes through all rules and routes for each address, in random storms.
mod evaluator;
mod storm;
mod vrf;

use super::*;
use crate::kernel::{LinkKind, Manner, Path, RouteHop, RouteKind, RuleAction, Selectors, Settings};
use evaluator::Evaluator;

/// Numbers that are random enough (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
    fn one_in(&mut self, number: usize) -> bool {
        self.below(number) == 0
    }
    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

fn link(index: u32, is_admin_up: bool, has_carrier: bool) -> Link {
    Link {
        index,
        name: format!("eth{index}"),
        mac: Some(EtherAddr([2, 0, 0, 0, 0, index as u8])),
        mtu: 1500,
        is_admin_up,
        has_carrier,
        kind: LinkKind::Ether,
        master: None,
    }
}

fn hop(link: u32, gateway: &str) -> RouteHop {
    let gateway = (!gateway.is_empty()).then(|| gateway.parse().unwrap());
    RouteHop { link, gateway, weight: 1, is_dead: false, is_without_carrier: false, has_encapsulation: false }
}

fn route(table: u32, prefix: &str, kind: RouteKind, hops: &[RouteHop]) -> Route {
    let (destination, len) = prefix.split_once('/').unwrap();
    let destination: IpAddr = destination.parse().unwrap();
    Route {
        family: if destination.is_ipv4() { Family::V4 } else { Family::V6 },
        table,
        destination,
        len: len.parse().unwrap(),
        source: None,
        tos: 0,
        priority: 0,
        protocol: 3,
        preference: 0,
        expires: false,
        has_realm: false,
        path: Path { kind, object: 0, hops: hops.to_vec(), mtu: None },
    }
}

fn rule(family: Family, priority: u32, action: RuleAction) -> Rule {
    let selectors = Selectors::default();
    Rule { family, priority, action, selectors, suppressed_len: None, suppressed_group: None }
}

fn came(record: Record) -> News {
    News { is_gone: false, manner: Manner::Plain, record }
}

fn went(record: Record) -> News {
    News { is_gone: true, ..came(record) }
}

/// The rules that a family has at the start.
fn default_rules(family: Family) -> Vec<Rule> {
    let tables: &[(u32, u32)] = match family {
        Family::V4 => &[(0, 255), (32766, 254), (32767, 253)],
        Family::V6 => &[(0, 255), (32766, 254)],
    };
    tables.iter().map(|&(priority, table)| rule(family, priority, RuleAction::Table(table))).collect()
}

/// A mirror with a sink, the rules of the start, and so many interfaces that are up.
fn start(links: u32) -> (Mirror, RecordingSink) {
    let (mut mirror, mut sink) = (Mirror::default(), RecordingSink::default());
    for index in 1..=links {
        mirror.apply_change(came(Record::Link(link(index, true, true))), &mut sink);
    }
    for rule in default_rules(Family::V4).into_iter().chain(default_rules(Family::V6)) {
        mirror.apply_change(came(Record::Rule(rule)), &mut sink);
    }
    (mirror, sink)
}

/// What is done with packets to an address, in words.
fn way(sink: &RecordingSink, address: &str) -> String {
    match sink.lookup(address.parse().unwrap()) {
        None => "none".into(),
        Some(NextHopSet::Kernel) => "kernel".into(),
        Some(NextHopSet::Hops(hops)) => {
            let word = |hop: &Hop| match hop.gateway {
                Some(gateway) => format!("{gateway}%{}", hop.link),
                None => format!("%{}", hop.link),
            };
            hops.iter().map(word).collect::<Vec<_>>().join(" ")
        }
    }
}

fn add(mirror: &mut Mirror, sink: &mut RecordingSink, route: Route) {
    mirror.apply_change(came(Record::Route(route)), sink);
}

#[test]
fn the_longest_prefix_of_a_table_wins_and_local_is_asked_first() {
    let (mut mirror, mut sink) = start(2);
    add(&mut mirror, &mut sink, route(254, "10.0.0.0/8", RouteKind::Unicast, &[hop(1, "10.0.0.1")]));
    add(&mut mirror, &mut sink, route(254, "10.1.0.0/16", RouteKind::Unicast, &[hop(2, "")]));
    add(&mut mirror, &mut sink, route(255, "10.1.0.1/32", RouteKind::Local, &[hop(2, "")]));
    assert_eq!(way(&sink, "10.2.0.1"), "10.0.0.1%1");
    assert_eq!(way(&sink, "10.1.0.2"), "%2");
    assert_eq!(way(&sink, "10.1.0.1"), "kernel");
    assert_eq!(way(&sink, "11.0.0.1"), "none");
    add(&mut mirror, &mut sink, route(255, "10.1.0.0/24", RouteKind::Local, &[hop(2, "")]));
    add(&mut mirror, &mut sink, route(254, "10.1.0.128/25", RouteKind::Unicast, &[hop(1, "")]));
    assert_eq!(way(&sink, "10.1.0.129"), "kernel", "a prefix of local wins over a longer one");
    assert!(!sink.v4.contains_key(&"10.1.0.128/25".parse().unwrap()));
}

#[test]
fn a_rule_with_a_selector_keeps_its_packets_where_its_table_has_routes() {
    let (mut mirror, mut sink) = start(2);
    let mut by_source = rule(Family::V4, 100, RuleAction::Table(100));
    by_source.selectors.from = Some(("10.0.0.0".parse().unwrap(), 8));
    let mut by_input = rule(Family::V4, 101, RuleAction::Table(100));
    by_input.selectors.input = Some("eth2".into());
    mirror.apply_change(came(Record::Rule(by_source.clone())), &mut sink);
    mirror.apply_change(came(Record::Rule(by_input)), &mut sink);
    assert_eq!((&sink.exclusions[0], mirror.exclusion_reasons().count()), (&Exclusion::Nothing, 0));
    let one = route(100, "10.0.0.0/8", RouteKind::Unicast, &[hop(1, "")]);
    add(&mut mirror, &mut sink, one.clone());
    assert_eq!(sink.exclusions[0], Exclusion::Everything);
    let reasons: Vec<String> = mirror.exclusion_reasons().map(ExclusionReason::to_string).collect();
    assert_eq!(
        reasons,
        [
            "ip rule 100: from 10.0.0.0/8 lookup 100: IPv4 packets all stay with the kernel",
            "ip rule 101: from all iif eth2 lookup 100: IPv4 packets from interfaces [2] stay with the \
             kernel",
        ]
    );
    mirror.apply_change(went(Record::Rule(by_source)), &mut sink);
    assert_eq!((&sink.exclusions[0], &sink.exclusions[1]), (&Exclusion::From(vec![2]), &Exclusion::Nothing));
    mirror.apply_change(went(Record::Route(one)), &mut sink);
    assert_eq!(sink.exclusions[0], Exclusion::Nothing);
}

#[test]
fn a_rule_for_destinations_keeps_them_and_all_below() {
    let (mut mirror, mut sink) = start(1);
    add(&mut mirror, &mut sink, route(254, "0.0.0.0/0", RouteKind::Unicast, &[hop(1, "10.0.0.1")]));
    add(&mut mirror, &mut sink, route(254, "10.1.1.0/24", RouteKind::Unicast, &[hop(1, "10.0.0.2")]));
    add(&mut mirror, &mut sink, route(9, "0.0.0.0/0", RouteKind::Unicast, &[hop(1, "10.0.0.3")]));
    let mut to = rule(Family::V4, 100, RuleAction::Table(9));
    to.selectors.to = Some(("10.1.0.0".parse().unwrap(), 16));
    mirror.apply_change(came(Record::Rule(to.clone())), &mut sink);
    assert_eq!((way(&sink, "10.1.1.1"), way(&sink, "10.1.2.1")), ("kernel".into(), "kernel".into()));
    assert_eq!(way(&sink, "10.2.0.1"), "10.0.0.1%1");
    mirror.apply_change(went(Record::Rule(to)), &mut sink);
    assert_eq!((way(&sink, "10.1.1.1"), way(&sink, "10.1.2.1")), ("10.0.0.2%1".into(), "10.0.0.1%1".into()));
}

#[test]
fn what_cannot_match_a_forwarded_packet_has_no_effect() {
    let (mut mirror, mut sink) = start(1);
    add(&mut mirror, &mut sink, route(9, "0.0.0.0/0", RouteKind::Unicast, &[hop(1, "10.0.0.3")]));
    let rules: [fn(&mut Selectors); 4] = [
        |selectors| selectors.input = Some("lo".into()),
        |selectors| selectors.output = Some("eth1".into()),
        |selectors| selectors.users = Some((1000, 1000)),
        |selectors| selectors.is_vrf = true,
    ];
    for select in rules {
        let mut rule = rule(Family::V4, 100, RuleAction::Table(9));
        select(&mut rule.selectors);
        mirror.apply_change(came(Record::Rule(rule)), &mut sink);
    }
    assert_eq!((&sink.exclusions[0], mirror.exclusion_reasons().count()), (&Exclusion::Nothing, 0));
    assert_eq!(way(&sink, "10.0.0.1"), "none");
}

#[test]
fn a_refused_destination_is_not_passed_over_with_short_prefixes() {
    let (mut mirror, mut sink) = start(1);
    let mut suppressing = rule(Family::V4, 100, RuleAction::Table(9));
    suppressing.suppressed_len = Some(0);
    mirror.apply_change(came(Record::Rule(suppressing)), &mut sink);
    add(&mut mirror, &mut sink, route(254, "0.0.0.0/0", RouteKind::Unicast, &[hop(1, "10.0.0.1")]));
    add(&mut mirror, &mut sink, route(9, "0.0.0.0/0", RouteKind::Unicast, &[hop(1, "10.0.0.2")]));
    assert_eq!(way(&sink, "10.9.0.1"), "10.0.0.1%1");
    let refusal = route(9, "0.0.0.0/0", RouteKind::Unreachable, &[]);
    mirror.apply_change(News { manner: Manner::Replace, ..came(Record::Route(refusal)) }, &mut sink);
    assert_eq!(way(&sink, "10.9.0.1"), "kernel");
}

#[test]
fn ipv6_tells_the_gateways_of_a_metric_together_and_takes_them_away_one_by_one() {
    let (mut mirror, mut sink) = start(2);
    let via = |hops: &[RouteHop]| route(254, "2001:db8::/32", RouteKind::Unicast, hops);
    add(&mut mirror, &mut sink, via(&[hop(1, "fe80::1")]));
    add(&mut mirror, &mut sink, via(&[hop(2, "fe80::2"), hop(1, "fe80::1")]));
    assert_eq!(way(&sink, "2001:db8::9"), "fe80::2%2 fe80::1%1");
    add(&mut mirror, &mut sink, via(&[hop(2, "")]));
    assert_eq!(way(&sink, "2001:db8::9"), "fe80::2%2 fe80::1%1", "the first of a metric");
    mirror.apply_change(went(Record::Route(via(&[hop(2, "fe80::2")]))), &mut sink);
    assert_eq!(way(&sink, "2001:db8::9"), "fe80::1%1");
    mirror.apply_change(went(Record::Route(via(&[hop(1, "fe80::1")]))), &mut sink);
    assert_eq!(way(&sink, "2001:db8::9"), "%2");
    assert!(!mirror.resync_requested());
    mirror.apply_change(went(Record::Route(via(&[hop(1, "fe80::1")]))), &mut sink);
    assert!(mirror.resync_requested(), "it was gone already");
}

#[test]
fn routes_of_one_metric_keep_the_order_they_were_given_in_ipv4() {
    let (mut mirror, mut sink) = start(1);
    let via = |gateway| Record::Route(route(254, "10.0.0.0/8", RouteKind::Unicast, &[hop(1, gateway)]));
    let mut tell = |record, manner| {
        mirror.apply_change(News { manner, ..came(record) }, &mut sink);
        way(&sink, "10.9.9.9")
    };
    assert_eq!(tell(via("10.0.0.1"), Manner::Plain), "10.0.0.1%1");
    assert_eq!(tell(via("10.0.0.2"), Manner::Append), "10.0.0.1%1");
    assert_eq!(tell(via("10.0.0.3"), Manner::Plain), "10.0.0.3%1");
    assert_eq!(tell(via("10.0.0.4"), Manner::Replace), "10.0.0.4%1");
    mirror.apply_change(went(via("10.0.0.4")), &mut sink);
    assert_eq!(way(&sink, "10.9.9.9"), "10.0.0.1%1");
    assert_eq!(mirror.paths(), 2);
}

#[test]
fn prefixes_with_routes_for_some_sources_are_the_kernels_in_whatever_order_they_come() {
    let plain = route(254, "::/0", RouteKind::Unicast, &[hop(1, "fe80::1")]);
    // By the same gateway, so that only the source distinguishes them.
    let from = Route { source: Some(("2001:db8:b::".parse().unwrap(), 64)), ..plain.clone() };
    let other = Route { source: Some(("2001:db8:c::".parse().unwrap(), 64)), ..plain.clone() };
    let below = route(254, "2001:db8::/32", RouteKind::Unicast, &[hop(2, "fe80::2")]);
    for order in [[&plain, &from, &other], [&from, &other, &plain], [&other, &plain, &from]] {
        let (mut mirror, mut sink) = start(2);
        add(&mut mirror, &mut sink, below.clone());
        order.into_iter().for_each(|route| add(&mut mirror, &mut sink, route.clone()));
        let ways = |sink: &RecordingSink| (way(sink, "2001:db9::1"), way(sink, "2001:db8::1"));
        let (kept, longer) = ("kernel".to_string(), "fe80::2%2".to_string());
        assert_eq!(ways(&sink), (kept.clone(), longer.clone()), "{order:?}");
        // The kernel lists routes for some sources first, then what is below, and those for all sources last.
        mirror.begin_part(crate::kernel::RecordKind::Routes(Family::V6));
        for route in [&from, &other, &below, &plain] {
            mirror.add_found(Record::Route(route.clone()), &mut sink);
        }
        mirror.end_part(true, &mut sink);
        while mirror.sweep_routes(&mut sink) {}
        assert_eq!(ways(&sink), (kept.clone(), longer.clone()), "{order:?}, read again");
        assert_eq!((mirror.excluded_prefixes().count(), mirror.route_conditions()), (1, 2));
        mirror.apply_change(went(Record::Route(from.clone())), &mut sink);
        assert_eq!(way(&sink, "2001:db9::1"), "kernel", "one is left");
        mirror.apply_change(went(Record::Route(other.clone())), &mut sink);
        assert_eq!(ways(&sink), ("fe80::1%1".to_string(), longer), "{order:?}");
        assert_eq!((mirror.excluded_prefixes().count(), mirror.resync_requested()), (0, false));
        mirror.apply_change(went(Record::Route(plain.clone())), &mut sink);
        assert_eq!((way(&sink, "2001:db9::1"), mirror.paths()), ("none".into(), 1));
    }
}

#[test]
fn a_dump_that_finds_no_route_for_some_sources_gives_the_prefix_back() {
    let (mut mirror, mut sink) = start(1);
    let plain = route(254, "::/0", RouteKind::Unicast, &[hop(1, "fe80::1")]);
    let from = Route { source: Some(("2001:db8:b::".parse().unwrap(), 64)), ..plain.clone() };
    [&plain, &from].into_iter().for_each(|route| add(&mut mirror, &mut sink, route.clone()));
    mirror.begin_part(crate::kernel::RecordKind::Routes(Family::V6));
    mirror.add_found(Record::Route(plain), &mut sink);
    mirror.end_part(true, &mut sink);
    while mirror.sweep_routes(&mut sink) {}
    assert_eq!((way(&sink, "2001:db8::1"), mirror.excluded_prefixes().count()), ("fe80::1%1".into(), 0));
}

#[test]
fn what_keeps_a_prefix_is_said_in_a_line() {
    let (mut mirror, mut sink) = start(1);
    let to = |prefix, source: Option<&str>| Route {
        source: source.map(|source| (source.parse().unwrap(), 64)),
        ..route(254, prefix, RouteKind::Unicast, &[hop(1, "")])
    };
    for source in ["2001:db8:b::", "2001:db8:c::"] {
        add(&mut mirror, &mut sink, to("::/0", Some(source)));
    }
    add(&mut mirror, &mut sink, to("2001:db8:1::/48", Some("2001:db8:b::")));
    add(&mut mirror, &mut sink, Route { tos: 16, ..to("10.0.0.0/8", None) });
    add(&mut mirror, &mut sink, Route { table: 99, ..to("2001:db8:2::/48", Some("2001:db8:b::")) });
    let said: Vec<String> = mirror.excluded_prefixes().map(|kept| kept.to_string()).collect();
    assert_eq!(
        said,
        [
            "IPv4 packets to 10.0.0.0/8 stay with the kernel: table 254 has a route there for one type of \
             service (TOS) only (shown by: ip route show table 254 exact 10.0.0.0/8)",
            "IPv6 packets to ::/0 stay with the kernel: table 254 has routes there for packets from \
             2001:db8:b::/64 and from other prefixes only (shown by: ip -6 route show table 254 exact ::/0)",
            "IPv6 packets to 2001:db8:1::/48 stay with the kernel: table 254 has a route there for packets \
             from 2001:db8:b::/64 only (shown by: ip -6 route show table 254 exact 2001:db8:1::/48)",
        ],
        "nothing of a table that no rule leads to"
    );
}

#[test]
fn a_change_of_an_object_is_one_word_for_all_its_routes() {
    use crate::kernel::{NextHopObject, ObjectKind};
    let (mut mirror, mut sink) = start(2);
    let single = |id, link, gateway: &str| {
        let gateway = Some(gateway.parse().unwrap());
        came(Record::NextHop(NextHopObject { id, kind: ObjectKind::Single { link, gateway } }))
    };
    mirror.apply_change(single(1, 1, "10.0.0.1"), &mut sink);
    mirror.apply_change(single(2, 2, "10.0.0.2"), &mut sink);
    let group = NextHopObject { id: 3, kind: ObjectKind::Group(vec![(1, 1), (2, 4)]) };
    mirror.apply_change(came(Record::NextHop(group)), &mut sink);
    for number in 0..100 {
        let mut route = route(254, &format!("20.{number}.0.0/16"), RouteKind::Unicast, &[]);
        route.path.object = 3;
        add(&mut mirror, &mut sink, route);
    }
    assert_eq!((way(&sink, "20.7.0.1"), sink.next_hop_sets.len()), ("10.0.0.1%1 10.0.0.2%2".into(), 1));
    mirror.apply_change(single(1, 1, "10.0.0.9"), &mut sink);
    assert_eq!(way(&sink, "20.7.0.1"), "10.0.0.9%1 10.0.0.2%2");
    // The kernel takes the object at a link without carrier away, and says nothing.
    mirror.apply_change(came(Record::Link(link(1, true, false))), &mut sink);
    assert_eq!(way(&sink, "20.7.0.1"), "10.0.0.2%2");
    mirror.apply_change(came(Record::Link(link(2, false, false))), &mut sink);
    assert_eq!((way(&sink, "20.7.0.1"), sink.v4.len(), sink.next_hop_sets.len()), ("none".into(), 0, 0));
    assert!(mirror.resync_requested());
}

#[test]
fn a_look_at_everything_withdraws_nothing_that_is_right() {
    struct IgnoringSink;
    impl Sink for IgnoringSink {
        fn set_next_hops(&mut self, _: Family, id: NextHopSetId, way: Option<&NextHopSet>) {
            // Paths are shared by content: an equal one is not sent again.
            panic!("{id:?} {way:?}");
        }
        fn set_route4(&mut self, prefix: Prefix<u32>, way: Option<NextHopSetId>) {
            panic!("{prefix} {way:?}");
        }
        fn set_route6(&mut self, prefix: Prefix<u128>, way: Option<NextHopSetId>) {
            panic!("{prefix} {way:?}");
        }
        fn set_neighbor(&mut self, link: u32, address: IpAddr, mac: Option<EtherAddr>) {
            panic!("{link} {address} {mac:?}");
        }
        fn set_link(&mut self, index: u32, link: Option<&Link>) {
            panic!("{index} {link:?}");
        }
        fn exclude(&mut self, family: Family, keep: &Exclusion) {
            panic!("{family} {keep:?}");
        }
    }
    let (mut mirror, mut sink) = start(2);
    let routes = [
        route(254, "10.0.0.0/8", RouteKind::Unicast, &[hop(1, "10.0.0.1")]),
        route(254, "10.1.0.0/16", RouteKind::Blackhole, &[]),
        route(255, "10.1.0.1/32", RouteKind::Local, &[hop(2, "")]),
    ];
    routes.iter().for_each(|route| add(&mut mirror, &mut sink, route.clone()));
    let part = crate::kernel::RecordKind::Routes(Family::V4);
    mirror.begin_part(part);
    routes.iter().for_each(|route| mirror.add_found(Record::Route(route.clone()), &mut IgnoringSink));
    assert!(!mirror.end_part(true, &mut IgnoringSink));
    while mirror.sweep_routes(&mut IgnoringSink) {}
    mirror.begin_part(crate::kernel::RecordKind::Links);
    (1..=2).for_each(|index| mirror.add_found(Record::Link(link(index, true, true)), &mut IgnoringSink));
    mirror.end_part(true, &mut IgnoringSink);
    mirror.begin_part(crate::kernel::RecordKind::Rules(Family::V4));
    default_rules(Family::V4)
        .into_iter()
        .for_each(|rule| mirror.add_found(Record::Rule(rule), &mut IgnoringSink));
    mirror.end_part(true, &mut IgnoringSink);
    // What is missing goes; what has changed meanwhile is not gone by.
    mirror.begin_part(part);
    mirror.add_found(Record::Route(routes[1].clone()), &mut sink);
    mirror.apply_change(went(Record::Route(routes[0].clone())), &mut sink);
    mirror.add_found(Record::Route(routes[0].clone()), &mut sink);
    mirror.end_part(true, &mut sink);
    while mirror.sweep_routes(&mut sink) {}
    assert_eq!(way(&sink, "10.2.0.1"), "none");
    assert_eq!(way(&sink, "10.1.0.1"), "kernel", "it may have been passed over in the change");
    assert!(mirror.resync_requested());
    mirror.begin_part(part);
    mirror.add_found(Record::Route(routes[1].clone()), &mut sink);
    mirror.end_part(true, &mut sink);
    while mirror.sweep_routes(&mut sink) {}
    assert!(!mirror.resync_requested());
    assert_eq!(sink.v4.keys().map(Prefix::to_string).collect::<Vec<_>>(), ["10.1.0.0/16"]);
}

#[test]
fn sources_are_asked_for_what_the_greater_setting_says_as_far_as_routes_tell() {
    let (mut mirror, mut sink) = start(2);
    let set = |link, number| Settings {
        family: Family::V4,
        link,
        forwards: None,
        reverse_path: Some(number),
        ignores_without_carrier: None,
    };
    let mut demanded = |all, own| {
        mirror.apply_change(came(Record::Settings(set(-1, all))), &mut sink);
        mirror.apply_change(came(Record::Settings(set(1, own))), &mut sink);
        mirror.reverse_paths().get(&1).copied()
    };
    assert_eq!(demanded(0, 0), Some(ReversePath::Off));
    assert_eq!([demanded(1, 0), demanded(0, 1)], [Some(ReversePath::Strict); 2]);
    // An interface without an address of its own is as strict.
    assert_eq!(demanded(1, 2), Some(ReversePath::Strict));
    assert_eq!(mirror.reverse_paths().get(&2), None, "nothing is known of the other");
    let address = Address { link: 1, address: "10.0.0.1".parse().unwrap(), len: 24 };
    mirror.apply_change(came(Record::Address(address.clone())), &mut sink);
    assert_eq!(mirror.reverse_paths().get(&1).copied(), Some(ReversePath::Loose));
    let mut for_machine = rule(Family::V4, 100, RuleAction::Table(100));
    for_machine.selectors.input = Some("lo".into());
    mirror.apply_change(came(Record::Rule(for_machine.clone())), &mut sink);
    assert_eq!(mirror.reverse_paths().get(&1).copied(), None, "the way back is another than the way on");
    mirror.apply_change(came(Record::Settings(set(1, 0))), &mut sink);
    mirror.apply_change(came(Record::Settings(set(-1, 0))), &mut sink);
    let found = mirror.reverse_paths().get(&1).copied();
    assert_eq!(found, None, "with rules of its own the kernel asks in any case");
    mirror.apply_change(went(Record::Rule(for_machine)), &mut sink);
    assert_eq!(mirror.reverse_paths().get(&1).copied(), Some(ReversePath::Loose), "nor does it forget them");
    let asks = |made: Route| {
        let (mut mirror, mut sink) = start(2);
        [-1, 1]
            .into_iter()
            .for_each(|link| mirror.apply_change(came(Record::Settings(set(link, 0))), &mut sink));
        assert_eq!(mirror.reverse_paths().get(&1).copied(), Some(ReversePath::Off));
        add(&mut mirror, &mut sink, made);
        mirror.apply_change(came(Record::Address(address.clone())), &mut sink);
        mirror.reverse_paths().get(&1).copied() == Some(ReversePath::Loose)
    };
    assert!(asks(route(255, "192.0.2.0/24", RouteKind::Local, &[hop(1, "")])), "with such routes, too");
    let plain = route(254, "192.0.2.0/24", RouteKind::Unicast, &[hop(1, "")]);
    assert!(asks(Route { has_realm: true, ..plain.clone() }) && !asks(plain), "and with realms");
}
