//! Finds the IP packets of a batch and notes those for services.
use super::chooser::BatchPacket;
use super::known::FamilyFlows;
use artery_common::ip_header;
use artery_engine::{Batch, Packet};
use artery_flow::{Flow4, Flow6};
use artery_forward::fast_path::{ForwardFamily, FrameCheck, LINK};
use artery_wire::EtherType;

/// Records the packets for a service, and reports each in its order. `look` finds a packet.
#[inline(always)]
pub(super) fn record_service_packets<'b>(
    v4: &mut FamilyFlows<Flow4>,
    v6: &mut FamilyFlows<Flow6>,
    batch: &'b Batch,
    look: impl Fn(&'b Packet) -> FoundPacket<'b>,
    mut tell: impl FnMut(bool),
) {
    let (mut notes4, mut notes6) = (v4.begin_batch(batch.len()), v6.begin_batch(batch.len()));
    for (at, packet) in batch.iter().enumerate() {
        let FoundPacket { bytes, version, is_fast_path: is_plain } = look(packet);
        let noted = BatchPacket::new(at, is_plain);
        tell(match (version, is_plain) {
            (4, true) => notes4.record_fast_path(noted, bytes),
            (4, false) => notes4.record_packet(noted, bytes),
            (6, true) => notes6.record_fast_path(noted, bytes),
            (6, false) => notes6.record_packet(noted, bytes),
            _ => false,
        });
    }
    (v4.count, v6.count) = (notes4.count, notes6.count);
}

/// A packet, from its IP header on.
#[derive(Clone, Copy)]
pub(super) struct FoundPacket<'b> {
    pub(super) bytes: &'b [u8],
    /// 0 if it is none of IP.
    pub(super) version: u8,
    /// Whether the frame's own fields allow the shortcut.
    is_fast_path: bool,
}

/// The EtherTypes of IP, as their bytes are in a number of the machine.
const IPV4: u16 = EtherType::IPV4.0.to_be();
const IPV6: u16 = EtherType::IPV6.0.to_be();
/// Bytes that the headers of most frames fit in.
const HEAD: usize = 54;

/// The packet in a frame.
#[inline(always)]
pub(super) fn packet_in_frame(frame: &Packet) -> FoundPacket<'_> {
    let nothing = FoundPacket { bytes: &[], version: 0, is_fast_path: false };
    let Some((link, bytes)) = frame.data().split_first_chunk::<LINK>() else { return nothing };
    match u16::from_ne_bytes([link[12], link[13]]) {
        IPV4 => FoundPacket { bytes, version: 4, is_fast_path: false },
        IPV6 => FoundPacket { bytes, version: 6, is_fast_path: false },
        _ => nothing,
    }
}

/// The same where the shortcut is open.
#[inline(always)]
pub(super) fn packet_in_checked_frame<'b>(frame: &'b Packet, gate: &FrameCheck<'_>) -> FoundPacket<'b> {
    // Shorter frames are checked in full before they take the shortcut.
    if frame.data().len() < HEAD {
        return packet_in_frame(frame);
    }
    let found = packet_in_frame(frame);
    let is_plain = match found.version {
        4 => u32::check_header(frame.data(), gate).1,
        6 => u128::check_header(frame.data(), gate).1,
        _ => false,
    };
    FoundPacket { is_fast_path: is_plain, ..found }
}

/// A packet that is in no frame.
#[inline(always)]
pub(super) fn bare_packet(packet: &Packet) -> FoundPacket<'_> {
    let bytes = ip_header::bytes(packet);
    FoundPacket { bytes, version: bytes.first().map_or(0, |first| first >> 4), is_fast_path: false }
}
