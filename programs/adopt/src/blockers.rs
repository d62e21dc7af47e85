//! What of the user's policy the fast path would go around: filters, translations, shaping, IPsec, settings.
//! Traffic that any of it may be about stays with the kernel.
//!
//! Each [`Blocker`] is found by reading the kernel, changes nothing, and says in one line what it is. What
//! can't be read is a blocker, too: nothing is forwarded around a policy that can't be read.
//! [`BlockerWatch`] reports when to read again. What is not here: routes and rules, which the mirror
//! evaluates one by one, and packets that the kernel treats specially whatever the policy is, which the
//! decision about each packet knows.
mod bridges;
mod connection_rules;
mod hooks;
mod ipsec;
pub(crate) mod iptables;
mod links;
pub(crate) mod nftables;
mod notes;
mod offloads;
mod sysctl;
mod tracking;
mod traffic_control;
mod tunnels;
mod virtual_servers;
mod watch;

pub(crate) use bridges::refused_member;
pub use connection_rules::pass_by_rules;
pub use links::{NO_VRFS, UNTRACKED, ethernet_ports, of_vrfs, port, with_members, with_vlans};
pub use notes::notes;
pub use offloads::find_blockers_of_xdp;
pub(crate) use sysctl::{balances_by_ports, number as setting, sends_redirects};
pub use tracking::{EstablishedPath, pass_established};
pub(crate) use tracking::{is_passable, tracks_any};
pub(crate) use tunnels::{lost_session, tunnel_without_room};
pub use watch::BlockerWatch;

use crate::kernel::Family;
use std::fmt;
use std::io;

/// What is said of chains that translate and have no rules.
const STAYS_TRANSLATED: &str = ", no rules: connections stay translated";

/// An interface that packets would be forwarded from and to. A VLAN on another interface is a
/// port of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// The kernel's number for it.
    pub index: u32,
    /// The interface's name in the kernel.
    pub name: String,
    /// The interface that it is a VLAN on. Blockers of that interface apply to it, too.
    pub vlan_on: Option<u32>,
    /// Where this process has a program of its own attached, which isn't part of the user's policy.
    pub own: Option<OwnHook>,
    /// Whether it is a bridge, or packets arrive at it and leave by it for one.
    pub bridging: Bridging,
    /// What it is if it is a tunnel: it has no program, and packets that leave by it leave by another port.
    pub tunnel: Option<PortTunnel>,
}

/// A port whose packets come and go behind one more header, at another port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortTunnel {
    /// Of GRE or IPIP, over IPv4.
    OverIpv4,
    /// An interface of PPP. The kernel does not say what carries it: the operator may name the interface
    /// whose only session of PPPoE it is, and says by that, too, that no filter and no compression is set
    /// for packets of it.
    Ppp(Option<String>),
}

impl Port {
    /// Whether packets that arrive and leave have a program at the port itself.
    pub fn has_program(&self) -> bool {
        self.bridging != Bridging::Bridge && !self.is_tunnel()
    }

    /// Whether its packets come and go at another port.
    pub fn is_tunnel(&self) -> bool {
        self.tunnel.is_some()
    }
}

/// What a port has to do with an adopted bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bridging {
    /// Nothing.
    #[default]
    None,
    /// It is a bridge, whose packets arrive at and leave by its members.
    Bridge,
    /// It is a member of the bridge of this index, which is a port, too: what arrives for the address of the
    /// bridge is routed.
    Member(u32),
}

/// Where a program is at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnHook {
    /// Before the kernel has made a frame its own.
    Xdp,
    /// Where the kernel's filters for arriving frames begin (TCX).
    Tc,
}

/// Which packets of a port: those that arrive, those that leave, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// Packets that arrive at the port.
    In,
    /// Packets that leave by the port.
    Out,
    /// Packets in both directions.
    Both,
}

/// What a blocker is, so that a caller can honor some kinds itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockerKind {
    /// A chain of nftables, or a flow table by which cards forward.
    Nftables,
    /// A flow table of nftables.
    FlowTable,
    /// A chain of the older iptables.
    Iptables,
    /// Virtual servers of the kernel (IPVS).
    VirtualServers,
    /// Another hook of netfilter.
    Hook,
    /// A filter of tc.
    Filter,
    /// A queueing discipline that shapes or orders what leaves.
    Queueing,
    /// A BPF program at a port.
    Program,
    /// An IPsec policy of the kernel.
    Ipsec,
    /// A port whose frames have no Ethernet header.
    NoEthernet,
    /// What a tunnel's packets need the kernel for.
    Tunnel,
    /// A port that belongs to a bridge or a bond, or to a VRF where its routes can't be followed.
    Master,
    /// What a bridge does to frames, or the state of a member.
    Bridge,
    /// Other interfaces that take packets from a port.
    Child,
    /// A rule about which table of routes is asked.
    Rule,
    /// What a card takes off frames before programs see them.
    Offload,
    /// Forwarding is switched off.
    Forwarding,
    /// What keeps established connections from being forwarded past rules.
    Tracking,
    /// A rule that keeps connections in the kernel that its packets may match.
    ConnectionRule,
    /// What there is can't be read.
    Unreadable,
}

