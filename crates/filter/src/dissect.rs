//! From the bytes of a packet to what rules and states look at, each length checked on the way.
//!
//! What can't be taken apart has a [`Reason`] that the filter counts. Nothing is decided here.
use crate::facts::{Direction, Facts, Family, Interface, Tag};
use crate::states::Key;
use artery_wire::{Icmp6Type, IcmpType, Ip6Headers, IpProtocol, TcpFlags};
use std::net::IpAddr;

/// Why packets are dropped, in the order of `pfctl -s info`; [`Reason::Match`] counts those that a rule decided about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // their names are those of pf
pub enum Reason {
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

impl Reason {
    /// All, with their names.
    pub const NAMES: [(Reason, &'static str); 17] = [
        (Reason::Match, "match"),
        (Reason::BadOffset, "bad-offset"),
        (Reason::Fragment, "fragment"),
        (Reason::Short, "short"),
        (Reason::Normalize, "normalize"),
        (Reason::Memory, "memory"),
        (Reason::BadTimestamp, "bad-timestamp"),
        (Reason::Congestion, "congestion"),
        (Reason::IpOption, "ip-option"),
        (Reason::ProtocolChecksum, "proto-cksum"),
        (Reason::StateMismatch, "state-mismatch"),
        (Reason::StateInsert, "state-insert"),
        (Reason::StateLimit, "state-limit"),
        (Reason::SourceLimit, "src-limit"),
        (Reason::Synproxy, "synproxy"),
        (Reason::Translate, "translate"),
        (Reason::NoRoute, "no-route"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Reason::NAMES[self as usize].1
    }
}

/// Where a packet is and what came with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The interface that it is at.
    pub interface: Interface,
    /// Which way it goes there.
    pub direction: Direction,
    /// The interface that it was received by, if it goes out.
    pub received_on: Option<Interface>,
    /// The priority that it was received with, 0 to 7.
    pub priority: u8,
    /// The tag that rules gave it before.
    pub tag: Tag,
    /// Whether its transport checksum holds no more than the sum of the pseudo-header, for a network card to finish.
    pub is_unfinished: bool,
}

impl At {
    /// A packet without tag that comes in or goes out there.
    pub const fn new(interface: Interface, direction: Direction) -> At {
        At { interface, direction, received_on: None, priority: 3, tag: Tag(0), is_unfinished: false }
    }
}

/// What a packet says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dissected {
    /// Source and destination; of IPv4 in the lowest 32 bits.
    pub addresses: [u128; 2],
    /// Ports of source and destination. Of ICMP queries: the identifier is the asking end's, the type that of the end
    /// asked.
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
    /// Window of TCP.
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
    pub fn key(&self, direction: Direction) -> Key {
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
        address(self.addresses[end], self.family)
    }

