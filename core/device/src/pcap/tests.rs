use super::*;
use crate::{DeviceError, PcapDamage};
use artery_packet::{Pool, Time};
use proptest::prelude::*;
use std::io::{Cursor, Read, Write};
use std::sync::{Arc, Mutex};

/// A file in memory that outlives its writer.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Gives one byte at a time, as a slow pipe may.
struct Trickle(Cursor<Vec<u8>>);

impl Read for Trickle {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let one = into.len().min(1);
        self.0.read(&mut into[..one])
    }
}

type Written = (Time, u32, Vec<u8>);

fn file_of(options: PcapOptions, packets: &[Written]) -> Vec<u8> {
    let sink = Sink::default();
    let mut writer = PcapWriter::new("test", Box::new(sink.clone()), options).unwrap();
    for (time, wire_len, bytes) in packets {
        writer.write(*time, *wire_len, bytes).unwrap();
    }
    writer.flush().unwrap();
    sink.0.lock().unwrap().clone()
}

fn open(bytes: &[u8]) -> Result<PcapReader, DeviceError> {
    PcapReader::new("test", Box::new(Cursor::new(bytes.to_vec())))
}

/// All packets up to the end or the first error.
fn read_all(mut reader: PcapReader) -> (Vec<Written>, Option<DeviceError>) {
    let mut packets = Vec::new();
    loop {
        match reader.next_record() {
            Ok(Some((record, bytes))) => packets.push((record.time, record.wire_len, bytes.to_vec())),
            Ok(None) => return (packets, None),
            Err(error) => return (packets, Some(error)),
        }
    }
}

fn three() -> Vec<Written> {
    vec![
        (Time::new(1, 2_000), 60, vec![1; 60]),
        (Time::new(1, 3_000), 1500, vec![2; 100]),
        (Time::new(2, 0), 0, vec![]),
    ]
}

/// The same file as written by a machine of the other byte order.
fn swapped(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for range in [0..4, 4..6, 6..8, 8..12, 12..16, 16..20, 20..24] {
        out[range].reverse();
    }
    let mut at = FILE_HEADER;
    while at < out.len() {
        let captured = u32::from_ne_bytes(out[at + 8..at + 12].try_into().unwrap()) as usize;
        (0..4).for_each(|n| out[at + 4 * n..at + 4 * n + 4].reverse());
        at += RECORD_HEADER + captured;
    }
    out
}

fn options() -> impl Strategy<Value = PcapOptions> {
    (any::<bool>(), prop_oneof![Just(1u32), Just(101), Just(113)]).prop_map(|(nano, link)| PcapOptions {
        snaplen: 0,
        nano,
        link_type: LinkType(link),
    })
}

