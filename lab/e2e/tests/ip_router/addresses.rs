//! The router's own addresses: checked for duplicates, announced, and defended when another host claims one.

use super::support::{Router, answered, with_net};
use artery_rig::{Frame, Result};
use artery_wire::build::{arp_request, ether, ip4};
use artery_wire::{Arp, EtherType, Ethernet};
use std::time::Duration;

/// ARP announcements by which a host claims an address.
fn told(frames: &[Frame], address: &str) -> usize {
    let tells = |frame: &&Frame| {
        let ethernet = Ethernet::new(&frame.bytes[..]).unwrap();
        let arp = Arp::new(&frame.bytes[14..]).ok().filter(|_| ethernet.ether_type() == EtherType::ARP);
        let tells =
            |arp: Arp<&[u8]>| arp.sender_ip() == arp.target_ip() && arp.sender_ip().to_string() == address;
        ethernet.dst().is_broadcast() && arp.is_some_and(tells)
    };
    frames.iter().filter(tells).count()
}

fn is_duplicate(router: &Router, port: &str, address: &str) -> Result<bool> {
    let duplicates = router.port(port)?["duplicates"].as_array().unwrap().clone();
    Ok(duplicates.iter().any(|duplicate| duplicate == address))
}

#[test]
fn addresses_are_told_to_all_when_the_router_begins() {
    with_net("addresses-told", 2, |net| {
        let router = net.start(&[])?;
        router.until(|router| Ok(told(&router.sent_to(0), "10.0.1.1") == 2))?;
        assert_eq!(router.drops("device-down")?, 0, "nothing is said before it can be sent");
        router.end()
    });
}

#[test]
fn an_ipv6_address_that_a_host_has_already_is_reported_and_not_used() {
    with_net("addresses-dad", 2, |net| {
        net.a().address("eth0", "fd00:1::1/64")?;
        let router = net.start_tentative(&[])?;
        router.until_claimed(5)?;
        router.until(|router| is_duplicate(router, "eth1", "fd00:1::1"))?;
        let events = router.events("address", "duplicate")?;
        let found = events
            .iter()
            .any(|event| event["dst"] == "fd00:1::1" && event["lladdr"] == net.a().mac("eth0").unwrap());
        assert!(found, "{events:?}");
        let shown = router.say(&["show", "ports"])?;
        assert!(shown.contains("fd00:1::1"), "{shown}");
        // The router does not answer as what it is not; its other addresses and what goes through
        // it do as ever.
        assert_eq!(net.b().ping_with("fd00:1::1", 2, &["-W", "0.2"])?.received, 0);
        assert_eq!(router.drops("address-unclaimed")?, 2);
        answered(net.b(), "fd00:2::1", 2)?;
        answered(net.b(), "10.0.1.2", 2)?;
        router.end()
    });
}

#[test]
fn an_ipv4_address_is_used_only_after_probes_if_that_is_asked_for() {
    with_net("addresses-acd", 2, |net| {
        net.a().address("eth0", "10.0.1.1/24")?;
        let router = net.start_changed(&[], |config| config.replace("IPRouter(", "IPRouter(ACD true, "))?;
        router.until(|router| is_duplicate(router, "eth1", "10.0.1.1"))?;
        assert_eq!(net.b().ping_with("10.0.1.1", 1, &["-W", "0.2"])?.received, 0);
        router.until(|router| {
            Ok(router.events("address", "claimed")?.iter().any(|event| event["dst"] == "10.0.2.1"))
        })?;
        assert_eq!(told(&router.sent_to(0), "10.0.1.1"), 0, "addresses of others are never announced");
        answered(net.b(), "10.0.2.1", 2)?;
        router.end()
    });
}

#[test]
fn an_ipv4_address_in_use_is_defended_and_whoever_takes_it_is_never_learnt() {
    with_net("addresses-defend", 2, |net| {
        let router = net.start(&[])?;
        answered(net.b(), "10.0.1.1", 1)?;
        router.until(|router| Ok(told(&router.sent_to(0), "10.0.1.1") == 2))?;
        let thief = "02:00:00:00:66:01";
        let takes = arp_request(thief, "10.0.1.1", "10.0.1.1").bytes();
        net.a().transmit("eth0", &vec![takes; 20])?;
        router.until(|router| Ok(router.count("address-conflicts")? == 20))?;
        router.until(|router| Ok(told(&router.sent_to(0), "10.0.1.1") == 3))?;
        let defended = router.events("address", "defended")?;
        assert!(
            defended.iter().any(|event| event["dst"] == "10.0.1.1" && event["lladdr"] == thief),
            "{defended:?}"
        );
        assert_eq!(router.neighbor("10.0.1.1")?, None);
        answered(net.b(), "10.0.1.1", 2)?;
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(told(&router.sent_to(0), "10.0.1.1"), 3, "one defense in ten seconds, no war");
        // A packet from the router's own address is refused, too.
        let own = ip4().src("10.0.1.1").dst("10.0.2.2").udp(1, 2);
        let frame = ether(net.r.mac("eth1")?.as_str(), thief).ip4(own).bytes();
        net.a().transmit("eth0", &[frame])?;
        router.until(|router| Ok(router.drops("own-source")? == 1))?;
        router.end()
    });
}
