//! The byte format of flows, for export, import and files. `docs/flow.md` describes it.
//!
//! A stream is a header, any number of items, and an end with the number of flows, so a truncated stream is
//! detected. An item begins with its length, so that a reader can skip unknown kinds.
use super::fields::Fields;
use crate::balance::Member;
use crate::{Answer, Flow4, Flow6, FlowKey, FlowRecord, FlowState};
use artery_wire::IpProtocol;
use std::net::IpAddr;
use std::time::Duration;

/// The first bytes of a stream.
pub const MAGIC: [u8; 4] = *b"ARTF";
/// The version that is written. Additions use new kinds of items, which readers of this version skip.
pub(super) const VERSION: u16 = 1;
/// Most bytes of an item.
pub(super) const LONGEST: usize = 1400;

/// Bytes of a flow's fields before its addresses.
const FIXED: usize = 31;
/// Values of the kind byte of items.
pub(super) const MEMBER: u8 = 1;
const FLOW4: u8 = 2;
const FLOW6: u8 = 3;
const END: u8 = 4;
const OWNER: u8 = 5;
const ENDED4: u8 = 6;
const ENDED6: u8 = 7;
/// Most bytes of an owner's name.
const LONGEST_OWNER: usize = 100;
/// Bits of a flow's flags.
const YOUNG: u8 = 1;
const PINNED: u8 = 2;
const IMPORTED: u8 = 4;
/// Ticks that idle times are counted in, as micros.
const TICK_MICROS: u64 = 100;

/// The key of a flow of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnyKey {
    /// Key of an IPv4 flow.
    V4(Flow4),
    /// Key of an IPv6 flow.
    V6(Flow6),
}

impl AnyKey {
    /// The key of a flow with these endpoints. An error if flows like it are never recorded.
    pub fn new(ends: [(IpAddr, u16); 2], protocol: IpProtocol) -> Result<AnyKey, StreamError> {
        let ([from, to], ports) = (ends.map(|end| end.0), ends.map(|end| end.1));
        if !protocol.has_ports() {
            return Err(StreamError::Protocol(protocol.0));
        }
        if ports.contains(&0) {
            return Err(StreamError::NoPort);
        }
        if from == to || [from, to].iter().any(|address| address.is_loopback() || address.is_unspecified()) {
            return Err(StreamError::Addresses(from, to));
        }
        match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => Ok(AnyKey::V4(Flow4::new([from, to], ports, protocol, 0))),
            (IpAddr::V6(from), IpAddr::V6(to)) => Ok(AnyKey::V6(Flow6::new([from, to], ports, protocol, 0))),
            _ => Err(StreamError::Addresses(from, to)),
        }
    }
    /// The `AnyKey` of a key of either family, which their lengths distinguish.
    pub fn from_key<K: FlowKey>(key: &K) -> AnyKey {
        match K::WORDS {
            Flow4::WORDS => AnyKey::V4(Flow4::from_words(|n| key.nth_word(n))),
            _ => AnyKey::V6(Flow6::from_words(|n| key.nth_word(n))),
        }
    }
    /// Address and port of the source, and of the destination.
    pub fn endpoints(&self) -> [(IpAddr, u16); 2] {
        let (addresses, ports) = match self {
            AnyKey::V4(key) => (key.addresses(), key.ports()),
            AnyKey::V6(key) => (key.addresses(), key.ports()),
        };
        [(addresses[0], ports[0]), (addresses[1], ports[1])]
    }
    /// Whether it is of IPv4.
    pub(super) fn is_ipv4(&self) -> bool {
        matches!(self, AnyKey::V4(_))
    }
    /// The transport protocol of the flow.
    pub fn protocol(&self) -> IpProtocol {
        match self {
            AnyKey::V4(key) => key.protocol(),
            AnyKey::V6(key) => key.protocol(),
        }
    }
}

/// A flow of a stream; its action is the stream's number of the member.
pub type StreamFlow = FlowRecord<AnyKey>;

