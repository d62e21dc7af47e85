//! Keeping the IPv6 FIB in step: finding the slots that a change concerns, and writing those that differ.
use super::build::{Parts, Run, Slot};
use super::word::{KEY_BITS, LIST_ENTRIES, NodeKind, Word};
use super::{Fib6, ROOT_BITS, Writer, walk};
use crate::address::{Address, Prefix};
use crate::fib::NeedsRebuild;
use crate::runs::Group;

/// An array whose runs are this few becomes a list again: half of what a list holds, so that a route that
/// comes and goes does not turn one into the other each time.
const FEW: usize = LIST_ENTRIES / 2;

/// Memory that is kept from change to change.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) changed: Vec<Run>,
    old: Vec<Run>,
    new: Vec<Run>,
}

/// What a slot's word leads to has fewer runs now.
type HasShrunk = bool;

/// A slot and its word.
#[derive(Clone, Copy)]
struct Place {
    /// Where the word is.
    at: usize,
    word: Word,
    prefix: Prefix<u128>,
    /// How many arrays lead here from the root.
    level: u8,
}

impl Fib6 {
    /// Writes what is new in the range `prefix`.
    pub(super) fn change_range(&mut self, prefix: Prefix<u128>, runs: &[Run]) -> Result<(), NeedsRebuild> {
        let change = Change { prefix, runs };
        for (at, prefix) in changed_parts(Prefix::ALL, ROOT_BITS, prefix) {
            self.refresh_slot(self.writer.load_place(at, prefix, 0), change)?;
        }
        Ok(())
    }

    /// Brings a slot in step.
    fn refresh_slot(&mut self, place: Place, change: Change<'_>) -> Result<HasShrunk, NeedsRebuild> {
        match place.word.node_kind() {
            Some(NodeKind::Array) => self.refresh_array(place, change),
            Some(NodeKind::Wide) if let Some(inner) = self.writer.inner_place(place, change.prefix) => {
                Ok(self.refresh_slot(inner, change)? && self.shrink_slot(place)?)
            }
            _ => self.rewrite_slot(place, change),
        }
    }

    fn refresh_array(&mut self, place: Place, change: Change<'_>) -> Result<HasShrunk, NeedsRebuild> {
        let mut has_shrunk = false;
        for (i, prefix) in changed_parts(place.prefix, place.word.class(), change.prefix) {
            let part = self.writer.load_place(place.word.place() + i, prefix, place.level + 1);
            has_shrunk |= self.refresh_slot(part, change)?;
        }
        Ok(has_shrunk && self.shrink_slot(place)?)
    }

    /// Writes new nodes for a slot that is not an array, if its runs have changed.
    fn rewrite_slot(&mut self, place: Place, change: Change<'_>) -> Result<HasShrunk, NeedsRebuild> {
        let Place { at, word, prefix, level } = place;
        let Scratch { old, new, .. } = &mut self.scratch;
        old.clear();
        new.clear();
        self.writer.runs_of(word, prefix, usize::MAX, old);
        change.splice_runs(prefix, old, new);
        if old == new {
            return Ok(false);
        }
        let next = self.writer.build_nodes(Slot { prefix, runs: new, level })?;
        self.writer.publish_word(at, next);
        self.writer.free_nodes(word);
        Ok(self.scratch.new.len() < self.scratch.old.len())
    }

    /// Replaces an array or a wide list by a narrow one, or by a group, where that is enough.
    fn shrink_slot(&mut self, place: Place) -> Result<HasShrunk, NeedsRebuild> {
        let Place { at, word, prefix, level } = place;
        let runs = &mut self.scratch.old;
        runs.clear();
        let is_whole = self.writer.runs_of(word, prefix, FEW, runs);
        let slot = Slot { prefix, runs, level };
        if !is_whole || !slot.fits_list() {
            return Ok(false);
        }
        let next = self.writer.build_nodes(slot)?;
        self.writer.publish_word(at, next);
        self.writer.free_nodes(word);
        Ok(true)
    }
}

impl Writer {
    fn load_place(&self, at: usize, prefix: Prefix<u128>, level: u8) -> Place {
        Place { at, word: walk::load_word(&self.shared.words, at), prefix, level }
    }

    /// Where a wide list leads for `changed`, if that lies within one key which has a node of its own.
    fn inner_place(&self, list: Place, changed: Prefix<u128>) -> Option<Place> {
        let part_len = list.prefix.len().checked_add(KEY_BITS).filter(|&len| len <= changed.len())?;
        let key = changed.first().field(list.prefix.len(), KEY_BITS) as u16;
        let (start, class) = (list.word.place(), list.word.class());
        let i = (0..1usize << class).find(|&i| walk::half_word(&self.shared.words, start, i) >= key)?;
        let at = start + (1 << (class - 1)) + i;
        let inner = self.load_place(at, Prefix::of(changed.first(), part_len), list.level);
        inner.word.leaf_group().is_none().then_some(inner)
    }

