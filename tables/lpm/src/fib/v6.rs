//! The IPv6 FIB: a trie of arrays whose width follows the routes, with sorted lists at its ends.
//!
//! One array of 32-bit words holds everything; `word.rs` says what a word means. The first 2^16 words are the
//! root, chosen by the first 16 bits of an address; then come the nodes. The default route's group is stored
//! elsewhere (see `fib/default.rs`), and words say [`NO_GROUP`](crate::NO_GROUP) for it: changing it changes
//! one word.
//!
//! A lookup reads the root's word and goes on until it has a group. In a full table of today that takes the
//! root (whose 60 words in use stay in the first cache), two or three arrays, and one line with the keys and
//! values of a list; the vector code does a step for sixteen addresses at once. The bound for any table and
//! address is [`Fib6::MAX_LOADS`] dependent loads.
//!
//! A change of a route looks at the slots of its range, and writes new nodes for those whose runs changed,
//! then stores the one word that leads to them: a reader sees the old nodes or the new. Old nodes are reused
//! after a grace period.
mod blocks;
mod build;
mod update;
mod walk;
mod word;

#[cfg(test)]
mod tests;

use self::blocks::Blocks;
#[cfg(target_arch = "x86_64")]
pub(crate) use self::build::ARRAYS;
use self::build::{Parts, Run, Slot};
use self::word::{MAX_GROUP, MAX_WORDS, Word};
use super::default::{self, DefaultRoute};
use super::{ArrayBytes, BuildError, FibMemory, NeedsRebuild};
use crate::address::Prefix;
use crate::runs::{Group, NO_GROUP, Runs};
use crate::simd;
use artery_rcu::{Domain, Turn};
use artery_storage::{Simd, Storage, Words};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Release;

/// Address bits that the root takes.
const ROOT_BITS: u8 = 16;
/// Where the nodes begin, after the root.
pub(crate) const NODES: usize = 1 << ROOT_BITS;
/// Words after the last node, so that vector code may read whole lines.
const SLACK: usize = 64;
/// Least words that are reserved, where the caller says nothing: 16 MiB, taken from the system
/// as they are used.
const LEAST_WORDS: usize = 1 << 22;

/// The name of the one array, for its storage.
const ARRAY: &str = "fib6-words";
const FULL: NeedsRebuild = NeedsRebuild { array: ARRAY };

struct Shared {
    words: Words<AtomicU32>,
    default: DefaultRoute,
    domain: Arc<Domain>,
}

struct Writer {
    shared: Arc<Shared>,
    blocks: Blocks,
}

/// A compiled IPv6 FIB, its writing half.
pub struct Fib6 {
    writer: Writer,
    scratch: update::Scratch,
}

impl Fib6 {
    /// The largest group that an IPv6 FIB can hold.
    pub const MAX_GROUP: Group = word::MAX_GROUP;
    /// Most dependent loads of a lookup: the root; 11 arrays of at least 3 bits to the 48th bit; then at most
    /// 10 loads for arrays of 8 bits or more, or for wide lists, which take two loads for 16 bits; key and
    /// value of a last list.
    pub const MAX_LOADS: usize = 1 + 11 + 10 + 2;

    /// Builds the FIB of `runs` for readers of `domain`, in `capacity` bytes at most; without, in four times
    /// what it may need now, which is address space and taken from the system as it is used.
    ///
    /// # Panics
    /// When a group is above [`MAX_GROUP`](Self::MAX_GROUP), here and in [`update`](Self::update_prefix).
    pub fn build(
        domain: &Arc<Domain>,
        runs: &impl Runs<u128>,
        storage: &dyn Storage,
        capacity: Option<usize>,
    ) -> Result<Fib6, BuildError> {
        let mut all = Vec::new();
        collect_runs(&mut all, runs, Prefix::ALL);
        let capacity = capacity.map_or((all.len() * 64).max(LEAST_WORDS), |bytes| bytes / 4).min(MAX_WORDS);
        if capacity < NODES + SLACK {
            return Err(FULL.into());
        }
        let words = Words::new(storage, ARRAY, capacity)?;
        let default = DefaultRoute::new(storage)?;
        let blocks = Blocks::new(domain, NODES, capacity - SLACK);
        let writer = Writer { shared: Arc::new(Shared { words, default, domain: domain.clone() }), blocks };
        let mut fib = Fib6 { writer, scratch: update::Scratch::default() };
        fib.writer.set_default(runs.default_group());
        fib.writer.fill_root(&all)?;
        Ok(fib)
    }

    /// Brings the FIB in step after the route of `changed` was added, replaced or removed in `runs`.
    pub fn update_prefix(
        &mut self,
        runs: &impl Runs<u128>,
        changed: Prefix<u128>,
    ) -> Result<(), NeedsRebuild> {
        if changed.len() == 0 {
            self.writer.set_default(runs.default_group());
            return Ok(());
        }
        let mut news = std::mem::take(&mut self.scratch.changed);
        news.clear();
        collect_runs(&mut news, runs, changed);
        let done = self.change_range(changed, &news);
        self.scratch.changed = news;
        done
    }

