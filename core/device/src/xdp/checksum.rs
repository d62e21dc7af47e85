//! Checksums that a virtual link's sender left to a card that does not exist.
//!
//! Hosts hand TCP and UDP frames to virtual links with only the sum of the pseudo-header in the
//! checksum field, and a mark beside the frame. Redirection by XDP loses the mark, so the field itself
//! must tell: it holds exactly that sum. One frame in 65,536 that is complete does so too; it is known
//! by its checksum being right.
use artery_wire::{Ethernet, IpProtocol, Ipv4, Ipv6, checksum};

/// The most extension headers that are parsed.
const EXTENSIONS: usize = 8;

/// Finishes the transport checksum of an Ethernet frame if it was left unfinished; says whether it was.
#[inline]
pub(super) fn finish(frame: &mut [u8]) -> bool {
    let Some(segment) = TransportSegment::find(frame) else { return false };
    let Some(bytes) = frame.get_mut(segment.start..segment.end) else { return false };
    let field = segment.field;
    let Some(&[high, low]) = bytes.get(field..).and_then(|rest| rest.first_chunk::<2>()) else {
        return false;
    };
    let found = u16::from_be_bytes([high, low]);
    found == segment.pseudo && finish_segment(bytes, field, segment.pseudo)
}

fn finish_segment(bytes: &mut [u8], field: usize, pseudo: u16) -> bool {
    let sum = checksum::sum(bytes);
    if checksum::is_valid(checksum::add(sum, pseudo)) {
        return false;
    }
    // The field's own contribution to the sum is the pseudo-header's.
    bytes[field..field + 2].copy_from_slice(&checksum::never_zero(!sum).to_be_bytes());
    true
}

/// Where a frame has a TCP or UDP segment that is whole.
#[derive(Clone, Copy, Debug)]
struct TransportSegment {
    start: usize,
    end: usize,
    /// Where its checksum is, from its start.
    field: usize,
    /// Sum of its pseudo-header.
    pseudo: u16,
}

impl TransportSegment {
    #[inline]
    fn find(frame: &[u8]) -> Option<TransportSegment> {
        let network = Ethernet::new(frame).ok()?.payload_offset();
        let packet = frame.get(network..)?;
        match packet.first()? >> 4 {
            4 => TransportSegment::in_ipv4(packet, network),
            6 => TransportSegment::in_ipv6(packet, network),
            _ => None,
        }
    }
    #[inline]
    fn in_ipv4(packet: &[u8], network: usize) -> Option<TransportSegment> {
        let ip = Ipv4::new(packet).ok()?;
        let field = field_of(ip.protocol())?;
        let (header, total) = (ip.header_len(), ip.total_length());
        let length = total.checked_sub(header as u16)?;
        if ip.is_fragment() {
            return None;
        }
        let pseudo = checksum::pseudo_v4(ip.src(), ip.dst(), ip.protocol(), length);
        Some(TransportSegment { start: network + header, end: network + usize::from(total), field, pseudo })
    }
    fn in_ipv6(packet: &[u8], network: usize) -> Option<TransportSegment> {
        let ip = Ipv6::new(packet).ok()?;
        let end = 40 + usize::from(ip.payload_length());
        let (protocol, start) = behind_extensions(packet, ip.next_header())?;
        let length = end.checked_sub(start)?;
        let pseudo = checksum::pseudo_v6(ip.src(), ip.dst(), protocol, length as u32);
        Some(TransportSegment {
            start: network + start,
            end: network + end,
            field: field_of(protocol)?,
            pseudo,
        })
    }
}

/// Where a protocol's header has its checksum.
#[inline]
fn field_of(protocol: IpProtocol) -> Option<usize> {
    match protocol {
        IpProtocol::TCP => Some(16),
        IpProtocol::UDP => Some(6),
        _ => None,
    }
}

