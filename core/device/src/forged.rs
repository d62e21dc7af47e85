//! What a kernel would never say. Each function takes any bytes for something that comes from there, does
//! with it what a port does, and panics when something came of it that must not: fuzz targets start here.
use crate::offload::{VIRTIO_HEADER, VirtioOffload, describe, longest_segment};
use crate::{af_packet, netdev, xdp};
use artery_netlink::{genetlink, rtnetlink};
use artery_packet::{Batch, Pool};

thread_local! {
    static POOL: &'static Pool = Pool::new(256, 8).expect("there is memory for some frames");
}

/// A pool of this thread's.
pub(crate) fn pool() -> &'static Pool {
    POOL.with(|pool| *pool)
}

/// A byte that says whether there is a link header, a virtio-net header, and a frame. What is accepted can be
/// described to the kernel again, and finished.
pub fn virtio_header(bytes: &[u8]) {
    let Some((&[kind], rest)) = bytes.split_first_chunk() else { return };
    let (header, frame) = rest.split_at(rest.len().min(VIRTIO_HEADER));
    xdp::forged::finish(&mut frame.to_vec());
    let Some(mut packet) = pool().packet_from(frame) else { return };
    if VirtioOffload::parse(header).apply_to(&mut packet, kind & 1 == 1).is_err() {
        return;
    }
    assert!(describe(&packet).is_ok(), "{packet:?}");
    let _ = longest_segment(&packet);
    let mut batch = Batch::default();
    batch.push(packet);
    let finished = batch.apply_offloads();
    assert_eq!(finished.malformed, 0);
    // A pool may have no room for all segments, which can be of a byte each.
    assert!(finished.pool_empty > 0 || !batch.is_empty());
}

/// The status word and the contents of a slot of a packet socket's receive ring.
pub fn slot(bytes: &[u8]) {
    af_packet::forged::survive(bytes);
}

/// An answer of netlink.
pub fn netlink(bytes: &[u8]) {
    genetlink::survive(bytes);
    netdev::survive(bytes);
    rtnetlink::survive(bytes);
}

/// What the kernel does to the rings of an AF_XDP socket, between what a port does with them.
pub fn rings(bytes: &[u8]) {
    xdp::forged::survive(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Bytes of a slot whose offsets and lengths lead into it, or not far out of it.
    fn near_slot() -> impl Strategy<Value = Vec<u8>> {
        let numbers = (any::<u32>(), 0u32..300, 0u32..300, 0u16..300);
        (numbers, vec(any::<u8>(), 80..300)).prop_map(|((status, len, captured, start), mut bytes)| {
            bytes[0..4].copy_from_slice(&status.to_ne_bytes());
            bytes[8..12].copy_from_slice(&len.to_ne_bytes());
            bytes[12..16].copy_from_slice(&captured.to_ne_bytes());
            bytes[16..18].copy_from_slice(&start.to_ne_bytes());
            bytes
        })
    }

    /// A netlink message whose lengths are right, or nearly so, with attributes of any contents.
    fn near_answer() -> impl Strategy<Value = Vec<u8>> {
        let attribute = (vec(any::<u8>(), 0..20), 0u16..12, -3i32..4);
        let attribute = attribute.prop_map(|(value, kind, off)| {
            let len = (value.len() as i32 + 4 + off) as u16;
            let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
            bytes.extend(&value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        });
        let kind = prop_oneof![0u16..5, any::<u16>()];
        let rest = (any::<[u8; 10]>(), any::<[u8; 4]>());
        (vec(attribute, 0..8), kind, rest, -5i32..6).prop_map(|(attributes, kind, (header, own), off)| {
            let attributes = attributes.concat();
            let len = 16 + 4 + attributes.len() as i32 + off;
            [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &header, &own, &attributes].concat()
        })
    }

    proptest! {
        #[test]
        fn any_header_fits_its_frame_or_is_refused(
            mut frame in vec(any::<u8>(), 0..200),
            header: [u8; VIRTIO_HEADER],
            kind: u8,
            version in 4u8..7,
        ) {
            if let Some(first) = frame.get_mut(if kind & 1 == 1 { 14 } else { 0 }) {
                *first = version << 4 | 5;
            }
            virtio_header(&[&[kind], &header[..], &frame].concat());
        }

        #[test]
        fn no_slot_leads_outside_itself(bytes in prop_oneof![near_slot(), vec(any::<u8>(), 0..256)]) {
            slot(&bytes);
        }

        #[test]
        fn an_answer_of_any_bytes_is_read_or_refused(
            bytes in prop_oneof![near_answer(), vec(any::<u8>(), 0..200)],
        ) {
            netlink(&bytes);
        }

        #[test]
        fn no_index_and_no_descriptor_gives_a_frame_two_owners(
            bytes in vec(any::<u8>(), 0..60 * xdp::forged::STEP),
        ) {
            rings(&bytes);
        }
    }

    #[test]
    fn too_few_bytes_are_nothing() {
        for len in 0..40 {
            let bytes = vec![0xff; len];
            [virtio_header, slot, netlink, rings].iter().for_each(|read| read(&bytes));
        }
    }
}
