//! What hosts and routers say of groups: IGMP (RFC 1112, RFC 2236, RFC 3376) and MLD (RFC 2710, RFC 3810), as
//! a switch between them hears it (RFC 4541).
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::build::{ip4, ip6};
use crate::{EtherType, Icmp6, Icmp6Type, Ip6Headers, IpProtocol, Ipv4, Ipv6, checksum};

/// The types of IGMP.
const QUERY: u8 = 0x11;
const REPORT_V1: u8 = 0x12;
const REPORT_V2: u8 = 0x16;
const LEAVE: u8 = 0x17;
const REPORT_V3: u8 = 0x22;
/// Multicast router advertisement (RFC 4286 section 3), by IGMP and by ICMPv6.
const ROUTER_ADVERTISEMENT: u8 = 0x30;
const ROUTER_ADVERTISEMENT_V6: Icmp6Type = Icmp6Type(151);
/// All PIM routers (RFC 7761 section 4.3.1), which send Hello messages to each other.
const PIM_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 13);
const PIM_ROUTERS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xd);
const PIM_HELLO: u8 = 0x20;
/// Bytes in front of the records of a report of IGMPv3 (RFC 3376 section 4.2) or MLDv2
/// (RFC 3810 section 5.2).
const REPORT_HEADER: usize = 8;
/// Bytes of a record in front of the group's address.
const RECORD_HEADER: usize = 4;

/// A message about groups.
#[derive(Clone, Debug)]
pub enum Membership<'a> {
    /// A router queries hosts for members of groups.
    Query {
        /// Address of the querier, or unspecified.
        source: IpAddr,
        /// The group that is meant; all if none is.
        group: Option<IpAddr>,
    },
    /// A host reports groups that it is in, or has left.
    Report(Reports<'a>),
    /// A router is here, by its address: one that says hello to others, or advertises itself.
    Router(IpAddr),
}

/// Why a message about groups says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMembership;

impl<'a> Membership<'a> {
    /// What a packet says of groups; none if it is about something else. Of one that is about groups
    /// and is cut short, has a wrong checksum, or is of IPv6 and comes from further away than this
    /// link, nothing is believed.
    pub fn parse_packet(
        ether_type: EtherType,
        packet: &'a [u8],
    ) -> Result<Option<Membership<'a>>, BadMembership> {
        match ether_type {
            EtherType::IPV4 => of_ipv4(packet),
            EtherType::IPV6 => of_ipv6(packet),
            _ => Ok(None),
        }
    }
}

fn of_ipv4(packet: &[u8]) -> Result<Option<Membership<'_>>, BadMembership> {
    let Ok(header) = Ipv4::new(packet) else { return Ok(None) };
    let from = header.header_len();
    match header.protocol() {
        IpProtocol::IGMP => {
            let message = packet.get(from..usize::from(header.total_length())).ok_or(BadMembership)?;
            let is_whole = !header.is_fragment() && checksum::is_valid(checksum::sum(message));
            if is_whole { parse_igmp(header.src(), message) } else { Err(BadMembership) }
        }
        IpProtocol::PIM if header.dst() == PIM_ROUTERS => {
            Ok(parse_hello(header.src().into(), packet.get(from..)))
        }
        _ => Ok(None),
    }
}

/// A hello between routers, if it is one.
fn parse_hello<'a>(source: IpAddr, message: Option<&[u8]>) -> Option<Membership<'a>> {
    message.is_some_and(|message| message.first() == Some(&PIM_HELLO)).then_some(Membership::Router(source))
}

fn parse_igmp(source: Ipv4Addr, message: &[u8]) -> Result<Option<Membership<'_>>, BadMembership> {
    let kind = *message.first().ok_or(BadMembership)?;
    if kind == ROUTER_ADVERTISEMENT {
        return Ok(Some(Membership::Router(source.into())));
    }
    let group = message.get(4..8).ok_or(BadMembership)?;
    let group = parse_address(group);
    Ok(Some(match kind {
        QUERY => Membership::Query { source: source.into(), group: group.filter(IpAddr::is_multicast) },
        REPORT_V1 | REPORT_V2 => Membership::Report(Reports::One(group.map(|group| (group, true)))),
        LEAVE => Membership::Report(Reports::One(group.map(|group| (group, false)))),
        REPORT_V3 => Membership::Report(Reports::of_records(message, 4)?),
        _ => return Ok(None),
    }))
}

