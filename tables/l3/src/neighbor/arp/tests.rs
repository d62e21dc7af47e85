use super::*;
use crate::neighbor::protocol::testing::{A, B, C, Life, ms, secs};
use crate::neighbor::protocol::{NeighborUpdateKind, SolicitTarget, State};
use proptest::prelude::*;

const REPLY: NeighborUpdateKind = NeighborUpdateKind::Advertisement { solicited: true, overrides: true };

fn life() -> Life<ArpProtocol> {
    Life::new(ArpProtocol::default())
}

/// A neighbor that answered at 0 s.
fn answered() -> Life<ArpProtocol> {
    let mut life = life();
    life.packet();
    life.receive_update(A, REPLY);
    life.log.clear();
    life
}

#[test]
fn a_neighbor_is_asked_for_at_once_and_every_second_five_times_in_all() {
    let mut life = life();
    assert_eq!(life.packet(), [Effect::Solicit(SolicitTarget::Multicast)]);
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
    assert!(life.entry().has_failed() && life.entry().usable_link().is_none());
    assert_eq!(life.packet(), []);
    life.run_to(ms(23_999));
    assert!(life.entry().has_failed());
    life.run_to(secs(24));
    assert_eq!(life.log.last(), Some(&(secs(24), Effect::Deleted)));
    assert_eq!(life.state(), None);
    assert_eq!(life.packet(), [Effect::Solicit(SolicitTarget::Multicast)]);
}

#[test]
fn an_answer_resolves_whatever_asks_came_before() {
    for asks in 0..5 {
        let mut life = life();
        life.packet();
        life.run_to(secs(asks));
        assert_eq!(life.receive_update(A, REPLY), [Effect::Resolved]);
        assert_eq!((life.entry().usable_link(), life.entry().asked), (Some(A), 0));
    }
}

#[test]
fn an_answer_that_comes_late_ends_the_failure() {
    let mut life = life();
    life.packet();
    life.run_to(secs(10));
    assert_eq!(life.receive_update(A, REPLY), [Effect::Resolved]);
    assert_eq!((life.state(), life.entry().usable_link()), (Some(State::Reachable), Some(A)));
}

#[test]
fn a_packet_asks_when_the_timer_is_late() {
    let mut life = life();
    life.packet();
    life.now = ms(1500);
    assert_eq!(life.packet(), [Effect::Solicit(SolicitTarget::Multicast)]);
    life.now = ms(2400);
    assert_eq!(life.packet(), []);
}

#[test]
fn a_neighbor_that_is_not_used_is_never_asked_and_ends_after_twenty_minutes() {
    let mut life = answered();
    let stale = life.entry().deadline.unwrap();
    assert!((secs(15)..=secs(45)).contains(&stale), "{stale:?}");
    life.run_to(stale + ms(1_199_999));
    assert_eq!((life.state(), life.log.len(), life.entry().usable_link()), (Some(State::Stale), 0, Some(A)));
    life.run_to(stale + secs(1200));
    assert_eq!(life.log, [(stale + secs(1200), Effect::Expired)]);
}

/// A neighbor that was stale when it was used, at the time that is returned.
fn used_when_stale() -> (Life<ArpProtocol>, Duration) {
    let mut life = answered();
    life.run_to(life.entry().deadline.unwrap());
    assert_eq!((life.state(), life.entry().wants_report()), (Some(State::Stale), true));
    let used = life.now;
    assert_eq!((life.packet(), life.state()), (vec![], Some(State::Delay)));
    (life, used)
}

#[test]
fn a_neighbor_in_use_is_asked_alone_and_lives_on_without_a_gap() {
    let mut life = answered();
    let mut asked = 0;
    while life.now < secs(3600) {
        // A packet every 200 ms; the neighbor answers what it is asked.
        life.run_to(life.now + ms(200));
        life.packet();
        for (_, effect) in std::mem::take(&mut life.log) {
            assert_eq!(effect, Effect::Solicit(SolicitTarget::Unicast(A)));
            assert_eq!(life.receive_update(A, REPLY), []);
            asked += 1;
        }
        assert_eq!(life.entry().usable_link(), Some(A));
    }
    assert!((3600 / 50..=3600 / 20).contains(&asked), "asked {asked} times in an hour");
}

