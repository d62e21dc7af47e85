//! The life of a neighbor entry, by the rules of Neighbor Unreachability Detection (RFC 4861, 7.2 and 7.3;
//! RFC 7048): one state machine for ARP ([`ArpProtocol`](super::arp::ArpProtocol)) and Neighbor Discovery
//! ([`NdProtocol`](super::nd::NdProtocol)).
//!
//! A confirmation is good for about 30 s (REACHABLE); after that the link address is used as before (STALE),
//! but its first use begins to verify it: 5 s for an upper layer to confirm it (DELAY), then three unicast
//! solicitations, one a second (PROBE). A neighbor that does not answer is no longer used by routes that have
//! others. Packets still go to its last address during three multicast solicitations; then packets fail, and
//! solicitations become rarer until it answers. So a neighbor in use that dies is noticed within 54 s, and
//! senders get an error within 57 s. An unused neighbor is removed after a day, or 20 minutes in ARP.
//!
//! ARP has no override flag. There, a claim to the address of a known neighbor is verified first, since it
//! proves nothing (RFC 5227, 2.4): the neighbor is solicited at its old link address, which stays in use. If
//! it answers, it keeps the address. If it does not, the claimant gets the address, and a broadcast
//! solicitation follows, so that an answer corrects a false claim.

use super::protocol::{
    Effect, Event, NeighborEntry, NeighborUpdate, NeighborUpdateKind, SolicitTarget, State,
};
use artery_wire::EtherAddr;
use artery_wire::Random;
use std::time::Duration;

/// Timers and retry counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NudSettings {
    /// Multicast solicitations for an unknown neighbor (RFC 4861, 10: `MAX_MULTICAST_SOLICIT`, 3; BSD
    /// for ARP: `maxtries`, 5).
    pub multicast_tries: u8,
    /// Unicast solicitations of a neighbor that must be verified (RFC 4861, 10: `MAX_UNICAST_SOLICIT`).
    pub unicast_tries: u8,
    /// Time between two solicitations (RFC 4861, 10: `RETRANS_TIMER`; RFC 1122, 2.3.2.1 for
    /// ARP: one per second).
    pub retrans: Duration,
    /// How long a confirmation is good, on average (RFC 4861, 10: `REACHABLE_TIME`); drawn
    /// between half and one and a half of it (6.3.2) for each, so that neighbors confirmed
    /// together are not solicited together.
    pub reachable: Duration,
    /// How long an upper layer may confirm a stale neighbor in use before it is solicited
    /// (RFC 4861, 10: `DELAY_FIRST_PROBE_TIME`).
    pub delay: Duration,
    /// How long an unused neighbor is kept (BSD: 86,400 s; for ARP `max_age`, 1200 s).
    pub garbage: Duration,
    /// How long after the last solicitation of an unknown neighbor packets to it fail at once (BSD for ARP:
    /// `wait`, 20 s). With zero, the next packet starts solicitation again.
    pub negative: Duration,
    /// Whether a neighbor that does not answer is solicited until it does (RFC 7048, 3); else it is removed.
    pub keeps_unreachable: bool,
    /// Multicast solicitations while packets still go to an unreachable neighbor; packets fail after that.
    pub unreachable_tries: u8,
    /// Factor by which the time between later solicitations grows (RFC 7048, 4: `BACKOFF_MULTIPLE`).
    pub backoff: u32,
    /// The longest time between these solicitations (RFC 7048, 4: `MAX_RETRANS_TIMER`, 60 s).
    pub longest_retrans: Duration,
    /// How long an unreachable, unused neighbor is solicited: long enough to bring back next hops that
    /// traffic no longer uses.
    pub unreachable: Duration,
    /// Whether unsolicited messages make neighbors known (RFC 9131, 4.1: for routers).
    pub learns_unsolicited: bool,
    /// How long a known neighbor has to answer when another link address is claimed for it: long enough for
    /// a host, short beside the time in which a standby router takes over. With none, what a message says
    /// is believed at once.
    pub doubt: Duration,
}

impl NudSettings {
    /// Those of Neighbor Discovery.
    pub const fn nd() -> NudSettings {
        NudSettings {
            multicast_tries: 3,
            unicast_tries: 3,
            retrans: Duration::from_secs(1),
            reachable: Duration::from_secs(30),
            delay: Duration::from_secs(5),
            garbage: Duration::from_secs(86_400),
            negative: Duration::ZERO,
            keeps_unreachable: true,
            unreachable_tries: 3,
            backoff: 3,
            longest_retrans: Duration::from_secs(60),
            unreachable: Duration::from_secs(600),
            learns_unsolicited: true,
            doubt: Duration::ZERO,
        }
    }

