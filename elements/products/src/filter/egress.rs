//! The interface group `egress` around a router: the ports of its default routes (OpenBSD's ifconfig(8)).
use super::control_tasks::{self, EGRESS};
use super::ports;
use super::shared::{Control, SharedFilter};
use crate::router::shared::SharedRouter;
use artery_filter::names::Interfaces;
use std::borrow::Cow;

/// Adds the interfaces of default routes to the group `egress`, and removes the others.
/// Returns whether it changed.
pub(super) fn update_egress_group(interfaces: &mut Interfaces, router: &SharedRouter) -> bool {
    let tables = router.lock_tables();
    let outward = tables.default_route_ports();
    let names: Vec<&str> = outward
        .iter()
        .filter_map(|port| tables.port_views().get(usize::from(port.0)))
        .map(|view| view.name.as_str())
        .collect();
    let mut has_changed = false;
    for record in interfaces.0.iter_mut().skip(ports::FIRST.into()) {
        let is_outward = names.contains(&record.name.as_str());
        if record.groups.iter().any(|group| group == EGRESS) != is_outward {
            has_changed = true;
            record.groups.retain(|group| group != EGRESS);
            record.groups.extend(is_outward.then(|| EGRESS.to_string()));
        }
    }
    has_changed
}

impl Control {
    /// Updates the group by the current default routes. Returns whether it changed.
    pub(super) fn mark_egress(&mut self) -> bool {
        let Control { router, interfaces, .. } = self;
        router.as_ref().is_some_and(|router| update_egress_group(interfaces, router))
    }

    /// The interfaces as they are now.
    pub(super) fn interfaces_now(&self) -> Cow<'_, Interfaces> {
        // Changes of the host's routes are not reported; those of a router's are followed.
        match self.router.is_none().then(|| control_tasks::at_host(&self.said, &self.devices, true)) {
            Some(Ok(interfaces)) => Cow::Owned(interfaces),
            _ => Cow::Borrowed(&self.interfaces),
        }
    }
}

impl SharedFilter {
    /// Updates the rules that use the group after a change of the router's default routes.
    pub(super) fn follow_routes(&self) {
        let mut control = self.lock_control();
        if control.mark_egress() {
            self.recompile_rules(&mut control);
        }
    }
}
