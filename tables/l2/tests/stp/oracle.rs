//! What the tree must be, found by someone who knows all bridges, cables and costs.

use super::net::{End, Net};
use artery_l2::stp::{PortState, Role};
use artery_wire::BridgeId;
use std::collections::HashMap;

struct Oracle<'n> {
    net: &'n Net,
    ids: Vec<BridgeId>,
    /// Root, and cost of the path to it.
    ways: Vec<(BridgeId, u32)>,
}

/// Checks every port's role and state.
#[track_caller]
pub(crate) fn check(net: &Net, what: &str) {
    let oracle = Oracle::new(net);
    for (end, role) in oracle.roles() {
        let port = net.bridges[end.0].port(end.1).unwrap();
        let state = match role {
            Role::Root | Role::Designated => PortState::Forwarding,
            _ => PortState::Discarding,
        };
        assert_eq!((port.role, port.state), (role, state), "{what}, port {end:?}:\n{}", net.describe());
        assert_eq!(port.state, net.state(end), "{what}: the last action and the state");
    }
    for (bridge, way) in net.bridges.iter().zip(&oracle.ways) {
        let view = bridge.view();
        assert_eq!((view.root.id, view.root.cost, view.unsettled), (way.0, way.1, 0), "{what}");
    }
}

impl Oracle<'_> {
    fn new(net: &Net) -> Oracle<'_> {
        let ids: Vec<BridgeId> = net.bridges.iter().map(|bridge| bridge.view().id).collect();
        let ways = ids.iter().map(|id| (*id, 0)).collect();
        let mut oracle = Oracle { net, ids, ways };
        while oracle.relax() {}
        oracle
    }

    fn cost(&self, end: End) -> u32 {
        self.net.bridges[end.0].port(end.1).unwrap().cost
    }

    fn port_id(&self, end: End) -> u16 {
        u16::from(self.net.bridges[end.0].port(end.1).unwrap().priority) << 8 | end.1
    }

    /// Pairs of ports that receive each other's messages.
    fn pairs(&self) -> impl Iterator<Item = (End, End)> {
        let up = self.net.cables.iter().filter(|cable| cable.is_up);
        up.flat_map(|cable| cable.ends.iter().flat_map(|a| cable.ends.iter().map(|b| (*a, *b))))
            .filter(|(a, b)| a != b)
    }

    fn relax(&mut self) -> bool {
        let better = self.pairs().find_map(|(from, to)| {
            let (root, cost) = self.ways[from.0];
            let way = (root, cost + self.cost(to));
            (way < self.ways[to.0]).then_some((to.0, way))
        });
        better.map(|(bridge, way)| self.ways[bridge] = way).is_some()
    }

    /// How good the offer of a port is to its cable.
    fn offer(&self, end: End) -> (u32, BridgeId, u16) {
        (self.ways[end.0].1, self.ids[end.0], self.port_id(end))
    }

    fn roles(&self) -> HashMap<End, Role> {
        let mut roles = HashMap::new();
        let mut offers: HashMap<usize, Vec<_>> = HashMap::new();
        for cable in self.net.cables.iter() {
            for end in &cable.ends {
                roles.insert(*end, Role::Disabled);
            }
            if !cable.is_up {
                continue;
            }
            let best = *cable.ends.iter().min_by_key(|end| self.offer(**end)).unwrap();
            for end in &cable.ends {
                let role = match *end {
                    end if end == best => Role::Designated,
                    (bridge, _) if bridge == best.0 => Role::Backup,
                    _ => Role::Alternate,
                };
                roles.insert(*end, role);
                if role == Role::Alternate {
                    let (cost, bridge, port) = self.offer(best);
                    let way = (cost + self.cost(*end), bridge, port, self.port_id(*end));
                    offers.entry(end.0).or_default().push((way, *end));
                }
            }
        }
        for (_, ways) in offers.into_iter().filter(|(bridge, _)| self.ways[*bridge].1 > 0) {
            roles.insert(ways.iter().min().unwrap().1, Role::Root);
        }
        roles
    }
}
