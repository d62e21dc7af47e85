//! When probes are sent and what their results mean.
use super::rig::NOW;
use artery_flow::balance::{Check, Health, Probe, State, Step};
use proptest::prelude::*;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Every 2 s, 1 s without answer fails; down after three, up after two.
fn health() -> Health {
    Health::new(&Check::new(Probe::Tcp), NOW)
}

/// Sends the probe that is due, and reports this result.
fn probe(health: &mut Health, now: &mut Duration, passes: bool) -> Option<State> {
    loop {
        match health.poll(*now) {
            Step::Send(number) => return health.record_result(number, passes),
            Step::Wait(until) => *now = until,
            Step::Changed(state) => panic!("{state:?} without a result"),
        }
    }
}

#[test]
fn the_first_result_decides_alone() {
    for (passes, state) in [(true, State::Up), (false, State::Down)] {
        let (mut health, mut now) = (health(), NOW);
        assert_eq!(health.state(), State::Unproven);
        assert_eq!(probe(&mut health, &mut now, passes), Some(state));
        assert_eq!(health.state(), state);
    }
}

#[test]
fn so_many_in_a_row_are_needed_to_change() {
    let (mut health, mut now) = (health(), NOW);
    let results = [true, false, false, true, false, false, false, true, false, true, true];
    let states: Vec<_> = results.iter().filter_map(|passes| probe(&mut health, &mut now, *passes)).collect();
    assert_eq!(states, [State::Up, State::Down, State::Up]);
    assert_eq!(now, NOW + 20 * SECOND);
}

#[test]
fn a_probe_without_answer_has_failed_and_its_late_answer_counts_for_nothing() {
    let mut health = health();
    assert_eq!(health.poll(NOW), Step::Send(1));
    assert_eq!(health.poll(NOW), Step::Wait(NOW + SECOND));
    assert_eq!(health.poll(NOW + SECOND), Step::Changed(State::Down));
    assert_eq!(health.record_result(1, true), None);
    assert_eq!(health.poll(NOW + SECOND), Step::Wait(NOW + 2 * SECOND));
    assert_eq!(health.poll(NOW + 2 * SECOND), Step::Send(2));
    assert_eq!((health.record_result(7, true), health.record_result(1, true)), (None, None));
    assert_eq!((health.record_result(2, true), health.record_result(2, true)), (None, None));
    assert_eq!(health.state(), State::Down);
}

#[test]
fn nothing_is_sent_before_it_is_due_nor_twice_after_a_pause() {
    let mut health = health();
    assert_eq!(health.poll(NOW - SECOND), Step::Wait(NOW));
    assert_eq!(health.poll(NOW + 60 * SECOND), Step::Send(1));
    health.record_result(1, true);
    assert_eq!(health.poll(NOW + 60 * SECOND), Step::Wait(NOW + 62 * SECOND));
}

#[test]
fn a_clock_that_goes_back_delays_no_probe_for_longer_than_usual() {
    let mut health = health();
    assert_eq!(health.poll(Duration::ZERO), Step::Wait(2 * SECOND));
    assert_eq!(health.poll(2 * SECOND), Step::Send(1));
    assert_eq!(health.poll(Duration::ZERO), Step::Wait(SECOND));
    assert_eq!(health.poll(Duration::MAX), Step::Changed(State::Down));
    assert!(matches!(health.poll(Duration::MAX), Step::Send(2)));
}

#[test]
fn another_check_keeps_what_is_known() {
    let (mut health, mut now) = (health(), NOW);
    probe(&mut health, &mut now, true);
    health.set_check(&Check { fall: 1, ..Check::new(Probe::Ping) });
    assert_eq!(health.state(), State::Up);
    assert_eq!(probe(&mut health, &mut now, false), Some(State::Down));
}

proptest! {
    #[test]
    fn it_is_what_counting_results_says(
        results in prop::collection::vec(any::<bool>(), 1..200), fall in 1..6u16, rise in 1..6u16,
    ) {
        let mut health = Health::new(&Check { fall, rise, ..Check::new(Probe::Tcp) }, NOW);
        let mut now = NOW;
        for end in 1..=results.len() {
            probe(&mut health, &mut now, results[end - 1]);
            prop_assert_eq!(health.state() == State::Up, is_up(&results[..end], fall, rise));
        }
    }
}

/// By the whole past: the last run that was long enough, or the first result.
fn is_up(results: &[bool], fall: u16, rise: u16) -> bool {
    for end in (1..=results.len()).rev() {
        let run = |passes: bool| results[..end].iter().rev().take_while(|result| **result == passes).count();
        if run(true) >= rise.into() {
            return true;
        }
        if run(false) >= fall.into() {
            return false;
        }
    }
    results[0]
}
