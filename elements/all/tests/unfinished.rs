//! Packets with pending offloads, through every class: the packets that leave, with offloads applied, equal
//! the class's output for the same packets with offloads applied before, segment by segment.

use crate::configurations::{ELSEWHERE, is_pull, ports};
use artery_elements::CLASSES;
use artery_engine::{
    Batch, Bench, Class, Classes, Context, Element, Router, RouterSettings, Sink, StartError, Time,
};
use artery_engine::{DropReason, Packet};
use artery_lang::{Options, Sources, check, compile};
use artery_packet::{PacketOffload, Pool, SegmentKind, Segments, anno};
use artery_wire::TcpFlags;
use artery_wire::build::{Ether, Ip4, ether, ip4, ip6};
use std::collections::BTreeSet;
use std::time::Duration;

/// Classes that treat a packet as one whatever it holds, where the senders' segments would be several.
const DIFFER: &[(&str, &str)] = &[
    ("AnonymizeIPAddr", "chance decides once for a router"),
    ("ICMPError", "one error for what was one packet"),
    ("RandomSample", "chance decides once for a packet"),
    ("RandomSwitch", "chance decides once for a packet"),
    ("SetRandIPAddress", "chance decides once for a packet"),
    ("RoundRobinSwitch", "takes turns by packets"),
    ("Shaper", "lets a number of packets pass"),
    ("Unstrip", "puts in front what the frame holds there, here nothing of use"),
];

/// Classes of which not only whole long packets leave where long ones come, beside those that
/// ask for finished ones.
const NOT_WHOLE: &[(&str, &str)] = &[
    ("ARPQuerier", "sends questions of its own"),
    ("ICMPError", "sends errors of its own"),
    ("IPFragmenter", "cuts further what is too long still"),
    ("IPRouter", "keeps, cuts and quotes packets as they go over a wire"),
    ("Strip", "takes headers away that each segment needs"),
    ("StripIPHeader", "takes headers away that each segment needs"),
];

/// Arguments that matter to unfinished packets, beside those that all tests use.
const FURTHER: &[(&str, &[&str])] = &[
    ("CheckTCPHeader", &["VERBOSE true"]),
    (
        "IPRouter",
        &[
            "PORT a 192.168.0.1/24 ETHER 02:00:00:00:00:01, PORT b 192.168.1.1/24 2001:db8:b::1/64 ETHER \
             02:00:00:00:00:03,
            NEIGHBOR b 192.168.1.9 02:00:00:00:00:09, NEIGHBOR b 2001:db8:b::9 02:00:00:00:00:09,
            ROUTE 0.0.0.0/0 192.168.1.9, ROUTE ::/0 2001:db8:b::9, ICMP_RATE 0, DAD false",
            "PORT a 192.168.0.1/24 ETHER 02:00:00:00:00:01, PORT b 192.168.1.1/24 ETHER 02:00:00:00:00:03 \
             MTU 600,
            NEIGHBOR b 192.168.1.9 02:00:00:00:00:09, ROUTE 0.0.0.0/0 192.168.1.9, ICMP_RATE 0, DAD false",
        ],
    ),
    ("IPFragmenter", &["1500", "1000", "576", "200", "30"]),
    ("StoreIPAddress", &["9.8.7.6, src", "9.8.7.6, dst", "0.0.0.0, src", "255.255.255.255, dst"]),
    ("Strip", &["20", "28", "34", "42", "54", "80", "1100"]),
    ("Truncate", &["34", "44", "1000", "3000"]),
    ("UDPIPEncap", &["10.0.0.1, 1234, 10.0.0.2, 53, false"]),
    ("MarkIPHeader", &["18"]),
    ("CheckIPHeader", &["18"]),
    ("StripEtherVLANHeader", &["NATIVE_VLAN 1"]),
];

/// Bytes of payload: of long packets, with and without a short segment at the end, and of one that is
/// not to be cut.
const PAYLOADS: [usize; 3] = [5500, 5000, 500];
const SEGMENT: u16 = 1000;

/// An unfinished packet, and where its IP header is marked.
#[derive(Clone, Debug)]
struct Case {
    name: String,
    bytes: Vec<u8>,
    left: PacketOffload,
    mark: Option<(usize, usize)>,
}

