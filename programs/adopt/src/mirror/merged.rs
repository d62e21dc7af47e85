//! Merges the tables of a family into one: for each prefix, the result of the kernel's lookup table by table.
//!
//! The kernel looks for the longest prefix in the first table, then in the next, and so on; the sink gets one
//! table, in which the longest prefix of all decides. So a route is sent only where no earlier table has a
//! prefix that contains it, and a change in a table changes the prefixes below it in later tables.
use super::paths::Paths;
use super::plan::{LookupPlan, TableLevel};
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
    /// Of VRFs whose ports the sink forwards packets of, by their tables.
    vrf_plans: BTreeMap<u32, LookupPlan<A>>,
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
            vrf_plans: BTreeMap::new(),
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
        let is_asked = |id: u32| self.plans().any(|(_, plan)| plan.has_table(id));
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
        self.plans().for_each(|fib| self.propagate_in(fib, id, prefix, paths, sink));
    }

    /// The plan for ports that belong to no VRF, and that of each VRF.
    fn plans(&self) -> impl Iterator<Item = (Option<u32>, &LookupPlan<A>)> {
        let of_vrfs = self.vrf_plans.iter().map(|(table, plan)| (Some(*table), plan));
        std::iter::once((None, &self.plan)).chain(of_vrfs)
    }

    fn propagate_in(
        &self,
        fib: (Option<u32>, &LookupPlan<A>),
        id: u32,
        prefix: Prefix<A>,
        paths: &Paths,
        sink: &mut dyn Sink,
    ) {
        let is_it = |level: &TableLevel| level.table == id;
        // What has changed may be that the table ends the search, so that what it hid is looked at.
        let levels = self.reached_levels(fib, Some(id), paths);
        let Some(first) = levels.iter().position(is_it) else { return };
        self.notify_route(fib, prefix, paths, sink);
        if prefix.len() == A::BITS {
            return;
        }
        let last = levels.iter().rposition(is_it).unwrap_or(first);
        for (index, level) in levels.iter().enumerate() {
            let Some(table) = self.tables.get(&level.table) else { continue };
            if index > first && level.table != id {
                table.longer_prefixes(prefix).for_each(|below| self.notify_route(fib, below, paths, sink));
            } else if index < last {
                table.throws_below(prefix).for_each(|below| self.notify_route(fib, below, paths, sink));
                // A prefix that the rule passes over is like one that throws.
                let short = table.longer_prefixes(prefix).filter(|below| below.len() < level.shortest);
                if level.shortest > 0 {
                    short.for_each(|below| self.notify_route(fib, below, paths, sink));
                }
            }
        }
    }

    /// The levels of a VRF's plan up to the first that is asked last, since it has a route for all
    /// destinations and none that throws: so `main` is not copied for each VRF. That of one table can be left
    /// out of account.
    fn reached_levels<'a>(
        &self,
        (vrf, plan): (Option<u32>, &'a LookupPlan<A>),
        except: Option<u32>,
        paths: &Paths,
    ) -> &'a [TableLevel] {
        let ends = |level: &TableLevel| {
            let Some(table) = self.tables.get(&level.table) else { return false };
            let may_end = Some(level.table) != except && level.shortest == 0 && !table.has_throws();
            let is_throw = |choice| matches!(choice, RouteChoice::Throw);
            may_end && table.choose_at(Prefix::ALL, paths).is_some_and(|choice| !is_throw(choice))
        };
        if vrf.is_none() {
            return &plan.levels;
        }
        let reached = plan.levels.iter().position(ends).map_or(plan.levels.len(), |last| last + 1);
        &plan.levels[..reached]
    }

    /// Sends the sink the next hops for packets to a prefix, and to no longer one.
    fn notify_route(
        &self,
        (vrf, plan): (Option<u32>, &LookupPlan<A>),
        prefix: Prefix<A>,
        paths: &Paths,
        sink: &mut dyn Sink,
    ) {
        A::notify(sink, vrf, prefix, self.resolve_prefix(plan, prefix, paths));
    }

    /// The next hops for packets to a prefix and to no longer one; `None` where those of a shorter prefix
    /// are right for them.
    fn resolve_prefix(&self, plan: &LookupPlan<A>, prefix: Prefix<A>, paths: &Paths) -> Option<NextHopSetId> {
        if let Some(kept) = plan.excluded.iter().find(|kept| kept.covers(prefix)) {
            return (*kept == prefix).then_some(NextHopSetId::KERNEL);
        }
        let mut is_own = false;
        for level in &plan.levels {
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
        self.notify_all((None, &self.plan), &old, paths, sink);
        sink.end_load();
    }

    /// Asks the tables in this order from now on for packets of the VRF that has a table.
    pub(super) fn apply_vrf_plan(
        &mut self,
        table: u32,
        plan: LookupPlan<A>,
        paths: &Paths,
        sink: &mut dyn Sink,
    ) {
        if self.vrf_plans.get(&table) == Some(&plan) {
            return;
        }
        let old = self.vrf_plans.insert(table, plan).unwrap_or_default();
        sink.begin_vrf(table);
        self.notify_all((Some(table), &self.vrf_plans[&table]), &old, paths, sink);
        sink.end_vrf(table);
    }

    /// Forgets the plans of VRFs for which `is_kept` is false.
    pub(super) fn retain_vrf_plans(&mut self, is_kept: impl Fn(u32) -> bool) {
        self.vrf_plans.retain(|table, _| is_kept(*table));
    }

    /// Sends all routes of a plan, and those of the plan that it takes the place of.
    fn notify_all(
        &self,
        fib: (Option<u32>, &LookupPlan<A>),
        old: &LookupPlan<A>,
        paths: &Paths,
        sink: &mut dyn Sink,
    ) {
        let (before, after) =
            (self.reached_levels((fib.0, old), None, paths), self.reached_levels(fib, None, paths));
        let tables: HashSet<u32> = before.iter().chain(after).map(|level| level.table).collect();
        for table in tables.iter().filter_map(|id| self.tables.get(id)) {
            table.prefixes().for_each(|prefix| self.notify_route(fib, prefix, paths, sink));
        }
        let excluded = old.excluded.iter().chain(&fib.1.excluded);
        excluded.for_each(|prefix| self.notify_route(fib, *prefix, paths, sink));
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
