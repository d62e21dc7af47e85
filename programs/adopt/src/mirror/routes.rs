//! How the kernel keeps several routes for a prefix, and which of them a message means.
use super::Sink;
use super::merged::FamilyTables;
use super::paths::{PathId, Paths};
use super::sink::FamilySink;
use super::table::{Candidate, RouteKey};
use super::world::KernelState;
use crate::kernel::{Family, Manner, Path, Route, RouteHop, RouteKind};
use artery_lpm::Prefix;

/// RTPROT_RA: made by a router's advertisement.
const ROUTER_ADVERTISEMENT: u8 = 9;

/// The tables of a family and what is needed to change them.
pub(super) struct TableUpdate<'a, A: FamilySink> {
    pub(super) merged: &'a mut FamilyTables<A>,
    pub(super) paths: &'a mut Paths,
    pub(super) world: &'a KernelState,
    pub(super) sink: &'a mut dyn Sink,
}

impl<A: FamilySink> TableUpdate<'_, A> {
    /// A route of a prefix has come or gone. Says whether that could be.
    pub(super) fn apply_route(
        &mut self,
        is_gone: bool,
        manner: Manner,
        prefix: Prefix<A>,
        route: &Route,
    ) -> bool {
        let key = RouteKey::of(prefix, route);
        if is_gone {
            return self.remove_route(key, route);
        }
        self.add_route(key, manner, route);
        true
    }

    fn add_route(&mut self, key: RouteKey<A>, manner: Manner, route: &Route) {
        let before = self.merged.candidates(route.table, key);
        let new = self.acquire_candidate(route);
        let mut after = before.clone();
        match route.family {
            Family::V4 => add_ipv4(&mut after, new, manner, self.paths),
            Family::V6 => {
                let can_join = |paths: &Paths, id| can_join(paths.path(id));
                let joins = can_join(self.paths, new.path) && route.protocol != ROUTER_ADVERTISEMENT;
                add_ipv6(&mut after, new, manner, joins, |id| can_join(self.paths, id));
            }
        }
        self.change_routes(route.table, key, [&before[..], &[new]].concat(), &after);
    }

    /// Says whether there was such a route.
    fn remove_route(&mut self, key: RouteKey<A>, route: &Route) -> bool {
        let mut before = self.merged.candidates(route.table, key);
        let mut after = before.clone();
        let is_like =
            |candidate: &Candidate| candidate.priority == route.priority && candidate.tos == route.tos;
        let same = |candidate: &Candidate| {
            is_like(candidate) && is_same(self.paths.path(candidate.path), &route.path)
        };
        if let Some(at) = after.iter().position(same) {
            after.remove(at);
        } else if let Some(at) = after.iter().position(|candidate| {
            route.family == Family::V6 && is_like(candidate) && can_join(self.paths.path(candidate.path))
        }) {
            let mut rest = self.paths.path(after[at].path).clone();
            let had = rest.hops.len();
            rest.hops.retain(|hop| !route.path.hops.iter().any(|gone| is_same_hop(hop, gone)));
            if rest.hops.len() == had {
                return false;
            }
            if rest.hops.is_empty() {
                after.remove(at);
            } else {
                after[at].path = self.paths.acquire_path(route.family, &rest, self.world, self.sink);
                before.push(after[at]);
            }
        } else {
            return false;
        }
        self.change_routes(route.table, key, before, &after);
        true
    }

    /// A dump has found these routes of a prefix in a table, all for the same sources, and no others.
    pub(super) fn set_found(&mut self, prefix: Prefix<A>, routes: &[Route]) {
        let Some(first) = routes.first() else { return };
        let (table, key) = (first.table, RouteKey::of(prefix, first));
        if self.merged.is_touched(table, key) {
            return;
        }
        let new: Vec<Candidate> = routes.iter().map(|route| self.acquire_candidate(route)).collect();
        let unused = self.merged.set_routes(table, key, &new, self.paths, self.sink).unwrap_or(new);
        unused.iter().for_each(|candidate| self.paths.release_path(candidate.path, self.sink));
    }

    /// Takes all routes by some paths from a key.
    pub(super) fn remove_by_path(&mut self, table: u32, key: RouteKey<A>, is_out: impl Fn(PathId) -> bool) {
        let before = self.merged.candidates(table, key);
        let mut after = before.clone();
        after.retain(|candidate| !is_out(candidate.path));
        self.change_routes(table, key, before, &after);
    }

    /// Gives a key these routes; `held` are all whose paths are used for it until now.
    fn change_routes(&mut self, table: u32, key: RouteKey<A>, mut held: Vec<Candidate>, after: &[Candidate]) {
        self.merged.change_routes(table, key, after, self.paths, self.sink);
        for candidate in after {
            let at = held.iter().position(|held| held.path == candidate.path);
            held.swap_remove(at.expect("each route that stays was held"));
        }
        held.iter().for_each(|candidate| self.paths.release_path(candidate.path, self.sink));
    }

    fn acquire_candidate(&mut self, route: &Route) -> Candidate {
        let path = self.world.without_known_states(route.family, &route.path);
        Candidate {
            priority: route.priority,
            path: self.paths.acquire_path(route.family, &path, self.world, self.sink),
            tos: route.tos,
            preference: preference(route.preference),
        }
    }
}

