//! Tables of the shape of the Internet's, for tests and measurements without the Internet's table.
//!
//! The lengths, how many of each length lie in a shorter prefix, and how prefixes crowd together are those of
//! a full feed of 2026: 901,899 IPv4 prefixes that cover 71 % of all addresses, 160,147 IPv6 prefixes.
//! Everything follows from the seed, and from nothing else.
use crate::address::{Address, Prefix};
use crate::runs::Group;
use artery_wire::Random;
use std::collections::{BTreeMap, HashSet};

/// Routes of a full IPv4 feed in 2026.
pub const FULL_FEED_V4: usize = 901_899;
/// Routes of a full IPv6 feed in 2026.
pub const FULL_FEED_V6: usize = 160_147;

/// Addresses that a stream of numbers leads to.
pub trait RandomAddress {
    /// An address, each as likely as any other.
    fn address<A: Address>(&mut self) -> A;
    /// An address of `prefix`, each as likely as any other.
    fn address_in<A: Address>(&mut self, prefix: Prefix<A>) -> A;
}

impl RandomAddress for Random {
    #[inline]
    fn address<A: Address>(&mut self) -> A {
        (0..A::BITS / 32).fold(A::ZERO, |address, word| {
            address.or(A::from_field((self.next() >> 32) as usize, word * 32, 32))
        })
    }
    #[inline]
    fn address_in<A: Address>(&mut self, prefix: Prefix<A>) -> A {
        let address = self.address::<A>();
        prefix.first().or(address ^ address.network(prefix.len()))
    }
}

/// An address family with a known shape of its full table.
pub trait Shape: Address {
    /// Prefixes of each length in the full feed, and how many percent of them lie in a shorter one.
    const LENGTHS: &'static [(u8, u32, u8)];
    /// How many percent of prefixes leave the 4 aligned bits that their predecessor's table stands for, when
    /// those end at 4, 8, 12 … bits.
    const LEAVING: &'static [u8];
    /// How many percent of crowds start in a place of their own, not among prefixes that are there already.
    const PIONEERS: u8;
    /// Whether addresses like this one are given out at all.
    fn is_assigned(self) -> bool;
    /// An address from which a crowd of prefixes may start.
    fn start_address(random: &mut Random) -> Self;
}

impl Shape for u32 {
    const LENGTHS: &'static [(u8, u32, u8)] = &[
        (8, 16, 0),
        (9, 13, 31),
        (10, 38, 0),
        (11, 103, 4),
        (12, 299, 10),
        (13, 581, 17),
        (14, 1203, 15),
        (15, 2100, 22),
        (16, 13490, 24),
        (17, 8235, 46),
        (18, 13798, 50),
        (19, 24870, 39),
        (20, 42611, 54),
        (21, 50750, 55),
        (22, 108_623, 45),
        (23, 96510, 57),
        (24, 537_698, 51),
        (25, 20, 100),
        (26, 3, 100),
        (27, 11, 100),
        (28, 18, 94),
        (29, 17, 100),
        (30, 3, 100),
        (31, 3, 100),
        (32, 886, 99),
    ];
    const LEAVING: &'static [u8] = &[100, 100, 100, 30, 22, 70, 90, 90];
    const PIONEERS: u8 = 5;

    fn is_assigned(self) -> bool {
        let octet = self >> 24;
        !matches!(octet, 0 | 10 | 127 | 224..)
    }
    fn start_address(random: &mut Random) -> u32 {
        random.address()
    }
}

impl Shape for u128 {
    const LENGTHS: &'static [(u8, u32, u8)] = &[
        (16, 1, 0),
        (19, 1, 0),
        (20, 16, 0),
        (21, 3, 0),
        (22, 7, 0),
        (23, 8, 0),
        (24, 30, 10),
        (25, 8, 12),
        (26, 15, 0),
        (27, 20, 10),
        (28, 193, 44),
        (29, 4371, 1),
        (30, 650, 44),
        (31, 284, 46),
        (32, 22548, 25),
        (33, 2926, 81),
        (34, 2603, 72),
        (35, 1043, 62),
        (36, 5996, 57),
        (37, 880, 75),
        (38, 1617, 52),
        (39, 1377, 82),
        (40, 13418, 76),
        (41, 903, 53),
        (42, 2301, 80),
        (43, 1001, 43),
        (44, 14365, 72),
        (45, 1553, 82),
        (46, 3039, 53),
        (47, 3153, 79),
        (48, 75488, 59),
        (49, 11, 100),
        (50, 3, 100),
        (52, 1, 100),
        (55, 1, 100),
        (56, 24, 96),
        (58, 20, 100),
        (60, 2, 0),
        (64, 184, 97),
        (112, 2, 100),
        (122, 1, 100),
        (124, 4, 100),
        (125, 9, 100),
        (126, 19, 100),
        (127, 42, 100),
        (128, 6, 100),
    ];
    const LEAVING: &'static [u8] = &[100, 100, 100, 100, 60, 75, 90, 20, 25, 30, 30];
    const PIONEERS: u8 = 12;

    fn is_assigned(self) -> bool {
        self >> 125 == 1
    }
    /// Nearly everything lies in a few blocks of each registry.
    fn start_address(random: &mut Random) -> u128 {
        const BLOCKS: [usize; 6] = [0x200, 0x240, 0x260, 0x280, 0x2a0, 0x2c0];
        let block = BLOCKS[random.below(6) as usize] << 4 | random.below(10) as usize;
        random.address_in(Prefix::of(u128::from_field(block, 0, 16), 16))
    }
}

