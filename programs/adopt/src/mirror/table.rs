//! One routing table of the kernel: for each prefix the routes in the order in which it prefers them.
//!
//! Routes of IPv6 may be for some sources only (RTA_SRC). They are kept apart from those for all sources,
//! since neither replaces the other and a dump lists them at different times. Only the kernel can find which
//! of the two a packet uses.
use super::paths::{PathId, Paths, Standing};
use crate::kernel::{Family, Route};
use artery_lpm::{Address, Prefix};
use std::collections::btree_map::Entry as Place;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;

/// A route, as one of those for a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) priority: u32,
    pub(super) path: PathId,
    pub(super) tos: u8,
    /// How much it is preferred among those of its metric (RFC 4191): more is better.
    pub(super) preference: u8,
}

/// Which routes of a table are meant: those to a prefix, from all sources or from those of one prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RouteKey<A: Address> {
    pub(super) prefix: Prefix<A>,
    /// `None` for all sources. The order of keys relies on that being the first.
    pub(super) source: Option<Prefix<u128>>,
}

impl<A: Address> RouteKey<A> {
    /// Those of a route to a prefix.
    pub(super) fn of(prefix: Prefix<A>, route: &Route) -> RouteKey<A> {
        let source = route.source.map(|(address, len)| match address {
            IpAddr::V4(address) => Prefix::of(u128::from(address.to_bits()) << 96, len),
            IpAddr::V6(address) => Prefix::of(address.to_bits(), len),
        });
        RouteKey { prefix, source }
    }

    /// Those to a prefix from all sources.
    pub(super) fn plain(prefix: Prefix<A>) -> RouteKey<A> {
        RouteKey { prefix, source: None }
    }
}

/// What is done with packets that have no longer prefix in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteChoice {
    /// One path, for every packet.
    Path(PathId),
    /// The search goes on in the next table.
    Throw,
    /// That depends on more than their destination.
    Kernel,
}

/// The routes of a prefix. There is at least one, and mostly no more.
#[derive(Clone, Debug)]
struct PrefixRoutes {
    first: Candidate,
    /// The dump that found them last.
    stamp: u8,
    #[allow(clippy::box_collection)] // a word for what is rare, where a vector has three
    others: Option<Box<Vec<Candidate>>>,
}

impl PrefixRoutes {
    /// `None` when there are no candidates.
    fn from_candidates(candidates: &[Candidate], stamp: u8) -> Option<PrefixRoutes> {
        let (&first, others) = candidates.split_first()?;
        let others = (!others.is_empty()).then(|| Box::new(others.to_vec()));
        Some(PrefixRoutes { first, stamp, others })
    }

    fn iter_candidates(&self) -> impl Iterator<Item = &Candidate> {
        std::iter::once(&self.first).chain(self.others.iter().flat_map(|others| others.iter()))
    }
}

/// What has become of the routes of a prefix.
pub(super) struct PrefixChange {
    /// Those that it had.
    pub(super) before: Vec<Candidate>,
    /// Whether other is done now with packets to just this prefix.
    pub(super) is_felt: bool,
}

impl PrefixChange {
    fn compare_entries<A: Address>(
        old: Option<&PrefixRoutes>,
        new: Option<&PrefixRoutes>,
        paths: &Paths,
    ) -> PrefixChange {
        let chosen = |entry: Option<&PrefixRoutes>| choose_route(entry?, family::<A>(), paths);
        let is_felt = chosen(old) != chosen(new);
        PrefixChange {
            before: old.map_or(Vec::new(), |old| old.iter_candidates().copied().collect()),
            is_felt,
        }
    }
}

/// One routing table of the kernel.
#[derive(Debug)]
pub(super) struct Table<A: Address> {
    /// Routes for all sources.
    entries: BTreeMap<Prefix<A>, PrefixRoutes>,
    /// Routes for some sources only. A prefix that has any is the kernel's.
    by_source: BTreeMap<RouteKey<A>, PrefixRoutes>,
    /// How many keys there are of a prefix length; of others there are none.
    lengths: BTreeMap<u8, u32>,
    /// Prefixes with a route that throws.
    throws: BTreeSet<Prefix<A>>,
    /// Prefixes with a route for one type of service, which only those of IPv4 have. They are the kernel's.
    by_tos: BTreeSet<Prefix<A>>,
}

impl<A: Address> Default for Table<A> {
    fn default() -> Table<A> {
        Table {
            entries: BTreeMap::new(),
            by_source: BTreeMap::new(),
            lengths: BTreeMap::new(),
            throws: BTreeSet::new(),
            by_tos: BTreeSet::new(),
        }
    }
}

impl<A: Address> Table<A> {
    /// How many prefixes have routes, counted once more for each prefix of sources.
    pub(super) fn len(&self) -> usize {
        self.entries.len() + self.by_source.len()
    }

