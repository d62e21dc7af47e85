//! The two ends of a rule: addresses, ports and operating systems.
use super::hosts::{Host, parse_dynamic_host, resolve_word};
use super::lexer::Token;
use super::parser::{Parser, Step};
use crate::facts::Family;
use crate::names::address_bits;
use crate::rule::{AddressMatch, Comparison, HostAddress};

/// The longest name of a table.
pub(crate) const LONGEST_TABLE: usize = 31;

/// The longest label of a route.
const LONGEST_ROUTE_LABEL: usize = 31;

/// One end, with all that its lists have.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndpointLists {
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
    One(u16),
    /// A range as `from:to`, both included.
    Range(u16, u16),
    /// A range to the highest port: `from:*`.
    Star(u16),
}

impl Parser<'_> {
    /// Reads `all`, or `from …` and `to …`, of which either may be missing.
    pub(crate) fn parse_ends(&mut self) -> Step<(EndpointLists, EndpointLists)> {
        let (mut from, mut to) = (EndpointLists::default(), EndpointLists::default());
        if self.eat_key("all") {
            return Ok((from, to));
        }
        if self.eat_key("from") {
            from = self.parse_end()?;
        }
        if self.eat_key("os") {
            from.systems = self.parse_list(&mut |parser, systems| {
                systems.push(parser.expect_text()?);
                Ok(())
            })?;
        }
        if self.eat_key("to") {
            to = self.parse_end()?;
            if to.hosts.iter().any(|host| host.address == AddressMatch::UrpfFailed) {
                return Err(self.fail_statement(
                    "\"urpf-failed\" is not permitted in a destination address\nit is for sources",
                ));
            }
        }
        Ok((from, to))
    }

    fn parse_end(&mut self) -> Step<EndpointLists> {
        let mut end = EndpointLists::default();
        if self.peek() != &Token::Key("port") {
            end.hosts = self.end_hosts()?;
        }
        if self.eat_key("port") {
            end.ports = self.parse_list(&mut Self::port_test)?;
        }
        Ok(end)
    }

    /// Reads addresses of a rule, which may be lists within lists. A list that has any address somewhere is
    /// any address, and then there are none here.
    fn end_hosts(&mut self) -> Step<Vec<Host>> {
        if self.eat_key("any") {
            return Ok(Vec::new());
        }
        if !self.eat_sign("{") {
            return self.end_host();
        }
        let (mut all, mut is_any) = (Vec::new(), false);
        self.parse_items(&mut |parser| {
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
            _ => self.parse_host()?,
        };
        found.iter_mut().for_each(|host| host.is_negated = is_negated);
        Ok(found)
    }

    pub(crate) fn word_host(&mut self, address: AddressMatch) -> Vec<Host> {
        self.next_token();
        vec![Host::new(address)]
    }

    /// Reads what addresses are written as: numbers, names, interfaces, tables.
    pub(crate) fn parse_host(&mut self) -> Step<Vec<Host>> {
        match self.peek() {
            Token::Sign("<") => Ok(vec![Host::new(AddressMatch::Table(self.table_name()?))]),
            Token::Sign("(") => Ok(vec![self.dynamic_host()?]),
            Token::Key("route") => {
                self.next_token();
                let label = self.expect_text()?;
                if label.len() > LONGEST_ROUTE_LABEL {
                    return Err(
                        self.fail_statement(format!("route label too long, max {LONGEST_ROUTE_LABEL} chars"))
                    );
                }
                Ok(vec![Host::new(AddressMatch::RouteLabel(label))])
            }
            Token::Number(_) => {
                let word = self.expect_number()?.to_string();
                self.expect_sign("/")?;
                let length = self.expect_number()?;
                self.resolve_host(&word, Some(length))
            }
            _ => self.written_host(),
        }
    }

    /// Reads an address of a pool or a table, and how often it is chosen beside others.
    pub(crate) fn weighted_host(&mut self) -> Step<Vec<Host>> {
        let mut found = self.parse_host()?;
        if self.eat_key("weight") {
            let weight = self.number_within("weight", 1, 65535)? as u16;
            found.iter_mut().for_each(|host| host.weight = weight);
        }
        Ok(found)
    }

    /// A word, with a length behind a slash, or the last address of a range behind a dash.
    fn written_host(&mut self) -> Step<Vec<Host>> {
        let word = self.expect_text()?;
        if self.eat_sign("-") {
            let last = self.expect_text()?;
            return self.parse_range(&word, &last);
        }
        let length = if self.eat_sign("/") { Some(self.expect_number()?) } else { None };
        self.resolve_host(&word, length)
    }

    /// All that a word stands for. In quotes it may have its length with it.
    pub(crate) fn resolve_host(&mut self, word: &str, length: Option<i64>) -> Step<Vec<Host>> {
        let (word, length) = match word.rsplit_once('/').filter(|_| length.is_none()) {
            None => (word, length),
            Some((word, length)) => match length.parse() {
                Ok(length) => (word, Some(length)),
                Err(_) => {
                    return Err(
                        self.fail_statement(format!("invalid netmask '{length}'\nit is a number of bits"))
                    );
                }
            },
        };
        resolve_word(word, length, self.environment).map_err(|why| self.fail_statement(why))
    }

    fn parse_range(&mut self, first: &str, last: &str) -> Step<Vec<Host>> {
        let (first, last) = (self.resolve_host(first, None)?, self.resolve_host(last, None)?);
        let (Some(from), Some(to)) = (single_address(&first), single_address(&last)) else {
            return Err(self.fail_statement("invalid address range\nit goes from one address to another"));
        };
        if Family::of_address(from) != Family::of_address(to) {
            return Err(
                self.fail_statement("invalid address range\nits ends are of different address families")
            );
        }
        let family = Some(Family::of_address(from));
        Ok(vec![Host { family, ..Host::new(AddressMatch::Range(from, to)) }])
    }

    fn dynamic_host(&mut self) -> Step<Host> {
        self.expect_sign("(")?;
        let word = self.expect_text()?;
        self.expect_sign(")")?;
        let length = if self.eat_sign("/") { Some(self.expect_number()?) } else { None };
        parse_dynamic_host(&word, length).map_err(|why| self.fail_statement(why))
    }

    pub(crate) fn table_name(&mut self) -> Step<String> {
        self.expect_sign("<")?;
        let name = self.expect_text()?;
        self.expect_sign(">")?;
        if name.len() > LONGEST_TABLE {
            return Err(self.fail_statement(format!(
                "table name '{name}' too long\nit may have {LONGEST_TABLE} characters"
            )));
        }
        Ok(name)
    }

    fn port_test(&mut self, tests: &mut Vec<Comparison<u16>>) -> Step<()> {
        let operator = self.parse_operator();
        let word = self.port_word(true)?;
        let test = match (operator, word, self.binary_operator()) {
            (None, PortWord::Range(from, to), None) if from > to => {
                return Err(
                    self.fail_statement(format!("invalid port range {from}:{to}\nthere is no port in it"))
                );
            }
            (None, PortWord::Range(from, to), None) => Comparison::Range(from, to),
            (None, PortWord::One(port), None) => Comparison::Equal(port),
            (None, PortWord::One(first), Some(binary)) => match self.port_word(true)? {
                PortWord::One(second) if binary.is_useless(first, second) => {
                    return Err(self.fail_statement(format!("invalid port range from {first} to {second}")));
                }
                PortWord::One(second) => binary.to_comparison(first, second),
                _ => return Err(self.fail_statement("':' cannot be used with another port operator")),
            },
            (Some(unary), PortWord::One(port), None) => unary.to_comparison(port),
            (Some(_), PortWord::One(_), Some(_)) => return Err(self.syntax_error()),
            _ => return Err(self.fail_statement("':' cannot be used with another port operator")),
        };
        tests.push(test);
        Ok(())
    }

    /// Takes `=`, `<=` and the like.
    pub(crate) fn parse_operator(&mut self) -> Option<UnaryOperator> {
        let Token::Sign(sign) = *self.peek() else { return None };
        let found = match sign {
            "=" => UnaryOperator::Equal,
            "!=" => UnaryOperator::Unequal,
            "<" => UnaryOperator::Less,
            "<=" => UnaryOperator::LessOrEqual,
            ">" => UnaryOperator::Greater,
            ">=" => UnaryOperator::GreaterOrEqual,
            _ => return None,
        };
        self.next_token();
        Some(found)
    }

    /// Takes `><` or `<>`.
    pub(crate) fn binary_operator(&mut self) -> Option<BinaryOperator> {
        if self.eat_sign("><") {
            return Some(BinaryOperator::Between);
        }
        self.eat_sign("<>").then_some(BinaryOperator::Except)
    }

    /// Reads a port, or two with a colon.
    pub(crate) fn port_word(&mut self, may_be_range: bool) -> Step<PortWord> {
        let word = self.number_or_text()?;
        match word.split_once(':') {
            None => Ok(PortWord::One(self.parse_port(&word)?)),
            Some((first, "*")) => Ok(PortWord::Star(self.parse_port(first)?)),
            Some((first, last)) if may_be_range => match (self.parse_port(first)?, self.parse_port(last)?) {
                (first, last) if first == last => Ok(PortWord::One(first)),
                (first, last) => Ok(PortWord::Range(first, last)),
            },
            Some(_) => Err(self.fail_statement(format!("port is invalid: {word}"))),
        }
    }

    pub(crate) fn parse_port(&mut self, word: &str) -> Step<u16> {
        if let Some(number) = parse_unsigned(word) {
            return u16::try_from(number)
                .map_err(|_| self.fail_statement(format!("illegal port value {word}")));
        }
        let port = self.environment.names.port_number(word);
        port.ok_or(())
            .map_err(|()| self.fail_statement(format!("unknown port {word}\nno service is called so")))
    }
}

