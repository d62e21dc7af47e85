use super::*;
use crate::bpf::{self, Assembler, Hook, WordArray};
use crate::namespace::{Host, in_namespace, run};
use crate::testing::*;
use crate::{Hide, Interface, RxQueue, TxQueue};
use artery_packet::{Batch, Packet, PacketOffload, PacketType, Pool, SegmentKind, Segments};
use artery_wire::build::{ether, ip4, ip6};
use artery_wire::{Ethernet, Ipv4, checksum};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn frames_cross_a_cable_whole_in_order_and_marked() {
    on_a_cable(|pool| {
        let mut rx = packet_rx("right", RxSettings::default());
        let mut tx = packet_tx("left");
        let mut sent = batch_of(pool, (0..200).map(|n| frame(BROADCAST, n, 60 + 5 * n as usize)));
        assert_eq!(tx.transmit(&mut sent), Ok(200));
        let got = receive_until(&mut rx, pool, |data| data[14..] == frame(BROADCAST, 199, 1055)[14..]);
        let numbers: Vec<_> = got.iter().filter(|p| is_ours(p.data())).collect();
        for (n, packet) in numbers.iter().enumerate() {
            assert_eq!(packet.data(), frame(BROADCAST, n as u8, 60 + 5 * n));
            assert_eq!((packet.packet_type(), packet.in_port()), (PacketType::Broadcast, 3));
            assert!(packet.timestamp().seconds() > 1_000_000_000);
        }
        assert_eq!((numbers.len(), tx.counters().packets), (200, 200));
    });
}

#[test]
fn what_the_link_cannot_carry_is_dropped_and_counted_and_the_rest_sent() {
    on_a_cable(|pool| {
        let mut rx = packet_rx("right", RxSettings::default());
        let mut tx = packet_tx("left");
        let mut sent = Batch::default();
        for (number, len) in [(1, 60), (2, 1515), (3, 13), (4, 1514)] {
            let mut bytes = frame(BROADCAST, number, len.max(14));
            bytes.truncate(len);
            sent.push(pool.packet_from(&bytes).unwrap());
        }
        assert_eq!(tx.transmit(&mut sent), Ok(4));
        let counters = tx.counters();
        assert_eq!((counters.packets, counters.bytes, counters.too_long, counters.refused), (2, 1574, 1, 1));
        let got = receive_until(&mut rx, pool, |data| data.len() == 1514);
        assert!(got.iter().any(|p| p.data() == frame(BROADCAST, 1, 60)));
    });
}

#[test]
fn frames_longer_than_a_slot_come_whole_and_in_order() {
    in_namespace(|| {
        run("ip link add left mtu 40000 type veth peer name right mtu 40000");
        bring_up();
        let pool = pool();
        let mut rx = packet_rx("right", RxSettings::default());
        let lengths = [60, 30_000, 100, 16_000, 40_014, 9_000, 35_000, 61];
        let mut sent = batch_of(pool, lengths.map(|len| frame(BROADCAST, 8, len)));
        assert_eq!(packet_tx("left").transmit(&mut sent), Ok(8));
        let got = receive_until(&mut rx, pool, |data| data.len() == 61);
        let ours = got.iter().filter(|packet| is_ours(packet.data()));
        let received: Vec<_> = ours.inspect(|p| assert_eq!(p.data(), frame(BROADCAST, 8, p.len()))).collect();
        assert_eq!(received.iter().map(|p| p.len()).collect::<Vec<_>>(), lengths);
        assert_eq!((rx.counters().truncated, rx.counters().unfinished), (0, 0));
    });
}

/// Whether an Ethernet frame is a TCP or UDP packet over IPv4 whose transport checksum is right.
fn checksum_is_right(frame: &[u8]) -> bool {
    let ether = Ethernet::new(frame).unwrap();
    let ip = Ipv4::new(ether.payload()).unwrap();
    let length = ip.total_length() - ip.header_len() as u16;
    let pseudo = checksum::pseudo_v4(ip.src(), ip.dst(), ip.protocol(), length);
    checksum::is_valid(checksum::add(pseudo, checksum::sum(&ip.payload()[..usize::from(length)])))
}

