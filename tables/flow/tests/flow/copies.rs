//! Copies of flows that other machines own: how records merge, who owns a flow, and when copies go.
use super::rig::*;
use artery_flow::{Flow4, FlowRecord, FlowState, FlowTable, Imported, OwnerId, RecordSource};
use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;

const A: OwnerSpec = OwnerSpec(1);
const B: OwnerSpec = OwnerSpec(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwnerSpec(u16);

impl OwnerSpec {
    fn id(self) -> OwnerId {
        OwnerId::new(self.0)
    }
    fn source(self) -> RecordSource {
        RecordSource { owner: self.id(), wins_ties: false }
    }
}

fn record(n: u32, action: u32, epoch: u16, version: u16) -> FlowRecord<Flow4> {
    FlowRecord {
        key: tcp(n),
        answer: answer(action),
        state: FlowState::Established,
        idle: Duration::ZERO,
        packets: 2,
        bytes: 80,
        version,
        is_young: false,
        is_pinned: false,
        is_imported: false,
        epoch,
    }
}

fn member_of(table: &mut FlowTable<Flow4>, n: u32) -> Option<(u32, u16, bool)> {
    let id = table.find(&tcp(n))?;
    table.get(id).map(|flow| (flow.answer().action, flow.epoch(), flow.is_imported()))
}

#[test]
fn who_sees_a_packet_of_a_copy_owns_it_and_the_owner_before_learns_of_it() {
    let (mut first, mut second) = (table::<Flow4>(10, 10), table::<Flow4>(10, 10));
    let id = establish(&mut first, 1, at(0)).unwrap();
    let sent = first.get(id).unwrap().full_record(at(0));
    assert_eq!((sent.epoch, sent.is_imported), (0, false));
    let Ok(Imported::New(copy)) = second.import_record(&sent, A.source(), at(0)) else { panic!("it is new") };
    assert!(second.get(copy).unwrap().full_record(at(0)).is_imported);
    second.touch_flow(copy, &ACK, at(1)).unwrap();
    let taken = second.get(copy).unwrap().full_record(at(1));
    assert_eq!((taken.epoch, taken.is_imported), (1, false));
    // What the first one still sends changes nothing; what the second one sends does.
    assert_eq!(second.import_record(&sent, A.source(), at(1)), Ok(Imported::Known(copy)));
    assert_eq!(member_of(&mut second, 1), Some((1, 1, false)));
    assert_eq!(first.import_record(&taken, B.source(), at(1)), Ok(Imported::Newer(id)));
    assert_eq!(member_of(&mut first, 1), Some((1, 1, true)));
    first.touch_flow(id, &ACK, at(2)).unwrap();
    assert_eq!(member_of(&mut first, 1), Some((1, 2, false)));
}

#[test]
fn an_end_removes_the_copy_of_its_owner_and_epoch_and_no_flow_with_packets() {
    let mut table = table::<Flow4>(10, 10);
    let remove = |table: &mut FlowTable<Flow4>, n, owner: OwnerSpec, epoch| {
        table.remove_copy(&tcp(n), owner.id(), epoch)
    };
    establish(&mut table, 1, at(0)).unwrap();
    for (n, epoch) in [(2, 4), (3, 4), (4, u16::MAX)] {
        table.import_record(&record(n, n, epoch, 1), A.source(), at(0)).unwrap();
    }
    let seen = table.find(&tcp(3)).unwrap();
    table.touch_flow(seen, &ACK, at(0)).unwrap();
    assert!(!remove(&mut table, 1, A, 9) && !remove(&mut table, 3, A, 9), "packets of them were seen");
    assert!(!remove(&mut table, 2, B, 4), "another machine has it");
    assert!(!remove(&mut table, 2, A, 3), "it was taken over since");
    assert!(!remove(&mut table, 9, A, 4));
    // Epochs wrap.
    assert!(remove(&mut table, 2, A, 4) && remove(&mut table, 4, A, 0));
    assert_eq!(table.len(), 2);
}

#[test]
fn copies_stay_while_their_owner_lives_and_age_from_its_last_sign_of_life() {
    let mut table = table::<Flow4>(10, 10);
    let closed = FlowRecord { state: FlowState::Closed, ..record(1, 1, 0, 1) };
    table.import_record(&closed, A.source(), at(0)).unwrap();
    let from_file = FlowRecord { key: tcp(2), ..closed };
    table.import_record(&from_file, RecordSource::default(), at(0)).unwrap();
    for second in 1..=100 {
        table.keep_copies(A.id(), at(second + 5), at(0));
        go_round(&mut table, at(second));
        assert!(member_of(&mut table, 1).is_some(), "{second}");
    }
    assert!(member_of(&mut table, 2).is_none(), "nobody keeps it");
    // The last sign of life holds to 105; 10 s are what a closed connection has.
    go_round(&mut table, at(112));
    assert!(member_of(&mut table, 1).is_some());
    go_round(&mut table, at(117));
    assert!(member_of(&mut table, 1).is_none());
}

#[test]
fn copies_that_a_living_owner_does_not_confirm_go_and_flows_with_packets_stay() {
    let mut table = table::<Flow4>(10, 10);
    for n in 1..=4 {
        table.import_record(&record(n, n, 0, 1), A.source(), at(10)).unwrap();
    }
    table.import_record(&record(5, 5, 0, 1), B.source(), at(10)).unwrap();
    // Again, an older record that came late, and a packet.
    table.import_record(&record(1, 1, 0, 1), A.source(), at(20)).unwrap();
    table.import_record(&record(2, 2, 0, 0), A.source(), at(20)).unwrap();
    let seen = table.find(&tcp(3)).unwrap();
    table.touch_flow(seen, &ACK, at(20)).unwrap();
    table.keep_copies(A.id(), at(30), at(19));
    go_round(&mut table, at(21));
    let left: Vec<u32> = (1..=5).filter(|n| member_of(&mut table, *n).is_some()).collect();
    assert_eq!(left, [1, 2, 3, 5]);
}

#[test]
fn a_new_flow_of_the_owner_with_the_same_addresses_and_ports_comes_once_the_copy_of_the_old_one_is_gone() {
    let mut table = table::<Flow4>(10, 10);
    table.import_record(&record(1, 1, 0, 5), A.source(), at(10)).unwrap();
    // The end of the old one was lost.
    let new = record(1, 2, 0, 1);
    assert!(matches!(table.import_record(&new, A.source(), at(20)), Ok(Imported::Known(_))));
    table.keep_copies(A.id(), at(30), at(19));
    go_round(&mut table, at(21));
    assert_eq!(member_of(&mut table, 1), None);
    assert!(matches!(table.import_record(&new, A.source(), at(22)), Ok(Imported::New(_))));
}

#[test]
fn what_a_dead_owner_left_gives_way_to_any_machine_and_what_a_living_one_has_to_none() {
    let mut table = table::<Flow4>(10, 10);
    for n in 1..=2 {
        table.import_record(&record(n, 1, 3, 5), A.source(), at(10)).unwrap();
    }
    table.keep_copies(A.id(), at(20), at(0));
    let (same, older) = (record(1, 1, 3, 5), record(2, 2, 0, 1));
    assert!(matches!(table.import_record(&same, B.source(), at(15)), Ok(Imported::Known(_))));
    assert!(matches!(table.import_record(&older, B.source(), at(15)), Ok(Imported::Known(_))));
    assert!(!table.remove_copy(&tcp(1), B.id(), 3), "the living owner has it");
    assert!(matches!(table.import_record(&same, B.source(), at(25)), Ok(Imported::Known(_))));
    assert!(matches!(table.import_record(&older, B.source(), at(25)), Ok(Imported::Newer(_))));
    assert_eq!(member_of(&mut table, 2), Some((2, 0, true)));
    assert!(table.remove_copy(&tcp(1), B.id(), 3) && table.remove_copy(&tcp(2), B.id(), 0));
}

#[test]
fn a_file_changes_no_copy_of_a_living_owner_and_no_owner_pins_flows_elsewhere() {
    let mut table = table::<Flow4>(10, 10);
    let pinned = FlowRecord { is_pinned: true, ..record(1, 1, 0, 1) };
    table.import_record(&pinned, A.source(), at(10)).unwrap();
    let from_file = |table: &mut FlowTable<Flow4>, second| {
        table.import_record(&record(1, 2, 0, 9), RecordSource::default(), at(second)).unwrap();
        member_of(table, 1).unwrap().0
    };
    table.keep_copies(A.id(), at(20), at(0));
    assert_eq!((from_file(&mut table, 15), from_file(&mut table, 25)), (1, 2));
    table.import_record(&pinned, A.source(), at(30)).unwrap();
    table.import_record(&FlowRecord { key: tcp(2), ..pinned }, B.source(), at(30)).unwrap();
    table.keep_copies(B.id(), at(40), at(35));
    go_round(&mut table, at(36));
    assert_eq!(member_of(&mut table, 2), None, "its owner has ended it");
}

#[test]
fn a_restored_flow_is_a_copy_only_if_it_was_one_and_keeps_its_epoch() {
    let mut old = table::<Flow4>(10, 10);
    for n in 1..=2 {
        old.import_record(&record(n, n, 6, 1), A.source(), at(0)).unwrap();
    }
    let seen = old.find(&tcp(1)).unwrap();
    old.touch_flow(seen, &ACK, at(0)).unwrap();
    let mut new = table::<Flow4>(10, 10);
    for n in 1..=2 {
        let id = old.find(&tcp(n)).unwrap();
        new.restore_record(&old.get(id).unwrap().full_record(at(0)), at(0)).unwrap();
    }
    assert_eq!(member_of(&mut new, 1), Some((1, 7, false)));
    assert_eq!(member_of(&mut new, 2), Some((2, 6, true)));
}

/// A flow as the rules have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    member: u32,
    epoch: u16,
    version: u16,
    /// None if packets of it were seen.
    owner: Option<u16>,
}

