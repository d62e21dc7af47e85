//! Merges the tables of a family into one: for each prefix, the result of the kernel's lookup table by table.
//!
//! The kernel looks for the longest prefix in the first table, then in the next, and so on; the sink gets one
//! table, in which the longest prefix of all decides. So a route is sent only where no earlier table has a
//! prefix that contains it, and a change in a table changes the prefixes below it in later tables.
use super::paths::Paths;
use super::plan::LookupPlan;
use super::sink::FamilySink;
use super::table::{Candidate, RouteChoice, RouteKey, Table};
use super::{NextHopSetId, Sink};
use artery_lpm::Prefix;
use std::collections::{BTreeMap, HashSet};

/// The tables of a family, and in which order they are asked.
#[derive(Debug)]
pub(super) struct FamilyTables<A: FamilySink> {
    tables: BTreeMap<u32, Table<A>>,
    plan: LookupPlan<A>,
    /// The number of the dump that runs or was the last.
    stamp: u8,
    /// The keys that changed while a dump runs, which knows less of them.
    touched: Option<HashSet<(u32, RouteKey<A>)>>,
    sweep: Option<Sweep<A>>,
}

/// How far the sweep after a dump has come.
#[derive(Debug)]
struct Sweep<A: FamilySink> {
    /// The tables that are left.
    tables: Vec<u32>,
    /// The last key of that table that was swept.
    after: Option<RouteKey<A>>,
    /// How many dumps may have missed a prefix that is there.
    patience: u8,
    is_doubtful: bool,
}

/// Prefixes that are swept in a row, which takes less than a millisecond.
const AT_ONCE: usize = if cfg!(test) { 3 } else { 4096 };

impl<A: FamilySink> Default for FamilyTables<A> {
    fn default() -> FamilyTables<A> {
        FamilyTables {
            tables: BTreeMap::new(),
            plan: LookupPlan::default(),
            stamp: 0,
            touched: None,
            sweep: None,
        }
    }
}

impl<A: FamilySink> FamilyTables<A> {
    /// How many prefixes have routes in a table.
    pub(super) fn len_of(&self, table: u32) -> usize {
        self.tables.get(&table).map_or(0, Table::len)
    }

    /// How many prefixes have routes, table by table.
    pub(super) fn len(&self) -> usize {
        self.tables.values().map(Table::len).sum()
    }

    /// The tables that are asked, each once.
    pub(super) fn asked_tables(&self) -> impl Iterator<Item = (u32, &Table<A>)> {
        let is_asked = |id: u32| self.plan.levels.iter().any(|level| level.table == id);
        self.tables.iter().filter(move |(id, _)| is_asked(**id)).map(|(id, table)| (*id, table))
    }

    /// The routes of a key in a table.
    pub(super) fn candidates(&self, table: u32, key: RouteKey<A>) -> Vec<Candidate> {
        self.tables.get(&table).map_or(Vec::new(), |table| table.candidates(key))
    }

    /// Gives a key of a table these routes because the kernel said that they changed.
    pub(super) fn change_routes(
        &mut self,
        table: u32,
        key: RouteKey<A>,
        candidates: &[Candidate],
        paths: &Paths,
        sink: &mut dyn Sink,
    ) {
        if let Some(touched) = &mut self.touched {
            touched.insert((table, key));
        }
        self.set_routes(table, key, candidates, paths, sink);
    }

    /// Gives a key of a table these routes, which a dump has found and no others. Returns those that it had
    /// until now if that is news.
    pub(super) fn set_routes(
        &mut self,
        id: u32,
        key: RouteKey<A>,
        candidates: &[Candidate],
        paths: &Paths,
        sink: &mut dyn Sink,
    ) -> Option<Vec<Candidate>> {
        let change = self.tables.entry(id).or_default().set_routes(key, candidates, self.stamp, paths)?;
        if change.is_felt {
            self.propagate(id, key.prefix, paths, sink);
        }
        Some(change.before)
    }

    /// Sends again all routes that depend on a prefix of a table.
    pub(super) fn propagate(&self, id: u32, prefix: Prefix<A>, paths: &Paths, sink: &mut dyn Sink) {
        let is_it = |level: &super::plan::TableLevel| level.table == id;
        let Some(first) = self.plan.levels.iter().position(is_it) else { return };
        self.notify_route(prefix, paths, sink);
        if prefix.len() == A::BITS {
            return;
        }
        let last = self.plan.levels.iter().rposition(is_it).unwrap_or(first);
        for (index, level) in self.plan.levels.iter().enumerate() {
            let Some(table) = self.tables.get(&level.table) else { continue };
            if index > first && level.table != id {
                table.longer_prefixes(prefix).for_each(|below| self.notify_route(below, paths, sink));
            } else if index < last {
                table.throws_below(prefix).for_each(|below| self.notify_route(below, paths, sink));
                // A prefix that the rule passes over is like one that throws.
                let short = table.longer_prefixes(prefix).filter(|below| below.len() < level.shortest);
                if level.shortest > 0 {
                    short.for_each(|below| self.notify_route(below, paths, sink));
                }
            }
        }
    }

    /// Sends the sink the next hops for packets to a prefix, and to no longer one.
    fn notify_route(&self, prefix: Prefix<A>, paths: &Paths, sink: &mut dyn Sink) {
        A::notify(sink, prefix, self.resolve_prefix(prefix, paths));
    }

