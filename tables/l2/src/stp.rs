//! Spanning tree: which ports of a bridge forward, so that frames reach every link and never go in circles.
//!
//! IEEE 802.1D-2004, clause 17 (the rapid protocol), which falls back to the protocol of 1998 for neighbors
//! that speak nothing else. A [`Bridge`] is a pure machine: its caller reports events with their time, and it
//! says what to do ([`Action`]). It knows no thread, no clock and no packet. A [`Tree`] does that to a
//! switch, and a [`SpanningSwitch`] is both for all workers.
//!
//! Numbers in comments are clauses of the standard, and variables have its names. Where it is departed from:
//!
//! * Timers are times at which they end, not counts of seconds, so that nothing waits for a tick.
//! * No frames go in circles while bridges learn that a root is gone. The standard lets them; what is
//!   stricter here, and how that was found, is in decision 0019.
//! * A port's messages are 5 ms apart, so that the few it may send in a second are not spent on short-lived
//!   states.
//! * Times in messages count as the nearest that a bridge may be set to.
//! * A port whose own messages come back, or that is guarded and receives a better root, is held: it stays
//!   designated and forwards nothing until that has not been received for three hello times.
//! * What a stranger makes a port do is bounded: 100 messages a second are taken, and addresses are
//!   flushed four times a second at most, where more become one at the second's end.
//!
//! ```
//! use artery_l2::stp::{Action, Bridge, Link, PortSettings, PortState, Settings};
//! use artery_wire::EtherAddr;
//! use std::time::Duration;
//!
//! let mut bridge = Bridge::new(EtherAddr([2, 0, 0, 0, 0, 1]), Settings::default())?;
//! let (now, mut actions) = (Duration::ZERO, Vec::new());
//! let edge = PortSettings { edge: true, ..PortSettings::default() };
//! bridge.add_port(1, EtherAddr([2, 0, 0, 0, 0, 1]), edge)?;
//! bridge.link_up(1, Link::GIGABIT, now, &mut actions)?;
//! assert!(actions.contains(&Action::State { port: 1, state: PortState::Forwarding }));
//! let text = bridge.view().to_string();
//! assert!(text.starts_with("\tpriority 32768 hellotime 2 fwddelay 15 maxage 20 holdcnt 6 proto rstp\n"));
//! # Ok::<(), artery_l2::stp::StpError>(())
//! ```

mod information;
mod limits;
mod port;
mod selection;
mod settings;
mod show;
mod spanning;
mod topology;
mod transition;
mod transmit;
mod tree;
mod vector;

pub use settings::{Link, PortSettings, Settings, StpError, Version};
pub use show::{BridgeView, PortCounters, PortView, Role, RootView};
pub use spanning::SpanningSwitch;
pub use tree::{Outgoing, Tree};

pub use crate::PortState;

use artery_wire::{Bpdu, BridgeId, EtherAddr};
use port::{MIGRATE_TIME, Port, ReceivedBpdu};
use selection::Root;
use std::time::Duration;
use vector::Vector;

/// What a bridge wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // a port is its number
pub enum Action {
    /// Send this frame on a port; it begins with its destination address.
    Send { port: u16, frame: [u8; Bpdu::FRAME_LEN] },
    /// From now on the port does this.
    State { port: u16, state: PortState },
    /// Forget the addresses that were learned on this port.
    Flush { port: u16 },
}

/// The number of rounds after which a bridge counts as not coming to an end. Three rounds for
/// each port would do.
const MOST_ROUNDS: usize = 10_000;

/// A bridge that takes part in a spanning tree.
pub struct Bridge {
    settings: Settings,
    own: BridgeId,
    ports: Vec<Port>,
    root: Root,
    unsettled: u64,
}

impl Bridge {
    /// The highest number of a port.
    pub const MOST_PORTS: u16 = 4095;

