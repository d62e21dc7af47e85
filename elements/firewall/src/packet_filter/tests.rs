//! The packet filter on the bench.
use super::*;
use artery_engine::Bench;
use artery_packet::PacketOffload;
use artery_wire::build::{ether, ip4};
use artery_wire::{EtherType, IpProtocol, Ipv4Fragments, TcpFlags, checksum};

const HOST: &str = "02:00:00:00:00:0a";
const ROUTER: &str = "02:00:00:00:00:01";

/// A filter of two ports, with rules.
fn bench(rules: &str) -> Bench {
    let ports = "PORT em0 192.0.2.1/24, PORT em1 10.0.0.1/24";
    let mut bench = Bench::setup(&CLASS, ports).inputs(4).outputs(4).build().unwrap();
    bench.write("pf_load", &format!("\n{rules}\n")).unwrap();
    bench
}

fn udp(source: &str, destination: &str) -> Vec<u8> {
    let packet = ip4().src(source).dst(destination).ttl(64).udp(1000, 53).payload([7; 18]);
    ether(ROUTER, HOST).ip4(packet).bytes()
}

fn back(source: &str, destination: &str) -> Vec<u8> {
    let packet = ip4().src(source).dst(destination).ttl(64).udp(53, 1000).payload([7; 18]);
    ether(HOST, ROUTER).ip4(packet).bytes()
}

fn passes(bench: &mut Bench, input: usize, frame: &[u8]) -> bool {
    bench.push(input, frame);
    !bench.drain_sent(input).is_empty()
}

#[test]
fn the_last_rule_decides_and_what_has_a_state_passes_without_rules() {
    let mut bench = bench("block\npass in on em0 proto udp to port 53\npass out on em1");
    let (query, answer) = (udp("192.0.2.9", "10.0.0.9"), back("10.0.0.9", "192.0.2.9"));
    assert!(!passes(&mut bench, 1, &answer));
    assert!(passes(&mut bench, 0, &query) && passes(&mut bench, 3, &query));
    assert!(passes(&mut bench, 1, &answer) && passes(&mut bench, 2, &answer));
    assert!(!passes(&mut bench, 0, &udp("192.0.2.9", "10.0.0.9")[..30]));
    let states = bench.read("pf_worker", "states 0 -").unwrap();
    assert!(states.starts_with("0 2\n") && states.lines().count() == 3, "{states}");
    assert!(states.contains("MULTIPLE"));
    assert_eq!(bench.read("pf_worker", "states 0 em0"), Ok("0 0\n".into()));
}

#[test]
fn a_batch_stays_in_order_whatever_way_its_packets_go() {
    let mut bench = bench("pass\nblock in on em0 proto udp from 192.0.2.66");
    let known = udp("192.0.2.9", "10.0.0.9");
    for _ in 0..3 {
        assert!(passes(&mut bench, 0, &known) && passes(&mut bench, 3, &known));
    }
    let mut arp = known.clone();
    arp[12..14].copy_from_slice(&[8, 6]);
    for strangers in 0..40 {
        let frame = |n: u8| match n % 5 {
            _ if n < strangers => known.clone(),
            0 | 3 => known.clone(),
            1 => udp(&format!("192.0.2.{}", 100 + n), "10.0.0.9"),
            2 => udp("192.0.2.66", "10.0.0.9"),
            _ => arp.clone(),
        };
        let came: Vec<Vec<u8>> = (0..40).map(frame).collect();
        let packets = came.iter().map(|bytes| bench.packet(bytes)).collect::<Vec<_>>();
        bench.push_packets(0, packets);
        let entered = bench.drain_sent(0);
        let left = came.iter().filter(|bytes| bytes[26..30] != [192, 0, 2, 66] || bytes[13] == 6);
        assert!(
            entered.iter().map(|packet| packet.data()).eq(left.clone().map(Vec::as_slice)),
            "{strangers}"
        );
        bench.push_packets(3, entered);
        assert!(bench.drain_sent(3).iter().map(|packet| packet.data()).eq(left.map(Vec::as_slice)));
    }
    let states = bench.read("pf_worker", "states 0 -").unwrap();
    let of_known = states.lines().filter(|line| line.contains("192.0.2.9:1000")).count();
    assert_eq!((of_known, states.lines().count()), (2, 1 + 2 + 2 * 8), "{states}");
}

