//! What the machine has for a plan: its interfaces, which get the state that the files say.
use super::plan::{Plan, Port, PortKind};
use crate::router::machine::claim;
use artery_device::{Interface, LinkType, PortClaim};
use std::collections::HashSet;

/// What an interface is called in the files, and what this machine calls it.
pub(super) struct Map<'a>(pub(super) &'a [(String, String)]);

impl Map<'_> {
    pub(super) fn machine<'a>(&'a self, name: &'a str) -> &'a str {
        self.0.iter().find(|(known, _)| known == name).map_or(name, |(_, machine)| machine)
    }
}

/// The interfaces of a plan, as the machine has them.
pub(super) struct Found<'a> {
    ports: Vec<(&'a Port, Interface)>,
}

/// What a switch has taken of the machine: nothing before it runs.
#[derive(Default)]
pub(super) struct Taken {
    plan: Plan,
    /// The numbers of the plan's interfaces.
    wanted: Vec<u32>,
    claims: Vec<PortClaim>,
    /// Names of the host's interfaces that were made, now and before: those of before are there for a while
    /// after they were given up.
    made: HashSet<String>,
}

impl Taken {
    pub(super) fn new(plan: Plan, claims: Vec<PortClaim>) -> Taken {
        let wanted = claims.iter().map(|claim| claim.index()).collect();
        let made = made(&plan).collect();
        Taken { plan, wanted, claims, made }
    }

    fn has(&self, port: &Port) -> bool {
        self.plan.ports().any(|other| other.name == port.name && other.kind == port.kind)
    }

    /// Takes over another plan, with interfaces of these numbers; `new` are claims that it did not have yet.
    pub(super) fn change(&mut self, plan: Plan, wanted: Vec<u32>, new: Vec<PortClaim>) {
        self.made.extend(made(&plan));
        (self.plan, self.wanted) = (plan, wanted);
        self.claims.extend(new);
    }

    /// Releases the interfaces that the plan no longer has, once their ports are closed.
    pub(super) fn release(&mut self) {
        self.claims.retain(|claim| self.wanted.contains(&claim.index()));
    }

    /// Differences in another plan's files that the running switch approximates, or applies
    /// only after a restart.
    pub(super) fn warnings(&self, plan: &Plan, runs_commands: bool) -> Vec<String> {
        let notes =
            |plan: &Plan| plan.notes.iter().map(|note| format!("{}: {}", note.file, note.text)).collect();
        let mut warnings = added(self.plan.approximations(), plan.approximations());
        warnings.extend(added(notes(&self.plan), notes(plan)));
        let is_new = |text: &String| self.plan.shell.iter().all(|shell| shell.text != *text);
        let commands = plan.shell.iter().filter(|shell| runs_commands && is_new(&shell.text));
        warnings.extend(commands.map(|shell| {
            format!(
                "{}: not run: {}: commands are run at the start only; run it by hand",
                shell.place, shell.text
            )
        }));
        if plan.ipfix != self.plan.ipfix {
            warnings.push("hostname.pflow0 counts at the next start: the collector stays".to_string());
        }
        for port in plan.ports() {
            let name = &port.name;
            let Some(before) = self.plan.ports().find(|before| before.name == *name) else { continue };
            if before.is_up && !port.is_up && port.kind != PortKind::HostPort {
                warnings.push(format!(
                    "port {name} stays up, though hostname.{name} does not say 'up' any more: an interface \
                     is only brought up, and 'ip link set' brings it down"
                ));
            }
            if before.mtu.is_some() && port.mtu.is_none() && port.kind != PortKind::HostPort {
                warnings.push(format!(
                    "port {name} keeps its MTU, of which hostname.{name} says nothing any more; 'ip link \
                     set' changes it"
                ));
            }
        }
        warnings
    }
}

/// Those of the second list that are not in the first.
fn added(before: Vec<String>, now: Vec<String>) -> Vec<String> {
    now.into_iter().filter(|text| !before.contains(text)).collect()
}

/// Finds all interfaces but those that the program has made; adds what the machine lacks to `mistakes`.
pub(super) fn find_interfaces<'a>(
    plan: &'a Plan,
    map: &Map,
    taken: &Taken,
    mistakes: &mut Vec<String>,
) -> Found<'a> {
    if taken.plan.ports().next().is_none() {
        mistakes.extend(unknown_names(plan, map));
    }
    mistakes.extend(shared_interfaces(plan, map));
    mistakes.extend(host_name(plan).filter(|host| !taken.made.contains(host)).and_then(find_host_mistake));
    let mut ports = Vec::new();
    for port in plan.ports() {
        let machine = map.machine(&port.name);
        match port.kind {
            PortKind::HostPort if taken.made.contains(&port.name) => {}
            PortKind::HostPort => mistakes.extend(find_host_port_mistake(port, machine)),
            PortKind::OfRouter => {}
            PortKind::Link | PortKind::Span | PortKind::Routed => match link(port, machine) {
                Ok(interface) => {
                    mistakes.extend(find_short_mistake(plan, port, &interface));
                    ports.push((port, interface));
                }
                // It is absent, or has another name: the running switch follows it.
                Err(_) if taken.has(port) => {}
                Err(why) => mistakes.push(why),
            },
        }
    }
    Found { ports }
}

