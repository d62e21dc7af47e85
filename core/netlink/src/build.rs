//! Messages as they are sent: to the kernel, or as a kernel or a routing daemon writes them.
use std::net::IpAddr;

/// Adds a route: RTM_NEWROUTE.
pub const NEW_ROUTE: u16 = 24;
/// Deletes a route: RTM_DELROUTE.
pub const DEL_ROUTE: u16 = 25;
/// Adds a next-hop object: RTM_NEWNEXTHOP.
pub const NEW_NEXT_HOP: u16 = 104;
/// Deletes a next-hop object: RTM_DELNEXTHOP.
pub const DEL_NEXT_HOP: u16 = 105;
/// NLM_F_REQUEST, NLM_F_CREATE and NLM_F_REPLACE, as zebra sets them.
const FLAGS: u16 = 0x0501;

/// Where the first byte of a route's flags (rtm_flags) is in its message, in the order
/// of a little-endian machine.
pub const ROUTE_FLAGS: usize = 24;

/// An attribute of a type, padded.
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = (value.len() + 4) as u16;
    let mut bytes = [&len.to_ne_bytes(), &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A message of a kind with flags, a header of its kind, and attributes.
pub fn message(kind: u16, flags: u16, header: &[u8], attributes: &[Vec<u8>]) -> Vec<u8> {
    let payload = [header, &attributes.concat()].concat();
    let len = (payload.len() + 16) as u32;
    [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8], &payload].concat()
}

/// A route of the main table: [`NEW_ROUTE`] or [`DEL_ROUTE`], its prefix, the number of its protocol
/// (RTPROT_…), and attributes. It is a unicast route; byte 23 of the message says of which type (RTN_…).
pub fn route(kind: u16, (to, len): (IpAddr, u8), protocol: u8, rest: &[Vec<u8>]) -> Vec<u8> {
    let header = [family_of(to), len, 0, 0, 254, protocol, 0, 1, 0, 0, 0, 0];
    message(kind, FLAGS, &header, &[&[attribute(1, &octets_of(to))], rest].concat())
}

/// Attribute for a route's gateway: RTA_GATEWAY.
pub fn gateway(address: IpAddr) -> Vec<u8> {
    attribute(5, &octets_of(address))
}

/// RTA_OIF: the number of an interface.
pub fn link(index: u32) -> Vec<u8> {
    attribute(4, &index.to_ne_bytes())
}

/// RTA_NH_ID: the number of a next-hop object.
pub fn next_hop_id(id: u32) -> Vec<u8> {
    attribute(30, &id.to_ne_bytes())
}

/// RTA_MULTIPATH: gateways with their weights, from 1 to 256, by the interface with a number.
pub fn multipath(link: u32, gateways: &[(IpAddr, u16)]) -> Vec<u8> {
    let hop = |(address, weight): &(IpAddr, u16)| {
        let gateway = gateway(*address);
        let len = (gateway.len() + 8) as u16;
        [&len.to_ne_bytes()[..], &[0, (weight - 1) as u8], &link.to_ne_bytes(), &gateway].concat()
    };
    attribute(9, &gateways.iter().flat_map(hop).collect::<Vec<u8>>())
}

/// A next-hop object: [`NEW_NEXT_HOP`] or [`DEL_NEXT_HOP`], its number, and attributes; of IPv4.
pub fn next_hop(kind: u16, id: u32, rest: &[Vec<u8>]) -> Vec<u8> {
    let header = [2, 0, 11, 0, 0, 0, 0, 0];
    message(kind, FLAGS, &header, &[&[attribute(1, &id.to_ne_bytes())], rest].concat())
}

/// Attribute for a next-hop object's gateway: NHA_GATEWAY.
pub fn next_hop_gateway(address: IpAddr) -> Vec<u8> {
    attribute(6, &octets_of(address))
}

/// NHA_GROUP: numbers of next-hop objects with their weights, from 1 to 256.
pub fn next_hop_group(members: &[(u32, u16)]) -> Vec<u8> {
    let member = |(id, weight): &(u32, u16)| [id.to_ne_bytes(), [(weight - 1) as u8, 0, 0, 0]].concat();
    attribute(2, &members.iter().flat_map(member).collect::<Vec<u8>>())
}

fn family_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { super::AF_INET } else { super::AF_INET6 }
}

fn octets_of(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
