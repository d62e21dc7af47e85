//! Which ends of a flow a rewriter looks at, and how packets get others.
use super::pattern::FlowId;
use super::rewriter::Timeouts;
use artery_engine::Packet;
use artery_wire::checksum;
use std::net::Ipv4Addr;
use std::time::Duration;

pub(super) const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
/// Types of ICMP messages (RFC 792).
const ECHO: u8 = 8;
const ECHO_REPLY: u8 = 0;
const UNSPECIFIED: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
/// Bits of a TCP connection's state: closed, and with data, in each direction.
const DONE: u8 = 1;
const DATA: u8 = 4;

/// Which packets a rewriter takes, and what tells their flows apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// TCP and UDP, each in a table of its own, by addresses and ports.
    TcpAndUdp,
    /// All protocols that have ports, in one table.
    AnyPorts,
    /// TCP.
    TcpOnly,
    /// ICMP echo requests and replies, by addresses and identifier. For a flow the identifier is a request's source
    /// port and a reply's destination port, and the other port is greater by one, which tells both apart.
    Echo,
    /// The source of packets that go forth, and the destination of replies.
    Source,
    /// Both addresses.
    Addresses,
}

pub(super) fn address(ip: &[u8], at: usize) -> Ipv4Addr {
    let bytes: [u8; 4] = ip[at..at + 4].try_into().expect("four bytes were taken");
    bytes.into()
}
pub(super) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
pub(super) fn is_first_fragment(ip: &[u8]) -> bool {
    word(ip, 6) & 0x1fff == 0
}

impl Ends {
    /// A packet's table and flow, and for those that know only one end, the flow that it replies to; none if it has no
    /// such ends.
    pub(super) fn of(self, packet: &Packet) -> Option<(usize, FlowId, Option<FlowId>)> {
        let ip = packet.network().filter(|ip| ip.len() >= 20 && ip[0] >> 4 == 4)?;
        let (src, dst) = (address(ip, 12), address(ip, 16));
        let ports = match packet.transport().filter(|_| is_first_fragment(ip)) {
            Some(header) => ports(ip[9], header),
            None => None,
        };
        self.of_ends(ip[9], src, dst, ports)
    }

    /// The same, of a packet between these addresses and, where it has such, ports.
    pub(super) fn of_ends(
        self,
        protocol: u8,
        src: Ipv4Addr,
        dst: Ipv4Addr,
        ports: Option<[u16; 2]>,
    ) -> Option<(usize, FlowId, Option<FlowId>)> {
        let of_addresses = |src, dst| FlowId { src, sport: 0, dst, dport: 0 };
        let table = match (self, protocol) {
            (Ends::Source, _) => {
                return Some((0, of_addresses(src, UNSPECIFIED), Some(of_addresses(UNSPECIFIED, dst))));
            }
            (Ends::Addresses, _) => return Some((0, of_addresses(src, dst), None)),
            (Ends::TcpAndUdp | Ends::TcpOnly, TCP) => 0,
            (Ends::TcpAndUdp, UDP) => 1,
            (Ends::AnyPorts, TCP | UDP | DCCP) => 0,
            (Ends::Echo, ICMP) => 0,
            _ => return None,
        };
        let [sport, dport] = ports?;
        Some((table, FlowId { src, sport, dst, dport }, None))
    }

    /// Whether a packet of an unknown flow begins one. A reply to an echo that nobody asked for doesn't.
    pub(super) fn begins(self, id: FlowId) -> bool {
        self != Ends::Echo || is_request(id)
    }

    /// What a flow becomes, with what follows from the rest of it.
    pub(super) fn complete(self, id: FlowId) -> FlowId {
        if self == Ends::Echo { FlowId { dport: id.sport.wrapping_add(1), ..id } } else { id }
    }

    /// Whether ports, or an identifier in their place, tell flows apart.
    pub(super) fn have_ports(self) -> bool {
        !matches!(self, Ends::Source | Ends::Addresses)
    }

    /// Whether a flow may become this.
    pub(super) fn allows(self, id: FlowId) -> bool {
        match self {
            Ends::Source => id.sport == 0 && id.dport == 0 && id.dst.is_unspecified(),
            Ends::Addresses => id.sport == 0 && id.dport == 0,
            Ends::Echo => is_request(id),
            _ => true,
        }
    }

    /// A flow and what it becomes, as handlers show it.
    pub(super) fn describe(self, id: FlowId, rewritten: FlowId) -> String {
        match self {
            Ends::Source => format!("{} => {}", id.src, rewritten.src),
            Ends::Addresses => format!("({}, {}) => ({}, {})", id.src, id.dst, rewritten.src, rewritten.dst),
            Ends::Echo => {
                let echo = |id: FlowId| format!("({}, {}, {})", id.src, id.dst, identifier(id));
                format!("{} => {}", echo(id), echo(rewritten))
            }
            _ => format!("{id} => {rewritten}"),
        }
    }
}

