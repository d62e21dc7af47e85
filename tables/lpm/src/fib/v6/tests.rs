//! The IPv6 FIB against the obvious: a list of routes, searched from end to end.
use super::word::NodeKind;
use super::*;
use crate::address::Address;
use crate::runs::NO_GROUP;
use crate::synthetic::RandomAddress;
use artery_storage::Pages;
use artery_wire::Random;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Routes, in no order.
#[derive(Default)]
struct Model(Vec<(Prefix<u128>, Group)>);

impl Model {
    fn set(&mut self, prefix: Prefix<u128>, group: Option<Group>) {
        self.0.retain(|(other, _)| *other != prefix);
        self.0.extend(group.map(|group| (prefix, group)));
    }

    fn longest(&self, address: u128) -> Option<(Prefix<u128>, Group)> {
        self.0
            .iter()
            .filter(|(prefix, _)| prefix.contains(address))
            .max_by_key(|(prefix, _)| prefix.len())
            .copied()
    }

    fn lookup(&self, address: u128) -> Group {
        self.longest(address).map_or(NO_GROUP, |(_, group)| group)
    }

    /// The first and last address of each route and their neighbours.
    fn limits(&self) -> Vec<u128> {
        self.0.iter().flat_map(|(prefix, _)| limits(*prefix)).collect()
    }
}

fn limits(prefix: Prefix<u128>) -> [u128; 4] {
    let (first, last) = (prefix.first(), prefix.last());
    [first.wrapping_sub(1), first, last, last.wrapping_add(1)]
}

impl Runs<u128> for Model {
    fn for_each_run(&self, within: Prefix<u128>, mut each: impl FnMut(u128, u128, Group)) {
        let starts =
            self.0.iter().flat_map(|(prefix, _)| [Some(prefix.first()), prefix.last().checked_add(1)]);
        let mut starts: Vec<u128> = starts.flatten().filter(|first| within.contains(*first)).collect();
        starts.push(within.first());
        starts.sort();
        starts.dedup();
        for (i, first) in starts.iter().enumerate() {
            let last = starts.get(i + 1).map_or(within.last(), |next| next - 1);
            let group =
                self.longest(*first).filter(|(prefix, _)| prefix.len() > 0).map_or(NO_GROUP, |route| route.1);
            each(*first, last, group);
        }
    }

    fn default_group(&self) -> Group {
        self.0.iter().find(|(prefix, _)| prefix.len() == 0).map_or(NO_GROUP, |route| route.1)
    }
}

/// Prefixes that nest and crowd: few values for each part of the address, lengths at and around all limits.
fn prefix(random: &mut Random) -> Prefix<u128> {
    const LENGTHS: [u8; 30] = [
        0, 1, 3, 12, 15, 16, 17, 20, 28, 31, 32, 33, 36, 40, 44, 47, 48, 48, 48, 49, 56, 63, 64, 65, 80, 96,
        112, 126, 127, 128,
    ];
    let part = |random: &mut Random| {
        if random.percent(70) {
            u128::from(random.below(3)) * 0x7fff
        } else {
            u128::from(random.next() as u16)
        }
    };
    let top = [0x2001, 0x2001, 0x2a00, 0, 0xffff][random.below(5) as usize];
    let address = (0..7).fold(top, |address, _| address << 16 | part(random));
    let len = LENGTHS[random.below(LENGTHS.len() as u64) as usize];
    Prefix::of(address, len)
}

fn new(domain: &Arc<Domain>, runs: &impl Runs<u128>) -> Fib6 {
    Fib6::build(domain, runs, &Pages, None).unwrap()
}

/// Every way to look up gives what the model says.
fn check(fib: &Fib6, domain: &Arc<Domain>, model: &Model, addresses: &[u128], what: &str) {
    let expected: Vec<Group> = addresses.iter().map(|address| model.lookup(*address)).collect();
    let mut reader = domain.reader();
    let turn = reader.turn();
    for simd in Simd::all() {
        let mut groups = vec![77; addresses.len()];
        fib.reader().with(simd).lookup_batch(&turn, addresses, &mut groups);
        for ((address, group), expected) in addresses.iter().zip(&groups).zip(&expected) {
            assert_eq!(group, expected, "{what}: {simd:?} {}", address.to_ip());
        }
    }
    for (address, expected) in addresses.iter().zip(&expected) {
        assert_eq!(fib.reader().lookup(&turn, *address), *expected, "{what}: {}", address.to_ip());
        assert!(loads(&fib.writer.shared.words, *address) <= Fib6::MAX_LOADS, "{what}: {}", address.to_ip());
    }
}

