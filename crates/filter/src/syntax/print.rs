//! From rules to text, as `pfctl -n -v` and `pfctl -s rules` print them. What is printed can be read again.
mod address;
mod options;
mod pool;
mod rule;
mod state;

pub use address::{host, ip};
pub use options::option;
pub(crate) use pool::{Purpose, pool};

use super::environment::Names;
use super::lexer::is_plain_word;
use crate::rule::{Action, Rule, Ruleset, TableAddress, TableDefinition};

/// How much is printed.
#[derive(Clone, Copy)]
pub struct Style<'a> {
    /// Names of protocols and services.
    pub names: &'a Names,
    /// Whether rules have their numbers, tables and interfaces how much is in them, and nothing is indented: `-vv`.
    pub is_debugging: bool,
    /// Whether ports have their names: `-P`.
    pub has_port_names: bool,
}

impl<'a> Style<'a> {
    /// The usual style.
    pub fn new(names: &'a Names) -> Style<'a> {
        Style { names, is_debugging: false, has_port_names: false }
    }
}

/// A table's definition, its files before its list; the line has no end.
pub fn table(table: &TableDefinition) -> String {
    let mut line = table_head(&table.name, table.is_const, table.is_persistent, table.has_counters);
    table.files.iter().for_each(|file| line += &format!(" file \"{file}\""));
    if table.has_list {
        line += &table_list(table.addresses.iter());
    }
    line
}

/// The first words of a table's definition.
pub(crate) fn table_head(name: &str, is_const: bool, is_persistent: bool, has_counters: bool) -> String {
    let words = [(is_const, " const"), (is_persistent, " persist"), (has_counters, " counters")];
    let said = words.iter().filter(|(is_said, _)| *is_said).map(|(_, word)| *word);
    format!("table <{}>{}", bare(name), said.collect::<String>())
}

/// The list of a table's addresses.
pub(crate) fn table_list<'a>(addresses: impl Iterator<Item = &'a TableAddress>) -> String {
    let mut text = " {".to_string();
    for one in addresses {
        text += if one.is_negated { " !" } else { " " };
        text += &host(&one.address);
        if one.weight != 0 {
            text += &format!(" weight {}", one.weight);
        }
    }
    text + " }"
}

/// A rule's line, without its end. `number` is its place in its rule set; `indent` how deep it stands in anchors.
pub fn rule(rule: &Rule, number: usize, style: &Style) -> String {
    rule::line(rule, number, style)
}

/// The queues and rules of a rule set, those in anchors' braces within them.
pub fn rules(ruleset: &Ruleset, style: &Style) -> String {
    let mut text: String = ruleset.queues.iter().map(|queue| format!("{queue}\n")).collect();
    append_rules(&mut text, ruleset, style, 0);
    text
}

fn append_rules(text: &mut String, ruleset: &Ruleset, style: &Style, depth: usize) {
    for (number, one) in ruleset.rules.iter().enumerate() {
        indent(text, style, depth);
        *text += &rule(one, number, style);
        let inline = match &one.action {
            Action::Anchor(call) => call.inline.as_deref(),
            _ => None,
        };
        // An anchor that has a name and no rules is just named.
        match inline.filter(|inner| !(inner.rules.is_empty() && is_named(one))) {
            Some(inner) => {
                *text += " {\n";
                append_rules(text, inner, style, depth + 1);
                indent(text, style, depth);
                *text += "}\n";
            }
            None => text.push('\n'),
        }
    }
}

fn is_named(rule: &Rule) -> bool {
    matches!(&rule.action, Action::Anchor(call) if call.name.is_some())
}

fn indent(text: &mut String, style: &Style, depth: usize) {
    if !style.is_debugging {
        *text += &"  ".repeat(depth);
    }
}

/// A name that stands without quotes wherever it can.
pub(crate) fn bare(name: &str) -> String {
    if is_plain_word(name) { name.to_string() } else { quoted(name) }
}

/// A name in quotes; quotes within it are kept from ending it.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\\\""))
}
