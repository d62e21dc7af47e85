//! Commands of `ifconfig` for a switch: each as a value, read from words and printed as words.
//!
//! The words are those of ifconfig(8) for veb(4) and bridge(4), and a few of our own that are read in the
//! same way: `storm`, `ifmaxaddr`, `evict`, `snoop`, `querier`, `groups`, `mcastrouter`, `fastleave`,
//! `hairpin`, `nobroadcast`, `nomulticast`, `bpduguard`, `bpdufilter` and `rootguard`. [`parse`] makes
//! commands of words and holds them to their bounds; whether the switch has the port that is named, is for
//! the switch to say.
mod error;
mod parse;
mod rule;
#[cfg(test)]
mod tests;
mod vlan;

pub use error::CommandError;
pub use parse::{parse, parse_rule};
pub use rule::{ArpKind, ArpOperation, ArpRule, Rule, RuleAction, RuleDirection};
pub use vlan::{VlanId, VlanSet};

use artery_wire::EtherAddr;
use std::fmt;
use std::net::Ipv4Addr;

/// Most addresses that `maxaddr` allows; veb(4) allows 4096.
pub const MOST_ADDRESSES: u32 = super::MOST_ENTRIES;
/// Seconds that `timeout` allows, besides 0, which means that addresses never get too old.
pub const TIMEOUTS: std::ops::RangeInclusive<u32> = 8..=3600;
/// Groups of ports that `protected` knows.
pub const MOST_DOMAIN: u8 = 31;
/// Bytes that the name of an interface has at most.
pub const LONGEST_NAME: usize = 15;
/// Bytes that a tag for the packet filter has at most.
pub const LONGEST_TAG: usize = 63;
/// Packets a second that `storm` allows at most.
pub const MOST_STORM: u32 = 1_000_000_000;

/// A command for a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the commands say what is in their fields
pub enum Command {
    /// `create`: makes the switch.
    Create,
    /// `destroy`: ends the switch.
    Destroy,
    /// `up`: lets the switch forward.
    Up,
    /// `down`: leaves frames to the host, as if there were no switch.
    Down,
    /// `add IF`: makes an interface a port.
    Add(String),
    /// `del IF`: gives a port up.
    Del(String),
    /// `addspan IF`: sends a copy of every frame to an interface.
    AddSpan(String),
    /// `delspan IF`: sends no more copies there.
    DelSpan(String),
    /// `learn IF`, `-learn IF` and their like: a property of a port that is there or not.
    Flag { port: String, flag: PortFlag, on: bool },
    /// `protected IF 1,2`, and `-protected IF` for none: ports that have a group in common don't
    /// talk to each other.
    Protected { port: String, domains: Domains },
    /// `maxaddr N`: how many addresses are kept.
    MaxAddresses(u32),
    /// `ifmaxaddr IF N`, and `-ifmaxaddr IF` for no limit but that of the switch: how many addresses
    /// a port may have.
    PortMaxAddresses { port: String, limit: Option<u32> },
    /// `evict` and `-evict`: whether a new address takes the place of the oldest when there are as
    /// many as may be.
    Evict(bool),
    /// `timeout S`: seconds after which an unused address is forgotten; 0 for never.
    Timeout(u32),
    /// `static IF MAC[@VID]`: an address that stays where it is; without VID in the VLAN of the switch.
    Static { port: String, address: EtherAddr, vlan: Option<VlanId> },
    /// `deladdr MAC[@VID]`: forgets an address; without VID that in the VLAN of the switch.
    DelAddress { address: EtherAddr, vlan: Option<VlanId> },
    /// `flush`: forgets all addresses that were learned.
    Flush,
    /// `flushall`: forgets all addresses.
    FlushAll,
    /// `addr`: lists the MAC table.
    Addresses,
    /// `rule …`: adds a rule to a port.
    Rule(Box<Rule>),
    /// `rulefile FILE`: adds the rules of a file, one a line.
    RuleFile(String),
    /// `rules IF`: lists the rules of a port.
    Rules(String),
    /// `flushrule IF`: forgets the rules of a port.
    FlushRules(String),
    /// `link0` to `link2`, and `-link0` to `-link2`.
    Link { number: u8, on: bool },
    /// `vnetid VID`, and `-vnetid` for none: the VLAN of frames without a tag where the port doesn't say.
    VnetId(Option<VlanId>),
    /// `untagged IF VID`, `untagged IF passthrough`, and `-untagged IF`.
    Untagged { port: String, to: Untagged },
    /// `tagged IF VIDS`, `tagged IF +VIDS`, `tagged IF -VIDS`, and `-tagged IF` for none.
    Tagged { port: String, change: TaggedChange },
    /// `rxprio N`, `rxprio packet` and so on: the priority of frames that come in.
    RxPriority(Priority),
    /// `txprio N`, `txprio packet` and so on: the priority of frames that go out.
    TxPriority(Priority),
    /// `storm IF broadcast N`, and `-storm IF broadcast` for no limit: packets a second of a kind that
    /// a port may send.
    Storm { port: String, kind: StormKind, limit: Option<u32> },
    /// `snoop` and `-snoop`: whether frames for groups of IP go to their members only.
    Snoop(bool),
    /// `querier ADDRESS`, and `-querier` for none: source address of the switch's group queries.
    Querier(Option<Ipv4Addr>),
    /// `groups`: lists members of groups, and routers.
    Groups,
    /// `proto`, `hellotime`, `ifcost` and so on.
    SpanningTree(SpanningTree),
}

