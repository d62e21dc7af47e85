//! From a word to addresses: an interface's, those that are written out, or those of a host by its name.
use super::environment::Environment;
use crate::facts::Family;
use crate::names::{InterfaceRecord, address_bits, mask_address};
use crate::rule::{AddressMatch, HostAddress, InterfaceName, InterfacePart};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest name of an interface.
pub(crate) const LONGEST_INTERFACE: usize = 15;

/// One of the addresses that a word stands for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Host {
    /// Whether it must not be so.
    pub(crate) is_negated: bool,
    pub(crate) address: AddressMatch,
    /// Its family, if it has one by itself.
    pub(crate) family: Option<Family>,
    /// The interface that it holds at only: addresses of a link.
    pub(crate) scope: Option<String>,
    /// The length behind its slash if an address has fewer bits, which no rule takes.
    pub(crate) excess: Option<u8>,
    /// How often a pool chooses it beside others.
    pub(crate) weight: u16,
}

impl Host {
    /// An address with nothing else said.
    pub(crate) fn new(address: AddressMatch) -> Host {
        Host { is_negated: false, address, family: None, scope: None, excess: None, weight: 0 }
    }

    fn from_network(address: IpAddr, length: u8) -> Host {
        let address = mask_address(address, length);
        let family = Some(Family::of_address(address));
        Host { family, ..Host::new(AddressMatch::Host(HostAddress::Network(address, length))) }
    }

    /// The address, unless it is a table, a keyword or a range.
    pub(crate) fn host_address(&self) -> Option<&HostAddress> {
        match &self.address {
            AddressMatch::Host(host) => Some(host),
            _ => None,
        }
    }
}

/// The modifiers after an interface's name, such as `:network`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modifiers {
    /// Which of its addresses.
    pub(crate) part: InterfacePart,
    /// Whether aliases are left out.
    pub(crate) without_aliases: bool,
}

/// Takes the modifiers off a name; None if there are others, or two that exclude each other.
pub(crate) fn split_modifiers(text: &str) -> Option<(&str, Modifiers)> {
    let (mut name, mut found) = (text, Modifiers::default());
    while let Some((front, last)) = name.rsplit_once(':') {
        let part = match last {
            "network" => InterfacePart::Network,
            "broadcast" => InterfacePart::Broadcast,
            "peer" => InterfacePart::Peer,
            "0" => {
                (name, found.without_aliases) = (front, true);
                continue;
            }
            _ => return None,
        };
        if found.part != InterfacePart::Address && found.part != part {
            return None;
        }
        (name, found.part) = (front, part);
    }
    Some((name, found))
}

/// All that a word stands for, with the length behind its slash. The error says what is wrong.
pub(crate) fn resolve_word(
    text: &str,
    length: Option<i64>,
    environment: &Environment,
) -> Result<Vec<Host>, String> {
    let length = match length.map(u8::try_from) {
        None => None,
        Some(Ok(length)) if length <= 128 => Some(length),
        Some(_) => return Err(format!("{text}: a prefix has at most 128 bits")),
    };
    match of_interface(text, length, environment)? {
        hosts if !hosts.is_empty() => Ok(hosts),
        _ => match of_numbers(text, length, environment) {
            Some(host) => Ok(vec![host]),
            None => of_name(text, length, environment),
        },
    }
}

/// The addresses of an interface, of those of a group, or of all (`self`). None if nothing is called so.
fn of_interface(word: &str, length: Option<u8>, environment: &Environment) -> Result<Vec<Host>, String> {
    let Some((name, modifiers)) = split_modifiers(word) else { return Ok(Vec::new()) };
    let mut records = matching_interfaces(name, environment).peekable();
    if records.peek().is_none() {
        return Ok(Vec::new());
    }
    let is_set = matches!(modifiers.part, InterfacePart::Network | InterfacePart::Broadcast);
    if is_set && length.is_some() {
        return Err(format!("{word} has a length of its own: leave out the one behind the slash"));
    }
    let hosts: Vec<Host> = records.flat_map(|record| interface_hosts(record, modifiers)).collect();
    Ok(match length {
        None => hosts,
        Some(length) => hosts.into_iter().map(|host| with_prefix_length(host, length)).collect(),
    })
}

fn matching_interfaces<'e>(
    name: &'e str,
    environment: &'e Environment,
) -> impl Iterator<Item = &'e InterfaceRecord> {
    let is_known = move |record: &&InterfaceRecord| {
        name == "self" || record.name == name || record.groups.iter().any(|group| group == name)
    };
    environment.interfaces.0.iter().filter(is_known)
}

