//! The link layer of the split design: the neighbors of one interface and one address family.
//!
//! A table has a lock for readers and writers, and so has each entry. A holder of a reference may keep
//! an entry without any lock: its flags show whether the link address may still be used, as unlinking
//! takes them away first.

use super::lock::{Locks, Shared};
use super::network::{MOST_HELD, Mac, Packet};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::*};

/// The link address may be used. It shares a word with that, so that both are read at once.
const VALID: u64 = 1 << 48;
/// The entry is static and must not be overwritten.
const STATIC: u64 = 1 << 49;
/// It is out of the table and waits for the last reference.
const DELETED: u64 = 1 << 50;

pub(super) struct Lle<L: Locks> {
    word: AtomicU64,
    held: L::Rw<VecDeque<Packet>>,
}

impl<L: Locks> Lle<L> {
    fn new() -> Lle<L> {
        Lle { word: AtomicU64::new(0), held: L::Rw::new(VecDeque::new()) }
    }

    /// The link address, if it may be used; for those who keep a reference.
    #[inline]
    pub(super) fn mac(&self) -> Option<Mac> {
        let word = self.word.load(Acquire);
        (word & (VALID | DELETED) == VALID).then(|| Mac::from_bits(word))
    }

    /// Whether it is out of its table: another entry may stand for the neighbor.
    pub(super) fn is_deleted(&self) -> bool {
        self.word.load(Acquire) & DELETED != 0
    }

    /// Keeps a packet until the address is known, unless it is by now.
    fn hold(&self, packet: Packet) -> Option<Mac> {
        self.held.write(|held| {
            if let Some(mac) = self.mac() {
                return Some(mac);
            }
            if held.len() == MOST_HELD {
                held.pop_front();
            }
            held.push_back(packet);
            None
        })
    }

    fn learn(&self, mac: Mac) -> Vec<Packet> {
        self.held.write(|held| {
            let word = self.word.load(Relaxed);
            if word & (STATIC | DELETED) != 0 {
                return Vec::new();
            }
            self.word.store(mac.bits() | VALID, Release);
            std::mem::take(held).into()
        })
    }

    fn delete(&self) {
        self.held.write(|held| {
            self.word.store(DELETED, Release);
            held.clear();
        });
    }
}

/// An address of some family.
pub(super) trait Key: Copy + Eq {
    /// What is hashed of it.
    fn word(self) -> u64;
}

impl Key for u32 {
    fn word(self) -> u64 {
        self.into()
    }
}

/// A hash for one table: its seed is not known outside.
#[derive(Clone, Copy)]
struct Seed(u64);

impl Seed {
    fn random() -> Seed {
        Seed(RandomState::new().hash_one(0))
    }
    /// The two halves of a product depend on all bits of the word.
    #[inline]
    fn hash(self, key: impl Key) -> u64 {
        let product = u128::from(key.word() ^ self.0) * 0x9e37_79b9_7f4a_7c15;
        product as u64 ^ (product >> 64) as u64
    }
}

type Neighbor<L, K> = (K, <L as Locks>::Ref<Lle<L>>);

/// Neighbors by the hash of their address.
struct Buckets<L: Locks, K> {
    lists: Vec<Vec<Neighbor<L, K>>>,
    count: usize,
}

/// See the module; `K` is an address of the family.
pub(super) struct Lltable<L: Locks, K> {
    seed: Seed,
    buckets: L::Rw<Buckets<L, K>>,
}

impl<L: Locks, K: Key> Lltable<L, K> {
    pub(super) fn new() -> Lltable<L, K> {
        let lists = (0..32).map(|_| Vec::new()).collect();
        Lltable { seed: Seed::random(), buckets: L::Rw::new(Buckets { lists, count: 0 }) }
    }

    /// The link address for a packet; it is held where that is not known.
    #[inline]
    pub(super) fn resolve(&self, address: K, packet: Packet) -> Option<Mac> {
        let hash = self.seed.hash(address);
        let known = self.buckets.read(|buckets| {
            let lle = buckets.find(hash, address)?;
            lle.held.read(|_| lle.mac())
        });
        known.or_else(|| self.refer(address).hold(packet))
    }

    /// A reference to a neighbor, which gets an entry if it has none.
    pub(super) fn refer(&self, address: K) -> L::Ref<Lle<L>> {
        let hash = self.seed.hash(address);
        if let Some(known) = self.buckets.read(|buckets| buckets.find(hash, address).cloned()) {
            return known;
        }
        self.buckets.write(|buckets| {
            // An entry that is there beats one that comes.
            if let Some(known) = buckets.find(hash, address) {
                return known.clone();
            }
            let new = L::share(Lle::new());
            buckets.add(hash, address, new.clone(), self.seed);
            new
        })
    }

    /// A neighbor says its address; returns what was held for it.
    pub(super) fn learn(&self, address: K, mac: Mac) -> Vec<Packet> {
        self.refer(address).learn(mac)
    }

