//! What was measured: rows as JSON lines, tables and charts.
use super::engine::Mode;
use super::traffic::Traffic;
use super::updates::interval;
use crate::results::{Chart, Summary, Table, number, write_files};
use artery_rig::console::print;
use artery_rig::machine::Machine;
use serde::Serialize;
use std::path::Path;

/// One line of results; fields that do not apply are left out.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) struct Row {
    experiment: &'static str,
    family: u8,
    engine: String,
    prefixes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    traffic: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mlps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mlps_min: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mlps_max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_prefix: Option<f64>,
    /// Bytes of what is kept for updates alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    writer_bytes: Option<u64>,
    /// Seconds to load the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    load_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    updates: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    updates_per_s: Option<f64>,
    /// Percent of their rate that readers lose, and the interval of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    readers_lose_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    readers_lose_interval: Option<(f64, f64)>,
    /// Microseconds of a single update: median, least and greatest.
    #[serde(skip_serializing_if = "Option::is_none")]
    update_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    update_us_min: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    update_us_max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rounds: Option<usize>,
}

/// The line before all rows.
#[derive(Serialize)]
struct Header<'a> {
    experiment: &'static str,
    machine: &'a Machine,
    rounds: usize,
}

impl Row {
    /// A row about an engine with so many prefixes.
    pub(super) fn new(family: u8, engine: &str, prefixes: usize) -> Row {
        Row { experiment: "fib", family, engine: engine.into(), prefixes, ..Row::default() }
    }
    /// Says how much memory lookups may touch, and how much more updates need.
    pub(super) fn bytes(mut self, bytes: impl Into<Option<u64>>, writer: u64) -> Row {
        self.bytes = bytes.into();
        self.bytes_per_prefix = self.bytes.map(|bytes| bytes as f64 / self.prefixes.max(1) as f64);
        self.writer_bytes = Some(writer).filter(|bytes| *bytes > 0);
        self
    }
    /// Says how long it took to load the table.
    pub(super) fn load(mut self, seconds: f64) -> Row {
        self.load_s = Some(seconds);
        self
    }
    /// Says how long lookups took, round by round.
    pub(super) fn lookups(mut self, traffic: Traffic, mode: Mode, nanos: &[f64]) -> Row {
        let summary = Summary::of(nanos);
        (self.traffic, self.mode) = (Some(traffic.name()), Some(mode.name()));
        (self.ns, self.mlps) = (Some(summary.median), Some(1000.0 / summary.median));
        (self.mlps_min, self.mlps_max) = (Some(1000.0 / summary.max), Some(1000.0 / summary.min));
        self.rounds = Some(nanos.len());
        self
    }
    /// Says how many updates a second there were, round by round.
    pub(super) fn updates(mut self, which: &str, rates: &[f64]) -> Row {
        (self.updates, self.updates_per_s) = (Some(which.into()), Some(Summary::of(rates).median));
        self.rounds = Some(rates.len());
        self
    }
    /// Says what readers lost, pair by pair.
    pub(super) fn losses(mut self, percents: &[f64]) -> Row {
        self.readers_lose_percent = Some(Summary::of(percents).median);
        self.readers_lose_interval = Some(interval(percents));
        self
    }
    /// Says how long single updates of one kind took.
    pub(super) fn single(mut self, which: &str, micros: Summary) -> Row {
        self.updates = Some(which.into());
        self.update_us = Some(micros.median);
        (self.update_us_min, self.update_us_max) = (Some(micros.min), Some(micros.max));
        self
    }
}

/// All rows, and where they were measured.
pub(super) struct Report {
    machine: Machine,
    rounds: usize,
    /// Whether rows are printed as JSON when they come, instead of tables at the end.
    json: bool,
    pub(super) rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(machine: Machine, rounds: usize, json: bool) -> Report {
        Report { machine, rounds, json, rows: Vec::new() }
    }

