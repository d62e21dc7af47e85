//! Which ports announce a topology change, and which flush their addresses: the machine of topology changes
//! (802.1D-2004, 17.31).

use super::port::{Port, Topology};
use super::{Action, Bridge, Role};
use std::time::Duration;

impl Bridge {
    /// Does one step of the `at`th port, if there is one to do.
    pub(super) fn step_topology(&mut self, at: usize, now: Duration, actions: &mut Vec<Action>) -> bool {
        let port = &mut self.ports[at];
        match port.topology {
            Topology::Inactive => port.begin_topology(),
            Topology::Learning if port.has_begun_to_forward() => self.detect_change(at, now),
            Topology::Learning => port.step_topology_of_learning(now, actions),
            Topology::Active => self.step_topology_of_active(at, now, actions),
        }
    }

    fn detect_change(&mut self, at: usize, now: Duration) -> bool {
        let port = &mut self.ports[at];
        port.topology = Topology::Active;
        port.counters.topology_changes += 1;
        port.new_tc_while(now);
        port.new_info = true;
        self.propagate_change(at);
        true
    }

    fn step_topology_of_active(&mut self, at: usize, now: Duration, actions: &mut Vec<Action>) -> bool {
        let port = &mut self.ports[at];
        if !port.is_root_or_designated() || port.oper_edge {
            port.topology = Topology::Learning;
        } else if port.rcvd_tcn || port.rcvd_tc {
            self.receive_change(at, now);
        } else if port.tc_prop {
            port.new_tc_while(now);
            port.flush_addresses(now, actions);
            port.tc_prop = false;
        } else if port.rcvd_tc_ack {
            port.tc_while.stop();
            port.rcvd_tc_ack = false;
        } else {
            return false;
        }
        true
    }

    fn receive_change(&mut self, at: usize, now: Duration) {
        let port = &mut self.ports[at];
        if port.rcvd_tcn {
            port.new_tc_while(now);
        }
        (port.rcvd_tcn, port.rcvd_tc) = (false, false);
        port.tc_ack |= port.role == Role::Designated;
        self.propagate_change(at);
    }

    /// 17.21.18: propagates a topology change to the other ports.
    fn propagate_change(&mut self, at: usize) {
        let others = self.ports.iter_mut().enumerate().filter(|(other, _)| *other != at);
        others.for_each(|(_, port)| port.tc_prop = true);
    }
}

impl Port {
    fn begin_topology(&mut self) -> bool {
        if !self.learn {
            return false;
        }
        self.topology = Topology::Learning;
        true
    }

    fn has_begun_to_forward(&self) -> bool {
        self.is_root_or_designated() && self.forward && !self.oper_edge
    }

    fn step_topology_of_learning(&mut self, now: Duration, actions: &mut Vec<Action>) -> bool {
        if self.rcvd_tc || self.rcvd_tcn || self.rcvd_tc_ack || self.tc_prop {
            (self.rcvd_tc, self.rcvd_tcn, self.rcvd_tc_ack, self.tc_prop) = (false, false, false, false);
            return true;
        }
        if self.is_root_or_designated() || self.learn || self.is_learning() {
            return false;
        }
        self.topology = Topology::Inactive;
        self.tc_while.stop();
        self.tc_ack = false;
        self.flush_addresses(now, actions);
        true
    }

    /// 17.21.7: starts the timer of a topology change.
    fn new_tc_while(&mut self, now: Duration) {
        if !self.tc_while.is_over(now) {
            return;
        }
        let time = match self.send_rstp {
            true => self.hello_time() + Duration::from_secs(1),
            false => self.max_age() + self.long_forward_delay(),
        };
        self.tc_while.set(now, time);
        self.new_info |= self.send_rstp;
    }

    /// Has the addresses forgotten that were learned on this port.
    fn flush_addresses(&mut self, now: Duration, actions: &mut Vec<Action>) {
        if self.flushes.try_flush(now) {
            self.counters.flushes += 1;
            actions.push(Action::Flush { port: self.number });
        }
    }

    /// Does what was too much for an earlier second.
    pub(super) fn flush_what_is_due(&mut self, now: Duration, actions: &mut Vec<Action>) {
        if self.flushes.poll_due(now) {
            self.counters.flushes += 1;
            actions.push(Action::Flush { port: self.number });
        }
    }
}
