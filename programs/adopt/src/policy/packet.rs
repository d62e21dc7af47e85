//! What is known of the packets of a direction of a connection that would be forwarded past rules.
//!
//! They have no SYN, FIN or RST, no IP option or extension header, and are no fragments; of ICMP they are
//! echoes. They arrive with the mark 0: what could set another one before rules see a packet (filters,
//! programs, chains at devices) keeps the port's packets in the kernel. All else differs from packet to
//! packet: lengths, TTL, type of service, other flags.
use super::value::{PartialBytes, Truth};
use crate::kernel::Family;
use std::net::IpAddr;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMP: u8 = 1;
pub(super) const ICMPV6: u8 = 58;
/// `RTN_UNICAST`.
const UNICAST: u32 = 1;
/// `IFNAMSIZ`.
const NAME_LENGTH: usize = 16;

/// Bits of a connection's state, as nftables has them (`NF_CT_STATE_BIT`).
pub(super) const STATE_INVALID: u32 = 1;
pub(super) const STATE_ESTABLISHED: u32 = 2;
pub(super) const STATE_NEW: u32 = 8;

/// An interface, as rules see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number for it.
    pub index: u32,
    /// Its name in `/sys/class/net`.
    pub name: String,
}

/// What is known of an interface of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Port<'a> {
    /// It may be any.
    Any,
    /// The packet has none yet.
    None,
    Is(&'a Interface),
}

/// What connection tracking says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It was not asked yet.
    Unknown,
    Established,
    /// It would, if the window were not as the kernel knows it.
    Invalid,
    /// It is the first one of its connection; of TCP, a SYN.
    New,
}

/// Addresses, and ports in network order; or an echo's identifier in both places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tuple {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) ports: [[u8; 2]; 2],
}

/// What is known of a packet where a chain sees it.
#[derive(Clone, Debug)]
pub(super) struct Packet<'a> {
    pub(super) family: Family,
    pub(super) protocol: u8,
    pub(super) source: Option<IpAddr>,
    pub(super) destination: Option<IpAddr>,
    /// Source and destination port.
    pub(super) ports: [Option<[u8; 2]>; 2],
    /// Type and code of an echo, and its identifier.
    pub(super) echo: [Option<[u8; 2]>; 2],
    pub(super) input: Port<'a>,
    pub(super) output: Port<'a>,
    pub(super) state: State,
    /// 0 for packets of who began the connection, 1 for the others.
    pub(super) direction: Option<u8>,
    /// Status bits, and which are known.
    pub(super) status: (u32, u32),
    /// What packets of both directions arrive with.
    pub(super) tuples: Option<[Tuple; 2]>,
    /// Whether routes lead to the source by `input`, and to the destination by `output`: neither is then an
    /// address of this machine, a broadcast or a multicast address.
    pub(super) is_routed: [bool; 2],
}

/// What a load gives.
pub(super) struct Loaded {
    pub(super) value: PartialBytes,
    /// Whether it is there; otherwise the rule ends.
    pub(super) is_there: Truth,
}

impl From<PartialBytes> for Loaded {
    fn from(value: PartialBytes) -> Loaded {
        Loaded { value, is_there: Truth::Yes }
    }
}

impl Loaded {
    pub(super) fn unknown(length: usize) -> Loaded {
        Loaded { value: PartialBytes::unknown(length), is_there: Truth::Unknown }
    }
}

/// Headers that rules read bytes of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    Network,
    Transport,
}

/// What rules know of interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortField {
    Index,
    Name,
}

/// What rules ask the kernel's routes about an address of the packet (`fib`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteField {
    /// The interface that they lead by.
    Port(PortField),
    /// Whether there is one, in a byte.
    IsThere,
    /// The address's type (`RTN_*`).
    Type,
}

/// Fields of an entry of connection tracking that a rule may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionField {
    State,
    Direction,
    Status,
    Protocol,
    /// Of the direction (0 or 1).
    Source(u8),
    Destination(u8),
    SourcePort(u8),
    DestinationPort(u8),
}

