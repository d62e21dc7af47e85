//! ARP and Neighbor Discovery, and packets that wait for it.
use super::rig::*;
use artery_engine::DropReason;
use artery_wire::build::{arp_reply, arp_request, ether, ip4, ip6};
use artery_wire::nd::{self, AdvertisementFlags, LinkEndpoint, NdMessage};
use artery_wire::{Arp, Icmp, Icmp6, Ipv4, Ipv6};
use std::net::{IpAddr, Ipv6Addr};

const NEW: &str = "2:0:0:0:2:5";

/// The sender and target of the only request at an output.
#[track_caller]
fn question(rig: &mut Rig, output: usize) -> (IpAddr, IpAddr) {
    let frame = rig.only(output);
    read_question(&frame)
}
fn read_question(frame: &[u8]) -> (IpAddr, IpAddr) {
    if let Ok(arp) = Arp::new(&frame[14..]) {
        assert!(arp.is_request() && stations(frame).0.is_broadcast());
        return (arp.sender_ip().into(), arp.target_ip().into());
    }
    let NdMessage::NeighborSolicitation(asked) = NdMessage::parse_packet(&frame[14..]).unwrap() else {
        panic!()
    };
    (Ipv6::new(&frame[14..]).unwrap().src().into(), asked.target().into())
}
fn pair(sender: &str, target: &str) -> (IpAddr, IpAddr) {
    (sender.parse().unwrap(), target.parse().unwrap())
}

#[test]
fn packets_wait_for_an_unknown_neighbor_and_go_in_order_when_it_answers() {
    let mut rig = rig();
    for n in 1..=3 {
        rig.push4(through().dst("10.0.2.5").id(n));
    }
    assert_eq!(question(&mut rig, B), pair("10.0.2.1", "10.0.2.5"));
    rig.bench.push(B, arp_reply(NEW, "10.0.2.5", STATION_B, "10.0.2.1").bytes());
    let sent = rig.sent(B);
    let expected = |n| ether(NEW, STATION_B).ip4(through().dst("10.0.2.5").id(n).ttl(8)).bytes();
    assert_eq!(sent, [1, 2, 3].map(expected));
    rig.push4(through().dst("10.0.2.5").id(4));
    assert_eq!(rig.only(B), expected(4));
    assert_eq!((rig.counter("held"), rig.counter("released")), (3, 3));
}

#[test]
fn the_same_by_neighbor_discovery() {
    let mut rig = rig();
    rig.push6(through6().dst("2001:db8:2::5"));
    assert_eq!(question(&mut rig, B), pair("2001:db8:2::1", "2001:db8:2::5"));
    let (them, us) = ("2001:db8:2::5".parse().unwrap(), "2001:db8:2::1".parse().unwrap());
    let from = LinkEndpoint { ether: station(NEW), ip: them };
    let to = LinkEndpoint { ether: station(STATION_B), ip: us };
    let flags = AdvertisementFlags { router: false, solicited: true, overrides: true };
    rig.bench.push(B, nd::neighbor_advertisement(from, to, from, flags));
    let expected = ether(NEW, STATION_B).ip6(through6().dst("2001:db8:2::5").hop_limit(8)).bytes();
    assert_eq!(rig.only(B), expected);
}

#[test]
fn of_packets_that_wait_for_one_neighbor_the_oldest_gives_way() {
    let mut rig = rig_with("HOLD 4");
    for n in 1..=10 {
        rig.push4(through().dst("10.0.2.5").id(n));
    }
    rig.take_all();
    assert_eq!(rig.drops(DropReason::NeighborUnresolved), 6);
    rig.bench.push(B, arp_reply(NEW, "10.0.2.5", STATION_B, "10.0.2.1").bytes());
    let ids: Vec<u16> = rig.sent(B).iter().map(|frame| Ipv4::new(&frame[14..]).unwrap().id()).collect();
    assert_eq!(ids, [7, 8, 9, 10]);
}

