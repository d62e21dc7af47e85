//! The configuration of a switch: its ports and their properties, as commands change them.
use super::command::{
    Command, Domains, PortFlag, Priority, Rule, StormKind, TaggedChange, Untagged, VlanId, VlanSet,
};
use super::learn::Limits;
use super::mac::{MOST_ENTRIES, MOST_PORTS};
use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Addresses that a switch knows at most where nothing is said.
pub const DEFAULT_ADDRESSES: u32 = 100;
/// Seconds after which they are forgotten where nothing is said.
pub const DEFAULT_TIMEOUT: u32 = 240;
/// Most rules of a port.
const MOST_RULES: usize = 1024;

/// What a connected port is to the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// A port like others.
    #[default]
    Member,
    /// It gets copies of all frames, and takes none.
    Span,
    /// It is connected, and no part of the switch.
    Detached,
}

/// What the spanning tree lets a port do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PortState {
    /// Neither learns addresses nor forwards frames.
    Discarding,
    /// It learns, and doesn't forward.
    Learning,
    /// Learns addresses and forwards frames.
    #[default]
    Forwarding,
}

/// The configuration of one port.
#[derive(Clone, Debug)]
pub struct Port {
    /// Name of the interface.
    pub name: String,
    /// What it is to the switch.
    pub role: Role,
    /// Whether it is the host port.
    pub is_vport: bool,
    /// Whether addresses that were learned here stay here until they are too old.
    pub is_sticky: bool,
    /// Whether its link is up.
    pub is_running: bool,
    /// What the spanning tree lets it do.
    pub state: PortState,
    /// Properties, one bit each by [`flag_bit`].
    pub flags: u32,
    /// Its groups of ports that don't talk to each other.
    pub domains: Domains,
    /// Most addresses it may have.
    pub limit: Option<u32>,
    /// How frames without a tag are handled; without a setting they belong to the switch's VLAN.
    pub untagged: Option<Untagged>,
    /// The VLANs whose tags it has.
    pub tagged: VlanSet,
    /// Rules, in the order in which they are tried.
    pub rules: Vec<Rule>,
    /// Frames a second of each [`StormKind`] that it may send.
    pub storm: [Option<u32>; 3],
}

impl Port {
    /// A port as it is when it is added: it learns and discovers, and has no tags.
    pub fn new(name: impl Into<String>, role: Role) -> Port {
        let flags = if role == Role::Member { DEFAULT_FLAGS } else { 0 };
        Port {
            name: name.into(),
            role,
            is_vport: false,
            is_sticky: false,
            is_running: true,
            state: PortState::default(),
            flags,
            domains: Domains::default(),
            limit: None,
            untagged: None,
            tagged: VlanSet::new(),
            rules: Vec::new(),
            storm: [None; 3],
        }
    }

    /// Whether it has a property.
    pub fn has_flag(&self, flag: PortFlag) -> bool {
        self.flags & flag_bit(flag) != 0
    }

    fn set_flag(&mut self, flag: PortFlag, on: bool) {
        match on {
            true => self.flags |= flag_bit(flag),
            false => self.flags &= !flag_bit(flag),
        }
        let excluded: &[PortFlag] = match flag {
            PortFlag::Locked => &[PortFlag::Learn, PortFlag::Discover],
            PortFlag::Learn | PortFlag::Discover => &[PortFlag::Locked],
            _ => &[],
        };
        if on {
            excluded.iter().for_each(|flag| self.flags &= !flag_bit(*flag));
        }
    }

    /// The commands that make it what it is, from when it is connected only.
    fn dump_commands(&self) -> Vec<Command> {
        let name = || self.name.clone();
        match self.role {
            Role::Detached => return Vec::new(),
            Role::Span => return vec![Command::AddSpan(name())],
            Role::Member => {}
        }
        let flags = PortFlag::iter_all()
            .filter(|flag| self.has_flag(*flag) != Port::new("", self.role).has_flag(*flag));
        // One that is set may clear others, which come behind it.
        let mut flags: Vec<(bool, PortFlag)> = flags.map(|flag| (self.has_flag(flag), flag)).collect();
        flags.sort_by_key(|(on, _)| !on);
        let mut commands = vec![Command::Add(name())];
        commands.extend(flags.into_iter().map(|(on, flag)| Command::Flag { port: name(), flag, on }));
        commands.push(Command::Protected { port: name(), domains: self.domains });
        commands.push(Command::PortMaxAddresses { port: name(), limit: self.limit });
        commands.extend(self.untagged.map(|to| Command::Untagged { port: name(), to }));
        commands.push(Command::Tagged { port: name(), change: TaggedChange::Set(self.tagged.clone()) });
        commands.extend(self.rules.iter().map(|rule| Command::Rule(Box::new(rule.clone()))));
        let storms = StormKind::ALL.into_iter();
        commands.extend(storms.map(|kind| Command::Storm {
            port: name(),
            kind,
            limit: self.storm[storm_place(kind)],
        }));
        commands
    }

