//! What a table does between batches: it forgets idle flows, makes the index smaller, gives memory back; and
//! what control changes while it is used.
use super::ends::EndReason;
use super::entry::{self, IMPORTED, LIVE, PINNED, SHARED, Status, YOUNG};
use super::key::FlowKey;
use super::limits::{FlowLimits, FlowSettings};
use super::origins::CopyState;
use super::tick::Tick;
use super::view::FlowId;
use super::{COARSE, FlowTable};
use std::sync::atomic::Ordering::Relaxed;

/// Entries whose memory is given back together: 64 kB.
pub(super) const PART: u32 = 1024;
/// Flows that are forgotten together.
const GROUP: usize = 16;
/// Most buckets that are merged by one call.
const MERGES: usize = 4;
/// Bytes of a page that is touched ahead: the smallest that there are.
const PAGE_WORDS: usize = 4096 / 8;

impl<K: FlowKey> FlowTable<K> {
    /// Looks at up to `budget` flows, forgets those that were idle for too long, and does a bounded part of
    /// what else is to be done. Returns how many flows were forgotten.
    ///
    /// The search goes round over all flows: call this after each batch, and now and then where nothing
    /// happens, so that it comes round well within the shortest idle time.
    pub fn maintain_flows(&mut self, now: Tick, budget: usize) -> usize {
        let (mut forgotten, mut left, released) = (0, budget, self.stats.released);
        while left > 0 {
            let group = left.min(GROUP);
            let (count, goes_on) = self.scan_entries(now, group);
            forgotten += count;
            // One call to the system is pause enough: what gave memory back ends here.
            let goes_on = goes_on && self.stats.released == released;
            left = if goes_on { left - group } else { 0 };
        }
        // Flows that have gone would hide those behind them, which can make room.
        self.pass_over(GROUP);
        self.trim_young();
        if self.stats.released == released {
            self.shrink_index();
        }
        forgotten
    }

    /// Looks at the next few entries. Returns how many flows were forgotten, and whether the round goes on.
    fn scan_entries(&mut self, now: Tick, budget: usize) -> (usize, bool) {
        let (mut idle, mut count, mut words, mut goes_on) = ([0; GROUP], 0, budget, true);
        for _ in 0..budget {
            let Ok(id) = self.ids.next(self.sweep_cursor, &mut words).or_else(|end| self.pass_free(end))
            else {
                goes_on = self.sweep_cursor < self.ids.end();
                break;
            };
            self.advance_cursor(id + 1);
            self.round_end = self.round_end.max(id + 1);
            self.stats.examined += 1;
            if self.is_idle(id, now) {
                self.index.prefetch(self.entries.hash::<K>(id, &self.seed));
                idle[count] = id;
                count += 1;
            }
        }
        idle[..count].iter().for_each(|id| self.expire_flow(*id));
        if !goes_on {
            let longest = self.idle.iter().copied().max().unwrap_or(0);
            self.origins.drop_old_leases(now, longest);
            self.begin_round();
        }
        (count, goes_on)
    }

    /// Goes on to where the walk over free entries has come.
    fn pass_free(&mut self, end: u32) -> Result<u32, ()> {
        self.advance_cursor(end);
        Err(())
    }

    /// Goes on to entry `to`, and gives back the memory of the parts that this leaves, where no
    /// flow is in them.
    fn advance_cursor(&mut self, to: u32) {
        for part in self.sweep_cursor / PART..to / PART {
            if part >= self.reserved
                && self.used[part as usize]
                && self.ids.none_in(part * PART, (part + 1) * PART)
            {
                self.release_part(part);
            }
        }
        self.sweep_cursor = to;
    }

    fn release_part(&mut self, part: u32) {
        let from = (part * PART) as usize * 8;
        self.entries.0.release_range(from..from + PART as usize * 8);
        self.used[part as usize] = false;
        self.stats.released += 1;
    }

