//! The ends of a flow by which a rewriter looks it up, and the rewriting of packets.
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

/// Which packets a rewriter accepts, and which fields identify their flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RewriteKind {
    /// TCP and UDP, each in a table of its own, by addresses and ports.
    TcpAndUdp,
    /// All protocols that have ports, in one table.
    AnyPorts,
    TcpOnly,
    /// ICMP echo requests and replies, by addresses and identifier. In a flow the identifier is a
    /// request's source port and a reply's destination port. The other port is greater by one,
    /// which distinguishes the two.
    Echo,
    /// The source of packets that go forth, and the destination of replies.
    Source,
    /// Source and destination address, without ports.
    Addresses,
}

pub(super) fn read_ipv4(ip: &[u8], at: usize) -> Ipv4Addr {
    let bytes: [u8; 4] = ip[at..at + 4].try_into().expect("four bytes were taken");
    bytes.into()
}
pub(super) fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
pub(super) fn is_first_fragment(ip: &[u8]) -> bool {
    read_u16(ip, 6) & 0x1fff == 0
}

impl RewriteKind {
    /// A packet's table and flow, and for kinds that use only one end, the flow that it replies to. None if
    /// it has no such ends.
    pub(super) fn flow_of(self, packet: &Packet) -> Option<(usize, FlowId, Option<FlowId>)> {
        let ip = packet.network().filter(|ip| ip.len() >= 20 && ip[0] >> 4 == 4)?;
        let (src, dst) = (read_ipv4(ip, 12), read_ipv4(ip, 16));
        let ports = match packet.transport().filter(|_| is_first_fragment(ip)) {
            Some(header) => read_ports(ip[9], header),
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
            (RewriteKind::Source, _) => {
                return Some((0, of_addresses(src, UNSPECIFIED), Some(of_addresses(UNSPECIFIED, dst))));
            }
            (RewriteKind::Addresses, _) => return Some((0, of_addresses(src, dst), None)),
            (RewriteKind::TcpAndUdp | RewriteKind::TcpOnly, TCP) => 0,
            (RewriteKind::TcpAndUdp, UDP) => 1,
            (RewriteKind::AnyPorts, TCP | UDP | DCCP) => 0,
            (RewriteKind::Echo, ICMP) => 0,
            _ => return None,
        };
        let [sport, dport] = ports?;
        Some((table, FlowId { src, sport, dst, dport }, None))
    }

    /// Whether a packet of an unknown flow begins one. An unsolicited echo reply does not.
    pub(super) fn begins_flow(self, id: FlowId) -> bool {
        self != RewriteKind::Echo || is_request(id)
    }

    /// The rewritten flow, with the fields that follow from the others.
    pub(super) fn complete_flow(self, id: FlowId) -> FlowId {
        if self == RewriteKind::Echo { FlowId { dport: id.sport.wrapping_add(1), ..id } } else { id }
    }

    /// Whether ports, or an identifier instead, identify flows.
    pub(super) fn have_ports(self) -> bool {
        !matches!(self, RewriteKind::Source | RewriteKind::Addresses)
    }

    /// Whether a flow may be rewritten to this one.
    pub(super) fn allows_flow(self, id: FlowId) -> bool {
        match self {
            RewriteKind::Source => id.sport == 0 && id.dport == 0 && id.dst.is_unspecified(),
            RewriteKind::Addresses => id.sport == 0 && id.dport == 0,
            RewriteKind::Echo => is_request(id),
            _ => true,
        }
    }

    /// A flow and its rewritten form, as handlers print it.
    pub(super) fn describe_mapping(self, id: FlowId, rewritten: FlowId) -> String {
        match self {
            RewriteKind::Source => format!("{} => {}", id.src, rewritten.src),
            RewriteKind::Addresses => {
                format!("({}, {}) => ({}, {})", id.src, id.dst, rewritten.src, rewritten.dst)
            }
            RewriteKind::Echo => {
                let echo = |id: FlowId| format!("({}, {}, {})", id.src, id.dst, echo_identifier(id));
                format!("{} => {}", echo(id), echo(rewritten))
            }
            _ => format!("{id} => {rewritten}"),
        }
    }
}

