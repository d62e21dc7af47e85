//! Messages of ctnetlink: what an entry of connection tracking is, and changes of one.
use super::keeper::ConnectionKeeper;
use crate::fast::{FlowKey, Translation};
use crate::kernel::Family;
use artery_netlink::build::{self, attribute};
use artery_netlink::request::{self as netlink, Attributes};
use artery_netlink::{NLM_F_DUMP, NLM_F_REQUEST};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The subsystem in the types of nfnetlink's messages, and its messages
/// (linux/netfilter/nfnetlink_conntrack.h).
const CTNETLINK: u16 = 1 << 8;
const NEW: u16 = CTNETLINK;
const GET: u16 = CTNETLINK | 1;
const DELETE: u16 = CTNETLINK | 2;
/// `struct nfgenmsg`.
const FIXED: usize = 4;
/// `NLM_F_ECHO`: the event of a change comes to who asked for it.
const ECHO: u16 = 8;

const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const STATUS: u16 = 3;
const PROTOCOL_STATE: u16 = 4;
const HELPER: u16 = 5;
const TIMEOUT: u16 = 7;
const ID: u16 = 12;
const SEQUENCE: [u16; 2] = [15, 16];
const ZONE: u16 = 18;
const SYN_PROXY: u16 = 24;

const TUPLE_ADDRESSES: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
const TUPLE_ZONE: u16 = 3;
const OF_TCP: u16 = 1;
const TCP_STATE: u16 = 1;
const TCP_FLAGS: [u16; 2] = [4, 5];
/// `TCP_CONNTRACK_ESTABLISHED`.
const TCP_ESTABLISHED: u8 = 3;
/// `IP_CT_TCP_FLAG_BE_LIBERAL`: segments out of window are let through.
const LIBERAL: u8 = 0x08;
/// `IP_CT_TCP_FLAG_DATA_UNACKNOWLEDGED`: a short timeout, until the kernel sees the acknowledgment.
const UNACKNOWLEDGED: u8 = 0x10;

/// Bits of the status (`IPS_*`).
const SEEN_REPLY: u32 = 1 << 1;
const ASSURED: u32 = 1 << 2;
const CONFIRMED: u32 = 1 << 3;
const DYING: u32 = 1 << 9;
/// A flow table has it.
const OFFLOADED: u32 = 1 << 14;
/// Sequence numbers are changed, dying, a fixed timeout, a template, untracked or clashing, a helper,
/// offloaded to a card.
const UNUSUAL: u32 = 1 << 6 | DYING | 1 << 10 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 15;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// An event or a part of a dump.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// There is such an entry, or it has changed.
    There(Box<Entry>),
    /// The entry of this number is gone.
    Gone(u32),
    /// It is of no connection that could be forwarded.
    Other,
}

/// An entry of connection tracking, as far as a message tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: u32,
    pub(super) family: Family,
    /// What packets of the original direction, and of the reply's, arrive with.
    pub(super) original: FlowKey,
    pub(super) reply: FlowKey,
    status: u32,
    /// Events that are about something else have none.
    tcp: Option<TcpState>,
    /// A helper, adjusted sequence numbers, a SYN proxy, or a zone.
    is_unusual: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TcpState {
    is_established: bool,
    /// It is in a state that comes behind that.
    is_closing: bool,
    is_liberal: bool,
}

impl Entry {
    /// Keeps what a later message did not tell.
    pub(super) fn follow(&mut self, later: Entry) {
        let tcp = later.tcp.or(self.tcp);
        let is_unusual = later.is_unusual || self.is_unusual;
        // That a flow table had it counts until rules change.
        let status = later.status | self.status & OFFLOADED;
        *self = Entry { tcp, is_unusual, status, ..later };
    }

    pub(super) fn protocol(&self) -> u8 {
        self.original.protocol
    }

    /// Whether the kernel lets its packets through as those of an established connection, and does nothing
    /// else with them than to translate addresses and ports.
    pub(super) fn is_established(&self) -> bool {
        self.keeper().is_none()
    }

