//! `synproxy state`: no server hears of a client that does not answer.
use super::connections::with_options;
use crate::world::{ACK, EM0, SYN_ACK, World};
use artery_filter::dissect::FilterDropReason;
use artery_filter::engine::ReplyDirection;
use artery_filter::facts::Direction;
use artery_filter::states::Verbosity;
use artery_wire::build::{Ip4, ip4};
use artery_wire::{Ipv4, Tcp};

const RULES: &str = "block all\npass in on em0 proto tcp to port 80 synproxy state";

fn client() -> Ip4 {
    ip4().src("7.7.7.7").dst("10.0.0.80").tcp(1000, 80)
}

fn server() -> Ip4 {
    ip4().src("10.0.0.80").dst("7.7.7.7").tcp(80, 1000)
}

fn tcp(bytes: &[u8]) -> Tcp<&[u8]> {
    Tcp::new(&bytes[20..]).unwrap()
}

#[test]
fn the_filter_shakes_hands_with_both_and_joins_them() {
    let mut world = World::new(RULES);
    world.refuses(with_options(client().seq(100), &[2, 4, 5, 180]), FilterDropReason::Synproxy);
    let greeting = world.answer();
    let theirs = tcp(&greeting.bytes).seq();
    let expected = server().dont_fragment().flags(SYN_ACK).seq(theirs).ack(101).window(0);
    assert_eq!(greeting.bytes, with_options(expected, &[2, 4, 5, 180]));
    assert_eq!(greeting.towards, ReplyDirection::Sender);
    assert!(world.list(Verbosity::Plain).ends_with("PROXY:SRC\n"));
    // A guessed number is not an answer.
    world.refuses(client().flags(ACK).seq(101).ack(theirs.wrapping_add(2)), FilterDropReason::Synproxy);
    assert!(!world.filter.has_news());
    world.refuses(
        client().flags(ACK).seq(101).ack(theirs.wrapping_add(1)).window(3000),
        FilterDropReason::Synproxy,
    );
    let call = world.answer();
    let ours = tcp(&call.bytes).seq();
    assert_eq!(call.towards, ReplyDirection::Receiver);
    assert_eq!(call.bytes, with_options(client().dont_fragment().seq(ours).window(3000), &[2, 4, 5, 180]));
    assert!(world.list(Verbosity::Plain).ends_with("PROXY:DST\n"));
    let reply = server().flags(SYN_ACK).seq(9000).ack(ours.wrapping_add(1)).window(4000);
    world.withholds(reply, FilterDropReason::Synproxy);
    let answers = world.filter.drain_replies();
    let [to_server, to_client] = [0, 1].map(|n: usize| tcp(&answers[n].bytes));
    assert_eq!((to_server.seq(), to_server.ack(), to_server.window()), (ours.wrapping_add(1), 9001, 3000));
    assert_eq!((to_client.seq(), to_client.ack(), to_client.window()), (theirs.wrapping_add(1), 101, 4000));
    assert!(world.list(Verbosity::Plain).ends_with("ESTABLISHED:ESTABLISHED\n"));
    // From here on numbers are moved.
    let data = world.comes(client().flags(ACK).seq(101).ack(theirs.wrapping_add(1)).payload([1; 10]));
    let expected = client().flags(ACK).seq(ours.wrapping_add(1)).ack(9001).payload([1; 10]);
    assert_eq!(data, expected.bytes());
    let back = server().flags(ACK).seq(9001).ack(ours.wrapping_add(11)).payload([2; 10]);
    let expected = server().flags(ACK).seq(theirs.wrapping_add(1)).ack(111).payload([2; 10]);
    assert_eq!(world.leaves(back), expected.bytes());
}

#[test]
fn a_flood_of_syns_reaches_no_server() {
    let mut world = World::new(&format!("set limit states 500\n{RULES}"));
    for n in 0..5000_u32 {
        let from = std::net::Ipv4Addr::from(0x0b00_0000 + n);
        let mut syn = client().src(from).seq(n).bytes();
        world.test(EM0, Direction::In, &mut syn);
        for answer in world.filter.drain_replies() {
            assert_eq!(answer.towards, ReplyDirection::Sender);
            assert_eq!(Ipv4::new(&answer.bytes[..]).unwrap().dst(), from);
        }
    }
    assert!(world.states() <= 500);
}
