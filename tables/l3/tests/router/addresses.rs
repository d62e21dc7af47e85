//! The router's own addresses and its ports.
use super::rig::*;
use artery_l3::PortId;
use artery_l3::path::Outcome::{self, *};
use artery_l3::router::link_local;

fn outcomes<const N: usize>(rig: &mut Rig, to: [&str; N]) -> [Outcome; N] {
    to.map(|to| rig.outcome(to))
}

#[test]
fn an_address_brings_the_routes_that_follow_from_it() {
    let mut rig = Rig::bare(2);
    rig.address(0, "10.0.0.1", 24).unwrap();
    let found = outcomes(&mut rig, ["10.0.0.1", "10.0.0.0", "10.0.0.255", "10.0.0.2", "10.0.1.0"]);
    assert_eq!(found, [Local, Broadcast, Broadcast, Unresolved, NoRoute]);
    rig.address(0, "10.1.0.0", 31).unwrap();
    assert_eq!(outcomes(&mut rig, ["10.1.0.0", "10.1.0.1", "10.1.0.2"]), [Local, Unresolved, NoRoute]);
    rig.address(1, "10.2.0.7", 32).unwrap();
    assert_eq!(outcomes(&mut rig, ["10.2.0.7", "10.2.0.6"]), [Local, NoRoute]);
    rig.address(1, "2001:db8::5", 64).unwrap();
    let found = outcomes(&mut rig, ["2001:db8::5", "2001:db8::", "2001:db8::1", "2001:db8:0:1::"]);
    assert_eq!(found, [Local, Local, Unresolved, NoRoute]);
    rig.address(1, "2001:db8:9::", 127).unwrap();
    assert_eq!(outcomes(&mut rig, ["2001:db8:9::", "2001:db8:9::1"]), [Local, Unresolved]);
}

#[test]
fn a_virtual_address_is_in_a_prefix_of_the_port_and_leads_to_the_router() {
    let mut rig = Rig::new(2);
    for address in ["10.0.1.100", "2001:db8:1::100"] {
        rig.tables.add_virtual_address(PortId(1), ip(address)).unwrap();
        assert_eq!(rig.outcome(address), Local);
    }
    let turn = rig.turns.turn();
    let view = &rig.readers.ports.read(&turn)[1];
    assert_eq!((view.virtual_v4.len(), view.virtual_v6.len(), view.v4.len()), (1, 1, 1));
    for (port, address, expected) in [
        (0, "10.0.1.101", "port eth0 has no address in a prefix with it"),
        (1, "10.0.1.1", "port eth1 has this address"),
        (1, "10.0.1.100", "port eth1 has this address"),
        (1, "10.0.1.255", "the first and last address of a prefix"),
    ] {
        let refusal = rig.tables.add_virtual_address(PortId(port), ip(address)).unwrap_err().to_string();
        assert!(refusal.contains(expected), "{address}: {refusal}");
    }
}

#[test]
fn some_addresses_lead_nowhere_in_any_router() {
    let mut rig = Rig::bare(1);
    assert_eq!(
        outcomes(
            &mut rig,
            ["0.0.0.1", "127.0.0.1", "240.0.0.1", "224.0.0.5", "255.255.255.255", "169.254.1.1"]
        ),
        [Martian, Martian, Martian, Multicast, Broadcast, LinkLocal]
    );
    let found = outcomes(&mut rig, ["::", "::1", "::ffff:10.0.0.1", "ff02::1", "fe80::1234"]);
    assert_eq!(found, [Martian, Martian, Martian, Multicast, LinkLocal]);
}

#[test]
fn a_port_has_a_link_local_address_that_follows_its_link_address() {
    let mut rig = Rig::bare(1);
    let (old, new) = (link_local(mac(0, 1)).to_string(), link_local(mac(0, 2)).to_string());
    assert_eq!(outcomes(&mut rig, [&old, &new]), [Local, LinkLocal]);
    rig.tables.set_link_address(PortId(0), mac(0, 2), NOW).unwrap();
    assert_eq!(outcomes(&mut rig, [&old, &new]), [LinkLocal, Local]);
    let turn = rig.turns.turn();
    let view = &rig.readers.ports.read(&turn)[0];
    assert_eq!((view.address, view.link_local), (mac(0, 2), link_local(mac(0, 2)).to_bits()));
}

