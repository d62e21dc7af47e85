//! Lookups on other threads; the module above says why their answers are right.
use super::heaps::{COUNT, DEFAULT, Entry, Heaps, ROOT, View};
use super::strides::{Level, Strides, on_levels};
use crate::address::Address;
use crate::runs::Group;
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
        self.view_at(turn).lookup(address)
    }

    /// The table for the rest of a turn, for callers that look many addresses up one by one: it costs less
    /// than [`lookup`](Self::lookup) with the turn for each.
    ///
    /// # Panics
    /// When the turn is not one of the table's domain.
    #[inline]
    pub fn view_at<'a>(&'a self, turn: &'a Turn<'_>) -> ArtView<'a, A> {
        self.check_turn(turn);
        ArtView { view: self.heaps.view(), strides: &self.heaps.strides }
    }

    /// Looks up many addresses, into as many groups.
    ///
    /// # Panics
    /// When the turn is not one of the table's domain, or the slices differ in length.
    pub fn lookup_batch(&self, turn: &Turn<'_>, addresses: &[A], groups: &mut [Group]) {
        self.check_turn(turn);
        assert_eq!(addresses.len(), groups.len(), "a group for each address");
        let view = self.heaps.view();
        let (addresses, rest) = addresses.as_chunks::<TOGETHER>();
        let (groups, groups_of_rest) = groups.as_chunks_mut::<TOGETHER>();
        for (addresses, groups) in addresses.iter().zip(groups) {
            let found = longest_of_many(&view, self.heaps.levels(), addresses);
            *groups = found.map(Entry::group);
        }
        for (address, group) in rest.iter().zip(groups_of_rest) {
            *group = longest_match(&view, self.heaps.levels(), *address).group();
        }
    }

    #[inline]
    fn check_turn(&self, turn: &Turn<'_>) {
        assert!(turn.is_of(&self.heaps.domain), "a turn of another domain");
    }
}

/// A table during a turn: where its heaps are, so that no lookup needs to find them.
#[derive(Clone, Copy)]
pub struct ArtView<'a, A> {
    view: View<'a>,
    strides: &'a Strides<A>,
}

impl<A: Address> ArtView<'_, A> {
    /// The group of the longest prefix that contains the address, [`NO_GROUP`](crate::NO_GROUP) if none does.
    #[inline]
    pub fn lookup(&self, address: A) -> Group {
        on_levels!(self.strides, levels => longest_match(&self.view, levels, address)).group()
    }
}

/// Descents that are under way at the same time in a batch.
const TOGETHER: usize = 16;

/// What a lookup reads: the heaps, or a test's picture of them.
pub(super) trait Memory {
    /// A word, with what was stored before it if it leads to a child.
    fn load_word(&self, index: usize) -> Entry;
    /// The version, before the words that it is to vouch for.
    fn load_version(&self) -> u64;
    /// The version, after them.
    fn version_after(&self) -> u64;
}

impl Memory for View<'_> {
    #[inline]
    fn load_word(&self, index: usize) -> Entry {
        self.word(index)
    }
    #[inline]
    fn load_version(&self) -> u64 {
        self.version()
    }
    #[inline]
    fn version_after(&self) -> u64 {
        self.version_after()
    }
}

/// The word of the longest match, as a reader finds it.
///
/// Whether a slot is empty can't be foreseen, and waiting for it would keep the processor from the next
/// lookup. So defaults are read on the way, chosen without a branch, and vouched for whether they are needed
/// or not. Always inlined, since it is twice as fast where the levels are constants.
#[inline(always)]
pub(super) fn longest_match<A: Address>(memory: &impl Memory, levels: &[Level], address: A) -> Entry {
    let version = memory.load_version();
    let (slot, default) = descend_to_slot(memory, levels, address);
    if memory.version_after() == version {
        return slot.or(default);
    }
    if slot.is_none() { longest_by_default(memory, levels, address) } else { slot }
}

/// The same for many addresses: all take a step before one takes the next.
#[inline]
pub(super) fn longest_of_many<A: Address, const N: usize>(
    memory: &impl Memory,
    levels: &[Level],
    addresses: &[A; N],
) -> [Entry; N] {
    let version = memory.load_version();
    let mut slots = [Entry::child_at(ROOT); N];
    let mut defaults = [Entry::NONE; N];
    for level in levels {
        let mut all = Entry::NONE;
        for lane in 0..N {
            // Lanes that are through read the root's count for nothing.
            let child = slots[lane].child();
            let (default, slot) = match child {
                Some(heap) => (heap + DEFAULT, heap + level.slot_index(addresses[lane])),
                None => (ROOT + COUNT, ROOT + COUNT),
            };
            let (default, slot) = (memory.load_word(default), memory.load_word(slot));
            if child.is_some() {
                defaults[lane] = default.or(defaults[lane]);
                slots[lane] = slot;
            }
            all = all.with(slots[lane]);
        }
        if all.child().is_none() {
            break;
        }
    }
    let is_good = memory.version_after() == version;
    std::array::from_fn(|lane| match slots[lane] {
        slot if is_good => slot.or(defaults[lane]),
        Entry::NONE => longest_by_default(memory, levels, addresses[lane]),
        slot => slot,
    })
}

/// The longest match of an address whose slot was empty, tried until the version is the
/// same before and after.
#[cold]
fn longest_by_default<A: Address>(memory: &impl Memory, levels: &[Level], address: A) -> Entry {
    loop {
        let version = memory.load_version();
        let (slot, default) = descend_to_slot(memory, levels, address);
        if !slot.is_none() {
            return slot;
        }
        if memory.version_after() == version {
            return default;
        }
        std::hint::spin_loop();
    }
}

/// Goes down to a slot that leads no further; returns it and the last default on the way.
#[inline(always)]
fn descend_to_slot<A: Address>(memory: &impl Memory, levels: &[Level], address: A) -> (Entry, Entry) {
    let (mut heap, mut best) = (ROOT, Entry::NONE);
    for level in levels {
        best = memory.load_word(heap + DEFAULT).or(best);
        let slot = memory.load_word(heap + level.slot_index(address));
        match slot.child() {
            Some(child) => heap = child,
            None => return (slot, best),
        }
    }
    unreachable!("slots of the last level have no children")
}
