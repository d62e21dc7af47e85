//! Lookups for packets off the fast path.
use super::{Adjacency, AdjacencyKind, PathReader};
use crate::PortId;
use crate::neighbor::{Key, NeighborId};
use artery_lpm::Family;
use artery_rcu::Turn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl<A: Family + Key> PathReader<A> {
    /// Whether packets to an address leave the router, and by this port if one is named, by any of its
    /// next hops (RFC 8704).
    pub fn leads_by(&self, turn: &Turn<'_>, address: A, port: Option<PortId>) -> bool {
        let group = self.routes.lookup(turn, address);
        let ways = self.adjacencies.read(turn);
        let leads = |way: &Adjacency| {
            matches!(way.kind, AdjacencyKind::Gateway | AdjacencyKind::OnLink)
                && port.is_none_or(|port| way.port == port)
        };
        match ways.group_adjacency(group) {
            Adjacency { kind: AdjacencyKind::Multipath(_), target, count, .. } => {
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

    /// Reports to control, if it asks for reports, that a neighbor is used, as
    /// [`lookup_path`](PathReader::lookup_path) does.
    pub fn report_use(&self, neighbor: NeighborId) {
        if self.links.get(neighbor).wants_report() {
            self.links.report_use(neighbor);
        }
    }
}
