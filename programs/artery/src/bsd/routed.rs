//! hostname.em0 of an interface that has addresses and is no switch's port: a port of the router. mygate(5)
//! and `!route add` of such files: its routes.
use super::etc::{Etc, File, Kind, MYGATE};
use super::hostname::{Line, Setting, lines, settings, words};
use super::members;
use super::plan::{Plan, Port, PortKind, Wishes, shell, shell_verdict};
use super::text::port_number;
use super::verdict::{Judged, Place, Verdict};
use crate::route::{PlannedRoute, planned_route};
use crate::router::folder::{FolderPort, FolderRouter};
use crate::router::{Attachment, Vlan};
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
    let port =
        |file: &&File| FolderPort { name: file.interface.clone(), vlan: vlan(file), ..FolderPort::default() };
    let mut router = FolderRouter::new(host);
    router.ports = files.iter().map(port).collect();
    for port in &router.ports {
        // Several VLANs may be on one interface, which may be a port itself.
        if !is_vlan(port.device()) && plan.routed.iter().all(|known| known.name != port.device()) {
            plan.routed.push(Port::routed(port.device()));
        }
    }
    plan.router = Some(router);
    join_switches(etc, plan);
    let mut routes = Vec::new();
    let first = plan.judged.len();
    for file in &etc.interfaces {
        if plan.is_routed(&file.interface) {
            routes.extend(interface(etc, file, wishes, plan));
        }
    }
    // Gateways would be blamed for addresses that are missing.
    let has_ports = !plan.judged[first..].iter().any(Judged::is_refused);
    routes.into_iter().for_each(|route| add_route(route, has_ports, plan));
    gateways(etc, has_ports, plan);
}

/// The verdict on a route where lines about ports are refused.
fn not_judged() -> Verdict {
    Verdict::Approximated("not judged, as a line about a port of the router is refused".to_string())
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

/// Whether an interface is a vlan(4), by its name.
fn is_vlan(name: &str) -> bool {
    name.strip_prefix("vlan").is_some_and(|number| number.parse::<u32>().is_ok())
}

/// The VLAN that a file of such an interface describes, if it does.
fn vlan(file: &File) -> Option<Vlan> {
    let all: Vec<Setting> = said(file).into_iter().flatten().flatten().collect();
    let parent = all.iter().rev().find_map(|one| match one {
        Setting::Parent(parent) => Some(parent.clone()),
        _ => None,
    });
    let id = all.iter().rev().find_map(|one| match one {
        Setting::VlanId(id) => Some(*id),
        _ => None,
    });
    let vlan = parent.zip(id).map(|(parent, id)| Vlan { parent, id });
    vlan.filter(|_| is_vlan(&file.interface))
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
    // A line that is wrong has its own verdict.
    let mut lacks_vlan =
        is_vlan(&file.interface) && vlan(file).is_none() && said(file).iter().all(Result::is_ok);
    for line in lines(&file.text) {
        let place = Place { file: etc.folder.join(file.name()).display().to_string(), line: line.number };
        let verdict = match line.text.strip_prefix('!') {
            None if std::mem::take(&mut lacks_vlan) => Verdict::Refused(format!(
                "which VLAN is {name}? write 'parent em0' and 'vnetid 10' to hostname.{name}, too",
                name = file.interface
            )),
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
    let is_comment = |word: &&String| word.starts_with('#');
    let words = rest.iter().skip_while(is_option).take_while(|word| !is_comment(word));
    is_route.then(|| words.cloned().collect())
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
pub(super) fn other_verdict(name: &str, line: &Line, plan: &mut Plan) -> Verdict {
    let said = words(&line.text).and_then(|words| settings(&words));
    if let Some(port) = plan.routed.iter_mut().find(|port| port.name == name) {
        return said.map_or_else(Verdict::Refused, |said| parent_verdict(port, &said));
    }
    let said = said.unwrap_or_default();
    let has_address = || said.iter().any(|one| matches!(one, Setting::Address(..)));
    match name.strip_suffix('*') {
        Some(class) if has_address() => Verdict::Refused(format!(
            "an address is that of one interface; write the line to a file such as hostname.{class}0"
        )),
        None if is_of_the_host(name) => {
            Verdict::Approximated(format!("{name} is the host's own, and is left to it as it is"))
        }
        None if Kind::of(name) == Kind::HostPort => members::of_no_port(name),
        _ => Verdict::Approximated(format!(
            "{name} is no port of the router, as no line gives it an address, and of no switch; it is left \
             to the host as it is"
        )),
    }
}

/// The verdict on a line about an interface that is a port by its VLANs alone.
fn parent_verdict(port: &mut Port, settings: &[Setting]) -> Verdict {
    let verdict = |port: &mut Port, setting: &Setting| match setting {
        Setting::Up => Verdict::Honoured,
        Setting::Mtu(mtu) => {
            port.mtu = Some(*mtu);
            Verdict::Honoured
        }
        Setting::Parent(_) | Setting::VlanId(_) => Verdict::Refused(members::NO_VLAN.into()),
        _ => Verdict::Approximated(format!(
            "{} has VLANs that are ports of the router, and is left to the host otherwise",
            port.name
        )),
    };
    settings.iter().fold(Verdict::Honoured, |all, setting| all.and(verdict(port, setting)))
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
                "{name} keeps its Ethernet address; 'ip link set {name} address {station}' before the start \
                 changes it"
            ));
        }
        Setting::Parent(_) | Setting::VlanId(_) => vlan_mistake(name, router).map_or(Ok(()), Err),
        Setting::Address(address, length) => {
            router.change_port(name, |port| port.addresses.push((address, length)))
        }
        Setting::Automatic(word) => Err(format!(
            "'{word}' asks others for an address, which a port of the router does not do; write its address, \
             as in 'inet 192.0.2.2 255.255.255.0', and the gateway to {MYGATE}"
        )),
    };
    done.map_or_else(Verdict::Refused, |()| Verdict::Honoured)
}

