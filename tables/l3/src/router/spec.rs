//! Specifications of routes, as configured.
use crate::PortId;
use crate::next_hop::Selection;
use std::net::IpAddr;

/// Where a route is to lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteSpec {
    /// Next hops, each with its weight, which is at least 1.
    pub next_hops: Vec<(Target, u32)>,
    /// How one of several is chosen.
    pub selection: Selection,
}

impl RouteSpec {
    /// To one next hop.
    pub fn to(target: Target) -> RouteSpec {
        RouteSpec { next_hops: vec![(target, 1)], selection: Selection::default() }
    }
    /// To a router on a link of ours.
    pub fn via(gateway: IpAddr) -> RouteSpec {
        RouteSpec::to(Target::via(gateway))
    }
    /// To several routers, by weight.
    pub fn multipath(gateways: impl IntoIterator<Item = (IpAddr, u32)>, selection: Selection) -> RouteSpec {
        let next_hops = gateways.into_iter().map(|(gateway, weight)| (Target::via(gateway), weight));
        RouteSpec { next_hops: next_hops.collect(), selection }
    }
}

/// Specification of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Out of the router.
    Via {
        /// The port; the one whose link the gateway is on, if none is said.
        port: Option<PortId>,
        /// A router, of either family for IPv4 (RFC 8950); the destination itself, if none is said.
        gateway: Option<IpAddr>,
        /// The longest packet, if that is less than the port's.
        mtu: Option<u16>,
    },
    /// To the router itself.
    Local,
    /// Drops packets without an answer.
    Blackhole,
    /// Drops packets and answers that the destination is unreachable.
    Unreachable,
    /// Drops packets and answers that the destination is prohibited.
    Prohibited,
}

impl Target {
    /// A router on a link of ours.
    pub const fn via(gateway: IpAddr) -> Target {
        Target::Via { port: None, gateway: Some(gateway), mtu: None }
    }
    /// The destination itself, on a port's link.
    pub const fn on_link(port: PortId) -> Target {
        Target::Via { port: Some(port), gateway: None, mtu: None }
    }
}
