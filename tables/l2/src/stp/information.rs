//! How a port evaluates received messages, and how long it keeps them: the machine of port information
//! (802.1D-2004, 17.27) and its procedures.
//!
//! The standard believes an agreement whenever it comes. When bridges have gone on to a worse path meanwhile,
//! it may be about the better one from before, whose end the neighbor has not learned of, and then frames go
//! in circles until it has. So an agreement counts here only if the neighbor has had time to receive what is
//! said now, and is asked for again otherwise.

use super::port::{Info, Port, ReceivedBpdu};
use super::settings::{Times, Version};
use super::vector::{Meaning, Vector};
use artery_wire::{BpduFlags, BpduRole};
use std::time::Duration;

impl Port {
    /// Does one step, if there is one to do.
    pub(super) fn step_information(&mut self, version: Version, now: Duration) -> bool {
        if !self.is_enabled() {
            return self.message.take().is_some() | self.forget_information();
        }
        match self.info {
            Info::Disabled => self.age_info(),
            _ if self.selected && self.updt_info => self.update_info(now),
            Info::Aged => return false,
            Info::Received if self.has_aged(now) => self.age_info(),
            _ => return self.process_message(version, now) || self.repeat_proposal(now),
        }
        true
    }

    fn has_aged(&self, now: Duration) -> bool {
        self.rcvd_info_while.is_over(now) && !self.updt_info && self.message.is_none()
    }

    /// Says whether there was anything to forget.
    fn forget_information(&mut self) -> bool {
        if self.info == Info::Disabled {
            return false;
        }
        (self.proposing, self.proposed, self.agree, self.agreed) = (false, false, false, false);
        self.rcvd_info_while.stop();
        self.info = Info::Disabled;
        self.mark_reselect();
        true
    }

    fn age_info(&mut self) {
        self.info = Info::Aged;
        self.mark_reselect();
    }

    /// From now on the port says what its bridge found out.
    fn update_info(&mut self, now: Duration) {
        // As long as things get worse, silence means nothing.
        if self.designated_priority > self.port_priority && !self.forward {
            self.fd_while.set(now, self.forward_delay());
        }
        (self.proposing, self.proposed) = (false, false);
        self.agreed &= self.info == Info::Mine && self.designated_priority <= self.port_priority;
        self.synced &= self.agreed;
        (self.port_priority, self.port_times) = (self.designated_priority, self.designated_times);
        self.updt_info = false;
        self.info = Info::Mine;
        self.new_info = true;
    }

    /// Says whether there was a message that could be looked at.
    fn process_message(&mut self, version: Version, now: Duration) -> bool {
        if self.updt_info {
            return false;
        }
        let Some(heard) = self.message.take() else { return false };
        match self.classify_message(&heard) {
            Meaning::Superior if self.is_guarded_from(&heard) => self.hold_port(now),
            Meaning::Superior => self.record_message(&heard, now),
            Meaning::Repeated => {
                self.record_proposal(&heard);
                self.set_tc_flags(&heard);
                self.restart_age(now);
            }
            Meaning::Inferior => self.record_dispute(&heard),
            Meaning::Answer => {
                self.record_agreement(&heard, version, now);
                self.set_tc_flags(&heard);
            }
            Meaning::Other => {}
        }
        true
    }

    /// 17.21.8: classifies a received message by its vector.
    fn classify_message(&self, heard: &ReceivedBpdu) -> Meaning {
        let (vector, times) =
            (Vector::from_bpdu(&heard.configuration), Times::from_bpdu(&heard.configuration));
        match heard.role() {
            BpduRole::Designated => {
                let is_same = vector == self.port_priority && times == self.port_times;
                if is_same && self.info == Info::Received {
                    Meaning::Repeated
                } else if vector < self.port_priority || vector.is_of_same_sender(&self.port_priority) {
                    Meaning::Superior
                } else {
                    Meaning::Inferior
                }
            }
            BpduRole::Root | BpduRole::Alternate if vector >= self.port_priority => Meaning::Answer,
            _ => Meaning::Other,
        }
    }

