//! ICMP headers (RFC 792).

use crate::bytes::at_least;
use crate::fields::fields;
use crate::{Malformed, checksum};

/// What an ICMP message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IcmpType(pub u8);

impl IcmpType {
    /// The answer to an echo request.
    pub const ECHO_REPLY: IcmpType = IcmpType(0);
    /// The packet could not be delivered; the code says why.
    pub const UNREACHABLE: IcmpType = IcmpType(3);
    /// The sender should slow down; deprecated by RFC 6633.
    pub const SOURCE_QUENCH: IcmpType = IcmpType(4);
    /// A better first hop is on the sender's network.
    pub const REDIRECT: IcmpType = IcmpType(5);
    /// Requests an echo reply.
    pub const ECHO_REQUEST: IcmpType = IcmpType(8);
    /// The time to live, or the time for reassembly, ran out.
    pub const TIME_EXCEEDED: IcmpType = IcmpType(11);
    /// A field of the header is wrong.
    pub const PARAMETER_PROBLEM: IcmpType = IcmpType(12);

    /// Says whether the message reports an error and quotes the packet that caused it
    /// (RFC 1122 section 3.2.2).
    #[inline]
    pub fn is_error(self) -> bool {
        matches!(
            self,
            IcmpType::UNREACHABLE
                | IcmpType::SOURCE_QUENCH
                | IcmpType::REDIRECT
                | IcmpType::TIME_EXCEEDED
                | IcmpType::PARAMETER_PROBLEM
        )
    }
}

/// A message from its ICMP header on. No setter of another field changes the checksum.
#[derive(Clone, Copy, Debug)]
pub struct Icmp<T: AsRef<[u8]>>(T);

fields! {
    Icmp {
        icmp_type / set_icmp_type: IcmpType = 0, "the type";
        code / set_code: u8 = 1, "the code, whose meaning depends on the type";
        checksum / set_checksum: u16 = 2, "the checksum";
        rest / set_rest: [u8; 4] = 4, "the second word: gateway, pointer, next-hop MTU, or the echo's two \
            numbers";
        echo_id / set_echo_id: u16 = 4, "the identifier of an echo request or reply";
        echo_seq / set_echo_seq: u16 = 6, "the sequence number of an echo request or reply";
    }
}

impl<T: AsRef<[u8]>> Icmp<T> {
    /// Length of the header.
    pub const LEN: usize = 8;

    /// Takes bytes for a message if they hold its header.
    #[inline]
    pub fn new(bytes: T) -> Result<Self, Malformed> {
        at_least(bytes.as_ref(), Self::LEN)?;
        Ok(Icmp(bytes))
    }

    /// Says whether the checksum is right for the whole message.
    #[inline]
    pub fn checksum_is_valid(&self) -> bool {
        checksum::is_valid(checksum::sum(self.0.as_ref()))
    }

    /// Returns what follows the header; of an error, the packet it quotes.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[Self::LEN..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Icmp<T> {
    /// Computes the checksum of the whole message and sets it.
    #[inline]
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let checksum = !checksum::sum(self.0.as_ref());
        self.set_checksum(checksum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_cut_short_is_refused_at_every_length() {
        for len in 0..8 {
            assert_eq!(Icmp::new(&[0; 8][..len]).unwrap_err(), Malformed::Truncated);
        }
    }

    #[test]
    fn every_field_is_read_as_it_was_set() {
        let mut view = Icmp::new([7; 11]).unwrap();
        view.set_icmp_type(IcmpType::ECHO_REQUEST);
        view.set_code(0);
        view.set_echo_id(0x1234);
        view.set_echo_seq(0x5678);
        view.fill_checksum();
        assert_eq!((view.icmp_type(), view.code()), (IcmpType::ECHO_REQUEST, 0));
        assert_eq!(view.echo_id(), 0x1234);
        assert_eq!(view.echo_seq(), 0x5678);
        assert_eq!(view.rest(), [0x12, 0x34, 0x56, 0x78]);
        assert_eq!(view.payload(), [7; 3]);
        assert!(view.checksum_is_valid());
        view.set_rest([1, 2, 3, 4]);
        assert!(!view.checksum_is_valid() && !view.icmp_type().is_error());
    }

    #[test]
    fn errors_are_told_from_queries() {
        let errors: Vec<u8> = (0..=255).filter(|&number| IcmpType(number).is_error()).collect();
        assert_eq!(errors, [3, 4, 5, 11, 12]);
    }
}
