//! Checks a plan by the rules of the tables that a router would make of it.
use super::{Plan, Port, PortSettings, Route, RouteTarget, Table, bfd};
use artery_l3::PortId;
use artery_l3::next_hop::Selection;
use artery_l3::router::{self, OwnEngines, PortSpec, RouteSpec, RouterError, Settings, Tables, Target};
use artery_lpm::load::AnyPrefix;
use artery_lpm::{Pages, Policy, Prefix, TableError};
use artery_rcu::Domain;
use artery_wire::EtherAddr;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Neighbors that a table has room for while a plan is checked: its gateways.
const NEIGHBORS: usize = 4096;

/// Adds what contradicts itself to `mistakes`.
pub(super) fn judge(plan: &Plan, mistakes: &mut Vec<String>) {
    let mut tables = match empty_tables() {
        Ok(tables) => tables,
        Err(error) => return mistakes.push(error.to_string()),
    };
    // What needs ports would be blamed for those that are missing.
    let ports_are_good = mistakes.is_empty();
    plan.ports.iter().for_each(|port| add_port(&mut tables, port, mistakes));
    mistakes.extend(plan.host.as_deref().and_then(|host| host_as_port(host, &plan.ports)));
    mistakes.extend(shared_host_interfaces(&plan.ports));
    mistakes.extend(shared_prefixes(&plan.ports));
    if !ports_are_good {
        return;
    }
    plan.routes.iter().for_each(|route| mistakes.extend(add_route(&mut tables, route).err()));
    plan.tables.iter().for_each(|table| check_table(&mut tables, table, mistakes));
    bfd::judge(plan, &tables, mistakes);
    for neighbor in &plan.neighbors {
        let known = tables.find_port(&neighbor.port);
        let known = known.ok_or_else(|| no_such_port(&tables, &neighbor.port));
        let kind = artery_l3::neighbor::Kind::Static;
        let set = known.and_then(|port| {
            let set = tables.set_neighbor(port, neighbor.address, neighbor.link, kind, Duration::ZERO);
            set.map_err(|error| error.to_string())
        });
        mistakes.extend(set.err().map(|why| format!("{}: {why}", neighbor.option)));
    }
}

/// Tables that forward nothing: they have no FIB, and ordinary pages, as huge ones take a while to clear.
fn empty_tables() -> Result<Tables, TableError> {
    let settings = Settings {
        policy_v4: Policy::Art(None),
        policy_v6: Policy::Art(None),
        storage: Arc::new(Pages),
        most_neighbors: NEIGHBORS,
        ..Settings::default()
    };
    Tables::new(&Domain::new(), settings, |places, seed| Box::new(OwnEngines::new(places, seed)))
}

/// The names of the ports by which default routes leave that are among the routes of a plan.
pub(super) fn default_route_ports(plan: &Plan) -> Vec<String> {
    let Ok(mut tables) = empty_tables() else { return Vec::new() };
    // Mistakes in them are reported by `judge`.
    let mut mistakes = Vec::new();
    plan.ports.iter().for_each(|port| add_port(&mut tables, port, &mut mistakes));
    plan.routes.iter().for_each(|route| mistakes.extend(add_route(&mut tables, route).err()));
    let views = tables.ports();
    let name = |port: PortId| views.get(usize::from(port.0)).map(|view| view.name.clone());
    tables.default_route_ports().into_iter().filter_map(name).collect()
}

fn add_port(tables: &mut Tables, port: &Port, mistakes: &mut Vec<String>) {
    let blame = |why: &dyn std::fmt::Display| format!("{}: {why}", port.option);
    if tables.find_port(&port.name).is_some() {
        mistakes.push(blame(&format!("{} is a port already; give all its addresses at once", port.name)));
        return;
    }
    // Any address will do, if each has another.
    let number = (tables.ports().len() as u16).to_be_bytes();
    let link = EtherAddr([2, 0, 0, 0, number[0], number[1]]);
    let PortSettings { rpf, onlink, .. } = port.settings;
    let settings = router::PortSettings { rpf, onlink, ..router::PortSettings::default() };
    let id = match tables.add_port(PortSpec { settings, ..PortSpec::new(&port.name, link) }) {
        Ok(id) => id,
        Err(error) => return mistakes.push(blame(&error)),
    };
    for (address, len) in &port.addresses {
        mistakes.extend(tables.add_address(id, *address, *len).err().map(|error| blame(&error)));
    }
    for address in &port.virtual_addresses {
        let wrong = |error: RouterError| format!("--service {address}: {error}");
        mistakes.extend(tables.add_virtual_address(id, *address).err().map(wrong));
    }
}

