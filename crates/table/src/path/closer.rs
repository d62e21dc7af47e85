//! What is asked only for packets that are looked at more closely.
use super::{Kind, PathReader, Way};
use crate::neighbor::{Key, NeighborId};
use crate::{Family, PortId};
use artery_rcu::Turn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl<A: Family + Key> PathReader<A> {
    /// Whether packets to an address leave the router, and by this port if one is named, by any of its next hops (RFC 8704).
    pub fn leads_by(&self, turn: &Turn<'_>, address: A, port: Option<PortId>) -> bool {
        let group = self.routes.lookup(turn, address);
        let ways = self.ways.read(turn);
        let leads = |way: &Way| {
            matches!(way.kind, Kind::Gateway | Kind::OnLink) && port.is_none_or(|port| way.port == port)
        };
        match ways.of(group) {
            Way { kind: Kind::Several(_), target, count, .. } => {
                let members = ways.members.iter().skip(target as usize);
                members.take(count.into()).any(leads)
            }
            way => leads(&way),
        }
    }

    /// The address of a neighbor, of either family.
    pub fn address_of(&self, neighbor: NeighborId) -> IpAddr {
        let widened = self.links.address(neighbor);
        // No neighbor has one of the IPv6 addresses that IPv4 ones are written as (RFC 4291 section 2.5.5.1).
        match u32::try_from(widened) {
            Ok(address) => IpAddr::V4(Ipv4Addr::from_bits(address)),
            Err(_) => IpAddr::V6(Ipv6Addr::from_bits(widened)),
        }
    }

    /// Tells control, where it wants to hear so, that a neighbor is used, as [`decide`](PathReader::decide) does.
    pub fn report_use(&self, neighbor: NeighborId) {
        if self.links.get(neighbor).wants_report() {
            self.links.report_use(neighbor);
        }
    }
}
