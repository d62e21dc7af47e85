//! From an address to a neighbor's id: a hash table that one changes and any number read without a lock.
//!
//! A slot is one word: 32 bits of the address, and the id. For IPv4 that is the whole address; for IPv6 the
//! id leads to the rest, which is written before the slot. A removed neighbor's slot stays taken until the
//! table is rebuilt, so that those behind it are found; a bigger or cleaner table takes the old one's place
//! by one store.
//!
//! Addresses of a link mostly differ in their last bits only, so these bits are the place of a slot as they
//! are, mixed with a secret that depends on the others: neighbors with successive addresses lie side by side,
//! do not collide with each other, and share cache lines. After a collision the probe goes on in leaps of its
//! own, since places next to a taken one are taken, too.
use super::links::{Links, NeighborId};
use artery_lpm::Address;
use artery_rcu::{Domain, Published, Turn};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Addresses of neighbors, as slots know them.
pub trait Key: Address {
    /// The slots to probe for an address among 2^`bits`. Outsiders cannot foresee which addresses collide.
    fn probe_sequence(self, seed: [u64; 2], bits: u32) -> ProbeSequence;
    /// Whether the neighbor of this id, whose tag is right, has this address.
    fn is_of(self, id: NeighborId, links: &Links) -> bool;
    /// The address as the wider family's.
    fn to_wide(self) -> u128;
    /// The address of which that is the wider one.
    fn from_wide(widened: u128) -> Self;
}

impl Key for u32 {
    #[inline]
    fn probe_sequence(self, seed: [u64; 2], bits: u32) -> ProbeSequence {
        let word = u64::from(self);
        let spread = (word >> bits ^ seed[0]).wrapping_mul(seed[1] | 1);
        let leap = (word ^ seed[1]).wrapping_mul(seed[0] | 1);
        ProbeSequence::new(word, spread, leap, bits, self)
    }
    #[inline]
    fn is_of(self, _: NeighborId, _: &Links) -> bool {
        true
    }
    fn to_wide(self) -> u128 {
        self.into()
    }
    fn from_wide(widened: u128) -> u32 {
        widened as u32
    }
}

impl Key for u128 {
    #[inline]
    fn probe_sequence(self, seed: [u64; 2], bits: u32) -> ProbeSequence {
        let hash = fold_address(self, seed);
        ProbeSequence::new(self as u64, fold_address(self >> bits, seed), hash, bits, hash as u32)
    }
    #[inline]
    fn is_of(self, id: NeighborId, links: &Links) -> bool {
        links.address(id) == self
    }
    fn to_wide(self) -> u128 {
        self
    }
    fn from_wide(widened: u128) -> u128 {
        widened
    }
}

/// A hash of an address.
#[inline]
fn fold_address(address: u128, seed: [u64; 2]) -> u64 {
    let product = u128::from((address >> 64) as u64 ^ seed[0]) * u128::from(address as u64 ^ seed[1]);
    (product as u64 ^ (product >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Where an address may be.
pub struct ProbeSequence {
    /// The slot to look into first.
    at: usize,
    /// Distance from slot to slot. Not even, so that the probe visits all slots.
    leap: usize,
    /// The part of the address that is in its slot.
    tag: u32,
}

impl ProbeSequence {
    /// By the last bits of an address, and by the first ones of two hashes: of its other bits, and of all.
    #[inline]
    fn new(last: u64, spread: u64, leap: u64, bits: u32, tag: u32) -> ProbeSequence {
        let at = last & ((1 << bits) - 1) ^ spread >> (u64::BITS - bits);
        ProbeSequence { at: at as usize, leap: (leap >> 32) as usize | 1, tag }
    }
}

/// No neighbor was ever here.
const EMPTY: u64 = 0;
/// A neighbor was here.
const REMOVED: u64 = 1;
/// Ids in slots begin behind those two.
const FIRST: u64 = 2;
const FEWEST_SLOTS: usize = 64;

/// The slots as of some time.
struct Slots {
    seed: [u64; 2],
    /// The slots; their number is a power of two.
    slots: Box<[AtomicU64]>,
    /// Number of slots as a power of two.
    bits: u32,
}

impl Slots {
    fn new(count: usize, seed: [u64; 2]) -> Slots {
        let count = count.next_power_of_two().max(FEWEST_SLOTS);
        let slots = std::iter::repeat_with(|| AtomicU64::new(EMPTY)).take(count).collect();
        Slots { seed, slots, bits: count.trailing_zeros() }
    }
}

/// The index, for workers.
pub struct NeighborReader<A> {
    slots: Arc<Published<Arc<Slots>>>,
    links: Arc<Links>,
    address: PhantomData<A>,
}

impl<A> Clone for NeighborReader<A> {
    fn clone(&self) -> NeighborReader<A> {
        NeighborReader { slots: self.slots.clone(), links: self.links.clone(), address: PhantomData }
    }
}

impl<A: Key> NeighborReader<A> {
    /// The neighbor of this address, if it has an entry.
    #[inline]
    pub fn find_neighbor(&self, turn: &Turn<'_>, address: A) -> Option<NeighborId> {
        self.slots.read(turn).find_slot(address, &self.links).map(|(_, id)| id)
    }

    /// The index as it is in this turn, for many searches.
    #[inline]
    pub(crate) fn searches_at<'t>(&'t self, turn: &'t Turn<'_>) -> Searches<'t, A> {
        Searches { slots: self.slots.read(turn), links: &self.links, address: PhantomData }
    }
}

/// Searches in two steps: a caller that takes the first for many addresses, then the second, waits for the
/// memory of all at once.
pub(crate) struct Searches<'t, A> {
    slots: &'t Slots,
    links: &'t Links,
    address: PhantomData<A>,
}

