//! Which flow a record is about.

use std::net::{Ipv4Addr, Ipv6Addr};

/// What tells a flow from others: addresses, ports and the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// The client's address and the service's.
    pub addresses: Addresses,
    /// The client's port and the service's.
    pub ports: [u16; 2],
    /// The number of the protocol in the IP header.
    pub protocol: u8,
}

/// Source and destination, which are of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Addresses {
    /// Addresses and ports of IPv4.
    V4([Ipv4Addr; 2]),
    /// Of IPv6. IPv4-mapped addresses (RFC 4291 section 2.5.5.2) don't belong here: records write IPv4 so.
    V6([Ipv6Addr; 2]),
}

impl Addresses {
    /// Both addresses as IPv6 addresses: of IPv4 the mapped ones.
    pub(crate) fn to_mapped(self) -> [Ipv6Addr; 2] {
        match self {
            Addresses::V4(both) => both.map(|address| address.to_ipv6_mapped()),
            Addresses::V6(both) => both,
        }
    }

    /// The opposite of [`to_mapped`](Self::to_mapped), or `None` if just one address is of IPv4.
    pub(crate) fn from_mapped(both: [Ipv6Addr; 2]) -> Option<Addresses> {
        match both.map(|address| address.to_ipv4_mapped()) {
            [Some(source), Some(destination)] => Some(Addresses::V4([source, destination])),
            [None, None] => Some(Addresses::V6(both)),
            _ => None,
        }
    }
}
