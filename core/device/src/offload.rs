//! Conversion between the kernel's virtio-net headers and packets' offload records.
//!
//! Hosts hand frames to virtual links with the transport checksum half made and with many segments in one,
//! for a network card to complete. The kernel describes both in a virtio-net header (virtio 1.2, section
//! 5.1.6), and takes the same description back with frames that it is given.
use artery_packet::{InvalidOffload, Packet, PacketOffload, SegmentKind, Segments};
use artery_wire::{Ethernet, Ipv4, Ipv6, Tcp, TcpFlags};

/// Bytes of a virtio-net header.
pub(crate) const VIRTIO_HEADER: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Set on segments whose sender reduced its window (CWR); the kind is in the other bits.
const GSO_ECN: u8 = 0x80;

/// What a virtio-net header says about a frame. Offsets count from the start of the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VirtioOffload {
    /// Where the bytes to be summed start, and how far from there the sum goes.
    checksum: Option<(u16, u16)>,
    /// Kind of the segments in the frame and the most payload of one.
    segments: Option<(SegmentKind, u16)>,
}

impl VirtioOffload {
    /// Reads a virtio-net header; a short one leaves nothing to be done.
    pub(crate) fn parse(header: &[u8]) -> VirtioOffload {
        let Some(&[flags, gso, _, _, s0, s1, c0, c1, o0, o1]) = header.first_chunk::<VIRTIO_HEADER>() else {
            return VirtioOffload::default();
        };
        let size = u16::from_ne_bytes([s0, s1]);
        let kind = match gso & !GSO_ECN {
            GSO_TCP4 => Some(SegmentKind::Tcp4),
            GSO_TCP6 => Some(SegmentKind::Tcp6),
            GSO_UDP => Some(SegmentKind::Udp),
            _ => None,
        };
        VirtioOffload {
            checksum: (flags & NEEDS_CHECKSUM != 0)
                .then(|| (u16::from_ne_bytes([c0, c1]), u16::from_ne_bytes([o0, o1]))),
            segments: kind.filter(|_| size > 0).map(|kind| (kind, size)),
        }
    }

    /// Records on a packet, which is the frame, the offloads that are left to be done. A description that
    /// does not fit the frame is refused.
    #[inline]
    pub(crate) fn apply_to(self, packet: &mut Packet, ethernet: bool) -> Result<(), InvalidOffload> {
        match (self.segments, self.checksum) {
            (None, None) => Ok(()),
            (None, Some((start, offset))) => set_checksum(packet, start, offset),
            (Some((kind, size)), checksum) => {
                set_segments(packet, ethernet, kind, size, checksum.map(|(start, _)| usize::from(start)))
            }
        }
    }
}

fn set_checksum(packet: &mut Packet, start: u16, offset: u16) -> Result<(), InvalidOffload> {
    if usize::from(start) + usize::from(offset) + 2 > packet.len() {
        return Err(InvalidOffload);
    }
    packet.set_offload(PacketOffload { transport: start as isize, checksum: offset, segments: None })
}

#[cold]
fn set_segments(
    packet: &mut Packet,
    ethernet: bool,
    kind: SegmentKind,
    size: u16,
    transport: Option<usize>,
) -> Result<(), InvalidOffload> {
    let network =
        if ethernet { Ethernet::new(packet.data()).map_err(|_| InvalidOffload)?.payload_offset() } else { 0 };
    let transport = match transport {
        Some(transport) => transport,
        None => network + network_header_len(packet.data().get(network..).ok_or(InvalidOffload)?)?,
    };
    let place = |offset: usize| isize::try_from(offset).map_err(|_| InvalidOffload);
    let segments = Some(Segments { network: place(network)?, kind, size });
    let checksum = if kind == SegmentKind::Udp { 6 } else { 16 };
    packet.set_offload(PacketOffload { transport: place(transport)?, checksum, segments })?;
    packet.verify_segments()
}