/// A search after its first step.
#[derive(Clone, Copy, Default)]
pub(crate) struct Begun {
    tag: u32,
    slot: u64,
}

impl<A: Key> Searches<'_, A> {
    /// Loads the slot where the search for an address begins.
    #[inline]
    pub(crate) fn begin_search(&self, address: A) -> Begun {
        let trail = address.probe_sequence(self.slots.seed, self.slots.bits);
        let slot = self.slots.slots.get(trail.at).map_or(EMPTY, |slot| slot.load(Acquire));
        Begun { tag: trail.tag, slot }
    }

    /// The neighbor of this address, if it has an entry.
    #[inline]
    pub(crate) fn end_search(&self, address: A, begun: Begun) -> Option<NeighborId> {
        match id_in(begun.slot, begun.tag) {
            Some(id) if address.is_of(id, self.links) => Some(id),
            _ if begun.slot == EMPTY => None,
            _ => self.slots.find_slot(address, self.links).map(|(_, id)| id),
        }
    }
}

impl Slots {
    /// Where a neighbor's slot is, and its id.
    #[inline]
    fn find_slot<A: Key>(&self, address: A, links: &Links) -> Option<(usize, NeighborId)> {
        let ProbeSequence { mut at, leap, tag } = address.probe_sequence(self.seed, self.bits);
        // A walk ends at an empty slot; it never comes round, since never more than three quarters are taken.
        loop {
            let slot = self.slots.get(at)?.load(Acquire);
            if let Some(id) = id_in(slot, tag).filter(|id| address.is_of(*id, links)) {
                return Some((at, id));
            }
            if slot == EMPTY {
                return None;
            }
            at = at.wrapping_add(leap) & (self.slots.len() - 1);
        }
    }

    /// Puts a neighbor into the first empty slot on its trail; there is one.
    fn insert_slot<A: Key>(&self, address: A, id: NeighborId) {
        let ProbeSequence { mut at, leap, tag } = address.probe_sequence(self.seed, self.bits);
        while self.slots[at].load(Relaxed) != EMPTY {
            at = at.wrapping_add(leap) & (self.slots.len() - 1);
        }
        let slot = u64::from(tag) << 32 | (u64::from(id.number()) + FIRST);
        self.slots[at].store(slot, Release);
    }
}

/// The id in a slot of this tag.
#[inline]
fn id_in(slot: u64, tag: u32) -> Option<NeighborId> {
    let number = u64::from(slot as u32).checked_sub(FIRST)?;
    ((slot >> 32) as u32 == tag).then(|| NeighborId::new(number as u32))
}

/// The index, for the thread that changes it.
pub struct NeighborIndex<A> {
    reader: NeighborReader<A>,
    slots: Arc<Slots>,
    /// Slots that are not empty, and how many of them hold a neighbor.
    taken: usize,
    live: usize,
}

impl<A: Key> NeighborIndex<A> {
    /// An empty one. The seed should be a secret: anyone who knows it can make neighbors collide.
    pub fn new(domain: &Arc<Domain>, links: &Arc<Links>, seed: [u64; 2]) -> NeighborIndex<A> {
        let slots = Arc::new(Slots::new(FEWEST_SLOTS, seed));
        let published = Arc::new(Published::new(domain, slots.clone()));
        let reader = NeighborReader { slots: published, links: links.clone(), address: PhantomData };
        NeighborIndex { reader, slots, taken: 0, live: 0 }
    }

    /// A reader of the index for a worker.
    pub fn reader(&self) -> NeighborReader<A> {
        self.reader.clone()
    }
    /// How many neighbors are here.
    pub fn len(&self) -> usize {
        self.live
    }
    /// Whether the index has no neighbors.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Adds a neighbor that is not here. From now on workers find it.
    pub fn add_neighbor(&mut self, address: A, id: NeighborId) {
        if 4 * (self.taken + 1) > 3 * self.slots.slots.len() {
            self.rebuild_slots();
        }
        self.reader.links.set_address(id, address.to_wide());
        self.slots.insert_slot(address, id);
        self.taken += 1;
        self.live += 1;
    }

