//! What the sender left to be done: checksums that were not finished and segments that were not cut.
//!
//! Hosts hand frames to virtual links with the transport checksum half made and with many segments in one,
//! for the network card to complete. A router that has no card in between must complete them itself. The kernel
//! describes both in a virtio-net header.
use artery_wire::{Ethernet, IpProtocol, Ipv4, Ipv6, Tcp, TcpFlags, Udp, checksum};

/// Bytes of a virtio-net header.
pub(crate) const VIRTIO_HEADER: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Set on segments whose sender reduced its window (CWR); the kind is in the other bits.
const GSO_ECN: u8 = 0x80;

/// What is left to be done with a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offload {
    /// Where the bytes to be summed start, and how far from there the sum goes.
    pub(crate) checksum: Option<(u16, u16)>,
    /// Protocol of the segments in the frame and the most payload of one.
    pub(crate) segments: Option<(IpProtocol, u16)>,
}

impl Offload {
    /// Reads a virtio-net header; a short one asks for nothing.
    pub(crate) fn parse(header: &[u8]) -> Offload {
        let Some(&[flags, gso, _, _, s0, s1, c0, c1, o0, o1]) = header.first_chunk::<VIRTIO_HEADER>() else {
            return Offload::default();
        };
        let size = u16::from_ne_bytes([s0, s1]);
        let protocol = match gso & !GSO_ECN {
            GSO_TCP4 | GSO_TCP6 => Some(IpProtocol::TCP),
            GSO_UDP => Some(IpProtocol::UDP),
            _ => None,
        };
        Offload {
            checksum: (flags & NEEDS_CHECKSUM != 0)
                .then(|| (u16::from_ne_bytes([c0, c1]), u16::from_ne_bytes([o0, o1]))),
            segments: protocol.filter(|_| size > 0).map(|protocol| (protocol, size)),
        }
    }
}

/// The description of a frame does not fit the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadOffload;

/// Finishes a checksum whose field holds the sum of the pseudo-header so far.
pub(crate) fn finish_checksum(frame: &mut [u8], start: u16, offset: u16) -> Result<(), BadOffload> {
    let covered = frame.get_mut(usize::from(start)..).ok_or(BadOffload)?;
    let sum = checksum::never_zero(checksum::checksum(covered));
    let field = covered.get_mut(usize::from(offset)..).and_then(|rest| rest.first_chunk_mut::<2>());
    *field.ok_or(BadOffload)? = sum.to_be_bytes();
    Ok(())
}

/// Cuts a frame into the segments that a network card would have sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cutter {
    network: usize,
    transport: usize,
    payload: usize,
    end: usize,
    size: usize,
    protocol: IpProtocol,
    v6: bool,
    /// Where the payload of the next segment starts.
    next: usize,
    /// Number of the next segment.
    index: u16,
}

impl Cutter {
    /// Looks at the headers of a frame; `None` when they are not what its description says.
    pub(crate) fn new(frame: &[u8], ethernet: bool, protocol: IpProtocol, size: u16) -> Option<Cutter> {
        let network = if ethernet { Ethernet::new(frame).ok()?.payload_offset() } else { 0 };
        let packet = frame.get(network..)?;
        let v6 = packet.first()? >> 4 == 6;
        let (found, header) = if v6 {
            (Ipv6::new(packet).ok()?.next_header(), 40)
        } else {
            let ip = Ipv4::new(packet).ok()?;
            (ip.protocol(), ip.header_len())
        };
        let transport = network + header;
        let segment = frame.get(transport..)?;
        let header = match protocol {
            IpProtocol::TCP => Tcp::new(segment).ok()?.header_len(),
            _ => Udp::new(segment).map(|_| 8).ok()?,
        };
        let (payload, size) = (transport + header, usize::from(size));
        let whole =
            found == protocol && payload < frame.len() && size > 0 && frame.len() - payload < MOST * size;
        whole.then_some(Cutter {
            network,
            transport,
            payload,
            end: frame.len(),
            size,
            protocol,
            v6,
            next: payload,
            index: 0,
        })
    }
    /// Length of the next segment with all its headers; `None` when there is none.
    pub(crate) fn next_len(&self) -> Option<usize> {
        (self.next < self.end).then(|| self.payload + self.size.min(self.end - self.next))
    }
    /// Writes the next segment of `frame`, the one that was looked at, to `into`, which has its length.
    pub(crate) fn write_next(&mut self, frame: &[u8], into: &mut [u8]) -> Result<(), BadOffload> {
        let (headers, payload) = into.split_at_mut_checked(self.payload).ok_or(BadOffload)?;
        let stop = self.next + payload.len();
        headers.copy_from_slice(frame.get(..self.payload).ok_or(BadOffload)?);
        payload.copy_from_slice(frame.get(self.next..stop).ok_or(BadOffload)?);
        self.fit_headers(into, stop >= self.end).ok_or(BadOffload)?;
        self.index = self.index.wrapping_add(1);
        self.next = stop;
        Ok(())
    }

