//! How neighbors live, by the rules of Neighbor Unreachability Detection (RFC 4861, 7.2 and 7.3; RFC 7048): one state
//! machine for ARP ([`ArpProtocol`](super::arp::ArpProtocol)) and Neighbor Discovery ([`NdProtocol`](super::nd::NdProtocol)).
//!
//! What a neighbor says is good for about 30 s (REACHABLE); after that it is used as before (STALE), but its first use
//! begins to verify it: 5 s for something above to prove it (DELAY), then three questions to its link address, one a second
//! (PROBE). A silent neighbor is no longer used by routes that have others. Packets still go to its last
//! address while everyone is asked, three times; then packets fail, and the questions become rarer until it
//! answers. So a neighbor in use that dies is noticed within 54 s, and senders get an error within 57 s. An
//! unused neighbor is removed after a day, or 20 minutes in ARP.
//!
//! ARP has no override flag. There, a claim to the address of a known neighbor is verified first, since it
//! proves nothing (RFC 5227, 2.4): the neighbor is asked under its old link address, which stays in use. If
//! it answers, it keeps the address. If it is silent, the claimant gets the address, and everyone is asked,
//! so that an answer corrects a false claim.

use super::protocol::{Ask, Effect, Entry, Event, Heard, HeardKind, State};
use crate::synthetic::Random;
use artery_wire::EtherAddr;
use std::time::Duration;

/// How long things last, and how often they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NudSettings {
    /// Questions to all for an unknown neighbor (RFC 4861, 10: `MAX_MULTICAST_SOLICIT`, 3; BSD for ARP: `maxtries`, 5).
    pub multicast_tries: u8,
    /// Questions to the link address of a doubtful one (RFC 4861, 10: `MAX_UNICAST_SOLICIT`).
    pub unicast_tries: u8,
    /// Time between two questions (RFC 4861, 10: `RETRANS_TIMER`; RFC 1122, 2.3.2.1 for ARP: one per second).
    pub retrans: Duration,
    /// How long an answer is good, on average (RFC 4861, 10: `REACHABLE_TIME`); drawn between half and one and a half
    /// of it (6.3.2) for each answer, so that neighbors that answered together are not asked together.
    pub reachable: Duration,
    /// How long use may prove a stale neighbor before it is asked (RFC 4861, 10: `DELAY_FIRST_PROBE_TIME`).
    pub delay: Duration,
    /// How long an unused neighbor is kept (BSD: 86,400 s; for ARP `max_age`, 1200 s).
    pub garbage: Duration,
    /// How long after the last question for an unknown neighbor packets to it fail at once (BSD for ARP: `wait`, 20 s).
    /// With zero, the next packet starts the questions again.
    pub negative: Duration,
    /// Whether a silent neighbor is asked for until it answers (RFC 7048, 3); else it is forgotten.
    pub keeps_unreachable: bool,
    /// Questions to all while packets still go to a silent neighbor; packets fail after that.
    pub unreachable_tries: u8,
    /// By what the time between later questions grows (RFC 7048, 4: `BACKOFF_MULTIPLE`).
    pub backoff: u32,
    /// The longest time between these questions (RFC 7048, 4: `MAX_RETRANS_TIMER`, 60 s).
    pub longest_retrans: Duration,
    /// How long a silent, unused neighbor is asked for: long enough to bring back next hops that
    /// traffic no longer goes by.
    pub unreachable: Duration,
    /// Whether neighbors become known that say so unasked (RFC 9131, 4.1: for routers).
    pub learns_unsolicited: bool,
    /// How long a known neighbor has to answer when another link address is claimed for it: long enough for a host, short
    /// beside the time in which a standby router takes over. With none, what a message says is believed at once.
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

    /// Those of ARP, where hosts say nothing of themselves when they come back: a silent one is asked for more often.
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
    entry: &mut Entry,
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
    entry: &'a mut Entry,
    now: Duration,
    random: &'a mut Random,
    effects: &'a mut Vec<Effect>,
}

