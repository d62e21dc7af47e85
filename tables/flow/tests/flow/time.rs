//! How flows are proven, forgotten and kept as time goes on.
use super::rig::*;
use artery_flow::{Flow4, FlowSettings, FlowState, IdleTimes};
use std::time::Duration;

#[test]
fn each_state_has_its_idle_time() {
    let mut table = table::<Flow4>(100, 100);
    table.insert(&tcp(1), answer(1), &SYN, at(0)).unwrap();
    establish(&mut table, 2, at(0)).unwrap();
    for (n, last) in [(3, FIN), (4, RST)] {
        let id = establish(&mut table, n, at(0)).unwrap();
        table.touch_flow(id, &last, at(0)).unwrap();
    }
    table.insert(&udp(5), answer(5), &DATAGRAM, at(0)).unwrap();
    let stream = table.insert(&udp(6), answer(6), &DATAGRAM, at(0)).unwrap();
    (0..2).for_each(|_| assert_eq!(table.touch_flow(stream, &DATAGRAM, at(0)), Some(answer(6))));
    let known = |table: &mut artery_flow::FlowTable<Flow4>, seconds: u64| -> Vec<u32> {
        go_round(table, at(seconds));
        let tcp = (1..5).filter(|n| table.find(&tcp(*n)).is_some());
        tcp.collect::<Vec<_>>().into_iter().chain((5..7).filter(|n| table.find(&udp(*n)).is_some())).collect()
    };
    assert_eq!(known(&mut table, 10), [1, 2, 3, 4, 5, 6]);
    assert_eq!(known(&mut table, 11), [1, 2, 3, 5, 6]);
    assert_eq!(known(&mut table, 30), [1, 2, 3, 5, 6]);
    assert_eq!(known(&mut table, 31), [2, 3, 6]);
    assert_eq!(known(&mut table, 61), [2, 6]);
    assert_eq!(known(&mut table, 181), [2]);
    assert_eq!(known(&mut table, 86_400), [2]);
    assert_eq!(known(&mut table, 86_401), [0_u32; 0]);
    assert_eq!(table.stats().expired, [1, 0, 1, 1, 1, 1, 1, 0]);
}

#[test]
fn idle_times_change_for_flows_that_are_known() {
    let mut table = table::<Flow4>(100, 100);
    establish(&mut table, 1, at(0)).unwrap();
    assert_eq!(go_round(&mut table, at(100)), 0);
    table.set_settings(FlowSettings { idle: IdleTimes::PAPER, ..table.settings() });
    assert_eq!(go_round(&mut table, at(100)), 1);
}

#[test]
fn a_flow_that_is_used_lives_on_whether_packets_are_counted_or_not() {
    for counts in [false, true] {
        let mut table = table::<Flow4>(100, 100);
        table.set_settings(FlowSettings { idle: IdleTimes::PAPER, counts });
        let id = establish(&mut table, 1, at(0)).unwrap();
        for ms in (0..120_000).step_by(100) {
            let now = artery_flow::Tick::from_time(Duration::from_millis(ms));
            assert_eq!(table.touch_flow(id, &ACK, now), Some(answer(1)));
            table.maintain_flows(now, 64);
        }
        let view = table.get(id).unwrap();
        assert_eq!(view.packets(), if counts { 1202 } else { 2 });
        assert_eq!(view.bytes(), view.packets() * 40);
        assert_eq!(go_round(&mut table, at(149)), 0);
        assert_eq!(go_round(&mut table, at(151)), 1);
        assert_eq!(table.touch_flow(id, &ACK, at(151)), None);
    }
}

