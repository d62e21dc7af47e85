//! Several next hops for one prefix: flows are shared out, stay where they are, and leave those that die. And
//! IPv4 by a next hop that speaks IPv6 alone.

use super::support::{HOST_LINK, Net, Router, answered, with_net};
use artery_rig::{Host, Result};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// The destination behind all next hops.
const FAR4: &str = "10.9.0.1";
const FAR6: &str = "fd09::1";
/// Flows, enough that a third of them is near a third.
const FLOWS: usize = 300;
/// How long what is sent may take to arrive.
const TRAVEL: Duration = Duration::from_millis(150);

/// Flows from `a` to a destination that the other hosts all have.
struct Flows {
    senders: Vec<UdpSocket>,
    /// One at each of the other hosts.
    receivers: Vec<UdpSocket>,
    round: u32,
}

impl Flows {
    fn new(net: &Net, far: &str) -> Result<Flows> {
        let is_v4 = !far.contains(':');
        let any = || if is_v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let bind = move |port| UdpSocket::bind(SocketAddr::new(any(), port)).unwrap();
        let mut receivers = Vec::new();
        for host in &net.hosts[1..] {
            host.address("lo", &format!("{far}/{}", if is_v4 { 32 } else { 128 }))?;
            let receiver = host.enter(|| bind(7777))?;
            receiver.set_nonblocking(true).unwrap();
            receivers.push(receiver);
        }
        let senders = net.a().enter(|| (0..FLOWS).map(|_| bind(0)).collect::<Vec<_>>())?;
        let far = SocketAddr::new(far.parse().unwrap(), 7777);
        senders.iter().for_each(|sender| sender.connect(far).unwrap());
        Ok(Flows { senders, receivers, round: 0 })
    }

    /// Sends a datagram of each flow; returns at which host each arrived, by its source port.
    fn send(&mut self) -> BTreeMap<u16, usize> {
        self.round += 1;
        for sender in &self.senders {
            // An error that came back for an earlier one shows here.
            while sender.send(&self.round.to_be_bytes()).is_err() {}
        }
        let mut arrived = BTreeMap::new();
        let end = Instant::now() + TRAVEL;
        while Instant::now() < end && arrived.len() < FLOWS {
            for (host, receiver) in self.receivers.iter().enumerate() {
                let mut round = [0; 4];
                while let Ok((_, from)) = receiver.recv_from(&mut round) {
                    if round == self.round.to_be_bytes() {
                        assert_eq!(arrived.insert(from.port(), host), None, "twice");
                    }
                }
            }
        }
        arrived
    }

    /// Sends until every flow arrives; returns where.
    fn settle(&mut self) -> BTreeMap<u16, usize> {
        let deadline = Instant::now() + Duration::from_secs(15);
        loop {
            let arrived = self.send();
            if arrived.len() == FLOWS {
                return arrived;
            }
            assert!(Instant::now() < deadline, "only {} flows of {FLOWS} arrive", arrived.len());
        }
    }
}

/// How many flows each host has.
fn shares(flows: &BTreeMap<u16, usize>) -> [usize; 3] {
    [0, 1, 2].map(|host| flows.values().filter(|at| **at == host).count())
}

/// A third of the flows, give or take five standard deviations of a fair coin.
fn is_fair(share: usize) -> bool {
    (FLOWS / 3).abs_diff(share) <= 41
}

fn gateways(family: &str) -> String {
    let of = |n: usize| if family == "4" { format!("10.0.{n}.2") } else { format!("fd00:{n}::2") };
    (2..5).map(of).collect::<Vec<_>>().join(" ")
}

fn start(net: &Net, family: &str) -> Result<Router> {
    let router = net.start(&[])?;
    let prefix = if family == "4" { "10.9.0.0/16" } else { "fd09::/16" };
    router.handler(&["ip.add_route", &format!("{prefix} {} by resilient", gateways(family))])?;
    Ok(router)
}

/// Every flow of those alive is where it was; returns how many came to each from the one that died.
fn judge_moves(before: &BTreeMap<u16, usize>, after: &BTreeMap<u16, usize>, dead: usize) -> [usize; 3] {
    let mut moved = [0; 3];
    for (flow, host) in before {
        match *host == dead {
            true => moved[after[flow]] += 1,
            false => assert_eq!(after[flow], *host, "flow {flow} has moved for nothing"),
        }
    }
    assert_eq!(moved[dead], 0);
    moved
}

