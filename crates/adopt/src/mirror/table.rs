//! One routing table of the kernel: for each prefix the routes in the order in which it prefers them.
use super::paths::{PathId, Paths, Standing};
use crate::kernel::Family;
use artery_table::{Address, Prefix};
use std::collections::btree_map::Entry as Place;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A route, as one of those for a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) priority: u32,
    pub(super) path: PathId,
    pub(super) tos: u8,
    /// How much it is preferred among those of its metric (RFC 4191): more is better.
    pub(super) preference: u8,
    /// Whether it is for some sources only.
    pub(super) has_source: bool,
}

/// What is done with packets that have no longer prefix in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Their path.
    Path(PathId),
    /// The search goes on in the next table.
    Throw,
    /// That depends on more than their destination.
    Kernel,
}

/// The routes of a prefix. There is at least one, and mostly no more.
#[derive(Clone, Debug)]
struct Entry {
    first: Candidate,
    /// The dump that found them last.
    stamp: u8,
    #[allow(clippy::box_collection)] // a word for what is rare, where a vector has three
    others: Option<Box<Vec<Candidate>>>,
}

impl Entry {
    fn all(&self) -> impl Iterator<Item = &Candidate> {
        std::iter::once(&self.first).chain(self.others.iter().flat_map(|others| others.iter()))
    }
}

/// What has become of the routes of a prefix.
pub(super) struct Change {
    /// Those that it had.
    pub(super) before: Vec<Candidate>,
    /// Whether other is done now with packets to just this prefix.
    pub(super) is_felt: bool,
}

impl Change {
    fn between<A: Address>(old: Option<&Entry>, new: Option<&Entry>, paths: &Paths) -> Change {
        let chosen = |entry: Option<&Entry>| choose(entry?, family::<A>(), paths);
        let is_felt = chosen(old) != chosen(new);
        Change { before: old.map_or(Vec::new(), |old| old.all().copied().collect()), is_felt }
    }
}

/// A table.
#[derive(Debug)]
pub(super) struct Table<A: Address> {
    entries: BTreeMap<Prefix<A>, Entry>,
    /// How many prefixes there are of a length; of others there are none.
    lengths: BTreeMap<u8, u32>,
    /// Prefixes with a route that throws.
    throws: BTreeSet<Prefix<A>>,
}

impl<A: Address> Default for Table<A> {
    fn default() -> Table<A> {
        Table { entries: BTreeMap::new(), lengths: BTreeMap::new(), throws: BTreeSet::new() }
    }
}

impl<A: Address> Table<A> {
    /// How many prefixes have routes.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The routes of a prefix.
    pub(super) fn candidates(&self, prefix: Prefix<A>) -> Vec<Candidate> {
        self.entries.get(&prefix).map_or(Vec::new(), |entry| entry.all().copied().collect())
    }

    /// Gives a prefix these routes, found by a dump or told since. None if it had just them; then it is noted that they
    /// were found.
    pub(super) fn set(
        &mut self,
        prefix: Prefix<A>,
        candidates: &[Candidate],
        stamp: u8,
        paths: &Paths,
    ) -> Option<Change> {
        let Some((&first, others)) = candidates.split_first() else {
            return self.remove(prefix, paths);
        };
        let others = (!others.is_empty()).then(|| Box::new(others.to_vec()));
        let entry = Entry { first, stamp, others };
        let (old, new) = match self.entries.entry(prefix) {
            Place::Occupied(place) => {
                let kept = place.into_mut();
                if kept.all().eq(candidates) {
                    kept.stamp = stamp;
                    return None;
                }
                (Some(std::mem::replace(kept, entry)), kept)
            }
            Place::Vacant(place) => {
                *self.lengths.entry(prefix.len()).or_default() += 1;
                (None, place.insert(entry))
            }
        };
        if candidates.iter().any(|candidate| paths.standing(candidate.path) == Standing::Throws) {
            self.throws.insert(prefix);
        } else if !self.throws.is_empty() {
            self.throws.remove(&prefix);
        }
        Some(Change::between::<A>(old.as_ref(), Some(new), paths))
    }

