//! Packets that FlowBalancer redirects to members by annotation, through IPForward and the router behind it.
use super::rig::*;
use artery_elements::CLASSES;
use artery_engine::{Bench, DropReason, Packet};
use artery_wire::TcpFlags;
use artery_wire::build::{Ip4, Ip6, arp_reply, ether, ip4, ip6};
use std::collections::HashMap;

pub(crate) const SERVICES: &str = "FRAMES true, SERVICE 20.0.0.1:80 tcp";
pub(crate) const SERVER: &str = "2:0:0:0:2:5";

/// A balancer, the fast path behind it, and the router.
pub(crate) struct Led {
    pub(crate) rig: Rig,
    pub(crate) balancer: Bench,
    pub(crate) fast: Bench,
}

fn led(router: &str, balancer: &str, forward: &str) -> Led {
    led_by(rig_with(router), balancer, forward)
}
pub(crate) fn led_by(rig: Rig, balancer: &str, forward: &str) -> Led {
    let find = |class| CLASSES.find_class(class).unwrap();
    let fast =
        Bench::setup(find(forward), "e").inputs(2).outputs(3).sharing_with(&rig.bench).build().unwrap();
    let outputs = if balancer.contains("ROUTER") { 4 } else { 2 };
    let setup =
        Bench::setup(find("FlowBalancer"), balancer).inputs(2).outputs(outputs).sharing_with(&rig.bench);
    Led { balancer: setup.build().unwrap_or_else(|errors| panic!("{errors:?}")), fast, rig }
}

impl Led {
    /// Frames that came by port `a`, balanced.
    pub(crate) fn balanced(&mut self, frames: &[Vec<u8>]) -> Vec<Packet> {
        let packets: Vec<Packet> = frames.iter().map(|frame| self.balancer.packet(frame)).collect();
        self.balancer.push_packets(A, packets);
        self.balancer.drain_sent(A)
    }
    /// The MAC addresses of frames sent by port `b` when all of them take the fast path.
    #[track_caller]
    fn stations(&mut self, frames: &[Vec<u8>]) -> Vec<String> {
        let packets = self.balanced(frames);
        self.fast.push_packets(A, packets);
        let sent: Vec<_> =
            self.fast.drain_sent(B).iter().map(|packet| stations(packet.data()).0.to_string()).collect();
        self.fast.expect_nothing_more();
        assert_eq!(sent.len(), frames.len());
        sent
    }
    /// Passes frames through the fast path, and its exceptions to the router.
    fn pass_odd(&mut self, frames: &[Vec<u8>]) {
        let packets = self.balanced(frames);
        self.fast.push_packets(A, packets);
        let odd = self.fast.drain_sent(HOST);
        assert_eq!(odd.len(), frames.len());
        self.rig.bench.push_packets(A, odd);
    }
}

pub(crate) fn client(port: u16) -> Ip4 {
    through().dst("20.0.0.1").tcp(port, 80).flags(TcpFlags::SYN)
}
pub(crate) fn frame(packet: Ip4) -> Vec<u8> {
    ether(STATION_A, PEER).ip4(packet).bytes()
}
pub(crate) fn frames(ports: std::ops::Range<u16>) -> Vec<Vec<u8>> {
    ports.map(|port| frame(client(port))).collect()
}
fn shares(stations: Vec<String>) -> HashMap<String, usize> {
    stations.into_iter().fold(HashMap::new(), |mut shares, station| {
        *shares.entry(station).or_default() += 1;
        shares
    })
}

#[test]
fn packets_of_a_service_leave_for_its_members_unchanged_and_others_by_their_routes() {
    let neighbors = "NEIGHBOR b 10.0.2.5 2:0:0:0:2:5, NEIGHBOR b 10.0.2.6 2:0:0:0:2:6";
    let mut led =
        led(neighbors, &format!("{SERVICES}, MEMBER one 10.0.2.5, MEMBER two 10.0.2.6"), "IPForward");
    let all: Vec<Vec<u8>> = frames(1..1001);
    let first: Vec<String> = all.chunks(100).flat_map(|some| led.stations(some)).collect();
    assert!(shares(first.clone()).values().all(|share| (400..600).contains(share)), "{first:?}");
    let again: Vec<String> = all.chunks(7).flat_map(|some| led.stations(some)).collect();
    assert_eq!(first, again, "a flow stays where it is");
    // A batch in which some frames are redirected and some not.
    let mixed = [frame(client(1)), frame(through()), frame(client(1).tcp(1, 81))];
    assert_eq!(led.stations(&mixed), [&first[0], "02:00:00:00:02:fe", "02:00:00:00:02:fe"]);
    let packets = led.balanced(&[frame(client(1))]);
    led.fast.push_packets(A, packets);
    let sent = led.fast.drain_sent(B);
    assert_eq!(sent[0].data()[14..], client(1).ttl(8).bytes(), "only a hop is taken");
}

