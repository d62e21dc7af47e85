//! The whole table against a list of routes, by every policy, and while it changes from one to another.
use artery_lpm::synthetic::RandomAddress;
use artery_lpm::{Family, Group, NO_GROUP, Policy, Prefix, RouteTable, Strides, TableError};
use artery_rcu::Domain;
use artery_storage::{Pages, Region, Storage};
use artery_wire::Random;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

const POLICIES: [&str; 6] = ["auto", "fast", "small", "art", "auto:1M", "fast"];

/// What a table must answer.
struct Model<A>(BTreeMap<Prefix<A>, Group>);

impl<A: Family> Model<A> {
    fn lookup(&self, address: A) -> Group {
        let covering = (0..=A::BITS).rev().map(|len| Prefix::of(address, len));
        covering.filter_map(|prefix| self.0.get(&prefix)).next().copied().unwrap_or(NO_GROUP)
    }
}

fn table<A: Family>(domain: &Arc<Domain>, policy: &str) -> RouteTable<A> {
    RouteTable::new(domain, policy.parse().unwrap(), Arc::new(Pages)).unwrap()
}

/// Few different bits, so that prefixes nest and meet.
fn prefix<A: Family>(random: &mut Random) -> Prefix<A> {
    let len = [0, 1, 7, 8, 15, 16, 17, 18, 19, 20, 23, 24, 25, 31, 32, 33, 48, 64, 65, 127, 128]
        [random.below(21) as usize];
    let address: A = random.address();
    let few = address.network(3).or(A::from_field(random.below(4) as usize, 14, 4));
    Prefix::of(few.or(A::from_field(random.below(16) as usize, 22, 6)), len.min(A::BITS))
}

fn agree<A: Family>(domain: &Arc<Domain>, table: &RouteTable<A>, model: &Model<A>, random: &mut Random) {
    let mut reader = domain.reader();
    let turn = reader.turn();
    let engine = table.reader();
    let mut address = |_| {
        let prefix = prefix(random);
        random.address_in(prefix)
    };
    let mut addresses: Vec<A> = (0..200).map(&mut address).collect();
    for prefix in model.0.keys() {
        addresses.extend([prefix.first(), prefix.last()].into_iter().chain(prefix.last().next()));
    }
    let mut groups = vec![7; addresses.len()];
    engine.lookup_batch(&turn, &addresses, &mut groups);
    for (address, group) in addresses.iter().zip(groups) {
        let wanted = model.lookup(*address);
        assert_eq!(group, wanted, "{} in a batch by {}", address.to_ip(), table.engine_name());
        assert_eq!(engine.lookup(&turn, *address), wanted, "{} by {}", address.to_ip(), table.engine_name());
        assert_eq!(table.lookup(*address).map_or(NO_GROUP, |(_, group)| group), wanted);
    }
    assert!(table.iter().eq(model.0.iter().map(|(prefix, group)| (*prefix, *group))));
}

fn random_operations<A: Family>(seed: u64) {
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let domain = Domain::new();
    let (mut table, mut model) = (table::<A>(&domain, "auto"), Model(BTreeMap::new()));
    for round in 0..40 {
        for _ in 0..50 {
            let prefix = prefix(&mut random);
            if random.percent(40) {
                assert_eq!(table.remove(prefix), model.0.remove(&prefix));
            } else {
                let group = random.below(if round < 20 { 5 } else { 1000 }) as Group + 1;
                assert_eq!(table.insert(prefix, group).unwrap(), model.0.insert(prefix, group));
            }
        }
        if random.percent(50) {
            table.set_policy(POLICIES[random.below(6) as usize].parse().unwrap()).unwrap();
        }
        agree(&domain, &table, &model, &mut random);
    }
    let routes: Vec<(Prefix<A>, Group)> = (1..100).map(|group| (prefix(&mut random), group)).collect();
    table.load_routes(routes.iter().copied()).unwrap();
    model.0 = routes.into_iter().collect();
    agree(&domain, &table, &model, &mut random);
}

