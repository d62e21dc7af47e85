//! Floods, scans and forged frames, while others talk: these lose next to nothing, the router takes no more
//! memory than it may, and each flood is counted by name.

use super::support::{HOST_LINK, Net, Router, answered, until_answered, with_net};
use crate::support::SOON;
use artery_rig::{Host, Result, Traffic};
use artery_wire::Random;
use artery_wire::build::{Ip4, arp_reply, arp_request, ether, ip4, ip6};
use artery_wire::nd::{self, LinkEndpoint};
use artery_wire::{EtherAddr, IpProtocol};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Frames of a flood, sent by a burst and a pause in turns: at most 20,000 a second. More would ask how soon
/// a busy machine runs the worker, whose ring overflows meanwhile, and not what the router does with a flood.
const FRAMES: u32 = 30_000;
const BURST: usize = 400;
const PAUSE: Duration = Duration::from_millis(20);
/// Datagrams of those who talk, and how many a second.
const TALK: (u64, u64) = (2500, 1000);
/// Resident memory that a flood may add.
const MORE_KILOBYTES: u64 = 32 << 10;

/// A router with a third host `c` that attacks, whose network is 10.3.0.0/16.
fn attacked(label: &str, body: impl FnOnce(&Net, &Router) -> Result<()>) {
    with_net(label, 3, |net| {
        let c = &net.hosts[2];
        c.address(HOST_LINK, "10.3.0.2/16")?.run(["ip", "route", "replace", "default", "via", "10.3.0.1"])?;
        let router = net.start_changed(&[], |config| config.replace("10.0.3.1/24", "10.3.0.1/16"))?;
        router.until_claimed(9)?;
        answered(net.a(), "10.0.2.2", 1)?;
        answered(net.b(), "10.0.1.2", 1)?;
        body(net, &router)?;
        // It works as ever.
        answered(net.a(), "10.0.2.2", 3)?;
        router.end()
    });
}

/// Sends frames from a host by itself again and again while `a` talks to `b`, all of them once at least.
fn flood(net: &Net, router: &Router, attacker: &Host, frames: &[Vec<u8>]) -> Result<()> {
    let before = memory(router);
    let talk = Traffic::between(net.a(), net.b(), "10.0.2.2").frames(TALK.0).rate(TALK.1);
    let talks = AtomicBool::new(true);
    let (report, sent) = std::thread::scope(|scope| {
        let attack = scope.spawn(|| {
            let mut sent = 0;
            let mut link = attacker.injector(HOST_LINK)?;
            for burst in frames.chunks(BURST).cycle() {
                if sent >= frames.len() && !talks.load(Relaxed) {
                    break;
                }
                assert_eq!(link.send(burst), burst.len() as u64);
                sent += burst.len();
                std::thread::sleep(PAUSE);
            }
            Ok::<_, artery_rig::RigError>(sent)
        });
        let report = talk.run();
        talks.store(false, Relaxed);
        (report, attack.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause)))
    });
    let (report, sent) = (report?, sent?);
    println!("{sent} frames of the flood; {report}");
    assert!(report.received * 10 >= report.sent * 9, "{report}");
    let more = memory(router).saturating_sub(before);
    assert!(more < MORE_KILOBYTES, "the flood costs {more} kB");
    Ok(())
}

/// Resident memory of the router in kB.
fn memory(router: &Router) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", router.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn frames(seed: u64, of: impl Fn(u32, &mut Random) -> Vec<u8>) -> Vec<Vec<u8>> {
    println!("seed {seed}");
    let mut random = Random::new(seed);
    (0..FRAMES).map(|n| of(n, &mut random)).collect()
}

fn host_mac(n: u32) -> EtherAddr {
    let [a, b, c, d] = n.to_be_bytes();
    EtherAddr([2, 0x66, a, b, c, d])
}

/// An address of the attacker's network.
fn near(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a03_0100 + n % 0xfe00)
}

fn is_within(what: &str, count: u64, range: RangeInclusive<u64>) {
    println!("{what}: {count}");
    assert!(range.contains(&count), "{what}: {count}, not of {range:?}");
}

