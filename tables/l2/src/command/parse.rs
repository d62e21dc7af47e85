//! From words to commands.
use super::error::nearest;
use super::{
    ArpKind, ArpOperation, ArpRule, Command, CommandError, Domains, LONGEST_NAME, LONGEST_TAG,
    MOST_ADDRESSES, MOST_DOMAIN, MOST_STORM, PortFlag, Priority, Rule, RuleAction, RuleDirection,
    SpanningTree, StormKind, StpProtocol, TIMEOUTS, TaggedChange, Untagged, VlanId, VlanSet,
};
use artery_wire::EtherAddr;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// Reads the commands of a line, one behind the other; `rule` takes all that follows it.
pub fn parse(words: &[&str]) -> Result<Vec<Command>, CommandError> {
    let mut words = Words::new(words);
    let mut commands = Vec::new();
    while let Some(word) = words.begin_command() {
        commands.push(parse_command(word, &mut words)?);
    }
    Ok(commands)
}

/// Reads a rule, with or without the word `rule` in front of it.
pub fn parse_rule(words: &[&str]) -> Result<Rule, CommandError> {
    let mut words = Words::new(words);
    if words.peek() == Some("rule") {
        words.begin_command();
    }
    parse_rule_words(&mut words)
}

/// All words that begin a command, without those that take something back by a minus sign.
const COMMANDS: [&str; 42] = [
    "create",
    "destroy",
    "up",
    "down",
    "add",
    "del",
    "addspan",
    "delspan",
    "protected",
    "maxaddr",
    "ifmaxaddr",
    "evict",
    "timeout",
    "static",
    "deladdr",
    "flush",
    "flushall",
    "addr",
    "rule",
    "rulefile",
    "rules",
    "flushrule",
    "link0",
    "link1",
    "link2",
    "vnetid",
    "untagged",
    "tagged",
    "rxprio",
    "txprio",
    "storm",
    "snoop",
    "querier",
    "groups",
    "proto",
    "spanpriority",
    "hellotime",
    "fwddelay",
    "maxage",
    "holdcnt",
    "ifpriority",
    "ifcost",
];

/// What may stand in a rule.
const RULE_WORDS: [&str; 19] = [
    "block", "pass", "match", "in", "out", "in/out", "on", "src", "dst", "tag", "arp", "rarp", "request",
    "reply", "sha", "tha", "spa", "tpa", "rule",
];

const NAME: &str = "the name of an interface";
const AN_INTERFACE: &str = "em0";
const AN_ADDRESS: &str = "02:00:00:00:00:01";

/// The command that begins with `word`.
fn parse_command(word: &str, words: &mut Words) -> Result<Command, CommandError> {
    if let Some(command) = parse_simple(word) {
        return Ok(command);
    }
    let (name, on) = word.strip_prefix('-').map_or((word, true), |name| (name, false));
    for family in [parse_flag, of_port, of_addresses, of_rules, of_vlans, of_limits, of_spanning_tree] {
        if let Some(command) = family(name, on, words)? {
            return Ok(command);
        }
    }
    if let Some(remedy) = said_elsewhere(name) {
        return Err(CommandError::Elsewhere { word: word.to_string(), remedy });
    }
    let names = COMMANDS.into_iter().chain(PortFlag::iter_all().map(PortFlag::word));
    Err(CommandError::Unknown {
        word: word.to_string(),
        place: "command of a switch",
        meant: nearest(name, names),
    })
}

/// Words of ifconfig that are for other interfaces, or that people know from elsewhere: what does
/// here what they want.
fn said_elsewhere(name: &str) -> Option<&'static str> {
    Some(match name {
        "inet" | "inet6" | "alias" | "dhcp" | "autoconf" => {
            "a switch has no address; 'add vport0' gives the host a port of it, and 'ip address add' that an \
             address"
        }
        "mtu" => "each port carries what its link carries; say 'ip link set em0 mtu 1600' of the interface",
        "span" | "mirror" => "'addspan em0' has em0 get copies of all frames, and 'delspan em0' ends that",
        "addif" => "'add em0' puts em0 in the switch",
        "delif" | "delete" => {
            "'del em0' takes em0 out of the switch, and 'deladdr ADDRESS' removes a MAC address"
        }
        "vlan" => "'untagged em0 7' and 'tagged em0 8,9' say in which VLANs a port is",
        _ => return None,
    })
}