    /// Makes the headers those of one segment.
    fn fit_headers(&self, segment: &mut [u8], last: bool) -> Option<()> {
        let pseudo = self.fit_network(&mut segment[self.network..])?;
        let transport = &mut segment[self.transport..];
        if self.protocol == IpProtocol::TCP {
            self.fit_tcp(Tcp::new(&mut *transport).ok()?, last);
        } else {
            let length = transport.len() as u16;
            let mut udp = Udp::new(&mut *transport).ok()?;
            udp.set_length(length);
            udp.set_checksum(0);
        }
        let sum = !checksum::add(pseudo, checksum::sum(transport));
        if self.protocol == IpProtocol::TCP {
            Tcp::new(transport).ok()?.set_checksum(sum);
        } else {
            Udp::new(transport).ok()?.set_checksum(checksum::never_zero(sum));
        }
        Some(())
    }
    /// Fits the network header; returns the sum of the pseudo-header.
    fn fit_network(&self, packet: &mut [u8]) -> Option<u16> {
        let total = u16::try_from(packet.len()).ok()?;
        let length = total.checked_sub((self.transport - self.network) as u16)?;
        if self.v6 {
            let mut ip = Ipv6::new(packet).ok()?;
            ip.set_payload_length(length);
            return Some(checksum::pseudo_v6(ip.src(), ip.dst(), self.protocol, u32::from(length)));
        }
        let mut ip = Ipv4::new(packet).ok()?;
        ip.set_total_length(total);
        ip.set_id(ip.id().wrapping_add(self.index));
        ip.fill_checksum();
        Some(checksum::pseudo_v4(ip.src(), ip.dst(), self.protocol, length))
    }
    /// Only the last segment ends or pushes the stream, only the first one reports a reduced window.
    fn fit_tcp(&self, mut tcp: Tcp<&mut [u8]>, last: bool) {
        let mut flags = tcp.flags().0;
        if !last {
            flags &= !(TcpFlags::FIN.0 | TcpFlags::PSH.0);
        }
        if self.index > 0 {
            flags &= !TcpFlags::CWR.0;
        }
        tcp.set_flags(TcpFlags(flags));
        tcp.set_seq(tcp.seq().wrapping_add((self.next - self.payload) as u32));
        tcp.set_checksum(0);
    }
}

