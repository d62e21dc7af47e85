//! From the bytes of a packet to what rules and states look at, each length checked on the way.
//!
//! What can't be parsed has a [`FilterDropReason`] that the filter counts. Nothing is decided here.
use crate::facts::{Direction, Facts, Family, Interface, Tag};
use crate::states::Key;
use artery_wire::{Icmp6Type, IcmpType, Ip6Headers, IpProtocol, Ipv4, Ipv6, TcpFlags};
use std::net::IpAddr;

/// Why packets are dropped, in the order of `pfctl -s info`; [`FilterDropReason::Match`] counts those that
/// a rule decided about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // their names are those of pf
pub enum FilterDropReason {
    Match,
    BadOffset,
    Fragment,
    Short,
    Normalize,
    Memory,
    BadTimestamp,
    Congestion,
    IpOption,
    ProtocolChecksum,
    StateMismatch,
    StateInsert,
    StateLimit,
    SourceLimit,
    Synproxy,
    Translate,
    NoRoute,
}

impl FilterDropReason {
    /// All, with their names.
    pub const NAMES: [(FilterDropReason, &'static str); 17] = [
        (FilterDropReason::Match, "match"),
        (FilterDropReason::BadOffset, "bad-offset"),
        (FilterDropReason::Fragment, "fragment"),
        (FilterDropReason::Short, "short"),
        (FilterDropReason::Normalize, "normalize"),
        (FilterDropReason::Memory, "memory"),
        (FilterDropReason::BadTimestamp, "bad-timestamp"),
        (FilterDropReason::Congestion, "congestion"),
        (FilterDropReason::IpOption, "ip-option"),
        (FilterDropReason::ProtocolChecksum, "proto-cksum"),
        (FilterDropReason::StateMismatch, "state-mismatch"),
        (FilterDropReason::StateInsert, "state-insert"),
        (FilterDropReason::StateLimit, "state-limit"),
        (FilterDropReason::SourceLimit, "src-limit"),
        (FilterDropReason::Synproxy, "synproxy"),
        (FilterDropReason::Translate, "translate"),
        (FilterDropReason::NoRoute, "no-route"),
    ];

    /// The name that `pfctl -s info` prints.
    pub fn name(self) -> &'static str {
        FilterDropReason::NAMES[self as usize].1
    }
}

/// Where a packet is and what came with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookContext {
    /// The interface that it is at.
    pub interface: Interface,
    /// Its direction at this interface.
    pub direction: Direction,
    /// The interface that it was received by, if it goes out.
    pub received_on: Option<Interface>,
    /// The priority that it was received with, 0 to 7.
    pub priority: u8,
    /// The tag that rules gave it before.
    pub tag: Tag,
    /// Whether its transport checksum holds no more than the sum of the pseudo-header, for a
    /// network card to finish.
    pub has_partial_checksum: bool,
}

impl HookContext {
    /// A packet without tag that comes in or goes out there.
    pub const fn new(interface: Interface, direction: Direction) -> HookContext {
        HookContext {
            interface,
            direction,
            received_on: None,
            priority: 3,
            tag: Tag(0),
            has_partial_checksum: false,
        }
    }
}

/// What a packet says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dissected {
    /// Source and destination; of IPv4 in the lowest 32 bits.
    pub addresses: [u128; 2],
    /// Ports of source and destination. Of ICMP queries: the identifier is the asking end's, the type that
    /// of the end asked.
    pub ports: [u16; 2],
    /// The family of the addresses.
    pub family: Family,
    /// What follows the headers of IP.
    pub protocol: IpProtocol,
    /// The control bits of TCP.
    pub flags: TcpFlags,
    /// Sequence number of TCP.
    pub seq: u32,
    /// Acknowledged number of TCP.
    pub ack: u32,
    /// The window field of TCP.
    pub window: u16,
    /// Bytes behind the header of TCP.
    pub payload: u32,
    /// Type and code of ICMP.
    pub icmp: (u8, u8),
    /// Type of service, or traffic class.
    pub tos: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Where the header behind those of IP begins.
    pub upper: u32,
    /// Where the packet ends, by its own account.
    pub end: u32,
    /// Whether it is a part of a packet.
    pub is_fragment: bool,
    /// Whether it is a part other than the first.
    pub is_later_fragment: bool,
    /// Whether it has options that rules must allow.
    pub has_options: bool,
}

