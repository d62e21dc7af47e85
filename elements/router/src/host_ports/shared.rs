//! State that the threads of host ports share with elements.
use super::status::{self, InterfaceStatus, RouteStatus};
use crate::fpm::rib::Rib;
use crate::log_lines::LogLines;
use crate::router::port_names::PortNames;
use artery_forward::shared::SharedRouter;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The part of a router that the threads follow.
#[derive(Clone)]
pub(super) struct FollowedRouter {
    /// Its ports and their interfaces.
    pub(super) names: PortNames,
    /// Whether it forwards by the host's routes.
    pub(super) has_routes: bool,
}

pub(super) struct HostPortsShared {
    followed: Mutex<Option<(Weak<SharedRouter>, FollowedRouter)>>,
    rib: Mutex<Rib>,
    pub(super) lines: LogLines,
    interfaces: Mutex<Vec<InterfaceStatus>>,
    routes: Mutex<RouteStatus>,
    is_over: AtomicBool,
}

impl HostPortsShared {
    pub(super) fn new() -> io::Result<HostPortsShared> {
        let mut rib = Rib::default();
        rib.begin_session();
        Ok(HostPortsShared {
            followed: Mutex::default(),
            rib: Mutex::new(rib),
            lines: LogLines::new()?,
            interfaces: Mutex::default(),
            routes: Mutex::default(),
            is_over: AtomicBool::new(false),
        })
    }

    pub(super) fn set_followed(&self, router: &Arc<SharedRouter>, followed: &FollowedRouter) {
        *lock_mutex(&self.followed) = Some((Arc::downgrade(router), followed.clone()));
    }

    /// What there is, as JSON.
    pub(super) fn status_json(&self) -> String {
        status::status_json(&lock_mutex(&self.interfaces), &lock_mutex(&self.routes))
    }

    pub(super) fn end_threads(&self) {
        self.is_over.store(true, Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// The router that is followed, if it is still there, and what is kept of it.
    pub(super) fn followed_router(&self) -> Option<(Arc<SharedRouter>, FollowedRouter)> {
        let followed = lock_mutex(&self.followed);
        let (router, followed) = followed.as_ref()?;
        Some((router.upgrade()?, followed.clone()))
    }

    /// The host's routes. Lock order: this first, then tables.
    pub(super) fn lock_rib(&self) -> MutexGuard<'_, Rib> {
        lock_mutex(&self.rib)
    }

    pub(super) fn publish_interfaces(&self, status: Vec<InterfaceStatus>) {
        *lock_mutex(&self.interfaces) = status;
    }

    pub(super) fn publish_routes(&self, status: RouteStatus) {
        *lock_mutex(&self.routes) = status;
    }
}

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