#[derive(Clone, Debug)]
enum Operation {
    Packet(u32),
    Record { n: u32, member: u32, epoch: u16, version: u16, owner: u16 },
    End { n: u32, owner: u16, epoch: u16 },
}

fn operations() -> impl Strategy<Value = Operation> {
    prop_oneof![
        (0_u32..4).prop_map(Operation::Packet),
        (0_u32..4, 1_u32..4, 0_u16..4, 0_u16..4, 1_u16..4).prop_map(|(n, member, epoch, version, owner)| {
            Operation::Record { n, member, epoch, version, owner }
        }),
        (0_u32..4, 1_u16..4, 0_u16..4).prop_map(|(n, owner, epoch)| Operation::End { n, owner, epoch }),
    ]
}

/// What a record does: where epoch and version are the same, the lower member counts.
fn merge(known: Option<Known>, new: Known) -> Known {
    let Some(old) = known else { return new };
    let is_later = new.epoch > old.epoch;
    let is_newer = new.epoch == old.epoch && new.version > old.version;
    let is_same = (new.epoch, new.version) == (old.epoch, old.version);
    match old.owner {
        None if is_later => new,
        None => old,
        Some(_) if is_later || is_newer || is_same && new.member < old.member => new,
        Some(_) if is_same && new.member == old.member => Known { owner: new.owner, ..old },
        Some(_) => old,
    }
}

