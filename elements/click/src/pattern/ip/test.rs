//! Words to one test.
use super::grammar::Parser;
use super::names::{self, Meanings};
use super::primitive::{ComparisonOrder, Datum, Direction, Field, Header, Mask, Primitive, TestKind};
use crate::pattern::expr::Expr;
use artery_engine::ArgValue;
use artery_engine::names::Names;
use artery_wire::{EtherAddr, Ipv4Prefix};
use std::net::Ipv4Addr;

/// What could stand where no test is.
const POSSIBLE: &str = "a test is an address, the name of a protocol, port, TCP flag or ICMP type, or starts \
    with one of src, dst, host, net, port, proto, opt, type, win, frag, unfrag, ip, ether, tcp, udp, icmp";

pub(super) fn parse_test(parser: &mut Parser<'_>) -> Result<Expr, String> {
    let start = parser.at;
    let mut test = Primitive::default();
    let mut header = None;
    let negated = parse_qualifiers(parser, &mut test, &mut header)?;
    let qualified = parser.at > start;
    if qualified {
        parser.previous = Primitive::default();
    }
    if parser.previous.is_about_ether() {
        header = Some(Header::Ether);
    }
    if qualified && test.kind.is_none() && !parser.at_last() && parser.eat_any(&["["]) {
        let field = parse_brackets(parser, test.protocol)?;
        test.kind = Some(TestKind::Field(field));
    }
    let mask = parse_mask(parser, header)?;
    parse_relation(parser, &mut test);
    parse_datum(parser, &mut test, header)?;
    if parser.at == start {
        return Err(format!("empty term near '{}'; {POSSIBLE}", parser.peek().unwrap_or_default()));
    }
    test.resolve_test(&parser.previous, header, mask)?;
    let expr = test.to_expr();
    parser.previous = test;
    Ok(if negated { expr.negated() } else { expr })
}

impl Parser<'_> {
    /// Whether at most one word is left: operators need another behind them.
    fn at_last(&self) -> bool {
        self.peek_at(1).is_none()
    }
}

/// Parses the words before operator and value. Returns whether the test is negated.
fn parse_qualifiers(
    parser: &mut Parser<'_>,
    test: &mut Primitive,
    header: &mut Option<Header>,
) -> Result<bool, String> {
    let mut negated = false;
    while let Some(word) = parser.peek() {
        match (word, kind_named(word)) {
            (_, Some(kind)) => test.set_kind(kind)?,
            ("src", _) => {
                let direction = source_direction(parser);
                test.set_direction(direction)?;
            }
            ("dst" | "dest", _) => test.set_direction(Direction::Destination)?,
            ("ip" | "ether", _) if header.is_some() => break,
            ("ip", _) => *header = Some(Header::Ip),
            ("ether", _) => *header = Some(Header::Ether),
            ("not" | "!", _) => negated = !negated,
            _ => match resolve_word(word, None, None) {
                Ok(Some((Datum::Of(TestKind::Protocol), protocol))) => test.set_protocol(protocol)?,
                _ => break,
            },
        }
        parser.at += 1;
    }
    Ok(negated)
}

/// Reads `src`, `src and dst` or `src or dst`, up to its last word.
fn source_direction(parser: &mut Parser<'_>) -> Direction {
    let both = matches!(parser.peek_at(2), Some("dst" | "dest"));
    let direction = match parser.peek_at(1) {
        Some("and" | "&&") if both => Direction::Both,
        Some("or" | "||") if both => Direction::Either,
        _ => return Direction::Source,
    };
    parser.at += 2;
    direction
}

/// Reads `POS]`, `POS:LEN]` or `POS,LAST]` as a field of the header of `protocol`, or of IP.
fn parse_brackets(parser: &mut Parser<'_>, protocol: Option<u32>) -> Result<Field, String> {
    let mut inside = String::new();
    while !parser.eat_any(&["]"]) {
        inside += parser.peek().ok_or("missing ']'")?;
        parser.at += 1;
    }
    let number = |text: &str| <u32 as ArgValue>::parse(text, parser.names).ok();
    let range = if let Some((first, len)) = inside.split_once(':') {
        number(first).zip(number(len))
    } else if let Some((first, last)) = inside.split_once(',') {
        number(first).zip(number(last)).map(|(first, last)| (first, (last + 1).saturating_sub(first)))
    } else {
        number(&inside).map(|first| (first, 1))
    };
    let (first, len) = range.ok_or_else(|| {
        format!("syntax error after '[', expected '[POS]' or '[POS:LEN]', not '[{inside}]'")
    })?;
    if !(1..=4).contains(&len) {
        return Err("LEN in '[POS:LEN]' out of range, should be between 1 and 4".into());
    }
    if first > 8191 || first / 4 != (first + len - 1) / 4 {
        return Err(format!("field [{first}:{len}] does not fit in a single word"));
    }
    Ok(Field { protocol, offset: first as u16 * 8, bits: len as u8 * 8 })
}

