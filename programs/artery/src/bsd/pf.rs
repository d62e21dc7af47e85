//! pf.conf: what becomes of its lines, and what switches and the router show the packet filter of what
//! passes.
use super::etc::{Etc, Kind};
use super::plan::{Plan, Port, PortKind, RulesFile, Switch, Wishes};
use super::rules::{self, PFLOG, Surroundings, USUAL_LOG_MAX, interface_record, rules_environment};
use super::verdict::{Judged, Note, Place, Verdict};
use crate::router::pf::{Filter, too_many_workers};
use artery_filter::names::InterfaceRecord;
use artery_filter::syntax::FilterSite;
use artery_l2::command::Command;

/// Checks pf.conf, if there is one. Rules that never apply are refused, or taken with
/// a warning if `is_lenient`.
pub(super) fn judge(etc: &Etc, wishes: &Wishes, plan: &mut Plan) {
    plan.lines_of_files = Some(plan.judged.len());
    let Some(text) = &etc.pf else { return };
    let file = etc.folder.join("pf.conf").display().to_string();
    let (interfaces, site) = match &plan.router {
        Some(router) => (router.rule_interfaces(), FilterSite::Router { knows_routes: true }),
        None => (plan.switches.iter().flat_map(interfaces).collect(), FilterSite::Switch),
    };
    let environment = rules_environment(interfaces, |name| artery_device::files::read(etc.path(name)));
    // Rules would be blamed for ports and routes that other lines were refused for.
    let lacks_ports = plan.router.is_some() && plan.judged.iter().any(Judged::is_refused);
    let surroundings = Surroundings { environment, site, is_lenient: wishes.is_lenient || lacks_ports };
    let found = rules::judge_rules(&file, text, &surroundings);
    plan.judged.extend(found.statements);
    if plan.router.is_some() {
        let refused = refuse_around_router(etc, &file, wishes.workers, plan);
        plan.judged.extend(refused);
    }
    let etc = etc.folder.display().to_string();
    plan.pf = Some(RulesFile { file: file.clone(), etc: Some(etc).filter(|etc| etc != "/etc") });
    if found.has_log {
        plan.pflog.get_or_insert_with(|| PFLOG.to_string());
    }
    if plan.router.is_some() {
        return;
    }
    let notes: Vec<Note> = plan.switches.iter().filter_map(unseen).collect();
    plan.notes.extend(notes.into_iter().map(|note| Note { file: file.clone(), ..note }));
}

/// What can't be while the rules are those of a filter around the router: more workers than one, and switches
/// that would need them as well.
fn refuse_around_router(etc: &Etc, file: &str, workers: u16, plan: &Plan) -> Vec<Judged> {
    let whole = |file: String, why: String| Judged {
        place: Place { file, line: 0 },
        text: "(the file)".to_string(),
        verdict: Verdict::Refused(why),
    };
    let routed = plan.routed.first().map_or("", |port| port.name.as_str());
    let of_switch = |switch: &Switch| {
        let name = &switch.name;
        let host_port = switch.ports.iter().find(|port| port.kind == PortKind::HostPort);
        let why = match (shows_all(switch), switch.kind, host_port) {
            (true, Kind::Bridge, _) => "a bridge(4) has pf.conf see all IP".to_string(),
            (true, ..) => format!("'link1' in hostname.{name} has pf.conf see all IP"),
            (false, _, Some(port)) => {
                format!("pf.conf would see what passes {}, which has no address", port.name)
            }
            (false, _, None) => return None,
        };
        let remedy = match host_port.filter(|_| !shows_all(switch)) {
            Some(port) => format!("give {} an address in hostname.{}", port.name, port.name),
            None if switch.kind == Kind::Bridge => "make it a veb(4)".to_string(),
            None => "take 'link1' away".to_string(),
        };
        let text = format!(
            "{why}, and hostname.{routed} makes a router, around which these rules are: {remedy}, or start \
             the switch alone by '--switch {name}', which leaves {routed} to the host"
        );
        Some(whole(etc.folder.join(format!("hostname.{name}")).display().to_string(), text))
    };
    let workers = too_many_workers(workers).map(|why| whole(file.to_string(), why));
    workers.into_iter().chain(plan.switches.iter().filter_map(of_switch)).collect()
}

/// The filter around the router, once the log is known.
fn filter(plan: &Plan) -> Option<Filter> {
    let pf = plan.pf.as_ref()?;
    let log_max = if plan.pflog_max.is_empty() { USUAL_LOG_MAX } else { plan.pflog_max.as_str() };
    Some(Filter {
        rules: pf.file.clone(),
        etc: pf.etc.clone(),
        log: plan.pflog.clone(),
        log_max: log_max.to_string(),
    })
}

