//! Patterns that rewrite a flow's addresses and ports, and their names.
use artery_engine::args::with_slash;
use artery_engine::names::Names;
use artery_engine::{ArgValue, Args};
use artery_wire::Random;
use std::collections::HashMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Both ends of a flow as packets of one direction have them; zero where an end does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FlowId {
    pub(crate) src: Ipv4Addr,
    pub(crate) sport: u16,
    pub(crate) dst: Ipv4Addr,
    pub(crate) dport: u16,
}

impl FlowId {
    /// The ends of packets in the other direction.
    pub(crate) fn reverse(self) -> FlowId {
        FlowId { src: self.dst, sport: self.dport, dst: self.src, dport: self.sport }
    }
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {}, {}, {})", self.src, self.sport, self.dst, self.dport)
    }
}

/// The new ends of a flow; None keeps an end. One of them, the source's port or its address, may be a range.
#[derive(Debug)]
pub(crate) struct Pattern {
    src: Option<Ipv4Addr>,
    sport: Option<u16>,
    dst: Option<Ipv4Addr>,
    dport: Option<u16>,
    /// How many addresses or ports there are beyond the first.
    variation: u32,
    /// Whether ports are given, so that they vary instead of addresses.
    with_ports: bool,
    /// Whether values are chosen in order, instead of at random.
    sequential: bool,
    /// Whether a port within the range is kept.
    same_first: bool,
    next: AtomicU32,
}

/// How a varying part is chosen.
#[derive(Clone, Copy)]
struct Choice {
    variation: u32,
    sequential: bool,
    same_first: bool,
}

impl Default for Choice {
    fn default() -> Choice {
        Choice { variation: 0, sequential: false, same_first: true }
    }
}

/// Removes the mark at the end, which selects the order of choice.
fn parse_choice(text: &str) -> (&str, Choice) {
    if let Some(rest) = text.strip_suffix('#') {
        return (rest, Choice { sequential: true, same_first: false, ..Choice::default() });
    }
    match text.strip_suffix('?') {
        Some(rest) => (rest, Choice { same_first: false, ..Choice::default() }),
        None => (text, Choice::default()),
    }
}

/// One address, several as `A-B`, or those of a prefix except the first and last.
fn parse_addresses(text: &str, names: &Names) -> Option<(Option<Ipv4Addr>, Choice)> {
    if text == "-" {
        return Some((None, Choice::default()));
    }
    if let Ok(address) = Ipv4Addr::parse(text, names) {
        return Some((Some(address).filter(|address| !address.is_unspecified()), Choice::default()));
    }
    let (text, choice) = parse_choice(text);
    if let Some((first, last)) = text.split_once('-') {
        let (first, last) = (Ipv4Addr::parse(first, names).ok()?, Ipv4Addr::parse(last, names).ok()?);
        let variation = u32::from(last).checked_sub(u32::from(first))?;
        return Some((Some(first), Choice { variation, ..choice }));
    }
    let (address, prefix) = with_slash(text, names)?;
    let (first, variation) = match prefix.len() {
        _ if address.is_unspecified() => return None,
        0 => return None,
        32 => (address, 0),
        31 => (prefix.addr(), 1),
        len => (Ipv4Addr::from(u32::from(prefix.addr()) | 1), (u32::MAX >> len) - 2),
    };
    Some((Some(first), Choice { variation, ..choice }))
}

fn parse_port(text: &str, names: &Names) -> Option<u16> {
    u16::parse(text, names).ok()
}

/// One port, or several as `A-B`.
fn parse_ports(text: &str, names: &Names) -> Option<(Option<u16>, Choice)> {
    if text == "-" {
        return Some((None, Choice::default()));
    }
    if let Some(port) = parse_port(text, names).filter(|port| *port > 0) {
        return Some((Some(port), Choice::default()));
    }
    let (text, choice) = parse_choice(text);
    let (first, last) = text.split_once('-')?;
    let (first, last) = (parse_port(first, names)?, parse_port(last, names)?);
    let variation = last.checked_sub(first)?.into();
    Some((Some(first), Choice { variation, ..choice }))
}

