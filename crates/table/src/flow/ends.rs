//! What a table tells of flows that have ended, to those who count them by action or follow them.
use super::entry::{self, Answer, Line};
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
    /// What told it from others.
    pub key: K,
    /// What it led to.
    pub answer: Answer,
    /// What had been seen of it.
    pub state: FlowState,
    /// Packets, unless they were not counted.
    pub packets: u64,
    /// Bytes, unless they were not counted.
    pub bytes: u64,
    /// Why it ended.
    pub reason: EndReason,
}

/// Ends that nobody has taken yet, no more than there is room for.
pub(super) struct Ends<K> {
    ends: Vec<FlowEnd<K>>,
    room: usize,
}

impl<K: FlowKey> Ends<K> {
    /// Nothing is noted until there is room.
    pub(super) fn none() -> Ends<K> {
        Ends { ends: Vec::new(), room: 0 }
    }

    /// Notes up to `room` ends from now on.
    pub(super) fn make_room(&mut self, room: usize) {
        self.ends.truncate(room);
        self.ends.reserve_exact(room - self.ends.len());
        self.room = room;
    }

    /// Notes the end of a flow; says whether there was room, or that nobody wants to know.
    #[inline]
    pub(super) fn note(&mut self, line: &Line, reason: EndReason) -> bool {
        if self.ends.len() >= self.room {
            return self.room == 0;
        }
        let [packets, bytes] = entry::counts::<K>(line);
        let (key, answer, state) = (entry::key(line), entry::answer(line), entry::status(line).state);
        self.ends.push(FlowEnd { key, answer, state, packets, bytes, reason });
        true
    }

    /// Takes all that were noted, in the order in which flows ended.
    pub(super) fn take(&mut self) -> impl Iterator<Item = FlowEnd<K>> + '_ {
        self.ends.drain(..)
    }
}
