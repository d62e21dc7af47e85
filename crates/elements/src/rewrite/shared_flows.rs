//! Flows that an ICMPRewriter looks at, too.
//!
//! A rewriter that none names has its flows to itself, and nothing locks. One that is named puts them behind a mutex,
//! which it takes once a batch. Both run on one worker unless somebody placed them apart, so that nobody waits.
use super::apply::Ends;
use super::flows::Flows;
use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// A rewriter's flows.
pub(super) enum Table {
    Own(Flows),
    Shared(Arc<Mutex<Flows>>),
}

/// Flows to look at and change, for as long as this is held.
pub(super) enum Guard<'a> {
    Own(&'a mut Flows),
    Shared(MutexGuard<'a, Flows>),
}

impl Table {
    pub(super) fn lock(&mut self) -> Guard<'_> {
        match self {
            Table::Own(flows) => Guard::Own(flows),
            Table::Shared(flows) => Guard::Shared(locked(flows)),
        }
    }
}

/// A thread that panicked leaves a table that is whole between two packets.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Deref for Guard<'_> {
    type Target = Flows;
    fn deref(&self) -> &Flows {
        match self {
            Guard::Own(flows) => flows,
            Guard::Shared(flows) => flows,
        }
    }
}
impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Flows {
        match self {
            Guard::Own(flows) => flows,
            Guard::Shared(flows) => flows,
        }
    }
}

/// What an ICMPRewriter knows of a rewriter.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) ends: Ends,
    /// How many outputs the rewriter has.
    pub(super) outputs: usize,
    pub(super) flows: Arc<Mutex<Flows>>,
}

impl Seen {
    pub(super) fn lock(&self) -> MutexGuard<'_, Flows> {
        locked(&self.flows)
    }
}

/// The router's rewriters that are named by an ICMPRewriter.
#[derive(Default)]
pub(super) struct SharedFlows(Mutex<Names>);

#[derive(Default)]
struct Names {
    wanted: HashSet<String>,
    known: HashMap<String, Known>,
}

/// As [`Seen`], of a rewriter that may be gone.
struct Known {
    ends: Ends,
    outputs: usize,
    flows: Weak<Mutex<Flows>>,
}

impl SharedFlows {
    /// Says that an ICMPRewriter names this rewriter, before that is made. What is known of an earlier one by this
    /// name, whose graph may still run, is forgotten.
    pub(super) fn want(&self, name: &str) {
        let mut names = locked(&self.0);
        names.known.remove(name);
        names.wanted.insert(name.to_string());
    }

    /// The table of a new rewriter, shared if somebody wants it.
    pub(super) fn table(&self, name: &str, ends: Ends, outputs: usize, flows: Flows) -> Table {
        let mut names = locked(&self.0);
        if !names.wanted.contains(name) {
            return Table::Own(flows);
        }
        let flows = Arc::new(Mutex::new(flows));
        let known = Known { ends, outputs, flows: Arc::downgrade(&flows) };
        names.known.insert(name.to_string(), known);
        Table::Shared(flows)
    }

    /// The rewriter of this name; none if the element is no rewriter.
    pub(super) fn find(&self, name: &str) -> Option<Seen> {
        let names = locked(&self.0);
        let Known { ends, outputs, flows } = names.known.get(name)?;
        Some(Seen { ends: *ends, outputs: *outputs, flows: flows.upgrade()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flows() -> Flows {
        Flows::new(1).unwrap()
    }

    #[test]
    fn only_wanted_tables_are_shared_and_only_while_they_live() {
        let shared = SharedFlows::default();
        assert!(matches!(shared.table("a", Ends::Source, 1, flows()), Table::Own(_)));
        assert!(shared.find("a").is_none());
        shared.want("a");
        let table = shared.table("a", Ends::Source, 2, flows());
        let seen = shared.find("a").unwrap();
        assert_eq!((seen.ends, seen.outputs), (Ends::Source, 2));
        drop((table, seen));
        assert!(shared.find("a").is_none());
    }

    #[test]
    fn a_new_want_forgets_the_table_of_an_earlier_graph() {
        let shared = SharedFlows::default();
        shared.want("a");
        let _old = shared.table("a", Ends::Source, 2, flows());
        shared.want("a");
        assert!(shared.find("a").is_none());
    }
}