impl Pattern {
    /// Reads `SADDR SPORT DADDR DPORT`, `SADDR DADDR SPORT` or `SADDR DADDR`.
    pub(crate) fn parse_words(words: &[String], names: &Names) -> Result<Pattern, String> {
        let [src, sport, dst, dport] = match words {
            [src, dst] => [src, "-", dst, "-"].map(str::to_string),
            [src, dst, sport] => [src, sport, dst, "-"].map(str::to_string),
            [src, sport, dst, dport] => [src, sport, dst, dport].map(Clone::clone),
            _ => return Err("syntax error".into()),
        };
        let with_ports = words.len() > 2;
        let (src, by_address) = parse_addresses(&src, names).ok_or("bad source address")?;
        let (sport, by_port) = parse_ports(&sport, names).ok_or("bad source port")?;
        let dst = match dst.as_str() {
            "-" => None,
            text => Some(Ipv4Addr::parse(text, names).map_err(|_| "bad destination address")?),
        };
        let dport = match dport.as_str() {
            "-" => None,
            text => Some(parse_port(text, names).filter(|port| *port > 0).ok_or("bad destination port")?),
        };
        let Choice { variation, sequential, same_first } = if with_ports { by_port } else { by_address };
        let next = AtomicU32::new(0);
        let dst = dst.filter(|dst| !dst.is_unspecified());
        Ok(Pattern { src, sport, dst, dport, variation, with_ports, sequential, same_first, next })
    }

    /// The rewritten flow; None when all values are in use.
    pub(crate) fn rewrite_flow(
        &self,
        flow: FlowId,
        random: &mut Random,
        is_taken: impl Fn(FlowId) -> bool,
    ) -> Option<FlowId> {
        let rewritten = FlowId {
            src: self.src.unwrap_or(flow.src),
            sport: self.sport.unwrap_or(flow.sport),
            dst: self.dst.unwrap_or(flow.dst),
            dport: self.dport.unwrap_or(flow.dport),
        };
        if self.variation == 0 {
            return Some(rewritten);
        }
        let base = if self.with_ports { u32::from(rewritten.sport) } else { u32::from(rewritten.src) };
        let varied = |by: u32| match self.with_ports {
            true => FlowId { sport: (base + by) as u16, ..rewritten },
            false => FlowId { src: (base + by).into(), ..rewritten },
        };
        let same = u32::from(flow.sport).wrapping_sub(base);
        if self.same_first && self.with_ports && same <= self.variation && !is_taken(varied(same)) {
            self.next.store(same + 1, Relaxed);
            return Some(varied(same));
        }
        let span = u64::from(self.variation) + 1;
        let start = match self.sequential {
            true => u64::from(self.next.load(Relaxed)) % span,
            false => (u64::from(random.next_u32()) * span) >> 32,
        };
        let found = (0..span).map(|n| ((start + n) % span) as u32).find(|by| !is_taken(varied(*by)))?;
        self.next.store(found + 1, Relaxed);
        Some(varied(found))
    }
}

/// As handlers show it.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let last = |first: Ipv4Addr| Ipv4Addr::from(u32::from(first) + self.variation);
        match self.src {
            Some(src) if !self.with_ports && self.variation > 0 => write!(f, "{src}-{}", last(src))?,
            src => f.write_str(&or_dash(src.map(|src| src.to_string())))?,
        }
        if self.with_ports {
            match self.sport {
                Some(first) if self.variation > 0 => {
                    write!(f, " {first}-{}", u32::from(first) + self.variation)?
                }
                sport => write!(f, " {}", or_dash(sport.map(|sport| sport.to_string())))?,
            }
        }
        write!(f, " {}", or_dash(self.dst.map(|dst| dst.to_string())))?;
        if self.with_ports {
            write!(f, " {}", or_dash(self.dport.map(|dport| dport.to_string())))?;
        }
        Ok(())
    }
}

/// Patterns and mappers of the router by name, with the compound that they are defined in.
#[derive(Default)]
pub(crate) struct NamedPatterns {
    patterns: Mutex<HashMap<String, Arc<Pattern>>>,
    mappers: Mutex<HashMap<String, Arc<Mapper>>>,
}

impl NamedPatterns {
    /// Names a pattern in the compound that `prefix` is of.
    pub(crate) fn define_pattern(&self, prefix: &str, name: &str, pattern: Pattern) {
        let mut patterns = self.patterns.lock().unwrap_or_else(|e| e.into_inner());
        patterns.insert(format!("{prefix}{name}"), Arc::new(pattern));
    }
    /// The pattern of this name in a compound, or further out.
    fn find_pattern(&self, prefix: &str, name: &str) -> Option<Arc<Pattern>> {
        let patterns = self.patterns.lock().unwrap_or_else(|e| e.into_inner());
        enclosing_prefixes(prefix).find_map(|prefix| patterns.get(&format!("{prefix}{name}")).cloned())
    }
    /// Registers a mapper by its element's name.
    pub(crate) fn define_mapper(&self, name: &str, mapper: Mapper) {
        let mut mappers = self.mappers.lock().unwrap_or_else(|e| e.into_inner());
        mappers.insert(name.to_string(), Arc::new(mapper));
    }
    /// The mapper that the element of this name is.
    pub(crate) fn find_mapper(&self, name: &str) -> Option<Arc<Mapper>> {
        self.mappers.lock().unwrap_or_else(|e| e.into_inner()).get(name).cloned()
    }
}

