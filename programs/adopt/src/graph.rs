//! Copies the mirror into the tables of an engine router, so that its graph forwards as the kernel would.
//!
//! The kernel finds its neighbors and chooses its routes; here they are written into the tables of an
//! IPRouter. What leads elsewhere than out by a port of the router is a blackhole in them: the programs in
//! front of it send it no such packets.
use crate::kernel::{Family, Link};
use crate::mirror::{Exclusion, FibBinding, NextHopSet, NextHopSetId, Sink};
use artery_l3::PortId;
use artery_l3::neighbor::Kind;
use artery_l3::router::{Ip, RouteSpec, RouterError, Tables, Target};
use artery_lpm::Prefix;
use artery_lpm::load::AnyPrefix;
use artery_wire::EtherAddr;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Limit on the routes of a changed next-hop set that are replaced one by one. With more, all routes are laid
/// out again, which is faster.
const MANY: usize = 4096;

/// Calls a function with the tables of a router. Nothing else changes them meanwhile.
pub type WithTables = Box<dyn Fn(&mut dyn FnMut(&mut Tables)) + Send>;

/// Routes of a family, with the next-hop set of each.
type Routes<A> = BTreeMap<Prefix<A>, NextHopSetId>;

/// A [`Sink`] that writes the mirror's routes into a router's tables.
pub struct Graph {
    tables: WithTables,
    /// The router's ports by the interfaces that they are.
    ports: BTreeMap<u32, PortId>,
    next_hop_sets: HashMap<NextHopSetId, NextHopSet>,
    ipv4: Routes<u32>,
    ipv6: Routes<u128>,
    neighbors: HashSet<(u32, IpAddr)>,
    /// Loads that have begun, one within another.
    loads: u32,
    fault: Option<RouterError>,
}

impl Graph {
    /// For the router with these tables, whose ports are these interfaces.
    pub fn new(ports: BTreeMap<u32, PortId>, tables: WithTables) -> Graph {
        Graph {
            tables,
            ports,
            next_hop_sets: HashMap::new(),
            ipv4: BTreeMap::new(),
            ipv6: BTreeMap::new(),
            neighbors: HashSet::new(),
            loads: 0,
            fault: None,
        }
    }

    /// What the tables did not take. From then on they are not what the kernel has, and nothing may
    /// be forwarded by them.
    pub fn fault(&self) -> Option<&RouterError> {
        self.fault.as_ref()
    }

    /// Changes the tables. The router needn't report neighbor events of that change: the
    /// mirror has them already.
    fn change_tables(&mut self, mut how: impl FnMut(&mut Tables, Duration) -> Result<(), RouterError>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut done = Ok(());
        (self.tables)(&mut |tables| {
            done = how(tables, now);
            tables.drain_actions(&mut Vec::new());
        });
        if let Err(error) = done {
            self.fault.get_or_insert(error);
        }
    }

    /// The router's route for this next-hop set, and those of its gateways that can't be reached now.
    fn route_spec(&self, way: NextHopSetId) -> (RouteSpec, Vec<(PortId, IpAddr)>) {
        let hops = match self.next_hop_sets.get(&way) {
            Some(NextHopSet::Hops(hops)) => hops.as_slice(),
            Some(NextHopSet::Kernel) | None => &[],
        };
        let mut dead = Vec::new();
        let mut next_hops = Vec::new();
        for hop in hops {
            let Some(&port) = self.ports.get(&hop.link) else { continue };
            let target = Target::Via { port: Some(port), gateway: hop.gateway, mtu: None };
            next_hops.push((target, u32::from(hop.weight)));
            let is_dead = |gateway: &IpAddr| !self.neighbors.contains(&(hop.link, *gateway));
            dead.extend(hop.gateway.filter(is_dead).map(|gateway| (port, gateway)));
        }
        if next_hops.is_empty() {
            return (RouteSpec::to(Target::Blackhole), dead);
        }
        (RouteSpec { next_hops, ..RouteSpec::default() }, dead)
    }

