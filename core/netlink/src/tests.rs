//! Messages as the kernel writes them, whole, cut, and changed.
use super::build::{attribute, message};
use super::*;
use proptest::prelude::*;
use std::net::IpAddr;

fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_ne_bytes())
}

fn news(bytes: &[u8]) -> Vec<News> {
    Messages(bytes).filter_map(|message| News::parse_message(&message)).collect()
}

fn record(bytes: &[u8]) -> Record {
    let [news] = news(bytes).try_into().expect("there is one message");
    news.record
}

fn route_message() -> Vec<u8> {
    let hop = |link: u32, weight: u8, flags: u8, own: Vec<u8>| {
        let len = (own.len() + 8) as u16;
        [&len.to_ne_bytes()[..], &[flags, weight - 1], &link.to_ne_bytes(), &own].concat()
    };
    let via = [&10u16.to_ne_bytes()[..], &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]].concat();
    let hops = [
        hop(2, 5, 0, attribute(5, &[10, 0, 0, 1])),
        hop(3, 1, 17, attribute(18, &via)),
        hop(4, 1, 0, vec![]),
    ];
    let attributes = [
        number(15, 300),
        attribute(1, &[192, 0, 2, 0]),
        number(6, 20),
        attribute(8, &number(2, 1400)),
        attribute(9, &hops.concat()),
    ];
    message(24, 0x500, &[2, 24, 0, 0, 252, 3, 0, 1, 0, 0, 0, 0], &attributes)
}

fn rule_message() -> Vec<u8> {
    let attributes = [
        number(6, 100),
        attribute(2, &[10, 0, 0, 0]),
        attribute(3, b"eth0\0"),
        number(10, 7),
        number(16, 0xff),
        number(14, u32::MAX),
        number(15, 1000),
        attribute(23, &[80u16.to_ne_bytes(), 90u16.to_ne_bytes()].concat()),
        attribute(99, &[1]),
    ];
    message(32, 0, &[2, 0, 8, 0x10, 252, 0, 0, 1, 0, 0, 0, 0], &attributes)
}

fn link_message() -> Vec<u8> {
    vlan_message(&[])
}

fn vlan_message(further: &[u8]) -> Vec<u8> {
    let data = [&attribute(1, &7u16.to_ne_bytes())[..], &attribute(5, &[0x88, 0xa8]), further].concat();
    let info = [attribute(1, b"vlan\0"), attribute(0x8002, &data)].concat();
    let header = [&[0, 0, 1, 0][..], &9u32.to_ne_bytes(), &0x1_0043u32.to_ne_bytes(), &[0; 4]].concat();
    let attributes = [
        attribute(3, b"eth1.7\0"),
        attribute(1, &[2, 0, 0, 0, 0, 1]),
        number(4, 1500),
        number(5, 2),
        number(10, 11),
        attribute(18, &info),
    ];
    message(16, 0, &header, &attributes)
}

fn object_message() -> Vec<u8> {
    let members = [&5u32.to_ne_bytes()[..], &[2, 0, 0, 0], &6u32.to_ne_bytes(), &[0, 1, 0, 0]].concat();
    message(104, 0, &[0; 8], &[number(1, 77), attribute(2, &members)])
}

#[test]
fn a_route_has_its_table_prefix_metric_and_next_hops() {
    let [news] = news(&route_message()).try_into().unwrap();
    assert_eq!((news.is_gone, news.manner), (false, Manner::Replace));
    let Record::Route(route) = news.record else { panic!("{news:?}") };
    assert_eq!((route.table, route.destination, route.len), (300, "192.0.2.0".parse().unwrap(), 24));
    assert_eq!((route.priority, route.protocol, route.path.mtu), (20, 3, Some(1400)));
    let hops: Vec<(u32, Option<IpAddr>, u16, bool)> =
        route.path.hops.iter().map(|hop| (hop.link, hop.gateway, hop.weight, hop.is_dead)).collect();
    let gateway = |text: &str| Some(text.parse().unwrap());
    assert_eq!(
        hops,
        [(2, gateway("10.0.0.1"), 5, false), (3, gateway("2001:db8::1"), 1, true), (4, None, 1, false)]
    );
}

