//! The modifiers of BSD's route(8), as in `route add -net 10.0.0.0 -netmask 255.0.0.0 192.0.2.1`.
use super::bsd_table::{Fate, Kind, Ports, is_host, short_prefix, with_length, with_scope};
use crate::bsd::length_of_mask;
use std::net::{IpAddr, Ipv4Addr};

/// What a router has no use for, and what to do about it.
const REFUSED: [(&str, &str); 6] = [
    ("-label", "routes have no labels here; leave it out"),
    ("-expire", "routes do not expire here; delete the route when it is no longer wanted"),
    ("-hopcount", "routes have no hop count here; leave it out"),
    ("-link", "a gateway is an IP address here; 'artery neighbor add' sets link addresses"),
    ("-mpls", "labels of MPLS are not forwarded here"),
    ("-genmask", "routes are not cloned here; leave it out"),
];
/// Words that are the default anyway, or follow from the others.
const IDLE: [&str; 6] = ["-static", "-cloning", "-nocloning", "-lock", "-lockrest", "-inet"];

/// What the words behind `add`, `change` or `delete` say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BsdRoute {
    /// The destination as it was written.
    pub(super) destination: String,
    /// Whether it is a host.
    pub(super) is_host: bool,
    /// The destination and its length.
    pub(super) prefix: Option<(IpAddr, u8)>,
    pub(super) gateway: Option<String>,
    /// The port that packets leave by.
    pub(super) port: Option<String>,
    /// The router's own address on that port.
    own: Option<IpAddr>,
    /// Whether the gateway is an interface, or its address.
    is_interface: bool,
    fate: Option<&'static str>,
    pub(super) is_multipath: bool,
    mtu: Option<u16>,
}

/// Whether words are those of BSD: one is a modifier.
pub(super) fn are_bsd(words: &[String]) -> bool {
    words.iter().any(|word| word.starts_with('-'))
}

/// Reads words of BSD.
pub(super) fn read(words: &[String]) -> Result<BsdRoute, String> {
    let (mut route, mut positions) = (BsdRoute::default(), Vec::new());
    let (mut family, mut is_net, mut mask, mut length) = (None, None, None, None);
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let mut value =
            || words.next().ok_or_else(|| format!("'{word}' is the last word; its value is missing"));
        match word {
            "-inet" | "-inet6" => family = Some(word == "-inet6"),
            "-net" | "-host" => is_net = Some(word == "-net"),
            "-netmask" => mask = Some(value()?),
            "-prefixlen" => length = Some(number::<u8>(word, value()?)?),
            "-mpath" => route.is_multipath = true,
            "-priority" => check_priority(value()?)?,
            "-ifp" | "-interface" => route.port = Some(value()?.to_string()),
            "-ifa" => route.own = Some(address(value()?)?),
            "-iface" => route.is_interface = true,
            "-gateway" => positions.insert(positions.len().min(1), value()?),
            "-blackhole" => route.fate = Some("blackhole"),
            "-reject" => route.fate = Some("unreachable"),
            "-mtu" => route.mtu = Some(number(word, value()?)?),
            "-T" if value()? == "0" => (),
            "-T" => return Err("there is one routing table, 0".into()),
            _ if IDLE.contains(&word) => (),
            _ if word.starts_with('-') => return Err(refusal(word)),
            _ => positions.push(word),
        }
    }
    let (destination, gateway) = match positions[..] {
        [] => return Err("which destination? write it as 10.9.0.0/16, 10.9/16 or default".into()),
        [destination] => (destination, None),
        [destination, gateway] => (destination, Some(gateway)),
        [destination, gateway, netmask] => {
            mask = Some(netmask);
            (destination, Some(gateway))
        }
        [.., more] => {
            return Err(format!("'{more}' is one word too many; a route is DESTINATION GATEWAY [MASK]"));
        }
    };
    let prefix = prefix(destination, (family == Some(true), is_net), mask, length, gateway)?;
    route.is_host = is_net != Some(true) && is_host(prefix);
    (route.destination, route.prefix, route.gateway) =
        (destination.to_string(), Some(prefix), gateway.map(str::to_string));
    Ok(route)
}

impl BsdRoute {
    /// The destination with its length, as the router's handlers take it.
    pub(super) fn prefix_text(&self) -> String {
        self.prefix.map_or(String::new(), |(address, length)| format!("{address}/{length}"))
    }