/// A compound's prefix, and those of the compounds around it.
fn enclosing_prefixes(prefix: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(prefix), |prefix| parent_prefix(prefix))
}

/// The prefix of the compound around one.
fn parent_prefix(prefix: &str) -> Option<&str> {
    let inner = prefix.strip_suffix('/')?;
    Some(&prefix[..inner.rfind('/').map_or(0, |at| at + 1)])
}

/// A pattern, and the outputs of packets that go forth and of replies.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) pattern: Arc<Pattern>,
    pub(crate) outputs: [usize; 2],
}

impl Rule {
    /// Reads a pattern, by name or in words, and two outputs.
    pub(crate) fn parse_rule(words: &[String], args: &Args<'_>) -> Result<Rule, String> {
        let Some((words, outputs)) = words.split_last_chunk::<2>().filter(|(words, _)| !words.is_empty())
        else {
            return Err("syntax error".into());
        };
        let pattern = match words {
            [name] => {
                let known = args.resource::<NamedPatterns>().find_pattern(args.prefix(), name);
                known.ok_or_else(|| format!("no such pattern '{name}'"))?
            }
            words => Arc::new(Pattern::parse_words(words, args.names())?),
        };
        Ok(Rule { pattern, outputs: parse_outputs(outputs, args.names())? })
    }
}

/// Reads the outputs of packets that go forth and of replies.
pub(crate) fn parse_outputs(words: &[String], names: &Names) -> Result<[usize; 2], String> {
    let [forward, reply] = words else { return Err("bad forward port".into()) };
    let read = |text: &String, what: &str| usize::parse(text, names).map_err(|_| what.to_string());
    Ok([read(forward, "bad forward port")?, read(reply, "bad reply port")?])
}

/// Rules that flows get in turn.
#[derive(Debug)]
pub(crate) struct Mapper {
    pub(crate) rules: Vec<Rule>,
    pub(crate) next: AtomicU32,
}

impl Mapper {
    /// The flow rewritten by the next rule that has a free value, and its outputs.
    pub(crate) fn rewrite_flow(
        &self,
        flow: FlowId,
        random: &mut Random,
        is_taken: impl Fn(FlowId) -> bool,
    ) -> Option<(FlowId, [usize; 2])> {
        let count = self.rules.len();
        (0..count).find_map(|_| {
            let rule = &self.rules[self.next.fetch_add(1, Relaxed) as usize % count];
            Some((rule.pattern.rewrite_flow(flow, random, &is_taken)?, rule.outputs))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Result<Pattern, String> {
        let words: Vec<String> = text.split(' ').map(str::to_string).collect();
        Pattern::parse_words(&words, &Names::default())
    }

    #[test]
    fn patterns_come_back_as_they_were_written() {
        for text in ["1.0.0.1 1024-65535 - -", "- - 2.0.0.2 80", "1.0.0.1 5 2.0.0.2 6", "1.0.0.1-1.0.0.9 -"] {
            assert_eq!(pattern(text).unwrap().to_string(), text);
        }
        assert_eq!(pattern("1.0.0.0/24 -").unwrap().to_string(), "1.0.0.1-1.0.0.254 -");
        assert_eq!(pattern("1.0.0.1 - 1024-2048#").unwrap().to_string(), "1.0.0.1 1024-2048 - -");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, what) in [
            ("1.0.0.1", "syntax error"),
            ("x - - -", "bad source address"),
            ("1.0.0.1 0 - -", "bad source port"),
            ("1.0.0.1 9-5 - -", "bad source port"),
            ("1.0.0.1 - x -", "bad destination address"),
            ("1.0.0.1 - - 70000", "bad destination port"),
        ] {
            assert_eq!(pattern(text).err().as_deref(), Some(what), "{text}");
        }
    }

    #[test]
    fn names_are_sought_outward() {
        assert_eq!(enclosing_prefixes("a/b/").collect::<Vec<_>>(), ["a/b/", "a/", ""]);
        assert_eq!(enclosing_prefixes("").collect::<Vec<_>>(), [""]);
    }
}
