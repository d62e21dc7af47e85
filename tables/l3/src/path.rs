//! The path of a packet out of the router: from its destination to a port and a link address, or to the
//! reason for a drop.
//!
//! This is the one place where that is decided, for a batch on the packet path, for one packet that is
//! examined, and for diagnostics. The route of the destination leads to a group, the group to an adjacency,
//! the adjacency to a neighbor, and each of these steps is a load from something published: no lock, no
//! count, no store.
mod closer;
mod sources;

pub use sources::ExceptionSources;

use crate::PortId;
use crate::neighbor::index::{Begun, Searches};
use crate::neighbor::{Key, Link, Links, NeighborId, NeighborReader};
use artery_lpm::{Family, Group, NO_GROUP, RouteReader};
use artery_rcu::{Published, Turn};
use std::fmt;
use std::sync::Arc;

macro_rules! outcomes {
    ($($(#[doc = $doc:literal])* $variant:ident $name:literal,)*) => {
        /// Result of a forwarding decision, by the destination alone.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Outcome { $($(#[doc = $doc])* $variant,)* }

        impl Outcome {
            /// All outcomes, one counter each.
            pub const ALL: &'static [Outcome] = &[$(Outcome::$variant),*];
            /// Its name, as counters and `explain` say it.
            pub const fn name(self) -> &'static str {
                match self { $(Outcome::$variant => $name),* }
            }
        }
    };
}

outcomes! {
    /// It leaves by a port, with a link address.
    Forward "forward",
    /// It leaves by a port when the neighbor's link address is known.
    Unresolved "neighbor-unresolved",
    /// Its neighbor did not answer solicitations.
    Failed "neighbor-failed",
    /// It is for the router itself.
    Local "local",
    /// It is for all on a link of the router.
    Broadcast "broadcast",
    /// It is for a group.
    Multicast "multicast",
    /// No route leads there.
    NoRoute "no-route",
    /// Its route says to drop it without a word.
    Blackhole "blackhole",
    /// Its route says that it can't be reached.
    Unreachable "unreachable",
    /// Its route says that it is forbidden.
    Prohibited "prohibited",
    /// No host can have that address (RFC 1812 section 5.3.7, RFC 6890).
    Martian "martian",
    /// It must not leave its link (RFC 4291 section 2.5.6).
    LinkLocal "link-local",
    /// The port of its route is down.
    PortDown "port-down",
    /// The path to its next hop is down, as BFD says.
    NextHopDown "next-hop-down",
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How one of several next hops is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Method {
    /// By where a hash of the flow falls among the members (RFC 2992).
    Hash,
    /// By addresses and ports, combined by exclusive or, modulo the number of members, as
    /// FreeBSD did in 2008.
    Xor,
    /// Another one for each packet.
    PerPacket,
}

/// Where packets of a group go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjacency {
    kind: AdjacencyKind,
    port: PortId,
    mtu: u16,
    /// A neighbor's id, or the first of the members.
    target: u32,
    /// Number of members of the group.
    count: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdjacencyKind {
    /// To a gateway, by its neighbor id.
    Gateway,
    /// To the neighbor whose address is the destination.
    OnLink,
    /// By one of several adjacencies.
    Multipath(Method),
    /// Packets end with this outcome.
    End(Outcome),
}

impl Adjacency {
    /// Nowhere, for this reason.
    pub const fn end(outcome: Outcome) -> Adjacency {
        Adjacency { kind: AdjacencyKind::End(outcome), port: PortId(0), mtu: u16::MAX, target: 0, count: 0 }
    }
    /// Nowhere, on behalf of this port.
    pub const fn end_at(outcome: Outcome, port: PortId) -> Adjacency {
        Adjacency { port, ..Adjacency::end(outcome) }
    }
    /// Through a neighbor. Packets are at most `mtu` bytes long.
    pub const fn gateway(port: PortId, mtu: u16, neighbor: NeighborId) -> Adjacency {
        Adjacency { kind: AdjacencyKind::Gateway, port, mtu, target: neighbor.number(), count: 0 }
    }
    /// To the destination itself, on the port's link.
    pub const fn on_link(port: PortId, mtu: u16) -> Adjacency {
        Adjacency { kind: AdjacencyKind::OnLink, port, mtu, target: 0, count: 0 }
    }
    /// The decision about a packet that takes this adjacency, if that is to a gateway that is known and of
    /// whose use control need not hear.
    #[inline]
    fn fast_decision(&self, links: &Links) -> Option<ForwardDecision> {
        if self.kind != AdjacencyKind::Gateway {
            return None;
        }
        let link = links.get(NeighborId::new(self.target));
        let decision = ForwardDecision { link, port: self.port, mtu: self.mtu, outcome: Outcome::Forward };
        link.is_only_ready().then_some(decision)
    }
    /// By one of the members from number `first` on.
    pub const fn multipath(method: Method, first: u32, count: u16) -> Adjacency {
        Adjacency { kind: AdjacencyKind::Multipath(method), port: PortId(0), mtu: 0, target: first, count }
    }
}

/// All adjacencies of a router, as of some time.
#[derive(Clone, Debug, Default)]
pub struct AdjacencyTable {
    /// By group; [`NO_GROUP`] is where packets without route go.
    pub groups: Vec<Adjacency>,
    /// Members of those that are several, side by side. A member is not several itself.
    pub members: Vec<Adjacency>,
}

impl AdjacencyTable {
    #[inline]
    fn group_adjacency(&self, group: Group) -> Adjacency {
        self.groups.get(group as usize).copied().unwrap_or(Adjacency::end(Outcome::NoRoute))
    }

    /// The adjacency that a packet takes.
    #[inline]
    fn resolve_member(&self, way: Adjacency, flow: impl FnOnce(Method) -> u32) -> (Adjacency, Option<u32>) {
        let AdjacencyKind::Multipath(method) = way.kind else { return (way, None) };
        let member = member_index(method, flow(method), way.count.into());
        let chosen = self.members.get((way.target + member) as usize);
        (chosen.copied().unwrap_or(Adjacency::end(Outcome::Unreachable)), Some(member))
    }
}

/// Which of `count` members a flow's number leads to.
#[inline]
pub fn member_index(method: Method, flow: u32, count: u32) -> u32 {
    match method {
        Method::Xor => flow % count.max(1),
        Method::Hash | Method::PerPacket => ((u64::from(flow) * u64::from(count)) >> 32) as u32,
    }
}

/// What was decided about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardDecision {
    /// The neighbor's link address, if the outcome is to forward.
    pub link: Link,
    /// The port it leaves by, or was to leave by.
    pub port: PortId,
    /// The longest packet, in bytes from the IP header on.
    pub mtu: u16,
    /// The result of the decision.
    pub outcome: Outcome,
}

impl ForwardDecision {
    /// What stands where nothing is decided yet.
    pub const NONE: ForwardDecision =
        ForwardDecision { link: Link::UNKNOWN, port: PortId(0), mtu: 0, outcome: Outcome::Unreachable };
}

/// How a decision came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The decision that the worker would make.
    pub decision: ForwardDecision,
    /// The group that the route leads to.
    pub group: Group,
    /// Which of several next hops was chosen.
    pub member: Option<u32>,
    /// The neighbor, if there is an entry for it.
    pub neighbor: Option<NeighborId>,
    /// Whether the neighbor is the destination itself.
    pub on_link: bool,
}