#[test]
fn what_is_not_ip_passes_and_ports_with_set_skip_ask_nobody() {
    let mut bench = bench("set skip on em1\nblock");
    let mut arp = udp("192.0.2.9", "10.0.0.9");
    arp[12..14].copy_from_slice(&[8, 6]);
    assert!(passes(&mut bench, 0, &arp));
    let frame = udp("192.0.2.9", "10.0.0.9");
    assert!(!passes(&mut bench, 0, &frame) && passes(&mut bench, 1, &frame));
    bench.expect_dropped(DropReason::Filtered, 1);
}

#[test]
fn a_blocked_connection_is_reset_by_the_port_that_it_came_by() {
    let mut bench = bench("block return");
    let segment = ip4().src("192.0.2.9").dst("10.0.0.9").ttl(64).tcp(1000, 80).flags(TcpFlags::SYN);
    bench.push(0, ether(ROUTER, HOST).ip4(segment).bytes());
    let answers = bench.drain_sent(2);
    let bytes = answers[0].data();
    assert_eq!((&bytes[..6], &bytes[6..12]), (&[2, 0, 0, 0, 0, 10][..], &[2, 0, 0, 0, 0, 1][..]));
    assert_eq!((&bytes[26..30], bytes[47]), (&[10, 0, 0, 9][..], 0x14));
}

#[test]
fn what_a_card_was_to_finish_is_answered_as_what_is_finished() {
    let mut bench = bench("block return");
    let (source, destination) = ([192, 0, 2, 9], [10, 0, 0, 9]);
    let packet = ip4().src(source).dst(destination).ttl(64);
    for (packet, at) in [(packet.clone().tcp(1000, 80), 16_u16), (packet.udp(1000, 53), 6)] {
        let frame = ether(ROUTER, HOST).ip4(packet).bytes();
        bench.push(0, &frame);
        let expected = bench.drain_sent(2);
        let mut unfinished = bench.packet(&frame);
        let (protocol, length) = (IpProtocol(frame[23]), frame.len() as u16 - 34);
        let sum = checksum::pseudo_v4(source.into(), destination.into(), protocol, length);
        unfinished.data_mut()[34 + usize::from(at)..][..2].copy_from_slice(&sum.to_be_bytes());
        unfinished.set_offload(PacketOffload { transport: 34, checksum: at, segments: None }).unwrap();
        bench.push_packets(0, [unfinished]);
        assert_eq!(bench.drain_sent(2)[0].data(), expected[0].data());
    }
}

#[test]
fn a_packet_of_fragments_passes_whole_and_is_cut_again_where_it_leaves() {
    let mut bench = bench("block\npass in on em0 proto udp to port 53\npass out on em1");
    let whole = ip4().src("192.0.2.9").dst("10.0.0.9").ttl(64).id(7).udp(1000, 53).payload([7; 3000]);
    let bytes = whole.bytes();
    let fragments = Ipv4Fragments::split_packet(&bytes, 1400).unwrap().map(|part| part.to_bytes());
    let frames: Vec<_> =
        fragments.map(|bytes| ether(ROUTER, HOST).raw(EtherType::IPV4, bytes).bytes()).collect();
    frames.iter().for_each(|frame| bench.push(0, frame));
    let packets = bench.drain_sent(0);
    assert_eq!(packets.iter().map(|packet| packet.segment_len(14)).collect::<Vec<_>>(), [1396]);
    assert_eq!(packets[0].data(), ether(ROUTER, HOST).ip4(whole).bytes());
    bench.push_packets(3, packets);
    let mut left = Batch::default();
    left.extend(bench.drain_sent(3));
    assert_eq!(left.apply_offloads().cut, 1);
    assert_eq!(left.iter().map(|packet| packet.data().to_vec()).collect::<Vec<_>>(), frames);
}

