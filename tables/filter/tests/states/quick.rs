//! The fast path against the full path, which all packets take where the filter is set to be thorough.
use crate::world::{EM0, EM1, World};
use artery_filter::dissect::FilterDropReason;
use artery_filter::facts::Direction;
use artery_filter::states::Verbosity;
use artery_wire::TcpFlags;
use artery_wire::build::ip4;
use proptest::prelude::*;

const RULES: &str = "block in all\npass out all\npass in proto udp from 7.7.7.8 keep state (udp.multiple 3)\n\
                     pass out proto tcp to port 81 modulate state\npass out inet to 7.7.7.9 nat-to 192.0.2.1";

/// A packet of one of a few connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    pub(super) host: u8,
    pub(super) port: u16,
    pub(super) is_reply: bool,
    pub(super) is_tcp: bool,
    pub(super) flags: u8,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) payload: usize,
    pub(super) after_ms: u16,
}

impl Sent {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let (inside, outside) = ([10, 0, 0, 9], [7, 7, 7, self.host]);
        let (source, destination) = if self.is_reply { (outside, inside) } else { (inside, outside) };
        let (from, to) = if self.is_reply { (self.port, 1000) } else { (1000, self.port) };
        let packet = ip4().src(source).dst(destination);
        match self.is_tcp {
            true => packet.tcp(from, to).flags(TcpFlags(self.flags)).seq(self.seq).ack(self.ack).window(2000),
            false => packet.udp(from, to),
        }
        .payload(vec![7; self.payload])
        .bytes()
    }
}

