//! What was measured, what was not and why, and which promises hold.

use super::forwarder::ALL;
use super::processor::{ENDS, FORWARDER};
use crate::results::{Findings, Goal, Measurement, Rounds, Row, Table, number};
use artery_rig::machine::Machine;

/// What is measured, and in which unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) name: &'static str,
    unit: &'static str,
}

const fn work(name: &'static str, unit: &'static str) -> Work {
    Work { name, unit }
}

pub(super) const TCP: Work = work("TCP", "Gbit/s");
pub(super) const TCP_TIME: Work = work("TCP: processor time", "s/GB");
pub(super) const UDP: Work = work("UDP", "Gbit/s");
pub(super) const UDP_TIME: Work = work("UDP: processor time", "s/GB");
pub(super) const OVERLOAD: Work = work("forwarded at overload", "Mpps");
pub(super) const LOSS_FREE: Work = work("loss-free rate", "Mpps");
pub(super) const MEMORY: Work = work("memory to memory", "Mpps");
/// Round trips: at which load, and the works for p50, p99 and p99.9.
pub(super) const PINGS: [[Work; 3]; 3] = [
    [work("ping idle p50", "µs"), work("ping idle p99", "µs"), work("ping idle p99.9", "µs")],
    [work("ping 50 % p50", "µs"), work("ping 50 % p99", "µs"), work("ping 50 % p99.9", "µs")],
    [work("ping 90 % p50", "µs"), work("ping 90 % p99", "µs"), work("ping 90 % p99.9", "µs")],
];
/// The name of the yardstick.
pub(super) const YARDSTICK: &str = "y: testpmd macswap";

pub(super) struct Report {
    rounds: Rounds,
}

impl Findings for Report {
    const NAME: &'static str = "wire";

    fn text(&self) -> String {
        let mut text =
            format!("# Over the wire\n\n{}.\n\n{EXPLAINED}\n\nForwarders:\n\n", self.rounds.machine);
        for forwarder in ALL {
            text += &format!("- *{}*: {}\n", forwarder.name(), forwarder.what());
        }
        text += &format!("\n{}\nRound trips through it, in µs:\n\n{}", self.table(), self.ping_table());
        text += &format!("\n{}", Goal::table(&self.goals()));
        self.rounds.remarks().iter().for_each(|line| text += &format!("\n{line}"));
        text
    }

    fn measurements(&self) -> Vec<Measurement> {
        let all = self.rounds.rows().iter().zip(self.rounds.measurements(Self::NAME, "work"));
        let placed = all.map(|(row, measurement)| {
            measurement
                .param("load", &self.rounds.machine.load)
                .param("processors", placement(&row.who))
                .notes(if row.work == MEMORY.name { "in memory" } else { "veth pairs in namespaces" })
        });
        placed.collect()
    }
}

impl Report {
    pub(super) fn new(machine: Machine) -> Report {
        Report { rounds: Rounds::new(machine) }
    }

    pub(super) fn add(&mut self, work: Work, who: &str, value: f64) {
        self.rounds.add(work.name, who, work.unit, value);
    }

    /// Says once why something was not measured.
    pub(super) fn skip(&mut self, what: &str, reason: &str) {
        self.rounds.skip(what, reason);
    }

    /// Says something once that a reader must know.
    pub(super) fn remark(&mut self, line: String) {
        self.rounds.remark(line);
    }

    /// The median of what was measured.
    pub(super) fn median(&self, work: Work, who: &str) -> Option<f64> {
        self.rounds.median(work.name, who, work.unit)
    }

    fn rows(&self, work: Work) -> impl Iterator<Item = &Row> {
        self.rounds.rows().iter().filter(move |row| row.work == work.name)
    }

    fn table(&self) -> Table {
        let mut table = Table::headed("what | forwarder | median: | least: | greatest: | unit | rounds:");
        for work in [MEMORY, TCP, TCP_TIME, UDP, UDP_TIME, OVERLOAD, LOSS_FREE] {
            for row in self.rows(work) {
                let [median, least, greatest] = row.figures();
                let rounds = row.runs.len().to_string();
                table.row([work.name, &row.who, &median, &least, &greatest, work.unit, &rounds]);
            }
        }
        table
    }

    fn ping_table(&self) -> Table {
        let mut table = Table::headed("load | forwarder | p50: | least: | greatest: | p99: | p99.9:");
        for (load, [middle, most, nearly_all]) in ["idle", "50 %", "90 %"].into_iter().zip(PINGS) {
            for row in self.rows(middle) {
                let [median, least, greatest] = row.figures();
                let [p99, p999] =
                    [most, nearly_all].map(|work| self.median(work, &row.who).map_or("-".into(), number));
                table.row([load, &row.who, &median, &least, &greatest, &p99, &p999]);
            }
        }
        table
    }

