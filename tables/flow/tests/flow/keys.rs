//! What packets are flows, and how their keys spread.
use super::rig::{Numbered, tcp};
use artery_flow::{Flow4, Flow6, FlowKey, Scope, Seed};
use artery_wire::build::{ip4, ip6};
use artery_wire::{IpProtocol, TcpFlags};
use proptest::prelude::*;
use std::collections::HashSet;

fn of4(packet: &[u8]) -> Option<Flow4> {
    Flow4::parse_packet(packet, Scope::Connection, 9).map(|seen| seen.key)
}

#[test]
fn a_packet_shows_addresses_ports_protocol_flags_and_length() {
    let bytes = ip4().src("10.0.0.1").dst("10.0.0.2").tcp(1234, 80).bytes();
    let seen = Flow4::parse_packet(&bytes, Scope::Connection, 9).unwrap();
    let [src, dst] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
    assert_eq!(seen.key, Flow4::new([src, dst], [1234, 80], IpProtocol::TCP, 9));
    assert_eq!((seen.key.addresses(), seen.key.ports()), ([src.into(), dst.into()], [1234, 80]));
    assert_eq!((seen.key.protocol(), seen.key.space()), (IpProtocol::TCP, 9));
    assert_eq!((seen.info.protocol, seen.info.bytes), (IpProtocol::TCP, bytes.len() as u32));
    let mut syn = bytes.clone();
    syn[20 + 13] = TcpFlags::SYN.0;
    assert_eq!(Flow4::parse_packet(&syn, Scope::Connection, 9).unwrap().info.flags, TcpFlags::SYN);
}

#[test]
fn ipv6_is_read_behind_extension_headers() {
    let plain = ip6().src("2001:db8::1").dst("2001:db8::2").udp(53, 5353);
    let behind = ip6().src("2001:db8::1").dst("2001:db8::2").extension(60, [0; 6]).udp(53, 5353);
    let of = |bytes: Vec<u8>| Flow6::parse_packet(&bytes, Scope::Connection, 0);
    let [plain, behind] = [plain.bytes(), behind.bytes()].map(|bytes| (bytes.len(), of(bytes).unwrap()));
    assert_eq!(plain.1.key, behind.1.key);
    assert_eq!([plain.1.info.bytes, behind.1.info.bytes], [plain.0 as u32, behind.0 as u32]);
    assert_eq!(plain.1.key.ports(), [53, 5353]);
    assert_eq!(plain.1.key.addresses()[1], "2001:db8::2".parse::<std::net::IpAddr>().unwrap());
}

#[test]
fn flows_to_a_destination_know_nothing_else() {
    let to = |src: &str, port| ip4().src(src).dst("10.0.0.9").udp(port, 7).bytes();
    let [a, b] = [to("10.0.0.1", 1), to("10.0.0.2", 2)]
        .map(|bytes| Flow4::parse_packet(&bytes, Scope::Destination, 0));
    assert_eq!(a, b);
    assert_eq!(a.unwrap().info.protocol, IpProtocol(0));
    let fragment = ip4().src("10.0.0.1").dst("10.0.0.9").fragment(0, true).udp(1, 2).payload([1; 16]).bytes();
    let found = Flow4::parse_packet(&fragment, Scope::Destination, 0).map(|seen| seen.key);
    assert_eq!(found, a.map(|seen| seen.key));
}

#[test]
fn what_should_not_be_remembered_has_no_key() {
    let from_to = |src: &str, dst: &str| ip4().src(src).dst(dst).udp(1, 2).bytes();
    assert!(of4(&from_to("10.0.0.1", "10.0.0.2")).is_some());
    for src in ["10.0.0.1", "127.0.0.1", "0.0.0.0"] {
        assert_eq!(of4(&from_to(src, "10.0.0.1")), None, "{src}");
    }
    assert_eq!(of4(&from_to("10.0.0.1", "127.1.2.3")), None);
    let ip = || ip4().src("10.0.0.1").dst("10.0.0.2");
    assert_eq!(of4(&ip().udp(0, 2).bytes()), None);
    assert_eq!(of4(&ip().tcp(1, 0).bytes()), None);
    assert_eq!(of4(&ip().fragment(0, true).udp(1, 2).payload([1; 16]).bytes()), None);
    let mut other = ip().udp(1, 2).bytes();
    other[9] = IpProtocol::GRE.0;
    assert_eq!(of4(&other), None);
    let of6 = |bytes: Vec<u8>| Flow6::parse_packet(&bytes, Scope::Connection, 0);
    assert_eq!(of6(ip6().src("::1").dst("2001:db8::2").udp(1, 2).bytes()), None);
    assert_eq!(of6(ip6().src("2001:db8::1").dst("2001:db8::2").fragment(0, true, 7).udp(1, 2).bytes()), None);
}

