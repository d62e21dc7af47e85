//! What the arrays of the program hold besides the FIBs, word by word. Words have this machine's byte order,
//! except parts of headers, which have network byte order.
use crate::kernel::TunnelProtocol;
use artery_l3::router::ReversePath;
use artery_wire::EtherAddr;
use std::net::Ipv4Addr;

/// Most ports, VLANs of them counted, and one more: see [`ROUTED`].
pub(super) const MOST_PORTS: usize = 64;
/// The bit of a group's inputs that says that sources are routed, by whatever next hop. The other bits are
/// ports, by their numbers.
pub(super) const ROUTED: u32 = MOST_PORTS as u32 - 1;
/// Most VRFs with FIBs of their own.
pub(super) const MOST_VRFS: u32 = 16;
/// Room for the numbers of FIBs, of which 0 is that of no VRF; a power of two.
pub(super) const MOST_FIBS: u32 = 32;
/// Most groups of next hops.
pub(super) const MOST_GROUPS: usize = 1 << 16;
/// Most members of all groups that have more than one.
pub(super) const MOST_MEMBERS: usize = 1 << 16;
/// Limit on next hops, and the size of their array.
pub(super) const MOST_HOPS: usize = 1 << 16;
/// Most processors whose counts are apart; those above share them.
pub(super) const MOST_PROCESSORS: usize = 256;

/// 32-bit words of a port: address (6 bytes), 2 bytes of zero, [`Flags`], the index of the
/// interface that carries it.
pub(super) const PORT_WORDS: usize = 4;
pub(super) const PORT_FLAGS: usize = 2;
pub(super) const PORT_DEVICE: usize = 3;
/// 32-bit words of a next hop: link header (12 bytes, destination first), tag (4 bytes, or 0), MTU, device,
/// number of the tunnel in the byte above and port in the upper half, whether it was used, whether it
/// is ready to be used.
pub(super) const HOP_WORDS: usize = 8;
pub(super) const HOP_TAG: usize = 3;
pub(super) const HOP_MTU: usize = 4;
pub(super) const HOP_PORTS: usize = 5;
/// The program makes it 1 when it sends by the hop.
pub(super) const HOP_USED: usize = 6;
/// [`READY`] while the other words hold; else 0, or why they don't ([`Withheld`]).
pub(super) const HOP_READY: usize = 7;
/// Bits of [`HOP_PORTS`] below the number of the tunnel.
pub(super) const HOP_TUNNEL: u32 = 8;

/// Most records of tunnels' headers, and one more: 0 is the number of none. A tunnel that changes gets
/// another record, so that there are more of them than tunnels.
pub(super) const MOST_TUNNELS: usize = 256;
/// 32-bit words of such a record: outer source and destination, as they are on the wire, or the number of a
/// session; bytes of protocol, TTL and type of service; and one that is not used.
pub(super) const TUNNEL_WORDS: usize = 4;
pub(super) const TUNNEL_DESTINATION: usize = 1;
pub(super) const TUNNEL_OPTIONS: usize = 2;
/// The outer type of service is that of the packet where this bit of the tunnel's is set.
pub(crate) const INHERITED_TOS: u8 = 1;
const _: () = assert!(MOST_PORTS <= 1 << HOP_TUNNEL && MOST_TUNNELS <= 1 << (16 - HOP_TUNNEL));

/// 64-bit words of a processor's counts.
pub(super) const COUNT_WORDS: usize = MOST_PORTS * WORDS_OF_PORT;
/// Words of a port's counts: frames and bytes received, frames and bytes sent, frames lost; from
/// [`REASON_COUNTS`] on frames that went to the kernel, by [`Reason`].
pub(super) const WORDS_OF_PORT: usize = 64;
pub(super) const SENT_COUNT: usize = 2;
pub(super) const LOST_COUNT: usize = 4;
/// Frames received and forwarded that are of established connections.
pub(super) const ESTABLISHED_COUNT: usize = 5;
pub(super) const REASON_COUNTS: usize = 6;
const _: () = assert!(REASON_COUNTS + Reason::ALL.len() <= WORDS_OF_PORT);

