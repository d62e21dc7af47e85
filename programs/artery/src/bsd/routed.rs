//! hostname.em0 of an interface that has addresses and is no switch's port: a port of the router. mygate(5) and
//! `!route add` of such files: its routes.
use super::etc::{Etc, File, Kind, MYGATE};
use super::hostname::{Line, Setting, lines, settings, words};
use super::members;
use super::plan::{Plan, Port, PortKind, Wishes, shell, shell_verdict};
use super::text::port_number;
use super::verdict::{Judged, Place, Verdict};
use crate::route::{PlannedRoute, planned_route};
use crate::router::Attachment;
use crate::router::folder::{FolderPort, FolderRouter};
use std::net::IpAddr;

/// The name of the host's interface, if none is given.
pub(super) const USUAL_HOST: &str = "artery0";

/// A line `!route add`, which is judged once all ports are known.
struct RouteLine {
    /// Its number among the judged lines.
    at: usize,
    words: Vec<String>,
}

/// Makes a router of the files that are about no port of a switch, if there are such.
pub(super) fn judge(etc: &Etc, wishes: &Wishes, plan: &mut Plan) {
    let files = files(etc, wishes, plan);
    if files.is_empty() {
        return;
    }
    let host = wishes.host.clone().unwrap_or_else(|| USUAL_HOST.to_string());
    let port = |file: &&File| FolderPort { name: file.interface.clone(), ..FolderPort::default() };
    let mut router = FolderRouter::new(host);
    router.ports = files.iter().map(port).collect();
    plan.routed = files.iter().map(|file| Port::routed(&file.interface)).collect();
    plan.router = Some(router);
    join_switches(etc, plan);
    let mut routes = Vec::new();
    for file in &etc.interfaces {
        if plan.is_routed(&file.interface) {
            routes.extend(interface(etc, file, wishes, plan));
        }
    }
    routes.into_iter().for_each(|route| add_route(route, plan));
    gateways(etc, plan);
}

/// The files of ports: with an address that does not come from elsewhere, or with any in a folder without a
/// switch. `--switch` starts switches only.
fn files<'e>(etc: &'e Etc, wishes: &Wishes, plan: &Plan) -> Vec<&'e File> {
    let is_port = |name: &str| plan.switches.iter().any(|switch| switch.port(name).is_some());
    let is_free = |file: &&File| {
        let name = &file.interface;
        Kind::of(name) == Kind::Link && !name.ends_with('*') && !is_of_the_host(name) && !is_port(name)
    };
    let has = |file: &File, is_wanted: fn(&Setting) -> bool| {
        said(file).iter().any(|said| said.as_ref().is_ok_and(|said| said.iter().any(is_wanted)))
    };
    let is_fixed = |setting: &Setting| matches!(setting, Setting::Address(..));
    let is_any = |setting: &Setting| matches!(setting, Setting::Address(..) | Setting::Automatic(_));
    let free: Vec<&File> = etc.interfaces.iter().filter(is_free).collect();
    let is_router = etc.switches.is_empty() || free.iter().any(|file| has(file, is_fixed));
    if !wishes.switches.is_empty() || !is_router {
        return Vec::new();
    }
    free.into_iter().filter(|file| has(file, is_any) || is_misspelt(file)).collect()
}

/// What the lines of a file say, without commands of the host.
fn said(file: &File) -> Vec<Result<Vec<Setting>, String>> {
    let is_setting = |line: &Line| !line.text.starts_with('!');
    let lines = lines(&file.text).into_iter().filter(is_setting);
    lines.map(|line| words(&line.text).and_then(|words| settings(&words))).collect()
}

/// Whether a line that begins as one with an address is wrong.
fn is_misspelt(file: &File) -> bool {
    lines(&file.text).iter().any(|line| line.text.starts_with("inet"))
}

/// Interfaces that no frames arrive at from outside.
fn is_of_the_host(name: &str) -> bool {
    let class = name.trim_end_matches(|c: char| c.is_ascii_digit());
    ["lo", "enc", "pflog", "pfsync"].contains(&class)
}

