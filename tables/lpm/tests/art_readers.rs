//! Readers of an ART on other threads while it changes.
use artery_lpm::{Art, ArtReader, Group, NO_GROUP, Prefix};
use artery_rcu::{Domain, Reader};
use artery_storage::Pages;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

type Update = (Prefix<u32>, Option<Group>);

/// Updates that are carried out again and again; after the last, all is as before the first.
struct Round {
    updates: Vec<Update>,
    addresses: Vec<u32>,
    /// By updates done in this round, the right group of each address.
    answers: Vec<Vec<Group>>,
}

/// The next of a row of numbers that look random.
fn random(state: &mut u64) -> u32 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as u32
}

impl Round {
    fn new(mut seed: u64) -> Round {
        let lengths = [0, 6, 8, 9, 16, 16, 20, 24, 24, 28, 32];
        let mut routes = BTreeMap::new();
        let mut updates = Vec::new();
        for _ in 0..150 {
            // Few addresses, many lengths: routes nest, tables come and go.
            let len = lengths[random(&mut seed) as usize % lengths.len()];
            let prefix = Prefix::of(0x0a01_0203 ^ (random(&mut seed) & 0x0100_0101), len);
            let group = Some(1 + random(&mut seed) % 200).filter(|group| group % 3 > 0);
            updates.push((prefix, group));
            match group {
                Some(group) => routes.insert(prefix, group),
                None => routes.remove(&prefix),
            };
        }
        updates.extend(routes.into_keys().map(|prefix| (prefix, None)));
        let addresses = vec![0x0a01_0203, 0x0a01_0202, 0x0a01_0303, 0x0b01_0203, 0x0a01_0204, 0x0a02_0000];
        let answers = answers(&updates, &addresses);
        Round { updates, addresses, answers }
    }

    /// Whether a group was right for an address at some time from after `first` updates to after `last`.
    fn is_right(&self, place: usize, group: Group, first: usize, last: usize) -> bool {
        (first..=last).any(|done| self.answers[done % self.updates.len()][place] == group)
    }
}

fn answers(updates: &[Update], addresses: &[u32]) -> Vec<Vec<Group>> {
    let mut routes: BTreeMap<Prefix<u32>, Group> = BTreeMap::new();
    let group_of = |routes: &BTreeMap<Prefix<u32>, Group>, address: u32| {
        let covering = routes.iter().filter(|(prefix, _)| prefix.contains(address));
        covering.max_by_key(|(prefix, _)| prefix.len()).map_or(NO_GROUP, |(_, &group)| group)
    };
    let mut answers = Vec::new();
    for &(prefix, group) in updates {
        answers.push(addresses.iter().map(|&address| group_of(&routes, address)).collect());
        match group {
            Some(group) => routes.insert(prefix, group),
            None => routes.remove(&prefix),
        };
    }
    assert!(routes.is_empty());
    answers
}

/// State that the threads share.
#[derive(Default)]
struct Progress {
    begun: AtomicUsize,
    done: AtomicUsize,
    is_over: AtomicBool,
    /// Readers that have checked enough.
    satisfied: AtomicUsize,
}

/// Updates until there is no more need to.
fn write(art: &mut Art<u32>, round: &Round, progress: &Progress, is_enough: impl Fn(usize) -> bool) {
    for (number, &(prefix, group)) in round.updates.iter().cycle().enumerate() {
        if is_enough(number) {
            break;
        }
        progress.begun.store(number + 1, SeqCst);
        match group {
            Some(group) => _ = art.insert(prefix, group).expect("room for few routes"),
            None => _ = art.remove(prefix),
        }
        progress.done.store(number + 1, SeqCst);
    }
    progress.is_over.store(true, SeqCst);
}

/// Looks up until the writer is through, and returns how many answers were checked.
fn read(table: &ArtReader<u32>, mut reader: Reader, round: &Round, progress: &Progress) -> usize {
    let mut checked = 0;
    // As many addresses as go together in a batch.
    let places: Vec<usize> = (0..32).map(|n| n % round.addresses.len()).collect();
    let addresses: Vec<u32> = places.iter().map(|&place| round.addresses[place]).collect();
    let mut groups = vec![NO_GROUP; addresses.len()];
    while !progress.is_over.load(SeqCst) {
        let turn = reader.turn();
        for (place, &address) in round.addresses.iter().enumerate() {
            let first = progress.done.load(SeqCst);
            let group = table.lookup(&turn, address);
            let last = progress.begun.load(SeqCst);
            assert!(round.is_right(place, group, first, last), "{group} for {address:x} in {first}..={last}");
        }
        let first = progress.done.load(SeqCst);
        table.lookup_batch(&turn, &addresses, &mut groups);
        let last = progress.begun.load(SeqCst);
        for (&place, &group) in places.iter().zip(&groups) {
            assert!(round.is_right(place, group, first, last), "{group} in a batch in {first}..={last}");
        }
        if checked < ENOUGH && checked + addresses.len() >= ENOUGH {
            progress.satisfied.fetch_add(1, SeqCst);
        }
        checked += addresses.len();
    }
    checked
}

/// Answers that each reader checks at least, however late it gets to run.
const ENOUGH: usize = 10_000;

fn race(layout: &str, seed: u64) {
    let count = if std::env::var_os("ARTERY_LONG").is_some() { 20_000_000 } else { 100_000 };
    let domain = Domain::new();
    let mut art = Art::<u32>::new(&domain, layout.parse().unwrap(), &Pages).unwrap();
    let (round, progress) = (Round::new(seed), Progress::default());
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (table, reader) = (art.reader(), domain.reader());
                let (round, progress) = (&round, &progress);
                scope.spawn(move || read(&table, reader, round, progress))
            })
            .collect();
        write(&mut art, &round, &progress, |done| {
            let has_failed = || readers.iter().any(|reader| reader.is_finished());
            done >= count && (progress.satisfied.load(SeqCst) == readers.len() || has_failed())
        });
        for reader in readers {
            let checked = reader.join().expect("a reader found a wrong answer");
            assert!(checked >= ENOUGH, "only {checked} answers were checked; seed {seed}");
        }
    });
}

#[test]
fn every_answer_was_right_at_some_moment_of_the_lookup() {
    race("8/4/4/4/4/4/4", 1);
    race("16/8/8", 2);
}

#[test]
fn tables_of_sixteen_bits_come_and_go_under_readers() {
    race("8/16/8", 3);
}
