//! What routes refer to: interfaces, their settings, next-hop objects. And how a path resolves with them.
use super::{Hop, NextHopSet};
use crate::kernel::{Family, Link, NextHopObject, ObjectKind, Path, RouteHop, RouteKind, Settings};
use artery_l3::router::ReversePath;
use std::borrow::Cow;
use std::collections::HashMap;

/// The number of what is set for all interfaces (NETCONFA_IFINDEX_ALL).
const ALL: i32 = -1;

/// What a path resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathOutcome {
    /// Packets use these next hops.
    NextHops(NextHopSet),
    /// The search goes on in the next table.
    Throw,
    /// As if there were no such route.
    Unusable,
}

/// The settings of one interface for one family.
#[derive(Clone, Copy, Debug, Default)]
struct InterfaceSettings {
    forwards: bool,
    /// The number of the reverse-path filter, once it is known.
    reverse_path: Option<u8>,
    ignores_without_carrier: bool,
}

/// What routes refer to.
#[derive(Debug, Default)]
pub(super) struct KernelState {
    pub(super) links: HashMap<u32, Link>,
    pub(super) objects: HashMap<u32, NextHopObject>,
    settings: HashMap<(Family, i32), InterfaceSettings>,
}

impl KernelState {
    /// Notes settings; says whether that changes which next hops are alive.
    pub(super) fn update_settings(&mut self, settings: Settings) -> bool {
        let set = self.settings.entry((settings.family, settings.link)).or_default();
        let before = set.ignores_without_carrier;
        set.forwards = settings.forwards.unwrap_or(set.forwards);
        set.reverse_path = settings.reverse_path.or(set.reverse_path);
        set.ignores_without_carrier = settings.ignores_without_carrier.unwrap_or(before);
        set.ignores_without_carrier != before
    }

    /// Forgets the settings of an interface.
    pub(super) fn remove_settings(&mut self, family: Family, link: i32) {
        self.settings.remove(&(family, link));
    }

    /// Whether packets that come in by an interface are forwarded.
    pub(super) fn forwards(&self, family: Family, link: u32) -> bool {
        self.settings.get(&(family, link as i32)).is_some_and(|set| set.forwards)
    }

    /// What is demanded of the sources of packets that come in by an interface, if that is known.
    pub(super) fn reverse_path(&self, link: u32) -> Option<ReversePath> {
        let number = |link| self.settings.get(&(Family::V4, link))?.reverse_path;
        // The kernel goes by the greater one.
        Some(match number(ALL)?.max(number(link as i32)?) {
            0 => ReversePath::Off,
            1 => ReversePath::Strict,
            _ => ReversePath::Loose,
        })
    }

    /// Whether the kernel sends by an interface. One that is not known yet was known to the kernel.
    fn is_alive(&self, family: Family, link: u32) -> bool {
        self.links.get(&link).is_none_or(|link| {
            let ignores = self.settings.get(&(family, link.index as i32));
            let ignores = ignores.is_some_and(|set| set.ignores_without_carrier);
            link.is_admin_up && (link.has_carrier || !ignores)
        })
    }

    /// Whether an interface is gone, or was set down.
    pub(super) fn is_down(&self, link: u32) -> bool {
        self.links.get(&link).is_none_or(|link| !link.is_admin_up)
    }

    /// Removes from a path the states of interfaces that are known better here. If the kernel skips a next
    /// hop while its interface is up, it has another reason, and only the next dump shows when that ends.
    pub(super) fn without_known_states<'a>(&self, family: Family, path: &'a Path) -> Cow<'a, Path> {
        if !path.hops.iter().any(|hop| hop.is_dead || hop.is_without_carrier) {
            return Cow::Borrowed(path);
        }
        let mut path = path.clone();
        for hop in &mut path.hops {
            hop.is_without_carrier = false;
            hop.is_dead &= self.is_alive(family, hop.link);
        }
        Cow::Owned(path)
    }

    /// Resolves a path with the interfaces and next-hop objects.
    pub(super) fn resolve_path(&self, family: Family, path: &Path) -> PathOutcome {
        match path.kind {
            RouteKind::Throw => PathOutcome::Throw,
            RouteKind::Unicast if path.object != 0 => self.by_object(family, path),
            RouteKind::Unicast if !path.hops.is_empty() => self.by_hops(family, path),
            _ => PathOutcome::NextHops(NextHopSet::Kernel),
        }
    }

    fn by_hops(&self, family: Family, path: &Path) -> PathOutcome {
        let alive = |hop: &&RouteHop| !hop.is_dead && self.is_alive(family, hop.link);
        let hops: Vec<&RouteHop> = path.hops.iter().filter(alive).collect();
        if hops.is_empty() {
            return PathOutcome::Unusable;
        }
        if path.mtu.is_some() || hops.iter().any(|hop| hop.has_encapsulation) {
            return PathOutcome::NextHops(NextHopSet::Kernel);
        }
        let hop = |hop: &RouteHop| Hop { link: hop.link, gateway: hop.gateway, weight: hop.weight };
        PathOutcome::NextHops(NextHopSet::Hops(hops.into_iter().map(hop).collect()))
    }

    /// An object that is not known yet was known to the kernel, which forwards by it meanwhile.
    fn by_object(&self, family: Family, path: &Path) -> PathOutcome {
        let Some(object) = self.objects.get(&path.object) else {
            return PathOutcome::NextHops(NextHopSet::Kernel);
        };
        let one = [(object.id, 1)];
        let members = match &object.kind {
            ObjectKind::Group(members) => &members[..],
            _ => &one[..],
        };
        let mut hops = Vec::with_capacity(members.len());
        for (id, weight) in members {
            match self.objects.get(id).map(|object| &object.kind) {
                Some(&ObjectKind::Single { link, gateway }) if self.is_alive(family, link) => {
                    hops.push(Hop { link, gateway, weight: *weight });
                }
                Some(ObjectKind::Single { .. }) => {}
                _ => return PathOutcome::NextHops(NextHopSet::Kernel),
            }
        }
        match hops.is_empty() {
            true => PathOutcome::Unusable,
            false if path.mtu.is_some() => PathOutcome::NextHops(NextHopSet::Kernel),
            false => PathOutcome::NextHops(NextHopSet::Hops(hops)),
        }
    }
}