impl Dissected {
    const EMPTY: Dissected = Dissected {
        addresses: [0; 2],
        ports: [0; 2],
        family: Family::Inet,
        protocol: IpProtocol(0),
        flags: TcpFlags(0),
        seq: 0,
        ack: 0,
        window: 0,
        payload: 0,
        icmp: (0, 0),
        tos: 0,
        ttl: 0,
        upper: 0,
        end: 0,
        is_fragment: false,
        is_later_fragment: false,
        has_options: false,
    };

    /// The key that a state of this packet has, where it goes this way.
    #[inline(always)]
    pub fn state_key(&self, direction: Direction) -> Key {
        let ([a, b], [p, q]) = (self.addresses, self.ports);
        let (addresses, ports) = match direction {
            Direction::In => ([a, b], [p, q]),
            Direction::Out => ([b, a], [q, p]),
        };
        Key { addresses, ports, protocol: self.protocol, family: self.family }
    }

    /// Whether it is an error of ICMP, which quotes the packet that it is about.
    #[inline]
    pub fn is_icmp_error(&self) -> bool {
        match self.protocol {
            IpProtocol::ICMP => IcmpType(self.icmp.0).is_error(),
            IpProtocol::ICMPV6 => matches!(self.icmp.0, 1..=4),
            _ => false,
        }
    }

    /// The source, or with 1 the destination, as an address.
    pub fn address(&self, end: usize) -> IpAddr {
        address_from_u128(self.addresses[end], self.family)
    }

    /// The facts that rules are evaluated for.
    pub fn rule_facts(&self, at: &HookContext) -> Facts {
        let is_icmp = matches!(self.protocol, IpProtocol::ICMP | IpProtocol::ICMPV6);
        let [source_port, destination_port] = if is_icmp { [self.icmp_id(); 2] } else { self.ports };
        let received_on = match at.direction {
            Direction::In => Some(at.received_on.unwrap_or(at.interface)),
            Direction::Out => at.received_on,
        };
        Facts {
            interface: at.interface,
            received_on,
            direction: at.direction,
            protocol: self.protocol,
            source: self.address(0),
            destination: self.address(1),
            source_port,
            destination_port,
            tcp_flags: self.flags.0,
            icmp: self.icmp,
            tos: self.tos,
            is_fragment: self.is_fragment,
            has_options: self.has_options,
            priority: at.priority,
            tag: at.tag,
            length: self.end,
        }
    }

    /// The place among the ports of an ICMP query's identifier.
    pub(crate) fn icmp_end(&self) -> usize {
        usize::from(is_reply(self.protocol, self.icmp.0))
    }

    fn icmp_id(&self) -> u16 {
        self.ports[self.icmp_end()]
    }
}

/// An address as a number.
pub(crate) fn address_to_u128(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// A number as an address.
pub(crate) fn address_from_u128(number: u128, family: Family) -> IpAddr {
    match family {
        Family::Inet => IpAddr::V4((number as u32).into()),
        Family::Inet6 => IpAddr::V6(number.into()),
    }
}

/// Takes a packet apart that begins with its header of IP.
#[inline]
pub fn dissect_packet(bytes: &[u8]) -> Result<Dissected, FilterDropReason> {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => dissect_ipv4(bytes),
        Some(6) => dissect_ipv6(bytes),
        _ => Err(FilterDropReason::Short),
    }
}