pub(super) fn sent() -> impl Strategy<Value = Sent> {
    let flags = prop_oneof![
        8 => Just(0x10_u8),
        2 => Just(2),
        2 => Just(0x12),
        1 => Just(0x11),
        1 => Just(4),
        1 => Just(0x18),
    ];
    let number = || prop_oneof![6 => 1000..1010_u32, 1 => any::<u32>(), 2 => 1000..6000_u32];
    let after = prop_oneof![9 => 0..50_u16, 1 => 0..40_000_u16];
    (7..10_u8, 80..82_u16, any::<bool>(), any::<bool>(), flags, number(), number(), 0..20_usize, after)
        .prop_map(|(host, port, is_reply, is_tcp, flags, seq, ack, payload, after_ms)| Sent {
            host,
            port,
            is_reply,
            is_tcp,
            flags,
            seq,
            ack,
            payload,
            after_ms,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn both_ways_come_to_the_same(packets in prop::collection::vec(sent(), 1..150)) {
        let mut quick = World::new(RULES);
        let mut full = World::new(RULES);
        full.be_thorough();
        for sent in packets {
            let direction = if sent.is_reply { Direction::In } else { Direction::Out };
            let results = [&mut quick, &mut full].map(|world| {
                world.sleep(f64::from(sent.after_ms) / 1000.0);
                world.maintain();
                let mut bytes = sent.bytes();
                let verdict = world.test(EM0, direction, &mut bytes);
                (verdict, bytes, world.list(Verbosity::VeryVerbose), world.filter.drain_replies())
            });
            prop_assert_eq!(&results[0], &results[1]);
        }
        let [one, other] = [&quick, &full].map(|world| world.filter.collect_counters());
        prop_assert_eq!((one.state_table, one.reasons), (other.state_table, other.reasons));
        prop_assert_eq!(one.interfaces, other.interfaces);
        prop_assert_eq!(quick.totals(), full.totals());
    }
}

/// Rules for packets between two interfaces.
pub(super) const CROSSING: &str = "pass\nblock in on em1\npass in on em1 proto udp from 7.7.7.8 keep state \
    (udp.multiple 3)\n\
    pass in on em0 proto tcp to port 81 modulate state\n\
    block out on em1 proto udp to 7.7.7.7 port 81\n\
    pass out on em1 inet to 7.7.7.9 nat-to 192.0.2.1";

/// The same without times of their own, with which the fast path is not taken.
pub(super) const CROSSING_QUICKLY: &str = "pass\nblock in on em1\npass in on em0 proto tcp to port 81 \
    modulate state\npass out on em1 inet to 7.7.7.9 nat-to 192.0.2.1";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn packets_that_cross_at_once_or_at_a_glance_come_to_what_each_interface_says(
        packets in prop::collection::vec(sent(), 1..150),
        rules in prop::sample::select(vec![CROSSING, CROSSING_QUICKLY]),
    ) {
        let mut worlds = [(); 3].map(|()| World::new(rules));
        for sent in packets {
            let (from, to) = if sent.is_reply { (EM1, EM0) } else { (EM0, EM1) };
            let ways = [World::cross, World::cross_at_once, World::cross_at_a_glance];
            let mut results = worlds.iter_mut().zip(ways).map(|(world, cross)| {
                world.sleep(f64::from(sent.after_ms) / 1000.0);
                world.maintain();
                let mut bytes = sent.bytes();
                let verdict = cross(world, from, to, &mut bytes);
                (verdict, bytes, world.list(Verbosity::VeryVerbose), world.filter.drain_replies())
            });
            let [each, at_once, at_a_glance] = std::array::from_fn(|_| results.next());
            prop_assert_eq!(&each, &at_once);
            prop_assert_eq!(&each, &at_a_glance);
        }
        prop_assert_eq!(worlds[0].totals(), worlds[1].totals());
        prop_assert_eq!(worlds[0].totals(), worlds[2].totals());
        let [each, at_once, at_a_glance] = worlds.each_ref().map(|world| world.filter.collect_counters());
        prop_assert_eq!(&each.interfaces, &at_once.interfaces);
        prop_assert_eq!(&each.interfaces, &at_a_glance.interfaces);
        prop_assert_eq!((each.state_table, each.reasons), (at_once.state_table, at_once.reasons));
        prop_assert_eq!((each.state_table, each.reasons), (at_a_glance.state_table, at_a_glance.reasons));
    }
}

#[test]
fn counts_of_both_states_are_right_beyond_what_a_line_holds() {
    let mut worlds = [(); 3].map(|()| World::new("pass"));
    let packet = |is_reply| Sent { host: 7, port: 80, is_reply, payload: 10, ..Sent::default() };
    for n in 0..140_000 {
        let is_reply = n % 3 == 1;
        let (from, to) = if is_reply { (EM1, EM0) } else { (EM0, EM1) };
        for (world, cross) in
            worlds.iter_mut().zip([World::cross, World::cross_at_once, World::cross_at_a_glance])
        {
            assert_eq!(cross(world, from, to, &mut packet(is_reply).bytes()), None);
        }
    }
    let [each, at_once, at_a_glance] = worlds.each_mut().map(|world| world.list(Verbosity::VeryVerbose));
    assert_eq!(each.matches("93333:46667 pkts, 3546654:1773346 bytes").count(), 2, "{each}");
    assert_eq!((&at_once, &at_a_glance), (&each, &each));
}

#[test]
fn no_packet_goes_the_quick_way_by_a_state_whose_lifetime_has_shrunk() {
    let settings = "set limit states 10\nset timeout { udp.first 30, udp.single 30, udp.multiple 30 }\n";
    let mut world = World::new(&format!("{settings}pass in"));
    let packet = |host: u8| ip4().src([7, 7, 7, host]).dst("10.0.0.9").udp(1, 2);
    (0..10).for_each(|host| {
        world.comes(packet(host));
    });
    world.reload(&format!("{settings}block in"));
    world.filter.purge_expired(0);
    // From 6 states on lifetimes shrink, to a third with 10.
    world.sleep(9.9);
    world.comes(packet(0));
    world.sleep(0.2);
    world.refuses(packet(1), FilterDropReason::Match);
    world.comes(packet(0));
}

#[test]
fn an_established_connection_goes_the_quick_way_across_the_wrap_of_its_numbers() {
    let mut world = World::new("block in\npass out");
    let (client, server) = (super::connections::client(), super::connections::server());
    let start = u32::MAX - 500;
    world.leaves(client.clone().seq(start));
    world.comes(server.clone().flags(crate::world::SYN_ACK).seq(5000).ack(start.wrapping_add(1)));
    for n in 0..20_u32 {
        let seq = start.wrapping_add(1 + n * 100);
        world.leaves(client.clone().flags(crate::world::ACK).seq(seq).ack(5001).payload([1; 100]));
        world.comes(server.clone().flags(crate::world::ACK).seq(5001).ack(seq.wrapping_add(100)));
    }
}