/// A command of one word.
fn parse_simple(word: &str) -> Option<Command> {
    Some(match word {
        "create" => Command::Create,
        "destroy" => Command::Destroy,
        "up" => Command::Up,
        "down" => Command::Down,
        "flush" => Command::Flush,
        "flushall" => Command::FlushAll,
        "addr" => Command::Addresses,
        "evict" => Command::Evict(true),
        "-evict" => Command::Evict(false),
        "snoop" => Command::Snoop(true),
        "-snoop" => Command::Snoop(false),
        "groups" => Command::Groups,
        "-querier" => Command::Querier(None),
        "-vnetid" => Command::VnetId(None),
        "link0" | "link1" | "link2" | "-link0" | "-link1" | "-link2" => {
            let number = if word.ends_with('0') { 0 } else { 1 + u8::from(word.ends_with('2')) };
            Command::Link { number, on: !word.starts_with('-') }
        }
        _ => return None,
    })
}

/// What a word makes of those behind it; nothing if it is none of the family.
type Read = Result<Option<Command>, CommandError>;

fn parse_flag(name: &str, on: bool, words: &mut Words) -> Read {
    let Some(flag) = PortFlag::from_word(name) else { return Ok(None) };
    Ok(Some(Command::Flag { port: words.parse_name()?, flag, on }))
}

fn of_port(name: &str, on: bool, words: &mut Words) -> Read {
    Ok(Some(match (name, on) {
        ("add", true) => Command::Add(words.parse_name()?),
        ("del", true) => Command::Del(words.parse_name()?),
        ("addspan", true) => Command::AddSpan(words.parse_name()?),
        ("delspan", true) => Command::DelSpan(words.parse_name()?),
        ("protected", true) => {
            let what = format!("groups from 1 to {MOST_DOMAIN} with commas between");
            Command::Protected {
                port: words.parse_name()?,
                domains: words.parse_value(&what, "1,2", parse_domains)?,
            }
        }
        ("protected", false) => Command::Protected { port: words.parse_name()?, domains: Domains::default() },
        ("storm", _) => {
            let port = words.parse_name()?;
            let what = "'broadcast', 'multicast' or 'unknown'";
            let kind = |word: &str| StormKind::ALL.into_iter().find(|kind| kind.word() == word);
            let kind = words.parse_value(what, "broadcast", kind)?;
            let limit = on.then(|| words.parse_number(0..=MOST_STORM, "1000")).transpose()?;
            Command::Storm { port, kind, limit }
        }
        _ => return Ok(None),
    }))
}

fn of_addresses(name: &str, on: bool, words: &mut Words) -> Read {
    Ok(Some(match (name, on) {
        ("maxaddr", true) => Command::MaxAddresses(words.parse_number(1..=MOST_ADDRESSES, "100")?),
        ("ifmaxaddr", _) => Command::PortMaxAddresses {
            port: words.parse_name()?,
            limit: on.then(|| words.parse_number(1..=MOST_ADDRESSES, "10")).transpose()?,
        },
        ("timeout", true) => {
            let what = format!("seconds from {} to {}, or 0 for never", TIMEOUTS.start(), TIMEOUTS.end());
            let seconds = |word: &str| parse_number(word).filter(|n| *n == 0 || TIMEOUTS.contains(n));
            Command::Timeout(words.parse_value(&what, "240", seconds)?)
        }
        ("static", true) => {
            let port = words.parse_name()?;
            let (address, vlan) = words.parse_mac_entry()?;
            Command::Static { port, address, vlan }
        }
        ("deladdr", true) => {
            let (address, vlan) = words.parse_mac_entry()?;
            Command::DelAddress { address, vlan }
        }
        _ => return Ok(None),
    }))
}

fn of_rules(name: &str, on: bool, words: &mut Words) -> Read {
    Ok(Some(match (name, on) {
        ("rule", true) => Command::Rule(Box::new(parse_rule_words(words)?)),
        ("rulefile", true) => {
            let file = |word: &str| {
                (!word.is_empty() && !word.contains(char::is_whitespace)).then(|| word.to_string())
            };
            Command::RuleFile(words.parse_value("the name of a file, without blanks", "/etc/rules", file)?)
        }
        ("rules", true) => Command::Rules(words.parse_name()?),
        ("flushrule", true) => Command::FlushRules(words.parse_name()?),
        _ => return Ok(None),
    }))
}

