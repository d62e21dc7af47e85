//! The small layout: a word for each /19, and its runs of /24s as leaves.
//!
//! `roots` has 2^19 words of 8 bytes, numbered by the first 19 bits of an address. The lower half of a word
//! has a bit for each /24 after the first in which a run begins; the upper half is a place in `leaves`. Bit 0
//! is free, since a run always begins there, and says that the upper half leads to a run list instead (see
//! `lists.rs`): the /19 has something longer than a /24, or a group beyond 65,535.
//!
//! ```text
//! group = leaves[upper half + number of bits set in the lower half up to the address's /24]
//! ```
//!
//! A leaf of 16 bits is a group; 0 stands for the default route's (see `fib/default.rs`). The first 65,536
//! leaves are their own numbers, so that a /19 all of whose addresses go one way needs no leaf of its own:
//! its upper half is the group. Two dependent loads: the word and the leaf, or the word and the run list.
//!
//! A change writes new leaves aside and publishes them by one store of the /19's word; the old leaves are
//! reused after a grace period. When runs begin where they did, the leaves are changed in place.
use super::lists::{self, LISTED, ListWriter, Lists, Run};
use super::{Fib4Options, by_blocks, cut_short, in_batches, turn_of_another_domain};
use crate::address::Prefix;
use crate::fib::blocks::Blocks;
use crate::fib::default::{self, DefaultAtHand, DefaultRoute};
use crate::fib::{ArrayBytes, BuildError, FibMemory, NeedsRebuild};
use crate::runs::{Group, Holes, NO_GROUP, Runs};
use crate::simd::v4::{ROOTS, Small, count_runs};
use artery_rcu::{Domain, Turn};
use artery_storage::{Simd, Storage, Words};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::*, fence};

/// Bits of an address within a /19.
const BLOCK_BITS: u32 = 13;
/// Leaves that are their own numbers.
const SELVES: usize = 1 << 16;

/// A compiled IPv4 FIB of about seven bytes a prefix, for its writer.
///
/// Groups up to 65,535 are compact; greater numbers are right, and take more room and time.
pub struct Fib4Small {
    shared: Arc<Shared>,
    leaves: Blocks,
    lists: ListWriter,
    /// Room for the runs of one block.
    scratch: Vec<Run>,
}

struct Shared {
    domain: Arc<Domain>,
    roots: Words<AtomicU64>,
    leaves: Words<AtomicU16>,
    lists: Lists,
    list_bytes: usize,
    default: DefaultRoute,
}

impl Fib4Small {
    /// Compiles all routes of a table.
    pub fn build(
        domain: &Arc<Domain>,
        source: &impl Runs<u32>,
        storage: &dyn Storage,
        options: Fib4Options,
    ) -> Result<Fib4Small, BuildError> {
        // An even number, since vector code reads leaves in pairs.
        let leaves = options.leaves.max(SELVES).next_multiple_of(4);
        let list_bytes = options.list_lines.max(1) * 64;
        let shared = Shared {
            domain: domain.clone(),
            roots: Words::new(storage, "roots", ROOTS)?,
            leaves: Words::new(storage, "leaves", leaves)?,
            lists: Lists::new(Words::new(storage, lists::NAME, list_bytes / 8)?),
            list_bytes,
            default: DefaultRoute::new(storage)?,
        };
        for (number, leaf) in (0..=u16::MAX).zip(shared.leaves.iter()) {
            leaf.store(number, Relaxed);
        }
        let mut fib = Fib4Small {
            shared: Arc::new(shared),
            leaves: Blocks::new(domain, SELVES, leaves),
            lists: ListWriter::new(domain, options.list_lines, 1 << BLOCK_BITS),
            scratch: Vec::new(),
        };
        fib.update_prefix(source, Prefix::ALL)?;
        fib.change_blocks(source, Prefix::ALL)?;
        Ok(fib)
    }

    /// Takes over what has changed in `changed`, a prefix whose route came, went or got another group. The
    /// route of all addresses is one word.
    pub fn update_prefix(
        &mut self,
        source: &impl Runs<u32>,
        changed: Prefix<u32>,
    ) -> Result<(), NeedsRebuild> {
        if changed.len() == 0 {
            self.shared.default.set(source.default_group());
            return Ok(());
        }
        let block = (32 - BLOCK_BITS) as u8;
        self.change_blocks(source, Prefix::of(changed.first(), changed.len().min(block)))
    }

