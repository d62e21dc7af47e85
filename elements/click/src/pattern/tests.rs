//! Programs against their definition, and the IP language against packets.
use super::expr::{Base, Expr, Relation, Test};
use super::{Headers, Program, ip};
use artery_engine::names::{NameEntry, Names};
use artery_engine::{Packet, Pool};
use artery_wire::build::{Ip4, ether, ip4};
use artery_wire::{IcmpType, TcpFlags};
use proptest::prelude::*;
use std::sync::OnceLock;

/// Few offsets, bits and values, so that tests overlap.
fn any_test() -> impl Strategy<Value = Test> {
    let base = prop_oneof![Just(Base::Data), Just(Base::Network), Just(Base::Transport)];
    let mask = prop_oneof![
        Just(0xffff_0000u32),
        Just(0xff00_0000),
        Just(0x00ff_0000),
        Just(0x0000_ffff),
        Just(0x0100_0000),
        Just(0x0000_0001),
        Just(0xffff_ffff),
    ];
    let value = prop_oneof![Just(0u32), Just(0x0101_0101), Just(0x0001_0001), Just(0x0100_0100)];
    let offset = prop_oneof![Just(0u16), Just(4)];
    (base, offset, mask, value, any::<bool>(), 0..5u8).prop_map(
        |(base, offset, mask, value, short, relation)| {
            let relation = if relation == 0 { Relation::Greater } else { Relation::Equal };
            Test { base, offset, mask, value: value & mask, relation, short }
        },
    )
}

fn any_expr() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![8 => any_test().prop_map(Expr::Test), 1 => any::<bool>().prop_map(Expr::Const)];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Expr::And),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Expr::Or),
            inner.clone().prop_map(Expr::negated),
            [inner.clone(), inner.clone(), inner].prop_map(|parts| Expr::If(Box::new(parts))),
        ]
    })
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_program_decides_as_its_patterns_say_at_every_length(
        exprs in prop::collection::vec((any_expr(), prop::option::of(0..3usize)), 0..5),
        packets in prop::collection::vec([any_bytes(), any_bytes(), any_bytes()], 4),
    ) {
        let program = Program::new(exprs.clone());
        for packet in &packets {
            for cut in 0..=24usize {
                let len = |n: usize| cut.saturating_sub(8 * n).min(8);
                let at = |base| match base {
                    Base::Data | Base::Mac => &packet[0][..len(0)],
                    Base::Network => &packet[1][..len(1)],
                    Base::Transport => &packet[2][..len(2)],
                };
                let expected =
                    exprs.iter().find(|(expr, _)| expr.matches(&at)).and_then(|(_, output)| *output);
                prop_assert_eq!(
                    program.match_packet(at).output(),
                    expected,
                    "{}\n{}",
                    cut,
                    program.listing()
                );
            }
        }
    }

    #[test]
    fn many_values_of_one_word_are_searched_and_found(
        values in prop::collection::vec(0..64u16, 2..40),
        len in 0..5usize,
    ) {
        let patterns = values.iter().enumerate();
        let equal = |value: u16| Expr::from(Test::equal(Base::Data, 0, u32::from(value) << 16, 0xffff_0000));
        let program = Program::new(patterns.map(|(n, value)| (equal(*value), Some(n))));
        for value in 0..70u16 {
            let bytes = [&value.to_be_bytes()[..], &[9, 9]].concat();
            let expected = values.iter().position(|v| *v == value).filter(|_| len >= 2);
            prop_assert_eq!(program.match_packet(|_| &bytes[..len.min(4)]).output(), expected);
        }
    }

    #[test]
    fn any_words_are_read_or_refused(words in prop::collection::vec(word(), 0..12)) {
        let _ = ip::parse(&words, &names());
    }

    #[test]
    fn patterns_in_words_decide_as_they_say_at_every_length(
        words in prop::collection::vec(pattern(), 1..5),
        seed: u64,
    ) {
        let patterns: Vec<_> = words.iter().enumerate().map(|(n, text)| (expr(text), Some(n))).collect();
        let program = Program::new(patterns.clone());
        for bytes in packets(seed) {
            for len in 0..=bytes.len() {
                let packet = pool().packet_from(&bytes[..len]).unwrap();
                let headers = Headers::from_packet(&packet);
                let at = |base| headers.from(base);
                let expected =
                    patterns.iter().find(|(expr, _)| expr.matches(&at)).and_then(|(_, output)| *output);
                prop_assert_eq!(
                    program.match_packet(at).output(),
                    expected,
                    "{} of {:?} by {:?}",
                    len,
                    bytes,
                    words
                );
            }
        }
    }
}

