//! What is tried with an engine that carries records.

mod disturb;
mod join;
mod kill;
mod lag;
mod maximum;
mod strangers;

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use tokio::time::{Instant, sleep};

use crate::fleet::{Fleet, Plan, Site};
use crate::orders::Publish;
use crate::report::Figures;
use disturb::Disturbance;

/// The rate of exceptions that a fleet must carry.
const RATE: u32 = 2000;

/// Records in a batch at that rate: one every 10 ms.
const BATCH: u32 = 20;

/// Records in a batch where many come: 16 KiB.
const LARGE_BATCH: u32 = 250;

/// States that do not agree after so long never do.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often states are compared.
const POLL: Duration = Duration::from_millis(20);

/// An experiment, by its name on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Experiment {
    /// Lag, processor time and memory at 2,000 records a second.
    Lag,
    /// The highest rate without loss and with a lag of 100 ms at most, by batches of 20 records.
    Maximum,
    /// The same by batches of 250 records.
    MaximumLarge,
    /// The time until a new machine has all records of another one.
    Join,
    /// kill -9 of a machine, and of the server.
    Kill,
    /// A machine is cut off for five seconds.
    Partition,
    /// A machine stands still for five seconds (SIGSTOP).
    Pause,
    /// Machines with wrong certificates.
    Strangers,
}

/// How much is tried.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Amount {
    /// Seconds for which lag is measured.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) seconds: f64,
    /// Records that a new machine gets.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) records: u64,
}

/// Carries out an experiment with a fleet of its own.
pub(crate) async fn run(
    site: &mut Site,
    plan: Plan,
    experiment: Experiment,
    amount: Amount,
) -> Result<Figures> {
    let mut figures = Figures::default();
    let mut fleet = Fleet::start(site, plan).await?;
    match experiment {
        Experiment::Lag => lag::run(&mut fleet, amount, &mut figures).await?,
        Experiment::Maximum => maximum::run(&mut fleet, BATCH, &mut figures).await?,
        Experiment::MaximumLarge => maximum::run(&mut fleet, LARGE_BATCH, &mut figures).await?,
        Experiment::Join => join::run(site, &mut fleet, amount, &mut figures).await?,
        Experiment::Kill => kill::run(site, &mut fleet, &mut figures).await?,
        Experiment::Partition => disturb::run(site, &mut fleet, Disturbance::Partition, &mut figures).await?,
        Experiment::Pause => disturb::run(site, &mut fleet, Disturbance::Pause, &mut figures).await?,
        Experiment::Strangers => strangers::run(site, &mut fleet, &mut figures).await?,
    }
    fleet.stop().await;
    Ok(figures)
}

/// A stream of records at the rate that a fleet must carry.
fn usual_stream(seconds: f64) -> Publish {
    Publish { rate: Some(RATE), seconds, batch: BATCH }
}

/// Waits until each reader has all that the writer had when it was asked; machines by their place in the
/// fleet. Readers must not hold records of further writers.
async fn wait_for_agreement(fleet: &mut Fleet, pairs: &[(usize, usize)]) -> Result<Option<f64>> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let mut agree = true;
        for (writer, reader) in pairs {
            let own = fleet.machines[*writer].report().await?.own;
            let report = fleet.machines[*reader].report().await?;
            agree &= report.held >= own && !report.is_behind;
        }
        if agree {
            return Ok(Some(start.elapsed().as_secs_f64()));
        }
        sleep(POLL).await;
    }
    Ok(None)
}

fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}
