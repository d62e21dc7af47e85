//! What was measured, and what was asked for.

use super::{Forwarder, Rules};
use crate::machine::Machine;
use crate::results::{Findings, Measurement, Summary, Table, number};
use std::collections::BTreeMap;

/// Frames, or connections, in a second of processors' time.
pub(super) const BY_PROCESSORS: &str = "Mpps of processors' time";
pub(super) const NEW_BY_PROCESSORS: &str = "k/s of processors' time";
/// How much of the packets goes past the kernel.
pub(super) const SHARE: &str = "% past the kernel";

pub(super) struct Report {
    machine: Machine,
    /// Figures by row, who they are of, and unit, in the order of rounds.
    figures: BTreeMap<(String, &'static str, &'static str), Vec<f64>>,
    skipped: Vec<String>,
}

/// What is asked for in the rows that end so.
struct Goal {
    rows: &'static str,
    by: Forwarder,
    unit: &'static str,
    least: f64,
    /// Times the kernel's figure, or the figure itself.
    is_ratio: bool,
}

const GOALS: [Goal; 7] = [
    Goal { rows: " flows", by: Forwarder::Xdp, unit: BY_PROCESSORS, least: 3.0, is_ratio: true },
    Goal { rows: " flows", by: Forwarder::Tc, unit: BY_PROCESSORS, least: 1.5, is_ratio: true },
    Goal { rows: " flows", by: Forwarder::Xdp, unit: SHARE, least: 95.0, is_ratio: false },
    Goal { rows: " flows", by: Forwarder::Tc, unit: SHARE, least: 95.0, is_ratio: false },
    Goal { rows: " new connections", by: Forwarder::Xdp, unit: "k/s", least: 0.95, is_ratio: true },
    Goal { rows: " new connections", by: Forwarder::Tc, unit: "k/s", least: 0.95, is_ratio: true },
    Goal { rows: " one connection of TCP", by: Forwarder::Tc, unit: "Gbit/s", least: 1.0, is_ratio: true },
];

impl Report {
    pub(super) fn new(machine: Machine) -> Report {
        Report { machine, figures: BTreeMap::new(), skipped: Vec::new() }
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

    fn of(&self, row: &str, by: Forwarder, unit: &'static str) -> Option<&Vec<f64>> {
        self.figures.get(&(row.to_owned(), by.name(), unit))
    }

    /// What a goal came to in each row that it is about. Ratios are medians of those of rounds.
    fn judge(&self, goal: &Goal) -> Vec<String> {
        let key = |(row, who, unit): &&(String, &str, &str)| {
            row.ends_with(goal.rows) && *who == goal.by.name() && *unit == goal.unit
        };
        let judge = |row: &String| {
            let ours = self.of(row, goal.by, goal.unit)?;
            let figures: Vec<f64> = match goal.is_ratio {
                true => {
                    let kernel = self.of(row, Forwarder::Kernel, goal.unit)?;
                    ours.iter().zip(kernel).map(|(ours, kernel)| ours / kernel).collect()
                }
                false => ours.clone(),
            };
            let median = Summary::of(&figures).median;
            let unit = if goal.is_ratio { "times the kernel" } else { goal.unit };
            let is_met = if median >= goal.least { "met" } else { "missed" };
            let (who, least) = (goal.by.name(), goal.least);
            Some(format!("{row}: {who}, at least {least} {unit}: {}: {is_met}", number(median)))
        };
        let judged: Vec<String> =
            self.figures.keys().filter(key).filter_map(|(row, ..)| judge(row)).collect();
        match judged.is_empty() {
            true => vec![format!("{}, {}: not measured", goal.rows.trim(), goal.by.name())],
            false => judged,
        }
    }
}

impl Findings for Report {
    const NAME: &'static str = "adopt-policy";

    fn text(&self) -> String {
        let mut table = Table::headed("row | who | median: | least: | greatest: | unit");
        for ((row, who, unit), figures) in &self.figures {
            let Summary { median, min, max, .. } = Summary::of(figures);
            table.row([row.as_str(), who, &number(median), &number(min), &number(max), unit]);
        }
        let rules = Rules::ALL.map(|rules| format!("rules of '{}': {}", rules.name(), rules.text()));
        let goals = GOALS.iter().flat_map(|goal| self.judge(goal));
        let lines = goals.chain(self.skipped.iter().cloned()).chain(rules);
        format!(
            "{table}\n{}\n\n{}",
            self.machine,
            lines.map(|line| format!("- {line}\n")).collect::<String>()
        )
    }

    fn measurements(&self) -> Vec<Measurement> {
        let one = |((row, who, unit), figures): (&(String, &'static str, &'static str), &Vec<f64>)| {
            Measurement::of("adopt-policy", who, unit, figures).param("row", row).cpu(&self.machine.cpu)
        };
        self.figures.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_judged_by_pairs_of_a_round() {
        let mut report = Report::new(Machine::here());
        assert!(report.text().contains("flows, artery adopt, XDP: not measured"), "{}", report.text());
        for (ours, kernel) in [(3.2, 1.0), (6.0, 2.0), (9.3, 3.0)] {
            report.add("a, 4096 flows", Forwarder::Xdp.name(), BY_PROCESSORS, ours);
            report.add("a, 4096 flows", Forwarder::Kernel.name(), BY_PROCESSORS, kernel);
        }
        report.add("a, 4096 flows", Forwarder::Xdp.name(), SHARE, 94.0);
        let said = report.text();
        assert!(said.contains("at least 3 times the kernel: 3.10: met"), "{said}");
        assert!(said.contains("at least 95 % past the kernel: 94.0: missed"), "{said}");
        assert_eq!(report.measurements().len(), 3);
    }
}
