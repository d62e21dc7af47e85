//! A packet against a slow obvious model, under random operations.
use artery_packet::{ANNOTATION_SIZE, Pool, Time};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Strip(usize),
    Trim(usize),
    Prepend(u8, usize),
    Append(u8, usize),
    Network(usize),
    Annotate(usize, [u8; 4]),
    Stamp(u64),
    Duplicate,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0usize..300).prop_map(Op::Strip),
        (0usize..300).prop_map(Op::Trim),
        (any::<u8>(), 0usize..900).prop_map(|(b, n)| Op::Prepend(b, n)),
        (any::<u8>(), 0usize..900).prop_map(|(b, n)| Op::Append(b, n)),
        (0usize..100).prop_map(Op::Network),
        (0..=ANNOTATION_SIZE - 4, any::<[u8; 4]>()).prop_map(|(at, v)| Op::Annotate(at, v)),
        any::<u64>().prop_map(Op::Stamp),
        Just(Op::Duplicate),
    ]
}

/// What a packet should be: bytes with the network header's place, annotations, timestamp.
struct Model {
    bytes: Vec<u8>,
    network: Option<isize>,
    annotations: [u8; ANNOTATION_SIZE],
    stamp: u64,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 400 }))]
    #[test]
    fn a_packet_does_what_a_vector_would(ops in prop::collection::vec(op(), 1..60)) {
        let pool = Pool::new(8, 4).unwrap();
        let mut packet = pool.packet_from(b"start").unwrap();
        let mut model =
            Model { bytes: b"start".to_vec(), network: None, annotations: [0; ANNOTATION_SIZE], stamp: 0 };
        for op in ops {
            match op {
                Op::Strip(n) => {
                    let legal = n <= model.bytes.len();
                    prop_assert_eq!(packet.strip(n).is_ok(), legal);
                    if legal {
                        model.bytes.drain(..n);
                        model.network = model.network.map(|at| at - n as isize);
                    }
                }
                Op::Trim(n) => {
                    let legal = n <= model.bytes.len();
                    prop_assert_eq!(packet.trim(n).is_ok(), legal);
                    if legal {
                        model.bytes.truncate(model.bytes.len() - n);
                    }
                }
                Op::Prepend(byte, n) => {
                    packet.prepend(n).unwrap().fill(byte);
                    model.bytes.splice(0..0, std::iter::repeat_n(byte, n));
                    model.network = model.network.map(|at| at + n as isize);
                }
                Op::Append(byte, n) => {
                    packet.append(n).unwrap().fill(byte);
                    model.bytes.extend(std::iter::repeat_n(byte, n));
                }
                Op::Network(at) => {
                    packet.set_network_header(at);
                    model.network = Some(at as isize);
                }
                Op::Annotate(at, value) => {
                    packet.set_annotation(at, value);
                    model.annotations[at..at + 4].copy_from_slice(&value);
                }
                Op::Stamp(time) => {
                    packet.set_timestamp(Time(time));
                    model.stamp = time;
                }
                Op::Duplicate => {
                    let copy = packet.duplicate().unwrap();
                    packet.data_mut().fill(0xee);
                    packet = copy;
                }
            }
            prop_assert_eq!(packet.data(), &model.bytes[..]);
            prop_assert_eq!(packet.timestamp(), Time(model.stamp));
            for at in 0..=ANNOTATION_SIZE - 4 {
                prop_assert_eq!(&packet.annotation::<4>(at)[..], &model.annotations[at..at + 4]);
            }
            // A header that was moved out of its frame may be forgotten, but never misplaced.
            if let (Some(is), Some(should)) = (packet.network_offset(), model.network) {
                prop_assert_eq!(is, should);
            }
            if let Some(network) = packet.network() {
                let at = packet.network_offset().unwrap();
                if at >= 0 {
                    prop_assert_eq!(network, &model.bytes[at as usize..]);
                }
            }
        }
    }
}

#[test]
fn what_was_stripped_can_be_put_back_on_a_copy_too() {
    let pool = Pool::new(8, 2).unwrap();
    for len in [100, 1500, 9000] {
        let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let mut packet = pool.packet_from(&bytes).unwrap();
        packet.strip(74).unwrap();
        let mut copy = packet.duplicate().unwrap();
        copy.unstrip(74).unwrap();
        assert_eq!(copy.data(), bytes);
    }
}