#[test]
fn a_tag_goes_from_where_a_packet_came_in_to_where_it_leaves() {
    let mut bench =
        bench("block\npass in on em0 tag inside no state\npass out on em1 tagged inside no state");
    bench.push(0, udp("192.0.2.9", "10.0.0.9"));
    let packets = bench.drain_sent(0);
    bench.push_packets(3, packets);
    assert_eq!(bench.drain_sent(3).len(), 1);
    assert!(!passes(&mut bench, 3, &udp("192.0.2.9", "10.0.0.9")));
}

#[test]
fn rules_with_mistakes_change_nothing_and_say_all_of_them() {
    let mut bench = bench("pass in on em0");
    let why = bench.write("pf_load", "\npass on\nblock from <\n").unwrap_err().to_string();
    assert!(why.contains("pf.conf:1: ") && why.contains("pf.conf:2: "), "{why}");
    let why = bench.write("pf_load", "\npass in proto tcp user root\n").unwrap_err().to_string();
    assert!(why.contains("pf.conf:1: not supported: user"), "{why}");
    assert_eq!(bench.read("pf", "rules").as_deref(), Ok("pass in on em0 all flags S/SA\n"));
}

#[test]
fn tables_are_limited_as_rules_say_and_as_before_where_these_are_refused() {
    let tables = "table <a> { 192.0.2.1 192.0.2.2 }\ntable <b> persist\npass from <a>";
    let mut bench = bench(&format!("set limit table-entries 2\n{tables}"));
    let why = bench.write("pf_load", &format!("\nset limit table-entries 1\n{tables}\n")).unwrap_err();
    assert!(why.to_string().contains("too many table entries"), "{why}");
    let mut add = |address| bench.read("pf", &format!("table b - add {address}")).unwrap();
    assert!(add("192.0.2.7").contains("Cannot allocate memory"));
    bench.write("pf_load", &format!("\nset limit {{ table-entries 3 tables 2 }}\n{tables}\n")).unwrap();
    let mut add = |table, address| bench.read("pf", &format!("table {table} - add {address}")).unwrap();
    assert!(add("b", "192.0.2.7").contains("1/1 addresses added"));
    assert!(add("c", "192.0.2.8").contains("Cannot allocate memory"));
}

#[test]
fn rules_of_several_anchors_are_loaded_together_or_not_at_all() {
    let mut bench = bench("pass in on em0");
    let why = bench.write("pf_load", "\nanchor a\nblock\n\x0c\na\npass proto tcp user root\n").unwrap_err();
    assert!(why.to_string().contains("anchor a:1: not supported: user"), "{why}");
    assert_eq!(bench.read("pf", "rules").as_deref(), Ok("pass in on em0 all flags S/SA\n"));
    bench.write("pf_load", "\nanchor a\nblock\n\x0c\na\npass quick proto udp\n").unwrap();
    assert_eq!(bench.read("pf", "rules").as_deref(), Ok("anchor \"a\" all\nblock drop all\n"));
    assert!(passes(&mut bench, 0, &udp("192.0.2.9", "10.0.0.9")));
}

#[test]
fn a_load_that_is_refused_for_its_last_table_leaves_all_tables_as_they_were() {
    let mut bench = bench("table <a> counters { 192.0.2.9 192.0.2.8 }\nblock\nanchor inner\npass from <a>");
    bench.write("pf_load", "inner\ntable <b> const { 10.0.0.8 }\npass from <b>\n").unwrap();
    assert!(passes(&mut bench, 0, &udp("192.0.2.9", "10.0.0.9")));
    let shown = |bench: &mut Bench| {
        let all =
            ["tables v v", "tables inner v v", "table a vv show", "table -a inner b vv show", "rules v"];
        all.map(|what| bench.read("pf", what).unwrap())
    };
    for (limit, last) in [("table-entries 3", "10.0.0.7 10.0.0.6"), ("tables 2", "10.0.0.7")] {
        let (main, inner) = ("table <a> persist { 192.0.2.7 }\nblock from <a>", "table <b> { 10.0.0.9 }");
        let text = format!(
            "\nset limit {limit}\n{main}\n\x0c\ninner\n{inner}\ntable <c> {{ {last} }}\n\
             block from {{ <b> <c> }}\n"
        );
        let before = shown(&mut bench);
        assert!(before[2].contains("[ Packets: 1 "), "{}", before[2]);
        let why = bench.write("pf_load", &text).unwrap_err().to_string();
        assert!(why.contains("anchor inner:2: too many table") && why.contains("`set limit table"), "{why}");
        assert_eq!(shown(&mut bench), before);
        assert!(passes(&mut bench, 0, &udp("192.0.2.8", "10.0.0.9")));
        assert!(!passes(&mut bench, 0, &udp("192.0.2.7", "10.0.0.9")));
        // The limits are those before, too.
        assert!(bench.read("pf", "table d - add 10.0.0.1 10.0.0.2 10.0.0.3").unwrap().starts_with("0 2\n"));
        bench.read("pf", "table d - kill").unwrap();
    }
}

