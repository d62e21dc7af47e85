//! What was measured, and what it says about the claims: tables, JSON lines and charts.
use super::Paced;
use super::claims::judge;
use super::heaps::Heaps;
use super::scenario::Scenario;
use super::tables::Levels;
use artery_bench::fib::Checked;
use artery_bench::fib::engine::Mode;
use artery_bench::results::{Chart, Findings, Measurement, Summary, Table, Verdict, list, number};
use artery_rig::machine::Machine;

/// Lookups in a closed loop.
pub(super) struct ClosedRow {
    pub(super) scenario: Scenario,
    pub(super) engine: &'static str,
    pub(super) mode: Mode,
    /// Million lookups a second, run by run.
    pub(super) rates: Vec<f64>,
}

/// Packets at a given pace.
pub(super) struct OpenRow {
    pub(super) scenario: Scenario,
    pub(super) engine: &'static str,
    pub(super) at_rate: Paced,
    /// The greatest rate without loss, in packets a second.
    pub(super) knee: Option<f64>,
}

/// Memory of an engine with a table.
#[derive(Clone, Copy)]
pub(super) struct MemoryRow {
    pub(super) table: &'static str,
    pub(super) engine: &'static str,
    pub(super) bytes: u64,
    pub(super) writer: u64,
}

pub(super) struct Report {
    machine: Machine,
    pub(super) prefixes: usize,
    repetitions: usize,
    pub(super) closed: Vec<ClosedRow>,
    pub(super) open: Vec<OpenRow>,
    pub(super) memory: Vec<MemoryRow>,
    pub(super) levels: Vec<(&'static str, Vec<Levels>)>,
    pub(super) default_of_ipv6: Option<Levels>,
    /// What engines were checked with before they were timed.
    pub(super) checked: Checked,
    /// Heaps that came and went under lookups, where that could be measured.
    pub(super) heaps: Option<Heaps>,
}

impl Findings for Report {
    const NAME: &'static str = "art2016";

    fn text(&self) -> String {
        let mut text = format!(
            "# art2016: ART against the radix tree of BSD\n\n{}.\n\
             Medians of {} runs; the full feed has {} prefixes. The experiment of 2016 published pictures, \
             no figures.\n",
            self.machine, self.repetitions, self.prefixes
        );
        let (checked, open) = (&self.checked, self.open_table());
        text +=
            &format!("\nBefore they were timed, {checked}. The oracle is a hash table for every length.\n");
        text += &format!("\n## Closed loop: million lookups a second\n\n{}", self.closed_table());
        text += &format!("\n## 800,000 packets a second, and the greatest rate without loss\n\n{open}");
        text += "\nThe generator and the forwarding thread need a processor each. Where less was offered \
            than 800,000, or packets were lost beside idle time, other programs had them; the rate \
            without loss then can't be told.\n";
        text += &format!("\n## Memory\n\n{}\n{}", self.memory_table(), self.level_table());
        text + &list(&self.verdicts())
    }

    fn verdicts(&self) -> Vec<Verdict> {
        judge(self)
    }

    fn measurements(&self) -> Vec<Measurement> {
        let of = |engine: &str, unit: &str, runs: &[f64]| {
            Measurement::of("art2016", engine, unit, runs).cpu(&self.machine.cpu)
        };
        let at = |m: Measurement, scenario: Scenario| {
            m.param("table", scenario.table).param("destinations", scenario.destinations.name())
        };
        let closed = self.closed.iter().map(|row| {
            let (low, high) = quartiles(&row.rates);
            at(of(row.engine, "million lookups/s", &row.rates), row.scenario)
                .param("mode", row.mode.name())
                .notes(format!("quartiles {low:.2} and {high:.2}"))
        });
        let open = self.open.iter().flat_map(|row| {
            let one = |unit: &str, value: f64| at(of(row.engine, unit, &[value]), row.scenario).threads(2);
            let offered = row.at_rate.offered.round();
            let mut rows = vec![
                one("% lost", row.at_rate.loss).param("packets_per_s", offered),
                one("% idle", row.at_rate.idle).param("packets_per_s", offered),
            ];
            rows.extend(row.knee.map(|knee| one("packets/s without loss", knee)));
            rows
        });
        let memory = self.memory.iter().map(|row| {
            of(row.engine, "bytes", &[row.bytes as f64])
                .param("table", row.table)
                .param("writer_bytes", row.writer)
        });
        let tables = self.all_levels().flat_map(|(table, levels)| {
            levels.tables.iter().map(move |&(offset, count)| {
                of(&format!("art {}", levels.strides), "tables", &[count as f64])
                    .param("table", table)
                    .param("first_bit", offset)
                    .notes(format!("agree with {}", levels.agrees_with))
            })
        });
        let all = closed.chain(open).chain(memory).chain(tables);
        all.chain(self.checks().map(|(unit, count)| of("all", unit, &[count as f64]))).collect()
    }

