//! Reads a folder, checks each line of its files, and makes the plan of what to start.
use super::etc::{Etc, File, Kind};
use super::hostname::{Line, lines, words};
use super::plan::{Plan, Port, Switch, Wishes, shell, shell_verdict};
use super::verdict::{Judged, Note, Place, Verdict};
use super::{etc, members, pf, pflow, routed, switch_file};
use anyhow::bail;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Reads a folder, and checks each line of it. All commands that print, show or run a folder use this plan.
pub(super) fn judge(folder: &Path, wishes: &Wishes) -> anyhow::Result<Plan> {
    let etc = etc::read(folder)?;
    let mut plan = plan(&etc, wishes)?;
    (plan.pflog, plan.pflog_max) = (wishes.pflog.clone(), wishes.pflog_max.clone());
    pf::judge(&etc, wishes, &mut plan);
    pf::set_around_router(&mut plan);
    pf::describe_log(&mut plan);
    Ok(plan)
}

/// Takes texts as files of a switch, of its host port, of a port of a router, and of default routes, with
/// zero characters between them.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn survive(texts: &str) {
    let mut texts = texts.splitn(4, '\0');
    let mut text = || texts.next().unwrap_or_default();
    let (switch, vport, routed, gateways) = (text(), text(), text(), text());
    let file = |interface: &str, text: &str| etc::File { interface: interface.into(), text: text.into() };
    let etc = Etc {
        folder: "/nonexistent".into(),
        switches: vec![file("veb0", switch)],
        interfaces: vec![file("vport0", vport), file("em9", routed)],
        gateways: Some(gateways.to_string()),
        ..Etc::default()
    };
    let _ = plan(&etc, &Wishes::default());
}

/// Checks all files but pf.conf.
pub(super) fn plan(etc: &Etc, wishes: &Wishes) -> anyhow::Result<Plan> {
    check(etc, wishes)?;
    let mut plan = Plan::default();
    let mut owners = BTreeMap::new();
    for (n, file) in etc.switches.iter().enumerate() {
        let reader = switch_file::Reader::new(etc, file, wishes.runs_commands, &owners);
        let read = reader.read();
        match left_out(etc, wishes, n) {
            Some(why) => plan.judged.extend(read.judged.into_iter().map(|judged| leave_out(judged, &why))),
            None => {
                let ports = read.switch.ports.iter().map(|port| port.name.clone());
                owners.extend(ports.map(|port| (port, read.switch.name.clone())));
                plan.notes.extend(bridge_note(etc, file));
                plan.notes.extend(down_note(etc, file, &read.switch));
                plan.judged.extend(read.judged);
                plan.judged.extend(without_ports(etc, file, &read.switch));
                plan.shell.extend(read.shell);
                plan.switches.push(read.switch);
            }
        }
    }
    routed::judge(etc, wishes, &mut plan);
    pflow::judge(etc, wishes, &mut plan);
    let is_other =
        |file: &&File| !plan.is_routed(&file.interface) && Kind::of(&file.interface) != Kind::Pflow;
    let others = etc.interfaces.iter().filter(is_other).collect::<Vec<_>>();
    others.into_iter().for_each(|file| interface(etc, file, wishes, &mut plan));
    if plan.switches.is_empty() && plan.router.is_none() {
        bail!(nothing_to_start(etc));
    }
    Ok(plan)
}

fn nothing_to_start(etc: &Etc) -> String {
    format!(
        "{}: there is no hostname.veb0 or hostname.bridge0 here, which makes a switch, and no hostname.em0 \
         or the like with an 'inet' address, which makes a router; name a folder by --etc that has one",
        etc.folder.display()
    )
}

/// Refuses names of switches that the folder doesn't have.
fn check(etc: &Etc, wishes: &Wishes) -> anyhow::Result<()> {
    let has = |name: &str| etc.switches.iter().any(|file| file.interface == name);
    let Some(missing) = wishes.switches.iter().find(|name| !has(name)) else { return Ok(()) };
    let names: Vec<&str> = etc.switches.iter().map(|file| file.interface.as_str()).collect();
    let has = if names.is_empty() { "none".to_string() } else { names.join(", ") };
    bail!("{} has no switch '{missing}'; it has {has}", etc.folder.display())
}

