//! What frames carry, and what a packet of one takes along from where it came in to where it leaves.
//!
//! IPv4 leaves most of the destination's annotation free, in the line of the descriptor that is at hand. With IPv6 the note
//! is in the other line.
use super::worker::link_header;
use artery_engine::anno;
use artery_filter::facts::Tag;
use artery_filter::states::StateId;
use artery_packet::Packet;
use artery_wire::EtherType;

/// What a packet takes along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// The state that it had where it came in.
    pub(super) state: Option<StateId>,
    pub(super) tag: Tag,
}

impl Note {
    /// That of a packet which has a state and no tag.
    #[inline(always)]
    pub(super) fn of_state(state: StateId) -> Note {
        Note { state: Some(state), tag: Tag(0) }
    }

    /// What is noted on a packet.
    #[inline(always)]
    pub(super) fn of(packet: &Packet) -> Note {
        match is_plain(packet) {
            true => Note::plain(packet),
            false => Note::of_odd(packet),
        }
    }

    /// The same of one that is plain IPv4 in a frame without tags; of another it may be anything.
    #[inline(always)]
    pub(super) fn plain(packet: &Packet) -> Note {
        Note::from_bits(packet.annotation(anno::FILTER4))
    }

    #[cold]
    fn of_odd(packet: &Packet) -> Note {
        Note::from_bits(packet.annotation(place(packet)))
    }

    /// Notes it on a packet.
    #[inline]
    pub(super) fn write(self, packet: &mut Packet) {
        let at = if is_plain(packet) { anno::FILTER4 } else { place(packet) };
        packet.set_annotation(at, self.to_bits());
    }

    /// The same on one that is plain IPv4 in a frame without tags.
    #[inline(always)]
    pub(super) fn write_plainly(self, packet: &mut Packet) {
        packet.set_annotation(anno::FILTER4, self.to_bits());
    }

    #[inline(always)]
    fn to_bits(self) -> [u8; 8] {
        let state = self.state.map_or(0, StateId::to_bits);
        (u64::from(state) | u64::from(self.tag.0) << 32).to_ne_bytes()
    }

    #[inline(always)]
    fn from_bits(bits: [u8; 8]) -> Note {
        let bits = u64::from_ne_bytes(bits);
        Note { state: StateId::from_bits(bits as u32), tag: Tag((bits >> 32) as u16) }
    }
}

/// Whether a frame says that it holds IPv4 and has no tags.
#[inline(always)]
fn is_plain(packet: &Packet) -> bool {
    carried_plainly(packet).is_some()
}

/// Where a packet has its note, by what is behind its tags: these may change on its way.
#[cold]
fn place(packet: &Packet) -> usize {
    match carried(packet).first().map(|first| first >> 4) {
        Some(4) => anno::FILTER4,
        _ => anno::FILTER6,
    }
}

/// What a frame carries, if that is IP.
#[inline(always)]
pub(super) fn carried(packet: &Packet) -> &[u8] {
    match carried_plainly(packet) {
        Some(carried) => carried,
        None => carried_otherwise(packet.data()),
    }
}

/// What a frame carries that says that it holds IPv4 and has no tags.
#[inline(always)]
fn carried_plainly(packet: &Packet) -> Option<&[u8]> {
    let ([.., a, b], carried) = packet.data().split_first_chunk::<14>()?;
    (u16::from_be_bytes([*a, *b]) == EtherType::IPV4.0).then_some(carried)
}

#[cold]
fn carried_otherwise(frame: &[u8]) -> &[u8] {
    link_header(frame).and_then(|header| frame.get(header..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Pool;
    use artery_wire::build::{ether, ip4, ip6};

    #[test]
    fn a_note_is_found_again_whatever_tags_were_put_on_and_taken_off() {
        let link = || ether("02:00:00:00:00:01", "02:00:00:00:00:02");
        let frames = [
            [link().ip4(ip4().udp(1, 2)).bytes(), link().vlan(7).ip4(ip4().udp(1, 2)).bytes()],
            [link().ip6(ip6().udp(1, 2)).bytes(), link().vlan(7).ip6(ip6().udp(1, 2)).bytes()],
        ];
        for [plain, tagged] in frames {
            for (before, after) in
                [(&plain, &plain), (&plain, &tagged), (&tagged, &plain), (&tagged, &tagged)]
            {
                let mut packet = Pool::new(2, 1).unwrap().packet_from(before).unwrap();
                assert_eq!(Note::of(&packet), Note::default());
                let note = Note { state: StateId::from_bits(u32::MAX), tag: Tag(0xfedc) };
                note.write(&mut packet);
                packet.set_data(after).unwrap();
                assert_eq!(Note::of(&packet), note);
            }
        }
    }
}