#[test]
fn checksums_that_the_sender_left_to_its_card_are_noted_and_can_be_finished() {
    in_namespace(|| {
        let (pool, host) = (pool(), Host::new());
        host.cable("left", "right");
        host.run("ip address add 10.1.0.2/24 dev right");
        host.run("ip neighbor add 10.1.0.1 lladdr 02:00:00:00:00:01 dev right");
        let mut rx = packet_rx("left", RxSettings::default());
        let _mode = PromiscuousMode::enter(&find("left").unwrap()).unwrap();
        host.send_udp("10.1.0.1", 7, b"unfinished");
        let wanted = |data: &[u8]| data.ends_with(b"unfinished");
        let mut got = receive_until(&mut rx, pool, wanted);
        let mut packet = got.drain().find(|packet| wanted(packet.data())).unwrap();
        assert_eq!(packet.packet_type(), PacketType::OtherHost, "the interface has another address");
        assert!(packet.has_offload() && !checksum_is_right(packet.data()), "{packet:?}");
        packet.apply_checksum().unwrap();
        assert!(checksum_is_right(packet.data()), "{packet:?}");
        assert_eq!(rx.counters().unfinished, 1);
    });
}

/// A long frame of a kind, with a record of segments of 1,000 bytes.
fn long_frame(pool: &'static Pool, kind: SegmentKind, tagged: bool) -> Packet {
    let ether = ether("02:00:00:00:00:01", "ff:ff:ff:ff:ff:ff");
    let ether = if tagged { ether.vlan(42) } else { ether };
    let payload: Vec<u8> = (0..5500u32).map(|n| (n % 251) as u8).collect();
    let bytes = match kind {
        SegmentKind::Tcp4 => ether.ip4(ip4().id(7).tcp(1, 2).payload(payload)).bytes(),
        SegmentKind::Tcp6 => ether.ip6(ip6().tcp(1, 2).payload(payload)).bytes(),
        _ => ether.ip4(ip4().id(7).udp(1, 2).payload(payload)).bytes(),
    };
    let network = if tagged { 18 } else { 14 };
    let mut packet = pool.packet_from(&bytes).unwrap();
    let transport = network + if kind == SegmentKind::Tcp6 { 40 } else { 20 };
    let segments = Some(Segments { network, kind, size: 1000 });
    let checksum = if kind == SegmentKind::Udp { 6 } else { 16 };
    packet.set_offload(PacketOffload { transport, checksum, segments }).unwrap();
    packet.verify_segments().unwrap();
    packet
}

#[test]
fn long_frames_cross_a_link_whole_with_or_without_a_tag() {
    on_a_cable(|pool| {
        let (mut rx, mut tx) = (packet_rx("right", RxSettings::default()), packet_tx("left"));
        let kinds = [SegmentKind::Tcp4, SegmentKind::Tcp6, SegmentKind::Udp];
        for (kind, tagged) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            let mut sent = Batch::default();
            sent.push(long_frame(pool, kind, tagged));
            assert_eq!(tx.transmit(&mut sent), Ok(1));
            let sent = long_frame(pool, kind, tagged);
            let got = receive_until(&mut rx, pool, |data| data == sent.data());
            let received = got.iter().find(|packet| packet.data() == sent.data()).unwrap();
            assert_eq!(received.offload(), sent.offload(), "{kind:?}, tagged: {tagged}");
        }
        assert_eq!((tx.counters().unfinished, tx.counters().refused), (6, 0));
        assert_eq!((rx.counters().malformed, rx.counters().truncated), (0, 0));
    });
}

#[test]
fn segments_longer_than_the_link_carries_are_dropped_and_counted() {
    in_namespace(|| {
        run("ip link add left mtu 1039 type veth peer name right");
        bring_up();
        let mut tx = packet_tx("left");
        let mut sent = batch_of(pool(), [frame(BROADCAST, 1, 60)]);
        sent.push(long_frame(pool(), SegmentKind::Tcp4, false));
        sent.push(long_frame(pool(), SegmentKind::Udp, true));
        let mut hollow = long_frame(pool(), SegmentKind::Udp, false);
        hollow.truncate(30);
        sent.push(hollow);
        assert_eq!(tx.transmit(&mut sent), Ok(4));
        let counters = tx.counters();
        assert_eq!((counters.packets, counters.too_long, counters.refused), (2, 1, 1), "{counters:?}");
    });
}

