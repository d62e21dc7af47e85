//! Tests of commands as words.
use super::*;
use proptest::prelude::*;
use std::net::Ipv4Addr;

fn read(line: &str) -> Result<Vec<Command>, String> {
    parse(&line.split_whitespace().collect::<Vec<_>>()).map_err(|error| error.to_string())
}

/// Commands as they are printed, whatever words they came from.
fn printed(line: &str) -> String {
    let commands = read(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    commands.iter().map(Command::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn the_lines_of_a_first_switch_are_read() {
    assert_eq!(read("add cnmac0"), Ok(vec![Command::Add("cnmac0".into())]));
    assert_eq!(read("up"), Ok(vec![Command::Up]));
    assert_eq!(read(""), Ok(Vec::new()));
    assert_eq!(printed("add em0 add em1 link1 -link0 up"), "add em0; add em1; link1; -link0; up");
}

#[test]
fn each_command_is_printed_in_its_canonical_words() {
    for (line, expected) in [
        ("static em0 0:1:2:A:B:C@010", "static em0 00:01:02:0a:0b:0c@10"),
        ("deladdr 02-00-00-00-00-01", "deladdr 02:00:00:00:00:01"),
        ("protected em0 31,2,2,1", "protected em0 1,2,31"),
        ("tagged em0 3,1,2,9", "tagged em0 1-3,9"),
        ("tagged em0 +10-20", "tagged em0 +10-20"),
        ("tagged em0 -10,11", "tagged em0 -10-11"),
        ("untagged em0 passthrough -untagged em1", "untagged em0 passthrough; -untagged em1"),
        ("-vnetid", "-vnetid"),
        ("rxprio outer txprio 07", "rxprio outer; txprio 7"),
        ("ifcost em0 20000 -ifcost em1", "ifcost em0 20000; -ifcost em1"),
        ("-storm em0 unknown", "-storm em0 unknown"),
        ("snoop querier 10.0.0.1 groups", "snoop; querier 10.0.0.1; groups"),
        (
            "-snoop -querier fastleave em0 -mcastrouter em1 hairpin em0 nobroadcast em1 -nomulticast em1",
            "-snoop; -querier; fastleave em0; -mcastrouter em1; hairpin em0; nobroadcast em1; -nomulticast \
             em1",
        ),
        ("rule block on em0", "rule block in/out on em0"),
        (
            "rule pass in on em0 dst ff:ff:ff:ff:ff:ff src 2:0:0:0:0:1 tag guests",
            "rule pass in on em0 src 02:00:00:00:00:01 dst ff:ff:ff:ff:ff:ff tag guests",
        ),
        (
            "rule block out on em0 arp reply tpa 10.0.0.2 spa 10.0.0.1 tha 2:0:0:0:0:2 sha 2:0:0:0:0:1",
            "rule block out on em0 arp reply sha 02:00:00:00:00:01 tha 02:00:00:00:00:02 spa 10.0.0.1 tpa \
             10.0.0.2",
        ),
        ("rule match in/out on em0 rarp tag t", "rule match in/out on em0 tag t rarp"),
    ] {
        assert_eq!(printed(line), expected, "{line}");
    }
}

#[test]
fn numbers_are_held_to_their_bounds() {
    let bounds: [(&str, &[u32], &[u32]); 13] = [
        ("maxaddr", &[1, MOST_ADDRESSES], &[0, MOST_ADDRESSES + 1]),
        ("ifmaxaddr em0", &[1, MOST_ADDRESSES], &[0, MOST_ADDRESSES + 1]),
        ("timeout", &[0, 8, 3600], &[1, 7, 3601]),
        ("vnetid", &[1, 4094], &[0, 4095]),
        ("untagged em0", &[1, 4094], &[0, 4095]),
        ("protected em0", &[1, 31], &[0, 32]),
        ("txprio", &[0, 7], &[8]),
        ("spanpriority", &[0, 4096, 61440], &[1, 4095, 65536]),
        ("hellotime", &[1, 2], &[0, 3]),
        ("fwddelay", &[4, 30], &[3, 31]),
        ("maxage", &[6, 40], &[5, 41]),
        ("holdcnt", &[1, 10], &[0, 11]),
        ("ifpriority em0", &[0, 16, 240], &[8, 256]),
    ];
    for (command, good, bad) in bounds {
        for number in good {
            let line = format!("{command} {number}");
            assert_eq!(printed(&line), line);
        }
        for number in bad {
            let error = read(&format!("{command} {number}")).unwrap_err();
            assert!(error.starts_with(&format!("'{command} {number}': not '{number}', but ")), "{error}");
        }
    }
}

#[test]
fn what_is_wrong_is_named_with_the_remedy() {
    for (line, expected) in [
        ("add", "'add' needs the name of an interface, as in 'add em0'"),
        ("up add -link0", "'add -link0': not '-link0', but the name of an interface, as in 'add em0'"),
        ("lern em0", "'lern' is not a command of a switch; did you mean 'learn'?"),
        ("-discovr em0", "'-discovr' is not a command of a switch; did you mean 'discover'?"),
        ("media", "'media' is not a command of a switch"),
        (
            "inet 10.0.0.1",
            "'inet' is not a command of a switch: a switch has no address; 'add vport0' gives the host a \
             port of it, and 'ip address add' that an address",
        ),
        (
            "span em1",
            "'span' is not a command of a switch: 'addspan em0' has em0 get copies of all frames, and \
             'delspan em0' ends that",
        ),
        ("maxaddr many", "'maxaddr many': not 'many', but a number from 1 to 4194304, as in 'maxaddr 100'"),
        (
            "spanpriority 100",
            "'spanpriority 100': not '100', but a number from 0 to 61440 that 4096 divides, as in \
             'spanpriority 32768'",
        ),
        (
            "timeout 5",
            "'timeout 5': not '5', but seconds from 8 to 3600, or 0 for never, as in 'timeout 240'",
        ),
        (
            "querier 224.0.0.1",
            "'querier 224.0.0.1': not '224.0.0.1', but the IPv4 address of the one who asks, as in 'querier \
             192.0.2.1'",
        ),
        ("rule", "'rule' needs 'block', 'pass' or 'match', as in 'rule pass'"),
        (
            "rule pass em0",
            "'rule pass em0': not 'em0', but 'in', 'out' or 'in/out', or at once 'on' and an interface, as \
             in 'rule pass on em0'",
        ),
        ("rule pass in on em0 scr", "'scr' is not a part of a rule; did you mean 'src'?"),
        (
            "rule pass in on em0 spa 10.0.0.1",
            "'spa' is not a part of a rule unless 'arp' or 'rarp' stands before it; did you mean 'arp'?",
        ),
        ("rule pass in on em0 arp rarp", "'rarp' is said twice; leave one of them out"),
        (
            "rule match in on em0",
            "'rule match in on em0' needs a tag, as nothing else comes of it, such as 'tag guests'",
        ),
    ] {
        assert_eq!(read(line), Err(expected.to_string()), "{line}");
    }
    let error = parse(&["up", "maxaddr", "0"]).unwrap_err();
    assert_eq!((error.word(), parse(&["ifcost"]).unwrap_err().word()), ("0", "ifcost"));
}

#[test]
fn addresses_of_groups_and_of_none_can_not_stay_at_a_port() {
    for address in ["ff:ff:ff:ff:ff:ff", "1:0:5e:0:0:1", "0:0:0:0:0:0", "2:0:0:0:0:1@0", "2:0:0:0:0:1@"] {
        assert!(read(&format!("static em0 {address}")).is_err(), "{address}");
    }
}

#[test]
fn a_rule_of_a_file_needs_no_word_before_it() {
    let rule =
        |line: &str| parse_rule(&line.split_whitespace().collect::<Vec<_>>()).map(|rule| rule.to_string());
    assert_eq!(rule("pass in on em0"), Ok("pass in on em0".into()));
    assert_eq!(rule("rule pass in on em0"), Ok("pass in on em0".into()));
    assert!(rule("").is_err() && rule("up").is_err());
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_@:][a-zA-Z0-9_.@:-]{0,14}"
}

fn ether() -> impl Strategy<Value = EtherAddr> {
    any::<[u8; 6]>().prop_map(EtherAddr)
}

fn station() -> impl Strategy<Value = EtherAddr> {
    let is_station = |ether: &EtherAddr| !ether.is_group() && *ether != EtherAddr::ZERO;
    ether()
        .prop_map(|EtherAddr([a, rest @ ..])| {
            EtherAddr([a & 0xfe, rest[0], rest[1], rest[2], rest[3], rest[4]])
        })
        .prop_filter("a unicast address", is_station)
}

fn vlan() -> impl Strategy<Value = VlanId> {
    (1..=4094_u16).prop_filter_map("a VLAN", VlanId::new)
}

fn vlans() -> impl Strategy<Value = VlanSet> {
    proptest::collection::vec(vlan(), 1..20).prop_map(VlanSet::from_iter)
}

fn arp() -> impl Strategy<Value = ArpRule> {
    let kind = prop_oneof![Just(ArpKind::Arp), Just(ArpKind::Rarp)];
    let operation = prop_oneof![Just(ArpOperation::Request), Just(ArpOperation::Reply)];
    let link = || proptest::option::of(ether());
    let ip = || proptest::option::of(any::<Ipv4Addr>());
    (kind, proptest::option::of(operation), link(), link(), ip(), ip()).prop_map(
        |(kind, operation, sender_link, target_link, sender, target)| ArpRule {
            kind,
            operation,
            sender_link,
            target_link,
            sender,
            target,
        },
    )
}

fn rule() -> impl Strategy<Value = Rule> {
    let action = prop_oneof![Just(RuleAction::Block), Just(RuleAction::Pass), Just(RuleAction::Match)];
    let direction = prop_oneof![Just(RuleDirection::In), Just(RuleDirection::Out), Just(RuleDirection::Both)];
    let link = || proptest::option::of(ether());
    let tag = proptest::option::of("[!-~]{1,63}");
    (action, direction, name(), link(), link(), tag, proptest::option::of(arp())).prop_map(
        |(action, direction, port, source, destination, tag, arp)| {
            let tag = tag.or_else(|| (action == RuleAction::Match).then(|| "t".to_string()));
            Rule { action, direction, port, source, destination, tag, arp }
        },
    )
}

fn spanning_tree() -> impl Strategy<Value = SpanningTree> {
    prop_oneof![
        prop_oneof![Just(StpProtocol::Rstp), Just(StpProtocol::Stp)].prop_map(SpanningTree::Protocol),
        (0..=15_u16).prop_map(|n| SpanningTree::Priority(n * 4096)),
        (1..=2_u8).prop_map(SpanningTree::HelloTime),
        (4..=30_u8).prop_map(SpanningTree::ForwardDelay),
        (6..=40_u8).prop_map(SpanningTree::MaxAge),
        (1..=10_u8).prop_map(SpanningTree::HoldCount),
        (name(), 0..=15_u8).prop_map(|(port, n)| SpanningTree::PortPriority { port, priority: n * 16 }),
        (name(), proptest::option::of(1..=200_000_000_u32))
            .prop_map(|(port, cost)| SpanningTree::PortCost { port, cost }),
    ]
}

fn priority() -> impl Strategy<Value = Priority> {
    prop_oneof![(0..=7_u8).prop_map(Priority::Fixed), Just(Priority::Packet), Just(Priority::Payload)]
}

fn of_switch() -> impl Strategy<Value = Command> {
    prop_oneof![
        proptest::sample::select(vec![
            Command::Create,
            Command::Destroy,
            Command::Up,
            Command::Down,
            Command::Flush,
            Command::FlushAll,
            Command::Addresses,
            Command::VnetId(None),
            Command::Evict(true),
            Command::Evict(false),
        ]),
        (0..=2_u8, any::<bool>()).prop_map(|(number, on)| Command::Link { number, on }),
        (1..=MOST_ADDRESSES).prop_map(Command::MaxAddresses),
        prop_oneof![Just(0), TIMEOUTS].prop_map(Command::Timeout),
        (station(), proptest::option::of(vlan()))
            .prop_map(|(address, vlan)| Command::DelAddress { address, vlan }),
        rule().prop_map(|rule| Command::Rule(Box::new(rule))),
        "[!-~]{1,40}".prop_map(Command::RuleFile),
        vlan().prop_map(|vlan| Command::VnetId(Some(vlan))),
        prop_oneof![Just(Priority::Outer), priority()].prop_map(Command::RxPriority),
        priority().prop_map(Command::TxPriority),
        spanning_tree().prop_map(Command::SpanningTree),
    ]
}

fn of_port() -> impl Strategy<Value = Command> {
    let flag = proptest::sample::select(PortFlag::iter_all().collect::<Vec<_>>());
    let kind = proptest::sample::select(StormKind::ALL.to_vec());
    prop_oneof![
        name().prop_map(Command::Add),
        name().prop_map(Command::Del),
        name().prop_map(Command::AddSpan),
        name().prop_map(Command::DelSpan),
        name().prop_map(Command::Rules),
        name().prop_map(Command::FlushRules),
        (name(), flag, any::<bool>()).prop_map(|(port, flag, on)| Command::Flag { port, flag, on }),
        (name(), any::<u32>())
            .prop_map(|(port, bits)| Command::Protected { port, domains: Domains::from_bits(bits) }),
        (name(), proptest::option::of(1..=MOST_ADDRESSES))
            .prop_map(|(port, limit)| Command::PortMaxAddresses { port, limit }),
        (name(), station(), proptest::option::of(vlan())).prop_map(|(port, address, vlan)| Command::Static {
            port,
            address,
            vlan
        }),
        (
            name(),
            prop_oneof![
                vlan().prop_map(Untagged::Vlan),
                Just(Untagged::Passthrough),
                Just(Untagged::Dropped)
            ]
        )
            .prop_map(|(port, to)| Command::Untagged { port, to }),
        (
            name(),
            prop_oneof![
                vlans().prop_map(TaggedChange::Set),
                vlans().prop_map(TaggedChange::Add),
                vlans().prop_map(TaggedChange::Remove),
                Just(TaggedChange::Set(VlanSet::new())),
            ]
        )
            .prop_map(|(port, change)| Command::Tagged { port, change }),
        (name(), kind, proptest::option::of(0..=MOST_STORM)).prop_map(|(port, kind, limit)| Command::Storm {
            port,
            kind,
            limit
        }),
    ]
}

fn any_command() -> impl Strategy<Value = Command> {
    prop_oneof![of_switch(), of_port()]
}

fn is_rule(command: &Command) -> bool {
    matches!(command, Command::Rule(_))
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(commands in proptest::collection::vec(any_command(), 0..6)) {
        // A rule takes all words that follow.
        let (rules, mut commands): (Vec<_>, Vec<_>) = commands.into_iter().partition(is_rule);
        commands.extend(rules.into_iter().take(1));
        let line = commands.iter().map(Command::to_string).collect::<Vec<_>>().join(" ");
        prop_assert_eq!(read(&line), Ok(commands));
    }

    #[test]
    fn a_command_that_is_cut_short_is_an_error_or_another_command(command in any_command()) {
        let line = command.to_string();
        for end in 0..line.len() {
            // All printed words are ASCII.
            if let Ok(commands) = read(&line[..end]) {
                let again = commands.iter().map(Command::to_string).collect::<Vec<_>>().join(" ");
                prop_assert_eq!(read(&again), Ok(commands));
            }
        }
    }

    #[test]
    fn whatever_is_read_is_read_again_as_it_is_printed(
        words in proptest::collection::vec(
            prop_oneof![
                any::<String>(),
                "[ -~]{0,8}",
                "-?(add|learn|rule|pass|block|in|on|src|arp|sha|tagged|static|storm|vnetid|ifcost|up)",
                "[+-]?[0-9]{1,5}(-[0-9]{1,4})?",
                "em[0-9]",
            ],
            0..8,
        )
    ) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match parse(&words) {
            Ok(commands) => {
                let line = commands.iter().map(Command::to_string).collect::<Vec<_>>().join(" ");
                prop_assert_eq!(read(&line), Ok(commands));
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
