//! IPv4 addresses that a packet from outside should not come from.

/// Sources of packets that are not forwarded without a closer look: those that nobody can have (RFC 1812 section
/// 5.3.7), those that are valid on one link only (RFC 3927 section 2.7), and some of the router's own. One load says of
/// nearly all others that they are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OddSources {
    /// By the first byte of an address.
    kinds: [Kind; 256],
    listed: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Good,
    /// Some of them are listed.
    Some,
    /// No host has such an address: "this" network, loopback, groups, and what is reserved.
    All,
}

/// The first half of a link-local address.
const LINK_LOCAL: u32 = 0xa9fe;

impl OddSources {
    /// The martians, and these: the router's own addresses, and those that mean all hosts of a link.
    pub fn new(listed: impl IntoIterator<Item = u32>) -> OddSources {
        let listed: Vec<u32> = listed.into_iter().collect();
        let kind = |byte: usize| match byte {
            0 | 127 | 224.. => Kind::All,
            169 => Kind::Some,
            _ if listed.iter().any(|address| (address >> 24) as usize == byte) => Kind::Some,
            _ => Kind::Good,
        };
        OddSources { kinds: std::array::from_fn(kind), listed }
    }

    /// Whether a packet from there needs a closer look.
    #[inline]
    pub fn contains(&self, source: u32) -> bool {
        match self.kinds[(source >> 24) as usize] {
            Kind::Good => false,
            Kind::Some => source >> 16 == LINK_LOCAL || self.listed.contains(&source),
            Kind::All => true,
        }
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