#[test]
fn arp_requests_from_thousands_of_hosts_disturb_nobody() {
    attacked("floods-arp", |net, router| {
        let c = &net.hosts[2];
        let frames = frames(1, |n, _| arp_request(host_mac(n), near(n), "10.3.0.1").bytes());
        flood(net, router, c, &frames)?;
        is_within("neighbors", router.neighbors_in("10.3.")?, 1..=u64::from(FRAMES));
        let (seen, limited) = (router.count("arp-received")?, router.count("neighbor-messages-limited")?);
        is_within("looked at and not", seen + limited, u64::from(FRAMES) / 2..=u64::MAX);
        Ok(())
    });
}

#[test]
fn solicitations_from_thousands_of_hosts_disturb_nobody() {
    attacked("floods-nd", |net, router| {
        let c = &net.hosts[2];
        let frames = frames(2, |n, _| {
            let ip = [0xfd00, 3, 0, 0, 0, 0x66, (n >> 16) as u16, n as u16].into();
            nd::neighbor_solicitation(
                LinkEndpoint { ether: host_mac(n), ip },
                "fd00:3::1".parse().unwrap(),
                None,
            )
        });
        flood(net, router, c, &frames)?;
        is_within("neighbors", router.neighbors_in("fd00:3:")?, 1..=u64::from(FRAMES));
        let (seen, limited) = (router.count("nd-received")?, router.count("neighbor-messages-limited")?);
        is_within("looked at and not", seen + limited, u64::from(FRAMES) / 2..=u64::MAX);
        Ok(())
    });
}

#[test]
fn forged_announcements_move_no_neighbor_of_another_link_and_make_none() {
    attacked("floods-forged", |net, router| {
        let c = &net.hosts[2];
        let frames = frames(3, |n, random| {
            let thief = host_mac(n);
            let victim: Ipv4Addr = match n % 4 {
                // Those who talk, on links of their own; the router itself; anybody.
                0 => "10.0.2.2".parse().unwrap(),
                1 => "10.0.1.2".parse().unwrap(),
                2 => "10.3.0.1".parse().unwrap(),
                _ => near(random.next() as u32),
            };
            match n % 8 < 4 {
                true => arp_request(thief, victim, victim).bytes(),
                false => arp_reply(thief, victim, EtherAddr::BROADCAST, victim).bytes(),
            }
        });
        flood(net, router, c, &frames)?;
        assert_eq!(router.neighbors_in("10.3.")?, 0);
        for (address, host) in [("10.0.1.2", net.a()), ("10.0.2.2", net.b())] {
            assert_eq!(router.neighbor(address)?.unwrap()["lladdr"], host.mac(HOST_LINK)?.as_str());
        }
        is_within("conflicts", router.count("address-conflicts")?, 100..=u64::MAX);
        assert_eq!(router.events("neighbor", "moved")?.len(), 0);
        Ok(())
    });
}

#[test]
fn forged_announcements_on_the_link_itself_do_not_move_who_was_set_by_hand() {
    attacked("floods-static", |net, router| {
        let mac = net.b().mac(HOST_LINK)?;
        router.say(&["neighbor", "add", "10.0.2.2", "lladdr", &mac, "dev", "eth2"])?;
        let frames = frames(4, |n, _| arp_request(host_mac(n), "10.0.2.2", "10.0.2.2").bytes());
        flood(net, router, net.b(), &frames)?;
        let refused = router.port("eth2")?["arp"]["neighbor-changes-refused"].as_u64().unwrap();
        is_within("changes refused", refused, 100..=u64::MAX);
        Ok(())
    });
}

#[test]
fn forged_announcements_on_the_link_itself_do_not_move_who_answers() {
    attacked("floods-claims", |net, router| {
        let frames = frames(7, |n, _| arp_request(host_mac(n), "10.0.2.2", "10.0.2.2").bytes());
        flood(net, router, net.b(), &frames)?;
        let arp = &router.port("eth2")?["arp"];
        let count = |name: &str| arp[name].as_u64().unwrap();
        is_within("claims doubted", count("neighbor-changes-doubted"), 1..=10);
        is_within("claims refused", count("neighbor-changes-refused"), 1..=10);
        assert_eq!((count("neighbors-moved"), router.events("neighbor", "moved")?.len()), (0, 0));
        assert_eq!(router.neighbor("10.0.2.2")?.unwrap()["lladdr"], net.b().mac(HOST_LINK)?.as_str());
        Ok(())
    });
}

