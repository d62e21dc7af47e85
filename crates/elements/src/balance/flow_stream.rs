//! Flows as bytes: what a router gives out and takes in, and what files of them consist of. `docs/flow.md` describes it.
//!
//! A stream is a header, any number of items, and an end that says how many flows there were: one that is cut off
//! anywhere is known to be. An item begins with its length, so that what a reader does not know it can pass over.
use artery_table::balance::Member;
use artery_table::flow::{Answer, Flow4, Flow6, FlowKey, FlowRecord, FlowState};
use artery_wire::IpProtocol;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// What a stream begins with.
pub const MAGIC: [u8; 4] = *b"ARTF";
/// The version that is written. What is added later goes where readers of this one pass over it.
pub const VERSION: u16 = 1;
/// Most bytes of an item.
pub const LONGEST: usize = 1400;

/// Bytes of a flow before its addresses.
const FIXED: usize = 32;
/// Kinds of items.
const MEMBER: u8 = 1;
const FLOW4: u8 = 2;
const FLOW6: u8 = 3;
const END: u8 = 4;
/// Bits of a flow's flags.
const YOUNG: u8 = 1;
const PINNED: u8 = 2;
/// Ticks that idle times are counted in, as micros.
const TICK_MICROS: u64 = 100;

/// The key of a flow of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnyKey {
    /// Of IPv4.
    V4(Flow4),
    /// Of IPv6.
    V6(Flow6),
}

impl AnyKey {
    /// The key of a flow of these ends; none if it is no flow that is ever remembered.
    pub fn new(ends: [(IpAddr, u16); 2], protocol: IpProtocol) -> Result<AnyKey, Wrong> {
        let ([from, to], ports) = (ends.map(|end| end.0), ends.map(|end| end.1));
        if !protocol.has_ports() {
            return Err(Wrong::Protocol(protocol.0));
        }
        if ports.contains(&0) {
            return Err(Wrong::NoPort);
        }
        if from == to || [from, to].iter().any(|address| address.is_loopback() || address.is_unspecified()) {
            return Err(Wrong::Addresses(from, to));
        }
        match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => Ok(AnyKey::V4(Flow4::new([from, to], ports, protocol, 0))),
            (IpAddr::V6(from), IpAddr::V6(to)) => Ok(AnyKey::V6(Flow6::new([from, to], ports, protocol, 0))),
            _ => Err(Wrong::Addresses(from, to)),
        }
    }
    /// A key of either family, which their lengths tell apart.
    pub(super) fn of<K: FlowKey>(key: &K) -> AnyKey {
        match K::WORDS {
            Flow4::WORDS => AnyKey::V4(Flow4::from_words(|n| key.word(n))),
            _ => AnyKey::V6(Flow6::from_words(|n| key.word(n))),
        }
    }
    /// Source and destination.
    pub fn ends(&self) -> [(IpAddr, u16); 2] {
        let (addresses, ports) = match self {
            AnyKey::V4(key) => (key.addresses(), key.ports()),
            AnyKey::V6(key) => (key.addresses(), key.ports()),
        };
        [(addresses[0], ports[0]), (addresses[1], ports[1])]
    }
    /// The protocol.
    pub fn protocol(&self) -> IpProtocol {
        match self {
            AnyKey::V4(key) => key.protocol(),
            AnyKey::V6(key) => key.protocol(),
        }
    }
}

/// A flow of a stream; its action is the number that the stream gives the member.
pub type StreamFlow = FlowRecord<AnyKey>;

/// What a stream consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// From here on this number means the member of this name.
    Member(u16, &'a str),
    /// A flow.
    Flow(StreamFlow),
    /// The end, and how many flows came before it.
    End(u64),
}