#[test]
fn a_table_that_only_another_rule_set_of_the_same_load_speaks_of_stays() {
    let mut bench = bench("pass");
    let inner = "pass in from <friends>";
    let text = format!("\ntable <friends> {{ 192.0.2.9 }}\nblock\nanchor inner\n\x0c\ninner\n{inner}\n");
    bench.write("pf_load", &text).unwrap();
    assert!(passes(&mut bench, 0, &udp("192.0.2.9", "10.0.0.9")));
}

#[test]
fn states_outlive_their_rules() {
    let mut bench = bench("block\npass in on em0");
    let (query, answer) = (udp("192.0.2.9", "10.0.0.9"), back("10.0.0.9", "192.0.2.9"));
    assert!(passes(&mut bench, 0, &query));
    bench.write("pf_load", "\nblock\n").unwrap();
    assert!(passes(&mut bench, 0, &query) && passes(&mut bench, 2, &answer));
    assert!(!passes(&mut bench, 0, &udp("192.0.2.8", "10.0.0.9")));
    assert_eq!(bench.read("pf_worker", "kill 0 - hosts 192.0.2.9"), Ok("0 1\n1\n".into()));
    assert!(!passes(&mut bench, 0, &query));
}

#[test]
fn addresses_are_translated_and_back() {
    let mut bench = bench("match out on em0 from 10.0.0.0/24 nat-to 192.0.2.1\npass");
    bench.push(2, udp("10.0.0.9", "192.0.2.9"));
    let out = bench.drain_sent(2);
    let bytes = out[0].data();
    assert_eq!(&bytes[26..30], [192, 0, 2, 1]);
    let port = u16::from_be_bytes([bytes[34], bytes[35]]);
    assert!(port >= 50001, "{port}");
    let answer = ip4().src("192.0.2.9").dst("192.0.2.1").ttl(64).udp(53, port).payload([7; 18]);
    bench.push(0, ether(ROUTER, HOST).ip4(answer).bytes());
    let back = bench.drain_sent(0);
    let expected = ip4().src("192.0.2.9").dst("10.0.0.9").ttl(64).udp(53, 1000).payload([7; 18]);
    assert_eq!(back[0].data(), ether(ROUTER, HOST).ip4(expected).bytes());
}

#[test]
fn who_goes_too_far_comes_into_the_table_that_rules_of_the_anchor_ask() {
    let mut bench = bench("table <bad> persist\nblock\nanchor inner");
    let rules = "table <bad> persist\npass in from ! <bad> keep state (max-src-conn 1, overload <bad>)";
    bench.write("pf_load", &format!("inner\n{rules}\n")).unwrap();
    let segment = |from: u16| ip4().src("192.0.2.9").dst("10.0.0.9").ttl(64).tcp(from, 80);
    for from in [1000, 1001] {
        let (syn, ack) = (TcpFlags::SYN, TcpFlags::ACK);
        let answer = ip4().src("10.0.0.9").dst("192.0.2.9").ttl(64).tcp(80, from);
        bench.push(0, ether(ROUTER, HOST).ip4(segment(from).seq(10).flags(syn)).bytes());
        bench.push(2, ether(HOST, ROUTER).ip4(answer.seq(50).ack(11).flags(syn | ack)).bytes());
        bench.push(0, ether(ROUTER, HOST).ip4(segment(from).seq(11).ack(51).flags(ack)).bytes());
    }
    let mut shown = |anchor: &str| bench.read("pf", &format!("table {anchor}bad - show")).unwrap();
    // The control thread adds it, which may take a moment.
    let is_there = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        shown("-a inner ") == "0 0\n   192.0.2.9\n"
    });
    assert!(is_there, "{}", shown("-a inner "));
    assert_eq!(shown(""), "0 0\n");
}

