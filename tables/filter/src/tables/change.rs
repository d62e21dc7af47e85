//! Changes of tables, all or nothing, with what each address met.
use super::networks::Entry;
use super::{TableEntry, TableRecord, Tables};
use crate::options::Limit;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Why a table stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotChange {
    /// The table does not exist.
    #[error("Table does not exist")]
    NoTable,
    /// The table is `const`.
    #[error("Operation not permitted")]
    Constant,
    /// There would be more entries, or more tables, than may be: what pfctl says, and why.
    #[error("Cannot allocate memory: {0}")]
    Limit(OverLimit),
}

/// What becomes of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryChange {
    Add,
    Delete,
    /// All others are deleted.
    Replace,
    /// Their counters are reset.
    Clear,
}

/// What there would be too many of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverLimit {
    /// Tables, or entries of all tables together.
    pub limit: Limit,
    /// How many there may be.
    pub most: usize,
    /// How many there would be.
    pub wanted: usize,
}

impl OverLimit {
    /// The same as an error, if that is more than may be.
    pub(super) fn check_limit(self) -> Result<(), OverLimit> {
        if self.wanted > self.most { Err(self) } else { Ok(()) }
    }
}

impl fmt::Display for OverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverLimit { limit, most, wanted } = self;
        let what = if *limit == Limit::Tables { "tables" } else { "table entries" };
        let name = limit.name();
        write!(
            f,
            "too many {what}: {wanted} are more than the limit of {most}; `set limit {name} {wanted}` allows \
             them"
        )
    }
}

impl From<OverLimit> for CannotChange {
    fn from(over: OverLimit) -> CannotChange {
        CannotChange::Limit(over)
    }
}

/// What an address met in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// Nothing was to be done.
    Unchanged,
    /// It is in the table.
    Match,
    /// An exception keeps it out.
    Exception,
    /// It was added to the table.
    Added,
    /// It was removed from the table.
    Deleted,
    /// It became an exception, or is one no more.
    Changed,
    /// Its counters were reset.
    Cleared,
    /// It was named twice.
    Duplicate,
    /// It is there with `!` and was named without, or the other way.
    Conflict,
}

/// What each of the named addresses met, and others that were touched.
pub(super) type Feedbacks = Vec<(TableEntry, Feedback)>;

impl Tables {
    /// How many addresses the table has that a rule of an anchor means: the anchor's own, or that of
    /// the main rule set.
    pub fn table_length(&self, anchor: &str, name: &str) -> Option<usize> {
        self.find_record(anchor, name).or_else(|_| self.find_record("", name)).ok().map(TableRecord::len)
    }

    pub(super) fn find_record(&self, anchor: &str, name: &str) -> Result<&TableRecord, CannotChange> {
        let record = self.records.get(&(anchor.to_string(), name.to_string()));
        record.filter(|record| record.is_active).ok_or(CannotChange::NoTable)
    }

    fn record_mut(&mut self, anchor: &str, name: &str) -> Result<&mut TableRecord, CannotChange> {
        let record = self.records.get_mut(&(anchor.to_string(), name.to_string()));
        let record = record.filter(|record| record.is_active).ok_or(CannotChange::NoTable)?;
        if record.is_const { Err(CannotChange::Constant) } else { Ok(record) }
    }

    /// Makes a table that stays though no rule speaks of it; false if there is one.
    pub(super) fn create_table(
        &mut self,
        anchor: &str,
        name: &str,
        now: Duration,
    ) -> Result<bool, CannotChange> {
        if self.find_record(anchor, name).is_ok() {
            return Ok(false);
        }
        self.check_tables()?;
        let record = self.records.entry((anchor.to_string(), name.to_string()));
        let record = record.or_insert_with(|| TableRecord::new(&self.domain, name));
        (record.is_active, record.is_persistent, record.since) = (true, true, now);
        Ok(true)
    }

