//! Whether rules of nftables and iptables let all packets of an established connection through that would be
//! forwarded past them.
//!
//! Rules are read once for each generation, and evaluated once for each connection and direction, by what
//! its packets have in common: addresses, ports, protocol, interfaces, state. Where that does not say whether
//! a rule matches, it may. What may do anything but accept then stands in the way, and so does what is not
//! understood. What is not here: which connections there are (`connections`), and rules that change how they
//! are tracked (`blockers::tracking`).
mod evaluate;
mod explain;
mod iptables;
mod nftables;
mod packet;
mod ruleset;
mod sets;
#[cfg(test)]
mod tests;
mod value;
mod xtables;

#[cfg(test)]
pub(crate) use nftables::tests::flow_table_policy;
pub use packet::Interface;

use crate::blockers::nftables::FlowTable;
use crate::fast::FlowKey;
use crate::kernel::Family;
use evaluate::{FlowTables, Obstacle};
use packet::{Packet, Port, State, Tuple};
use ruleset::{BaseChain, Hook, Ruleset};
use std::cmp::Ordering;
use std::io;
use std::net::IpAddr;

/// Priorities of the kernel's own at its hooks: before connection tracking packets have no state, and
/// addresses are translated before and behind.
const TRACKING: i32 = -200;
const TRANSLATION: [(Hook, i32); 2] = [(Hook::Prerouting, -100), (Hook::Postrouting, 100)];
/// Bits of a connection's status that do not change once it is established: expected, answered, confirmed,
/// and whether addresses are translated.
const LASTING: u32 = 1 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5;
const SEEN_REPLY: u32 = 1 << 1;
/// Answered and confirmed.
const ESTABLISHED: u32 = SEEN_REPLY | 1 << 3;
/// Most obstacles that are listed apart in a report.
const MOST_REPORTED: usize = 16;

const PROTOCOLS: [[u8; 3]; 2] =
    [[packet::TCP, packet::UDP, packet::ICMP], [packet::TCP, packet::UDP, packet::ICMPV6]];

/// A direction of an established connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionView<'a> {
    /// What packets arrive with.
    pub arrives: FlowKey,
    /// What they leave with.
    pub leaves: FlowKey,
    /// What packets of the original direction and of replies arrive with.
    pub tuples: [FlowKey; 2],
    /// 0 for packets of who began the connection, 1 for replies.
    pub direction: u8,
    /// The connection's status (`IPS_*`).
    pub status: u32,
    /// Where packets arrive, if they all arrive there.
    pub input: Option<&'a Interface>,
    /// Where they leave, if they all leave there.
    pub output: Option<&'a Interface>,
    /// Whether routes lead by these: to the source by the input, to the destination by the output.
    pub is_routed: bool,
}

/// Something that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyObstacle {
    /// Which rule or policy, and what about it.
    pub what: String,
    /// The command that shows it.
    pub remedy: String,
    /// Whether it stands in the way of all connections that were asked about.
    pub is_sure: bool,
}

/// Rules as they were read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Policy {
    ruleset: Ruleset,
    /// By family and protocol, as in [`PROTOCOLS`]: whether nothing can stand in the way of any connection.
    is_open: [[bool; 3]; 2],
    /// The same for segments of TCP out of window, which the kernel calls invalid.
    is_open_to_invalid: [bool; 2],
    asks_routes: bool,
}

impl Policy {
    /// Reads the rules in force. What can't be read is an error.
    pub fn read() -> io::Result<Policy> {
        let mut ruleset = Ruleset::default();
        nftables::read(&mut ruleset)?;
        for (family, text, list) in crate::blockers::iptables::legacy_rules()? {
            iptables::parse(&text, family, list, &mut ruleset);
        }
        Ok(Policy::of(ruleset))
    }

    fn of(ruleset: Ruleset) -> Policy {
        let asks_routes = ruleset.asks_routes();
        let mut policy = Policy { ruleset, asks_routes, ..Policy::default() };
        for (at, family) in [Family::V4, Family::V6].into_iter().enumerate() {
            let is_open = |protocol, state| policy.survey_packets(family, protocol, state, 1).is_empty();
            let established = PROTOCOLS[at].map(|protocol| is_open(protocol, State::Established));
            let invalid = is_open(packet::TCP, State::Invalid);
            (policy.is_open[at], policy.is_open_to_invalid[at]) = (established, invalid);
        }
        policy
    }

    /// Whether nothing can stand in the way of any connection of a family and protocol, of TCP also out of
    /// window.
    pub fn is_open_to_all(&self, family: Family, protocol: u8) -> bool {
        let at = usize::from(family == Family::V6);
        let place = PROTOCOLS[at].iter().position(|one| *one == protocol);
        place.is_some_and(|place| self.is_open[at][place])
            && (protocol != packet::TCP || self.is_open_to_invalid[at])
    }