#[inline(always)]
fn dissect_ipv4(bytes: &[u8]) -> Result<Dissected, FilterDropReason> {
    let header = bytes.first_chunk::<20>().ok_or(FilterDropReason::Short)?;
    let ip = Ipv4::validate_lengths(bytes).map_err(|_| FilterDropReason::Short)?;
    let (upper, total) = (ip.header_len(), usize::from(ip.total_length()));
    let fragment = read_u16(header, 6);
    let mut seen = Dissected {
        addresses: [read_u32(header, 12).into(), read_u32(header, 16).into()],
        protocol: IpProtocol(header[9]),
        tos: header[1],
        ttl: header[8],
        upper: upper as u32,
        end: total as u32,
        is_fragment: fragment & 0x3fff != 0,
        is_later_fragment: fragment & 0x1fff != 0,
        has_options: upper > 20,
        ..Dissected::EMPTY
    };
    let is_membership = seen.protocol == IpProtocol::IGMP && seen.ttl == 1;
    seen.has_options &= !is_membership;
    upper_layer(&mut seen, &bytes[upper..total])?;
    Ok(seen)
}

fn dissect_ipv6(bytes: &[u8]) -> Result<Dissected, FilterDropReason> {
    let header = bytes.first_chunk::<40>().ok_or(FilterDropReason::Short)?;
    let ip = Ipv6::validate(bytes).map_err(|_| FilterDropReason::Short)?;
    let total = 40 + usize::from(ip.payload_length());
    let headers = Ip6Headers::parse_packet(bytes).map_err(|_| FilterDropReason::IpOption)?;
    if headers.routing.is_some_and(|routing| routing.kind == 0) {
        return Err(FilterDropReason::IpOption); // RFC 5095
    }
    let fragment = headers.fragment.filter(|fragment| fragment.offset > 0 || fragment.more);
    let mut seen = Dissected {
        addresses: [read_u128(header, 8), read_u128(header, 24)],
        family: Family::Inet6,
        protocol: headers.protocol,
        tos: (read_u16(header, 0) >> 4) as u8,
        ttl: header[7],
        upper: headers.offset as u32,
        end: total as u32,
        is_fragment: fragment.is_some(),
        is_later_fragment: headers.is_later_fragment(),
        has_options: headers.hop_by_hop.is_some() || headers.routing.is_some(),
        ..Dissected::EMPTY
    };
    upper_layer(&mut seen, bytes.get(headers.offset..total).ok_or(FilterDropReason::Short)?)?;
    let is_listener = matches!(seen.icmp.0, 130..=132 | 143) && seen.protocol == IpProtocol::ICMPV6;
    seen.has_options &= !(is_listener && seen.ttl == 1);
    Ok(seen)
}

#[inline(always)]
fn upper_layer(seen: &mut Dissected, bytes: &[u8]) -> Result<(), FilterDropReason> {
    // A first fragment may be too short for its header: that shows once the packet is whole.
    if seen.is_fragment {
        return Ok(());
    }
    match seen.protocol {
        IpProtocol::TCP => dissect_tcp(seen, bytes),
        IpProtocol::UDP => dissect_udp(seen, bytes),
        IpProtocol::SCTP => {
            let header = bytes.first_chunk::<12>().ok_or(FilterDropReason::Short)?;
            seen.ports = [read_u16(header, 0), read_u16(header, 2)];
            Ok(())
        }
        IpProtocol::ICMP if seen.family == Family::Inet => dissect_icmp(seen, bytes),
        IpProtocol::ICMPV6 if seen.family == Family::Inet6 => dissect_icmp(seen, bytes),
        _ => Ok(()),
    }
}

#[inline(always)]
fn dissect_tcp(seen: &mut Dissected, bytes: &[u8]) -> Result<(), FilterDropReason> {
    let header = bytes.first_chunk::<20>().ok_or(FilterDropReason::Short)?;
    let length = usize::from(header[12] >> 4) * 4;
    if length < 20 {
        return Err(FilterDropReason::BadOffset);
    }
    if length > bytes.len() {
        return Err(FilterDropReason::Short);
    }
    seen.ports = [read_u16(header, 0), read_u16(header, 2)];
    (seen.seq, seen.ack) = (read_u32(header, 4), read_u32(header, 8));
    (seen.flags, seen.window) = (TcpFlags(header[13]), read_u16(header, 14));
    seen.payload = bytes.len().saturating_sub(length) as u32;
    Ok(())
}

