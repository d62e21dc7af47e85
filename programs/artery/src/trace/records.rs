//! The router's records of a trace, read by the names of their columns. There may be more columns than are
//! known here.
use std::time::Duration;

/// A trace, as far as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trace {
    /// Which of the router's traces.
    pub(super) number: u32,
    pub(super) wanted: usize,
    pub(super) seen: usize,
    pub(super) under_way: usize,
    pub(super) packets: Vec<Traced>,
}

/// A packet that was followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Traced {
    pub(super) number: usize,
    pub(super) records: Vec<Record>,
    /// Events that were not recorded.
    pub(super) lost: u64,
}

/// One event of a packet's way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Which copy of the packet; 0 is the packet itself.
    pub(super) copy: u8,
    pub(super) time: Duration,
    pub(super) worker: usize,
    pub(super) event: Event,
    pub(super) element: String,
    pub(super) class: String,
    pub(super) snapshot: Option<Snapshot>,
}

/// What happened to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// An element sent it that has no inputs.
    Begin,
    /// It came to an element: by this input, and from this output of the one before.
    Enter { input: u16, output: Option<u16> },
    /// It was made from another copy.
    Copy { of: u8, output: Option<u16> },
    /// It ended at an element, for a reason as drops are counted.
    Drop { reason: String },
    /// It was sent by a port; `refused` is how many of its batch the port refused.
    Sent { port: String, refused: u64 },
    /// Segments took its place.
    Cut,
}

/// What a packet looked like at a hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) length: usize,
    pub(super) in_port: u16,
    pub(super) network: Option<i64>,
    pub(super) paint: u8,
    /// The annotation with its destination or next hop, of either version of IP.
    pub(super) dst: [u8; 16],
    /// The first bytes of the packet.
    pub(super) data: Vec<u8>,
}

impl Event {
    pub(super) fn is_end(&self) -> bool {
        matches!(self, Event::Drop { .. } | Event::Sent { .. } | Event::Cut)
    }
}

impl Trace {
    pub(super) fn parse(text: &str) -> Option<Trace> {
        let mut lines = text.lines();
        let state = lines.next()?;
        let number = |name: &str| {
            let word = state.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            word?.parse::<usize>().ok()
        };
        let columns: Vec<&str> = lines.next()?.split('\t').collect();
        let mut packets: Vec<Traced> = Vec::new();
        for line in lines {
            add(&mut packets, &Row { columns: &columns, values: line.split('\t').collect() })?;
        }
        Some(Trace {
            number: number("trace")?.try_into().ok()?,
            wanted: number("wanted")?,
            seen: number("seen")?,
            under_way: number("under_way")?,
            packets,
        })
    }

    /// Whether no packet is on its way.
    pub(super) fn is_complete(&self) -> bool {
        self.under_way == 0
    }
}

/// One line of the trace, with the titles of its columns.
struct Row<'a> {
    columns: &'a [&'a str],
    values: Vec<&'a str>,
}

impl<'a> Row<'a> {
    fn text(&self, name: &str) -> Option<&'a str> {
        self.values.get(self.columns.iter().position(|column| *column == name)?).copied()
    }
    fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.text(name)?.parse().ok()
    }
}

fn add(packets: &mut Vec<Traced>, row: &Row<'_>) -> Option<()> {
    let number = row.number("packet")?;
    if packets.last().is_none_or(|last| last.number != number) {
        packets.push(Traced { number, records: Vec::new(), lost: 0 });
    }
    let packet = packets.last_mut()?;
    if row.text("event")? == "lost" {
        packet.lost = row.number("detail")?;
    } else {
        packet.records.push(record(row)?);
    }
    Some(())
}

fn record(row: &Row<'_>) -> Option<Record> {
    let (seconds, nanos) = row.text("time")?.split_once('.')?;
    let detail = row.text("detail")?;
    let event = match row.text("event")? {
        "begin" => Event::Begin,
        "enter" => Event::Enter { input: row.number("port")?, output: row.number("detail") },
        "copy" => Event::Copy { of: row.number("detail")?, output: row.number("port") },
        "drop" => Event::Drop { reason: detail.to_string() },
        "sent" => Event::Sent { port: detail.to_string(), refused: row.number("port").unwrap_or(0) },
        "cut" => Event::Cut,
        _ => return None,
    };
    let nanos = nanos.parse().ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Record {
        copy: row.number("copy")?,
        time: Duration::new(seconds.parse().ok()?, nanos),
        worker: row.number("worker")?,
        event,
        element: row.text("element")?.to_string(),
        class: row.text("class")?.to_string(),
        snapshot: snapshot(row),
    })
}