/// The same record of another key.
pub fn with_key<K, L>(record: FlowRecord<K>, key: L, answer: Answer) -> FlowRecord<L> {
    let FlowRecord { state, idle, packets, bytes, version, .. } = record;
    let FlowRecord { is_young, is_pinned, is_imported, epoch, .. } = record;
    FlowRecord { key, answer, state, idle, packets, bytes, version, is_young, is_pinned, is_imported, epoch }
}

/// What a stream consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamItem<'a> {
    /// From here on this number means the member of this name.
    Member(u16, &'a str),
    /// A flow record; its action is the stream's number of the member.
    Flow(StreamFlow),
    /// From here on flows are this machine's; none if the name is empty.
    Owner(&'a str),
    /// A flow has ended at the owner, which had it in this takeover epoch.
    Ended(AnyKey, u16),
    /// The end of the stream, with the number of flows before it.
    End(u64),
}

/// Why a stream is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// It does not begin with [`MAGIC`].
    #[error("this is not an export of flows")]
    Magic,
    /// It is of another version.
    #[error("this is of version {0}, and {VERSION} is known here")]
    Version(u16),
    /// It ends before its end.
    #[error("the export is cut off here")]
    Cut,
    /// There are bytes after its end.
    #[error("there is more behind the end of the export")]
    GoesOn,
    /// Its number of flows differs from the one in its end.
    #[error("{met} flows came, and {declared} are said to have come")]
    Count {
        /// The number in the end.
        declared: u64,
        /// How many there were.
        met: u64,
    },
    /// An item is longer than items are.
    #[error("{0} bytes long; the longest have {LONGEST}")]
    TooLong(usize),
    /// An item is shorter than its kind requires.
    #[error("shorter than what it has to say")]
    TooShort,
    /// No member can be called so.
    #[error("no name of a member: letters, digits, '.', '-' and '_', at most 64")]
    Name,
    /// No owner can be called so.
    #[error("no name of an owner: at most {LONGEST_OWNER} letters, digits and signs")]
    Owner,
    /// A flow belongs to a member that was not named.
    #[error("its member, number {0}, was not named before")]
    Unnamed(u16),
    /// Flows of this protocol are not remembered.
    #[error("protocol {0} has no ports: tcp, udp and sctp have")]
    Protocol(u8),
    /// A port is 0.
    #[error("port 0")]
    NoPort,
    /// Source and destination are equal, loopback, unspecified, or of different families.
    #[error("there are no flows from {0} to {1}")]
    Addresses(IpAddr, IpAddr),
    /// The number of an event or of a reason is unknown.
    #[error("number {0} means no event that is known here")]
    Event(u8),
    /// The state number is unknown, or not valid for this protocol.
    #[error("state {0} is none of this protocol")]
    State(u8),
}

/// Whether flows of a protocol can be in a state.
pub fn is_valid_state(state: FlowState, protocol: IpProtocol) -> bool {
    use FlowState::{Closed, Established, Fin, Midway, Opening, Other, UdpSingle, UdpStream};
    match state {
        Opening | Midway | Established | Fin | Closed => protocol == IpProtocol::TCP,
        UdpSingle | UdpStream => protocol == IpProtocol::UDP,
        Other => protocol != IpProtocol::TCP && protocol != IpProtocol::UDP,
    }
}

/// Appends the beginning of a stream.
pub fn write_header(into: &mut Vec<u8>) {
    write_header_of(MAGIC, into);
}

/// Appends a header with these first bytes.
pub(super) fn write_header_of(magic: [u8; 4], into: &mut Vec<u8>) {
    into.extend(magic);
    into.extend(VERSION.to_be_bytes());
    into.extend(0_u16.to_be_bytes());
}

