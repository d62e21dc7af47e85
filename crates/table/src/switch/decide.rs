//! What becomes of a frame: pure functions of the frame, what the switch was told and what it knows of addresses.
//!
//! A frame [enters](enter), [goes somewhere](way), and [leaves](leave) by one port or many; a packet filter is asked
//! between these. [`quick`](super::quick) is the same for frames that meet nothing but the table, and leaves all
//! others alone. Whoever asks what would become of a frame calls [`decide`].
use super::command::{Priority, Untagged};
use super::config::{PortState, Role};
use super::groups::{Audience, GroupView};
use super::mac::{Entry, MacKey};
use super::rules::{Direction, Mark};
use super::sight::Sight;
use super::view::View;
use artery_wire::EtherType;

macro_rules! causes {
    ($($(#[doc = $doc:literal])* $variant:ident $name:literal,)*) => {
        /// Why a frame goes no further, or not to a port.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Cause { $($(#[doc = $doc])* $variant,)* }

        impl Cause {
            /// All of them.
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
    /// The port is no part of the switch.
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
    /// Nobody behind the port is known to be in its group, and no router is there.
    NotMember "not-member",
    /// Its destination isn't known, and the port doesn't discover.
    NotDiscovered "not-discovered",
    /// It goes to many, and the port gets no such frames.
    NotFlooded "not-flooded",
    /// The port sent too many frames of its kind in a short time.
    Storm "storm",
    /// There is no port that it could go to.
    Nowhere "nowhere",
}

/// Why a frame is not taken in, and whose it is then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// It ends.
    Drop(Cause),
    /// It is the host's, as if there were no switch.
    Host(Cause),
}

impl Stop {
    /// Why.
    pub fn cause(self) -> Cause {
        match self {
            Stop::Drop(cause) | Stop::Host(cause) => cause,
        }
    }
}

/// Where a frame belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its VLAN.
    pub vlan: u16,
    /// Its tag, if that is what says so: the tag is no part of what it carries.
    pub tag: Option<u16>,
}

/// A frame that was taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entered {
    /// Where it came from.
    pub port: u16,
    /// Where it belongs.
    pub place: Place,
    /// The mark that rules gave it.
    pub mark: Option<Mark>,
    /// Whether it carries IPv4 or IPv6.
    pub is_ip: bool,
    /// Whether a packet filter sees it as it comes in.
    pub is_filtered: bool,
}

impl Entered {
    /// Whether its tag is no part of what it carries.
    pub fn is_tagged(&self) -> bool {
        self.place.tag.is_some()
    }
}

/// To whom a frame goes that goes to many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Many {
    /// All stations.
    Broadcast,
    /// A group.
    Multicast,
    /// A station that isn't known.
    Unknown,
}

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To a port.
    One(u16),
    /// To all that may have it.
    Many(Many),
}

/// What is done to a frame as it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Nothing.
    Keep,
    /// Its tag is taken off.
    Untag,
    /// It gets a tag with these bits.
    Tag(u16),
    /// Its tag gets other bits.
    Retag(u16),
}

/// Whether a frame is one that the switch takes at all; before copies are made of it.
pub fn meet(view: &View, port: u16, sight: &Sight<'_>) -> Result<(), Stop> {
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
    match of.untagged == Untagged::Passthrough && is_bare {
        true => Err(Stop::Host(Cause::Passthrough)),
        false => Ok(()),
    }
}

/// Where a frame belongs that came by a port.
#[inline]
pub fn place(view: &View, port: u16, sight: &Sight<'_>) -> Result<Place, Cause> {
    let Some(of) = view.ports.get(usize::from(port)) else { return Err(Cause::Detached) };
    let own = || of.vlan().ok_or(Cause::Vlan);
    if !sight.ether_type.is_vlan() {
        return Ok(Place { vlan: own()?, tag: None });
    }
    let is_double = sight.carried(true).0.is_vlan();
    // A tag of VLAN 0 says nothing but a priority.
    let is_known = |tag: &u16| tag & 0xfff == 0 || of.tagged.contains(tag & 0xfff);
    match sight.tag().filter(is_known) {
        // Once the outer tag is off, the inner one would be what says the VLAN.
        Some(_) if is_double && !view.passes_tags => Err(Cause::DoubleTag),
        Some(tag) if tag & 0xfff != 0 => Ok(Place { vlan: tag & 0xfff, tag: Some(tag) }),
        Some(tag) if !is_double => Ok(Place { vlan: own()?, tag: Some(tag) }),
        _ if view.passes_tags => Ok(Place { vlan: own()?, tag: None }),
        _ => Err(Cause::Vlan),
    }
}

