//! How a frame is forwarded: pure functions of the frame, the configuration and the MAC table.
//!
//! A frame is [admitted](admit), [taken in](ingress), [looked up](lookup), and [sent](egress) by one port or
//! many; the packet filter runs between these steps. [`quick`](super::quick) handles frames that need only
//! the MAC table, and leaves all others alone. For diagnostics, [`trace_frame`] lists what each step decides.
use super::command::{Priority, Untagged};
use super::config::{PortState, Role};
use super::groups::{Audience, GroupView};
use super::mac::{MacEntry, MacKey};
use super::rules::{Direction, Mark};
use super::sight::FrameView;
use super::view::{PortView, View};
use artery_wire::EtherType;

macro_rules! causes {
    ($($(#[doc = $doc:literal])* $variant:ident $name:literal,)*) => {
        /// Why a frame goes no further, or not to a port.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Cause { $($(#[doc = $doc])* $variant,)* }

        impl Cause {
            /// All causes, one counter each.
            pub const ALL: &'static [Cause] = &[$(Cause::$variant),*];
            /// The name that counters have.
            pub const fn name(self) -> &'static str {
                match self { $(Cause::$variant => $name),* }
            }
            /// One sentence for people.
            pub const fn sentence(self) -> &'static str {
                match self { $(Cause::$variant => concat!($($doc),*)),* }
            }
        }
    };
}

causes! {
    /// The switch is down.
    Down "switch-down",
    /// The port is not part of the switch.
    Detached "detached",
    /// Frames without a tag are the host's at this port.
    Passthrough "passthrough",
    /// The port only gets copies.
    SpanInput "span-input",
    /// It is shorter than the header that should be there.
    TooShort "too-short",
    /// Its destination is one that bridges keep to themselves.
    Reserved "reserved-address",
    /// It carries neither IP nor ARP.
    NonIp "non-ip",
    /// The port is not in its VLAN, or it has a tag that is not let through.
    Vlan "vlan-denied",
    /// It has a second tag behind the first.
    DoubleTag "double-tag",
    /// Its source is not known to be at this port, which is locked.
    Locked "locked",
    /// A rule of the port blocks it.
    Rule "rule",
    /// The packet filter blocks it.
    Filter "filtered",
    /// The spanning tree holds the port back.
    Blocked "port-blocked",
    /// It would leave by the port that it came from.
    SamePort "same-port",
    /// Both ports are in a group whose ports don't talk to each other.
    Protected "protected",
    /// The link of the port is down.
    LinkDown "link-down",
    /// No host behind the port is known to be in its group, and no router is there.
    NotMember "not-member",
    /// Its destination isn't known, and the port doesn't discover.
    NotDiscovered "not-discovered",
    /// It goes to many, and the port gets no such frames.
    NotFlooded "not-flooded",
    /// The port sent too many frames of its kind in a short time.
    Storm "storm",
    /// It has no port to go to.
    Nowhere "nowhere",
}

/// Why a frame is not taken in, and whose it is then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// The frame is dropped for this cause.
    Drop(Cause),
    /// It is the host's, as if there were no switch.
    Host(Cause),
}

impl Stop {
    /// The cause, whoever gets the frame.
    pub fn cause(self) -> Cause {
        match self {
            Stop::Drop(cause) | Stop::Host(cause) => cause,
        }
    }
}

/// Where a frame belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameVlan {
    /// VLAN that the frame is in.
    pub vlan: u16,
    /// Its tag, if the VLAN comes from it: the tag is then removed before the payload is read.
    pub tag: Option<u16>,
}

/// A frame that was taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// Where it came from.
    pub port: u16,
    /// The VLAN that the frame is in.
    pub place: FrameVlan,
    /// The mark that rules gave it.
    pub mark: Option<Mark>,
    /// Whether it carries IPv4 or IPv6.
    pub is_ip: bool,
    /// Whether a packet filter sees it as it comes in.
    pub is_filtered: bool,
}

impl Ingress {
    /// Whether its tag is not part of the payload.
    pub fn is_tagged(&self) -> bool {
        self.place.tag.is_some()
    }
}

