//! Both layouts, with all instructions that the machine has, against a list of prefixes.
use super::*;
use crate::fib::{BuildError, NeedsRebuild};
use crate::runs::NO_GROUP;
use artery_rcu::{Domain, Turn};
use artery_storage::{Pages, Simd};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// Routes, looked up by going through all of them.
#[derive(Clone, Default)]
struct Model(BTreeMap<Prefix<u32>, Group>);

impl Model {
    fn lookup(&self, address: u32) -> Group {
        let best = self
            .0
            .iter()
            .filter(|(prefix, _)| prefix.contains(address))
            .max_by_key(|(prefix, _)| prefix.len());
        best.map_or(NO_GROUP, |(_, group)| *group)
    }

    /// Addresses at which something could be off by one.
    fn edges(&self) -> Vec<u32> {
        let sides = |prefix: &Prefix<u32>| {
            let (first, last) = (prefix.first(), prefix.last());
            [
                first.wrapping_sub(1),
                first,
                first.wrapping_add(1),
                last.wrapping_sub(1),
                last,
                last.wrapping_add(1),
            ]
        };
        self.0.keys().flat_map(sides).chain([0, u32::MAX]).collect()
    }
}

impl Runs<u32> for Model {
    fn for_each_run(&self, within: Prefix<u32>, mut each: impl FnMut(u32, u32, Group)) {
        let routes =
            Model(self.0.iter().filter(|(prefix, _)| prefix.len() > 0).map(|(p, g)| (*p, *g)).collect());
        let edges = routes.0.keys().flat_map(|prefix| [Some(prefix.first()), prefix.last().next()]);
        let mut starts: Vec<u32> =
            edges.flatten().filter(|at| within.contains(*at)).chain([within.first()]).collect();
        starts.sort_unstable();
        starts.dedup();
        for (number, start) in starts.iter().enumerate() {
            let last = starts.get(number + 1).map_or(within.last(), |next| next - 1);
            each(*start, last, routes.lookup(*start));
        }
    }

    fn default_group(&self) -> Group {
        self.0.get(&Prefix::ALL).copied().unwrap_or(NO_GROUP)
    }
}

