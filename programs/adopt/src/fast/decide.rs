//! What becomes of a frame: the one decision, in plain code.
use super::decide_flow::{FlowHeaders, FlowMatch, NewTuple, match_flow};
use super::decide_tunnel::*;
use super::fdb::NEVER_AGES;
use super::layout::*;
use super::memory::Memory;
use artery_lpm::{Fib4FastReader, Fib6Reader, NO_GROUP};
use artery_rcu::Turn;
use artery_wire::checksum;
use std::sync::atomic::Ordering::Acquire;

/// The tables that a frame is decided by.
pub struct ForwardingTables<'a> {
    /// Ports, groups and hops.
    pub memory: &'a Memory,
    /// IPv4 routes, as the programs read them.
    pub ipv4: &'a Fib4FastReader,
    /// IPv6 routes, as the programs read them.
    pub ipv6: &'a Fib6Reader,
    /// The routes of VRFs.
    pub vrfs: &'a [VrfTables],
}

/// The routes of a VRF, as the programs read them.
pub struct VrfTables {
    /// The number of the FIB, from 1.
    pub number: u32,
    /// The routes of IPv4.
    pub ipv4: Fib4FastReader,
    /// The routes of IPv6.
    pub ipv6: Fib6Reader,
}

impl<'a> ForwardingTables<'a> {
    /// The tables for packets of a port, by its flags. For a FIB that is not there no program is, either.
    fn of_port(&self, flags: u32) -> Result<ForwardingTables<'a>, Reason> {
        let number = flags >> Flags::FIB & (MOST_FIBS - 1);
        let (ipv4, ipv6) = match self.vrfs.iter().find(|vrf| vrf.number == number) {
            Some(vrf) => (&vrf.ipv4, &vrf.ipv6),
            None if number == 0 => (self.ipv4, self.ipv6),
            None => return Err(Reason::Changing),
        };
        Ok(ForwardingTables { memory: self.memory, ipv4, ipv6, vrfs: self.vrfs })
    }
}

/// What becomes of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardDecision {
    /// The kernel gets it as it came.
    Kernel(Reason),
    /// The frame is sent by a port.
    Send {
        /// The number of the interface in the map of devices.
        device: u32,
        /// The frame that is sent.
        frame: Vec<u8>,
    },
}

const ETHERNET: usize = 14;
const TAG: usize = 4;
const IPV6: usize = 40;

/// A frame as its link header says, or the packet within one that arrived by a tunnel.
#[derive(Clone, Copy)]
struct ReceivedFrame {
    /// Its port, or that of its VLAN.
    port: u32,
    flags: u32,
    /// Where the IP header begins.
    network: usize,
    /// Bytes of the frame that are in the first buffer.
    first: usize,
    /// Of the packet within one of a tunnel, the bytes that it must have.
    within: Option<usize>,
}

/// What is asked of a packet's addresses.
struct PacketKey {
    received: ReceivedFrame,
    ether_type: u16,
    group: u32,
    hash: u32,
    size: PacketSize,
    /// What its flow says, if only packets of established connections are forwarded.
    flow: Option<FlowMatch>,
}

/// How long a packet is, and where it lies.
#[derive(Clone, Copy)]
struct PacketSize {
    /// Length in bytes, with all headers.
    length: usize,
    /// Whether it lies in several buffers.
    is_multi_buffer: bool,
}

/// Says what becomes of a frame that came by a port, in one buffer.
pub fn decide_frame(
    tables: &ForwardingTables<'_>,
    turn: &Turn<'_>,
    port: u32,
    frame: &[u8],
) -> ForwardDecision {
    decide_multi_buffer(tables, turn, port, frame, frame.len())
}

/// The same for a frame in several buffers, of which programs see only the `first` bytes in the first one.
pub fn decide_multi_buffer(
    tables: &ForwardingTables<'_>,
    turn: &Turn<'_>,
    port: u32,
    frame: &[u8],
    first: usize,
) -> ForwardDecision {
    match parse_frame(tables.memory, port, frame, first) {
        Ok((received, ether_type)) => decide_received(tables, turn, &received, ether_type, frame),
        Err(reason) => ForwardDecision::Kernel(reason),
    }
}

