use super::*;
use crate::runs::{Holes, Runs};
use artery_storage::{Pages, Region};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Routes in a sorted map, looked through one by one.
struct Model<A>(BTreeMap<Prefix<A>, Group>);

impl<A: Address> Model<A> {
    fn lookup(&self, address: A) -> Option<(Prefix<A>, Group)> {
        let covering = self.0.iter().filter(|(prefix, _)| prefix.contains(address));
        covering.max_by_key(|(prefix, _)| prefix.len()).map(|(&prefix, &group)| (prefix, group))
    }
    fn group(&self, address: A) -> Group {
        self.lookup(address).map_or(NO_GROUP, |(_, group)| group)
    }
}

fn before<A: Address>(address: A) -> Option<A> {
    // The highest clear run below: flip the lowest one and all zeros after it.
    (0..A::BITS).rev().find(|&bit| address.field(bit, 1) == 1).map(|bit| {
        let one = A::from_field(1, bit, 1);
        (address ^ one).or(if bit + 1 == A::BITS { A::ZERO } else { A::ZERO.broadcast(bit + 1) })
    })
}

/// First and last of each prefix and their neighbours.
fn boundaries<A: Address>(prefixes: impl IntoIterator<Item = Prefix<A>>) -> Vec<A> {
    let around = |prefix: Prefix<A>| {
        [before(prefix.first()), Some(prefix.first()), Some(prefix.last()), prefix.last().next()]
    };
    prefixes.into_iter().flat_map(around).flatten().collect()
}

fn art<A: Address>(strides: &str) -> Art<A> {
    Art::new(&Domain::new(), strides.parse().unwrap(), &Pages).unwrap()
}

fn assert_same<A: Address>(art: &Art<A>, model: &Model<A>, addresses: &[A]) {
    assert_eq!(art.len(), model.0.len());
    assert!(art.iter().eq(model.0.iter().map(|(&prefix, &group)| (prefix, group))), "the walk differs");
    let mut reader = art.heaps.domain.reader();
    let turn = reader.turn();
    let mut groups = vec![99; addresses.len()];
    art.reader().lookup_batch(&turn, addresses, &mut groups);
    for (&address, &group) in addresses.iter().zip(&groups) {
        assert_eq!(art.lookup(address), model.lookup(address), "{address:?}");
        assert_eq!(art.reader().lookup(&turn, address), model.group(address), "{address:?}");
        assert_eq!(group, model.group(address), "{address:?} in a batch");
    }
}

fn assert_same_holes<A: Address>(art: &Art<A>, model: &Model<A>, within: Prefix<A>) {
    let mut holes = Vec::new();
    art.for_each_hole(within, |first, last| holes.push((first, last)));
    assert!(holes.windows(2).all(|pair| pair[0].1 < pair[1].0), "holes out of order");
    for address in boundaries(model.0.keys().copied().chain([within])) {
        let is_covered = model.lookup(address).is_some_and(|(prefix, _)| prefix.len() > within.len());
        let is_hole = holes.iter().any(|(first, last)| (*first..=*last).contains(&address));
        assert_eq!(is_hole, within.contains(address) && !is_covered, "{address:?} in {within}");
    }
    let shorter = model.0.iter().filter(|(prefix, _)| (1..within.len()).contains(&prefix.len()));
    let cover = shorter.filter(|(prefix, _)| prefix.covers(within)).max_by_key(|(prefix, _)| prefix.len());
    assert_eq!(art.cover(within), cover.map_or(NO_GROUP, |(_, group)| *group), "the cover of {within}");
}

fn assert_same_runs<A: Address>(art: &Art<A>, model: &Model<A>, within: Prefix<A>) {
    let mut expected = Some(within.first());
    let default =
        Model(model.0.iter().filter(|(prefix, _)| prefix.len() > 0).map(|(p, g)| (*p, *g)).collect());
    let changes: Vec<A> =
        boundaries(model.0.keys().copied()).into_iter().filter(|&a| within.contains(a)).collect();
    art.for_each_run(within, |first, last, group| {
        assert_eq!(Some(first), expected, "runs of {within} leave a gap or overlap");
        assert!(first <= last && within.contains(last));
        for address in changes.iter().copied().filter(|address| (first..=last).contains(address)) {
            assert_eq!(group, default.group(address), "{address:?} in {within}");
        }
        assert_eq!(group, default.group(first));
        expected = last.next();
    });
    assert_eq!(expected, within.last().next(), "runs of {within} end early");
    assert_eq!(art.default_group(), model.0.get(&Prefix::ALL).copied().unwrap_or(NO_GROUP));
}