    /// The route's target, as the router's handlers take it; `ports` gives our own addresses.
    pub(super) fn target(&self, ports: &Ports) -> Result<String, String> {
        if let Some(fate) = self.fate {
            return Ok(fate.to_string());
        }
        let port = match (&self.port, self.own) {
            (Some(port), _) => Some(port.clone()),
            (None, Some(own)) => Some(of_address(own, ports)?),
            (None, None) => None,
        };
        let gateway = self.gateway.as_deref();
        let mtu = self.mtu.map_or(String::new(), |mtu| format!(" mtu {mtu}"));
        let target = match (gateway, self.is_interface) {
            (None, _) => port.ok_or_else(|| {
                format!("where does {} lead? name a gateway, or a port by -ifp", self.destination)
            })?,
            (Some(name), _) if ports.has(name) => name.to_string(),
            (Some(own), true) => of_address(address(own)?, ports)?,
            (Some(gateway), false) => {
                address(gateway.split('%').next().unwrap_or(gateway))?;
                match port.filter(|_| !gateway.contains('%')) {
                    Some(port) => format!("{gateway}%{port}"),
                    None => gateway.to_string(),
                }
            }
        };
        Ok(target + &mtu)
    }

    /// What route(8) says of it: `add net 10/8: gateway 192.0.2.1`.
    pub(super) fn said(&self, verb: &str) -> String {
        let kind = if self.is_host { "host" } else { "net" };
        let gateway = self.gateway.as_ref().map_or(String::new(), |gateway| format!(": gateway {gateway}"));
        format!("{verb} {kind} {}{gateway}", self.destination)
    }
}

fn refusal(word: &str) -> String {
    match REFUSED.iter().find(|(refused, _)| *refused == word) {
        Some((_, why)) => format!("{word}: {why}"),
        None => format!("'{word}' is not a modifier of a route here; 'artery help route' lists them"),
    }
}

fn check_priority(word: &str) -> Result<(), String> {
    match word {
        "8" | "static" => Ok(()),
        _ => Err(format!(
            "-priority {word}: routes that are set by hand have priority 8 (static); leave it out"
        )),
    }
}

fn number<T: std::str::FromStr>(word: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{word} {text}: not a number that it can have"))
}

fn address(word: &str) -> Result<IpAddr, String> {
    word.parse()
        .map_err(|_| format!("'{word}' is not a valid IP address; write it as 192.0.2.1 or 2001:db8::1"))
}

fn of_address(own: IpAddr, ports: &Ports) -> Result<String, String> {
    let port = ports.with_address(own).map(str::to_string);
    port.ok_or_else(|| format!("no port has the address {own}; 'artery show ports' lists them"))
}

/// A destination with its length: as written behind a slash, by -netmask or -prefixlen, or else by the
/// numbers that were written, or by the class of the network.
fn prefix(
    word: &str,
    (is_ipv6, is_net): (bool, Option<bool>),
    mask: Option<&str>,
    length: Option<u8>,
    gateway: Option<&str>,
) -> Result<(IpAddr, u8), String> {
    let wrong = || format!("'{word}' is not a destination; write it as 10.9.0.0/16, 10.9/16 or default");
    if word == "default" {
        let is_ipv6 = is_ipv6 || gateway.is_some_and(|gateway| gateway.contains(':'));
        let any: &str = if is_ipv6 { "::" } else { "0.0.0.0" };
        return Ok((any.parse().map_err(|_| wrong())?, 0));
    }
    let (text, behind_slash) = match word.split_once('/') {
        Some((text, length)) => (text, Some(number::<u8>("/", length).map_err(|_| wrong())?)),
        None => (word, None),
    };
    let (address, written) = octets(text).ok_or_else(wrong)?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let of_mask =
        mask.map(|mask| length_of_mask(mask, false).ok_or_else(|| format!("'{mask}' is not a netmask")));
    let said = behind_slash.or(length).map(Ok).or(of_mask).transpose()?;
    let length = match (said, is_net, address) {
        (Some(length), ..) => length,
        (None, Some(false), _) => longest,
        (None, _, _) if written < 4 => 8 * written as u8,
        (None, Some(true), IpAddr::V4(address)) => class_length(address),
        (None, Some(true), IpAddr::V6(_)) => 64,
        (None, None, _) => longest,
    };
    if length > longest {
        return Err(wrong());
    }
    Ok((artery_filter::names::mask_address(address, length), length))
}

