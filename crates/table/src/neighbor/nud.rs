//! How neighbors live, by the rules of Neighbor Unreachability Detection (RFC 4861, 7.2 and 7.3; RFC 7048): one state
//! machine for ARP ([`ArpProtocol`](super::arp::ArpProtocol)) and Neighbor Discovery ([`NdProtocol`](super::nd::NdProtocol)).
//!
//! What a neighbor says is good for about 30 s (REACHABLE); after that it is used as before (STALE), but its first use
//! begins to verify it: 5 s for something above to prove it (DELAY), then three questions to its link address, one a second
//! (PROBE). One that is silent is not used any more where a route has others. Packets still go to where it was while all
//! are asked, three times; then packets fail, and it is asked for ever more seldom until it answers. So a neighbor in use
//! that dies is noticed within 54 s, and senders hear of it within 57 s. A neighbor that nobody uses is forgotten after a
//! day, or 20 minutes in ARP.
//!
//! ARP has no flag that says whether a message is to override what is known. There, who claims the address of a known
//! neighbor is doubted, as a claim proves nothing (RFC 5227, 2.4): the neighbor is asked under the link address it had,
//! which stays in use. It keeps the address if it is heard. If it is silent, the other gets the address, and everyone is
//! asked next, so that the first answer corrects a claim that nobody stands behind.

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
    /// of it (6.3.2), for each answer anew, so that neighbors that answered together are not asked together.
    pub reachable: Duration,
    /// How long use may prove a stale neighbor before it is asked (RFC 4861, 10: `DELAY_FIRST_PROBE_TIME`).
    pub delay: Duration,
    /// How long a neighbor is kept that nobody uses (BSD: 86,400 s; for ARP `max_age`, 1200 s).
    pub garbage: Duration,
    /// How long after the last question for an unknown neighbor packets to it fail at once (BSD for ARP: `wait`, 20 s).
    /// With none, the next packet asks anew.
    pub negative: Duration,
    /// Whether a silent neighbor is asked for until it answers (RFC 7048, 3); else it is forgotten.
    pub keeps_unreachable: bool,
    /// Questions to all while packets still go to a silent neighbor; packets fail after that.
    pub unreachable_tries: u8,
    /// By what the time between later questions grows (RFC 7048, 4: `BACKOFF_MULTIPLE`).
    pub backoff: u32,
    /// The longest time between these questions (RFC 7048, 4: `MAX_RETRANS_TIMER`, 60 s).
    pub longest_retrans: Duration,
    /// How long a silent neighbor is asked for that nobody wants: long enough to bring next hops back that traffic has
    /// been led away from.
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
    Step { settings, entry, now, random, effects }.take(event);
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
    fn take(&mut self, event: Event) {
        match event {
            Event::Heard(heard) => self.heard(heard),
            _ if self.entry.is_static => {}
            Event::Packet => self.packet(),
            Event::Timer { used } if self.entry.is_due(self.now) => self.timer(used),
            Event::Timer { .. } => {}
            Event::Confirmed if self.entry.usable().is_some() => {
                self.end_doubt();
                self.reachable();
            }
            Event::Confirmed => {}
        }
    }

    fn packet(&mut self) {
        let is_due = self.entry.is_due(self.now);
        match self.entry.state {
            State::Incomplete if self.entry.asked == 0 || is_due => self.solicit_all(),
            State::Stale => self.delay(),
            State::Failed if self.entry.link.is_some() => self.wanted_again(is_due),
            _ => {}
        }
    }

    fn timer(&mut self, used: bool) {
        match self.entry.state {
            State::Incomplete => self.solicit_all(),
            State::Reachable => self.stale(),
            State::Stale if used => self.delay(),
            State::Delay => self.probe(),
            State::Probe => self.probe_again(),
            State::Unreachable => self.ask_all_or_fail(),
            State::Failed => self.still_failed(),
            State::Doubt => self.doubt(),
            State::Stale => self.effects.push(Effect::Expired),
        }
    }

    /// Asks for an unknown neighbor, or gives up (RFC 4861, 7.2.2).
    fn solicit_all(&mut self) {
        if self.entry.asked < self.settings.multicast_tries {
            self.ask(Ask::Everyone, self.settings.retrans);
        } else if self.settings.negative.is_zero() {
            self.effects.extend([Effect::Unreachable, Effect::Deleted]);
        } else {
            let end = self.entry.last_asked.unwrap_or(self.now).saturating_add(self.settings.negative);
            self.entry.state = State::Failed;
            (self.entry.deadline, self.entry.expires) = (Some(end), Some(end));
            self.effects.push(Effect::Unreachable);
        }
    }

    fn reachable(&mut self) {
        if self.entry.state == State::Unreachable {
            self.effects.push(Effect::Resolved);
        }
        let time = between_half_and_one_and_a_half(self.settings.reachable, self.random);
        self.known(State::Reachable, time);
        self.entry.last_heard = Some(self.now);
    }

    fn stale(&mut self) {
        self.known(State::Stale, self.settings.garbage);
        self.entry.expires = self.entry.deadline;
    }

    fn delay(&mut self) {
        self.known(State::Delay, self.settings.delay);
    }

    /// Goes to a state in which the link address is used and no question is open.
    fn known(&mut self, state: State, time: Duration) {
        self.entry.state = state;
        self.entry.asked = 0;
        self.entry.deadline = Some(self.now.saturating_add(time));
        self.entry.expires = None;
    }

    /// Begins to ask the neighbor itself (RFC 4861, 7.3.3).
    fn probe(&mut self) {
        self.entry.state = State::Probe;
        self.entry.asked = 0;
        self.probe_again();
    }

    fn probe_again(&mut self) {
        match self.entry.link {
            Some(link) if self.entry.asked < self.settings.unicast_tries => {
                self.ask(Ask::Unicast(link), self.settings.retrans);
            }
            _ if self.settings.keeps_unreachable => self.unreachable(),
            _ => self.effects.extend([Effect::Unreachable, Effect::Deleted]),
        }
    }

    /// Takes the neighbor for one that has moved, or is silent for a while (RFC 7048, 3).
    fn unreachable(&mut self) {
        self.entry.state = State::Unreachable;
        self.effects.push(Effect::Unreachable);
        self.ask_all_or_fail();
    }

    /// Asks all where a silent neighbor is, a few times; then packets to it fail.
    fn ask_all_or_fail(&mut self) {
        if self.asked_all() < u32::from(self.settings.unreachable_tries) {
            return self.ask(Ask::Everyone, self.settings.retrans);
        }
        self.entry.state = State::Failed;
        self.entry.expires = Some(self.now.saturating_add(self.settings.unreachable));
        self.ask_more_seldom();
    }

    /// How often all were asked for a silent neighbor.
    fn asked_all(&self) -> u32 {
        self.entry.asked.saturating_sub(self.settings.unicast_tries).into()
    }

    /// A packet, or a route, wants a neighbor that packets fail to reach.
    fn wanted_again(&mut self, is_due: bool) {
        let end = Some(self.now.saturating_add(self.settings.unreachable));
        self.entry.expires = self.entry.expires.max(end);
        if is_due {
            self.ask_more_seldom();
        }
    }

    fn still_failed(&mut self) {
        let was_known = self.entry.link.is_some();
        if was_known && self.entry.expires.is_some_and(|end| self.now < end) {
            self.ask_more_seldom();
        } else {
            self.effects.push(Effect::Deleted);
        }
    }

    fn ask_more_seldom(&mut self) {
        let questions = self.asked_all().saturating_sub(self.settings.unreachable_tries.into()) + 1;
        let grown = self.settings.retrans.saturating_mul(self.settings.backoff.saturating_pow(questions));
        let longest = self.settings.longest_retrans;
        let time = between_half_and_one_and_a_half(grown.min(longest), self.random).min(longest);
        self.ask(Ask::Everyone, time.max(self.settings.retrans));
        self.entry.expires = self.entry.expires.max(self.entry.deadline);
    }

    fn ask(&mut self, to: Ask, until_next: Duration) {
        self.entry.asked = self.entry.asked.saturating_add(1);
        self.entry.last_asked = Some(self.now);
        self.entry.deadline = Some(self.now.saturating_add(until_next));
        self.effects.push(Effect::Ask(to));
    }

    fn heard(&mut self, heard: Heard) {
        if self.entry.is_static {
            return self.heard_of_static(heard);
        }
        if self.is_doubted(heard) {
            return;
        }
        match heard.kind {
            HeardKind::Solicitation => self.solicitation(heard),
            HeardKind::Advertisement { solicited, overrides } => {
                self.advertisement(heard, solicited, overrides)
            }
            HeardKind::Unsolicited => self.advertisement(heard, false, true),
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
        self.claimed(kept, to);
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
        self.stale();
    }

    /// Says whether a message answers the question to all that follows a claim, and may so correct it.
    fn is_answer_to_all(&self, heard: Heard) -> bool {
        let were_asked = self.entry.state == State::Reachable && self.entry.asked > 0;
        let limit = self.entry.last_asked.map(|asked| asked.saturating_add(self.settings.doubt));
        let is_late = limit.is_none_or(|limit| self.now > limit);
        matches!(heard.kind, HeardKind::Advertisement { .. }) && were_asked && !is_late
    }

    /// Another link address is claimed: the neighbor is to be asked. The last of several claims counts.
    fn claimed(&mut self, kept: EtherAddr, to: EtherAddr) {
        if self.entry.offered.replace(to).is_some() {
            return;
        }
        self.effects.push(Effect::Doubted { kept, offered: to });
        // Other requests don't count: what they asked may be answered long ago.
        let turn = self.turn(self.entry.last_doubted);
        self.known(State::Doubt, turn.saturating_sub(self.now));
        if turn == self.now {
            self.doubt();
        }
    }

    /// The steps of a doubt: the neighbor is asked; it was silent, the other has the address; everyone is asked.
    fn doubt(&mut self) {
        let Some(link) = self.entry.link else { return };
        match self.entry.offered {
            Some(_) if self.entry.asked == 0 => {
                self.entry.last_doubted = Some(self.now);
                self.ask(Ask::Unicast(link), self.settings.doubt);
            }
            Some(to) => {
                self.effects.push(Effect::Moved { from: link, to });
                let turn = self.turn(self.entry.last_asked);
                self.known(State::Doubt, turn.saturating_sub(self.now));
                (self.entry.link, self.entry.offered) = (Some(to), None);
                self.entry.last_heard = Some(self.now);
            }
            None => {
                self.reachable();
                let good = self.entry.deadline;
                self.ask(Ask::Everyone, self.settings.doubt);
                self.entry.deadline = good;
            }
        }
    }

    /// When a neighbor may be asked next that was asked then.
    fn turn(&self, asked: Option<Duration>) -> Duration {
        asked.map_or(self.now, |asked| asked.saturating_add(self.settings.retrans).max(self.now))
    }

    fn heard_of_static(&mut self, heard: Heard) {
        if let (Some(kept), Some(offered)) = (self.entry.link, heard.link)
            && kept != offered
        {
            self.effects.push(Effect::Refused { kept, offered });
        }
        self.router(heard);
    }

    /// A message by the way: its link address is taken, and proves nothing (RFC 4861, 7.2.3).
    fn solicitation(&mut self, heard: Heard) {
        match heard.link {
            Some(link) if self.entry.usable() != Some(link) => {
                self.take_link(link);
                self.stale();
            }
            _ => {}
        }
        self.router(heard);
    }

    /// RFC 4861, 7.2.5, and RFC 9131, 4.1 for a neighbor that nobody asked for.
    fn advertisement(&mut self, heard: Heard, solicited: bool, overrides: bool) {
        match (self.entry.usable(), heard.link) {
            (None, None) => return,
            (None, Some(link)) => {
                let is_answer = solicited && self.entry.asked > 0;
                self.take_link(link);
                if is_answer { self.reachable() } else { self.stale() }
            }
            (Some(known), Some(link)) if known != link && !overrides => {
                // Doubt is all that such a message may raise.
                if self.entry.state == State::Reachable {
                    self.stale();
                }
                return;
            }
            (Some(known), link) => {
                let moved = link.filter(|&link| link != known);
                if let Some(link) = moved {
                    self.take_link(link);
                }
                match (solicited, moved) {
                    (true, _) => self.reachable(),
                    (false, Some(_)) => self.stale(),
                    (false, None) => {}
                }
            }
        }
        self.router(heard);
    }

    fn take_link(&mut self, to: EtherAddr) {
        self.effects.push(match self.entry.usable() {
            Some(from) => Effect::Moved { from, to },
            None => Effect::Resolved,
        });
        // What it was asked before, it need not be told of.
        self.entry.state = State::Stale;
        (self.entry.link, self.entry.offered) = (Some(to), None);
        self.entry.last_heard = Some(self.now);
    }

    fn router(&mut self, heard: Heard) {
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
