//! The tables of one address family: routes by their source, and neighbors by port.
use super::port::Port;
use super::{PortAction, Protocol, RouterError, Tables};
use crate::PortId;
use crate::neighbor::{Action, Key, L2Engine, NeighborReader};
use crate::next_hop::Hops;
use artery_lpm::load::AnyPrefix;
use artery_lpm::{Family, Group, Prefix, RouteTable};
use artery_rcu::Published;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a route is there. Of several for one prefix, the least forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The address is the router's own, on this port.
    Local(PortId),
    /// The address means all on the port's link.
    Broadcast(PortId),
    /// The port is connected to the prefix.
    Connected(PortId),
    /// Configured by the operator.
    Static,
    /// A routing daemon computed it.
    Dynamic(Protocol),
    /// It holds in any router.
    BuiltIn,
}

impl Source {
    /// How it is shown: static, connected, …, or the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Source::Dynamic(protocol) => protocol.name().unwrap_or("dynamic"),
            Source::Local(_) => "local",
            Source::Broadcast(_) => "broadcast",
            Source::Connected(_) => "connected",
            Source::Static => "static",
            Source::BuiltIn => "built-in",
        }
    }

    /// That of a route that leads to `group` and does not follow from the router itself.
    pub(super) fn of_group(group: Group, hops: &Hops) -> Source {
        hops.group_protocol(group).map_or(Source::Static, Source::Dynamic)
    }

    /// Whether it is like another: a prefix has at most one static route and one dynamic one.
    pub(super) fn is_like(self, other: Source) -> bool {
        matches!((self, other), (Source::Dynamic(_), Source::Dynamic(_))) || self == other
    }

    /// Whether the route was configured, instead of following from the router itself.
    pub(super) fn is_requested(self) -> bool {
        matches!(self, Source::Static | Source::Dynamic(_))
    }
}

/// A route for a prefix that others may have routes for, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) source: Source,
    pub(super) group: Group,
}

/// An address family of the router: [`u32`] and [`u128`].
pub trait Ip: Family + Key {
    /// What the router knows in it.
    #[doc(hidden)]
    fn side(tables: &Tables) -> &Side<Self>;
    /// The same to change, the ports, and the next hops.
    #[doc(hidden)]
    fn split_tables(tables: &mut Tables) -> (&mut Side<Self>, &[Port], &Hops);
    /// A prefix of the family.
    fn any_prefix(prefix: Prefix<Self>) -> AnyPrefix;
    /// Something to do, or to know, in the family.
    fn port_action(action: Action<Self>) -> PortAction;
}

impl Ip for u32 {
    fn side(tables: &Tables) -> &Side<u32> {
        &tables.v4
    }
    fn split_tables(tables: &mut Tables) -> (&mut Side<u32>, &[Port], &Hops) {
        (&mut tables.v4, &tables.ports, &tables.hops)
    }
    fn any_prefix(prefix: Prefix<u32>) -> AnyPrefix {
        AnyPrefix::V4(prefix)
    }
    fn port_action(action: Action<u32>) -> PortAction {
        PortAction::V4(action)
    }
}

impl Ip for u128 {
    fn side(tables: &Tables) -> &Side<u128> {
        &tables.v6
    }
    fn split_tables(tables: &mut Tables) -> (&mut Side<u128>, &[Port], &Hops) {
        (&mut tables.v6, &tables.ports, &tables.hops)
    }
    fn any_prefix(prefix: Prefix<u128>) -> AnyPrefix {
        AnyPrefix::V6(prefix)
    }
    fn port_action(action: Action<u128>) -> PortAction {
        PortAction::V6(action)
    }
}

/// Routes and neighbors of one address family.
pub struct Side<A: Family> {
    pub(super) table: RouteTable<A>,
    /// Prefixes that have other routes than a single configured one, and all of their routes.
    pub(super) claims: BTreeMap<Prefix<A>, Vec<Claim>>,
    /// Neighbor engines, by port number.
    pub(super) engines: Vec<Box<dyn L2Engine<A>>>,
    pub(super) readers: Arc<Published<Vec<NeighborReader<A>>>>,
    /// How many prefixes were changed in the routing table.
    pub(super) changes: u64,
    /// How often all static routes were replaced at once.
    pub(super) loads: u64,
}

impl<A: Ip> Side<A> {
    pub(super) fn new(table: RouteTable<A>, readers: Arc<Published<Vec<NeighborReader<A>>>>) -> Side<A> {
        Side { table, claims: BTreeMap::new(), engines: Vec::new(), readers, changes: 0, loads: 0 }
    }

    pub(super) fn add_engine(&mut self, engine: Box<dyn L2Engine<A>>) {
        self.engines.push(engine);
        self.readers.publish(self.engines.iter().map(|engine| engine.reader()).collect());
    }

    /// The engine of a port.
    pub(super) fn engine_of(&mut self, port: PortId) -> Result<&mut dyn L2Engine<A>, RouterError> {
        match self.engines.get_mut(usize::from(port.0)) {
            Some(engine) => Ok(&mut **engine),
            None => Err(RouterError::NoSuchPort(port)),
        }
    }

    /// Adds a route that is not a single configured one.
    pub(super) fn add_claim(
        &mut self,
        prefix: Prefix<A>,
        claim: Claim,
        is_up: impl Fn(PortId) -> bool,
        hops: &Hops,
    ) -> Result<(), RouterError> {
        let lone = self.table.get(prefix).map(|group| Claim { source: Source::of_group(group, hops), group });
        self.claims.entry(prefix).or_insert_with(|| lone.into_iter().collect()).push(claim);
        self.install_best(prefix, is_up).inspect_err(|_| {
            self.drop_claim(prefix, claim);
            self.drop_lone_claim(prefix);
        })
    }