/// Names in the map that no port has.
fn unknown_names(plan: &Plan, map: &Map) -> Vec<String> {
    let ports: Vec<&str> = plan.ports().map(|port| port.name.as_str()).collect();
    let unknown = map.0.iter().filter(|(name, _)| !ports.contains(&name.as_str()));
    unknown
        .map(|(name, machine)| {
            format!("--map {name}={machine}: no port is called {name}; the ports are {}", ports.join(", "))
        })
        .collect()
}

/// Interfaces that would be two ports.
fn shared_interfaces(plan: &Plan, map: &Map) -> Vec<String> {
    let ports: Vec<&str> = plan.ports().map(|port| port.name.as_str()).collect();
    let mut wrong = Vec::new();
    for (n, port) in ports.iter().enumerate() {
        let machine = map.machine(port);
        if let Some(other) = ports[..n].iter().find(|other| map.machine(other) == machine) {
            wrong.push(format!(
                "{other} and {port} are both {machine}; give each an interface of its own by --map"
            ));
        }
    }
    wrong
}

fn link(port: &Port, machine: &str) -> Result<Interface, String> {
    let name = &port.name;
    let found = Interface::find(machine).map_err(|error| match name == machine {
        true => format!("port {name}: {error}; '--map {name}=NAME' says what this machine calls it"),
        false => format!("port {name}: {error}"),
    })?;
    let is_ethernet = found.link_type == Some(LinkType::ETHER) && found.mac.is_some_and(|mac| mac != [0; 6]);
    match is_ethernet {
        true => Ok(found),
        false => {
            Err(format!("port {name}: {machine} is not Ethernet with an address; take another interface"))
        }
    }
}

/// What stands in the way of an interface that is to be made.
fn find_host_port_mistake(port: &Port, machine: &str) -> Option<String> {
    let name = &port.name;
    Interface::find(machine).ok()?;
    let what = format!("port {name}: there is an interface {machine}; does another switch run?");
    Some(format!("{what} '--map {name}=NAME' makes it under another name"))
}

/// The name of the host's interface to the router, if there is one.
fn host_name(plan: &Plan) -> Option<String> {
    plan.router.as_ref().map(|router| router.host.clone())
}

/// The names of interfaces that a plan makes.
fn made(plan: &Plan) -> impl Iterator<Item = String> {
    let host_ports = plan.ports().filter(|port| port.kind == PortKind::HostPort);
    host_ports.map(|port| port.name.clone()).chain(host_name(plan))
}

/// What stands in the way of the host's interface to the router.
fn find_host_mistake(host: String) -> Option<String> {
    Interface::find(&host).ok()?;
    Some(format!(
        "there is an interface {host}, which is to be the host's to the router; does another router run? \
         '--host NAME' gives it another name"
    ))
}

/// That an interface carries less than the addresses of a port of the router need.
fn find_short_mistake(plan: &Plan, port: &Port, interface: &Interface) -> Option<String> {
    let mtu = port.mtu.unwrap_or(interface.mtu);
    let mut ports = plan.router.as_ref()?.ports.iter().filter(|routed| routed.device() == port.name);
    ports.find_map(|routed| routed.short_for_ipv6(mtu).map(|why| format!("port {}: {why}", routed.name)))
}

impl Found<'_> {
    /// The plan with what the interfaces of the router's ports will carry.
    pub(super) fn measured(&self, plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        let ports = plan.router.iter_mut().flat_map(|router| &mut router.ports);
        for routed in ports {
            let found = self.ports.iter().find(|(port, _)| port.name == routed.device());
            routed.mtu = found.map(|(_, interface)| routed.mtu.unwrap_or(interface.mtu)).or(routed.mtu);
        }
        plan
    }

    /// What interfaces lack to be of use, though the switch can start.
    pub(super) fn warnings(&self) -> Vec<String> {
        let idle = self.ports.iter().filter(|(port, interface)| !interface.up && !port.is_up);
        idle.map(|(port, interface)| {
            let (name, machine) = (&port.name, &interface.name);
            format!(
                "{machine} is down and hostname.{name} does not say 'up'; nothing passes port {name} \
                 until it is up"
            )
        })
        .collect()
    }

    /// The numbers of the interfaces.
    pub(super) fn indices(&self) -> Vec<u32> {
        self.ports.iter().map(|(_, interface)| interface.index).collect()
    }

    /// Takes the interfaces that are not taken yet, and gives all of them the state that the files say.
    pub(super) fn claim_new(&self, taken: &Taken) -> Result<Vec<PortClaim>, Vec<String>> {
        let is_new = |index| taken.claims.iter().all(|claim| claim.index() != index);
        let new = self.ports.iter().filter(|(_, interface)| is_new(interface.index));
        let (mut claims, mut mistakes) = (Vec::new(), Vec::new());
        for (_, interface) in new {
            match claim(interface) {
                Ok(claim) => claims.push(claim),
                Err(why) => mistakes.push(why),
            }
        }
        if mistakes.is_empty() {
            mistakes =
                self.ports.iter().filter_map(|(port, interface)| set_up(port, interface).err()).collect();
        }
        if mistakes.is_empty() { Ok(claims) } else { Err(mistakes) }
    }

    /// One line for each interface.
    pub(super) fn text(&self) -> String {
        let state = |(port, interface): &(&Port, Interface)| {
            let state = if interface.up { "up" } else { "down" };
            let becomes = if port.is_up && !interface.up { ", is brought up" } else { "" };
            let mtu = port.mtu.filter(|mtu| *mtu != interface.mtu);
            let mtu =
                mtu.map_or(String::new(), |mtu| format!(", gets MTU {mtu} instead of {}", interface.mtu));
            format!("port {} is {}, which is {state}{becomes}{mtu}\n", port.name, interface.name)
        };
        self.ports.iter().map(state).collect()
    }
}

