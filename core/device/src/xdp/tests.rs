//! Ports by AF_XDP on veth pairs: what arrives and leaves by them. The ownership of interfaces, TCP between
//! hosts across two ports, and overwritten rings have files of their own.
mod holders;
mod hosts;
mod overwritten;

use super::*;
use crate::af_packet::PromiscuousMode;
use crate::namespace::{Host, in_namespace, run};
use crate::testing::{
    self, BROADCAST, batch_of, bring_up, frame, free_frames, is_answered, is_ours, is_ready, neighbor,
    packet_rx, packet_tx, pool, receive_until,
};
use crate::{DeviceError, Interface, PortHalf, RxCounters, RxQueue, RxSettings, TxQueue, sys};
use artery_packet::{Batch, PacketType, Pool};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

fn settings(attach: Attach) -> XdpSettings {
    XdpSettings { attach, ..XdpSettings::default() }
}

fn open(name: &str, settings: &XdpSettings, pool: &'static Pool) -> XdpPort {
    XdpPort::open(&Interface::find(name).unwrap(), settings, 3, pool).unwrap()
}

/// Lays a cable whose ends both carry.
fn cable() {
    testing::cable();
    wait_for_carriers();
}

/// Runs `test` in a fresh namespace with such a cable.
fn on_a_cable(test: impl FnOnce(&'static Pool) + Send) {
    in_namespace(|| {
        cable();
        test(pool());
    });
}

/// Waits until the kernel sends by both ends: it notices carriers once a second only.
fn wait_for_carriers() {
    let end = Instant::now() + Duration::from_secs(5);
    while !["left", "right"].iter().all(|end| Interface::find(end).unwrap().running) {
        assert!(Instant::now() < end, "no carrier within five seconds");
        std::thread::yield_now();
    }
}

#[test]
fn a_queue_that_is_blind_takes_frames_for_this_hosts_until_it_sees_again() {
    on_a_cable(|pool| {
        let port = open("right", &settings(Attach::Native), pool);
        let (mut rx, mut tx) = (port.rx(0, &RxSettings::default()).unwrap(), packet_tx("left"));
        for (number, blind, expected) in [(1, true, PacketType::Host), (2, false, PacketType::Broadcast)] {
            rx.set_blind(blind);
            let mut sent = batch_of(pool, [frame(BROADCAST, number, 60)]);
            tx.transmit(&mut sent).unwrap();
            let got = receive_until(&mut rx, pool, |data| data == frame(BROADCAST, number, 60));
            let packet = got.iter().find(|packet| packet.data() == frame(BROADCAST, number, 60)).unwrap();
            assert_eq!((packet.packet_type(), packet.in_port()), (expected, 3));
        }
    });
}

#[test]
fn frames_come_in_whole_in_order_and_marked_by_every_program() {
    for attach in [Attach::Native, Attach::Generic] {
        on_a_cable(|pool| {
            let port = open("right", &settings(attach), pool);
            let (mut rx, mut tx) = (port.rx(0, &RxSettings::default()).unwrap(), packet_tx("left"));
            let mut sent = Batch::default();
            for n in 0..200 {
                sent.push(pool.packet_from(&frame(BROADCAST, n, 60 + 5 * n as usize)).unwrap());
            }
            assert_eq!(tx.transmit(&mut sent), Ok(200));
            let got = receive_until(&mut rx, pool, |data| data == frame(BROADCAST, 199, 1055));
            let ours: Vec<_> = got.iter().filter(|packet| is_ours(packet.data())).collect();
            for (n, packet) in ours.iter().enumerate() {
                assert_eq!(packet.data(), frame(BROADCAST, n as u8, 60 + 5 * n));
                assert_eq!((packet.packet_type(), packet.in_port()), (PacketType::Broadcast, 3));
                assert!(packet.timestamp().seconds() > 1_000_000_000);
            }
            assert_eq!(ours.len(), 200);
            assert_eq!(rx.counters().malformed, 0);
            assert_eq!(port.report().native, attach == Attach::Native);
        });
    }
}

#[test]
fn what_the_link_carries_leaves_whole_and_in_order_and_the_rest_is_counted() {
    in_namespace(|| {
        cable();
        let (pool, other) = (pool(), Pool::new(64, 1).unwrap());
        let port = open("left", &settings(Attach::Best), pool);
        let (mut tx, mut rx) = (port.tx(0).unwrap(), packet_rx("right", RxSettings::default()));
        let mut sent = Batch::default();
        for (number, len) in [(1, 60), (2, 1515), (3, 14), (4, 1514), (5, 1518), (6, 13)] {
            let mut bytes = frame(BROADCAST, number, len.max(14));
            bytes.truncate(len);
            if number == 5 {
                bytes[12..18].copy_from_slice(&[0x81, 0, 0, 9, 0x88, 0xb5]);
            }
            sent.push(pool.packet_from(&bytes).unwrap());
        }
        let mut big = pool.alloc_big_packet().unwrap();
        big.append(100).unwrap().copy_from_slice(&frame(BROADCAST, 7, 100));
        sent.push(big);
        sent.push(other.packet_from(&frame(BROADCAST, 8, 80)).unwrap());
        sent.push(pool.packet_from(&frame(BROADCAST, 9, 5000)).unwrap());
        sent.push(pool.packet_from(&frame(BROADCAST, 10, 61)).unwrap());
        assert_eq!(tx.transmit(&mut sent), Ok(10));
        let counters = tx.counters();
        assert_eq!((counters.packets, counters.too_long, counters.refused), (7, 2, 1));
        assert_eq!((tx.copied(), tx.malformed()), (2, 0));
        let got = receive_until(&mut rx, pool, |data| data.len() == 61);
        let ours: Vec<_> = got.iter().map(|packet| packet.data().to_vec()).collect();
        let numbers: Vec<_> =
            ours.iter().filter(|f| is_ours(f) || f[12..14] == [0x81, 0]).map(|f| f.len()).collect();
        assert_eq!(numbers, [60, 14, 1514, 1518, 100, 80, 61]);
        assert!(ours.contains(&frame(BROADCAST, 7, 100)) && ours.contains(&frame(BROADCAST, 8, 80)));
        drop((sent, got));
        assert_eq!(free_frames(other), 64, "what was copied went back to its own pool");
    });
}

#[test]
fn what_is_unfinished_is_finished_before_it_leaves() {
    use artery_packet::{PacketOffload, SegmentKind, Segments};
    use artery_wire::build::{ether, ip4};
    on_a_cable(|pool| {
        let port = open("left", &settings(Attach::Best), pool);
        let (mut tx, mut rx) = (port.tx(0).unwrap(), packet_rx("right", RxSettings::default()));
        let link = || ether("02:00:00:00:00:01", "ff:ff:ff:ff:ff:ff");
        let datagram = link().ip4(ip4().udp(1, 2).payload(b"not finished"));
        let mut unfinished = pool.packet_from(&datagram.bytes()).unwrap();
        let length = unfinished.len() - 34;
        let pseudo = artery_wire::checksum::pseudo_v4(
            artery_wire::Ipv4::new(&datagram.bytes()[14..]).unwrap().src(),
            artery_wire::Ipv4::new(&datagram.bytes()[14..]).unwrap().dst(),
            artery_wire::IpProtocol::UDP,
            length as u16,
        );
        unfinished.data_mut()[40..42].copy_from_slice(&pseudo.to_be_bytes());
        unfinished.set_offload(PacketOffload { transport: 34, checksum: 6, segments: None }).unwrap();
        let whole = link().ip4(ip4().tcp(1, 2).payload([7; 3000])).bytes();
        let mut long = pool.packet_from(&whole).unwrap();
        let segments = Some(Segments { network: 14, kind: SegmentKind::Tcp4, size: 1400 });
        long.set_offload(PacketOffload { transport: 34, checksum: 16, segments }).unwrap();
        let mut sent = Batch::default();
        sent.extend([unfinished, long]);
        tx.transmit(&mut sent).unwrap();
        assert_eq!((sent.len(), tx.counters().packets, tx.counters().too_long), (0, 4, 0));
        let got = receive_until(&mut rx, pool, |data| data.len() == 254);
        assert!(got.iter().any(|packet| packet.data() == datagram.bytes()));
        assert_eq!(got.iter().filter(|packet| packet.len() == 1454).count(), 2);
    });
}

#[test]
fn a_ring_that_is_full_leaves_packets_in_the_batch_and_none_is_lost() {
    on_a_cable(|pool| {
        let port = open("left", &XdpSettings { ring: 64, ..settings(Attach::Best) }, pool);
        let (mut tx, mut rx) = (port.tx(0).unwrap(), packet_rx("right", RxSettings::default()));
        let mut sent = Batch::default();
        let number = |n: usize| n.to_be_bytes();
        for n in 0..1000 {
            let mut bytes = frame(BROADCAST, 1, 60);
            bytes[20..28].copy_from_slice(&number(n));
            sent.push(pool.packet_from(&bytes).unwrap());
        }
        let mut left = 1000;
        while left > 0 {
            let gone = tx.transmit(&mut sent).unwrap();
            assert_eq!(sent.len(), left - gone);
            left -= gone;
        }
        let got = receive_until(&mut rx, pool, |data| data[20..28] == number(999));
        let ours = got.iter().filter(|packet| is_ours(packet.data()));
        assert!(ours.map(|packet| packet.data()[20..28].to_vec()).eq((0..1000).map(|n| number(n).to_vec())));
    });
}

#[test]
fn every_frame_is_back_in_the_pool_when_a_port_is_closed_and_it_opens_again_at_once() {
    on_a_cable(|pool| {
        for round in 0..20 {
            let port = open("right", &settings([Attach::Native, Attach::Generic][round % 2]), pool);
            let (mut rx, mut tx) = (port.rx(0, &RxSettings::default()).unwrap(), port.tx(0).unwrap());
            assert_eq!(port.rx(0, &RxSettings::default()).err(), Some(taken(PortHalf::Receive)));
            assert_eq!(port.tx(0).err(), Some(taken(PortHalf::Transmit)));
            let mut sent = batch_of(pool, (0..30).map(|n| frame(BROADCAST, n, 60)));
            packet_tx("left").transmit(&mut sent).unwrap();
            receive_until(&mut rx, pool, is_ours);
            sent.extend((0..30).map(|n| pool.packet_from(&frame(BROADCAST, n, 60)).unwrap()));
            tx.transmit(&mut sent).unwrap();
            assert!(free_frames(pool) < 4096, "the kernel has frames to fill");
            // In every order, with frames in every ring.
            match round % 3 {
                0 => drop((port, rx, tx)),
                1 => drop((tx, rx, port)),
                _ => drop((rx, port, tx)),
            }
            assert_eq!(free_frames(pool), 4096, "in round {round}");
        }
    });
}

fn taken(half: PortHalf) -> DeviceError {
    DeviceError::Taken { name: "right".into(), half, queue: 0 }
}

#[test]
fn a_half_that_is_closed_leaves_the_other_at_work_and_frames_to_the_host() {
    in_namespace(|| {
        let (pool, host) = (pool(), neighbor());
        let port = open("left", &settings(Attach::Best), pool);
        assert!(is_answered(&host), "no receiver is open, so the host gets them");
        let (mut rx, mut tx) = (port.rx(0, &RxSettings::default()).unwrap(), port.tx(0).unwrap());
        assert!(!host.pings("10.1.0.1"), "now the router does");
        let arp_or_ip = |data: &[u8]| matches!(data[12..14], [8, 0 | 6]);
        receive_until(&mut rx, pool, arp_or_ip);
        drop(rx);
        assert!(is_answered(&host), "and the host again");
        let mut sent = batch_of(pool, [frame(BROADCAST, 1, 60)]);
        assert_eq!(tx.transmit(&mut sent), Ok(1));
        let mut rx = port.rx(0, &RxSettings::default()).unwrap();
        assert!(!host.pings("10.1.0.1"));
        receive_until(&mut rx, pool, arp_or_ip);
        assert_eq!(
            port.rx(1, &RxSettings::default()).err(),
            Some(DeviceError::NoSuchQueue {
                name: "left".into(),
                half: PortHalf::Receive,
                queue: 1,
                queues: 1
            })
        );
    });
}

#[test]
fn each_queue_has_a_socket_and_all_their_frames_come() {
    in_namespace(|| {
        let (pool, host) = (pool(), Host::new());
        run("ip link add left numrxqueues 2 numtxqueues 2 type veth peer name right numrxqueues 2 \
            numtxqueues 2");
        run("ethtool -L left rx 2 tx 2");
        run("ethtool -L right rx 2 tx 2");
        bring_up();
        wait_for_carriers();
        drop(host);
        let port = open("right", &XdpSettings { ring: 256, ..settings(Attach::Best) }, pool);
        assert_eq!(port.queues(), 2);
        let mut queues =
            [port.rx(0, &RxSettings::default()).unwrap(), port.rx(1, &RxSettings::default()).unwrap()];
        let sender = open("left", &settings(Attach::Best), pool);
        for (number, queue) in [(1, 0), (2, 1)] {
            let mut sent = batch_of(pool, [frame(BROADCAST, number, 60)]);
            assert_eq!(sender.tx(queue).unwrap().transmit(&mut sent), Ok(1));
        }
        for (n, rx) in queues.iter_mut().enumerate() {
            let got = receive_until(rx, pool, is_ours);
            let numbers: Vec<_> = got.iter().filter(|p| is_ours(p.data())).map(|p| p.data()[20]).collect();
            assert_eq!(numbers, [n as u8 + 1], "a veth's queues are in pairs");
        }
    });
}

#[test]
fn frames_without_room_and_an_empty_pool_are_counted() {
    in_namespace(|| {
        cable();
        let (pool, small) = (pool(), Pool::new(800, 1).unwrap());
        let port = open("right", &settings(Attach::Best), small);
        let (mut rx, mut tx) = (port.rx(0, &RxSettings::default()).unwrap(), packet_tx("left"));
        let mut sent = Batch::default();
        let mut send = |count: u8| {
            sent.extend((0..count).map(|n| pool.packet_from(&frame(BROADCAST, n, 60)).unwrap()));
            tx.transmit(&mut sent).unwrap();
        };
        send(150);
        let end = Instant::now() + Duration::from_secs(5);
        while rx.counters().ring_full < 50 && Instant::now() < end {
            std::thread::yield_now();
        }
        let mut got = Batch::default();
        while rx.receive(small, 64, &mut got).unwrap() > 0 {}
        assert_eq!(
            (got.len(), rx.counters().pool_empty),
            (100, 0),
            "an eighth of 800 is lent: {:?}",
            rx.counters()
        );
        let all: Vec<_> = std::iter::from_fn(|| small.alloc_packet()).collect();
        // What is lent is filled, and nothing can be lent instead: a quarter of the hundred
        // stays with the kernel.
        while rx.counters().pool_empty < 75 && Instant::now() < end {
            send(50);
            rx.receive(small, 64, &mut got).unwrap();
        }
        let counters = rx.counters();
        assert_eq!(counters.packets as usize + all.len(), 800 - 25, "{counters:?}");
        assert!(counters.pool_empty >= 75, "{counters:?}");
        drop((got, all));
        // No call has asked for packets since the pool has some: the kernel still reports when there are any.
        while is_ready(rx.fd().unwrap(), 0) {
            rx.receive(small, 64, &mut Batch::default()).unwrap();
        }
        send(1);
        assert!(is_ready(rx.fd().unwrap(), 5));
        receive_until(&mut rx, small, is_ours);
        assert_eq!(rx.counters().malformed + rx.counters().truncated, 0);
    });
}

#[test]
fn an_interface_that_goes_down_or_vanishes_is_told_once() {
    on_a_cable(|pool| {
        let port = open("left", &settings(Attach::Best), pool);
        let (mut rx, mut tx) = (port.rx(0, &RxSettings::default()).unwrap(), port.tx(0).unwrap());
        let batch = || batch_of(pool, [frame(BROADCAST, 1, 60)]);
        let mut first_error = || {
            let mut received = Batch::default();
            (0..2000).find_map(|_| rx.receive(pool, 64, &mut received).err())
        };
        run("ip link set left down");
        let down = DeviceError::Down { name: "left".into() };
        assert_eq!(first_error(), Some(down.clone()));
        assert_eq!(first_error(), None, "it is reported once");
        assert_eq!(tx.transmit(&mut batch()), Err(down.clone()));
        let mut waiting = batch();
        assert_eq!((tx.transmit(&mut waiting), waiting.len()), (Err(down), 1));
        run("ip link set left up");
        assert_eq!(first_error(), None);
        assert_eq!(tx.transmit(&mut waiting), Ok(1), "the queue goes on when the interface is back");
        run("ip link del left");
        let gone = DeviceError::Gone { name: "left".into() };
        assert_eq!(first_error(), Some(gone.clone()));
        assert_eq!(tx.transmit(&mut batch()), Err(gone));
        drop((rx, tx, port, waiting));
        assert_eq!(free_frames(pool), 4096);
    });
}

#[test]
fn what_waits_in_the_ring_leaves_by_calls_without_packets() {
    on_a_cable(|pool| {
        let port = open("left", &settings(Attach::Best), pool);
        let (mut tx, mut rx) = (port.tx(0).unwrap(), packet_rx("right", RxSettings::default()));
        assert!(!tx.unsettled());
        run("ip link set left down");
        let mut sent = Batch::default();
        let number = |n: usize| n.to_be_bytes();
        for n in 0..1000 {
            let mut bytes = frame(BROADCAST, 1, 60);
            bytes[20..28].copy_from_slice(&number(n));
            sent.push(pool.packet_from(&bytes).unwrap());
        }
        assert_eq!(tx.transmit(&mut sent), Err(DeviceError::Down { name: "left".into() }));
        assert!(sent.is_empty() && tx.unsettled());
        bring_up();
        wait_for_carriers();
        let end = Instant::now() + Duration::from_secs(5);
        while tx.unsettled() && Instant::now() < end {
            assert_eq!(tx.transmit(&mut sent), Ok(0));
        }
        let got = receive_until(&mut rx, pool, |data| data[20..28] == number(999));
        assert_eq!(got.iter().filter(|packet| is_ours(packet.data())).count(), 1000);
        drop(got);
        assert_eq!((tx.unsettled(), free_frames(pool)), (false, 4096), "and its frames are back");
        run("ip link set left down");
        sent.push(pool.packet_from(&frame(BROADCAST, 1, 60)).unwrap());
        assert!(tx.transmit(&mut sent).is_err() && tx.unsettled());
        run("ip link del left");
        assert_eq!(tx.transmit(&mut sent), Err(DeviceError::Gone { name: "left".into() }));
        assert!(!tx.unsettled(), "nothing is to be hoped for");
    });
}

#[test]
fn a_queue_is_not_opened_when_there_is_too_little_to_receive_into() {
    in_namespace(|| {
        cable();
        let pool = Pool::new(400, 1).unwrap();
        let port = open("left", &settings(Attach::Best), pool);
        let mut taken: Vec<_> = (0..350).map(|_| pool.alloc_packet().unwrap()).collect();
        let error = port.rx(0, &RxSettings::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "left: of the packet pool's 400 frames 50 are left for a queue, and AF_XDP must have 64; use \
             METHOD LINUX for some interfaces, fewer queues ('ethtool -L'), or a bigger pool ('--frames')"
        );
        taken.truncate(336);
        let mut rx = port.rx(0, &RxSettings::default()).unwrap();
        let mut sent = Batch::default();
        sent.push(taken.pop().unwrap());
        sent.iter_mut()
            .for_each(|packet| packet.append(60).unwrap().copy_from_slice(&frame(BROADCAST, 1, 60)));
        packet_tx("right").transmit(&mut sent).unwrap();
        receive_until(&mut rx, pool, is_ours);
    });
}

#[test]
fn who_has_no_room_is_not_idle() {
    on_a_cable(|pool| {
        let mut rx = open("left", &settings(Attach::Best), pool).rx(0, &RxSettings::default()).unwrap();
        run("ip link set left down");
        let mut errors = |max| (0..2000).find_map(|_| rx.receive(pool, max, &mut Batch::default()).err());
        assert_eq!(errors(0), None);
        assert_eq!(errors(1), Some(DeviceError::Down { name: "left".into() }));
    });
}

#[test]
fn the_report_tells_what_was_got_and_why_not_more() {
    on_a_cable(|pool| {
        assert_eq!(
            open("left", &settings(Attach::Best), pool).report().to_string(),
            "left: AF_XDP on 1 queue of veth, copying (Operation not supported), in the driver; finishes \
             checksums"
        );
        assert_eq!(
            open("left", &settings(Attach::Generic), pool).report().to_string(),
            "left: AF_XDP on 1 queue of veth, copying, in the kernel (generic XDP); finishes checksums; \
             loses what senders leave uncut until 'ethtool -K DEV tso off gso off' at their ends"
        );
        run("ip link set lo mtu 1500");
        let report = open("lo", &settings(Attach::Best), pool).report();
        assert!(!report.native && report.native_refusal.is_some(), "{report}");
    });
}

#[test]
fn frames_come_by_busy_polling_too() {
    on_a_cable(|pool| {
        let busy_poll = Some(BusyPoll { microseconds: 20, budget: 64 });
        let port = open("right", &XdpSettings { busy_poll, ..settings(Attach::Best) }, pool);
        let (mut rx, mut tx) = (port.rx(0, &RxSettings::default()).unwrap(), packet_tx("left"));
        let mut sent = batch_of(pool, [frame(BROADCAST, 1, 60)]);
        tx.transmit(&mut sent).unwrap();
        receive_until(&mut rx, pool, is_ours);
    });
}
