//! What a sender left undone: the transport checksum, and the cutting of a long packet into segments.
//!
//! Hosts hand frames to virtual links with the checksum half made and with many segments in one, for a
//! network card to complete; a packet filter puts fragments together, to be cut again where they leave. Such
//! a packet crosses the graph whole, with a record of what is left, in the words of a virtio-net header
//! (virtio 1.2, section 5.1.6). Its headers are right for the whole; only the transport checksum holds no
//! more than the sum of the pseudo-header. Whoever can't pass it on applies the offload:
//! [`Packet::apply_checksum`], [`Batch::apply_offloads`](crate::Batch::apply_offloads).
use super::{Descriptor, Packet, UNFINISHED, UNSET, moved_offset};
use artery_wire::checksum;

/// What is left to do with a packet. Offsets count from the start of data, and are negative in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketOffload {
    /// Where the transport header starts; the checksum covers all from there to the end.
    pub transport: isize,
    /// Where in the transport header the checksum is. It holds the uncomplemented sum of the
    /// pseudo-header.
    pub checksum: u16,
    /// The segments to be cut, if the packet is not a single one.
    pub segments: Option<Segments>,
}

/// The segments that a long packet is to be cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Where the network header starts.
    pub network: isize,
    /// Of what protocols the packet is.
    pub kind: SegmentKind,
    /// Most bytes of payload of a segment, or of a whole fragment from its network header on; not 0.
    pub size: u16,
}

/// How a packet is to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// Into segments of TCP over IPv4, as hosts leave it to cards.
    Tcp4,
    /// Into segments of TCP over IPv6.
    Tcp6,
    /// Into datagrams of UDP.
    Udp,
    /// Into fragments of IPv4, by the element that reassembled it. Its checksum is made.
    Fragments4,
    /// Into fragments of IPv6; the headers in front of the transport header are repeated in each.
    /// Its checksum is made.
    Fragments6 {
        /// What the fragments have in common.
        id: u32,
    },
}

impl SegmentKind {
    /// Whether a packet is to be cut into fragments, whose transport checksum is that of the whole.
    pub fn is_fragments(self) -> bool {
        matches!(self, SegmentKind::Fragments4 | SegmentKind::Fragments6 { .. })
    }
}

/// A packet is not what its record of unfinished work says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidOffload;

/// The record as it lies in a descriptor; offsets are places in the frame, so that they stay right when data
/// is stripped and put in front.
#[derive(Clone, Copy)]
pub(super) struct Record {
    network: u16,
    transport: u16,
    /// 0 for a packet that is a single segment.
    size: u16,
    checksum: u16,
    kind: SegmentKind,
}

impl Record {
    pub(super) const NONE: Record =
        Record { network: UNSET, transport: UNSET, size: 0, checksum: 0, kind: SegmentKind::Udp };
    /// The record after the data moved from `old` to `new`.
    pub(super) fn after_move(self, old: usize, new: usize) -> Record {
        let Record { network, transport, .. } = self;
        Record {
            network: moved_offset(network, old, new),
            transport: moved_offset(transport, old, new),
            ..self
        }
    }
}