/// What a port does or does not; its number is its bit in the flags of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortFlag {
    /// `learn`: learns the addresses that frames come from.
    Learn = 1,
    /// `discover`: gets frames for addresses that are not known.
    Discover = 1 << 1,
    /// `locked`: takes frames only from addresses that are known to be there; without `learn` and `discover`.
    Locked = 1 << 9,
    /// `blocknonip`: lets IPv4, IPv6, ARP and RARP pass, and nothing else.
    BlockNonIp = 1 << 2,
    /// `stp`: takes part in the spanning tree.
    Stp = 1 << 3,
    /// `edge`: has no other bridge behind it.
    Edge = 1 << 4,
    /// `autoedge`: finds that out.
    AutoEdge = 1 << 5,
    /// `ptp`: has exactly one other bridge behind it.
    Ptp = 1 << 6,
    /// `autoptp`: finds that out.
    AutoPtp = 1 << 7,
    /// `bpduguard`: ends when a bridge speaks there.
    BpduGuard = 1 << 10,
    /// `bpdufilter`: neither sends nor receives spanning tree messages.
    BpduFilter = 1 << 11,
    /// `rootguard`: never takes the root to be there.
    RootGuard = 1 << 13,
    /// `mcastrouter`: gets frames for all groups, as a router is there.
    McastRouter = 1 << 12,
    /// `fastleave`: the port has one host behind it; when that leaves a group, no query is sent.
    FastLeave = 1 << 14,
    /// `hairpin`: frames may leave by the port that they came by, for hosts that reach each
    /// other only through it.
    Hairpin = 1 << 15,
    /// `nobroadcast`: gets no broadcasts.
    NoBroadcast = 1 << 16,
    /// `nomulticast`: gets frames for groups only if it is known to want them.
    NoMulticast = 1 << 17,
}

const FLAG_WORDS: [(PortFlag, &str); 17] = [
    (PortFlag::Learn, "learn"),
    (PortFlag::Discover, "discover"),
    (PortFlag::Locked, "locked"),
    (PortFlag::BlockNonIp, "blocknonip"),
    (PortFlag::Stp, "stp"),
    (PortFlag::Edge, "edge"),
    (PortFlag::AutoEdge, "autoedge"),
    (PortFlag::Ptp, "ptp"),
    (PortFlag::AutoPtp, "autoptp"),
    (PortFlag::BpduGuard, "bpduguard"),
    (PortFlag::BpduFilter, "bpdufilter"),
    (PortFlag::RootGuard, "rootguard"),
    (PortFlag::McastRouter, "mcastrouter"),
    (PortFlag::FastLeave, "fastleave"),
    (PortFlag::Hairpin, "hairpin"),
    (PortFlag::NoBroadcast, "nobroadcast"),
    (PortFlag::NoMulticast, "nomulticast"),
];

impl PortFlag {
    /// Every flag, each of them once.
    pub fn iter_all() -> impl Iterator<Item = PortFlag> {
        FLAG_WORDS.into_iter().map(|(flag, _)| flag)
    }

    /// The flag that a word sets.
    pub fn from_word(word: &str) -> Option<PortFlag> {
        PortFlag::iter_all().find(|flag| flag.word() == word)
    }

    /// Whether it is about the spanning tree.
    pub fn is_of_tree(self) -> bool {
        use PortFlag::{AutoEdge, AutoPtp, BpduFilter, BpduGuard, Edge, Ptp, RootGuard, Stp};
        matches!(self, Stp | Edge | AutoEdge | Ptp | AutoPtp | BpduGuard | BpduFilter | RootGuard)
    }

    /// Returns the word that sets it.
    pub fn word(self) -> &'static str {
        FLAG_WORDS.iter().find(|(flag, _)| *flag == self).map_or("", |(_, word)| word)
    }
}

/// Groups of ports that don't talk to each other: bit `n` is group `n`, from 1 to [`MOST_DOMAIN`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Domains(u32);