fn network_header_len(packet: &[u8]) -> Result<usize, InvalidOffload> {
    match packet.first().ok_or(InvalidOffload)? >> 4 {
        6 => Ipv6::new(packet).map(|_| 40).map_err(|_| InvalidOffload),
        _ => Ipv4::new(packet).map(|ip| ip.header_len()).map_err(|_| InvalidOffload),
    }
}

/// The virtio-net header that describes a packet's pending offloads to the kernel.
#[inline]
pub(crate) fn describe(packet: &Packet) -> Result<[u8; VIRTIO_HEADER], InvalidOffload> {
    match packet.offload() {
        None => Ok([0; VIRTIO_HEADER]),
        Some(left) => describe_unfinished(packet, left),
    }
}

fn describe_unfinished(packet: &Packet, left: PacketOffload) -> Result<[u8; VIRTIO_HEADER], InvalidOffload> {
    let start = u16::try_from(left.transport).map_err(|_| InvalidOffload)?;
    let transport = packet.data().get(usize::from(start)..).ok_or(InvalidOffload)?;
    if usize::from(left.checksum) + 2 > transport.len() {
        return Err(InvalidOffload);
    }
    let (kind, size, headers) = match left.segments {
        None => (0, 0, 0),
        Some(Segments { kind, size, .. }) => {
            let (kind, header_len) = match kind {
                SegmentKind::Udp => (GSO_UDP, 8),
                SegmentKind::Fragments4 | SegmentKind::Fragments6 { .. } => return Err(InvalidOffload),
                kind => tcp_kind(kind, transport)?,
            };
            (kind, size, start + header_len)
        }
    };
    let [h0, h1] = headers.to_ne_bytes();
    let [s0, s1] = size.to_ne_bytes();
    let [c0, c1] = start.to_ne_bytes();
    let [o0, o1] = left.checksum.to_ne_bytes();
    Ok([NEEDS_CHECKSUM, kind, h0, h1, s0, s1, c0, c1, o0, o1])
}

/// The kind of a TCP packet's segments, and the length of its TCP header.
fn tcp_kind(kind: SegmentKind, transport: &[u8]) -> Result<(u8, u16), InvalidOffload> {
    let tcp = Tcp::new(transport).map_err(|_| InvalidOffload)?;
    let kind = if kind == SegmentKind::Tcp4 { GSO_TCP4 } else { GSO_TCP6 };
    let reduced = if tcp.flags().0 & TcpFlags::CWR.0 != 0 { GSO_ECN } else { 0 };
    Ok((kind | reduced, tcp.header_len() as u16))
}