#[test]
fn one_that_is_silent_in_use_is_asked_alone_then_by_all_and_then_packets_fail() {
    let (mut life, used) = used_when_stale();
    let at = |seconds| used + secs(seconds);
    life.run_to(at(10));
    assert_eq!(life.sent_solicits()[..3], [5, 6, 7].map(|seconds| (at(seconds), SolicitTarget::Unicast(A))));
    assert_eq!(life.log[3], (at(8), Effect::Unreachable));
    assert_eq!(life.sent_solicits()[3..], [8, 9, 10].map(|seconds| (at(seconds), SolicitTarget::Multicast)));
    assert_eq!((life.state(), life.entry().usable_link()), (Some(State::Unreachable), Some(A)));
    life.run_to(at(11));
    assert!(life.entry().has_failed() && life.entry().usable_link().is_none());
    assert!(life.now <= secs(57));
    // It is asked for as long as a route wants it, every five seconds at most and two and a half at least on
    // average.
    life.log.clear();
    for _ in 0..600 {
        life.run_to(life.now + secs(1));
        life.packet();
    }
    let asks = life.sent_solicits();
    assert!(asks.iter().all(|(_, to)| *to == SolicitTarget::Multicast));
    assert!((120..=240).contains(&asks.len()), "{}", asks.len());
    assert_eq!(life.receive_update(A, REPLY), [Effect::Resolved]);
    assert_eq!((life.state(), life.entry().usable_link()), (Some(State::Reachable), Some(A)));
}

#[test]
fn a_silent_neighbor_that_nobody_wants_ends_after_ten_minutes() {
    let (mut life, used) = used_when_stale();
    life.run_to(used + secs(3600));
    let (at, effect) = life.log[life.log.len() - 1];
    assert_eq!(effect, Effect::Deleted);
    assert!((secs(611)..=secs(617)).contains(&(at - used)), "{at:?}");
}

#[test]
fn a_neighbor_that_took_another_link_address_is_found_before_packets_fail() {
    let (mut life, used) = used_when_stale();
    life.run_to(used + secs(8));
    for kind in [REPLY, NeighborUpdateKind::Solicitation, NeighborUpdateKind::Unsolicited] {
        let mut life = Life { entry: life.entry.clone(), log: Vec::new(), ..answered() };
        life.now = used + secs(8);
        assert_eq!(life.receive_update(B, kind), [Effect::Moved { from: A, to: B }]);
        assert_eq!(life.entry().usable_link(), Some(B));
    }
}

#[test]
fn a_silent_neighbor_that_answers_again_is_told_of() {
    for wait in [8, 9, 11, 30] {
        let (mut life, used) = used_when_stale();
        life.run_to(used + secs(wait));
        assert_eq!(life.receive_update(A, REPLY), [Effect::Resolved], "after {wait} s");
        assert_eq!(life.state(), Some(State::Reachable));
    }
}

#[test]
fn what_a_neighbor_says_unasked_does_not_prove_that_it_hears_us() {
    for kind in [NeighborUpdateKind::Solicitation, NeighborUpdateKind::Unsolicited] {
        let (mut life, used) = used_when_stale();
        assert_eq!((life.receive_update(A, kind), life.state()), (vec![], Some(State::Delay)));
        life.run_to(used + secs(5));
        assert_eq!(life.sent_solicits(), [(used + secs(5), SolicitTarget::Unicast(A))]);
    }
}

/// A neighbor of long ago, whose address another link address claims.
fn claimed() -> Life<ArpProtocol> {
    let mut life = answered();
    life.run_to(secs(100));
    let effects = life.receive_update(B, NeighborUpdateKind::Unsolicited);
    let question = Effect::Solicit(SolicitTarget::Unicast(A));
    assert_eq!(effects, [Effect::Doubted { kept: A, offered: B }, question]);
    assert_eq!(life.entry().usable_link(), Some(A));
    life.log.clear();
    life
}

#[test]
fn a_neighbor_that_answers_keeps_an_address_that_is_claimed() {
    for kind in [REPLY, NeighborUpdateKind::Solicitation, NeighborUpdateKind::Unsolicited] {
        let mut life = claimed();
        life.run_to(ms(100_199));
        assert_eq!(life.receive_update(A, kind), [Effect::Refused { kept: A, offered: B }]);
        let state = if kind == REPLY { State::Reachable } else { State::Stale };
        assert_eq!((life.state(), life.entry().usable_link()), (Some(state), Some(A)));
        life.run_to(secs(200));
        assert_eq!((life.entry().usable_link(), life.sent_solicits()), (Some(A), vec![]));
    }
}

#[test]
fn a_neighbor_that_is_silent_loses_it_and_everyone_is_asked() {
    let mut life = claimed();
    life.run_to(ms(100_199));
    assert_eq!(life.entry().usable_link(), Some(A));
    life.run_to(secs(102));
    let moved = (ms(100_200), Effect::Moved { from: A, to: B });
    assert_eq!(life.log, [moved, (secs(101), Effect::Solicit(SolicitTarget::Multicast))]);
    assert_eq!((life.state(), life.entry().usable_link()), (Some(State::Reachable), Some(B)));
}

#[test]
fn an_answer_to_everyone_corrects_a_claim_at_once_and_a_later_one_is_doubted() {
    let mut life = claimed();
    life.run_to(ms(101_100));
    assert_eq!(life.receive_update(A, REPLY), [Effect::Moved { from: B, to: A }]);
    assert_eq!(life.receive_update(B, REPLY)[0], Effect::Doubted { kept: A, offered: B });
    let mut late = claimed();
    late.run_to(ms(101_300));
    assert_eq!(late.receive_update(A, REPLY)[0], Effect::Doubted { kept: B, offered: A });
}

