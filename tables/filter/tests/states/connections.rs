//! TCP and others through a firewall that lets connections out, and none in.
use crate::world::{ACK, EM0, EM1, FIN_ACK, RST, SYN_ACK, World};
use artery_filter::dissect::FilterDropReason;
use artery_filter::facts::Direction;
use artery_wire::build::{Ip4, ip4, ip6};
use artery_wire::{IcmpType, TcpFlags};

const OUTWARD: &str = "block in all\npass out all";

/// A segment of the client behind the firewall, which has sent up to 1000.
pub(crate) fn client() -> Ip4 {
    ip4().src("10.0.0.9").dst("7.7.7.7").tcp(1234, 80).window(8000)
}

/// A segment of the server, which begins at 5000.
pub(crate) fn server() -> Ip4 {
    ip4().src("7.7.7.7").dst("10.0.0.9").tcp(80, 1234).window(8000)
}

#[track_caller]
pub(crate) fn connect(world: &mut World) {
    world.leaves(client().seq(1000));
    world.comes(server().flags(SYN_ACK).seq(5000).ack(1001));
    world.leaves(client().flags(ACK).seq(1001).ack(5001));
}

fn connected(rules: &str) -> World {
    let mut world = World::new(rules);
    connect(&mut world);
    world
}

#[test]
fn answers_of_a_connection_pass_and_strangers_do_not() {
    let mut world = connected(OUTWARD);
    world.comes(server().flags(ACK).seq(5001).ack(1001).payload([1; 500]));
    world.leaves(client().flags(ACK).seq(1001).ack(5501));
    world.refuses(server().src("7.7.7.8").flags(ACK).seq(5001).ack(1001), FilterDropReason::Match);
    assert_eq!(world.states(), 1);
    assert_eq!(world.filter.collect_counters().state_table, [6, 1, 0]);
}

#[test]
fn segments_out_of_the_window_are_mismatches() {
    let mut world = connected(OUTWARD);
    for (seq, ack) in [(5001 + 8001, 1001), (5001_u32.wrapping_sub(8001), 1001), (5001, 1001 + 70_000)] {
        world.refuses(server().flags(ACK).seq(seq).ack(ack).payload([1; 9]), FilterDropReason::StateMismatch);
    }
    assert_eq!(world.reason(FilterDropReason::StateMismatch), 3);
    world.comes(server().flags(ACK).seq(5001).ack(1001).payload([1; 9]));
}

#[test]
fn a_syn_into_a_connection_is_answered_by_a_challenge() {
    let mut world = connected(OUTWARD);
    world.withholds(client().seq(77_777), FilterDropReason::StateMismatch);
    let challenge = world.answer().bytes;
    let expected = ip4().src("7.7.7.7").dst("10.0.0.9").dont_fragment().tcp(80, 1234);
    assert_eq!(challenge, expected.flags(ACK).seq(5001).ack(1000).window(8000).bytes());
    // The sender means it: its reset has exactly the number of the challenge, and the connection is over.
    world.leaves(client().flags(RST).seq(1000));
    world.leaves(client().seq(77_777));
    assert_eq!(world.states(), 1);
    world.comes(server().flags(SYN_ACK).seq(5).ack(77_778));
}

#[test]
fn resets_must_have_the_exact_number_or_acknowledge_exactly() {
    let mut world = connected(OUTWARD);
    world.leaves(client().flags(ACK).seq(1001).ack(5001).payload([1; 9]));
    world.refuses(server().flags(RST).seq(5001 + 100), FilterDropReason::StateMismatch);
    world.refuses(server().flags(RST | ACK).seq(5001 + 100).ack(1009), FilterDropReason::StateMismatch);
    world.comes(server().flags(RST | ACK).seq(5001 + 100).ack(1010));
    let mut world = connected(OUTWARD);
    world.comes(server().flags(RST).seq(5002));
}

#[test]
fn ends_of_connections_at_lower_numbers_pass_and_from_the_future_do_not() {
    let mut world = connected(OUTWARD);
    world.comes(server().flags(ACK).seq(5001).ack(1001).payload([1; 500]));
    world.leaves(client().flags(ACK).seq(1001).ack(5501).payload([1; 300]));
    // The segment before was lost for the sender of this FIN.
    world.comes(server().flags(FIN_ACK).seq(5400).ack(1301));
    // It has not heard of what the other end sent last.
    world.leaves(client().flags(FIN_ACK).seq(1301).ack(5001));
    let mut world = connected(OUTWARD);
    world.refuses(server().flags(FIN_ACK).seq(5001).ack(1001 + 100_000), FilterDropReason::StateMismatch);
    world.refuses(server().flags(FIN_ACK).seq(5001 + 100_000).ack(1001), FilterDropReason::StateMismatch);
}