/// The longest segment of a packet with the header of its network, which a link's MTU bounds; `None` for a
/// packet that is not to be cut.
pub(crate) fn longest_segment(packet: &Packet) -> Option<usize> {
    let segments = packet.offload()?.segments?;
    Some(packet.segment_len(usize::try_from(segments.network).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_packet::{Batch, Pool};
    use artery_wire::build::{ether, ip4, ip6};
    use artery_wire::{IpProtocol, checksum};
    use proptest::prelude::*;

    thread_local! {
        static POOL: &'static Pool = Pool::new(256, 8).unwrap();
    }
    fn pool() -> &'static Pool {
        POOL.with(|pool| *pool)
    }

    fn header(flags: u8, gso: u8, size: u16, start: u16, offset: u16) -> [u8; VIRTIO_HEADER] {
        let mut header = [flags, gso, 0, 0, 0, 0, 0, 0, 0, 0];
        for (at, value) in [(4, size), (6, start), (8, offset)] {
            header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        }
        header
    }

    fn tcp4(payload: usize) -> Vec<u8> {
        let flags = TcpFlags(TcpFlags::ACK.0 | TcpFlags::CWR.0);
        let ip = ip4().tcp(1, 2).flags(flags).payload(vec![7; payload]);
        ether("02:00:00:00:00:01", "02:00:00:00:00:02").ip4(ip).bytes()
    }

    proptest! {
        #[test]
        fn a_description_that_fits_comes_back_as_it_went(
            payload in 2usize..4000,
            size in 1u16..1500,
            v6: bool,
        ) {
            let frame = if v6 {
                let ip = ip6().tcp(1, 2).payload(vec![7; payload]);
                ether("02:00:00:00:00:01", "02:00:00:00:00:02").ip6(ip).bytes()
            } else {
                tcp4(payload)
            };
            let start = if v6 { 54 } else { 34 };
            let gso = if v6 { GSO_TCP6 } else { GSO_TCP4 | GSO_ECN };
            let mut packet = pool().packet_from(&frame).unwrap();
            let mut asked = header(NEEDS_CHECKSUM, gso, size, start, 16);
            VirtioOffload::parse(&asked).apply_to(&mut packet, true).unwrap();
            asked[2..4].copy_from_slice(&(start + 20).to_ne_bytes());
            prop_assert_eq!(describe(&packet), Ok(asked));
        }
    }

    #[test]
    fn the_virtio_header_is_understood() {
        let bytes = header(NEEDS_CHECKSUM, GSO_TCP4 | GSO_ECN, 1448, 34, 16);
        let expected = VirtioOffload { checksum: Some((34, 16)), segments: Some((SegmentKind::Tcp4, 1448)) };
        assert_eq!(VirtioOffload::parse(&bytes), expected);
        assert_eq!(VirtioOffload::parse(&bytes[..9]), VirtioOffload::default());
        assert_eq!(VirtioOffload::parse(&[0; VIRTIO_HEADER]), VirtioOffload::default());
    }

    #[test]
    fn a_checksum_without_segments_may_be_anywhere_in_the_frame() {
        let mut packet = pool().packet_from(&[0; 60]).unwrap();
        let bytes = header(NEEDS_CHECKSUM, 0, 0, 34, 24);
        VirtioOffload::parse(&bytes).apply_to(&mut packet, true).unwrap();
        assert_eq!(describe(&packet), Ok(bytes));
        packet.trim(1).unwrap();
        assert_eq!(describe(&packet), Err(InvalidOffload), "its field was cut off");
        let outside = header(NEEDS_CHECKSUM, 0, 0, 34, 25);
        let mut packet = pool().packet_from(&[0; 60]).unwrap();
        assert_eq!(VirtioOffload::parse(&outside).apply_to(&mut packet, true), Err(InvalidOffload));
    }

    #[test]
    fn segments_without_a_word_on_the_checksum_have_it_left_too() {
        let mut packet = pool().packet_from(&tcp4(3000)).unwrap();
        VirtioOffload::parse(&header(0, GSO_TCP4, 1000, 0, 0)).apply_to(&mut packet, true).unwrap();
        let described = describe(&packet).unwrap();
        assert_eq!(described[0], NEEDS_CHECKSUM);
        assert_eq!(longest_segment(&packet), Some(1040));
        let mut batch = Batch::default();
        batch.push(packet);
        batch.apply_offloads();
        let ip = Ipv4::new(&batch.iter().next().unwrap().data()[14..]).unwrap();
        let pseudo = checksum::pseudo_v4(ip.src(), ip.dst(), IpProtocol::TCP, 1020);
        let sum = checksum::add(pseudo, checksum::sum(ip.payload()));
        assert!(checksum::is_valid(sum));
    }

    #[test]
    fn segments_of_another_kind_than_the_frame_are_refused() {
        for (gso, ethernet) in [(GSO_UDP, true), (GSO_TCP6, true), (GSO_TCP4, false)] {
            let mut packet = pool().packet_from(&tcp4(3000)).unwrap();
            let offload = VirtioOffload::parse(&header(NEEDS_CHECKSUM, gso, 1000, 34, 16));
            assert_eq!(offload.apply_to(&mut packet, ethernet), Err(InvalidOffload), "{gso} {ethernet}");
        }
    }
}
