//! Interfaces that go down, come up and change: the router follows them, and says so.

use super::support::{answered, until_answered, with_net};
use std::time::{Duration, Instant};

/// What a link may take to be noticed.
const AT_ONCE: Duration = Duration::from_secs(1);

#[test]
fn a_port_that_goes_down_on_either_side_is_unreachable_until_it_is_up() {
    with_net("ports-down", 2, |net| {
        let router = net.start(&[])?;
        answered(net.a(), "10.0.2.2", 1)?;
        answered(net.a(), "fd00:2::2", 1)?;
        for (host, interface) in [(&net.r, "eth2"), (net.b(), "eth0")] {
            let start = Instant::now();
            host.down(interface)?;
            router.until_port("eth2", false)?;
            assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
            for (address, said) in [("10.0.2.2", "Destination Net Unreachable"), ("fd00:2::2", "No route")] {
                let report = net.a().ping(address, 2)?;
                assert!(report.errors == 2 && report.text.contains(said), "{}", report.text);
            }
            answered(net.a(), "10.0.1.1", 1)?;
            host.up(interface)?;
            router.until_port("eth2", true)?;
            // The host has lost its IPv6 addresses, and the routes by them.
            if host.name() == "b" {
                host.address(interface, "fd00:2::2/64")?.route("default", "fd00:2::1")?;
                host.route("default", "10.0.2.1")?;
            }
            assert!(until_answered(net.a(), "10.0.2.2")? < AT_ONCE);
            until_answered(net.a(), "fd00:2::2")?;
        }
        for what in ["down", "up"] {
            let events = router.events("port", what)?;
            assert_eq!(events.iter().filter(|event| event["port"] == "eth2").count(), 2, "{events:?}");
        }
        assert!(router.drops("port-down")? >= 8);
        router.end()
    });
}

#[test]
fn a_port_that_is_down_at_the_start_is_used_once_it_is_up() {
    with_net("ports-start", 2, |net| {
        net.b().down("eth0")?;
        let router = net.start_tentative(&[])?;
        router.until_claimed(3)?;
        assert_eq!(router.port("eth2")?["up"], false);
        assert_eq!(net.a().ping("10.0.2.2", 1)?.errors, 1);
        net.b().up("eth0")?.route("default", "10.0.2.1")?;
        net.b().address("eth0", "fd00:2::2/64")?.route("default", "fd00:2::1")?;
        router.until_claimed(6)?;
        answered(net.a(), "10.0.2.2", 2)?;
        answered(net.a(), "fd00:2::2", 2)?;
        router.end()
    });
}

#[test]
fn a_port_that_gets_another_address_tells_its_neighbors() {
    with_net("ports-address", 2, |net| {
        let router = net.start(&[])?;
        answered(net.a(), "10.0.2.2", 1)?;
        answered(net.a(), "fd00:2::2", 1)?;
        let known = |mac: &str| -> artery_rig::Result<usize> {
            let router = |address: &str| ["10.0.1.1", "fd00:1::1"].contains(&address);
            let known = net.a().neighbors()?.into_iter().filter(|n| router(&n.address.to_string()));
            Ok(known.filter(|n| n.mac.as_deref() == Some(mac)).count())
        };
        assert_eq!(known(&net.r.mac("eth1")?)?, 2);
        let new = "02:00:00:00:77:01";
        net.r.set_mac("eth1", new)?;
        router.until(|_| Ok(known(new)? == 2))?;
        answered(net.a(), "10.0.2.2", 3)?;
        answered(net.a(), "fd00:2::2", 3)?;
        assert_eq!(router.port("eth1")?["lladdr"], new);
        assert_eq!(router.port("eth1")?["link_local"], "fe80::ff:fe00:7701");
        router.end()
    });
}