    /// Whether what rules do depends on routes: it is to be asked again when these change.
    pub fn asks_routes(&self) -> bool {
        self.asks_routes
    }

    /// What stands in the way of some connections of a family, or of all.
    pub fn survey(&self, family: Family) -> Vec<PolicyObstacle> {
        let protocols = PROTOCOLS[usize::from(family == Family::V6)];
        let all = protocols
            .map(|protocol| self.survey_packets(family, protocol, State::Established, MOST_REPORTED));
        let mut obstacles: Vec<PolicyObstacle> = Vec::new();
        for one in all.iter().flatten() {
            let is_same = |other: &Obstacle| (other.chain, other.rule) == (one.chain, one.rule);
            // What stands in the way of one protocol alone is not in the way of all connections.
            let is_sure = all.iter().all(|of| of.iter().any(|other| is_same(other) && other.is_sure));
            let obstacle = PolicyObstacle { is_sure, ..self.describe(one) };
            if !obstacles.contains(&obstacle) {
                obstacles.push(obstacle);
            }
        }
        obstacles
    }

    /// What may stand in the way of segments of TCP that are out of window, which the kernel would call
    /// invalid. If nothing does, it does not matter what the kernel knows of windows.
    pub fn survey_invalid(&self, family: Family) -> Option<PolicyObstacle> {
        let found = self.survey_packets(family, packet::TCP, State::Invalid, 1);
        found.first().map(|one| self.describe(one))
    }

    /// What stands in the way of packets of a connection's direction.
    pub fn obstacle(&self, connection: &ConnectionView<'_>) -> Option<PolicyObstacle> {
        let at = usize::from(connection.arrives.source.is_ipv6());
        let is_it = |protocol: &u8| *protocol == connection.arrives.protocol;
        if PROTOCOLS[at].iter().position(is_it).is_some_and(|protocol| self.is_open[at][protocol]) {
            return None;
        }
        let seen = |base: &BaseChain| connection.seen_at(base);
        self.evaluate(connection.family(), seen, 1).first().map(|one| self.describe(one))
    }

    /// The same for segments of TCP out of window, of a connection that is not translated: the kernel does
    /// not translate them.
    pub fn obstacle_to_invalid(&self, connection: &ConnectionView<'_>) -> Option<PolicyObstacle> {
        if self.is_open_to_invalid[usize::from(connection.arrives.source.is_ipv6())] {
            return None;
        }
        let seen = |base: &BaseChain| {
            let state = state_at(base, State::Invalid);
            Packet { state, ..connection.seen_at(base) }
        };
        self.evaluate(connection.family(), seen, 1).first().map(|one| self.describe(one))
    }

    /// The flow tables that rules may give a connection to by packets of a direction (`flow add`). The kernel
    /// forwards past rules then what arrives at their devices, of both directions; whether it does, the
    /// connection's status says. `None` if one of them is not known, or cards forward by it.
    pub(crate) fn flow_tables(&self, connection: &ConnectionView<'_>) -> Option<Vec<&FlowTable>> {
        let found = self.find_flow_tables(connection.family(), |base| connection.seen_at(base));
        found.into_iter().map(|table| self.flow_table(table)).collect()
    }

    /// Whether rules may give any connection of a family to flow tables that no card forwards by.
    pub fn has_flow_tables(&self, family: Family) -> bool {
        let seen = |base: &BaseChain| any_packet(base, family, packet::TCP, State::Established);
        self.find_flow_tables(family, seen).into_iter().any(|table| self.flow_table(table).is_some())
    }

    fn flow_table(&self, table: Option<usize>) -> Option<&FlowTable> {
        self.ruleset.flow_tables.get(table?).filter(|table| !table.is_of_hardware)
    }

    fn find_flow_tables<'a>(
        &self,
        family: Family,
        seen: impl Fn(&BaseChain) -> Packet<'a>,
    ) -> Vec<Option<usize>> {
        if self.ruleset.flow_tables.is_empty() {
            return Vec::new();
        }
        let mut bases: Vec<&BaseChain> = self.ruleset.bases.iter().collect();
        bases.retain(|base| base.family.is_none_or(|one| one == family));
        bases.sort_by_key(|base| (base.hook, base.priority));
        let mut found = Vec::new();
        for base in bases {
            let FlowTables { found: more, is_end } =
                evaluate::find_flow_tables(&self.ruleset, base, &seen(base));
            found.extend(more);
            if is_end {
                break;
            }
        }
        found
    }

    fn survey_packets(&self, family: Family, protocol: u8, state: State, most: usize) -> Vec<Obstacle> {
        self.evaluate(family, |base| any_packet(base, family, protocol, state), most)
    }

    fn evaluate<'a>(
        &self,
        family: Family,
        seen: impl Fn(&BaseChain) -> Packet<'a>,
        most: usize,
    ) -> Vec<Obstacle> {
        let mut found = Vec::new();
        for base in self.ruleset.bases.iter().filter(|base| base.family.is_none_or(|one| one == family)) {
            let left = most.saturating_sub(found.len());
            if left == 0 {
                break;
            }
            found.extend(evaluate::evaluate(&self.ruleset, base, &seen(base), left));
        }
        found
    }

    fn describe(&self, obstacle: &Obstacle) -> PolicyObstacle {
        let chain = &self.ruleset.chains[obstacle.chain];
        let rule = obstacle.rule.and_then(|rule| chain.rules.get(rule));
        let rule = rule.map_or_else(String::new, |rule| format!(", {}", rule.name));
        PolicyObstacle {
            what: format!("{}{rule}: {}", chain.name, obstacle.what),
            remedy: chain.remedy.clone(),
            is_sure: obstacle.is_sure,
        }
    }
}

