//! The four rings of an AF_XDP socket: memory that the kernel shares, and indices that both sides move.
//!
//! One side produces entries, the other consumes them; each moves its own index only and reads the other's.
//! Indices count up and wrap at 2^32; an entry lies at its index modulo the size, which is a power of two.
//! Our own index is kept here and only ever written to the shared memory. What is read from there (the other
//! index, entries) may be anything: an index that claims more than there can be breaks the ring for good,
//! entries are for the caller to check, and no value leads outside the memory.
use crate::shared_memory::SharedMemory;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Set while the kernel sleeps and needs a system call.
const NEEDS_WAKEUP: u32 = libc::XDP_RING_NEED_WAKEUP;
/// The most entries of a ring.
pub(super) const LONGEST: u32 = 1 << 20;

/// The other side's index is out of range: the ring can't be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BrokenRing;

/// Where the parts of a ring lie in its memory, as the kernel says.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingLayout {
    pub(super) producer: u64,
    pub(super) consumer: u64,
    pub(super) flags: u64,
    pub(super) entries: u64,
}

impl RingLayout {
    /// Bytes from the beginning to the end of the last of `count` entries of `words` words; `None` for
    /// numbers that make no sense.
    pub(super) fn bytes(&self, count: u32, words: usize) -> Option<usize> {
        let entries = usize::try_from(self.entries).ok()?;
        if !count.is_power_of_two() || count > LONGEST {
            return None;
        }
        entries.checked_add(count as usize * words * 8)
    }
}

/// A ring of entries of `W` words.
#[derive(Debug)]
struct SharedRing<const W: usize> {
    /// Kept alive for the pointers.
    _memory: Arc<SharedMemory>,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<[AtomicU64; W]>,
    mask: u32,
}
// SAFETY: the pointers lead to atomics in memory that the ring keeps alive.
unsafe impl<const W: usize> Send for SharedRing<W> {}

impl<const W: usize> SharedRing<W> {
    /// A ring of `count` entries in `memory`; an error when its parts would not lie inside, or overlap.
    fn new(memory: Arc<SharedMemory>, layout: RingLayout, count: u32) -> io::Result<SharedRing<W>> {
        let nonsense = || io::Error::from(io::ErrorKind::InvalidData);
        let bytes = layout.bytes(count, W).filter(|bytes| *bytes <= memory.len()).ok_or_else(nonsense)?;
        let mut taken: Vec<std::ops::Range<usize>> = Vec::new();
        let mut place = |offset: u64, len: usize, align: usize| {
            let start = usize::try_from(offset).ok()?;
            let end = start.checked_add(len)?;
            let inside = start.is_multiple_of(align) && end <= bytes;
            let alone = taken.iter().all(|other| end <= other.start || other.end <= start);
            taken.push(start..end);
            // SAFETY: start + len <= bytes <= memory.len().
            (inside && alone).then(|| unsafe { memory.base().add(start) })
        };
        let mut word = |offset| place(offset, 4, 4).map(NonNull::cast::<AtomicU32>).ok_or_else(nonsense);
        let (producer, consumer, flags) =
            (word(layout.producer)?, word(layout.consumer)?, word(layout.flags)?);
        let entries = place(layout.entries, count as usize * W * 8, 8).ok_or_else(nonsense)?.cast();
        Ok(SharedRing { producer, consumer, flags, entries, mask: count - 1, _memory: memory })
    }
    fn size(&self) -> u32 {
        self.mask + 1
    }
    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: new() checked that it lies in the memory, aligned; both sides access it atomically only.
        unsafe { self.producer.as_ref() }
    }
    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in producer().
        unsafe { self.consumer.as_ref() }
    }
    #[inline]
    fn needs_wakeup(&self) -> bool {
        // SAFETY: as in producer().
        unsafe { self.flags.as_ref() }.load(Relaxed) & NEEDS_WAKEUP != 0
    }
    #[inline]
    fn entry(&self, index: u32) -> &[AtomicU64; W] {
        // SAFETY: new() checked that mask + 1 entries lie in the memory, aligned.
        unsafe { self.entries.add((index & self.mask) as usize).as_ref() }
    }
}

/// The side of a ring that produces entries.
#[derive(Debug)]
pub(super) struct Producer<const W: usize> {
    ring: SharedRing<W>,
    /// Entries before this index are written.
    next: u32,
    /// The consumer's index when it was last read.
    consumed: u32,
    broken: bool,
}

