//! The next hops of a router, for the thread that changes them: which are used by which groups, which can be
//! used now, and what workers therefore see.
use super::{Comeback, Hop, Numbers, Selection};
use crate::PortId;
use crate::neighbor::{Links, NeighborId};
use crate::path::{Adjacency, AdjacencyTable, Outcome};
use crate::router::Protocol;
use artery_lpm::{Group, NO_GROUP};
use artery_rcu::{Domain, Published};
use artery_storage::{Buckets, by_weight};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// What routes lead to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Spread {
    /// Numbers of hops, and their weights.
    members: Vec<(u32, u32)>,
    selection: Selection,
    /// Which protocol's routes lead here; none for those of the router's own configuration.
    protocol: Option<Protocol>,
}

/// What is known about a hop that is in use.
#[derive(Clone, Copy, Debug, Default)]
struct Health {
    /// The neighbor it leads to.
    neighbor: Option<NeighborId>,
    /// It does not answer.
    has_failed: bool,
    /// A caller has withdrawn it from use.
    is_withdrawn: bool,
    /// Its gateway is one of `paths_down`.
    is_path_down: bool,
}

impl Health {
    fn is_good(self) -> bool {
        !self.has_failed && !self.is_withdrawn && !self.is_path_down
    }
}

/// What matters of a port.
#[derive(Clone, Copy, Debug)]
struct Port {
    mtu: u16,
    is_up: bool,
}

/// A group as workers see it.
#[derive(Clone, Debug, Default)]
struct Share {
    /// The adjacencies of its slots; one if that is the only one.
    adjacencies: Vec<Adjacency>,
    /// By slot: which member.
    slots: Vec<u16>,
    buckets: Option<Buckets>,
}

/// A group, to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// Number that routes refer to.
    pub group: Group,
    /// How many routes lead to it.
    pub routes: u32,
    /// How one of its members is chosen.
    pub selection: Selection,
    /// Members in the order of their configuration.
    pub members: Vec<MemberView>,
}

/// A member of a group, to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// The next hop of the member.
    pub hop: Hop,
    /// Its weight in the group.
    pub weight: u32,
    /// The neighbor that it leads to.
    pub neighbor: Option<NeighborId>,
    /// Whether it can be used.
    pub is_alive: bool,
    /// How many of the group's slots lead to it now.
    pub slots: usize,
}

/// All next hops and groups of a router.
pub struct Hops {
    hops: Numbers<Hop>,
    /// By number of a hop.
    health: Vec<Health>,
    /// Hops that lead to a neighbor.
    by_neighbor: HashMap<NeighborId, Vec<u32>>,
    /// Gateways to which the path is down, whether or not a route has them.
    paths_down: HashSet<(PortId, IpAddr)>,
    links: Arc<Links>,
    groups: Numbers<Spread>,
    /// By group. A group that is in use no more keeps what it had until its number is used again.
    shares: Vec<Share>,
    ports: Vec<Port>,
    /// Hops that no group has any more, whose neighbors are still pinned.
    orphans: Vec<Hop>,
    published: Arc<Published<AdjacencyTable>>,
    /// Whether workers don't know the latest yet.
    is_behind: bool,
    /// How often a group's slots were worked out.
    worked_out: u64,
}

impl Hops {
    pub(crate) fn new(domain: &Arc<Domain>, links: &Arc<Links>) -> Hops {
        Hops {
            hops: Numbers::new(domain),
            health: Vec::new(),
            by_neighbor: HashMap::new(),
            paths_down: HashSet::new(),
            links: links.clone(),
            groups: Numbers::new(domain),
            shares: Vec::new(),
            ports: Vec::new(),
            orphans: Vec::new(),
            published: Arc::new(Published::new(domain, AdjacencyTable::default())),
            is_behind: false,
            worked_out: 0,
        }
    }

    /// The published table that workers read.
    pub(crate) fn adjacency_table(&self) -> Arc<Published<AdjacencyTable>> {
        self.published.clone()
    }