/// Makes ports of the router of the host's ports of switches that have addresses: the host that has them is
/// the router.
fn join_switches(etc: &Etc, plan: &mut Plan) {
    let has_address = |port: &Port| {
        let file = etc.interfaces.iter().find(|file| file.interface == port.name);
        file.is_some_and(|file| {
            said(file).iter().flatten().flatten().any(|one| matches!(one, Setting::Address(..)))
        })
    };
    let Plan { switches, router: Some(router), .. } = plan else { return };
    for switch in switches {
        for port in switch.ports.iter_mut().filter(|port| port.kind == PortKind::HostPort) {
            if has_address(port) {
                port.kind = PortKind::OfRouter;
            }
        }
        let mut links = switch.ports.iter().filter(|port| port.kind == PortKind::Link);
        for (n, port) in switch.ports.iter().enumerate().filter(|(_, port)| port.kind == PortKind::OfRouter) {
            // As a bridge of Linux has the address of one of its ports. Without a port there are no frames.
            let link =
                links.next().map_or("02:61:72:74:72:02".to_string(), |port| format!("{}:eth", port.name));
            let attachment = Attachment { switch: switch.name.clone(), number: port_number(switch, n), link };
            let name = port.name.clone();
            router.ports.push(FolderPort { name, attachment: Some(attachment), ..FolderPort::default() });
        }
    }
}

/// Judges the file of a port; gives its lines about routes.
fn interface(etc: &Etc, file: &File, wishes: &Wishes, plan: &mut Plan) -> Vec<RouteLine> {
    let mut routes = Vec::new();
    for line in lines(&file.text) {
        let place = Place { file: etc.folder.join(file.name()).display().to_string(), line: line.number };
        let verdict = match line.text.strip_prefix('!') {
            None => settings_verdict(&file.interface, &line, plan),
            Some(command) => {
                let command = shell(&place, command, &file.interface);
                match route_words(&command.text) {
                    Some(words) => {
                        routes.push(RouteLine { at: plan.judged.len(), words });
                        Verdict::Honoured
                    }
                    None => {
                        plan.shell.push(command);
                        shell_verdict(wishes.runs_commands, "router")
                    }
                }
            }
        };
        plan.judged.push(Judged { place, text: line.text, verdict });
    }
    routes
}

/// The words of a command behind `route` and its options.
fn route_words(command: &str) -> Option<Vec<String>> {
    let words = words(command).ok()?;
    let (program, rest) = words.split_first()?;
    let is_route = program == "route" || program.ends_with("/route");
    let is_option = |word: &&String| ["-n", "-q", "-v", "-nq", "-qn"].contains(&word.as_str());
    is_route.then(|| rest.iter().skip_while(is_option).cloned().collect())
}

fn settings_verdict(name: &str, line: &Line, plan: &mut Plan) -> Verdict {
    match words(&line.text).and_then(|words| settings(&words)) {
        Err(why) => Verdict::Refused(why),
        Ok(settings) => {
            settings.into_iter().fold(Verdict::Honoured, |all, setting| all.and(apply(name, setting, plan)))
        }
    }
}

/// The verdict on a line about an interface that is no port, where there is a router.
pub(super) fn other_verdict(name: &str, line: &Line) -> Verdict {
    let said = words(&line.text).and_then(|words| settings(&words)).unwrap_or_default();
    match name.strip_suffix('*') {
        Some(class) if said.iter().any(|one| matches!(one, Setting::Address(..))) => {
            Verdict::Refused(format!(
                "an address is that of one interface; write the line to a file such as hostname.{class}0"
            ))
        }
        None if is_of_the_host(name) => {
            Verdict::Approximated(format!("{name} is the host's own, and is left to it as it is"))
        }
        None if Kind::of(name) == Kind::HostPort => members::of_no_port(name),
        _ => Verdict::Approximated(format!(
            "{name} is no port of the router, as no line gives it an address, and of no switch; it is left to the host \
             as it is"
        )),
    }
}