/// Parses `& MASK` after a test.
fn parse_mask(parser: &mut Parser<'_>, header: Option<Header>) -> Result<Option<Mask>, String> {
    let Some(word) = parser.peek_at(1).filter(|_| parser.is_any(&["&"])) else { return Ok(None) };
    let mask = if let Ok(number) = <u32 as ArgValue>::parse(word, parser.names) {
        Mask::Number(number)
    } else if let Some(address) = parse_ipv4(word, parser.names).filter(|_| header != Some(Header::Ether)) {
        Mask::Address(address)
    } else if let Some(ether) = parse_ether(word, parser.names).filter(|_| header != Some(Header::Ip)) {
        Mask::Ether(ether)
    } else {
        return Ok(None);
    };
    parser.at += 2;
    if matches!(mask, Mask::Number(0) | Mask::Address(0)) {
        return Err("zero mask ignored".into());
    }
    Ok(Some(mask))
}

fn parse_relation(parser: &mut Parser<'_>, test: &mut Primitive) {
    let (order, negated) = match parser.peek() {
        _ if parser.at_last() => return,
        Some("=" | "==") => (ComparisonOrder::Equal, false),
        Some("!=") => (ComparisonOrder::Equal, true),
        Some(">") => (ComparisonOrder::Greater, false),
        Some("<") => (ComparisonOrder::Less, false),
        Some(">=") => (ComparisonOrder::Less, true),
        Some("<=") => (ComparisonOrder::Greater, true),
        _ => return,
    };
    (test.order, test.negated) = (order, negated);
    parser.at += 1;
}

/// Reads the value, if there is one.
fn parse_datum(parser: &mut Parser<'_>, test: &mut Primitive, header: Option<Header>) -> Result<(), String> {
    let Some(word) = parser.peek() else { return Ok(()) };
    parser.at += 1;
    let not_ether = header != Some(Header::Ether);
    let address = parse_ipv4(word, parser.names).filter(|_| not_ether);
    let prefix = || <Ipv4Prefix as ArgValue>::parse(word, parser.names).ok().filter(|_| not_ether);
    let net =
        |prefix: Ipv4Prefix| (Datum::Of(TestKind::Net), prefix.addr().to_bits(), prefix.mask().to_bits());
    let found = if let Some((datum, value)) = resolve_word(word, test.kind, test.protocol)? {
        Some((datum, value, 0))
    } else if let Ok(number) = <u32 as ArgValue>::parse(word, parser.names) {
        Some((Datum::Number, number, 0))
    } else if let Some(address) = address {
        let named_net = prefix().filter(|_| test.kind == Some(TestKind::Net)).map(net);
        let masked = parse_netmask(parser).map(|mask| (Datum::Of(TestKind::Net), address, mask));
        Some(masked.or(named_net).unwrap_or((Datum::Of(TestKind::Host), address, 0)))
    } else if let Some(prefix) = prefix() {
        Some(net(prefix))
    } else if let Some(ether) = parse_ether(word, parser.names).filter(|_| header != Some(Header::Ip)) {
        test.ether = ether;
        Some((Datum::Of(TestKind::Ether), 0, 0))
    } else {
        None
    };
    match found {
        Some((datum, value, mask)) => {
            (test.datum, test.value, test.mask) = (Some(datum), value, mask);
            Ok(())
        }
        None if test.order != ComparisonOrder::Equal || test.negated => {
            Err(format!("dangling operator near '{word}'"))
        }
        None => {
            parser.at -= 1;
            Ok(())
        }
    }
}

