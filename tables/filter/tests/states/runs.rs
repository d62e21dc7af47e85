//! Packets of one flow behind one another, against each by itself.
use super::quick::{CROSSING, CROSSING_QUICKLY, Sent, sent};
use crate::world::{EM0, EM1, World};
use artery_filter::dissect::{FilterDropReason, HookContext};
use artery_filter::engine::{ThroughVerdict, are_of_one_flow};
use artery_filter::facts::{Direction, Interface};
use artery_filter::states::Verbosity;
use artery_wire::Ipv4;
use proptest::prelude::*;

/// What became of packets, and how many followed another in a run.
type Crossed = (Vec<Option<FilterDropReason>>, usize);

fn cross_each(world: &mut World, from: Interface, to: Interface, packets: &mut [Vec<u8>]) -> Crossed {
    (packets.iter_mut().map(|bytes| world.cross(from, to, bytes)).collect(), 0)
}

/// As through a switch.
fn cross_at_once(world: &mut World, from: Interface, to: Interface, packets: &mut [Vec<u8>]) -> Crossed {
    let (mut results, mut followers) = (Vec::new(), 0);
    world.filter.begin_batch(world.now);
    while let Some(bytes) = packets.get_mut(results.len()) {
        let key = world.filter.parse_keys(bytes, Direction::In);
        let places = (HookContext::new(from, Direction::In), HookContext::new(to, Direction::Out));
        let through = world.filter.pass_through(|| bytes, &key, places);
        results.push(world.go_on(through, from, to, bytes));
        if through == ThroughVerdict::Passed {
            let behind = packets[results.len()..].iter().map(Vec::as_slice);
            let passed = world.filter.pass_run(behind, &key, places);
            results.extend(vec![None; passed]);
            followers += passed;
        }
    }
    world.filter.end_batch();
    (results, followers)
}

/// As around a router: first all where they come in, as far as that is quickly done, and
/// then where they leave.
fn cross_at_each(world: &mut World, from: Interface, to: Interface, packets: &mut [Vec<u8>]) -> Crossed {
    let (enters, leaves) = (HookContext::new(from, Direction::In), HookContext::new(to, Direction::Out));
    let (mut came, mut followers) = (Vec::new(), 0);
    world.filter.begin_batch(world.now);
    while let Some(bytes) = packets.get(came.len()) {
        let key = world.filter.parse_keys(bytes, Direction::In);
        let Some(state) = world.filter.pass_fast(|| bytes, &key, enters) else { break };
        let behind = packets[came.len() + 1..].iter().map(Vec::as_slice);
        let passed = world.filter.enter_run(behind, &key, (state, enters));
        came.extend(vec![state; 1 + passed]);
        followers += passed;
    }
    world.filter.end_batch();
    let each = packets.iter_mut().enumerate().map(|(n, bytes)| {
        let Some(state) = came.get(n) else { return world.cross(from, to, bytes) };
        let passed = world.filter.pass_linked(bytes, *state, leaves);
        world.filter.end_batch();
        world.hint = Some(*state);
        if passed.is_some() { None } else { world.leave(to, bytes) }
    });
    (each.collect(), followers)
}

/// How packets cross the filter.
type Way = fn(&mut World, Interface, Interface, &mut [Vec<u8>]) -> Crossed;

const WAYS: [Way; 3] = [cross_each, cross_at_once, cross_at_each];

/// What a packet's header says that a follower's doesn't.
#[derive(Clone, Copy, Debug)]
enum Odd {
    MoreFragments,
    LaterFragment,
    Options,
    Longer,
    Shorter,
    OtherVersion,
    Cut,
}

const ODD: [Odd; 7] = [
    Odd::MoreFragments,
    Odd::LaterFragment,
    Odd::Options,
    Odd::Longer,
    Odd::Shorter,
    Odd::OtherVersion,
    Odd::Cut,
];

impl Odd {
    fn make(self, packet: &mut Vec<u8>) {
        match self {
            Odd::MoreFragments => packet[6] |= 0x20,
            Odd::LaterFragment => packet[7] = 3,
            // What was of TCP or UDP is an option now.
            Odd::Options => packet[0] = 0x46,
            Odd::Longer => packet[3] += 1,
            Odd::Shorter => packet[3] = 27,
            Odd::OtherVersion => packet[0] = 0x65,
            Odd::Cut => packet.truncate(27),
        }
        if let Ok(mut header) = Ipv4::new(packet) {
            header.fill_checksum();
        }
    }
}

