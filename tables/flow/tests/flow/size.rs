//! Tables that grow and shrink while they are used.
use super::rig::*;
use artery_flow::{Flow4, Flow6, FlowTable};
use artery_wire::IpProtocol;

fn grows_and_shrinks<K: Numbered>() {
    const FLOWS: u32 = 60_000;
    let key = |n| K::numbered(n, IpProtocol::UDP);
    let mut table: FlowTable<K> = table(FLOWS, FLOWS);
    let mut found = Vec::new();
    for n in 0..FLOWS {
        table.insert(&key(n), answer(n), &DATAGRAM, at(0)).unwrap();
        if n % 997 == 0 {
            let keys: Vec<K> = (0..=n + 50).step_by(1 + n as usize / 200).map(key).collect();
            table.find_batch(&keys, &mut found);
            for (id, key) in found.iter().zip(&keys) {
                let result = id.and_then(|id| table.get(id)).map(|view| view.key());
                assert_eq!(result, table.find(key).map(|_| *key));
            }
            let result = found.iter().flatten().count();
            assert_eq!(result, keys.iter().filter(|k| table.find(k).is_some()).count());
        }
    }
    let full = table.stats();
    assert_eq!((full.flows, full.refused_crowded), (FLOWS, 0));
    assert!(
        (0..FLOWS)
            .all(|n| table.find(&key(n)).is_some_and(|id| table.get(id).unwrap().answer() == answer(n)))
    );

    for n in (0..FLOWS).filter(|n| n % 100 != 7) {
        let id = table.find(&key(n)).unwrap();
        assert!(table.remove(id));
        table.maintain_flows(at(1), 16);
    }
    go_round(&mut table, at(1));
    let few = table.stats();
    assert_eq!(few.flows, FLOWS / 100);
    assert!(few.buckets * 20 < full.buckets, "{} of {}", few.buckets, full.buckets);
    for n in 0..FLOWS {
        assert_eq!(table.find(&key(n)).is_some(), n % 100 == 7);
    }
    go_round(&mut table, at(1000));
    assert_eq!((table.len(), table.stats().young, table.stats().bytes), (0, 0, 1024));
    assert_eq!(table.stats().released, u64::from(FLOWS.div_ceil(1024)));
    (0..FLOWS).for_each(|n| assert!(table.insert(&key(n), answer(n), &DATAGRAM, at(1000)).is_ok()));
    assert!(
        (0..FLOWS)
            .all(|n| table.find(&key(n)).is_some_and(|id| table.get(id).unwrap().answer() == answer(n)))
    );
}

#[test]
fn a_table_of_ipv4_grows_and_shrinks_and_finds_what_it_holds() {
    grows_and_shrinks::<Flow4>();
}

#[test]
fn a_table_of_ipv6_grows_and_shrinks_and_finds_what_it_holds() {
    grows_and_shrinks::<Flow6>();
}

#[test]
fn tables_of_few_places_work_too() {
    for flows in [1, 2, 63, 64, 65] {
        let mut table = table::<Flow4>(flows, flows);
        for round in 0..3 {
            let begin = u64::from(round) * 100_000;
            (0..200).for_each(|n| attempt_and_use(&mut table, round * 1000 + n, at(begin)));
            assert_eq!(table.len(), flows);
            assert_eq!(go_round(&mut table, at(begin + 99_000)), flows as usize);
        }
        table.populate_memory(1_000_000);
    }
}
