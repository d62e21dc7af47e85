//! What holds for every neighbor: when it fails, how it stays known, and what makes its link address invalid.
use super::rig::*;
use artery_l3::neighbor::arp::ArpProtocol;
use artery_l3::neighbor::nd::NdProtocol;
use artery_l3::neighbor::{
    External, Happened, Kind, L2Engine, Link, NeighborLimits, NeighborUpdateKind, PortChange, Protocol,
    Resolution, SolicitTarget,
};

const A: u32 = 0x0a00_0001;
const B: u32 = 0x0a00_0002;

fn arp() -> Rig<u32, ArpProtocol> {
    Rig::new(NeighborLimits::default())
}

/// With two neighbors that were sent to.
fn arp_with_two() -> Rig<u32, ArpProtocol> {
    let mut rig = arp();
    rig.there.extend([(A, mac(1)), (B, mac(2))]);
    assert_eq!([A, B].map(|address| rig.send(address)), [Sent::To(mac(1)), Sent::To(mac(2))]);
    rig
}

#[test]
fn an_unknown_neighbor_is_asked_for_once_a_second_however_many_packets_wait() {
    let mut rig = arp();
    for _ in 0..4000 {
        assert_eq!(rig.send(A), Sent::Waits);
        rig.run_for(ms(1));
    }
    assert_eq!(rig.asked_at(A), [0, 1, 2, 3, 4].map(secs));
    rig.hear(A, mac(1), REPLY);
    assert_eq!(rig.events_of(A), [Happened::Resolved(mac(1))]);
    assert_eq!(rig.send(A), Sent::To(mac(1)));
}

#[test]
fn a_neighbor_asked_in_vain_fails_at_once_for_twenty_seconds_and_is_then_asked_anew() {
    let mut rig = arp();
    rig.send(A);
    rig.run_to(secs(5));
    assert_eq!(rig.events_of(A), [Happened::Failed]);
    let slow = rig.resolved;
    rig.run_to(ms(23_999));
    assert_eq!((rig.send(A), rig.resolved), (Sent::Fails, slow), "the word alone says so");
    assert_eq!(rig.table.resolve(A, rig.now), Resolution::Failed);
    rig.run_to(secs(24));
    assert_eq!((rig.link(A), rig.table.len()), (None, 0));
    assert_eq!((rig.send(A), rig.asked_at(A).len()), (Sent::Waits, 6));
    let counters = rig.table.counters();
    assert_eq!((counters.failed, counters.timed_out, counters.asked), (1, 1, 6));
}

#[test]
fn traffic_never_waits_while_a_neighbor_is_verified() {
    let mut rig = arp_with_two();
    let slow = rig.resolved;
    while rig.now < secs(6000) {
        assert_eq!(rig.send(A), Sent::To(mac(1)), "at {:?}", rig.now);
        rig.run_for(ms(500));
    }
    assert_eq!(rig.resolved, slow, "every packet took the fast way");
    let of_a: Vec<SolicitTarget> = rig.asks.iter().filter(|ask| ask.1 == A).map(|ask| ask.2).collect();
    assert!(of_a[1..].iter().all(|to| *to == SolicitTarget::Unicast(mac(1))));
    // Every 20 to 51 s.
    assert!((115..=300).contains(&of_a.len()), "{}", of_a.len());
    assert!(rig.reports <= 3 * of_a.len(), "{} of 12,000 packets came at such a time", rig.reports);
    // No packet was sent to the other one.
    assert_eq!(rig.events_of(B), [Happened::Resolved(mac(2)), Happened::Expired]);
    assert_eq!(rig.asked_at(B).len(), 1);
}

#[test]
fn a_stale_neighbor_is_used_and_doubted_from_its_first_use_on() {
    let mut rig = Rig::<u128, NdProtocol>::new(NeighborLimits::default());
    rig.there.insert(1, mac(1));
    assert_eq!(rig.send(1), Sent::To(mac(1)));
    rig.run_to(secs(1000));
    assert_eq!((rig.table.find_neighbor(1, rig.now).unwrap().state, rig.asks.len()), ("STALE", 1));
    let slow = rig.resolved;
    assert_eq!(rig.send(1), Sent::To(mac(1)));
    // A check within a second, 5 s of delay, and one solicitation, which is answered.
    rig.run_to(ms(1_000_500));
    assert_eq!(rig.table.find_neighbor(1, rig.now).unwrap().state, "STALE");
    rig.run_to(secs(1002));
    assert_eq!(rig.table.find_neighbor(1, rig.now).unwrap().state, "DELAY");
    rig.run_to(secs(1008));
    assert_eq!((rig.table.find_neighbor(1, rig.now).unwrap().state, rig.resolved), ("REACHABLE", slow));
    assert_eq!(rig.asks[1].2, SolicitTarget::Unicast(mac(1)));
}

