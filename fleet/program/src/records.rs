//! Records between the three forms that they have: events and parts of the router, streams of `ARTE` between
//! machines, and imports of the router.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};
use artery_flow::stream::{
    AnyKey, EventItem, EventReader, ExceptionKind, StreamError, StreamFlow, StreamItem, StreamReader,
    write_event, write_event_header, write_header, write_item,
};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::owner::Owner;

/// Most flows and ends of an import: packets wait for no more than these.
pub(crate) const IMPORTED: u64 = 512;
/// Most ends of a machine that are remembered during a fetch; with more it is repeated.
const MOST_TOMBSTONES: usize = 1_000_000;

/// A line `WORKER NEXT ITEMS` of a handler.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) worker: u16,
    /// Where the worker goes on, unless this is the end.
    pub(crate) next: Option<u64>,
    items: Vec<u8>,
}

pub(crate) fn parse_parts(text: &str) -> Result<Vec<Part>> {
    text.lines()
        .map(|line| {
            let wrong = || format!("a line of the router is not WORKER NEXT BASE64: {line:.60}");
            parse_part(line).with_context(wrong)
        })
        .collect()
}

fn parse_part(line: &str) -> Option<Part> {
    let mut words = line.split(' ');
    let worker = words.next()?.parse().ok()?;
    let next = match words.next()? {
        "-" => None,
        next => Some(next.parse().ok()?),
    };
    Some(Part { worker, next, items: BASE64_STANDARD.decode(words.next()?).ok()? })
}

/// Records for peers, as a stream of `ARTE`.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Vec<u8>,
    pub(crate) records: u64,
}

impl Outgoing {
    fn new() -> Outgoing {
        let mut bytes = Vec::new();
        write_event_header(&mut bytes);
        Outgoing { bytes, records: 0 }
    }

    fn push(&mut self, item: &EventItem<'_>) {
        self.records += u64::from(matches!(item, EventItem::Exists(..) | EventItem::Ended(_)));
        write_event(item, &mut self.bytes);
    }
}

/// A stream without records.
pub(crate) fn empty() -> Outgoing {
    Outgoing::new()
}

/// What peers must know of a worker's events: what happens to flows of this machine. Also whether events
/// before them are lost.
pub(crate) fn select_events(part: &Part) -> Result<(Outgoing, bool), StreamError> {
    let (mut outgoing, mut has_lost) = (Outgoing::new(), false);
    let mut reader = EventReader::of_items(&part.items);
    while let Some(item) = reader.next_event()? {
        match item {
            EventItem::Member(..) => outgoing.push(&item),
            EventItem::Position { has_lost: lost, .. } => has_lost |= lost,
            EventItem::Exists(_, flow) if flow.is_imported => {}
            EventItem::Ended(end) if end.is_imported => {}
            EventItem::Exists(..) | EventItem::Ended(_) => outgoing.push(&item),
        }
    }
    Ok((outgoing, has_lost))
}

/// What a peer must know of a part of all exceptions: flows of this machine, and copies by their owners, as
/// far as `gone` returns those for their names.
pub(crate) fn select_part(
    part: &Part,
    gone: impl Fn(&str) -> Option<Owner>,
) -> Result<Vec<(Option<Owner>, Outgoing)>, StreamError> {
    let mut reader = StreamReader::of_items(&part.items);
    let (mut names, mut groups) = (HashMap::new(), vec![Group::new(None)]);
    let mut by_owner = HashMap::<&str, Option<usize>>::new();
    let mut copies = None;
    while reader.bytes_left() > 0 {
        match reader.next_item()? {
            Some(StreamItem::Member(number, name)) => {
                for group in &mut groups {
                    group.named.remove(&number);
                }
                names.insert(number, name);
            }
            Some(StreamItem::Owner(name)) => {
                copies = *by_owner.entry(name).or_insert_with(|| {
                    groups.push(Group::new(Some(gone(name)?)));
                    Some(groups.len() - 1)
                });
            }
            Some(StreamItem::Flow(flow)) => {
                let of = if flow.is_imported { copies } else { Some(0) };
                if let Some(of) = of {
                    // The reader refuses flows of members without a name.
                    let name = names.get(&(flow.answer.action as u16)).copied().unwrap_or_default();
                    groups[of].add(flow, name);
                }
            }
            Some(StreamItem::Ended(..)) => {}
            Some(StreamItem::End(_)) | None => break,
        }
    }
    let selected = groups.into_iter().map(|group| (group.owner, group.outgoing));
    Ok(selected.filter(|(_, outgoing)| outgoing.records > 0).collect())
}

