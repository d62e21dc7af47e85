//! The interface group `egress` around a router: the ports of its default routes (OpenBSD's ifconfig(8)).
use super::interfaces::{at_host, update_egress_group};
use super::shared::{Control, SharedFilter};
use artery_filter::names::Interfaces;
use std::borrow::Cow;

impl Control {
    /// Updates the group by the current default routes. Returns whether it changed.
    pub(super) fn mark_egress(&mut self) -> bool {
        let Control { router, interfaces, .. } = self;
        router.as_ref().is_some_and(|router| update_egress_group(interfaces, router))
    }

    /// The interfaces as they are now.
    pub(super) fn interfaces_now(&self) -> Cow<'_, Interfaces> {
        // Changes of the host's routes are not reported; those of a router's are followed.
        match self.router.is_none().then(|| at_host(&self.said, &self.devices, true)) {
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
