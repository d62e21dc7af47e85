//! Ethernet (MAC) addresses.

use std::error::Error;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An Ethernet address, in the order of the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EtherAddr(pub [u8; 6]);

impl EtherAddr {
    /// The broadcast address, ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: EtherAddr = EtherAddr([0xff; 6]);
    /// The address of none.
    pub const ZERO: EtherAddr = EtherAddr([0; 6]);

    /// Says whether this is the broadcast address.
    #[inline]
    pub fn is_broadcast(self) -> bool {
        self == EtherAddr::BROADCAST
    }

    /// Says whether this is the address of a group; the broadcast address is one.
    #[inline]
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns the address at which the listeners of an IPv4 multicast address hear it
    /// (RFC 1112 section 6.4).
    #[inline]
    pub const fn multicast_v4(group: Ipv4Addr) -> EtherAddr {
        let [_, b, c, d] = group.octets();
        EtherAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// Returns the address to which an IPv6 multicast address maps (RFC 2464 section 7).
    #[inline]
    pub const fn multicast_v6(group: Ipv6Addr) -> EtherAddr {
        let [.., a, b, c, d] = group.octets();
        EtherAddr([0x33, 0x33, a, b, c, d])
    }

    /// Returns the six bytes.
    #[inline]
    pub fn octets(self) -> [u8; 6] {
        self.0
    }
}

impl From<[u8; 6]> for EtherAddr {
    fn from(octets: [u8; 6]) -> EtherAddr {
        EtherAddr(octets)
    }
}

impl fmt::Display for EtherAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for EtherAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not six numbers of one or two hexadecimal digits with colons or hyphens between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnEtherAddr;

impl fmt::Display for NotAnEtherAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an Ethernet address")
    }
}

impl Error for NotAnEtherAddr {}

impl FromStr for EtherAddr {
    type Err = NotAnEtherAddr;

    fn from_str(text: &str) -> Result<EtherAddr, NotAnEtherAddr> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut parts = text.split(separator);
        let mut octets = [0; 6];
        for octet in &mut octets {
            *octet = octet_from(parts.next().ok_or(NotAnEtherAddr)?)?;
        }
        if parts.next().is_some() { Err(NotAnEtherAddr) } else { Ok(EtherAddr(octets)) }
    }
}

/// Digits only: `from_str_radix` alone would take a plus sign.
fn octet_from(digits: &str) -> Result<u8, NotAnEtherAddr> {
    if !matches!(digits.len(), 1..=2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(NotAnEtherAddr);
    }
    u8::from_str_radix(digits, 16).map_err(|_| NotAnEtherAddr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_with_colons_or_hyphens_any_case_and_one_or_two_digits_is_read() {
        let expected = EtherAddr([0, 0x1b, 2, 0xc, 0xdd, 0xff]);
        for text in ["00:1b:02:0c:dd:ff", "0:1B:2:C:DD:fF", "00-1b-02-0c-dd-ff", "0-1b-2-c-Dd-FF"] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        let wrong = [
            "",
            "0",
            ":",
            "0:1:2:3:4",
            "0:1:2:3:4:5:",
            "0:1:2:3:4:5:6",
            "0:1:2:3:4:100",
            "0:1:2:3:4:g",
            "0:1:2:3:4:+1",
            "0:1:2:3::5",
            "0-1:2-3:4-5",
            "001b020cddff",
            " 0:1:2:3:4:5",
            "0:1:2:3:4:é",
        ];
        for text in wrong {
            assert_eq!(text.parse::<EtherAddr>(), Err(NotAnEtherAddr), "{text:?}");
        }
    }

    #[test]
    fn groups_are_told_by_the_first_bit() {
        assert!(EtherAddr::BROADCAST.is_group() && EtherAddr::BROADCAST.is_broadcast());
        assert!(EtherAddr([1, 0, 0x5e, 0, 0, 1]).is_group());
        assert!(!EtherAddr([1, 0, 0x5e, 0, 0, 1]).is_broadcast());
        assert!(!EtherAddr::ZERO.is_group());
    }

    #[test]
    fn groups_of_ip_have_groups_of_ethernet() {
        let v4 = |text: &str| EtherAddr::multicast_v4(text.parse().unwrap()).to_string();
        assert_eq!(v4("224.0.0.5"), "01:00:5e:00:00:05");
        assert_eq!(v4("239.255.1.2"), "01:00:5e:7f:01:02");
        let v6 = EtherAddr::multicast_v6("ff02::1:ff12:3456".parse().unwrap());
        assert_eq!((v6.to_string(), v6.is_group()), ("33:33:ff:12:34:56".into(), true));
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(octets: [u8; 6]) {
            prop_assert_eq!(EtherAddr(octets).to_string().parse(), Ok(EtherAddr(octets)));
        }
    }
}
