//! Which rules of a rule set may match a packet at all.
//!
//! For each thing that rules ask of a packet's head (interface; direction, family and protocol; ports;
//! addresses) packets fall into classes, and each class has a row of bits, one for each rule that may match
//! packets of it. The rules to test for a packet are those in the rows of all its classes. Where that
//! would take too many rows, neighboring classes share one. Rows say "may": every rule they leave out would
//! not have matched, and every other one is asked in full.
use super::address::{AddressTest, Addresses, EndTest};
use super::index::MOST_WORDS;
use super::query::{End, TableQuery};
use super::test::{Conditions, PortTest, Test};
use crate::facts::{Direction, Facts, Family};
use crate::steps::{Find, Key};
use artery_wire::IpProtocol;
use std::collections::HashMap;
use std::net::IpAddr;

/// Rows of a rule set, by what a packet is.
pub(super) struct Candidates {
    /// Words of a row.
    words: usize,
    everything: Box<[u64]>,
    places: Places,
    kinds: Kinds,
    source_ports: Classes<u16>,
    destination_ports: Classes<u16>,
    sources4: Classes<u32>,
    sources6: Classes<u128>,
    destinations4: Classes<u32>,
    destinations6: Classes<u128>,
    tables: TableRows,
}

/// Rows of the rules that ask the same of the same table, where these are many: what it denies
/// one, it denies all.
struct TableRows {
    /// For each [`TableQuery`] the number of its row plus one; 0 where there is none.
    row_of: Box<[u32]>,
    rows: Box<[u64]>,
}

/// Rules that must ask the same of a table for a row of their own to be worth its words.
const WORTH_A_ROW: usize = 4;

struct Places {
    /// The row of each interface, and at last that of those not known.
    row_of: Box<[u32]>,
    rows: Box<[u64]>,
}

/// Rows by direction, family and protocol.
struct Kinds {
    /// 0 is that of all protocols no rule speaks of.
    class_of: [u8; 256],
    classes: usize,
    rows: Box<[u64]>,
}

/// Rows by port or address.
struct Classes<K: Key> {
    steps: K::Steps,
    rows: Box<[u64]>,
}

impl Candidates {
    pub(super) fn new(tests: &[Test], conditions: &Conditions) -> Candidates {
        let words = tests.len().div_ceil(64);
        let addresses = &conditions.addresses;
        let classes4 =
            |end: fn(&Test) -> EndTest| Classes::new(tests, words, |test| accepted_ipv4(&end(test)));
        let classes6 = |end: fn(&Test) -> EndTest| {
            Classes::new(tests, words, |test| accepted_ipv6(&end(test), addresses))
        };
        Candidates {
            words,
            everything: build_row(tests, words, |_| true).into(),
            places: Places::new(tests, words, conditions),
            kinds: Kinds::new(tests, words),
            source_ports: Classes::new(tests, words, |test| accepted_ports(test.source_port)),
            destination_ports: Classes::new(tests, words, |test| accepted_ports(test.destination_port)),
            sources4: classes4(|test| test.source),
            sources6: classes6(|test| test.source),
            destinations4: classes4(|test| test.destination),
            destinations6: classes6(|test| test.destination),
            tables: TableRows::new(tests, words, addresses),
        }
    }

    /// The row of all rules.
    pub(super) fn all_rules(&self) -> &[u64] {
        &self.everything
    }

    /// Writes the row of the rules that may match a packet.
    pub(super) fn write_row(&self, facts: &Facts, row: &mut [u64]) {
        let n = self.words;
        let row = &mut row[..n];
        let places = &self.places.row(facts, n)[..n];
        let kinds = &self.kinds.row(facts, n)[..n];
        let source_ports = &self.source_ports.row(facts.source_port, n)[..n];
        let destination_ports = &self.destination_ports.row(facts.destination_port, n)[..n];
        let sources = match facts.source {
            IpAddr::V4(address) => &self.sources4.row(address.to_bits(), n)[..n],
            IpAddr::V6(address) => &self.sources6.row(address.to_bits(), n)[..n],
        };
        let destinations = match facts.destination {
            IpAddr::V4(address) => &self.destinations4.row(address.to_bits(), n)[..n],
            IpAddr::V6(address) => &self.destinations6.row(address.to_bits(), n)[..n],
        };
        for word in 0..n {
            let head = places[word] & kinds[word] & source_ports[word] & destination_ports[word];
            row[word] = head & sources[word] & destinations[word];
        }
    }
}

