//! The five published experiments, one after the other, and one report of them.
//!
//! Each runs in a process of its own, as if it had been called by itself, and leaves its files in one folder.
//! What it could not do, and why, is said; what is left there of an earlier run is removed before, so that
//! nothing old is read.
#![forbid(unsafe_code)]

pub mod art2016;
pub mod click1999;
pub mod freebsd2009;
mod html;
pub mod misses2008;
mod report;
pub mod veb2021;

use anyhow::Context as _;
use artery_bench::results::{Delivery, Verdict, write_files};
use artery_rig::Rig;
use artery_rig::console::{print, progress};
use artery_rig::machine::Machine;
use artery_rig::program;
use clap::{Args, Subcommand};
use report::{Outcome, Part, Report};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// One experiment, or all of them.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Papers {
    #[command(flatten)]
    all: Options,
    #[command(subcommand)]
    paper: Option<Paper>,
}

/// The published experiments that are repeated here.
#[derive(Subcommand, Clone, Debug)]
pub enum Paper {
    /// Look up and forward as in June 2016: ART against the radix tree of BSD
    Art2016(art2016::Options),
    /// Switch as in May 2021: veb, with pf and without, and the old bridge, by iperf3 between two hosts
    Veb2021(Delivery),
    /// Send as in 2009, by one table for routes and neighbors, by two, with flows and without locks
    Freebsd2009(freebsd2009::Options),
    /// Forward as in May 1999, 24,000 packets a second then: the same configuration, other engines beside it
    Click1999(Delivery),
    /// Count cache misses as in July 2008: what a packet costs up to each level of monitor mode
    Misses2008(Delivery),
}

impl Papers {
    /// Runs what was asked for.
    pub fn run(&self) -> anyhow::Result<()> {
        self.paper.as_ref().map_or_else(|| run(&self.all), Paper::run)
    }
}

impl Paper {
    /// Runs one experiment and prints its report.
    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            Paper::Art2016(options) => art2016::run(options),
            Paper::Veb2021(delivery) => veb2021::run(delivery),
            Paper::Freebsd2009(options) => freebsd2009::run(options),
            Paper::Click1999(delivery) => click1999::run(delivery),
            Paper::Misses2008(delivery) => misses2008::run(delivery),
        }
    }
}

/// How much is measured, on what, and where it goes.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Fewer and shorter runs: a quarter of an hour for all
    #[arg(long)]
    quick: bool,
    /// The full feed of art2016: text or an MRT dump, packed by gzip or not; without, a synthetic table
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Where the report, figures and charts go; files of experiments that are there are replaced
    #[arg(long, value_name = "DIR", default_value = "artery-papers")]
    out: PathBuf,
}

#[derive(Clone, Copy, Debug)]
struct Experiment {
    /// Its name, by which it is called, and with which its files begin.
    name: &'static str,
    /// When it was carried out first.
    when: &'static str,
    /// What it was about.
    what: &'static str,
}

const EXPERIMENTS: [Experiment; 5] = [
    Experiment { name: "art2016", when: "June 2016", what: "ART and the radix tree of BSD" },
    Experiment { name: "veb2021", when: "May 2021", what: "veb and the bridge before it" },
    Experiment { name: "freebsd2009", when: "2009", what: "routes and neighbors in one table or two" },
    Experiment { name: "click1999", when: "May 1999", what: "a configuration that forwards" },
    Experiment { name: "misses2008", when: "July 2008", what: "cache misses and monitor mode" },
];

/// Runs all, writes the report, and prints its beginning. The error, after that, is
/// that an experiment failed.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let machine = Machine::here();
    print(&format!("{machine}\n"))?;
    fs::create_dir_all(&options.out).with_context(|| format!("can't make {}", options.out.display()))?;
    let parts =
        EXPERIMENTS.iter().map(|experiment| carry_out(*experiment, options)).collect::<Result<_, _>>()?;
    let report = Report { machine, is_quick: options.quick, without_rig: without_rig(), parts };
    let markdown = report.markdown();
    let page = html::page(&markdown, &charts(&options.out)?);
    write_files(&options.out, vec![("papers.md".into(), markdown), ("papers.html".into(), page)])?;
    print(&report.summary())?;
    report.failure().map_or(Ok(()), |failed| Err(anyhow::anyhow!("{failed}")))
}

