//! What a port sends, in which protocol, and whether a bridge is behind it: the machines of port
//! transmission, protocol migration and bridge detection (802.1D-2004, 17.24 to 17.26).

use super::port::{MIGRATE_TIME, Migration, PACE, Port, ROUND_TRIP};
use super::settings::{Settings, Version};
use super::{Action, PortState, Role};
use artery_wire::{Bpdu, BpduFlags, BpduRole, Configuration};
use std::time::Duration;

impl Port {
    /// Does one step of bridge detection, if there is one to do.
    pub(super) fn step_edge(&mut self, now: Duration) -> bool {
        let is_edge = match self.is_enabled() {
            false => self.settings.edge,
            true => self.oper_edge || (self.settings.auto_edge && self.nobody_answers(now)),
        };
        let is_news = is_edge != self.oper_edge;
        self.oper_edge = is_edge;
        is_news
    }

    fn nobody_answers(&self, now: Duration) -> bool {
        self.edge_delay_while.is_over(now) && self.send_rstp && self.proposing && !self.is_held(now)
    }

    /// Does one step of protocol migration, if there is one to do.
    pub(super) fn step_migration(&mut self, version: Version, now: Duration) -> bool {
        if !self.is_enabled() {
            return false;
        }
        match self.migration {
            Migration::Sensing => return self.sense_version(version, now),
            Migration::CheckingRapid | Migration::SelectingOld if !self.mdelay_while.is_over(now) => {
                return false;
            }
            Migration::CheckingRapid | Migration::SelectingOld => {
                self.migration = Migration::Sensing;
                (self.rcvd_rstp, self.rcvd_stp) = (false, false);
            }
        }
        true
    }

    fn sense_version(&mut self, version: Version, now: Duration) -> bool {
        if version == Version::Rstp && !self.send_rstp && self.rcvd_rstp {
            self.check_for_rapid(version, now);
        } else if self.send_rstp && self.rcvd_stp {
            self.migration = Migration::SelectingOld;
            self.send_rstp = false;
            self.mdelay_while.set(now, MIGRATE_TIME);
        } else {
            return false;
        }
        true
    }

    /// Does one step of transmission, if there is one to do.
    pub(super) fn step_transmission(
        &mut self,
        bridge: &Settings,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> bool {
        if !self.is_enabled() || !self.is_selected() || self.settings.bpdu_filter {
            return false;
        }
        if self.hello_when.is_over(now) {
            let has_tc = !self.tc_while.is_over(now);
            self.new_info |= self.role == Role::Designated || (self.role == Role::Root && has_tc);
            self.hello_when.set(now, self.hello_time());
            return true;
        }
        if !self.new_info || self.tx_count >= bridge.hold_count || !self.pace_while.is_over(now) {
            return false;
        }
        let Some(bpdu) = self.build_bpdu(now) else { return false };
        self.send_bpdu(bpdu, now, actions);
        true
    }

    fn send_bpdu(&mut self, bpdu: Bpdu, now: Duration, actions: &mut Vec<Action>) {
        actions.push(Action::Send { port: self.number, frame: bpdu.build_frame(self.address) });
        self.counters.sent += 1;
        self.new_info = false;
        if self.is_worse_than_sent() {
            self.stale_while.set(now, ROUND_TRIP);
        }
        self.last_sent = Some(self.designated_priority);
        self.pace_while.set(now, PACE);
        self.tc_ack &= bpdu == Bpdu::Notification;
        if self.tx_count == 0 {
            self.tx_less.set(now, Duration::from_secs(1));
        }
        self.tx_count += 1;
        self.hello_when.set(now, self.hello_time());
    }

    /// Forgets one message a second.
    pub(super) fn count_down(&mut self, now: Duration) {
        while self.tx_count > 0 && self.tx_less.is_over(now) {
            self.tx_count -= 1;
            self.tx_less.0 += Duration::from_secs(1);
        }
    }

    /// What it has to say, if its role lets it.
    fn build_bpdu(&self, now: Duration) -> Option<Bpdu> {
        match self.role {
            _ if self.send_rstp => Some(Bpdu::Rapid(self.build_configuration(self.rapid_flags(now)))),
            Role::Root => Some(Bpdu::Notification),
            Role::Designated => Some(Bpdu::Configuration(self.build_configuration(self.old_flags(now)))),
            _ => None,
        }
    }

    fn build_configuration(&self, flags: BpduFlags) -> Configuration {
        let (vector, times) = (&self.designated_priority, &self.designated_times);
        Configuration {
            flags,
            root: vector.root,
            cost: vector.cost,
            bridge: vector.bridge,
            port: vector.port,
            message_age: times.message_age,
            max_age: times.max_age,
            hello_time: times.hello_time,
            forward_delay: times.forward_delay,
        }
    }

    /// 17.21.20: flags of a rapid message.
    fn rapid_flags(&self, now: Duration) -> BpduFlags {
        let role = match self.role {
            Role::Root => BpduRole::Root,
            Role::Designated => BpduRole::Designated,
            Role::Alternate | Role::Backup | Role::Disabled => BpduRole::Alternate,
        };
        BpduFlags::default()
            .with_role(role)
            .with(BpduFlags::AGREEMENT, self.agree)
            .with(BpduFlags::PROPOSAL, self.proposing)
            .with(BpduFlags::TOPOLOGY_CHANGE, !self.tc_while.is_over(now))
            .with(BpduFlags::LEARNING, self.is_learning())
            .with(BpduFlags::FORWARDING, self.is_forwarding())
    }

    /// 17.21.19: flags of a configuration message.
    fn old_flags(&self, now: Duration) -> BpduFlags {
        BpduFlags::default()
            .with(BpduFlags::TOPOLOGY_CHANGE, !self.tc_while.is_over(now))
            .with(BpduFlags::TOPOLOGY_CHANGE_ACK, self.tc_ack)
    }

    /// Reports a new state to the switch (17.30).
    pub(super) fn step_state(&mut self, actions: &mut Vec<Action>) -> bool {
        let state = match (self.learn, self.forward) {
            (false, _) => PortState::Discarding,
            (true, false) => PortState::Learning,
            (true, true) => PortState::Forwarding,
        };
        let is_news = state != self.state;
        if is_news {
            self.state = state;
            actions.push(Action::State { port: self.number, state });
        }
        is_news
    }
}