impl<const W: usize> Producer<W> {
    /// Takes the producing side of a fresh ring.
    pub(super) fn new(memory: Arc<SharedMemory>, layout: RingLayout, count: u32) -> io::Result<Producer<W>> {
        Ok(Producer { ring: SharedRing::new(memory, layout, count)?, next: 0, consumed: 0, broken: false })
    }
    /// Number of entries that the consumer has not taken yet.
    #[inline]
    pub(super) fn waiting(&mut self) -> Result<u32, BrokenRing> {
        let now = self.ring.consumer().load(Acquire);
        // It moves forward only, and not past what was written.
        if self.broken || now.wrapping_sub(self.consumed) > self.next.wrapping_sub(self.consumed) {
            self.broken = true;
            return Err(BrokenRing);
        }
        self.consumed = now;
        Ok(self.next.wrapping_sub(now))
    }
    /// Number of entries there is room for.
    #[inline]
    pub(super) fn free(&mut self) -> Result<u32, BrokenRing> {
        Ok(self.ring.size() - self.waiting()?)
    }
    /// Writes an entry, which the consumer sees when it is published; false when the ring is full.
    ///
    /// # Safety
    /// Where the kernel consumes, the frame that the entry names must be lent to it: no one else touches it
    /// until its address comes back.
    #[inline]
    pub(super) unsafe fn write(&mut self, entry: [u64; W]) -> bool {
        if self.next.wrapping_sub(self.consumed) >= self.ring.size() {
            return false;
        }
        for (word, value) in self.ring.entry(self.next).iter().zip(entry) {
            word.store(value, Relaxed);
        }
        self.next = self.next.wrapping_add(1);
        true
    }
    /// Shows the consumer what was written.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.ring.producer().store(self.next, Release);
    }
    /// Whether the kernel needs a system call before it consumes.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// The side of a ring that consumes entries.
#[derive(Debug)]
pub(super) struct Consumer<const W: usize> {
    ring: SharedRing<W>,
    /// Entries before this index were read.
    next: u32,
    /// The producer's index when it was last read.
    produced: u32,
    broken: bool,
}

impl<const W: usize> Consumer<W> {
    /// Takes the consuming side of a fresh ring.
    pub(super) fn new(memory: Arc<SharedMemory>, layout: RingLayout, count: u32) -> io::Result<Consumer<W>> {
        Ok(Consumer { ring: SharedRing::new(memory, layout, count)?, next: 0, produced: 0, broken: false })
    }
    /// Number of entries to be read.
    #[inline]
    pub(super) fn available(&mut self) -> Result<u32, BrokenRing> {
        let now = self.ring.producer().load(Acquire);
        let (before, after) = (self.produced.wrapping_sub(self.next), now.wrapping_sub(self.next));
        // It moves forward only, and not past what was released.
        if self.broken || after > self.ring.size() || after < before {
            self.broken = true;
            return Err(BrokenRing);
        }
        self.produced = now;
        Ok(after)
    }
    /// Reads the next of the entries that were available.
    #[inline]
    pub(super) fn read(&mut self) -> Option<[u64; W]> {
        if self.next == self.produced {
            return None;
        }
        let entry = self.ring.entry(self.next);
        self.next = self.next.wrapping_add(1);
        Some(std::array::from_fn(|n| entry[n].load(Relaxed)))
    }
    /// Gives the places of what was read back to the producer.
    #[inline]
    pub(super) fn release(&mut self) {
        self.ring.consumer().store(self.next, Release);
    }
}

/// The kernel's side of a ring, for tests that simulate the kernel.
#[cfg(any(test, feature = "fuzz"))]
pub(super) struct Peer<const W: usize>(Consumer<W>);

/// Where the parts of a ring lie that no kernel made.
#[cfg(any(test, feature = "fuzz"))]
const LAYOUT: RingLayout = RingLayout { producer: 0, consumer: 64, flags: 128, entries: 192 };