/// About `count` different prefixes in order, of the shape of a full table.
///
/// The number may be off by a few per length, and cannot pass what there is room for.
pub fn generate_prefixes<A: Shape>(count: usize, seed: u64) -> Vec<Prefix<A>> {
    let (random, outermost) = (Random::new(seed), BTreeMap::new());
    let mut growing = Growing { random, outermost, all: HashSet::new(), placed: Vec::new() };
    let total: u64 = A::LENGTHS.iter().map(|length| u64::from(length.1)).sum();
    let mut share = 0;
    for &(len, of_feed, nested) in A::LENGTHS {
        // Shares are rounded on the sum, so that the numbers of all lengths add up to `count`.
        let before = share * count as u64 / total;
        share += u64::from(of_feed);
        let wanted = share * count as u64 / total - before;
        growing.add_prefixes(len, wanted as usize, nested);
    }
    let mut prefixes = growing.placed;
    prefixes.sort_unstable();
    prefixes
}

/// A table in the making, from short prefixes to long ones.
struct Growing<A> {
    random: Random,
    /// The prefixes that lie in no other, by their first address.
    outermost: BTreeMap<A, Prefix<A>>,
    all: HashSet<Prefix<A>>,
    /// All prefixes, shorter ones first.
    placed: Vec<Prefix<A>>,
}

impl<A: Shape> Growing<A> {
    fn add_prefixes(&mut self, len: u8, wanted: usize, nested: u8) {
        let mut last = A::start_address(&mut self.random);
        for _ in 0..wanted {
            let Some(prefix) = self.place_prefix(last, len, nested) else { return };
            last = prefix.first();
            if !self.is_nested(prefix) {
                self.outermost.insert(last, prefix);
            }
            self.all.insert(prefix);
            self.placed.push(prefix);
        }
    }

    /// Finds a place near `last`, or further off when a crowd has ended or there is no more room.
    fn place_prefix(&mut self, last: A, len: u8, nested: u8) -> Option<Prefix<A>> {
        const TRIES: usize = 400;
        let near = self.shared_bits(len);
        // Who stays with the crowd takes what the crowd has: most of it is covered by the same prefix, or
        // none is.
        let stays = near == (len - 1) / 4 * 4;
        let wants_nested = self.random.percent(nested);
        let mut second_best = None;
        for attempt in 0..TRIES {
            let kept = near.saturating_sub(attempt as u8 / 16 * 4);
            let prefix = self.candidate_prefix(last, kept, len);
            if !prefix.first().is_assigned() || self.all.contains(&prefix) {
                continue;
            }
            if stays || self.is_nested(prefix) == wants_nested {
                return Some(prefix);
            }
            second_best.get_or_insert(prefix);
        }
        second_best
    }

    /// How many leading bits a prefix shares with the one before.
    fn shared_bits(&mut self, len: u8) -> u8 {
        let mut kept = (len - 1) / 4 * 4;
        while kept > 0 {
            let leaving = A::LEAVING.get(usize::from(kept / 4 - 1)).copied().unwrap_or(20);
            if !self.random.percent(leaving) {
                break;
            }
            kept -= 4;
        }
        kept
    }

    fn candidate_prefix(&mut self, last: A, kept: u8, len: u8) -> Prefix<A> {
        let address = match kept {
            0 => self.distant_address(len),
            _ => self.random.address_in(Prefix::of(last, kept)),
        };
        Prefix::of(address, len)
    }

    /// An address far from the last one: mostly where other prefixes are already, seldom where nothing is.
    fn distant_address(&mut self, len: u8) -> A {
        if self.placed.is_empty() || self.random.percent(A::PIONEERS) {
            return A::start_address(&mut self.random);
        }
        let settled = self.placed[self.random.below(self.placed.len() as u64) as usize];
        let block = ((len - 1) / 4 * 4).saturating_sub(4);
        self.random.address_in(Prefix::of(settled.first(), block))
    }

