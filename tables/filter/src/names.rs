//! Names that become numbers: interfaces with their groups and addresses, and tags.
use crate::facts::{Interface, Tag};
use crate::rule::{HostAddress, InterfaceName, InterfacePart};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The interfaces that rules can speak of, by [`Interface`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interfaces(pub Vec<InterfaceRecord>);

/// What is known of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceRecord {
    /// The interface's name, such as `em0`.
    pub name: String,
    /// The groups that it is in, besides the one that its name says (`em` of `em0`).
    pub groups: Vec<String>,
    /// Whether it is a loopback.
    pub is_loopback: bool,
    /// The number of its routing domain.
    pub domain: u32,
    /// Its addresses, aliases behind the first of a family.
    pub addresses: Vec<InterfaceAddress>,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address, of either family.
    pub address: IpAddr,
    /// The length of its network's prefix.
    pub length: u8,
    /// The other end, where there is but one.
    pub peer: Option<IpAddr>,
}

/// The names of tags, by [`Tag`]; no packet has a tag that no rule names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    names: Vec<String>,
    numbers: HashMap<String, Tag>,
}

impl Tags {
    /// Numbers a tag unless it has a number or is the empty name, which means no tag.
    pub fn register_tag(&mut self, name: &str) {
        if name.is_empty() || self.numbers.contains_key(name) {
            return;
        }
        self.names.push(name.to_string());
        if let Ok(number) = u16::try_from(self.names.len()) {
            self.numbers.insert(name.to_string(), Tag(number));
        }
    }

    /// Whether all names have numbers.
    pub fn have_numbers(&self) -> bool {
        self.names.len() == self.numbers.len()
    }

    /// The tag of a name that was noted; None, which is 0, for others.
    pub fn tag_or_none(&self, name: &str) -> Tag {
        self.find_tag(name).unwrap_or_default()
    }

    /// The tag of a name, if it is known.
    pub fn find_tag(&self, name: &str) -> Option<Tag> {
        self.numbers.get(name).copied()
    }

    /// The numbers that tags have in other rules, by those here; None if none has another.
    pub(crate) fn moved_to(&self, other: &Tags) -> Option<Vec<Tag>> {
        let moved: Vec<Tag> = self.names.iter().map(|name| other.tag_or_none(name)).collect();
        moved.iter().zip(1..).any(|(tag, number)| tag.0 != number).then_some(moved)
    }

    /// The name of a tag; empty for none.
    pub fn name(&self, tag: Tag) -> &str {
        usize::from(tag.0).checked_sub(1).and_then(|place| self.names.get(place)).map_or("", String::as_str)
    }
}

impl Interfaces {
    /// The number of an interface.
    pub fn find_interface(&self, name: &str) -> Option<Interface> {
        self.0.iter().position(|known| known.name == name).map(|place| Interface(place as u16))
    }

    /// The record of an interface; None if it is unknown.
    pub fn get(&self, interface: Interface) -> Option<&InterfaceRecord> {
        self.0.get(usize::from(interface.0))
    }

    /// The networks that an address of a rule stands for now: one, or those of the interfaces it names.
    pub fn resolve_networks(&self, address: &HostAddress) -> Vec<(IpAddr, u8)> {
        match address {
            HostAddress::Network(address, length) => vec![(*address, *length)],
            HostAddress::Masked(..) => Vec::new(),
            HostAddress::Dynamic { interface, part, without_aliases, length } => self
                .0
                .iter()
                .filter(|record| interface.0 == "self" || record.is_called(interface))
                .flat_map(|record| record.select_addresses(*part, *without_aliases))
                .map(|(address, own)| (address, length.unwrap_or(own).min(address_bits(address))))
                .collect(),
        }
    }
}

