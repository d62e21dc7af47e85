//! Tables as rule sets define them, all or none: whether there is room for them is found out
//! before any is changed.
use super::{OverLimit, TableEntry, TableRecord, Tables};
use crate::names::Interfaces;
use crate::options::Limit;
use crate::rule::{SourceLocation, TableDefinition};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// A table of an anchor's rule set.
struct Definition<'a> {
    anchor: &'a str,
    table: &'a TableDefinition,
    /// What it is to hold, each once; None if it keeps what it has.
    entries: Option<Vec<TableEntry>>,
}

impl Tables {
    /// Makes tables as rule sets of anchors define them, or none, and says where there would be too many of
    /// them, or of their entries. Where no addresses are given, those that a table had stay. Rules that are
    /// compiled already ask the tables by themselves from then on, until these are changed otherwise.
    pub fn define_tables(
        &mut self,
        definitions: &[(String, &TableDefinition)],
        interfaces: &Interfaces,
        now: Duration,
    ) -> Result<(), (SourceLocation, OverLimit)> {
        let definitions =
            definitions.iter().map(|(anchor, table)| Definition::new(anchor, table, interfaces));
        let definitions: Vec<_> = definitions.collect();
        self.check_room(&definitions)?;
        definitions.iter().for_each(|definition| self.define_table(definition, now));
        Ok(())
    }

    /// Whether there may be all that is defined, beside what stays.
    fn check_room(&self, definitions: &[Definition<'_>]) -> Result<(), (SourceLocation, OverLimit)> {
        let mut tables = Demand::new(Limit::Tables, self.most_tables, self.count_tables());
        let mut entries = Demand::new(Limit::TableEntries, self.most_entries, self.count_entries());
        let (mut seen, mut filled) = (HashSet::new(), HashMap::new());
        for definition in definitions {
            let (key, place) = ((definition.anchor, &*definition.table.name), &definition.table.place);
            let record = self.find_record(key.0, key.1).ok();
            if seen.insert(key) {
                tables.count_replacement(usize::from(record.is_some()), 0, 1, place);
            }
            if let Some(new) = &definition.entries {
                let before = filled.insert(key, new.len());
                let there = before.unwrap_or(record.map_or(0, TableRecord::len));
                entries.count_replacement(there, before.unwrap_or(0), new.len(), place);
            }
        }
        tables.check_limit()?;
        entries.check_limit()
    }

    fn define_table(&mut self, Definition { anchor, table, entries }: &Definition<'_>, now: Duration) {
        let record = self.records.entry((anchor.to_string(), table.name.clone()));
        let record = record.or_insert_with(|| TableRecord::new(&self.domain, &table.name));
        if !std::mem::replace(&mut record.is_active, true) {
            record.since = now;
        }
        record.is_const = table.is_const;
        record.is_persistent = table.is_persistent;
        record.has_counters = table.has_counters;
        record.follow_counters(now);
        if let Some(entries) = entries {
            record.replace_all(entries, now);
        }
    }
}

impl<'a> Definition<'a> {
    fn new(anchor: &'a str, table: &'a TableDefinition, interfaces: &Interfaces) -> Definition<'a> {
        let is_filled = table.has_list || !table.files.is_empty();
        let mut named = HashSet::new();
        let is_first = |entry: &TableEntry| named.insert((entry.address, entry.length));
        let entries = is_filled.then(|| entries_of(table, interfaces).filter(is_first).collect());
        Definition { anchor, table, entries }
    }
}

fn entries_of(table: &TableDefinition, interfaces: &Interfaces) -> impl Iterator<Item = TableEntry> {
    table.addresses.iter().flat_map(|address| {
        let networks = interfaces.resolve_networks(&address.address).into_iter();
        networks.map(|(network, length)| TableEntry::new(network, length, address.is_negated))
    })
}

/// How many there would be of what is limited.
struct Demand {
    over: OverLimit,
    /// How many there are now.
    there: usize,
    /// How many the definitions say themselves.
    own: usize,
    /// The first definition with which there are more than may be.
    place: Option<SourceLocation>,
}

impl Demand {
    fn new(limit: Limit, most: usize, there: usize) -> Demand {
        Demand { over: OverLimit { limit, most, wanted: there }, there, own: 0, place: None }
    }

    /// Counts what a definition puts in the place of what was there, of which definitions before it
    /// had said so many.
    fn count_replacement(&mut self, there: usize, own: usize, new: usize, place: &SourceLocation) {
        self.over.wanted = self.over.wanted + new - there;
        self.own = self.own + new - own;
        if self.over.wanted > self.over.most {
            self.place.get_or_insert_with(|| place.clone());
        }
    }

