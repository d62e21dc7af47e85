//! Members, methods and checks as text, the same in configurations and on the command line.
//!
//! - A [`Member`] is `NAME ADDRESS[:PORT] [weight N]`
//! - A [`Method`] is `maglev[=SLOTS]`, `resilient[=BUCKETS] [idle TIME] [force TIME]`, `hash`, `xor`,
//!   `per-packet`, `flowlet[=GAP]` or `least-loaded`
//! - A [`Check`] is `tcp`, `http PATH [STATUS|FIRST-LAST]` or `ping`, then any of `every TIME`,
//!   `timeout TIME`, `fall N`, `rise N`
use super::{Check, Member, Method, Probe, Slots};
use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

/// What a text was to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text of a [`Member`].
    Member,
    /// Text of a [`Method`].
    Method,
    /// Text of a [`Check`].
    Check,
}

/// Why a text is not what it was to be: in which word, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// What it was to be.
    pub form: Form,
    /// The whole text that was read.
    pub text: String,
    /// The word, counted from 1; one more than there are, where one is missing.
    pub word: usize,
    /// What is wrong in the text.
    pub problem: Problem,
}

/// What is wrong with a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Not a member's name.
    Name,
    /// Neither an address nor one with a port.
    Address,
    /// A weight was expected here.
    Weight,
    /// No method is called so.
    Method,
    /// The method takes no number or time after `=`.
    NoSetting,
    /// Not a number of slots for a table, with the next that is one.
    Slots(Option<u32>),
    /// Not a number of buckets.
    Buckets,
    /// Not a time between packets.
    Gap,
    /// No check is called so.
    Check,
    /// Not what can be requested.
    Path,
    /// Neither a status nor two with a `-` between.
    Status,
    /// A time was expected here.
    Time,
    /// Not a number of probes.
    Count,
    /// Not one of the settings that can be here.
    Setting,
    /// A setting that was there before.
    Twice,
}

impl FromStr for Member {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Member, TextError> {
        let mut words = Words::new(Form::Member, text);
        let name = words.parse_next(Problem::Name, |word| Member::is_name(word).then_some(word))?;
        let (address, port) = words.parse_next(Problem::Address, parse_endpoint)?;
        let mut weight = None;
        words.parse_settings(|words, setting| match setting {
            "weight" => words.parse_setting(&mut weight, Problem::Weight, parse_number),
            _ => words.fail_with(Problem::Setting),
        })?;
        Ok(Member { name: name.into(), address, port, weight: weight.unwrap_or(1) })
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.name)?;
        match self.port {
            Some(port) => write!(f, "{}", SocketAddr::new(self.address, port))?,
            None => write!(f, "{}", self.address)?,
        }
        if self.weight == 1 { Ok(()) } else { write!(f, " weight {}", self.weight) }
    }
}

fn parse_endpoint(word: &str) -> Option<(IpAddr, Option<u16>)> {
    if let Ok(address) = word.parse() {
        return Some((address, None));
    }
    let with_port: SocketAddr = word.parse().ok()?;
    let has_scope = matches!(with_port, SocketAddr::V6(address) if address.scope_id() != 0);
    (with_port.port() != 0 && !has_scope).then(|| (with_port.ip(), Some(with_port.port())))
}

