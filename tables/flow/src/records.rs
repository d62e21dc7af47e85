//! Walks over a table: to show flows, to take them elsewhere, to remove those of a kind; and records that
//! come in.
use super::entry::{self, IMPORTED, LIVE, MARKED, PINNED, SHARED, Status, YOUNG};
use super::key::FlowKey;
use super::origins::{CopyState, Origin, OwnerId, RecordSource};
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
                    if let Some(view) = FlowView::new(id, self.entries.line(id), &self.origins) {
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

    /// Takes a record of a flow from elsewhere. The flow is a copy until a packet of it is seen. Where the
    /// table is full, it displaces the oldest copy, and no other flow. A copy is changed by records of a
    /// later takeover epoch and of a newer version, and one of the same version says how long it is idle; a
    /// flow that packets were seen of is changed by a later epoch alone.
    pub fn import_record(
        &mut self,
        record: &FlowRecord<K>,
        source: RecordSource,
        now: Tick,
    ) -> Result<Imported, Full> {
        let hash = record.key.hash(&self.seed);
        let mut status = status_of(record, now);
        if source.owner != OwnerId::NONE {
            // Whoever pins flows of another machine would have to unpin them, too.
            status.flags &= !PINNED;
        }
        let origin = Origin { owner: source.owner, epoch: record.epoch, confirmed: now };
        let Some(id) = self.find_hashed(&record.key, hash) else {
            let counts = [record.packets, record.bytes];
            let id = self.insert_flow(&record.key, hash, record.answer, status, counts)?;
            self.origins.set(id.0, origin);
            self.stats.imported += 1;
            return Ok(Imported::New(id));
        };
        match self.merge_with(id, record, source, now) {
            Merge::Replace => {
                self.replace_record(id, record, status);
                self.origins.set(id.0, origin);
                return Ok(Imported::Newer(id));
            }
            Merge::Refresh => {
                self.refresh_record(id, status);
                // A copy stays with an owner that lives, and does not go to a file.
                let is_owner = self.origins.get(id.0).owner == source.owner;
                let is_free = !self.origins.has_living_owner(id.0, now);
                if is_owner || is_free && source.owner != OwnerId::NONE {
                    self.origins.set(id.0, origin);
                }
            }
            Merge::Confirm => self.origins.set(id.0, Origin { confirmed: now, ..self.origins.get(id.0) }),
            Merge::Keep => {}
        }
        Ok(Imported::Known(id))
    }

    /// Takes a flow back that this table, or one before it, exported: it becomes a copy only if it was one.
    pub fn restore_record(&mut self, record: &FlowRecord<K>, now: Tick) -> Result<Imported, Full> {
        let imported = self.import_record(record, RecordSource::default(), now)?;
        if let Imported::New(FlowId(id)) = imported
            && !record.is_imported
        {
            let line = self.entries.line(id);
            let status = entry::load_status(line);
            entry::set_status(line, Status { flags: status.flags & !IMPORTED, ..status });
        }
        Ok(imported)
    }

    /// Removes a copy whose flow has ended at its owner, unless another one has taken it over since; says
    /// whether there was one.
    pub fn remove_copy(&mut self, key: &K, owner: OwnerId, epoch: u16) -> bool {
        let Some(FlowId(id)) = self.find_hashed(key, key.hash(&self.seed)) else { return false };
        let status = entry::load_status(self.entries.line(id));
        let origin = self.origins.get(id);
        let is_meant = owner != OwnerId::NONE
            && status.has_flags(IMPORTED | SHARED)
            && origin.owner == owner
            && serial_order(epoch, origin.epoch) >= 0;
        is_meant && self.remove(FlowId(id))
    }

    /// An owner of flows lives until then: its copies don't become idle. Those that no record of it
    /// confirmed since another time have ended there, and are removed.
    pub fn keep_copies(&mut self, owner: OwnerId, until: Tick, confirmed_since: Tick) {
        self.origins.extend_lease(owner, until, confirmed_since);
    }

    /// A packet of a copy was seen: the flow is this machine's now.
    pub(super) fn claim_copy(&mut self, id: u32) {
        let origin = self.origins.get(id);
        self.origins.set(id, Origin { owner: OwnerId::NONE, epoch: origin.epoch.wrapping_add(1), ..origin });
    }

    /// The takeover epoch of an entry.
    pub(super) fn epoch(&self, id: u32) -> u16 {
        let is_shared = entry::load_status(self.entries.line(id)).has_flags(SHARED);
        if is_shared { self.origins.get(id).epoch } else { 0 }
    }

    fn merge_with(
        &self,
        FlowId(id): FlowId,
        record: &FlowRecord<K>,
        source: RecordSource,
        now: Tick,
    ) -> Merge {
        let line = self.entries.line(id);
        let status = entry::load_status(line);
        let takeover = serial_order(record.epoch, self.epoch(id));
        let is_owned = source.owner != OwnerId::NONE;
        if !status.has_flags(IMPORTED) {
            // A file sees no packets.
            return if takeover > 0 && is_owned { Merge::Replace } else { Merge::Keep };
        }
        let is_owner = self.origins.get(id).owner == source.owner;
        let is_orphaned = matches!(self.origins.copy_state(id, now), CopyState::Orphaned(_));
        let is_other_answer = entry::load_answer(line).action != record.answer.action;
        match (takeover, serial_order(record.version, status.version)) {
            _ if !is_owned && self.origins.has_living_owner(id, now) => Merge::Keep,
            (1, _) | (0, 1) => Merge::Replace,
            (0, 0) if is_other_answer && source.wins_ties => Merge::Replace,
            (0, 0) if !is_other_answer || is_owner => Merge::Refresh,
            // The owner may have a new flow with the same addresses and ports: one that it does not confirm
            // goes, and comes again.
            (0, _) if is_owner && !is_other_answer => Merge::Confirm,
            // Whoever lives knows better than what is left of an owner that does not.
            _ if is_owned && !is_owner && is_orphaned => Merge::Replace,
            _ => Merge::Keep,
        }
    }

    /// Has a copy be idle for no longer than its owner says.
    fn refresh_record(&self, id: FlowId, new: Status) {
        let line = self.entries.line(id.0);
        let old = entry::load_status(line);
        if new.seen.since(old.seen).is_some_and(|ticks| ticks > 0) {
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
        let was_displaceable = old.has_flags(IMPORTED) && !old.has_flags(PINNED);
        if !was_displaceable && !new.has_flags(PINNED) {
            self.track_imported(id.0);
        }
    }
}

/// What a record does to the flow that is known.
enum Merge {
    Replace,
    /// It says how long the flow is idle, and that there is such a flow.
    Refresh,
    /// It is older, but says that there is such a flow.
    Confirm,
    Keep,
}

/// Whether a number that wraps is later than another one: 1, 0 or -1 (RFC 1982).
fn serial_order(number: u16, than: u16) -> i16 {
    (number.wrapping_sub(than) as i16).signum()
}

fn status_of<K>(record: &FlowRecord<K>, now: Tick) -> Status {
    let young = if record.is_young && !record.is_pinned { YOUNG } else { 0 };
    let pinned = if record.is_pinned { PINNED } else { 0 };
    let flags = LIVE | IMPORTED | SHARED | young | pinned;
    Status { seen: now.before(record.idle), state: record.state, flags, version: record.version }
}