#[test]
fn random_operations_agree_with_a_list_by_every_policy() {
    random_operations::<u32>(1);
    random_operations::<u128>(2);
}

#[test]
fn a_policy_asks_for_an_engine() {
    let domain = Domain::new();
    for (policy, engine) in [
        ("fast", "fast"),
        ("small", "small"),
        ("auto", "small"),
        ("art", "art:16/8/8"),
        ("art:8/4/4/4/4/4/4", "art:8/4/4/4/4/4/4"),
    ] {
        assert_eq!(table::<u32>(&domain, policy).engine_name(), engine);
    }
    assert_eq!(table::<u128>(&domain, "fast").engine_name(), "small");
}

#[test]
fn auto_grows_into_the_fast_layout_unless_it_has_no_room() {
    let domain = Domain::new();
    let routes = |count: u32| (0..count).map(|n| (Prefix::of(n << 8, 24), 1 + n % 3));
    for (policy, engine) in [("auto", "fast"), ("auto:16M", "small")] {
        let mut table = table::<u32>(&domain, policy);
        table.load_routes(routes(65_535)).unwrap();
        assert_eq!(table.engine_name(), "small");
        table.insert(Prefix::of(200 << 24, 8), 9).unwrap();
        assert_eq!(table.engine_name(), engine);
    }
}

/// Counts FIBs of the fast layout.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Storage for Counting {
    fn map_region(&self, name: &'static str, bytes: usize) -> std::io::Result<Region> {
        self.0.fetch_add(usize::from(name == "cells"), Relaxed);
        Pages.map_region(name, bytes)
    }
}

/// Counts arrays, those of small tables and those of big ones.
#[derive(Default)]
struct BySize {
    small: Counted,
    big: Counted,
}

/// Pages, and how many arrays lie in them.
#[derive(Default)]
struct Counted(AtomicUsize);

impl Storage for Counted {
    fn map_region(&self, name: &'static str, bytes: usize) -> std::io::Result<Region> {
        self.0.fetch_add(1, Relaxed);
        Pages.map_region(name, bytes)
    }
}

impl Storage for BySize {
    fn map_region(&self, name: &'static str, bytes: usize) -> std::io::Result<Region> {
        self.small.map_region(name, bytes)
    }
    fn for_big_tables(&self) -> Option<&dyn Storage> {
        Some(&self.big)
    }
}

#[test]
fn a_table_that_becomes_big_gets_other_memory_once() {
    let domain = Domain::new();
    let storage = Arc::new(BySize::default());
    let mut table = RouteTable::new(&domain, Policy::default(), storage.clone()).unwrap();
    let (mut reader, engine) = (domain.reader(), table.reader());
    let route = |n: u32| (Prefix::of(n << 8, 24), 1 + n % 3);
    let counts = || (storage.small.0.load(Relaxed), storage.big.0.load(Relaxed));
    (0..1023).for_each(|n| _ = table.insert(route(n).0, route(n).1).unwrap());
    let (small, big) = counts();
    assert_eq!(big, 0);
    table.insert(route(1023).0, route(1023).1).unwrap();
    let arrays = counts().1;
    assert!(arrays > 0);
    for n in 1024..2000 {
        table.remove(route(n - 1024).0);
        table.insert(route(n).0, route(n).1).unwrap();
        table.insert(route(n - 1024).0, route(n - 1024).1).unwrap();
    }
    assert_eq!(counts(), (small, arrays));
    let turn = reader.turn();
    assert!((0..2000).all(|n| engine.lookup(&turn, n << 8 | 7) == route(n).1));
}

/// So many /16s with 400 hosts each, which cost the fast layout 256 KiB each.
fn hosts(blocks: std::ops::Range<u32>) -> impl Iterator<Item = (Prefix<u32>, Group)> {
    let hosts = |block| (0..400).map(move |n| (Prefix::host((block << 16) + n * 163), 1 + n % 3));
    blocks.flat_map(hosts)
}