#[cfg(any(test, feature = "fuzz"))]
impl<const W: usize> Peer<W> {
    /// The side of a kernel that consumes, and ours.
    pub(super) fn consuming(count: u32) -> (Peer<W>, Producer<W>) {
        let memory = Self::memory(count);
        let ours = Producer::new(memory.clone(), LAYOUT, count).unwrap();
        (Peer(Consumer::new(memory, LAYOUT, count).unwrap()), ours)
    }
    /// The side of a kernel that produces, and ours.
    pub(super) fn producing(count: u32) -> (Peer<W>, Consumer<W>) {
        let memory = Self::memory(count);
        let ours = Consumer::new(memory.clone(), LAYOUT, count).unwrap();
        (Peer(Consumer::new(memory, LAYOUT, count).unwrap()), ours)
    }
    fn memory(count: u32) -> Arc<SharedMemory> {
        Arc::new(SharedMemory::anonymous(LAYOUT.bytes(count, W).unwrap()))
    }
    /// Maps a socket's ring once more.
    #[cfg(test)]
    pub(super) fn map(
        socket: impl std::os::fd::AsFd,
        place: u64,
        offset: libc::xdp_ring_offset,
        count: u32,
    ) -> Peer<W> {
        let libc::xdp_ring_offset { producer, consumer, flags, desc } = offset;
        let layout = RingLayout { producer, consumer, flags, entries: desc };
        let bytes = layout.bytes(count, W).unwrap();
        let memory = SharedMemory::map(socket, place, bytes).unwrap();
        Peer(Consumer::new(Arc::new(memory), layout, count).unwrap())
    }
    /// Puts entries into the ring.
    pub(super) fn produce(&self, entries: &[[u64; W]]) {
        let first = self.0.ring.producer().load(Relaxed);
        for (n, words) in entries.iter().enumerate() {
            let entry = self.0.ring.entry(first.wrapping_add(n as u32));
            entry.iter().zip(words).for_each(|(word, value)| word.store(*value, Relaxed));
        }
        self.set_producer(first.wrapping_add(entries.len() as u32));
    }
    pub(super) fn set_producer(&self, index: u32) {
        self.0.ring.producer().store(index, Release);
    }
    pub(super) fn set_consumer(&self, index: u32) {
        self.0.ring.consumer().store(index, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn write<const W: usize>(producer: &mut Producer<W>, entry: [u64; W]) -> bool {
        // SAFETY: no kernel knows of this ring.
        unsafe { producer.write(entry) }
    }
    fn memory(count: u32, words: usize) -> Arc<SharedMemory> {
        Arc::new(SharedMemory::anonymous(LAYOUT.bytes(count, words).unwrap()))
    }
    fn pair<const W: usize>(count: u32) -> (Producer<W>, Consumer<W>) {
        let memory = memory(count, W);
        let producer = Producer::new(memory.clone(), LAYOUT, count).unwrap();
        (producer, Consumer::new(memory, LAYOUT, count).unwrap())
    }
    /// Lets both sides begin just before their indices wrap.
    fn late<const W: usize>(count: u32, at: u32) -> (Producer<W>, Consumer<W>) {
        let (mut producer, mut consumer) = pair(count);
        (producer.next, producer.consumed, consumer.next, consumer.produced) = (at, at, at, at);
        producer.publish();
        consumer.release();
        (producer, consumer)
    }

    #[test]
    fn every_entry_crosses_once_in_order_between_two_threads() {
        let (mut producer, mut consumer) = late::<2>(64, u32::MAX - 1000);
        let total = 200_000;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut n = 0;
                while n < total {
                    let room = producer.free().unwrap();
                    for _ in 0..room.min(17) {
                        assert!(write(&mut producer, [n, !n]));
                        n += 1;
                    }
                    producer.publish();
                    if room == 0 {
                        std::thread::yield_now();
                    }
                }
            });
            let mut expected = 0;
            while expected < total {
                if consumer.available().unwrap() == 0 {
                    std::thread::yield_now();
                }
                while let Some(entry) = consumer.read() {
                    assert_eq!(entry, [expected, !expected]);
                    expected += 1;
                }
                consumer.release();
            }
        });
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64),
        Publish,
        Look,
        Read,
        Release,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => any::<u64>().prop_map(Step::Write),
            2 => Just(Step::Publish),
            2 => Just(Step::Look),
            4 => Just(Step::Read),
            2 => Just(Step::Release),
        ]
    }

    /// Places of the parts of a ring, half of them aligned and close to what fits into 256 bytes.
    fn layout() -> impl Strategy<Value = [u64; 4]> {
        let anywhere = [0u64..400, 0..400, 0..400, 0..400];
        let near =
            (0u64..16, 0u64..16, 0u64..16, 0u64..24).prop_map(|(a, b, c, d)| [4 * a, 4 * b, 4 * c, 8 * d]);
        prop_oneof![anywhere, near]
    }

    proptest! {
        #[test]
        fn a_ring_does_what_a_queue_does(steps in proptest::collection::vec(step(), 0..200), start: u32) {
            let (mut producer, mut consumer) = late::<1>(4, start);
            let (mut written, mut shown, mut seen, mut read) = (VecDeque::new(), 0, 0, 0);
            for step in steps {
                match step {
                    Step::Write(value) => {
                        let room = producer.free().unwrap() > 0;
                        prop_assert_eq!(room, written.len() + read < 4);
                        prop_assert_eq!(write(&mut producer, [value]), room);
                        if room {
                            written.push_back(value);
                        }
                    }
                    Step::Publish => {
                        producer.publish();
                        shown = written.len();
                    }
                    Step::Look => {
                        prop_assert_eq!(consumer.available(), Ok(shown as u32));
                        seen = shown;
                    }
                    Step::Read => {
                        prop_assert_eq!(
                            consumer.read().map(|[value]| value),
                            written.front().copied().filter(|_| seen > 0)
                        );
                        if seen > 0 {
                            written.pop_front();
                            (seen, shown, read) = (seen - 1, shown - 1, read + 1);
                        }
                    }
                    Step::Release => {
                        consumer.release();
                        read = 0;
                    }
                }
            }
        }

        #[test]
        fn a_hostile_peer_breaks_the_ring_and_nothing_else(
            peer in proptest::collection::vec((any::<u32>(), 0u32..12, any::<bool>()), 1..40),
            start: u32,
        ) {
            let (mut producer, mut consumer) = late::<2>(8, start);
            let (producer_index, consumer_index) = (producer.ring.consumer, consumer.ring.producer);
            for (wild, small, choose) in peer {
                let value = if choose { wild } else { consumer.next.wrapping_add(small) };
                // SAFETY: both lead into the memory that the rings keep alive.
                unsafe { producer_index.as_ref() }.store(value, Relaxed);
                match producer.free() {
                    Ok(free) => {
                        prop_assert!(free <= 8);
                        for _ in 0..free {
                            prop_assert!(write(&mut producer, [1, 2]));
                        }
                        prop_assert!(!write(&mut producer, [1, 2]));
                    }
                    Err(BrokenRing) => prop_assert_eq!(producer.free(), Err(BrokenRing)),
                }
                // SAFETY: as above.
                unsafe { consumer_index.as_ref() }.store(value, Relaxed);
                match consumer.available() {
                    Ok(available) => {
                        prop_assert!(available <= 8);
                        let read = std::iter::from_fn(|| consumer.read()).count();
                        prop_assert_eq!(read, available as usize);
                    }
                    Err(BrokenRing) => prop_assert_eq!(consumer.available(), Err(BrokenRing)),
                }
                consumer.release();
                producer.publish();
            }
        }

        #[test]
        fn a_layout_that_leaves_the_memory_or_overlaps_is_refused(
            [producer, consumer, flags, entries] in layout(),
            count in prop_oneof![0u32..40, Just(4), Just(8)],
        ) {
            let layout = RingLayout { producer, consumer, flags, entries };
            let memory = Arc::new(SharedMemory::anonymous(256));
            let fits = layout.bytes(count, 2).is_some_and(|bytes| {
                let words = [layout.producer, layout.consumer, layout.flags];
                let mut owners = [0; 800];
                words.iter().for_each(|at| (0..4).for_each(|n| owners[*at as usize + n] += 1));
                (entries as usize..bytes.min(800)).for_each(|at| owners[at] += 1);
                bytes <= 256
                    && entries % 8 == 0
                    && words.iter().all(|at| at % 4 == 0 && at + 4 <= bytes as u64)
                    && owners.iter().all(|owners| *owners < 2)
            });
            prop_assert_eq!(Producer::<2>::new(memory.clone(), layout, count).is_ok(), fits && count > 0);
            let beyond = RingLayout { consumer: u64::MAX - 3, ..layout };
            prop_assert!(Consumer::<2>::new(memory, beyond, count).is_err());
        }
    }

    #[test]
    fn indices_that_go_back_or_too_far_break_a_ring_for_good() {
        let (mut producer, mut consumer) = pair::<1>(4);
        assert!(write(&mut producer, [7]));
        producer.publish();
        assert_eq!(consumer.available(), Ok(1));
        producer.ring.producer().store(0, Release);
        assert_eq!(consumer.available(), Err(BrokenRing), "it went back");
        producer.publish();
        assert_eq!(consumer.available(), Err(BrokenRing), "and is no longer trusted");
        consumer.ring.consumer().store(2, Release);
        assert_eq!(producer.waiting(), Err(BrokenRing), "more was taken than written");
    }
}