    /// The next hops for packets to a prefix and to no longer one; `None` where those of a shorter prefix
    /// are right for them.
    fn resolve_prefix(&self, prefix: Prefix<A>, paths: &Paths) -> Option<NextHopSetId> {
        if let Some(kept) = self.plan.excluded.iter().find(|kept| kept.covers(prefix)) {
            return (*kept == prefix).then_some(NextHopSetId::KERNEL);
        }
        let mut is_own = false;
        for level in &self.plan.levels {
            let Some(table) = self.tables.get(&level.table) else { continue };
            let Some((found, choice)) = table.lookup_longest(prefix, paths) else { continue };
            is_own |= found == prefix;
            if found.len() < level.shortest && can_be_suppressed(choice, paths) {
                continue;
            }
            let way = match choice {
                RouteChoice::Throw if level.is_kernels => NextHopSetId::KERNEL,
                RouteChoice::Throw => continue,
                RouteChoice::Path(path) if !level.is_kernels => paths.next_hop_set(path),
                RouteChoice::Path(_) | RouteChoice::Kernel => NextHopSetId::KERNEL,
            };
            return is_own.then_some(way);
        }
        is_own.then_some(NextHopSetId::KERNEL)
    }

    /// Asks the tables in another order from now on.
    pub(super) fn apply_plan(&mut self, plan: LookupPlan<A>, paths: &Paths, sink: &mut dyn Sink) {
        if plan == self.plan {
            return;
        }
        let old = std::mem::replace(&mut self.plan, plan);
        sink.begin_load();
        let levels = old.levels.iter().chain(&self.plan.levels);
        let tables: HashSet<u32> = levels.map(|level| level.table).collect();
        for table in tables.iter().filter_map(|id| self.tables.get(id)) {
            table.prefixes().for_each(|prefix| self.notify_route(prefix, paths, sink));
        }
        let kept: Vec<Prefix<A>> = old.excluded.iter().chain(&self.plan.excluded).copied().collect();
        kept.into_iter().for_each(|prefix| self.notify_route(prefix, paths, sink));
        sink.end_load();
    }

    /// Selects again among the routes of all prefixes that have a route by these paths.
    pub(super) fn choose_again(
        &self,
        changed: &HashSet<super::paths::PathId>,
        paths: &Paths,
        sink: &mut dyn Sink,
    ) {
        for (id, table) in &self.tables {
            for key in table.keys_by_path(|path| changed.contains(&path)) {
                self.propagate(*id, key.prefix, paths, sink);
            }
        }
    }

    /// The keys of all tables with a route by one of these paths.
    pub(super) fn keys_by_path(&self, paths: &HashSet<super::paths::PathId>) -> Vec<(u32, RouteKey<A>)> {
        let of = |(id, table): (&u32, &Table<A>)| {
            let id = *id;
            table.keys_by_path(|path| paths.contains(&path)).into_iter().map(move |key| (id, key))
        };
        self.tables.iter().flat_map(of).collect()
    }
}

/// Whether a rule can pass over what a table came to: not where the kernel refuses to forward.
fn can_be_suppressed(choice: RouteChoice, paths: &Paths) -> bool {
    match choice {
        RouteChoice::Path(path) => !paths.may_reject(path),
        RouteChoice::Throw => true,
        RouteChoice::Kernel => false,
    }
}

/// Marks and sweeps: what a dump finds, and what it doesn't.
impl<A: FamilySink> FamilyTables<A> {
    pub(super) fn begin_dump(&mut self) {
        self.stamp = self.stamp.wrapping_add(1);
        self.touched = Some(HashSet::new());
    }

    /// Whether a key has changed since the dump began, so that what it finds may be older.
    pub(super) fn is_touched(&self, table: u32, key: RouteKey<A>) -> bool {
        self.touched.as_ref().is_some_and(|touched| !touched.is_empty() && touched.contains(&(table, key)))
    }

    /// Sweeps some more keys when a dump is over, and returns those of them that it did not find; `None` when
    /// the sweep is complete. If something has changed meanwhile the kernel may have skipped one, so that it
    /// must be missing twice; then [`end_dump`](Self::end_dump) returns that there are such keys.
    pub(super) fn sweep_some(&mut self) -> Option<Vec<(u32, RouteKey<A>)>> {
        let stamp = self.stamp;
        let tables = &self.tables;
        let has_changed = self.touched.as_ref().is_some_and(|touched| !touched.is_empty());
        let sweep = self.sweep.get_or_insert_with(|| Sweep {
            tables: tables.keys().copied().collect(),
            after: None,
            patience: u8::from(has_changed),
            is_doubtful: false,
        });
        let id = *sweep.tables.last()?;
        let mut lost = Vec::new();
        let after = sweep.after.take();
        let rest = tables.get(&id).into_iter().flat_map(|table| table.stamps_after(after));
        for (number, (key, found)) in rest.enumerate() {
            if number == AT_ONCE {
                return Some(lost);
            }
            sweep.after = Some(key);
            // What has changed since the dump began has its stamp, too.
            let missed = stamp.wrapping_sub(found);
            if missed > sweep.patience {
                lost.push((id, key));
            }
            sweep.is_doubtful |= (1..=sweep.patience).contains(&missed);
        }
        sweep.after = None;
        sweep.tables.pop();
        Some(lost)
    }

    /// Ends a dump after its sweep: returns whether something that it did not find may be gone.
    pub(super) fn end_dump(&mut self) -> bool {
        self.touched = None;
        self.sweep.take().is_some_and(|sweep| sweep.is_doubtful)
    }
}
