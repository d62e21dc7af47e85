//! Packets that waited are sent before later ones that take the fast path.
use super::rig::*;
use artery_elements::CLASSES;
use artery_engine::Bench;
use artery_wire::build::{Ip4, arp_reply, ether};

/// IPForward in front of a router: two ports, and the output for exceptions.
fn fast(rig: &Rig) -> Bench {
    let class = CLASSES.find_class("IPForward").unwrap();
    Bench::setup(class, "e").inputs(2).outputs(3).sharing_with(&rig.bench).build().unwrap()
}
fn frame(packet: Ip4) -> Vec<u8> {
    ether(STATION_A, PEER).ip4(packet).bytes()
}
/// How many packets left by the port, and how many were exceptions.
#[track_caller]
fn parted(fast: &mut Bench, packet: Ip4) -> (usize, usize) {
    fast.push(A, frame(packet));
    (fast.drain_sent(B).len(), fast.drain_sent(HOST).len())
}

#[test]
fn the_fast_path_waits_until_packets_that_waited_have_gone() {
    let mut rig = rig();
    let mut fast = fast(&rig);
    let to = |n: u8| through().dst([10, 0, 2, n]);
    assert_eq!(parted(&mut fast, to(5)), (0, 1), "not resolved yet");
    rig.push4(to(5));
    rig.take_all();
    assert_eq!(parted(&mut fast, through()), (1, 0), "others are not held up by one that waits");
    rig.bench.write("add_neighbor", "b 10.0.2.5 2:0:0:0:2:5").unwrap();
    rig.silent();
    assert_eq!(parted(&mut fast, to(5)), (0, 1), "it is known, but one still waits");
    rig.push4(to(5).id(9));
    let sent: Vec<_> = rig.sent(B).iter().map(|frame| u16::from_be_bytes([frame[18], frame[19]])).collect();
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[1], 9);
    assert_eq!(parted(&mut fast, to(5)), (1, 0));
}

#[test]
fn messages_of_neighbors_that_are_known_turn_nothing_aside() {
    let mut rig = rig();
    let mut fast = fast(&rig);
    rig.push4(through().dst("10.0.2.6"));
    rig.take_all();
    for _ in 0..3 {
        rig.bench.push(B, arp_reply(GATEWAY, "10.0.2.254", STATION_B, "10.0.2.1").bytes());
        assert_eq!(parted(&mut fast, through()), (1, 0));
    }
    rig.bench.push(B, arp_reply("2:0:0:0:2:6", "10.0.2.6", STATION_B, "10.0.2.1").bytes());
    assert_eq!(rig.sent(B).len(), 1, "the packet that waited");
    assert_eq!(parted(&mut fast, through().dst("10.0.2.6")), (1, 0));
}
