//! Records between the three forms that they have: events and parts of the router, streams of `ARTE` between
//! machines, and imports of the router.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};
use artery_flow::stream::{
    AnyKey, EventItem, EventReader, ExceptionKind, StreamError, StreamItem, StreamReader, write_event,
    write_event_header, write_header, write_item,
};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// Most flows of an import: packets wait for no more than these.
pub(crate) const IMPORTED: u64 = 512;
/// Most imported flows of a worker that are remembered as such; further ones are sent to peers, too, which
/// does no harm but the traffic.
const MOST_REMEMBERED: usize = 4_000_000;

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
        .map(|line| parse_part(line).context("what the router says of its flows makes no sense"))
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
        self.records += u64::from(matches!(item, EventItem::Exists(..)));
        write_event(item, &mut self.bytes);
    }
}

/// A stream without records.
pub(crate) fn empty() -> Outgoing {
    Outgoing::new()
}

/// Which exceptions of the router came from peers: those are not sent back to them. By worker, since one
/// worker may see packets of a flow that another knows from an import only.
#[derive(Debug, Default)]
pub(crate) struct ImportedFlows(HashMap<u16, HashSet<AnyKey>>);

impl ImportedFlows {
    /// Forgets all, as events were lost that would have ended some.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// What peers must know of a worker's events; and whether events before them are lost.
    pub(crate) fn select_events(&mut self, part: &Part) -> Result<(Outgoing, bool), StreamError> {
        let (mut outgoing, mut has_lost) = (Outgoing::new(), false);
        let imported = self.0.entry(part.worker).or_default();
        let mut reader = EventReader::of_items(&part.items);
        while let Some(item) = reader.next_event()? {
            match item {
                EventItem::Member(..) => outgoing.push(&item),
                EventItem::Position { has_lost: lost, .. } => has_lost |= lost,
                EventItem::Exists(ExceptionKind::Import, flow) => {
                    if imported.len() < MOST_REMEMBERED {
                        imported.insert(flow.key);
                    }
                }
                EventItem::Exists(_, flow) => {
                    imported.remove(&flow.key);
                    outgoing.push(&item);
                }
                // A router has nothing that removes a single flow: copies end when they are idle.
                EventItem::Ended(key, _) => drop(imported.remove(&key)),
            }
        }
        Ok((outgoing, has_lost))
    }

    /// What peers must know of a part of all exceptions.
    pub(crate) fn select_part(&self, part: &Part) -> Result<Outgoing, StreamError> {
        let (mut outgoing, imported) = (Outgoing::new(), self.0.get(&part.worker));
        let mut reader = StreamReader::of_items(&part.items);
        while reader.bytes_left() > 0 {
            match reader.next_item()? {
                Some(StreamItem::Member(number, name)) => outgoing.push(&EventItem::Member(number, name)),
                Some(StreamItem::Flow(flow)) if imported.is_none_or(|known| !known.contains(&flow.key)) => {
                    outgoing.push(&EventItem::Exists(ExceptionKind::Insert, flow));
                }
                Some(StreamItem::Flow(_)) => {}
                Some(StreamItem::End(_)) | None => break,
            }
        }
        Ok(outgoing)
    }
}

/// Records of a peer as the router takes them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Incoming {
    /// Streams of at most [`IMPORTED`] flows, as base64.
    pub(crate) imports: Vec<String>,
    pub(crate) records: u64,
}

/// Reads a whole stream of a peer; one that is malformed anywhere is refused whole.
pub(crate) fn read_incoming(stream: &[u8]) -> Result<Incoming, StreamError> {
    let mut reader = EventReader::new(stream)?;
    let (mut names, mut import, mut incoming) = (HashMap::new(), Import::default(), Incoming::default());
    while let Some(item) = reader.next_event()? {
        match item {
            EventItem::Member(number, name) => {
                import.named.remove(&number);
                names.insert(number, name);
            }
            EventItem::Exists(_, flow) => {
                let number = flow.answer.action as u16;
                if import.named.insert(number) {
                    // The reader refuses flows of members without a name.
                    let name = names.get(&number).copied().unwrap_or_default();
                    write_item(&StreamItem::Member(number, name), &mut import.items);
                }
                write_item(&StreamItem::Flow(flow), &mut import.items);
                import.flows += 1;
                if import.flows == IMPORTED {
                    std::mem::take(&mut import).finish(&mut incoming);
                }
            }
            EventItem::Position { .. } | EventItem::Ended(..) => {}
        }
    }
    import.finish(&mut incoming);
    Ok(incoming)
}

