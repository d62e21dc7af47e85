//! Flows: what is remembered of packets that belong together, so that those to come are treated alike.
//!
//! A [`FlowTable`] belongs to one worker, which finds the flows of a batch of packets, tells those it found
//! what it saw ([`touch_flow`](FlowTable::touch_flow)), inserts those it did not find, and gives the table a
//! little time after each batch ([`maintain_flows`](FlowTable::maintain_flows)) to forget the idle ones and
//! to give memory back. Nothing it does takes longer for a larger table, apart from cache misses. The caller
//! decides what the action of a flow means.
//!
//! ```
//! use artery_storage::Pages;
//! use artery_flow::{Answer, Flow4, FlowKey, FlowLimits, FlowSettings, FlowTable, Scope, Seed, Tick};
//! use artery_wire::build::ip4;
//! use std::time::Duration;
//!
//! let limits = FlowLimits::for_flows(1000);
//! let mut table = FlowTable::<Flow4>::new(limits, FlowSettings::default(), Seed::random(), &Pages)?;
//! let packet = ip4().src("10.0.0.1").dst("192.0.2.1").udp(1234, 53).bytes();
//! let now = Tick::from_time(Duration::from_secs(7)); // since any instant of yours
//!
//! let seen = Flow4::parse_packet(&packet, Scope::Connection, 0).expect("this packet has a flow");
//! assert_eq!(table.find(&seen.key), None);
//! let id = table.insert(&seen.key, Answer { action: 3, generation: 1 }, &seen.info, now)?;
//!
//! let mut found = Vec::new();
//! table.find_batch(&[seen.key], &mut found);
//! assert_eq!(found, [Some(id)]);
//! assert_eq!(table.touch_flow(id, &seen.info, now).map(|answer| answer.action), Some(3));
//!
//! table.maintain_flows(Tick::from_time(Duration::from_secs(40)), 64); // at most 64 flows are looked at
//! assert_eq!(table.find(&seen.key), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits and eviction
//!
//! A flow is *young* until it is proven: TCP by a packet without SYN after its SYN, anything else by its
//! third packet. Only so many may be young at a time, and the oldest of them makes room for the next. A table
//! that is full of proven flows refuses new ones: known flows keep their places whatever comes. Young ones
//! that are displaced lose nothing but their being remembered: a caller who treats unknown flows by a rule
//! finds the same answer again.
//!
//! Flows that were [imported](FlowTable::import_record) are known from elsewhere only until a packet of
//! theirs is seen. Where the table is full, the oldest of those makes room: for others that are imported,
//! which displace nothing else, and for flows that come by packets, if none is young.
//!
//! # What is not here, on purpose
//!
//! Locks and sharing (each worker has its own table), clocks (`now` is an argument), what an action means,
//! sequence numbers (so resets and proofs can be forged by someone who sees or guesses ports), and transport
//! to other machines.
#![forbid(unsafe_code)]

mod accounts;
pub mod balance;
mod elsewhere;
mod ends;
mod entry;
mod ids;
mod key;
mod limits;
mod maintain;
mod origins;
mod records;
mod state;
mod stats;
pub mod stream;
mod tick;
mod view;
mod young;

pub use accounts::FlowPeriod;
pub use ends::{EndReason, FlowEnd};
pub use entry::{Answer, FlowSnapshot};
pub use key::{Flow4, Flow6, FlowKey, KeyedPacket, PacketInfo, Pattern, Scope, Seed};
pub use limits::{FlowLimits, FlowSettings, Full};
pub use origins::{OwnerId, RecordSource};
pub use state::{FlowState, IdleTimes};
pub use stats::FlowStats;
pub use tick::Tick;
pub use view::{FlowCursor, FlowId, FlowRecord, FlowView, Imported};

use accounts::Accounts;
use artery_storage::prefetch;
use artery_storage::{BEYOND_LINE, Fill, NO_ENTRY, TagIndex};
use artery_storage::{Storage, Words};
use elsewhere::Elsewhere;
use ends::EndQueue;
use entry::{COARSE, IMPORTED, LIVE, Line, PINNED, Status, YOUNG};
use ids::Ids;
use origins::Origins;
use std::io;
use std::sync::atomic::AtomicU64;
use young::Young;

/// Keys that are looked for together.
const BATCH: usize = 128;
/// Most splits of buckets for one flow that comes: one makes room for eight.
const SPLITS: usize = 2;
/// How many flows that are no more of the kind that makes room are passed over to find one that is.
const PASSED: usize = 64;

