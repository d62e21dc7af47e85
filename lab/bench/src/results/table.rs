//! Tables that are Markdown and also read well on a terminal.

use std::fmt;

/// On which side the text of a column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

/// A table with a heading; `Display` writes it in Markdown with columns padded to their width.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows, by the titles of its columns; a column whose title ends with a colon is one of
    /// figures, with its text to the right.
    pub fn new<S: AsRef<str>>(titles: impl IntoIterator<Item = S>) -> Table {
        let column = |title: S| match title.as_ref().trim().strip_suffix(':') {
            Some(title) => (cell(title), Align::Right),
            None => (cell(title.as_ref().trim()), Align::Left),
        };
        Table { columns: titles.into_iter().map(column).collect(), rows: Vec::new() }
    }

    /// The same, by all titles with `|` between.
    pub fn headed(titles: &str) -> Table {
        Table::new(titles.split('|'))
    }

    /// Adds a row; missing cells are empty, and there must not be more than columns.
    pub fn row<S: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut row: Vec<String> = cells.into_iter().map(|text| cell(text.as_ref())).collect();
        assert!(
            row.len() <= self.columns.len(),
            "a row of {} cells in {} columns",
            row.len(),
            self.columns.len()
        );
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| &row[column]).chain([&self.columns[column].0]);
            cells.map(|text| text.chars().count()).max().unwrap_or(0).max(3)
        };
        (0..self.columns.len()).map(width).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        let heading: Vec<&String> = self.columns.iter().map(|(name, _)| name).collect();
        let line = |f: &mut fmt::Formatter<'_>, cells: &[&String]| {
            for ((text, width), (_, align)) in cells.iter().zip(&widths).zip(&self.columns) {
                match align {
                    Align::Left => write!(f, "| {text:<width$} ")?,
                    Align::Right => write!(f, "| {text:>width$} ")?,
                }
            }
            writeln!(f, "|")
        };
        line(f, &heading)?;
        for (width, (_, align)) in widths.iter().zip(&self.columns) {
            let end = if *align == Align::Right { ":" } else { "-" };
            write!(f, "|{}{end}", "-".repeat(width + 1))?;
        }
        writeln!(f, "|")?;
        self.rows.iter().try_for_each(|row| line(f, &row.iter().collect::<Vec<_>>()))
    }
}

/// Escapes text for a cell.
fn cell(text: &str) -> String {
    text.replace('|', r"\|").replace('\n', " ")
}

/// A figure as people read it: three significant digits or more, thousands apart.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    let decimals = match value.abs() {
        0.0 => 0,
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text
        .split_once('.')
        .map_or((text.as_str(), String::new()), |(whole, rest)| (whole, format!(".{rest}")));
    let groups: Vec<&str> =
        whole.as_bytes().rchunks(3).rev().filter_map(|g| std::str::from_utf8(g).ok()).collect();
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}{fraction}", groups.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::headed("element | ns:");
        table.row(["Strip", "1.25"]);
        table.row(["a|b"]);
        let wanted = "\
| element |   ns |
|---------|-----:|
| Strip   | 1.25 |
| a\\|b    |      |
";
        assert_eq!(table.to_string(), wanted);
    }

    #[test]
    fn figures_keep_three_digits() {
        let figures = [0.0, 0.7271, 7.271, 72.71, 727.1, 24_000.4, 1_234_567.0, -1500.0, f64::NAN];
        let texts = figures.map(number);
        assert_eq!(texts, ["0", "0.727", "7.27", "72.7", "727", "24,000", "1,234,567", "-1,500", "-"]);
    }
}