#[test]
fn what_pfctl_asks_is_answered_and_what_it_may_not_ask_refused() {
    let mut bench = bench("table <friends> { 192.0.2.9 }\nblock label none\npass from <friends>");
    assert!(passes(&mut bench, 0, &udp("192.0.2.9", "10.0.0.9")));
    bench.read("pf_worker", "count").unwrap();
    let info = bench.read("pf", "info").unwrap();
    assert!(info.starts_with("Status: Enabled for 0 days 00:00:00"), "{info}");
    assert!(info.contains("current entries"), "{info}");
    let rules = bench.read("pf", "rules v").unwrap();
    assert!(rules.contains("[ Evaluations: 1"), "{rules}");
    assert_eq!(bench.read("pf", "tables"), Ok("friends\n".into()));
    let tables = bench.read("pf", "tables v v").unwrap();
    assert!(tables.contains("In/Pass:     [ Packets: 1 "), "{tables}");
    let found = bench.read("pf", "table friends - add 192.0.2.7 192.0.2.9");
    assert_eq!(found, Ok("0 1\n1/2 addresses added.\n".into()));
    assert_eq!(bench.read("pf", "table friends - show").unwrap().lines().count(), 3);
    assert_eq!(bench.read("pf", "disable"), Ok("pf disabled\n".into()));
    assert!(passes(&mut bench, 0, &udp("192.0.2.1", "10.0.0.9")));
    assert_eq!(bench.read("pf", "timeouts").unwrap().lines().count(), 20);
    for wrong in ["", "nonsense", "flush", "table x", "table x - sing", "debug", "debug loud"] {
        assert!(bench.read("pf", wrong).is_err(), "{wrong}");
    }
    let wrong =
        ["", "nonsense", "kill", "kill 0 - hosts x", "kill 0 - id z", "states", "states x -", "dump -1"];
    for wrong in
        wrong.into_iter().chain(["restore with-rules !", "restore with-rules AAEA", "flush-states 0"])
    {
        assert!(bench.read("pf_worker", wrong).is_err(), "{wrong}");
    }
}

#[test]
fn ports_and_files_must_make_sense() {
    assert!(Bench::config_error(&CLASS, "").contains("0 ports"));
    assert!(Bench::config_error(&CLASS, "PORT em0 10.0.0.1").contains("is not a valid ADDRESS/LENGTH"));
    assert!(
        Bench::config_error(&CLASS, "PORT em0, FILE /nonexistent/pf.conf")
            .contains("can't read /nonexistent/pf.conf")
    );
    assert!(
        Bench::config_error(&CLASS, "PORT em0, LOG /nonexistent/log")
            .contains("can't write /nonexistent/log")
    );
    assert!(Bench::config_error(&CLASS, "PORT em0, ETC /nonexistent").contains("there is no such folder"));
}

/// A filter that replaces another.
fn successor(old: &mut Bench, arguments: &str, ports: usize) -> Bench {
    let setup = Bench::setup(&CLASS, arguments).inputs(2 * ports).outputs(2 * ports).sharing_with(old);
    let mut new = setup.as_replacement().build().unwrap();
    new.take_state(old);
    new
}

