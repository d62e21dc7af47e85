//! The options of `artery run`.
use crate::control_socket::{ControlSettings, PortRequest};
use crate::export::ExportSettings;
use crate::options::values::{device, number, seconds};
use crate::options::{ReadingOptions, ReportOptions, RunningOptions, TcpOptions, map_devices, usage_error};
use crate::run_options::RunJob;
use artery_engine::{RouterSettings, Time};
use artery_lang::args;
use clap::{ArgAction, Args};
use std::time::Duration;

#[derive(Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    reading: ReadingOptions,
    #[command(flatten)]
    running: RunningOptions,
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
    #[command(flatten)]
    tcp: TcpOptions,
    #[command(flatten)]
    exports: ExportSettings,
    #[command(flatten)]
    pub(crate) report: ReportOptions,
    /// Take the time of every element, and report it at the end
    #[arg(long)]
    profile: bool,
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
        if self.simtime.is_some() && self.running.workers > 1 {
            usage_error("--simtime needs a single worker");
        }
        let job = RunJob::new(input, reading, &self.running, &self.report);
        let mut settings = RouterSettings {
            burst: self.burst.into(),
            profile: self.profile,
            simulated: self.simtime.map(|since| Time::ZERO + since),
            ..job.settings
        };
        settings.frames.0 = self.frames as usize;
        map_devices(&self.device, &mut settings);
        self.report.unit_hint().into_iter().for_each(|doubt| job.voice.print_warning(&doubt));
        Ok(RunJob {
            settings,
            handlers: self.handler,
            exit_handler: self.exit_handler,
            output: self.output,
            quit: self.quit,
            time: self.time,
            control: ControlSettings { ports: self.port, tcp: self.tcp.writes(), ..job.control },
            exports: self.exports,
            ..job
        })
    }

    /// Ends the program when a value that belongs to an option stands apart from it, where it would be taken
    /// for the name of a configuration.
    fn refuse_stray_value(&self) {
        let joined = [
            ("--stats", self.report.stats.is_some()),
            ("--simtime", self.simtime.is_some()),
            ("--affinity", self.running.affinity.is_some()),
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
