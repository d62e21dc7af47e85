//! Readers against a writer, in every order that their loads and stores can have.
//!
//! The writer runs first and its stores are noted. Then the reader runs once for each way of letting these
//! stores through between its loads; ways in which all loads find the same are tried once. An answer is right
//! if it was so before or after one of the updates that overlap the lookup.
use super::journal::{self, Store};
use super::read::{Memory, longest_match, longest_of_many};
use super::*;
use artery_storage::Pages;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

type Update = (Prefix<u32>, Option<Group>);

/// Stores of a few updates to the words that lookups of one address read.
struct Script {
    levels: Vec<strides::Level>,
    address: u32,
    /// The words before the first store.
    before: Vec<(usize, u32)>,
    version: u64,
    stores: Vec<Store>,
    /// How many stores are done when the updates are, from none on.
    bounds: Vec<usize>,
    /// The right answer after as many updates.
    answers: Vec<Group>,
}

fn apply_update(art: &mut Art<u32>, (prefix, group): Update) {
    match group {
        Some(group) => _ = art.insert(prefix, group).unwrap(),
        None => _ = art.remove(prefix),
    }
}

impl Script {
    fn new(layout: &str, address: u32, setup: &[Update], updates: &[Update]) -> Script {
        let mut art = Art::new(&Domain::new(), layout.parse().unwrap(), &Pages).unwrap();
        // A reader in its turn, so that no heap is used again.
        let mut reader = art.heaps.domain.reader();
        let _turn = reader.turn();
        setup.iter().for_each(|&update| apply_update(&mut art, update));
        let group_now = |art: &Art<u32>| art.lookup(address).map_or(NO_GROUP, |(_, group)| group);
        let picture: Vec<u32> = (0..1 << 14).map(|index| art.heaps.entry_at(index).0).collect();
        let mut script = Script {
            levels: art.heaps.levels().to_vec(),
            address,
            before: picture.iter().copied().enumerate().collect(),
            version: art.heaps.view().version(),
            stores: Vec::new(),
            bounds: vec![0],
            answers: vec![group_now(&art)],
        };
        for &update in updates {
            script.stores.extend(journal::capture_stores(|| apply_update(&mut art, update)));
            script.bounds.push(script.stores.len());
            script.answers.push(group_now(&art));
        }
        script.retain_read_stores();
        script
    }

    /// Drops words that a lookup of the address never reads.
    fn retain_read_stores(&mut self) {
        let read: BTreeSet<usize> = (0..=self.stores.len())
            .flat_map(|done| {
                let schedule = [done];
                let run = Run::new(self, &schedule);
                longest_match(&run, &self.levels, self.address);
                longest_of_many(&run, &self.levels, &[self.address]);
                run.taken.into_inner().into_iter().filter_map(|seen| seen.index)
            })
            .collect();
        self.before.retain(|(index, _)| read.contains(index));
        let is_read = |store: &Store| !matches!(store, Store::Word(index, _) if !read.contains(index));
        let kept = |bound: usize| self.stores[..bound].iter().filter(|store| is_read(store)).count();
        self.bounds = self.bounds.iter().map(|&bound| kept(bound)).collect();
        self.stores.retain(is_read);
    }

    /// Looks up under one schedule, and checks the answer.
    fn lookup_scheduled(&self, schedule: &[usize], is_batch: bool) -> Vec<Seen> {
        let run = Run::new(self, schedule);
        let found = if is_batch {
            longest_of_many(&run, &self.levels, &[self.address])[0]
        } else {
            longest_match(&run, &self.levels, self.address)
        };
        let taken = run.taken.into_inner();
        let (begin, end) = (taken[0].done, run.done.get());
        let first = self.bounds.iter().rposition(|&bound| bound <= begin).unwrap();
        let last = self.bounds.iter().position(|&bound| bound >= end).unwrap();
        let right = &self.answers[first..=last.max(first)];
        let (group, stores) = (found.group(), &self.stores);
        let why = "stores, and those let through before each load";
        assert!(right.contains(&group), "{group} is none of {right:?}; {why}: {stores:x?}, {taken:?}");
        assert!(taken.len() < 40 + 10 * self.stores.len(), "a reader goes round without end: {taken:?}");
        taken
    }