/// Flows of an owner among all exceptions, or of this machine.
struct Group {
    owner: Option<Owner>,
    outgoing: Outgoing,
    named: HashSet<u16>,
}

impl Group {
    fn new(owner: Option<Owner>) -> Group {
        Group { owner, outgoing: Outgoing::new(), named: HashSet::new() }
    }

    fn add(&mut self, flow: StreamFlow, member: &str) {
        let number = flow.answer.action as u16;
        if self.named.insert(number) {
            self.outgoing.push(&EventItem::Member(number, member));
        }
        self.outgoing.push(&EventItem::Exists(ExceptionKind::Insert, flow));
    }
}

/// How records came: flows that ended since a fetch began are not brought back by its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    Change,
    /// A change that came while all exceptions of the machine are fetched.
    ChangeDuringFetch,
    Part,
}

/// Flows of a machine that ended while all of its exceptions are fetched. A part of them may be older than
/// the end.
#[derive(Debug, Default)]
pub(crate) struct Tombstones {
    ended: HashSet<AnyKey>,
    /// There were too many to remember, or a part was refused.
    is_incomplete: bool,
}

impl Tombstones {
    fn add(&mut self, key: AnyKey) {
        match self.ended.len() < MOST_TOMBSTONES {
            true => drop(self.ended.insert(key)),
            false => self.is_incomplete = true,
        }
    }

    /// A part of the fetch that goes on was refused.
    pub(crate) fn mark_incomplete(&mut self) {
        self.is_incomplete = true;
    }

    /// A fetch has ended: whether what it brought holds.
    pub(crate) fn finish(&mut self) -> bool {
        !std::mem::take(self).is_incomplete
    }
}

/// Records of a peer as the router takes them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Incoming {
    /// Streams of at most [`IMPORTED`] flows and ends, as base64.
    pub(crate) imports: Vec<String>,
    pub(crate) records: u64,
}

/// Reads a whole stream of a peer; one that is malformed anywhere is refused whole, and changes no tombstone.
pub(crate) fn read_incoming(
    stream: &[u8],
    owner: &str,
    arrival: Arrival,
    tombstones: &mut Tombstones,
) -> Result<Incoming, StreamError> {
    let mut check = EventReader::new(stream)?;
    while check.next_event()?.is_some() {}
    let mut reader = EventReader::new(stream)?;
    let (mut names, mut incoming, mut import) = (HashMap::new(), Incoming::default(), Import::new(owner));
    while let Some(item) = reader.next_event()? {
        match item {
            EventItem::Member(number, name) => {
                import.named.remove(&number);
                names.insert(number, name);
            }
            EventItem::Exists(_, flow)
                if arrival == Arrival::Part && tombstones.ended.contains(&flow.key) => {}
            EventItem::Exists(_, flow) => {
                tombstones.ended.remove(&flow.key);
                // The reader refuses flows of members without a name.
                let name = names.get(&(flow.answer.action as u16)).copied().unwrap_or_default();
                import.add_flow(flow, name);
            }
            EventItem::Ended(end) => {
                if arrival == Arrival::ChangeDuringFetch {
                    tombstones.add(end.key);
                }
                import.add_end(end.key, end.epoch);
            }
            EventItem::Position { .. } => {}
        }
        if import.records == IMPORTED {
            std::mem::replace(&mut import, Import::new(owner)).finish(&mut incoming);
        }
    }
    import.finish(&mut incoming);
    Ok(incoming)
}

