//! `artery flow follow`: what happens to flows, a line of JSON for each event.
use super::FollowOptions;
use super::balancer::Balancer;
use super::output::FlowOutput;
use crate::output::{Output, OutputReader, print_on};
use crate::signals::end_flag;
use anyhow::{anyhow, bail};
use artery_flow::stream::write_event_header;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The handler that events come from, and the options of this command by which it is followed.
struct EventSource {
    handler: &'static str,
    options: &'static str,
}

const ALL: EventSource = EventSource { handler: "flow_events", options: "" };
const EXCEPTIONS: EventSource = EventSource { handler: "exception_events", options: " --exceptions" };
const EXCEPTION_ITEMS: EventSource =
    EventSource { handler: "exception_items", options: " --exceptions --binary" };

/// The pause between two polls of the router, where there was nothing new.
const PAUSE: Duration = Duration::from_millis(100);

/// The next event of each worker.
type Positions = BTreeMap<u64, u64>;

/// Prints events as they happen.
pub(super) fn follow(balancer: &mut Balancer, options: &FollowOptions) -> anyhow::Result<u8> {
    let interrupted = end_flag()?;
    let source = if options.exceptions { &EXCEPTIONS } else { &ALL };
    let mut positions = begin(balancer, source, options.since.as_deref())?;
    let mut left = options.count.unwrap_or(u64::MAX);
    while left > 0 && !interrupted.load(Relaxed) {
        let reply = balancer
            .query_workers(source.handler, &format_positions(&positions, " "))
            .map_err(|why| with_resume_hint(why, source, &positions))?;
        let (text, has_more) = format_events(&reply, source, &mut positions, &mut left);
        if !text.is_empty() && print_on(&text)? == OutputReader::Gone {
            return Ok(0);
        }
        if left > 0 && !has_more {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(0)
}

/// Writes exceptions in the binary form as they happen.
pub(super) fn follow_binary(balancer: &mut Balancer, options: &FollowOptions) -> anyhow::Result<u8> {
    let interrupted = end_flag()?;
    let mut positions = begin(balancer, &EXCEPTIONS, options.since.as_deref())?;
    let (mut output, mut bytes) = (FlowOutput::open(None)?, Vec::new());
    write_event_header(&mut bytes);
    loop {
        let is_gone = output.write(&bytes)? == OutputReader::Gone || output.flush()? == OutputReader::Gone;
        // Only here: what was read from the router is written, also after a signal.
        if is_gone || interrupted.load(Relaxed) {
            return Ok(0);
        }
        bytes.clear();
        let reply = balancer
            .query(EXCEPTION_ITEMS.handler, &format_positions(&positions, " "))
            .map_err(|why| with_resume_hint(why, &EXCEPTION_ITEMS, &positions))?;
        for line in reply.lines() {
            let (worker, next, items) =
                read_items(line).ok_or_else(|| anyhow!("the events make no sense"))?;
            positions.insert(worker, next);
            bytes.extend(items);
        }
        if bytes.is_empty() {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Parses `WORKER NEXT ITEMS`.
fn read_items(line: &str) -> Option<(u64, u64, Vec<u8>)> {
    let mut words = line.split(' ');
    let (worker, next) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some((worker, next, BASE64_STANDARD.decode(words.next()?).ok()?))
}

/// Why it ends, and how to go on.
fn with_resume_hint(why: anyhow::Error, source: &EventSource, positions: &Positions) -> anyhow::Error {
    let (options, since) = (source.options, format_positions(positions, ","));
    anyhow!(
        "{why:#}; if the router still runs, 'artery flow follow{options} --since {since}' goes on from here"
    )
}

/// Where to begin: with new events, or after those that were seen before.
fn begin(balancer: &mut Balancer, source: &EventSource, since: Option<&str>) -> anyhow::Result<Positions> {
    let question = if since.is_none() { "now" } else { "" };
    let now: Positions = balancer
        .query_workers(source.handler, question)?
        .iter()
        .map(|worker| (worker["worker"].as_u64().unwrap_or(0), worker["next"].as_u64().unwrap_or(0)))
        .collect();
    match since {
        None => Ok(now),
        Some(since) => read_since(since, now),
    }
}

/// `SEQ`, or `W:SEQ,W:SEQ`; workers that are not named begin now.
fn read_since(since: &str, mut now: Positions) -> anyhow::Result<Positions> {
    for word in since.split(',') {
        let (worker, seq) = match word.split_once(':') {
            Some((worker, seq)) => (worker.parse().ok(), seq),
            None if now.len() == 1 => (now.keys().next().copied(), word),
            None => bail!(
                "there are several workers; say of which, as in --since {}",
                format_positions(&now, ",")
            ),
        };
        let (Some(worker), Ok(seq)) = (worker, seq.parse::<u64>()) else {
            bail!("'{word}' is not a number of an event, or WORKER:NUMBER");
        };
        match now.get_mut(&worker) {
            Some(next) => *next = seq,
            None => bail!("worker {worker} does not exist; the router has {}", now.len()),
        }
    }
    Ok(now)
}

fn format_positions(positions: &Positions, separator: &str) -> String {
    positions.iter().map(|(worker, next)| format!("{worker}:{next}")).collect::<Vec<_>>().join(separator)
}

/// The lines of what happened, and whether there is more; `left` is how many are wanted.
fn format_events(
    reply: &[Value],
    source: &EventSource,
    positions: &mut Positions,
    left: &mut u64,
) -> (String, bool) {
    let (mut text, mut has_more) = (String::new(), false);
    for worker in reply {
        let number = worker["worker"].as_u64().unwrap_or(0);
        if worker["lost"] == true {
            Output::for_terminal().print_warning(&format!(
                "events of worker {number} are lost: 'artery flow export{}' shows how things are now",
                source.options
            ));
            text += &format!("{}\n", json!({ "worker": number, "event": "lost" }));
        }
        let events = worker["events"].as_array().map_or(&[][..], Vec::as_slice);
        for event in events.iter().take((*left).try_into().unwrap_or(usize::MAX)) {
            *left -= 1;
            text += &format!("{event}\n");
        }
        has_more |= !events.is_empty();
        positions.insert(number, worker["next"].as_u64().unwrap_or(0));
    }
    (text, has_more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_each_worker_go_on_where_it_was() {
        let mut positions = Positions::from([(0, 5), (1, 9)]);
        let event = |seq: u64| json!({ "seq": seq });
        let reply = [
            json!({ "worker": 0, "next": 7, "lost": false, "events": [event(5), event(6)] }),
            json!({ "worker": 1, "next": 30, "lost": true, "events": [event(29)] }),
        ];
        let mut left = 2;
        let (text, has_more) = format_events(&reply, &ALL, &mut positions, &mut left);
        assert_eq!(text, "{\"seq\":5}\n{\"seq\":6}\n{\"event\":\"lost\",\"worker\":1}\n");
        let reached = format_positions(&positions, ",");
        assert_eq!((reached.as_str(), left, has_more), ("0:7,1:30", 0, true));
        assert_eq!(read_since("1:4", positions.clone()).unwrap()[&1], 4);
        assert_eq!(read_since("4", Positions::from([(0, 5)])).unwrap()[&0], 4);
        for wrong in ["4", "7:1", "x", "0:x", ""] {
            assert!(read_since(wrong, positions.clone()).is_err(), "{wrong}");
        }
    }
}
