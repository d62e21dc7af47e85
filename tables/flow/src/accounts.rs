//! What was reported of flows that go on, for records of flows (RFC 7011): where the time of the next record
//! begins, and what had been counted up to then. There is a place for each entry, beside the entries, and
//! only where records are wanted.
use super::FlowTable;
use super::entry::{self, Line};
use super::key::FlowKey;
use super::tick::{Tick, ticks_of};
use super::view::{FlowCursor, FlowId, FlowView};
use artery_storage::{Storage, Words};
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Words of a place: when the period began, with [`KNOWN`] above it; packets; bytes.
const WORDS: usize = 3;
/// The place was written for its flow. Places of flows older than the accounts are zero.
const KNOWN: u64 = 1 << 32;

/// What a flow did since it was last reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowPeriod {
    /// When the flow, or the period, began.
    pub start: Tick,
    /// When its last packet came.
    pub end: Tick,
    /// Packets since it was last reported.
    pub packets: u64,
    /// Bytes since it was last reported.
    pub bytes: u64,
}

/// The places of all entries.
pub(super) struct Accounts {
    places: Words<AtomicU64>,
    /// When flows without a known beginning began at the latest.
    began: Tick,
}

impl Accounts {
    fn place(&self, id: u32) -> &[AtomicU64; WORDS] {
        &self.places.as_chunks().0[id as usize]
    }

    /// Begins a period: what was counted before it is reported.
    pub(super) fn begin_period(&self, id: u32, since: Tick, [packets, bytes]: [u64; 2]) {
        let words = [u64::from(since.0) | KNOWN, packets, bytes];
        self.place(id).iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
    }

    /// The present period of a flow.
    pub(super) fn period<K: FlowKey>(&self, id: u32, line: &Line) -> FlowPeriod {
        let [since, packets, bytes] = self.place(id).each_ref().map(|word| word.load(Relaxed));
        let [all_packets, all_bytes] = entry::load_counts::<K>(line);
        FlowPeriod {
            start: if since & KNOWN != 0 { Tick(since as u32) } else { self.began },
            end: entry::load_status(line).seen,
            packets: all_packets.saturating_sub(packets),
            bytes: all_bytes.saturating_sub(bytes),
        }
    }

    /// Forgets a flow, so that the next one in its place does not get its account.
    pub(super) fn clear(&self, id: u32) {
        self.place(id).iter().for_each(|word| word.store(0, Relaxed));
    }
}

impl<K: FlowKey> FlowTable<K> {
    /// Keeps accounts of flows from now on: ends say what was not reported, and flows that go on are met by
    /// [`report_active`](Self::report_active).
    pub fn keep_accounts(&mut self, now: Tick, storage: &dyn Storage) -> io::Result<()> {
        if self.accounts.is_none() {
            let places = Words::new(storage, "accounts of flows", self.room.flows as usize * WORDS)?;
            self.accounts = Some(Accounts { places, began: now });
        }
        Ok(())
    }

    /// Shows those of up to `most` flows that have had packets since they were reported, if that is `active`
    /// ago or longer, and takes them for reported; as [`walk_flows`](Self::walk_flows) otherwise.
    pub fn report_active(
        &self,
        from: FlowCursor,
        most: usize,
        now: Tick,
        active: Duration,
        mut each: impl FnMut(FlowView<'_, K>, FlowPeriod),
    ) -> Option<FlowCursor> {
        let accounts = self.accounts.as_ref()?;
        let active = ticks_of(active);
        self.walk_flows(from, most, |view| {
            let (id, line) = (view.id().0, self.entries.line(view.id().0));
            let period = accounts.period::<K>(id, line);
            if period.packets > 0 && now.since(period.start).is_some_and(|age| age >= active) {
                each(view, period);
                accounts.begin_period(id, period.end, entry::load_counts::<K>(line));
            }
        })
    }

    /// What a flow did since it was last reported, where accounts are kept.
    pub fn unreported(&self, id: FlowId) -> Option<FlowPeriod> {
        self.get(id)?;
        Some(self.accounts.as_ref()?.period::<K>(id.0, self.entries.line(id.0)))
    }

    /// Continues the account of a flow that another table had.
    pub fn continue_account(&self, id: FlowId, period: FlowPeriod) {
        if let Some(accounts) = &self.accounts
            && self.get(id).is_some()
        {
            let [packets, bytes] = entry::load_counts::<K>(self.entries.line(id.0));
            let reported = [packets.saturating_sub(period.packets), bytes.saturating_sub(period.bytes)];
            accounts.begin_period(id.0, period.start, reported);
        }
    }
}
