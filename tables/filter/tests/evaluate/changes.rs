//! Random changes of tables, as `pfctl` and loads of rules make them, and what becomes of what tables hold.
use super::define;
use super::naive::Naive;
use super::random::{Random, TABLES};
use artery_filter::tables::{Command, CommandOptions, TableEntry, Tables, run_command};
use std::net::IpAddr;
use std::time::Duration;

type Entry = (IpAddr, u8, bool);

/// Changes a table; it may become a big one if that is wanted.
pub(crate) fn change(random: &mut Random, tables: &mut Tables, naive: &mut Naive, may_be_big: bool) {
    let name = TABLES[random.below(TABLES.len() as u64) as usize];
    let is_big = may_be_big && random.below(3) == 0;
    let entries = if is_big { random.many_entries() } else { random.entries() };
    let known = naive.tables.entry(name.to_string()).or_default();
    match random.below(5) {
        0 => {
            run(tables, name, Command::Replace(written(&entries)));
            *known = entries;
        }
        1 => {
            define(tables, name, &entries);
            *known = entries;
        }
        2 => {
            run(tables, name, Command::Add(written(&entries)));
            let is_new = |entry: &&Entry| !known.iter().any(|other| (other.0, other.1) == (entry.0, entry.1));
            let new: Vec<Entry> = entries.iter().filter(is_new).copied().collect();
            known.extend(new);
        }
        3 => {
            run(tables, name, Command::Delete(written(&entries)));
            known.retain(|entry| !entries.contains(entry));
        }
        _ => {
            run(tables, name, Command::Flush);
            known.clear();
        }
    }
}

fn run(tables: &mut Tables, name: &str, what: Command) {
    run_command(tables, ("", name), &what, CommandOptions::default(), Duration::ZERO);
}

fn written(entries: &[Entry]) -> Vec<TableEntry> {
    entries
        .iter()
        .map(|(address, length, is_negated)| TableEntry::new(*address, *length, *is_negated))
        .collect()
}
