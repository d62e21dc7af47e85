//! How neighbors live in ARP (RFC 826; RFC 1122, 2.3.2).
//!
//! A neighbor is asked for once a second, five times at most; then packets to it fail for a while. What it says is
//! good for 20 minutes. In the last part of that time a neighbor *that is used* is asked again, under its link
//! address first, so that traffic never waits for an answer; one that nobody uses is forgotten in silence.
//!
//! Who claims the address of a known neighbor is doubted, as a claim proves nothing (RFC 5227, 2.4): the neighbor is
//! asked under the link address it had, which stays in use. It keeps the address if it is heard; if it is silent, the
//! other gets it, and everyone is asked next, so that the first answer corrects a claim that nobody stands behind.

use super::protocol::{Ask, Effect, Entry, Event, Heard, HeardKind, Protocol, State};
use crate::synthetic::Random;
use artery_wire::EtherAddr;
use std::time::Duration;

/// How long things last in ARP, and how often they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpSettings {
    /// How long an answer is good (BSD: `max_age`, 1200 s).
    pub lifetime: Duration,
    /// The shortest time between two requests for one address (RFC 1122, 2.3.2.1: one per second).
    pub interval: Duration,
    /// Requests before an address counts as unreachable (BSD: `maxtries`, 5).
    pub tries: u8,
    /// How long after the last request packets fail at once (BSD: `wait`, 20 s).
    pub negative: Duration,
    /// The last part of a lifetime, in which neighbors in use are asked again (5 s in FreeBSD, an eighth of the
    /// lifetime in OpenBSD; 30 s here, so that a flow with a packet in ten seconds is seen as use).
    pub refresh: Duration,
    /// Requests in that part, spread over it (FreeBSD: 5).
    pub refresh_tries: u8,
    /// How many of these go to the neighbor's link address alone (RFC 1122, 2.3.2.1 (2)); the others go to everyone,
    /// in case it has another now.
    pub refresh_unicast: u8,
    /// How long a known neighbor has to answer when another link address is claimed for it: long enough for a host,
    /// short beside the time in which a standby router takes over. With none, the claim is believed at once, as
    /// RFC 826 has it.
    pub doubt: Duration,
}

impl Default for ArpSettings {
    fn default() -> ArpSettings {
        ArpSettings {
            lifetime: Duration::from_secs(1200),
            interval: Duration::from_secs(1),
            tries: 5,
            negative: Duration::from_secs(20),
            refresh: Duration::from_secs(30),
            refresh_tries: 5,
            refresh_unicast: 3,
            doubt: Duration::from_millis(200),
        }
    }
}

/// The rules of ARP.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArpProtocol {
    /// Times and counts.
    pub settings: ArpSettings,
}

impl Protocol for ArpProtocol {
    fn name(&self) -> &'static str {
        "arp"
    }

    fn step(
        &self,
        entry: &mut Entry,
        event: Event,
        now: Duration,
        _: &mut Random,
        effects: &mut Vec<Effect>,
    ) {
        match event {
            Event::Heard(heard) => self.heard(entry, heard, now, effects),
            _ if entry.is_static => {}
            Event::Packet => self.packet(entry, now, effects),
            Event::Timer { used } if entry.is_due(now) => self.timer(entry, used, now, effects),
            Event::Timer { .. } => {}
            Event::Confirmed => self.confirmed(entry, now, effects),
        }
    }

    /// Learns only from those who talk to us: everything else would let a stranger fill the table.
    fn may_create(&self, heard: &Heard, for_us: bool) -> bool {
        for_us && heard.link.is_some()
    }
}

impl ArpProtocol {
    fn packet(&self, entry: &mut Entry, now: Duration, effects: &mut Vec<Effect>) {
        match entry.state {
            State::Incomplete if entry.asked == 0 || entry.is_due(now) => self.ask(entry, now, effects),
            State::Verify => {
                self.refresh(entry, now, effects);
            }
            _ => {}
        }
    }

