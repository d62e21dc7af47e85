//! The byte format of events of exceptions. `docs/flow.md` describes it.
//!
//! It has the items of the format of flows, and kinds of its own. A stream has no end: it may be read item by
//! item as it comes, see [`EventReader::continue_with`].
use super::fields::Fields;
use super::flows::{
    AnyKey, MEMBER, NamedMembers, StreamError, StreamFlow, skip_header, split_body, write_body, write_flow,
    write_header_of, write_key, write_member,
};
use crate::EndReason;

/// The first bytes of a stream of events.
const MAGIC: [u8; 4] = *b"ARTE";

/// Values of the kind byte of items, which those of flows don't have.
const EXISTS4: u8 = 16;
const EXISTS6: u8 = 17;
const ENDED4: u8 = 18;
const ENDED6: u8 = 19;
const POSITION: u8 = 20;

/// What a stream of events consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventItem<'a> {
    /// From here on this number means the member of this name.
    Member(u16, &'a str),
    /// From here on events are those of this worker. The first has this number, and each the next one.
    Position {
        /// Number of the worker, from 0.
        worker: u16,
        /// The number of the event that follows, or the next one to come.
        seq: u64,
        /// Events before that are missing.
        has_lost: bool,
    },
    /// A flow is an exception, and as it says.
    Exists(ExceptionKind, StreamFlow),
    /// A flow has ceased to be an exception.
    Ended(ExceptionEnd),
}

/// A flow has ceased to be an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExceptionEnd {
    /// Addresses, ports and protocol of the flow.
    pub key: AnyKey,
    /// Why it ended; None if its member is the computed one again, or is gone.
    pub reason: Option<EndReason>,
    /// Whether it was known from an import only.
    pub is_imported: bool,
    /// How often machines had taken the flow over.
    pub epoch: u16,
}

/// Why clients read of an exception now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExceptionKind {
    /// It is one now, and packets of it were seen; or the first packet of an imported one.
    Insert = 1,
    /// It is one now, and was imported.
    Import = 2,
    /// It is more than an attempt.
    Proven = 3,
    /// It is in another state.
    State = 4,
}

impl ExceptionKind {
    const ALL: [ExceptionKind; 4] =
        [ExceptionKind::Insert, ExceptionKind::Import, ExceptionKind::Proven, ExceptionKind::State];
}

/// Appends the beginning of a stream.
pub fn write_event_header(into: &mut Vec<u8>) {
    write_header_of(MAGIC, into);
}

/// Appends one item to `into`, with its length before it.
pub fn write_event(item: &EventItem<'_>, into: &mut Vec<u8>) {
    match item {
        EventItem::Member(number, name) => write_member(*number, name, into),
        EventItem::Position { worker, seq, has_lost } => write_body(into, |into| {
            into.push(POSITION);
            into.extend(worker.to_be_bytes());
            into.extend(seq.to_be_bytes());
            into.push(u8::from(*has_lost));
        }),
        EventItem::Exists(what, flow) => write_body(into, |into| {
            into.push(if flow.key.is_ipv4() { EXISTS4 } else { EXISTS6 });
            into.push(*what as u8);
            write_flow(flow, into);
        }),
        EventItem::Ended(ExceptionEnd { key, reason, is_imported, epoch }) => write_body(into, |into| {
            into.push(if key.is_ipv4() { ENDED4 } else { ENDED6 });
            into.push(reason_number(*reason));
            write_key(key, into);
            into.push(u8::from(*is_imported));
            into.extend(epoch.to_be_bytes());
        }),
    }
}

/// By the number of the reason.
const REASONS: [Option<EndReason>; 4] =
    [None, Some(EndReason::Idle), Some(EndReason::Displaced), Some(EndReason::Removed)];

fn reason_number(reason: Option<EndReason>) -> u8 {
    REASONS.iter().position(|known| *known == reason).map_or(0, |number| number as u8)
}

/// Reads events, item by item. Items of unknown kinds are passed over; the number of an unknown event or
/// reason is an error.
pub struct EventReader<'a> {
    rest: &'a [u8],
    named: NamedMembers,
}

