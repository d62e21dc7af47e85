//! The switch as its users see it: configured by commands, looked up for frames.
mod batch_lookup;
mod many;
mod told;

use super::command::{StormKind, parse};
use super::decide::{Cause, Egress, EgressRewrite, FloodKind, FrameTrace, Stop, TagRewrite, trace_frame};
use super::quick::BatchLookup;
use super::*;
use artery_rcu::Reader;
use artery_wire::Random;
use artery_wire::build::{ether, ip4, ip6};
use artery_wire::{EtherAddr, EtherType};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

const A: &str = "02:00:00:00:00:0a";
const B: &str = "02:00:00:00:00:0b";
const C: &str = "02:00:00:00:00:0c";

fn at(seconds: u64) -> Duration {
    Duration::from_secs(1_000_000 + seconds)
}

struct Lab {
    switch: Switch,
    reader: Reader,
}

impl Lab {
    /// A switch with ports p0, p1 and so on; the first `members` of them are part of it.
    fn new(ports: usize, members: usize) -> Lab {
        let domain = Domain::new();
        let mut config = Config::new("veb0");
        for at in 0..ports {
            let role = if at < members { Role::Member } else { Role::Detached };
            config.connect_port(Port::new(format!("p{at}"), role)).unwrap();
        }
        Lab { reader: domain.reader(), switch: Switch::new(&domain, config).unwrap() }
    }
    fn of(ports: usize, lines: &[&str]) -> Lab {
        let lab = Lab::new(ports, ports);
        lines.iter().for_each(|line| lab.tell(line).unwrap_or_else(|error| panic!("{line}: {error}")));
        lab
    }
    fn tell(&self, line: &str) -> Result<(), SwitchError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let commands = parse(&words).unwrap_or_else(|error| panic!("{line}: {error}"));
        commands.iter().try_for_each(|command| self.switch.apply_command(command, at(0)))
    }
    fn learn(&self, address: &str, vlan: u16, port: u16, seconds: u64) -> Learned {
        self.switch.learn_address(
            MacKey::from_address(address.parse().unwrap(), vlan),
            port,
            false,
            at(seconds),
        )
    }
    fn ask(&mut self, port: u16, bytes: &[u8], seconds: u64) -> FrameTrace {
        let turn = self.reader.turn();
        let (view, table) = (self.switch.view(&turn), self.switch.table(&turn));
        let find = |key| {
            table
                .find_entry(table.probe_key(key))
                .filter(|entry| !entry.is_old(super::seconds(at(seconds)), view.timeout()))
        };
        trace_frame((view, self.switch.groups(&turn)), port, &FrameView::new(bytes).unwrap(), find)
    }
    /// Where a frame goes and how it leaves.
    fn leaves(&mut self, port: u16, bytes: &[u8]) -> Vec<(u16, TagRewrite)> {
        let targets = self.ask(port, bytes, 0).targets;
        targets.into_iter().filter_map(|(to, outcome)| Some((to, outcome.ok()?.change))).collect()
    }
    fn ports(&mut self, port: u16, bytes: &[u8]) -> Vec<u16> {
        self.leaves(port, bytes).into_iter().map(|(to, _)| to).collect()
    }
    fn why(&mut self, port: u16, bytes: &[u8]) -> Option<Cause> {
        let decision = self.ask(port, bytes, 0);
        match (decision.ingress, decision.egress) {
            (Err(stop), _) => Some(stop.cause()),
            (Ok(_), Some(Err(cause))) => Some(cause),
            _ => None,
        }
    }
}

fn plain(dst: &str, src: &str) -> Vec<u8> {
    ether(dst, src).raw(EtherType::IPV4, [0; 46]).bytes()
}
fn tagged(dst: &str, src: &str, vlan: u16) -> Vec<u8> {
    ether(dst, src).vlan(vlan).raw(EtherType::IPV4, [0; 46]).bytes()
}
/// To all, with two tags of one type.
fn double(outer: u16, inner: u16) -> Vec<u8> {
    let mut frame =
        ether("ff:ff:ff:ff:ff:ff", A).vlan(outer).vlan(inner).raw(EtherType::IPV4, [0; 46]).bytes();
    frame[12..14].copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
    frame
}

