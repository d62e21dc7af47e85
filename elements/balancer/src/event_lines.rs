//! Events of flows as JSON, a line for each worker.
use super::event_queue::{EventQueue, RecentEvents};
use super::exceptions::{ExceptionEvent, ExceptionKind, Exceptions};
use super::exchange::of_worker;
use super::flow_stream::{AnyKey, StreamFlow};
use super::flow_words::{protocol_name, reason_name, state_name};
use super::follow::{FlowEvent, FlowEventKind, FlowEvents};
use artery_engine::HandlerError;
use serde_json::{Value, json};
use std::time::Duration;

/// Most events of a line.
const PART: usize = 512;

/// Recent events of all flows. `now` starts recording and returns the number of the next event; an empty text
/// only returns that number.
pub(super) fn events_json(
    follow: &mut FlowEvents,
    asked: &str,
    worker: usize,
    now: Duration,
) -> Result<String, HandlerError> {
    match asked.trim() {
        "" => Ok(line(worker, follow.queue.next_number(), false, Vec::new())),
        asked => recent_json(&mut follow.queue, asked, worker, now, event_json),
    }
}

/// The same of exceptions.
pub(super) fn exceptions_json(
    follow: &mut Exceptions,
    asked: &str,
    worker: usize,
    now: Duration,
) -> Result<String, HandlerError> {
    match asked.trim() {
        "" => Ok(line(worker, follow.next_number(), false, Vec::new())),
        asked => {
            let queue = follow.begin_reading(now);
            recent_json(queue, asked, worker, now, |event, seq, worker| {
                exception_json(event, seq, worker, now)
            })
        }
    }
}

fn recent_json<E>(
    queue: &mut EventQueue<E>,
    asked: &str,
    worker: usize,
    now: Duration,
    event_json: impl Fn(&E, u64, usize) -> Value,
) -> Result<String, HandlerError> {
    let since = match asked {
        "now" => None,
        asked => match of_worker(asked, worker)? {
            Some(since) => Some(since),
            None => return Ok(String::new()),
        },
    };
    let RecentEvents { first, events, has_lost, next } = queue.read_events(since, PART, now);
    let events = events.into_iter().zip(first..).map(|(event, seq)| event_json(event, seq, worker)).collect();
    Ok(line(worker, next, has_lost, events))
}

fn line(worker: usize, next: u64, has_lost: bool, events: Vec<Value>) -> String {
    format!("{}\n", json!({ "worker": worker, "next": next, "lost": has_lost, "events": events }))
}

/// The beginning of an event's line.
fn line_of_key(what: &str, key: &AnyKey, seq: u64, worker: usize) -> Value {
    let [(src, sport), (dst, dport)] = key.endpoints();
    json!({
        "worker": worker, "seq": seq, "event": what, "protocol": protocol_name(key.protocol()),
        "src": src, "sport": sport, "dst": dst, "dport": dport,
    })
}

fn event_json(event: &FlowEvent, seq: u64, worker: usize) -> Value {
    let what = match &event.what {
        FlowEventKind::Insert => "insert",
        FlowEventKind::Import => "import",
        FlowEventKind::Proven => "proven",
        FlowEventKind::State => "state",
        FlowEventKind::Moved(_) => "moved",
        FlowEventKind::End { .. } => "end",
    };
    let mut line = line_of_key(what, &event.key, seq, worker);
    line["member"] = event.member.as_deref().into();
    line["state"] = state_name(event.state).into();
    match &event.what {
        FlowEventKind::Moved(from) => line["from"] = from.as_deref().into(),
        FlowEventKind::End { reason, packets, bytes } => {
            line["reason"] = reason_name(*reason).into();
            line["packets"] = (*packets).into();
            line["bytes"] = (*bytes).into();
        }
        _ => {}
    }
    line
}

fn exception_json(event: &ExceptionEvent, seq: u64, worker: usize, now: Duration) -> Value {
    match event {
        ExceptionEvent::Ended { key, reason } => {
            let mut line = line_of_key("end", key, seq, worker);
            line["reason"] = reason.map_or("settled", reason_name).into();
            line
        }
        ExceptionEvent::Exists { what, flow, member, at } => {
            let mut line = line_of_key(kind_name(*what), &flow.key, seq, worker);
            add_flow(&mut line, flow, member, now.saturating_sub(*at));
            line
        }
    }
}

fn kind_name(what: ExceptionKind) -> &'static str {
    match what {
        ExceptionKind::Insert => "insert",
        ExceptionKind::Import => "import",
        ExceptionKind::Proven => "proven",
        ExceptionKind::State => "state",
    }
}

/// What an export says of a flow, as it was so long ago; its packets since are not known here.
fn add_flow(line: &mut Value, flow: &StreamFlow, member: &str, ago: Duration) {
    line["member"] = member.into();
    line["state"] = state_name(flow.state).into();
    line["idle"] = (((flow.idle + ago).as_micros() as u64 / 100) as f64 / 10_000.0).into();
    line["packets"] = flow.packets.into();
    line["bytes"] = flow.bytes.into();
    line["version"] = flow.version.into();
    line["young"] = flow.is_young.into();
    line["pinned"] = flow.is_pinned.into();
}
