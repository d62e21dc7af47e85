//! Models the kernel as a list of its notifications: a lookup goes through all of it.
use super::*;
use crate::kernel::{NextHopObject, ObjectKind};
use std::collections::BTreeMap;

/// What is done with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is not forwarded, or only the kernel can.
    Kernel,
    /// It goes out by one of these.
    Hops(Vec<Hop>),
}

/// Everything that the kernel was configured with.
#[derive(Clone, Debug, Default)]
pub(super) struct Evaluator {
    pub(super) links: BTreeMap<u32, Link>,
    pub(super) objects: BTreeMap<u32, NextHopObject>,
    pub(super) rules: Vec<Rule>,
    pub(super) routes: Vec<Route>,
}

/// What became of a search in one table.
enum Found {
    Nothing,
    Ends(Answer),
}

impl Evaluator {
    pub(super) fn lookup(&self, address: IpAddr) -> Answer {
        self.lookup_in(None, address)
    }

    /// The same for a packet that came in by an interface, which may belong to a VRF.
    pub(super) fn lookup_from(&self, link: u32, address: IpAddr) -> Answer {
        let master = self.links[&link].master.map(|master| &self.links[&master].kind);
        match master {
            Some(LinkKind::Vrf { table }) => self.lookup_in(Some(*table), address),
            _ => self.lookup(address),
        }
    }

    fn lookup_in(&self, vrf: Option<u32>, address: IpAddr) -> Answer {
        let family = if address.is_ipv4() { Family::V4 } else { Family::V6 };
        let mut rules: Vec<&Rule> = self.rules.iter().filter(|rule| rule.family == family).collect();
        rules.sort_by_key(|rule| rule.priority);
        let mut at = 0;
        while let Some(rule) = rules.get(at) {
            at += 1;
            if rule.selectors.is_vrf && vrf.is_none() {
                continue;
            }
            match rule.action {
                RuleAction::Table(table) => match self.search(
                    vrf.filter(|_| rule.selectors.is_vrf).unwrap_or(table),
                    address,
                    rule.suppressed_len,
                ) {
                    Found::Ends(answer) => return answer,
                    Found::Nothing => {}
                },
                RuleAction::Goto(target) => {
                    at = rules.iter().position(|rule| rule.priority == target).unwrap_or(at);
                }
                RuleAction::Refuse => return Answer::Kernel,
                _ => {}
            }
        }
        Answer::Kernel
    }

    fn search(&self, table: u32, address: IpAddr, suppressed: Option<u32>) -> Found {
        let holds = |route: &&Route| route.table == table && holds(route, address);
        let mut routes: Vec<&Route> = self.routes.iter().filter(holds).collect();
        routes.sort_by_key(|route| (std::cmp::Reverse(route.len), route.priority));
        let is_conditional = |route: &Route| route.source.is_some() || route.tos != 0;
        for route in &routes {
            // What a packet's source or type of service has to do with it, only the kernel knows.
            if routes.iter().any(|other| other.len == route.len && is_conditional(other)) {
                return Found::Ends(Answer::Kernel);
            }
            let is_suppressed = suppressed.is_some_and(|len| u32::from(route.len) <= len);
            let answer = match route.path.kind {
                RouteKind::Throw => return Found::Nothing,
                RouteKind::Local if is_suppressed => return Found::Nothing,
                RouteKind::Unicast => match self.hops(route) {
                    Answer::Hops(hops) if hops.is_empty() => continue,
                    answer => answer,
                },
                _ => return Found::Ends(Answer::Kernel),
            };
            return if is_suppressed && answer != Answer::Kernel {
                Found::Nothing
            } else {
                Found::Ends(answer)
            };
        }
        Found::Nothing
    }

    /// Everything that may decide about an address, for finding out why.
    pub(super) fn told_of(&self, address: IpAddr) -> String {
        let family = if address.is_ipv4() { Family::V4 } else { Family::V6 };
        let rules = self.rules.iter().filter(|rule| rule.family == family).map(|rule| format!("\n{rule}"));
        let routes = self.routes.iter().filter(|route| holds(route, address));
        let routes = routes.map(|route| {
            let Route { table, destination, len, source, tos, priority, path, .. } = route;
            format!(
                "\n{destination}/{len} from {source:?} tos {tos} table {table} metric {priority} {path:?}"
            )
        });
        let objects = self.objects.values().map(|object| format!("\n{object:?}"));
        rules.chain(routes).chain(objects).collect()
    }

    fn is_up(&self, link: u32) -> bool {
        self.links.get(&link).is_some_and(|link| link.is_admin_up)
    }

    /// The next hops that are alive.
    fn hops(&self, route: &Route) -> Answer {
        let hops: Vec<Hop> = match self.objects.get(&route.path.object) {
            None => {
                let hop = |hop: &RouteHop| Hop { link: hop.link, gateway: hop.gateway, weight: hop.weight };
                route.path.hops.iter().map(hop).collect()
            }
            Some(NextHopObject { kind: ObjectKind::Blackhole, .. }) => return Answer::Kernel,
            Some(NextHopObject { kind: ObjectKind::Group(members), .. }) => {
                members.iter().map(|(id, weight)| self.single(*id, *weight)).collect()
            }
            Some(object) => vec![self.single(object.id, 1)],
        };
        Answer::Hops(hops.into_iter().filter(|hop| self.is_up(hop.link)).collect())
    }

    fn single(&self, id: u32, weight: u16) -> Hop {
        match self.objects[&id].kind {
            ObjectKind::Single { link, gateway } => Hop { link, gateway, weight },
            _ => panic!("only single ones are members"),
        }
    }

    /// An interface goes down: routes by it alone go, and objects at it with all that leads to them.
    pub(super) fn down(&mut self, index: u32) {
        self.links.get_mut(&index).unwrap().is_admin_up = false;
        let links = self.links.clone();
        self.routes.retain(|route| {
            let hops = &route.path.hops;
            let is_dead = hops.iter().all(|hop| !links[&hop.link].is_admin_up);
            route.path.kind != RouteKind::Unicast || hops.is_empty() || !is_dead
        });
        let at =
            |object: &NextHopObject| matches!(object.kind, ObjectKind::Single { link, .. } if link == index);
        let ids: Vec<u32> =
            self.objects.values().filter(|object| at(object)).map(|object| object.id).collect();
        ids.into_iter().for_each(|id| self.without_object(id));
    }

    /// An object goes, from groups too, and the routes that lead to it.
    pub(super) fn without_object(&mut self, id: u32) {
        if self.objects.remove(&id).is_none() {
            return;
        }
        self.routes.retain(|route| route.path.object != id);
        let mut empty = Vec::new();
        for object in self.objects.values_mut() {
            if let ObjectKind::Group(members) = &mut object.kind {
                members.retain(|(member, _)| *member != id);
                if members.is_empty() {
                    empty.push(object.id);
                }
            }
        }
        empty.into_iter().for_each(|id| self.without_object(id));
    }

    /// A route takes the place of the one with its prefix and metric, or has none.
    pub(super) fn put(&mut self, route: Route) {
        self.routes.retain(|old| !is_like(old, &route));
        self.routes.push(route);
    }
}

pub(super) fn is_like(one: &Route, other: &Route) -> bool {
    let key =
        |route: &Route| (route.table, route.destination, route.len, route.source, route.tos, route.priority);
    key(one) == key(other)
}

fn holds(route: &Route, address: IpAddr) -> bool {
    let network = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    };
    let differing = network(route.destination) ^ network(address);
    route.destination.is_ipv4() == address.is_ipv4() && differing.leading_zeros() >= route.len.into()
}
