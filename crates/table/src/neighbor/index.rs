//! From an address to a neighbor's id: a hash table that one changes and any number read without a lock.
//!
//! A slot is one word: 32 bits of the address, and the id. For IPv4 that is the whole address; for IPv6 the id leads to
//! the rest, which is written before the slot. A removed neighbor's slot stays taken until the table is made anew,
//! so that those behind it are found; a bigger or cleaner table takes the old one's place by one store.
use super::links::{Links, NeighborId};
use crate::Address;
use artery_rcu::{Domain, Published, Turn};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Addresses of neighbors, as slots know them.
pub trait Key: Address {
    /// A hash that nobody outside can foresee.
    fn hash(self, seed: [u64; 2]) -> u64;
    /// The part of the address that is in the slot.
    fn tag(self, hash: u64) -> u32;
    /// Whether the neighbor of this id, whose tag is right, has this address.
    fn is_of(self, id: NeighborId, links: &Links) -> bool;
    /// The address as the wider family's.
    fn widened(self) -> u128;
    /// The address of which that is the wider one.
    fn narrowed(widened: u128) -> Self;
}

impl Key for u32 {
    #[inline]
    fn hash(self, seed: [u64; 2]) -> u64 {
        (u64::from(self) ^ seed[0]).wrapping_mul(seed[1] | 1)
    }
    #[inline]
    fn tag(self, _: u64) -> u32 {
        self
    }
    #[inline]
    fn is_of(self, _: NeighborId, _: &Links) -> bool {
        true
    }
    fn widened(self) -> u128 {
        self.into()
    }
    fn narrowed(widened: u128) -> u32 {
        widened as u32
    }
}

