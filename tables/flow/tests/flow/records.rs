//! Walks over a table that changes meanwhile, and records that go and come.
use super::rig::*;
use artery_flow::{
    EndReason, Flow4, Flow6, FlowCursor, FlowRecord, FlowState, FlowTable, Imported, RecordSource,
};
use artery_wire::IpProtocol;
use std::collections::HashMap;
use std::time::Duration;

#[test]
fn a_walk_meets_each_flow_that_lives_through_it_exactly_once() {
    let mut table = table::<Flow4>(10_000, 10_000);
    (0..3000).for_each(|n| assert!(establish(&mut table, n, at(0)).is_ok()));
    let (mut met, mut next, mut step) = (HashMap::new(), Some(FlowCursor::default()), 0_u32);
    while let Some(cursor) = next {
        next = table.walk_flows(cursor, 7, |view| *met.entry(view.key()).or_insert(0) += 1);
        if step < 1500 {
            table.find(&tcp(step * 2)).map(|id| table.remove(id));
            (0..2).for_each(|n| assert!(establish(&mut table, 10_000 + step * 2 + n, at(0)).is_ok()));
        }
        step += 1;
    }
    assert!(step > 400);
    let lived = (0..3000).filter(|n| n % 2 == 1 || *n >= step * 2);
    assert_eq!(lived.filter(|n| met.get(&tcp(*n)) != Some(&1)).count(), 0);
}

#[test]
fn a_table_goes_into_another_and_comes_out_the_same() {
    let (mut ours, mut theirs) = (table::<Flow6>(3000, 3000), table::<Flow6>(3000, 3000));
    for n in 0..1000 {
        let id = ours
            .insert(&Flow6::numbered(n, IpProtocol::TCP), answer(n), &SYN, at(u64::from(n) / 50))
            .unwrap();
        if n % 3 == 0 {
            ours.touch_flow(id, &ACK, at(25)).unwrap();
        }
        ours.pin_flow(id, n % 10 == 0);
    }
    let export = |table: &FlowTable<Flow6>, seconds| {
        let (mut records, mut next) = (Vec::new(), Some(FlowCursor::default()));
        while let Some(cursor) = next {
            next = table.export_records(cursor, 33, at(seconds), &mut records);
        }
        records
    };
    let records = export(&ours, 27);
    assert_eq!((records.len(), records[1].idle), (1000, Duration::from_secs(27)));
    // Another machine's clock begins elsewhere.
    records.iter().for_each(|record| {
        assert!(matches!(theirs.restore_record(record, at(500_000)), Ok(Imported::New(_))))
    });
    let sorted = |mut records: Vec<_>| {
        records.sort_by_key(|record: &FlowRecord<Flow6>| record.key);
        records
    };
    assert_eq!(sorted(export(&theirs, 500_000)), sorted(records));
    assert_eq!(theirs.stats().young, ours.stats().young);
    go_round(&mut ours, at(40));
    go_round(&mut theirs, at(500_013));
    assert_eq!(sorted(export(&theirs, 500_013)), sorted(export(&ours, 40)));
    assert!(theirs.len() < 1000);
}

#[test]
fn a_record_changes_only_what_is_known_from_older_records() {
    let (mut ours, mut theirs) = (table::<Flow4>(10, 10), table::<Flow4>(10, 10));
    let id = establish(&mut ours, 1, at(0)).unwrap();
    let first = ours.get(id).unwrap().full_record(at(0));
    ours.touch_flow(id, &FIN, at(0)).unwrap();
    ours.update_answer(id, answer(9));
    let second = ours.get(id).unwrap().full_record(at(0));
    let Ok(Imported::New(there)) = theirs.import_record(&first, RecordSource::default(), at(7)) else {
        panic!("the flow is new there")
    };
    assert_eq!(theirs.import_record(&first, RecordSource::default(), at(7)), Ok(Imported::Known(there)));
    assert_eq!(theirs.import_record(&second, RecordSource::default(), at(7)), Ok(Imported::Newer(there)));
    assert_eq!(theirs.import_record(&first, RecordSource::default(), at(7)), Ok(Imported::Known(there)));
    let view = theirs.get(there).unwrap();
    assert_eq!((view.answer(), view.state(), view.is_imported()), (answer(9), FlowState::Fin, true));
    let mut third = second;
    third.version = second.version.wrapping_add(1);
    third.answer = answer(4);
    theirs.touch_flow(there, &ACK, at(8)).unwrap();
    assert!(!theirs.get(there).unwrap().is_imported());
    assert_eq!(theirs.import_record(&third, RecordSource::default(), at(8)), Ok(Imported::Known(there)));
    assert_eq!(theirs.get(there).unwrap().answer(), answer(9));
    assert_eq!(theirs.stats().imported, 1);
}

