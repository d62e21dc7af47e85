//! What the router knows in one address family: routes by who wants them, and neighbors by port.
use super::port::Port;
use super::{PortAction, RouterError, Tables};
use crate::load::AnyPrefix;
use crate::neighbor::{Action, Key, L2Engine, NeighborReader};
use crate::{Family, Group, PortId, Prefix, RouteTable};
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
    /// Somebody asked for it.
    Static,
    /// It holds in any router.
    BuiltIn,
}

impl Source {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Source::Local(_) => "local",
            Source::Broadcast(_) => "broadcast",
            Source::Connected(_) => "connected",
            Source::Static => "static",
            Source::BuiltIn => "built-in",
        }
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
    /// The same to change, and the ports.
    #[doc(hidden)]
    fn parts(tables: &mut Tables) -> (&mut Side<Self>, &[Port]);
    /// A prefix of the family.
    fn any(prefix: Prefix<Self>) -> AnyPrefix;
    /// Something to do, or to know, in the family.
    fn action(action: Action<Self>) -> PortAction;
}

impl Ip for u32 {
    fn side(tables: &Tables) -> &Side<u32> {
        &tables.v4
    }
    fn parts(tables: &mut Tables) -> (&mut Side<u32>, &[Port]) {
        (&mut tables.v4, &tables.ports)
    }
    fn any(prefix: Prefix<u32>) -> AnyPrefix {
        AnyPrefix::V4(prefix)
    }
    fn action(action: Action<u32>) -> PortAction {
        PortAction::V4(action)
    }
}

impl Ip for u128 {
    fn side(tables: &Tables) -> &Side<u128> {
        &tables.v6
    }
    fn parts(tables: &mut Tables) -> (&mut Side<u128>, &[Port]) {
        (&mut tables.v6, &tables.ports)
    }
    fn any(prefix: Prefix<u128>) -> AnyPrefix {
        AnyPrefix::V6(prefix)
    }
    fn action(action: Action<u128>) -> PortAction {
        PortAction::V6(action)
    }
}

/// See the module.
pub struct Side<A: Family> {
    pub(super) table: RouteTable<A>,
    /// Prefixes that have other routes than one static one, and all of their routes.
    pub(super) claims: BTreeMap<Prefix<A>, Vec<Claim>>,
    /// By port.
    pub(super) engines: Vec<Box<dyn L2Engine<A>>>,
    pub(super) readers: Arc<Published<Vec<NeighborReader<A>>>>,
    /// How many prefixes were changed in the routing table.
    pub(super) changes: u64,
}

impl<A: Ip> Side<A> {
    pub(super) fn new(table: RouteTable<A>, readers: Arc<Published<Vec<NeighborReader<A>>>>) -> Side<A> {
        Side { table, claims: BTreeMap::new(), engines: Vec::new(), readers, changes: 0 }
    }

    pub(super) fn add_engine(&mut self, engine: Box<dyn L2Engine<A>>) {
        self.engines.push(engine);
        self.readers.publish(self.engines.iter().map(|engine| engine.reader()).collect());
    }

    /// The engine of a port.
    pub(super) fn engine(&mut self, port: PortId) -> Result<&mut dyn L2Engine<A>, RouterError> {
        match self.engines.get_mut(usize::from(port.0)) {
            Some(engine) => Ok(&mut **engine),
            None => Err(RouterError::NoSuchPort(port)),
        }
    }

    /// Adds a route that is not a lone static one.
    pub(super) fn claim(
        &mut self,
        prefix: Prefix<A>,
        claim: Claim,
        is_up: impl Fn(PortId) -> bool,
    ) -> Result<(), RouterError> {
        let lone = self.table.get(prefix).map(|group| Claim { source: Source::Static, group });
        self.claims.entry(prefix).or_insert_with(|| lone.into_iter().collect()).push(claim);
        self.settle(prefix, is_up).inspect_err(|_| {
            self.drop_claim(prefix, claim);
            self.tidy(prefix);
        })
    }

