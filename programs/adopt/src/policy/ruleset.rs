//! Rules of all kinds in one form, as far as they are understood.
use super::packet::{ConnectionField, Header, Packet, Port, PortField, RouteField, State};
use super::sets::Set;
use super::value::Truth;
use crate::blockers::nftables::FlowTable;
use crate::kernel::Family;
use std::net::IpAddr;

/// Bytes of nftables' registers.
pub(super) const REGISTER_BYTES: usize = 64;

/// All rules that forwarded packets may come to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ruleset {
    pub(super) chains: Vec<Chain>,
    pub(super) sets: Vec<Set>,
    pub(super) flow_tables: Vec<FlowTable>,
    pub(super) bases: Vec<BaseChain>,
}

/// Where forwarded packets meet chains, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hook {
    Prerouting,
    Forward,
    Postrouting,
}

/// A chain that packets come to by a hook.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BaseChain {
    pub(super) chain: usize,
    pub(super) hook: Hook,
    pub(super) priority: i32,
    /// The family of its packets; `None` for both.
    pub(super) family: Option<Family>,
    pub(super) accepts: bool,
}

/// Rules, in their order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chain {
    /// Its name in reports.
    pub(super) name: String,
    /// The command that shows it.
    pub(super) remedy: String,
    pub(super) rules: Vec<Rule>,
}

/// A rule: what it does until something in it is not so.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// Its name within the chain in reports.
    pub(super) name: String,
    pub(super) steps: Vec<Step>,
}

/// What a packet's way through chains goes on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    Drop,
    /// The chain, by its place; back behind the rule if nothing else was decided.
    Jump(usize),
    /// The same, without coming back.
    Goto(usize),
    Return,
    Continue,
    /// Something else: queues, chains that are not known.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// What a register is loaded with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Header(Header, usize),
    Port {
        is_input: bool,
        field: PortField,
    },
    Connection(ConnectionField),
    Mark,
    /// Of the source's or the destination's route.
    Route {
        is_source: bool,
        field: RouteField,
    },
    /// The same for all packets of a family and protocol.
    Family,
    Protocol,
    /// The number of the family's frames (ETH_P_IP, ETH_P_IPV6).
    Ethertype,
    /// It may be anything, or nothing.
    Unknown,
}

/// One thing that a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Loads so many bytes into registers, which are numbered by bytes.
    Load { to: usize, length: usize, source: Source },
    /// Loads bytes that the rule has.
    Immediate { to: usize, bytes: Vec<u8> },
    /// Copies the bits of a mask, and flips those of another one.
    MaskXor { from: usize, to: usize, mask: Vec<u8>, xor: Vec<u8> },
    /// Reverses the byte order of each `size` bytes.
    Swap { from: usize, to: usize, length: usize, size: usize },
    /// Ends the rule unless registers are so ordered beside constant bytes.
    Compare { at: usize, order: Order, with: Vec<u8> },
    /// Ends the rule unless registers lie within bounds, both included; inverted, if they do.
    Range { at: usize, from: Vec<u8>, to: Vec<u8>, is_inverted: bool },
    /// Looks into a set, by its place.
    Lookup { set: usize, at: usize, into: Option<usize>, is_inverted: bool },
    /// The same; what is found is done.
    VerdictMap { set: usize, at: usize },
    /// Ends the rule unless a match of iptables holds.
    Test(Condition),
    /// What becomes of the packet, or which chain goes on with it.
    Decide(Verdict),
    /// Sets the mark to four bytes of registers.
    SetMark { at: usize },
    /// Has the kernel forward the connection by a flow table from then on, if it may, and ends the rule
    /// otherwise. It may with TCP and UDP, once.
    AddFlow { table: Option<usize> },
    /// Nothing that matters, such as an anonymous counter.
    Nothing,
    /// Something that packets that are forwarded past the rule would be without, or that is not understood.
    Effect(String),
}

/// Whether something is so of a packet, as matches of iptables ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// An address, and the mask of those bits that matter.
    Source(IpAddr, IpAddr),
    Destination(IpAddr, IpAddr),
    Protocol(u8),
    /// An interface's name; with `+` at its end, how it begins.
    Input(String),
    Output(String),
    /// Ranges of ports, both ends included.
    SourcePort(Vec<(u16, u16)>),
    DestinationPort(Vec<(u16, u16)>),
    /// Bits of states, as nftables and iptables number the first ones.
    State(u32),
    TcpFlags {
        mask: u8,
        value: u8,
    },
    /// Bits of the mark.
    Mark {
        mask: u32,
        value: u32,
    },
    /// Whether the type of the source or the destination is one of these (`1 << RTN_*`).
    AddressType {
        is_source: bool,
        types: u16,
    },
    /// Whether routes lead to the source by where the packet came from.
    ReversePath,
    Not(Box<Condition>),
    Any(Vec<Condition>),
    /// It may be so or not.
    Unknown,
}