/// Kind of destination of a frame that is flooded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloodKind {
    /// To the broadcast address, for all hosts.
    Broadcast,
    /// To a multicast address.
    Multicast,
    /// To an address that is not in the MAC table.
    Unknown,
}

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Egress {
    /// To one port, by its number.
    Unicast(u16),
    /// To all that may have it.
    Flood(FloodKind),
}

/// What is done to a frame as it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TagRewrite {
    /// The frame stays as it is.
    Keep,
    /// Its tag is taken off.
    Untag,
    /// It gets a tag with these bits.
    Tag(u16),
    /// Its tag gets other bits.
    Retag(u16),
}

/// Whether a frame is one that the switch takes at all; before copies are made of it.
pub fn admit(view: &View, port: u16, sight: &FrameView<'_>) -> Result<(), Stop> {
    let Some(of) = view.ports.get(usize::from(port)) else { return Err(Stop::Host(Cause::Detached)) };
    if !view.is_up {
        return Err(Stop::Host(Cause::Down));
    }
    match of.role {
        Role::Detached => return Err(Stop::Host(Cause::Detached)),
        Role::Span => return Err(Stop::Drop(Cause::SpanInput)),
        Role::Member => {}
    }
    if sight.reserved().is_some_and(|last| view.reserved >> last & 1 == 0) {
        return Err(Stop::Drop(Cause::Reserved));
    }
    let is_bare = sight.tag().is_none_or(|tag| tag & 0xfff == 0) && sight.ether_type != EtherType::QINQ;
    if of.untagged == Untagged::Passthrough && is_bare { Err(Stop::Host(Cause::Passthrough)) } else { Ok(()) }
}

/// Where a frame belongs that came by a port.
#[inline]
pub fn classify_vlan(view: &View, port: u16, sight: &FrameView<'_>) -> Result<FrameVlan, Cause> {
    let Some(of) = view.ports.get(usize::from(port)) else { return Err(Cause::Detached) };
    let own = || of.vlan().ok_or(Cause::Vlan);
    if !sight.ether_type.is_vlan() {
        return Ok(FrameVlan { vlan: own()?, tag: None });
    }
    let is_double = sight.inner_payload(true).0.is_vlan();
    // A tag of VLAN 0 says nothing but a priority.
    let is_known = |tag: &u16| tag & 0xfff == 0 || of.tagged.contains(tag & 0xfff);
    match sight.tag().filter(is_known) {
        // Once the outer tag is off, the inner one would be what says the VLAN.
        Some(_) if is_double && !view.passes_tags => Err(Cause::DoubleTag),
        Some(tag) if tag & 0xfff != 0 => Ok(FrameVlan { vlan: tag & 0xfff, tag: Some(tag) }),
        Some(tag) if !is_double => Ok(FrameVlan { vlan: own()?, tag: Some(tag) }),
        _ if view.passes_tags => Ok(FrameVlan { vlan: own()?, tag: None }),
        _ => Err(Cause::Vlan),
    }
}

/// Takes a frame in that was [admitted](admit), unless something is against it. `source` finds what is known
/// of where it comes from.
pub fn ingress(
    view: &View,
    port: u16,
    sight: &FrameView<'_>,
    source: impl FnOnce(MacKey) -> Option<MacEntry>,
) -> Result<Ingress, Cause> {
    let place = classify_vlan(view, port, sight);
    let of = view.ports.get(usize::from(port)).ok_or(Cause::Detached)?;
    // A frame with an unknown tag that does not carry IP does not carry IP in any VLAN.
    let is_tagged = place.is_ok_and(|place| place.tag.is_some());
    if of.blocks_non_ip && !sight.is_ip(is_tagged) {
        return Err(Cause::NonIp);
    }
    let place = place?;
    if of.is_locked {
        let entry = source(MacKey::new(sight.source, place.vlan)).filter(|_| sight.has_source());
        entry.filter(|entry| entry.port() == port).ok_or(Cause::Locked)?;
    }
    let mark = of.rules(Direction::In).apply_rules(sight, is_tagged).map_err(|()| Cause::Rule)?;
    if of.state == PortState::Discarding {
        return Err(Cause::Blocked);
    }
    let is_ip = carries_ip(sight, is_tagged);
    let is_filtered = is_ip && view.is_filtered_at(port) && of.vlan() == Some(place.vlan);
    Ok(Ingress { port, place, mark, is_ip, is_filtered })
}

