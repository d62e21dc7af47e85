//! Which of the small tables of a rule set an address is in, found by one search for all of them.
//!
//! Where networks of these tables begin and end cuts all addresses into intervals; addresses that are in the
//! same tables are of one class. A class has the set of its tables and, for each rule set, the row of the
//! rules that may match.
//!
//! Big tables are not in the index, and neither are those that packets fill (`overload`): these are
//! searched by themselves. So are all tables while the index is out of date: from the change of a table
//! until control has rebuilt it.
//!
//! A lookup in the index counts as a lookup in all of its tables that rules
//! use for that end.
use super::query::{End, TableQuery};
use crate::steps::{Find, Key};
use crate::tables::{Borders, Table, TableFollower};
use artery_rcu::{Domain, Published, Turn};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Acquire};
use std::sync::{Arc, Mutex, PoisonError};

/// Words that the rows of one thing may have in all.
pub(super) const MOST_WORDS: usize = 1 << 17;

/// Intervals of a table that is small.
const MOST_OF_TABLE: usize = 1 << 11;

/// Intervals of all small tables together: few enough to be rebuilt at once.
const MOST_OF_ALL: usize = 1 << 14;

/// The index of a compiled rule set, which follows its tables.
pub(crate) struct TableIndex {
    domain: Arc<Domain>,
    /// All tables that rules use, and whether they may be in it.
    tables: Box<[(Arc<Table>, bool)]>,
    blocks: Box<[Askers]>,
    /// How often tables that may be in it have changed.
    changes: Arc<AtomicU64>,
    sets: Published<Sets>,
    /// The number of changes that the index follows. Held while it is rebuilt, so that one thread at
    /// a time does so.
    followed: Mutex<u64>,
}

/// Rules of a rule set that use tables.
pub(super) struct Askers {
    /// Words of a row.
    pub(super) words: usize,
    /// For each end, the rules and their table queries.
    pub(super) by_end: [Vec<(usize, TableQuery)>; 2],
}

/// The index as of some number of changes.
pub(crate) struct Sets {
    changes: u64,
    /// Words of a set of tables.
    words: usize,
    /// The tables that are in it.
    known: Box<[u64]>,
    /// Those of them that rules use for each end.
    queried: [Box<[u64]>; 2],
    v4: Intervals<u32>,
    v6: Intervals<u128>,
    /// The set of tables of each class.
    sets: Box<[u64]>,
    blocks: Box<[[Rows; 2]]>,
}

struct Intervals<K: Key> {
    steps: K::Steps,
    class_of: Box<[u32]>,
}

/// For one end and rule set, what classes leave of its rules.
struct Rows {
    /// The rules that use tables of the index; nothing if none does, or where rows would take too many words.
    asking: Box<[u64]>,
    /// The row of rules of each class.
    rows: Box<[u64]>,
}

impl TableIndex {
    /// An index of tables for rule sets; `is_filled` says which of the tables packets fill.
    pub(super) fn new(
        domain: &Arc<Domain>,
        tables: &[Arc<Table>],
        is_filled: impl Fn(&Table) -> bool,
        blocks: impl Iterator<Item = Askers>,
    ) -> TableIndex {
        let tables: Box<[_]> = tables.iter().map(|table| (table.clone(), !is_filled(table))).collect();
        let blocks: Box<[Askers]> = blocks.collect();
        let changes = Arc::default();
        // Whatever changes from here on is noticed.
        tables.iter().filter(|(_, may_be)| *may_be).for_each(|(table, _)| table.subscribe_changes(&changes));
        let sets = Sets::new(0, &tables, &blocks, domain);
        TableIndex {
            domain: domain.clone(),
            tables,
            blocks,
            changes,
            sets: Published::new(domain, sets),
            followed: Mutex::new(0),
        }
    }

    /// The index, unless it is behind.
    #[inline]
    pub(super) fn current_sets<'t>(&'t self, turn: &'t Turn<'_>) -> Option<&'t Sets> {
        let changes = self.changes.load(Acquire);
        let sets = self.sets.read(turn);
        (sets.changes == changes).then_some(sets)
    }
}

