//! The routes of the host's main table, and which of those for a prefix the router forwards by: of those
//! that lead by host ports, the one with the lowest metric. How the kernel keeps several for a prefix is
//! as in `adopt`'s mirror.
use artery_device::HOST_ROUTE_PROTOCOL;
use artery_l3::router::Protocol;
use artery_lpm::load::AnyPrefix;
use artery_netlink::{Family, Manner, Path, Route, RouteHop, RouteKind};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The main routing table, RT_TABLE_MAIN.
const MAIN_TABLE: u32 = 254;
/// RTPROT_REDIRECT and RTPROT_RA: learned from others on a link.
const REDIRECT: u8 = 1;
const ROUTER_ADVERTISEMENT: u8 = 9;

/// A route for a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    priority: u32,
    pub(super) protocol: Protocol,
    pub(super) path: Arc<Path>,
}

#[derive(Default)]
pub(super) struct KernelTable {
    routes: HashMap<AnyPrefix, Vec<Candidate>>,
    /// Each different path once.
    paths: HashSet<Arc<Path>>,
}

impl KernelTable {
    /// Applies the addition or removal of a route; returns its prefix, if the router may use such routes.
    pub(super) fn apply_change(&mut self, is_gone: bool, manner: Manner, route: Route) -> Option<AnyPrefix> {
        let prefix = prefix_of(&route)?;
        if is_gone {
            self.remove_route(prefix, &route)
        } else {
            self.add_route(prefix, manner, route)
        }
        Some(prefix)
    }

    /// The route of a prefix that the router forwards by, if one `leads` by its ports.
    pub(super) fn best_route(&self, prefix: AnyPrefix, leads: impl Fn(&Path) -> bool) -> Option<&Candidate> {
        self.routes.get(&prefix)?.iter().find(|candidate| leads(&candidate.path))
    }

    pub(super) fn prefixes(&self) -> Vec<AnyPrefix> {
        self.routes.keys().copied().collect()
    }

    /// The prefixes with a route by a next-hop object of which something holds.
    pub(super) fn by_object(&self, holds: impl Fn(u32) -> bool) -> Vec<AnyPrefix> {
        let is_it = |path: &Path| path.object != 0 && holds(path.object);
        if !self.paths.iter().any(|path| is_it(path)) {
            return Vec::new();
        }
        let leads = |(_, all): &(&AnyPrefix, &Vec<Candidate>)| all.iter().any(|one| is_it(&one.path));
        self.routes.iter().filter(leads).map(|(prefix, _)| *prefix).collect()
    }

    fn add_route(&mut self, prefix: AnyPrefix, manner: Manner, route: Route) {
        let (family, priority) = (route.family, route.priority);
        let new =
            Candidate { priority, protocol: Protocol(route.protocol), path: self.share_path(route.path) };
        let list = self.routes.entry(prefix).or_default();
        match family {
            Family::V4 => add_ipv4(list, new, manner),
            Family::V6 => add_ipv6(list, new, manner),
        }
    }

    fn share_path(&mut self, mut path: Path) -> Arc<Path> {
        // What state next hops are in the router knows of its ports and neighbors.
        path.hops.iter_mut().for_each(|hop| (hop.is_dead, hop.is_without_carrier) = (false, false));
        if path.object != 0 {
            path.hops.clear();
        }
        if let Some(known) = self.paths.get(&path) {
            return known.clone();
        }
        if self.paths.len() >= 2 * self.routes.len().max(1024) {
            self.paths.retain(|path| Arc::strong_count(path) > 1);
        }
        let path = Arc::new(path);
        self.paths.insert(path.clone());
        path
    }

    fn remove_route(&mut self, prefix: AnyPrefix, route: &Route) {
        let Some(list) = self.routes.get_mut(&prefix) else { return };
        let is_like = |one: &Candidate| one.priority == route.priority;
        let has_it =
            |one: &Candidate| route.family == Family::V6 && is_like(one) && can_join_siblings(&one.path);
        if let Some(at) = list.iter().position(|one| is_like(one) && is_same_path(&one.path, &route.path)) {
            list.remove(at);
        } else if let Some(at) = list.iter().position(has_it) {
            let mut rest = (*list[at].path).clone();
            rest.hops.retain(|hop| !route.path.hops.iter().any(|gone| is_same_hop(hop, gone)));
            if rest.hops.is_empty() {
                list.remove(at);
            } else {
                list[at].path = Arc::new(rest);
            }
        }
        if list.is_empty() {
            self.routes.remove(&prefix);
        }
    }
}

