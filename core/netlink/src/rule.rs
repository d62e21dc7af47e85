//! Rules that choose a table (struct fib_rule_hdr and FRA attributes, linux/fib_rules.h).
use super::Family;
use super::attributes::{self, Attributes, parse_text, read_u8, read_u16, read_u32};
use std::fmt;
use std::net::IpAddr;

const HEADER: usize = 12;
const FIB_RULE_INVERT: u32 = 2;
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_GOTO: u16 = 4;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_FLOW: u16 = 11;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_OIFNAME: u16 = 17;
const FRA_PAD: u16 = 18;
const FRA_L3MDEV: u16 = 19;
const FRA_UID_RANGE: u16 = 20;
const FRA_PROTOCOL: u16 = 21;
const FRA_IP_PROTO: u16 = 22;
const FRA_SPORT_RANGE: u16 = 23;
const FRA_DPORT_RANGE: u16 = 24;
const FRA_DSCP: u16 = 25;
/// What the kernel writes where nothing is suppressed.
const NOT_SUPPRESSED: u32 = u32::MAX;

/// A rule of policy routing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The family of the packets it is for.
    pub family: Family,
    /// Its place: rules are tried from the lowest on.
    pub priority: u32,
    /// What is done with matching packets.
    pub action: RuleAction,
    /// Which packets it is for.
    pub selectors: Selectors,
    /// It finds no prefix of this many bits or fewer.
    pub suppressed_len: Option<u32>,
    /// It finds no route by an interface of this group.
    pub suppressed_group: Option<u32>,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// Looks into a table.
    Table(u32),
    /// Goes on at the rule of a priority.
    Goto(u32),
    /// Goes on with the next rule.
    Nothing,
    /// Ends the search: the packet isn't forwarded.
    Refuse,
    /// Anything else, by the kernel's number (FR_ACT_…).
    Other(u8),
}

/// Which packets a rule is for: those that match all that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    /// It is for those that do not match.
    pub is_inverted: bool,
    /// The prefix of the source.
    pub from: Option<(IpAddr, u8)>,
    /// The prefix of the destination.
    pub to: Option<(IpAddr, u8)>,
    /// The interface they came by.
    pub input: Option<String>,
    /// The interface they were bound to.
    pub output: Option<String>,
    /// The mark, and which of its bits count.
    pub mark: Option<(u32, u32)>,
    /// The type of service, or the code point of differentiated services.
    pub tos: Option<u8>,
    /// Transport protocol that packets must have.
    pub protocol: Option<u8>,
    /// The first and the last source port.
    pub source_ports: Option<(u16, u16)>,
    /// The first and the last destination port.
    pub destination_ports: Option<(u16, u16)>,
    /// The first and the last user.
    pub users: Option<(u32, u32)>,
    /// Only packets of a VRF, by its own table.
    pub is_vrf: bool,
    /// Attributes that are not known here.
    pub others: Vec<(u16, Vec<u8>)>,
}

impl Rule {
    /// Parses the payload of RTM_NEWRULE or RTM_DELRULE.
    pub(crate) fn parse_message(payload: &[u8]) -> Option<Rule> {
        let header = payload.first_chunk::<HEADER>()?;
        let family = Family::from_number(header[0])?;
        let mut selectors = Selectors {
            is_inverted: read_u32(&header[8..12]) & FIB_RULE_INVERT != 0,
            tos: Some(header[3]).filter(|&tos| tos != 0),
            ..Selectors::default()
        };
        let (mut priority, mut table, mut target) = (0, header[4].into(), 0);
        let (mut suppressed_len, mut suppressed_group) = (None, None);
        for (kind, value) in Attributes::after_header(payload, HEADER) {
            match kind {
                FRA_PRIORITY => priority = read_u32(value),
                FRA_TABLE => table = read_u32(value),
                FRA_GOTO => target = read_u32(value),
                FRA_SUPPRESS_PREFIXLEN => suppressed_len = parse_suppressed(value),
                FRA_SUPPRESS_IFGROUP => suppressed_group = parse_suppressed(value),
                FRA_DST => selectors.to = parse_prefix(family, value, header[1]),
                FRA_SRC => selectors.from = parse_prefix(family, value, header[2]),
                // Who made the rule, which realm its packets count for, and nothing.
                FRA_PROTOCOL | FRA_FLOW | FRA_PAD => {}
                _ => selectors.apply_attribute(kind, value),
            }
        }
        let action = match header[7] {
            1 => RuleAction::Table(table),
            2 => RuleAction::Goto(target),
            3 => RuleAction::Nothing,
            6..=8 => RuleAction::Refuse,
            other => RuleAction::Other(other),
        };
        Some(Rule { family, priority, action, selectors, suppressed_len, suppressed_group })
    }
}

