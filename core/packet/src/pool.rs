//! Where frames come from and go back to.
//!
//! A pool has two classes of frames, each a `FrameClass`: a region of frames, a dense array of descriptors,
//! and a lock-free stack of free ones in chunks. Every thread keeps a small cache in front, so that taking
//! and giving back is a push or pop on a private vector; chunks move between cache and stack. A pool lives as
//! long as the process: packets carry no reference count.
use crate::packet::{Descriptor, Packet};
use crate::{BATCH, Batch};
use std::alloc::{Layout, alloc_zeroed};
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Bytes of a frame of the common class.
pub const FRAME: usize = 2048;
/// Bytes of a big frame: 64 kB of packet (segmentation offload, reassembly) and headroom.
pub const BIG_FRAME: usize = 68 * 1024;
/// Least headroom of a fresh packet.
const HEADROOM: usize = 128;
/// Number of different headrooms, 64 bytes apart (see `Descriptor::origin`): 128 to 448, which leaves a frame
/// room for a 1,518-byte packet in every case.
const COLOURS: usize = 6;
/// Most descriptors in one chunk of the free stack.
const CHUNK: usize = 64;
/// Most descriptors of a class that one thread keeps to itself.
const CACHE: usize = 512;

/// Why a pool could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// No frames were asked for, or more than the free list can number.
    BadSize,
    /// The system has not enough memory.
    OutOfMemory,
}

impl std::fmt::Display for PoolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PoolError::BadSize => "a pool needs between 1 and 16,777,216 frames of each class",
            PoolError::OutOfMemory => "not enough memory for the packet pool; ask for fewer frames",
        })
    }
}
impl std::error::Error for PoolError {}

/// All frames of a router.
pub struct Pool {
    small: FrameClass,
    big: FrameClass,
}

impl Pool {
    /// Makes a pool of `frames` frames of [`FRAME`] bytes and `big` of [`BIG_FRAME`]. It is never freed.
    /// Memory is taken from the system when a frame is first used.
    pub fn new(frames: usize, big: usize) -> Result<&'static Pool, PoolError> {
        let (small, big) = (FrameClass::new(frames, FRAME)?, FrameClass::new(big, BIG_FRAME)?);
        // From here on it is only shared: descriptors keep references to their shelf, which a `&mut` would
        // end.
        let pool: &'static Pool = Box::leak(Box::new(Pool { small, big }));
        pool.small.fill_stack(pool);
        pool.big.fill_stack(pool);
        Ok(pool)
    }
    /// An empty packet in a common frame; `None` when all are in use.
    #[inline]
    pub fn alloc_packet(&'static self) -> Option<Packet> {
        self.small.alloc_packet()
    }
    /// An empty packet in a big frame.
    pub fn alloc_big_packet(&'static self) -> Option<Packet> {
        self.big.alloc_packet()
    }
    /// A packet with these bytes, in the smallest frame that holds them; `None` when there is none.
    pub fn packet_from(&'static self, bytes: &[u8]) -> Option<Packet> {
        let mut packet = self.alloc_packet_for(bytes.len())?;
        packet.append(bytes.len()).ok()?.copy_from_slice(bytes);
        Some(packet)
    }
    /// An empty packet with tailroom for `len` bytes.
    #[inline]
    pub fn alloc_packet_for(&'static self, len: usize) -> Option<Packet> {
        const FITS: usize = FRAME - HEADROOM - (COLOURS - 1) * 64;
        match len {
            0..=FITS => self.alloc_packet(),
            _ if len <= BIG_FRAME - HEADROOM - (COLOURS - 1) * 64 => self.alloc_big_packet(),
            _ => None,
        }
    }
    /// Adds up to `n` empty packets to `into`; returns how many there were.
    pub fn alloc_packets(&'static self, n: usize, into: &mut Batch) -> usize {
        self.small.alloc_packets(n, into.packets_mut())
    }
    /// Number of common frames.
    pub fn frames(&self) -> usize {
        self.small.count as usize
    }
    /// The memory of the common frames: [`Pool::frames`] times [`FRAME`] bytes, starting on a page. It is
    /// mapped as long as the process lives; its bytes belong to whoever owns the packet of a frame.
    pub fn region(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.small.frames, self.frames() * FRAME)
    }
    /// Which of the common frames a packet is in; `None` for a big frame or one of another pool.
    #[inline]
    pub fn frame_of(&self, packet: &Packet) -> Option<u32> {
        std::ptr::eq(packet.frame_class(), &self.small).then(|| self.small.index(packet.descriptor()))
    }
}