/// The times at which a neighbor in use that has died is reported, and packets to it fail; then it comes
/// back, with another link address.
fn a_dead_neighbor_is_noticed_and_comes_back<P: Protocol + Default>(longest_pause: u64) {
    let mut rig = Rig::<u128, P>::new(NeighborLimits::default());
    rig.table.pin_neighbor(1, rig.now).unwrap();
    rig.there.insert(1, mac(1));
    rig.send(1);
    rig.there.clear();
    while rig.send(1) == Sent::To(mac(1)) {
        assert!(rig.now <= secs(58), "packets go on");
        rig.run_for(ms(300));
    }
    assert_eq!(rig.send(1), Sent::Fails);
    let failed = rig.events.iter().find(|event| event.2 == Happened::Failed).unwrap().0;
    assert!(failed <= secs(55), "{failed:?}");
    // A route wants it.
    for _ in 0..2000 {
        rig.run_for(secs(1));
        assert_eq!(rig.table.resolve(1, rig.now), Resolution::Failed);
        rig.carry_out();
    }
    rig.there.insert(1, mac(9));
    let back = rig.now + secs(longest_pause);
    while rig.send(1) == Sent::Fails {
        rig.run_for(ms(300));
        assert!(rig.now <= back + secs(1));
    }
    assert_eq!(rig.send(1), Sent::To(mac(9)));
    assert_eq!(rig.events_of(1).last(), Some(&Happened::Resolved(mac(9))));
}

#[test]
fn a_dead_neighbor_is_noticed_within_a_minute_by_arp() {
    a_dead_neighbor_is_noticed_and_comes_back::<ArpProtocol>(5);
}

#[test]
fn a_dead_neighbor_is_noticed_within_a_minute_by_neighbor_discovery() {
    a_dead_neighbor_is_noticed_and_comes_back::<NdProtocol>(60);
}

#[test]
fn what_is_set_by_hand_for_a_silent_neighbor_is_told() {
    let mut rig = arp_with_two();
    rig.there.clear();
    while !rig.events_of(A).contains(&Happened::Failed) {
        rig.run_for(ms(300));
        assert_eq!(rig.send(A), Sent::To(mac(1)));
    }
    rig.table.set_neighbor(A, mac(1), Kind::Static, rig.now).unwrap();
    rig.carry_out();
    assert_eq!(rig.events_of(A).last(), Some(&Happened::Resolved(mac(1))));
}

#[test]
fn a_static_neighbor_is_not_overwritten_and_the_attempt_is_told() {
    let mut rig = arp();
    rig.table.set_neighbor(A, mac(1), Kind::Static, rig.now).unwrap();
    for kind in [REPLY, NeighborUpdateKind::Unsolicited, NeighborUpdateKind::Solicitation] {
        rig.hear(A, mac(6), kind);
    }
    rig.carry_out();
    let refused = Happened::Refused { kept: mac(1), heard: mac(6) };
    assert_eq!(rig.events_of(A), [Happened::Resolved(mac(1)), refused, refused, refused]);
    rig.run_to(secs(100_000));
    assert_eq!((rig.send(A), rig.asks.len()), (Sent::To(mac(1)), 0));
    let view = rig.table.find_neighbor(A, rig.now).unwrap();
    assert_eq!(
        (view.state, view.is_static, view.is_published, view.expires_in),
        ("PERMANENT", true, false, None)
    );
    assert_eq!(rig.table.counters().refused, 3);
}

#[test]
fn what_is_set_by_hand_replaces_what_was_known_and_lasts_as_it_says() {
    let mut rig = arp_with_two();
    rig.table.set_neighbor(A, mac(7), Kind::Published, rig.now).unwrap();
    rig.table.set_neighbor(B, mac(2), Kind::Temporary, rig.now).unwrap();
    rig.table.set_neighbor(3, mac(3), Kind::Temporary, rig.now).unwrap();
    rig.carry_out();
    assert_eq!(rig.events_of(A)[1..], [Happened::Moved { from: mac(1), to: mac(7) }]);
    assert_eq!((&rig.events_of(B)[1..], rig.events_of(3)), (&[][..], vec![Happened::Resolved(mac(3))]));
    assert!(rig.table.find_neighbor(A, rig.now).unwrap().is_published);
    assert_eq!([A, B, 3].map(|address| rig.send(address)), [mac(7), mac(2), mac(3)].map(Sent::To));
    rig.there.clear();
    rig.run_to(secs(1300));
    let left: Vec<u32> = rig.table.entries(rig.now).iter().map(|view| view.address).collect();
    assert_eq!(left, [A]);
    // One that is learnt takes the place of a static one when that is replaced by hand.
    rig.table.set_neighbor(A, mac(8), Kind::Temporary, rig.now).unwrap();
    rig.hear(A, mac(9), NeighborUpdateKind::Unsolicited);
    rig.run_for(secs(1));
    assert_eq!(rig.send(A), Sent::To(mac(9)));
}

