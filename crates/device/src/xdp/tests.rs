use super::*;
use crate::namespace::{Host, in_namespace, may_make_namespaces, run};
use crate::{
    DeviceError, Half, Interface, PortSpec, Ports, RxCounters, RxHandle, RxQueue, RxSettings, TxHandle,
    TxQueue, TxSettings, sys,
};
use artery_packet::{Batch, PacketType, Pool};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const BROADCAST: [u8; 6] = [0xff; 6];

fn pool() -> &'static Pool {
    Pool::new(4096, 64).unwrap()
}

fn settings(attach: Attach) -> XdpSettings {
    XdpSettings { attach, ..XdpSettings::default() }
}

fn open(name: &str, settings: &XdpSettings, pool: &'static Pool) -> XdpPort {
    XdpPort::open(&Interface::find(name).unwrap(), settings, 3, pool).unwrap()
}

/// Two ends of a cable in this namespace.
fn cable() {
    run("ip link add left type veth peer name right");
    bring_up();
}

/// Brings the ends up and waits until the kernel sends by them: it notices carriers once a second only.
fn bring_up() {
    ["left", "right"].iter().for_each(|end| run(&format!("ip link set {end} up")));
    let end = Instant::now() + Duration::from_secs(5);
    while !["left", "right"].iter().all(|end| Interface::find(end).unwrap().running) {
        assert!(Instant::now() < end, "no carrier within five seconds");
        std::thread::yield_now();
    }
}

/// A receive queue by a packet socket.
fn packet_rx(name: &str) -> RxHandle {
    let receive = Some(RxSettings::default());
    Ports::default()
        .open(PortSpec::Interface { name: name.into(), receive, transmit: None }, pool())
        .unwrap()
        .rx(0)
        .unwrap()
}

/// A transmit queue by a packet socket.
fn packet_tx(name: &str) -> TxHandle {
    let transmit = Some(TxSettings::default());
    Ports::default()
        .open(PortSpec::Interface { name: name.into(), receive: None, transmit }, pool())
        .unwrap()
        .tx(0)
        .unwrap()
}

/// Waits until a descriptor is readable, at most so many seconds.
fn is_ready(fd: impl AsFd, seconds: i64) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

/// Receives until `done` says so of a packet, with patience for five seconds; returns what came.
fn receive_until(rx: &mut dyn RxQueue, pool: &'static Pool, done: impl Fn(&[u8]) -> bool) -> Batch {
    let (mut got, end) = (Batch::default(), Instant::now() + Duration::from_secs(5));
    while !got.iter().any(|packet| done(packet.data())) {
        assert!(Instant::now() < end, "nothing came within five seconds; had {got:?}; {:?}", rx.counters());
        if rx.receive(pool, 64, &mut got).unwrap() == 0 {
            is_ready(rx.fd().unwrap(), 1);
        }
    }
    got
}

/// A frame of a protocol that no kernel answers.
fn frame(destination: [u8; 6], number: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![number; len];
    frame[..6].copy_from_slice(&destination);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

fn is_ours(frame: &[u8]) -> bool {
    frame[12..14] == [0x88, 0xb5]
}

/// How many frames of the pool can be had at once.
fn free_frames(pool: &'static Pool) -> usize {
    std::iter::from_fn(|| pool.packet()).collect::<Vec<_>>().len()
}

#[test]
fn a_queue_that_is_blind_takes_frames_for_this_hosts_until_it_sees_again() {
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        cable();
        let pool = pool();
        let port = open("right", &settings(Attach::Native), pool);
        let (mut rx, mut tx) = (port.rx(0, &RxSettings::default()).unwrap(), packet_tx("left"));
        for (number, blind, expected) in [(1, true, PacketType::Host), (2, false, PacketType::Broadcast)] {
            rx.set_blind(blind);
            let mut sent = Batch::default();
            sent.push(pool.packet_from(&frame(BROADCAST, number, 60)).unwrap());
            tx.transmit(&mut sent).unwrap();
            let got = receive_until(&mut rx, pool, |data| data == frame(BROADCAST, number, 60));
            let packet = got.iter().find(|packet| packet.data() == frame(BROADCAST, number, 60)).unwrap();
            assert_eq!((packet.packet_type(), packet.in_port()), (expected, 3));
        }
    });
}

