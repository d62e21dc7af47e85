//! `queue …`: read, checked and printed; nothing is shaped.
use super::lexer::Token;
use super::parser::{Parser, Step};

/// The longest name of a queue.
const LONGEST_QUEUE: usize = 63;

/// Most queues of a rule set.
const MOST_QUEUES: usize = 1024;

/// The most lines of queues, which may be one below each of several others.
const MOST_LINES: usize = 10_000;

/// A queue on one interface.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    name: String,
    parent: Option<String>,
    interface: Option<String>,
    flows: Option<u32>,
    quantum: Option<u32>,
    bandwidth: Option<Service>,
    minimum: Option<Service>,
    maximum: Option<Service>,
    is_default: bool,
    limit: Option<u32>,
}

/// How many bits a second, and how many at first for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Service {
    rate: u64,
    burst: Option<(u64, u32)>,
}

impl Parser<'_> {
    pub(crate) fn parse_queue(&mut self) -> Step<()> {
        self.next_token();
        let name = self.expect_text()?;
        if name.len() > LONGEST_QUEUE {
            return Err(
                self.fail_statement(format!("queue name too long\nit may have {LONGEST_QUEUE} characters"))
            );
        }
        let interfaces = match self.eat_key("on") {
            true => self.parse_list(&mut |parser, all| {
                all.push(parser.interface_name()?);
                Ok(())
            })?,
            false => Vec::new(),
        };
        let mut queue = Queue { name, ..Queue::default() };
        if !matches!(self.peek(), Token::Key(_)) {
            return Err(self.syntax_error());
        }
        while let Token::Key(word) = *self.peek() {
            self.next_token();
            self.queue_option(word, &mut queue)?;
        }
        if self.peek() != &Token::Newline {
            return Err(self.syntax_error());
        }
        self.add_queue(queue, interfaces)
    }

    fn queue_option(&mut self, word: &'static str, queue: &mut Queue) -> Step<()> {
        let was_there = match word {
            "parent" => queue.parent.replace(self.expect_text()?).is_some(),
            "bandwidth" => self.parse_bandwidth(queue)?,
            "default" => std::mem::replace(&mut queue.is_default, true),
            "qlimit" => queue.limit.replace(self.number_within(word, 0, 65535)? as u32).is_some(),
            "flows" => queue.flows.replace(self.number_within(word, 1, 32767)? as u32).is_some(),
            "quantum" => queue.quantum.replace(self.number_within(word, 1, 65535)? as u32).is_some(),
            _ => return Err(self.syntax_error()),
        };
        if was_there { Err(self.fail_statement(format!("{word} cannot be respecified"))) } else { Ok(()) }
    }

    /// Reads a bandwidth, and behind it the least and the most of it, in either order; whether
    /// there was one already.
    fn parse_bandwidth(&mut self, queue: &mut Queue) -> Step<bool> {
        let was_there = queue.bandwidth.replace(self.parse_service()?).is_some();
        for _ in 0..2 {
            let has_comma = self.eat_comma();
            if queue.minimum.is_none() && self.eat_key("min") {
                queue.minimum = Some(self.parse_service()?);
            } else if queue.maximum.is_none() && self.eat_key("max") {
                queue.maximum = Some(self.parse_service()?);
            } else if has_comma {
                return Err(self.syntax_error());
            }
        }
        Ok(was_there)
    }

    fn parse_service(&mut self) -> Step<Service> {
        let rate = self.parse_rate()?;
        let burst = match self.eat_key("burst") {
            true => {
                let burst = self.parse_rate()?;
                self.expect_key("for")?;
                Some((burst, self.parse_milliseconds()?))
            }
            false => None,
        };
        Ok(Service { rate, burst })
    }

    /// Reads how many bits a second, alone or with a unit.
    fn parse_rate(&mut self) -> Step<u64> {
        if let Token::Number(_) = *self.peek() {
            return Ok(self.number_within("bandwidth", 0, i64::MAX)? as u64);
        }
        let word = self.expect_text()?;
        let end = word.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(word.len());
        let (digits, unit) = word.split_at(end);
        let (letter, rest) = unit.split_at(unit.chars().next().map_or(0, char::len_utf8));
        let letter = if matches!(rest, "" | "Bit" | "B" | "bit" | "b") { letter } else { unit };
        let scale = match letter {
            "b" => 1.0,
            "K" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            "%" => return Err(self.fail_statement("no bandwidth in % yet\na number with K, M or G")),
            _ => return Err(self.fail_statement(format!("unknown unit \"{unit}\"\na number with K, M or G"))),
        };
        match digits.parse::<f64>() {
            Ok(number) if number * scale <= i64::MAX as f64 => Ok((number * scale) as u64),
            _ => Err(self.fail_statement(format!("bandwidth number too big: {word}"))),
        }
    }

    fn parse_milliseconds(&mut self) -> Step<u32> {
        let word = self.expect_text()?;
        let number = word.strip_suffix("ms").and_then(|digits| digits.parse().ok());
        number
            .ok_or(())
            .map_err(|()| self.fail_statement(format!("time in scspec must be in ms, such as 100ms: {word}")))
    }

    fn add_queue(&mut self, mut queue: Queue, interfaces: Vec<String>) -> Step<()> {
        if queue.parent.is_none() && interfaces.is_empty() {
            return Err(self.fail_statement("root queue without interface\nwrite 'on' and its name"));
        }
        let is_known = |name: &String| self.environment.interfaces.0.iter().any(|one| one.name == *name);
        if interfaces.first().is_some_and(|name| !is_known(name)) {
            return Err(self.fail_statement(format!("not an interface: {}", interfaces[0])));
        }
        if queue.bandwidth.is_none() && queue.flows.is_none() {
            self.report_error("no bandwidth or flow specification");
            return Ok(());
        }
        if interfaces.is_empty() {
            return self.add_queue_once(queue);
        }
        for interface in interfaces {
            queue.interface = Some(interface);
            self.add_queue_once(queue.clone())?;
        }
        Ok(())
    }

    fn add_queue_once(&mut self, queue: Queue) -> Step<()> {
        let is_other_root = |known: &Queue| known.is_root() && known.interface == queue.interface;
        if queue.is_root() && self.queues.iter().any(is_other_root) {
            let interface = queue.interface.unwrap_or_default();
            self.report_error(format!("cannot add queue: a root queue is already defined on {interface}"));
            return Ok(());
        }
        if self.queues.len() >= MOST_QUEUES {
            return Err(self.fail_statement(format!("there may be {MOST_QUEUES} queues")));
        }
        self.queues.push(queue);
        Ok(())
    }

    /// Reads the name of a queue that packets can be put into.
    pub(crate) fn leaf_queue(&mut self) -> Step<String> {
        let name = self.expect_text()?;
        match self.queues.iter().any(|queue| queue.name == name && !queue.is_root()) {
            true => Ok(name),
            false => Err(self.fail_statement(format!("queue {name} is not defined"))),
        }
    }
}