    /// The group of these members for one more route, of a protocol or of the router's own. `pin` finds the
    /// neighbor of a gateway that is new. A new resilient group takes over the buckets of `heir_of`.
    /// [`publish_adjacencies`](Self::publish_adjacencies) before any route leads there.
    pub(crate) fn acquire_group<E>(
        &mut self,
        members: &[(Hop, u32)],
        selection: Selection,
        protocol: Option<Protocol>,
        successor_of: Option<Group>,
        mut pin: impl FnMut(PortId, IpAddr) -> Result<NeighborId, E>,
    ) -> Result<Group, E> {
        let mut numbers = Vec::with_capacity(members.len());
        for (hop, weight) in canonical_members(members.to_vec()) {
            match self.acquire_hop(hop, &mut pin) {
                Ok(number) => numbers.push((number, weight)),
                Err(error) => {
                    numbers.iter().for_each(|(number, _)| self.release_hop(*number));
                    return Err(error);
                }
            }
        }
        // One next hop is one, whatever would have chosen it.
        let selection = if numbers.len() == 1 { Selection::Hash } else { selection };
        let (group, is_new) = self.groups.acquire(Spread { members: numbers.clone(), selection, protocol });
        if is_new {
            self.begin_group(group, successor_of);
        } else {
            numbers.iter().for_each(|(number, _)| self.release_hop(*number));
        }
        Ok(group)
    }

    fn acquire_hop<E>(
        &mut self,
        hop: Hop,
        pin: &mut impl FnMut(PortId, IpAddr) -> Result<NeighborId, E>,
    ) -> Result<u32, E> {
        if let Some(number) = self.hops.find(&hop) {
            self.hops.add_users(number, 1);
            return Ok(number);
        }
        let neighbor = hop.gateway().map(|(port, address)| pin(port, address)).transpose()?;
        let (number, _) = self.hops.acquire(hop);
        if self.health.len() <= number as usize {
            self.health.resize(number as usize + 1, Health::default());
        }
        let has_failed = neighbor.is_some_and(|id| self.links.get(id).has_failed());
        let is_path_down = hop.gateway().is_some_and(|gateway| self.paths_down.contains(&gateway));
        self.health[number as usize] = Health { neighbor, has_failed, is_withdrawn: false, is_path_down };
        if let Some(id) = neighbor {
            self.by_neighbor.entry(id).or_default().push(number);
        }
        Ok(number)
    }

    fn release_hop(&mut self, number: u32) {
        let hop = self.hops.get(number).copied();
        if !self.hops.release_users(number, 1) {
            return;
        }
        self.orphans.extend(hop.filter(|hop| hop.gateway().is_some()));
        if let Some(id) = self.health[number as usize].neighbor
            && let Some(hops) = self.by_neighbor.get_mut(&id)
        {
            hops.retain(|hop| *hop != number);
            if hops.is_empty() {
                self.by_neighbor.remove(&id);
            }
        }
    }

    /// So many more routes to a group.
    pub(crate) fn share_group(&mut self, group: Group, routes: u32) {
        self.groups.add_users(group, routes);
    }

    /// Releases a number of routes. Neighbors that are no longer needed are added to
    /// [`drain_orphans`](Self::drain_orphans).
    pub(crate) fn release_group(&mut self, group: Group, routes: u32) {
        let spread = self.groups.get(group).cloned();
        if self.groups.release_users(group, routes)
            && let Some(spread) = spread
        {
            spread.members.iter().for_each(|(hop, _)| self.release_hop(*hop));
        }
    }

    /// Gateways whose neighbors need not be pinned any more.
    pub(crate) fn drain_orphans(&mut self) -> Vec<Hop> {
        std::mem::take(&mut self.orphans)
    }

    fn begin_group(&mut self, group: Group, heir_of: Option<Group>) {
        if self.shares.len() <= group as usize {
            self.shares.resize_with(group as usize + 1, Share::default);
        }
        let buckets = self.first_buckets(group, heir_of);
        self.shares[group as usize] = Share { buckets, ..Share::default() };
        self.recompute_slots(group);
    }

    fn first_buckets(&self, group: Group, heir_of: Option<Group>) -> Option<Buckets> {
        let spread = self.groups.get(group)?;
        let Selection::Resilient { buckets: count, .. } = spread.selection else { return None };
        let weights = self.usable_weights(spread);
        let inherited = heir_of.and_then(|old| {
            let (old, had) = (self.groups.get(old)?, self.shares.get(old as usize)?.buckets.as_ref()?);
            let member = |of: u16| {
                let (hop, _) = old.members.get(usize::from(of))?;
                spread.members.iter().position(|(other, _)| other == hop).map(|at| at as u16)
            };
            (had.owners().len() == usize::from(count)).then(|| had.successor_buckets(member, &weights))
        });
        Some(inherited.unwrap_or_else(|| Buckets::new(count, &weights)))
    }