    /// The same for a prefix that covers many blocks, whose addresses now go to `group` where nothing longer
    /// covers them: looks at those only.
    pub fn replace_prefix(
        &mut self,
        source: &impl Holes<u32>,
        changed: Prefix<u32>,
        group: impl FnOnce() -> Group,
    ) -> Result<(), NeedsRebuild> {
        if !(1..=16).contains(&changed.len()) {
            return self.update_prefix(source, changed);
        }
        let Some(group) = u16::try_from(group()).ok() else { return self.update_prefix(source, changed) };
        let mut anew = Vec::new();
        source.for_each_hole(changed, |first, last| {
            for block in first >> BLOCK_BITS..=last >> BLOCK_BITS {
                let whole = Prefix::of(block << BLOCK_BITS, 19);
                let (first, last) = (first.max(whole.first()), last.min(whole.last()));
                if !self.shared.change_run(block as usize, first, last, group) && anew.last() != Some(&whole)
                {
                    anew.push(whole);
                }
            }
        });
        anew.into_iter().try_for_each(|block| self.change_blocks(source, block))
    }

    /// A reader; it may be cloned and sent to other threads.
    pub fn reader(&self) -> Fib4SmallReader {
        Fib4SmallReader { shared: self.shared.clone(), simd: Simd::detect_best() }
    }

    /// Memory of each array, in bytes.
    pub fn memory(&self) -> FibMemory {
        let array = |name, used, reserved| ArrayBytes { name, used, reserved };
        let shared = &self.shared;
        FibMemory {
            arrays: vec![
                array("roots", ROOTS * 8, ROOTS * 8),
                array("leaves", self.leaves.touched() * 2, shared.leaves.len() * 2),
                array(lists::NAME, self.lists.touched_bytes(), shared.list_bytes),
                array(default::NAME, DefaultRoute::BYTES, DefaultRoute::BYTES),
            ],
        }
    }

    /// Compiles the /19s of a prefix that is not longer.
    fn change_blocks(&mut self, source: &impl Runs<u32>, within: Prefix<u32>) -> Result<(), NeedsRebuild> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut result = Ok(());
        by_blocks(source, within, BLOCK_BITS, &mut scratch, |mut blocks, runs| {
            if result.is_ok() {
                result = match runs {
                    [run] if (run.group as usize) < SELVES => {
                        self.fill_blocks(blocks, run.group);
                        Ok(())
                    }
                    _ => blocks.try_for_each(|block| self.change_block(block as usize, runs)),
                };
            }
        });
        self.scratch = scratch;
        result
    }

    /// Gives all addresses of these blocks one group, which is a leaf of its own.
    fn fill_blocks(&mut self, blocks: RangeInclusive<u32>, group: Group) {
        let new = u64::from(group) << 32;
        for block in *blocks.start() as usize..*blocks.end() as usize + 1 {
            let root = &self.shared.roots[block];
            let old = root.load(Relaxed);
            if new != old {
                root.store(new, Release);
                self.free_word(old);
            }
        }
    }

    fn change_block(&mut self, block: usize, runs: &[Run]) -> Result<(), NeedsRebuild> {
        let root = &self.shared.roots[block];
        let old = root.load(Relaxed);
        let new = if cut_short(runs) || runs.iter().any(|run| run.group as usize >= SELVES) {
            self.lists.write_list(&self.shared.lists, runs, old)?
        } else {
            let bitmap = runs.iter().skip(1).fold(0, |bits, run| bits | 1u64 << (run.start >> 8));
            if old as u32 == bitmap as u32 {
                change_leaves(leaves_at(&self.shared.leaves, old, runs.len()), runs);
                return Ok(());
            }
            let first = self.leaves.alloc_block(runs.len() as u32).ok_or(NeedsRebuild { array: "leaves" })?;
            let new = u64::from(first) << 32 | bitmap;
            change_leaves(leaves_at(&self.shared.leaves, new, runs.len()), runs);
            new
        };
        if new != old {
            root.store(new, Release);
            self.free_word(old);
        }
        Ok(())
    }

    /// Takes back what a word that is no longer published leads to.
    fn free_word(&mut self, word: u64) {
        if word & LISTED != 0 {
            self.lists.free_list(word);
        } else if word as u32 != 0 {
            self.leaves.free_block((word >> 32) as u32, 1 + (word as u32).count_ones());
        }
    }
}

fn leaves_at(leaves: &Words<AtomicU16>, word: u64, count: usize) -> &[AtomicU16] {
    &leaves[(word >> 32) as usize..][..count]
}

fn change_leaves(leaves: &[AtomicU16], runs: &[Run]) {
    for (leaf, run) in leaves.iter().zip(runs) {
        leaf.store(run.group as u16, Release); // a default that it gives way to was stored before
    }
}

/// Looks up addresses in a [`Fib4Small`].
#[derive(Clone)]
pub struct Fib4SmallReader {
    shared: Arc<Shared>,
    simd: Simd,
}

impl Fib4SmallReader {
    /// The same reader with other instructions for batches than the widest.
    pub fn with_simd(self, simd: Simd) -> Fib4SmallReader {
        Fib4SmallReader { simd, ..self }
    }