/// Why nothing can be measured between namespaces, if so.
fn without_rig() -> Option<String> {
    Rig::new("papers").err().map(|reason| reason.to_string())
}

/// Runs one experiment to its end, and reads what it wrote.
fn carry_out(experiment: Experiment, options: &Options) -> anyhow::Result<Part> {
    let Experiment { name, .. } = experiment;
    progress(&format!("== {name}: {} ({})", experiment.what, experiment.when));
    for old in files_of(&options.out, name)? {
        fs::remove_file(&old).with_context(|| format!("can't remove {}", old.display()))?;
    }
    let mut command = Command::new(program::this()?);
    command.args(["papers", name]).arg("--out").arg(&options.out).stdin(Stdio::null()).stdout(Stdio::null());
    command.args(options.quick.then_some("--quick"));
    if let Some(table) = options.table.as_ref().filter(|_| name == "art2016") {
        command.arg("--table").arg(table);
    }
    let start = Instant::now();
    let status = command.status().with_context(|| format!("can't run {name}"))?;
    let took = start.elapsed();
    let outcome =
        if status.success() { read(&options.out, name)? } else { Outcome::Failed(status.to_string()) };
    Ok(Part { experiment, took, outcome })
}

fn read(folder: &Path, name: &str) -> anyhow::Result<Outcome> {
    let file = |ending: &str| {
        let path = folder.join(format!("{name}.{ending}"));
        fs::read_to_string(&path).with_context(|| format!("can't read {}", path.display()))
    };
    let verdicts: Result<Vec<Verdict>, _> = file("claims.jsonl")?.lines().map(serde_json::from_str).collect();
    let charts =
        files_of(folder, name)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "svg"));
    let charts = charts.filter_map(|path| Some(path.file_name()?.to_str()?.to_string())).collect();
    Ok(Outcome::Done { text: file("md")?, verdicts: verdicts?, charts })
}

/// Charts of a folder, by the names of their files.
fn charts(folder: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let all = EXPERIMENTS
        .iter()
        .map(|experiment| files_of(folder, experiment.name))
        .collect::<Result<Vec<_>, _>>()?;
    let charts =
        all.into_iter().flatten().filter(|path| path.extension().is_some_and(|ending| ending == "svg"));
    let named = charts.filter_map(|path| Some((path.file_name()?.to_str()?.to_string(), path.clone())));
    let read = |(name, path): (String, PathBuf)| {
        Ok((name, fs::read_to_string(&path).with_context(|| format!("can't read {}", path.display()))?))
    };
    named.map(read).collect()
}

/// Files that an experiment leaves in a folder, in the order of their names.
fn files_of(folder: &Path, name: &str) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("can't read {}", folder.display()))?;
    let is_its = |path: &PathBuf| {
        let rest = path.file_name().and_then(|file| file.to_str()).and_then(|file| file.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with(['.', '-']))
    };
    let mut files: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_its).collect();
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_bench::results::{Finding, json_lines};

    #[test]
    fn an_experiment_is_read_from_its_own_files_alone() {
        let folder = tempfile::tempdir().unwrap();
        let verdict = Verdict::new("it \"works\"", Finding::Holds, "1.5 times");
        let files = [
            ("veb2021.md", "# One\n".to_string()),
            ("veb2021.claims.jsonl", json_lines(std::slice::from_ref(&verdict)).unwrap()),
            ("veb2021-b.svg", "<svg/>".to_string()),
            ("veb2021-a.svg", "<svg/>".to_string()),
            ("veb20210.svg", String::new()),
            ("my-veb2021.svg", String::new()),
        ];
        for (name, text) in &files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let done = read(folder.path(), "veb2021").unwrap();
        let Outcome::Done { text, verdicts, charts } = done else { panic!() };
        assert_eq!((text.as_str(), verdicts), ("# One\n", vec![verdict]));
        assert_eq!(charts, ["veb2021-a.svg", "veb2021-b.svg"]);
    }

    #[test]
    fn an_experiment_without_files_is_an_error_that_names_them() {
        let folder = tempfile::tempdir().unwrap();
        let missing = read(folder.path(), "freebsd2009").unwrap_err().to_string();
        assert!(missing.starts_with("can't read ") && missing.contains("freebsd2009."), "{missing}");
    }
}