/// 64-bit words of the losses that the kernel's tracepoints report, for each port: the index of the interface
/// or 0, frames that arrived by it and were not redirected, frames that its driver did not take.
pub(super) const LOSS_DEVICES: usize = 0;
pub(super) const REDIRECT_ERRORS: usize = MOST_PORTS;
pub(super) const DROPPED_COUNTS: usize = 2 * MOST_PORTS;
pub(super) const LOSS_WORDS: usize = 3 * MOST_PORTS;

/// Bits of source addresses that are this machine's own, by [`own_bit_v4`] and [`own_bit_v6`].
pub(super) const OWN_BITS: usize = 1 << 16;

/// The bit for a source address; others may share it, and go to the kernel too.
pub(super) fn own_bit_v4(source: u32) -> usize {
    own_bit(source.to_be())
}

/// The same for IPv6.
pub(super) fn own_bit_v6(source: u128) -> usize {
    // The words' places count: networks and hosts are numbered alike, and neither fd00:1::2 and fd00:2::1 nor
    // others of that kind are to share a bit.
    let words = [source >> 96, source >> 64, source >> 32, source];
    let mix = |all: u32, word: &u128| (all ^ all >> 15).wrapping_mul(MULTIPLIER) ^ (*word as u32).to_be();
    let [first, rest @ ..] = words;
    own_bit(rest.iter().fold((first as u32).to_be(), mix))
}

/// Of a word as it is on the wire. Gateways tend to end with the same bytes, so that all bytes must count.
fn own_bit(word: u32) -> usize {
    (word.wrapping_mul(MULTIPLIER) >> 16) as usize
}

/// The kernel's priorities (TC_PRIO_* of linux/pkt_sched.h) by the two bits of IPv4's type of
/// service that ask for little delay and for throughput, in four bits each: best effort,
/// bulk, interactive, interactive bulk.
pub(super) const PRIORITIES: i32 = 0x4620;

/// What a port may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Whether packets of IPv4 are forwarded.
    pub ipv4: bool,
    /// Whether packets of IPv6 are forwarded.
    pub ipv6: bool,
    /// Ports of TCP and UDP choose among next hops as well as addresses, for IPv4.
    pub ipv4_ports: bool,
    /// The same for IPv6.
    pub ipv6_ports: bool,
    /// What is demanded of sources of IPv4.
    pub reverse_path: ReversePath,
    /// Multi-buffer frames may leave by it: its driver transmits those that XDP redirects to it.
    pub multi_buffer: bool,
    /// Packets of IPv4 of established connections are forwarded, even if others are not.
    pub ipv4_established: bool,
    /// The same for IPv6.
    pub ipv6_established: bool,
    /// The number of the FIB that its packets are looked up in.
    pub fib: u32,
}

impl Flags {
    pub(super) const IPV4: u32 = 1;
    pub(super) const IPV6: u32 = 2;
    pub(super) const IPV4_PORTS: u32 = 4;
    pub(super) const IPV6_PORTS: u32 = 8;
    pub(super) const MULTI_BUFFER: u32 = 32;
    pub(super) const IPV4_ESTABLISHED: u32 = 64;
    pub(super) const IPV6_ESTABLISHED: u32 = 128;

    /// The route back to a source is checked, and must have one input, by its number in the
    /// bits from `INPUT` on.
    pub(super) const REVERSE_PATH: u32 = 16;
    pub(super) const INPUT: u32 = 8;
    /// The number of the FIB is in the bits from here on.
    pub(super) const FIB: u32 = 16;

    /// As the record of a port has them.
    pub(super) fn to_word(self, port: u32) -> u32 {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let reverse_path = match self.reverse_path {
            ReversePath::Off => 0,
            ReversePath::Loose => Flags::REVERSE_PATH | ROUTED << Flags::INPUT,
            ReversePath::Strict => Flags::REVERSE_PATH | port << Flags::INPUT,
        };
        reverse_path
            | bit(self.ipv4, Flags::IPV4)
            | bit(self.ipv6, Flags::IPV6)
            | bit(self.ipv4_ports, Flags::IPV4_PORTS)
            | bit(self.ipv6_ports, Flags::IPV6_PORTS)
            | bit(self.multi_buffer, Flags::MULTI_BUFFER)
            | bit(self.ipv4_established, Flags::IPV4_ESTABLISHED)
            | bit(self.ipv6_established, Flags::IPV6_ESTABLISHED)
            | self.fib << Flags::FIB
    }
}