#[inline(always)]
fn dissect_udp(seen: &mut Dissected, bytes: &[u8]) -> Result<(), FilterDropReason> {
    let header = bytes.first_chunk::<8>().ok_or(FilterDropReason::Short)?;
    let length = usize::from(read_u16(header, 4));
    if length < 8 || length > bytes.len() {
        return Err(FilterDropReason::Short);
    }
    seen.ports = [read_u16(header, 0), read_u16(header, 2)];
    Ok(())
}

fn dissect_icmp(seen: &mut Dissected, bytes: &[u8]) -> Result<(), FilterDropReason> {
    let header = bytes.first_chunk::<8>().ok_or(FilterDropReason::Short)?;
    seen.icmp = (header[0], header[1]);
    seen.ports = match icmp_query(seen.protocol, header[0]) {
        Some((kind, false)) => [read_u16(header, 4), kind],
        Some((kind, true)) => [kind, read_u16(header, 4)],
        None => [0, header[0].into()],
    };
    Ok(())
}

/// The kind of query of an ICMP message, and whether it is the reply.
fn icmp_query(protocol: IpProtocol, icmp_type: u8) -> Option<(u16, bool)> {
    let is_six = protocol == IpProtocol::ICMPV6;
    let (asks, replies): (&[u8], &[u8]) = match is_six {
        true => (&[Icmp6Type::ECHO_REQUEST.0], &[Icmp6Type::ECHO_REPLY.0]),
        false => (&[IcmpType::ECHO_REQUEST.0, 13, 15, 17], &[IcmpType::ECHO_REPLY.0, 14, 16, 18]),
    };
    let reply = replies.iter().position(|reply| *reply == icmp_type);
    let ask = reply.or_else(|| asks.iter().position(|ask| *ask == icmp_type))?;
    Some((asks[ask].into(), reply.is_some()))
}

/// Whether a message of ICMP is the reply to a query.
fn is_reply(protocol: IpProtocol, icmp_type: u8) -> bool {
    icmp_query(protocol, icmp_type).is_some_and(|(_, is_reply)| is_reply)
}

/// Whether a message of ICMP carries an identifier.
pub(crate) fn has_identifier(protocol: IpProtocol, icmp_type: u8) -> bool {
    icmp_query(protocol, icmp_type).is_some()
}

/// The packet that an error of ICMP quotes, as far as it does; `bytes` begin with its header of IP.
pub fn dissect_quoted(bytes: &[u8]) -> Result<Dissected, FilterDropReason> {
    let (family, least) = match bytes.first().map(|first| first >> 4) {
        Some(4) => (Family::Inet, 20),
        Some(6) => (Family::Inet6, 40),
        _ => return Err(FilterDropReason::Short),
    };
    if bytes.len() < least {
        return Err(FilterDropReason::Short);
    }
    let mut seen = Dissected { family, end: bytes.len() as u32, ..Dissected::EMPTY };
    match family {
        Family::Inet => {
            seen.addresses = [read_u32(bytes, 12).into(), read_u32(bytes, 16).into()];
            seen.protocol = IpProtocol(bytes[9]);
            seen.upper = u32::from(bytes[0] & 15) * 4;
            seen.is_later_fragment = read_u16(bytes, 6) & 0x1fff != 0;
        }
        Family::Inet6 => {
            let headers = Ip6Headers::parse_packet(bytes).map_err(|_| FilterDropReason::Short)?;
            seen.addresses = [read_u128(bytes, 8), read_u128(bytes, 24)];
            (seen.protocol, seen.upper) = (headers.protocol, headers.offset as u32);
            seen.is_later_fragment = headers.is_later_fragment();
        }
    }
    quoted_upper_layer(&mut seen, bytes)?;
    Ok(seen)
}

