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
mod tests {
    use super::*;
    use crate::neighbor::protocol::testing::{A, B, Life, ms, secs};
    use proptest::prelude::*;

    const YES: Option<bool> = Some(true);
    const NO: Option<bool> = Some(false);

    fn na(solicited: bool, overrides: bool) -> HeardKind {
        HeardKind::Advertisement { solicited, overrides }
    }

    fn unknown() -> Life<NdProtocol> {
        Life::new(NdProtocol::default())
    }

    /// A neighbor with the address A that came to a state by the usual way, and an empty log.
    fn life(state: State) -> Life<NdProtocol> {
        let mut life = unknown();
        life.packet();
        if state != State::Incomplete {
            life.hear(A, na(state == State::Reachable, true));
        }
        if matches!(state, State::Delay | State::Probe | State::Unreachable) {
            life.packet();
        }
        if state == State::Probe {
            life.run_to(secs(5));
        }
        if state == State::Unreachable {
            life.run_to(secs(8));
        }
        assert_eq!(life.state(), Some(state));
        life.log.clear();
        life
    }

    /// What a message does to a neighbor in a state: where it is then, its link address, and the effects.
    fn after(
        state: State,
        link: Option<EtherAddr>,
        kind: HeardKind,
    ) -> (State, Option<EtherAddr>, Vec<Effect>) {
        let mut life = life(state);
        let effects = life.event(Event::Heard(Heard { link, kind, router: None }));
        (life.entry().state, life.entry().usable(), effects)
    }

    const KNOWN: [State; 5] =
        [State::Reachable, State::Stale, State::Delay, State::Probe, State::Unreachable];
    const MOVED: Effect = Effect::Moved { from: A, to: B };

    // No entry.

    #[test]
    fn none_on_send_becomes_incomplete_and_asks_all() {
        let mut life = unknown();
        assert_eq!(life.packet(), [Effect::Ask(Ask::Everyone)]);
        assert_eq!(life.state(), Some(State::Incomplete));
    }

    #[test]
    fn none_on_a_solicitation_for_us_with_a_link_address_becomes_stale() {
        let nd = NdProtocol::default();
        let heard = Heard { link: Some(A), kind: HeardKind::Solicitation, router: None };
        assert!(nd.may_create(&heard, true) && !nd.may_create(&heard, false));
        assert!(!nd.may_create(&Heard { link: None, ..heard }, true));
        let mut life = unknown();
        life.entry = Some(Entry::new());
        assert_eq!(life.hear(A, HeardKind::Solicitation), [Effect::Resolved]);
        assert_eq!(life.state(), Some(State::Stale));
    }

    #[test]
    fn none_on_an_advertisement_stays_none_in_hosts_and_becomes_stale_in_routers() {
        let router = NdProtocol::default();
        let host = NdProtocol { settings: NdSettings { learns_unsolicited: false, ..Default::default() } };
        for (solicited, overrides) in [(true, true), (true, false), (false, true), (false, false)] {
            let heard = Heard { link: Some(A), kind: na(solicited, overrides), router: YES };
            assert!(router.may_create(&heard, true) && !host.may_create(&heard, true));
            assert!(!router.may_create(&heard, false));
            assert!(!router.may_create(&Heard { link: None, ..heard }, true));
            let mut life = unknown();
            life.entry = Some(Entry::new());
            assert_eq!(life.event(Event::Heard(heard)), [Effect::Resolved]);
            assert_eq!((life.state(), life.entry().is_router), (Some(State::Stale), true));
        }
    }

    // INCOMPLETE.

    #[test]
    fn incomplete_on_send_waits() {
        assert_eq!(life(State::Incomplete).packet(), []);
    }

    #[test]
    fn incomplete_on_timer_asks_three_times_in_all_then_packets_fail_and_it_ends() {
        let mut life = unknown();
        life.packet();
        life.run_to(secs(9));
        assert_eq!(life.asks(), [0, 1, 2].map(|at| (secs(at), Ask::Everyone)));
        let end = [Effect::Unreachable, Effect::Deleted].map(|effect| (secs(3), effect));
        assert_eq!(life.log[3..], end);
        assert_eq!(life.state(), None);
    }

    #[test]
    fn incomplete_on_an_answer_becomes_reachable() {
        for overrides in [false, true] {
            let reached = (State::Reachable, Some(A), vec![Effect::Resolved]);
            assert_eq!(after(State::Incomplete, Some(A), na(true, overrides)), reached);
        }
    }

    #[test]
    fn incomplete_on_an_advertisement_that_answers_nothing_becomes_stale() {
        for overrides in [false, true] {
            let stale = (State::Stale, Some(A), vec![Effect::Resolved]);
            assert_eq!(after(State::Incomplete, Some(A), na(false, overrides)), stale);
        }
    }

