//! Networks of one family: what control keeps of them, and what workers find an address in.
//!
//! An address is in a table by the longest network that contains it. That cuts all addresses into intervals
//! which are in or out; a [`Snapshot`] holds their starts. What changed since those were cut lies before them
//! as a short list of intervals, so that one address more costs no new cut of 200,000.
use crate::steps::{Find, Key};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Intervals that a list of changes may have before all intervals are rebuilt.
const MOST_CHANGES: usize = 512;

/// What is counted for each address: packets and bytes, of those blocked, matched and passed, in and out.
#[derive(Debug, Default)]
pub(crate) struct EntryCounters(pub(crate) [[[AtomicU64; 2]; 3]; 2]);

/// What control knows of a network in a table.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) is_negated: bool,
    pub(crate) counters: Option<Arc<EntryCounters>>,
    /// When it was added or its counters were cleared.
    pub(crate) since: Duration,
}

/// The networks of one family, by first address and length.
#[derive(Debug)]
pub(crate) struct Networks<K: Key> {
    pub(crate) entries: BTreeMap<(K, u8), Entry>,
    cut: Cut<K>,
    changes: Vec<Interval<K>>,
}

#[derive(Debug)]
pub(crate) struct Snapshot<K: Key> {
    /// Nothing, if nothing changed since the cut.
    changes: Option<Changes<K>>,
    cut: Cut<K>,
}

/// Intervals that changed, and those between them.
#[derive(Debug)]
struct Changes<K: Key> {
    steps: K::Steps,
    /// By interval; None where nothing changed.
    answers: Box<[Option<NetworkMatch>]>,
}

#[derive(Clone, Debug)]
struct Cut<K: Key> {
    /// Intervals that are alternately out of the table and in it, the first of them out (and empty, where the
    /// least address is in); or, if addresses are counted, whatever `answers` says.
    steps: K::Steps,
    answers: Arc<[NetworkMatch]>,
}

#[derive(Clone, Debug)]
struct Interval<K> {
    first: K,
    last: K,
    answer: NetworkMatch,
}

#[derive(Clone, Debug, Default)]
struct NetworkMatch {
    is_in: bool,
    counters: Option<Arc<EntryCounters>>,
}

impl NetworkMatch {
    fn is_like(&self, other: &NetworkMatch) -> bool {
        let counters = (self.counters.as_ref().map(Arc::as_ptr), other.counters.as_ref().map(Arc::as_ptr));
        self.is_in == other.is_in && counters.0 == counters.1
    }
}

impl<K: Key> Snapshot<K> {
    /// Whether an address is in the table.
    #[inline]
    pub(crate) fn contains(&self, address: K) -> bool {
        if let Some(changed) = self.changed_answer(address) {
            return changed.is_in;
        }
        let place = self.cut.steps.find_interval(address);
        match self.cut.answers.get(place) {
            Some(answer) => answer.is_in,
            None => place % 2 == 1,
        }
    }

    /// The starts of its intervals, with whether addresses from there on are in; nothing if there are
    /// more than so many.
    pub(crate) fn interval_borders(&self, most: usize) -> Option<Vec<(K, bool)>> {
        let changes = self.changes.as_ref().map(|changes| &changes.steps);
        if self.cut.steps.len() + changes.map_or(0, K::Steps::len) > most {
            return None;
        }
        let starts =
            |steps: &K::Steps| (0..steps.len()).map(|place| steps.interval_start(place)).collect::<Vec<K>>();
        let mut starts = [starts(&self.cut.steps), changes.map(starts).unwrap_or_default()].concat();
        starts.sort_unstable();
        let mut borders: Vec<(K, bool)> =
            starts.iter().map(|start| (*start, self.contains(*start))).collect();
        borders.dedup_by_key(|(_, is_in)| *is_in);
        Some(borders)
    }

    /// The counters of the network that makes an address be in or out.
    pub(crate) fn counters(&self, address: K) -> Option<&EntryCounters> {
        let cut = || self.cut.answers.get(self.cut.steps.find_interval(address));
        self.changed_answer(address).or_else(cut)?.counters.as_deref()
    }

    #[inline]
    fn changed_answer(&self, address: K) -> Option<&NetworkMatch> {
        let changes = self.changes.as_ref()?;
        changes.answers[changes.steps.find_interval(address)].as_ref()
    }
}

