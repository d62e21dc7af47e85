//! Why a change of the router's tables was refused: the subject, the problem, and what to do.
use crate::PortId;
use crate::neighbor::Limit;
use artery_lpm::TableError;
use artery_lpm::load::AnyPrefix;
use artery_storage::{MOST_MEMBERS, MOST_SLOTS};
use std::net::IpAddr;

/// Why a change of the tables was refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say what is in their fields
pub enum RouterError {
    /// No port has this number.
    #[error("port {0}: no such port; ports count from 0 in the order of PORT")]
    NoSuchPort(PortId),
    /// There are as many ports as there can be.
    #[error("the router has as many ports as it can have")]
    TooManyPorts,
    /// The address is one of the router's already.
    #[error("{address}: File exists, port {port} has this address; remove it there first")]
    AddressExists { address: IpAddr, port: String },
    /// The port does not have the address.
    #[error("{address}: port {port} has no such address; `show ports` lists those it has")]
    NoSuchAddress { address: IpAddr, port: String },
    /// The virtual address is in none of the port's prefixes.
    #[error(
        "virtual address {address}: port {port} has no address in a prefix with it; add such an address, or \
         leave it out"
    )]
    VirtualOffLink { address: IpAddr, port: String },
    /// No port can have the address.
    #[error("{address}/{len}: {why}")]
    BadAddress { address: IpAddr, len: u8, why: BadAddress },
    /// There is a route for the prefix.
    #[error("{0}: File exists, there is a route for this prefix; replace it, or delete it first")]
    Exists(AnyPrefix),
    /// The prefix is that of an address of the router.
    #[error("{0}: File exists, it is there with an address of the router; remove the address")]
    OwnPrefix(AnyPrefix),
    /// There is no such static route.
    #[error("{0}: not in table; a static route of exactly this prefix is needed")]
    NotInTable(AnyPrefix),
    /// The route names no next hop.
    #[error("the route has no next hop; name a gateway, a port, or blackhole")]
    NoNextHop,
    /// The route names more next hops than there can be.
    #[error("{0} next hops: a route can have {MOST_MEMBERS}; leave the others out")]
    TooManyNextHops(usize),
    /// The route names neither port nor gateway.
    #[error("the next hop names neither port nor gateway; name one of them")]
    NoWay,
    /// Ends, such as blackhole, can't be one of several next hops.
    #[error("an end such as blackhole can't be one of several next hops; let it be alone")]
    EndAmongSeveral,
    /// A weight of 0.
    #[error("a next hop has weight 0; weights are from 1 on, leave it out instead")]
    NoWeight,
    /// More buckets than there can be, or none.
    #[error("{0} buckets: there can be 1 to {MOST_SLOTS}")]
    Buckets(u16),
    /// No port is connected to the gateway, or not the one that was named.
    #[error("gateway {gateway}: {}", off_link(.port.as_deref()))]
    GatewayOffLink { gateway: IpAddr, port: Option<String> },
    /// The gateway is the router itself.
    #[error("gateway {gateway}: it is the router's own address, on port {port}; name the next router's")]
    GatewayIsOwn { gateway: IpAddr, port: String },
    /// The gateway is not a single host: it is a multicast or broadcast address.
    #[error("gateway {0}: it is not the address of one host; name the next router's")]
    GatewayIsNoHost(IpAddr),
    /// A gateway with a link-local address can be anywhere.
    #[error("gateway {0}: a link-local address can be on any link; name the port")]
    GatewayNeedsPort(IpAddr),
    /// IPv6 does not go through routers that have IPv4 alone.
    #[error("gateway {0}: IPv6 needs an IPv6 gateway; name the router's IPv6 address")]
    GatewayFamily(IpAddr),
    /// A route in a feed names a next hop that was not given.
    #[error("a route names next hop {0} of the feed, which has fewer")]
    NoSuchSpec(usize),
    /// The neighbor table has no room for the gateway.
    #[error("no room for the gateway among the neighbors: {0}; raise the limit")]
    Neighbors(Limit),
    /// The routing table refuses.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// Why no port can have an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// The prefix is longer than the address.
    #[error("the prefix is longer than the address; take 0 to 32, or 0 to 128 for IPv6")]
    Length,
    /// It is that of a group, of all, of none, or of a loop.
    #[error("not an address that one host can have; take one of the network's hosts")]
    NoHost,
    /// It is the first or the last of its prefix, which mean the network and all of its hosts.
    #[error("the first and last address of a prefix mean the network and all of its hosts; take one between")]
    Broadcast,
}

/// Why a gateway is not on a link, and what to do about it.
fn off_link(port: Option<&str>) -> String {
    let (subject, remedy) = match port {
        None => ("no port has an".to_string(), "take a gateway on a link"),
        Some(port) => (format!("port {port} has no"), "name no port"),
    };
    format!("{subject} address in a prefix with it; add such an address, or {remedy}")
}

impl From<Limit> for RouterError {
    fn from(limit: Limit) -> RouterError {
        RouterError::Neighbors(limit)
    }
}
