//! Netlink: requests to the kernel, its answers and notifications.
//!
//! - Records of rtnetlink (rtnetlink(7)): links, addresses, routes, next hops, neighbors and rules, as the
//!   kernel tells of them, and as routing daemons write them to others in its place.
//! - [`records`]: dumps and notifications of all of these, without waiting.
//! - [`rtnetlink`]: changes of the host, each with an acknowledgement.
//! - [`request`]: questions of any protocol (nfnetlink, xfrm, tc), whose answers the caller reads by their
//!   attributes.
//! - [`genetlink`]: questions to families of generic netlink.
//!
//! Bytes become records here, and nothing is concluded from them. Bytes that are no record are passed over;
//! no bytes whatsoever make a panic.
#![forbid(unsafe_code)]

mod address;
mod attributes;
pub mod build;
pub mod genetlink;
mod link;
mod message;
mod neighbor;
mod next_hop;
pub mod records;
mod refusal;
pub mod request;
mod route;
pub mod rtnetlink;
mod rule;
mod settings;
pub mod socket;
mod tunnel;

pub use address::Address;
pub use attributes::{Attributes, parse_text};
pub use link::{Link, LinkKind};
pub use message::{
    HEADER, Manner, Message, Messages, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL,
    NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, News, Record,
};
pub use neighbor::Neighbor;
pub use next_hop::{NextHopObject, ObjectKind};
pub use route::{Path, Route, RouteHop, RouteKind};
pub use rule::{Rule, RuleAction, Selectors};
pub use settings::Settings;
pub use tunnel::{IpTunnel, TunnelOption, TunnelProtocol};

#[cfg(test)]
mod tests;

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4, in netlink AF_INET.
    V4,
    /// IPv6, in netlink AF_INET6.
    V6,
}

/// AF_INET and AF_INET6 of the kernel.
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

impl Family {
    /// Its number in messages.
    pub fn number(self) -> u8 {
        match self {
            Family::V4 => AF_INET,
            Family::V6 => AF_INET6,
        }
    }

    /// The family with a number; none for others than IPv4 and IPv6.
    pub fn from_number(number: u8) -> Option<Family> {
        match number {
            AF_INET => Some(Family::V4),
            AF_INET6 => Some(Family::V6),
            _ => None,
        }
    }

    /// The address of no bits that are set, which stands for a prefix of length 0 without an address.
    pub fn unspecified(self) -> std::net::IpAddr {
        match self {
            Family::V4 => std::net::Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// How many bits its addresses have.
    pub fn bits(self) -> u8 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}