/// Appends one item to `into`, with its length before it.
pub fn write_item(item: &StreamItem<'_>, into: &mut Vec<u8>) {
    match item {
        StreamItem::Member(number, name) => write_member(*number, name, into),
        StreamItem::Flow(flow) => {
            let kind = if flow.key.is_ipv4() { FLOW4 } else { FLOW6 };
            write_body(into, |into| {
                into.push(kind);
                write_flow(flow, into);
            });
        }
        StreamItem::Owner(name) => write_body(into, |into| {
            into.push(OWNER);
            into.push(name.len() as u8);
            into.extend(name.as_bytes());
        }),
        StreamItem::Ended(key, epoch) => write_body(into, |into| {
            into.push(if key.is_ipv4() { ENDED4 } else { ENDED6 });
            into.extend(epoch.to_be_bytes());
            write_key(key, into);
        }),
        StreamItem::End(flows) => write_body(into, |into| {
            into.push(END);
            into.extend(flows.to_be_bytes());
        }),
    }
}

/// Appends an item with the body that `write` appends.
#[inline]
pub(super) fn write_body(into: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = into.len();
    into.extend([0; 2]);
    write(into);
    let len = (into.len() - start - 2) as u16;
    into[start..start + 2].copy_from_slice(&len.to_be_bytes());
}

/// Appends the item that names a member.
pub(super) fn write_member(number: u16, name: &str, into: &mut Vec<u8>) {
    write_body(into, |into| {
        into.push(MEMBER);
        into.extend(number.to_be_bytes());
        into.push(name.len() as u8);
        into.extend(name.as_bytes());
    });
}

/// Appends the fields of a flow.
#[inline]
pub(super) fn write_flow(flow: &StreamFlow, into: &mut Vec<u8>) {
    let [(from, sport), (to, dport)] = flow.key.endpoints();
    let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
    let flags = bit(flow.is_young, YOUNG) | bit(flow.is_pinned, PINNED) | bit(flow.is_imported, IMPORTED);
    let idle = (flow.idle.as_micros() as u64 / TICK_MICROS).min(u32::MAX.into()) as u32;
    let mut fixed = [0; FIXED];
    fixed[..3].copy_from_slice(&[flow.key.protocol().0, flow.state as u8, flags]);
    fixed[3..5].copy_from_slice(&(flow.answer.action as u16).to_be_bytes());
    fixed[5..7].copy_from_slice(&flow.version.to_be_bytes());
    fixed[7..11].copy_from_slice(&idle.to_be_bytes());
    fixed[11..13].copy_from_slice(&sport.to_be_bytes());
    fixed[13..15].copy_from_slice(&dport.to_be_bytes());
    fixed[15..23].copy_from_slice(&flow.packets.to_be_bytes());
    fixed[23..].copy_from_slice(&flow.bytes.to_be_bytes());
    into.extend_from_slice(&fixed);
    write_addresses([from, to], into);
    into.extend(flow.epoch.to_be_bytes());
}

/// Appends protocol, ports and addresses of a flow.
pub(super) fn write_key(key: &AnyKey, into: &mut Vec<u8>) {
    let [(from, sport), (to, dport)] = key.endpoints();
    into.push(key.protocol().0);
    into.extend(sport.to_be_bytes());
    into.extend(dport.to_be_bytes());
    write_addresses([from, to], into);
}

/// Appends the source and the destination, 4 or 16 bytes each.
#[inline]
fn write_addresses(addresses: [IpAddr; 2], into: &mut Vec<u8>) {
    for address in addresses {
        match address {
            IpAddr::V4(address) => into.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => into.extend_from_slice(&address.octets()),
        }
    }
}

/// Reads a stream, item by item.
pub struct StreamReader<'a> {
    rest: &'a [u8],
    named: NamedMembers,
    flows: u64,
    items: u64,
    item_begin: usize,
    has_ended: bool,
}