fn announce(what: &str, time: Duration, moved: [usize; 3]) {
    println!("next hop {what}: all flows arrive again after {time:?}; moved to each: {moved:?}");
}

#[test]
fn flows_leave_a_next_hop_whose_link_goes_down_and_no_other() {
    with_net("next-hops-link", 4, |net| {
        let router = start(net, "4")?;
        let mut flows = Flows::new(net, FAR4)?;
        let before = flows.settle();
        assert!(shares(&before).into_iter().all(is_fair), "{:?}", shares(&before));
        assert_eq!(flows.send(), before, "each stays where it is");
        let start = Instant::now();
        net.hosts[2].down(HOST_LINK)?;
        let after = flows.settle();
        let time = start.elapsed();
        let moved = judge_moves(&before, &after, 1);
        announce("whose link went down", time, moved);
        assert!(moved[0] >= 20 && moved[2] >= 20, "{moved:?}");
        // The link reports it: unicast solicitations alone would take 8 s (RFC 4861 section 10).
        assert!(time < Duration::from_secs(5), "{time:?}");
        net.hosts[2].up(HOST_LINK)?;
        router.until_port("eth3", true)?;
        // It gets its share back step by step, while the others go on.
        while shares(&flows.settle())[1] == 0 {
            assert!(start.elapsed() < Duration::from_secs(10), "it gets none back");
        }
        let events = router.events("nexthop", "down")?;
        assert!(events.iter().any(|event| event["dst"] == "10.0.3.2"), "{events:?}");
        router.end()
    });
}

#[test]
fn flows_leave_a_next_hop_that_answers_no_more_though_its_link_is_up() {
    with_net("next-hops-silent", 4, |net| {
        let router = start(net, "6")?;
        for host in &net.hosts[1..] {
            let own = format!(
                "fd00:{}::1",
                net.hosts.iter().position(|other| other.name() == host.name()).unwrap() + 1
            );
            // It is known from its question, and so will be asked itself once it is used for a while.
            answered(host, &own, 1)?;
        }
        let mut flows = Flows::new(net, FAR6)?;
        let before = flows.settle();
        assert!(shares(&before).into_iter().all(is_fair), "{:?}", shares(&before));
        let start = Instant::now();
        net.hosts[2].drop_one_in(HOST_LINK, 1, "")?;
        let after = flows.settle();
        let time = start.elapsed();
        announce("that died in silence", time, judge_moves(&before, &after, 1));
        // 5 s until it is asked, and three questions a second apart (RFC 4861 section 10).
        assert!(time < Duration::from_secs(12), "{time:?}");
        let failed = router.events("neighbor", "failed")?;
        assert!(failed.iter().any(|event| event["dst"] == "fd00:3::2"), "{failed:?}");
        router.end()
    });
}

fn link_local(host: &Host) -> Result<String> {
    let text = host.run(["ip", "-6", "-o", "address", "show", "dev", HOST_LINK, "scope", "link"])?.stdout;
    Ok(text.split_whitespace().find_map(|word| word.strip_suffix("/64")).unwrap().to_string())
}

#[test]
fn ipv4_goes_by_a_next_hop_that_speaks_ipv6_alone() {
    with_net("next-hops-rfc8950", 2, |net| {
        let b = net.b();
        b.run(["ip", "-4", "address", "flush", "dev", HOST_LINK])?;
        b.address("lo", "10.9.0.1/32")?;
        let gateway = format!("10.9.0.0/16={}%eth2", link_local(b)?);
        let router = net.start(&["--route", &gateway])?;
        let ours = router.port("eth2")?["link_local"].as_str().unwrap().to_string();
        let back = format!("ip route add 10.0.1.0/24 via inet6 {ours} dev {HOST_LINK} src 10.9.0.1");
        b.run(back.split(' '))?;
        answered(net.a(), "10.9.0.1", 5)?;
        let tcp = net.a().iperf3(b, "10.9.0.1", &["-n", "1M"])?;
        assert!(tcp.bits_per_second > 1e6, "{tcp:?}");
        let got = router.say(&["route", "get", "10.9.0.1"])?;
        assert!(got.contains(&link_local(b)?), "{got}");
        assert_eq!(router.port("eth2")?["arp"]["neighbor-questions"], 0, "no ARP request");
        router.end()
    });
}
