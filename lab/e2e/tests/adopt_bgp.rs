//! Routing daemons and adopted ports: sessions and adjacencies stay up, and packets follow the routes that
//! the daemons install in the kernel.

use crate::support::adopting::{Fan, by_kernel, with_gateways};
use crate::support::{SOON, until};
use artery_rig::{Daemons, Host, Result};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Prefixes that each gateway announces.
const PREFIXES: [&str; 2] = ["198.18.0.0/16", "2001:db8:ff::/64"];
/// The prefix that only the first one announces, on request.
const MOVING: &str = "198.18.7.0/24";

/// The router, in the words of BIRD.
fn router_by_bird(net: &Fan) -> Result<Daemons> {
    let mut config = "log stderr all; router id 10.0.0.1; protocol device { scan time 1; }
        protocol kernel { ipv4 { import none; export all; }; merge paths on; }
        protocol kernel { ipv6 { import none; export all; }; merge paths on; }
        protocol ospf v2 { ipv4 { import none; export none; };
            area 0 { interface \"eth1\", \"eth2\", \"eth3\" { hello 1; dead count 4; type ptp; }; }; }\n"
        .to_owned();
    for number in 1..=net.gateways.len() {
        let session = "connect delay time 1; connect retry time 1; error wait time 1, 2; hold time 3";
        for (family, local, neighbor) in addresses(number) {
            writeln!(
                config,
                "protocol bgp {{ local {local} as 65000; neighbor {neighbor} as 6500{number}; {session};
                {family} {{ import all; export none; }}; }}"
            )
            .unwrap();
        }
    }
    Daemons::bird(&net.r, &config)
}

