//! Cutting a packet that was put together of fragments into fragments that are no longer than those were.
use crate::packet::{InvalidOffload, SegmentKind};
use crate::{Packet, pool};
use artery_wire::{Ipv4Fragments, Ipv6Fragments};

/// A fragment: all in front of its payload, and what of the whole packet its payload is.
struct Fragment {
    headers: Vec<u8>,
    payload: Vec<u8>,
}

/// The fragments of a packet.
pub(crate) struct Fragments(Vec<Fragment>);

impl Fragments {
    /// Splits a packet whose record asks for it; `None` when it is not what its record says, or that
    /// asks for something else.
    pub(crate) fn from_packet(packet: &Packet) -> Option<Fragments> {
        let left = packet.offload()?;
        let segments = left.segments?;
        let network = usize::try_from(segments.network).ok()?;
        let (link, ip) = packet.data().split_at_checked(network)?;
        let mtu = segments.size.into();
        let fragment = |header: &[u8], payload: &[u8]| Fragment {
            headers: [link, header].concat(),
            payload: payload.to_vec(),
        };
        let fragments = match segments.kind {
            SegmentKind::Fragments4 => Ipv4Fragments::split_packet(ip, mtu)
                .ok()?
                .map(|part| fragment(part.header(), part.payload()))
                .collect(),
            SegmentKind::Fragments6 { id } => {
                let at = usize::try_from(left.transport.checked_sub(segments.network)?).ok()?;
                let parts = Ipv6Fragments::split_packet(ip, at, id, mtu).ok()?;
                parts.map(|part| fragment(part.header(), part.payload())).collect()
            }
            _ => return None,
        };
        Some(Fragments(fragments))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// One fragment, with the metadata of the whole; `None` when the pool is empty.
    pub(crate) fn build_fragment(
        &self,
        whole: &Packet,
        index: usize,
    ) -> Result<Option<Packet>, InvalidOffload> {
        let Fragment { headers, payload } = self.0.get(index).ok_or(InvalidOffload)?;
        let length = headers.len() + payload.len();
        let Some(mut fragment) = pool::owner_of(whole.meta()).alloc_packet_for(length) else {
            return Ok(None);
        };
        let bytes = fragment.append(length).map_err(|_| InvalidOffload)?;
        bytes[..headers.len()].copy_from_slice(headers);
        bytes[headers.len()..].copy_from_slice(payload);
        fragment.copy_metadata(whole);
        fragment.clear_offload();
        Ok(Some(fragment))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Batch, Packet, PacketOffload, Pool, SegmentKind, Segments};
    use artery_wire::build::{ether, ip4, ip6};
    use artery_wire::{Ipv4Fragments, Ipv6Fragments};

    const A: &str = "02:00:00:00:00:01";
    const B: &str = "02:00:00:00:00:02";

    fn record(kind: SegmentKind, size: u16) -> PacketOffload {
        let upper = if kind == SegmentKind::Fragments4 { 20 } else { 40 };
        PacketOffload {
            transport: 14 + upper,
            checksum: 0,
            segments: Some(Segments { network: 14, kind, size }),
        }
    }

    /// What a batch of this frame becomes.
    fn finished(frame: &[u8], record: PacketOffload) -> (crate::OffloadStats, Vec<Vec<u8>>) {
        let mut packet = Pool::new(64, 4).unwrap().packet_from(frame).unwrap();
        packet.set_offload(record).unwrap();
        let mut batch = Batch::default();
        batch.push(packet);
        (batch.apply_offloads(), batch.iter().map(|packet: &Packet| packet.data().to_vec()).collect())
    }

    #[test]
    fn the_fragments_are_those_that_a_router_would_make() {
        let four = ip4().id(77).udp(1, 2).payload(vec![7; 3000]);
        let six = ip6().udp(1, 2).payload(vec![7; 3000]);
        let bytes = (four.bytes(), six.bytes());
        let (done, frames) = finished(&ether(A, B).ip4(four).bytes(), record(SegmentKind::Fragments4, 1400));
        assert_eq!(done.cut, 1);
        let expected: Vec<_> =
            Ipv4Fragments::split_packet(&bytes.0, 1400).unwrap().map(|part| part.to_bytes()).collect();
        assert_eq!(frames.iter().map(|frame| &frame[14..]).collect::<Vec<_>>(), expected);
        let kind = SegmentKind::Fragments6 { id: 0xfedc_ba98 };
        let (done, frames) = finished(&ether(A, B).ip6(six).bytes(), record(kind, 1280));
        assert_eq!((done.cut, frames.len()), (1, 3));
        let expected: Vec<_> = Ipv6Fragments::split_packet(&bytes.1, 40, 0xfedc_ba98, 1280)
            .unwrap()
            .map(|part| part.to_bytes())
            .collect();
        assert_eq!(frames.iter().map(|frame| &frame[14..]).collect::<Vec<_>>(), expected);
        assert!(frames.iter().all(|frame| frame[..12] == frames[0][..12]));
    }

    #[test]
    fn the_mtu_is_compared_with_a_fragment_and_no_checksum_is_left() {
        let frame = ether(A, B).ip4(ip4().udp(1, 2).payload([0; 3000])).bytes();
        let mut packet = Pool::new(64, 4).unwrap().packet_from(&frame).unwrap();
        packet.set_offload(record(SegmentKind::Fragments4, 1400)).unwrap();
        assert_eq!(packet.segment_len(14), 1400);
        assert!(packet.has_offload() && !packet.needs_checksum() && !packet.needs_checksum_at(34));
        packet.set_offload(PacketOffload { transport: 34, checksum: 6, segments: None }).unwrap();
        assert!(packet.needs_checksum() && packet.needs_checksum_at(34));
    }

    #[test]
    fn what_is_not_what_its_record_says_is_dropped_and_counted() {
        let four = ether(A, B).ip4(ip4().udp(1, 2).payload([0; 3000])).bytes();
        let six = ether(A, B).ip6(ip6().udp(1, 2).payload([0; 3000])).bytes();
        let at = |transport, record: PacketOffload| PacketOffload { transport, ..record };
        let kind6 = SegmentKind::Fragments6 { id: 1 };
        for (frame, record) in [
            (&six[..], record(SegmentKind::Fragments4, 1400)),
            (&four[..], record(kind6, 1400)),
            (&four[..], record(SegmentKind::Fragments4, 20)),
            (&six[..], record(kind6, 50)),
            (&six[..], at(13, record(kind6, 1400))),
            (&six[..], at(55, record(kind6, 1400))),
            (&four[..20], record(SegmentKind::Fragments4, 1400)),
        ] {
            let (done, frames) = finished(frame, record);
            assert_eq!((done.malformed, frames.len()), (1, 0), "{record:?}");
        }
    }
}
