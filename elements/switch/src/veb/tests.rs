//! The switch on the bench: frames in, frames out.
use super::*;
use artery_common::frame_filter::{FilterContext, FilterFactories, FilterPoint, FilterPort, FrameFilter};
use artery_engine::{Bench, DropReason, Packet, Resources};
use artery_l2::Direction;
use artery_wire::build::{arp_request, ether, ip4};
use artery_wire::{EtherAddr, EtherType, Ethernet};
use std::sync::Mutex;

/// The class with a filter of its own that passes everything.
pub(super) static CLASS: Class = class_with_rules::<NoRules>();

/// The rules of that filter, and the filter.
struct NoRules;

impl RulesMaker for NoRules {
    fn shared_rules(
        _: &mut Args<'_>,
        _: &str,
        _: &[FilterPort],
        _: &[String],
    ) -> Result<Arc<dyn SharedRules>, ArgError> {
        Ok(Arc::new(NoRules))
    }
}

impl SharedRules for NoRules {
    fn worker_filter(
        self: Arc<Self>,
        _: usize,
        _: &mut Context<'_>,
    ) -> Result<Box<dyn FrameFilter>, StartError> {
        Ok(Box::new(NoRules))
    }
}

impl FrameFilter for NoRules {
    fn test_frame(&mut self, _: &mut Packet, _: &FilterContext<'_>, _: &mut Context<'_>) -> bool {
        true
    }
    fn is_idle(&self) -> bool {
        true
    }
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

const A: &str = "02:00:00:00:00:0a";
const B: &str = "02:00:00:00:00:0b";
const C: &str = "02:00:00:00:00:0c";
const ALL: &str = "ff:ff:ff:ff:ff:ff";

/// A switch of three ports, em0 to em2, with further arguments.
pub(super) fn bench(more: &str) -> Bench {
    of("PORT em0, PORT em1, PORT em2", 3, 3, more)
}

pub(super) fn of(ports: &str, inputs: usize, outputs: usize, more: &str) -> Bench {
    let comma = if more.is_empty() { "" } else { ", " };
    let setup = Bench::setup(&CLASS, &format!("{ports}{comma}{more}"));
    setup.inputs(inputs).outputs(outputs).build().unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn frame(dst: &str, src: &str) -> Vec<u8> {
    ether(dst, src).ip4(ip4().udp(1, 2)).bytes()
}

fn tagged(dst: &str, src: &str, vlan: u16) -> Vec<u8> {
    ether(dst, src).vlan(vlan).ip4(ip4().udp(1, 2)).bytes()
}

/// Pushes a frame, and expects it to leave as it is by these outputs.
#[track_caller]
pub(super) fn goes(bench: &mut Bench, input: usize, bytes: &[u8], outputs: &[usize]) {
    bench.push(input, bytes);
    outputs.iter().for_each(|output| drop(bench.expect(*output, bytes)));
    bench.expect_nothing_more();
}

pub(super) fn count(bench: &mut Bench, name: &str) -> u64 {
    let stats = bench.read("stats", "").unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("{name} in {stats}")).parse().unwrap()
}

#[test]
fn addresses_are_learned_move_and_never_lead_back() {
    let mut bench = bench("");
    goes(&mut bench, 0, &frame(B, A), &[1, 2]);
    goes(&mut bench, 1, &frame(A, B), &[0]);
    goes(&mut bench, 0, &frame(B, A), &[1]);
    goes(&mut bench, 2, &frame(A, B), &[0]);
    goes(&mut bench, 0, &frame(B, A), &[2]);
    goes(&mut bench, 2, &frame(B, C), &[]);
    bench.expect_dropped(DropReason::SamePort, 1);
    goes(&mut bench, 0, &frame(ALL, A), &[1, 2]);
    assert_eq!(count(&mut bench, "learned"), 3);
    assert_eq!(count(&mut bench, "moved"), 1);
    assert_eq!(count(&mut bench, "flooded"), 2);
    let moves = bench.read("moves", "").unwrap();
    assert_eq!(moves, format!("0 {B} em1 em2\n"));
    assert_eq!(bench.read("drops", "").unwrap(), "same-port em2 1\n");
    assert!(bench.read("stats", "").unwrap().starts_with("em0 in 4 "));
}

#[test]
fn a_static_address_beats_a_move() {
    let mut bench = bench(&format!("IFCONFIG \"static em1 {B}\""));
    goes(&mut bench, 2, &frame(ALL, B), &[0, 1]);
    goes(&mut bench, 0, &frame(B, A), &[1]);
    assert_eq!(count(&mut bench, "stayed"), 1);
    bench.write("ifconfig", &format!("deladdr {B}")).unwrap();
    goes(&mut bench, 0, &frame(B, A), &[1, 2]);
}

#[test]
fn a_full_table_floods_and_keeps_what_it_has() {
    let mut bench = bench("MAXADDR 1");
    goes(&mut bench, 0, &frame(ALL, A), &[1, 2]);
    goes(&mut bench, 1, &frame(ALL, B), &[0, 2]);
    goes(&mut bench, 2, &frame(B, C), &[0, 1]);
    goes(&mut bench, 2, &frame(A, C), &[0]);
    assert_eq!((count(&mut bench, "addresses"), count(&mut bench, "not-learned-full")), (1, 3));
    let mut evicting = self::bench("MAXADDR 1, EVICT true");
    goes(&mut evicting, 0, &frame(ALL, A), &[1, 2]);
    goes(&mut evicting, 1, &frame(ALL, B), &[0, 2]);
    goes(&mut evicting, 2, &frame(B, C), &[0, 1]);
    assert!(
        evicting.read("addr", "").unwrap().starts_with(C),
        "the newest is known, before the frame goes on"
    );
    assert_eq!(count(&mut evicting, "addresses"), 1);
}

#[test]
fn addresses_are_absent_after_their_time_and_swept_later() {
    let mut bench = bench("");
    goes(&mut bench, 1, &frame(ALL, B), &[0, 2]);
    bench.advance_time(Duration::from_secs(240));
    goes(&mut bench, 0, &frame(B, A), &[1]);
    bench.advance_time(Duration::from_secs(1));
    goes(&mut bench, 0, &frame(B, A), &[1, 2]);
    let known = bench.read("addr", "").unwrap();
    assert_eq!(known, format!("{A} em0 0 flags=0<>\n"));
    bench.advance_time(Duration::from_secs(101));
    assert_eq!(count(&mut bench, "addresses"), 1);
    bench.advance_time(Duration::from_secs(250));
    assert_eq!(count(&mut bench, "addresses"), 0);
}

#[test]
fn known_frames_keep_their_source_fresh() {
    let mut bench = bench("");
    goes(&mut bench, 1, &frame(ALL, B), &[0, 2]);
    goes(&mut bench, 0, &frame(B, A), &[1]);
    for _ in 0..4 {
        bench.advance_time(Duration::from_secs(200));
        goes(&mut bench, 1, &frame(ALL, B), &[0, 2]);
        goes(&mut bench, 0, &frame(B, A), &[1]);
    }
    assert_eq!(count(&mut bench, "learned"), 2);
}

#[test]
fn a_batch_for_several_ports_is_dealt_in_order() {
    let mut bench = bench("");
    for (port, source) in [(0, A), (1, B), (2, C)] {
        bench.push(port, frame(ALL, source));
    }
    (0..3).for_each(|output| drop(bench.drain_sent(output)));
    let frames: Vec<Vec<u8>> =
        (0..64).map(|n| ether([B, C, B, ALL][n % 4], A).ip4(ip4().id(n as u16)).bytes()).collect();
    let packets: Vec<_> = frames.iter().map(|bytes| bench.packet(bytes)).collect();
    bench.push_packets(0, packets);
    let got = [1, 2].map(|output| {
        bench.drain_sent(output).iter().map(|packet| packet.data().to_vec()).collect::<Vec<_>>()
    });
    // Every fourth frame goes only to C, and another fourth to both.
    let of = |is: fn(usize) -> bool| {
        frames.iter().enumerate().filter(move |(n, _)| is(n % 4)).map(|(_, bytes)| bytes.clone())
    };
    let expected: [Vec<_>; 2] = [of(|n| n != 1).collect(), of(|n| n % 2 == 1).collect()];
    assert_eq!(got, expected);
    assert!(bench.drain_sent(0).is_empty());
}

#[test]
fn unknown_stations_are_looked_for_at_ports_that_discover() {
    let mut bench = of("PORT em0, PORT em1 -discover, PORT em2", 3, 3, "");
    goes(&mut bench, 0, &frame(B, A), &[2]);
    goes(&mut bench, 0, &frame(ALL, A), &[1, 2]);
    bench.write("ifconfig", "discover em1").unwrap();
    goes(&mut bench, 0, &frame(B, A), &[1, 2]);
}

#[test]
fn protected_ports_do_not_talk_to_each_other_however_frames_would_get_there() {
    let mut bench = bench("IFCONFIG \"protected em0 1,2 protected em1 2,3\"");
    goes(&mut bench, 0, &frame(ALL, A), &[2]);
    goes(&mut bench, 1, &frame(ALL, B), &[2]);
    goes(&mut bench, 0, &frame(B, A), &[]);
    bench.expect_dropped(DropReason::ProtectedPort, 1);
    assert_eq!(bench.read("drops", "").unwrap(), "protected em0 1\nprotected em1 2\n");
}

#[test]
fn rules_hold_for_frames_of_known_stations_too() {
    let mut bench = bench("");
    for (port, source) in [(0, A), (1, B)] {
        bench.push(port, frame(ALL, source));
    }
    (0..3).for_each(|output| drop(bench.drain_sent(output)));
    goes(&mut bench, 0, &frame(B, A), &[1]);
    bench.write("ifconfig", &format!("rule block out on em1 src {A}")).unwrap();
    goes(&mut bench, 0, &frame(B, A), &[]);
    bench.write("ifconfig", "flushrule em1 rule block in on em0 arp request spa 10.0.0.1").unwrap();
    goes(&mut bench, 0, &frame(B, A), &[1]);
    goes(&mut bench, 0, &arp_request(A, "10.0.0.1", "10.0.0.2").bytes(), &[]);
    goes(&mut bench, 0, &arp_request(A, "10.0.0.3", "10.0.0.2").bytes(), &[1, 2]);
    bench.expect_dropped(DropReason::BlockedByRule, 2);
    assert_eq!(bench.read("rules", "em0").unwrap(), "block in on em0 arp request spa 10.0.0.1\n");
    assert!(bench.read("rules", "em9").is_err());
}

#[test]
fn span_ports_get_copies_of_dropped_frames_too() {
    let mut bench = of("PORT em0 blocknonip, PORT em1, SPAN mon", 3, 3, "");
    let other = ether(ALL, A).raw(EtherType(0x88b5), [0; 46]).bytes();
    goes(&mut bench, 0, &other, &[2]);
    bench.expect_dropped(DropReason::UnknownEtherType, 1);
    goes(&mut bench, 0, &frame(ALL, A), &[1, 2]);
    goes(&mut bench, 1, &frame(A, B), &[0, 2]);
    goes(&mut bench, 2, &frame(A, C), &[]);
    bench.expect_dropped(DropReason::SpanInput, 1);
    assert_eq!(count(&mut bench, "copied"), 3);
}

#[test]
fn reserved_addresses_pass_with_link0_or_by_name() {
    let reserved = |last: u8| frame(&EtherAddr([1, 0x80, 0xc2, 0, 0, last]).to_string(), A);
    let mut plain = bench("RESERVED 0e");
    goes(&mut plain, 0, &reserved(0), &[]);
    goes(&mut plain, 0, &reserved(0xe), &[1, 2]);
    plain.expect_dropped(DropReason::ReservedAddress, 1);
    let mut provider = bench("LINK0 true");
    for last in 0..16 {
        let passes = [0, 0xb, 0xc, 0xd, 0xf].contains(&last);
        goes(&mut provider, 0, &reserved(last), if passes { &[1, 2] } else { &[] });
    }
}

/// The calls of a filter, with its answers.
type Asked = Arc<Mutex<Vec<(FilterPoint, Direction, Option<String>)>>>;

/// A filter that blocks at one point and direction.
struct Recorder {
    asked: Asked,
    blocks: Option<(FilterPoint, Direction)>,
}

impl FrameFilter for Recorder {
    fn test_frame(&mut self, frame: &mut Packet, passage: &FilterContext<'_>, _: &mut Context<'_>) -> bool {
        assert_eq!(Ethernet::new(frame.data()).unwrap().payload_type(), EtherType::IPV4);
        let FilterContext { point: spot, direction, mark, .. } = *passage;
        self.asked.lock().unwrap().push((spot, direction, mark.map(str::to_string)));
        self.blocks != Some((spot, direction))
    }
    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

fn filtered(ports: &str, more: &str, blocks: Option<(FilterPoint, Direction)>) -> (Bench, Asked) {
    let resources: Arc<Resources> = Arc::default();
    let asked = Asked::default();
    let kept = asked.clone();
    let make = move |_: &str, ports: &[String]| -> Box<dyn FrameFilter> {
        assert_eq!(ports.len(), 3);
        Box::new(Recorder { asked: kept.clone(), blocks })
    };
    // What a bench calls its element is its own affair.
    let mut other = Bench::setup(&CLASS, "").inputs(1).outputs(1).build().unwrap();
    let shown = other.read("show", "").unwrap();
    let name = shown.split(':').next().unwrap();
    resources.get::<FilterFactories>().insert(name, Box::new(make));
    let setup = Bench::setup(&CLASS, &format!("{ports}, LINK1 true{more}")).resources(resources);
    (setup.inputs(3).outputs(3).build().unwrap_or_else(|errors| panic!("{errors:?}")), asked)
}

fn taken(asked: &Asked) -> Vec<(FilterPoint, Direction, Option<String>)> {
    std::mem::take(&mut asked.lock().unwrap())
}

#[test]
fn with_link1_a_filter_sees_ip_once_on_each_side() {
    let (mut bench, asked) = filtered("PORT em0, PORT em1, PORT em2", "", None);
    let (at, once) = (FilterPoint::Port, |spot, direction| (spot, direction, None));
    goes(&mut bench, 0, &frame(B, A), &[1, 2]);
    assert_eq!(taken(&asked), [once(at(0), Direction::In), once(FilterPoint::Switch, Direction::Out)]);
    goes(&mut bench, 1, &frame(A, B), &[0]);
    assert_eq!(taken(&asked), [once(at(1), Direction::In), once(at(0), Direction::Out)]);
    goes(&mut bench, 0, &frame(B, A), &[1]);
    assert_eq!(taken(&asked), [once(at(0), Direction::In), once(at(1), Direction::Out)]);
    bench.push(0, arp_request(A, "10.0.0.1", "10.0.0.2").bytes());
    bench.write("ifconfig", "-link1").unwrap();
    bench.push(0, frame(B, A));
    assert!(taken(&asked).is_empty());
}

#[test]
fn what_came_with_a_tag_is_seen_by_a_filter_where_it_leaves_without() {
    let vlans = ", IFCONFIG \"-untagged em0 tagged em0 7 untagged em1 7 untagged em2 7\"";
    let (mut bench, asked) = filtered("PORT em0, PORT em1, PORT em2", vlans, None);
    let out = |port| (FilterPoint::Port(port), Direction::Out, None);
    let mut leaves = |input, frame: Vec<u8>| {
        bench.push(input, frame);
        (0..3).map(|port| bench.drain_sent(port).len()).collect::<Vec<_>>()
    };
    let tagged = || ether(B, A).vlan(7).ip4(ip4().udp(1, 2)).bytes();
    assert_eq!(leaves(0, tagged()), [0, 1, 1]);
    assert_eq!(taken(&asked), [out(1), out(2)], "each port by itself: the switch was not asked");
    assert_eq!(leaves(1, frame(A, B)), [1, 0, 0]);
    assert_eq!(taken(&asked), [(FilterPoint::Port(1), Direction::In, None)]);
    assert_eq!(leaves(0, tagged()), [0, 1, 0]);
    assert_eq!(taken(&asked), [out(1)]);
}

#[test]
fn a_vport_has_its_directions_reversed_and_rules_hand_their_marks_on() {
    let rule = ", IFCONFIG \"rule match in on em0 tag lab\"";
    let (mut bench, asked) = filtered("PORT em0, PORT vport0 vport, PORT em2", rule, None);
    let at = FilterPoint::Port;
    bench.push(1, frame(ALL, B));
    assert_eq!(taken(&asked)[0], (at(1), Direction::Out, None));
    bench.push(0, frame(B, A));
    let lab = Some("lab".to_string());
    assert_eq!(taken(&asked), [(at(0), Direction::In, lab), (at(1), Direction::In, None)], "it is said once");
}

#[test]
fn without_link1_a_filter_sees_what_passes_a_vport_and_nothing_else() {
    let ports = "PORT em0, PORT vport0 vport, PORT em2";
    let (mut bench, asked) = filtered(ports, ", IFCONFIG \"-link1\"", None);
    let to_host = (FilterPoint::Port(1), Direction::In, None);
    let from_host = (FilterPoint::Port(1), Direction::Out, None);
    goes(&mut bench, 0, &frame(ALL, A), &[1, 2]);
    assert_eq!(taken(&asked), std::slice::from_ref(&to_host), "multicast frames, too");
    goes(&mut bench, 1, &frame(A, B), &[0]);
    assert_eq!(taken(&asked), std::slice::from_ref(&from_host));
    goes(&mut bench, 2, &frame(A, C), &[0]);
    goes(&mut bench, 0, &frame(C, A), &[2]);
    assert!(taken(&asked).is_empty());
    goes(&mut bench, 0, &frame(B, A), &[1]);
    goes(&mut bench, 1, &frame(A, B), &[0]);
    assert_eq!(taken(&asked), [to_host, from_host]);
    goes(&mut bench, 1, &arp_request(B, "10.0.0.1", "10.0.0.2").bytes(), &[0, 2]);
    assert!(taken(&asked).is_empty());
    let said = bench.read("explain", &format!("em0 {ALL} {A}")).unwrap();
    assert!(said.contains("leaves by vport0, if the packet filter lets it\nleaves by em2\n"), "{said}");

    for (blocks, others) in
        [((FilterPoint::Port(1), Direction::In), &[2][..]), ((FilterPoint::Port(1), Direction::Out), &[1, 2])]
    {
        let (mut bench, _) = filtered(ports, ", IFCONFIG \"-link1\"", Some(blocks));
        goes(&mut bench, 0, &frame(ALL, A), others);
        let back = frame(A, B);
        goes(&mut bench, 1, &back, if blocks.1 == Direction::In { &[0] } else { &[] });
        assert_eq!(bench.drops().count(DropReason::Filtered), 1);
    }
}

#[test]
fn a_batch_from_another_port_meets_the_filter_where_it_goes_to_the_host() {
    let blocks = Some((FilterPoint::Port(1), Direction::In));
    let (mut bench, asked) =
        filtered("PORT em0, PORT vport0 vport, PORT em2", ", IFCONFIG \"-link1\"", blocks);
    for (port, source) in [(0, A), (1, B), (2, C)] {
        bench.push(port, arp_request(source, "10.0.0.1", "10.0.0.2").bytes());
    }
    (0..3).for_each(|output| drop(bench.drain_sent(output)));
    let packets: Vec<_> = [C, B, C, B].map(|to| bench.packet(frame(to, A))).into();
    bench.push_packets(0, packets);
    assert_eq!((bench.drain_sent(1).len(), bench.drain_sent(2).len()), (0, 2));
    assert_eq!(taken(&asked).len(), 2);
    bench.expect_dropped(DropReason::Filtered, 2);
}

#[test]
fn what_a_filter_blocks_ends_whether_it_is_known_where_it_goes_or_not() {
    for blocks in [
        (FilterPoint::Port(0), Direction::In),
        (FilterPoint::Port(1), Direction::Out),
        (FilterPoint::Switch, Direction::Out),
    ] {
        let (mut bench, _) = filtered("PORT em0, PORT em1, PORT em2", "", Some(blocks));
        bench.push(1, arp_request(B, "10.0.0.1", "10.0.0.2").bytes());
        bench.push(0, arp_request(A, "10.0.0.1", "10.0.0.2").bytes());
        (0..3).for_each(|output| drop(bench.drain_sent(output)));
        let passes_out = blocks.0 == FilterPoint::Switch;
        goes(&mut bench, 0, &frame(B, A), if passes_out { &[1] } else { &[] });
        let floods = blocks.0 == FilterPoint::Port(1);
        goes(&mut bench, 0, &frame(C, A), if floods { &[1, 2] } else { &[] });
        bench.expect_dropped(DropReason::Filtered, if blocks.0 == FilterPoint::Port(0) { 2 } else { 1 });
    }
}

#[test]
fn only_ip_passes_a_port_that_blocks_the_rest() {
    let mut bench = of("PORT em0 blocknonip, PORT em1, PORT em2", 3, 3, "");
    let of_type = |kind: u16| ether(ALL, A).raw(EtherType(kind), [0; 46]).bytes();
    for kind in [0x0800, 0x0806, 0x8035, 0x86dd] {
        goes(&mut bench, 0, &of_type(kind), &[1, 2]);
    }
    goes(&mut bench, 0, &of_type(0x88cc), &[]);
    goes(&mut bench, 1, &of_type(0x88cc), &[2]);
    bench.expect_dropped(DropReason::UnknownEtherType, 1);
}

#[test]
fn vlans_are_apart_and_tags_are_put_on_and_taken_off() {
    let mut bench = bench("IFCONFIG \"untagged em0 7 tagged em1 7-8 untagged em2 8\"");
    bench.push(0, frame(ALL, A));
    bench.expect(1, tagged(ALL, A, 7));
    bench.expect_nothing_more();
    bench.push(1, tagged(ALL, A, 8));
    bench.expect(2, frame(ALL, A));
    bench.expect_nothing_more();
    let known = bench.read("addr", "").unwrap();
    assert_eq!(known, format!("{A}@7 em0 0 flags=0<>\n{A}@8 em1 0 flags=0<>\n"), "two hosts");
    bench.push(1, tagged(A, B, 7));
    bench.expect(0, frame(A, B));
    goes(&mut bench, 1, &tagged(A, B, 9), &[]);
    goes(&mut bench, 0, &tagged(A, B, 7), &[]);
    bench.expect_dropped(DropReason::VlanDenied, 2);
}

#[test]
fn what_is_the_hosts_leaves_by_the_outputs_behind_the_ports() {
    let mut bench = of(
        "PORT em0, PORT em1, PORT em2 detached",
        3,
        6,
        "IFCONFIG \"untagged em0 passthrough tagged em0 5 tagged em1 5\"",
    );
    goes(&mut bench, 0, &frame(ALL, A), &[3]);
    goes(&mut bench, 0, &tagged(ALL, A, 5), &[1]);
    goes(&mut bench, 2, &frame(ALL, A), &[5]);
    goes(&mut bench, 1, &frame(ALL, B), &[]);
    bench.write("ifconfig", "add em2").unwrap();
    goes(&mut bench, 1, &frame(ALL, B), &[2]);
    bench.write("ifconfig", "down").unwrap();
    goes(&mut bench, 1, &frame(ALL, B), &[4]);
    let mut alone = self::bench("UP false");
    goes(&mut alone, 0, &frame(ALL, A), &[]);
    alone.expect_dropped(DropReason::SwitchDown, 1);
}

#[test]
fn a_port_that_goes_takes_its_addresses_along_and_comes_back_as_new() {
    let mut bench = bench("IFCONFIG \"protected em1 4\"");
    goes(&mut bench, 1, &frame(ALL, B), &[0, 2]);
    goes(&mut bench, 0, &frame(B, A), &[1]);
    bench.write("ifconfig", "del em1").unwrap();
    goes(&mut bench, 0, &frame(B, A), &[2]);
    assert!(!bench.read("show", "").unwrap().contains("em1"));
    goes(&mut bench, 1, &frame(A, B), &[]);
    bench.expect_dropped(DropReason::NotAPort, 1);
    bench.write("ifconfig", "add em1").unwrap();
    goes(&mut bench, 0, &frame(B, A), &[1, 2]);
    assert!(
        bench
            .read("show", "")
            .unwrap()
            .contains("em1 flags=3<LEARNING,DISCOVER>\n\t\tport 2 ifpriority 0 ifcost 0\n")
    );
}

#[test]
fn a_flood_of_addresses_stays_within_bounds_and_leaves_known_stations_alone() {
    let mut bench = bench("MAXADDR 1000");
    bench.push(0, frame(ALL, A));
    bench.push(1, frame(ALL, B));
    (0..3).for_each(|output| drop(bench.drain_sent(output)));
    for n in 0..65_536_u32 {
        let [_, b, c, d] = n.to_be_bytes();
        bench.push(2, ether(B, [2, 9, 9, b, c, d]).ip4(ip4()).bytes());
        if n % 64 == 0 {
            (0..3).for_each(|output| drop(bench.drain_sent(output)));
            goes(&mut bench, 0, &frame(B, A), &[1]);
        }
    }
    assert_eq!((count(&mut bench, "addresses"), count(&mut bench, "learned")), (1000, 1000));
    assert_eq!(count(&mut bench, "not-learned-full"), 65_536 - 998);
}

#[test]
fn storms_are_held_down_at_the_port_they_come_by() {
    let mut bench = bench("IFCONFIG \"storm em0 broadcast 100\"");
    for _ in 0..1000 {
        bench.push(0, frame(ALL, A));
        bench.drain_sent(1);
        bench.drain_sent(2);
    }
    let dropped = bench.drops().count(DropReason::Storm);
    assert!((985..1000).contains(&dropped), "{dropped}");
    goes(&mut bench, 1, &frame(ALL, B), &[0, 2]);
    goes(&mut bench, 0, &frame(B, A), &[1]);
}

#[test]
fn frames_too_short_for_a_header_end() {
    let mut bench = bench("");
    (0..14).for_each(|len| bench.push(0, vec![2; len]));
    bench.expect_dropped(DropReason::TooShort, 14);
    bench.expect_nothing_more();
}

#[test]
fn one_that_takes_the_place_of_another_knows_its_addresses() {
    let mut old = bench("");
    goes(&mut old, 1, &frame(ALL, B), &[0, 2]);
    let setup = Bench::setup(&CLASS, "PORT em1, PORT em5, PORT em6").inputs(3).outputs(3).sharing_with(&old);
    let mut new = setup.as_replacement().build().unwrap();
    new.take_state(&mut old);
    goes(&mut new, 1, &frame(B, A), &[0]);
}

#[test]
fn without_arguments_there_is_a_port_for_each_output() {
    let mut bench = Bench::setup(&CLASS, "").inputs(2).outputs(3).build().unwrap();
    goes(&mut bench, 1, &frame(B, A), &[0, 2]);
    assert!(bench.read("show", "").unwrap().contains("\tp2 flags=3<LEARNING,DISCOVER>\n"));
    let said = bench.read("explain", &format!("p0 {A} {B} 0x0806")).unwrap();
    assert_eq!(
        said,
        format!(
            "taken in at p0, in VLAN 1\n{B} is learned, if there is room\nits destination is at p1\n\
             leaves by p1\n"
        )
    );
    for wrong in
        ["", "p9 1 2", &format!("p0 {A} x"), &format!("p0 {A} {B} 7 8"), &format!("p0 {A} {B} 1 0x1 2")]
    {
        assert!(bench.read("explain", wrong).is_err(), "{wrong}");
    }
}

#[test]
fn rules_come_from_files_too_and_mistakes_have_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules");
    std::fs::write(&file, "# of em0\n\nblock in on em0 arp\npass on em1\n").unwrap();
    let mut bench = bench("");
    bench.write("ifconfig", &format!("rulefile {}", file.display())).unwrap();
    assert_eq!(bench.read("rules", "").unwrap(), "block in on em0 arp\npass in/out on em1\n");
    std::fs::write(&file, "block in on em0\nblock im on em0\n").unwrap();
    let refusal = bench.write("ifconfig", &format!("rulefile {}", file.display())).unwrap_err().to_string();
    assert!(refusal.contains("rules:2: 'block im'"), "{refusal}");
    assert_eq!(bench.read("rules", "").unwrap().lines().count(), 2, "a file holds as a whole, or not at all");
    assert!(bench.write("ifconfig", "rulefile /nowhere/rules").is_err());
}

#[test]
fn another_switch_with_the_same_ports_is_made_by_the_commands_that_it_gives() {
    let mut bench = bench(&format!("IFCONFIG \"tagged em0 5-9 static em1 {B} -learn em2 vnetid 7 link0\""));
    let commands = bench.read("config", "").unwrap();
    let mut other = of("PORT em0 detached, PORT em1 detached, PORT em2 detached", 3, 3, "");
    commands
        .lines()
        .for_each(|line| other.write("ifconfig", line).unwrap_or_else(|error| panic!("{line}: {error}")));
    assert_eq!(other.read("show", "").unwrap(), bench.read("show", "").unwrap());
}

#[test]
fn what_can_not_be_is_refused_with_the_remedy() {
    for (config, said) in [
        ("PORT em0, PORT em0", "em0 is in the switch already"),
        ("PORT em0 fast", "'fast' is not a valid ADDRESS/LENGTH and none of vport, detached"),
        ("PORT em0, SPAN em1", "1 inputs and 1 outputs are connected; 2 ports need as many outputs"),
        ("VNETID 4095", "is none of 1 to 4094"),
        ("MAXADDR 0", "is none of 1 to"),
        ("TIMEOUT 7", "is neither 0, for never, nor one of 8 to 3600"),
        ("RESERVED 10", "is none of 00 to 0f"),
        ("IFCONFIG \"protected em7 1\"", "em7 is not connected"),
        ("IFCONFIG \"lern em7\"", "did you mean 'learn'"),
    ] {
        let outcome = Bench::setup(&CLASS, config).inputs(1).outputs(1).build();
        let refusal = outcome.err().unwrap_or_else(|| panic!("{config} was accepted"))[0].to_string();
        assert!(refusal.contains(said), "{config}: {refusal}");
    }
}