/// One class of frames.
pub(crate) struct FrameClass {
    /// The pool this shelf belongs to, once it has its place.
    pool: OnceLock<&'static Pool>,
    /// The first frame; the others follow in the order of their descriptors.
    frames: NonNull<u8>,
    descriptors: NonNull<Descriptor>,
    /// For each descriptor that heads a chunk on the stack, the head of the chunk below it plus one. Apart
    /// from the descriptors, because a slow thread may still read it when the chunk has been taken.
    below: Box<[AtomicU32]>,
    count: u32,
    /// Bytes of a frame.
    size: usize,
    /// Most descriptors that one thread keeps to itself.
    cache: usize,
    /// Which of a thread's caches serves this class.
    class: usize,
    /// Top of the stack of chunks: tag in the high half, index of its first descriptor plus one in the
    /// low. The tag changes with every operation, so that a slow thread never mistakes a returned chunk
    /// for an unmoved one.
    top: AtomicU64,
}
// SAFETY: the memory behind the pointers is reached only by the owner of a descriptor; the stack is atomic.
unsafe impl Send for FrameClass {}
// SAFETY: as above.
unsafe impl Sync for FrameClass {}

/// Value of `Descriptor::next` and of the low half of `FrameClass::top` at the end of the list.
const NONE: u32 = 0;

impl FrameClass {
    /// Takes memory for the frames and descriptors, which [`FrameClass::fill_stack`] makes good.
    fn new(count: usize, size: usize) -> Result<FrameClass, PoolError> {
        let count =
            u32::try_from(count).ok().filter(|n| (1..=1 << 24).contains(n)).ok_or(PoolError::BadSize)?;
        let frames = zeroed_region(count as usize * size, 4096)?;
        let descriptors =
            zeroed_region(count as usize * size_of::<Descriptor>(), align_of::<Descriptor>())?.cast();
        Ok(FrameClass {
            pool: OnceLock::new(),
            frames,
            descriptors,
            below: (0..count).map(|_| AtomicU32::new(NONE)).collect(),
            count,
            size,
            cache: (count as usize / 8).clamp(1, CACHE),
            class: usize::from(size != FRAME),
            top: AtomicU64::new(0),
        })
    }

    /// Writes the descriptors and puts all on the stack; `pool` is the one that this shelf is in.
    fn fill_stack(&'static self, pool: &'static Pool) {
        self.pool.set(pool).ok().expect("only Pool::new() calls this, once for each shelf");
        let count = self.count as usize;
        for index in 0..count {
            let origin = HEADROOM + 64 * ((index / (4096 / FRAME)) % COLOURS);
            // SAFETY: the frame is inside the region, the descriptor inside the array; neither has an owner
            // yet, since the stack is empty.
            unsafe {
                let frame = self.frames.add(index * self.size);
                self.descriptors.add(index).write(Descriptor::new(
                    frame,
                    self,
                    self.size as u32,
                    origin as u16,
                ));
            }
        }
        let chunk = CHUNK.min(self.cache);
        for first in (0..count).step_by(chunk).rev() {
            let chunk = (first..count.min(first + chunk)).map(|index| self.descriptor(index));
            self.push_chunk(chunk);
        }
    }

    fn descriptor(&self, index: usize) -> NonNull<Descriptor> {
        assert!(index < self.count as usize, "free list names descriptor {index}");
        // SAFETY: within the array.
        unsafe { self.descriptors.add(index) }
    }
    fn index(&self, descriptor: NonNull<Descriptor>) -> u32 {
        // SAFETY: every descriptor of this shelf points into its array.
        unsafe { descriptor.offset_from(self.descriptors) as u32 }
    }