/// A packet, and how many packets behind it continue its flow, or are like it
/// except for something exceptional.
fn burst() -> impl Strategy<Value = (bool, Vec<Vec<u8>>, f64)> {
    let odd = prop_oneof![9 => Just(None), 1 => prop::sample::select(&ODD[..]).prop_map(Some)];
    (sent(), prop::collection::vec((any::<bool>(), sent(), odd), 0..8)).prop_map(|(first, others)| {
        let follow = |(n, (goes_on, other, odd)): (u32, (bool, Sent, Option<Odd>))| {
            let seq = first.seq.wrapping_add(n);
            let mut bytes = match goes_on {
                true => Sent { seq, ack: other.ack, payload: other.payload, ..first.clone() }.bytes(),
                false => Sent { is_reply: first.is_reply, ..other }.bytes(),
            };
            odd.into_iter().for_each(|odd| odd.make(&mut bytes));
            bytes
        };
        let packets = std::iter::once(first.bytes()).chain((1..).zip(others).map(follow)).collect();
        (first.is_reply, packets, f64::from(first.after_ms) / 1000.0)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn packets_in_runs_come_to_what_each_by_itself_does(
        bursts in prop::collection::vec(burst(), 1..40),
        rules in prop::sample::select(vec![CROSSING, CROSSING_QUICKLY, "pass"]),
    ) {
        // Fragments are not kept until they are whole, so that each packet has its own verdict.
        let rules = format!("set reassemble no\n{rules}");
        let mut worlds = [(); 3].map(|()| World::new(&rules));
        for (is_reply, sent, after) in bursts {
            let (from, to) = if is_reply { (EM1, EM0) } else { (EM0, EM1) };
            let mut results = worlds.iter_mut().zip(WAYS).map(|(world, cross)| {
                world.sleep(after);
                world.maintain();
                let mut packets = sent.clone();
                let (verdicts, _) = cross(world, from, to, &mut packets);
                (verdicts, packets, world.list(Verbosity::VeryVerbose), world.filter.drain_replies())
            });
            let [each, at_once, at_each] = std::array::from_fn(|_| results.next());
            prop_assert_eq!(&each, &at_once);
            prop_assert_eq!(&each, &at_each);
        }
        let totals = worlds.each_ref().map(World::totals);
        prop_assert_eq!((&totals[0], &totals[0]), (&totals[1], &totals[2]));
        let [each, at_once, at_each] = worlds.each_ref().map(|world| world.filter.collect_counters());
        prop_assert_eq!((each.state_table, each.reasons), (at_once.state_table, at_once.reasons));
        prop_assert_eq!((each.state_table, each.reasons), (at_each.state_table, at_each.reasons));
    }
}

#[test]
fn long_runs_go_through_as_one_and_count_as_many_beyond_what_a_line_holds() {
    for is_tcp in [false, true] {
        let mut worlds = [(); 3].map(|()| World::new("pass"));
        let packet = |is_reply, flags, seq, ack| {
            let (host, port, payload, after_ms) = (7, 80, 0, 0);
            Sent { host, port, is_reply, is_tcp, flags, seq, ack, payload, after_ms }.bytes()
        };
        // The first of each batch is followed by all others, but where each goes by itself.
        for ((world, cross), follow) in worlds.iter_mut().zip(WAYS).zip([0, 199, 199]) {
            let mut cross = |is_reply, packets: &mut [Vec<u8>]| {
                let (from, to) = if is_reply { (EM1, EM0) } else { (EM0, EM1) };
                cross(world, from, to, packets)
            };
            cross(false, &mut [packet(false, 2, 999, 0)]);
            cross(true, &mut [packet(true, 0x12, 1999, 1000)]);
            for batch in 0..700 {
                let (results, followers) = cross(false, &mut vec![packet(false, 0x10, 1000, 2000); 200]);
                assert_eq!(results, [None; 200]);
                // States are merged as the first packets pass.
                assert!(batch < 2 || followers == follow, "batch {batch}: {followers}");
            }
        }
        let [each, at_once, at_each] = worlds.each_mut().map(|world| world.list(Verbosity::VeryVerbose));
        assert_eq!(each.matches("140001:1 pkts").count(), 2, "{each}");
        assert_eq!((&at_once, &at_each), (&each, &each));
    }
}

#[test]
fn what_is_odd_ends_a_run() {
    let packet = |is_reply, flags, seq, ack| {
        let (host, port, is_tcp, payload, after_ms) = (7, 80, true, 0, 0);
        Sent { host, port, is_reply, is_tcp, flags, seq, ack, payload, after_ms }.bytes()
    };
    for odd in ODD {
        let mut packets = vec![packet(false, 0x10, 1000, 2000); 9];
        odd.make(&mut packets[4]);
        for (cross, follow) in [(WAYS[1], 3 + 3), (WAYS[2], 3)] {
            let mut world = World::new("set reassemble no\npass");
            cross(&mut world, EM0, EM1, &mut [packet(false, 2, 999, 0)]);
            cross(&mut world, EM1, EM0, &mut [packet(true, 0x12, 1999, 1000)]);
            for _ in 0..3 {
                cross(&mut world, EM0, EM1, &mut [packet(false, 0x10, 1000, 2000)]);
            }
            assert_eq!(cross(&mut world, EM0, EM1, &mut packets.clone()).1, follow, "{odd:?}");
        }
    }
}

#[test]
fn flows_are_told_apart_by_all_that_they_are_told_by() {
    let sent = |host, port, is_reply, is_tcp, payload| {
        Sent { host, port, is_reply, is_tcp, flags: 0x10, seq: 1, ack: 1, payload, after_ms: 0 }.bytes()
    };
    let one = sent(7, 80, false, true, 0);
    assert!(are_of_one_flow(&one, &sent(7, 80, false, true, 9)));
    for other in [
        sent(8, 80, false, true, 0),
        sent(7, 81, false, true, 0),
        sent(7, 80, true, true, 0),
        sent(7, 80, false, false, 0),
    ] {
        assert!(!are_of_one_flow(&one, &other));
    }
    assert!((0..28).all(|len| !are_of_one_flow(&one[..len], &one[..len])));
}
