//! The two ends of a rule: addresses, ports and operating systems.
use super::hosts::{Host, dynamic, resolve};
use super::lexer::Token;
use super::parser::{Parser, Step};
use crate::facts::Family;
use crate::names::bits;
use crate::rule::{AddressMatch, Comparison, HostAddress};

/// The longest name of a table.
pub(crate) const LONGEST_TABLE: usize = 31;

/// The longest label of a route.
const LONGEST_ROUTE_LABEL: usize = 31;

/// One end, with all that its lists have.
#[derive(Clone, Debug, Default)]
pub(crate) struct End {
    /// Addresses; none is any.
    pub(crate) hosts: Vec<Host>,
    /// Ports; none is any.
    pub(crate) ports: Vec<Comparison<u16>>,
    /// Operating systems; none is any.
    pub(crate) systems: Vec<String>,
}

/// Ports as a word says them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortWord {
    /// One.
    One(u16),
    /// `from:to`.
    Range(u16, u16),
    /// `from:*`.
    Star(u16),
}

impl Parser<'_> {
    /// Reads `all`, or `from …` and `to …`, of which either may be missing.
    pub(crate) fn ends(&mut self) -> Step<(End, End)> {
        let (mut from, mut to) = (End::default(), End::default());
        if self.eat("all") {
            return Ok((from, to));
        }
        if self.eat("from") {
            from = self.end()?;
        }
        if self.eat("os") {
            from.systems = self.list(&mut |parser, systems| {
                systems.push(parser.text()?);
                Ok(())
            })?;
        }
        if self.eat("to") {
            to = self.end()?;
            if to.hosts.iter().any(|host| host.address == AddressMatch::UrpfFailed) {
                return Err(
                    self.stop("\"urpf-failed\" is not permitted in a destination address\nit is for sources")
                );
            }
        }
        Ok((from, to))
    }

    fn end(&mut self) -> Step<End> {
        let mut end = End::default();
        if self.peek() != &Token::Key("port") {
            end.hosts = self.end_hosts()?;
        }
        if self.eat("port") {
            end.ports = self.list(&mut Self::port_test)?;
        }
        Ok(end)
    }

    /// Reads addresses of a rule, which may be lists within lists. A list that has any address somewhere is any address,
    /// and then there are none here.
    fn end_hosts(&mut self) -> Step<Vec<Host>> {
        if self.eat("any") {
            return Ok(Vec::new());
        }
        if !self.eat_sign("{") {
            return self.end_host();
        }
        let (mut all, mut is_any) = (Vec::new(), false);
        self.items(&mut |parser| {
            let mut found = parser.end_hosts()?;
            is_any |= found.is_empty();
            all.append(&mut found);
            Ok(())
        })?;
        Ok(if is_any { Vec::new() } else { all })
    }

    /// Reads an address of a rule, which may be several of a name.
    fn end_host(&mut self) -> Step<Vec<Host>> {
        let is_negated = self.eat_sign("!");
        let mut found = match self.peek() {
            Token::Key("no-route") => self.word_host(AddressMatch::NoRoute),
            Token::Key("urpf-failed") => self.word_host(AddressMatch::UrpfFailed),
            _ => self.host()?,
        };
        found.iter_mut().for_each(|host| host.is_negated = is_negated);
        Ok(found)
    }

    pub(crate) fn word_host(&mut self, address: AddressMatch) -> Vec<Host> {
        self.take();
        vec![Host::new(address)]
    }

    /// Reads what addresses are written as: numbers, names, interfaces, tables.
    pub(crate) fn host(&mut self) -> Step<Vec<Host>> {
        match self.peek() {
            Token::Sign("<") => Ok(vec![Host::new(AddressMatch::Table(self.table_name()?))]),
            Token::Sign("(") => Ok(vec![self.dynamic_host()?]),
            Token::Key("route") => {
                self.take();
                let label = self.text()?;
                if label.len() > LONGEST_ROUTE_LABEL {
                    return Err(self.stop(format!("route label too long, max {LONGEST_ROUTE_LABEL} chars")));
                }
                Ok(vec![Host::new(AddressMatch::RouteLabel(label))])
            }
            Token::Number(_) => {
                let word = self.number()?.to_string();
                self.sign("/")?;
                let length = self.number()?;
                self.resolve(&word, Some(length))
            }
            _ => self.written_host(),
        }
    }

    /// Reads an address of a pool or a table, and how often it is chosen beside others.
    pub(crate) fn weighted_host(&mut self) -> Step<Vec<Host>> {
        let mut found = self.host()?;
        if self.eat("weight") {
            let weight = self.number_within("weight", 1, 65535)? as u16;
            found.iter_mut().for_each(|host| host.weight = weight);
        }
        Ok(found)
    }

    /// A word, with a length behind a slash, or the last address of a range behind a dash.
    fn written_host(&mut self) -> Step<Vec<Host>> {
        let word = self.text()?;
        if self.eat_sign("-") {
            let last = self.text()?;
            return self.range(&word, &last);
        }
        let length = if self.eat_sign("/") { Some(self.number()?) } else { None };
        self.resolve(&word, length)
    }

    /// All that a word stands for. In quotes it may have its length with it.
    pub(crate) fn resolve(&mut self, word: &str, length: Option<i64>) -> Step<Vec<Host>> {
        let (word, length) = match word.rsplit_once('/').filter(|_| length.is_none()) {
            None => (word, length),
            Some((word, length)) => match length.parse() {
                Ok(length) => (word, Some(length)),
                Err(_) => {
                    return Err(self.stop(format!("invalid netmask '{length}'\nit is a number of bits")));
                }
            },
        };
        resolve(word, length, self.environment).map_err(|why| self.stop(why))
    }

    fn range(&mut self, first: &str, last: &str) -> Step<Vec<Host>> {
        let (first, last) = (self.resolve(first, None)?, self.resolve(last, None)?);
        let (Some(from), Some(to)) = (single(&first), single(&last)) else {
            return Err(self.stop("invalid address range\nit goes from one address to another"));
        };
        if Family::of(from) != Family::of(to) {
            return Err(self.stop("invalid address range\nits ends are of different address families"));
        }
        let family = Some(Family::of(from));
        Ok(vec![Host { family, ..Host::new(AddressMatch::Range(from, to)) }])
    }

    fn dynamic_host(&mut self) -> Step<Host> {
        self.sign("(")?;
        let word = self.text()?;
        self.sign(")")?;
        let length = if self.eat_sign("/") { Some(self.number()?) } else { None };
        dynamic(&word, length).map_err(|why| self.stop(why))
    }

    /// Reads `<name>`.
    pub(crate) fn table_name(&mut self) -> Step<String> {
        self.sign("<")?;
        let name = self.text()?;
        self.sign(">")?;
        if name.len() > LONGEST_TABLE {
            return Err(
                self.stop(format!("table name '{name}' too long\nit may have {LONGEST_TABLE} characters"))
            );
        }
        Ok(name)
    }

    fn port_test(&mut self, tests: &mut Vec<Comparison<u16>>) -> Step<()> {
        let operator = self.operator();
        let word = self.port_word(true)?;
        let test = match (operator, word, self.binary_operator()) {
            (None, PortWord::Range(from, to), None) if from > to => {
                return Err(self.stop(format!("invalid port range {from}:{to}\nthere is no port in it")));
            }
            (None, PortWord::Range(from, to), None) => Comparison::Range(from, to),
            (None, PortWord::One(port), None) => Comparison::Equal(port),
            (None, PortWord::One(first), Some(binary)) => match self.port_word(true)? {
                PortWord::One(second) if binary.is_useless(first, second) => {
                    return Err(self.stop(format!("invalid port range from {first} to {second}")));
                }
                PortWord::One(second) => binary.test(first, second),
                _ => return Err(self.stop("':' cannot be used with another port operator")),
            },
            (Some(unary), PortWord::One(port), None) => unary.test(port),
            (Some(_), PortWord::One(_), Some(_)) => return Err(self.syntax_error()),
            _ => return Err(self.stop("':' cannot be used with another port operator")),
        };
        tests.push(test);
        Ok(())
    }

    /// Takes `=`, `<=` and the like.
    pub(crate) fn operator(&mut self) -> Option<Unary> {
        let Token::Sign(sign) = *self.peek() else { return None };
        let found = match sign {
            "=" => Unary::Equal,
            "!=" => Unary::Unequal,
            "<" => Unary::Less,
            "<=" => Unary::LessOrEqual,
            ">" => Unary::Greater,
            ">=" => Unary::GreaterOrEqual,
            _ => return None,
        };
        self.take();
        Some(found)
    }

    /// Takes `><` or `<>`.
    pub(crate) fn binary_operator(&mut self) -> Option<Binary> {
        if self.eat_sign("><") {
            return Some(Binary::Between);
        }
        self.eat_sign("<>").then_some(Binary::Except)
    }

    /// Reads a port, or two with a colon.
    pub(crate) fn port_word(&mut self, may_be_range: bool) -> Step<PortWord> {
        let word = self.number_or_text()?;
        match word.split_once(':') {
            None => Ok(PortWord::One(self.port(&word)?)),
            Some((first, "*")) => Ok(PortWord::Star(self.port(first)?)),
            Some((first, last)) if may_be_range => match (self.port(first)?, self.port(last)?) {
                (first, last) if first == last => Ok(PortWord::One(first)),
                (first, last) => Ok(PortWord::Range(first, last)),
            },
            Some(_) => Err(self.stop(format!("port is invalid: {word}"))),
        }
    }

    pub(crate) fn port(&mut self, word: &str) -> Step<u16> {
        if let Some(number) = unsigned(word) {
            return u16::try_from(number).map_err(|_| self.stop(format!("illegal port value {word}")));
        }
        let port = self.environment.names.port(word);
        port.ok_or(()).map_err(|()| self.stop(format!("unknown port {word}\nno service is called so")))
    }
}

