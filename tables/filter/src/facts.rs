//! What the filter looks at in a packet.
use artery_wire::IpProtocol;
use std::net::IpAddr;

/// The direction of a packet at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// It comes from the wire.
    In,
    /// It goes to the wire.
    Out,
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4, `inet` in rules.
    Inet,
    /// IPv6, `inet6` in rules.
    Inet6,
}

impl Family {
    /// The family of an address.
    pub fn of_address(address: IpAddr) -> Family {
        match address {
            IpAddr::V4(_) => Family::Inet,
            IpAddr::V6(_) => Family::Inet6,
        }
    }
}

/// An interface that the filter knows, by its index among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Interface(pub u16);

/// A tag that a rule gives, by its place among the names of all rules, which it keeps when others are
/// loaded. 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Tag(pub u16);

/// What rules are evaluated for: a packet, its interface and its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The interface that it is at.
    pub interface: Interface,
    /// The interface that it was received by; the same as `interface` for packets that come in.
    pub received_on: Option<Interface>,
    /// Its direction at this interface.
    pub direction: Direction,
    /// Its protocol: what follows the headers of IP and their extensions.
    pub protocol: IpProtocol,
    /// Its source address, after any translation so far.
    pub source: IpAddr,
    /// Its destination address, after any translation so far.
    pub destination: IpAddr,
    /// The port of its source, for TCP, UDP and SCTP; the identifier of ICMP echoes; otherwise 0.
    pub source_port: u16,
    /// The port of its destination, for TCP, UDP and SCTP; the identifier of ICMP echoes; otherwise 0.
    pub destination_port: u16,
    /// The flags of TCP; otherwise 0.
    pub tcp_flags: u8,
    /// Type and code of ICMP and ICMPv6; otherwise 0.
    pub icmp: (u8, u8),
    /// Type of service, or traffic class.
    pub tos: u8,
    /// Whether it is a fragment that has not been put together.
    pub is_fragment: bool,
    /// Whether it has IPv4 options, or IPv6 headers of options or routing.
    pub has_options: bool,
    /// The priority that it was received with, 0 to 7.
    pub priority: u8,
    /// The tag that rules gave it before.
    pub tag: Tag,
    /// Its length in bytes, from the header of IP on.
    pub length: u32,
}

impl Facts {
    /// The family of its addresses.
    pub fn family(&self) -> Family {
        Family::of_address(self.source)
    }
}
