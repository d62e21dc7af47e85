//! The options of `artery run`.
use crate::control_socket::{ControlSettings, PortRequest};
use crate::export::ExportSettings;
use crate::ipfix::IpfixSettings;
use crate::metrics::MetricsAddress;
use crate::options::values::{ALWAYS, Period, awake_time, device, number, period, processor, seconds};
use crate::options::{ControlOptions, ReadingOptions, TcpOptions, map_devices, usage_error};
use crate::output::{LogFormat, Output};
use crate::psample::PsampleSettings;
use crate::run_options::RunJob;
use crate::sandbox::{Sandbox, SandboxOptions};
use artery_engine::{RouterSettings, Time};
use artery_lang::args;
use clap::{ArgAction, Args};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    reading: ReadingOptions,
    /// Number of workers
    #[arg(short = 'j', long, value_name = "N", default_value_t = 1, value_parser = number::<1, 256>)]
    workers: u16,
    /// Most packets in a batch; 1 gives Click's order of events
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = number::<1, 64>)]
    burst: u16,
    /// Call this machine's device MACHINE what the configuration calls CONFIG
    #[arg(long, value_name = "CONFIG=MACHINE", value_parser = device)]
    device: Vec<(String, String)>,
    /// Print a handler's value at the end; E may be a pattern or a class
    #[arg(short = 'h', long, value_name = "E.H")]
    handler: Vec<String>,
    /// Exit with a handler's value
    #[arg(short = 'x', long, value_name = "E.H")]
    exit_handler: Option<String>,
    /// Simulate time, starting T seconds after the epoch
    #[arg(
        long,
        value_name = "T",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1000000000",
        value_parser = seconds
    )]
    simtime: Option<Duration>,
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
    affinity: Option<usize>,
    /// Wait awake for TIME, such as 20ms, before a worker with nothing to do sleeps: low latency, but a busy
    /// processor. Without TIME it never sleeps; with 0 it sleeps at once, even where packets come often
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        default_missing_value = ALWAYS,
        value_parser = awake_time
    )]
    awake: Option<Duration>,
    /// Frames of the packet pool
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16384,
        value_parser = clap::value_parser!(u32).range(1..=16_777_216)
    )]
    frames: u32,
    /// Listen for control connections on this TCP port of 127.0.0.1; `PORT+` tries the next ones too
    #[arg(short = 'p', long, value_name = "PORT[+]")]
    port: Vec<PortRequest>,
    /// Listen for control connections on this Unix socket
    #[arg(short = 'u', long, value_name = "PATH")]
    socket: Vec<PathBuf>,
    #[command(flatten)]
    control: ControlOptions,
    #[command(flatten)]
    tcp: TcpOptions,
    /// Answer there with metrics for Prometheus: ADDRESS:PORT, or unix:PATH
    #[arg(long, value_name = "WHERE")]
    metrics: Vec<MetricsAddress>,
    /// Export flows of FlowBalancers and states of pf rules with 'pflow' as IPFIX (RFC 7011) to a collector,
    /// port 4739 by default; keys are source=ADDR, domain=N (0), active=TIME, after which long flows are
    /// reported (60s), and sample=N, which exports one of N forwarded packets as well
    #[arg(long, value_name = "ADDR[:PORT][,KEY=VALUE]...")]
    ipfix: Option<IpfixSettings>,
    /// Send one of N forwarded packets to the kernel's PSAMPLE group, where sFlow agents such as hsflowd
    /// read; group=G numbers it (1)
    #[arg(long, value_name = "N[,group=G]")]
    psample: Option<PsampleSettings>,
    /// In what form messages are written
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) log: LogFormat,
    /// Show the last lines of the kernel's verifier where it refuses a program
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Let `write hotconfig` replace the running configuration by another text, from a script
    /// or the control socket
    #[arg(short = 'R', long)]
    allow_replace: bool,
    #[command(flatten)]
    sandbox: SandboxOptions,
    /// Take the time of every element, and report it at the end
    #[arg(long)]
    profile: bool,
    /// Show counters every TIME, such as 5 (seconds) or 200ms, on standard error, and a report at the end
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = period
    )]
    stats: Option<Period>,
    /// Write the report at the end as JSON
    #[arg(long)]
    json: bool,
    /// Start the elements, but do not run
    #[arg(short = 'q', long)]
    quit: bool,
    /// Write the flat configuration to FILE (`-` for standard output)
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<String>,
    /// Say how long the run took
    #[arg(short = 't', long)]
    time: bool,
    /// Print help
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
}

impl RunOptions {
    /// The job that these options describe.
    pub(crate) fn job(self) -> anyhow::Result<RunJob> {
        self.refuse_stray_value();
        let (input, reading) = self.reading.reading()?;
        if self.simtime.is_some() && self.workers > 1 {
            usage_error("--simtime needs a single worker");
        }
        let mut settings = RouterSettings {
            workers: self.workers.into(),
            burst: self.burst.into(),
            profile: self.profile,
            affinity: self.affinity,
            awake: self.awake,
            simulated: self.simtime.map(|since| Time::ZERO + since),
            ..RouterSettings::default()
        };
        settings.frames.0 = self.frames as usize;
        map_devices(&self.device, &mut settings);
        let voice = Output::from(self.log);
        self.stats.and_then(Period::unit_hint).into_iter().for_each(|doubt| voice.print_warning(&doubt));
        Ok(RunJob {
            input,
            source: None,
            reading,
            voice,
            settings,
            handlers: self.handler,
            exit_handler: self.exit_handler,
            output: self.output,
            quit: self.quit,
            time: self.time,
            control: ControlSettings {
                ports: self.port,
                tcp: self.tcp.writes(),
                ..self.control.settings(self.socket)
            },
            metrics: self.metrics,
            exports: ExportSettings { ipfix: self.ipfix, psample: self.psample },
            allow_replace: self.allow_replace,
            sandbox: Sandbox::new(&self.sandbox),
            stats: self.stats.map(|period| period.every),
            json: self.json,
            commands: Vec::new(),
        })
    }

    /// Ends the program when a value that belongs to an option stands apart from it, where it would be taken
    /// for the name of a configuration.
    fn refuse_stray_value(&self) {
        let joined = [
            ("--stats", self.stats.is_some()),
            ("--simtime", self.simtime.is_some()),
            ("--affinity", self.affinity.is_some()),
        ];
        let Some((option, _)) = joined.iter().find(|(_, given)| *given) else { return };
        let is_value =
            |word: &&String| args::parse_seconds(word).is_ok() && !std::path::Path::new(word).exists();
        if let Some(word) = self.reading.words().iter().find(is_value) {
            usage_error(&format!(
                "file '{word}' does not exist; a value is joined to its option: {option}={word}"
            ));
        }
    }
}