/// The router makes the host's interface, so that can't be one of its ports.
fn host_as_port(host: &str, ports: &[Port]) -> Option<String> {
    let both = ports.iter().any(|port| port.name == host);
    both.then(|| format!("--host {host}: {host} is a port; give the host's interface a name of its own"))
}

/// Host ports that have the name of a port, or of one another.
fn shared_host_interfaces(ports: &[Port]) -> Vec<String> {
    let mut known: HashSet<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    let mut mistakes = Vec::new();
    for port in ports {
        let Some(interface) = &port.host_interface else { continue };
        if !known.insert(interface) {
            mistakes.push(format!(
                "{}: the host's interface {interface} has the name of a port or of another one; write \
                 host-if=NAME behind the port's addresses",
                port.option
            ));
        }
    }
    mistakes
}

/// Reports ports with the same prefix: a host could not be assigned to one of the links.
fn shared_prefixes(ports: &[Port]) -> Vec<String> {
    let mut known: Vec<(AnyPrefix, &str)> = Vec::new();
    let mut mistakes = Vec::new();
    for port in ports {
        for prefix in port.addresses.iter().map(|(address, len)| network(*address, *len)) {
            match known.iter().find(|(other, _)| *other == prefix) {
                None => known.push((prefix, &port.name)),
                Some((_, name)) if *name == port.name => {}
                Some((_, name)) => mistakes.push(format!(
                    "{}: {prefix} is the network of port {name}, too; give each port a network of its own",
                    port.option
                )),
            }
        }
    }
    mistakes
}

/// The prefix that an address is in.
fn network(address: IpAddr, len: u8) -> AnyPrefix {
    match address {
        IpAddr::V4(address) => AnyPrefix::V4(Prefix::of(address.to_bits(), len)),
        IpAddr::V6(address) => AnyPrefix::V6(Prefix::of(address.to_bits(), len)),
    }
}

fn add_route(tables: &mut Tables, route: &Route) -> Result<(), String> {
    let blame = |why: String| format!("{}: {why}", route.option);
    let next_hops: Result<Vec<_>, String> = route.targets.iter().map(|way| target(tables, way)).collect();
    let spec = RouteSpec { next_hops: next_hops.map_err(blame)?, selection: Selection::default() };
    tables.add_route(route.prefix, &spec, Duration::ZERO).map_err(|error| match error {
        RouterError::Exists(prefix) => blame(format!(
            "there is a route for {prefix} already; name all its gateways at once, with commas"
        )),
        error => blame(error.to_string()),
    })
}

fn target(tables: &Tables, way: &RouteTarget) -> Result<(Target, u32), String> {
    let port_of = |name: &String| tables.find_port(name).ok_or_else(|| no_such_port(tables, name));
    Ok(match way {
        RouteTarget::End("blackhole") => (Target::Blackhole, 1),
        RouteTarget::End("unreachable") => (Target::Unreachable, 1),
        RouteTarget::End(_) => (Target::Prohibited, 1),
        RouteTarget::Port { name, weight } => (Target::on_link(port_of(name)?), *weight),
        RouteTarget::Gateway { address, port, weight } => {
            let port = port.as_ref().map(port_of).transpose()?;
            (Target::Via { port, gateway: Some(*address), mtu: None }, *weight)
        }
    })
}

fn no_such_port(tables: &Tables, name: &str) -> String {
    let names: Vec<String> = tables.ports().into_iter().map(|port| port.name).collect();
    format!("'{name}' is neither an address nor a port of the router; its ports are {}", names.join(", "))
}

/// Why the file can't be read; None if it can.
fn unreadable(path: &str) -> Option<String> {
    match artery_device::files::open(path).and_then(|file| file.metadata()) {
        Err(error) => Some(artery_device::system_message(&error)),
        Ok(found) => found.is_dir().then(|| "a folder; name a file of routes in it".to_string()),
    }
}