fn of_vlans(name: &str, on: bool, words: &mut Words) -> Read {
    Ok(Some(match (name, on) {
        ("vnetid", true) => {
            Command::VnetId(Some(words.parse_value("a VLAN from 1 to 4094", "10", VlanId::parse_id)?))
        }
        ("untagged", true) => {
            let port = words.parse_name()?;
            let to = |word: &str| match word {
                "passthrough" => Some(Untagged::Passthrough),
                _ => VlanId::parse_id(word).map(Untagged::Vlan),
            };
            Command::Untagged {
                port,
                to: words.parse_value("a VLAN from 1 to 4094, or 'passthrough'", "10", to)?,
            }
        }
        ("untagged", false) => Command::Untagged { port: words.parse_name()?, to: Untagged::Dropped },
        ("tagged", true) => {
            let port = words.parse_name()?;
            let what = "VLANs from 1 to 4094, with + or - in front to add them or take them away";
            Command::Tagged { port, change: words.parse_value(what, "10,20-29", parse_tagged)? }
        }
        ("tagged", false) => {
            Command::Tagged { port: words.parse_name()?, change: TaggedChange::Set(VlanSet::new()) }
        }
        _ => return Ok(None),
    }))
}

fn of_limits(name: &str, on: bool, words: &mut Words) -> Read {
    Ok(Some(match (name, on) {
        ("rxprio", true) => {
            let what = "a priority from 0 to 7, 'packet', 'outer' or 'payload'";
            Command::RxPriority(words.parse_value(what, "packet", parse_priority)?)
        }
        ("txprio", true) => {
            let what = "a priority from 0 to 7, 'packet' or 'payload'";
            let outgoing = |word: &str| parse_priority(word).filter(|priority| *priority != Priority::Outer);
            Command::TxPriority(words.parse_value(what, "packet", outgoing)?)
        }
        ("querier", true) => Command::Querier(Some(words.parse_host()?)),
        _ => return Ok(None),
    }))
}

fn of_spanning_tree(name: &str, on: bool, words: &mut Words) -> Read {
    let command = match (name, on) {
        ("proto", true) => {
            let protocol = |word: &str| {
                [StpProtocol::Rstp, StpProtocol::Stp].into_iter().find(|known| known.to_string() == word)
            };
            SpanningTree::Protocol(words.parse_value("'rstp' or 'stp'", "rstp", protocol)?)
        }
        ("spanpriority", true) => SpanningTree::Priority(words.parse_multiple(0..=61440, 4096, "32768")?),
        ("hellotime", true) => SpanningTree::HelloTime(words.parse_number(1..=2, "2")?),
        ("fwddelay", true) => SpanningTree::ForwardDelay(words.parse_number(4..=30, "15")?),
        ("maxage", true) => SpanningTree::MaxAge(words.parse_number(6..=40, "20")?),
        ("holdcnt", true) => SpanningTree::HoldCount(words.parse_number(1..=10, "6")?),
        ("ifpriority", true) => SpanningTree::PortPriority {
            port: words.parse_name()?,
            priority: words.parse_multiple(0..=240, 16, "128")?,
        },
        ("ifcost", _) => SpanningTree::PortCost {
            port: words.parse_name()?,
            cost: on.then(|| words.parse_number(1..=200_000_000, "20000")).transpose()?,
        },
        _ => return Ok(None),
    };
    Ok(Some(Command::SpanningTree(command)))
}

/// All that is left, as a rule.
fn parse_rule_words(words: &mut Words) -> Result<Rule, CommandError> {
    let action = words.parse_value("'block', 'pass' or 'match'", "pass", |word| match word {
        "block" => Some(RuleAction::Block),
        "pass" => Some(RuleAction::Pass),
        "match" => Some(RuleAction::Match),
        _ => None,
    })?;
    let direction = words.peek().and_then(parse_direction);
    if direction.is_some() {
        words.next();
    }
    words.parse_value("'in', 'out' or 'in/out', or at once 'on' and an interface", "on em0", |word| {
        (word == "on").then_some(())
    })?;
    let mut rule = Rule {
        action,
        direction: direction.unwrap_or_default(),
        port: words.parse_name()?,
        source: None,
        destination: None,
        tag: None,
        arp: None,
    };
    while let Some(word) = words.next() {
        parse_field(word, &mut rule, words)?;
    }
    match rule.action {
        RuleAction::Match if rule.tag.is_none() => {
            Err(words.missing_word("a tag, as nothing else comes of it, such as 'tag guests'"))
        }
        _ => Ok(rule),
    }
}

