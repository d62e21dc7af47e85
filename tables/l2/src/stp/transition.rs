//! How a port gets from one part in the tree to another without a loop at any time: the machine of port role
//! transitions (802.1D-2004, 17.29).
//!
//! Timers that the standard keeps at their full time while a port has a role are set here when it loses the
//! role.

use super::port::{MIGRATE_TIME, Port};
use super::settings::Version;
use super::{Bridge, Role};
use std::time::Duration;

impl Bridge {
    /// Does one step of the `at`th port, if there is one to do.
    pub(super) fn step_role(&mut self, at: usize, now: Duration) -> bool {
        let port = &mut self.ports[at];
        if !port.is_selected() {
            return false;
        }
        if port.role != port.selected_role {
            port.begin_role(now);
            return true;
        }
        match port.role {
            Role::Disabled => port.come_to_rest(),
            Role::Root => self.step_root(at, now),
            Role::Designated => port.step_designated(now),
            Role::Alternate | Role::Backup => self.step_alternate(at),
        }
    }

    fn step_root(&mut self, at: usize, now: Duration) -> bool {
        if self.answer_proposal(at) {
            return true;
        }
        if !self.ports[at].forward && !self.ports[at].re_root {
            self.ports.iter_mut().for_each(|port| port.re_root = true);
            return true;
        }
        let may_hurry = self.settings.version == Version::Rstp && self.is_re_rooted(at, now);
        self.ports[at].open_root(may_hurry, now)
    }

    fn step_alternate(&mut self, at: usize) -> bool {
        self.ports[at].come_to_rest() || (self.ports[at].is_at_rest && self.answer_proposal(at))
    }

    /// Has all other ports step back for a proposal, and agrees to it when they have.
    fn answer_proposal(&mut self, at: usize) -> bool {
        let all_synced = self.ports.iter().all(Port::is_synced);
        let port = &mut self.ports[at];
        if port.proposed && !port.agree {
            port.proposed = false;
            self.ports.iter_mut().for_each(|port| port.sync = true);
            return true;
        }
        let agrees = (all_synced && !port.agree) || (port.proposed && port.agree);
        if agrees {
            port.proposed = false;
            // An alternate port clears its own when it comes to rest; only this code does so for the root
            // port.
            port.sync &= port.role != Role::Root;
            (port.agree, port.new_info) = (true, true);
        }
        agrees
    }

    /// Whether no other port was a root port until just now: the network behind it may still lead back here.
    fn is_re_rooted(&self, at: usize, now: Duration) -> bool {
        let others = self.ports.iter().enumerate().filter(|(other, _)| *other != at);
        let mut others = others.map(|(_, port)| port);
        others.all(|port| port.role != Role::Root && port.rr_while.is_over(now))
    }
}

impl Port {
    /// Begins with the role that was selected for it.
    fn begin_role(&mut self, now: Duration) {
        match self.role {
            Role::Disabled => self.fd_while.set(now, self.max_age()),
            Role::Root => {
                self.rr_while.set(now, self.long_forward_delay());
                // The standard leaves it open if the new root port is. But whoever is behind it may lead to
                // the new root by another path, and count on the agreement that the old root port gave.
                self.re_root = true;
            }
            Role::Designated => {}
            Role::Alternate => self.fd_while.set(now, self.forward_delay()),
            Role::Backup => {
                self.fd_while.set(now, self.forward_delay());
                self.rb_while.set(now, 2 * self.hello_time());
            }
        }
        self.role = self.selected_role;
        if !self.is_root_or_designated() {
            (self.learn, self.forward, self.is_at_rest) = (false, false, false);
        }
    }

    /// A port that takes no part in the tree, and neither learns nor forwards any more, delays no other.
    fn come_to_rest(&mut self) -> bool {
        let has_stopped = !self.is_learning() && !self.is_forwarding();
        let is_pending = !self.is_at_rest || self.sync || self.re_root || !self.synced;
        if !has_stopped || !is_pending {
            return false;
        }
        (self.is_at_rest, self.synced, self.sync, self.re_root) = (true, true, false, false);
        self.rr_while.stop();
        true
    }

    /// Whether it is in step with what the root port knows (17.20.3).
    fn is_synced(&self) -> bool {
        self.is_selected() && self.role == self.selected_role && (self.role == Role::Root || self.synced)
    }

    fn open_root(&mut self, may_hurry: bool, now: Duration) -> bool {
        let may = self.fd_while.is_over(now) || (may_hurry && self.rb_while.is_over(now));
        if may && !self.learn {
            self.begin_to_learn(now);
        } else if may && !self.forward {
            self.begin_to_forward();
        } else if self.re_root && self.forward {
            self.re_root = false;
        } else {
            return false;
        }
        true
    }

    fn step_designated(&mut self, now: Duration) -> bool {
        let is_retired = self.rr_while.is_over(now);
        if !self.forward && !self.agreed && !self.proposing && !self.oper_edge {
            self.send_proposal(now);
        } else if self.may_be_synced() {
            self.rr_while.stop();
            (self.synced, self.sync) = (true, false);
        } else if is_retired && self.re_root {
            self.re_root = false;
        } else if self.must_stop(is_retired, now) {
            (self.learn, self.forward, self.disputed) = (false, false, false);
            self.fd_while.set(now, self.forward_delay());
        } else if self.may_open(is_retired, now) && !self.learn {
            self.begin_to_learn(now);
        } else if self.may_open(is_retired, now) && !self.forward {
            self.begin_to_forward();
            self.agreed = self.send_rstp;
        } else {
            return false;
        }
        true
    }

    /// Proposes to the neighbor that the port forwards at once.
    fn send_proposal(&mut self, now: Duration) {
        let wait = if self.is_point_to_point() { MIGRATE_TIME } else { self.max_age() };
        self.edge_delay_while.set(now, wait);
        (self.proposing, self.new_info) = (true, true);
    }

    fn may_be_synced(&self) -> bool {
        let has_stopped = !self.is_learning() && !self.is_forwarding();
        let is_harmless = has_stopped || self.agreed || self.oper_edge;
        (is_harmless && !self.synced) || (self.sync && self.synced)
    }

    fn must_stop(&self, is_retired: bool, now: Duration) -> bool {
        let is_asked = (self.sync && !self.synced) || (self.re_root && !is_retired) || self.disputed;
        (self.learn || self.forward) && (self.is_held(now) || (is_asked && !self.oper_edge))
    }

    fn may_open(&self, is_retired: bool, now: Duration) -> bool {
        let is_safe = self.fd_while.is_over(now) || self.agreed || self.oper_edge;
        is_safe && (is_retired || !self.re_root) && !self.sync && !self.is_held(now)
    }

    fn begin_to_learn(&mut self, now: Duration) {
        self.fd_while.set(now, self.forward_delay());
        self.learn = true;
    }

    fn begin_to_forward(&mut self) {
        self.fd_while.stop();
        self.forward = true;
    }
}
