//! Why a change of the router's tables was refused: the subject, the problem, and what to do.
use crate::PortId;
use crate::neighbor::Limit;
use artery_lpm::TableError;
use artery_lpm::load::AnyPrefix;
use artery_storage::{MOST_MEMBERS, MOST_SLOTS};
use std::fmt;
use std::net::IpAddr;

/// Why a change of the tables was refused.
#[derive(Debug)]
pub enum RouterError {
    /// No port has this number.
    NoSuchPort(PortId),
    /// There are as many ports as there can be.
    TooManyPorts,
    /// The address is one of the router's already.
    AddressExists {
        /// The address that was refused.
        address: IpAddr,
        /// The port that has it.
        port: String,
    },
    /// The port does not have the address.
    NoSuchAddress {
        /// The address that was not found.
        address: IpAddr,
        /// Name of the port.
        port: String,
    },
    /// The virtual address is in none of the port's prefixes.
    VirtualOffLink {
        /// The address that was refused.
        address: IpAddr,
        /// Name of the port.
        port: String,
    },
    /// No port can have the address.
    BadAddress {
        /// The address that was refused.
        address: IpAddr,
        /// The length of its prefix.
        len: u8,
        /// What is wrong with the address.
        why: BadAddress,
    },
    /// There is a route for the prefix.
    Exists(AnyPrefix),
    /// The prefix is that of an address of the router.
    OwnPrefix(AnyPrefix),
    /// There is no such static route.
    NotInTable(AnyPrefix),
    /// The route names no next hop.
    NoNextHop,
    /// The route names more next hops than there can be.
    TooManyNextHops(usize),
    /// The route names neither port nor gateway.
    NoWay,
    /// Ends, such as blackhole, can't be one of several next hops.
    EndAmongSeveral,
    /// A weight of 0.
    NoWeight,
    /// More buckets than there can be, or none.
    Buckets(u16),
    /// No port is connected to the gateway, or not the one that was named.
    GatewayOffLink {
        /// The gateway that was refused.
        gateway: IpAddr,
        /// The port that was named.
        port: Option<String>,
    },
    /// The gateway is the router itself.
    GatewayIsOwn {
        /// The gateway that was refused.
        gateway: IpAddr,
        /// The port that has the address.
        port: String,
    },
    /// The gateway is not a single host: it is a multicast or broadcast address.
    GatewayIsNoHost(IpAddr),
    /// A gateway with a link-local address can be anywhere.
    GatewayNeedsPort(IpAddr),
    /// IPv6 does not go through routers that have IPv4 alone.
    GatewayFamily(IpAddr),
    /// A route in a feed names a next hop that was not given.
    NoSuchSpec(usize),
    /// The neighbor table has no room for the gateway.
    Neighbors(Limit),
    /// The routing table refuses.
    Table(TableError),
}

/// Why no port can have an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadAddress {
    /// The prefix is longer than the address.
    Length,
    /// It is that of a group, of all, of none, or of a loop.
    NoHost,
    /// It is the first or the last of its prefix, which mean the network and all of its hosts.
    Broadcast,
}

impl fmt::Display for RouterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use RouterError::*;
        match self {
            NoSuchPort(port) => {
                write!(f, "port {port}: no such port; ports count from 0 in the order of PORT")
            }
            TooManyPorts => f.write_str("the router has as many ports as it can have"),
            AddressExists { address, port } => {
                write!(f, "{address}: File exists, port {port} has this address; remove it there first")
            }
            NoSuchAddress { address, port } => {
                write!(f, "{address}: port {port} has no such address; `show ports` lists those it has")
            }
            VirtualOffLink { address, port } => write!(
                f,
                "virtual address {address}: port {port} has no address in a prefix with it; add such an \
                 address, or leave it out"
            ),
            BadAddress { address, len, why } => write!(f, "{address}/{len}: {why}"),
            Exists(prefix) => {
                write!(
                    f,
                    "{prefix}: File exists, there is a route for this prefix; replace it, or delete it first"
                )
            }
            OwnPrefix(prefix) => {
                write!(
                    f,
                    "{prefix}: File exists, it is there with an address of the router; remove the address"
                )
            }
            NotInTable(prefix) => {
                write!(f, "{prefix}: not in table; a static route of exactly this prefix is needed")
            }
            NoNextHop => f.write_str("the route has no next hop; name a gateway, a port, or blackhole"),
            TooManyNextHops(count) => {
                write!(f, "{count} next hops: a route can have {MOST_MEMBERS}; leave the others out")
            }
            NoWay => f.write_str("the next hop names neither port nor gateway; name one of them"),
            EndAmongSeveral => {
                f.write_str("an end such as blackhole can't be one of several next hops; let it be alone")
            }
            NoWeight => f.write_str("a next hop has weight 0; weights are from 1 on, leave it out instead"),
            Buckets(count) => write!(f, "{count} buckets: there can be 1 to {MOST_SLOTS}"),
            GatewayOffLink { gateway, port: None } => {
                write!(
                    f,
                    "gateway {gateway}: no port has an address in a prefix with it; add such an address, or \
                     take a gateway on a link"
                )
            }
            GatewayOffLink { gateway, port: Some(port) } => {
                write!(
                    f,
                    "gateway {gateway}: port {port} has no address in a prefix with it; add such an address, \
                     or name no port"
                )
            }
            GatewayIsOwn { gateway, port } => {
                write!(
                    f,
                    "gateway {gateway}: it is the router's own address, on port {port}; name the next \
                     router's"
                )
            }
            GatewayIsNoHost(gateway) => {
                write!(f, "gateway {gateway}: it is not the address of one host; name the next router's")
            }
            GatewayNeedsPort(gateway) => {
                write!(f, "gateway {gateway}: a link-local address can be on any link; name the port")
            }
            GatewayFamily(gateway) => {
                write!(f, "gateway {gateway}: IPv6 needs an IPv6 gateway; name the router's IPv6 address")
            }
            NoSuchSpec(index) => write!(f, "a route names next hop {index} of the feed, which has fewer"),
            Neighbors(limit) => {
                write!(f, "no room for the gateway among the neighbors: {limit}; raise the limit")
            }
            Table(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadAddress::Length => "the prefix is longer than the address; take 0 to 32, or 0 to 128 for IPv6",
            BadAddress::NoHost => "not an address that one host can have; take one of the network's hosts",
            BadAddress::Broadcast => {
                "the first and last address of a prefix mean the network and all of its hosts; take one \
                 between"
            }
        })
    }
}

impl std::error::Error for RouterError {}

impl From<TableError> for RouterError {
    fn from(error: TableError) -> RouterError {
        RouterError::Table(error)
    }
}
impl From<Limit> for RouterError {
    fn from(limit: Limit) -> RouterError {
        RouterError::Neighbors(limit)
    }
}