#[test]
fn setting_a_neighbor_by_hand_lets_waiting_packets_go() {
    let mut rig = Rig::<u128, NdProtocol>::new(NeighborLimits::default());
    assert_eq!(rig.send(5), Sent::Waits);
    rig.table.set_neighbor(5, mac(5), Kind::Temporary, rig.now).unwrap();
    rig.carry_out();
    assert_eq!(rig.events_of(5), [Happened::Resolved(mac(5))]);
    assert_eq!(rig.table.find_neighbor(5, rig.now).unwrap().state, "REACHABLE");
}

/// What ends or changes the first neighbor's link address.
type Cause = fn(&mut Rig<u32, ArpProtocol>);

#[test]
fn a_remembered_id_shows_every_cause_that_makes_a_link_address_invalid() {
    let causes: [(&str, Cause, Link); 8] = [
        (
            "another address",
            |rig| {
                rig.there.clear();
                rig.hear(A, mac(9), NeighborUpdateKind::Unsolicited);
                rig.run_for(secs(2));
            },
            Link::ready(mac(9)),
        ),
        (
            "set by hand",
            |rig| rig.table.set_neighbor(A, mac(9), Kind::Static, rig.now).unwrap(),
            Link::ready(mac(9)),
        ),
        ("deleted", |rig| assert!(rig.table.delete_neighbor(A, rig.now)), Link::UNKNOWN),
        ("flushed", |rig| assert_eq!(rig.table.flush_neighbors(rig.now), 2), Link::UNKNOWN),
        ("expired", |rig| rig.run_to(secs(1300)), Link::UNKNOWN),
        ("port down", |rig| rig.table.port_changed(PortChange::Down, rig.now), Link::UNKNOWN),
        (
            "port down and up",
            |rig| {
                rig.table.port_changed(PortChange::Down, rig.now);
                rig.table.port_changed(PortChange::Up, rig.now);
            },
            Link::UNKNOWN,
        ),
        // The words hold no address of the port's own.
        (
            "own address changed",
            |rig| rig.table.port_changed(PortChange::LinkAddress, rig.now),
            Link::ready(mac(1)),
        ),
    ];
    for (name, cause, expected) in causes {
        let mut rig = arp_with_two();
        let id = rig.reader.find_neighbor(&rig.turns.turn(), A).unwrap();
        assert_eq!(rig.links.get(id), Link::ready(mac(1)));
        cause(&mut rig);
        assert_eq!(rig.links.get(id), expected, "{name}");
    }
}

#[test]
fn a_port_that_goes_down_forgets_all_but_static_neighbors_which_come_back_with_it() {
    let mut rig = arp_with_two();
    rig.table.set_neighbor(A, mac(7), Kind::Static, rig.now).unwrap();
    let pinned = rig.table.pin_neighbor(B, rig.now).unwrap();
    rig.table.port_changed(PortChange::Down, rig.now);
    assert_eq!([A, B].map(|address| rig.link(address)), [Some(Link::UNKNOWN); 2]);
    assert_eq!([A, B].map(|address| rig.send(address)), [Sent::Fails; 2]);
    rig.hear(B, mac(2), NeighborUpdateKind::Unsolicited);
    assert_eq!(rig.links.get(pinned), Link::UNKNOWN);
    rig.table.port_changed(PortChange::Up, rig.now);
    assert_eq!([A, B].map(|address| rig.send(address)), [Sent::To(mac(7)), Sent::To(mac(2))]);
    assert_eq!(rig.links.get(pinned), Link::ready(mac(2)));
}

#[test]
fn a_pinned_neighbor_keeps_its_id_through_all_that_becomes_of_it() {
    let mut rig = arp();
    let id = rig.table.pin_neighbor(A, rig.now).unwrap();
    assert_eq!(rig.table.pin_neighbor(A, rig.now), Ok(id));
    assert_eq!((rig.link(A), rig.asks.len()), (Some(Link::UNKNOWN), 0), "a pin sends no request");
    let view = rig.table.find_neighbor(A, rig.now).unwrap();
    assert_eq!((view.state, view.pins, view.id), ("NONE", 2, id));
    for round in 1..4 {
        rig.there.insert(A, mac(round));
        assert_eq!((rig.send(A), rig.links.get(id)), (Sent::To(mac(round)), Link::ready(mac(round))));
        rig.there.clear();
        match round {
            1 => rig.run_for(secs(1300)),
            2 => assert!(rig.table.delete_neighbor(A, rig.now)),
            _ => assert_eq!(rig.table.flush_neighbors(rig.now), 1),
        }
        assert_eq!(rig.links.get(id), Link::UNKNOWN);
    }
    assert_eq!(rig.send(A), Sent::Waits);
    rig.run_for(secs(10));
    assert_eq!(rig.links.get(id), Link::UNREACHABLE);
    rig.run_for(secs(100));
    rig.table.unpin_neighbor(A, rig.now);
    assert_eq!(rig.link(A), Some(Link::UNKNOWN));
    rig.table.unpin_neighbor(A, rig.now);
    assert_eq!((rig.link(A), rig.table.len(), rig.places.in_use()), (None, 0, 0));
}

