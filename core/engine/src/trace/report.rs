//! A trace as text: a line with its state, a line that names columns, and a line for each record.
use super::session::{TraceState, Traced};
use super::{TraceEvent, TraceRecord};
use std::fmt::Write as _;

const COLUMNS: &str = "packet\tcopy\ttime\tworker\tevent\telement\tclass\tport\tdetail\t\
    length\tin_port\tnetwork\tpaint\tdst\tdata";

/// Writes it out. Packets are numbered from 1.
pub(super) fn write_report(state: &TraceState, packets: &[Traced]) -> String {
    let TraceState { number, wanted, seen, under_way } = state;
    let mut text = format!("trace={number} wanted={wanted} seen={seen} under_way={under_way}\n{COLUMNS}\n");
    for (packet, traced) in (1..).zip(packets) {
        traced.records.iter().for_each(|record| write_line(&mut text, packet, record));
        if traced.lost > 0 {
            let _ = writeln!(text, "{packet}\t\t\t\tlost\t\t\t\t{}\t\t\t\t\t\t", traced.lost);
        }
    }
    text
}

/// Writing to a string can't fail.
fn write_line(text: &mut String, packet: usize, record: &TraceRecord) {
    let TraceRecord { copy, time, worker, event, element, class, snapshot } = record;
    let (event, port, detail) = describe_event(event);
    let time = format!("{}.{:09}", time.seconds(), time.subsec_nanos());
    let of_element = format!("{worker}\t{event}\t{element}\t{class}\t{port}\t{detail}");
    let _ = write!(text, "{packet}\t{copy}\t{time}\t{of_element}");
    match snapshot {
        Some(shot) => {
            let network = shot.network.map_or(String::new(), |offset| offset.to_string());
            let _ = write!(text, "\t{}\t{}\t{network}\t{}", shot.length, shot.in_port, shot.paint);
            for bytes in [&shot.dst[..], &shot.data] {
                text.push('\t');
                bytes.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
            }
        }
        None => text.push_str("\t\t\t\t\t\t"),
    }
    text.push('\n');
}

/// The name of an event, the port of the element that it is about, and what else there is to say.
fn describe_event(event: &TraceEvent) -> (&'static str, String, String) {
    let number = |port: &Option<u16>| port.map_or(String::new(), |port| port.to_string());
    match event {
        TraceEvent::Began(output) => ("begin", output.to_string(), String::new()),
        TraceEvent::Entered(input, output) => ("enter", input.to_string(), number(output)),
        TraceEvent::Copied(of, output) => ("copy", number(output), of.to_string()),
        TraceEvent::Dropped(reason) => ("drop", String::new(), reason.name().to_string()),
        TraceEvent::Sent(port, 0) => ("sent", String::new(), port.clone()),
        TraceEvent::Sent(port, refused) => ("sent", refused.to_string(), port.clone()),
        TraceEvent::Cut => ("cut", String::new(), String::new()),
    }
}
