use super::*;
use artery_engine::Bench;
use artery_wire::build::{arp_reply, arp_request, ether, ip4};

const MY_ETHER: &str = "02:00:00:00:00:01";
const ETHER: &str = "02:00:00:00:00:0a";

fn bench(config: &str) -> Bench {
    Bench::new(&CLASS, &format!("10.0.0.1/24, {MY_ETHER}{config}"))
}

/// Pushes an IP packet for a next hop.
fn send(bench: &mut Bench, next_hop: &str, id: u16) {
    bench.push_with(0, ip4().id(id).udp(1, 2).bytes(), |packet| packet.set_dst_ip(next_hop.parse().unwrap()));
}

fn framed(to: &str, id: u16) -> Vec<u8> {
    ether(to, MY_ETHER).ip4(ip4().id(id).udp(1, 2)).bytes()
}

fn answer(bench: &mut Bench, ip: &str, ether: &str) {
    bench.push(1, arp_reply(ether, ip, MY_ETHER, "10.0.0.1").bytes());
}

fn query(ip: &str) -> Vec<u8> {
    arp_request(MY_ETHER, "10.0.0.1", ip).bytes()
}

#[test]
fn packets_wait_for_the_answer_to_one_query_and_leave_in_order() {
    let mut bench = bench("");
    send(&mut bench, "10.0.0.2", 1);
    send(&mut bench, "10.0.0.2", 2);
    bench.expect(1, query("10.0.0.2"));
    assert_eq!(bench.read("length", "").unwrap(), "2");
    answer(&mut bench, "10.0.0.2", ETHER);
    bench.expect(0, framed(ETHER, 1));
    bench.expect(0, framed(ETHER, 2));
    send(&mut bench, "10.0.0.2", 3);
    let packet = bench.expect(0, framed(ETHER, 3));
    assert_eq!(packet.mac_offset(), Some(0));
    bench.expect_nothing_more();
    assert_eq!(bench.read("length", "").unwrap(), "0");
    assert_eq!(bench.read("queries", "").unwrap(), "1");
    assert_eq!(bench.read("responses", "").unwrap(), "1");
    assert_eq!(bench.read("stats", "").unwrap(), "0 packets killed\n1 ARP queries sent\n");
    assert_eq!(bench.read("table", "").unwrap(), "10.0.0.2 1 02-00-00-00-00-0A 0.000000\n");
    bench.expect_dropped(DropReason::Consumed, 1);
}

#[test]
fn with_one_output_queries_leave_by_it_too() {
    let mut bench = Bench::setup(&CLASS, "10.0.0.1, 02:00:00:00:00:01").outputs(1).build().unwrap();
    send(&mut bench, "10.0.0.2", 1);
    bench.expect(0, query("10.0.0.2"));
}

#[test]
fn a_batch_is_sorted_by_what_is_known_of_each_packet() {
    let mut bench = bench("");
    answer(&mut bench, "10.0.0.2", ETHER);
    let packets = ["10.0.0.2", "10.0.0.3", "10.0.0.2"].map(|next_hop| {
        let mut packet = bench.packet(ip4().udp(1, 2).bytes());
        packet.set_dst_ip(next_hop.parse().unwrap());
        packet
    });
    bench.push_packets(0, packets);
    assert_eq!(bench.drain_sent(0).len(), 2);
    bench.expect(1, query("10.0.0.3"));
}

#[test]
fn groups_need_no_query() {
    let mut bench = bench("");
    send(&mut bench, "10.0.0.255", 1);
    bench.expect(0, framed("ff:ff:ff:ff:ff:ff", 1));
    send(&mut bench, "255.255.255.255", 2);
    bench.expect(0, framed("ff:ff:ff:ff:ff:ff", 2));
    send(&mut bench, "224.129.2.3", 3);
    bench.expect(0, framed("01:00:5e:01:02:03", 3));
    bench.expect_nothing_more();
    bench.write("broadcast", "10.0.0.127").unwrap();
    send(&mut bench, "10.0.0.255", 4);
    bench.expect(1, query("10.0.0.255"));
}

#[test]
fn an_address_is_asked_for_ten_times_a_second_and_then_every_other_second() {
    let mut bench = bench("");
    for _ in 0..100 {
        send(&mut bench, "10.0.0.2", 1);
        bench.advance_time(Duration::from_millis(10));
    }
    assert_eq!(bench.drain_sent(1).len(), 10);
    for _ in 0..100 {
        send(&mut bench, "10.0.0.2", 1);
        bench.advance_time(Duration::from_millis(100));
    }
    assert_eq!(bench.drain_sent(1).len(), 5);
}

