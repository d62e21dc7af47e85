//! What becomes of routes when interfaces, their settings and addresses, and next-hop objects change.
//!
//! The kernel takes routes of IPv4 away without a word when their interface goes down or loses its last
//! address, and objects and all that leads to them when their interface goes down or loses its carrier. The
//! mirror does as the kernel does, and doubts that this was all.
use super::paths::PathId;
use super::routes::TableUpdate;
use super::{Mirror, Sink};
use crate::kernel::{Address, Family, Link, NextHopObject, ObjectKind, Path, RouteKind, Settings};
use std::collections::HashSet;

impl Mirror {
    pub(super) fn apply_link(&mut self, is_gone: bool, link: Link, sink: &mut dyn Sink) {
        let index = link.index;
        let new = (!is_gone).then_some(link);
        let old = match &new {
            Some(link) => self.world.links.insert(index, link.clone()),
            None => self.world.links.remove(&index),
        };
        if old == new {
            // A carrier counts for routes a moment after its notification; this is the second notification.
            self.needs_resync |= self.has_dead_hops(index);
            return;
        }
        if let Some(link) = &new {
            self.release_binding(link, sink);
        }
        sink.set_link(index, new.as_ref());
        if is_gone {
            self.forget_link(index, sink);
        }
        self.after_link(index, old.as_ref(), new.as_ref(), sink);
    }

    /// Whether the kernel skips next hops at an interface, by what it has notified so far.
    fn has_dead_hops(&self, index: u32) -> bool {
        let is_dead = |path: &Path| path.hops.iter().any(|hop| hop.link == index && hop.is_dead);
        !self.paths.matching_paths(|_, path| is_dead(path)).is_empty()
    }

    /// What the kernel does to routes and objects when an interface changes.
    fn after_link(&mut self, index: u32, old: Option<&Link>, new: Option<&Link>, sink: &mut dyn Sink) {
        let was = |holds: fn(&Link) -> bool| old.is_some_and(holds) && !new.is_some_and(holds);
        if was(|link| link.is_admin_up) || new.is_none() {
            self.remove_routes_by_link(index, new.is_none(), sink);
        }
        if was(Link::is_up) || new.is_none() {
            self.remove_objects_at(index, sink);
        }
        // The notification of a new interface doesn't list what came back with it.
        self.needs_resync |= old.is_some();
        self.reevaluate_paths(|_| true, sink);
        for family in [Family::V4, Family::V6] {
            if self.rules_mut(family).depend_on_links() {
                self.plan_lookups(family, sink);
            }
        }
        self.review_vrfs(sink);
    }

    /// Forgets what was at an interface that is gone.
    fn forget_link(&mut self, index: u32, sink: &mut dyn Sink) {
        self.addresses.retain(|address| address.link != index);
        for family in [Family::V4, Family::V6] {
            self.world.remove_settings(family, index as i32);
        }
        self.neighbors.retain(|&(link, address), _| {
            if link == index {
                sink.set_neighbor(link, address, None);
            }
            link != index
        });
    }

    /// Takes out routes whose interfaces are all down, one of them being this.
    fn remove_routes_by_link(&mut self, index: u32, is_gone: bool, sink: &mut dyn Sink) {
        let world = &self.world;
        let out = self.paths.matching_paths(|family, path| {
            let leads = path.hops.iter().any(|hop| hop.link == index);
            let is_dead = path.hops.iter().all(|hop| hop.is_dead || world.is_down(hop.link));
            is_route(path) && leads && (is_dead || (is_gone && family == Family::V4))
        });
        self.remove_paths(&out, sink);
    }

    /// Takes out next-hop objects at an interface.
    fn remove_objects_at(&mut self, index: u32, sink: &mut dyn Sink) {
        let is_at =
            |object: &&NextHopObject| matches!(object.kind, ObjectKind::Single { link, .. } if link == index);
        let ids: HashSet<u32> = self.world.objects.values().filter(is_at).map(|object| object.id).collect();
        self.remove_objects(ids, sink);
    }

