//! pf.conf: what becomes of its lines, and which switches show the packet filter what passes.
use super::etc::{Etc, Kind};
use super::hostname::{Line, lines};
use super::plan::{Plan, Port, PortKind, RulesFile, Switch};
use super::verdict::{Judged, Note, Place, Verdict};
use crate::pfctl::logs;
use artery_filter::anchors::Anchors;
use artery_filter::evaluate::load;
use artery_filter::names::{InterfaceAddress, InterfaceRecord, Interfaces};
use artery_filter::options::Limit;
use artery_filter::rule::Place as RulePlace;
use artery_filter::syntax::{
    Environment, Fault, Names, Parsed, Settings, Site, never_matching, read, read_anchors, unsupported,
    without_interface,
};
use artery_filter::tables::Tables;
use artery_rcu::Domain;
use artery_table::switch::command::Command;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs as _};
use std::time::Duration;

/// Judges pf.conf, if there is one. Rules that never apply are refused, or taken with a warning if `is_lenient`.
pub(super) fn judge(etc: &Etc, is_lenient: bool, plan: &mut Plan) {
    plan.lines_of_switches = Some(plan.judged.len());
    let Some(text) = &etc.pf else { return };
    let file = etc.folder.join("pf.conf").display().to_string();
    let mut found = Findings::of(etc, plan, (&file, text), is_lenient);
    for statement in statements(&lines(text), &found.broken) {
        let verdict = found.take(&file, &statement);
        let place = Place { file: file.clone(), line: statement.line };
        plan.judged.push(Judged { place, text: statement.text, verdict });
    }
    // What stands in front of all lines, or in other files.
    let others =
        [(found.wrong, Verdict::Refused as fn(String) -> Verdict), (found.odd, Verdict::Approximated)];
    for (rest, verdict) in others {
        for ((file, line), why) in rest {
            let place = Place { file, line };
            plan.judged.push(Judged { place, text: "(the file)".to_string(), verdict: verdict(why) });
        }
    }
    let etc = etc.folder.display().to_string();
    plan.pf = Some(RulesFile { file: file.clone(), etc: Some(etc).filter(|etc| etc != "/etc") });
    if found.has_log && !plan.switches.is_empty() {
        plan.pflog.get_or_insert_with(|| PFLOG.to_string());
    }
    let notes: Vec<Note> = plan.switches.iter().filter_map(unseen).collect();
    plan.notes.extend(notes.into_iter().map(|note| Note { file: file.clone(), ..note }));
}

/// Lines that are judged together.
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

/// Says where packets are written that rules log.
pub(super) fn note_log(plan: &mut Plan) {
    let (Some(log), Some(pf)) = (&plan.pflog, &plan.pf) else { return };
    let text = format!(
        "packets of rules with 'log' are added to {log}, which 'tcpdump -n -e -r {log}' shows; 'up --pflog FILE' names another"
    );
    plan.notes.push(Note { file: pf.file.clone(), text });
}

/// Where packets are written that rules log, if nothing else is said: where pflogd(8) writes them.
const PFLOG: &str = "/var/log/pflog";

/// What is wrong, or odd, by file and line.
type Wrong = BTreeMap<(String, usize), String>;

/// What is found out about rules and those of the anchors that they load.
struct Findings {
    /// Why lines are refused.
    wrong: Wrong,
    /// Why lines do not do what they say.
    odd: Wrong,
    /// The first and the last line of each statement of the file that can't be read.
    broken: Vec<(usize, usize)>,
    /// The first line that a mistake keeps from being loaded, and where the mistake is.
    not_loaded: Option<(usize, String)>,
    has_log: bool,
}

