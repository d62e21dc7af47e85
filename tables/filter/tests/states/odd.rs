//! Exceptional packets: fragments, options, short ones; replies to blocked ones; what
//! `scrub` and `set` change.
use super::connections::with_options;
use crate::world::{ACK, EM0, SYN, World};
use artery_filter::dissect::FilterDropReason;
use artery_filter::engine::{FilterVerdict, ReplyDirection};
use artery_filter::facts::Direction;
use artery_wire::build::{ip4, ip6};
use artery_wire::{Icmp6Type, IcmpType, Ipv4Fragments, TcpFlags};

#[test]
fn fragments_are_put_together_before_rules_are_asked() {
    let mut world = World::new("block in\npass in proto udp to port 53");
    let whole = ip4().id(7).udp(1000, 53).payload([9; 3000]).bytes();
    let fragments: Vec<_> =
        Ipv4Fragments::split_packet(&whole, 1500).unwrap().map(|part| part.to_bytes()).collect();
    let (last, before) = fragments.split_last().unwrap();
    for fragment in before {
        assert_eq!(world.test(EM0, Direction::In, &mut fragment.clone()), FilterVerdict::Kept);
    }
    assert_eq!(world.test(EM0, Direction::In, &mut last.clone()), FilterVerdict::Assembled);
    let joined = world.filter.pop_assembled().unwrap();
    assert_eq!((&joined.bytes, joined.longest, joined.headers, joined.id), (&whole, 1500, 20, 7));
    world.comes(joined.bytes);
}

#[test]
fn fragments_that_wait_too_long_are_forgotten() {
    let mut world = World::new("pass");
    let whole = ip4().id(7).udp(1000, 53).payload([9; 2000]).bytes();
    let fragments: Vec<_> =
        Ipv4Fragments::split_packet(&whole, 1500).unwrap().map(|part| part.to_bytes()).collect();
    world.test(EM0, Direction::In, &mut fragments[0].clone());
    assert_eq!(world.filter.collect_counters().fragments, 1);
    world.sleep(61.0);
    world.maintain();
    assert_eq!(world.filter.collect_counters().fragments, 0);
}

#[test]
fn without_reassembly_fragments_are_for_rules_that_ask_for_them() {
    let mut world = World::new("set reassemble no\nblock in\npass in fragment no state");
    world.comes(ip4().fragment(64, false).raw(17, [0; 8]));
    world.refuses(ip4().udp(1, 2), FilterDropReason::Match);
}

#[test]
fn fragments_that_must_not_be_any_are_dropped() {
    let part = ip4().dont_fragment().fragment(0, true).raw(17, [0; 8]);
    World::new("pass").refuses(part.clone(), FilterDropReason::Fragment);
    let mut lenient = World::new("set reassemble yes no-df\npass");
    assert_eq!(lenient.test(EM0, Direction::In, &mut part.bytes()), FilterVerdict::Kept);
}

#[test]
fn options_pass_only_where_rules_allow_them() {
    let options = ip4().options([7, 4, 4, 0]).udp(1, 2);
    World::new("pass").refuses(options.clone(), FilterDropReason::IpOption);
    let mut world = World::new("pass allow-opts");
    world.comes(options.clone());
    world.comes(options);
    let six = ip6().extension(0, [5, 2, 0, 0, 1, 0]).udp(1, 2);
    World::new("pass").refuses(six.clone(), FilterDropReason::IpOption);
    World::new("pass allow-opts").comes(six);
}

#[test]
fn short_and_odd_packets_are_counted() {
    let mut world = World::new("pass");
    world.refuses(ip4().tcp(1, 2).bytes()[..30].to_vec(), FilterDropReason::Short);
    let mut odd = ip4().tcp(1, 2).bytes();
    odd[32] = 0x10;
    world.refuses(odd, FilterDropReason::BadOffset);
    assert_eq!((world.reason(FilterDropReason::Short), world.reason(FilterDropReason::BadOffset)), (1, 1));
}

