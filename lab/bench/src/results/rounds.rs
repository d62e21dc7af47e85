//! Figures of rounds in which forwarders take turns, and goals that these meet or miss.

use super::{Measurement, Summary, Table, number};
use artery_rig::console::progress;
use artery_rig::machine::Machine;

/// Figures of several rounds, and what a reader must know of them.
pub struct Rounds {
    /// Where they were taken.
    pub machine: Machine,
    rows: Vec<Row>,
    remarks: Vec<String>,
}

/// What was measured of one forwarder, in the order of rounds.
pub struct Row {
    /// What was measured, such as a rate under one load.
    pub work: String,
    /// The forwarder that it was measured of.
    pub who: String,
    /// Unit of the figures.
    pub unit: &'static str,
    /// A figure of each round.
    pub runs: Vec<f64>,
}

impl Row {
    /// Median, least and greatest, as people read them.
    pub fn figures(&self) -> [String; 3] {
        let Summary { median, min, max, .. } = Summary::of(&self.runs);
        [median, min, max].map(number)
    }
}

impl Rounds {
    /// Rounds on this machine, without figures.
    pub fn new(machine: Machine) -> Rounds {
        Rounds { machine, rows: Vec::new(), remarks: Vec::new() }
    }

    /// Adds a figure of a round.
    pub fn add(&mut self, work: &str, who: &str, unit: &'static str, figure: f64) {
        progress(&format!("{who}: {work}: {} {unit}", number(figure)));
        match self.rows.iter_mut().find(|row| row.work == work && row.who == who && row.unit == unit) {
            Some(row) => row.runs.push(figure),
            None => {
                let (work, who) = (work.to_string(), who.to_string());
                self.rows.push(Row { work, who, unit, runs: vec![figure] });
            }
        }
    }

    /// Says once why something was not measured.
    pub fn skip(&mut self, what: &str, why: &str) {
        self.remark(format!("skipped: {what}: {}", shortened(why)));
    }

    /// Says something once that a reader must know.
    pub fn remark(&mut self, line: String) {
        progress(&line);
        if !self.remarks.contains(&line) {
            self.remarks.push(line);
        }
    }

    /// All rows, in the order of the first round.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// All that was remarked.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// The row of a forwarder.
    pub fn row(&self, work: &str, who: &str, unit: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.work == work && row.who == who && row.unit == unit)
    }

    /// The median of a row.
    pub fn median(&self, work: &str, who: &str, unit: &str) -> Option<f64> {
        self.row(work, who, unit).map(|row| Summary::of(&row.runs).median)
    }

    /// Median of the ratios of rounds: how many times what another has.
    pub fn times(&self, work: &str, who: &str, than: &str, unit: &str) -> Option<f64> {
        let pairs = self.row(work, who, unit)?.runs.iter().zip(&self.row(work, than, unit)?.runs);
        Some(Summary::of(&pairs.map(|(ours, theirs)| ours / theirs).collect::<Vec<f64>>()).median)
    }

    /// A table of all.
    pub fn table(&self) -> Table {
        let mut table = Table::headed("row | who | median: | least: | greatest: | unit");
        for row in &self.rows {
            let [median, least, greatest] = row.figures();
            table.row([row.work.as_str(), &row.who, &median, &least, &greatest, row.unit]);
        }
        table
    }

    /// Every row as a measurement of an experiment, with the name of what was measured as a parameter.
    pub fn measurements(&self, experiment: &str, parameter: &str) -> Vec<Measurement> {
        let one = |row: &Row| {
            Measurement::of(experiment, &row.who, row.unit, &row.runs)
                .param(parameter, &row.work)
                .cpu(&self.machine.cpu)
        };
        self.rows.iter().map(one).collect()
    }
}

