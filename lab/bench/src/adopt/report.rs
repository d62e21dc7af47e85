//! What was measured, and what was asked for.

use super::{AdoptForwarder, LOOKUP_ROW};
use crate::results::{Findings, Goal, Measurement, Rounds};
use artery_rig::machine::Machine;

/// A row of its own.
pub(super) const TCP: &str = "TCP over IPv4, default offloads";
/// And another, for which nothing but IPv4 is loaded.
pub(super) const OPENED_IPV4: &str = "tables of IPv4 read and laid out";
/// And one for all that is loaded.
pub(super) const OPENED: &str = "tables of both families read and laid out";

/// The row of what programs take by themselves.
pub(super) fn alone(load: &str) -> String {
    format!("{load}: the program alone")
}

pub(super) struct Report {
    pub(super) figures: Rounds,
}

impl Report {
    pub(super) fn new(machine: Machine) -> Report {
        Report { figures: Rounds::new(machine) }
    }

    /// What was asked for of our program of XDP.
    fn goals(&self) -> Vec<Goal> {
        let ours = AdoptForwarder::OursByXdp.name();
        let times = |row: &str, than: &str, least: f64| Goal {
            claim: format!("{row}: times {than}"),
            figure: self.figures.times(row, ours, than, "Mpps"),
            bound: Some(least),
            is_least: true,
            unit: "times",
        };
        let at_most = |row: &str, most: f64, unit: &'static str| Goal {
            claim: row.to_owned(),
            figure: self.figures.median(row, ours, unit),
            bound: Some(most),
            is_least: false,
            unit,
        };
        let [random4, random6] = ["IPv4, random destinations", "IPv6, random destinations"];
        vec![
            times(random4, AdoptForwarder::Kernel.name(), 4.0),
            times(random4, LOOKUP_ROW, 2.3),
            times(random6, AdoptForwarder::Kernel.name(), 4.0),
            at_most(&alone(random4), 130.0, "ns"),
            at_most(&alone("IPv4, one destination"), 110.0, "ns"),
            at_most(OPENED_IPV4, 2.0, "s"),
        ]
    }
}

/// Figures, goals, and what a reader must know.
pub(super) fn text(figures: &Rounds, goals: &[Goal], notes: impl Iterator<Item = String>) -> String {
    let lines = notes.chain(figures.remarks().iter().cloned()).map(|line| format!("- {line}\n"));
    let (table, goals, lines) = (figures.table(), Goal::table(goals), lines.collect::<String>());
    format!("{table}\n{}\n\n{goals}\n{lines}", figures.machine)
}

impl Findings for Report {
    const NAME: &'static str = "adopt";

    fn text(&self) -> String {
        text(&self.figures, &self.goals(), std::iter::empty())
    }

    fn measurements(&self) -> Vec<Measurement> {
        self.figures.measurements(Self::NAME, "row")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_judged_by_rounds_and_by_medians() {
        let mut report = Report::new(Machine::here());
        let judged = |report: &Report| report.goals().iter().map(Goal::verdict).collect::<Vec<_>>();
        assert_eq!(judged(&report), ["not measured"; 6]);
        let row = "IPv4, random destinations";
        for (ours, kernel, lookup) in [(4.0, 1.0, 2.0), (2.0, 0.4, 1.0), (9.0, 2.0, 4.5)] {
            report.figures.add(row, AdoptForwarder::OursByXdp.name(), "Mpps", ours);
            report.figures.add(row, AdoptForwarder::Kernel.name(), "Mpps", kernel);
            report.figures.add(row, LOOKUP_ROW, "Mpps", lookup);
        }
        report.figures.add(&alone(row), AdoptForwarder::OursByXdp.name(), "ns", 131.0);
        report.figures.add(&alone("IPv4, one destination"), AdoptForwarder::OursByXdp.name(), "ns", 109.0);
        assert_eq!(judged(&report)[..5], ["met", "missed", "not measured", "missed", "met"]);
        assert_eq!([0, 1, 3].map(|goal| report.goals()[goal].figure), [4.5, 2.0, 131.0].map(Some));
        assert!(report.text().contains("| IPv4, one destination: the program alone"), "{}", report.text());
        assert_eq!(report.measurements().len(), 5);
    }
}