impl Case {
    fn packet(&self) -> Packet {
        let mut packet = pool().packet_from(&self.bytes).unwrap();
        packet.set_offload(self.left).unwrap();
        if let Some((network, header_len)) = self.mark {
            packet.set_headers(network, header_len);
        }
        packet.set_dst_ip([1, 0, 0, 9].into());
        packet
    }
    fn segments(&self) -> Batch {
        let mut batch = Batch::default();
        batch.push(self.packet());
        let finished = batch.apply_offloads();
        assert_eq!((finished.malformed, finished.pool_empty), (0, 0), "{}", self.name);
        batch
    }
}

fn pool() -> &'static Pool {
    thread_local! {
        static POOL: &'static Pool = Pool::new(1024, 64).unwrap();
    }
    POOL.with(|pool| *pool)
}

fn payload(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n % 251) as u8).collect()
}

/// All kinds: of TCP and UDP, long and not, with and without link header, tag, options, mark and DF.
fn cases() -> Vec<Case> {
    let flags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::PSH.0 | TcpFlags::CWR.0 | TcpFlags::ACK.0);
    let mut cases = Vec::new();
    for len in PAYLOADS {
        let (payload, long) = (payload(len), len > usize::from(SEGMENT));
        let tcp = |ip: Ip4| ip.tcp(1, 80).seq(u32::MAX).flags(flags).payload(&payload);
        let udp = |ip: Ip4| ip.udp(1, 53).payload(&payload);
        let base = || ip4().id(0xfffe).ttl(9);
        let with_options = || base().options([7, 7, 4, 0, 0, 0, 0]);
        for (name, ip, header_len, kind) in [
            ("tcp", tcp(base()), 20, SegmentKind::Tcp4),
            ("tcp df", tcp(base().dont_fragment()), 20, SegmentKind::Tcp4),
            ("tcp options", tcp(with_options()), 28, SegmentKind::Tcp4),
            ("udp", udp(base()), 20, SegmentKind::Udp),
            ("udp df options", udp(with_options().dont_fragment()), 28, SegmentKind::Udp),
        ] {
            let name = format!("{name} {len}");
            let bytes = ip.bytes();
            cases.push(case(format!("{name} bare"), bytes.clone(), 0, header_len, kind, long));
            cases.push(Case {
                mark: Some((0, header_len)),
                ..case(format!("{name} marked"), bytes, 0, header_len, kind, long)
            });
            let frame = |ether: Ether| ether.ip4(ip.clone()).bytes();
            let framed = case(format!("{name} framed"), frame(link()), 14, header_len, kind, long);
            cases.push(Case { mark: Some((14, header_len)), ..framed.clone() });
            cases.push(framed);
            if len == PAYLOADS[0] && kind == SegmentKind::Tcp4 && header_len == 20 {
                let longest = base().tcp(1, 80).payload(self::payload(65_495)).bytes();
                let name = "tcp 65495 marked".to_string();
                let case = case(name, longest, 0, header_len, kind, long);
                cases.push(Case { mark: Some((0, header_len)), ..case });
            }
            let tagged = frame(link().vlan(7));
            cases.push(case(format!("{name} tagged"), tagged, 18, header_len, kind, long));
        }
        let (tcp, udp) = (ip6().tcp(1, 80).payload(&payload), ip6().udp(1, 53).payload(&payload));
        for (name, ip, kind) in [("tcp6", tcp, SegmentKind::Tcp6), ("udp6", udp, SegmentKind::Udp)] {
            cases.push(case(format!("{name} {len} bare"), ip.bytes(), 0, 40, kind, long));
            cases.push(case(format!("{name} {len} framed"), link().ip6(ip).bytes(), 14, 40, kind, long));
        }
    }
    cases
}

fn link() -> Ether {
    ether("02:00:00:00:00:01", "02:00:00:00:00:02")
}

/// A packet as a host leaves it: with the sum of its pseudo-header for a checksum.
fn case(
    name: String,
    bytes: Vec<u8>,
    network: usize,
    header_len: usize,
    kind: SegmentKind,
    long: bool,
) -> Case {
    let transport = network + header_len;
    let checksum = if kind == SegmentKind::Udp { 6 } else { 16 };
    let segments = Segments { network: network as isize, kind, size: SEGMENT };
    let whole = PacketOffload { transport: transport as isize, checksum, segments: Some(segments) };
    let mut packet = pool().packet_from(&bytes).unwrap();
    packet.set_offload(whole).unwrap();
    packet.verify_segments().unwrap();
    let left = if long { whole } else { PacketOffload { segments: None, ..whole } };
    Case { name, bytes: packet.data().to_vec(), left, mark: None }
}

