//! A slot of the receive ring as a kernel would never fill it.
use super::intake::Intake;
use super::ring::Arrival;
use crate::forged::pool;
use artery_packet::Batch;

/// Reads a status word and then a slot, and makes a packet of what it says to hold, if it is in the slot.
pub(crate) fn survive(bytes: &[u8]) {
    let Some((status, slot)) = bytes.split_first_chunk() else { return };
    let Some((arrival, frame)) = Arrival::parse(u32::from_ne_bytes(*status), slot) else { return };
    let (outer, inner) = (slot.as_ptr_range(), frame.as_ptr_range());
    assert!(outer.start <= inner.start && inner.end <= outer.end, "{arrival:?} leads outside");
    for ethernet in [true, false] {
        let (mut intake, mut batch) = (Intake::new(ethernet, true, 1), Batch::default());
        intake.receive_frame(pool(), &arrival, frame, &mut batch);
        let counted = intake.counters;
        assert_eq!(counted.packets + counted.malformed + counted.pool_empty, 1, "{counted:?}");
        assert_eq!(counted.packets, batch.len() as u64, "{counted:?}");
        let tag = if arrival.vlan.is_some() && frame.len() >= 12 { 4 } else { 0 };
        assert!(batch.iter().all(|packet| packet.len() == frame.len() + tag), "{arrival:?}");
    }
}
