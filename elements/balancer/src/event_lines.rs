//! Events of flows, a line for each worker: as JSON, or in the byte format.
use super::event_queue::RecentEvents;
use super::exceptions::{ExceptionEvent, Exceptions};
use super::exchange::of_worker;
use super::follow::{FlowEvent, FlowEventKind, FlowEvents};
use artery_engine::HandlerError;
use artery_flow::Answer;
use artery_flow::stream::{
    AnyKey, EventItem, ExceptionKind, StreamFlow, protocol_name, reason_name, state_name, write_event,
};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::collections::HashMap;
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
    Ok(match start(asked, worker)? {
        Start::OtherWorker => String::new(),
        Start::NumberOnly => line(worker, follow.queue.next_number(), false, Vec::new()),
        Start::From(since) => recent_json(follow.queue.read_events(since, PART, now), worker, event_json),
    })
}

/// The same of exceptions.
pub(super) fn exceptions_json(
    follow: &mut Exceptions,
    asked: &str,
    worker: usize,
    now: Duration,
) -> Result<String, HandlerError> {
    let event_json = |event: &ExceptionEvent, seq, worker| exception_json(event, seq, worker, now);
    Ok(match start(asked, worker)? {
        Start::OtherWorker => String::new(),
        Start::NumberOnly => line(worker, follow.next_number(), false, Vec::new()),
        Start::From(since) => recent_json(follow.read_events(since, PART, now), worker, event_json),
    })
}

/// Exceptions in the byte format: `WORKER NEXT ITEMS`.
pub(super) fn exception_items(
    follow: &mut Exceptions,
    asked: &str,
    worker: usize,
    now: Duration,
) -> Result<String, HandlerError> {
    let since = match start(asked, worker)? {
        Start::OtherWorker => return Ok(String::new()),
        Start::NumberOnly => return Ok(format!("{worker} {} \n", follow.next_number())),
        Start::From(since) => since,
    };
    let RecentEvents { first, events, has_lost, next } = follow.read_events(since, PART, now);
    let (mut bytes, mut names) = (Vec::new(), HashMap::new());
    if has_lost || !events.is_empty() {
        write_event(&EventItem::Position { worker: worker as u16, seq: first, has_lost }, &mut bytes);
    }
    for event in events {
        match event {
            ExceptionEvent::Ended(end) => write_event(&EventItem::Ended(*end), &mut bytes),
            ExceptionEvent::Exists { what, flow, member, at } => {
                let count = names.len() as u16;
                let number = *names.entry(&**member).or_insert_with(|| {
                    write_event(&EventItem::Member(count, member), &mut bytes);
                    count
                });
                let answer = Answer { action: number.into(), generation: 0 };
                let idle = flow.idle + now.saturating_sub(*at);
                write_event(&EventItem::Exists(*what, StreamFlow { answer, idle, ..*flow }), &mut bytes);
            }
        }
    }
    Ok(format!("{worker} {next} {}\n", BASE64_STANDARD.encode(&bytes)))
}

/// From where on events are wanted of a worker.
enum Start {
    /// Only events of other workers are.
    OtherWorker,
    /// Only the number of the next event is.
    NumberOnly,
    /// From this number on, or from the next one.
    From(Option<u64>),
}

fn start(asked: &str, worker: usize) -> Result<Start, HandlerError> {
    match asked.trim() {
        "" => Ok(Start::NumberOnly),
        "now" => Ok(Start::From(None)),
        asked => Ok(of_worker(asked, worker)?.map_or(Start::OtherWorker, |since| Start::From(Some(since)))),
    }
}

fn recent_json<E>(
    recent: RecentEvents<'_, E>,
    worker: usize,
    event_json: impl Fn(&E, u64, usize) -> Value,
) -> String {
    let RecentEvents { first, events, has_lost, next } = recent;
    let events = events.into_iter().zip(first..).map(|(event, seq)| event_json(event, seq, worker)).collect();
    line(worker, next, has_lost, events)
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
        ExceptionEvent::Ended(end) => {
            let mut line = line_of_key("end", &end.key, seq, worker);
            line["reason"] = end.reason.map_or("settled", reason_name).into();
            line["imported"] = end.is_imported.into();
            line["epoch"] = end.epoch.into();
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
    line["imported"] = flow.is_imported.into();
    line["epoch"] = flow.epoch.into();
}