#[test]
fn a_member_that_is_not_known_is_asked_for_and_gets_what_waited() {
    let mut led = led("DAD false", &format!("{SERVICES}, MEMBER one 10.0.2.5"), "IPForward");
    led.pass_odd(&frames(1..3));
    assert_eq!(&led.rig.only(B)[38..42], [10, 0, 2, 5], "who has it?");
    led.rig.bench.push(B, arp_reply(SERVER, "10.0.2.5", STATION_B, "10.0.2.1").bytes());
    let sent = led.rig.sent(B);
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|frame| stations(frame).0 == station(SERVER)));
    assert_eq!(led.stations(&frames(1..2)), ["02:00:00:00:02:05"], "from now on it is plain");
}

#[test]
fn what_was_decided_holds_until_anything_changes() {
    let neighbors = "NEIGHBOR b 10.0.2.5 2:0:0:0:2:5, NEIGHBOR b 10.0.2.6 2:0:0:0:2:6";
    let mut led = led(neighbors, &format!("{SERVICES}, MEMBER one 30.0.0.1"), "IPForward");
    led.rig.bench.write("add_route", "30.0.0.0/8 10.0.2.5").unwrap();
    for _ in 0..3 {
        assert_eq!(led.stations(&frames(1..3)), ["02:00:00:00:02:05", "02:00:00:00:02:05"]);
    }
    led.rig.bench.write("add_route", "30.0.0.0/24 10.0.2.6").unwrap();
    assert_eq!(led.stations(&frames(1..2)), ["02:00:00:00:02:06"], "a better route");
    led.rig.bench.write("add_neighbor", "b 10.0.2.6 2:0:0:0:2:7").unwrap();
    assert_eq!(led.stations(&frames(1..2)), ["02:00:00:00:02:07"], "another MAC address");
    led.rig.bench.write("remove_route", "30.0.0.0/24").unwrap();
    assert_eq!(led.stations(&frames(1..2)), ["02:00:00:00:02:05"]);
    led.rig.bench.write("remove_route", "30.0.0.0/8").unwrap();
    led.pass_odd(&frames(1..2));
    assert_eq!(led.rig.drops(DropReason::NoRoute), 1);
}

#[test]
fn members_whose_addresses_end_alike_are_told_apart() {
    // 64 apart, so that three of them share the two places that are kept for such.
    let members: Vec<u8> = vec![5, 69, 133];
    let neighbors: Vec<String> =
        members.iter().map(|n| format!("NEIGHBOR b 10.0.2.{n} 2:0:0:0:2:{n:x}")).collect();
    let config: String = members.iter().map(|n| format!(", MEMBER m{n} 10.0.2.{n}")).collect();
    let mut led = led(&neighbors.join(", "), &format!("{SERVICES}{config}"), "IPForward");
    let all = frames(1..301);
    let first: Vec<String> = all.chunks(32).flat_map(|some| led.stations(some)).collect();
    assert_eq!(shares(first.clone()).len(), 3);
    for _ in 0..3 {
        assert_eq!(all.chunks(50).flat_map(|some| led.stations(some)).collect::<Vec<_>>(), first);
    }
}

#[test]
fn senders_hear_what_became_of_packets_that_are_led() {
    let neighbors = "NEIGHBOR b 10.0.2.5 2:0:0:0:2:5";
    let mut led = led(neighbors, &format!("{SERVICES}, MEMBER one 10.0.2.5"), "IPForward");
    led.pass_odd(&[frame(client(1).ttl(1))]);
    let error = led.rig.only(A);
    assert_eq!((error[34], &error[30..34]), (11, &[10, 0, 1, 9][..]), "time exceeded");
}

