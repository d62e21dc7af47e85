//! pf.conf: what becomes of its lines, and which switches show the packet filter what passes.
use super::etc::{Etc, Kind};
use super::hostname::lines;
use super::plan::{Plan, Port, PortKind, RulesFile, Switch};
use super::verdict::{Judged, Note, Place, Verdict};
use crate::pfctl::logs;
use artery_filter::names::{InterfaceAddress, InterfaceRecord, Interfaces};
use artery_filter::rule::{Place as RulePlace, Ruleset};
use artery_filter::syntax::{Environment, Names, Settings, Site, read, read_anchors, unsupported};
use artery_table::switch::command::Command;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs as _};

/// Judges pf.conf, if there is one.
pub(super) fn judge(etc: &Etc, plan: &mut Plan) {
    let Some(text) = &etc.pf else { return };
    let file = etc.folder.join("pf.conf").display().to_string();
    let (mut wrong, has_log) = wrong(etc, plan, &file, text);
    let lines = lines(text);
    for (n, line) in lines.iter().enumerate() {
        // A rule may go on behind its first line.
        let next = lines.get(n + 1).map_or(usize::MAX, |next| next.number);
        let why = take(&mut wrong, &file, line.number..next);
        let verdict = why.map_or(Verdict::Honoured, Verdict::Refused);
        let place = Place { file: file.clone(), line: line.number };
        plan.judged.push(Judged { place, text: line.text.clone(), verdict });
    }
    // What stands in front of all lines, or in other files.
    for ((file, line), why) in wrong {
        let place = Place { file, line };
        plan.judged.push(Judged { place, text: "(the file)".to_string(), verdict: Verdict::Refused(why) });
    }
    let etc = etc.folder.display().to_string();
    plan.pf = Some(RulesFile { file: file.clone(), etc: Some(etc).filter(|etc| etc != "/etc") });
    if has_log && !plan.switches.is_empty() {
        plan.pflog.get_or_insert_with(|| PFLOG.to_string());
    }
    let notes: Vec<Note> = plan.switches.iter().filter_map(unseen).collect();
    plan.notes.extend(notes.into_iter().map(|note| Note { file: file.clone(), ..note }));
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

/// What is wrong, by file and line.
type Wrong = BTreeMap<(String, usize), String>;

/// What is wrong with rules and those of the anchors that they load, and whether any of them logs.
fn wrong(etc: &Etc, plan: &Plan, file: &str, text: &str) -> (Wrong, bool) {
    let (environment, settings) = (environment(etc, plan), Settings::default());
    let (main, mut faults) = read(file, text.as_bytes(), &environment, &settings);
    let (anchors, more) = read_anchors("", &main.ruleset, &environment, &settings);
    faults.extend(more);
    let rulesets: Vec<Ruleset> = std::iter::once(main)
        .chain(anchors.into_iter().map(|one| one.parsed))
        .map(|one| one.ruleset)
        .collect();
    let unsupported = rulesets.iter().flat_map(|ruleset| unsupported(ruleset, Site::Switch));
    let unsupported = unsupported.map(|(place, what)| (place, format!("not supported: {what}")));
    let faults = faults.into_iter().map(|fault| (fault.place.clone(), fault.one_line()));
    (by_line(file, faults.chain(unsupported)), rulesets.iter().any(logs))
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
        names: Names::builtin(),
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
        let file = File { interface: "veb0".into(), text: veb.into() };
        let etc = Etc { folder: "etc".into(), switches: vec![file], pf: Some(pf.into()), ..Etc::default() };
        let mut plan = plan(&etc, &Wishes::default()).unwrap();
        judge(&etc, &mut plan);
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
    fn a_mistake_is_that_of_the_line_that_it_belongs_to() {
        let plan = judged(
            "add em0",
            "pass in on em0\nblock from nobody.invalid.\npass to any port {\n  22\n  nosuch }\npass",
        );
        let refused: Vec<usize> =
            plan.judged.iter().filter(|line| line.is_refused()).map(|line| line.place.line).collect();
        assert!(refused.len() >= 2 && refused[0] == 2, "{:?}", plan.judged);
        assert!(refused[1..].iter().all(|line| (3..=5).contains(line)), "{refused:?}");
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
        judge(&etc, &mut plan);
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