impl Packet {
    /// Whether something is left to be done with the packet.
    #[inline]
    pub fn has_offload(&self) -> bool {
        self.meta().flags & UNFINISHED != 0
    }
    /// What is left to do; `None` for a packet as it goes over a wire.
    #[inline]
    pub fn offload(&self) -> Option<PacketOffload> {
        if self.has_offload() { Some(self.load_offload()) } else { None }
    }
    fn load_offload(&self) -> PacketOffload {
        let record = self.meta().offload;
        let start = self.meta().start as isize;
        let offset = |place: u16| isize::from_ne_bytes(usize::from(place).to_ne_bytes()) - start;
        let Record { network, transport, size, checksum, kind } = record;
        let segments = (size > 0).then(|| Segments { network: offset(network), kind, size });
        PacketOffload { transport: offset(transport), checksum, segments }
    }
    /// Says what is left to do. Places that the record can't name, beyond 64 kB or outside
    /// the frame, are refused.
    pub fn set_offload(&mut self, left: PacketOffload) -> Result<(), InvalidOffload> {
        let place = |offset: isize| {
            let place = (self.meta().start as isize).checked_add(offset)?;
            u16::try_from(place).ok().filter(|place| *place != UNSET)
        };
        let transport = place(left.transport).ok_or(InvalidOffload)?;
        let (network, kind, size) = match left.segments {
            Some(Segments { network, kind, size }) => (place(network).ok_or(InvalidOffload)?, kind, size),
            None => (UNSET, SegmentKind::Udp, 0),
        };
        let d = self.meta_mut();
        d.offload = Record { network, transport, size, checksum: left.checksum, kind };
        d.flags |= UNFINISHED;
        Ok(())
    }
    /// Says that nothing is left to do.
    #[inline]
    pub fn clear_offload(&mut self) {
        self.meta_mut().flags &= !UNFINISHED;
    }
    /// Whether the transport checksum is left to be made.
    #[inline]
    pub fn needs_checksum(&self) -> bool {
        self.has_offload() && !self.meta().offload.kind.is_fragments()
    }
    /// Whether the checksum of the transport header at `offset` is left to be made.
    #[inline]
    pub fn needs_checksum_at(&self, offset: usize) -> bool {
        self.needs_checksum() && isize::try_from(offset) == Ok(self.load_offload().transport)
    }
    /// Whether the packet is to be cut into fragments, which no device does.
    #[inline]
    pub fn needs_fragments(&self) -> bool {
        self.has_offload() && self.meta().offload.kind.is_fragments()
    }
    /// Whether what is left to be done can't be done without the first `length` bytes: whoever strips them
    /// lets it be done before.
    #[inline]
    pub fn needs_front(&self, length: usize) -> bool {
        self.offload().is_some_and(|left| {
            let first = left.segments.map_or(left.transport, |segments| segments.network.min(left.transport));
            usize::try_from(first).map_or(true, |first| first < length)
        })
    }
    /// Makes the checksum that was left, if any. A packet to be cut has one for each segment: it is refused.
    pub fn apply_checksum(&mut self) -> Result<(), InvalidOffload> {
        let Some(left) = self.offload() else { return Ok(()) };
        if left.segments.is_some() {
            return Err(InvalidOffload);
        }
        let start = usize::try_from(left.transport).map_err(|_| InvalidOffload)?;
        let covered = self.data_mut().get_mut(start..).ok_or(InvalidOffload)?;
        let sum = checksum::never_zero(checksum::checksum(covered));
        let field =
            covered.get_mut(usize::from(left.checksum)..).and_then(|rest| rest.first_chunk_mut::<2>());
        *field.ok_or(InvalidOffload)? = sum.to_be_bytes();
        self.clear_offload();
        Ok(())
    }
    /// Takes the record of a packet whose bytes were copied from `old` to `new` of this one's frame.
    pub(super) fn copy_offload(&mut self, from: &Descriptor, old: usize, new: usize) {
        if from.flags & UNFINISHED != 0 {
            self.meta_mut().offload = from.offload.after_move(old, new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;

    const LEFT: PacketOffload = PacketOffload {
        transport: 34,
        checksum: 16,
        segments: Some(Segments { network: 14, kind: SegmentKind::Tcp4, size: 1448 }),
    };

    #[test]
    fn the_record_stays_with_its_bytes() {
        let pool = Pool::new(16, 4).unwrap();
        let mut packet = pool.packet_from(&[7; 100]).unwrap();
        assert_eq!(packet.offload(), None);
        packet.set_offload(LEFT).unwrap();
        assert_eq!(packet.offload(), Some(LEFT));
        packet.strip(20).unwrap();
        let shifted = |by: isize| PacketOffload {
            transport: 34 - by,
            segments: LEFT.segments.map(|s| Segments { network: 14 - by, ..s }),
            ..LEFT
        };
        assert_eq!(packet.offload(), Some(shifted(20)));
        packet.make_room(700, 700).unwrap();
        assert_eq!(packet.offload(), Some(shifted(20)));
        let copy = packet.duplicate().unwrap();
        assert_eq!(copy.offload(), Some(shifted(20)));
        packet.make_room(3000, 0).unwrap();
        assert_eq!(packet.offload(), Some(shifted(20)));
        packet.clear_metadata();
        assert_eq!(packet.offload(), Some(shifted(20)), "it is about the bytes, not a note on them");
        packet.set_data(&[0; 100]).unwrap();
        assert_eq!(packet.offload(), None);
    }

    #[test]
    fn segments_need_their_network_header_and_a_checksum_its_transport_header() {
        let pool = Pool::new(4, 1).unwrap();
        let mut packet = pool.packet_from(&[7; 100]).unwrap();
        assert!(!packet.needs_front(100));
        packet.set_offload(LEFT).unwrap();
        assert!(!packet.needs_front(14) && packet.needs_front(15));
        packet.set_offload(PacketOffload { segments: None, ..LEFT }).unwrap();
        assert!(!packet.needs_front(34) && packet.needs_front(35));
    }

    #[test]
    fn a_packet_taken_from_the_pool_is_finished() {
        let pool = Pool::new(1, 1).unwrap();
        let mut packet = pool.packet_from(&[7; 100]).unwrap();
        packet.set_offload(LEFT).unwrap();
        drop(packet);
        assert!(!pool.alloc_packet().unwrap().has_offload());
    }

    #[test]
    fn a_record_that_names_no_place_in_the_frame_is_refused() {
        let pool = Pool::new(4, 1).unwrap();
        let mut packet = pool.packet_from(&[7; 100]).unwrap();
        for transport in [-10_000, 70_000, isize::MAX, isize::MIN] {
            let found = packet.set_offload(PacketOffload { transport, ..LEFT });
            assert_eq!(found, Err(InvalidOffload), "{transport}");
        }
        assert!(!packet.has_offload());
    }

    #[test]
    fn a_checksum_is_made_where_the_record_says_or_not_at_all() {
        let pool = Pool::new(4, 1).unwrap();
        let single = PacketOffload { segments: None, ..LEFT };
        let finish = |transport: isize, checksum: u16| {
            let mut packet = pool.packet_from(&[0; 60]).unwrap();
            packet.set_offload(PacketOffload { transport, checksum, ..single }).unwrap();
            packet.apply_checksum().map(|()| (packet.has_offload(), packet.data().to_vec()))
        };
        let (unfinished, data) = finish(34, 16).unwrap();
        assert!(!unfinished);
        assert_eq!((data[50], data[51]), (0xff, 0xff), "a sum of zero is written as its other form");
        assert!(finish(34, 24).is_ok());
        assert_eq!(finish(34, 25), Err(InvalidOffload), "the field would reach behind the end");
        assert_eq!(finish(61, 0), Err(InvalidOffload));
        assert_eq!(finish(-1, 16), Err(InvalidOffload));
        let mut long = pool.packet_from(&[0; 60]).unwrap();
        long.set_offload(LEFT).unwrap();
        assert_eq!(long.apply_checksum(), Err(InvalidOffload), "each segment has its own");
    }
}
