//! Checks the statements of a file of rules, for all commands that start a packet filter with it.
use super::hostname::{Line, lines};
use super::verdict::{Judged, Place, Verdict};
use crate::pfctl::logs;
use artery_filter::anchors::Anchors;
use artery_filter::evaluate::load_rulesets;
use artery_filter::names::{InterfaceAddress, InterfaceRecord, Interfaces};
use artery_filter::options::Limit;
use artery_filter::rule::SourceLocation as RulePlace;
use artery_filter::syntax::{
    Environment, FilterSite, NumberedNames, ParseSettings, ParsedText, SyntaxError, find_unsupported,
    never_matching, parse_lenient, read_anchors, without_interface,
};
use artery_filter::tables::Tables;
use artery_rcu::Domain;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs as _};
use std::time::Duration;

/// The default file for packets that rules log: that of pflogd(8).
pub(crate) const PFLOG: &str = "/var/log/pflog";
/// The default limit of that file's length.
pub(crate) const USUAL_LOG_MAX: &str = "1G";

/// The environment and the filter's site that rules are checked for.
pub(crate) struct Surroundings<'e> {
    /// The interfaces and files that they can refer to.
    pub(crate) environment: Environment<'e>,
    pub(crate) site: FilterSite,
    /// Whether rules that never apply are taken with a warning; otherwise they are refused.
    pub(crate) is_lenient: bool,
}

/// A file of rules, checked.
pub(crate) struct JudgedRules {
    /// By line; mistakes before all lines, or in other files, come last.
    pub(crate) statements: Vec<Judged>,
    /// Whether packets of a rule are to be logged.
    pub(crate) has_log: bool,
}

/// Checks the text of a file.
pub(crate) fn judge_rules(file: &str, text: &str, surroundings: &Surroundings<'_>) -> JudgedRules {
    let mut found = Findings::of(surroundings, (file, text));
    let mut judged = Vec::new();
    for statement in statements(&lines(text), &found.broken) {
        let verdict = found.statement_verdict(file, &statement);
        let place = Place { file: file.to_string(), line: statement.line };
        judged.push(Judged { place, text: statement.text, verdict });
    }
    // What stands in front of all lines, or in other files.
    let others =
        [(found.wrong, Verdict::Refused as fn(String) -> Verdict), (found.warnings, Verdict::Approximated)];
    for (rest, verdict) in others {
        for ((file, line), why) in rest {
            let place = Place { file, line };
            judged.push(Judged { place, text: "(the file)".to_string(), verdict: verdict(why) });
        }
    }
    JudgedRules { statements: judged, has_log: found.has_log }
}

/// What rules can refer to: these interfaces and the loopback, and files that `read_file` reads.
pub(crate) fn rules_environment<'e>(
    interfaces: impl IntoIterator<Item = InterfaceRecord>,
    read_file: impl Fn(&str) -> std::io::Result<Vec<u8>> + 'e,
) -> Environment<'e> {
    let loopback = [(Ipv4Addr::LOCALHOST.into(), 8), (Ipv6Addr::LOCALHOST.into(), 128)];
    let mut records = vec![InterfaceRecord { is_loopback: true, ..interface_record("lo0", &loopback) }];
    records.extend(interfaces);
    Environment {
        interfaces: Interfaces(records),
        names: NumberedNames::of_machine(),
        read_file: Box::new(move |name| {
            read_file(name).map_err(|error| artery_device::system_message(&error))
        }),
        find_host: Box::new(|name| {
            (name, 0).to_socket_addrs().map(|found| found.map(|one| one.ip()).collect()).unwrap_or_default()
        }),
    }
}

/// An interface that rules can name, in the group of all.
pub(crate) fn interface_record(name: &str, addresses: &[(IpAddr, u8)]) -> InterfaceRecord {
    let own = |(address, length): &(IpAddr, u8)| InterfaceAddress {
        address: *address,
        length: *length,
        peer: None,
    };
    InterfaceRecord {
        name: name.to_string(),
        groups: vec!["all".into()],
        addresses: addresses.iter().map(own).collect(),
        ..InterfaceRecord::default()
    }
}

