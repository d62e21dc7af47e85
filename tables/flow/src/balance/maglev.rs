//! Tables that follow from names: each member has its own order of preference for the slots, and takes the
//! first of them that is free whenever it has a turn (Eisenbud et al., NSDI 2016, section 3.4).
use super::turns::Turns;

const NOBODY: u16 = u16::MAX;

/// How many slots a table has: a prime number, so that each step leads to all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slots(u32);

impl Slots {
    /// 65,537: 128 kB, and shares within 1 % of the weights up to 650 members.
    pub const DEFAULT: Slots = Slots(65_537);
    /// Largest number of slots that a table may have.
    pub const MOST: u32 = 1 << 20;

    /// So many, if that is a prime number up to [`Slots::MOST`].
    pub fn new(count: u32) -> Option<Slots> {
        (count <= Slots::MOST && is_prime(count)).then_some(Slots(count))
    }
    /// The next prime number from `count` on, if one is up to [`Slots::MOST`].
    pub fn at_least(count: u32) -> Option<Slots> {
        (count..=Slots::MOST).find_map(Slots::new)
    }
    /// Number of slots, always a prime.
    pub fn count(self) -> u32 {
        self.0
    }
}

fn is_prime(number: u32) -> bool {
    let mut divisors = (2..).take_while(|divisor| divisor * divisor <= number);
    number >= 2 && divisors.all(|divisor| !number.is_multiple_of(divisor))
}

/// By slot: the number of its member, for members by name and weight. Nothing, if no member has a weight.
///
/// Whose turns are at the same time take them in the order of the list: so that the same members always get
/// the same slots, give them in the order of their names.
pub(crate) fn build_table(members: &[(&str, u32)], slots: Slots) -> Vec<u16> {
    let weights: Vec<u32> = members.iter().map(|(_, weight)| *weight).collect();
    if weights.iter().all(|weight| *weight == 0) {
        return Vec::new();
    }
    let mut preferences: Vec<_> =
        members.iter().map(|(name, _)| Preference::from_name(name, slots)).collect();
    let mut table = vec![NOBODY; slots.0 as usize];
    for member in Turns::new(&weights).take(table.len()) {
        let mut slot = preferences[member].next();
        while table[slot] != NOBODY {
            slot = preferences[member].next();
        }
        table[slot] = member as u16;
    }
    table
}

/// All slots, in the order in which a member likes them.
struct Preference {
    at: u32,
    step: u32,
    slots: u32,
}

impl Preference {
    fn from_name(name: &str, slots: Slots) -> Preference {
        let below = |bound: u32, hash: u64| (hash % u64::from(bound)) as u32;
        let at = below(slots.0, name_hash(name, 0x6d61_676c_6576_0001));
        let step = 1 + below(slots.0 - 1, name_hash(name, 0x6d61_676c_6576_0002));
        Preference { at, step, slots: slots.0 }
    }
    fn next(&mut self) -> usize {
        let next = self.at + self.step; // both are below a million
        let next = if next >= self.slots { next - self.slots } else { next };
        std::mem::replace(&mut self.at, next) as usize
    }
}

/// A hash that all machines and all versions have in common: tables of other machines depend on it.
pub(crate) fn name_hash(name: &str, seed: u64) -> u64 {
    let word = |chunk: &[u8]| chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let hash = name.as_bytes().chunks(8).fold(seed, |hash, chunk| mix_word(hash ^ word(chunk)));
    mix_word(hash ^ name.len() as u64)
}

/// The output function of SplitMix64.
pub(crate) fn mix_word(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_slots_are_prime() {
        let primes: Vec<u32> = (0..30).filter(|number| is_prime(*number)).collect();
        assert_eq!(primes, [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]);
        assert_eq!(Slots::new(65_537), Some(Slots::DEFAULT));
        assert_eq!((Slots::new(65_536), Slots::new(u32::MAX), Slots::new(0)), (None, None, None));
        assert_eq!(Slots::at_least(65_522), Some(Slots::DEFAULT));
        assert_eq!(Slots::at_least(Slots::MOST), None);
    }

    #[test]
    fn a_member_likes_every_slot_once() {
        for count in [2, 3, 251, 65_537] {
            let mut preference = Preference::from_name("web1", Slots::new(count).unwrap());
            let mut likes: Vec<usize> = (0..count).map(|_| preference.next()).collect();
            likes.sort_unstable();
            assert!(likes.into_iter().eq(0..count as usize));
        }
    }

    #[test]
    fn the_table_of_a_list_never_changes() {
        let table_of = |members: &[_]| build_table(members, Slots::new(13).unwrap());
        // What other machines have: a change here moves flows when half of them are updated.
        assert_eq!(table_of(&[("a", 1), ("b", 1), ("c", 2)]), [1, 2, 2, 1, 1, 2, 2, 0, 2, 0, 0, 0, 2]);
        let long = table_of(&[("web1.example.net", 1), ("web2.example.net", 1)]);
        assert_eq!(long, [1, 0, 1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1]);
    }
}
