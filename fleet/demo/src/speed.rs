//! Measures what the goals of `docs/fleet.md` name: some runs of each row, goals beside figures.

mod machines;
mod mirror;
mod outage;
mod takeover;
mod usage;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

use crate::balancers::Programs;

#[derive(Args)]
pub(crate) struct Options {
    /// Rows to measure; without, all but outage, which takes as many minutes as --minutes says
    rows: Vec<Row>,
    /// Runs of each row
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Flows of the rows lag, change and joiner
    #[arg(long, default_value_t = 1_000_000)]
    flows: u32,
    /// Long connections of the row takeover
    #[arg(long, default_value_t = 10_000)]
    connections: usize,
    /// How long the row outage lasts
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Row {
    /// 2,000 exceptions a second beside many imported flows
    Lag,
    /// A member added to four, with many flows
    Change,
    /// A machine that joins, with all flows of the other one exceptions
    Joiner,
    /// kill -9 of a machine, its return, a planned leave, and an upgrade of all three, under connections
    Takeover,
    /// No etcd, no zenoh, and one machine cut off
    Outage,
}

/// A number that was measured in a run.
struct Figure {
    name: &'static str,
    value: f64,
    /// What it may be at most, or at least if its name says so.
    goal: Option<Goal>,
}

#[derive(Clone, Copy)]
enum Goal {
    Most(f64),
    Least(f64),
}

impl Goal {
    fn is_met(self, value: f64) -> bool {
        match self {
            Goal::Most(most) => value <= most,
            Goal::Least(least) => value >= least,
        }
    }

    fn worst(self, values: &[f64]) -> f64 {
        match self {
            Goal::Most(_) => values.iter().copied().fold(f64::MIN, f64::max),
            Goal::Least(_) => values.iter().copied().fold(f64::MAX, f64::min),
        }
    }
}

fn most(name: &'static str, value: f64, goal: f64) -> Figure {
    Figure { name, value, goal: Some(Goal::Most(goal)) }
}

fn least(name: &'static str, value: f64, goal: f64) -> Figure {
    Figure { name, value, goal: Some(Goal::Least(goal)) }
}

fn figure(name: &'static str, value: f64) -> Figure {
    Figure { name, value, goal: None }
}

/// Measures the rows, and prints a table of each when it is done. Goals that were missed are no error.
pub(crate) fn measure(options: &Options, programs: &Programs) -> Result<()> {
    usage::allow_many_files()?;
    let default = [Row::Lag, Row::Change, Row::Joiner, Row::Takeover];
    let rows = if options.rows.is_empty() { &default[..] } else { &options.rows };
    for row in rows {
        let (title, runs) = match row {
            Row::Lag => {
                ("lag: 2,000 exceptions a second", mirror::lag(programs, options.flows, options.runs)?)
            }
            Row::Change => ("change: 4 to 5 members", mirror::change(programs, options.flows, options.runs)?),
            Row::Joiner => {
                ("joiner: all flows are exceptions", mirror::joiner(programs, options.flows, options.runs)?)
            }
            Row::Takeover => (
                "takeover: a kill, a return, a leave, an upgrade",
                takeover::measure(programs, options.connections, options.runs)?,
            ),
            Row::Outage => {
                ("outage: no etcd, no zenoh, one cut off", outage::measure(programs, options.minutes)?)
            }
        };
        print_table(title, &runs)?;
    }
    Ok(())
}

fn print_table(title: &str, runs: &[Vec<Figure>]) -> Result<()> {
    ensure!(!runs.is_empty(), "{title}: no run");
    println!("\n{title}; runs: {}", runs.len());
    println!("{:<58}{:>10}{:>12}{:>12}", "FIGURE", "GOAL", "MEDIAN", "WORST");
    for (at, first) in runs[0].iter().enumerate() {
        let mut values: Vec<f64> = runs.iter().map(|run| run[at].value).collect();
        values.sort_by(f64::total_cmp);
        let median = values[values.len() / 2];
        let (goal, worst, remark) = match first.goal {
            None => (String::new(), values[values.len() - 1], ""),
            Some(goal) => {
                let worst = goal.worst(&values);
                let words = match goal {
                    Goal::Most(most) => format!("<= {most}"),
                    Goal::Least(least) => format!(">= {least}"),
                };
                (words, worst, if goal.is_met(worst) { "" } else { "  missed" })
            }
        };
        println!("{:<58}{goal:>10}{median:>12.2}{worst:>12.2}{remark}", first.name);
    }
    Ok(())
}