impl Findings {
    fn of(etc: &Etc, plan: &Plan, (file, text): (&str, &str), is_lenient: bool) -> Findings {
        let (environment, settings) = (environment(etc, plan), Settings::default());
        let (main, mut faults) = read(file, text.as_bytes(), &environment, &settings);
        let (anchors, more) = read_anchors("", &main.ruleset, &environment, &settings);
        faults.extend(more);
        let line_here = |place: &RulePlace| (&*place.file == file).then_some(place.line as usize);
        let in_file = main.broken.iter().filter(|lines| &*lines.file == file);
        let broken: Vec<_> = in_file.map(|lines| (lines.first as usize, lines.last as usize)).collect();
        let mistakes = faults.iter().filter_map(|fault| line_here(&fault.place));
        let here = mistakes.chain(broken.iter().map(|(first, _)| *first)).min();
        // Which line leads to another file is not known: what that has spoils all of them.
        let is_elsewhere = |fault: &&Fault| fault.place.line != 0 && line_here(&fault.place).is_none();
        let elsewhere = faults.iter().find(is_elsewhere).map(|fault| &fault.place);
        let not_loaded = elsewhere.map(|place| (1, format!("{}:{}", place.file, place.line)));
        let not_loaded = not_loaded.or(here.map(|line| (line + 1, format!("line {line}"))));
        let all: Vec<Parsed> =
            std::iter::once(main).chain(anchors.into_iter().map(|one| one.parsed)).collect();
        let (refused, taken) = ineffective(&all, &environment.interfaces, is_lenient);
        let unsupported = all.iter().flat_map(|one| unsupported(&one.ruleset, Site::Switch));
        let unsupported = unsupported.map(|(place, what)| (place, format!("not supported: {what}")));
        let warnings = all.iter().flat_map(|one| &one.warnings).map(placed);
        let never = all.iter().flat_map(|one| never_matching(&one.ruleset));
        let refusals: Vec<_> = faults.iter().map(placed).chain(unsupported).chain(refused).collect();
        // What is well written may yet be too much to be loaded.
        let unloadable =
            if refusals.is_empty() { unloadable(&all, &environment.interfaces) } else { Vec::new() };
        Findings {
            wrong: by_line(file, refusals.into_iter().chain(unloadable)),
            odd: by_line(file, warnings.chain(never).chain(taken)),
            broken,
            not_loaded,
            has_log: all.iter().any(|one| logs(&one.ruleset)),
        }
    }