fn snapshot(row: &Row<'_>) -> Option<Snapshot> {
    Some(Snapshot {
        length: row.number("length")?,
        in_port: row.number("in_port")?,
        network: row.number("network"),
        paint: row.number("paint")?,
        dst: bytes(row.text("dst")?)?.try_into().ok()?,
        data: bytes(row.text("data")?)?,
    })
}

/// Bytes written as two digits each.
fn bytes(hex: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    hex.as_bytes().chunks(2).map(byte).collect()
}

/// The way of one copy of a packet.
pub(super) struct TracePath<'a> {
    pub(super) copy: u8,
    pub(super) records: Vec<&'a Record>,
    /// The packet that this one was copied from, at that moment.
    pub(super) origin: Option<&'a Snapshot>,
}

impl Traced {
    /// Whether the packet and all copies have ended.
    pub(super) fn is_complete(&self) -> bool {
        self.paths().iter().all(|path| path.records.last().is_some_and(|last| last.event.is_end()))
    }

    /// The packet's own way, then those of its copies.
    pub(super) fn paths(&self) -> Vec<TracePath<'_>> {
        let copies = self.records.iter().map(|record| record.copy).max().unwrap_or(0);
        let paths = (0..=copies).map(|copy| TracePath {
            copy,
            records: self.records.iter().filter(|record| record.copy == copy).collect(),
            origin: self.origin(copy),
        });
        paths.filter(|path| !path.records.is_empty()).collect()
    }

    fn origin(&self, copy: u8) -> Option<&Snapshot> {
        let made = |record: &Record| record.copy == copy && matches!(record.event, Event::Copy { .. });
        let at = self.records.iter().position(made)?;
        let Event::Copy { of, .. } = self.records[at].event else { return None };
        let maker = &self.records[at].element;
        let of = self.records[..at].iter().rev().filter(|record| record.copy == of);
        let mut at_maker = of.clone().filter(|record| record.element == *maker);
        at_maker.next().or(of.clone().next()).and_then(|record| record.snapshot.as_ref())
    }
}

impl<'a> TracePath<'a> {
    /// Each record, with the packet as it was before it.
    pub(super) fn steps(&self) -> impl Iterator<Item = (&'a Record, Option<&'a Snapshot>)> + '_ {
        self.records.iter().scan(self.origin, |last, record| {
            let before = *last;
            *last = record.snapshot.as_ref().or(before);
            Some((*record, before))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "trace=3 wanted=2 seen=1 under_way=1 more=5\n\
        packet\tcopy\ttime\tworker\tevent\telement\tclass\tport\tdetail\t\
        length\tin_port\tnetwork\tpaint\tnews\tdst\tdata\n\
        1\t0\t5.000000001\t0\tbegin\tn\tN\t0\t\t2\t0\t\t0\t?\t{DST}\t0aff\n\
        1\t1\t5.000000002\t0\tcopy\tn\tN\t\t0\t2\t0\t-14\t0\t?\t{DST}\t0aff\n\
        1\t1\t5.000000003\t1\tsent\tt\tT\t\teth0\t\t\t\t\t\t\t\n\
        1\t\t\t\tlost\t\t\t\t7\t\t\t\t\t\t\n";

    fn text() -> String {
        TEXT.replace("{DST}", "0a000009000000000000000000000000")
    }

    #[test]
    fn columns_are_known_by_name_and_paths_are_those_of_copies() {
        let trace = Trace::parse(&text()).unwrap();
        assert_eq!((trace.number, trace.wanted, trace.seen, trace.under_way), (3, 2, 1, 1));
        let packet = &trace.packets[0];
        assert_eq!((packet.records.len(), packet.lost, packet.is_complete()), (3, 7, false));
        let paths = packet.paths();
        assert_eq!(paths.iter().map(|path| path.records.len()).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(paths[1].origin.unwrap().data, [0x0a, 0xff]);
        assert_eq!(paths[1].origin.unwrap().dst[..5], [10, 0, 0, 9, 0]);
        let sent = paths[1].records[1];
        assert_eq!(sent.event, Event::Sent { port: "eth0".into(), refused: 0 });
        assert_eq!((sent.time, sent.snapshot.is_none()), (Duration::new(5, 3), true));
    }

    #[test]
    fn what_makes_no_sense_is_no_trace() {
        assert_eq!(Trace::parse(""), None);
        assert_eq!(Trace::parse("trace=1\n\n"), None);
        for (good, bad) in
            [("begin", "began"), ("5.000000001", "5"), ("under_way=1", "under_way="), ("packet", "p")]
        {
            assert_eq!(Trace::parse(&text().replacen(good, bad, 1)), None, "{bad}");
        }
    }
}
