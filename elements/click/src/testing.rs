//! What every element that reads headers must survive, and what the checksums of its output must be.

use artery_common::ip_header::mark_header;
use artery_engine::{Bench, Class, Packet};
use artery_wire::build::{icmp_echo, ip4};

pub(crate) use artery_wire::Random;

/// Random bytes, as payload.
pub(crate) fn noise(random: &mut Random, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.next() as u8).collect()
}
fn damaged(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if !bytes.is_empty() {
        let at = random.index(bytes.len());
        bytes[at] ^= 1 << random.index(8);
    }
    bytes
}

/// Packets of several kinds, well-formed.
pub(crate) fn samples() -> Vec<Vec<u8>> {
    vec![
        ip4().udp(1, 53).payload([7; 30]).bytes(),
        ip4().tcp(1, 80).payload([7; 31]).bytes(),
        ip4().options([7, 7, 4, 0, 0, 0, 0]).tcp(1, 80).bytes(),
        ip4().options([68, 12, 5, 0x01, 0, 0, 0, 0, 0, 0, 0, 0]).udp(1, 80).bytes(),
        ip4().options([131, 7, 8, 1, 2, 3, 4]).udp(1, 80).payload([1; 100]).bytes(),
        icmp_echo("1.0.0.1", "1.0.0.2", 5, 6).payload([9; 56]).bytes(),
        ip4().fragment(64, true).raw(17, [3; 24]).bytes(),
        ip4().raw(200, [3; 24]).bytes(),
    ]
}

/// Sends complete, truncated, damaged and random packets, with valid and invalid marks; none may panic,
/// and each must leave or be counted.
#[track_caller]
pub(crate) fn survives_anything(class: &'static Class, config: &str, outputs: usize) {
    let seed = 0x9e37_79b9_7f4a_7c15;
    println!("seed {seed:#x}");
    let mut random = Random::new(seed);
    let mut bench = Bench::setup(class, config).outputs(outputs).build().unwrap();
    let (mut sent, mut left) = (0, 0);
    for sample in samples() {
        for len in 0..=sample.len() {
            let part = &sample[..len];
            for bytes in [part.to_vec(), damaged(&mut random, part), noise(&mut random, len)] {
                let packet = marked_somewhere(bench.packet(&bytes), &mut random);
                bench.push_packets(0, [packet]);
                sent += 1;
                // fragments of one packet count as one
                left += (0..outputs).filter(|output| !bench.drain_sent(*output).is_empty()).count() as u64;
                assert_eq!(left + bench.drops().total(), sent, "{bytes:02x?}");
            }
        }
    }
}

fn marked_somewhere(mut packet: Packet, random: &mut Random) -> Packet {
    match random.index(4) {
        0 => {}
        1 => mark_header(&mut packet, 0, 20),
        2 => mark_header(&mut packet, random.index(80), random.index(80)),
        _ => {
            mark_header(&mut packet, 0, 20);
            let most = random.index(25).min(packet.len());
            packet.strip(most).expect("no more than there is");
        }
    }
    packet.set_annotation(0, [random.next() as u8; 4]);
    packet.set_annotation(16, random.next().to_le_bytes());
    packet
}