#[test]
fn nothing_is_forgotten_early_when_the_clock_wraps_or_goes_back() {
    let wrap = (1_u64 << 32) / 10_000;
    for start in [wrap - 5, wrap * 3 - 1, wrap, 7] {
        let mut table = table::<Flow4>(100, 100);
        establish(&mut table, 1, at(start)).unwrap();
        assert_eq!(go_round(&mut table, at(start + 86_399)), 0);
        assert_eq!(go_round(&mut table, at(start + 86_401)), 1);
    }
    let mut table = table::<Flow4>(100, 100);
    let id = establish(&mut table, 1, at(1_000_000)).unwrap();
    table.insert(&udp(2), answer(2), &DATAGRAM, at(1_000_000)).unwrap();
    assert_eq!(go_round(&mut table, at(10)), 0);
    assert_eq!(table.get(id).unwrap().idle_time(at(9)), Duration::ZERO);
    assert_eq!(go_round(&mut table, at(40)), 0);
    assert_eq!(go_round(&mut table, at(41)), 1);
    table.touch_flow(id, &ACK, at(3)).unwrap();
    assert_eq!(go_round(&mut table, at(86_403)), 0);
    assert_eq!(go_round(&mut table, at(86_404)), 1);
}

#[test]
fn a_pinned_flow_stays_until_it_is_removed() {
    let mut table = table::<Flow4>(2, 1);
    let id = table.insert(&tcp(1), answer(1), &SYN, at(0)).unwrap();
    assert!(table.pin_flow(id, true));
    (2..100).for_each(|n| attempt(&mut table, n, at(0)));
    assert_eq!(go_round(&mut table, at(100_000)), 1);
    assert!(table.get(id).is_some_and(|view| view.is_pinned() && !view.is_young()));
    assert!(table.remove(id) && !table.remove(id) && !table.pin_flow(id, true));
    assert_eq!((table.len(), table.stats().young), (0, 0));
}

#[test]
fn a_flow_is_young_until_it_is_proven() {
    let mut table = table::<Flow4>(10, 10);
    let id = table.insert(&tcp(1), answer(1), &SYN, at(0)).unwrap();
    table.touch_flow(id, &SYN, at(0));
    assert!(table.get(id).unwrap().is_young());
    let version = table.get(id).unwrap().version();
    table.touch_flow(id, &ACK, at(0));
    let view = table.get(id).unwrap();
    assert_eq!((view.is_young(), view.state(), view.version()), (false, FlowState::Established, version + 1));
    assert_eq!((view.key(), view.id(), table.stats().young), (tcp(1), id, 0));
    let id = table.insert(&udp(1), answer(1), &DATAGRAM, at(0)).unwrap();
    table.touch_flow(id, &DATAGRAM, at(0));
    assert!(table.get(id).unwrap().is_young());
    table.touch_flow(id, &DATAGRAM, at(0));
    assert!(!table.get(id).unwrap().is_young());
}

#[test]
fn an_answer_is_renewed_in_place() {
    let mut table = table::<Flow4>(10, 10);
    let id = establish(&mut table, 1, at(0)).unwrap();
    let version = table.get(id).unwrap().version();
    let newer = artery_flow::Answer { action: 1, generation: 2 };
    assert!(table.update_answer(id, newer));
    assert_eq!(table.get(id).unwrap().version(), version);
    assert_eq!(table.touch_flow(id, &ACK, at(0)), Some(newer));
    assert!(table.update_answer(id, artery_flow::Answer { action: 2, generation: 3 }));
    assert_eq!(table.get(id).unwrap().version(), version + 1);
    table.remove(id);
    assert!(!table.update_answer(id, newer));
}

#[test]
fn a_flow_that_is_inserted_twice_keeps_its_answer_and_counts_both_packets() {
    let mut table = table::<Flow4>(10, 10);
    let id = table.insert(&tcp(1), answer(7), &SYN, at(0)).unwrap();
    assert_eq!(table.insert(&tcp(1), answer(8), &ACK, at(0)), Ok(id));
    let view = table.get(id).unwrap();
    assert_eq!((view.answer(), view.packets(), view.is_young()), (answer(7), 2, false));
    assert_eq!((table.len(), table.stats().inserts), (1, 1));
}
