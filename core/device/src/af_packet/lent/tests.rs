use super::*;
use crate::af_packet::{AfPacketTx, find};
use crate::namespace::{in_namespace, run};
use crate::testing::{bring_up, frame, packet_rx, receive_until};
use crate::{DeviceError, RxSettings, TxQueue as _, TxSettings};
use std::sync::Arc;

const BROADCAST: [u8; 6] = [0xff; 6];
const BIG: usize = 64;

/// A link for long frames, a pool, and a queue that lends to it while `is_kept` says so.
fn lending_queue(is_kept: fn(&Interface) -> bool) -> (&'static Pool, AfPacketTx) {
    run("ip link add left mtu 40000 type veth peer name right mtu 40000");
    bring_up();
    let pool = Pool::new(64, BIG).unwrap();
    let mut tx = queue(pool, is_kept);
    // Frames become slots when they have been sent once.
    let mut rx = packet_rx("right", RxSettings::default());
    tx.transmit(&mut long_frames(pool, 0, BIG)).unwrap();
    receive_until(&mut rx, Pool::new(64, BIG).unwrap(), |data| data == long_frame(BIG - 1));
    (pool, tx)
}

fn queue(pool: &'static Pool, is_kept: fn(&Interface) -> bool) -> AfPacketTx {
    let interface = find("left").unwrap();
    let mtu = Arc::new(interface.mtu.into());
    let mut tx = AfPacketTx::open(&interface, &TxSettings::default(), mtu, pool).unwrap();
    tx.lend_while(pool, is_kept);
    tx
}

fn always(_: &Interface) -> bool {
    true
}

fn long_frame(number: usize) -> Vec<u8> {
    frame(BROADCAST, number as u8, 30_000 + number)
}

fn long_frames(pool: &'static Pool, first: usize, count: usize) -> Batch {
    let mut batch = Batch::default();
    batch.extend((first..first + count).map(|number| pool.packet_from(&long_frame(number)).unwrap()));
    batch
}

fn free_big_frames(pool: &'static Pool) -> Vec<Packet> {
    std::iter::from_fn(|| pool.alloc_big_packet()).collect()
}

#[test]
fn frames_that_the_kernel_has_are_nobody_elses() {
    in_namespace(|| {
        let (pool, mut tx) = lending_queue(always);
        // The first leaves at once, the others 12 ms after one another.
        run("tc qdisc add dev left root tbf rate 20mbit burst 40kb latency 10s");
        let mut rx = packet_rx("right", RxSettings::default());
        assert_eq!(tx.transmit(&mut long_frames(pool, 0, 30)), Ok(30));
        assert!(tx.unsettled(), "the queue has frames that wait");
        let mut others = free_big_frames(pool);
        assert!((BIG - 30..BIG - 10).contains(&others.len()), "{} of {BIG} are free", others.len());
        for packet in &mut others {
            packet.append(60_000).unwrap().fill(0xee);
        }
        drop(others);
        let got = receive_until(&mut rx, Pool::new(64, BIG).unwrap(), |data| data == long_frame(29));
        for (number, packet) in got.iter().filter(|packet| packet.len() >= 30_000).enumerate() {
            assert!(packet.data() == long_frame(number), "frame {number} came with other bytes");
        }
        assert_eq!(tx.transmit(&mut Batch::default()), Ok(0));
        assert!(!tx.unsettled());
        drop(tx);
        assert_eq!(free_big_frames(pool).len(), BIG);
    });
}

#[test]
fn frames_that_are_free_at_once_are_kept_until_the_kernel_is_asked() {
    in_namespace(|| {
        let (pool, mut tx) = lending_queue(always);
        let mut rx = packet_rx("right", RxSettings::default());
        assert_eq!(tx.transmit(&mut long_frames(pool, 0, MOST_EARLY - 1)), Ok(MOST_EARLY - 1));
        assert_eq!(free_big_frames(pool).len(), BIG - MOST_EARLY + 1);
        assert_eq!(tx.transmit(&mut long_frames(pool, MOST_EARLY - 1, 2)), Ok(2));
        assert_eq!(free_big_frames(pool).len(), BIG - 1);
        drop(tx);
        assert_eq!(free_big_frames(pool).len(), BIG);
        let got = receive_until(&mut rx, Pool::new(64, BIG).unwrap(), |data| data == long_frame(MOST_EARLY));
        assert!(got.iter().any(|packet| packet.data() == long_frame(0)));
    });
}

#[test]
fn where_the_kernel_lets_go_of_frames_early_they_are_copied_and_those_that_it_had_never_used_again() {
    in_namespace(|| {
        let (pool, mut tx) = lending_queue(|_| false);
        let mut rx = packet_rx("right", RxSettings::default());
        for first in [0, 20, 40] {
            assert_eq!(tx.transmit(&mut long_frames(pool, first, 20)), Ok(20));
            receive_until(&mut rx, Pool::new(64, BIG).unwrap(), |data| data == long_frame(first + 19));
        }
        assert_eq!(free_big_frames(pool).len(), BIG - MOST_EARLY);
        drop(tx);
        assert_eq!(free_big_frames(pool).len(), BIG - MOST_EARLY);
    });
}

#[test]
fn frames_of_a_closed_queue_come_back_when_the_next_is_opened() {
    in_namespace(|| {
        let (pool, mut tx) = lending_queue(always);
        run("tc qdisc add dev left root tbf rate 20mbit burst 40kb latency 10s");
        let mut rx = packet_rx("right", RxSettings::default());
        assert_eq!(tx.transmit(&mut long_frames(pool, 0, 10)), Ok(10));
        drop(tx);
        let held = BIG - free_big_frames(pool).len();
        assert!((2..10).contains(&held), "{held} are held");
        let got = receive_until(&mut rx, Pool::new(64, BIG).unwrap(), |data| data == long_frame(9));
        assert!(got.iter().any(|packet| packet.data() == long_frame(8)));
        let mut next = queue(pool, always);
        next.transmit(&mut Batch::default()).unwrap();
        drop(next);
        assert_eq!(free_big_frames(pool).len(), BIG);
    });
}

#[test]
fn a_frame_that_is_refused_stays_the_callers() {
    in_namespace(|| {
        let (pool, mut tx) = lending_queue(always);
        run("tc qdisc add dev left root tbf rate 8mbit burst 40kb limit 50kb");
        let mut batch = long_frames(pool, 0, 5);
        let sent = tx.transmit(&mut batch).unwrap();
        assert!((1..5).contains(&sent), "the queueing discipline is full after {sent}");
        assert_eq!((tx.counters().full, batch.len()), (1, 5 - sent));
        assert!(batch.iter().zip(sent..).all(|(packet, number)| packet.data() == long_frame(number)));
        run("ip link set left down");
        assert!(matches!(
            tx.transmit(&mut batch),
            Err(DeviceError::Refused { .. } | DeviceError::Down { .. })
        ));
        drop(batch);
        drop(tx);
        assert_eq!(free_big_frames(pool).len(), BIG, "the interface has dropped what waited");
    });
}
