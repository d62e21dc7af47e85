//! Why a packet's journey ended, other than by being sent.
use artery_packet::{NoRoom, TooShort};
use artery_wire::Malformed;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $variant:ident $name:literal,)*) => {
        /// Why a packet ended. Every packet is sent, kept, or discarded for one of
        /// these reasons, and counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DropReason { $($(#[doc = $doc])* $variant,)* }

        impl DropReason {
            /// Every reason, in the order of declaration.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant),*];
            /// The name that counters, `explain` and reports use.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name),* }
            }
            /// One sentence for people.
            pub const fn sentence(self) -> &'static str {
                match self { $(DropReason::$variant => concat!($($doc),*)),* }
            }
        }
    };
}

impl From<TooShort> for DropReason {
    fn from(_: TooShort) -> DropReason {
        DropReason::TooShort
    }
}
impl From<NoRoom> for DropReason {
    fn from(_: NoRoom) -> DropReason {
        DropReason::NoRoom
    }
}
/// Why a packet without the header that should be there ends.
impl From<Malformed> for DropReason {
    fn from(malformed: Malformed) -> DropReason {
        match malformed {
            Malformed::Truncated => DropReason::TooShort,
            Malformed::Checksum => DropReason::BadChecksum,
            _ => DropReason::Malformed,
        }
    }
}