/// What comes out of each output, finished, when these packets are pushed or offered one by one.
fn outcome(
    class: &'static Class,
    config: &str,
    pull: bool,
    packets: impl IntoIterator<Item = Packet>,
) -> Vec<Vec<Vec<u8>>> {
    let [inputs, outputs] = ports(class);
    let setup = Bench::setup(class, config).inputs(inputs).outputs(outputs);
    let setup = if pull { setup.pull() } else { setup };
    let mut bench = setup.build().unwrap_or_else(|errors| panic!("{}({config}): {errors:?}", class.name));
    let (before, after) = class.processing.split_once('/').unwrap_or((class.processing, class.processing));
    let mut out: Vec<Batch> = (0..outputs).map(|_| Batch::default()).collect();
    for packet in packets {
        if inputs == 0 {
            continue;
        }
        if is_pull(before, 0, pull) {
            bench.offer_packet(0, packet);
        } else {
            bench.push_packets(0, [packet]);
        }
    }
    let mut idle = 0;
    while idle < 3 {
        let before: usize = out.iter().map(Batch::len).sum();
        bench.run_once();
        for (output, out) in out.iter_mut().enumerate() {
            if is_pull(after, output, pull) {
                out.extend(bench.pull(output, 64));
            }
            out.extend(bench.drain_sent(output));
        }
        bench.advance_time(Duration::from_millis(500));
        idle = if out.iter().map(Batch::len).sum::<usize>() == before { idle + 1 } else { 0 };
    }
    out.iter_mut()
        .map(|batch| {
            batch.apply_offloads();
            batch.iter().map(|packet| packet.data().to_vec()).collect()
        })
        .collect()
}

/// Where outcomes first differ, in words.
fn difference(got: &[Vec<Vec<u8>>], wanted: &[Vec<Vec<u8>>]) -> Option<String> {
    for (output, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        if got.len() != wanted.len() {
            let lens = |packets: &[Vec<u8>]| packets.iter().map(Vec::len).collect::<Vec<_>>();
            return Some(format!("output {output}: lengths {:?}, not {:?}", lens(got), lens(wanted)));
        }
        let mut pairs = got.iter().zip(wanted).enumerate();
        if let Some((index, (got, wanted))) = pairs.find(|(_, (got, wanted))| got != wanted) {
            let at = got.iter().zip(wanted).position(|(a, b)| a != b);
            return Some(format!(
                "output {output}, packet {index}: lengths {} and {}, byte {at:?}: {:02x?}, not {:02x?}",
                got.len(),
                wanted.len(),
                &got[..got.len().min(64)],
                &wanted[..wanted.len().min(64)],
            ));
        }
    }
    None
}

fn configs(class: &Class) -> impl Iterator<Item = &'static str> {
    let further =
        FURTHER.iter().find(|(name, _)| *name == class.name).map_or(&[][..], |(_, configs)| configs);
    crate::configurations::of(class).iter().chain(further).copied()
}

/// Whether a class handles a packet and all of its segments alike, except for their number.
fn is_for(class: &Class, config: &str, case: &Case) -> bool {
    let (framed, udp) =
        (!case.name.ends_with("bare") && !case.name.ends_with("marked"), case.name.starts_with("udp"));
    match class.name {
        // They would write their addresses over the IP header.
        _ if class.group == "ether" => framed,
        "SetTCPChecksum" => !udp,
        // A short last segment fits where the packet does not.
        // What one pull leaves, the next, from output 1, takes.
        "Bypass" => !case.name.contains("65495"),
        "IPFragmenter" if case.name.contains("65495") => ["1500", "200"].contains(&config),
        "IPFragmenter" => !case.name.contains("5500") || ["1500", "200", "60", "30"].contains(&config),
        _ if case.name.contains("5000") => false,
        // With an offset they write somewhere in headers or payload, and correct no checksum.
        "StoreIPAddress" => config.contains("src") || config.contains("dst"),
        _ => true,
    }
}