/// Lines that are checked together.
struct Statement {
    line: usize,
    /// The first line behind it.
    next: usize,
    text: String,
}

/// The lines of a file; those of a statement with a mistake are one.
fn statements(lines: &[Line], broken: &[(usize, usize)]) -> Vec<Statement> {
    let mut all: Vec<Statement> = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        let next = lines.get(n + 1).map_or(usize::MAX, |next| next.number);
        let is_within = |first: usize| {
            broken.iter().any(|(from, to)| (first..line.number).contains(from) && line.number <= *to)
        };
        match all.last_mut().filter(|before| is_within(before.line)) {
            Some(before) => {
                before.text += &format!(" {}", line.text);
                before.next = next;
            }
            None => all.push(Statement { line: line.number, next, text: line.text.clone() }),
        }
    }
    all
}

/// Mistakes and warnings, by file and line.
type Wrong = BTreeMap<(String, usize), String>;

/// Findings about rules and about those of the anchors that they load.
struct Findings {
    /// Why lines are refused.
    wrong: Wrong,
    /// Why lines are only approximated.
    warnings: Wrong,
    /// The first and the last line of each statement of the file that can't be read.
    broken: Vec<(usize, usize)>,
    /// The first line that a mistake keeps from being loaded, and where the mistake is.
    not_loaded: Option<(usize, String)>,
    has_log: bool,
}

impl Findings {
    fn of(surroundings: &Surroundings<'_>, (file, text): (&str, &str)) -> Findings {
        let Surroundings { environment, site, is_lenient } = surroundings;
        let settings = ParseSettings::default();
        let (main, mut faults) = parse_lenient(file, text.as_bytes(), environment, &settings);
        let (anchors, more) = read_anchors("", &main.ruleset, environment, &settings);
        faults.extend(more);
        let line_here = |place: &RulePlace| (&*place.file == file).then_some(place.line as usize);
        let in_file = main.broken.iter().filter(|lines| &*lines.file == file);
        let broken: Vec<_> = in_file.map(|lines| (lines.first as usize, lines.last as usize)).collect();
        let mistakes = faults.iter().filter_map(|fault| line_here(&fault.place));
        let here = mistakes.chain(broken.iter().map(|(first, _)| *first)).min();
        // Which line leads to another file is not known: what that has spoils all of them.
        let is_elsewhere = |fault: &&SyntaxError| fault.place.line != 0 && line_here(&fault.place).is_none();
        let elsewhere = faults.iter().find(is_elsewhere).map(|fault| &fault.place);
        let not_loaded = elsewhere.map(|place| (1, format!("{}:{}", place.file, place.line)));
        let not_loaded = not_loaded.or(here.map(|line| (line + 1, format!("line {line}"))));
        let all: Vec<ParsedText> =
            std::iter::once(main).chain(anchors.into_iter().map(|one| one.parsed)).collect();
        let (refused, taken) = ineffective(&all, &environment.interfaces, *is_lenient);
        let unsupported = all.iter().flat_map(|one| find_unsupported(&one.ruleset, *site));
        let unsupported = unsupported.map(|(place, what)| (place, format!("not supported: {what}")));
        let warnings = all.iter().flat_map(|one| &one.warnings).map(placed);
        let never = all.iter().flat_map(|one| never_matching(&one.ruleset));
        let refusals: Vec<_> = faults.iter().map(placed).chain(unsupported).chain(refused).collect();
        // Rules without a mistake may still be too many to load.
        let unloadable =
            if refusals.is_empty() { unloadable(&all, &environment.interfaces) } else { Vec::new() };
        Findings {
            wrong: by_line(file, refusals.into_iter().chain(unloadable)),
            warnings: by_line(file, warnings.chain(never).chain(taken)),
            broken,
            not_loaded,
            has_log: all.iter().any(|one| logs(&one.ruleset)),
        }
    }

