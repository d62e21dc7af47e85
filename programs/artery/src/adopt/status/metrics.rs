//! The same for Prometheus.
use super::{BlockerStatus, PortStatus, Status, Tables};
use crate::metrics::{Exposition, Kind};
use artery_adopt::TurnTimes;
use std::collections::BTreeMap;

/// A number of each port.
type OfPort = (&'static str, &'static str, fn(&PortStatus) -> Option<u64>);

const OF_PORTS: [OfPort; 9] = [
    ("received_packets", "Packets that came by a port and were forwarded past the kernel.", |port| {
        Some(port.received)
    }),
    ("received_bytes", "Their bytes, link headers included.", |port| Some(port.received_bytes)),
    ("sent_packets", "Packets that were forwarded to a port past the kernel.", |port| Some(port.sent)),
    ("sent_bytes", "Their bytes, with the link headers that they came with.", |port| Some(port.sent_bytes)),
    ("established_packets", "Of those received, of established connections, forwarded past rules.", |port| {
        Some(port.established)
    }),
    ("lost_packets", "Packets that came by a port and were lost before they could be sent.", |port| {
        Some(port.lost)
    }),
    ("dropped_packets", "Packets forwarded to a port that its driver did not take (XDP).", |port| {
        Some(port.dropped)
    }),
    (
        "interface_received_packets",
        "Packets received by the kernel's own counter of the interface.",
        |port| port.interface_received,
    ),
    ("interface_sent_packets", "Packets sent by the kernel's own counter of the interface.", |port| {
        port.interface_sent
    }),
];

impl Status {
    /// The status as metrics in Prometheus's text format.
    pub(crate) fn metrics(&self) -> String {
        let mut text = Exposition::default();
        text.family("artery_build_info", Kind::Gauge, "The program.");
        text.sample("artery_build_info", &[("version", &self.version), ("mode", "adopt")], 1);
        let help = "How long packets have been forwarded.";
        text.single("artery_adopt_uptime_seconds", Kind::Gauge, help, self.seconds);
        self.ports(&mut text);
        self.tables.write(&mut text);
        guards(&self.guards, &mut text);
        let help = "Routing rules that leave packets to the kernel.";
        text.single("artery_adopt_rules", Kind::Gauge, help, self.rules.len());
        if let Some(connections) = &self.connections {
            let help = "Connections whose packets are forwarded past rules.";
            text.single("artery_adopt_connections", Kind::Gauge, help, connections.forwarded);
            let help = "Connections that began while no process listened, and are compared each second.";
            text.single("artery_adopt_existing_connections", Kind::Gauge, help, connections.existing);
            let help = "Connections that stay with the kernel, by what keeps them.";
            text.family("artery_adopt_connections_kept", Kind::Gauge, help);
            for (by, count) in &connections.kept {
                text.sample("artery_adopt_connections_kept", &[("by", by)], count);
            }
            let help = "How often events of connections were lost.";
            text.single("artery_adopt_connection_overruns_total", Kind::Counter, help, connections.overruns);
        }
        let help =
            "Prefixes that stay with the kernel, since their routes depend on sources or types of service.";
        text.single("artery_adopt_kept_prefixes", Kind::Gauge, help, self.kept_prefixes);
        text.into_text()
    }

    fn ports(&self, text: &mut Exposition) {
        for (name, help, value) in OF_PORTS {
            let name = format!("artery_adopt_{name}_total");
            text.family(&name, Kind::Counter, help);
            for port in &self.ports {
                let path = ("path", port.path.as_str());
                value(port)
                    .into_iter()
                    .for_each(|value| text.sample(&name, &[("port", &port.name), path], value));
            }
        }
        let name = "artery_adopt_kernel_packets_total";
        text.family(
            name,
            Kind::Counter,
            "Frames that came by a port and were left to the kernel, by reason.",
        );
        for port in self.ports.iter().filter(|port| port.vlan_on.is_none()) {
            for (reason, count) in &port.kernel {
                text.sample(name, &[("port", &port.name), ("reason", reason)], count);
            }
        }
        let name = "artery_adopt_kernel_forwarded_total";
        text.family(
            name,
            Kind::Counter,
            "Packets that the kernel itself forwarded in this network namespace.",
        );
        text.sample(name, &[("family", "ipv4")], self.kernel_ipv4);
        text.sample(name, &[("family", "ipv6")], self.kernel_ipv6);
        self.permissions(text);
    }

    fn permissions(&self, text: &mut Exposition) {
        let name = "artery_adopt_accelerated";
        text.family(
            name,
            Kind::Gauge,
            "Whether packets of a family that come in, or go out, by a port are forwarded past the kernel.",
        );
        for port in &self.ports {
            for (family, word) in [("ipv4", &port.ipv4), ("ipv6", &port.ipv6)] {
                let open = |side: &str| word == "fast" || word == side;
                let label =
                    |direction| [("port", port.name.as_str()), ("family", family), ("direction", direction)];
                text.sample(name, &label("in"), u8::from(open("fast-in")));
                text.sample(name, &label("out"), u8::from(open("fast-out")));
            }
        }
    }
}