    /// Weights of the members that can be used, 0 for the others. If none can, those that could if
    /// their neighbors answered are used: then that is what packets hear. A member to which the path is
    /// down is never used.
    fn usable_weights(&self, spread: &Spread) -> Vec<u32> {
        let only = |is_fit: &dyn Fn(u32) -> bool| -> Vec<u32> {
            spread.members.iter().map(|(hop, weight)| if is_fit(*hop) { *weight } else { 0 }).collect()
        };
        let alive = only(&|hop| self.is_alive(hop));
        let is_fit = |hop| self.is_up(hop) && !self.hop_health(hop).is_path_down;
        if alive.iter().any(|weight| *weight > 0) { alive } else { only(&is_fit) }
    }

    fn is_up(&self, hop: u32) -> bool {
        let port = match self.hops.get(hop) {
            Some(Hop::Gateway { port, .. } | Hop::OnLink { port, .. }) => *port,
            _ => return true,
        };
        self.ports.get(usize::from(port.0)).is_some_and(|port| port.is_up)
    }

    fn hop_health(&self, hop: u32) -> Health {
        self.health.get(hop as usize).copied().unwrap_or_default()
    }

    fn is_alive(&self, hop: u32) -> bool {
        self.is_up(hop) && self.hop_health(hop).is_good()
    }

    /// The adjacency of a hop, whatever the state of its neighbor.
    fn hop_adjacency(&self, number: u32) -> Adjacency {
        let Some(hop) = self.hops.get(number) else { return Adjacency::end(Outcome::Unreachable) };
        let (port, mtu) = match hop {
            Hop::Gateway { port, mtu, .. } | Hop::OnLink { port, mtu } => (*port, *mtu),
            Hop::End { outcome, port: Some(port) } => return Adjacency::end_at(*outcome, *port),
            Hop::End { outcome, port: None } => return Adjacency::end(*outcome),
        };
        let Some(state) = self.ports.get(usize::from(port.0)).filter(|port| port.is_up) else {
            return Adjacency::end_at(Outcome::PortDown, port);
        };
        let (mtu, health) = (mtu.unwrap_or(u16::MAX).min(state.mtu), self.hop_health(number));
        if health.is_path_down {
            return Adjacency::end_at(Outcome::NextHopDown, port);
        }
        match health.neighbor {
            Some(neighbor) => Adjacency::gateway(port, mtu, neighbor),
            None => Adjacency::on_link(port, mtu),
        }
    }

    /// Works out the slots of a group from what can be used of it now.
    fn recompute_slots(&mut self, group: Group) {
        let Some(spread) = self.groups.get(group) else { return };
        let weights = self.usable_weights(spread);
        let mut buckets = self.shares[group as usize].buckets.take();
        let mut slots = match &mut buckets {
            Some(buckets) => {
                buckets.fill_vacant(&weights);
                if let Selection::Resilient { comeback: Comeback::AtOnce, .. } = spread.selection {
                    buckets.balance_buckets(&weights, usize::MAX);
                }
                buckets.owners().to_vec()
            }
            None => by_weight(&weights),
        };
        if weights.iter().all(|weight| *weight == 0) {
            // All their ports or paths are down. Any of them says so.
            slots = vec![0];
        }
        let members: Vec<Adjacency> =
            spread.members.iter().map(|(hop, _)| self.hop_adjacency(*hop)).collect();
        let way = |member: &u16| members.get(usize::from(*member)).copied();
        let mut ways: Vec<Adjacency> = slots.iter().filter_map(way).collect();
        if slots.iter().all(|slot| *slot == slots[0]) {
            ways.truncate(1);
            slots.truncate(1);
        }
        self.shares[group as usize] = Share { adjacencies: ways, slots, buckets };
        self.worked_out += 1;
        self.is_behind = true;
    }

    /// Works out the groups of which `concerns` is true for a hop.
    fn recompute_groups(&mut self, concerns: impl Fn(u32, &Hop) -> bool) {
        let is_concerned =
            |(hop, _): &(u32, u32)| self.hops.get(*hop).is_some_and(|known| concerns(*hop, known));
        let groups: Vec<Group> = (self.groups.iter())
            .filter(|(_, spread)| spread.members.iter().any(is_concerned))
            .map(|(group, _)| group)
            .collect();
        groups.into_iter().for_each(|group| self.recompute_slots(group));
    }

