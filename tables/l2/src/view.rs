//! The configuration as frames are looked up in it: in the form that is fastest to read; never changed, only
//! replaced.
use super::command::{Domains, PortFlag, Priority, Untagged, VlanSet};
use super::config::{Config, Port, PortState, Role};
use super::rules::{Direction, Rules};
use std::net::Ipv4Addr;

/// The configuration of a switch for workers.
#[derive(Debug)]
pub struct View {
    pub(super) is_up: bool,
    /// Tags that no port list names pass.
    pub(super) passes_tags: bool,
    /// A packet filter sees IP, at all ports.
    pub(super) filters: bool,
    /// There are vports, where it sees IP in any case.
    has_vports: bool,
    /// Reserved addresses that are forwarded, a bit for each.
    pub(super) reserved: u16,
    /// Seconds after which addresses count as absent.
    pub(super) timeout: u32,
    /// Whether frames for groups of IP go to their members only, and the address by which it asks for
    /// these, if it does.
    snoops: bool,
    pub(super) querier: Option<Ipv4Addr>,
    /// Where the priority of frames comes from, and what it is in tags that they leave with.
    pub(super) priorities: (Priority, Priority),
    pub(super) ports: Box<[PortView]>,
    /// Ports that get copies.
    pub(super) spans: Box<[u16]>,
    /// By the port that a frame comes from, a bit for each port it may go to on the fast path.
    fast_path: Box<[u64]>,
    stride: usize,
}

/// The configuration of a port, likewise.
#[derive(Debug)]
pub(super) struct PortView {
    pub(super) role: Role,
    pub(super) is_vport: bool,
    pub(super) is_sticky: bool,
    pub(super) is_running: bool,
    pub(super) state: PortState,
    pub(super) learns: bool,
    pub(super) discovers: bool,
    pub(super) is_locked: bool,
    pub(super) blocks_non_ip: bool,
    pub(super) is_hairpin: bool,
    pub(super) gets_broadcasts: bool,
    pub(super) gets_groups: bool,
    has_router: bool,
    leaves_fast: bool,
    pub(super) domains: Domains,
    pub(super) untagged: Untagged,
    pub(super) tagged: VlanSet,
    pub(super) rules: [Rules; 2],
    pub(super) storm: [Option<u32>; 3],
    /// Whether a frame without a tag that comes in here meets nothing but the table.
    is_plain: bool,
}

/// The last digits of reserved addresses that a bridge of providers passes on, as bits
/// (IEEE 802.1Q, table 8-2).
const PROVIDER: u16 = 1 | 1 << 0xb | 1 << 0xc | 1 << 0xd | 1 << 0xf;

impl View {
    /// The view of a configuration.
    pub fn new(config: &Config) -> View {
        let of_role = |role| (0..).zip(&config.ports).filter(move |(_, port)| port.role == role);
        let spans: Box<[u16]> = of_role(Role::Span).map(|(at, _)| at).collect();
        let ports = config.ports.iter().map(|port| PortView::new(port, config, spans.is_empty())).collect();
        let passes_tags = config.links[0];
        let mut view = View {
            is_up: config.is_up,
            passes_tags,
            filters: config.links[1],
            has_vports: config.ports.iter().any(|port| port.is_vport && port.role == Role::Member),
            reserved: config.reserved | if passes_tags { PROVIDER } else { 0 },
            timeout: config.limits.timeout,
            snoops: config.snoops,
            querier: config.querier,
            priorities: (config.rx_priority, config.tx_priority),
            ports,
            spans,
            fast_path: Box::default(),
            stride: config.ports.len().div_ceil(64),
        };
        view.fast_path = view.build_matrix();
        view
    }

    fn build_matrix(&self) -> Box<[u64]> {
        let mut words = vec![0; self.stride * self.ports.len()];
        for (from, to) in
            (0..self.ports.len()).flat_map(|from| (0..self.ports.len()).map(move |to| (from, to)))
        {
            if from != to && self.ports[from].is_fast_path_to(&self.ports[to]) {
                words[from * self.stride + to / 64] |= 1 << (to % 64);
            }
        }
        words.into()
    }

    /// Whether the switch is up.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Whether frames that come in by a port meet nothing but the table.
    #[inline(always)]
    pub fn is_fast_path(&self, from: u16) -> bool {
        self.ports.get(usize::from(from)).is_some_and(|port| port.is_plain)
    }

    /// The ports that they may go to on the fast path, a bit for each.
    #[inline]
    pub(super) fn open_from(&self, from: u16) -> &[u64] {
        let row = usize::from(from) * self.stride;
        self.fast_path.get(row..row + self.stride).unwrap_or_default()
    }

