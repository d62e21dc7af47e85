//! Next-hop objects of a connection, by their numbers. Another connection numbers its own.
use super::reason::Reason;
use artery_wire::netlink::{ObjectKind, RouteHop};
use std::collections::HashMap;

/// The objects of the present connection.
#[derive(Default)]
pub(crate) struct NextHops(HashMap<u32, ObjectKind>);

/// What an object comes to.
pub(crate) enum Resolved {
    /// Next hops, of which there is at least one.
    Hops(Vec<RouteHop>),
    /// Packets are dropped.
    Blackhole,
}

impl NextHops {
    /// Says whether anything has changed.
    pub(crate) fn replace(&mut self, id: u32, kind: ObjectKind) -> bool {
        self.0.get(&id) != Some(&kind) && {
            self.0.insert(id, kind);
            true
        }
    }

    /// Says whether there was one.
    pub(super) fn remove(&mut self, id: u32) -> bool {
        self.0.remove(&id).is_some()
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// How many objects are single next hops, and how many are groups.
    pub(super) fn counts(&self) -> (usize, usize) {
        let groups = self.0.values().filter(|kind| matches!(kind, ObjectKind::Group(_))).count();
        (self.0.len() - groups, groups)
    }

    /// Whether what an object comes to may have changed with another one.
    pub(crate) fn depends(&self, id: u32, on: u32) -> bool {
        let has_member = |kind: &ObjectKind| matches!(kind, ObjectKind::Group(members) if members.iter().any(|(member, _)| *member == on));
        id == on || self.0.get(&id).is_some_and(has_member)
    }

    /// What an object comes to.
    pub(crate) fn resolve(&self, id: u32) -> Result<Resolved, Reason> {
        match self.0.get(&id).ok_or(Reason::UnknownNextHop)? {
            ObjectKind::Single { .. } => Ok(Resolved::Hops(vec![self.single(id, 1)?])),
            ObjectKind::Blackhole => Ok(Resolved::Blackhole),
            ObjectKind::Foreign => Err(Reason::Encapsulation),
            ObjectKind::Group(members) => {
                let hops = members.iter().map(|(member, weight)| self.single(*member, *weight));
                Ok(Resolved::Hops(hops.collect::<Result<_, _>>()?))
            }
        }
    }

    /// A member of a group, which can be no group itself (nexthop.h).
    fn single(&self, id: u32, weight: u16) -> Result<RouteHop, Reason> {
        match self.0.get(&id).ok_or(Reason::UnknownNextHop)? {
            ObjectKind::Single { link, gateway } => Ok(RouteHop {
                link: *link,
                gateway: *gateway,
                weight,
                is_dead: false,
                is_without_carrier: false,
                has_encapsulation: false,
            }),
            ObjectKind::Foreign => Err(Reason::Encapsulation),
            ObjectKind::Group(_) | ObjectKind::Blackhole => Err(Reason::Type),
        }
    }
}
