//! Runs the matrix, or a part of it, and writes the report.

use super::matrix::{self, Plan};
use super::rows::{Collector, Row, Verdict, report, totals};
use super::run::StaleCode;
use super::{Kernel, cache, fetch, qemu, tool};
use crate::RigError;
use crate::console::{print, progress};
use crate::machine::Machine as Host;
use anyhow::Context as _;
use clap::Args;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

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
    let mut tried = Tried::default();
    plans.iter().for_each(|plan| tried.run(plan));
    tried.finish(options)
}

/// How many machines are booted for the same rows, where the emulator is at fault.
const MOST_MACHINES: usize = 3;

/// What has been tried so far.
#[derive(Default)]
struct Tried {
    rows: Vec<Row>,
    /// What failed rows said.
    details: String,
    /// Why kernels are unavailable; each is requested once.
    kernels: BTreeMap<String, Result<String, String>>,
}

impl Tried {
    fn run(&mut self, plan: &Plan) {
        if let Err(why) = self.kernel(&plan.machine.kernel) {
            return self.skip(plan, &why);
        }
        let mut left = plan.clone();
        for _ in 0..MOST_MACHINES {
            match self.run_machine(&left) {
                Ok(()) => return,
                Err(error) if is_skip(&error) => return self.skip(&left, &format!("{error:#}")),
                Err(error) => {
                    progress(&format!("vm: {}: {error:#}", plan.name_of("")));
                    self.details += &format!("{}\n{error:#}\n", plan.name_of(""));
                    left.rows.retain(|row| self.rows.iter().all(|tried| tried.name != plan.name_of(row)));
                    if error.downcast_ref::<StaleCode>().is_none() {
                        let why = format!("{error:#}").lines().next().unwrap_or_default().to_owned();
                        return self.miss(&left, &why);
                    }
                }
            }
            progress(
                "vm: the emulator ran code that the kernel had changed: another machine for the rows left",
            );
        }
        self.miss(&left, "the emulator ran code that the kernel had changed, in each of several machines");
    }

    /// Runs rows in one machine, and notes what it reports. At its end, rows that it left out have failed.
    fn run_machine(&mut self, plan: &Plan) -> anyhow::Result<()> {
        let mut collector = Collector::new(|row: &str| plan.name_of(row), |row: &Row| print(&row.line()));
        let mut said = vec![];
        let outcome = plan.machine.run_and_show(&plan.script(), &mut collector, &mut said);
        let said = String::from_utf8_lossy(&said).into_owned();
        if !said.trim().is_empty() {
            progress(said.trim_end());
            self.details += &format!("{}\n{said}\n", plan.name_of(""));
        }
        self.rows.extend(collector.rows);
        let outcome = outcome?;
        progress(&format!(
            "vm: {}, Linux {}, booted in {:.1} s",
            plan.machine.nic,
            outcome.release,
            outcome.boot.as_secs_f64()
        ));
        self.miss(plan, "the machine went on without it");
        Ok(())
    }

    /// Notes rows of a plan that no machine has reported.
    fn miss(&mut self, plan: &Plan, why: &str) {
        let is_there = |name: &String| self.rows.iter().any(|row| row.name == *name);
        let missing = plan.rows.iter().map(|row| plan.name_of(row)).filter(|name| !is_there(name));
        let missing: Vec<Row> = missing.map(|name| Row::missing(name, why)).collect();
        missing.iter().for_each(|row| progress(&row.line()));
        self.rows.extend(missing);
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

    fn skip(&mut self, plan: &Plan, why: &str) {
        self.rows.extend(plan.rows.iter().map(|row| Row::skipped(plan.name_of(row), why)));
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
        std::fs::write(&file, report(&heading, &self.rows, &self.details))
            .with_context(|| format!("cannot write {}", file.display()))?;
        let failed = self.rows.iter().filter(|row| row.verdict == Verdict::Fail);
        failed.clone().try_for_each(|row| print(&row.line()))?;
        // Last, so that it is not overlooked.
        for (name, found) in &self.kernels {
            if let Err(why) = found {
                print(&format!("SKIPPED: nothing ran on Linux {name}: {why}"))?;
            }
        }
        print(&format!("vm: {}; the report is {}", totals(&self.rows), file.display()))?;
        Ok(if failed.count() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Whether an error says that this host lacks a tool or rights.
fn is_skip(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(RigError::Skip(_))))
}