#[test]
fn frames_come_in_whole_in_order_and_marked_by_every_program() {
    if !may_make_namespaces() {
        return;
    }
    for attach in [Attach::Native, Attach::Generic] {
        in_namespace(|| {
            cable();
            let pool = pool();
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
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        cable();
        let (pool, other) = (pool(), Pool::new(64, 1).unwrap());
        let port = open("left", &settings(Attach::Best), pool);
        let (mut tx, mut rx) = (port.tx(0).unwrap(), packet_rx("right"));
        let mut sent = Batch::default();
        for (number, len) in [(1, 60), (2, 1515), (3, 14), (4, 1514), (5, 1518), (6, 13)] {
            let mut bytes = frame(BROADCAST, number, len.max(14));
            bytes.truncate(len);
            if number == 5 {
                bytes[12..18].copy_from_slice(&[0x81, 0, 0, 9, 0x88, 0xb5]);
            }
            sent.push(pool.packet_from(&bytes).unwrap());
        }
        let mut big = pool.big_packet().unwrap();
        big.append(100).unwrap().copy_from_slice(&frame(BROADCAST, 7, 100));
        sent.push(big);
        sent.push(other.packet_from(&frame(BROADCAST, 8, 80)).unwrap());
        sent.push(pool.packet_from(&frame(BROADCAST, 9, 5000)).unwrap());
        sent.push(pool.packet_from(&frame(BROADCAST, 10, 61)).unwrap());
        assert_eq!(tx.transmit(&mut sent), Ok(10));
        let counters = tx.counters();
        assert_eq!((counters.packets, counters.too_long, counters.refused), (7, 2, 1));
        assert_eq!((tx.copied(), tx.malformed()), (2, 0));
        let got = receive_until(&mut *rx, pool, |data| data.len() == 61);
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
    use artery_packet::{SegmentKind, Segments, Unfinished};
    use artery_wire::build::{ether, ip4};
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        cable();
        let pool = pool();
        let port = open("left", &settings(Attach::Best), pool);
        let (mut tx, mut rx) = (port.tx(0).unwrap(), packet_rx("right"));
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
        unfinished.set_unfinished(Unfinished { transport: 34, checksum: 6, segments: None }).unwrap();
        let whole = link().ip4(ip4().tcp(1, 2).payload([7; 3000])).bytes();
        let mut long = pool.packet_from(&whole).unwrap();
        let segments = Some(Segments { network: 14, kind: SegmentKind::Tcp4, size: 1400 });
        long.set_unfinished(Unfinished { transport: 34, checksum: 16, segments }).unwrap();
        let mut sent = Batch::default();
        sent.extend([unfinished, long]);
        tx.transmit(&mut sent).unwrap();
        assert_eq!((sent.len(), tx.counters().packets, tx.counters().too_long), (0, 4, 0));
        let got = receive_until(&mut *rx, pool, |data| data.len() == 254);
        assert!(got.iter().any(|packet| packet.data() == datagram.bytes()));
        assert_eq!(got.iter().filter(|packet| packet.len() == 1454).count(), 2);
    });
}

#[test]
fn a_ring_that_is_full_leaves_packets_in_the_batch_and_none_is_lost() {
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        cable();
        let pool = pool();
        let port = open("left", &XdpSettings { ring: 64, ..settings(Attach::Best) }, pool);
        let (mut tx, mut rx) = (port.tx(0).unwrap(), packet_rx("right"));
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
        let got = receive_until(&mut *rx, pool, |data| data[20..28] == number(999));
        let ours = got.iter().filter(|packet| is_ours(packet.data()));
        assert!(ours.map(|packet| packet.data()[20..28].to_vec()).eq((0..1000).map(|n| number(n).to_vec())));
    });
}