/// The ports of a transport header, as flows have them.
pub(super) fn read_ports(protocol: u8, header: &[u8]) -> Option<[u16; 2]> {
    match protocol {
        TCP | UDP | DCCP if header.len() >= 8 => Some([read_u16(header, 0), read_u16(header, 2)]),
        ICMP if header.len() >= 6 => {
            let identifier = read_u16(header, 4);
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
pub(super) fn echo_identifier(id: FlowId) -> u16 {
    if is_request(id) { id.sport } else { id.dport }
}

/// Rewrites the ends of a packet; the destination only for kinds that use it.
pub(super) fn rewrite_packet(
    packet: &mut Packet,
    ends: RewriteKind,
    direction: usize,
    to: FlowId,
) -> Option<Ipv4Addr> {
    let has_transport = packet.transport().map(<[u8]>::len).unwrap_or(0);
    let ip = packet.network_mut()?;
    let (src, dst) = match (ends, direction) {
        (RewriteKind::Source, 0) => (to.src, read_ipv4(ip, 16)),
        (RewriteKind::Source, _) => (read_ipv4(ip, 12), to.dst),
        _ => (to.src, to.dst),
    };
    let mut change = ChecksumChange::default();
    change.replace_bytes(ip, 12, &src.octets());
    change.replace_bytes(ip, 16, &dst.octets());
    let header = change.update_checksum(read_u16(ip, 10));
    ip[10..12].copy_from_slice(&header.to_be_bytes());
    let (protocol, is_first) = (ip[9], is_first_fragment(ip));
    let is_told = ends != RewriteKind::Source || direction == 1;
    if let Some(header) = packet.transport_mut().filter(|_| is_first && has_transport >= 4) {
        if ends == RewriteKind::Echo {
            rewrite_echo(header, echo_identifier(to));
        } else if ends.have_ports() {
            change.replace_bytes(header, 0, &to.sport.to_be_bytes());
            change.replace_bytes(header, 2, &to.dport.to_be_bytes());
        }
        change.update_transport(protocol, header);
    }
    is_told.then_some(dst)
}

/// Sets the identifier of an echo message. ICMP's checksum does not cover addresses.
fn rewrite_echo(header: &mut [u8], identifier: u16) {
    let mut change = ChecksumChange::default();
    change.replace_bytes(header, 4, &identifier.to_be_bytes());
    let mut sum = change.update_checksum(read_u16(header, 2));
    // The one case that RFC 1624 can't distinguish: a message of zeros only, whose checksum is all ones.
    if sum == 0 && header[..2].iter().chain(&header[4..]).all(|byte| *byte == 0) {
        sum = 0xffff;
    }
    header[2..4].copy_from_slice(&sum.to_be_bytes());
}

/// What replaced words do to the checksums that cover them.
#[derive(Default)]
pub(super) struct ChecksumChange {
    /// Both addresses and ports are six words, and of a packet in an ICMP error two checksums change as well.
    words: [(u16, u16); 8],
    count: usize,
}

impl ChecksumChange {
    pub(super) fn replace_bytes(&mut self, bytes: &mut [u8], at: usize, with: &[u8]) {
        for (n, new) in with.chunks(2).enumerate() {
            let place = &mut bytes[at + 2 * n..at + 2 * n + 2];
            self.words[self.count] =
                (u16::from_be_bytes([place[0], place[1]]), u16::from_be_bytes([new[0], new[1]]));
            self.count += 1;
            place.copy_from_slice(new);
        }
    }
    pub(super) fn update_checksum(&self, sum: u16) -> u16 {
        self.words[..self.count].iter().fold(sum, |sum, (old, new)| checksum::update(sum, *old, *new))
    }
    /// Sets the checksum of TCP or UDP, where there is one.
    fn update_transport(&self, protocol: u8, header: &mut [u8]) {
        if let Some(at) = checksum_of_ends(protocol, header) {
            let sum = self.update_checksum(read_u16(header, at));
            header[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// Where a transport header has the checksum that covers addresses and ports.
pub(super) fn checksum_of_ends(protocol: u8, header: &[u8]) -> Option<usize> {
    match protocol {
        TCP if header.len() >= 18 => Some(16),
        UDP if header.len() >= 8 && read_u16(header, 6) != 0 => Some(6),
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
    let has_data = headers < usize::from(read_u16(ip, 2));
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
pub(super) fn flow_timeout(ends: RewriteKind, table: usize, state: u8, timeouts: &Timeouts) -> Duration {
    let is_tcp = ends == RewriteKind::TcpOnly || ends == RewriteKind::TcpAndUdp && table == 0;
    let both = |bit: u8| state & (bit | bit << 1) == bit | bit << 1;
    match is_tcp {
        true if both(DONE) => timeouts.done,
        true if both(DATA) => timeouts.busy,
        false if state == 7 => timeouts.busy,
        _ => timeouts.idle,
    }
}
