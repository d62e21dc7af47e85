//! A flow as others see it: in the table, and as a record that outlives it.
use super::entry::{self, Answer, IMPORTED, Line, MARKED, PINNED, SHARED, Status, YOUNG};
use super::key::FlowKey;
use super::origins::{Origins, OwnerId};
use super::state::FlowState;
use super::tick::{Tick, ticks_to_duration};
use std::marker::PhantomData;
use std::time::Duration;

/// The number of a flow in its table, which is another's when the flow is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub(super) u32);

impl FlowId {
    /// The number as a plain integer.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// How far a walk over a table has come. A walk may be interrupted at will: a flow that is there from its
/// beginning to its end is met exactly once, others at most once for each time that they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCursor(pub(super) u32);

impl FlowCursor {
    /// The cursor of a number, for callers that let others keep it meanwhile; 0 is the beginning.
    pub fn from_number(number: u32) -> FlowCursor {
        FlowCursor(number)
    }
    /// The number as a plain integer.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// A flow in its table.
#[derive(Clone, Copy)]
pub struct FlowView<'a, K> {
    id: FlowId,
    line: &'a Line,
    status: Status,
    origins: &'a Origins,
    key: PhantomData<K>,
}

impl<'a, K: FlowKey> FlowView<'a, K> {
    #[inline(always)]
    pub(super) fn new(id: u32, line: &'a Line, origins: &'a Origins) -> Option<FlowView<'a, K>> {
        let status = entry::load_status(line);
        let view = FlowView { id: FlowId(id), line, status, origins, key: PhantomData };
        status.has_flags(entry::LIVE).then_some(view)
    }

    /// Number of the flow's entry.
    pub fn id(&self) -> FlowId {
        self.id
    }

    /// What tells the flow from others.
    #[inline]
    pub fn key(&self) -> K {
        entry::load_key(self.line)
    }

    /// What the flow leads to.
    #[inline]
    pub fn answer(&self) -> Answer {
        entry::load_answer(self.line)
    }

    /// What has been seen of it.
    pub fn state(&self) -> FlowState {
        self.status.state
    }

    /// Whether it may yet be an attempt.
    pub fn is_young(&self) -> bool {
        self.status.has_flags(YOUNG)
    }

    /// Whether it came from outside and no packet of it was seen here.
    pub fn is_imported(&self) -> bool {
        self.status.has_flags(IMPORTED)
    }

    /// How often a machine took it over that had seen no packet of it, which wraps.
    pub fn epoch(&self) -> u16 {
        if self.status.has_flags(SHARED) { self.origins.get(self.id.0).epoch } else { 0 }
    }

    /// Whose copy it is; [`OwnerId::NONE`] if no owner is known, as for flows that packets were seen of.
    pub fn owner(&self) -> OwnerId {
        let is_copy = self.status.has_flags(SHARED) && self.is_imported();
        if is_copy { self.origins.get(self.id.0).owner } else { OwnerId::NONE }
    }

    /// Whether it stays however long it is idle.
    pub fn is_pinned(&self) -> bool {
        self.status.has_flags(PINNED)
    }

    /// Whether its caller has [marked](super::FlowTable::mark_flow) it.
    #[inline]
    pub fn is_marked(&self) -> bool {
        self.status.has_flags(MARKED)
    }

    /// Packets, unless they are not counted.
    pub fn packets(&self) -> u64 {
        entry::load_counts::<K>(self.line)[0]
    }

    /// Bytes, unless they are not counted.
    pub fn bytes(&self) -> u64 {
        entry::load_counts::<K>(self.line)[1]
    }

    /// A number that counts changes of state and answer from when the flow is proven, and wraps.
    pub fn version(&self) -> u16 {
        self.status.version
    }

    /// How long it has been idle, to an eighth of a second; zero if the clock went back.
    pub fn idle_time(&self, now: Tick) -> Duration {
        ticks_to_duration(now.since(self.status.seen).unwrap_or(0))
    }

    /// All of it, for others to keep.
    pub fn full_record(&self, now: Tick) -> FlowRecord<K> {
        FlowRecord {
            key: self.key(),
            answer: self.answer(),
            state: self.state(),
            idle: self.idle_time(now),
            packets: self.packets(),
            bytes: self.bytes(),
            version: self.version(),
            is_young: self.is_young(),
            is_pinned: self.is_pinned(),
            is_imported: self.is_imported(),
            epoch: self.epoch(),
        }
    }
}

/// A flow on its way to another table or to a file. What its action means there is the caller's to translate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRecord<K> {
    /// What tells the flow from others.
    pub key: K,
    /// What the flow leads to.
    pub answer: Answer,
    /// What has been seen of it.
    pub state: FlowState,
    /// How long it has been idle.
    pub idle: Duration,
    /// Packets counted since the flow began.
    pub packets: u64,
    /// Bytes counted since the flow began.
    pub bytes: u64,
    /// A number that counts changes, and wraps: of two that one is newer that is less than half way ahead.
    pub version: u16,
    /// Whether it may yet be an attempt.
    pub is_young: bool,
    /// Whether it stays however long it is idle.
    pub is_pinned: bool,
    /// Whether no packet of it was seen where the record was made: another machine owns it.
    pub is_imported: bool,
    /// Counts takeovers, and wraps: of two owners the one with the later epoch counts.
    pub epoch: u16,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imported {
    /// The flow was not known, and is now.
    New(FlowId),
    /// The flow was known from outside, in an older version, or its takeover epoch was earlier.
    Newer(FlowId),
    /// The flow was known: from packets, or from outside in this version or a newer one. It was left alone,
    /// except that a record of this version may have shortened its idle time.
    Known(FlowId),
}