impl Domains {
    /// Makes it of bits; bit 0, which stands for no domain, is ignored.
    pub fn from_bits(bits: u32) -> Domains {
        Domains(bits & !1)
    }

    /// Returns the set as bits, one a domain.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Says whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Says whether both have one of them.
    #[inline]
    pub fn shares_domain(self, other: Domains) -> bool {
        self.0 & other.0 != 0
    }
}

impl fmt::Display for Domains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = (1..=MOST_DOMAIN).filter(|number| self.0 >> number & 1 != 0);
        for (n, number) in numbers.enumerate() {
            write!(f, "{}{number}", if n == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// How frames without a tag are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Untagged {
    /// They belong to this VLAN.
    Vlan(VlanId),
    /// They are the host's, as if the interface were no port.
    Passthrough,
    /// Frames without a tag are dropped.
    Dropped,
}

/// A change of the VLANs whose tagged frames a port has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaggedChange {
    /// It has these and no others.
    Set(VlanSet),
    /// It has these too.
    Add(VlanSet),
    /// It has these no more.
    Remove(VlanSet),
}

/// Where the priority of frames comes from, or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Always this one, 0 to 7.
    Fixed(u8),
    /// What the packet has already.
    Packet,
    /// The header that is taken off or put on.
    Outer,
    /// The header within the outer tag: the inner tag, or IP.
    Payload,
}

/// Frames that go to many ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StormKind {
    /// Frames to the broadcast address.
    Broadcast,
    /// Those for other groups.
    Multicast,
    /// Unicast frames to an address that is not in the MAC table.
    Unknown,
}

impl StormKind {
    /// All kinds, one limit each.
    pub const ALL: [StormKind; 3] = [StormKind::Broadcast, StormKind::Multicast, StormKind::Unknown];

    /// Keyword of the kind in commands.
    pub fn word(self) -> &'static str {
        match self {
            StormKind::Broadcast => "broadcast",
            StormKind::Multicast => "multicast",
            StormKind::Unknown => "unknown",
        }
    }
}

/// A command for the spanning tree (IEEE 802.1D-2004 section 17.13 and 17.14 name the bounds).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the commands say what is in their fields
pub enum SpanningTree {
    /// `proto rstp` or `proto stp`.
    Protocol(StpProtocol),
    /// `spanpriority N`: 0 to 61440, by 4096.
    Priority(u16),
    /// `hellotime S`: 1 or 2.
    HelloTime(u8),
    /// `fwddelay S`: 4 to 30.
    ForwardDelay(u8),
    /// `maxage S`: 6 to 40.
    MaxAge(u8),
    /// `holdcnt N`: 1 to 10.
    HoldCount(u8),
    /// `ifpriority IF N`: 0 to 240, by 16.
    PortPriority { port: String, priority: u8 },
    /// `ifcost IF N`: 1 to 200000000; `-ifcost IF` has it follow the speed of the link.
    PortCost { port: String, cost: Option<u32> },
}

/// Which spanning tree is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StpProtocol {
    /// Rapid spanning tree, IEEE 802.1D-2004.
    #[default]
    Rstp,
    /// Spanning tree of 1998, without rapid transitions.
    Stp,
}

impl fmt::Display for StpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StpProtocol::Rstp => "rstp",
            StpProtocol::Stp => "stp",
        })
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Priority::Fixed(number) => write!(f, "{number}"),
            Priority::Packet => f.write_str("packet"),
            Priority::Outer => f.write_str("outer"),
            Priority::Payload => f.write_str("payload"),
        }
    }
}

/// Prints the words that [`parse`] reads.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Create => f.write_str("create"),
            Command::Destroy => f.write_str("destroy"),
            Command::Up => f.write_str("up"),
            Command::Down => f.write_str("down"),
            Command::Add(port) => write!(f, "add {port}"),
            Command::Del(port) => write!(f, "del {port}"),
            Command::AddSpan(port) => write!(f, "addspan {port}"),
            Command::DelSpan(port) => write!(f, "delspan {port}"),
            Command::Flush => f.write_str("flush"),
            Command::FlushAll => f.write_str("flushall"),
            Command::Addresses => f.write_str("addr"),
            Command::Groups => f.write_str("groups"),
            Command::Rule(rule) => write!(f, "rule {rule}"),
            Command::RuleFile(file) => write!(f, "rulefile {file}"),
            Command::Rules(port) => write!(f, "rules {port}"),
            Command::FlushRules(port) => write!(f, "flushrule {port}"),
            Command::RxPriority(priority) => write!(f, "rxprio {priority}"),
            Command::TxPriority(priority) => write!(f, "txprio {priority}"),
            Command::SpanningTree(command) => command.fmt(f),
            _ => self.fmt_property(f),
        }
    }
}

