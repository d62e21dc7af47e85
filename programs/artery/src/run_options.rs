//! What one run consists of, for all commands that start one.
use crate::control_socket::ControlSettings;
use crate::load::Reading;
use crate::metrics::MetricsAddress;
use crate::output::Output;
use crate::reload::ConfigurationSource;
use crate::sandbox::Sandbox;
use artery_engine::RouterSettings;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where a configuration comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigInput {
    Stdin,
    File(PathBuf),
    Text(String),
}

impl ConfigInput {
    /// A file named on the command line.
    pub(crate) fn from_word(word: &str) -> ConfigInput {
        if word == "-" { ConfigInput::Stdin } else { ConfigInput::File(word.into()) }
    }

    /// The name that messages use.
    pub(crate) fn name(&self) -> String {
        match self {
            ConfigInput::Stdin => "<stdin>".to_string(),
            ConfigInput::File(path) => path.display().to_string(),
            ConfigInput::Text(_) => "config".to_string(),
        }
    }
}

/// A TCP port to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortRequest {
    pub(crate) port: u16,
    /// Whether the following ports may be used instead.
    pub(crate) or_next: bool,
}

impl std::str::FromStr for PortRequest {
    type Err = String;
    fn from_str(text: &str) -> Result<PortRequest, String> {
        let (number, or_next) = text.strip_suffix('+').map_or((text, false), |number| (number, true));
        match number.parse() {
            Ok(port) if port > 0 => Ok(PortRequest { port, or_next }),
            _ => Err("a port is a number from 1 to 65535, perhaps with a '+'".to_string()),
        }
    }
}

/// Refuses a processor that this machine has not.
pub(crate) fn check_processor(n: usize) -> Result<usize, String> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let last = processors - 1;
    if n < processors { Ok(n) } else { Err(format!("processors are numbered from 0 to {last} here")) }
}

/// One run of a router.
pub(crate) struct RunJob {
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
    /// Whether another configuration may take the place of the first.
    pub(crate) fn may_change(&self) -> bool {
        self.allow_replace || self.source.is_some() || matches!(self.input, ConfigInput::File(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_ask_for_the_next_ones_too() {
        assert_eq!("7777+".parse(), Ok(PortRequest { port: 7777, or_next: true }));
        assert_eq!("80".parse(), Ok(PortRequest { port: 80, or_next: false }));
        for wrong in ["", "0", "+", "65536", "a", "80++"] {
            assert!(wrong.parse::<PortRequest>().is_err(), "{wrong}");
        }
    }
}
