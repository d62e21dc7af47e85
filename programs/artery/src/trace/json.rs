//! A trace for programs.
use super::changes::changes;
use super::look::{describe, is_v6, next_hop};
use super::records::{Event, Record, Snapshot, Trace, TracePath, Traced};
use serde_json::{Value, json};

pub(super) fn trace(trace: &Trace) -> Value {
    json!({
        "schema_version": 1, "version": crate::report::VERSION,
        "wanted": trace.wanted,
        "seen": trace.seen,
        "packets": trace.packets.iter().map(packet).collect::<Vec<_>>(),
    })
}

fn packet(packet: &Traced) -> Value {
    json!({
        "packet": packet.number,
        "ways": packet.paths().iter().map(path).collect::<Vec<_>>(),
        "events_not_recorded": packet.lost,
    })
}

fn path(path: &TracePath<'_>) -> Value {
    let made = path.records.first().and_then(|record| match &record.event {
        Event::Copy { of, .. } => {
            Some(json!({ "copy": of, "element": record.element, "class": record.class }))
        }
        _ => None,
    });
    let hops = path.steps().filter(|(record, _)| !record.event.is_end() && record.snapshot.is_some());
    let end = path.steps().find(|(record, _)| record.event.is_end());
    json!({
        "copy": path.copy,
        "made_of": made,
        "hops": hops.map(|(record, before)| hop(record, before)).collect::<Vec<_>>(),
        "end": end.map(|(record, before)| ended(record, before)),
    })
}

fn hop(record: &Record, before: Option<&Snapshot>) -> Value {
    let (input, output) = match record.event {
        Event::Enter { input, output } => (Some(input), output),
        _ => (None, None),
    };
    json!({
        "time": time(record),
        "worker": record.worker,
        "element": record.element,
        "class": record.class,
        "input": input,
        "from_output": output,
        "changes": changed(record, before),
        "look": record.snapshot.as_ref().map(look),
    })
}

fn look(snapshot: &Snapshot) -> Value {
    json!({
        "description": describe(snapshot),
        "length": snapshot.length,
        "in_port": snapshot.in_port,
        "network_offset": snapshot.network,
        "paint": snapshot.paint,
        "dst_annotation": next_hop(snapshot, is_v6(snapshot)).to_string(),
        "data": snapshot.data.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
    })
}

fn ended(record: &Record, before: Option<&Snapshot>) -> Value {
    let (kind, reason, port) = match &record.event {
        Event::Drop { reason } => ("dropped", Some(reason), None),
        Event::Sent { port, .. } => ("sent", None, Some(port)),
        _ => ("cut", None, None),
    };
    json!({
        "kind": kind,
        "reason": reason,
        "port": port,
        "time": time(record),
        "worker": record.worker,
        "element": record.element,
        "class": record.class,
        "changes": changed(record, before),
    })
}

fn changed(record: &Record, before: Option<&Snapshot>) -> Vec<String> {
    before.zip(record.snapshot.as_ref()).map_or(Vec::new(), |(before, after)| changes(before, after))
}

/// Seconds since the epoch, exactly.
fn time(record: &Record) -> String {
    format!("{}.{:09}", record.time.as_secs(), record.time.subsec_nanos())
}
