//! The switch on the bench with a packet filter of its own.
use artery_elements::CLASSES;
use artery_engine::{Bench, DropReason};
use artery_wire::TcpFlags;
use artery_wire::build::{Ip4, ether, icmp_echo, ip4, ip6};
use std::time::Duration;

/// A switch of three ports, with these arguments.
fn switch(config: &str) -> Bench {
    let setup = Bench::setup(CLASSES.find_class("Veb").unwrap(), config);
    setup.inputs(3).outputs(3).build().unwrap()
}

/// A switch of three ports with rules, whose MAC table has an entry for each port:
/// 02:00:00:00:00:00 and so on.
fn bench(rules: &str) -> Bench {
    let mut bench = switch("PORT em0, PORT em1, PORT em2, LINK1 true");
    for port in 0..3 {
        bench.push(port, ether([0xff; 6], station(port)).ip4(ip4().udp(1, 2)).bytes());
        (0..3).for_each(|port| drop(bench.drain_sent(port)));
    }
    bench.write("pf_load", &format!("\n{rules}\n")).unwrap();
    bench
}

fn station(port: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, port as u8]
}

/// Whether a datagram passes the switch.
fn passes(bench: &mut Bench, from: usize, to: usize, source_port: u16) -> bool {
    let frame = ether(station(to), station(from)).ip4(ip4().udp(source_port, 53));
    bench.push(from, frame.bytes());
    !bench.drain_sent(to).is_empty()
}

#[test]
fn rules_may_ask_by_which_port_a_frame_came() {
    let mut bench = bench("block out on em2 received-on em1\nblock out on em0 ! received-on em1");
    assert!(passes(&mut bench, 0, 2, 1) && !passes(&mut bench, 1, 2, 1));
    assert!(passes(&mut bench, 1, 0, 1) && !passes(&mut bench, 2, 0, 1));
}

#[test]
fn what_no_host_would_take_is_dropped_whatever_rules_say_and_also_if_it_has_a_state() {
    let mut bench = bench("pass");
    let udp = |source: &str| ip4().src(source).dst("10.0.0.2").udp(7, 53).bytes();
    let frame =
        |packet: &[u8]| [&ether(station(1), station(0)).ip4(ip4().udp(1, 2)).bytes()[..14], packet].concat();
    let arrives = |bench: &mut Bench, packet: &[u8]| {
        bench.push(0, frame(packet));
        !bench.drain_sent(1).is_empty()
    };
    assert!(arrives(&mut bench, &udp("10.0.0.1")) && arrives(&mut bench, &udp("10.0.0.1")));
    let mut wrong = udp("10.0.0.1");
    wrong[8] ^= 0x40;
    assert!(!arrives(&mut bench, &wrong), "its checksum is wrong, though there is a state");
    assert!(!arrives(&mut bench, &udp("127.0.0.1")) && !arrives(&mut bench, &udp("224.0.0.1")));
    let run: Vec<Vec<u8>> = [udp("10.0.0.1"), udp("10.0.0.1"), wrong, udp("10.0.0.1")].to_vec();
    let passed = run.iter().filter(|packet| arrives(&mut bench, packet)).count();
    assert_eq!(passed, 3);
    bench.read("pf_worker", "count").unwrap();
    let info = bench.read("pf", "info").unwrap();
    let count = |name: &str| {
        let line = info.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_string()
    };
    assert_eq!((count("proto-cksum"), count("normalize")), ("2".to_string(), "2".to_string()));
}

#[test]
fn marks_of_rules_where_a_frame_leaves_are_tags_there_and_others_stay_unless_rules_change_them() {
    let rules = "block out on em1 tagged left\nblock out on em2 tagged changed\n\
                 pass in on em0 proto udp from port 9 tag changed";
    let mut bench = bench(rules);
    for words in ["rule match in on em0 tag came", "rule match out on em1 tag left"] {
        bench.write("ifconfig", words).unwrap();
    }
    assert!(!passes(&mut bench, 0, 1, 1) && passes(&mut bench, 0, 2, 1));
    assert!(!passes(&mut bench, 0, 2, 9), "the rule's tag has taken the place of the port's mark");
    bench.write("pf_load", "\nblock out on em2 tagged came\n").unwrap();
    assert!(!passes(&mut bench, 0, 2, 2) && passes(&mut bench, 1, 2, 2));
}