impl<'a> EventReader<'a> {
    /// Reads a stream from its header on.
    pub fn new(bytes: &'a [u8]) -> Result<EventReader<'a>, StreamError> {
        Ok(EventReader::of_items(skip_header(bytes, MAGIC)?))
    }
    /// Reads items without a header, as a router tells them in parts.
    pub fn of_items(items: &'a [u8]) -> EventReader<'a> {
        EventReader { rest: items, named: NamedMembers::default() }
    }

    /// How many bytes are left: after [`StreamError::Cut`], those of the item of which more is to come.
    pub fn bytes_left(&self) -> usize {
        self.rest.len()
    }

    /// Goes on with bytes that have come: those that were [left](Self::bytes_left), and more after them. The
    /// members that were named stay known.
    pub fn continue_with(self, bytes: &[u8]) -> EventReader<'_> {
        EventReader { rest: bytes, named: self.named }
    }

    /// The next item; None where the bytes end behind one.
    pub fn next_event(&mut self) -> Result<Option<EventItem<'a>>, StreamError> {
        while !self.rest.is_empty() {
            let (body, rest) = split_body(self.rest)?;
            self.rest = rest;
            if let Some(item) = self.parse_item(body)? {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    /// Parses an item's body; None if its kind is unknown here.
    fn parse_item(&mut self, body: &'a [u8]) -> Result<Option<EventItem<'a>>, StreamError> {
        let (kind, rest) = body.split_first().ok_or(StreamError::TooShort)?;
        let mut fields = Fields(rest);
        Ok(Some(match *kind {
            MEMBER => {
                let (number, name) = self.named.parse_member(fields)?;
                EventItem::Member(number, name)
            }
            POSITION => {
                let (worker, seq) = (fields.u16()?, fields.u64()?);
                EventItem::Position { worker, seq, has_lost: fields.u8()? & 1 != 0 }
            }
            kind @ (EXISTS4 | EXISTS6) => {
                let what = fields.u8()?;
                let known = ExceptionKind::ALL.into_iter().find(|known| *known as u8 == what);
                let flow = self.named.parse_flow(fields, kind == EXISTS4)?;
                EventItem::Exists(known.ok_or(StreamError::Event(what))?, flow)
            }
            kind @ (ENDED4 | ENDED6) => parse_end(fields, kind == ENDED4)?,
            _ => return Ok(None),
        }))
    }
}

fn parse_end<'a>(mut fields: Fields<'a>, is_ipv4: bool) -> Result<EventItem<'a>, StreamError> {
    let reason = fields.u8()?;
    let known = REASONS.get(usize::from(reason)).ok_or(StreamError::Event(reason))?;
    let key = fields.key(is_ipv4)?;
    // Not in records of earlier versions.
    let (is_imported, epoch) = match fields.0.is_empty() {
        true => (false, 0),
        false => (fields.u8()? & 1 != 0, fields.u16()?),
    };
    Ok(EventItem::Ended(ExceptionEnd { key, reason: *known, is_imported, epoch }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, FlowRecord, FlowState};
    use artery_wire::IpProtocol;
    use proptest::prelude::*;
    use std::time::Duration;

    fn key(n: u16) -> AnyKey {
        let ends = match n % 2 {
            0 => [("198.51.100.7".parse().unwrap(), n + 1), ("192.0.2.1".parse().unwrap(), 80)],
            _ => [("2001:db8::7".parse().unwrap(), n + 1), ("2001:db8::1".parse().unwrap(), 443)],
        };
        AnyKey::new(ends, IpProtocol::UDP).unwrap()
    }
    fn flow(n: u16) -> StreamFlow {
        FlowRecord {
            key: key(n),
            answer: Answer { action: u32::from(n % 2), generation: 0 },
            state: FlowState::UdpStream,
            idle: Duration::from_millis(n.into()),
            packets: n.into(),
            bytes: u64::from(n) << 33,
            version: n,
            is_young: n.is_multiple_of(3),
            is_pinned: n.is_multiple_of(5),
            is_imported: n.is_multiple_of(2),
            epoch: n << 9,
        }
    }
    fn items() -> Vec<EventItem<'static>> {
        let mut items = vec![
            EventItem::Member(0, "a"),
            EventItem::Member(1, "web-2"),
            EventItem::Position { worker: 3, seq: u64::MAX, has_lost: true },
        ];
        items.extend((0..4).map(|n| EventItem::Exists(ExceptionKind::ALL[usize::from(n)], flow(n))));
        items.push(EventItem::Position { worker: 0, seq: 7, has_lost: false });
        items.extend((0..4).map(|n| {
            let reason = REASONS[usize::from(n)];
            EventItem::Ended(ExceptionEnd { key: key(n), reason, is_imported: n > 1, epoch: n })
        }));
        items
    }
    fn stream(items: &[EventItem<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_event_header(&mut bytes);
        items.iter().for_each(|item| write_event(item, &mut bytes));
        bytes
    }
    fn read(bytes: &[u8]) -> (Vec<EventItem<'_>>, Result<(), StreamError>) {
        let mut items = Vec::new();
        let mut reader = match EventReader::new(bytes) {
            Ok(reader) => reader,
            Err(wrong) => return (items, Err(wrong)),
        };
        loop {
            match reader.next_event() {
                Ok(Some(item)) => items.push(item),
                Ok(None) => return (items, Ok(())),
                Err(wrong) => return (items, Err(wrong)),
            }
        }
    }

    #[test]
    fn what_is_written_is_read_again_up_to_where_it_is_cut() {
        let (items, bytes) = (items(), stream(&items()));
        assert_eq!(read(&bytes), (items.clone(), Ok(())));
        let mut ends: Vec<usize> = (0..=items.len()).map(|count| stream(&items[..count]).len()).collect();
        for len in 0..bytes.len() {
            let whole = ends.iter().filter(|end| **end <= len).count();
            let expected = if ends.contains(&len) { Ok(()) } else { Err(StreamError::Cut) };
            assert_eq!(read(&bytes[..len]), (items[..whole.saturating_sub(1)].to_vec(), expected), "{len}");
        }
        ends.dedup();
        assert_eq!(ends.len(), items.len() + 1);
        // Of IPv4; those of IPv6 are 24 bytes longer.
        let size = |item| stream(&[item]).len() - stream(&[]).len();
        assert_eq!((size(EventItem::Exists(ExceptionKind::Insert, flow(0))), size(items[8])), (45, 20));
    }

    #[test]
    fn a_stream_that_comes_in_two_pieces_is_read_as_one() {
        let (items, bytes) = (items(), stream(&items()));
        for cut in stream(&[]).len()..=bytes.len() {
            let mut reader = EventReader::new(&bytes[..cut]).unwrap();
            let mut read = Vec::new();
            while let Ok(Some(item)) = reader.next_event() {
                read.push(item);
            }
            let left = reader.bytes_left();
            let mut reader = reader.continue_with(&bytes[cut - left..]);
            while let Some(item) = reader.next_event().unwrap() {
                read.push(item);
            }
            assert_eq!(read, items, "{cut}");
        }
    }

    #[test]
    fn fields_and_items_of_later_versions_are_passed_over_and_nonsense_is_refused() {
        let mut bytes = stream(&[]);
        for item in items() {
            let mut own = Vec::new();
            write_event(&item, &mut own);
            write_body(&mut bytes, |into| into.extend([&own[2..], b"more"].concat()));
            write_body(&mut bytes, |into| into.extend(b"\xfeunknown"));
        }
        assert_eq!(read(&bytes), (items(), Ok(())));
        let body = |at: usize, with: u8, item: &EventItem<'_>| {
            let mut own = stream(&items()[..2]);
            let start = own.len();
            write_event(item, &mut own);
            own[start + 2 + at] = with;
            read(&own).1.unwrap_err()
        };
        let (exists, ended) = (EventItem::Exists(ExceptionKind::State, flow(0)), items()[8]);
        assert_eq!(body(1, 9, &exists), StreamError::Event(9));
        assert_eq!(body(2, 1, &exists), StreamError::Protocol(1));
        assert_eq!(body(3, 0, &exists), StreamError::State(0));
        assert_eq!(body(6, 9, &exists), StreamError::Unnamed(9));
        assert_eq!(body(1, 4, &ended), StreamError::Event(4));
        assert_eq!(body(2, 1, &ended), StreamError::Protocol(1));
        assert_eq!(read(b"ARTF\0\x01\0\0").1, Err(StreamError::Magic));
        assert_eq!(read(b"ARTE\0\x02\0\0").1, Err(StreamError::Version(2)));
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_reader_panic(bytes: Vec<u8>, at in 0_usize..400, with: u8) {
            let _ = read(&bytes);
            let mut items = EventReader::of_items(&bytes);
            while let Ok(Some(_)) = items.next_event() {}
            let mut damaged = stream(&self::items());
            let at = at % damaged.len();
            damaged[at] = with;
            let _ = read(&damaged);
        }
    }
}