    /// Links descriptors that the caller owns into a chunk and pushes it on the stack.
    fn push_chunk(&self, chunk: impl Iterator<Item = NonNull<Descriptor>>) {
        let mut next = NONE;
        for mut descriptor in chunk {
            // SAFETY: the caller owns the descriptor; no packet refers to it.
            unsafe { descriptor.as_mut().next = next };
            next = self.index(descriptor) + 1;
        }
        let Some(head) = next.checked_sub(1) else { return };
        let mut top = self.top.load(Relaxed);
        loop {
            self.below[head as usize].store(top as u32, Relaxed);
            let new = ((top >> 32).wrapping_add(1) << 32) | u64::from(next);
            match self.top.compare_exchange_weak(top, new, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Pops a chunk into `cache`; returns false when the stack is empty.
    fn pop_chunk(&self, cache: &mut Vec<NonNull<Descriptor>>) -> bool {
        let mut top = self.top.load(Acquire);
        let mut next = loop {
            let Some(head) = (top as u32).checked_sub(1) else { return false };
            // Should the chunk have been taken meanwhile, this is stale and the exchange fails by its tag.
            let below = self.below[head as usize].load(Relaxed);
            let new = (((top >> 32).wrapping_add(1)) << 32) | u64::from(below);
            match self.top.compare_exchange_weak(top, new, AcqRel, Acquire) {
                Ok(_) => break top as u32,
                Err(now) => top = now,
            }
        };
        while let Some(index) = next.checked_sub(1) {
            let descriptor = self.descriptor(index as usize);
            cache.push(descriptor);
            // SAFETY: the chunk was popped, so this thread owns its descriptors.
            next = unsafe { descriptor.as_ref().next };
        }
        true
    }

    #[inline]
    fn alloc_packet(&'static self) -> Option<Packet> {
        with_cache(self, |cache| {
            if cache.is_empty() && !self.pop_chunk(cache) {
                return None;
            }
            cache.pop().map(fresh_packet)
        })
    }

    fn alloc_packets(&'static self, n: usize, into: &mut Vec<Packet>) -> usize {
        with_cache(self, |cache| {
            while cache.len() < n && self.pop_chunk(cache) {}
            let from = cache.len().saturating_sub(n);
            let taken = cache.len() - from;
            into.extend(cache.drain(from..).rev().map(fresh_packet));
            taken
        })
    }
}

/// Makes an empty packet of a descriptor that the caller took from a cache.
#[inline]
fn fresh_packet(mut descriptor: NonNull<Descriptor>) -> Packet {
    // SAFETY: the descriptor was free and in this thread's cache alone.
    unsafe {
        descriptor.as_mut().reset_hot();
        Packet::from_descriptor(descriptor)
    }
}

/// Zeroed memory that is never freed. Asked for with the allocator's own alignment and aligned by hand, since
/// only then the system hands out pages that are not touched before use.
fn zeroed_region(size: usize, align: usize) -> Result<NonNull<u8>, PoolError> {
    let layout = Layout::from_size_align(size + align, 16).map_err(|_| PoolError::BadSize)?;
    // SAFETY: the layout is not empty.
    let region = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(PoolError::OutOfMemory)?;
    // SAFETY: the region is `align` bytes longer than what is used of it.
    Ok(unsafe { region.add(region.align_offset(align)) })
}

/// The free descriptors one thread keeps to itself, of one class.
struct Cache {
    shelf: Option<&'static FrameClass>,
    free: Vec<NonNull<Descriptor>>,
}

impl Cache {
    const fn new() -> Cache {
        Cache { shelf: None, free: Vec::new() }
    }
    /// Gives `count` descriptors back to the shelf, those that were freed longest ago.
    fn return_descriptors(&mut self, count: usize) {
        let Some(shelf) = self.shelf else { return };
        let count = count.min(self.free.len());
        let chunk = CHUNK.min(shelf.cache);
        let mut oldest = self.free.drain(..count).peekable();
        while oldest.peek().is_some() {
            shelf.push_chunk(oldest.by_ref().take(chunk));
        }
    }
    /// Makes this the cache of `class`; a thread that uses several pools in turn pays here.
    #[cold]
    fn adopt_class(&mut self, shelf: &'static FrameClass) {
        self.return_descriptors(usize::MAX);
        self.shelf = Some(shelf);
        self.free.reserve(CACHE + CHUNK + BATCH);
    }
    #[cold]
    fn return_half(&mut self) {
        self.return_descriptors((self.free.len() / 2).max(1));
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.return_descriptors(usize::MAX);
    }
}

thread_local! {
    static CACHES: UnsafeCell<[Cache; 2]> = const { UnsafeCell::new([Cache::new(), Cache::new()]) };
}

/// Runs `f` on this thread's cache for `class`. `f` must not free or take packets by other means.
#[inline]
fn with_cache<R>(shelf: &'static FrameClass, f: impl FnOnce(&mut Vec<NonNull<Descriptor>>) -> R) -> R {
    CACHES.with(|caches| {
        // SAFETY: the cache belongs to this thread, and nothing called here comes back to it: `f` only moves
        // descriptors between vectors and the stack.
        let cache = unsafe { &mut (&mut *caches.get())[shelf.class] };
        if !cache.shelf.is_some_and(|s| std::ptr::eq(s, shelf)) {
            cache.adopt_class(shelf);
        }
        let result = f(&mut cache.free);
        if cache.free.len() > shelf.cache {
            cache.return_half();
        }
        result
    })
}

/// Gives a descriptor and its frame back. The caller gives up its ownership.
#[inline]
pub(crate) fn free(descriptor: NonNull<Descriptor>) {
    // SAFETY: the caller owns the descriptor, which lives as long as the process.
    let shelf = unsafe { descriptor.as_ref() }.class;
    // A thread that is ending has no cache any more.
    if CACHES.try_with(|_| ()).is_err() {
        return shelf.push_chunk(std::iter::once(descriptor));
    }
    with_cache(shelf, |cache| cache.push(descriptor))
}

/// Gives all packets back at once.
#[inline]
pub(crate) fn free_all(packets: &mut Vec<Packet>) {
    let Some(first) = packets.first() else { return };
    let shelf = first.frame_class();
    if packets.iter().any(|p| !std::ptr::eq(p.frame_class(), shelf)) || CACHES.try_with(|_| ()).is_err() {
        return packets.clear();
    }
    with_cache(shelf, |cache| cache.extend(packets.drain(..).map(Packet::into_descriptor)));
}

/// The pool that a packet came from.
pub(crate) fn owner_of(descriptor: &Descriptor) -> &'static Pool {
    descriptor.class.pool.get().expect("fill() sets it before the first descriptor")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn an_empty_pool_says_so_and_recovers() {
        let pool = Pool::new(16, 1).unwrap();
        let held: Vec<_> = std::iter::from_fn(|| pool.alloc_packet()).collect();
        assert_eq!(held.len(), 16);
        assert!(pool.packet_from(b"one more").is_none());
        drop(held);
        assert_eq!(std::iter::from_fn(|| pool.alloc_packet()).collect::<Vec<_>>().len(), 16);
    }

    #[test]
    fn no_two_packets_share_a_frame() {
        let pool = Pool::new(300, 3).unwrap();
        let held: Vec<_> =
            std::iter::from_fn(|| pool.packet_from(&[1])).chain(pool.alloc_big_packet()).collect();
        let places: HashSet<_> = held.iter().map(|p| p.data().as_ptr()).collect();
        assert_eq!((held.len(), places.len()), (301, 301));
    }

    #[test]
    fn frames_freed_on_another_thread_come_back() {
        let pool = Pool::new(512, 1).unwrap();
        let rounds = if cfg!(miri) { 3 } else { 200 };
        let (send, receive) = std::sync::mpsc::sync_channel::<Packet>(64);
        std::thread::scope(|s| {
            let sender = s.spawn(move || {
                for _ in 0..rounds {
                    for n in 0..128u8 {
                        let packet = loop {
                            match pool.packet_from(&[n]) {
                                Some(packet) => break packet,
                                None => std::thread::yield_now(),
                            }
                        };
                        send.send(packet).unwrap();
                    }
                }
            });
            let mut seen = 0usize;
            while let Ok(packet) = receive.recv() {
                assert_eq!(packet.data(), [(seen % 128) as u8]);
                seen += 1;
            }
            assert_eq!(seen, rounds * 128);
            // Joining waits for the thread's cache to be given back, which leaving the scope does not.
            sender.join().unwrap();
        });
        assert_eq!(std::iter::from_fn(|| pool.alloc_packet()).collect::<Vec<_>>().len(), 512);
    }

    #[test]
    fn threads_that_contend_lose_no_frame() {
        let pool = Pool::new(256, 1).unwrap();
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        std::thread::scope(|s| {
            let work = move || {
                for round in 0..rounds {
                    let held: Vec<_> = (0..round % 70).filter_map(|_| pool.alloc_packet()).collect();
                    drop(held);
                }
            };
            let threads: Vec<_> = (0..3).map(|_| s.spawn(work)).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert_eq!(std::iter::from_fn(|| pool.alloc_packet()).collect::<Vec<_>>().len(), 256);
    }

    #[test]
    fn a_packet_is_in_the_frame_of_its_number() {
        let (pool, other) = (Pool::new(300, 1).unwrap(), Pool::new(4, 1).unwrap());
        let region = pool.region();
        assert_eq!(region.cast::<u8>().as_ptr().align_offset(4096), 0);
        let held: Vec<_> = std::iter::from_fn(|| pool.packet_from(&[1])).collect();
        let numbers: HashSet<_> = held.iter().map(|packet| pool.frame_of(packet).unwrap()).collect();
        assert_eq!((numbers.len(), region.len()), (300, 300 * FRAME));
        for packet in &held {
            let start = packet.data().as_ptr() as usize - region.cast::<u8>().as_ptr() as usize;
            assert_eq!(start, pool.frame_of(packet).unwrap() as usize * FRAME + packet.headroom());
        }
        assert_eq!(pool.frame_of(&pool.alloc_big_packet().unwrap()), None);
        assert_eq!(pool.frame_of(&other.alloc_packet().unwrap()), None);
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        assert_eq!(Pool::new(0, 1).err(), Some(PoolError::BadSize));
        assert_eq!(Pool::new(1, usize::MAX).err(), Some(PoolError::BadSize));
    }
}
