//! `artery explain`: what a running router would do with a packet.
mod service;

use crate::ip_router::{IpRouter, RouterReach, list, text};
use crate::options::values::port;
use crate::output::print_stdout;
use clap::Args;
use serde_json::Value;
use std::fmt::Write as _;

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery explain \"10.1.2.3:1234 > 8.8.8.8:53 udp\" --in eth1
  artery explain \"10.1.2.3 > 10.0.2.9 icmp ttl 1 len 1500 df\" --in eth1
  artery explain \"10.0.1.1 > 10.0.2.9\" --in host

A packet is ADDRESS[:PORT] > ADDRESS[:PORT], then 'udp', 'tcp', 'icmp' or 'proto N', 'ttl N', 'len N' and
'df', as far as it matters; or 'frame' and its bytes in hexadecimal. Each line is a step on its way; the last
one says what becomes of it, in the words of 'artery show drops'. Of a packet for a service it says which
member gets it. Nothing is sent, counted or changed. A packet filter around the router (--pf) is not asked,
which a note says.";

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
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(options: &ExplainOptions) -> anyhow::Result<u8> {
    let mut router = IpRouter::find(&options.router)?;
    let (came_by, packet) = (&options.came_by, options.packet.join(" "));
    // The router itself reports mistakes in the query.
    let plain = router.query("explain_json", &format!("{came_by} {packet}"))?;
    // What the host sends passes no service.
    let served = if came_by == "host" { None } else { service::find_service(&mut router, &packet)? };
    let mut document = match served {
        Some(served) => served.explain_with_router(&mut router, came_by, &packet, plain)?,
        None => plain,
    };
    // The filter stands before and behind the router, and a question must not make states.
    if !router.filters().is_empty() {
        document["not_asked"] = router.filters().into();
    }
    let text = if options.json { format!("{document:#}\n") } else { explained(&document) };
    print_stdout(&text).map(|()| 0)
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
    let filters: Vec<&str> = list(document, "not_asked").iter().filter_map(Value::as_str).collect();
    if !filters.is_empty() {
        let _ = writeln!(
            said,
            "  {:<width$}  not asked: the packet filter ({}), which may block or translate the packet; \
             'artery pfctl -s rules' shows its rules, 'artery trace' the path of real packets",
            "note",
            filters.join(", ")
        );
    }
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
        let mut filtered = document;
        filtered["not_asked"] = json!(["pf"]);
        let said = explained(&filtered);
        assert!(said.starts_with(expected) && said.contains("not asked: the packet filter (pf)"), "{said}");
    }
}
