//! Addresses, ports and the two ends of a rule.
use super::{Style, bare, quoted, table_name};
use crate::facts::Family;
use crate::rule::{AddressMatch, Comparison, Endpoint, HostAddress, InterfacePart};
use artery_wire::IpProtocol;
use std::fmt::Display;
use std::net::{IpAddr, Ipv6Addr};

/// `from … to …`, or `all`.
pub(super) fn ends(
    source: &Endpoint,
    destination: &Endpoint,
    family: Option<Family>,
    protocol: Option<IpProtocol>,
    style: &Style,
) -> String {
    let nothing = Endpoint::default();
    if *source == nothing && *destination == nothing {
        return " all".to_string();
    }
    let one = |end: &Endpoint| {
        let not = if end.is_negated { "! " } else { "" };
        let port = end.port.map_or(String::new(), |port| format!(" port {}", ports(&port, protocol, style)));
        format!("{not}{}{port}", address(&end.address, family, style))
    };
    let os = source.os.as_ref().map_or(String::new(), |os| format!(" os {}", quoted(os)));
    format!(" from {}{os} to {}", one(source), one(destination))
}

fn address(address: &AddressMatch, family: Option<Family>, style: &Style) -> String {
    match address {
        AddressMatch::Any => "any".to_string(),
        AddressMatch::Host(one) => in_rule(one, family, style),
        AddressMatch::Range(first, last) => format!("{} - {}", ip(*first), ip(*last)),
        AddressMatch::Table(name) => table(name, style),
        AddressMatch::NoRoute => "no-route".to_string(),
        AddressMatch::UrpfFailed => "urpf-failed".to_string(),
        AddressMatch::RouteLabel(label) => format!("route {}", quoted(label)),
    }
}

/// The name of a table, behind which there is how many addresses it has.
pub(super) fn table(name: &str, style: &Style) -> String {
    let length = match style.table_length {
        _ if !style.is_debugging => String::new(),
        None => ":0".to_string(),
        Some(length) => length(name).map_or(":*".to_string(), |length| format!(":{length}")),
    };
    format!("<{}{length}>", table_name(name))
}

/// An address as rules and pools have it: where the family is not known, a length is one of IPv6.
pub(super) fn in_rule(address: &HostAddress, family: Option<Family>, style: &Style) -> String {
    let HostAddress::Dynamic { length, .. } = address else { return host(address) };
    let text = host(&without_length(address));
    let text = if style.is_debugging { text.replace(')', ":*)") } else { text };
    match length.filter(|length| *length < longest(family.unwrap_or(Family::Inet6))) {
        Some(length) => format!("{text}/{length}"),
        None => text,
    }
}

fn without_length(address: &HostAddress) -> HostAddress {
    let mut shorter = address.clone();
    if let HostAddress::Dynamic { length, .. } = &mut shorter {
        *length = None;
    }
    shorter
}

fn longest(family: Family) -> u8 {
    if family == Family::Inet { 32 } else { 128 }
}

/// An address as tables have it.
pub fn host(address: &HostAddress) -> String {
    match address {
        HostAddress::Network(address, length) if *length < longest(Family::of(*address)) => {
            format!("{}/{length}", ip(*address))
        }
        HostAddress::Network(address, _) => ip(*address),
        HostAddress::Masked(address, mask) => format!("{}/{}", ip(*address), ip(*mask)),
        HostAddress::Dynamic { interface, part, without_aliases, length } => {
            let part = match part {
                InterfacePart::Address => "",
                InterfacePart::Network => ":network",
                InterfacePart::Broadcast => ":broadcast",
                InterfacePart::Peer => ":peer",
            };
            let first = if *without_aliases { ":0" } else { "" };
            let length = length.map_or(String::new(), |length| format!("/{length}"));
            format!("({}){length}", bare(&format!("{}{part}{first}", interface.0)))
        }
    }
}

/// An address as C libraries print it, which write addresses compatible with IPv4 in part as such.
pub fn ip(address: IpAddr) -> String {
    match address {
        IpAddr::V6(v6) if is_compatible(v6) => {
            let [.., a, b, c, d] = v6.octets();
            format!("::{a}.{b}.{c}.{d}")
        }
        other => other.to_string(),
    }
}

/// Whether just the last two of eight groups are used, both of them, or the first of these.
fn is_compatible(address: Ipv6Addr) -> bool {
    let groups = address.segments();
    groups[..6].iter().all(|group| *group == 0) && groups[6] != 0
}

/// A test of ports. Names are for single ports only.
pub(super) fn ports(test: &Comparison<u16>, protocol: Option<IpProtocol>, style: &Style) -> String {
    let name = |port: &u16| match style.names.service(*port, protocol) {
        Some(name) if style.has_port_names => bare(name),
        _ => port.to_string(),
    };
    match test {
        Comparison::Equal(port) => format!("= {}", name(port)),
        Comparison::Unequal(port) => format!("!= {}", name(port)),
        other => comparison(other),
    }
}

/// A test of a number.
pub(super) fn comparison<T: Display>(test: &Comparison<T>) -> String {
    match test {
        Comparison::Equal(a) => format!("= {a}"),
        Comparison::Unequal(a) => format!("!= {a}"),
        Comparison::Less(a) => format!("< {a}"),
        Comparison::LessOrEqual(a) => format!("<= {a}"),
        Comparison::Greater(a) => format!("> {a}"),
        Comparison::GreaterOrEqual(a) => format!(">= {a}"),
        Comparison::Range(a, b) => format!("{a}:{b}"),
        Comparison::Between(a, b) => format!("{a} >< {b}"),
        Comparison::Except(a, b) => format!("{a} <> {b}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_look_as_in_c() {
        for text in ["::", "::1", "::ffff:1.2.3.4", "::1.2.3.4", "fe80::1", "1:0:2::", "0:1::", "10.0.0.1"] {
            assert_eq!(ip(text.parse().unwrap()), text);
        }
    }
}
