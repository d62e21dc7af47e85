//! The shown tables: rates from two states.
use crate::adopt::{PortStatus, Status, Tables};
use crate::show::connections;
use crate::show::table::Table;
use std::collections::BTreeMap;

/// The difference of two states, in words.
#[derive(Default)]
pub(super) struct View {
    /// What it is, and how much goes past the kernel.
    pub(super) summary: Vec<String>,
    /// The part of forwarded packets that went past the kernel, from 0 to 1; none if none was forwarded.
    pub(super) share: Option<f64>,
    /// Rows of ports, titles first.
    pub(super) ports: Vec<String>,
    /// Why frames were left to the kernel, titles first; the most frequent reason first.
    pub(super) reasons: Vec<String>,
    /// How many connections go past rules, and how many are kept by what, titles first; of a router, what is
    /// said of its fleet.
    pub(super) connections: Vec<String>,
    /// What keeps traffic with the kernel.
    pub(super) guards: Vec<String>,
}

impl View {
    pub(super) fn new(before: &Status, now: &Status) -> View {
        let past = Past::new(before, now);
        let share = past.share();
        View {
            summary: [
                vec![past.headline(share)],
                past.split().into_iter().collect(),
                vec![tables(now), lag(now)],
            ]
            .concat(),
            share,
            ports: past.ports(),
            reasons: past.reasons(),
            connections: now.connections.as_ref().map_or_else(Vec::new, |now| lines(&connections(now))),
            guards: guards(now),
        }
    }

    /// All of it as plain text.
    pub(super) fn text(&self) -> String {
        let parts = [&self.summary, &self.ports, &self.reasons, &self.connections, &self.guards];
        let parts = parts.into_iter().filter(|lines| !lines.is_empty());
        let part = |lines: &Vec<String>| lines.iter().map(|line| line.clone() + "\n").collect::<String>();
        parts.map(part).collect::<Vec<_>>().join("\n")
    }
}

/// What happened from one state to the other.
struct Past<'a> {
    before: BTreeMap<&'a str, &'a PortStatus>,
    was: &'a Status,
    now: &'a Status,
    seconds: f64,
}