/// One thing that keeps traffic in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Blocker {
    /// The port whose traffic stays; `None` for all traffic.
    pub port: Option<u32>,
    /// The family whose traffic stays; `None` for both.
    pub family: Option<Family>,
    /// Which of the port's packets stay.
    pub direction: Direction,
    /// What it is about.
    pub kind: BlockerKind,
    /// What there is, in one line that names it exactly.
    pub what: String,
    /// The command that shows or changes it.
    pub remedy: String,
    /// Whether packets of established connections are forwarded past it all the same.
    pub is_passed: bool,
}

impl Blocker {
    /// A blocker of all traffic.
    fn new(kind: BlockerKind, what: String, remedy: String) -> Blocker {
        Blocker { port: None, family: None, direction: Direction::Both, kind, what, remedy, is_passed: false }
    }
    /// The same for one family, or for both.
    fn for_family(self, family: impl Into<Option<Family>>) -> Blocker {
        Blocker { family: family.into(), ..self }
    }
    /// The same for what arrives at or leaves by a port.
    fn at_port(self, port: u32, direction: Direction) -> Blocker {
        Blocker { port: Some(port), direction, ..self }
    }
    /// A blocker in place of those that could not be read.
    fn unreadable(what: &str, error: &io::Error) -> Blocker {
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => "read with the capability CAP_NET_ADMIN, as root has it",
            _ => "it is read again at the next change",
        };
        Blocker::new(BlockerKind::Unreadable, format!("{what} can't be read: {error}"), remedy.to_owned())
    }

    /// Whether it keeps packets of a family that arrive at a port, established connections apart.
    pub fn blocks_from(&self, port: &Port, family: Family) -> bool {
        self.direction != Direction::Out && self.is_about(port, family)
    }
    /// Whether it keeps packets of a family that leave by a port.
    pub fn blocks_to(&self, port: &Port, family: Family) -> bool {
        self.direction != Direction::In && self.is_about(port, family)
    }
    /// Whether packets that tc programs send pass through it all the same: queueing, and what is where frames
    /// leave. Chains of netfilter skip redirected packets there, and what is at a VLAN's interface is skipped
    /// if frames leave by the interface below, as it is at a bridge and at a tunnel.
    pub fn is_met_by_tc(&self, ports: &[Port]) -> bool {
        let is_below =
            |port: &Port| self.port == Some(port.index) && port.vlan_on.is_none() && port.has_program();
        let is_met = matches!(self.kind, BlockerKind::Queueing | BlockerKind::Filter | BlockerKind::Program);
        is_met && self.direction == Direction::Out && ports.iter().any(is_below)
    }
    fn is_about(&self, port: &Port, family: Family) -> bool {
        // A VLAN has settings of its own. Everything else applies to its packets below it, too.
        let below = port.vlan_on.filter(|_| self.kind != BlockerKind::Forwarding);
        let is_there = self.port.is_none_or(|one| one == port.index || Some(one) == below);
        is_there && self.family.is_none_or(|one| one == family)
    }
    /// The traffic that stays, in words.
    fn blocked_traffic(&self) -> &'static str {
        match (self.family, self.port.map(|_| self.direction)) {
            (None, None | Some(Direction::Both)) => "IPv4 and IPv6 stay",
            (Some(Family::V4), None | Some(Direction::Both)) => "IPv4 stays",
            (Some(Family::V6), None | Some(Direction::Both)) => "IPv6 stays",
            (None, Some(Direction::In)) => "what arrives there stays",
            (None, Some(Direction::Out)) => "what leaves there stays",
            (Some(Family::V4), Some(Direction::In)) => "IPv4 that arrives there stays",
            (Some(Family::V4), Some(Direction::Out)) => "IPv4 that leaves there stays",
            (Some(Family::V6), Some(Direction::In)) => "IPv6 that arrives there stays",
            (Some(Family::V6), Some(Direction::Out)) => "IPv6 that leaves there stays",
        }
    }
}

impl fmt::Display for Blocker {
    /// In one line: what there is, what traffic stays, and the command that shows or changes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == BlockerKind::ConnectionRule {
            return write!(f, "{} ({})", self.what, self.remedy);
        }
        let but = if self.is_passed { ", except established connections" } else { "" };
        write!(f, "{}: {} with the kernel{but} ({})", self.what, self.blocked_traffic(), self.remedy)
    }
}

