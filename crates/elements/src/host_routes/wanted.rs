//! Which routes and link-local addresses the host is to have for a router.
use crate::router::shared::SharedRouter;
use artery_device::RouteByGateway;
use artery_table::load::AnyPrefix;
use artery_table::router::{Ip, Source, Tables};
use artery_table::{Address as _, Group, Prefix};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most prefixes beside the default routes, of both families together.
pub(super) const MOST_PREFIXES: usize = 10_000;
/// Routes that are taken out of the tables while they are held.
const SLICE: usize = 1024;
/// The gateway of a route whose own next hop is none that the host could name. The router answers for
/// whomever the host asks on its interface.
const ANY_GATEWAY: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(169, 254, 0, 1)), IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1))];

/// What the host is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) routes: HashMap<(IpAddr, u8), IpAddr>,
    /// Whether there are too many prefixes, so that only the defaults are wanted.
    pub(super) has_defaults_only: bool,
    pub(super) link_local: Vec<Ipv6Addr>,
}

impl Wanted {
    /// Reads it out of a router's tables, in slices: whoever needs the tables meanwhile waits for one of
    /// them.
    pub(super) fn of(router: &SharedRouter) -> Wanted {
        let mut found = Found::default();
        let is_whole =
            found.add_family(
                router,
                |prefix| if let AnyPrefix::V4(prefix) = prefix { Some(prefix) } else { None },
            ) && found.add_family(router, |prefix| {
                if let AnyPrefix::V6(prefix) = prefix { Some(prefix) } else { None }
            });
        let tables = router.tables();
        let link_local = tables.port_views().iter().map(|port| Ipv6Addr::from_bits(port.link_local));
        let mut link_local: Vec<Ipv6Addr> = link_local.collect();
        link_local.sort_unstable();
        link_local.dedup();
        if !is_whole {
            found.routes.clear();
        }
        found.add_default::<u32>(&tables);
        found.add_default::<u128>(&tables);
        Wanted { routes: found.routes, has_defaults_only: !is_whole, link_local }
    }

    /// All of the routes.
    pub(super) fn routes(&self) -> impl Iterator<Item = RouteByGateway> + '_ {
        self.routes.iter().map(|(to, gateway)| (*to, *gateway))
    }
}

#[derive(Default)]
struct Found {
    routes: HashMap<(IpAddr, u8), IpAddr>,
    /// Groups mean the same while there are routes that lead to them.
    gateways: HashMap<Group, Option<IpAddr>>,
}

impl Found {
    /// Adds static and dynamic routes; connected prefixes follow from the addresses of the host's interface.
    /// Gives false where that is too much.
    fn add_family<A: Ip>(
        &mut self,
        router: &SharedRouter,
        of_family: impl Fn(AnyPrefix) -> Option<Prefix<A>>,
    ) -> bool {
        let mut last: Option<Prefix<A>> = None;
        loop {
            let tables = router.tables();
            self.gateways.clear();
            let start = last.unwrap_or(Prefix::ALL);
            let mut seen = 0;
            for route in tables.routes_from(start, last.is_none()).take(SLICE) {
                seen += 1;
                last = of_family(route.prefix);
                if !matches!(route.source, Source::Static | Source::Dynamic(_)) {
                    continue;
                }
                let gateway = self.gateway::<A>(&tables, route.group);
                let to = ends(route.prefix);
                if to.1 > 0 {
                    self.routes.insert(to, gateway);
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

    /// The gateway of a group: the first that is one of the family.
    fn gateway<A: Ip>(&mut self, tables: &Tables, group: Group) -> IpAddr {
        let is_ipv4 = A::BITS == 32;
        let found = self.gateways.entry(group).or_insert_with(|| {
            let members = tables.group(group)?.members;
            let gateways = members.into_iter().filter_map(|member| member.hop.gateway());
            gateways.map(|(_, gateway)| gateway).find(|gateway| gateway.is_ipv4() == is_ipv4)
        });
        found.unwrap_or(ANY_GATEWAY[usize::from(!is_ipv4)])
    }

    /// Adds the default route of a family in which the router has an address or a route.
    fn add_default<A: Ip>(&mut self, tables: &Tables) {
        self.gateways.clear();
        let own = tables.get(A::any(Prefix::ALL)).filter(|route| route.source != Source::BuiltIn);
        let is_ipv4 = A::BITS == 32;
        let has_address = tables.port_views().iter().any(|port| match is_ipv4 {
            true => !port.v4.is_empty(),
            false => !port.v6.is_empty(),
        });
        let has_route = self.routes.keys().any(|(to, _)| to.is_ipv4() == is_ipv4);
        let gateway = match own {
            Some(own) => self.gateway::<A>(tables, own.group),
            None if has_address || has_route => ANY_GATEWAY[usize::from(!is_ipv4)],
            None => return,
        };
        self.routes.insert(ends(A::any(Prefix::ALL)), gateway);
    }
}

/// A prefix as its first address and its length.
fn ends(prefix: AnyPrefix) -> (IpAddr, u8) {
    match prefix {
        AnyPrefix::V4(prefix) => (prefix.first().to_ip(), prefix.len()),
        AnyPrefix::V6(prefix) => (prefix.first().to_ip(), prefix.len()),
    }
}