/// Why a stream makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It does not begin as streams do.
    Magic,
    /// It is of another version.
    Version(u16),
    /// It ends before its end.
    Cut,
    /// It goes on after its end.
    GoesOn,
    /// It had another number of flows than it says.
    Count {
        /// How many it says.
        said: u64,
        /// How many there were.
        met: u64,
    },
    /// An item is longer than items are.
    TooLong(usize),
    /// An item is shorter than what it has to say.
    TooShort,
    /// No member can be called so.
    Name,
    /// A flow belongs to a member that was not named.
    Unnamed(u16),
    /// Flows of this protocol are not remembered.
    Protocol(u8),
    /// A port is 0.
    NoPort,
    /// Nobody sends from here to there.
    Addresses(IpAddr, IpAddr),
    /// There is no state of this number, or not in this protocol.
    State(u8),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Magic => f.write_str("this is no export of flows"),
            Wrong::Version(version) => write!(f, "this is of version {version}, and {VERSION} is known here"),
            Wrong::Cut => f.write_str("the export is cut off here"),
            Wrong::GoesOn => f.write_str("there is more behind the end of the export"),
            Wrong::Count { said, met } => write!(f, "{met} flows came, and {said} are said to have come"),
            Wrong::TooLong(len) => write!(f, "{len} bytes long; the longest have {LONGEST}"),
            Wrong::TooShort => f.write_str("shorter than what it has to say"),
            Wrong::Name => f.write_str("no name of a member: letters, digits, '.', '-' and '_', at most 64"),
            Wrong::Unnamed(number) => write!(f, "its member, number {number}, was not named before"),
            Wrong::Protocol(number) => write!(f, "protocol {number} has no ports: tcp, udp and sctp have"),
            Wrong::NoPort => f.write_str("port 0"),
            Wrong::Addresses(from, to) => write!(f, "there are no flows from {from} to {to}"),
            Wrong::State(number) => write!(f, "state {number} is none of this protocol"),
        }
    }
}

impl std::error::Error for Wrong {}

/// Whether flows of a protocol can be in a state.
pub fn fits(state: FlowState, protocol: IpProtocol) -> bool {
    use FlowState::{Closed, Established, Fin, Midway, Opening, Other, UdpSingle, UdpStream};
    match state {
        Opening | Midway | Established | Fin | Closed => protocol == IpProtocol::TCP,
        UdpSingle | UdpStream => protocol == IpProtocol::UDP,
        Other => protocol != IpProtocol::TCP && protocol != IpProtocol::UDP,
    }
}

/// Appends the beginning of a stream.
pub fn write_header(into: &mut Vec<u8>) {
    into.extend(MAGIC);
    into.extend(VERSION.to_be_bytes());
    into.extend(0_u16.to_be_bytes());
}

/// Appends an item.
pub fn write_item(item: &Item<'_>, into: &mut Vec<u8>) {
    let start = into.len();
    into.extend([0; 2]);
    match item {
        Item::Member(number, name) => {
            into.push(MEMBER);
            into.extend(number.to_be_bytes());
            into.push(name.len() as u8);
            into.extend(name.as_bytes());
        }
        Item::Flow(flow) => write_flow(flow, into),
        Item::End(flows) => {
            into.push(END);
            into.extend(flows.to_be_bytes());
        }
    }
    let len = (into.len() - start - 2) as u16;
    into[start..start + 2].copy_from_slice(&len.to_be_bytes());
}

fn write_flow(flow: &StreamFlow, into: &mut Vec<u8>) {
    let [(from, sport), (to, dport)] = flow.key.ends();
    let flags = if flow.is_young { YOUNG } else { 0 } | if flow.is_pinned { PINNED } else { 0 };
    let idle = (flow.idle.as_micros() as u64 / TICK_MICROS).min(u32::MAX.into()) as u32;
    let kind = if from.is_ipv4() { FLOW4 } else { FLOW6 };
    let mut fixed = [0; FIXED];
    fixed[..4].copy_from_slice(&[kind, flow.key.protocol().0, flow.state as u8, flags]);
    fixed[4..6].copy_from_slice(&(flow.answer.action as u16).to_be_bytes());
    fixed[6..8].copy_from_slice(&flow.version.to_be_bytes());
    fixed[8..12].copy_from_slice(&idle.to_be_bytes());
    fixed[12..14].copy_from_slice(&sport.to_be_bytes());
    fixed[14..16].copy_from_slice(&dport.to_be_bytes());
    fixed[16..24].copy_from_slice(&flow.packets.to_be_bytes());
    fixed[24..].copy_from_slice(&flow.bytes.to_be_bytes());
    into.extend_from_slice(&fixed);
    for address in [from, to] {
        match address {
            IpAddr::V4(address) => into.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => into.extend_from_slice(&address.octets()),
        }
    }
}

/// Reads a stream, item by item.
pub struct Reader<'a> {
    rest: &'a [u8],
    /// Which members were named: a bit for each number.
    named: Vec<u64>,
    flows: u64,
    items: u64,
    begun: usize,
    has_ended: bool,
}