    /// What rules are held against.
    pub fn facts(&self, at: &At) -> Facts {
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
pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// A number as an address.
pub(crate) fn address(number: u128, family: Family) -> IpAddr {
    match family {
        Family::Inet => IpAddr::V4((number as u32).into()),
        Family::Inet6 => IpAddr::V6(number.into()),
    }
}

/// Takes a packet apart that begins with its header of IP.
#[inline]
pub fn dissect(bytes: &[u8]) -> Result<Dissected, Reason> {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => inet(bytes),
        Some(6) => inet6(bytes),
        _ => Err(Reason::Short),
    }
}

#[inline(always)]
fn inet(bytes: &[u8]) -> Result<Dissected, Reason> {
    let header = bytes.first_chunk::<20>().ok_or(Reason::Short)?;
    let (upper, total) = (usize::from(header[0] & 15) * 4, usize::from(half(header, 2)));
    if upper < 20 || total < upper || total > bytes.len() {
        return Err(Reason::Short);
    }
    let fragment = half(header, 6);
    let mut seen = Dissected {
        addresses: [word(header, 12).into(), word(header, 16).into()],
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

fn inet6(bytes: &[u8]) -> Result<Dissected, Reason> {
    let header = bytes.first_chunk::<40>().ok_or(Reason::Short)?;
    let total = 40 + usize::from(half(header, 4));
    if total > bytes.len() {
        return Err(Reason::Short);
    }
    let headers = Ip6Headers::read(bytes).map_err(|_| Reason::IpOption)?;
    if headers.routing.is_some_and(|routing| routing.kind == 0) {
        return Err(Reason::IpOption); // RFC 5095
    }
    let fragment = headers.fragment.filter(|fragment| fragment.offset > 0 || fragment.more);
    let mut seen = Dissected {
        addresses: [wide(header, 8), wide(header, 24)],
        family: Family::Inet6,
        protocol: headers.protocol,
        tos: (half(header, 0) >> 4) as u8,
        ttl: header[7],
        upper: headers.offset as u32,
        end: total as u32,
        is_fragment: fragment.is_some(),
        is_later_fragment: headers.is_later_fragment(),
        has_options: headers.hop_by_hop.is_some() || headers.routing.is_some(),
        ..Dissected::EMPTY
    };
    upper_layer(&mut seen, bytes.get(headers.offset..total).ok_or(Reason::Short)?)?;
    let is_listener = matches!(seen.icmp.0, 130..=132 | 143) && seen.protocol == IpProtocol::ICMPV6;
    seen.has_options &= !(is_listener && seen.ttl == 1);
    Ok(seen)
}

#[inline(always)]
fn upper_layer(seen: &mut Dissected, bytes: &[u8]) -> Result<(), Reason> {
    // A first fragment may be too short for its header: that shows once the packet is whole.
    if seen.is_fragment {
        return Ok(());
    }
    match seen.protocol {
        IpProtocol::TCP => tcp(seen, bytes),
        IpProtocol::UDP => udp(seen, bytes),
        IpProtocol::SCTP => {
            let header = bytes.first_chunk::<12>().ok_or(Reason::Short)?;
            seen.ports = [half(header, 0), half(header, 2)];
            Ok(())
        }
        IpProtocol::ICMP if seen.family == Family::Inet => icmp(seen, bytes),
        IpProtocol::ICMPV6 if seen.family == Family::Inet6 => icmp(seen, bytes),
        _ => Ok(()),
    }
}

#[inline(always)]
fn tcp(seen: &mut Dissected, bytes: &[u8]) -> Result<(), Reason> {
    let header = bytes.first_chunk::<20>().ok_or(Reason::Short)?;
    let length = usize::from(header[12] >> 4) * 4;
    if length < 20 {
        return Err(Reason::BadOffset);
    }
    if length > bytes.len() {
        return Err(Reason::Short);
    }
    seen.ports = [half(header, 0), half(header, 2)];
    (seen.seq, seen.ack) = (word(header, 4), word(header, 8));
    (seen.flags, seen.window) = (TcpFlags(header[13]), half(header, 14));
    seen.payload = bytes.len().saturating_sub(length) as u32;
    Ok(())
}

#[inline(always)]
fn udp(seen: &mut Dissected, bytes: &[u8]) -> Result<(), Reason> {
    let header = bytes.first_chunk::<8>().ok_or(Reason::Short)?;
    let length = usize::from(half(header, 4));
    if length < 8 || length > bytes.len() {
        return Err(Reason::Short);
    }
    seen.ports = [half(header, 0), half(header, 2)];
    Ok(())
}

fn icmp(seen: &mut Dissected, bytes: &[u8]) -> Result<(), Reason> {
    let header = bytes.first_chunk::<8>().ok_or(Reason::Short)?;
    seen.icmp = (header[0], header[1]);
    seen.ports = match query(seen.protocol, header[0]) {
        Some((kind, false)) => [half(header, 4), kind],
        Some((kind, true)) => [kind, half(header, 4)],
        None => [0, header[0].into()],
    };
    Ok(())
}

/// What a message of ICMP asks, and whether it is the reply.
fn query(protocol: IpProtocol, icmp_type: u8) -> Option<(u16, bool)> {
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
    query(protocol, icmp_type).is_some_and(|(_, is_reply)| is_reply)
}

/// Whether a message of ICMP carries an identifier.
pub(crate) fn has_identifier(protocol: IpProtocol, icmp_type: u8) -> bool {
    query(protocol, icmp_type).is_some()
}

/// The packet that an error of ICMP quotes, as far as it does; `bytes` begin with its header of IP.
pub fn dissect_quoted(bytes: &[u8]) -> Result<Dissected, Reason> {
    let (family, least) = match bytes.first().map(|first| first >> 4) {
        Some(4) => (Family::Inet, 20),
        Some(6) => (Family::Inet6, 40),
        _ => return Err(Reason::Short),
    };
    if bytes.len() < least {
        return Err(Reason::Short);
    }
    let mut seen = Dissected { family, end: bytes.len() as u32, ..Dissected::EMPTY };
    match family {
        Family::Inet => {
            seen.addresses = [word(bytes, 12).into(), word(bytes, 16).into()];
            seen.protocol = IpProtocol(bytes[9]);
            seen.upper = u32::from(bytes[0] & 15) * 4;
            seen.is_later_fragment = half(bytes, 6) & 0x1fff != 0;
        }
        Family::Inet6 => {
            let headers = Ip6Headers::read(bytes).map_err(|_| Reason::Short)?;
            seen.addresses = [wide(bytes, 8), wide(bytes, 24)];
            (seen.protocol, seen.upper) = (headers.protocol, headers.offset as u32);
            seen.is_later_fragment = headers.is_later_fragment();
        }
    }
    quoted_upper_layer(&mut seen, bytes)?;
    Ok(seen)
}

/// Eight bytes of it are all that is sure to be quoted (RFC 792).
fn quoted_upper_layer(seen: &mut Dissected, bytes: &[u8]) -> Result<(), Reason> {
    let is_foreign = seen.is_later_fragment || seen.upper < 20;
    let header = bytes.get(seen.upper as usize..).and_then(|rest| rest.first_chunk::<8>());
    match (header, seen.protocol) {
        (Some(_), _) if is_foreign => Err(Reason::Fragment),
        (Some(header), IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP) => {
            seen.ports = [half(header, 0), half(header, 2)];
            seen.seq = word(header, 4);
            Ok(())
        }
        (Some(header), IpProtocol::ICMP | IpProtocol::ICMPV6) => icmp(seen, header),
        (_, protocol) if protocol.has_ports() => Err(Reason::Short),
        (None, IpProtocol::ICMP | IpProtocol::ICMPV6) => Err(Reason::Short),
        _ => Ok(()),
    }
}

#[inline(always)]
pub(crate) fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline(always)]
fn wide(bytes: &[u8], at: usize) -> u128 {
    (0..4).fold(0, |wide, n| wide << 32 | u128::from(word(bytes, at + 4 * n)))
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
            assert!(dissect(&packet).is_ok());
            for len in 0..packet.len() {
                assert!(dissect(&packet[..len]).is_err(), "{len}");
            }
        }
    }

