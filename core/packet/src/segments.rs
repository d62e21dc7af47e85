//! Cutting a long packet into the segments that a network card would have sent.
use crate::fragments::Fragments;
use crate::packet::{InvalidOffload, PacketOffload, STRIPPED, SegmentKind};
use crate::{Batch, Packet, pool};
use artery_wire::{IpProtocol, Ipv4, Ipv6, Tcp, TcpFlags, Udp, checksum};

/// Most segments of one packet: no sender makes more, and a broken record must not make millions.
const MOST: usize = 8192;

/// Where things are in a long packet. Found once, it makes every segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SegmentPlan {
    network: usize,
    transport: usize,
    payload: usize,
    end: usize,
    size: usize,
    kind: SegmentKind,
    v6: bool,
}

/// What has become of packets that were finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffloadStats {
    /// Packets that were cut.
    pub cut: u64,
    /// Packets dropped because they were not what their records said.
    pub malformed: u64,
    /// Packets dropped, wholly or from some segment on, because the pool was empty.
    pub pool_empty: u64,
}

impl Packet {
    /// Whether it is to be cut into segments.
    fn has_segments(&self) -> bool {
        self.offload().is_some_and(|left| left.segments.is_some())
    }
    /// Bytes from the network header to the end of the longest segment: what the MTU of a link is compared
    /// with. For a packet that is not to be cut, or whose record does not fit it, all from `network` on.
    pub fn segment_len(&self, network: usize) -> usize {
        let whole = self.len().saturating_sub(network);
        match self.offload() {
            Some(PacketOffload { segments: Some(segments), .. }) if segments.kind.is_fragments() => {
                whole.min(segments.size.into())
            }
            Some(left) if left.segments.is_some() => SegmentPlan::from_packet(self)
                .map_or(whole, |plan| whole.min(plan.payload + plan.size - plan.network)),
            _ => whole,
        }
    }
    /// Checks that the headers are what the record of segments says, and makes the checksum field what the
    /// record promises: the sum of the pseudo-header. For records from a source that is not to be trusted.
    pub fn verify_segments(&mut self) -> Result<(), InvalidOffload> {
        let plan = SegmentPlan::from_packet(self).ok_or(InvalidOffload)?;
        let length = u32::try_from(plan.end - plan.transport).map_err(|_| InvalidOffload)?;
        let pseudo = plan.pseudo_sum(self.data(), length).ok_or(InvalidOffload)?;
        plan.set_checksum(&mut self.data_mut()[plan.transport..], pseudo).ok_or(InvalidOffload)
    }
}

impl Batch {
    /// Finishes every packet: makes checksums that were left and cuts long packets into segments, which take
    /// their places. The batch may become longer than [`BATCH`](crate::BATCH).
    #[inline]
    pub fn apply_offloads(&mut self) -> OffloadStats {
        if self.iter().any(Packet::has_offload) { self.apply_all_offloads() } else { OffloadStats::default() }
    }
    #[cold]
    fn apply_all_offloads(&mut self) -> OffloadStats {
        let mut finished = OffloadStats::default();
        if self.iter().any(Packet::has_segments) {
            let packets: Vec<Packet> = self.drain().collect();
            for packet in packets {
                if packet.has_segments() {
                    cut_segments(packet, self, &mut finished)
                } else {
                    self.push(packet)
                }
            }
        }
        self.packets_mut().retain_mut(|packet| {
            let is_sound = packet.apply_checksum().is_ok();
            finished.malformed += u64::from(!is_sound);
            is_sound
        });
        finished
    }
}

/// Adds the segments of a packet to a batch.
fn cut_segments(mut whole: Packet, into: &mut Batch, finished: &mut OffloadStats) {
    // What was stripped goes with every segment, to be put back there.
    let stripped = STRIPPED.min(whole.headroom());
    let Some(pieces) = whole.unstrip(stripped).ok().and_then(|()| Pieces::from_packet(&whole)) else {
        finished.malformed += 1;
        return;
    };
    finished.cut += 1;
    for index in 0..pieces.count() {
        match pieces.build_piece(&whole, index) {
            Ok(Some(mut segment)) => {
                let _ = segment.strip(stripped);
                into.push(segment);
            }
            Ok(None) => {
                finished.pool_empty += 1;
                return;
            }
            Err(InvalidOffload) => {
                finished.malformed += 1;
                return;
            }
        }
    }
}

