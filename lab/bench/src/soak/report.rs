//! What came of a soak: a row for each product, and what is wrong.

use super::ledger::Count;
use super::usage::Usage;
use crate::results::Table;
use artery_rig::CommandOutput;
use std::time::Duration;

/// Times of lost packets that are named.
const NAMED: usize = 5;

/// What came of one product.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) name: &'static str,
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Lost while a link was down, and for how long links were.
    pub(super) excused: u64,
    pub(super) excused_time: Duration,
    /// Lost while the machine stalled.
    pub(super) stalled: u64,
    /// Messages exchanged by TCP connections.
    pub(super) exchanges: u64,
    pub(super) hostile: u64,
    pub(super) reloads: u64,
    pub(super) replacements: u64,
    pub(super) flaps: u64,
    pub(super) remakes: u64,
    /// After the warm-up and at the end.
    pub(super) first: Usage,
    pub(super) last: Usage,
    pub(super) failures: Vec<String>,
}

impl Outcome {
    /// One that was not soaked to the end.
    pub(super) fn failed(name: &'static str, why: String) -> Outcome {
        Outcome { name, failures: vec![why], ..Outcome::default() }
    }

    pub(super) fn verdict(&self) -> &'static str {
        if self.failures.is_empty() { "passed" } else { "FAILED" }
    }
}

/// A row for each product.
pub(super) fn table(outcomes: &[Outcome]) -> Table {
    let figures = [
        "good sent",
        "good received",
        "lost, link down",
        "s of that",
        "lost, machine stalled",
        "TCP exchanges",
        "hostile sent",
        "reloads",
        "replacements",
        "flaps",
        "recreated",
        "RSS kB first",
        "RSS kB last",
        "fds first",
        "fds last",
    ];
    let mut table = Table::headed(&format!("product | {}: | verdict", figures.join(": | ")));
    for outcome in outcomes {
        let figures = [
            outcome.sent,
            outcome.received,
            outcome.excused,
            outcome.excused_time.as_secs(),
            outcome.stalled,
            outcome.exchanges,
            outcome.hostile,
            outcome.reloads,
            outcome.replacements,
            outcome.flaps,
            outcome.remakes,
            outcome.first.resident,
            outcome.last.resident,
            outcome.first.descriptors,
            outcome.last.descriptors,
        ];
        let mut row = vec![outcome.name.to_string()];
        row.extend(figures.map(|figure| figure.to_string()));
        row.push(outcome.verdict().to_string());
        table.row(row);
    }
    table
}

/// What is wrong with a stream, whose times count from the beginning of the soak.
pub(super) fn losses(stream: &str, count: &Count, start: Duration) -> Option<String> {
    if count.received == 0 {
        return Some(format!("{stream}: none arrived"));
    }
    if count.duplicated > 0 {
        return Some(format!("{stream}: {} arrived twice", count.duplicated));
    }
    let times = count
        .lost
        .iter()
        .take(NAMED)
        .map(|time| format!("{:.2} s", time.saturating_sub(start).as_secs_f64()));
    let times = times.collect::<Vec<_>>().join(", ");
    let lost = count.lost.len();
    (lost > 0).then(|| {
        format!("{stream}: {lost} of {} lost while no link was down, the first at {times}", count.sent)
    })
}

/// What is wrong with the end of a process.
pub(super) fn bad_end(output: &CommandOutput, last_words: &str) -> Option<String> {
    if output.code() != Some(0) {
        return Some(format!("it ended with {:?}: {}", output.status, tail(&output.stderr)));
    }
    if output.stderr.contains("panicked") || !output.stderr.contains(last_words) {
        return Some(format!("it did not say \"{last_words}\" at its end: {}", tail(&output.stderr)));
    }
    None
}

/// The last lines of a text.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    #[test]
    fn losses_and_copies_are_told_with_times() {
        let at = Duration::from_secs(12);
        let count = Count { sent: 10, received: 9, lost: vec![at], ..Count::default() };
        let told = losses("datagrams", &count, Duration::from_secs(2)).expect("a loss");
        assert_eq!(told, "datagrams: 1 of 10 lost while no link was down, the first at 10.00 s");
        let whole = Count { sent: 10, received: 10, ..Count::default() };
        assert_eq!(losses("datagrams", &whole, Duration::ZERO), None);
        assert!(losses("datagrams", &Count { duplicated: 1, ..whole }, Duration::ZERO).is_some());
        assert!(losses("datagrams", &Count::default(), Duration::ZERO).is_some());
    }

    #[test]
    fn an_end_must_be_clean_and_explained() {
        let end = |status, stderr: &str| {
            let status = Some(ExitStatus::from_raw(status));
            bad_end(&CommandOutput { status, stdout: String::new(), stderr: stderr.into() }, "SIGTERM")
        };
        assert_eq!(end(0, "ended: SIGTERM"), None);
        assert!(end(0, "").is_some() && end(9, "SIGTERM").is_some() && end(1 << 8, "SIGTERM").is_some());
        assert!(end(0, "a thread panicked; SIGTERM").is_some());
    }

    #[test]
    fn a_failure_shows_in_the_table() {
        let rows = table(&[Outcome::failed("router", "it fell".into())]).to_string();
        assert!(rows.contains("FAILED") && rows.contains("router"), "{rows}");
    }
}