/// Whether a packet filter looks at such frames: at IPv4 and IPv6.
fn carries_ip(sight: &FrameView<'_>, is_tagged: bool) -> bool {
    matches!(sight.inner_payload(is_tagged).0, EtherType::IPV4 | EtherType::IPV6)
}

/// The address that is to be learned of a frame that was taken in, if any.
pub fn learned_key(view: &View, sight: &FrameView<'_>, entered: &Ingress) -> Option<MacKey> {
    let of = view.ports.get(usize::from(entered.port))?;
    (of.learns && sight.has_source()).then(|| MacKey::new(sight.source, entered.place.vlan))
}

/// Where a frame goes that was taken in. `destination` finds what is known of where it goes.
pub fn lookup(
    view: &View,
    sight: &FrameView<'_>,
    entered: &Ingress,
    destination: impl FnOnce(MacKey) -> Option<MacEntry>,
) -> Result<Egress, Cause> {
    if view.ports.get(usize::from(entered.port)).is_none_or(|port| port.state != PortState::Forwarding) {
        return Err(Cause::Blocked);
    }
    if sight.is_for_all() {
        return Ok(Egress::Flood(FloodKind::Broadcast));
    }
    if sight.is_for_group() {
        return Ok(Egress::Flood(FloodKind::Multicast));
    }
    let entry = destination(MacKey::new(sight.destination, entered.place.vlan));
    Ok(entry.map_or(Egress::Flood(FloodKind::Unknown), |entry| Egress::Unicast(entry.port())))
}

/// How a frame leaves by a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressRewrite {
    /// How its tag is rewritten.
    pub change: TagRewrite,
    /// The mark that rules gave it there, in the place of any that it had.
    pub mark: Option<Mark>,
}

/// Whether a frame may leave by a port, and how; `many` says that it goes to many, and the port isn't
/// known to want it.
pub fn egress(
    view: &View,
    sight: &FrameView<'_>,
    entered: &Ingress,
    to: u16,
    many: Option<FloodKind>,
) -> Result<EgressRewrite, Cause> {
    let ports = &view.ports;
    let (Some(from), Some(of)) = (ports.get(usize::from(entered.port)), ports.get(usize::from(to))) else {
        return Err(Cause::Detached);
    };
    if to == entered.port && !of.is_hairpin {
        return Err(Cause::SamePort);
    }
    if of.role != Role::Member {
        return Err(Cause::Detached);
    }
    if of.domains.shares_domain(from.domains) {
        return Err(Cause::Protected);
    }
    if !of.is_running {
        return Err(Cause::LinkDown);
    }
    if of.state != PortState::Forwarding {
        return Err(Cause::Blocked);
    }
    check_flooding(of, many)?;
    let priority = || egress_priority(view, sight, entered.place);
    let change = rewrite_tag(priority, of.vlan(), of.tagged.contains(entered.place.vlan), entered.place)?;
    if of.blocks_non_ip && !sight.is_ip(entered.is_tagged()) {
        return Err(Cause::NonIp);
    }
    let mark = of.rules(Direction::Out).apply_rules(sight, entered.is_tagged());
    Ok(EgressRewrite { change, mark: mark.map_err(|()| Cause::Rule)? })
}

/// Whether frames that go to many may leave by a port that isn't known to want them.
fn check_flooding(of: &PortView, many: Option<FloodKind>) -> Result<(), Cause> {
    match many {
        Some(FloodKind::Unknown) if !of.discovers => Err(Cause::NotDiscovered),
        Some(FloodKind::Broadcast) if !of.gets_broadcasts => Err(Cause::NotFlooded),
        Some(FloodKind::Multicast) if !of.gets_groups => Err(Cause::NotFlooded),
        _ => Ok(()),
    }
}

/// The priority that a frame leaves with, if it leaves with a tag (`rxprio`, `txprio`).
fn egress_priority(view: &View, sight: &FrameView<'_>, place: FrameVlan) -> u16 {
    let of_payload = || sight.precedence(place.tag.is_some());
    let (comes, leaves) = view.priorities;
    let own = || match comes {
        Priority::Fixed(priority) => priority,
        Priority::Payload => of_payload(),
        Priority::Packet | Priority::Outer => place.tag.map_or(0, |tag| (tag >> 13) as u8),
    };
    let priority = match leaves {
        Priority::Fixed(priority) => priority,
        Priority::Payload => of_payload(),
        Priority::Packet | Priority::Outer => own(),
    };
    u16::from(priority & 7)
}

