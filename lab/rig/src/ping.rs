//! What ping found out.

use serde::Serialize;

use super::error::{Result, RigError};
use super::host::{Host, parse_address};

/// The summary of a run of ping.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PingReport {
    /// Requests that were sent.
    pub sent: u64,
    /// Distinct replies that were received.
    pub received: u64,
    /// Replies received more than once.
    pub duplicates: u64,
    /// ICMP errors received, such as unreachable or time exceeded.
    pub errors: u64,
    /// Round trip times, if any reply came.
    pub round_trip: Option<RoundTrip>,
    /// All that ping printed.
    pub text: String,
}

/// Round trip times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RoundTrip {
    /// The shortest round trip, in milliseconds.
    pub min_ms: f64,
    /// The mean round trip, in milliseconds.
    pub mean_ms: f64,
    /// The longest round trip, in milliseconds.
    pub max_ms: f64,
    /// The mean deviation, in milliseconds.
    pub deviation_ms: f64,
}

impl PingReport {
    /// Requests that no reply came to.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    fn parse(text: &str) -> Option<PingReport> {
        let summary = text.lines().find(|line| line.contains(" packets transmitted"))?;
        let count = |what: &str| {
            let part = summary.split(", ").find(|part| part.ends_with(what))?;
            part.trim_start_matches('+').split(' ').next()?.parse().ok()
        };
        Some(PingReport {
            sent: count(" packets transmitted")?,
            received: count(" received")?,
            duplicates: count(" duplicates").unwrap_or(0),
            errors: count(" errors").unwrap_or(0),
            round_trip: text.lines().find_map(RoundTrip::parse),
            text: text.to_owned(),
        })
    }
}

impl RoundTrip {
    /// Reads a line such as `rtt min/avg/max/mdev = 0.024/0.128/0.317/0.133 ms`.
    fn parse(line: &str) -> Option<RoundTrip> {
        let figures = line.strip_prefix("rtt min/avg/max/mdev = ")?.split(" ms").next()?;
        let figures: Vec<f64> = figures.split('/').map(str::parse).collect::<Result<_, _>>().ok()?;
        let [min_ms, mean_ms, max_ms, deviation_ms] = figures[..] else { return None };
        Some(RoundTrip { min_ms, mean_ms, max_ms, deviation_ms })
    }
}

impl Host {
    /// Pings an address `count` times, 20 ms apart, each reply within a second. Loss is a
    /// figure, not an error.
    pub fn ping(&self, address: &str, count: u32) -> Result<PingReport> {
        self.ping_with(address, count, &[])
    }

    /// Pings with further options of ping, such as `["-s", "1472", "-M", "do"]`.
    pub fn ping_with(&self, address: &str, count: u32, options: &[&str]) -> Result<PingReport> {
        parse_address(address)?;
        let count = count.to_string();
        let ping =
            self.command(["ping", "-n", "-i", "0.02", "-W", "1", "-c", &count]).args(options).arg(address);
        let (output, process) = ping.finish()?;
        // Status 1 means loss. Status 2 is about ping itself, as with no route.
        if !matches!(output.code(), Some(0 | 1)) {
            return Err(RigError::Failed(process.failure()));
        }
        PingReport::parse(&output.stdout)
            .ok_or_else(|| RigError::Unreadable(process.failure(), "a summary of ping"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read_with_errors_duplicates_and_times() {
        let text = "\n3 packets transmitted, 2 received, +1 duplicates, +4 errors, 33.3333% packet loss, \
            time 29ms\n\
            rtt min/avg/max/mdev = 0.024/0.128/0.317/0.133 ms, pipe 2\n";
        let report = PingReport::parse(text).unwrap();
        assert_eq!((report.sent, report.received, report.duplicates, report.errors), (3, 2, 1, 4));
        assert_eq!(report.lost(), 1);
        assert_eq!(report.round_trip.unwrap().max_ms, 0.317);
    }

    #[test]
    fn a_summary_without_replies_has_no_times() {
        let text = "1 packets transmitted, 0 received, 100% packet loss, time 0ms\n\n";
        let report = PingReport::parse(text).unwrap();
        assert_eq!((report.received, report.round_trip), (0, None));
        assert_eq!(PingReport::parse("ping: connect: Network is unreachable"), None);
    }
}
