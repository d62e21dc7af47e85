//! Memory that one thread writes and others read, and what tables build from it.
//!
//! | what | for |
//! |---|---|
//! | [`Storage`], [`Region`], [`Words`] | arrays of words: on the heap, on huge pages, or in a mapped file |
//! | [`RetireList`] | what was unlinked and may still be read for a while |
//! | [`TagIndex`] | from a hash to the entries that may have its key |
//! | [`Buckets`] | flows shared out among members by weight |
//! | [`prefetch`], [`Simd`], [`simd`] | hints to the processor, and vector loads beside a writer |
#![deny(unsafe_code)]

#[forbid(unsafe_code)]
mod buckets;
#[allow(unsafe_code)]
mod region;
#[forbid(unsafe_code)]
mod retire_list;
#[allow(unsafe_code)]
pub mod simd;
#[forbid(unsafe_code)]
mod tag_index;

pub use buckets::{Buckets, Comeback, MOST_MEMBERS, MOST_SLOTS, by_weight, slot_shares};
pub use region::{GrowingPages, HugePages, Pages, Region, Storage, Word, Words, prefer_huge_pages};
pub use retire_list::RetireList;
pub use simd::{Simd, prefetch};
pub use tag_index::{BEYOND_LINE, Fill, NO_ENTRY, TagIndex};
