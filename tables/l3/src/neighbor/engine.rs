//! The interface between forwarding and address resolution: whatever resolves link addresses implements
//! [`L2Engine`].
//!
//! Control holds one engine for each port and protocol. An engine does no input and output: solicitations to
//! send and events to report are returned to the caller as [`Action`]s. Pending packets stay with their
//! senders.
use super::index::NeighborReader;
use super::links::NeighborId;
use super::protocol::{NeighborEntry, NeighborUpdate, SolicitTarget};
use artery_wire::EtherAddr;
use std::fmt;
use std::time::Duration;

/// The neighbors of one port in one protocol, for the thread that changes them. `now` is the time
/// since any fixed instant.
pub trait L2Engine<A>: Send {
    /// What to do with a packet to a neighbor whose word is not ready. Starts solicitation if
    /// none is under way.
    fn resolve(&mut self, address: A, now: Duration) -> Resolution;
    /// Keeps a neighbor's id until it is unpinned as often: its link address may be forgotten, its id
    /// stays. Sends no solicitation.
    fn pin_neighbor(&mut self, address: A, now: Duration) -> Result<NeighborId, Limit>;
    /// Takes one pin back.
    fn unpin_neighbor(&mut self, address: A, now: Duration);

    /// Takes what a message says about a neighbor. Only one that is `for_us` may make
    /// an unknown neighbor known.
    fn learn_neighbor(&mut self, address: A, heard: NeighborUpdate, for_us: bool, now: Duration);
    /// Takes the word of a protocol above that what was sent has arrived.
    fn confirm_neighbor(&mut self, address: A, now: Duration);
    /// Sets a neighbor's link address, whatever was known.
    fn set_neighbor(&mut self, address: A, link: EtherAddr, kind: Kind, now: Duration) -> Result<(), Limit>;
    /// What is known of neighbors that were not set by hand, for a successor.
    fn learned_entries(&self) -> Vec<(A, NeighborEntry)> {
        Vec::new()
    }
    /// Takes over what the engine of a replaced router knew of a neighbor: its state and its timers go on.
    fn restore_neighbor(&mut self, address: A, entry: NeighborEntry, now: Duration) -> Result<(), Limit> {
        let _ = (address, entry, now);
        Ok(())
    }
    /// Forgets a neighbor, static ones too, and says whether it was known.
    fn delete_neighbor(&mut self, address: A, now: Duration) -> bool;
    /// Forgets all neighbors but static ones, and says how many.
    fn flush_neighbors(&mut self, now: Duration) -> usize;
    /// Follows a change of the port.
    fn port_changed(&mut self, change: PortChange, now: Duration);

    /// Does what is due, though not more than takes a moment, and says when there is more to do; `now` if at
    /// once. Any other call may bring that nearer.
    fn poll(&mut self, now: Duration) -> Option<Duration>;
    /// Moves solicitations to send and events that happened to the end of `into`, in order.
    fn drain_actions(&mut self, into: &mut Vec<Action<A>>);

    /// The index from addresses to ids, for workers.
    fn reader(&self) -> NeighborReader<A>;
    /// What is known of one neighbor.
    fn find_neighbor(&self, address: A, now: Duration) -> Option<NeighborView<A>>;
    /// What is known of all neighbors, by address.
    fn entries(&self, now: Duration) -> Vec<NeighborView<A>>;
    /// How many neighbors have a place.
    fn len(&self) -> usize;
    /// True if no neighbor has a place.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// What has been counted so far.
    fn counters(&self) -> NeighborCounters;
}

/// What to do with a packet to a neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Send it: the neighbor's word is ready.
    Ready(NeighborId),
    /// Keep it pending: the neighbor is being solicited.
    Hold(NeighborId),
    /// Report the destination as unreachable: the neighbor did not answer.
    Failed,
    /// Drop it: the neighbor can't be solicited.
    Refused(Limit),
}

/// Which bound keeps a neighbor out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// Too many unknown neighbors were solicited in a short time.
    #[error("too many unknown neighbors were asked for in a short time")]
    Rate,
    /// The table is full of neighbors that are in use.
    #[error("the neighbor table is full")]
    Entries,
    /// All tables of the router together are full.
    #[error("all neighbor tables together are full")]
    Total,
}

impl Limit {
    /// Its name, as counters say it.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Rate => "rate",
            Limit::Entries => "entries",
            Limit::Total => "total",
        }
    }
}

/// How long a link address that was set by hand lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Static: stays until deleted; no message changes it.
    Static,
    /// Static, and other hosts that solicit it get it as answer (proxy).
    Published,
    /// As if the neighbor had answered just now.
    Temporary,
}

/// What happened to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortChange {
    /// Its link went down: the neighbor may be gone when it comes back.
    Down,
    /// Its link came up.
    Up,
    /// Its own link address changed; those of its neighbors did not.
    LinkAddress,
}