#[test]
fn a_neighbor_in_use_is_asked_again_itself_after_a_minute() {
    let mut bench = bench("");
    answer(&mut bench, "10.0.0.2", ETHER);
    bench.advance_time(Duration::from_secs(59));
    send(&mut bench, "10.0.0.2", 1);
    bench.expect(0, framed(ETHER, 1));
    bench.advance_time(Duration::from_secs(1));
    send(&mut bench, "10.0.0.2", 2);
    let mut unicast = query("10.0.0.2");
    unicast[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0x0a]);
    bench.expect(1, unicast);
    bench.expect(0, framed(ETHER, 2));
    send(&mut bench, "10.0.0.2", 3);
    bench.expect(0, framed(ETHER, 3));
    bench.expect_nothing_more();
    answer(&mut bench, "10.0.0.2", ETHER);
    bench.advance_time(Duration::from_secs(10));
    send(&mut bench, "10.0.0.2", 4);
    bench.expect(0, framed(ETHER, 4));
    bench.expect_nothing_more();
}

#[test]
fn polls_can_be_broadcast_or_turned_off() {
    for (config, polls) in [(", BROADCAST_POLL true, POLL_TIMEOUT 5", 1), (", POLL_TIMEOUT 0", 0)] {
        let mut bench = bench(config);
        answer(&mut bench, "10.0.0.2", ETHER);
        bench.advance_time(Duration::from_secs(100));
        send(&mut bench, "10.0.0.2", 1);
        bench.expect(0, framed(ETHER, 1));
        (0..polls).for_each(|_| drop(bench.expect(1, query("10.0.0.2"))));
        bench.expect_nothing_more();
    }
}

#[test]
fn what_is_known_expires() {
    let mut bench = bench(", TIMEOUT 10, POLL_TIMEOUT 0");
    answer(&mut bench, "10.0.0.2", ETHER);
    send(&mut bench, "10.0.0.2", 1);
    bench.expect(0, framed(ETHER, 1));
    bench.advance_time(Duration::from_millis(10_500));
    send(&mut bench, "10.0.0.2", 2);
    send(&mut bench, "10.0.0.2", 3);
    bench.expect(1, query("10.0.0.2"));
    bench.expect_nothing_more();
    bench.advance_time(Duration::from_secs(30));
    assert_eq!(bench.read("count", "").unwrap(), "0");
    bench.expect_dropped(DropReason::NeighborUnresolved, 2);
}

#[test]
fn too_many_waiting_packets_are_halved_from_the_oldest_on() {
    let mut bench = bench(", CAPACITY 4");
    for (id, next_hop) in
        [(1, "10.0.0.2"), (2, "10.0.0.3"), (3, "10.0.0.2"), (4, "10.0.0.3"), (5, "10.0.0.3")]
    {
        send(&mut bench, next_hop, id);
    }
    bench.expect_dropped(DropReason::NeighborUnresolved, 3);
    answer(&mut bench, "10.0.0.2", ETHER);
    assert!(bench.next_sent(0).is_none());
    answer(&mut bench, "10.0.0.3", ETHER);
    bench.expect(0, framed(ETHER, 4));
    bench.expect(0, framed(ETHER, 5));
    assert_eq!(bench.read("drops", "").unwrap(), "0");
    assert!(bench.read("stats", "").unwrap().starts_with("3 packets killed\n"));
}

#[test]
fn entries_and_packets_of_one_entry_can_be_limited() {
    let mut bench = bench(", ENTRY_CAPACITY 2, ENTRY_PACKET_CAPACITY 1");
    for next_hop in ["10.0.0.2", "10.0.0.2", "10.0.0.3", "10.0.0.4"] {
        send(&mut bench, next_hop, 1);
    }
    assert_eq!(bench.read("count", "").unwrap(), "2");
    assert_eq!(bench.read("length", "").unwrap(), "2");
    bench.expect_dropped(DropReason::NeighborUnresolved, 2);
}

#[test]
fn packets_without_next_hop_are_dropped_with_one_message() {
    let mut bench = bench("");
    send(&mut bench, "0.0.0.0", 1);
    send(&mut bench, "0.0.0.0", 2);
    bench.expect_nothing_more();
    let message = "e :: ARPQuerier: would query for 0.0.0.0; missing dest IP addr annotation?\n";
    assert_eq!(bench.stderr_text(), message);
    assert_eq!(bench.read("drops", "").unwrap(), "2");
}

