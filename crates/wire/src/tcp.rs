//! TCP headers (RFC 9293).

use std::fmt;
use std::ops::BitOr;

use crate::Malformed;
use crate::bytes::{clamped, put_u16, put_u32, u16_at, u32_at};

const SRC_PORT: usize = 0;
const DST_PORT: usize = 2;
const SEQ: usize = 4;
const ACK: usize = 8;
const DATA_OFFSET: usize = 12;
const FLAGS: usize = 13;
const WINDOW: usize = 14;
const CHECKSUM: usize = 16;
const URGENT: usize = 18;

/// The control bits of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// The sender has no more to send.
    pub const FIN: TcpFlags = TcpFlags(0x01);
    /// The sequence numbers begin here.
    pub const SYN: TcpFlags = TcpFlags(0x02);
    /// The connection is reset.
    pub const RST: TcpFlags = TcpFlags(0x04);
    /// The data should be delivered at once.
    pub const PSH: TcpFlags = TcpFlags(0x08);
    /// The acknowledgment number counts.
    pub const ACK: TcpFlags = TcpFlags(0x10);
    /// The urgent pointer counts.
    pub const URG: TcpFlags = TcpFlags(0x20);
    /// Congestion was experienced, RFC 3168.
    pub const ECE: TcpFlags = TcpFlags(0x40);
    /// The congestion window was reduced, RFC 3168.
    pub const CWR: TcpFlags = TcpFlags(0x80);

    /// Says whether all of `flags` are set.
    #[inline]
    pub fn contains(self, flags: TcpFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Says whether any of `flags` is set.
    #[inline]
    pub fn intersects(self, flags: TcpFlags) -> bool {
        self.0 & flags.0 != 0
    }
}

impl BitOr for TcpFlags {
    type Output = TcpFlags;

    fn bitor(self, other: TcpFlags) -> TcpFlags {
        TcpFlags(self.0 | other.0)
    }
}

impl fmt::Display for TcpFlags {
    /// Writes one letter per flag, a dot for ACK, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("none");
        }
        let letters = b"FSRP.UEW".iter().enumerate();
        letters
            .filter(|(bit, _)| self.0 >> bit & 1 == 1)
            .try_for_each(|(_, &letter)| write!(f, "{}", letter as char))
    }
}

/// A segment from its TCP header on.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<T: AsRef<[u8]>>(T);

impl<T: AsRef<[u8]>> Tcp<T> {
    /// Length of a header without options.
    pub const MIN_LEN: usize = 20;

    /// Takes bytes for a segment if they hold its header with all options.
    #[inline]
    pub fn new(bytes: T) -> Result<Self, Malformed> {
        Self::check_len(bytes.as_ref())?;
        Ok(Tcp(bytes))
    }

    #[inline]
    fn check_len(bytes: &[u8]) -> Result<(), Malformed> {
        if bytes.len() < Self::MIN_LEN {
            return Err(Malformed::Truncated);
        }
        let header_len = usize::from(bytes[DATA_OFFSET] >> 4) * 4;
        if header_len < Self::MIN_LEN {
            return Err(Malformed::HeaderLength);
        }
        if bytes.len() < header_len { Err(Malformed::Truncated) } else { Ok(()) }
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

    /// Returns the sequence number of the first byte, or of the SYN.
    #[inline]
    pub fn seq(&self) -> u32 {
        u32_at(self.0.as_ref(), SEQ)
    }

    /// Returns the next sequence number that the sender expects.
    #[inline]
    pub fn ack(&self) -> u32 {
        u32_at(self.0.as_ref(), ACK)
    }

    /// Returns the header length in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[DATA_OFFSET] >> 4) * 4
    }

    /// Returns the control bits.
    #[inline]
    pub fn flags(&self) -> TcpFlags {
        TcpFlags(self.0.as_ref()[FLAGS])
    }

    /// Returns the window, unscaled.
    #[inline]
    pub fn window(&self) -> u16 {
        u16_at(self.0.as_ref(), WINDOW)
    }