#[test]
fn auto_takes_what_the_routes_fit_into() {
    let domain = Domain::new();
    let storage = Arc::new(Counting::default());
    let mut table = RouteTable::new(&domain, Policy::default(), storage.clone()).unwrap();
    table.load_routes(hosts(0..600)).unwrap();
    assert_eq!((table.engine_name().as_str(), storage.0.load(Relaxed)), ("small", 1));
    for (host, group) in hosts(600..610) {
        table.insert(host, group).unwrap();
    }
    assert_eq!(storage.0.load(Relaxed), 1, "not compiled again");
    for (host, _) in hosts(0..500) {
        table.remove(host);
    }
    assert_eq!((table.engine_name().as_str(), table.len()), ("fast", 110 * 400));
    table.load_routes((0..70_000).map(|n| (Prefix::of(n << 8, 24), 1))).unwrap();
    assert_eq!(table.engine_name(), "fast");
}

#[test]
fn routes_that_outgrow_the_fast_layout_are_forwarded_by_another() {
    let domain = Domain::new();
    for (policy, engine) in [("auto", "small"), ("fast", "art:8/4/4/4/4/4/4")] {
        let storage = Arc::new(Counting::default());
        let mut table = RouteTable::new(&domain, policy.parse().unwrap(), storage.clone()).unwrap();
        assert!(policy == "auto" || table.load_routes(hosts(0..600)).is_err());
        table.load_routes(hosts(0..500)).unwrap();
        assert_eq!(table.engine_name(), "fast");
        let before = storage.0.load(Relaxed);
        hosts(500..520).for_each(|(host, group)| assert!(table.insert(host, group).is_ok()));
        assert_eq!(table.engine_name(), engine);
        let compiled = storage.0.load(Relaxed) - before;
        assert!(compiled < 6, "compiled {compiled} times");
        let (mut reader, engine) = (domain.reader(), table.reader());
        let turn = reader.turn();
        assert!(hosts(0..520).all(|(host, group)| engine.lookup(&turn, host.first()) == group));
        assert_eq!(engine.lookup(&turn, 1), NO_GROUP);
    }
}

#[test]
fn a_route_that_comes_and_goes_at_the_budget_changes_the_layout_once() {
    let domain = Domain::new();
    let storage = Arc::new(Counting::default());
    let policy: Policy<u32> = "auto:17401504".parse().unwrap();
    let mut table = RouteTable::new(&domain, policy, storage.clone()).unwrap();
    table.load_routes((0..80_000).map(|n| (Prefix::of(n << 8, 24), 1))).unwrap();
    assert_eq!(table.engine_name(), "fast");
    (80_000..100_001).for_each(|n| _ = table.insert(Prefix::of(n << 8, 24), 1));
    for _ in 0..10 {
        assert_eq!(table.engine_name(), "small");
        table.remove(Prefix::of(0, 24));
        table.insert(Prefix::of(0, 24), 1).unwrap();
    }
    assert_eq!(storage.0.load(Relaxed), 1);
}

#[test]
fn no_fib_is_compiled_that_takes_more_than_the_budget() {
    let domain = Domain::new();
    let slash_24s = |count| (0..count).map(|n| (Prefix::of(n << 8, 24), 1 + n)).collect::<Vec<_>>();
    // 70,000 groups need wide cells, which no number of routes tells; a /16 of many hosts takes 256 KiB.
    for routes in [vec![], slash_24s(100), slash_24s(70_000), hosts(0..30).collect(), hosts(0..200).collect()]
    {
        for budget in [0, 4_400_000, 6_000_000, 20_000_000, 40_000_000] {
            let mut table = table::<u32>(&domain, &format!("auto:{budget}"));
            table.load_routes(routes.iter().copied()).unwrap();
            let bytes = table.memory().1.map_or(0, |fib| fib.bytes());
            assert!(bytes <= budget, "{bytes} bytes of {budget} by {}", table.engine_name());
            assert!(
                bytes > 0 || budget < 20_000_000 || routes.len() == 80_000,
                "{budget} is enough for small"
            );
            let (mut reader, engine) = (domain.reader(), table.reader());
            let turn = reader.turn();
            assert!(routes.iter().all(|(prefix, group)| engine.lookup(&turn, prefix.first()) == *group));
        }
    }
    for (budget, engine) in [("auto:20M", "small"), ("auto:40M", "fast")] {
        let mut table = table::<u32>(&domain, budget);
        table.load_routes(slash_24s(70_000)).unwrap();
        assert_eq!(table.engine_name(), engine);
    }
    let v6 = |policy| table::<u128>(&domain, policy).engine_name();
    assert_eq!(v6("auto:100k").as_str(), &*format!("art:{}", Strides::<u128>::source()));
    assert_eq!(v6("auto:1M").as_str(), "small");
}

