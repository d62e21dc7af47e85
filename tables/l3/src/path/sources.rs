//! IPv4 addresses that a packet from outside should not come from.

/// Sources of packets that are not forwarded without a closer look: those that no host
/// can have (RFC 1812 section 5.3.7), those that are valid on one link only (RFC 3927
/// section 2.7), and some of the router's own. Two loads say of nearly all others that
/// they are none, see [`source_kinds`](ExceptionSources::source_kinds).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceptionSources {
    /// By the first byte of an address and by a hash of it: what it may be. It may be what both say.
    first: [u8; 256],
    hashed: [u8; HASHES],
    listed: Vec<u32>,
}

/// Different hashes: many beside the addresses of a router, few beside the bytes of a cache.
const HASHES: usize = 1024;

/// One of those that are listed.
const LISTED: u8 = 1;
const LINK_LOCAL: u8 = 2;
/// An address that no host has: in "this" network, a loopback address, a group, or reserved.
const NOBODY: u8 = 4;

impl ExceptionSources {
    /// The martians, and these: the router's own addresses, and those that mean all hosts of a link; also
    /// link-local addresses, unless they are forwarded.
    pub fn new(listed: impl IntoIterator<Item = u32>, forward_link_local: bool) -> ExceptionSources {
        let listed: Vec<u32> = listed.into_iter().collect();
        let mut first = std::array::from_fn(|byte: usize| match byte {
            0 | 127 | 224.. => NOBODY,
            169 if !forward_link_local => LINK_LOCAL,
            _ => 0,
        });
        let mut hashed = [NOBODY | LINK_LOCAL; HASHES];
        for address in &listed {
            first[(address >> 24) as usize] |= LISTED;
            hashed[hash(*address)] |= LISTED;
        }
        ExceptionSources { first, hashed, listed }
    }

    /// Whether a packet from there needs a closer look.
    pub fn contains(&self, source: u32) -> bool {
        let kinds = self.source_kinds(source);
        kinds & NOBODY != 0
            || kinds & LINK_LOCAL != 0 && source >> 16 == 0xa9fe
            || kinds & LISTED != 0 && self.listed.contains(&source)
    }

    /// Zero for most of those that [`contains`](Self::contains) says no about, and for no other.
    #[inline]
    pub fn source_kinds(&self, source: u32) -> u8 {
        self.first[(source >> 24) as usize] & self.hashed[hash(source)]
    }
}

/// Subnets are alike in the last bytes of their addresses, so these alone would tell little.
#[inline]
fn hash(address: u32) -> usize {
    (address.wrapping_mul(0x9e37_79b9) >> (u32::BITS - HASHES.ilog2())) as usize
}

impl Default for ExceptionSources {
    /// The martians and link-local addresses alone.
    fn default() -> ExceptionSources {
        ExceptionSources::new([], false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::Random;
    use std::net::Ipv4Addr;

    #[test]
    fn martians_and_what_is_listed_are_odd_and_their_neighbors_are_not() {
        let bits = |text: &str| text.parse::<Ipv4Addr>().unwrap().to_bits();
        let sources = ExceptionSources::new([bits("10.0.0.1"), bits("10.0.0.255")], false);
        for special in [
            "10.0.0.1",
            "10.0.0.255",
            "0.1.2.3",
            "127.0.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "169.254.3.4",
        ] {
            assert!(sources.contains(bits(special)), "{special}");
        }
        for good in
            ["10.0.0.2", "10.0.1.255", "1.0.0.0", "126.0.0.1", "128.0.0.1", "223.255.255.255", "169.253.1.1"]
        {
            assert!(!sources.contains(bits(good)), "{good}");
        }
        assert!(!ExceptionSources::default().contains(bits("10.0.0.1")));
        assert!(!ExceptionSources::new([], true).contains(bits("169.254.3.4")));
        // The quick check misses no exception source, and is right about nearly all others.
        let own = ExceptionSources::new((0..16).map(|net| bits("10.0.0.1") + (net << 8)), false);
        let mut random = Random::new(1);
        let (mut wrong, all) = (0, 100_000);
        for source in (0..all).map(|_| bits("10.0.0.0") | random.next() as u32 >> 8) {
            assert!(own.source_kinds(source) != 0 || !own.contains(source));
            wrong += u32::from(own.source_kinds(source) != 0 && !own.contains(source));
        }
        assert!(wrong < all / 40, "{wrong} of {all}");
    }
}