/// Eight bytes of it are all that is sure to be quoted (RFC 792).
fn quoted_upper_layer(seen: &mut Dissected, bytes: &[u8]) -> Result<(), FilterDropReason> {
    let is_foreign = seen.is_later_fragment || seen.upper < 20;
    let header = bytes.get(seen.upper as usize..).and_then(|rest| rest.first_chunk::<8>());
    match (header, seen.protocol) {
        (Some(_), _) if is_foreign => Err(FilterDropReason::Fragment),
        (Some(header), IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP) => {
            seen.ports = [read_u16(header, 0), read_u16(header, 2)];
            seen.seq = read_u32(header, 4);
            Ok(())
        }
        (Some(header), IpProtocol::ICMP | IpProtocol::ICMPV6) => dissect_icmp(seen, header),
        (_, protocol) if protocol.has_ports() => Err(FilterDropReason::Short),
        (None, IpProtocol::ICMP | IpProtocol::ICMPV6) => Err(FilterDropReason::Short),
        _ => Ok(()),
    }
}

#[inline(always)]
pub(crate) fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
pub(crate) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline(always)]
fn read_u128(bytes: &[u8], at: usize) -> u128 {
    (0..4).fold(0, |wide, n| wide << 32 | u128::from(read_u32(bytes, at + 4 * n)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::build::{ip4, ip6};
    use proptest::prelude::*;

    #[test]
    fn a_packet_cut_short_anywhere_is_refused() {
        let packets = [
            ip4().tcp(1, 2).payload([7; 9]).bytes(),
            ip4().udp(1, 2).payload([7; 9]).bytes(),
            ip4().icmp_echo(1, 2).bytes(),
            ip6().tcp(1, 2).payload([7; 9]).bytes(),
            ip6().extension(60, [0; 6]).udp(1, 2).bytes(),
        ];
        for packet in packets {
            assert!(dissect_packet(&packet).is_ok());
            for len in 0..packet.len() {
                assert!(dissect_packet(&packet[..len]).is_err(), "{len}");
            }
        }
    }

    #[test]
    fn odd_headers_have_their_reasons() {
        let mut packet = ip4().tcp(1, 2).bytes();
        packet[32] = 0x40;
        assert_eq!(dissect_packet(&packet), Err(FilterDropReason::BadOffset));
        packet[32] = 0x60;
        assert_eq!(dissect_packet(&packet), Err(FilterDropReason::Short));
        let mut packet = ip4().udp(1, 2).bytes();
        packet[25] = 7;
        assert_eq!(dissect_packet(&packet), Err(FilterDropReason::Short));
        let routed = ip6().extension(43, [0; 6]).udp(1, 2).bytes();
        assert_eq!(dissect_packet(&routed), Err(FilterDropReason::IpOption));
    }

    #[test]
    fn both_directions_of_a_ping_have_one_key() {
        let ask = dissect_packet(&ip4().src("1.1.1.1").dst("2.2.2.2").icmp_echo(77, 1).bytes()).unwrap();
        let reply =
            dissect_packet(&ip4().src("2.2.2.2").dst("1.1.1.1").icmp_echo_reply(77, 1).bytes()).unwrap();
        assert_eq!(ask.state_key(Direction::In), reply.state_key(Direction::Out));
        assert_eq!(ask.rule_facts(&HookContext::new(Interface(0), Direction::In)).source_port, 77);
        assert_eq!(reply.rule_facts(&HookContext::new(Interface(0), Direction::In)).source_port, 77);
    }

    #[test]
    fn options_are_seen_and_those_of_memberships_are_not() {
        assert!(dissect_packet(&ip4().options([7, 4, 4, 0]).udp(1, 2).bytes()).unwrap().has_options);
        assert!(
            !dissect_packet(&ip4().options([148, 4, 0, 0]).ttl(1).raw(2, [0; 8]).bytes())
                .unwrap()
                .has_options
        );
        assert!(
            dissect_packet(&ip6().extension(0, [5, 2, 0, 0, 1, 0]).udp(1, 2).bytes()).unwrap().has_options
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..120), six: bool) {
            if let Some(first) = bytes.first_mut() {
                *first = if six { 0x60 } else { 0x40 | *first & 15 };
            }
            let _ = dissect_quoted(&bytes);
            if let Ok(seen) = dissect_packet(&bytes) {
                prop_assert!(seen.upper <= seen.end && seen.end as usize <= bytes.len());
            }
        }
    }
}
