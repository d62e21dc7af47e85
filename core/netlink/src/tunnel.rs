//! Tunnels over IPv4: what interfaces of GRE and IPIP say of themselves (linux/if_tunnel.h).
use super::attributes::{Attributes, parse_text, read_u8, read_u16, read_u32};
use std::fmt;
use std::net::Ipv4Addr;

/// Hardware types of interfaces of IPIP and of GRE (ARPHRD_TUNNEL, ARPHRD_IPGRE).
const ARPHRD_TUNNEL: u16 = 768;
const ARPHRD_IPGRE: u16 = 778;
const HEADER: usize = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;

/// Bits of IFLA_GRE_IFLAGS and IFLA_GRE_OFLAGS.
const GRE_CSUM: u16 = 0x8000;
const GRE_KEY: u16 = 0x2000;
const GRE_SEQ: u16 = 0x1000;
/// IPPROTO_IPIP; 0 is any.
const IPIP_PROTOCOLS: [u8; 2] = [0, 4];

/// The numbers of the same attributes of both kinds.
struct AttributeNumbers {
    lower: u16,
    local: u16,
    remote: u16,
    ttl: u16,
    tos: u16,
    path_mtu_discovery: u16,
    encapsulation: u16,
    metadata: u16,
    mark: u16,
}

const OF_GRE: AttributeNumbers = AttributeNumbers {
    lower: 1,
    local: 6,
    remote: 7,
    ttl: 8,
    tos: 9,
    path_mtu_discovery: 10,
    encapsulation: 14,
    metadata: 18,
    mark: 20,
};
const GRE_FLAGS: [u16; 2] = [2, 3];
const GRE_IGNORE_DF: u16 = 19;
const OF_IPIP: AttributeNumbers = AttributeNumbers {
    lower: 1,
    local: 2,
    remote: 3,
    ttl: 4,
    tos: 5,
    path_mtu_discovery: 10,
    encapsulation: 15,
    metadata: 19,
    mark: 20,
};
const IPIP_PROTOCOL: u16 = 9;

/// A tunnel of GRE or IPIP over IPv4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpTunnel {
    /// What follows the outer IPv4 header.
    pub protocol: TunnelProtocol,
    /// The outer source address; unspecified if the route chooses it.
    pub local: Ipv4Addr,
    /// The outer destination address.
    pub remote: Ipv4Addr,
    /// The outer TTL; 0 for that of the packet.
    pub ttl: u8,
    /// The outer type of service; bit 0 set: that of the packet.
    pub tos: u8,
    /// The interface that outer packets must leave by.
    pub lower: Option<u32>,
    /// An option that makes more of it than one header in front of another.
    pub option: Option<TunnelOption>,
}

/// What follows the outer header of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelProtocol {
    /// RFC 2784: a header of its own, then IPv4 or IPv6.
    Gre,
    /// RFC 2003: IPv4 right behind the outer header.
    Ipip,
}

/// An option of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TunnelOption {
    Metadata,
    SeveralRemotes,
    Key,
    Checksum,
    SequenceNumbers,
    NoPathMtuDiscovery,
    IgnoresDf,
    Mark,
    OuterUdp,
    OtherNamespace,
    OtherProtocol,
}

impl fmt::Display for TunnelOption {
    /// As `ip link` has it, where it has a word for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TunnelOption::Metadata => "external",
            TunnelOption::SeveralRemotes => "no single remote",
            TunnelOption::Key => "key",
            TunnelOption::Checksum => "csum",
            TunnelOption::SequenceNumbers => "seq",
            TunnelOption::NoPathMtuDiscovery => "nopmtudisc",
            TunnelOption::IgnoresDf => "ignore-df",
            TunnelOption::Mark => "fwmark",
            TunnelOption::OuterUdp => "encap",
            TunnelOption::OtherNamespace => "outer packets in another network namespace",
            TunnelOption::OtherProtocol => "another mode than ipip",
        })
    }
}