    /// Those of ARP, where hosts that come back do not announce themselves: an unreachable one
    /// is solicited more often.
    pub const fn arp() -> NudSettings {
        NudSettings {
            multicast_tries: 5,
            garbage: Duration::from_secs(1200),
            negative: Duration::from_secs(20),
            longest_retrans: Duration::from_secs(5),
            learns_unsolicited: false,
            doubt: Duration::from_millis(200),
            ..NudSettings::nd()
        }
    }
}

/// Lets an event happen to an entry; see [`Protocol::step`](super::Protocol::step).
pub(super) fn step(
    settings: &NudSettings,
    entry: &mut NeighborEntry,
    event: Event,
    now: Duration,
    random: &mut Random,
    effects: &mut Vec<Effect>,
) {
    Step { settings, entry, now, random, effects }.handle_event(event);
}

/// One event and all that it may touch.
struct Step<'a> {
    settings: &'a NudSettings,
    entry: &'a mut NeighborEntry,
    now: Duration,
    random: &'a mut Random,
    effects: &'a mut Vec<Effect>,
}

impl Step<'_> {
    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Learned(heard) => self.handle_message(heard),
            _ if self.entry.is_static => {}
            Event::Packet => self.handle_packet(),
            Event::Timer { used } if self.entry.is_due(self.now) => self.handle_timer(used),
            Event::Timer { .. } => {}
            Event::Confirmed if self.entry.usable_link().is_some() => {
                self.end_doubt();
                self.enter_reachable();
            }
            Event::Confirmed => {}
        }
    }

    fn handle_packet(&mut self) {
        let is_due = self.entry.is_due(self.now);
        match self.entry.state {
            State::Incomplete if self.entry.asked == 0 || is_due => self.solicit_all(),
            State::Stale => self.enter_delay(),
            State::Failed if self.entry.link.is_some() => self.continue_soliciting(is_due),
            _ => {}
        }
    }

    fn handle_timer(&mut self, used: bool) {
        match self.entry.state {
            State::Incomplete => self.solicit_all(),
            State::Reachable => self.enter_stale(),
            State::Stale if used => self.enter_delay(),
            State::Delay => self.enter_probe(),
            State::Probe => self.send_probe(),
            State::Unreachable => self.solicit_all_or_fail(),
            State::Failed => self.handle_failed_timer(),
            State::Contested => self.continue_doubt(),
            State::Stale => self.effects.push(Effect::Expired),
        }
    }

    /// Solicits an unknown neighbor, or gives up (RFC 4861, 7.2.2).
    fn solicit_all(&mut self) {
        if self.entry.asked < self.settings.multicast_tries {
            self.send_solicit(SolicitTarget::Multicast, self.settings.retrans);
        } else if self.settings.negative.is_zero() {
            self.effects.extend([Effect::Unreachable, Effect::Deleted]);
        } else {
            let end = self.entry.last_asked.unwrap_or(self.now).saturating_add(self.settings.negative);
            self.entry.state = State::Failed;
            (self.entry.deadline, self.entry.expires) = (Some(end), Some(end));
            self.effects.push(Effect::Unreachable);
        }
    }

    fn enter_reachable(&mut self) {
        if self.entry.state == State::Unreachable {
            self.effects.push(Effect::Resolved);
        }
        let time = between_half_and_one_and_a_half(self.settings.reachable, self.random);
        self.enter_known_state(State::Reachable, time);
        self.entry.last_heard = Some(self.now);
    }

    fn enter_stale(&mut self) {
        self.enter_known_state(State::Stale, self.settings.garbage);
        self.entry.expires = self.entry.deadline;
    }

    fn enter_delay(&mut self) {
        self.enter_known_state(State::Delay, self.settings.delay);
    }

    /// Goes to a state in which the link address is used and no solicitation is pending.
    fn enter_known_state(&mut self, state: State, time: Duration) {
        self.entry.state = state;
        self.entry.asked = 0;
        self.entry.deadline = Some(self.now.saturating_add(time));
        self.entry.expires = None;
    }

    /// Begins to ask the neighbor itself (RFC 4861, 7.3.3).
    fn enter_probe(&mut self) {
        self.entry.state = State::Probe;
        self.entry.asked = 0;
        self.send_probe();
    }

    fn send_probe(&mut self) {
        match self.entry.link {
            Some(link) if self.entry.asked < self.settings.unicast_tries => {
                self.send_solicit(SolicitTarget::Unicast(link), self.settings.retrans);
            }
            _ if self.settings.keeps_unreachable => self.enter_unreachable(),
            _ => self.effects.extend([Effect::Unreachable, Effect::Deleted]),
        }
    }

    /// Takes the neighbor for one that has moved, or is silent for a while (RFC 7048, 3).
    fn enter_unreachable(&mut self) {
        self.entry.state = State::Unreachable;
        self.effects.push(Effect::Unreachable);
        self.solicit_all_or_fail();
    }

    /// Multicasts solicitations for an unreachable neighbor, a few times; then packets to it fail.
    fn solicit_all_or_fail(&mut self) {
        if self.multicast_count() < u32::from(self.settings.unreachable_tries) {
            return self.send_solicit(SolicitTarget::Multicast, self.settings.retrans);
        }
        self.entry.state = State::Failed;
        self.entry.expires = Some(self.now.saturating_add(self.settings.unreachable));
        self.solicit_less_often();
    }

    /// Number of multicast solicitations sent for an unreachable neighbor.
    fn multicast_count(&self) -> u32 {
        self.entry.asked.saturating_sub(self.settings.unicast_tries).into()
    }

    /// A packet, or a route, wants a neighbor that packets fail to reach.
    fn continue_soliciting(&mut self, is_due: bool) {
        let end = Some(self.now.saturating_add(self.settings.unreachable));
        self.entry.expires = self.entry.expires.max(end);
        if is_due {
            self.solicit_less_often();
        }
    }

    fn handle_failed_timer(&mut self) {
        let was_known = self.entry.link.is_some();
        if was_known && self.entry.expires.is_some_and(|end| self.now < end) {
            self.solicit_less_often();
        } else {
            self.effects.push(Effect::Deleted);
        }
    }

    fn solicit_less_often(&mut self) {
        let questions = self.multicast_count().saturating_sub(self.settings.unreachable_tries.into()) + 1;
        let grown = self.settings.retrans.saturating_mul(self.settings.backoff.saturating_pow(questions));
        let longest = self.settings.longest_retrans;
        let time = between_half_and_one_and_a_half(grown.min(longest), self.random).min(longest);
        self.send_solicit(SolicitTarget::Multicast, time.max(self.settings.retrans));
        self.entry.expires = self.entry.expires.max(self.entry.deadline);
    }

    fn send_solicit(&mut self, to: SolicitTarget, until_next: Duration) {
        self.entry.asked = self.entry.asked.saturating_add(1);
        self.entry.last_asked = Some(self.now);
        self.entry.deadline = Some(self.now.saturating_add(until_next));
        self.effects.push(Effect::Solicit(to));
    }

    fn handle_message(&mut self, heard: NeighborUpdate) {
        if self.entry.is_static {
            return self.handle_message_of_static(heard);
        }
        if self.is_doubted(heard) {
            return;
        }
        match heard.kind {
            NeighborUpdateKind::Solicitation => self.handle_solicitation(heard),
            NeighborUpdateKind::Advertisement { solicited, overrides } => {
                self.handle_advertisement(heard, solicited, overrides)
            }
            NeighborUpdateKind::Unsolicited => self.handle_advertisement(heard, false, true),
        }
    }

    /// Says whether a message claims the address of a known neighbor for another, which is looked into first.
    fn is_doubted(&mut self, heard: NeighborUpdate) -> bool {
        let (Some(kept), Some(to)) = (self.entry.usable_link(), heard.link) else { return false };
        if kept == to {
            self.end_doubt();
            return false;
        }
        // Multicast solicitations were sent for an unreachable one: whoever answers has the address.
        let is_silent = self.entry.state == State::Unreachable;
        if self.settings.doubt.is_zero() || is_silent || self.is_answer_to_all(heard) {
            return false;
        }
        self.begin_doubt(kept, to);
        true
    }

    /// The neighbor's known link address was confirmed.
    fn end_doubt(&mut self) {
        if self.entry.state != State::Contested {
            return;
        }
        if let (Some(kept), Some(offered)) = (self.entry.link, self.entry.offered.take()) {
            self.effects.push(Effect::Refused { kept, offered });
        }
        self.enter_stale();
    }

    /// Says whether a message answers the multicast solicitation after a claim, and may so correct the claim.
    fn is_answer_to_all(&self, heard: NeighborUpdate) -> bool {
        let were_asked = self.entry.state == State::Reachable && self.entry.asked > 0;
        let limit = self.entry.last_asked.map(|asked| asked.saturating_add(self.settings.doubt));
        let is_late = limit.is_none_or(|limit| self.now > limit);
        matches!(heard.kind, NeighborUpdateKind::Advertisement { .. }) && were_asked && !is_late
    }

    /// Another link address is claimed: the neighbor is to be solicited. The last of several claims counts.
    fn begin_doubt(&mut self, kept: EtherAddr, to: EtherAddr) {
        if self.entry.offered.replace(to).is_some() {
            return;
        }
        self.effects.push(Effect::Doubted { kept, offered: to });
        // Other solicitations don't count: they may have been answered long ago.
        let turn = self.earliest_question(self.entry.last_doubted);
        self.enter_known_state(State::Contested, turn.saturating_sub(self.now));
        if turn == self.now {
            self.continue_doubt();
        }
    }

    /// The steps of a contested address: the neighbor is solicited; it did not answer, so the other has the
    /// address; everyone is solicited.
    fn continue_doubt(&mut self) {
        let Some(link) = self.entry.link else { return };
        match self.entry.offered {
            Some(_) if self.entry.asked == 0 => {
                self.entry.last_doubted = Some(self.now);
                self.send_solicit(SolicitTarget::Unicast(link), self.settings.doubt);
            }
            Some(to) => {
                self.effects.push(Effect::Moved { from: link, to });
                let turn = self.earliest_question(self.entry.last_asked);
                self.enter_known_state(State::Contested, turn.saturating_sub(self.now));
                (self.entry.link, self.entry.offered) = (Some(to), None);
                self.entry.last_heard = Some(self.now);
            }
            None => {
                self.enter_reachable();
                let good = self.entry.deadline;
                self.send_solicit(SolicitTarget::Multicast, self.settings.doubt);
                self.entry.deadline = good;
            }
        }
    }

    /// When a neighbor may be solicited again that was solicited at this time.
    fn earliest_question(&self, asked: Option<Duration>) -> Duration {
        asked.map_or(self.now, |asked| asked.saturating_add(self.settings.retrans).max(self.now))
    }

    fn handle_message_of_static(&mut self, heard: NeighborUpdate) {
        if let (Some(kept), Some(offered)) = (self.entry.link, heard.link)
            && kept != offered
        {
            self.effects.push(Effect::Refused { kept, offered });
        }
        self.update_router_flag(heard);
    }

    /// A source link address in another message: it is taken, and proves nothing (RFC 4861, 7.2.3).
    fn handle_solicitation(&mut self, heard: NeighborUpdate) {
        match heard.link {
            Some(link) if self.entry.usable_link() != Some(link) => {
                self.set_link(link);
                self.enter_stale();
            }
            _ => {}
        }
        self.update_router_flag(heard);
    }

    /// RFC 4861, 7.2.5, and RFC 9131, 4.1 for unsolicited advertisements of unknown neighbors.
    fn handle_advertisement(&mut self, heard: NeighborUpdate, solicited: bool, overrides: bool) {
        match (self.entry.usable_link(), heard.link) {
            (None, None) => return,
            (None, Some(link)) => {
                let is_answer = solicited && self.entry.asked > 0;
                self.set_link(link);
                if is_answer { self.enter_reachable() } else { self.enter_stale() }
            }
            (Some(known), Some(link)) if known != link && !overrides => {
                // Such a message may only make the entry contested.
                if self.entry.state == State::Reachable {
                    self.enter_stale();
                }
                return;
            }
            (Some(known), link) => {
                let moved = link.filter(|&link| link != known);
                if let Some(link) = moved {
                    self.set_link(link);
                }
                match (solicited, moved) {
                    (true, _) => self.enter_reachable(),
                    (false, Some(_)) => self.enter_stale(),
                    (false, None) => {}
                }
            }
        }
        self.update_router_flag(heard);
    }

    fn set_link(&mut self, to: EtherAddr) {
        self.effects.push(match self.entry.usable_link() {
            Some(from) => Effect::Moved { from, to },
            None => Effect::Resolved,
        });
        // So that a change to REACHABLE does not report the neighbor as resolved a second time.
        self.entry.state = State::Stale;
        (self.entry.link, self.entry.offered) = (Some(to), None);
        self.entry.last_heard = Some(self.now);
    }

    fn update_router_flag(&mut self, heard: NeighborUpdate) {
        let Some(is_router) = heard.router else { return };
        if self.entry.is_router && !is_router {
            self.effects.push(Effect::NoLongerRouter);
        }
        self.entry.is_router = is_router;
    }
}

/// Draws a time so that many don't end together (RFC 4861, 10: `MIN_RANDOM_FACTOR`, `MAX_RANDOM_FACTOR`).
fn between_half_and_one_and_a_half(time: Duration, random: &mut Random) -> Duration {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2);
    (time / 2).saturating_add(Duration::from_nanos(random.below(nanoseconds.saturating_add(1))))
}
