//! Fast-path frames of a service, which FlowBalancer sends directly, past IPForward.
use super::redirected::*;
use super::rig::*;
use artery_elements::CLASSES;
use artery_engine::{Bench, DropReason, Packet};
use artery_wire::TcpFlags;
use artery_wire::build::{ether, ip6};

/// Outputs of a balancer with a shortcut to the ports.
const SHORT_A: usize = 2;
const SHORT_B: usize = 3;

impl Led {
    /// The MAC addresses of frames that all leave by the shortcut to port `b`.
    #[track_caller]
    fn short_stations(&mut self, frames: &[Vec<u8>]) -> Vec<String> {
        assert_eq!(self.balanced(frames).len(), 0, "none goes on");
        let sent = self.balancer.drain_sent(SHORT_B);
        assert_eq!(sent.len(), frames.len());
        sent.iter().map(|frame| stations(frame.data()).0.to_string()).collect()
    }
    /// Frames that came by port `a` and go on, as they were.
    #[track_caller]
    fn go_on(&mut self, frames: &[Vec<u8>]) -> Vec<Packet> {
        let left = self.balanced(frames);
        assert_eq!(left.iter().map(|packet| packet.data().to_vec()).collect::<Vec<_>>(), frames);
        self.balancer.expect_nothing_more();
        left
    }
}

/// With a shortcut past the forwarders of this router.
fn short(router: &str, members: &str) -> Led {
    led_by(rig_with(router), &format!("{SERVICES}, ROUTER e, {members}"), "IPForward")
}

#[test]
fn by_the_shortcut_plain_frames_leave_at_once_and_all_else_goes_on() {
    let mut led = short("NEIGHBOR b 10.0.2.5 2:0:0:0:2:5", "MEMBER one 10.0.2.5");
    for packet in [client(1), client(1).flags(TcpFlags::ACK), client(2).payload([7; 100])] {
        assert_eq!(led.balanced(&[frame(packet.clone())]).len(), 0);
        let sent = led.balancer.next_sent(SHORT_B).unwrap();
        assert_eq!(sent.data()[14..], packet.ttl(8).bytes(), "only a hop is taken");
        assert_eq!(stations(sent.data()), (station(SERVER), station(STATION_B)));
    }
    let odd = [
        client(1).ttl(1),
        client(1).options([7, 7, 4, 0, 0, 0, 0]),
        client(1).src("127.0.0.1"),
        client(1).payload(vec![0; 1500]),
        through(),
    ];
    led.go_on(&odd.map(frame));
    led.go_on(&[ether(STATION_B, PEER).ip4(client(1)).bytes(), frame(client(1))[..60 - 14].to_vec()]);
    let mixed = led.balanced(&[frame(through()), frame(client(3)), frame(client(1).ttl(1))]);
    assert_eq!((mixed.len(), led.balancer.drain_sent(SHORT_B).len()), (2, 1));
    let counts = led.balancer.read("counts", "").unwrap();
    assert!(counts.contains("packets-balanced 9\n"), "{counts}");
}

#[test]
fn by_the_shortcut_what_was_decided_holds_until_routes_neighbors_or_members_change() {
    let neighbors = "NEIGHBOR b 10.0.2.5 2:0:0:0:2:5, NEIGHBOR b 10.0.2.6 2:0:0:0:2:6";
    let mut led = short(neighbors, "MEMBER one 30.0.0.1");
    led.rig.bench.write("add_route", "30.0.0.0/8 10.0.2.5").unwrap();
    for _ in 0..3 {
        assert_eq!(led.short_stations(&frames(1..3)), ["02:00:00:00:02:05", "02:00:00:00:02:05"]);
    }
    led.rig.bench.write("add_route", "30.0.0.0/24 10.0.2.6").unwrap();
    assert_eq!(led.short_stations(&frames(1..2)), ["02:00:00:00:02:06"], "a better route");
    led.rig.bench.write("add_neighbor", "b 10.0.2.6 2:0:0:0:2:7").unwrap();
    assert_eq!(led.short_stations(&frames(1..2)), ["02:00:00:00:02:07"], "another MAC address");
    led.rig.bench.write("remove_route", "30.0.0.0/24").unwrap();
    assert_eq!(led.short_stations(&frames(1..2)), ["02:00:00:00:02:05"]);
    led.balancer.write("remove_member", "one").unwrap();
    led.balancer.write("add_member", "two 10.0.2.6").unwrap();
    assert_eq!(led.short_stations(&frames(1..2)), ["02:00:00:00:02:07"], "another member in its place");
    led.balancer.write("remove_member", "two").unwrap();
    led.balancer.write("add_member", "one 30.0.0.1").unwrap();
    led.rig.bench.write("remove_route", "30.0.0.0/8").unwrap();
    led.go_on(&frames(1..2));
}

#[test]
fn no_frame_takes_the_shortcut_past_others_that_wait_for_its_member() {
    let mut led = short("NEIGHBOR b 10.0.2.6 2:0:0:0:2:6", "MEMBER one 10.0.2.5");
    let first = led.go_on(&frames(1..2));
    led.fast.push_packets(A, first);
    let odd = led.fast.drain_sent(HOST);
    led.rig.bench.push_packets(A, odd);
    assert_eq!(&led.rig.only(B)[38..42], [10, 0, 2, 5], "who has it?");
    led.rig.bench.write("add_neighbor", "b 10.0.2.5 2:0:0:0:2:5").unwrap();
    led.rig.silent();
    let second = led.go_on(&frames(2..3));
    led.rig.bench.push_packets(A, second);
    let sent: Vec<_> = led.rig.sent(B).iter().map(|frame| frame[35]).collect();
    assert_eq!(sent, [1, 2], "by the ports of clients");
    assert_eq!(led.short_stations(&frames(3..4)), ["02:00:00:00:02:05"]);
}