/// Counts the loads that a lookup does one after the other.
fn loads(words: &[AtomicU32], address: u128) -> usize {
    let mut word = walk::load_word(words, address.field(0, ROOT_BITS));
    let (mut offset, mut loads) = (ROOT_BITS, 1);
    while let Some(kind) = word.node_kind() {
        let rest = address << offset;
        match kind {
            NodeKind::Array => {
                let width = word.class();
                word = walk::load_word(words, word.place() + rest.field(0, width));
                (offset, loads) = (offset + width, loads + 1);
            }
            NodeKind::Narrow => return loads + 2,
            NodeKind::Wide => {
                let key = rest.field(0, 16) as u16;
                let (start, class) = (word.place(), word.class());
                let i = (0..1 << class).find(|i| walk::half_word(words, start, *i) >= key).unwrap();
                word = walk::load_word(words, start + (1 << (class - 1)) + i);
                (offset, loads) = (offset + 16, loads + 2);
            }
        }
        if offset >= 128 {
            break;
        }
    }
    loads
}

/// Rounds of a test with random operations: more when ARTERY_LONG is set.
fn rounds(short: u64) -> u64 {
    if std::env::var_os("ARTERY_LONG").is_some() { short * 50 } else { short }
}

#[test]
fn after_any_changes_every_answer_is_that_of_the_longest_route() {
    for seed in 1..=rounds(6) {
        let (mut random, domain, mut model) = (Random::new(seed), Domain::new(), Model::default());
        let mut fib = new(&domain, &model);
        let groups = [3, 40, 70_000][random.below(3) as usize];
        for step in 0..300 {
            let changed = if random.percent(35) && !model.0.is_empty() {
                model.0[random.below(model.0.len() as u64) as usize].0
            } else {
                prefix(&mut random)
            };
            let group = (!random.percent(40)).then(|| random.below(groups) as Group + 1);
            model.set(changed, group);
            fib.update_prefix(&model, changed).unwrap();
            let mut addresses = limits(changed).to_vec();
            addresses.extend((0..4).map(|_| random.address_in(changed)));
            check(&fib, &domain, &model, &addresses, &format!("seed {seed} step {step} {changed}"));
        }
        check(&fib, &domain, &model, &model.limits(), &format!("seed {seed}"));
        let anew = new(&domain, &model);
        check(&anew, &domain, &model, &model.limits(), &format!("seed {seed}, rebuilt"));
    }
}

/// Routes close together: lists overflow into arrays, and arrays become lists again.
#[test]
fn crowded_places_grow_and_shrink_and_give_back_what_they_took() {
    for (seed, (at, bits)) in
        [("2001:db8::/32", 48), ("2400::/16", 32), ("2a00:1:2:3::/64", 128), ("2001:db8::/40", 56)]
            .into_iter()
            .enumerate()
    {
        let (mut random, domain, mut model) = (Random::new(seed as u64 + 1), Domain::new(), Model::default());
        let mut fib = new(&domain, &model);
        let empty = fib.bytes_in_use();
        let at: Prefix<u128> = at.parse().unwrap();
        for _ in 0..200 {
            let changed = Prefix::of(random.address_in(at), bits - random.below(5) as u8);
            model.set(changed, Some(random.below(50) as Group + 1));
            fib.update_prefix(&model, changed).unwrap();
        }
        check(&fib, &domain, &model, &model.limits(), &format!("{at} full"));
        let full = fib.bytes_in_use();
        assert!(full > empty + 4 * 200, "{at}: {full}");
        while let Some((changed, _)) = model.0.pop() {
            fib.update_prefix(&model, changed).unwrap();
            check(&fib, &domain, &model, &limits(changed), &format!("{at} without {changed}"));
        }
        assert_eq!(fib.bytes_in_use(), empty, "{at}");
    }
}

#[test]
fn the_default_route_is_one_word_and_shows_where_no_other_route_is() {
    let domain = Domain::new();
    let mut model = Model(vec![("2001:db8::/32".parse().unwrap(), 5)]);
    let mut fib = new(&domain, &model);
    let addresses = [0, 0x2001_0db8 << 96, 0x2001_0db9 << 96, u128::MAX];
    check(&fib, &domain, &model, &addresses, "no default");
    for group in [Some(9), Some(8), None] {
        let before = fib.memory();
        model.set(Prefix::ALL, group);
        fib.update_prefix(&model, Prefix::ALL).unwrap();
        check(&fib, &domain, &model, &addresses, "default");
        assert_eq!(fib.memory(), before);
    }
}