/// Why a switch is not started: only others were named, or another one has the same ports.
fn left_out(etc: &Etc, wishes: &Wishes, n: usize) -> Option<String> {
    let file = &etc.switches[n];
    let is_wanted = |file: &File| wishes.switches.is_empty() || wishes.switches.contains(&file.interface);
    if !is_wanted(file) {
        return Some("left out, as --switch names another".to_string());
    }
    let ports = added(file);
    let before = etc.switches[..n].iter().filter(|before| is_wanted(before));
    let other = before.into_iter().find(|before| !ports.is_empty() && added(before) == ports)?;
    Some(format!(
        "left out, as {} has the same ports; '--switch {}' starts this one instead",
        other.interface, file.interface
    ))
}

/// The interfaces that a file makes ports.
fn added(file: &File) -> BTreeSet<String> {
    let of_line = |line: &Line| {
        let words = words(&line.text).unwrap_or_default();
        words.windows(2).filter(|pair| pair[0] == "add").map(|pair| pair[1].clone()).collect::<Vec<_>>()
    };
    lines(&file.text).iter().flat_map(of_line).collect()
}

/// The verdict on a line of a switch that is not started; a refusal stays a refusal.
fn leave_out(judged: Judged, why: &str) -> Judged {
    let verdict = match judged.verdict {
        // Here the ports belong to another switch.
        Verdict::Refused(why) if !why.contains(switch_file::OTHERS) => Verdict::Refused(why),
        _ => Verdict::Approximated(why.to_string()),
    };
    Judged { verdict, ..judged }
}

/// How the switch as a whole differs from bridge(4).
fn bridge_note(etc: &Etc, file: &File) -> Option<Note> {
    let text = "a bridge is started as a Veb whose packet filter is always on (as by link1), as bridge(4) \
        asks pf about all IP; its ports have no address of the host, as those of veb(4) have none, \
        and frames are switched on all workers instead of by one thread";
    let note = || Note { file: etc.folder.join(file.name()).display().to_string(), text: text.to_string() };
    (Kind::of(&file.interface) == Kind::Bridge).then(note)
}

/// Refuses a switch without ports.
fn without_ports(etc: &Etc, file: &File, switch: &Switch) -> Option<Judged> {
    let place = Place { file: etc.folder.join(file.name()).display().to_string(), line: 0 };
    let verdict =
        Verdict::Refused(format!("{} has no port; write 'add' and the name of an interface", switch.name));
    switch.ports.is_empty().then(|| Judged { place, text: "(the file)".to_string(), verdict })
}

/// A note on a switch that no line brings up.
fn down_note(etc: &Etc, file: &File, switch: &Switch) -> Option<Note> {
    let text = format!(
        "no line says 'up': frames are dropped until 'artery ifconfig {} up', as the host sees nothing of \
         what arrives at the ports",
        switch.name
    );
    (!switch.is_up).then(|| Note { file: etc.folder.join(file.name()).display().to_string(), text })
}