/// Whether an interface, or a group of some, is called so.
pub(crate) fn is_interface(name: &str, environment: &Environment) -> bool {
    matching_interfaces(name, environment).next().is_some()
}

/// Whether an interface is a loopback. A group is none, whatever it consists of.
pub(crate) fn is_loopback(name: &str, environment: &Environment) -> bool {
    environment.interfaces.0.iter().any(|record| record.name == name && record.is_loopback)
}

/// The addresses of an interface. Those of a link hold there only, and have no network that is anyone else's.
pub(crate) fn interface_hosts(record: &InterfaceRecord, modifiers: Modifiers) -> Vec<Host> {
    let mut seen = [false; 2];
    let mut hosts = Vec::new();
    for one in &record.addresses {
        let is_of_link = matches!(one.address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let found = match modifiers.part {
            InterfacePart::Address => Some(Host::from_network(one.address, address_bits(one.address))),
            InterfacePart::Network if is_of_link => None,
            InterfacePart::Network => Some(Host::from_network(one.address, one.length)),
            InterfacePart::Broadcast if record.is_loopback => None,
            InterfacePart::Broadcast => {
                broadcast_address(one.address, one.length).map(|address| Host::from_network(address, 32))
            }
            InterfacePart::Peer => one.peer.map(|peer| Host::from_network(peer, address_bits(peer))),
        };
        let Some(mut host) = found else { continue };
        let is_further = std::mem::replace(&mut seen[usize::from(one.address.is_ipv6())], true);
        if modifiers.without_aliases && is_further {
            continue;
        }
        host.scope = is_of_link.then(|| record.name.clone());
        hosts.push(host);
    }
    hosts
}

fn broadcast_address(address: IpAddr, length: u8) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) if length < 31 => {
            Some(Ipv4Addr::from_bits(address.to_bits() | (u32::MAX >> length)).into())
        }
        _ => None,
    }
}

/// A host with only so many of its bits counting.
fn with_prefix_length(host: Host, length: u8) -> Host {
    let Some(HostAddress::Network(address, _)) = host.host_address() else { return host };
    let most = address_bits(*address);
    let excess = Some(length).filter(|length| *length > most);
    Host { scope: host.scope.clone(), excess, ..Host::from_network(*address, length.min(most)) }
}

/// An address that is written out: of IPv4 in full, or its first numbers and a length; of IPv6 with its zone.
fn of_numbers(word: &str, length: Option<u8>, environment: &Environment) -> Option<Host> {
    let (plain, zone) = match word.split_once('%') {
        Some((plain, zone)) => (plain, Some(zone)),
        None => (word, None),
    };
    if zone.is_some_and(|zone| environment.interfaces.0.iter().all(|record| record.name != zone)) {
        return None;
    }
    let address = match plain.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => IpAddr::V6(without_zone(address)),
        Ok(address) if zone.is_none() => address,
        Ok(_) => return None,
        Err(_) => length.and_then(|_| parse_short_ipv4(word))?.into(),
    };
    let host = Host { scope: zone.map(str::to_string), ..Host::from_network(address, address_bits(address)) };
    Some(length.map_or(host.clone(), |length| with_prefix_length(host, length)))
}

/// Some systems store the number of a zone within link-local addresses; it does not belong to the address.
fn without_zone(address: Ipv6Addr) -> Ipv6Addr {
    let mut groups = address.segments();
    if address.is_unicast_link_local() {
        groups[1] = 0;
    }
    groups.into()
}

/// The first numbers of an address of IPv4, such as `192.168`.
pub(crate) fn parse_short_ipv4(word: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut numbers = word.split('.');
    for octet in &mut octets {
        let Some(number) = numbers.next() else { break };
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *octet = number.parse().ok()?;
    }
    numbers.next().is_none().then(|| octets.into())
}

fn of_name(word: &str, length: Option<u8>, environment: &Environment) -> Result<Vec<Host>, String> {
    let (name, is_first_only) = word.strip_suffix(":0").map_or((word, false), |name| (name, true));
    let mut seen = [false; 2];
    let is_wanted = |address: &IpAddr| {
        let is_further = std::mem::replace(&mut seen[usize::from(address.is_ipv6())], true);
        !(is_first_only && is_further)
    };
    // A name lookup may read numbers in another way than is meant: 1.2.3 as 1.2.0.3.
    if name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(format!(
            "could not parse host specification\n\
             no address found for {word}: an address of IPv4 has four numbers, unless a length follows, as \
             in 10.1/16"
        ));
    }
    let is_of_interface = split_modifiers(word).is_some_and(|(name, _)| is_interface(name, environment));
    // A lookup of a host by the name of an interface may take long, and find what is not meant.
    let found = if is_of_interface { Vec::new() } else { (environment.find_host)(name) };
    let addresses = found.into_iter().filter(is_wanted);
    let hosts = addresses.map(|address| Host::from_network(address, address_bits(address)));
    let hosts: Vec<Host> = match length {
        None => hosts.collect(),
        Some(length) => hosts.map(|host| with_prefix_length(host, length)).collect(),
    };
    if hosts.is_empty() {
        return Err(match is_of_interface {
            true => format!(
                "could not parse host specification\n\
                 no address found for {word}: write ({word}) to take those that it will have"
            ),
            false => format!(
                "could not parse host specification\n\
                 no address found for {word}, which is neither an interface nor a known host"
            ),
        });
    }
    Ok(hosts)
}

