//! Routes as text: one a line, a prefix and its group or next hop.
//!
//! ```text
//! # comments; empty lines
//! 10.0.0.0/8            3            a group, from 1 on
//! 188.224.196/24        192.0.2.1    a next hop; zero octets may be missing, as in BSD's netstat
//! 2001:db8::/32                      neither: the reader of the file decides
//! ```
//!
//! A file says groups or next hops, not both. Next hops are numbered from 1 on in the order in which they
//! first appear. Nothing is applied to any table here: a damaged file leaves everything as it was.
use crate::address::{Address, NotAPrefix, Prefix};
use crate::runs::{Group, NO_GROUP};
use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, Read as _};
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// The routes of a file, of both families, in order and each prefix once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// IPv4 routes; [`NO_GROUP`] where the file gives no group.
    pub v4: Vec<(Prefix<u32>, Group)>,
    /// IPv6 routes; [`NO_GROUP`] where the file gives no group.
    pub v6: Vec<(Prefix<u128>, Group)>,
    /// What groups stand for where the file names next hops: the first is group 1.
    pub next_hops: Vec<IpAddr>,
}

impl Routes {
    /// How many routes there are.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A prefix of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnyPrefix {
    /// A prefix of IPv4.
    V4(Prefix<u32>),
    /// A prefix of IPv6.
    V6(Prefix<u128>),
}

impl AnyPrefix {
    /// The first `len` bits of an address.
    pub fn new(address: IpAddr, len: u8) -> Result<AnyPrefix, NotAPrefix> {
        Ok(match address {
            IpAddr::V4(address) => AnyPrefix::V4(Prefix::new(address.to_bits(), len)?),
            IpAddr::V6(address) => AnyPrefix::V6(Prefix::new(address.to_bits(), len)?),
        })
    }

    /// Whether an address, of the same family, begins with this prefix.
    pub fn contains(self, address: IpAddr) -> bool {
        match (self, address) {
            (AnyPrefix::V4(prefix), IpAddr::V4(address)) => prefix.contains(address.to_bits()),
            (AnyPrefix::V6(prefix), IpAddr::V6(address)) => prefix.contains(address.to_bits()),
            _ => false,
        }
    }
}

impl FromStr for AnyPrefix {
    type Err = NotAPrefix;

    /// Reads `address/length`, or a bare address, which is its own prefix.
    fn from_str(text: &str) -> Result<AnyPrefix, NotAPrefix> {
        if text.contains(':') { text.parse().map(AnyPrefix::V6) } else { text.parse().map(AnyPrefix::V4) }
    }
}

impl fmt::Display for AnyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnyPrefix::V4(prefix) => prefix.fmt(f),
            AnyPrefix::V6(prefix) => prefix.fmt(f),
        }
    }
}

/// Routes while they are being read: counts next hops, and keeps one route for each prefix.
#[derive(Debug, Default)]
pub struct Gathering {
    routes: Routes,
    numbers: HashMap<IpAddr, Group>,
}

impl Gathering {
    /// Adds a route that goes to a group.
    pub fn add_route(&mut self, prefix: AnyPrefix, group: Group) {
        match prefix {
            AnyPrefix::V4(prefix) => self.routes.v4.push((prefix, group)),
            AnyPrefix::V6(prefix) => self.routes.v6.push((prefix, group)),
        }
    }
    /// Adds a route that goes to a next hop.
    pub fn add_via(&mut self, prefix: AnyPrefix, next_hop: IpAddr) {
        let next_hops = &mut self.routes.next_hops;
        let number = *self.numbers.entry(next_hop).or_insert_with(|| {
            next_hops.push(next_hop);
            next_hops.len() as Group
        });
        self.add_route(prefix, number);
    }
    /// The routes in order. Of those with the same prefix, the one that was added last stays.
    pub fn into_routes(mut self) -> Routes {
        dedup_routes(&mut self.routes.v4);
        dedup_routes(&mut self.routes.v6);
        self.routes
    }
}

fn dedup_routes<A: Address>(routes: &mut Vec<(Prefix<A>, Group)>) {
    routes.reverse();
    routes.sort_by_key(|route| route.0);
    routes.dedup_by_key(|route| route.0);
}

/// Why a text is not taken as routes, and which line is to blame.
#[derive(Debug)]
pub enum TextError {
    /// It could not be read.
    Io(io::Error),
    /// A line is none of those that there may be.
    Line {
        /// Number of the line, from 1 on.
        line: usize,
        /// What is wrong with it.
        problem: Problem,
    },
}

