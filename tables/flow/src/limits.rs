//! How much a table holds, and what it does with it; all of it can be changed while the table is used.
use super::state::IdleTimes;
use std::error::Error;
use std::fmt;

/// How many flows a table may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowLimits {
    /// All flows, at most [`MOST`](Self::MOST).
    pub flows: u32,
    /// Flows that are not proven, at least one; the oldest makes room for the next.
    pub young: u32,
}

impl FlowLimits {
    /// The most flows that any table can hold.
    pub const MOST: u32 = 1 << 27;
    /// How many flows may be young at a time where nothing else is said: those of a twentieth of a second at
    /// a million new connections a second, in few enough cache lines that a flood leaves others their caches.
    const YOUNG: u32 = 1 << 16;

    /// Limits for a table of `flows` flows.
    pub fn for_flows(flows: u32) -> FlowLimits {
        FlowLimits { flows, young: (flows / 4).clamp(1, FlowLimits::YOUNG) }
    }

    /// The limits, brought into the bounds of what there is room for.
    pub(super) fn clamp_to(self, room: FlowLimits) -> FlowLimits {
        let flows = self.flows.clamp(1, room.flows.min(FlowLimits::MOST));
        FlowLimits { flows, young: self.young.clamp(1, room.young.max(1)) }
    }
}

/// How a table treats its flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSettings {
    /// How long a flow may be idle.
    pub idle: IdleTimes,
    /// Whether packets and bytes of proven flows are counted: each packet writes into its
    /// flow's cache line then.
    pub counts: bool,
}

impl Default for FlowSettings {
    fn default() -> FlowSettings {
        FlowSettings { idle: IdleTimes::default(), counts: true }
    }
}

/// No entry is free for a flow: the table is full of proven ones, or keys were made to collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no room for another flow")
    }
}

impl Error for Full {}
