//! What share of the current traffic would be accelerated, by counters that the kernel keeps anyway.
//!
//! The kernel counts forwarded packets by family, and received and sent ones by interface. It does not count
//! which of an interface's packets were forwarded: each interface is taken to have the same share.
use anyhow::Context as _;
use artery_adopt::blockers::{Blocker, BlockerKind, Port};
use artery_adopt::kernel::Family;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Printed with every estimate.
pub(super) const BASIS: &str = "Estimated: the kernel counts forwarded packets by family, and received and \
    sent ones by interface, but not which of an interface's packets it forwarded, nor by which routes.";

const SNMP: &str = "/proc/thread-self/net/snmp";
const SNMP6: &str = "/proc/thread-self/net/snmp6";
const INTERFACES: &str = "/proc/thread-self/net/dev";
const LOOPBACK: &str = "lo";

/// Packets received and forwarded of a family, or received and sent by an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Packets {
    pub(super) received: u64,
    /// Packets forwarded of a family, or sent by an interface.
    pub(super) passed: u64,
}

impl Packets {
    fn since(self, before: Packets) -> Packets {
        let [received, passed] = [(self.received, before.received), (self.passed, before.passed)]
            .map(|(now, was)| now.saturating_sub(was));
        Packets { received, passed }
    }
}

/// The counters at one instant.
pub(super) struct Sample {
    at: Instant,
    ipv4: Packets,
    ipv6: Packets,
    interfaces: BTreeMap<String, Packets>,
}

/// Packets counted between two instants.
pub(super) struct Measured {
    pub(super) time: Duration,
    pub(super) ipv4: Packets,
    pub(super) ipv6: Packets,
    pub(super) interfaces: BTreeMap<String, Packets>,
}

impl Sample {
    pub(super) fn read() -> anyhow::Result<Sample> {
        let read = |path| std::fs::read_to_string(path).with_context(|| format!("can't read {path}"));
        Ok(Sample {
            at: Instant::now(),
            ipv4: of_ipv4(&read(SNMP)?),
            // Kernels without IPv6 don't have it.
            ipv6: of_ipv6(&read(SNMP6).unwrap_or_default()),
            interfaces: of_interfaces(&read(INTERFACES)?),
        })
    }
    pub(super) fn of(&self, family: Family) -> Packets {
        if family == Family::V4 { self.ipv4 } else { self.ipv6 }
    }
    pub(super) fn of_interface(&self, name: &str) -> Option<Packets> {
        self.interfaces.get(name).copied()
    }
    pub(super) fn since(&self, before: &Sample) -> Measured {
        let of_interface = |(name, now): (&String, &Packets)| {
            (name.clone(), now.since(before.interfaces.get(name).copied().unwrap_or_default()))
        };
        Measured {
            time: self.at - before.at,
            ipv4: self.ipv4.since(before.ipv4),
            ipv6: self.ipv6.since(before.ipv6),
            interfaces: self.interfaces.iter().map(of_interface).collect(),
        }
    }
}

/// A line of names, and a line of values, both beginning with `Ip:`.
fn of_ipv4(text: &str) -> Packets {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip:"));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let pairs: Vec<_> = names.split_whitespace().zip(values.split_whitespace()).collect();
    let value = |name| pairs.iter().find(|(one, _)| *one == name).map_or(0, |(_, value)| number(value));
    Packets { received: value("InReceives"), passed: value("ForwDatagrams") }
}

/// A line for each name.
fn of_ipv6(text: &str) -> Packets {
    let value = |name| {
        let mut lines = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
        lines.find(|(one, _)| *one == name).map_or(0, |(_, value)| number(value.trim()))
    };
    Packets { received: value("Ip6InReceives"), passed: value("Ip6OutForwDatagrams") }
}