    /// What about it keeps its packets in the kernel.
    pub(super) fn keeper(&self) -> Option<ConnectionKeeper> {
        let is_confirmed = self.status & (CONFIRMED | SEEN_REPLY) == CONFIRMED | SEEN_REPLY;
        let is_plain = self.status & UNUSUAL == 0 && !self.is_unusual;
        let is_far = self.protocol() != TCP || self.tcp.is_some_and(|tcp| tcp.is_established);
        let is_closing = self.protocol() == TCP && self.tcp.is_some_and(|tcp| tcp.is_closing);
        match (is_plain, is_confirmed && is_far) {
            (false, _) => Some(ConnectionKeeper::Unusual),
            (true, false) if is_closing => Some(ConnectionKeeper::Closing),
            (true, false) => Some(ConnectionKeeper::Opening),
            (true, true) => None,
        }
    }

    /// Whether the kernel lets segments through that are out of the window that it knows.
    pub(super) fn is_liberal(&self) -> bool {
        self.protocol() != TCP || self.tcp.is_some_and(|tcp| tcp.is_liberal)
    }

    /// Whether it is being removed: its last event has been sent.
    pub(super) fn is_dying(&self) -> bool {
        self.status & DYING != 0
    }

    /// Bits of `IPS_*`.
    pub(super) fn status(&self) -> u32 {
        self.status
    }

    /// Whether a flow table of the kernel's had it when the kernel was asked. Neither its beginning nor its
    /// end there has an event.
    pub(super) fn is_offloaded(&self) -> bool {
        self.status & OFFLOADED != 0
    }

    /// Takes it for one that no flow table has, until the kernel was asked again.
    pub(super) fn forget_offload(&mut self) {
        self.status &= !OFFLOADED;
    }

    /// Whether there was traffic for a while (UDP).
    pub(super) fn is_assured(&self) -> bool {
        self.status & ASSURED != 0
    }

    /// Both directions: what packets arrive with, what they leave with, and the destination that routes are
    /// looked up by between.
    pub(super) fn directions(&self) -> [Direction; 2] {
        let direction = |arrives: &FlowKey, opposite: &FlowKey| Direction {
            arrives: *arrives,
            destination: opposite.source,
            translation: translation(arrives, opposite),
        };
        [direction(&self.original, &self.reply), direction(&self.reply, &self.original)]
    }

    pub(super) fn is_translated(&self) -> bool {
        self.directions().iter().any(|direction| direction.translation.is_some())
    }

    /// A request that has the kernel let through segments out of window, both ways. The answer is the entry.
    pub(super) fn to_liberal_request(&self) -> Vec<u8> {
        let flags = TCP_FLAGS.map(|kind| attribute(kind, &[LIBERAL, LIBERAL | UNACKNOWLEDGED]));
        let change = nested(PROTOCOL_STATE, &nested(OF_TCP, &flags.concat()));
        encode_change(&self.original, ECHO, &change)
    }

    /// A request that has the entry live for so many seconds from now on.
    pub(super) fn to_timeout_request(&self, seconds: u32) -> Vec<u8> {
        encode_change(&self.original, 0, &attribute(TIMEOUT, &seconds.to_be_bytes()))
    }
}

/// A request for the entry that packets with these addresses and ports are of.
///
/// It is a change of nothing, whose event the kernel sends to the requester (`NLM_F_ECHO`). For an entry
/// without events, whose end would not be heard of either, nothing comes.
pub(super) fn encode_question(key: &FlowKey) -> Vec<u8> {
    encode_change(key, ECHO, &[])
}

/// A request for all entries, of both families.
pub(super) fn encode_dump_request() -> Vec<u8> {
    build::message(GET, NLM_F_REQUEST | NLM_F_DUMP, &[0; FIXED], &[])
}

fn encode_change(key: &FlowKey, flags: u16, change: &[u8]) -> Vec<u8> {
    let family = if key.source.is_ipv4() { 2 } else { 10 };
    let body = [&[family, 0, 0, 0], &nested(ORIGINAL, &encode_tuple(key))[..], change].concat();
    build::message(NEW, NLM_F_REQUEST | flags, &body, &[])
}