#[test]
fn routes_that_come_and_go_at_the_budget_of_the_small_layout_change_the_engine_once() {
    let domain = Domain::new();
    let mut table = table::<u32>(&domain, "auto:4355376"); // 10,000 routes
    table.load_routes((0..8000).map(|n| (Prefix::of(n << 8, 24), 1))).unwrap();
    assert_eq!(table.engine_name(), "small");
    (8000..10_001).for_each(|n| _ = table.insert(Prefix::of(n << 8, 24), 1));
    for _ in 0..3 {
        assert_eq!(table.engine_name(), "art:8/4/4/4/4/4/4");
        table.remove(Prefix::of(0, 24));
        table.insert(Prefix::of(0, 24), 1).unwrap();
    }
    (0..2000).for_each(|n| _ = table.remove(Prefix::of(n << 8, 24)));
    assert_eq!(table.engine_name(), "small");
}

#[test]
fn more_groups_than_a_byte_can_name_are_told_apart() {
    let domain = Domain::new();
    for policy in ["fast", "small"] {
        let mut table = table::<u32>(&domain, policy);
        for n in 0..65_535u32 {
            table.insert(Prefix::of((n << 8) | 0x1000_0000, 24), n + 1).unwrap();
        }
        let (mut reader, engine) = (domain.reader(), table.reader());
        let turn = reader.turn();
        for n in 0..65_535u32 {
            assert_eq!(engine.lookup(&turn, (n << 8) | 0x1000_0000), n + 1, "{policy}");
        }
    }
}

#[test]
fn a_group_that_no_fib_holds_is_refused_and_nothing_changes() {
    let domain = Domain::new();
    let mut table = table::<u128>(&domain, "auto");
    table.insert(Prefix::ALL, 1).unwrap();
    for group in [NO_GROUP, Group::MAX] {
        assert!(matches!(table.insert(Prefix::ALL, group), Err(TableError::Route(_))));
        assert!(table.load_routes([(Prefix::ALL, group)]).is_err());
    }
    assert_eq!(table.get(Prefix::ALL), Some(1));
}

#[test]
fn readers_are_right_while_the_engine_changes_under_them() {
    let domain = Domain::new();
    let mut table = table::<u32>(&domain, "auto");
    let prefix = |n: u32| Prefix::of(n << 20, 12);
    for n in 0..4096 {
        table.insert(prefix(n), n + 1).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (engine, domain, done) = (table.reader(), &domain, &done);
        scope.spawn(move || {
            let (mut reader, mut random) = (domain.reader(), Random::new(3));
            while !done.load(Acquire) {
                let turn = reader.turn();
                let addresses: Vec<u32> = (0..64).map(|_| random.next() as u32).collect();
                let mut groups = [0; 64];
                engine.lookup_batch(&turn, &addresses, &mut groups);
                for (address, group) in addresses.iter().zip(groups) {
                    assert_eq!(group, (address >> 20) + 1);
                }
            }
        });
        for round in 0..60 {
            let policy: Policy<u32> = POLICIES[round % 6].parse().unwrap();
            table.set_policy(policy).unwrap();
            // Longer routes come and go that lead the same way.
            for n in 0..50 {
                let longer = Prefix::of((n << 20) + (round as u32) * 256, 24);
                table.insert(longer, n + 1).unwrap();
                table.remove(longer).unwrap();
            }
        }
        done.store(true, Release);
    });
}
