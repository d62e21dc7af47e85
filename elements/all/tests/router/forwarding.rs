//! Egress packets: rewritten, fragmented, and answered with redirects.
use super::rig::*;
use artery_engine::DropReason;
use artery_wire::build::{Ip4, ether, ip4};
use artery_wire::nd::NdMessage;
use artery_wire::{EtherType, Icmp, IcmpType, Ipv4};

fn expected(packet: Ip4) -> Vec<u8> {
    ether(GATEWAY, STATION_B).ip4(packet).bytes()
}

#[test]
fn a_packet_leaves_with_one_hop_less_and_the_stations_of_its_next_hop() {
    let mut rig = rig();
    rig.push4(through());
    assert_eq!(rig.only(B), expected(through().ttl(8)));
    rig.push6(through6());
    assert_eq!(rig.only(B), ether(GATEWAY, STATION_B).ip6(through6().hop_limit(8)).bytes());
}

#[test]
fn padding_of_the_link_is_taken_away() {
    let mut rig = rig();
    let frame = ether(STATION_A, PEER).ip4(through().payload([1; 3])).bytes();
    rig.bench.push(A, [&frame[..], &[0; 20]].concat());
    assert_eq!(rig.only(B), expected(through().payload([1; 3]).ttl(8)));
}

#[test]
fn routes_and_times_are_recorded_where_options_ask_for_it() {
    let mut rig = rig();
    rig.push4(through().options([7, 7, 4, 0, 0, 0, 0, 0]));
    assert_eq!(rig.only(B), expected(through().options([7, 7, 8, 10, 0, 2, 1, 0]).ttl(8)));
    // 1,000,000,060 s after the epoch, when the rig is ready, it was 01:47:40.
    let [a, b, c, d] = 6_460_000_u32.to_be_bytes();
    rig.push4(through().options([68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(rig.only(B), expected(through().options([68, 12, 13, 1, 10, 0, 2, 1, a, b, c, d]).ttl(8)));
    rig.push4(through().options([148, 4, 0, 0]));
    assert_eq!(rig.only(B), expected(through().options([148, 4, 0, 0]).ttl(8)));
}

#[test]
fn what_is_longer_than_the_mtu_leaves_in_fragments_that_make_the_packet() {
    let mut rig = rig_of(
        "PORT a 10.0.1.1/24 ETHER 2:0:0:0:0:1, PORT b 10.0.2.1/24 ETHER 2:0:0:0:0:2 MTU 600,
         NEIGHBOR b 10.0.2.254 2:0:0:0:2:fe, ROUTE 20.0.0.0/8 10.0.2.254, DAD false",
    );
    let payload: Vec<u8> = (0..1400).map(|n| n as u8).collect();
    rig.push4(through().id(77).payload(&payload));
    let sent = rig.sent(B);
    assert_eq!(sent.len(), 3);
    let mut whole: Vec<u8> = Vec::new();
    for frame in &sent {
        let ip = Ipv4::new(&frame[14..]).unwrap();
        assert_eq!((ip.fragment_offset(), ip.id(), ip.ttl()), (whole.len(), 77, 8));
        assert_eq!(stations(frame), (station(GATEWAY), station(STATION_B)));
        assert!(frame.len() <= 614);
        whole.extend(ip.payload());
    }
    assert_eq!(whole, through().payload(&payload).bytes()[20..]);
    assert_eq!(rig.counter("fragments-made"), 3);
}

#[test]
fn a_neighbor_that_could_send_to_the_next_hop_itself_gets_its_packet_forwarded_and_is_told() {
    let mut rig = rig();
    rig.push4(through().dst("24.0.0.1"));
    let [redirect, forwarded] = &rig.sent(A)[..] else { panic!() };
    let ip = Ipv4::new(&redirect[14..]).unwrap();
    assert_eq!((ip.src(), ip.dst()), ([10, 0, 1, 1].into(), [10, 0, 1, 9].into()));
    let icmp = Icmp::new(ip.payload()).unwrap();
    assert_eq!((icmp.icmp_type(), icmp.code(), icmp.rest()), (IcmpType::REDIRECT, 1, [10, 0, 1, 8]));
    assert_eq!(*forwarded, ether("2:0:0:0:1:8", STATION_A).ip4(through().dst("24.0.0.1").ttl(8)).bytes());
    assert_eq!(rig.counter("redirects"), 1);
    // A redirect storm: sent so often that a host can learn, and no oftener.
    for _ in 0..1000 {
        rig.push4(through().dst("24.0.0.1"));
        rig.bench.drain_sent(A);
    }
    assert!(rig.counter("redirects") <= 101);
    assert!(rig.counter("redirects-limited") >= 900);
}

#[test]
fn packets_of_which_no_redirect_may_tell_use_up_none_of_those_that_may() {
    let mut rig = rig_with("ICMP_RATE 10");
    let near = || through().dst("24.0.0.1");
    for _ in 0..100 {
        rig.push4(near().fragment(64, false));
        rig.push4(near().icmp(IcmpType::UNREACHABLE, 0, [0; 4]));
    }
    assert_eq!(rig.bench.drain_sent(A).len(), 200);
    rig.push4(near());
    assert_eq!(rig.sent(A).len(), 2, "a redirect and the packet");
    assert_eq!((rig.counter("redirects"), rig.counter("redirects-limited")), (1, 0));
}

#[test]
fn an_ipv6_redirect_tells_target_and_station_from_the_link_local_address() {
    let mut rig = rig_with("NEIGHBOR a 2001:db8:1::8 2:0:0:0:1:8");
    rig.push6(through6().dst("2001:db8:1::8"));
    let [redirect, _] = &rig.sent(A)[..] else { panic!() };
    let NdMessage::Redirect(message) = NdMessage::parse_packet(&redirect[14..]).unwrap() else { panic!() };
    assert_eq!(message.target(), message.destination());
    assert_eq!(message.target_link(), Some(station("2:0:0:0:1:8")));
    assert_eq!(stations(redirect), (station(PEER), station(STATION_A)));
}

#[test]
fn what_the_host_sends_keeps_its_hops() {
    let mut rig = rig();
    rig.bench.push(HOST, ether(STATION_A, OWN_HOST).ip4(through().src("10.0.2.1").ttl(1)).bytes());
    assert_eq!(rig.only(B), expected(through().src("10.0.2.1").ttl(1)));
}

#[test]
fn frames_that_are_not_for_the_router_end_with_their_reason() {
    let mut rig = rig();
    for (frame, reason) in [
        (ether("2:9:9:9:9:9", PEER).ip4(through()).bytes(), DropReason::OtherStation),
        (ether("ff:ff:ff:ff:ff:ff", PEER).ip4(through()).bytes(), DropReason::Broadcast),
        (ether(STATION_A, PEER).raw(EtherType(0x88cc), [0; 40]).bytes(), DropReason::UnknownEtherType),
        (ether(STATION_A, PEER).vlan(5).ip4(through()).bytes(), DropReason::UnknownEtherType),
        (vec![0; 13], DropReason::TooShort),
    ] {
        rig.bench.push(A, frame);
        assert_eq!(rig.drops(reason), 1, "{reason:?}");
        rig.silent();
        rig = super::rig::rig();
    }
}

#[test]
fn the_reverse_path_check_is_as_the_port_says() {
    for (check, passes) in [("off", true), ("loose", true), ("strict", false)] {
        let mut rig = rig_of(&format!(
            "PORT a 10.0.1.1/24 ETHER 2:0:0:0:0:1 RPF {check}, PORT b 10.0.2.1/24 ETHER 2:0:0:0:0:2,
             NEIGHBOR b 10.0.2.254 2:0:0:0:2:fe, ROUTE 20.0.0.0/8 10.0.2.254, DAD false"
        ));
        rig.push4(through().src("20.0.0.9"));
        assert_eq!(rig.sent(B).len(), usize::from(passes), "{check}");
        assert_eq!(rig.drops(DropReason::ReversePath), u64::from(!passes));
    }
}

#[test]
fn packets_that_lead_nowhere_are_counted_by_the_names_of_the_tables() {
    let mut rig = rig();
    for (dst, reason) in [
        ("99.0.0.1", DropReason::NoRoute),
        ("21.0.0.1", DropReason::Blackhole),
        ("22.0.0.1", DropReason::Unreachable),
        ("23.0.0.1", DropReason::Prohibited),
        ("240.0.0.1", DropReason::Martian),
        ("169.254.9.9", DropReason::LinkLocal),
        ("239.0.0.1", DropReason::Multicast),
        ("10.0.2.255", DropReason::Broadcast),
    ] {
        rig.push4(ip4().src("10.0.1.9").dst(dst).udp(1, 2));
        assert_eq!(rig.drops(reason), 1, "{dst}");
    }
}
