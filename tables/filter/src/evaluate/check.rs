//! What can't be loaded, and why: found before anything is changed.
use super::Compiled;
use crate::anchors::{AnchorTarget, Anchors, resolve_calls};
use crate::names::Interfaces;
use crate::rule::{Action, Ruleset, SourceLocation, TableDefinition};
use crate::tables::{OverLimit, Tables};
use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

/// Why a rule set is not taken.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileError {
    /// Where the rule stands, for messages.
    pub place: SourceLocation,
    /// Why it is refused.
    pub reason: CompileErrorKind,
}

/// What is wrong with a rule that is well written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileErrorKind {
    /// The path of its anchor leads above the main rule set.
    #[error("anchor name leads above the main ruleset")]
    AboveMain,
    /// There are more tables, or they hold more addresses, than may be.
    #[error("{0}")]
    Limit(OverLimit),
    /// There are more tags than have numbers.
    #[error("too many tags")]
    Tags,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.place.file, self.place.line, self.reason)
    }
}

impl std::error::Error for CompileError {}

/// Loads rule sets into the anchors of paths (the empty one is the main rule set) with their tables, and
/// compiles all. With errors nothing changes.
pub fn load_rulesets(
    rulesets: Vec<(String, Ruleset)>,
    anchors: &mut Anchors,
    tables: &mut Tables,
    interfaces: &Interfaces,
    now: Duration,
) -> Result<Compiled, Vec<CompileError>> {
    let errors: Vec<_> = rulesets.iter().flat_map(|(path, ruleset)| check_ruleset(path, ruleset)).collect();
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut definitions = Vec::new();
    rulesets.iter().for_each(|(path, ruleset)| add_definitions(path, ruleset, &mut definitions));
    let defined = tables.define_tables(&definitions, interfaces, now);
    defined.map_err(|(place, over)| vec![CompileError { place, reason: CompileErrorKind::Limit(over) }])?;
    // Compiled once, when all are there: tables that only a later rule set speaks of must not go before.
    rulesets.into_iter().for_each(|(path, ruleset)| anchors.load_ruleset(&path, ruleset));
    Ok(Compiled::new(anchors, tables, interfaces))
}

/// Returns the mistakes in a rule set that is to be loaded at a path, and in those in its braces. What this
/// filter does not support is not checked here: see [`find_unsupported`](crate::syntax::find_unsupported).
/// Room for tables is checked for all rule sets of a load together.
pub fn check_ruleset(path: &str, ruleset: &Ruleset) -> Vec<CompileError> {
    let mut errors = Vec::new();
    check_rules(path, ruleset, &mut errors);
    let mut tags = HashSet::new();
    add_tags(ruleset, &mut tags);
    if tags.len() >= usize::from(u16::MAX) {
        errors.push(CompileError { place: first_place(ruleset), reason: CompileErrorKind::Tags });
    }
    errors
}

fn first_place(ruleset: &Ruleset) -> SourceLocation {
    let table = ruleset.tables.first().map(|table| &table.place);
    table.or(ruleset.rules.first().map(|rule| &rule.place)).cloned().unwrap_or_default()
}

fn check_rules(path: &str, ruleset: &Ruleset, errors: &mut Vec<CompileError>) {
    for (rule, called) in ruleset.rules.iter().zip(resolve_calls(path, &ruleset.rules)) {
        let mut error = |reason| errors.push(CompileError { place: rule.place.clone(), reason });
        let Action::Anchor(call) = &rule.action else { continue };
        match (called, &call.inline) {
            (None, _) => error(CompileErrorKind::AboveMain),
            (Some(AnchorTarget::One(path)), Some(inline)) => check_rules(&path, inline, errors),
            _ => (),
        }
    }
}

fn inline_rulesets(ruleset: &Ruleset) -> impl Iterator<Item = &Ruleset> {
    ruleset.rules.iter().filter_map(|rule| match &rule.action {
        Action::Anchor(call) => call.inline.as_deref(),
        _ => None,
    })
}

fn add_tags<'a>(ruleset: &'a Ruleset, tags: &mut HashSet<&'a str>) {
    for rule in &ruleset.rules {
        tags.insert(&rule.tag);
        tags.extend(rule.tagged.iter().map(|(_, tag)| tag.as_str()));
    }
    inline_rulesets(ruleset).for_each(|ruleset| add_tags(ruleset, tags));
}

/// Adds the tables of a rule set and of those in its braces, with the paths of their anchors.
fn add_definitions<'a>(
    path: &str,
    ruleset: &'a Ruleset,
    definitions: &mut Vec<(String, &'a TableDefinition)>,
) {
    definitions.extend(ruleset.tables.iter().map(|table| (path.to_string(), table)));
    for (rule, called) in ruleset.rules.iter().zip(resolve_calls(path, &ruleset.rules)) {
        if let (Action::Anchor(call), Some(AnchorTarget::One(path))) = (&rule.action, called) {
            call.inline.iter().for_each(|inline| add_definitions(&path, inline, definitions));
        }
    }
}
