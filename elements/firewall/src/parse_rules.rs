//! Reading rules from text, with the anchors that they load from files (pf.conf(5), "load anchor").
use artery_filter::names::Interfaces;
use artery_filter::rule::{Ruleset, SourceLocation};
use artery_filter::syntax::{
    self, Environment, FilterSite, ParsedText, find_unsupported, never_matching, parse, read_anchors,
    without_interface,
};

/// Parses the rules of an anchor's path, the empty one for the main rule set, and those that they load
/// from files. Returns each rule set with its path, and appends warnings, a line each. The error has a
/// line for each mistake.
pub(super) fn parse_rules(
    path: &str,
    name: &str,
    text: &[u8],
    environment: &Environment<'_>,
    site: FilterSite,
    warnings: &mut Vec<String>,
) -> Result<Vec<(String, Ruleset)>, String> {
    let settings = syntax::ParseSettings::default();
    let main = parse(name, text, environment, &settings).map_err(|faults| join_lines(&faults))?;
    let (anchors, faults) = read_anchors(path, &main.ruleset, environment, &settings);
    if !faults.is_empty() {
        return Err(join_lines(&faults));
    }
    let anchors = anchors.into_iter().map(|loaded| (loaded.path, loaded.parsed));
    let all: Vec<_> = std::iter::once((path.to_string(), main)).chain(anchors).collect();
    warnings.extend(all.iter().flat_map(|(_, parsed)| warnings_of(parsed, &environment.interfaces)));
    let all: Vec<_> = all.into_iter().map(|(path, parsed)| (path, parsed.ruleset)).collect();
    let unsupported = all.iter().flat_map(|(_, ruleset)| find_unsupported(ruleset, site));
    let unsupported: Vec<_> = unsupported.map(|(place, what)| not_supported(&place, &what)).collect();
    if unsupported.is_empty() { Ok(all) } else { Err(unsupported.join("\n")) }
}

/// Warnings about valid rules, each once, with its place.
fn warnings_of(parsed: &ParsedText, interfaces: &Interfaces) -> Vec<String> {
    let said = |place: &SourceLocation, why: &str| format!("{}:{}: {why}", place.file, place.line);
    let faults = parsed.warnings.iter().chain(&parsed.ineffective);
    let faults = faults.map(|fault| said(&fault.place, &fault.one_line()));
    let never = never_matching(&parsed.ruleset).into_iter().map(|(place, why)| said(&place, &why));
    let absent =
        without_interface(&parsed.ruleset, interfaces).into_iter().map(|one| said(&one.place, &one.why));
    let mut all: Vec<String> = faults.chain(never).chain(absent).collect();
    all.dedup();
    all
}

fn not_supported(place: &SourceLocation, what: &str) -> String {
    format!("{}:{}: not supported: {what}", place.file, place.line)
}

/// The errors, a line each.
pub(super) fn join_lines<E: ToString>(errors: &[E]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
