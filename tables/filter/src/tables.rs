//! Tables of addresses: `table <name>`, and what `pfctl -t` does with them.
//!
//! [`Tables`] belongs to control; what rules and pools hold are [`Table`]s, which workers read without a lock
//! while control changes them. An address is in a table if the longest network of the table that contains it
//! is there without `!`.
use crate::facts::Direction;
use crate::names::{Interfaces, address_bits, mask_address};
use crate::options::{Limit, Limits};
use crate::rule::HostAddress;
use crate::steps::Key;
use artery_rcu::{Domain, Published, Turn};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

mod change;
mod command;
mod define;
mod networks;
mod text;

pub use change::{CannotChange, Feedback, OverLimit};
pub use command::{Command, CommandOptions, CommandReply, run_command};
pub use text::parse_entries;

use networks::{EntryCounters, Networks, Snapshot};

/// A network of a table, or an exception from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableEntry {
    /// The first address of the network.
    pub address: IpAddr,
    /// The length of its prefix.
    pub length: u8,
    /// Whether it is an exception.
    pub is_negated: bool,
}

/// A table as rules and workers see it.
pub struct Table {
    name: String,
    v4: Published<Snapshot<u32>>,
    v6: Published<Snapshot<u128>>,
    /// What pools choose from; empty unless one does.
    members: Published<Box<[(IpAddr, u8)]>>,
    is_of_pool: AtomicBool,
    counts: AtomicBool,
    /// Numbers that grow when it changes.
    subscribers: Mutex<Vec<Weak<AtomicU64>>>,
    /// By worker, so that they don't meet.
    counters: [TableCounters; STRIPES],
}

/// How many workers count without meeting another.
const STRIPES: usize = 8;

/// What is counted for a table.
#[derive(Debug, Default)]
#[repr(align(128))]
struct TableCounters {
    /// Times that an address was looked for and not found.
    no_match: AtomicU64,
    /// Times that it was found.
    matches: AtomicU64,
    /// Packets and bytes by direction and [`Use`].
    packets: [[[AtomicU64; 2]; 4]; 2],
}

/// What is made of the contents of tables, and follows them.
pub(crate) trait TableFollower: Send + Sync {
    /// Makes it again if a table has changed since.
    fn rebuild_if_changed(&self);
}

/// All tables, written by control.
pub struct Tables {
    domain: Arc<Domain>,
    /// By anchor and name.
    records: BTreeMap<(String, String), TableRecord>,
    /// What is made of the contents of tables.
    indexes: Vec<Weak<dyn TableFollower>>,
    /// How many entries all tables together may have.
    pub most_entries: usize,
    /// How many tables there may be.
    pub most_tables: usize,
}

struct TableRecord {
    table: Arc<Table>,
    is_const: bool,
    is_persistent: bool,
    /// Whether it exists for `pfctl`: rules may name tables that were never created.
    is_active: bool,
    has_counters: bool,
    /// Rules that speak of it.
    references: u32,
    since: Duration,
    v4: Networks<u32>,
    v6: Networks<u128>,
}

impl Table {
    fn new(domain: &Arc<Domain>, name: &str) -> Table {
        Table {
            name: name.to_string(),
            v4: Published::new(domain, Networks::default().snapshot()),
            v6: Published::new(domain, Networks::default().snapshot()),
            members: Published::new(domain, Box::default()),
            is_of_pool: AtomicBool::new(false),
            counts: AtomicBool::new(false),
            subscribers: Mutex::default(),
            counters: Default::default(),
        }
    }