/// A port, or one of its VLANs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRecord {
    /// Frames to other addresses are not forwarded.
    pub mac: EtherAddr,
    /// The index of the interface, or of that which carries the VLAN.
    pub device: u32,
    /// What it may do.
    pub flags: Flags,
}

/// Stands beside the port's number in a hop by which packets may leave where they came in.
pub(super) const RETURNS: u32 = 1 << 15;
const _: () = assert!(MOST_PORTS <= RETURNS as usize);

/// Programs add this to the length of a packet in a multi-buffer frame, so that it is above every MTU: one
/// comparison does for frames in one buffer, and others are looked at behind it.
pub(super) const MULTI_BUFFER: u32 = 1 << 30;
/// What of a packet must be in the first buffer: an IPv6 header and the start of what follows.
pub(super) const FIRST_BUFFER: usize = 40 + 20;
/// Longer packets may come with bytes behind them that are in another buffer. Drivers fill the first
/// buffer with at least as many.
pub(super) const SURELY_IN_ONE_BUFFER: usize = 1500;

/// How to send to a neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The neighbor's link-layer address.
    pub destination: EtherAddr,
    /// That of the port.
    pub source: EtherAddr,
    /// The VLAN that frames are tagged with.
    pub vlan: Option<u16>,
    /// Most bytes of a packet.
    pub mtu: u32,
    /// The number of the interface in the map of devices.
    pub device: u32,
    /// The number of the port, or of its VLAN.
    pub port: u32,
    /// Whether packets that came by that port leave by it, too.
    pub returns: bool,
    /// The number of the record of the tunnel's header that is put in front of packets; 0 for none.
    pub tunnel: u32,
}

impl Hop {
    /// The words of a hop, except those that change later.
    pub(super) fn encode_words(&self) -> [u32; HOP_USED] {
        let (to, from) = (self.destination.octets(), self.source.octets());
        let word = |bytes: [u8; 4]| u32::from_ne_bytes(bytes);
        let tag = self.vlan.map_or([0; 4], |vlan| {
            let [high, low] = vlan.to_be_bytes();
            [0x81, 0, high, low]
        });
        [
            word([to[0], to[1], to[2], to[3]]),
            word([to[4], to[5], from[0], from[1]]),
            word([from[2], from[3], from[4], from[5]]),
            word(tag),
            self.mtu.min(MULTI_BUFFER - 1),
            (self.port | if self.returns { RETURNS } else { 0 }) << 16
                | self.tunnel << HOP_TUNNEL
                | self.device,
        ]
    }
}

/// What a tunnel puts between the link header and a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelHeader {
    /// IPv4, and a header of GRE where it is a tunnel of GRE.
    Ipv4(OuterIpv4),
    /// PPPoE, and the number of the protocol (RFC 2516 section 4).
    Pppoe {
        /// The number that the other end has given to the session.
        session: u16,
    },
}

/// The outer header of a tunnel over IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterIpv4 {
    /// The outer source address.
    pub source: Ipv4Addr,
    /// The outer destination address.
    pub destination: Ipv4Addr,
    /// What follows the outer header.
    pub protocol: TunnelProtocol,
    /// The outer TTL; 0 for that of the packet.
    pub ttl: u8,
    /// The outer type of service; bit 0 set: that of the packet.
    pub tos: u8,
}

impl TunnelHeader {
    pub(super) fn encode_words(&self) -> [u32; TUNNEL_WORDS] {
        let address = |address: Ipv4Addr| u32::from_ne_bytes(address.octets());
        match self {
            TunnelHeader::Ipv4(outer) => {
                let options = [protocol_number(outer.protocol), outer.ttl, outer.tos, 0];
                [address(outer.source), address(outer.destination), u32::from_ne_bytes(options), 0]
            }
            TunnelHeader::Pppoe { session } => {
                let [high, low] = session.to_be_bytes();
                [u32::from_ne_bytes([high, low, 0, 0]), 0, u32::from_ne_bytes([PPPOE, 0, 0, 0]), 0]
            }
        }
    }

