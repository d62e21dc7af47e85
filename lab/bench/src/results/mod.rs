//! Results of experiments: one schema for all of them, and the forms in which they are written.

mod chart;
mod delivery;
mod finding;
mod rounds;
mod table;

pub use chart::Chart;
pub use delivery::{Delivery, Findings, Manner, OnFeed, write_files};
pub use finding::{Finding, Verdict, list};
pub use rounds::{Goal, Rounds, Row};
pub use table::{Table, number};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One measured quantity: the median of several runs, and how far they were apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Which experiment, such as `click1999`.
    pub experiment: String,
    /// What was measured, such as `E2`.
    pub engine: String,
    /// What was chosen for the run, such as the burst.
    pub params: BTreeMap<String, String>,
    /// Model of the processor.
    pub cpu: String,
    /// Threads that did the work.
    pub threads: usize,
    /// Number of runs that `value` summarizes.
    pub reps: usize,
    /// Median of the runs.
    pub value: f64,
    /// Unit of the figures.
    pub unit: String,
    /// Least of the runs.
    pub min: f64,
    /// Greatest of the runs.
    pub max: f64,
    /// Standard deviation of the runs.
    pub stddev: f64,
    /// What a reader must know.
    pub notes: String,
}

impl Measurement {
    /// Sums up the figures of several runs; there must be one at least.
    pub fn of(experiment: &str, engine: &str, unit: &str, runs: &[f64]) -> Measurement {
        let summary = Summary::of(runs);
        Measurement {
            experiment: experiment.into(),
            engine: engine.into(),
            threads: 1,
            reps: runs.len(),
            value: summary.median,
            unit: unit.into(),
            min: summary.min,
            max: summary.max,
            stddev: summary.stddev,
            ..Measurement::default()
        }
    }
    /// Says what was chosen for the runs.
    pub fn param(mut self, name: &str, value: impl ToString) -> Measurement {
        self.params.insert(name.into(), value.to_string());
        self
    }
    /// Says which processor it was.
    pub fn cpu(mut self, model: &str) -> Measurement {
        self.cpu = model.into();
        self
    }
    /// Says how many threads did the work.
    pub fn threads(mut self, threads: usize) -> Measurement {
        self.threads = threads;
        self
    }
    /// Adds what a reader must know.
    pub fn notes(mut self, notes: impl Into<String>) -> Measurement {
        self.notes = notes.into();
        self
    }
}

/// What several runs have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The value in the middle.
    pub median: f64,
    /// The least of all values.
    pub min: f64,
    /// The greatest of all values.
    pub max: f64,
    /// Standard deviation from the mean, zero for a single run.
    pub stddev: f64,
}

impl Summary {
    /// Sums up figures, one at least.
    pub fn of(runs: &[f64]) -> Summary {
        assert!(!runs.is_empty(), "a median needs values");
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let mean = sorted.iter().sum::<f64>() / count as f64;
        let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
        Summary {
            median: (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0,
            min: sorted[0],
            max: sorted[count - 1],
            stddev: (squares / (count.max(2) - 1) as f64).sqrt(),
        }
    }
}

/// Measurements or verdicts as JSON, one a line.
pub fn json_lines<T: Serialize>(all: &[T]) -> anyhow::Result<String> {
    let lines: Result<Vec<String>, _> = all.iter().map(serde_json::to_string).collect();
    Ok(lines?.into_iter().map(|line| line + "\n").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_and_no_run_is_left_out() {
        let odd = Summary::of(&[3.0, 1.0, 2.0]);
        assert_eq!((odd.median, odd.min, odd.max, odd.stddev), (2.0, 1.0, 3.0, 1.0));
        assert_eq!(Summary::of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(Summary::of(&[7.0]).stddev, 0.0);
    }

    #[test]
    fn json_lines_read_back_as_written() {
        let one = Measurement::of("click1999", "E2", "packets/s", &[1.5, 2.5])
            .param("burst", 1)
            .notes("a \"note\"");
        let two = Measurement::of("click1999", "E4", "ns", &[3.0]).cpu("AMD EPYC").threads(2);
        let text = json_lines(&[one.clone(), two.clone()]).unwrap();
        let read: Vec<Measurement> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(read, [one, two]);
    }
}