    /// Adds addresses, as `overload` does, to a table which is made if need be; says how many were new.
    pub fn add_addresses(
        &mut self,
        anchor: &str,
        name: &str,
        entries: &[TableEntry],
        now: Duration,
    ) -> Result<usize, CannotChange> {
        self.create_table(anchor, name, now)?;
        let feedback = self.change_entries((anchor, name), EntryChange::Add, entries, now, false)?;
        self.renew_indexes();
        Ok(feedback.iter().filter(|(_, feedback)| *feedback == Feedback::Added).count())
    }

    /// Changes entries of a table, or says what that would do.
    pub(super) fn change_entries(
        &mut self,
        (anchor, name): (&str, &str),
        change: EntryChange,
        entries: &[TableEntry],
        now: Duration,
        is_dummy: bool,
    ) -> Result<Feedbacks, CannotChange> {
        let (most, count) = (self.most_entries, self.count_entries());
        let record = self.record_mut(anchor, name)?;
        let judge =
            |there, absent| judge_entries(record, entries, |is_there| if is_there { there } else { absent });
        let feedback = match change {
            EntryChange::Add => judge(Feedback::Unchanged, Feedback::Added),
            EntryChange::Delete => judge(Feedback::Deleted, Feedback::Unchanged),
            EntryChange::Clear => judge(Feedback::Cleared, Feedback::Unchanged),
            EntryChange::Replace => record.replacement_feedback(entries),
        };
        let all = |met: Feedback| feedback.iter().filter(|(_, feedback)| *feedback == met).count();
        let (added, deleted) = (all(Feedback::Added), all(Feedback::Deleted));
        if added > deleted {
            OverLimit { limit: Limit::TableEntries, most, wanted: count + added - deleted }.check_limit()?;
        }
        Ok(record.commit_feedback(feedback, now, is_dummy))
    }

    /// Deletes all entries; says how many there were.
    pub(super) fn flush_table(
        &mut self,
        anchor: &str,
        name: &str,
        is_dummy: bool,
    ) -> Result<usize, CannotChange> {
        let record = self.record_mut(anchor, name)?;
        let all: Feedbacks = record.entries().map(|entry| (entry, Feedback::Deleted)).collect();
        Ok(record.commit_feedback(all, Duration::ZERO, is_dummy).len())
    }

    /// Deletes entries whose counters have not been cleared for so long.
    pub(super) fn expire_entries(
        &mut self,
        anchor: &str,
        name: &str,
        age: Duration,
        now: Duration,
        is_dummy: bool,
    ) -> Result<Feedbacks, CannotChange> {
        let record = self.record_mut(anchor, name)?;
        let is_old = |entry: &TableEntry| {
            record.get(entry).is_some_and(|known| now.saturating_sub(known.since) >= age)
        };
        let met = |entry: &TableEntry| if is_old(entry) { Feedback::Deleted } else { Feedback::Unchanged };
        let feedback: Feedbacks = record.entries().map(|entry| (entry, met(&entry))).collect();
        Ok(record.commit_feedback(feedback, now, is_dummy))
    }

    /// Resets the counters of a table and of all its entries.
    pub(super) fn clear(&mut self, anchor: &str, name: &str, now: Duration) -> Result<(), CannotChange> {
        self.find_record(anchor, name)?;
        if let Some(record) = self.records.get_mut(&(anchor.to_string(), name.to_string())) {
            record.table.clear_counters();
            record.since = now;
            let all: Feedbacks = record.entries().map(|entry| (entry, Feedback::Cleared)).collect();
            record.apply_feedback(&all, now);
        }
        Ok(())
    }

    /// Sets the time of creation of tables and entries that were made at time zero, before
    /// the time was known.
    pub fn begin_time(&mut self, now: Duration) {
        let begin = |since: &mut Duration| *since = if since.is_zero() { now } else { *since };
        for record in self.records.values_mut() {
            begin(&mut record.since);
            record.v4.entries.values_mut().for_each(|entry| begin(&mut entry.since));
            record.v6.entries.values_mut().for_each(|entry| begin(&mut entry.since));
        }
    }