/// What the tests need of a layout.
trait Layout: Sized {
    type Reader: Clone + Send + Sync;
    fn build(domain: &Arc<Domain>, model: &Model, options: Fib4Options) -> Result<Self, BuildError>;
    fn update(&mut self, model: &Model, changed: Prefix<u32>) -> Result<(), NeedsRebuild>;
    fn reader(&self) -> Self::Reader;
    fn with_simd(reader: Self::Reader, simd: Simd) -> Self::Reader;
    fn lookup(reader: &Self::Reader, turn: &Turn<'_>, address: u32) -> Group;
    fn lookup_batch(reader: &Self::Reader, turn: &Turn<'_>, addresses: &[u32], out: &mut [Group]);
}

macro_rules! layout {
    ($fib:ident, $reader:ident) => {
        impl Layout for $fib {
            type Reader = $reader;
            fn build(domain: &Arc<Domain>, model: &Model, options: Fib4Options) -> Result<$fib, BuildError> {
                $fib::build(domain, model, &Pages, options)
            }
            fn update(&mut self, model: &Model, changed: Prefix<u32>) -> Result<(), NeedsRebuild> {
                $fib::update_prefix(self, model, changed)
            }
            fn reader(&self) -> $reader {
                $fib::reader(self)
            }
            fn with_simd(reader: $reader, simd: Simd) -> $reader {
                reader.with_simd(simd)
            }
            fn lookup(reader: &$reader, turn: &Turn<'_>, address: u32) -> Group {
                reader.lookup(turn, address)
            }
            fn lookup_batch(reader: &$reader, turn: &Turn<'_>, addresses: &[u32], out: &mut [Group]) {
                reader.lookup_batch(turn, addresses, out)
            }
        }
    };
}
layout!(Fib4Fast, Fib4FastReader);
layout!(Fib4Small, Fib4SmallReader);

struct Random(u64);

impl Random {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }
    fn of<T: Copy>(&mut self, choice: &[T]) -> T {
        choice[self.below(choice.len() as u64) as usize]
    }
    /// A prefix that is likely to lie in, around or beside another.
    fn prefix(&mut self) -> Prefix<u32> {
        let bytes = [
            self.of(&[10, 11, 255]),
            self.of(&[0, 1, 255]),
            self.of(&[0, 31, 32, 63, 255]),
            self.of(&[0, 1, 63, 128, 255]),
        ];
        let len = self
            .of(&[1, 6, 7, 8, 9, 12, 13, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 24, 24, 25, 28, 31, 32, 32]);
        let len = if self.below(30) == 0 { 0 } else { len };
        Prefix::of(u32::from_be_bytes(bytes.map(|byte| byte as u8)), len)
    }
}

/// Steps of a random test: many in a long run.
fn steps(short: usize) -> usize {
    if std::env::var_os("ARTERY_LONG").is_some() { 50 * short } else { short }
}

/// Checks single and batch lookups at all edges and at random places, with all instructions.
fn check<L: Layout>(domain: &Arc<Domain>, fib: &L, model: &Model, random: &mut Random, what: &str) {
    let mut addresses = model.edges();
    for _ in 0..40 {
        addresses.push(random.prefix().first() | random.below(1 << 13) as u32);
        addresses.push(random.below(1 << 32) as u32);
    }
    let expected: Vec<Group> = addresses.iter().map(|address| model.lookup(*address)).collect();
    let mut rcu = domain.reader();
    let turn = rcu.turn();
    for simd in Simd::all() {
        let reader = L::with_simd(fib.reader(), simd);
        let mut out = vec![Group::MAX; addresses.len()];
        L::lookup_batch(&reader, &turn, &addresses, &mut out);
        for (at, address) in addresses.iter().enumerate() {
            let ip = std::net::Ipv4Addr::from_bits(*address);
            assert_eq!(out[at], expected[at], "{what}: {ip} in a batch with {simd}");
            assert_eq!(L::lookup(&reader, &turn, *address), expected[at], "{what}: {ip} alone");
        }
    }
}

/// Announces, changes and withdraws at random.
fn churn<L: Layout>(groups: &[Group], options: Fib4Options, count: usize, seed: u64) -> L {
    println!("seed {seed}");
    let (domain, mut model, mut random) = (Domain::new(), Model::default(), Random(seed));
    let mut fib = L::build(&domain, &model, options).unwrap();
    for step in 0..steps(count) {
        let prefix = random.prefix();
        let known = model.0.keys().nth(random.below(model.0.len().max(1) as u64) as usize).copied();
        let prefix = match (random.below(8), known) {
            (0..4, Some(known)) if model.0.len() > 80 => known,
            (0..2, Some(known)) => known,
            _ => prefix,
        };
        let is_withdrawn = model.0.contains_key(&prefix) && random.below(4) > 0;
        if is_withdrawn {
            model.0.remove(&prefix);
        } else {
            model.0.insert(prefix, random.of(groups));
        }
        fib.update(&model, prefix).unwrap();
        if step % 8 == 0 {
            check(&domain, &fib, &model, &mut random, &format!("step {step}, seed {seed}, after {prefix}"));
        }
    }
    let anew = L::build(&domain, &model, options).unwrap();
    check(&domain, &anew, &model, &mut random, "rebuilt");
    fib
}

fn wide() -> Fib4Options {
    Fib4Options { wide: true, ..Fib4Options::default() }
}

#[test]
fn the_fast_layout_follows_every_change() {
    let fib: Fib4Fast = churn(&[1, 2, 3, 200, 70_000, 1 << 31], Fib4Options::default(), 1500, 1);
    assert!(!fib.wants_wide());
}

#[test]
fn the_wide_form_of_the_fast_layout_follows_every_change() {
    churn::<Fib4Fast>(&[1, 2, 300, 65_534, 65_535, 65_536, u32::MAX], wide(), 1500, 2);
}

#[test]
fn the_small_layout_follows_every_change() {
    churn::<Fib4Small>(&[1, 2, 300, 65_535], Fib4Options::default(), 1500, 3);
    churn::<Fib4Small>(&[1, 65_535, 65_536, u32::MAX], Fib4Options::default(), 700, 4);
}

#[test]
fn with_more_groups_than_codes_the_fast_layout_is_right_and_says_so() {
    let groups: Vec<Group> = (1..2000).collect();
    churn::<Fib4Fast>(&groups, Fib4Options::default(), 1000, 5);
    // Enough at one moment: a /24 for each group.
    let many = (1..400).map(|group| (Prefix::of(10 << 24 | group << 8, 24), group));
    let (domain, mut model) = (Domain::new(), Model(many.collect()));
    model.0.insert("20.0.0.0/8".parse().unwrap(), 5000);
    let fib = Fib4Fast::build(&domain, &model, &Pages, Fib4Options::default()).unwrap();
    assert!(fib.wants_wide());
    check(&domain, &fib, &model, &mut Random(5), "400 groups");
    let lists = fib.memory().arrays.iter().find(|array| array.name == "lists").unwrap().used;
    assert!(
        lists < 256 * 64,
        "the group of most addresses has a code, or each of its /16s would have a list"
    );
    assert!(!Fib4Fast::build(&domain, &model, &Pages, wide()).unwrap().wants_wide());
}

#[test]
fn a_slash_24_of_many_hosts_and_more_becomes_a_direct_array_and_goes_again() {
    fn fill<L: Layout>() {
        let (domain, mut model) = (Domain::new(), Model::default());
        let mut fib = L::build(&domain, &model, Fib4Options::default()).unwrap();
        let hosts: Vec<_> = (0..700u32).map(|n| Prefix::host(0x0a00_0000 + n * 2)).collect();
        for (n, host) in hosts.iter().enumerate() {
            model.0.insert(*host, 1 + n as u32 % 5);
            if n % 50 == 49 {
                fib.update(&model, Prefix::of(host.first(), 21)).unwrap();
                check(&domain, &fib, &model, &mut Random(6), "filling");
            }
        }
        hosts.iter().for_each(|host| _ = model.0.remove(host));
        fib.update(&model, "10.0.0.0/16".parse().unwrap()).unwrap();
        check(&domain, &fib, &model, &mut Random(6), "emptied");
    }
    fill::<Fib4Fast>();
    fill::<Fib4Small>();
}

#[test]
fn hosts_of_a_dense_slash_16_come_and_go_one_by_one() {
    let (domain, mut model, mut random) = (Domain::new(), Model::default(), Random(11));
    model.0.insert("10.0.0.0/20".parse().unwrap(), 4);
    let mut fib = Fib4Fast::build(&domain, &model, &Pages, Fib4Options::default()).unwrap();
    // Some are neighbors, and some have a /24 for themselves; 300 have no code.
    let host = |n: u32| Prefix::host(0x0a00_0000 + (n % 200) * 2 + (n / 200) * 257);
    let mut change = |model: &mut Model, n: u32, group: Option<Group>| {
        match group {
            Some(group) => drop(model.0.insert(host(n), group)),
            None => drop(model.0.remove(&host(n))),
        }
        fib.update(model, host(n)).unwrap();
        if n.is_multiple_of(40) {
            check(&domain, &fib, model, &mut random, &format!("{n} as {group:?}"));
        }
    };
    (0..500).for_each(|n| change(&mut model, n, Some(1 + n / 5 % 3)));
    (0..500).step_by(7).for_each(|n| change(&mut model, n, Some(1 << 31)));
    (0..500).rev().for_each(|n| change(&mut model, n, None));
    (0..40).for_each(|n| change(&mut model, n, Some(9)));
}

#[test]
fn without_room_an_update_is_an_error_and_no_other_address_suffers() {
    fn fill<L: Layout>(options: Fib4Options, array: &str) {
        let (domain, mut model) = (Domain::new(), Model::default());
        let mut fib = L::build(&domain, &model, options).unwrap();
        let mut rcu = domain.reader();
        let mut results = (0..1000u32).map(|n| {
            let len = if array == "lists" { 32 } else { 24 };
            let prefix = Prefix::of(n << 16, len);
            model.0.insert(prefix, 7);
            (prefix, fib.update(&model, prefix))
        });
        let (failed, error) = results.find(|(_, result)| result.is_err()).unwrap();
        assert_eq!(error.unwrap_err().array, array);
        drop(results);
        let turn = rcu.turn();
        let reader = fib.reader();
        for address in model.0.keys().filter(|prefix| **prefix != failed).map(|prefix| prefix.first()) {
            assert_eq!(L::lookup(&reader, &turn, address), 7);
        }
        let again = L::build(&domain, &model, options);
        assert!(matches!(again, Err(BuildError::Full(full)) if full.array == array));
    }
    let few = Fib4Options { leaves: 65_536 + 20, list_lines: 10, ..Fib4Options::default() };
    fill::<Fib4Small>(few, "leaves");
    fill::<Fib4Small>(few, "lists");
    fill::<Fib4Fast>(few, "lists");
}

#[test]
fn batches_of_every_length_are_looked_up_whole() {
    fn lengths<L: Layout>(options: Fib4Options) {
        let (domain, mut random) = (Domain::new(), Random(8));
        let model = Model((0..60).map(|n| (random.prefix(), n + 1)).collect());
        let fib = L::build(&domain, &model, options).unwrap();
        let mut rcu = domain.reader();
        let turn = rcu.turn();
        for len in 0..200 {
            let addresses: Vec<u32> = (0..len).map(|_| random.prefix().last()).collect();
            let expected: Vec<Group> = addresses.iter().map(|address| model.lookup(*address)).collect();
            for simd in Simd::all() {
                let mut out = vec![9999; len];
                L::lookup_batch(&L::with_simd(fib.reader(), simd), &turn, &addresses, &mut out);
                assert_eq!(out, expected, "{len} addresses with {simd}");
            }
        }
    }
    lengths::<Fib4Fast>(Fib4Options::default());
    lengths::<Fib4Fast>(wide());
    lengths::<Fib4Small>(Fib4Options::default());
}

#[test]
#[should_panic(expected = "turn of another domain")]
fn a_turn_of_another_domain_is_refused() {
    let fib = Fib4Small::build(&Domain::new(), &Model::default(), &Pages, Fib4Options::default()).unwrap();
    let stranger = Domain::new();
    fib.reader().lookup(&stranger.reader().turn(), 1);
}

/// A fixed course of changes and what the answers at some addresses are after each.
struct Course {
    changes: Vec<(Prefix<u32>, Model)>,
    addresses: Vec<u32>,
    /// By the number of changes made, then by address.
    answers: Vec<Vec<Group>>,
}

/// The prefixes of a course.
const PREFIXES: [&str; 8] = [
    "0.0.0.0/0",
    "10.0.0.0/8",
    "10.0.0.0/16",
    "10.0.0.0/19",
    "10.0.0.0/24",
    "10.0.0.0/25",
    "10.0.0.7/32",
    "10.0.31.0/24",
];

impl Course {
    /// Goes round: the last model equals the first, so that the course can be repeated.
    fn new(groups: &[Group]) -> Course {
        let mut random = Random(9);
        let prefixes: Vec<Prefix<u32>> = PREFIXES.map(|text| text.parse().unwrap()).to_vec();
        let addresses: Vec<u32> =
            [0, 6, 7, 8, 127, 128, 255, 256, 0x1eff, 0x1f00, 0x1fff, 0x2000, 0xffff, 0x1_0000]
                .iter()
                .map(|offset| 0x0a00_0000 + offset)
                .chain([0x0a0b_0c0d, 0x0b00_0000])
                .cycle()
                .take(BATCH)
                .collect();
        let mut model = Model::default();
        let mut changes = Vec::new();
        for step in 0..400 {
            let prefix = random.of(&prefixes);
            let is_last_round = step >= 392;
            let prefix = if is_last_round { prefixes[step - 392] } else { prefix };
            if is_last_round || model.0.contains_key(&prefix) && random.below(2) == 0 {
                model.0.remove(&prefix);
            } else {
                model.0.insert(prefix, random.of(groups));
            }
            changes.push((prefix, model.clone()));
        }
        let answers_of = |model: &Model| addresses.iter().map(|address| model.lookup(*address)).collect();
        let answers =
            [Model::default()].iter().chain(changes.iter().map(|(_, model)| model)).map(answers_of).collect();
        Course { changes, addresses, answers }
    }
}

/// One thread changes routes, another checks that each answer was right at some moment of its lookup.
fn race<L: Layout + Send>(options: Fib4Options, groups: &[Group]) {
    let course = Course::new(groups);
    let domain = Domain::new();
    let mut fib = L::build(&domain, &Model::default(), options).unwrap();
    let reader = fib.reader();
    let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let rounds = steps(4);
    let changes = course.changes.len();
    let last = rounds * changes;
    std::thread::scope(|scope| {
        let check = || {
            let mut rcu = domain.reader();
            let mut out = vec![0; course.addresses.len()];
            let mut ways: Vec<_> = Simd::all().map(|simd| Some(L::with_simd(reader.clone(), simd))).collect();
            ways.push(None);
            for way in ways.iter().cycle() {
                let turn = rcu.turn();
                let from = ended.load(SeqCst);
                match way {
                    Some(reader) => L::lookup_batch(reader, &turn, &course.addresses, &mut out),
                    None => out[0] = L::lookup(&reader, &turn, course.addresses[0]),
                }
                let to = begun.load(SeqCst);
                let was_right = |at: usize, group| {
                    (from..=to)
                        .any(|done| course.answers[(done.max(1) - 1) % changes + done.min(1)][at] == group)
                };
                let count = if way.is_some() { out.len() } else { 1 };
                for (at, group) in out.iter().enumerate().take(count) {
                    assert!(was_right(at, *group), "{group} for {at} between {from} and {to}");
                }
                if from == last {
                    return;
                }
            }
        };
        scope.spawn(check);
        for done in 0..last {
            let (changed, model) = &course.changes[done % changes];
            begun.store(done + 1, SeqCst);
            fib.update(model, *changed).unwrap();
            ended.store(done + 1, SeqCst);
        }
    });
}

#[test]
fn readers_of_the_fast_layout_see_what_was_right_at_some_moment() {
    race::<Fib4Fast>(Fib4Options::default(), &[1, 2, 3, 70_000]);
    race::<Fib4Fast>(wide(), &[1, 2, 65_535]);
}

#[test]
fn readers_of_the_small_layout_see_what_was_right_at_some_moment() {
    race::<Fib4Small>(Fib4Options::default(), &[1, 2, 3, 70_000]);
}