/// What an engine wants done, or known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<A> {
    /// A solicitation to send.
    Ask {
        /// Whose link address is wanted.
        address: A,
        /// The destination of the solicitation.
        to: SolicitTarget,
    },
    /// An event of a neighbor: for senders with pending packets, and for monitors.
    Event(NeighborEvent<A>),
}

/// What has become of a neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborEvent<A> {
    /// IP address of the neighbor.
    pub address: A,
    /// Its id then. When the event is read it may have none any more.
    pub id: NeighborId,
    /// The event that is reported.
    pub what: Happened,
}

/// What can become of a neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // `kept` stays, the other one is that of the message
pub enum Happened {
    /// Its link address is known now: packets that wait can go.
    Resolved(EtherAddr),
    /// It has another link address.
    Moved { from: EtherAddr, to: EtherAddr },
    /// Another link address was announced for it; it is solicited to see whether the old one still answers.
    Contested { kept: EtherAddr, heard: EtherAddr },
    /// Another link address was announced for it and rejected.
    Refused { kept: EtherAddr, heard: EtherAddr },
    /// It did not answer: pending packets are unreachable.
    Failed,
    /// Its time ran out: it was known, and was not used.
    Expired,
    /// Its time ran out after it had failed to answer.
    TimedOut,
    /// It was forgotten on demand, or with its port.
    Deleted,
    /// It was forgotten to make room.
    PushedOut,
    /// It says that it is a router no more.
    NoLongerRouter,
}

impl Happened {
    /// Its name, as `watch` and logs say it.
    pub fn name(self) -> &'static str {
        match self {
            Happened::Resolved(_) => "resolved",
            Happened::Moved { .. } => "moved",
            Happened::Contested { .. } => "doubted",
            Happened::Refused { .. } => "refused",
            Happened::Failed => "failed",
            Happened::Expired => "expired",
            Happened::TimedOut => "timed-out",
            Happened::Deleted => "deleted",
            Happened::PushedOut => "pushed-out",
            Happened::NoLongerRouter => "no-longer-router",
        }
    }
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Happened::Resolved(link) => write!(f, " {link}"),
            Happened::Moved { from, to } => write!(f, " from {from} to {to}"),
            Happened::Contested { kept, heard } => write!(f, " {heard}, asks {kept}"),
            Happened::Refused { kept, heard } => write!(f, " {heard}, stays {kept}"),
            _ => Ok(()),
        }
    }
}

/// One neighbor, as `show neighbors` lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborView<A> {
    /// IP address of the neighbor.
    pub address: A,
    /// The place of its word.
    pub id: NeighborId,
    /// Its link address, if one is known.
    pub link: Option<EtherAddr>,
    /// Its state, by the name that `ip neigh` has for it.
    pub state: &'static str,
    /// When what is known ends or is looked into, from now on.
    pub expires_in: Option<Duration>,
    /// Whether it was set by hand, and stays.
    pub is_static: bool,
    /// Whether solicitations by other hosts are answered (proxy).
    pub is_published: bool,
    /// Whether it says that it is a router.
    pub is_router: bool,
    /// How many next hops have pinned it.
    pub pins: u32,
    /// Number of solicitations without an answer.
    pub asked: u8,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident: $name:literal,)*) => {
        /// What a table of neighbors counts.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct NeighborCounters {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl NeighborCounters {
            /// Names and values, in a fixed order.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($name, self.$field)),*].into_iter()
            }
        }

        impl std::ops::AddAssign for NeighborCounters {
            fn add_assign(&mut self, other: NeighborCounters) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counters! {
    /// Solicitations handed out to be sent.
    asked: "neighbor-questions",
    /// Neighbors that became known.
    resolved: "neighbors-resolved",
    /// Changes of a link address.
    moved: "neighbors-moved",
    /// Link addresses announced for neighbors that were then solicited at the old address.
    doubted: "neighbor-changes-doubted",
    /// Link addresses announced for neighbors that keep another.
    refused: "neighbor-changes-refused",
    /// Neighbors that failed to answer solicitations.
    failed: "neighbors-failed",
    /// Entries whose time ran out unused.
    expired: "neighbors-expired",
    /// Entries whose time ran out after they had failed to answer.
    timed_out: "neighbors-timed-out",
    /// Entries forgotten on demand, or with their port.
    deleted: "neighbors-deleted",
    /// Entries forgotten to make room for others.
    pushed_out: "neighbors-pushed-out",
    /// Neighbors that said they are routers no more.
    no_longer_router: "neighbors-no-longer-router",
    /// Neighbors not solicited because too many were in a short time.
    over_rate: "neighbors-over-rate",
    /// Neighbors not taken because the table was full of ones in use.
    over_entries: "neighbors-over-entries",
    /// Neighbors not taken because all tables together were full.
    over_total: "neighbors-over-total",
}
