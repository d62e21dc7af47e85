//! What is explained is what happens, and explaining it changes nothing.
use crate::world::{ACK, EM0, EM1, SYN, SYN_ACK, World};
use artery_filter::dissect::FilterDropReason;
use artery_filter::engine::{FilterBasis, FilterVerdict};
use artery_filter::evaluate::RuleId;
use artery_filter::facts::{Direction, Interface};
use artery_filter::options::Limit;
use artery_filter::rule::StateKeeping;
use artery_filter::states::Verbosity;
use artery_wire::IcmpType;
use artery_wire::build::{ip4, ip6};

const RULES: [&str; 7] = [
    "",
    "block return\npass in on em1 inet proto { tcp, udp } from 10.0.0.0/24 tag LAN\npass out tagged LAN\n\
     pass out on em0 inet from 10.0.0.0/24 nat-to 192.0.2.1",
    "pass\nmatch out on em0 from 10.0.0.0/24 nat-to { 192.0.2.7, 192.0.2.8 } round-robin sticky-address\n\
     block drop out proto udp to port 53",
    "pass in on em0 proto tcp to 192.0.2.1 port 80 rdr-to 10.0.0.9 port 8080\npass out once\n\
     block in proto icmp",
    "pass no state\npass in proto udp max-pkt-rate 1/10\nblock in on em1 from 10.0.0.7",
    "table <bad> { 10.0.0.8 }\nblock in quick from <bad>\nanchor in on em1 {\n  pass proto tcp\n}\n\
     pass in proto icmp route-to 192.0.2.9",
    "set skip on em1\nblock all",
];

/// Packets, and where they are.
fn packets() -> Vec<(Interface, Direction, Vec<u8>)> {
    let (inside, outside) = ([10, 0, 0, 7], "7.7.7.7");
    let mut all = Vec::new();
    for host in [7, 8] {
        let from = || ip4().src([10, 0, 0, host]).dst(outside);
        for packet in [
            from().udp(1000, 53).payload([1; 9]).bytes(),
            from().tcp(1000, 80).flags(SYN).seq(5).bytes(),
            from().icmp_echo(9, 1).payload([7; 20]).bytes(),
        ] {
            all.push((EM1, Direction::In, packet.clone()));
            all.push((EM0, Direction::Out, packet));
        }
    }
    let open = ip4().src(outside).dst("192.0.2.1").tcp(80, 1000).flags(SYN_ACK).seq(77).ack(6);
    let new = ip4().src(outside).dst("192.0.2.1").tcp(4000, 80).flags(SYN).seq(1);
    let stray = ip4().src(inside).dst(outside).tcp(1000, 80).flags(ACK).seq(6).ack(78);
    let six = ip6().src("fd00::9").dst("2001:db8:7::7").udp(1000, 53).payload([2; 4]);
    all.push((EM0, Direction::In, open.bytes()));
    all.push((EM0, Direction::In, new.bytes()));
    all.push((EM1, Direction::In, stray.bytes()));
    all.push((EM1, Direction::In, six.bytes()));
    all.push((EM1, Direction::In, vec![0x45; 3]));
    all
}

#[test]
fn what_is_explained_happens() {
    for rules in RULES {
        let mut world = World::new(rules);
        // Twice: the second time around there are states, `once` has been and a rate is reached.
        for (interface, direction, packet) in packets().into_iter().chain(packets()) {
            let (said, expected) = world.explain(interface, direction, &packet);
            let mut bytes = packet.clone();
            let verdict = world.test(interface, direction, &mut bytes);
            let what = format!("{rules}\n{interface:?} {direction:?} {packet:02x?}: {said:?}, {verdict:?}");
            match verdict {
                FilterVerdict::Pass(passed) => {
                    assert!(said.basis.is_pass() && bytes == expected && passed.tag == said.tag, "{what}");
                    assert_eq!(world.filter.route_to().gateway.is_some(), said.gateway.is_some(), "{what}");
                }
                FilterVerdict::Drop(FilterDropReason::Match) => {
                    assert!(matches!(said.basis, FilterBasis::Block(_)), "{what}");
                }
                // The sequence number of a question is what a connection expects.
                FilterVerdict::Drop(FilterDropReason::StateMismatch) => {
                    assert_eq!(said.basis, FilterBasis::State, "{what}");
                }
                FilterVerdict::Drop(reason) => assert_eq!(said.basis, FilterBasis::Drop(reason), "{what}"),
                other => panic!("{other:?}: {what}"),
            }
        }
    }
}

#[test]
fn a_question_changes_nothing() {
    for rules in RULES {
        let (mut asked, mut other) = (World::new(rules), World::new(rules));
        for (interface, direction, packet) in packets().into_iter().chain(packets()) {
            for _ in 0..3 {
                let (states, totals) = (asked.list(Verbosity::VeryVerbose), asked.totals());
                asked.explain(interface, direction, &packet);
                assert_eq!(asked.list(Verbosity::VeryVerbose), states, "{rules}");
                assert_eq!(asked.totals(), totals, "{rules}");
                assert!(!asked.filter.has_news(), "{rules}");
            }
            let [one, two] = [&mut asked, &mut other].map(|world| {
                let mut bytes = packet.clone();
                let verdict = world.test(interface, direction, &mut bytes);
                world.filter.drain_replies();
                (verdict, bytes, world.list(Verbosity::VeryVerbose))
            });
            assert_eq!(one, two, "{rules}");
        }
    }
}

#[test]
fn it_is_told_which_rule_decides_and_what_becomes_of_fragments_and_errors() {
    let mut world = World::new("block\npass out on em0 proto udp");
    let asked = ip4().src("10.0.0.9").dst("7.7.7.7").udp(1000, 53).payload([3; 21]).bytes();
    let (said, _) = world.explain(EM0, Direction::Out, &asked);
    assert_eq!((said.basis, said.rule), (FilterBasis::Pass(StateKeeping::Keep), Some(RuleId(1))));
    let (said, _) = world.explain(EM1, Direction::In, &asked);
    assert_eq!(said.rule, Some(RuleId(0)));
    world.leaves(asked.clone());
    let (said, _) = world.explain(EM0, Direction::Out, &asked);
    assert_eq!((said.basis, said.rule), (FilterBasis::State, Some(RuleId(1))));
    let error = ip4().src("7.7.7.1").dst("10.0.0.9").icmp(IcmpType::UNREACHABLE, 3, [0; 4]);
    let error = error.payload(&asked[..]).bytes();
    assert_eq!(world.explain(EM0, Direction::In, &error).0.basis, FilterBasis::QuotedState);
    let fragment = ip4().src("10.0.0.9").dst("7.7.7.7").fragment(0, true).udp(1000, 53).payload([3; 32]);
    assert_eq!(world.explain(EM0, Direction::Out, &fragment.bytes()).0.basis, FilterBasis::Fragment);
    assert!(world.filter.settings().limits.limit(Limit::States) > 0);
    world.disable();
    assert_eq!(world.explain(EM1, Direction::In, &asked).0.basis, FilterBasis::Disabled);
}
