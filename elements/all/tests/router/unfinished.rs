//! Long packets of hosts that leave the cutting to a network card.
use super::rig::*;
use artery_engine::{Batch, DropReason, Packet};
use artery_packet::{PacketOffload, SegmentKind, Segments};
use artery_wire::build::{Ip4, arp_reply, ether, ip4};
use artery_wire::{Ipv4, TcpFlags};

/// A frame with a packet of 5,500 bytes, to be cut into segments of `size` bytes.
fn long(rig: &Rig, station: &str, ip: Ip4, size: u16) -> Packet {
    let ip = ip.tcp(1, 80).flags(TcpFlags::ACK).payload(vec![7; 5500]);
    let mut packet = rig.bench.packet(ether(STATION_A, station).ip4(ip).bytes());
    let segments = Segments { network: 14, kind: SegmentKind::Tcp4, size };
    packet.set_offload(PacketOffload { transport: 34, checksum: 16, segments: Some(segments) }).unwrap();
    packet.verify_segments().unwrap();
    packet
}
fn from_host() -> Ip4 {
    ip4().src("10.0.2.1").dst("20.0.0.1").ttl(1)
}
/// What was sent by an output, and how many packets that was before it was cut.
fn cut(rig: &mut Rig, output: usize) -> (usize, Vec<Vec<u8>>) {
    let mut batch = Batch::default();
    batch.extend(rig.bench.drain_sent(output));
    let before = batch.len();
    batch.apply_offloads();
    (before, batch.iter().map(|packet| packet.data().to_vec()).collect())
}
#[track_caller]
fn check_segments(frames: &[Vec<u8>], size: usize, ttl: u8) {
    assert_eq!(frames.len(), 5500_usize.div_ceil(size));
    for frame in frames {
        let ip = Ipv4::new(&frame[14..]).unwrap();
        assert!(ip.checksum_is_valid() && ip.total_length() as usize <= size + 40);
        assert_eq!(ip.ttl(), ttl);
    }
}

#[test]
fn a_long_packet_of_the_host_leaves_whole_if_its_segments_fit() {
    let mut rig = rig();
    rig.bench.push_packets(HOST, [long(&rig, OWN_HOST, from_host(), 1000)]);
    let (packets, frames) = cut(&mut rig, B);
    assert_eq!(packets, 1);
    check_segments(&frames, 1000, 1);
    assert_eq!(stations(&frames[5]), (station(GATEWAY), station(STATION_B)));
    rig.silent();
}

#[test]
fn segments_that_do_not_fit_are_cut_further_or_told_of() {
    let config = "PORT a 10.0.1.1/24 ETHER 2:0:0:0:0:1, PORT b 10.0.2.1/24 ETHER 2:0:0:0:0:2 MTU 1000,
         NEIGHBOR b 10.0.2.254 2:0:0:0:2:fe, ROUTE 20.0.0.0/8 10.0.2.254, DAD false, HOST 2:0:0:0:9:9";
    let mut rig = rig_of(config);
    rig.bench.push_packets(HOST, [long(&rig, OWN_HOST, from_host(), 960)]);
    assert_eq!(cut(&mut rig, B).0, 1);
    rig.bench.push_packets(HOST, [long(&rig, OWN_HOST, from_host(), 1100)]);
    assert_eq!(cut(&mut rig, B).0, 10, "five segments, each of them in two");
    rig.bench.push_packets(HOST, [long(&rig, OWN_HOST, from_host().dont_fragment(), 1100)]);
    assert_eq!((rig.drops(DropReason::TooBig), rig.sent(HOST).len()), (5, 5));
    rig.silent();
}

#[test]
fn a_long_packet_for_the_host_reaches_it_whole_and_one_that_must_wait_does_so_in_segments() {
    let mut rig = rig();
    let to = |dst: &str| through().dst(dst);
    rig.bench.push_packets(A, [long(&rig, PEER, to("10.0.2.1"), 1000)]);
    let (packets, frames) = cut(&mut rig, HOST);
    assert_eq!(packets, 1);
    check_segments(&frames, 1000, 9);
    rig.bench.push_packets(A, [long(&rig, PEER, to("10.0.2.5"), 1000)]);
    assert_eq!(rig.counter("held"), 6);
    rig.take_all();
    rig.bench.push(B, arp_reply("2:0:0:0:2:5", "10.0.2.5", STATION_B, "10.0.2.1").bytes());
    let (packets, frames) = cut(&mut rig, B);
    assert_eq!(packets, 6);
    check_segments(&frames, 1000, 8);
}
