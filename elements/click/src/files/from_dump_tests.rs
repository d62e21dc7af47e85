use super::*;
use artery_device::{LinkType, PcapOptions, PcapWriter};
use artery_engine::Bench;
use artery_wire::build::{ether, ip4};

/// A file with a packet at each of these times, in milliseconds, whose first byte is its number.
struct File(tempfile::TempDir);

impl File {
    fn with(times_ms: &[u64], link_type: LinkType, body: &[u8]) -> File {
        let file = File(tempfile::tempdir().unwrap());
        let options = PcapOptions { link_type, ..PcapOptions::default() };
        let mut writer = PcapWriter::create(&file.path(), options).unwrap();
        for (n, ms) in times_ms.iter().enumerate() {
            let bytes = if body.is_empty() { vec![n as u8; 60] } else { body.to_vec() };
            writer.write(Time::new(100, 0) + Duration::from_millis(*ms), 100, &bytes).unwrap();
        }
        writer.flush().unwrap();
        file
    }
    fn new(times_ms: &[u64]) -> File {
        File::with(times_ms, LinkType::ETHER, &[])
    }
    fn path(&self) -> String {
        self.0.path().join("t.pcap").to_str().unwrap().to_string()
    }
    fn bench(&self, rest: &str) -> Bench {
        Bench::new(&CLASS, &format!("{}{rest}", self.path()))
    }
}

/// Numbers of the packets that left by output 0.
fn numbers(bench: &mut Bench) -> Vec<u8> {
    bench.drain_sent(0).iter().map(|packet| packet.data()[0]).collect()
}

#[test]
fn sends_all_packets_with_their_times_and_stops_the_router() {
    let file = File::new(&[0, 5, 9]);
    let mut bench = file.bench(", STOP true");
    bench.run();
    let packets = bench.drain_sent(0);
    assert_eq!(packets.len(), 3);
    assert_eq!(packets[1].timestamp(), Time::new(100, 5_000_000));
    assert_eq!(packets[1].annotation::<4>(artery_engine::anno::EXTRA_LENGTH), 40u32.to_ne_bytes());
    assert_eq!(packets[1].mac_offset(), Some(0));
    assert!(bench.stop_requested());
    assert_eq!(bench.read("count", "").as_deref(), Ok("3"));
    assert_eq!(bench.read("encap", "").as_deref(), Ok("ETHER"));
    assert_eq!(bench.read("filesize", "").as_deref(), Ok("252"));
    assert_eq!(bench.read("filepos", "").as_deref(), Ok("252"));
    assert_eq!(bench.read("packet_filepos", "").as_deref(), Ok("176"));
}

#[test]
fn timing_keeps_the_pace() {
    let file = File::new(&[0, 500, 501]);
    let mut bench = file.bench(", TIMING true");
    bench.run();
    assert_eq!(numbers(&mut bench), [0]);
    bench.advance_time(Duration::from_millis(499));
    assert!(numbers(&mut bench).is_empty());
    bench.advance_time(Duration::from_millis(1));
    assert_eq!(numbers(&mut bench), [1]);
    bench.advance_time(Duration::from_millis(10));
    assert_eq!(numbers(&mut bench), [2]);
}

#[test]
fn a_window_of_the_file_is_sent() {
    let file = File::new(&[0, 1000, 2000, 3000, 4000]);
    for (window, sent) in [
        ("START 101", vec![1, 2, 3, 4]),
        ("START_AFTER 1.5s", vec![2, 3, 4]),
        ("END 102", vec![0, 1]),
        ("END_AFTER 3s", vec![0, 1, 2]),
        ("START 101, INTERVAL 2s", vec![1, 2]),
        ("END 999", vec![0, 1, 2, 3, 4]),
    ] {
        let mut bench = file.bench(&format!(", {window}"));
        bench.run();
        assert_eq!(numbers(&mut bench), sent, "{window}");
    }
}

#[test]
fn an_interval_can_be_extended() {
    let file = File::new(&[0, 1000, 2000, 3000]);
    let mut bench = file.bench(", END_AFTER 2s");
    bench.run();
    assert_eq!((numbers(&mut bench), bench.read("active", "").unwrap()), (vec![0, 1], "false".to_string()));
    bench.write("extend_interval", "1s").unwrap();
    bench.run();
    assert_eq!((numbers(&mut bench), bench.read("active", "").unwrap()), (vec![2], "false".to_string()));
}