fn encode_tuple(key: &FlowKey) -> Vec<u8> {
    let address = |v4: u16, address: IpAddr| match address {
        IpAddr::V4(address) => attribute(v4, &address.octets()),
        IpAddr::V6(address) => attribute(v4 + 2, &address.octets()),
    };
    let addresses = [address(1, key.source), address(2, key.destination)].concat();
    let [a, b, c, d] = key.ports;
    let echo =
        |first: u16| [attribute(first, &[a, b]), attribute(first + 1, &[c]), attribute(first + 2, &[d])];
    let ports = match key.protocol {
        ICMP => echo(4).concat(),
        ICMPV6 => echo(7).concat(),
        _ => [attribute(2, &[a, b]), attribute(3, &[c, d])].concat(),
    };
    let protocol = [attribute(1, &[key.protocol]), ports].concat();
    [nested(TUPLE_ADDRESSES, &addresses), nested(TUPLE_PROTOCOL, &protocol)].concat()
}

/// A direction of a connection.
pub(super) struct Direction {
    pub(super) arrives: FlowKey,
    /// Between prerouting and postrouting.
    pub(super) destination: IpAddr,
    /// What packets leave with, if it differs.
    pub(super) translation: Option<Translation>,
}

impl Direction {
    /// What packets leave with.
    pub(super) fn leaves(&self) -> FlowKey {
        self.translation.map_or(self.arrives, |Translation { source, destination, ports }| FlowKey {
            source,
            destination,
            ports,
            ..self.arrives
        })
    }
}

/// Packets leave as those of the opposite direction arrive, the other way round.
fn translation(arrives: &FlowKey, opposite: &FlowKey) -> Option<Translation> {
    let [a, b, c, d] = opposite.ports;
    let ports = match arrives.protocol {
        TCP | UDP => [c, d, a, b],
        // The type of an echo stays.
        _ => [a, b, arrives.ports[2], arrives.ports[3]],
    };
    let new = Translation { source: opposite.destination, destination: opposite.source, ports };
    let is_same =
        (new.source, new.destination, new.ports) == (arrives.source, arrives.destination, arrives.ports);
    (!is_same).then_some(new)
}

/// Reads the messages of a datagram.
pub(super) fn read(bytes: &[u8]) -> io::Result<Vec<Event>> {
    let messages = netlink::read(bytes)?.into_messages();
    messages.iter().map(|message| read_event(message.kind, &message.body)).collect()
}

/// A datagram of a dump.
pub(super) struct DumpPart {
    pub(super) events: Vec<Event>,
    pub(super) is_last: bool,
}

/// Reads a datagram of a dump.
pub(super) fn read_dump(bytes: &[u8]) -> io::Result<DumpPart> {
    let datagram = netlink::read(bytes)?;
    let is_last = datagram.is_last();
    let messages = datagram.into_messages();
    let events = messages.iter().map(|message| read_event(message.kind, &message.body));
    Ok(DumpPart { events: events.collect::<io::Result<_>>()?, is_last })
}