impl<'a> Past<'a> {
    fn new(before: &'a Status, now: &'a Status) -> Past<'a> {
        let ports = before.ports.iter().map(|port| (port.name.as_str(), port));
        Past { before: ports.collect(), was: before, now, seconds: (now.seconds - before.seconds).max(1e-3) }
    }

    /// How much a number of a port has grown in a second. A port that is new has grown from nothing.
    fn rate(&self, port: &PortStatus, value: impl Fn(&PortStatus) -> u64) -> f64 {
        let was = self.before.get(port.name.as_str()).map_or(0, |port| value(port));
        value(port).saturating_sub(was) as f64 / self.seconds
    }

    fn past_kernel(&self) -> f64 {
        self.now.ports.iter().map(|port| self.rate(port, |port| port.received)).sum()
    }

    fn by_kernel(&self) -> f64 {
        let all = |status: &Status| status.kernel_ipv4 + status.kernel_ipv6;
        all(self.now).saturating_sub(all(self.was)) as f64 / self.seconds
    }

    fn share(&self) -> Option<f64> {
        let (past, by) = (self.past_kernel(), self.by_kernel());
        (past + by > 0.0).then(|| past / (past + by))
    }

    /// How many packets go which way, where some go past rules.
    fn split(&self) -> Option<String> {
        self.now.connections.as_ref()?;
        let sum = |value: fn(&PortStatus) -> u64| {
            self.now.ports.iter().map(|port| self.rate(port, value)).sum::<f64>()
        };
        let [fast, established, kernel] =
            [sum(PortStatus::fast), sum(|port| port.established), sum(PortStatus::to_kernel)];
        Some(format!(
            "{}/s fast, {}/s past rules (of established connections), {}/s left to the kernel",
            short(fast),
            short(established),
            short(kernel)
        ))
    }

    fn headline(&self, share: Option<f64>) -> String {
        let share = match share {
            Some(share) => format!(
                "{}/s forwarded past the kernel, {}/s by it: {:.1} % accelerated",
                short(self.past_kernel()),
                short(self.by_kernel()),
                100.0 * share
            ),
            None => "nothing is forwarded now".to_string(),
        };
        format!("artery adopt {}, up {}: {share}", self.now.version, lasting(self.now.seconds))
    }

    fn ports(&self) -> Vec<String> {
        let mut table = Table::headed(
            "PORT | PATH | IPV4 | IPV6 | IN/S: | IN BIT/S: | OUT/S: | OUT BIT/S: | KERNEL/S: | LOST: | \
             IF IN/S: | IF OUT/S:",
        );
        for port in &self.now.ports {
            let rate = |value: fn(&PortStatus) -> u64| short(self.rate(port, value));
            let bits = |value: fn(&PortStatus) -> u64| short(8.0 * self.rate(port, value));
            // A VLAN's frames to the kernel are counted at the interface that carries it.
            let of_interface = |text: String| if port.vlan_on.is_none() { text } else { String::new() };
            let counted = |count: Option<u64>, rate: String| count.map_or(String::new(), |_| rate);
            table.row([
                port.name.clone(),
                port.path.clone(),
                port.ipv4.clone(),
                port.ipv6.clone(),
                rate(|port| port.received),
                bits(|port| port.received_bytes),
                rate(|port| port.sent),
                bits(|port| port.sent_bytes),
                of_interface(rate(PortStatus::to_kernel)),
                of_interface((port.lost + port.dropped).to_string()),
                counted(port.interface_received, rate(|port| port.interface_received.unwrap_or(0))),
                counted(port.interface_sent, rate(|port| port.interface_sent.unwrap_or(0))),
            ]);
        }
        lines(&table.drain_text())
    }

    fn reasons(&self) -> Vec<String> {
        let mut reasons = BTreeMap::<&str, (u64, f64)>::new();
        for port in &self.now.ports {
            for (reason, count) in port.kernel.iter().filter(|(_, count)| **count > 0) {
                let rate = self.rate(port, |port| port.kernel.get(reason).copied().unwrap_or(0));
                let sum = reasons.entry(reason).or_default();
                *sum = (sum.0 + count, sum.1 + rate);
            }
        }
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        if reasons.is_empty() {
            return vec!["Nothing was left to the kernel.".to_string()];
        }
        reasons.sort_by(|(_, (a, _)), (_, (b, _))| b.cmp(a));
        let mut table = Table::headed("LEFT TO THE KERNEL | FRAMES/S: | FRAMES:");
        for (reason, (count, rate)) in reasons {
            table.row([reason.to_string(), short(rate), count.to_string()]);
        }
        lines(&table.drain_text())
    }
}

fn tables(now: &Status) -> String {
    let tables = &now.tables;
    let overruns = match tables.overruns {
        0 => String::new(),
        overruns => format!(", {overruns} overruns"),
    };
    let changes = if tables.changes == 1 { "change" } else { "changes" };
    format!(
        "{} IPv4 and {} IPv6 prefixes, {} neighbors; {} {changes}, applied within {:.1} ms{overruns}",
        tables.ipv4_prefixes,
        tables.ipv6_prefixes,
        tables.neighbors,
        tables.changes,
        1e3 * tables.longest_turn
    )
}

fn lag(now: &Status) -> String {
    let Tables { lag, longest_lag, is_late, .. } = now.tables;
    let then = if is_late { "; routes that are gone are still followed for that long" } else { "" };
    let of_ends = now.connections.as_ref().map_or_else(String::new, |now| {
        let then = if now.is_late { "; all connections stay with the kernel for now" } else { "" };
        let [lag, longest] = [now.lag, now.longest_lag].map(|seconds| 1e3 * seconds);
        format!(", {lag:.0} ms behind the ends of connections, {longest:.0} ms at most{then}")
    });
    format!(
        "{:.0} ms behind the kernel's changes, {:.0} ms at most{then}{of_ends}",
        1e3 * lag,
        1e3 * longest_lag
    )
}

fn guards(now: &Status) -> Vec<String> {
    let no_redirect = now.ports.iter().filter(|port| port.is_deaf && port.vlan_on.is_none());
    let no_redirect = no_redirect.map(|port| {
        format!("{}: what leaves there stays with the kernel, for its driver would lose it", port.name)
    });
    let multi_buffer = now.ports.iter().filter(|port| port.keeps_multi_buffer && port.vlan_on.is_none());
    let multi_buffer = multi_buffer.map(|port| {
        format!(
            "{}: multi-buffer frames that leave there stay with the kernel, for its driver would lose them",
            port.name
        )
    });
    let gone = now.gone.iter().map(|name| format!("{name}: the interface is gone"));
    let uncounted =
        now.uncounted_losses.iter().map(|why| format!("LOST lacks frames lost after a redirect: {why}"));
    let guards = now.guards.iter().map(|guard| guard.text.clone());
    let routing = now.rules.iter().chain(&now.prefixes).cloned();
    let all: Vec<String> =
        gone.chain(uncounted).chain(no_redirect).chain(multi_buffer).chain(guards).chain(routing).collect();
    match all.is_empty() {
        true => vec!["Nothing keeps traffic between these ports in the kernel.".to_string()],
        false => std::iter::once("Kept with the kernel:".to_string())
            .chain(all.iter().map(|line| format!("  {line}")))
            .collect(),
    }
}