fn parse_suppressed(value: &[u8]) -> Option<u32> {
    Some(read_u32(value)).filter(|&number| number != NOT_SUPPRESSED)
}

fn parse_prefix(family: Family, value: &[u8], len: u8) -> Option<(IpAddr, u8)> {
    Some((attributes::parse_address(family, value)?, len.min(family.bits())))
}

impl Selectors {
    fn apply_attribute(&mut self, kind: u16, value: &[u8]) {
        match kind {
            FRA_IIFNAME => self.input = Some(parse_text(value)),
            FRA_OIFNAME => self.output = Some(parse_text(value)),
            FRA_FWMARK => self.mark.get_or_insert((0, u32::MAX)).0 = read_u32(value),
            FRA_FWMASK => self.mark.get_or_insert((0, u32::MAX)).1 = read_u32(value),
            FRA_L3MDEV => self.is_vrf = read_u8(value) != 0,
            FRA_UID_RANGE => self.users = Some((read_u32(value), read_second_u32(value))),
            FRA_IP_PROTO => self.protocol = Some(read_u8(value)),
            FRA_SPORT_RANGE => self.source_ports = Some((read_u16(value), read_second_u16(value))),
            FRA_DPORT_RANGE => self.destination_ports = Some((read_u16(value), read_second_u16(value))),
            FRA_DSCP => self.tos = Some(read_u8(value) << 2),
            _ => self.others.push((kind, value.to_vec())),
        }
    }

    /// Whether the rule is for all packets.
    pub fn is_none(&self) -> bool {
        *self == Selectors::default()
    }

    /// Whether the rule is for all packets of VRFs.
    pub fn is_vrf_alone(&self) -> bool {
        *self == Selectors { is_vrf: true, ..Selectors::default() }
    }
}

fn read_second_u32(value: &[u8]) -> u32 {
    read_u32(value.get(4..).unwrap_or_default())
}

fn read_second_u16(value: &[u8]) -> u16 {
    read_u16(value.get(2..).unwrap_or_default())
}

/// As ip-rule(8) writes it.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.priority, self.selectors)?;
        match self.action {
            RuleAction::Table(table) => write!(f, " lookup {table}")?,
            RuleAction::Goto(target) => write!(f, " goto {target}")?,
            RuleAction::Nothing => write!(f, " nop")?,
            RuleAction::Refuse => write!(f, " refuse")?,
            RuleAction::Other(number) => write!(f, " action {number}")?,
        }
        if let Some(len) = self.suppressed_len {
            write!(f, " suppress_prefixlength {len}")?;
        }
        self.suppressed_group.map_or(Ok(()), |group| write!(f, " suppress_ifgroup {group}"))
    }
}

/// A value of a rule behind its word, where it is given.
fn write_word(f: &mut fmt::Formatter<'_>, word: &str, value: Option<impl fmt::Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {word} {value}"))
}

/// Two numbers that are the ends of a range.
fn format_range<N: fmt::Display>(ends: Option<(N, N)>) -> Option<String> {
    ends.map(|(first, last)| format!("{first}-{last}"))
}

impl fmt::Display for Selectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = |(address, len): (IpAddr, u8)| format!("{address}/{len}");
        f.write_str(if self.is_inverted { "not from " } else { "from " })?;
        f.write_str(&self.from.map_or("all".into(), prefix))?;
        write_word(f, "to", self.to.map(prefix))?;
        write_word(f, "tos", self.tos.map(|tos| format!("{tos:#x}")))?;
        write_word(f, "fwmark", self.mark.map(|(mark, mask)| format!("{mark:#x}/{mask:#x}")))?;
        write_word(f, "iif", self.input.as_ref())?;
        write_word(f, "oif", self.output.as_ref())?;
        write_word(f, "uidrange", format_range(self.users))?;
        write_word(f, "ipproto", self.protocol)?;
        write_word(f, "sport", format_range(self.source_ports))?;
        write_word(f, "dport", format_range(self.destination_ports))?;
        if self.is_vrf {
            f.write_str(" [l3mdev-table]")?;
        }
        self.others.iter().try_for_each(|(kind, _)| write!(f, " attribute {kind}"))
    }
}
