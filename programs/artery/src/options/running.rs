//! Options of the commands that run a router as a service, and the run that they describe.
use super::values::{ALWAYS, Period, awake_time, number, period, processor};
use super::{ControlOptions, default_socket};
use crate::config_input::ConfigInput;
use crate::load::Reading;
use crate::metrics::MetricsAddress;
use crate::output::LogFormat;
use crate::reload::ConfigurationSource;
use crate::run_options::RunJob;
use crate::sandbox::SandboxOptions;
use artery_lang::Dialect;
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How a router runs, and where it is reached.
#[derive(Args, Clone)]
pub(crate) struct RunningOptions {
    /// Number of workers
    #[arg(short = 'j', long, value_name = "N", default_value_t = 1, value_parser = number::<1, 256>)]
    pub(crate) workers: u16,
    /// Wait awake for TIME, such as 20ms, before a worker with nothing to do sleeps: low latency, but a busy
    /// processor. Without TIME it never sleeps; with 0 it sleeps at once, even where packets come often
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        default_missing_value = ALWAYS,
        value_parser = awake_time
    )]
    pub(crate) awake: Option<Duration>,
    /// Bind workers to processors, the first to processor N
    #[arg(
        short = 'a',
        long,
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0",
        value_parser = processor
    )]
    pub(crate) affinity: Option<usize>,
    /// Listen for control connections on this Unix socket; 'router' and 'up' otherwise listen on
    /// $ARTERY_SOCKET, or /run/artery.sock
    #[arg(short = 'u', long, value_name = "PATH")]
    pub(crate) socket: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    /// Answer there with metrics for Prometheus: ADDRESS:PORT, or unix:PATH
    #[arg(long, value_name = "WHERE")]
    pub(crate) metrics: Vec<MetricsAddress>,
}

/// What a router tells of itself, and what it may do.
#[derive(Args, Clone)]
pub(crate) struct ReportOptions {
    /// In what form messages are written
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) log: LogFormat,
    /// Show the last lines of the kernel's verifier where it refuses a program
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Let `write hotconfig` replace the running configuration by another text, from a script
    /// or the control socket
    #[arg(short = 'R', long)]
    pub(crate) allow_replace: bool,
    #[command(flatten)]
    pub(crate) sandbox: SandboxOptions,
    /// Show counters every TIME, such as 5 (seconds) or 200ms, on standard error, and a report at the end
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = period
    )]
    pub(crate) stats: Option<Period>,
    /// Write the report at the end as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl ReportOptions {
    /// A hint for users who may have meant another unit.
    pub(crate) fn unit_hint(&self) -> Option<String> {
        self.stats.and_then(Period::unit_hint)
    }
}

/// The run of a configuration that `source` makes again when files are to be read again. Packets of rules
/// with 'log' go to the file `pflog`.
pub(crate) fn running_job(
    text: String,
    source: Arc<dyn ConfigurationSource>,
    running: &RunningOptions,
    report: &ReportOptions,
    pflog: PathBuf,
) -> RunJob {
    let reading = Reading { dialect: Dialect::Artery, ..Reading::default() };
    let mut job = RunJob::new(ConfigInput::Text(text), reading, running, report);
    if job.control.sockets.is_empty() {
        job.control.sockets.push(default_socket());
    }
    job.source = Some(source);
    job.sandbox.foreseen.push(pflog);
    job
}
