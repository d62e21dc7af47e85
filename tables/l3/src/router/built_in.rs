//! Routes that hold in any router: where no packet goes, whatever the tables say.
use crate::path::Outcome;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Prefixes with the outcome of packets to them, or from them; without IPv4's link-local one
/// where that is forwarded as any other.
pub(super) fn routes(forward_ipv4_link_local: bool) -> impl Iterator<Item = (IpAddr, u8, Outcome)> {
    let v4 =
        V4.iter().filter(move |(_, _, outcome)| !forward_ipv4_link_local || *outcome != Outcome::LinkLocal);
    let v4 = v4.map(|(octets, len, outcome)| (IpAddr::V4(Ipv4Addr::from(*octets)), *len, *outcome));
    let v6 = V6.iter().map(|(address, len, outcome)| (IpAddr::V6(*address), *len, *outcome));
    v4.chain(v6)
}

/// RFC 1122 section 3.2.1.3, RFC 3927 section 2.6.2, RFC 5771, RFC 6890 section 2.2.2.
const V4: &[([u8; 4], u8, Outcome)] = &[
    ([0, 0, 0, 0], 8, Outcome::Martian),
    ([127, 0, 0, 0], 8, Outcome::Martian),
    ([169, 254, 0, 0], 16, Outcome::LinkLocal),
    ([224, 0, 0, 0], 4, Outcome::Multicast),
    ([240, 0, 0, 0], 4, Outcome::Martian),
    ([255, 255, 255, 255], 32, Outcome::Broadcast),
];

/// RFC 4291 section 2.4, RFC 6890 section 2.2.3.
const V6: &[(Ipv6Addr, u8, Outcome)] = &[
    (Ipv6Addr::UNSPECIFIED, 128, Outcome::Martian),
    (Ipv6Addr::LOCALHOST, 128, Outcome::Martian),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, Outcome::Martian),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, Outcome::LinkLocal),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, Outcome::Multicast),
];
