//! What a bridge says about itself: figures, and the lines of ifconfig(8).

use super::port::Port;
use super::{Bridge, PortState, Settings, StpError, Version};
use artery_wire::BridgeId;
use std::fmt;

/// What a port is for its bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// The port takes no part in the tree.
    #[default]
    Disabled,
    /// Leads to the root on the best path.
    Root,
    /// Connects the bridges and hosts behind it to the root.
    Designated,
    /// Leads to the root on another path, used if the first one fails.
    Alternate,
    /// A second port to a link that this bridge leads to the root.
    Backup,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Disabled => "disabled",
            Role::Root => "root",
            Role::Designated => "designated",
            Role::Alternate => "alternate",
            Role::Backup => "backup",
        })
    }
}

/// What a port has met since it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames for bridges that arrived.
    pub received: u64,
    /// Messages sent on the port.
    pub sent: u64,
    /// Frames that were no message a bridge may send.
    pub malformed: u64,
    /// Frames that were too many for a second.
    pub limited: u64,
    /// Frames on a port that is down, shut, or filters messages.
    pub ignored: u64,
    /// Times that the guard against bridges shut the port.
    pub shut: u64,
    /// Messages that held the port: its own, or from a better root than it may lead to.
    pub held: u64,
    /// Times that the port began to forward.
    pub topology_changes: u64,
    /// Times that addresses learned on the port were forgotten.
    pub flushes: u64,
}

/// The root as a bridge knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootView {
    /// Priority and address of the bridge.
    pub id: BridgeId,
    /// Cost of the path to the root.
    pub cost: u32,
    /// The port that leads there; the root itself has none.
    pub port: Option<u16>,
}

/// A bridge as it is now. As text: the lines of ifconfig(8), each after a tab.
#[derive(Clone, Debug)]
pub struct BridgeView {
    /// The settings of the bridge.
    pub settings: Settings,
    /// Bridge id that it announces to others.
    pub id: BridgeId,
    /// Where the tree begins.
    pub root: RootView,
    /// Ports that take part in the tree.
    pub ports: Vec<PortView>,
    /// Times that the machines came to no end; never, if they are right.
    pub unsettled: u64,
}

/// A port as it is now. As text: what ifconfig(8) says of it.
#[derive(Clone, Copy, Debug)]
pub struct PortView {
    /// Number of the port in the bridge.
    pub number: u16,
    /// Priority of the port in the tree.
    pub priority: u8,
    /// Path cost of the port.
    pub cost: u32,
    /// What it does with frames of hosts.
    pub state: PortState,
    /// What it is to its bridge.
    pub role: Role,
    /// Which protocol it speaks.
    pub version: Version,
    /// Whether it counts as a port with only hosts behind.
    pub is_edge: bool,
    /// Whether it counts as a link of two.
    pub is_point_to_point: bool,
    /// Whether its guard has shut it.
    pub is_shut: bool,
    /// The bridge that leads its link to the root.
    pub designated_bridge: BridgeId,
    /// What it has met.
    pub counters: PortCounters,
}

impl Bridge {
    /// The bridge and its ports as they are now.
    pub fn view(&self) -> BridgeView {
        let root = &self.root;
        BridgeView {
            settings: self.settings,
            id: self.own,
            root: RootView { id: root.priority.root, cost: root.priority.cost, port: root.port },
            ports: self.ports.iter().map(|port| port.view(self.settings.version)).collect(),
            unsettled: self.unsettled,
        }
    }

    /// A port as it is now.
    pub fn port(&self, number: u16) -> Result<PortView, StpError> {
        Ok(self.ports[self.port_index(number)?].view(self.settings.version))
    }
}

impl Port {
    fn view(&self, version: Version) -> PortView {
        PortView {
            number: self.number,
            priority: self.settings.priority,
            cost: self.path_cost(version),
            state: self.state,
            role: self.role,
            version: if self.send_rstp { Version::Rstp } else { Version::Stp },
            is_edge: self.oper_edge,
            is_point_to_point: self.is_point_to_point(),
            is_shut: self.is_shut,
            designated_bridge: self.port_priority.bridge,
            counters: self.counters,
        }
    }
}

impl PortView {
    /// The word for its state: of the old protocol where that is spoken.
    pub fn state_name(&self) -> &'static str {
        match (self.state, self.role, self.version) {
            (_, Role::Disabled, _) => "disabled",
            (PortState::Learning, ..) => "learning",
            (PortState::Forwarding, ..) => "forwarding",
            (PortState::Discarding, _, Version::Rstp) => "discarding",
            (PortState::Discarding, Role::Root | Role::Designated, Version::Stp) => "listening",
            (PortState::Discarding, _, Version::Stp) => "blocking",
        }
    }
}

impl fmt::Display for PortView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PortView { number, priority, cost, role, .. } = self;
        write!(f, "port {number} ifpriority {priority} ifcost {cost} {} role {role}", self.state_name())
    }
}

impl fmt::Display for BridgeView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { priority, hello_time, forward_delay, max_age, hold_count, version } = self.settings;
        write!(f, "\tpriority {priority} hellotime {hello_time} fwddelay {forward_delay} ")?;
        writeln!(f, "maxage {max_age} holdcnt {hold_count} proto {version}")?;
        writeln!(f, "\tdesignated: id {}", self.id)?;
        match self.root.port {
            Some(port) => writeln!(f, "\troot: id {} ifcost {} port {port}", self.root.id, self.root.cost),
            None => Ok(()),
        }
    }
}
