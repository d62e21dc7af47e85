//! `artery trace`: the path of the next packets through a running router.
mod changes;
mod json;
mod look;
mod records;
mod text;

use crate::control_socket::Client;
use crate::options::Reach;
use crate::options::values::{number, seconds};
use crate::output::{Output, OutputReader, print_on, print_stdout};
use crate::signals::end_flag;
use anyhow::{Context as _, anyhow, bail};
use artery_engine::trace::MOST_PACKETS;
use clap::Args;
use records::Trace;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The pause between two polls of the router.
const PAUSE: Duration = Duration::from_millis(50);
/// For how long packets that are still in the router are waited for, once all have been seen.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(crate) struct TraceOptions {
    /// How many packets, at most 1000
    #[arg(value_name = "N", default_value_t = 1, value_parser = number::<1, { MOST_PACKETS as u16 }>)]
    pub(crate) count: u16,
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// The element where packets begin; otherwise all without inputs
    #[arg(long, value_name = "ELEMENT")]
    pub(crate) from: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Wait no longer, such as 5 (seconds) or 200ms; then what there is is shown
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
}

/// Follows packets, and shows their ways.
pub(crate) fn command(options: &TraceOptions) -> anyhow::Result<u8> {
    let mut client = Client::connect(&options.reach)?;
    let interrupted = end_flag()?;
    client.write_plain("trace", &order(options)?).map_err(|why| match &options.from {
        Some(_) => anyhow!("{why:#}; 'artery show elements' lists what there is"),
        None => why,
    })?;
    let mut show = Show { json: options.json, shown: 0 };
    let (trace, end) = follow(&mut client, options, &interrupted, &mut show)?;
    if !matches!(end, End::Lost(_)) {
        client.write("trace", "off")?;
    }
    show.rest(&trace)?;
    status(options, &trace, end)
}

/// The text that is written to the router's handler.
fn order(options: &TraceOptions) -> anyhow::Result<String> {
    match &options.from {
        None => Ok(options.count.to_string()),
        Some(from) if from.is_empty() || from.contains(char::is_whitespace) => {
            bail!("'{from}' is not a name of an element")
        }
        Some(from) => Ok(format!("{} {from}", options.count)),
    }
}

/// Why following a trace has ended.
enum End {
    /// All packets were seen to their end, or wait in the router for something else.
    Complete,
    Interrupted,
    TimedOut,
    /// The reader of the output is gone.
    Unread,
    /// The trace is no longer ours.
    Lost(String),
}

/// Polls the trace until nothing more is to come.
fn follow(
    client: &mut Client,
    options: &TraceOptions,
    interrupted: &AtomicBool,
    show: &mut Show,
) -> anyhow::Result<(Trace, End)> {
    let start = Instant::now();
    let mut seen_all = None;
    let mut trace = read(client)?;
    loop {
        if interrupted.load(Relaxed) {
            return Ok((trace, End::Interrupted));
        }
        if options.timeout.is_some_and(|timeout| start.elapsed() >= timeout) {
            return Ok((trace, End::TimedOut));
        }
        std::thread::sleep(PAUSE);
        let now = match read(client) {
            Ok(now) if now.number == trace.number => now,
            Ok(_) => return Ok((trace, End::Lost("another trace has been started".to_string()))),
            Err(error) => return Ok((trace, End::Lost(format!("{error:#}")))),
        };
        if show.complete(&trace, &now)? == OutputReader::Gone {
            return Ok((now, End::Unread));
        }
        // Another copy may yet appear: the trace must look complete twice.
        let is_complete = trace.is_complete() && now.is_complete();
        trace = now;
        if trace.seen == trace.wanted {
            let since = seen_all.get_or_insert_with(Instant::now);
            if is_complete || since.elapsed() >= PATIENCE {
                return Ok((trace, End::Complete));
            }
        }
    }
}

fn read(client: &mut Client) -> anyhow::Result<Trace> {
    Trace::parse(&client.read("trace")?).context("the router's trace makes no sense")
}

/// The exit status, with a message where fewer packets were seen than requested.
fn status(options: &TraceOptions, trace: &Trace, end: End) -> anyhow::Result<u8> {
    let seen = format!("{} of {} packets", trace.seen, options.count);
    match end {
        End::Complete | End::Unread => Ok(0),
        End::TimedOut if trace.seen == trace.wanted => Ok(0),
        End::Interrupted => {
            Output::for_terminal().print_info(&format!("interrupted after {seen}"));
            Ok(0)
        }
        End::TimedOut => bail!("{seen} came in time"),
        End::Lost(why) => bail!("{why}; this one has seen {seen}"),
    }
}

/// The printed form, and how much was printed.
struct Show {
    json: bool,
    shown: usize,
}

impl Show {
    /// Prints those packets, in order, that have ended and had no event since.
    fn complete(&mut self, before: &Trace, now: &Trace) -> anyhow::Result<OutputReader> {
        while let Some(packet) = now.packets.get(self.shown).filter(|_| !self.json) {
            let is_over = packet.is_complete() && before.packets.get(self.shown) == Some(packet);
            if !is_over {
                break;
            }
            if print_on(&text::packet(packet))? == OutputReader::Gone {
                return Ok(OutputReader::Gone);
            }
            self.shown += 1;
        }
        Ok(OutputReader::There)
    }

    /// Prints the packets that were not printed before.
    fn rest(&mut self, trace: &Trace) -> anyhow::Result<()> {
        if self.json {
            return print_stdout(&format!("{:#}\n", json::trace(trace)));
        }
        let rest = trace.packets.iter().skip(self.shown);
        print_stdout(&rest.map(text::packet).collect::<String>())
    }
}
