//! Any rules print as text that reads as the same rules, and no text makes the reader panic or hang.
use artery_filter::facts::{Direction, Family};
use artery_filter::options::Timeout;
use artery_filter::rule::*;
use artery_filter::syntax::print::{Style, rules};
use artery_filter::syntax::{Environment, NumberedNames, ParseSettings, parse, parse_lenient};
use artery_wire::IpProtocol;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// Choices, drawn one by one; all are the first when there are no more.
struct Tape<'t>(std::slice::Iter<'t, u32>);

impl Tape<'_> {
    fn below(&mut self, n: u32) -> u32 {
        self.0.next().map_or(0, |number| number % n.max(1))
    }

    fn within(&mut self, from: u32, to: u32) -> u32 {
        from + self.below(to - from + 1)
    }

    fn chance(&mut self, of: u32) -> bool {
        self.below(of) + 1 == of
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.chance(4) { Some(make(self)) } else { None }
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u32) as usize].clone()
    }
}

const NAMES: [&str; 6] = ["lo0", "tun1000000", "em0", "_a", "foo.bar", "2x"];
const TEXTS: [&str; 8] = ["a", "two words", "in", "it's", "\"so\"", "12", "{", "#"];

fn rule(tape: &mut Tape) -> Rule {
    let family = tape.pick(&[None, Some(Family::Inet), Some(Family::Inet6)]);
    let mut rule = plain(tape, family);
    let has_ports = matches!(rule.protocol, Some(IpProtocol::TCP | IpProtocol::UDP));
    rule.source = end(tape, family, has_ports, true);
    rule.destination = end(tape, family, has_ports, false);
    if has_ports {
        rule.user = tape.maybe(account);
        rule.group = tape.maybe(account);
    }
    if rule.protocol == Some(IpProtocol::TCP) {
        rule.source.os = tape.maybe(|tape| tape.pick(&TEXTS).to_string());
    }
    if matches!(rule.protocol, Some(IpProtocol::ICMP | IpProtocol::ICMPV6)) {
        rule.icmp = tape.maybe(|tape| (tape.below(256) as u8, tape.maybe(|tape| tape.below(256) as u8)));
    }
    states_and_flags(tape, &mut rule);
    ways(tape, &mut rule);
    rule
}

fn plain(tape: &mut Tape, family: Option<Family>) -> Rule {
    let icmp = if family == Some(Family::Inet6) { IpProtocol::ICMPV6 } else { IpProtocol::ICMP };
    let mut protocols = vec![None, Some(IpProtocol::TCP), Some(IpProtocol::UDP), Some(IpProtocol(166))];
    protocols.extend(family.map(|_| Some(icmp)));
    let protocol = tape.pick(&protocols);
    let interface = |tape: &mut Tape| InterfaceName(tape.pick(&NAMES).into());
    // Of a code for another family nothing is printed.
    let v4 = if family == Some(Family::Inet6) { 3 } else { tape.below(256) as u8 };
    let v6 = if family == Some(Family::Inet) { 4 } else { tape.below(256) as u8 };
    let answers = [BlockReturn::Drop, BlockReturn::Return, BlockReturn::Icmp((3, v4), (1, v6))];
    let mut actions = vec![Action::Pass, Action::Match, Action::Block(tape.pick(&answers))];
    actions.extend((protocol == Some(IpProtocol::TCP)).then_some(Action::Block(BlockReturn::Reset(Some(9)))));
    let on = [
        On::Any,
        On::Interface(tape.chance(2), interface(tape)),
        On::Domain(tape.chance(2), tape.below(256)),
    ];
    let log = Log {
        is_all: tape.chance(2),
        is_matches: tape.chance(2),
        is_user: tape.chance(2),
        interface: tape.below(9) as u16,
    };
    let set = Set {
        priority: tape.maybe(|tape| (tape.below(8) as u8, tape.below(8) as u8)),
        queue: tape.maybe(|tape| (tape.pick(&TEXTS).into(), tape.pick(&["", "b", "x y"]).into())),
        tos: tape.maybe(|tape| tape.below(256) as u8),
        delay: tape.maybe(|tape| tape.below(65536) as u16),
    };
    Rule {
        action: tape.pick(&actions),
        direction: tape.pick(&[None, Some(Direction::In), Some(Direction::Out)]),
        log: tape.maybe(|_| log),
        is_quick: tape.chance(2),
        on: tape.maybe(|tape| tape.pick(&on)),
        family,
        protocol,
        received_on: tape.maybe(|tape| (tape.chance(2), interface(tape))),
        tos: tape.maybe(|tape| tape.within(1, 255) as u8),
        priority: tape.maybe(|tape| tape.below(8) as u8),
        max_packet_rate: tape.maybe(|tape| (tape.within(1, 99), tape.within(1, 99))),
        set,
        // Printing has six decimal places: that is how many of the 2³² values can be distinguished.
        probability: tape.maybe(|tape| (f64::from(tape.within(1, 100)) / 100.0 * 4294967295.0 + 0.5) as u32),
        scrub: tape.maybe(|tape| scrub(tape, family)).unwrap_or_default(),
        label: tape.maybe(|tape| tape.pick(&TEXTS).into()).unwrap_or_default(),
        tag: tape.maybe(|tape| tape.pick(&TEXTS).into()).unwrap_or_default(),
        tagged: tape.maybe(|tape| (tape.chance(2), tape.pick(&TEXTS).into())),
        routing_table: tape.maybe(|tape| tape.below(256)),
        ..Rule::default()
    }
}

