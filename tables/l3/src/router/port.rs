//! Ports of the router: what is said about them, and what workers see of them.
use crate::PortId;
use crate::path::ExceptionSources;
use artery_lpm::Prefix;
use artery_wire::EtherAddr;
use std::net::{IpAddr, Ipv6Addr};

/// A port to be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// Its name, as the interface's.
    pub name: String,
    /// Link address (MAC) of the port.
    pub address: EtherAddr,
    /// The longest packet on its link, in bytes from the IP header on.
    pub mtu: u16,
    /// What `mtu` is never more than, whatever the interface behind the port carries.
    pub mtu_limit: Option<u16>,
    /// Whether its link is up.
    pub is_up: bool,
    /// How the router behaves there.
    pub settings: PortSettings,
}

impl PortSpec {
    /// An Ethernet port of this name and link address, up, with packets of up to 1500 bytes.
    pub fn new(name: &str, address: EtherAddr) -> PortSpec {
        let settings = PortSettings::default();
        PortSpec { name: name.into(), address, mtu: 1500, mtu_limit: None, is_up: true, settings }
    }

    /// The longest packet where the interface carries this many bytes.
    pub fn limited_mtu(&self, carried: u16) -> u16 {
        self.mtu_limit.map_or(carried, |limit| limit.min(carried))
    }
}

/// How the router behaves on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSettings {
    /// Whether proxy ARP is on: solicitations for addresses behind other ports are answered.
    pub proxy_arp: bool,
    /// Whether neighbors are neither solicited nor learned (no ARP, no ND).
    pub static_arp: bool,
    /// What is demanded of a packet's source.
    pub rpf: ReversePath,
    /// Whether redirects are sent to neighbors with a better router on their link.
    pub redirects: bool,
    /// Whether gateways are believed to be on its link whatever its addresses are (`onlink` of ip-route(8)).
    pub onlink: bool,
}

impl Default for PortSettings {
    fn default() -> PortSettings {
        PortSettings {
            proxy_arp: false,
            static_arp: false,
            rpf: ReversePath::Off,
            redirects: true,
            onlink: false,
        }
    }
}

/// What is demanded of a packet's source (RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReversePath {
    /// No check of the source.
    #[default]
    Off,
    /// That some route leads there.
    Loose,
    /// That its route leaves by the port where the packet came in.
    Strict,
}

/// A port as workers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortView {
    /// Name of the port in commands.
    pub name: String,
    /// Link address (MAC) of the port.
    pub address: EtherAddr,
    /// The first two bytes of its link address where they are in the first eight of a frame that leaves, the
    /// others zero: combined with [`Link::bits`](crate::neighbor::Link::bits) by or, and stored in
    /// little-endian order, it is the head of the frame.
    pub source_head: u64,
    /// The other four bytes, which follow, in little-endian order.
    pub source_tail: u32,
    /// The longest packet on its link, in bytes from the IP header on.
    pub mtu: u16,
    /// Whether its link is up.
    pub is_up: bool,
    /// Its IPv4 addresses, each with the length of its prefix. The first is the one that errors come from.
    pub v4: Vec<(u32, u8)>,
    /// Its IPv6 addresses, the same; its link-local address is not among them.
    pub v6: Vec<(u128, u8)>,
    /// Its link-local IPv6 address.
    pub link_local: u128,
    /// Its virtual IPv4 addresses, each with the length of the prefix of the port's that it
    /// is in; see [`Tables::add_virtual_address`](super::Tables::add_virtual_address).
    pub virtual_v4: Vec<(u32, u8)>,
    /// Its virtual IPv6 addresses, the same.
    pub virtual_v6: Vec<(u128, u8)>,
    /// Sources of IPv4 packets that are looked at more closely where they come in by it.
    pub exception_sources: ExceptionSources,
    /// Whether packets from IPv4 link-local addresses are forwarded.
    pub forward_ipv4_link_local: bool,
    /// How the router behaves there.
    pub settings: PortSettings,
}

/// A port, for the thread that changes it.
#[derive(Clone, Debug)]
pub struct Port {
    pub(super) spec: PortSpec,
    pub(super) addresses: Vec<(IpAddr, u8)>,
    /// Addresses that are answered for, and are not the router's own.
    pub(super) virtual_addresses: Vec<IpAddr>,
}