/// An address, of IPv4 with as many numbers as are written; and how many these are.
fn octets(text: &str) -> Option<(IpAddr, usize)> {
    if text.contains(':') {
        return Some((text.parse().ok()?, 4));
    }
    let mut octets = [0; 4];
    let mut count = 0;
    for part in text.split('.') {
        *octets.get_mut(count)? = part.parse().ok()?;
        count += 1;
    }
    Some((IpAddr::V4(octets.into()), count))
}

/// The length that networks had before lengths were written.
fn class_length(address: Ipv4Addr) -> u8 {
    match address.octets()[0] {
        0..128 => 8,
        128..192 => 16,
        _ => 24,
    }
}

/// A looked-up route in the layout of `route get`.
pub(super) fn got(document: &serde_json::Value, ports: &Ports) -> String {
    use crate::ip_router::text;
    let prefix = with_length(&text(document, "prefix"));
    let chosen = &document["chosen"];
    let (hop, port) = (text(chosen, "next_hop"), text(chosen, "port"));
    let own = ports.address(&port, prefix).map(|own| own.to_string()).unwrap_or_default();
    let kind = Fate::of(&text(document, "type"));
    let source = text(document, "source");
    let has_gateway = list_gateway(document);
    let destination =
        prefix.map_or(
            String::new(),
            |prefix| if prefix.1 == 0 { short_prefix(prefix) } else { prefix.0.to_string() },
        );
    let mask = prefix.map_or(String::new(), mask_text);
    let gateway = if has_gateway { with_scope(&hop, &port) } else { own.clone() };
    let (priority, name) = Kind::of_source(&source).priority();
    let is_host = prefix.is_some_and(is_host);
    let flags = [
        (true, "UP"),
        (has_gateway, "GATEWAY"),
        (is_host, "HOST"),
        (kind == Fate::Reject, "REJECT"),
        (true, "DONE"),
        (source == "static", "STATIC"),
        (kind == Fate::Blackhole, "BLACKHOLE"),
        (document["next_hops"].as_array().is_some_and(|hops| hops.len() > 1), "MPATH"),
        (source == "local", "LOCAL"),
        (source == "broadcast", "BROADCAST"),
        (source == "connected", "CONNECTED"),
    ];
    let flags: Vec<&str> = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
    let mtu = chosen["mtu"].as_u64().unwrap_or(0);
    let priority = format!("{priority} ({name})");
    let flags = format!("<{}>", flags.join(","));
    let lines = [
        ("route to", text(document, "dst")),
        ("destination", destination),
        ("mask", mask),
        ("gateway", gateway),
        ("interface", port),
        ("if address", own),
        ("priority", priority),
        ("flags", flags),
    ];
    let shown = lines.iter().filter(|(_, value)| !value.is_empty());
    let lines: String = shown.map(|(label, value)| format!("{label:>11}: {value}\n")).collect();
    lines + &format!("{:>8}  {:>8}  {:>8}\n{:>8}  {mtu:>8}  {:>8}\n", "use", "mtu", "expire", 0, 0)
}

/// Whether a route leads to a gateway.
fn list_gateway(document: &serde_json::Value) -> bool {
    crate::ip_router::list(document, "next_hops").iter().any(|hop| hop["gateway"].is_string())
}

