//! The heaps of all tables in one array of words, and how parts of it are allocated.
use super::strides::{Level, Strides};
use crate::address::Address;
use crate::runs::Group;
use artery_rcu::Domain;
use artery_storage::{RetireList, Storage, Words};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

/// Where the root's heap begins.
pub(super) const ROOT: usize = 0;
/// In every heap: the number of routes and tables that its table holds.
pub(super) const COUNT: usize = 0;
/// In every heap: the route that its parent's slot would show.
pub(super) const DEFAULT: usize = 1;

/// The tag of a word that leads to a child's heap.
const CHILD: u32 = 1 << 31;
const GROUP_BITS: u32 = 26;
/// The greatest group that fits a word beside the length.
pub(super) const MAX_GROUP: Group = (1 << GROUP_BITS) - 1;

/// What an index of a heap shows. See the layout in the module above.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Entry(pub(super) u32);

impl Entry {
    pub(super) const NONE: Entry = Entry(0);

    /// A route that ends `len` bits into its table.
    #[inline]
    pub(super) fn from_route(len: u8, group: Group) -> Entry {
        debug_assert!(len <= 24 && group <= MAX_GROUP && group != crate::NO_GROUP);
        Entry(u32::from(len) << GROUP_BITS | group)
    }
    #[inline]
    pub(super) fn child_at(heap: usize) -> Entry {
        Entry(CHILD | heap as u32)
    }
    /// The child's heap, if this leads to one.
    #[inline]
    pub(super) fn child(self) -> Option<usize> {
        (self.0 & CHILD != 0).then_some((self.0 & !CHILD) as usize)
    }
    #[inline]
    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }
    /// The route's group; `NO_GROUP` of no route.
    #[inline]
    pub(super) fn group(self) -> Group {
        self.0 & MAX_GROUP
    }
    /// How many bits into its table the route ends.
    #[inline]
    pub(super) fn len(self) -> u8 {
        (self.0 >> GROUP_BITS) as u8
    }
    /// The group, if this is a route.
    #[inline]
    pub(super) fn route_group(self) -> Option<Group> {
        (!self.is_none()).then(|| self.group())
    }
    /// The bits of both: leads to a child if one of them does.
    #[inline]
    pub(super) fn with(self, other: Entry) -> Entry {
        Entry(self.0 | other.0)
    }
    /// Itself, or else another.
    #[inline]
    pub(super) fn or(self, other: Entry) -> Entry {
        if self.is_none() { other } else { self }
    }
}

/// What the writer and the readers share.
pub(super) struct Heaps<A> {
    words: Words<AtomicU32>,
    /// Uneven while an update stores defaults; see the module above. Kept away from lines
    /// that are never written.
    version: OwnLine<AtomicU64>,
    pub(super) strides: Strides<A>,
    pub(super) domain: Arc<Domain>,
}

#[repr(align(128))]
struct OwnLine<T>(T);

/// Words that are asked for: 4 GiB of addresses, of which only what is written takes memory.
const WANTED: usize = 1 << 30;
/// Words below which it is not worth to go on asking, beside the root.
const FLOOR: usize = 1 << 16;

impl<A: Address> Heaps<A> {
    /// An empty root, in the biggest array that the storage gives.
    pub(super) fn new(
        domain: &Arc<Domain>,
        strides: Strides<A>,
        storage: &dyn Storage,
    ) -> io::Result<Heaps<A>> {
        let floor = strides.levels()[0].words() + FLOOR;
        let mut count = WANTED;
        let words = loop {
            match Words::new(storage, "art heaps", count) {
                Ok(words) => break words,
                Err(_) if count / 2 >= floor => count /= 2,
                Err(error) => return Err(error),
            }
        };
        Ok(Heaps { words, version: OwnLine(AtomicU64::new(0)), strides, domain: domain.clone() })
    }

    #[inline]
    pub(super) fn levels(&self) -> &[Level] {
        self.strides.levels()
    }

    /// All words, for callers that read many.
    #[inline]
    pub(super) fn words(&self) -> &[AtomicU32] {
        &self.words
    }

    /// What a word shows; for the writer.
    #[inline]
    pub(super) fn load_entry(word: &AtomicU32) -> Entry {
        Entry(word.load(Relaxed))
    }

    /// What an index of the array shows; for the writer.
    #[inline]
    pub(super) fn entry_at(&self, index: usize) -> Entry {
        Self::load_entry(&self.words[index])
    }

    /// Stores a word that readers need not see in any order with others.
    #[inline]
    pub(super) fn store_entry(&self, index: usize, entry: Entry) {
        self.words[index].store(entry.0, Relaxed);
        #[cfg(test)]
        super::journal::record_store(super::journal::Store::Word(index, entry.0));
    }

    /// Stores a word through which readers come to others, or leave them.
    #[inline]
    pub(super) fn publish_entry(&self, index: usize, entry: Entry) {
        self.words[index].store(entry.0, Release);
        #[cfg(test)]
        super::journal::record_store(super::journal::Store::Word(index, entry.0));
    }

    /// Adds to the count of a table and returns the sum.
    #[inline]
    pub(super) fn add_count(&self, heap: usize, add: i32) -> u32 {
        let word = &self.words[heap + COUNT];
        let sum = word.load(Relaxed).wrapping_add_signed(add);
        word.store(sum, Relaxed);
        sum
    }