impl TableFollower for TableIndex {
    fn rebuild_if_changed(&self) {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        // Tables are changed before that is counted: what is counted here is seen below.
        let changes = self.changes.load(Acquire);
        if *followed != changes {
            self.sets.publish(Sets::new(changes, &self.tables, &self.blocks, &self.domain));
            *followed = changes;
        }
    }
}

/// Numbers for sets of tables.
struct Numbered {
    number_of: HashMap<Box<[u64]>, u32>,
    sets: Vec<u64>,
}

impl Numbered {
    fn intern_set(&mut self, set: &[u64]) -> u32 {
        if let Some(number) = self.number_of.get(set) {
            return *number;
        }
        let number = self.number_of.len() as u32;
        self.number_of.insert(set.into(), number);
        self.sets.extend_from_slice(set);
        number
    }
}

impl Sets {
    fn new(changes: u64, tables: &[(Arc<Table>, bool)], blocks: &[Askers], domain: &Arc<Domain>) -> Sets {
        let words = tables.len().div_ceil(64);
        let small = smallest_tables(tables, words, domain);
        let mut known = vec![0; words];
        small.iter().for_each(|(table, _)| set_bit(&mut known, *table));
        let mut numbered = Numbered { number_of: HashMap::new(), sets: Vec::new() };
        let v4 =
            Intervals::new(small.iter().map(|(table, borders)| (*table, &borders.v4)), words, &mut numbered);
        let v6 =
            Intervals::new(small.iter().map(|(table, borders)| (*table, &borders.v6)), words, &mut numbered);
        let is_known = |asked: &TableQuery| contains(&known, asked.table());
        let asked = [0, 1].map(|end| {
            let mut all = vec![0; words];
            let asked = blocks.iter().flat_map(|block| &block.by_end[end]);
            asked
                .filter(|(_, asked)| is_known(asked))
                .for_each(|(_, asked)| set_bit(&mut all, asked.table()));
            all.into()
        });
        let sets: Vec<&[u64]> = numbered.sets.chunks_exact(words).collect();
        let rows = |block: &Askers| {
            [0, 1].map(|end| {
                let known = block.by_end[end].iter().copied().filter(|(_, asked)| is_known(asked));
                Rows::new(&known.collect::<Vec<_>>(), block.words, &sets)
            })
        };
        let blocks = blocks.iter().map(rows).collect();
        Sets {
            changes,
            words,
            known: known.into(),
            queried: asked,
            v4,
            v6,
            sets: numbered.sets.into(),
            blocks,
        }
    }

    /// Its version among the indexes of a rule set.
    #[inline]
    pub(super) fn change_count(&self) -> u64 {
        self.changes
    }

    /// Whether a table is in it.
    #[inline]
    pub(super) fn contains_table(&self, table: u32) -> bool {
        contains(&self.known, table as usize)
    }

    /// The tables that rules use for an end, as a set.
    pub(super) fn asked_tables(&self, end: End) -> &[u64] {
        &self.queried[end as usize]
    }

    /// The class of an address.
    #[inline]
    pub(super) fn class_of(&self, address: IpAddr) -> u32 {
        match address {
            IpAddr::V4(address) => self.v4.class(address.to_bits()),
            IpAddr::V6(address) => self.v6.class(address.to_bits()),
        }
    }

    /// The tables that addresses of a class are in.
    #[inline]
    pub(super) fn tables_of_class(&self, class: u32) -> &[u64] {
        &self.sets[class as usize * self.words..][..self.words]
    }

    /// Whether addresses of a class are in a table.
    #[inline]
    pub(super) fn contains(&self, class: u32, table: u32) -> bool {
        contains(self.tables_of_class(class), table as usize)
    }

    /// Takes the rules out of a row of a rule set that ask tables what the address of an end is not;
    /// `class` finds its class.
    #[inline]
    pub(super) fn narrow_row(&self, block: usize, end: End, row: &mut [u64], class: impl FnOnce() -> u32) {
        let rows = &self.blocks[block][end as usize];
        let asks = row.iter().zip(&rows.asking).fold(0, |any, (row, asking)| any | (row & asking));
        if asks != 0 {
            let left = &rows.rows[class() as usize * row.len()..][..row.len()];
            row.iter_mut().zip(left).for_each(|(row, left)| *row &= left);
        }
    }
}