#[test]
fn addresses_that_no_port_can_have_are_refused() {
    let mut rig = Rig::new(2);
    for (address, len, why) in [
        ("10.0.0.1", 24, "port eth0 has this address"),
        ("10.9.0.1", 33, "0 to 32"),
        ("10.9.0.0", 24, "first and last address"),
        ("10.9.0.255", 24, "first and last address"),
        ("224.0.0.1", 24, "one host"),
        ("0.0.0.0", 0, "one host"),
        ("127.0.0.1", 8, "one host"),
        ("ff02::1", 64, "one host"),
        ("::1", 128, "one host"),
        ("2001:db8::1", 129, "0 to 128"),
    ] {
        let error = rig.address(1, address, len).unwrap_err().to_string();
        assert!(error.contains(why), "{address}/{len}: {error}");
    }
    let error = rig.tables.remove_address(PortId(1), ip("10.0.0.1"), NOW).unwrap_err().to_string();
    assert!(error.contains("port eth1 has no such address"), "{error}");
}

#[test]
fn with_an_address_goes_what_hangs_on_it() {
    let mut rig = Rig::new(2);
    let before = (rig.tables.route_count::<u32>(), rig.tables.next_hops());
    rig.address(0, "10.9.0.1", 16).unwrap();
    rig.add("192.0.2.0/24", &via("10.9.0.254")).unwrap();
    rig.add("2001:db8:ff::/48", &via("2001:db8:0::fe")).unwrap();
    let several = [(ip("10.9.0.254"), 1), (ip("10.0.1.254"), 1)];
    let several = artery_l3::router::RouteSpec::multipath(several, Default::default());
    rig.add("198.51.100.0/24", &several).unwrap();
    for host in 1..200 {
        rig.know(0, &format!("10.9.1.{host}"), host);
    }
    rig.know(0, "10.0.0.7", 7);
    rig.know(1, "10.0.1.254", 9);
    let lost = rig.tables.remove_address(PortId(0), ip("10.9.0.1"), NOW).unwrap();
    let lost: Vec<_> = lost.iter().map(|lost| (lost.prefix, lost.gateways.clone(), lost.is_gone)).collect();
    let gateway = || vec![ip("10.9.0.254")];
    assert_eq!(
        lost,
        [(prefix("192.0.2.0/24"), gateway(), true), (prefix("198.51.100.0/24"), gateway(), false)]
    );
    // No orphan is left: no route, no next hop, no neighbor, but those of others (T1).
    assert_eq!((rig.tables.route_count::<u32>(), rig.tables.next_hops()), (before.0 + 1, before.1 + 2));
    let left: Vec<u32> = rig.tables.neighbors::<u32>(PortId(0), NOW).iter().map(|n| n.address).collect();
    assert_eq!(left, [0x0a00_0007]);
    assert_eq!(outcomes(&mut rig, ["192.0.2.1", "10.9.1.1", "10.9.0.1"]), [NoRoute; 3]);
    assert_eq!(rig.sent("198.51.100.1"), Some((1, mac(1, 9))));
}