    fn charts(&self) -> Vec<(String, String)> {
        let mut charts: Vec<_> = (0..)
            .zip(self.scenarios())
            .map(|(n, scenario)| (format!("art2016-{n}.svg"), self.chart(scenario).svg()))
            .collect();
        charts.push(("art2016-memory.svg".to_string(), self.memory_chart().svg()));
        charts
    }
}

impl Report {
    pub(super) fn new(machine: Machine, prefixes: usize, repetitions: usize) -> Report {
        let (closed, open, memory, levels) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (checked, heaps, default_of_ipv6) = (Checked::default(), None, None);
        Report {
            machine,
            prefixes,
            repetitions,
            closed,
            open,
            memory,
            levels,
            default_of_ipv6,
            checked,
            heaps,
        }
    }

    /// Processors that the experiment may use.
    pub(super) fn processors(&self) -> usize {
        self.machine.cores
    }

    /// All scenarios of the closed loop, in order.
    pub(super) fn scenarios(&self) -> Vec<Scenario> {
        let mut scenarios: Vec<Scenario> = Vec::new();
        for row in &self.closed {
            if !scenarios.contains(&row.scenario) {
                scenarios.push(row.scenario);
            }
        }
        scenarios
    }

    /// The median of the closed loop, in million lookups a second.
    pub(super) fn rate(&self, scenario: Scenario, engine: &str, mode: Mode) -> Option<f64> {
        let mut rows = self.closed.iter();
        let row = rows.find(|row| row.scenario == scenario && row.engine == engine && row.mode == mode)?;
        Some(Summary::of(&row.rates).median)
    }

    /// Everything that was counted rather than timed.
    fn checks(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let Checked { updates, addresses, .. } = self.checked;
        let gate = [("updates checked", updates as u64), ("addresses checked", addresses as u64)];
        let heaps = self.heaps.map(|heaps| {
            [
                ("heaps of 16 bits that came and went", heaps.came_and_went),
                ("heaps of 16 bits that were refused", heaps.refused),
                ("lookups while they did", heaps.lookups),
                ("lookups that missed while they did", heaps.missed + heaps.wrong),
            ]
        });
        gate.into_iter().chain(heaps.into_iter().flatten())
    }

    /// ART's tables with all routes.
    fn all_levels(&self) -> impl Iterator<Item = (&'static str, &Levels)> {
        let ipv4 = self.levels.iter().flat_map(|(name, all)| all.iter().map(|levels| (*name, levels)));
        ipv4.chain(self.default_of_ipv6.iter().map(|levels| ("IPv6", levels)))
    }

    fn closed_table(&self) -> Table {
        let mut table = Table::headed(
            "table | destinations | engine | one by one: | least to greatest: | in batches: | least to \
             greatest:",
        );
        for row in self.closed.iter().filter(|row| row.mode == Mode::Independent) {
            let is_same = |other: &&ClosedRow| other.scenario == row.scenario && other.engine == row.engine;
            let mut batches = self.closed.iter().filter(|other| other.mode == Mode::Batch);
            let one = Summary::of(&row.rates);
            let batch = batches.find(is_same).map(|row| Summary::of(&row.rates));
            let spread = |s: Summary| format!("{} to {}", number(s.min), number(s.max));
            table.row([
                row.scenario.table.to_string(),
                row.scenario.destinations.name(),
                row.engine.to_string(),
                number(one.median),
                spread(one),
                batch.map(|s| number(s.median)).unwrap_or_default(),
                batch.map(spread).unwrap_or_default(),
            ]);
        }
        table
    }

    fn open_table(&self) -> Table {
        let mut table = Table::headed(
            "table | destinations | engine | offered/s: | lost %: | idle %: | without loss, packets/s:",
        );
        for row in &self.open {
            table.row([
                row.scenario.table.to_string(),
                row.scenario.destinations.name(),
                row.engine.to_string(),
                number(row.at_rate.offered),
                number(row.at_rate.loss),
                number(row.at_rate.idle),
                row.knee.map(number).unwrap_or_default(),
            ]);
        }
        table
    }

    fn memory_table(&self) -> Table {
        let mut table = Table::headed("table | engine | MB to look up in: | MB for updates:");
        for row in &self.memory {
            let megabytes = |bytes: u64| format!("{:.3}", bytes as f64 / 1e6);
            table.row([
                row.table.to_string(),
                row.engine.to_string(),
                megabytes(row.bytes),
                megabytes(row.writer),
            ]);
        }
        table
    }

    fn level_table(&self) -> Table {
        let mut table = Table::headed(
            "table | strides | ART's tables by first bit | MB of heaps: | MB with 8-byte words: | numbers \
             of tables agree with",
        );
        for (name, levels) in self.all_levels() {
            let tables = levels.tables.iter().filter(|(_, count)| *count > 0);
            let tables: Vec<String> = tables.map(|(offset, count)| format!("{offset}:{count}")).collect();
            let megabytes = |bytes: u64| format!("{:.3}", bytes as f64 / 1e6);
            table.row([
                name.to_string(),
                levels.strides.to_string(),
                tables.join(" "),
                megabytes(levels.bytes),
                megabytes(levels.bytes_2016),
                levels.agrees_with.to_string(),
            ]);
        }
        table
    }