/// Reads one message of ctnetlink.
pub(super) fn read_event(kind: u16, body: &[u8]) -> io::Result<Event> {
    if ![NEW, DELETE].contains(&kind) {
        return Ok(Event::Other);
    }
    let attributes = Attributes::after_header(FIXED, body)?;
    let Some(id) = attributes.value(ID).map(|value| netlink::u32_at(value, 0)).transpose()? else {
        return Ok(Event::Other);
    };
    if kind == DELETE {
        return Ok(Event::Gone(id));
    }
    let (Some(tuple), Some(reply)) = (attributes.value(ORIGINAL), attributes.value(REPLY)) else {
        return Err(netlink::nonsense());
    };
    let mut has_zone = attributes.value(ZONE).is_some();
    for tuple in [tuple, reply] {
        has_zone |= Attributes::parse_all(tuple)?.value(TUPLE_ZONE).is_some();
    }
    let (Some(original), Some(reply)) = (read_tuple(tuple)?, read_tuple(reply)?) else {
        return Ok(Event::Other);
    };
    if original.source.is_ipv4() != reply.source.is_ipv4() {
        return Ok(Event::Other);
    }
    let family = if original.source.is_ipv4() { Family::V4 } else { Family::V6 };
    let has = |kind: u16| attributes.value(kind).is_some();
    let is_unusual = has(HELPER) || has(SYN_PROXY) || SEQUENCE.into_iter().any(has) || has_zone;
    let state = attributes.nested(PROTOCOL_STATE)?;
    let tcp = state.map(|state| state.nested(OF_TCP)).transpose()?.flatten();
    Ok(Event::There(Box::new(Entry {
        id,
        family,
        original,
        reply,
        status: attributes.big_endian(STATUS).ok_or_else(netlink::nonsense)?,
        tcp: tcp.map(|tcp| read_tcp(&tcp)),
        is_unusual,
    })))
}

fn read_tcp(tcp: &Attributes<'_>) -> TcpState {
    let first = |kind: u16| tcp.value(kind).and_then(|value| value.first().copied());
    let is_liberal = |kind: &u16| first(*kind).is_some_and(|flags| flags & LIBERAL != 0);
    TcpState {
        is_established: first(TCP_STATE) == Some(TCP_ESTABLISHED),
        is_closing: first(TCP_STATE).is_some_and(|state| state > TCP_ESTABLISHED),
        is_liberal: TCP_FLAGS.iter().all(is_liberal),
    }
}

/// Addresses and ports; none of a protocol that is not forwarded.
fn read_tuple(bytes: &[u8]) -> io::Result<Option<FlowKey>> {
    let tuple = Attributes::parse_all(bytes)?;
    let addresses = tuple.nested(TUPLE_ADDRESSES)?.ok_or_else(netlink::nonsense)?;
    let protocol = tuple.nested(TUPLE_PROTOCOL)?.ok_or_else(netlink::nonsense)?;
    let v4 = |kind| addresses.value(kind).and_then(|value| Some(Ipv4Addr::from(*value.first_chunk::<4>()?)));
    let v6 = |kind| addresses.value(kind).and_then(|value| Some(Ipv6Addr::from(*value.first_chunk::<16>()?)));
    let (source, destination): (IpAddr, IpAddr) = match (v4(1), v4(2), v6(3), v6(4)) {
        (Some(source), Some(destination), ..) => (source.into(), destination.into()),
        (.., Some(source), Some(destination)) => (source.into(), destination.into()),
        _ => return Err(netlink::nonsense()),
    };
    let bytes = |kind, count| protocol.value(kind).and_then(|value| value.get(..count));
    let number = bytes(1, 1).ok_or_else(netlink::nonsense)?[0];
    // Ports, or identifier, type and code of echoes.
    let parts = match number {
        TCP | UDP => [bytes(2, 2), bytes(3, 2), Some(&[])],
        ICMP if source.is_ipv4() => [bytes(4, 2), bytes(5, 1), bytes(6, 1)],
        ICMPV6 if source.is_ipv6() => [bytes(7, 2), bytes(8, 1), bytes(9, 1)],
        _ => return Ok(None),
    };
    let parts = parts.into_iter().collect::<Option<Vec<_>>>().ok_or_else(netlink::nonsense)?.concat();
    let Ok(ports) = <[u8; 4]>::try_from(parts) else { return Err(netlink::nonsense()) };
    let is_echo = match number {
        ICMP => [8, 0].contains(&ports[2]) && ports[3] == 0,
        ICMPV6 => [128, 129].contains(&ports[2]) && ports[3] == 0,
        _ => true,
    };
    Ok(is_echo.then_some(FlowKey { source, destination, ports, protocol: number }))
}