#[test]
fn packets_whose_time_is_over_are_answered_in_part() {
    attacked("floods-ttl", |net, router| {
        let to = net.r.mac("eth3")?;
        let expired = |n: u32| ip4().src(near(n)).dst("10.0.2.2").ttl(1).udp(1, 2);
        let frames = frames(5, |n, _| ether(to.as_str(), host_mac(n)).ip4(expired(n)).bytes());
        flood(net, router, &net.hosts[2], &frames)?;
        let (errors, limited) = (router.count("icmp-errors")?, router.count("icmp-errors-limited")?);
        is_within("answered", errors, 100..=20_000);
        is_within("not answered", limited, errors..=u64::MAX);
        assert!(router.drops("ttl-expired")? >= errors + limited);
        Ok(())
    });
}

#[test]
fn a_scan_of_a_big_network_on_link_leaves_room_for_others() {
    attacked("floods-scan", |net, router| {
        let to = net.r.mac("eth1")?;
        let from = net.a().mac(HOST_LINK)?;
        let frames = frames(6, |n, _| {
            ether(to.as_str(), from.as_str()).ip4(ip4().src("10.0.1.2").dst(near(2 * n)).udp(1, 2)).bytes()
        });
        flood(net, router, net.a(), &frames)?;
        is_within("neighbors", router.neighbors_in("10.3.")?, 1..=u64::from(FRAMES));
        let refused = router.drops("neighbor-limit")? + router.drops("neighbor-unresolved")?;
        is_within("refused", refused, 1000..=u64::MAX);
        // Hosts that exist are resolved, once there are not too many solicitations any more.
        println!("found after {:?}", until_answered(net.a(), "10.3.0.2")?);
        Ok(())
    });
}

#[test]
fn tiny_overlapping_and_unfinished_fragments_disturb_nobody() {
    attacked("floods-fragments", |net, router| {
        let to = net.r.mac("eth3")?;
        let udp = |offset, more, len: usize, n: u32| -> Ip4 {
            let ip = ip4().src(near(n)).dst("10.3.0.1").id(n as u16).fragment(offset, more);
            ip.raw(IpProtocol::ICMP.0, vec![8; len])
        };
        let frames = frames(7, |n, random| {
            let packet = match n % 5 {
                0 => udp(0, true, 8, n),
                1 => udp(8, true, 64, n - 1),
                2 => udp(0, true, 64, n - 2),
                3 => udp(65_528, false, 64, n),
                _ => udp(8 * (random.next() as usize % 8000), true, 1400, n),
            };
            ether(to.as_str(), host_mac(n)).ip4(packet).bytes()
        });
        flood(net, router, &net.hosts[2], &frames)?;
        is_within("bad fragments", router.drops("bad-fragment")?, 100..=u64::MAX);
        is_within("unfinished ones", router.drops("incomplete")?, 1..=u64::MAX);
        Ok(())
    });
}

#[test]
fn a_storm_of_what_asks_for_redirects_and_errors_is_answered_in_part() {
    attacked("floods-storm", |net, router| {
        let (to, from) = (net.r.mac("eth3")?, net.hosts[2].mac(HOST_LINK)?);
        router.say(&["neighbor", "add", "10.3.0.9", "lladdr", "02:00:00:00:66:09", "dev", "eth3"])?;
        router.say(&["route", "add", "10.9.0.0/16", "via", "10.3.0.9"])?;
        let frames = frames(8, |n, _| {
            let frame = ether(to.as_str(), from.as_str());
            match n % 2 {
                0 => frame.ip4(ip4().src(near(n)).dst("10.9.0.1").udp(1, 2)).bytes(),
                _ => frame.ip6(ip6().src("fd00:3::2").dst("fd77::1").udp(1, 2)).bytes(),
            }
        });
        flood(net, router, &net.hosts[2], &frames)?;
        is_within("redirects", router.count("redirects")?, 10..=20_000);
        is_within("redirects not sent", router.count("redirects-limited")?, 1000..=u64::MAX);
        is_within("errors", router.count("icmp-errors")?, 10..=20_000);
        is_within("errors not sent", router.count("icmp-errors-limited")?, 1000..=u64::MAX);
        Ok(())
    });
}

#[test]
fn neighbors_are_listed_in_the_middle_of_a_flood() {
    attacked("floods-list", |net, router| {
        let frames = frames(9, |n, _| arp_request(host_mac(n), near(n), "10.3.0.1").bytes());
        net.hosts[2].transmit(HOST_LINK, &frames)?;
        let start = Instant::now();
        router.say(&["show", "neighbors"])?;
        assert!(start.elapsed() < SOON);
        Ok(())
    });
}
