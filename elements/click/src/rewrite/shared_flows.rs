//! Flows that an ICMPRewriter reads, too.
//!
//! If no ICMPRewriter names a rewriter, its flows are its own and need no lock. Otherwise they are behind a
//! mutex, which the rewriter takes once a batch. Both run on one worker unless the configuration places them
//! apart, so neither waits.
use super::apply::RewriteKind;
use super::flows::Flows;
use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

pub(super) enum FlowStore {
    Own(Flows),
    Shared(Arc<Mutex<Flows>>),
}

/// Access to the flows, for as long as this is held.
pub(super) enum FlowGuard<'a> {
    Own(&'a mut Flows),
    Shared(MutexGuard<'a, Flows>),
}

impl FlowStore {
    pub(super) fn lock_flows(&mut self) -> FlowGuard<'_> {
        match self {
            FlowStore::Own(flows) => FlowGuard::Own(flows),
            FlowStore::Shared(flows) => FlowGuard::Shared(lock_mutex(flows)),
        }
    }
}

/// A thread that panicked leaves a table that is whole between two packets.
fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Deref for FlowGuard<'_> {
    type Target = Flows;
    fn deref(&self) -> &Flows {
        match self {
            FlowGuard::Own(flows) => flows,
            FlowGuard::Shared(flows) => flows,
        }
    }
}
impl DerefMut for FlowGuard<'_> {
    fn deref_mut(&mut self) -> &mut Flows {
        match self {
            FlowGuard::Own(flows) => flows,
            FlowGuard::Shared(flows) => flows,
        }
    }
}

/// The part of a rewriter that an ICMPRewriter uses.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) ends: RewriteKind,
    /// How many outputs the rewriter has.
    pub(super) outputs: usize,
    pub(super) flows: Arc<Mutex<Flows>>,
}

impl Seen {
    pub(super) fn lock_flows(&self) -> MutexGuard<'_, Flows> {
        lock_mutex(&self.flows)
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

/// As [`Seen`], for a rewriter that may be gone.
struct Known {
    ends: RewriteKind,
    outputs: usize,
    flows: Weak<Mutex<Flows>>,
}

impl SharedFlows {
    /// Records that an ICMPRewriter names this rewriter, before that is created. An earlier one by this name,
    /// whose graph may still run, is removed.
    pub(super) fn request_sharing(&self, name: &str) {
        let mut names = lock_mutex(&self.0);
        names.known.remove(name);
        names.wanted.insert(name.to_string());
    }

    /// The flow table of a new rewriter, shared if another element names it.
    pub(super) fn new_table(&self, name: &str, ends: RewriteKind, outputs: usize, flows: Flows) -> FlowStore {
        let mut names = lock_mutex(&self.0);
        if !names.wanted.contains(name) {
            return FlowStore::Own(flows);
        }
        let flows = Arc::new(Mutex::new(flows));
        let known = Known { ends, outputs, flows: Arc::downgrade(&flows) };
        names.known.insert(name.to_string(), known);
        FlowStore::Shared(flows)
    }

    /// The rewriter of this name; None if the element is not a rewriter.
    pub(super) fn find_shared(&self, name: &str) -> Option<Seen> {
        let names = lock_mutex(&self.0);
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
        assert!(matches!(shared.new_table("a", RewriteKind::Source, 1, flows()), FlowStore::Own(_)));
        assert!(shared.find_shared("a").is_none());
        shared.request_sharing("a");
        let table = shared.new_table("a", RewriteKind::Source, 2, flows());
        let seen = shared.find_shared("a").unwrap();
        assert_eq!((seen.ends, seen.outputs), (RewriteKind::Source, 2));
        drop((table, seen));
        assert!(shared.find_shared("a").is_none());
    }

    #[test]
    fn a_new_want_forgets_the_table_of_an_earlier_graph() {
        let shared = SharedFlows::default();
        shared.request_sharing("a");
        let _old = shared.new_table("a", RewriteKind::Source, 2, flows());
        shared.request_sharing("a");
        assert!(shared.find_shared("a").is_none());
    }
}
