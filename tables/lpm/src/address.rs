//! Addresses as numbers, and prefixes of them.
use artery_wire::Ipv4Prefix;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address as a number in host order: `u32` for IPv4, `u128` for IPv6.
pub trait Address:
    Copy + Ord + Send + Sync + fmt::Debug + std::hash::Hash + std::ops::BitXor<Output = Self> + 'static
{
    /// Bits of an address.
    const BITS: u8;
    /// The lowest address: all bits zero.
    const ZERO: Self;
    /// The highest address: all bits one.
    const MAX: Self;

    /// The `count` bits after the first `offset`, as a number; `count` is 1 to 32 and does not pass the end.
    fn field(self, offset: u8, count: u8) -> usize;
    /// The address whose `count` bits after the first `offset` are `value`, and whose others are zero.
    fn from_field(value: usize, offset: u8, count: u8) -> Self;
    /// The address with all bits after the first `len` cleared.
    fn network(self, len: u8) -> Self;
    /// The address with all bits after the first `len` set.
    fn broadcast(self, len: u8) -> Self;
    /// The next address; none after the last.
    fn next(self) -> Option<Self>;
    /// How many leading bits are zero.
    fn leading_zeros(self) -> u8;
    /// The address as text and as other crates know it.
    fn to_ip(self) -> IpAddr;
    /// The number of an address of this family.
    fn from_ip(ip: IpAddr) -> Option<Self>;
    /// The bitwise or of two addresses.
    fn or(self, other: Self) -> Self;
}

macro_rules! address {
    ($type:ty, $bits:literal, $ip:ident, $variant:ident) => {
        impl Address for $type {
            const BITS: u8 = $bits;
            const ZERO: $type = 0;
            const MAX: $type = <$type>::MAX;

            #[inline]
            fn field(self, offset: u8, count: u8) -> usize {
                ((self << offset) >> ($bits - count)) as usize
            }
            #[inline]
            fn from_field(value: usize, offset: u8, count: u8) -> $type {
                (value as $type) << ($bits - offset - count)
            }
            #[inline]
            fn network(self, len: u8) -> $type {
                self & !host_bits::<$type>(len)
            }
            #[inline]
            fn broadcast(self, len: u8) -> $type {
                self | host_bits::<$type>(len)
            }
            #[inline]
            fn next(self) -> Option<$type> {
                self.checked_add(1)
            }
            #[inline]
            fn leading_zeros(self) -> u8 {
                <$type>::leading_zeros(self) as u8
            }
            fn to_ip(self) -> IpAddr {
                $ip::from_bits(self).into()
            }
            fn from_ip(ip: IpAddr) -> Option<$type> {
                match ip {
                    IpAddr::$variant(ip) => Some(ip.to_bits()),
                    _ => None,
                }
            }
            #[inline]
            fn or(self, other: $type) -> $type {
                self | other
            }
        }

        impl HostBits for $type {
            #[inline]
            fn host_bits(len: u8) -> $type {
                <$type>::MAX.checked_shr(len.into()).unwrap_or(0)
            }
        }
    };
}

/// Ones after the first `len` bits.
trait HostBits {
    fn host_bits(len: u8) -> Self;
}

#[inline]
fn host_bits<A: HostBits>(len: u8) -> A {
    A::host_bits(len)
}

address!(u32, 32, Ipv4Addr, V4);
address!(u128, 128, Ipv6Addr, V6);

/// The addresses that share their first `len` bits; bits beyond are zero, so that
/// equal prefixes compare equal.
///
/// Prefixes are ordered by address, then from short to long: a prefix comes right before what it covers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    bits: A,
    len: u8,
}

impl<A: Address> Prefix<A> {
    /// The prefix of all addresses.
    pub const ALL: Prefix<A> = Prefix { bits: A::ZERO, len: 0 };