#[test]
fn every_frame_is_back_in_the_pool_when_a_port_is_closed_and_it_opens_again_at_once() {
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        cable();
        let pool = pool();
        for round in 0..20 {
            let port = open("right", &settings([Attach::Native, Attach::Generic][round % 2]), pool);
            let (mut rx, mut tx) = (port.rx(0, &RxSettings::default()).unwrap(), port.tx(0).unwrap());
            assert_eq!(port.rx(0, &RxSettings::default()).err(), Some(taken(Half::Receive)));
            assert_eq!(port.tx(0).err(), Some(taken(Half::Transmit)));
            let mut sent = Batch::default();
            sent.extend((0..30).map(|n| pool.packet_from(&frame(BROADCAST, n, 60)).unwrap()));
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

fn taken(half: Half) -> DeviceError {
    DeviceError::Taken { name: "right".into(), half, queue: 0 }
}

#[test]
fn a_half_that_is_closed_leaves_the_other_at_work_and_frames_to_the_host() {
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        let (pool, host) = (pool(), Host::new());
        host.cable("left", "right");
        run("ip address add 10.1.0.1/24 dev left");
        host.run("ip address add 10.1.0.2/24 dev right");
        let port = open("left", &settings(Attach::Best), pool);
        assert!((0..5).any(|_| host.pings("10.1.0.1")), "nobody receives, so the host does");
        let (mut rx, mut tx) = (port.rx(0, &RxSettings::default()).unwrap(), port.tx(0).unwrap());
        assert!(!host.pings("10.1.0.1"), "now the router does");
        let arp_or_ip = |data: &[u8]| matches!(data[12..14], [8, 0 | 6]);
        receive_until(&mut rx, pool, arp_or_ip);
        drop(rx);
        assert!((0..5).any(|_| host.pings("10.1.0.1")), "and the host again");
        let mut sent = Batch::default();
        sent.push(pool.packet_from(&frame(BROADCAST, 1, 60)).unwrap());
        assert_eq!(tx.transmit(&mut sent), Ok(1));
        let mut rx = port.rx(0, &RxSettings::default()).unwrap();
        assert!(!host.pings("10.1.0.1"));
        receive_until(&mut rx, pool, arp_or_ip);
        assert_eq!(
            port.rx(1, &RxSettings::default()).err(),
            Some(DeviceError::NoSuchQueue { name: "left".into(), half: Half::Receive, queue: 1, queues: 1 })
        );
    });
}

#[test]
fn each_queue_has_a_socket_and_all_their_frames_come() {
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        let (pool, host) = (pool(), Host::new());
        run(
            "ip link add left numrxqueues 2 numtxqueues 2 type veth peer name right numrxqueues 2 numtxqueues 2",
        );
        run("ethtool -L left rx 2 tx 2");
        run("ethtool -L right rx 2 tx 2");
        bring_up();
        drop(host);
        let port = open("right", &XdpSettings { ring: 256, ..settings(Attach::Best) }, pool);
        assert_eq!(port.queues(), 2);
        let mut queues =
            [port.rx(0, &RxSettings::default()).unwrap(), port.rx(1, &RxSettings::default()).unwrap()];
        let sender = open("left", &settings(Attach::Best), pool);
        for (number, queue) in [(1, 0), (2, 1)] {
            let mut sent = Batch::default();
            sent.push(pool.packet_from(&frame(BROADCAST, number, 60)).unwrap());
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
    if !may_make_namespaces() {
        return;
    }
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
        let all: Vec<_> = std::iter::from_fn(|| small.packet()).collect();
        // What is lent is filled, and nothing can be lent instead: a quarter of the hundred stays with the kernel.
        while rx.counters().pool_empty < 75 && Instant::now() < end {
            send(50);
            rx.receive(small, 64, &mut got).unwrap();
        }
        let counters = rx.counters();
        assert_eq!(counters.packets as usize + all.len(), 800 - 25, "{counters:?}");
        assert!(counters.pool_empty >= 75, "{counters:?}");
        drop((got, all));
        // Nobody has asked for packets since the pool has some: the kernel still tells when there are any.
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
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        cable();
        let pool = pool();
        let port = open("left", &settings(Attach::Best), pool);
        let (mut rx, mut tx) = (port.rx(0, &RxSettings::default()).unwrap(), port.tx(0).unwrap());
        let batch = || {
            let mut sent = Batch::default();
            sent.push(pool.packet_from(&frame(BROADCAST, 1, 60)).unwrap());
            sent
        };
        let mut first_error = || {
            let mut received = Batch::default();
            (0..2000).find_map(|_| rx.receive(pool, 64, &mut received).err())
        };
        run("ip link set left down");
        let down = DeviceError::Down { name: "left".into() };
        assert_eq!(first_error(), Some(down.clone()));
        assert_eq!(first_error(), None, "it is told once");
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
fn interfaces_that_it_is_not_for_are_refused_with_a_remedy() {
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        run("ip link add left mtu 9000 type veth peer name right");
        let pool = pool();
        let refusal = || {
            XdpPort::open(&Interface::find("left").unwrap(), &settings(Attach::Best), 1, pool).unwrap_err()
        };
        assert_eq!(refusal(), DeviceError::Down { name: "left".into() });
        run("ip link set left up");
        assert_eq!(
            refusal().to_string(),
            "left: MTU 9000 is too long for AF_XDP, whose frames here hold 1774 bytes; \
             'ip link set left mtu 1774', or use METHOD LINUX"
        );
        run("ip link set left mtu 1774");
        run("ip link set right mtu 1774");
        bring_up();
        let port = open("left", &settings(Attach::Best), pool);
        let mut rx = port.rx(0, &RxSettings::default()).unwrap();
        let mut sent = Batch::default();
        sent.push(pool.packet_from(&frame(BROADCAST, 1, 1788)).unwrap());
        packet_tx("right").transmit(&mut sent).unwrap();
        let got = receive_until(&mut rx, pool, is_ours);
        assert!(got.iter().any(|packet| packet.data() == frame(BROADCAST, 1, 1788)), "the longest fits");
    });
}