impl Key for u128 {
    #[inline]
    fn hash(self, seed: [u64; 2]) -> u64 {
        let product = u128::from((self >> 64) as u64 ^ seed[0]) * u128::from(self as u64 ^ seed[1]);
        (product as u64 ^ (product >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
    #[inline]
    fn tag(self, hash: u64) -> u32 {
        hash as u32
    }
    #[inline]
    fn is_of(self, id: NeighborId, links: &Links) -> bool {
        links.address(id) == self
    }
    fn widened(self) -> u128 {
        self
    }
    fn narrowed(widened: u128) -> u128 {
        widened
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
    slots: Box<[AtomicU64]>,
    /// How far a hash is shifted to be a place.
    shift: u32,
}

impl Slots {
    fn new(count: usize, seed: [u64; 2]) -> Slots {
        let count = count.next_power_of_two().max(FEWEST_SLOTS);
        let slots = std::iter::repeat_with(|| AtomicU64::new(EMPTY)).take(count).collect();
        Slots { seed, slots, shift: 64 - count.trailing_zeros() }
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
    pub fn find(&self, turn: &Turn<'_>, address: A) -> Option<NeighborId> {
        self.slots.read(turn).find(address, &self.links).map(|(_, id)| id)
    }

    /// The slot where the search for an address begins, to be [looked into](Self::find_from) later. Who does so for many
    /// addresses first waits for the memory of all of them at once.
    #[inline]
    pub(crate) fn first_slot(&self, turn: &Turn<'_>, address: A) -> u64 {
        let slots = self.slots.read(turn);
        let at = (address.hash(slots.seed) >> slots.shift) as usize;
        slots.slots.get(at).map_or(EMPTY, |slot| slot.load(Acquire))
    }

    /// The same as [`find`](Self::find), of an address whose first slot was read in this turn.
    #[inline]
    pub(crate) fn find_from(&self, turn: &Turn<'_>, address: A, first: u64) -> Option<NeighborId> {
        let tag = address.tag(address.hash(self.slots.read(turn).seed));
        match id_in(first, tag) {
            Some(id) if address.is_of(id, &self.links) => Some(id),
            _ if first == EMPTY => None,
            _ => self.find(turn, address),
        }
    }
}

impl Slots {
    /// Where a neighbor's slot is, and its id.
    #[inline]
    fn find<A: Key>(&self, address: A, links: &Links) -> Option<(usize, NeighborId)> {
        let hash = address.hash(self.seed);
        let tag = address.tag(hash);
        let mut at = (hash >> self.shift) as usize;
        // A walk ends at an empty slot; it never comes round, since never more than three quarters are taken.
        loop {
            let slot = self.slots.get(at)?.load(Acquire);
            if let Some(id) = id_in(slot, tag).filter(|id| address.is_of(*id, links)) {
                return Some((at, id));
            }
            if slot == EMPTY {
                return None;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Puts a neighbor into the first empty slot; there is one.
    fn put<A: Key>(&self, address: A, id: NeighborId) {
        let hash = address.hash(self.seed);
        let mut at = (hash >> self.shift) as usize;
        while self.slots[at].load(Relaxed) != EMPTY {
            at = (at + 1) & (self.slots.len() - 1);
        }
        let slot = u64::from(address.tag(hash)) << 32 | (u64::from(id.number()) + FIRST);
        self.slots[at].store(slot, Release);
    }
}

/// The id in a slot of this tag.
#[inline]
fn id_in(slot: u64, tag: u32) -> Option<NeighborId> {
    let number = u64::from(slot as u32).checked_sub(FIRST)?;
    ((slot >> 32) as u32 == tag).then(|| NeighborId::new(number as u32))
}

/// The index, for the one who changes it.
pub struct NeighborIndex<A> {
    reader: NeighborReader<A>,
    slots: Arc<Slots>,
    /// Slots that are not empty, and how many of them hold a neighbor.
    taken: usize,
    live: usize,
}

impl<A: Key> NeighborIndex<A> {
    /// An empty one. The seed should be a secret: who knows it can make neighbors collide.
    pub fn new(domain: &Arc<Domain>, links: &Arc<Links>, seed: [u64; 2]) -> NeighborIndex<A> {
        let slots = Arc::new(Slots::new(FEWEST_SLOTS, seed));
        let published = Arc::new(Published::new(domain, slots.clone()));
        let reader = NeighborReader { slots: published, links: links.clone(), address: PhantomData };
        NeighborIndex { reader, slots, taken: 0, live: 0 }
    }

    /// For workers.
    pub fn reader(&self) -> NeighborReader<A> {
        self.reader.clone()
    }
    /// How many neighbors are here.
    pub fn len(&self) -> usize {
        self.live
    }
    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Adds a neighbor that is not here. From now on workers find it.
    pub fn add(&mut self, address: A, id: NeighborId) {
        if 4 * (self.taken + 1) > 3 * self.slots.slots.len() {
            self.make_anew();
        }
        self.reader.links.set_address(id, address.widened());
        self.slots.put(address, id);
        self.taken += 1;
        self.live += 1;
    }

    /// Removes a neighbor. Workers may know its id until their turns end.
    pub fn remove(&mut self, address: A) -> Option<NeighborId> {
        let (at, id) = self.slots.find(address, &self.reader.links)?;
        self.slots.slots[at].store(REMOVED, Release);
        self.live -= 1;
        Some(id)
    }

    /// Publishes slots of which at most half are taken: few enough for short walks, and no more memory than that takes.
    fn make_anew(&mut self) {
        let anew = Slots::new(self.live * 2 + 1, self.slots.seed);
        for slot in &self.slots.slots {
            let slot = slot.load(Relaxed);
            if let Some(id) = id_in(slot, (slot >> 32) as u32) {
                anew.put(A::narrowed(self.reader.links.address(id)), id);
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
    use crate::Pages;
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
                index.add(address(n), *place.insert(NeighborId::new(step as u32)));
            }
            let turn = turns.turn();
            for n in [n, n ^ 1] {
                assert_eq!(reader.find(&turn, address(n)), model.get(&n).copied());
            }
        }
        assert_eq!(index.len(), model.len());
        let turn = turns.turn();
        assert!((0..1000).all(|n| reader.find(&turn, address(n)) == model.get(&n).copied()));
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
        index.add(7, NeighborId::new(60_000));
        let (reader, mut turns) = (index.reader(), domain.reader());
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    assert_eq!(reader.find(&turns.turn(), 7), Some(NeighborId::new(60_000)));
                }
                turns.park();
            });
            for round in 0..20u32 {
                (0..1000).for_each(|n| index.add(1000 + n, NeighborId::new(n + round * 1000)));
                (0..1000).for_each(|n| assert!(index.remove(1000 + n).is_some()));
            }
            is_over.store(true, Relaxed);
        });
    }
}