    /// The table's name, without angle brackets.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether an address is in it.
    #[inline]
    pub fn contains(&self, turn: &Turn<'_>, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.v4.read(turn).contains(address.to_bits()),
            IpAddr::V6(address) => self.v6.read(turn).contains(address.to_bits()),
        }
    }

    /// Where addresses begin that are in it and such that are not; nothing if it has more
    /// than so many intervals.
    pub(crate) fn interval_borders(&self, turn: &Turn<'_>, most: usize) -> Option<Borders> {
        let borders = Borders {
            v4: self.v4.read(turn).interval_borders(most)?,
            v6: self.v6.read(turn).interval_borders(most)?,
        };
        (borders.len() <= most).then_some(borders)
    }

    /// Makes a number grow from now on whenever the table has changed.
    pub(crate) fn subscribe_changes(&self, changes: &Arc<AtomicU64>) {
        let mut all = self.listeners();
        all.retain(|changes| changes.strong_count() > 0);
        all.push(Arc::downgrade(changes));
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Weak<AtomicU64>>> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The networks that a pool chooses from, in order, without exceptions; kept for tables that
    /// rules name in pools.
    pub fn members<'t>(&'t self, turn: &'t Turn<'_>) -> &'t [(IpAddr, u8)] {
        self.members.read(turn)
    }

    /// Counts addresses that were looked for: those found, and those not.
    pub(crate) fn count_lookups(&self, worker: usize, matches: u32, no_match: u32) {
        let counters = &self.counters[worker % STRIPES];
        counters.matches.fetch_add(u64::from(matches), Relaxed);
        counters.no_match.fetch_add(u64::from(no_match), Relaxed);
    }

    /// Resets all counters to zero.
    fn clear_counters(&self) {
        self.counters.iter().for_each(TableCounters::clear);
    }

    /// What is counted for it, of all workers together.
    fn sum_counters(&self, of: impl Fn(&TableCounters) -> &AtomicU64) -> u64 {
        self.counters.iter().map(|counters| of(counters).load(Relaxed)).sum()
    }

    /// Counts a packet of a rule that asks whether an address is in this table, or with `is_negated`
    /// whether it is not.
    pub(crate) fn count_packet(&self, packet: &CountedPacket<'_, '_>, address: IpAddr, is_negated: bool) {
        let holds = self.contains(packet.turn, address) != is_negated;
        let (direction, kind) = (packet.direction.index(), if holds { packet.by } else { Use::Other });
        let counters = &self.counters[packet.worker % STRIPES];
        add_packet(&counters.packets[direction][kind as usize], packet.length);
        if holds && self.counts.load(Relaxed) {
            let entry = match address {
                IpAddr::V4(address) => self.v4.read(packet.turn).counters(address.to_bits()),
                IpAddr::V6(address) => self.v6.read(packet.turn).counters(address.to_bits()),
            };
            if let Some(EntryCounters(entry)) = entry {
                add_packet(&entry[direction][kind as usize], packet.length);
            }
        }
    }
}

/// Where addresses begin that are in a table, and such that are not.
pub(crate) struct Borders {
    pub(crate) v4: Vec<(u32, bool)>,
    pub(crate) v6: Vec<(u128, bool)>,
}

impl Borders {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
}

/// What rule a table served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Block,
    Match,
    Pass,
    /// One of a state that is still there though the table changed.
    Other,
}

/// A packet that is counted for a table.
pub(crate) struct CountedPacket<'a, 't> {
    pub(crate) turn: &'a Turn<'t>,
    pub(crate) worker: usize,
    pub(crate) direction: Direction,
    pub(crate) by: Use,
    pub(crate) length: u32,
}

impl TableCounters {
    fn clear(&self) {
        let packets = self.packets.iter().flatten().flatten();
        packets.chain([&self.no_match, &self.matches]).for_each(|counter| counter.store(0, Relaxed));
    }
}

/// Counts a packet and its bytes.
fn add_packet([packets, bytes]: &[AtomicU64; 2], length: u32) {
    packets.fetch_add(1, Relaxed);
    bytes.fetch_add(u64::from(length), Relaxed);
}

impl TableRecord {
    fn new(domain: &Arc<Domain>, name: &str) -> TableRecord {
        TableRecord {
            table: Arc::new(Table::new(domain, name)),
            is_const: false,
            is_persistent: false,
            is_active: false,
            has_counters: false,
            references: 0,
            since: Duration::ZERO,
            v4: Networks::default(),
            v6: Networks::default(),
        }
    }

