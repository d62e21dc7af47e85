//! UDP headers (RFC 768).

use crate::Malformed;
use crate::bytes::{at_least, clamped_slice};
use crate::fields::fields;

/// A datagram from its UDP header on.
///
/// No setter of another field changes the checksum. It is set as it stands; a computed 0 is sent as 0xffff,
/// which [`never_zero`](crate::checksum::never_zero) makes it.
#[derive(Clone, Copy, Debug)]
pub struct Udp<T: AsRef<[u8]>>(T);

fields! {
    Udp {
        src_port / set_src_port: u16 = 0, "the source port";
        dst_port / set_dst_port: u16 = 2, "the destination port";
        length / set_length: u16 = 4, "the length of header and payload, as the header says";
        checksum / set_checksum: u16 = 6, "the checksum; 0 means that the sender computed none";
    }
}

impl<T: AsRef<[u8]>> Udp<T> {
    /// Length of the header.
    pub const LEN: usize = 8;

    /// Takes bytes for a datagram if they hold its header.
    #[inline]
    pub fn new(bytes: T) -> Result<Self, Malformed> {
        at_least(bytes.as_ref(), Self::LEN)?;
        Ok(Udp(bytes))
    }

    /// Checks that the length covers the header and is all there.
    #[inline]
    pub fn check_length(&self) -> Result<(), Malformed> {
        let possible = Self::LEN..=self.0.as_ref().len();
        if possible.contains(&self.length().into()) { Ok(()) } else { Err(Malformed::Length) }
    }

    /// Returns what follows the header, up to the length or to where the bytes end.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        clamped_slice(self.0.as_ref(), Self::LEN, self.length().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_cut_short_is_refused_at_every_length() {
        for len in 0..8 {
            assert_eq!(Udp::new(&[0; 8][..len]).unwrap_err(), Malformed::Truncated);
        }
        assert!(Udp::new([0; 8]).is_ok());
    }

    #[test]
    fn every_field_is_read_as_it_was_set() {
        let mut view = Udp::new([0; 12]).unwrap();
        view.set_src_port(1234);
        view.set_dst_port(53);
        view.set_length(10);
        view.set_checksum(0xbeef);
        assert_eq!((view.src_port(), view.dst_port(), view.length()), (1234, 53, 10));
        assert_eq!((view.checksum(), view.payload().len()), (0xbeef, 2));
    }

    #[test]
    fn the_length_must_cover_the_header_and_be_there() {
        let mut view = Udp::new([0; 12]).unwrap();
        for (length, payload, expected) in [
            (0, 0, Err(Malformed::Length)),
            (7, 0, Err(Malformed::Length)),
            (8, 0, Ok(())),
            (12, 4, Ok(())),
            (13, 4, Err(Malformed::Length)),
        ] {
            view.set_length(length);
            assert_eq!((view.check_length(), view.payload().len()), (expected, payload), "{length}");
        }
    }
}