    /// The verdict on a statement; its findings are removed.
    fn statement_verdict(&mut self, file: &str, statement: &Statement) -> Verdict {
        let lines = || statement.line..statement.next;
        let (wrong, odd) = (
            remove_mistake(&mut self.wrong, file, lines()),
            remove_mistake(&mut self.warnings, file, lines()),
        );
        match (wrong, odd, self.not_loaded.as_ref().filter(|(first, _)| *first <= statement.line)) {
            (Some(why), ..) => Verdict::Refused(why),
            (None, Some(how), _) => Verdict::Approximated(how),
            (None, None, Some((_, place))) => {
                Verdict::Approximated(format!("not loaded, as the mistake in {place} keeps the file from it"))
            }
            (None, None, None) => Verdict::Honoured,
        }
    }
}

fn placed(fault: &SyntaxError) -> (RulePlace, String) {
    (fault.place.clone(), fault.one_line())
}

/// Places in rules, with the text of their findings.
type Placed = Vec<(RulePlace, String)>;

/// Rules that never apply: those that are a reason to start nothing, and the others.
fn ineffective(all: &[ParsedText], interfaces: &Interfaces, is_lenient: bool) -> (Placed, Placed) {
    let (mut refused, mut taken) = (Vec::new(), Vec::new());
    for parsed in all {
        let faults = parsed.ineffective.iter().map(|fault| (false, placed(fault)));
        let rules = without_interface(&parsed.ruleset, interfaces).into_iter();
        let rules = rules.map(|one| (one.is_of_loopback, (one.place, one.why)));
        for (is_of_loopback, (place, why)) in faults.chain(rules) {
            match is_lenient || is_of_loopback {
                true => taken.push((place, why)),
                false => refused.push((place, format!("{why}; --lenient starts without it"))),
            }
        }
    }
    (refused, taken)
}

/// Why rules can't be loaded that are well written: there are too many tables, or the like.
fn unloadable(all: &[ParsedText], interfaces: &Interfaces) -> Placed {
    let domain = Domain::new();
    let mut tables = Tables::new(&domain);
    if let Some(main) = all.first() {
        let limits = main.ruleset.effective_limits();
        tables.most_tables = limits.limit(Limit::Tables) as usize;
        tables.most_entries = limits.limit(Limit::TableEntries) as usize;
    }
    // Whatever the anchors are called, there is as much in them.
    let path = |n: usize| if n == 0 { String::new() } else { format!("loaded{n}") };
    let rulesets = all.iter().enumerate().map(|(n, one)| (path(n), one.ruleset.clone())).collect();
    let loaded = load_rulesets(rulesets, &mut Anchors::default(), &mut tables, interfaces, Duration::ZERO);
    let errors = loaded.err().unwrap_or_default().into_iter();
    errors.map(|error| (error.place.clone(), error.reason.to_string())).collect()
}

/// Mistakes by file and line; those without a file are `file`'s.
fn by_line(file: &str, all: impl Iterator<Item = (RulePlace, String)>) -> Wrong {
    let mut wrong = Wrong::new();
    for (place, why) in all {
        let name = if place.file.is_empty() { file.to_string() } else { place.file.to_string() };
        let all = wrong.entry((name, place.line as usize)).or_default();
        if !all.split("; ").any(|said| said == why) {
            *all += &if all.is_empty() { why } else { format!("; {why}") };
        }
    }
    wrong
}

/// Removes the mistakes of some lines of a file.
fn remove_mistake(wrong: &mut Wrong, file: &str, lines: std::ops::Range<usize>) -> Option<String> {
    let keys: Vec<_> = wrong
        .range((file.into(), lines.start)..(file.into(), lines.end))
        .map(|(key, _)| key.clone())
        .collect();
    let why: Vec<String> = keys.iter().filter_map(|key| wrong.remove(key)).collect();
    (!why.is_empty()).then(|| why.join("; "))
}