/// What a worker needs for decisions about packets of a family. One for each worker.
pub struct PathReader<A: Family> {
    routes: RouteReader<A>,
    adjacencies: Arc<Published<AdjacencyTable>>,
    neighbors: Arc<Published<Vec<NeighborReader<A>>>>,
    links: Arc<Links>,
    /// Of the packets of a batch; kept for its storage.
    groups: Vec<Group>,
    /// Of those whose destination is the neighbor: where they are in the batch, and the search for it.
    on_link: Vec<(u32, Begun)>,
}

impl<A: Family> Clone for PathReader<A> {
    fn clone(&self) -> PathReader<A> {
        PathReader {
            routes: self.routes.clone(),
            adjacencies: self.adjacencies.clone(),
            neighbors: self.neighbors.clone(),
            links: self.links.clone(),
            groups: Vec::new(),
            on_link: Vec::new(),
        }
    }
}

impl<A: Family + Key> PathReader<A> {
    /// Made of what the writer publishes: routes that lead to groups, adjacencies by
    /// group, neighbors by port.
    pub fn new(
        routes: RouteReader<A>,
        ways: Arc<Published<AdjacencyTable>>,
        neighbors: Arc<Published<Vec<NeighborReader<A>>>>,
        links: Arc<Links>,
    ) -> PathReader<A> {
        PathReader { routes, adjacencies: ways, neighbors, links, groups: Vec::new(), on_link: Vec::new() }
    }