#[test]
fn a_record_of_the_same_version_says_how_long_its_flow_is_idle_until_a_packet_is_seen() {
    let mut table = table::<Flow4>(10, 10);
    let idle = |seconds| FlowRecord { idle: Duration::from_secs(seconds), ..record(1) };
    let Ok(Imported::New(id)) = table.import_record(&idle(20), RecordSource::default(), at(100)) else {
        panic!("it is new")
    };
    let seconds = |table: &FlowTable<Flow4>, now| table.get(id).unwrap().idle_time(at(now)).as_secs();
    assert_eq!(seconds(&table, 100), 20);
    assert_eq!(table.import_record(&idle(5), RecordSource::default(), at(110)), Ok(Imported::Known(id)));
    assert_eq!(seconds(&table, 110), 5);
    // Neither an older record, nor one of another version.
    let older = FlowRecord { version: record(1).version.wrapping_sub(1), ..idle(0) };
    for record in [idle(30), older] {
        assert_eq!(table.import_record(&record, RecordSource::default(), at(110)), Ok(Imported::Known(id)));
        assert_eq!(seconds(&table, 110), 5);
    }
    table.touch_flow(id, &ACK, at(111)).unwrap();
    assert_eq!(table.import_record(&idle(0), RecordSource::default(), at(120)), Ok(Imported::Known(id)));
    assert_eq!(seconds(&table, 120), 9);
}

/// A record of a connection in use.
fn record(n: u32) -> FlowRecord<Flow4> {
    let mut table = table::<Flow4>(10, 10);
    let id = establish(&mut table, n, at(0)).unwrap();
    table.get(id).unwrap().full_record(at(0))
}

#[test]
fn in_a_full_table_records_displace_the_oldest_record_and_no_flow_that_packets_were_seen_of() {
    let mut table = table::<Flow4>(6, 6);
    let has = |table: &mut FlowTable<Flow4>, n: u32| table.find(&tcp(n)).is_some();
    (10..12).for_each(|n| assert!(establish(&mut table, n, at(0)).is_ok()));
    table.insert(&tcp(20), answer(20), &SYN, at(0)).unwrap();
    (1..4).for_each(|n| assert!(table.import_record(&record(n), RecordSource::default(), at(0)).is_ok()));
    let seen = table.find(&tcp(1)).unwrap();
    table.touch_flow(seen, &ACK, at(0)).unwrap();
    // 1 is used here: 2 is the oldest, then 3, then those that displaced them.
    table.report_ends(10);
    for (n, gone) in [(4, 2), (5, 3), (6, 4)] {
        assert!(matches!(
            table.import_record(&record(n), RecordSource::default(), at(0)),
            Ok(Imported::New(_))
        ));
        let ends: Vec<_> = table.drain_ends().map(|end| (end.key, end.reason)).collect();
        assert_eq!(ends, [(tcp(gone), EndReason::Displaced)]);
    }
    assert!([10, 11, 20, 1, 5, 6].into_iter().all(|n| has(&mut table, n)));
    assert_eq!((table.stats().displaced_imported, table.stats().displaced_young), (3, 0));
    // Neither those in use, nor attempts, nor one that is pinned, make room for what comes from elsewhere.
    let five = table.find(&tcp(5)).unwrap();
    table.touch_flow(five, &ACK, at(0)).unwrap();
    let six = table.find(&tcp(6)).unwrap();
    table.pin_flow(six, true);
    assert!(table.import_record(&record(7), RecordSource::default(), at(0)).is_err());
    assert!([10, 11, 20, 1, 5, 6].into_iter().all(|n| has(&mut table, n)));
}

#[test]
fn in_a_full_table_of_records_flows_that_come_displace_attempts_first_and_then_the_oldest_record() {
    let mut table = table::<Flow4>(4, 4);
    (1..5).for_each(|n| assert!(table.import_record(&record(n), RecordSource::default(), at(0)).is_ok()));
    // Attempts take the place of one record, whatever their number.
    (10..30).for_each(|n| attempt(&mut table, n, at(0)));
    assert!((2..5).all(|n| table.find(&tcp(n)).is_some()) && table.find(&tcp(1)).is_none());
    assert!(table.find(&tcp(29)).is_some());
    // Connections in use take one each, and then there is no more.
    let id = table.find(&tcp(29)).unwrap();
    table.touch_flow(id, &ACK, at(0)).unwrap();
    (30..33).for_each(|n| assert!(establish(&mut table, n, at(0)).is_ok()));
    assert!(establish(&mut table, 40, at(0)).is_err());
    assert!((29..33).all(|n| table.find(&tcp(n)).is_some()));
    assert_eq!(table.stats().displaced_imported, 4);
}

#[test]
fn attempts_from_elsewhere_are_no_more_than_there_may_be_and_displace_none_of_here() {
    let mut table = table::<Flow4>(100, 3);
    table.insert(&tcp(1), answer(1), &SYN, at(0)).unwrap();
    let young = |n| FlowRecord { is_young: true, state: FlowState::Opening, ..record(n) };
    assert!((10..12).all(|n| table.import_record(&young(n), RecordSource::default(), at(0)).is_ok()));
    assert!((12..20).all(|n| table.import_record(&young(n), RecordSource::default(), at(0)).is_err()));
    assert!(table.find(&tcp(1)).is_some());
    assert_eq!((table.stats().young, table.len()), (3, 3));
}

