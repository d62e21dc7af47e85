//! `queue …`: read, checked and printed; nothing is shaped.
use super::ends::unsigned;
use super::lexer::Token;
use super::parser::{Parser, Step};

/// The longest name of a queue.
const LONGEST_QUEUE: usize = 63;

/// The most queues.
const MOST_QUEUES: usize = 1024;

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
    /// Reads a queue.
    pub(crate) fn queue(&mut self) -> Step<()> {
        self.take();
        let name = self.text()?;
        if name.len() > LONGEST_QUEUE {
            return Err(self.stop(format!("queue name too long, it may have {LONGEST_QUEUE} characters")));
        }
        let interfaces = match self.eat("on") {
            true => self.list(&mut |parser, all| {
                all.push(parser.interface_name()?);
                Ok(())
            })?,
            false => Vec::new(),
        };
        let mut queue = Queue { name, ..Queue::default() };
        while let Token::Key(word) = *self.peek() {
            self.take();
            self.queue_option(word, &mut queue)?;
            self.comma();
        }
        if self.peek() != &Token::Newline {
            return Err(self.syntax_error());
        }
        self.add_queue(queue, interfaces)
    }

    fn queue_option(&mut self, word: &'static str, queue: &mut Queue) -> Step<()> {
        let was_there = match word {
            "parent" => queue.parent.replace(self.text()?).is_some(),
            "bandwidth" => queue.bandwidth.replace(self.service()?).is_some(),
            "min" => queue.minimum.replace(self.service()?).is_some(),
            "max" => queue.maximum.replace(self.service()?).is_some(),
            "default" => std::mem::replace(&mut queue.is_default, true),
            "qlimit" => queue.limit.replace(self.number_within(word, 0, 65535)? as u32).is_some(),
            "flows" => queue.flows.replace(self.number_within(word, 1, 32767)? as u32).is_some(),
            "quantum" => queue.quantum.replace(self.number_within(word, 1, 65535)? as u32).is_some(),
            _ => return Err(self.syntax_error()),
        };
        if was_there { Err(self.stop(format!("{word} cannot be respecified"))) } else { Ok(()) }
    }

    fn service(&mut self) -> Step<Service> {
        let rate = self.rate()?;
        let burst = match self.eat("burst") {
            true => {
                let burst = self.rate()?;
                self.key("for")?;
                Some((burst, self.milliseconds()?))
            }
            false => None,
        };
        Ok(Service { rate, burst })
    }

    fn rate(&mut self) -> Step<u64> {
        let word = self.number_or_text()?;
        let (digits, scale) = match word.chars().last() {
            Some('K') => (&word[..word.len() - 1], 1_000),
            Some('M') => (&word[..word.len() - 1], 1_000_000),
            Some('G') => (&word[..word.len() - 1], 1_000_000_000),
            _ => (&word[..], 1),
        };
        let rate = unsigned(digits).and_then(|number| number.checked_mul(scale));
        rate.ok_or(()).map_err(|()| self.stop(format!("invalid bandwidth {word}: a number with K, M or G")))
    }

    fn milliseconds(&mut self) -> Step<u32> {
        let word = self.number_or_text()?;
        let number = word.strip_suffix("ms").and_then(|digits| digits.parse().ok());
        number
            .ok_or(())
            .map_err(|()| self.stop(format!("time {word} must be in milliseconds, such as 100ms")))
    }

    fn add_queue(&mut self, mut queue: Queue, interfaces: Vec<String>) -> Step<()> {
        if queue.parent.is_none() && interfaces.is_empty() {
            return Err(self.stop("root queues must be attached to an interface: write 'on' and its name"));
        }
        if let Some(parent) = queue.parent.clone()
            && !self.queues.iter().any(|known| known.name == parent)
        {
            return Err(self.stop(format!("parent queue {parent} is not defined above")));
        }
        if queue.parent.is_some() && queue.flows.is_some() && queue.bandwidth.is_none() {
            return Err(self.stop("a queue of flows without bandwidth is a root queue"));
        }
        if queue.bandwidth.is_none() && queue.flows.is_none() {
            return Err(self.stop("queue needs a bandwidth, or flows"));
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
        let is_same = |known: &Queue| known.name == queue.name && known.is_on(queue.interface.as_ref());
        if self.queues.iter().any(is_same) {
            return Err(self.stop(format!("queue {} already exists", queue.name)));
        }
        if self.queues.len() >= MOST_QUEUES {
            return Err(self.stop(format!("there may be {MOST_QUEUES} queues")));
        }
        self.queues.push(queue);
        Ok(())
    }
}

impl Queue {
    /// Whether it can be on an interface; None is any.
    fn is_on(&self, interface: Option<&String>) -> bool {
        self.interface.is_none() || interface.is_none() || self.interface.as_ref() == interface
    }
}

/// The lines of queues, each behind its parent, on each interface that has a root.
pub(crate) fn lines(queues: &[Queue]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut waiting: Vec<_> =
        queues.iter().enumerate().filter(|(_, queue)| queue.parent.is_none()).rev().collect();
    let mut root = None;
    while let Some((place, queue)) = waiting.pop() {
        if queue.parent.is_none() {
            root = queue.interface.as_ref();
        }
        lines.push(line(queue));
        let is_child =
            |(_, child): &(usize, &Queue)| child.parent.as_ref() == Some(&queue.name) && child.is_on(root);
        // A child stands behind its parent, so that this ends.
        let behind = queues.iter().enumerate().skip(place + 1).filter(is_child);
        waiting.extend(behind.collect::<Vec<_>>().into_iter().rev());
    }
    lines
}

fn line(queue: &Queue) -> String {
    let mut line = format!("queue {}", super::print::bare(&queue.name));
    match (&queue.parent, &queue.interface) {
        (Some(parent), _) => line += &format!(" parent {}", super::print::bare(parent)),
        (None, Some(interface)) => line += &format!(" on {}", super::print::bare(interface)),
        (None, None) => (),
    }
    line += &queue.flows.map_or(String::new(), |flows| format!(" flows {flows}"));
    line += &queue.quantum.map_or(String::new(), |quantum| format!(" quantum {quantum}"));
    let services = [(" bandwidth ", queue.bandwidth), (", min ", queue.minimum), (", max ", queue.maximum)];
    for (word, service) in services {
        let said = service.filter(|service| service.rate != 0);
        line += &said.map_or(String::new(), |service| format!("{word}{}", spell(service)));
    }
    line += if queue.is_default { " default" } else { "" };
    line + &queue.limit.filter(|limit| *limit != 0).map_or(String::new(), |limit| format!(" qlimit {limit}"))
}

fn spell(service: Service) -> String {
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
