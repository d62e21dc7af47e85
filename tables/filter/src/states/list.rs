//! States as `pfctl -s states` prints them.
use super::{Cold, Extra, Hot, Key, StateRuleRecord, flag};
use crate::facts::{Direction, Family, Interface};
use crate::track::{Peer, Scale, Stage};
use artery_wire::IpProtocol;
use std::fmt::{self, Write};
use std::net::IpAddr;

/// How much is printed of each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// One line for each state.
    #[default]
    Plain,
    /// What TCP has come to, ages and counts: `-v`.
    Verbose,
    /// Its id as well: `-vv`.
    VeryVerbose,
}

/// The names of interfaces.
pub trait InterfaceLookup {
    /// The name of an interface.
    fn interface(&self, interface: Interface) -> &str;
}

/// A state to look at.
pub struct StateView<'a> {
    pub(crate) hot: Hot,
    pub(crate) cold: &'a Cold,
    pub(crate) extra: Option<&'a Extra>,
    pub(crate) counts: ([u64; 2], [u64; 2]),
    pub(crate) keys: [Key; 2],
    pub(crate) record: Option<&'a StateRuleRecord>,
    pub(crate) now_ms: u64,
    pub(crate) expires_in_s: u64,
    pub(crate) host_id: u32,
}

impl StateView<'_> {
    /// The number that the filter gave to the state.
    pub fn id(&self) -> u64 {
        self.cold.id
    }

    /// Who made it; 0 is this filter.
    pub fn creator(&self) -> u32 {
        self.extra.map_or(0, |extra| extra.creator)
    }

    /// The direction of its first packet.
    pub fn direction(&self) -> Direction {
        self.hot.direction()
    }

    /// The protocol number of IP.
    pub fn protocol(&self) -> IpProtocol {
        self.hot.protocol
    }

    /// Its keys: that of the wire, and that of the stack.
    pub fn keys(&self) -> [Key; 2] {
        self.keys
    }

    /// The label of its rule.
    pub fn label(&self) -> &str {
        self.record.map_or("", |record| &record.label)
    }

    /// Packets and bytes, in the direction of the first packet and in the other.
    pub fn counts(&self) -> ([u64; 2], [u64; 2]) {
        self.counts
    }

    /// What is known of the end that sent first, and of the other.
    pub fn peers(&self) -> [Peer; 2] {
        self.hot.peers
    }

    /// Source and destination of its first packet, before translation.
    pub fn first_ends(&self) -> [IpAddr; 2] {
        match self.direction() {
            Direction::In => [self.keys[0].address(0), self.keys[0].address(1)],
            Direction::Out => [self.keys[1].address(1), self.keys[1].address(0)],
        }
    }

    /// The interface that it is bound to, as it is listed: `all` if it holds at any.
    pub fn interface<'n>(&self, names: &'n dyn InterfaceLookup) -> &'n str {
        if self.hot.has_flag(flag::BOUND) { names.interface(self.cold.interface) } else { "all" }
    }

    /// Prints it; each line ends with a line feed.
    pub fn print_state(
        &self,
        names: &dyn InterfaceLookup,
        verbosity: Verbosity,
        out: &mut impl Write,
    ) -> fmt::Result {
        let interface = self.interface(names);
        write!(out, "{interface} {} ", ProtocolName(self.protocol()))?;
        self.print_ends(out)?;
        self.print_stages(verbosity, out)?;
        if verbosity >= Verbosity::Verbose {
            self.print_ages(out)?;
        }
        if verbosity >= Verbosity::VeryVerbose {
            let creator = if self.creator() == 0 { self.host_id } else { self.creator() };
            write!(out, "   id: {:016x} creatorid: {creator:08x}", self.id())?;
            let routes = self.extra.map_or([None; 2], |extra| extra.routes);
            if let Some(gateway) = routes[0].or(routes[1]) {
                write!(out, " gateway: {gateway}")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn print_ends(&self, out: &mut impl Write) -> fmt::Result {
        let [wire, stack] = self.keys;
        let (near, far, arrow) = match self.direction() {
            Direction::Out => (wire, stack, "->"),
            Direction::In => (stack, wire, "<-"),
        };
        print_end(&near, &far, 1, out)?;
        write!(out, " {arrow} ")?;
        print_end(&near, &far, 0, out)?;
        out.write_str("    ")
    }

    fn print_stages(&self, verbosity: Verbosity, out: &mut impl Write) -> fmt::Result {
        let [first, second] = self.hot.peers;
        let (source, destination) = match self.direction() {
            Direction::Out => (first, second),
            Direction::In => (second, first),
        };
        let (a, b) = (source.stage, destination.stage);
        if self.protocol() != IpProtocol::TCP {
            return match (a.other_name(), b.other_name()) {
                (Some(a), Some(b)) if !is_icmp(self.protocol()) => writeln!(out, "   {a}:{b}"),
                _ => writeln!(out, "   {}:{}", a.0, b.0),
            };
        }
        match (a.tcp_name(), b.tcp_name()) {
            (Some(a), Some(b)) => writeln!(out, "   {a}:{b}")?,
            _ if [a, b].contains(&Stage::PROXY_SOURCE) => writeln!(out, "   PROXY:SRC")?,
            _ if [a, b].contains(&Stage::PROXY_DESTINATION) => writeln!(out, "   PROXY:DST")?,
            _ => writeln!(out, "   <BAD STATE LEVELS {}:{}>", a.0, b.0)?,
        }
        if verbosity == Verbosity::Plain {
            return Ok(());
        }
        let moved = match self.direction() {
            Direction::Out => self.cold.moved,
            Direction::In => [self.cold.moved[1], self.cold.moved[0]],
        };
        let is_scaled = source.scale != Scale::UNKNOWN && destination.scale != Scale::UNKNOWN;
        for (peer, moved, before) in [(source, moved[0], "   "), (destination, moved[1], "  ")] {
            out.write_str(before)?;
            print_numbers(&peer, moved, is_scaled, out)?;
        }
        writeln!(out)
    }

    fn print_ages(&self, out: &mut impl Write) -> fmt::Result {
        let age = self.now_ms.saturating_sub(self.cold.created_ms) / 1000;
        write!(out, "   age {}, expires in {}", Clock(age), Clock(self.expires_in_s))?;
        let ([packets, packets_back], [bytes, bytes_back]) = self.counts();
        write!(out, ", {packets}:{packets_back} pkts, {bytes}:{bytes_back} bytes")?;
        if let Some(record) = self.record.filter(|record| record.rule.is_some()) {
            if let Some(anchor) = record.anchor_number {
                write!(out, ", anchor {anchor}")?;
            }
            write!(out, ", rule {}", record.number)?;
        }
        if self.hot.has_flag(flag::SLOPPY) {
            out.write_str(", sloppy")?;
        }
        let sources = self.extra.map_or([None; 2], |extra| extra.sources);
        if sources[0].is_some() {
            out.write_str(", source-track")?;
        }
        if sources[1].is_some() {
            out.write_str(", sticky-address")?;
        }
        writeln!(out)
    }
}

/// An end, and behind it what it is on the other side of the filter if that is another.
fn print_end(near: &Key, far: &Key, end: usize, out: &mut impl Write) -> fmt::Result {
    write_end(near, end, out)?;
    if (near.addresses[end], near.ports[end]) != (far.addresses[end], far.ports[end]) {
        out.write_str(" (")?;
        write_end(far, end, out)?;
        out.write_str(")")?;
    }
    Ok(())
}

fn write_end(key: &Key, end: usize, out: &mut impl Write) -> fmt::Result {
    write!(out, "{}", key.address(end))?;
    match (key.ports[end], key.family) {
        (0, _) => Ok(()),
        (port, Family::Inet) => write!(out, ":{port}"),
        (port, Family::Inet6) => write!(out, "[{port}]"),
    }
}

fn print_numbers(peer: &Peer, moved: u32, is_scaled: bool, out: &mut impl Write) -> fmt::Result {
    write!(out, "[{} + {}]", peer.low, peer.high.wrapping_sub(peer.low))?;
    if moved != 0 {
        write!(out, "(+{moved})")?;
    }
    if is_scaled {
        write!(out, " wscale {}", peer.scale.shift())?;
    }
    Ok(())
}

fn is_icmp(protocol: IpProtocol) -> bool {
    matches!(protocol, IpProtocol::ICMP | IpProtocol::ICMPV6)
}

/// Seconds as hours, minutes and seconds.
struct Clock(u64);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}:{:02}", self.0 / 3600, self.0 / 60 % 60, self.0 % 60)
    }
}

/// A protocol by its name, or by its number if it has none here.
pub(super) struct ProtocolName(pub(super) IpProtocol);

impl fmt::Display for ProtocolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            IpProtocol::ICMP => "icmp",
            IpProtocol::IGMP => "igmp",
            IpProtocol::IPIP => "ipencap",
            IpProtocol::TCP => "tcp",
            IpProtocol::UDP => "udp",
            IpProtocol::IPV6 => "ipv6",
            IpProtocol::GRE => "gre",
            IpProtocol::ESP => "esp",
            IpProtocol::AUTHENTICATION => "ah",
            IpProtocol::ICMPV6 => "ipv6-icmp",
            IpProtocol::OSPF => "ospf",
            IpProtocol::SCTP => "sctp",
            IpProtocol(103) => "pim",
            IpProtocol(112) => "carp",
            IpProtocol(other) => return write!(f, "{other}"),
        })
    }
}
