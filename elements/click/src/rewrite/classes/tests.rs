use super::*;
use crate::testing::survives_anything;
use artery_engine::{Bench, DropReason};
use artery_wire::build::{icmp_echo, ip4};
use artery_wire::checksum;

/// A bench with two outputs.
fn bench(class: &'static Class, config: &str) -> Bench {
    Bench::setup(class, config).outputs(2).build().unwrap()
}

/// Pushes a packet's bytes with its headers marked.
fn push(bench: &mut Bench, bytes: Vec<u8>) {
    bench.push_with(0, bytes, |packet| packet.set_headers(0, 20));
}

#[test]
fn tcp_and_udp_have_tables_of_their_own() {
    let mut bench = bench(&IP, "pattern 1.0.0.1 5000 - - 0 1");
    push(&mut bench, ip4().src("10.0.0.1").dst("2.0.0.2").tcp(1111, 80).bytes());
    push(&mut bench, ip4().src("10.0.0.1").dst("2.0.0.2").udp(1111, 80).bytes());
    bench.expect(0, ip4().src("1.0.0.1").dst("2.0.0.2").tcp(5000, 80).bytes());
    bench.expect(0, ip4().src("1.0.0.1").dst("2.0.0.2").udp(5000, 80).bytes());
    for handler in ["tcp_table", "udp_table"] {
        assert_eq!(bench.read(handler, "").unwrap().lines().count(), 2, "{handler}");
    }
    assert_eq!(bench.read("size", "").unwrap(), "2");
    assert_eq!(bench.read("tcp_lookup", "10.0.0.1 1111 2.0.0.2 80").unwrap(), "1.0.0.1 5000 2.0.0.2 80");
}

#[test]
fn flows_that_are_too_many_take_the_place_of_old_ones_or_none() {
    let mut bench = bench(&IP, "keep 0 1, CAPACITY 1, GUARANTEE 0");
    for port in [1, 2] {
        push(&mut bench, ip4().src("10.0.0.1").dst("2.0.0.2").udp(port, 80).bytes());
    }
    assert_eq!((bench.drain_sent(0).len(), bench.read("size", "").unwrap()), (2, "1".to_string()));
    let mut guaranteed = super::tests::bench(&IP, "keep 0 1, CAPACITY 1");
    for port in [1, 2] {
        push(&mut guaranteed, ip4().src("10.0.0.1").dst("2.0.0.2").udp(port, 80).bytes());
    }
    assert_eq!(guaranteed.drain_sent(0).len(), 1);
    guaranteed.write("capacity", "5").unwrap();
    assert_eq!(guaranteed.read("capacity", "").unwrap(), "5");
}

#[test]
fn a_successor_takes_over_the_flows_of_what_has_not_changed() {
    let mut old = bench(&IP, "pattern 1.0.0.1 5000-6000 - - 0 1");
    push(&mut old, ip4().src("10.0.0.1").dst("2.0.0.2").udp(1111, 80).bytes());
    let table = old.read("udp_table", "").unwrap();
    let mut same = bench(&IP, "pattern 1.0.0.1 5000-6000 - - 0 1, CAPACITY 9");
    same.take_state(&mut old);
    assert_eq!((same.read("udp_table", "").unwrap(), table.lines().count()), (table, 2));
    let mut changed = bench(&IP, "pattern 1.0.0.2 5000-6000 - - 0 1");
    changed.take_state(&mut same);
    assert_eq!(changed.read("size", "").unwrap(), "0");
}

#[test]
fn replies_get_an_annotation_of_the_first_packet() {
    let mut bench = bench(&IP, "keep 0 1, REPLY_ANNO PAINT");
    let mut packet = bench.packet(ip4().src("10.0.0.1").dst("2.0.0.2").udp(1, 2).bytes());
    packet.set_headers(0, 20);
    packet.set_annotation(16, [9]);
    bench.push_packets(0, [packet]);
    push(&mut bench, ip4().src("2.0.0.2").dst("10.0.0.1").udp(2, 1).bytes());
    assert_eq!(bench.next_sent(1).unwrap().annotation(16), [9]);
}

