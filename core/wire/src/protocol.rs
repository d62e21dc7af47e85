//! The protocol numbers of IP.

/// What follows an IP header: `protocol` in version 4, `next header` in version 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// Options for every router on the way, RFC 8200.
    pub const HOP_BY_HOP: IpProtocol = IpProtocol(0);
    /// Internet Control Message Protocol, RFC 792.
    pub const ICMP: IpProtocol = IpProtocol(1);
    /// Internet Group Management Protocol, RFC 9776.
    pub const IGMP: IpProtocol = IpProtocol(2);
    /// IPv4 in IP, RFC 2003.
    pub const IPIP: IpProtocol = IpProtocol(4);
    /// Transmission Control Protocol, RFC 9293.
    pub const TCP: IpProtocol = IpProtocol(6);
    /// User Datagram Protocol, RFC 768.
    pub const UDP: IpProtocol = IpProtocol(17);
    /// IPv6 in IP, RFC 4213.
    pub const IPV6: IpProtocol = IpProtocol(41);
    /// A routing header of IPv6, RFC 8200.
    pub const ROUTING: IpProtocol = IpProtocol(43);
    /// A fragment header of IPv6, RFC 8200.
    pub const FRAGMENT: IpProtocol = IpProtocol(44);
    /// Generic Routing Encapsulation, RFC 2784.
    pub const GRE: IpProtocol = IpProtocol(47);
    /// An encrypted payload, RFC 4303.
    pub const ESP: IpProtocol = IpProtocol(50);
    /// An authentication header, RFC 4302.
    pub const AUTHENTICATION: IpProtocol = IpProtocol(51);
    /// ICMP for IPv6, RFC 4443.
    pub const ICMPV6: IpProtocol = IpProtocol(58);
    /// Nothing follows, RFC 8200.
    pub const NO_NEXT_HEADER: IpProtocol = IpProtocol(59);
    /// Options for the destination, RFC 8200.
    pub const DESTINATION_OPTIONS: IpProtocol = IpProtocol(60);
    /// Open Shortest Path First, RFC 2328.
    pub const OSPF: IpProtocol = IpProtocol(89);
    /// Protocol Independent Multicast, RFC 7761.
    pub const PIM: IpProtocol = IpProtocol(103);
    /// Stream Control Transmission Protocol, RFC 9260.
    pub const SCTP: IpProtocol = IpProtocol(132);

    /// Says whether the protocol's header begins with a source and a destination port.
    #[inline]
    pub fn has_ports(self) -> bool {
        matches!(self, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP)
    }
}