/// Reads `mask MASK` behind an address.
fn parse_netmask(parser: &mut Parser<'_>) -> Option<u32> {
    let mask = parse_ipv4(parser.peek_at(1)?, parser.names)?;
    let found = parser.eat_any(&["mask"]);
    parser.at += usize::from(found);
    found.then_some(mask)
}

fn parse_ipv4(word: &str, names: &Names) -> Option<u32> {
    <Ipv4Addr as ArgValue>::parse(word, names).ok().map(Ipv4Addr::to_bits)
}

fn parse_ether(word: &str, names: &Names) -> Option<[u8; 6]> {
    <EtherAddr as ArgValue>::parse(word, names).ok().map(EtherAddr::octets)
}

fn kind_named(word: &str) -> Option<TestKind> {
    let field = |protocol, offset, bits| TestKind::Field(Field { protocol, offset, bits });
    Some(match word {
        "host" => TestKind::Host,
        "net" => TestKind::Net,
        "proto" => TestKind::Protocol,
        "port" => TestKind::Port,
        "opt" => TestKind::TcpOption,
        "frag" => TestKind::Fragment,
        "unfrag" => TestKind::Unfragmented,
        "ect" => TestKind::EcnCapable,
        "ce" => TestKind::CongestionExperienced,
        "vers" => field(None, 0, 4),
        "hl" => field(None, 4, 4),
        "tos" => TestKind::TOS,
        "dscp" => field(None, 8, 6),
        "len" => field(None, 16, 16),
        "id" => field(None, 32, 16),
        "ttl" => field(None, 64, 8),
        "type" => TestKind::ICMP_TYPE,
        "win" => field(Some(names::TCP), 112, 16),
        _ => return None,
    })
}

/// The meaning of a word as a value of `kind` and `protocol`. An error when it is ambiguous, or has only
/// other meanings; `None` when it has none.
fn resolve_word(
    word: &str,
    kind: Option<TestKind>,
    protocol: Option<u32>,
) -> Result<Option<(Datum, u32)>, String> {
    if kind.is_none() && (kind_named(word).is_some() || is_syntax(word)) {
        return Ok(None);
    }
    let all = Meanings::of_word(word);
    let may = |of: TestKind, protocols: &[u32]| {
        kind.is_none_or(|kind| kind == of) && protocol.is_none_or(|p| protocols.contains(&p))
    };
    let tcp = [names::TCP, names::TCP_OR_UDP];
    let candidates = [
        (TestKind::Protocol, all.protocol, kind.is_none_or(|kind| kind == TestKind::Protocol)),
        (TestKind::Port, all.tcp_port, may(TestKind::Port, &tcp)),
        (TestKind::Port, all.udp_port, may(TestKind::Port, &[names::UDP, names::TCP_OR_UDP])),
        (TestKind::TcpOption, all.tcp_option, may(TestKind::TcpOption, &tcp)),
        (TestKind::ICMP_TYPE, all.icmp_type, may(TestKind::ICMP_TYPE, &[names::ICMP])),
    ];
    let known = candidates.iter().filter_map(|(kind, value, fits)| value.map(|value| (*kind, value, *fits)));
    let mut fitting: Vec<(TestKind, u32)> =
        known.clone().filter(|(.., fits)| *fits).map(|(k, v, _)| (k, v)).collect();
    fitting.dedup();
    match fitting[..] {
        [(kind, value)] => Ok(Some((Datum::Of(kind), value))),
        [] if known.clone().next().is_none() => Ok(None),
        _ => {
            let tries: Vec<String> =
                known.map(|(kind, ..)| format!("'{}'", format_test(Some(kind), protocol, word))).collect();
            let problem = if fitting.is_empty() { "meaningless" } else { "ambiguous" };
            Err(format!("'{}' is {problem}; try {}", format_test(kind, protocol, word), tries.join(", ")))
        }
    }
}

/// Words that have no meaning of their own.
fn is_syntax(word: &str) -> bool {
    matches!(word, "src" | "dst" | "dest" | "ip" | "ether" | "not")
}

fn format_test(kind: Option<TestKind>, protocol: Option<u32>, word: &str) -> String {
    let kind = kind.map(|kind| kind.to_pattern_text(None)).unwrap_or_default();
    let protocol = names::protocol_name(protocol);
    [kind.as_str(), protocol.as_str(), word]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}