fn parse_direction(word: &str) -> Option<RuleDirection> {
    match word {
        "in" => Some(RuleDirection::In),
        "out" => Some(RuleDirection::Out),
        "in/out" => Some(RuleDirection::Both),
        _ => None,
    }
}

/// Reads what `word` begins into a rule.
fn parse_field(word: &str, rule: &mut Rule, words: &mut Words) -> Result<(), CommandError> {
    let twice = || CommandError::Twice { word: word.to_string() };
    match (word, &mut rule.arp) {
        ("src", _) => fill_once(&mut rule.source, words.parse_ether()?, twice),
        ("dst", _) => fill_once(&mut rule.destination, words.parse_ether()?, twice),
        ("tag", _) => fill_once(&mut rule.tag, words.parse_tag()?, twice),
        ("arp", arp) => fill_once(arp, ArpRule::new(ArpKind::Arp), twice),
        ("rarp", arp) => fill_once(arp, ArpRule::new(ArpKind::Rarp), twice),
        ("request", Some(arp)) => fill_once(&mut arp.operation, ArpOperation::Request, twice),
        ("reply", Some(arp)) => fill_once(&mut arp.operation, ArpOperation::Reply, twice),
        ("sha", Some(arp)) => fill_once(&mut arp.sender_link, words.parse_ether()?, twice),
        ("tha", Some(arp)) => fill_once(&mut arp.target_link, words.parse_ether()?, twice),
        ("spa", Some(arp)) => fill_once(&mut arp.sender, words.parse_ipv4()?, twice),
        ("tpa", Some(arp)) => fill_once(&mut arp.target, words.parse_ipv4()?, twice),
        ("request" | "reply" | "sha" | "tha" | "spa" | "tpa", None) => {
            Err(CommandError::Unknown { word: word.to_string(), place: ARP_ONLY, meant: Some("arp") })
        }
        _ => {
            let meant = nearest(word, RULE_WORDS);
            Err(CommandError::Unknown { word: word.to_string(), place: "part of a rule", meant })
        }
    }
}

/// Where the fields of ARP stand.
const ARP_ONLY: &str = "part of a rule unless 'arp' or 'rarp' stands before it";

fn fill_once<T>(
    place: &mut Option<T>,
    value: T,
    twice: impl Fn() -> CommandError,
) -> Result<(), CommandError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(twice()),
    }
}

fn parse_domains(word: &str) -> Option<Domains> {
    let bit =
        |part: &str| parse_number(part).filter(|n| (1..=u32::from(MOST_DOMAIN)).contains(n)).map(|n| 1 << n);
    word.split(',').map(bit).try_fold(0, |bits, bit| Some(bits | bit?)).map(Domains::from_bits)
}

fn parse_tagged(word: &str) -> Option<TaggedChange> {
    match word.as_bytes().first()? {
        b'+' => VlanSet::parse_list(&word[1..]).ok().map(TaggedChange::Add),
        b'-' => VlanSet::parse_list(&word[1..]).ok().map(TaggedChange::Remove),
        _ => VlanSet::parse_list(word).ok().map(TaggedChange::Set),
    }
}

fn parse_priority(word: &str) -> Option<Priority> {
    match word {
        "packet" => Some(Priority::Packet),
        "outer" => Some(Priority::Outer),
        "payload" => Some(Priority::Payload),
        _ => parse_number(word).and_then(|n| u8::try_from(n).ok()).filter(|n| *n <= 7).map(Priority::Fixed),
    }
}

/// Digits only: `parse` alone would take a plus sign.
fn parse_number(word: &str) -> Option<u32> {
    let is_number = !word.is_empty() && word.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| word.parse().ok()).flatten()
}