impl Candidates {
    /// Takes the rules out of a row whose table query has failed.
    #[inline]
    pub(super) fn exclude_denied(&self, asked: TableQuery, row: &mut [u64]) {
        let denied = self.tables.row_of.get(asked.0 as usize).and_then(|place| place.checked_sub(1));
        if let Some(place) = denied {
            let denied = &self.tables.rows[place as usize * self.words..][..self.words];
            row.iter_mut().zip(denied).for_each(|(word, denied)| *word &= !denied);
        }
    }
}

impl TableRows {
    fn new(tests: &[Test], words: usize, addresses: &Addresses) -> TableRows {
        let mut row_of = vec![0; addresses.tables.len() * TableQuery::PER_TABLE];
        let asked = |test: &Test| {
            [test.source.table_query(End::Source), test.destination.table_query(End::Destination)]
        };
        let mut askers: HashMap<TableQuery, Vec<usize>> = HashMap::new();
        for (place, test) in tests.iter().enumerate() {
            asked(test).into_iter().flatten().for_each(|asked| askers.entry(asked).or_default().push(place));
        }
        let mut rows = Vec::new();
        let worth = WORTH_A_ROW.max(words / 4);
        for (number, (asked, askers)) in askers.iter().filter(|(_, askers)| askers.len() >= worth).enumerate()
        {
            row_of[asked.0 as usize] = number as u32 + 1;
            let begin = rows.len();
            rows.resize(begin + words, 0);
            askers.iter().for_each(|place| set_bit(&mut rows[begin..], *place));
        }
        TableRows { row_of: row_of.into(), rows: rows.into() }
    }
}

/// A row of the rules that are as said.
fn build_row(tests: &[Test], words: usize, is_in: impl Fn(&Test) -> bool) -> Vec<u64> {
    let mut row = vec![0; words];
    for (place, _) in tests.iter().enumerate().filter(|(_, test)| is_in(test)) {
        set_bit(&mut row, place);
    }
    row
}

fn set_bit(row: &mut [u64], place: usize) {
    row[place / 64] |= 1 << (place % 64);
}

impl Places {
    fn new(tests: &[Test], words: usize, conditions: &Conditions) -> Places {
        let interfaces = conditions.places[0].len();
        let mut numbers: HashMap<Vec<u64>, u32> = HashMap::new();
        let (mut row_of, mut rows) = (Vec::new(), Vec::new());
        for interface in 0..interfaces {
            let row = build_row(tests, words, |test| conditions.places[usize::from(test.place)][interface]);
            let next = numbers.len() as u32;
            row_of.push(*numbers.entry(row).or_insert_with_key(|row| {
                rows.extend_from_slice(row);
                next
            }));
        }
        Places { row_of: row_of.into(), rows: rows.into() }
    }

    fn row(&self, facts: &Facts, words: usize) -> &[u64] {
        let place = usize::from(facts.interface.0).min(self.row_of.len() - 1);
        &self.rows[self.row_of[place] as usize * words..]
    }
}