fn mask_text((address, length): (IpAddr, u8)) -> String {
    let ones = match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::BROADCAST),
        IpAddr::V6(_) => IpAddr::V6([0xffff; 8].into()),
    };
    match length {
        0 => "default".to_string(),
        _ => artery_filter::names::mask_address(ones, length).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bsd_table::example_ports;
    use super::*;
    use serde_json::json;

    fn route(text: &str) -> Result<String, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_string).collect();
        let route = read(&words)?;
        Ok(format!("{} {} | {}", route.prefix_text(), route.target(&example_ports())?, route.said("add")))
    }

    #[test]
    fn modifiers_say_what_they_say_on_bsd() {
        for (text, expected) in [
            ("-inet -net 10/8 192.0.2.9", "10.0.0.0/8 192.0.2.9 | add net 10/8: gateway 192.0.2.9"),
            (
                "-net 10.0.0.0 -netmask 255.0.0.0 192.0.2.9",
                "10.0.0.0/8 192.0.2.9 | add net 10.0.0.0: gateway 192.0.2.9",
            ),
            (
                "-net 172.16.0.0 192.0.2.9 255.240.0.0",
                "172.16.0.0/12 192.0.2.9 | add net 172.16.0.0: gateway 192.0.2.9",
            ),
            (
                "-net 192.168.7.0 192.0.2.9",
                "192.168.7.0/24 192.0.2.9 | add net 192.168.7.0: gateway 192.0.2.9",
            ),
            ("-net 10.9 192.0.2.9", "10.9.0.0/16 192.0.2.9 | add net 10.9: gateway 192.0.2.9"),
            ("-host 10.9.1.2 192.0.2.9", "10.9.1.2/32 192.0.2.9 | add host 10.9.1.2: gateway 192.0.2.9"),
            ("-inet6 default fe80::9 -ifp em0", "::/0 fe80::9%em0 | add net default: gateway fe80::9"),
            (
                "-inet6 2001:db8:9:: -prefixlen 48 2001:db8::9",
                "2001:db8:9::/48 2001:db8::9 | add net 2001:db8:9::: gateway 2001:db8::9",
            ),
            (
                "-net 10/8 192.0.2.9 -mtu 1400 -lock",
                "10.0.0.0/8 192.0.2.9 mtu 1400 | add net 10/8: gateway 192.0.2.9",
            ),
            ("-net 10/8 -iface em1", "10.0.0.0/8 em1 | add net 10/8: gateway em1"),
            ("-net 10/8 -iface 10.8.0.1", "10.0.0.0/8 em1 | add net 10/8: gateway 10.8.0.1"),
            (
                "-net 10/8 192.0.2.9 -ifa 192.0.2.1",
                "10.0.0.0/8 192.0.2.9%em0 | add net 10/8: gateway 192.0.2.9",
            ),
            ("-net 10/8 127.0.0.1 -blackhole", "10.0.0.0/8 blackhole | add net 10/8: gateway 127.0.0.1"),
            ("-net 10/8 127.0.0.1 -reject", "10.0.0.0/8 unreachable | add net 10/8: gateway 127.0.0.1"),
            (
                "-net 10/8 -gateway 192.0.2.9 -priority 8 -static -T 0",
                "10.0.0.0/8 192.0.2.9 | add net 10/8: gateway 192.0.2.9",
            ),
        ] {
            assert_eq!(route(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_so_here_is_refused_with_the_remedy() {
        for (text, expected) in [
            ("-net 10/8 192.0.2.9 -label x", "-label: routes have no labels here"),
            ("-net 10/8 192.0.2.9 -priority 48", "-priority 48: routes that are set by hand"),
            ("-net 10/8 192.0.2.9 -T 1", "there is one routing table"),
            ("-net", "which destination?"),
            ("-net 10/8", "where does 10/8 lead?"),
            ("-net 10/33 192.0.2.9", "'10/33' is not a destination"),
            ("-net 10.300 192.0.2.9", "'10.300' is not a destination"),
            ("-net 10/8 em7", "'em7' is not a valid IP address"),
            ("-net 10/8 192.0.2.9 -frob", "'-frob' is not a modifier"),
            ("-net 10/8 192.0.2.9 255.0.0.0 more", "'more' is one word too many"),
            ("-net 10/8 192.0.2.9 -netmask", "'-netmask' is the last word"),
        ] {
            assert!(route(text).unwrap_err().starts_with(expected), "{text}: {:?}", route(text));
        }
    }

    #[test]
    fn a_looked_up_route_stands_as_on_bsd() {
        let document = json!({ "dst": "10.9.1.2", "prefix": "10.9.0.0/16", "source": "static",
            "type": "unicast",
            "outcome": "forward", "next_hops": [{ "gateway": "192.0.2.7", "state": "up" }],
            "chosen": { "next_hop": "192.0.2.7", "port": "em0", "state": "REACHABLE", "mtu": 1500 } });
        let expected = "   route to: 10.9.1.2
destination: 10.9.0.0
       mask: 255.255.0.0
    gateway: 192.0.2.7
  interface: em0
 if address: 192.0.2.1
   priority: 8 (static)
      flags: <UP,GATEWAY,DONE,STATIC>
     use       mtu    expire
       0      1500         0
";
        assert_eq!(got(&document, &example_ports()), expected);
    }
}
