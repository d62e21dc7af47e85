//! Findings, what they mean for each command, and how they are shown.
use serde_json::{Value, json};
use std::fmt::Write as _;

/// A command whose needs are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Adopt,
    Router,
    Run,
    Up,
    Capture,
}

impl Purpose {
    pub(super) const ALL: [Purpose; 5] =
        [Purpose::Adopt, Purpose::Router, Purpose::Run, Purpose::Up, Purpose::Capture];
    /// The commands that have an engine of their own, to which packets come by sockets.
    pub(super) const ENGINES: &[Purpose] = &[Purpose::Router, Purpose::Run, Purpose::Up];
    /// The commands that hide frames from the host.
    pub(super) const HIDING: &[Purpose] = &[Purpose::Router, Purpose::Up];
    /// The commands that have programs forward.
    pub(super) const PROGRAMS: &[Purpose] = &[Purpose::Adopt, Purpose::Capture];

    pub(super) fn name(self) -> &'static str {
        match self {
            Purpose::Adopt => "adopt",
            Purpose::Router => "router",
            Purpose::Run => "run",
            Purpose::Up => "up",
            Purpose::Capture => "capture",
        }
    }
}

/// How good or bad a finding is. Worse ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Ok,
    /// This process could not see it.
    Unknown,
    /// It works, but slower than it could, or without something that is offered elsewhere.
    Slow,
    /// A command that needs it can't work.
    Broken,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Unknown => "unknown",
            Level::Slow => "slow",
            Level::Broken => "broken",
        }
    }

    fn status(self) -> u8 {
        match self {
            Level::Ok | Level::Unknown => 0,
            Level::Slow => 3,
            Level::Broken => 1,
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The name of the check, which stays the same from version to version.
    pub(super) check: &'static str,
    /// The port that it is about; `None` if it is the machine.
    pub(super) port: Option<String>,
    pub(super) level: Level,
    /// The finding as a sentence, without a full stop.
    pub(super) text: String,
    /// The command, or what else there is to do, that mends it.
    pub(super) remedy: Option<String>,
    /// The commands that need it.
    pub(super) purposes: &'static [Purpose],
    /// The last lines of the kernel's verifier.
    pub(super) verifier: Vec<String>,
}

impl Finding {
    fn new(check: &'static str, level: Level, text: impl Into<String>) -> Finding {
        let purposes = &Purpose::ALL;
        Finding { check, port: None, level, text: text.into(), remedy: None, purposes, verifier: Vec::new() }
    }
    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Finding {
        Finding::new(check, Level::Ok, text)
    }
    pub(super) fn slow(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { remedy: Some(remedy.into()), ..Finding::new(check, Level::Slow, text) }
    }
    pub(super) fn broken(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { remedy: Some(remedy.into()), ..Finding::new(check, Level::Broken, text) }
    }
    pub(super) fn unknown(
        check: &'static str,
        text: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding { remedy: Some(remedy.into()), ..Finding::new(check, Level::Unknown, text) }
    }
    /// The same, about a port.
    pub(super) fn at(self, port: &str) -> Finding {
        Finding { port: Some(port.to_owned()), ..self }
    }
    /// The same, which only these commands need.
    pub(super) fn needed_by(self, purposes: &'static [Purpose]) -> Finding {
        Finding { purposes, ..self }
    }

    /// The finding's name in reports: `check`, or `check@port`.
    fn id(&self) -> String {
        self.port.as_ref().map_or_else(|| self.check.to_owned(), |port| format!("{}@{port}", self.check))
    }

    fn json(&self) -> Value {
        json!({
            "id": self.id(),
            "check": self.check,
            "port": self.port,
            "level": self.level.name(),
            "text": self.text,
            "remedy": self.remedy,
            "commands": self.purposes.iter().map(|purpose| purpose.name()).collect::<Vec<_>>(),
            "verifier": self.verifier,
        })
    }
}

/// The findings for some commands.
pub(super) struct Report {
    findings: Vec<Finding>,
    purposes: Vec<Purpose>,
    ports: Vec<String>,
}

impl Report {
    /// Keeps the findings that these commands need.
    pub(super) fn of(findings: Vec<Finding>, purposes: &[Purpose], ports: &[String]) -> Report {
        let is_needed = |finding: &Finding| finding.purposes.iter().any(|purpose| purposes.contains(purpose));
        let findings = findings.into_iter().filter(is_needed).collect();
        Report { findings, purposes: purposes.to_vec(), ports: ports.to_vec() }
    }

    /// The exit status: 0 where all is offered, as far as could be seen, 1 where something can't work, 3
    /// where it is slower than it could be.
    pub(super) fn status(&self) -> u8 {
        self.worst(&self.purposes).status()
    }

    fn worst(&self, purposes: &[Purpose]) -> Level {
        let is_needed =
            |finding: &&Finding| finding.purposes.iter().any(|purpose| purposes.contains(purpose));
        let levels = self.findings.iter().filter(is_needed).map(|finding| finding.level);
        levels.max().unwrap_or(Level::Ok)
    }

    /// A line for each finding, with its remedy below, and one for each command.
    pub(super) fn text(&self, is_verbose: bool) -> String {
        let ids: Vec<String> = self.findings.iter().map(Finding::id).collect();
        let width = ids.iter().map(String::len).max().unwrap_or(0);
        let indent = " ".repeat(LEVEL_WIDTH + width + 2);
        let mut text = String::new();
        for (id, finding) in ids.iter().zip(&self.findings) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{:<LEVEL_WIDTH$}{id:<width$}  {}", finding.level.name(), finding.text);
            if let Some(remedy) = &finding.remedy {
                let _ = writeln!(text, "{indent}-> {remedy}");
            }
            for line in finding.verifier.iter().filter(|_| is_verbose) {
                let _ = writeln!(text, "{indent}verifier: {line}");
            }
        }
        text.push('\n');
        for purpose in &self.purposes {
            let _ = writeln!(text, "artery {}: {}", purpose.name(), verdict(self.worst(&[*purpose])));
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let command = |purpose: &Purpose| {
            let level = self.worst(&[*purpose]);
            json!({ "command": purpose.name(), "level": level.name() })
        };
        json!({
            "schema_version": 1, "version": crate::report::VERSION,
            "status": self.status(),
            "ports": self.ports,
            "commands": self.purposes.iter().map(command).collect::<Vec<_>>(),
            "findings": self.findings.iter().map(Finding::json).collect::<Vec<_>>(),
        })
    }
}

/// Columns of the level.
const LEVEL_WIDTH: usize = 9;

fn verdict(level: Level) -> &'static str {
    match level {
        Level::Ok => "works here",
        Level::Unknown => "nothing speaks against it, but not all could be seen",
        Level::Slow => "works, but slower than it could, or with less",
        Level::Broken => "can't work here",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(purposes: &[Purpose]) -> Report {
        let findings = vec![
            Finding::ok("kernel", "Linux 6.18"),
            Finding::slow("queues", "1 of 4 queues", "ethtool -L eth0 combined 4").at("eth0"),
            Finding::unknown("bpf-jit", "can't be read", "run as root").needed_by(&[Purpose::Run]),
            Finding::broken("adopt-programs", "refused", "a newer kernel").needed_by(&[Purpose::Adopt]),
        ];
        Report::of(findings, purposes, &["eth0".to_owned()])
    }

    #[test]
    fn the_status_is_that_of_the_worst_finding_that_the_command_needs() {
        assert_eq!(report(&Purpose::ALL).status(), 1);
        assert_eq!(report(&[Purpose::Adopt]).status(), 1);
        assert_eq!(report(&[Purpose::Router]).status(), 3);
        let only = |finding| Report::of(vec![finding], &[Purpose::Run], &[]).status();
        assert_eq!(only(Finding::ok("kernel", "")), 0);
        assert_eq!(only(Finding::unknown("kernel", "", "")), 0, "an unknown finding is not a defect");
        assert_eq!(only(Finding::broken("x", "", "").needed_by(&[Purpose::Up])), 0, "not needed here");
    }

    #[test]
    fn each_finding_is_a_line_with_its_remedy_below() {
        let expected = "\
ok       kernel          Linux 6.18
slow     queues@eth0     1 of 4 queues
                         -> ethtool -L eth0 combined 4
broken   adopt-programs  refused
                         -> a newer kernel

artery adopt: can't work here
";
        assert_eq!(report(&[Purpose::Adopt]).text(false), expected);
        assert!(report(&[Purpose::Router]).text(false).ends_with("or with less\n"));
    }

    #[test]
    fn lines_of_the_verifier_are_shown_to_who_wants_them() {
        let verifier = vec!["R3 unbounded memory access".to_owned()];
        let finding = Finding { verifier, ..Finding::broken("adopt-programs", "refused", "a newer kernel") };
        let report = Report::of(vec![finding], &[Purpose::Adopt], &[]);
        assert!(!report.text(false).contains("unbounded"));
        assert!(report.text(true).contains("verifier: R3 unbounded memory access\n"));
    }

    #[test]
    fn json_has_an_id_a_level_and_a_remedy_for_each() {
        let json = report(&Purpose::ALL).json();
        assert_eq!((&json["schema_version"], &json["status"]), (&1.into(), &1.into()));
        let queues = &json["findings"][1];
        assert_eq!((&queues["id"], &queues["port"]), (&"queues@eth0".into(), &"eth0".into()));
        assert_eq!(queues["level"], "slow");
        assert_eq!(queues["remedy"], "ethtool -L eth0 combined 4");
        assert_eq!(json["commands"][0], json!({ "command": "adopt", "level": "broken" }));
        assert_eq!(json["commands"][2], json!({ "command": "run", "level": "slow" }));
    }
}
