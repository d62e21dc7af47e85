//! The ports of a router of elements: rates, losses, and how long frames wait to be received.
use super::fleet;
use super::view::{View, lines, short};
use crate::control_socket::Client;
use crate::netstat::{self, Port};
use crate::show::table::Table;
use artery_device::{DELAY_BOUNDS, Delays};
use std::path::Path;
use std::time::Instant;

/// What all ports have counted at some time.
pub(super) struct Ports {
    ports: Vec<Port>,
    at: Instant,
    /// What is said of the router's fleet.
    fleet: Vec<String>,
}

impl Ports {
    /// Reads the counters of a router's ports, and asks artery-fleet at a socket.
    pub(super) fn of(client: &mut Client, fleet: Option<&Path>) -> anyhow::Result<Ports> {
        let (ports, at) = (netstat::ports(client)?, Instant::now());
        Ok(Ports { ports, at, fleet: fleet.map_or(Vec::new(), fleet::ask) })
    }

    /// What happened since `before`.
    pub(super) fn since(&self, before: &Ports) -> View {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-3);
        View { connections: self.fleet.clone(), ..view(&before.ports, &self.ports, seconds) }
    }
}

fn view(before: &[Port], now: &[Port], seconds: f64) -> View {
    let mut table = Table::headed(
        "PORT | IN/S: | IN BIT/S: | OUT/S: | OUT BIT/S: | LOST IN: | LOST OUT: | WAIT P50: | WAIT P99:",
    );
    let (mut all_in, mut all_out) = (0.0, 0.0);
    for port in now {
        let was = before.iter().find(|was| was.name == port.name).cloned().unwrap_or_default();
        // The counters of a port that was closed and opened start from 0 again.
        let rate = |now: u64, was: u64| now.checked_sub(was).unwrap_or(now) as f64 / seconds;
        let packets_in = rate(port.received.packets, was.received.packets);
        let packets_out = rate(port.sent.packets, was.sent.packets);
        (all_in, all_out) = (all_in + packets_in, all_out + packets_out);
        let delays = port.delays - was.delays;
        table.row([
            port.marked_name(),
            short(packets_in),
            short(8.0 * rate(port.received.bytes, was.received.bytes)),
            short(packets_out),
            short(8.0 * rate(port.sent.bytes, was.sent.bytes)),
            port.received.errors.to_string(),
            port.sent.errors.to_string(),
            wait(&delays, 0.5),
            wait(&delays, 0.99),
        ]);
    }
    let count = match now.len() {
        1 => "1 port".to_string(),
        count => format!("{count} ports"),
    };
    View {
        summary: vec![format!("router of {count}: {}/s in, {}/s out", short(all_in), short(all_out))],
        ports: lines(&table.drain_text()),
        ..View::default()
    }
}

/// The bound that a part of the delays does not exceed.
fn wait(delays: &Delays, part: f64) -> String {
    match delays.quantile(part) {
        None => "-".to_string(),
        Some(None) => format!("> {}", time(DELAY_BOUNDS[DELAY_BOUNDS.len() - 1])),
        Some(Some(micros)) => time(micros),
    }
}

fn time(micros: u64) -> String {
    if micros < 1000 { format!("{micros} \u{b5}s") } else { format!("{} ms", micros / 1000) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_device::TrafficCounts;

    #[test]
    fn rates_and_waits_are_of_the_time_between() {
        let port = |name: &str, packets, delays: &[usize]| {
            let mut port = Port::default();
            port.name = name.into();
            port.received = TrafficCounts { packets, bytes: 60 * packets, errors: 4 };
            delays.iter().for_each(|at| port.delays.counts[*at] += 1);
            port
        };
        let before = [port("em0", 100, &[12, 12]), port("em1", 7, &[])];
        let now = [port("em0", 500, &[12, 12, 1, 1, 8]), port("em1", 7, &[]), port("em2", 2, &[13])];
        let expected = "\
router of 3 ports: 201/s in, 0/s out

PORT  IN/S  IN BIT/S  OUT/S  OUT BIT/S  LOST IN  LOST OUT  WAIT P50  WAIT P99
em0    200     96.0k      0          0        4         0     20 \u{b5}s      5 ms
em1      0         0      0          0        4         0         -         -
em2      1       480      0          0        4         0  > 100 ms  > 100 ms
";
        assert_eq!(view(&before, &now, 2.0).text(), expected);
    }
}
