//! Rules in files: `-f`.
use super::{PfctlOptions, input};
use crate::output::print_stderr;
use artery_filter::names::Interfaces;
use artery_filter::options::SetOption;
use artery_filter::rule::{Ruleset, SourceLocation, TableDefinition};
use artery_filter::syntax::print::{self as text, Style};
use artery_filter::syntax::{
    Environment, FilterSite, LoadedFile, ParseSettings, ParsedText, find_unsupported, never_matching,
    parse_lenient, read_anchors, without_interface,
};
use std::collections::HashSet;

/// Rules that were read, with those that go into anchors.
pub(super) struct RulesFile {
    /// The rules of the file, for the main rule set or for the anchor of `-a`.
    pub(super) main: ParsedText,
    /// What its files have for anchors.
    pub(super) anchors: Vec<LoadedFile>,
}

impl RulesFile {
    fn rulesets(&self) -> impl Iterator<Item = &Ruleset> {
        let others = self.anchors.iter().map(|anchor| &anchor.parsed);
        std::iter::once(&self.main).chain(others).map(|parsed| &parsed.ruleset)
    }

    /// Whether packets of a rule are to be logged.
    pub(super) fn has_log(&self) -> bool {
        self.rulesets().any(logs)
    }

    /// Prints warnings. Unless the rules are loaded now, also names rules that never match, and valid rules
    /// that no filter would load; those for other interfaces than the filters' where these are given.
    fn warn(&self, is_loaded: bool, of_filters: Option<&Interfaces>) {
        let most = FilterSite::Router { knows_routes: true };
        let all = std::iter::once(&self.main).chain(self.anchors.iter().map(|anchor| &anchor.parsed));
        let odd = all.flat_map(|parsed| &parsed.warnings).map(|odd| (odd.place.clone(), odd.one_line()));
        // Where rules are loaded, the filter itself says which of them never match.
        let never = self.rulesets().filter(|_| !is_loaded).flat_map(never_matching);
        let absent = of_filters.filter(|_| !is_loaded).into_iter().flat_map(|known| {
            self.rulesets().flat_map(|rules| without_interface(rules, known)).map(|one| (one.place, one.why))
        });
        let refused = self.rulesets().filter(|_| !is_loaded).flat_map(|rules| find_unsupported(rules, most));
        let say = |what| format!("not supported, so that no filter will load it: {what}");
        let refused = refused.map(|(place, what)| (place, say(what)));
        // A rule may have become several.
        let mut told = HashSet::new();
        for (SourceLocation { file, line }, what) in odd.chain(never).chain(absent).chain(refused) {
            let place = if line == 0 { String::new() } else { format!("{file}:{line}: ") };
            let warning = format!("{place}warning: {what}\n");
            if told.insert(warning.clone()) {
                print_stderr(&warning);
            }
        }
    }
}

/// Whether packets of a rule are to be logged.
pub(crate) fn logs(ruleset: &Ruleset) -> bool {
    ruleset.has_rule(&|rule| rule.log.is_some())
}

/// Reads rules and prints what is asked for; None if there are mistakes, which it has printed.
/// `knows_filters` says whether the interfaces are those of running filters.
pub(super) fn load(
    options: &PfctlOptions,
    file: &str,
    environment: &Environment,
    knows_filters: bool,
) -> anyhow::Result<Option<RulesFile>> {
    let settings = ParseSettings { macros: options.macros.clone() };
    let (name, text) = input::read(file)?;
    let (main, faults) = parse_lenient(&name, &text, environment, &settings);
    if !faults.is_empty() {
        faults.iter().for_each(|fault| print_stderr(&format!("{fault}\n")));
        let echoed: String = main.echoed.iter().map(|line| format!("{line}\n")).collect();
        options.output.print(&echoed)?;
        if !options.parse_only {
            print_stderr("pfctl: Syntax error in config file: pf rules not loaded\n");
        }
        return Ok(None);
    }
    options.output.print(&main.to_text(&options.output.style(environment)))?;
    let path = options.anchor.as_deref().unwrap_or_default();
    let (anchors, faults) = read_anchors(path, &main.ruleset, environment, &settings);
    for anchor in &anchors {
        if options.output.verbose > 0 {
            print_stderr(&format!("\nLoading anchor {} from {}\n", anchor.path, anchor.file));
        }
        options.output.print(&anchor.parsed.to_text(&options.output.style(environment)))?;
    }
    if !faults.is_empty() {
        faults.iter().for_each(|fault| print_stderr(&format!("{fault}\n")));
        print_stderr("pfctl: load anchors\n");
        return Ok(None);
    }
    let rules = RulesFile { main, anchors };
    rules.warn(!options.parse_only, knows_filters.then_some(&environment.interfaces));
    Ok(Some(rules))
}

/// The lines of rules for a filter, each with the place that it comes from. Files of tables are read here,
/// where their names are valid; each rule itself says what its states are bound to.
pub(super) fn for_filter<'r>(
    parsed: &'r ParsedText,
    style: &Style<'_>,
) -> Vec<(String, Option<&'r SourceLocation>)> {
    let ruleset = &parsed.ruleset;
    let options = ruleset.options.iter().filter(|line| !matches!(line.option, SetOption::StatePolicy(_)));
    let options = options.filter_map(|line| Some((text::option(&line.option)?, Some(&line.place))));
    let tables = ruleset.tables.iter().map(|table| {
        let has_list = table.has_list || !table.files.is_empty();
        let read = TableDefinition { files: Vec::new(), has_list, ..table.clone() };
        (text::table(&read), Some(&table.place))
    });
    options.chain(tables).chain(text::rule_lines(ruleset, style)).collect()
}
