//! Which nodes a part of the IPv6 FIB is made of.
//!
//! A slot is a prefix that one word answers for. From the runs inside it follows what the word is: one run is
//! a group; up to 32 whose limits the next 16 bits tell apart are a narrow list; the rest are arrays, which
//! cost memory and one load, but take all their slots nearer to the end at once. The width of an array is the
//! one that makes the sum of memory and of expected loads least, as [`array_cost`] counts them; routes stand
//! for traffic. Where addresses differ only after the 48th bit, few continuations are a wide list, so
//! that a host route under a short prefix costs a few lists and not a chain of arrays.
//!
//! No array before the 48th bit takes less than [`LEAST_SHALLOW`] bits and none after it less than
//! [`LEAST_DEEP`], which bounds the loads of any lookup.
use super::word::{KEY_BITS, LIST_CLASS, LIST_ENTRIES, NodeKind, Word};
use super::{FULL, Writer};
use crate::address::{Address, Prefix};
use crate::fib::NeedsRebuild;
use crate::runs::Group;
use std::sync::atomic::Ordering::Relaxed;

/// Addresses from `first` to before the next run (or the end of the slot) with the same group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u128,
    pub(super) group: Group,
}

/// Bits that the vector code sees, from the first: nodes that need more are deep.
pub(super) const SHALLOW: u8 = 48;
/// Fewest bits of an array that begins before bit 48; bits after 48 count too where fewer are left.
pub(super) const LEAST_SHALLOW: u8 = 3;
/// Fewest bits of an array that begins at or after bit 48.
pub(super) const LEAST_DEEP: u8 = 8;
/// Arrays after the root that the vector code goes through.
pub(crate) const ARRAYS: u8 = 3;
/// Most bits of an array.
const MOST: u8 = 14;

/// A slot with the runs in it: the first run begins at or before the slot, all others inside.
#[derive(Clone, Copy)]
pub(super) struct Slot<'r> {
    pub(super) prefix: Prefix<u128>,
    pub(super) runs: &'r [Run],
    /// How many arrays lead here from the root.
    pub(super) level: u8,
}

impl<'r> Slot<'r> {
    /// The part of this slot that is `prefix`.
    pub(super) fn narrow_to(self, prefix: Prefix<u128>) -> Slot<'r> {
        let start = self.runs.partition_point(|run| run.first <= prefix.first()).max(1) - 1;
        let end = self.runs.partition_point(|run| run.first <= prefix.last());
        Slot { prefix, runs: &self.runs[start..end], level: self.level }
    }

    /// How many bits of an address it takes to know its run.
    fn needed_bits(self) -> u8 {
        bits_of(self.runs[1..].iter().fold(0, |all, run| all | run.first))
    }

    /// Whether a narrow list can hold the runs.
    pub(super) fn fits_list(self) -> bool {
        self.runs.len() <= LIST_ENTRIES && self.needed_bits() <= self.prefix.len() + KEY_BITS
    }

    /// The value of the 16 bits after the slot's prefix.
    fn key_of(self, address: u128) -> u16 {
        address.checked_shl(self.prefix.len().into()).map_or(0, |rest| (rest >> (128 - KEY_BITS)) as u16)
    }
}

/// How many bits of a number are not trailing zeros.
fn bits_of(limits: u128) -> u8 {
    128 - limits.trailing_zeros() as u8
}

/// An entry of a list: the runs from the last entry's key to this one.
struct ListEntry {
    key: u16,
    /// The group, or none where the key has several.
    group: Option<Group>,
}

impl Writer {
    /// Writes the nodes for a slot and returns the word that leads to them; nothing else leads to them yet.
    pub(super) fn build_nodes(&mut self, slot: Slot<'_>) -> Result<Word, NeedsRebuild> {
        if let [run] = slot.runs {
            return Ok(Word::from_group(run.group));
        }
        let needs = slot.needed_bits();
        if slot.fits_list() {
            let entries: Vec<_> =
                run_ends(slot).map(|(key, group)| ListEntry { key, group: Some(group) }).collect();
            return if slot.runs.iter().all(|run| run.group <= u16::MAX.into()) {
                self.write_narrow(&entries, needs > SHALLOW)
            } else {
                self.write_wide(slot, &entries)
            };
        }
        if needs > SHALLOW
            && let Some(entries) = wide_entries(slot)
        {
            return self.write_wide(slot, &entries);
        }
        self.write_array(slot, array_width(slot))
    }