#[test]
fn a_flush_removes_those_it_is_told_to() {
    let mut table = table::<Flow4>(1000, 1000);
    (0..900).for_each(|n| assert!(establish(&mut table, n, at(0)).is_ok()));
    let (mut next, mut calls) = (Some(FlowCursor::default()), 0);
    while let Some(cursor) = next {
        next = table.flush_flows(cursor, 100, |view| view.answer().action % 3 == 1);
        calls += 1;
    }
    assert_eq!((table.len(), table.stats().removed, calls), (600, 300, 9));
    assert!((0..900).all(|n| table.find(&tcp(n)).is_some() == (n % 3 != 1)));
}

#[test]
fn ends_are_told_in_order_while_there_is_room() {
    let mut table = table::<Flow4>(100, 2);
    (0..3).for_each(|n| assert!(table.insert(&tcp(n), answer(n), &SYN, at(0)).is_ok()));
    assert_eq!(table.drain_ends().count(), 0);
    table.report_ends(3);
    table.insert(&udp(3), answer(3), &DATAGRAM, at(0)).unwrap();
    let id = table.find(&tcp(2)).unwrap();
    assert!(table.remove(id));
    go_round(&mut table, at(100));
    let ends: Vec<_> =
        table.drain_ends().map(|end| (end.key, end.answer, end.state, end.bytes, end.reason)).collect();
    let expected = [
        (tcp(1), answer(1), FlowState::Opening, 40, EndReason::Displaced),
        (tcp(2), answer(2), FlowState::Opening, 40, EndReason::Removed),
        (udp(3), answer(3), FlowState::UdpSingle, 100, EndReason::Idle),
    ];
    assert_eq!(ends, expected);
    (10..30).for_each(|n| assert!(establish(&mut table, n, at(100)).is_ok()));
    go_round(&mut table, at(99_000));
    assert_eq!((table.drain_ends().count(), table.stats().unreported_ends), (3, 17));
    table.report_ends(0);
    establish(&mut table, 1, at(99_000)).unwrap();
    go_round(&mut table, at(190_000));
    assert_eq!((table.len(), table.drain_ends().count(), table.stats().unreported_ends), (0, 0, 17));
}

#[test]
fn flows_that_came_pinned_make_room_once_they_are_pinned_no_more() {
    let mut table = table::<Flow4>(3, 3);
    let pinned = |n| FlowRecord { is_pinned: true, ..record(n) };
    (1..4).for_each(|n| assert!(table.import_record(&pinned(n), RecordSource::default(), at(0)).is_ok()));
    assert!(table.import_record(&record(4), RecordSource::default(), at(0)).is_err());
    // By hand, and by a newer record.
    let two = table.find(&tcp(2)).unwrap();
    assert!(table.pin_flow(two, false));
    let newer = FlowRecord { version: record(3).version.wrapping_add(1), ..record(3) };
    assert!(matches!(table.import_record(&newer, RecordSource::default(), at(0)), Ok(Imported::Newer(_))));
    for (n, gone) in [(4, 2), (5, 3)] {
        assert!(matches!(
            table.import_record(&record(n), RecordSource::default(), at(0)),
            Ok(Imported::New(_))
        ));
        assert!(table.find(&tcp(gone)).is_none(), "{gone}");
    }
    assert!(table.find(&tcp(1)).is_some());
}

#[test]
fn a_mark_stays_with_its_flow_whatever_becomes_of_it_and_the_next_in_its_place_has_none() {
    let mut table = table::<Flow4>(10, 10);
    table.report_ends(10);
    let record = |version| FlowRecord {
        key: tcp(1),
        answer: answer(7),
        state: FlowState::Established,
        idle: Duration::ZERO,
        packets: 1,
        bytes: 1,
        version,
        is_young: false,
        is_pinned: false,
        is_imported: false,
        epoch: 0,
    };
    let Ok(Imported::New(id)) = table.import_record(&record(1), RecordSource::default(), at(0)) else {
        panic!("it is new")
    };
    let is_marked = |table: &FlowTable<Flow4>| table.get(id).unwrap().is_marked();
    assert!(!is_marked(&table));
    table.mark_flow(id, true);
    assert_eq!(table.import_record(&record(2), RecordSource::default(), at(1)), Ok(Imported::Newer(id)));
    assert!(is_marked(&table) && table.get(id).unwrap().is_imported());
    for sight in [ACK, FIN, RST] {
        table.touch_flow(id, &sight, at(2)).unwrap();
        assert!(is_marked(&table) && !table.get(id).unwrap().is_imported());
    }
    table.update_answer(id, answer(8));
    table.pin_flow(id, true);
    table.pin_flow(id, false);
    assert!(is_marked(&table));
    table.mark_flow(id, false);
    assert!(!is_marked(&table));
    table.mark_flow(id, true);
    assert!(table.remove(id));
    table.mark_flow(id, true);
    assert_eq!(table.insert(&tcp(2), answer(1), &SYN, at(3)), Ok(id), "in the same place");
    assert!(!is_marked(&table));
    assert!(table.remove(id));
    let marks: Vec<_> = table.drain_ends().map(|end| (end.key, end.is_marked)).collect();
    assert_eq!(marks, [(tcp(1), true), (tcp(2), false)]);
}