/// Checks the file of an interface, and applies its lines to the ports that it is about.
fn interface(etc: &Etc, file: &File, wishes: &Wishes, plan: &mut Plan) {
    let has_its_own = |name: &str| etc.interfaces.iter().any(|other| other.interface == name);
    let is_pattern = file.interface.ends_with('*');
    let is_about = |port: &Port| file.is_about(&port.name) && (!is_pattern || !has_its_own(&port.name));
    let ports =
        || plan.switches.iter().flat_map(|switch| switch.ports.iter().map(move |port| (switch, port)));
    let meant: Vec<(String, Port)> = ports()
        .filter(|(_, port)| is_about(port))
        .map(|(switch, port)| (switch.name.clone(), port.clone()))
        .collect();
    if is_pattern && !meant.is_empty() {
        let names: Vec<&str> = meant.iter().map(|(_, port)| port.name.as_str()).collect();
        let file = etc.folder.join(file.name()).display().to_string();
        plan.notes.push(Note { file, text: format!("stands for {}", names.join(", ")) });
    }
    for line in lines(&file.text) {
        let place = Place { file: etc.folder.join(file.name()).display().to_string(), line: line.number };
        if let Some(text) = line.text.strip_prefix('!') {
            plan.shell.push(shell(&place, text, &file.interface));
            let verdict = shell_verdict(wishes.runs_commands, "switch");
            plan.judged.push(Judged { place, text: line.text, verdict });
            continue;
        }
        let (settings, verdict) = match meant.first() {
            None if plan.router.is_some() => {
                (Vec::new(), routed::other_verdict(&file.interface, &line, plan))
            }
            first => members::judge(&file.interface, &line, first),
        };
        let switches = plan.switches.iter_mut();
        let ports = switches.flat_map(|switch| &mut switch.ports).filter(|port| is_about(port));
        ports.for_each(|port| members::apply(port, &settings));
        plan.judged.push(Judged { place, text: line.text, verdict });
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::PortKind;
    use super::*;
    use proptest::prelude::*;

    fn etc(files: &[(&str, &str)]) -> Etc {
        let file = |(name, text): &(&str, &str)| File { interface: name.to_string(), text: text.to_string() };
        let (switches, interfaces) =
            files.iter().map(file).partition(|file| Kind::of(&file.interface).is_switch());
        Etc { folder: "etc".into(), switches, interfaces, ..Etc::default() }
    }

    fn planned(files: &[(&str, &str)]) -> Plan {
        plan(&etc(files), &Wishes::default()).unwrap()
    }

    fn refusals(plan: &Plan) -> Vec<String> {
        plan.judged.iter().filter_map(Judged::refusal).collect()
    }

    const FOUR: &str = "add cnmac0\nadd cnmac1\nadd cnmac2\nadd cnmac3\nup\n";

    /// Words that mean something, and some that don't.
    fn word() -> impl Strategy<Value = String> {
        const WORDS: &str = "up down add del addspan em0 em1 vport0 vport1 learn -learn protected 1,2 rule \
            pass block in out on src 2:0:0:0:0:1 tag a\"b arp spa 10.0.0.1 static maxaddr 100 timeout 240 \
            untagged tagged +10-20 10 passthrough link0 link1 -link1 vnetid storm broadcast inet 10.0.0.9/24 \
            inet6 fd00::1 64 255.255.255.0 mtu 1400 lladdr description 'a \"b #c !d # \\ ! \\\" stp proto \
            rstp $x (, ) // /* */";
        let words: Vec<String> = WORDS.split_whitespace().map(str::to_string).collect();
        prop_oneof![9 => proptest::sample::select(words), 1 => "[ -~]{1,5}", 1 => any::<String>()]
    }

    fn file() -> impl Strategy<Value = String> {
        let line = proptest::collection::vec(word(), 0..5).prop_map(|words| words.join(" "));
        // So that much of what follows is about ports.
        proptest::collection::vec(line, 0..6)
            .prop_map(|lines| "add em0\nadd vport0\n".to_string() + &lines.join("\n"))
    }

    proptest! {
        #[test]
        fn what_is_not_refused_makes_a_configuration(
            switch in file(),
            link in file(),
            vport in file(),
            pf in "[ -~\n]{0,40}",
        ) {
            let mut etc = etc(&[("veb0", &switch), ("em0", &link), ("vport0", &vport)]);
            etc.pf = Some(pf);
            let mut plan = plan(&etc, &Wishes::default()).unwrap();
            crate::bsd::pf::judge(&etc, &Wishes::default(), &mut plan);
            // Even with refused lines, the rest can be written.
            let text = crate::bsd::text::configuration(&plan, "artery up");
            prop_assert!(text.is_ok(), "{text:?}");
            let loaded = crate::load::load("text", &text.unwrap(), &crate::load::Reading::default());
            prop_assert!(loaded.compiled);
            prop_assert!(!loaded.has_errors() || plan.switches[0].ports.is_empty());
        }

        #[test]
        fn what_is_not_refused_of_a_router_makes_a_configuration(
            link in file(),
            vport in file(),
            gateways in "([0-9a-f.:%]{1,12}\n|10.0.9.2\n){0,2}",
        ) {
            let link = link.replacen("add em0", "inet 10.0.9.1/24", 1);
            let switch = "add em0\nadd vport0\nup\n";
            let mut etc = etc(&[("veb0", switch), ("em9", &link), ("vport0", &vport)]);
            etc.gateways = Some(gateways);
            let plan = plan(&etc, &Wishes::default()).unwrap();
            let text = crate::bsd::text::configuration(&plan, "artery up");
            prop_assert!(text.is_ok(), "{text:?}");
            let text = text.unwrap();
            let loaded = crate::load::load("text", &text, &crate::load::Reading::default());
            prop_assert!(loaded.compiled && !loaded.has_errors(), "{text}");
        }
    }

    #[test]
    fn a_switch_that_is_not_brought_up_says_what_it_does() {
        assert!(
            planned(&[("veb0", "add em0")]).notes[0]
                .text
                .starts_with("no line says 'up': frames are dropped")
        );
        assert!(planned(&[("veb0", "up\nadd em0")]).notes.is_empty());
    }

    #[test]
    fn a_switch_without_ports_is_refused() {
        let plan = planned(&[("veb0", "add em0\nup\ndel em0")]);
        let found = refusals(&plan);
        assert_eq!(found, ["etc/hostname.veb0: veb0 has no port; write 'add' and the name of an interface"]);
    }

    #[test]
    fn the_files_of_the_benchmark_are_a_switch_of_four_ports() {
        for (name, file) in [("cnmac*", "up"), ("cnmac0", "up")] {
            let plan = planned(&[("veb0", FOUR), (name, file)]);
            let [switch] = &plan.switches[..] else { panic!("{plan:?}") };
            assert!(switch.is_up && switch.kind == Kind::Veb && switch.commands.is_empty());
            let ports: Vec<(&str, bool)> =
                switch.ports.iter().map(|port| (port.name.as_str(), port.is_up)).collect();
            let rest = name == "cnmac*";
            assert_eq!(ports, [("cnmac0", true), ("cnmac1", rest), ("cnmac2", rest), ("cnmac3", rest)]);
            assert!(plan.judged.iter().all(|line| line.verdict == Verdict::Honoured), "{:?}", plan.judged);
        }
    }

    #[test]
    fn of_two_switches_with_the_same_ports_the_first_starts_unless_the_other_is_named() {
        let files = etc(&[("veb0", FOUR), ("bridge0", FOUR)]);
        let first = plan(&files, &Wishes::default()).unwrap();
        assert_eq!((first.switches.len(), first.switches[0].name.as_str()), (1, "veb0"));
        let says = first.judged.iter().filter_map(Judged::approximation).collect::<Vec<_>>();
        assert_eq!(says.len(), 5);
        assert!(says[0].ends_with("'--switch bridge0' starts this one instead"), "{}", says[0]);
        let named = Wishes { switches: vec!["bridge0".into()], ..Wishes::default() };
        let other = plan(&files, &named).unwrap();
        assert_eq!((other.switches.len(), other.switches[0].kind), (1, Kind::Bridge));
        assert!(other.notes[0].text.contains("always on"));
        let unknown = Wishes { switches: vec!["veb1".into()], ..Wishes::default() };
        let found = plan(&files, &unknown).unwrap_err().to_string();
        assert_eq!(found, "etc has no switch 'veb1'; it has veb0, bridge0");
    }

    #[test]
    fn an_interface_is_a_port_of_one_switch() {
        let plan = planned(&[("veb0", "add em0\nadd em1"), ("veb1", "add em1\nadd em2")]);
        assert_eq!(
            refusals(&plan),
            ["etc/hostname.veb1:1: em1 is a port of veb0 already; it can be one of one switch only"]
        );
    }

    #[test]
    fn a_file_of_its_own_goes_before_one_with_a_star() {
        let plan = planned(&[("veb0", FOUR), ("cnmac*", "up mtu 9000"), ("cnmac1", "mtu 1400")]);
        let mtus: Vec<_> = plan.switches[0].ports.iter().map(|port| port.mtu).collect();
        assert_eq!(mtus, [Some(9000), Some(1400), Some(9000), Some(9000)]);
        assert_eq!(plan.notes[0].text, "stands for cnmac0, cnmac2, cnmac3");
    }

    #[test]
    fn the_host_has_addresses_at_its_vport_and_none_at_other_ports() {
        let files = etc(&[
            ("veb0", "add em0\nadd vport0\nup"),
            ("em0", "inet 10.0.0.1/24"),
            ("vport0", "inet 10.0.0.1 255.255.255.0\n!route add default 10.0.0.254 # by $if"),
            ("vport1", "up"),
            ("em9", "inet 10.0.9.1/24"),
        ]);
        let named = Wishes { switches: vec!["veb0".into()], ..Wishes::default() };
        let plan = plan(&files, &named).unwrap();
        assert!(plan.router.is_none() && plan.switches[0].ports[1].kind == PortKind::HostPort);
        assert_eq!(plan.switches[0].ports[1].addresses, [("10.0.0.1".parse().unwrap(), 24)]);
        assert_eq!(plan.shell[0].text, "route add default 10.0.0.254 # by vport0");
        let refused = refusals(&plan);
        assert_eq!(refused.len(), 2, "{refused:?}");
        let expected = "etc/hostname.em0:1: em0 is a port of veb0, and a port has no address";
        assert!(refused[0].starts_with(expected));
        assert!(
            refused[1].starts_with("etc/hostname.vport1:1: vport1 is not a port of a switch"),
            "{refused:?}"
        );
        let approximated = plan.judged.iter().filter(|line| line.approximation().is_some());
        let found = approximated.map(|line| line.place.file.as_str()).collect::<Vec<_>>();
        assert_eq!(found, ["etc/hostname.vport0", "etc/hostname.em9"]);
    }
}
