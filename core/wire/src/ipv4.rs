//! IPv4 headers (RFC 791).

use std::net::Ipv4Addr;

use crate::bytes::{at_least, clamped_mut, clamped_slice, clear_header, u16_at, write_u16};
use crate::fields::fields;
use crate::{IpProtocol, Malformed, checksum};

const VERSION_IHL: usize = 0;
const TTL: usize = 8;
const CHECKSUM: usize = 10;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// A packet from its IPv4 header on.
///
/// The header is whole; the packet need not be, as in an ICMP error, which quotes the first bytes of one. Of
/// what changes a field, only `decrement_ttl` corrects the checksum.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<T: AsRef<[u8]>>(T);

fields! {
    Ipv4 {
        tos / set_tos: u8 = 1, "the type of service: six bits of DSCP and two of ECN";
        total_length / set_total_length: u16 = 2, "the length of header and payload, as the header says";
        id / set_id: u16 = 4, "the identification that fragments of a packet share";
        fragment_field / set_fragment_field: u16 = 6, "the three flags and the offset in units of 8 bytes";
        ttl / set_ttl: u8 = TTL, "the time to live";
        protocol / set_protocol: IpProtocol = 9, "what follows the header";
        checksum / set_checksum: u16 = CHECKSUM, "the header checksum";
        src / set_src: Ipv4Addr = 12, "the source address";
        dst / set_dst: Ipv4Addr = 16, "the destination address";
    }
}

impl<T: AsRef<[u8]>> Ipv4<T> {
    /// Length of a header without options.
    pub const MIN_LEN: usize = 20;

    /// Takes bytes for an IPv4 packet if they hold its header with all options.
    #[inline]
    pub fn new(bytes: T) -> Result<Self, Malformed> {
        Self::check_len(bytes.as_ref())?;
        Ok(Ipv4(bytes))
    }

    #[inline]
    fn check_len(bytes: &[u8]) -> Result<(), Malformed> {
        at_least(bytes, Self::MIN_LEN)?;
        if bytes[VERSION_IHL] >> 4 != 4 {
            return Err(Malformed::Version);
        }
        let header_len = usize::from(bytes[VERSION_IHL] & 0xf) * 4;
        if header_len < Self::MIN_LEN {
            return Err(Malformed::HeaderLength);
        }
        at_least(bytes, header_len)
    }

    /// Takes bytes for a whole IPv4 packet: [`new`](Self::new), and the total length covers the header and is
    /// all there. What follows the packet, as padding does, is allowed.
    #[inline]
    pub fn validate_lengths(bytes: T) -> Result<Self, Malformed> {
        let packet = Self::new(bytes)?;
        packet.check_total_length()?;
        Ok(packet)
    }

    /// Takes bytes for an IPv4 packet that routers and hosts accept (RFC 1812 section 5.2.2, RFC 1122 section
    /// 3.2.1): [`validate_lengths`](Self::validate_lengths), and the header checksum is right. Of several
    /// defects the first in this order is named.
    #[inline]
    pub fn validate(bytes: T) -> Result<Self, Malformed> {
        let packet = Self::validate_lengths(bytes)?;
        if packet.checksum_is_valid() { Ok(packet) } else { Err(Malformed::Checksum) }
    }

    /// Checks that the total length covers the header and is all there.
    #[inline]
    pub fn check_total_length(&self) -> Result<(), Malformed> {
        let total = usize::from(self.total_length());
        let possible = self.header_len()..=self.0.as_ref().len();
        if possible.contains(&total) { Ok(()) } else { Err(Malformed::Length) }
    }

    /// Returns the version, which is 4.
    #[inline]
    pub fn version(&self) -> u8 {
        self.0.as_ref()[VERSION_IHL] >> 4
    }

    /// Returns the header length in 32-bit words.
    #[inline]
    pub fn ihl(&self) -> u8 {
        self.0.as_ref()[VERSION_IHL] & 0xf
    }

