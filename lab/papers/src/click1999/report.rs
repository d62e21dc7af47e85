//! What was measured, beside what was published: tables, files and charts.

use super::Runs;
use super::case::Case;
use super::claims::judge;
use super::graph::CHAIN;
use super::plan::{Plan, WIRE};
use artery_bench::cachegrind::Count;
use artery_bench::results::{Chart, Findings, Measurement, Summary, Table, Verdict, list, number};
use artery_engine::BATCH;
use artery_rig::machine::Machine;
use std::collections::BTreeMap;

/// Packets a second in 1999: the configuration, and Linux.
const CLICK_1999: f64 = 24_000.0;
const LINUX_1999: f64 = 33_000.0;

/// The rows in memory: name, what it is, case, burst.
const MEMORY: [(&str, &str, Case, usize); 8] = [
    ("E2", "graph, one call per element and packet", Case::Graph, 1),
    ("E3", "graph, batches of 20: its queue holds no more", Case::Graph, BATCH),
    ("E3 roomy", "graph with a queue of 200, batches of 64", Case::Roomy, BATCH),
    ("E4", "one function, packet by packet", Case::Forwarder, 1),
    ("E4 batched", "one function, batches", Case::Forwarder, BATCH),
    ("E6", "graph with lookup, options, fragmenter; per packet", Case::Completed, 1),
    ("E6 batched", "the same, batches", Case::Completed, BATCH),
    ("source", "source and sink alone, batches", Case::Prefix(0), BATCH),
];

/// What the rows over the wire are, as [`WIRE`].
const WIRE_MEANING: [&str; 4] = [
    "the configuration as printed; TCP both ways, 256-byte packets, acknowledgments counted",
    "the same; datagrams of 256 bytes one way",
    "Linux ip_forward; TCP as above",
    "Linux ip_forward; datagrams as above",
];

pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) plan: Plan,
    pub(super) memory: Runs<(Case, usize)>,
    pub(super) instructions: BTreeMap<(Case, usize), Count>,
    pub(super) wire: Runs<&'static str>,
    pub(super) remarks: Vec<String>,
}

/// Rates of what was run to each other; none where one of both did not run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ratios {
    /// Graph to function, packet by packet.
    pub(super) one_by_one: Option<f64>,
    /// The same in batches of 20, which the queue of the configuration holds.
    pub(super) queued: Option<f64>,
    /// The same in batches of 64.
    pub(super) roomy: Option<f64>,
    /// The graph in batches to itself packet by packet.
    pub(super) batches: Option<f64>,
    /// The graph with what was left out to the graph, packet by packet.
    pub(super) completed: Option<f64>,
    /// The same in batches.
    pub(super) completed_batches: Option<f64>,
    /// The configuration to Linux over a wire, by TCP.
    pub(super) tcp: Option<f64>,
    /// The same by a flood.
    pub(super) flood: Option<f64>,
}

impl Findings for Report {
    const NAME: &'static str = "click1999";

    fn text(&self) -> String {
        let mut text = format!("# click1999: forwarding as in May 1999\n\n{}.\n", self.machine);
        let Plan { packets, repetitions, seconds, wire_repetitions, .. } = self.plan;
        text += &format!(
            "Medians. Rounds in memory: {repetitions}, of {} packets for each row; over a wire: \
             {wire_repetitions}, of {seconds} s.\n\n\
             In memory: packets of 256 bytes from zeus to tsb are copied into frames, forwarded, and given \
             back. Where they move one by one, the source still makes 16 in a row and the sink takes up to \
             20.\n\n{}",
            number(packets as f64),
            self.memory_table()
        );
        text += &format!("\nRatios:\n\n{}", self.ratio_table());
        text += &format!(
            "\nEach element, by the difference that it makes at the end of the chain, of least times:\n\n{}",
            self.element_table()
        );
        if !self.wire.is_empty() {
            text += &format!("\nOver a wire between namespaces:\n\n{}", self.wire_table());
        }
        text += "\nPublished in 1999 on a Pentium Pro: 24,000 packets/s by the configuration, 33,000 by \
            Linux, ratio 0.727. Then, a driver and a network card were part of both figures, as they \
            are of E1 and E5; rows in memory have neither, so that a graph's own cost shows in full. \
            The speed-up shows how far machines have come.\n";
        text += &list(&self.verdicts());
        self.remarks.iter().for_each(|remark| text += &format!("\n{remark}\n"));
        text
    }

