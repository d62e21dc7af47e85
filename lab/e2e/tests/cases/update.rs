//! Updated expectations: what came out of both sides takes the place of the lines `out` of a file.

use super::compare::beyond;
use super::text::{CaseFile, Counter, Round, Who};
use std::ops::Range;

/// Lines of a file that are to be replaced.
#[derive(Default)]
pub(super) struct Update {
    /// Lines counted from 0, and what takes their place.
    changes: Vec<(Range<usize>, Vec<String>)>,
}

impl Update {
    /// Notes what came out in a round: what both sent first, then what one alone did.
    pub(super) fn round(&mut self, round: &Round, came: &[(Who, Vec<String>)]) {
        let (_, artery) = &came[0];
        let kernel = came.get(1).map_or(artery, |(_, lines)| lines);
        let only_artery = beyond(artery, kernel);
        let both = beyond(artery, &only_artery);
        let with = |who: Who, lines: Vec<String>| {
            lines.into_iter().map(move |line| format!("    {}{line}", who.prefix()))
        };
        let lines = with(Who::Both, both)
            .chain(with(Who::Artery, only_artery))
            .chain(with(Who::Kernel, beyond(kernel, artery)));
        self.changes.push((round.output_lines.clone(), lines.collect()));
    }

    /// Notes by how much a counter grew.
    pub(super) fn counter(&mut self, counter: &Counter, growth: u64) {
        let line = format!("    counter: {} +{growth}", counter.name);
        self.changes.push((counter.line - 1..counter.line, vec![line]));
    }

    /// Writes the file, if something in it is other than it was.
    pub(super) fn write(mut self, file: &CaseFile) {
        let mut lines = file.lines.clone();
        // From the end, so that the numbers of earlier lines stay: a counter before outputs that begin there.
        self.changes.sort_by_key(|(range, _)| std::cmp::Reverse((range.start, range.end)));
        for (range, new) in self.changes {
            let kept = lines[range.clone()].iter().filter(|line| is_kept(line)).cloned();
            let new: Vec<String> = kept.chain(new).collect();
            lines.splice(range, new);
        }
        if lines != file.lines {
            std::fs::write(&file.path, lines.join("\n") + "\n")
                .unwrap_or_else(|error| panic!("{}: {error}", file.path.display()));
        }
    }
}

/// Whether a line between outputs is none, such as a comment.
fn is_kept(line: &str) -> bool {
    let first = line.trim_start();
    !["out ", "artery out ", "kernel out "].iter().any(|word| first.starts_with(word))
}