    /// Returns the header length in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.ihl()) * 4
    }

    /// Says whether the packet must not be fragmented.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.fragment_field() & DONT_FRAGMENT != 0
    }

    /// Says whether this is a fragment and not the last.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.fragment_field() & MORE_FRAGMENTS != 0
    }

    /// Returns where this fragment's payload belongs, in bytes.
    #[inline]
    pub fn fragment_offset(&self) -> usize {
        usize::from(self.fragment_field() & FRAGMENT_OFFSET) * 8
    }

    /// Says whether this is a part of a packet, first or later.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.fragment_field() & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0
    }

    /// Says whether the header checksum is right.
    #[inline]
    pub fn checksum_is_valid(&self) -> bool {
        match self.header().first_chunk() {
            Some(fixed) if self.header_len() == Self::MIN_LEN => checksum::is_ipv4_header_valid(fixed),
            _ => checksum::is_valid(checksum::sum(self.header())),
        }
    }

    /// Returns the header with its options.
    #[inline]
    pub fn header(&self) -> &[u8] {
        clamped_slice(self.0.as_ref(), 0, self.header_len())
    }

    /// Returns the options; most headers have none.
    #[inline]
    pub fn options(&self) -> &[u8] {
        clamped_slice(self.0.as_ref(), Self::MIN_LEN, self.header_len())
    }

    /// Returns what follows the header, up to the total length or to where the bytes end.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        clamped_slice(self.0.as_ref(), self.header_len(), self.total_length().into())
    }

    #[inline]
    fn header_sum(&self) -> u16 {
        match self.header().first_chunk() {
            Some(fixed) if self.header_len() == Self::MIN_LEN => checksum::ipv4_header_sum(fixed),
            _ => checksum::sum(self.header()),
        }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4<T> {
    /// Makes a header without options of the first bytes: version and length are set, all else is zero.
    #[inline]
    pub fn init(mut bytes: T) -> Result<Self, Malformed> {
        clear_header(bytes.as_mut(), Self::MIN_LEN)?[VERSION_IHL] = 0x45;
        Ok(Ipv4(bytes))
    }

    /// Sets both fragment flags and the offset in bytes, which must be a multiple of 8 below 65536.
    #[inline]
    pub fn set_fragment(&mut self, dont_fragment: bool, more_fragments: bool, offset: usize) {
        let flags =
            if dont_fragment { DONT_FRAGMENT } else { 0 } | if more_fragments { MORE_FRAGMENTS } else { 0 };
        self.set_fragment_field(flags | (offset / 8) as u16 & FRAGMENT_OFFSET);
    }

    /// Takes one from the time to live, if there is any, corrects the checksum and returns what is left.
    ///
    /// A wrong checksum stays wrong: it is updated (RFC 1624), not computed again.
    #[inline]
    pub fn decrement_ttl(&mut self) -> u8 {
        let bytes = self.0.as_mut();
        let ttl_and_protocol = u16_at(bytes, TTL);
        let Some(less) = ttl_and_protocol.checked_sub(0x100) else {
            return 0;
        };
        let checksum = checksum::update(u16_at(bytes, CHECKSUM), ttl_and_protocol, less);
        write_u16(bytes, TTL, less);
        write_u16(bytes, CHECKSUM, checksum);
        (less >> 8) as u8
    }

    /// Computes the header checksum and sets it.
    #[inline]
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let checksum = !self.header_sum();
        self.set_checksum(checksum);
    }

    /// Returns what [`payload`](Self::payload) does, to write.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let (from, to) = (self.header_len(), self.total_length().into());
        clamped_mut(self.0.as_mut(), from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::ip4;
    use proptest::prelude::*;

    #[test]
    fn a_header_cut_short_is_refused_at_every_length() {
        for options in [vec![], vec![1; 40]] {
            let header_len = 20 + options.len();
            let bytes = ip4().options(options).udp(1, 2).bytes();
            for len in 0..header_len {
                assert_eq!(Ipv4::new(&bytes[..len]).unwrap_err(), Malformed::Truncated, "{len}");
            }
            assert!(Ipv4::new(&bytes[..header_len]).is_ok());
        }
    }

    #[test]
    fn another_version_or_a_short_header_length_is_refused() {
        let mut bytes = ip4().bytes();
        bytes[0] = 0x65;
        assert_eq!(Ipv4::new(&bytes).unwrap_err(), Malformed::Version);
        bytes[0] = 0x44;
        assert_eq!(Ipv4::new(&bytes).unwrap_err(), Malformed::HeaderLength);
    }

    #[test]
    fn the_total_length_must_cover_the_header_and_be_there() {
        let mut bytes = ip4().udp(1, 2).bytes();
        for (total, expected) in
            [(19, Err(Malformed::Length)), (20, Ok(())), (28, Ok(())), (29, Err(Malformed::Length))]
        {
            let mut view = Ipv4::new(&mut bytes).unwrap();
            view.set_total_length(total);
            assert_eq!(view.check_total_length(), expected, "{total}");
        }
    }

    #[test]
    fn a_packet_is_accepted_only_if_lengths_version_and_checksum_are_right() {
        let whole = ip4().options([1; 4]).udp(1, 2).bytes();
        let changed = |at: usize, byte: u8| [&whole[..at], &[byte], &whole[at + 1..]].concat();
        for (bytes, expected) in [
            (whole.clone(), None),
            ([&whole[..], b"padding"].concat(), None),
            (whole[..19].to_vec(), Some(Malformed::Truncated)),
            (whole[..23].to_vec(), Some(Malformed::Truncated)),
            (changed(0, 0x66), Some(Malformed::Version)),
            (changed(0, 0x44), Some(Malformed::HeaderLength)),
            (whole[..31].to_vec(), Some(Malformed::Length)),
            (changed(3, 23), Some(Malformed::Length)),
            (changed(8, 99), Some(Malformed::Checksum)),
        ] {
            assert_eq!(Ipv4::validate(&bytes).err(), expected, "{bytes:?}");
            let lengths = Ipv4::validate_lengths(&bytes).err();
            assert_eq!(lengths, expected.filter(|defect| *defect != Malformed::Checksum), "{bytes:?}");
        }
    }

    #[test]
    fn payload_ends_with_the_total_length_or_the_bytes() {
        let mut bytes = ip4().raw(99, b"payload").bytes();
        bytes.extend(b"padding");
        assert_eq!(Ipv4::new(&bytes).unwrap().payload(), b"payload");
        assert_eq!(Ipv4::new(&bytes[..23]).unwrap().payload(), b"pay");
        let mut view = Ipv4::new(&mut bytes).unwrap();
        view.payload_mut()[0] = b'P';
        view.set_total_length(5);
        assert!(view.payload().is_empty() && view.payload_mut().is_empty());
    }

    #[test]
    fn every_field_is_read_as_it_was_set() {
        let mut view = Ipv4::init([0xaa; 20]).unwrap();
        view.set_tos(0xb8);
        view.set_total_length(40);
        view.set_id(0x1234);
        view.set_fragment(true, true, 1480);
        view.set_ttl(3);
        view.set_protocol(IpProtocol::TCP);
        view.set_src(Ipv4Addr::new(1, 2, 3, 4));
        view.set_dst(Ipv4Addr::new(5, 6, 7, 8));
        view.fill_checksum();
        assert_eq!((view.version(), view.ihl(), view.header_len(), view.tos()), (4, 5, 20, 0xb8));
        assert_eq!((view.total_length(), view.id(), view.ttl()), (40, 0x1234, 3));
        assert!(view.dont_fragment() && view.more_fragments() && view.is_fragment());
        assert_eq!((view.fragment_offset(), view.protocol()), (1480, IpProtocol::TCP));
        assert_eq!((view.src(), view.dst()), (Ipv4Addr::new(1, 2, 3, 4), Ipv4Addr::new(5, 6, 7, 8)));
        assert!(view.checksum_is_valid() && view.options().is_empty());
    }

    #[test]
    fn a_ttl_of_zero_stays() {
        let mut bytes = ip4().ttl(0).bytes();
        let before = bytes.clone();
        assert_eq!(Ipv4::new(&mut bytes).unwrap().decrement_ttl(), 0);
        assert_eq!(bytes, before);
    }

    proptest! {
        #[test]
        fn a_decremented_header_is_the_one_built_with_the_lower_ttl(
            src: [u8; 4],
            dst: [u8; 4],
            id: u16,
            tos: u8,
            protocol: u8,
            ttl in 1_u8..,
        ) {
            let packet = ip4().src(src).dst(dst).id(id).tos(tos).raw(protocol, b"x");
            let mut bytes = packet.clone().ttl(ttl).bytes();
            prop_assert_eq!(Ipv4::new(&mut bytes).unwrap().decrement_ttl(), ttl - 1);
            prop_assert_eq!(bytes, packet.ttl(ttl - 1).bytes());
        }

        #[test]
        fn no_bytes_make_an_accessor_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..70),
            first: u8,
        ) {
            if let Some(byte) = bytes.first_mut() {
                *byte = 0x40 | first & 0xf;
            }
            if let Ok(mut view) = Ipv4::new(&mut bytes) {
                let _ = (view.options(), view.payload(), view.checksum_is_valid(), view.check_total_length());
                view.payload_mut();
                view.decrement_ttl();
                view.fill_checksum();
                prop_assert!(view.checksum_is_valid());
            }
        }
    }
}