    /// Removes a neighbor. Workers may know its id until their turns end.
    pub fn remove(&mut self, address: A) -> Option<NeighborId> {
        let (at, id) = self.slots.find_slot(address, &self.reader.links)?;
        self.slots.slots[at].store(REMOVED, Release);
        self.live -= 1;
        Some(id)
    }

    /// Publishes slots of which at most half are taken: few enough for short walks, and no more
    /// memory than that takes.
    fn rebuild_slots(&mut self) {
        let anew = Slots::new(self.live * 2 + 1, self.slots.seed);
        for slot in &self.slots.slots {
            let slot = slot.load(Relaxed);
            if let Some(id) = id_in(slot, (slot >> 32) as u32) {
                anew.insert_slot(A::from_wide(self.reader.links.address(id)), id);
            }
        }
        self.slots = Arc::new(anew);
        self.taken = self.live;
        self.reader.slots.publish(self.slots.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_storage::Pages;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::collections::hash_map::Entry;

    fn is_a_map<A: Key>(changes: Vec<(u8, u16)>, address: impl Fn(u16) -> A) {
        let domain = Domain::new();
        let links = Arc::new(Links::new(&Pages, 1 << 16).unwrap());
        let mut index = NeighborIndex::new(&domain, &links, [1, 2]);
        let (reader, mut turns, mut model) = (index.reader(), domain.reader(), HashMap::new());
        for (step, (action, n)) in changes.into_iter().enumerate() {
            if action % 3 == 0 {
                assert_eq!(index.remove(address(n)), model.remove(&n));
            } else if let Entry::Vacant(place) = model.entry(n) {
                // An id once used means its old address until a grace period is over.
                index.add_neighbor(address(n), *place.insert(NeighborId::new(step as u32)));
            }
            let turn = turns.turn();
            for n in [n, n ^ 1] {
                assert_eq!(reader.find_neighbor(&turn, address(n)), model.get(&n).copied());
            }
        }
        assert_eq!(index.len(), model.len());
        let turn = turns.turn();
        assert!((0..1000).all(|n| reader.find_neighbor(&turn, address(n)) == model.get(&n).copied()));
    }

    proptest! {
        #[test]
        fn it_is_a_map(changes in prop::collection::vec((any::<u8>(), 0..1000u16), 1..3000)) {
            is_a_map(changes.clone(), |n| 0x0a00_0000 + u32::from(n));
            is_a_map(changes, |n| 0xfe80_u128 << 112 | u128::from(n % 7) << 64 | u128::from(n));
        }
    }

    #[test]
    fn a_reader_never_misses_a_neighbor_that_stays() {
        let domain = Domain::new();
        let links = Arc::new(Links::new(&Pages, 1 << 16).unwrap());
        let mut index = NeighborIndex::<u32>::new(&domain, &links, [5, 6]);
        index.add_neighbor(7, NeighborId::new(60_000));
        let (reader, mut turns) = (index.reader(), domain.reader());
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    assert_eq!(reader.find_neighbor(&turns.turn(), 7), Some(NeighborId::new(60_000)));
                }
                turns.park();
            });
            for round in 0..20u32 {
                (0..1000).for_each(|n| index.add_neighbor(1000 + n, NeighborId::new(n + round * 1000)));
                (0..1000).for_each(|n| assert!(index.remove(1000 + n).is_some()));
            }
            is_over.store(true, Relaxed);
        });
    }

    /// How many slots are looked into to find this address.
    fn steps<A: Key>(slots: &Slots, links: &Links, address: A) -> usize {
        let ProbeSequence { at, leap, .. } = address.probe_sequence(slots.seed, slots.bits);
        let found = slots.find_slot(address, links).unwrap().0;
        let trail =
            (0..).map(|step: usize| at.wrapping_add(step.wrapping_mul(leap)) & (slots.slots.len() - 1));
        1 + trail.take_while(|at| *at != found).count()
    }

    #[test]
    fn successive_addresses_meet_nobody_and_others_among_them_are_found_in_few_steps() {
        let domain = Domain::new();
        let links = Arc::new(Links::new(&Pages, 1 << 17).unwrap());
        let mut index =
            NeighborIndex::<u32>::new(&domain, &links, [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344]);
        let block = (0..30_000).map(|n| 0x0a40_8000 + n);
        let others = (0..8_000).map(|n| 0xc000_0000 + n * 65_537);
        (0..)
            .zip(block.clone().chain(others.clone()))
            .for_each(|(id, a)| index.add_neighbor(a, NeighborId::new(id)));
        let mean = |addresses: &mut dyn Iterator<Item = u32>| {
            let steps: Vec<usize> = addresses.map(|a| steps(&index.slots, &links, a)).collect();
            steps.iter().sum::<usize>() as f64 / steps.len() as f64
        };
        let (alone, among) = (mean(&mut block.clone()), mean(&mut others.clone()));
        assert!(alone < 1.5 && among < 3.5, "{alone}, {among}");
    }
}
