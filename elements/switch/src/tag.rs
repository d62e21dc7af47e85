//! VLAN tags of frames: pushed, popped, rewritten.
use artery_engine::Packet;
use artery_l2::decide::TagRewrite;
use artery_wire::EtherType;

/// Bytes of two addresses, and of a tag behind them.
const ADDRESSES: usize = 12;
const TAG: usize = 4;

/// Rewrites the tag of a frame; false if there was no room. An untagged frame keeps its bytes.
#[inline]
pub(super) fn rewrite_tag(frame: &mut Packet, change: TagRewrite) -> bool {
    match change {
        TagRewrite::Keep => true,
        TagRewrite::Untag => pop_tag(frame),
        TagRewrite::Tag(tag) => push_tag(frame, tag),
        TagRewrite::Retag(tag) => {
            let bits = frame.data_mut().get_mut(ADDRESSES + 2..ADDRESSES + TAG);
            bits.map(|bits| bits.copy_from_slice(&tag.to_be_bytes())).is_some()
        }
    }
}

fn pop_tag(frame: &mut Packet) -> bool {
    if frame.len() < ADDRESSES + TAG {
        return false;
    }
    frame.data_mut().copy_within(..ADDRESSES, TAG);
    let is_off = frame.strip(TAG).is_ok();
    frame.set_mac_header(0);
    is_off
}

fn push_tag(frame: &mut Packet, tag: u16) -> bool {
    if frame.len() < ADDRESSES || frame.prepend(TAG).is_err() {
        return false;
    }
    let data = frame.data_mut();
    data.copy_within(TAG..TAG + ADDRESSES, 0);
    data[ADDRESSES..ADDRESSES + 2].copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
    data[ADDRESSES + 2..ADDRESSES + TAG].copy_from_slice(&tag.to_be_bytes());
    frame.set_mac_header(0);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Pool;
    use artery_wire::build::ether;

    #[test]
    fn tags_are_put_on_changed_and_taken_off() {
        let pool = Pool::new(8, 1).unwrap();
        let frame = |vlan: Option<u16>| {
            let frame = ether([1; 6], [2; 6]);
            let frame = vlan.map_or(frame.clone(), |vlan| frame.vlan(vlan));
            frame.raw(EtherType::IPV4, b"payload").bytes()
        };
        let mut packet = pool.packet_from(&frame(None)).unwrap();
        assert!(rewrite_tag(&mut packet, TagRewrite::Tag(7)) && packet.data() == frame(Some(7)));
        assert!(rewrite_tag(&mut packet, TagRewrite::Retag(9)) && packet.data() == frame(Some(9)));
        assert!(rewrite_tag(&mut packet, TagRewrite::Keep) && packet.data() == frame(Some(9)));
        assert!(rewrite_tag(&mut packet, TagRewrite::Untag) && packet.data() == frame(None));
        let mut short = pool.packet_from(&[0; 11]).unwrap();
        assert!(!rewrite_tag(&mut short, TagRewrite::Tag(7)) && !rewrite_tag(&mut short, TagRewrite::Untag));
        assert!(!rewrite_tag(&mut short, TagRewrite::Retag(7)) && short.data() == [0; 11]);
    }
}