#[test]
fn a_route_for_some_sources_has_their_prefix() {
    let source = attribute(2, &[0x20, 1, 0xd, 0xb8, 0, 0xb, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let read = |len: u8, attributes: &[Vec<u8>]| {
        let found = news(&message(24, 0, &[10, 0, len, 0, 254, 3, 0, 1, 0, 0, 0, 0], attributes));
        found.into_iter().next().map(|news| match news.record {
            Record::Route(route) => route.source,
            record => panic!("{record:?}"),
        })
    };
    let attributes = [number(4, 2), source];
    assert_eq!(read(64, &attributes), Some(Some(("2001:db8:b::".parse().unwrap(), 64))));
    assert_eq!(read(0, &attributes), Some(None));
    assert_eq!(read(64, &[]), Some(Some(("::".parse().unwrap(), 64))), "unknown sources are not all sources");
    assert_eq!(read(129, &attributes), None);
}

#[test]
fn a_route_to_an_object_is_not_what_the_object_was() {
    let attributes = [number(30, 5), number(4, 2), attribute(5, &[10, 0, 0, 1])];
    let Record::Route(route) = record(&message(25, 0, &[2, 0, 0, 0, 254, 3, 0, 6, 0, 0, 0, 0], &attributes))
    else {
        panic!("not a route");
    };
    assert_eq!(route.path, Path { kind: RouteKind::Unicast, object: 5, hops: Vec::new(), mtu: None });
}

#[test]
fn a_rule_has_its_selectors_and_says_them() {
    let Record::Rule(rule) = record(&rule_message()) else { panic!("not a rule") };
    assert_eq!((rule.priority, rule.action, rule.suppressed_len), (100, RuleAction::Table(1000), None));
    assert_eq!(
        rule.to_string(),
        "100: from 10.0.0.0/8 tos 0x10 fwmark 0x7/0xff iif eth0 sport 80-90 attribute 99 lookup 1000"
    );
}

#[test]
fn a_vrf_knows_its_table() {
    let vrf = |data: &[u8]| {
        let info = [attribute(1, b"vrf\0"), attribute(0x8002, data)].concat();
        let header = [&[0, 0, 1, 0][..], &9u32.to_ne_bytes(), &0x1_0043u32.to_ne_bytes(), &[0; 4]].concat();
        let attributes = [attribute(3, b"red\0"), attribute(1, &[2, 0, 0, 0, 0, 1]), attribute(18, &info)];
        let Record::Link(link) = record(&message(16, 0, &header, &attributes)) else { panic!("not a link") };
        link.kind
    };
    assert_eq!(vrf(&number(1, 1000)), LinkKind::Vrf { table: 1000 });
    assert_eq!(vrf(&[]), LinkKind::Vrf { table: 0 }, "no table has this number");
}

/// A message about an interface of a hardware type, with what it says of its kind.
fn link_of_kind(hardware: u16, kind: &[u8], data: &[Vec<u8>]) -> Link {
    let info = [attribute(1, kind), attribute(0x8002, &data.concat())].concat();
    let flags = 0x1_0043u32.to_ne_bytes();
    let header = [&[0, 0][..], &hardware.to_ne_bytes(), &9u32.to_ne_bytes(), &flags, &[0; 4]].concat();
    let attributes = [attribute(3, b"tun9\0"), attribute(18, &info)];
    let Record::Link(link) = record(&message(16, 0, &header, &attributes)) else { panic!("not a link") };
    link
}

#[test]
fn a_tunnel_knows_its_ends_and_what_is_more_than_a_header() {
    let ends = |local, remote| [attribute(local, &[192, 0, 2, 1]), attribute(remote, &[192, 0, 2, 2])];
    let gre = |more: &[Vec<u8>]| {
        let data = [&ends(6, 7)[..], &[attribute(8, &[64]), attribute(10, &[1])], more].concat();
        link_of_kind(778, b"gre\0", &data).kind
    };
    let expected = |option| {
        LinkKind::Tunnel(IpTunnel {
            protocol: TunnelProtocol::Gre,
            local: [192, 0, 2, 1].into(),
            remote: [192, 0, 2, 2].into(),
            ttl: 64,
            tos: 0,
            lower: None,
            option,
        })
    };
    assert_eq!(gre(&[]), expected(None));
    for (attributes, option) in [
        (attribute(3, &0x2000u16.to_be_bytes()), TunnelOption::Key),
        (attribute(2, &0x8000u16.to_be_bytes()), TunnelOption::Checksum),
        (attribute(3, &0x1000u16.to_be_bytes()), TunnelOption::SequenceNumbers),
        (attribute(18, &[]), TunnelOption::Metadata),
        (attribute(19, &[1]), TunnelOption::IgnoresDf),
        (number(20, 7), TunnelOption::Mark),
        (attribute(14, &1u16.to_ne_bytes()), TunnelOption::OuterUdp),
    ] {
        assert_eq!(gre(&[attributes]), expected(Some(option)));
    }
    let ipip = |remote: [u8; 4], discovers: u8| {
        let data = [attribute(2, &[192, 0, 2, 1]), attribute(3, &remote), attribute(10, &[discovers])];
        let LinkKind::Tunnel(tunnel) = link_of_kind(768, b"ipip\0", &data).kind else { panic!("no tunnel") };
        tunnel.option
    };
    assert_eq!(ipip([192, 0, 2, 2], 1), None);
    assert_eq!(ipip([192, 0, 2, 2], 0), Some(TunnelOption::NoPathMtuDiscovery));
    assert_eq!(ipip([0; 4], 1), Some(TunnelOption::SeveralRemotes));
    let of_ipv6 = link_of_kind(823, b"ip6gre\0", &[]).kind;
    assert_eq!(of_ipv6, LinkKind::Other("of hardware type 823".into()));
}

#[test]
fn a_vlan_knows_its_number_tags_parent_and_bridge() {
    let Record::Link(link) = record(&link_message()) else { panic!("not a link") };
    assert_eq!(link.kind, LinkKind::Vlan { id: 7, parent: 2, tag_type: 0x88a8, sets_priority: false });
    let egress_map = attribute(0x8003, &attribute(1, &[[1, 0, 0, 0], [5, 0, 0, 0]].concat()));
    let Record::Link(mapped) = record(&vlan_message(&egress_map)) else { panic!("not a link") };
    assert_eq!(mapped.kind, LinkKind::Vlan { id: 7, parent: 2, tag_type: 0x88a8, sets_priority: true });
    assert_eq!((link.name.as_str(), link.index, link.mtu, link.master), ("eth1.7", 9, 1500, Some(11)));
    assert!(link.is_up());
    // A bridge's message about its port is not about the link.
    let mut of_bridge = link_message();
    of_bridge[16] = 7;
    assert_eq!(news(&of_bridge), []);
}

#[test]
fn weights_of_a_group_have_two_bytes() {
    let Record::NextHop(object) = record(&object_message()) else { panic!("not a next hop") };
    assert_eq!(object, NextHopObject { id: 77, kind: ObjectKind::Group(vec![(5, 3), (6, 257)]) });
}

#[test]
fn a_neighbor_is_usable_by_its_state() {
    let neighbor = |state: u8, flags: u8| {
        let header = [10, 0, 0, 0, 3, 0, 0, 0, state, 0, flags, 0];
        let address = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        news(&message(28, 0, &header, &[attribute(1, &address), attribute(2, &[2, 0, 0, 0, 0, 1])]))
    };
    let usable = |state| match &neighbor(state, 0)[..] {
        [News { record: Record::Neighbor(neighbor), .. }] => neighbor.usable_mac().is_some(),
        other => panic!("{other:?}"),
    };
    for (state, is_usable) in [
        (1, false),
        (2, true),
        (4, true),
        (8, true),
        (16, true),
        (32, false),
        (64, true),
        (128, true),
        (0, false),
    ] {
        assert_eq!(usable(state), is_usable, "{state}");
    }
    assert_eq!(neighbor(2, 8), [], "the machine answers for it");
}

#[test]
fn messages_cut_at_any_length_are_read_as_far_as_they_go() {
    for whole in [route_message(), rule_message(), link_message(), object_message()] {
        for cut in 0..whole.len() {
            assert_eq!(news(&whole[..cut]), []);
            // With a length that fits, attributes are missing or shorter.
            let mut short = whole[..cut].to_vec();
            if let Some(len) = short.first_chunk_mut::<4>() {
                *len = (cut as u32).to_ne_bytes();
            }
            news(&short);
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_panic(
        which in 0usize..4,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        rest in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let messages = [route_message(), rule_message(), link_message(), object_message()];
        let mut bytes = messages[which].clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        news(&bytes);
        bytes.extend(&rest);
        news(&bytes);
        news(&rest);
    }
}