    fn is_nested(&self, prefix: Prefix<A>) -> bool {
        let before = self.outermost.range(..=prefix.first()).next_back();
        before.is_some_and(|(_, outer)| outer.covers(prefix))
    }
}

/// Gives every prefix one of the groups 1 to `groups` at random: the worst case for a compiled table.
pub fn random_groups<A: Address>(prefixes: &[Prefix<A>], groups: u32, seed: u64) -> Vec<(Prefix<A>, Group)> {
    let mut random = Random::new(seed);
    prefixes.iter().map(|&prefix| (prefix, 1 + random.below(groups.into()) as Group)).collect()
}

/// Gives prefixes that lie in the same outermost prefix mostly the same of the groups 1 to `groups`, as
/// prefixes of one network mostly go the same way; `prefixes` are in order.
pub fn correlated_groups<A: Address>(
    prefixes: &[Prefix<A>],
    groups: u32,
    seed: u64,
) -> Vec<(Prefix<A>, Group)> {
    let mut random = Random::new(seed);
    let mut network: Option<(Prefix<A>, Group)> = None;
    let group_of = |&prefix: &Prefix<A>| {
        let own = 1 + random.below(groups.into()) as Group;
        let outer = network.filter(|(outer, _)| outer.covers(prefix));
        let Some((_, group)) = outer else {
            network = Some((prefix, own));
            return (prefix, own);
        };
        (prefix, if random.percent(90) { group } else { own })
    };
    prefixes.iter().map(group_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(prefixes: &[Prefix<u32>]) -> f64 {
        let mut end = 0u64;
        let mut sum = 0;
        for prefix in prefixes {
            let (first, after) = (u64::from(prefix.first()), u64::from(prefix.last()) + 1);
            sum += after.max(end) - first.max(end);
            end = end.max(after);
        }
        sum as f64 / 2f64.powi(32)
    }

    /// Tables of a variable-stride trie that begin at `offset`.
    fn tables<A: Address>(prefixes: &[Prefix<A>], offset: u8) -> usize {
        let longer = prefixes.iter().filter(|prefix| prefix.len() > offset);
        longer.map(|prefix| prefix.first().network(offset)).collect::<HashSet<_>>().len()
    }

    fn is_near(found: usize, wanted: usize, percent: usize) -> bool {
        found.abs_diff(wanted) * 100 <= wanted * percent
    }

    #[test]
    fn a_full_ipv4_table_has_the_shape_of_the_real_one() {
        let prefixes = generate_prefixes::<u32>(FULL_FEED_V4, 1);
        assert!(is_near(prefixes.len(), FULL_FEED_V4, 1), "{}", prefixes.len());
        let slash24 = prefixes.iter().filter(|prefix| prefix.len() == 24).count();
        assert!(is_near(slash24, 537_698, 1), "{slash24}");
        let covered = covered(&prefixes);
        assert!((0.66..0.76).contains(&covered), "{covered}");
        for (offset, real) in [(12, 2928), (16, 25398), (20, 140_640), (24, 451), (28, 595)] {
            let found = tables(&prefixes, offset);
            assert!(is_near(found, real, 35), "{found} tables at /{offset}, {real} in the real one");
        }
    }

    #[test]
    fn a_full_ipv6_table_has_the_shape_of_the_real_one() {
        let prefixes = generate_prefixes::<u128>(FULL_FEED_V6, 1);
        assert!(is_near(prefixes.len(), FULL_FEED_V6, 1), "{}", prefixes.len());
        for (offset, real) in [(28, 18708), (32, 10906), (36, 14590), (40, 19078), (44, 25903)] {
            let found = tables(&prefixes, offset);
            assert!(is_near(found, real, 30), "{found} tables at /{offset}, {real} in the real one");
        }
    }

    #[test]
    fn the_seed_decides_and_nothing_else() {
        assert_eq!(generate_prefixes::<u32>(1000, 5), generate_prefixes::<u32>(1000, 5));
        assert_ne!(generate_prefixes::<u32>(1000, 5), generate_prefixes::<u32>(1000, 6));
        let prefixes = generate_prefixes::<u128>(1000, 5);
        assert_eq!(prefixes.len(), 1000);
        assert!(prefixes.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn correlated_groups_change_less_often_than_random_ones() {
        let prefixes = generate_prefixes::<u32>(20_000, 3);
        let changes =
            |routes: &[(Prefix<u32>, Group)]| routes.windows(2).filter(|w| w[0].1 != w[1].1).count();
        let (random, friendly) = (random_groups(&prefixes, 16, 1), correlated_groups(&prefixes, 16, 1));
        assert!(random.iter().chain(&friendly).all(|(_, group)| (1..=16).contains(group)));
        assert!(changes(&friendly) < changes(&random));
    }
}