    /// After a limit was lowered there may be more already than it allows: a table over the limit may not
    /// grow, nor be defined again.
    fn check_limit(self) -> Result<(), (SourceLocation, OverLimit)> {
        let is_new = self.over.wanted > self.there || self.own > self.over.most;
        match self.place {
            Some(place) if is_new => self.over.check_limit().map_err(|over| (place, over)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::{Environment, ParseSettings, parse};
    use crate::tables::{Command, CommandOptions, run_command};
    use artery_rcu::Domain;

    /// Defines the tables of a text in the main rule set, and says what is shown then of all that is there.
    fn define(tables: &mut Tables, text: &str, now: u64) -> (Result<(), (u32, usize)>, String) {
        let parsed = parse("stdin", text.as_bytes(), &Environment::fixture(), &ParseSettings::default());
        let ruleset = parsed.unwrap_or_else(|faults| panic!("{}", faults[0])).ruleset;
        let definitions: Vec<_> = ruleset.tables.iter().map(|table| (String::new(), table)).collect();
        let defined = tables.define_tables(&definitions, &Interfaces::default(), Duration::from_secs(now));
        (defined.map_err(|(place, over)| (place.line, over.wanted)), shown(tables))
    }

    fn shown(tables: &mut Tables) -> String {
        let time = |time: Duration| time.as_secs().to_string();
        let mut text = tables.list_tables("", 2, &time);
        for name in tables.list_tables("", 0, &time).lines() {
            let tone = CommandOptions { verbosity: 2, time: Some(&time), ..CommandOptions::default() };
            text += &run_command(tables, ("", name), &Command::Show, tone, Duration::ZERO).listing;
        }
        text
    }

    const TEXT: &str = "table <a> persist counters { 10.0.0.1 10.0.0.2 }\ntable <b> const { 10.0.0.3 }\n";

    #[test]
    fn what_does_not_fit_changes_nothing_of_what_is_before_it() {
        let mut tables = Tables::new(&Domain::new());
        (tables.most_tables, tables.most_entries) = (3, 4);
        let (defined, before) = define(&mut tables, TEXT, 5);
        assert_eq!(defined, Ok(()));
        let entries = "table <a> { 10.0.0.4 }\ntable <b> persist { 10.0.0.5 }\n\
            table <c> { 1.1.1.1 1.1.1.2 1.1.1.3 1.1.1.1 }\n";
        assert_eq!(define(&mut tables, entries, 6), (Err((3, 5)), before.clone()));
        let many = "table <a> const\ntable <b> { }\ntable <c> { }\ntable <d> { }\n table <e> { }\n";
        assert_eq!(define(&mut tables, many, 7), (Err((4, 5)), before));
    }

    #[test]
    fn entries_may_go_from_a_table_to_one_before_it() {
        let mut tables = Tables::new(&Domain::new());
        tables.most_entries = 3;
        assert_eq!(define(&mut tables, TEXT, 5).0, Ok(()));
        let turned = "table <b> { 10.0.0.1 10.0.0.2 10.0.0.3 }\ntable <a> { }\n";
        assert_eq!(define(&mut tables, turned, 6).0, Ok(()));
        // The last definition of a table counts.
        let twice =
            "table <b> { 1.1.1.1 1.1.1.2 1.1.1.3 }\ntable <b> { 2.2.2.2 }\ntable <a> { 3.3.3.3 3.3.3.4 }\n";
        assert_eq!(define(&mut tables, twice, 7).0, Ok(()));
    }

    #[test]
    fn a_limit_that_is_lowered_lets_shrink_what_is_there_and_no_more() {
        let mut tables = Tables::new(&Domain::new());
        assert_eq!(define(&mut tables, TEXT, 5).0, Ok(()));
        (tables.most_tables, tables.most_entries) = (1, 1);
        assert_eq!(define(&mut tables, TEXT, 6).0, Err((1, 2)));
        assert_eq!(define(&mut tables, "table <c>\n", 6).0, Err((1, 3)));
        assert_eq!(define(&mut tables, "table <b> { 1.1.1.1 1.1.1.2 }\n", 6).0, Err((1, 4)));
        assert_eq!(define(&mut tables, "table <b> { 1.1.1.1 }\n", 6).0, Ok(()));
        assert_eq!(define(&mut tables, "table <a> { }\n", 6).0, Ok(()));
    }
}