fn import(table: &mut FlowTable<Flow4>, n: u32, new: Known) {
    let known = member_of(table, n).map(|(member, ..)| member);
    let wins_ties = known.is_some_and(|known| new.member < known);
    let source = RecordSource { owner: OwnerId::new(new.owner.unwrap_or(0)), wins_ties };
    table.import_record(&record(n, new.member, new.epoch, new.version), source, at(0)).unwrap();
}

proptest! {
    #[test]
    fn records_packets_and_ends_in_any_order_leave_what_the_rules_say(
        operations in prop::collection::vec(operations(), 1..60),
    ) {
        let (mut table, mut model) = (table::<Flow4>(10, 10), HashMap::<u32, Known>::new());
        for operation in operations {
            match operation {
                Operation::Packet(n) => {
                    if let Some(id) = table.find(&tcp(n)) {
                        table.touch_flow(id, &ACK, at(0)).unwrap();
                    }
                    model.entry(n).and_modify(|known| {
                        if known.owner.take().is_some() {
                            known.epoch += 1;
                            known.version += 1;
                        }
                    });
                }
                Operation::Record { n, member, epoch, version, owner } => {
                    let new = Known { member, epoch, version, owner: Some(owner) };
                    import(&mut table, n, new);
                    let merged = merge(model.get(&n).copied(), new);
                    model.insert(n, merged);
                }
                Operation::End { n, owner, epoch } => {
                    let is_meant = model.get(&n).is_some_and(|known| {
                        known.owner == Some(owner) && epoch >= known.epoch
                    });
                    prop_assert_eq!(table.remove_copy(&tcp(n), OwnerId::new(owner), epoch), is_meant);
                    if is_meant {
                        model.remove(&n);
                    }
                }
            }
            for n in 0..4 {
                let expected = model.get(&n).map(|known| (known.member, known.epoch, known.owner.is_some()));
                prop_assert_eq!(member_of(&mut table, n), expected);
            }
        }
    }

    #[test]
    fn machines_that_got_the_same_records_in_different_orders_agree_on_the_member(
        records in prop::collection::vec((1_u32..4, 0_u16..4, 0_u16..4, 1_u16..4), 1..12),
        order in any::<prop::sample::Index>(),
    ) {
        let (mut first, mut second) = (table::<Flow4>(10, 10), table::<Flow4>(10, 10));
        let known = |(member, epoch, version, owner): &(u32, u16, u16, u16)| Known {
            member: *member, epoch: *epoch, version: *version, owner: Some(*owner),
        };
        records.iter().for_each(|record| import(&mut first, 1, known(record)));
        let (before, after) = records.split_at(order.index(records.len()));
        after.iter().rev().chain(before).for_each(|record| import(&mut second, 1, known(record)));
        prop_assert_eq!(member_of(&mut first, 1), member_of(&mut second, 1));
    }
}