impl Queue {
    fn is_root(&self) -> bool {
        self.parent.is_none()
    }
}

/// The lines of queues, each behind its parent, on each interface that has a root. The error says why
/// they are no trees.
pub(crate) fn queue_lines(queues: &[Queue]) -> Result<Vec<String>, String> {
    let mut trees = Trees { queues, has_parent: vec![false; queues.len()], lines: Vec::new() };
    for root in queues.iter().filter(|queue| queue.is_root()) {
        let has_default = trees.add_subtree(root, root.interface.as_ref(), 0)?;
        if root.bandwidth.is_some() && !has_default {
            return Err("no default queue specified".into());
        }
    }
    for (queue, has_parent) in queues.iter().zip(trees.has_parent) {
        let Some(parent) = &queue.parent else { continue };
        if !has_parent {
            return Err(format!("queue {}: parent {parent} not found", queue.name));
        }
        if queue.bandwidth.is_none_or(|service| service.rate == 0) {
            return Err(format!("queue {}: no bandwidth was specified", queue.name));
        }
    }
    Ok(trees.lines)
}

/// Queues as they stand below their roots.
struct Trees<'q> {
    queues: &'q [Queue],
    /// Which of them were found below a root.
    has_parent: Vec<bool>,
    lines: Vec<String>,
}