#[test]
fn a_filter_of_a_thousand_rules_is_compiled_and_right() {
    let host =
        |n: u32| format!("src host 10.{}.{}.{} and dst tcp port {}", n >> 8, n & 255, n % 7, 1000 + n % 50);
    let patterns: Vec<_> = (0..1000).map(|n| (expr(&host(n)), Some(n as usize))).collect();
    let program = Program::new(patterns);
    for n in [0u32, 1, 499, 999] {
        let src = [10, (n >> 8) as u8, n as u8, (n % 7) as u8];
        let packet = pool().packet_from(&ip4().src(src).tcp(1, 1000 + (n % 50) as u16).bytes()).unwrap();
        let found = program.match_packet(|base| Headers::from_packet(&packet).from(base)).output();
        assert_eq!(found, Some(n as usize));
    }
}

/// Words of the language and others.
fn word() -> impl Strategy<Value = String> {
    let words = "( ) [ ] ! not and && or || ? : src dst ip ether tcp udp icmp transp host net port proto \
        type opt win ttl tos frag unfrag ect ce 0:2 4 80 65536 10.0.0.1 10.0.0.0/8 mask 255.0.0.0 \
        == != < > <= >= & echo syn www 1:2:3:4:5:6 gate true false any - $ é";
    prop::sample::select(words.split_whitespace().map(str::to_string).collect::<Vec<_>>())
}

/// Expressions that are right.
fn pattern() -> impl Strategy<Value = String> {
    let tests = "tcp|udp|icmp|ip proto != 6|src host 10.0.0.1|host != 10.0.0.2|dst net 10.0.0.0/8|src and \
        dst port 1|\
        port 1 or 2|tcp port > 5|src udp port <= 2|port & 3 == 1|syn|tcp opt ack|icmp type echo|\
        icmp type != 8|ip frag|unfrag|ip ttl < 64|ip len >= 28|ip tos & 3 != 0|ip ect|ip ce|ip id 1|\
        ip[0:2] 0x4500|transp[2:2] > 1|tcp[13] & 2 != 0|ip vers 4|ip hl > 5|true|false|ip dscp \
        1|tcp win 0";
    let tests = prop::sample::select(tests.split('|').map(|t| t.trim().to_string()).collect::<Vec<_>>());
    tests.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) and ({b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) or ({b})")),
            inner.clone().prop_map(|a| format!("not ({a})")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("(({a}) ? ({b}) : ({c}))")),
        ]
    })
}

fn packets(seed: u64) -> Vec<Vec<u8>> {
    let bits = |shift: u32, n: u64| (seed >> shift) % n;
    let base = ip4()
        .src([10, 0, 0, bits(0, 3) as u8])
        .dst([10, bits(2, 2) as u8, 0, 2])
        .ttl(bits(4, 70) as u8)
        .tos(bits(11, 8) as u8)
        .id(bits(14, 3) as u16);
    let (a, b) = (bits(16, 8) as u16, bits(19, 4) as u16);
    let fragment = base.clone().fragment(bits(22, 2) as usize * 8, bits(23, 2) == 1);
    vec![
        base.clone().tcp(a, b).flags(TcpFlags(bits(24, 32) as u8)).bytes(),
        base.clone().options([1; 4]).udp(a, b).bytes(),
        base.icmp(IcmpType(bits(29, 10) as u8), 0, [0; 4]).bytes(),
        fragment.udp(a, b).bytes(),
    ]
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<&'static Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool::new(256, 1).unwrap())
}

fn names() -> Names {
    let mut names = Names::default();
    let ether = Some([2, 0, 0, 0, 0, 7].into());
    let entry = NameEntry { ip: Some(([10, 0, 0, 1].into(), Some(24))), ether, ..NameEntry::default() };
    names.define_name("gate", entry);
    names
}

fn expr(text: &str) -> Expr {
    ip::parse(&ip::split_words(text), &names()).unwrap_or_else(|why| panic!("{text}: {why}"))
}