impl<K: Key> Intervals<K> {
    fn new<'b>(
        tables: impl Iterator<Item = (usize, &'b Vec<(K, bool)>)>,
        words: usize,
        numbered: &mut Numbered,
    ) -> Intervals<K> {
        let changes = tables
            .flat_map(|(table, borders)| borders.iter().map(move |(start, is_in)| (*start, table, *is_in)));
        let mut changes: Vec<(K, usize, bool)> = changes.collect();
        changes.sort_unstable();
        let (mut starts, mut class_of) = (vec![K::LEAST], Vec::new());
        let mut now = vec![0; words];
        for (start, table, is_in) in changes {
            if starts.last() != Some(&start) {
                class_of.push(numbered.intern_set(&now));
                starts.push(start);
            }
            if is_in { set_bit(&mut now, table) } else { now[table / 64] &= !(1 << (table % 64)) }
        }
        class_of.push(numbered.intern_set(&now));
        Intervals { steps: K::Steps::new(starts), class_of: class_of.into() }
    }

    #[inline]
    fn class(&self, address: K) -> u32 {
        self.class_of[self.steps.find_interval(address)]
    }
}

impl Rows {
    fn new(askers: &[(usize, TableQuery)], words: usize, sets: &[&[u64]]) -> Rows {
        if askers.is_empty() || sets.len() * words > MOST_WORDS {
            return Rows { asking: Box::default(), rows: Box::default() };
        }
        let mut asking = vec![0; words];
        askers.iter().for_each(|(rule, _)| set_bit(&mut asking, *rule));
        let mut rows = vec![u64::MAX; sets.len() * words];
        for (row, tables) in rows.chunks_exact_mut(words).zip(sets) {
            let denied =
                askers.iter().filter(|(_, asked)| contains(tables, asked.table()) == asked.is_negated());
            denied.for_each(|(rule, _)| row[rule / 64] &= !(1 << (rule % 64)));
        }
        Rows { asking: asking.into(), rows: rows.into() }
    }
}

/// The tables that are in the index, with their intervals: of those that may be, the smallest, as long
/// as there is room.
fn smallest_tables(
    tables: &[(Arc<Table>, bool)],
    words: usize,
    domain: &Arc<Domain>,
) -> Vec<(usize, Borders)> {
    let mut reader = domain.reader();
    let turn = reader.turn();
    let may_be = tables.iter().enumerate().filter(|(_, (_, may_be))| *may_be);
    let mut small: Vec<(usize, Borders)> = may_be
        .filter_map(|(place, (table, _))| Some((place, table.interval_borders(&turn, MOST_OF_TABLE)?)))
        .collect();
    small.sort_by_key(|(_, borders)| borders.len());
    let mut room = MOST_OF_ALL.min(MOST_WORDS / words.max(1));
    let fitting = small.iter().take_while(|(_, borders)| {
        let left = room.checked_sub(borders.len());
        room = left.unwrap_or(0);
        left.is_some()
    });
    let fitting = fitting.count();
    small.truncate(fitting);
    small
}

fn set_bit(words: &mut [u64], place: usize) {
    words[place / 64] |= 1 << (place % 64);
}