#[test]
fn of_two_ports_in_one_network_one_that_is_up_forwards() {
    let mut rig = Rig::bare(2);
    rig.address(0, "10.0.0.1", 24).unwrap();
    rig.address(1, "10.0.0.2", 24).unwrap();
    rig.know(0, "10.0.0.9", 9);
    rig.know(1, "10.0.0.9", 9);
    assert_eq!(rig.sent("10.0.0.9"), Some((0, mac(0, 9))));
    rig.tables.set_up(PortId(0), false, NOW).unwrap();
    assert_eq!(rig.sent("10.0.0.9"), Some((1, mac(1, 9))));
    assert_eq!(outcomes(&mut rig, ["10.0.0.1", "10.0.0.2", "10.0.0.255"]), [Local, Local, Broadcast]);
    rig.tables.set_up(PortId(0), true, NOW).unwrap();
    assert_eq!(rig.sent("10.0.0.9"), Some((0, mac(0, 9))));
    rig.tables.remove_address(PortId(0), ip("10.0.0.1"), NOW).unwrap();
    assert_eq!(rig.sent("10.0.0.9"), Some((1, mac(1, 9))));
    rig.tables.remove_address(PortId(1), ip("10.0.0.2"), NOW).unwrap();
    assert_eq!(outcomes(&mut rig, ["10.0.0.9", "10.0.0.255"]), [NoRoute; 2]);
}

#[test]
fn networks_within_networks_are_told_apart() {
    let mut rig = Rig::bare(2);
    rig.address(0, "10.0.0.1", 8).unwrap();
    rig.address(1, "10.1.0.1", 16).unwrap();
    rig.add("192.0.2.0/24", &via("10.1.0.9")).unwrap();
    rig.add("198.51.100.0/24", &via("10.2.0.9")).unwrap();
    let ports = ["10.1.2.3", "10.2.2.3", "192.0.2.1", "198.51.100.1"].map(|to| rig.decide(to).port.0);
    assert_eq!(ports, [1, 0, 1, 0]);
}

#[test]
fn a_static_route_waits_while_a_port_is_connected_to_its_prefix() {
    let mut rig = Rig::new(2);
    rig.know(0, "10.0.0.9", 9);
    rig.add("192.0.2.0/24", &via("10.0.0.9")).unwrap();
    rig.address(1, "192.0.2.1", 24).unwrap();
    assert_eq!((rig.outcome("192.0.2.5"), rig.decide("192.0.2.5").port.0), (Unresolved, 1));
    rig.tables.remove_address(PortId(1), ip("192.0.2.1"), NOW).unwrap();
    assert_eq!(rig.sent("192.0.2.5"), Some((0, mac(0, 9))));
    rig.delete("192.0.2.0/24").unwrap();
    assert_eq!(rig.outcome("192.0.2.5"), NoRoute);
}

#[test]
fn a_port_that_is_down_says_so_and_comes_back() {
    let mut rig = Rig::new(2);
    rig.add("0.0.0.0/0", &via("10.0.1.9")).unwrap();
    rig.know(1, "10.0.1.9", 9);
    rig.tables.set_up(PortId(1), false, NOW).unwrap();
    let found = outcomes(&mut rig, ["8.8.8.8", "10.0.1.5", "10.0.1.1", "10.0.0.5"]);
    assert_eq!(found, [PortDown, PortDown, Local, Unresolved]);
    assert_eq!(rig.decide("8.8.8.8").port, PortId(1));
    rig.tables.set_up(PortId(1), true, NOW).unwrap();
    assert_eq!(rig.sent("8.8.8.8"), Some((1, mac(1, 9))));
}

#[test]
fn packets_are_no_longer_than_port_and_next_hop_allow() {
    use artery_l3::router::{RouteSpec, Target};
    let mut rig = Rig::new(1);
    let gateway = |mtu| RouteSpec::to(Target::Via { port: None, gateway: Some(ip("10.0.0.9")), mtu });
    rig.add("192.0.2.0/24", &gateway(Some(1400))).unwrap();
    rig.add("198.51.100.0/24", &gateway(None)).unwrap();
    let mtus = |rig: &mut Rig| ["192.0.2.1", "198.51.100.1", "10.0.0.5"].map(|to| rig.decide(to).mtu);
    assert_eq!(mtus(&mut rig), [1400, 1500, 1500]);
    rig.tables.set_mtu(PortId(0), 9000).unwrap();
    assert_eq!(mtus(&mut rig), [1400, 9000, 9000]);
    rig.tables.set_mtu(PortId(0), 1280).unwrap();
    assert_eq!(mtus(&mut rig), [1280; 3]);
}
