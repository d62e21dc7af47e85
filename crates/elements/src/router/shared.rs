//! What the elements of a router share: its tables behind a lock that no packet takes, and readers for packets.
use super::events::Events;
use super::order::Order;
use artery_engine::{ArgError, Args, Resources};
use artery_table::load::AnyPrefix;
use artery_table::router::{Readers, Tables};
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The link address of a packet's next hop, as LookupNextHop writes and LinkHeader reads it: six bytes of annotation.
pub(super) const LINK_ADDRESS: usize = 40;

/// A router, as its elements know it.
pub(crate) struct SharedRouter {
    name: String,
    ports: usize,
    tables: Mutex<Tables>,
    /// How often the tables were held by somebody who may have changed them.
    changes: AtomicU64,
    readers: Readers,
    events: Mutex<Events>,
    order: Order,
    /// Static routes that handlers set, as they were written: a router that takes the place of this one has
    /// them, too.
    by_hand: Mutex<HashMap<AnyPrefix, String>>,
}

/// The tables, held by who may change them.
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
    /// The router of an element with this name and these tables, on so many workers.
    pub(crate) fn new(name: &str, tables: Tables, workers: usize) -> SharedRouter {
        let (readers, views) = (tables.readers(), tables.ports());
        let (ports, events) = (views.len(), Mutex::new(Events::new(views)));
        let (tables, order) = (Mutex::new(tables), Order::new(workers));
        let changes = AtomicU64::new(0);
        SharedRouter {
            name: name.to_string(),
            ports,
            tables,
            changes,
            readers,
            events,
            order,
            by_hand: Mutex::default(),
        }
    }
    /// The element's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
    /// Number of ports.
    pub(crate) fn ports(&self) -> usize {
        self.ports
    }
    /// What packets are judged by; a worker has a clone of its own.
    pub(crate) fn readers(&self) -> &Readers {
        &self.readers
    }
    /// Keeps the fast path from passing by packets that wait.
    pub(crate) fn order(&self) -> &Order {
        &self.order
    }
    /// What happened lately. Whoever wants the tables, too, takes them first.
    pub(crate) fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Static routes that handlers set, as they were written. Whoever wants the tables, too, takes them
    /// first.
    pub(super) fn routes_by_hand(&self) -> MutexGuard<'_, HashMap<AnyPrefix, String>> {
        self.by_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// For who changes something.
    pub(crate) fn tables(&self) -> TablesGuard<'_> {
        // Tables are whole between any two of their statements that can panic.
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        TablesGuard { tables, changes: &self.changes }
    }
    /// Another number when anything may have changed. What is decided by the tables after this was read holds until then.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }
}

/// A router's tables, for whoever changes them beside the elements: a thread of its own, for which no packet waits.
pub struct RouterTables(Arc<SharedRouter>);

impl RouterTables {
    /// The tables of the IPRouter of this name, if there is one.
    pub fn of(resources: &Resources, name: &str) -> Option<RouterTables> {
        resources.get::<NamedRouters>().get(name).map(RouterTables)
    }
    /// The tables. As long as they are held, nobody else changes them.
    pub fn lock(&self) -> TablesGuard<'_> {
        self.0.tables()
    }
}

/// Routers by the names of their elements.
#[derive(Default)]
pub(crate) struct NamedRouters(Mutex<HashMap<String, Weak<SharedRouter>>>);

impl NamedRouters {
    /// Makes a router known.
    pub(crate) fn put(&self, router: &Arc<SharedRouter>) {
        let mut routers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        routers.retain(|_, router| router.strong_count() > 0);
        routers.insert(router.name.clone(), Arc::downgrade(router));
    }
    pub(crate) fn get(&self, name: &str) -> Option<Arc<SharedRouter>> {
        let routers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        routers.get(name).and_then(Weak::upgrade)
    }
}

/// The router that the argument ROUTER names.
pub(crate) fn router(args: &Args<'_>) -> Result<Arc<SharedRouter>, ArgError> {
    let name: String = args.read("ROUTER")?;
    let found =
        args.element(&name).and_then(|element| args.elements().find(|(number, _)| *number == element));
    let fault = match found {
        Some(_) => "names an element that is no IPRouter, or could not be made",
        None => "does not name an element",
    };
    found.and_then(|(_, name)| args.resource::<NamedRouters>().get(name)).ok_or_else(|| ArgError::Invalid {
        arg: "ROUTER",
        value: name,
        fault: fault.into(),
        wants: "the name of an IPRouter".into(),
    })
}
