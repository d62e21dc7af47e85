//! A plan as a configuration, with comments.
use super::etc::Kind;
use super::plan::{Plan, Port, PortKind, Switch};
use super::rules::USUAL_LOG_MAX;
use anyhow::anyhow;
use artery_lang::args::quote;
use std::collections::HashSet;

/// The text; `called` is the command that it stands for.
pub(super) fn configuration(plan: &Plan, called: &str) -> anyhow::Result<String> {
    let mut text = format!("// {}\n", called.replace('\n', " "));
    let mut names = Names::default();
    if let Some(router) = &plan.router {
        // Its ports have these names there.
        router.ports.iter().for_each(|port| drop(names.of(&port.name)));
    }
    for switch in &plan.switches {
        text += &switch_text(switch, plan);
        for (n, port) in switch.ports.iter().enumerate() {
            text += &port_text(switch, n, port, &names.of(&port.name));
        }
    }
    if let Some(router) = &plan.router {
        text += &format!("\n{}", router.elements());
    }
    // What this makes is a configuration by construction; a name that broke it would be a mistake of ours.
    artery_lang::format(&text).map_err(|_| anyhow!("these files make no configuration:\n{text}"))
}

/// Names of ports as parts of elements' names, each another.
#[derive(Default)]
struct Names(HashSet<String>);

impl Names {
    fn of(&mut self, port: &str) -> String {
        let plain: String = port.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        match self.0.insert(plain.clone()) {
            true => plain,
            // No interface's name is as long.
            false => format!("{plain}_of_the_switch_{}", self.0.len()),
        }
    }
}

fn switch_text(switch: &Switch, plan: &Plan) -> String {
    let kind =
        if switch.kind == Kind::Bridge { "A bridge: its packet filter is always on." } else { "A switch." };
    let description = switch.description.iter().map(|text| format!(" {}", comment(text))).collect::<String>();
    let ports = switch.ports.iter().map(|port| match port.kind {
        PortKind::Link => format!("PORT {}", port.name),
        PortKind::HostPort => format!("PORT {}{} vport", port.name, addresses(port)),
        PortKind::Span => format!("SPAN {}", port.name),
        // The filter around the router has it, that of the switch has not.
        PortKind::OfRouter | PortKind::Routed => format!("PORT {}", port.name),
    });
    // Numbers of ports are those of the arguments, and span ports come behind the others.
    let mut arguments: Vec<String> = ports.collect();
    if !switch.is_up {
        arguments.push("UP false".to_string());
    }
    if switch.kind == Kind::Bridge {
        arguments.push("LINK1 true".to_string());
    }
    if plan.router.is_none() {
        arguments.extend(filter_arguments(plan));
    }
    arguments
        .extend(switch.commands.iter().map(|command| format!("IFCONFIG {}", quote(&command.to_string()))));
    format!("\n// {kind}{description}\n{} :: Veb(\n    {});\n", switch.name, arguments.join(",\n    "))
}

fn filter_arguments(plan: &Plan) -> Vec<String> {
    let mut arguments: Vec<String> = plan.pf.iter().map(|pf| format!("PF {}", quote(&pf.file))).collect();
    let etc = plan.pf.iter().filter_map(|pf| pf.etc.as_ref());
    arguments.extend(etc.map(|etc| format!("PFETC {}", quote(etc))));
    arguments.extend(plan.pflog.iter().map(|log| format!("PFLOG {}", quote(log))));
    let is_unusual = plan.pflog.is_some() && !["", USUAL_LOG_MAX].contains(&plan.pflog_max.as_str());
    arguments.extend(is_unusual.then(|| format!("PFLOG_MAX {}", plan.pflog_max)));
    arguments
}

/// The addresses of a port, for rules that name it.
fn addresses(port: &Port) -> String {
    port.addresses.iter().map(|(address, length)| format!(" {address}/{length}")).collect()
}

/// What can stand in a comment.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn port_text(switch: &Switch, n: usize, port: &Port, name: &str) -> String {
    let number = port_number(switch, n);
    let (veb, device) = (&switch.name, &port.name);
    let description = port.description.iter().map(|text| format!(" {}", comment(text))).collect::<String>();
    match port.kind {
        PortKind::Link => {
            let (sees, sniffer) = match port.is_passed_through {
                true => ("What arrives here without a tag is the host's.", "untagged"),
                false => ("The host does not see what arrives here.", "false"),
            };
            format!(
                "
// Port {number}, {device}. {sees}{description}
from_{name} :: FromDevice({device}, SNIFFER {sniffer}, PROMISC true) -> [{number}] {veb};
{veb}[{number}] -> to_{name} :: ToDevice({device});
"
            )
        }
        PortKind::Span => format!(
            "
// Port {number}, {device}, gets a copy of all frames.{description}
Idle -> [{number}] {veb};
{veb}[{number}] -> to_{name} :: ToDevice({device});
"
        ),
        PortKind::HostPort => format!(
            "
// Port {number}, the host's own interface {device}.{description}
from_{name} :: FromHost({}) -> [{number}] {veb};
{veb}[{number}] -> to_{name} :: ToHost({device});
",
            host_port_arguments(port).join(", ")
        ),
        // The router's elements are its ends.
        PortKind::OfRouter | PortKind::Routed => String::new(),
    }
}

/// The arguments of a switch's host port.
fn host_port_arguments(port: &Port) -> Vec<String> {
    let mut arguments = vec![port.name.clone()];
    arguments.extend(port.station.map(|station| format!("ETHER {station}")));
    arguments.extend(port.mtu.map(|mtu| format!("MTU {mtu}")));
    arguments.extend(port.addresses.iter().map(|(address, len)| format!("ADDRESS {address}/{len}")));
    arguments
}

/// The number that the switch gives a port: span ports come behind the others.
pub(super) fn port_number(switch: &Switch, n: usize) -> usize {
    let is_span = |port: &&Port| port.kind == PortKind::Span;
    let spans_before = switch.ports[..n].iter().filter(is_span).count();
    match is_span(&&switch.ports[n]) {
        true => switch.ports.iter().filter(|port| !is_span(port)).count() + spans_before,
        false => n - spans_before,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bsd::plan::Port;

    fn switch(ports: &[(&str, PortKind)]) -> Switch {
        let ports = ports.iter().map(|(name, kind)| Port::new(name.to_string(), *kind)).collect();
        Switch {
            name: "veb0".into(),
            kind: Kind::Veb,
            is_up: true,
            description: None,
            ports,
            commands: Vec::new(),
        }
    }

    #[test]
    fn span_ports_come_behind_the_others() {
        use PortKind::{HostPort, Link, Span};
        let switch =
            switch(&[("em0", Link), ("em1", Span), ("vport0", HostPort), ("em2", Span), ("em3", Link)]);
        let numbers: Vec<usize> = (0..5).map(|n| port_number(&switch, n)).collect();
        assert_eq!(numbers, [0, 3, 1, 4, 2]);
    }

    #[test]
    fn names_of_elements_are_names_and_each_another() {
        let mut names = Names::default();
        let found = ["em0", "br-a", "br.a"].map(|name| names.of(name));
        assert_eq!(found, ["em0", "br_a", "br_a_of_the_switch_2"]);
    }
}