    /// Appends the runs of a slot, as long as there are not more than `most`; says whether these are all.
    fn runs_of(&self, word: Word, prefix: Prefix<u128>, most: usize, runs: &mut Vec<Run>) -> bool {
        if let Some(group) = word.leaf_group() {
            push(runs, prefix.first(), group);
            return runs.len() <= most;
        }
        match word.kind() {
            NodeKind::Array => (0..1usize << word.class()).all(|i| {
                let part = prefix.child(i, word.class());
                self.runs_of(walk::load_word(&self.shared.words, word.place() + i), part, most, runs)
            }),
            NodeKind::Narrow | NodeKind::Wide => self.list_entries(word).all(|(first_key, key, value)| {
                let first = prefix.first() | first_address(first_key, prefix.len());
                let part = match value.leaf_group() {
                    Some(_) => Prefix::of(first, 128), // only where it begins counts
                    None => prefix.at_key(key),
                };
                self.runs_of(value, part, most, runs)
            }),
        }
    }

    /// The first and last key and the word of each entry of a list.
    fn list_entries(&self, word: Word) -> impl Iterator<Item = (u16, u16, Word)> {
        let (words, place, half) = (&self.shared.words, word.place(), 1usize << (word.class() - 1));
        let is_narrow = word.kind() == NodeKind::Narrow;
        let mut next = Some(0u16);
        (0..1usize << word.class()).map_while(move |i| {
            let first = next?;
            let key = walk::half_word(words, place, i);
            next = key.checked_add(1);
            let value = if is_narrow {
                Word::from_group(walk::half_word(words, place + half, i).into())
            } else {
                walk::load_word(words, place + half + i)
            };
            Some((first, key, value))
        })
    }

    /// Takes back all nodes that `word` leads to.
    fn free_nodes(&mut self, word: Word) {
        if word.leaf_group().is_some() {
            return;
        }
        let (start, count) = match word.kind() {
            NodeKind::Narrow => (0, 0),
            NodeKind::Array => (word.place(), 1 << word.class()),
            NodeKind::Wide => (word.place() + (1 << (word.class() - 1)), 1 << word.class()),
        };
        for at in start..start + count {
            self.free_nodes(walk::load_word(&self.shared.words, at));
        }
        self.blocks.free_block(word.place(), word.block_class());
    }
}

/// What is new in a range.
#[derive(Clone, Copy)]
struct Change<'r> {
    prefix: Prefix<u128>,
    /// All runs of the range; the first begins where it does.
    runs: &'r [Run],
}

impl Change<'_> {
    /// Puts into `new` what the runs `old` of a slot are after the change.
    fn splice_runs(self, slot: Prefix<u128>, old: &[Run], new: &mut Vec<Run>) {
        let first = self.prefix.first().max(slot.first());
        let last = self.prefix.last().min(slot.last());
        for run in old.iter().take_while(|run| run.first < first) {
            push(new, run.first, run.group);
        }
        let start = self.runs.partition_point(|run| run.first <= first).max(1) - 1;
        for run in self.runs[start..].iter().take_while(|run| run.first <= last) {
            push(new, run.first.max(first), run.group);
        }
        if last == slot.last() {
            return;
        }
        let after = old.partition_point(|run| run.first <= last + 1);
        push(new, last + 1, old[after - 1].group);
        for run in &old[after..] {
            push(new, run.first, run.group);
        }
    }
}

/// Appends a run, or lets it be part of the last.
fn push(runs: &mut Vec<Run>, first: u128, group: Group) {
    if runs.last().is_none_or(|run| run.group != group) {
        runs.push(Run { first, group });
    }
}

/// The first address after `len` zero bits whose next bits are the key or more: where the address ends within
/// the key, several keys stand for one address.
fn first_address(key: u16, len: u8) -> u128 {
    let beyond = (len + KEY_BITS).saturating_sub(128);
    let whole = (u128::from(key) + (1 << beyond) - 1) >> beyond << beyond;
    (whole << (128 - KEY_BITS)) >> len
}

/// Which of the parts of `slot`, divided by its next `width` bits, have addresses of `changed`.
fn changed_parts(
    slot: Prefix<u128>,
    width: u8,
    changed: Prefix<u128>,
) -> impl Iterator<Item = (usize, Prefix<u128>)> {
    let first = changed.first().max(slot.first()).field(slot.len(), width);
    let last = changed.last().min(slot.last()).field(slot.len(), width);
    (first..=last).map(move |i| (i, slot.child(i, width)))
}