#[test]
fn messages_that_are_no_replies_change_nothing() {
    let mut bench = bench("");
    let reply = arp_reply(ETHER, "10.0.0.2", MY_ETHER, "10.0.0.1").bytes();
    for len in 0..reply.len() {
        bench.push(1, &reply[..len]);
    }
    bench.push(1, arp_request(ETHER, "10.0.0.2", "10.0.0.1").bytes());
    answer(&mut bench, "10.0.0.2", "03:00:00:00:00:01");
    assert_eq!(bench.read("count", "").unwrap(), "0");
    bench.expect_dropped(DropReason::TooShort, 42);
}

#[test]
fn addresses_can_be_inserted_deleted_and_cleared() {
    let mut bench = bench("");
    bench.write("insert", &format!("10.0.0.2 {ETHER}")).unwrap();
    send(&mut bench, "10.0.0.2", 1);
    bench.expect(0, framed(ETHER, 1));
    bench.write("insert", "10.0.0.2 02:00:00:00:00:0b").unwrap();
    send(&mut bench, "10.0.0.2", 2);
    bench.expect(0, framed("02:00:00:00:00:0b", 2));
    bench.write("delete", "10.0.0.2").unwrap();
    send(&mut bench, "10.0.0.2", 3);
    bench.expect(1, query("10.0.0.2"));
    bench.write("clear", "").unwrap();
    bench.expect_dropped(DropReason::NeighborUnresolved, 1);
    assert_eq!(bench.read("queries", "").unwrap(), "0");
    bench.write("ipaddr", "10.0.0.9").unwrap();
    send(&mut bench, "10.0.0.2", 4);
    bench.expect(1, arp_request(MY_ETHER, "10.0.0.9", "10.0.0.2").bytes());
    bench.write("ipaddr", "0.0.0.0").unwrap();
    send(&mut bench, "10.0.0.2", 4);
    bench.expect_dropped(DropReason::Inactive, 1);
}

#[test]
fn queries_inherit_time_and_vlan() {
    let mut bench = bench("");
    let mut packet = bench.packet(ip4().udp(1, 2).bytes());
    packet.set_dst_ip([10, 0, 0, 2].into());
    packet.set_timestamp(Time::new(7, 0));
    packet.set_annotation(anno::VLAN_TCI, [0, 9]);
    bench.push_packets(0, [packet]);
    let query = bench.expect(1, query("10.0.0.2"));
    assert_eq!((query.timestamp(), query.annotation(anno::VLAN_TCI)), (Time::new(7, 0), [0, 9]));
    assert_eq!(query.network_offset(), Some(14));
}

#[test]
fn a_new_querier_with_the_same_addresses_takes_over() {
    let mut old = bench("");
    answer(&mut old, "10.0.0.2", ETHER);
    send(&mut old, "10.0.0.3", 1);
    let mut new = bench("");
    new.take_state(&mut old);
    send(&mut new, "10.0.0.2", 2);
    new.expect(0, framed(ETHER, 2));
    answer(&mut new, "10.0.0.3", ETHER);
    new.expect(0, framed(ETHER, 1));
    let mut other = Bench::new(&CLASS, "10.0.0.9, 02:00:00:00:00:01");
    other.take_state(&mut new);
    assert_eq!(other.read("count", "").unwrap(), "0");
}

#[test]
fn packets_that_wait_when_no_successor_comes_are_lost_and_counted() {
    let mut old = bench("");
    send(&mut old, "10.0.0.3", 1);
    old.stop_without_successor();
    old.expect_dropped(DropReason::Replaced, 1);
}

#[test]
fn arguments_are_checked() {
    assert_eq!(Bench::config_error(&CLASS, "10.0.0.1"), "ETH: required argument missing");
    assert_eq!(Bench::config_error(&CLASS, "nobody, 02:00:00:00:00:01"), "IP: parse error");
    let found = Bench::config_error(&CLASS, "10.0.0.1, 02:00:00:00:00:01, TABLE nobody");
    assert_eq!(found, "TABLE: does not name an element");
    let mut names = Names::default();
    let ether = Some([2, 0, 0, 0, 0, 1].into());
    let entry = artery_engine::names::NameEntry {
        ip: Some(([10, 0, 0, 1].into(), Some(24))),
        ether,
        ..Default::default()
    };
    names.define_name("me", entry);
    let mut bench = Bench::setup(&CLASS, "me").names(names).build().unwrap();
    send(&mut bench, "10.0.0.2", 1);
    bench.expect(1, query("10.0.0.2"));
}
