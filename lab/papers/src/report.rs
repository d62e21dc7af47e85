//! One report of several experiments: what holds of each source, what is missing, and then all in full.

use super::Experiment;
use artery_bench::results::{Finding, Table, Verdict};
use artery_rig::machine::Machine;
use std::time::Duration;

pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) is_quick: bool,
    /// Why nothing could be measured between namespaces, if so.
    pub(super) without_rig: Option<String>,
    pub(super) parts: Vec<Part>,
}

pub(super) struct Part {
    pub(super) experiment: Experiment,
    pub(super) took: Duration,
    pub(super) outcome: Outcome,
}

/// What became of it.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It came to its end.
    Done {
        /// Its own report, as Markdown.
        text: String,
        verdicts: Vec<Verdict>,
        /// Names of files with its charts.
        charts: Vec<String>,
    },
    /// It failed; the text gives the exit status or error.
    Failed(String),
}

impl Part {
    fn verdicts(&self) -> &[Verdict] {
        match &self.outcome {
            Outcome::Done { verdicts, .. } => verdicts,
            Outcome::Failed(_) => &[],
        }
    }

    fn count(&self, finding: Finding) -> usize {
        self.verdicts().iter().filter(|verdict| verdict.finding == finding).count()
    }
}

impl Report {
    pub(super) fn markdown(&self) -> String {
        let mut text = self.summary();
        for Part { experiment, outcome, .. } in &self.parts {
            let Outcome::Done { text: own, charts, .. } = outcome else { continue };
            text += &format!("\n---\n\n{}", one_lower(own));
            charts
                .iter()
                .for_each(|chart| text += &format!("\n![{} of {}]({chart})\n", chart, experiment.name));
        }
        text
    }

    /// Its beginning: what holds, and what is missing.
    pub(super) fn summary(&self) -> String {
        let manner =
            if self.is_quick { "Quick runs: fewer and shorter than the figures deserve. " } else { "" };
        let busy = if self.machine.is_busy() {
            "The machine was shared with others: times say little. "
        } else {
            ""
        };
        let mut text = format!("# The five published experiments\n\n{}.\n\n", self.machine);
        if !manner.is_empty() || !busy.is_empty() {
            text += &format!("{}\n\n", format!("{manner}{busy}").trim_end());
        }
        text + &format!("{}{}{}", self.overview(), self.missing(), self.claims())
    }

    /// The experiments that failed, in a sentence.
    pub(super) fn failure(&self) -> Option<String> {
        let failed = self.parts.iter().filter_map(|part| match &part.outcome {
            Outcome::Failed(how) => Some(format!("{} failed ({how})", part.experiment.name)),
            Outcome::Done { .. } => None,
        });
        let failed: Vec<String> = failed.collect();
        (!failed.is_empty()).then(|| format!("{}; what it said is above", failed.join(", ")))
    }

    fn overview(&self) -> String {
        let mut table = Table::headed(
            "experiment | of | about | claims that hold: | that don't: | not measured: | minutes:",
        );
        for part in &self.parts {
            let Experiment { name, when, what } = part.experiment;
            let count = |finding| match part.outcome {
                Outcome::Done { .. } => part.count(finding).to_string(),
                Outcome::Failed(_) => "failed".to_string(),
            };
            table.row([
                name.to_string(),
                when.to_string(),
                what.to_string(),
                count(Finding::Holds),
                count(Finding::DoesNotHold),
                count(Finding::NotMeasured),
                format!("{:.1}", part.took.as_secs_f64() / 60.0),
            ]);
        }
        table.to_string()
    }

    fn missing(&self) -> String {
        let mut missing: Vec<String> = self.failure().into_iter().collect();
        missing.extend(
            self.without_rig.as_ref().map(|why| format!("everything between network namespaces: {why}")),
        );
        for part in &self.parts {
            let unknown = part.verdicts().iter().filter(|verdict| verdict.finding == Finding::NotMeasured);
            missing.extend(unknown.map(|v| format!("{}, \"{}\": {}", part.experiment.name, v.claim, v.why)));
        }
        if missing.is_empty() {
            return "\nNothing is missing.\n".to_string();
        }
        let lines: String = missing.iter().map(|line| format!("- {line}\n")).collect();
        format!("\n## What is missing\n\n{lines}")
    }

    fn claims(&self) -> String {
        let mut text = String::from("\n## Every claim\n\n");
        for part in &self.parts {
            for Verdict { claim, finding, why } in part.verdicts() {
                text += &format!("- {}, {claim}: **{finding}**; {why}\n", part.experiment.name);
            }
        }
        text
    }
}

/// Headings of a text in Markdown, one level lower; lines of code are left alone.
fn one_lower(text: &str) -> String {
    let mut is_code = false;
    let mut lowered = String::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        let mark = if line.starts_with('#') && !is_code { "#" } else { "" };
        lowered += &format!("{mark}{line}\n");
    }
    lowered
}

#[cfg(test)]
mod tests {
    use super::super::EXPERIMENTS;
    use super::*;

    fn report() -> Report {
        let verdicts = vec![
            Verdict::new("it is fast", true, "2.0 times"),
            Verdict::new("it is small", false, "30 MB"),
            Verdict::new("it is green", Finding::NotMeasured, "not looked at"),
        ];
        let text = "# art2016\n\n## Part\n\n```\n# no heading\n```\n".to_string();
        let done = Outcome::Done { text, verdicts, charts: vec!["art2016-a.svg".into()] };
        let took = Duration::from_secs(90);
        let parts = vec![
            Part { experiment: EXPERIMENTS[0], took, outcome: done },
            Part { experiment: EXPERIMENTS[1], took, outcome: Outcome::Failed("exit status: 1".into()) },
        ];
        Report {
            machine: Machine::here(),
            is_quick: true,
            without_rig: Some("we are not root".into()),
            parts,
        }
    }

    #[test]
    fn claims_are_counted_and_what_is_missing_is_said() {
        let summary = report().summary();
        let row = summary.lines().find(|line| line.starts_with("| art2016 ")).unwrap();
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells[4..8], ["1", "1", "1", "1.5"]);
        for line in [
            "- veb2021 failed (exit status: 1); what it said is above",
            "- everything between network namespaces: we are not root",
            "- art2016, \"it is green\": not looked at",
        ] {
            assert!(summary.lines().any(|found| found == line), "{line} in {summary}");
        }
        assert_eq!(report().failure().unwrap(), "veb2021 failed (exit status: 1); what it said is above");
    }

    #[test]
    fn reports_of_experiments_follow_with_their_charts_one_level_lower() {
        let markdown = report().markdown();
        let own = markdown.split_once("---\n\n## art2016\n").unwrap().1;
        assert_eq!(
            own,
            "\n### Part\n\n```\n# no heading\n```\n\n![art2016-a.svg of art2016](art2016-a.svg)\n"
        );
    }

    #[test]
    fn where_all_is_there_nothing_is_missing() {
        let complete = Report { without_rig: None, parts: Vec::new(), ..report() };
        assert!(complete.summary().contains("\nNothing is missing.\n"));
        assert_eq!(complete.failure(), None);
    }
}