#[test]
fn a_neighbor_that_never_answers_is_asked_five_times_and_its_packets_senders_are_told() {
    for (dst, is_routed) in [("10.0.2.5", false), ("26.0.0.1", true)] {
        let mut rig = rig();
        rig.push4(through().dst(dst).id(1));
        rig.push4(through().dst(dst).id(2));
        rig.pass_ms(4_500);
        let asked = rig.sent(B);
        assert_eq!(asked.len(), 5, "once a second");
        rig.silent();
        rig.pass_ms(1_000);
        let told = rig.sent(A);
        assert_eq!(told.len(), 2, "one for each packet");
        for (n, frame) in told.iter().enumerate() {
            let ip = Ipv4::new(&frame[14..]).unwrap();
            let icmp = Icmp::new(ip.payload()).unwrap();
            assert_eq!((icmp.icmp_type().0, icmp.code()), (3, 1), "{dst}");
            assert_eq!(Ipv4::new(icmp.payload()).unwrap().id(), n as u16 + 1);
        }
        assert_eq!(rig.drops(DropReason::NeighborFailed), 2);
        // For a while further packets get errors at once, and no request is sent.
        rig.push4(through().dst(dst));
        assert_eq!(rig.sent(A).len(), 1);
        // A gateway is asked for whether there are packets or not.
        assert!(is_routed || rig.sent(B).is_empty());
    }
}

#[test]
fn an_ipv6_neighbor_that_never_answers_is_told_of_as_an_unreachable_address() {
    let mut rig = rig();
    rig.push6(through6().dst("2001:db8:2::5"));
    rig.pass_ms(4_000);
    let asked = rig.sent(B);
    assert_eq!(asked.len(), 3, "{asked:x?}");
    let frame = rig.only(A);
    let ip = Ipv6::new(&frame[14..]).unwrap();
    let icmp = Icmp6::new(ip.payload()).unwrap();
    assert_eq!((icmp.icmp_type().0, icmp.code()), (1, 3));
}

#[test]
fn who_asks_for_an_address_of_the_router_is_answered_and_known_from_then_on() {
    let mut rig = rig();
    rig.bench.push(B, arp_request(NEW, "10.0.2.5", "10.0.2.1").bytes());
    assert_eq!(rig.only(B), arp_reply(STATION_B, "10.0.2.1", NEW, "10.0.2.5").bytes());
    rig.push4(through().dst("10.0.2.5"));
    assert_eq!(stations(&rig.only(B)).0, station(NEW));
    rig.bench.push(B, arp_request(NEW, "10.0.2.5", "10.0.2.99").bytes());
    rig.silent();
}

#[test]
fn solicitations_for_an_address_of_the_router_are_answered() {
    let mut rig = rig();
    for target in ["2001:db8:2::1", "fe80::ff:fe00:2"] {
        let from = LinkEndpoint { ether: station(NEW), ip: "fe80::5".parse().unwrap() };
        rig.bench.push(B, nd::neighbor_solicitation(from, target.parse().unwrap(), None));
        let frame = rig.only(B);
        let NdMessage::NeighborAdvertisement(answer) = NdMessage::parse_packet(&frame[14..]).unwrap() else {
            panic!()
        };
        assert_eq!(answer.target_link(), Some(station(STATION_B)));
        assert!(answer.is_router());
        assert!(answer.is_solicited());
    }
    assert_eq!(rig.counter("nd-received"), 2);
}

#[test]
fn proxy_arp_answers_for_what_is_behind_another_port_and_not_for_the_same_link() {
    let mut rig = rig_of(
        "PORT a 10.0.1.1/24 ETHER 2:0:0:0:0:1 PROXY_ARP true, PORT b 10.0.2.1/24 ETHER 2:0:0:0:0:2, DAD \
         false",
    );
    rig.bench.push(A, arp_request(PEER, "10.0.1.9", "10.0.2.5").bytes());
    assert_eq!(rig.only(A), arp_reply(STATION_A, "10.0.2.5", PEER, "10.0.1.9").bytes());
    rig.bench.push(A, arp_request(PEER, "10.0.1.9", "10.0.1.5").bytes());
    rig.silent();
    rig.bench.push(B, arp_request(NEW, "10.0.2.5", "10.0.1.9").bytes());
    rig.silent();
}

#[test]
fn a_station_that_moves_is_followed_once_the_old_one_was_asked_in_vain() {
    let mut rig = rig();
    rig.bench.push(B, arp_request(NEW, "10.0.2.5", "10.0.2.1").bytes());
    rig.take_all();
    let moved = "2:0:0:0:2:6";
    rig.bench.push(B, arp_request(moved, "10.0.2.5", "10.0.2.5").bytes());
    assert_eq!(stations(&rig.only(B)).0, station(NEW));
    rig.push4(through().dst("10.0.2.5"));
    assert_eq!(stations(&rig.only(B)).0, station(NEW));
    rig.pass_ms(250);
    rig.push4(through().dst("10.0.2.5"));
    assert_eq!(stations(&rig.only(B)).0, station(moved));
}