/// What a packet is cut into.
enum Pieces {
    Segments(SegmentPlan),
    Fragments(Fragments),
}

impl Pieces {
    fn from_packet(packet: &Packet) -> Option<Pieces> {
        match packet.needs_fragments() {
            true => Fragments::from_packet(packet).map(Pieces::Fragments),
            false => SegmentPlan::from_packet(packet).map(Pieces::Segments),
        }
    }
    fn count(&self) -> usize {
        match self {
            Pieces::Segments(plan) => plan.count(),
            Pieces::Fragments(fragments) => fragments.count(),
        }
    }
    fn build_piece(&self, whole: &Packet, index: usize) -> Result<Option<Packet>, InvalidOffload> {
        match self {
            Pieces::Segments(plan) => plan.build_segment(whole, index),
            Pieces::Fragments(fragments) => fragments.build_fragment(whole, index),
        }
    }
}

impl SegmentPlan {
    /// Looks at the headers of a packet; `None` when they are not what its record says, or it has none.
    fn from_packet(packet: &Packet) -> Option<SegmentPlan> {
        let left = packet.offload()?;
        let segments = left.segments?;
        let (network, transport) =
            (usize::try_from(segments.network).ok()?, usize::try_from(left.transport).ok()?);
        let frame = packet.data();
        let kind = segments.kind;
        let (protocol, field, version) = match kind {
            SegmentKind::Tcp4 => (IpProtocol::TCP, 16, Some(false)),
            SegmentKind::Tcp6 => (IpProtocol::TCP, 16, Some(true)),
            SegmentKind::Udp => (IpProtocol::UDP, 6, None),
            SegmentKind::Fragments4 | SegmentKind::Fragments6 { .. } => return None,
        };
        let header = frame.get(network..)?;
        let between = transport.checked_sub(network)?;
        let (v6, leads_there) = match header.first()? >> 4 {
            // Behind extension headers the transport header is where the sender says.
            6 => (true, Ipv6::new(header).ok()?.next_header() == protocol && between == 40 || between > 40),
            _ => (
                false,
                Ipv4::new(header).is_ok_and(|ip| ip.protocol() == protocol && between == ip.header_len()),
            ),
        };
        let segment = frame.get(transport..)?;
        let payload = transport
            + match kind {
                SegmentKind::Udp => Udp::new(segment).map(|_| 8).ok()?,
                _ => Tcp::new(segment).ok()?.header_len(),
            };
        let size = usize::from(segments.size);
        let fits = leads_there
            && version.is_none_or(|version| version == v6)
            && left.checksum == field
            && payload < frame.len()
            && size > 0
            && frame.len() - payload < MOST * size;
        fits.then_some(SegmentPlan { network, transport, payload, end: frame.len(), size, kind, v6 })
    }
    fn count(&self) -> usize {
        (self.end - self.payload).div_ceil(self.size)
    }
    fn protocol(&self) -> IpProtocol {
        if self.kind == SegmentKind::Udp { IpProtocol::UDP } else { IpProtocol::TCP }
    }
    /// The sum of the pseudo-header of a transport packet of `length` bytes.
    fn pseudo_sum(&self, frame: &[u8], length: u32) -> Option<u16> {
        let packet = frame.get(self.network..)?;
        Some(if self.v6 {
            let ip = Ipv6::new(packet).ok()?;
            checksum::pseudo_v6(ip.src(), ip.dst(), self.protocol(), length)
        } else {
            let ip = Ipv4::new(packet).ok()?;
            checksum::pseudo_v4(ip.src(), ip.dst(), self.protocol(), length as u16)
        })
    }
    fn set_checksum(&self, transport: &mut [u8], sum: u16) -> Option<()> {
        if self.kind == SegmentKind::Udp {
            Udp::new(transport).ok()?.set_checksum(sum);
        } else {
            Tcp::new(transport).ok()?.set_checksum(sum);
        }
        Some(())
    }