    /// Shows workers what has changed.
    pub(crate) fn publish_adjacencies(&mut self) {
        if !std::mem::take(&mut self.is_behind) {
            return;
        }
        let mut ways =
            AdjacencyTable { groups: Vec::with_capacity(self.shares.len().max(1)), members: Vec::new() };
        for (group, share) in self.shares.iter().enumerate() {
            ways.groups.push(match *share.adjacencies {
                [] => Adjacency::end(Outcome::NoRoute),
                [way] => way,
                _ => {
                    let first = ways.members.len() as u32;
                    ways.members.extend_from_slice(&share.adjacencies);
                    Adjacency::multipath(
                        self.group_method(group as Group),
                        first,
                        share.adjacencies.len() as u16,
                    )
                }
            });
        }
        self.published.publish(ways);
    }

    fn group_method(&self, group: Group) -> crate::path::Method {
        let known = self.groups.meaning(group);
        known.map_or(crate::path::Method::Hash, |spread| spread.selection.method())
    }

    /// There is one more port, or a port has changed.
    pub(crate) fn set_port(&mut self, port: PortId, mtu: u16, is_up: bool) {
        let at = usize::from(port.0);
        if self.ports.len() <= at {
            self.ports.resize(at + 1, Port { mtu: 0, is_up: false });
        }
        self.ports[at] = Port { mtu, is_up };
        self.recompute_groups(|_, hop| hop.port() == Some(port));
    }

    /// The neighbor of a gateway answers, or does not. Where others of a group live, it is taken out.
    pub(crate) fn set_failed(&mut self, neighbor: NeighborId, has_failed: bool) {
        let Some(hops) = self.by_neighbor.get(&neighbor) else { return };
        self.change_health(hops.clone(), |health| {
            std::mem::replace(&mut health.has_failed, has_failed) != has_failed
        });
    }

    /// Nothing is known against the gateways on a port's link any more.
    pub(crate) fn clear_failures(&mut self, port: PortId) {
        let hops = self.hops.iter().filter(|(_, hop)| hop.port() == Some(port)).map(|(number, _)| number);
        self.change_health(hops.collect(), |health| std::mem::take(&mut health.has_failed));
    }

    /// A gateway is not to be used where there are others, or is again. Says whether there is such a one.
    pub(crate) fn set_withdrawn(&mut self, gateway: (PortId, IpAddr), is_withdrawn: bool) -> bool {
        let hops = self.hops_through(gateway);
        let is_known = !hops.is_empty();
        self.change_health(hops, |health| {
            std::mem::replace(&mut health.is_withdrawn, is_withdrawn) != is_withdrawn
        });
        is_known
    }

    /// The path to a gateway is down,
    /// or up again: see [`Tables::set_path_down`](crate::router::Tables::set_path_down).
    pub(crate) fn set_path_down(&mut self, gateway: (PortId, IpAddr), is_down: bool) {
        if is_down {
            self.paths_down.insert(gateway);
        } else {
            self.paths_down.remove(&gateway);
        }
        let hops = self.hops_through(gateway);
        self.change_health(hops, |health| std::mem::replace(&mut health.is_path_down, is_down) != is_down);
    }

    pub(crate) fn is_path_down(&self, gateway: (PortId, IpAddr)) -> bool {
        self.paths_down.contains(&gateway)
    }

    /// Whether a gateway can be used now; none if no route has it.
    pub(crate) fn is_usable(&self, gateway: (PortId, IpAddr)) -> Option<bool> {
        let hops = self.hops_through(gateway);
        hops.first().map(|hop| self.is_alive(*hop))
    }

    /// The hops that lead to a gateway; they differ in the longest packet.
    fn hops_through(&self, gateway: (PortId, IpAddr)) -> Vec<u32> {
        let is_meant = |(number, hop): (u32, &Hop)| (hop.gateway() == Some(gateway)).then_some(number);
        self.hops.iter().filter_map(is_meant).collect()
    }

    /// Changes what is known of hops, and works out their groups where that says that something has changed.
    fn change_health(&mut self, mut hops: Vec<u32>, mut change: impl FnMut(&mut Health) -> bool) {
        hops.retain(|hop| self.health.get_mut(*hop as usize).is_some_and(&mut change));
        if !hops.is_empty() {
            self.recompute_groups(|hop, _| hops.contains(&hop));
        }
    }

    /// Lets members that came back take their share, where that is due, and says when there is more to do.
    pub(crate) fn poll(&mut self, now: Duration) -> Option<Duration> {
        self.balance_groups(|buckets, weights, comeback| buckets.poll(weights, comeback, now))
    }

