//! Next hops: where routes lead, each different one there once, however many routes share it.
//!
//! A [`Hop`] is a gateway, a link, or an end such as "blackhole". A route leads to a group: one hop, or
//! several with weights and a way to choose among them ([`Selection`]). Groups and hops never change what
//! they are; whether a hop can be used does. A hop that dies is taken out of all its groups by publishing the
//! [`AdjacencyTable`](crate::path::AdjacencyTable) of the groups again, without a look at any route.
mod hops;
mod numbers;

use artery_storage::Comeback;
pub(crate) use hops::Hops;
pub use hops::{GroupView, MemberView};
pub use numbers::Numbers;

use crate::PortId;
use crate::path::{Method, Outcome};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// Where packets go next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hop {
    /// To a router, of either family.
    Gateway {
        /// The port to whose link it is connected.
        port: PortId,
        /// IP address of the router.
        address: IpAddr,
        /// The longest packet, in bytes from the IP header on, if that is less than the port's.
        mtu: Option<u16>,
    },
    /// To their destination, which is on the port's link.
    OnLink {
        /// The port that the link belongs to.
        port: PortId,
        /// The longest packet, if that is less than the port's.
        mtu: Option<u16>,
    },
    /// Packets end here with an outcome.
    End {
        /// The result for these packets.
        outcome: Outcome,
        /// The port on whose behalf.
        port: Option<PortId>,
    },
}

impl Hop {
    /// The end of this kind that belongs to no port.
    pub const fn end(outcome: Outcome) -> Hop {
        Hop::End { outcome, port: None }
    }
    /// The port it leads to, or belongs to.
    pub fn port(self) -> Option<PortId> {
        match self {
            Hop::Gateway { port, .. } | Hop::OnLink { port, .. } => Some(port),
            Hop::End { port, .. } => port,
        }
    }
    /// The router that it leads to.
    pub fn gateway(self) -> Option<(PortId, IpAddr)> {
        if let Hop::Gateway { port, address, .. } = self { Some((port, address)) } else { None }
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hop::Gateway { port, address, .. } => write!(f, "via {address} port {port}"),
            Hop::OnLink { port, .. } => write!(f, "on-link port {port}"),
            Hop::End { outcome, port: Some(port) } => write!(f, "{outcome} port {port}"),
            Hop::End { outcome, port: None } => outcome.fmt(f),
        }
    }
}

/// How one of several next hops is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Selection {
    /// By where the flow's hash falls among the members (RFC 2992).
    #[default]
    Hash,
    /// By the flow's hash, which leads to one of many buckets. A member that dies leaves its buckets to the
    /// others; no other bucket changes hands, so flows of the others stay where they are.
    Resilient {
        /// How many, from 1 to [`artery_storage::MOST_SLOTS`].
        buckets: u16,
        /// When a member that returns takes its buckets back.
        comeback: Comeback,
    },
    /// By addresses and ports, combined by exclusive or, modulo the sum of the weights.
    Xor,
    /// Another one for each packet.
    PerPacket,
}

impl Selection {
    /// Resilient, with 256 buckets, which members that return take back within a minute.
    pub const RESILIENT: Selection =
        Selection::Resilient { buckets: 256, comeback: Comeback::Over(Duration::from_secs(60)) };

    /// What a worker does.
    pub fn method(self) -> Method {
        match self {
            Selection::Hash | Selection::Resilient { .. } => Method::Hash,
            Selection::Xor => Method::Xor,
            Selection::PerPacket => Method::PerPacket,
        }
    }
    /// Keyword of the method in configuration text.
    pub fn name(self) -> &'static str {
        match self {
            Selection::Hash => "hash",
            Selection::Resilient { .. } => "resilient",
            Selection::Xor => "xor",
            Selection::PerPacket => "per-packet",
        }
    }
}
