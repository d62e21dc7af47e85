//! What a router did, in figures: packets, rates, time and drops by element.
use crate::output::{Output, complain_styled, print_stderr};
use artery_engine::graph::Counts;
use artery_engine::{Finished, Handle, Plan};
use artery_lang::printable;
use serde_json::json;
use std::io::IsTerminal as _;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The version of the program, which JSON documents have beside that of their schema.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

struct Row {
    name: String,
    packets: u64,
    rate: f64,
    /// None where no packet arrives.
    nanos_per_packet: Option<f64>,
    drops: String,
}

/// Lines for all elements; rates are over `time`, from `before` on.
fn rows(plan: &Plan, counts: &[Counts], before: &[Counts], time: Duration) -> Vec<Row> {
    let row = |(node, count): (usize, &Counts)| {
        let already = before.get(node).map_or(0, |count| count.packets);
        let drops: Vec<String> = count.drops.iter().map(|(why, n)| format!("{} {n}", why.name())).collect();
        Row {
            name: format!("{} :: {}", plan.name(node), plan.class(node).name),
            packets: count.packets,
            rate: count.packets.saturating_sub(already) as f64 / time.as_secs_f64().max(1e-9),
            nanos_per_packet: (count.packets > 0).then(|| count.nanos as f64 / count.packets as f64),
            drops: drops.join(", "),
        }
    };
    counts.iter().enumerate().map(row).collect()
}

/// Lines as a table with a heading.
fn table(rows: &[Row], profile: bool) -> String {
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max("element".len());
    let time = |text: &str| if profile { format!(" {text:>12}") } else { String::new() };
    let mut text =
        format!("{:<width$} {:>14} {:>10}{}  drops\n", "element", "packets", "Mpps", time("ns/packet"));
    for row in rows {
        let nanos = time(&row.nanos_per_packet.map_or(String::new(), |nanos| format!("{nanos:.1}")));
        let rate = row.rate / 1e6;
        let line = format!("{:<width$} {:>14} {rate:>10.3}{nanos}  {}", row.name, row.packets, row.drops);
        text += line.trim_end();
        text += "\n";
    }
    text
}

/// Writes the report of a run that is over to standard error.
pub(crate) fn at_the_end(finished: &Finished, profile: bool, as_json: bool, voice: Output) {
    let (plan, counts) = (finished.plan(), finished.counts());
    if voice == Output::Json {
        let message = format!("ran {:.3} s", finished.ran.as_secs_f64());
        voice.write_document("report", &message, report_json(&plan, &counts, finished.ran));
        return;
    }
    if as_json {
        print_stderr(&format!("{}\n", report_json(&plan, &counts, finished.ran)));
        return;
    }
    let rows = rows(&plan, &counts, &[], finished.ran);
    print_stderr(&format!("ran {:.3} s\n{}", finished.ran.as_secs_f64(), table(&rows, profile)));
}

fn report_json(plan: &Plan, counts: &[Counts], ran: Duration) -> serde_json::Value {
    let element = |(node, count): (usize, &Counts)| {
        let drops: serde_json::Map<_, _> =
            count.drops.iter().map(|(why, n)| (why.name().to_string(), n.into())).collect();
        json!({
            "name": plan.name(node),
            "class": plan.class(node).name,
            "packets": count.packets,
            "nanoseconds": count.nanos,
            "drops": drops,
        })
    };
    let elements: Vec<_> = counts.iter().enumerate().map(element).collect();
    json!({ "schema_version": 1, "version": crate::report::VERSION, "seconds": ran.as_secs_f64(),
        "elements": elements })
}

/// A table of counters that is written to standard error repeatedly, or as a line of JSON among messages.
pub(crate) struct LiveTable {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl LiveTable {
    pub(crate) fn start(handle: Handle, every: Duration, voice: Output) -> std::io::Result<LiveTable> {
        let (stop, stopped) = channel();
        let body = move || {
            let (mut screen, began) = (Screen::default(), Instant::now());
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                match voice {
                    Output::Json => log_counters(&handle, began.elapsed(), voice),
                    _ => screen.show(&handle),
                }
            }
        };
        let thread = std::thread::Builder::new().name("stats".to_string()).spawn(body)?;
        Ok(LiveTable { stop, thread })
    }

    pub(crate) fn end(self) {
        drop(self.stop);
        // A table that panicked has nothing left to show.
        let _ = self.thread.join();
    }
}

/// Writes counters as a line of JSON.
fn log_counters(handle: &Handle, ran: Duration, voice: Output) {
    let plan = handle.plan();
    let Ok(counts) = handle.counts() else { return };
    // The counts of a graph that was just replaced are written the next time.
    if counts.len() == plan.len() {
        let message = format!("counters after {:.3} s", ran.as_secs_f64());
        voice.write_document("counters", &message, report_json(&plan, &counts, ran));
    }
}

/// The counters that were shown last.
struct Screen {
    counts: Vec<Counts>,
    at: Instant,
    lines: usize,
}

impl Default for Screen {
    fn default() -> Screen {
        Screen { counts: Vec::new(), at: Instant::now(), lines: 0 }
    }
}

impl Screen {
    fn show(&mut self, handle: &Handle) {
        let plan = handle.plan();
        // A worker that is late, or a graph that was just replaced, is shown the next time.
        let Ok(counts) = handle.counts() else { return };
        if counts.len() != plan.len() {
            return;
        }
        let now = Instant::now();
        let text = table(&rows(&plan, &counts, &self.counts, now - self.at), false);
        let back = match std::io::stderr().is_terminal() && self.lines > 0 {
            true => format!("\x1b[{}A\x1b[J", self.lines),
            false => String::new(),
        };
        complain_styled(&format!("{back}{}", printable(&text)));
        *self = Screen { counts, at: now, lines: text.lines().count() };
    }
}

/// Measures processor time and time.
pub(crate) struct Stopwatch {
    started: Instant,
    processor: (Duration, Duration),
}

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch { started: Instant::now(), processor: processor_time() }
    }

    /// User and system time, and time, as Click prints them.
    pub(crate) fn read(&self) -> String {
        let (user, system) = processor_time();
        let user = user.saturating_sub(self.processor.0);
        let system = system.saturating_sub(self.processor.1);
        let hundredths = (self.started.elapsed().as_secs_f64() * 100.0).round() as u64;
        let (minutes, rest) = (hundredths / 6000, hundredths % 6000);
        let clock = format!("{minutes}:{:02}.{:02}", rest / 100, rest % 100);
        format!("{:.3}u {:.3}s {clock}\n", user.as_secs_f64(), system.as_secs_f64())
    }
}

/// User and system time of this process so far; zero where the system does not report it.
fn processor_time() -> (Duration, Duration) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the program's name in parentheses, which may hold blanks.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |n: usize| fields.get(n).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    // The kernel reports these in hundredths of a second, whatever its own clock.
    (Duration::from_millis(ticks(11) * 10), Duration::from_millis(ticks(12) * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_element() {
        let row = |name: &str, drops: &str| Row {
            name: name.to_string(),
            packets: 1_000_000,
            rate: 2.5e6,
            nanos_per_packet: Some(4.25),
            drops: drops.to_string(),
        };
        let text = table(&[row("c :: Counter", ""), row("d :: Discard", "discarded 7")], true);
        let expected = "\
element             packets       Mpps    ns/packet  drops
c :: Counter        1000000      2.500          4.2
d :: Discard        1000000      2.500          4.2  discarded 7
";
        assert_eq!(text, expected);
    }
}