    fn goals(&self) -> [Goal; 6] {
        let goal = |claim: &str, (work, who): (Work, &str), bound, is_least| {
            let figure = self.median(work, who);
            Goal { claim: claim.into(), figure, bound, is_least, unit: work.unit }
        };
        let kernel = ["kernel", "kernel-rps"].iter().filter_map(|who| self.median(TCP, who)).reduce(f64::max);
        let [idle, ..] = PINGS[0];
        let ping = self.median(idle, "kernel").map(|kernel| kernel + 40.0);
        [
            goal(
                "TCP through conf/router.click: 10 Gbit/s, or half of the kernel's if that is more",
                (TCP, "router"),
                kernel.map(|kernel| (kernel / 2.0).max(10.0)),
                true,
            ),
            goal(
                "AF_PACKET wire: the bare loop's (0.57 when first measured)",
                (OVERLOAD, "cable"),
                self.median(OVERLOAD, "bare"),
                true,
            ),
            goal("AF_XDP wire: 0.68", (OVERLOAD, "cable-xdp"), Some(0.68), true),
            goal(
                "memory pair to memory pair: 1.5 y",
                (MEMORY, "memory"),
                self.median(MEMORY, YARDSTICK).map(|y| 1.5 * y),
                true,
            ),
            goal("p50 of ping through the router: the kernel's and 40 µs", (idle, "router"), ping, false),
            goal("the same of a router that waits awake (--awake)", (idle, "router-awake"), ping, false),
        ]
    }
}

const EXPLAINED: &str = "\
Medians of rounds in which the forwarders took turns, each in fresh namespaces joined by veth pairs. Figures
of a machine that others use (a load above 1) say little.

- *Generator*, processor 0: the kernel sends frames of 60 bytes, of one flow, from a BPF program (XDP live
  frames), before everything else there (SCHED_FIFO). It also does what the kernel does with them up to the
  forwarder's queue.
- *Forwarder*, processor 1, nice -19. *kernel* has none: it forwards in line, on processor 0.
- *Sink*: the receiving veth counts, an nftables rule drops, on the processor that sent last.
- *iperf3*, both ends on processor 0, default offloads. *ping*, processor 0, before the generator; a reply is
  the kernel's.
- *Loss-free* is the greatest rate with at most 0.1 % lost, found by halving; percentages of load are of it.
- *Processor time* is that of the forwarder's process with what the kernel does in its name, the receiver's
  stack included; of *kernel-rps* all that processor 1 does (/proc/stat), other programs included. *kernel*
  works in the sender's name.";

fn placement(who: &str) -> String {
    let on = ALL.iter().find(|forwarder| forwarder.name() == who).map_or(FORWARDER, |one| one.processor());
    match who.starts_with("memory") || who == YARDSTICK {
        true => format!("all {on}"),
        false => format!("generator, iperf3 and ping {ENDS}; forwarder and sink {on}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report::new(Machine::here())
    }

    fn verdicts(report: &Report) -> Vec<&'static str> {
        report.goals().iter().map(Goal::verdict).collect()
    }

    #[test]
    fn goals_are_met_missed_or_not_measured() {
        let mut report = report();
        assert_eq!(verdicts(&report), ["not measured"; 6]);
        report.add(TCP, "router", 12.0);
        report.add(TCP, "kernel", 16.0);
        report.add(TCP, "kernel-rps", 26.0);
        report.add(OVERLOAD, "cable", 0.55);
        report.add(OVERLOAD, "bare", 0.54);
        report.add(OVERLOAD, "cable-xdp", 0.7);
        report.add(MEMORY, "memory", 80.0);
        report.add(MEMORY, YARDSTICK, 60.0);
        report.add(PINGS[0][0], "router", 71.0);
        report.add(PINGS[0][0], "router-awake", 70.0);
        report.add(PINGS[0][0], "kernel", 30.0);
        assert_eq!(verdicts(&report), ["missed", "met", "met", "missed", "missed", "met"]);
    }

    #[test]
    fn half_of_a_slow_kernel_is_not_enough() {
        let mut report = report();
        report.add(TCP, "router", 9.0);
        report.add(TCP, "kernel", 15.0);
        assert_eq!(verdicts(&report)[0], "missed");
    }

    #[test]
    fn rounds_become_one_row_and_reasons_are_told_once() {
        let mut report = report();
        for value in [1.0, 3.0, 2.0] {
            report.add(UDP, "router", value);
            report.skip("cable-xdp", "no such way\nand a second line\nthe cause");
        }
        let text = report.text();
        let row = text.lines().find(|line| line.starts_with("| UDP")).unwrap();
        assert!(row.contains("2.00") && row.contains("1.00") && row.contains("3.00"), "{row}");
        assert_eq!(text.matches("skipped: cable-xdp: no such way … the cause").count(), 1, "{text}");
        assert_eq!(report.measurements().len(), 1);
        assert_eq!(
            report.measurements()[0].params["processors"],
            "generator, iperf3 and ping 0; forwarder and sink 1"
        );
    }

    #[test]
    fn round_trips_have_a_row_for_each_load_and_forwarder() {
        let mut report = report();
        for (work, value) in PINGS[1].into_iter().zip([10.5, 20.5, 30.5]) {
            report.add(work, "kernel", value);
        }
        let text = report.text();
        let row = text.lines().find(|line| line.starts_with("| 50 %")).unwrap();
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells[1..8], ["50 %", "kernel", "10.5", "10.5", "10.5", "20.5", "30.5"]);
    }
}
