//! The protocol numbers of IP.

/// What follows an IP header: `protocol` in version 4, `next header` in version 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
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
    /// Generic Routing Encapsulation, RFC 2784.
    pub const GRE: IpProtocol = IpProtocol(47);
    /// ICMP for IPv6, RFC 4443.
    pub const ICMPV6: IpProtocol = IpProtocol(58);
    /// Open Shortest Path First, RFC 2328.
    pub const OSPF: IpProtocol = IpProtocol(89);
    /// Stream Control Transmission Protocol, RFC 9260.
    pub const SCTP: IpProtocol = IpProtocol(132);

    /// Says whether the protocol's header begins with a source and a destination port.
    #[inline]
    pub fn has_ports(self) -> bool {
        matches!(self, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP)
    }
}
