//! Runs the matrix, or a part of it, and writes the report.

use super::matrix::{self, Plan};
use super::rows::{Collector, Row, Verdict, report, totals};
use super::{Kernel, cache, fetch, qemu, tool};
use crate::machine::Machine as Host;
use crate::output::{print, progress};
use crate::rig::RigError;
use anyhow::Context as _;
use clap::Args;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

/// Which part of the matrix, and where the report goes.
#[derive(Args)]
pub struct Options {
    /// Only rows whose names have one of these words in them, such as 6.12/e1000e
    words: Vec<String>,
    /// Only what runs at every change, on 6.1 and 6.12
    #[arg(long)]
    slice: bool,
    /// Show the names of the rows and run none
    #[arg(long)]
    list: bool,
    /// Write the report to this file; otherwise to report.md in the folder of the kernels
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Runs it. The status says whether a row failed; one that could not be tried has not failed.
pub(super) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let all = if options.slice { matrix::slice() } else { matrix::whole() };
    let plans: Vec<Plan> = all.into_iter().map(|plan| plan.only(&options.words)).collect();
    let plans: Vec<Plan> = plans.into_iter().filter(|plan| !plan.rows.is_empty()).collect();
    anyhow::ensure!(!plans.is_empty(), "no row has such a name: --list shows them all");
    if options.list {
        for plan in &plans {
            plan.rows.iter().try_for_each(|row| print(&plan.name_of(row)))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    // Those of the slice run at once: whether TCP passes is tested there, not how fast.
    let at_once = if options.slice { plans.len() } else { 1 };
    let mut tried = Tried::default();
    plans.chunks(at_once).for_each(|plans| tried.run_at_once(plans));
    tried.finish(options)
}

/// What has been tried so far.
#[derive(Default)]
struct Tried {
    outcome: Rows,
    /// Why kernels are unavailable; each is requested once.
    kernels: BTreeMap<String, Result<String, String>>,
}

/// What came of some rows.
#[derive(Default)]
struct Rows {
    rows: Vec<Row>,
    /// What failed rows said.
    details: String,
}

impl Tried {
    /// Runs machines beside one another, each its rows one after the other.
    fn run_at_once(&mut self, plans: &[Plan]) {
        let (ready, without): (Vec<&Plan>, Vec<&Plan>) =
            plans.iter().partition(|plan| self.kernel(&plan.machine.kernel).is_ok());
        for plan in without {
            let why = self.kernel(&plan.machine.kernel).err().unwrap_or_default();
            self.outcome.rows.extend(skipped(plan, &why));
        }
        let outcomes: Vec<Rows> = thread::scope(|scope| {
            let runs: Vec<_> = ready.iter().map(|plan| scope.spawn(|| Rows::of(plan))).collect();
            runs.into_iter().map(|run| run.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        for outcome in outcomes {
            self.outcome.rows.extend(outcome.rows);
            self.outcome.details += &outcome.details;
        }
    }

    /// Has the newest kernel ready, or says why that can't be.
    fn kernel(&mut self, kernel: &Kernel) -> Result<String, String> {
        let find = || -> anyhow::Result<String> {
            tool::find(qemu::PROGRAM)?;
            Ok(fetch::newest(kernel)?.release)
        };
        let entry = self.kernels.entry(kernel.to_string());
        entry.or_insert_with(|| find().map_err(|error| format!("{error:#}"))).clone()
    }

    fn finish(self, options: &Options) -> anyhow::Result<ExitCode> {
        let file = match &options.out {
            Some(file) => file.clone(),
            None => cache::folder()?.join("report.md"),
        };
        let kernels = self.kernels.iter().map(|(name, found)| match found {
            Ok(release) => format!("- {name}: {release}\n"),
            Err(why) => format!("- {name}: not tried: {why}\n"),
        });
        let heading = format!("On {}\n\n{}", Host::here(), kernels.collect::<String>().trim_end());
        std::fs::write(&file, report(&heading, &self.outcome.rows, &self.outcome.details))
            .with_context(|| format!("cannot write {}", file.display()))?;
        let failed = self.outcome.rows.iter().filter(|row| row.verdict == Verdict::Fail);
        failed.clone().try_for_each(|row| print(&row.line()))?;
        // Last, so that it is not overlooked.
        for (name, found) in &self.kernels {
            if let Err(why) = found {
                print(&format!("SKIPPED: nothing ran on Linux {name}: {why}"))?;
            }
        }
        print(&format!("vm: {}; the report is {}", totals(&self.outcome.rows), file.display()))?;
        Ok(if failed.count() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Rows {
    /// Boots a machine and runs its rows.
    fn of(plan: &Plan) -> Rows {
        let mut details = String::new();
        let mut collector = Collector::new(|row: &str| plan.name_of(row), |row: &Row| print(&row.line()));
        let mut said = vec![];
        let outcome = plan.machine.run_and_show(&plan.script(), &mut collector, &mut said);
        let said = String::from_utf8_lossy(&said).into_owned();
        let mut rows = collector.rows;
        if !said.trim().is_empty() {
            progress(said.trim_end());
            details += &format!("{}\n{said}\n", plan.name_of(""));
        }
        let why = match outcome {
            Ok(outcome) => {
                progress(&format!(
                    "vm: {}, Linux {}, booted in {:.1} s",
                    plan.machine.nic,
                    outcome.release,
                    outcome.boot.as_secs_f64()
                ));
                "the machine went on without it".to_owned()
            }
            Err(error) if is_skip(&error) => {
                return Rows { rows: skipped(plan, &format!("{error:#}")), details };
            }
            Err(error) => {
                progress(&format!("vm: {}: {error:#}", plan.name_of("")));
                details += &format!("{}\n{error:#}\n", plan.name_of(""));
                format!("{error:#}").lines().next().unwrap_or_default().to_owned()
            }
        };
        let is_there = |name: &String| rows.iter().any(|row| row.name == *name);
        let missing = plan.rows.iter().map(|row| plan.name_of(row)).filter(|name| !is_there(name));
        let missing: Vec<Row> = missing.map(|name| Row::missing(name, &why)).collect();
        missing.iter().for_each(|row| progress(&row.line()));
        rows.extend(missing);
        Rows { rows, details }
    }
}

fn skipped(plan: &Plan, why: &str) -> Vec<Row> {
    plan.rows.iter().map(|row| Row::skipped(plan.name_of(row), why)).collect()
}

/// Whether an error says that this host lacks a tool or rights.
fn is_skip(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(RigError::Skip(_))))
}