impl Command {
    /// Returns the port that it is about, if it is about one.
    pub fn port(&self) -> Option<&str> {
        match self {
            Command::Add(port)
            | Command::Del(port)
            | Command::AddSpan(port)
            | Command::DelSpan(port)
            | Command::Flag { port, .. }
            | Command::Protected { port, .. }
            | Command::PortMaxAddresses { port, .. }
            | Command::Static { port, .. }
            | Command::Rules(port)
            | Command::FlushRules(port)
            | Command::Untagged { port, .. }
            | Command::Tagged { port, .. }
            | Command::Storm { port, .. }
            | Command::SpanningTree(
                SpanningTree::PortPriority { port, .. } | SpanningTree::PortCost { port, .. },
            ) => Some(port),
            Command::Rule(rule) => Some(&rule.port),
            _ => None,
        }
    }

    /// Prints a property: its word, with or without a minus sign, or with a value.
    fn fmt_property(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Flag { port, flag, on } => write!(f, "{}{} {port}", sign(*on), flag.word()),
            Command::Protected { port, domains } if domains.is_empty() => write!(f, "-protected {port}"),
            Command::Protected { port, domains } => write!(f, "protected {port} {domains}"),
            Command::MaxAddresses(limit) => write!(f, "maxaddr {limit}"),
            Command::PortMaxAddresses { port, limit: Some(limit) } => write!(f, "ifmaxaddr {port} {limit}"),
            Command::PortMaxAddresses { port, limit: None } => write!(f, "-ifmaxaddr {port}"),
            Command::Evict(on) => write!(f, "{}evict", sign(*on)),
            Command::Snoop(on) => write!(f, "{}snoop", sign(*on)),
            Command::Querier(Some(address)) => write!(f, "querier {address}"),
            Command::Querier(None) => f.write_str("-querier"),
            Command::Timeout(seconds) => write!(f, "timeout {seconds}"),
            Command::Static { port, address, vlan } => write!(f, "static {port} {address}{}", At(*vlan)),
            Command::DelAddress { address, vlan } => write!(f, "deladdr {address}{}", At(*vlan)),
            Command::Link { number, on } => write!(f, "{}link{number}", sign(*on)),
            Command::VnetId(Some(vlan)) => write!(f, "vnetid {vlan}"),
            Command::VnetId(None) => f.write_str("-vnetid"),
            Command::Untagged { port, to: Untagged::Vlan(vlan) } => write!(f, "untagged {port} {vlan}"),
            Command::Untagged { port, to: Untagged::Passthrough } => write!(f, "untagged {port} passthrough"),
            Command::Untagged { port, to: Untagged::Dropped } => write!(f, "-untagged {port}"),
            Command::Tagged { port, change } => change.fmt(port, f),
            Command::Storm { port, kind, limit: Some(limit) } => {
                write!(f, "storm {port} {} {limit}", kind.word())
            }
            Command::Storm { port, kind, limit: None } => write!(f, "-storm {port} {}", kind.word()),
            _ => unreachable!("all others are printed by the caller"),
        }
    }
}

fn sign(on: bool) -> &'static str {
    if on { "" } else { "-" }
}

/// The VLAN behind an address.
struct At(Option<VlanId>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |vlan| write!(f, "@{vlan}"))
    }
}

impl TaggedChange {
    fn fmt(&self, port: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaggedChange::Set(vlans) if vlans.is_empty() => write!(f, "-tagged {port}"),
            TaggedChange::Set(vlans) => write!(f, "tagged {port} {vlans}"),
            TaggedChange::Add(vlans) => write!(f, "tagged {port} +{vlans}"),
            TaggedChange::Remove(vlans) => write!(f, "tagged {port} -{vlans}"),
        }
    }
}

impl fmt::Display for SpanningTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpanningTree::Protocol(protocol) => write!(f, "proto {protocol}"),
            SpanningTree::Priority(priority) => write!(f, "spanpriority {priority}"),
            SpanningTree::HelloTime(seconds) => write!(f, "hellotime {seconds}"),
            SpanningTree::ForwardDelay(seconds) => write!(f, "fwddelay {seconds}"),
            SpanningTree::MaxAge(seconds) => write!(f, "maxage {seconds}"),
            SpanningTree::HoldCount(count) => write!(f, "holdcnt {count}"),
            SpanningTree::PortPriority { port, priority } => write!(f, "ifpriority {port} {priority}"),
            SpanningTree::PortCost { port, cost: Some(cost) } => write!(f, "ifcost {port} {cost}"),
            SpanningTree::PortCost { port, cost: None } => write!(f, "-ifcost {port}"),
        }
    }
}
