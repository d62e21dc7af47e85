//! Lookups on other threads; the module above says why their answers are right.
use super::heaps::{DEFAULT, Entry, Heaps, ROOT};
use super::strides::Level;
use crate::{Address, Group};
use artery_rcu::Turn;
use std::sync::Arc;

/// A reader's half of an [`Art`](super::Art), for any thread.
pub struct ArtReader<A> {
    heaps: Arc<Heaps<A>>,
}

impl<A> Clone for ArtReader<A> {
    fn clone(&self) -> ArtReader<A> {
        ArtReader { heaps: self.heaps.clone() }
    }
}

impl<A: Address> ArtReader<A> {
    pub(super) fn new(heaps: &Arc<Heaps<A>>) -> ArtReader<A> {
        ArtReader { heaps: heaps.clone() }
    }

    /// The group of the longest prefix that contains the address, [`NO_GROUP`](crate::NO_GROUP) if none does.
    ///
    /// # Panics
    /// When the turn is not one of the table's domain.
    #[inline]
    pub fn lookup(&self, turn: &Turn<'_>, address: A) -> Group {
        self.check(turn);
        longest(&*self.heaps, self.heaps.levels(), address).group()
    }

    /// Looks up many addresses, into as many groups.
    ///
    /// # Panics
    /// When the turn is not one of the table's domain, or the slices differ in length.
    pub fn lookup_batch(&self, turn: &Turn<'_>, addresses: &[A], groups: &mut [Group]) {
        self.check(turn);
        assert_eq!(addresses.len(), groups.len(), "a group for each address");
        for (addresses, groups) in addresses.chunks(TOGETHER).zip(groups.chunks_mut(TOGETHER)) {
            self.lookup_together(addresses, groups);
        }
    }

    fn lookup_together(&self, addresses: &[A], groups: &mut [Group]) {
        for (address, group) in addresses.iter().zip(groups) {
            *group = longest(&*self.heaps, self.heaps.levels(), *address).group();
        }
    }

    #[inline]
    fn check(&self, turn: &Turn<'_>) {
        assert!(turn.is_of(&self.heaps.domain), "a turn of another domain");
    }
}

/// Descents that are under way at the same time.
const TOGETHER: usize = 16;

/// What a lookup reads: the heaps, or a test's picture of them.
pub(super) trait Memory {
    /// A word, with what was stored before it if it leads to a child.
    fn word(&self, index: usize) -> Entry;
    /// The version, before the words that it is to vouch for.
    fn version(&self) -> u64;
    /// The version, after them.
    fn version_after(&self) -> u64;
}

impl<A: Address> Memory for Heaps<A> {
    #[inline]
    fn word(&self, index: usize) -> Entry {
        self.followed(index)
    }
    #[inline]
    fn version(&self) -> u64 {
        self.version()
    }
    #[inline]
    fn version_after(&self) -> u64 {
        self.version_after()
    }
}

/// The word of the longest match, as a reader finds it.
#[inline]
pub(super) fn longest<A: Address>(memory: &impl Memory, levels: &[Level], address: A) -> Entry {
    let mut heap = ROOT;
    for level in levels {
        let entry = memory.word(heap + level.slot(address));
        match entry.child() {
            Some(child) => heap = child,
            None if entry.is_none() => break,
            None => return entry,
        }
    }
    longest_by_default(memory, levels, address)
}

/// The same for an address whose slot was empty: tries until the defaults on the way are seen as they were at one
/// moment.
fn longest_by_default<A: Address>(memory: &impl Memory, levels: &[Level], address: A) -> Entry {
    loop {
        let version = memory.version();
        let is_quiet = version.is_multiple_of(2);
        let found =
            if is_quiet { descend(memory, levels, address) } else { descend_twice(memory, levels, address) };
        match found {
            Found::Route(entry) => return entry,
            Found::Default(entry) if memory.version_after() == version => return entry,
            _ => std::hint::spin_loop(),
        }
    }
}

/// Where a descent ended.
enum Found {
    /// At a route in the fringe.
    Route(Entry),
    /// At an empty slot, with the last default on the way.
    Default(Entry),
    /// Nowhere: the way has changed meanwhile.
    Changed,
}

#[inline]
fn descend<A: Address>(memory: &impl Memory, levels: &[Level], address: A) -> Found {
    descend_noting(memory, levels, address, |_, _| {})
}

/// Descends, and once more to see whether the way is still the same.
#[cold]
fn descend_twice<A: Address>(memory: &impl Memory, levels: &[Level], address: A) -> Found {
    let mut way = [(Entry::NONE, Entry::NONE); MOST_LEVELS];
    let mut places = way.iter_mut();
    let first = descend_noting(memory, levels, address, |default, slot| {
        if let Some(place) = places.next() {
            *place = (default, slot);
        }
    });
    if matches!(first, Found::Route(_)) {
        return first;
    }
    let mut is_same = true;
    let mut places = way.iter();
    let second = descend_noting(memory, levels, address, |default, slot| {
        is_same &= places.next() == Some(&(default, slot));
    });
    match second {
        Found::Default(_) if is_same => first,
        Found::Default(_) => Found::Changed,
        _ => second,
    }
}

/// Levels of strides of one bit in the longest addresses.
const MOST_LEVELS: usize = 128;

/// Descends and tells each level's default and slot, read in this order.
#[inline]
fn descend_noting<A: Address>(
    memory: &impl Memory,
    levels: &[Level],
    address: A,
    mut note: impl FnMut(Entry, Entry),
) -> Found {
    let (mut heap, mut best) = (ROOT, Entry::NONE);
    for level in levels {
        let default = memory.word(heap + DEFAULT);
        let slot = memory.word(heap + level.slot(address));
        note(default, slot);
        best = default.or(best);
        match slot.child() {
            Some(child) => heap = child,
            None if slot.is_none() => break,
            None => return Found::Route(slot),
        }
    }
    Found::Default(best)
}
