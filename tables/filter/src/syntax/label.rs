//! What `$if`, `$srcaddr` and the like stand for in labels and tags.
use super::numbered_names::NumberedNames;
use super::print;
use crate::facts::Family;
use crate::rule::{AddressMatch, Comparison, Endpoint, HostAddress, On, Rule};
use artery_wire::IpProtocol;

/// Puts the values of a rule in the places of their names. The number of the rule is put in when it is known.
pub(crate) fn substitute_values(text: &str, rule: &Rule, names: &NumberedNames) -> String {
    if !text.contains('$') {
        return text.to_string();
    }
    let interface = match &rule.on {
        Some(On::Interface(_, name)) => name.0.clone(),
        _ => "any".to_string(),
    };
    let IpProtocol(number) = rule.protocol.unwrap_or(IpProtocol(0));
    let protocol = names.protocol_name(number).map_or_else(|| number.to_string(), str::to_string);
    text.replace("$if", &interface)
        .replace("$srcaddr", &label_address(&rule.source, rule.family))
        .replace("$dstaddr", &label_address(&rule.destination, rule.family))
        .replace("$srcport", &label_port(rule.source.port))
        .replace("$dstport", &label_port(rule.destination.port))
        .replace("$proto", &protocol)
}

fn label_address(end: &Endpoint, family: Option<Family>) -> String {
    let text = match &end.address {
        AddressMatch::Any => "any".to_string(),
        AddressMatch::Host(HostAddress::Dynamic { interface, .. }) => format!("({})", interface.0),
        AddressMatch::Host(_) if family.is_none() => "any".to_string(),
        AddressMatch::Host(host) => print::host(host),
        AddressMatch::Table(name) => format!("<{name}>"),
        AddressMatch::NoRoute => "no-route".to_string(),
        AddressMatch::UrpfFailed => "urpf-failed".to_string(),
        AddressMatch::Range(..) | AddressMatch::RouteLabel(_) => "?".to_string(),
    };
    if end.is_negated { format!("! {text}") } else { text }
}

/// A test of ports without blanks. Nothing is said of a range.
fn label_port(test: Option<Comparison<u16>>) -> String {
    match test {
        None | Some(Comparison::Range(..)) => String::new(),
        Some(Comparison::Equal(port)) => port.to_string(),
        Some(Comparison::Unequal(port)) => format!("!={port}"),
        Some(Comparison::Less(port)) => format!("<{port}"),
        Some(Comparison::LessOrEqual(port)) => format!("<={port}"),
        Some(Comparison::Greater(port)) => format!(">{port}"),
        Some(Comparison::GreaterOrEqual(port)) => format!(">={port}"),
        Some(Comparison::Between(from, to)) => format!("{from}><{to}"),
        Some(Comparison::Except(from, to)) => format!("{from}<>{to}"),
    }
}