#[test]
fn a_second_router_is_told_which_process_has_the_interface() {
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        cable();
        let pool = pool();
        let first = open("left", &settings(Attach::Best), pool);
        let second = XdpPort::open(&Interface::find("left").unwrap(), &settings(Attach::Best), 1, pool);
        let message = second.unwrap_err().to_string();
        let start = format!("left: in use by AF_XDP of process {} (", std::process::id());
        assert!(message.starts_with(&start) && message.ends_with("METHOD LINUX"), "{message}");
        let other = open("right", &settings(Attach::Best), pool);
        drop((first, other));
        open("left", &settings(Attach::Best), pool);
    });
}

#[test]
fn another_program_at_the_interface_is_not_pushed_aside() {
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        cable();
        let interface = Interface::find("left").unwrap();
        let _theirs = program::Redirect::attach(&interface, 1, Attach::Best).unwrap();
        let error = XdpPort::open(&interface, &settings(Attach::Best), 1, pool()).unwrap_err();
        let DeviceError::Occupied { by, .. } = error else { panic!("{error}") };
        assert_eq!(by, "another XDP program is attached to it");
    });
}

#[test]
fn what_is_busy_is_tried_again_with_growing_pauses_and_not_for_ever() {
    fn busy<T>() -> io::Result<T> {
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    }
    let mut pauses = Vec::new();
    let mut left = 4;
    let result = retry(
        |pause| pauses.push(pause.as_millis()),
        || {
            left -= 1;
            if left > 0 { busy() } else { Ok(7) }
        },
    );
    assert_eq!((result.unwrap(), pauses), (7, vec![1, 2, 4]));
    let mut total = Duration::ZERO;
    let result = retry(|pause| total += pause, busy::<()>);
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EBUSY));
    assert!(total >= PATIENCE && total < PATIENCE + LONGEST_PAUSE, "{total:?}");
    let mut calls = 0;
    let other: io::Result<()> = retry(|_| calls += 1, || Err(io::Error::from_raw_os_error(libc::EINVAL)));
    assert_eq!((other.unwrap_err().raw_os_error(), calls), (Some(libc::EINVAL), 0));
}

#[test]
fn a_queue_that_is_let_go_meanwhile_is_taken() {
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        cable();
        let (pool, interface) = (pool(), Interface::find("left").unwrap());
        let plan = socket::Plan { ring: 64, zero_copy: true, busy_poll: None };
        let theirs = socket::Socket::open(&interface, 0, pool, plan).unwrap();
        let waits = XdpPort::open(&interface, &settings(Attach::Best), 1, pool).unwrap_err();
        assert!(matches!(waits, DeviceError::Occupied { .. }), "{waits}");
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| {
                loop {
                    match XdpPort::open(&interface, &settings(Attach::Best), 1, pool) {
                        // The other thread was just looking.
                        Err(DeviceError::InUse { .. }) => {}
                        result => return result.map(drop),
                    }
                }
            });
            // Its lock is the first thing it takes, the queue the last.
            while lock::Lock::take(&interface).is_ok() {
                assert!(!opening.is_finished());
            }
            drop(theirs);
            assert_eq!(opening.join().unwrap(), Ok(()));
        });
    });
}

/// Set for the process that holds a port and is killed.
const HOLDER: &str = "ARTERY_TEST_HOLDS_XDP";

