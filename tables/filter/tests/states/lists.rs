//! `pfctl -s states`, `-k`, and the log.
use super::connections::{client, connect, server};
use crate::world::{ACK, World};
use artery_filter::dissect::FilterDropReason;
use artery_filter::engine::FilterEvent;
use artery_filter::facts::Direction;
use artery_filter::log::{LogAction, LogRecord};
use artery_filter::states::{StateSelector, Verbosity};
use artery_wire::build::{ip4, ip6};

#[test]
fn states_are_listed_as_pfctl_prints_them() {
    let mut world = World::new("pass");
    connect(&mut world);
    world.leaves(ip4().src("10.0.0.9").dst("7.7.7.7").udp(1000, 53));
    world.comes(ip6().src("2001:db8:7::7").dst("2001:db8::9").udp(5, 6));
    world.comes(ip4().src("7.7.7.7").dst("10.0.0.9").icmp_echo(77, 1));
    world.leaves(ip4().src("10.0.0.9").dst("7.7.7.7").raw(47, [0; 8]));
    let expected = "all tcp 10.0.0.9:1234 -> 7.7.7.7:80       ESTABLISHED:ESTABLISHED\n\
                    all udp 10.0.0.9:1000 -> 7.7.7.7:53       SINGLE:NO_TRAFFIC\n\
                    all udp 2001:db8::9[6] <- 2001:db8:7::7[5]       NO_TRAFFIC:SINGLE\n\
                    all icmp 10.0.0.9:8 <- 7.7.7.7:77       0:0\n\
                    all gre 10.0.0.9 -> 7.7.7.7       SINGLE:NO_TRAFFIC\n";
    assert_eq!(world.list(Verbosity::Plain), expected);
}

#[test]
fn verbose_lists_tell_numbers_ages_and_ids() {
    let mut world = World::new("block in\npass out");
    connect(&mut world);
    world.comes(server().flags(ACK).seq(5001).ack(1001).payload([1; 9]));
    world.sleep(3661.0);
    let expected = "all tcp 10.0.0.9:1234 -> 7.7.7.7:80       ESTABLISHED:ESTABLISHED\n\
                    \u{20}  [1000 + 8001]  [5010 + 7991]\n\
                    \u{20}  age 01:01:01, expires in 22:58:59, 2:2 pkts, 80:89 bytes, rule 1\n\
                    \u{20}  id: 0000000000000001 creatorid: 00000001\n";
    assert_eq!(world.list(Verbosity::VeryVerbose), expected);
}

#[test]
fn translated_ends_are_listed_with_what_they_are_inside() {
    let mut world = World::new(
        "pass out inet from 10.0.0.0/24 nat-to 192.0.2.1 port 60000\n\
                                pass in proto tcp to 192.0.2.1 port 80 rdr-to 10.0.0.80 port 8080",
    );
    world.leaves(ip4().src("10.0.0.9").dst("7.7.7.7").udp(1000, 53));
    world.comes(ip4().src("7.7.7.7").dst("192.0.2.1").tcp(5, 80));
    let expected = "all udp 192.0.2.1:60000 (10.0.0.9:1000) -> 7.7.7.7:53       SINGLE:NO_TRAFFIC\n\
                    all tcp 10.0.0.80:8080 (192.0.2.1:80) <- 7.7.7.7:5       CLOSED:SYN_SENT\n";
    assert_eq!(world.list(Verbosity::Plain), expected);
}

#[test]
fn states_are_killed_by_host_label_id_and_key() {
    let rules = "pass out label web\npass in label other";
    let fill = || {
        let mut world = World::new(rules);
        world.leaves(client().seq(1));
        world.leaves(ip4().src("10.0.0.8").dst("7.7.7.8").udp(1, 2));
        world.comes(ip4().src("10.0.0.9").dst("7.7.7.7").udp(5, 6));
        world
    };
    let net = |text: &str, length| (text.parse().unwrap(), length);
    let ends = [("7.7.7.7".parse().unwrap(), 6), ("10.0.0.9".parse().unwrap(), 5)];
    for (kill, killed) in [
        (StateSelector::Hosts { source: net("10.0.0.9", 32), destination: None }, 2),
        (StateSelector::Hosts { source: net("10.0.0.0", 24), destination: None }, 3),
        (StateSelector::Hosts { source: net("10.0.0.0", 24), destination: Some(net("7.7.7.8", 32)) }, 1),
        (StateSelector::Hosts { source: net("7.7.7.7", 32), destination: None }, 0),
        (StateSelector::Label("web".into()), 2),
        (StateSelector::Label("none".into()), 0),
        (StateSelector::Id { id: 2, creator: None }, 1),
        (StateSelector::Id { id: 2, creator: Some(5) }, 0),
        (StateSelector::Key { protocol: artery_wire::IpProtocol::UDP, direction: Direction::In, ends }, 1),
        (StateSelector::Key { protocol: artery_wire::IpProtocol::UDP, direction: Direction::Out, ends }, 0),
    ] {
        let mut world = fill();
        assert_eq!(world.kill(kill.clone()), killed, "{kill:?}");
        assert_eq!(world.states(), 3 - killed);
    }
}

/// What was logged since it was asked last; nothing else happened.
fn logged<T>(world: &mut World, what: impl Fn(&LogRecord) -> T) -> Vec<T> {
    let record = |event| match event {
        FilterEvent::Log(record) => what(&record),
        other => panic!("{other:?}"),
    };
    world.events().into_iter().map(record).collect()
}

#[test]
fn what_rules_log_is_told_with_rule_and_reason() {
    let mut world = World::new("block in log\npass out log (all)\nmatch out log");
    world.refuses(ip4().udp(1, 2), FilterDropReason::Match);
    world.leaves(ip4().udp(1, 2));
    world.leaves(ip4().udp(1, 2));
    let logged = logged(&mut world, |record| (record.action, record.rule, record.direction));
    let expected = [
        (LogAction::Block, Some(0), Direction::In),
        (LogAction::Match, Some(2), Direction::Out),
        (LogAction::Pass, Some(1), Direction::Out),
        (LogAction::Pass, Some(1), Direction::Out),
    ];
    assert_eq!(logged.len(), expected.len());
    assert!(expected.iter().all(|record| logged.contains(record)), "{logged:?}");
}

#[test]
fn rules_that_another_asked_to_hear_of_are_logged_with_what_they_say_themselves() {
    let rules = "match in log (matches)\nblock in proto udp\npass in proto udp from port 7\n\
        block in proto udp to port 9";
    let mut world = World::new(rules);
    world.comes(ip4().udp(7, 2));
    world.refuses(ip4().udp(7, 9), FilterDropReason::Match);
    let logged = logged(&mut world, |record| (record.action, record.rule));
    use LogAction::{Block, Match, Pass};
    let first = [(Match, Some(0)), (Block, Some(1)), (Pass, Some(2))];
    let second = [&first[..], &[(Block, Some(3))]].concat();
    for record in first.iter().chain(&second) {
        assert!(logged.contains(record), "{record:?}: {logged:?}");
    }
    assert_eq!(logged.len(), first.len() + second.len(), "{logged:?}");
}
