//! `artery flow show` and `artery flow export`: a walk over the flows of all workers, part by part.
use super::balancer::Balancer;
use super::json::{self, FIRST_LINE};
use super::output::FlowOutput;
use super::{ExportOptions, ShowOptions};
use crate::output::{OutputReader as Listener, print_on};
use anyhow::{Context as _, anyhow};
use artery_flow::stream::{
    StreamFlow, StreamItem, StreamReader, protocol_name, state_name, write_header, write_item,
};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::collections::HashMap;
use std::net::SocketAddr;

/// A walk over the tables of all workers.
struct Walk {
    handler: &'static str,
    /// The next part to request; None before the first part.
    next: Option<String>,
}

/// Flows of a worker, as items of a stream.
struct Part {
    worker: usize,
    items: Vec<u8>,
}

impl Walk {
    /// A walk over all flows, not only exceptions.
    fn of_all() -> Walk {
        Walk { handler: "flows_part", next: None }
    }
    /// Over those that the method would give another member now.
    fn of_exceptions() -> Walk {
        Walk { handler: "exceptions_part", next: None }
    }

    /// The next parts, one of each worker that has more. None at the end.
    fn parts(&mut self, balancer: &mut Balancer) -> anyhow::Result<Vec<Part>> {
        if self.next.as_deref() == Some("") {
            return Ok(Vec::new());
        }
        let text = balancer.query(self.handler, self.next.as_deref().unwrap_or(""))?;
        let (mut parts, mut next) = (Vec::new(), Vec::new());
        for line in text.lines() {
            let (part, at) = read_part(line).ok_or_else(|| anyhow!("the router's flows make no sense"))?;
            next.extend(at.map(|at| format!("{}:{at}", part.worker)));
            parts.push(part);
        }
        self.next = Some(next.join(" "));
        Ok(parts)
    }
}

/// Parses `WORKER NEXT ITEMS`, where NEXT may be `-`.
fn read_part(line: &str) -> Option<(Part, Option<u64>)> {
    let mut words = line.split(' ');
    let worker = words.next()?.parse().ok()?;
    let at = match words.next()? {
        "-" => None,
        at => Some(at.parse().ok()?),
    };
    Some((Part { worker, items: BASE64_STANDARD.decode(words.next()?).ok()? }, at))
}

/// Calls `each` with the flows of a part and the names of their members, until it says that it is enough.
fn flows_of(part: &Part, mut each: impl FnMut(&StreamFlow, &str) -> bool) -> anyhow::Result<()> {
    let mut names = HashMap::new();
    let mut reader = StreamReader::of_items(&part.items);
    while reader.bytes_left() > 0 {
        match reader.next_item().context("the router's flows make no sense")? {
            Some(StreamItem::Member(number, name)) => {
                names.insert(u32::from(number), name);
            }
            Some(StreamItem::Flow(flow)) => {
                if !each(&flow, names.get(&flow.answer.action).copied().unwrap_or("")) {
                    break;
                }
            }
            Some(StreamItem::Owner(_) | StreamItem::Ended(..)) => {}
            Some(StreamItem::End(_)) | None => break,
        }
    }
    Ok(())
}

pub(super) fn export(balancer: &mut Balancer, options: &ExportOptions) -> anyhow::Result<u8> {
    let mut walk = if options.exceptions { Walk::of_exceptions() } else { Walk::of_all() };
    // The first part is requested before the file is made: if the export fails at once, no file is left.
    let mut parts = walk.parts(balancer)?;
    let mut output = FlowOutput::open(options.file.as_deref())?;
    let (mut count, mut bytes) = (0, Vec::new());
    match options.binary {
        true => write_header(&mut bytes),
        false => bytes.extend(FIRST_LINE.as_bytes()),
    }
    while !parts.is_empty() {
        for part in &parts {
            flows_of(part, |flow, name| {
                count += 1;
                if !options.binary {
                    json::write(flow, name, None, &mut bytes);
                }
                true
            })?;
            if options.binary {
                bytes.extend(&part.items);
            }
        }
        if output.write(&bytes)? == Listener::Gone {
            return Ok(0);
        }
        bytes.clear();
        parts = walk.parts(balancer)?;
    }
    match options.binary {
        true => write_item(&StreamItem::End(count), &mut bytes),
        false => bytes.extend(json::last_line(count).as_bytes()),
    }
    if output.write(&bytes)? == Listener::There {
        let _ = output.flush()?;
    }
    Ok(0)
}

pub(super) fn show(balancer: &mut Balancer, options: &ShowOptions) -> anyhow::Result<u8> {
    let (mut walk, mut left) = (Walk::of_all(), options.limit.unwrap_or(u64::MAX));
    let mut text = if options.json { String::new() } else { titles() };
    let is_meant = |flow: &StreamFlow, name: &str| {
        options.member.as_deref().is_none_or(|wanted| wanted == name)
            && options.client.is_none_or(|client| flow.key.endpoints()[0].0 == client)
    };
    let mut parts = walk.parts(balancer)?;
    while !parts.is_empty() {
        for part in &parts {
            flows_of(part, |flow, name| {
                if left > 0 && is_meant(flow, name) {
                    left -= 1;
                    text += &shown(flow, name, part.worker, options.json);
                }
                left > 0
            })?;
        }
        if print_on(&std::mem::take(&mut text))? == Listener::Gone || left == 0 {
            return Ok(0);
        }
        parts = walk.parts(balancer)?;
    }
    print_on(&text).map(|_| 0)
}

fn shown(flow: &StreamFlow, name: &str, worker: usize, as_json: bool) -> String {
    if as_json {
        let mut line = Vec::new();
        json::write(flow, name, Some(worker), &mut line);
        return String::from_utf8(line).unwrap_or_default();
    }
    let [client, service] =
        flow.key.endpoints().map(|(address, port)| SocketAddr::new(address, port).to_string());
    let mut state = state_name(flow.state).to_string();
    state += if flow.is_young { " (young)" } else { "" };
    state += if flow.is_pinned { " (pinned)" } else { "" };
    let idle = format!("{:.1}", flow.idle.as_secs_f64());
    row([
        &worker.to_string(),
        protocol_name(flow.key.protocol()),
        &client,
        &service,
        name,
        &state,
        &idle,
        &flow.packets.to_string(),
        &flow.bytes.to_string(),
    ])
}

fn titles() -> String {
    row(["WORKER", "PROTOCOL", "CLIENT", "SERVICE", "MEMBER", "STATE", "IDLE", "PACKETS", "BYTES"])
}

/// Rows are printed as flows arrive, before the widest is known: columns have a fixed width.
fn row([worker, protocol, client, service, member, state, idle, packets, bytes]: [&str; 9]) -> String {
    format!(
        "{worker:<6}  {protocol:<8}  {client:<21}  {service:<21}  {member:<12}  {state:<19}  {idle:>8}  \
         {packets:>10}  {bytes:>12}\n"
    )
}