    /// The first `len` bits of an address; the others are dropped.
    #[inline]
    pub fn new(address: A, len: u8) -> Result<Prefix<A>, NotAPrefix> {
        if len > A::BITS { Err(NotAPrefix::Length) } else { Ok(Prefix { bits: address.network(len), len }) }
    }
    /// The prefix of one address.
    pub fn host(address: A) -> Prefix<A> {
        Prefix { bits: address, len: A::BITS }
    }
    /// The first `len` bits of an address, where the caller has made sure of the length.
    ///
    /// # Panics
    /// When the length is more than the address has.
    #[inline]
    pub fn of(address: A, len: u8) -> Prefix<A> {
        assert!(len <= A::BITS, "a prefix of {len} bits in an address of {}", A::BITS);
        Prefix { bits: address.network(len), len }
    }
    /// The lowest address of the prefix.
    #[inline]
    pub fn first(self) -> A {
        self.bits
    }
    /// The highest address of the prefix.
    #[inline]
    pub fn last(self) -> A {
        self.bits.broadcast(self.len)
    }
    /// How many bits count.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // the length of a prefix, not of a collection
    pub fn len(self) -> u8 {
        self.len
    }
    /// Whether an address begins with this prefix.
    #[inline]
    pub fn contains(self, address: A) -> bool {
        address.network(self.len) == self.bits
    }
    /// Whether every address of `other` is one of this prefix.
    #[inline]
    pub fn covers(self, other: Prefix<A>) -> bool {
        self.len <= other.len && self.contains(other.bits)
    }
}

impl<A: Address> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bits.to_ip(), self.len)
    }
}

impl<A: Address> fmt::Debug for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Ipv4Prefix> for Prefix<u32> {
    fn from(prefix: Ipv4Prefix) -> Prefix<u32> {
        Prefix { bits: prefix.addr().to_bits(), len: prefix.len() }
    }
}

/// Why a text or a pair of numbers is not a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAPrefix {
    /// What stands before the slash is not an address of the family.
    Address,
    /// The length is not a number from 0 to the bits of an address.
    Length,
}

impl fmt::Display for NotAPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotAPrefix::Address => "not an address of this family",
            NotAPrefix::Length => "a prefix length must be 0 to 32 for IPv4, 0 to 128 for IPv6",
        })
    }
}

impl std::error::Error for NotAPrefix {}

impl<A: Address> FromStr for Prefix<A> {
    type Err = NotAPrefix;

    /// Reads `address/length`, or a bare address, which is its own prefix.
    fn from_str(text: &str) -> Result<Prefix<A>, NotAPrefix> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address = address.parse().ok().and_then(A::from_ip).ok_or(NotAPrefix::Address)?;
        match len {
            None => Ok(Prefix::host(address)),
            // `parse` alone would take a plus sign.
            Some(len) if !len.starts_with('+') => {
                Prefix::new(address, len.parse().map_err(|_| NotAPrefix::Length)?)
            }
            Some(_) => Err(NotAPrefix::Length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prefixes_are_read_and_written_in_both_families() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "255.255.255.255/32"] {
            assert_eq!(text.parse::<Prefix<u32>>().unwrap().to_string(), text);
        }
        for text in ["::/0", "2001:db8::/32", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"] {
            assert_eq!(text.parse::<Prefix<u128>>().unwrap().to_string(), text);
        }
        assert_eq!("10.1.2.3/8".parse::<Prefix<u32>>(), "10.0.0.0/8".parse());
        assert_eq!("10.1.2.3".parse::<Prefix<u32>>().unwrap().len(), 32);
    }

    #[test]
    fn what_is_no_prefix_is_refused() {
        for (text, error) in [
            ("", NotAPrefix::Address),
            ("10.0.0/8", NotAPrefix::Address),
            ("::1/64", NotAPrefix::Address),
            ("10.0.0.0/33", NotAPrefix::Length),
            ("10.0.0.0/+8", NotAPrefix::Length),
            ("10.0.0.0/", NotAPrefix::Length),
        ] {
            assert_eq!(text.parse::<Prefix<u32>>(), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn fields_put_together_are_the_address(address: u128, cut in 1u8..32) {
            let high = u128::from_field(address.field(0, cut), 0, cut);
            let low = u128::from_field(address.field(cut, 32 - cut), cut, 32 - cut);
            prop_assert_eq!(high | low, address.network(32));
        }

        #[test]
        fn a_prefix_contains_what_lies_between_its_first_and_last(a: u32, b: u32, len in 0u8..=32) {
            let prefix = Prefix::of(a, len);
            prop_assert_eq!(prefix.contains(b), (prefix.first()..=prefix.last()).contains(&b));
        }
    }
}
