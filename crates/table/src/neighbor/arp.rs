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
mod tests {
    use super::*;
    use crate::neighbor::protocol::HeardKind;
    use crate::neighbor::protocol::testing::{A, B, C, Life, ms, secs};
    use proptest::prelude::*;

    const REPLY: HeardKind = HeardKind::Advertisement { solicited: true, overrides: true };

    fn life() -> Life<ArpProtocol> {
        Life::new(ArpProtocol::default())
    }

    /// A neighbor that answered at 0 s.
    fn answered() -> Life<ArpProtocol> {
        let mut life = life();
        life.packet();
        life.hear(A, REPLY);
        life.log.clear();
        life
    }

    #[test]
    fn a_neighbor_is_asked_for_at_once_and_every_second_five_times_in_all() {
        let mut life = life();
        assert_eq!(life.packet(), [Effect::Ask(Ask::Everyone)]);
        assert_eq!(life.packet(), []);
        life.run_to(secs(4));
        assert_eq!(life.asked_at(), [0, 1, 2, 3, 4].map(secs));
        assert_eq!(life.state(), Some(State::Incomplete));
    }

    #[test]
    fn a_neighbor_asked_in_vain_fails_until_twenty_seconds_after_the_last_request() {
        let mut life = life();
        life.packet();
        life.run_to(secs(5));
        assert_eq!(life.log.last(), Some(&(secs(5), Effect::Unreachable)));
        assert!(life.entry().has_failed() && life.entry().usable().is_none());
        assert_eq!(life.packet(), []);
        life.run_to(ms(23_999));
        assert!(life.entry().has_failed());
        life.run_to(secs(24));
        assert_eq!(life.log.last(), Some(&(secs(24), Effect::Deleted)));
        assert_eq!(life.state(), None);
        assert_eq!(life.packet(), [Effect::Ask(Ask::Everyone)]);
    }

    #[test]
    fn an_answer_resolves_whatever_asks_came_before() {
        for asks in 0..5 {
            let mut life = life();
            life.packet();
            life.run_to(secs(asks));
            assert_eq!(life.hear(A, REPLY), [Effect::Resolved]);
            assert_eq!((life.entry().usable(), life.entry().asked), (Some(A), 0));
        }
    }

    #[test]
    fn an_answer_that_comes_late_ends_the_failure() {
        let mut life = life();
        life.packet();
        life.run_to(secs(10));
        assert_eq!(life.hear(A, REPLY), [Effect::Resolved]);
        assert_eq!((life.state(), life.entry().usable()), (Some(State::Reachable), Some(A)));
    }

    #[test]
    fn a_packet_asks_when_the_timer_is_late() {
        let mut life = life();
        life.packet();
        life.now = ms(1500);
        assert_eq!(life.packet(), [Effect::Ask(Ask::Everyone)]);
        life.now = ms(2400);
        assert_eq!(life.packet(), []);
    }

    #[test]
    fn a_neighbor_that_is_not_used_is_never_asked_and_ends_after_twenty_minutes() {
        let mut life = answered();
        life.run_to(ms(1_199_999));
        assert_eq!((life.log.len(), life.entry().usable()), (0, Some(A)));
        life.run_to(secs(1200));
        assert_eq!(life.log, [(secs(1200), Effect::Expired)]);
    }

    #[test]
    fn use_is_asked_for_in_the_last_part_of_life_only() {
        let mut life = answered();
        life.run_to(ms(1_169_999));
        assert_eq!((life.state(), life.entry().wants_report()), (Some(State::Reachable), false));
        life.run_to(secs(1170));
        assert_eq!((life.state(), life.entry().wants_report()), (Some(State::Verify), true));
        assert_eq!(life.entry().usable(), Some(A));
    }

    #[test]
    fn a_neighbor_in_use_is_asked_alone_and_lives_on_without_a_gap() {
        let mut life = answered();
        for _ in 0..20 {
            // A packet every 200 ms; the neighbor answers what it is asked.
            life.run_to(life.now + secs(1160));
            for _ in 0..100 {
                life.run_to(life.now + ms(200));
                for effect in life.packet() {
                    assert_eq!(effect, Effect::Ask(Ask::Unicast(A)));
                    assert_eq!(life.hear(A, REPLY), []);
                }
                assert_eq!(life.entry().usable(), Some(A));
            }
            assert_eq!(life.state(), Some(State::Reachable), "at {:?}", life.now);
        }
        assert_eq!(life.asked_at().len(), 20);
    }

    #[test]
    fn use_that_only_the_timer_tells_keeps_a_neighbor_too() {
        let mut life = answered();
        life.uses = true;
        life.run_to(secs(1180));
        assert_eq!(life.log, [(secs(1176), Effect::Ask(Ask::Unicast(A)))]);
    }

