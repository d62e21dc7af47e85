//! What tables said of the addresses of a packet, so that each is asked once, and how often they said what.
use super::index::Sets;
use super::query::{End, TableQuery};
use crate::tables::Table;
use std::net::IpAddr;
use std::sync::Arc;

/// What is known of the current packet, and counts of table lookups that were not yet added to the tables.
#[derive(Default)]
pub(super) struct Memo {
    slots: Vec<Slot>,
    /// What marks an answer that is about the packet as it is now. Even.
    now: u32,
    worker: usize,
    /// What the last test failed by, if that was a table.
    denied: Option<TableQuery>,
    /// For each end the class of its address, by the index of small tables; [`UNKNOWN`] before its first use.
    classes: [u32; 2],
    /// Addresses that were looked for in the index, by end.
    looked: [u32; 2],
    /// The index they were looked for in, and which of its tables rules use for each end.
    index: u64,
    queried: [Vec<u64>; 2],
}

#[derive(Clone, Copy, Default)]
struct Slot {
    /// For each end `now`, plus 1 if the address is in the table.
    answers: [u32; 2],
    matches: u32,
    no_match: u32,
    /// Times that the index found an address in the table.
    found: u32,
}

/// Lookups of a table that a worker counts by itself before it adds them to the table's counters.
const TOLD_AT_ONCE: u32 = 256;

/// Lookups in the index that a worker counts by itself before it adds them to the counters of all tables.
const TOLD_OF_INDEX: u32 = 1 << 16;

const UNKNOWN: u32 = u32::MAX;

impl Memo {
    pub(super) fn new(tables: usize, worker: usize) -> Memo {
        Memo {
            slots: vec![Slot::default(); tables],
            now: 2,
            worker,
            classes: [UNKNOWN; 2],
            index: u64::MAX,
            queried: [(); 2].map(|()| vec![0; tables.div_ceil(64)]),
            ..Memo::default()
        }
    }

    /// Forgets the answers: the packet is another, or has other addresses.
    #[inline]
    pub(super) fn reset_answers(&mut self) {
        self.classes = [UNKNOWN; 2];
        self.now = self.now.wrapping_add(2);
        if self.now == 0 {
            self.slots.iter_mut().for_each(|slot| slot.answers = [0; 2]);
            self.now = 2;
        }
    }

    /// Uses an index from now on: what was counted with another is added to the tables.
    #[inline]
    pub(super) fn go_by(&mut self, sets: &Sets, tables: &[Arc<Table>]) {
        let is_full = (self.looked[0] | self.looked[1]) >= TOLD_OF_INDEX;
        if self.index != sets.change_count() || is_full {
            self.flush_counters(tables);
            self.index = sets.change_count();
            for (end, asked) in [End::Source, End::Destination].into_iter().zip(&mut self.queried) {
                asked.copy_from_slice(sets.asked_tables(end));
            }
        }
    }

    /// What the last test failed by, if that was a table.
    #[inline]
    pub(super) fn pop_denied(&mut self) -> Option<TableQuery> {
        self.denied.take()
    }

    /// Records the table query that a test failed by, if any.
    #[inline]
    pub(super) fn set_denied(&mut self, denied: Option<TableQuery>) {
        self.denied = denied;
    }

    /// Adds what was counted to the counters of tables.
    pub(super) fn flush_counters(&mut self, tables: &[Arc<Table>]) {
        for (place, (slot, table)) in self.slots.iter_mut().zip(tables).enumerate() {
            let is_asked = |end: usize| self.queried[end][place / 64] >> (place % 64) & 1 == 1;
            let looked = [0, 1].map(|end| if is_asked(end) { self.looked[end] } else { 0 });
            let found = std::mem::take(&mut slot.found);
            slot.matches += found;
            slot.no_match += looked[0] + looked[1] - found;
            slot.flush_counts(table, self.worker);
        }
        self.looked = [0; 2];
    }

    /// The class of the address of an end; the index must be the one that this [goes by](Memo::go_by).
    #[inline]
    pub(super) fn class(&mut self, end: End, address: IpAddr, sets: &Sets) -> u32 {
        let known = self.classes[end as usize];
        if known != UNKNOWN {
            return known;
        }
        let class = sets.class_of(address);
        self.classes[end as usize] = class;
        self.looked[end as usize] += 1;
        for (word, (found, asked)) in
            sets.tables_of_class(class).iter().zip(&self.queried[end as usize]).enumerate()
        {
            let mut found = found & asked;
            while found != 0 {
                self.slots[word * 64 + found.trailing_zeros() as usize].found += 1;
                found &= found - 1;
            }
        }
        class
    }

    #[inline]
    pub(super) fn contains(
        &mut self,
        table: u32,
        end: End,
        ask: impl FnOnce() -> bool,
        tables: &[Arc<Table>],
    ) -> bool {
        let slot = &mut self.slots[table as usize];
        let known = slot.answers[end as usize];
        if known & !1 == self.now {
            return known & 1 == 1;
        }
        let is_in = ask();
        slot.answers[end as usize] = self.now | u32::from(is_in);
        slot.matches += u32::from(is_in);
        slot.no_match += u32::from(!is_in);
        if slot.matches + slot.no_match >= TOLD_AT_ONCE {
            slot.flush_counts(&tables[table as usize], self.worker);
        }
        is_in
    }
}

impl Slot {
    fn flush_counts(&mut self, table: &Table, worker: usize) {
        if self.matches + self.no_match > 0 {
            table.count_lookups(worker, self.matches, self.no_match);
            (self.matches, self.no_match) = (0, 0);
        }
    }
}