    fn alloc_block(&mut self, class: u8) -> Result<usize, NeedsRebuild> {
        self.blocks.alloc_block(class).ok_or(FULL)
    }

    fn write_narrow(&mut self, entries: &[ListEntry], is_deep: bool) -> Result<Word, NeedsRebuild> {
        let class = list_class(entries.len());
        let at = self.alloc_block(class)?;
        let half = 1 << (class - 1);
        for i in 0..half {
            let key = |i| entries.get(i).map_or(u16::MAX, |entry: &ListEntry| entry.key);
            let value = |i| entries.get(i).and_then(|entry: &ListEntry| entry.group).unwrap_or(0) as u16;
            self.shared.words[at + i].store(pack_pair(key(2 * i), key(2 * i + 1)), Relaxed);
            self.shared.words[at + half + i].store(pack_pair(value(2 * i), value(2 * i + 1)), Relaxed);
        }
        Ok(Word::from_node(NodeKind::Narrow, is_deep, class, at))
    }

    fn write_wide(&mut self, slot: Slot<'_>, entries: &[ListEntry]) -> Result<Word, NeedsRebuild> {
        let class = list_class(entries.len());
        let at = self.alloc_block(class + 1)?;
        let half = 1 << (class - 1);
        for i in 0..half {
            let key = |i| entries.get(i).map_or(u16::MAX, |entry: &ListEntry| entry.key);
            self.shared.words[at + i].store(pack_pair(key(2 * i), key(2 * i + 1)), Relaxed);
        }
        for i in 0..1 << class {
            let word = match entries.get(i) {
                None => Word::from_group(0),
                Some(&ListEntry { group: Some(group), .. }) => Word::from_group(group),
                Some(entry) => self.build_nodes(slot.narrow_to(slot.prefix.at_key(entry.key)))?,
            };
            self.shared.words[at + half + i].store(word.0, Relaxed);
        }
        Ok(Word::from_node(NodeKind::Wide, true, class, at))
    }

    fn write_array(&mut self, slot: Slot<'_>, width: u8) -> Result<Word, NeedsRebuild> {
        let at = self.alloc_block(width)?;
        let len = slot.prefix.len();
        let mut rest = slot.runs;
        for i in 0..1usize << width {
            let prefix = slot.prefix.child(i, width);
            let end = rest.partition_point_near(|run| run.first <= prefix.last());
            let word = self.build_nodes(Slot { prefix, runs: &rest[..end], level: slot.level + 1 })?;
            self.shared.words[at + i].store(word.0, Relaxed);
            rest = &rest[end - 1..];
            if let Some(next) = rest.get(1)
                && next.first.checked_sub(1) == Some(prefix.last())
            {
                rest = &rest[1..];
            }
        }
        Ok(Word::from_node(NodeKind::Array, len + width > SHALLOW, width, at))
    }
}

/// Parts of a prefix.
pub(super) trait Parts {
    /// The `i`th part when the next `width` bits divide it.
    fn child(self, i: usize, width: u8) -> Self;
    /// The part whose next 16 bits are `key`.
    fn at_key(self, key: u16) -> Self;
}

impl Parts for Prefix<u128> {
    fn child(self, i: usize, width: u8) -> Prefix<u128> {
        let first = self.first() | u128::from_field(i, self.len(), width);
        Prefix::of(first, self.len() + width)
    }

    fn at_key(self, key: u16) -> Prefix<u128> {
        self.child(key.into(), KEY_BITS)
    }
}

/// Search where the answer is likely near the start.
trait Near<T> {
    fn partition_point_near(&self, is_before: impl FnMut(&T) -> bool) -> usize;
}

impl<T> Near<T> for [T] {
    fn partition_point_near(&self, mut is_before: impl FnMut(&T) -> bool) -> usize {
        let mut bound = 1;
        while bound < self.len() && is_before(&self[bound]) {
            bound *= 2;
        }
        let (start, end) = (bound / 2, bound.min(self.len()));
        start + self[start..end].partition_point(is_before)
    }
}

/// Two half words in one, the first in the lower half.
pub(super) fn pack_pair(first: u16, second: u16) -> u32 {
    u32::from(first) | u32::from(second) << 16
}