#[test]
fn every_class_makes_of_unfinished_packets_what_it_makes_of_finished_ones() {
    let mut wrong = Vec::new();
    let cases = cases();
    let classes = CLASSES.0.iter().filter(|class| !ELSEWHERE.contains(&class.name));
    for class in classes.filter(|class| !DIFFER.iter().any(|(name, _)| *name == class.name)) {
        for config in configs(class) {
            let cases = cases.iter().filter(|case| is_for(class, config, case));
            let resolutions = if class.processing.contains('a') { &[false, true][..] } else { &[false] };
            for (case, pull) in cases.flat_map(|case| resolutions.iter().map(move |pull| (case, *pull))) {
                let got = outcome(class, config, pull, [case.packet()]);
                let wanted = outcome(class, config, pull, case.segments().drain());
                if let Some(difference) = difference(&got, &wanted) {
                    let how = if pull { "pull" } else { "push" };
                    wrong.push(format!("{}({config}), {how}, {}: {difference}", class.name, case.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Pushes a packet into a class and returns the packets that leave at once, by output.
fn passed(class: &'static Class, config: &str, pull: bool, packet: Packet) -> Vec<Vec<Packet>> {
    let [inputs, outputs] = ports(class);
    let (before, after) = class.processing.split_once('/').unwrap_or((class.processing, class.processing));
    let setup = Bench::setup(class, config).inputs(inputs).outputs(outputs);
    let setup = if pull { setup.pull() } else { setup };
    let mut bench = setup.build().unwrap_or_else(|errors| panic!("{}({config}): {errors:?}", class.name));
    if is_pull(before, 0, pull) {
        bench.offer_packet(0, packet);
    } else {
        bench.push_packets(0, [packet]);
    }
    bench.run_once();
    let mut left = |output| {
        let pulled = if is_pull(after, output, pull) { bench.pull(output, 64) } else { Vec::new() };
        pulled.into_iter().chain(bench.drain_sent(output)).collect()
    };
    (0..outputs).map(&mut left).collect()
}

fn is_whole(packet: &Packet) -> bool {
    packet.offload().is_some_and(|left| left.segments.is_some())
}

#[test]
fn classes_that_do_not_ask_for_finished_packets_pass_long_ones_whole() {
    let cases = cases();
    let long = |case: &&Case| case.left.segments.is_some();
    let classes = CLASSES.0.iter().filter(|class| !ELSEWHERE.contains(&class.name));
    let classes = classes.filter(|class| !class.finished && ports(class)[0] > 0);
    let (mut whole, mut cut) = (BTreeSet::new(), BTreeSet::new());
    for class in classes {
        let resolutions = if class.processing.contains('a') { &[false, true][..] } else { &[false] };
        for (config, pull) in
            configs(class).flat_map(|config| resolutions.iter().map(move |pull| (config, *pull)))
        {
            for case in cases.iter().filter(long).filter(|case| is_for(class, config, case)) {
                for packet in passed(class, config, pull, case.packet()).iter().flatten() {
                    let list = if is_whole(packet) { &mut whole } else { &mut cut };
                    list.insert(class.name);
                }
            }
        }
    }
    let expected: BTreeSet<&str> = NOT_WHOLE.iter().map(|(name, _)| *name).collect();
    assert_eq!(cut, expected);
    assert!(whole.contains("PaintSwitch") && whole.len() >= 60, "{}: {whole:?}", whole.len());
}

#[test]
fn paint_sends_a_long_packet_as_it_is_by_one_output_or_by_all() {
    let class = CLASSES.find_class("PaintSwitch").expect("a class");
    let last = ports(class)[1] - 1;
    for case in cases().iter().filter(|case| case.left.segments.is_some()) {
        for (color, outputs) in [(0, 0..=0), (last as u8, last..=last), (255, 0..=last)] {
            let mut packet = case.packet();
            packet.set_annotation(anno::PAINT, [color]);
            let left = passed(class, "", false, packet);
            let by: Vec<usize> = (0..=last).filter(|output| !left[*output].is_empty()).collect();
            assert_eq!(by, outputs.collect::<Vec<_>>(), "{} in color {color}", case.name);
            let as_it_was = (&case.bytes[..], Some(case.left));
            for packet in left.iter().flatten() {
                assert_eq!((packet.data(), packet.offload()), as_it_was, "{}", case.name);
            }
        }
    }
}

/// Sends ten long packets when the router starts.
static LONG_SOURCE: Class = Class {
    name: "LongSource",
    ports: "0/1",
    processing: "/h",
    build: |_| Ok(Box::new(LongSource)),
    ..Class::DEFAULT
};
struct LongSource;

impl Element for LongSource {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        cx.discard_all(batch, DropReason::Discarded);
    }
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        cx.schedule();
        Ok(())
    }
    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let case = cases().swap_remove(0);
        for _ in 0..10 {
            let mut packet = cx.pool().packet_from(&case.bytes).unwrap();
            packet.set_offload(case.left).unwrap();
            cx.send(0, packet);
        }
        true
    }
}

/// Runs ten long packets through a queue, to an element that requires applied offloads, and on to `rest`, for
/// two seconds. Returns the packets and bytes of the counter there, and the packets dropped elsewhere.
fn pulled(rest: &str) -> (u64, u64) {
    let classes: &[&Class] = Vec::leak([CLASSES.0, &[&LONG_SOURCE]].concat());
    let text = format!(
        "LongSource -> Queue -> [0] cut :: Truncate(100000); cut -> {rest} c :: Counter -> Discard; \
         DriverManager(wait 2s)"
    );
    let mut sources = Sources::default();
    let file = sources.add_file("test", &text);
    let (ir, mut diagnostics) = compile(&mut sources, file, &Options::default(), &Classes(classes));
    let (processing, more) = check(&ir, &Classes(classes));
    diagnostics.extend(more);
    assert!(diagnostics.is_empty(), "{}", diagnostics.iter().map(|d| d.render(&sources)).collect::<String>());
    let (chatter, simulated) = (Sink::buffer(), Some(Time::new(1000, 0)));
    let settings = RouterSettings { chatter, simulated, frames: (1024, 64), ..RouterSettings::default() };
    let router =
        Router::build(&ir, &processing, Classes(classes), settings).unwrap_or_else(|e| panic!("{e:?}"));
    let mut router = router.start().wait().expect("no worker panics");
    let mut read = |name| router.read_handler(name, "").unwrap().parse().unwrap();
    (read("c.count"), read("c.byte_count"))
}

#[test]
fn whoever_pulls_a_long_packet_takes_all_its_segments() {
    let all = (10 * 6, 10 * (5500 + 6 * 40));
    for rest in [
        "DelayUnqueue(1ms) ->",
        "DelayShaper(1ms) -> Unqueue ->",
        "Unqueue(1) ->",
        "PullTee -> Unqueue(7) ->",
        "Shaper(1000) -> Unqueue ->",
        "RatedUnqueue(1000) ->",
        "BandwidthShaper(1MBps) -> Unqueue ->",
        "BandwidthRatedUnqueue(1MBps) ->",
        "p :: PrioSched; Idle -> Queue -> [1] p; p -> Unqueue(1) ->",
        "p :: PrioSched; Idle -> Queue -> [1] p; p -> Unqueue(8) ->",
        "p :: RoundRobinSched; Idle -> Queue -> [1] p; p -> Unqueue(1) ->",
        "p :: StrideSched(1, 2); Idle -> Queue -> [1] p; p -> Unqueue(1) ->",
        "PullNull -> d :: PullTee -> Unqueue -> Queue -> Unqueue ->",
    ] {
        assert_eq!(pulled(rest), all, "{rest}");
    }
}

#[test]
fn all_segments_of_a_long_packet_count_against_rates_and_limits() {
    for rest in ["BandwidthShaper(10kBps) -> Unqueue ->", "BandwidthRatedUnqueue(10kBps, BURST_BYTES 1) ->"] {
        let (packets, bytes) = pulled(rest);
        assert!(packets < 60 && (12_000..36_000).contains(&bytes), "{rest}: {packets}, {bytes}");
    }
    assert_eq!(pulled("Unqueue(1, LIMIT 8) ->").0, 12, "two packets");
}

#[test]
fn no_class_panics_on_packets_that_are_not_what_their_records_say() {
    let seed = 0xa47e_47e4_7e47_u64;
    println!("seed {seed:#x}");
    let mut state = seed;
    let mut below = move |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n as u64) as usize
    };
    let cases = cases();
    for class in CLASSES.0.iter().filter(|class| !ELSEWHERE.contains(&class.name)) {
        for config in configs(class) {
            let pull = below(2) == 0;
            let packets = (0..24).map(|_| {
                let case = &cases[below(cases.len())];
                let mut packet = case.packet();
                packet.truncate(below(120) * below(60));
                let segments = Segments {
                    network: below(60) as isize - 5,
                    kind: [SegmentKind::Tcp4, SegmentKind::Tcp6, SegmentKind::Udp][below(3)],
                    size: [1, 100, 1000, 65535][below(4)],
                };
                let transport = segments.network + [20, 28, 40, 0, -3][below(5)];
                let segments = (below(3) > 0).then_some(segments);
                let left = PacketOffload { transport, checksum: [6, 16, 9000][below(3)], segments };
                packet.set_offload([left, case.left][below(2)]).unwrap();
                if below(2) == 0 {
                    packet.set_headers(below(60), 4 * below(16));
                }
                packet
            });
            outcome(class, config, pull, packets);
        }
    }
}
