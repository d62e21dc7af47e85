//! Finds the IP packets of a batch and notes those for services.
use super::known::{Known, Noted};
use crate::ip::ip_header;
use crate::router::plain::{Forwarded, Gate, LINK};
use artery_engine::{Batch, Packet};
use artery_table::flow::{Flow4, Flow6};
use artery_wire::EtherType;

/// Notes which packets are for a service; tells it of each in its order. `look` finds a packet.
#[inline(always)]
pub(super) fn note<'b>(
    v4: &mut Known<Flow4>,
    v6: &mut Known<Flow6>,
    batch: &'b Batch,
    look: impl Fn(&'b Packet) -> Found<'b>,
    mut tell: impl FnMut(bool),
) {
    let (mut notes4, mut notes6) = (v4.notes(batch.len()), v6.notes(batch.len()));
    for (at, packet) in batch.iter().enumerate() {
        let Found { bytes, version, is_plain } = look(packet);
        let noted = Noted::new(at, is_plain);
        tell(match (version, is_plain) {
            (4, true) => notes4.note_plain(noted, bytes),
            (4, false) => notes4.note(noted, bytes),
            (6, true) => notes6.note_plain(noted, bytes),
            (6, false) => notes6.note(noted, bytes),
            _ => false,
        });
    }
    (v4.count, v6.count) = (notes4.count, notes6.count);
}

/// A packet, from its IP header on.
#[derive(Clone, Copy)]
pub(super) struct Found<'b> {
    pub(super) bytes: &'b [u8],
    /// 0 if it is none of IP.
    pub(super) version: u8,
    /// Whether its frame may take the shortcut as far as it says itself.
    is_plain: bool,
}

/// The EtherTypes of IP, as their bytes are in a number of the machine.
const IPV4: u16 = EtherType::IPV4.0.to_be();
const IPV6: u16 = EtherType::IPV6.0.to_be();
/// Headers of most frames are in so many bytes.
const HEAD: usize = 54;

/// The packet in a frame.
#[inline(always)]
pub(super) fn look_in(frame: &Packet) -> Found<'_> {
    let nothing = Found { bytes: &[], version: 0, is_plain: false };
    let Some((link, bytes)) = frame.data().split_first_chunk::<LINK>() else { return nothing };
    match u16::from_ne_bytes([link[12], link[13]]) {
        IPV4 => Found { bytes, version: 4, is_plain: false },
        IPV6 => Found { bytes, version: 6, is_plain: false },
        _ => nothing,
    }
}

/// The same where the shortcut is open.
#[inline(always)]
pub(super) fn look_through<'b>(frame: &'b Packet, gate: &Gate<'_>) -> Found<'b> {
    // What is shorter is looked at closer when it is to take the shortcut.
    if frame.data().len() < HEAD {
        return look_in(frame);
    }
    let found = look_in(frame);
    let is_plain = match found.version {
        4 => u32::check(frame.data(), gate).1,
        6 => u128::check(frame.data(), gate).1,
        _ => false,
    };
    Found { is_plain, ..found }
}

/// A packet that is in no frame.
#[inline(always)]
pub(super) fn look_at(packet: &Packet) -> Found<'_> {
    let bytes = ip_header::bytes(packet);
    Found { bytes, version: bytes.first().map_or(0, |first| first >> 4), is_plain: false }
}
