//! What was measured: as a table and what was asked for, or as JSON, one measurement a line.

use super::circuit::Run;
use crate::results::{Measurement, Summary, Table, json_lines, number};
use artery_rig::console::{print, progress};
use artery_rig::machine::Machine;
use serde::Serialize;

pub(super) struct Report {
    machine: Machine,
    json: bool,
    measurements: Vec<Measurement>,
    verdicts: Vec<String>,
    notes: Vec<String>,
}

/// A rate, as people who script this want it.
#[derive(Serialize)]
struct Rate {
    name: String,
    mpps: f64,
    ns_per_packet: f64,
    workers: usize,
    #[serde(flatten)]
    measurement: Measurement,
}

impl Report {
    pub(super) fn new(machine: Machine, json: bool) -> Report {
        Report { machine, json, measurements: Vec::new(), verdicts: Vec::new(), notes: Vec::new() }
    }

    /// Adds rates in Mpps.
    pub(super) fn rates(&mut self, row: &str, workers: usize, rates: &[f64]) -> anyhow::Result<()> {
        let measurement =
            Measurement::of("forward", row, "Mpps", rates).cpu(&self.machine.cpu).threads(workers);
        progress(&format!("{row}: {} Mpps", number(measurement.value)));
        if self.json {
            let (mpps, name) = (measurement.value, row.to_string());
            // Of one worker: those of several work side by side.
            let ns_per_packet = 1000.0 * workers as f64 / mpps;
            let rate = Rate { name, mpps, ns_per_packet, workers, measurement: measurement.clone() };
            print(&serde_json::to_string(&rate)?)?;
        }
        self.measurements.push(measurement);
        Ok(())
    }
    /// The same of runs.
    pub(super) fn runs(&mut self, row: &str, workers: usize, runs: &[Run]) -> anyhow::Result<()> {
        let rates: Vec<f64> = runs.iter().map(Run::mpps).collect();
        self.rates(row, workers, &rates)
    }

    pub(super) fn add(&mut self, row: &str, unit: &str, values: &[f64]) -> anyhow::Result<()> {
        let measurement = Measurement::of("forward", row, unit, values).cpu(&self.machine.cpu);
        progress(&format!("{row}: {} {unit}", number(measurement.value)));
        if self.json {
            print(json_lines(&[&measurement])?.trim_end())?;
        }
        self.measurements.push(measurement);
        Ok(())
    }

    /// Adds the ratios of runs that followed one another, and whether their median is what was asked for.
    pub(super) fn ratio(
        &mut self,
        row: &str,
        ours: &[f64],
        theirs: &[f64],
        least: f64,
    ) -> anyhow::Result<()> {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        if ratios.is_empty() {
            return Ok(());
        }
        let median = Summary::of(&ratios).median;
        let verdict = if median >= least { "met" } else { "missed" };
        self.verdicts.push(format!("{row}: {median:.3}, at least {least}: {verdict}"));
        self.add(row, "x", &ratios)
    }

    /// Adds what a reader must know.
    pub(super) fn add_note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Prints what was not printed yet.
    pub(super) fn end(&self) -> anyhow::Result<()> {
        if self.json {
            return Ok(());
        }
        let mut table = Table::headed("row | median: | least: | greatest: | unit");
        for m in &self.measurements {
            table.row([m.engine.as_str(), &number(m.value), &number(m.min), &number(m.max), &m.unit]);
        }
        print(&format!("{table}\n{}", self.machine))?;
        self.verdicts.iter().chain(&self.notes).try_for_each(|line| print(line))?;
        Ok(())
    }
}