/// What a port makes of the tag of a frame: it is taken off where the VLAN is the port's own.
fn rewrite_tag(
    priority: impl FnOnce() -> u16,
    own: Option<u16>,
    has_tag: bool,
    place: FrameVlan,
) -> Result<TagRewrite, Cause> {
    match place.tag {
        None if own == Some(place.vlan) => Ok(TagRewrite::Keep),
        Some(_) if own == Some(place.vlan) => Ok(TagRewrite::Untag),
        _ if !has_tag => Err(Cause::Vlan),
        None => Ok(TagRewrite::Tag(priority() << 13 | place.vlan)),
        Some(tag) => {
            // That it may be dropped first (DEI) stays.
            let new = priority() << 13 | tag & 0x1000 | place.vlan;
            Ok(if new == tag { TagRewrite::Keep } else { TagRewrite::Retag(new) })
        }
    }
}

/// Whether the packet filter sees a frame as it leaves by a port: where it leaves without tag,
/// whatever it came with.
#[inline]
pub fn is_filtered_out(view: &View, entered: &Ingress, to: u16) -> bool {
    view.is_filtered_at(to) && entered.is_ip && view.vlan(to) == Some(entered.place.vlan)
}

/// The same of a frame that goes to many. A frame that came without tag has already passed the filter once,
/// at the switch itself, except for host ports.
#[inline]
pub fn is_filtered_out_as_one(view: &View, entered: &Ingress, to: u16) -> bool {
    (view.is_vport(to) || !entered.is_filtered) && is_filtered_out(view, entered, to)
}

/// The steps of forwarding a frame, for diagnostics; the packet filter is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameTrace {
    /// Ports that get a copy.
    pub copies: Vec<u16>,
    /// Whether it is taken in.
    pub ingress: Result<Ingress, Stop>,
    /// The address that is learned.
    pub learns: Option<MacKey>,
    /// Egress by lookup, or the cause of its drop. None before that.
    pub egress: Option<Result<Egress, Cause>>,
    /// The result at each port that it would go to.
    pub targets: Vec<(u16, Result<EgressRewrite, Cause>)>,
}

/// What would become of a frame that came by a port; `find` finds what is known of an address, and
/// that isn't too old.
pub fn trace_frame(
    (view, groups): (&View, &GroupView),
    port: u16,
    sight: &FrameView<'_>,
    find: impl Fn(MacKey) -> Option<MacEntry>,
) -> FrameTrace {
    let mut decision = FrameTrace {
        copies: Vec::new(),
        ingress: Err(Stop::Drop(Cause::Nowhere)),
        learns: None,
        egress: None,
        targets: Vec::new(),
    };
    if let Err(stop) = admit(view, port, sight) {
        decision.ingress = Err(stop);
        return decision;
    }
    decision.copies = view.spans.to_vec();
    let entered = match ingress(view, port, sight, &find) {
        Ok(entered) => entered,
        Err(cause) => {
            decision.ingress = Err(Stop::Drop(cause));
            return decision;
        }
    };
    decision.learns = learned_key(view, sight, &entered);
    let way = lookup(view, sight, &entered, &find);
    let to = |to, many| (to, egress(view, sight, &entered, to, many));
    let to_group = |port| match groups.find_audience(view, sight, &entered) {
        Audience::All => to(port, Some(FloodKind::Multicast)),
        known if known.contains_port(view, port) => to(port, None),
        _ => (port, Err(Cause::NotMember)),
    };
    let all = 0..view.ports.len() as u16;
    decision.targets = match way {
        Ok(Egress::Unicast(port)) => vec![to(port, None)],
        Ok(Egress::Flood(FloodKind::Multicast)) => all.map(to_group).collect(),
        Ok(Egress::Flood(many)) => all.map(|port| to(port, Some(many))).collect(),
        Err(_) => Vec::new(),
    };
    decision.egress = Some(way);
    decision.ingress = Ok(entered);
    decision
}