#[test]
fn an_inactive_one_waits_until_it_is_told() {
    let file = File::new(&[0]);
    let mut bench = file.bench(", ACTIVE false");
    bench.run();
    assert!(numbers(&mut bench).is_empty());
    bench.write("active", "true").unwrap();
    bench.run();
    assert_eq!(numbers(&mut bench), [0]);
}

#[test]
fn a_loop_plays_the_file_again_each_time_in_its_pace() {
    let file = File::new(&[0, 1000]);
    let mut bench = file.bench(", LOOP 3, STOP true");
    bench.run();
    assert_eq!(numbers(&mut bench), [0, 1, 0, 1, 0, 1]);
    assert!(bench.stop_requested());
    let mut bench = file.bench(", TIMING true, LOOP -1");
    bench.run();
    bench.advance_time(Duration::from_millis(2500));
    assert_eq!(numbers(&mut bench), [0, 1, 0, 1, 0]);
}

#[test]
fn is_pulled_from_while_it_has_packets() {
    let file = File::new(&[0, 1]);
    let config = file.path();
    let mut bench = Bench::setup(&CLASS, &config).pull().outputs(1).build().unwrap();
    assert_eq!((bench.pull(0, 1).len(), bench.signals().0), (1, true));
    assert_eq!((bench.pull(0, 8).len(), bench.signals().0), (1, false));
}

#[test]
fn forced_ip_packets_are_marked_and_others_leave_by_output_1() {
    let frame = ether("02:00:00:00:00:01", "02:00:00:00:00:02").ip4(ip4().dst("10.1.1.1").udp(1, 2)).bytes();
    let mut bench = File::with(&[0], LinkType::ETHER, &frame).bench(", FORCE_IP true");
    bench.run();
    let packet = bench.next_sent(0).unwrap();
    assert_eq!((packet.network_offset(), packet.dst_ip().to_string()), (Some(14), "10.1.1.1".to_string()));
    let mut bench = File::new(&[0]).bench(", FORCE_IP true");
    bench.run();
    assert_eq!((bench.drain_sent(0).len(), bench.drain_sent(1).len()), (0, 1));
    let unknown = File::with(&[0], LinkType(147), &[]);
    let refusal = Bench::config_error(&CLASS, &format!("{}, FORCE_IP true", unknown.path()));
    assert!(refusal.ends_with("unknown linktype #147; can't force IP packets"), "{refusal}");
}

#[test]
fn a_damaged_file_is_reported_after_what_precedes_the_damage() {
    let file = File::new(&[0, 1]);
    let bytes = std::fs::read(file.path()).unwrap();
    std::fs::write(file.path(), &bytes[..bytes.len() - 5]).unwrap();
    let mut bench = file.bench(", STOP true");
    bench.run();
    assert_eq!(numbers(&mut bench), [0]);
    let said = bench.stderr_text();
    assert!(said.starts_with("e :: FromDump: ") && said.contains("record 2"), "{said}");
    assert!(bench.stop_requested());
}

#[test]
fn a_share_of_the_packets_is_sampled() {
    let file = File::new(&[0; 600]);
    let mut bench = file.bench(", SAMPLE .25");
    assert_eq!(bench.read("sampling_prob", "").as_deref(), Ok("0.25"));
    bench.run();
    let count: usize = bench.read("count", "").unwrap().parse().unwrap();
    assert!((90..210).contains(&count), "{count}");
}

#[test]
fn goes_on_where_its_predecessor_was() {
    let file = File::new(&[0, 1000, 2000]);
    let mut old = file.bench(", TIMING true");
    old.run();
    let mut new = file.bench(", TIMING true, ACTIVE true");
    new.take_state(&mut old);
    new.advance_time(Duration::from_secs(5));
    assert_eq!(numbers(&mut new), [1, 2]);
}

#[test]
fn bad_configurations_are_refused() {
    assert_eq!(Bench::config_error(&CLASS, ""), "FILENAME: required argument missing");
    assert!(Bench::config_error(&CLASS, "/nowhere/t.pcap").contains("/nowhere/t.pcap"));
    let refuses = |config: &str| Bench::config_error(&CLASS, config);
    assert_eq!(refuses("x, START 1, START_AFTER 2"), "START and START_AFTER are mutually exclusive");
    assert_eq!(refuses("x, END 1, INTERVAL 2"), "END, END_AFTER, and INTERVAL are mutually exclusive");
    assert_eq!(refuses("x, STOP true, END_CALL y.z"), "END_CALL and STOP are mutually exclusive");
    assert!(refuses("x, SAMPLE y").starts_with("SAMPLE: parse error"));
}