/// An import of the router that is being written.
struct Import {
    named: HashSet<u16>,
    items: Vec<u8>,
    flows: u64,
    /// How many flows and ends there are.
    records: u64,
}

impl Import {
    fn new(owner: &str) -> Import {
        let mut items = Vec::new();
        write_item(&StreamItem::Owner(owner), &mut items);
        Import { named: HashSet::new(), items, flows: 0, records: 0 }
    }

    fn add_flow(&mut self, flow: StreamFlow, member: &str) {
        let number = flow.answer.action as u16;
        if self.named.insert(number) {
            write_item(&StreamItem::Member(number, member), &mut self.items);
        }
        write_item(&StreamItem::Flow(flow), &mut self.items);
        (self.flows, self.records) = (self.flows + 1, self.records + 1);
    }

    fn add_end(&mut self, key: AnyKey, epoch: u16) {
        write_item(&StreamItem::Ended(key, epoch), &mut self.items);
        self.records += 1;
    }

    fn finish(self, into: &mut Incoming) {
        if self.records == 0 {
            return;
        }
        let mut stream = Vec::with_capacity(self.items.len() + 32);
        write_header(&mut stream);
        stream.extend(self.items);
        write_item(&StreamItem::End(self.flows), &mut stream);
        into.imports.push(BASE64_STANDARD.encode(stream));
        into.records += self.records;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use artery_flow::stream::ExceptionEnd;
    use artery_flow::{Answer, EndReason, FlowRecord, FlowState};
    use artery_wire::IpProtocol;

    use super::*;

    fn flow(port: u16, member: u16) -> StreamFlow {
        let ends = [("198.51.100.7".parse().unwrap(), port), ("192.0.2.1".parse().unwrap(), 80)];
        FlowRecord {
            key: AnyKey::new(ends, IpProtocol::TCP).unwrap(),
            answer: Answer { action: member.into(), generation: 0 },
            state: FlowState::Established,
            idle: Duration::from_secs(1),
            packets: 2,
            bytes: 80,
            version: 1,
            is_young: false,
            is_pinned: false,
            is_imported: false,
            epoch: 0,
        }
    }

    fn events(items: &[EventItem<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        items.iter().for_each(|item| write_event(item, &mut bytes));
        bytes
    }

    fn stream(items: &[EventItem<'_>]) -> Vec<u8> {
        let mut bytes = empty().bytes;
        bytes.extend(events(items));
        bytes
    }

    /// Ports and members' names of an import.
    fn imported(import: &str) -> Vec<(u16, String)> {
        let bytes = BASE64_STANDARD.decode(import).unwrap();
        let (mut reader, mut names, mut flows) = (StreamReader::new(&bytes).unwrap(), HashMap::new(), vec![]);
        while let Some(item) = reader.next_item().unwrap() {
            match item {
                StreamItem::Member(number, name) => drop(names.insert(u32::from(number), name.to_string())),
                StreamItem::Flow(flow) => {
                    flows.push((flow.key.endpoints()[0].1, names[&flow.answer.action].clone()));
                }
                StreamItem::Ended(key, epoch) => {
                    flows.push((key.endpoints()[0].1, format!("ended in {epoch}")));
                }
                StreamItem::Owner(name) => assert_eq!((name, flows.len()), ("m1@1", 0)),
                StreamItem::End(_) => {}
            }
        }
        flows
    }

    fn part(worker: u16, items: Vec<u8>) -> Part {
        Part { worker, next: None, items }
    }

    const NAMES: [EventItem<'static>; 2] = [EventItem::Member(0, "a"), EventItem::Member(1, "b")];

    #[test]
    fn lines_of_a_router_are_parsed_and_nonsense_is_an_error() {
        let parts = parse_parts("0 7 QQ==\n1 - \n").unwrap();
        assert_eq!((parts[0].next, parts[0].items.as_slice()), (Some(7), &b"A"[..]));
        assert_eq!(parts[1], part(1, Vec::new()));
        for text in ["0", "0 7", "x 7 QQ==", "0 x QQ==", "0 7 !"] {
            assert!(parse_parts(text).is_err(), "{text}");
        }
    }

    fn copy(port: u16) -> StreamFlow {
        StreamFlow { is_imported: true, ..flow(port, 0) }
    }

    fn end(port: u16, is_imported: bool) -> EventItem<'static> {
        let (key, reason) = (flow(port, 0).key, Some(EndReason::Idle));
        EventItem::Ended(ExceptionEnd { key, reason, is_imported, epoch: 3 })
    }

    fn read(stream: &[u8], arrival: Arrival, tombstones: &mut Tombstones) -> Vec<String> {
        read_incoming(stream, "m1@1", arrival, tombstones).unwrap().imports
    }

    #[test]
    fn copies_of_peers_flows_and_their_ends_are_not_sent_back() {
        let mut came = NAMES.to_vec();
        came.extend([
            EventItem::Exists(ExceptionKind::Import, copy(1)),
            EventItem::Exists(ExceptionKind::Insert, flow(2, 1)),
            EventItem::Position { worker: 0, seq: 9, has_lost: true },
            EventItem::Exists(ExceptionKind::State, copy(3)),
            end(4, true),
            end(5, false),
        ]);
        let (outgoing, has_lost) = select_events(&part(0, events(&came))).unwrap();
        assert_eq!((outgoing.records, has_lost), (2, true));
        let imports = read(&outgoing.bytes, Arrival::Change, &mut Tombstones::default());
        assert_eq!(imported(&imports[0]), [(2, "b".to_string()), (5, "ended in 3".to_string())]);
        // Neither in an export, unless their owner is gone.
        let mut all = Vec::new();
        for item in [
            StreamItem::Member(0, "a"),
            StreamItem::Flow(flow(1, 0)),
            StreamItem::Flow(copy(2)),
            StreamItem::Owner("m2@1"),
            StreamItem::Flow(copy(3)),
            StreamItem::Owner("m3@1"),
            StreamItem::Flow(copy(4)),
            StreamItem::Owner("m2@1"),
            StreamItem::Flow(copy(6)),
            StreamItem::Owner(""),
            StreamItem::Flow(flow(5, 0)),
        ] {
            write_item(&item, &mut all);
        }
        let ports = |gone: &[&str]| {
            let owner = |name: &str| gone.contains(&name).then(|| name.parse::<Owner>().unwrap());
            let selected = select_part(&part(0, all.clone()), owner).unwrap();
            let selected = selected.into_iter().map(|(owner, outgoing)| {
                let imports = read(&outgoing.bytes, Arrival::Part, &mut Tombstones::default());
                let ports: Vec<u16> = imported(&imports[0]).into_iter().map(|(port, _)| port).collect();
                assert_eq!(ports.len() as u64, outgoing.records);
                (owner.map_or(String::new(), |owner| owner.to_string()), ports)
            });
            selected.collect::<Vec<_>>()
        };
        let own = (String::new(), vec![1, 5]);
        assert_eq!(ports(&["m9@1"]), std::slice::from_ref(&own));
        assert_eq!(ports(&["m2@1"]), [own.clone(), ("m2@1".to_string(), vec![3, 6])]);
        let third = ("m3@1".to_string(), vec![4]);
        assert_eq!(ports(&["m2@1", "m3@1"]), [own, ("m2@1".to_string(), vec![3, 6]), third]);
    }

    #[test]
    fn a_part_of_a_fetch_does_not_bring_back_what_ended_since_it_began() {
        let exists = |port| stream(&[NAMES[0], EventItem::Exists(ExceptionKind::Insert, flow(port, 0))]);
        let mut tombstones = Tombstones::default();
        let ended = stream(&[end(1, false), end(2, false)]);
        read(&ended, Arrival::ChangeDuringFetch, &mut tombstones);
        assert!(read(&exists(1), Arrival::Part, &mut tombstones).is_empty());
        assert_eq!(read(&exists(3), Arrival::Part, &mut tombstones).len(), 1);
        // A connection with the same ports that came after the end.
        assert_eq!(read(&exists(1), Arrival::ChangeDuringFetch, &mut tombstones).len(), 1);
        assert_eq!(read(&exists(1), Arrival::Part, &mut tombstones).len(), 1);
        assert!(tombstones.finish());
        read(&ended, Arrival::Change, &mut tombstones);
        assert_eq!(read(&exists(2), Arrival::Part, &mut tombstones).len(), 1);
    }

    #[test]
    fn tombstones_are_bounded_and_too_many_have_the_fetch_repeated() {
        let mut tombstones = Tombstones::default();
        let key = |n: usize| {
            let from = std::net::Ipv4Addr::from_bits(0x0a00_0000 + (n / 50_000) as u32);
            let ends = [(from.into(), (n % 50_000) as u16 + 1), ("192.0.2.1".parse().unwrap(), 80)];
            AnyKey::new(ends, IpProtocol::TCP).unwrap()
        };
        (0..MOST_TOMBSTONES).for_each(|n| tombstones.add(key(n)));
        assert!(!tombstones.is_incomplete);
        tombstones.add(key(MOST_TOMBSTONES));
        assert_eq!(tombstones.ended.len(), MOST_TOMBSTONES);
        assert!(!tombstones.finish() && tombstones.finish() && tombstones.ended.is_empty());
    }

    #[test]
    fn a_stream_is_imported_in_parts_that_name_their_members() {
        let mut items = NAMES.to_vec();
        items.extend((1..=1500).map(|port| EventItem::Exists(ExceptionKind::State, flow(port, port % 2))));
        // From here on the number is another member's.
        items.push(EventItem::Member(1, "c"));
        items.push(EventItem::Exists(ExceptionKind::State, flow(2001, 1)));
        let mut tombstones = Tombstones::default();
        let incoming = read_incoming(&stream(&items), "m1@1", Arrival::Change, &mut tombstones).unwrap();
        assert_eq!(incoming.records, 1501);
        let parts: Vec<_> = incoming.imports.iter().map(|import| imported(import)).collect();
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [512, 512, 477]);
        let expected = |port: u16| (port, if port.is_multiple_of(2) { "a" } else { "b" }.to_string());
        let mut all: Vec<_> = (1..=1500).map(expected).collect();
        all.push((2001, "c".to_string()));
        assert_eq!(parts.concat(), all);
    }

    #[test]
    fn a_stream_that_is_cut_or_of_another_version_is_refused_whole() {
        let mut items = NAMES.to_vec();
        items.extend([end(2, false), EventItem::Exists(ExceptionKind::Insert, flow(1, 0))]);
        let bytes = stream(&items);
        let mut tombstones = Tombstones::default();
        let mut read =
            |bytes: &[u8]| read_incoming(bytes, "m1@1", Arrival::ChangeDuringFetch, &mut tombstones);
        let whole: Vec<usize> = (0..=items.len()).map(|count| stream(&items[..count]).len()).collect();
        for length in (0..bytes.len()).filter(|length| !whole.contains(length)) {
            assert_eq!(read(&bytes[..length]), Err(StreamError::Cut), "{length}");
        }
        assert_eq!(read(b"ARTE\0\x02\0\0"), Err(StreamError::Version(2)));
        assert_eq!(read(b"GET / HTTP/1.1"), Err(StreamError::Magic));
        assert_eq!(read(&empty().bytes), Ok(Incoming::default()));
        assert!(tombstones.ended.is_empty());
    }
}
