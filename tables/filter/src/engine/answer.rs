//! Packets that the filter sends itself: resets, challenges, handshakes in other hosts' place, errors.
use crate::dissect::{Dissected, address_from_u128};
use crate::facts::Family;
use crate::rule;
use crate::track::Peer;
use crate::translate::FiveTuple;
use artery_wire::{
    Icmp6Error, Icmp6Type, IcmpError, IcmpType, IpProtocol, Ipv4, Ipv6, Tcp, TcpFlags, checksum,
};
use std::net::IpAddr;

const TTL: u8 = 64;

/// A packet of the filter's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyPacket {
    /// The packet, from its header of IP on.
    pub bytes: Vec<u8>,
    /// Which end it is sent to.
    pub towards: ReplyDirection,
}

/// Where a packet of the filter's goes, seen from the packet that brought it about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyDirection {
    /// Back to where that came from.
    Sender,
    /// Where that would have gone.
    Receiver,
}

/// A segment without payload, in the making.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentBuilder {
    pub(super) ends: FiveTuple,
    pub(super) family: Family,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: TcpFlags,
    pub(super) window: u16,
    pub(super) segment_size: Option<u16>,
    pub(super) ttl: u8,
}

impl SegmentBuilder {
    /// Back to the sender of a packet.
    pub(super) fn reply_to(seen: &Dissected, flags: TcpFlags, seq: u32, ack: u32) -> SegmentBuilder {
        let ([a, b], [p, q]) = (seen.addresses, seen.ports);
        let ends = FiveTuple { addresses: [b, a], ports: [q, p] };
        SegmentBuilder { ends, family: seen.family, seq, ack, flags, window: 0, segment_size: None, ttl: TTL }
    }

    /// On to the receiver of a packet.
    pub(super) fn forward_to(seen: &Dissected, flags: TcpFlags, seq: u32, ack: u32) -> SegmentBuilder {
        let ends = FiveTuple { addresses: seen.addresses, ports: seen.ports };
        SegmentBuilder { ends, ..SegmentBuilder::reply_to(seen, flags, seq, ack) }
    }

    pub(super) fn into_reply(self, towards: ReplyDirection) -> ReplyPacket {
        ReplyPacket { bytes: self.build_bytes(), towards }
    }

    fn build_bytes(&self) -> Vec<u8> {
        let ip = if self.family == Family::Inet { Ipv4::<&[u8]>::MIN_LEN } else { Ipv6::<&[u8]>::LEN };
        let header = if self.segment_size.is_some() { 24 } else { 20 };
        let mut bytes = vec![0; ip + header];
        let [source, destination] = self.ends.addresses.map(|number| address_from_u128(number, self.family));
        self.write_tcp(&mut bytes[ip..]);
        let pseudo = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                checksum::pseudo_v4(source, destination, IpProtocol::TCP, header as u16)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                checksum::pseudo_v6(source, destination, IpProtocol::TCP, header as u32)
            }
            _ => 0,
        };
        let sum = !checksum::add(pseudo, checksum::sum(&bytes[ip..]));
        bytes[ip + 16..ip + 18].copy_from_slice(&sum.to_be_bytes());
        write_ip(&mut bytes, source, destination, self.ttl);
        bytes
    }

    fn write_tcp(&self, bytes: &mut [u8]) {
        let Ok(mut tcp) = Tcp::init(&mut *bytes) else { return };
        tcp.set_src_port(self.ends.ports[0]);
        tcp.set_dst_port(self.ends.ports[1]);
        tcp.set_seq(self.seq);
        tcp.set_ack(self.ack);
        tcp.set_flags(self.flags);
        tcp.set_window(self.window);
        if let Some(size) = self.segment_size {
            bytes[12] = 0x60;
            let [high, low] = size.to_be_bytes();
            bytes[20..24].copy_from_slice(&[2, 4, high, low]);
        }
    }
}

fn write_ip(bytes: &mut [u8], source: IpAddr, destination: IpAddr, ttl: u8) {
    let total = bytes.len();
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let Ok(mut ip) = Ipv4::init(bytes) else { return };
            ip.set_total_length(total as u16);
            ip.set_fragment(true, false, 0);
            ip.set_ttl(ttl);
            ip.set_protocol(IpProtocol::TCP);
            ip.set_src(source);
            ip.set_dst(destination);
            ip.fill_checksum();
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let Ok(mut ip) = Ipv6::init(bytes) else { return };
            ip.set_payload_length((total - Ipv6::<&[u8]>::LEN) as u16);
            ip.set_hop_limit(ttl);
            ip.set_next_header(IpProtocol::TCP);
            ip.set_src(source);
            ip.set_dst(destination);
        }
        _ => (),
    }
}

