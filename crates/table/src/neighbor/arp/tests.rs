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