    /// Becomes what it is when it is added, or is no more.
    fn reset_role(&mut self, role: Role) {
        let Port { is_vport, is_sticky, is_running, .. } = *self;
        *self = Port { is_vport, is_sticky, is_running, ..Port::new(std::mem::take(&mut self.name), role) };
    }
}

const DEFAULT_LIMITS: Limits = Limits {
    entries: DEFAULT_ADDRESSES,
    timeout: DEFAULT_TIMEOUT,
    evicts: false,
    rate: 0,
    damping: Duration::from_secs(10),
};
const DEFAULT_FLAGS: u32 = flag_bit(PortFlag::Learn) | flag_bit(PortFlag::Discover);
/// The bit by which `ifconfig` shows a port that gets copies.
pub(super) const SPAN_BIT: u32 = 1 << 8;

/// The bit that a property has in the flags of a port.
pub const fn flag_bit(flag: PortFlag) -> u32 {
    flag as u32
}

/// The whole configuration of a switch.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the switch's interface.
    pub name: String,
    /// Whether it forwards frames.
    pub is_up: bool,
    /// The flags `link0` to `link2`.
    pub links: [bool; 3],
    /// The VLAN of frames without a tag, where the port says nothing else.
    pub vnetid: Option<VlanId>,
    /// Addresses that bridges keep to themselves and that are forwarded all the same, a bit for each.
    pub reserved: u16,
    /// What bounds the table of addresses.
    pub limits: Limits,
    /// Whether frames for groups of IP go to their members only.
    pub snoops: bool,
    /// The source address of group queries, if the switch sends any.
    pub querier: Option<Ipv4Addr>,
    /// The priority of tags that are put on.
    pub tx_priority: Priority,
    /// The priority of frames that come in; kept and printed.
    pub rx_priority: Priority,
    /// Its ports, as they are connected.
    pub ports: Vec<Port>,
}

impl Config {
    /// A switch without ports, which is up.
    pub fn new(name: impl Into<String>) -> Config {
        Config {
            name: name.into(),
            is_up: true,
            links: [false; 3],
            vnetid: Some(VlanId::DEFAULT),
            reserved: 0,
            limits: DEFAULT_LIMITS,
            snoops: false,
            querier: None,
            tx_priority: Priority::Packet,
            rx_priority: Priority::Outer,
            ports: Vec::new(),
        }
    }

    /// The place of the port that has a name.
    pub fn find_port(&self, name: &str) -> Option<usize> {
        self.ports.iter().position(|port| port.name == name)
    }

    /// The VLAN that is meant where none is said.
    pub fn default_vlan(&self) -> u16 {
        self.vnetid.map_or(VlanId::DEFAULT.get(), VlanId::get)
    }

    /// A port that is part of the switch, or gets copies.
    fn port_mut(&mut self, name: &str) -> Result<&mut Port, SwitchError> {
        let at = self.find_port(name).filter(|at| self.ports[*at].role != Role::Detached);
        match at {
            Some(at) => Ok(&mut self.ports[at]),
            None => {
                Err(SwitchError::NoPort { name: name.into(), is_connected: self.find_port(name).is_some() })
            }
        }
    }

    /// The same, and no span port.
    pub(super) fn member_mut(&mut self, name: &str) -> Result<&mut Port, SwitchError> {
        let port = self.port_mut(name)?;
        match port.role {
            Role::Span => Err(SwitchError::IsSpan(name.into())),
            _ => Ok(port),
        }
    }

