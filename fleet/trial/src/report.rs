//! What a trial has found, as a table and as JSON.

use std::fs;

use serde::Serialize;

/// One figure of one experiment.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    /// The engine that was tried.
    pub(crate) subject: String,
    /// The experiment that gave it.
    pub(crate) experiment: String,
    /// What it says, with its quantile.
    pub(crate) measure: String,
    /// Its value; nothing if what was waited for never happened.
    pub(crate) value: Option<f64>,
    /// The unit of the value.
    pub(crate) unit: &'static str,
}

/// The figures of one experiment.
#[derive(Default)]
pub(crate) struct Figures(pub(crate) Vec<(String, Option<f64>, &'static str)>);

impl Figures {
    pub(crate) fn add(&mut self, measure: impl Into<String>, value: f64, unit: &'static str) {
        self.0.push((measure.into(), Some(value), unit));
    }

    /// A time in seconds that may never have come.
    pub(crate) fn add_time(&mut self, measure: impl Into<String>, seconds: Option<f64>) {
        self.0.push((measure.into(), seconds, "s"));
    }
}

/// Where and when a trial took place, and its figures.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) processor: String,
    pub(crate) processors: usize,
    pub(crate) kernel: String,
    /// Of the last minute, at the beginning and at the end: other programs disturb what is measured.
    pub(crate) load: [String; 2],
    pub(crate) figures: Vec<Figure>,
}

impl Report {
    pub(crate) fn new() -> Report {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
        let processor = model.unwrap_or_default().trim_start_matches(['\t', ' ', ':']).into();
        let processors = std::thread::available_parallelism().map_or(0, usize::from);
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().into();
        Report { processor, processors, kernel, load: [load(), String::new()], figures: Vec::new() }
    }

    /// Takes the figures of an experiment, and prints them.
    pub(crate) fn add(&mut self, subject: &str, experiment: &str, figures: Figures) {
        for (measure, value, unit) in figures.0 {
            let figure =
                Figure { subject: subject.into(), experiment: experiment.into(), measure, value, unit };
            println!("{}", line(&figure));
            self.figures.push(figure);
        }
    }

    /// As JSON, once the trial is over.
    pub(crate) fn finish(mut self) -> serde_json::Result<String> {
        self.load[1] = load();
        println!(
            "{} processors, {}; Linux {}; load {} to {}",
            self.processors, self.processor, self.kernel, self.load[0], self.load[1]
        );
        serde_json::to_string_pretty(&self)
    }
}

fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().into()
}

fn line(figure: &Figure) -> String {
    let Figure { subject, experiment, measure, value, unit } = figure;
    let value = match value {
        Some(value) if value.abs() >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.2}"),
        None => "never".into(),
    };
    format!("{subject:<12} {experiment:<13} {measure:<52} {value:>9} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_columns_and_no_needless_digits() {
        let figure = |value| Figure {
            subject: "zenoh".into(),
            experiment: "lag".into(),
            measure: "p99 at a peer".into(),
            value,
            unit: "ms",
        };
        let columns = |value| line(&figure(value)).split_whitespace().map(String::from).collect::<Vec<_>>();
        assert_eq!(columns(Some(1.234))[6..], ["1.23", "ms"]);
        assert_eq!(columns(Some(12_345.6))[6..], ["12346", "ms"]);
        assert_eq!(columns(None)[6..], ["never", "ms"]);
    }
}