fn of_ipv6(packet: &[u8]) -> Result<Option<Membership<'_>>, BadMembership> {
    let (Ok(header), Ok(headers)) = (Ipv6::new(packet), Ip6Headers::parse_packet(packet)) else {
        return Ok(None);
    };
    let end = (Ipv6::<&[u8]>::LEN + usize::from(header.payload_length())).min(packet.len());
    let payload = packet.get(headers.offset..end).unwrap_or_default();
    match headers.protocol {
        IpProtocol::ICMPV6 if headers.fragment.is_none() => parse_mld(&header, payload),
        IpProtocol::PIM if header.dst() == PIM_ROUTERS_V6 => {
            Ok(parse_hello(header.src().into(), Some(payload)))
        }
        _ => Ok(None),
    }
}

fn parse_mld<'a>(header: &Ipv6<&[u8]>, message: &'a [u8]) -> Result<Option<Membership<'a>>, BadMembership> {
    let Some(kind) = message.first().map(|kind| Icmp6Type(*kind)) else { return Ok(None) };
    let (is_report, is_other) = match kind {
        Icmp6Type::LISTENER_QUERY | ROUTER_ADVERTISEMENT_V6 => (false, false),
        Icmp6Type::LISTENER_REPORT | Icmp6Type::LISTENER_DONE | Icmp6Type::LISTENER_REPORT_V2 => {
            (true, false)
        }
        _ => (false, true),
    };
    if is_other {
        return Ok(None);
    }
    // A host that has no address yet may report (RFC 3810 section 5.2.13), but not ask.
    let source = header.src();
    let is_near = source.is_unicast_link_local() || is_report && source.is_unspecified();
    let is_right = Icmp6::new(message).is_ok_and(|message| message.checksum_is_valid(source, header.dst()));
    if header.hop_limit() != 1 || !is_near || !is_right {
        return Err(BadMembership);
    }
    let group = || message.get(8..24).map(parse_address).ok_or(BadMembership);
    Ok(Some(match kind {
        Icmp6Type::LISTENER_QUERY => {
            Membership::Query { source: source.into(), group: group()?.filter(IpAddr::is_multicast) }
        }
        Icmp6Type::LISTENER_REPORT => Membership::Report(Reports::One(group()?.map(|group| (group, true)))),
        Icmp6Type::LISTENER_DONE => Membership::Report(Reports::One(group()?.map(|group| (group, false)))),
        Icmp6Type::LISTENER_REPORT_V2 => Membership::Report(Reports::of_records(message, 16)?),
        _ => Membership::Router(source.into()),
    }))
}

/// The address in 4 or 16 bytes.
fn parse_address(bytes: &[u8]) -> Option<IpAddr> {
    let of_ipv4 = || bytes.try_into().ok().map(|bytes: [u8; 4]| IpAddr::from(bytes));
    bytes.try_into().ok().map(|bytes: [u8; 16]| IpAddr::from(bytes)).or_else(of_ipv4)
}

/// A group, and whether the host is in it.
type MembershipRecord = (IpAddr, bool);

/// What a report says: groups, each with whether the host is in it.
#[derive(Clone, Debug)]
pub enum Reports<'a> {
    /// One group, or none that counts any more.
    One(Option<MembershipRecord>),
    /// As many records as there are bytes.
    Records {
        /// The rest of them.
        records: &'a [u8],
        /// Bytes of an address.
        width: usize,
    },
}

