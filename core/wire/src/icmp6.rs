//! ICMPv6 headers (RFC 4443).

use std::net::Ipv6Addr;

use crate::bytes::at_least;
use crate::fields::fields;
use crate::{IpProtocol, Malformed, checksum};

/// What an ICMPv6 message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Icmp6Type(pub u8);

impl Icmp6Type {
    /// The packet could not be delivered; the code says why.
    pub const UNREACHABLE: Icmp6Type = Icmp6Type(1);
    /// The packet is longer than the next link takes.
    pub const PACKET_TOO_BIG: Icmp6Type = Icmp6Type(2);
    /// The hop limit, or the time for reassembly, ran out.
    pub const TIME_EXCEEDED: Icmp6Type = Icmp6Type(3);
    /// A field of a header is wrong, or what it names is unknown.
    pub const PARAMETER_PROBLEM: Icmp6Type = Icmp6Type(4);
    /// Requests an echo reply.
    pub const ECHO_REQUEST: Icmp6Type = Icmp6Type(128);
    /// The answer to an echo request.
    pub const ECHO_REPLY: Icmp6Type = Icmp6Type(129);
    /// Queries listeners of a multicast group, RFC 2710 and RFC 3810.
    pub const LISTENER_QUERY: Icmp6Type = Icmp6Type(130);
    /// Reports a listener of a group, RFC 2710.
    pub const LISTENER_REPORT: Icmp6Type = Icmp6Type(131);
    /// Reports that a listener has left a group, RFC 2710.
    pub const LISTENER_DONE: Icmp6Type = Icmp6Type(132);
    /// Solicits router advertisements, RFC 4861 section 4.1.
    pub const ROUTER_SOLICITATION: Icmp6Type = Icmp6Type(133);
    /// Announces a router and settings of the link, RFC 4861 section 4.2.
    pub const ROUTER_ADVERTISEMENT: Icmp6Type = Icmp6Type(134);
    /// Solicits the link address of a neighbor, RFC 4861 section 4.3.
    pub const NEIGHBOR_SOLICITATION: Icmp6Type = Icmp6Type(135);
    /// Announces the link address of a neighbor, RFC 4861 section 4.4.
    pub const NEIGHBOR_ADVERTISEMENT: Icmp6Type = Icmp6Type(136);
    /// A better first hop is on the link, RFC 4861 section 4.5.
    pub const REDIRECT: Icmp6Type = Icmp6Type(137);
    /// Reports listeners of groups, RFC 3810.
    pub const LISTENER_REPORT_V2: Icmp6Type = Icmp6Type(143);

    /// Says whether the message reports an error: the others have the highest bit set (RFC 4443 section 2.1).
    #[inline]
    pub fn is_error(self) -> bool {
        self.0 < 128
    }
}

/// A message from its ICMPv6 header on. No setter of another field changes the checksum.
#[derive(Clone, Copy, Debug)]
pub struct Icmp6<T: AsRef<[u8]>>(T);

fields! {
    Icmp6 {
        icmp_type / set_icmp_type: Icmp6Type = 0, "the type";
        code / set_code: u8 = 1, "the code, whose meaning depends on the type";
        checksum / set_checksum: u16 = 2, "the checksum";
        rest / set_rest: [u8; 4] = 4, "the second word: MTU, pointer, flags, or the echo's two numbers";
        echo_id / set_echo_id: u16 = 4, "the identifier of an echo request or reply";
        echo_seq / set_echo_seq: u16 = 6, "the sequence number of an echo request or reply";
    }
}

impl<T: AsRef<[u8]>> Icmp6<T> {
    /// Length of the header with the word after it, which all known messages have.
    pub const LEN: usize = 8;

    /// Takes bytes for a message if they hold its header.
    #[inline]
    pub fn new(bytes: T) -> Result<Self, Malformed> {
        at_least(bytes.as_ref(), Self::LEN)?;
        Ok(Icmp6(bytes))
    }

    /// Says whether the checksum is right for the whole message between these addresses.
    #[inline]
    pub fn checksum_is_valid(&self, src: Ipv6Addr, dst: Ipv6Addr) -> bool {
        checksum::is_valid(self.compute_sum(src, dst))
    }

    /// Returns what follows the header; of an error, the packet it quotes.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[Self::LEN..]
    }

    /// The sum of pseudo-header and message (RFC 4443 section 2.3).
    fn compute_sum(&self, src: Ipv6Addr, dst: Ipv6Addr) -> u16 {
        let message = self.0.as_ref();
        let pseudo = checksum::pseudo_v6(src, dst, IpProtocol::ICMPV6, message.len() as u32);
        checksum::add(pseudo, checksum::sum(message))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Icmp6<T> {
    /// Computes the checksum of the whole message between these addresses and sets it.
    #[inline]
    pub fn fill_checksum(&mut self, src: Ipv6Addr, dst: Ipv6Addr) {
        self.set_checksum(0);
        let checksum = !self.compute_sum(src, dst);
        self.set_checksum(checksum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRC: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    const DST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

    #[test]
    fn a_header_cut_short_is_refused_at_every_length() {
        for len in 0..8 {
            assert_eq!(Icmp6::new(&[0; 8][..len]).unwrap_err(), Malformed::Truncated);
        }
    }

    #[test]
    fn every_field_is_read_as_it_was_set() {
        let mut view = Icmp6::new([7; 11]).unwrap();
        view.set_icmp_type(Icmp6Type::ECHO_REQUEST);
        view.set_code(0);
        view.set_echo_id(0x1234);
        view.set_echo_seq(0x5678);
        assert_eq!((view.icmp_type(), view.code()), (Icmp6Type::ECHO_REQUEST, 0));
        assert_eq!((view.echo_id(), view.echo_seq()), (0x1234, 0x5678));
        assert_eq!((view.rest(), view.payload()), ([0x12, 0x34, 0x56, 0x78], &[7; 3][..]));
    }

    #[test]
    fn the_checksum_covers_both_addresses_and_the_message() {
        let mut view = Icmp6::new([7; 11]).unwrap();
        view.fill_checksum(SRC, DST);
        assert!(view.checksum_is_valid(SRC, DST) && view.checksum_is_valid(DST, SRC));
        assert!(!view.checksum_is_valid(SRC, SRC));
        view.set_rest([1, 2, 3, 4]);
        assert!(!view.checksum_is_valid(SRC, DST));
    }

    #[test]
    fn errors_are_told_from_queries() {
        assert!([0, 1, 2, 3, 4, 100, 127].into_iter().all(|number| Icmp6Type(number).is_error()));
        assert!([128, 133, 137, 255].into_iter().all(|number| !Icmp6Type(number).is_error()));
    }
}