    /// Returns the checksum.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at(self.0.as_ref(), CHECKSUM)
    }

    /// Returns the urgent pointer.
    #[inline]
    pub fn urgent(&self) -> u16 {
        u16_at(self.0.as_ref(), URGENT)
    }

    /// Returns the options.
    #[inline]
    pub fn options(&self) -> &[u8] {
        clamped(self.0.as_ref(), Self::MIN_LEN, self.header_len())
    }

    /// Returns what follows the header.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        clamped(self.0.as_ref(), self.header_len(), usize::MAX)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Tcp<T> {
    /// Makes a header without options of the first bytes: its length is set, all else is zero.
    #[inline]
    pub fn init(mut bytes: T) -> Result<Self, Malformed> {
        let header = bytes.as_mut().get_mut(..Self::MIN_LEN).ok_or(Malformed::Truncated)?;
        header.fill(0);
        header[DATA_OFFSET] = 0x50;
        Ok(Tcp(bytes))
    }

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

    /// Sets the sequence number.
    #[inline]
    pub fn set_seq(&mut self, seq: u32) {
        put_u32(self.0.as_mut(), SEQ, seq);
    }

    /// Sets the acknowledgment number.
    #[inline]
    pub fn set_ack(&mut self, ack: u32) {
        put_u32(self.0.as_mut(), ACK, ack);
    }

    /// Sets the control bits.
    #[inline]
    pub fn set_flags(&mut self, flags: TcpFlags) {
        self.0.as_mut()[FLAGS] = flags.0;
    }

    /// Sets the window.
    #[inline]
    pub fn set_window(&mut self, window: u16) {
        put_u16(self.0.as_mut(), WINDOW, window);
    }

    /// Sets the checksum.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        put_u16(self.0.as_mut(), CHECKSUM, checksum);
    }

    /// Sets the urgent pointer.
    #[inline]
    pub fn set_urgent(&mut self, urgent: u16) {
        put_u16(self.0.as_mut(), URGENT, urgent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_cut_short_is_refused_at_every_length() {
        for words in [5_u8, 8, 15] {
            let mut bytes = vec![0; 70];
            bytes[DATA_OFFSET] = words << 4;
            let header_len = usize::from(words) * 4;
            for len in 0..header_len {
                assert_eq!(Tcp::new(&bytes[..len]).unwrap_err(), Malformed::Truncated);
            }
            let view = Tcp::new(&bytes).unwrap();
            assert_eq!((view.options().len(), view.payload().len()), (header_len - 20, 70 - header_len));
        }
    }

    #[test]
    fn a_data_offset_below_the_header_is_refused() {
        for words in 0..5 {
            let mut bytes = [0; 20];
            bytes[DATA_OFFSET] = words << 4;
            assert_eq!(Tcp::new(bytes).unwrap_err(), Malformed::HeaderLength);
        }
    }

    #[test]
    fn every_field_is_read_as_it_was_set() {
        let mut view = Tcp::init([0xaa; 23]).unwrap();
        view.set_src_port(1234);
        view.set_dst_port(80);
        view.set_seq(0x0102_0304);
        view.set_ack(0x0506_0708);
        view.set_flags(TcpFlags::PSH | TcpFlags::ACK);
        view.set_window(8192);
        view.set_checksum(0xbeef);
        view.set_urgent(7);
        assert_eq!((view.src_port(), view.dst_port()), (1234, 80));
        assert_eq!((view.seq(), view.ack()), (0x0102_0304, 0x0506_0708));
        assert_eq!((view.header_len(), view.window(), view.checksum(), view.urgent()), (20, 8192, 0xbeef, 7));
        assert!(
            view.flags().contains(TcpFlags::ACK) && !view.flags().intersects(TcpFlags::SYN | TcpFlags::FIN)
        );
        assert_eq!(view.payload(), [0xaa; 3]);
    }

    #[test]
    fn flags_are_written_as_letters() {
        for (flags, text) in [
            (TcpFlags::default(), "none"),
            (TcpFlags::SYN, "S"),
            (TcpFlags::SYN | TcpFlags::ACK, "S."),
            (TcpFlags::ACK, "."),
            (TcpFlags(0xff), "FSRP.UEW"),
        ] {
            assert_eq!(flags.to_string(), text);
        }
    }
}