impl FromStr for Method {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Method, TextError> {
        let mut words = Words::new(Form::Method, text);
        let (name, setting) = words.parse_next(Problem::Method, |word| {
            let (name, setting) = word.split_once('=').map_or((word, None), |(name, of)| (name, Some(of)));
            Method::ALL.into_iter().find(|method| method.name() == name).map(|method| (method, setting))
        })?;
        let method = match (name, setting) {
            (method, None) => method,
            (Method::Maglev(_), Some(setting)) => Method::Maglev(words.parse_slots(setting)?),
            (Method::Resilient { idle, force, .. }, Some(setting)) => {
                let buckets =
                    parse_number(setting).filter(|count| (1..=Method::MOST_BUCKETS).contains(count));
                Method::Resilient { buckets: words.require_value(buckets, Problem::Buckets)?, idle, force }
            }
            (Method::Flowlet { .. }, Some(setting)) => {
                let gap = parse_duration(setting).filter(|gap| !gap.is_zero() && *gap <= Method::LONGEST_GAP);
                Method::Flowlet { gap: words.require_value(gap, Problem::Gap)? }
            }
            (_, Some(_)) => return words.fail_with(Problem::NoSetting),
        };
        words.rest_of_method(method)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match *self {
            Method::Maglev(slots) if slots != Slots::DEFAULT => write!(f, "={}", slots.count()),
            Method::Flowlet { gap } if *self != Method::FLOWLET => write!(f, "={}", Time(gap)),
            Method::Resilient { buckets, idle, force } if *self != Method::RESILIENT => {
                write!(f, "={buckets} idle {}", Time(idle))?;
                force.map_or(Ok(()), |force| write!(f, " force {}", Time(force)))
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Check {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Check, TextError> {
        let mut words = Words::new(Form::Check, text);
        let kind = words.parse_next(Problem::Check, |word| {
            ["tcp", "http", "ping"].into_iter().find(|kind| *kind == word)
        })?;
        let probe = match kind {
            "http" => words.parse_http()?,
            "tcp" => Probe::Tcp,
            _ => Probe::Ping,
        };
        let (mut every, mut timeout, mut fall, mut rise) = (None, None, None, None);
        words.parse_settings(|words, setting| match setting {
            "every" => words.parse_setting(&mut every, Problem::Time, some_time),
            "timeout" => words.parse_setting(&mut timeout, Problem::Time, some_time),
            "fall" => words.parse_setting(&mut fall, Problem::Count, parse_count),
            "rise" => words.parse_setting(&mut rise, Problem::Count, parse_count),
            _ => words.fail_with(Problem::Setting),
        })?;
        let usual = Check::new(probe);
        Ok(Check {
            every: every.unwrap_or(usual.every),
            timeout: timeout.unwrap_or(usual.timeout),
            fall: fall.unwrap_or(usual.fall),
            rise: rise.unwrap_or(usual.rise),
            ..usual
        })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.probe.fmt(f)?;
        let (every, timeout) = (Time(self.every), Time(self.timeout));
        write!(f, " every {every} timeout {timeout} fall {} rise {}", self.fall, self.rise)
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Probe::Tcp => f.write_str("tcp"),
            Probe::Ping => f.write_str("ping"),
            Probe::Http { path, status: Probe::GOOD } => write!(f, "http {path}"),
            Probe::Http { path, status: (first, last) } if first == last => write!(f, "http {path} {first}"),
            Probe::Http { path, status: (first, last) } => write!(f, "http {path} {first}-{last}"),
        }
    }
}

/// The words of a text, one after another.
struct Words<'t> {
    form: Form,
    text: &'t str,
    words: std::str::SplitAsciiWhitespace<'t>,
    /// The number of the word that was taken last.
    at: usize,
}

impl<'t> Words<'t> {
    fn new(form: Form, text: &'t str) -> Words<'t> {
        Words { form, text, words: text.split_ascii_whitespace(), at: 0 }
    }

    fn fail_with<T>(&self, problem: Problem) -> Result<T, TextError> {
        Err(TextError { form: self.form, text: self.text.to_string(), word: self.at, problem })
    }
    fn require_value<T>(&self, value: Option<T>, problem: Problem) -> Result<T, TextError> {
        value.map_or_else(|| self.fail_with(problem), Ok)
    }
    fn next(&mut self) -> Option<&'t str> {
        self.at += 1;
        self.words.next()
    }
    /// The next word, which must be there and be read by `read`.
    fn parse_next<T>(
        &mut self,
        problem: Problem,
        read: impl FnOnce(&'t str) -> Option<T>,
    ) -> Result<T, TextError> {
        let value = self.next().and_then(read);
        self.require_value(value, problem)
    }
    /// The value of a setting, which must not be there already.
    fn parse_setting<T>(
        &mut self,
        to: &mut Option<T>,
        problem: Problem,
        read: impl FnOnce(&'t str) -> Option<T>,
    ) -> Result<(), TextError> {
        if to.is_some() {
            return self.fail_with(Problem::Twice);
        }
        *to = Some(self.parse_next(problem, read)?);
        Ok(())
    }
    /// Reads settings to the end.
    fn parse_settings(
        &mut self,
        mut read: impl FnMut(&mut Words<'t>, &'t str) -> Result<(), TextError>,
    ) -> Result<(), TextError> {
        while let Some(setting) = self.next() {
            read(self, setting)?;
        }
        Ok(())
    }

    fn parse_slots(&self, text: &str) -> Result<Slots, TextError> {
        let count = self.require_value(parse_number(text), Problem::Slots(None))?;
        let next = Slots::at_least(count).map(Slots::count);
        self.require_value(Slots::new(count), Problem::Slots(next))
    }

    /// The settings of a method that has some.
    fn rest_of_method(mut self, method: Method) -> Result<Method, TextError> {
        let (mut new_idle, mut new_force) = (None, None);
        let is_resilient = matches!(method, Method::Resilient { .. });
        self.parse_settings(|words, setting| match setting {
            "idle" if is_resilient => words.parse_setting(&mut new_idle, Problem::Time, parse_duration),
            "force" if is_resilient => words.parse_setting(&mut new_force, Problem::Time, some_time),
            _ => words.fail_with(Problem::Setting),
        })?;
        Ok(match method {
            Method::Resilient { buckets, idle, force } => {
                Method::Resilient { buckets, idle: new_idle.unwrap_or(idle), force: new_force.or(force) }
            }
            other => other,
        })
    }

    fn parse_http(&mut self) -> Result<Probe, TextError> {
        // What would end the line of a request can't be in a word.
        let is_path = |word: &&str| word.starts_with('/') && word.bytes().all(|byte| byte.is_ascii_graphic());
        let path = self.parse_next(Problem::Path, |word| Some(word).filter(is_path))?.to_string();
        let mut ahead = self.words.clone();
        let starts_with_digit = |word: &str| word.starts_with(|first: char| first.is_ascii_digit());
        let status = match ahead.next() {
            Some(word) if starts_with_digit(word) => self.parse_next(Problem::Status, parse_statuses)?,
            _ => Probe::GOOD,
        };
        Ok(Probe::Http { path, status })
    }
}

fn parse_statuses(word: &str) -> Option<(u16, u16)> {
    let status = |text: &str| parse_number::<u16>(text).filter(|status| (100..=599).contains(status));
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (first, last) = (status(first)?, status(last)?);
    (first <= last).then_some((first, last))
}

/// Digits alone: no sign.
fn parse_number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn parse_count(text: &str) -> Option<u16> {
    parse_number(text).filter(|count| *count > 0)
}

fn some_time(text: &str) -> Option<Duration> {
    parse_duration(text).filter(|time| !time.is_zero())
}

const UNITS: [(&str, u64); 6] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", SECOND), ("min", 60 * SECOND), ("h", 3600 * SECOND)];
const SECOND: u64 = 1_000_000_000;

/// Reads a time of less than 500 years: a number with at most nine decimals and a unit (`ns`, `us`, `ms`,
/// `s`, `min`, `h`), seconds without.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = if unit.is_empty() { SECOND } else { UNITS.iter().find(|(name, _)| *name == unit)?.1 };
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, "0"));
    let parts: u64 = parse_number(decimals).filter(|_| (1..=9).contains(&decimals.len()))?;
    let of_whole = parse_number::<u64>(whole)?.checked_mul(unit)?;
    let of_parts = u128::from(parts) * u128::from(unit) / 10u128.pow(decimals.len() as u32);
    Some(Duration::from_nanos(of_whole.checked_add(of_parts as u64)?))
}

/// A time as [`parse_duration`] reads it.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let is_whole = |(_, unit): &&(&str, u64)| nanos.is_multiple_of(u128::from(*unit));
        let (name, unit) = UNITS[..4].iter().rev().find(is_whole).unwrap_or(&UNITS[0]);
        write!(f, "{}{name}", nanos / u128::from(*unit))
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match self.form {
            Form::Member => "member",
            Form::Method => "method",
            Form::Check => "check",
        };
        let (wrong, remedy) = self.problem_and_remedy();
        write!(f, "{form} {:?}: word {}", self.text, self.word)?;
        match self.text.split_ascii_whitespace().nth(self.word.saturating_sub(1)) {
            Some(word) => write!(f, ", {word:?}: {wrong}; {remedy}"),
            None => write!(f, " is missing; {remedy}"),
        }
    }
}

