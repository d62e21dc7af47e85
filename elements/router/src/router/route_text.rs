//! Routes and neighbors as people write them, in a configuration and to handlers.
use artery_l3::PortId;
use artery_l3::next_hop::Selection;
use artery_l3::router::{RouteSpec, Tables, Target};
use artery_lpm::load::{self, AnyPrefix};
use std::net::IpAddr;
use std::str::SplitWhitespace;

/// The error about an invalid text: where, what, and the remedy.
type ParseError = String;

/// Parses `PREFIX WAY… [by METHOD]`. A way is `GATEWAY`, `GATEWAY%PORT`, `PORT`, `blackhole`,
/// `unreachable` or `prohibited`, optionally followed by `weight N` and `mtu N`. A method is `hash`,
/// `resilient`, `xor` or `per-packet`.
pub(super) fn parse_route(tables: &Tables, text: &str) -> Result<(AnyPrefix, RouteSpec), ParseError> {
    let mut words = text.split_whitespace();
    let first = words.next().ok_or("a route begins with its prefix, such as 192.0.2.0/24")?;
    let prefix = parse_prefix(first)?;
    let mut spec = RouteSpec::default();
    while let Some(word) = words.next() {
        match word {
            "by" => spec.selection = parse_method(next_value(word, &mut words)?)?,
            "weight" => last_next_hop(&mut spec, word)?.1 = parse_number(word, &mut words)?,
            "mtu" => set_mtu(last_next_hop(&mut spec, word)?, parse_number(word, &mut words)?)?,
            _ => spec.next_hops.push((parse_target(tables, word)?, 1)),
        }
    }
    Ok((prefix, spec))
}

fn parse_target(tables: &Tables, word: &str) -> Result<Target, ParseError> {
    let via = |gateway, port| Target::Via { port, gateway: Some(gateway), mtu: None };
    match word {
        "blackhole" => return Ok(Target::Blackhole),
        "unreachable" => return Ok(Target::Unreachable),
        "prohibited" => return Ok(Target::Prohibited),
        _ => {}
    }
    if let Some((gateway, port)) = word.split_once('%') {
        return Ok(via(parse_ip(gateway)?, Some(port_of(tables, port)?)));
    }
    match word.parse() {
        Ok(gateway) => Ok(via(gateway, None)),
        Err(_) if tables.find_port(word).is_some() => Ok(Target::on_link(port_of(tables, word)?)),
        Err(_) => Err(format!(
            "'{word}' is not a next hop: name the address of a gateway, a port ({}), or blackhole, \
             unreachable or prohibited",
            port_names(tables)
        )),
    }
}

fn next_value<'a>(word: &str, words: &mut SplitWhitespace<'a>) -> Result<&'a str, ParseError> {
    words.next().ok_or_else(|| format!("'{word}' is the last word; its value is missing"))
}

fn parse_number<T: std::str::FromStr>(word: &str, words: &mut SplitWhitespace<'_>) -> Result<T, ParseError> {
    let value = next_value(word, words)?;
    value.parse().map_err(|_| format!("{word} {value}: not a number that it can have"))
}

fn last_next_hop<'a>(spec: &'a mut RouteSpec, word: &str) -> Result<&'a mut (Target, u32), ParseError> {
    spec.next_hops.last_mut().ok_or_else(|| format!("'{word}' belongs behind the way that it is about"))
}

fn set_mtu((target, _): &mut (Target, u32), longest: u16) -> Result<(), ParseError> {
    match target {
        Target::Via { mtu, .. } => *mtu = Some(longest),
        _ => return Err("mtu belongs behind a gateway or a port: no packet takes the other ways".into()),
    }
    Ok(())
}

fn parse_method(word: &str) -> Result<Selection, ParseError> {
    [Selection::Hash, Selection::RESILIENT, Selection::Xor, Selection::PerPacket]
        .into_iter()
        .find(|selection| selection.name() == word)
        .ok_or_else(|| format!("'{word}' is not a method; they are hash, resilient, xor and per-packet"))
}

pub(super) fn parse_prefix(word: &str) -> Result<AnyPrefix, ParseError> {
    let word = if word == "default" { "0.0.0.0/0" } else { word };
    load::parse_prefix(word)
        .map_err(|why| format!("'{word}' is not a valid prefix: {why}; write it as 192.0.2.0/24"))
}

pub(super) fn parse_ip(word: &str) -> Result<IpAddr, ParseError> {
    word.parse()
        .map_err(|_| format!("'{word}' is not a valid IP address; write it as 192.0.2.1 or 2001:db8::1"))
}

/// The port of this name.
pub(super) fn port_of(tables: &Tables, name: &str) -> Result<PortId, ParseError> {
    tables
        .find_port(name)
        .ok_or_else(|| format!("no port is called '{name}'; there are: {}", port_names(tables)))
}

/// The ports' names, for messages.
pub(super) fn port_names(tables: &Tables) -> String {
    tables.ports().into_iter().map(|port| port.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::verdict::testing::{B, small};
    use super::*;

    fn read(text: &str) -> Result<(AnyPrefix, RouteSpec), ParseError> {
        parse_route(&small().tables, text)
    }

    #[test]
    fn a_route_has_ways_with_weights_and_a_method() {
        let (prefix, spec) =
            read("10.0.0.0/8 10.0.2.254 weight 3 mtu 1400 fe80::1%b b by resilient").unwrap();
        assert_eq!(prefix.to_string(), "10.0.0.0/8");
        let via =
            |gateway: &str, port, mtu| Target::Via { port, gateway: Some(gateway.parse().unwrap()), mtu };
        let expected = vec![
            (via("10.0.2.254", None, Some(1400)), 3),
            (via("fe80::1", Some(B), None), 1),
            (Target::on_link(B), 1),
        ];
        assert_eq!((spec.next_hops, spec.selection), (expected, Selection::RESILIENT));
        assert_eq!(read("default blackhole").unwrap().1.next_hops, [(Target::Blackhole, 1)]);
    }

    #[test]
    fn what_is_wrong_is_said_with_a_remedy() {
        for (text, expected) in [
            ("", "a route begins with its prefix, such as 192.0.2.0/24"),
            (
                "10.0.0.0/8 eth9",
                "'eth9' is not a next hop: name the address of a gateway, a port (a, b), or blackhole, \
                 unreachable or prohibited",
            ),
            ("10.0.0.0/8 10.0.2.9%c", "no port is called 'c'; there are: a, b"),
            ("10.0.0.0/8 weight 3", "'weight' belongs behind the way that it is about"),
            ("10.0.0.0/8 b weight", "'weight' is the last word; its value is missing"),
            ("10.0.0.0/8 b weight x", "weight x: not a number that it can have"),
            (
                "10.0.0.0/8 blackhole mtu 9",
                "mtu belongs behind a gateway or a port: no packet takes the other ways",
            ),
            ("10.0.0.0/8 b by luck", "'luck' is not a method; they are hash, resilient, xor and per-packet"),
        ] {
            assert_eq!(read(text).unwrap_err(), expected, "{text}");
        }
        assert!(read("10.0.0.0/33 b").unwrap_err().starts_with("'10.0.0.0/33' is not a valid prefix: "));
    }
}