    #[test]
    fn incomplete_on_an_advertisement_without_link_address_changes_in_nothing() {
        let mut life = life(State::Incomplete);
        let before = life.entry().clone();
        life.event(Event::Heard(Heard { link: None, kind: na(true, true), router: YES }));
        assert_eq!(life.entry(), &before);
    }

    #[test]
    fn incomplete_on_a_solicitation_becomes_stale() {
        let stale = (State::Stale, Some(A), vec![Effect::Resolved]);
        assert_eq!(after(State::Incomplete, Some(A), HeardKind::Solicitation), stale);
        let incomplete = (State::Incomplete, None, vec![]);
        assert_eq!(after(State::Incomplete, None, HeardKind::Solicitation), incomplete);
    }

    // On send.

    #[test]
    fn reachable_on_send_stays() {
        let mut life = life(State::Reachable);
        assert_eq!((life.packet(), life.state()), (vec![], Some(State::Reachable)));
        assert!(!life.entry().wants_report());
    }

    #[test]
    fn stale_on_send_becomes_delay_and_asks_nobody() {
        let mut life = life(State::Stale);
        assert!(life.entry().wants_report());
        assert_eq!((life.packet(), life.state()), (vec![], Some(State::Delay)));
        assert_eq!(life.entry().deadline, Some(secs(5)));
    }

    #[test]
    fn delay_and_probe_on_send_go_on_as_they_are() {
        for state in [State::Delay, State::Probe] {
            let mut life = life(state);
            let before = life.entry().clone();
            assert_eq!(life.packet(), []);
            assert_eq!(life.entry(), &before);
            assert_eq!(life.entry().usable(), Some(A));
        }
    }

    #[test]
    fn unreachable_on_send_stays_in_use_and_lives_on() {
        let mut life = life(State::Unreachable);
        life.now += ms(300);
        assert_eq!((life.packet(), life.state()), (vec![], Some(State::Unreachable)));
        assert_eq!(life.entry().usable(), Some(A));
        assert_eq!(life.entry().expires, Some(life.now + secs(600)));
        assert!(life.entry().wants_report());
    }

    // On timer.

    #[test]
    fn reachable_becomes_stale_after_fifteen_to_forty_five_seconds_not_always_the_same() {
        let mut life = unknown();
        life.packet();
        let (mut least, mut most) = (secs(100), secs(0));
        for _ in 0..1000 {
            life.hear(A, na(true, true));
            let time = life.entry().deadline.unwrap() - life.now;
            (least, most) = (least.min(time), most.max(time));
        }
        assert!((secs(15)..secs(16)).contains(&least), "{least:?}");
        assert!((secs(44)..=secs(45)).contains(&most), "{most:?}");
        life.run_to(life.entry().deadline.unwrap());
        assert_eq!((life.state(), life.entry().usable()), (Some(State::Stale), Some(A)));
    }

    #[test]
    fn stale_on_timer_ends_after_a_day_or_begins_to_doubt_if_it_was_used() {
        let mut idle = life(State::Stale);
        idle.run_to(secs(86_399));
        assert_eq!(idle.state(), Some(State::Stale));
        idle.run_to(secs(86_400));
        assert_eq!(idle.log, [(secs(86_400), Effect::Expired)]);
        let mut used = life(State::Stale);
        used.now = secs(86_400);
        assert_eq!((used.timer(true), used.state()), (vec![], Some(State::Delay)));
    }

    #[test]
    fn delay_on_timer_becomes_probe_and_asks_the_neighbor() {
        let mut life = life(State::Delay);
        life.run_to(secs(5));
        assert_eq!((life.asks(), life.state()), (vec![(secs(5), Ask::Unicast(A))], Some(State::Probe)));
    }

    #[test]
    fn probe_on_timer_asks_three_times_in_all_then_all_are_asked_and_packets_still_go() {
        let mut life = life(State::Delay);
        life.run_to(secs(8));
        assert_eq!(life.asks()[..3], [5, 6, 7].map(|at| (secs(at), Ask::Unicast(A))));
        let rest = [Effect::Unreachable, Effect::Ask(Ask::Everyone)].map(|effect| (secs(8), effect));
        assert_eq!(life.log[3..], rest);
        assert_eq!((life.state(), life.entry().usable()), (Some(State::Unreachable), Some(A)));
    }

    #[test]
    fn probe_on_timer_ends_where_the_unreachable_are_not_kept() {
        let mut life = life(State::Delay);
        life.protocol.settings.keeps_unreachable = false;
        life.run_to(secs(60));
        let end = [Effect::Unreachable, Effect::Deleted].map(|effect| (secs(8), effect));
        assert_eq!((&life.log[3..], life.state()), (&end[..], None));
    }