fn nested(kind: u16, value: &[u8]) -> Vec<u8> {
    const NESTED: u16 = 1 << 15;
    attribute(kind | NESTED, value)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use artery_netlink::request::written::survive;

    fn tuple(source: [u8; 4], destination: [u8; 4], ports: [u16; 2], protocol: u8) -> Vec<u8> {
        let addresses = [attribute(1, &source), attribute(2, &destination)].concat();
        let [from, to] = ports.map(|port| port.to_be_bytes());
        let ports = [attribute(1, &[protocol]), attribute(2, &from), attribute(3, &to)].concat();
        [nested(TUPLE_ADDRESSES, &addresses), nested(TUPLE_PROTOCOL, &ports)].concat()
    }

    /// A connection of 10.0.1.2 to 10.0.2.2 behind 10.0.2.1, as the kernel would write it.
    fn masqueraded(status: u32, tcp: Option<(u8, u8)>, more: &[u8]) -> Vec<u8> {
        let original = tuple([10, 0, 1, 2], [10, 0, 2, 2], [1000, 80], TCP);
        let reply = tuple([10, 0, 2, 2], [10, 0, 2, 1], [80, 2000], TCP);
        let state = tcp.map_or(Vec::new(), |(state, flags)| {
            let flags = TCP_FLAGS.map(|kind| attribute(kind, &[flags, 0])).concat();
            nested(PROTOCOL_STATE, &nested(OF_TCP, &[attribute(TCP_STATE, &[state]), flags].concat()))
        });
        let status = attribute(STATUS, &status.to_be_bytes());
        let tuples = [nested(ORIGINAL, &original), nested(REPLY, &reply)].concat();
        [&[2, 0, 0, 0], &tuples[..], &status, &state, &attribute(ID, &7_u32.to_ne_bytes()), more].concat()
    }

    /// An established connection of the number 7.
    pub(in crate::connections) fn established() -> Entry {
        entry(&masqueraded(CONFIRMED | SEEN_REPLY, Some((3, LIBERAL)), &[]))
    }

    /// The same, in a flow table.
    pub(in crate::connections) fn offloaded() -> Entry {
        entry(&masqueraded(CONFIRMED | SEEN_REPLY | OFFLOADED, Some((3, LIBERAL)), &[]))
    }

    fn entry(body: &[u8]) -> Entry {
        let Event::There(entry) = read_event(NEW, body).unwrap() else { panic!("no entry") };
        *entry
    }

    #[test]
    fn a_connection_is_established_when_it_is_confirmed_answered_and_plain() {
        let all = CONFIRMED | SEEN_REPLY;
        let is = |status, tcp, more: &[u8]| entry(&masqueraded(status, tcp, more)).is_established();
        assert!(is(all | ASSURED, Some((3, 0)), &[]));
        assert!(!is(CONFIRMED, Some((3, 0)), &[]) && !is(SEEN_REPLY, Some((3, 0)), &[]));
        assert!(!is(all, Some((2, 0)), &[]) && !is(all, Some((4, 0)), &[]) && !is(all, None, &[]));
        for bit in [6, 9, 10, 11, 12, 13, 15] {
            assert!(!is(all | 1 << bit, Some((3, 0)), &[]), "{bit}");
        }
        assert!(is(all | OFFLOADED, Some((3, 0)), &[]), "what it has in a flow table it forwards, too");
        for kind in [HELPER, ZONE, SYN_PROXY, SEQUENCE[0]] {
            assert!(!is(all, Some((3, 0)), &attribute(kind, &[0, 1])), "{kind}");
        }
        for direction in [ORIGINAL, REPLY] {
            let zone = attribute(TUPLE_ZONE, &[0, 1]);
            let [from, to] = [[10, 0, 1, 2], [10, 0, 2, 2]];
            let zoned = nested(direction, &[tuple(from, to, [1000, 80], TCP), zone].concat());
            let body = masqueraded(all, Some((3, 0)), &[]);
            // The first one of a kind counts.
            let body = [&body[..FIXED], &zoned, &body[FIXED..]].concat();
            assert!(!entry(&body).is_established(), "a zone of {direction}");
        }
        assert!(entry(&masqueraded(all, Some((3, LIBERAL)), &[])).is_liberal());
        assert!(!entry(&masqueraded(all, Some((3, !LIBERAL)), &[])).is_liberal());
    }

    #[test]
    fn packets_leave_as_the_other_direction_arrives() {
        let entry = entry(&masqueraded(0, None, &[]));
        let [there, back] = entry.directions();
        assert_eq!(there.destination, IpAddr::from([10, 0, 2, 2]));
        let new = there.translation.unwrap();
        assert_eq!((new.source, new.destination), ([10, 0, 2, 1].into(), [10, 0, 2, 2].into()));
        assert_eq!(new.ports, [7, 208, 0, 80]);
        assert_eq!(back.destination, IpAddr::from([10, 0, 1, 2]));
        let new = back.translation.unwrap();
        assert_eq!((new.source, new.destination), ([10, 0, 2, 2].into(), [10, 0, 1, 2].into()));
        assert_eq!(new.ports, [0, 80, 3, 232]);
    }

    #[test]
    fn echoes_of_ipv6_leave_with_the_identifier_of_the_other_direction_and_their_own_type() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let key = |source: &str, destination: &str, ports| {
            let (source, destination) = (address(source), address(destination));
            FlowKey { source, destination, ports, protocol: ICMPV6 }
        };
        let original = key("2001:db8:1::2", "2001:db8:2::2", [1, 2, 128, 0]);
        let reply = key("2001:db8:2::2", "2001:db8:2::1", [3, 4, 129, 0]);
        let body = |reply: &[u8]| {
            let tuples = [nested(ORIGINAL, &encode_tuple(&original)), nested(REPLY, reply)].concat();
            let rest = [attribute(STATUS, &[0; 4]), attribute(ID, &7_u32.to_ne_bytes())].concat();
            [&[10, 0, 0, 0], &tuples[..], &rest].concat()
        };
        let entry = entry(&body(&encode_tuple(&reply)));
        assert!(entry.is_translated());
        let [there, back] = entry.directions();
        let leaves = FlowKey { source: reply.destination, ports: [3, 4, 128, 0], ..original };
        assert_eq!(there.leaves(), leaves);
        let leaves = FlowKey { destination: original.source, ports: [1, 2, 129, 0], ..reply };
        assert_eq!(back.leaves(), leaves);
        let of_other_family = tuple([10, 0, 2, 2], [10, 0, 2, 1], [80, 2000], TCP);
        assert!(matches!(read_event(NEW, &body(&of_other_family)), Ok(Event::Other)));
    }

    #[test]
    fn a_dump_ends_with_its_last_datagram_and_an_error_is_one() {
        let written = artery_netlink::request::written::message;
        let entries = written(NEW, 2, &masqueraded(0, None, &[]));
        let part = read_dump(&entries).unwrap();
        assert!(part.events.len() == 1 && !part.is_last);
        let part = read_dump(&[entries.clone(), written(3, 2, &[0; 4])].concat()).unwrap();
        assert!(part.events.len() == 1 && part.is_last);
        assert!(read_dump(&[entries, written(3, 2, &(-1_i32).to_ne_bytes())].concat()).is_err());
    }

    #[test]
    fn what_an_event_does_not_tell_is_kept() {
        let all = CONFIRMED | SEEN_REPLY;
        let mut known = entry(&masqueraded(all, Some((3, LIBERAL)), &attribute(HELPER, &[])));
        known.follow(entry(&masqueraded(all, None, &[])));
        assert!(known.is_liberal() && known.is_unusual);
    }

    #[test]
    fn any_bytes_are_an_event_or_an_error() {
        let body = masqueraded(0xe, Some((3, 8)), &attribute(HELPER, &[1]));
        survive(&body, |body| read_event(NEW, body).is_ok());
        assert_eq!(read_event(DELETE, &body).unwrap(), Event::Gone(7));
        let other = [&[2, 0, 0, 0], &attribute(ID, &[0; 4])[..]].concat();
        assert!(read_event(NEW, &other).is_err());
    }
}