/// Says what becomes of a packet that came by a tunnel, whose port has this number. It is ours
/// whatever the addresses of its frame.
pub fn decide_within(
    tables: &ForwardingTables<'_>,
    turn: &Turn<'_>,
    port: u32,
    frame: &[u8],
) -> ForwardDecision {
    if frame.len() < ETHERNET + IPV4 {
        return ForwardDecision::Kernel(Reason::Malformed);
    }
    let (_, flags) = read_tunnel_port(tables.memory, port << TUNNEL_PORT);
    let (network, first) = (ETHERNET, frame.len());
    let received = ReceivedFrame { port, flags, network, first, within: Some(first - network) };
    match u16::from_be_bytes([frame[12], frame[13]]) {
        ether_type @ (0x0800 | 0x86dd) => decide_received(tables, turn, &received, ether_type, frame),
        _ => ForwardDecision::Kernel(Reason::OtherProtocol),
    }
}

fn decide_received(
    tables: &ForwardingTables<'_>,
    turn: &Turn<'_>,
    received: &ReceivedFrame,
    ether_type: u16,
    frame: &[u8],
) -> ForwardDecision {
    let kernel = ForwardDecision::Kernel;
    let packet = tables.of_port(received.flags).and_then(|tables| match ether_type {
        0x0800 => lookup_ipv4(&tables, turn, received, frame),
        0x86dd => lookup_ipv6(&tables, turn, received, frame),
        PPPOE_SESSION if tables.memory.has_tunnels => lookup_in_session(&tables, turn, received, frame),
        _ => Err(Reason::OtherProtocol),
    });
    let packet = match packet {
        Ok(packet) => packet,
        Err(reason) => return kernel(reason),
    };
    match hop(tables.memory, &packet, packet.received.port) {
        Ok(hop) => {
            let (network, ether_type) = (packet.received.network, packet.ether_type);
            let translation = packet.flow.and_then(|flow| flow.translation);
            let tunnel = read_tunnel(tables.memory, &hop);
            let length = tunnel.map_or(frame.len() - network, |_| packet.size.length);
            let packet = &frame[network..][..length];
            rewrite_frame(&hop, tunnel, ether_type, packet, translation.as_ref())
        }
        Err(reason) => kernel(reason),
    }
}

/// Looks at the link header.
fn parse_frame(
    memory: &Memory,
    port: u32,
    frame: &[u8],
    first: usize,
) -> Result<(ReceivedFrame, u16), Reason> {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    if first < ETHERNET + IPV4 {
        return Err(cut_short(frame, first));
    }
    let bridge = memory.fdb.as_ref().and_then(|fdb| fdb.bridge(port));
    let (port_of_member, port) = (port, bridge.unwrap_or(port));
    let (port, network, ether_type) = match word(12) {
        0x8100 if bridge.is_some() => return Err(Reason::OtherVlan),
        0x8100 if first < ETHERNET + TAG + IPV4 => return Err(cut_short(frame, first)),
        0x8100 => {
            let vlan = usize::from(word(14) & 0xfff);
            match memory.vlans[(port as usize) << 12 | vlan].load(Acquire) {
                0 => return Err(Reason::OtherVlan),
                of => (u32::from(of) - 1, ETHERNET + TAG, word(16)),
            }
        }
        ether_type => (port, ETHERNET, ether_type),
    };
    let record = &memory.ports[port as usize * PORT_WORDS..];
    let address = [record[0].load(Acquire).to_ne_bytes(), record[1].load(Acquire).to_ne_bytes()].concat();
    if frame[..6] != address[..6] {
        return Err(Reason::OtherAddress);
    }
    if bridge.is_some() {
        check_source(memory, port_of_member, frame)?;
    }
    let flags = record[PORT_FLAGS].load(Acquire);
    Ok((ReceivedFrame { port, flags, network, first, within: None }, ether_type))
}