    /// What becomes of a statement; what was found out about it is taken out.
    fn take(&mut self, file: &str, statement: &Statement) -> Verdict {
        let lines = || statement.line..statement.next;
        let (wrong, odd) = (take(&mut self.wrong, file, lines()), take(&mut self.odd, file, lines()));
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

fn placed(fault: &Fault) -> (RulePlace, String) {
    (fault.place.clone(), fault.one_line())
}

/// Places with what is said of them.
type Placed = Vec<(RulePlace, String)>;

/// Rules that never apply: those that are a reason to start nothing, and the others.
fn ineffective(all: &[Parsed], interfaces: &Interfaces, is_lenient: bool) -> (Placed, Placed) {
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
fn unloadable(all: &[Parsed], interfaces: &Interfaces) -> Placed {
    let domain = Domain::new();
    let mut tables = Tables::new(&domain);
    if let Some(main) = all.first() {
        let limits = main.ruleset.limits();
        tables.most_tables = limits.limit(Limit::Tables) as usize;
        tables.most_entries = limits.limit(Limit::TableEntries) as usize;
    }
    // Whatever the anchors are called, there is as much in them.
    let path = |n: usize| if n == 0 { String::new() } else { format!("loaded{n}") };
    let rulesets = all.iter().enumerate().map(|(n, one)| (path(n), one.ruleset.clone())).collect();
    let loaded = load(rulesets, &mut Anchors::default(), &mut tables, interfaces, Duration::ZERO);
    let errors = loaded.err().unwrap_or_default().into_iter();
    errors.map(|error| (error.place.clone(), error.reason.to_string())).collect()
}

/// What is wrong, by file and line; what has no file is in the one that is named.
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

/// Takes out what is wrong with some lines of a file.
fn take(wrong: &mut Wrong, file: &str, lines: std::ops::Range<usize>) -> Option<String> {
    let keys: Vec<_> = wrong
        .range((file.into(), lines.start)..(file.into(), lines.end))
        .map(|(key, _)| key.clone())
        .collect();
    let why: Vec<String> = keys.iter().filter_map(|key| wrong.remove(key)).collect();
    (!why.is_empty()).then(|| why.join("; "))
}

/// What the rules can refer to: the interfaces that the other files name, and files of the same folder.
fn environment<'a>(etc: &'a Etc, plan: &Plan) -> Environment<'a> {
    let own = |address: IpAddr, length| InterfaceAddress { address, length, peer: None };
    let of_port =
        |port: &Port| record(&port.name, port.addresses.iter().map(|(ip, len)| own(*ip, *len)).collect());
    let loopback = vec![own(Ipv4Addr::LOCALHOST.into(), 8), own(Ipv6Addr::LOCALHOST.into(), 128)];
    let mut records = vec![InterfaceRecord { is_loopback: true, ..record("lo0", loopback) }];
    for switch in &plan.switches {
        records.push(record(&switch.name, Vec::new()));
        records.extend(switch.ports.iter().map(of_port));
    }
    Environment {
        interfaces: Interfaces(records),
        names: Names::of_machine(),
        read_file: Box::new(|name| {
            std::fs::read(etc.path(name)).map_err(|error| crate::load::system_message(&error))
        }),
        find_host: Box::new(|name| {
            (name, 0).to_socket_addrs().map(|found| found.map(|one| one.ip()).collect()).unwrap_or_default()
        }),
    }
}

fn record(name: &str, addresses: Vec<InterfaceAddress>) -> InterfaceRecord {
    InterfaceRecord {
        name: name.to_string(),
        groups: vec!["all".into()],
        addresses,
        ..InterfaceRecord::default()
    }
}

/// Whether a switch shows the packet filter all IP that it switches.
fn shows_all(switch: &Switch) -> bool {
    let set = |command: &Command| match command {
        Command::Link { number: 1, on } => Some(*on),
        _ => None,
    };
    switch.kind == Kind::Bridge || switch.commands.iter().filter_map(set).next_back() == Some(true)
}

/// Says of a switch that the filter sees little or nothing of it.
fn unseen(switch: &Switch) -> Option<Note> {
    if shows_all(switch) {
        return None;
    }
    let doors = switch.ports.iter().filter(|port| port.kind == PortKind::Door).map(|port| port.name.as_str());
    let doors: Vec<&str> = doors.collect();
    let sees = match doors.is_empty() {
        true => "nothing".to_string(),
        false => format!("nothing but what passes {}", doors.join(", ")),
    };
    let name = &switch.name;
    let text = format!(
        "the packet filter sees {sees} of what {name} switches; 'link1' in hostname.{name} shows it all IP"
    );
    Some(Note { file: String::new(), text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bsd::etc::File;
    use crate::bsd::plan::{Wishes, plan};

    fn judged(veb: &str, pf: &str) -> Plan {
        judged_with(veb, pf, false)
    }

    fn judged_with(veb: &str, pf: &str, is_lenient: bool) -> Plan {
        let file = File { interface: "veb0".into(), text: veb.into() };
        let etc = Etc { folder: "etc".into(), switches: vec![file], pf: Some(pf.into()), ..Etc::default() };
        let mut plan = plan(&etc, &Wishes::default()).unwrap();
        judge(&etc, is_lenient, &mut plan);
        plan
    }

    #[test]
    fn the_lines_of_the_benchmark_are_honoured_and_the_switch_shows_them_nothing_without_link1() {
        let plan = judged("add em0 up", "set skip on lo0\n\npass\n");
        let lines: Vec<(usize, &str, &Verdict)> =
            plan.judged[1..].iter().map(|one| (one.place.line, one.text.as_str(), &one.verdict)).collect();
        assert_eq!(lines, [(1, "set skip on lo0", &Verdict::Honoured), (3, "pass", &Verdict::Honoured)]);
        assert_eq!(plan.notes.len(), 1);
        assert!(plan.notes[0].text.starts_with("the packet filter sees nothing of what veb0 switches"));
        assert!(judged("add em0 up\nlink1", "pass").notes.is_empty());
        let door = judged("add vport0 up\nlink1\n-link1", "pass");
        assert!(door.notes[0].text.contains("nothing but what passes vport0 of"), "{:?}", door.notes);
    }

    #[test]
    fn a_mistake_is_that_of_its_statement_and_nothing_below_is_called_honoured() {
        let plan = judged(
            "add em0",
            "pass in on em0\nblock from nobody.invalid.\npass to any port {\n  22\n  nosuch }\npass",
        );
        let lines: Vec<(usize, &str)> =
            plan.judged[1..].iter().map(|one| (one.place.line, one.text.as_str())).collect();
        let expected = [
            (1, "pass in on em0"),
            (2, "block from nobody.invalid."),
            (3, "pass to any port { 22 nosuch }"),
            (6, "pass"),
        ];
        assert_eq!(lines, expected);
        let [honoured, first, second, below] = &plan.judged[1..] else { panic!() };
        assert_eq!(honoured.verdict, Verdict::Honoured);
        assert!(first.is_refused() && second.is_refused());
        assert!(below.approximation().unwrap().contains("not loaded, as the mistake in line 2"), "{below:?}");
    }

    #[test]
    fn rules_for_what_is_no_port_are_refused_or_taken_with_a_warning() {
        let rules = "block in on egress\nmatch out on em0 inet nat-to (egress)\nantispoof for em0\npass on lo0\npass on veb0";
        let strict = judged("add em0 up\nlink1", rules);
        let refused: Vec<usize> =
            strict.judged.iter().filter(|line| line.is_refused()).map(|line| line.place.line).collect();
        assert_eq!(refused, [1, 2, 3]);
        let refusal = strict.judged[2].refusal().unwrap();
        assert!(
            refusal.contains("on egress: no interface here") && refusal.contains("there are veb0, em0"),
            "{refusal}"
        );
        assert!(strict.judged[5].approximation().unwrap().contains("loopback"), "{:?}", strict.judged[5]);
        let lenient = judged_with("add em0 up\nlink1", rules, true);
        assert!(!lenient.judged.iter().any(Judged::is_refused), "{:?}", lenient.judged);
        assert_eq!(lenient.judged.iter().filter(|line| line.approximation().is_some()).count(), 4);
    }

    #[test]
    fn a_mistake_in_another_file_leaves_no_line_honoured() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("more.conf"), "pass\nfoo\nbar\n").unwrap();
        let file = File { interface: "veb0".into(), text: "add em0 link1".into() };
        let pf = Some("include \"/etc/more.conf\"\npass\n".to_string());
        let etc = Etc { folder: folder.path().into(), switches: vec![file], pf, ..Etc::default() };
        let mut plan = plan(&etc, &Wishes::default()).unwrap();
        judge(&etc, false, &mut plan);
        let refused: Vec<String> = plan.judged.iter().filter_map(Judged::refusal).collect();
        assert_eq!(refused.len(), 2, "{refused:?}");
        let lines = plan.judged.iter().filter(|line| line.place.file.ends_with("/pf.conf"));
        assert!(lines.clone().count() == 2 && lines.clone().all(|line| line.verdict != Verdict::Honoured));
    }

    #[test]
    fn more_than_can_be_loaded_is_refused() {
        let plan =
            judged("add em0", "set limit table-entries 1\ntable <a> { 10.0.0.1 10.0.0.2 }\npass from <a>");
        let refused: Vec<String> = plan.judged.iter().filter_map(Judged::refusal).collect();
        assert_eq!(refused.len(), 1, "{:?}", plan.judged);
        assert!(refused[0].starts_with("etc/pf.conf:2: "), "{refused:?}");
    }

    #[test]
    fn files_that_rules_name_are_those_of_the_folder_and_rules_of_anchors_are_judged() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("spam", "192.0.2.9");
        write("more.conf", "pass log\n");
        write("inner.conf", "block\npass in proto tcp user root\n");
        let pf = "table <spam> file \"/etc/spam\"\ninclude \"/etc/more.conf\"\nanchor a\n\
                  load anchor a from \"/etc/inner.conf\"\nload anchor b from \"/etc/no.conf\"\n";
        let file = File { interface: "veb0".into(), text: "add em0 link1".into() };
        let etc =
            Etc { folder: folder.path().into(), switches: vec![file], pf: Some(pf.into()), ..Etc::default() };
        let mut plan = plan(&etc, &Wishes::default()).unwrap();
        judge(&etc, false, &mut plan);
        let refused: Vec<String> = plan.judged.iter().filter_map(|line| line.refusal()).collect();
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[0].contains("pf.conf:5: cannot load anchor b"), "{refused:?}");
        assert!(refused[1].contains("inner.conf:2: not supported: user"), "{refused:?}");
        assert_eq!(plan.pflog.as_deref(), Some("/var/log/pflog"));
        assert_eq!(plan.pf.unwrap().etc, Some(folder.path().display().to_string()));
    }

    #[test]
    fn what_is_read_and_not_done_is_refused_by_name() {
        let plan = judged("add em0", "pass\npass in proto tcp user root");
        let refusal = plan.judged.last().unwrap().refusal().unwrap();
        assert!(refusal.starts_with("etc/pf.conf:2: not supported: user"), "{refusal}");
    }
}
