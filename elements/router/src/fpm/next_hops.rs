//! Next-hop objects of a connection, by their numbers. Another connection numbers its own.
use super::reason::RejectReason;
use artery_netlink::{ObjectKind, RouteHop};
use std::collections::HashMap;

/// The objects of the present connection.
#[derive(Default)]
pub(crate) struct NextHops(HashMap<u32, ObjectKind>);

/// The result of resolving an object.
pub(crate) enum ResolvedNextHop {
    /// Next hops, of which there is at least one.
    Hops(Vec<RouteHop>),
    /// A blackhole: packets are dropped.
    Blackhole,
}

impl NextHops {
    /// Sets an object; returns whether it has changed.
    pub(crate) fn replace_object(&mut self, id: u32, kind: ObjectKind) -> bool {
        self.0.get(&id) != Some(&kind) && {
            self.0.insert(id, kind);
            true
        }
    }

    /// Removes an object; returns whether there was one.
    pub(super) fn remove(&mut self, id: u32) -> bool {
        self.0.remove(&id).is_some()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// How many objects are single next hops, and how many are groups.
    pub(super) fn count_kinds(&self) -> (usize, usize) {
        let groups = self.0.values().filter(|kind| matches!(kind, ObjectKind::Group(_))).count();
        (self.0.len() - groups, groups)
    }

    /// Whether the result of an object may have changed with another one.
    pub(crate) fn depends_on(&self, id: u32, on: u32) -> bool {
        let has_member = |kind: &ObjectKind| match kind {
            ObjectKind::Group(members) => members.iter().any(|(member, _)| *member == on),
            _ => false,
        };
        id == on || self.0.get(&id).is_some_and(has_member)
    }

    /// Resolves an object to next hops.
    pub(crate) fn resolve_next_hop(&self, id: u32) -> Result<ResolvedNextHop, RejectReason> {
        match self.0.get(&id).ok_or(RejectReason::UnknownNextHop)? {
            ObjectKind::Single { .. } => Ok(ResolvedNextHop::Hops(vec![self.resolve_single(id, 1)?])),
            ObjectKind::Blackhole => Ok(ResolvedNextHop::Blackhole),
            ObjectKind::Foreign => Err(RejectReason::Encapsulation),
            ObjectKind::Group(members) => {
                let hops = members.iter().map(|(member, weight)| self.resolve_single(*member, *weight));
                Ok(ResolvedNextHop::Hops(hops.collect::<Result<_, _>>()?))
            }
        }
    }

    /// A member of a group, which can be no group itself (nexthop.h).
    fn resolve_single(&self, id: u32, weight: u16) -> Result<RouteHop, RejectReason> {
        match self.0.get(&id).ok_or(RejectReason::UnknownNextHop)? {
            ObjectKind::Single { link, gateway } => Ok(RouteHop {
                link: *link,
                gateway: *gateway,
                weight,
                is_dead: false,
                is_without_carrier: false,
                has_encapsulation: false,
            }),
            ObjectKind::Foreign => Err(RejectReason::Encapsulation),
            ObjectKind::Group(_) | ObjectKind::Blackhole => Err(RejectReason::Type),
        }
    }
}