    /// Decides about one packet. `flow` gives its flow's number for a method to choose by, and is called only
    /// where there are several next hops.
    #[inline]
    pub fn lookup_path(
        &self,
        turn: &Turn<'_>,
        address: A,
        flow: impl FnOnce(Method) -> u32,
    ) -> ForwardDecision {
        let explained = self.explain_path(turn, address, flow);
        if let Some(neighbor) = explained.neighbor
            && explained.decision.link.wants_report()
        {
            self.links.report_use(neighbor);
        }
        explained.decision
    }

    /// The same with how it came about, and without telling control that the neighbor is used.
    #[inline]
    pub fn explain_path(&self, turn: &Turn<'_>, address: A, flow: impl FnOnce(Method) -> u32) -> Explained {
        let group = self.routes.lookup(turn, address);
        let ways = self.adjacencies.read(turn);
        let (way, member) = ways.resolve_member(ways.group_adjacency(group), flow);
        let neighbor = match way.kind {
            AdjacencyKind::Gateway => Some(NeighborId::new(way.target)),
            AdjacencyKind::OnLink => self.on_link(turn, way.port, address),
            AdjacencyKind::Multipath(_) | AdjacencyKind::End(_) => None,
        };
        let link = neighbor.map_or(Link::UNKNOWN, |id| self.links.get(id));
        let decision = decision_for(way, link);
        Explained { decision, group, member, neighbor, on_link: way.kind == AdjacencyKind::OnLink }
    }

    /// Decides about all packets of a batch, the same as one by one: looked up together, so that one waits
    /// for memory while others do. `flow` is called with the place in the batch. Returns the port that all
    /// packets are forwarded by, if it is the same.
    pub fn lookup_path_batch(
        &mut self,
        turn: &Turn<'_>,
        addresses: &[A],
        mut flow: impl FnMut(usize, Method) -> u32,
        decisions: &mut Vec<ForwardDecision>,
    ) -> Option<PortId> {
        self.groups.resize(addresses.len(), NO_GROUP);
        self.routes.lookup_batch(turn, addresses, &mut self.groups);
        self.on_link.clear();
        // Read after the groups: it knows every group that a route was seen with.
        let seldom = SlowPathReader {
            ways: self.adjacencies.read(turn),
            links: &self.links,
            neighbors: self.neighbors.read(turn),
        };
        let first = self.groups.first().map_or(PortId(0), |group| seldom.ways.group_adjacency(*group).port);
        let mut are_alike = !addresses.is_empty();
        decisions.resize(addresses.len(), ForwardDecision::NONE);
        for (at, (group, to)) in self.groups.iter().zip(&mut *decisions).enumerate() {
            let way = seldom.ways.groups.get(*group as usize);
            if let Some(straight) = way.and_then(|way| way.fast_decision(&self.links)) {
                *to = straight;
                are_alike &= to.port == first;
                continue;
            }
            let way = way.copied().unwrap_or(Adjacency::end(Outcome::NoRoute));
            let way = if way.kind == AdjacencyKind::OnLink {
                way
            } else {
                seldom.resolve_member(way, |method| flow(at, method))
            };
            if way.kind == AdjacencyKind::OnLink {
                self.on_link.push((at as u32, Begun::default()));
                *to = decision_for(way, Link::UNKNOWN);
            } else {
                *to = seldom.decide_gateway(way);
                are_alike &= to.port == first && to.outcome == Outcome::Forward;
            }
        }
        if !self.on_link.is_empty() {
            seldom.find_neighbors(turn, &mut self.on_link, addresses, decisions);
            are_alike &= decisions.iter().all(|to| to.port == first && to.outcome == Outcome::Forward);
        }
        are_alike.then_some(first)
    }

    #[inline]
    fn on_link(&self, turn: &Turn<'_>, port: PortId, address: A) -> Option<NeighborId> {
        self.neighbors.read(turn).get(usize::from(port.0))?.find_neighbor(turn, address)
    }

    /// What is known of a neighbor.
    pub fn neighbor_link(&self, neighbor: NeighborId) -> Link {
        self.links.get(neighbor)
    }
    /// A neighbor on a port's link.
    pub fn find_neighbor(&self, turn: &Turn<'_>, port: PortId, address: A) -> Option<NeighborId> {
        self.on_link(turn, port, address)
    }
}

/// For packets that are not simply sent to a gateway that is known; kept apart from the loop
/// over those that are.
struct SlowPathReader<'t, A: Family> {
    ways: &'t AdjacencyTable,
    links: &'t Links,
    neighbors: &'t [NeighborReader<A>],
}