    /// The routes of a key.
    pub(super) fn candidates(&self, key: RouteKey<A>) -> Vec<Candidate> {
        let entry = match key.source {
            None => self.entries.get(&key.prefix),
            Some(_) => self.by_source.get(&key),
        };
        entry.map_or(Vec::new(), |entry| entry.iter_candidates().copied().collect())
    }

    /// Sets the routes of a key, found by a dump or notified since. `None` if it had just them; then they
    /// are marked as found.
    pub(super) fn set_routes(
        &mut self,
        key: RouteKey<A>,
        candidates: &[Candidate],
        stamp: u8,
        paths: &Paths,
    ) -> Option<PrefixChange> {
        let entry = PrefixRoutes::from_candidates(candidates, stamp);
        if key.source.is_some() {
            return self.set_by_source(key, entry, paths);
        }
        let mut change = match entry {
            Some(entry) => self.set_plain(key.prefix, entry, paths)?,
            None => self.remove_plain(key.prefix, paths)?,
        };
        change.is_felt &= !self.has_source(key.prefix);
        Some(change)
    }

    fn set_plain(&mut self, prefix: Prefix<A>, entry: PrefixRoutes, paths: &Paths) -> Option<PrefixChange> {
        let (old, new) = match self.entries.entry(prefix) {
            Place::Occupied(place) => {
                let kept = place.into_mut();
                if kept.iter_candidates().eq(entry.iter_candidates()) {
                    kept.stamp = entry.stamp;
                    return None;
                }
                (Some(std::mem::replace(kept, entry)), kept)
            }
            Place::Vacant(place) => {
                *self.lengths.entry(prefix.len()).or_default() += 1;
                (None, place.insert(entry))
            }
        };
        let throws = new.iter_candidates().any(|one| paths.standing(one.path) == Standing::Throws);
        set_member(&mut self.throws, prefix, throws);
        set_member(&mut self.by_tos, prefix, new.iter_candidates().any(|candidate| candidate.tos != 0));
        Some(PrefixChange::compare_entries::<A>(old.as_ref(), Some(new), paths))
    }

    fn remove_plain(&mut self, prefix: Prefix<A>, paths: &Paths) -> Option<PrefixChange> {
        let old = self.entries.remove(&prefix)?;
        self.throws.remove(&prefix);
        self.by_tos.remove(&prefix);
        count_down(&mut self.lengths, prefix.len());
        Some(PrefixChange::compare_entries::<A>(Some(&old), None, paths))
    }

    /// What these routes are is of no account, but whether there are any.
    fn set_by_source(
        &mut self,
        key: RouteKey<A>,
        entry: Option<PrefixRoutes>,
        paths: &Paths,
    ) -> Option<PrefixChange> {
        let before = self.choose_at(key.prefix, paths);
        let old = match entry {
            Some(entry) => match self.by_source.entry(key) {
                Place::Occupied(mut place) if place.get().iter_candidates().eq(entry.iter_candidates()) => {
                    place.get_mut().stamp = entry.stamp;
                    return None;
                }
                Place::Occupied(mut place) => Some(place.insert(entry)),
                Place::Vacant(place) => {
                    *self.lengths.entry(key.prefix.len()).or_default() += 1;
                    place.insert(entry);
                    None
                }
            },
            None => {
                let old = self.by_source.remove(&key)?;
                count_down(&mut self.lengths, key.prefix.len());
                Some(old)
            }
        };
        let is_felt = before != self.choose_at(key.prefix, paths);
        Some(PrefixChange {
            before: old.map_or(Vec::new(), |old| old.iter_candidates().copied().collect()),
            is_felt,
        })
    }

    /// Whether a prefix has routes for some sources only.
    fn has_source(&self, prefix: Prefix<A>) -> bool {
        !self.by_source.is_empty() && self.source_prefixes(prefix).next().is_some()
    }

    /// The sources that a prefix has routes for, other than for all.
    pub(super) fn source_prefixes(&self, prefix: Prefix<A>) -> impl Iterator<Item = Prefix<u128>> {
        let keys = self.by_source.range(RouteKey::plain(prefix)..).map(|(key, _)| key);
        keys.take_while(move |key| key.prefix == prefix).filter_map(|key| key.source)
    }

    /// The prefixes whose packets go by more than their destination.
    pub(super) fn conditional_prefixes(&self) -> impl Iterator<Item = Prefix<A>> {
        let mut last = None;
        let by_source = self.by_source.keys().map(|key| key.prefix);
        let by_source = by_source.filter(move |prefix| last.replace(*prefix) != Some(*prefix));
        by_source.chain(self.by_tos.iter().copied().filter(|prefix| !self.has_source(*prefix)))
    }

    /// How many prefixes of sources, or types of service, its routes are for, by prefix.
    pub(super) fn count_conditions(&self) -> usize {
        self.by_source.len() + self.by_tos.len()
    }