/// The prefix of a route of the main table that was put there, for all sources and types of service. Those
/// that the kernel makes of addresses are the router's already, and those of the router itself are its own.
fn prefix_of(route: &Route) -> Option<AnyPrefix> {
    let is_own = [HOST_ROUTE_PROTOCOL, Protocol::KERNEL.0, REDIRECT, ROUTER_ADVERTISEMENT];
    let is_plain = route.table == MAIN_TABLE && route.tos == 0 && route.source.is_none();
    let is_wanted = is_plain && !is_own.contains(&route.protocol);
    AnyPrefix::new(route.destination, route.len).ok().filter(|_| is_wanted)
}

/// Those of one metric are in the order in which they were added.
fn add_ipv4(list: &mut Vec<Candidate>, new: Candidate, manner: Manner) {
    let is_there = |old: &&mut Candidate| old.priority == new.priority && is_same_path(&old.path, &new.path);
    if let Some(old) = list.iter_mut().find(is_there) {
        *old = new;
        return;
    }
    let first = list.iter().position(|old| old.priority >= new.priority).unwrap_or(list.len());
    let behind = list.iter().position(|old| old.priority > new.priority).unwrap_or(list.len());
    match manner {
        Manner::Replace if first < behind => list[first] = new,
        Manner::Append => list.insert(behind, new),
        _ => list.insert(first, new),
    }
}

/// Routes of one metric by gateways are one route with several next hops, and a message has all of them.
fn add_ipv6(list: &mut Vec<Candidate>, new: Candidate, manner: Manner) {
    let is_like = |old: &Candidate| old.priority == new.priority;
    if list.contains(&new) {
        return;
    }
    let joins = can_join_siblings(&new.path);
    let replaced = list.iter().position(|old| is_like(old) && can_join_siblings(&old.path) == joins);
    let fallback = || list.iter().position(is_like).filter(|_| manner == Manner::Replace);
    match replaced.filter(|_| joins || manner == Manner::Replace).or_else(fallback) {
        Some(at) => list[at] = new,
        None => {
            let behind = list.iter().position(|old| old.priority > new.priority).unwrap_or(list.len());
            list.insert(behind, new);
        }
    }
}

fn can_join_siblings(path: &Path) -> bool {
    let is_gateway = |hop: &RouteHop| hop.gateway.is_some();
    path.kind == RouteKind::Unicast && !path.hops.is_empty() && path.hops.iter().all(is_gateway)
}

fn is_same_path(one: &Path, other: &Path) -> bool {
    if one.kind != other.kind || one.object != other.object {
        return false;
    }
    let has = |hop: &RouteHop| other.hops.iter().any(|same| is_same_hop(hop, same));
    one.object != 0 || one.hops.len() == other.hops.len() && one.hops.iter().all(has)
}

