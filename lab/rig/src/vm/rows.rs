//! Rows of the matrix as they come out of a machine, and the report of all of them.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::str::FromStr;

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Fail,
    /// It could not be tried.
    Skip,
}

/// A row that was tried, or could not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) verdict: Verdict,
    pub(super) seconds: u64,
    pub(super) why: String,
}

impl Verdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "FAIL",
            Verdict::Skip => "skip",
        }
    }
}

impl FromStr for Verdict {
    type Err = ();

    fn from_str(word: &str) -> Result<Verdict, ()> {
        match word {
            "pass" => Ok(Verdict::Pass),
            "fail" => Ok(Verdict::Fail),
            "skip" => Ok(Verdict::Skip),
            _ => Err(()),
        }
    }
}

impl Row {
    /// A row that could not be tried.
    pub(super) fn skipped(name: String, why: &str) -> Row {
        Row { name, verdict: Verdict::Skip, seconds: 0, why: why.into() }
    }

    /// A row whose result the machine did not report.
    pub(super) fn missing(name: String, why: &str) -> Row {
        Row { name, verdict: Verdict::Fail, seconds: 0, why: why.into() }
    }

    /// In one line, for people.
    pub(super) fn line(&self) -> String {
        format!("{}  {}  ({} s)  {}", self.verdict.word(), self.name, self.seconds, self.why)
    }

    /// Reads what `run_row` of `guest/rows/lib.sh` prints: `row`, name, verdict, seconds
    /// and reason between tabs.
    fn read(line: &str, name_of: impl Fn(&str) -> String) -> Option<Row> {
        let fields: Vec<&str> = line.split('\t').collect();
        let ["row", name, verdict, seconds, why] = fields[..] else { return None };
        let (verdict, seconds) = (verdict.parse().ok()?, seconds.parse().ok()?);
        Some(Row { name: name_of(name), verdict, seconds, why: why.trim().into() })
    }
}

/// Takes what a machine writes, and shows each row as it comes.
pub(super) struct Collector<N, S> {
    name_of: N,
    show: S,
    begun: Vec<u8>,
    pub(super) rows: Vec<Row>,
}

impl<N: Fn(&str) -> String, S: FnMut(&Row) -> io::Result<()>> Collector<N, S> {
    pub(super) fn new(name_of: N, show: S) -> Collector<N, S> {
        Collector { name_of, show, begun: vec![], rows: vec![] }
    }
}

impl<N: Fn(&str) -> String, S: FnMut(&Row) -> io::Result<()>> Write for Collector<N, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend(bytes);
        while let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]).into_owned();
            if let Some(row) = Row::read(&line, &self.name_of) {
                (self.show)(&row)?;
                self.rows.push(row);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How many rows came out in which way.
pub(super) fn totals(rows: &[Row]) -> String {
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let [passed, failed, skipped] = [Verdict::Pass, Verdict::Fail, Verdict::Skip].map(count);
    format!("{} rows: {passed} passed, {failed} failed, {skipped} skipped", rows.len())
}

/// The report as Markdown, with what failed rows said at its end.
pub(super) fn report(heading: &str, rows: &[Row], details: &str) -> String {
    let mut text = format!("# Virtual machines\n\n{heading}\n\n{}\n\n", totals(rows));
    text += "| row | | s | why |\n|---|---|---|---|\n";
    for row in rows {
        let why = row.why.replace('|', "\\|");
        // Writing to a string does not fail.
        let _ = writeln!(text, "| {} | {} | {} | {why} |", row.name, row.verdict.word(), row.seconds);
    }
    if !details.trim().is_empty() {
        let _ = write!(text, "\n## What failed rows said\n\n```\n{}\n```\n", details.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(row: &str) -> String {
        format!("6.1/{row}")
    }

    #[test]
    fn rows_are_collected_from_pieces_and_other_lines_are_not() {
        let mut shown = 0;
        let count = |_: &Row| {
            shown += 1;
            Ok(())
        };
        let mut collector = Collector::new(name, count);
        for piece in
            ["hello\nrow\tadopt\tpa", "ss\t12\tall \n", "row\tup\tfail\t3\tbroken\nrow\tx\tnonsense\t1\t\n"]
        {
            collector.write_all(piece.as_bytes()).unwrap();
        }
        let [first, second] = &collector.rows[..] else { panic!("{:?}", collector.rows) };
        assert_eq!(first.line(), "pass  6.1/adopt  (12 s)  all");
        assert_eq!((second.verdict, second.why.as_str()), (Verdict::Fail, "broken"));
        assert_eq!(shown, 2);
    }

    #[test]
    fn a_report_counts_and_shows_every_row() {
        let rows = [Row::skipped(name("a"), "no kernel"), Row::missing(name("b"), "it | ended")];
        let report = report("Here", &rows, "said\n");
        assert!(report.contains("2 rows: 0 passed, 1 failed, 1 skipped"), "{report}");
        assert!(report.contains("| 6.1/a | skip | 0 | no kernel |"), "{report}");
        assert!(report.contains(r"| 6.1/b | FAIL | 0 | it \| ended |"), "{report}");
        assert!(report.ends_with("```\nsaid\n```\n"), "{report}");
    }
}