#[test]
fn the_place_in_the_file_can_be_given_and_changed() {
    let file = File::new(&[0, 5, 9]);
    let second = 24 + 16 + 60;
    let mut bench = file.bench(&format!(", FILEPOS {second}"));
    bench.run();
    assert_eq!(numbers(&mut bench), [1, 2]);
    bench.write("filepos", &(second + 16 + 60).to_string()).unwrap();
    bench.write("active", "true").unwrap();
    bench.run();
    assert_eq!(numbers(&mut bench), [2]);
    let between = bench.write("filepos", "30").unwrap_err().to_string();
    assert!(between.ends_with("no record begins at file position 30; one begins at 100"), "{between}");
    let beyond = bench.write("filepos", "999").unwrap_err().to_string();
    assert!(beyond.ends_with("file position 999 is beyond the end of the file"), "{beyond}");
    assert!(bench.write("filepos", "end").unwrap_err().to_string().ends_with("argument must be file offset"));
}

#[test]
fn a_place_far_behind_is_gone_to_in_several_runs() {
    let count = 2 * LOOK as u64 + 10;
    let file = File::new(&Vec::from_iter(0..count));
    let mut bench = file.bench(", ACTIVE false");
    let (far, end) = (24 + (count - 2) * 76, 24 + count * 76);
    bench.write("filepos", &far.to_string()).unwrap();
    assert_eq!(bench.read("filepos", "").unwrap(), far.to_string());
    bench.write("active", "true").unwrap();
    assert!(bench.drain_sent(0).is_empty());
    bench.run();
    assert_eq!(numbers(&mut bench), [(count - 2) as u8, (count - 1) as u8]);
    bench.write("filepos", &(end + 1).to_string()).unwrap();
    bench.write("active", "true").unwrap();
    bench.run();
    assert!(bench.drain_sent(0).is_empty());
    let expected = format!("file position {} is beyond the end of the file", end + 1);
    assert!(bench.stderr_text().contains(&expected));
}

#[test]
fn a_file_in_memory_is_not_read_again_to_go_to_a_place() {
    let file = File::new(&[0, 5, 9]);
    let mut bench = file.bench(", LOOP 2");
    bench.run();
    assert_eq!(numbers(&mut bench), [0, 1, 2, 0, 1, 2]);
    std::fs::remove_file(file.path()).unwrap();
    for (place, sent) in [("100", &[1, 2, 0, 1, 2][..]), ("252", &[0, 1, 2]), ("0", &[0, 1, 2, 0, 1, 2])] {
        bench.write("filepos", place).unwrap();
        bench.write("active", "true").unwrap();
        bench.run();
        assert_eq!(numbers(&mut bench), sent, "{place}");
    }
    let between = bench.write("filepos", "30").unwrap_err().to_string();
    assert!(between.ends_with("no record begins at file position 30; one begins at 100"), "{between}");
    let beyond = bench.write("filepos", "253").unwrap_err().to_string();
    assert!(beyond.ends_with("file position 253 is beyond the end of the file"), "{beyond}");
}

#[test]
fn a_file_that_has_become_another_is_looked_at_anew() {
    let file = File::new(&[0, 5]);
    let mut bench = file.bench(", FORCE_IP true");
    let other = File::with(&[0, 5], LinkType(147), &[]);
    std::fs::copy(other.path(), file.path()).unwrap();
    let refusal = bench.write("filepos", "24").unwrap_err().to_string();
    assert!(refusal.contains("can't force IP packets"), "{refusal}");
}

#[test]
fn a_file_that_gzip_packed_is_unpacked() {
    let file = File::new(&[0, 5, 9]);
    super::super::trace::pack(&file.path());
    let mut bench = file.bench("");
    bench.run();
    assert_eq!(numbers(&mut bench), [0, 1, 2]);
}

#[test]
fn odd_shares_are_told() {
    let file = File::new(&[0]);
    assert_eq!(file.bench(", SAMPLE 0").warnings(), "SAMPLE probability is 0; emitting no packets\n");
    assert_eq!(file.bench(", SAMPLE 2").warnings(), "SAMPLE probability reduced to 1\n");
    assert_eq!(file.bench(", SAMPLE 0.5").warnings(), "");
}