#[test]
fn a_station_that_answers_keeps_an_address_that_another_claims() {
    let mut rig = rig();
    rig.bench.push(B, arp_request(NEW, "10.0.2.5", "10.0.2.1").bytes());
    rig.take_all();
    rig.bench.push(B, arp_request("2:0:0:0:2:6", "10.0.2.5", "10.0.2.5").bytes());
    rig.only(B);
    rig.bench.push(B, arp_reply(NEW, "10.0.2.5", STATION_B, "10.0.2.1").bytes());
    rig.pass_ms(2000);
    rig.push4(through().dst("10.0.2.5"));
    assert_eq!(stations(&rig.only(B)).0, station(NEW));
}

#[test]
fn a_static_neighbor_keeps_its_station_whatever_is_said() {
    let mut rig = rig();
    rig.bench.push(B, arp_request(NEW, "10.0.2.254", "10.0.2.254").bytes());
    rig.push4(through());
    assert_eq!(stations(&rig.only(B)).0, station(GATEWAY));
}

#[test]
fn own_addresses_are_told_when_the_router_starts_and_when_a_port_comes_back_or_changes_its_station() {
    let config = "PORT a 10.0.1.1/24 ETHER 2:0:0:0:0:1, PORT b ETHER 2:0:0:0:0:2, DAD false";
    let mut rig = Rig { bench: bench(config) };
    let told = |rig: &mut Rig| {
        let sent = rig.sent(A);
        let arps = sent.iter().filter_map(|frame| Arp::new(frame[14..].to_vec()).ok());
        arps.filter(|arp| arp.sender_ip() == arp.target_ip())
            .map(|arp| arp.sender_ether())
            .collect::<Vec<_>>()
    };
    assert_eq!(told(&mut rig), [station(STATION_A)]);
    rig.pass_ms(10_000);
    assert_eq!(told(&mut rig).len(), 1, "announced twice");
    rig.bench.write("port", "a down").unwrap();
    rig.bench.write("port", "a up").unwrap();
    assert_eq!(told(&mut rig), [station(STATION_A)]);
    rig.bench.write("port", "a ether 2:0:0:0:0:77").unwrap();
    assert_eq!(told(&mut rig), [station("2:0:0:0:0:77")]);
    assert!(rig.bench.write("port", "a sideways").is_err() && rig.bench.write("port", "z up").is_err());
}

#[test]
fn ipv6_addresses_are_probed_and_a_duplicate_is_neither_answered_for_nor_spoken_from() {
    let config = "PORT a 2001:db8:1::1/64 ETHER 2:0:0:0:0:1, PORT b ETHER 2:0:0:0:0:2, NEIGHBOR a \
        2001:db8:1::9 2:0:0:0:1:9";
    let mut rig = Rig { bench: bench(config) };
    rig.pass_ms(1_000);
    let is_probe = |frame: &&Vec<u8>| {
        matches!(NdMessage::parse_packet(&frame[14..]), Ok(NdMessage::NeighborSolicitation(_)))
    };
    let probes: Vec<_> = rig.sent(A).iter().filter(is_probe).map(|frame| read_question(frame)).collect();
    assert!(probes.contains(&pair("::", "2001:db8:1::1")) && probes.contains(&pair("::", "fe80::ff:fe00:1")));
    // Another host has the address, and advertises it.
    let them = LinkEndpoint { ether: station(NEW), ip: "2001:db8:1::1".parse().unwrap() };
    rig.bench.push(A, nd::unsolicited_advertisement(them, false, true));
    rig.pass_ms(5_000);
    rig.take_all();
    assert_eq!(rig.counter("address-conflicts"), 1);
    let asker = LinkEndpoint { ether: station(PEER), ip: "2001:db8:1::9".parse().unwrap() };
    rig.bench.push(A, nd::neighbor_solicitation(asker, them.ip, None));
    rig.silent();
    rig.push6(ip6().src("2001:db8:1::9").dst("2001:db8:99::1").hop_limit(9).udp(1, 2));
    let src = Ipv6::new(&rig.only(A)[14..]).unwrap().src();
    assert_eq!(src, "fe80::ff:fe00:1".parse::<Ipv6Addr>().unwrap());
}

