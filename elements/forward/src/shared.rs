//! State that the elements of a router share: its tables under a lock that no packet takes,
//! and readers for packets.
use crate::events::Events;
use crate::order::ReorderGuard;
use artery_engine::{ArgError, Args, Resources};
use artery_l3::PortId;
use artery_l3::router::{Readers, Tables};
use artery_lpm::load::AnyPrefix;
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The link address of a packet's next hop, as LookupNextHop writes and LinkHeader reads it:
/// six bytes of annotation.
pub const LINK_ADDRESS: usize = 40;

/// The part of a router that its elements share.
pub struct SharedRouter {
    name: String,
    ports: usize,
    tables: Mutex<Tables>,
    /// How often the tables were locked for a possible change.
    changes: AtomicU64,
    readers: Readers,
    events: Mutex<Events>,
    reorder_guard: ReorderGuard,
    /// Static routes that handlers set, as text: a router that replaces this one restores them.
    static_overrides: Mutex<HashMap<AnyPrefix, String>>,
    /// The same of neighbors.
    static_neighbors: Mutex<HashMap<(PortId, IpAddr), String>>,
}

/// The tables, locked for a change.
pub struct TablesGuard<'a> {
    tables: MutexGuard<'a, Tables>,
    changes: &'a AtomicU64,
}

impl Deref for TablesGuard<'_> {
    type Target = Tables;
    fn deref(&self) -> &Tables {
        &self.tables
    }
}
impl DerefMut for TablesGuard<'_> {
    fn deref_mut(&mut self) -> &mut Tables {
        &mut self.tables
    }
}
impl Drop for TablesGuard<'_> {
    fn drop(&mut self) {
        self.changes.fetch_add(1, Release);
    }
}

impl SharedRouter {
    /// The shared state of an element with this name and these tables, on so many workers.
    pub fn new(name: &str, tables: Tables, workers: usize) -> SharedRouter {
        let (readers, views) = (tables.readers(), tables.ports());
        let (ports, events) = (views.len(), Mutex::new(Events::new(views)));
        let (tables, order) = (Mutex::new(tables), ReorderGuard::new(workers));
        let changes = AtomicU64::new(0);
        SharedRouter {
            name: name.to_string(),
            ports,
            tables,
            changes,
            readers,
            events,
            reorder_guard: order,
            static_overrides: Mutex::default(),
            static_neighbors: Mutex::default(),
        }
    }
    pub fn name(&self) -> &str {
        &self.name
    }
    pub fn port_count(&self) -> usize {
        self.ports
    }
    /// Readers of the tables, by which packets are classified; each worker has its own clone.
    pub fn readers(&self) -> &Readers {
        &self.readers
    }
    /// Keeps packets on the fast path from overtaking pending ones.
    pub fn reorder_guard(&self) -> &ReorderGuard {
        &self.reorder_guard
    }
    /// The recent events. Lock order: the tables first, then this.
    pub fn lock_events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Static routes that handlers set, as text. Lock order: the tables first, then this.
    pub fn routes_by_hand(&self) -> MutexGuard<'_, HashMap<AnyPrefix, String>> {
        self.static_overrides.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Static neighbors that handlers set, as text. Lock order: the tables first, then this.
    pub fn neighbors_by_hand(&self) -> MutexGuard<'_, HashMap<(PortId, IpAddr), String>> {
        self.static_neighbors.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Locks the tables for a change.
    pub fn lock_tables(&self) -> TablesGuard<'_> {
        // Tables are whole between any two of their statements that can panic.
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        TablesGuard { tables, changes: &self.changes }
    }
    /// Changes whenever the tables may have changed. A decision made after reading it holds until it changes.
    #[inline]
    pub fn change_count(&self) -> u64 {
        self.changes.load(Acquire)
    }
}

/// A router's tables, for threads outside the elements, which may lock them without delaying packets.
pub struct RouterTables(Arc<SharedRouter>);

impl RouterTables {
    /// The tables of the IPRouter of this name, if there is one.
    pub fn of(resources: &Resources, name: &str) -> Option<RouterTables> {
        resources.get::<NamedRouters>().get(name).map(RouterTables)
    }
    /// Locks the tables for a change.
    pub fn lock(&self) -> TablesGuard<'_> {
        self.0.lock_tables()
    }
}

/// Routers by the names of their elements.
#[derive(Default)]
pub struct NamedRouters(Mutex<HashMap<String, Weak<SharedRouter>>>);

impl NamedRouters {
    /// Registers a router by its name.
    pub fn insert(&self, router: &Arc<SharedRouter>) {
        let mut routers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        routers.retain(|_, router| router.strong_count() > 0);
        routers.insert(router.name.clone(), Arc::downgrade(router));
    }
    pub fn get(&self, name: &str) -> Option<Arc<SharedRouter>> {
        let routers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        routers.get(name).and_then(Weak::upgrade)
    }
}

/// The router that the argument ROUTER names.
pub fn find_router(args: &Args<'_>) -> Result<Arc<SharedRouter>, ArgError> {
    let name: String = args.read("ROUTER")?;
    let found =
        args.find_element(&name).and_then(|element| args.elements().find(|(number, _)| *number == element));
    let fault = match found {
        Some(_) => "names an element that is not an IPRouter, or could not be made",
        None => "does not name an element",
    };
    found.and_then(|(_, name)| args.resource::<NamedRouters>().get(name)).ok_or_else(|| ArgError::Invalid {
        arg: "ROUTER",
        value: name,
        fault: fault.into(),
        wants: "the name of an IPRouter".into(),
    })
}