/// Whether a bridge knows the source of a frame at a member, and need not see the frame to renew its entry.
/// Notes nothing, as programs do.
fn check_source(memory: &Memory, member: u32, frame: &[u8]) -> Result<(), Reason> {
    let source = std::array::from_fn(|n| frame[6 + n]);
    let found = memory.fdb.as_ref().and_then(|fdb| fdb.find(member, source));
    let (stamp, interval) = found.ok_or(Reason::NotLearned)?;
    let now = memory.lease.tick().unwrap_or(u64::MAX);
    if stamp == NEVER_AGES || now.wrapping_sub(stamp) < interval { Ok(()) } else { Err(Reason::Renewal) }
}

/// Why a frame goes to the kernel whose first buffer has not all headers.
fn cut_short(frame: &[u8], first: usize) -> Reason {
    if frame.len() > first { Reason::MultiBuffer } else { Reason::Malformed }
}

fn lookup_ipv4(
    tables: &ForwardingTables<'_>,
    turn: &Turn<'_>,
    received: &ReceivedFrame,
    frame: &[u8],
) -> Result<PacketKey, Reason> {
    let packet = &frame[received.network..];
    let word = |at: usize| u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
    let wanted = wanted_flags(tables.memory, Flags::IPV4, Flags::IPV4_ESTABLISHED);
    if received.flags & wanted == 0 {
        return Err(Reason::Policy);
    }
    match packet[0] {
        0x45 => {}
        byte if byte >> 4 == 4 && byte & 0xf > 5 => return Err(Reason::Options),
        _ => return Err(Reason::Malformed),
    }
    let length = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    if length < IPV4 {
        return Err(Reason::Malformed);
    }
    let size = check_size(received, frame, length)?;
    if checksum::sum(&packet[..IPV4]) != 0xffff {
        return Err(Reason::Malformed);
    }
    if packet[8] <= 1 {
        return Err(Reason::Expired);
    }
    let (source, destination) = (word(12), word(16));
    if [0, 127].contains(&packet[12]) || packet[12] >= 224 || is_own(tables.memory, own_bit_v4(source)) {
        return Err(Reason::Source);
    }
    let is_fragment = packet[6] & 0x3f != 0 || packet[7] != 0;
    let has_ports = [6, 17].contains(&packet[9]) && !is_fragment && packet.len() >= IPV4 + 4;
    let mut hash = mix(mix(0, read_native(packet, 12)), read_native(packet, 16));
    if received.flags & Flags::IPV4_PORTS != 0 && has_ports {
        hash = mix(hash, read_native(packet, IPV4));
    }
    if received.flags & Flags::REVERSE_PATH != 0 {
        let back = tables.ipv4.lookup(turn, source);
        let inputs = tables.memory.inputs[back as usize % MOST_GROUPS].load(Acquire);
        if inputs >> (received.flags >> Flags::INPUT & ROUTED) & 1 == 0 {
            return Err(Reason::ReversePath);
        }
    }
    if let Some((within, ether_type)) = enter_tunnel(tables.memory, received, &size, frame)? {
        return match ether_type {
            0x0800 => lookup_ipv4(tables, turn, &within, frame),
            0x86dd => lookup_ipv6(tables, turn, &within, frame),
            _ => Err(Reason::Tunnel),
        };
    }
    let mut flow = None;
    if received.flags & Flags::IPV4 == 0 {
        if is_fragment {
            return Err(Reason::NotEstablished);
        }
        let seen = &packet[..received.first - received.network];
        flow = Some(match_flow(
            tables.memory,
            received.port,
            &FlowHeaders::IPV4,
            seen,
            size.length,
            size.is_multi_buffer,
        )?);
    }
    let translation = flow.as_ref().and_then(|flow| flow.translation.as_ref());
    let destination = translation.map_or(destination, |new| read_number(&new.destination) as u32);
    let group = tables.ipv4.lookup(turn, destination);
    Ok(PacketKey { received: *received, ether_type: 0x0800, group, hash, size, flow })
}

