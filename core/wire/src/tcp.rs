//! TCP headers (RFC 9293).

use std::fmt;
use std::ops::BitOr;

use crate::Malformed;
use crate::bytes::{at_least, clamped_slice, clear_header};
use crate::fields::fields;

const DATA_OFFSET: usize = 12;

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

/// A segment from its TCP header on. No setter of another field changes the checksum.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<T: AsRef<[u8]>>(T);

fields! {
    Tcp {
        src_port / set_src_port: u16 = 0, "the source port";
        dst_port / set_dst_port: u16 = 2, "the destination port";
        seq / set_seq: u32 = 4, "the sequence number of the first byte, or of the SYN";
        ack / set_ack: u32 = 8, "the next sequence number that the sender expects";
        flags / set_flags: TcpFlags = 13, "the control bits";
        window / set_window: u16 = 14, "the window, unscaled";
        checksum / set_checksum: u16 = 16, "the checksum";
        urgent / set_urgent: u16 = 18, "the urgent pointer";
    }
}

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
        at_least(bytes, Self::MIN_LEN)?;
        let header_len = usize::from(bytes[DATA_OFFSET] >> 4) * 4;
        if header_len < Self::MIN_LEN {
            return Err(Malformed::HeaderLength);
        }
        at_least(bytes, header_len)
    }

    /// Returns the header length in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[DATA_OFFSET] >> 4) * 4
    }

    /// Returns the options, possibly with padding.
    #[inline]
    pub fn options(&self) -> &[u8] {
        clamped_slice(self.0.as_ref(), Self::MIN_LEN, self.header_len())
    }

    /// Returns what follows the header.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        clamped_slice(self.0.as_ref(), self.header_len(), usize::MAX)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Tcp<T> {
    /// Makes a header without options of the first bytes: its length is set, all else is zero.
    #[inline]
    pub fn init(mut bytes: T) -> Result<Self, Malformed> {
        clear_header(bytes.as_mut(), Self::MIN_LEN)?[DATA_OFFSET] = 0x50;
        Ok(Tcp(bytes))
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
        assert!(view.flags().contains(TcpFlags::ACK));
        assert!(!view.flags().intersects(TcpFlags::SYN | TcpFlags::FIN));
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