/// A file is not read twice: its gateways are tried by a route of their own, and that it can
/// be opened is seen.
fn check_table(tables: &mut Tables, table: &Table, mistakes: &mut Vec<String>) {
    let blame = |why: String| format!("{}: {why}", table.option);
    mistakes.extend(unreadable(&table.file).map(|why| blame(format!("{}: {why}", table.file))));
    for gateway in &table.gateways {
        let all = if gateway.is_ipv4() { AnyPrefix::V4(Prefix::ALL) } else { AnyPrefix::V6(Prefix::ALL) };
        let tried = tables.replace_route(all, &RouteSpec::via(*gateway), Duration::ZERO);
        mistakes.extend(tried.err().map(|error| blame(error.to_string())));
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::RouterOptions;
    use super::super::read;
    use super::*;
    use clap::{Args as _, FromArgMatches as _};

    /// The mistakes in these options, apart from what the machine lacks.
    fn mistakes(options: &str) -> Vec<String> {
        let command = RouterOptions::augment_args(clap::Command::new("router").disable_help_flag(true));
        let words = std::iter::once("router").chain(options.split(' '));
        let options = RouterOptions::from_arg_matches(&command.get_matches_from(words)).unwrap();
        let mut mistakes = Vec::new();
        judge(&read::plan(&options, &mut mistakes), &mut mistakes);
        mistakes
    }

    const PORTS: &str = "--port a=10.0.1.1/24 --port b=10.0.2.1/24,2001:db8:2::1/64";

    #[test]
    fn a_sound_router_has_no_mistakes() {
        for rest in [
            "",
            "--route 0.0.0.0/0=10.0.2.254",
            "--route default=10.0.2.7@3,10.0.2.8 --route ::/0=2001:db8:2::9 --neighbor \
             b=10.0.2.7=2:0:0:0:0:7",
            "--route 10.9.0.0/16=b --route 10.8.0.0/16=blackhole --route 10.7/16=2001:db8:2::9",
            "--route 2001:db8:9::/48=fe80::1%a --bfd fe80::1%a=50ms --bfd fe80::1%b --bfd 10.0.2.7",
        ] {
            let options = format!("{PORTS} {rest}");
            assert_eq!(mistakes(options.trim()), Vec::<String>::new(), "{rest}");
        }
    }

    #[test]
    fn every_mistake_is_named_with_its_remedy() {
        let wrong = "--port a=10.0.1.1/24 --port b=10.0.1.2/24 --port c=10.0.3.0/24 --port a=10.0.4.1/24";
        let found = mistakes(wrong);
        assert_eq!(found.len(), 3, "{found:#?}");
        assert!(
            found[0].starts_with("--port c=10.0.3.0/24: 10.0.3.0/24: the first and last address"),
            "{found:#?}"
        );
        assert!(found[1].contains("a is a port already; give all its addresses at once"), "{found:#?}");
        assert!(
            found[2].starts_with("--port b=10.0.1.2/24: 10.0.1.0/24 is the network of port a, too"),
            "{found:#?}"
        );
        for (rest, expected) in [
            (
                "--route 0/0=10.0.9.254",
                "--route 0/0=10.0.9.254: gateway 10.0.9.254: no port has an address in a prefix with it",
            ),
            ("--route 0/0=10.0.2.1", "it is the router's own address, on port b"),
            ("--route ::/0=10.0.2.9", "IPv6 needs an IPv6 gateway"),
            ("--route 10/8=c", "'c' is neither an address nor a port of the router; its ports are a, b"),
            (
                "--route 10/8=b --route 10/8=a",
                "there is a route for 10.0.0.0/8 already; name all its gateways at once",
            ),
            ("--route 10/8=blackhole,b", "an end such as blackhole can't be one of several"),
            ("--neighbor c=10.0.1.9=2:0:0:0:0:1", "its ports are a, b"),
            ("--table /nonexistent=10.0.2.9", "/nonexistent: No such file or directory"),
            ("--table /=10.0.2.9", "/: a folder; name a file of routes in it"),
            (
                "--bfd 10.0.9.254",
                "--bfd 10.0.9.254: gateway 10.0.9.254: no port has an address in a prefix with it",
            ),
            ("--bfd 10.0.2.1", "it is the router's own address, on port b"),
            ("--bfd 10.0.2.7%a", "--bfd 10.0.2.7%a: gateway 10.0.2.7"),
            ("--bfd 10.0.2.7%c", "'c' is not a port of the router; its ports are a, b"),
            ("--bfd fe80::1", "--bfd fe80::1: gateway fe80::1"),
            ("--bfd 10.0.2.7 --bfd 10.0.2.7%b=50ms", "the gateway is watched already; give each one --bfd"),
            ("--host b", "--host b: b is a port; give the host's interface a name of its own"),
        ] {
            let found = mistakes(&format!("{PORTS} {rest}"));
            assert!(found.len() == 1 && found[0].contains(expected), "{rest}: {found:#?}");
        }
    }
}
