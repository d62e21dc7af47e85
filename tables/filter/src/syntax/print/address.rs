//! Addresses, ports and the two ends of a rule.
use super::{Style, quote_if_needed, quote_name, table_name};
use crate::facts::Family;
use crate::rule::{AddressMatch, Comparison, Endpoint, HostAddress, InterfacePart};
use artery_wire::IpProtocol;
use std::fmt::Display;
use std::net::{IpAddr, Ipv6Addr};

/// `from … to …`, or `all`.
pub(super) fn format_ends(
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
        let port =
            end.port.map_or(String::new(), |port| format!(" port {}", format_ports(&port, protocol, style)));
        format!("{not}{}{port}", format_address(&end.address, family, style))
    };
    let os = source.os.as_ref().map_or(String::new(), |os| format!(" os {}", quote_name(os)));
    format!(" from {}{os} to {}", one(source), one(destination))
}

fn format_address(address: &AddressMatch, family: Option<Family>, style: &Style) -> String {
    match address {
        AddressMatch::Any => "any".to_string(),
        AddressMatch::Host(one) => in_rule(one, family, style),
        AddressMatch::Range(first, last) => format!("{} - {}", format_ip(*first), format_ip(*last)),
        AddressMatch::Table(name) => format_table_name(name, style),
        AddressMatch::NoRoute => "no-route".to_string(),
        AddressMatch::UrpfFailed => "urpf-failed".to_string(),
        AddressMatch::RouteLabel(label) => format!("route {}", quote_name(label)),
    }
}

/// The name of a table, behind which there is how many addresses it has.
pub(super) fn format_table_name(name: &str, style: &Style) -> String {
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
    match length.filter(|length| *length < max_prefix_length(family.unwrap_or(Family::Inet6))) {
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

fn max_prefix_length(family: Family) -> u8 {
    if family == Family::Inet { 32 } else { 128 }
}

/// An address as tables have it.
pub fn host(address: &HostAddress) -> String {
    match address {
        HostAddress::Network(address, length)
            if *length < max_prefix_length(Family::of_address(*address)) =>
        {
            format!("{}/{length}", format_ip(*address))
        }
        HostAddress::Network(address, _) => format_ip(*address),
        HostAddress::Masked(address, mask) => format!("{}/{}", format_ip(*address), format_ip(*mask)),
        HostAddress::Dynamic { interface, part, without_aliases, length } => {
            let part = match part {
                InterfacePart::Address => "",
                InterfacePart::Network => ":network",
                InterfacePart::Broadcast => ":broadcast",
                InterfacePart::Peer => ":peer",
            };
            let first = if *without_aliases { ":0" } else { "" };
            let length = length.map_or(String::new(), |length| format!("/{length}"));
            format!("({}){length}", quote_if_needed(&format!("{}{part}{first}", interface.0)))
        }
    }
}

/// An address as C libraries print it, which write addresses compatible with IPv4 in part as such.
pub fn format_ip(address: IpAddr) -> String {
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
pub(super) fn format_ports(test: &Comparison<u16>, protocol: Option<IpProtocol>, style: &Style) -> String {
    let name = |port: &u16| match style.names.service_name(*port, protocol) {
        Some(name) if style.has_port_names => quote_if_needed(name),
        _ => port.to_string(),
    };
    match test {
        Comparison::Equal(port) => format!("= {}", name(port)),
        Comparison::Unequal(port) => format!("!= {}", name(port)),
        other => format_comparison(other),
    }
}

/// A test of a number.
pub(super) fn format_comparison<T: Display>(test: &Comparison<T>) -> String {
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
            assert_eq!(format_ip(text.parse().unwrap()), text);
        }
    }
}