/// Takes a frame in that was [met](meet), unless something is against it. `source` finds what is known of where it
/// comes from.
pub fn enter(
    view: &View,
    port: u16,
    sight: &Sight<'_>,
    source: impl FnOnce(MacKey) -> Option<Entry>,
) -> Result<Entered, Cause> {
    let place = place(view, port, sight);
    let of = view.ports.get(usize::from(port)).ok_or(Cause::Detached)?;
    // What is no IP under a tag that nobody knows is no IP, whatever VLAN it would be in.
    let is_tagged = place.is_ok_and(|place| place.tag.is_some());
    if of.blocks_non_ip && !sight.is_ip(is_tagged) {
        return Err(Cause::NonIp);
    }
    let place = place?;
    if of.is_locked {
        let entry = source(MacKey::new(sight.source, place.vlan)).filter(|_| sight.has_source());
        entry.filter(|entry| entry.port() == port).ok_or(Cause::Locked)?;
    }
    let mark = of.rules(Direction::In).pass(sight, is_tagged).map_err(|()| Cause::Rule)?;
    if of.state == PortState::Discarding {
        return Err(Cause::Blocked);
    }
    let is_ip = carries_ip(sight, is_tagged);
    let is_filtered = is_ip && view.is_filtered_at(port) && of.vlan() == Some(place.vlan);
    Ok(Entered { port, place, mark, is_ip, is_filtered })
}

/// Whether a packet filter looks at such frames: at IPv4 and IPv6.
fn carries_ip(sight: &Sight<'_>, is_tagged: bool) -> bool {
    matches!(sight.carried(is_tagged).0, EtherType::IPV4 | EtherType::IPV6)
}

/// The address that is to be learned of a frame that was taken in, if any.
pub fn learns(view: &View, sight: &Sight<'_>, entered: &Entered) -> Option<MacKey> {
    let of = view.ports.get(usize::from(entered.port))?;
    (of.learns && sight.has_source()).then(|| MacKey::new(sight.source, entered.place.vlan))
}

/// Where a frame goes that was taken in. `destination` finds what is known of where it goes.
pub fn way(
    view: &View,
    sight: &Sight<'_>,
    entered: &Entered,
    destination: impl FnOnce(MacKey) -> Option<Entry>,
) -> Result<Way, Cause> {
    if view.ports.get(usize::from(entered.port)).is_none_or(|port| port.state != PortState::Forwarding) {
        return Err(Cause::Blocked);
    }
    if sight.is_for_all() {
        return Ok(Way::Many(Many::Broadcast));
    }
    if sight.is_for_group() {
        return Ok(Way::Many(Many::Multicast));
    }
    let entry = destination(MacKey::new(sight.destination, entered.place.vlan));
    Ok(entry.map_or(Way::Many(Many::Unknown), |entry| Way::One(entry.port())))
}

/// How a frame leaves by a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// What becomes of its tag.
    pub change: Change,
    /// The mark that rules gave it there, in the place of any that it had.
    pub mark: Option<Mark>,
}

/// Whether a frame may leave by a port, and how; `many` says that it goes to many, and the port isn't known to want it.
pub fn leave(
    view: &View,
    sight: &Sight<'_>,
    entered: &Entered,
    to: u16,
    many: Option<Many>,
) -> Result<Leaving, Cause> {
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
    if of.domains.meets(from.domains) {
        return Err(Cause::Protected);
    }
    if !of.is_running {
        return Err(Cause::LinkDown);
    }
    if of.state != PortState::Forwarding {
        return Err(Cause::Blocked);
    }
    match many {
        Some(Many::Unknown) if !of.discovers => return Err(Cause::NotDiscovered),
        Some(Many::Broadcast) if !of.gets_broadcasts => return Err(Cause::NotFlooded),
        Some(Many::Multicast) if !of.gets_groups => return Err(Cause::NotFlooded),
        _ => {}
    }
    let priority = || priority(view, sight, entered.place);
    let change = change(priority, of.vlan(), of.tagged.contains(entered.place.vlan), entered.place)?;
    if of.blocks_non_ip && !sight.is_ip(entered.is_tagged()) {
        return Err(Cause::NonIp);
    }
    let mark = of.rules(Direction::Out).pass(sight, entered.is_tagged());
    Ok(Leaving { change, mark: mark.map_err(|()| Cause::Rule)? })
}