#[test]
fn a_stray_answer_in_a_handshake_is_reset() {
    let mut world = World::new(OUTWARD);
    world.leaves(client().seq(1000));
    world.refuses(server().flags(SYN_ACK).seq(5000).ack(900_000_000), FilterDropReason::StateMismatch);
    let reset = ip4().src("10.0.0.9").dst("7.7.7.7").dont_fragment().tcp(1234, 80);
    assert_eq!(world.answer().bytes, reset.flags(RST).seq(900_000_000).window(0).bytes());
    world.comes(server().flags(SYN_ACK).seq(5000).ack(1001));
}

#[test]
fn scaled_windows_are_held_against_as_scaled() {
    let mut world = World::new(OUTWARD);
    let scaled = |packet: Ip4, scale: u8| with_options(packet, &[3, 3, scale, 0]);
    world.test(EM0, Direction::Out, &mut scaled(client().seq(1000), 4));
    world.test(EM0, Direction::In, &mut scaled(server().flags(SYN_ACK).seq(5000).ack(1001), 4));
    world.leaves(client().flags(ACK).seq(1001).ack(5001));
    world.comes(server().flags(ACK).seq(5001 + 100_000).ack(1001).payload([0; 100]));
    world.refuses(
        server().flags(ACK).seq(5001 + 300_000).ack(1001).payload([0; 100]),
        FilterDropReason::StateMismatch,
    );
}

/// A segment with options.
pub(crate) fn with_options(packet: Ip4, options: &[u8]) -> Vec<u8> {
    let mut bytes = packet.payload(options).bytes();
    bytes[32] = ((20 + options.len()) / 4 * 16) as u8;
    bytes[36..38].fill(0);
    let ip = artery_wire::Ipv4::new(&bytes).unwrap();
    let pseudo =
        artery_wire::checksum::pseudo_v4(ip.src(), ip.dst(), ip.protocol(), (bytes.len() - 20) as u16);
    let sum = !artery_wire::checksum::add(pseudo, artery_wire::checksum::sum(&bytes[20..]));
    bytes[36..38].copy_from_slice(&sum.to_be_bytes());
    bytes
}

#[test]
fn a_new_connection_may_follow_one_that_is_over() {
    let mut world = connected(OUTWARD);
    world.leaves(client().flags(FIN_ACK).seq(1001).ack(5001));
    world.comes(server().flags(FIN_ACK).seq(5001).ack(1002));
    world.leaves(client().flags(ACK).seq(1002).ack(5002));
    world.leaves(client().seq(70_000));
    assert_eq!(world.states(), 1);
    world.comes(server().flags(SYN_ACK).seq(9000).ack(70_001));
}

#[test]
fn the_middle_of_a_connection_makes_a_state_only_where_rules_say_so() {
    let mut world = World::new("block all\npass out proto tcp");
    world.withholds(client().flags(ACK).seq(1).ack(2), FilterDropReason::Match);
    let mut world = World::new("block all\npass out proto tcp flags any");
    world.leaves(client().flags(ACK).seq(1).ack(2));
    world.comes(server().flags(ACK).seq(2).ack(1).payload([1; 1000]));
}

#[test]
fn datagrams_and_pings_are_answered_by_their_ends_only() {
    let mut world = World::new(OUTWARD);
    world.leaves(ip4().src("10.0.0.9").dst("7.7.7.7").udp(1000, 53));
    world.comes(ip4().src("7.7.7.7").dst("10.0.0.9").udp(53, 1000));
    world.refuses(ip4().src("7.7.7.7").dst("10.0.0.9").udp(53, 1001), FilterDropReason::Match);
    world.leaves(ip4().src("10.0.0.9").dst("7.7.7.7").icmp_echo(5, 1));
    world.comes(ip4().src("7.7.7.7").dst("10.0.0.9").icmp_echo_reply(5, 1));
    world.refuses(ip4().src("7.7.7.7").dst("10.0.0.9").icmp_echo_reply(6, 1), FilterDropReason::Match);
    world.leaves(ip6().src("2001:db8::9").dst("2001:db8:7::7").icmp_echo(5, 1));
    world.comes(ip6().src("2001:db8:7::7").dst("2001:db8::9").icmp_echo_reply(5, 1));
    world.leaves(ip4().src("10.0.0.9").dst("7.7.7.7").raw(47, [0; 8]));
    world.comes(ip4().src("7.7.7.7").dst("10.0.0.9").raw(47, [0; 8]));
}