#[test]
fn states_that_are_over_end_as_fast_as_a_flood_makes_them() {
    let mut bench = bench("set timeout { udp.first 1 udp.single 1 }\npass in on em0");
    assert!((0..20_000).all(|port| passes(&mut bench, 0, 1, port)));
    let mut entries = || {
        bench.advance_time(Duration::from_secs(2));
        bench.read("pf_worker", "count").unwrap();
        let info = bench.read("pf", "info").unwrap();
        let line = info.lines().find(|line| line.contains("current entries")).unwrap().to_string();
        line.split_whitespace().last().unwrap().to_string()
    };
    assert_eq!(entries(), "0");
}

#[test]
fn what_a_switch_can_not_do_is_refused_by_name() {
    let mut bench = bench("pass");
    for (rule, what) in
        [("pass in route-to 10.0.0.1", "route-to"), ("pass in proto tcp synproxy state", "synproxy")]
    {
        let why = bench.write("pf_load", &format!("\n{rule}\n")).unwrap_err().to_string();
        assert!(why.contains(&format!("pf.conf:1: not supported: {what}")), "{why}");
    }
}

#[test]
fn rules_hold_where_a_frame_leaves_without_the_tag_that_it_came_with() {
    let mut bench =
        bench("block return out on em1 proto tcp to port 80\npass out on em1 proto udp to port 53");
    bench.write("ifconfig", "-untagged em0 tagged em0 7 untagged em1 7 untagged em2 7").unwrap();
    let tagged = |to, packet| ether(station(to), station(0)).vlan(7).ip4(packet).bytes();
    for _ in 0..2 {
        bench.push(0, tagged(1, ip4().udp(1, 53)));
        assert_eq!(bench.drain_sent(1).len(), 1);
        bench.push(0, tagged(1, ip4().tcp(1, 80).flags(TcpFlags::SYN)));
        assert_eq!(bench.drain_sent(1).len(), 0);
        let reset = bench.drain_sent(0);
        assert_eq!(reset.len(), 1);
        assert_eq!(reset[0].data()[12..16], [0x81, 0, 0, 7], "to whom sends tagged frames");
    }
}

#[test]
fn frames_of_a_flow_behind_one_another_go_where_each_by_itself_does() {
    let rules = "block in on em0 proto udp from port 66\nblock out on em2 proto udp from port 77";
    let frame = |to, port| ether(station(to), station(0)).ip4(ip4().udp(port, 53)).bytes();
    let mut arp = frame(1, 1);
    arp[12..14].copy_from_slice(&[8, 6]);
    let others = [frame(2, 1), frame(1, 66), frame(2, 77), frame(1, 2), arp];
    for (special, other) in (0..40).zip(others.iter().cycle()) {
        let came: Vec<Vec<u8>> =
            (0..40).map(|n| if n == special { other.clone() } else { frame(1, 1) }).collect();
        go_where_each_by_itself_does(rules, &came);
    }
}

/// Pushes frames into port 0 together, and one by one into another switch, and compares what becomes of them.
#[track_caller]
fn go_where_each_by_itself_does(rules: &str, came: &[Vec<u8>]) {
    let mut benches = [(); 2].map(|()| bench(rules));
    let [at_once, each] = &mut benches;
    // The first of them creates the state, the second joins it, and so on.
    for _ in 0..3 {
        let packets: Vec<_> = came.iter().map(|bytes| at_once.packet(bytes)).collect();
        at_once.push_packets(0, packets);
        came.iter().for_each(|bytes| each.push(0, bytes));
    }
    let outcomes = benches.each_mut().map(|bench| {
        let frames = [0, 1, 2].map(|port| {
            let frames = bench.drain_sent(port);
            frames.iter().map(|frame| frame.data().to_vec()).collect::<Vec<_>>()
        });
        let states = bench.read("pf_worker", "states 0 -").unwrap();
        let states: Vec<String> = states.lines().map(|line| line.to_string()).collect();
        (frames, bench.read("drops", "").unwrap(), states)
    });
    assert_eq!(outcomes[0], outcomes[1], "{came:x?}");
}