/// Gives the router its filter, if it is to have one.
pub(super) fn set_around_router(plan: &mut Plan) {
    let filter = filter(plan);
    plan.router.iter_mut().for_each(|router| router.filter.clone_from(&filter));
}

/// Says where packets are written that rules log.
pub(super) fn describe_log(plan: &mut Plan) {
    let (Some(log), Some(pf)) = (&plan.pflog, &plan.pf) else { return };
    let text = format!(
        "packets of rules with 'log' are added to {log}, which 'tcpdump -n -e -r {log}' shows; 'up --pflog \
         FILE' names another"
    );
    plan.notes.push(Note { file: pf.file.clone(), text });
}

/// The interfaces that rules can refer to at a switch: itself and its ports.
fn interfaces(switch: &Switch) -> impl Iterator<Item = InterfaceRecord> + '_ {
    let of_port = |port: &Port| interface_record(&port.name, &port.addresses);
    std::iter::once(interface_record(&switch.name, &[])).chain(switch.ports.iter().map(of_port))
}

/// Whether a switch shows the packet filter all IP that it switches.
fn shows_all(switch: &Switch) -> bool {
    let set = |command: &Command| match command {
        Command::Link { number: 1, on } => Some(*on),
        _ => None,
    };
    switch.kind == Kind::Bridge || switch.commands.iter().filter_map(set).next_back() == Some(true)
}

/// A note on a switch whose frames the filter sees few or none of.
fn unseen(switch: &Switch) -> Option<Note> {
    if shows_all(switch) {
        return None;
    }
    let host_ports =
        switch.ports.iter().filter(|port| port.kind == PortKind::HostPort).map(|port| port.name.as_str());
    let host_ports: Vec<&str> = host_ports.collect();
    let sees = match host_ports.is_empty() {
        true => "nothing".to_string(),
        false => format!("nothing but what passes {}", host_ports.join(", ")),
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
    use crate::bsd::folder::plan;

    fn judged(veb: &str, pf: &str) -> Plan {
        judged_with(veb, pf, false)
    }

    fn judged_with(veb: &str, pf: &str, is_lenient: bool) -> Plan {
        let file = File { interface: "veb0".into(), text: veb.into() };
        let etc = Etc { folder: "etc".into(), switches: vec![file], pf: Some(pf.into()), ..Etc::default() };
        let mut plan = plan(&etc, &Wishes::default()).unwrap();
        judge(&etc, &Wishes { is_lenient, ..Wishes::default() }, &mut plan);
        plan
    }

    #[test]
    fn rules_are_not_blamed_for_addresses_that_are_refused() {
        let file = |name: &str, text: &str| File { interface: name.into(), text: text.into() };
        let interfaces = vec![file("em0", "inet 10.0.0.1/24"), file("em1", "dhcp")];
        let pf = Some("pass in on egress\npass on em7\npass on on\n".to_string());
        let etc = Etc { folder: "etc".into(), interfaces, pf, ..Etc::default() };
        let mut plan = plan(&etc, &Wishes::default()).unwrap();
        judge(&etc, &Wishes::default(), &mut plan);
        let refused: Vec<String> = plan.judged.iter().filter_map(Judged::refusal).collect();
        assert_eq!(refused.len(), 2, "{refused:#?}");
        assert!(refused[0].starts_with("etc/hostname.em1:1: ") && refused[1].starts_with("etc/pf.conf:3: "));
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
        let host_port = judged("add vport0 up\nlink1\n-link1", "pass");
        assert!(
            host_port.notes[0].text.contains("nothing but what passes vport0 of"),
            "{:?}",
            host_port.notes
        );
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
        let rules = "block in on egress\nmatch out on em0 inet nat-to (egress)\nantispoof for em0\n\
            pass on lo0\npass on veb0";
        let strict = judged("add em0 up\nlink1", rules);
        let refused: Vec<usize> =
            strict.judged.iter().filter(|line| line.is_refused()).map(|line| line.place.line).collect();
        assert_eq!(refused, [1, 2, 3]);
        let refusal = strict.judged[2].refusal().unwrap();
        assert!(refusal.contains("on egress: no interface here"), "{refusal}");
        assert!(refusal.contains("there are veb0, em0"), "{refusal}");
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
        judge(&etc, &Wishes::default(), &mut plan);
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
        judge(&etc, &Wishes::default(), &mut plan);
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
