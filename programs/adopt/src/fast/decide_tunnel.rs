//! The headers of tunnels, in plain code: what `program::tunnel`, `program::decapsulate` and
//! `program::pppoe` find, put on and take off.
use super::layout::*;
use super::memory::Memory;
use crate::kernel::TunnelProtocol;
use artery_wire::checksum;
use std::sync::atomic::Ordering::Acquire;

pub(super) const IPV4: usize = 20;
/// Most bytes of the header of a tunnel over IPv4.
pub(super) const LONGEST_HEADER: usize = header_length(TunnelProtocol::Gre);

/// The state of the bucket of a tunnel over IPv4 by which a packet arrived.
pub(super) fn find_tunnel(memory: &Memory, packet: &[u8]) -> Option<u32> {
    // An empty bucket has protocol 0, which is that of packets, too.
    let is_of_tunnel = [TunnelProtocol::Gre, TunnelProtocol::Ipip].map(protocol_number).contains(&packet[9]);
    let ends = [12, 16].map(|at| read_native(packet, at));
    find_bucket(memory, packet[9], ends, None).filter(|_| is_of_tunnel)
}

/// The state of the bucket of a tunnel of this kind, by what its headers have; of a session also by the port
/// that its frames arrive at.
pub(super) fn find_bucket(memory: &Memory, kind: u8, keys: [u32; 2], carrier: Option<u32>) -> Option<u32> {
    let of_bucket = |bucket: usize| {
        let words = &memory.tunnel_inputs[bucket * TUNNEL_BUCKET_WORDS..];
        let state = Some(words[TUNNEL_STATE].load(Acquire)).filter(|state| *state & 0xff == u32::from(kind));
        let is_it = keys == [0, 1].map(|word: usize| words[word].load(Acquire))
            && carrier.is_none_or(|carrier| carrier == words[TUNNEL_CARRIER].load(Acquire));
        state.filter(|_| is_it)
    };
    tunnel_buckets(keys[0], keys[1]).find_map(of_bucket)
}

/// The number of the tunnel's port that a bucket has by its state, and that port's flags.
pub(super) fn read_tunnel_port(memory: &Memory, state: u32) -> (u32, u32) {
    let port = state >> TUNNEL_PORT;
    (port, memory.ports[port as usize * PORT_WORDS + PORT_FLAGS].load(Acquire))
}

pub(super) fn is_same_fib(flags: u32, others: u32) -> bool {
    (flags ^ others) >> Flags::FIB & (MOST_FIBS - 1) == 0
}

/// Four bytes as this machine reads them: what chooses among hops needs no order of the network's.
pub(super) fn read_native(packet: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]])
}

/// Whether a record is the header of a session of PPPoE.
pub(super) fn is_of_session(words: [u32; TUNNEL_WORDS]) -> bool {
    words[TUNNEL_OPTIONS].to_ne_bytes()[0] == PPPOE
}

/// The number of the tunnel that a hop leads into; 0 for none.
pub(super) fn tunnel_number(hop: &[u32; HOP_WORDS]) -> usize {
    (hop[HOP_PORTS] >> HOP_TUNNEL) as usize % MOST_TUNNELS
}

/// The words of the tunnel that a hop leads into.
pub(super) fn read_tunnel(memory: &Memory, hop: &[u32; HOP_WORDS]) -> Option<[u32; TUNNEL_WORDS]> {
    let number = tunnel_number(hop);
    let words = &memory.tunnels[number * TUNNEL_WORDS..];
    (number != 0).then(|| std::array::from_fn(|n| words[n].load(Acquire)))
}

/// A packet behind the header of a tunnel. Its identification is any number; here it is 0.
pub(super) fn encapsulate(words: [u32; TUNNEL_WORDS], ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let [protocol, ttl, tos, _] = words[TUNNEL_OPTIONS].to_ne_bytes();
    let (packet_tos, packet_ttl) = match ether_type {
        0x0800 => (packet[1], packet[8]),
        _ => (packet[0] << 4 | packet[1] >> 4, packet[7]),
    };
    let gre = match protocol == protocol_number(TunnelProtocol::Gre) {
        true => [[0, 0], ether_type.to_be_bytes()].concat(),
        false => Vec::new(),
    };
    let tos = if tos & INHERITED_TOS == 0 { tos } else { packet_tos };
    let ecn = if packet_tos & 3 == 3 { 2 } else { packet_tos & 3 };
    let length = (IPV4 + gre.len() + packet.len()) as u16;
    let mut header = vec![0x45, tos & 0xfc | ecn];
    header.extend(length.to_be_bytes());
    header.extend([0, 0, 0x40, 0, if ttl == 0 { packet_ttl } else { ttl }, protocol, 0, 0]);
    header.extend(words[..TUNNEL_OPTIONS].iter().flat_map(|word| word.to_ne_bytes()));
    let sum = !checksum::sum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&header, &gre[..], packet].concat()
}

/// A packet behind the header of a session of PPPoE.
pub(super) fn enter_session(words: [u32; TUNNEL_WORDS], ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let protocol = PPP_PROTOCOLS.iter().find(|(_, of_link)| *of_link == ether_type);
    let protocol = protocol.expect("a packet of IPv4 or IPv6 is sent").0;
    let length = (2 + packet.len()) as u16;
    let [first, second, ..] = words[0].to_ne_bytes();
    let header = [PPPOE_DATA.to_be_bytes(), [first, second], length.to_be_bytes(), protocol.to_be_bytes()];
    [header.as_flattened(), packet].concat()
}
