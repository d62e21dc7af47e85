//! IPv4 addresses that a packet from outside should not come from.

/// Sources of packets that are not forwarded without a closer look: those that nobody can have (RFC 1812 section
/// 5.3.7), those that are valid on one link only (RFC 3927 section 2.7), and some of the router's own. Two
/// loads say of nearly all others that they are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OddSources {
    /// By the first byte of an address and by its last: what it may be. It may be what both say.
    first: [u8; 256],
    last: [u8; 256],
    listed: Vec<u32>,
}

/// One of those that are listed.
const LISTED: u8 = 1;
/// A link-local address.
const LINK_LOCAL: u8 = 2;
/// An address that no host has: in "this" network, a loopback address, a group, or reserved.
const NOBODY: u8 = 4;

impl OddSources {
    /// The martians, and these: the router's own addresses, and those that mean all hosts of a link.
    pub fn new(listed: impl IntoIterator<Item = u32>) -> OddSources {
        let listed: Vec<u32> = listed.into_iter().collect();
        let mut first = std::array::from_fn(|byte: usize| match byte {
            0 | 127 | 224.. => NOBODY,
            169 => LINK_LOCAL,
            _ => 0,
        });
        let mut last = [NOBODY | LINK_LOCAL; 256];
        for address in &listed {
            let [a, .., d] = address.to_be_bytes();
            first[usize::from(a)] |= LISTED;
            last[usize::from(d)] |= LISTED;
        }
        OddSources { first, last, listed }
    }

    /// Whether a packet from there needs a closer look.
    #[inline]
    pub fn contains(&self, source: u32) -> bool {
        let [a, .., d] = source.to_be_bytes();
        let kinds = self.first[usize::from(a)] & self.last[usize::from(d)];
        kinds != 0 && self.is_one(source, kinds)
    }

    #[cold]
    fn is_one(&self, source: u32, kinds: u8) -> bool {
        kinds & NOBODY != 0 || source >> 16 == 0xa9fe || self.listed.contains(&source)
    }
}

impl Default for OddSources {
    /// The martians alone.
    fn default() -> OddSources {
        OddSources::new([])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn martians_and_what_is_listed_are_odd_and_their_neighbors_are_not() {
        let bits = |text: &str| text.parse::<Ipv4Addr>().unwrap().to_bits();
        let sources = OddSources::new([bits("10.0.0.1"), bits("10.0.0.255")]);
        for odd in [
            "10.0.0.1",
            "10.0.0.255",
            "0.1.2.3",
            "127.0.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "169.254.3.4",
        ] {
            assert!(sources.contains(bits(odd)), "{odd}");
        }
        for good in
            ["10.0.0.2", "10.0.1.255", "1.0.0.0", "126.0.0.1", "128.0.0.1", "223.255.255.255", "169.253.1.1"]
        {
            assert!(!sources.contains(bits(good)), "{good}");
        }
        assert!(!OddSources::default().contains(bits("10.0.0.1")));
    }
}