    #[test]
    fn unreachable_on_timer_asks_all_ever_more_seldom_but_once_a_minute() {
        let mut life = life(State::Unreachable);
        life.uses = true;
        life.run_to(secs(3600));
        assert!(life.asks().iter().all(|&(_, to)| to == Ask::Everyone));
        let gaps: Vec<Duration> = life.asked_at().windows(2).map(|pair| pair[1] - pair[0]).collect();
        // Three seconds came first and nine come now, each times a half to one and a half.
        assert!((ms(4500)..=ms(13_500)).contains(&gaps[0]), "{gaps:?}");
        assert!((ms(13_500)..=ms(40_500)).contains(&gaps[1]), "{gaps:?}");
        assert!(gaps[2..].iter().all(|gap| (secs(30)..=secs(60)).contains(gap)), "{gaps:?}");
        assert_eq!(life.entry().usable(), Some(A));
    }

    #[test]
    fn unreachable_on_timer_ends_when_nobody_used_it_for_ten_minutes() {
        let mut life = life(State::Unreachable);
        life.run_to(secs(3600));
        let (at, effect) = life.log[life.log.len() - 1];
        assert_eq!(effect, Effect::Expired);
        assert!((secs(600)..=secs(670)).contains(&at), "{at:?}");
    }

    // On an answer.

    #[test]
    fn any_known_state_on_an_answer_becomes_reachable() {
        for state in KNOWN {
            for link in [None, Some(A)] {
                for overrides in [false, true] {
                    let reached = (State::Reachable, Some(A), vec![]);
                    assert_eq!(after(state, link, na(true, overrides)), reached, "{state:?} {link:?}");
                }
            }
        }
    }

    #[test]
    fn reachable_on_an_answer_begins_its_time_anew() {
        let mut life = life(State::Reachable);
        life.now = secs(10);
        life.hear(A, na(true, true));
        assert!(life.entry().deadline >= Some(secs(25)));
    }

    #[test]
    fn any_known_state_on_an_overriding_answer_takes_its_link_address_and_becomes_reachable() {
        for state in KNOWN {
            assert_eq!(after(state, Some(B), na(true, true)), (State::Reachable, Some(B), vec![MOVED]));
        }
    }

    #[test]
    fn reachable_on_an_advertisement_that_differs_and_does_not_override_becomes_stale_with_its_old_address() {
        for solicited in [false, true] {
            let stale = (State::Stale, Some(A), vec![]);
            assert_eq!(after(State::Reachable, Some(B), na(solicited, false)), stale);
        }
    }

    #[test]
    fn other_states_ignore_an_advertisement_that_differs_and_does_not_override() {
        for state in &KNOWN[1..] {
            for solicited in [false, true] {
                let mut life = life(*state);
                let before = life.entry().clone();
                let heard = Heard { link: Some(B), kind: na(solicited, false), router: YES };
                assert_eq!(life.event(Event::Heard(heard)), []);
                assert_eq!(life.entry(), &before);
            }
        }
    }

    #[test]
    fn any_known_state_on_an_overriding_advertisement_unasked_takes_its_link_address_and_becomes_stale() {
        for state in KNOWN {
            for kind in [na(false, true), HeardKind::Unsolicited] {
                assert_eq!(after(state, Some(B), kind), (State::Stale, Some(B), vec![MOVED]));
            }
        }
    }

    #[test]
    fn an_advertisement_unasked_that_tells_nothing_new_proves_nothing() {
        for state in KNOWN {
            for (link, overrides) in [(None, false), (None, true), (Some(A), false), (Some(A), true)] {
                assert_eq!(after(state, link, na(false, overrides)), (state, Some(A), vec![]));
            }
        }
    }

    // On a solicitation, router advertisement or redirect.

    #[test]
    fn any_known_state_on_a_solicitation_with_another_link_address_becomes_stale_with_it() {
        for state in KNOWN {
            assert_eq!(after(state, Some(B), HeardKind::Solicitation), (State::Stale, Some(B), vec![MOVED]));
        }
    }

    #[test]
    fn any_known_state_on_a_solicitation_with_its_own_link_address_or_none_stays() {
        for state in KNOWN {
            for link in [None, Some(A)] {
                assert_eq!(after(state, link, HeardKind::Solicitation), (state, Some(A), vec![]));
            }
        }
    }

    #[test]
    fn unreachable_on_a_sign_of_life_asks_without_waiting_for_its_long_pause() {
        let mut life = life(State::Unreachable);
        life.run_to(secs(300));
        let asked = *life.asked_at().last().unwrap();
        life.hear(A, HeardKind::Solicitation);
        life.run_to(asked.max(secs(299)) + secs(1));
        assert!(*life.asked_at().last().unwrap() > asked);
    }

