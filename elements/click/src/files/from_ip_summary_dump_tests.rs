use super::*;
use artery_engine::Bench;
use artery_wire::{IpProtocol, Ipv4, Udp};

/// An element that reads these lines.
fn bench(lines: &str, more: &str) -> Bench {
    let config = format!("DATA {}{more}", text::quote(&format!("!IPSummaryDump 1.3\n{lines}\n")));
    Bench::setup(&CLASS, &config).inputs(0).build().unwrap()
}

/// The packets of these lines.
fn packets(lines: &str, more: &str) -> Vec<Packet> {
    let mut bench = bench(lines, more);
    bench.run();
    assert_eq!(bench.stderr_text(), "");
    bench.drain_sent(0)
}

#[test]
fn headers_are_made_of_columns() {
    let lines = "!data timestamp src dst sport dport proto ip_len ip_ttl\n5.5 1.2.3.4 5.6.7.8 80 81 U 60 9";
    let packet = &packets(lines, "")[0];
    let ip = Ipv4::new(packet.data()).unwrap();
    assert_eq!(ip.src().to_string(), "1.2.3.4");
    assert_eq!(ip.dst().to_string(), "5.6.7.8");
    assert_eq!(ip.ttl(), 9);
    assert_eq!((ip.protocol(), ip.total_length()), (IpProtocol::UDP, 60));
    let udp = Udp::new(&packet.data()[20..]).unwrap();
    assert_eq!((udp.src_port(), udp.dst_port()), (80, 81));
    assert_eq!(packet.len(), 28);
    assert_eq!(u32::from_ne_bytes(packet.annotation(anno::EXTRA_LENGTH)), 32);
    assert_eq!(packet.timestamp(), Time::new(5, 500_000_000));
    assert_eq!((packet.network_offset(), packet.transport_offset()), (Some(0), Some(20)));
    assert_eq!(packet.dst_ip().to_string(), "5.6.7.8");
}

#[test]
fn what_is_not_told_is_tcp() {
    let packet = &packets("!data src tcp_flags\n1.2.3.4 SA", "")[0];
    assert_eq!((packet.len(), packet.data()[9], packet.data()[33], packet.data()[32]), (40, 6, 0x12, 0x50));
    let packet = &packets("!data src payload\n1.2.3.4 \"a b\\n\"", "")[0];
    assert_eq!(&packet.data()[40..], b"a b\n");
    let packet = &packets("!proto I\n!data src icmp_type_name icmp_seq\n1.2.3.4 echo 5", "")[0];
    assert_eq!((packet.len(), &packet.data()[20..]), (28, &[8, 0, 0, 0, 0, 0, 0, 5][..]));
}

#[test]
fn checksums_are_set_when_asked_for() {
    let lines = "!data src dst sport dport proto ip_len\n1.2.3.4 5.6.7.8 1 2 U 40\n1.2.3.4 5.6.7.8 1 2 T 50";
    for packet in packets(lines, ", CHECKSUM true") {
        let ip = Ipv4::new(packet.data()).unwrap();
        assert!(ip.checksum_is_valid());
        assert_eq!(usize::from(ip.total_length()), packet.len());
        let pseudo =
            artery_wire::checksum::pseudo_v4(ip.src(), ip.dst(), ip.protocol(), packet.len() as u16 - 20);
        let sum = artery_wire::checksum::add(artery_wire::checksum::sum(&packet.data()[20..]), pseudo);
        assert_eq!(sum, 0xffff);
    }
}

#[test]
fn flows_and_protocols_stand_for_what_lines_leave_out() {
    let lines = "!flowid 1.2.3.4 10 5.6.7.8 20 U\n!data src len\n- 30\n9.9.9.9 30";
    let found: Vec<_> =
        packets(lines, "").iter().map(|p| (p.data()[12], p.data()[21], p.data()[9])).collect();
    assert_eq!(found, [(1, 10, 17), (9, 10, 17)]);
    assert_eq!(
        packets("!data len\n30", ", FLOWID 1.2.3.4 0 5.6.7.8 0, PROTO 17")[0].data()[12..16],
        [1, 2, 3, 4]
    );
}

#[test]
fn a_line_can_stand_for_several_packets() {
    let lines = "!data timestamp first_timestamp src count ip_len\n3 1 1.2.3.4 3 150";
    let found: Vec<_> = packets(lines, ", MULTIPACKET true")
        .iter()
        .map(|p| (p.timestamp().seconds(), p.len(), u32::from_ne_bytes(p.annotation(anno::EXTRA_LENGTH))))
        .collect();
    assert_eq!(found, [(1, 40, 10), (2, 40, 10), (3, 40, 10)]);
    assert_eq!(packets(lines, "").len(), 1);
}

#[test]
fn lines_that_say_nothing_are_passed_over_and_told_of_once() {
    let mut bench = bench("!data src frob\n# note\n\n1.2.3.4\nx y\nz -", ", STOP true");
    bench.run();
    assert_eq!(bench.drain_sent(0).len(), 1);
    let found = bench.stderr_text();
    assert_eq!(found, "<data>:2: warning: unknown content type 'frob'\n<data>:6: packet parse error\n");
    assert!(bench.stop_requested());
}