impl Port {
    pub(super) fn view(&self, forward_ipv4_link_local: bool) -> PortView {
        let PortSpec { name, address, mtu, mtu_limit: _, is_up, settings } = self.spec.clone();
        let [a, b, tail @ ..] = address.0;
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (address, len) in &self.addresses {
            match address {
                IpAddr::V4(address) => v4.push((address.to_bits(), *len)),
                IpAddr::V6(address) => v6.push((address.to_bits(), *len)),
            }
        }
        let (mut virtual_v4, mut virtual_v6) = (Vec::new(), Vec::new());
        for address in &self.virtual_addresses {
            match (self.prefix_of(*address), address) {
                (Some(len), IpAddr::V4(address)) => virtual_v4.push((address.to_bits(), len)),
                (Some(len), IpAddr::V6(address)) => virtual_v6.push((address.to_bits(), len)),
                // Its network is gone.
                (None, _) => {}
            }
        }
        PortView {
            name,
            address,
            source_head: u64::from_le_bytes([0, 0, 0, 0, 0, 0, a, b]),
            source_tail: u32::from_le_bytes(tail),
            mtu,
            is_up,
            exception_sources: ExceptionSources::new(
                v4.iter().flat_map(|(own, len)| not_hosts(*own, *len)),
                forward_ipv4_link_local,
            ),
            forward_ipv4_link_local,
            v4,
            v6,
            link_local: link_local(address).to_bits(),
            virtual_v4,
            virtual_v6,
            settings,
        }
    }

    pub(super) fn owns_address(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|(own, _)| *own == address)
            || address == IpAddr::V6(link_local(self.spec.address))
    }

    /// The longest of its prefixes that contains an address.
    pub(super) fn prefix_of(&self, address: IpAddr) -> Option<u8> {
        let contains = |(own, len): &&(IpAddr, u8)| shares_prefix(*own, address, *len);
        self.addresses.iter().filter(contains).map(|(_, len)| *len).max()
    }
}

/// An own address, and what on its link means the network and all hosts.
fn not_hosts(own: u32, len: u8) -> impl Iterator<Item = u32> {
    let ends = Prefix::new(own, len).ok().filter(|_| len < 31).map(|link| [link.first(), link.last()]);
    std::iter::once(own).chain(ends.into_iter().flatten())
}

/// Whether two addresses have the first `len` bits in common.
pub(super) fn shares_prefix(own: IpAddr, other: IpAddr, len: u8) -> bool {
    match (own, other) {
        (IpAddr::V4(own), IpAddr::V4(other)) => {
            Prefix::new(own.to_bits(), len).is_ok_and(|prefix| prefix.contains(other.to_bits()))
        }
        (IpAddr::V6(own), IpAddr::V6(other)) => {
            Prefix::new(own.to_bits(), len).is_ok_and(|prefix| prefix.contains(other.to_bits()))
        }
        _ => false,
    }
}

/// The link-local address that follows from a link address (RFC 4291 section 2.5.6, appendix A).
pub fn link_local(address: EtherAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = address.0;
    let interface = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(interface))
}

/// Of the networks that ports are connected to: whose link an address is on. Of several it is the one with
/// the longest prefix, and the first of those that are up.
pub(super) fn port_towards(ports: &[Port], address: IpAddr) -> Option<PortId> {
    let near = (0..).map(PortId).zip(ports).filter_map(|(id, port)| {
        let len = port.prefix_of(address)?;
        Some((len, port.spec.is_up, std::cmp::Reverse(id)))
    });
    near.max().map(|(_, _, id)| id.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_address_follows_from_the_link_address() {
        let found = link_local(EtherAddr([0x00, 0x1b, 0x21, 0x3c, 0x9d, 0xf8])).to_string();
        assert_eq!(found, "fe80::21b:21ff:fe3c:9df8");
    }

    #[test]
    fn the_head_of_a_frame_is_two_stores() {
        let port = Port {
            spec: PortSpec::new("eth1", EtherAddr([2, 1, 2, 3, 4, 5])),
            addresses: vec![("10.0.0.1".parse().unwrap(), 24)],
            virtual_addresses: Vec::new(),
        };
        let (view, link) = (port.view(false), crate::neighbor::Link::ready(EtherAddr([6, 7, 8, 9, 10, 11])));
        let mut head = (link.bits() | view.source_head).to_le_bytes().to_vec();
        head.extend(view.source_tail.to_le_bytes());
        assert_eq!(head, [6, 7, 8, 9, 10, 11, 2, 1, 2, 3, 4, 5]);
        assert_eq!(view.v4, [(0x0a00_0001, 24)]);
        let is_exception = [0x0a00_0000, 0x0a00_0001, 0x0a00_00ff, 0x0a00_0002]
            .map(|from| view.exception_sources.contains(from));
        assert_eq!(is_exception, [true, true, true, false]);
    }

    #[test]
    fn the_longest_prefix_says_which_link() {
        let port = |name, address: &str, len, is_up| Port {
            spec: PortSpec { is_up, ..PortSpec::new(name, EtherAddr([2; 6])) },
            addresses: vec![(address.parse().unwrap(), len)],
            virtual_addresses: Vec::new(),
        };
        let ports = [
            port("a", "10.0.0.1", 8, true),
            port("b", "10.1.0.1", 16, false),
            port("c", "10.1.0.2", 16, true),
        ];
        let towards = |address: &str| port_towards(&ports, address.parse().unwrap());
        assert_eq!(towards("10.2.0.9"), Some(PortId(0)));
        assert_eq!((towards("10.1.0.9"), towards("11.0.0.1")), (Some(PortId(2)), None));
    }
}
