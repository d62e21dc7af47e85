//! `artery explain`: what a running router would do with a packet.
mod filter;
mod service;

use crate::control_socket::Client;
use crate::ip_router::{IpRouter, RouterReach, list, text};
use crate::options::values::port;
use crate::output::print_stdout;
use anyhow::Context as _;
use clap::Args;
use filter::FilteredPacket;
use serde_json::Value;
use std::fmt::Write as _;

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery explain \"10.1.2.3:1234 > 8.8.8.8:53 udp\" --in eth1
  artery explain \"10.1.2.3 > 10.0.2.9 icmp ttl 1 len 1500 df\" --in eth1
  artery explain \"10.0.1.1 > 10.0.2.9\" --in host
  artery explain --adopt \"10.0.1.2:1234 > 10.0.2.2:80 tcp\" --in eth0

A packet is ADDRESS[:PORT] > ADDRESS[:PORT], then 'udp', 'tcp', 'icmp' or 'proto N', flags of TCP ('syn',
'ack', 'fin', 'rst'), 'ttl N', 'len N' and 'df', as far as it matters; or 'frame' and its bytes in
hexadecimal. Each line is a step on its way; the last one says what becomes of it, in the words of 'artery
show drops'. Of a packet for a service it says which member gets it, and of a packet filter around the router
(--pf) which rule or state decides, where the packet comes in and where it leaves. With --adopt a running
'artery adopt' says whether its programs forward the packet, what stands in the way, what connection tracking
knows of it, and what the kernel's routes and rules do with it; TCP without flags is an 'ack' there, and
otherwise a 'syn'. Nothing is sent, counted or changed.";

#[derive(Args)]
pub(crate) struct ExplainOptions {
    #[command(flatten)]
    router: RouterReach,
    /// The packet, as text or as a frame in hexadecimal
    #[arg(required = true, value_name = "PACKET")]
    packet: Vec<String>,
    /// The port that it comes by, or 'host'
    #[arg(long = "in", value_name = "PORT", value_parser = port)]
    came_by: String,
    /// Ask a running 'artery adopt' instead of a router
    #[arg(long, conflicts_with = "element")]
    adopt: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(options: &ExplainOptions) -> anyhow::Result<u8> {
    let packet = options.packet.join(" ");
    let document = match options.adopt {
        true => explain_adopted(options, &packet)?,
        false => explain(&mut IpRouter::find(&options.router)?, &options.came_by, &packet)?,
    };
    let text = if options.json { format!("{document:#}\n") } else { explained(&document) };
    print_stdout(&text).map(|()| 0)
}

/// The document of a running `artery adopt` about a packet.
fn explain_adopted(options: &ExplainOptions, packet: &str) -> anyhow::Result<Value> {
    let mut client = Client::connect(&options.router.reach)?;
    let answer = client.query("explain", &format!("{} {packet}", options.came_by))?;
    serde_json::from_str(&answer).context("what it says makes no sense: is it of another version?")
}

/// The router's document about a packet, with the steps of services and packet filters around it.
fn explain(router: &mut IpRouter, came_by: &str, packet: &str) -> anyhow::Result<Value> {
    // The router itself reports mistakes in the query.
    let plain = router.query("explain_json", &format!("{came_by} {packet}"))?;
    let mut filtered = FilteredPacket::new(packet);
    // What the host sends passes no filter on its way in, and no service.
    if came_by != "host" {
        filtered.ask(router, "in", came_by, &text(&plain, "frame"))?;
    }
    let arrived = std::mem::take(&mut filtered.stages);
    if let Some(verdict) = filtered.verdict {
        return Ok(end_behind_arrival(plain, arrived, verdict));
    }
    let mut document = route(router, came_by, &filtered, plain)?;
    insert_behind_arrival(&mut document, arrived);
    if let Some(port) = document["verdict"]["port"].as_str().map(str::to_string) {
        filtered.ask(router, "out", &port, &text(&document, "frame"))?;
        if let Some(stages) = document["stages"].as_array_mut() {
            stages.append(&mut filtered.stages);
        }
        if let Some(verdict) = filtered.verdict {
            document["verdict"] = verdict;
        }
    }
    Ok(document)
}

/// What services and the router do with a packet that filters let in.
fn route(
    router: &mut IpRouter,
    came_by: &str,
    filtered: &FilteredPacket,
    plain: Value,
) -> anyhow::Result<Value> {
    let FilteredPacket { packet, gateway, .. } = filtered;
    let served = if came_by == "host" { None } else { service::find_service(router, packet)? };
    let mut ask = |question: String| router.query("explain_json", &question);
    let mut said = match (served, gateway) {
        (Some(served), _) => served.explain_with_router(router, came_by, packet, plain.clone())?,
        (None, Some(gateway)) => ask(format!("{came_by} towards {gateway} {packet}"))?,
        (None, None) if packet.starts_with("frame ") => ask(format!("{came_by} {packet}"))?,
        (None, None) => plain.clone(),
    };
    // What was asked about, whatever it becomes on its way.
    said["packet"] = plain["packet"].clone();
    Ok(said)
}

/// Puts steps behind the arrival, which all explanations begin with.
fn insert_behind_arrival(document: &mut Value, steps: Vec<Value>) {
    if let Some(stages) = document["stages"].as_array_mut() {
        let at = stages.len().min(1);
        stages.splice(at..at, steps);
    }
}

/// The explanation of a packet that ends in these steps behind its arrival.
fn end_behind_arrival(mut plain: Value, steps: Vec<Value>, verdict: Value) -> Value {
    let arrival = list(&plain, "stages").first().cloned();
    plain["stages"] = arrival.into_iter().chain(steps).collect();
    plain["verdict"] = verdict;
    plain
}

/// A line for each step, and the verdict.
fn explained(document: &Value) -> String {
    let mut said = format!("{}\n", text(document, "packet"));
    let stages = list(document, "stages");
    let width = stages.iter().map(|stage| text(stage, "stage").len()).max().unwrap_or(0).max("verdict".len());
    for stage in stages {
        let mark = if stage["ok"] == false { "x" } else { " " };
        let _ = writeln!(said, "{mark} {:<width$}  {}", text(stage, "stage"), text(stage, "text"));
    }
    let _ = writeln!(said, "= {:<width$}  {}", "verdict", text(&document["verdict"], "text"));
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn steps_stand_under_one_another_and_the_one_that_ends_it_is_marked() {
        let document = json!({ "schema_version": 1, "packet": "IP a > b", "in": "eth1",
            "stages": [{ "stage": "arrival", "ok": true, "text": "by eth1" },
                       { "stage": "ttl", "ok": false, "text": "1 hops left: ttl expired" }],
            "verdict": { "kind": "discard", "text": "dropped: ttl expired", "reason": "ttl expired" } });
        let expected = "\
IP a > b
  arrival  by eth1
x ttl      1 hops left: ttl expired
= verdict  dropped: ttl expired
";
        assert_eq!(explained(&document), expected);
        let arrival = json!({ "stage": "arrival", "ok": true, "text": "by eth1" });
        let step = json!({ "stage": "filter in", "ok": false, "text": "pf: blocked" });
        let mut between = document.clone();
        insert_behind_arrival(&mut between, vec![step.clone()]);
        assert_eq!(list(&between, "stages")[..2], [arrival.clone(), step.clone()]);
        let ended = end_behind_arrival(document, vec![step.clone()], json!({ "kind": "discard" }));
        assert_eq!(list(&ended, "stages"), &[arrival, step][..]);
        assert_eq!(ended["verdict"]["kind"], "discard");
    }
}
