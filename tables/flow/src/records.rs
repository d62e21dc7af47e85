//! Walks over a table: to show flows, to take them elsewhere, to remove those of a kind; and records that
//! come in.
use super::entry::{self, IMPORTED, LIVE, MARKED, PINNED, Status, YOUNG};
use super::key::FlowKey;
use super::tick::Tick;
use super::view::{FlowCursor, FlowId, FlowRecord, FlowView, Imported};
use super::{FlowTable, Full};

/// Entries that share a word of the set of taken ones.
const WORD: usize = 64;

impl<K: FlowKey> FlowTable<K> {
    /// Shows up to `most` flows from where a walk has come to, and says where it goes on, or
    /// that it has ended.
    pub fn walk_flows(
        &self,
        from: FlowCursor,
        most: usize,
        mut each: impl FnMut(FlowView<'_, K>),
    ) -> Option<FlowCursor> {
        let (mut at, mut words) = (from.0, most.div_ceil(WORD).max(1) * 16);
        for _ in 0..most {
            match self.ids.next(at, &mut words) {
                Ok(id) => {
                    if let Some(view) = FlowView::new(id, self.entries.line(id)) {
                        each(view);
                    }
                    at = id + 1;
                }
                Err(end) => return (end < self.ids.end()).then_some(FlowCursor(end)),
            }
        }
        (at < self.ids.end()).then_some(FlowCursor(at))
    }

    /// Appends records of up to `most` flows to `into`; as [`walk_flows`](Self::walk_flows) otherwise.
    pub fn export_records(
        &self,
        from: FlowCursor,
        most: usize,
        now: Tick,
        into: &mut Vec<FlowRecord<K>>,
    ) -> Option<FlowCursor> {
        self.walk_flows(from, most, |view| into.push(view.full_record(now)))
    }

    /// Removes those of up to `most` flows for which `is` holds; as [`walk_flows`](Self::walk_flows)
    /// otherwise.
    pub fn flush_flows(
        &mut self,
        from: FlowCursor,
        most: usize,
        mut is: impl FnMut(&FlowView<'_, K>) -> bool,
    ) -> Option<FlowCursor> {
        let mut flows = Vec::new();
        let next = self.walk_flows(from, most, |view| {
            if is(&view) {
                flows.push(view.id());
            }
        });
        flows.into_iter().for_each(|id| {
            self.remove(id);
        });
        next
    }

    /// Marks a flow for its caller's own purposes, or unmarks it. It keeps its mark until it ends, whatever
    /// becomes of it; records of it have none.
    pub fn mark_flow(&self, id: FlowId, is_marked: bool) {
        if self.get(id).is_some() {
            let line = self.entries.line(id.0);
            let status = entry::load_status(line);
            let flags = if is_marked { status.flags | MARKED } else { status.flags & !MARKED };
            entry::set_status(line, Status { flags, ..status });
        }
    }

    /// Takes a flow over from elsewhere. It is marked until a packet of it is seen. Where the table is full,
    /// it displaces the oldest flow that is marked so, and no other. Until then later records change it, and
    /// one of the same version says how long it is idle.
    pub fn import_record(&mut self, record: &FlowRecord<K>, now: Tick) -> Result<Imported, Full> {
        let hash = record.key.hash(&self.seed);
        let status = status_of(record, now);
        match self.find_hashed(&record.key, hash) {
            Some(id) if self.is_older(id, record.version) => {
                self.replace_record(id, record, status);
                Ok(Imported::Newer(id))
            }
            Some(id) => {
                self.refresh_record(id, status);
                Ok(Imported::Known(id))
            }
            None => {
                let counts = [record.packets, record.bytes];
                let id = self.insert_flow(&record.key, hash, record.answer, status, counts)?;
                self.stats.imported += 1;
                Ok(Imported::New(id))
            }
        }
    }

    /// Says whether a flow is known from elsewhere only, and in an older version.
    fn is_older(&self, id: FlowId, version: u16) -> bool {
        let status = entry::load_status(self.entries.line(id.0));
        status.has_flags(IMPORTED) && (version.wrapping_sub(status.version) as i16) > 0
    }

    /// Has a flow that is known from elsewhere only, and in this version, be idle for no longer than there.
    fn refresh_record(&self, id: FlowId, new: Status) {
        let line = self.entries.line(id.0);
        let old = entry::load_status(line);
        let is_same = old.has_flags(IMPORTED) && old.version == new.version;
        if is_same && new.seen.since(old.seen).is_some_and(|ticks| ticks > 0) {
            entry::set_status(line, Status { seen: new.seen, ..old });
        }
    }

    /// Brings a flow to what a record says. It is not young any more: while it is, its
    /// version does not change.
    fn replace_record(&mut self, id: FlowId, record: &FlowRecord<K>, new: Status) {
        let line = self.entries.line(id.0);
        let old = entry::load_status(line);
        self.young_count -= u32::from(old.has_flags(YOUNG));
        entry::set_answer(line, record.answer);
        entry::set_counts::<K>(line, [record.packets, record.bytes]);
        if let Some(accounts) = &self.accounts {
            accounts.begin_period(id.0, new.seen, [record.packets, record.bytes]);
        }
        entry::set_status(line, Status { flags: new.flags & !YOUNG | old.flags & MARKED, ..new });
        if old.has_flags(PINNED) && !new.has_flags(PINNED) {
            self.track_imported(id.0);
        }
    }
}

fn status_of<K>(record: &FlowRecord<K>, now: Tick) -> Status {
    let young = if record.is_young && !record.is_pinned { YOUNG } else { 0 };
    let pinned = if record.is_pinned { PINNED } else { 0 };
    let flags = LIVE | IMPORTED | young | pinned;
    Status { seen: now.before(record.idle), state: record.state, flags, version: record.version }
}
