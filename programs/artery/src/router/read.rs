//! From options to a plan, with everything that is wrong with their words.
use super::options::{RouterOptions, split};
use super::{Fpm, LEAST_IPV6_MTU, Neighbor, Plan, Port, PortSettings, Route, RouteTarget, Table};
use super::{bfd, pf, service};
use crate::options::values::station;
use artery_l3::router::ReversePath;
use artery_lpm::load::{self, AnyPrefix};
use std::net::IpAddr;

/// The value of a text, or the mistake in it.
type Read<T> = Result<T, String>;

/// The plan, as far as it makes sense; what does not is added to `mistakes`.
pub(super) fn plan(options: &RouterOptions, mistakes: &mut Vec<String>) -> Plan {
    let mut plan = read_values(options, mistakes);
    plan.sharing = service::sharing(options, mistakes);
    plan.filter = pf::read_filter(options, mistakes);
    plan.host = all(options.host_name().as_slice(), host, mistakes).pop();
    name_host_interfaces(options, &mut plan.ports, mistakes);
    service::set_checks(options, &mut plan.services, mistakes);
    service::name_elements(&mut plan.services, &Vec::new());
    service::judge(&plan, mistakes);
    service::place_addresses(&mut plan);
    plan
}

/// What single values say, each by itself.
fn read_values(options: &RouterOptions, mistakes: &mut Vec<String>) -> Plan {
    Plan {
        ports: all(&options.port, port, mistakes),
        routes: all(&options.route, route, mistakes),
        tables: all(&options.table, table, mistakes),
        fpm: options.fpm.map(|listen| Fpm { listen, hold: options.fpm_hold }),
        neighbors: all(&options.neighbor, neighbor, mistakes),
        bfd: all(&options.bfd, bfd::read, mistakes),
        services: all(&options.service, service::read, mistakes),
        has_host_routes: !options.no_host_routes,
        ..Plan::default()
    }
}

/// Mistakes in single values, whatever else is wrong.
pub(super) fn wrong_values(options: &RouterOptions) -> Vec<String> {
    let mut mistakes = Vec::new();
    read_values(options, &mut mistakes);
    mistakes
}

