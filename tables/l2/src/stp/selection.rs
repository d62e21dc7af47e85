//! Which part each port has in the tree: the machine of port role selection (802.1D-2004, 17.28).

use super::port::{Info, Port};
use super::settings::Times;
use super::vector::Vector;
use super::{Bridge, Role};

/// The best path to the root that a bridge knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Root {
    pub(super) priority: Vector,
    pub(super) times: Times,
    /// The number of the port that leads there; the root itself has none.
    pub(super) port: Option<u16>,
}

impl Bridge {
    /// Selects roles again, if a port asked for that.
    pub(super) fn select_roles(&mut self) -> bool {
        if !self.ports.iter().any(|port| port.reselect) {
            return false;
        }
        self.root = self.best_root();
        let (root, own, hello) = (self.root, self.own, self.settings.times().hello_time);
        for port in &mut self.ports {
            port.designated_priority = port.offered_vector(&root.priority, own);
            port.designated_times = Times { hello_time: hello, ..root.times };
            port.select_role(&root, self.own.address);
            (port.reselect, port.selected) = (false, true);
        }
        true
    }

    /// 17.21.25, a to d.
    fn best_root(&self) -> Root {
        let ways = self.ports.iter().filter(|port| port.info == Info::Received);
        let others = ways.filter(|port| port.port_priority.bridge.address != self.own.address);
        let version = self.settings.version;
        let through = |port: &Port| (port.port_priority.add_cost(port.path_cost(version)), port.id());
        let none = Root { priority: Vector::of_root(self.own), times: self.settings.times(), port: None };
        match others.min_by_key(|port| through(port)) {
            Some(port) if through(port).0 < none.priority => Root {
                priority: through(port).0,
                times: port.port_times.one_further(),
                port: Some(port.number),
            },
            _ => none,
        }
    }
}

impl Port {
    /// 17.21.25, g to m.
    fn select_role(&mut self, root: &Root, own: artery_wire::EtherAddr) {
        let is_better = self.designated_priority < self.port_priority;
        let (role, update) = match self.info {
            Info::Disabled => (Role::Disabled, false),
            Info::Aged => (Role::Designated, true),
            Info::Mine => (Role::Designated, self.is_out_of_step()),
            Info::Received if root.port == Some(self.number) => (Role::Root, false),
            Info::Received if is_better => (Role::Designated, true),
            Info::Received if self.port_priority.bridge.address == own => (Role::Backup, false),
            Info::Received => (Role::Alternate, false),
        };
        self.selected_role = role;
        // Of disabled ports it means nothing, and nothing would ever clear it.
        self.updt_info = update;
    }

    fn is_out_of_step(&self) -> bool {
        self.port_priority != self.designated_priority || self.port_times != self.designated_times
    }
}