#[test]
fn an_ipv4_address_is_claimed_before_use_if_so_wished_and_defended_after() {
    let config = "PORT a 10.0.1.1/24 ETHER 2:0:0:0:0:1, PORT b ETHER 2:0:0:0:0:2, ACD true, DAD false";
    let mut rig = Rig { bench: bench(config) };
    rig.take_all();
    rig.bench.push(A, arp_request(PEER, "10.0.1.9", "10.0.1.1").bytes());
    rig.silent();
    rig.pass_ms(8_000);
    let arps = |rig: &mut Rig| {
        let sent = rig.sent(A);
        let asks = |frame: &&Vec<u8>| Arp::new(&frame[14..]).is_ok_and(|arp| arp.is_request());
        sent.iter().filter(asks).map(|frame| read_question(frame)).collect::<Vec<_>>()
    };
    let asked = arps(&mut rig);
    assert_eq!(asked.iter().filter(|asked| **asked == pair("0.0.0.0", "10.0.1.1")).count(), 3);
    rig.bench.push(A, arp_request(PEER, "10.0.1.9", "10.0.1.1").bytes());
    assert_eq!(rig.sent(A).len(), 1, "claimed: answered");
    rig.pass_ms(20_000);
    rig.take_all();
    // Another host takes it: it is defended once in ten seconds.
    for _ in 0..5 {
        rig.bench.push(A, arp_request(NEW, "10.0.1.1", "10.0.1.77").bytes());
    }
    assert_eq!(arps(&mut rig), [pair("10.0.1.1", "10.0.1.1")]);
    assert_eq!(rig.counter("address-conflicts"), 5);
}

#[test]
fn a_port_that_is_down_is_told_of_and_its_other_link_length_too() {
    let mut rig = rig();
    rig.bench.write("port", "b mtu 1000").unwrap();
    rig.push4(through().dont_fragment().payload(vec![0; 1400]));
    let frame = rig.only(A);
    let ip = Ipv4::new(&frame[14..]).unwrap();
    assert_eq!(Icmp::new(ip.payload()).unwrap().rest(), [0, 0, 0x03, 0xe8]);
    rig.bench.write("port", "b down").unwrap();
    rig.take_all();
    rig.push4(through());
    assert_eq!(rig.drops(DropReason::PortDown), 1);
    assert_eq!(rig.sent(A).len(), 1);
}

#[test]
fn a_neighbor_in_use_is_verified_and_packets_go_on() {
    let mut rig = rig();
    rig.bench.push(B, arp_request(NEW, "10.0.2.5", "10.0.2.1").bytes());
    rig.take_all();
    let (mut answered, mut gaps) = (0, 0);
    // An hour, with a packet each second.
    for _ in 0..3_600 {
        rig.pass_ms(1_000);
        rig.push4(ip4().src("10.0.1.9").dst("10.0.2.5").ttl(9).udp(1, 2));
        let sent = rig.sent(B);
        for frame in &sent {
            if let Ok(arp) = Arp::new(&frame[14..]) {
                assert!(arp.is_request() && !stations(frame).0.is_group(), "asked alone: {frame:x?}");
                answered += 1;
                rig.bench.push(B, arp_reply(NEW, "10.0.2.5", STATION_B, "10.0.2.1").bytes());
            }
        }
        gaps += usize::from(!sent.iter().any(|frame| Ipv4::new(&frame[14..]).is_ok()));
    }
    // Every 20 to 52 s (RFC 4861 section 10).
    assert!((69..=180).contains(&answered), "{answered}");
    assert_eq!(gaps, 0);
}

#[test]
fn senders_hear_of_a_neighbor_that_falls_silent_and_packets_go_on_when_it_answers() {
    let mut rig = rig();
    rig.bench.push(B, arp_request(NEW, "10.0.2.5", "10.0.2.1").bytes());
    rig.take_all();
    let send = |rig: &mut Rig| {
        rig.pass_ms(1_000);
        rig.push4(through().dst("10.0.2.5"));
        let told = rig.sent(A);
        told.iter().any(|frame| {
            let ip = Ipv4::new(&frame[14..]).unwrap();
            Icmp::new(ip.payload()).is_ok_and(|icmp| (icmp.icmp_type().0, icmp.code()) == (3, 1))
        })
    };
    // Its use is seen within a second; 5 s until it is asked, three questions to it and three to all.
    let seconds = (1..60).find(|_| send(&mut rig)).unwrap();
    assert!((11..=14).contains(&seconds), "{seconds} s");
    rig.take_all();
    let asked = (1..10).find(|_| {
        send(&mut rig);
        !rig.sent(B).is_empty()
    });
    assert!(asked.is_some_and(|after| after <= 6), "{asked:?}");
    rig.bench.push(B, arp_reply(NEW, "10.0.2.5", STATION_B, "10.0.2.1").bytes());
    rig.take_all();
    rig.push4(through().dst("10.0.2.5"));
    assert_eq!(stations(&rig.only(B)).0, station(NEW));
}