fn list_class(entries: usize) -> u8 {
    (entries.next_power_of_two().trailing_zeros() as u8).clamp(2, LIST_CLASS)
}

/// The last key of each run, with its group.
fn run_ends(slot: Slot<'_>) -> impl Iterator<Item = (u16, Group)> {
    let last = std::iter::once(u16::MAX);
    let keys = slot.runs[1..].iter().map(move |run| slot.key_of(run.first - 1)).chain(last);
    keys.zip(slot.runs).map(|(key, run)| (key, run.group))
}

/// The entries of a wide list for the slot, if there is room for them and bits for the keys.
fn wide_entries(slot: Slot<'_>) -> Option<Vec<ListEntry>> {
    if slot.prefix.len() + KEY_BITS > 128 {
        return None;
    }
    let mut entries: Vec<ListEntry> = Vec::with_capacity(LIST_ENTRIES);
    for (run, next) in slot.runs.iter().zip(slot.runs[1..].iter().map(Some).chain([None])) {
        if entries.len() > LIST_ENTRIES {
            return None;
        }
        let last = next.map_or(slot.prefix.last(), |next| next.first - 1);
        let start = run.first.max(slot.prefix.first());
        let (first_key, last_key) = (slot.key_of(start), slot.key_of(last));
        let begins_inside = slot.prefix.at_key(first_key).first() != start;
        let ends_inside = slot.prefix.at_key(last_key).last() != last;
        // The key that it begins inside has its entry: the run before ends inside it too.
        let own_first = u32::from(first_key) + u32::from(begins_inside);
        let own_end = u32::from(last_key) + 1 - u32::from(ends_inside);
        if own_first < own_end {
            entries.push(ListEntry { key: (own_end - 1) as u16, group: Some(run.group) });
        }
        if ends_inside && entries.last().is_none_or(|entry| entry.key != last_key) {
            entries.push(ListEntry { key: last_key, group: None });
        }
    }
    (entries.len() <= LIST_ENTRIES).then_some(entries)
}

/// How many bits an array for the slot should take.
fn array_width(slot: Slot<'_>) -> u8 {
    let len = slot.prefix.len();
    if len >= SHALLOW {
        return LEAST_DEEP.min(128 - len);
    }
    cheapest_width(&slot.runs[1..], len, slot.level).0
}

/// Words that one more load per route is worth: fitted to a full table, see the decision on the IPv6 FIB.
const LOAD: usize = 1;
/// Words that a route costs which the vector code does not reach.
const OUT_OF_REACH: usize = 24;

/// The best width of an array for a slot of `len` bits with these limits inside, and what it costs, in words.
fn cheapest_width(inside: &[Run], len: u8, level: u8) -> (u8, usize) {
    let most = MOST.min(SHALLOW.saturating_sub(len));
    let widths = (LEAST_SHALLOW..=most).map(|width| (width, array_cost(inside, len, level, width)));
    widths.min_by_key(|(_, cost)| *cost).unwrap_or((LEAST_SHALLOW, 1 << LEAST_SHALLOW))
}

/// What an array of `width` bits costs with all that follows.
fn array_cost(inside: &[Run], len: u8, level: u8, width: u8) -> usize {
    let part_len = len + width;
    let mut cost = (1 << width) + LOAD * inside.len();
    let mut rest = inside;
    while let Some(run) = rest.first() {
        let part = Prefix::of(run.first, part_len);
        let skip = usize::from(run.first == part.first());
        let end = rest.partition_point_near(|run| run.first <= part.last());
        cost += part_cost(&rest[skip.min(end)..end], part_len, level + 1);
        rest = &rest[end..];
    }
    cost
}

/// What a slot of `len` bits below `level` arrays costs with these limits inside.
fn part_cost(inside: &[Run], len: u8, level: u8) -> usize {
    if inside.is_empty() {
        return 0;
    }
    let count = inside.len();
    let needs = bits_of(inside.iter().fold(0, |all, run| all | run.first));
    if count < LIST_ENTRIES && needs <= len + KEY_BITS {
        (1 << list_class(count + 1)) + LOAD * count
    } else if needs > SHALLOW || level >= ARRAYS {
        OUT_OF_REACH * count
    } else if level + 1 == ARRAYS {
        cheapest_width(inside, len, level).1
    } else {
        // A guess, where to know would take too long.
        16 + 8 * count
    }
}
