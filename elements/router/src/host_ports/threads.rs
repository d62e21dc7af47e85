//! The threads of a router's host ports. They outlive graphs, so that interfaces and routes stay
//! while one replaces another.
use super::interfaces::Interfaces;
use super::kernel_routes::KernelRoutes;
use super::shared::{FollowedRouter, HostPortsShared};
use crate::fpm::shared::engine_clock;
use crate::fpm::target::Target;
use crate::router::port_names::PortNames;
use artery_forward::shared::SharedRouter;
use rustix::fd::BorrowedFd;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Threads that keep the interfaces of a router's ports, and the routes that it has of its host. They
/// end with the last of these.
pub(super) struct HostPorts(Arc<HostPortsShared>);

/// Those of all routers, by the names of their elements.
#[derive(Default)]
pub(super) struct AllHostPorts(Mutex<HashMap<String, Weak<HostPorts>>>);

impl HostPorts {
    /// Those of the router of this name: those that there are, or new ones.
    pub(super) fn open(all: &AllHostPorts, router: &str) -> io::Result<Arc<HostPorts>> {
        let mut known = all.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, ports| ports.strong_count() > 0);
        if let Some(ports) = known.get(router).and_then(Weak::upgrade) {
            return Ok(ports);
        }
        let shared = Arc::new(HostPortsShared::new()?);
        let (interfaces, routes) = (Interfaces::new(shared.clone())?, KernelRoutes::new(shared.clone())?);
        let ports = Arc::new(HostPorts(shared));
        std::thread::Builder::new().name("host-ports".into()).spawn(move || interfaces.run())?;
        std::thread::Builder::new().name("kernel-routes".into()).spawn(move || routes.run())?;
        known.insert(router.to_string(), Arc::downgrade(&ports));
        Ok(ports)
    }

    /// A router, which is to take the place of the others, gets the host's routes from now on: those
    /// that there are at once.
    pub(super) fn add_router(&self, router: &Arc<SharedRouter>, names: &PortNames) {
        self.0.lock_rib().add_target(Target::new(router, None, names), engine_clock());
    }

    /// Keeps these interfaces like the ports of this router from now on.
    pub(super) fn follow_router(&self, router: &Arc<SharedRouter>, followed: &FollowedRouter) {
        self.0.set_followed(router, followed);
    }

    /// What there is, as JSON.
    pub(super) fn status_json(&self) -> String {
        self.0.status_json()
    }

    /// Readable when there are lines for the log.
    pub(super) fn lines_fd(&self) -> BorrowedFd<'_> {
        self.0.lines.lines_fd()
    }

    /// The lines for the log since the last call.
    pub(super) fn drain_lines(&self) -> Vec<String> {
        self.0.lines.drain_lines()
    }
}

impl Drop for HostPorts {
    fn drop(&mut self) {
        self.0.end_threads();
    }
}