fn set_up(port: &Port, interface: &Interface) -> Result<(), String> {
    if let Some(mtu) = port.mtu.filter(|mtu| *mtu != interface.mtu) {
        interface.set_mtu(mtu).map_err(|error| error.to_string())?;
    }
    if port.is_up && !interface.up { interface.bring_up().map_err(|error| error.to_string()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bsd::etc::Kind;
    use crate::bsd::plan::{Shell, Switch};
    use crate::bsd::verdict::{Judged, Note, Place, Verdict};

    fn plan(ports: &[&str]) -> Plan {
        let port = |name: &&str| {
            let kind = if Kind::of(name) == Kind::HostPort { PortKind::HostPort } else { PortKind::Link };
            Port::new(name.to_string(), kind)
        };
        let switch = Switch {
            name: "veb0".into(),
            kind: Kind::Veb,
            is_up: true,
            description: None,
            ports: ports.iter().map(port).collect(),
            commands: Vec::new(),
        };
        Plan { switches: vec![switch], ..Plan::default() }
    }

    fn mistakes(ports: &[&str], map: &[(&str, &str)]) -> Vec<String> {
        let map: Vec<_> = map.iter().map(|(name, machine)| (name.to_string(), machine.to_string())).collect();
        let (plan, mut mistakes) = (plan(ports), Vec::new());
        find_interfaces(&plan, &Map(&map), &Taken::default(), &mut mistakes);
        mistakes
    }

    #[test]
    fn what_the_machine_lacks_is_named_with_the_option_that_helps() {
        let [missing] = &mistakes(&["cnmac77"], &[])[..] else { panic!() };
        assert!(
            missing.starts_with("port cnmac77: ")
                && missing.ends_with("'--map cnmac77=NAME' says what this machine calls it"),
            "{missing}"
        );
        let [loopback] = &mistakes(&["cnmac77"], &[("cnmac77", "lo")])[..] else { panic!() };
        assert_eq!(loopback, "port cnmac77: lo is not Ethernet with an address; take another interface");
        let [there] = &mistakes(&["vport0"], &[("vport0", "lo")])[..] else { panic!() };
        assert!(there.ends_with("'--map vport0=NAME' makes it under another name"), "{there}");
    }

    #[test]
    fn a_map_names_ports_and_gives_each_an_interface_of_its_own() {
        let wrong = mistakes(&["vport7"], &[("vport8", "veth0")]);
        assert_eq!(wrong, ["--map vport8=veth0: no port is called vport8; the ports are vport7"]);
        let wrong = mistakes(&["vport7", "vport8"], &[("vport7", "nope0"), ("vport8", "nope0")]);
        assert_eq!(wrong, ["vport7 and vport8 are both nope0; give each an interface of its own by --map"]);
    }

    #[test]
    fn what_a_reload_does_not_do_is_said_in_a_line_each() {
        let mut before = plan(&["em0"]);
        let port = &mut before.switches[0].ports[0];
        (port.is_up, port.mtu) = (true, Some(9000));
        let mut after = plan(&["em0", "em1"]);
        let place = Place { file: "etc/hostname.em0".into(), line: 2 };
        after.shell.push(Shell { place: place.clone(), text: "logger up".into() });
        after.notes.push(Note { file: "etc/hostname.veb0".into(), text: "no line says 'up'".into() });
        let approximated = Verdict::Approximated("done in another way".into());
        after.judged.push(Judged { place, text: "frob".into(), verdict: approximated });
        let taken = Taken::new(before, Vec::new());
        let said = taken.warnings(&after, true);
        let parts = [
            "done in another way",
            "no line says 'up'",
            "not run: logger up",
            "em0 stays up",
            "em0 keeps its MTU",
        ];
        assert_eq!(said.len(), parts.len(), "{said:#?}");
        assert!(said.iter().zip(parts).all(|(line, part)| line.contains(part)), "{said:#?}");
        assert_eq!(taken.warnings(&after, false).len(), parts.len() - 1, "commands that are not run anyway");
        // A warning is printed only once.
        let known = Taken::new(after.clone(), Vec::new());
        assert_eq!(known.warnings(&after, true), Vec::<String>::new());
    }
}
