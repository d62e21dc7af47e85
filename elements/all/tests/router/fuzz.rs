//! Damaged frames at every input of a router with routes and neighbors: none makes it panic, none is lost.
use super::rig::*;
use crate::random::Random;
use artery_elements::CLASSES;
use artery_engine::{Bench, Packet};
use artery_wire::build::{Ip4, Ip6, arp_reply, arp_request, ether, ip4, ip6};
use artery_wire::nd::{self, LinkEndpoint};
use artery_wire::{Icmp6Type, IcmpType};

const FRAMES: usize = 30_000;

fn packets4() -> Vec<Ip4> {
    let base = || ip4().src("10.0.1.9").dst("20.0.0.1").ttl(9).udp(1, 2).payload([7; 100]);
    vec![
        base(),
        base().ttl(1),
        base().dst("10.0.2.7"),
        base().dst("24.0.0.1"),
        base().dst("26.0.0.1"),
        base().dst("99.0.0.1"),
        base().dst("224.0.0.5"),
        base().dst("255.255.255.255"),
        base().payload(vec![1; 1900]),
        base().payload(vec![1; 1900]).dont_fragment(),
        base().options([7, 7, 4, 0, 0, 0, 0, 0]),
        base().options([68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
        base().options([131, 7, 4, 1, 1, 1, 1, 0]),
        base().dst("10.0.1.1"),
        base().dst("10.0.1.1").icmp_echo(1, 2).payload("ping"),
        base().dst("10.0.1.1").icmp_echo(1, 2).payload([1; 64]).fragment(0, true),
        base().dst("10.0.1.1").icmp_echo(1, 2).payload([1; 64]).fragment(72, false),
        base().icmp(IcmpType::UNREACHABLE, 0, [0; 4]),
    ]
}

fn packets6() -> Vec<Ip6> {
    let base = || ip6().src("2001:db8:1::9").dst("2001:db8:20::1").hop_limit(9).udp(1, 2).payload([7; 100]);
    let us = || base().dst("2001:db8:1::1");
    vec![
        base(),
        base().hop_limit(1),
        base().dst("2001:db8:2::7"),
        base().dst("2001:db8:1::8"),
        base().dst("2001:db8:99::1"),
        base().dst("ff02::5"),
        base().payload(vec![1; 1900]),
        base().extension(0, [5, 2, 0, 0, 1, 0]),
        base().extension(0, [0xde, 4, 0, 0, 0, 0]),
        us(),
        us().icmp_echo(1, 2).payload("ping"),
        us().icmp_echo(1, 2).payload([1; 64]).fragment(0, true, 7),
        us().icmp_echo(1, 2).payload([1; 64]).fragment(64, false, 7),
        us().icmp(Icmp6Type::NEIGHBOR_SOLICITATION, 0, [0; 4]).payload([0; 20]),
        us().extension(43, [&[0, 1, 0, 0, 0, 0][..], &[0x20; 16]].concat()),
    ]
}

/// Frames that the ports of a router usually receive.
fn frames() -> Vec<Vec<u8>> {
    let link = || ether(STATION_A, PEER);
    let asker = LinkEndpoint { ether: station(PEER), ip: "2001:db8:1::9".parse().unwrap() };
    let own = "2001:db8:1::1".parse().unwrap();
    let mut frames = vec![
        arp_request(PEER, "10.0.1.9", "10.0.1.1").bytes(),
        arp_request(PEER, "10.0.1.1", "10.0.1.1").bytes(),
        arp_reply("2:0:0:0:2:7", "10.0.2.7", STATION_B, "10.0.2.1").bytes(),
        nd::neighbor_solicitation(asker, own, None),
        nd::unsolicited_advertisement(asker, false, true),
        link().vlan(5).ip4(ip4().udp(1, 2)).bytes(),
    ];
    frames.extend(packets4().into_iter().map(|packet| link().ip4(packet).bytes()));
    frames.extend(packets6().into_iter().map(|packet| link().ip6(packet).bytes()));
    frames
}

/// One of the frames, with a port's or another MAC address, truncated or with changed bits or
/// bytes; or random bytes.
fn damaged(frames: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    if random.below(20) == 0 {
        return (0..random.below(200)).map(|_| random.next() as u8).collect();
    }
    let mut frame = frames[random.below(frames.len())].clone();
    if random.below(4) == 0 {
        frame[5] = random.below(4) as u8;
    }
    if random.below(4) == 0 {
        frame.truncate(random.below(frame.len() + 1));
    }
    for _ in 0..random.below(4) {
        if !frame.is_empty() {
            let at = random.below(frame.len().min(100));
            frame[at] =
                if random.below(2) == 0 { random.next() as u8 } else { frame[at] ^ 1 << random.below(8) };
        }
    }
    frame
}

/// How many frames are in the pool.
fn balance(bench: &Bench) -> usize {
    let first = bench.packet([]);
    let others: Vec<Packet> = std::iter::from_fn(|| first.duplicate()).collect();
    others.len() + 1
}

#[test]
fn no_frames_make_a_router_panic_and_none_is_lost() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_220_705);
    println!("SEED={seed}");
    let (mut random, frames) = (Random(seed), frames());
    let class = CLASSES.find_class("IPRouter").unwrap();
    let config =
        format!("{CONFIG}, HOST {OWN_HOST}, ICMP_RATE 1000000, ICMP_EACH 1000000, ACD true, HOLD_ALL 100");
    let mut bench = Bench::setup(class, &config).inputs(3).outputs(3).build().unwrap();
    bench.run();
    (0..3).for_each(|output| drop(bench.drain_sent(output)));
    let pool = balance(&bench);
    for n in 0..FRAMES {
        bench.push([A, B, HOST][random.below(3)], damaged(&frames, &mut random));
        if n % 16 == 0 {
            bench.advance_time(std::time::Duration::from_micros(random.below(50_000) as u64));
        }
        (0..3).for_each(|output| drop(bench.drain_sent(output)));
    }
    bench.stop_without_successor();
    (0..3).for_each(|output| drop(bench.drain_sent(output)));
    assert_eq!(balance(&bench), pool, "all frames are back in the pool");
}