impl<'q> Trees<'q> {
    /// Adds a queue and those below it; whether there is a default among them.
    fn add_subtree(
        &mut self,
        queue: &Queue,
        interface: Option<&String>,
        depth: usize,
    ) -> Result<bool, String> {
        if depth > MOST_QUEUES || self.lines.len() > MOST_LINES {
            return Err("queues stand below one another without an end".into());
        }
        self.lines.push(queue_line(queue));
        let children = self.child_queues(queue, interface)?;
        if !children.is_empty() && queue.is_default {
            return Err(format!("default queue {} is not a leaf queue", queue.name));
        }
        if !children.is_empty() && queue.flows.is_some() {
            return Err(format!("flow queue {} is not a leaf queue", queue.name));
        }
        let mut has_default = queue.is_default;
        for child in children {
            has_default |= self.add_subtree(child, interface, depth + 1)?;
        }
        Ok(has_default)
    }

    /// The queues right below one. Of one name that for the interface goes before that for all.
    fn child_queues(&mut self, queue: &Queue, interface: Option<&String>) -> Result<Vec<&'q Queue>, String> {
        let mut found: Vec<&'q Queue> = Vec::new();
        let queues = self.queues;
        for (place, child) in queues.iter().enumerate() {
            let is_here = child.interface.is_none() || child.interface.as_ref() == interface;
            if child.parent.as_ref() != Some(&queue.name) || !is_here {
                continue;
            }
            self.has_parent[place] = true;
            match found.iter_mut().find(|known| known.name == child.name) {
                None => found.push(child),
                Some(known) if known.interface.is_some() == child.interface.is_some() => {
                    return Err(format!("queue {} respecified", child.name));
                }
                Some(known) if known.interface.is_none() => *known = child,
                Some(_) => (),
            }
        }
        Ok(found)
    }
}

fn queue_line(queue: &Queue) -> String {
    let mut line = format!("queue {}", super::print::quote_if_needed(&queue.name));
    match (&queue.parent, &queue.interface) {
        (Some(parent), _) => line += &format!(" parent {}", super::print::quote_if_needed(parent)),
        (None, Some(interface)) => line += &format!(" on {}", super::print::quote_if_needed(interface)),
        (None, None) => (),
    }
    if let Some(flows) = queue.flows {
        line += &format!(" flows {flows}");
        line += &queue.quantum.map_or(String::new(), |quantum| format!(" quantum {quantum}"));
    }
    // Also one of nothing, which a root may have: `min` and `max` stand behind it.
    let say = |word: &str, service| format!("{word}{}", spell_service(service));
    line += &queue.bandwidth.map_or(String::new(), |service| say(" bandwidth ", service));
    for (word, service) in [(", min ", queue.minimum), (", max ", queue.maximum)] {
        let said = service.filter(|service| service.rate != 0);
        line += &said.map_or(String::new(), |service| say(word, service));
    }
    line += if queue.is_default { " default" } else { "" };
    line + &queue.limit.filter(|limit| *limit != 0).map_or(String::new(), |limit| format!(" qlimit {limit}"))
}

fn spell_service(service: Service) -> String {
    let burst = service.burst.filter(|(_, time)| *time != 0);
    let burst =
        burst.map_or(String::new(), |(rate, time)| format!(" burst {} for {time}ms", spell_rate(rate)));
    spell_rate(service.rate) + &burst
}

/// A rate in the largest unit that it is a multiple of; that of single bits is a blank.
fn spell_rate(mut rate: u64) -> String {
    let mut units = [' ', 'K', 'M', 'G'].into_iter();
    let mut unit = units.next().unwrap_or(' ');
    while rate >= 1000 && rate.is_multiple_of(1000) {
        let Some(next) = units.next() else { break };
        (rate, unit) = (rate / 1000, next);
    }
    format!("{rate}{unit}")
}