#[test]
fn timing_keeps_the_pace_of_the_file() {
    let mut bench = bench("!data timestamp src\n100 1.1.1.1\n102.5 2.2.2.2", ", TIMING true");
    bench.run();
    assert_eq!(bench.drain_sent(0).len(), 1);
    bench.advance_time(Duration::from_millis(2400));
    assert_eq!(bench.drain_sent(0).len(), 0);
    bench.advance_time(Duration::from_millis(200));
    assert_eq!(bench.drain_sent(0).len(), 1);
}

#[test]
fn it_waits_to_be_activated() {
    let mut bench = bench("!data src\n1.1.1.1", ", ACTIVE false");
    bench.run();
    assert_eq!(bench.drain_sent(0).len(), 0);
    bench.write("active", "true").unwrap();
    bench.run();
    assert_eq!(bench.drain_sent(0).len(), 1);
    assert_eq!(bench.read("encap", "").as_deref(), Ok("IP"));
}

#[test]
fn mistakes_are_named() {
    assert_eq!(Bench::config_error(&CLASS, ""), "FILENAME: required argument missing");
    assert_eq!(Bench::config_error(&CLASS, "x, DATA y"), "FILENAME and DATA conflict");
    assert_eq!(Bench::config_error(&CLASS, "/nowhere/x"), "/nowhere/x: No such file or directory");
    let config = "DATA \"1.2.3.4\"";
    let mut bench = Bench::setup(&CLASS, config).inputs(0).build().unwrap();
    bench.run();
    let expected = "<data>:0: warning: missing banner line; is this an IP summary dump?\n\
        <data>:1: no '!data' provided\n";
    assert_eq!(bench.stderr_text(), expected);
}

/// Lines of all columns, in any order, with whatever stands in files, cut anywhere.
#[test]
fn no_line_panics() {
    const WORDS: &[&str] = &[
        "-",
        "",
        "0",
        "1",
        "-1",
        "65535",
        "65536",
        "4294967296",
        "99999999999999999999",
        "1.5",
        "1e9",
        ".",
        "*",
        "+",
        "1.2.3.4",
        "256.1.1.1",
        "1-2-3-4-5-6",
        "0a-00-00-00-00-01",
        "T",
        "U",
        "I",
        "SA",
        "SFRPAUEWX",
        "F",
        "echo",
        "20",
        "mss1460;wscale10;sackok;ts1:2",
        "sack1-2:3-4",
        "rr{1.2.3.4}+5",
        "ts{1!2}+3++1",
        "lsrr{^1.1.1.1}",
        "ssrr{",
        "{",
        "}",
        ";",
        r#""a\x00\b""#,
        "\"",
        r"\<41>",
        "é",
        "<",
        ">",
        "0x10",
        "1:2",
        "DF",
        "100+",
        "(64)",
    ];
    let mut random = crate::testing::Random::new(7);
    let fields: Vec<&str> = Field::all().map(Field::name).collect();
    for n in 0..2000 {
        let mut pick = |of: &[&'static str]| of[random.index(of.len())];
        let columns: Vec<&str> = (0..1 + n % 12).map(|_| pick(&fields)).collect();
        let values: Vec<&str> = (0..1 + n % 14).map(|_| pick(WORDS)).collect();
        let (columns, line) = (columns.join(" "), values.join(" "));
        let cut: String = line.chars().take(random.index(line.len() + 1)).collect();
        let lines = format!("!data {columns}\n{line}\n{cut}\n!flowid {line}\n!proto {}\n{line}", values[0]);
        for more in ["", ", CHECKSUM true, MULTIPACKET true, FLOWID 1.1.1.1 1 2.2.2.2 2 U"] {
            let mut bench = bench(&lines, more);
            bench.run();
            bench.drain_sent(0);
        }
    }
}

#[test]
fn a_file_that_gzip_packed_is_unpacked() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    std::fs::write(path, "!IPSummaryDump 1.3\n!data src\n1.2.3.4\n").unwrap();
    super::super::trace::pack(path);
    let mut bench = Bench::setup(&CLASS, path).inputs(0).build().unwrap();
    bench.run();
    assert_eq!(bench.drain_sent(0).len(), 1);
}

#[test]
fn a_line_without_an_end_ends_the_reading_with_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    // A gigabyte would be as small.
    let mut text = b"!data src\n1.2.3.4\n".to_vec();
    text.resize(32 << 20, b'x');
    std::fs::write(path, text).unwrap();
    super::super::trace::pack(path);
    let mut bench = Bench::setup(&CLASS, path).inputs(0).build().unwrap();
    bench.run();
    assert_eq!(bench.drain_sent(0).len(), 1, "the packet before it is sent");
    let said = bench.stderr_text();
    assert!(said.contains(":3: the line is longer than 1048576 bytes: is this a summary?"), "{said}");
}
