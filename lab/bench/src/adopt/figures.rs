//! What was measured in rounds, by row and forwarder, for reports with goals.

use crate::results::{Measurement, Summary, Table, number};
use artery_rig::machine::Machine;
use std::collections::BTreeMap;

pub(super) struct Figures {
    machine: Machine,
    /// By row, who they are of, and unit, in the order of rounds.
    figures: BTreeMap<(String, &'static str, &'static str), Vec<f64>>,
    skipped: Vec<String>,
}

impl Figures {
    pub(super) fn new(machine: Machine) -> Figures {
        Figures { machine, figures: BTreeMap::new(), skipped: Vec::new() }
    }

    /// Adds a figure of a round.
    pub(super) fn add(&mut self, row: &str, who: &'static str, unit: &'static str, figure: f64) {
        self.figures.entry((row.to_owned(), who, unit)).or_default().push(figure);
    }

    /// Says why something was not measured, once.
    pub(super) fn skip(&mut self, what: &str, why: &str) {
        let line = format!("skipped: {what}: {}", why.lines().next().unwrap_or_default());
        if !self.skipped.contains(&line) {
            self.skipped.push(line);
        }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = (&str, &'static str, &'static str)> {
        self.figures.keys().map(|(row, who, unit)| (row.as_str(), *who, *unit))
    }

    fn of(&self, row: &str, who: &'static str, unit: &'static str) -> Option<&Vec<f64>> {
        self.figures.get(&(row.to_owned(), who, unit))
    }

    pub(super) fn median(&self, row: &str, who: &'static str, unit: &'static str) -> Option<f64> {
        self.of(row, who, unit).map(|figures| Summary::of(figures).median)
    }

    /// Median of the ratios of rounds: how many times what another has.
    pub(super) fn times(
        &self,
        row: &str,
        who: &'static str,
        than: &'static str,
        unit: &'static str,
    ) -> Option<f64> {
        let pairs = self.of(row, who, unit)?.iter().zip(self.of(row, than, unit)?);
        Some(Summary::of(&pairs.map(|(ours, theirs)| ours / theirs).collect::<Vec<f64>>()).median)
    }

    /// A table of all, and a list of lines, behind which stands what was skipped.
    pub(super) fn text(&self, lines: impl Iterator<Item = String>) -> String {
        let mut table = Table::headed("row | who | median: | least: | greatest: | unit");
        for ((row, who, unit), figures) in &self.figures {
            let Summary { median, min, max, .. } = Summary::of(figures);
            table.row([row.as_str(), who, &number(median), &number(min), &number(max), unit]);
        }
        let lines = lines.chain(self.skipped.iter().cloned()).map(|line| format!("- {line}\n"));
        format!("{table}\n{}\n\n{}", self.machine, lines.collect::<String>())
    }

    pub(super) fn measurements(&self, name: &'static str) -> Vec<Measurement> {
        let one = |((row, who, unit), figures): (&(String, &'static str, &'static str), &Vec<f64>)| {
            Measurement::of(name, who, unit, figures).param("row", row).cpu(&self.machine.cpu)
        };
        self.figures.iter().map(one).collect()
    }
}

/// `met` or `missed`.
pub(super) fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_skipped_in_every_round_is_told_once() {
        let mut figures = Figures::new(Machine::here());
        (0..3).for_each(|_| figures.skip("kernel", "no rights\nand more"));
        assert_eq!(figures.text(std::iter::empty()).matches("skipped: kernel: no rights\n").count(), 1);
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let mut figures = Figures::new(Machine::here());
        for (ours, kernel) in [(4.0, 1.0), (2.0, 0.4), (9.0, 2.0)] {
            figures.add("row", "ours", "Mpps", ours);
            figures.add("row", "kernel", "Mpps", kernel);
        }
        assert_eq!(figures.times("row", "ours", "kernel", "Mpps"), Some(4.5));
        assert_eq!(figures.median("row", "ours", "Mpps"), Some(4.0));
        assert_eq!(figures.times("row", "ours", "nothing", "Mpps"), None);
    }
}