/// Whether Linux could call an interface so, and a configuration as well.
fn is_name(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@:".contains(c);
    (1..=LONGEST_NAME).contains(&word.len()) && word.chars().all(is_plain) && !word.starts_with(['-', '.'])
}

/// The words of a line, and how far they were read.
struct Words<'a> {
    words: &'a [&'a str],
    /// Where the command begins that is being read.
    command: usize,
    /// The word that is to be read.
    at: usize,
}

impl<'a> Words<'a> {
    fn new(words: &'a [&'a str]) -> Words<'a> {
        Words { words, command: 0, at: 0 }
    }

    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.at += 1;
        Some(word)
    }

    /// The first word of a command.
    fn begin_command(&mut self) -> Option<&'a str> {
        self.command = self.at;
        self.next()
    }

    /// The next word, which must be `what`; `example` is one.
    fn parse_value<T>(
        &mut self,
        what: &str,
        example: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, CommandError> {
        let said = self.words[self.command..self.at].join(" ");
        let wants = || match said.is_empty() {
            true => format!("{what}, as in '{example}'"),
            false => format!("{what}, as in '{said} {example}'"),
        };
        let Some(word) = self.next() else { return Err(self.missing_word(&wants())) };
        read(word).ok_or_else(|| CommandError::Wrong {
            wants: wants(),
            command: said.clone(),
            word: word.to_string(),
        })
    }

    fn missing_word(&self, wants: &str) -> CommandError {
        let command = self.words[self.command..].join(" ");
        CommandError::Missing { command, wants: wants.to_string() }
    }

    fn parse_name(&mut self) -> Result<String, CommandError> {
        self.parse_value(NAME, AN_INTERFACE, |word| is_name(word).then(|| word.to_string()))
    }

    fn parse_number<T: TryFrom<u32>>(
        &mut self,
        bounds: RangeInclusive<u32>,
        example: &str,
    ) -> Result<T, CommandError> {
        self.parse_multiple(bounds, 1, example)
    }

    /// A number of those that come step by step.
    fn parse_multiple<T: TryFrom<u32>>(
        &mut self,
        bounds: RangeInclusive<u32>,
        step: u32,
        example: &str,
    ) -> Result<T, CommandError> {
        let multiple = if step == 1 { String::new() } else { format!(" that {step} divides") };
        let what = format!("a number from {} to {}{multiple}", bounds.start(), bounds.end());
        let read = |word: &str| parse_number(word).filter(|n| bounds.contains(n) && n % step == 0);
        self.parse_value(&what, example, |word| read(word).and_then(|n| T::try_from(n).ok()))
    }

    fn parse_ether(&mut self) -> Result<EtherAddr, CommandError> {
        self.parse_value("an Ethernet address", AN_ADDRESS, |word| word.parse().ok())
    }

    fn parse_ipv4(&mut self) -> Result<Ipv4Addr, CommandError> {
        self.parse_value("an IPv4 address", "192.0.2.1", |word| word.parse().ok())
    }

    /// The address of a host.
    fn parse_host(&mut self) -> Result<Ipv4Addr, CommandError> {
        let is_host = |address: &Ipv4Addr| {
            !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast()
        };
        let read = |word: &str| word.parse().ok().filter(is_host);
        self.parse_value("the IPv4 address of the one who asks", "192.0.2.1", read)
    }

    fn parse_tag(&mut self) -> Result<String, CommandError> {
        let what = format!("a word of at most {LONGEST_TAG} letters");
        let is_tag = |word: &str| {
            (1..=LONGEST_TAG).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_graphic())
        };
        self.parse_value(&what, "guests", |word| is_tag(word).then(|| word.to_string()))
    }

    /// A MAC address, perhaps followed by a VLAN.
    fn parse_mac_entry(&mut self) -> Result<(EtherAddr, Option<VlanId>), CommandError> {
        self.parse_value("a MAC address, with @ and a VLAN if you like", AN_ADDRESS, |word| {
            let (address, vlan) =
                word.split_once('@').map_or((word, None), |(address, vlan)| (address, Some(vlan)));
            let address: EtherAddr = address.parse().ok()?;
            let vlan = vlan.map(|vlan| VlanId::parse_id(vlan).ok_or(())).transpose().ok()?;
            (!address.is_group() && address != EtherAddr::ZERO).then_some((address, vlan))
        })
    }
}