/// The ports of a transport header, as flows have them.
pub(super) fn ports(protocol: u8, header: &[u8]) -> Option<[u16; 2]> {
    match protocol {
        TCP | UDP | DCCP if header.len() >= 8 => Some([word(header, 0), word(header, 2)]),
        ICMP if header.len() >= 6 => {
            let identifier = word(header, 4);
            let other = identifier.wrapping_add(1);
            match header[0] {
                ECHO => Some([identifier, other]),
                ECHO_REPLY => Some([other, identifier]),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether packets with these ends are echo requests, and not replies.
fn is_request(id: FlowId) -> bool {
    id.dport == id.sport.wrapping_add(1)
}

/// The identifier of echoes with these ends.
pub(super) fn identifier(id: FlowId) -> u16 {
    if is_request(id) { id.sport } else { id.dport }
}

/// Gives a packet other ends; the destination, where that was looked at.
pub(super) fn rewrite(packet: &mut Packet, ends: Ends, direction: usize, to: FlowId) -> Option<Ipv4Addr> {
    let has_transport = packet.transport().map(<[u8]>::len).unwrap_or(0);
    let ip = packet.network_mut()?;
    let (src, dst) = match (ends, direction) {
        (Ends::Source, 0) => (to.src, address(ip, 16)),
        (Ends::Source, _) => (address(ip, 12), to.dst),
        _ => (to.src, to.dst),
    };
    let mut change = Change::default();
    change.replace(ip, 12, &src.octets());
    change.replace(ip, 16, &dst.octets());
    let header = change.update(word(ip, 10));
    ip[10..12].copy_from_slice(&header.to_be_bytes());
    let (protocol, is_first) = (ip[9], is_first_fragment(ip));
    let is_told = ends != Ends::Source || direction == 1;
    if let Some(header) = packet.transport_mut().filter(|_| is_first && has_transport >= 4) {
        if ends == Ends::Echo {
            rewrite_echo(header, identifier(to));
        } else if ends.have_ports() {
            change.replace(header, 0, &to.sport.to_be_bytes());
            change.replace(header, 2, &to.dport.to_be_bytes());
        }
        change.update_transport(protocol, header);
    }
    is_told.then_some(dst)
}

/// Gives an echo another identifier. ICMP's checksum does not cover addresses.
fn rewrite_echo(header: &mut [u8], identifier: u16) {
    let mut change = Change::default();
    change.replace(header, 4, &identifier.to_be_bytes());
    let mut sum = change.update(word(header, 2));
    // The one case that RFC 1624 can't tell: a message of zeros only, whose checksum is all ones.
    if sum == 0 && header[..2].iter().chain(&header[4..]).all(|byte| *byte == 0) {
        sum = 0xffff;
    }
    header[2..4].copy_from_slice(&sum.to_be_bytes());
}

/// What replaced words do to the checksums that cover them.
#[derive(Default)]
pub(super) struct Change {
    /// Both addresses and ports are six words, and of a packet in an ICMP error two checksums change as well.
    words: [(u16, u16); 8],
    count: usize,
}

impl Change {
    pub(super) fn replace(&mut self, bytes: &mut [u8], at: usize, with: &[u8]) {
        for (n, new) in with.chunks(2).enumerate() {
            let place = &mut bytes[at + 2 * n..at + 2 * n + 2];
            self.words[self.count] =
                (u16::from_be_bytes([place[0], place[1]]), u16::from_be_bytes([new[0], new[1]]));
            self.count += 1;
            place.copy_from_slice(new);
        }
    }
    pub(super) fn update(&self, sum: u16) -> u16 {
        self.words[..self.count].iter().fold(sum, |sum, (old, new)| checksum::update(sum, *old, *new))
    }
    /// Sets the checksum of TCP or UDP, where there is one.
    fn update_transport(&self, protocol: u8, header: &mut [u8]) {
        if let Some(at) = checksum_of_ends(protocol, header) {
            let sum = self.update(word(header, at));
            header[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// Where a transport header has the checksum that covers addresses and ports.
pub(super) fn checksum_of_ends(protocol: u8, header: &[u8]) -> Option<usize> {
    match protocol {
        TCP if header.len() >= 18 => Some(16),
        UDP if header.len() >= 8 && word(header, 6) != 0 => Some(6),
        _ => None,
    }
}

/// A flow's state after this packet.
pub(super) fn next_state(packet: &Packet, state: u8, direction: usize) -> u8 {
    let (Some(ip), Some(header)) = (packet.network(), packet.transport()) else { return state };
    if ip.get(9) != Some(&TCP) {
        // A reply was seen; three packets were.
        let replied = state | direction as u8;
        return if replied < 6 { replied + 2 } else { replied };
    }
    let (Some(offset), Some(flags)) = (header.get(12), header.get(13)) else { return state };
    let headers = usize::from(ip[0] & 0xf) * 4 + usize::from(offset >> 4) * 4;
    let has_data = headers < usize::from(word(ip, 2));
    let (fin, syn, rst) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
    let done = DONE << direction;
    let state = match () {
        () if rst => state | DONE | DONE << 1,
        () if fin => state | done,
        () if syn || has_data => state & !done,
        () => state,
    };
    if has_data { state | DATA << direction } else { state }
}

/// How long a flow in this state lives on.
pub(super) fn timeout(ends: Ends, table: usize, state: u8, timeouts: &Timeouts) -> Duration {
    let is_tcp = ends == Ends::TcpOnly || ends == Ends::TcpAndUdp && table == 0;
    let both = |bit: u8| state & (bit | bit << 1) == bit | bit << 1;
    match is_tcp {
        true if both(DONE) => timeouts.done,
        true if both(DATA) => timeouts.busy,
        false if state == 7 => timeouts.busy,
        _ => timeouts.idle,
    }
}