    // Proof from above.

    #[test]
    fn proof_from_above_makes_any_known_state_reachable_without_a_packet() {
        for state in KNOWN {
            let mut life = life(state);
            assert_eq!((life.event(Event::Confirmed), life.state()), (vec![], Some(State::Reachable)));
        }
        let mut incomplete = life(State::Incomplete);
        incomplete.event(Event::Confirmed);
        assert_eq!(incomplete.state(), Some(State::Incomplete));
    }

    // Routers.

    #[test]
    fn a_router_that_says_it_no_longer_is_one_is_told_of_once() {
        for kind in [na(true, true), na(false, false), HeardKind::Solicitation] {
            let mut life = life(State::Stale);
            let mut say = |router| life.event(Event::Heard(Heard { link: Some(A), kind, router }));
            assert_eq!((say(YES), say(None), say(YES)), (vec![], vec![], vec![]));
            assert_eq!((say(NO), say(NO)), (vec![Effect::NoLongerRouter], vec![]));
        }
    }

    #[test]
    fn a_message_without_link_address_still_says_who_is_a_router() {
        let mut life = life(State::Incomplete);
        life.event(Event::Heard(Heard { link: None, kind: HeardKind::Solicitation, router: YES }));
        assert!(life.entry().is_router);
    }

    // Settings.

    #[test]
    fn times_of_any_length_are_borne() {
        for state in KNOWN {
            let mut life = life(state);
            let most = Duration::MAX;
            let settings = &mut life.protocol.settings;
            (settings.retrans, settings.reachable, settings.delay) = (most, most, most);
            (settings.garbage, settings.longest_retrans, settings.unreachable) = (most, most, most);
            settings.backoff = u32::MAX;
            life.now = secs(1_000_000);
            for _ in 0..9 {
                life.packet();
                life.timer(true);
                life.hear(A, HeardKind::Solicitation);
            }
            life.hear(A, na(true, true));
            assert_eq!(life.entry().usable(), Some(A));
        }
    }

    // Static entries.

    #[test]
    fn a_static_neighbor_never_ends_and_is_never_changed() {
        let mut life = unknown();
        life.entry = Some(Entry::fixed(A, true));
        life.uses = true;
        life.run_to(secs(1_000_000));
        assert_eq!((life.packet(), life.timer(true), life.event(Event::Confirmed)), (vec![], vec![], vec![]));
        for kind in [na(true, true), na(false, true), HeardKind::Solicitation, HeardKind::Unsolicited] {
            assert_eq!(life.hear(A, kind), []);
            assert_eq!(life.hear(B, kind), [Effect::Refused { kept: A, offered: B }]);
        }
        assert_eq!(life.entry(), &Entry::fixed(A, true));
    }

    #[test]
    fn a_neighbor_in_use_that_answers_is_never_without_link_address() {
        let mut life = life(State::Reachable);
        for _ in 0..10_000 {
            life.run_to(life.now + ms(100));
            life.packet();
            if let Some((_, effect)) = life.log.pop() {
                assert_eq!(effect, Effect::Ask(Ask::Unicast(A)));
                life.hear(A, na(true, true));
            }
            assert_eq!(life.entry().usable(), Some(A));
        }
        assert_eq!(life.log, []);
    }

    proptest! {
        #[test]
        fn whatever_happens_questions_are_a_second_apart_and_a_timer_is_set(
            events in proptest::collection::vec((0u64..4000, 0u8..8, 0u8..4), 1..200),
        ) {
            let mut life = unknown();
            for (wait, what, flags) in events {
                // Up to 400 s, or up to 4 s.
                let wait = if wait % 5 == 0 { ms(wait * 100) } else { ms(wait) };
                life.run_to(life.now + wait);
                let link = if flags & 1 == 0 { A } else { B };
                match what {
                    0 => drop(life.hear(link, na(true, flags & 2 == 0))),
                    1 => drop(life.hear(link, na(false, flags & 2 == 0))),
                    2 => drop(life.hear(link, HeardKind::Solicitation)),
                    3 => life.uses = !life.uses,
                    4 => drop(life.event(Event::Confirmed)),
                    _ => drop(life.packet()),
                }
                let entry = life.entry.as_ref();
                prop_assert!(entry.is_none_or(|entry| entry.deadline >= Some(life.now)), "{entry:?}");
                let is_known = |entry: &Entry| entry.state != State::Incomplete;
                prop_assert!(entry.is_none_or(|entry| entry.usable().is_some() == is_known(entry)));
            }
            for pair in life.asked_at().windows(2) {
                prop_assert!(pair[1] - pair[0] >= secs(1), "{:?}", life.log);
            }
        }
    }
}