    /// Whether the port would have to lead to the root by this, which it must not.
    fn is_guarded_from(&self, heard: &ReceivedBpdu) -> bool {
        self.settings.root_guard && Vector::from_bpdu(&heard.configuration) < self.designated_priority
    }

    /// Keeps the port from forwarding until this has not been received three times.
    pub(super) fn hold_port(&mut self, now: Duration) {
        let hello = self.hello_time();
        self.held_while.set(now, 3 * hello);
        self.counters.held += 1;
    }

    fn record_message(&mut self, heard: &ReceivedBpdu, now: Duration) {
        let vector = Vector::from_bpdu(&heard.configuration);
        (self.agreed, self.proposing) = (false, false);
        self.record_proposal(heard);
        self.set_tc_flags(heard);
        self.agree &= self.info == Info::Received && vector <= self.port_priority;
        self.port_priority = vector;
        self.port_times = Times::from_bpdu(&heard.configuration);
        self.restart_age(now);
        self.info = Info::Received;
        self.mark_reselect();
    }

    /// 17.21.23: good for three repetitions, unless it has come too far.
    fn restart_age(&mut self, now: Duration) {
        match self.port_times.is_young() {
            true => self.rcvd_info_while.set(now, 3 * self.port_times.hello_time.duration()),
            false => self.rcvd_info_while.stop(),
        }
    }

    /// 17.21.11: records a proposal of the designated bridge.
    fn record_proposal(&mut self, heard: &ReceivedBpdu) {
        self.proposed |= heard.is_rapid && heard.configuration.flags.has(BpduFlags::PROPOSAL);
    }

    /// 17.21.9: records an agreement, unless it may be stale.
    fn record_agreement(&mut self, heard: &ReceivedBpdu, version: Version, now: Duration) {
        let agrees = heard.is_rapid && heard.configuration.flags.has(BpduFlags::AGREEMENT);
        let counts = agrees && version == Version::Rstp && self.is_point_to_point();
        self.is_stale_agreement |= counts && self.is_doubtful(now);
        self.agreed = counts && !self.is_doubtful(now);
        self.proposing &= !self.agreed;
    }

    /// Whether a received agreement may answer a better offer than the current one.
    fn is_doubtful(&self, now: Duration) -> bool {
        self.is_worse_than_sent() || !self.stale_while.is_over(now)
    }

    /// Whether the neighbor goes by a better offer.
    pub(super) fn is_worse_than_sent(&self) -> bool {
        self.last_sent.is_some_and(|told| self.designated_priority > told)
    }

    /// Requests an agreement again that was not believed.
    fn repeat_proposal(&mut self, now: Duration) -> bool {
        if !self.is_stale_agreement || self.is_doubtful(now) {
            return false;
        }
        self.is_stale_agreement = false;
        self.new_info |= self.proposing;
        true
    }

    /// 17.21.10: the other side takes itself for the better one, and learns already.
    fn record_dispute(&mut self, heard: &ReceivedBpdu) {
        if heard.is_rapid && heard.configuration.flags.has(BpduFlags::LEARNING) {
            (self.disputed, self.agreed) = (true, false);
        }
    }

    /// 17.21.17: takes over the topology change flags of a message.
    fn set_tc_flags(&mut self, heard: &ReceivedBpdu) {
        self.rcvd_tc |= heard.configuration.flags.has(BpduFlags::TOPOLOGY_CHANGE);
        self.rcvd_tc_ack |= heard.configuration.flags.has(BpduFlags::TOPOLOGY_CHANGE_ACK);
    }
}

impl ReceivedBpdu {
    /// Configurations of the old protocol come from designated ports only.
    fn role(&self) -> BpduRole {
        if self.is_rapid { self.configuration.flags.role() } else { BpduRole::Designated }
    }
}
