//! What one run consists of, for all commands that start one.
use crate::config_input::ConfigInput;
use crate::control_socket::ControlSettings;
use crate::export::ExportSettings;
use crate::load::Reading;
use crate::metrics::MetricsAddress;
use crate::options::{ReportOptions, RunningOptions};
use crate::output::Output;
use crate::reload::ConfigurationSource;
use crate::sandbox::Sandbox;
use artery_engine::RouterSettings;
use std::sync::Arc;
use std::time::Duration;

/// One run of a router.
pub(crate) struct RunJob {
    /// The command that started it, as metrics name it.
    pub(crate) mode: &'static str,
    pub(crate) input: ConfigInput,
    /// What SIGHUP has read again; the input itself if none is given.
    pub(crate) source: Option<Arc<dyn ConfigurationSource>>,
    pub(crate) reading: Reading,
    pub(crate) voice: Output,
    pub(crate) settings: RouterSettings,
    /// Handlers to print at the end.
    pub(crate) handlers: Vec<String>,
    /// The handler whose value is the exit status.
    pub(crate) exit_handler: Option<String>,
    /// Where the flat configuration goes; `-` is standard output.
    pub(crate) output: Option<String>,
    /// Whether to start elements only.
    pub(crate) quit: bool,
    /// Whether to say how long it took.
    pub(crate) time: bool,
    pub(crate) control: ControlSettings,
    /// Where metrics are served.
    pub(crate) metrics: Vec<MetricsAddress>,
    /// Where flows and samples are exported to.
    pub(crate) exports: ExportSettings,
    pub(crate) allow_replace: bool,
    pub(crate) sandbox: Sandbox,
    /// How often to show counters.
    pub(crate) stats: Option<Duration>,
    /// Whether the report is JSON.
    pub(crate) json: bool,
    /// Commands that the shell runs once the router forwards, each with the place that it stands at.
    pub(crate) commands: Vec<(String, String)>,
}

impl RunJob {
    /// A run that does nothing beside what these options ask for.
    pub(crate) fn new(
        input: ConfigInput,
        reading: Reading,
        running: &RunningOptions,
        report: &ReportOptions,
    ) -> RunJob {
        RunJob {
            mode: "run",
            input,
            source: None,
            reading,
            voice: Output::from(report.log),
            settings: RouterSettings {
                workers: running.workers.into(),
                awake: running.awake,
                affinity: running.affinity,
                ..RouterSettings::default()
            },
            handlers: Vec::new(),
            exit_handler: None,
            output: None,
            quit: false,
            time: false,
            control: running.control.settings(running.socket.clone()),
            metrics: running.metrics.clone(),
            exports: ExportSettings::default(),
            allow_replace: report.allow_replace,
            sandbox: Sandbox::new(&report.sandbox),
            stats: report.stats.map(|period| period.every),
            json: report.json,
            commands: Vec::new(),
        }
    }

    /// Whether another configuration may take the place of the first.
    pub(crate) fn may_change(&self) -> bool {
        self.allow_replace || self.source.is_some() || matches!(self.input, ConfigInput::File(_))
    }
}