/// Why a port can't be the VLAN that its file says.
fn vlan_mistake(name: &str, router: &FolderRouter) -> Option<String> {
    if !is_vlan(name) {
        return Some(members::NO_VLAN.into());
    }
    let vlan = router.port(name)?.vlan.as_ref()?;
    if is_vlan(&vlan.parent) {
        return Some(format!("{} is a VLAN, too; a parent is an interface of the machine", vlan.parent));
    }
    let is_same = |port: &&FolderPort| port.vlan.as_ref() == Some(vlan);
    let first = router.ports.iter().find(is_same)?;
    (first.name != name).then(|| format!("VLAN {} of {} is {} already", vlan.id, vlan.parent, first.name))
}

fn add_route(line: RouteLine, has_ports: bool, plan: &mut Plan) {
    let Plan { router: Some(router), judged, .. } = plan else { return };
    if !has_ports {
        judged[line.at].verdict = not_judged();
        return;
    }
    let is_of_shell = |word: &&String| word.contains([';', '|', '&', '<', '>', '`', '$', '(']);
    let of_shell = line.words.iter().find(is_of_shell);
    let verdict = match (of_shell, line.words.split_first()) {
        (Some(word), _) => {
            Err(format!("'{word}' is for a shell, which does not run this line; write the route alone"))
        }
        (None, Some((verb, words))) if verb == "add" => planned(words, router),
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
fn gateways(etc: &Etc, has_ports: bool, plan: &mut Plan) {
    let Plan { router: Some(router), judged, .. } = plan else { return };
    let file = etc.folder.join(MYGATE).display().to_string();
    let mut known: Vec<bool> = Vec::new();
    for line in lines(etc.gateways.as_deref().unwrap_or_default()) {
        let verdict = match gateway(&line.text) {
            Err(why) => Verdict::Refused(why),
            Ok(_) if !has_ports => not_judged(),
            Ok(address) => gateway_verdict(&line.text, address, router, &mut known),
        };
        judged.push(Judged {
            place: Place { file: file.clone(), line: line.number },
            text: line.text,
            verdict,
        });
    }
}

/// The address of a gateway, perhaps with the interface that it is reached by: `fe80::1%em0`.
fn gateway(text: &str) -> Result<IpAddr, String> {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address.parse().map_err(|_| format!("'{text}' is not a gateway; write its address, as in 192.0.2.1"))
}

fn gateway_verdict(text: &str, address: IpAddr, router: &mut FolderRouter, known: &mut Vec<bool>) -> Verdict {
    if known.contains(&address.is_ipv6()) {
        return Verdict::Approximated(
            "not used: the first gateway of a family is; '!route add -mpath default GATEWAY' in the file of \
             an interface has several share"
                .to_string(),
        );
    }
    known.push(address.is_ipv6());
    let prefix = if address.is_ipv6() { "::/0" } else { "0.0.0.0/0" };
    router.add_route(prefix, text, false).map_or_else(Verdict::Refused, |()| Verdict::Honoured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bsd::folder;

    fn etc(files: &[(&str, &str)]) -> Etc {
        let file = |(name, text): &(&str, &str)| File { interface: name.to_string(), text: text.to_string() };
        let (switches, interfaces) =
            files.iter().map(file).partition(|file| Kind::of(&file.interface).is_switch());
        Etc { folder: "etc".into(), switches, interfaces, ..Etc::default() }
    }

    fn planned(files: &[(&str, &str)], gateways: &str) -> Plan {
        let etc = Etc { gateways: Some(gateways.to_string()), ..etc(files) };
        folder::plan(&etc, &Wishes::default()).unwrap()
    }

    /// Why the last line is refused.
    fn refused(text: &str, gateways: &str) -> String {
        let plan = planned(&[("em0", "inet 10.0.0.1/24"), ("em1", text)], gateways);
        plan.judged
            .iter()
            .filter_map(Judged::refusal)
            .next_back()
            .unwrap_or_else(|| panic!("{:?}", plan.judged))
    }

    #[test]
    fn interfaces_with_addresses_make_a_router_and_others_are_left_alone() {
        let text = "inet 10.0.1.1/24\ninet alias 10.0.2.1 0xffffff00\nmtu 1400\n!/sbin/route -n add 10.9/16 \
            10.0.2.9 # far\n!date";
        let files = [("em0", "inet6 fd00::1 64"), ("em1", text), ("em2", "up"), ("lo0", "inet 127.0.0.1/8")];
        let plan = planned(&files, "10.0.1.254 # of the provider\n");
        let router = plan.router.as_ref().unwrap();
        let names: Vec<&str> = router.ports.iter().map(|port| port.name.as_str()).collect();
        assert_eq!((names, router.ports[1].addresses.len()), (vec!["em0", "em1"], 2));
        assert!(plan.routed.iter().all(|port| port.is_up) && plan.routed[1].mtu == Some(1400));
        let text = router.elements();
        assert!(text.contains("ROUTE 10.9.0.0/16 10.0.2.9,\n    ROUTE 0.0.0.0/0 10.0.1.254"), "{text}");
        assert_eq!(plan.shell.len(), 1);
        let approximated = plan.approximations();
        let parts = ["!date: not run", "up: em2 is no port of the router", "lo0 is the host's own"];
        assert!(approximated.iter().zip(parts).all(|(line, part)| line.contains(part)), "{approximated:#?}");
        assert!(!plan.judged.iter().any(Judged::is_refused), "{:#?}", plan.judged);
    }

    #[test]
    fn what_is_refused_says_where_and_what_helps() {
        for (text, expected) in [
            ("inet 10.0.0.9/24", "em1:1: em1: 10.0.0.0/24 is the network of port em0, too; give each port"),
            (
                "inet 10.0.1.1/24\ndhcp",
                "em1:2: 'dhcp' asks others for an address, which a port of the router",
            ),
            ("inet 10.0.1.1/24\nmedia 100baseTX", "em1:2: 'media' is nothing that is known of an interface"),
            ("inet 10.0.1.1/24\n!route add 10.9/16", "em1:2: where does 10.9/16 lead? name a gateway"),
            ("inet 10.0.1.1/24\n!route flush", "em1:2: only 'route add' can be done at the start"),
            (
                "inet 10.0.1.1/24\n!route add default 10.0.1.2 > /dev/null",
                "em1:2: '>' is for a shell, which does not run this line",
            ),
            (
                "inet 10.0.1.1/24\n!route add default 10.0.1.2\n!route add default 10.0.1.3",
                "em1:3: there is a route for 0.0.0.0/0 already; take one of them away, or write 'route add \
                 -mpath'",
            ),
            (
                "inet 10.0.1.1/24\n!route add 10.9/16 10.0.1.2 -mtu 1400",
                "em1:2: -mtu 1400: a route has no MTU here",
            ),
        ] {
            let why = refused(text, "");
            assert!(why.starts_with(&format!("etc/hostname.{expected}")), "{text}: {why}");
        }
        // A gateway is not blamed for an address that is missing.
        assert!(refused("dhcp", "10.0.1.254\n").starts_with("etc/hostname.em1:1: 'dhcp' asks"));
        // One that is no address is told all the same.
        assert!(refused("dhcp", "10.0.1.254x\n").starts_with("etc/mygate:1: '10.0.1.254x' is not a gateway"));
        let why = refused("inet 10.0.1.1/24", "gate.example.org\n");
        assert_eq!(
            why,
            "etc/mygate:1: 'gate.example.org' is not a gateway; write its address, as in 192.0.2.1"
        );
        let why = refused("inet 10.0.1.1/24\n!route add default 10.0.1.2", "10.0.0.2\n");
        assert!(why.starts_with("etc/mygate:1: there is a route for 0.0.0.0/0 already"), "{why}");
    }

    #[test]
    fn files_of_vlan_interfaces_make_ports_on_their_parents() {
        let files = [
            ("em0", "up\nmtu 1504"),
            ("em1", "inet 10.0.1.1/24"),
            ("vlan7", "vnetid 7 parent em0\ninet 10.7.0.1/24"),
            ("vlan8", "inet 10.8.0.1/24 vlan 8 vlandev em1"),
        ];
        let plan = planned(&files, "10.7.0.2\n");
        assert!(!plan.judged.iter().any(Judged::is_refused), "{:#?}", plan.judged);
        let machine: Vec<&str> = plan.routed.iter().map(|port| port.name.as_str()).collect();
        assert_eq!((machine, plan.routed[1].mtu), (vec!["em1", "em0"], Some(1504)));
        let text = plan.router.as_ref().unwrap().elements();
        for expected in [
            "PORT vlan7 10.7.0.1/24 ETHER em0:eth",
            "FromDevice(em0, SNIFFER false, PROMISC true)",
            "VLANEncap(VLAN_ID 8, NATIVE_VLAN -1) -> to_em1",
            "ROUTE 0.0.0.0/0 10.7.0.2",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }

    #[test]
    fn a_vlan_that_can_not_be_is_refused() {
        for (files, expected) in [
            (
                vec![("vlan7", "inet 10.7.0.1/24\nvnetid 7")],
                "vlan7:1: which VLAN is vlan7? write 'parent em0'",
            ),
            (vec![("em0", "inet 10.7.0.1/24\nvnetid 7")], "em0:2: 'parent' and 'vnetid' make a vlan(4)"),
            (
                vec![("vlan7", "inet 10.7.0.1/24\nvnetid 4095 parent em0")],
                "vlan7:2: '4095' is not the number",
            ),
            (vec![("vlan7", "inet 10.7.0.1/24\nvnetid 7 parent vlan8")], "vlan7:2: vlan8 is a VLAN, too"),
            (
                vec![
                    ("vlan7", "inet 10.7.0.1/24\nvnetid 7 parent em0"),
                    ("vlan8", "inet 10.8.0.1/24\nvnetid 7 parent em0"),
                ],
                "vlan8:2: VLAN 7 of em0 is vlan7 already",
            ),
        ] {
            let plan = planned(&files, "");
            let why =
                plan.judged.iter().find_map(Judged::refusal).unwrap_or_else(|| panic!("{:?}", plan.judged));
            assert!(why.starts_with(&format!("etc/hostname.{expected}")), "{why}");
        }
    }

    #[test]
    fn an_address_from_elsewhere_makes_no_router_beside_a_switch() {
        let beside = planned(&[("veb0", "add em0\nup"), ("em9", "dhcp")], "");
        assert!(beside.router.is_none() && !beside.judged.iter().any(Judged::is_refused), "{beside:?}");
        let alone = planned(&[("em9", "inet autoconf")], "");
        let refusal = alone.judged[0].refusal().unwrap();
        assert!(refusal.starts_with("etc/hostname.em9:1: 'inet autoconf' asks others"), "{refusal}");
    }

    #[test]
    fn the_vport_of_a_switch_that_has_an_address_is_a_port_of_the_router() {
        let files = [
            ("veb0", "add em0\nadd vport0\nadd vport1\naddspan em1\nup"),
            ("vport0", "inet 10.0.0.1/24\nlladdr 2:0:0:0:0:9"),
            ("vport1", "up"),
            ("em9", "inet 10.0.9.1/24"),
        ];
        let plan = planned(&files, "");
        let kinds: Vec<PortKind> = plan.switches[0].ports.iter().map(|port| port.kind).collect();
        assert_eq!(kinds, [PortKind::Link, PortKind::OfRouter, PortKind::HostPort, PortKind::Span]);
        let joined = plan.router.as_ref().unwrap().port("vport0").unwrap();
        let attachment = joined.attachment.as_ref().unwrap();
        assert_eq!((attachment.switch.as_str(), attachment.number), ("veb0", 1));
        assert_eq!(attachment.link, "02:00:00:00:00:09");
        let text = crate::bsd::text::configuration(&plan, "artery up").unwrap();
        assert!(text.contains("veb0 [1] -> in_vport0") && text.contains("-> [1] veb0;"), "{text}");
        assert!(!text.contains("FromHost(vport0") && text.contains("FromHost(vport1"), "{text}");
    }
}