    pub(super) fn forget(&self, address: K) -> bool {
        let hash = self.seed.hash(address);
        let gone = self.buckets.write(|buckets| buckets.remove(hash, address));
        gone.inspect(|lle| lle.delete()).is_some()
    }

    /// Forgets those neighbors, and says how many.
    pub(super) fn forget_all(&self, is_meant: impl Fn(&K) -> bool) -> usize {
        self.buckets.write(|buckets| {
            let before = buckets.count;
            for list in &mut buckets.lists {
                list.retain(|(address, lle)| {
                    let goes = is_meant(address);
                    if goes {
                        lle.delete();
                        buckets.count -= 1;
                    }
                    !goes
                });
            }
            before - buckets.count
        })
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.buckets.read(|buckets| buckets.count)
    }
}

impl<L: Locks, K: Key> Buckets<L, K> {
    fn place(&self, hash: u64) -> usize {
        hash as usize & (self.lists.len() - 1)
    }

    #[inline]
    fn find(&self, hash: u64, address: K) -> Option<&L::Ref<Lle<L>>> {
        let list = &self.lists[self.place(hash)];
        list.iter().find(|(other, _)| *other == address).map(|(_, lle)| lle)
    }

    fn add(&mut self, hash: u64, address: K, lle: L::Ref<Lle<L>>, seed: Seed) {
        let place = self.place(hash);
        self.lists[place].push((address, lle));
        self.count += 1;
        if self.count > self.lists.len() {
            let lists = (0..2 * self.lists.len()).map(|_| Vec::new()).collect();
            for neighbor in std::mem::replace(&mut self.lists, lists).into_iter().flatten() {
                let place = self.place(seed.hash(neighbor.0));
                self.lists[place].push(neighbor);
            }
        }
    }

    fn remove(&mut self, hash: u64, address: K) -> Option<L::Ref<Lle<L>>> {
        let place = self.place(hash);
        let at = self.lists[place].iter().position(|(other, _)| *other == address)?;
        self.count -= 1;
        Some(self.lists[place].swap_remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::lock::Plain;
    use super::*;

    const A: Mac = Mac::new(1, 1);
    const B: Mac = Mac::new(2, 1);

    impl Key for [u8; 3] {
        fn word(self) -> u64 {
            let [a, b, c] = self;
            u32::from_be_bytes([0, a, b, c]).into()
        }
    }

    fn packet(socket: u32) -> Packet {
        Packet { destination: 9, socket }
    }

    #[test]
    fn a_reference_outlives_its_entry_and_tells() {
        let table = Lltable::<Plain, u32>::new();
        table.learn(1, A);
        let kept = table.refer(1);
        assert_eq!((kept.mac(), kept.is_deleted()), (Some(A), false));
        table.learn(1, B);
        assert_eq!(kept.mac(), Some(B));
        assert!(table.forget(1) && !table.forget(1));
        assert_eq!((kept.mac(), kept.is_deleted()), (None, true));
        // The neighbor comes back; what is kept is not it.
        table.learn(1, A);
        assert_eq!((kept.mac(), table.refer(1).mac()), (None, Some(A)));
        assert_eq!(kept.learn(B), []);
        assert_eq!(kept.mac(), None, "who still has it can't bring it back");
    }

    #[test]
    fn the_latest_packets_are_held_in_order_and_no_address_of_nobody_is_used() {
        let table = Lltable::<Plain, u32>::new();
        for socket in 0..6 {
            assert_eq!(table.resolve(1, packet(socket)), None);
        }
        assert_eq!(table.learn(1, A), [2, 3, 4, 5].map(packet));
        assert_eq!(table.resolve(1, packet(0)), Some(A));
    }

    #[test]
    fn static_neighbors_are_not_overwritten() {
        let table = Lltable::<Plain, u32>::new();
        table.learn(1, A);
        table.refer(1).word.fetch_or(STATIC, Relaxed);
        table.learn(1, B);
        assert_eq!(table.resolve(1, packet(0)), Some(A));
    }

    #[test]
    fn a_third_protocol_has_a_table_of_its_own() {
        // T18: addresses of any kind that can be hashed.
        let table = Lltable::<Plain, [u8; 3]>::new();
        table.learn(*b"toy", A);
        assert_eq!((table.resolve(*b"toy", packet(0)), table.len()), (Some(A), 1));
        assert_eq!(table.resolve(*b"boy", packet(0)), None);
    }

    #[test]
    fn many_neighbors_are_all_found_and_some_are_forgotten_together() {
        let table = Lltable::<Plain, u32>::new();
        (0..5000).for_each(|n| _ = table.learn(n, Mac::new(3, n)));
        assert!((0..5000).all(|n| table.resolve(n, packet(0)) == Some(Mac::new(3, n))));
        assert_eq!(table.forget_all(|n| n % 5 == 0), 1000);
        assert_eq!(table.len(), 4000);
        assert!((0..5000).all(|n| table.forget(n) == (n % 5 != 0)));
    }
}