    /// Looks up under every schedule, and returns how many there are.
    fn check_all(&self, is_batch: bool) -> usize {
        let (mut schedule, mut count) = (vec![0], 0);
        loop {
            let taken = self.lookup_scheduled(&schedule, is_batch);
            count += 1;
            // The next one in order: the last load that can find something else.
            let Some((load, done)) =
                (0..taken.len()).rev().find_map(|load| Some((load, self.later_cut(load, taken[load])?)))
            else {
                return count;
            };
            schedule = taken[..load].iter().map(|seen| seen.done).collect();
            schedule.push(done);
        }
    }

    /// How many stores to let through before a load instead, for it to find the next other thing. The first
    /// load begins the lookup, so there each store counts.
    fn later_cut(&self, load: usize, seen: Seen) -> Option<usize> {
        let is_seen = |store: &Store| match *store {
            Store::Word(index, _) => seen.index == Some(index),
            Store::Version(_) => seen.index.is_none(),
        };
        let more = self.stores[seen.done..].iter().position(|store| load == 0 || is_seen(store))?;
        Some(seen.done + more + 1)
    }
}

/// A load: how many stores were done before it, and the word's index; none of the version.
#[derive(Clone, Copy, Debug)]
struct Seen {
    done: usize,
    index: Option<usize>,
}

/// One reader's view of a script.
struct Run<'a> {
    script: &'a Script,
    words: RefCell<Vec<(usize, u32)>>,
    version: Cell<u64>,
    done: Cell<usize>,
    /// How many stores are done before each load; loads after the last see no more than that one.
    schedule: &'a [usize],
    taken: RefCell<Vec<Seen>>,
}

impl<'a> Run<'a> {
    fn new(script: &'a Script, schedule: &'a [usize]) -> Run<'a> {
        Run {
            script,
            words: RefCell::new(script.before.clone()),
            version: Cell::new(script.version),
            done: Cell::new(0),
            schedule,
            taken: RefCell::default(),
        }
    }

    fn let_stores_through(&self, index: Option<usize>) {
        let mut taken = self.taken.borrow_mut();
        let until =
            self.schedule.get(taken.len()).copied().or(taken.last().map(|seen| seen.done)).unwrap_or(0);
        taken.push(Seen { done: until, index });
        for store in &self.script.stores[self.done.get()..until] {
            match *store {
                Store::Word(index, word) => {
                    let words = &mut self.words.borrow_mut();
                    let place = words.binary_search_by_key(&index, |&(index, _)| index).unwrap();
                    words[place].1 = word;
                }
                Store::Version(version) => self.version.set(version),
            }
        }
        self.done.set(until.max(self.done.get()));
    }
}

impl Memory for Run<'_> {
    fn load_word(&self, index: usize) -> Entry {
        self.let_stores_through(Some(index));
        let words = self.words.borrow();
        Entry(words[words.binary_search_by_key(&index, |&(index, _)| index).unwrap()].1)
    }
    fn load_version(&self) -> u64 {
        self.let_stores_through(None);
        self.version.get()
    }
    fn version_after(&self) -> u64 {
        self.load_version()
    }
}

const ADDRESS: u32 = 0x0a01_0203;

fn parse_updates(texts: &[(&str, Group)]) -> Vec<Update> {
    let update =
        |&(prefix, group): &(&str, Group)| (prefix.parse().unwrap(), Some(group).filter(|&g| g != 0));
    texts.iter().map(update).collect()
}

/// Checks every interleaving of lookups with these updates, group 0 meaning to remove.
fn check_interleavings(setup: &[(&str, Group)], changes: &[(&str, Group)]) {
    let script = Script::new("8/8/8/8", ADDRESS, &parse_updates(setup), &parse_updates(changes));
    let count = script.check_all(false) + script.check_all(true);
    assert!(count >= 20, "only {count} interleavings: the updates don't concern the lookup");
}