impl<A: Family + Key> SlowPathReader<'_, A> {
    /// Selects one of the adjacencies of a group for a packet.
    #[inline(never)]
    fn resolve_member(&self, way: Adjacency, flow: impl FnOnce(Method) -> u32) -> Adjacency {
        self.ways.resolve_member(way, flow).0
    }

    /// The outcome of a packet whose adjacency is not on a link.
    #[inline(never)]
    fn decide_gateway(&self, way: Adjacency) -> ForwardDecision {
        let neighbor = (way.kind == AdjacencyKind::Gateway).then(|| NeighborId::new(way.target));
        decision_for(way, neighbor.map_or(Link::UNKNOWN, |id| use_link(self.links, id)))
    }

    /// Finds the neighbors of those packets whose destination is the neighbor. Most are on one link.
    fn find_neighbors(
        &self,
        turn: &Turn<'_>,
        on_link: &mut [(u32, Begun)],
        addresses: &[A],
        decisions: &mut [ForwardDecision],
    ) {
        let mut rest = on_link;
        while let Some((at, _)) = rest.first() {
            let port = decisions[*at as usize].port;
            let count = rest.iter().take_while(|(at, _)| decisions[*at as usize].port == port).count();
            let (part, others) = rest.split_at_mut(count);
            if let Some(neighbors) = self.neighbors.get(usize::from(port.0)) {
                self.find_on(&neighbors.searches_at(turn), part, addresses, decisions);
            }
            rest = others;
        }
    }

    /// The same on one link. Each loop is short, so that the processor has many of its loads under way.
    #[inline]
    fn find_on(
        &self,
        neighbors: &Searches<'_, A>,
        on_link: &mut [(u32, Begun)],
        addresses: &[A],
        decisions: &mut [ForwardDecision],
    ) {
        for (at, begun) in &mut *on_link {
            *begun = neighbors.begin_search(addresses[*at as usize]);
        }
        for (at, begun) in on_link {
            let at = *at as usize;
            if let Some(id) = neighbors.end_search(addresses[at], *begun) {
                let link = use_link(self.links, id);
                decisions[at].link = link;
                decisions[at].outcome = link_outcome(link);
            }
        }
    }
}

/// The neighbor's word. Reports use of the neighbor to control, if control wants to know.
#[inline]
fn use_link(links: &Links, id: NeighborId) -> Link {
    let link = links.get(id);
    if link.wants_report() {
        links.report_use(id);
    }
    link
}

#[inline]
fn decision_for(way: Adjacency, link: Link) -> ForwardDecision {
    let outcome = match way.kind {
        AdjacencyKind::Gateway | AdjacencyKind::OnLink => link_outcome(link),
        AdjacencyKind::End(outcome) => outcome,
        AdjacencyKind::Multipath(_) => Outcome::Unreachable,
    };
    ForwardDecision { link, port: way.port, mtu: way.mtu, outcome }
}