    /// Applies a command to the configuration; commands about addresses, and queries, change nothing here.
    pub(super) fn apply_command(&mut self, command: &Command) -> Result<(), SwitchError> {
        match command {
            Command::Up => self.is_up = true,
            Command::Down => self.is_up = false,
            Command::Destroy => return Err(SwitchError::NotHere("destroy")),
            Command::RuleFile(_) => return Err(SwitchError::NotHere("rulefile")),
            Command::Add(name) => self.attach_port(name, Role::Member)?,
            Command::AddSpan(name) => self.attach_port(name, Role::Span)?,
            Command::Del(name) => self.detach_port(name, Role::Member)?,
            Command::DelSpan(name) => self.detach_port(name, Role::Span)?,
            Command::MaxAddresses(limit) => self.limits.entries = (*limit).min(MOST_ENTRIES),
            Command::Evict(on) => self.limits.evicts = *on,
            Command::Timeout(0) => self.limits.timeout = u32::MAX,
            Command::Timeout(seconds) => self.limits.timeout = *seconds,
            Command::Link { number, on } => {
                if let Some(link) = self.links.get_mut(usize::from(*number)) {
                    *link = *on;
                }
            }
            Command::VnetId(vlan) => self.vnetid = *vlan,
            Command::RxPriority(priority) => self.rx_priority = *priority,
            Command::TxPriority(priority) => self.tx_priority = *priority,
            Command::Snoop(on) => self.snoops = *on,
            Command::Querier(address) => self.querier = *address,
            Command::SpanningTree(_) => return Err(SwitchError::NoSpanningTree),
            Command::Create
            | Command::Static { .. }
            | Command::DelAddress { .. }
            | Command::Flush
            | Command::FlushAll
            | Command::Addresses
            | Command::Groups
            | Command::Rules(_) => {}
            _ => self.change_port(command)?,
        }
        Ok(())
    }

    fn change_port(&mut self, command: &Command) -> Result<(), SwitchError> {
        match command {
            Command::Flag { flag, .. } if flag.is_of_tree() => return Err(SwitchError::NoSpanningTree),
            Command::Flag { port, flag, on } => self.member_mut(port)?.set_flag(*flag, *on),
            Command::Protected { port, domains } => self.member_mut(port)?.domains = *domains,
            Command::PortMaxAddresses { port, limit } => self.member_mut(port)?.limit = *limit,
            Command::Untagged { port, to } => self.member_mut(port)?.untagged = Some(*to),
            Command::Tagged { port, change } => {
                let tagged = &mut self.member_mut(port)?.tagged;
                match change {
                    TaggedChange::Set(vlans) => *tagged = vlans.clone(),
                    TaggedChange::Add(vlans) => tagged.extend(vlans),
                    TaggedChange::Remove(vlans) => tagged.subtract(vlans),
                }
            }
            Command::Rule(rule) => {
                let rules = &mut self.member_mut(&rule.port)?.rules;
                if rules.len() >= MOST_RULES {
                    return Err(SwitchError::TooManyRules(rule.port.clone()));
                }
                rules.push((**rule).clone());
            }
            Command::FlushRules(port) => self.member_mut(port)?.rules.clear(),
            Command::Storm { port, kind, limit } => self.member_mut(port)?.storm[storm_place(*kind)] = *limit,
            _ => {}
        }
        Ok(())
    }

    fn attach_port(&mut self, name: &str, role: Role) -> Result<(), SwitchError> {
        let Some(at) = self.find_port(name) else {
            return Err(SwitchError::NoPort { name: name.into(), is_connected: false });
        };
        let port = &mut self.ports[at];
        match (port.role, role) {
            (Role::Detached, Role::Span) if port.is_vport => Err(SwitchError::VportSpan(name.into())),
            (Role::Detached, _) => {
                port.reset_role(role);
                Ok(())
            }
            _ => Err(SwitchError::IsPort(name.into())),
        }
    }

    fn detach_port(&mut self, name: &str, role: Role) -> Result<(), SwitchError> {
        let port = self.port_mut(name)?;
        if port.role != role {
            return Err(match role {
                Role::Span => SwitchError::NoSpan(name.into()),
                _ => SwitchError::IsSpan(name.into()),
            });
        }
        port.reset_role(Role::Detached);
        Ok(())
    }

    /// The commands that make another switch with the same ports, none of which is in it yet,
    /// what this one is.
    pub(super) fn dump_commands(&self) -> Vec<Command> {
        let mut commands = vec![if self.is_up { Command::Up } else { Command::Down }];
        commands.extend((0..).zip(self.links).map(|(number, on)| Command::Link { number, on }));
        let timeout = if self.limits.timeout == u32::MAX { 0 } else { self.limits.timeout };
        commands.extend([
            Command::VnetId(self.vnetid),
            Command::MaxAddresses(self.limits.entries),
            Command::Timeout(timeout),
            Command::Evict(self.limits.evicts),
            Command::RxPriority(self.rx_priority),
            Command::TxPriority(self.tx_priority),
            Command::Snoop(self.snoops),
            Command::Querier(self.querier),
        ]);
        commands.extend(self.ports.iter().flat_map(Port::dump_commands));
        commands
    }