    fn remove(&mut self, prefix: Prefix<A>, paths: &Paths) -> Option<Change> {
        let old = self.entries.remove(&prefix)?;
        self.throws.remove(&prefix);
        if let Place::Occupied(mut count) = self.lengths.entry(prefix.len()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(Change::between::<A>(Some(&old), None, paths))
    }

    /// All prefixes behind one, or from the first on, with the stamp of the dump that found them last.
    pub(super) fn stamps(&self, after: Option<Prefix<A>>) -> impl Iterator<Item = (Prefix<A>, u8)> {
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.entries.range((first, Bound::Unbounded));
        rest.map(|(prefix, entry)| (*prefix, entry.stamp))
    }

    /// The prefixes with a route by a path of which something holds.
    pub(super) fn leading(&self, holds: impl Fn(PathId) -> bool) -> Vec<Prefix<A>> {
        let leads = |entry: &Entry| entry.all().any(|candidate| holds(candidate.path));
        self.entries.iter().filter(|(_, entry)| leads(entry)).map(|(prefix, _)| *prefix).collect()
    }

    /// All prefixes, from the first address on.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = Prefix<A>> {
        self.entries.keys().copied()
    }

    /// The prefixes that are longer than this one and in it.
    pub(super) fn below(&self, prefix: Prefix<A>) -> impl Iterator<Item = Prefix<A>> {
        let after = (Bound::Excluded(prefix), Bound::Included(Prefix::host(prefix.last())));
        self.entries.range(after).map(|(prefix, _)| *prefix)
    }

    /// Those of them with a route that throws.
    pub(super) fn throws_below(&self, prefix: Prefix<A>) -> impl Iterator<Item = Prefix<A>> {
        let after = (Bound::Excluded(prefix), Bound::Included(Prefix::host(prefix.last())));
        self.throws.range(after).copied()
    }

    /// What is done with packets to just this prefix; none where nothing is, so that a shorter one counts.
    pub(super) fn choice(&self, prefix: Prefix<A>, paths: &Paths) -> Option<Choice> {
        choose(self.entries.get(&prefix)?, family::<A>(), paths)
    }

    /// The longest prefix that covers this one, or is it, and by which something is done.
    pub(super) fn longest(&self, prefix: Prefix<A>, paths: &Paths) -> Option<(Prefix<A>, Choice)> {
        self.lengths.range(..=prefix.len()).rev().find_map(|(&len, _)| {
            let covering = Prefix::of(prefix.first(), len);
            Some((covering, self.choice(covering, paths)?))
        })
    }
}

/// The family of addresses of a type.
pub(super) fn family<A: Address>() -> Family {
    if A::BITS == Family::V4.bits() { Family::V4 } else { Family::V6 }
}

/// Which of a prefix's routes the kernel goes by.
fn choose(entry: &Entry, family: Family, paths: &Paths) -> Option<Choice> {
    if entry.others.is_none() && entry.first.tos == 0 && !entry.first.has_source {
        return choice_of(&entry.first, paths);
    }
    if entry.all().any(|candidate| candidate.tos != 0 || candidate.has_source) {
        return Some(Choice::Kernel);
    }
    let usable = || entry.all().filter(|candidate| paths.standing(candidate.path) != Standing::Unusable);
    let chosen = match family {
        Family::V4 => usable().next(),
        // Among those of the lowest metric, or else among all others, the most preferred.
        Family::V6 => {
            let lowest = entry.first.priority;
            most_preferred(usable().filter(|candidate| candidate.priority == lowest))
                .or_else(|| most_preferred(usable()))
        }
    };
    choice_of(chosen?, paths)
}

/// The first of the most preferred.
fn most_preferred<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> Option<&'a Candidate> {
    candidates.reduce(|best, next| if next.preference > best.preference { next } else { best })
}

#[inline]
fn choice_of(candidate: &Candidate, paths: &Paths) -> Option<Choice> {
    match paths.standing(candidate.path) {
        Standing::Decides => Some(Choice::Path(candidate.path)),
        Standing::Throws => Some(Choice::Throw),
        Standing::Unusable => None,
    }
}
