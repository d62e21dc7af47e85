//! What of flows is reported, in periods, where accounts are kept.
use super::rig::*;
use artery_flow::{Flow6, FlowCursor, FlowPeriod, FlowTable, Imported, RecordSource, Tick};
use artery_storage::Pages;
use artery_wire::IpProtocol;
use std::time::Duration;

fn with_accounts() -> FlowTable<Flow6> {
    let mut table = table::<Flow6>(3000, 3000);
    table.report_ends(10);
    table.keep_accounts(at(0), &Pages).unwrap();
    table
}

fn key(n: u32) -> Flow6 {
    Flow6::numbered(n, IpProtocol::TCP)
}

/// What is reported of flows that have gone on for a minute.
fn reported(table: &FlowTable<Flow6>, now: Tick) -> Vec<(u64, Duration)> {
    let (mut periods, mut next) = (Vec::new(), Some(FlowCursor::default()));
    while let Some(cursor) = next {
        next = table.report_active(cursor, 7, now, Duration::from_secs(60), |_, period| {
            periods.push((period.packets, period.start.age(now)));
        });
    }
    periods
}

#[test]
fn the_periods_of_a_flow_add_up_to_its_packets() {
    let mut table = with_accounts();
    let id = table.insert(&key(1), answer(1), &SYN, at(5)).unwrap();
    table.touch_flow(id, &ACK, at(6)).unwrap();
    assert_eq!(reported(&table, at(64)), []);
    assert_eq!(reported(&table, at(65)), [(2, Duration::from_secs(60))]);
    assert_eq!(reported(&table, at(200)), [], "without packets nothing is reported");
    table.touch_flow(id, &ACK, at(201)).unwrap();
    assert_eq!(reported(&table, at(202)), [(1, Duration::from_secs(196))]);
    table.touch_flow(id, &ACK, at(203)).unwrap();
    table.remove(id);
    let end = table.drain_ends().next().unwrap();
    let period = end.unreported.unwrap();
    assert_eq!((end.packets, period.packets), (4, 1));
    assert_eq!((period.start, period.end), (at(201), at(203)));
    // Another flow in its place has an account of its own.
    let id = table.insert(&key(2), answer(1), &SYN, at(210)).unwrap();
    assert_eq!(table.unreported(id).map(|period| (period.start, period.packets)), Some((at(210), 1)));
}

#[test]
fn what_came_from_elsewhere_is_reported_there_and_an_account_goes_on_in_another_table() {
    let (mut ours, mut theirs) = (with_accounts(), with_accounts());
    let id = ours.insert(&key(1), answer(1), &SYN, at(5)).unwrap();
    (6..9).for_each(|time| assert!(ours.touch_flow(id, &ACK, at(time)).is_some()));
    let record = ours.get(id).unwrap().full_record(at(9));
    let Ok(Imported::New(other)) = theirs.import_record(&record, RecordSource::default(), at(9)) else {
        panic!("a new flow")
    };
    assert_eq!(theirs.unreported(other).map(|period| period.packets), Some(0));
    theirs.continue_account(other, ours.unreported(id).unwrap());
    let FlowPeriod { start, packets, .. } = theirs.unreported(other).unwrap();
    assert_eq!((start, packets), (at(5), 4));
}

#[test]
fn without_accounts_nothing_is_reported_and_older_flows_begin_with_them() {
    let mut table = table::<Flow6>(3000, 3000);
    let id = table.insert(&key(1), answer(1), &SYN, at(5)).unwrap();
    assert_eq!((reported(&table, at(100)), table.unreported(id)), (Vec::new(), None));
    table.keep_accounts(at(100), &Pages).unwrap();
    assert_eq!(table.unreported(id).map(|period| (period.start, period.packets)), Some((at(100), 1)));
}