    /// A bridge without ports, known to others by that address.
    pub fn new(address: EtherAddr, settings: Settings) -> Result<Bridge, StpError> {
        settings.check_bounds()?;
        let own = BridgeId { priority: settings.priority, address };
        let root = Root { priority: Vector::of_root(own), times: settings.times(), port: None };
        Ok(Bridge { settings, own, ports: Vec::new(), root, unsettled: 0 })
    }

    /// The settings of the bridge.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the bridge's settings; with another version all ports restart.
    pub fn set_settings(
        &mut self,
        settings: Settings,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), StpError> {
        settings.check_bounds()?;
        self.ports.iter().try_for_each(|port| port.settings.check_bounds(settings.version))?;
        let is_restart = settings.version != self.settings.version;
        self.settings = settings;
        self.own.priority = settings.priority;
        if is_restart {
            self.restart_ports(now, actions);
        }
        self.reselect_roles();
        self.run_machines(now, actions);
        Ok(())
    }

    /// Adds a port whose link is down and that sends from that address.
    pub fn add_port(
        &mut self,
        number: u16,
        address: EtherAddr,
        settings: PortSettings,
    ) -> Result<(), StpError> {
        if number == 0 || number > Self::MOST_PORTS {
            return Err(StpError::PortNumber(number));
        }
        settings.check_bounds(self.settings.version)?;
        match self.search_port(number) {
            Ok(_) => Err(StpError::PortExists(number)),
            Err(at) => {
                self.ports.insert(at, Port::new(number, address, settings, &self.settings));
                Ok(())
            }
        }
    }

    /// Takes a port away.
    pub fn remove_port(
        &mut self,
        number: u16,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), StpError> {
        self.link_down(number, now, actions)?;
        let at = self.port_index(number)?;
        self.ports.remove(at);
        self.reselect_roles();
        self.run_machines(now, actions);
        Ok(())
    }

    /// Changes the settings of a port.
    pub fn set_port(
        &mut self,
        number: u16,
        settings: PortSettings,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), StpError> {
        settings.check_bounds(self.settings.version)?;
        let at = self.port_index(number)?;
        let port = &mut self.ports[at];
        let before = std::mem::replace(&mut port.settings, settings);
        if settings.edge != before.edge {
            port.oper_edge = settings.edge;
        }
        self.reselect_roles();
        self.run_machines(now, actions);
        Ok(())
    }

    /// A port's link came up, or has another speed now.
    pub fn link_up(
        &mut self,
        number: u16,
        link: Link,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), StpError> {
        let at = self.port_index(number)?;
        let (version, port) = (self.settings.version, &mut self.ports[at]);
        if port.link.replace(link).is_none() {
            port.enable_port(version, now);
        }
        self.reselect_roles();
        self.run_machines(now, actions);
        Ok(())
    }

    /// A port's link went down. That also opens a port again which its guard had shut.
    pub fn link_down(
        &mut self,
        number: u16,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), StpError> {
        let at = self.port_index(number)?;
        let port = &mut self.ports[at];
        (port.link, port.is_shut) = (None, false);
        port.held_while.stop();
        self.run_machines(now, actions);
        Ok(())
    }