fn scrub(tape: &mut Tape, family: Option<Family>) -> Scrub {
    let may_be_v4 = family != Some(Family::Inet6);
    Scrub {
        is_given: true,
        clears_df: may_be_v4,
        randomises_id: may_be_v4 && tape.chance(2),
        min_ttl: tape.maybe(|tape| tape.within(1, 255) as u8),
        tos: tape.maybe(|tape| tape.below(256) as u8),
        max_mss: tape.maybe(|tape| tape.within(1, 65535) as u16),
        reassembles_tcp: !may_be_v4 || tape.chance(2),
    }
}

fn network(tape: &mut Tape, family: Family) -> HostAddress {
    let bits = tape.below(u32::MAX);
    match family {
        Family::Inet => {
            let length = tape.within(1, 32);
            let address = Ipv4Addr::from_bits(bits & (u32::MAX << (32 - length)));
            HostAddress::Network(address.into(), length as u8)
        }
        Family::Inet6 => {
            let length = tape.within(1, 128);
            let address = (0x2001_0db8_u128 << 96) | (u128::from(bits) << 40) | (u128::from(bits) << 7);
            let address = Ipv6Addr::from_bits(address & (u128::MAX << (128 - length)));
            HostAddress::Network(address.into(), length as u8)
        }
    }
}

fn dynamic(tape: &mut Tape, family: Option<Family>) -> HostAddress {
    HostAddress::Dynamic {
        interface: InterfaceName(tape.pick(&["lo0", "egress", "em0"]).into()),
        part: tape.pick(&[
            InterfacePart::Address,
            InterfacePart::Network,
            InterfacePart::Broadcast,
            InterfacePart::Peer,
        ]),
        without_aliases: tape.chance(2),
        length: family.and_then(|_| tape.maybe(|tape| tape.below(32) as u8)),
    }
}

fn end(tape: &mut Tape, family: Option<Family>, has_ports: bool, is_source: bool) -> Endpoint {
    let mut all = vec![
        AddressMatch::Any,
        AddressMatch::Table("bad".into()),
        AddressMatch::NoRoute,
        AddressMatch::RouteLabel(tape.pick(&TEXTS).into()),
        AddressMatch::Host(dynamic(tape, family)),
    ];
    all.extend(is_source.then_some(AddressMatch::UrpfFailed));
    if let Some(family) = family {
        all.push(AddressMatch::Host(network(tape, family)));
        let (from, to): (IpAddr, IpAddr) = match family {
            Family::Inet => (Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 9, 1).into()),
            Family::Inet6 => (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::new(1, 0, 0, 0, 0, 0, 0, 9).into()),
        };
        all.push(AddressMatch::Range(from, to));
    }
    let address = tape.pick(&all);
    let is_negated = address != AddressMatch::Any && tape.chance(2);
    let port = if has_ports { tape.maybe(port) } else { None };
    Endpoint { is_negated, address, port, os: None }
}

