//! A plan as a configuration: what somebody would write by hand, with comments.
use super::{Plan, Port, Way, host, service};
use anyhow::anyhow;
use std::collections::HashSet;
use std::fmt::Write as _;

/// The text; `called` is the command that it stands for.
pub(super) fn configuration(plan: &Plan, called: &str) -> anyhow::Result<String> {
    let names = names(&plan.ports);
    let mut text = format!("// {}\n\n", called.replace('\n', " "));
    text += &router(plan);
    text += FORWARDERS;
    text += &service::text(plan);
    for (n, port) in plan.ports.iter().enumerate() {
        text += &port_text(n, port, &names[n], [service::way(plan, n), service::shortcuts(plan, n)]);
    }
    text += &odd(plan.ports.len());
    text += &host_text(plan);
    // What this makes is a configuration by construction; a name that broke it would be a mistake of ours.
    artery_lang::format(&text).map_err(|_| anyhow!("these options make no configuration:\n{text}"))
}

const FORWARDERS: &str = "
// Plain forwarding, each packet in one step. Port I of the router is input and output I of all three.
v4 :: IPForward(ip);
v6 :: IP6Forward(ip);
";

/// The ports' names as parts of elements' names, each another.
fn names(ports: &[Port]) -> Vec<String> {
    let mut taken = HashSet::new();
    let mut name = |(n, port): (usize, &Port)| {
        let plain: String =
            port.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        match taken.insert(plain.clone()) {
            true => plain,
            // No interface's name is as long.
            false => format!("{plain}_port_{n}"),
        }
    };
    ports.iter().enumerate().map(&mut name).collect()
}

fn router(plan: &Plan) -> String {
    let mut arguments = Vec::new();
    for port in &plan.ports {
        let addresses = port.addresses.iter().map(|(address, len)| format!(" {address}/{len}"));
        let mtu = port.mtu.map_or(String::new(), |mtu| format!(" MTU {}", mtu.min(65535)));
        let virtual_addresses = port.virtual_addresses.iter().map(|address| format!(" VIP {address}"));
        let all: String = addresses.chain(virtual_addresses).collect();
        arguments.push(format!("PORT {}{all}{mtu}", port.name));
    }
    if plan.host.is_some() {
        arguments.push(format!("HOST {}", host::LINK));
    }
    for neighbor in &plan.neighbors {
        arguments.push(format!("NEIGHBOR {} {} {}", neighbor.port, neighbor.address, neighbor.link));
    }
    for table in &plan.tables {
        let gateways = table.gateways.iter().map(|gateway| format!(" {gateway}"));
        arguments.push(format!("TABLE {}{}", table.file, gateways.collect::<String>()));
    }
    for route in &plan.routes {
        let ways = route.ways.iter().map(|way| format!(" {}", way_text(way)));
        arguments.push(format!("ROUTE {}{}", route.prefix, ways.collect::<String>()));
    }
    let comment = "// Ports, routes and neighbors. It does all but plain forwarding: it asks for neighbors and answers\n\
                   // them, answers pings, tells senders of packets that can't go on, and puts fragments together.";
    format!("{comment}\nip :: IPRouter(\n    {});\n", arguments.join(",\n    "))
}

fn way_text(way: &Way) -> String {
    let weighted =
        |way: String, weight: u32| if weight == 1 { way } else { format!("{way} weight {weight}") };
    match way {
        Way::End(end) => end.to_string(),
        Way::Port { name, weight } => weighted(name.clone(), *weight),
        Way::Gateway { address, port: None, weight } => weighted(address.to_string(), *weight),
        Way::Gateway { address, port: Some(port), weight } => weighted(format!("{address}%{port}"), *weight),
    }
}

/// What arrives at a port, on its way through services, and what leaves by it, also from there at once.
fn port_text(n: usize, port: &Port, name: &str, [way, shortcuts]: [String; 2]) -> String {
    // Neighbor Discovery is sent to groups that the interface would have to be told of.
    let promiscuous = if port.has_ipv6() { ", PROMISC true" } else { "" };
    format!(
        "
// Port {n}, {device}. The host does not see what arrives here.
from_{name} :: FromDevice({device}, SNIFFER false{promiscuous}) -> {way}in_{name} :: Classifier(12/0800, 12/86dd, -);
in_{name}[0] -> [{n}] v4;
in_{name}[1] -> [{n}] v6;
in_{name}[2] -> [{n}] ip;
v4[{n}], v6[{n}], ip[{n}]{shortcuts} -> to_{name} :: ToDevice({device});
",
        device = port.name
    )
}

/// What the forwarders leave to the router, back at the input of the port that it came by.
fn odd(ports: usize) -> String {
    let mut text = format!(
        "
// What is not plain goes to the input of the port that it came by, whose number is its paint.
v4[{ports}], v6[{ports}] -> odd :: PaintSwitch;
"
    );
    for n in 0..ports {
        let _ = writeln!(text, "odd[{n}] -> [{n}] ip;");
    }
    text
}

fn host_text(plan: &Plan) -> String {
    let host_port = plan.ports.len();
    let Some(name) = &plan.host else {
        return format!(
            "\n// There is no way to the host.\nIdle -> [{host_port}] ip;\nip[{host_port}] -> Discard;\n"
        );
    };
    let mut arguments = vec![name.clone(), format!("ETHER {}", host::LINK)];
    arguments.extend(host::mtu(plan).map(|mtu| format!("MTU {mtu}")));
    arguments.extend(host::addresses(plan).map(|(address, len)| format!("ADDRESS {address}/{len}")));
    arguments.extend(host::routes(plan).iter().map(|(prefix, gateway)| format!("ROUTE {prefix} {gateway}")));
    format!(
        "
// The host, by an interface of its own that bears the router's addresses.
from_host :: FromHost({}) -> [{host_port}] ip;
ip[{host_port}] -> to_host :: ToHost({name});
",
        arguments.join(",\n    ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str) -> Port {
        let (option, addresses, virtual_addresses) = Default::default();
        Port { option, name: name.to_string(), addresses, virtual_addresses, mtu: None }
    }

    #[test]
    fn names_of_elements_are_names_and_each_another() {
        assert_eq!(names(&["eth1", "br-a", "br.a"].map(port)), ["eth1", "br_a", "br_a_port_2"]);
    }
}
