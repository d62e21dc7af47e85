//! States for export: those of rules with `pflow`, while they go on and when they end.
use super::connections::{client, connect, server};
use crate::world::{ACK, World};
use artery_filter::engine::{ExportedState, ReportReason, StateRange};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// A world in which a client is connected.
fn exporting(rules: &str) -> World {
    let mut world = World::new(rules);
    world.filter.export_states(MINUTE);
    connect(&mut world);
    world
}

/// What is reported after some time.
fn reported(world: &mut World, seconds: f64) -> Vec<ExportedState> {
    world.sleep(seconds);
    world.filter.begin_batch(world.now);
    world.filter.purge_expired(100);
    world.filter.drain_exported().0
}

#[test]
fn a_state_is_reported_while_it_goes_on_and_at_its_end() {
    let mut world = exporting("pass keep state (pflow)");
    assert_eq!(reported(&mut world, 59.0), []);
    let first = reported(&mut world, 1.0);
    assert_eq!(first.len(), 1);
    assert_eq!((first[0].packets, first[0].reason), ([2, 1], ReportReason::Active));
    assert_eq!(first[0].ends, [("10.0.0.9".parse().unwrap(), 1234), ("7.7.7.7".parse().unwrap(), 80)]);
    assert_eq!((first[0].translated, first[0].start), (None, Duration::from_secs(1000)));
    assert_eq!(reported(&mut world, 100.0), [], "without packets nothing is reported");
    world.comes(server().flags(ACK).seq(5001).ack(1001).payload([1; 500]));
    let last = reported(&mut world, 200_000.0);
    assert_eq!(last.len(), 1);
    assert_eq!((last[0].packets, last[0].bytes, last[0].reason), ([0, 1], [0, 540], ReportReason::Idle));
    assert_eq!((last[0].start, last[0].end), (first[0].end, Duration::from_secs(1160)));
}

#[test]
fn states_of_rules_without_pflow_are_not_reported() {
    let mut world = exporting("pass keep state");
    assert_eq!(reported(&mut world, 200_000.0), []);
    let mut world = exporting("set state-defaults pflow\npass");
    assert_eq!(reported(&mut world, 200_000.0).len(), 1);
}

#[test]
fn a_translated_state_has_both_addresses_and_says_that_it_was_removed() {
    let mut world = World::new("pass out nat-to 192.0.2.77 keep state (pflow)");
    world.filter.export_states(MINUTE);
    world.leaves(client().seq(1000));
    world.filter.end_in(StateRange::ALL, |_| true);
    let (states, lost) = world.filter.drain_exported();
    assert_eq!((states.len(), lost), (1, 0));
    let [source, destination] = states[0].translated.unwrap();
    assert_eq!((source.0, destination), ("192.0.2.77".parse().unwrap(), states[0].ends[1]));
    assert_eq!((states[0].ends[0].1, states[0].reason), (1234, ReportReason::Removed));
}
