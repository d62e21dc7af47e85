//! A packet's way as text.
use super::changes::changes;
use super::look::describe;
use super::records::{Event, Record, Snapshot, TracePath, Traced};
use std::time::Duration;

/// A packet: a line with its number, a line for each hop with what changed below it, and its
/// end; then its copies.
pub(super) fn packet(packet: &Traced) -> String {
    let Some(first) = packet.records.first() else { return String::new() };
    let mut text = heading(packet.number, first);
    let paths = packet.paths();
    let width = packet.records.iter().map(|record| place(record).chars().count()).max().unwrap_or(0);
    for path in &paths {
        text += &copy_heading(path);
        text += &steps(path, width, first.time);
        text += &end(path);
    }
    if packet.lost > 0 {
        text += &format!("  {} more events were not recorded\n", packet.lost);
    }
    text + "\n"
}

fn heading(number: usize, first: &Record) -> String {
    let length = first.snapshot.as_ref().map_or(String::new(), |shot| format!("{} bytes, ", shot.length));
    let (seconds, micros) = (first.time.as_secs(), first.time.subsec_micros());
    format!("packet {number}: {length}at {seconds}.{micros:06}, worker {}\n", first.worker)
}

fn copy_heading(path: &TracePath<'_>) -> String {
    match path.records.first() {
        Some(Record { event: Event::Copy { of, .. }, element, class, .. }) => {
            let of = if *of == 0 { "the packet".to_string() } else { format!("copy {of}") };
            format!("  copy {}, made of {of} by {element} ({class}):\n", path.copy)
        }
        _ => String::new(),
    }
}

/// The line of each hop, and what changed since the one before.
fn steps(path: &TracePath<'_>, width: usize, start: Duration) -> String {
    let mut text = String::new();
    let mut told = None;
    for (record, before) in path.steps() {
        let after = record.snapshot.as_ref();
        if let (Some(before), Some(after)) = (before, after) {
            changes(before, after).iter().for_each(|change| text += &format!("        {change}\n"));
        }
        if let (false, Some(after)) = (is_aside(record), after) {
            let circumstances = circumstances(record, &mut told, start);
            text += &hop(record, after, width, &circumstances);
        }
    }
    text
}

/// Whether a record gets no line of its own.
fn is_aside(record: &Record) -> bool {
    record.event.is_end() || matches!(record.event, Event::Copy { .. })
}

fn hop(record: &Record, look: &Snapshot, width: usize, circumstances: &str) -> String {
    format!("  {:<width$}  {circumstances}{}\n", place(record), describe(look))
}

/// By which ports it came, and where to.
fn place(record: &Record) -> String {
    let Record { element, class, .. } = record;
    match &record.event {
        Event::Begin => format!("{element} ({class})"),
        Event::Enter { input, output: Some(output) } => {
            format!("[{output}] -> [{input}] {element} ({class})")
        }
        Event::Enter { input, output: None } => format!("[{input}] {element} ({class})"),
        _ => String::new(),
    }
}

/// When and on which worker, where that is news.
fn circumstances(record: &Record, told: &mut Option<(Duration, usize)>, start: Duration) -> String {
    let now = (record.time, record.worker);
    let before = told.replace(now);
    let late = record.time.saturating_sub(start);
    let mut text = String::new();
    if before.is_some_and(|(time, _)| time != record.time) {
        text += &format!("+{late:?} ");
    }
    if before.is_some_and(|(_, worker)| worker != record.worker) {
        text += &format!("worker {} ", record.worker);
    }
    if text.is_empty() { text } else { format!("{}: ", text.trim_end()) }
}

fn end(path: &TracePath<'_>) -> String {
    let Some(last) = path.records.last() else { return String::new() };
    match &last.event {
        Event::Drop { reason } => format!("  dropped: {reason}\n"),
        Event::Sent { port, refused: 0 } => format!("  -> {port}\n"),
        Event::Sent { port, refused } => {
            format!("  -> {port}, which refused {refused} of the packets it was given with this one\n")
        }
        Event::Cut => "  cut into segments\n".to_string(),
        _ => format!("  still in {} ({})\n", last.element, last.class),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::build::ip4;

    fn record(copy: u8, millis: u64, event: Event, element: &str, ttl: Option<u8>) -> Record {
        let data =
            ttl.map(|ttl| ip4().src("10.0.0.1").dst("10.0.0.2").ttl(ttl).udp(5, 53).payload([0; 20]).bytes());
        let snapshot = data.map(|data| Snapshot {
            length: data.len(),
            in_port: 0,
            network: Some(0),
            paint: 0,
            dst: [0; 16],
            data,
        });
        let (time, worker) = (Duration::from_millis(millis), usize::from(millis > 100));
        let (element, class) = (element.to_string(), element.to_uppercase());
        Record { copy, time, worker, event, element, class, snapshot }
    }

    #[test]
    fn a_way_is_a_line_for_each_hop_with_changes_below_and_the_end() {
        let enter = |output| Event::Enter { input: 0, output };
        let records = vec![
            record(0, 100, Event::Begin, "n", Some(64)),
            record(0, 100, enter(Some(1)), "dec", Some(64)),
            record(0, 100, enter(Some(0)), "tee", Some(63)),
            record(1, 100, Event::Copy { of: 0, output: Some(0) }, "tee", Some(63)),
            record(1, 100, enter(None), "d", Some(63)),
            record(1, 100, Event::Drop { reason: "discarded".into() }, "d", Some(63)),
            record(0, 150, enter(Some(1)), "out", Some(63)),
            record(0, 150, Event::Sent { port: "eth1".into(), refused: 0 }, "out", None),
        ];
        let shown = packet(&Traced { number: 3, records, lost: 0 });
        let expected = "packet 3: 48 bytes, at 0.100000, worker 0
  n (N)                 IP 10.0.0.1.5 > 10.0.0.2.53: UDP, length 20
  [1] -> [0] dec (DEC)  IP 10.0.0.1.5 > 10.0.0.2.53: UDP, length 20
        ttl 64 -> 63
  [0] -> [0] tee (TEE)  IP 10.0.0.1.5 > 10.0.0.2.53: UDP, length 20
  [1] -> [0] out (OUT)  +50ms worker 1: IP 10.0.0.1.5 > 10.0.0.2.53: UDP, length 20
  -> eth1
  copy 1, made of the packet by tee (TEE):
  [0] d (D)             IP 10.0.0.1.5 > 10.0.0.2.53: UDP, length 20
  dropped: discarded

";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_packet_that_waits_says_where() {
        let enter = Event::Enter { input: 0, output: Some(0) };
        let shown = packet(&Traced { number: 1, records: vec![record(0, 1, enter, "q", Some(9))], lost: 5 });
        assert!(shown.ends_with("  still in q (Q)\n  5 more events were not recorded\n\n"), "{shown}");
    }
}