#[derive(Default)]
struct Import {
    named: HashSet<u16>,
    items: Vec<u8>,
    flows: u64,
}

impl Import {
    fn finish(self, into: &mut Incoming) {
        if self.flows == 0 {
            return;
        }
        let mut stream = Vec::with_capacity(self.items.len() + 32);
        write_header(&mut stream);
        stream.extend(self.items);
        write_item(&StreamItem::End(self.flows), &mut stream);
        into.imports.push(BASE64_STANDARD.encode(stream));
        into.records += self.flows;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use artery_flow::stream::StreamFlow;
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

    #[test]
    fn flows_that_came_from_peers_are_not_sent_back_until_packets_of_them_come() {
        let mut known = ImportedFlows::default();
        let mut came = NAMES.to_vec();
        came.push(EventItem::Exists(ExceptionKind::Import, flow(1, 0)));
        came.push(EventItem::Exists(ExceptionKind::Insert, flow(2, 1)));
        let (outgoing, has_lost) = known.select_events(&part(0, events(&came))).unwrap();
        assert_eq!((outgoing.records, has_lost), (1, false));
        let incoming = read_incoming(&outgoing.bytes).unwrap();
        assert_eq!(imported(&incoming.imports[0]), [(2, "b".to_string())]);
        // Neither in an export.
        let mut all = Vec::new();
        write_item(&StreamItem::Member(0, "a"), &mut all);
        [1, 2, 3].iter().for_each(|port| write_item(&StreamItem::Flow(flow(*port, 0)), &mut all));
        assert_eq!(known.select_part(&part(0, all.clone())).unwrap().records, 2);
        // Another worker's own.
        assert_eq!(known.select_part(&part(1, all.clone())).unwrap().records, 3);
        let mut seen = NAMES.to_vec();
        seen.push(EventItem::Exists(ExceptionKind::Insert, flow(1, 0)));
        assert_eq!(known.select_events(&part(0, events(&seen))).unwrap().0.records, 1);
        assert_eq!(known.select_part(&part(0, all)).unwrap().records, 3);
    }

    #[test]
    fn an_imported_flow_that_ended_is_forgotten_and_lost_events_are_reported() {
        let mut known = ImportedFlows::default();
        let mut came = NAMES.to_vec();
        came.push(EventItem::Exists(ExceptionKind::Import, flow(1, 0)));
        known.select_events(&part(0, events(&came))).unwrap();
        let ended = [
            EventItem::Position { worker: 0, seq: 9, has_lost: true },
            EventItem::Ended(flow(1, 0).key, Some(EndReason::Idle)),
        ];
        let (outgoing, has_lost) = known.select_events(&part(0, events(&ended))).unwrap();
        assert_eq!((outgoing.records, has_lost), (0, true));
        assert!(known.0[&0].is_empty());
    }

    #[test]
    fn a_stream_is_imported_in_parts_that_name_their_members() {
        let mut items = NAMES.to_vec();
        items.extend((1..=1500).map(|port| EventItem::Exists(ExceptionKind::State, flow(port, port % 2))));
        // From here on the number is another member's.
        items.push(EventItem::Member(1, "c"));
        items.push(EventItem::Exists(ExceptionKind::State, flow(2001, 1)));
        let incoming = read_incoming(&stream(&items)).unwrap();
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
        items.push(EventItem::Exists(ExceptionKind::Insert, flow(1, 0)));
        let bytes = stream(&items);
        assert_eq!(read_incoming(&bytes[..bytes.len() - 1]), Err(StreamError::Cut));
        assert_eq!(read_incoming(b"ARTE\0\x02\0\0"), Err(StreamError::Version(2)));
        assert_eq!(read_incoming(b"GET / HTTP/1.1"), Err(StreamError::Magic));
        assert_eq!(read_incoming(&empty().bytes), Ok(Incoming::default()));
    }
}