    /// The group of the longest prefix that covers `address`; [`NO_GROUP`] if there is none.
    ///
    /// # Panics
    /// When `turn` is of another domain than the FIB.
    #[inline]
    pub fn lookup(&self, turn: &Turn<'_>, address: u32) -> Group {
        self.view_at(turn).lookup(address)
    }

    /// The FIB for the rest of a turn, for callers that look many addresses up one by one: it costs half as
    /// much as [`lookup`](Self::lookup) with the turn for each.
    ///
    /// # Panics
    /// When `turn` is of another domain than the FIB.
    #[inline]
    pub fn view_at<'a>(&'a self, turn: &'a Turn<'_>) -> Fib4SmallView<'a> {
        if !turn.is_of(&self.shared.domain) {
            turn_of_another_domain();
        }
        self.shared.view(self.simd)
    }

    /// Looks up all `addresses`; `out` is as long.
    ///
    /// # Panics
    /// When `turn` is of another domain than the FIB, or the lengths differ.
    pub fn lookup_batch(&self, turn: &Turn<'_>, addresses: &[u32], out: &mut [Group]) {
        let view = self.view_at(turn);
        let vector = |addresses: &_, out: &mut _| {
            let default = view.default.load();
            let arrays = Small { roots: view.roots, leaves: view.leaves, default: default.group() };
            let undone = arrays.lookup_batch(self.simd, addresses, out);
            fence(Acquire); // what was gathered was read before this
            if view.default.load() == default { undone } else { u64::MAX }
        };
        in_batches(addresses, out, |address| view.lookup(address), vector);
    }
}

/// A [`Fib4Small`] during a turn: where its arrays are, so that no lookup needs to find them.
#[derive(Clone, Copy)]
pub struct Fib4SmallView<'a> {
    shared: &'a Shared,
    roots: &'a [AtomicU64; ROOTS],
    leaves: &'a [AtomicU16],
    default: DefaultAtHand<'a>,
    simd: Simd,
}

impl Fib4SmallView<'_> {
    /// The group of the longest prefix that covers `address`; [`NO_GROUP`] if there is none.
    ///
    /// The straight path is short, so that many lookups are under way at once; all else is a
    /// call in its place.
    #[inline]
    pub fn lookup(&self, address: u32) -> Group {
        let default = self.default.load();
        match self.find_in_leaves(address) {
            Ok(group) if self.default.load() == default => {
                if group == NO_GROUP {
                    default.group()
                } else {
                    group
                }
            }
            _ => self.shared.lookup_slowly(self.simd, address),
        }
    }

    /// The group of an address, 0 where only the default route covers it; or the word of a run list.
    #[inline]
    fn find_in_leaves(&self, address: u32) -> Result<Group, u64> {
        let word = self.roots[(address >> BLOCK_BITS) as usize].load(Acquire);
        if word & LISTED != 0 {
            return Err(word);
        }
        let place = (word >> 32) as usize + count_runs(self.simd, word, address) as usize;
        Ok(self.leaves.get(place).map_or(NO_GROUP, |leaf| leaf.load(Acquire).into()))
    }
}

impl Shared {
    /// Gives the addresses from `first` to `last` of a block another group, if they are a run of it or all.
    fn change_run(&self, block: usize, first: u32, last: u32, group: u16) -> bool {
        let word = self.roots[block].load(Relaxed);
        if word as u32 == 0 && last - first == (1 << BLOCK_BITS) - 1 {
            self.roots[block].store(u64::from(group) << 32, Release);
            return true;
        }
        let is_whole = first.is_multiple_of(256) && last & 255 == 255;
        if word & LISTED != 0 || word as u32 == 0 || !is_whole {
            return false;
        }
        // A bit for each /24 where a run begins; that of the first, which says whether this is a list, is not
        // set.
        let (starts, cell) = (word as u32 | 1, |address: u32| (address >> 8) % 32);
        let (from, to) = (cell(first), cell(last));
        let inside = (2u32 << to).wrapping_sub(1 << from);
        let ends = to == 31 || starts >> (to + 1) & 1 == 1;
        if starts & inside != 1 << from || !ends {
            return false;
        }
        let leaf = (starts & ((1u32 << from) - 1)).count_ones() as usize;
        self.leaves[(word >> 32) as usize + leaf].store(group, Relaxed);
        true
    }

    #[inline]
    fn view(&self, simd: Simd) -> Fib4SmallView<'_> {
        let roots = (&*self.roots).try_into().expect("the array was made with this length");
        Fib4SmallView { shared: self, roots, leaves: &self.leaves, default: self.default.at_hand(), simd }
    }

    #[cold]
    #[inline(never)]
    fn lookup_slowly(&self, simd: Simd, address: u32) -> Group {
        self.default.complete(|| match self.view(simd).find_in_leaves(address) {
            Ok(group) => group,
            Err(word) => self.lists.find_group(word, address & ((1 << BLOCK_BITS) - 1)),
        })
    }
}
