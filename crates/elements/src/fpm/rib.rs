//! The routes that came by FPM, and what became of each in the router's tables. They stay when the connection
//! ends, and when another configuration takes the router's place.
use super::next_hops::NextHops;
use super::paths::{PathId, PathKey, Paths};
use super::reason::Reason;
use super::target::Target;
use crate::router::shared::SharedRouter;
use artery_table::Prefix;
use artery_table::load::AnyPrefix;
use artery_table::router::{Protocol, RouterError, Standing, Tables};
use artery_wire::netlink::{ObjectKind, Path};
use std::collections::HashMap;
use std::ops::DerefMut;
use std::sync::Arc;
use std::time::Duration;

/// What became of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It is in the table and forwards.
    Installed,
    /// It is in the table, behind one of the router's own for the prefix.
    Shadowed,
    /// It is not in the table.
    Refused(Reason),
}

#[derive(Clone, Copy)]
struct Entry {
    path: PathId,
    /// The last connection that sent it.
    session: u32,
    state: State,
}

/// How many routes are in each state.
#[derive(Clone, Default)]
pub(crate) struct Counts {
    pub(crate) installed: usize,
    pub(crate) shadowed: usize,
    /// By number of a reason.
    pub(crate) refused: [usize; Reason::ALL.len()],
    /// Of all of them, those that the present connection has not sent.
    pub(crate) stale: usize,
}

