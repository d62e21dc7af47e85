//! What the threads of host ports share with elements.
use super::log_lines::LogLines;
use super::status::{self, InterfaceStatus, RouteStatus};
use crate::fpm::rib::Rib;
use crate::router::port_names::PortNames;
use crate::router::shared::SharedRouter;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What is kept of a router.
#[derive(Clone)]
pub(super) struct Followed {
    /// Its ports and their interfaces.
    pub(super) names: PortNames,
    /// Whether it forwards by the host's routes.
    pub(super) has_routes: bool,
}

/// See the module.
pub(super) struct Shared {
    followed: Mutex<Option<(Weak<SharedRouter>, Followed)>>,
    rib: Mutex<Rib>,
    pub(super) lines: LogLines,
    interfaces: Mutex<Vec<InterfaceStatus>>,
    routes: Mutex<RouteStatus>,
    is_over: AtomicBool,
}

impl Shared {
    pub(super) fn new() -> io::Result<Shared> {
        let mut rib = Rib::default();
        rib.begin_session();
        Ok(Shared {
            followed: Mutex::default(),
            rib: Mutex::new(rib),
            lines: LogLines::new()?,
            interfaces: Mutex::default(),
            routes: Mutex::default(),
            is_over: AtomicBool::new(false),
        })
    }

    pub(super) fn set_followed(&self, router: &Arc<SharedRouter>, followed: &Followed) {
        *locked(&self.followed) = Some((Arc::downgrade(router), followed.clone()));
    }

    /// What there is, as JSON.
    pub(super) fn status_json(&self) -> String {
        status::json(&locked(&self.interfaces), &locked(&self.routes))
    }

    pub(super) fn end_threads(&self) {
        self.is_over.store(true, Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// The router that is followed, if it is still there, and what is kept of it.
    pub(super) fn followed(&self) -> Option<(Arc<SharedRouter>, Followed)> {
        let followed = locked(&self.followed);
        let (router, followed) = followed.as_ref()?;
        Some((router.upgrade()?, followed.clone()))
    }

    /// The host's routes. Who wants tables, too, takes them after this.
    pub(super) fn rib(&self) -> MutexGuard<'_, Rib> {
        locked(&self.rib)
    }

    pub(super) fn publish_interfaces(&self, status: Vec<InterfaceStatus>) {
        *locked(&self.interfaces) = status;
    }

    pub(super) fn publish_routes(&self, status: RouteStatus) {
        *locked(&self.routes) = status;
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