impl<'a> Reader<'a> {
    /// Begins with the header.
    pub fn new(bytes: &'a [u8]) -> Result<Reader<'a>, Wrong> {
        let magic = bytes.get(..4).ok_or(if MAGIC.starts_with(bytes) { Wrong::Cut } else { Wrong::Magic })?;
        if magic != MAGIC {
            return Err(Wrong::Magic);
        }
        let mut fields = Fields(&bytes[4..]);
        let version = fields.u16().map_err(|_| Wrong::Cut)?;
        if version != VERSION {
            return Err(Wrong::Version(version));
        }
        let skipped = fields.u16().map_err(|_| Wrong::Cut)?;
        let rest = fields.0.get(usize::from(skipped)..).ok_or(Wrong::Cut)?;
        Ok(Reader::of_items(rest))
    }
    /// Items without header and end, as a router gives them out in parts.
    pub fn of_items(items: &'a [u8]) -> Reader<'a> {
        Reader { rest: items, named: Vec::new(), flows: 0, items: 0, begun: items.len(), has_ended: false }
    }

    /// How many items were begun: where it went wrong, the number of the wrong one.
    pub fn items(&self) -> u64 {
        self.items
    }
    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.rest.len()
    }
    /// How many bytes were left where the last item began.
    pub fn begun(&self) -> usize {
        self.begun
    }

    /// The next item. Nothing comes after the end; without an end the stream is cut.
    pub fn item(&mut self) -> Result<Option<Item<'a>>, Wrong> {
        if self.has_ended {
            return if self.rest.is_empty() { Ok(None) } else { Err(Wrong::GoesOn) };
        }
        loop {
            self.items += 1;
            self.begun = self.rest.len();
            let body = self.body()?;
            if let Some(item) = self.known(body)? {
                return Ok(Some(item));
            }
        }
    }

    fn body(&mut self) -> Result<&'a [u8], Wrong> {
        let (len, rest) = self.rest.split_first_chunk().ok_or(Wrong::Cut)?;
        let len = usize::from(u16::from_be_bytes(*len));
        if len > LONGEST {
            return Err(Wrong::TooLong(len));
        }
        let (body, rest) = rest.split_at_checked(len).ok_or(Wrong::Cut)?;
        self.rest = rest;
        Ok(body)
    }

    /// The item of a body, unless it is of a kind that is not known here.
    fn known(&mut self, body: &'a [u8]) -> Result<Option<Item<'a>>, Wrong> {
        let (kind, rest) = body.split_first().ok_or(Wrong::TooShort)?;
        let mut fields = Fields(rest);
        Ok(Some(match *kind {
            MEMBER => self.member(&mut fields)?,
            FLOW4 => self.flow(&mut fields, |fields| Ok(Ipv4Addr::from_bits(fields.u32()?).into()))?,
            FLOW6 => self.flow(&mut fields, |fields| Ok(Ipv6Addr::from_bits(fields.u128()?).into()))?,
            END => self.end(fields.u64()?)?,
            _ => return Ok(None),
        }))
    }

    fn member(&mut self, fields: &mut Fields<'a>) -> Result<Item<'a>, Wrong> {
        let (number, len) = (fields.u16()?, fields.u8()?);
        let name = fields.0.get(..usize::from(len)).ok_or(Wrong::TooShort)?;
        let name = std::str::from_utf8(name).ok().filter(|name| Member::is_name(name)).ok_or(Wrong::Name)?;
        let word = usize::from(number) / 64;
        if self.named.len() <= word {
            self.named.resize(word + 1, 0);
        }
        self.named[word] |= 1 << (number % 64);
        Ok(Item::Member(number, name))
    }

    #[inline]
    fn flow(
        &mut self,
        fields: &mut Fields<'a>,
        address: impl Fn(&mut Fields<'a>) -> Result<IpAddr, Wrong>,
    ) -> Result<Item<'a>, Wrong> {
        let (protocol, state, flags) = (IpProtocol(fields.u8()?), fields.u8()?, fields.u8()?);
        let (member, version, idle) = (fields.u16()?, fields.u16()?, fields.u32()?);
        let (sport, dport) = (fields.u16()?, fields.u16()?);
        let (packets, bytes) = (fields.u64()?, fields.u64()?);
        let (from, to) = (address(fields)?, address(fields)?);
        let known = FlowState::ALL.get(usize::from(state)).filter(|state| fits(**state, protocol));
        let key = AnyKey::new([(from, sport), (to, dport)], protocol)?;
        let state = *known.ok_or(Wrong::State(state))?;
        let is_named = |word: &u64| word & 1 << (member % 64) != 0;
        if !self.named.get(usize::from(member) / 64).is_some_and(is_named) {
            return Err(Wrong::Unnamed(member));
        }
        self.flows += 1;
        Ok(Item::Flow(FlowRecord {
            key,
            answer: Answer { action: member.into(), generation: 0 },
            state,
            idle: Duration::from_micros(u64::from(idle) * TICK_MICROS),
            packets,
            bytes,
            version,
            is_young: flags & YOUNG != 0,
            is_pinned: flags & PINNED != 0,
        }))
    }

    fn end(&mut self, said: u64) -> Result<Item<'a>, Wrong> {
        if said != self.flows {
            return Err(Wrong::Count { said, met: self.flows });
        }
        self.has_ended = true;
        Ok(Item::End(said))
    }
}