    /// Begins at the first entry again, and ends the next round behind the last flow that this one met or
    /// that came. The part behind that, which was not left, is given back.
    fn begin_round(&mut self) {
        let last = self.ids.end().saturating_sub(1) / PART;
        if last >= self.reserved && self.round_end <= last * PART && self.used[last as usize] {
            self.release_part(last);
        }
        self.ids.ends_at(self.round_end);
        (self.sweep_cursor, self.round_end) = (0, 0);
    }

    /// Says whether a flow was idle for longer than its state allows. One from the future, where the clock
    /// went back, was seen now.
    fn is_idle(&mut self, id: u32, now: Tick) -> bool {
        let line = self.entries.line(id);
        let status = entry::load_status(line);
        let copy = match status.flags & (IMPORTED | SHARED | PINNED) == IMPORTED | SHARED {
            true => self.origins.copy_state(id, now),
            false => CopyState::Unowned,
        };
        let since_owner = match copy {
            CopyState::Kept => return false,
            CopyState::Gone => return true,
            CopyState::Orphaned(ticks) => ticks,
            CopyState::Unowned => u32::MAX,
        };
        match now.since(status.seen) {
            Some(age) => {
                age.min(since_owner) > self.idle[status.state as usize] + COARSE && !status.has_flags(PINNED)
            }
            None => {
                entry::set_status(line, Status { seen: now, ..status });
                false
            }
        }
    }

    fn expire_flow(&mut self, id: u32) {
        let state = entry::load_status(self.entries.line(id)).state;
        self.stats.expired[state as usize] += 1;
        self.remove_flow(id, EndReason::Idle);
    }

    /// Brings young flows below a limit that was lowered.
    fn trim_young(&mut self) {
        for _ in 0..GROUP {
            if self.young_count <= self.limits.young || !self.displace_young(4) {
                break;
            }
        }
    }

    /// Merges buckets if flows have become few.
    fn shrink_index(&mut self) {
        for _ in 0..MERGES {
            if !self.index.is_sparse(self.len()) || !self.index.shrink() {
                break;
            }
        }
    }

    /// What is allowed now.
    pub fn limits(&self) -> FlowLimits {
        self.limits
    }

    /// Changes how many flows there may be, up to what the table was made for. More than that
    /// stay until they end.
    pub fn set_limits(&mut self, limits: FlowLimits) {
        self.limits = limits.clamp_to(self.room);
    }

    /// How flows are treated.
    pub fn settings(&self) -> FlowSettings {
        self.settings
    }

    /// Changes how flows are treated, those that there are among them.
    pub fn set_settings(&mut self, settings: FlowSettings) {
        self.settings = settings;
        self.idle = settings.idle.ticks_by_state();
    }

    /// Makes a flow stay however long it is idle, or ends that; says whether there is such a flow.
    pub fn pin_flow(&mut self, id: FlowId, is_pinned: bool) -> bool {
        if self.get(id).is_none() {
            return false;
        }
        let line = self.entries.line(id.0);
        let status = entry::load_status(line);
        let was_young = status.has_flags(YOUNG);
        self.young_count -= u32::from(is_pinned && was_young);
        let flags = if is_pinned { status.flags & !YOUNG | PINNED } else { status.flags & !PINNED };
        debug_assert!(flags & LIVE != 0);
        entry::set_status(line, Status { flags, ..status });
        if status.has_flags(PINNED | IMPORTED) && !is_pinned {
            self.track_imported(id.0);
        }
        true
    }

    /// Takes memory for `flows` flows from the system now, to be kept, so that no packet waits for that
    /// later. With huge pages this takes the system long, so that it is for a table that no worker has yet.
    pub fn populate_memory(&mut self, flows: u32) {
        let flows = flows.min(self.room.flows);
        let entries = &self.entries.0[..flows as usize * 8];
        // Stores the loaded value: a load alone would map the zero page that all processes share.
        entries.iter().step_by(PAGE_WORDS).for_each(|word| word.store(word.load(Relaxed), Relaxed));
        self.index.populate(flows);
        self.reserved = self.reserved.max(flows.div_ceil(PART));
        self.used[..flows.div_ceil(PART) as usize].fill(true);
    }
}
