//! The routes that arrived by FPM, and their states in the router's tables. They stay when the connection
//! ends, and when another configuration replaces the router.
use super::next_hops::NextHops;
use super::paths::{PathId, PathKey, Paths};
use super::reason::RejectReason;
use super::target::Target;
use artery_forward::shared::SharedRouter;
use artery_l3::router::{Protocol, RouterError, Standing, Tables};
use artery_lpm::Prefix;
use artery_lpm::load::AnyPrefix;
use artery_netlink::{ObjectKind, Path};
use std::collections::HashMap;
use std::ops::DerefMut;
use std::sync::Arc;
use std::time::Duration;

/// The state of a route in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteState {
    /// It is in the table and forwards.
    Installed,
    /// It is in the table, behind one of the router's own for the prefix.
    Shadowed,
    /// It is not in the table.
    Refused(RejectReason),
}

#[derive(Clone, Copy)]
struct RibEntry {
    path: PathId,
    /// The last connection that sent it.
    session: u32,
    state: RouteState,
}

/// How many routes are in each state.
#[derive(Clone, Default)]
pub(crate) struct RouteCounts {
    pub(crate) installed: usize,
    pub(crate) shadowed: usize,
    /// By number of a reason.
    pub(crate) refused: [usize; RejectReason::ALL.len()],
    /// Of all of them, those that the present connection has not sent.
    pub(crate) stale: usize,
}

impl RouteCounts {
    fn count_mut(&mut self, state: RouteState) -> &mut usize {
        match state {
            RouteState::Installed => &mut self.installed,
            RouteState::Shadowed => &mut self.shadowed,
            RouteState::Refused(reason) => &mut self.refused[reason as usize],
        }
    }
}

#[derive(Default)]
pub(crate) struct Rib {
    ipv4: HashMap<Prefix<u32>, RibEntry>,
    ipv6: HashMap<Prefix<u128>, RibEntry>,
    paths: Paths,
    pub(crate) next_hops: NextHops,
    targets: Vec<Target>,
    /// The number of the present connection; of the last one, where there is none.
    session: u32,
    counts: RouteCounts,
    /// For each reason: the last route refused for it, and the table's error.
    refusals: HashMap<RejectReason, String>,
}

/// The tables of all targets, in their order.
pub(crate) type AllTables<'a, T> = &'a mut [T];

impl Rib {
    /// The routers that still exist. Others are removed.
    pub(crate) fn routers(&mut self) -> Vec<Arc<SharedRouter>> {
        let routers: Vec<_> = self.targets.iter().map(Target::router).collect();
        for gone in (0..routers.len()).rev().filter(|at| routers[*at].is_none()) {
            self.targets.remove(gone);
            self.paths.remove_target(gone);
        }
        routers.into_iter().flatten().collect()
    }

    /// Adds a router, which gets all present and future routes. It will replace the others.
    pub(crate) fn add_target(&mut self, target: Target, now: Duration) {
        // Earlier targets are checked again, as they may be gone.
        drop(self.routers());
        let Some(router) = target.router() else { return };
        self.paths.add_target(&self.next_hops, &target, self.session);
        self.targets.push(target);
        let at = self.targets.len() - 1;
        let mut tables = router.lock_tables();
        let prefixes: Vec<AnyPrefix> = self.prefixes_where(|_| true);
        for prefix in prefixes {
            let Some(entry) = self.find_entry(prefix) else { continue };
            let state = self.install_route(prefix, entry.path, at, &mut tables, now);
            self.set_entry(prefix, RibEntry { state, ..entry });
        }
    }

    /// Starts a connection: routes sent before are stale until they are sent again.
    pub(crate) fn begin_session(&mut self) {
        self.session += 1;
        self.next_hops.clear();
        self.counts.stale = self.len();
    }

    /// Sets the route of a prefix, replacing an earlier one.
    pub(crate) fn replace_route<T: DerefMut<Target = Tables>>(
        &mut self,
        prefix: AnyPrefix,
        (protocol, path): (Protocol, Result<Path, RejectReason>),
        is_local: bool,
        tables: AllTables<'_, T>,
        now: Duration,
    ) -> RouteState {
        let object = path.as_ref().map_or(0, |path| path.object);
        let session = if object == 0 { 0 } else { self.session };
        let key = PathKey { protocol, path, is_local, session };
        let path = self.paths.acquire_path(key, &self.next_hops, &self.targets);
        let state = self.install_everywhere(prefix, path, tables, now);
        let old = self.set_entry(prefix, RibEntry { path, session: self.session, state });
        if let Some(old) = old {
            self.paths.release_path(old.path);
        }
        state
    }

    /// Removes a route; returns whether there was one.
    pub(crate) fn remove_route<T: DerefMut<Target = Tables>>(
        &mut self,
        prefix: AnyPrefix,
        tables: AllTables<'_, T>,
        now: Duration,
    ) -> bool {
        let old = match prefix {
            AnyPrefix::V4(prefix) => self.ipv4.remove(&prefix),
            AnyPrefix::V6(prefix) => self.ipv6.remove(&prefix),
        };
        let Some(old) = old else { return false };
        *self.counts.count_mut(old.state) -= 1;
        self.counts.stale -= usize::from(old.session != self.session);
        tables.iter_mut().for_each(|tables| uninstall_route(prefix, tables, now));
        self.paths.release_path(old.path);
        true
    }