/// The fields of an item, one after another. What is left over belongs to later versions.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Wrong> {
        let (field, rest) = self.0.split_first_chunk().ok_or(Wrong::TooShort)?;
        self.0 = rest;
        Ok(*field)
    }
    fn u8(&mut self) -> Result<u8, Wrong> {
        self.take().map(u8::from_be_bytes)
    }
    fn u16(&mut self) -> Result<u16, Wrong> {
        self.take().map(u16::from_be_bytes)
    }
    fn u32(&mut self) -> Result<u32, Wrong> {
        self.take().map(u32::from_be_bytes)
    }
    fn u64(&mut self) -> Result<u64, Wrong> {
        self.take().map(u64::from_be_bytes)
    }
    fn u128(&mut self) -> Result<u128, Wrong> {
        self.take().map(u128::from_be_bytes)
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
        }
    }
    fn items(count: u16) -> Vec<Item<'static>> {
        let names = ["a", "web-2", "c.d_e"].into_iter().enumerate();
        let named = names.map(|(number, name)| Item::Member(number as u16, name));
        named.chain((0..count).map(|n| Item::Flow(flow(n)))).chain([Item::End(count.into())]).collect()
    }
    fn stream(items: &[Item<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_header(&mut bytes);
        items.iter().for_each(|item| write_item(item, &mut bytes));
        bytes
    }
    fn read(bytes: &[u8]) -> Result<Vec<Item<'_>>, (u64, Wrong)> {
        let mut reader = Reader::new(bytes).map_err(|wrong| (0, wrong))?;
        let mut items = Vec::new();
        while let Some(item) = reader.item().map_err(|wrong| (reader.items(), wrong))? {
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
            assert_eq!(read(&bytes[..len]).unwrap_err().1, Wrong::Cut, "{len}");
        }
        assert_eq!(read(&[&bytes[..], &[0]].concat()).unwrap_err().1, Wrong::GoesOn);
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
            write_item(&Item::Flow(flow(0)), &mut own);
            let mut body = own[2..].to_vec();
            change(&mut body);
            raw(&body)
        };
        let member = |name: &[u8]| raw(&[&[MEMBER, 0, 0, name.len() as u8], name].concat());
        for (third, expected) in [
            (body(&|body| body[1] = 1), Wrong::Protocol(1)),
            (body(&|body| body[2] = 5), Wrong::State(5)),
            (body(&|body| body[2] = 200), Wrong::State(200)),
            (body(&|body| body[5] = 9), Wrong::Unnamed(9)),
            (body(&|body| body[12..14].fill(0)), Wrong::NoPort),
            (
                body(&|body| body[32..36].copy_from_slice(&[127, 0, 0, 1])),
                Wrong::Addresses([127, 0, 0, 1].into(), [192, 0, 2, 1].into()),
            ),
            (body(&|body| body.truncate(30)), Wrong::TooShort),
            (raw(&[]), Wrong::TooShort),
            (vec![0xff, 0xff], Wrong::TooLong(0xffff)),
            (member(b"a b"), Wrong::Name),
            (member(b""), Wrong::Name),
            (member(b"\xff"), Wrong::Name),
        ] {
            let mut bytes = stream(&[Item::Member(0, "a"), Item::Flow(flow(0))]);
            bytes.extend(third);
            assert_eq!(read(&bytes).unwrap_err(), (3, expected));
        }
        assert_eq!(read(b"{\"src\"").unwrap_err(), (0, Wrong::Magic));
        assert_eq!(read(b"ARTF\0\x09\0\0").unwrap_err(), (0, Wrong::Version(9)));
        let wrong = stream(&[Item::Member(0, "a"), Item::Flow(flow(0)), Item::End(2)]);
        assert_eq!(read(&wrong).unwrap_err(), (3, Wrong::Count { said: 2, met: 1 }));
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