/// What can be wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The first word is not a prefix.
    Prefix(String, NotAPrefix),
    /// The second word is neither a group nor an address.
    NextHop(String),
    /// The line goes on after prefix and group.
    TooMuch(String),
    /// It names a next hop where others name groups, or the reverse.
    Mixed,
    /// It is longer than any line of routes.
    TooLong,
    /// It is not text.
    NotText,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Prefix(word, why) => {
                write!(f, "{word:?} is not a prefix: {why}; write it as 192.0.2.0/24 or 2001:db8::/32")
            }
            Problem::NextHop(word) => {
                write!(f, "{word:?} is neither a group (a number from 1 on) nor a next hop (an address)")
            }
            Problem::TooMuch(word) => write!(f, "nothing may follow prefix and way, but {word:?} does"),
            Problem::Mixed => f.write_str(
                "groups and next hops in one file: numbers would mean two things; use one of them",
            ),
            Problem::TooLong => {
                write!(f, "the line is longer than {MAX_LINE} bytes: is this a file of routes?")
            }
            Problem::NotText => f.write_str("the line is not text: is this a file of routes?"),
        }
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextError::Io(error) => error.fmt(f),
            TextError::Line { line, problem } => write!(f, "line {line}: {problem}"),
        }
    }
}

impl std::error::Error for TextError {}

/// Most bytes of a line.
pub const MAX_LINE: usize = 1024;

/// Reads routes as text.
pub fn text(mut from: impl BufRead) -> Result<Routes, TextError> {
    let mut gathering = Gathering::default();
    let mut kind = None;
    let mut bytes = Vec::new();
    for line in 1.. {
        let blame = |problem| TextError::Line { line, problem };
        bytes.clear();
        // One byte more than a line may have tells a long line from a full one.
        let limit = MAX_LINE as u64 + 1;
        let count = from.by_ref().take(limit).read_until(b'\n', &mut bytes).map_err(TextError::Io)?;
        if count == 0 {
            break;
        }
        if count as u64 == limit {
            return Err(blame(Problem::TooLong));
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| blame(Problem::NotText))?;
        parse_line(text, &mut gathering, &mut kind).map_err(blame)?;
    }
    Ok(gathering.into_routes())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Groups,
    NextHops,
}

fn parse_line(text: &str, gathering: &mut Gathering, kind: &mut Option<Kind>) -> Result<(), Problem> {
    let text = text.split('#').next().unwrap_or("");
    let mut words = text.split_ascii_whitespace();
    let Some(word) = words.next() else { return Ok(()) };
    let prefix = parse_prefix(word).map_err(|why| Problem::Prefix(word.into(), why))?;
    let Some(way) = words.next() else {
        gathering.add_route(prefix, NO_GROUP);
        return Ok(());
    };
    if let Some(word) = words.next() {
        return Err(Problem::TooMuch(word.into()));
    }
    let mut only = |this| if *kind.get_or_insert(this) == this { Ok(()) } else { Err(Problem::Mixed) };
    if let Ok(next_hop) = way.parse() {
        only(Kind::NextHops)?;
        gathering.add_via(prefix, next_hop);
    } else {
        only(Kind::Groups)?;
        gathering.add_route(prefix, parse_group(way)?);
    }
    Ok(())
}

fn parse_group(word: &str) -> Result<Group, Problem> {
    let number = word.parse().ok().filter(|&group| group != NO_GROUP && !word.starts_with('+'));
    number.ok_or_else(|| Problem::NextHop(word.into()))
}

/// Reads a prefix of either family; zero octets at the end of an IPv4 prefix may be
/// missing, `default` is 0.0.0.0/0.
pub fn parse_prefix(word: &str) -> Result<AnyPrefix, NotAPrefix> {
    if word == "default" {
        return Ok(AnyPrefix::V4(Prefix::ALL));
    }
    match word.split_once('/') {
        _ if word.contains(':') => word.parse(),
        Some((address, len)) if !len.starts_with('+') => {
            let len = len.parse().map_err(|_| NotAPrefix::Length)?;
            AnyPrefix::new(parse_short_ipv4(address)?.into(), len)
        }
        Some(_) => Err(NotAPrefix::Length),
        None => word.parse(),
    }
}