fn matches_packet(text: &str, packet: &Packet) -> bool {
    let headers = Headers::from_packet(packet);
    expr(text).matches(&|base| headers.from(base))
}

#[track_caller]
fn check(packet: Ip4, matching: &[&str], others: &[&str]) {
    let packet = pool().packet_from(&packet.bytes()).unwrap();
    for text in matching {
        assert!(matches_packet(text, &packet), "'{text}' does not match");
    }
    for text in others {
        assert!(!matches_packet(text, &packet), "'{text}' matches");
    }
}

#[test]
fn addresses_and_networks_match_the_sides_they_name() {
    check(
        ip4().src("10.0.0.1").dst("192.168.1.9").udp(1, 2),
        &[
            "host 10.0.0.1",
            "10.0.0.1",
            "src gate",
            "src host 10.0.0.1",
            "dst net 192.168.0.0/16",
            "192.168.0.0 mask 255.255.0.0",
            "net 192.168.1.0/24",
            "src or dst host 192.168.1.9",
            "src net gate",
            "src host != 10.0.0.2",
            "src & 255.255.255.0 == 10.0.0.9",
            "src 10.0.0.2 or 10.0.0.1",
            "dst 192.168.1.9 && ! src 192.168.1.9",
        ],
        &[
            "dst host 10.0.0.1",
            "src and dst 10.0.0.1",
            "host != 10.0.0.1",
            "not 10.0.0.1",
            "src not 10.0.0.1",
            "dst net gate",
            "net 172.16.0.0/12",
        ],
    );
}

#[test]
fn ports_match_first_fragments_of_their_protocols() {
    check(
        ip4().udp(53, 1024),
        &[
            "port 53",
            "udp port dns",
            "src port domain",
            "dst port > 1023",
            "dst udp port >= 1024",
            "src port 80 or 53",
            "src port < 54 and dst port != 53",
            "src port & 3 == 1",
            "tcpudp port 53",
        ],
        &[
            "tcp port 53",
            "dst port 53",
            "src and dst port 53",
            "dst port <= 1023",
            "src port 54",
            "src port != 53",
        ],
    );
    check(ip4().fragment(8, false).udp(53, 53), &["udp", "ip frag"], &["port 53", "port != 54", "unfrag"]);
    check(ip4().icmp_echo(1, 1), &["not port != 5", "not src port 5"], &["port != 5", "port 5", "port > 0"]);
}

#[test]
fn fields_flags_and_types_have_their_words() {
    check(
        ip4().tos(0xb9).ttl(7).id(77).options([1; 4]).tcp(1, 2).flags(TcpFlags(0x12)),
        &[
            "tcp",
            "ip proto 6",
            "ip proto tcp",
            "ip vers 4",
            "ip hl 6",
            "ip tos 0xb9",
            "ip dscp 46",
            "ip ect",
            "ip ect 1",
            "ip ttl 7",
            "ip ttl < 8",
            "ip ttl & 3 = 3",
            "ip ttl <= 300",
            "ip id 77",
            "ip len 44",
            "unfrag",
            "syn",
            "syn ack",
            "tcp opt syn and tcp opt ack",
            "ip[8] 7",
            "ip[2:2] 44",
            "tcp[13] & 0x12 == 0x12",
            "transp[0:2] 1",
            "tcp[2,3] 2",
            "ip ttl 6 or 7",
            "transp",
            "ip proto != 17",
            "ip proto < 7",
        ],
        &[
            "udp",
            "ip ce",
            "fin",
            "ip frag",
            "ip ttl > 7",
            "ip ttl != 7",
            "ip hl 5",
            "udp[0:2] 1",
            "ip ttl < 0",
            "ip proto != tcp",
        ],
    );
    check(
        ip4().icmp_echo(1, 1),
        &["icmp type echo", "icmp type 8", "icmp type != 0"],
        &["unreachable", "icmp type > 8"],
    );
    check(ip4().tos(3).udp(1, 2), &["ip ce", "ip ect"], &[]);
    check(ip4().raw(136, [0; 8]), &["udplite", "ip proto udplite", "ip proto 136"], &["udp", "egp"]);
    check(ip4().raw(88, [0; 8]), &["eigrp", "ip proto eigrp", "ip proto 88"], &["ipv6-icmp"]);
}