    /// Bytes in front of the packet.
    pub(super) fn length(&self) -> usize {
        match self {
            TunnelHeader::Ipv4(outer) => header_length(outer.protocol),
            TunnelHeader::Pppoe { .. } => PPPOE_LENGTH,
        }
    }
}

/// The number of what follows the outer header (RFC 2784, RFC 2003).
pub(super) const fn protocol_number(protocol: TunnelProtocol) -> u8 {
    match protocol {
        TunnelProtocol::Gre => 47,
        TunnelProtocol::Ipip => 4,
    }
}

/// Stands for PPPoE among these numbers, in which it is reserved.
pub(super) const PPPOE: u8 = 0xff;

/// Bytes of the headers of a tunnel over IPv4: IPv4 without options, and of GRE its own without options.
pub(super) const fn header_length(protocol: TunnelProtocol) -> usize {
    match protocol {
        TunnelProtocol::Gre => 24,
        TunnelProtocol::Ipip => 20,
    }
}

/// Bytes of the header of PPPoE, and of the number of a protocol.
pub(super) const PPPOE_LENGTH: usize = 8;
/// The type of frames of PPPoE sessions, and the version, type and code that those with packets have.
pub(super) const PPPOE_SESSION: u16 = 0x8864;
pub(super) const PPPOE_DATA: u16 = 0x1100;
/// The numbers of protocols (RFC 1332 section 2, RFC 5072 section 2), and the types that links have for them.
pub(super) const PPP_PROTOCOLS: [(u16, u16); 2] = [(0x0021, 0x0800), (0x0057, 0x86dd)];

/// Buckets of the table of tunnels that packets arrive by, and how many of them are probed in a row.
pub(super) const TUNNEL_BUCKETS: usize = 1024;
pub(super) const TUNNEL_PROBES: usize = 4;
/// 32-bit words of a bucket: outer source and destination, as they are on the wire, or the link address of
/// the other end and the number of the session; [`TunnelInput`]'s state, 0 for an empty bucket; and the
/// number of the port that frames of a session arrive at.
pub(super) const TUNNEL_BUCKET_WORDS: usize = 4;
pub(super) const TUNNEL_STATE: usize = 2;
pub(super) const TUNNEL_CARRIER: usize = 3;
/// The state of a bucket has the outer protocol in its low byte, then the bytes of the outer header, then the
/// number of the tunnel's port.
pub(super) const TUNNEL_LENGTH: u32 = 8;
pub(super) const TUNNEL_PORT: u32 = 16;

/// The outer header of packets that arrive by a tunnel, and the port that they come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TunnelInput {
    pub(super) outer: OuterEnds,
    pub(super) port: u32,
}

/// What tells packets of one tunnel from those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OuterEnds {
    /// The addresses of the outer header, and what follows it.
    Ipv4 { source: Ipv4Addr, destination: Ipv4Addr, protocol: TunnelProtocol },
    /// The other end's link address, the number of the session, and that of the port that it is at.
    Pppoe { peer: EtherAddr, session: u16, carrier: u32 },
}

impl TunnelInput {
    /// The words of its bucket; the state is written last.
    pub(super) fn encode_words(&self) -> [u32; TUNNEL_BUCKET_WORDS] {
        let state = |kind: u8, length: usize| {
            u32::from(kind) | (length as u32) << TUNNEL_LENGTH | self.port << TUNNEL_PORT
        };
        let word = u32::from_ne_bytes;
        match self.outer {
            OuterEnds::Ipv4 { source, destination, protocol } => {
                let state = state(protocol_number(protocol), header_length(protocol));
                [word(source.octets()), word(destination.octets()), state, 0]
            }
            OuterEnds::Pppoe { peer, session, carrier } => {
                let ([a, b, c, d, e, f], [high, low]) = (peer.octets(), session.to_be_bytes());
                [word([a, b, c, d]), word([e, f, high, low]), state(PPPOE, PPPOE_LENGTH), carrier]
            }
        }
    }

    /// The buckets that it may be in.
    pub(super) fn buckets(&self) -> impl Iterator<Item = usize> + use<> {
        let [first, second, ..] = self.encode_words();
        tunnel_buckets(first, second)
    }
}