#[test]
fn frames_go_where_their_destination_was_seen_and_to_all_others_before() {
    let mut lab = Lab::of(4, &[]);
    assert_eq!(lab.ports(0, &plain(B, A)), [1, 2, 3]);
    assert_eq!(lab.learn(B, 1, 2, 0), Learned::New);
    assert_eq!(lab.ports(0, &plain(B, A)), [2]);
    assert_eq!(lab.learn(B, 1, 3, 1), Learned::Moved);
    assert_eq!(lab.ports(0, &plain(B, A)), [3]);
    let own = lab.ask(3, &plain(B, A), 0);
    assert_eq!((own.egress, own.targets), (Some(Ok(Egress::Unicast(3))), vec![(3, Err(Cause::SamePort))]));
    assert_eq!(lab.ports(1, &plain("ff:ff:ff:ff:ff:ff", A)), [0, 2, 3]);
    assert_eq!(
        lab.ask(1, &plain("01:00:5e:00:00:01", A), 0).egress,
        Some(Ok(Egress::Flood(FloodKind::Multicast)))
    );
}

#[test]
fn a_static_address_stays_where_it_is_and_never_gets_old() {
    let mut lab = Lab::of(3, &[&format!("static p1 {B}")]);
    assert_eq!(lab.learn(B, 1, 2, 5), Learned::Stays);
    lab.switch.sweep_addresses(at(100_000));
    assert_eq!(lab.ports(0, &plain(B, A)), [1]);
    lab.tell("flush").unwrap();
    assert_eq!(lab.ports(0, &plain(B, A)), [1]);
    let found = lab.tell(&format!("static p2 {B}")).unwrap_err().to_string();
    assert_eq!(found, format!("{B} is known already; `deladdr {B}` forgets it"));
    lab.tell(&format!("deladdr {B}")).unwrap();
    assert_eq!(lab.ports(0, &plain(B, A)), [1, 2]);
    for wrong in ["static p9 2:0:0:0:0:9", &format!("deladdr {B}")] {
        assert!(lab.tell(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_full_table_learns_nothing_and_an_evicting_one_forgets_an_old_address() {
    let lab = Lab::of(2, &["maxaddr 3"]);
    let address = |n: u64| EtherAddr([2, 0, 0, 0, 0, n as u8]).to_string();
    let learned = |n: u64| lab.learn(&address(n), 1, 0, n);
    assert_eq!([1, 2, 3, 4].map(learned), [Learned::New, Learned::New, Learned::New, Learned::Full]);
    assert!(lab.switch.is_full() && lab.switch.show_addresses(at(9)).lines().count() == 3);
    lab.tell("evict").unwrap();
    assert!(!lab.switch.is_full());
    assert_eq!(learned(4), Learned::New);
    let known = lab.switch.show_addresses(at(9));
    assert!(known.lines().count() == 3 && known.contains(&address(4)), "{known}");
    lab.tell("-evict ifmaxaddr p0 2 flushall").unwrap();
    assert_eq!([1, 2, 3].map(learned), [Learned::New, Learned::New, Learned::Full]);
    assert_eq!(lab.learn(&address(3), 1, 1, 9), Learned::New);
    let found = lab.learn(&address(3), 1, 0, 9);
    assert_eq!(found, Learned::Full, "nor do addresses move to a port that has enough");
}

#[test]
fn who_floods_by_one_port_evicts_nobody_at_others() {
    let lab = Lab::of(3, &["maxaddr 400", "evict"]);
    let address = |port: u16, n: u64| EtherAddr([2, 0, 0, port as u8, (n >> 8) as u8, n as u8]).to_string();
    (0..100).for_each(|n| assert_eq!(lab.learn(&address(1, n), 1, 1, 5), Learned::New));
    (0..5000).for_each(|n| assert_eq!(lab.learn(&address(2, n), 1, 2, 6), Learned::New));
    assert!((0..100).all(|n| lab.learn(&address(1, n), 1, 1, 6) == Learned::Known));
    (0..5000).for_each(|n| assert_eq!(lab.learn(&address(2, n + 5000), 1, 2, 60), Learned::New));
    assert!(
        (0..100).all(|n| lab.learn(&address(1, n), 1, 1, 60) == Learned::Known),
        "however silent they were"
    );
    let flood = |seconds| {
        (0..20_000).filter(|n| lab.learn(&address(2, 10_000 + n), 1, 2, seconds) == Learned::TooFast).count()
    };
    assert_eq!([flood(70), flood(71)], [15_000, 15_000], "a tenth of a second's at once");
    assert_eq!(lab.learn(&address(1, 300), 1, 1, 71), Learned::New, "each port by itself");
}

#[test]
fn where_no_port_has_more_than_all_others_who_was_silent_goes_first() {
    const TABLES: usize = 8;
    let lost = || {
        let lab = Lab::of(3, &["maxaddr 400", "evict"]);
        let address =
            |port: u16, n: u64| EtherAddr([2, 0, 0, port as u8, (n >> 8) as u8, n as u8]).to_string();
        for (port, now) in [(0, 72), (1, 100), (2, 100)] {
            (0..133).for_each(|n| assert_eq!(lab.learn(&address(port, n), 1, port, now), Learned::New));
        }
        (0..20).for_each(|n| assert_eq!(lab.learn(&address(1, n + 500), 1, 1, 101), Learned::New));
        let known = lab.switch.show_addresses(at(101));
        (1..3).map(|port| (0..133).filter(|n| !known.contains(&address(port, *n))).count()).sum::<usize>()
    };
    // Among those that are compared there is none that was silent once in 70 tables, and then several are
    // lost. Without regard to age 13 would be lost of each.
    let lost: usize = (0..TABLES).map(|_| lost()).sum();
    assert!(lost < 5 * TABLES, "{lost} that were not silent");
}

#[test]
fn an_address_is_absent_when_its_time_is_over_and_gone_when_it_was_swept() {
    let mut lab = Lab::of(3, &[]);
    lab.learn(B, 1, 1, 0);
    let way = |lab: &mut Lab, seconds| lab.ask(0, &plain(B, A), seconds).egress;
    assert_eq!(way(&mut lab, 240), Some(Ok(Egress::Unicast(1))));
    assert_eq!(way(&mut lab, 241), Some(Ok(Egress::Flood(FloodKind::Unknown))));
    assert!(lab.switch.show_stats().contains("addresses 1\n"));
    (0..99).for_each(|_| lab.switch.sweep_addresses(at(240)));
    lab.tell("timeout 0").unwrap();
    assert_eq!(way(&mut lab, 900_000), Some(Ok(Egress::Unicast(1))));
    lab.tell("timeout 240").unwrap();
    (0..100).for_each(|_| lab.switch.sweep_addresses(at(241)));
    assert!(lab.switch.show_stats().contains("addresses 0\n"));
}

#[test]
fn an_address_that_moves_too_often_is_not_believed_for_a_while() {
    let lab = Lab::of(3, &[]);
    assert_eq!(lab.learn(B, 1, 0, 0), Learned::New);
    let moves: Vec<Learned> = (0..8).map(|n| lab.learn(B, 1, 1 - n % 2, 1)).collect();
    assert_eq!(moves[..5], [Learned::Moved; 5]);
    assert!(!moves[5..].contains(&Learned::Moved) && moves.contains(&Learned::Damped), "{moves:?}");
    assert_eq!(lab.learn(B, 1, 2, 11), Learned::Damped);
    assert_eq!(lab.learn(B, 1, 2, 23), Learned::Moved, "until it was quiet");
    let moves = lab.switch.show_moves(at(23));
    assert_eq!(moves.lines().filter(|line| !line.ends_with("damped")).count(), 6, "{moves}");
    assert!(moves.lines().last().unwrap().ends_with("p2"), "{moves}");
}

#[test]
fn learning_has_a_rate() {
    let domain = Domain::new();
    let mut config = Config::new("veb0");
    config.connect_port(Port::new("p0", Role::Member)).unwrap();
    config.limits = Limits { rate: 100, entries: 4096, ..config.limits };
    let switch = Switch::new(&domain, config).unwrap();
    let learned = (0..10_000_u64).filter(|n| {
        let now = at(0) + Duration::from_micros(n * 200);
        switch.learn_address(MacKey::new(n + 1, 1), 0, false, now) == Learned::New
    });
    assert!((200..=212).contains(&learned.count()));
}

#[test]
fn ports_in_a_common_group_do_not_talk_to_each_other() {
    let mut lab = Lab::of(31, &[]);
    for n in 0..31 {
        lab.tell(&format!("protected p{n} {}", n + 1)).unwrap();
    }
    assert_eq!(lab.ports(0, &plain(B, A)).len(), 30, "each has a group of its own");
    for (from, to) in (0..31_u16).flat_map(|from| (0..31_u16).map(move |to| (from, to))) {
        lab.tell(&format!("-protected p{to} protected p{to} {},{}", to + 1, from + 1)).unwrap();
        assert!(!lab.ports(from, &plain(B, A)).contains(&to), "{from} to {to}");
        lab.tell(&format!("protected p{to} {}", to + 1)).unwrap();
        assert_eq!(lab.ports(from, &plain(B, A)).contains(&to), from != to);
    }
    lab.learn(B, 1, 1, 0);
    lab.tell("protected p0 7 protected p1 7").unwrap();
    assert_eq!(lab.ask(0, &plain(B, A), 0).targets, [(1, Err(Cause::Protected))]);
}

#[test]
fn a_locked_port_takes_frames_from_addresses_that_are_known_there() {
    let mut lab = Lab::of(2, &["locked p0"]);
    assert_eq!(lab.why(0, &plain(B, A)), Some(Cause::Locked));
    lab.tell(&format!("static p0 {A}")).unwrap();
    assert_eq!(lab.why(0, &plain(B, A)), None);
    lab.tell(&format!("deladdr {A} static p1 {A}")).unwrap();
    assert_eq!(lab.why(0, &plain(B, A)), Some(Cause::Locked));
    assert!(lab.switch.show(at(0)).contains("\tp0 flags=200<LOCKED>\n"));
    lab.tell("learn p0").unwrap();
    assert_eq!(lab.why(0, &plain(B, A)), None);
}

#[test]
fn only_ip_and_arp_pass_a_port_that_blocks_the_rest_in_both_directions() {
    let mut lab = Lab::of(3, &["blocknonip p0"]);
    for (kind, passes) in
        [(0x0800, true), (0x0806, true), (0x8035, true), (0x86dd, true), (0x88cc, false), (0x0042, false)]
    {
        let frame = ether(B, A).raw(EtherType(kind), [0; 46]).bytes();
        assert_eq!(lab.why(0, &frame), (!passes).then_some(Cause::NonIp), "{kind:x}");
        assert_eq!(lab.ports(1, &frame).contains(&0), passes, "{kind:x}");
    }
}

#[test]
fn reserved_addresses_pass_as_link0_and_the_configuration_say() {
    let address = |last: u8| plain(&format!("01:80:c2:00:00:{last:02x}"), A);
    let passed =
        |lab: &mut Lab| (0..16).filter(|last| lab.why(0, &address(*last)).is_none()).collect::<Vec<u8>>();
    let mut lab = Lab::of(2, &[]);
    assert_eq!((passed(&mut lab), lab.why(0, &address(0))), (vec![], Some(Cause::Reserved)));
    lab.tell("link0").unwrap();
    assert_eq!(passed(&mut lab), [0, 0xb, 0xc, 0xd, 0xf]);
    assert_eq!(lab.why(0, &plain("01:80:c2:00:00:10", A)), None);
}

#[test]
fn the_same_address_in_two_vlans_is_two_stations() {
    let mut lab = Lab::of(4, &["untagged p2 7 untagged p3 7"]);
    lab.learn(B, 1, 1, 0);
    lab.learn(B, 7, 3, 0);
    assert_eq!((lab.ports(0, &plain(B, A)), lab.ports(2, &plain(B, A))), (vec![1], vec![3]));
    assert_eq!(lab.ports(0, &plain(C, A)), [1], "others of the VLAN only");
    lab.learn(C, 1, 2, 0);
    assert_eq!(lab.ask(0, &plain(C, A), 0).targets, [(2, Err(Cause::Vlan))]);
}

#[test]
fn tags_come_and_go_as_ports_want_them() {
    let mut lab = Lab::of(4, &["untagged p0 7 tagged p1 5-8 untagged p2 7 tagged p3 7"]);
    let all = "ff:ff:ff:ff:ff:ff";
    let found = lab.leaves(0, &plain(all, A));
    assert_eq!(found, [(1, TagRewrite::Tag(7)), (2, TagRewrite::Keep), (3, TagRewrite::Tag(7))]);
    let found = lab.leaves(1, &tagged(all, A, 7));
    assert_eq!(found, [(0, TagRewrite::Untag), (2, TagRewrite::Untag), (3, TagRewrite::Keep)]);
    let found = lab.leaves(0, &tagged(all, A, 0));
    assert_eq!(found, [(1, TagRewrite::Retag(7)), (2, TagRewrite::Untag), (3, TagRewrite::Retag(7))]);
    assert_eq!(lab.leaves(1, &tagged(all, A, 5)), []);
    lab.tell("txprio 3").unwrap();
    assert_eq!(lab.leaves(0, &plain(all, A))[0], (1, TagRewrite::Tag(0x6007)));
    let mut first_to_drop = tagged(all, A, 7);
    first_to_drop[14] |= 0x30;
    assert_eq!(lab.leaves(1, &first_to_drop)[2], (3, TagRewrite::Retag(0x7007)));
    for (port, frame) in [(1, tagged(all, A, 9)), (0, tagged(all, A, 7)), (1, tagged(all, A, 4095))] {
        assert_eq!(lab.why(port, &frame), Some(Cause::Vlan));
    }
    for (port, outer) in [(1, 7), (1, 0), (0, 0)] {
        assert_eq!(lab.why(port, &double(outer, 9)), Some(Cause::DoubleTag), "no hopping into another VLAN");
    }
    lab.tell("-untagged p0").unwrap();
    assert_eq!(lab.why(0, &plain(all, A)), Some(Cause::Vlan));
}

#[test]
fn priorities_come_from_tags_or_headers_and_go_into_tags() {
    let mut lab = Lab::of(3, &["tagged p1 7", "tagged p2 7", "untagged p0 7"]);
    let all = "ff:ff:ff:ff:ff:ff";
    let four = |tos| ether(all, A).ip4(ip4().tos(tos).udp(1, 2)).bytes();
    let mut six = ether(all, A).ip6(ip6().udp(1, 2)).bytes();
    six[14] |= 0xa;
    let mut within = ether(all, A).vlan(7).ip4(ip4().tos(0xc0).udp(1, 2)).bytes();
    within[14] |= 0x20;
    let leaves = |lab: &mut Lab, port, frame: &[u8]| lab.leaves(port, frame).pop().unwrap().1;
    for (words, of_four, of_six, of_tagged) in [
        ("txprio packet rxprio outer", TagRewrite::Tag(7), TagRewrite::Tag(7), TagRewrite::Keep),
        (
            "txprio packet rxprio 4",
            TagRewrite::Tag(0x8007),
            TagRewrite::Tag(0x8007),
            TagRewrite::Retag(0x8007),
        ),
        (
            "txprio packet rxprio payload",
            TagRewrite::Tag(0xe007),
            TagRewrite::Tag(0xa007),
            TagRewrite::Retag(0xc007),
        ),
        (
            "txprio payload rxprio 1",
            TagRewrite::Tag(0xe007),
            TagRewrite::Tag(0xa007),
            TagRewrite::Retag(0xc007),
        ),
        ("txprio 0 rxprio payload", TagRewrite::Tag(7), TagRewrite::Tag(7), TagRewrite::Retag(7)),
    ] {
        lab.tell(words).unwrap();
        assert_eq!(leaves(&mut lab, 0, &four(0xe0)), of_four, "{words}");
        assert_eq!(leaves(&mut lab, 0, &six), of_six, "{words}");
        assert_eq!(leaves(&mut lab, 1, &within), of_tagged, "{words}");
    }
    assert_eq!(leaves(&mut lab, 0, &plain(all, A)), TagRewrite::Tag(7), "no header, no priority");
}

#[test]
fn a_new_port_has_no_tags_and_with_link0_they_pass_as_what_is_carried() {
    let mut lab = Lab::of(3, &[]);
    let all = "ff:ff:ff:ff:ff:ff";
    let service = ether(all, A).raw(EtherType::QINQ, [0; 46]).bytes();
    for frame in [tagged(all, A, 1), tagged(all, A, 9), service.clone()] {
        assert_eq!(lab.why(0, &frame), Some(Cause::Vlan));
    }
    lab.tell("link0").unwrap();
    for frame in [tagged(all, A, 1), tagged(all, A, 9), service, double(0, 9)] {
        assert_eq!(lab.leaves(0, &frame), [(1, TagRewrite::Keep), (2, TagRewrite::Keep)]);
    }
}

#[test]
fn the_host_keeps_what_is_not_the_switchs() {
    let mut lab = Lab::of(2, &["untagged p0 passthrough tagged p0 7 tagged p1 7"]);
    let entered = |lab: &mut Lab, frame: &[u8]| lab.ask(0, frame, 0).ingress;
    assert_eq!(entered(&mut lab, &plain(B, A)), Err(Stop::Host(Cause::Passthrough)));
    assert_eq!(lab.ports(0, &tagged(B, A, 7)), [1]);
    assert_eq!(lab.ports(1, &plain(B, A)), []);
    lab.tell("del p0").unwrap();
    assert_eq!(entered(&mut lab, &tagged(B, A, 7)), Err(Stop::Host(Cause::Detached)));
    lab.tell("add p0 down").unwrap();
    assert_eq!(entered(&mut lab, &plain(B, A)), Err(Stop::Host(Cause::Down)));
}

#[test]
fn copies_are_made_of_what_is_dropped_later_too_and_span_ports_take_nothing() {
    let mut lab = Lab::new(4, 2);
    ["addspan p2", "blocknonip p0", "rule block in on p1"].iter().for_each(|line| lab.tell(line).unwrap());
    let other = ether(B, A).raw(EtherType(0x88b5), [0; 46]).bytes();
    let decision = lab.ask(0, &other, 0);
    assert_eq!((decision.copies, decision.ingress), (vec![2], Err(Stop::Drop(Cause::NonIp))));
    assert_eq!(lab.ask(1, &plain(B, A), 0).copies, [2]);
    assert_eq!(lab.why(1, &plain(B, A)), Some(Cause::Rule));
    assert_eq!((lab.why(2, &plain(B, A)), lab.ports(0, &plain(B, A))), (Some(Cause::SpanInput), vec![1]));
    assert!(lab.switch.show(at(0)).contains("\tp2 flags=100<SPAN>\n\tAddresses"));
    for (line, said) in [
        ("del p2", "p2 is a span port; `delspan p2` ends that"),
        ("delspan p0", "p0 is not a span port; `del p0` takes it out"),
        ("learn p2", "p2 is a span port; `delspan p2` ends that"),
        ("add p0", "p0 is in the switch already"),
        ("learn p3", "p3 is not in the switch; `add p3` puts it in"),
        (
            "add p9",
            "p9 is not connected to the switch: name it where that is made, by PORT or in its hostname file, \
             and restart",
        ),
        (
            "destroy",
            "'destroy' is not for the switch itself: artery ifconfig reads a rulefile, and a switch goes \
             with its router",
        ),
        ("stp p0", "this switch takes part in no spanning tree"),
    ] {
        assert_eq!(lab.tell(line).unwrap_err().to_string(), said, "{line}");
    }
}

#[test]
fn rules_decide_in_their_order_for_each_way_and_mark_for_the_filter() {
    let mut lab =
        Lab::of(3, &[&format!("rule match in on p0 src {A} tag lab"), "rule block out on p2", "link1"]);
    let decision = lab.ask(0, &plain(B, A), 0);
    let entered = decision.ingress.unwrap();
    assert_eq!((entered.mark.as_deref(), entered.is_filtered), (Some("lab"), true));
    assert_eq!(decision.targets[2], (2, Err(Cause::Rule)));
    lab.tell("rule match out on p1 tag hall").unwrap();
    let targets = lab.ask(0, &plain(B, A), 0).targets;
    assert_eq!(targets[1].1.as_ref().unwrap().mark.as_deref(), Some("hall"));
    let arp = ether(B, A).raw(EtherType::ARP, [0; 28]).bytes();
    assert!(!lab.ask(0, &arp, 0).ingress.unwrap().is_filtered);
    lab.tell("tagged p0 9").unwrap();
    assert!(!lab.ask(0, &tagged(B, A, 9), 0).ingress.unwrap().is_filtered, "filters see what has no tag");
}

#[test]
fn the_spanning_tree_holds_ports_back() {
    let mut lab = Lab::of(3, &[]);
    lab.switch.set_state(0, PortState::Learning);
    let decision = lab.ask(0, &plain(B, A), 0);
    assert_eq!((decision.learns.is_some(), decision.egress), (true, Some(Err(Cause::Blocked))));
    assert_eq!(lab.ports(1, &plain(B, A)), [2]);
    lab.switch.set_state(0, PortState::Discarding);
    assert_eq!(lab.why(0, &plain(B, A)), Some(Cause::Blocked));
    lab.switch.set_state(0, PortState::Forwarding);
    lab.switch.set_running(1, false);
    assert_eq!(lab.ports(0, &plain(B, A)), [2]);
    lab.learn(B, 1, 2, 0);
    lab.switch.flush_port(2);
    assert!(lab.switch.show_addresses(at(0)).is_empty());
}

#[test]
fn storms_are_held_down_by_kind_and_port() {
    let mut lab = Lab::of(2, &["storm p0 broadcast 10"]);
    let turn = lab.reader.turn();
    let view = lab.switch.view(&turn);
    let passed = |port, many| {
        (0..1000)
            .filter(|n| lab.switch.may_flood(view, port, many, at(0) + Duration::from_millis(*n)))
            .count()
    };
    assert_eq!(StormKind::ALL.map(|kind| kind as usize), [0, 1, 2]);
    assert!((10..=11).contains(&passed(0, FloodKind::Broadcast)));
    assert_eq!((passed(0, FloodKind::Unknown), passed(1, FloodKind::Broadcast)), (1000, 1000));
}

proptest! {
    /// The table against a map of what was learned, with the limits that hold.
    #[test]
    fn what_is_learned_is_what_a_map_would_know(
        steps in prop::collection::vec((0..5_u8, 0..20_u64, 0..3_u16, 0..30_u64), 1..150),
        most in 1..12_u32,
    ) {
        let lab = Lab::of(3, &["timeout 60", &format!("maxaddr {most}")]);
        let mut model: HashMap<u64, (u16, bool, u64)> = HashMap::new();
        let mut now = 0;
        for (step, address, port, passed) in steps {
            now += passed;
            let key = MacKey::new(address + 1, 1);
            let mac = key.address();
            match step {
                0 => {
                    let told = lab.switch.apply_command(
                        &Command::Static { port: format!("p{port}"), address: mac, vlan: None },
                        at(now),
                    );
                    let was = model.get(&address).copied();
                    let has_room = model.len() < most as usize || was.is_some();
                    prop_assert_eq!(told.is_ok(), has_room && was.is_none_or(|was| !was.1));
                    if told.is_ok() {
                        model.insert(address, (port, true, now));
                    } else if !has_room && was.is_some_and(|was| !was.1) {
                        model.remove(&address);
                    }
                }
                1 => {
                    let told =
                        lab.switch.apply_command(&Command::DelAddress { address: mac, vlan: None }, at(now));
                    prop_assert_eq!(told.is_ok(), model.remove(&address).is_some());
                }
                2 => {
                    (0..100).for_each(|_| lab.switch.sweep_addresses(at(now)));
                    model.retain(|_, (_, is_static, seen)| *is_static || now - *seen <= 60);
                }
                _ => {
                    let learned = lab.switch.learn_address(key, port, false, at(now));
                    match (learned, model.get(&address).copied()) {
                        (Learned::New, None) => prop_assert!(
                            model.insert(address, (port, false, now)).is_none()
                                && model.len() <= most as usize
                        ),
                        (Learned::Full, None) => prop_assert_eq!(model.len(), most as usize),
                        (Learned::Known, Some((at, is_static, _))) => {
                            prop_assert_eq!(at, port);
                            if !is_static {
                                model.insert(address, (port, false, now));
                            }
                        }
                        (Learned::Moved, Some((at, false, _))) => {
                            prop_assert!(at != port);
                            model.insert(address, (port, false, now));
                        }
                        (Learned::Stays, Some((_, true, _))) | (Learned::Damped, Some((_, false, _))) => {}
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
            }
            let listed = lab.switch.show_addresses(at(now));
            let current = model.iter().filter(|(_, (_, is_static, seen))| *is_static || now - *seen <= 60);
            prop_assert_eq!(listed.lines().count(), current.count(), "{}", listed);
        }
    }
}