/// The priority that a frame leaves with, if it leaves with a tag (`rxprio`, `txprio`).
fn priority(view: &View, sight: &Sight<'_>, place: Place) -> u16 {
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
fn change(
    priority: impl FnOnce() -> u16,
    own: Option<u16>,
    has_tag: bool,
    place: Place,
) -> Result<Change, Cause> {
    match place.tag {
        None if own == Some(place.vlan) => Ok(Change::Keep),
        Some(_) if own == Some(place.vlan) => Ok(Change::Untag),
        _ if !has_tag => Err(Cause::Vlan),
        None => Ok(Change::Tag(priority() << 13 | place.vlan)),
        Some(tag) => {
            // That it may be dropped first (DEI) stays.
            let new = priority() << 13 | tag & 0x1000 | place.vlan;
            Ok(if new == tag { Change::Keep } else { Change::Retag(new) })
        }
    }
}

/// Whether the packet filter sees a frame as it leaves by a port: where it leaves without tag, whatever it came with.
#[inline]
pub fn is_filtered_out(view: &View, entered: &Entered, to: u16) -> bool {
    view.is_filtered_at(to) && entered.is_ip && view.vlan(to) == Some(entered.place.vlan)
}

/// The same of a frame that goes to many. What came without tag was asked about once, at the switch itself, but for the
/// host's doors.
#[inline]
pub fn is_filtered_out_as_one(view: &View, entered: &Entered, to: u16) -> bool {
    (view.is_vport(to) || !entered.is_filtered) && is_filtered_out(view, entered, to)
}

/// What would become of a frame, step by step; the packet filter is not asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Ports that get a copy.
    pub copies: Vec<u16>,
    /// Whether it is taken in.
    pub entered: Result<Entered, Stop>,
    /// The address that is learned.
    pub learns: Option<MacKey>,
    /// Where it goes.
    pub way: Option<Result<Way, Cause>>,
    /// What becomes of it at each port that it would go to.
    pub targets: Vec<(u16, Result<Leaving, Cause>)>,
}

/// What would become of a frame that came by a port; `find` finds what is known of an address, and that isn't too old.
pub fn decide(
    (view, groups): (&View, &GroupView),
    port: u16,
    sight: &Sight<'_>,
    find: impl Fn(MacKey) -> Option<Entry>,
) -> Decision {
    let mut decision = Decision {
        copies: Vec::new(),
        entered: Err(Stop::Drop(Cause::Nowhere)),
        learns: None,
        way: None,
        targets: Vec::new(),
    };
    if let Err(stop) = meet(view, port, sight) {
        decision.entered = Err(stop);
        return decision;
    }
    decision.copies = view.spans.to_vec();
    let entered = match enter(view, port, sight, &find) {
        Ok(entered) => entered,
        Err(cause) => {
            decision.entered = Err(Stop::Drop(cause));
            return decision;
        }
    };
    decision.learns = learns(view, sight, &entered);
    let way = way(view, sight, &entered, &find);
    let to = |to, many| (to, leave(view, sight, &entered, to, many));
    let to_group = |port| match groups.audience(view, sight, &entered) {
        Audience::All => to(port, Some(Many::Multicast)),
        known if known.has(view, port) => to(port, None),
        _ => (port, Err(Cause::NotMember)),
    };
    let all = 0..view.ports.len() as u16;
    decision.targets = match way {
        Ok(Way::One(port)) => vec![to(port, None)],
        Ok(Way::Many(Many::Multicast)) => all.map(to_group).collect(),
        Ok(Way::Many(many)) => all.map(|port| to(port, Some(many))).collect(),
        Err(_) => Vec::new(),
    };
    decision.way = Some(way);
    decision.entered = Ok(entered);
    decision
}