impl Counts {
    fn of(&mut self, state: State) -> &mut usize {
        match state {
            State::Installed => &mut self.installed,
            State::Shadowed => &mut self.shadowed,
            State::Refused(reason) => &mut self.refused[reason as usize],
        }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Rib {
    ipv4: HashMap<Prefix<u32>, Entry>,
    ipv6: HashMap<Prefix<u128>, Entry>,
    paths: Paths,
    pub(crate) next_hops: NextHops,
    targets: Vec<Target>,
    /// The number of the present connection; of the last one, where there is none.
    session: u32,
    counts: Counts,
    /// By number of a reason: the last route that was refused for it, and what the table said.
    refusals: HashMap<Reason, String>,
}

/// The tables of all targets, in their order.
pub(crate) type AllTables<'a, T> = &'a mut [T];

impl Rib {
    /// The routers that are still there. Those that are gone are forgotten.
    pub(crate) fn routers(&mut self) -> Vec<Arc<SharedRouter>> {
        let routers: Vec<_> = self.targets.iter().map(Target::router).collect();
        for gone in (0..routers.len()).rev().filter(|at| routers[*at].is_none()) {
            self.targets.remove(gone);
            self.paths.remove_target(gone);
        }
        routers.into_iter().flatten().collect()
    }

    /// A router gets all routes there are, and all that come. It is to take the place of the others.
    pub(crate) fn add_target(&mut self, target: Target, now: Duration) {
        // Those before it are asked for once more, as they may be gone.
        drop(self.routers());
        let Some(router) = target.router() else { return };
        self.paths.add_target(&self.next_hops, &target, self.session);
        self.targets.push(target);
        let at = self.targets.len() - 1;
        let mut tables = router.tables();
        let prefixes: Vec<AnyPrefix> = self.prefixes(|_| true);
        for prefix in prefixes {
            let Some(entry) = self.entry(prefix) else { continue };
            let state = self.install(prefix, entry.path, at, &mut tables, now);
            self.set(prefix, Entry { state, ..entry });
        }
    }

    /// A connection begins: what was sent before is stale until it is sent again.
    pub(crate) fn begin_session(&mut self) {
        self.session += 1;
        self.next_hops.clear();
        self.counts.stale = self.len();
    }

    /// Puts a route in the place of what there is for its prefix.
    pub(crate) fn replace_route<T: DerefMut<Target = Tables>>(
        &mut self,
        prefix: AnyPrefix,
        (protocol, path): (Protocol, Result<Path, Reason>),
        is_local: bool,
        tables: AllTables<'_, T>,
        now: Duration,
    ) -> State {
        let object = path.as_ref().map_or(0, |path| path.object);
        let session = if object == 0 { 0 } else { self.session };
        let key = PathKey { protocol, path, is_local, session };
        let path = self.paths.acquire(key, &self.next_hops, &self.targets);
        let state = self.install_everywhere(prefix, path, tables, now);
        let old = self.set(prefix, Entry { path, session: self.session, state });
        if let Some(old) = old {
            self.paths.release(old.path);
        }
        state
    }

    /// Removes a route; says whether there was one.
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
        *self.counts.of(old.state) -= 1;
        self.counts.stale -= usize::from(old.session != self.session);
        tables.iter_mut().for_each(|tables| uninstall(prefix, tables, now));
        self.paths.release(old.path);
        true
    }

    /// A next-hop object is this from now on, or is gone; routes that lead there follow.
    pub(crate) fn change_next_hop<T: DerefMut<Target = Tables>>(
        &mut self,
        id: u32,
        kind: Option<ObjectKind>,
        tables: AllTables<'_, T>,
        now: Duration,
    ) {
        let has_changed = match kind {
            Some(kind) => self.next_hops.replace(id, kind),
            None => self.next_hops.remove(id),
        };
        if !has_changed {
            return;
        }
        let changed = self.paths.changed(id, self.session, &self.next_hops, &self.targets);
        if changed.is_empty() {
            return;
        }
        for prefix in self.prefixes(|entry| changed.contains(&entry.path)) {
            let Some(entry) = self.entry(prefix) else { continue };
            let state = self.install_everywhere(prefix, entry.path, tables, now);
            self.set(prefix, Entry { state, ..entry });
        }
    }

    /// The prefixes of stale routes.
    pub(crate) fn stale(&self) -> Vec<AnyPrefix> {
        self.prefixes(|entry| entry.session != self.session)
    }

    /// How many routes there are.
    pub(super) fn len(&self) -> usize {
        self.ipv4.len() + self.ipv6.len()
    }

    /// How many there are of each family.
    pub(crate) fn families(&self) -> [usize; 2] {
        [self.ipv4.len(), self.ipv6.len()]
    }

    /// How many different paths they have.
    pub(super) fn paths(&self) -> usize {
        self.paths.len()
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The last route that was refused for a reason, and why.
    pub(crate) fn refusal(&self, reason: Reason) -> Option<&str> {
        self.refusals.get(&reason).map(String::as_str)
    }

    fn install_everywhere<T: DerefMut<Target = Tables>>(
        &mut self,
        prefix: AnyPrefix,
        path: PathId,
        tables: AllTables<'_, T>,
        now: Duration,
    ) -> State {
        // The last target is the one that will stay.
        let mut state = State::Refused(Reason::Other);
        for (at, tables) in tables.iter_mut().enumerate() {
            state = self.install(prefix, path, at, tables, now);
        }
        state
    }

    /// Has a route forward in one target. What can't is taken out of its table.
    fn install(
        &mut self,
        prefix: AnyPrefix,
        path: PathId,
        target: usize,
        tables: &mut Tables,
        now: Duration,
    ) -> State {
        let put = match self.paths.spec(path, target) {
            Ok(spec) => {
                let done = tables.replace_dynamic_route(prefix, spec, self.paths.protocol(path), now);
                done.map_err(|error| (Reason::from(&error), error.to_string()))
            }
            Err(reason) => Err((reason, reason.text().to_string())),
        };
        match put {
            Ok(Standing::Forwards) => State::Installed,
            Ok(Standing::Shadowed) => State::Shadowed,
            Err((reason, why)) => {
                uninstall(prefix, tables, now);
                self.refusals.insert(reason, format!("{prefix}: {why}"));
                State::Refused(reason)
            }
        }
    }

    fn entry(&self, prefix: AnyPrefix) -> Option<Entry> {
        match prefix {
            AnyPrefix::V4(prefix) => self.ipv4.get(&prefix).copied(),
            AnyPrefix::V6(prefix) => self.ipv6.get(&prefix).copied(),
        }
    }

    /// Writes an entry and counts; gives the one that was there.
    fn set(&mut self, prefix: AnyPrefix, entry: Entry) -> Option<Entry> {
        let old = match prefix {
            AnyPrefix::V4(prefix) => self.ipv4.insert(prefix, entry),
            AnyPrefix::V6(prefix) => self.ipv6.insert(prefix, entry),
        };
        if let Some(old) = old {
            *self.counts.of(old.state) -= 1;
            self.counts.stale -= usize::from(old.session != self.session);
        }
        *self.counts.of(entry.state) += 1;
        self.counts.stale += usize::from(entry.session != self.session);
        old
    }

    fn prefixes(&self, is_wanted: impl Fn(&Entry) -> bool) -> Vec<AnyPrefix> {
        let ipv4 = self.ipv4.iter().filter(|(_, entry)| is_wanted(entry));
        let ipv6 = self.ipv6.iter().filter(|(_, entry)| is_wanted(entry));
        let ipv4 = ipv4.map(|(prefix, _)| AnyPrefix::V4(*prefix));
        ipv4.chain(ipv6.map(|(prefix, _)| AnyPrefix::V6(*prefix))).collect()
    }
}

/// Takes a route out of a table, if it is there.
fn uninstall(prefix: AnyPrefix, tables: &mut Tables, now: Duration) {
    match tables.delete_dynamic_route(prefix, now) {
        Ok(()) | Err(RouterError::NotInTable(_)) => {}
        // A route of the router's own that comes first has no room in the table: it forwards as before.
        Err(_) => {}
    }
}