    /// Sets or removes a next-hop object; updates the routes that use it.
    pub(crate) fn change_next_hop<T: DerefMut<Target = Tables>>(
        &mut self,
        id: u32,
        kind: Option<ObjectKind>,
        tables: AllTables<'_, T>,
        now: Duration,
    ) {
        let has_changed = match kind {
            Some(kind) => self.next_hops.replace_object(id, kind),
            None => self.next_hops.remove(id),
        };
        if !has_changed {
            return;
        }
        let changed = self.paths.update_changed(id, self.session, &self.next_hops, &self.targets);
        if changed.is_empty() {
            return;
        }
        for prefix in self.prefixes_where(|entry| changed.contains(&entry.path)) {
            let Some(entry) = self.find_entry(prefix) else { continue };
            let state = self.install_everywhere(prefix, entry.path, tables, now);
            self.set_entry(prefix, RibEntry { state, ..entry });
        }
    }

    /// The prefixes of stale routes.
    pub(crate) fn stale_prefixes(&self) -> Vec<AnyPrefix> {
        self.prefixes_where(|entry| entry.session != self.session)
    }

    /// How many routes there are.
    pub(super) fn len(&self) -> usize {
        self.ipv4.len() + self.ipv6.len()
    }

    /// How many there are of each family.
    pub(crate) fn family_counts(&self) -> [usize; 2] {
        [self.ipv4.len(), self.ipv6.len()]
    }

    /// How many different paths they have.
    pub(super) fn path_count(&self) -> usize {
        self.paths.len()
    }

    pub(crate) fn counts(&self) -> &RouteCounts {
        &self.counts
    }

    /// The last route that was refused for a reason, and why.
    pub(crate) fn last_refusal(&self, reason: RejectReason) -> Option<&str> {
        self.refusals.get(&reason).map(String::as_str)
    }

    fn install_everywhere<T: DerefMut<Target = Tables>>(
        &mut self,
        prefix: AnyPrefix,
        path: PathId,
        tables: AllTables<'_, T>,
        now: Duration,
    ) -> RouteState {
        // The last target is the one that stays.
        let mut state = RouteState::Refused(RejectReason::Other);
        for (at, tables) in tables.iter_mut().enumerate() {
            state = self.install_route(prefix, path, at, tables, now);
        }
        state
    }

    /// Installs a route in one target. A route that can't be installed is removed from its table.
    fn install_route(
        &mut self,
        prefix: AnyPrefix,
        path: PathId,
        target: usize,
        tables: &mut Tables,
        now: Duration,
    ) -> RouteState {
        let put = match self.paths.route_spec(path, target) {
            Ok(spec) => {
                let done = tables.replace_dynamic_route(prefix, spec, self.paths.path_protocol(path), now);
                done.map_err(|error| (RejectReason::from(&error), error.to_string()))
            }
            Err(reason) => Err((reason, reason.text().to_string())),
        };
        match put {
            Ok(Standing::Forwards) => RouteState::Installed,
            Ok(Standing::Shadowed) => RouteState::Shadowed,
            Err((reason, why)) => {
                uninstall_route(prefix, tables, now);
                self.refusals.insert(reason, format!("{prefix}: {why}"));
                RouteState::Refused(reason)
            }
        }
    }

    fn find_entry(&self, prefix: AnyPrefix) -> Option<RibEntry> {
        match prefix {
            AnyPrefix::V4(prefix) => self.ipv4.get(&prefix).copied(),
            AnyPrefix::V6(prefix) => self.ipv6.get(&prefix).copied(),
        }
    }

    /// Sets an entry and counts it; returns the old one.
    fn set_entry(&mut self, prefix: AnyPrefix, entry: RibEntry) -> Option<RibEntry> {
        let old = match prefix {
            AnyPrefix::V4(prefix) => self.ipv4.insert(prefix, entry),
            AnyPrefix::V6(prefix) => self.ipv6.insert(prefix, entry),
        };
        if let Some(old) = old {
            *self.counts.count_mut(old.state) -= 1;
            self.counts.stale -= usize::from(old.session != self.session);
        }
        *self.counts.count_mut(entry.state) += 1;
        self.counts.stale += usize::from(entry.session != self.session);
        old
    }

    fn prefixes_where(&self, is_wanted: impl Fn(&RibEntry) -> bool) -> Vec<AnyPrefix> {
        let ipv4 = self.ipv4.iter().filter(|(_, entry)| is_wanted(entry));
        let ipv6 = self.ipv6.iter().filter(|(_, entry)| is_wanted(entry));
        let ipv4 = ipv4.map(|(prefix, _)| AnyPrefix::V4(*prefix));
        ipv4.chain(ipv6.map(|(prefix, _)| AnyPrefix::V6(*prefix))).collect()
    }
}

/// Removes a route from a table, if it is there.
fn uninstall_route(prefix: AnyPrefix, tables: &mut Tables, now: Duration) {
    match tables.delete_dynamic_route(prefix, now) {
        Ok(()) | Err(RouterError::NotInTable(_)) => {}
        // The table has no room for a preferred route of the router: it forwards as before.
        Err(_) => {}
    }
}
