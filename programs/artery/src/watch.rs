//! `artery watch`: what happens in a running router, a line for each event.
use crate::ip_router::{IpRouter, RouterReach, list, text};
use crate::output::{Output, OutputReader, print_on};
use crate::signals::end_flag;
use anyhow::anyhow;
use artery_engine::Time;
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

/// A time since the epoch as RFC 3339 writes it, to the microsecond.
pub(crate) fn rfc3339(seconds: f64) -> String {
    // Event times are never outside this range.
    let micros = (seconds.clamp(0.0, 1e10) * 1e6).round() as u64;
    let (year, month, date) = Time(micros * 1000).date();
    let within = micros % 86_400_000_000;
    let (seconds, micros) = (within / 1_000_000, within % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339_says() {
        for (seconds, expected) in [
            (0.0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400.5, "2000-02-29T00:00:00.500000Z"),
            (1_735_689_599.0, "2024-12-31T23:59:59.000000Z"),
            (4_107_542_400.0, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(rfc3339(seconds), expected);
        }
        assert!(rfc3339(f64::NAN).starts_with("1970") && rfc3339(f64::MAX).ends_with('Z'));
    }

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