    /// The part that readers load from.
    #[inline]
    pub(super) fn view(&self) -> View<'_> {
        View { words: &self.words, version: &self.version.0 }
    }

    /// Announces that defaults are about to change, if `announced` does not say that they are.
    #[inline]
    pub(super) fn announce_change(&self, announced: &mut bool) {
        if !*announced {
            *announced = true;
            self.bump_version();
            fence(Release); // who reads a default stored after this reads the odd version after it
        }
    }

    /// Ends what was announced, if anything was.
    #[inline]
    pub(super) fn conclude_change(&self, announced: bool) {
        if announced {
            self.bump_version();
        }
    }

    fn bump_version(&self) {
        let version = self.version.0.load(Relaxed) + 1; // only the writer writes it
        self.version.0.store(version, Release);
        #[cfg(test)]
        super::journal::record_store(super::journal::Store::Version(version));
    }
}

/// The heaps as a reader sees them, at hand for a whole lookup.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    words: &'a [AtomicU32],
    version: &'a AtomicU64,
}

impl View<'_> {
    /// What an index shows: if it leads to a child, the child is complete.
    #[inline]
    pub(super) fn word(&self, index: usize) -> Entry {
        Entry(self.words[index].load(Acquire))
    }

    /// The version, before the words it vouches for are read.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// The version, after the words it vouches for were read.
    #[inline]
    pub(super) fn version_after(&self) -> u64 {
        fence(Acquire);
        self.version.load(Relaxed)
    }
}

/// Hands out parts of the array.
pub(super) struct Space {
    /// Words below this have been handed out at least once.
    used: usize,
    capacity: usize,
    /// Free heaps by stride; all their words are zero.
    free: Vec<Vec<u32>>,
    retired: RetireList<Freed>,
    /// Words lost between heaps of different sizes.
    gaps: usize,
}

/// A heap that readers may still be in.
struct Freed {
    heap: u32,
    stride: u8,
    /// Whether other words than the default are left in it.
    is_full: bool,
}

/// Words to a cache line: heaps of this size or more begin on one.
const LINE: usize = 16;
/// Heaps of this stride and above go through their grace period alone: a crowd of them would be
/// a lot of memory.
const BIG: u8 = 12;

impl Space {
    pub(super) fn new<A: Address>(heaps: &Heaps<A>) -> Space {
        let capacity = heaps.words().len().min(CHILD as usize);
        let free = vec![Vec::new(); usize::from(Strides::<A>::MOST) + 1];
        Space {
            used: heaps.levels()[0].words(),
            capacity,
            free,
            retired: RetireList::new(&heaps.domain),
            gaps: 0,
        }
    }

    /// A heap of zeros for a table of this level; none when the array is used up.
    pub(super) fn alloc_heap<A: Address>(&mut self, heaps: &Heaps<A>, level: Level) -> Option<usize> {
        if self.free[usize::from(level.stride)].is_empty() && !self.retired.is_empty() {
            self.collect_retired(heaps);
        }
        match self.free[usize::from(level.stride)].pop() {
            Some(heap) => Some(heap as usize),
            None => self.extend_end(level.words()),
        }
    }

    /// Takes back a heap of zeros that no reader has seen.
    pub(super) fn free_heap(&mut self, heap: usize, level: Level) {
        self.free[usize::from(level.stride)].push(heap as u32);
    }

    /// Takes back a heap that new turns can't reach; `is_full` if more than its default is left in it.
    pub(super) fn retire_heap(&mut self, heap: usize, level: Level, is_full: bool) {
        self.retired.retire(Freed { heap: heap as u32, stride: level.stride, is_full });
        if level.stride >= BIG {
            self.retired.close_batch();
        }
    }

    /// Bytes that were handed out once and now belong to no table.
    pub(super) fn free_bytes(&self, in_use: usize) -> usize {
        self.used * size_of::<u32>() - in_use
    }

    /// Bytes of the lists kept here.
    pub(super) fn side_bytes(&self) -> usize {
        let lists: usize = self.free.iter().map(Vec::capacity).sum();
        lists * size_of::<u32>() + self.retired.len() * size_of::<Freed>()
    }

    /// Bytes lost between heaps of different sizes.
    pub(super) fn gap_bytes(&self) -> usize {
        self.gaps * size_of::<u32>()
    }

    /// Cleans the heaps whose grace period is over.
    fn collect_retired<A: Address>(&mut self, heaps: &Heaps<A>) {
        let free = &mut self.free;
        self.retired.reclaim_ready(|freed| {
            let (heap, words) = (freed.heap as usize, 2 << freed.stride);
            let left = if freed.is_full { words } else { DEFAULT + 1 };
            heaps.words()[heap..heap + left].iter().for_each(|word| word.store(0, Relaxed));
            free[usize::from(freed.stride)].push(freed.heap);
        });
    }

    fn extend_end(&mut self, words: usize) -> Option<usize> {
        let start = self.used.next_multiple_of(words.min(LINE));
        let end = start.checked_add(words).filter(|&end| end <= self.capacity)?;
        self.gaps += start - self.used;
        self.used = end;
        Some(start)
    }
}
