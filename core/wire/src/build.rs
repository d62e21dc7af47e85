//! Packets written readably, with correct lengths and checksums: for tests and generators, not the packet
//! path.
//!
//! Addresses are given as text, bytes or address types; text that is not an address is a mistake in the
//! program and panics.
//!
//! ```
//! use artery_wire::build::{ether, ip4};
//! let packet = ip4().src("10.0.0.1").dst("10.0.0.2").ttl(1).udp(1234, 53).payload("hello");
//! let frame = ether("02:00:00:00:00:02", "02:00:00:00:00:01").vlan(7).ip4(packet);
//! assert_eq!(frame.bytes().len(), 14 + 4 + 20 + 8 + 5);
//! ```

mod ether;
mod ip4;
mod ip6;
mod literal;
mod neighbor;
mod upper;

pub use ether::{Ether, Frame, ether};
pub use ip4::{Ip4, icmp_echo, ip4};
pub use ip6::{Ip6, ip6};
pub use literal::Literal;
pub use neighbor::{arp_reply, arp_request, neighbor_advertisement, neighbor_solicitation};

use upper::{Header, Upper};

fn echo_numbers(id: u16, seq: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (id.to_be_bytes(), seq.to_be_bytes());
    [a, b, c, d]
}

fn length_field(len: usize) -> u16 {
    len.try_into().unwrap_or_else(|_| panic!("{len} bytes are too many for an IP packet"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EtherType, Ipv4, Udp};
    use std::net::Ipv4Addr;

    #[test]
    fn a_udp_checksum_of_zero_is_sent_as_ones() {
        let plain = ip4().udp(1, 2).payload([0; 2]).bytes();
        let checksum = Udp::new(&plain[20..]).unwrap().checksum();
        let cancelled = ip4().udp(1, 2).payload(checksum.to_be_bytes()).bytes();
        assert_eq!(Udp::new(&cancelled[20..]).unwrap().checksum(), 0xffff);
    }

    #[test]
    fn addresses_may_be_text_bytes_or_addresses() {
        let text = ip4().src("1.2.3.4").dst("5.6.7.8").bytes();
        assert_eq!(ip4().src([1, 2, 3, 4]).dst(Ipv4Addr::new(5, 6, 7, 8)).bytes(), text);
        let frame = ether("0:0:0:0:0:1", [2; 6]).raw(EtherType(1), text);
        assert_eq!(frame.bytes()[..12], [0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2]);
    }

    #[test]
    #[should_panic(expected = "\"1.2.3\" is not a Ipv4Addr")]
    fn text_that_is_no_address_is_refused() {
        ip4().src("1.2.3");
    }

    #[test]
    #[should_panic(expected = "too many for an IP packet")]
    fn a_payload_beyond_the_length_field_is_refused() {
        ip4().udp(1, 2).payload(vec![0; 65536]).bytes();
    }

    #[test]
    fn options_are_padded_and_counted_in_the_header_length() {
        let bytes = ip4().options([1, 1, 1]).udp(7, 8).bytes();
        let ip = Ipv4::new(&bytes).unwrap();
        assert_eq!((ip.header_len(), ip.options(), ip.payload().len()), (24, &[1, 1, 1, 0][..], 8));
        assert!(ip.checksum_is_valid());
    }
}
