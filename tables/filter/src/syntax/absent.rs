//! Rules for interfaces that are not there, which never apply: who reads them may believe
//! that something is filtered.
use crate::names::Interfaces;
use crate::rule::{
    Action, AddressMatch, AnchorCall, Endpoint, HostAddress, InterfaceName, On, Pool, PoolAddress, Rule,
    Ruleset, SourceLocation,
};

/// Interfaces that are named at most, where those that are there are listed.
const MOST_LISTED: usize = 8;

/// Why a rule never applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ineffective {
    /// Where the rule stands, for messages.
    pub place: SourceLocation,
    /// Why, and what helps.
    pub why: String,
    /// Whether its interface is the host's own loopback: the rule is for packets that no other host sees.
    pub is_of_loopback: bool,
}

/// The rules that never apply because no interface has the name, nor is in the group, that they are for; and
/// those that translate to the addresses of such an interface. A rule for all interfaces but one that is not
/// there (`on ! em9`) applies everywhere, and is none of them.
pub fn without_interface(ruleset: &Ruleset, interfaces: &Interfaces) -> Vec<Ineffective> {
    let mut found = Vec::new();
    for rule in &ruleset.rules {
        let place = || rule.place.clone();
        found.extend(missing_interface(rule, interfaces).map(|why| Ineffective {
            place: place(),
            why,
            is_of_loopback: false,
        }));
        if is_of_loopback(rule, interfaces) {
            let why =
                "the host's own loopback does not pass here, so that this rule never applies".to_string();
            found.push(Ineffective { place: place(), why, is_of_loopback: true });
        }
        if let Action::Anchor(AnchorCall { inline: Some(inner), .. }) = &rule.action {
            found.extend(without_interface(inner, interfaces));
        }
    }
    found
}

/// What a rule needs of an interface that is not there.
fn missing_interface(rule: &Rule, interfaces: &Interfaces) -> Option<String> {
    let is_absent = |name: &InterfaceName| matching_interfaces(name, interfaces).next().is_none();
    let on = match &rule.on {
        Some(On::Interface(false, name)) => Some(name),
        _ => None,
    };
    let received_on = rule.received_on.as_ref().filter(|(is_negated, _)| !is_negated).map(|(_, name)| name);
    let ends = [&rule.source, &rule.destination].into_iter().filter_map(of_end);
    let pools = [&rule.nat, &rule.redirect].into_iter().flatten().filter_map(of_pool);
    let places = [on.map(|name| ("on ", name, "")), received_on.map(|name| ("received-on ", name, ""))];
    let named = places.into_iter().flatten().chain(ends.chain(pools).map(|name| ("(", name, ")")));
    let (before, name, behind) = { named }.find(|(_, name, _)| is_absent(name))?;
    let why = "no interface here has this name or group, so that this rule never applies";
    Some(format!("{before}{}{behind}: {why}; {}", name.0, list_interfaces(interfaces)))
}

fn of_end(end: &Endpoint) -> Option<&InterfaceName> {
    match &end.address {
        AddressMatch::Host(HostAddress::Dynamic { interface, .. }) if !end.is_negated => Some(interface),
        _ => None,
    }
}

fn of_pool(pool: &Pool) -> Option<&InterfaceName> {
    match &pool.address {
        PoolAddress::Host(HostAddress::Dynamic { interface, .. }, _) => Some(interface),
        _ => None,
    }
}

/// The interfaces that a name means, by whether they are loopbacks.
fn matching_interfaces(name: &InterfaceName, interfaces: &Interfaces) -> impl Iterator<Item = bool> {
    let is_meant = |record: &&crate::names::InterfaceRecord| name.0 == "self" || record.is_called(name);
    interfaces.0.iter().filter(is_meant).map(|record| record.is_loopback)
}

fn is_of_loopback(rule: &Rule, interfaces: &Interfaces) -> bool {
    let Some(On::Interface(false, name)) = &rule.on else { return false };
    let mut meant = matching_interfaces(name, interfaces).peekable();
    meant.peek().is_some() && meant.all(|is_loopback| is_loopback)
}

fn list_interfaces(interfaces: &Interfaces) -> String {
    let names: Vec<&str> =
        interfaces.0.iter().filter(|record| !record.is_loopback).map(|record| record.name.as_str()).collect();
    let more = if names.len() > MOST_LISTED { " and others" } else { "" };
    match names.is_empty() {
        true => "there is none".to_string(),
        false => format!("there are {}{more}", names[..names.len().min(MOST_LISTED)].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Environment, ParseSettings, parse};
    use super::*;

    fn told(text: &str) -> Vec<(u32, bool)> {
        let environment = Environment::fixture();
        let parsed = parse("stdin", text.as_bytes(), &environment, &ParseSettings::default()).unwrap();
        let found = without_interface(&parsed.ruleset, &environment.interfaces);
        found.iter().map(|one| (one.place.line, one.is_of_loopback)).collect()
    }

    #[test]
    fn rules_for_interfaces_that_are_not_there_never_apply() {
        let text = "pass on tun1000000
pass on egress
block in on tun
pass in on { tun1000001 em9 }
block in on ! egress
pass out on tun1000000 received-on em9
pass in on tun1000000 from (egress:network)
pass in on tun1000000 from ! (egress)
match out on tun inet nat-to (egress)
pass in on tun inet proto tcp to (self) port 22
anchor {
\tpass on em9
}
pass quick on lo0
pass on any
pass on lo
block in on ! lo0 proto tcp to port 6000:6010
";
        let never = [2, 4, 6, 7, 9, 12].map(|line| (line, false));
        assert_eq!(told(text), [&never[..], &[(14, true), (16, true)]].concat());
    }

    #[test]
    fn what_is_there_is_listed() {
        let environment = Environment::fixture();
        let parsed = parse("stdin", b"block in on egress", &environment, &ParseSettings::default()).unwrap();
        let [one] = &without_interface(&parsed.ruleset, &environment.interfaces)[..] else { panic!() };
        assert!(one.why.starts_with("on egress: no interface here has this name"), "{}", one.why);
        assert!(one.why.ends_with("; there are tun1000000, tun1000001"), "{}", one.why);
    }
}