#[test]
fn a_vlan_tag_that_the_kernel_took_off_is_put_back() {
    on_a_cable(|pool| {
        let mut rx = packet_rx("right", RxSettings::default());
        let mut tagged = frame(BROADCAST, 5, 80);
        tagged[12..18].copy_from_slice(&[0x81, 0, 0x20, 42, 0x88, 0xb5]);
        let mut sent = batch_of(pool, [&tagged]);
        packet_tx("left").transmit(&mut sent).unwrap();
        let got = receive_until(&mut rx, pool, |data| data[14..16] == [0x20, 42]);
        assert!(got.iter().any(|packet| packet.data() == tagged));
    });
}

#[test]
fn what_leaves_by_an_interface_does_not_come_back_unless_asked_for() {
    on_a_cable(|pool| {
        let mut deaf = packet_rx("left", RxSettings::default());
        let mut both = packet_rx("left", RxSettings { outbound: true, ..Default::default() });
        let bypass = TxSettings { qdisc_bypass: true, ..TxSettings::default() };
        let mut unheard = AfPacketTx::open(&find("left").unwrap(), &bypass, Arc::default()).unwrap();
        let mut sent = Batch::default();
        for (tx, number) in [(&mut unheard, 1), (&mut packet_tx("left"), 2), (&mut packet_tx("right"), 3)] {
            sent.push(pool.packet_from(&frame(BROADCAST, number, 60)).unwrap());
            tx.transmit(&mut sent).unwrap();
        }
        let numbers = |rx: &mut AfPacketRx| -> Vec<_> {
            let got = receive_until(rx, pool, |data| data == frame(BROADCAST, 3, 60));
            let ours = got.iter().filter(|packet| is_ours(packet.data()));
            ours.map(|packet| (packet.data()[20], packet.packet_type())).collect()
        };
        assert_eq!(numbers(&mut deaf), [(3, PacketType::Broadcast)]);
        assert_eq!(numbers(&mut both), [(2, PacketType::Outgoing), (3, PacketType::Broadcast)]);
    });
}

#[test]
fn an_interface_that_goes_down_or_vanishes_is_told() {
    on_a_cable(|pool| {
        let (mut rx, mut tx) = (packet_rx("left", RxSettings::default()), packet_tx("left"));
        let mut sent = batch_of(pool, [frame(BROADCAST, 1, 60)]);
        let mut first_error = || {
            let mut received = Batch::default();
            (0..1000).find_map(|_| rx.receive(pool, 64, &mut received).err())
        };
        run("ip link set left down");
        let down = DeviceError::Down { name: "left".into() };
        assert_eq!(first_error(), Some(down.clone()));
        assert_eq!(tx.transmit(&mut sent), Err(down));
        run("ip link set left up");
        assert_eq!(first_error(), None, "the queue goes on when the interface is back");
        run("ip link del left");
        let gone = DeviceError::Gone { name: "left".into() };
        assert_eq!(first_error(), Some(gone.clone()));
        assert_eq!(tx.transmit(&mut sent), Err(gone));
        assert_eq!(sent.len(), 1);
    });
}

#[test]
fn a_full_ring_and_an_empty_pool_lose_packets_and_count_them() {
    in_namespace(|| {
        cable();
        let (pool, small) = (pool(), Pool::new(10, 1).unwrap());
        let mut rx = packet_rx("right", RxSettings { ring_bytes: 64 << 10, ..Default::default() });
        let mut tx = packet_tx("left");
        let mut got = Batch::default();
        let end = Instant::now() + Duration::from_secs(20);
        let mut send = || tx.transmit(&mut batch_of(pool, (0..50).map(|n| frame(BROADCAST, n, 60)))).unwrap();
        // Asleep, so that what the kernel left for later gets a processor.
        let rest = || std::thread::sleep(Duration::from_millis(50));
        send();
        rest();
        assert_eq!(rx.own_counters().ring_full, 0, "the kernel was not asked");
        while rx.counters().ring_full < 18 {
            assert!(Instant::now() < end, "{:?}", rx.counters());
            // A link that has just come up may lose what it is given.
            send();
            rest();
        }
        // A slot may still be filled on another processor while later ones overflow: poll
        // until all were seen.
        let seen = |rx: &AfPacketRx| rx.counters().packets + rx.counters().pool_empty;
        while seen(&rx) < 32 && Instant::now() < end {
            rx.receive(small, 64, &mut got).unwrap();
        }
        let counters = rx.counters();
        assert_eq!(counters.packets, 10);
        assert!(counters.packets + counters.pool_empty >= 32, "the ring has 32 slots: {counters:?}");
        assert_eq!(rx.own_counters(), counters);
    });
}

