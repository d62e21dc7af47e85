//! Routes as they are asked for.
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
    pub fn several(gateways: impl IntoIterator<Item = (IpAddr, u32)>, selection: Selection) -> RouteSpec {
        let next_hops = gateways.into_iter().map(|(gateway, weight)| (Target::via(gateway), weight));
        RouteSpec { next_hops: next_hops.collect(), selection }
    }
}

/// A next hop as it is asked for.
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
    /// Nowhere, without a word.
    Blackhole,
    /// Nowhere; the sender hears that it can't be reached.
    Unreachable,
    /// Nowhere; the sender hears that it is forbidden.
    Prohibited,
}

impl Target {
    /// A router on a link of ours.
    pub const fn via(gateway: IpAddr) -> Target {
        Target::Via { port: None, gateway: Some(gateway), mtu: None }
    }
    /// Whoever has the destination's address on a port's link.
    pub const fn on_link(port: PortId) -> Target {
        Target::Via { port: Some(port), gateway: None, mtu: None }
    }
}
