//! Routes in the layout of OpenBSD's `route show` and `netstat -rn`.
use crate::ip_router::{IpRouter, RouterReach, list, text};
use crate::output::{OutputReader, print_on};
use artery_filter::names::mask_address;
use serde_json::Value;
use std::collections::HashMap;
use std::net::IpAddr;

/// Routes that are requested at a time.
const PAGE: usize = 10_000;

/// Priorities of routes (route(8)); lower ones go first. One that is down has [`DOWN`] added.
const LOCAL: u32 = 1;
const CONNECTED: u32 = 4;
const STATIC: u32 = 8;
const OSPF: u32 = 32;
const ISIS: u32 = 36;
const RIP: u32 = 40;
const BGP: u32 = 48;
const DEFAULT: u32 = 56;
const DOWN: u32 = 0x80;

/// A family of addresses, as BSD's tools name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Inet,
    Inet6,
}

impl Family {
    pub(crate) const ALL: [Family; 2] = [Family::Inet, Family::Inet6];

    /// The family of `inet` or `inet6`.
    pub(crate) fn named(word: &str) -> Option<Family> {
        match word {
            "inet" => Some(Family::Inet),
            "inet6" => Some(Family::Inet6),
            _ => None,
        }
    }

    fn title(self) -> &'static str {
        if self == Family::Inet { "Internet" } else { "Internet6" }
    }

    /// How wide destinations and gateways are.
    fn widths(self) -> (usize, usize) {
        if self == Family::Inet { (18, 18) } else { (43, 39) }
    }

    /// Where packets go that a route drops.
    fn loopback(self) -> &'static str {
        if self == Family::Inet { "127.0.0.1" } else { "::1" }
    }

    /// As the router's listing names it.
    pub(super) fn digit(self) -> char {
        if self == Family::Inet { '4' } else { '6' }
    }
}

/// Prints the routes of families, until the reader goes away.
pub(crate) fn show(reach: &RouterReach, families: &[Family]) -> anyhow::Result<u8> {
    let mut router = IpRouter::find(reach)?;
    let ports = Ports::of(&router.query("ports_json", "")?);
    if print_on("Routing tables\n")? == OutputReader::Gone {
        return Ok(0);
    }
    for family in families {
        let mut text = format!("\n{}:\n{}", family.title(), table_header(*family));
        let mut has_more = true;
        let mut after = String::new();
        while has_more {
            let page = router.query("routes_json", &format!("{}{after} limit {PAGE}", family.digit()))?;
            text += &list(&page, "routes")
                .iter()
                .map(|route| format_rows(*family, route, &ports))
                .collect::<String>();
            if print_on(&std::mem::take(&mut text))? == OutputReader::Gone {
                return Ok(0);
            }
            let next = self::text(&page, "next");
            has_more = !next.is_empty();
            after = format!(" after {next}");
        }
    }
    Ok(0)
}

fn table_header(family: Family) -> String {
    let (destination, gateway) = family.widths();
    format!(
        "{:<destination$} {:<gateway$} {:<6} {:>5} {:>8} {:>5}  {:>4} {}\n",
        "Destination", "Gateway", "Flags", "Refs", "Use", "Mtu", "Prio", "Iface"
    )
}

/// Attributes of a port that the table shows.
#[derive(Default)]
struct Port {
    link: String,
    addresses: Vec<(IpAddr, u8)>,
}

/// The router's ports by name.
#[derive(Default)]
pub(super) struct Ports(HashMap<String, Port>);

impl Ports {
    pub(super) fn of(document: &Value) -> Ports {
        let port = |port: &Value| {
            let addresses = list(port, "addresses").iter().filter_map(Value::as_str).filter_map(with_length);
            (text(port, "name"), Port { link: text(port, "lladdr"), addresses: addresses.collect() })
        };
        Ports(list(document, "ports").iter().map(port).collect())
    }

    /// Of a router that does not run yet.
    pub(super) fn planned<'a>(ports: impl IntoIterator<Item = (&'a str, &'a [(IpAddr, u8)])>) -> Ports {
        let port = |(name, addresses): (&str, &[(IpAddr, u8)])| {
            (name.to_string(), Port { link: String::new(), addresses: addresses.to_vec() })
        };
        Ports(ports.into_iter().map(port).collect())
    }

    /// The router's own address on a port that is in a prefix, or else of its family.
    pub(super) fn address(&self, port: &str, prefix: Option<(IpAddr, u8)>) -> Option<IpAddr> {
        let all = &self.0.get(port)?.addresses;
        let is_alike = |(own, _): &&(IpAddr, u8)| prefix.is_none_or(|(of, _)| of.is_ipv4() == own.is_ipv4());
        let is_within = |own: &&(IpAddr, u8)| {
            prefix.is_some_and(|(prefix, length)| mask_address(own.0, length) == mask_address(prefix, length))
        };
        let found = all.iter().find(is_within).or_else(|| all.iter().find(is_alike));
        found.map(|(own, _)| *own)
    }

    /// The port that has an address, if one does.
    pub(super) fn with_address(&self, address: IpAddr) -> Option<&str> {
        let has = |port: &Port| port.addresses.iter().any(|(own, _)| *own == address);
        self.0.iter().find(|(_, port)| has(port)).map(|(name, _)| name.as_str())
    }

    /// Whether a port is called so.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn link(&self, port: &str) -> String {
        self.0.get(port).map_or(String::new(), |port| port.link.clone())
    }
}

