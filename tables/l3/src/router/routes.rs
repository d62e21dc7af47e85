//! Static and dynamic routes: one by one, and whole feeds.
use super::side::{Claim, Ip, Source, best_claim, is_lone};
use super::{GroupView, Protocol, RouteSpec, RouterError, Tables, Target, is_up};
use crate::PortId;
use crate::next_hop::{Hop, Selection};
use crate::path::Outcome;
use artery_lpm::load::AnyPrefix;
use artery_lpm::{Group, Prefix};
use artery_storage::{MOST_MEMBERS, MOST_SLOTS};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// A route, to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteView {
    /// Destination prefix of the route.
    pub prefix: AnyPrefix,
    /// Why it is there.
    pub source: Source,
    /// The group that it leads to; see [`Tables::group_view`].
    pub group: Group,
}

/// Whether a dynamic route forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Packets to the prefix follow the route.
    Forwards,
    /// The router has a route for the prefix that comes first: a static one, or one of its own addresses.
    Shadowed,
}

impl Tables {
    /// Adds a static route. It is an error if the prefix has a route; see
    /// [`replace_route`](Self::replace_route).
    pub fn add_route(
        &mut self,
        prefix: AnyPrefix,
        spec: &RouteSpec,
        now: Duration,
    ) -> Result<(), RouterError> {
        match prefix {
            AnyPrefix::V4(prefix) => self.upsert_route(prefix, spec, false, now),
            AnyPrefix::V6(prefix) => self.upsert_route(prefix, spec, false, now),
        }
    }

    /// Adds a static route or puts it in the place of the one there is: each packet takes one or the other.
    pub fn replace_route(
        &mut self,
        prefix: AnyPrefix,
        spec: &RouteSpec,
        now: Duration,
    ) -> Result<(), RouterError> {
        match prefix {
            AnyPrefix::V4(prefix) => self.upsert_route(prefix, spec, true, now),
            AnyPrefix::V6(prefix) => self.upsert_route(prefix, spec, true, now),
        }
    }

    /// Deletes a static route.
    pub fn delete_route(&mut self, prefix: AnyPrefix, now: Duration) -> Result<(), RouterError> {
        match prefix {
            AnyPrefix::V4(prefix) => self.delete_static(prefix, now),
            AnyPrefix::V6(prefix) => self.delete_static(prefix, now),
        }
    }

    /// Adds a dynamic route, or puts it in the place of the dynamic one there is: each packet takes one or
    /// the other. On an error the old one stays.
    pub fn replace_dynamic_route(
        &mut self,
        prefix: AnyPrefix,
        spec: &RouteSpec,
        protocol: Protocol,
        now: Duration,
    ) -> Result<Standing, RouterError> {
        match prefix {
            AnyPrefix::V4(prefix) => self.install_dynamic(prefix, spec, protocol, now),
            AnyPrefix::V6(prefix) => self.install_dynamic(prefix, spec, protocol, now),
        }
    }

    /// Deletes a dynamic route, whatever its protocol.
    pub fn delete_dynamic_route(&mut self, prefix: AnyPrefix, now: Duration) -> Result<(), RouterError> {
        match prefix {
            AnyPrefix::V4(prefix) => self.delete_dynamic(prefix, now),
            AnyPrefix::V6(prefix) => self.delete_dynamic(prefix, now),
        }
    }

    /// The route of exactly this prefix that forwards.
    pub fn get(&self, prefix: AnyPrefix) -> Option<RouteView> {
        match prefix {
            AnyPrefix::V4(prefix) => self.v4.table.get(prefix).map(|group| self.view_route(prefix, group)),
            AnyPrefix::V6(prefix) => self.v6.table.get(prefix).map(|group| self.view_route(prefix, group)),
        }
    }

    /// The route that packets to an address take.
    pub fn lookup_route(&self, address: IpAddr) -> Option<RouteView> {
        match address {
            IpAddr::V4(address) => {
                self.v4.table.lookup(address.to_bits()).map(|(prefix, group)| self.view_route(prefix, group))
            }
            IpAddr::V6(address) => {
                self.v6.table.lookup(address.to_bits()).map(|(prefix, group)| self.view_route(prefix, group))
            }
        }
    }