/// Refuses a name that can't be read again in parentheses, where a number or an address may stand as well.
pub(crate) fn check_dynamic_name(name: &str) -> Result<(), String> {
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return Err(format!("invalid interface name '{name}'\nit begins with a letter"));
    }
    if name.len() > LONGEST_INTERFACE {
        return Err(format!("interface name '{name}' too long\nit may have {LONGEST_INTERFACE} characters"));
    }
    Ok(())
}

/// `(interface…)`, whose addresses are taken as they change.
pub(crate) fn parse_dynamic_host(text: &str, length: Option<i64>) -> Result<Host, String> {
    let length = match length.map(u8::try_from) {
        None => None,
        Some(Ok(length)) if length <= 128 => Some(length),
        Some(_) => return Err(format!("({text}): a prefix has at most 128 bits")),
    };
    let Some((name, Modifiers { part, without_aliases })) = split_modifiers(text) else {
        let known = "it may be :network, :broadcast or :peer, and :0";
        return Err(format!("interface {text} has bad modifier\n{known}"));
    };
    check_dynamic_name(name)?;
    let interface = InterfaceName(name.to_string());
    Ok(Host::new(AddressMatch::Host(HostAddress::Dynamic { interface, part, without_aliases, length })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(word: &str, length: Option<i64>) -> String {
        let hosts = match resolve_word(word, length, &Environment::fixture()) {
            Ok(hosts) => hosts,
            Err(why) => return why,
        };
        let one = |host: &Host| {
            let scope = host.scope.as_ref().map_or(String::new(), |scope| format!("%{scope}"));
            super::super::print::host(host.host_address().unwrap()) + &scope
        };
        hosts.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn interfaces_give_their_addresses_in_order() {
        assert_eq!(text("lo0", None), "::1 fe80::1%lo0 127.0.0.1");
        assert_eq!(text("lo0:network", None), "::1 127.0.0.0/8");
        assert_eq!(text("lo0:0", None), "::1 127.0.0.1");
        assert_eq!(text("self", Some(8)), "::/8 fe00::/8%lo0 127.0.0.0/8");
        assert!(text("tun1000000", None).starts_with("could not parse host specification\nno address found"));
        assert!(text("lo0:network", Some(8)).contains("leave out"));
    }

    #[test]
    fn addresses_lose_the_bits_that_do_not_count() {
        assert_eq!(text("10", Some(8)), "10.0.0.0/8");
        assert_eq!(text("192.168.1", Some(16)), "192.168.0.0/16");
        assert_eq!(text("fec0::1", Some(64)), "fec0::/64");
        assert_eq!(text("fe80::1%tun1000000", None), "fe80::1%tun1000000");
        let expected = "could not parse host specification\nno address found";
        assert!(text("fe80::1%tun7", None).starts_with(expected));
        assert_eq!(text("10.0.0.1", Some(32)), "10.0.0.1");
        let long = resolve_word("10.0.0.1", Some(33), &Environment::fixture()).unwrap();
        assert_eq!((text("10.0.0.1", Some(33)), long[0].excess), ("10.0.0.1".into(), Some(33)));
        assert!(text("10.1", None).starts_with("could not parse host specification\nno address found"));
    }

    #[test]
    fn hosts_have_all_their_addresses_or_the_first_of_each_family() {
        assert_eq!(text("localhost", None), "127.0.0.1 ::1");
        assert_eq!(text("localhost:0", None), "127.0.0.1 ::1");
        assert!(text("nowhere", None).contains("nor a known host"));
    }

    #[test]
    fn modifiers_that_exclude_each_other_are_refused() {
        assert!(split_modifiers("em0:network:0").is_some());
        assert!(split_modifiers("em0:network:peer").is_none());
        assert!(split_modifiers("em0:what").is_none());
    }
}
