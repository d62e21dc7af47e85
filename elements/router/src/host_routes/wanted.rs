//! Which routes and link-local addresses the host is to have for a router.
use artery_device::RouteByGateway;
use artery_forward::shared::SharedRouter;
use artery_l3::PortId;
use artery_l3::router::{Ip, Source, Tables};
use artery_lpm::load::AnyPrefix;
use artery_lpm::{Address as _, Group, Prefix};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most prefixes beside the default routes, of both families together.
pub(super) const MOST_PREFIXES: usize = 10_000;
/// Routes that are read from the tables under one lock.
const SLICE: usize = 1024;
/// The gateway of a route whose own next hop the host can't reach. The router answers for every address that
/// the host solicits on its interface.
const ANY_GATEWAY: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(169, 254, 0, 1)), IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1))];

/// How the host reaches a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// By one interface, on which the router answers for every address.
    Router,
    /// By an interface for each port.
    Ports,
}

/// The next hop of a prefix for the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostHop {
    /// The port whose interface it uses; None if one interface serves the whole router.
    pub(super) port: Option<PortId>,
    pub(super) gateway: IpAddr,
}

/// What the host is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) routes: HashMap<(IpAddr, u8), HostHop>,
    /// Whether there are too many prefixes, so that only the defaults are wanted.
    pub(super) has_defaults_only: bool,
    pub(super) link_local: Vec<Ipv6Addr>,
}

impl Wanted {
    /// Reads the wanted routes from a router's tables, in slices, so that other users of the tables wait for
    /// one of them at most.
    pub(super) fn from_router(router: &SharedRouter, reach: Reach) -> Wanted {
        let mut found = RouteCollector { reach, routes: HashMap::new(), hops: HashMap::new() };
        let of_v4 = |prefix| if let AnyPrefix::V4(prefix) = prefix { Some(prefix) } else { None };
        let of_v6 = |prefix| if let AnyPrefix::V6(prefix) = prefix { Some(prefix) } else { None };
        let is_whole = found.add_family(router, of_v4) && found.add_family(router, of_v6);
        let tables = router.lock_tables();
        let ports = if reach == Reach::Router { tables.port_views() } else { &[] };
        let mut link_local: Vec<Ipv6Addr> =
            ports.iter().map(|port| Ipv6Addr::from_bits(port.link_local)).collect();
        link_local.sort_unstable();
        link_local.dedup();
        if !is_whole {
            found.routes.clear();
        }
        found.add_default::<u32>(&tables);
        found.add_default::<u128>(&tables);
        Wanted { routes: found.routes, has_defaults_only: !is_whole, link_local }
    }

    /// All of the routes by the interface of a port, or by that to the router.
    pub(super) fn routes_by_port(&self, port: Option<PortId>) -> impl Iterator<Item = RouteByGateway> + '_ {
        let by_port = self.routes.iter().filter(move |(_, hop)| hop.port == port);
        by_port.map(|(to, hop)| (*to, hop.gateway))
    }
}

struct RouteCollector {
    reach: Reach,
    routes: HashMap<(IpAddr, u8), HostHop>,
    /// Groups keep their meaning while routes use them.
    hops: HashMap<Group, Option<HostHop>>,
}

impl RouteCollector {
    /// Adds static and dynamic routes; connected prefixes follow from the addresses of the host's interface.
    /// Returns false if there are too many.
    fn add_family<A: Ip>(
        &mut self,
        router: &SharedRouter,
        of_family: impl Fn(AnyPrefix) -> Option<Prefix<A>>,
    ) -> bool {
        let mut last: Option<Prefix<A>> = None;
        loop {
            let tables = router.lock_tables();
            self.hops.clear();
            let start = last.unwrap_or(Prefix::ALL);
            let mut seen = 0;
            for route in tables.routes_from(start, last.is_none()).take(SLICE) {
                seen += 1;
                last = of_family(route.prefix);
                let to = prefix_parts(route.prefix);
                if !self.is_for_host(route.source) || to.1 == 0 {
                    continue;
                }
                if let Some(hop) = self.find_hop::<A>(&tables, route.group) {
                    self.routes.insert(to, hop);
                }
                if self.routes.len() > MOST_PREFIXES {
                    return false;
                }
            }
            if seen < SLICE {
                return true;
            }
        }
    }

    /// Whether the host needs routes of this source. Those of daemons are in its table already if they run
    /// on interfaces of ports.
    fn is_for_host(&self, source: Source) -> bool {
        match source {
            Source::Static => true,
            Source::Dynamic(_) => self.reach == Reach::Router,
            _ => false,
        }
    }

    /// The host's next hop for a group: its first gateway of the family. Without one it is the router, if
    /// that has one interface for all ports.
    fn find_hop<A: Ip>(&mut self, tables: &Tables, group: Group) -> Option<HostHop> {
        let (is_ipv4, reach) = (A::BITS == 32, self.reach);
        let found = self.hops.entry(group).or_insert_with(|| {
            let members = tables.group_view(group)?.members;
            let gateways = members.into_iter().filter_map(|member| member.hop.gateway());
            let (port, gateway) = gateways.into_iter().find(|(_, gateway)| gateway.is_ipv4() == is_ipv4)?;
            Some(HostHop { port: (reach == Reach::Ports).then_some(port), gateway })
        });
        found.or_else(|| self.any_hop(is_ipv4))
    }

    fn any_hop(&self, is_ipv4: bool) -> Option<HostHop> {
        let hop = HostHop { port: None, gateway: ANY_GATEWAY[usize::from(!is_ipv4)] };
        (self.reach == Reach::Router).then_some(hop)
    }

    /// Adds the default route of a family in which the router has an address or a route.
    fn add_default<A: Ip>(&mut self, tables: &Tables) {
        self.hops.clear();
        let own = tables.get(A::any_prefix(Prefix::ALL)).filter(|route| self.is_for_host(route.source));
        let is_ipv4 = A::BITS == 32;
        let has_address = tables.port_views().iter().any(|port| match is_ipv4 {
            true => !port.v4.is_empty(),
            false => !port.v6.is_empty(),
        });
        let has_route = self.routes.keys().any(|(to, _)| to.is_ipv4() == is_ipv4);
        let hop = match own {
            Some(own) => self.find_hop::<A>(tables, own.group),
            None if has_address || has_route => self.any_hop(is_ipv4),
            None => None,
        };
        if let Some(hop) = hop {
            self.routes.insert(prefix_parts(A::any_prefix(Prefix::ALL)), hop);
        }
    }
}

/// A prefix as its first address and its length.
fn prefix_parts(prefix: AnyPrefix) -> (IpAddr, u8) {
    match prefix {
        AnyPrefix::V4(prefix) => (prefix.first().to_ip(), prefix.len()),
        AnyPrefix::V6(prefix) => (prefix.first().to_ip(), prefix.len()),
    }
}