    fn replace_route<A: Ip>(&mut self, prefix: Prefix<A>, way: NextHopSetId) {
        let (spec, dead) = self.route_spec(way);
        self.change_tables(|tables, now| {
            unless_own(tables.replace_route(A::any_prefix(prefix), &spec, now))?;
            withdraw_gateways(tables, &dead);
            Ok(())
        });
    }

    fn delete_route(&mut self, prefix: AnyPrefix) {
        self.change_tables(|tables, now| match tables.delete_route(prefix, now) {
            Err(RouterError::NotInTable(_)) => Ok(()),
            done => unless_own(done),
        });
    }

    /// Lays out all routes of a family.
    fn load_routes<A: Ip>(&mut self, routes: &Routes<A>) {
        let mut numbers: HashMap<NextHopSetId, usize> = HashMap::new();
        let mut specs = Vec::new();
        let mut dead = Vec::new();
        let mut number_of = |way: NextHopSetId| {
            *numbers.entry(way).or_insert_with(|| {
                let (spec, without) = self.route_spec(way);
                specs.push(spec);
                dead.extend(without);
                specs.len() - 1
            })
        };
        let all: Vec<_> = routes.iter().map(|(prefix, way)| (*prefix, number_of(*way))).collect();
        self.change_tables(|tables, now| {
            tables.load_routes(&specs, all.iter().copied(), now)?;
            withdraw_gateways(tables, &dead);
            Ok(())
        });
    }

    /// Replaces the routes of one family that lead to a changed next-hop set.
    fn update_routes<A: Ip>(&mut self, routes: &Routes<A>, way: NextHopSetId) {
        let changed: Vec<Prefix<A>> =
            routes.iter().filter(|(_, of)| **of == way).map(|(prefix, _)| *prefix).collect();
        if changed.len() >= MANY {
            return self.load_routes(routes);
        }
        changed.into_iter().for_each(|prefix| self.replace_route(prefix, way));
    }

    /// Does something with the routes of both families, beside the rest.
    fn with_routes(&mut self, act: impl FnOnce(&mut Graph, &Routes<u32>, &Routes<u128>)) {
        let (ipv4, ipv6) = (std::mem::take(&mut self.ipv4), std::mem::take(&mut self.ipv6));
        act(self, &ipv4, &ipv6);
        (self.ipv4, self.ipv6) = (ipv4, ipv6);
    }
}

/// Prefixes that any router has for itself, as for loopback and groups, stay as they are: programs
/// send no such packets.
fn unless_own(done: Result<(), RouterError>) -> Result<(), RouterError> {
    match done {
        Err(RouterError::OwnPrefix(_)) => Ok(()),
        done => done,
    }
}

fn withdraw_gateways(tables: &mut Tables, gateways: &[(PortId, IpAddr)]) {
    for &(port, gateway) in gateways {
        tables.withdraw_gateway(port, gateway, true);
    }
}

impl Sink for Graph {
    fn set_next_hops(&mut self, _: Family, id: NextHopSetId, way: Option<&NextHopSet>) {
        let before = match way {
            Some(way) => self.next_hop_sets.insert(id, way.clone()),
            None => self.next_hop_sets.remove(&id),
        };
        if self.loads == 0 && way.is_some() && before.as_ref() != way {
            self.with_routes(|graph, ipv4, ipv6| {
                graph.update_routes(ipv4, id);
                graph.update_routes(ipv6, id);
            });
        }
    }

    fn set_route4(&mut self, prefix: Prefix<u32>, way: Option<NextHopSetId>) {
        match way {
            Some(way) => drop(self.ipv4.insert(prefix, way)),
            None => drop(self.ipv4.remove(&prefix)),
        }
        match way {
            _ if self.loads > 0 => {}
            Some(way) => self.replace_route(prefix, way),
            None => self.delete_route(AnyPrefix::V4(prefix)),
        }
    }

    fn set_route6(&mut self, prefix: Prefix<u128>, way: Option<NextHopSetId>) {
        match way {
            Some(way) => drop(self.ipv6.insert(prefix, way)),
            None => drop(self.ipv6.remove(&prefix)),
        }
        match way {
            _ if self.loads > 0 => {}
            Some(way) => self.replace_route(prefix, way),
            None => self.delete_route(AnyPrefix::V6(prefix)),
        }
    }