fn lookup_ipv6(
    tables: &ForwardingTables<'_>,
    turn: &Turn<'_>,
    received: &ReceivedFrame,
    frame: &[u8],
) -> Result<PacketKey, Reason> {
    let packet = &frame[received.network..];
    let wanted = wanted_flags(tables.memory, Flags::IPV6, Flags::IPV6_ESTABLISHED);
    if received.flags & wanted == 0 {
        return Err(Reason::Policy);
    }
    if received.first < received.network + IPV6 {
        return Err(cut_short(frame, received.first));
    }
    if packet[0] >> 4 != 6 {
        return Err(Reason::Malformed);
    }
    let word = |at: usize| u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
    let address = |at: usize| (0..4).fold(0, |address, n| address << 32 | u128::from(word(at + 4 * n)));
    let length = IPV6 + usize::from(u16::from_be_bytes([packet[4], packet[5]]));
    let size = check_size(received, frame, length)?;
    if packet[6] == 0 {
        return Err(Reason::Options);
    }
    if packet[7] <= 1 {
        return Err(Reason::Expired);
    }
    let (source, destination) = (address(8), address(24));
    let is_strange = packet[8] == 0xff || source >> 112 == 0 || source >> 118 == 0xfe80 >> 6;
    if is_strange || is_own(tables.memory, own_bit_v6(source)) {
        return Err(Reason::Source);
    }
    let mut hash = (2..10).fold(0, |hash, n| mix(hash, read_native(packet, 4 * n)));
    if received.flags & Flags::IPV6_PORTS != 0 && [6, 17].contains(&packet[6]) && packet.len() >= IPV6 + 4 {
        hash = mix(hash, read_native(packet, IPV6));
    }
    let mut flow = None;
    if received.flags & Flags::IPV6 == 0 {
        let seen = &packet[..received.first - received.network];
        flow = Some(match_flow(
            tables.memory,
            received.port,
            &FlowHeaders::IPV6,
            seen,
            size.length,
            size.is_multi_buffer,
        )?);
    }
    let translation = flow.as_ref().and_then(|flow| flow.translation.as_ref());
    let destination = translation.map_or(destination, |new| read_number(&new.destination));
    let group = tables.ipv6.lookup(turn, destination);
    Ok(PacketKey { received: *received, ether_type: 0x86dd, group, hash, size, flow })
}

/// Looks up the packet in a frame of a session of PPPoE.
fn lookup_in_session(
    tables: &ForwardingTables<'_>,
    turn: &Turn<'_>,
    received: &ReceivedFrame,
    frame: &[u8],
) -> Result<PacketKey, Reason> {
    let packet = &frame[received.network..received.first];
    let Some((header, inner)) = packet.split_first_chunk::<PPPOE_LENGTH>() else {
        return Err(cut_short(frame, received.first));
    };
    if inner.len() < IPV4 {
        return Err(cut_short(frame, received.first));
    }
    if u16::from_be_bytes([header[0], header[1]]) != PPPOE_DATA {
        return Err(Reason::OtherProtocol);
    }
    if frame.len() > received.first {
        return Err(Reason::MultiBuffer);
    }
    let keys = [read_native(frame, 6), u32::from_ne_bytes([frame[10], frame[11], header[2], header[3]])];
    let state = find_bucket(tables.memory, PPPOE, keys, Some(received.port)).ok_or(Reason::OtherProtocol)?;
    let (port, flags) = read_tunnel_port(tables.memory, state);
    if !is_same_fib(flags, received.flags) {
        return Err(Reason::Tunnel);
    }
    let length = 6 + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let is_padded = length < packet.len() && packet.len() <= FILLED;
    if length != packet.len() && !is_padded {
        return Err(Reason::Malformed);
    }
    let number = u16::from_be_bytes([header[6], header[7]]);
    let is_it = |(protocol, _): &&(u16, u16)| *protocol == number;
    let (_, ether_type) = PPP_PROTOCOLS.iter().find(is_it).ok_or(Reason::OtherProtocol)?;
    let network = received.network + PPPOE_LENGTH;
    // Where this is below 0, no packet is as long.
    let within = Some(length.wrapping_sub(PPPOE_LENGTH));
    let within = ReceivedFrame { port, flags, network, within, ..*received };
    match ether_type {
        0x0800 => lookup_ipv4(tables, turn, &within, frame),
        _ => lookup_ipv6(tables, turn, &within, frame),
    }
}

