//! The tag of IEEE 802.1Q: what stands between the addresses and the type of a tagged frame.

/// Length of a tag with its type.
pub(crate) const TAG_LEN: usize = 4;

/// The tag control field: VLAN id, priority and drop eligibility.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VlanTag(pub u16);

impl VlanTag {
    /// Makes a tag; bits beyond the 12 of an id, the 3 of a priority, are ignored.
    #[inline]
    pub fn new(id: u16, priority: u8, drop_eligible: bool) -> VlanTag {
        VlanTag(u16::from(priority & 7) << 13 | u16::from(drop_eligible) << 12 | id & 0xfff)
    }

    /// Returns the VLAN id; 0 means the tag carries a priority only.
    #[inline]
    pub fn id(self) -> u16 {
        self.0 & 0xfff
    }

    /// Returns the priority code point, 0 to 7.
    #[inline]
    pub fn priority(self) -> u8 {
        (self.0 >> 13) as u8
    }

    /// Says whether the frame may be dropped first.
    #[inline]
    pub fn drop_eligible(self) -> bool {
        self.0 & 0x1000 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_tag_is_its_three_parts(bits: u16) {
            let tag = VlanTag(bits);
            prop_assert_eq!(VlanTag::new(tag.id(), tag.priority(), tag.drop_eligible()), tag);
        }
    }
}