/// A TCP packet with these flags.
fn tcp(src: &str, sport: u16, dst: &str, dport: u16, flags: u8) -> Vec<u8> {
    let mut bytes = ip4().src(src).dst(dst).tcp(sport, dport).bytes();
    bytes[33] = flags;
    bytes
}
fn lifetime(bench: &mut Bench) -> String {
    let table = bench.read("table", "").unwrap();
    table.lines().next().unwrap().rsplit(' ').next().unwrap().to_string()
}

#[test]
fn connections_are_found_by_their_ends() {
    let mut bench = bench(&TCP, "pattern 1.0.0.1 5000 - - 0 1");
    push(&mut bench, ip4().src("10.0.0.1").dst("2.0.0.2").tcp(1111, 80).bytes());
    bench.expect(0, ip4().src("1.0.0.1").dst("2.0.0.2").tcp(5000, 80).bytes());
    assert_eq!(bench.read("lookup", "10.0.0.1 1111 2.0.0.2 80").unwrap(), "1.0.0.1 5000 2.0.0.2 80");
    assert_eq!(bench.read("lookup", "2.0.0.2 80 1.0.0.1 5000").unwrap(), "2.0.0.2 80 10.0.0.1 1111");
    assert_eq!(bench.read("lookup", "2.0.0.2 81 1.0.0.1 5000").unwrap(), "");
    assert!(bench.read("lookup", "2.0.0.2").is_err());
}

#[test]
fn closed_connections_live_on_for_a_shorter_time() {
    let mut bench = bench(&TCP, "keep 0 1");
    push(&mut bench, tcp("10.0.0.1", 1, "2.0.0.2", 80, 0x02));
    assert_eq!(lifetime(&mut bench), "exp300");
    push(&mut bench, tcp("10.0.0.1", 1, "2.0.0.2", 80, 0x11));
    push(&mut bench, tcp("2.0.0.2", 80, "10.0.0.1", 1, 0x11));
    assert_eq!(lifetime(&mut bench), "exp240");
}

#[test]
fn packets_of_other_protocols_pass_or_are_dropped() {
    let udp = || ip4().src("10.0.0.1").dst("2.0.0.2").udp(1, 2).bytes();
    let mut dropping = bench(&TCP, "keep 0 1");
    push(&mut dropping, udp());
    dropping.expect_nothing_more();
    let mut passing = bench(&TCP, "pass 0");
    push(&mut passing, udp());
    passing.expect(0, udp());
}

#[test]
fn packets_and_replies_are_rewritten() {
    let mut bench = bench(&UDP, "pattern 1.0.0.1 5000-5010# - - 0 1");
    push(&mut bench, ip4().src("10.0.0.1").dst("2.0.0.2").udp(1111, 53).bytes());
    let packet = bench.expect(0, ip4().src("1.0.0.1").dst("2.0.0.2").udp(5000, 53).bytes());
    assert_eq!(packet.dst_ip().to_string(), "2.0.0.2");
    push(&mut bench, ip4().src("2.0.0.2").dst("1.0.0.1").udp(53, 5000).bytes());
    bench.expect(1, ip4().src("2.0.0.2").dst("10.0.0.1").udp(53, 1111).bytes());
    let table = "(10.0.0.1, 1111, 2.0.0.2, 53) => (1.0.0.1, 5000, 2.0.0.2, 53) [*0 1] i0 exp300\n\
                 (2.0.0.2, 53, 1.0.0.1, 5000) => (2.0.0.2, 53, 10.0.0.1, 1111) [0 *1] i0 exp300\n";
    assert_eq!(bench.read("table", "").unwrap(), table);
    assert_eq!(bench.read("patterns", "").unwrap(), "1.0.0.1 5000-5010 - - [1]\n");
    push(&mut bench, ip4().src("10.0.0.1").dst("2.0.0.2").udp(1112, 53).bytes());
    bench.expect(0, ip4().src("1.0.0.1").dst("2.0.0.2").udp(5001, 53).bytes());
    assert_eq!(bench.read("nmappings", "").unwrap(), "2");
    bench.write("clear", "").unwrap();
    assert_eq!(bench.read("size", "").unwrap(), "0");
}