impl Tables {
    fn write(&self, text: &mut Exposition) {
        let name = "artery_adopt_prefixes";
        text.family(name, Kind::Gauge, "Prefixes that the kernel has routes for.");
        text.sample(name, &[("family", "ipv4")], self.ipv4_prefixes);
        text.sample(name, &[("family", "ipv6")], self.ipv6_prefixes);
        let gauges = [
            ("neighbors", "Neighbors whose link addresses are known.", self.neighbors),
            ("ways", "Different things that packets of routes do.", self.ways),
        ];
        for (name, help, value) in gauges {
            text.single(&format!("artery_adopt_{name}"), Kind::Gauge, help, value);
        }
        let counters = [
            ("changes", "Changes that the kernel notified.", self.changes),
            ("overruns", "How often the kernel had more changes to tell than it could keep.", self.overruns),
            ("looks", "How often all of the kernel's tables were read.", self.looks),
        ];
        for (name, help, value) in counters {
            text.single(&format!("artery_adopt_{name}_total"), Kind::Counter, help, value);
        }
        let help = "The longest time that it took to apply changes, since the start.";
        text.single("artery_adopt_longest_turn_seconds", Kind::Gauge, help, self.longest_turn);
        let lags = [
            ("lag_seconds", "How long changes wait until they are read.", self.lag),
            (
                "longest_lag_seconds",
                "The longest that changes waited until they were read.",
                self.longest_lag,
            ),
        ];
        for (name, help, value) in lags {
            text.single(&format!("artery_adopt_{name}"), Kind::Gauge, help, value);
        }
        let help = "Whether changes wait for more than a second until they are read.";
        text.single("artery_adopt_late", Kind::Gauge, help, u8::from(self.is_late));
        self.turns(text);
    }

    fn turns(&self, text: &mut Exposition) {
        let name = "artery_adopt_turn_seconds";
        text.family(
            name,
            Kind::Histogram,
            "How long it took to apply changes; one that comes meanwhile is applied in the next turn.",
        );
        let bucket = format!("{name}_bucket");
        for (bound, count) in TurnTimes::BOUNDS.iter().zip(&self.turns_within) {
            text.sample(&bucket, &[("le", &bound.as_secs_f64().to_string())], count);
        }
        text.sample(&bucket, &[("le", "+Inf")], self.turns);
        text.sample(&format!("{name}_sum"), &[], self.turn_seconds);
        text.sample(&format!("{name}_count"), &[], self.turns);
    }
}

/// How many blockers of a kind exclude the same traffic.
fn guards(guards: &[BlockerStatus], text: &mut Exposition) {
    let mut counts = BTreeMap::<_, u64>::new();
    for guard in guards {
        let family = guard.family.as_deref().map_or("all".to_string(), str::to_lowercase);
        let port = guard.port.as_deref().unwrap_or("all");
        *counts.entry((&guard.kind, port, family, &guard.direction)).or_default() += 1;
    }
    let name = "artery_adopt_guards";
    text.family(
        name,
        Kind::Gauge,
        "What keeps traffic with the kernel: things of a kind, by the traffic that they are about.",
    );
    for ((kind, port, family, direction), count) in counts {
        let labels = [("kind", kind.as_str()), ("port", port), ("family", &family), ("direction", direction)];
        text.sample(name, &labels, count);
    }
}

#[cfg(test)]
mod tests {
    use super::super::example;

    #[test]
    fn every_sample_belongs_to_the_family_above_it() {
        let text = example().metrics();
        let mut family = String::new();
        for line in text.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(rest) => family = rest.split(' ').next().unwrap().to_string(),
                None if line.starts_with('#') => {}
                None => {
                    assert!(line.starts_with(&family), "{line} below {family}");
                    let value = line.rsplit(' ').next().unwrap();
                    assert!(value.parse::<f64>().is_ok(), "{line}");
                }
            }
        }
        for line in [
            "artery_adopt_received_packets_total{port=\"eth0\",path=\"tc\"} 1000",
            "artery_adopt_kernel_packets_total{port=\"eth1\",reason=\"other-protocol\"} 3",
            "artery_adopt_kernel_forwarded_total{family=\"ipv6\"} 10",
            "artery_adopt_accelerated{port=\"eth0\",family=\"ipv6\",direction=\"in\"} 0",
            "artery_adopt_guards{kind=\"nftables\",port=\"all\",family=\"ipv6\",direction=\"both\"} 1",
            "artery_adopt_lag_seconds 0.002",
            "artery_adopt_late 0",
            "artery_adopt_turn_seconds_bucket{le=\"0.1\"} 1",
            "artery_adopt_turn_seconds_bucket{le=\"+Inf\"} 2",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in {text}");
        }
    }

    #[test]
    fn the_dashboard_asks_for_metrics_that_there_are() {
        let board = include_str!("../../../../../packaging/examples/grafana/artery.json");
        let text = example().metrics();
        let asked = board.split(|c: char| c != '_' && !c.is_alphanumeric());
        let asked: Vec<&str> = asked.filter(|word| word.starts_with("artery_adopt_")).collect();
        assert!(asked.len() > 5, "{asked:?}");
        for name in asked {
            let is_sample = |line: &str| line.split(['{', ' ']).next() == Some(name);
            assert!(text.lines().any(is_sample), "the dashboard asks for {name}");
        }
    }
}