/// A gateway's sessions: family, the router's address, the gateway's.
fn addresses(number: usize) -> [(&'static str, String, String); 2] {
    let v6 = format!("2001:db8:{number}::");
    [
        ("ipv4", format!("10.0.{number}.1"), format!("10.0.{number}.2")),
        ("ipv6", format!("{v6}1"), format!("{v6}2")),
    ]
}

/// The router, in the words of FRR, whose routes lead to next-hop objects.
fn router_by_frr(net: &Fan) -> Result<Daemons> {
    let mut config = "router bgp 65000
           bgp router-id 10.0.0.1
           no bgp ebgp-requires-policy
           bgp bestpath as-path multipath-relax
           timers bgp 1 3\n"
        .to_owned();
    let mut families = [String::new(), String::new()];
    for number in 1..=net.gateways.len() {
        for (at, (_, _, neighbor)) in addresses(number).into_iter().enumerate() {
            writeln!(config, " neighbor {neighbor} remote-as 6500{number}").unwrap();
            writeln!(config, " neighbor {neighbor} timers connect 1").unwrap();
            let is_active = format!("  neighbor {neighbor} activate\n");
            let is_not = format!("  no neighbor {neighbor} activate\n");
            families[at] += &is_active;
            families[1 - at] += &is_not;
        }
    }
    for (family, lines) in ["ipv4", "ipv6"].iter().zip(families) {
        write!(config, " address-family {family} unicast\n  maximum-paths 8\n{lines} exit-address-family\n")
            .unwrap();
    }
    let ospf = ospf_of_frr(&["eth1", "eth2", "eth3"], "10.0.0.1");
    Daemons::frr(&net.r, &[("bgpd", &config), ("ospfd", &ospf)])
}

fn ospf_of_frr(interfaces: &[&str], id: &str) -> String {
    let of = |interface: &&str| {
        format!(
            "interface {interface}\n ip ospf area 0\n ip ospf network point-to-point\
             \n ip ospf hello-interval 1\n ip ospf dead-interval 4\nexit\n"
        )
    };
    let interfaces: String = interfaces.iter().map(of).collect();
    format!("{interfaces}router ospf\n ospf router-id {id}\nexit\n")
}

/// A gateway by BIRD, which also announces further IPv4 routes once its protocol `more` is enabled.
fn gateway_by_bird(host: &Host, number: usize, more: impl Iterator<Item = String>) -> Result<Daemons> {
    let [v4, v6] = PREFIXES;
    let mut config = format!(
        "log stderr all; router id 10.0.{number}.2; protocol device {{ scan time 1; }}
        protocol static {{ ipv4; route {v4} unreachable; }}
        protocol static {{ ipv6; route {v6} unreachable; }}
        protocol static moving {{ disabled; ipv4; route {MOVING} unreachable; }}
        protocol ospf v2 {{ ipv4 {{ import none; export none; }};
            area 0 {{ interface \"eth0\" {{ hello 1; dead count 4; type ptp; }}; }}; }}\n"
    );
    for (family, router, own) in addresses(number) {
        let session = "connect delay time 1; connect retry time 1; error wait time 1, 2; hold time 3";
        writeln!(
            config,
            "protocol bgp {{ local {own} as 6500{number}; neighbor {router} as 65000; {session};
            {family} {{ import none; export all; }}; }}"
        )
        .unwrap();
    }
    config += "protocol static more { disabled; ipv4;\n";
    more.for_each(|prefix| writeln!(config, "route {prefix} unreachable;").unwrap());
    config += "}\n";
    Daemons::bird(host, &config)
}

/// A gateway by FRR, which learns nothing.
fn gateway_by_frr(host: &Host, number: usize) -> Result<Daemons> {
    let [(_, router4, own4), (_, router6, _)] = addresses(number);
    let [v4, v6] = PREFIXES;
    let config = format!(
        "router bgp 6500{number}
             bgp router-id {own4}
             no bgp ebgp-requires-policy
             no bgp network import-check
             timers bgp 1 3
             neighbor {router4} remote-as 65000
             neighbor {router6} remote-as 65000
             neighbor {router4} timers connect 1
             neighbor {router6} timers connect 1
             address-family ipv4 unicast
              network {v4}
              neighbor {router4} route-map nothing in
              no neighbor {router6} activate
             exit-address-family
             address-family ipv6 unicast
              network {v6}
              neighbor {router6} activate
              neighbor {router6} route-map nothing in
             exit-address-family
             exit
             route-map nothing deny 1\n"
    );
    Daemons::frr(host, &[("bgpd", &config), ("ospfd", &ospf_of_frr(&["eth0"], &own4))])
}

/// How many neighbors of the router have all that it knows of the topology.
fn full_neighbors(router: &Daemons, is_bird: bool) -> Result<usize> {
    let said = match is_bird {
        true => router.birdc("show ospf neighbors")?,
        false => router.vtysh(&["show ip ospf neighbor"])?,
    };
    Ok(said.matches("Full").count())
}

/// Flows of both families, which differ in their destinations.
fn flows(count: u16) -> Vec<(IpAddr, u16)> {
    let v4 = (0..count).map(|number| [198, 18, (number >> 8) as u8, number as u8].into());
    let v6 = (0..count).map(|number| [0x2001, 0xdb8, 0xff, 0, 0, 0, number * 7, number].into());
    v4.chain(v6).map(|address| (address, 2000)).collect()
}

/// By how many next hops the kernel sends flows of each family.
fn next_hops(net: &Fan) -> Result<[usize; 2]> {
    let count = |prefix: &str| -> Result<usize> {
        let family = if prefix.contains(':') { "-6" } else { "-4" };
        let routes = net.r.run(["ip", family, "route", "show", prefix])?.stdout;
        Ok(routes.matches("nexthop").count())
    };
    Ok([count(PREFIXES[0])?, count(PREFIXES[1])?])
}

/// Waits until all of these gateways get flows, none of the others does, and the kernel
/// has nothing to forward.
fn until_fast_by(net: &Fan, expected: [bool; 3]) -> Result<()> {
    until(SOON, || {
        let before = by_kernel(&net.r)?;
        let each = net.send(&flows(600))?;
        let share = |goes| {
            each.iter().sum::<u64>() * u64::from(goes) / expected.iter().filter(|goes| **goes).count() as u64
        };
        let is_share = |(count, goes): (&u64, bool)| count.abs_diff(share(goes)) <= share(goes) / 5;
        Ok(each.iter().zip(expected).all(is_share) && by_kernel(&net.r)? == before)
    })
}

/// Time from the start of a change to the arrival of the stream's first packet at a gateway.
fn moves(net: &Fan, to: &Host, change: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let destination = "198.18.7.1:2000";
    let receiver = to.enter(|| UdpSocket::bind(destination).expect("a port"))?;
    receiver.set_read_timeout(Some(SOON)).expect("a limit");
    let sender = net.a.enter(|| UdpSocket::bind("0.0.0.0:0").expect("a port"))?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = sender.send_to(b"x", destination);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let start = Instant::now();
        let changed = change();
        let received = receiver.recv(&mut [0]);
        is_over.store(true, Ordering::Relaxed);
        changed?;
        assert!(received.is_ok(), "no packet came within {SOON:?}");
        Ok(start.elapsed())
    })
}

fn shell(net: &Fan, command: &str) -> Result<()> {
    net.r.run(["sh", "-c", command]).map(drop)
}

fn daemons_and_packets_agree(label: &str, is_bird: bool) {
    with_gateways(label, 3, |net| {
        let router = if is_bird { router_by_bird(net)? } else { router_by_frr(net)? };
        let [one, two, three] = &net.gateways[..] else { panic!("three gateways") };
        let first = gateway_by_bird(one, 1, std::iter::empty())?;
        let _second = gateway_by_frr(two, 2)?;
        let _third = gateway_by_bird(three, 3, std::iter::empty())?;
        let mut adopted = net.adopt("tc")?;
        // What is sent before there are routes is lost.
        until(SOON, || Ok(next_hops(net)? == [3, 3]))?;
        until_fast_by(net, [true, true, true])?;
        until(SOON, || Ok(full_neighbors(&router, is_bird)? == 3))?;
        // The stream goes by the third gateway until there is a longer prefix than this.
        let route = |words: &str| shell(net, &format!("ip route {words}"));
        route("add 198.18.6.0/23 via 10.0.3.2")?;
        let by_bgp = moves(net, one, || first.birdc("enable moving").map(drop))?;
        first.birdc("disable moving")?;
        until(SOON, || Ok(net.r.run(["ip", "route", "show", MOVING])?.stdout.is_empty()))?;
        let by_hand = moves(net, two, || route("add 198.18.7.0/25 via 10.0.2.2"))?;
        let back = moves(net, three, || route("replace 198.18.7.0/25 via 10.0.3.2"))?;
        eprintln!("{label}: packets follow BGP after {by_bgp:?}, ip route after {by_hand:?} and {back:?}");
        route("del 198.18.7.0/25")?;
        route("del 198.18.6.0/23")?;
        // No adjacency is lost for twice the time that one lives without a word.
        let end = Instant::now() + Duration::from_secs(8);
        while Instant::now() < end {
            until_fast_by(net, [true, true, true])?;
            assert_eq!(full_neighbors(&router, is_bird)?, 3, "adjacencies live");
        }
        three.down("eth0")?;
        until_fast_by(net, [true, true, false])?;
        adopted.stop(SOON).map(drop)
    });
}

#[test]
fn packets_follow_bird_whose_peers_are_bird_and_frr() {
    daemons_and_packets_agree("adopt-bird", true);
}

#[test]
fn packets_follow_frr_whose_peers_are_bird_and_frr() {
    daemons_and_packets_agree("adopt-frr", false);
}

/// Number of routes that a peer announces: usually, and with `ARTERY_LONG=1` in the environment.
const FEED: u32 = 50_000;
const FULL_FEED: u32 = 900_000;

/// The address of a /24 of the feed, and of some host in it.
fn fed(number: u32) -> (String, IpAddr) {
    let first = 32 << 24 | number << 8;
    (format!("{}/24", Ipv4Addr::from(first)), Ipv4Addr::from(first | (number % 254 + 1)).into())
}

/// Waits until the router's kernel has so many routes of the feed.
fn until_fed(net: &Fan, count: u32, is_long: bool) -> Result<()> {
    let limit = Instant::now() + if is_long { 60 * SOON } else { 6 * SOON };
    loop {
        let said = net.r.run(["sh", "-c", "ip route show root 32.0.0.0/4 | wc -l"])?.stdout;
        if said.trim() == count.to_string() {
            return Ok(());
        }
        assert!(Instant::now() < limit, "the kernel has {} routes, not {count}", said.trim());
    }
}

#[test]
fn a_feed_of_bird_comes_and_goes() {
    with_gateways("adopt-feed", 1, |net| {
        let is_long = std::env::var_os("ARTERY_LONG").is_some();
        let count = if is_long { FULL_FEED } else { FEED };
        let gateway = &net.gateways[0];
        gateway.run(["ip", "route", "add", "local", "32.0.0.0/4", "dev", "lo"])?;
        let peer = gateway_by_bird(gateway, 1, (0..count).map(|number| fed(number).0))?;
        let _router = router_by_bird(net)?;
        let mut adopted = net.adopt("tc")?;
        let start = Instant::now();
        peer.birdc("enable more")?;
        let some: Vec<(IpAddr, u16)> =
            (0..1000).map(|number| (fed(number * (count / 1000)).1, 2000)).collect();
        until_fed(net, count, is_long)?;
        let known = start.elapsed();
        until(SOON, || {
            let before = by_kernel(&net.r)?;
            net.send(&some)?;
            Ok(by_kernel(&net.r)? == before)
        })?;
        eprintln!("{count} routes: in the kernel after {known:?}, fast after {:?}", start.elapsed());
        // The routes to them are withdrawn again.
        peer.birdc("disable more")?;
        until_fed(net, 0, is_long)?;
        until(SOON, || {
            let pings = net.a.ping_with(&some[500].0.to_string(), 1, &["-W", "1"])?;
            Ok(pings.received == 0 && pings.errors > 0)
        })?;
        until(SOON, || {
            let before = by_kernel(&net.r)?;
            net.send(&flows(100))?;
            Ok(by_kernel(&net.r)? == before)
        })?;
        adopted.stop(SOON).map(drop)
    });
}
