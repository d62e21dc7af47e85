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