impl Ruleset {
    /// Whether what some rule does depends on routes.
    pub(super) fn asks_routes(&self) -> bool {
        let asks = |step: &Step| match step {
            Step::Load { source: Source::Route { .. }, .. } => true,
            // What a flow table forwards depends on where it arrives.
            Step::AddFlow { .. } => true,
            Step::Test(condition) => condition.asks_routes(),
            _ => false,
        };
        self.chains.iter().flat_map(|chain| &chain.rules).flat_map(|rule| &rule.steps).any(asks)
    }
}

impl Condition {
    pub(super) fn inverted_if(self, is_inverted: bool) -> Condition {
        if is_inverted { Condition::Not(Box::new(self)) } else { self }
    }

    /// One that no packet here meets.
    pub(super) fn never() -> Condition {
        Condition::Any(Vec::new())
    }

    /// Whether it depends on routes.
    fn asks_routes(&self) -> bool {
        match self {
            Condition::AddressType { .. } | Condition::ReversePath => true,
            Condition::Not(condition) => condition.asks_routes(),
            Condition::Any(all) => all.iter().any(Condition::asks_routes),
            _ => false,
        }
    }

    pub(super) fn is_so(&self, packet: &Packet<'_>) -> Truth {
        match self {
            Condition::Source(address, mask) => is_address(packet.source, *address, *mask),
            Condition::Destination(address, mask) => is_address(packet.destination, *address, *mask),
            Condition::Protocol(protocol) => (packet.protocol == *protocol).into(),
            Condition::Input(name) => is_named(packet.input, name),
            Condition::Output(name) => is_named(packet.output, name),
            Condition::SourcePort(ranges) => is_port(packet.ports[0], ranges),
            Condition::DestinationPort(ranges) => is_port(packet.ports[1], ranges),
            Condition::State(mask) => is_state(packet.state, *mask),
            Condition::TcpFlags { mask, value } => packet.has_tcp_flags(*mask, *value),
            Condition::Mark { mask, value } => {
                packet.load_mark().value.mask_xor(&mask.to_ne_bytes(), &[0; 4]).equals(&value.to_ne_bytes())
            }
            Condition::AddressType { is_source, types } => packet.is_of_type(*is_source, *types),
            Condition::ReversePath if packet.is_routed[0] => Truth::Yes,
            Condition::ReversePath => Truth::Unknown,
            Condition::Not(condition) => condition.is_so(packet).invert_if(true),
            Condition::Any(all) => all.iter().fold(Truth::No, |truth, one| truth.or(one.is_so(packet))),
            Condition::Unknown => Truth::Unknown,
        }
    }
}

fn is_address(packet: Option<IpAddr>, address: IpAddr, mask: IpAddr) -> Truth {
    match (packet, address, mask) {
        (_, address, mask) if is_zero(mask) => is_zero(address).into(),
        (Some(IpAddr::V4(one)), IpAddr::V4(other), IpAddr::V4(mask)) => (one & mask == other).into(),
        (Some(IpAddr::V6(one)), IpAddr::V6(other), IpAddr::V6(mask)) => (one & mask == other).into(),
        _ => Truth::Unknown,
    }
}

fn is_zero(address: IpAddr) -> bool {
    address.is_unspecified()
}

fn is_named(port: Port<'_>, name: &str) -> Truth {
    let Port::Is(port) = port else { return Truth::Unknown };
    match name.strip_suffix('+') {
        Some(start) => port.name.starts_with(start).into(),
        None => (port.name == name).into(),
    }
}

fn is_port(port: Option<[u8; 2]>, ranges: &[(u16, u16)]) -> Truth {
    let Some(port) = port.map(u16::from_be_bytes) else { return Truth::Unknown };
    ranges.iter().any(|(from, to)| (*from..=*to).contains(&port)).into()
}

fn is_state(state: State, mask: u32) -> Truth {
    let bit = match state {
        State::Unknown => return Truth::Unknown,
        State::Established => super::packet::STATE_ESTABLISHED,
        State::Invalid => super::packet::STATE_INVALID,
        State::New => super::packet::STATE_NEW,
    };
    (mask & bit != 0).into()
}
