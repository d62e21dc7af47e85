//! Dynamic routes, beside static ones and those of the router's own addresses.
use super::rig::*;
use artery_l3::PortId;
use artery_l3::router::{Protocol, RouteSpec, RouterError, Source, Standing, Target};
use artery_lpm::load::AnyPrefix;

const BGP: Protocol = Protocol(186);
const OSPF: Protocol = Protocol(188);
const PREFIX: &str = "192.0.2.0/24";

fn put(rig: &mut Rig, to: &str, spec: &RouteSpec, protocol: Protocol) -> Standing {
    rig.tables.replace_dynamic_route(prefix(to), spec, protocol, NOW).unwrap()
}

fn source(rig: &Rig, to: &str) -> Option<Source> {
    rig.tables.lookup_route(ip(to)).map(|route| route.source)
}

/// The next hop of the route to an address.
fn hop(rig: &Rig, to: &str) -> Option<String> {
    let group = rig.tables.lookup_route(ip(to))?.group;
    Some(rig.tables.group_view(group)?.members[0].hop.to_string())
}

#[test]
fn a_dynamic_route_forwards_and_says_its_protocol() {
    let mut rig = Rig::new(2);
    rig.know(1, "10.0.1.9", 9);
    assert_eq!(put(&mut rig, PREFIX, &via("10.0.1.9"), BGP), Standing::Forwards);
    assert_eq!(source(&rig, "192.0.2.1"), Some(Source::Dynamic(BGP)));
    assert_eq!(rig.sent("192.0.2.1"), Some((1, mac(1, 9))));
    // Another protocol takes the prefix over.
    assert_eq!(put(&mut rig, PREFIX, &via("10.0.0.9"), OSPF), Standing::Forwards);
    assert_eq!(rig.tables.get(prefix(PREFIX)).unwrap().source.name(), "ospf");
    rig.tables.delete_dynamic_route(prefix(PREFIX), NOW).unwrap();
    assert_eq!(source(&rig, "192.0.2.1"), None);
    let again = rig.tables.delete_dynamic_route(prefix(PREFIX), NOW);
    assert!(matches!(again, Err(RouterError::NotInTable(_))), "{again:?}");
}

#[test]
fn a_static_route_comes_first_whichever_was_there_before() {
    let (first, second) = ("via 10.0.0.9 port 0", "via 10.0.1.9 port 1");
    for static_first in [true, false] {
        let mut rig = Rig::new(2);
        if static_first {
            rig.add(PREFIX, &via("10.0.0.9")).unwrap();
            assert_eq!(put(&mut rig, PREFIX, &via("10.0.1.9"), BGP), Standing::Shadowed);
        } else {
            assert_eq!(put(&mut rig, PREFIX, &via("10.0.1.9"), BGP), Standing::Forwards);
            rig.add(PREFIX, &via("10.0.0.9")).unwrap();
        }
        assert_eq!(hop(&rig, "192.0.2.1").as_deref(), Some(first));
        assert_eq!(source(&rig, "192.0.2.1"), Some(Source::Static));
        // What happens to one does nothing to the other.
        assert_eq!(put(&mut rig, PREFIX, &via("10.0.1.8"), OSPF), Standing::Shadowed);
        assert_eq!(put(&mut rig, PREFIX, &via("10.0.1.9"), BGP), Standing::Shadowed);
        rig.delete(PREFIX).unwrap();
        assert_eq!(hop(&rig, "192.0.2.1").as_deref(), Some(second));
        assert_eq!(source(&rig, "192.0.2.1"), Some(Source::Dynamic(BGP)));
        assert!(matches!(rig.delete(PREFIX), Err(RouterError::NotInTable(_))));
        rig.tables.delete_dynamic_route(prefix(PREFIX), NOW).unwrap();
        assert_eq!(hop(&rig, "192.0.2.1"), None);
    }
}

#[test]
fn a_dynamic_route_waits_while_a_port_is_connected_to_its_prefix() {
    let mut rig = Rig::new(2);
    rig.address(1, "192.0.2.1", 24).unwrap();
    assert_eq!(put(&mut rig, PREFIX, &via("10.0.0.9"), BGP), Standing::Shadowed);
    assert_eq!(hop(&rig, "192.0.2.5").as_deref(), Some("on-link port 1"));
    rig.tables.remove_address(PortId(1), ip("192.0.2.1"), NOW).unwrap();
    assert_eq!(hop(&rig, "192.0.2.5").as_deref(), Some("via 10.0.0.9 port 0"));
}

#[test]
fn a_feed_of_static_routes_leaves_dynamic_ones() {
    let mut rig = Rig::new(2);
    put(&mut rig, PREFIX, &via("10.0.0.9"), BGP);
    put(&mut rig, "198.51.100.0/24", &via("10.0.0.9"), BGP);
    let AnyPrefix::V4(both) = prefix(PREFIX) else { unreachable!() };
    rig.tables.load_routes(&[via("10.0.1.9")], [(both, 0)], NOW).unwrap();
    assert_eq!(source(&rig, "192.0.2.1"), Some(Source::Static));
    assert_eq!(source(&rig, "198.51.100.1"), Some(Source::Dynamic(BGP)));
    rig.tables.load_routes::<u32>(&[], [], NOW).unwrap();
    assert_eq!(source(&rig, "192.0.2.1"), Some(Source::Dynamic(BGP)));
    for to in [PREFIX, "198.51.100.0/24"] {
        rig.tables.delete_dynamic_route(prefix(to), NOW).unwrap();
    }
    assert_eq!([source(&rig, "192.0.2.1"), source(&rig, "198.51.100.1")], [None, None]);
}

#[test]
fn what_can_not_be_is_refused_and_the_old_route_stays() {
    let mut rig = Rig::new(1);
    put(&mut rig, PREFIX, &via("10.0.0.9"), BGP);
    let mut refuse = |spec: &RouteSpec| {
        rig.tables.replace_dynamic_route(prefix(PREFIX), spec, BGP, NOW).unwrap_err().to_string()
    };
    assert!(refuse(&via("203.0.113.9")).starts_with("gateway 203.0.113.9: no port has an address"));
    assert!(refuse(&via("fe80::9")).contains("name the port"));
    assert_eq!(hop(&rig, "192.0.2.1").as_deref(), Some("via 10.0.0.9 port 0"));
    let several = RouteSpec { next_hops: vec![(Target::Blackhole, 1); 2], ..RouteSpec::default() };
    assert!(rig.tables.replace_dynamic_route(prefix(PREFIX), &several, BGP, NOW).is_err());
    assert_eq!(rig.tables.next_hops(), Rig::new(1).tables.next_hops() + 1);
}
