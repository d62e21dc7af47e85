//! An export in parts that a router takes one by one, each a whole stream; and the check of a binary export,
//! before the first of them goes.
use artery_flow::stream::{StreamItem, StreamReader, write_header, write_item};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Flows of a chunk: packets wait for no more than these.
pub(super) const FLOWS: u64 = 512;
/// Bytes after which a chunk ends whatever it has: items that are not known here could be many.
const BYTES: usize = 1 << 20;

/// An export that makes sense from its beginning to its end.
#[derive(Debug, Default)]
pub(super) struct Checked<'a> {
    pub(super) chunks: Vec<Chunk<'a>>,
    /// How many flows each member has.
    pub(super) flows: BTreeMap<String, u64>,
}

/// Some flows on their way.
#[derive(Debug, Default)]
pub(super) struct Chunk<'a> {
    /// Members that the items mean by number, and do not name.
    members: Vec<(u16, &'a str)>,
    items: Cow<'a, [u8]>,
    flows: u64,
}

impl Chunk<'_> {
    /// A chunk of this many flows, as items that name their members.
    pub(super) fn of(items: Vec<u8>, flows: u64) -> Chunk<'static> {
        Chunk { members: Vec::new(), items: items.into(), flows }
    }

    /// What the router takes.
    pub(super) fn text(&self) -> String {
        let mut stream = Vec::with_capacity(self.items.len() + 1024);
        write_header(&mut stream);
        self.members
            .iter()
            .for_each(|(number, name)| write_item(&StreamItem::Member(*number, name), &mut stream));
        stream.extend_from_slice(&self.items);
        write_item(&StreamItem::End(self.flows), &mut stream);
        BASE64_STANDARD.encode(&stream)
    }
}

/// Checks a whole binary export, and divides it.
pub(super) fn check(stream: &[u8]) -> Result<Checked<'_>, String> {
    let mut reader = StreamReader::new(stream).map_err(|wrong| wrong.to_string())?;
    let mut cutter = Cutter { stream, from: stream.len() - reader.bytes_left(), ..Cutter::default() };
    let mut record = 1_u64;
    loop {
        let before = stream.len() - reader.bytes_left();
        let item = reader.next_item().map_err(|wrong| format!("record {record}: {wrong}"))?;
        // Long unknown items that were skipped do not go to the router.
        let start = stream.len() - reader.bytes_left_at_item();
        if start - cutter.from >= BYTES {
            cutter.cut(before, start);
        }
        match item {
            None => return Ok(cutter.finish()),
            Some(StreamItem::End(_)) => cutter.cut(before, before),
            // What machines tell one another, and no file has.
            Some(StreamItem::Owner(_) | StreamItem::Ended(..)) => {}
            Some(StreamItem::Member(number, name)) => cutter.member(number, name),
            Some(StreamItem::Flow(flow)) => {
                record += 1;
                cutter.flow(flow.answer.action as u16);
            }
        }
        let after = stream.len() - reader.bytes_left();
        if cutter.chunk.flows == FLOWS || after - cutter.from >= BYTES {
            cutter.cut(after, after);
        }
    }
}

/// Divides a stream while it is checked.
#[derive(Default)]
struct Cutter<'a> {
    stream: &'a [u8],
    /// Where the chunk begins.
    from: usize,
    chunk: Chunk<'a>,
    chunks: Vec<Chunk<'a>>,
    /// By number in the stream.
    members: Vec<Option<Named<'a>>>,
    /// By name, where in `counts`.
    names: BTreeMap<&'a str, usize>,
    counts: Vec<u64>,
}

/// What a number means.
#[derive(Clone, Copy)]
struct Named<'a> {
    name: &'a str,
    count: usize,
    /// The last chunk in which the name was written.
    chunk: usize,
}

impl<'a> Cutter<'a> {
    fn member(&mut self, number: u16, name: &'a str) {
        let count = *self.names.entry(name).or_insert_with(|| {
            self.counts.push(0);
            self.counts.len() - 1
        });
        let at = usize::from(number);
        self.members.resize(self.members.len().max(at + 1), None);
        self.members[at] = Some(Named { name, count, chunk: self.chunks.len() });
    }