/// The flows of one worker.
pub struct FlowTable<K> {
    entries: Entries,
    index: TagIndex,
    ids: Ids,
    young: Young,
    /// How many flows are young; `young` may hold some that are so no more.
    young_count: u32,
    elsewhere: Elsewhere,
    origins: Origins,
    /// What memory was reserved for, and what is allowed now.
    room: FlowLimits,
    limits: FlowLimits,
    settings: FlowSettings,
    /// Ticks after which a flow of a state is idle.
    idle: [u32; 8],
    seed: Seed,
    /// Where the search for idle flows goes on, and what it has found to be above all flows in this round.
    sweep_cursor: u32,
    round_end: u32,
    /// Parts of the entries that were used since their memory was given back.
    used: Vec<bool>,
    /// So many of the first parts were taken to be kept.
    reserved: u32,
    /// Room for the lookups of a batch.
    under_way: Vec<UnderWay>,
    ends: EndQueue<K>,
    /// What was reported of flows, where records of flows are wanted.
    accounts: Option<Accounts>,
    stats: FlowStats,
}

/// A lookup of a batch.
#[derive(Clone, Copy, Default)]
struct UnderWay {
    hash: u64,
    bucket: u32,
    likely: u32,
}

/// The lines of all entries.
struct Entries(Words<AtomicU64>);

impl Entries {
    #[inline(always)]
    fn line(&self, id: u32) -> &Line {
        &self.0.as_chunks().0[id as usize]
    }

    /// The hash of the key of an entry.
    #[inline(always)]
    fn hash<K: FlowKey>(&self, id: u32, seed: &Seed) -> u64 {
        entry::load_key::<K>(self.line(id)).hash(seed)
    }

    /// The line of an entry, if there is such an entry.
    #[inline(always)]
    fn get(&self, id: u32) -> Option<&Line> {
        self.0.as_chunks().0.get(id as usize)
    }

    #[inline(always)]
    fn prefetch(&self, id: u32) {
        if let Some(line) = self.get(id) {
            prefetch(line);
        }
    }
}

impl<K: FlowKey> FlowTable<K> {
    /// An empty table with reserved memory.
    ///
    /// Memory is reserved for `limits`, which can be lowered and raised again later, and taken as
    /// flows come; see [`populate_memory`](Self::populate_memory).
    pub fn new(
        limits: FlowLimits,
        settings: FlowSettings,
        seed: Seed,
        storage: &dyn Storage,
    ) -> io::Result<FlowTable<K>> {
        let limits = limits.clamp_to(FlowLimits { young: FlowLimits::MOST, flows: FlowLimits::MOST });
        Ok(FlowTable {
            entries: Entries(Words::new(storage, "flows", limits.flows as usize * 8)?),
            index: TagIndex::new(limits.flows, Fill::TIGHT, storage)?,
            ids: Ids::new(limits.flows),
            young: Young::new(limits.young),
            young_count: 0,
            elsewhere: Elsewhere::new(limits.flows),
            origins: Origins::new(limits.flows),
            room: limits,
            limits,
            settings,
            idle: settings.idle.ticks_by_state(),
            seed,
            sweep_cursor: 0,
            round_end: 0,
            reserved: 0,
            used: vec![false; limits.flows.div_ceil(maintain::PART) as usize],
            under_way: vec![UnderWay::default(); BATCH],
            ends: EndQueue::disabled(),
            accounts: None,
            stats: FlowStats::default(),
        })
    }

    /// How many flows there are.
    pub fn len(&self) -> u32 {
        self.ids.taken_count()
    }

    /// Whether the table has no flows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of the flow with this key.
    #[inline]
    pub fn find(&mut self, key: &K) -> Option<FlowId> {
        let found = self.find_hashed(key, key.hash(&self.seed));
        self.stats.lookups += 1;
        self.stats.hits += u64::from(found.is_some());
        found
    }