const LAYOUTS_4: [&str; 7] = [
    "8/4/4/4/4/4/4",
    "8/8/8/8",
    "16/8/8",
    "12/12/8",
    "1/2/3/4/5/6/7/4",
    "2/2/2/2/2/2/4/16",
    "4/4/4/4/4/4/4/4",
];
const LAYOUTS_6: [&str; 3] = [
    "4/4/4/4/4/4/4/4/4/4/4/4/4/4/4/4/4/4/4/4/4/4/4/4/4/4/4/4/4/4/4/4",
    "16/8/8/8/8/8/8/8/8/8/8/8/8/8/8",
    "3/5/8/16/1/7/8/16/16/16/16/16",
];

/// Prefixes that nest and neighbour: few bit patterns, every length.
fn crowd4() -> impl Strategy<Value = Prefix<u32>> {
    let pattern = prop_oneof![
        Just(0u32),
        Just(u32::MAX),
        Just(0x0a0a_0a0a),
        Just(0x0a0a_0aff),
        0u32..0x1_0000,
        any::<u32>()
    ];
    let len = prop_oneof![0u8..=32, Just(8), Just(12), Just(16), Just(24), Just(32), Just(0)];
    (pattern, len).prop_map(|(bits, len)| Prefix::of(bits, len))
}

fn crowd6() -> impl Strategy<Value = Prefix<u128>> {
    let pattern = prop_oneof![Just(0u128), Just(u128::MAX), Just(0x2001_0db8 << 96), any::<u128>()];
    (pattern, 0u8..=128, 0u8..3).prop_map(|(bits, len, flip)| {
        let flip = if flip == 0 && len > 0 { u128::from_field(1, len - 1, 1) } else { 0 };
        Prefix::of(bits ^ flip, len)
    })
}

/// A group to insert, or none to remove.
fn operations<A: Address>(
    prefix: impl Strategy<Value = Prefix<A>>,
) -> impl Strategy<Value = Vec<(Prefix<A>, Option<Group>)>> {
    let group =
        prop_oneof![2 => (1..5u32).prop_map(Some), 1 => Just(Some(Art::<A>::MAX_GROUP)), 2 => Just(None)];
    // A short list of prefixes that operations choose from, so that they meet.
    (
        proptest::collection::vec(prefix, 1..24),
        proptest::collection::vec((any::<prop::sample::Index>(), group), 1..120),
    )
        .prop_map(|(prefixes, choices)| {
            choices.into_iter().map(|(index, group)| (*index.get(&prefixes), group)).collect()
        })
}

fn follows_the_model<A: Address>(layout: &str, operations: &[(Prefix<A>, Option<Group>)]) {
    let (mut art, mut model) = (art::<A>(layout), Model(BTreeMap::new()));
    let addresses = boundaries(operations.iter().map(|(prefix, _)| *prefix));
    for (number, &(prefix, group)) in operations.iter().enumerate() {
        let old = match group {
            Some(group) => art.insert(prefix, group).unwrap(),
            None => art.remove(prefix),
        };
        let expected = match group {
            Some(group) => model.0.insert(prefix, group),
            None => model.0.remove(&prefix),
        };
        assert_eq!(old, expected, "{prefix} {group:?}");
        assert_eq!(art.get(prefix), group);
        if number % 16 == 0 || number + 1 == operations.len() {
            assert_same(&art, &model, &addresses);
            assert_same_runs(&art, &model, prefix);
            assert_same_holes(&art, &model, prefix);
            assert_same_runs(&art, &model, Prefix::ALL);
            assert_same_holes(&art, &model, Prefix::ALL);
            let inside = model.0.range((Bound::Excluded(prefix), Bound::Unbounded));
            let inside = inside.map(|(&p, &g)| (p, g)).filter(|(other, _)| prefix.covers(*other));
            assert!(art.more_specifics(prefix).eq(inside), "more specifics of {prefix}");
            let later = model.0.range((Bound::Excluded(prefix), Bound::Unbounded));
            assert!(art.routes_after(prefix).eq(later.map(|(&p, &g)| (p, g))), "after {prefix}");
        }
    }
    for prefix in model.0.keys() {
        art.remove(*prefix);
    }
    assert_empty(&art);
}

fn assert_empty<A: Address>(art: &Art<A>) {
    assert!(art.is_empty() && art.iter().next().is_none());
    assert_eq!(art.tables.iter().sum::<usize>(), 1, "only the root is left");
    let root = &art.heaps.words()[..art.heaps.levels()[0].words()];
    assert!(root.iter().all(|word| Heaps::<A>::load_entry(word).is_none()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        if std::env::var_os("ARTERY_LONG").is_some() { 20_000 } else { 60 }
    ))]

    #[test]
    fn v4_follows_the_model(operations in operations(crowd4())) {
        LAYOUTS_4.iter().for_each(|layout| follows_the_model(layout, &operations));
    }

    #[test]
    fn v6_follows_the_model(operations in operations(crowd6())) {
        LAYOUTS_6.iter().for_each(|layout| follows_the_model(layout, &operations));
    }
}