/// Parses `ADDRESS/LENGTH`; the length is not checked.
pub(super) fn with_length(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    Some((address.parse().ok()?, length.parse().ok()?))
}

/// What a route is, by its source and what becomes of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Local,
    Broadcast,
    Connected,
    Static,
    /// A routing daemon's, with its priority and what route(8) calls that.
    Dynamic(u32, &'static str),
}

impl Kind {
    /// None for those that every router has.
    fn of(route: &Value) -> Option<Kind> {
        match route["source"].as_str()? {
            "built-in" => None,
            source => Some(Kind::of_source(source)),
        }
    }

    /// By the source that the router says.
    pub(super) fn of_source(source: &str) -> Kind {
        match source {
            "local" => Kind::Local,
            "broadcast" => Kind::Broadcast,
            "connected" => Kind::Connected,
            "static" | "built-in" => Kind::Static,
            "ospf" => Kind::Dynamic(OSPF, "ospf"),
            "isis" => Kind::Dynamic(ISIS, "isis"),
            "rip" | "ripng" => Kind::Dynamic(RIP, "rip"),
            "bgp" => Kind::Dynamic(BGP, "bgp"),
            _ => Kind::Dynamic(DEFAULT, "default"),
        }
    }

    /// Its priority, and what route(8) calls it.
    pub(super) fn priority(self) -> (u32, &'static str) {
        match self {
            Kind::Local | Kind::Broadcast => (LOCAL, "local"),
            Kind::Connected => (CONNECTED, "connected"),
            Kind::Static => (STATIC, "static"),
            Kind::Dynamic(priority, name) => (priority, name),
        }
    }
}

/// A row for each next hop of a route.
fn format_rows(family: Family, route: &Value, ports: &Ports) -> String {
    let (Some(kind), Some(prefix)) = (Kind::of(route), with_length(&text(route, "dst"))) else {
        return String::new();
    };
    let hops = list(route, "next_hops");
    let is_multipath = hops.len() > 1;
    let row =
        |hop: &Value| format_row(family, (kind, prefix), (&text(route, "type"), hop), is_multipath, ports);
    hops.iter().map(row).collect()
}

fn format_row(
    family: Family,
    (kind, prefix): (Kind, (IpAddr, u8)),
    (becomes, hop): (&str, &Value),
    is_multipath: bool,
    ports: &Ports,
) -> String {
    let (gateway, port) = (text(hop, "gateway"), text(hop, "port"));
    let is_up = hop["state"] != "down";
    let fate = Fate::of(becomes);
    let has_gateway = !gateway.is_empty() || matches!(fate, Fate::Reject | Fate::Blackhole);
    let own = || ports.address(&port, Some(prefix)).map_or_else(|| port.clone(), |own| own.to_string());
    let shown = match kind {
        Kind::Local => ports.link(&port),
        _ if !gateway.is_empty() => with_scope(&gateway, &port),
        _ if has_gateway => family.loopback().to_string(),
        _ => own(),
    };
    let interface = if fate == Fate::Forward || !port.is_empty() { port.clone() } else { "lo0".to_string() };
    let flags = flag_letters(kind, fate, [is_up, has_gateway, is_host(prefix), is_multipath]);
    let priority = kind.priority().0 + if is_up { 0 } else { DOWN };
    let mtu = text(hop, "mtu");
    let (destination, wide) = family.widths();
    format!(
        "{:<destination$} {shown:<wide$} {flags:<6} {:>5} {:>8} {:>5}   {priority:>3} {interface:<5}\n",
        if is_host(prefix) { with_scope(&short_prefix(prefix), &port) } else { short_prefix(prefix) },
        0,
        0,
        if mtu.is_empty() { "-" } else { &mtu },
    )
}

/// An address, with its interface if it is a link-local one.
pub(super) fn with_scope(address: &str, port: &str) -> String {
    let is_of_link =
        address.parse::<std::net::Ipv6Addr>().is_ok_and(|address| address.is_unicast_link_local());
    if is_of_link { format!("{address}%{port}") } else { address.to_string() }
}

pub(super) fn is_host((address, length): (IpAddr, u8)) -> bool {
    length == if address.is_ipv4() { 32 } else { 128 }
}

/// What becomes of a route's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Forward,
    Reject,
    Blackhole,
}

impl Fate {
    pub(super) fn of(kind: &str) -> Fate {
        match kind {
            "blackhole" => Fate::Blackhole,
            "unreachable" | "prohibit" | "prohibited" => Fate::Reject,
            _ => Fate::Forward,
        }
    }
}