    /// Lets all members take their share at once.
    pub(crate) fn rebalance_all(&mut self) {
        self.balance_groups(|buckets, weights, _| (None, buckets.balance_buckets(weights, usize::MAX) > 0));
    }

    fn balance_groups(
        &mut self,
        mut step: impl FnMut(&mut Buckets, &[u32], Comeback) -> (Option<Duration>, bool),
    ) -> Option<Duration> {
        let mut next: Option<Duration> = None;
        let resilient = |(group, spread): (Group, &Spread)| match spread.selection {
            Selection::Resilient { comeback, .. } => Some((group, comeback, self.usable_weights(spread))),
            _ => None,
        };
        let groups: Vec<_> = self.groups.iter().filter_map(resilient).collect();
        for (group, comeback, weights) in groups {
            let Some(buckets) = &mut self.shares[group as usize].buckets else { continue };
            let (due, has_moved) = step(buckets, &weights, comeback);
            next = [next, due].into_iter().flatten().min();
            if has_moved {
                self.recompute_slots(group);
            }
        }
        next
    }

    /// The group of one hop alone, if a route has it.
    pub(crate) fn find_single(&self, hop: Hop) -> Option<Group> {
        let members = vec![(self.hops.find(&hop)?, 1)];
        self.groups.find(&Spread { members, selection: Selection::Hash, protocol: None })
    }
    /// How often a group's slots were worked out so far.
    pub(crate) fn recomputed_count(&self) -> u64 {
        self.worked_out
    }
    /// How many different next hops are in use.
    pub(crate) fn len(&self) -> usize {
        self.hops.len()
    }
    /// The neighbors of gateways that don't answer.
    pub(crate) fn failed_gateways(&self) -> impl Iterator<Item = (PortId, IpAddr)> {
        let failed = |(number, _): &(u32, &Hop)| self.health[*number as usize].has_failed;
        self.hops.iter().filter(failed).filter_map(|(_, hop)| hop.gateway())
    }
    /// The members of a group that is in use, and how it chooses.
    pub(crate) fn group_members(&self, group: Group) -> Option<(Vec<(Hop, u32)>, Selection)> {
        let spread = self.groups.get(group)?;
        let member = |(hop, weight): &(u32, u32)| Some((*self.hops.get(*hop)?, *weight));
        Some((spread.members.iter().filter_map(member).collect(), spread.selection))
    }
    /// The protocol whose routes lead to a group; none for the router's own.
    pub(crate) fn group_protocol(&self, group: Group) -> Option<Protocol> {
        self.groups.meaning(group).and_then(|spread| spread.protocol)
    }
    /// The hop that a slot of a group leads to.
    pub(crate) fn in_slot(&self, group: Group, slot: u32) -> Option<Hop> {
        let member = self.shares.get(group as usize)?.slots.get(slot as usize)?;
        let (hop, _) = self.groups.get(group)?.members.get(usize::from(*member))?;
        self.hops.get(*hop).copied()
    }
    /// A group, to be shown.
    pub(crate) fn view_group(&self, group: Group) -> Option<GroupView> {
        let spread = self.groups.get(group)?;
        let slots = &self.shares.get(group as usize)?.slots;
        let member = |(at, (hop, weight)): (usize, &(u32, u32))| {
            Some(MemberView {
                hop: *self.hops.get(*hop)?,
                weight: *weight,
                neighbor: self.health.get(*hop as usize)?.neighbor,
                is_alive: self.is_alive(*hop),
                slots: slots.iter().filter(|slot| usize::from(**slot) == at).count(),
            })
        };
        Some(GroupView {
            group,
            routes: self.groups.user_count(group),
            selection: spread.selection,
            members: spread.members.iter().enumerate().filter_map(member).collect(),
        })
    }
    /// All groups in use.
    pub(crate) fn groups(&self) -> Vec<Group> {
        self.groups.iter().map(|(group, _)| group).filter(|group| *group != NO_GROUP).collect()
    }
}

/// The same members in the same order, each once.
fn canonical_members(mut members: Vec<(Hop, u32)>) -> Vec<(Hop, u32)> {
    members.sort_by_key(|(hop, _)| *hop);
    members.dedup_by(|from, into| {
        let is_same = from.0 == into.0;
        if is_same {
            into.1 = into.1.saturating_add(from.1);
        }
        is_same
    });
    members
}