impl Step<'_> {
    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Heard(heard) => self.handle_message(heard),
            _ if self.entry.is_static => {}
            Event::Packet => self.handle_packet(),
            Event::Timer { used } if self.entry.is_due(self.now) => self.handle_timer(used),
            Event::Timer { .. } => {}
            Event::Confirmed if self.entry.usable().is_some() => {
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
            State::Failed if self.entry.link.is_some() => self.keep_soliciting(is_due),
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
            State::Doubt => self.continue_doubt(),
            State::Stale => self.effects.push(Effect::Expired),
        }
    }

    /// Asks for an unknown neighbor, or gives up (RFC 4861, 7.2.2).
    fn solicit_all(&mut self) {
        if self.entry.asked < self.settings.multicast_tries {
            self.solicit(Ask::Everyone, self.settings.retrans);
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

    /// Goes to a state in which the link address is used and no question is open.
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
                self.solicit(Ask::Unicast(link), self.settings.retrans);
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

    /// Asks all where a silent neighbor is, a few times; then packets to it fail.
    fn solicit_all_or_fail(&mut self) {
        if self.multicast_count() < u32::from(self.settings.unreachable_tries) {
            return self.solicit(Ask::Everyone, self.settings.retrans);
        }
        self.entry.state = State::Failed;
        self.entry.expires = Some(self.now.saturating_add(self.settings.unreachable));
        self.solicit_less_often();
    }

    /// How often all were asked for a silent neighbor.
    fn multicast_count(&self) -> u32 {
        self.entry.asked.saturating_sub(self.settings.unicast_tries).into()
    }

    /// A packet, or a route, wants a neighbor that packets fail to reach.
    fn keep_soliciting(&mut self, is_due: bool) {
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
        self.solicit(Ask::Everyone, time.max(self.settings.retrans));
        self.entry.expires = self.entry.expires.max(self.entry.deadline);
    }

    fn solicit(&mut self, to: Ask, until_next: Duration) {
        self.entry.asked = self.entry.asked.saturating_add(1);
        self.entry.last_asked = Some(self.now);
        self.entry.deadline = Some(self.now.saturating_add(until_next));
        self.effects.push(Effect::Ask(to));
    }

    fn handle_message(&mut self, heard: Heard) {
        if self.entry.is_static {
            return self.handle_message_of_static(heard);
        }
        if self.is_doubted(heard) {
            return;
        }
        match heard.kind {
            HeardKind::Solicitation => self.handle_solicitation(heard),
            HeardKind::Advertisement { solicited, overrides } => {
                self.handle_advertisement(heard, solicited, overrides)
            }
            HeardKind::Unsolicited => self.handle_advertisement(heard, false, true),
        }
    }

    /// Says whether a message claims the address of a known neighbor for another, which is looked into first.
    fn is_doubted(&mut self, heard: Heard) -> bool {
        let (Some(kept), Some(to)) = (self.entry.usable(), heard.link) else { return false };
        if kept == to {
            self.end_doubt();
            return false;
        }
        // All were asked where a silent one is: whoever speaks has it.
        let is_silent = self.entry.state == State::Unreachable;
        if self.settings.doubt.is_zero() || is_silent || self.is_answer_to_all(heard) {
            return false;
        }
        self.begin_doubt(kept, to);
        true
    }

    /// The neighbor was heard where it is.
    fn end_doubt(&mut self) {
        if self.entry.state != State::Doubt {
            return;
        }
        if let (Some(kept), Some(offered)) = (self.entry.link, self.entry.offered.take()) {
            self.effects.push(Effect::Refused { kept, offered });
        }
        self.enter_stale();
    }

    /// Says whether a message answers the question to all that follows a claim, and may so correct it.
    fn is_answer_to_all(&self, heard: Heard) -> bool {
        let were_asked = self.entry.state == State::Reachable && self.entry.asked > 0;
        let limit = self.entry.last_asked.map(|asked| asked.saturating_add(self.settings.doubt));
        let is_late = limit.is_none_or(|limit| self.now > limit);
        matches!(heard.kind, HeardKind::Advertisement { .. }) && were_asked && !is_late
    }

    /// Another link address is claimed: the neighbor is to be asked. The last of several claims counts.
    fn begin_doubt(&mut self, kept: EtherAddr, to: EtherAddr) {
        if self.entry.offered.replace(to).is_some() {
            return;
        }
        self.effects.push(Effect::Doubted { kept, offered: to });
        // Other requests don't count: what they asked may be answered long ago.
        let turn = self.earliest_question(self.entry.last_doubted);
        self.enter_known_state(State::Doubt, turn.saturating_sub(self.now));
        if turn == self.now {
            self.continue_doubt();
        }
    }

    /// The steps of a doubt: the neighbor is asked; it was silent, the other has the address; everyone is asked.
    fn continue_doubt(&mut self) {
        let Some(link) = self.entry.link else { return };
        match self.entry.offered {
            Some(_) if self.entry.asked == 0 => {
                self.entry.last_doubted = Some(self.now);
                self.solicit(Ask::Unicast(link), self.settings.doubt);
            }
            Some(to) => {
                self.effects.push(Effect::Moved { from: link, to });
                let turn = self.earliest_question(self.entry.last_asked);
                self.enter_known_state(State::Doubt, turn.saturating_sub(self.now));
                (self.entry.link, self.entry.offered) = (Some(to), None);
                self.entry.last_heard = Some(self.now);
            }
            None => {
                self.enter_reachable();
                let good = self.entry.deadline;
                self.solicit(Ask::Everyone, self.settings.doubt);
                self.entry.deadline = good;
            }
        }
    }

    /// When a neighbor may be asked next that was asked then.
    fn earliest_question(&self, asked: Option<Duration>) -> Duration {
        asked.map_or(self.now, |asked| asked.saturating_add(self.settings.retrans).max(self.now))
    }

    fn handle_message_of_static(&mut self, heard: Heard) {
        if let (Some(kept), Some(offered)) = (self.entry.link, heard.link)
            && kept != offered
        {
            self.effects.push(Effect::Refused { kept, offered });
        }
        self.update_router_flag(heard);
    }

    /// A message by the way: its link address is taken, and proves nothing (RFC 4861, 7.2.3).
    fn handle_solicitation(&mut self, heard: Heard) {
        match heard.link {
            Some(link) if self.entry.usable() != Some(link) => {
                self.set_link(link);
                self.enter_stale();
            }
            _ => {}
        }
        self.update_router_flag(heard);
    }

    /// RFC 4861, 7.2.5, and RFC 9131, 4.1 for unsolicited advertisements of unknown neighbors.
    fn handle_advertisement(&mut self, heard: Heard, solicited: bool, overrides: bool) {
        match (self.entry.usable(), heard.link) {
            (None, None) => return,
            (None, Some(link)) => {
                let is_answer = solicited && self.entry.asked > 0;
                self.set_link(link);
                if is_answer { self.enter_reachable() } else { self.enter_stale() }
            }
            (Some(known), Some(link)) if known != link && !overrides => {
                // Doubt is all that such a message may raise.
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
        self.effects.push(match self.entry.usable() {
            Some(from) => Effect::Moved { from, to },
            None => Effect::Resolved,
        });
        // So that a change to REACHABLE does not report the neighbor as resolved a second time.
        self.entry.state = State::Stale;
        (self.entry.link, self.entry.offered) = (Some(to), None);
        self.entry.last_heard = Some(self.now);
    }

    fn update_router_flag(&mut self, heard: Heard) {
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