/// The packet within one for this machine that arrived by an adopted tunnel, and its type; none where the
/// outer header is of no tunnel. What of it the kernel must take off goes there.
fn enter_tunnel(
    memory: &Memory,
    received: &ReceivedFrame,
    size: &PacketSize,
    frame: &[u8],
) -> Result<Option<(ReceivedFrame, u16)>, Reason> {
    let packet = &frame[received.network..received.first];
    let Some(state) = find_tunnel(memory, packet).filter(|_| memory.has_tunnels && received.within.is_none())
    else {
        return Ok(None);
    };
    if received.flags & Flags::IPV4 == 0 {
        return Err(Reason::Policy);
    }
    let header = (state >> TUNNEL_LENGTH & 0xff) as usize;
    let (port, flags) = read_tunnel_port(memory, state);
    let is_fragment = packet[6] & 0x3f != 0 || packet[7] != 0;
    if !is_same_fib(flags, received.flags)
        || is_fragment
        || size.length != packet.len()
        || packet.len() < header + IPV4
    {
        return Err(Reason::Tunnel);
    }
    let (outer, inner) = packet.split_at(header);
    let ether_type = match outer[IPV4..] {
        [] => 0x0800,
        [0, 0, high, low] => u16::from_be_bytes([high, low]),
        _ => return Err(Reason::Tunnel),
    };
    let within = if ether_type == 0x86dd { inner[1] >> 4 } else { inner[1] };
    match (outer[1] & 3, within & 3) {
        (0, _) | (2, 1..) => {}
        (outer, inner) if outer == inner => {}
        _ => return Err(Reason::Tunnel),
    }
    let (network, within) = (received.network + header, Some(inner.len()));
    Ok(Some((ReceivedFrame { port, flags, network, within, ..*received }, ether_type)))
}

/// The flags of a port of which one lets packets of a family be forwarded, if they pass further checks.
fn wanted_flags(memory: &Memory, all: u32, established: u32) -> u32 {
    if memory.looks_up_flows { all | established } else { all }
}

/// Checks that a packet of this length fills the frame, except for the padding of short frames.
fn check_size(received: &ReceivedFrame, frame: &[u8], length: usize) -> Result<PacketSize, Reason> {
    if let Some(within) = received.within {
        let size = PacketSize { length, is_multi_buffer: false };
        return if length == within { Ok(size) } else { Err(Reason::Malformed) };
    }
    let (seen, all) = (received.first - received.network, frame.len() - received.network);
    let is_padded = length < seen && seen <= FILLED;
    if is_padded || length == seen && length <= SURELY_IN_ONE_BUFFER {
        return Ok(PacketSize { length, is_multi_buffer: false });
    }
    if length != all {
        return Err(Reason::Malformed);
    }
    let is_multi_buffer = seen < all;
    if is_multi_buffer && seen < FIRST_BUFFER {
        return Err(Reason::MultiBuffer);
    }
    Ok(PacketSize { length, is_multi_buffer })
}