/// A single address, if that is all.
fn single_address(hosts: &[Host]) -> Option<std::net::IpAddr> {
    match hosts {
        [Host { address: AddressMatch::Host(HostAddress::Network(address, length)), .. }]
            if *length == address_bits(*address) =>
        {
            Some(*address)
        }
        _ => None,
    }
}

/// A number in decimal, in hexadecimal behind `0x`, or in octal behind `0`.
pub(crate) fn parse_unsigned(word: &str) -> Option<u64> {
    let (digits, base) = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if word.len() > 1 && word.starts_with('0') => (&word[1..], 8),
        None => (word, 10),
    };
    if digits.starts_with('+') { None } else { u64::from_str_radix(digits, base).ok() }
}

/// An operator with one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnaryOperator {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl UnaryOperator {
    /// The test of a number.
    pub(crate) fn to_comparison<T>(self, n: T) -> Comparison<T> {
        match self {
            UnaryOperator::Equal => Comparison::Equal(n),
            UnaryOperator::Unequal => Comparison::Unequal(n),
            UnaryOperator::Less => Comparison::Less(n),
            UnaryOperator::LessOrEqual => Comparison::LessOrEqual(n),
            UnaryOperator::Greater => Comparison::Greater(n),
            UnaryOperator::GreaterOrEqual => Comparison::GreaterOrEqual(n),
        }
    }
}

/// An operator between two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BinaryOperator {
    Between,
    Except,
}

impl BinaryOperator {
    /// Whether no number passes, or each.
    fn is_useless(self, first: u16, second: u16) -> bool {
        match self {
            BinaryOperator::Between => first >= second,
            BinaryOperator::Except => first > second,
        }
    }

    /// The test of two numbers.
    pub(crate) fn to_comparison<T>(self, first: T, second: T) -> Comparison<T> {
        match self {
            BinaryOperator::Between => Comparison::Between(first, second),
            BinaryOperator::Except => Comparison::Except(first, second),
        }
    }
}
