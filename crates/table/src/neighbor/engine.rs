//! The seam between who sends and who knows the link: whatever finds link addresses implements [`L2Engine`].
//!
//! Control holds one engine for each port and protocol. An engine does no input and output: what is to be asked on the
//! link, and what happened, it leaves as [`Action`]s for whoever called it. Packets that wait stay with their senders.
use super::index::NeighborReader;
use super::links::NeighborId;
use super::protocol::{Ask, Heard};
use artery_wire::EtherAddr;
use std::fmt;
use std::time::Duration;

/// The neighbors of one port in one protocol, for the one who changes them. `now` is the time since any fixed instant.
pub trait L2Engine<A>: Send {
    /// What to do with a packet to a neighbor whose word is not ready. Begins to ask if nobody did.
    fn resolve(&mut self, address: A, now: Duration) -> Resolution;
    /// Keeps a neighbor's id until it is unpinned as often: what was learnt may go, its place stays. Asks nobody.
    fn pin(&mut self, address: A, now: Duration) -> Result<NeighborId, Limit>;
    /// Takes one pin back.
    fn unpin(&mut self, address: A, now: Duration);

    /// Takes what a message says about a neighbor. Only one that is `for_us` may make an unknown neighbor known.
    fn hear(&mut self, address: A, heard: Heard, for_us: bool, now: Duration);
    /// Takes the word of a protocol above that what was sent has arrived.
    fn confirm(&mut self, address: A, now: Duration);
    /// Sets a neighbor's link address, whatever was known.
    fn set(&mut self, address: A, link: EtherAddr, kind: Kind, now: Duration) -> Result<(), Limit>;
    /// Forgets a neighbor, static ones too, and says whether it was known.
    fn delete(&mut self, address: A, now: Duration) -> bool;
    /// Forgets all neighbors but static ones, and says how many.
    fn flush(&mut self, now: Duration) -> usize;
    /// Follows a change of the port.
    fn port_changed(&mut self, change: PortChange, now: Duration);

    /// Does what is due, though not more than takes a moment, and says when there is more to do; `now` if at once. Any
    /// other call may bring that nearer.
    fn poll(&mut self, now: Duration) -> Option<Duration>;
    /// Moves what is to be asked and what happened to the end of `into`, in order.
    fn take_actions(&mut self, into: &mut Vec<Action<A>>);

    /// The way from addresses to ids, for workers.
    fn reader(&self) -> NeighborReader<A>;
    /// What is known of one neighbor.
    fn find(&self, address: A, now: Duration) -> Option<NeighborView<A>>;
    /// What is known of all neighbors, by address.
    fn entries(&self, now: Duration) -> Vec<NeighborView<A>>;
    /// How many neighbors have a place.
    fn len(&self) -> usize;
    /// Whether none has.
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
    /// Keep it: the neighbor is being asked.
    Hold(NeighborId),
    /// Say that it can't arrive: the neighbor was asked in vain.
    Failed,
    /// Drop it: the neighbor can't be asked.
    Refused(Limit),
}

/// Which bound keeps a neighbor out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Too many unknown neighbors were asked for in a short time.
    Rate,
    /// The table is full of neighbors that are in use.
    Entries,
    /// All tables of the router together are full.
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

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Rate => "too many unknown neighbors were asked for in a short time",
            Limit::Entries => "the neighbor table is full",
            Limit::Total => "all neighbor tables together are full",
        })
    }
}

impl std::error::Error for Limit {}

/// How long a link address that was set by hand lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// For ever; nothing that is heard changes it.
    Static,
    /// For ever, and others that ask for it are answered with it.
    Published,
    /// As if the neighbor had answered just now.
    Temporary,
}

/// What happened to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortChange {
    /// Its link went down: who was there may be gone when it comes back.
    Down,
    /// Its link came up.
    Up,
    /// Its own link address changed; those of its neighbors did not.
    LinkAddress,
}

/// What an engine wants done, or known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<A> {
    /// A question to send.
    Ask {
        /// Whose link address is wanted.
        address: A,
        /// Whom to ask.
        to: Ask,
    },
    /// What has become of a neighbor: for senders that hold packets, and for whoever watches.
    Event(NeighborEvent<A>),
}

/// What has become of a neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborEvent<A> {
    /// The neighbor's address.
    pub address: A,
    /// Its id then. When the event is read it may have none any more.
    pub id: NeighborId,
    /// What happened.
    pub what: Happened,
}

/// What can become of a neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// Its link address is known now: packets that wait can go.
    Resolved(EtherAddr),
    /// It has another link address.
    Moved {
        /// The one it had.
        from: EtherAddr,
        /// The one it has.
        to: EtherAddr,
    },
    /// Another link address was heard for it; it is asked whether it is still where it was.
    Doubted {
        /// The one it has.
        kept: EtherAddr,
        /// The one that was heard.
        heard: EtherAddr,
    },
    /// Another link address was heard for it and not taken.
    Refused {
        /// The one it has.
        kept: EtherAddr,
        /// The one that was heard.
        heard: EtherAddr,
    },
    /// It was asked in vain: packets that wait can't arrive.
    Failed,
    /// Its time ran out: it was known, and nobody used it.
    Expired,
    /// Its time ran out after it had been asked in vain.
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
            Happened::Doubted { .. } => "doubted",
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
            Happened::Doubted { kept, heard } => write!(f, " {heard}, asks {kept}"),
            Happened::Refused { kept, heard } => write!(f, " {heard}, stays {kept}"),
            _ => Ok(()),
        }
    }
}

/// One neighbor, as `show neighbors` lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborView<A> {
    /// Its address.
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
    /// Whether others that ask for it are answered.
    pub is_published: bool,
    /// Whether it says that it is a router.
    pub is_router: bool,
    /// How many next hops have pinned it.
    pub pins: u32,
    /// How many questions it has left unanswered.
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
    /// Questions handed out.
    asked: "neighbor-questions",
    /// Neighbors that became known.
    resolved: "neighbors-resolved",
    /// Changes of a link address.
    moved: "neighbors-moved",
    /// Link addresses heard for neighbors that were then asked whether they are still where they were.
    doubted: "neighbor-changes-doubted",
    /// Link addresses heard for neighbors that keep another.
    refused: "neighbor-changes-refused",
    /// Neighbors that were asked in vain.
    failed: "neighbors-failed",
    /// Entries whose time ran out unused.
    expired: "neighbors-expired",
    /// Entries whose time ran out after they had been asked in vain.
    timed_out: "neighbors-timed-out",
    /// Entries forgotten on demand, or with their port.
    deleted: "neighbors-deleted",
    /// Entries forgotten to make room for others.
    pushed_out: "neighbors-pushed-out",
    /// Neighbors that said they are routers no more.
    no_longer_router: "neighbors-no-longer-router",
    /// Neighbors not asked for because too many were in a short time.
    over_rate: "neighbors-over-rate",
    /// Neighbors not taken because the table was full of ones in use.
    over_entries: "neighbors-over-entries",
    /// Neighbors not taken because all tables together were full.
    over_total: "neighbors-over-total",
}