    /// Takes out objects, from groups too, groups without members, and the routes that lead to any of them.
    fn remove_objects(&mut self, mut ids: HashSet<u32>, sink: &mut dyn Sink) {
        if ids.is_empty() {
            return;
        }
        self.world.objects.retain(|id, object| {
            if let ObjectKind::Group(members) = &mut object.kind {
                members.retain(|(member, _)| !ids.contains(member));
                if members.is_empty() {
                    ids.insert(*id);
                }
            }
            !ids.contains(id)
        });
        let out = self.paths.matching_paths(|_, path| ids.contains(&path.object));
        self.remove_paths(&out, sink);
        self.needs_resync = true;
        self.reevaluate_paths(|path| path.object != 0, sink);
    }

    pub(super) fn apply_object(&mut self, is_gone: bool, object: NextHopObject, sink: &mut dyn Sink) {
        let id = object.id;
        if is_gone {
            return self.remove_objects(HashSet::from([id]), sink);
        }
        if self.world.objects.get(&id) == Some(&object) {
            return;
        }
        self.world.objects.insert(id, object);
        let leads = |group: &&NextHopObject| match &group.kind {
            ObjectKind::Group(members) => members.iter().any(|(member, _)| *member == id),
            _ => group.id == id,
        };
        let changed = self.world.objects.values().filter(leads).map(|object| object.id);
        let changed: HashSet<u32> = changed.chain([id]).collect();
        self.reevaluate_paths(|path| changed.contains(&path.object), sink);
    }

    pub(super) fn apply_address(&mut self, is_gone: bool, address: Address, sink: &mut dyn Sink) {
        if !is_gone {
            self.addresses.insert(address);
            return;
        }
        let (link, family) = (address.link, address.family());
        // A replayed old message must not remove an address that is there.
        if !self.addresses.remove(&address) || family == Family::V6 {
            return;
        }
        self.needs_resync = true;
        let is_like = |other: &Address| other.link == link && other.family() == family;
        if self.addresses.iter().any(is_like) {
            return;
        }
        let world = &self.world;
        let out = self.paths.matching_paths(|family, path| {
            let leads = path.hops.iter().any(|hop| hop.link == link);
            let is_dead = |index| index == link || world.is_down(index);
            is_route(path)
                && family == Family::V4
                && leads
                && path.hops.iter().all(|hop| hop.is_dead || is_dead(hop.link))
        });
        self.remove_paths(&out, sink);
    }

    pub(super) fn apply_settings(&mut self, is_gone: bool, settings: Settings, sink: &mut dyn Sink) {
        if is_gone {
            self.world.remove_settings(settings.family, settings.link);
        } else if self.world.update_settings(settings) {
            self.reevaluate_paths(|_| true, sink);
        }
    }

    /// Takes out all routes by some paths.
    fn remove_paths(&mut self, out: &HashSet<PathId>, sink: &mut dyn Sink) {
        if out.is_empty() {
            return;
        }
        for (table, key) in self.v4.keys_by_path(out) {
            let had = self.prefixes_of(Family::V4, table);
            self.tables4(sink).remove_by_path(table, key, |path| out.contains(&path));
            self.review_rules(Family::V4, table, had, sink);
        }
        for (table, key) in self.v6.keys_by_path(out) {
            let had = self.prefixes_of(Family::V6, table);
            self.tables6(sink).remove_by_path(table, key, |path| out.contains(&path));
            self.review_rules(Family::V6, table, had, sink);
        }
    }

    /// Resolves again the paths for which `holds` is true, and selects again among their routes.
    fn reevaluate_paths(&mut self, holds: impl Fn(&Path) -> bool, sink: &mut dyn Sink) {
        let changed = self.paths.reevaluate(&self.world, holds, sink);
        if !changed.is_empty() {
            self.v4.choose_again(&changed, &self.paths, sink);
            self.v6.choose_again(&changed, &self.paths, sink);
        }
    }

    pub(super) fn tables4<'a>(&'a mut self, sink: &'a mut dyn Sink) -> TableUpdate<'a, u32> {
        TableUpdate { merged: &mut self.v4, paths: &mut self.paths, world: &self.world, sink }
    }

    pub(super) fn tables6<'a>(&'a mut self, sink: &'a mut dyn Sink) -> TableUpdate<'a, u128> {
        TableUpdate { merged: &mut self.v6, paths: &mut self.paths, world: &self.world, sink }
    }
}

/// Whether a path goes by interfaces of its own. Addresses of the machine stay when
/// their interface goes down.
fn is_route(path: &Path) -> bool {
    path.kind == RouteKind::Unicast && path.object == 0 && !path.hops.is_empty()
}