reasons! {
    /// An element whose job it is to discard packets, such as Discard, took it.
    Discarded "discarded",
    /// It was a message to the element itself, such as an ARP reply to ARPQuerier.
    Consumed "consumed",
    /// The packet is shorter than the header that should be there.
    TooShort "too-short",
    /// A header contradicts itself or the packet.
    Malformed "malformed",
    /// A checksum is wrong.
    BadChecksum "bad-checksum",
    /// The source address can't be the source of a packet.
    BadSource "bad-source",
    /// The time-to-live ran out.
    TtlExpired "ttl-expired",
    /// No route leads to the destination.
    NoRoute "no-route",
    /// The neighbor did not answer requests for its link-layer address.
    NeighborFailed "neighbor-failed",
    /// It is for the router itself, which answers no such packets and has no host behind it.
    Local "local",
    /// It is for an address that the router claims and that is not, or not yet, its own (RFC 4862, RFC 5227).
    Unclaimed "address-unclaimed",
    /// It is for a group that the router does not forward to.
    Multicast "multicast",
    /// Its route says to drop it without a word.
    Blackhole "blackhole",
    /// Its route says that the destination can't be reached.
    Unreachable "unreachable",
    /// Its route says that it is forbidden.
    Prohibited "prohibited",
    /// No host can have its destination address (RFC 1812 section 5.3.7, RFC 6890).
    Martian "martian",
    /// Its source or destination is valid on one link only, and it would leave that link.
    LinkLocal "link-local",
    /// The port that it would leave by is down.
    PortDown "port-down",
    /// The path to the next hop of its route is down, as BFD says, and the route has no other.
    NextHopDown "next-hop-down",
    /// The frame is addressed to another host on the link.
    OtherStation "other-station",
    /// The frame holds neither IP nor ARP.
    UnknownEtherType "unknown-ether-type",
    /// It came from outside with an address of the router as its source.
    OwnSource "own-source",
    /// Packets to its source leave by another port than it came by, or by none (RFC 3704).
    ReversePath "reverse-path",
    /// An IP option contradicts itself, or is not known and must not be passed over.
    BadOption "bad-option",
    /// It names the routers on its way, which is refused (RFC 5095).
    SourceRoute "source-route",
    /// It is longer than its next hop's MTU and must not be cut.
    TooBig "mtu-exceeded",
    /// Too many neighbors are known or asked for already.
    NeighborLimit "neighbor-limit",
    /// Too many such messages came in a short time.
    RateLimited "rate-limited",
    /// It is for neighbors on the link alone, and its TTL or hop limit says that it was forwarded (RFC 5082).
    Forwarded "forwarded-before",
    /// A control packet of BFD that belongs to no session.
    NoBfdSession "no-bfd-session",
    /// A fragment that no sender makes: too small, or with bytes that another one has, too.
    BadFragment "bad-fragment",
    /// The other fragments of the packet did not come in time, or there was no room to wait for them.
    Incomplete "incomplete",
    /// The switch is down and has no host port.
    SwitchDown "switch-down",
    /// The port that it came by is not a member of the switch.
    NotAPort "not-a-port",
    /// The port that it came by passes untagged frames to the host, and the switch has no host port.
    Passthrough "passthrough",
    /// It came by a port that only gets copies.
    SpanInput "span-input",
    /// Its destination is one that bridges keep to themselves (IEEE 802.1Q, table 8-1).
    ReservedAddress "reserved-address",
    /// A port is not in its VLAN, or it has a tag that is not let through.
    VlanDenied "vlan-denied",
    /// It has a second tag behind the first.
    DoubleTag "double-tag",
    /// It came by a locked port at which its source is not known to be.
    SourceLocked "source-locked",
    /// A rule of a port of the switch blocks it.
    BlockedByRule "blocked-by-rule",
    /// The packet filter blocks it.
    Filtered "filtered",
    /// The spanning tree holds a port back that it would pass.
    PortBlocked "port-blocked",
    /// It would leave the switch by the port that it came by.
    SamePort "same-port",
    /// It came by a port that doesn't talk to the one that it would leave by.
    ProtectedPort "protected-port",
    /// The flood rate limit of its port is exceeded (storm control).
    Storm "storm",
    /// The switch has no port to send it to.
    NoTarget "no-target",
    /// None of those who share a service can take it.
    NoMember "no-member",
    /// A packet filter could not make or match a state for it: `artery pfctl -s info` says why.
    FilterState "filter-state",
    /// No pattern of a classifier matched.
    NoMatch "no-match",
    /// The output that the element chose is not connected.
    NoOutput "no-output",
    /// A queue was full.
    QueueFull "queue-full",
    /// The neighbor's link address is unknown, and too many packets wait for it already.
    NeighborUnresolved "neighbor-unresolved",
    /// An ARP, ND or ICMP message that asks for nothing we answer.
    NotForUs "not-for-us",
    /// No ICMP error may be sent about the packet (RFC 1812 section 4.3.2.7).
    IcmpForbidden "icmp-forbidden",
    /// A link-level broadcast or multicast where none may pass.
    Broadcast "broadcast",
    /// The element is set to let no packets pass for now.
    Inactive "inactive",
    /// A sampler or shaper chose not to let it pass.
    Sampled "sampled",
    /// The packet pool is empty.
    PoolEmpty "pool-empty",
    /// No frame is big enough for the packet and the header to be added.
    NoRoom "no-room",
    /// The device can't take a frame of this length.
    TooLong "too-long",
    /// The device refused the frame, or is down or gone.
    DeviceDown "device-down",
    /// The port that received it is monitored, and it came as far as it should.
    Monitored "monitored",
    /// The graph was replaced while the packet waited in an element that has no successor.
    Replaced "replaced",
    /// The run ended while the packet was on its way to an element of another worker.
    Ended "ended",
    /// It went round and round in a part of the graph that has no queue, or came back to an element at work.
    Loop "loop",
    /// An element left the packet in its input. A defect of that element.
    LeftBehind "left-behind",
}

/// Number of drop reasons, for arrays indexed by reason.
pub const REASONS: usize = DropReason::ALL.len();

/// Numbers of dropped packets by reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drops([u64; REASONS]);

impl Default for Drops {
    fn default() -> Drops {
        Drops([0; REASONS])
    }
}

impl Drops {
    /// Counts `n` packets more.
    #[inline]
    pub fn add(&mut self, reason: DropReason, n: u64) {
        self.0[reason as usize] += n;
    }
    /// Packets discarded for this reason.
    pub fn count(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }
    /// Packets discarded, whatever the reason.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
    /// The reasons that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&r| (r, self.count(r))).filter(|(_, n)| *n > 0)
    }
    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Drops) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a += b);
    }
}