/// The buckets of an outer header, by the first two words that they have.
pub(super) fn tunnel_buckets(first: u32, second: u32) -> impl Iterator<Item = usize> {
    let hash = mix(mix(0, first), second).wrapping_mul(MULTIPLIER);
    let first = (hash >> (32 - TUNNEL_BUCKETS.ilog2())) as usize;
    (0..TUNNEL_PROBES).map(move |probe| (first + probe) % TUNNEL_BUCKETS)
}

/// What the word [`HOP_READY`] of a hop says that is to be used.
pub(super) const READY: u32 = 1;

/// Why nothing leaves by an interface, for all neighbors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// By the user's policy.
    Policy = 2,
    /// Its driver does not send what programs redirect to it.
    NoRedirect = 3,
    /// It is not adopted, or down.
    NotAdopted = 4,
}

impl Withheld {
    pub(super) const ALL: [Withheld; 3] = [Withheld::Policy, Withheld::NoRedirect, Withheld::NotAdopted];

    /// What the word [`HOP_READY`] of its hops says.
    pub(super) fn to_state(self) -> u32 {
        self as u32
    }

    pub(super) fn from_state(state: u32) -> Option<Withheld> {
        Withheld::ALL.into_iter().find(|why| why.to_state() == state)
    }

    /// The reason why frames go to the kernel.
    pub(super) fn reason(self) -> Reason {
        match self {
            Withheld::Policy => Reason::Policy,
            Withheld::NoRedirect => Reason::NoRedirect,
            Withheld::NotAdopted => Reason::NotAdopted,
        }
    }
}

/// Why a frame goes to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// It is for another link address: broadcast, multicast, or none of ours.
    OtherAddress,
    /// It is neither IPv4 nor IPv6: ARP and all else.
    OtherProtocol,
    /// Its VLAN has no port.
    OtherVlan,
    /// Its headers are cut short, or contradict each other, or more follows than short frames
    /// are filled up with.
    Malformed,
    /// The port does not forward the family, or the one that it would leave by, by the user's policy.
    Policy,
    /// It has options, or a header for routers on its path.
    Options,
    /// It would have lived no longer.
    Expired,
    /// The source address may not be forwarded (multicast, loopback and the like), or may be this machine's.
    Source,
    /// The route back to its source is not what the port demands, or only the kernel knows it.
    ReversePath,
    /// No route matches the destination.
    NoRoute,
    /// Its route is the kernel's: to this machine, to a network without a known neighbor, or to nowhere.
    Kernel,
    /// The neighbor's link address is not known, or changing.
    Unresolved,
    /// It is longer than the MTU of the output, or has no room for the header of a tunnel.
    TooBig,
    /// It would leave by the port where it arrived, and the kernel may send an ICMP redirect.
    SamePort,
    /// The routes changed while it was looked up.
    Changing,
    /// It would leave by an interface whose driver does not send what programs redirect to it.
    NoRedirect,
    /// This process has not renewed the programs' lease: it hangs, was stopped or killed, and its
    /// tables may be old.
    Stale,
    /// The frame lies in several buffers of the driver, and its headers are not all in the first, or the
    /// driver of the port that it would leave by does not transmit such frames.
    MultiBuffer,
    /// By the user's policy only packets of established connections are forwarded, and it is of none that is
    /// known.
    NotEstablished,
    /// It renews the kernel's entry of its connection, or of its source in a bridge's forwarding database.
    Renewal,
    /// It may close its connection, or open it once more, or came behind one that may have.
    Closing,
    /// It came by another port than rules let its connection come by, or would leave by another one than
    /// rules let it, or than the kernel chose addresses for.
    OtherPort,
    /// It is of an established connection that a rule of the user stands in the way of, or may.
    Rule,
    /// It is of an established connection of TCP, and the kernel minds segments that are out of window.
    Window,
    /// It arrived at a member of a bridge whose forwarding database does not have its source there, or the
    /// member is not to forward.
    NotLearned,
    /// The interface that it would leave by is not adopted, or down.
    NotAdopted,
    /// It arrived by a tunnel, and its header has more than programs take off, or it leaves by another; or it
    /// is joined from several, and leaves by a session of PPPoE.
    Tunnel,
    /// By the user's policy only packets of established connections are forwarded, and it is of none that is
    /// known; the part of the table where its flow would be is full.
    NoRoom,
}