/// The reset that a segment gets that a rule blocks.
fn build_reset(seen: &Dissected, ttl: Option<u8>) -> ReplyPacket {
    let extra = [TcpFlags::SYN, TcpFlags::FIN].iter().filter(|flag| seen.flags.contains(**flag)).count();
    let end = seen.seq.wrapping_add(seen.payload).wrapping_add(extra as u32);
    let made = SegmentBuilder::reply_to(seen, TcpFlags::RST | TcpFlags::ACK, seen.ack, end);
    SegmentBuilder { ttl: ttl.unwrap_or(TTL), ..made }.into_reply(ReplyDirection::Sender)
}

/// The reset that a segment gets that belongs to no handshake that is known.
pub(super) fn reset_stray(seen: &Dissected) -> ReplyPacket {
    SegmentBuilder::reply_to(seen, TcpFlags::RST, seen.ack, 0).into_reply(ReplyDirection::Sender)
}

/// An acknowledgment from the other end, to which the sender of a SYN answers with a reset if it means it.
/// `moved` is what the sender sees the other's numbers moved by.
pub(super) fn build_challenge_ack(
    seen: &Dissected,
    source: &Peer,
    destination: &Peer,
    moved: u32,
) -> ReplyPacket {
    let seq = destination.low.wrapping_add(moved);
    let made = SegmentBuilder::reply_to(seen, TcpFlags::ACK, seq, source.low);
    SegmentBuilder { window: destination.max_window, ..made }.into_reply(ReplyDirection::Sender)
}

/// The reply to the sender of a blocked packet. A packet with a partial checksum has none yet
/// that could be wrong.
pub(super) fn to_blocked(
    bytes: &[u8],
    seen: &Dissected,
    answer: rule::BlockReturn,
    is_unfinished: bool,
) -> Option<ReplyPacket> {
    use rule::BlockReturn::{Drop, Icmp, Icmp6, Reset, Return};
    let is_intact = || is_unfinished || checksum_is_valid(bytes, seen);
    let unreachable = |told| match is_unfinished {
        true => build_icmp_error(&fill_checksum(bytes, seen), seen, told),
        false => build_icmp_error(bytes, seen, told),
    };
    let is_tcp = seen.protocol == IpProtocol::TCP && !seen.is_later_fragment;
    let is_reset = seen.flags.contains(TcpFlags::RST);
    match answer {
        Drop => None,
        Return | Reset(_) if is_tcp && is_reset => None,
        Return if is_tcp => is_intact().then(|| build_reset(seen, None)),
        Reset(ttl) if is_tcp => is_intact().then(|| build_reset(seen, ttl)),
        Reset(_) => None,
        Return if seen.protocol == IpProtocol::UDP => unreachable(None),
        Return => None,
        Icmp(four, six) => unreachable(Some(if seen.family == Family::Inet { four } else { six })),
        Icmp6(six) if seen.family == Family::Inet6 => unreachable(Some(six)),
        Icmp6(_) => None,
    }
}

/// Whether the checksum of a segment is right: who makes one up does not get it answered.
fn checksum_is_valid(bytes: &[u8], seen: &Dissected) -> bool {
    let segment = &bytes[seen.upper as usize..seen.end as usize];
    let pseudo = match (seen.address(0), seen.address(1)) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            checksum::pseudo_v4(source, destination, seen.protocol, segment.len() as u16)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            checksum::pseudo_v6(source, destination, seen.protocol, segment.len() as u32)
        }
        _ => 0,
    };
    checksum::is_valid(checksum::add(pseudo, checksum::sum(segment)))
}

/// An unfinished packet as it would have arrived: so it is quoted.
fn fill_checksum(bytes: &[u8], seen: &Dissected) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let segment = &mut bytes[seen.upper as usize..seen.end as usize];
    let sum = !checksum::sum(segment);
    let (at, sum) = match seen.protocol {
        IpProtocol::TCP => (16, sum),
        IpProtocol::UDP => (6, checksum::never_zero(sum)),
        _ => return bytes,
    };
    // A fragment may be without.
    segment.get_mut(at..at + 2).into_iter().for_each(|field| field.copy_from_slice(&sum.to_be_bytes()));
    bytes
}

/// An error about a packet, from the address that it was for: a switch has none of its own.
fn build_icmp_error(bytes: &[u8], seen: &Dissected, told: Option<(u8, u8)>) -> Option<ReplyPacket> {
    let bytes = match seen.address(1) {
        IpAddr::V4(source) => {
            let (icmp_type, code) = told.unwrap_or((IcmpType::UNREACHABLE.0, IcmpError::PORT));
            let error = IcmpError { icmp_type: IcmpType(icmp_type), code, rest: [0; 4] };
            error.answer_to(bytes, false, |_| false).ok()?.build_packet(bytes, source, 0)
        }
        IpAddr::V6(source) => {
            let (icmp_type, code) = told.unwrap_or((Icmp6Type::UNREACHABLE.0, Icmp6Error::PORT));
            let error = Icmp6Error { icmp_type: Icmp6Type(icmp_type), code, rest: 0 };
            error.answer_to(bytes, false).ok()?.build_packet(bytes, source)
        }
    };
    Some(ReplyPacket { bytes, towards: ReplyDirection::Sender })
}