    #[test]
    fn odd_headers_have_their_reasons() {
        let mut packet = ip4().tcp(1, 2).bytes();
        packet[32] = 0x40;
        assert_eq!(dissect(&packet), Err(Reason::BadOffset));
        packet[32] = 0x60;
        assert_eq!(dissect(&packet), Err(Reason::Short));
        let mut packet = ip4().udp(1, 2).bytes();
        packet[25] = 7;
        assert_eq!(dissect(&packet), Err(Reason::Short));
        let routed = ip6().extension(43, [0; 6]).udp(1, 2).bytes();
        assert_eq!(dissect(&routed), Err(Reason::IpOption));
    }

    #[test]
    fn both_directions_of_a_ping_have_one_key() {
        let ask = dissect(&ip4().src("1.1.1.1").dst("2.2.2.2").icmp_echo(77, 1).bytes()).unwrap();
        let reply = dissect(&ip4().src("2.2.2.2").dst("1.1.1.1").icmp_echo_reply(77, 1).bytes()).unwrap();
        assert_eq!(ask.key(Direction::In), reply.key(Direction::Out));
        assert_eq!(ask.facts(&At::new(Interface(0), Direction::In)).source_port, 77);
        assert_eq!(reply.facts(&At::new(Interface(0), Direction::In)).source_port, 77);
    }

    #[test]
    fn options_are_seen_and_those_of_memberships_are_not() {
        assert!(dissect(&ip4().options([7, 4, 4, 0]).udp(1, 2).bytes()).unwrap().has_options);
        assert!(!dissect(&ip4().options([148, 4, 0, 0]).ttl(1).raw(2, [0; 8]).bytes()).unwrap().has_options);
        assert!(dissect(&ip6().extension(0, [5, 2, 0, 0, 1, 0]).udp(1, 2).bytes()).unwrap().has_options);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..120), six: bool) {
            if let Some(first) = bytes.first_mut() {
                *first = if six { 0x60 } else { 0x40 | *first & 15 };
            }
            let _ = dissect_quoted(&bytes);
            if let Ok(seen) = dissect(&bytes) {
                prop_assert!(seen.upper <= seen.end && seen.end as usize <= bytes.len());
            }
        }
    }
}