#[test]
fn frames_of_all_kinds_in_a_batch_go_where_each_by_itself_does() {
    let rules = "block in on em0 inet6 proto udp from port 66\nblock out on em1 inet6 from 2001:db8::7\n\
                 block out on em2 inet proto icmp";
    let four = |to, packet: Ip4| ether(station(to), station(0)).ip4(packet).bytes();
    let six = |to, source: &str, port| {
        let packet = ip6().src(source).dst("2001:db8::2").udp(port, 53);
        ether(station(to), station(0)).ip6(packet).bytes()
    };
    let mut arp = four(1, ip4().udp(1, 2));
    arp[12..14].copy_from_slice(&[8, 6]);
    let mut wrong = four(1, ip4().udp(3, 4));
    wrong[24] ^= 1;
    let kinds = [
        four(1, ip4().udp(1, 53)),
        six(1, "2001:db8::1", 1),
        arp,
        six(1, "2001:db8::7", 1),
        four(1, icmp_echo("10.0.0.1", "10.0.0.2", 1, 1)),
        six(2, "2001:db8::7", 2),
        four(2, icmp_echo("10.0.0.1", "10.0.0.2", 2, 1)),
        six(1, "2001:db8::1", 66),
        wrong,
        four(1, ip4().options([1; 4]).udp(5, 53)),
        six(1, "2001:db8::1", 2)[..60].to_vec(),
        four(1, ip4().tcp(7, 80)),
    ];
    // Each of them begins some batch, and has each of the others before and behind it in some.
    for (first, step) in (0..kinds.len()).flat_map(|first| [1, 5, 7, 11].map(|step| (first, step))) {
        let came: Vec<Vec<u8>> = (0..24).map(|n| kinds[(first + n * step) % kinds.len()].clone()).collect();
        go_where_each_by_itself_does(rules, &came);
    }
}

#[test]
fn rules_where_a_frame_leaves_see_what_rules_where_it_came_have_changed() {
    let echo = |to: &str| ether(station(1), station(0)).ip4(icmp_echo("10.0.0.1", to, 1, 1)).bytes();
    for (blocked, passes) in [("10.0.0.9", false), ("10.0.0.2", true)] {
        let rules = format!(
            "pass in on em0 inet proto icmp rdr-to 10.0.0.9\nblock out on em1 inet proto icmp to {blocked}"
        );
        let mut bench = bench(&rules);
        for _ in 0..2 {
            bench.push(0, echo("10.0.0.2"));
            let left = bench.drain_sent(1);
            let left: Vec<&[u8]> = left.iter().map(|frame| frame.data()).collect();
            let expected = echo("10.0.0.9");
            assert_eq!(left, if passes { vec![&expected[..]] } else { Vec::new() }, "{blocked}");
        }
    }
}

/// Pushes a frame, and expects it to leave as it is by these outputs.
#[track_caller]
fn goes(bench: &mut Bench, input: usize, bytes: &[u8], outputs: &[usize]) {
    bench.push(input, bytes);
    outputs.iter().for_each(|output| drop(bench.expect(*output, bytes)));
    bench.expect_nothing_more();
}

#[test]
fn a_vport_is_the_hosts_interface_to_rules_and_their_answers_go_to_who_asked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pf.conf");
    let rules = "block return in on vport0\nblock out on vport0\npass in on vport0 proto tcp to port 22\n\
        block on em0\n";
    std::fs::write(&file, rules).unwrap();
    let config = format!("PORT em0, PORT vport0 vport, PORT em2, PF \"{}\"", file.display());
    let mut bench = switch(&config);
    let [a, b, c] = [0xa, 0xb, 0xc].map(|last| [2, 0, 0, 0, 0, last]);
    let frame = |to, from| ether(to, from).ip4(ip4().udp(1, 2)).bytes();
    let tcp = |port| ether(b, a).ip4(ip4().tcp(1000, port).flags(TcpFlags::SYN)).bytes();
    goes(&mut bench, 0, &tcp(22), &[1, 2]);
    let answer = ip4().src("10.0.0.2").dst("10.0.0.1").tcp(22, 1000).flags(TcpFlags::SYN | TcpFlags::ACK);
    goes(&mut bench, 1, &ether(a, b).ip4(answer).bytes(), &[0]);
    // Two on the host's way in, and none of the switch's own ports, whatever rules say of these.
    bench.push(0, tcp(23));
    let reset = bench.next_sent(0).expect("the sender gets a reset");
    assert_eq!(reset.data()[..12], [a, b].concat());
    bench.expect_nothing_more();
    goes(&mut bench, 1, &frame(a, b), &[]);
    goes(&mut bench, 2, &frame(a, c), &[0]);
    bench.expect_dropped(DropReason::Filtered, 2);
}