/// An IPv4 address of which zero octets at the end may be missing.
fn parse_short_ipv4(text: &str) -> Result<Ipv4Addr, NotAPrefix> {
    let octets = text.split('.').count();
    let full = match octets {
        1..=4 => [text, &".0".repeat(4 - octets)].concat(),
        _ => return Err(NotAPrefix::Address),
    };
    full.parse().map_err(|_| NotAPrefix::Address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{generate_prefixes, random_groups};
    use proptest::prelude::*;

    fn read(file: &str) -> Result<Routes, String> {
        text(file.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn both_families_groups_and_comments_are_read() {
        let file = "# a table\n10.0.0.0/8 3 # ours\n\n  2001:db8::/32\t7\r\n192.0.2.1 65536";
        let routes = read(file).unwrap();
        let v4 = [("10.0.0.0/8", 3), ("192.0.2.1/32", 65536)].map(|(p, g)| (p.parse().unwrap(), g));
        assert_eq!(routes.v4, v4);
        assert_eq!(routes.v6, [("2001:db8::/32".parse().unwrap(), 7)]);
        assert!(routes.next_hops.is_empty());
    }

    #[test]
    fn a_prefix_of_either_family_contains_addresses_of_its_own() {
        for (prefix, inside, outside) in [
            ("10.0.0.0/8", "10.9.9.9", ["11.0.0.0", "::ffff:10.0.0.1"]),
            ("0.0.0.0/0", "192.0.2.1", ["::", "2001:db8::1"]),
            ("192.0.2.1", "192.0.2.1", ["192.0.2.2", "192.0.2.0"]),
            ("2001:db8::/32", "2001:db8:ffff::1", ["2001:db9::", "10.0.0.1"]),
            ("::1", "::1", ["::2", "0.0.0.1"]),
        ] {
            let known: AnyPrefix = prefix.parse().unwrap();
            let contains = |address: &str| known.contains(address.parse().unwrap());
            assert!(contains(inside) && !outside.into_iter().any(contains), "{prefix}");
        }
        for wrong in ["", "10/8", "10.0.0.0/33", "2001:db8::/129", "default", "x"] {
            assert!(wrong.parse::<AnyPrefix>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn missing_octets_are_zero() {
        let routes = read("188.224.196/24\n10/8\n172.16/12\ndefault\n").unwrap();
        let shown: Vec<String> = routes.v4.iter().map(|route| route.0.to_string()).collect();
        assert_eq!(shown, ["0.0.0.0/0", "10.0.0.0/8", "172.16.0.0/12", "188.224.196.0/24"]);
        assert!(routes.v4.iter().all(|route| route.1 == NO_GROUP));
    }

    #[test]
    fn next_hops_are_numbered_as_they_appear() {
        let routes = read("10/8 192.0.2.1\n11/8 2001:db8::1\n12/8 192.0.2.1").unwrap();
        assert_eq!(routes.v4.iter().map(|route| route.1).collect::<Vec<_>>(), [1, 2, 1]);
        assert_eq!(routes.next_hops.len(), 2);
    }

    #[test]
    fn of_two_lines_with_one_prefix_the_last_counts() {
        assert_eq!(read("10/8 1\n11/8 5\n10/8 2").unwrap().v4[0].1, 2);
    }

    #[test]
    fn damage_is_refused_with_its_line_and_a_remedy() {
        for (file, line, word) in [
            ("10/8 1\n10.0.0.0/33 1", "line 2", "0 to 32"),
            ("10.0.0.0.0/8", "line 1", "not an address"),
            ("10.0.0/8 x", "line 1", "neither a group"),
            ("10/8 0", "line 1", "from 1 on"),
            ("10/8 +1", "line 1", "from 1 on"),
            ("10/8 1 2", "line 1", "nothing may follow"),
            ("10/8 1\n\n11/8 10.0.0.1", "line 3", "one file"),
            ("10/+8", "line 1", "0 to 32"),
            ("/8", "line 1", "not an address"),
            ("10..1/8", "line 1", "not an address"),
            ("2001:db8::/129", "line 1", "0 to 128"),
            ("10.1.2", "line 1", "write it as"),
        ] {
            let error = read(file).unwrap_err();
            assert!(error.starts_with(line) && error.contains(word), "{file:?}: {error}");
        }
    }

    #[test]
    fn what_is_not_text_is_refused() {
        let error = |bytes: &[u8]| text(bytes).unwrap_err().to_string();
        assert!(error(b"10/8 1\n\xff\xfe\n").starts_with("line 2: the line is not text"));
        assert!(error(&[b'1'; 5000]).contains("longer than"));
    }

    #[test]
    fn a_table_that_was_written_is_read_as_it_was() {
        let v4 = random_groups(&generate_prefixes::<u32>(500, 1), 64, 1);
        let v6 = random_groups(&generate_prefixes::<u128>(500, 1), 64, 1);
        let lines = v4.iter().map(|(prefix, group)| format!("{prefix} {group}\n"));
        let file: String =
            lines.chain(v6.iter().map(|(prefix, group)| format!("{prefix} {group}\n"))).collect();
        assert_eq!(read(&file).unwrap(), Routes { v4, v6, next_hops: Vec::new() });
        for end in 0..file.len().min(3000) {
            // A cut number or address is still one; what counts is that nothing else happens.
            let _ = read(&file[..end]);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_routes_or_an_error(bytes: Vec<u8>) {
            let _ = text(&bytes[..]);
        }

        #[test]
        fn any_words_are_routes_or_an_error(words in "[0-9./:a-f #\\n+]{0,60}") {
            let _ = read(&words);
        }
    }
}
