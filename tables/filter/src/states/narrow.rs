//! The distinguishing part of IPv4 keys, in the byte order of packets.

/// Addresses and ports as they lie in a packet that comes in: first those of its source. To compare two
/// nothing is moved. Of IPv6 it is enough for a first look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(crate) struct NarrowKey {
    addresses: u64,
    ports: u32,
}

impl NarrowKey {
    pub(crate) const EMPTY: NarrowKey = NarrowKey { addresses: 0, ports: 0 };

    /// Of a packet that comes in, by its header of IPv4 without options and the ports behind it.
    #[inline(always)]
    pub(crate) fn of_header(header: &[u8; 28]) -> NarrowKey {
        let [.., a, b, c, d, e, f, g, h, p, q, r, s, _, _, _, _] = *header;
        let addresses = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        NarrowKey { addresses, ports: u32::from_ne_bytes([p, q, r, s]) }
    }

    #[inline(always)]
    pub(crate) fn from_ends([a, b]: [u32; 2], [p, q]: [u16; 2]) -> NarrowKey {
        let ([a, b, c, d], [e, f, g, h]) = (a.to_be_bytes(), b.to_be_bytes());
        let ([p, q], [r, s]) = (p.to_be_bytes(), q.to_be_bytes());
        let addresses = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        NarrowKey { addresses, ports: u32::from_ne_bytes([p, q, r, s]) }
    }

    pub(crate) fn to_ends(self) -> ([u32; 2], [u16; 2]) {
        let NarrowKey { addresses, ports } = self;
        let ([a, b, c, d, e, f, g, h], [p, q, r, s]) = (addresses.to_ne_bytes(), ports.to_ne_bytes());
        let addresses = [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])];
        (addresses, [u16::from_be_bytes([p, q]), u16::from_be_bytes([r, s])])
    }

    /// As words, in no order that means anything, and back.
    #[inline(always)]
    pub(crate) fn to_words(self) -> (u64, u32) {
        (self.addresses, self.ports)
    }

    #[inline(always)]
    pub(crate) fn of_words(addresses: u64, ports: u32) -> NarrowKey {
        NarrowKey { addresses, ports }
    }

    /// With both ends in each other's place.
    #[inline(always)]
    pub(crate) fn swap_ends(self) -> NarrowKey {
        self.swap_ends_if(1)
    }

    /// The same if the lowest bit of a number is set.
    #[inline(always)]
    pub(crate) fn swap_ends_if(self, number: u32) -> NarrowKey {
        let NarrowKey { addresses, ports } = self;
        let odd = number & 1;
        NarrowKey { addresses: addresses.rotate_left(32 * odd), ports: ports.rotate_left(16 * odd) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_same_by_its_ends_and_by_a_header() {
        let mut header = [0; 28];
        header[12..24].copy_from_slice(&[192, 0, 2, 1, 10, 0, 0, 9, 0x12, 0x34, 0, 53]);
        let ends = ([0xc000_0201, 0x0a00_0009], [0x1234, 53]);
        let narrow = NarrowKey::of_header(&header);
        assert_eq!(narrow, NarrowKey::from_ends(ends.0, ends.1));
        assert_eq!(narrow.to_ends(), ends);
        assert_eq!(narrow.swap_ends(), NarrowKey::from_ends([0x0a00_0009, 0xc000_0201], [53, 0x1234]));
        assert_eq!((narrow.swap_ends_if(2), narrow.swap_ends_if(3)), (narrow, narrow.swap_ends()));
        let (addresses, ports) = narrow.to_words();
        assert_eq!(NarrowKey::of_words(addresses, ports), narrow);
    }
}
