//! Batches as bytes: what was written is read again, and no bytes make a reader panic.

use std::net::{Ipv4Addr, Ipv6Addr};

use artery_fleet_record::{
    Addresses, BATCH_HEADER_LEN, Batch, BatchHeader, BatchWriter, Change, DecodeError, ExceptionRecord,
    FlowKey, MAX_RECORDS, RECORD_LEN,
};
use proptest::prelude::*;

const HEADER: BatchHeader = BatchHeader { machine: 7, sequence: 9, sent_us: 1_700_000_000_000_000 };

fn addresses() -> impl Strategy<Value = Addresses> {
    let v4 = any::<[u32; 2]>().prop_map(|both| Addresses::V4(both.map(Ipv4Addr::from_bits)));
    let v6 = any::<[u128; 2]>().prop_map(|both| both.map(Ipv6Addr::from_bits));
    let unmapped = v6.prop_filter("mapped addresses stand for IPv4", |both| {
        both.iter().all(|address| address.to_ipv4_mapped().is_none())
    });
    prop_oneof![v4, unmapped.prop_map(Addresses::V6)]
}

prop_compose! {
    fn record()(
        key in (addresses(), any::<[u16; 2]>(), any::<u8>()), is_set in any::<bool>(),
        revision in any::<u64>(), member in any::<u32>(), epoch in any::<u32>(), idle_ms in any::<u32>(),
    ) -> ExceptionRecord {
        let change = if is_set { Change::Set } else { Change::Removed };
        let (addresses, ports, protocol) = key;
        let key = FlowKey { addresses, ports, protocol };
        ExceptionRecord { change, key, revision, member, epoch, idle_ms }
    }
}

fn write(records: &[ExceptionRecord]) -> Vec<u8> {
    let mut batch = BatchWriter::new(HEADER, records.len());
    for record in records {
        assert!(batch.push(record));
    }
    batch.finish()
}

fn a_record() -> ExceptionRecord {
    let addresses = Addresses::V4([Ipv4Addr::new(198, 51, 100, 7), Ipv4Addr::new(192, 0, 2, 1)]);
    let key = FlowKey { addresses, ports: [1024, 443], protocol: 6 };
    ExceptionRecord { change: Change::Set, key, revision: 3, member: 12, epoch: 1, idle_ms: 250 }
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(records in prop::collection::vec(record(), 0..40)) {
        let bytes = write(&records);
        prop_assert_eq!(bytes.len(), BATCH_HEADER_LEN + records.len() * RECORD_LEN);
        let batch = Batch::parse(&bytes).unwrap();
        prop_assert_eq!(batch.header(), HEADER);
        let read: Result<Vec<_>, _> = batch.records().collect();
        prop_assert_eq!(read.unwrap(), records);
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(batch) = Batch::parse(&bytes) {
            let _ = batch.records().count();
        }
    }

    #[test]
    fn random_records_never_panic(tail in prop::collection::vec(any::<u8>(), 4 * RECORD_LEN)) {
        let mut bytes = write(&[a_record(); 4]);
        bytes[BATCH_HEADER_LEN..].copy_from_slice(&tail);
        let batch = Batch::parse(&bytes).unwrap();
        prop_assert_eq!(batch.records().count(), 4);
    }

    #[test]
    fn a_record_that_is_read_is_written_alike(bytes in any::<[u8; 32]>(), addresses in addresses()) {
        let key = FlowKey { addresses, ..a_record().key };
        let mut whole = ExceptionRecord { key, ..a_record() }.encode();
        whole[..32].copy_from_slice(&bytes);
        if let Ok(read) = ExceptionRecord::decode(&whole) {
            prop_assert_eq!(ExceptionRecord::decode(&read.encode()), Ok(read));
        }
    }
}

#[test]
fn a_batch_cut_short_at_any_length_is_refused() {
    let bytes = write(&[a_record(); 3]);
    for length in 0..bytes.len() {
        let error = Batch::parse(&bytes[..length]).unwrap_err();
        if length < BATCH_HEADER_LEN {
            assert_eq!(error, DecodeError::ShortHeader(length));
        } else {
            assert_eq!(error, DecodeError::Length { records: 3, bytes: length });
        }
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(Batch::parse(&longer).unwrap_err(), DecodeError::Length { records: 3, bytes: longer.len() });
}

#[test]
fn the_bytes_of_a_record_stay_as_they_are() {
    let bytes = a_record().encode();
    assert_eq!(bytes[..8], [1, 6, 0, 0, 4, 0, 1, 187]);
    assert_eq!(bytes[8..32], [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 250, 0, 0, 0, 0]);
    assert_eq!(bytes[32..48], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 198, 51, 100, 7]);
    assert_eq!(bytes[48..64], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 192, 0, 2, 1]);
}

#[test]
fn strangers_and_other_versions_are_told_apart() {
    let good = write(&[a_record()]);
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Batch::parse(&bytes).map(|batch| batch.records().next())
    };
    assert_eq!(changed(0, b'X').unwrap_err(), DecodeError::Magic);
    assert_eq!(changed(5, 2).unwrap_err(), DecodeError::Version(2));
    assert_eq!(changed(6, 4).unwrap_err(), DecodeError::TooManyRecords(1025));
    assert_eq!(changed(BATCH_HEADER_LEN, 3), Ok(Some(Err(DecodeError::Kind(3)))));
    assert_eq!(changed(BATCH_HEADER_LEN + 42, 0), Ok(Some(Err(DecodeError::MixedFamilies))));
}

#[test]
fn a_full_batch_takes_no_further_record() {
    let mut batch = BatchWriter::new(HEADER, MAX_RECORDS);
    let taken = (0..MAX_RECORDS + 1).filter(|_| batch.push(&a_record())).count();
    assert_eq!((taken, batch.len()), (MAX_RECORDS, MAX_RECORDS));
    let bytes = batch.finish();
    assert!(bytes.len() < 1 << 16);
    assert_eq!(Batch::parse(&bytes).unwrap().len(), MAX_RECORDS);
}