impl InterfaceRecord {
    /// Leaves out the link-local addresses of an interface that has no other address of IPv6. Linux gives
    /// one to every interface that is up, OpenBSD only to those configured for IPv6. A rule such as `from
    /// em0` means the others.
    pub fn leave_out_automatic_addresses(&mut self) {
        let is_of_link =
            |one: &InterfaceAddress| matches!(one.address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let is_wanted = |one: &InterfaceAddress| one.address.is_ipv6() && !is_of_link(one);
        if !self.addresses.iter().any(is_wanted) {
            self.addresses.retain(|one| !is_of_link(one));
        }
    }

    /// Whether a name of rules means it: its own, the beginning of its own up to the digits, or
    /// that of a group.
    pub fn is_called(&self, name: &InterfaceName) -> bool {
        let family = self.name.trim_end_matches(|c: char| c.is_ascii_digit());
        name.0 == self.name || name.0 == family || self.groups.contains(&name.0)
    }

    fn select_addresses(&self, part: InterfacePart, without_aliases: bool) -> Vec<(IpAddr, u8)> {
        let mut seen = [false; 2];
        let first = |address: &&InterfaceAddress| {
            let is_alias = std::mem::replace(&mut seen[usize::from(address.address.is_ipv6())], true);
            !(without_aliases && is_alias)
        };
        self.addresses.iter().filter(first).filter_map(|address| address.select_address(part)).collect()
    }
}

impl InterfaceAddress {
    fn select_address(&self, part: InterfacePart) -> Option<(IpAddr, u8)> {
        let host = |address: IpAddr| (address, address_bits(address));
        match part {
            InterfacePart::Address => Some(host(self.address)),
            InterfacePart::Network => Some((mask_address(self.address, self.length), self.length)),
            InterfacePart::Broadcast => broadcast_address(self.address, self.length).map(host),
            InterfacePart::Peer => self.peer.map(host),
        }
    }
}

/// The bits of an address of this family.
pub fn address_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// An address without the bits behind a prefix.
pub fn mask_address(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

fn broadcast_address(address: IpAddr, length: u8) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) if length < 31 => {
            Some(Ipv4Addr::from_bits(address.to_bits() | (u32::MAX >> length)).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interfaces() -> Interfaces {
        let address = |address: &str, length| InterfaceAddress {
            address: address.parse().unwrap(),
            length,
            peer: None,
        };
        Interfaces(vec![InterfaceRecord {
            name: "em0".into(),
            groups: vec!["egress".into()],
            addresses: vec![address("10.0.0.9", 24), address("10.1.0.9", 16), address("2001:db8::9", 64)],
            ..InterfaceRecord::default()
        }])
    }

    fn dynamic(interface: &str, part: InterfacePart, without_aliases: bool) -> HostAddress {
        HostAddress::Dynamic {
            interface: InterfaceName(interface.into()),
            part,
            without_aliases,
            length: None,
        }
    }

    fn text(networks: &[(IpAddr, u8)]) -> String {
        networks.iter().map(|(address, length)| format!("{address}/{length}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn an_interface_answers_to_its_name_its_kind_and_its_groups_only() {
        let interfaces = interfaces();
        let is_called = |name: &str| interfaces.0[0].is_called(&InterfaceName(name.into()));
        assert!(is_called("em0") && is_called("em") && is_called("egress"));
        assert!(!is_called("e") && !is_called("em00") && !is_called("em1"));
    }

    #[test]
    fn parts_of_interfaces_are_what_their_names_say() {
        let interfaces = interfaces();
        let networks = |interface: &str, part, first: bool| {
            text(&interfaces.resolve_networks(&dynamic(interface, part, first)))
        };
        assert_eq!(networks("em0", InterfacePart::Address, false), "10.0.0.9/32 10.1.0.9/32 2001:db8::9/128");
        assert_eq!(networks("self", InterfacePart::Address, true), "10.0.0.9/32 2001:db8::9/128");
        assert_eq!(networks("egress", InterfacePart::Network, true), "10.0.0.0/24 2001:db8::/64");
        assert_eq!(networks("em", InterfacePart::Broadcast, false), "10.0.0.255/32 10.1.255.255/32");
        assert_eq!(networks("em1", InterfacePart::Address, false), "");
    }

    #[test]
    fn addresses_that_linux_gives_by_itself_are_left_out_where_nobody_wants_ipv6() {
        let mut record = interfaces().0.remove(0);
        let of_link = InterfaceAddress { address: "fe80::1".parse().unwrap(), length: 64, peer: None };
        record.addresses.push(of_link);
        record.leave_out_automatic_addresses();
        assert_eq!(record.addresses.len(), 4, "it has an address of IPv6 added by hand");
        record.addresses.remove(2);
        record.leave_out_automatic_addresses();
        assert_eq!(record.addresses.iter().filter(|one| one.address.is_ipv6()).count(), 0);
        assert_eq!(record.addresses.len(), 2);
    }

    #[test]
    fn tags_have_numbers_from_one_and_keep_them() {
        let mut tags = Tags::default();
        ["a", "b", "a", ""].into_iter().for_each(|name| tags.register_tag(name));
        assert_eq!(["a", "b", "", "c"].map(|name| tags.tag_or_none(name)), [1, 2, 0, 0].map(Tag));
        assert_eq!([tags.name(Tag(2)), tags.name(Tag(0)), tags.name(Tag(9))], ["b", "", ""]);
    }
}
