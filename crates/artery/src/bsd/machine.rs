//! What the machine has for a plan: its interfaces, which get the state that the files say.
use super::plan::{Plan, Port, PortKind};
use crate::router::machine::claim;
use artery_device::{Interface, LinkType};

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

/// Looks for all interfaces; adds what the machine lacks to `mistakes`.
pub(super) fn look<'a>(plan: &'a Plan, map: &Map, mistakes: &mut Vec<String>) -> Found<'a> {
    mistakes.extend(wrong_names(plan, map));
    let mut ports = Vec::new();
    for port in plan.switches.iter().flat_map(|switch| &switch.ports) {
        let machine = map.machine(&port.name);
        match port.kind {
            PortKind::Door => mistakes.extend(door(port, machine)),
            PortKind::Link | PortKind::Span => match link(port, machine) {
                Ok(interface) => ports.push((port, interface)),
                Err(why) => mistakes.push(why),
            },
        }
    }
    Found { ports }
}

/// Names in the map that no port has, and interfaces that would be two ports.
fn wrong_names(plan: &Plan, map: &Map) -> Vec<String> {
    let ports: Vec<&str> =
        plan.switches.iter().flat_map(|switch| &switch.ports).map(|port| port.name.as_str()).collect();
    let unknown = map.0.iter().filter(|(name, _)| !ports.contains(&name.as_str()));
    let mut wrong: Vec<String> = unknown
        .map(|(name, machine)| {
            format!("--map {name}={machine}: no port is called {name}; the ports are {}", ports.join(", "))
        })
        .collect();
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
            Err(format!("port {name}: {machine} is no Ethernet with an address; take another interface"))
        }
    }
}

/// What stands in the way of an interface that is to be made.
fn door(port: &Port, machine: &str) -> Option<String> {
    let name = &port.name;
    Interface::find(machine).ok()?;
    let what = format!("port {name}: there is an interface {machine}; does another switch run?");
    Some(format!("{what} '--map {name}=NAME' makes it under another name"))
}

impl Found<'_> {
    /// What interfaces lack to be of use, though the switch can start.
    pub(super) fn warnings(&self) -> Vec<String> {
        let idle = self.ports.iter().filter(|(port, interface)| !interface.up && !port.is_up);
        idle.map(|(port, interface)| {
            let (name, machine) = (&port.name, &interface.name);
            format!("{machine} is down and hostname.{name} does not say 'up'; nothing passes port {name} until it is up")
        })
        .collect()
    }

    /// Takes the interfaces for this process and gives them the state that the files say.
    pub(super) fn take(&self) -> Vec<String> {
        let claimed = self.ports.iter().map(|(_, interface)| claim(interface));
        let mistakes: Vec<String> = claimed.filter_map(Result::err).collect();
        if !mistakes.is_empty() {
            return mistakes;
        }
        self.ports.iter().filter_map(|(port, interface)| set_up(port, interface).err()).collect()
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
    match port.is_up && !interface.up {
        true => interface.bring_up().map_err(|error| error.to_string()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bsd::etc::Kind;
    use crate::bsd::plan::Switch;

    fn plan(ports: &[&str]) -> Plan {
        let port = |name: &&str| {
            let kind = if Kind::of(name) == Kind::Door { PortKind::Door } else { PortKind::Link };
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
        look(&plan, &Map(&map), &mut mistakes);
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
        assert_eq!(loopback, "port cnmac77: lo is no Ethernet with an address; take another interface");
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
}
