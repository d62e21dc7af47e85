//! How a member is chosen for a new flow.
use super::maglev::Slots;
use std::time::Duration;

/// How one of several members is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// By the flow's hash, from a table that follows from the members' names and weights alone, so that all
    /// machines with the same members have the same. One that goes moves few flows of others.
    Maglev(Slots),
    /// By the flow's hash, which leads to one of many buckets. A member that goes leaves its buckets to the
    /// others; one that comes gets buckets that no flow uses.
    Resilient {
        /// How many, from 1 to [`Method::MOST_BUCKETS`]; 64 for each member are good.
        buckets: u32,
        /// How long nothing was sent to a bucket that may be given to another.
        idle: Duration,
        /// How long buckets may be unfairly shared until they are given to others whether idle or not;
        /// for ever if `None`.
        force: Option<Duration>,
    },
    /// By where the flow's hash falls among the members (RFC 2992).
    Hash,
    /// By addresses and ports, combined by exclusive or, modulo the sum of weights, as FreeBSD did in 2008.
    Xor,
    /// Another one for each packet.
    PerPacket,
    /// Another one whenever a flow was silent for so long that its packets can't overtake one another.
    Flowlet {
        /// Silence after which a flow may move to another member.
        gap: Duration,
    },
    /// The one with fewest flows for its weight, by the count of this worker.
    LeastLoaded,
}

impl Method {
    /// Most buckets of [`Method::Resilient`].
    pub const MOST_BUCKETS: u32 = 1 << 16;
    /// The longest gap of [`Method::Flowlet`].
    pub const LONGEST_GAP: Duration = Duration::from_secs(60);
    /// Maglev with the default of 65,537 slots.
    pub const MAGLEV: Method = Method::Maglev(Slots::DEFAULT);
    /// With 4,096 buckets, which are idle after 120 s and never forced.
    pub const RESILIENT: Method =
        Method::Resilient { buckets: 4096, idle: Duration::from_secs(120), force: None };
    /// With a gap of 500 µs.
    pub const FLOWLET: Method = Method::Flowlet { gap: Duration::from_micros(500) };
    /// All, as they are by default.
    pub const ALL: [Method; 7] = [
        Method::MAGLEV,
        Method::RESILIENT,
        Method::Hash,
        Method::Xor,
        Method::PerPacket,
        Method::FLOWLET,
        Method::LeastLoaded,
    ];

    /// Keyword of the method in configuration text.
    pub fn name(self) -> &'static str {
        match self {
            Method::Maglev(_) => "maglev",
            Method::Resilient { .. } => "resilient",
            Method::Hash => "hash",
            Method::Xor => "xor",
            Method::PerPacket => "per-packet",
            Method::Flowlet { .. } => "flowlet",
            Method::LeastLoaded => "least-loaded",
        }
    }
    /// Whether it is a function of the members and the flow alone: machines with the same members then choose
    /// the same member for it.
    pub fn is_pure(self) -> bool {
        matches!(self, Method::Maglev(_) | Method::Hash | Method::Xor)
    }
    /// Whether it is called for each packet, whatever is remembered of its flow.
    pub fn is_for_packets(self) -> bool {
        matches!(self, Method::PerPacket | Method::Flowlet { .. })
    }
}

impl Default for Method {
    fn default() -> Method {
        Method::MAGLEV
    }
}

/// What happens to the known flows of a member whose checks fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Down {
    /// They are assigned again: other members take them, which reset connections they don't know.
    #[default]
    Moves,
    /// They stay, in case that the check is wrong.
    Stays,
}

/// How members are chosen and what their health means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How one is chosen.
    pub method: Method,
    /// What happens to the known flows of a member that is down.
    pub down: Down,
    /// Whether all members are used as though they were up when none is: then more likely the check is broken
    /// than all of them.
    pub fails_open: bool,
    /// Whether a new member counts as up before its first result: true where nothing is probed.
    pub starts_up: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { method: Method::default(), down: Down::default(), fails_open: true, starts_up: true }
    }
}