    /// One segment, with the metadata of the whole; `None` when the pool is empty.
    fn build_segment(&self, whole: &Packet, index: usize) -> Result<Option<Packet>, InvalidOffload> {
        let from = self.payload + index * self.size;
        let until = self.end.min(from + self.size);
        let frame = whole.data();
        let Some(mut segment) = pool::owner_of(whole.meta()).alloc_packet_for(self.payload + until - from)
        else {
            return Ok(None);
        };
        let bytes = segment.append(self.payload + until - from).map_err(|_| InvalidOffload)?;
        let (headers, payload) = bytes.split_at_mut(self.payload);
        headers.copy_from_slice(&frame[..self.payload]);
        payload.copy_from_slice(&frame[from..until]);
        self.fit_headers(bytes, index, until == self.end).ok_or(InvalidOffload)?;
        segment.copy_metadata(whole);
        segment.clear_offload();
        Ok(Some(segment))
    }
    /// Makes the headers those of one segment.
    fn fit_headers(&self, segment: &mut [u8], index: usize, last: bool) -> Option<()> {
        self.fit_network(&mut segment[self.network..], index)?;
        let length = segment.len() - self.transport;
        let pseudo = self.pseudo_sum(segment, u32::try_from(length).ok()?)?;
        let transport = &mut segment[self.transport..];
        if self.kind == SegmentKind::Udp {
            Udp::new(&mut *transport).ok()?.set_length(u16::try_from(length).ok()?);
        } else {
            self.fit_tcp(Tcp::new(&mut *transport).ok()?, index, last);
        }
        self.set_checksum(transport, 0)?;
        let sum = !checksum::add(pseudo, checksum::sum(transport));
        self.set_checksum(
            transport,
            if self.kind == SegmentKind::Udp { checksum::never_zero(sum) } else { sum },
        )
    }
    fn fit_network(&self, packet: &mut [u8], index: usize) -> Option<()> {
        let total = u16::try_from(packet.len()).ok()?;
        if self.v6 {
            Ipv6::new(packet).ok()?.set_payload_length(total.checked_sub(40)?);
        } else {
            let mut ip = Ipv4::new(packet).ok()?;
            ip.set_total_length(total);
            ip.set_id(ip.id().wrapping_add(index as u16));
            ip.fill_checksum();
        }
        Some(())
    }
    /// Only the last segment ends or pushes the stream, only the first one reports a reduced window.
    fn fit_tcp(&self, mut tcp: Tcp<&mut [u8]>, index: usize, last: bool) {
        let mut flags = tcp.flags().0;
        if !last {
            flags &= !(TcpFlags::FIN.0 | TcpFlags::PSH.0);
        }
        if index > 0 {
            flags &= !TcpFlags::CWR.0;
        }
        tcp.set_flags(TcpFlags(flags));
        tcp.set_seq(tcp.seq().wrapping_add((index * self.size) as u32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Segments;
    use crate::{Pool, Time};
    use artery_wire::build::{ether, ip4, ip6};
    use proptest::prelude::*;

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

    fn left(v6: bool, tcp: bool, vlan: bool, size: u16) -> PacketOffload {
        let network = if vlan { 18 } else { 14 };
        let kind = match (v6, tcp) {
            (_, false) => SegmentKind::Udp,
            (false, true) => SegmentKind::Tcp4,
            (true, true) => SegmentKind::Tcp6,
        };
        let transport = network + if v6 { 40 } else { 20 };
        let segments = Some(Segments { network, kind, size });
        PacketOffload { transport, checksum: if tcp { 16 } else { 6 }, segments }
    }

    fn long(pool: &'static Pool, bytes: &[u8], left: PacketOffload) -> Packet {
        let mut packet = pool.packet_from(bytes).unwrap();
        packet.set_offload(left).unwrap();
        packet
    }

    /// The frame as a sender makes that hands out the same bytes a segment at a time.
    fn expected(whole: usize, [v6, tcp, vlan]: [bool; 3], chunk: &[u8], index: usize, at: usize) -> Vec<u8> {
        let mut bytes = frame(v6, tcp, vlan, chunk);
        let network = if vlan { 18 } else { 14 };
        let last = at + chunk.len() == whole;
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

    thread_local! {
        static POOL: &'static Pool = Pool::new(256, 8).unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 64 }))]

        #[test]
        fn segments_are_what_a_sender_without_offloads_sends(
            v6: bool,
            tcp: bool,
            vlan: bool,
            payload in proptest::collection::vec(any::<u8>(), 1..5000),
            size in 100u16..1500,
        ) {
            let pool = POOL.with(|pool| *pool);
            let mut batch = Batch::default();
            batch.push(pool.packet_from(b"before").unwrap());
            batch.push(long(pool, &frame(v6, tcp, vlan, &payload), left(v6, tcp, vlan, size)));
            batch.push(pool.packet_from(b"behind").unwrap());
            prop_assert_eq!(batch.apply_offloads(), OffloadStats { cut: 1, ..OffloadStats::default() });
            let segments: Vec<Packet> = batch.drain().collect();
            let chunks: Vec<_> = payload.chunks(usize::from(size)).collect();
            prop_assert_eq!(segments.len(), chunks.len() + 2);
            prop_assert_eq!(segments[0].data(), b"before");
            prop_assert_eq!(segments[chunks.len() + 1].data(), b"behind");
            for (index, (segment, chunk)) in segments[1..].iter().zip(chunks).enumerate() {
                let at = index * usize::from(size);
                let expected = expected(payload.len(), [v6, tcp, vlan], chunk, index, at);
                prop_assert_eq!(segment.data(), expected);
                prop_assert!(!segment.has_offload());
            }
        }

        #[test]
        fn no_bytes_and_record_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            network in -20isize..120,
            header in prop_oneof![Just(20isize), Just(40), 0isize..100],
            kind in prop_oneof![Just(SegmentKind::Tcp4), Just(SegmentKind::Tcp6), Just(SegmentKind::Udp)],
            size in prop_oneof![0u16..3, any::<u16>()],
            checksum in prop_oneof![Just(16u16), Just(6), any::<u16>()],
            version in 4u8..7,
            single: bool,
        ) {
            if let Some(first) = usize::try_from(network).ok().and_then(|at| bytes.get_mut(at)) {
                *first = version << 4 | 5;
            }
            let pool = POOL.with(|pool| *pool);
            let segments = (!single).then_some(Segments { network, kind, size });
            let mut packet = pool.packet_from(&bytes).unwrap();
            prop_assume!(
                packet.set_offload(PacketOffload { transport: network + header, checksum, segments }).is_ok()
            );
            prop_assert!(packet.segment_len(0) <= bytes.len());
            let _ = packet.verify_segments();
            let mut batch = Batch::default();
            batch.push(packet);
            let finished = batch.apply_offloads();
            prop_assert!(batch.iter().all(|packet| !packet.has_offload()));
            prop_assert!(finished.cut + finished.malformed + batch.len() as u64 > 0);
        }
    }

    #[test]
    fn segments_carry_the_notes_on_the_whole() {
        let pool = Pool::new(64, 2).unwrap();
        let mut packet = long(pool, &frame(false, true, false, &[1; 3000]), left(false, true, false, 1000));
        packet.set_in_port(9);
        packet.set_timestamp(Time::new(5, 6));
        packet.set_annotation(20, [1, 2, 3, 4]);
        packet.set_headers(14, 20);
        let mut batch = Batch::default();
        batch.push(packet);
        batch.apply_offloads();
        assert_eq!(batch.len(), 3);
        for segment in &batch {
            assert_eq!((segment.in_port(), segment.timestamp()), (9, Time::new(5, 6)));
            assert_eq!((segment.annotation(20), segment.transport_offset()), ([1, 2, 3, 4], Some(34)));
        }
    }

    #[test]
    fn what_was_stripped_can_be_put_back_on_every_segment() {
        let pool = Pool::new(64, 2).unwrap();
        let bytes = frame(false, true, true, &[1; 3000]);
        let mut packet = long(pool, &bytes, left(false, true, true, 1000));
        packet.strip(18).unwrap();
        let mut batch = Batch::default();
        batch.push(packet);
        batch.apply_offloads();
        assert_eq!(batch.len(), 3);
        for segment in &mut batch {
            assert_eq!((segment.len(), segment.data()[0]), (1040, 0x45));
            segment.unstrip(18).unwrap();
            assert_eq!(segment.data()[..18], bytes[..18]);
        }
    }

    #[test]
    fn the_mtu_is_compared_with_a_segment() {
        let pool = Pool::new(64, 2).unwrap();
        let bytes = frame(false, true, false, &[1; 3000]);
        assert_eq!(long(pool, &bytes, left(false, true, false, 1000)).segment_len(14), 1040);
        let found = long(pool, &bytes, left(false, true, false, 4000)).segment_len(14);
        assert_eq!(found, 3040, "one that is short");
        assert_eq!(pool.packet_from(&bytes).unwrap().segment_len(14), 3040);
        let found = long(pool, &bytes, left(true, true, false, 1000)).segment_len(14);
        assert_eq!(found, 3040, "not what it says");
    }

    #[test]
    fn a_packet_that_is_not_what_its_record_says_is_dropped_and_counted() {
        let pool = Pool::new(64, 8).unwrap();
        let udp = frame(false, false, false, &[1; 3000]);
        for (bytes, left) in [
            (&udp[..], left(false, true, false, 1000)),
            (&udp[..40], left(false, false, false, 1000)),
            (&udp[..], left(false, false, true, 1000)),
            (&udp[..42], left(false, false, false, 1000)),
        ] {
            let mut packet = long(pool, bytes, left);
            assert_eq!(packet.verify_segments(), Err(InvalidOffload), "{left:?}");
            let mut batch = Batch::default();
            batch.push(packet);
            let one_malformed = OffloadStats { malformed: 1, ..OffloadStats::default() };
            assert_eq!(batch.apply_offloads(), one_malformed, "{left:?}");
            assert!(batch.is_empty());
        }
    }

    #[test]
    fn an_empty_pool_ends_the_cutting() {
        let pool = Pool::new(2, 1).unwrap();
        let mut batch = Batch::default();
        batch.push(long(pool, &frame(false, true, false, &[1; 3000]), left(false, true, false, 1000)));
        assert_eq!(batch.apply_offloads(), OffloadStats { cut: 1, pool_empty: 1, malformed: 0 });
        assert_eq!(batch.len(), 2);
    }

    #[test]
    fn a_checksum_that_was_left_becomes_the_right_one() {
        let pool = Pool::new(4, 1).unwrap();
        let whole = frame(false, false, false, b"some payload");
        let mut bytes = whole.clone();
        let ip = Ipv4::new(&whole[14..]).unwrap();
        let pseudo = checksum::pseudo_v4(ip.src(), ip.dst(), ip.protocol(), 20);
        Udp::new(&mut bytes[34..]).unwrap().set_checksum(pseudo);
        let single = PacketOffload { segments: None, ..left(false, false, false, 1) };
        let mut batch = Batch::default();
        batch.push(long(pool, &bytes, single));
        assert_eq!(batch.apply_offloads(), OffloadStats::default());
        assert_eq!(batch.iter().next().unwrap().data(), whole);
    }

    #[test]
    fn a_verified_packet_has_the_sum_of_its_pseudo_header() {
        let pool = Pool::new(64, 4).unwrap();
        for (v6, tcp) in [(false, true), (false, false), (true, true), (true, false)] {
            let bytes = frame(v6, tcp, false, &[1; 3000]);
            let mut packet = long(pool, &bytes, left(v6, tcp, false, 1000));
            packet.verify_segments().unwrap();
            let single = PacketOffload { segments: None, ..packet.offload().unwrap() };
            packet.set_offload(single).unwrap();
            packet.apply_checksum().unwrap();
            assert_eq!(packet.data(), bytes, "v6 {v6}, tcp {tcp}");
        }
    }
}
