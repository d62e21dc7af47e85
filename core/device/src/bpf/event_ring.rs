//! A ring by which programs send events to this process (`BPF_MAP_TYPE_RINGBUF`, Linux 5.8;
//! Documentation/bpf/ringbuf.rst).
//!
//! Two positions count bytes up for ever: how far the kernel has written, and how far this process has read.
//! An event is a header of eight bytes, the first four its length and two bits, then its bytes, filled up to
//! eight. It lies at its position modulo the ring's size; the kernel maps the ring twice, one behind the
//! other, so that none is in two parts. What does not fit is lost, which the program learns.
use super::maps::new_ring;
use crate::shared_memory::SharedMemory;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::fence;

/// The helper function that copies an event into a ring (`bpf_ringbuf_output`). It takes the ring, where the
/// event is, its length and flags, and wakes who waits if all before was read.
pub const EMIT_EVENT: i32 = 130;

/// In an event's header: it is being written; it was given up.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER: usize = 8;

/// The ring. Its descriptor can be read when there are events.
#[derive(Debug)]
pub struct EventRing {
    map: OwnedFd,
    /// The page with the position up to which was read.
    consumer: SharedMemory,
    /// The page with the kernel's position, and the ring twice.
    producer: SharedMemory,
    bytes: usize,
    page: usize,
}

impl EventRing {
    /// Makes a ring of so many bytes: a power of two, and whole pages.
    pub fn new(bytes: u32) -> io::Result<EventRing> {
        let map = new_ring(bytes)?;
        let (page, bytes) = (rustix::param::page_size(), bytes as usize);
        let consumer = SharedMemory::map(&map, 0, page)?;
        let producer = SharedMemory::map_readable(&map, page as u64, page + 2 * bytes)?;
        Ok(EventRing { map, consumer, producer, bytes, page })
    }

    /// The number that a program names the ring by.
    pub fn descriptor(&self) -> i32 {
        self.map.as_raw_fd()
    }

    /// Gives the oldest events, `most` at most, each as its whole 32-bit words. Says how many there were.
    pub fn drain(&mut self, most: usize, mut each: impl FnMut(&[u32])) -> usize {
        let Some(read) = self.consumer.word_64(0) else { return 0 };
        // Only this function writes it.
        let mut position = read.load(Acquire);
        let (mut words, mut count) = (Vec::new(), 0);
        while count < most
            && let Some((is_whole, length)) = self.event_at(position, &mut words)
        {
            if is_whole {
                each(&words);
                count += 1;
            }
            position += length;
            read.store(position, Release);
        }
        count
    }

    /// The event at a position: whether it was not given up, and how far the next one is.
    fn event_at(&self, position: u64, words: &mut Vec<u32>) -> Option<(bool, u64)> {
        let written = self.producer.load_64(0)?;
        // Behind the position, the header; behind the header, the event.
        fence(Acquire);
        let place = self.page + (position as usize & (self.bytes - 1));
        let header = (written != position).then(|| self.producer.load_32(place)).flatten()?;
        fence(Acquire);
        let length = (header & !(BUSY | DISCARDED)) as usize;
        if header & BUSY != 0 || length > self.bytes {
            return None;
        }
        words.clear();
        words.extend((0..length / 4).map_while(|word| self.producer.load_32(place + HEADER + 4 * word)));
        Some((header & DISCARDED == 0, (HEADER + length).next_multiple_of(8) as u64))
    }
}

impl AsFd for EventRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Assembler, Hook, Operation, Register::*, Size, load, run};
    use super::*;
    use crate::namespace::may_make_namespaces;

    /// A program that counts up a word and gives it as an event of 12 bytes; its answer is the kernel's.
    fn program(ring: &EventRing, count: &super::super::Array) -> OwnedFd {
        let mut a = Assembler::default();
        a.value(R6, count.descriptor(), 0);
        a.load(Size::Word, R1, R6, 0);
        a.compute(Operation::Add, R1, 1);
        a.store(Size::Word, R6, 0, R1);
        a.map(R1, ring.descriptor());
        a.set(R2, R6);
        a.set(R3, 12);
        a.set(R4, 0);
        a.call(EMIT_EVENT);
        a.compute(Operation::And, R0, 1);
        a.exit();
        load(Hook::XDP, &a.finish().unwrap()).unwrap()
    }

    #[test]
    fn events_come_in_their_order_and_what_does_not_fit_is_lost() {
        if !may_make_namespaces() {
            return;
        }
        let page = rustix::param::page_size() as u32;
        let mut ring = EventRing::new(page).unwrap();
        let program = program(&ring, &super::super::Array::new(64).unwrap());
        let mut seen = Vec::new();
        let mut drain = |ring: &mut EventRing, most| {
            seen.clear();
            let count = ring.drain(most, |words| seen.push(words.to_vec()));
            assert_eq!(count, seen.len());
            seen.iter().map(|words| words[0]).collect::<Vec<u32>>()
        };
        assert!(drain(&mut ring, 9).is_empty());
        let emit = || run(&program, &[0; 64], None, 1).unwrap().action;
        let results: Vec<u32> = (0..3).map(|_| emit()).collect();
        assert_eq!(results, [0; 3]);
        assert_eq!(drain(&mut ring, 2), [1, 2]);
        assert_eq!(drain(&mut ring, 9), [3]);
        // Round the ring's end several times, and full once.
        for number in 4..4 + u32::from(u16::MAX) {
            assert_eq!(emit(), 0);
            assert_eq!(drain(&mut ring, 9), [number]);
        }
        let fit = (0..page).take_while(|_| emit() == 0).count();
        assert!(fit as u32 >= page / 24 - 1, "{fit}");
        assert_eq!(drain(&mut ring, usize::MAX).len(), fit);
        assert_eq!(emit(), 0);
        assert_eq!(drain(&mut ring, 9).len(), 1);
    }
}