#[test]
fn queues_share_flows_and_lose_none() {
    in_namespace(|| {
        let (pool, host) = (pool(), Host::new());
        host.cable("left", "right");
        let settings = RxSettings { queues: 2, ..Default::default() };
        let (interface, group) = (find("left").unwrap(), FanoutGroup::default());
        let mut queues: Vec<_> =
            (0..2).map(|_| AfPacketRx::open(&interface, &settings, 1, &group).unwrap()).collect();
        host.run("ip address add 10.1.0.2/24 dev right");
        host.run("ip neighbor add 10.1.0.1 lladdr 02:00:00:00:00:01 dev right");
        for port in 1..=40 {
            host.send_udp("10.1.0.1", port, b"one of the flows");
        }
        let mut counts = [0, 0];
        let end = Instant::now() + Duration::from_secs(5);
        while counts[0] + counts[1] < 40 && Instant::now() < end {
            for (count, rx) in counts.iter_mut().zip(&mut queues) {
                let mut got = Batch::default();
                rx.receive(pool, 64, &mut got).unwrap();
                *count += got.iter().filter(|p| p.data().ends_with(b"one of the flows")).count();
            }
        }
        assert_eq!(counts[0] + counts[1], 40);
        assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}");
    });
}

#[test]
fn a_hidden_interface_is_deaf_until_its_holder_is_killed() {
    if is_alone() {
        return hold(&mut packet_rx("left", RxSettings { hide: Hide::All, ..Default::default() }));
    }
    in_namespace(|| {
        let host = neighbor();
        assert!(is_answered(&host), "the host answers at first");
        let mut holder = start_holder(a_hidden_interface_is_deaf_until_its_holder_is_killed);
        assert!(!host.pings("10.1.0.1"), "the host gets no frames");
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert!(is_answered(&host), "it answers again when the holder was killed");
    });
}

#[test]
fn an_interface_of_many_queues_is_hidden_while_one_is_left() {
    in_namespace(|| {
        let host = neighbor();
        assert!(is_answered(&host), "the host answers at first");
        let settings = RxSettings { hide: Hide::All, queues: 80, ring_bytes: 1, ..Default::default() };
        let (interface, group) = (find("left").unwrap(), FanoutGroup::default());
        let open = |_| AfPacketRx::open(&interface, &settings, 1, &group).unwrap();
        let mut queues: Vec<_> = (0..80).map(open).collect();
        queues.truncate(1);
        assert!(!host.pings("10.1.0.1"), "the host gets no frames");
        queues.clear();
        assert!(is_answered(&host), "it answers again when all are closed");
        queues.extend((0..2).map(open));
        assert!(!host.pings("10.1.0.1"), "the host gets no frames again");
    });
}

#[test]
fn what_is_hidden_from_the_host_is_received() {
    in_namespace(|| {
        let (pool, host) = (pool(), neighbor());
        let mut rx = packet_rx("left", RxSettings { hide: Hide::All, ..Default::default() });
        assert!(!host.pings("10.1.0.1"));
        let arp = |data: &[u8]| data[12..14] == [8, 6] && data[38..42] == [10, 1, 0, 1];
        let got = receive_until(&mut rx, pool, arp);
        let request = got.iter().find(|packet| arp(packet.data())).unwrap();
        assert_eq!(request.packet_type(), PacketType::Broadcast);
        drop(rx);
        assert!(is_answered(&host));
    });
}

