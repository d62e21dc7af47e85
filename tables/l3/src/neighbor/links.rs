//! What workers know of neighbors: one word each.
//!
//! A word is stored by control and loaded by workers. A changed link address is one store, seen by the first
//! packet after it; a worker that remembers a neighbor's id remembers nothing that can be wrong. While a
//! neighbor is in use, workers store nothing at all: only when control wants to know whether it is still
//! used, they say so once.
use artery_storage::Storage;
use artery_wire::EtherAddr;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::*};

use artery_storage::Words;

/// A neighbor's place among the words. It means another neighbor only after a grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NeighborId(u32);

impl NeighborId {
    /// The id of this number.
    pub const fn new(number: u32) -> NeighborId {
        NeighborId(number)
    }
    /// The id as a plain integer.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// What is known of a neighbor: its link address, and whether that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Link(u64);

/// The link address, as the eight bytes of a load from a frame would have it.
const ADDRESS: u64 = (1 << 48) - 1;
/// The address may be used.
const READY: u64 = 1 << 48;
/// Control wants a report when it is used.
const REPORT: u64 = 1 << 49;
/// The neighbor did not answer solicitations.
const FAILED: u64 = 1 << 50;

impl Link {
    /// No link address is known.
    pub const UNKNOWN: Link = Link(0);
    /// The neighbor did not answer: senders learn at once that it is unreachable.
    pub const UNREACHABLE: Link = Link(FAILED);

    /// An address to use.
    pub fn ready(address: EtherAddr) -> Link {
        let [a, b, c, d, e, f] = address.0;
        Link(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]) | READY)
    }
    /// The same, with the request to report its use.
    pub fn with_report(self) -> Link {
        Link(self.0 | REPORT)
    }
    /// Whether packets can be sent there.
    #[inline]
    pub fn is_ready(self) -> bool {
        self.0 & READY != 0
    }
    /// Whether packets can be sent there and nothing else is to be known.
    #[inline]
    pub fn is_only_ready(self) -> bool {
        self.0 >> 48 == READY >> 48
    }
    /// Whether control wants a report that the neighbor is used; see [`Links::report_use`].
    #[inline]
    pub fn wants_report(self) -> bool {
        self.0 & REPORT != 0
    }
    /// Whether the neighbor failed to answer solicitations.
    #[inline]
    pub fn has_failed(self) -> bool {
        self.0 & FAILED != 0
    }
    /// The link address as the first six bytes, in memory order, of a little-endian word
    /// whose others are zero.
    #[inline]
    pub fn bits(self) -> u64 {
        self.0 & ADDRESS
    }
    /// The link address, if it may be used.
    pub fn address(self) -> Option<EtherAddr> {
        let [a, b, c, d, e, f, ..] = self.0.to_le_bytes();
        self.is_ready().then_some(EtherAddr([a, b, c, d, e, f]))
    }
}

/// The words of all neighbors of a router.
pub struct Links {
    words: Words<AtomicU64>,
    /// Whether a neighbor was used since control wanted to know.
    used: Words<AtomicU8>,
    /// The neighbors' addresses, in two halves, where an index has no room for them.
    addresses: Words<AtomicU64>,
    /// Whether many neighbors should have other pages than few.
    grows: bool,
}

impl Links {
    /// Words for `most` neighbors. Memory is taken as they come.
    pub fn new(storage: &dyn Storage, most: usize) -> io::Result<Links> {
        Ok(Links {
            words: Words::new(storage, "neighbor words", most)?,
            used: Words::new(storage, "neighbor use", most)?,
            addresses: Words::new(storage, "neighbor addresses", 2 * most)?,
            grows: storage.for_big_tables().is_some(),
        })
    }
    /// Says that there are many neighbors: where the storage is for tables that grow, huge pages are
    /// requested for their words.
    pub(super) fn expect_many(&self) {
        if self.grows {
            self.words.prefer_huge_pages();
            self.used.prefer_huge_pages();
            self.addresses.prefer_huge_pages();
        }
    }
    /// How many neighbors there can be.
    pub fn capacity(&self) -> usize {
        self.words.len()
    }
    /// What is known of a neighbor.
    #[inline]
    pub fn get(&self, id: NeighborId) -> Link {
        self.words.get(id.0 as usize).map_or(Link::UNKNOWN, |word| Link(word.load(Relaxed)))
    }
    /// Says that a neighbor is used, which control wants to know when [`Link::wants_report`].
    #[inline]
    pub fn report_use(&self, id: NeighborId) {
        // Other workers may have said so; then the line stays as it is.
        if let Some(used) = self.used.get(id.0 as usize)
            && used.load(Relaxed) == 0
        {
            used.store(1, Relaxed);
        }
    }
    /// Changes what is known of a neighbor. For the thread that changes the table.
    pub fn set_link(&self, id: NeighborId, link: Link) {
        if let Some(word) = self.words.get(id.0 as usize) {
            word.store(link.0, Release);
        }
    }
    /// Whether the neighbor was used since the last call. For the thread that changes the table.
    pub fn clear_used(&self, id: NeighborId) -> bool {
        self.used.get(id.0 as usize).is_some_and(|used| used.load(Relaxed) != 0 && used.swap(0, Relaxed) != 0)
    }
    /// The address that was set.
    #[inline]
    pub(crate) fn address(&self, id: NeighborId) -> u128 {
        let half = |at: usize| self.addresses.get(at).map_or(0, |word| u128::from(word.load(Relaxed)));
        half(2 * id.0 as usize) << 64 | half(2 * id.0 as usize + 1)
    }
    /// Sets a neighbor's address, before the index leads to it.
    pub(crate) fn set_address(&self, id: NeighborId, address: u128) {
        for (at, half) in [(address >> 64) as u64, address as u64].into_iter().enumerate() {
            if let Some(word) = self.addresses.get(2 * id.0 as usize + at) {
                word.store(half, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_storage::Pages;

    #[test]
    fn a_word_tells_an_address_and_whether_to_use_it() {
        let address = EtherAddr([2, 1, 0, 0, 0, 9]);
        let links = Links::new(&Pages, 10).unwrap();
        let id = NeighborId::new(3);
        assert_eq!((links.get(id), links.get(id).address()), (Link::UNKNOWN, None));
        links.set_link(id, Link::ready(address));
        assert_eq!((links.get(id).address(), links.get(id).wants_report()), (Some(address), false));
        assert_eq!(links.get(id).bits().to_le_bytes(), [2, 1, 0, 0, 0, 9, 0, 0]);
        links.set_link(id, Link::ready(address).with_report());
        assert_eq!((links.get(id).address(), links.get(id).wants_report()), (Some(address), true));
        links.set_link(id, Link::UNREACHABLE);
        assert!(links.get(id).has_failed() && links.get(id).address().is_none());
        assert_eq!(links.get(NeighborId::new(10)), Link::UNKNOWN);
    }

    #[test]
    fn use_is_heard_once() {
        let links = Links::new(&Pages, 2).unwrap();
        let id = NeighborId::new(1);
        assert!(!links.clear_used(id));
        links.report_use(id);
        links.report_use(id);
        assert!(links.clear_used(id) && !links.clear_used(id));
        links.report_use(NeighborId::new(2));
    }
}
