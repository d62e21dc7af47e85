//! `artery watch`: what happens in a running router, a line for each event.
use crate::ip_router::{IpRouter, RouterReach, list, text};
use crate::output::{Output, OutputReader, print_on};
use crate::signals::end_flag;
use crate::timestamp::rfc3339;
use anyhow::anyhow;
use clap::Args;
use serde_json::{Value, json};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery watch                         from now on, until SIGINT
  artery watch --since 0 --count 20    from the oldest event that is kept
  artery watch --json > events.json    a line of JSON each

A line is the time (RFC 3339), the event's number and what happened: to a neighbor, an address, a route, a
port or a next hop. Who goes on at the number after the last one (--since) misses nothing: the router keeps
the last 10,000, and what is gone by then is said.";

/// The pause between two polls of the router.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Args)]
pub(crate) struct WatchOptions {
    #[command(flatten)]
    router: RouterReach,
    /// Begin with event N; otherwise with the next one to happen
    #[arg(long, value_name = "N")]
    since: Option<u64>,
    /// End after N events
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print a line of JSON for each event
    #[arg(long)]
    json: bool,
}

/// Prints events as they happen.
pub(crate) fn command(options: &WatchOptions) -> anyhow::Result<u8> {
    let mut router = IpRouter::find(&options.router)?;
    let interrupted = end_flag()?;
    let mut next = match options.since {
        Some(since) => since,
        None => number(&router.query("events_json", "now")?, "next"),
    };
    let mut left = options.count.unwrap_or(u64::MAX);
    while left > 0 && !interrupted.load(Relaxed) {
        let resume = |why| {
            anyhow!("{why:#}; if the router still runs, 'artery watch --since {next}' goes on from here")
        };
        let lately = router.query("events_json", &next.to_string()).map_err(resume)?;
        if is_behind(&lately, next) {
            Output::for_terminal().print_warning(&format!(
                "the router has not come to event {next}: it was started since; this begins with its oldest"
            ));
        }
        for line in lines(&lately, options.json, &mut left) {
            if print_on(&line)? == OutputReader::Gone {
                return Ok(0);
            }
        }
        next = number(&lately, "next");
        if left > 0 {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(0)
}

/// Whether the router numbers its events afresh: its oldest event comes before the one asked for.
fn is_behind(lately: &Value, asked: u64) -> bool {
    list(lately, "events").first().is_some_and(|event| number(event, "seq") < asked)
}

fn number(document: &Value, key: &str) -> u64 {
    document[key].as_u64().unwrap_or(0)
}

/// A line for each event, and one before them if some are lost. `left` is how many more are wanted.
fn lines(lately: &Value, as_json: bool, left: &mut u64) -> Vec<String> {
    let mut lines = Vec::new();
    match number(lately, "lost") {
        0 => {}
        lost if as_json => lines.push(format!("{}\n", json!({ "lost": lost }))),
        lost => lines.push(format!("{lost} events are lost: they happened too long ago\n")),
    }
    for event in list(lately, "events").iter().take((*left).try_into().unwrap_or(usize::MAX)) {
        *left -= 1;
        let time = rfc3339(event["time"].as_f64().unwrap_or(0.0));
        lines.push(match as_json {
            true => {
                let mut event = event.clone();
                event["time"] = time.into();
                format!("{event}\n")
            }
            false => format!("{time} {} {}\n", text(event, "seq"), text(event, "text")),
        });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_lines_and_losses_are_said() {
        let event = |seq: u64| {
            json!({ "seq": seq, "time": 0.25, "kind": "port",
                "what": "up", "text": "port eth1: up" })
        };
        let lately = json!({ "schema_version": 1, "next": 9, "lost": 4, "events": [event(7), event(8)] });
        let mut left = 5;
        let said = lines(&lately, false, &mut left);
        assert_eq!(said[0], "4 events are lost: they happened too long ago\n");
        assert_eq!((said[1].as_str(), left), ("1970-01-01T00:00:00.250000Z 7 port eth1: up\n", 3));
        let mut left = 1;
        let said = lines(&lately, true, &mut left);
        assert_eq!((said.len(), left), (2, 0));
        let first: Value = serde_json::from_str(&said[1]).unwrap();
        assert_eq!((&first["seq"], &first["time"]), (&7.into(), &"1970-01-01T00:00:00.250000Z".into()));
    }
}