#[test]
fn a_port_that_fits_stays_and_none_is_used_twice() {
    let mut bench = bench(&UDP, "pattern 1.0.0.1 5000-5001 - - 0 1");
    for (from, port) in [("10.0.0.1", 5001), ("10.0.0.2", 5001)] {
        push(&mut bench, ip4().src(from).dst("2.0.0.2").udp(port, 53).bytes());
    }
    bench.expect(0, ip4().src("1.0.0.1").dst("2.0.0.2").udp(5001, 53).bytes());
    bench.expect(0, ip4().src("1.0.0.1").dst("2.0.0.2").udp(5000, 53).bytes());
    push(&mut bench, ip4().src("10.0.0.3").dst("2.0.0.2").udp(5001, 53).bytes());
    bench.expect_nothing_more();
    assert_eq!(bench.read("mapping_failures", "").unwrap(), "1");
}

#[test]
fn other_arguments_pass_keep_and_drop() {
    let packet = || ip4().src("10.0.0.1").dst("2.0.0.2").udp(1, 2).bytes();
    let mut passing = bench(&UDP, "pass 1");
    push(&mut passing, packet());
    passing.expect(1, packet());
    assert_eq!(passing.read("pattern0", "").unwrap(), "<nochange>\n");
    assert_eq!(passing.read("size", "").unwrap(), "0");
    let mut keeping = bench(&UDP, "keep 0 1");
    push(&mut keeping, packet());
    keeping.expect(0, packet());
    assert_eq!(keeping.read("pattern0", "").unwrap(), "<keep> [1]\n");
    keeping.write("pattern0", "drop").unwrap();
    push(&mut keeping, packet());
    keeping.expect_nothing_more();
}

#[test]
fn mistakes_are_named() {
    let refused = |config: &str| Bench::setup(&UDP, config).outputs(2).build().err().unwrap()[0].to_string();
    assert_eq!(refused(""), "need 1 arguments, one per input port");
    assert_eq!(refused("frob"), "input spec 0: unknown specification");
    assert_eq!(refused("pass 2"), "input spec 0: output port out of range");
    assert_eq!(refused("pattern - - - - 0 7"), "input spec 0: output port out of range");
    assert_eq!(refused("pattern x - - - 0 1"), "input spec 0: bad source address");
    assert_eq!(refused("pattern lost 0 1"), "input spec 0: no such pattern 'lost'");
    assert_eq!(refused("keep 0"), "input spec 0: bad forward port");
}

#[test]
fn a_source_gets_one_address_for_all_it_talks_to() {
    let mut bench = bench(&ADDRESS, "pattern 1.0.0.5-1.0.0.6# - 0 1");
    for (to, port) in [("2.0.0.2", 53), ("3.0.0.3", 54)] {
        push(&mut bench, ip4().src("10.0.0.1").dst(to).udp(1111, port).bytes());
        bench.expect(0, ip4().src("1.0.0.5").dst(to).udp(1111, port).bytes());
    }
    push(&mut bench, ip4().src("3.0.0.3").dst("1.0.0.5").tcp(54, 1111).bytes());
    let packet = bench.expect(1, ip4().src("3.0.0.3").dst("10.0.0.1").tcp(54, 1111).bytes());
    assert_eq!(packet.dst_ip().to_string(), "10.0.0.1");
    let table = "10.0.0.1 => 1.0.0.5 [*0 1] i0 exp7200\n0.0.0.0 => 0.0.0.0 [0 *1] i0 exp7200\n";
    assert_eq!(bench.read("table", "").unwrap(), table);
    push(&mut bench, ip4().src("10.0.0.2").dst("2.0.0.2").udp(1, 1).bytes());
    bench.expect(0, ip4().src("1.0.0.6").dst("2.0.0.2").udp(1, 1).bytes());
    push(&mut bench, ip4().src("10.0.0.3").dst("2.0.0.2").udp(1, 1).bytes());
    bench.expect_nothing_more();
}

#[test]
fn what_is_not_ipv4_belongs_to_no_flow() {
    let mut bench = bench(&ADDRESS, "pattern 1.0.0.5 - 0 1");
    push(&mut bench, vec![0x60; 48]);
    bench.expect_nothing_more();
    bench.expect_dropped(DropReason::NoMatch, 1);
}

