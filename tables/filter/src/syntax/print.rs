//! From rules to text, as `pfctl -n -v` and `pfctl -s rules` print them. What is printed can be read again.
mod address;
mod options;
mod pool;
mod rule;
mod state;

pub use address::{format_ip, host};
pub use options::option;
pub(crate) use pool::{Purpose, format_pool};

use super::lexer::is_plain_word;
use super::numbered_names::NumberedNames;
use crate::rule::{Action, Rule, Ruleset, SourceLocation, TableAddress, TableDefinition};

/// How many addresses the table of a name has, if there is one.
pub type TableLength<'a> = dyn Fn(&str) -> Option<usize> + 'a;

/// How much is printed.
#[derive(Clone, Copy)]
pub struct Style<'a> {
    /// Names of protocols and services.
    pub names: &'a NumberedNames,
    /// Whether rules have their numbers, tables and interfaces how much is in them, and
    /// nothing is indented: `-vv`.
    pub is_debugging: bool,
    /// Whether ports have their names: `-P`.
    pub has_port_names: bool,
    /// How many addresses a table has, if there is one; without this they are tables that
    /// nothing was put into.
    pub table_length: Option<&'a TableLength<'a>>,
    /// Whether all is said that makes the rules what they are, for filters that read them; pfctl leaves
    /// some of it out.
    pub is_for_reading: bool,
}

impl<'a> Style<'a> {
    /// The default style, as without `-v`.
    pub fn new(names: &'a NumberedNames) -> Style<'a> {
        Style { names, is_debugging: false, has_port_names: false, table_length: None, is_for_reading: false }
    }

    /// The style that loses nothing.
    pub fn for_reading(names: &'a NumberedNames) -> Style<'a> {
        Style { is_for_reading: true, ..Style::new(names) }
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

/// A table's definition as pfctl prints it, which says nothing of weights.
pub(crate) fn echoed_table(table: &TableDefinition) -> String {
    let head = table_head(&table.name, table.is_const, table.is_persistent, table.has_counters);
    head + &echoed_list(table.addresses.iter())
}

/// The list of a table's addresses without weights.
pub(crate) fn echoed_list<'a>(addresses: impl Iterator<Item = &'a TableAddress>) -> String {
    let all: String = addresses.map(|one| format!(" {}", table_address(one))).collect();
    format!(" {{{all} }}")
}

/// An address of a table, without its weight.
pub fn table_address(one: &TableAddress) -> String {
    let sign = if one.is_negated { "!" } else { "" };
    format!("{sign}{}", host(&one.address))
}

/// The first words of a table's definition.
pub(crate) fn table_head(name: &str, is_const: bool, is_persistent: bool, has_counters: bool) -> String {
    let words = [(is_const, " const"), (is_persistent, " persist"), (has_counters, " counters")];
    let said = words.iter().filter(|(is_said, _)| *is_said).map(|(_, word)| *word);
    format!("table <{}>{}", table_name(name), said.collect::<String>())
}

/// The list of a table's addresses.
fn table_list<'a>(addresses: impl Iterator<Item = &'a TableAddress>) -> String {
    let mut text = " {".to_string();
    for one in addresses {
        text += &format!(" {}", table_address(one));
        if one.weight != 0 {
            text += &format!(" weight {}", one.weight);
        }
    }
    text + " }"
}

/// A rule's line, without its end. `number` is its place in its rule set; `indent` how deep
/// it stands in anchors.
pub fn rule(rule: &Rule, number: usize, style: &Style) -> String {
    rule::rule_line(rule, number, style)
}

/// The queues and rules of a rule set, those in anchors' braces within them.
pub fn rules(ruleset: &Ruleset, style: &Style) -> String {
    rule_lines(ruleset, style).into_iter().fold(String::new(), |text, (line, _)| text + &line + "\n")
}

/// The lines of [`rules`], each with the place of what it says, if that has one.
pub fn rule_lines<'r>(ruleset: &'r Ruleset, style: &Style) -> Vec<(String, Option<&'r SourceLocation>)> {
    let mut lines: Vec<_> = ruleset.queues.iter().map(|queue| (queue.to_string(), None)).collect();
    append_rules(&mut lines, ruleset, style, 0);
    lines
}

fn append_rules<'r>(
    lines: &mut Vec<(String, Option<&'r SourceLocation>)>,
    ruleset: &'r Ruleset,
    style: &Style,
    depth: usize,
) {
    for (number, one) in ruleset.rules.iter().enumerate() {
        let place = Some(&one.place);
        let line = indentation(style, depth) + &rule(one, number, style);
        let inline = match &one.action {
            Action::Anchor(call) => call.inline.as_deref(),
            _ => None,
        };
        // An anchor that has a name and no rules is just named.
        let is_just_named =
            |inner: &Ruleset| inner.rules.is_empty() && inner.tables.is_empty() && is_named(one);
        match inline.filter(|inner| !is_just_named(inner)) {
            Some(inner) => {
                lines.push((line + " {", place));
                let tables = inner.tables.iter().filter(|_| style.is_for_reading);
                lines.extend(tables.map(|table| (self::table(table), Some(&table.place))));
                append_rules(lines, inner, style, depth + 1);
                lines.push(("  ".repeat(depth) + "}", place));
            }
            None => lines.push((line, place)),
        }
    }
}

fn is_named(rule: &Rule) -> bool {
    matches!(&rule.action, Action::Anchor(call) if call.name.is_some())
}

fn indentation(style: &Style, depth: usize) -> String {
    if style.is_debugging { String::new() } else { "  ".repeat(depth) }
}

/// A name that stands without quotes wherever it can.
pub(crate) fn quote_if_needed(name: &str) -> String {
    if is_plain_word(name) { name.to_string() } else { quote_name(name) }
}

/// The name of a table, between its signs: digits are a word there.
pub(crate) fn table_name(name: &str) -> String {
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { name.to_string() } else { quote_if_needed(name) }
}

/// Words that are one name, such as a tag.
pub(crate) fn bare_words(name: &str) -> String {
    if name.split(' ').all(is_plain_word) { name.to_string() } else { quote_name(name) }
}

/// A name or the value of a macro in quotes; quotes within it are kept from ending it.
pub(crate) fn quote_name(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\\\""))
}
