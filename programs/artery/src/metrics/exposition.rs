//! The text format (version 0.0.4): families of samples, each with what it means. Crates for this keep values
//! in a registry, and write OpenMetrics alone; here they are read from the workers when a scraper asks.
use std::fmt::{Display, Write as _};

/// What a family's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Counts that only grow, until the program ends.
    Counter,
    /// Values that rise and fall.
    Gauge,
    /// Counts of samples by upper bounds.
    Histogram,
}

/// Text in the making.
#[derive(Debug, Default)]
pub(crate) struct Exposition(String);

/// The names and values that identify a sample of a family.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Exposition {
    /// Begins a family, whose samples follow.
    pub(crate) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Writes a sample of the family that was begun last.
    pub(crate) fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        self.0 += name;
        for (n, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{}\"", if n == 0 { '{' } else { ',' }, escaped(text));
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// A family of one sample.
    pub(crate) fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// The text so far.
    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

/// The same metrics as OpenMetrics 1.0: a counter's family is named without `_total`, quotes in help are
/// escaped, and a line says where the text ends.
pub(crate) fn to_open_metrics(text: &str) -> String {
    let mut open = String::with_capacity(text.len() + 8);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "TYPE", name, "counter"] => open += &format!("# TYPE {} counter", family_of_counter(name)),
            ["#", "HELP", name, help] => {
                // A family's type follows its help.
                let is_counter = lines.peek().is_some_and(|line| line.ends_with(" counter"));
                let family = if is_counter { family_of_counter(name) } else { name };
                open += &format!("# HELP {family} {}", help.replace('"', "\\\""));
            }
            _ => open += line,
        }
        open.push('\n');
    }
    open + "# EOF\n"
}

fn family_of_counter(name: &str) -> &str {
    name.strip_suffix("_total").unwrap_or(name)
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_quoted_and_escaped() {
        let mut text = Exposition::default();
        text.single("a", Kind::Gauge, "How much.", 1.5);
        text.family("b_total", Kind::Counter, "How many.");
        text.sample("b_total", &[("port", "eth0"), ("what", "a\"\\\nb")], 7);
        let expected = "\
# HELP a How much.
# TYPE a gauge
a 1.5
# HELP b_total How many.
# TYPE b_total counter
b_total{port=\"eth0\",what=\"a\\\"\\\\\\nb\"} 7
";
        assert_eq!(text.into_text(), expected);
    }

    #[test]
    fn open_metrics_name_counters_without_their_suffix_and_end_with_a_line() {
        let mut text = Exposition::default();
        text.single("a", Kind::Gauge, "How \"much\".", 1.5);
        text.single("b_total", Kind::Counter, "How many.", 7);
        let expected = "\
# HELP a How \\\"much\\\".
# TYPE a gauge
a 1.5
# HELP b How many.
# TYPE b counter
b_total 7
# EOF
";
        assert_eq!(to_open_metrics(&text.into_text()), expected);
    }
}