    fn verdicts(&self) -> Vec<Verdict> {
        judge(&self.ratios())
    }

    fn measurements(&self) -> Vec<Measurement> {
        let of = |engine: &str, unit: &str, runs: &[f64]| {
            Measurement::of("click1999", engine, unit, runs).cpu(&self.machine.cpu)
        };
        let with_case = |measurement: Measurement, case: &Case, burst: &usize| {
            measurement.param("case", case).param("burst", burst).param("packet_bytes", 256)
        };
        let memory = self.memory.iter().map(|((case, burst), runs)| {
            let measurement = with_case(of(&engine(*case, *burst), "ns/packet", runs), case, burst);
            measurement.notes("in memory, filling and giving back the frame included")
        });
        let counted = self.instructions.iter().map(|((case, burst), count)| {
            with_case(of(&engine(*case, *burst), "instructions/packet", &[count.instructions]), case, burst)
                .notes("cachegrind, difference of N and 2N packets")
        });
        let elements = [1, BATCH].into_iter().flat_map(|burst| {
            self.elements(burst).into_iter().map(move |(name, nanos)| (name, nanos, burst))
        });
        let elements = elements.map(|(name, nanos, burst)| {
            of(name, "ns/packet", &[nanos])
                .param("burst", burst)
                .notes("difference of the least times of two chains")
        });
        let wire = self.wire.iter().map(|(name, runs)| {
            of(name, "packets/s", runs).threads(self.machine.cores).notes("veth and bridge in namespaces")
        });
        memory.chain(counted).chain(elements).chain(wire).collect()
    }

    fn charts(&self) -> Vec<(String, String)> {
        let charts = [
            ("click1999-memory.svg", self.memory_chart()),
            ("click1999-elements.svg", self.elements_chart()),
            ("click1999-wire.svg", self.wire_chart()),
        ];
        // Of what was not measured there is none.
        let drawn = charts.into_iter().filter(|(_, svg)| !svg.is_empty());
        drawn.map(|(name, svg)| (name.to_string(), svg)).collect()
    }
}

impl Report {
    fn median(&self, case: Case, burst: usize) -> Option<f64> {
        self.memory.get(&(case, burst)).map(|runs| Summary::of(runs).median)
    }

    fn memory_table(&self) -> Table {
        let mut table = Table::headed(
            "row | what | packets/s: | ns/packet: | least: | most: | instructions: | misses (PPro L1d): | \
             × 24,000:",
        );
        for (name, what, case, burst) in MEMORY {
            let Some(runs) = self.memory.get(&(case, burst)) else { continue };
            let nanos = Summary::of(runs);
            let count = self.instructions.get(&(case, burst));
            let counted = |of: fn(&Count) -> f64| count.map_or("-".into(), |count| number(of(count)));
            table.row([
                name.to_string(),
                what.to_string(),
                number(1e9 / nanos.median),
                number(nanos.median),
                number(nanos.min),
                number(nanos.max),
                counted(|count| count.instructions),
                counted(|count| count.d1),
                number(1e9 / nanos.median / CLICK_1999),
            ]);
        }
        table
    }