#[test]
fn a_batch_of_any_length_is_answered() {
    let domain = Domain::new();
    let model = Model(vec![("2000::/3".parse().unwrap(), 1), ("2001:db8:8000::/33".parse().unwrap(), 2)]);
    let fib = new(&domain, &model);
    let mut random = Random::new(1);
    for len in 0..200 {
        let addresses: Vec<u128> = (0..len).map(|_| random.address_in(model.0[len % 2].0)).collect();
        check(&fib, &domain, &model, &addresses, &format!("{len} addresses"));
    }
}

#[test]
fn a_full_fib_says_so_and_answers_on() {
    let domain = Domain::new();
    let empty = Model::default();
    let capacity = (NODES + SLACK) * 4 + 2000;
    let mut fib = Fib6::build(&domain, &empty, &Pages, Some(capacity)).unwrap();
    let (mut random, mut model) = (Random::new(1), Model::default());
    let mut before = Model::default();
    let error = loop {
        let changed = prefix(&mut random);
        let group = Some(random.below(50) as Group + 1);
        model.set(changed, group);
        match fib.update_prefix(&model, changed) {
            Ok(()) => before.set(changed, group),
            Err(error) => break error,
        }
        assert!(model.0.len() < 10_000, "it never fills");
    };
    assert_eq!(error, FULL);
    let mut reader = domain.reader();
    let turn = reader.turn();
    for address in model.limits() {
        let group = fib.reader().lookup(&turn, address);
        assert!(group == before.lookup(address) || group == model.lookup(address), "{}", address.to_ip());
    }
    assert!(Fib6::build(&domain, &model, &Pages, Some(1000)).is_err());
    assert!(Fib6::build(&domain, &model, &Pages, Some((NODES + SLACK) * 4 + 64)).is_err());
}

#[test]
fn groups_of_any_size_up_to_the_largest_are_kept_apart() {
    let domain = Domain::new();
    let groups = [1, 0xffff, 0x1_0000, 0x1_0001, Fib6::MAX_GROUP];
    let prefixes =
        groups.iter().zip(0u128..).map(|(group, i)| (Prefix::of(0x2001_0db8 << 96 | i << 80, 48), *group));
    let model = Model(prefixes.collect());
    check(&new(&domain, &model), &domain, &model, &model.limits(), "groups");
}

#[test]
#[should_panic(expected = "a turn of another domain")]
fn a_turn_of_another_domain_is_refused() {
    let fib = new(&Domain::new(), &Model::default());
    let other = Domain::new();
    fib.reader().lookup(&other.reader().turn(), 1);
}

/// While routes come and go all around, a route that stays is always found, and one that changes has its old
/// or its new group.
#[test]
fn readers_see_each_change_whole() {
    let domain = Domain::new();
    let stays: Prefix<u128> = "2001:db8:7::/48".parse().unwrap();
    let turns: Prefix<u128> = "2001:db8:9::/48".parse().unwrap();
    let mut model = Model(vec![(stays, 1), (turns, 2)]);
    let mut fib = new(&domain, &model);
    let reader = fib.reader();
    let (mut standing, is_over) = (domain.reader(), AtomicBool::new(false));
    let addresses: Vec<u128> = (0..64).map(|i| [stays.first(), turns.last()][i % 2]).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut groups = vec![0; addresses.len()];
            for simd in Simd::all().collect::<Vec<_>>().into_iter().cycle() {
                let turn = standing.turn();
                reader.clone().with(simd).lookup_batch(&turn, &addresses, &mut groups);
                assert!(groups.iter().step_by(2).all(|group| *group == 1), "{groups:?}");
                assert!(groups.iter().skip(1).step_by(2).all(|group| [2, 3].contains(group)), "{groups:?}");
                assert_eq!(reader.lookup(&turn, stays.last()), 1);
                if is_over.load(Relaxed) {
                    break;
                }
            }
            standing.park();
        });
        let mut random = Random::new(1);
        for i in 0..rounds(3000) as u32 {
            model.set(turns, Some(2 + i % 2));
            fib.update_prefix(&model, turns).unwrap();
            let near =
                Prefix::of(random.address_in(stays) ^ u128::from(random.below(64)) << 80, 40 + (i % 9) as u8);
            // A longer route would hide one of the two.
            if near.len() < 48 || !(near.contains(stays.last()) || near.contains(turns.last())) {
                model.set(near, (i % 5 < 3).then_some(4));
                fib.update_prefix(&model, near).unwrap();
            }
        }
        is_over.store(true, Relaxed);
    });
    check(&fib, &domain, &model, &model.limits(), "at the end");
}