#[test]
fn the_host_has_its_interface_back_when_the_holder_is_killed() {
    if std::env::var_os(HOLDER).is_some() {
        return hold("left");
    }
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        let host = Host::new();
        host.cable("left", "right");
        run("ip address add 10.1.0.1/24 dev left");
        host.run("ip address add 10.1.0.2/24 dev right");
        assert!((0..5).any(|_| host.pings("10.1.0.1")), "the host answers at first");
        let name = "xdp::tests::the_host_has_its_interface_back_when_the_holder_is_killed";
        let mut holder = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(HOLDER, "left")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(holder.stdout.take().unwrap()));
        let ready = lines.any(|line| line.unwrap().contains("received nothing yet"));
        let deaf = ready && !host.pings("10.1.0.1");
        let second =
            XdpPort::open(&Interface::find("left").unwrap(), &settings(Attach::Best), 1, pool()).err();
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert!(ready && deaf, "ready: {ready}, deaf: {deaf}");
        let Some(DeviceError::InUse { pid, .. }) = second else { panic!("{second:?}") };
        assert_eq!(pid, holder.id());
        assert!((0..5).any(|_| host.pings("10.1.0.1")), "it answers again when the holder was killed");
        // Its lock file is still there, and its queue may be busy for a moment.
        open("left", &settings(Attach::Best), pool());
    });
}

/// Holds a port until killed, or until its parent is gone.
fn hold(name: &str) {
    let port = open(name, &settings(Attach::Best), pool());
    let mut rx = port.rx(0, &RxSettings::default()).unwrap();
    assert_eq!(rx.receive(pool(), 1, &mut Batch::default()), Ok(0));
    println!("received nothing yet");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_limit_of_locked_memory_is_raised_or_told() {
    if !may_make_namespaces() {
        return;
    }
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    // In a process of its own, since a limit is that of all threads.
    if std::env::var_os(HOLDER).is_none() {
        let name = "xdp::tests::a_limit_of_locked_memory_is_raised_or_told";
        let mut test = Command::new(std::env::current_exe().unwrap());
        assert!(test.args(["--exact", name]).env(HOLDER, "limit").status().unwrap().success());
        return;
    }
    in_namespace(|| {
        cable();
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::IPC_LOCK | CapabilitySet::SYS_RESOURCE);
        set_capabilities(None, sets).unwrap();
        let pool = Pool::new(1024, 1).unwrap();
        let (small, hard) = (Some(1 << 20), getrlimit(Resource::Memlock).maximum);
        assert!(hard.is_none_or(|hard| hard > 2 << 20), "a test for machines with a higher limit");
        setrlimit(Resource::Memlock, Rlimit { current: small, maximum: hard }).unwrap();
        open("left", &settings(Attach::Best), pool);
        assert_eq!(getrlimit(Resource::Memlock).current, hard, "it was raised as far as may be");
        setrlimit(Resource::Memlock, Rlimit { current: small, maximum: small }).unwrap();
        let error =
            XdpPort::open(&Interface::find("left").unwrap(), &settings(Attach::Best), 1, pool).unwrap_err();
        let expected = DeviceError::MemoryLimit { name: "left".into(), bytes: 1024 * 2048, limit: 1 << 20 };
        assert_eq!(error, expected, "{error}");
    });
}

/// Gets at a word of a socket's receive ring, as whoever has its descriptor can.
fn overwrite(rx: &XdpRx, change: impl FnOnce(&rings::Peer<2>)) {
    let fd = rx.fd().unwrap();
    change(&rings::Peer::map(fd, libc::XDP_PGOFF_RX_RING as u64, offsets(fd).rx, 64));
}

fn offsets(socket: BorrowedFd<'_>) -> libc::xdp_mmap_offsets {
    let none = libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
    let none = libc::xdp_mmap_offsets { rx: none, tx: none, fr: none, cr: none };
    sys::option(socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, none).unwrap()
}

/// The second word of an entry that says so many bytes.
fn bytes(len: u32) -> u64 {
    let [a, b, c, d] = len.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0])
}

