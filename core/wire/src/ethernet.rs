//! Ethernet II frames, with or without VLAN tags.

use crate::bytes::{at_least, u16_at, write_u16};
use crate::fields::fields;
use crate::vlan::TAG_LEN;
use crate::{EtherAddr, Malformed, VlanTag};

/// What an Ethernet frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IP version 4 (RFC 894).
    pub const IPV4: EtherType = EtherType(0x0800);
    /// Address resolution, RFC 826.
    pub const ARP: EtherType = EtherType(0x0806);
    /// A VLAN tag, IEEE 802.1Q.
    pub const VLAN: EtherType = EtherType(0x8100);
    /// IP version 6 (RFC 2464).
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// The outer of two VLAN tags, IEEE 802.1ad.
    pub const QINQ: EtherType = EtherType(0x88a8);

    /// Says whether a VLAN tag follows.
    #[inline]
    pub fn is_vlan(self) -> bool {
        self == EtherType::VLAN || self == EtherType::QINQ
    }
}

const TYPE: usize = 12;
const TAG: usize = 14;
const MAX_TAGS: usize = 2;

/// A frame from its destination address on.
#[derive(Clone, Copy, Debug)]
pub struct Ethernet<T: AsRef<[u8]>>(T);

fields! {
    Ethernet {
        dst / set_dst: EtherAddr = 0, "the destination address";
        src / set_src: EtherAddr = 6, "the source address";
        ether_type / set_ether_type: EtherType = TYPE, "what follows the addresses: a VLAN tag, or the \
            payload's type";
    }
}

impl<T: AsRef<[u8]>> Ethernet<T> {
    /// Length of an untagged header.
    pub const LEN: usize = 14;

    /// Takes bytes for a frame if they hold its header.
    #[inline]
    pub fn new(bytes: T) -> Result<Self, Malformed> {
        at_least(bytes.as_ref(), Self::LEN)?;
        Ok(Ethernet(bytes))
    }

    /// Returns the outer VLAN tag, if there is one and it is whole.
    #[inline]
    pub fn vlan(&self) -> Option<VlanTag> {
        self.nth_tag(0)
    }

    /// Returns the inner VLAN tag of a frame with two.
    #[inline]
    pub fn inner_vlan(&self) -> Option<VlanTag> {
        self.vlan()?;
        self.nth_tag(1)
    }

    /// Returns where the payload begins, after at most two VLAN tags.
    #[inline]
    pub fn payload_offset(&self) -> usize {
        let tags = (0..MAX_TAGS).take_while(|&n| self.nth_tag(n).is_some()).count();
        Self::LEN + tags * TAG_LEN
    }

    /// Returns the type of what follows the tags.
    #[inline]
    pub fn payload_type(&self) -> EtherType {
        EtherType(u16_at(self.0.as_ref(), self.payload_offset() - 2))
    }

    /// Returns what follows the header and its tags.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[self.payload_offset()..]
    }

    /// Returns the `n`th tag, given that there are `n` before it.
    #[inline]
    fn nth_tag(&self, n: usize) -> Option<VlanTag> {
        let bytes = self.0.as_ref();
        let announced = EtherType(u16_at(bytes, TYPE + n * TAG_LEN)).is_vlan();
        let whole = bytes.len() >= Self::LEN + (n + 1) * TAG_LEN;
        (announced && whole).then(|| VlanTag(u16_at(bytes, TAG + n * TAG_LEN)))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ethernet<T> {
    /// Sets the outer VLAN tag of a frame that has one; says whether it has.
    #[inline]
    pub fn set_vlan(&mut self, tag: VlanTag) -> bool {
        let tagged = self.vlan().is_some();
        if tagged {
            write_u16(self.0.as_mut(), TAG, tag.0);
        }
        tagged
    }
}

/// Returns an untagged frame with `payload`, for what is sent now and then.
pub fn build_ethernet_frame(
    dst: EtherAddr,
    src: EtherAddr,
    ether_type: EtherType,
    payload: &[u8],
) -> Vec<u8> {
    [&dst.0[..], &src.0, &ether_type.0.to_be_bytes(), payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::ether;
    use proptest::prelude::*;

    const DST: &str = "02:00:00:00:00:01";
    const SRC: &str = "02:00:00:00:00:02";

    #[test]
    fn a_header_cut_short_is_refused_at_every_length() {
        let whole = ether(DST, SRC).raw(EtherType(0x1234), b"").bytes();
        for len in 0..14 {
            assert_eq!(Ethernet::new(&whole[..len]).unwrap_err(), Malformed::Truncated);
        }
        assert!(Ethernet::new(&whole).is_ok());
    }

    #[test]
    fn a_frame_without_tags_is_made_at_once() {
        let made =
            build_ethernet_frame(DST.parse().unwrap(), SRC.parse().unwrap(), EtherType::ARP, b"payload");
        assert_eq!(made, ether(DST, SRC).raw(EtherType::ARP, b"payload").bytes());
    }

    #[test]
    fn tags_are_skipped_on_the_way_to_the_payload() {
        let plain = ether(DST, SRC);
        let (one, two) = (plain.clone().vlan(7), plain.clone().vlan(9).vlan(7));
        for (frame, outer, inner) in [(plain, None, None), (one, Some(7), None), (two, Some(9), Some(7))] {
            let bytes = frame.raw(EtherType::IPV4, b"payload").bytes();
            let view = Ethernet::new(&bytes).unwrap();
            assert_eq!((view.vlan().map(VlanTag::id), view.inner_vlan().map(VlanTag::id)), (outer, inner));
            assert_eq!((view.payload_type(), view.payload()), (EtherType::IPV4, &b"payload"[..]));
            assert_eq!((view.dst(), view.src()), (DST.parse().unwrap(), SRC.parse().unwrap()));
        }
    }

    #[test]
    fn a_tag_cut_short_is_not_a_tag() {
        let bytes = ether(DST, SRC).vlan(7).raw(EtherType::IPV4, b"").bytes();
        let view = Ethernet::new(&bytes[..17]).unwrap();
        assert_eq!((view.vlan(), view.payload_type(), view.payload().len()), (None, EtherType::VLAN, 3));
    }

    #[test]
    fn what_is_set_is_read() {
        let mut bytes = ether(DST, SRC).vlan(7).raw(EtherType::IPV4, b"").bytes();
        let mut view = Ethernet::new(&mut bytes).unwrap();
        view.set_dst(EtherAddr::BROADCAST);
        view.set_src(EtherAddr([2; 6]));
        assert!(view.set_vlan(VlanTag::new(5, 3, true)));
        assert_eq!((view.dst(), view.src()), (EtherAddr::BROADCAST, EtherAddr([2; 6])));
        let tag = view.vlan().unwrap();
        assert_eq!((tag.id(), tag.priority(), tag.drop_eligible()), (5, 3, true));
        view.set_ether_type(EtherType::ARP);
        assert!(!view.set_vlan(VlanTag::default()));
    }

    proptest! {
        #[test]
        fn no_bytes_make_an_accessor_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..40),
            tagged: bool,
        ) {
            if tagged && bytes.len() >= 20 {
                bytes[12..14].copy_from_slice(&[0x88, 0xa8]);
                bytes[16..18].copy_from_slice(&[0x81, 0x00]);
            }
            if let Ok(mut view) = Ethernet::new(&mut bytes) {
                let _ = (view.vlan(), view.inner_vlan(), view.payload_type(), view.payload());
                view.set_vlan(VlanTag(1));
            }
        }
    }
}