#[test]
fn operators_bind_as_they_should() {
    let udp = || ip4().udp(1, 2);
    check(
        udp(),
        &[
            "true or false and false",
            "! false",
            "not not udp",
            "! tcp (udp)",
            "false ? false : true",
            "true ? udp : false",
            "false ? true : tcp ? false : true",
            "(false or true) && udp",
            "not (tcp or icmp)",
            "udp || tcp && icmp",
        ],
        &["false and true or false", "! udp", "(udp || tcp) && icmp", "!tcp (icmp)", "true and not udp"],
    );
}

#[test]
fn ether_hosts_are_looked_for_in_the_marked_link_header() {
    let frame = ether("02:00:00:00:00:07", "02:00:00:00:00:01").ip4(ip4().udp(1, 2));
    let mut packet = pool().packet_from(&frame.bytes()).unwrap();
    packet.set_mac_header(0);
    packet.strip(14).unwrap();
    for text in [
        "dst ether host 02:00:00:00:00:07",
        "ether host 2:0:0:0:0:1",
        "dst ether gate",
        "src 2:0:0:0:0:1",
        "dst ether host != 2:0:0:0:0:1",
        "dst ether host & ff:0:0:0:0:0 2:0:0:0:0:9",
    ] {
        assert!(matches_packet(text, &packet), "{text}");
    }
    for text in [
        "src ether host 02:00:00:00:00:07",
        "src and dst ether host 02:00:00:00:00:07",
        "ether host 2:0:0:1:0:1",
    ] {
        assert!(!matches_packet(text, &packet), "{text}");
    }
    let unmarked = pool().packet_from(&ip4().udp(1, 2).bytes()).unwrap();
    assert!(!matches_packet("ether host 2:0:0:0:0:1", &unmarked));
    assert!(!matches_packet("ether host != 2:0:0:0:0:1", &unmarked));
}

#[test]
fn mistakes_name_the_word() {
    let deep = "( ".repeat(100_000);
    let wrong = [
        ("tcp udp port", "transport protocol specified twice"),
        ("port", "'port': value missing"),
        ("80", "specify header field or 'port'"),
        ("src", "partial directive"),
        ("ip", "partial directive"),
        ("echo", "'echo' is ambiguous; try 'port echo', 'port echo', 'icmp type echo'"),
        ("tcp echo-reply", "'tcp echo-reply' is meaningless; try 'icmp type tcp echo-reply'"),
        ("host nobody", "'ip host': address missing"),
        ("port 65536", "'port': out of range, bound 65535"),
        ("ip ttl & 256 1", "'ip ttl': mask out of range, bound 0xFF"),
        ("ip ttl & 0 1", "zero mask ignored"),
        ("host > 10.0.0.1", "'ip host': operator not supported"),
        ("port > nobody", "dangling operator near 'nobody'"),
        ("ip frag 3", "'ip frag': value not supported"),
        ("icmp port 3", "'port': bad protocol 1"),
        ("udp opt syn", "'tcp opt udp syn' is meaningless; try 'tcp opt udp syn'"),
        ("tcp opt != syn", "'tcp opt': operator or mask not supported"),
        ("src src 10.0.0.1", "'src' or 'dst' specified twice"),
        ("host net 10.0.0.1", "type specified twice"),
        ("ip[0:5] 3", "LEN in '[POS:LEN]' out of range, should be between 1 and 4"),
        ("ip[3:2] 3", "field [3:2] does not fit in a single word"),
        ("ip[x] 3", "syntax error after '[', expected '[POS]' or '[POS:LEN]', not '[x]'"),
        ("ip[4 3", "missing ']'"),
        ("(tcp", "missing ')'"),
        ("(tcp ]", "empty term near ']'"),
        ("tcp )", "garbage after expression at ')'"),
        ("()", "missing expression after '('"),
        ("tcp and", "missing expression"),
        ("or tcp", "missing expression at 'or'"),
        ("not", "missing expression after 'not'"),
        ("tcp ? udp", "missing ':' in ternary expression"),
        ("ether ttl 3", "'ip ttl': ip only"),
        ("tcp $", "empty term near '$'"),
        (deep.as_str(), "expression nested more than 200 deep"),
    ];
    for (text, message) in wrong {
        let found = ip::parse(&ip::split_words(text), &names()).unwrap_err();
        let fault = found.split("; a test is an address,").next();
        assert_eq!(fault, Some(message), "{}", &text[..text.len().min(40)]);
    }
}
