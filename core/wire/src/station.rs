//! Endpoints of a link: a pair of Ethernet and IP address.

use std::net::Ipv6Addr;

use crate::EtherAddr;

/// A host on a link: its Ethernet and IP addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkEndpoint<A> {
    /// Ethernet address on the link.
    pub ether: EtherAddr,
    /// IP address on the link.
    pub ip: A,
}

impl LinkEndpoint<Ipv6Addr> {
    /// Returns the endpoint for the listeners of a multicast address.
    pub fn multicast_group(ip: Ipv6Addr) -> LinkEndpoint<Ipv6Addr> {
        LinkEndpoint { ether: EtherAddr::multicast_v6(ip), ip }
    }
}