fn port(tape: &mut Tape) -> Comparison<u16> {
    let a = tape.below(60000) as u16;
    let b = a + tape.within(1, 5000) as u16;
    tape.pick(&[
        Comparison::Equal(a),
        Comparison::Unequal(a),
        Comparison::Less(a),
        Comparison::LessOrEqual(a),
        Comparison::Greater(a),
        Comparison::GreaterOrEqual(a),
        Comparison::Range(a, b),
        Comparison::Between(a, b),
        Comparison::Except(a, b),
    ])
}

fn account(tape: &mut Tape) -> Comparison<u32> {
    let (a, b) = (tape.below(100_000), tape.below(100_000));
    let nobody = Comparison::Unequal(u32::MAX);
    tape.pick(&[Comparison::Equal(a), Comparison::Greater(a), Comparison::Between(a, b), nobody])
}

fn states_and_flags(tape: &mut Tape, rule: &mut Rule) {
    rule.is_fragment = tape.chance(8)
        && rule.icmp.is_none()
        && rule.source.port.is_none()
        && rule.destination.port.is_none()
        && !matches!(rule.action, Action::Block(BlockReturn::Reset(_)));
    let may_be_tcp = rule.protocol.is_none_or(|protocol| protocol == IpProtocol::TCP);
    if rule.action == Action::Pass {
        let kinds = [StateKeeping::Keep, StateKeeping::No, StateKeeping::Modulate, StateKeeping::Synproxy];
        rule.state.keep = tape.pick(if may_be_tcp { &kinds[..] } else { &kinds[..2] });
        rule.allows_options = tape.chance(4);
    }
    rule.is_once = rule.action != Action::Match && tape.chance(8);
    if rule.state.keep != StateKeeping::No {
        rule.state.options = state_options(tape, rule.state.keep == StateKeeping::Keep);
    }
    if may_be_tcp && !rule.is_fragment {
        let of = tape.within(1, 255) as u8;
        let set = tape.below(256) as u8 & of;
        let keeps = rule.state.keep != StateKeeping::No;
        let any = Flags { set: 0, of: 0, is_any: keeps };
        rule.flags =
            tape.pick(&[Flags { set: 2, of: 0x12, is_any: false }, any, Flags { set, of, is_any: false }]);
    }
}

fn state_options(tape: &mut Tape, may_be_sloppy: bool) -> StateOptions {
    let mut options = StateOptions {
        is_not_synchronised: tape.chance(4),
        is_pflow: tape.chance(4),
        is_sloppy: may_be_sloppy && tape.chance(4),
        binding: tape.maybe(|_| Binding::Bound),
        timeouts: vec![(Timeout::TcpFirst, tape.within(1, 99)), (Timeout::TcpTsdiff, tape.within(1, 99))],
        ..StateOptions::default()
    };
    if tape.chance(2) {
        options.timeouts.clear();
    }
    match tape.below(4) {
        0 => {
            options.max = Some(100);
            options.timeouts.extend([(Timeout::AdaptiveStart, 60), (Timeout::AdaptiveEnd, 120)]);
        }
        1 => {
            options.source_track = Some(SourceTrack::Rule);
            options.max_source_rate = Some((tape.within(1, 9), 7));
            options.overload = Some(("bad".into(), tape.pick(&[Flush::No, Flush::Rule, Flush::Global])));
            options.timeouts.push((Timeout::SourceTrack, 7));
        }
        2 => {
            options.source_track = Some(SourceTrack::Global);
            options.max_source_states = tape.maybe(|_| 5);
        }
        _ => (),
    }
    options.timeouts.sort_by_key(|(timeout, _)| (*timeout == Timeout::TcpTsdiff, *timeout as usize));
    options
}