impl<'a> Reports<'a> {
    /// The records of a report, all of which must be whole.
    fn of_records(message: &'a [u8], width: usize) -> Result<Reports<'a>, BadMembership> {
        let (header, records) = message.split_at_checked(REPORT_HEADER).ok_or(BadMembership)?;
        let mut rest = records;
        for _ in 0..u16::from_be_bytes([header[6], header[7]]) {
            rest = parse_record(rest, width).ok_or(BadMembership)?.1;
        }
        Ok(Reports::Records { records: &records[..records.len() - rest.len()], width })
    }
}

/// The first record: its group and what it says of it, if it says something, and the bytes after it.
fn parse_record(bytes: &[u8], width: usize) -> Option<(Option<MembershipRecord>, &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<RECORD_HEADER>()?;
    let [kind, words, a, b] = *header;
    let sources = usize::from(u16::from_be_bytes([a, b]));
    let (group, rest) = rest.split_at_checked(width)?;
    let rest = rest.get(sources * width + 4 * usize::from(words)..)?;
    let group = parse_address(group).filter(IpAddr::is_multicast);
    Some((group.zip(record_membership(kind, sources)), rest))
}

/// Whether a record says that the host is in its group (from some source at least), or not any more; none if
/// it says neither (RFC 3376 section 4.2.12).
fn record_membership(kind: u8, sources: usize) -> Option<bool> {
    match (kind, sources) {
        (2 | 4, _) => Some(true),
        (1 | 3 | 5, 1..) => Some(true),
        (3, 0) => Some(false),
        _ => None,
    }
}

impl Iterator for Reports<'_> {
    type Item = MembershipRecord;

    fn next(&mut self) -> Option<(IpAddr, bool)> {
        match self {
            Reports::One(said) => said.take().filter(|(group, _)| group.is_multicast()),
            Reports::Records { records, width } => loop {
                let (said, rest) = parse_record(records, *width)?;
                *records = rest;
                if said.is_some() {
                    return said;
                }
            },
        }
    }
}

/// Destination of a general query: all hosts.
const HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const HOSTS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The options by which routers look into a packet (RFC 2113, RFC 2711).
const ROUTER_ALERT: [u8; 4] = [0x94, 4, 0, 0];
const ROUTER_ALERT_V6: [u8; 6] = [5, 2, 0, 0, 1, 0];
/// Maximum response time, in tenths of a second, of a general and of a group query (RFC
/// 3376 sections 8.3, 8.8).
const ANSWER_ALL: u8 = 100;
const ANSWER_ONE: u8 = 10;
/// The querier's robustness variable and query interval in seconds, as a query carries them.
const ROBUSTNESS: u8 = 2;
const INTERVAL: u8 = 125;