#[test]
fn whoever_overwrites_a_ring_breaks_it_and_nothing_else() {
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        cable();
        let pool = pool();
        let port = open("left", &XdpSettings { ring: 64, ..settings(Attach::Best) }, pool);
        let mut rx = port.rx(0, &RxSettings::default()).unwrap();
        let mut got = Batch::default();
        // What was not lent, what is no frame at all, what leaves its frame, and what goes on.
        let free = pool.packet().unwrap();
        let not_lent = u64::from(pool.frame_of(&free).unwrap()) * 2048;
        let entries = [(not_lent, 60), (u64::MAX, 60), (4096 * 2048, 60), (256, 2000), (256, u32::MAX)];
        overwrite(&rx, |peer| peer.produce(&entries.map(|(address, len)| [address, bytes(len)])));
        assert_eq!(rx.receive(pool, 64, &mut got), Ok(0));
        assert_eq!((got.len(), rx.counters().malformed), (0, 5));
        overwrite(&rx, |peer| peer.set_producer(0x8000_0000));
        let broken = rx.receive(pool, 64, &mut got).unwrap_err();
        assert!(matches!(broken, DeviceError::Broken { .. }), "{broken}");
        assert_eq!(rx.receive(pool, 64, &mut got), Err(broken), "it stays so");
        assert_eq!(rx.counters().malformed, 6, "it counts once");
        drop((port, rx, free));
        assert_eq!(free_frames(pool), 4096);
    });
}

#[test]
fn a_queue_whose_ring_broke_is_the_hosts_again() {
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        let (pool, host) = (pool(), Host::new());
        host.cable("left", "right");
        run("ip address add 10.1.0.1/24 dev left");
        host.run("ip address add 10.1.0.2/24 dev right");
        let port = open("left", &XdpSettings { ring: 64, ..settings(Attach::Best) }, pool);
        let mut rx = port.rx(0, &RxSettings::default()).unwrap();
        assert!(!host.pings("10.1.0.1"));
        overwrite(&rx, |peer| peer.set_producer(0x8000_0000));
        let broken = rx.receive(pool, 64, &mut Batch::default()).unwrap_err();
        assert!((0..5).any(|_| host.pings("10.1.0.1")));
        drop(rx);
        assert_eq!(port.rx(0, &RxSettings::default()).err(), Some(broken), "it is not opened again");
        assert!((0..5).any(|_| host.pings("10.1.0.1")));
    });
}

#[test]
fn frames_that_come_back_without_having_been_sent_are_counted() {
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        cable();
        let pool = pool();
        let port = open("left", &XdpSettings { ring: 64, ..settings(Attach::Best) }, pool);
        let mut tx = port.tx(0).unwrap();
        let (fd, place) = (tx.fd().unwrap(), libc::XDP_UMEM_PGOFF_COMPLETION_RING);
        rings::Peer::map(fd, place, offsets(fd).cr, 64).produce(&[[256], [u64::MAX]]);
        assert_eq!(tx.transmit(&mut Batch::default()), Ok(0));
        assert_eq!((tx.malformed(), tx.counters().refused, tx.counters().packets), (2, 2, 0));
    });
}

#[test]
fn what_waits_in_the_ring_leaves_by_calls_without_packets() {
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        cable();
        let pool = pool();
        let port = open("left", &settings(Attach::Best), pool);
        let (mut tx, mut rx) = (port.tx(0).unwrap(), packet_rx("right"));
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
        let end = Instant::now() + Duration::from_secs(5);
        while tx.unsettled() && Instant::now() < end {
            assert_eq!(tx.transmit(&mut sent), Ok(0));
        }
        let got = receive_until(&mut *rx, pool, |data| data[20..28] == number(999));
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
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        cable();
        let pool = Pool::new(400, 1).unwrap();
        let port = open("left", &settings(Attach::Best), pool);
        let mut taken: Vec<_> = (0..350).map(|_| pool.packet().unwrap()).collect();
        let error = port.rx(0, &RxSettings::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "left: of the packet pool's 400 frames 50 are left for a queue, and AF_XDP must have 64; use METHOD \
             LINUX for some interfaces, fewer queues ('ethtool -L'), or a bigger pool ('--frames')"
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
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        cable();
        let pool = pool();
        let mut rx = open("left", &settings(Attach::Best), pool).rx(0, &RxSettings::default()).unwrap();
        run("ip link set left down");
        let mut errors = |max| (0..2000).find_map(|_| rx.receive(pool, max, &mut Batch::default()).err());
        assert_eq!(errors(0), None);
        assert_eq!(errors(1), Some(DeviceError::Down { name: "left".into() }));
    });
}