impl<K: Key> Changes<K> {
    fn new(intervals: &[Interval<K>]) -> Option<Changes<K>> {
        let (mut starts, mut answers) = (vec![K::LEAST], vec![None]);
        for interval in intervals {
            if starts.last() == Some(&interval.first) {
                // Nothing is between this one and the one before.
                starts.pop();
                answers.pop();
            }
            starts.push(interval.first);
            answers.push(Some(interval.answer.clone()));
            if let Some(behind) = interval.last.next() {
                starts.push(behind);
                answers.push(None);
            }
        }
        let is_any = !intervals.is_empty();
        is_any.then(|| Changes { steps: K::Steps::new(starts), answers: answers.into() })
    }
}

impl<K: Key> Default for Networks<K> {
    fn default() -> Networks<K> {
        let cut = Cut { steps: K::Steps::new(vec![K::LEAST]), answers: Arc::new([]) };
        Networks { entries: BTreeMap::new(), cut, changes: Vec::new() }
    }
}

impl<K: Key> Networks<K> {
    /// What workers are to read from now on.
    pub(crate) fn snapshot(&self) -> Snapshot<K> {
        Snapshot { changes: Changes::new(&self.changes), cut: self.cut.clone() }
    }

    /// Takes account of networks that came, went or changed in `entries`.
    pub(crate) fn update_intervals(&mut self, networks: &[(K, u8)]) {
        let is_short = networks.len() <= MOST_CHANGES / 4;
        if !is_short || !networks.iter().all(|network| self.patch_intervals(*network)) {
            self.rebuild_cut();
        }
    }

    /// The longest network that contains an address.
    pub(crate) fn longest_match(&self, address: K) -> Option<((K, u8), &Entry)> {
        self.find_covering(address, K::BITS)
    }

    fn find_covering(&self, address: K, most: u8) -> Option<((K, u8), &Entry)> {
        (0..=most).rev().find_map(|length| {
            let network = (address.first_of(length), length);
            self.entries.get(&network).map(|entry| (network, entry))
        })
    }

    fn rebuild_cut(&mut self) {
        let intervals = self.cut_intervals(K::LEAST, K::MOST, NetworkMatch::default());
        let counts = self.entries.values().any(|entry| entry.counters.is_some());
        let mut starts: Vec<K> = intervals.iter().map(|interval| interval.first).collect();
        if !counts && intervals[0].answer.is_in {
            starts.insert(0, K::LEAST);
        }
        let answers = intervals.into_iter().map(|interval| interval.answer);
        let answers = if counts { answers.collect() } else { Arc::default() };
        self.cut = Cut { steps: K::Steps::new(starts), answers };
        self.changes.clear();
    }

    /// Puts the intervals of one network into the list of changes, unless that grows too long.
    fn patch_intervals(&mut self, (address, length): (K, u8)) -> bool {
        let (first, last) = (address, address.last_of(length));
        if self.entries.range((first, length)..=(last, K::BITS)).nth(MOST_CHANGES / 4).is_some() {
            return false;
        }
        let cover = length.checked_sub(1).and_then(|most| self.find_covering(first, most));
        let cover = cover.map(|(_, entry)| entry.to_match()).unwrap_or_default();
        let new = self.cut_intervals(first, last, cover);
        let begin = self.changes.partition_point(|interval| interval.last < first);
        let end = self.changes.partition_point(|interval| interval.first <= last);
        let before = self.changes[begin..end].first().filter(|interval| interval.first < first).cloned();
        let after = self.changes[begin..end].last().filter(|interval| interval.last > last).cloned();
        let before = before.and_then(|interval| Some(Interval { last: first.previous()?, ..interval }));
        let after = after.and_then(|interval| Some(Interval { first: last.next()?, ..interval }));
        self.changes.splice(begin..end, before.into_iter().chain(new).chain(after));
        self.changes.len() <= MOST_CHANGES
    }

    /// The intervals from one address to another, whose networks lie wholly within, with what
    /// holds outside of those.
    fn cut_intervals(&self, first: K, last: K, outside: NetworkMatch) -> Vec<Interval<K>> {
        let mut starts = vec![(first, outside.clone())];
        let mut open: Vec<(K, NetworkMatch)> = Vec::new();
        for ((start, length), entry) in self.entries.range((first, 0)..=(last, K::BITS)) {
            if start.last_of(*length) > last {
                continue; // it begins where the range does, and covers it
            }
            close_ended(&mut open, &mut starts, Some(*start), &outside);
            starts.push((*start, entry.to_match()));
            open.push((start.last_of(*length), entry.to_match()));
        }
        close_ended(&mut open, &mut starts, None, &outside);
        merge_intervals(starts, last)
    }
}