#[test]
fn patterns_can_not_change_other_ends() {
    let mut bench = bench(&ADDRESS, "pattern 1.0.0.5 5 - - 0 1");
    push(&mut bench, ip4().src("10.0.0.1").dst("2.0.0.2").udp(1, 1).bytes());
    bench.expect_nothing_more();
}

#[test]
fn both_addresses_are_rewritten_and_restored() {
    let mut bench = bench(&ADDRESS_PAIR, "pattern 1.0.0.5 7.0.0.7 0 1");
    push(&mut bench, ip4().src("10.0.0.1").dst("2.0.0.2").udp(1111, 53).bytes());
    bench.expect(0, ip4().src("1.0.0.5").dst("7.0.0.7").udp(1111, 53).bytes());
    push(&mut bench, ip4().src("7.0.0.7").dst("1.0.0.5").udp(53, 1111).bytes());
    bench.expect(1, ip4().src("2.0.0.2").dst("10.0.0.1").udp(53, 1111).bytes());
    let table = "(10.0.0.1, 2.0.0.2) => (1.0.0.5, 7.0.0.7) [*0 1] i0 exp7200\n\
                 (7.0.0.7, 1.0.0.5) => (2.0.0.2, 10.0.0.1) [0 *1] i0 exp7200\n";
    assert_eq!(bench.read("table", "").unwrap(), table);
}