#[test]
fn an_empty_table_answers_nothing_and_is_one_run() {
    let art = art::<u32>("16/8/8");
    assert_eq!(art.lookup(5), None);
    assert_eq!(art.get(Prefix::ALL), None);
    let mut runs = Vec::new();
    art.for_each_run(Prefix::ALL, |first, last, group| runs.push((first, last, group)));
    assert_eq!(runs, [(0, u32::MAX, NO_GROUP)]);
}

#[test]
fn groups_that_no_word_holds_are_refused() {
    let mut art = art::<u32>("16/8/8");
    for group in [NO_GROUP, Art::<u32>::MAX_GROUP + 1, u32::MAX] {
        assert_eq!(art.insert(Prefix::ALL, group), Err(CannotInsert::Group(group)));
    }
    assert_empty(&art);
}

/// Gives a few words only.
struct Small(usize);

impl Storage for Small {
    fn map_region(&self, _: &'static str, bytes: usize) -> io::Result<Region> {
        if bytes > self.0 { Err(io::ErrorKind::OutOfMemory.into()) } else { Region::map_anonymous(bytes) }
    }
}

#[test]
fn a_full_table_says_so_and_keeps_what_it_has() {
    let mut art = Art::<u32>::new(&Domain::new(), "16/8/8".parse().unwrap(), &Small(4 << 20)).unwrap();
    let mut model = Model(BTreeMap::new());
    let full = (0u32..).map(|n| Prefix::host(n.wrapping_mul(0x9e37_79b1))).find(|&prefix| {
        let result = art.insert(prefix, 1);
        if result.is_ok() {
            model.0.insert(prefix, 1);
        }
        result == Err(CannotInsert::Full)
    });
    let full = full.unwrap();
    assert_eq!((art.get(full), art.lookup(full.first())), (None, None));
    assert_same(&art, &model, &boundaries(model.0.keys().copied().take(50)));
    let tables = art.tables.clone();
    assert_eq!(art.insert(full, 1), Err(CannotInsert::Full));
    assert_eq!(art.tables, tables);
    // What is removed makes room again, once enough has gone to be waited for together.
    let gone: Vec<_> = model.0.keys().copied().collect();
    gone.iter().for_each(|&prefix| assert_eq!(art.remove(prefix), Some(1)));
    assert_eq!(art.insert(full, 1), Ok(None));
}

#[test]
fn storage_that_gives_too_little_is_an_error() {
    assert!(Art::<u32>::new(&Domain::new(), Strides::fast(), &Small(1 << 16)).is_err());
}

#[test]
fn heaps_are_used_again_and_clean_after_the_turns_that_could_see_them() {
    let domain = Domain::new();
    let mut art = Art::<u32>::new(&domain, "8/16/8".parse().unwrap(), &Pages).unwrap();
    let (short, long) = (Prefix::of(0x0a00_0000, 8), Prefix::of(0x0a01_0000, 20));
    art.insert(short, 1).unwrap();
    let mut reader = domain.reader();
    for round in 0..100 {
        let _turn = reader.turn();
        art.insert(long, 2).unwrap();
        assert_eq!(art.lookup(long.first()), Some((long, 2)), "{round}");
        assert_eq!(art.remove(long), Some(2));
        assert_eq!(art.lookup(long.first()), Some((short, 1)));
    }
    let memory = art.memory();
    assert!(memory.free <= 3 * (2 << 16) * 4, "{memory:?}");
    drop(reader);
    art.insert(Prefix::of(0x0b01_0000, 20), 3).unwrap();
    assert_eq!(art.lookup(0x0b02_0000), None);
}

#[test]
fn a_cleared_table_is_empty_and_can_be_filled_again() {
    let mut art = art::<u32>("8/4/4/4/4/4/4");
    let routes: Vec<_> =
        (0..5000u32).map(|n| (Prefix::of(n.wrapping_mul(0x9e37_79b1), (n % 33) as u8), n + 1)).collect();
    let mut filled = Vec::new();
    for _ in 0..3 {
        for &(prefix, group) in &routes {
            art.insert(prefix, group).unwrap();
        }
        filled.push((art.iter().collect::<Vec<_>>(), art.memory().heaps));
        art.clear();
        assert_empty(&art);
        assert_eq!(art.lookup(routes[32].0.first()), None);
    }
    assert!(filled.iter().all(|same| *same == filled[0]));
    assert!(art.memory().free <= 2 * filled[0].1, "freed heaps are used again");
}

#[test]
fn tables_are_where_a_prefix_has_longer_ones_below() {
    let mut art = art::<u32>("8/4/4/4/4/4/4");
    for text in ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32", "11.0.0.0/9"] {
        art.insert(text.parse().unwrap(), 1).unwrap();
    }
    let tables: Vec<_> = art.memory().levels.iter().map(|level| (level.offset, level.tables)).collect();
    assert_eq!(tables, [(0, 1), (8, 2), (12, 1), (16, 1), (20, 1), (24, 1), (28, 1)]);
    assert_eq!(art.memory().heaps, 512 * 4 + 7 * 32 * 4);
}
