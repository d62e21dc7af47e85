//! Measures the engines that a fleet of balancers may share its state by: what
//! docs/decisions/0042-fleet-engines.md has its figures from.
//!
//! Machines are processes in network namespaces, joined by a bridge. Nothing here is part of a product.

mod certificates;
mod clock;
mod etcd;
mod experiments;
mod fleet;
mod machine;
mod mirror;
mod network;
mod orders;
mod own;
mod process;
mod replica;
mod report;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};

use experiments::{Amount, Experiment};
use fleet::{Plan, Site, value_name};
use mirror::{Congestion, Engine, MirrorOptions};
use report::Report;

#[derive(Parser)]
#[command(about = "Measures the engines that a fleet of balancers may share its state by")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Carry out experiments, as root, and print what they find.
    Run(RunOptions),
    /// Be a machine of an experiment.
    #[command(hide = true)]
    Machine(MirrorOptions),
}

#[derive(clap::Args)]
struct RunOptions {
    /// What is tried; may be given repeatedly. Without it, all.
    #[arg(long = "subject")]
    subjects: Vec<Subject>,
    /// The experiments; may be given repeatedly. Without it, all that the subject can take. etcd has its own.
    #[arg(long = "experiment")]
    experiments: Vec<Experiment>,
    #[command(flatten)]
    amount: Amount,
    /// A file to write the figures to, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// An engine, by its name on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// zenoh; a publisher drops messages for a peer that is slow.
    Zenoh,
    /// The same with more threads: closing a connection to a peer that is cut off blocks one for ten seconds.
    ZenohThreads,
    /// zenoh; a publisher waits for the slowest peer.
    ZenohBlock,
    /// zenoh with TLS and client certificates.
    ZenohTls,
    /// NATS without storage (core NATS).
    Nats,
    /// NATS JetStream, batches in a stream.
    Stream,
    /// etcd, for membership and configuration.
    Etcd,
}

impl Subject {
    /// The fleet for experiments with an engine that carries records.
    fn plan(self) -> Option<Plan> {
        let plan = Plan::new(Engine::Zenoh);
        match self {
            Subject::Zenoh => Some(plan),
            Subject::ZenohThreads => Some(Plan { has_more_threads: true, ..plan }),
            Subject::ZenohBlock => Some(Plan { congestion: Congestion::Block, ..plan }),
            Subject::ZenohTls => Some(Plan { has_tls: true, ..plan }),
            Subject::Nats => Some(Plan::new(Engine::Nats)),
            Subject::Stream => Some(Plan::new(Engine::Stream)),
            Subject::Etcd => None,
        }
    }

    /// Only machines with certificates can tell strangers.
    fn takes(self, experiment: Experiment) -> bool {
        experiment != Experiment::Strangers || self == Subject::ZenohTls
    }
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Machine(options) => runtime()?.block_on(machine::run(&options)),
        Command::Run(options) => {
            network::enter()?;
            runtime()?.block_on(run(&options))
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let made = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    made.context("cannot start a runtime")
}

async fn run(options: &RunOptions) -> Result<()> {
    let mut report = Report::new();
    let mut site = Site::new()?;
    let subjects = if options.subjects.is_empty() { Subject::value_variants() } else { &options.subjects };
    let experiments =
        if options.experiments.is_empty() { Experiment::value_variants() } else { &options.experiments };
    let mut outcome = Ok(());
    for subject in subjects {
        outcome = try_subject(&mut site, *subject, experiments, options.amount, &mut report).await;
        if outcome.is_err() {
            break;
        }
    }
    // What was found before something failed is figures, too.
    let json = report.finish()?;
    if let Some(file) = &options.json {
        std::fs::write(file, json).with_context(|| format!("cannot write {}", file.display()))?;
    }
    outcome.map_err(|error| {
        let folder = site.folder.keep();
        error.context(format!("logs of all programs are in {}", folder.display()))
    })
}

async fn try_subject(
    site: &mut Site,
    subject: Subject,
    experiments: &[Experiment],
    amount: Amount,
    report: &mut Report,
) -> Result<()> {
    let name = value_name(subject);
    let Some(plan) = subject.plan() else {
        report.add(&name, "etcd", etcd::run(site).await?);
        return Ok(());
    };
    for experiment in experiments.iter().filter(|experiment| subject.takes(**experiment)) {
        let figures = experiments::run(site, plan, *experiment, amount).await;
        let figures = figures.with_context(|| format!("{name}, {}", value_name(*experiment)))?;
        report.add(&name, &value_name(*experiment), figures);
    }
    Ok(())
}