#[test]
fn members_on_the_clients_link_get_packets_back_by_it_and_nobody_is_redirected() {
    let mut led = led("HOLD 8", &format!("{SERVICES}, MEMBER one 10.0.1.8"), "IPForward");
    let packets = led.balanced(&frames(1..4));
    led.fast.push_packets(A, packets);
    assert_eq!(led.fast.drain_sent(A).len(), 3, "a batch of the service's is plain");
    // In a batch with other frames it takes the slow path, which sends redirects
    // for packets without annotation.
    let packets = led.balanced(&[frame(client(1)), frame(through())]);
    led.fast.push_packets(A, packets);
    let odd = led.fast.drain_sent(HOST);
    assert_eq!((odd.len(), led.fast.drain_sent(B).len()), (1, 1));
    led.rig.bench.push_packets(A, odd);
    assert_eq!(stations(&led.rig.only(A)).0, station("2:0:0:0:1:8"));
    assert_eq!(led.rig.counter("redirects"), 0);
}

#[test]
fn flows_to_a_member_behind_several_gateways_take_all_of_them() {
    let routes = "NEIGHBOR b 10.0.2.5 2:0:0:0:2:5, NEIGHBOR b 10.0.2.6 2:0:0:0:2:6, ROUTE 30.0.0.0/8 \
        10.0.2.5 10.0.2.6";
    let mut led = led(routes, &format!("{SERVICES}, MEMBER one 30.0.0.1"), "IPForward");
    let shares = shares(led.stations(&frames(1..101)));
    assert!(shares.len() == 2 && shares.values().all(|share| *share > 25), "{shares:?}");
}

#[test]
fn frames_end_where_no_member_is_left_and_strange_ones_pass() {
    let mut led = led("DAD false", &format!("{SERVICES}, MEMBER one 10.0.2.5"), "IPForward");
    let strange = [
        vec![],
        vec![0; 13],
        vec![0x45; 60],
        arp_reply(GATEWAY, "10.0.2.254", STATION_B, "10.0.2.1").bytes(),
    ];
    let others: Vec<Vec<u8>> =
        (0..60).map(|len| frame(client(1))[..len].to_vec()).filter(|f| f.len() < 54).collect();
    assert_eq!(led.balanced(&[&strange[..], &others].concat()).len(), strange.len() + others.len());
    led.balancer.write("remove_member", "one").unwrap();
    let left = led.balanced(&[frame(client(1)), frame(through()), frame(client(2))]);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].data(), frame(through()));
    led.balancer.expect_dropped(DropReason::NoMember, 2);
}

#[test]
fn ipv6_is_led_as_well() {
    let config = "FRAMES true, SERVICE [2001:db8:20::1]:80 tcp, MEMBER one 2001:db8:2::5";
    let mut led = led("NEIGHBOR b 2001:db8:2::5 2:0:0:0:2:5", config, "IP6Forward");
    let packet =
        |port| -> Ip6 { ip6().src("2001:db8:1::9").dst("2001:db8:20::1").hop_limit(9).tcp(port, 80) };
    let frame = |port| ether(STATION_A, PEER).ip6(packet(port)).bytes();
    assert_eq!(led.stations(&[frame(1), frame(2)]), ["02:00:00:00:02:05", "02:00:00:00:02:05"]);
}

#[test]
fn frames_are_translated_to_members_and_answers_back() {
    let routes = "NEIGHBOR b 10.0.2.5 2:0:0:0:2:5";
    let config = format!("{SERVICES}, MEMBER one 10.0.2.5:8080, FORWARD nat");
    let mut led = led(routes, &config, "IPForward");
    let there = led.balanced(&[frame(client(7))]);
    assert_eq!(there[0].data()[14..], client(7).dst("10.0.2.5").tcp(7, 8080).flags(TcpFlags::SYN).bytes());
    let answer = || ip4().dst("10.0.1.9").ttl(9);
    let frame = ether(STATION_B, SERVER).ip4(answer().src("10.0.2.5").tcp(8080, 7)).bytes();
    led.balancer.push(B, frame);
    let back = led.balancer.drain_sent(B);
    assert_eq!(back[0].data()[14..], answer().src("20.0.0.1").tcp(80, 7).bytes());
}
