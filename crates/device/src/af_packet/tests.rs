use super::*;
use crate::namespace::{Host, in_namespace, is_root, run};
use crate::{RxQueue, TxQueue};
use artery_packet::{Batch, PacketType, Pool};
use std::time::{Duration, Instant};

fn pool() -> &'static Pool {
    Pool::new(4096, 64).unwrap()
}

fn open_rx(name: &str, settings: AfPacketRxSettings) -> AfPacketRx {
    AfPacketRx::open(&find(name).unwrap(), &settings, 3, &Group::default()).unwrap()
}

fn open_tx(name: &str) -> AfPacketTx {
    AfPacketTx::open(&find(name).unwrap(), &AfPacketTxSettings::default()).unwrap()
}

/// Waits until the queue's descriptor is readable, at most a second.
fn readable(rx: &dyn RxQueue) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let fd = rx.fd().unwrap();
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&second)).unwrap() > 0
}

/// Receives until `done` says so of a packet, with patience for five seconds; returns what came.
fn receive_until(rx: &mut dyn RxQueue, pool: &'static Pool, done: impl Fn(&[u8]) -> bool) -> Batch {
    let (mut got, end) = (Batch::default(), Instant::now() + Duration::from_secs(5));
    while !got.iter().any(|packet| done(packet.data())) {
        assert!(Instant::now() < end, "nothing came within five seconds; had {got:?}");
        if rx.receive(pool, 64, &mut got).unwrap() == 0 {
            readable(rx);
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

const BROADCAST: [u8; 6] = [0xff; 6];

#[test]
fn frames_cross_a_cable_whole_in_order_and_marked() {
    if !is_root() {
        return;
    }
    in_namespace(|| {
        run("ip link add left type veth peer name right");
        run("ip link set left up");
        run("ip link set right up");
        let pool = pool();
        let mut rx = open_rx("right", AfPacketRxSettings::default());
        let mut tx = open_tx("left");
        let mut sent = Batch::default();
        sent.extend((0..200).map(|n| pool.packet_from(&frame(BROADCAST, n, 60 + 5 * n as usize)).unwrap()));
        assert_eq!(tx.transmit(&mut sent), Ok(200));
        let got = receive_until(&mut rx, pool, |data| data[14..] == frame(BROADCAST, 199, 1055)[14..]);
        let numbers: Vec<_> = got.iter().filter(|p| p.data()[12..14] == [0x88, 0xb5]).collect();
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
    if !is_root() {
        return;
    }
    in_namespace(|| {
        run("ip link add left type veth peer name right");
        run("ip link set left up");
        run("ip link set right up");
        let pool = pool();
        let mut rx = open_rx("right", AfPacketRxSettings::default());
        let mut tx = open_tx("left");
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
