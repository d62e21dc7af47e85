//! How neighbors live in Neighbor Discovery (RFC 4861, 7.2 and 7.3; RFC 7048; RFC 9131).
//!
//! What a neighbor says is good for about 30 s; after that it is used as before, but its first use begins to doubt
//! it: 5 s for something above to prove it, three questions to its link address, and then questions to all, ever more
//! seldom, while packets still go to where it was. A neighbor that nobody uses is forgotten after a day.

use super::protocol::{Ask, Effect, Entry, Event, Heard, HeardKind, Protocol, State};
use crate::synthetic::Random;
use artery_wire::EtherAddr;
use std::time::Duration;

/// How long things last in Neighbor Discovery, and how often they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdSettings {
    /// Questions to all for an unknown neighbor (RFC 4861, 10: `MAX_MULTICAST_SOLICIT`).
    pub multicast_tries: u8,
    /// Questions to the link address of a doubtful one (RFC 4861, 10: `MAX_UNICAST_SOLICIT`).
    pub unicast_tries: u8,
    /// Time between two questions (RFC 4861, 10: `RETRANS_TIMER`).
    pub retrans: Duration,
    /// How long an answer is good, on average (RFC 4861, 10: `REACHABLE_TIME`); drawn between half and one and a half
    /// of it (6.3.2), for each answer anew, so that neighbors that answered together are not asked together.
    pub reachable: Duration,
    /// How long use may prove a stale neighbor before it is asked (RFC 4861, 10: `DELAY_FIRST_PROBE_TIME`).
    pub delay: Duration,
    /// How long a neighbor is kept that nobody uses (BSD: 86,400 s).
    pub garbage: Duration,
    /// Whether a silent neighbor is kept in use while all are asked (RFC 7048, 3); else it is forgotten.
    pub keeps_unreachable: bool,
    /// By what the time between questions grows while a neighbor is unreachable (RFC 7048, 4: `BACKOFF_MULTIPLE`).
    pub backoff: u32,
    /// The longest time between these questions (RFC 7048, 4: `MAX_RETRANS_TIMER`).
    pub longest_retrans: Duration,
    /// How long an unreachable neighbor is asked for that nobody uses: long enough to bring next hops back that traffic
    /// has been led away from.
    pub unreachable: Duration,
    /// Whether neighbors become known that say so unasked (RFC 9131, 4.1: for routers).
    pub learns_unsolicited: bool,
}

impl Default for NdSettings {
    fn default() -> NdSettings {
        NdSettings {
            multicast_tries: 3,
            unicast_tries: 3,
            retrans: Duration::from_secs(1),
            reachable: Duration::from_secs(30),
            delay: Duration::from_secs(5),
            garbage: Duration::from_secs(86_400),
            keeps_unreachable: true,
            backoff: 3,
            longest_retrans: Duration::from_secs(60),
            unreachable: Duration::from_secs(600),
            learns_unsolicited: true,
        }
    }
}

/// The rules of Neighbor Discovery.
#[derive(Clone, Copy, Debug, Default)]
pub struct NdProtocol {
    /// Times and counts.
    pub settings: NdSettings,
}

impl Protocol for NdProtocol {
    fn name(&self) -> &'static str {
        "nd"
    }

    fn step(
        &self,
        entry: &mut Entry,
        event: Event,
        now: Duration,
        random: &mut Random,
        effects: &mut Vec<Effect>,
    ) {
        Step { settings: &self.settings, entry, now, random, effects }.take(event);
    }

    fn may_create(&self, heard: &Heard, for_us: bool) -> bool {
        let is_asked = matches!(heard.kind, HeardKind::Solicitation);
        for_us && heard.link.is_some() && (is_asked || self.settings.learns_unsolicited)
    }
}

/// One event and all that it may touch.
struct Step<'a> {
    settings: &'a NdSettings,
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
            Event::Confirmed if self.entry.usable().is_some() => self.reachable(),
            Event::Confirmed => {}
        }
    }

    fn packet(&mut self) {
        let is_due = self.entry.is_due(self.now);
        match self.entry.state {
            State::Incomplete if self.entry.asked == 0 || is_due => self.solicit_all(),
            State::Stale => self.delay(),
            State::Unreachable => self.used_unreachable(is_due),
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
            State::Unreachable => self.still_unreachable(used),
            _ => self.effects.push(Effect::Expired),
        }
    }

    /// Asks for an unknown neighbor, or gives up (RFC 4861, 7.2.2).
    fn solicit_all(&mut self) {
        if self.entry.asked < self.settings.multicast_tries {
            self.ask(Ask::Everyone, self.settings.retrans);
        } else {
            self.effects.extend([Effect::Unreachable, Effect::Deleted]);
        }
    }

    fn reachable(&mut self) {
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
        self.used_unreachable(true);
    }

    fn used_unreachable(&mut self, is_due: bool) {
        self.entry.expires = Some(self.now.saturating_add(self.settings.unreachable));
        if is_due {
            self.solicit_more_seldom();
        }
    }

    fn still_unreachable(&mut self, used: bool) {
        if used {
            self.used_unreachable(true);
        } else if self.entry.expires.is_some_and(|end| self.now < end) {
            self.solicit_more_seldom();
        } else {
            self.effects.push(Effect::Expired);
        }
    }

    fn solicit_more_seldom(&mut self) {
        let questions = u32::from(self.entry.asked.saturating_sub(self.settings.unicast_tries)) + 1;
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
        match heard.kind {
            HeardKind::Solicitation => self.solicitation(heard),
            HeardKind::Advertisement { solicited, overrides } => {
                self.advertisement(heard, solicited, overrides)
            }
            HeardKind::Unsolicited => self.advertisement(heard, false, true),
        }
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
            Some(_) if self.entry.state == State::Unreachable => self.ask_soon(),
            _ => {}
        }
        self.router(heard);
    }

    /// Doesn't wait for the end of a long pause to ask one who is alive after all.
    fn ask_soon(&mut self) {
        let soon =
            self.entry.last_asked.map_or(self.now, |asked| asked.saturating_add(self.settings.retrans));
        self.entry.deadline = self.entry.deadline.min(Some(soon.max(self.now)));
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
        self.entry.link = Some(to);
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

#[cfg(test)]
mod tests;