impl<'a> StreamReader<'a> {
    /// Reads a stream from its header on.
    pub fn new(bytes: &'a [u8]) -> Result<StreamReader<'a>, StreamError> {
        Ok(StreamReader::of_items(skip_header(bytes, MAGIC)?))
    }
    /// Reads items without header and end, as a router exports them in parts.
    pub fn of_items(items: &'a [u8]) -> StreamReader<'a> {
        StreamReader {
            rest: items,
            named: NamedMembers::default(),
            flows: 0,
            items: 0,
            item_begin: items.len(),
            has_ended: false,
        }
    }

    /// How many items were begun: after an error, the number of the invalid one.
    pub fn items_begun(&self) -> u64 {
        self.items
    }
    /// How many bytes are left.
    pub fn bytes_left(&self) -> usize {
        self.rest.len()
    }
    /// How many bytes were left where the last item began.
    pub fn bytes_left_at_item(&self) -> usize {
        self.item_begin
    }

    /// The next item. None after the end; an error if the stream ends without one.
    pub fn next_item(&mut self) -> Result<Option<StreamItem<'a>>, StreamError> {
        if self.has_ended {
            return if self.rest.is_empty() { Ok(None) } else { Err(StreamError::GoesOn) };
        }
        loop {
            self.items += 1;
            self.item_begin = self.rest.len();
            let body;
            (body, self.rest) = split_body(self.rest)?;
            if let Some(item) = self.parse_item(body)? {
                return Ok(Some(item));
            }
        }
    }

    /// Parses an item's body; None if its kind is unknown here.
    fn parse_item(&mut self, body: &'a [u8]) -> Result<Option<StreamItem<'a>>, StreamError> {
        let (kind, rest) = body.split_first().ok_or(StreamError::TooShort)?;
        let mut fields = Fields(rest);
        Ok(Some(match *kind {
            MEMBER => {
                let (number, name) = self.named.parse_member(fields)?;
                StreamItem::Member(number, name)
            }
            kind @ (FLOW4 | FLOW6) => {
                let flow = self.named.parse_flow(fields, kind == FLOW4)?;
                self.flows += 1;
                StreamItem::Flow(flow)
            }
            END => self.parse_end(fields.u64()?)?,
            OWNER => StreamItem::Owner(parse_owner(fields)?),
            kind @ (ENDED4 | ENDED6) => {
                let epoch = fields.u16()?;
                StreamItem::Ended(fields.key(kind == ENDED4)?, epoch)
            }
            _ => return Ok(None),
        }))
    }

    fn parse_end(&mut self, said: u64) -> Result<StreamItem<'a>, StreamError> {
        if said != self.flows {
            return Err(StreamError::Count { declared: said, met: self.flows });
        }
        self.has_ended = true;
        Ok(StreamItem::End(said))
    }
}

fn parse_owner(mut fields: Fields<'_>) -> Result<&str, StreamError> {
    let len = usize::from(fields.u8()?);
    let name = fields.0.get(..len).ok_or(StreamError::TooShort)?;
    let is_name = len <= LONGEST_OWNER && name.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(name).ok().filter(|_| is_name).ok_or(StreamError::Owner)
}

/// The items of a stream with a header.
pub(super) fn skip_header(bytes: &[u8], magic: [u8; 4]) -> Result<&[u8], StreamError> {
    let found =
        bytes.get(..4).ok_or(if magic.starts_with(bytes) { StreamError::Cut } else { StreamError::Magic })?;
    if found != magic {
        return Err(StreamError::Magic);
    }
    let mut fields = Fields(&bytes[4..]);
    let version = fields.u16().map_err(|_| StreamError::Cut)?;
    if version != VERSION {
        return Err(StreamError::Version(version));
    }
    let skipped = fields.u16().map_err(|_| StreamError::Cut)?;
    fields.0.get(usize::from(skipped)..).ok_or(StreamError::Cut)
}

/// The body of the first item, and the items after it.
pub(super) fn split_body(items: &[u8]) -> Result<(&[u8], &[u8]), StreamError> {
    let (len, rest) = items.split_first_chunk().ok_or(StreamError::Cut)?;
    let len = usize::from(u16::from_be_bytes(*len));
    if len > LONGEST {
        return Err(StreamError::TooLong(len));
    }
    rest.split_at_checked(len).ok_or(StreamError::Cut)
}

/// Which members were named: a bit for each number.
#[derive(Default)]
pub(super) struct NamedMembers(Vec<u64>);

impl NamedMembers {
    /// The number and the name of a member.
    pub(super) fn parse_member<'a>(&mut self, mut fields: Fields<'a>) -> Result<(u16, &'a str), StreamError> {
        let (number, len) = (fields.u16()?, fields.u8()?);
        let name = fields.0.get(..usize::from(len)).ok_or(StreamError::TooShort)?;
        let name =
            std::str::from_utf8(name).ok().filter(|name| Member::is_name(name)).ok_or(StreamError::Name)?;
        let word = usize::from(number) / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (number % 64);
        Ok((number, name))
    }

