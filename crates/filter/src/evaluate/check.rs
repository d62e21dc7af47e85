//! What can't be loaded, and why: found before anything is changed.
use super::Compiled;
use crate::anchors::{Anchors, Called, calls};
use crate::names::Interfaces;
use crate::options::Limit;
use crate::rule::{Action, Place, Ruleset};
use crate::tables::{OverLimit, Tables};
use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

/// Why a rule set is not taken.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileError {
    /// Where.
    pub place: Place,
    /// Why.
    pub reason: Reason,
}

/// What is wrong with a rule that is well written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The name of its anchor leads above the main rule set.
    AboveMain,
    /// There are more tables, or they hold more addresses, than may be.
    Limit(OverLimit),
    /// There are more tags than have numbers.
    Tags,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.place.file, self.place.line)?;
        match self.reason {
            Reason::AboveMain => f.write_str("anchor name leads above the main ruleset"),
            Reason::Limit(over) => over.fmt(f),
            Reason::Tags => f.write_str("too many tags"),
        }
    }
}

impl std::error::Error for CompileError {}

/// Loads a rule set into the anchor of a path (the empty one is the main rule set) with its tables, and compiles all. With
/// errors nothing changes.
pub fn load(
    (path, ruleset): (&str, Ruleset),
    anchors: &mut Anchors,
    tables: &mut Tables,
    interfaces: &Interfaces,
    now: Duration,
) -> Result<Compiled, Vec<CompileError>> {
    let errors = check(path, &ruleset, tables.most_entries);
    if !errors.is_empty() {
        return Err(errors);
    }
    if let Err(error) = define(path, &ruleset, tables, interfaces, now) {
        tables.renew_indexes(); // the rules that stay go on with tables that are defined anew
        return Err(vec![error]);
    }
    anchors.load(path, ruleset);
    Ok(Compiled::new(anchors, tables, interfaces))
}

/// Says what is wrong with a rule set that is to be loaded at a path, and with those in its braces. What nothing here does is
/// not asked for any more: [`unsupported`](crate::syntax::unsupported) says that.
pub fn check(path: &str, ruleset: &Ruleset, most_entries: usize) -> Vec<CompileError> {
    let mut errors = Vec::new();
    check_rules(path, ruleset, &mut errors);
    let (mut entries, mut tags) = (0, HashSet::new());
    count(ruleset, &mut entries, &mut tags);
    let mut all = |reason| errors.push(CompileError { place: first_place(ruleset), reason });
    if entries > most_entries {
        let limit = Limit::TableEntries;
        all(Reason::Limit(OverLimit { limit, most: most_entries, wanted: entries }));
    }
    if tags.len() >= usize::from(u16::MAX) {
        all(Reason::Tags);
    }
    errors
}

fn first_place(ruleset: &Ruleset) -> Place {
    let table = ruleset.tables.first().map(|table| &table.place);
    table.or(ruleset.rules.first().map(|rule| &rule.place)).cloned().unwrap_or_default()
}

fn check_rules(path: &str, ruleset: &Ruleset, errors: &mut Vec<CompileError>) {
    for (rule, called) in ruleset.rules.iter().zip(calls(path, &ruleset.rules)) {
        let mut error = |reason| errors.push(CompileError { place: rule.place.clone(), reason });
        let Action::Anchor(call) = &rule.action else { continue };
        match (called, &call.inline) {
            (None, _) => error(Reason::AboveMain),
            (Some(Called::One(path)), Some(inline)) => check_rules(&path, inline, errors),
            _ => (),
        }
    }
}

fn inline(ruleset: &Ruleset) -> impl Iterator<Item = &Ruleset> {
    ruleset.rules.iter().filter_map(|rule| match &rule.action {
        Action::Anchor(call) => call.inline.as_deref(),
        _ => None,
    })
}

fn count<'a>(ruleset: &'a Ruleset, entries: &mut usize, tags: &mut HashSet<&'a str>) {
    *entries += ruleset.tables.iter().map(|table| table.addresses.len()).sum::<usize>();
    for rule in &ruleset.rules {
        tags.insert(&rule.tag);
        tags.extend(rule.tagged.iter().map(|(_, tag)| tag.as_str()));
    }
    inline(ruleset).for_each(|ruleset| count(ruleset, entries, tags));
}

/// Makes the tables of a rule set and of those in its braces; the error is where it failed.
fn define(
    path: &str,
    ruleset: &Ruleset,
    tables: &mut Tables,
    interfaces: &Interfaces,
    now: Duration,
) -> Result<(), CompileError> {
    for table in &ruleset.tables {
        let error = |over| CompileError { place: table.place.clone(), reason: Reason::Limit(over) };
        tables.define(path, table, interfaces, now).map_err(error)?;
    }
    for (rule, called) in ruleset.rules.iter().zip(calls(path, &ruleset.rules)) {
        if let (Action::Anchor(call), Some(Called::One(path))) = (&rule.action, called) {
            call.inline.iter().try_for_each(|inline| define(&path, inline, tables, interfaces, now))?;
        }
    }
    Ok(())
}