    fn timer(&self, entry: &mut Entry, used: bool, now: Duration, effects: &mut Vec<Effect>) {
        match entry.state {
            State::Incomplete => self.ask(entry, now, effects),
            State::Failed => effects.push(Effect::Deleted),
            State::Verify => self.verify(entry, used, now, effects),
            State::Doubt => self.doubt(entry, now, effects),
            _ => self.begin_to_verify(entry, now),
        }
    }

    /// Asks for an unknown neighbor, or gives up.
    fn ask(&self, entry: &mut Entry, now: Duration, effects: &mut Vec<Effect>) {
        if entry.asked < self.settings.tries {
            send(entry, Ask::Everyone, now, effects);
            entry.deadline = Some(now.saturating_add(self.settings.interval));
        } else {
            entry.state = State::Failed;
            let end = entry.last_asked.unwrap_or(now).saturating_add(self.settings.negative);
            (entry.deadline, entry.expires) = (Some(end), Some(end));
            effects.push(Effect::Unreachable);
        }
    }

    fn begin_to_verify(&self, entry: &mut Entry, now: Duration) {
        // Use is reported from here on only. Should this timer have come late, there must be time for a report.
        let end = entry.expires.unwrap_or(now).max(now.saturating_add(self.settings.interval));
        entry.state = State::Verify;
        entry.asked = 0;
        entry.preempt = self.settings.refresh_tries;
        entry.expires = Some(end);
        entry.deadline = Some(end.min(now.saturating_add(self.spacing(entry, now))));
    }

    /// A timer in the last part of life: asks if the neighbor was used, else lets it end in time.
    fn verify(&self, entry: &mut Entry, used: bool, now: Duration, effects: &mut Vec<Effect>) {
        if used && self.refresh(entry, now, effects) {
            return;
        }
        match entry.expires.filter(|&end| end > now) {
            Some(end) => entry.deadline = Some(end.min(now.saturating_add(self.spacing(entry, now)))),
            None => effects.push(Effect::Expired),
        }
    }

    /// Asks a neighbor in use whether it is still there, and says whether it did.
    ///
    /// A life doesn't end while a question is open. Tries that are left at its end prolong it: a neighbor that was
    /// used only just then is asked first.
    fn refresh(&self, entry: &mut Entry, now: Duration, effects: &mut Vec<Effect>) -> bool {
        let spacing = self.spacing(entry, now);
        let is_early = entry.last_asked.is_some_and(|asked| now < asked.saturating_add(spacing));
        if entry.preempt == 0 || is_early {
            return false;
        }
        let tried = self.settings.refresh_tries.saturating_sub(entry.preempt);
        let to = match entry.link {
            Some(link) if tried < self.settings.refresh_unicast => Ask::Unicast(link),
            _ => Ask::Everyone,
        };
        send(entry, to, now, effects);
        entry.preempt -= 1;
        let end = entry.expires.unwrap_or(now).max(now.saturating_add(self.settings.interval));
        entry.expires = Some(end);
        entry.deadline = Some(end.min(now.saturating_add(spacing)));
        true
    }

    /// The time between two requests of a refresh: spread over what is left, and short after that.
    fn spacing(&self, entry: &Entry, now: Duration) -> Duration {
        let interval = self.settings.interval;
        if entry.expires.is_some_and(|end| now < end) {
            interval.max(self.settings.refresh / u32::from(self.settings.refresh_tries.max(1)))
        } else {
            interval
        }
    }

    fn heard(&self, entry: &mut Entry, heard: Heard, now: Duration, effects: &mut Vec<Effect>) {
        let Some(to) = heard.link else { return };
        match entry.usable() {
            Some(kept) if entry.is_static => {
                if kept != to {
                    effects.push(Effect::Refused { kept, offered: to });
                }
            }
            Some(kept) if kept == to => self.keep(entry, kept, now, effects),
            Some(from) if self.settings.doubt.is_zero() || self.is_answer(entry, heard, now) => {
                self.take(entry, from, to, now, effects);
            }
            Some(kept) => self.claimed(entry, kept, to, now, effects),
            None => {
                self.live(entry, to, now);
                effects.push(Effect::Resolved);
            }
        }
    }