/// A single address, if that is all.
fn single(hosts: &[Host]) -> Option<std::net::IpAddr> {
    match hosts {
        [Host { address: AddressMatch::Host(HostAddress::Network(address, length)), .. }]
            if *length == bits(*address) =>
        {
            Some(*address)
        }
        _ => None,
    }
}

/// A number in decimal, in hexadecimal behind `0x`, or in octal behind `0`.
pub(crate) fn unsigned(word: &str) -> Option<u64> {
    let (digits, base) = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if word.len() > 1 && word.starts_with('0') => (&word[1..], 8),
        None => (word, 10),
    };
    if digits.starts_with('+') { None } else { u64::from_str_radix(digits, base).ok() }
}

/// An operator with one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Unary {
    /// The test of a number.
    pub(crate) fn test<T>(self, n: T) -> Comparison<T> {
        match self {
            Unary::Equal => Comparison::Equal(n),
            Unary::Unequal => Comparison::Unequal(n),
            Unary::Less => Comparison::Less(n),
            Unary::LessOrEqual => Comparison::LessOrEqual(n),
            Unary::Greater => Comparison::Greater(n),
            Unary::GreaterOrEqual => Comparison::GreaterOrEqual(n),
        }
    }
}

/// An operator between two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Between,
    Except,
}

impl Binary {
    /// Whether no number passes, or each.
    fn is_useless(self, first: u16, second: u16) -> bool {
        match self {
            Binary::Between => first >= second,
            Binary::Except => first > second,
        }
    }

    /// The test of two numbers.
    pub(crate) fn test<T>(self, first: T, second: T) -> Comparison<T> {
        match self {
            Binary::Between => Comparison::Between(first, second),
            Binary::Except => Comparison::Except(first, second),
        }
    }
}
