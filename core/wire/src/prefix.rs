//! IPv4 prefixes: the addresses that share their first bits.

use std::error::Error;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// An IPv4 prefix; bits beyond its length are zero, so that equal prefixes compare equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ipv4Prefix {
    addr: Ipv4Addr,
    len: u8,
}

impl Ipv4Prefix {
    /// The prefix of every address.
    pub const ALL: Ipv4Prefix = Ipv4Prefix { addr: Ipv4Addr::UNSPECIFIED, len: 0 };

    /// Makes the prefix of the first `len` bits of `addr`, dropping the rest.
    pub const fn new(addr: Ipv4Addr, len: u8) -> Result<Ipv4Prefix, NotAPrefix> {
        if len > 32 {
            return Err(NotAPrefix::Length);
        }
        Ok(Ipv4Prefix { addr: Ipv4Addr::from_bits(addr.to_bits() & mask_bits(len)), len })
    }

    /// Makes the prefix of one address.
    pub const fn host(addr: Ipv4Addr) -> Ipv4Prefix {
        Ipv4Prefix { addr, len: 32 }
    }

    /// Makes the prefix that `mask`, ones first, leaves of `addr`.
    pub fn with_mask(addr: Ipv4Addr, mask: Ipv4Addr) -> Result<Ipv4Prefix, NotAPrefix> {
        let len = mask.to_bits().leading_ones() as u8;
        if mask_bits(len) != mask.to_bits() {
            return Err(NotAPrefix::Mask);
        }
        Ipv4Prefix::new(addr, len)
    }

    /// Returns the first address.
    #[inline]
    pub const fn addr(self) -> Ipv4Addr {
        self.addr
    }

    /// Returns how many bits count, 0 to 32.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // the length of a prefix, not of a collection
    pub const fn len(self) -> u8 {
        self.len
    }

    /// Returns the mask: ones where bits count.
    #[inline]
    pub const fn mask(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(mask_bits(self.len))
    }

    /// Says whether `addr` begins with this prefix.
    #[inline]
    pub const fn contains(self, addr: Ipv4Addr) -> bool {
        addr.to_bits() & mask_bits(self.len) == self.addr.to_bits()
    }

    /// Says whether every address of `other` is one of this prefix.
    #[inline]
    pub const fn covers(self, other: Ipv4Prefix) -> bool {
        self.len <= other.len && self.contains(other.addr)
    }

    /// Returns the last address.
    #[inline]
    pub const fn last(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.addr.to_bits() | !mask_bits(self.len))
    }
}

const fn mask_bits(len: u8) -> u32 {
    if len == 0 { 0 } else { u32::MAX << (32 - len) }
}

impl fmt::Display for Ipv4Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

impl fmt::Debug for Ipv4Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text or a pair of numbers is not a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAPrefix {
    /// What stands before the slash is not an address.
    Address,
    /// The length is not a number from 0 to 32.
    Length,
    /// The mask has a one after a zero.
    Mask,
}

impl fmt::Display for NotAPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotAPrefix::Address => "not an IPv4 address",
            NotAPrefix::Length => "prefix length must be 0 to 32",
            NotAPrefix::Mask => "mask must be ones followed by zeroes",
        })
    }
}

impl Error for NotAPrefix {}

impl FromStr for Ipv4Prefix {
    type Err = NotAPrefix;

    /// Reads `address/length`, `address/mask` or a bare address, which is its own prefix.
    fn from_str(text: &str) -> Result<Ipv4Prefix, NotAPrefix> {
        let (addr, rest) = match text.split_once('/') {
            Some((addr, rest)) => (addr, Some(rest)),
            None => (text, None),
        };
        let addr = addr.parse().map_err(|_| NotAPrefix::Address)?;
        match rest {
            None => Ok(Ipv4Prefix::host(addr)),
            Some(rest) if rest.contains('.') => {
                Ipv4Prefix::with_mask(addr, rest.parse().map_err(|_| NotAPrefix::Mask)?)
            }
            Some(rest) => Ipv4Prefix::new(addr, length_from(rest)?),
        }
    }
}

/// Digits only: `parse` alone would take a plus sign.
fn length_from(digits: &str) -> Result<u8, NotAPrefix> {
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(NotAPrefix::Length);
    }
    digits.parse().map_err(|_| NotAPrefix::Length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(text: &str) -> Ipv4Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn a_length_a_mask_and_a_bare_address_are_read() {
        assert_eq!(prefix("10.1.2.3/24").to_string(), "10.1.2.0/24");
        assert_eq!(prefix("10.1.2.3/255.255.255.0"), prefix("10.1.2.0/24"));
        assert_eq!(prefix("10.1.2.3"), prefix("10.1.2.3/32"));
        assert_eq!(prefix("1.2.3.4/0"), Ipv4Prefix::ALL);
        assert_eq!(prefix("1.2.3.4/0.0.0.0"), Ipv4Prefix::ALL);
        assert_eq!(prefix("1.2.3.4/255.255.255.255"), prefix("1.2.3.4"));
    }

    #[test]
    fn other_text_is_refused_with_its_reason() {
        use NotAPrefix::*;
        let wrong = [
            ("", Address),
            ("/8", Address),
            ("10.0.0/8", Address),
            ("10.0.0.256", Address),
            ("a", Address),
            ("10.0.0.0/", Length),
            ("10.0.0.0/33", Length),
            ("10.0.0.0/+8", Length),
            ("10.0.0.0/-1", Length),
            ("10.0.0.0/8/8", Length),
            ("10.0.0.0/999", Length),
            ("10.0.0.0/255.0.255.0", Mask),
            ("10.0.0.0/0.255.0.0", Mask),
            ("10.0.0.0/255.0.0", Mask),
        ];
        for (text, reason) in wrong {
            assert_eq!(text.parse::<Ipv4Prefix>(), Err(reason), "{text:?}");
        }
    }

    #[test]
    fn a_prefix_contains_its_first_and_last_address_and_none_beside() {
        let net = prefix("10.1.2.64/26");
        assert_eq!(net.mask(), Ipv4Addr::new(255, 255, 255, 192));
        assert_eq!(net.last(), Ipv4Addr::new(10, 1, 2, 127));
        for (last_byte, inside) in [(63, false), (64, true), (127, true), (128, false)] {
            assert_eq!(net.contains(Ipv4Addr::new(10, 1, 2, last_byte)), inside, "{last_byte}");
        }
        assert!(net.covers(prefix("10.1.2.65")) && net.covers(net) && !net.covers(prefix("10.1.2.0/24")));
    }

    proptest! {
        #[test]
        fn a_prefix_contains_what_shares_its_first_bits(addr: u32, other: u32, len in 0_u8..=32) {
            let net = Ipv4Prefix::new(Ipv4Addr::from_bits(addr), len).unwrap();
            let shared = (0..len).all(|bit| (addr ^ other) >> (31 - bit) & 1 == 0);
            prop_assert_eq!(net.contains(Ipv4Addr::from_bits(other)), shared);
            prop_assert_eq!(net.to_string().parse(), Ok(net));
            prop_assert_eq!(format!("{}/{}", net.addr(), net.mask()).parse(), Ok(net));
        }
    }
}