    #[test]
    fn one_that_is_silent_in_use_is_asked_alone_then_by_all_and_ends_in_time() {
        let mut life = answered();
        life.uses = true;
        life.run_to(secs(1300));
        let asks = life.asks();
        assert_eq!(asks[..3], [1176, 1182, 1188].map(|at| (secs(at), Ask::Unicast(A))));
        assert_eq!(asks[3..], [1194, 1200].map(|at| (secs(at), Ask::Everyone)));
        assert_eq!(life.log.last(), Some(&(secs(1201), Effect::Expired)));
    }

    #[test]
    fn a_neighbor_that_took_another_link_address_is_found_before_its_life_ends() {
        let mut life = answered();
        life.uses = true;
        while life.asks().last().is_none_or(|&(_, to)| to != Ask::Everyone) {
            life.run_to(life.now + secs(1));
            assert_eq!(life.entry().usable(), Some(A));
        }
        assert_eq!(life.hear(B, REPLY), [Effect::Moved { from: A, to: B }]);
        assert_eq!(life.entry().usable(), Some(B));
    }

    #[test]
    fn one_that_was_used_just_before_its_end_is_asked_first() {
        let mut life = answered();
        life.run_to(ms(1_199_500));
        life.uses = true;
        life.run_to(secs(1200));
        assert_eq!(life.log, [(secs(1200), Effect::Ask(Ask::Unicast(A)))]);
        life.uses = false;
        life.run_to(ms(1_200_999));
        assert_eq!(life.entry().usable(), Some(A));
        life.run_to(secs(1201));
        assert_eq!(life.log.last(), Some(&(secs(1201), Effect::Expired)));
    }

    #[test]
    fn a_timer_that_comes_long_after_the_end_leaves_time_to_report_use() {
        let mut life = answered();
        life.now = secs(5000);
        life.timer(false);
        assert_eq!((life.state(), life.entry().usable()), (Some(State::Verify), Some(A)));
        assert_eq!(life.packet(), [Effect::Ask(Ask::Unicast(A))]);
    }

    #[test]
    fn every_message_of_a_neighbor_begins_its_life_anew() {
        for kind in [REPLY, HeardKind::Solicitation, HeardKind::Unsolicited] {
            let mut life = answered();
            life.run_to(secs(1190));
            assert_eq!(life.hear(A, kind), []);
            life.run_to(secs(2389));
            assert_eq!(life.entry().usable(), Some(A));
        }
    }

    /// A neighbor of long ago, whose address another link address claims.
    fn claimed() -> Life<ArpProtocol> {
        let mut life = answered();
        life.run_to(secs(100));
        let effects = life.hear(B, HeardKind::Unsolicited);
        let question = Effect::Ask(Ask::Unicast(A));
        assert_eq!(effects, [Effect::Doubted { kept: A, offered: B }, question]);
        assert_eq!(life.entry().usable(), Some(A));
        life.log.clear();
        life
    }

    #[test]
    fn a_neighbor_that_answers_keeps_an_address_that_is_claimed() {
        for kind in [REPLY, HeardKind::Solicitation, HeardKind::Unsolicited] {
            let mut life = claimed();
            life.run_to(ms(100_199));
            assert_eq!(life.hear(A, kind), [Effect::Refused { kept: A, offered: B }]);
            life.run_to(secs(200));
            assert_eq!((life.state(), life.entry().usable()), (Some(State::Reachable), Some(A)));
            assert_eq!(life.asks(), []);
        }
    }

    #[test]
    fn a_neighbor_that_is_silent_loses_it_and_everyone_is_asked() {
        let mut life = claimed();
        life.run_to(ms(100_199));
        assert_eq!(life.entry().usable(), Some(A));
        life.run_to(secs(200));
        let moved = (ms(100_200), Effect::Moved { from: A, to: B });
        assert_eq!(life.log, [moved, (secs(101), Effect::Ask(Ask::Everyone))]);
        assert_eq!((life.state(), life.entry().usable()), (Some(State::Reachable), Some(B)));
    }

    #[test]
    fn an_answer_to_everyone_corrects_a_claim_at_once_and_a_later_one_is_doubted() {
        let mut life = claimed();
        life.run_to(ms(101_100));
        assert_eq!(life.hear(A, REPLY), [Effect::Moved { from: B, to: A }]);
        assert_eq!(life.hear(B, REPLY)[0], Effect::Doubted { kept: A, offered: B });
        let mut late = claimed();
        late.run_to(ms(101_300));
        assert_eq!(late.hear(A, REPLY)[0], Effect::Doubted { kept: B, offered: A });
    }