impl TextError {
    /// What is wrong, and what to do.
    fn problem_and_remedy(&self) -> (&'static str, Cow<'static, str>) {
        let (wrong, remedy) = match self.problem {
            Problem::Slots(Some(next)) => {
                return ("not a prime number", format!("take {next}, the next that is one").into());
            }
            Problem::Slots(None) => {
                return (
                    "not a number of slots",
                    format!("take a prime number up to {}", Slots::MOST).into(),
                );
            }
            Problem::Buckets => {
                let remedy = format!("take 1 to {}, such as 4096", Method::MOST_BUCKETS);
                return ("not a number of buckets", remedy.into());
            }
            Problem::Setting => return self.explained_setting(),
            Problem::Name => ("not a name", "take 1 to 64 letters, digits, '.', '-' and '_'"),
            Problem::Address => {
                ("not an address", "write 10.0.0.1, 10.0.0.1:80, 2001:db8::1 or [2001:db8::1]:80")
            }
            Problem::Weight => ("not a weight", "take 1, or more for a greater share, or 0 to drain it"),
            Problem::Method => (
                "no such method",
                "there are maglev, resilient, hash, xor, per-packet, flowlet and least-loaded",
            ),
            Problem::NoSetting => ("this method takes nothing after '='", "leave that out"),
            Problem::Gap => ("not a gap", "take a time such as 500us, up to 60s"),
            Problem::Check => ("no such check", "there are tcp, http and ping"),
            Problem::Path => ("not a path to request", "write one from / on, such as /health"),
            Problem::Status => ("not a status", "write one such as 200, or a range such as 200-299"),
            Problem::Time => ("not a time", "write one such as 500ms, 2s or 1min"),
            Problem::Count => ("not a number of probes", "take 1 or more"),
            Problem::Twice => ("it is set already", "leave one out"),
        };
        (wrong, remedy.into())
    }

    fn explained_setting(&self) -> (&'static str, Cow<'static, str>) {
        let (wrong, remedy) = match self.form {
            Form::Member => ("not a setting of a member", "there is weight"),
            Form::Method => ("not a setting of this method", "resilient has idle and force, others none"),
            Form::Check => ("not a setting of a check", "there are every, timeout, fall and rise"),
        };
        (wrong, remedy.into())
    }
}

impl std::error::Error for TextError {}
