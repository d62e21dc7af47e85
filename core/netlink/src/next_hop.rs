//! Next-hop objects, which routes lead to by their number (struct nhmsg and NHA attributes, linux/nexthop.h).
use super::Family;
use super::attributes::{self, Attributes, read_u32};
use std::net::IpAddr;

const HEADER: usize = 8;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_ENCAP: u16 = 8;
const NHA_FDB: u16 = 11;
/// Bytes of a member of a group (struct nexthop_grp).
const MEMBER: usize = 8;

/// A next-hop object of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHopObject {
    /// Number of the object (NHA_ID).
    pub id: u32,
    /// Where the object leads to.
    pub kind: ObjectKind,
}

/// What a next-hop object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// An interface to send by, to a gateway or to the destination itself.
    Single {
        /// The kernel's number of the interface.
        link: u32,
        /// The gateway; none where the destination is on the link.
        gateway: Option<IpAddr>,
    },
    /// Several, by number and weight; members of a resilient group are here too.
    Group(Vec<(u32, u16)>),
    /// Packets are dropped silently.
    Blackhole,
    /// What no forwarder but the kernel understands: encapsulation, entries of bridges.
    Foreign,
}

impl NextHopObject {
    /// Parses the payload of RTM_NEWNEXTHOP or RTM_DELNEXTHOP.
    pub(crate) fn parse_message(payload: &[u8]) -> Option<NextHopObject> {
        let family = Family::from_number(*payload.first_chunk::<HEADER>()?.first()?);
        let (mut id, mut link, mut gateway) = (0, 0, None);
        let mut special = None;
        for (kind, value) in Attributes::after_header(payload, HEADER) {
            match kind {
                NHA_ID => id = read_u32(value),
                NHA_OIF => link = read_u32(value),
                NHA_GATEWAY => gateway = attributes::parse_address(family?, value),
                NHA_GROUP => special = Some(ObjectKind::Group(parse_members(value))),
                NHA_BLACKHOLE => special = Some(ObjectKind::Blackhole),
                NHA_ENCAP | NHA_ENCAP_TYPE | NHA_FDB => special = Some(ObjectKind::Foreign),
                _ => {}
            }
        }
        let kind = special.unwrap_or(ObjectKind::Single { link, gateway });
        (id != 0).then_some(NextHopObject { id, kind })
    }
}

/// The members of a group with their weights, which the kernel writes less one and in two bytes apart.
fn parse_members(value: &[u8]) -> Vec<(u32, u16)> {
    let member = |bytes: &[u8]| {
        let weight = u16::from_be_bytes([bytes[5], bytes[4]]);
        (read_u32(bytes), weight.saturating_add(1))
    };
    value.chunks_exact(MEMBER).map(member).collect()
}
