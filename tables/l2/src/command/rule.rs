//! Rules of a port: which frames may pass it.
use artery_wire::EtherAddr;
use std::fmt;
use std::net::Ipv4Addr;

/// A rule of a port. What a field doesn't say, it doesn't ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What happens to frames that match.
    pub action: RuleAction,
    /// Direction of the frames that match.
    pub direction: RuleDirection,
    /// Name of the rule's port.
    pub port: String,
    /// `src`: the address they come from.
    pub source: Option<EtherAddr>,
    /// `dst`: the address they go to.
    pub destination: Option<EtherAddr>,
    /// `tag`: the tag that matching frames get for the packet filter.
    pub tag: Option<String>,
    /// `arp` or `rarp`: conditions on an ARP or RARP message.
    pub arp: Option<ArpRule>,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleAction {
    /// The frame is dropped.
    Block,
    /// The frame passes, and no further rule is tried.
    Pass,
    /// The frame gets the tag, and the next rule is tried.
    Match,
}

/// The direction of frames, as the port sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RuleDirection {
    /// Frames that enter the switch by the port.
    In,
    /// Out of the switch.
    Out,
    /// Frames in either direction.
    #[default]
    Both,
}

/// What ARP or RARP says (RFC 826, RFC 903).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArpRule {
    /// Which of the two it is.
    pub kind: ArpKind,
    /// Request or reply; None matches both.
    pub operation: Option<ArpOperation>,
    /// `sha`: the sender's Ethernet address.
    pub sender_link: Option<EtherAddr>,
    /// `tha`: the target's Ethernet address.
    pub target_link: Option<EtherAddr>,
    /// `spa`: the sender's IP address.
    pub sender: Option<Ipv4Addr>,
    /// `tpa`: the target's IP address.
    pub target: Option<Ipv4Addr>,
}

impl ArpRule {
    /// Makes one with no condition but the protocol.
    pub fn new(kind: ArpKind) -> ArpRule {
        ArpRule { kind, operation: None, sender_link: None, target_link: None, sender: None, target: None }
    }
}

/// Which protocol finds addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArpKind {
    /// An Ethernet address for an IP address.
    Arp,
    /// An IP address for an Ethernet address.
    Rarp,
}

/// Kind of ARP message that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArpOperation {
    /// An ARP or RARP request.
    Request,
    /// An ARP or RARP reply.
    Reply,
}

/// Prints it without the word `rule`, in the order of ifconfig.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} on {}", self.action, self.direction, self.port)?;
        write_field(f, "src", self.source)?;
        write_field(f, "dst", self.destination)?;
        write_field(f, "tag", self.tag.as_ref())?;
        self.arp.as_ref().map_or(Ok(()), |arp| write!(f, " {arp}"))
    }
}

impl fmt::Display for ArpRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ArpKind::Arp => "arp",
            ArpKind::Rarp => "rarp",
        })?;
        match self.operation {
            Some(ArpOperation::Request) => f.write_str(" request")?,
            Some(ArpOperation::Reply) => f.write_str(" reply")?,
            None => {}
        }
        write_field(f, "sha", self.sender_link)?;
        write_field(f, "tha", self.target_link)?;
        write_field(f, "spa", self.sender)?;
        write_field(f, "tpa", self.target)
    }
}

fn write_field(f: &mut fmt::Formatter<'_>, name: &str, value: Option<impl fmt::Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {name} {value}"))
}

impl fmt::Display for RuleAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuleAction::Block => "block",
            RuleAction::Pass => "pass",
            RuleAction::Match => "match",
        })
    }
}

impl fmt::Display for RuleDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuleDirection::In => "in",
            RuleDirection::Out => "out",
            RuleDirection::Both => "in/out",
        })
    }
}