    /// Adds a row, and prints it if rows are printed one by one.
    pub(super) fn add(&mut self, row: Row) -> anyhow::Result<()> {
        if self.json {
            if self.rows.is_empty() {
                print(&self.header()?)?;
            }
            print(&serde_json::to_string(&row)?)?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Prints what has not been printed row by row.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        if self.json { Ok(()) } else { Ok(print(self.text().trim_end())?) }
    }

    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let mut files = vec![("fib.jsonl".to_string(), self.json()?), ("fib.md".to_string(), self.text())];
        for family in self.families() {
            let charts =
                Traffic::ALL.into_iter().filter_map(|traffic| Some((traffic, self.chart(family, traffic)?)));
            files.extend(
                charts.map(|(traffic, chart)| (format!("fib{family}-{}.svg", traffic.name()), chart.svg())),
            );
        }
        write_files(folder, files)
    }

    fn json(&self) -> anyhow::Result<String> {
        let lines: Result<Vec<_>, _> = self.rows.iter().map(serde_json::to_string).collect();
        Ok([vec![self.header()?], lines?].concat().join("\n") + "\n")
    }

    fn header(&self) -> anyhow::Result<String> {
        let header = Header { experiment: "fib", machine: &self.machine, rounds: self.rounds };
        Ok(serde_json::to_string(&header)?)
    }

    fn families(&self) -> Vec<u8> {
        let mut families: Vec<u8> = self.rows.iter().map(|row| row.family).collect();
        families.dedup();
        families
    }

    /// The report as Markdown.
    fn text(&self) -> String {
        let mut text = format!("{}.\nMedians of {} interleaved rounds.\n", self.machine, self.rounds);
        for family in self.families() {
            let prefixes = self.of(family).map(|row| row.prefixes).max().unwrap_or(0);
            let title = format!("## IPv{family}, {prefixes} prefixes: million lookups a second");
            text += &format!("\n{title}\n\n{}", self.lookup_table(family));
            text += &format!("\nMemory and loading:\n\n{}", self.memory_table(family));
            if self.of(family).any(|row| row.updates.is_some()) {
                text += &format!("\nUpdates:\n\n{}", self.update_table(family));
            }
        }
        text
    }