#[test]
fn by_the_shortcut_members_on_the_clients_link_get_packets_back_by_it() {
    let mut led = short("HOLD 8", "MEMBER one 10.0.1.8");
    assert_eq!(led.balanced(&[frame(client(1)), frame(through())]).len(), 1);
    assert_eq!(stations(led.balancer.next_sent(SHORT_A).unwrap().data()).0, station("2:0:0:0:1:8"));
    // The sender of packets to the member's own address gets a redirect.
    let itself = "FRAMES true, SERVICE 10.0.1.8:80 tcp, ROUTER e, MEMBER one 10.0.1.8";
    let mut led = led_by(rig_with("HOLD 8"), itself, "IPForward");
    led.go_on(&[frame(client(1).dst("10.0.1.8"))]);
}

#[test]
fn where_sources_are_checked_and_where_there_are_several_ways_no_frame_takes_the_shortcut() {
    let routes = "NEIGHBOR b 10.0.2.5 2:0:0:0:2:5, NEIGHBOR b 10.0.2.6 2:0:0:0:2:6, ROUTE 30.0.0.0/8 \
        10.0.2.5 10.0.2.6";
    short(routes, "MEMBER one 30.0.0.1").go_on(&frames(1..101));
    let router = "PORT a 10.0.1.1/24 ETHER 2:0:0:0:0:1 RPF loose, PORT b 10.0.2.1/24 ETHER 2:0:0:0:0:2,
        NEIGHBOR b 10.0.2.5 2:0:0:0:2:5";
    let config = format!("{SERVICES}, ROUTER e, MEMBER one 10.0.2.5");
    led_by(rig_of(router), &config, "IPForward").go_on(&frames(1..101));
}

#[test]
fn frames_of_monitored_ports_end_before_they_take_the_shortcut_or_after() {
    let mut led = short("NEIGHBOR b 10.0.2.5 2:0:0:0:2:5", "MEMBER one 10.0.2.5");
    led.balancer.set_monitor(0, "l3");
    assert_eq!(led.balanced(&frames(1..4)).len(), 0);
    assert_eq!(led.balanced(&[frame(client(1)), frame(through())]).len(), 1);
    led.balancer.expect_dropped(DropReason::Monitored, 4);
    led.balancer.set_monitor(0, "l4");
    assert_eq!(led.short_stations(&frames(1..2)), ["02:00:00:00:02:05"]);
}

#[test]
fn frames_that_no_member_takes_end_and_the_others_go_their_ways() {
    let mut led = short("NEIGHBOR b 10.0.2.5 2:0:0:0:2:5", "MEMBER one 10.0.2.5");
    led.balancer.write("remove_member", "one").unwrap();
    assert_eq!(led.balanced(&[frame(client(1)), frame(through()), frame(client(2))]).len(), 1);
    led.balancer.expect_dropped(DropReason::NoMember, 2);
    assert_eq!(led.balanced(&frames(1..3)).len(), 0);
    led.balancer.expect_dropped(DropReason::NoMember, 4);
}

#[test]
fn a_shortcut_that_can_not_be_is_refused_with_the_remedy() {
    let led = short("HOLD 8", "MEMBER one 10.0.2.5");
    for (config, said) in [
        ("FRAMES true, SERVICE 20.0.0.1:80, ROUTER x", "does not name an element"),
        ("SERVICE 20.0.0.1:80, ROUTER e", "write FRAMES true, too"),
        ("FRAMES true, SERVICE 20.0.0.1:80, FORWARD nat, ROUTER e", "leave ROUTER out"),
        ("FRAMES true, SERVICE 20.0.0.1:80, ROUTER e", "2 outputs more than inputs"),
    ] {
        let refusal = refusal(&led, config);
        assert!(refusal.contains(said), "{config}: {refusal}");
    }
}
fn refusal(led: &Led, config: &str) -> String {
    let class = CLASSES.find_class("FlowBalancer").unwrap();
    let setup = Bench::setup(class, config).inputs(2).outputs(2).sharing_with(&led.rig.bench);
    let errors = setup.build().err().unwrap_or_default();
    errors.iter().map(|error| format!("{error}\n")).collect()
}

#[test]
fn ipv6_takes_the_shortcut_as_well() {
    let config = "FRAMES true, SERVICE [2001:db8:20::1]:80 tcp, ROUTER e, MEMBER one 2001:db8:2::5";
    let mut led = led_by(rig_with("NEIGHBOR b 2001:db8:2::5 2:0:0:0:2:5"), config, "IP6Forward");
    let packet = |hops| ip6().src("2001:db8:1::9").dst("2001:db8:20::1").hop_limit(hops).tcp(1, 80);
    let frame = |hops| ether(STATION_A, PEER).ip6(packet(hops)).bytes();
    assert_eq!(led.balanced(&[frame(9)]).len(), 0);
    let sent = led.balancer.next_sent(SHORT_B).unwrap();
    assert_eq!(sent.data()[14..], packet(8).bytes());
    led.go_on(&[frame(1)]);
}
