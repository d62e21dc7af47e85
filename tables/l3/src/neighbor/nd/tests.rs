use super::*;
use crate::neighbor::protocol::testing::{A, B, Life, ms, secs};
use crate::neighbor::protocol::{SolicitTarget, State};
use artery_wire::EtherAddr;
use proptest::prelude::*;

const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);

fn na(solicited: bool, overrides: bool) -> NeighborUpdateKind {
    NeighborUpdateKind::Advertisement { solicited, overrides }
}

fn unknown() -> Life<NdProtocol> {
    Life::new(NdProtocol::default())
}

/// A neighbor with the address A that came to a state by the usual way, and an empty log.
fn life(state: State) -> Life<NdProtocol> {
    let mut life = unknown();
    life.packet();
    if state != State::Incomplete {
        life.receive_update(A, na(state == State::Reachable, true));
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

/// One that was silent until packets failed.
fn failed() -> Life<NdProtocol> {
    let mut life = life(State::Unreachable);
    life.run_to(secs(11));
    assert_eq!((life.state(), life.entry().usable_link()), (Some(State::Failed), None));
    assert!(life.entry().has_failed());
    life
}

/// What a message does to a neighbor in a state: where it is then, its link address, and the effects.
fn after(
    state: State,
    link: Option<EtherAddr>,
    kind: NeighborUpdateKind,
) -> (State, Option<EtherAddr>, Vec<Effect>) {
    let mut life = life(state);
    let effects = life.event(Event::Learned(NeighborUpdate { link, kind, router: None }));
    (life.entry().state, life.entry().usable_link(), effects)
}

const KNOWN: [State; 5] = [State::Reachable, State::Stale, State::Delay, State::Probe, State::Unreachable];
const MOVED: Effect = Effect::Moved { from: A, to: B };

// No entry.

#[test]
fn none_on_send_becomes_incomplete_and_asks_all() {
    let mut life = unknown();
    assert_eq!(life.packet(), [Effect::Solicit(SolicitTarget::Multicast)]);
    assert_eq!(life.state(), Some(State::Incomplete));
}

#[test]
fn none_on_a_solicitation_for_us_with_a_link_address_becomes_stale() {
    let nd = NdProtocol::default();
    let heard = NeighborUpdate { link: Some(A), kind: NeighborUpdateKind::Solicitation, router: None };
    assert!(nd.may_create(&heard, true) && !nd.may_create(&heard, false));
    assert!(!nd.may_create(&NeighborUpdate { link: None, ..heard }, true));
    let mut life = unknown();
    life.entry = Some(NeighborEntry::new());
    assert_eq!(life.receive_update(A, NeighborUpdateKind::Solicitation), [Effect::Resolved]);
    assert_eq!(life.state(), Some(State::Stale));
}

#[test]
fn none_on_an_advertisement_stays_none_in_hosts_and_becomes_stale_in_routers() {
    let router = NdProtocol::default();
    let host = NdProtocol { settings: NudSettings { learns_unsolicited: false, ..NudSettings::nd() } };
    for (solicited, overrides) in [(true, true), (true, false), (false, true), (false, false)] {
        let heard = NeighborUpdate { link: Some(A), kind: na(solicited, overrides), router: YES };
        assert!(router.may_create(&heard, true) && !host.may_create(&heard, true));
        assert!(!router.may_create(&heard, false));
        assert!(!router.may_create(&NeighborUpdate { link: None, ..heard }, true));
        let mut life = unknown();
        life.entry = Some(NeighborEntry::new());
        assert_eq!(life.event(Event::Learned(heard)), [Effect::Resolved]);
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
    assert_eq!(life.sent_solicits(), [0, 1, 2].map(|at| (secs(at), SolicitTarget::Multicast)));
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
    life.event(Event::Learned(NeighborUpdate { link: None, kind: na(true, true), router: YES }));
    assert_eq!(life.entry(), &before);
}

#[test]
fn incomplete_on_a_solicitation_becomes_stale() {
    let stale = (State::Stale, Some(A), vec![Effect::Resolved]);
    assert_eq!(after(State::Incomplete, Some(A), NeighborUpdateKind::Solicitation), stale);
    let incomplete = (State::Incomplete, None, vec![]);
    assert_eq!(after(State::Incomplete, None, NeighborUpdateKind::Solicitation), incomplete);
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
        assert_eq!(life.entry().usable_link(), Some(A));
    }
}

#[test]
fn unreachable_on_send_stays_in_use() {
    let mut life = life(State::Unreachable);
    life.now += ms(300);
    assert_eq!((life.packet(), life.state()), (vec![], Some(State::Unreachable)));
    assert_eq!(life.entry().usable_link(), Some(A));
}

#[test]
fn failed_on_send_lives_on() {
    let mut life = failed();
    life.now += ms(300);
    assert_eq!((life.packet(), life.state()), (vec![], Some(State::Failed)));
    assert_eq!(life.entry().expires, Some(life.now + secs(600)));
}

// On timer.

#[test]
fn reachable_becomes_stale_after_fifteen_to_forty_five_seconds_not_always_the_same() {
    let mut life = unknown();
    life.packet();
    let (mut least, mut most) = (secs(100), secs(0));
    for _ in 0..1000 {
        life.receive_update(A, na(true, true));
        let time = life.entry().deadline.unwrap() - life.now;
        (least, most) = (least.min(time), most.max(time));
    }
    assert!((secs(15)..secs(16)).contains(&least), "{least:?}");
    assert!((secs(44)..=secs(45)).contains(&most), "{most:?}");
    life.run_to(life.entry().deadline.unwrap());
    assert_eq!((life.state(), life.entry().usable_link()), (Some(State::Stale), Some(A)));
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
    assert_eq!(life.sent_solicits(), vec![(secs(5), SolicitTarget::Unicast(A))]);
    assert_eq!(life.state(), Some(State::Probe));
}

#[test]
fn probe_on_timer_asks_three_times_in_all_then_all_are_asked_and_packets_still_go() {
    let mut life = life(State::Delay);
    life.run_to(secs(8));
    assert_eq!(life.sent_solicits()[..3], [5, 6, 7].map(|at| (secs(at), SolicitTarget::Unicast(A))));
    let rest =
        [Effect::Unreachable, Effect::Solicit(SolicitTarget::Multicast)].map(|effect| (secs(8), effect));
    assert_eq!(life.log[3..], rest);
    assert_eq!((life.state(), life.entry().usable_link()), (Some(State::Unreachable), Some(A)));
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
fn unreachable_on_timer_asks_all_three_times_and_then_packets_fail() {
    let life = failed();
    let asks = [9, 10, 11].map(|at| (secs(at), SolicitTarget::Multicast));
    assert_eq!(life.sent_solicits(), asks);
}

#[test]
fn failed_on_timer_asks_all_ever_more_seldom_but_once_a_minute() {
    let mut life = failed();
    while life.now < secs(3600) {
        life.run_to(life.now + ms(500));
        life.packet();
    }
    assert!(life.sent_solicits().iter().all(|&(_, to)| to == SolicitTarget::Multicast));
    let gaps: Vec<Duration> = life.asked_at()[2..].windows(2).map(|pair| pair[1] - pair[0]).collect();
    // Three seconds, nine, and twenty-seven, each times a half to one and a half.
    assert!((ms(1500)..=ms(4500)).contains(&gaps[0]), "{gaps:?}");
    assert!((ms(4500)..=ms(13_500)).contains(&gaps[1]), "{gaps:?}");
    assert!((ms(13_500)..=ms(40_500)).contains(&gaps[2]), "{gaps:?}");
    assert!(gaps[3..].iter().all(|gap| (secs(30)..=secs(60)).contains(gap)), "{gaps:?}");
}

#[test]
fn failed_on_timer_ends_when_nobody_wanted_it_for_ten_minutes() {
    let mut life = failed();
    life.run_to(secs(3600));
    let (at, effect) = life.log[life.log.len() - 1];
    assert_eq!(effect, Effect::Deleted);
    assert!((secs(611)..=secs(671)).contains(&at), "{at:?}");
}

#[test]
fn failed_on_any_message_with_a_link_address_is_used_again() {
    for (kind, state) in [
        (na(true, true), State::Reachable),
        (na(false, false), State::Stale),
        (NeighborUpdateKind::Solicitation, State::Stale),
    ] {
        for link in [A, B] {
            let mut life = failed();
            assert_eq!(life.receive_update(link, kind), [Effect::Resolved]);
            assert_eq!((life.state(), life.entry().usable_link()), (Some(state), Some(link)));
        }
    }
}

/// What is reported when a neighbor that was reported unreachable answers again.
fn told_of(state: State) -> Vec<Effect> {
    if state == State::Unreachable { vec![Effect::Resolved] } else { vec![] }
}

// On an answer.

#[test]
fn any_known_state_on_an_answer_becomes_reachable() {
    for state in KNOWN {
        for link in [None, Some(A)] {
            for overrides in [false, true] {
                let reached = (State::Reachable, Some(A), told_of(state));
                assert_eq!(after(state, link, na(true, overrides)), reached, "{state:?} {link:?}");
            }
        }
    }
}

#[test]
fn reachable_on_an_answer_begins_its_time_anew() {
    let mut life = life(State::Reachable);
    life.now = secs(10);
    life.receive_update(A, na(true, true));
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
            let heard = NeighborUpdate { link: Some(B), kind: na(solicited, false), router: YES };
            assert_eq!(life.event(Event::Learned(heard)), []);
            assert_eq!(life.entry(), &before);
        }
    }
}

#[test]
fn any_known_state_on_an_overriding_advertisement_unasked_takes_its_link_address_and_becomes_stale() {
    for state in KNOWN {
        for kind in [na(false, true), NeighborUpdateKind::Unsolicited] {
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
        let found = after(state, Some(B), NeighborUpdateKind::Solicitation);
        assert_eq!(found, (State::Stale, Some(B), vec![MOVED]));
    }
}

#[test]
fn any_known_state_on_a_solicitation_with_its_own_link_address_or_none_stays() {
    for state in KNOWN {
        for link in [None, Some(A)] {
            assert_eq!(after(state, link, NeighborUpdateKind::Solicitation), (state, Some(A), vec![]));
        }
    }
}

// Proof from above.

#[test]
fn proof_from_above_makes_any_known_state_reachable_without_a_packet() {
    for state in KNOWN {
        let mut life = life(state);
        assert_eq!((life.event(Event::Confirmed), life.state()), (told_of(state), Some(State::Reachable)));
    }
    let mut incomplete = life(State::Incomplete);
    incomplete.event(Event::Confirmed);
    assert_eq!(incomplete.state(), Some(State::Incomplete));
}

// Routers.

#[test]
fn a_router_that_says_it_no_longer_is_one_is_told_of_once() {
    for kind in [na(true, true), na(false, false), NeighborUpdateKind::Solicitation] {
        let mut life = life(State::Stale);
        let mut say = |router| life.event(Event::Learned(NeighborUpdate { link: Some(A), kind, router }));
        assert_eq!((say(YES), say(None), say(YES)), (vec![], vec![], vec![]));
        assert_eq!((say(NO), say(NO)), (vec![Effect::NoLongerRouter], vec![]));
    }
}

#[test]
fn a_message_without_link_address_still_says_who_is_a_router() {
    let mut life = life(State::Incomplete);
    life.event(Event::Learned(NeighborUpdate {
        link: None,
        kind: NeighborUpdateKind::Solicitation,
        router: YES,
    }));
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
            life.receive_update(A, NeighborUpdateKind::Solicitation);
        }
        life.receive_update(A, na(true, true));
        assert_eq!(life.entry().usable_link(), Some(A));
    }
}