#[test]
fn errors_belong_to_what_they_quote() {
    let mut world = World::new(OUTWARD);
    let datagram = ip4().src("10.0.0.9").dst("7.7.7.7").udp(1000, 53).payload([1; 30]);
    world.leaves(datagram.clone());
    let error = |quoted: Vec<u8>| {
        ip4().src("8.8.8.8").dst("10.0.0.9").icmp(IcmpType::UNREACHABLE, 3, [0; 4]).payload(&quoted[..28])
    };
    world.comes(error(datagram.bytes()));
    world.refuses(error(datagram.udp(1001, 53).bytes()), FilterDropReason::Match);
    connect(&mut world);
    let segment = client().flags(ACK).seq(1001).ack(5001).payload([1; 9]);
    world.comes(error(segment.clone().bytes()));
    world.refuses(error(segment.seq(90_000).bytes()), FilterDropReason::StateMismatch);
}

#[test]
fn a_forwarded_connection_is_found_at_its_second_interface_by_the_first() {
    let mut world = World::new("block all\npass in on em1\npass out on em0");
    let first = world.passes(EM1, Direction::In, client().seq(1000));
    world.hint = first.state;
    world.leaves(client().seq(1000));
    assert_eq!(world.states(), 2);
    let back = world.passes(EM0, Direction::In, server().flags(SYN_ACK).seq(5000).ack(1001));
    world.hint = back.state;
    let at_em1 = world.passes(EM1, Direction::Out, server().flags(SYN_ACK).seq(5000).ack(1001));
    assert_eq!(at_em1.state, first.state);
    // A hint that leads elsewhere does no harm.
    world.hint = back.state;
    world.passes(EM1, Direction::In, ip4().src("10.0.0.9").dst("8.8.8.8").udp(1, 2));
}

#[test]
fn states_that_are_bound_hold_at_their_interface_only() {
    for (policy, passes) in [("if-bound", false), ("floating", true)] {
        let mut world = World::new(&format!("set state-policy {policy}\nblock in\npass out"));
        world.leaves(client().seq(1000));
        let mut reply = server().flags(SYN_ACK).seq(5000).ack(1001).bytes();
        let verdict = world.test(EM1, Direction::In, &mut reply);
        assert_eq!(matches!(verdict, artery_filter::engine::FilterVerdict::Pass(_)), passes, "{policy}");
    }
}

#[test]
fn numbers_of_modulated_connections_are_moved_both_ways_and_back() {
    let mut world = World::new("block in\npass out proto tcp modulate state");
    let sent = world.leaves(client().seq(1000));
    let seq_of = |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let moved = seq_of(&sent, 24).wrapping_sub(1000);
    assert_ne!(moved, 0);
    assert_eq!(sent, client().seq(1000_u32.wrapping_add(moved)).bytes());
    let theirs = server().flags(SYN_ACK).seq(5000).ack(1001_u32.wrapping_add(moved));
    let reply = world.comes(theirs);
    let moved_back = seq_of(&reply, 24).wrapping_sub(5000);
    assert_ne!(moved_back, 0);
    assert_eq!(reply, server().flags(SYN_ACK).seq(5000_u32.wrapping_add(moved_back)).ack(1001).bytes());
    let ours = client().flags(ACK).seq(1001).ack(5001_u32.wrapping_add(moved_back)).payload([7; 5]);
    let on_the_wire = client().flags(ACK).seq(1001_u32.wrapping_add(moved)).ack(5001).payload([7; 5]);
    assert_eq!(world.leaves(ours), on_the_wire.bytes());
    let data = server().flags(ACK).seq(5001).ack(1006_u32.wrapping_add(moved)).payload([7; 5]);
    let expected = server().flags(ACK).seq(5001_u32.wrapping_add(moved_back)).ack(1006).payload([7; 5]);
    assert_eq!(world.comes(data), expected.bytes());
    world.refuses(
        server().flags(TcpFlags::ACK).seq(5001).ack(1006).payload([7; 5]),
        FilterDropReason::StateMismatch,
    );
}
