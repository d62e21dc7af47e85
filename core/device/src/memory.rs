//! Two ports joined in memory: what one transmits the other receives, without a copy.
//!
//! For tests and benchmarks. Each direction is a bounded ring with one producer and one consumer, so the four
//! halves may live on four threads; frames are then freed on another thread than they came from.
use crate::queue::OwnAddress;
use crate::{DeviceError, RxCounters, RxQueue, TxCounters, TxQueue};
use artery_packet::{Batch, Packet, Pool};
use rtrb::{Consumer, Producer, RingBuffer};
use std::os::fd::BorrowedFd;

/// One end of a pair.
#[derive(Debug)]
pub struct MemoryPort {
    /// The half that packets come in by.
    pub rx: MemoryRx,
    /// The half that packets leave by.
    pub tx: MemoryTx,
}

/// The receiving half of one end.
#[derive(Debug)]
pub struct MemoryRx {
    ring: Consumer<Packet>,
    own: OwnAddress,
    skip_parsing: bool,
    port: u16,
    counters: RxCounters,
}

/// The transmitting half of one end.
#[derive(Debug)]
pub struct MemoryTx {
    ring: Producer<Packet>,
    counters: TxCounters,
}

/// Makes two ports, each of which receives what the other transmits. Each direction holds `capacity` packets.
pub fn memory_pair(capacity: usize) -> (MemoryPort, MemoryPort) {
    let (to_right, from_left) = RingBuffer::new(capacity);
    let (to_left, from_right) = RingBuffer::new(capacity);
    (MemoryPort::new(from_right, MemoryTx::new(to_right)), MemoryPort::new(from_left, MemoryTx::new(to_left)))
}

impl MemoryPort {
    fn new(ring: Consumer<Packet>, tx: MemoryTx) -> MemoryPort {
        MemoryPort {
            rx: MemoryRx {
                ring,
                own: OwnAddress::new(None),
                skip_parsing: false,
                port: 0,
                counters: RxCounters::default(),
            },
            tx,
        }
    }
    /// Gives this end an Ethernet address, so that frames for other addresses get
    /// the packet type `OtherHost`.
    pub fn with_mac(mut self, own: [u8; 6]) -> MemoryPort {
        self.rx.own = OwnAddress::new(Some(own));
        self
    }
    /// Says which port of the machine received packets are marked with.
    pub(crate) fn with_port(mut self, port: u16) -> MemoryPort {
        self.rx.port = port;
        self
    }
}

impl MemoryTx {
    fn new(ring: Producer<Packet>) -> MemoryTx {
        MemoryTx { ring, counters: TxCounters::default() }
    }
}

