//! What a bridge keeps for each port: the variables and timers of 802.1D-2004, 17.17 and 17.19, under their
//! names there.

use super::limits::{Flushes, Window};
use super::settings::{Link, PortSettings, Settings, Times, Version};
use super::vector::Vector;
use super::{PortCounters, PortState, Role};
use artery_wire::{BridgeId, Configuration, EtherAddr};
use std::time::Duration;

/// How long a bridge waits before it believes which protocol a neighbor speaks, and that
/// none is there (17.13.9).
pub(super) const MIGRATE_TIME: Duration = Duration::from_secs(3);

/// How long an answer may be in flight that was sent before the neighbor received the latest message.
pub(super) const ROUND_TRIP: Duration = Duration::from_millis(50);

/// The shortest time between two messages of a port: what changes several times meanwhile is said once, and
/// the few messages that a second has are left for what comes later.
pub(super) const PACE: Duration = Duration::from_millis(5);

/// Runs until a time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timer(pub(super) Duration);

impl Timer {
    pub(super) fn set(&mut self, now: Duration, time: Duration) {
        self.0 = now.saturating_add(time);
    }

    pub(super) fn stop(&mut self) {
        self.0 = Duration::ZERO;
    }

    pub(super) fn is_over(self, now: Duration) -> bool {
        self.0 <= now
    }
}

/// Whose word a port goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Info {
    #[default]
    Disabled,
    /// From a neighbor's message, not yet aged out.
    Received,
    /// From this bridge, as the designated one.
    Mine,
    /// A neighbor's that wasn't repeated.
    Aged,
}

/// What the port knows about its neighbors' protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Migration {
    #[default]
    CheckingRapid,
    SelectingOld,
    Sensing,
}

/// How far the port's part in topology changes has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Topology {
    #[default]
    Inactive,
    Learning,
    Active,
}

/// A message that waits to be understood.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivedBpdu {
    pub(super) configuration: Configuration,
    pub(super) is_rapid: bool,
}

#[derive(Default)]
pub(super) struct Port {
    pub(super) number: u16,
    pub(super) address: EtherAddr,
    pub(super) settings: PortSettings,
    pub(super) link: Option<Link>,
    /// A BPDU came where none may.
    pub(super) is_shut: bool,

    pub(super) agree: bool,
    pub(super) agreed: bool,
    pub(super) designated_priority: Vector,
    pub(super) designated_times: Times,
    pub(super) disputed: bool,
    pub(super) forward: bool,
    pub(super) info: Info,
    pub(super) learn: bool,
    pub(super) message: Option<ReceivedBpdu>,
    pub(super) new_info: bool,
    pub(super) oper_edge: bool,
    pub(super) port_priority: Vector,
    pub(super) port_times: Times,
    pub(super) proposed: bool,
    pub(super) proposing: bool,
    pub(super) rcvd_rstp: bool,
    pub(super) rcvd_stp: bool,
    pub(super) rcvd_tc: bool,
    pub(super) rcvd_tc_ack: bool,
    pub(super) rcvd_tcn: bool,
    pub(super) re_root: bool,
    pub(super) reselect: bool,
    pub(super) role: Role,
    pub(super) selected: bool,
    pub(super) selected_role: Role,
    pub(super) send_rstp: bool,
    pub(super) sync: bool,
    pub(super) synced: bool,
    pub(super) tc_ack: bool,
    pub(super) tc_prop: bool,
    pub(super) tx_count: u8,
    pub(super) updt_info: bool,
    /// A port without a part in the tree has let go of what it did before.
    pub(super) is_at_rest: bool,
    pub(super) migration: Migration,
    pub(super) topology: Topology,
    /// The state that was last reported to the switch.
    pub(super) state: PortState,

    pub(super) edge_delay_while: Timer,
    pub(super) fd_while: Timer,
    pub(super) hello_when: Timer,
    pub(super) mdelay_while: Timer,
    /// Not in the standard: the vector that was last sent; answers to better ones may still be in flight.
    pub(super) last_sent: Option<Vector>,
    pub(super) stale_while: Timer,
    /// An agreement was not believed, and must be requested again.
    pub(super) is_stale_agreement: bool,
    /// Not in the standard: a guard, or the bridge's own message coming back, holds the port.
    pub(super) held_while: Timer,
    pub(super) rb_while: Timer,
    pub(super) rcvd_info_while: Timer,
    pub(super) rr_while: Timer,
    pub(super) tc_while: Timer,
    pub(super) pace_while: Timer,
    /// When the count of messages sent goes down by one.
    pub(super) tx_less: Timer,