/// A goal: what is claimed, the figure, and what it has to be.
pub struct Goal {
    /// The claim in words.
    pub claim: String,
    /// None if it was not measured.
    pub figure: Option<f64>,
    /// None if what it depends on was not measured.
    pub bound: Option<f64>,
    /// Whether the figure has to be at least that, not at most.
    pub is_least: bool,
    /// Unit of the figure and of the bound.
    pub unit: &'static str,
}

impl Goal {
    /// Whether it is met.
    pub fn verdict(&self) -> &'static str {
        match (self.figure, self.bound) {
            (Some(figure), Some(bound)) if (figure >= bound) == self.is_least || figure == bound => "met",
            (Some(_), Some(_)) => "missed",
            _ => "not measured",
        }
    }

    /// A table of goals.
    pub fn table(goals: &[Goal]) -> Table {
        let mut table = Table::headed("goal | figure: | wanted: | unit | ");
        for goal in goals {
            let sign = if goal.is_least { "≥" } else { "≤" };
            let wanted = goal.bound.map_or("-".into(), |bound| format!("{sign} {}", number(bound)));
            let figure = goal.figure.map_or("-".into(), number);
            table.row([&goal.claim, &figure, &wanted, goal.unit, goal.verdict()]);
        }
        table
    }
}

/// Characters of a reason.
const LINE: usize = 300;

/// What fits a line: the first line of a message, and the one where a program says what was
/// wrong, usually the last.
fn shortened(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let told = lines.clone().find(|line| line.to_lowercase().contains("error"));
    let line = match told.or_else(|| lines.next_back()) {
        Some(last) => format!("{first} … {last}"),
        None => first.to_string(),
    };
    match line.char_indices().nth(LINE) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_skipped_in_every_round_is_told_once() {
        let mut rounds = Rounds::new(Machine::here());
        (0..3).for_each(|_| rounds.skip("kernel", "no rights\nand more"));
        assert_eq!(rounds.remarks(), ["skipped: kernel: no rights … and more"]);
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let mut rounds = Rounds::new(Machine::here());
        for (ours, kernel) in [(4.0, 1.0), (2.0, 0.4), (9.0, 2.0)] {
            rounds.add("row", "ours", "Mpps", ours);
            rounds.add("row", "kernel", "Mpps", kernel);
        }
        assert_eq!(rounds.times("row", "ours", "kernel", "Mpps"), Some(4.5));
        assert_eq!(rounds.median("row", "ours", "Mpps"), Some(4.0));
        assert_eq!(rounds.times("row", "ours", "nothing", "Mpps"), None);
        let table = rounds.table().to_string();
        let row = table.lines().find(|line| line.contains("ours")).unwrap();
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells[1..7], ["row", "ours", "4.00", "2.00", "9.00", "Mpps"]);
        assert_eq!(rounds.measurements("adopt", "row")[0].params["row"], "row");
    }

    #[test]
    fn goals_are_met_missed_or_not_measured() {
        let goal = |figure, bound, is_least| {
            let goal = Goal { claim: "fast".into(), figure, bound, is_least, unit: "Mpps" };
            (goal.verdict(), Goal::table(&[goal]).to_string())
        };
        assert_eq!(goal(Some(2.0), Some(2.0), true).0, "met");
        assert_eq!(goal(Some(2.0), Some(2.0), false).0, "met");
        assert_eq!([goal(Some(1.0), Some(2.0), true).0, goal(Some(3.0), Some(2.0), false).0], ["missed"; 2]);
        assert_eq!([goal(None, Some(2.0), true).0, goal(Some(2.0), None, true).0], ["not measured"; 2]);
        assert!(goal(Some(3.0), Some(2.0), false).1.contains("| ≤ 2.00 "));
    }

    #[test]
    fn reasons_fit_a_line_whatever_their_characters() {
        assert!(shortened(&"µ".repeat(1000)).chars().count() < 310);
        assert_eq!(shortened("\n\n"), "");
        assert_eq!(shortened("failed\n{\n  \"error\": \"no way\"\n}"), "failed … \"error\": \"no way\"");
    }
}