impl RxQueue for MemoryRx {
    /// The timestamp stays unset: memory has no clock.
    fn receive(&mut self, _: &'static Pool, max: usize, into: &mut Batch) -> Result<usize, DeviceError> {
        let count = max.min(self.ring.slots());
        let Ok(chunk) = self.ring.read_chunk(count) else { return Ok(0) };
        let mut bytes = 0;
        into.extend(chunk.into_iter().map(|mut packet| {
            packet.clear_metadata();
            packet.unmark();
            if !self.skip_parsing {
                packet.set_packet_type(self.own.sees(packet.data()));
            }
            packet.set_in_port(self.port);
            bytes += packet.len() as u64;
            packet
        }));
        self.counters.packets += count as u64;
        self.counters.bytes += bytes;
        Ok(count)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn counters(&self) -> RxCounters {
        self.counters
    }
    fn set_blind(&mut self, blind: bool) {
        self.skip_parsing = blind;
    }
}

impl TxQueue for MemoryTx {
    fn transmit(&mut self, batch: &mut Batch) -> Result<usize, DeviceError> {
        let count = batch.len().min(self.ring.slots());
        if count < batch.len() {
            self.counters.full += 1;
        }
        let Ok(chunk) = self.ring.write_chunk_uninit(count) else { return Ok(0) };
        let bytes = &mut self.counters.bytes;
        chunk.fill_from_iter(batch.drain_front(count).inspect(|packet| *bytes += packet.len() as u64));
        self.counters.packets += count as u64;
        Ok(count)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn counters(&self) -> TxCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_packet::PacketType;

    fn batch(pool: &'static Pool, numbers: std::ops::Range<u8>) -> Batch {
        let mut batch = Batch::default();
        batch.extend(numbers.map(|n| pool.packet_from(&[n; 60]).unwrap()));
        batch
    }
    fn numbers(batch: &Batch) -> Vec<u8> {
        batch.iter().map(|p| p.data()[0]).collect()
    }

    #[test]
    fn what_one_end_transmits_the_other_receives_in_the_same_frame() {
        let pool = Pool::new(64, 1).unwrap();
        let (mut left, mut right) = memory_pair(8);
        let mut sent = batch(pool, 0..3);
        let places: Vec<_> = sent.iter().map(|p| p.data().as_ptr()).collect();
        assert_eq!(left.tx.transmit(&mut sent), Ok(3));
        assert!(sent.is_empty());
        let mut got = Batch::default();
        assert_eq!(left.rx.receive(pool, 8, &mut got), Ok(0));
        assert_eq!(right.rx.receive(pool, 8, &mut got), Ok(3));
        assert_eq!(got.iter().map(|p| p.data().as_ptr()).collect::<Vec<_>>(), places);
        assert_eq!((right.rx.counters().packets, right.rx.counters().bytes), (3, 180));
        assert_eq!((left.tx.counters().packets, left.tx.counters().bytes), (3, 180));
    }

    #[test]
    fn what_does_not_fit_stays_in_the_batch_in_order() {
        let pool = Pool::new(64, 1).unwrap();
        let (mut left, mut right) = memory_pair(4);
        let mut sent = batch(pool, 0..6);
        assert_eq!(left.tx.transmit(&mut sent), Ok(4));
        assert_eq!(numbers(&sent), [4, 5]);
        assert_eq!(left.tx.transmit(&mut sent), Ok(0));
        let mut got = Batch::default();
        assert_eq!(right.rx.receive(pool, 1, &mut got), Ok(1));
        assert_eq!(left.tx.transmit(&mut sent), Ok(1));
        assert_eq!(right.rx.receive(pool, 64, &mut got), Ok(4));
        assert_eq!((numbers(&got), numbers(&sent)), (vec![0, 1, 2, 3, 4], vec![5]));
        assert_eq!(left.tx.counters().full, 3);
    }

    #[test]
    fn packet_type_follows_the_destination_address() {
        let pool = Pool::new(64, 1).unwrap();
        let (mut left, right) = memory_pair(8);
        let mut right = right.with_mac([2, 0, 0, 0, 0, 1]);
        let mut sent = Batch::default();
        for destination in [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]] {
            let mut frame = [0; 60];
            frame[..6].copy_from_slice(&destination);
            sent.push(pool.packet_from(&frame).unwrap());
        }
        left.tx.transmit(&mut sent).unwrap();
        let mut got = Batch::default();
        right.rx.receive(pool, 8, &mut got).unwrap();
        use PacketType::*;
        let types: Vec<_> = got.iter().map(|p| p.packet_type()).collect();
        assert_eq!(types, [Host, OtherHost, Broadcast, Multicast]);
    }

    #[test]
    fn annotations_of_the_sender_do_not_reach_the_receiver() {
        let pool = Pool::new(64, 1).unwrap();
        let (mut left, mut right) = memory_pair(8);
        let mut sent = batch(pool, 0..1);
        sent.iter_mut().for_each(|p| p.set_dst_ip([10, 0, 0, 1].into()));
        left.tx.transmit(&mut sent).unwrap();
        right.rx.receive(pool, 8, &mut sent).unwrap();
        assert_eq!(sent.iter().next().unwrap().dst_ip().to_bits(), 0);
    }

    #[test]
    fn halves_on_four_threads_lose_and_reorder_nothing() {
        const COUNT: u32 = 20_000;
        let pool = Pool::new(1024, 1).unwrap();
        let (left, right) = memory_pair(100);
        std::thread::scope(|s| {
            let mut threads = Vec::new();
            for (mut tx, mut rx) in [(left.tx, right.rx), (right.tx, left.rx)] {
                threads.push(s.spawn(move || send_numbers(&mut tx, pool, COUNT)));
                threads.push(s.spawn(move || expect_numbers(&mut rx, pool, COUNT)));
            }
            // Joined one by one: only then have the threads given back the frames they kept to themselves.
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        let all: Vec<_> = std::iter::from_fn(|| pool.alloc_packet()).collect();
        assert_eq!(all.len(), 1024);
    }

    fn send_numbers(tx: &mut MemoryTx, pool: &'static Pool, count: u32) {
        let (mut batch, mut next) = (Batch::default(), 0);
        while next < count || !batch.is_empty() {
            while next < count && batch.len() < 32 {
                let Some(packet) = pool.packet_from(&next.to_be_bytes()) else { break };
                batch.push(packet);
                next += 1;
            }
            if tx.transmit(&mut batch).unwrap() == 0 {
                std::thread::yield_now();
            }
        }
    }

    fn expect_numbers(rx: &mut MemoryRx, pool: &'static Pool, count: u32) {
        let (mut batch, mut expected) = (Batch::default(), 0u32);
        while expected < count {
            if rx.receive(pool, 64, &mut batch).unwrap() == 0 {
                std::thread::yield_now();
            }
            for packet in batch.drain() {
                assert_eq!(packet.data(), expected.to_be_bytes());
                expected += 1;
            }
        }
    }
}