    pub(super) receive_window: Window,
    pub(super) flushes: Flushes,
    pub(super) counters: PortCounters,
}

impl Port {
    /// A port whose link is down.
    pub(super) fn new(number: u16, address: EtherAddr, settings: PortSettings, bridge: &Settings) -> Port {
        let times = bridge.times();
        Port {
            number,
            address,
            settings,
            designated_times: times,
            oper_edge: settings.edge,
            port_times: times,
            re_root: true,
            reselect: true,
            send_rstp: bridge.version == Version::Rstp,
            sync: true,
            ..Port::default()
        }
    }

    /// Its identifier: four bits of priority, twelve of its number (9.2.7).
    pub(super) fn id(&self) -> u16 {
        u16::from(self.settings.priority) << 8 | self.number
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.link.is_some() && !self.is_shut
    }

    /// Restarts the timers that stand still while a port is down.
    pub(super) fn enable_port(&mut self, version: Version, now: Duration) {
        self.edge_delay_while.set(now, MIGRATE_TIME);
        self.check_for_rapid(version, now);
        // A new neighbor has received nothing from this port.
        (self.last_sent, self.is_stale_agreement) = (None, false);
        self.stale_while.stop();
    }

    /// Speaks the bridge's own protocol for a while, whatever is received (17.24).
    pub(super) fn check_for_rapid(&mut self, version: Version, now: Duration) {
        self.migration = Migration::CheckingRapid;
        self.send_rstp = version == Version::Rstp;
        self.mdelay_while.set(now, MIGRATE_TIME);
    }

    pub(super) fn mark_reselect(&mut self) {
        (self.reselect, self.selected) = (true, false);
    }

    /// Whether its role is settled, and what it says is in step with it.
    pub(super) fn is_selected(&self) -> bool {
        self.selected && !self.updt_info
    }

    pub(super) fn path_cost(&self, version: Version) -> u32 {
        let by_link = || self.link.map_or(Link::GIGABIT.path_cost(version), |link| link.path_cost(version));
        self.settings.cost.unwrap_or_else(by_link)
    }

    pub(super) fn is_point_to_point(&self) -> bool {
        self.settings.point_to_point.unwrap_or(self.link.is_some_and(|link| link.full_duplex))
    }

    pub(super) fn is_learning(&self) -> bool {
        self.state != PortState::Discarding
    }

    pub(super) fn is_forwarding(&self) -> bool {
        self.state == PortState::Forwarding
    }

    pub(super) fn is_root_or_designated(&self) -> bool {
        matches!(self.role, Role::Root | Role::Designated)
    }

    pub(super) fn is_held(&self, now: Duration) -> bool {
        !self.held_while.is_over(now)
    }

    pub(super) fn hello_time(&self) -> Duration {
        self.designated_times.hello_time.duration()
    }

    pub(super) fn long_forward_delay(&self) -> Duration {
        self.designated_times.forward_delay.duration()
    }

    /// How long it waits before it learns and before it forwards: less where two bridges tell each
    /// other (17.20.5). The standard has this for links of more than two as well, where no bridge
    /// can agree for all.
    pub(super) fn forward_delay(&self) -> Duration {
        let is_told = self.send_rstp && self.is_point_to_point();
        if is_told { self.hello_time() } else { self.long_forward_delay() }
    }

    pub(super) fn max_age(&self) -> Duration {
        self.designated_times.max_age.duration()
    }

    /// The vector by which it offers a path to that root.
    pub(super) fn offered_vector(&self, root: &Vector, own: BridgeId) -> Vector {
        Vector { root: root.root, cost: root.cost, bridge: own, port: self.id() }
    }

    /// When something may happen by time alone, if anything may.
    pub(super) fn next_deadline(&self, now: Duration) -> Option<Duration> {
        let timers = [
            self.edge_delay_while,
            self.fd_while,
            self.hello_when,
            self.mdelay_while,
            self.held_while,
            self.stale_while,
            self.rb_while,
            self.rcvd_info_while,
            self.rr_while,
            self.tc_while,
            self.pace_while,
            self.tx_less,
        ];
        let flush = self.flushes.due_at().map(|due| due.max(now));
        timers.into_iter().map(|timer| timer.0).filter(|end| *end > now).chain(flush).min()
    }
}