    fn len(&self) -> usize {
        self.v4.entries.len() + self.v6.entries.len()
    }

    /// Makes workers see what control has changed.
    fn publish_changes(&mut self, changed: &[TableEntry]) {
        if changed.is_empty() {
            return;
        }
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for entry in changed {
            match entry.address {
                IpAddr::V4(address) => v4.push((address.to_bits(), entry.length)),
                IpAddr::V6(address) => v6.push((address.to_bits(), entry.length)),
            }
        }
        if !v4.is_empty() {
            self.v4.update_intervals(&v4);
            self.table.v4.publish(self.v4.snapshot());
        }
        if !v6.is_empty() {
            self.v6.update_intervals(&v6);
            self.table.v6.publish(self.v6.snapshot());
        }
        self.publish_members();
        // Only now, so that a reader of the number sees the change.
        for number in self.table.listeners().iter().filter_map(Weak::upgrade) {
            number.fetch_add(1, Release);
        }
    }

    fn publish_members(&self) {
        if self.table.is_of_pool.load(Relaxed) {
            let members = self.entries().filter(|entry| !entry.is_negated);
            self.table.members.publish(members.map(|entry| (entry.address, entry.length)).collect());
        }
    }

    /// All entries, IPv4 first, in the order of addresses.
    fn entries(&self) -> impl Iterator<Item = TableEntry> {
        let v4 = self.v4.entries.iter().map(|(&(address, length), entry)| TableEntry {
            address: Ipv4Addr::from_bits(address).into(),
            length,
            is_negated: entry.is_negated,
        });
        v4.chain(self.v6.entries.iter().map(|(&(address, length), entry)| TableEntry {
            address: Ipv6Addr::from_bits(address).into(),
            length,
            is_negated: entry.is_negated,
        }))
    }

    fn get(&self, entry: &TableEntry) -> Option<&networks::Entry> {
        match entry.address {
            IpAddr::V4(address) => self.v4.entries.get(&(address.to_bits(), entry.length)),
            IpAddr::V6(address) => self.v6.entries.get(&(address.to_bits(), entry.length)),
        }
    }

    fn insert(&mut self, entry: &TableEntry, now: Duration) {
        let counters = self.has_counters.then(Arc::default);
        let record = networks::Entry { is_negated: entry.is_negated, counters, since: now };
        match entry.address {
            IpAddr::V4(address) => drop(self.v4.entries.insert((address.to_bits(), entry.length), record)),
            IpAddr::V6(address) => drop(self.v6.entries.insert((address.to_bits(), entry.length), record)),
        }
    }

    fn remove(&mut self, entry: &TableEntry) {
        match entry.address {
            IpAddr::V4(address) => drop(self.v4.entries.remove(&(address.to_bits(), entry.length))),
            IpAddr::V6(address) => drop(self.v6.entries.remove(&(address.to_bits(), entry.length))),
        }
    }

    /// The entry that decides about an address.
    fn longest_match(&self, address: IpAddr) -> Option<TableEntry> {
        match address {
            IpAddr::V4(address) => {
                to_entry(self.v4.longest_match(address.to_bits()), |bits| Ipv4Addr::from_bits(bits).into())
            }
            IpAddr::V6(address) => {
                to_entry(self.v6.longest_match(address.to_bits()), |bits| Ipv6Addr::from_bits(bits).into())
            }
        }
    }
}

fn to_entry<K: Key>(
    found: Option<((K, u8), &networks::Entry)>,
    address: impl Fn(K) -> IpAddr,
) -> Option<TableEntry> {
    let ((bits, length), entry) = found?;
    Some(TableEntry { address: address(bits), length, is_negated: entry.is_negated })
}

impl TableEntry {
    /// An entry, without the bits behind its prefix.
    pub fn new(address: IpAddr, length: u8, is_negated: bool) -> TableEntry {
        let length = length.min(address_bits(address));
        TableEntry { address: mask_address(address, length), length, is_negated }
    }
}