/// Has a port of the router do it.
fn apply(name: &str, setting: Setting, plan: &mut Plan) -> Verdict {
    let Plan { router: Some(router), routed, .. } = plan else { return Verdict::Honoured };
    let is_joined = router.port(name).is_some_and(|port| port.attachment.is_some());
    let done = match setting {
        Setting::Up => Ok(()),
        Setting::Down => {
            return Verdict::Approximated(format!(
                "{name} is a port of the router, and is up from the start; rename the file to leave it out"
            ));
        }
        Setting::Description(text) => router.change_port(name, |port| port.description = Some(text)),
        Setting::Mtu(mtu) => {
            routed.iter_mut().filter(|port| port.name == name).for_each(|port| port.mtu = Some(mtu));
            router.change_port(name, |port| port.mtu = Some(mtu))
        }
        Setting::Station(station) if is_joined => router.change_port(name, |port| {
            port.attachment.iter_mut().for_each(|attachment| attachment.link = station.to_string());
        }),
        Setting::Station(station) => {
            return Verdict::Approximated(format!(
                "{name} keeps its Ethernet address; 'ip link set {name} address {station}' before the start changes it"
            ));
        }
        Setting::Address(address, length) => {
            router.change_port(name, |port| port.addresses.push((address, length)))
        }
        Setting::Automatic(word) => Err(format!(
            "'{word}' asks others for an address, which a port of the router does not do; write its address, as in \
             'inet 192.0.2.2 255.255.255.0', and the gateway to {MYGATE}"
        )),
    };
    done.map_or_else(Verdict::Refused, |()| Verdict::Honoured)
}

fn add_route(line: RouteLine, plan: &mut Plan) {
    let Plan { router: Some(router), judged, .. } = plan else { return };
    let verdict = match line.words.split_first() {
        Some((verb, words)) if verb == "add" => planned(words, router),
        _ => Err("only 'route add' can be done at the start; take the line away".to_string()),
    };
    let added = verdict.and_then(|PlannedRoute { prefix, target, is_multipath }| {
        router.add_route(&prefix, &target, is_multipath)
    });
    judged[line.at].verdict = added.map_or_else(Verdict::Refused, |()| Verdict::Honoured);
}

fn planned(words: &[String], router: &FolderRouter) -> Result<PlannedRoute, String> {
    let ports = router.ports.iter().map(|port| (port.name.as_str(), port.addresses.as_slice()));
    planned_route(words, ports)
}

/// The default routes of mygate(5): the first gateway of each family.
fn gateways(etc: &Etc, plan: &mut Plan) {
    let Plan { router: Some(router), judged, .. } = plan else { return };
    let file = etc.folder.join(MYGATE).display().to_string();
    let mut known: Vec<bool> = Vec::new();
    for line in lines(etc.gateways.as_deref().unwrap_or_default()) {
        let verdict = gateway_verdict(&line.text, router, &mut known);
        judged.push(Judged {
            place: Place { file: file.clone(), line: line.number },
            text: line.text,
            verdict,
        });
    }
}

fn gateway_verdict(text: &str, router: &mut FolderRouter, known: &mut Vec<bool>) -> Verdict {
    let address = text.split('%').next().and_then(|address| address.parse::<IpAddr>().ok());
    let Some(address) = address else {
        return Verdict::Refused(format!("'{text}' is not a gateway; write its address, as in 192.0.2.1"));
    };
    if known.contains(&address.is_ipv6()) {
        return Verdict::Approximated(
            "not used: the first gateway of a family is; '!route add -mpath default GATEWAY' in the file of an \
             interface has several share"
                .to_string(),
        );
    }
    known.push(address.is_ipv6());
    let prefix = if address.is_ipv6() { "::/0" } else { "0.0.0.0/0" };
    router.add_route(prefix, text, false).map_or_else(Verdict::Refused, |()| Verdict::Honoured)
}
