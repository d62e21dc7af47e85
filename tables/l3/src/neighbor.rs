//! Neighbors: the hosts and routers of a link, and their link addresses.
//!
//! Control owns their states and timers: an [`L2Engine`] for each port and family. Workers see two things,
//! without a lock: an index from addresses to ids ([`NeighborReader`]), and one word for each id ([`Links`]).
//! The protocols are pure functions of (entry, event, now).
pub mod arp;
pub mod arp_input;
pub mod claim;
pub mod engine;
mod entries;
mod external;
pub mod index;
pub mod links;
pub mod nd;
pub mod nd_input;
mod neighbor_ids;
pub mod nud;
pub mod protocol;
mod rate;
pub mod table;

pub use engine::{
    Action, Happened, Kind, L2Engine, Limit, NeighborCounters, NeighborEvent, NeighborView, PortChange,
    Resolution,
};
pub use external::External;
pub use index::{Key, NeighborIndex, NeighborReader};
pub use links::{Link, Links, NeighborId};
pub use neighbor_ids::NeighborIds;
pub use nud::NudSettings;
pub use protocol::{
    Effect, Event, NeighborEntry, NeighborUpdate, NeighborUpdateKind, Protocol, SolicitTarget, State,
};
pub use table::{NeighborLimits, NeighborTable};