/// An address as a number.
fn read_number(address: &[u8]) -> u128 {
    address.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn is_own(memory: &Memory, bit: usize) -> bool {
    memory.own[bit / 8].load(Acquire) >> (bit % 8) & 1 != 0
}

/// The words of the next hop of a packet's flow.
fn hop(memory: &Memory, packet: &PacketKey, from: u32) -> Result<[u32; HOP_WORDS], Reason> {
    if packet.group == NO_GROUP {
        return Err(Reason::NoRoute);
    }
    let group = memory.groups[packet.group as usize % MOST_GROUPS].load(Acquire);
    let (first, count) = (group as u32, (group >> 32) as u32);
    let at = match count {
        0 => return Err(Reason::Kernel),
        1 => first,
        _ => {
            let spread = u64::from(packet.hash.wrapping_mul(MULTIPLIER));
            let member = first as usize + ((spread * u64::from(count)) >> 32) as usize;
            memory.members[member % MOST_MEMBERS].load(Acquire)
        }
    };
    let words = &memory.hops[at as usize % MOST_HOPS * HOP_WORDS..];
    let hop: [u32; HOP_WORDS] = std::array::from_fn(|n| words[n].load(Acquire));
    if hop[HOP_READY] != READY {
        return Err(Withheld::from_state(hop[HOP_READY]).map_or(Reason::Unresolved, Withheld::reason));
    }
    if packet.size.length > hop[HOP_MTU] as usize {
        return Err(Reason::TooBig);
    }
    let to = (hop[HOP_PORTS] >> 16) as usize % MOST_PORTS;
    let flags = memory.ports[to * PORT_WORDS + PORT_FLAGS].load(Acquire);
    let is_tunnel = tunnel_number(&hop) != 0;
    if packet.size.is_multi_buffer && (flags & Flags::MULTI_BUFFER == 0 || is_tunnel) {
        return Err(Reason::MultiBuffer);
    }
    let translation = packet.flow.as_ref().and_then(|flow| flow.translation.as_ref());
    if hop[HOP_PORTS] >> 16 == from && !translation.is_some_and(NewTuple::may_return) {
        return Err(Reason::SamePort);
    }
    if packet.flow.as_ref().is_some_and(|flow| flow.exit.is_some_and(|exit| exit as usize != to)) {
        return Err(Reason::OtherPort);
    }
    // A lease that can't be read is none.
    if !memory.lease.holds().unwrap_or(false) {
        return Err(Reason::Stale);
    }
    let is_session = read_tunnel(memory, &hop).is_some_and(is_of_session);
    match is_tunnel {
        true if packet.received.within.is_some() => Err(Reason::Tunnel),
        true if packet.size.length > usize::from(u16::MAX) - LONGEST_HEADER => Err(Reason::TooBig),
        true if packet.flow.is_some() && !is_session => Err(Reason::Policy),
        _ => Ok(hop),
    }
}

/// The frame as it leaves.
fn rewrite_frame(
    hop: &[u32; HOP_WORDS],
    tunnel: Option<[u32; TUNNEL_WORDS]>,
    ether_type: u16,
    packet: &[u8],
    translation: Option<&NewTuple>,
) -> ForwardDecision {
    let mut packet = packet.to_vec();
    if let Some(new) = translation {
        new.write(&mut packet);
    }
    match ether_type {
        0x0800 => {
            packet[8] -= 1;
            // As RFC 1624 has it, with what the kernel does where the sum becomes 0xffff.
            let sum = u16::from_be_bytes([packet[10], packet[11]]);
            let sum = if sum >= 0xfeff { sum.wrapping_add(0x0101) } else { sum + 0x0100 };
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        _ => packet[7] -= 1,
    }
    let (packet, ether_type) = match tunnel {
        Some(words) if is_of_session(words) => (enter_session(words, ether_type, &packet), PPPOE_SESSION),
        Some(words) => (encapsulate(words, ether_type, &packet), 0x0800),
        None => (packet, ether_type),
    };
    let tag = if hop[HOP_TAG] == 0 { 0 } else { 1 };
    let header = hop[..HOP_TAG + tag].iter().flat_map(|word| word.to_ne_bytes());
    let frame = header.chain(ether_type.to_be_bytes()).chain(packet).collect();
    ForwardDecision::Send { device: hop[HOP_PORTS] % MOST_PORTS as u32, frame }
}