/// The protocol after hop-by-hop and destination options, and its offset. Senders complete checksums
/// themselves in packets that they fragment or source-route.
fn behind_extensions(packet: &[u8], first: IpProtocol) -> Option<(IpProtocol, usize)> {
    const HOP_BY_HOP: u8 = 0;
    const DESTINATION: u8 = 60;
    let (mut protocol, mut at) = (first, 40);
    for _ in 0..EXTENSIONS {
        if !matches!(protocol.0, HOP_BY_HOP | DESTINATION) {
            return Some((protocol, at));
        }
        let &[next, length] = packet.get(at..)?.first_chunk::<2>()?;
        (protocol, at) = (IpProtocol(next), at + 8 + 8 * usize::from(length));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::build::{ether, ip4, ip6};
    use proptest::prelude::*;

    /// A complete frame, and where its transport header starts.
    fn frame(v6: bool, tcp: bool, tags: usize, payload: &[u8]) -> (Vec<u8>, usize) {
        let ether = ether("02:00:00:00:00:01", "02:00:00:00:00:02");
        let bytes = match (v6, tcp) {
            (false, true) => ether.ip4(ip4().tcp(1, 2).payload(payload)),
            (false, false) => ether.ip4(ip4().udp(1, 2).payload(payload)),
            (true, true) => ether.ip6(ip6().tcp(1, 2).payload(payload)),
            (true, false) => ether.ip6(ip6().udp(1, 2).payload(payload)),
        }
        .bytes();
        let mut tagged = bytes[..12].to_vec();
        (0..tags).for_each(|n| {
            tagged.extend([if n + 1 < tags { 0x88 } else { 0x81 }, if n + 1 < tags { 0xa8 } else { 0 }, 0, 7])
        });
        tagged.extend(&bytes[12..]);
        (tagged, 14 + 4 * tags + if v6 { 40 } else { 20 })
    }
    /// Puts what a sender leaves into the checksum field; computed from the frame's bytes one by one.
    fn leave_unfinished(frame: &mut [u8], transport: usize, v6: bool, tcp: bool) {
        let length = (frame.len() - transport) as u32;
        let addresses = if v6 { &frame[transport - 32..transport] } else { &frame[transport - 8..transport] };
        let mut sum = length + if tcp { 6 } else { 17 };
        sum += addresses.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum::<u32>();
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        let field = transport + if tcp { 16 } else { 6 };
        frame[field..field + 2].copy_from_slice(&(sum as u16).to_be_bytes());
    }

    proptest! {
        #[test]
        fn what_was_left_is_finished_and_what_is_complete_stays(
            v6: bool, tcp: bool, tags in 0usize..3, padding in 0usize..20,
            payload in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let (mut whole, transport) = frame(v6, tcp, tags, &payload);
            let mut left = whole.clone();
            leave_unfinished(&mut left, transport, v6, tcp);
            whole.extend(vec![0xaa; padding]);
            left.extend(vec![0xaa; padding]);
            let mut same = whole.clone();
            prop_assert!(!finish(&mut same));
            prop_assert_eq!(&same, &whole);
            let was_left = left != whole;
            prop_assert_eq!(finish(&mut left), was_left);
            prop_assert_eq!(left, whole);
        }

        #[test]
        fn no_frame_panics_or_changes_but_in_its_checksum(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..120), version in 4u8..7, protocol: bool,
        ) {
            if bytes.len() > 24 {
                bytes[12..14].copy_from_slice(&if version == 6 { [0x86, 0xdd] } else { [8, 0] });
                bytes[14] = version << 4 | 5;
                bytes[23] = if protocol { 6 } else { 17 };
            }
            let before = bytes.clone();
            let finished = finish(&mut bytes);
            let changed = bytes.iter().zip(&before).filter(|(a, b)| a != b).count();
            prop_assert!(changed <= 2 * usize::from(finished));
        }
    }

    #[test]
    fn fragments_and_datagrams_without_checksum_stay() {
        let (mut fragment, transport) = frame(false, false, 0, &[1; 64]);
        leave_unfinished(&mut fragment, transport, false, false);
        fragment[20] |= 0x20;
        let before = fragment.clone();
        assert!(!finish(&mut fragment));
        assert_eq!(fragment, before);
        let (mut bare, transport) = frame(false, false, 0, b"none");
        bare[transport + 6..transport + 8].fill(0);
        assert!(!finish(&mut bare));
    }

    #[test]
    fn options_of_ipv6_are_looked_through() {
        let (plain, transport) = frame(true, true, 0, b"behind options");
        let mut left = plain.clone();
        leave_unfinished(&mut left, transport, true, true);
        let with_options = |frame: &[u8]| {
            let mut bytes = frame[..transport].to_vec();
            bytes[18..20].copy_from_slice(&((frame.len() - transport + 24) as u16).to_be_bytes());
            bytes[20] = 0;
            bytes.extend([60, 0, 1, 4, 0, 0, 0, 0]);
            bytes.extend([6, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            bytes.extend(&frame[transport..]);
            bytes
        };
        let mut left = with_options(&left);
        assert!(finish(&mut left));
        assert_eq!(left, with_options(&plain));
    }
}