    fn of(&self, family: u8) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.family == family)
    }

    /// Engines in the order of their first lookup.
    fn engines(&self, family: u8) -> Vec<&str> {
        let mut engines: Vec<&str> = Vec::new();
        for row in self.of(family) {
            if !engines.contains(&row.engine.as_str()) {
                engines.push(&row.engine);
            }
        }
        engines
    }

    fn cell(&self, family: u8, engine: &str, mode: Mode, traffic: Traffic) -> Option<&Row> {
        let is_asked = |row: &&Row| row.traffic == Some(traffic.name()) && row.mode == Some(mode.name());
        self.of(family).filter(|row| row.engine == engine).find(is_asked)
    }

    fn lookup_table(&self, family: u8) -> Table {
        let mut table = Table::headed("mode | engine | uni: | cov: | pfx: | zipf:");
        for mode in Mode::ALL {
            for engine in self.engines(family) {
                let cells = Traffic::ALL.map(|traffic| self.cell(family, engine, mode, traffic));
                if cells.iter().all(Option::is_none) {
                    continue;
                }
                let figure = |row: Option<&Row>| match (mode, row) {
                    (Mode::Dependent, Some(row)) => row.ns.map(|ns| format!("{} ns", number(ns))),
                    (_, row) => row.and_then(|row| row.mlps).map(number),
                };
                let figures = cells.map(|row| figure(row).unwrap_or_default());
                table.row([mode.name().to_string(), engine.to_string()].into_iter().chain(figures));
            }
        }
        table
    }

    fn memory_table(&self, family: u8) -> Table {
        let mut table = Table::headed(
            "engine | MB to look up in: | bytes a prefix: | MB for updates: | seconds to load:",
        );
        let megabytes = |bytes: Option<u64>| bytes.map(|bytes| format!("{:.2}", bytes as f64 / 1e6));
        for engine in self.engines(family) {
            let mut rows = self.of(family).filter(|row| row.engine == engine && row.bytes.is_some());
            let Some(row) = rows.next() else { continue };
            table.row([
                engine.to_string(),
                megabytes(row.bytes).unwrap_or_default(),
                row.bytes_per_prefix.map(|bytes| format!("{bytes:.1}")).unwrap_or_default(),
                megabytes(row.writer_bytes).unwrap_or_default(),
                row.load_s.map(|seconds| format!("{seconds:.2}")).unwrap_or_default(),
            ]);
        }
        table
    }

    fn update_table(&self, family: u8) -> Table {
        let mut table = Table::headed(
            "engine | updates | a second: | median µs (least to greatest): | readers lose % (95 % \
             interval):",
        );
        for row in self.of(family).filter(|row| row.updates.is_some()) {
            let spread = |row: &Row| {
                let (median, least, greatest) = (row.update_us?, row.update_us_min?, row.update_us_max?);
                Some(format!("{median:.2} ({least:.2} to {greatest:.2})"))
            };
            let loss = |row: &Row| {
                let (low, high) = row.readers_lose_interval?;
                Some(format!("{:.1} ({low:.1} to {high:.1})", row.readers_lose_percent?))
            };
            table.row([
                row.engine.clone(),
                row.updates.clone().unwrap_or_default(),
                row.updates_per_s.map(number).unwrap_or_default(),
                spread(row).unwrap_or_default(),
                loss(row).unwrap_or_default(),
            ]);
        }
        table
    }

    /// Batches of one kind of traffic, engine by engine; none where nothing was measured.
    fn chart(&self, family: u8, traffic: Traffic) -> Option<Chart> {
        let title = format!("IPv{family} lookups in batches, traffic {}", traffic.name());
        let mut chart = Chart::new(&title, "million lookups a second on one core; longer is better");
        let rows: Vec<&Row> = self
            .engines(family)
            .into_iter()
            .filter_map(|engine| self.cell(family, engine, Mode::Batch, traffic))
            .collect();
        for row in &rows {
            let value = row.mlps?;
            let is_ours = row.engine.starts_with("fib") || row.engine.starts_with("art");
            chart = match is_ours {
                true => chart.bar(&row.engine, value, row.mlps_min.zip(row.mlps_max)),
                false => chart.reference(&row.engine, value),
            };
        }
        (!rows.is_empty()).then_some(chart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new(Machine::here(), 3, false);
        let row = || Row::new(4, "fib-small", 1000);
        report.add(row().bytes(7000, 0).load(0.5)).unwrap();
        report.add(row().bytes(7000, 0).lookups(Traffic::Uni, Mode::Batch, &[2.0, 1.0, 4.0])).unwrap();
        report.add(row().updates("alone", &[1e6]).losses(&[1.0, 2.0, 3.0])).unwrap();
        report
    }

    #[test]
    fn a_line_of_lookups_has_the_fields_that_readers_count_on() {
        let json = report().json().unwrap();
        let line: serde_json::Value = serde_json::from_str(json.lines().nth(2).unwrap()).unwrap();
        assert_eq!((line["family"].as_u64(), line["engine"].as_str()), (Some(4), Some("fib-small")));
        assert_eq!((line["traffic"].as_str(), line["mode"].as_str()), (Some("uni"), Some("batch")));
        assert_eq!((line["mlps"].as_f64(), line["ns"].as_f64()), (Some(500.0), Some(2.0)));
        assert_eq!((line["bytes"].as_u64(), line["bytes_per_prefix"].as_f64()), (Some(7000), Some(7.0)));
        assert!(line.get("updates_per_s").is_none());
    }

    #[test]
    fn the_first_line_of_json_tells_of_the_machine_and_every_other_one_is_a_row() {
        let report = report();
        let json = report.json().unwrap();
        let first: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
        assert_eq!((first["experiment"].as_str(), first["rounds"].as_u64()), (Some("fib"), Some(3)));
        for field in ["cpu", "kernel", "compiler", "commit", "load"] {
            assert!(first["machine"][field].is_string(), "{field}: {first}");
        }
        assert!(first["machine"]["cores"].as_u64() >= Some(1), "{first}");
        assert_eq!(json.lines().count(), 1 + report.rows.len());
    }

    #[test]
    fn the_text_has_a_table_of_each_kind_and_charts_have_a_bar() {
        let report = report();
        let text = report.text();
        for word in ["| batch | fib-small |", "7.0", "1,000,000", "2.0 (1.0 to 3.0)"] {
            assert!(text.contains(word), "{word} is missing in\n{text}");
        }
        assert!(report.chart(4, Traffic::Uni).unwrap().svg().contains("fib-small"));
        assert!(report.chart(6, Traffic::Uni).is_none());
    }
}