#[test]
fn an_entry_outlives_its_last_pin() {
    let mut rig = arp_with_two();
    let id = rig.table.pin_neighbor(A, rig.now).unwrap();
    rig.table.unpin_neighbor(A, rig.now);
    rig.table.unpin_neighbor(A, rig.now);
    assert_eq!((rig.send(A), rig.links.get(id)), (Sent::To(mac(1)), Link::ready(mac(1))));
}

#[test]
fn a_neighbor_is_listed_as_people_know_it() {
    let mut rig = arp_with_two();
    rig.there.clear();
    rig.send(9);
    rig.run_to(ms(1500));
    rig.table.pin_neighbor(B, rig.now).unwrap();
    let views = rig.table.entries(rig.now);
    let line = |at: usize| {
        let view = &views[at];
        (view.address, view.link, view.state, view.expires_in, view.pins, view.asked)
    };
    assert_eq!(line(0), (9, None, "INCOMPLETE", Some(ms(500)), 0, 2));
    for (at, address, link, pins) in [(1, A, mac(1), 0), (2, B, mac(2), 1)] {
        let (of, known, state, ends, pinned, asked) = line(at);
        assert_eq!((of, known, state, pinned, asked), (address, Some(link), "REACHABLE", pins, 0));
        assert!(ends.is_some_and(|ends| (ms(13_500)..=ms(43_500)).contains(&ends)), "{ends:?}");
    }
}

#[test]
fn a_neighbor_that_was_heard_of_is_watched_until_it_is_used() {
    let mut rig = arp();
    rig.hear(A, mac(1), NeighborUpdateKind::Solicitation);
    assert_eq!(rig.link(A), Some(Link::ready(mac(1)).with_report()));
    assert_eq!(rig.send(A), Sent::To(mac(1)));
    rig.run_for(secs(2));
    assert_eq!(rig.link(A), Some(Link::ready(mac(1))));
}

#[test]
fn use_of_another_neighbor_that_had_the_id_before_counts_for_nothing() {
    let mut rig = Rig::<u32, ArpProtocol>::with(ArpProtocol::default(), NeighborLimits::default(), 1, 1);
    rig.hear(A, mac(1), NeighborUpdateKind::Solicitation);
    assert_eq!(rig.send(A), Sent::To(mac(1)));
    rig.table.delete_neighbor(A, rig.now);
    rig.turns.park();
    rig.hear(B, mac(2), NeighborUpdateKind::Solicitation);
    rig.run_for(secs(5));
    assert_eq!(rig.link(B), Some(Link::ready(mac(2)).with_report()));
}

#[test]
fn a_successor_goes_on_with_states_and_timers() {
    let mut rig = arp_with_two();
    rig.there.remove(&B);
    while rig.table.find_neighbor(B, rig.now).unwrap().state != "FAILED" {
        rig.send(B);
        rig.run_for(secs(1));
    }
    let (known, now) = (rig.table.learned_entries(), rig.now);
    assert_eq!(known.iter().map(|(address, _)| *address).collect::<Vec<_>>(), [A, B]);
    assert_eq!(rig.table.find_neighbor(A, now).unwrap().state, "STALE");

    let mut next = arp();
    for (address, entry) in known.clone() {
        next.table.restore_neighbor(address, entry, now).unwrap();
    }
    assert_eq!(next.table.learned_entries(), known);
    assert_eq!((next.link(A).unwrap().address(), next.link(B)), (Some(mac(1)), rig.link(B)));
    next.now = now;
    next.carry_out();
    assert_eq!(next.events_of(A), [Happened::Resolved(mac(1))]);
    assert_eq!(next.events_of(B), [Happened::Failed], "next hops prefer others from the beginning");
    assert_eq!(next.table.resolve(B, now), Resolution::Failed);

    // Where another program resolves neighbors, what we knew of them counts for nothing.
    let mut external = Rig::<u32, External>::new(NeighborLimits::default());
    for (address, entry) in known {
        external.table.restore_neighbor(address, entry, now).unwrap();
    }
    assert!(external.table.is_empty());
}
