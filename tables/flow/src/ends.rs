//! Records of flows that have ended, for accounting by action and for replication.
use super::accounts::FlowPeriod;
use super::entry::{self, Answer, IMPORTED, Line, MARKED};
use super::key::FlowKey;
use super::state::FlowState;

/// Why a flow is no longer known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// It was idle for too long.
    Idle,
    /// It was not proven, or known from elsewhere only, and another needed its place.
    Displaced,
    /// It was removed or flushed.
    Removed,
}

/// A flow that is no longer known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEnd<K> {
    /// Addresses, ports and protocol of the flow.
    pub key: K,
    /// The answer that was stored for the flow.
    pub answer: Answer,
    /// What had been seen of it.
    pub state: FlowState,
    /// Packets, unless they were not counted.
    pub packets: u64,
    /// Bytes, unless they were not counted.
    pub bytes: u64,
    /// Why the flow's entry was removed.
    pub reason: EndReason,
    /// Whether it was known from elsewhere only.
    pub is_imported: bool,
    /// How often machines had taken the flow over.
    pub epoch: u16,
    /// Whether its caller had [marked](super::FlowTable::mark_flow) it.
    pub is_marked: bool,
    /// What was not reported of it; None where no accounts are kept.
    pub unreported: Option<FlowPeriod>,
}

/// Ended flows that the caller has not taken yet, up to a limit.
pub(super) struct EndQueue<K> {
    ends: Vec<FlowEnd<K>>,
    room: usize,
}

impl<K: FlowKey> EndQueue<K> {
    /// Nothing is noted until there is room.
    pub(super) fn disabled() -> EndQueue<K> {
        EndQueue { ends: Vec::new(), room: 0 }
    }

    /// Notes up to `room` ends from now on.
    pub(super) fn make_room(&mut self, room: usize) {
        self.ends.truncate(room);
        self.ends.reserve_exact(room - self.ends.len());
        self.room = room;
    }

    /// Records the end of a flow; returns false if the queue is full (true if recording is off).
    #[inline]
    pub(super) fn record_end(
        &mut self,
        line: &Line,
        epoch: u16,
        reason: EndReason,
        unreported: Option<FlowPeriod>,
    ) -> bool {
        if self.ends.len() >= self.room {
            return self.room == 0;
        }
        let [packets, bytes] = entry::load_counts::<K>(line);
        let (key, answer, status) =
            (entry::load_key(line), entry::load_answer(line), entry::load_status(line));
        let (state, is_marked) = (status.state, status.has_flags(MARKED));
        let is_imported = status.has_flags(IMPORTED);
        self.ends.push(FlowEnd {
            key,
            answer,
            state,
            packets,
            bytes,
            reason,
            is_imported,
            epoch,
            is_marked,
            unreported,
        });
        true
    }

    /// Takes all that were noted, in the order in which flows ended.
    pub(super) fn drain_ends(&mut self) -> impl Iterator<Item = FlowEnd<K>> + '_ {
        self.ends.drain(..)
    }
}