fn pool(tape: &mut Tape, family: Option<Family>) -> Pool {
    let mut all = vec![PoolAddress::Table("pool".into()), PoolAddress::Host(dynamic(tape, family), None)];
    all.extend(family.map(|family| PoolAddress::Host(network(tape, family), None)));
    let address = tape.pick(&all);
    let is_fixed = matches!(address, PoolAddress::Host(HostAddress::Network(..), _));
    let keyed = PoolChoice::SourceHash(Some([tape.below(u32::MAX), 0, 1, u32::MAX]));
    let kinds = [
        PoolChoice::RoundRobin,
        PoolChoice::Random,
        PoolChoice::LeastStates,
        PoolChoice::SourceHash(None),
        keyed,
        PoolChoice::Bitmask,
    ];
    let choice = tape.pick(if is_fixed { &kinds[..] } else { &kinds[..5] });
    Pool { address, choice, is_sticky: tape.chance(2), has_static_port: false, ports: None }
}

fn ways(tape: &mut Tape, rule: &mut Rule) {
    let keeps = rule.state.keep != StateKeeping::No;
    let (a, b) = (tape.within(1, 9999) as u16, tape.within(10_000, 60_000) as u16);
    let ports = [None, Some(PoolPorts::One(a)), Some(PoolPorts::Range(a, b))];
    if (keeps || rule.action == Action::Match) && rule.direction.is_some() && tape.chance(3) {
        let mut pool = pool(tape, rule.family);
        pool.ports = tape.pick(&ports);
        if tape.chance(2) {
            pool.has_static_port = pool.ports.is_none() && tape.chance(2);
            rule.nat = Some(pool);
        } else {
            rule.redirect = Some(pool);
        }
    }
    if rule.action == Action::Pass && keeps {
        let kinds = [RouteKind::DupTo, RouteKind::RouteTo, RouteKind::ReplyTo];
        let kinds = if rule.direction.is_some() { &kinds[..] } else { &kinds[..1] };
        rule.route = tape.maybe(|tape| (tape.pick(kinds), ways_out(pool(tape, rule.family))));
    }
    if rule.action != Action::Match {
        let is_reply = rule.direction != Some(Direction::In) && tape.chance(2);
        let text = if is_reply { "divert-reply" } else { "divert-packet port 700" };
        rule.divert = tape.maybe(|_| text.into());
        // Packets that are diverted are put together.
        let is_diverted = rule.divert.is_some() && !is_reply;
        rule.scrub.is_given |= is_diverted;
        rule.scrub.reassembles_tcp |= is_diverted;
    }
}

/// The same pool for packets that are routed somewhere: to the other end of an interface, not to it.
fn ways_out(mut pool: Pool) -> Pool {
    if let PoolAddress::Host(HostAddress::Dynamic { part, without_aliases, .. }, _) = &mut pool.address {
        (*part, *without_aliases) = (InterfacePart::Peer, false);
    }
    pool
}

/// Rules, some within anchors.
fn ruleset(tape: &mut Tape, depth: usize) -> Ruleset {
    let mut found = Ruleset::default();
    for number in 0..tape.within(1, 3) {
        let one = if depth < 3 && tape.chance(4) { anchor(tape, depth, number) } else { rule(tape) };
        found.rules.push(one);
    }
    found
}

fn anchor(tape: &mut Tape, depth: usize, number: u32) -> Rule {
    let inner = |tape: &mut Tape| Some(Box::new(ruleset(tape, depth + 1)));
    let call = match tape.below(3) {
        0 => AnchorCall { name: Some("spam/*".into()), inline: None },
        1 => AnchorCall { name: Some(format!("{}{number}", tape.pick(&TEXTS))), inline: inner(tape) },
        _ => AnchorCall { name: None, inline: inner(tape) },
    };
    let mut rule = plain(tape, None);
    rule.log = None;
    (rule.action, rule.set, rule.scrub) = (Action::Anchor(call), Set::default(), Scrub::default());
    rule
}

fn without_places(ruleset: &mut Ruleset) {
    for rule in &mut ruleset.rules {
        rule.place = SourceLocation::default();
        if let Action::Anchor(call) = &mut rule.action {
            call.inline.iter_mut().for_each(|inner| without_places(inner));
        }
    }
}

