//! What was measured, and what was asked for.

use super::{AdoptForwarder, LOOKUP_ROW};
use crate::machine::Machine;
use crate::results::{Findings, Measurement, Summary, Table, number};
use std::collections::BTreeMap;

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
    machine: Machine,
    /// Figures by row, who they are of, and unit, in the order of rounds.
    figures: BTreeMap<(String, &'static str, &'static str), Vec<f64>>,
    skipped: Vec<String>,
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
        Report { machine, figures: BTreeMap::new(), skipped: Vec::new(), notes: Vec::new() }
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

    /// Says what a reader must know.
    pub(super) fn add_note(&mut self, note: String) {
        self.notes.push(note);
    }

    fn of(&self, row: &str, who: &'static str, unit: &'static str) -> Option<&Vec<f64>> {
        self.figures.get(&(row.to_owned(), who, unit))
    }

    /// Median of the ratios of rounds.
    fn times(&self, row: &str, than: &'static str) -> Option<f64> {
        let ours = self.of(row, AdoptForwarder::OursByXdp.name(), "Mpps")?;
        let theirs = self.of(row, than, "Mpps")?;
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        Some(Summary::of(&ratios).median)
    }

    /// What a goal is, what it came to, and whether that is enough.
    fn judge(&self, goal: &Goal) -> String {
        let (claim, figure, unit, is_met) = match goal {
            Goal::Times(row, than, least) => {
                let times = self.times(row, than);
                (format!("at least {least} times {than}"), times, "times", times >= Some(*least))
            }
            Goal::AtMost(row, most, unit) => {
                let median =
                    self.of(row, AdoptForwarder::OursByXdp.name(), unit).map(|all| Summary::of(all).median);
                (format!("at most {most} {unit}"), median, *unit, median <= Some(*most))
            }
        };
        let (Goal::Times(row, ..) | Goal::AtMost(row, ..)) = goal;
        match figure {
            None => format!("{row}: {claim}: not measured"),
            Some(figure) => {
                format!(
                    "{row}: {claim}: {} {unit}: {}",
                    number(figure),
                    if is_met { "met" } else { "missed" }
                )
            }
        }
    }
}

impl Findings for Report {
    const NAME: &'static str = "adopt";

    fn text(&self) -> String {
        let mut table = Table::headed("row | who | median: | least: | greatest: | unit");
        for ((row, who, unit), figures) in &self.figures {
            let Summary { median, min, max, .. } = Summary::of(figures);
            table.row([row.as_str(), who, &number(median), &number(min), &number(max), unit]);
        }
        let goals: Vec<String> = goals().iter().map(|goal| self.judge(goal)).collect();
        let lines = goals.iter().chain(&self.skipped).chain(&self.notes).map(|line| format!("- {line}\n"));
        format!("{table}\n{}\n\n{}", self.machine, lines.collect::<String>())
    }

    fn measurements(&self) -> Vec<Measurement> {
        let one = |((row, who, unit), figures): (&(String, &'static str, &'static str), &Vec<f64>)| {
            Measurement::of("adopt", who, unit, figures).param("row", row).cpu(&self.machine.cpu)
        };
        self.figures.iter().map(one).collect()
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
            report.add(row, AdoptForwarder::OursByXdp.name(), "Mpps", ours);
            report.add(row, AdoptForwarder::Kernel.name(), "Mpps", kernel);
            report.add(row, LOOKUP_ROW, "Mpps", lookup);
        }
        report.add(&alone(row), AdoptForwarder::OursByXdp.name(), "ns", 131.0);
        report.add(&alone("IPv4, one destination"), AdoptForwarder::OursByXdp.name(), "ns", 109.0);
        let said = judged(&report);
        let ends = |line: &str, end: &str| assert!(line.ends_with(end), "{line}");
        ends(&said[0], "4.50 times: met");
        ends(&said[1], "2.00 times: missed");
        ends(&said[3], "131 ns: missed");
        ends(&said[4], "109 ns: met");
        assert!(report.text().contains("| IPv4, one destination: the program alone"), "{}", report.text());
        assert_eq!(report.measurements().len(), 5);
    }

    #[test]
    fn what_was_skipped_in_every_round_is_told_once() {
        let mut report = Report::new(Machine::here());
        (0..3).for_each(|_| report.skip("kernel", "no rights\nand more"));
        assert_eq!(report.text().matches("skipped: kernel: no rights\n").count(), 1);
    }
}