fn is_same_hop(one: &RouteHop, other: &RouteHop) -> bool {
    one.link == other.link && one.gateway == other.gateway
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_netlink::build::{self, DEL_ROUTE, NEW_ROUTE};
    use artery_netlink::{Messages, News, Record};
    use std::net::IpAddr;

    const TO: ((&str, u8), (&str, u8)) = (("10.9.0.0", 16), ("fd09::", 16));

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// A message about a route with a metric by gateways on links.
    fn message(kind: u16, flags: u16, family: usize, metric: u32, hops: &[(&str, u32)]) -> Vec<u8> {
        let (to, len) = if family == 4 { TO.0 } else { TO.1 };
        let mut rest = vec![build::attribute(6, &metric.to_ne_bytes())];
        match hops {
            [(gateway, link)] => rest.extend([build::gateway(ip(gateway)), build::link(*link)]),
            hops => {
                let hop = |(gateway, link): &(&str, u32)| {
                    let one = build::multipath(*link, &[(ip(gateway), 1)]);
                    one[4..].to_vec()
                };
                let all: Vec<u8> = hops.iter().flat_map(hop).collect();
                rest.push(build::attribute(9, &all));
            }
        }
        let mut bytes = build::route(kind, (ip(to), len), 186, &rest);
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes
    }

    fn apply(table: &mut KernelTable, bytes: &[u8]) -> Option<AnyPrefix> {
        let news = Messages(bytes).next().and_then(|message| News::parse_message(&message)).unwrap();
        let News { is_gone, manner, record: Record::Route(route) } = news else { panic!() };
        table.apply_change(is_gone, manner, route)
    }

    /// The gateways of the best route of a family that leads by one of these links.
    fn best(table: &KernelTable, family: usize, links: &[u32]) -> Vec<String> {
        let (to, len) = if family == 4 { TO.0 } else { TO.1 };
        let leads = |path: &Path| path.hops.iter().any(|hop| links.contains(&hop.link));
        let found = table.best_route(AnyPrefix::new(ip(to), len).unwrap(), leads);
        let hops = found.map_or(Vec::new(), |found| found.path.hops.clone());
        hops.iter().map(|hop| hop.gateway.unwrap().to_string()).collect()
    }

    const REPLACE: u16 = 0x100;
    const APPEND: u16 = 0x800;

    #[test]
    fn of_several_routes_the_lowest_metric_that_leads_by_a_port_counts() {
        let mut table = KernelTable::default();
        for (metric, gateway, link) in [(20, "10.0.1.2", 1), (10, "192.0.2.1", 9), (30, "10.0.2.2", 2)] {
            assert!(apply(&mut table, &message(NEW_ROUTE, 0, 4, metric, &[(gateway, link)])).is_some());
        }
        assert_eq!(best(&table, 4, &[1, 2]), ["10.0.1.2"]);
        assert_eq!(best(&table, 4, &[2]), ["10.0.2.2"]);
        assert!(best(&table, 4, &[3]).is_empty());
        apply(&mut table, &message(DEL_ROUTE, 0, 4, 20, &[("10.0.1.2", 1)]));
        assert_eq!(best(&table, 4, &[1, 2]), ["10.0.2.2"]);
        apply(&mut table, &message(NEW_ROUTE, REPLACE, 4, 30, &[("10.0.2.3", 2)]));
        assert_eq!(best(&table, 4, &[1, 2]), ["10.0.2.3"]);
        apply(&mut table, &message(DEL_ROUTE, 0, 4, 30, &[("10.0.2.3", 2)]));
        apply(&mut table, &message(DEL_ROUTE, 0, 4, 10, &[("192.0.2.1", 9)]));
        assert!(table.prefixes().is_empty());
    }

    #[test]
    fn those_of_one_metric_are_kept_in_the_kernels_order() {
        let mut table = KernelTable::default();
        for (flags, gateway) in [(0, "10.0.1.2"), (APPEND, "10.0.1.3"), (0, "10.0.1.1")] {
            apply(&mut table, &message(NEW_ROUTE, flags, 4, 5, &[(gateway, 1)]));
        }
        for gateway in ["10.0.1.1", "10.0.1.2", "10.0.1.3"] {
            assert_eq!(best(&table, 4, &[1]), [gateway]);
            apply(&mut table, &message(DEL_ROUTE, 0, 4, 5, &[(gateway, 1)]));
        }
    }

    #[test]
    fn next_hops_of_ipv6_come_together_and_go_one_by_one() {
        let mut table = KernelTable::default();
        apply(&mut table, &message(NEW_ROUTE, 0, 6, 5, &[("fe80::1", 1)]));
        apply(&mut table, &message(NEW_ROUTE, APPEND, 6, 5, &[("fe80::1", 1), ("fe80::2", 2)]));
        assert_eq!(best(&table, 6, &[2]), ["fe80::1", "fe80::2"]);
        apply(&mut table, &message(DEL_ROUTE, 0, 6, 5, &[("fe80::1", 1)]));
        assert_eq!(best(&table, 6, &[2]), ["fe80::2"]);
        apply(&mut table, &message(DEL_ROUTE, 0, 6, 5, &[("fe80::2", 2)]));
        assert!(table.prefixes().is_empty());
    }

    #[test]
    fn routes_of_the_kernel_of_the_router_and_of_other_tables_are_passed_over() {
        let mut table = KernelTable::default();
        let whole = message(NEW_ROUTE, 0, 4, 5, &[("10.0.1.2", 1)]);
        // The table, the protocol and the type of service are in the header.
        for (at, value) in [(20, 100), (21, 2), (21, 77), (21, 1), (21, 9), (19, 8)] {
            let mut other = whole.clone();
            other[at] = value;
            assert_eq!(apply(&mut table, &other), None, "{at}: {value}");
        }
        assert!(apply(&mut table, &whole).is_some());
    }
}