fn packet() -> impl Strategy<Value = Written> {
    let bytes = prop_oneof![
        9 => proptest::collection::vec(any::<u8>(), 0..200),
        1 => proptest::collection::vec(any::<u8>(), 60_000..80_000)
    ];
    (any::<u32>(), 0u32..1_000_000, 0u32..2000, bytes).prop_map(|(seconds, micros, more, bytes)| {
        (Time::new(u64::from(seconds), micros * 1000), bytes.len() as u32 + more, bytes)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read_back(
        options in options(),
        packets in proptest::collection::vec(packet(), 0..12),
    ) {
        let bytes = file_of(options, &packets);
        for bytes in [swapped(&bytes), bytes] {
            let reader = open(&bytes).unwrap();
            prop_assert_eq!((reader.link_type(), reader.is_nano()), (options.link_type, options.nano));
            prop_assert_eq!(read_all(reader), (packets.clone(), None));
        }
    }

    #[test]
    fn random_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        header in any::<bool>(),
    ) {
        let mut file = if header { file_of(PcapOptions::default(), &[]) } else { vec![] };
        file.extend(&bytes);
        if let Ok(reader) = open(&file) {
            let (packets, _) = read_all(reader);
            prop_assert!(packets.iter().map(|p| p.2.len() + RECORD_HEADER).sum::<usize>() <= bytes.len());
        }
    }
}

#[test]
fn a_file_cut_anywhere_gives_what_precedes_the_cut_and_says_where_it_is() {
    let whole = file_of(PcapOptions::default(), &three());
    let starts = [24, 24 + 16 + 60, 24 + 16 + 60 + 16 + 100, whole.len()];
    for cut in 0..whole.len() {
        let reader = match open(&whole[..cut]) {
            Ok(reader) => reader,
            Err(error) => {
                let damage = PcapDamage::HeaderCut;
                let expected = DeviceError::BadFile { path: "test".into(), offset: 0, record: 0, damage };
                assert_eq!((cut < 24, error), (true, expected), "cut at {cut}");
                continue;
            }
        };
        let complete = starts.iter().filter(|s| **s <= cut).count() - 1;
        let (packets, error) = read_all(reader);
        assert_eq!(packets, three()[..complete], "cut at {cut}");
        if cut == starts[complete] {
            assert_eq!(error, None, "cut at {cut}, between records");
            continue;
        }
        let Some(DeviceError::BadFile { offset, record, damage, .. }) = error else {
            panic!("cut at {cut}: {error:?}")
        };
        assert_eq!((offset, record), (starts[complete] as u64, complete as u64 + 1), "cut at {cut}");
        let in_header = cut < starts[complete] + 16;
        assert_eq!(damage == PcapDamage::RecordHeaderCut, in_header, "cut at {cut}: {damage:?}");
    }
}

#[test]
fn a_looping_reader_starts_over_without_reading_again() {
    let mut file = file_of(PcapOptions::default(), &three());
    file.extend(file_of(PcapOptions::default(), &vec![(Time::ZERO, 5000, vec![7; 5000]); 40])[24..].iter());
    for source in
        [Box::new(Cursor::new(file.clone())) as Box<dyn Read + Send>, Box::new(Trickle(Cursor::new(file)))]
    {
        let mut reader = PcapReader::new("test", source).unwrap().looping();
        let mut lengths = Vec::new();
        for _ in 0..43 * 3 {
            lengths.push(reader.next_record().unwrap().unwrap().1.len());
        }
        assert_eq!(lengths[..4], [60, 100, 0, 5000]);
        assert_eq!((&lengths[..43], &lengths[..43]), (&lengths[43..86], &lengths[86..]));
    }
}

#[test]
fn a_looping_reader_of_a_file_without_records_ends() {
    let mut reader = open(&file_of(PcapOptions::default(), &[])).unwrap().looping();
    assert_eq!(reader.next_record(), Ok(None));
    assert_eq!(reader.next_record(), Ok(None));
}

#[test]
fn a_slow_pipe_gives_whole_records() {
    let file = file_of(PcapOptions::default(), &three());
    let reader = PcapReader::new("-", Box::new(Trickle(Cursor::new(file)))).unwrap();
    assert_eq!(read_all(reader), (three(), None));
}

#[test]
fn microseconds_and_snaplen_cut_what_they_say() {
    let options = PcapOptions { snaplen: 10, nano: false, link_type: LinkType::IP };
    let bytes = file_of(options, &[(Time::new(7, 1_999), 60, vec![9; 60])]);
    let reader = open(&bytes).unwrap();
    assert_eq!((reader.snaplen(), reader.link_type()), (10, LinkType::IP));
    assert_eq!(read_all(reader).0, [(Time::new(7, 1_000), 60, vec![9; 10])]);
}

#[test]
fn long_record_headers_are_read() {
    let mut file =
        file_of(PcapOptions { nano: false, ..Default::default() }, &[(Time::new(7, 0), 3, vec![1, 2, 3])]);
    file[..4].copy_from_slice(&MAGIC_LONG.to_ne_bytes());
    file.splice(40..40, [0; 8]);
    assert_eq!(read_all(open(&file).unwrap()), (vec![(Time::new(7, 0), 3, vec![1, 2, 3])], None));
}

#[test]
fn an_absurd_record_is_damage_not_memory() {
    let mut file = file_of(PcapOptions::default(), &[(Time::ZERO, 3, vec![1, 2, 3])]);
    let at = file.len() as u64;
    file.extend([0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    let (packets, error) = read_all(open(&file).unwrap());
    let damage = PcapDamage::RecordTooLong(u32::MAX);
    assert_eq!(packets.len(), 1);
    assert_eq!(error, Some(DeviceError::BadFile { path: "test".into(), offset: at, record: 2, damage }));
}

#[test]
fn a_pcapng_file_is_recognised() {
    let error = open(&[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0]).unwrap_err();
    assert!(matches!(error, DeviceError::BadFile { damage: PcapDamage::PcapNg, .. }), "{error}");
    assert!(matches!(
        open(b"#!/bin/sh and so on").unwrap_err(),
        DeviceError::BadFile { damage: PcapDamage::Magic(_), .. }
    ));
}

#[test]
fn records_go_into_packets_of_any_size() {
    let pool = Pool::new(8, 2).unwrap();
    let file = file_of(
        PcapOptions::default(),
        &[
            (Time::new(1, 1), 60, vec![1; 60]),
            (Time::new(2, 2), 60_000, vec![2; 60_000]),
            (Time::new(3, 3), 100_000, vec![3; 100_000]),
        ],
    );
    let mut reader = open(&file).unwrap();
    let mut packet = pool.packet_from(b"old").unwrap();
    for (len, time) in [(60, Time::new(1, 1)), (60_000, Time::new(2, 2))] {
        assert_eq!(reader.peek().unwrap().unwrap().captured, len);
        let record = reader.next_into(&mut packet).unwrap().unwrap();
        assert_eq!((packet.len(), packet.timestamp(), record.time), (len as usize, time, time));
        assert!(packet.data().iter().all(|byte| *byte == packet.data()[0]));
    }
    let record = reader.next_into(&mut packet).unwrap().unwrap();
    assert_eq!(record.captured, 100_000);
    assert!((60_000..100_000).contains(&packet.len()), "what no frame holds is cut off");
    assert_eq!(reader.next_into(&mut packet), Ok(None));
}

#[test]
fn a_record_at_hand_is_taken_whole_or_left_where_it_is() {
    let pool = Pool::new(64, 4).unwrap();
    let records = [(Time::new(1, 0), 70, vec![1; 60]), (Time::new(2, 0), 5000, vec![2; 5000])];
    let file = file_of(PcapOptions::default(), &records);
    let take = |reader: &mut PcapReader, packet: &mut artery_packet::Packet| {
        reader.next_at_hand(packet).map(|record| (record.time, record.wire_len, packet.data().to_vec()))
    };
    let mut reader = open(&file).unwrap();
    let mut small = pool.alloc_packet().unwrap();
    assert!(reader.peek().unwrap().is_some());
    assert_eq!(take(&mut reader, &mut small), None, "what was looked at is taken the general way");
    let mut reader = open(&file).unwrap();
    assert_eq!(take(&mut reader, &mut small), Some(records[0].clone()));
    assert_eq!(small.timestamp(), Time::new(1, 0));
    assert_eq!(take(&mut reader, &mut pool.alloc_packet().unwrap()), None, "no room for it");
    assert_eq!(take(&mut reader, &mut pool.alloc_big_packet().unwrap()), Some(records[1].clone()));
    assert_eq!(take(&mut reader, &mut pool.alloc_packet().unwrap()), None);
    assert_eq!(reader.peek(), Ok(None));
}

#[test]
fn files_have_messages_with_remedies() {
    let error = PcapReader::open("/no/such/file.pcap").unwrap_err();
    assert_eq!(error.to_string(), "/no/such/file.pcap: opening it to read failed: No such file or directory");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.pcap");
    let path = path.to_str().unwrap();
    PcapWriter::create(path, PcapOptions::default()).unwrap().write(Time::ZERO, 9, &[0; 9]).unwrap();
    assert_eq!(read_all(PcapReader::open(path).unwrap()).0.len(), 1, "dropping a writer flushes it");
    PcapWriter::check(path).unwrap();
    assert_eq!(read_all(PcapReader::open(path).unwrap()).0.len(), 1, "a check changes nothing");
    PcapWriter::check("-").unwrap();
    assert!(!std::path::Path::new("-").exists(), "it is standard output");
}

#[test]
fn link_types_have_the_names_of_encap() {
    for name in ["IP", "ETHER", "SLL", "PPP", "#147"] {
        assert_eq!(LinkType::from_name(name).unwrap().to_string(), name);
    }
    assert_eq!((LinkType::from_name("ether"), LinkType::from_name("#x")), (None, None));
    assert_eq!([12, 14, 101, 0x1000_0001].map(LinkType::from_header), [101, 101, 101, 1].map(LinkType));
}