pub(super) fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_string).collect()
}

/// A number with at most four digits and a unit.
pub(super) fn short(number: f64) -> String {
    let units = ["", "k", "M", "G", "T"];
    let mut scaled = number;
    let mut unit = 0;
    while scaled >= 9999.5 && unit + 1 < units.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    let digits = if unit > 0 && scaled < 99.95 { 1 } else { 0 };
    format!("{scaled:.digits$}{}", units[unit])
}

/// Seconds as hours, minutes and seconds.
fn lasting(seconds: f64) -> String {
    let seconds = seconds as u64;
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adopt::{Connections, example};

    #[test]
    fn rates_are_of_the_time_between_two_states() {
        let (before, mut now) = (example(), example());
        now.seconds += 2.0;
        now.ports[0].received += 20_000_000;
        now.ports[0].received_bytes += 2_000_000_000;
        *now.ports[0].kernel.get_mut("expired").unwrap() += 10;
        now.ports[2].sent += 300;
        now.kernel_ipv4 += 5_000_000;
        let text = View::new(&before, &now).text();
        let expected = "\
artery adopt 0, up 0:00:12: 10.0M/s forwarded past the kernel, 2500k/s by it: 80.0 % accelerated
900000 IPv4 and 0 IPv6 prefixes, 0 neighbors; 7 changes, applied within 400.0 ms
2 ms behind the kernel's changes, 450 ms at most

PORT    PATH  IPV4  IPV6     IN/S  IN BIT/S  OUT/S  OUT BIT/S  KERNEL/S  LOST  IF IN/S  IF OUT/S
eth0    tc    fast  kernel  10.0M     8000M      0          0         5     0        0         0
eth0.7  tc    fast  kernel      0         0      0          0         -     -        0         0
eth1    tc    fast  kernel      0         0    150          0         0     0        0         0

LEFT TO THE KERNEL  FRAMES/S  FRAMES
expired                    5      10
other-protocol             0       9

Kept with the kernel:
  nftables: table ip6 f: IPv6 stays with the kernel (shown by: nft)
";
        assert_eq!(text, expected);
    }

    #[test]
    fn packets_and_connections_are_split_where_some_go_past_rules() {
        let (before, mut now) = (example(), example());
        now.seconds += 1.0;
        (now.ports[0].received, now.ports[0].established) = (1300, 200);
        now.ports[0].kernel.insert("rule".into(), 7);
        let kept = [("rules".to_string(), 3_u64), ("windows".into(), 0), ("unknown".into(), 9)];
        now.connections = Some(Connections { forwarded: 2, kept: kept.into(), ..Connections::default() });
        let text = View::new(&before, &now).text();
        for line in [
            "100/s fast, 200/s past rules (of established connections), 7/s left to the kernel",
            "CONNECTIONS    NOW  WHY",
            "past rules       2  -",
            "kept: rules      3  a rule stands in the way, or may",
            "kept: unknown    9  began before anything listened, or of another protocol",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in {text}");
        }
        assert!(!text.contains("windows"), "{text}");
    }

    #[test]
    fn where_nothing_happens_that_is_said() {
        let mut quiet = example();
        quiet.guards.clear();
        let text = View::new(&quiet, &quiet).text();
        assert!(text.contains("nothing is forwarded now"), "{text}");
        assert!(text.contains("Nothing keeps traffic"), "{text}");
    }

    #[test]
    fn numbers_have_at_most_four_digits() {
        let numbers = [0.0, 0.4, 9999.0, 9999.6, 123_456.0, 99_960.0, 1e9, 12.3e9, 5e15];
        let found = numbers.map(short);
        assert_eq!(found, ["0", "0", "9999", "10.0k", "123k", "100k", "1000M", "12.3G", "5000T"]);
        assert_eq!(lasting(3725.9), "1:02:05");
    }
}
