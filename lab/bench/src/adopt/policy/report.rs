//! What was measured, and what was asked for.

use super::{Forwarder, Rules};
use crate::adopt::figures::{Figures, verdict};
use crate::results::{Findings, Measurement, number};
use artery_rig::machine::Machine;

/// Frames, or connections, in a second of processors' time.
pub(super) const BY_PROCESSORS: &str = "Mpps of processors' time";
pub(super) const NEW_BY_PROCESSORS: &str = "k/s of processors' time";
/// How much of the packets goes past the kernel.
pub(super) const SHARE: &str = "% past the kernel";

pub(super) struct Report {
    pub(super) figures: Figures,
}

/// What is asked for in the rows that end so: medians of ratios of rounds, or of figures.
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
    Goal {
        rows: " new connections of 2 packets",
        by: Forwarder::Xdp,
        unit: "k/s",
        least: 0.95,
        is_ratio: true,
    },
    Goal {
        rows: " new connections of 2 packets",
        by: Forwarder::Tc,
        unit: "k/s",
        least: 0.95,
        is_ratio: true,
    },
    Goal { rows: " one connection of TCP", by: Forwarder::Tc, unit: "Gbit/s", least: 1.0, is_ratio: true },
];

impl Report {
    pub(super) fn new(machine: Machine) -> Report {
        Report { figures: Figures::new(machine) }
    }

    /// What a goal came to in each row that it is about.
    fn judge(&self, goal: &Goal) -> Vec<String> {
        let (who, least) = (goal.by.name(), goal.least);
        let judge = |row: &str| {
            let (figure, unit) = match goal.is_ratio {
                true => {
                    (self.figures.times(row, who, Forwarder::Kernel.name(), goal.unit), "times the kernel")
                }
                false => (self.figures.median(row, who, goal.unit), goal.unit),
            };
            let (figure, is_met) = (number(figure?), verdict(figure? >= least));
            Some(format!("{row}: {who}, at least {least} {unit}: {figure}: {is_met}"))
        };
        let is_meant = |(row, of, unit): &(&str, &str, &str)| {
            row.ends_with(goal.rows) && (*of, *unit) == (who, goal.unit)
        };
        let judged: Vec<String> =
            self.figures.rows().filter(is_meant).filter_map(|(row, ..)| judge(row)).collect();
        match judged.is_empty() {
            true => vec![format!("{}, {who}: not measured", goal.rows.trim())],
            false => judged,
        }
    }
}

impl Findings for Report {
    const NAME: &'static str = "adopt-policy";

    fn text(&self) -> String {
        let rules = Rules::ALL.map(|rules| format!("rules of '{}': {}", rules.name(), rules.text()));
        self.figures.text(GOALS.iter().flat_map(|goal| self.judge(goal)).chain(rules))
    }

    fn measurements(&self) -> Vec<Measurement> {
        self.figures.measurements(Self::NAME)
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
            report.figures.add("a, 4096 flows", Forwarder::Xdp.name(), BY_PROCESSORS, ours);
            report.figures.add("a, 4096 flows", Forwarder::Kernel.name(), BY_PROCESSORS, kernel);
        }
        report.figures.add("a, 4096 flows", Forwarder::Xdp.name(), SHARE, 94.0);
        let said = report.text();
        assert!(said.contains("at least 3 times the kernel: 3.10: met"), "{said}");
        assert!(said.contains("at least 95 % past the kernel: 94.0: missed"), "{said}");
        assert_eq!(report.measurements().len(), 3);
    }
}