    /// The routes of a family that forward, by address and then from short to long.
    pub fn routes<A: Ip>(&self) -> impl Iterator<Item = RouteView> + '_ {
        A::side(self).table.iter().map(|(prefix, group)| self.view_route(prefix, group))
    }

    /// Those that come after a prefix, whether it has a route or not; and before them its
    /// own one, if `with_own`.
    pub fn routes_from<A: Ip>(
        &self,
        prefix: Prefix<A>,
        with_own: bool,
    ) -> impl Iterator<Item = RouteView> + '_ {
        let table = &A::side(self).table;
        let own = table.get(prefix).filter(|_| with_own).map(|group| (prefix, group));
        own.into_iter()
            .chain(table.routes_after(prefix))
            .map(|(prefix, group)| self.view_route(prefix, group))
    }

    /// How many routes of a family forward.
    pub fn route_count<A: Ip>(&self) -> usize {
        A::side(self).table.len()
    }

    /// A number that is another one whenever the routes that forward have changed, in either family.
    pub fn routes_version(&self) -> u64 {
        self.v4.changes + self.v6.changes + self.v4.loads + self.v6.loads
    }

    /// The ports by which the default routes of both families leave, whether their gateways answer or not.
    pub fn default_route_ports(&self) -> Vec<PortId> {
        let all = [AnyPrefix::V4(Prefix::ALL), AnyPrefix::V6(Prefix::ALL)];
        let groups = all.into_iter().filter_map(|prefix| self.group_view(self.get(prefix)?.group));
        let mut ports: Vec<PortId> =
            groups.flat_map(|group| group.members).filter_map(|member| member.hop.port()).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// Where routes lead that have this group.
    pub fn group_view(&self, group: Group) -> Option<GroupView> {
        self.hops.view_group(group)
    }

    /// All groups that routes lead to.
    pub fn group_views(&self) -> Vec<GroupView> {
        self.hops.groups().into_iter().filter_map(|group| self.hops.view_group(group)).collect()
    }

    /// How many different next hops there are.
    pub fn next_hops(&self) -> usize {
        self.hops.len()
    }

    /// The next hop of a group that a decision chose as its member of this number.
    pub fn group_member(&self, group: Group, member: u32) -> Option<Hop> {
        self.hops.in_slot(group, member)
    }

    fn view_route<A: Ip>(&self, prefix: Prefix<A>, group: Group) -> RouteView {
        RouteView {
            prefix: A::any_prefix(prefix),
            source: A::side(self).source_of(prefix, group, &self.hops),
            group,
        }
    }

    fn upsert_route<A: Ip>(
        &mut self,
        prefix: Prefix<A>,
        spec: &RouteSpec,
        may_replace: bool,
        now: Duration,
    ) -> Result<(), RouterError> {
        if self.owned_claims(prefix) {
            return Err(RouterError::OwnPrefix(A::any_prefix(prefix)));
        }
        let old = A::side(self).requested_claim(prefix, Source::Static, &self.hops).map(|claim| claim.group);
        if old.is_some() && !may_replace {
            return Err(RouterError::Exists(A::any_prefix(prefix)));
        }
        let members = self.resolve_members::<A>(spec)?;
        let group = self.group_of(&members, spec.selection, None, old, now)?;
        self.install_requested(prefix, Claim { source: Source::Static, group }, old, now)
    }

    fn delete_static<A: Ip>(&mut self, prefix: Prefix<A>, now: Duration) -> Result<(), RouterError> {
        match A::side(self).requested_claim(prefix, Source::Static, &self.hops) {
            Some(claim) => self.delete_requested(prefix, claim, now),
            None if self.owned_claims(prefix) => Err(RouterError::OwnPrefix(A::any_prefix(prefix))),
            None => Err(RouterError::NotInTable(A::any_prefix(prefix))),
        }
    }

    fn install_dynamic<A: Ip>(
        &mut self,
        prefix: Prefix<A>,
        spec: &RouteSpec,
        protocol: Protocol,
        now: Duration,
    ) -> Result<Standing, RouterError> {
        let source = Source::Dynamic(protocol);
        let old = A::side(self).requested_claim(prefix, source, &self.hops).map(|claim| claim.group);
        let members = self.resolve_members::<A>(spec)?;
        let group = self.group_of(&members, spec.selection, Some(protocol), old, now)?;
        self.install_requested(prefix, Claim { source, group }, old, now)?;
        let forwards = A::side(self).table.get(prefix) == Some(group);
        Ok(if forwards { Standing::Forwards } else { Standing::Shadowed })
    }

    fn delete_dynamic<A: Ip>(&mut self, prefix: Prefix<A>, now: Duration) -> Result<(), RouterError> {
        // Of whichever protocol: a prefix has one dynamic route.
        let any = Source::Dynamic(Protocol(0));
        match A::side(self).requested_claim(prefix, any, &self.hops) {
            Some(claim) => self.delete_requested(prefix, claim, now),
            None => Err(RouterError::NotInTable(A::any_prefix(prefix))),
        }
    }

    /// The group of these members for one more route. Publish next hops before it leads there.
    pub(super) fn group_of(
        &mut self,
        members: &[(Hop, u32)],
        selection: Selection,
        protocol: Option<Protocol>,
        heir_of: Option<Group>,
        now: Duration,
    ) -> Result<Group, RouterError> {
        let (v4, v6) = (&mut self.v4, &mut self.v6);
        let pin = |port: PortId, gateway: IpAddr| -> Result<_, RouterError> {
            Ok(match gateway {
                IpAddr::V4(address) => v4.engine_of(port)?.pin_neighbor(address.to_bits(), now)?,
                IpAddr::V6(address) => v6.engine_of(port)?.pin_neighbor(address.to_bits(), now)?,
            })
        };
        let acquired = self.hops.acquire_group(members, selection, protocol, heir_of, pin);
        self.unpin_orphans(now);
        acquired
    }

    /// Makes `claim` a route of a prefix in the place of the one like it, whose group is `old`, and known to
    /// workers before that. On an error the new group is released.
    pub(super) fn install_requested<A: Ip>(
        &mut self,
        prefix: Prefix<A>,
        claim: Claim,
        old: Option<Group>,
        now: Duration,
    ) -> Result<(), RouterError> {
        self.hops.publish_adjacencies();
        let (side, ports, hops) = A::split_tables(self);
        let done = side.replace_claim(prefix, claim, is_up(ports), hops);
        let unused = if done.is_ok() { old } else { Some(claim.group) };
        if let Some(unused) = unused {
            self.release_group(unused, 1, now);
        }
        done
    }

    /// Removes a configured route of a prefix.
    pub(super) fn delete_requested<A: Ip>(
        &mut self,
        prefix: Prefix<A>,
        claim: Claim,
        now: Duration,
    ) -> Result<(), RouterError> {
        let (side, ports, _) = A::split_tables(self);
        if side.claims.contains_key(&prefix) {
            side.remove_claim(prefix, claim, is_up(ports))?;
        } else {
            side.remove(prefix);
        }
        self.release_group(claim.group, 1, now);
        Ok(())
    }

    /// Releases a number of routes to a group, and gateways that are no longer needed.
    pub(super) fn release_group(&mut self, group: Group, routes: u32, now: Duration) {
        self.hops.release_group(group, routes);
        self.unpin_orphans(now);
    }

    fn unpin_orphans(&mut self, now: Duration) {
        for (port, gateway) in self.hops.drain_orphans().into_iter().filter_map(Hop::gateway) {
            let at = usize::from(port.0);
            match gateway {
                IpAddr::V4(address) => self.v4.engines[at].unpin_neighbor(address.to_bits(), now),
                IpAddr::V6(address) => self.v6.engines[at].unpin_neighbor(address.to_bits(), now),
            }
        }
    }

    /// The next hops of a route's specification, each looked for and checked.
    fn resolve_members<A: Ip>(&self, spec: &RouteSpec) -> Result<Vec<(Hop, u32)>, RouterError> {
        let is_several = match spec.next_hops.len() {
            0 => return Err(RouterError::NoNextHop),
            count @ 1..=MOST_MEMBERS => count > 1,
            count => return Err(RouterError::TooManyNextHops(count)),
        };
        if let Selection::Resilient { buckets, .. } = spec.selection
            && !(1..=MOST_SLOTS).contains(&buckets)
        {
            return Err(RouterError::Buckets(buckets));
        }
        let member = |(target, weight): &(Target, u32)| match (self.resolve_hop::<A>(*target)?, *weight) {
            (_, 0) => Err(RouterError::NoWeight),
            (Hop::End { .. }, _) if is_several => Err(RouterError::EndAmongSeveral),
            (hop, weight) => Ok((hop, weight)),
        };
        spec.next_hops.iter().map(member).collect()
    }

    fn resolve_hop<A: Ip>(&self, target: Target) -> Result<Hop, RouterError> {
        let (port, gateway, mtu) = match target {
            Target::Via { port, gateway, mtu } => (port, gateway, mtu),
            Target::Local => return Ok(Hop::end(Outcome::Local)),
            Target::Blackhole => return Ok(Hop::end(Outcome::Blackhole)),
            Target::Unreachable => return Ok(Hop::end(Outcome::Unreachable)),
            Target::Prohibited => return Ok(Hop::end(Outcome::Prohibited)),
        };
        let Some(address) = gateway else {
            let port = port.ok_or(RouterError::NoWay)?;
            let is_known = usize::from(port.0) < self.ports.len();
            return if is_known { Ok(Hop::OnLink { port, mtu }) } else { Err(RouterError::NoSuchPort(port)) };
        };
        if address.is_ipv4() && A::BITS == 128 {
            return Err(RouterError::GatewayFamily(address));
        }
        Ok(Hop::Gateway { port: self.port_of_gateway(address, port)?, address, mtu })
    }

    /// Puts these static routes in the place of all there are in their family, at once: each is a prefix and
    /// which of `specs` it takes. Of several for one prefix the last counts. On an error the old ones stay.
    pub fn load_routes<A: Ip>(
        &mut self,
        specs: &[RouteSpec],
        routes: impl IntoIterator<Item = (Prefix<A>, usize)>,
        now: Duration,
    ) -> Result<(), RouterError> {
        let mut routes: Vec<(Prefix<A>, usize)> = routes.into_iter().collect();
        if let Some((_, index)) = routes.iter().find(|(_, index)| *index >= specs.len()) {
            return Err(RouterError::NoSuchSpec(*index));
        }
        routes.reverse();
        routes.sort_by_key(|(prefix, _)| *prefix);
        routes.dedup_by_key(|(prefix, _)| *prefix);
        let groups = self.groups_of::<A>(specs, now)?;
        let routes: Vec<(Prefix<A>, Group)> =
            routes.into_iter().map(|(prefix, index)| (prefix, groups[index])).collect();
        let loaded = self.replace_statics(&routes, now);
        groups.iter().for_each(|group| self.release_group(*group, 1, now));
        loaded
    }

    /// A group for each of the specs, or none.
    fn groups_of<A: Ip>(&mut self, specs: &[RouteSpec], now: Duration) -> Result<Vec<Group>, RouterError> {
        let mut groups = Vec::with_capacity(specs.len());
        for spec in specs {
            let acquired = self
                .resolve_members::<A>(spec)
                .and_then(|members| self.group_of(&members, spec.selection, None, None, now));
            match acquired {
                Ok(group) => groups.push(group),
                Err(error) => {
                    groups.into_iter().for_each(|group| self.release_group(group, 1, now));
                    return Err(error);
                }
            }
        }
        self.hops.publish_adjacencies();
        Ok(groups)
    }

    /// Makes these, which are in order and each for another prefix, all static routes there are.
    fn replace_statics<A: Ip>(
        &mut self,
        routes: &[(Prefix<A>, Group)],
        now: Duration,
    ) -> Result<(), RouterError> {
        let (statics, dynamic): (Vec<_>, Vec<_>) =
            A::side(self).all_requested(&self.hops).partition(|(_, claim)| claim.source == Source::Static);
        let old = count_by_group(statics.into_iter().map(|(prefix, claim)| (prefix, claim.group)));
        let mut claims = A::side(self).claims.clone();
        for (prefix, claim) in dynamic {
            claims.entry(prefix).or_insert_with(|| vec![claim]);
        }
        for (prefix, claims) in &mut claims {
            claims.retain(|claim| claim.source != Source::Static);
            if let Ok(at) = routes.binary_search_by_key(prefix, |(prefix, _)| *prefix) {
                claims.push(Claim { source: Source::Static, group: routes[at].1 });
            }
        }
        let forwarding = claims.iter().filter_map(|(prefix, claims)| {
            best_claim(claims, is_up(&self.ports)).map(|claim| (*prefix, claim.group))
        });
        let all: Vec<(Prefix<A>, Group)> = routes.iter().copied().chain(forwarding).collect();
        claims.retain(|_, claims| !is_lone(claims));
        let (side, _, _) = A::split_tables(self);
        side.table.load_routes(all)?;
        side.claims = claims;
        side.loads += 1;
        count_by_group(routes.iter().copied())
            .into_iter()
            .for_each(|(group, routes)| self.hops.share_group(group, routes));
        old.into_iter().for_each(|(group, routes)| self.release_group(group, routes, now));
        Ok(())
    }
}

/// How many of these routes lead to each group.
fn count_by_group<A>(routes: impl Iterator<Item = (Prefix<A>, Group)>) -> HashMap<Group, u32> {
    let mut counts = HashMap::new();
    routes.for_each(|(_, group)| *counts.entry(group).or_default() += 1);
    counts
}