    fn chart(&self, scenario: Scenario) -> Chart {
        let title = format!("{}: {}", scenario.table, scenario.destinations.name());
        let rows = self.closed.iter().filter(|row| row.scenario == scenario && row.mode == Mode::Independent);
        let chart = Chart::new(&title, "million lookups a second, one by one; longer is better");
        rows.fold(chart, |chart, row| {
            let summary = Summary::of(&row.rates);
            match row.engine {
                "bsd-radix" => chart.reference(row.engine, summary.median),
                _ => chart.bar(row.engine, summary.median, Some((summary.min, summary.max))),
            }
        })
    }

    fn memory_chart(&self) -> Chart {
        let chart = Chart::new("Memory of the full feed", "megabytes to look up in; shorter is better");
        let rows = self.memory.iter().filter(|row| row.table == super::scenario::FULL);
        rows.fold(chart, |chart, row| {
            let value = row.bytes as f64 / 1e6;
            match row.engine {
                "bsd-radix" => chart.reference(row.engine, value),
                _ => chart.bar(row.engine, value, None),
            }
        })
    }
}

/// The figures below which a quarter and three quarters of the runs lie.
fn quartiles(runs: &[f64]) -> (f64, f64) {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len() - 1;
    (sorted[last / 4], sorted[last - last / 4])
}

#[cfg(test)]
mod tests {
    use super::super::scenario::{AS_RUN, Destinations};
    use super::*;
    use artery_bench::results::Finding;

    fn report(art: f64) -> Report {
        with_rates(art, 30.0, 40.0)
    }

    fn with_rates(art: f64, eights: f64, sixteen: f64) -> Report {
        let mut report = Report::new(Machine::here(), 1000, 3);
        let scenario = Scenario { table: AS_RUN, destinations: Destinations::Sweep(16) };
        for (engine, rate) in
            [("bsd-radix", 10.0), ("art 8/4x6", art), ("art 8/8/8/8", eights), ("art 16/8/8", sixteen)]
        {
            for mode in [Mode::Independent, Mode::Batch] {
                report.closed.push(ClosedRow { scenario, engine, mode, rates: vec![rate; 3] });
            }
        }
        report
    }

    #[test]
    fn a_claim_about_speed_holds_when_it_does_everywhere() {
        assert_eq!(verdict("1.", &report(20.0)).finding, Finding::Holds);
        let slow = verdict("1.", &report(5.0));
        assert_eq!(slow.finding, Finding::DoesNotHold);
        assert!(slow.why.contains("in 0 of 2 cases"), "{slow:?}");
    }

    fn verdict(claim: &str, report: &Report) -> Verdict {
        judge(report).into_iter().find(|verdict| verdict.claim.starts_with(claim)).unwrap()
    }

    #[test]
    fn greater_strides_are_faster_only_if_both_lists_of_them_are() {
        let found = |eights, sixteen| verdict("2.", &with_rates(20.0, eights, sixteen)).finding;
        assert_eq!(found(30.0, 40.0), Finding::Holds);
        for (eights, sixteen) in [(20.0, 40.0), (40.0, 20.0), (15.0, 40.0), (40.0, 15.0)] {
            assert_eq!(found(eights, sixteen), Finding::DoesNotHold, "{eights} {sixteen}");
        }
        assert!(verdict("2.", &report(20.0)).why.contains("8/8/8/8 1.50x, 16/8/8 2.00x"));
    }

    #[test]
    fn figures_of_what_was_counted_are_told() {
        let mut report = report(20.0);
        assert!(report.text().contains("while other processors forward: **not measured**"));
        report.checked = Checked { engines: 3, batches: 9, updates: 777, addresses: 88_888 };
        report.heaps = Some(Heaps { came_and_went: 55, inside: 5, lookups: 66, ..Heaps::default() });
        report.levels.push((AS_RUN, super::super::tables::levels(&[]).unwrap()));
        let (text, json) = (report.text(), report.json().unwrap());
        for wanted in
            ["3 loaded engines", "88888", "9 batches", "777", "55 heaps came and went", "0:1", "a count of"]
        {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        for wanted in
            ["addresses checked", "updates checked", "heaps of 16 bits that came and went", "first_bit"]
        {
            assert!(json.contains(wanted), "{wanted}: {json}");
        }
    }

    #[test]
    fn the_text_says_whether_claims_hold_and_json_has_a_line_for_each_row() {
        let report = report(20.0);
        assert!(report.text().contains("**holds**"));
        // And two of what was checked.
        assert_eq!(report.json().unwrap().lines().count(), 8 + 2);
        assert!(report.chart(report.scenarios()[0]).svg().contains("art 16/8/8"));
    }

    #[test]
    fn quartiles_leave_out_a_quarter_on_each_side() {
        assert_eq!(quartiles(&[4.0, 1.0, 3.0, 2.0, 5.0]), (2.0, 4.0));
    }
}