/// Ends the open networks that end before an address (or all), each where what is around it goes on.
fn close_ended<K: Key>(
    open: &mut Vec<(K, NetworkMatch)>,
    starts: &mut Vec<(K, NetworkMatch)>,
    before: Option<K>,
    outside: &NetworkMatch,
) {
    while let Some((end, _)) = open.pop_if(|(end, _)| before.is_none_or(|before| *end < before)) {
        let around = open.last().map_or(outside, |(_, answer)| answer);
        starts.extend(end.next().map(|next| (next, around.clone())));
    }
}

/// Intervals from their starts: of several at one address the last counts, and equal neighbors are one.
fn merge_intervals<K: Key>(starts: Vec<(K, NetworkMatch)>, last: K) -> Vec<Interval<K>> {
    let mut intervals: Vec<Interval<K>> = Vec::with_capacity(starts.len());
    for (place, (first, answer)) in starts.iter().enumerate() {
        let next = starts.get(place + 1).map(|(next, _)| *next);
        if *first > last || next == Some(*first) {
            continue;
        }
        match intervals.last() {
            Some(before) if before.answer.is_like(answer) => (),
            _ => intervals.push(Interval { first: *first, last, answer: answer.clone() }),
        }
    }
    let firsts: Vec<K> = intervals.iter().map(|interval| interval.first).collect();
    for (interval, next) in intervals.iter_mut().zip(firsts.into_iter().skip(1)) {
        interval.last = next.previous().unwrap_or(K::LEAST);
    }
    intervals
}

impl Entry {
    fn to_match(&self) -> NetworkMatch {
        NetworkMatch { is_in: !self.is_negated, counters: self.counters.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(is_negated: bool, counts: bool) -> Entry {
        Entry { is_negated, counters: counts.then(Arc::default), since: Duration::ZERO }
    }

    fn longest(networks: &Networks<u32>, address: u32) -> Option<&Entry> {
        let containing =
            networks.entries.iter().filter(|((first, length), _)| address.first_of(*length) == *first);
        containing.max_by_key(|((_, length), _)| *length).map(|(_, entry)| entry)
    }

    proptest! {
        #[test]
        fn the_longest_network_decides_after_any_changes(
            changes in proptest::collection::vec(
                proptest::collection::vec((any::<u8>(), 0u8..=32, any::<bool>(), any::<bool>()), 1..160),
                1..12,
            ),
            counts: bool,
        ) {
            let mut networks = Networks::<u32>::default();
            for change in changes {
                let mut touched = Vec::new();
                for (bits, length, is_there, is_negated) in change {
                    // Few bits, near both ends, so that networks nest and come again.
                    let network = ((u32::from(bits & 0xf0) << 24) | u32::from(bits & 15)).first_of(length);
                    touched.push((network, length));
                    match is_there {
                        true => networks.entries.insert((network, length), entry(is_negated, counts)),
                        false => networks.entries.remove(&(network, length)),
                    };
                }
                networks.update_intervals(&touched);
                let snapshot = networks.snapshot();
                for address in (0..=255u32).map(|n| ((n & 0xf0) << 24) | (n & 15)).chain([
                    u32::MAX,
                    0x7fff_ffff,
                    1 << 16,
                ]) {
                    let entry = longest(&networks, address);
                    prop_assert_eq!(snapshot.contains(address), entry.is_some_and(|entry| !entry.is_negated));
                    let counters = snapshot.counters(address).map(std::ptr::from_ref);
                    prop_assert_eq!(
                        counters,
                        entry.and_then(|entry| entry.counters.as_ref().map(Arc::as_ptr))
                    );
                    prop_assert_eq!(
                        networks.longest_match(address).map(|found| found.1.is_negated),
                        entry.map(|e| e.is_negated)
                    );
                }
            }
        }
    }

    #[test]
    fn one_address_more_does_not_cut_everything_anew() {
        let mut networks = Networks::<u32>::default();
        networks.entries.extend((0..5000u32).map(|n| ((n * 512, 24), entry(false, false))));
        let all: Vec<(u32, u8)> = networks.entries.keys().copied().collect();
        networks.update_intervals(&all);
        let before = networks.cut.clone();
        networks.entries.insert((256, 32), entry(false, false));
        networks.update_intervals(&[(256, 32)]);
        assert_eq!(before.steps.len(), networks.cut.steps.len());
        assert!(networks.snapshot().contains(256) && !networks.snapshot().contains(257));
        assert!(networks.snapshot().contains(255) && networks.snapshot().contains(512));
    }
}