    /// The numbers of the flows with these keys, in their order; what `found` held is replaced.
    ///
    /// Touch those that were found before you insert others: a flow that makes room for another leaves
    /// its number to it.
    pub fn find_batch(&mut self, keys: &[K], found: &mut Vec<Option<FlowId>>) {
        found.clear();
        found.resize(keys.len(), None);
        let mut hits = 0;
        let mut under_way = std::mem::take(&mut self.under_way);
        for (keys, found) in keys.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
            hits += self.find_some(keys, found, &mut under_way);
        }
        self.under_way = under_way;
        self.stats.lookups += keys.len() as u64;
        self.stats.hits += hits;
    }

    /// Looks for up to [`BATCH`] keys, so that they wait for memory together: first for
    /// buckets, then for entries.
    #[inline]
    fn find_some(&self, keys: &[K], found: &mut [Option<FlowId>], under_way: &mut [UnderWay]) -> u64 {
        for (lookup, key) in under_way.iter_mut().zip(keys) {
            lookup.hash = key.hash(&self.seed);
            lookup.bucket = self.index.begin(lookup.hash);
        }
        let (mut beyond, mut count) = ([0_u8; BATCH], 0);
        for (n, lookup) in under_way[..keys.len()].iter_mut().enumerate() {
            lookup.likely = self.index.candidate(lookup.hash, lookup.bucket, |id| self.entries.prefetch(id));
            if lookup.likely == BEYOND_LINE {
                beyond[count] = n as u8;
                count += 1;
            }
        }
        for n in &beyond[..count] {
            let lookup = &mut under_way[usize::from(*n)];
            lookup.likely = self.index.candidate_beyond(lookup.hash, lookup.bucket);
            self.entries.prefetch(lookup.likely);
        }
        let mut misses = 0;
        for ((found, key), lookup) in found.iter_mut().zip(keys).zip(&*under_way) {
            *found = match self.entries.get(lookup.likely) {
                Some(line) if entry::has_key(line, key) => {
                    *found = Some(FlowId(lookup.likely));
                    continue;
                }
                None if lookup.likely == NO_ENTRY => None,
                _ => self.find_further(key, lookup.hash),
            };
            misses += u64::from(found.is_none());
        }
        keys.len() as u64 - misses
    }

    /// Finds what was not in the likely place.
    #[inline(never)]
    fn find_further(&self, key: &K, hash: u64) -> Option<FlowId> {
        self.find_hashed(key, hash)
    }

    #[inline]
    fn find_hashed(&self, key: &K, hash: u64) -> Option<FlowId> {
        self.index.find(hash, |id| entry::has_key(self.entries.line(id), key)).map(FlowId)
    }

    /// Notes that a packet of the flow was seen, and says what the flow leads to; none if there
    /// is no such flow.
    ///
    /// Where packets are not counted, this writes into the flow's line only when something has changed or an
    /// eighth of a second has passed.
    #[inline]
    pub fn touch_flow(&mut self, id: FlowId, sight: &PacketInfo, now: Tick) -> Option<Answer> {
        self.entries.get(id.0)?;
        self.touch_fast(id, sight, now).or_else(|| self.touch_closer(id.0, sight, now))
    }

    /// The same of most packets, in few steps: of those by which nothing of the flow changes but its counts.
    /// Of the others it says nothing, and notes nothing.
    #[inline(always)]
    pub fn touch_fast(&mut self, id: FlowId, sight: &PacketInfo, now: Tick) -> Option<Answer> {
        let line = self.entries.get(id.0).filter(|line| entry::is_unchanged(line, sight, now))?;
        if self.settings.counts {
            entry::count_packet::<K>(line, sight);
        }
        Some(entry::load_answer(line))
    }

    /// The same of a flow that may change by it.
    #[inline(never)]
    fn touch_closer(&mut self, id: u32, sight: &PacketInfo, now: Tick) -> Option<Answer> {
        let line = self.entries.line(id);
        let status = entry::load_status(line);
        if !status.has_flags(LIVE) {
            return None;
        }
        let answer = entry::load_answer(line);
        let is_counted = self.settings.counts
            || status.has_flags(YOUNG)
            || matches!(status.state, FlowState::Midway | FlowState::UdpSingle);
        let packets = if is_counted { entry::count_packet::<K>(line, sight) } else { 0 };
        let state = status.state.next_state(sight, packets);
        let is_due = now.since(status.seen).is_none_or(|age| age >= COARSE);
        if is_due || state != status.state || status.flags != status.flags & !(YOUNG | IMPORTED) {
            self.update_status(id, status, state, packets, now);
        }
        Some(answer)
    }

    /// Writes what a packet has changed beside the counts.
    fn update_status(&mut self, id: u32, old: Status, state: FlowState, packets: u64, now: Tick) {
        if old.has_flags(IMPORTED) {
            self.claim_copy(id);
        }
        let mut status = Status { seen: now, state, flags: old.flags & !IMPORTED, ..old };
        if old.has_flags(YOUNG) && state.is_proven(packets) {
            status.flags &= !YOUNG;
            self.young_count -= 1;
        }
        if (state != old.state || status.flags != old.flags) && !status.has_flags(YOUNG) {
            status.version = old.version.wrapping_add(1);
        }
        entry::set_status(self.entries.line(id), status);
    }

    /// Adds a flow, whose first packet looked so. One that is known, as by an earlier packet of the batch, is
    /// touched and keeps its answer.
    pub fn insert(&mut self, key: &K, answer: Answer, sight: &PacketInfo, now: Tick) -> Result<FlowId, Full> {
        let hash = key.hash(&self.seed);
        if let Some(known) = self.find_hashed(key, hash) {
            self.touch_flow(known, sight, now);
            return Ok(known);
        }
        let (state, version) = (FlowState::of_first(sight), self.stats.inserts as u16);
        let status = Status { seen: now, state, flags: LIVE | YOUNG, version };
        self.insert_flow(key, hash, answer, status, [1, sight.bytes.into()])
    }

    /// Gives a flow that is not known a place.
    fn insert_flow(
        &mut self,
        key: &K,
        hash: u64,
        answer: Answer,
        status: Status,
        counts: [u64; 2],
    ) -> Result<FlowId, Full> {
        self.make_room(status)?;
        let id = self.ids.alloc_id();
        if !self.index.insert(hash, id) {
            self.ids.free_id(id);
            self.stats.refused_crowded += 1;
            return Err(Full);
        }
        let line = self.entries.line(id);
        entry::set_key(line, key);
        entry::set_answer(line, answer);
        entry::set_counts::<K>(line, counts);
        entry::set_status(line, status);
        if let Some(accounts) = &self.accounts {
            // What is known from elsewhere is reported there.
            let reported = if status.has_flags(IMPORTED) { counts } else { [0; 2] };
            accounts.begin_period(id, status.seen, reported);
        }
        if status.has_flags(YOUNG) {
            self.young.push(id, status.version);
            self.young_count += 1;
        }
        if status.has_flags(IMPORTED) && !status.has_flags(PINNED) {
            self.track_imported(id);
        }
        self.round_end = self.round_end.max(id + 1);
        self.used[(id / maintain::PART) as usize] = true;
        self.stats.inserts += 1;
        self.grow_index();
        Ok(FlowId(id))
    }

    /// Splits buckets if flows have become many, and asks for what the next flow will need.
    #[inline]
    fn grow_index(&mut self) {
        let (entries, seed) = (&self.entries, &self.seed);
        for _ in 0..SPLITS {
            if !self.index.is_full(self.ids.taken_count()) {
                break;
            }
            self.index.grow(|id| entries.hash::<K>(id, seed), |id| entries.prefetch(id));
        }
        entries.prefetch(self.ids.lowest_free());
    }

    /// Sees to it that there is a place for another flow: at the cost of the oldest young one if need be, or
    /// of the oldest of those that are known from elsewhere only.
    #[inline]
    fn make_room(&mut self, new: Status) -> Result<(), Full> {
        let is_young = new.has_flags(YOUNG);
        if is_young {
            if let Some((id, _)) = self.young.peek(8) {
                self.entries.prefetch(id);
            }
            self.pass_over(2);
        }
        let is_full = self.ids.taken_count() >= self.limits.flows;
        let is_crowded = is_young && self.young_count >= self.limits.young;
        let has_room = match new.has_flags(IMPORTED) {
            true => self.has_room_for_import(is_young, is_full, is_crowded),
            false => {
                let makes_room = is_full || is_crowded;
                !makes_room || self.displace_young(PASSED) || !is_crowded && self.displace_imported()
            }
        };
        if !has_room {
            self.stats.refused_full += 1;
            return Err(Full);
        }
        if is_young && self.young.is_full() {
            self.displace_young(1);
        }
        Ok(())
    }

    /// The same for a flow from elsewhere, which costs none that is known by packets: an attempt that finds
    /// too many of its kind has no room.
    #[cold]
    fn has_room_for_import(&mut self, is_young: bool, is_full: bool, is_crowded: bool) -> bool {
        let is_attempt_too_many = is_crowded || is_young && self.young.is_full();
        !is_attempt_too_many && (!is_full || self.displace_imported())
    }

    /// Removes the oldest flow that is known from elsewhere only; says whether there is one within bounds.
    #[cold]
    fn displace_imported(&mut self) -> bool {
        for _ in 0..PASSED {
            let Some((id, is_meant)) = self.elsewhere.peek() else { return false };
            self.elsewhere.pop();
            if is_meant && self.is_unseen(id) {
                self.remove_flow(id, EndReason::Displaced);
                self.stats.displaced_imported += 1;
                return true;
            }
        }
        false
    }

    /// Says whether a flow is known from elsewhere only, and may go.
    fn is_unseen(&self, id: u32) -> bool {
        let status = entry::load_status(self.entries.line(id));
        status.has_flags(LIVE | IMPORTED) && !status.has_flags(PINNED)
    }

    /// Notes that a flow is known from elsewhere only. Those at the queue's front that are so no more leave
    /// it, two for each that comes, so that it has room; where it has none, the flow keeps its place as if it
    /// were known by packets.
    fn track_imported(&mut self, id: u32) {
        for _ in 0..2 {
            match self.elsewhere.peek() {
                Some((id, is_meant)) if !is_meant || !self.is_unseen(id) => self.elsewhere.pop(),
                _ => break,
            }
        }
        self.elsewhere.push(id);
    }

    /// Drops from the queue of young flows those at its front that are young no more, up to `most` of them.
    #[inline]
    fn pass_over(&mut self, most: usize) {
        for _ in 0..most {
            match self.young.peek(0) {
                Some((id, version)) if !self.is_still_young(id, version) => self.young.pop(),
                _ => break,
            };
        }
    }

    #[inline]
    fn is_still_young(&self, id: u32, version: u16) -> bool {
        let status = entry::load_status(self.entries.line(id));
        status.has_flags(LIVE | YOUNG) && status.version == version
    }

    /// Removes the oldest young flow; says whether it was among the `most` oldest that once were young.
    fn displace_young(&mut self, most: usize) -> bool {
        for _ in 0..most {
            let Some((id, version)) = self.young.pop() else { return false };
            if self.is_still_young(id, version) {
                self.remove_flow(id, EndReason::Displaced);
                self.stats.displaced_young += 1;
                return true;
            }
        }
        false
    }

    /// Takes a flow out of the table.
    fn remove_flow(&mut self, id: u32, reason: EndReason) {
        let hash = self.entries.hash::<K>(id, &self.seed);
        let line = self.entries.line(id);
        self.young_count -= u32::from(entry::load_status(line).has_flags(YOUNG));
        let epoch = self.epoch(id);
        let period = self.accounts.as_ref().map(|accounts| accounts.period::<K>(id, line));
        self.stats.unreported_ends += u64::from(!self.ends.record_end(line, epoch, reason, period));
        entry::clear(line);
        if let Some(accounts) = &self.accounts {
            accounts.clear(id);
        }
        let was_there = self.index.remove(hash, id);
        debug_assert!(was_there, "each flow is in the index");
        self.ids.free_id(id);
    }

    /// Gives a flow another answer, as when its action belonged to another generation; says whether there
    /// is such a flow.
    #[inline]
    pub fn update_answer(&mut self, id: FlowId, answer: Answer) -> bool {
        let Some(view) = self.get(id) else { return false };
        let is_other = view.answer().action != answer.action && !view.is_young();
        let line = self.entries.line(id.0);
        entry::set_answer(line, answer);
        if is_other {
            let status = entry::load_status(line);
            entry::set_status(line, Status { version: status.version.wrapping_add(1), ..status });
        }
        true
    }

    /// Removes a flow; says whether there was one.
    pub fn remove(&mut self, id: FlowId) -> bool {
        let is_there = self.get(id).is_some();
        if is_there {
            self.remove_flow(id.0, EndReason::Removed);
            self.stats.removed += 1;
        }
        is_there
    }

    /// Has up to `room` ends of flows noted until they are taken; zero, as in a new table, is for callers
    /// that do not want to know.
    pub fn report_ends(&mut self, room: usize) {
        self.ends.make_room(room);
    }

    /// Takes the ends that were noted, in their order. Those that found no room are counted only: take
    /// them after each batch.
    pub fn drain_ends(&mut self) -> impl Iterator<Item = FlowEnd<K>> + '_ {
        self.ends.drain_ends()
    }

    /// The flow of a number.
    #[inline]
    pub fn get(&self, id: FlowId) -> Option<FlowView<'_, K>> {
        if id.0 >= self.room.flows {
            return None;
        }
        FlowView::new(id.0, self.entries.line(id.0), &self.origins)
    }

    /// What packets may change of the flow of a number; [`FlowSnapshot::default`] if there is none.
    #[inline(always)]
    pub fn snapshot(&self, id: FlowId) -> FlowSnapshot {
        self.entries.get(id.0).map_or(FlowSnapshot::default(), entry::load_snapshot)
    }

    /// What has happened, and how much there is.
    pub fn stats(&self) -> FlowStats {
        FlowStats {
            moved: self.index.moved_entries(),
            flows: self.ids.taken_count(),
            young: self.young_count,
            buckets: self.index.buckets(),
            bytes: self.index.bytes() + u64::from(self.ids.end()) * size_of::<Line>() as u64,
            ..self.stats
        }
    }
}