    #[test]
    fn the_last_claim_of_many_counts_and_they_ask_once_a_second() {
        let mut life = claimed();
        assert_eq!(life.hear(C, HeardKind::Unsolicited), []);
        life.run_to(ms(100_250));
        assert_eq!(life.entry().usable(), Some(C));
        // The one who was late asks for its address in the same second.
        assert_eq!(life.hear(A, HeardKind::Solicitation), [Effect::Doubted { kept: C, offered: A }]);
        life.run_to(secs(101));
        assert_eq!(life.entry().usable(), Some(C));
        life.run_to(secs(103));
        assert_eq!(life.entry().usable(), Some(A));
        assert_eq!(life.asks(), [(secs(101), Ask::Unicast(C)), (secs(102), Ask::Everyone)]);
    }

    #[test]
    fn a_flood_of_claims_asks_a_live_neighbor_once_a_second_and_never_moves_it() {
        let mut life = answered();
        for at in 10_000..20_000 {
            life.run_to(ms(at));
            let claim = life.hear(B, HeardKind::Unsolicited);
            if claim.contains(&Effect::Ask(Ask::Unicast(A))) || life.asked_at().last() == Some(&ms(at)) {
                life.hear(A, REPLY);
            }
            assert_eq!(life.entry().usable(), Some(A));
        }
        assert_eq!(life.asks().len(), 10);
    }

    #[test]
    fn without_doubt_a_claim_is_believed_at_once() {
        let mut life = answered();
        life.protocol.settings.doubt = Duration::ZERO;
        assert_eq!(life.hear(B, HeardKind::Unsolicited), [Effect::Moved { from: A, to: B }]);
        assert_eq!(life.entry().usable(), Some(B));
    }

    #[test]
    fn a_static_neighbor_never_ends_and_is_never_changed() {
        let mut life = life();
        life.entry = Some(Entry::fixed(A, false));
        life.uses = true;
        life.run_to(secs(100_000));
        assert_eq!((life.packet(), life.timer(true)), (vec![], vec![]));
        assert_eq!(life.hear(A, REPLY), []);
        for kind in [REPLY, HeardKind::Solicitation, HeardKind::Unsolicited] {
            assert_eq!(life.hear(B, kind), [Effect::Refused { kept: A, offered: B }]);
        }
        life.event(Event::Confirmed);
        assert_eq!(life.entry(), &Entry::fixed(A, false));
    }

    #[test]
    fn proof_from_above_prolongs_a_life_and_makes_none() {
        let mut life = answered();
        life.run_to(secs(1190));
        life.event(Event::Confirmed);
        assert_eq!(life.state(), Some(State::Reachable));
        life.run_to(secs(2389));
        assert_eq!(life.entry().usable(), Some(A));
        let mut unknown = super::tests::life();
        unknown.packet();
        unknown.event(Event::Confirmed);
        assert_eq!(unknown.state(), Some(State::Incomplete));
    }

    #[test]
    fn only_those_who_talk_to_us_make_an_entry() {
        let arp = ArpProtocol::default();
        let heard = Heard { link: Some(A), kind: HeardKind::Solicitation, router: None };
        assert!(arp.may_create(&heard, true));
        assert!(!arp.may_create(&heard, false));
        assert!(!arp.may_create(&Heard { link: None, ..heard }, true));
    }

    #[test]
    fn times_of_any_length_are_borne() {
        let most = Duration::MAX;
        for refresh in [most, secs(0)] {
            let mut life = life();
            let settings = &mut life.protocol.settings;
            (settings.lifetime, settings.interval, settings.negative) = (most, most, most);
            (settings.refresh, settings.refresh_tries) = (refresh, 0);
            life.now = secs(1);
            life.packet();
            life.timer(true);
            life.hear(A, REPLY);
            life.timer(true);
            life.packet();
            assert_eq!(life.entry().usable(), Some(A));
        }
    }

    proptest! {
        #[test]
        fn whatever_happens_a_second_has_two_requests_at_most_and_a_bound_on_silence_holds(
            events in proptest::collection::vec((0u64..4000, 0u8..6), 1..200),
        ) {
            let mut life = life();
            let (mut silent, mut checked) = (0, 0);
            for (wait, what) in events {
                // Up to 400 s, or up to 4 s.
                let wait = if wait % 5 == 0 { ms(wait * 100) } else { ms(wait) };
                life.run_to(life.now + wait);
                match what {
                    0 => drop(life.hear(A, REPLY)),
                    1 => drop(life.hear(B, HeardKind::Unsolicited)),
                    2 => life.uses = !life.uses,
                    _ => drop(life.packet()),
                }
                for (_, effect) in &life.log[checked..] {
                    match effect {
                        Effect::Ask(_) => silent += 1,
                        _ => silent = 0,
                    }
                    prop_assert!(silent <= 10, "{:?}", life.log);
                }
                checked = life.log.len();
                if what < 2 {
                    silent = 0;
                }
            }
            // A request may be followed at once by one because of a claim.
            for three in life.asked_at().windows(3) {
                prop_assert!(three[2] - three[0] >= secs(1), "{:?}", life.log);
            }
        }
    }
}
