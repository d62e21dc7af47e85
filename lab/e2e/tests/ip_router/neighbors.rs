//! Neighbors: found by ARP and Neighbor Discovery, followed when they move, asked again in time, given up.

use super::support::{Net, Router, answered, until_answered, with_net};
use crate::support::meanwhile;
use artery_rig::{Frame, Host, Result, Traffic};
use artery_wire::build::arp_request;
use artery_wire::nd::NdMessage;
use artery_wire::{Arp, EtherAddr, EtherType, Ethernet};
use std::time::Duration;

/// The ARP requests for an address among frames.
fn requests(frames: &[Frame], address: &str) -> Vec<Frame> {
    let asks = |frame: &&Frame| {
        let ethernet = Ethernet::new(&frame.bytes[..]).unwrap();
        let arp = Arp::new(&frame.bytes[14..]).ok().filter(|_| ethernet.ether_type() == EtherType::ARP);
        arp.is_some_and(|arp| arp.is_request() && arp.target_ip().to_string() == address)
    };
    frames.iter().filter(asks).cloned().collect()
}

/// To whom neighbor solicitations for an address went.
fn solicited(frames: &[Frame], address: &str) -> Vec<EtherAddr> {
    let asks = |frame: &&Frame| {
        let ethernet = Ethernet::new(&frame.bytes[..]).unwrap();
        let message = (ethernet.ether_type() == EtherType::IPV6)
            .then(|| NdMessage::parse_packet(&frame.bytes[14..]).ok());
        match message.flatten() {
            Some(NdMessage::NeighborSolicitation(asked)) => asked.target().to_string() == address,
            _ => false,
        }
    };
    frames.iter().filter(asks).map(|frame| Ethernet::new(&frame.bytes[..]).unwrap().dst()).collect()
}

fn mac_of_neighbor(host: &Host, address: &str) -> Result<Option<String>> {
    Ok(host
        .neighbors()?
        .into_iter()
        .find(|neighbor| neighbor.address.to_string() == address)
        .and_then(|n| n.mac))
}

#[test]
fn hosts_find_the_router_and_the_router_finds_hosts() {
    with_net("neighbors-find", 2, |net| {
        let router = net.start(&[])?;
        for (through, host, own) in
            [("10.0.2.2", "10.0.1.2", "10.0.1.1"), ("fd00:2::2", "fd00:1::2", "fd00:1::1")]
        {
            answered(net.b(), host, 3)?;
            answered(net.a(), through, 1)?;
            let found = router.neighbor(host)?.unwrap();
            assert_eq!((&found["dev"], &found["lladdr"]), (&"eth1".into(), &net.a().mac("eth0")?.into()));
            assert_eq!(found["state"], "REACHABLE", "{found}");
            assert_eq!(mac_of_neighbor(net.a(), own)?, Some(net.r.mac("eth1")?));
        }
        // The router learns a neighbor that solicits it; it answers for no other address.
        let answered_by = |address: &str| {
            net.a().command(["arping", "-c", "2", "-W", "0.1", "-I", "eth0", address]).output()
        };
        let own = answered_by("10.0.1.1")?.stdout;
        assert_eq!(own.matches(&net.r.mac("eth1")?).count(), 2, "{own}");
        let other = answered_by("10.0.1.77")?.stdout;
        assert!(other.contains("0 packets received"), "{other}");
        router.end()
    });
}

#[test]
fn a_host_that_gets_another_address_is_followed_at_once() {
    with_net("neighbors-move", 2, |net| {
        let router = net.start(&[])?;
        for (to, family, notify) in [
            ("10.0.1.2", "02:00:00:00:66:04", "net.ipv4.conf.eth0.arp_notify"),
            ("fd00:1::2", "02:00:00:00:66:06", "net.ipv6.conf.eth0.ndisc_notify"),
        ] {
            answered(net.b(), to, 1)?;
            net.a().sysctl(notify, "1")?;
            let traffic = Traffic::between(net.b(), net.a(), to).frames(1500).rate(1000);
            let (report, ()) = meanwhile(traffic, |_| {
                std::thread::sleep(Duration::from_millis(500));
                net.a().set_mac("eth0", family).map(drop)
            })?;
            assert!(report.lost <= 300, "{to} is lost for less than a third of a second: {report}");
            assert_eq!(router.neighbor(to)?.unwrap()["lladdr"], family);
            let moved = router.events("neighbor", "moved")?;
            assert!(moved.iter().any(|event| event["dst"] == to && event["lladdr"] == family), "{moved:?}");
        }
        router.end()
    });
}

#[test]
fn a_neighbor_that_was_quiet_for_long_is_asked_alone_and_no_packet_waits_for_it() {
    with_net("neighbors-refresh", 2, |net| {
        let router = net.start(&[])?;
        // The entry comes from the host's own solicitation, so its reachability is not confirmed yet.
        answered(net.a(), "fd00:1::1", 1)?;
        assert_eq!(router.neighbor("fd00:1::2")?.unwrap()["state"], "STALE");
        answered(net.b(), "fd00:2::1", 1)?;
        let report = Traffic::between(net.b(), net.a(), "fd00:1::2").cold().frames(3250).rate(500).run()?;
        assert_eq!((report.received, report.reordered), (3250, 0), "{report}");
        let mac: EtherAddr = net.a().mac("eth0")?.parse().unwrap();
        assert_eq!(solicited(&router.sent_to(0), "fd00:1::2"), [mac]);
        assert_eq!(router.neighbor("fd00:1::2")?.unwrap()["state"], "REACHABLE");
        assert_eq!(router.count("held")?, router.count("released")?);
        router.end()
    });
}

