//! The language of pf.conf(5): text to rules, and rules to text.
//!
//! Parsing goes on after a mistake, so that all are reported at once, each with its file and line. Lists are
//! expanded while parsing: each resulting rule has one value in each place. Printing gives what `pfctl -n -v`
//! prints, which parses to the same rules again.
mod absent;
mod consistency;
mod endpoints;
mod environment;
mod expand;
pub(crate) mod hosts;
mod label;
mod lexer;
mod loads;
mod numbered_names;
mod numbers;
mod older;
mod openbsd_names;
mod parser;
mod pools;
pub mod print;
mod queues;
mod rule_options;
mod rule_pools;
mod rules;
mod settings;
mod state_options;
mod table_lines;
mod unsupported;
mod words;

pub use absent::{Ineffective, without_interface};
pub use environment::{Environment, FindHost, ReadFile, file_in};
pub use loads::{LoadedFile, read_anchors};
pub use numbered_names::NumberedNames;
pub use settings::DEBUG_LEVELS;
pub use table_lines::addresses_of;
pub use unsupported::{FilterSite, find_unsupported, never_matching};

use crate::rule::{Ruleset, SourceLocation};
use parser::Parser;
use print::Style;
use std::fmt;

/// How a text is read, beside what it says itself.
#[derive(Clone, Debug, Default)]
pub struct ParseSettings {
    /// Macros that the text can't change, with their values.
    pub macros: Vec<(String, String)>,
}

/// What a text says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedText {
    /// Its rules, tables and options.
    pub ruleset: Ruleset,
    /// Macros, options and tables in their order, as they are echoed.
    pub echoed: Vec<String>,
    /// Warnings about what is unusual and yet accepted.
    pub warnings: Vec<SyntaxError>,
    /// Statements that make no rule, as the interface that they are for is not there or has no address.
    pub ineffective: Vec<SyntaxError>,
    /// The lines of statements with mistakes, in the order in which they end.
    pub broken: Vec<BrokenLines>,
}

/// The lines of a statement with a mistake, all of which mean nothing. Of an anchor it is the first line
/// alone: those in its braces are statements of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenLines {
    /// The file's name; `stdin` for standard input.
    pub file: std::sync::Arc<str>,
    /// The first line, from 1.
    pub first: u32,
    /// The last line, from 1, included.
    pub last: u32,
}

impl ParsedText {
    /// All of it as `pfctl -n -v` prints it.
    pub fn to_text(&self, style: &Style) -> String {
        let echoed: String = self.echoed.iter().map(|line| format!("{line}\n")).collect();
        echoed + &print::rules(&self.ruleset, style)
    }
}

/// A mistake in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Where it is; nowhere if it goes with the one behind it.
    pub place: SourceLocation,
    /// What is wrong: a line in the words of pfctl; lines behind it say more, or what helps.
    pub message: String,
}

impl SyntaxError {
    /// What is wrong, in one line.
    pub fn one_line(&self) -> String {
        self.message.replace('\n', ": ")
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Programs compare the first line with that of pfctl, so that nothing of ours stands in it.
        let message = self.message.replace('\n', "\n    ");
        match self.place.line {
            0 => f.write_str(&message),
            line => write!(f, "{}:{line}: {message}", self.place.file),
        }
    }
}

/// Reads a text whose file is called `name`; all its mistakes if it has any.
pub fn parse(
    name: &str,
    text: &[u8],
    environment: &Environment,
    settings: &ParseSettings,
) -> Result<ParsedText, Vec<SyntaxError>> {
    let (parsed, faults) = parse_lenient(name, text, environment, settings);
    if faults.is_empty() { Ok(parsed) } else { Err(faults) }
}

/// Reads a text as far as it can be read: what was understood, and all mistakes.
pub fn parse_lenient(
    name: &str,
    text: &[u8],
    environment: &Environment,
    settings: &ParseSettings,
) -> (ParsedText, Vec<SyntaxError>) {
    let mut parser = Parser::new(name, text, environment, settings);
    parser.parse_all();
    let mut ruleset = std::mem::take(&mut parser.ruleset);
    match queues::queue_lines(&parser.queues) {
        Ok(lines) => ruleset.queues = lines,
        // How queues belong together is looked at where nothing else is wrong.
        Err(why) if parser.faults.is_empty() => parser.report_unplaced(format!("pfctl: {why}")),
        Err(_) => (),
    }
    let Parser { echoed, warnings, ineffective, broken, faults, .. } = parser;
    (ParsedText { ruleset, echoed, warnings, ineffective, broken }, faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_helps_stands_below_what_is_wrong_or_behind_it_in_one_line() {
        let fault = |line| SyntaxError {
            place: SourceLocation { file: "pf.conf".into(), line },
            message: "unknown port sssh\nit has no number\nwrite one".into(),
        };
        let below = "unknown port sssh\n    it has no number\n    write one";
        assert_eq!(fault(7).to_string(), format!("pf.conf:7: {below}"));
        assert_eq!(fault(0).to_string(), below);
        assert_eq!(fault(7).one_line(), "unknown port sssh: it has no number: write one");
    }
}