impl Kinds {
    fn new(tests: &[Test], words: usize) -> Kinds {
        let mut class_of = [0; 256];
        let mut protocols: Vec<Option<IpProtocol>> = vec![None];
        for protocol in tests.iter().filter_map(|test| test.protocol) {
            // One of 256 protocols would be left without a class: rules that ask for it
            // may match all packets.
            if class_of[usize::from(protocol.0)] == 0 && protocols.len() < 256 {
                class_of[usize::from(protocol.0)] = protocols.len() as u8;
                protocols.push(Some(protocol));
            }
        }
        let mut rows = Vec::new();
        for direction in [Direction::In, Direction::Out] {
            for family in [Family::Inet, Family::Inet6] {
                for protocol in &protocols {
                    let is_in = |test: &Test| {
                        test.direction.is_none_or(|wanted| wanted == direction)
                            && test.family.is_none_or(|wanted| wanted == family)
                            && test.protocol.is_none_or(|wanted| {
                                Some(wanted) == *protocol || class_of[usize::from(wanted.0)] == 0
                            })
                    };
                    rows.extend(build_row(tests, words, is_in));
                }
            }
        }
        Kinds { class_of, classes: protocols.len(), rows: rows.into() }
    }

    fn row(&self, facts: &Facts, words: usize) -> &[u64] {
        let kind = facts.direction as usize * 2 + facts.family() as usize;
        let class = usize::from(self.class_of[usize::from(facts.protocol.0)]);
        &self.rows[(kind * self.classes + class) * words..]
    }
}

impl<K: Key> Classes<K> {
    /// Classes by what each rule accepts: ranges from first to last.
    fn new(tests: &[Test], words: usize, accepted: impl Fn(&Test) -> [Option<(K, K)>; 2]) -> Classes<K> {
        let mut starts = vec![K::LEAST];
        for (first, last) in tests.iter().flat_map(|test| accepted(test).into_iter().flatten()) {
            starts.push(first);
            starts.extend(last.next());
        }
        starts.sort_unstable();
        starts.dedup();
        let most = (MOST_WORDS / words.max(1)).max(16);
        let steps = K::Steps::new(starts.iter().copied().step_by(starts.len().div_ceil(most)).collect());
        let mut rows = vec![0; steps.len() * words];
        for (place, test) in tests.iter().enumerate() {
            for (first, last) in accepted(test).into_iter().flatten() {
                let classes = steps.find_interval(first)..=steps.find_interval(last);
                classes.for_each(|class| set_bit(&mut rows[class * words..], place));
            }
        }
        Classes { steps, rows: rows.into() }
    }

    #[inline]
    fn row(&self, key: K, words: usize) -> &[u64] {
        let class = if self.steps.len() == 1 { 0 } else { self.steps.find_interval(key) };
        &self.rows[class * words..]
    }
}

/// What is in a range, or outside of it.
fn accepted_ranges<K: Key>(first: K, last: K, is_outside: bool) -> [Option<(K, K)>; 2] {
    match (first <= last, is_outside) {
        (true, false) => [Some((first, last)), None],
        (false, false) => [None, None],
        (false, true) => [Some((K::LEAST, K::MOST)), None],
        (true, true) => {
            [first.previous().map(|below| (K::LEAST, below)), last.next().map(|above| (above, K::MOST))]
        }
    }
}

fn full_range<K: Key>() -> [Option<(K, K)>; 2] {
    [Some((K::LEAST, K::MOST)), None]
}

fn accepted_ports(test: PortTest) -> [Option<(u16, u16)>; 2] {
    accepted_ranges(test.first, test.last, test.is_outside)
}

fn accepted_ipv4(end: &EndTest) -> [Option<(u32, u32)>; 2] {
    match end.address {
        AddressTest::Range4(first, last) => accepted_ranges(first, last, end.is_negated),
        AddressTest::Range6(_) if !end.is_negated => [None, None],
        _ => full_range(),
    }
}

fn accepted_ipv6(end: &EndTest, addresses: &Addresses) -> [Option<(u128, u128)>; 2] {
    match end.address {
        AddressTest::Range6(place) => {
            let (first, last) = addresses.ranges[place as usize];
            accepted_ranges(first, last, end.is_negated)
        }
        AddressTest::Range4(..) if !end.is_negated => [None, None],
        _ => full_range(),
    }
}