/// Most segments of one frame: no sender makes more, and a broken description must not make millions.
const MOST: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::build::{ether, ip4, ip6};
    use proptest::prelude::*;

    const ETHERNET: usize = 14;

    fn frame(v6: bool, tcp: bool, vlan: bool, payload: &[u8]) -> Vec<u8> {
        let flags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::PSH.0 | TcpFlags::CWR.0 | TcpFlags::ACK.0);
        let ether = ether("02:00:00:00:00:01", "02:00:00:00:00:02");
        let ether = if vlan { ether.vlan(7) } else { ether };
        match (v6, tcp) {
            (false, true) => {
                ether.ip4(ip4().id(0xffff).tcp(1, 2).seq(u32::MAX).flags(flags).payload(payload))
            }
            (false, false) => ether.ip4(ip4().id(0xffff).udp(1, 2).payload(payload)),
            (true, true) => ether.ip6(ip6().tcp(1, 2).seq(u32::MAX).flags(flags).payload(payload)),
            (true, false) => ether.ip6(ip6().udp(1, 2).payload(payload)),
        }
        .bytes()
    }

    fn cut(frame: &[u8], protocol: IpProtocol, size: u16) -> Vec<Vec<u8>> {
        let mut cutter = Cutter::new(frame, true, protocol, size).expect("the headers are in order");
        let mut segments = Vec::new();
        while let Some(len) = cutter.next_len() {
            let mut segment = vec![0; len];
            cutter.write_next(frame, &mut segment).unwrap();
            segments.push(segment);
        }
        segments
    }

    /// The frame as a sender makes that hands out the same bytes a segment at a time.
    fn expected(
        whole: &[u8],
        v6: bool,
        tcp: bool,
        vlan: bool,
        chunk: &[u8],
        index: usize,
        at: usize,
    ) -> Vec<u8> {
        let mut bytes = frame(v6, tcp, vlan, chunk);
        let network = ETHERNET + if vlan { 4 } else { 0 };
        let last = at + chunk.len() == whole.len();
        let length = (bytes.len() - network - if v6 { 40 } else { 20 }) as u32;
        let (pseudo, transport) = if v6 {
            let ip = Ipv6::new(&bytes[network..]).unwrap();
            (checksum::pseudo_v6(ip.src(), ip.dst(), ip.next_header(), length), network + 40)
        } else {
            let mut ip = Ipv4::new(&mut bytes[network..]).unwrap();
            ip.set_id(0xffff_u16.wrapping_add(index as u16));
            ip.fill_checksum();
            (checksum::pseudo_v4(ip.src(), ip.dst(), ip.protocol(), length as u16), network + 20)
        };
        if tcp {
            let mut header = Tcp::new(&mut bytes[transport..]).unwrap();
            let mut flags = TcpFlags::ACK.0;
            flags |= if last { TcpFlags::FIN.0 | TcpFlags::PSH.0 } else { 0 };
            flags |= if index == 0 { TcpFlags::CWR.0 } else { 0 };
            header.set_flags(TcpFlags(flags));
            header.set_seq(u32::MAX.wrapping_add(at as u32));
            header.set_checksum(0);
            let sum = !checksum::add(pseudo, checksum::sum(&bytes[transport..]));
            Tcp::new(&mut bytes[transport..]).unwrap().set_checksum(sum);
        }
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn segments_are_what_a_sender_without_offloads_sends(
            v6: bool, tcp: bool, vlan: bool,
            payload in proptest::collection::vec(any::<u8>(), 1..5000),
            size in 100u16..1500,
        ) {
            let protocol = if tcp { IpProtocol::TCP } else { IpProtocol::UDP };
            let segments = cut(&frame(v6, tcp, vlan, &payload), protocol, size);
            let chunks: Vec<_> = payload.chunks(usize::from(size)).collect();
            prop_assert_eq!(segments.len(), chunks.len());
            for (index, (segment, chunk)) in segments.iter().zip(chunks).enumerate() {
                let at = index * usize::from(size);
                prop_assert_eq!(segment, &expected(&payload, v6, tcp, vlan, chunk, index, at));
            }
        }

        #[test]
        fn no_frame_and_description_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            header in proptest::collection::vec(any::<u8>(), 0..12),
            ethernet: bool, version in 4u8..7,
        ) {
            if let Some(first) = bytes.get_mut(if ethernet { ETHERNET } else { 0 }) {
                *first = version << 4 | 5;
            }
            let offload = Offload::parse(&header);
            if let Some((protocol, size)) = offload.segments
                && let Some(mut cutter) = Cutter::new(&bytes, ethernet, protocol, size)
            {
                while let Some(len) = cutter.next_len() {
                    prop_assert!(len <= bytes.len());
                    cutter.write_next(&bytes, &mut vec![0; len]).unwrap();
                }
            }
            if let Some((start, offset)) = offload.checksum {
                let inside = usize::from(start) + usize::from(offset) + 2 <= bytes.len();
                prop_assert_eq!(finish_checksum(&mut bytes, start, offset).is_ok(), inside);
            }
        }
    }

    #[test]
    fn a_checksum_left_unfinished_becomes_the_right_one() {
        let whole = frame(false, false, false, b"some payload");
        let mut partial = whole.clone();
        let ip = Ipv4::new(&whole[ETHERNET..]).unwrap();
        let pseudo = checksum::pseudo_v4(ip.src(), ip.dst(), ip.protocol(), 20);
        Udp::new(&mut partial[34..]).unwrap().set_checksum(pseudo);
        assert_eq!(finish_checksum(&mut partial, 34, 6), Ok(()));
        assert_eq!(partial, whole);
    }

    #[test]
    fn a_frame_that_is_not_what_its_description_says_is_not_cut() {
        let udp = frame(false, false, false, &[1; 3000]);
        assert_eq!(Cutter::new(&udp, true, IpProtocol::TCP, 1000), None);
        assert_eq!(Cutter::new(&udp[..40], true, IpProtocol::UDP, 1000), None, "headers cut off");
        assert_eq!(Cutter::new(&udp, false, IpProtocol::UDP, 1000), None, "there is a link header");
        assert_eq!(Cutter::new(&udp, true, IpProtocol::UDP, 0), None);
    }

    #[test]
    fn the_virtio_header_is_understood() {
        let mut header = [0; VIRTIO_HEADER];
        assert_eq!(Offload::parse(&header), Offload::default());
        header[0] = NEEDS_CHECKSUM;
        header[1] = GSO_TCP4 | GSO_ECN;
        for (at, value) in [(4, 1448_u16), (6, 34), (8, 16)] {
            header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        }
        let expected = Offload { checksum: Some((34, 16)), segments: Some((IpProtocol::TCP, 1448)) };
        assert_eq!(Offload::parse(&header), expected);
        assert_eq!(Offload::parse(&header[..9]), Offload::default());
    }
}