/// A program at an interface that lets everything pass, behind those that are there: of our frames that they
/// leave for the host it counts those without a tag, and those with one.
fn count_for_host(interface: &Interface) -> (WordArray<2>, bpf::Attachment) {
    use crate::bpf::{Operation, Register::*, Size, Test};
    let seen = WordArray::<2>::new().unwrap();
    let mut a = Assembler::default();
    let (is_bare, end) = (a.label(), a.label());
    // Those of other protocols are the host's own.
    a.load(Size::Word, R2, R1, 16);
    a.jump_if(Test::NotEqual, R2, i32::from(0x88b5_u16.to_be()), end);
    a.value(R3, seen.descriptor(), 0);
    a.load(Size::Word, R2, R1, 20);
    a.jump_if(Test::Equal, R2, 0, is_bare);
    a.compute(Operation::Add, R3, 8);
    a.place(is_bare);
    a.load(Size::Double, R4, R3, 0);
    a.compute(Operation::Add, R4, 1);
    a.store(Size::Double, R3, 0, R4);
    a.place(end);
    a.set(R0, -1);
    a.exit();
    let program = bpf::load(Hook::TcIngress, &a.finish().unwrap()).unwrap();
    let link = bpf::attach(&program, interface.index, Hook::TcIngress).unwrap();
    (seen, link)
}

/// One of our frames with a tag.
fn tagged(protocol: u16, tag: u16, number: u8) -> Vec<u8> {
    let mut bytes = frame(BROADCAST, number, 60);
    bytes.splice(12..12, [protocol.to_be_bytes(), tag.to_be_bytes()].concat());
    bytes
}

#[test]
fn where_tagged_frames_are_hidden_the_host_sees_those_without_a_vlan_and_the_router_all() {
    in_namespace(|| {
        cable();
        let (pool, left) = (pool(), find("left").unwrap());
        let frames = [
            frame(BROADCAST, 1, 60),
            tagged(0x8100, 7, 2),
            // A priority, and no VLAN.
            tagged(0x8100, 5 << 13, 3),
            tagged(0x88a8, 7, 4),
            tagged(0x88a8, 0, 5),
            frame(BROADCAST, 6, 60),
        ];
        let expected = [(Hide::Nothing, [2, 4]), (Hide::Tagged, [2, 1]), (Hide::All, [0, 0])];
        for (hide, for_host) in expected {
            let mut rx = packet_rx("left", RxSettings { hide, ..Default::default() });
            let (seen, _held) = count_for_host(&left);
            let mut tx = packet_tx("right");
            assert_eq!(tx.transmit(&mut batch_of(pool, &frames)), Ok(frames.len()));
            // All that came before the last one has been counted when that one is received,
            // but perhaps itself not.
            let got = receive_until(&mut rx, pool, |data| data == frames[5]);
            let ours = got.iter().filter(|packet| frames.iter().any(|frame| frame == packet.data()));
            assert_eq!(ours.count(), frames.len(), "{hide:?}: the router gets all: {got:?}");
            let end = Instant::now() + Duration::from_secs(10);
            while seen.read().unwrap() != for_host {
                assert!(Instant::now() < end, "{hide:?}: {:?} for the host", seen.read());
                std::thread::yield_now();
            }
        }
    });
}

#[test]
fn tcp_with_default_offloads_crosses_two_ports() {
    in_namespace(|| {
        let (all, served, counters) = tcp(&two_hosts(), |done| {
            let settings = || RxSettings { hide: Hide::All, ..Default::default() };
            let mut rx = ["art0", "art1"].map(|name| packet_rx(name, settings()));
            let _modes = ["art0", "art1"].map(|name| PromiscuousMode::enter(&find(name).unwrap()).unwrap());
            let mut tx = ["art0", "art1"].map(packet_tx);
            bridge(&mut rx, &mut tx, pool(), done)
        });
        assert_eq!((all, served), (true, MEGABYTES << 20), "{counters:?}");
        assert!(counters[0].unfinished > 0, "the client sends long frames: {counters:?}");
        assert_eq!(counters.map(|c| (c.truncated, c.malformed)), [(0, 0); 2]);
    });
}