/// Forwards frames between two ports until `done`; returns the receive queues' counters and how many packets were
/// copied.
fn bridge(a: &str, b: &str, attach: Attach, done: &AtomicBool) -> ([RxCounters; 2], u64) {
    let pool = pool();
    let settings = settings(attach);
    let all = RxSettings { promiscuous: true, ..RxSettings::default() };
    let ports = [a, b].map(|name| open(name, &settings, pool));
    let mut rx = [0, 1].map(|n: usize| ports[n].rx(0, &all).unwrap());
    let mut tx = [1, 0].map(|n: usize| ports[n].tx(0).unwrap());
    let mut waiting = [Batch::default(), Batch::default()];
    while !done.load(Ordering::Relaxed) {
        let mut moved = 0;
        for ((rx, tx), batch) in rx.iter_mut().zip(&mut tx).zip(&mut waiting) {
            let room = 64 - batch.len();
            moved += rx.receive(pool, room, batch).unwrap();
            tx.transmit(batch).unwrap();
        }
        if moved == 0 {
            std::thread::yield_now();
        }
    }
    ([0, 1].map(|n: usize| rx[n].counters()), tx.iter().map(XdpTx::copied).sum())
}

/// Megabytes that the TCP test moves.
const MEGABYTES: usize = 32;

/// Takes one connection, if it comes within ten seconds; returns how many right bytes came by it.
fn serve(listener: TcpListener) -> usize {
    if !is_ready(&listener, 10) {
        return 0;
    }
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let (mut chunk, mut total) = (vec![0; 1 << 20], 0);
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        assert!(chunk[..count].iter().all(|byte| *byte == 0x5a));
        total += count;
    }
    total
}

fn upload(megabytes: usize) -> std::io::Result<()> {
    let server = "10.1.0.2:5000".parse().expect("an address");
    let mut stream = TcpStream::connect_timeout(&server, Duration::from_secs(8))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    let chunk = vec![0x5a; 1 << 20];
    (0..megabytes).try_for_each(|_| stream.write_all(&chunk))
}

/// Two hosts and the namespace between them.
fn two_hosts() -> (Host, Host) {
    let (client, server) = (Host::new(), Host::new());
    client.cable("art0", "eth0");
    server.cable("art1", "eth0");
    client.run("ip address add 10.1.0.1/24 dev eth0");
    server.run("ip address add 10.1.0.2/24 dev eth0");
    (client, server)
}

#[test]
fn tcp_with_default_offloads_crosses_two_ports() {
    if !may_make_namespaces() {
        return;
    }
    let done = AtomicBool::new(false);
    in_namespace(|| {
        let (client, server) = two_hosts();
        std::thread::scope(|scope| {
            let router = scope.spawn(|| bridge("art0", "art1", Attach::Native, &done));
            let listener = server.call(|| TcpListener::bind("10.1.0.2:5000").unwrap());
            let (served, uploaded) =
                (server.start(|| serve(listener)), client.start(|| upload(MEGABYTES).is_ok()));
            let uploaded = uploaded.recv_timeout(Duration::from_secs(30));
            let served = served.recv_timeout(Duration::from_secs(30));
            done.store(true, Ordering::Relaxed);
            let (counters, copied) = router.join().unwrap();
            assert_eq!((uploaded, served), (Ok(true), Ok(MEGABYTES << 20)), "{counters:?}");
            assert!(counters[0].unfinished > 1000, "hosts leave checksums to cards: {counters:?}");
            assert_eq!((counters.map(|c| (c.truncated, c.malformed)), copied), ([(0, 0); 2], 0));
        });
    });
}

/// Has the client upload through two ports with generic programs; returns what was served, and the client's side's
/// counters.
fn upload_through_generic_ports(uncut: bool) -> (usize, RxCounters) {
    let (done, result) = (AtomicBool::new(false), std::sync::Mutex::default());
    in_namespace(|| {
        let (client, server) = two_hosts();
        if !uncut {
            client.run("ethtool -K eth0 tso off gso off");
        }
        std::thread::scope(|scope| {
            let router = scope.spawn(|| bridge("art0", "art1", Attach::Generic, &done));
            let listener = server.call(|| TcpListener::bind("10.1.0.2:5000").unwrap());
            let served = server.start(|| serve(listener));
            let uploading = client.start(move || {
                let server = "10.1.0.2:5000".parse().expect("an address");
                let mut stream = TcpStream::connect_timeout(&server, Duration::from_secs(8)).unwrap();
                stream
                    .set_write_timeout(Some(Duration::from_millis(if uncut { 300 } else { 10_000 })))
                    .unwrap();
                let _ = (0..4).try_for_each(|_| stream.write_all(&[0x5a; 1 << 20]));
                // What is still unsent is not tried for minutes.
                rustix::net::sockopt::set_socket_linger(&stream, uncut.then_some(Duration::ZERO)).unwrap();
            });
            uploading.recv_timeout(Duration::from_secs(30)).unwrap();
            let served = served.recv_timeout(Duration::from_secs(30)).unwrap();
            done.store(true, Ordering::Relaxed);
            *result.lock().unwrap() = (served, router.join().unwrap().0[0]);
        });
    });
    result.into_inner().unwrap()
}