/// All that keeps traffic of these ports, or between them, in the kernel. Nothing is changed by asking.
pub fn survey(ports: &[Port]) -> Vec<Blocker> {
    survey_in_steps(ports, || {})
}

/// The same, with a call after each step: some steps run other programs, and may take long.
pub(crate) fn survey_in_steps(ports: &[Port], after_step: impl Fn()) -> Vec<Blocker> {
    let or_unreadable = |what: &str, found: io::Result<Vec<Blocker>>| {
        found.unwrap_or_else(|error| vec![Blocker::unreadable(what, &error)])
    };
    // Without the interfaces that VLANs are on, which can't be read only if nothing about interfaces can.
    let with_below = &links::with_those_below(ports).unwrap_or_else(|_| ports.to_vec());
    // Settings of a member of a bridge are about packets of its own, of which there are none.
    let routed = &routed_ports(ports);
    let steps: [&dyn Fn() -> Vec<Blocker>; 12] = [
        &|| sysctl::guards(routed),
        &|| or_unreadable("the bridges", bridges::find_blockers(ports)),
        &|| offloads::find_blockers(ports),
        &|| or_unreadable("the interfaces", links::guards(with_below)),
        &|| or_unreadable("nftables", nftables::guards(with_below)),
        &|| iptables::guards(ports),
        &|| or_unreadable("the virtual servers", virtual_servers::find_blockers()),
        &|| or_unreadable("the hooks of netfilter", hooks::guards()),
        &|| or_unreadable("the queueing and filters of tc", traffic_control::guards(with_below)),
        &|| traffic_control::programs(with_below),
        &|| or_unreadable("the IPsec policies", ipsec::guards()),
        &|| or_unreadable("the tunnels", tunnels::find_blockers(ports)),
    ];
    let found = steps.into_iter().flat_map(|step| {
        let found = step();
        after_step();
        found
    });
    found.collect()
}

/// The ports that packets are routed from and to: all but members of bridges.
pub(crate) fn routed_ports(ports: &[Port]) -> Vec<Port> {
    ports.iter().filter(|port| !matches!(port.bridging, Bridging::Member(_))).cloned().collect()
}

/// A number of things, in words.
fn count_things(number: u32, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// What keeps packets of IPv4 from or to the machine, at each tunnel over IPv4 among these ports: outer
/// packets are such, whatever the family of those within. Tracked connections let both directions through.
fn at_tunnels(guards: &[Blocker], ports: &[Port]) -> Vec<Blocker> {
    let tunnels = ports.iter().filter(|port| port.tunnel == Some(PortTunnel::OverIpv4));
    let at = |guard: &Blocker, tunnel: &Port| Blocker {
        family: None,
        ..guard.clone().at_port(tunnel.index, Direction::Both)
    };
    tunnels.flat_map(|tunnel| guards.iter().map(move |guard| at(guard, tunnel))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_says_in_one_line_what_it_is_and_what_it_keeps() {
        let guard = Blocker::new(BlockerKind::Filter, "tc: u32 filter".into(), "shown by: tc".into())
            .at_port(3, Direction::In);
        let found = guard.to_string();
        assert_eq!(found, "tc: u32 filter: what arrives there stays with the kernel (shown by: tc)");
        let all = Blocker { port: None, ..guard };
        assert_eq!(all.to_string(), "tc: u32 filter: IPv4 and IPv6 stay with the kernel (shown by: tc)");
    }

    #[test]
    fn a_guard_keeps_what_it_is_about_and_nothing_else() {
        let port = |index| Port { index, ..Port::default() };
        let guard = Blocker::new(BlockerKind::Queueing, String::new(), String::new());
        assert!(guard.blocks_from(&port(1), Family::V4) && guard.blocks_to(&port(2), Family::V6));
        let guard = guard.at_port(1, Direction::Out).for_family(Family::V4);
        assert!(guard.blocks_to(&port(1), Family::V4));
        assert!(!guard.blocks_from(&port(1), Family::V4) && !guard.blocks_to(&port(2), Family::V4));
        assert!(!guard.blocks_to(&port(1), Family::V6));
        let vlan = Port { vlan_on: Some(1), ..port(7) };
        assert!(guard.is_met_by_tc(&[port(1), vlan.clone()]));
        assert!(!guard.clone().at_port(7, Direction::Out).is_met_by_tc(&[port(1), vlan.clone()]));
        assert!(!guard.clone().at_port(1, Direction::In).is_met_by_tc(&[port(1)]));
        assert!(!Blocker { kind: BlockerKind::Nftables, ..guard.clone() }.is_met_by_tc(&[port(1)]));
        assert!(guard.blocks_to(&vlan, Family::V4));
        let setting = Blocker { kind: BlockerKind::Forwarding, ..guard };
        assert!(setting.blocks_to(&port(1), Family::V4) && !setting.blocks_to(&vlan, Family::V4));
    }
}