// Static entries.

#[test]
fn a_static_neighbor_never_ends_and_is_never_changed() {
    let mut life = unknown();
    life.entry = Some(NeighborEntry::new_static(A, true));
    life.uses = true;
    life.run_to(secs(1_000_000));
    assert_eq!((life.packet(), life.timer(true), life.event(Event::Confirmed)), (vec![], vec![], vec![]));
    for kind in
        [na(true, true), na(false, true), NeighborUpdateKind::Solicitation, NeighborUpdateKind::Unsolicited]
    {
        assert_eq!(life.receive_update(A, kind), []);
        assert_eq!(life.receive_update(B, kind), [Effect::Refused { kept: A, offered: B }]);
    }
    assert_eq!(life.entry(), &NeighborEntry::new_static(A, true));
}

#[test]
fn a_neighbor_in_use_that_answers_is_never_without_link_address() {
    let mut life = life(State::Reachable);
    for _ in 0..10_000 {
        life.run_to(life.now + ms(100));
        life.packet();
        if let Some((_, effect)) = life.log.pop() {
            assert_eq!(effect, Effect::Solicit(SolicitTarget::Unicast(A)));
            life.receive_update(A, na(true, true));
        }
        assert_eq!(life.entry().usable_link(), Some(A));
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
                0 => drop(life.receive_update(link, na(true, flags & 2 == 0))),
                1 => drop(life.receive_update(link, na(false, flags & 2 == 0))),
                2 => drop(life.receive_update(link, NeighborUpdateKind::Solicitation)),
                3 => life.uses = !life.uses,
                4 => drop(life.event(Event::Confirmed)),
                _ => drop(life.packet()),
            }
            let entry = life.entry.as_ref();
            prop_assert!(entry.is_none_or(|entry| entry.deadline >= Some(life.now)), "{entry:?}");
            let is_known = |entry: &NeighborEntry| !matches!(entry.state, State::Incomplete | State::Failed);
            prop_assert!(entry.is_none_or(|entry| entry.usable_link().is_some() == is_known(entry)));
        }
        for pair in life.asked_at().windows(2) {
            prop_assert!(pair[1] - pair[0] >= secs(1), "{:?}", life.log);
        }
    }
}