#[test]
fn who_does_not_answer_is_asked_so_often_and_then_unreachable_for_a_while() {
    with_net("neighbors-silent", 2, |net| {
        let router = net.start(&[])?;
        let ping = |address: &str| net.b().ping_with(address, 1, &["-W", "8"]);
        let (v4, v6) = std::thread::scope(|scope| {
            let v4 = scope.spawn(|| ping("10.0.1.99"));
            let v6 = ping("fd00:1::99");
            (v4.join().unwrap(), v6)
        });
        for (report, from, said) in
            [(v4?, "10.0.2.1", "Destination Host Unreachable"), (v6?, "fd00:2::1", "Address unreachable")]
        {
            assert!(report.text.contains(&format!("From {from} icmp_seq=1")), "{}", report.text);
            assert!(report.errors == 1 && report.text.contains(said), "{}", report.text);
        }
        let asked = requests(&router.sent_to(0), "10.0.1.99");
        assert_eq!(asked.len(), 5);
        let gaps = asked.windows(2).map(|pair| pair[1].time - pair[0].time);
        assert!(gaps.clone().all(|gap| gap > Duration::from_millis(900)), "{:?}", gaps.collect::<Vec<_>>());
        assert_eq!(solicited(&router.sent_to(0), "fd00:1::99").len(), 3);
        // From now on there is an answer at once.
        let report = net.b().ping_with("10.0.1.99", 1, &["-W", "1"])?;
        assert_eq!(report.errors, 1, "{}", report.text);
        assert_eq!(requests(&router.sent_to(0), "10.0.1.99").len(), 5);
        // Until it speaks up.
        net.a()
            .address("eth0", "10.0.1.99/24")?
            .run("arping -c 1 -S 10.0.1.99 -I eth0 10.0.1.1".split(' '))?;
        answered(net.b(), "10.0.1.99", 3)?;
        router.end()
    });
}

#[test]
fn what_is_set_by_hand_is_not_overwritten_until_it_is_removed() {
    with_net("neighbors-static", 2, |net| {
        let router = net.start(&["--neighbor", "eth1=10.0.1.2=02:00:00:00:66:66"])?;
        let ping = || net.b().ping_with("10.0.1.2", 2, &["-W", "0.2"]);
        assert_eq!(ping()?.lost(), 2, "frames go to a MAC address that is gone");
        net.a().run(["arping", "-c", "1", "-I", "eth0", "10.0.1.1"])?;
        assert_eq!(ping()?.lost(), 2);
        let refused = router.events("neighbor", "refused")?;
        assert!(refused.iter().any(|event| event["dst"] == "10.0.1.2"), "{refused:?}");
        assert_eq!(router.port("eth1")?["arp"]["neighbor-changes-refused"], refused.len());
        router.say(&["neighbor", "del", "10.0.1.2", "dev", "eth1"])?;
        assert!(until_answered(net.b(), "10.0.1.2")? < Duration::from_secs(1));
        let proxy = "neighbor add 10.0.1.50 lladdr 02:00:00:00:66:50 dev eth1 published";
        router.say(&proxy.split(' ').collect::<Vec<_>>())?;
        // No host is there, but this host has a neighbor entry for it.
        net.a().ping_with("10.0.1.50", 1, &["-W", "0.2"])?;
        assert_eq!(mac_of_neighbor(net.a(), "10.0.1.50")?.as_deref(), Some("02:00:00:00:66:50"));
        router.end()
    });
}

fn proxied(net: &Net, router: &Router, address: &str) -> Result<bool> {
    let frame = arp_request(net.a().mac("eth0")?.as_str(), "10.0.1.2", address);
    let answers = router.count("neighbor-answers-sent")?;
    net.a().transmit("eth0", &[frame.bytes()])?;
    std::thread::sleep(Duration::from_millis(100));
    Ok(router.count("neighbor-answers-sent")? > answers)
}

#[test]
fn a_proxy_answers_for_those_behind_other_ports_alone() {
    with_net("neighbors-proxy", 2, |net| {
        let router =
            net.start_changed(&[], |config| config.replace("PORT eth1 ", "PORT eth1 PROXY_ARP true "))?;
        router.until_claimed(6)?;
        for (address, expected) in
            [("10.0.2.2", true), ("10.0.2.77", true), ("10.0.1.77", false), ("10.0.7.7", false)]
        {
            assert_eq!(proxied(net, &router, address)?, expected, "{address}");
        }
        // A host that takes all of 10.0.0.0/16 for its own network.
        net.a().run(["ip", "address", "flush", "dev", "eth0", "scope", "global"])?;
        net.a().address("eth0", "10.0.1.2/16")?;
        answered(net.a(), "10.0.2.2", 3)?;
        assert_eq!(mac_of_neighbor(net.a(), "10.0.2.2")?, Some(net.r.mac("eth1")?));
        router.end()
    });
}