#[test]
fn the_last_claim_of_many_counts_and_they_ask_once_a_second() {
    let mut life = claimed();
    assert_eq!(life.receive_update(C, NeighborUpdateKind::Unsolicited), []);
    life.run_to(ms(100_250));
    assert_eq!(life.entry().usable_link(), Some(C));
    // The one who was late asks for its address in the same second.
    let found = life.receive_update(A, NeighborUpdateKind::Solicitation);
    assert_eq!(found, [Effect::Doubted { kept: C, offered: A }]);
    life.run_to(secs(101));
    assert_eq!(life.entry().usable_link(), Some(C));
    life.run_to(secs(103));
    assert_eq!(life.entry().usable_link(), Some(A));
    let found = life.sent_solicits();
    assert_eq!(found, [(secs(101), SolicitTarget::Unicast(C)), (secs(102), SolicitTarget::Multicast)]);
}

#[test]
fn a_flood_of_claims_asks_a_live_neighbor_once_a_second_and_never_moves_it() {
    let mut life = answered();
    for at in 10_000..20_000 {
        life.run_to(ms(at));
        let claim = life.receive_update(B, NeighborUpdateKind::Unsolicited);
        if claim.contains(&Effect::Solicit(SolicitTarget::Unicast(A)))
            || life.asked_at().last() == Some(&ms(at))
        {
            life.receive_update(A, REPLY);
        }
        assert_eq!(life.entry().usable_link(), Some(A));
    }
    assert_eq!(life.sent_solicits().len(), 10);
}

#[test]
fn without_doubt_a_claim_is_believed_at_once() {
    let mut life = answered();
    life.protocol.settings.doubt = Duration::ZERO;
    assert_eq!(life.receive_update(B, NeighborUpdateKind::Unsolicited), [Effect::Moved { from: A, to: B }]);
    assert_eq!(life.entry().usable_link(), Some(B));
}

#[test]
fn a_static_neighbor_never_ends_and_is_never_changed() {
    let mut life = life();
    life.entry = Some(NeighborEntry::new_static(A, false));
    life.uses = true;
    life.run_to(secs(100_000));
    assert_eq!((life.packet(), life.timer(true)), (vec![], vec![]));
    assert_eq!(life.receive_update(A, REPLY), []);
    for kind in [REPLY, NeighborUpdateKind::Solicitation, NeighborUpdateKind::Unsolicited] {
        assert_eq!(life.receive_update(B, kind), [Effect::Refused { kept: A, offered: B }]);
    }
    life.event(Event::Confirmed);
    assert_eq!(life.entry(), &NeighborEntry::new_static(A, false));
}

#[test]
fn proof_from_above_makes_a_known_neighbor_reachable_and_no_unknown_one() {
    let (mut life, _) = used_when_stale();
    life.event(Event::Confirmed);
    assert_eq!(life.state(), Some(State::Reachable));
    let mut unknown = super::tests::life();
    unknown.packet();
    unknown.event(Event::Confirmed);
    assert_eq!(unknown.state(), Some(State::Incomplete));
}

#[test]
fn only_those_who_talk_to_us_make_an_entry() {
    let arp = ArpProtocol::default();
    let heard = NeighborUpdate { link: Some(A), kind: NeighborUpdateKind::Solicitation, router: None };
    assert!(arp.may_create(&heard, true));
    assert!(!arp.may_create(&heard, false));
    assert!(!arp.may_create(&NeighborUpdate { link: None, ..heard }, true));
}

#[test]
fn times_of_any_length_are_borne() {
    let mut life = life();
    let most = Duration::MAX;
    let settings = &mut life.protocol.settings;
    (settings.retrans, settings.reachable, settings.negative, settings.doubt) = (most, most, most, most);
    life.now = secs(1);
    life.packet();
    life.timer(true);
    life.receive_update(A, REPLY);
    life.timer(true);
    life.receive_update(B, REPLY);
    life.packet();
    assert_eq!(life.entry().usable_link(), Some(A));
}

proptest! {
    #[test]
    fn whatever_happens_a_second_has_two_requests_at_most(
        events in proptest::collection::vec((0u64..4000, 0u8..6), 1..200),
    ) {
        let mut life = life();
        for (wait, what) in events {
            // Up to 400 s, or up to 4 s.
            let wait = if wait % 5 == 0 { ms(wait * 100) } else { ms(wait) };
            life.run_to(life.now + wait);
            match what {
                0 => drop(life.receive_update(A, REPLY)),
                1 => drop(life.receive_update(B, NeighborUpdateKind::Unsolicited)),
                2 => life.uses = !life.uses,
                _ => drop(life.packet()),
            }
        }
        // A request may be followed at once by one because of a claim.
        for three in life.asked_at().windows(3) {
            prop_assert!(three[2] - three[0] >= secs(1), "{:?}", life.log);
        }
    }
}