/// High is 1, medium 0, low 3 (RFC 4191 section 2.1): in the order of preference.
fn preference(number: u8) -> u8 {
    (number & 3) ^ 2
}

/// IPv4: routes of one metric and type of service, in the order that the kernel was configured with.
fn add_ipv4(list: &mut Vec<Candidate>, new: Candidate, manner: Manner, paths: &Paths) {
    let key = |candidate: &Candidate| (u8::MAX - candidate.tos, candidate.priority);
    let wanted = key(&new);
    let is_there =
        |old: &&mut Candidate| key(old) == wanted && is_same(paths.path(old.path), paths.path(new.path));
    if let Some(old) = list.iter_mut().find(is_there) {
        *old = new;
        return;
    }
    let first = list.iter().position(|old| key(old) >= wanted).unwrap_or(list.len());
    let behind = list.iter().position(|old| key(old) > wanted).unwrap_or(list.len());
    match manner {
        Manner::Replace if first < behind => list[first] = new,
        Manner::Append => list.insert(behind, new),
        _ => list.insert(first, new),
    }
}

/// IPv6: routes of one metric by gateways are one route with several next hops, which one message lists in
/// full; others are put behind those that are there.
fn add_ipv6(
    list: &mut Vec<Candidate>,
    new: Candidate,
    manner: Manner,
    joins: bool,
    can_join: impl Fn(PathId) -> bool,
) {
    let is_like = |old: &Candidate| old.priority == new.priority;
    if list.contains(&new) {
        return;
    }
    let replaced = list.iter().position(|old| is_like(old) && can_join(old.path) == joins);
    let fallback = || list.iter().position(is_like).filter(|_| manner == Manner::Replace);
    let replaced = replaced.filter(|_| joins || manner == Manner::Replace).or_else(fallback);
    match replaced {
        Some(at) => list[at] = new,
        None => {
            let behind = list.iter().position(|old| old.priority > new.priority).unwrap_or(list.len());
            list.insert(behind, new);
        }
    }
}

/// Whether a path of IPv6 is one of those that the kernel sends in one message.
fn can_join(path: &Path) -> bool {
    let is_gateway = |hop: &RouteHop| hop.gateway.is_some();
    path.kind == RouteKind::Unicast && !path.hops.is_empty() && path.hops.iter().all(is_gateway)
}

/// Whether two paths lead to the same, whatever state their next hops are in.
fn is_same(one: &Path, other: &Path) -> bool {
    let has = |hop: &RouteHop| other.hops.iter().any(|same| is_same_hop(hop, same));
    one.kind == other.kind
        && one.object == other.object
        && one.hops.len() == other.hops.len()
        && one.hops.iter().all(has)
}

fn is_same_hop(one: &RouteHop, other: &RouteHop) -> bool {
    one.link == other.link && one.gateway == other.gateway
}