    /// Adds a connected port; names are unique.
    pub fn connect_port(&mut self, port: Port) -> Result<(), SwitchError> {
        match self.find_port(&port.name) {
            _ if self.ports.len() >= MOST_PORTS => Err(SwitchError::TooManyPorts),
            Some(_) => Err(SwitchError::IsPort(port.name)),
            None if port.is_vport && port.role == Role::Span => Err(SwitchError::VportSpan(port.name)),
            None => {
                self.ports.push(port);
                Ok(())
            }
        }
    }

    /// Sets a property of a port.
    pub fn set_flag(&mut self, port: &str, flag: PortFlag, on: bool) -> Result<(), SwitchError> {
        self.apply_command(&Command::Flag { port: port.into(), flag, on })
    }
}

/// The place of a kind among limits.
pub(super) fn storm_place(kind: StormKind) -> usize {
    match kind {
        StormKind::Broadcast => 0,
        StormKind::Multicast => 1,
        StormKind::Unknown => 2,
    }
}

/// Why a switch refuses a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchError {
    /// The interface is not a port of the switch.
    NoPort {
        /// Name of the interface.
        name: String,
        /// Whether `add` would make it one.
        is_connected: bool,
    },
    /// It is a port already.
    IsPort(String),
    /// It only gets copies.
    IsSpan(String),
    /// It is a port, and doesn't get copies.
    NoSpan(String),
    /// The host port can't get copies.
    VportSpan(String),
    /// There are as many ports as may be.
    TooManyPorts,
    /// The port has as many rules as may be.
    TooManyRules(String),
    /// An address can't be given or taken away.
    Address {
        /// The address with its VLAN.
        address: String,
        /// Why the address was refused.
        why: super::learn::AddressError,
    },
    /// Memory for so many addresses could not be reserved.
    NoMemory,
    /// The switch itself can't do this: the program that runs it does.
    NotHere(&'static str),
    /// The switch has no spanning tree.
    NoSpanningTree,
    /// The spanning tree refuses it.
    Tree(crate::stp::StpError),
}

impl fmt::Display for SwitchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use super::learn::AddressError;
        match self {
            SwitchError::NoPort { name, is_connected: true } => {
                write!(f, "{name} is not in the switch; `add {name}` puts it in")
            }
            SwitchError::NoPort { name, is_connected: false } => {
                write!(
                    f,
                    "{name} is not connected to the switch: name it where that is made, by PORT or in its \
                     hostname file, and restart"
                )
            }
            SwitchError::IsPort(name) => write!(f, "{name} is in the switch already"),
            SwitchError::IsSpan(name) => write!(f, "{name} is a span port; `delspan {name}` ends that"),
            SwitchError::NoSpan(name) => write!(f, "{name} is not a span port; `del {name}` takes it out"),
            SwitchError::VportSpan(name) => write!(f, "{name} is a vport, which can't be a span port"),
            SwitchError::TooManyPorts => write!(f, "a switch has at most {MOST_PORTS} ports"),
            SwitchError::TooManyRules(name) => write!(f, "{name} has {MOST_RULES} rules, which is the most"),
            SwitchError::Address { address, why } => match why {
                AddressError::Exists => {
                    write!(f, "{address} is known already; `deladdr {address}` forgets it")
                }
                AddressError::Unknown => write!(f, "{address} is not known"),
                AddressError::Full => write!(f, "the MAC table has no room for {address}; raise maxaddr"),
                AddressError::NoStation => write!(f, "{address} is not the MAC address of a host"),
            },
            SwitchError::NoMemory => {
                f.write_str("cannot allocate memory for so many addresses; lower maxaddr")
            }
            SwitchError::NotHere(word) => write!(
                f,
                "'{word}' is not for the switch itself: artery ifconfig reads a rulefile, and a switch goes \
                 with its router"
            ),
            SwitchError::NoSpanningTree => f.write_str("this switch takes part in no spanning tree"),
            SwitchError::Tree(why) => why.fmt(f),
        }
    }
}
impl std::error::Error for SwitchError {}