impl IpTunnel {
    /// Reads a message about an interface (`struct ifinfomsg`); None for other kinds of interfaces.
    pub fn parse_message(payload: &[u8]) -> Option<IpTunnel> {
        let hardware = read_u16(payload.get(2..4)?);
        let attributes = Attributes::after_header(payload, HEADER);
        let info = Attributes::new(attributes.clone().find_value(IFLA_LINKINFO)?);
        let kind = info.clone().find_value(IFLA_INFO_KIND).map(parse_text)?;
        let data = Attributes::new(info.find_value(IFLA_INFO_DATA)?);
        let (protocol, numbers) = match (hardware, kind.as_str()) {
            (ARPHRD_IPGRE, "gre") => (TunnelProtocol::Gre, OF_GRE),
            (ARPHRD_TUNNEL, "ipip") => (TunnelProtocol::Ipip, OF_IPIP),
            _ => return None,
        };
        let of_protocol = match protocol {
            TunnelProtocol::Gre => gre_option(&data),
            TunnelProtocol::Ipip => ipip_option(&data),
        };
        let is_elsewhere = attributes.find_value(IFLA_LINK_NETNSID).is_some();
        let option = is_elsewhere.then_some(TunnelOption::OtherNamespace);
        let option = option.or_else(|| common_option(&data, &numbers)).or(of_protocol);
        let byte = |number| data.clone().find_value(number).map_or(0, read_u8);
        Some(IpTunnel {
            protocol,
            local: address(&data, numbers.local),
            remote: address(&data, numbers.remote),
            ttl: byte(numbers.ttl),
            tos: byte(numbers.tos),
            lower: data.clone().find_value(numbers.lower).map(read_u32).filter(|lower| *lower != 0),
            option,
        })
    }
}

fn address(data: &Attributes<'_>, number: u16) -> Ipv4Addr {
    let value = data.clone().find_value(number).and_then(|value| value.first_chunk::<4>());
    value.map_or(Ipv4Addr::UNSPECIFIED, |octets| Ipv4Addr::from(*octets))
}

fn common_option(data: &Attributes<'_>, numbers: &AttributeNumbers) -> Option<TunnelOption> {
    let value = |number| data.clone().find_value(number);
    let is_set = |number| value(number).is_some_and(|value| value.iter().any(|byte| *byte != 0));
    let remote = address(data, numbers.remote);
    if value(numbers.metadata).is_some() {
        return Some(TunnelOption::Metadata);
    }
    if remote.is_unspecified() || remote.is_multicast() || remote.is_broadcast() {
        return Some(TunnelOption::SeveralRemotes);
    }
    if !is_set(numbers.path_mtu_discovery) {
        return Some(TunnelOption::NoPathMtuDiscovery);
    }
    if is_set(numbers.mark) {
        return Some(TunnelOption::Mark);
    }
    is_set(numbers.encapsulation).then_some(TunnelOption::OuterUdp)
}

fn gre_option(data: &Attributes<'_>) -> Option<TunnelOption> {
    let flags = |number| data.clone().find_value(number).map_or(0, |value| read_u16(value).to_be());
    let flags = GRE_FLAGS.into_iter().fold(0, |all, number| all | flags(number));
    let ignores_df = data.clone().find_value(GRE_IGNORE_DF).is_some_and(|value| read_u8(value) != 0);
    let options = [
        (flags & GRE_KEY != 0, TunnelOption::Key),
        (flags & GRE_CSUM != 0, TunnelOption::Checksum),
        (flags & GRE_SEQ != 0, TunnelOption::SequenceNumbers),
        (ignores_df, TunnelOption::IgnoresDf),
    ];
    options.into_iter().find(|(is_set, _)| *is_set).map(|(_, option)| option)
}

fn ipip_option(data: &Attributes<'_>) -> Option<TunnelOption> {
    let protocol = data.clone().find_value(IPIP_PROTOCOL).map(read_u8);
    protocol.is_some_and(|one| !IPIP_PROTOCOLS.contains(&one)).then_some(TunnelOption::OtherProtocol)
}
