//! The IP payload of frames, and the annotation that a packet carries from ingress to egress.
//!
//! IPv4 leaves most of the destination annotation free, in the cache line of the descriptor that is already
//! loaded: it holds the state. With IPv6 the state is in the other line. The tag always is: a packet that is
//! translated to IPv4 has bytes of an IPv6 address, chosen by its sender, in the first line. As a state these
//! bytes are harmless, since the state's key is compared; as a tag they would be trusted.
use super::worker::link_header;
use artery_engine::anno;
use artery_filter::facts::Tag;
use artery_filter::states::StateId;
use artery_packet::Packet;
use artery_wire::EtherType;

/// The annotation of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FilterAnnotation {
    /// The state that it matched on ingress.
    pub(super) state: Option<StateId>,
    pub(super) tag: Tag,
}

impl FilterAnnotation {
    /// The annotation of a packet.
    #[inline(always)]
    pub(super) fn from_packet(packet: &Packet) -> FilterAnnotation {
        let at = if is_plain(packet) { anno::FILTER_STATE4 } else { annotation_offset(packet) };
        let tag = Tag(u16::from_ne_bytes(packet.annotation(anno::FILTER_TAG)));
        FilterAnnotation { state: state_at(packet, at), tag }
    }

    /// Notes it on a packet.
    #[inline]
    pub(super) fn store_in(self, packet: &mut Packet) {
        let at = if is_plain(packet) { anno::FILTER_STATE4 } else { annotation_offset(packet) };
        packet.set_annotation(at, state_bits(self.state));
        set_tag(packet, self.tag);
    }
}

/// The state that is noted on a packet.
#[inline(always)]
pub(super) fn state_of(packet: &Packet) -> Option<StateId> {
    if is_plain(packet) { plain_state(packet) } else { exception_state(packet) }
}

#[cold]
fn exception_state(packet: &Packet) -> Option<StateId> {
    state_at(packet, annotation_offset(packet))
}

/// The state of an IPv4 packet in an untagged frame; for any other packet the result is arbitrary.
#[inline(always)]
pub(super) fn plain_state(packet: &Packet) -> Option<StateId> {
    state_at(packet, anno::FILTER_STATE4)
}

/// Annotates an IPv4 packet in an untagged frame with a state and no tag.
#[inline(always)]
pub(super) fn annotate_plain(packet: &mut Packet, state: StateId) {
    packet.set_annotation(anno::FILTER_STATE4, state_bits(Some(state)));
    set_tag(packet, Tag(0));
}

#[inline(always)]
fn state_at(packet: &Packet, at: usize) -> Option<StateId> {
    StateId::from_bits(u32::from_ne_bytes(packet.annotation(at)))
}

#[inline(always)]
fn state_bits(state: Option<StateId>) -> [u8; 4] {
    state.map_or(0, StateId::to_bits).to_ne_bytes()
}

/// Sets the tag; doesn't write its cache line if the packet is untagged before and after.
#[inline(always)]
fn set_tag(packet: &mut Packet, tag: Tag) {
    let tag = tag.0.to_ne_bytes();
    if packet.annotation(anno::FILTER_TAG) != tag {
        packet.set_annotation(anno::FILTER_TAG, tag);
    }
}

/// Whether a frame has the EtherType of IPv4 and no tags.
#[inline(always)]
fn is_plain(packet: &Packet) -> bool {
    plain_ip_payload(packet).is_some()
}

/// The offset of the state annotation, by the IP version behind the tags: tags may change
/// while the packet passes.
#[cold]
fn annotation_offset(packet: &Packet) -> usize {
    match ip_payload(packet).first().map(|first| first >> 4) {
        Some(4) => anno::FILTER_STATE4,
        _ => anno::FILTER_STATE6,
    }
}

/// What a frame carries, if that is IP.
#[inline(always)]
pub(super) fn ip_payload(packet: &Packet) -> &[u8] {
    match plain_ip_payload(packet) {
        Some(carried) => carried,
        None => other_ip_payload(packet.data()),
    }
}

/// The IPv4 payload of a frame with the EtherType of IPv4 and no tags.
#[inline(always)]
fn plain_ip_payload(packet: &Packet) -> Option<&[u8]> {
    let ([.., a, b], carried) = packet.data().split_first_chunk::<14>()?;
    (u16::from_be_bytes([*a, *b]) == EtherType::IPV4.0).then_some(carried)
}

#[cold]
fn other_ip_payload(frame: &[u8]) -> &[u8] {
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
            FilterAnnotation { state: None, tag }.store_in(&mut packet);
            packet.set_annotation(anno::DST_IP6, [0xff; 16]);
            packet.set_data(&four).unwrap();
            assert_eq!(FilterAnnotation::from_packet(&packet).tag, tag);
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
                assert_eq!(FilterAnnotation::from_packet(&packet), FilterAnnotation::default());
                let note = FilterAnnotation { state: StateId::from_bits(u32::MAX), tag: Tag(0xfedc) };
                note.store_in(&mut packet);
                packet.set_data(after).unwrap();
                assert_eq!(FilterAnnotation::from_packet(&packet), note);
            }
        }
    }
}
