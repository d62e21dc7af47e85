//! UDP headers (RFC 768).

use crate::Malformed;
use crate::bytes::{clamped, put_u16, u16_at};

const SRC_PORT: usize = 0;
const DST_PORT: usize = 2;
const LENGTH: usize = 4;
const CHECKSUM: usize = 6;

/// A datagram from its UDP header on.
#[derive(Clone, Copy, Debug)]
pub struct Udp<T: AsRef<[u8]>>(T);

impl<T: AsRef<[u8]>> Udp<T> {
    /// Length of the header.
    pub const LEN: usize = 8;

    /// Takes bytes for a datagram if they hold its header.
    #[inline]
    pub fn new(bytes: T) -> Result<Self, Malformed> {
        Self::check_len(bytes.as_ref())?;
        Ok(Udp(bytes))
    }

    #[inline]
    fn check_len(bytes: &[u8]) -> Result<(), Malformed> {
        if bytes.len() < Self::LEN { Err(Malformed::Truncated) } else { Ok(()) }
    }

    /// Checks that the length covers the header and is all there.
    #[inline]
    pub fn check_length(&self) -> Result<(), Malformed> {
        let possible = Self::LEN..=self.0.as_ref().len();
        if possible.contains(&self.length().into()) { Ok(()) } else { Err(Malformed::Length) }
    }

    /// Returns the source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        u16_at(self.0.as_ref(), SRC_PORT)
    }

    /// Returns the destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        u16_at(self.0.as_ref(), DST_PORT)
    }

    /// Returns the length of header and payload, as the header says.
    #[inline]
    pub fn length(&self) -> u16 {
        u16_at(self.0.as_ref(), LENGTH)
    }

    /// Returns the checksum; 0 means that the sender computed none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at(self.0.as_ref(), CHECKSUM)
    }

    /// Returns what follows the header, up to the length or to where the bytes end.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        clamped(self.0.as_ref(), Self::LEN, self.length().into())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Udp<T> {
    /// Sets the source port. As all setters, it leaves the checksum as it was.
    #[inline]
    pub fn set_src_port(&mut self, port: u16) {
        put_u16(self.0.as_mut(), SRC_PORT, port);
    }

    /// Sets the destination port.
    #[inline]
    pub fn set_dst_port(&mut self, port: u16) {
        put_u16(self.0.as_mut(), DST_PORT, port);
    }

    /// Sets the length of header and payload.
    #[inline]
    pub fn set_length(&mut self, length: u16) {
        put_u16(self.0.as_mut(), LENGTH, length);
    }

    /// Sets the checksum as it stands; a computed 0 is sent as 0xffff, which [`never_zero`] makes it.
    ///
    /// [`never_zero`]: crate::checksum::never_zero
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        put_u16(self.0.as_mut(), CHECKSUM, checksum);
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