proptest! {
    #[test]
    fn no_bytes_make_reading_a_key_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..120),
        version in 0..3_u8,
    ) {
        if let (Some(first), 1..) = (bytes.first_mut(), version) {
            *first = if version == 1 { 0x40 | *first & 0xf } else { 0x60 };
        }
        for scope in [Scope::Connection, Scope::Destination] {
            if let Some(seen) = Flow4::parse_packet(&bytes, scope, 0) {
                prop_assert!(bytes.len() >= 20 && seen.key.addresses()[0] != seen.key.addresses()[1]);
            }
            if let Some(seen) = Flow6::parse_packet(&bytes, scope, 0) {
                prop_assert!(bytes.len() >= 40 && seen.key.addresses()[0] != seen.key.addresses()[1]);
            }
        }
    }

    #[test]
    fn a_packet_cut_short_has_no_key_or_the_same(cut in 0_usize..48) {
        let bytes = ip4().src("10.0.0.1").dst("10.0.0.2").tcp(1234, 80).payload([7; 8]).bytes();
        let whole = of4(&bytes);
        let part = of4(&bytes[..cut]);
        prop_assert!(part.is_none() || part == whole);
        prop_assert_eq!(part.is_some(), cut >= 40);
    }

    #[test]
    fn turning_a_key_round_twice_changes_nothing(n in 0_u32..1 << 24) {
        for key in [tcp(n), Flow4::numbered(n, IpProtocol::UDP)] {
            let back = key.reversed();
            prop_assert_eq!((back.reversed(), back == key), (key, false));
            prop_assert_eq!(back.addresses(), [key.addresses()[1], key.addresses()[0]]);
            prop_assert_eq!((back.ports(), back.protocol()), ([80, key.ports()[0]], key.protocol()));
        }
        let six = Flow6::numbered(n, IpProtocol::TCP);
        prop_assert_eq!(six.reversed().addresses(), [six.addresses()[1], six.addresses()[0]]);
        prop_assert_eq!(six.reversed().reversed(), six);
    }

    #[test]
    fn every_bit_of_a_key_changes_about_half_of_the_hash(
        words: [u64; 5],
        seed: [u64; 2],
        bit in 0..64_u32,
        word in 0..5_usize,
    ) {
        let seed = Seed::new(seed);
        let flipped = |n: usize| words[n] ^ u64::from(n == word) << bit;
        let change = Flow6::from_words(|n| words[n]).hash(&seed) ^ Flow6::from_words(flipped).hash(&seed);
        prop_assert!((8..=56).contains(&change.count_ones()), "{}", change.count_ones());
    }
}

/// The chi-square of hashes over buckets by some of their bits, divided by the degrees of freedom: about one.
fn unevenness(hashes: &[u64], shift: u32, bits: u32) -> f64 {
    let mut counts = vec![0_u32; 1 << bits];
    hashes.iter().for_each(|hash| counts[(hash >> shift) as usize & ((1 << bits) - 1)] += 1);
    let fair = hashes.len() as f64 / counts.len() as f64;
    let squares = counts.iter().map(|count| (f64::from(*count) - fair).powi(2) / fair);
    squares.sum::<f64>() / (counts.len() - 1) as f64
}

#[test]
fn keys_that_differ_by_structure_spread_evenly_and_do_not_collide() {
    let base = tcp(1);
    let sequences: [(&str, &dyn Fn(u64) -> Flow4); 5] = [
        ("sources", &|n| Flow4::from_words(|w| base.nth_word(w) + if w == 0 { n << 32 } else { 0 })),
        ("destinations", &|n| Flow4::from_words(|w| base.nth_word(w) + if w == 0 { n } else { 0 })),
        ("ports", &|n| Flow4::from_words(|w| base.nth_word(w) ^ if w == 1 { n << 32 } else { 0 })),
        ("both", &|n| Flow4::from_words(|w| base.nth_word(w) ^ if w == 1 { n << 48 } else { n << 33 })),
        ("high bits", &|n| Flow4::from_words(|w| if w == 0 { n.reverse_bits() } else { base.nth_word(1) })),
    ];
    for seed in [[0, 0], [1, 0], [0x1234_5678_9abc_def0, u64::MAX]] {
        for (name, key) in &sequences {
            let hashes: Vec<u64> = (0..1 << 16).map(|n| key(n).hash(&Seed::new(seed))).collect();
            assert_eq!(hashes.iter().collect::<HashSet<_>>().len(), hashes.len(), "{name}");
            for (shift, bits) in [(0, 10), (0, 13), (32, 10), (56, 8), (20, 12)] {
                let unevenness = unevenness(&hashes, shift, bits);
                assert!((0.8..1.2).contains(&unevenness), "{name} {shift} {bits} {seed:?}: {unevenness}");
            }
        }
    }
}

#[test]
fn another_seed_spreads_otherwise() {
    let spread =
        |seed: [u64; 2]| -> Vec<u64> { (0..4096).map(|n| tcp(n).hash(&Seed::new(seed)) & 0xff).collect() };
    let base = spread([1, 2]);
    for seed in [[1, 3], [2, 2], [2, 1], [0, 0]] {
        let alike = spread(seed).iter().zip(&base).filter(|(a, b)| a == b).count();
        assert!(alike < 60, "{alike} of 4096 in the same of 256 buckets, where 16 are by chance");
    }
    assert_ne!(tcp(1).hash(&Seed::random()), tcp(1).hash(&Seed::random()));
}