    fn ratios(&self) -> Ratios {
        let speed = |case, burst| self.median(case, burst).map(|nanos| 1.0 / nanos);
        let wire = |name| self.wire.get(name).map(|runs| Summary::of(runs).median);
        let [one, many] = [1, BATCH].map(|burst| speed(Case::Graph, burst));
        let [one_by_hand, many_by_hand] = [1, BATCH].map(|burst| speed(Case::Forwarder, burst));
        let to = |ours: Option<f64>, theirs: Option<f64>| Some(ours? / theirs?);
        Ratios {
            one_by_one: to(one, one_by_hand),
            queued: to(many, many_by_hand),
            roomy: to(speed(Case::Roomy, BATCH), many_by_hand),
            batches: to(many, one),
            completed: to(speed(Case::Completed, 1), one),
            completed_batches: to(speed(Case::Completed, BATCH), many),
            tcp: to(wire(WIRE[0]), wire(WIRE[2])),
            flood: to(wire(WIRE[1]), wire(WIRE[3])),
        }
    }

    /// Name, ours, and what was published or is expected.
    fn ratio_table(&self) -> Table {
        let mut table = Table::headed("ratio | ours: | published or expected");
        let Ratios { one_by_one, queued, roomy, batches, completed, completed_batches, tcp, flood } =
            self.ratios();
        let rows = [
            ("E2/E4: graph to function, packet by packet", one_by_one, "0.727 in 1999"),
            ("E3/E4: graph to function, batches of 20", queued, ""),
            ("E3/E4: graph to function, batches of 64", roomy, ""),
            ("E3/E2: what batches gain", batches, "more than 1"),
            ("E6/E2: what was left out costs little, per packet", completed, "\"won't impact\" in 1999"),
            ("E6/E3: the same, batches", completed_batches, ""),
            ("E1/E5: TCP over the wire", tcp, "0.727 in 1999"),
            ("E1/E5: flood over the wire", flood, ""),
        ];
        for (name, ours, then) in rows {
            let Some(ours) = ours else { continue };
            table.row([name.to_string(), format!("{ours:.3}"), then.to_string()]);
        }
        table
    }