#[test]
fn rules_that_were_loaded_and_states_outlive_a_replacement_also_by_other_ports() {
    let mut old = bench("table <friends> { 192.0.2.9 }\nblock\npass in on em0 from <friends> to em1");
    let query = udp("192.0.2.9", "10.0.0.1");
    assert!(passes(&mut old, 0, &query));
    old.read("pf", "table friends - add 192.0.2.7").unwrap();
    let mut same = successor(&mut old, "PORT em0 192.0.2.2/24, PORT em1 10.0.0.1/24", 2);
    assert!(same.read("pf_worker", "states 0 -").unwrap().starts_with("0 1\n"));
    let mut other = successor(&mut same, "PORT em0, PORT em5, PORT em1 10.0.0.1/24", 3);
    assert!(other.read("pf_worker", "states 0 -").unwrap().starts_with("0 1\n"));
    // A new connection from there needs the table.
    other.read("pf_worker", "flush-states 0 -").unwrap();
    assert!(passes(&mut other, 0, &query) && passes(&mut other, 0, &udp("192.0.2.7", "10.0.0.1")));
    assert!(!passes(&mut other, 0, &udp("192.0.2.8", "10.0.0.1")));
}

#[test]
fn states_of_ports_that_are_gone_end_and_others_find_their_way_at_other_numbers() {
    let rules = "set state-policy if-bound\nblock\npass in on { em0 em1 }";
    let mut old = bench(rules);
    let (left, right) = (udp("192.0.2.9", "10.0.0.9"), udp("10.0.0.9", "192.0.2.9"));
    assert!(passes(&mut old, 0, &left) && passes(&mut old, 1, &right));
    let mut new = successor(&mut old, "PORT em7, PORT em1 10.0.0.1/24", 2);
    let states = new.read("pf_worker", "states 0 -").unwrap();
    assert!(states.starts_with("0 1\n") && states.contains("em1 udp"), "{states}");
    new.write("pf_load", "\nblock all\n").unwrap();
    assert!(passes(&mut new, 1, &right), "by its state");
    assert!(!passes(&mut new, 0, &left));
}

#[test]
fn rules_of_a_file_are_as_if_loaded_where_the_filter_before_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pf.conf");
    let rules = "table <friends> persist\ntable <few> { 192.0.2.5 }\nblock\nanchor guests\n\
                 pass in from <friends>\npass in from <few>\n";
    std::fs::write(&file, rules).unwrap();
    let arguments = format!("PORT em0 192.0.2.1/24, PORT em1 10.0.0.1/24, FILE {}", file.display());
    let mut old = Bench::setup(&CLASS, &arguments).inputs(4).outputs(4).build().unwrap();
    old.read("pf", "table friends - add 192.0.2.7").unwrap();
    old.read("pf", "table few - add 192.0.2.6").unwrap();
    std::fs::write(&file, rules.to_string() + "pass in from 192.0.2.4\n").unwrap();
    let mut new = successor(&mut old, &arguments, 2);
    let mut may = |source: &str| passes(&mut new, 0, &udp(source, "10.0.0.9"));
    assert!(may("192.0.2.7"), "a table without addresses in the file keeps what it has");
    assert!(may("192.0.2.5") && !may("192.0.2.6"), "one with addresses has these");
    assert!(may("192.0.2.4") && !may("192.0.2.8"));
    new.read("pf", "disable").unwrap();
    let mut off = successor(&mut new, &arguments, 2);
    assert!(passes(&mut off, 0, &udp("192.0.2.8", "10.0.0.9")), "what was turned off stays off");
}

#[test]
fn states_keep_their_tags_by_name_where_other_rules_number_them_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pf.conf");
    std::fs::write(&file, "match in on em1 tag staff\npass\nblock out on em1 ! tagged guest\n").unwrap();
    let mut old = bench("match in on em0 tag guest\npass");
    let known = udp("192.0.2.9", "10.0.0.9");
    assert!(passes(&mut old, 0, &known));
    let arguments = format!("PORT em0 192.0.2.1/24, PORT em1 10.0.0.1/24, FILE {}", file.display());
    let mut new = successor(&mut old, &arguments, 2);
    new.push(0, known);
    let packets = new.drain_sent(0);
    new.push_packets(3, packets);
    assert_eq!(new.drain_sent(3).len(), 1, "it is a guest here, too");
}
