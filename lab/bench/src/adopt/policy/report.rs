//! What was measured, and what was asked for.

use super::{Forwarder, Rules};
use crate::adopt::report;
use crate::results::{Findings, Goal, Measurement, Rounds, Row};
use artery_rig::machine::Machine;

/// Frames, or connections, in a second of processors' time.
pub(super) const BY_PROCESSORS: &str = "Mpps of processors' time";
pub(super) const NEW_BY_PROCESSORS: &str = "k/s of processors' time";
/// How much of the packets goes past the kernel.
pub(super) const SHARE: &str = "% past the kernel";

pub(super) struct Report {
    pub(super) figures: Rounds,
}

/// What is asked for in the rows that end so: medians of ratios of rounds, or of figures.
struct Wanted {
    rows: &'static str,
    by: Forwarder,
    unit: &'static str,
    least: f64,
    /// Times the kernel's figure, or the figure itself.
    is_ratio: bool,
}

const WANTED: [Wanted; 7] = [
    Wanted { rows: " flows", by: Forwarder::Xdp, unit: BY_PROCESSORS, least: 3.0, is_ratio: true },
    Wanted { rows: " flows", by: Forwarder::Tc, unit: BY_PROCESSORS, least: 1.5, is_ratio: true },
    Wanted { rows: " flows", by: Forwarder::Xdp, unit: SHARE, least: 95.0, is_ratio: false },
    Wanted { rows: " flows", by: Forwarder::Tc, unit: SHARE, least: 95.0, is_ratio: false },
    Wanted {
        rows: " new connections of 2 packets",
        by: Forwarder::Xdp,
        unit: "k/s",
        least: 0.95,
        is_ratio: true,
    },
    Wanted {
        rows: " new connections of 2 packets",
        by: Forwarder::Tc,
        unit: "k/s",
        least: 0.95,
        is_ratio: true,
    },
    Wanted { rows: " one connection of TCP", by: Forwarder::Tc, unit: "Gbit/s", least: 1.0, is_ratio: true },
];

impl Report {
    pub(super) fn new(machine: Machine) -> Report {
        Report { figures: Rounds::new(machine) }
    }

    fn goals(&self) -> Vec<Goal> {
        WANTED.iter().flat_map(|wanted| self.goals_of(wanted)).collect()
    }

    /// A goal for each row that has such figures, or one that was not measured.
    fn goals_of(&self, wanted: &Wanted) -> Vec<Goal> {
        let Wanted { rows, unit, least, is_ratio, .. } = *wanted;
        let who = wanted.by.name();
        let goal = |row: &str| {
            let (figure, unit) = match is_ratio {
                true => (self.figures.times(row, who, Forwarder::Kernel.name(), unit), "times the kernel"),
                false => (self.figures.median(row, who, unit), unit),
            };
            let claim = format!("{}: {who}", row.trim());
            Goal { claim, figure, bound: Some(least), is_least: true, unit }
        };
        let is_meant = |row: &&Row| row.work.ends_with(rows) && row.who == who && row.unit == unit;
        let goals: Vec<Goal> =
            self.figures.rows().iter().filter(is_meant).map(|row| goal(&row.work)).collect();
        if goals.is_empty() { vec![goal(rows)] } else { goals }
    }
}

impl Findings for Report {
    const NAME: &'static str = "adopt-policy";

    fn text(&self) -> String {
        let rules = Rules::ALL.map(|rules| format!("rules of '{}': {}", rules.name(), rules.text()));
        report::text(&self.figures, &self.goals(), rules.into_iter())
    }

    fn measurements(&self) -> Vec<Measurement> {
        self.figures.measurements(Self::NAME, "row")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_judged_by_pairs_of_a_round() {
        let mut report = Report::new(Machine::here());
        let judged = |report: &Report| report.goals().iter().map(Goal::verdict).collect::<Vec<_>>();
        assert_eq!(judged(&report), ["not measured"; 7]);
        assert!(report.text().contains("| flows: artery adopt, XDP "), "{}", report.text());
        for (ours, kernel) in [(3.2, 1.0), (6.0, 2.0), (9.3, 3.0)] {
            report.figures.add("a, 4096 flows", Forwarder::Xdp.name(), BY_PROCESSORS, ours);
            report.figures.add("a, 4096 flows", Forwarder::Kernel.name(), BY_PROCESSORS, kernel);
        }
        report.figures.add("a, 4096 flows", Forwarder::Xdp.name(), SHARE, 94.0);
        assert_eq!(judged(&report)[..4], ["met", "not measured", "missed", "not measured"]);
        assert_eq!([0, 2].map(|goal| report.goals()[goal].figure), [3.1, 94.0].map(Some));
        assert_eq!(report.measurements().len(), 3);
    }
}