/// The octets of an address.
pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

impl Packet<'_> {
    /// Bytes of a header.
    pub(super) fn load_header(&self, header: Header, at: usize, length: usize) -> Loaded {
        let bytes = match header {
            Header::Network => self.network_header(),
            Header::Transport => self.transport_header(),
        };
        match at.checked_add(length).is_some_and(|end| end <= bytes.len()) {
            true => bytes.slice(at, length).into(),
            // There may be fewer.
            false => Loaded::unknown(length),
        }
    }

    fn network_header(&self) -> PartialBytes {
        let (length, source) = if self.family == Family::V4 { (20, 12) } else { (40, 8) };
        let mut bytes = PartialBytes::unknown(length);
        if self.family == Family::V4 {
            bytes.set_bits(0, 0x45, 0xff);
            // No fragment; "don't fragment" may be set or not.
            bytes.set_bits(6, 0, 0x3f);
            bytes.set_bits(7, 0, 0xff);
            bytes.set_bits(9, self.protocol, 0xff);
        } else {
            bytes.set_bits(0, 0x60, 0xf0);
            bytes.set_bits(6, self.protocol, 0xff);
        }
        let width = (length - source) / 2;
        for (place, address) in [(source, self.source), (source + width, self.destination)] {
            let address = address.map(octets).filter(|octets| octets.len() == width);
            address.into_iter().for_each(|octets| bytes.replace(place, &PartialBytes::known(octets)));
        }
        bytes
    }

    fn transport_header(&self) -> PartialBytes {
        let mut bytes = PartialBytes::unknown(if self.protocol == TCP { 20 } else { 8 });
        let mut place = |at: usize, value: Option<[u8; 2]>| {
            value.into_iter().for_each(|value| bytes.replace(at, &PartialBytes::known(value)));
        };
        match self.protocol {
            TCP | UDP => (0..2).for_each(|at| place(2 * at, self.ports[at])),
            _ => {
                place(0, self.echo[0]);
                place(4, self.echo[1]);
            }
        }
        if self.protocol == TCP {
            // ACK alone of SYN, FIN, RST and ACK; of the first one, SYN alone.
            bytes.set_bits(13, if self.state == State::New { 0x02 } else { 0x10 }, 0x17);
        }
        bytes
    }

    /// Whether bits of TCP's flags are these.
    pub(super) fn has_tcp_flags(&self, mask: u8, value: u8) -> Truth {
        let flags = self.transport_header();
        match flags.len() {
            20 => flags.slice(13, 1).mask_xor(&[mask], &[0]).equals(&[value]),
            _ => Truth::Unknown,
        }
    }

    /// What a rule reads of an interface.
    pub(super) fn load_port(&self, is_input: bool, field: PortField) -> Loaded {
        let length = if field == PortField::Index { 4 } else { NAME_LENGTH };
        match (if is_input { self.input } else { self.output }, field) {
            (Port::Any, _) => Loaded::unknown(length),
            (Port::None, _) => {
                Loaded { value: PartialBytes::known(vec![0; length]), is_there: Truth::Unknown }
            }
            (Port::Is(port), PortField::Index) => PartialBytes::known(port.index.to_ne_bytes()).into(),
            (Port::Is(port), PortField::Name) => {
                let mut name = port.name.clone().into_bytes();
                name.resize(NAME_LENGTH, 0);
                PartialBytes::known(name).into()
            }
        }
    }

    /// The mark. Of an established connection it is 0, since a rule that sets another one stands in the way.
    pub(super) fn load_mark(&self) -> Loaded {
        match self.state {
            State::New => Loaded::unknown(4),
            _ => PartialBytes::known([0; 4]).into(),
        }
    }

    /// What routes have for the source or the destination.
    pub(super) fn load_route(&self, is_source: bool, field: RouteField) -> Loaded {
        let is_routed = self.is_routed[usize::from(!is_source)];
        let port = if is_source { self.input } else { self.output };
        match field {
            RouteField::IsThere if is_routed => PartialBytes::known([1]).into(),
            RouteField::Type if is_routed => PartialBytes::known(UNICAST.to_ne_bytes()).into(),
            RouteField::Port(field) if is_routed && matches!(port, Port::Is(_)) => {
                self.load_port(is_source, field)
            }
            RouteField::IsThere => Loaded::unknown(1),
            RouteField::Type | RouteField::Port(PortField::Index) => Loaded::unknown(4),
            RouteField::Port(PortField::Name) => Loaded::unknown(NAME_LENGTH),
        }
    }

    /// Whether the type of an address is among those of a mask of bits (`1 << RTN_*`), as the match
    /// `addrtype` asks.
    pub(super) fn is_of_type(&self, is_source: bool, types: u16) -> Truth {
        /// Types that a route by a port excludes: unspecified, local, anycast, multicast, unreachable.
        const OTHER: u16 = 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 7;
        let is_unicast = types & 1 << UNICAST != 0;
        match (self.is_routed[usize::from(!is_source)], self.family) {
            (false, _) => Truth::Unknown,
            (true, Family::V4) => is_unicast.into(),
            // Of several types an address of IPv6 must have all.
            (true, Family::V6) if types == 1 << UNICAST => Truth::Yes,
            (true, Family::V6) if types & OTHER != 0 => Truth::No,
            (true, Family::V6) => Truth::Unknown,
        }
    }

    /// What a rule reads of the connection.
    pub(super) fn load_connection(&self, field: ConnectionField, length: usize) -> Loaded {
        let whole = |value: Vec<u8>| match value.len() == length {
            true => PartialBytes::known(value).into(),
            false => Loaded::unknown(length),
        };
        match (self.state, field) {
            (State::Invalid, ConnectionField::State) => return whole(STATE_INVALID.to_ne_bytes().to_vec()),
            (State::Established | State::New, _) => {}
            _ => return Loaded::unknown(length),
        }
        let tuple = |direction: u8| self.tuples.as_ref().map(|tuples| &tuples[usize::from(direction & 1)]);
        let value = match field {
            ConnectionField::State if self.state == State::New => Some(STATE_NEW.to_ne_bytes().to_vec()),
            ConnectionField::State => Some(STATE_ESTABLISHED.to_ne_bytes().to_vec()),
            ConnectionField::Direction => self.direction.map(|direction| vec![direction]),
            ConnectionField::Protocol => Some(vec![self.protocol]),
            ConnectionField::Status => {
                let (value, known) = (self.status.0.to_ne_bytes(), self.status.1.to_ne_bytes());
                let mut bytes = PartialBytes::unknown(4);
                (0..4).for_each(|at| bytes.set_bits(at, value[at], known[at]));
                return if length == 4 { bytes.into() } else { Loaded::unknown(length) };
            }
            ConnectionField::Source(of) => tuple(of).map(|tuple| octets(tuple.source)),
            ConnectionField::Destination(of) => tuple(of).map(|tuple| octets(tuple.destination)),
            // The value for an echo depends on the kernel.
            ConnectionField::SourcePort(_) | ConnectionField::DestinationPort(_)
                if ![TCP, UDP].contains(&self.protocol) =>
            {
                None
            }
            ConnectionField::SourcePort(of) => tuple(of).map(|tuple| tuple.ports[0].to_vec()),
            ConnectionField::DestinationPort(of) => tuple(of).map(|tuple| tuple.ports[1].to_vec()),
        };
        // The kernel compares no address with one of the other family.
        let is_other = |bytes: &Vec<u8>| {
            let is_address = matches!(field, ConnectionField::Source(_) | ConnectionField::Destination(_));
            is_address && [4, 16].contains(&length) && bytes.len() != length
        };
        match value {
            Some(bytes) if is_other(&bytes) => Loaded { is_there: Truth::No, ..Loaded::unknown(length) },
            value => value.map_or_else(|| Loaded::unknown(length), whole),
        }
    }
}