    fn set_neighbor(&mut self, link: u32, address: IpAddr, mac: Option<EtherAddr>) {
        let Some(&port) = self.ports.get(&link) else { return };
        match mac {
            Some(_) => self.neighbors.insert((link, address)),
            None => self.neighbors.remove(&(link, address)),
        };
        self.change_tables(|tables, now| {
            match mac {
                Some(mac) => tables.set_neighbor(port, address, mac, Kind::Static, now)?,
                None => drop(tables.delete_neighbor(port, address, now)?),
            }
            tables.withdraw_gateway(port, address, mac.is_none());
            Ok(())
        });
    }

    /// The router follows its interfaces itself.
    fn set_link(&mut self, _: u32, _: Option<&Link>) {}

    /// Programs keep to the rules.
    fn exclude(&mut self, _: Family, _: &Exclusion) {}

    fn begin_load(&mut self) {
        self.loads += 1;
    }

    fn end_load(&mut self) {
        self.loads -= 1;
        if self.loads > 0 {
            return;
        }
        self.with_routes(|graph, ipv4, ipv6| {
            graph.load_routes(ipv4);
            graph.load_routes(ipv6);
        });
    }
}

/// Sends each change to two sinks, the first of them first.
pub(crate) struct SinkPair<'a>(pub(crate) &'a mut dyn Sink, pub(crate) &'a mut dyn Sink);

impl Sink for SinkPair<'_> {
    fn set_next_hops(&mut self, family: Family, id: NextHopSetId, way: Option<&NextHopSet>) {
        self.0.set_next_hops(family, id, way);
        self.1.set_next_hops(family, id, way);
    }
    fn set_route4(&mut self, prefix: Prefix<u32>, way: Option<NextHopSetId>) {
        self.0.set_route4(prefix, way);
        self.1.set_route4(prefix, way);
    }
    fn set_route6(&mut self, prefix: Prefix<u128>, way: Option<NextHopSetId>) {
        self.0.set_route6(prefix, way);
        self.1.set_route6(prefix, way);
    }
    fn set_neighbor(&mut self, link: u32, address: IpAddr, mac: Option<EtherAddr>) {
        self.0.set_neighbor(link, address, mac);
        self.1.set_neighbor(link, address, mac);
    }
    fn set_link(&mut self, index: u32, link: Option<&Link>) {
        self.0.set_link(index, link);
        self.1.set_link(index, link);
    }
    fn exclude(&mut self, family: Family, keep: &Exclusion) {
        self.0.exclude(family, keep);
        self.1.exclude(family, keep);
    }
    fn begin_load(&mut self) {
        self.0.begin_load();
        self.1.begin_load();
    }
    fn end_load(&mut self) {
        self.0.end_load();
        self.1.end_load();
    }
    fn follows_vrf(&self, link: &Link) -> bool {
        self.0.follows_vrf(link) && self.1.follows_vrf(link)
    }
    fn bind_link(&mut self, link: u32, binding: FibBinding) {
        self.0.bind_link(link, binding);
        self.1.bind_link(link, binding);
    }
    fn begin_vrf(&mut self, table: u32) {
        self.0.begin_vrf(table);
        self.1.begin_vrf(table);
    }
    fn end_vrf(&mut self, table: u32) {
        self.0.end_vrf(table);
        self.1.end_vrf(table);
    }
    fn remove_vrf(&mut self, table: u32) {
        self.0.remove_vrf(table);
        self.1.remove_vrf(table);
    }
    fn set_vrf_route4(&mut self, table: u32, prefix: Prefix<u32>, way: Option<NextHopSetId>) {
        self.0.set_vrf_route4(table, prefix, way);
        self.1.set_vrf_route4(table, prefix, way);
    }
    fn set_vrf_route6(&mut self, table: u32, prefix: Prefix<u128>, way: Option<NextHopSetId>) {
        self.0.set_vrf_route6(table, prefix, way);
        self.1.set_vrf_route6(table, prefix, way);
    }
}