/// A packet of any connection of a family and protocol, as a chain sees it.
fn any_packet(base: &BaseChain, family: Family, protocol: u8, state: State) -> Packet<'static> {
    Packet {
        family,
        protocol,
        source: None,
        destination: None,
        ports: [None; 2],
        echo: [None; 2],
        input: Port::Any,
        output: if base.hook == Hook::Prerouting { Port::None } else { Port::Any },
        state: state_at(base, state),
        direction: None,
        status: (ESTABLISHED, ESTABLISHED),
        tuples: None,
        is_routed: [false; 2],
    }
}

/// What connection tracking says of a packet where a chain sees it.
fn state_at(base: &BaseChain, state: State) -> State {
    let is_before = base.hook == Hook::Prerouting && base.priority <= TRACKING;
    if is_before { State::Unknown } else { state }
}

/// Where a chain sees packets.
#[derive(PartialEq, Eq)]
enum Side {
    Before,
    Behind,
    /// In the same place: the kernel decides by which was there first.
    Beside,
}

fn translation_side(base: &BaseChain, of: Hook) -> Side {
    let priority = TRANSLATION.iter().find(|(hook, _)| *hook == of).map_or(0, |(_, priority)| *priority);
    match base.hook.cmp(&of).then(base.priority.cmp(&priority)) {
        Ordering::Less => Side::Before,
        Ordering::Equal => Side::Beside,
        Ordering::Greater => Side::Behind,
    }
}

fn key_tuple(key: &FlowKey) -> Tuple {
    let [a, b, c, d] = key.ports;
    Tuple { source: key.source, destination: key.destination, ports: [[a, b], [c, d]] }
}

impl<'a> ConnectionView<'a> {
    fn family(&self) -> Family {
        if self.arrives.source.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// A packet as a chain sees it.
    fn seen_at(&self, base: &BaseChain) -> Packet<'a> {
        let (arrives, leaves) = (key_tuple(&self.arrives), key_tuple(&self.leaves));
        // Destinations are translated before routing, and sources behind it.
        let choose = |side: Side, old: (IpAddr, [u8; 2]), new: (IpAddr, [u8; 2])| match side {
            Side::Before => (Some(old.0), Some(old.1)),
            Side::Behind => (Some(new.0), Some(new.1)),
            Side::Beside if old == new => (Some(old.0), Some(old.1)),
            Side::Beside => (None, None),
        };
        let (source, source_port) = choose(
            translation_side(base, Hook::Postrouting),
            (arrives.source, arrives.ports[0]),
            (leaves.source, leaves.ports[0]),
        );
        let (destination, destination_port) = choose(
            translation_side(base, Hook::Prerouting),
            (arrives.destination, arrives.ports[1]),
            (leaves.destination, leaves.ports[1]),
        );
        let has_ports = [packet::TCP, packet::UDP].contains(&self.arrives.protocol);
        // An echo's identifier is translated in either place.
        let is_same_echo = self.arrives.ports == self.leaves.ports;
        let identifier = Some(arrives.ports[0]).filter(|_| is_same_echo);
        let returns = self.is_routed && self.input.is_some() && source == Some(arrives.source);
        let leads = self.is_routed && self.output.is_some() && destination == Some(leaves.destination);
        Packet {
            family: self.family(),
            protocol: self.arrives.protocol,
            source,
            destination,
            ports: if has_ports { [source_port, destination_port] } else { [None; 2] },
            echo: if has_ports { [None; 2] } else { [Some(arrives.ports[1]), identifier] },
            input: match base.hook {
                // Older kernels don't say there by which interface a packet came.
                Hook::Postrouting => Port::Any,
                _ => self.input.map_or(Port::Any, Port::Is),
            },
            output: match base.hook {
                Hook::Prerouting => Port::None,
                _ => self.output.map_or(Port::Any, Port::Is),
            },
            state: state_at(base, State::Established),
            direction: Some(self.direction),
            status: (self.status & LASTING, LASTING),
            tuples: Some(self.tuples.each_ref().map(key_tuple)),
            is_routed: [returns, leads],
        }
    }
}