#[test]
fn blocked_senders_hear_what_rules_say() {
    let mut world = World::new("block return in");
    world.refuses(ip4().tcp(1, 2).seq(10).payload([0; 5]), FilterDropReason::Match);
    let reset = ip4().src("10.0.0.2").dst("10.0.0.1").dont_fragment().tcp(2, 1);
    let reset = reset.flags(TcpFlags::RST | ACK).seq(0).ack(16).window(0).bytes();
    let answer = world.answer();
    assert_eq!((answer.bytes, answer.towards), (reset, ReplyDirection::Sender));
    world.refuses(ip4().tcp(1, 2).flags(TcpFlags::RST), FilterDropReason::Match);
    world.refuses(ip4().icmp_echo(1, 2), FilterDropReason::Match);
    assert!(!world.filter.has_news());
    let blocked = ip4().udp(1, 2).payload([7; 5]).bytes();
    world.refuses(blocked.clone(), FilterDropReason::Match);
    let error = world.answer().bytes;
    assert_eq!((error[9], error[20], error[21]), (1, IcmpType::UNREACHABLE.0, 3));
    assert_eq!(error[28..], blocked);
    world.refuses(ip6().udp(1, 2), FilterDropReason::Match);
    let error = world.answer().bytes;
    assert_eq!((error[6], error[40], error[41]), (58, Icmp6Type::UNREACHABLE.0, 4));
}

#[test]
fn a_segment_with_a_wrong_checksum_gets_no_reset() {
    let mut world = World::new("block return in");
    let mut segment = ip4().tcp(1, 2).seq(10).bytes();
    segment[36] ^= 1;
    world.refuses(segment, FilterDropReason::Match);
    assert!(!world.filter.has_news());
}

#[test]
fn resets_and_errors_are_as_rules_ask() {
    let mut world =
        World::new("block return-rst(ttl 7) in proto tcp\nblock return-icmp(host-unr) in proto { udp icmp }");
    world.refuses(ip4().tcp(1, 2), FilterDropReason::Match);
    assert_eq!(world.answer().bytes[8], 7);
    world.refuses(ip4().udp(1, 2), FilterDropReason::Match);
    assert_eq!(world.answer().bytes[21], 1);
    world.refuses(
        ip4().icmp(IcmpType::UNREACHABLE, 0, [0; 4]).payload(ip4().udp(1, 2).bytes()),
        FilterDropReason::Match,
    );
    assert!(!world.filter.has_news());
}

#[test]
fn what_scrub_says_holds_for_all_packets_of_a_state() {
    let mut world = World::new("match scrub (no-df, min-ttl 50, max-mss 1000)\npass");
    let syn = |ttl| with_options(ip4().ttl(ttl).dont_fragment().tcp(1, 2).flags(SYN), &[2, 4, 5, 180]);
    let expected = with_options(ip4().ttl(50).tcp(1, 2).flags(SYN), &[2, 4, 3, 232]);
    assert_eq!(world.comes(syn(10)), expected);
    assert_eq!(world.comes(syn(10)), expected);
}

#[test]
fn what_set_says_holds_for_all_packets_of_a_state() {
    let mut world = World::new("match set (tos 0x20, prio 5)\npass tag A");
    for _ in 0..2 {
        let mut bytes = ip4().udp(1, 2).bytes();
        let FilterVerdict::Pass(passed) = world.test(EM0, Direction::In, &mut bytes) else {
            panic!("it passes")
        };
        assert_eq!(bytes, ip4().tos(0x20).udp(1, 2).bytes());
        assert_eq!((passed.priority, passed.tag.0), (Some(5), 1));
    }
}

#[test]
fn timestamps_do_not_go_back_where_tcp_is_reassembled() {
    let mut world = World::new("match scrub (reassemble tcp)\npass flags any");
    let stamped = |stamp: u8, ttl: u8| {
        let mut options = vec![1, 1, 8, 10, 0, 0, 0, stamp, 0, 0, 0, 0];
        let packet = ip4().ttl(ttl).tcp(1, 2).flags(ACK).seq(100).ack(100);
        let mut bytes = with_options(packet.clone(), &options);
        options.extend([9; 8]);
        bytes.clone_from(&with_options(packet, &options));
        bytes[32] = 0x80;
        fix(&mut bytes);
        bytes
    };
    world.comes(stamped(50, 64));
    world.comes(stamped(60, 64));
    world.refuses(stamped(55, 64), FilterDropReason::BadTimestamp);
    // Nor does the time to live fall.
    assert_eq!(world.comes(stamped(70, 10))[8], 64);
}

/// Makes the checksum of a segment right.
fn fix(bytes: &mut [u8]) {
    bytes[36..38].fill(0);
    let ip = artery_wire::Ipv4::new(&*bytes).unwrap();
    let pseudo =
        artery_wire::checksum::pseudo_v4(ip.src(), ip.dst(), ip.protocol(), (bytes.len() - 20) as u16);
    let sum = !artery_wire::checksum::add(pseudo, artery_wire::checksum::sum(&bytes[20..]));
    bytes[36..38].copy_from_slice(&sum.to_be_bytes());
}