#[test]
fn a_generic_program_gets_no_uncut_frames_and_counts_them() {
    if !may_make_namespaces() {
        return;
    }
    let (served, counters) = upload_through_generic_ports(true);
    assert!(served < 4 << 20 && counters.truncated > 0, "{served} {counters:?}");
}

#[test]
fn tcp_crosses_two_generic_ports_when_senders_cut_their_frames() {
    if !may_make_namespaces() {
        return;
    }
    let (served, counters) = upload_through_generic_ports(false);
    assert_eq!((served, counters.truncated), (4 << 20, 0), "{counters:?}");
}

#[test]
fn the_report_tells_what_was_got_and_why_not_more() {
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        cable();
        let pool = pool();
        assert_eq!(
            open("left", &settings(Attach::Best), pool).report().to_string(),
            "left: AF_XDP on 1 queue of veth, copying (Operation not supported), in the driver; finishes checksums"
        );
        assert_eq!(
            open("left", &settings(Attach::Generic), pool).report().to_string(),
            "left: AF_XDP on 1 queue of veth, copying, in the kernel (generic XDP); finishes checksums; loses what \
             senders leave uncut until 'ethtool -K DEV tso off gso off' at their ends"
        );
        run("ip link set lo mtu 1500");
        let report = open("lo", &settings(Attach::Best), pool).report();
        assert!(!report.native && report.native_refusal.is_some(), "{report}");
    });
}

#[test]
fn frames_come_by_busy_polling_too() {
    if !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        cable();
        let pool = pool();
        let busy_poll = Some(BusyPoll { microseconds: 20, budget: 64 });
        let port = open("right", &XdpSettings { busy_poll, ..settings(Attach::Best) }, pool);
        let (mut rx, mut tx) = (port.rx(0, &RxSettings::default()).unwrap(), packet_tx("left"));
        let mut sent = Batch::default();
        sent.push(pool.packet_from(&frame(BROADCAST, 1, 60)).unwrap());
        tx.transmit(&mut sent).unwrap();
        receive_until(&mut rx, pool, is_ours);
    });
}

#[test]
fn datagrams_of_both_families_are_accepted_by_the_receiving_host() {
    if !may_make_namespaces() {
        return;
    }
    for attach in [Attach::Native, Attach::Generic] {
        let done = AtomicBool::new(false);
        in_namespace(|| {
            let (client, server) = two_hosts();
            client.run("ip address add fd00::1/64 dev eth0 nodad");
            server.run("ip address add fd00::2/64 dev eth0 nodad");
            std::thread::scope(|scope| {
                let router = scope.spawn(|| bridge("art0", "art1", attach, &done));
                let answers = ["10.1.0.2", "fd00::2"].map(|address| {
                    let socket = server.call(move || UdpSocket::bind((address, 7000)).unwrap());
                    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                    client.call(move || {
                        let socket =
                            UdpSocket::bind(if address.contains(':') { "[::]:0" } else { "0.0.0.0:0" });
                        socket.unwrap().send_to(b"checked by the kernel", (address, 7000)).unwrap();
                    });
                    let mut bytes = [0; 64];
                    socket.recv(&mut bytes).map(|len| bytes[..len].to_vec()).ok()
                });
                done.store(true, Ordering::Relaxed);
                let (counters, _) = router.join().unwrap();
                assert_eq!(
                    answers,
                    [0; 2].map(|_| Some(b"checked by the kernel".to_vec())),
                    "{attach:?} {counters:?}"
                );
                assert!(counters[0].unfinished >= 2);
            });
        });
    }
}
