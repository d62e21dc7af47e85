//! Stations: who is meant on a link.

use std::net::Ipv6Addr;

use crate::EtherAddr;

/// A station on a link: its addresses there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Station<A> {
    /// Its Ethernet address.
    pub ether: EtherAddr,
    /// Its IP address.
    pub ip: A,
}

impl Station<Ipv6Addr> {
    /// Returns those who listen to a multicast address, as if they were one station.
    pub fn group(ip: Ipv6Addr) -> Station<Ipv6Addr> {
        Station { ether: EtherAddr::multicast_v6(ip), ip }
    }
}