    /// Removes such a route.
    pub(super) fn unclaim(
        &mut self,
        prefix: Prefix<A>,
        claim: Claim,
        is_up: impl Fn(PortId) -> bool,
    ) -> Result<(), RouterError> {
        let before = self.claims.get(&prefix).cloned();
        self.drop_claim(prefix, claim);
        let settled = self.settle(prefix, is_up);
        if let (Err(_), Some(before)) = (&settled, before) {
            self.claims.insert(prefix, before);
        }
        self.tidy(prefix);
        settled
    }

    /// Puts a static route in the place of `old` among a prefix's routes.
    pub(super) fn replace_claim(
        &mut self,
        prefix: Prefix<A>,
        old: Option<Group>,
        group: Group,
        is_up: impl Fn(PortId) -> bool,
    ) -> Result<(), RouterError> {
        let Some(claims) = self.claims.get_mut(&prefix) else { return self.insert(prefix, group) };
        let before = claims.clone();
        let (source, is_old) = (Source::Static, |claim: &Claim| Some(claim.group) == old);
        claims.retain(|claim| !(claim.source == Source::Static && is_old(claim)));
        claims.push(Claim { source, group });
        self.settle(prefix, is_up).inspect_err(|_| _ = self.claims.insert(prefix, before))
    }

    /// A lone static route needs no claim, and no route none.
    fn tidy(&mut self, prefix: Prefix<A>) {
        let claims = self.claims.get(&prefix).map(Vec::as_slice);
        if matches!(claims, Some([] | [Claim { source: Source::Static, .. }])) {
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
    pub(super) fn settle(
        &mut self,
        prefix: Prefix<A>,
        is_up: impl Fn(PortId) -> bool,
    ) -> Result<(), RouterError> {
        let Some(claims) = self.claims.get(&prefix) else { return Ok(()) };
        match best(claims, is_up) {
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

    /// The group of the static route for a prefix, whether it forwards or not.
    pub(super) fn static_group(&self, prefix: Prefix<A>) -> Option<Group> {
        match self.claims.get(&prefix) {
            Some(claims) => {
                claims.iter().find(|claim| claim.source == Source::Static).map(|claim| claim.group)
            }
            None => self.table.get(prefix),
        }
    }

    /// Static routes, those that another keeps from forwarding too.
    pub(super) fn statics(&self) -> impl Iterator<Item = (Prefix<A>, Group)> {
        let lone = self.table.iter().filter(|(prefix, _)| !self.claims.contains_key(prefix));
        let claimed = self.claims.iter().flat_map(|(prefix, claims)| {
            let is_static = |claim: &&Claim| claim.source == Source::Static;
            claims.iter().filter(is_static).map(|claim| (*prefix, claim.group))
        });
        lone.chain(claimed)
    }

    /// Why the route that forwards a prefix is there.
    pub(super) fn source(&self, prefix: Prefix<A>, group: Group) -> Source {
        let claims = self.claims.get(&prefix);
        let forwarding = claims.and_then(|claims| {
            claims.iter().filter(|claim| claim.group == group).map(|claim| claim.source).min()
        });
        forwarding.unwrap_or(Source::Static)
    }
}

/// Which of a prefix's routes forwards: of connected ones one whose port is up, then that of the first port.
pub(super) fn best(claims: &[Claim], is_up: impl Fn(PortId) -> bool) -> Option<Claim> {
    let is_down = |claim: &Claim| matches!(claim.source, Source::Connected(port) if !is_up(port));
    let rank = |claim: &Claim| match claim.source {
        Source::Local(_) => 0,
        Source::Broadcast(_) => 1,
        Source::Connected(_) => 2,
        Source::Static => 3,
        Source::BuiltIn => 4,
    };
    claims.iter().copied().min_by_key(|claim| (rank(claim), is_down(claim), claim.source))
}