    #[inline]
    pub(super) fn parse_flow(
        &self,
        mut fields: Fields<'_>,
        is_ipv4: bool,
    ) -> Result<StreamFlow, StreamError> {
        let (protocol, state, flags) = (IpProtocol(fields.u8()?), fields.u8()?, fields.u8()?);
        let (member, version, idle) = (fields.u16()?, fields.u16()?, fields.u32()?);
        let (sport, dport) = (fields.u16()?, fields.u16()?);
        let (packets, bytes) = (fields.u64()?, fields.u64()?);
        let (from, to) = (fields.address(is_ipv4)?, fields.address(is_ipv4)?);
        // Not in records of earlier versions, which don't know takeovers.
        let epoch = if fields.0.is_empty() { 0 } else { fields.u16()? };
        let known = FlowState::ALL.get(usize::from(state)).filter(|state| is_valid_state(**state, protocol));
        let key = AnyKey::new([(from, sport), (to, dport)], protocol)?;
        let state = *known.ok_or(StreamError::State(state))?;
        let is_named = |word: &u64| word & 1 << (member % 64) != 0;
        if !self.0.get(usize::from(member) / 64).is_some_and(is_named) {
            return Err(StreamError::Unnamed(member));
        }
        Ok(FlowRecord {
            key,
            answer: Answer { action: member.into(), generation: 0 },
            state,
            idle: Duration::from_micros(u64::from(idle) * TICK_MICROS),
            packets,
            bytes,
            version,
            is_young: flags & YOUNG != 0,
            is_pinned: flags & PINNED != 0,
            is_imported: flags & IMPORTED != 0,
            epoch,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flow(n: u16) -> StreamFlow {
        let ends = match n % 2 {
            0 => [("198.51.100.7".parse().unwrap(), n + 1), ("192.0.2.1".parse().unwrap(), 80)],
            _ => [("2001:db8::7".parse().unwrap(), n + 1), ("2001:db8::1".parse().unwrap(), 443)],
        };
        FlowRecord {
            key: AnyKey::new(ends, IpProtocol::TCP).unwrap(),
            answer: Answer { action: u32::from(n % 3), generation: 0 },
            state: FlowState::Established,
            idle: Duration::from_millis(u64::from(n)),
            packets: u64::from(n) << 40,
            bytes: u64::MAX - u64::from(n),
            version: n,
            is_young: n.is_multiple_of(5),
            is_pinned: n.is_multiple_of(7),
            is_imported: n.is_multiple_of(2),
            epoch: n.wrapping_mul(1000),
        }
    }
    fn items(count: u16) -> Vec<StreamItem<'static>> {
        let names = ["a", "web-2", "c.d_e"].into_iter().enumerate();
        let named = names.map(|(number, name)| StreamItem::Member(number as u16, name));
        named
            .chain((0..count).map(|n| StreamItem::Flow(flow(n))))
            .chain([StreamItem::End(count.into())])
            .collect()
    }
    fn stream(items: &[StreamItem<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_header(&mut bytes);
        items.iter().for_each(|item| write_item(item, &mut bytes));
        bytes
    }
    fn read(bytes: &[u8]) -> Result<Vec<StreamItem<'_>>, (u64, StreamError)> {
        let mut reader = StreamReader::new(bytes).map_err(|wrong| (0, wrong))?;
        let mut items = Vec::new();
        while let Some(item) = reader.next_item().map_err(|wrong| (reader.items_begun(), wrong))? {
            items.push(item);
        }
        Ok(items)
    }
    /// An item of these bytes.
    fn raw(body: &[u8]) -> Vec<u8> {
        [&(body.len() as u16).to_be_bytes(), body].concat()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let items = items(50);
        assert_eq!(read(&stream(&items)).unwrap(), items);
    }

    #[test]
    fn a_stream_that_is_cut_anywhere_is_refused_as_cut() {
        let bytes = stream(&items(6));
        for len in 0..bytes.len() {
            assert_eq!(read(&bytes[..len]).unwrap_err().1, StreamError::Cut, "{len}");
        }
        assert_eq!(read(&[&bytes[..], &[0]].concat()).unwrap_err().1, StreamError::GoesOn);
    }

    #[test]
    fn fields_and_items_of_later_versions_are_passed_over() {
        let mut bytes = [&MAGIC[..], &VERSION.to_be_bytes(), &3_u16.to_be_bytes(), b"new"].concat();
        for item in items(4) {
            let mut own = Vec::new();
            write_item(&item, &mut own);
            bytes.extend(raw(&[&own[2..], b"more"].concat()));
            bytes.extend(raw(b"\xfeunknown"));
        }
        bytes.truncate(bytes.len() - raw(b"\xfeunknown").len());
        assert_eq!(read(&bytes).unwrap(), items(4));
    }

    #[test]
    fn each_kind_of_nonsense_is_refused_by_its_number() {
        let body = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut own = Vec::new();
            write_item(&StreamItem::Flow(flow(0)), &mut own);
            let mut body = own[2..].to_vec();
            change(&mut body);
            raw(&body)
        };
        let member = |name: &[u8]| raw(&[&[MEMBER, 0, 0, name.len() as u8], name].concat());
        for (third, expected) in [
            (body(&|body| body[1] = 1), StreamError::Protocol(1)),
            (body(&|body| body[2] = 5), StreamError::State(5)),
            (body(&|body| body[2] = 200), StreamError::State(200)),
            (body(&|body| body[5] = 9), StreamError::Unnamed(9)),
            (body(&|body| body[12..14].fill(0)), StreamError::NoPort),
            (
                body(&|body| body[32..36].copy_from_slice(&[127, 0, 0, 1])),
                StreamError::Addresses([127, 0, 0, 1].into(), [192, 0, 2, 1].into()),
            ),
            (body(&|body| body.truncate(30)), StreamError::TooShort),
            (raw(&[]), StreamError::TooShort),
            (vec![0xff, 0xff], StreamError::TooLong(0xffff)),
            (member(b"a b"), StreamError::Name),
            (member(b""), StreamError::Name),
            (member(b"\xff"), StreamError::Name),
        ] {
            let mut bytes = stream(&[StreamItem::Member(0, "a"), StreamItem::Flow(flow(0))]);
            bytes.extend(third);
            assert_eq!(read(&bytes).unwrap_err(), (3, expected));
        }
        assert_eq!(read(b"{\"src\"").unwrap_err(), (0, StreamError::Magic));
        assert_eq!(read(b"ARTF\0\x09\0\0").unwrap_err(), (0, StreamError::Version(9)));
        let wrong = stream(&[StreamItem::Member(0, "a"), StreamItem::Flow(flow(0)), StreamItem::End(2)]);
        assert_eq!(read(&wrong).unwrap_err(), (3, StreamError::Count { declared: 2, met: 1 }));
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_reader_panic(bytes: Vec<u8>, at in 0_usize..400, with: u8) {
            let _ = read(&bytes);
            let mut damaged = stream(&items(6));
            let at = at % damaged.len();
            damaged[at] = with;
            let _ = read(&damaged);
        }
    }
}
