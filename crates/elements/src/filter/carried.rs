//! What frames carry, and what a packet of one takes along from where it came in to where it leaves.
//!
//! IPv4 leaves most of the destination's annotation free, in the line of the descriptor that is at hand: there is the state.
//! With IPv6 it is in the other line, and the tag always is: what becomes IPv4 on its way has bytes of an address in the first,
//! which its sender has chosen. As a state they lead nowhere, since its key is compared; as a tag they would be believed.
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
    /// What is noted on a packet.
    #[inline(always)]
    pub(super) fn of(packet: &Packet) -> Note {
        let at = if is_plain(packet) { anno::FILTER_STATE4 } else { place(packet) };
        let tag = Tag(u16::from_ne_bytes(packet.annotation(anno::FILTER_TAG)));
        Note { state: state_at(packet, at), tag }
    }

    /// Notes it on a packet.
    #[inline]
    pub(super) fn write(self, packet: &mut Packet) {
        let at = if is_plain(packet) { anno::FILTER_STATE4 } else { place(packet) };
        packet.set_annotation(at, bits(self.state));
        set_tag(packet, self.tag);
    }
}

/// The state that is noted on a packet.
#[inline(always)]
pub(super) fn state_of(packet: &Packet) -> Option<StateId> {
    match is_plain(packet) {
        true => plain_state(packet),
        false => state_of_odd(packet),
    }
}

#[cold]
fn state_of_odd(packet: &Packet) -> Option<StateId> {
    state_at(packet, place(packet))
}

/// The same of one that is plain IPv4 in a frame without tags; of another it may be anything.
#[inline(always)]
pub(super) fn plain_state(packet: &Packet) -> Option<StateId> {
    state_at(packet, anno::FILTER_STATE4)
}

/// Notes a state, and no tag, on a packet that is plain IPv4 in a frame without tags.
#[inline(always)]
pub(super) fn note_plainly(packet: &mut Packet, state: StateId) {
    packet.set_annotation(anno::FILTER_STATE4, bits(Some(state)));
    set_tag(packet, Tag(0));
}

#[inline(always)]
fn state_at(packet: &Packet, at: usize) -> Option<StateId> {
    StateId::from_bits(u32::from_ne_bytes(packet.annotation(at)))
}

#[inline(always)]
fn bits(state: Option<StateId>) -> [u8; 4] {
    state.map_or(0, StateId::to_bits).to_ne_bytes()
}

/// Notes a tag, without a look at the line that it is in where there was none and shall be none.
#[inline(always)]
fn set_tag(packet: &mut Packet, tag: Tag) {
    let tag = tag.0.to_ne_bytes();
    if packet.annotation(anno::FILTER_TAG) != tag {
        packet.set_annotation(anno::FILTER_TAG, tag);
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
        Some(4) => anno::FILTER_STATE4,
        _ => anno::FILTER_STATE6,
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
    fn an_address_of_ipv6_is_no_tag_of_what_it_becomes_and_the_tag_stays() {
        let link = || ether("02:00:00:00:00:01", "02:00:00:00:00:02");
        let (six, four) = (link().ip6(ip6().udp(1, 2)).bytes(), link().ip4(ip4().udp(1, 2)).bytes());
        for tag in [Tag(0), Tag(7)] {
            let mut packet = Pool::new(2, 1).unwrap().packet_from(&six).unwrap();
            Note { state: None, tag }.write(&mut packet);
            packet.set_annotation(anno::DST_IP6, [0xff; 16]);
            packet.set_data(&four).unwrap();
            assert_eq!(Note::of(&packet).tag, tag);
        }
    }

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