    /// Takes a frame for bridges that arrived on a port.
    pub fn receive_frame(
        &mut self,
        number: u16,
        frame: &[u8],
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<(), StpError> {
        let at = self.port_index(number)?;
        let own = self.own;
        let port = &mut self.ports[at];
        port.counters.received += 1;
        if let Some(bpdu) = port.admit_bpdu(frame, now) {
            port.receive_bpdu(bpdu, own, now);
            self.run_machines(now, actions);
        }
        Ok(())
    }

    /// Does what time alone brings.
    pub fn tick(&mut self, now: Duration, actions: &mut Vec<Action>) {
        for port in &mut self.ports {
            port.count_down(now);
            port.flush_what_is_due(now, actions);
        }
        self.run_machines(now, actions);
    }

    /// When [`tick`](Bridge::tick) has something to do next.
    pub fn next_deadline(&self, now: Duration) -> Option<Duration> {
        self.ports.iter().filter_map(|port| port.next_deadline(now)).min()
    }

    fn search_port(&self, number: u16) -> Result<usize, usize> {
        self.ports.binary_search_by_key(&number, |port| port.number)
    }

    fn port_index(&self, number: u16) -> Result<usize, StpError> {
        self.search_port(number).map_err(|_| StpError::NoSuchPort(number))
    }

    fn reselect_roles(&mut self) {
        self.ports.iter_mut().for_each(Port::mark_reselect);
    }

    /// Restarts all ports with the settings and links they have.
    fn restart_ports(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let links: Vec<_> = self.ports.iter_mut().map(|port| port.link.take()).collect();
        self.run_machines(now, actions);
        let version = self.settings.version;
        for (port, link) in self.ports.iter_mut().zip(links) {
            port.link = link;
            port.enable_port(version, now);
        }
    }

    /// Lets all machines of all ports do their steps until none has one left.
    fn run_machines(&mut self, now: Duration, actions: &mut Vec<Action>) {
        for _ in 0..MOST_ROUNDS {
            if !self.run_round(now, actions) {
                return;
            }
        }
        self.unsettled += 1;
    }

    fn run_round(&mut self, now: Duration, actions: &mut Vec<Action>) -> bool {
        let (version, settings) = (self.settings.version, self.settings);
        let mut has_moved = false;
        for port in &mut self.ports {
            has_moved |= port.step_edge(now);
            has_moved |= port.step_migration(version, now);
            has_moved |= port.step_information(version, now);
        }
        has_moved |= self.select_roles();
        for at in 0..self.ports.len() {
            has_moved |= self.step_role(at, now);
            has_moved |= self.ports[at].step_state(actions);
            has_moved |= self.step_topology(at, now, actions);
        }
        // The message must carry the final result, not an intermediate one.
        if !has_moved {
            for port in &mut self.ports {
                has_moved |= port.step_transmission(&settings, now, actions);
            }
        }
        has_moved
    }
}

impl Port {
    /// Reads a frame that the port may receive.
    fn admit_bpdu(&mut self, frame: &[u8], now: Duration) -> Option<Bpdu> {
        if !self.is_enabled() || self.settings.bpdu_filter {
            self.counters.ignored += 1;
            return None;
        }
        if !self.receive_window.try_acquire(now, limits::MAX_RECEIVED) {
            self.counters.limited += 1;
            return None;
        }
        let bpdu = Bpdu::in_frame(frame).ok().filter(is_believable);
        self.counters.malformed += u64::from(bpdu.is_none());
        bpdu
    }

    /// The machine of receipt (17.23).
    fn receive_bpdu(&mut self, bpdu: Bpdu, own: BridgeId, now: Duration) {
        if self.settings.bpdu_guard {
            self.is_shut = true;
            self.counters.shut += 1;
            return;
        }
        self.oper_edge = false;
        self.edge_delay_while.set(now, MIGRATE_TIME);
        match bpdu {
            Bpdu::Notification => (self.rcvd_stp, self.rcvd_tcn) = (true, true),
            Bpdu::Configuration(told) | Bpdu::Rapid(told) => {
                if Vector::from_bpdu(&told).is_from(own, self.number) {
                    return self.hold_port(now);
                }
                let is_rapid = matches!(bpdu, Bpdu::Rapid(_));
                self.rcvd_rstp |= is_rapid;
                self.rcvd_stp |= !is_rapid;
                self.message = Some(ReceivedBpdu { configuration: told, is_rapid });
            }
        }
    }
}

/// Whether an old message is younger than it may get (9.3.4). A rapid one that isn't is taken,
/// and ages at once.
fn is_believable(bpdu: &Bpdu) -> bool {
    !matches!(bpdu, Bpdu::Configuration(told) if told.message_age >= told.max_age)
}