fn all<T>(texts: &[String], read: fn(&str) -> Read<T>, mistakes: &mut Vec<String>) -> Vec<T> {
    let mut good = Vec::new();
    for text in texts {
        match read(text) {
            Ok(one) => good.push(one),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    good
}

/// Names the host's interfaces of ports, if there are to be some.
fn name_host_interfaces(options: &RouterOptions, ports: &mut [Port], mistakes: &mut Vec<String>) {
    let Some(prefix) = &options.host_ports else {
        for port in ports.iter_mut() {
            if let Some(name) = port.host_interface.take() {
                mistakes.push(format!("{}: host-if={name} needs --host-ports; add it", port.option));
            }
        }
        return;
    };
    for port in ports {
        let name = port.host_interface.take().unwrap_or_else(|| format!("{prefix}{}", port.name));
        if !is_interface_name(&name) {
            mistakes.push(format!(
                "{}: the host's interface can't be called '{name}': a name has 1 to {LONGEST_NAME} letters \
                 and digits; write host-if=NAME behind the port's addresses, or --host-ports PREFIX",
                port.option
            ));
        }
        port.host_interface = Some(name);
    }
}

/// Parses a port, `NAME=ADDR/LEN[,ADDR/LEN]…[,mtu=BYTES][,rpf=off|loose|strict][,onlink][,host-if=NAME]`.
fn port(text: &str) -> Read<Port> {
    let (name, words) = split("--port", text, "NAME=ADDRESS/LENGTH, as in eth1=10.0.1.1/24")?;
    let option = format!("--port {text}");
    if name.contains(is_strange) {
        return Err(format!("{option}: '{name}' can't be written in a configuration; rename the interface"));
    }
    let (mut addresses, mut settings, mut host_interface) = (Vec::new(), PortSettings::default(), None);
    for word in words.split(',') {
        if let Some(name) = word.strip_prefix("host-if=") {
            host_interface = Some(name.to_string());
            continue;
        }
        let done = match parse_setting(word, &mut settings) {
            Some(done) => done,
            None => address(word).map(|address| addresses.push(address)),
        };
        done.map_err(|why| format!("{option}: {why}"))?;
    }
    if addresses.is_empty() {
        return Err(format!("{option}: {name} has no address; write one as in {name}=10.0.1.1/24,mtu=1400"));
    }
    let has_ipv6 = addresses.iter().any(|(address, _)| address.is_ipv6());
    if let Some(mtu) = settings.mtu.filter(|mtu| has_ipv6 && u32::from(*mtu) < LEAST_IPV6_MTU) {
        return Err(format!("{option}: mtu={mtu} is too short for IPv6; write mtu={LEAST_IPV6_MTU} or more"));
    }
    Ok(Port { option, name: name.to_string(), addresses, settings, host_interface, ..Port::default() })
}

/// Packets of IPv4 that no router may have to cut (RFC 791 section 3.2), in bytes.
const LEAST_IPV4_MTU: u16 = 68;

/// Takes a word that is a setting; none if it is an address.
fn parse_setting(word: &str, settings: &mut PortSettings) -> Option<Read<()>> {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    match (name, value) {
        ("mtu", _) => {
            settings.mtu = value.parse().ok().filter(|mtu| *mtu >= LEAST_IPV4_MTU);
            let wrong = || format!("{word}: an MTU is a number of bytes from {LEAST_IPV4_MTU} to 65535");
            return Some(settings.mtu.map(drop).ok_or_else(wrong));
        }
        ("rpf", "off") => settings.rpf = ReversePath::Off,
        ("rpf", "loose") => settings.rpf = ReversePath::Loose,
        ("rpf", "strict") => settings.rpf = ReversePath::Strict,
        ("rpf", _) => return Some(Err(format!("{word}: write rpf=off, rpf=loose or rpf=strict"))),
        ("onlink", "") => settings.onlink = true,
        _ if word.contains('=') => {
            return Some(Err(format!(
                "'{word}' is not a setting of a port; there are mtu=BYTES, rpf=loose|strict, onlink and \
                 host-if=NAME"
            )));
        }
        _ => return None,
    };
    Some(Ok(()))
}

/// What names in a configuration don't have.
fn is_strange(c: char) -> bool {
    !(c.is_ascii_alphanumeric() || "-_.@:".contains(c))
}

/// The name of an interface to be made.
fn host(name: &str) -> Read<String> {
    match is_interface_name(name) {
        true => Ok(name.to_string()),
        false => Err(format!(
            "--host {name}: an interface's name has 1 to {LONGEST_NAME} letters and digits, as artery0 has"
        )),
    }
}

fn is_interface_name(name: &str) -> bool {
    let is_name =
        (1..=LONGEST_NAME).contains(&name.len()) && !name.contains(is_strange) && !name.contains(':');
    is_name && name != "." && name != ".."
}

/// Bytes that Linux has room for in the name of an interface.
const LONGEST_NAME: usize = 15;

fn address(word: &str) -> Read<(IpAddr, u8)> {
    let (text, len) = match word.split_once('/') {
        Some((address, len)) => (address, Some(len)),
        None => (word, None),
    };
    let address: IpAddr = text
        .parse()
        .map_err(|_| format!("'{word}' is not a valid address; write it as 10.0.1.1/24 or 2001:db8::1/64"))?;
    let (usual, longest) = if address.is_ipv4() { (24, 32) } else { (64, 128) };
    let len = len.ok_or_else(|| {
        format!("{word} has no length: write how long the prefix of its network is, as in {word}/{usual}")
    })?;
    let len = len.parse().ok().filter(|len| *len <= longest);
    let len = len.ok_or_else(|| format!("{word}: the length of a prefix is a number from 0 to {longest}"))?;
    Ok((address, len))
}

/// Parses a route, `PREFIX=TARGET[,TARGET]…`.
pub(super) fn route(text: &str) -> Read<Route> {
    let (word, targets) = split("--route", text, "PREFIX=GATEWAY, as in 0.0.0.0/0=10.0.2.254")?;
    let option = format!("--route {text}");
    let wrong = |why| format!("{option}: {why}");
    let targets: Vec<RouteTarget> = targets.split(',').map(target).collect::<Read<_>>().map_err(wrong)?;
    let to_ipv6 =
        |target: &RouteTarget| matches!(target, RouteTarget::Gateway { address, .. } if address.is_ipv6());
    let prefix = prefix(word, targets.first().is_some_and(to_ipv6)).map_err(wrong)?;
    Ok(Route { option, prefix, targets })
}

/// A prefix; `default` is that of all addresses of the gateway's family.
fn prefix(word: &str, is_ipv6: bool) -> Read<AnyPrefix> {
    let word = if word == "default" && is_ipv6 { "::/0" } else { word };
    load::parse_prefix(word).map_err(|why| format!("'{word}' is not a valid prefix: {why}"))
}

fn target(word: &str) -> Read<RouteTarget> {
    if let Some(end) = ["blackhole", "unreachable", "prohibited"].into_iter().find(|end| *end == word) {
        return Ok(RouteTarget::End(end));
    }
    let (word, weight) = match word.split_once('@') {
        None => (word, 1),
        Some((target, weight)) => {
            let weight = weight.parse().ok().filter(|weight| *weight > 0);
            (
                target,
                weight.ok_or_else(|| format!("{word}: a weight is a number from 1 on, as in {target}@3"))?,
            )
        }
    };
    let (address, port) = match word.split_once('%') {
        Some((address, port)) => (address, Some(port.to_string())),
        None => (word, None),
    };
    match address.parse() {
        Ok(address) => Ok(RouteTarget::Gateway { address, port, weight }),
        Err(_) if port.is_none() && !word.is_empty() => {
            Ok(RouteTarget::Port { name: word.to_string(), weight })
        }
        Err(_) => Err(format!("'{word}' is not a valid gateway; write it as 10.0.2.254 or fe80::1%eth2")),
    }
}

/// Parses a table, `FILE[=GATEWAY,…]`.
fn table(text: &str) -> Read<Table> {
    let (file, gateways) = text.split_once('=').unwrap_or((text, ""));
    let option = format!("--table {text}");
    if file.is_empty() || file.contains([' ', '\t', '\n', ',', '"', '(', ')']) {
        return Err(format!(
            "{option}: '{file}' can't be written in a configuration; give the file another name"
        ));
    }
    let gateway = |word: &str| {
        let parsed = word.parse();
        parsed.map_err(|_| format!("{option}: '{word}' is not a valid gateway; write it as 10.0.2.254"))
    };
    let gateways = gateways.split(',').filter(|word| !word.is_empty()).map(gateway);
    Ok(Table { file: file.to_string(), gateways: gateways.collect::<Read<_>>()?, option: option.clone() })
}

/// Parses a neighbor, `PORT=ADDR=ETHER`.
fn neighbor(text: &str) -> Read<Neighbor> {
    const WANTS: &str = "PORT=ADDRESS=ETHER, as in eth1=10.0.1.9=02:00:00:00:00:09";
    let (port, rest) = split("--neighbor", text, WANTS)?;
    let option = format!("--neighbor {text}");
    let wrong = |what: &str| format!("{option}: '{what}' is wrong; write --neighbor {WANTS}");
    let (address, link) = rest.split_once('=').ok_or_else(|| wrong(rest))?;
    let link = station(link).map_err(|why| format!("{option}: {why}"))?;
    Ok(Neighbor {
        port: port.to_string(),
        address: address.parse().map_err(|_| wrong(address))?,
        link,
        option: option.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_addresses_of_both_families() {
        let port = port("eth1.5=10.0.1.1/24,2001:db8:1::1/64").unwrap();
        let expected = [("10.0.1.1", 24), ("2001:db8:1::1", 64)].map(|(ip, len)| (ip.parse().unwrap(), len));
        assert_eq!((port.name.as_str(), port.addresses), ("eth1.5", expected.to_vec()));
    }

    #[test]
    fn a_port_has_settings_among_its_addresses() {
        let settings = |text: &str| port(text).map(|port| port.settings);
        let expected = PortSettings { mtu: Some(1400), rpf: ReversePath::Strict, onlink: true };
        assert_eq!(settings("eth1=10.0.1.1/24,mtu=1400,rpf=strict,2001:db8:1::1/64,onlink"), Ok(expected));
        assert_eq!(settings("eth1=10.0.1.1/24"), Ok(PortSettings::default()));
        for (wrong, expected) in [
            ("eth1=10.0.1.1/24,mtu=67", "mtu=67: an MTU is a number of bytes from 68 to 65535"),
            ("eth1=10.0.1.1/24,rpf=on", "rpf=on: write rpf=off, rpf=loose or rpf=strict"),
            ("eth1=fd00::1/64,mtu=1000", "mtu=1000 is too short for IPv6; write mtu=1280 or more"),
            ("eth1=mtu=1400", "eth1 has no address; write one as in eth1=10.0.1.1/24,mtu=1400"),
            (
                "eth1=10.0.1.1/24,speed=10",
                "'speed=10' is not a setting of a port; there are mtu=BYTES, rpf=loose|strict, onlink and \
                 host-if=NAME",
            ),
        ] {
            assert_eq!(settings(wrong).unwrap_err(), format!("--port {wrong}: {expected}"));
        }
    }

    #[test]
    fn a_route_has_gateways_with_ports_and_weights_or_an_end() {
        let targets = |text: &str| route(text).unwrap().targets;
        let gateway = |address: &str, port: Option<&str>, weight| RouteTarget::Gateway {
            address: address.parse().unwrap(),
            port: port.map(str::to_string),
            weight,
        };
        let found = targets("10/8=10.0.2.7@3,fe80::1%eth2");
        assert_eq!(found, [gateway("10.0.2.7", None, 3), gateway("fe80::1", Some("eth2"), 1)]);
        assert_eq!(targets("10/8=eth2@2"), [RouteTarget::Port { name: "eth2".into(), weight: 2 }]);
        assert_eq!(targets("10/8=blackhole"), [RouteTarget::End("blackhole")]);
        let default = |text: &str| route(text).unwrap().prefix.to_string();
        assert_eq!(default("default=10.0.0.1"), "0.0.0.0/0");
        assert_eq!(default("default=fe80::1%a"), "::/0");
    }

    #[test]
    fn what_is_wrong_is_named_with_the_remedy() {
        for (wrong, expected) in [
            (port("eth1").map(drop), "--port eth1: write --port NAME=ADDRESS/LENGTH, as in eth1=10.0.1.1/24"),
            (
                port("eth1=10.0.1.1").map(drop),
                "--port eth1=10.0.1.1: 10.0.1.1 has no length: write how long the prefix of its network is, \
                 as in 10.0.1.1/24",
            ),
            (
                port("eth1=::1/129").map(drop),
                "--port eth1=::1/129: ::1/129: the length of a prefix is a number from 0 to 128",
            ),
            (
                port("a b=10.0.1.1/24").map(drop),
                "--port a b=10.0.1.1/24: 'a b' can't be written in a configuration; rename the interface",
            ),
            (
                route("10/8=10.0.0.1@0").map(drop),
                "--route 10/8=10.0.0.1@0: 10.0.0.1@0: a weight is a number from 1 on, as in 10.0.0.1@3",
            ),
            (
                neighbor("eth1=10.0.1.9").map(drop),
                "--neighbor eth1=10.0.1.9: '10.0.1.9' is wrong; write --neighbor PORT=ADDRESS=ETHER, as in \
                 eth1=10.0.1.9=02:00:00:00:00:09",
            ),
            (
                neighbor("eth1=10.0.1.9=0:0:0:0:0:0").map(drop),
                "--neighbor eth1=10.0.1.9=0:0:0:0:0:0: 0:0:0:0:0:0 is not a MAC address; write it as \
                 02:00:00:00:00:09",
            ),
            (
                host("a b").map(drop),
                "--host a b: an interface's name has 1 to 15 letters and digits, as artery0 has",
            ),
            (
                table("r.txt=nobody").map(drop),
                "--table r.txt=nobody: 'nobody' is not a valid gateway; write it as 10.0.2.254",
            ),
        ] {
            assert_eq!(wrong.unwrap_err(), expected);
        }
        let nonsense = route("10.0.0.0.0/8=10.0.0.1").unwrap_err();
        assert!(
            nonsense.starts_with("--route 10.0.0.0.0/8=10.0.0.1: '10.0.0.0.0/8' is not a valid prefix"),
            "{nonsense}"
        );
    }
}