#[inline]
fn contains(words: &[u64], place: usize) -> bool {
    words[place / 64] >> (place % 64) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anchors::Anchors;
    use crate::evaluate::{Compiled, load_rulesets};
    use crate::names::Interfaces;
    use crate::rule::Ruleset;
    use crate::syntax::{Environment, ParseSettings, parse};
    use crate::tables::{TableEntry, Tables};
    use std::time::Duration;

    const RULES: &str = "table <small> { 10.0.0.0/8 !10.1.0.0/16 2001:db8::/32 }\n\
                         table <other> { 10.1.0.0/24 }\ntable <filled> persist\n\
                         pass from <small> to ! <other> keep state (max-src-conn 5, overload <filled>)\n\
                         block from <filled>\n";

    fn ruleset(text: &str) -> Ruleset {
        let parsed = parse("text", text.as_bytes(), &Environment::fixture(), &ParseSettings::default());
        parsed.unwrap_or_else(|faults| panic!("{}", faults[0])).ruleset
    }

    fn compiled(tables: &mut Tables) -> Compiled {
        let ruleset = ruleset(RULES);
        let loaded = load_rulesets(
            vec![(String::new(), ruleset)],
            &mut Anchors::default(),
            tables,
            &Interfaces::default(),
            Duration::ZERO,
        );
        loaded.unwrap()
    }

    /// The tables that an address is in, by their numbers, of those that are in the index.
    fn found(compiled: &Compiled, domain: &Arc<Domain>, address: &str) -> Option<Vec<u32>> {
        let mut reader = domain.reader();
        let turn = reader.turn();
        let sets = compiled.program.index.as_ref()?.current_sets(&turn)?;
        let class = sets.class_of(address.parse().unwrap());
        Some((0..3).filter(|table| sets.contains_table(*table) && sets.contains(class, *table)).collect())
    }

    fn hosts(count: u32) -> Vec<TableEntry> {
        (0..count).map(|n| TableEntry::new(std::net::Ipv4Addr::from_bits(n * 7).into(), 32, false)).collect()
    }

    #[test]
    fn one_search_tells_all_small_tables_that_an_address_is_in() {
        let domain = Domain::new();
        let mut tables = Tables::new(&domain);
        let compiled = compiled(&mut tables);
        let found = |address| found(&compiled, &domain, address);
        assert_eq!(found("10.2.0.1"), Some(vec![0]));
        assert_eq!(found("10.1.0.1"), Some(vec![1]));
        assert_eq!(found("10.1.1.1"), Some(vec![]));
        assert_eq!(found("2001:db8::7"), Some(vec![0]));
        tables.add_addresses("", "other", &hosts(1), Duration::ZERO).unwrap();
        assert_eq!(found("0.0.0.0"), Some(vec![1]));
    }

    #[test]
    fn big_tables_are_not_in_it_and_come_back_when_they_are_small() {
        let domain = Domain::new();
        let mut tables = Tables::new(&domain);
        let compiled = compiled(&mut tables);
        tables.add_addresses("", "other", &hosts(2000), Duration::ZERO).unwrap();
        assert_eq!(found(&compiled, &domain, "0.0.0.7"), Some(vec![]));
        assert_eq!(found(&compiled, &domain, "10.2.0.1"), Some(vec![0]));
        let few = crate::tables::Command::Replace(hosts(2));
        crate::tables::run_command(&mut tables, ("", "other"), &few, Default::default(), Duration::ZERO);
        assert_eq!(found(&compiled, &domain, "0.0.0.7"), Some(vec![1]));
    }

    #[test]
    fn tables_that_packets_fill_are_never_in_it_and_do_not_make_it_stale() {
        let domain = Domain::new();
        let mut tables = Tables::new(&domain);
        let compiled = compiled(&mut tables);
        let index = compiled.program.index.clone().unwrap();
        tables.add_addresses("", "filled", &hosts(1), Duration::ZERO).unwrap();
        assert_eq!(found(&compiled, &domain, "0.0.0.0"), Some(vec![]));
        assert_eq!(*index.followed.lock().unwrap(), 0);
    }

    #[test]
    fn it_says_nothing_while_it_is_behind() {
        let domain = Domain::new();
        let mut tables = Tables::new(&domain);
        let compiled = compiled(&mut tables);
        let ruleset = ruleset("table <other> { 0.0.0.0 }\n");
        let definitions = [(String::new(), &ruleset.tables[0])];
        tables.define_tables(&definitions, &Interfaces::default(), Duration::ZERO).unwrap();
        assert_eq!(found(&compiled, &domain, "0.0.0.0"), None);
        tables.renew_indexes();
        assert_eq!(found(&compiled, &domain, "0.0.0.0"), Some(vec![1]));
    }
}