    /// Forgets a table. Rules that speak of it find it empty.
    pub(super) fn kill_table(&mut self, anchor: &str, name: &str) -> Result<(), CannotChange> {
        self.find_record(anchor, name)?;
        let key = (anchor.to_string(), name.to_string());
        if let Some(record) = self.records.get_mut(&key) {
            let all: Feedbacks = record.entries().map(|entry| (entry, Feedback::Deleted)).collect();
            record.apply_feedback(&all, Duration::ZERO);
            record.is_active = false;
            if record.references == 0 {
                self.records.remove(&key);
            }
        }
        Ok(())
    }

    pub(super) fn count_entries(&self) -> usize {
        self.records.values().map(TableRecord::len).sum()
    }
}

/// What each address meets; those that come twice, or with the wrong sign, are not looked at further.
fn judge_entries(
    record: &TableRecord,
    entries: &[TableEntry],
    judge: impl Fn(bool) -> Feedback,
) -> Feedbacks {
    let mut named = BTreeMap::new();
    let mut met = |entry: &TableEntry| {
        if let Some(is_negated) = named.insert((entry.address, entry.length), entry.is_negated) {
            return if is_negated == entry.is_negated { Feedback::Duplicate } else { Feedback::Conflict };
        }
        match record.get(entry) {
            Some(there) if there.is_negated != entry.is_negated => Feedback::Conflict,
            there => judge(there.is_some()),
        }
    };
    entries.iter().map(|entry| (*entry, met(entry))).collect()
}

impl TableRecord {
    /// Applies the changes that the feedback reports, unless this is a dry run, and returns it.
    fn commit_feedback(&mut self, feedback: Feedbacks, now: Duration, is_dummy: bool) -> Feedbacks {
        if !is_dummy {
            self.apply_feedback(&feedback, now);
        }
        feedback
    }

    /// Makes it hold just these.
    pub(super) fn replace_all(&mut self, entries: &[TableEntry], now: Duration) {
        let feedback = self.replacement_feedback(entries);
        self.apply_feedback(&feedback, now);
    }

    /// What these meet if nothing else is to stay.
    fn replacement_feedback(&self, entries: &[TableEntry]) -> Feedbacks {
        let mut named = BTreeMap::new();
        let mut feedback: Feedbacks = Vec::with_capacity(entries.len());
        for entry in entries {
            let is_new = named.insert((entry.address, entry.length), ()).is_none();
            let met = match self.get(entry) {
                _ if !is_new => Feedback::Duplicate,
                None => Feedback::Added,
                Some(there) if there.is_negated != entry.is_negated => Feedback::Changed,
                Some(_) => Feedback::Unchanged,
            };
            feedback.push((*entry, met));
        }
        let gone = self.entries().filter(|entry| !named.contains_key(&(entry.address, entry.length)));
        feedback.extend(gone.map(|entry| (entry, Feedback::Deleted)));
        feedback
    }

    /// Does what the feedback says, and makes workers see it.
    fn apply_feedback(&mut self, feedback: &Feedbacks, now: Duration) {
        let mut touched = Vec::new();
        for (entry, met) in feedback {
            match met {
                Feedback::Added | Feedback::Changed | Feedback::Cleared => self.insert(entry, now),
                Feedback::Deleted => self.remove(entry),
                _ => continue,
            }
            touched.push(*entry);
        }
        self.publish_changes(&touched);
    }

    /// Gives entries counters, or takes them away, where the definition of the table changed.
    pub(super) fn follow_counters(&mut self, now: Duration) {
        self.table.counts.store(self.has_counters, Relaxed);
        let all: Vec<TableEntry> = self.entries().collect();
        let differs = |entry: &Entry| entry.counters.is_some() != self.has_counters;
        if all.iter().any(|entry| self.get(entry).is_some_and(differs)) {
            all.iter().for_each(|entry| self.insert(entry, now));
            self.publish_changes(&all);
        }
    }
}