/// A line for each interface: eight columns of what it received, and as many of what it sent.
fn of_interfaces(text: &str) -> BTreeMap<String, Packets> {
    let one = |line: &str| {
        let (name, counters) = line.rsplit_once(':')?;
        let counters: Vec<_> = counters.split_whitespace().map(number).collect();
        let packets = Packets { received: *counters.get(1)?, passed: *counters.get(9)? };
        Some((name.trim().to_owned(), packets))
    };
    text.lines().filter_map(one).filter(|(name, _)| name != LOOPBACK).collect()
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

impl Measured {
    pub(super) fn of(&self, family: Family) -> Packets {
        if family == Family::V4 { self.ipv4 } else { self.ipv6 }
    }

    /// The part of the forwarded packets of a family that would be accelerated, from 0 to 1: the least and
    /// the most that it can be where blockers could not be read. `None` if none was forwarded.
    pub(super) fn share(&self, family: Family, ports: &[&Port], guards: &[Blocker]) -> Option<(f64, f64)> {
        if self.of(family).passed == 0 {
            return None;
        }
        let read: Vec<_> =
            guards.iter().filter(|guard| guard.kind != BlockerKind::Unreadable).cloned().collect();
        Some((self.open(family, ports, guards), self.open(family, ports, &read)))
    }

    /// The part that nothing keeps: of what arrives, times of what leaves.
    fn open(&self, family: Family, ports: &[&Port], guards: &[Blocker]) -> f64 {
        let part = |packets: fn(&Packets) -> u64, keeps: fn(&Blocker, &Port, Family) -> bool| {
            let is_open = |port: &&&Port| !guards.iter().any(|guard| keeps(guard, port, family));
            let of_port = |port: &&Port| self.interfaces.get(&port.name).map_or(0, packets);
            let open: u64 = ports.iter().filter(is_open).map(of_port).sum();
            let all: u64 = self.interfaces.values().map(packets).sum();
            if all == 0 { 0.0 } else { open as f64 / all as f64 }
        };
        part(|one| one.received, Blocker::blocks_from) * part(|one| one.passed, Blocker::blocks_to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_adopt::blockers::Direction;

    #[test]
    fn counters_are_found_by_name_and_column() {
        let snmp =
            "Ip: Forwarding DefaultTTL InReceives ForwDatagrams\nIp: 1 64 100 40\nIcmp: InMsgs\nIcmp: 3\n";
        assert_eq!(of_ipv4(snmp), Packets { received: 100, passed: 40 });
        let snmp6 = "Ip6InReceives                   \t7\nIp6OutForwDatagrams             \t5\n";
        assert_eq!(of_ipv6(snmp6), Packets { received: 7, passed: 5 });
        let dev = "Inter-|   Receive  |  Transmit\n face |bytes packets |bytes packets\n\
                   \x20   lo: 1 2 0 0 0 0 0 0 1 2 0 0 0 0 0 0\n  eth0: 9 8 0 0 0 0 0 0 7 6 0 0 0 0 0 0\n";
        let found = of_interfaces(dev);
        let result = found.into_iter().collect::<Vec<_>>();
        assert_eq!(result, [("eth0".to_owned(), Packets { received: 8, passed: 6 })]);
        for cut in 0..snmp.len() {
            let _ =
                (of_ipv4(&snmp[..cut]), of_ipv6(&snmp6[..cut.min(snmp6.len())]), of_interfaces(&snmp[..cut]));
        }
    }

    #[test]
    fn the_share_is_what_no_guard_keeps() {
        let counted = |received, passed| Packets { received, passed };
        let interfaces = [("eth0", counted(60, 50)), ("eth1", counted(20, 50)), ("other", counted(20, 0))];
        let measured = Measured {
            time: Duration::from_secs(1),
            ipv4: counted(100, 100),
            ipv6: counted(3, 0),
            interfaces: interfaces.map(|(name, packets)| (name.to_owned(), packets)).into(),
        };
        let ports = [(1, "eth0"), (2, "eth1")].map(|(index, name)| Port {
            index,
            name: name.into(),
            ..Port::default()
        });
        let share = |guards: &[Blocker]| measured.share(Family::V4, &ports.each_ref(), guards);
        let guard = |port, direction, kind| Blocker {
            port,
            family: None,
            direction,
            kind,
            what: String::new(),
            remedy: String::new(),
            is_passed: false,
        };
        assert_eq!(share(&[]), Some((0.8, 0.8)));
        assert_eq!(share(&[guard(Some(2), Direction::In, BlockerKind::Filter)]), Some((0.6, 0.6)));
        assert_eq!(share(&[guard(Some(2), Direction::Out, BlockerKind::Queueing)]), Some((0.4, 0.4)));
        assert_eq!(share(&[guard(None, Direction::Both, BlockerKind::Unreadable)]), Some((0.0, 0.8)));
        assert_eq!(measured.share(Family::V6, &ports.each_ref(), &[]), None, "none was forwarded");
    }
}
