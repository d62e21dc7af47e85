//! Fragments of packets for the router itself, of both families in one form.
use super::verdict::IngressInfo;
use artery_common::reassembly::Reassembly;
use artery_wire::{Ip6Headers, IpProtocol, Ipv4, Ipv6};
use std::net::IpAddr;
use std::time::Duration;

/// How long fragments wait for the others (RFC 1122 section 3.3.2, RFC 8200 section 4.5).
const WAIT: Duration = Duration::from_secs(60);
/// Most bytes that wait.
const MOST_BYTES: usize = 256 << 10;
const HEADER4: usize = 20;
const HEADER6: usize = 40;

/// Which fragments belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LocalFragmentKey {
    pub(super) src: IpAddr,
    dst: IpAddr,
    id: u32,
}

/// A packet that is not all there.
pub(super) struct PartialLocalPacket {
    /// The ingress of the fragment that arrived first.
    pub(super) ingress: IngressInfo,
    /// The fragment with the start of the packet, as much of it as an error quotes.
    pub(super) first: Option<Vec<u8>>,
}

/// Packets that are not all there.
pub(super) type Fragments = Reassembly<LocalFragmentKey, PartialLocalPacket>;

pub(super) fn no_fragments() -> Fragments {
    Reassembly::new(WAIT, MOST_BYTES)
}

/// A fragment of a packet.
pub(super) struct Fragment {
    pub(super) whole: LocalFragmentKey,
    /// Whether the fragment has the packet's start.
    pub(super) is_first: bool,
    pub(super) as_v4: Vec<u8>,
}

pub(super) fn parse_ipv4_fragment(packet: &[u8]) -> Option<Fragment> {
    let ip = Ipv4::new(packet).ok()?;
    let whole = LocalFragmentKey { src: ip.src().into(), dst: ip.dst().into(), id: ip.id().into() };
    let as_v4 = packet.get(..ip.total_length().into())?.to_vec();
    Some(Fragment { whole, is_first: ip.fragment_offset() == 0, as_v4 })
}

/// An IPv6 fragment as an IPv4 one, since both state offsets the same way. Options in front of it are left
/// out, as the reply has none.
pub(super) fn parse_ipv6_fragment(packet: &[u8]) -> Option<Fragment> {
    let ip = Ipv6::new(packet).ok()?;
    let part = Ip6Headers::parse_packet(packet).ok()?.fragment?;
    let payload = packet.get(part.at + 8..HEADER6 + usize::from(ip.payload_length()))?;
    let whole = LocalFragmentKey { src: ip.src().into(), dst: ip.dst().into(), id: part.id };
    let mut bytes = vec![0; HEADER4];
    bytes.extend(payload);
    let length = u16::try_from(bytes.len()).ok()?;
    let mut header = Ipv4::init(&mut bytes[..HEADER4]).ok()?;
    header.set_total_length(length);
    header.set_fragment(false, part.more, part.offset);
    Some(Fragment { whole, is_first: part.offset == 0, as_v4: bytes })
}

/// The IPv6 packet whose fragments were reassembled as IPv4 ones; `last` is one of them.
pub(super) fn rebuild_ipv6(last: &[u8], assembled: &[u8]) -> Option<Vec<u8>> {
    let part = Ip6Headers::parse_packet(last).ok()?.fragment?;
    let (next, payload) = (*last.get(part.at)?, assembled.get(HEADER4..)?);
    let mut bytes = last.get(..HEADER6)?.to_vec();
    bytes.extend(payload);
    let length = u16::try_from(payload.len()).ok()?;
    let mut header = Ipv6::new(&mut bytes[..HEADER6]).ok()?;
    header.set_payload_length(length);
    header.set_next_header(IpProtocol(next));
    Some(bytes)
}