/// Letters of flags, in the order of netstat(1).
fn flag_letters(kind: Kind, fate: Fate, [is_up, has_gateway, is_host, is_multipath]: [bool; 4]) -> String {
    let letters = [
        (is_up, 'U'),
        (has_gateway, 'G'),
        (is_host, 'H'),
        (fate == Fate::Reject, 'R'),
        (kind == Kind::Connected, 'C'),
        (kind == Kind::Local, 'L'),
        (kind == Kind::Static, 'S'),
        (fate == Fate::Blackhole, 'B'),
        (is_multipath, 'P'),
        (kind == Kind::Local, 'l'),
        (kind == Kind::Broadcast, 'b'),
        (kind == Kind::Connected, 'n'),
    ];
    letters.iter().filter(|(is_set, _)| *is_set).map(|(_, letter)| *letter).collect()
}

/// A destination as BSD writes it: `10.8/16`, `192.0.2.1`, `default`.
pub(super) fn short_prefix((address, length): (IpAddr, u8)) -> String {
    match (address, length) {
        (_, 0) => "default".to_string(),
        _ if is_host((address, length)) => address.to_string(),
        (IpAddr::V4(address), _) => {
            let octets = address.octets().map(|octet| octet.to_string());
            format!("{}/{length}", octets[..usize::from(length).div_ceil(8)].join("."))
        }
        (IpAddr::V6(address), _) => format!("{address}/{length}"),
    }
}

/// Two ports, for tests.
#[cfg(test)]
pub(super) fn example_ports() -> Ports {
    Ports::of(&serde_json::json!({ "ports": [
        { "name": "em0", "lladdr": "02:00:00:00:00:01", "addresses": ["192.0.2.1/24", "2001:db8::1/64"] },
        { "name": "em1", "lladdr": "02:00:00:00:00:02", "addresses": ["10.8.0.1/16"] },
    ]}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(family: Family, routes: &[Value]) -> String {
        table_header(family)
            + &routes.iter().map(|route| format_rows(family, route, &example_ports())).collect::<String>()
    }

    #[test]
    fn routes_stand_in_the_columns_of_netstat() {
        let hop = |gateway: &str, state: &str| {
            json!({ "gateway": gateway, "port": "em0",
                "weight": 1, "state": state })
        };
        let on_link = json!([{ "port": "em1", "weight": 1, "state": "up" }]);
        let routes = [
            json!({ "dst": "0.0.0.0/0", "source": "static", "type": "unicast",
                "next_hops": [hop("192.0.2.254", "up")] }),
            json!({ "dst": "10.0.0.0/8", "source": "static", "type": "unicast",
                "next_hops": [hop("192.0.2.7", "up"), hop("192.0.2.8", "down")] }),
            json!({ "dst": "10.8.0.0/16", "source": "connected", "type": "unicast", "next_hops": on_link }),
            json!({ "dst": "10.8.0.1/32", "source": "local", "type": "local", "next_hops": on_link }),
            json!({ "dst": "10.8.255.255/32", "source": "broadcast", "type": "broadcast",
                "next_hops": on_link }),
            json!({ "dst": "172.16.0.0/12", "source": "static", "type": "blackhole",
                "next_hops": [{ "state": "up" }] }),
            json!({ "dst": "198.51.100.7/32", "source": "static", "type": "prohibit",
                "next_hops": [{ "state": "up" }] }),
            json!({ "dst": "224.0.0.0/4", "source": "built-in", "type": "multicast",
                "next_hops": [{ "state": "up" }] }),
        ];
        let expected = "\
Destination        Gateway            Flags   Refs      Use   Mtu  Prio Iface
default            192.0.2.254        UGS        0        0     -     8 em0  
10/8               192.0.2.7          UGSP       0        0     -     8 em0  
10/8               192.0.2.8          GSP        0        0     -   136 em0  
10.8/16            10.8.0.1           UCn        0        0     -     4 em1  
10.8.0.1           02:00:00:00:00:02  UHLl       0        0     -     1 em1  
10.8.255.255       10.8.0.1           UHb        0        0     -     1 em1  
172.16/12          127.0.0.1          UGSB       0        0     -     8 lo0  
198.51.100.7       127.0.0.1          UGHRS      0        0     -     8 lo0  
";
        assert_eq!(shown(Family::Inet, &routes), expected);
    }

    #[test]
    fn addresses_of_ipv6_have_wider_columns_and_scopes() {
        let hop = json!([{ "gateway": "fe80::9", "port": "em0", "weight": 1, "state": "up", "mtu": 1400 }]);
        let routes = [
            json!({ "dst": "::/0", "source": "static", "type": "unicast", "next_hops": hop }),
            json!({ "dst": "2001:db8:9::/48", "source": "static", "type": "unicast", "next_hops": hop }),
        ];
        let text = shown(Family::Inet6, &routes);
        let lines: Vec<&str> = text.lines().collect();
        let begin = format!("{:<43} {:<39} UGS   ", "default", "fe80::9%em0");
        assert!(lines[1].starts_with(&begin), "{text}");
        assert!(lines[1].ends_with("  1400     8 em0  "), "{text}");
        assert!(lines[2].starts_with("2001:db8:9::/48 "), "{text}");
        assert_eq!(lines[0].find("Prio"), lines[1].find("   8 em0"));
    }
}