    /// All keys behind one, or from the first on, with the stamp of the dump that found them last: those for
    /// all sources come first.
    pub(super) fn stamps_after(&self, after: Option<RouteKey<A>>) -> impl Iterator<Item = (RouteKey<A>, u8)> {
        let (plain, by_source) = match after {
            None => (Some(Bound::Unbounded), Bound::Unbounded),
            Some(key) if key.source.is_none() => (Some(Bound::Excluded(key.prefix)), Bound::Unbounded),
            Some(key) => (None, Bound::Excluded(key)),
        };
        let plain = plain.map(|first| self.entries.range((first, Bound::Unbounded))).into_iter().flatten();
        let plain = plain.map(|(prefix, entry)| (RouteKey::plain(*prefix), entry.stamp));
        let by_source = self.by_source.range((by_source, Bound::Unbounded));
        plain.chain(by_source.map(|(key, entry)| (*key, entry.stamp)))
    }

    /// The keys with a route by a path of which something holds.
    pub(super) fn keys_by_path(&self, holds: impl Fn(PathId) -> bool) -> Vec<RouteKey<A>> {
        let leads = |entry: &PrefixRoutes| entry.iter_candidates().any(|candidate| holds(candidate.path));
        let plain = self.entries.iter().filter(|(_, entry)| leads(entry));
        let by_source = self.by_source.iter().filter(|(_, entry)| leads(entry)).map(|(key, _)| *key);
        plain.map(|(prefix, _)| RouteKey::plain(*prefix)).chain(by_source).collect()
    }

    /// All prefixes; some may come twice.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = Prefix<A>> {
        self.entries.keys().copied().chain(self.by_source.keys().map(|key| key.prefix))
    }

    /// The prefixes that are longer than this one and in it; some may come twice.
    pub(super) fn longer_prefixes(&self, prefix: Prefix<A>) -> impl Iterator<Item = Prefix<A>> {
        let last = Prefix::host(prefix.last());
        let plain = self.entries.range((Bound::Excluded(prefix), Bound::Included(last)));
        let by_source = self.by_source.range(RouteKey::plain(prefix)..).map(|(key, _)| key.prefix);
        let by_source = by_source.take_while(move |below| *below <= last).filter(move |it| *it != prefix);
        plain.map(|(prefix, _)| *prefix).chain(by_source)
    }

    /// Whether any prefix has a route that throws.
    pub(super) fn has_throws(&self) -> bool {
        !self.throws.is_empty()
    }

    /// Those of them with a route that throws.
    pub(super) fn throws_below(&self, prefix: Prefix<A>) -> impl Iterator<Item = Prefix<A>> {
        let after = (Bound::Excluded(prefix), Bound::Included(Prefix::host(prefix.last())));
        self.throws.range(after).copied()
    }

    /// What is done with packets to just this prefix; none where nothing is, so that a shorter one counts.
    pub(super) fn choose_at(&self, prefix: Prefix<A>, paths: &Paths) -> Option<RouteChoice> {
        if self.has_source(prefix) {
            return Some(RouteChoice::Kernel);
        }
        choose_route(self.entries.get(&prefix)?, family::<A>(), paths)
    }

    /// The longest prefix that covers this one, or is it, and by which something is done.
    pub(super) fn lookup_longest(
        &self,
        prefix: Prefix<A>,
        paths: &Paths,
    ) -> Option<(Prefix<A>, RouteChoice)> {
        self.lengths.range(..=prefix.len()).rev().find_map(|(&len, _)| {
            let covering = Prefix::of(prefix.first(), len);
            Some((covering, self.choose_at(covering, paths)?))
        })
    }
}

/// The family of addresses of a type.
pub(super) fn family<A: Address>() -> Family {
    if A::BITS == Family::V4.bits() { Family::V4 } else { Family::V6 }
}

/// One less of a length.
fn count_down(lengths: &mut BTreeMap<u8, u32>, len: u8) {
    if let Place::Occupied(mut count) = lengths.entry(len) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

fn set_member<A: Address>(set: &mut BTreeSet<Prefix<A>>, prefix: Prefix<A>, is_member: bool) {
    if is_member {
        set.insert(prefix);
    } else if !set.is_empty() {
        set.remove(&prefix);
    }
}

/// Which of a prefix's routes the kernel goes by.
fn choose_route(entry: &PrefixRoutes, family: Family, paths: &Paths) -> Option<RouteChoice> {
    if entry.others.is_none() && entry.first.tos == 0 {
        return choice_of(&entry.first, paths);
    }
    if entry.iter_candidates().any(|candidate| candidate.tos != 0) {
        return Some(RouteChoice::Kernel);
    }
    let usable =
        || entry.iter_candidates().filter(|candidate| paths.standing(candidate.path) != Standing::Unusable);
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
fn choice_of(candidate: &Candidate, paths: &Paths) -> Option<RouteChoice> {
    match paths.standing(candidate.path) {
        Standing::Decides => Some(RouteChoice::Path(candidate.path)),
        Standing::Throws => Some(RouteChoice::Throw),
        Standing::Unusable => None,
    }
}