#[inline]
fn link_outcome(link: Link) -> Outcome {
    if link.is_ready() {
        Outcome::Forward
    } else if link.has_failed() {
        Outcome::Failed
    } else {
        Outcome::Unresolved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neighbor::NeighborIndex;
    use artery_lpm::{Policy, RouteTable};
    use artery_rcu::{Domain, Reader};
    use artery_storage::Pages;
    use artery_wire::EtherAddr;

    struct Rig {
        routes: RouteTable<u32>,
        links: Arc<Links>,
        neighbors: NeighborIndex<u32>,
        path: PathReader<u32>,
        turns: Reader,
    }

    fn rig(ways: AdjacencyTable) -> Rig {
        let domain = Domain::new();
        let routes = RouteTable::new(&domain, Policy::default(), Arc::new(Pages)).unwrap();
        let links = Arc::new(Links::new(&Pages, 100).unwrap());
        let neighbors = NeighborIndex::new(&domain, &links, [1, 2]);
        let tables = Arc::new(Published::new(&domain, vec![neighbors.reader()]));
        let ways = Arc::new(Published::new(&domain, ways));
        let path = PathReader::new(routes.reader(), ways, tables, links.clone());
        Rig { routes, links, neighbors, path, turns: domain.reader() }
    }

    impl Rig {
        /// What is decided, one by one and together.
        fn decide(&mut self, addresses: &[u32], flow: u32) -> Vec<ForwardDecision> {
            let turn = self.turns.turn();
            let one: Vec<ForwardDecision> =
                addresses.iter().map(|a| self.path.lookup_path(&turn, *a, |_| flow)).collect();
            let mut together = Vec::new();
            self.path.lookup_path_batch(&turn, addresses, |_, _| flow, &mut together);
            assert_eq!(one, together);
            one
        }
        fn outcomes(&mut self, addresses: &[u32]) -> Vec<Outcome> {
            self.decide(addresses, 0).iter().map(|decision| decision.outcome).collect()
        }
    }

    const A: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 0xa]);

    #[test]
    fn a_gateways_address_is_seen_by_the_first_decision_after_it_is_known() {
        let gateway = Adjacency::gateway(PortId(3), 1400, NeighborId::new(7));
        let mut rig =
            rig(AdjacencyTable { groups: vec![Adjacency::end(Outcome::NoRoute), gateway], members: vec![] });
        rig.routes.insert("10.0.0.0/8".parse().unwrap(), 1).unwrap();
        assert_eq!(rig.outcomes(&[0x0a00_0001, 0x0b00_0001]), [Outcome::Unresolved, Outcome::NoRoute]);
        rig.links.set_link(NeighborId::new(7), Link::ready(A));
        let decision = rig.decide(&[0x0a00_0001], 0)[0];
        assert_eq!((decision.link.address(), decision.port, decision.mtu), (Some(A), PortId(3), 1400));
        rig.links.set_link(NeighborId::new(7), Link::UNREACHABLE);
        assert_eq!(rig.outcomes(&[0x0a00_0001]), [Outcome::Failed]);
        // Another thread frees the neighbor: nothing that was kept leads to its address.
        rig.links.set_link(NeighborId::new(7), Link::UNKNOWN);
        assert_eq!(rig.outcomes(&[0x0a00_0001]), [Outcome::Unresolved]);
    }

    #[test]
    fn on_a_link_the_destination_is_the_neighbor() {
        let mut rig = rig(AdjacencyTable {
            groups: vec![Adjacency::end(Outcome::NoRoute), Adjacency::on_link(PortId(0), 1500)],
            members: vec![],
        });
        rig.routes.insert("10.0.0.0/24".parse().unwrap(), 1).unwrap();
        rig.neighbors.add_neighbor(0x0a00_0001, NeighborId::new(5));
        rig.links.set_link(NeighborId::new(5), Link::ready(A));
        assert_eq!(rig.outcomes(&[0x0a00_0001, 0x0a00_0002]), [Outcome::Forward, Outcome::Unresolved]);
    }

    #[test]
    fn use_is_reported_only_where_control_wants_to_know() {
        let gateway = Adjacency::gateway(PortId(0), 1500, NeighborId::new(1));
        let mut rig = rig(AdjacencyTable { groups: vec![gateway], members: vec![] });
        let id = NeighborId::new(1);
        rig.links.set_link(id, Link::ready(A));
        rig.outcomes(&[1, 2]);
        assert!(!rig.links.clear_used(id));
        rig.links.set_link(id, Link::ready(A).with_report());
        rig.outcomes(&[1]);
        assert!(rig.links.clear_used(id));
    }

    #[test]
    fn of_several_the_flow_chooses_one() {
        let members = (0..3).map(|n| Adjacency::end_at(Outcome::Blackhole, PortId(n))).collect();
        let mut rig = rig(AdjacencyTable { groups: vec![Adjacency::multipath(Method::Hash, 0, 3)], members });
        let ports: Vec<u16> =
            [0, 0x5555_5555, 0x5555_5556, 0xffff_ffff].map(|flow| rig.decide(&[1], flow)[0].port.0).into();
        assert_eq!(ports, [0, 0, 1, 2]);
        assert_eq!((member_index(Method::Xor, 7, 3), member_index(Method::Xor, 7, 0)), (1, 0));
    }

    #[test]
    fn a_group_that_is_not_known_has_no_route() {
        let mut rig = rig(AdjacencyTable::default());
        rig.routes.insert("10.0.0.0/8".parse().unwrap(), 9).unwrap();
        assert_eq!(rig.outcomes(&[0x0a00_0001, 1]), [Outcome::NoRoute, Outcome::NoRoute]);
    }

    #[test]
    fn every_outcome_has_a_name_of_its_own() {
        let names: std::collections::HashSet<&str> =
            Outcome::ALL.iter().map(|outcome| outcome.name()).collect();
        assert_eq!(names.len(), Outcome::ALL.len());
        assert!(size_of::<ForwardDecision>() <= 16 && size_of::<Adjacency>() <= 16);
    }
}