    /// The same; where nothing longer covers them, addresses now go to the group that is not asked for.
    pub fn replace_prefix(
        &mut self,
        runs: &impl Runs<u128>,
        changed: Prefix<u128>,
        _group: impl FnOnce() -> Group,
    ) -> Result<(), NeedsRebuild> {
        self.update_prefix(runs, changed)
    }

    /// A reader for another thread.
    pub fn reader(&self) -> Fib6Reader {
        Fib6Reader { shared: self.writer.shared.clone(), simd: Simd::detect_best() }
    }

    /// How much memory the FIB takes.
    pub fn memory(&self) -> FibMemory {
        let (used, reserved) = (self.writer.blocks.end() * 4, self.writer.shared.words.len() * 4);
        let default =
            ArrayBytes { name: default::NAME, used: DefaultRoute::BYTES, reserved: DefaultRoute::BYTES };
        FibMemory { arrays: vec![ArrayBytes { name: ARRAY, used, reserved }, default] }
    }

    /// Bytes of the root and of the nodes that are in use; the rest of the memory waits for reuse.
    pub fn bytes_in_use(&self) -> usize {
        (NODES + self.writer.blocks.held_words()) * 4
    }
}

impl Writer {
    /// Fills the root of new words, which are zero: of no group.
    fn fill_root(&mut self, runs: &[Run]) -> Result<(), NeedsRebuild> {
        if let [Run { group: NO_GROUP, .. }] = runs {
            return Ok(());
        }
        let all = Slot { prefix: Prefix::ALL, runs, level: 0 };
        for i in 0..1 << ROOT_BITS {
            let word = self.build_nodes(all.narrow_to(Prefix::ALL.child(i, ROOT_BITS)))?;
            self.publish_word(i, word);
        }
        Ok(())
    }

    /// Lets readers see what `word` leads to.
    fn publish_word(&self, at: usize, word: Word) {
        self.shared.words[at].store(word.0, Release);
    }

    fn set_default(&self, group: Group) {
        assert!(group <= MAX_GROUP, "group {group} in an IPv6 FIB");
        self.shared.default.set(group);
    }
}

/// Appends the runs of `within`, neighbours with the same group as one.
fn collect_runs(all: &mut Vec<Run>, runs: &impl Runs<u128>, within: Prefix<u128>) {
    runs.for_each_run(within, |first, _, group| {
        assert!(group <= MAX_GROUP, "group {group} in an IPv6 FIB");
        if all.last().is_none_or(|run: &Run| run.group != group) {
            all.push(Run { first, group });
        }
    });
}

/// Looks addresses up in a [`Fib6`]; clones are for other threads.
#[derive(Clone)]
pub struct Fib6Reader {
    shared: Arc<Shared>,
    simd: Simd,
}

impl Fib6Reader {
    /// The same, with these instructions for [`lookup_batch`](Self::lookup_batch), or the best that are here.
    pub fn with(mut self, simd: Simd) -> Fib6Reader {
        self.simd = simd.min(Simd::detect_best());
        self
    }

    /// The group that an address's longest match leads to, [`NO_GROUP`](crate::NO_GROUP) without a match.
    ///
    /// # Panics
    /// When the turn is of another domain.
    #[inline]
    pub fn lookup(&self, turn: &Turn<'_>, address: u128) -> Group {
        self.view_at(turn).lookup(address)
    }

    /// The FIB for the rest of a turn, for callers that look many addresses up one by one.
    ///
    /// # Panics
    /// When the turn is of another domain.
    #[inline]
    pub fn view_at<'a>(&'a self, turn: &'a Turn<'_>) -> Fib6View<'a> {
        assert!(turn.is_of(&self.shared.domain), "a turn of another domain");
        Fib6View { words: &self.shared.words, default: &self.shared.default }
    }

    /// The groups of many addresses.
    ///
    /// # Panics
    /// When the turn is of another domain, or the slices differ in length.
    pub fn lookup_batch(&self, turn: &Turn<'_>, addresses: &[u128], groups: &mut [Group]) {
        assert_eq!(addresses.len(), groups.len(), "one group for each address");
        let view = self.view_at(turn);
        if self.simd == Simd::SCALAR {
            for (address, group) in addresses.iter().zip(groups) {
                *group = view.lookup(*address);
            }
        } else {
            let Fib6View { words, default } = view;
            simd::v6::lookup_batch(self.simd, words, default, addresses, groups, |address| {
                view.lookup(address)
            });
        }
    }
}

/// A [`Fib6`] during a turn: where its words are, so that no lookup needs to find them.
#[derive(Clone, Copy)]
pub struct Fib6View<'a> {
    words: &'a [AtomicU32],
    default: &'a DefaultRoute,
}

impl Fib6View<'_> {
    /// The group that an address's longest match leads to, [`NO_GROUP`](crate::NO_GROUP) without a match.
    #[inline]
    pub fn lookup(&self, address: u128) -> Group {
        self.default.complete(|| walk::find_group(self.words, address))
    }
}