    /// Removes such a route.
    pub(super) fn remove_claim(
        &mut self,
        prefix: Prefix<A>,
        claim: Claim,
        is_up: impl Fn(PortId) -> bool,
    ) -> Result<(), RouterError> {
        let before = self.claims.get(&prefix).cloned();
        self.drop_claim(prefix, claim);
        let settled = self.install_best(prefix, is_up);
        if let (Err(_), Some(before)) = (&settled, before) {
            self.claims.insert(prefix, before);
        }
        self.drop_lone_claim(prefix);
        settled
    }

    /// Puts a route that was asked for in the place of the one like it, if there is
    /// one, among a prefix's routes.
    pub(super) fn replace_claim(
        &mut self,
        prefix: Prefix<A>,
        claim: Claim,
        is_up: impl Fn(PortId) -> bool,
        hops: &Hops,
    ) -> Result<(), RouterError> {
        let Some(claims) = self.claims.get_mut(&prefix) else {
            let lone = self.table.get(prefix).map(|group| Source::of_group(group, hops));
            return match lone {
                Some(source) if !source.is_like(claim.source) => self.add_claim(prefix, claim, is_up, hops),
                _ => self.insert(prefix, claim.group),
            };
        };
        let before = claims.clone();
        claims.retain(|other| !other.source.is_like(claim.source));
        claims.push(claim);
        self.install_best(prefix, is_up).inspect_err(|_| _ = self.claims.insert(prefix, before))
    }

    /// Neither a single configured route nor an absent one needs a claim.
    fn drop_lone_claim(&mut self, prefix: Prefix<A>) {
        if self.claims.get(&prefix).is_some_and(|claims| is_lone(claims)) {
            self.claims.remove(&prefix);
        }
    }

    fn drop_claim(&mut self, prefix: Prefix<A>, claim: Claim) {
        if let Some(claims) = self.claims.get_mut(&prefix)
            && let Some(at) = claims.iter().position(|other| *other == claim)
        {
            claims.remove(at);
        }
    }

    /// Lets the right one of a prefix's routes forward.
    pub(super) fn install_best(
        &mut self,
        prefix: Prefix<A>,
        is_up: impl Fn(PortId) -> bool,
    ) -> Result<(), RouterError> {
        let Some(claims) = self.claims.get(&prefix) else { return Ok(()) };
        match best_claim(claims, is_up) {
            Some(claim) => self.insert(prefix, claim.group),
            None => {
                self.remove(prefix);
                Ok(())
            }
        }
    }

    /// Puts a route into the table.
    pub(super) fn insert(&mut self, prefix: Prefix<A>, group: Group) -> Result<(), RouterError> {
        if self.table.insert(prefix, group)? != Some(group) {
            self.changes += 1;
        }
        Ok(())
    }

    /// Takes a route out of the table.
    pub(super) fn remove(&mut self, prefix: Prefix<A>) {
        self.changes += u64::from(self.table.remove(prefix).is_some());
    }

    /// The route for a prefix whose source is like this one, whether it forwards or not.
    pub(super) fn requested_claim(&self, prefix: Prefix<A>, like: Source, hops: &Hops) -> Option<Claim> {
        match self.claims.get(&prefix) {
            Some(claims) => claims.iter().find(|claim| claim.source.is_like(like)).copied(),
            None => {
                let lone = self.table.get(prefix);
                lone.map(|group| Claim { source: Source::of_group(group, hops), group })
                    .filter(|claim| claim.source.is_like(like))
            }
        }
    }

    /// Configured routes, including those that another keeps from forwarding.
    pub(super) fn all_requested(&self, hops: &Hops) -> impl Iterator<Item = (Prefix<A>, Claim)> {
        let lone = self.table.iter().filter(|(prefix, _)| !self.claims.contains_key(prefix));
        let lone =
            lone.map(|(prefix, group)| (prefix, Claim { source: Source::of_group(group, hops), group }));
        let claimed = self.claims.iter().flat_map(|(prefix, claims)| {
            let requested = claims.iter().filter(|claim| claim.source.is_requested());
            requested.map(|claim| (*prefix, *claim))
        });
        lone.chain(claimed)
    }

    /// Why the route that forwards a prefix is there.
    pub(super) fn source_of(&self, prefix: Prefix<A>, group: Group, hops: &Hops) -> Source {
        let claims = self.claims.get(&prefix);
        let forwarding = claims.and_then(|claims| {
            claims.iter().filter(|claim| claim.group == group).map(|claim| claim.source).min()
        });
        forwarding.unwrap_or_else(|| Source::of_group(group, hops))
    }
}

/// Whether a prefix's routes need not be kept, as the table says it all.
pub(super) fn is_lone(claims: &[Claim]) -> bool {
    match claims {
        [] => true,
        [claim] => claim.source.is_requested(),
        _ => false,
    }
}

/// Which of a prefix's routes forwards: of connected ones one whose port is up, then that of the first port.
pub(super) fn best_claim(claims: &[Claim], is_up: impl Fn(PortId) -> bool) -> Option<Claim> {
    let is_down = |claim: &Claim| matches!(claim.source, Source::Connected(port) if !is_up(port));
    let rank = |claim: &Claim| match claim.source {
        Source::Local(_) => 0,
        Source::Broadcast(_) => 1,
        Source::Connected(_) => 2,
        Source::Static => 3,
        Source::Dynamic(_) => 4,
        Source::BuiltIn => 5,
    };
    claims.iter().copied().min_by_key(|claim| (rank(claim), is_down(claim), claim.source))
}