    #[inline]
    fn flow(&mut self, number: u16) {
        self.chunk.flows += 1;
        // Which no stream lacks: its reader refuses flows of members that were not named.
        let Some(named) = self.members.get_mut(usize::from(number)).and_then(Option::as_mut) else { return };
        self.counts[named.count] += 1;
        if named.chunk != self.chunks.len() {
            named.chunk = self.chunks.len();
            self.chunk.members.push((number, named.name));
        }
    }

    /// Ends a chunk at `to`; the next begins at `from`.
    fn cut(&mut self, to: usize, from: usize) {
        let items = &self.stream[std::mem::replace(&mut self.from, from)..to];
        self.chunks.push(Chunk { items: items.into(), ..std::mem::take(&mut self.chunk) });
    }

    fn finish(mut self) -> Checked<'a> {
        self.chunks.retain(|chunk| chunk.flows > 0);
        let counts = self.counts;
        Checked {
            chunks: self.chunks,
            flows: self.names.into_iter().map(|(name, at)| (name.to_string(), counts[at])).collect(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use artery_flow::stream::{AnyKey, StreamFlow};
    use artery_flow::{Answer, FlowRecord, FlowState};
    use artery_wire::IpProtocol;
    use std::time::Duration;

    /// The stream that the router decodes.
    pub(crate) fn stream(chunk: &Chunk<'_>) -> Vec<u8> {
        BASE64_STANDARD.decode(chunk.text()).unwrap()
    }

    fn flow(port: u16, member: u16) -> StreamFlow {
        let ends = [("198.51.100.7".parse().unwrap(), port), ("192.0.2.1".parse().unwrap(), 80)];
        FlowRecord {
            key: AnyKey::new(ends, IpProtocol::TCP).unwrap(),
            answer: Answer { action: member.into(), generation: 0 },
            state: FlowState::Established,
            idle: Duration::ZERO,
            packets: 0,
            bytes: 0,
            version: 0,
            is_young: false,
            is_pinned: false,
            is_imported: false,
            epoch: 0,
        }
    }

    /// The port and the member's name of each flow of a stream.
    fn flows(stream: &[u8]) -> Vec<(u16, String)> {
        let (mut reader, mut names, mut flows) =
            (StreamReader::new(stream).unwrap(), BTreeMap::new(), Vec::new());
        while let Some(item) = reader.next_item().unwrap() {
            match item {
                StreamItem::Member(number, name) => drop(names.insert(u32::from(number), name)),
                StreamItem::Flow(flow) => {
                    flows.push((flow.key.endpoints()[0].1, names[&flow.answer.action].to_string()))
                }
                StreamItem::End(_) | StreamItem::Owner(_) | StreamItem::Ended(..) => {}
            }
        }
        flows
    }

    #[test]
    fn the_chunks_of_a_stream_have_its_flows_with_the_members_that_they_had_there() {
        let mut bytes = Vec::new();
        write_header(&mut bytes);
        (0..3).for_each(|n| write_item(&StreamItem::Member(n, &format!("web{n}")), &mut bytes));
        for n in 0..2000 {
            write_item(&StreamItem::Flow(flow(n + 1, n % 3)), &mut bytes);
            // The number of a member becomes another's now and then, also within a chunk, and
            // unknown items are long.
            if n % 100 == 99 {
                write_item(&StreamItem::Member(n / 100 % 3, &format!("web{n}")), &mut bytes);
            }
            if n % 50 == 0 {
                let unknown = [&1400_u16.to_be_bytes()[..], &[99; 1400]].concat();
                bytes.extend(unknown.repeat(if n == 1000 { 2000 } else { 100 }));
            }
        }
        write_item(&StreamItem::End(2000), &mut bytes);
        let checked = check(&bytes).unwrap();
        let parts: Vec<_> = checked.chunks.iter().map(|chunk| flows(&stream(chunk))).collect();
        assert_eq!(parts.concat(), flows(&bytes));
        assert!(parts.iter().all(|part| (1..=FLOWS as usize).contains(&part.len())));
        assert!(checked.chunks.iter().all(|chunk| chunk.items.len() < BYTES + 1500));
        let mut counts = BTreeMap::<String, u64>::new();
        flows(&bytes).into_iter().for_each(|(_, name)| *counts.entry(name).or_default() += 1);
        let named = |flows: BTreeMap<String, u64>| flows.into_iter().filter(|(_, count)| *count > 0);
        assert!(named(checked.flows).eq(counts));
    }
}
