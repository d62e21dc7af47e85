//! What was measured, and what was asked for.

use super::figures::{Figures, verdict};
use super::{AdoptForwarder, LOOKUP_ROW};
use crate::results::{Findings, Measurement, number};
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
    pub(super) figures: Figures,
    notes: Vec<String>,
}

/// What was asked for of our program of XDP.
enum Goal {
    /// In a row, at least so many times the rate of another forwarder.
    Times(String, &'static str, f64),
    /// At most so many of a unit.
    AtMost(String, f64, &'static str),
}

fn goals() -> Vec<Goal> {
    let random = |family: u8| format!("IPv{family}, random destinations");
    vec![
        Goal::Times(random(4), AdoptForwarder::Kernel.name(), 4.0),
        Goal::Times(random(4), LOOKUP_ROW, 2.3),
        Goal::Times(random(6), AdoptForwarder::Kernel.name(), 4.0),
        Goal::AtMost(alone(&random(4)), 130.0, "ns"),
        Goal::AtMost(alone("IPv4, one destination"), 110.0, "ns"),
        Goal::AtMost(OPENED_IPV4.to_owned(), 2.0, "s"),
    ]
}

impl Report {
    pub(super) fn new(machine: Machine) -> Report {
        Report { figures: Figures::new(machine), notes: Vec::new() }
    }

    /// Says what a reader must know.
    pub(super) fn add_note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// What a goal is, what it came to, and whether that is enough.
    fn judge(&self, goal: &Goal) -> String {
        let ours = AdoptForwarder::OursByXdp.name();
        let (claim, figure, unit, is_met) = match goal {
            Goal::Times(row, than, least) => {
                let times = self.figures.times(row, ours, than, "Mpps");
                (format!("at least {least} times {than}"), times, "times", times >= Some(*least))
            }
            Goal::AtMost(row, most, unit) => {
                let median = self.figures.median(row, ours, unit);
                (format!("at most {most} {unit}"), median, *unit, median <= Some(*most))
            }
        };
        let (Goal::Times(row, ..) | Goal::AtMost(row, ..)) = goal;
        match figure {
            None => format!("{row}: {claim}: not measured"),
            Some(figure) => format!("{row}: {claim}: {} {unit}: {}", number(figure), verdict(is_met)),
        }
    }
}

impl Findings for Report {
    const NAME: &'static str = "adopt";

    fn text(&self) -> String {
        let goals = goals().into_iter().map(|goal| self.judge(&goal));
        self.figures.text(goals.chain(self.notes.iter().cloned()))
    }

    fn measurements(&self) -> Vec<Measurement> {
        self.figures.measurements(Self::NAME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_judged_by_rounds_and_by_medians() {
        let mut report = Report::new(Machine::here());
        let judged = |report: &Report| goals().iter().map(|goal| report.judge(goal)).collect::<Vec<_>>();
        assert!(judged(&report).iter().all(|line| line.ends_with("not measured")));
        let row = "IPv4, random destinations";
        for (ours, kernel, lookup) in [(4.0, 1.0, 2.0), (2.0, 0.4, 1.0), (9.0, 2.0, 4.5)] {
            report.figures.add(row, AdoptForwarder::OursByXdp.name(), "Mpps", ours);
            report.figures.add(row, AdoptForwarder::Kernel.name(), "Mpps", kernel);
            report.figures.add(row, LOOKUP_ROW, "Mpps", lookup);
        }
        report.figures.add(&alone(row), AdoptForwarder::OursByXdp.name(), "ns", 131.0);
        report.figures.add(&alone("IPv4, one destination"), AdoptForwarder::OursByXdp.name(), "ns", 109.0);
        let said = judged(&report);
        let ends = |line: &str, end: &str| assert!(line.ends_with(end), "{line}");
        ends(&said[0], "4.50 times: met");
        ends(&said[1], "2.00 times: missed");
        ends(&said[3], "131 ns: missed");
        ends(&said[4], "109 ns: met");
        assert!(report.text().contains("| IPv4, one destination: the program alone"), "{}", report.text());
        assert_eq!(report.measurements().len(), 5);
    }
}