/// The queues that rules may name.
fn queues() -> String {
    let names = TEXTS.iter().copied().chain(["b", "x y"]);
    let leaves = names.map(|name| {
        let name = name.replace('"', "\\\"");
        format!("queue \"{name}\" parent root bandwidth 1M default\n")
    });
    "queue root on lo0 bandwidth 1M\n".to_string() + &leaves.collect::<String>()
}

fn fixtures() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pf");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "in"));
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// What a file prints as, or how many mistakes it has.
fn outcome(text: &[u8]) -> Result<String, usize> {
    let environment = Environment::fixture();
    let (parsed, faults) = parse_lenient("stdin", text, &environment, &ParseSettings::default());
    let printed = parsed.to_text(&Style::for_reading(&environment.names));
    if faults.is_empty() { Ok(printed) } else { Err(faults.len()) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn rules_read_as_they_print(numbers in proptest::collection::vec(any::<u32>(), 0..400)) {
        let mut made = ruleset(&mut Tape(numbers.iter()), 0);
        let names = NumberedNames::builtin();
        let text = queues() + &rules(&made, &Style::for_reading(&names));
        let parsed = parse("stdin", text.as_bytes(), &Environment::fixture(), &ParseSettings::default());
        let mut parsed = parsed.map_err(|faults| {
            TestCaseError::fail(format!(
                "{text}{}",
                faults.iter().map(|fault| format!("{fault}\n")).collect::<String>()
            ))
        })?;
        without_places(&mut made);
        without_places(&mut parsed.ruleset);
        prop_assert_eq!(&parsed.ruleset.rules, &made.rules, "{}", text);
    }

    #[test]
    fn what_is_spoilt_is_read_or_refused(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 1..12),
    ) {
        let fixtures = fixtures();
        let mut text = which.get(&fixtures).clone();
        for (place, byte, kind) in changes {
            let place = place.index(text.len());
            match kind {
                0 => text[place] = byte,
                1 => text.insert(place, byte),
                2 => {
                    text.remove(place);
                }
                _ => text.insert(place, b"{}()<>!=\"\\$#,/\n"[usize::from(byte) % 15]),
            }
            if text.is_empty() {
                text.push(b'\n');
            }
        }
        let has = |word: &[u8]| text.windows(word.len()).any(|part| part == word);
        let is_plain = text.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) && !has(b"\\");
        // Files can't be read again; a `state-policy` holds for the rules after it only.
        if let (Ok(once), true) = (outcome(&text), is_plain && !has(b"file") && !has(b"policy")) {
            prop_assert_eq!(outcome(once.as_bytes()), Ok(once.clone()), "{}", once);
        }
    }
}

#[test]
fn files_that_break_off_anywhere_are_read_or_refused() {
    let (mut good, mut bad) = (0, 0);
    for text in fixtures() {
        for length in 0..text.len() {
            match outcome(&text[..length]) {
                Ok(_) => good += 1,
                Err(_) => bad += 1,
            }
        }
    }
    assert!(good > 100 && bad > 100, "{good} {bad}");
}

#[test]
fn lists_in_lists_and_anchors_in_anchors_end_somewhere() {
    let deep =
        |open: &str, n: usize| format!("pass from {}1.2.3.4{} to any\n", open.repeat(n), "}".repeat(n));
    assert!(outcome(deep("{", 60).as_bytes()).is_ok());
    assert_eq!(outcome(deep("{", 100_000).as_bytes()), Err(1));
    let anchors = format!("{}{}", "anchor {\n".repeat(100_000), "}\n".repeat(100_000));
    assert!(outcome(anchors.as_bytes()).is_err());
    let macros = "a = \"$a $a\"\npass on $a\n";
    assert!(outcome(macros.as_bytes()).is_err());
}

#[test]
fn lists_that_multiply_too_far_are_refused() {
    let ports: String = (1..=1000).map(|port| format!("{port} ")).collect();
    let line = format!("pass proto tcp from any port {{ {ports} }} to any port {{ {ports} }}\n");
    assert_eq!(outcome(line.as_bytes()), Err(1));
    let many = format!("pass proto {{ tcp udp }} to port {{ {ports} }}\n").repeat(200);
    assert!(outcome(many.as_bytes()).is_err());
}