/// A query of IGMPv3 (RFC 3376 section 4.1) for the members of a group, or of all: the packet,
/// and where it goes.
pub fn igmp_query(source: Ipv4Addr, group: Option<Ipv4Addr>) -> (Vec<u8>, Ipv4Addr) {
    let answer = if group.is_some() { ANSWER_ONE } else { ANSWER_ALL };
    let [a, b, c, d] = group.unwrap_or(Ipv4Addr::UNSPECIFIED).octets();
    let mut message = [QUERY, answer, 0, 0, a, b, c, d, ROBUSTNESS, INTERVAL, 0, 0];
    let sum = checksum::checksum(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    let destination = group.unwrap_or(HOSTS);
    let packet = ip4().src(source).dst(destination).ttl(1).tos(0xc0).options(ROUTER_ALERT);
    (packet.raw(IpProtocol::IGMP.0, message).bytes(), destination)
}

/// A query of MLDv2 (RFC 3810 section 5.1), likewise.
pub fn mld_query(source: Ipv6Addr, group: Option<Ipv6Addr>) -> (Vec<u8>, Ipv6Addr) {
    let tenths = if group.is_some() { ANSWER_ONE } else { ANSWER_ALL };
    let [a, b] = (u16::from(tenths) * 100).to_be_bytes();
    let group_field = group.unwrap_or(Ipv6Addr::UNSPECIFIED).octets();
    let rest = [&group_field[..], &[ROBUSTNESS, INTERVAL, 0, 0]].concat();
    let destination = group.unwrap_or(HOSTS_V6);
    let packet = ip6().src(source).dst(destination).hop_limit(1);
    let packet = packet.extension(IpProtocol::HOP_BY_HOP.0, ROUTER_ALERT_V6);
    (packet.icmp(Icmp6Type::LISTENER_QUERY, 0, [a, b, 0, 0]).payload(rest).bytes(), destination)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const NEAR: &str = "fe80::1";

    fn igmp_packet(mut message: Vec<u8>) -> Vec<u8> {
        let sum = checksum::checksum(&message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
        ip4().src(ROUTER).dst("224.0.0.22").ttl(1).options(ROUTER_ALERT).raw(2, message).bytes()
    }

    fn mld_packet(source: &str, kind: Icmp6Type, rest: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let packet = ip6().src(source).dst("ff02::16").hop_limit(1).extension(0, ROUTER_ALERT_V6);
        packet.icmp(kind, 0, rest).payload(payload).bytes()
    }

    /// What a packet says, in words.
    fn said(ether_type: EtherType, packet: &[u8]) -> String {
        match Membership::parse_packet(ether_type, packet) {
            Err(BadMembership) => "bad".into(),
            Ok(None) => "nothing".into(),
            Ok(Some(Membership::Router(_))) => "router".into(),
            Ok(Some(Membership::Query { source, group })) => format!("{source} asks {group:?}"),
            Ok(Some(Membership::Report(reports))) => {
                let words = reports.map(|(group, is_in)| format!("{}{group}", if is_in { "+" } else { "-" }));
                words.collect::<Vec<_>>().join(" ")
            }
        }
    }

    fn said4(message: &[u8]) -> String {
        said(EtherType::IPV4, &igmp_packet(message.to_vec()))
    }

    #[test]
    fn hosts_tell_of_groups_by_igmp_of_all_versions() {
        assert_eq!(said4(&[0x12, 0, 0, 0, 239, 1, 1, 1]), "+239.1.1.1");
        assert_eq!(said4(&[0x16, 0, 0, 0, 239, 1, 1, 1]), "+239.1.1.1");
        assert_eq!(said4(&[0x17, 0, 0, 0, 239, 1, 1, 1]), "-239.1.1.1");
        assert_eq!(said4(&[0x16, 0, 0, 0, 10, 1, 1, 1]), "", "no group");
        assert_eq!(said4(&[0x13, 0, 0, 0, 239, 1, 1, 1]), "nothing");
        let record = |kind: u8, last: u8, sources: u8| {
            [vec![kind, 1, 0, sources, 239, 0, 0, last], vec![10; 4 * usize::from(sources)], vec![0; 4]]
                .concat()
        };
        let records = [(1, 0), (1, 2), (2, 0), (3, 0), (3, 1), (4, 0), (5, 1), (6, 1), (9, 0)];
        let records = (1..).zip(records).flat_map(|(last, (kind, sources))| record(kind, last, sources));
        let message = [0x22, 0, 0, 0, 0, 0, 0, 9].into_iter().chain(records).collect::<Vec<u8>>();
        assert_eq!(said4(&message), "+239.0.0.2 +239.0.0.3 -239.0.0.4 +239.0.0.5 +239.0.0.6 +239.0.0.7");
    }

    #[test]
    fn hosts_tell_of_groups_by_mld_of_both_versions() {
        let group = "ff05::7".parse::<Ipv6Addr>().unwrap().octets();
        let old = |kind| said(EtherType::IPV6, &mld_packet(NEAR, kind, [0; 4], &group));
        assert_eq!(old(Icmp6Type::LISTENER_REPORT), "+ff05::7");
        assert_eq!(old(Icmp6Type::LISTENER_DONE), "-ff05::7");
        let record = [&[4, 0, 0, 0][..], &group, &[3, 0, 0, 0], &group].concat();
        let new = |source| mld_packet(source, Icmp6Type::LISTENER_REPORT_V2, [0, 0, 0, 2], &record);
        assert_eq!(said(EtherType::IPV6, &new(NEAR)), "+ff05::7 -ff05::7");
        assert_eq!(said(EtherType::IPV6, &new("::")), "+ff05::7 -ff05::7", "before it has an address");
        assert_eq!(said(EtherType::IPV6, &new("2001:db8::1")), "bad", "from elsewhere");
        let mut far = new(NEAR);
        far[7] = 64;
        assert_eq!(said(EtherType::IPV6, &far), "bad", "from elsewhere");
        assert_eq!(said(EtherType::IPV6, &ip6().icmp_echo(1, 1).bytes()), "nothing");
    }

    #[test]
    fn queries_are_read_as_they_are_written() {
        let (packet, to) = igmp_query(ROUTER, None);
        assert_eq!((said(EtherType::IPV4, &packet), to), ("10.0.0.1 asks None".into(), HOSTS));
        let group = Ipv4Addr::new(239, 9, 9, 9);
        let (packet, to) = igmp_query(ROUTER, Some(group));
        assert_eq!((said(EtherType::IPV4, &packet), to), ("10.0.0.1 asks Some(239.9.9.9)".into(), group));
        let (packet, to) = mld_query(NEAR.parse().unwrap(), None);
        assert_eq!((said(EtherType::IPV6, &packet), to), ("fe80::1 asks None".into(), HOSTS_V6));
        let group: Ipv6Addr = "ff05::9".parse().unwrap();
        let (packet, to) = mld_query(NEAR.parse().unwrap(), Some(group));
        assert_eq!((said(EtherType::IPV6, &packet), to), ("fe80::1 asks Some(ff05::9)".into(), group));
    }

    #[test]
    fn routers_are_heard_that_say_hello_or_advertise_themselves() {
        let hello = ip4().dst(PIM_ROUTERS).raw(103, [0x20, 0, 0, 0]).bytes();
        assert_eq!(said(EtherType::IPV4, &hello), "router");
        let join = ip4().dst(PIM_ROUTERS).raw(103, [0x23, 0, 0, 0]).bytes();
        assert_eq!(said(EtherType::IPV4, &join), "nothing");
        assert_eq!(said(EtherType::IPV6, &ip6().dst(PIM_ROUTERS_V6).raw(103, [0x20]).bytes()), "router");
        assert_eq!(said4(&[0x30, 20, 0, 0, 0, 125, 0, 2]), "router");
        assert_eq!(said(EtherType::IPV6, &mld_packet(NEAR, Icmp6Type(151), [0; 4], &[])), "router");
    }

    #[test]
    fn what_is_cut_short_or_changed_says_nothing() {
        let group = "ff05::7".parse::<Ipv6Addr>().unwrap().octets();
        let record = [&[4, 0, 0, 0][..], &group].concat();
        let whole = [
            (EtherType::IPV4, igmp_packet(vec![0x22, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 239, 1, 1, 1])),
            (EtherType::IPV4, igmp_query(ROUTER, None).0),
            (EtherType::IPV6, mld_packet(NEAR, Icmp6Type::LISTENER_REPORT_V2, [0, 0, 0, 1], &record)),
            (EtherType::IPV6, mld_packet(NEAR, Icmp6Type::LISTENER_REPORT, [0; 4], &group)),
        ];
        for (ether_type, packet) in whole {
            assert!(said(ether_type, &packet).contains(['+', 'a']), "{packet:?}");
            for len in 0..packet.len() {
                assert!(["bad", "nothing"].contains(&&*said(ether_type, &packet[..len])), "{len}");
            }
            let mut changed = packet.clone();
            *changed.last_mut().unwrap() ^= 1;
            assert_eq!(said(ether_type, &changed), "bad");
        }
        // A number of records that there are not.
        assert_eq!(said4(&[0x22, 0, 0, 0, 0, 0, 0, 2, 4, 0, 0, 0, 239, 1, 1, 1]), "bad");
        assert_eq!(said4(&[0x22, 0, 0, 0, 0, 0, 0, 1, 4, 255, 255, 255, 239, 1, 1, 1]), "bad");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), is_ipv4: bool) {
            let _ = said(if is_ipv4 { EtherType::IPV4 } else { EtherType::IPV6 }, &bytes);
        }

        #[test]
        fn no_report_makes_it_panic(
            message in prop::collection::vec(any::<u8>(), 4..80),
            kind in 0..4_usize,
        ) {
            let mut message = message;
            message[0] = [0x11, 0x16, 0x17, 0x22][kind];
            let _ = said4(&message);
            let rest = message[..4].try_into().unwrap();
            let kind = [Icmp6Type::LISTENER_QUERY, Icmp6Type::LISTENER_REPORT_V2][kind / 2];
            let _ = said(EtherType::IPV6, &mld_packet(NEAR, kind, rest, &message[4..]));
        }
    }
}