    /// What each element of the chain adds, in nanoseconds. Least times are compared: a difference of medians
    /// would mostly show what else the machine had to do.
    fn elements(&self, burst: usize) -> Vec<(&'static str, f64)> {
        let up_to = |length| Some(Summary::of(self.memory.get(&(Case::Prefix(length), burst))?).min);
        let difference =
            |(n, (name, _)): (usize, &(&'static str, &str))| Some((*name, up_to(n + 1)? - up_to(n)?));
        CHAIN.iter().enumerate().filter_map(difference).collect()
    }

    /// How many instructions each element of the chain adds, if they were counted.
    fn element_instructions(&self, burst: usize) -> Vec<Option<f64>> {
        let up_to =
            |length| self.instructions.get(&(Case::Prefix(length), burst)).map(|count| count.instructions);
        (0..CHAIN.len()).map(|n| Some(up_to(n + 1)? - up_to(n)?)).collect()
    }

    fn element_table(&self) -> Table {
        let mut table = Table::headed(
            "element | ns, per packet: | ns, batches: | instructions, per packet: | instructions, batches:",
        );
        let nanos = self.elements(1).into_iter().zip(self.elements(BATCH));
        let counts = self.element_instructions(1).into_iter().zip(self.element_instructions(BATCH));
        let counted = |count: Option<f64>| count.map_or("-".into(), |count| format!("{count:.0}"));
        for (((name, one), (_, many)), (count_one, count_many)) in nanos.zip(counts) {
            let (one, many) = (format!("{one:.1}"), format!("{many:.1}"));
            table.row([name.to_string(), one, many, counted(count_one), counted(count_many)]);
        }
        table
    }

    fn wire_table(&self) -> Table {
        let mut table = Table::headed("row | what | packets/s: | least: | most: | 1999: | speed-up:");
        for (name, what) in WIRE.into_iter().zip(WIRE_MEANING) {
            let Some(runs) = self.wire.get(name) else { continue };
            let then = if name.starts_with("E1") { CLICK_1999 } else { LINUX_1999 };
            let rate = Summary::of(runs);
            table.row([
                name.to_string(),
                what.to_string(),
                number(rate.median),
                number(rate.min),
                number(rate.max),
                number(then),
                number(rate.median / then),
            ]);
        }
        table
    }

    /// Nanoseconds of a packet in memory.
    pub(super) fn memory_chart(&self) -> String {
        let chart =
            Chart::new("Forwarding in memory, 256-byte packets", "nanoseconds per packet; less is better");
        let bars = MEMORY.iter().filter_map(|(name, what, case, burst)| {
            let nanos = Summary::of(self.memory.get(&(*case, *burst))?);
            Some((format!("{name}: {what}"), nanos))
        });
        bars.fold(chart, |chart, (name, nanos)| chart.bar(&name, nanos.median, Some((nanos.min, nanos.max))))
            .svg()
    }

    /// Nanoseconds of each element.
    pub(super) fn elements_chart(&self) -> String {
        let chart =
            Chart::new("What each element costs in batches", "nanoseconds per packet; less is better");
        self.elements(BATCH)
            .into_iter()
            .fold(chart, |chart, (name, nanos)| chart.bar(name, nanos, None))
            .svg()
    }

    /// Packets a second over the wire; empty if nothing was measured.
    pub(super) fn wire_chart(&self) -> String {
        if self.wire.is_empty() {
            return String::new();
        }
        let chart = Chart::new(
            "Forwarding between namespaces, 256-byte packets",
            "packets per second; more is better",
        );
        let who = |name: &str| if name.starts_with("E1") { "the configuration" } else { "Linux" };
        let bars = WIRE.iter().filter_map(|name| Some((name, Summary::of(self.wire.get(name)?))));
        let chart = bars.fold(chart, |chart, (name, rate)| {
            chart.bar(&format!("{name}: {}", who(name)), rate.median, Some((rate.min, rate.max)))
        });
        chart.reference("1999: the configuration", CLICK_1999).reference("1999: Linux", LINUX_1999).svg()
    }
}

/// The name of the row that a case belongs to.
fn engine(case: Case, burst: usize) -> String {
    let row = MEMORY.iter().find(|(_, _, known, at)| (*known, *at) == (case, burst));
    row.map_or_else(|| case.to_string(), |(name, ..)| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::click1999::plan::cases;

    fn report() -> Report {
        let memory = cases().map(|(case, burst)| {
            let nanos = match case {
                Case::Prefix(length) => 10.0 + 5.0 * length as f64,
                Case::Forwarder => 20.0,
                _ => 50.0,
            };
            ((case, burst), vec![nanos / burst as f64, nanos / burst as f64])
        });
        Report {
            machine: Machine::here(),
            plan: Plan::QUICK,
            memory: memory.collect(),
            instructions: BTreeMap::new(),
            wire: BTreeMap::new(),
            remarks: vec!["A remark.".into()],
        }
    }

    #[test]
    fn an_element_costs_the_difference_of_two_chains() {
        let elements = report().elements(1);
        assert_eq!(elements.len(), CHAIN.len());
        assert!(elements.iter().all(|(_, nanos)| (nanos - 5.0).abs() < 1e-9), "{elements:?}");
    }

    #[test]
    fn the_report_states_ratios_that_were_measured_and_no_others() {
        let report = report();
        let text = report.text();
        let ratio = text.lines().find(|line| line.starts_with("| E2/E4")).unwrap();
        assert!(ratio.contains(" 0.400 | 0.727 in 1999 "), "{ratio}");
        assert!(!text.contains("E1/E5") && text.contains("A remark."), "{text}");
        assert!(report.wire_chart().is_empty() && report.memory_chart().contains("E4 batched"));
    }

    #[test]
    fn every_measurement_is_a_line_with_all_fields() {
        let report = report();
        let lines = report.json().unwrap();
        assert_eq!(lines.lines().count(), report.memory.len() + 2 * CHAIN.len());
        for line in lines.lines() {
            let measurement: Measurement = serde_json::from_str(line).unwrap();
            assert_eq!(measurement.experiment.as_str(), "click1999");
            assert_eq!(measurement.cpu.as_str(), report.machine.cpu.as_str());
        }
    }
}