impl Reason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Reason; 28] = [
        Reason::OtherAddress,
        Reason::OtherProtocol,
        Reason::OtherVlan,
        Reason::Malformed,
        Reason::Policy,
        Reason::Options,
        Reason::Expired,
        Reason::Source,
        Reason::ReversePath,
        Reason::NoRoute,
        Reason::Kernel,
        Reason::Unresolved,
        Reason::TooBig,
        Reason::SamePort,
        Reason::Changing,
        Reason::NoRedirect,
        Reason::Stale,
        Reason::MultiBuffer,
        Reason::NotEstablished,
        Reason::Renewal,
        Reason::Closing,
        Reason::OtherPort,
        Reason::Rule,
        Reason::Window,
        Reason::NotLearned,
        Reason::NotAdopted,
        Reason::Tunnel,
        Reason::NoRoom,
    ];

    /// Its name, as metrics have it.
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// What it says of a packet, in a few words.
    pub fn meaning(self) -> &'static str {
        self.words().1
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Reason::OtherAddress => ("other-address", "for another link address"),
            Reason::OtherProtocol => ("other-protocol", "neither IPv4 nor IPv6"),
            Reason::OtherVlan => ("other-vlan", "of a VLAN that is not adopted"),
            Reason::Malformed => ("malformed", "headers are cut short or contradict each other"),
            Reason::Policy => {
                ("policy", "the port or family stays with the kernel by a rule, a filter or a setting")
            }
            Reason::Options => ("options", "has options, or a header for routers on its path"),
            Reason::Expired => ("expired", "its TTL or hop limit ends here"),
            Reason::Source => ("source", "its source may not be forwarded, or is an address of this machine"),
            Reason::ReversePath => {
                ("reverse-path", "the route back to its source is not what the port demands")
            }
            Reason::NoRoute => ("no-route", "no route to its destination"),
            Reason::Kernel => (
                "kernel-route",
                "its route is the kernel's: to this machine, to a link, to nowhere, or for some sources only",
            ),
            Reason::Unresolved => ("unresolved", "the neighbor's link address is not known"),
            Reason::TooBig => {
                ("too-big", "longer than the MTU of the output, or without room for a tunnel's header")
            }
            Reason::SamePort => {
                ("same-port", "would leave where it came, and the kernel may send a redirect")
            }
            Reason::Changing => ("changing", "routes changed meanwhile"),
            Reason::NoRedirect => ("deaf", "the output's driver sends nothing that XDP redirects"),
            Reason::Stale => ("stale", "the process has not renewed its programs' lease"),
            Reason::MultiBuffer => {
                ("multi-buffer", "in several buffers, which the output's driver does not send")
            }
            Reason::NotEstablished => ("not-established", "of no established connection that is known"),
            Reason::Renewal => ("renewal", "renews the kernel's entry of its connection"),
            Reason::Closing => {
                ("closing", "opens or closes its connection, or came behind what may have closed it")
            }
            Reason::OtherPort => ("other-port", "at another port than its connection is forwarded at"),
            Reason::Rule => ("rule", "of a connection that a rule stands in the way of"),
            Reason::Window => ("window", "of a connection of TCP whose windows the kernel must follow"),
            Reason::NotLearned => {
                ("not-learned", "its source is not known at that bridge member, or that forwards nothing")
            }
            Reason::NotAdopted => ("not-adopted", "would leave by an interface that is not adopted, or down"),
            Reason::Tunnel => (
                "tunnel",
                "its tunnel's header is the kernel's to put on or take off, or it goes into another",
            ),
            Reason::NoRoom => {
                ("no-room", "of no connection that is known, where the table of flows has no more room")
            }
        }
    }
}

/// What frames carry at least: shorter packets are filled up to that.
pub(super) const FILLED: usize = 46;

/// What chooses among the members of a group; not a number of high quality, but every bit
/// of the input counts.
pub(super) fn mix(hash: u32, word: u32) -> u32 {
    (hash ^ word).wrapping_mul(MULTIPLIER).rotate_left(15)
}
pub(super) const MULTIPLIER: u32 = 0x9e37_79b1;