impl Tables {
    /// No tables, for workers of a domain.
    pub fn new(domain: &Arc<Domain>) -> Tables {
        let limits = Limits::default();
        Tables {
            domain: domain.clone(),
            records: BTreeMap::new(),
            indexes: Vec::new(),
            most_entries: limits.limit(Limit::TableEntries) as usize,
            most_tables: limits.limit(Limit::Tables) as usize,
        }
    }

    /// Keeps an index in step with tables from now on.
    pub(crate) fn follow_by(&mut self, index: Arc<dyn TableFollower>) {
        self.indexes.retain(|index| index.strong_count() > 0);
        self.indexes.push(Arc::downgrade(&index));
    }

    /// Rebuilds the indexes that are out of date because tables have changed.
    pub(crate) fn renew_indexes(&self) {
        self.indexes.iter().filter_map(Weak::upgrade).for_each(|index| index.rebuild_if_changed());
    }

    /// The domain of those who read.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// The anchor whose table rules of an anchor mean by a name: their own if it has one, else
    /// the main rule set.
    pub fn holder_anchor<'a>(&self, anchor: &'a str, name: &str) -> &'a str {
        if self.find_record(anchor, name).is_ok() { anchor } else { "" }
    }

    /// The table of a name that rules of an anchor mean. Where there is none, an empty one
    /// waits to be filled.
    pub fn reference_table(&mut self, anchor: &str, name: &str) -> Arc<Table> {
        let key = (self.holder_anchor(anchor, name).to_string(), name.to_string());
        let record = self.records.entry(key).or_insert_with(|| TableRecord::new(&self.domain, name));
        record.references += 1;
        record.table.clone()
    }

    /// The table of a name that a pool chooses from.
    pub fn pool_table(&mut self, anchor: &str, name: &str) -> Arc<Table> {
        let table = self.reference_table(anchor, name);
        table.is_of_pool.store(true, Relaxed);
        let records = self.records.values().filter(|record| Arc::ptr_eq(&record.table, &table));
        records.for_each(TableRecord::publish_members);
        table
    }

    /// A table without a name, such as one of the addresses of an interface.
    pub(crate) fn new_nameless(&self) -> NamelessTable {
        let record = TableRecord::new(&self.domain, "");
        record.table.is_of_pool.store(true, Relaxed);
        NamelessTable(record)
    }

    /// Begins a load of rules: references from rules are counted from zero.
    pub fn begin_load(&mut self) {
        self.records.values_mut().for_each(|record| record.references = 0);
    }

    /// Ends it: tables that are neither spoken of nor to persist go.
    pub fn finish_load(&mut self) {
        self.records.retain(|_, record| {
            record.is_active &= record.is_persistent || record.references > 0;
            record.is_active || record.references > 0
        });
    }

    /// Whether there may be one table more.
    fn check_tables(&self) -> Result<(), OverLimit> {
        OverLimit { limit: Limit::Tables, most: self.most_tables, wanted: self.count_tables() + 1 }
            .check_limit()
    }

    fn count_tables(&self) -> usize {
        self.records.values().filter(|record| record.is_active).count()
    }
}

/// A table that follows the addresses of an interface.
pub(crate) struct NamelessTable(TableRecord);

impl NamelessTable {
    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.0.table
    }

    /// Makes it hold what an address of a rule stands for now.
    pub(crate) fn follow_addresses(&mut self, address: &HostAddress, interfaces: &Interfaces) {
        let new = interfaces.resolve_networks(address).into_iter();
        let new: Vec<TableEntry> =
            new.map(|(network, length)| TableEntry::new(network, length, false)).collect();
        let gone: Vec<TableEntry> = self.0.entries().filter(|entry| !new.contains(entry)).collect();
        gone.iter().for_each(|entry| self.0.remove(entry));
        new.iter().for_each(|entry| self.0.insert(entry, Duration::ZERO));
        self.0.publish_changes(&[gone, new].concat());
    }
}