#[test]
fn a_reader_does_not_fall_back_on_a_default_that_went_before_a_longer_one() {
    check_interleavings(
        &[("0.0.0.0/0", 1), ("10.0.0.0/8", 2), ("10.9.0.0/16", 3)],
        &[("0.0.0.0/0", 0), ("10.0.0.0/8", 0)],
    );
}

#[test]
fn defaults_of_three_tables_are_seen_as_they_were_together() {
    let setup = [("10.0.0.0/8", 1), ("10.1.0.0/16", 2), ("10.1.9.0/24", 3)];
    check_interleavings(&setup, &[("10.0.0.0/8", 0), ("10.1.0.0/16", 0)]);
    check_interleavings(&setup, &[("10.1.0.0/16", 0), ("10.1.0.0/16", 4)]);
    check_interleavings(&setup, &[("10.0.0.0/8", 5), ("10.1.0.0/16", 0)]);
}

#[test]
fn a_default_that_goes_and_comes_back_deceives_nobody() {
    check_interleavings(
        &[("0.0.0.0/0", 1), ("10.9.0.0/16", 3)],
        &[("0.0.0.0/0", 2), ("10.0.0.0/8", 4), ("0.0.0.0/0", 1)],
    );
}

#[test]
fn a_route_is_not_missed_while_a_table_comes_and_goes() {
    check_interleavings(&[("10.0.0.0/8", 1)], &[("10.1.9.0/24", 2), ("10.1.9.0/24", 0)]);
    check_interleavings(&[("0.0.0.0/0", 1), ("10.1.0.0/16", 2)], &[("10.1.9.0/24", 3), ("10.1.0.0/16", 0)]);
    check_interleavings(&[("10.1.0.0/16", 2), ("10.1.9.0/24", 3)], &[("10.1.9.0/24", 0), ("10.1.0.0/16", 0)]);
}

#[test]
fn a_longer_prefix_hides_a_change_of_the_shorter_one() {
    check_interleavings(&[("10.0.0.0/8", 1)], &[("10.1.2.0/24", 2), ("10.0.0.0/8", 3), ("10.1.2.0/24", 0)]);
}

#[test]
fn the_last_table_may_go_while_a_default_above_changes() {
    let setup = [("0.0.0.0/0", 1), ("10.1.9.0/24", 3)];
    check_interleavings(&setup, &[("10.1.9.0/24", 0), ("10.1.0.0/16", 4), ("0.0.0.0/0", 2)]);
}

fn nearby_prefix() -> impl Strategy<Value = Prefix<u32>> {
    let len = prop::sample::select(vec![0u8, 4, 7, 8, 8, 12, 16, 16, 20, 24, 32]);
    // The address itself, or one that shares tables with it.
    let address = prop::sample::select(vec![ADDRESS, ADDRESS, 0x0a01_ff03, 0x0aff_0203]);
    (address, len).prop_map(|(address, len)| Prefix::of(address, len))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        if std::env::var_os("ARTERY_LONG").is_some() { 5000 } else { 40 }
    ))]

    #[test]
    fn any_updates_leave_any_lookup_right(
        setup in prop::collection::vec((nearby_prefix(), 1..9u32), 0..6),
        changes in prop::collection::vec((nearby_prefix(), prop::option::of(1..9u32)), 1..5),
        schedules in prop::collection::vec(prop::collection::vec(0..4usize, 4..30), 200),
        is_batch: bool,
    ) {
        let setup: Vec<Update> = setup.into_iter().map(|(prefix, group)| (prefix, Some(group))).collect();
        let script = Script::new("8/8/8/8", ADDRESS, &setup, &changes);
        for steps in schedules {
            let mut done = 0;
            let schedule: Vec<usize> = steps
                .iter()
                .map(|step| {
                    done = (done + step.saturating_sub(1)).min(script.stores.len());
                    done
                })
                .collect();
            script.lookup_scheduled(&schedule, is_batch);
        }
    }
}