fn request(src: &str, dst: &str, identifier: u16) -> Vec<u8> {
    icmp_echo(src, dst, identifier, 7).payload("ping").bytes()
}
fn reply(src: &str, dst: &str, identifier: u16) -> Vec<u8> {
    let mut bytes = request(src, dst, identifier);
    bytes[20] = 0;
    fill_checksum(&mut bytes);
    bytes
}
fn fill_checksum(bytes: &mut [u8]) {
    bytes[22..24].fill(0);
    let sum = checksum::checksum(&bytes[20..]);
    bytes[22..24].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn requests_and_replies_are_rewritten() {
    let mut bench = bench(&ICMP_PING, "pattern 1.0.0.1 5000-5010# - - 0 1");
    push(&mut bench, request("10.0.0.1", "2.0.0.2", 77));
    let packet = bench.expect(0, request("1.0.0.1", "2.0.0.2", 5000));
    assert_eq!(packet.dst_ip().to_string(), "2.0.0.2");
    push(&mut bench, reply("2.0.0.2", "1.0.0.1", 5000));
    let packet = bench.expect(1, reply("2.0.0.2", "10.0.0.1", 77));
    assert_eq!(packet.dst_ip().to_string(), "10.0.0.1");
    let table = "(10.0.0.1, 2.0.0.2, 77) => (1.0.0.1, 2.0.0.2, 5000) [*0 1] i0 exp300\n\
                 (2.0.0.2, 1.0.0.1, 5000) => (2.0.0.2, 10.0.0.1, 77) [0 *1] i0 exp300\n";
    assert_eq!(bench.read("table", "").unwrap(), table);
    assert_eq!(bench.read("nmappings", "").unwrap(), "1");
}

#[test]
fn an_identifier_that_fits_stays_and_none_is_used_twice_for_a_destination() {
    let mut bench = bench(&ICMP_PING, "pattern 1.0.0.1 5000-5001 - - 0 1");
    for (from, dst) in [("10.0.0.1", "2.0.0.2"), ("10.0.0.2", "2.0.0.2"), ("10.0.0.1", "3.0.0.3")] {
        push(&mut bench, request(from, dst, 5001));
    }
    bench.expect(0, request("1.0.0.1", "2.0.0.2", 5001));
    bench.expect(0, request("1.0.0.1", "2.0.0.2", 5000));
    bench.expect(0, request("1.0.0.1", "3.0.0.3", 5001));
    push(&mut bench, request("10.0.0.3", "2.0.0.2", 5000));
    bench.expect_nothing_more();
    assert_eq!(bench.read("mapping_failures", "").unwrap(), "1");
}

#[test]
fn requests_in_both_directions_with_one_identifier_are_two_flows() {
    let mut bench = bench(&ICMP_PING, "keep 0 1");
    push(&mut bench, request("10.0.0.1", "2.0.0.2", 9));
    push(&mut bench, request("2.0.0.2", "10.0.0.1", 9));
    assert_eq!(bench.drain_sent(0).len(), 2);
    push(&mut bench, reply("2.0.0.2", "10.0.0.1", 9));
    bench.expect(1, reply("2.0.0.2", "10.0.0.1", 9));
    assert_eq!(bench.read("size", "").unwrap(), "2");
}

#[test]
fn replies_that_nobody_asked_for_and_other_packets_pass_or_are_dropped() {
    let mut unreachable = request("10.0.0.1", "2.0.0.2", 9);
    unreachable[20] = 3;
    let strangers = [
        reply("2.0.0.2", "1.0.0.1", 5000),
        unreachable,
        ip4().udp(1, 2).bytes(),
        ip4().fragment(64, true).raw(1, [8; 24]).bytes(),
    ];
    let mut dropping = bench(&ICMP_PING, "pattern 1.0.0.1 5000-5010 - - 0 1");
    let mut passing = bench(&ICMP_PING, "pass 1");
    for stranger in &strangers {
        push(&mut dropping, stranger.clone());
        push(&mut passing, stranger.clone());
        passing.expect(1, stranger);
    }
    dropping.expect_nothing_more();
    dropping.expect_dropped(DropReason::NoMatch, 4);
    assert_eq!(dropping.read("mapping_failures", "").unwrap(), "0");
}

#[test]
fn the_greatest_identifier_is_like_any_other() {
    let mut bench = bench(&ICMP_PING, "pattern 1.0.0.1 65535-65535 - - 0 1");
    push(&mut bench, request("10.0.0.1", "2.0.0.2", 65535));
    bench.expect(0, request("1.0.0.1", "2.0.0.2", 65535));
    push(&mut bench, reply("2.0.0.2", "1.0.0.1", 65535));
    bench.expect(1, reply("2.0.0.2", "10.0.0.1", 65535));
}

#[test]
fn the_checksum_of_nothing_but_zeros_is_all_ones() {
    let zeros = |src, dst, identifier: u16| {
        let mut bytes = icmp_echo(src, dst, identifier, 0).bytes();
        bytes[20] = 0;
        fill_checksum(&mut bytes);
        bytes
    };
    let mut bench = bench(&ICMP_PING, "pattern 1.0.0.1 5 - - 0 1");
    push(&mut bench, request("10.0.0.1", "2.0.0.2", 0));
    bench.next_sent(0).unwrap();
    push(&mut bench, zeros("2.0.0.2", "1.0.0.1", 5));
    let expected = zeros("2.0.0.2", "10.0.0.1", 0);
    assert_eq!(expected[22..24], [0xff, 0xff]);
    bench.expect(1, expected);
}

#[test]
fn flows_end_after_their_timeout_and_the_annotation_stays_when_told() {
    let mut bench = bench(&ICMP_PING, "keep 0 1, TIMEOUT 10, REAP_INTERVAL 1, DST_ANNO false");
    push(&mut bench, request("10.0.0.1", "2.0.0.2", 9));
    assert_eq!(bench.next_sent(0).unwrap().dst_ip().to_string(), "0.0.0.0");
    bench.advance_time(Duration::from_secs(9));
    assert_eq!(bench.read("size", "").unwrap(), "1");
    bench.advance_time(Duration::from_secs(3));
    assert_eq!(bench.read("size", "").unwrap(), "0");
}

#[test]
fn nothing_that_comes_panics() {
    survives_anything(&IP, "pattern 1.0.0.1 5000-6000 - - 0 1, CAPACITY 20, GUARANTEE 0, DST_ANNO true", 2);
    survives_anything(&UDP, "pattern - 1-9 2.0.0.2 - 0 1", 2);
    survives_anything(&TCP, "keep 0 1", 2);
    survives_anything(&ADDRESS, "pattern 1.0.0.1-1.0.0.9 - 0 1", 2);
    survives_anything(&ADDRESS_PAIR, "pattern 1.0.0.1 2.0.0.2 0 1", 2);
    survives_anything(&ICMP_PING, "pattern 1.0.0.1 5000-6000 - - 0 1, CAPACITY 20, GUARANTEE 0", 2);
    survives_anything(&ICMP_PING, "keep 0 1", 2);
}