    /// Whether a packet filter sees IP at all ports.
    #[inline]
    pub fn has_filter(&self) -> bool {
        self.filters
    }

    /// Whether there are vports, where a packet filter sees IP in any case, as at all interfaces of a host.
    #[inline]
    pub fn has_vports(&self) -> bool {
        self.has_vports
    }

    /// Whether a packet filter sees IP at a port.
    #[inline]
    pub fn is_filtered_at(&self, port: u16) -> bool {
        self.filters || self.is_vport(port)
    }

    /// Number of ports, connected or not.
    #[inline]
    pub fn len(&self) -> usize {
        self.ports.len()
    }
    /// Whether there are no ports.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// Ports that get copies of all frames.
    #[inline]
    pub fn spans(&self) -> &[u16] {
        &self.spans
    }

    /// Whether a port is the host port.
    pub fn is_vport(&self, port: u16) -> bool {
        self.ports.get(usize::from(port)).is_some_and(|port| port.is_vport)
    }

    /// Seconds after which addresses count as absent.
    #[inline]
    pub fn timeout(&self) -> u32 {
        self.timeout
    }

    /// The VLAN of a port's frames without a tag.
    #[inline]
    pub fn vlan(&self, port: u16) -> Option<u16> {
        self.ports.get(usize::from(port)).and_then(PortView::vlan)
    }

    /// Whether frames for groups of IP go to their members only.
    #[inline]
    pub fn snoops(&self) -> bool {
        self.snoops
    }

    /// Whether a port gets frames for all groups, as a router is there.
    pub fn has_router(&self, port: u16) -> bool {
        self.ports.get(usize::from(port)).is_some_and(|port| port.has_router)
    }

    /// Whether a port leaves a group as soon as one host does.
    pub(super) fn leaves_fast(&self, port: u16) -> bool {
        self.ports.get(usize::from(port)).is_some_and(|port| port.leaves_fast)
    }

    /// Whether addresses that are learned at a port stay there.
    pub fn is_sticky(&self, port: u16) -> bool {
        self.ports.get(usize::from(port)).is_some_and(|port| port.is_sticky)
    }

    /// Frames a second of a kind that a port may send.
    pub(super) fn storm_limit(&self, port: u16, kind: usize) -> Option<u32> {
        self.ports.get(usize::from(port))?.storm[kind]
    }
}

impl PortView {
    fn new(port: &Port, config: &Config, is_unseen: bool) -> PortView {
        let rules = [Direction::In, Direction::Out].map(|direction| Rules::new(&port.rules, direction));
        let untagged = port.untagged.unwrap_or(config.vnetid.map_or(Untagged::Dropped, Untagged::Vlan));
        let (learns, is_locked) = (port.has_flag(PortFlag::Learn), port.has_flag(PortFlag::Locked));
        let blocks_non_ip = port.has_flag(PortFlag::BlockNonIp);
        let is_plain = config.is_up
            && port.role == Role::Member
            && port.state == PortState::Forwarding
            && matches!(untagged, Untagged::Vlan(_))
            && rules[Direction::In as usize].is_empty()
            && learns
            && is_unseen
            && !is_locked
            && !blocks_non_ip;
        PortView {
            role: port.role,
            is_vport: port.is_vport,
            is_sticky: port.is_sticky,
            is_running: port.is_running,
            state: port.state,
            learns,
            discovers: port.has_flag(PortFlag::Discover),
            is_locked,
            blocks_non_ip,
            is_hairpin: port.has_flag(PortFlag::Hairpin),
            gets_broadcasts: !port.has_flag(PortFlag::NoBroadcast),
            gets_groups: !port.has_flag(PortFlag::NoMulticast),
            has_router: port.has_flag(PortFlag::McastRouter),
            leaves_fast: port.has_flag(PortFlag::FastLeave),
            domains: port.domains,
            untagged,
            tagged: port.tagged.clone(),
            rules,
            storm: port.storm,
            is_plain,
        }
    }

    /// The VLAN of frames without a tag.
    #[inline]
    pub(super) fn vlan(&self) -> Option<u16> {
        match self.untagged {
            Untagged::Vlan(vlan) => Some(vlan.get()),
            _ => None,
        }
    }

    pub(super) fn rules(&self, direction: Direction) -> &Rules {
        &self.rules[direction as usize]
    }

    fn is_fast_path_to(&self, to: &PortView) -> bool {
        self.is_plain
            && to.role == Role::Member
            && to.is_running
            && to.state == PortState::Forwarding
            && to.untagged == self.untagged
            && to.rules(Direction::Out).is_empty()
            && !to.blocks_non_ip
            && !to.domains.shares_domain(self.domains)
    }
}