    fn confirmed(&self, entry: &mut Entry, now: Duration, effects: &mut Vec<Effect>) {
        if let Some(link) = entry.usable() {
            self.keep(entry, link, now, effects);
        }
    }

    /// Another link address is claimed: the neighbor is to be asked. The last of several claims counts.
    fn claimed(
        &self,
        entry: &mut Entry,
        kept: EtherAddr,
        to: EtherAddr,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) {
        if entry.offered.replace(to).is_some() {
            return;
        }
        effects.push(Effect::Doubted { kept, offered: to });
        (entry.state, entry.asked) = (State::Doubt, 0);
        // Other requests don't count: what they asked may be answered long ago.
        let turn = self.turn(entry.last_doubted, now);
        wait_in_doubt(entry, turn);
        if turn == now {
            self.doubt(entry, now, effects);
        }
    }

    /// The steps of a doubt: the neighbor is asked; it was silent, the other has the address; everyone is asked.
    fn doubt(&self, entry: &mut Entry, now: Duration, effects: &mut Vec<Effect>) {
        let Some(link) = entry.link else { return };
        match entry.offered {
            Some(_) if entry.asked == 0 => {
                entry.last_doubted = Some(now);
                send(entry, Ask::Unicast(link), now, effects);
                wait_in_doubt(entry, now.saturating_add(self.settings.doubt));
            }
            Some(to) => {
                self.take(entry, link, to, now, effects);
                entry.state = State::Doubt;
                entry.deadline = Some(self.turn(entry.last_asked, now));
            }
            None => {
                self.live(entry, link, now);
                send(entry, Ask::Everyone, now, effects);
            }
        }
    }

    /// When a neighbor may be asked next that was asked then.
    fn turn(&self, asked: Option<Duration>, now: Duration) -> Duration {
        asked.map_or(now, |asked| asked.saturating_add(self.settings.interval).max(now))
    }

    /// Says whether a message answers a question that went to everyone, who may have another link address.
    fn is_answer(&self, entry: &Entry, heard: Heard, now: Duration) -> bool {
        let all_were_asked = match entry.state {
            State::Verify => entry.asked > self.settings.refresh_unicast,
            State::Reachable => entry.asked > 0,
            _ => false,
        };
        let is_late = entry.last_asked.is_none_or(|asked| now > asked.saturating_add(self.settings.doubt));
        matches!(heard.kind, HeardKind::Advertisement { .. }) && all_were_asked && !is_late
    }

    /// The neighbor was heard where it is.
    fn keep(&self, entry: &mut Entry, kept: EtherAddr, now: Duration, effects: &mut Vec<Effect>) {
        effects.extend(entry.offered.map(|offered| Effect::Refused { kept, offered }));
        self.live(entry, kept, now);
    }

    /// The neighbor is elsewhere.
    fn take(
        &self,
        entry: &mut Entry,
        from: EtherAddr,
        to: EtherAddr,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) {
        effects.push(Effect::Moved { from, to });
        self.live(entry, to, now);
    }

    /// Begins a lifetime.
    fn live(&self, entry: &mut Entry, link: EtherAddr, now: Duration) {
        entry.state = State::Reachable;
        entry.link = Some(link);
        (entry.offered, entry.asked) = (None, 0);
        entry.preempt = self.settings.refresh_tries;
        entry.last_heard = Some(now);
        let fresh = self.settings.lifetime.saturating_sub(self.settings.refresh);
        entry.expires = Some(now.saturating_add(self.settings.lifetime));
        entry.deadline = Some(now.saturating_add(fresh));
    }
}

fn wait_in_doubt(entry: &mut Entry, until: Duration) {
    entry.deadline = Some(until);
    entry.expires = entry.expires.max(Some(until));
}

fn send(entry: &mut Entry, to: Ask, now: Duration, effects: &mut Vec<Effect>) {
    entry.asked = entry.asked.saturating_add(1);
    entry.last_asked = Some(now);
    effects.push(Effect::Ask(to));
}

#[cfg(test)]
mod tests;
