//! Which entries are taken: a bit for each, and a bit for each full word of bits, three levels up.
//!
//! The lowest free entry is given out first, so that those in use stay together, and whoever walks over them
//! or gives memory back need not look beyond the highest.

/// Entries of a word.
const BITS: usize = 64;

/// A set of numbers below a limit that finds the lowest absent one at once.
pub(super) struct Ids {
    /// One bit a number; then one bit a full word of the level before.
    levels: [Vec<u64>; 4],
    taken: u32,
    /// All taken numbers are below it.
    end: u32,
}

impl Ids {
    /// Room for `most` numbers; the memory is the system's until it is used.
    pub(super) fn new(most: u32) -> Ids {
        let mut bits = most as usize;
        let levels = std::array::from_fn(|_| {
            bits = bits.div_ceil(BITS).max(1);
            vec![0; bits]
        });
        Ids { levels, taken: 0, end: 0 }
    }

    /// How many numbers are taken.
    pub(super) fn taken_count(&self) -> u32 {
        self.taken
    }

    /// A number that is above all taken ones.
    pub(super) fn end(&self) -> u32 {
        self.end
    }

    /// Takes the lowest free number. There must be one, which is the caller's to know.
    pub(super) fn alloc_id(&mut self) -> u32 {
        let id = self.lowest_free();
        let mut at = id as usize;
        for level in &mut self.levels {
            let word = &mut level[at / BITS];
            *word |= 1 << (at % BITS);
            if *word != u64::MAX {
                break;
            }
            at /= BITS;
        }
        self.taken += 1;
        self.end = self.end.max(id + 1);
        id
    }

    /// The lowest free number, or one beyond the most if there is none.
    #[inline]
    pub(super) fn lowest_free(&self) -> u32 {
        let mut at = self.levels[3].iter().position(|word| *word != u64::MAX).unwrap_or(self.levels[3].len());
        for level in self.levels.iter().rev() {
            at = at * BITS + level.get(at).map_or(0, |word| word.trailing_ones() as usize);
        }
        at as u32
    }

    /// Gives a taken number back.
    pub(super) fn free_id(&mut self, id: u32) {
        let mut at = id as usize;
        for level in &mut self.levels {
            let word = &mut level[at / BITS];
            let was_full = *word == u64::MAX;
            *word &= !(1 << (at % BITS));
            if !was_full {
                break;
            }
            at /= BITS;
        }
        self.taken -= 1;
    }

    /// Says that no number from `end` on is taken.
    pub(super) fn ends_at(&mut self, end: u32) {
        self.end = end;
    }

    /// The first taken number from `from` on, within the next `words` words of bits; or else where to go on.
    #[inline]
    pub(super) fn next(&self, from: u32, words: &mut usize) -> Result<u32, u32> {
        let mut at = from as usize;
        while at < self.end as usize {
            let rest = self.levels[0][at / BITS] >> (at % BITS);
            if rest != 0 {
                return Ok((at + rest.trailing_zeros() as usize) as u32);
            }
            at = (at / BITS + 1) * BITS;
            if *words == 0 {
                break;
            }
            *words -= 1;
        }
        Err(at.min(self.end as usize) as u32)
    }

    /// Says whether none of the numbers in the words from `from` to `to` is taken; both are multiples of 64.
    pub(super) fn none_in(&self, from: u32, to: u32) -> bool {
        let words = &self.levels[0];
        let (from, to) = (from as usize / BITS, (to as usize / BITS).min(words.len()));
        words[from.min(to)..to].iter().all(|word| *word == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn the_lowest_free_number_is_given_out(
            choices in prop::collection::vec(any::<u32>(), 1..3000),
            grow in 1..8_u32,
        ) {
            let (mut ids, mut model) = (Ids::new(1000), BTreeSet::new());
            for choice in choices {
                if model.len() < 1000 && (choice % 8 < grow || model.is_empty()) {
                    let lowest = (0..).find(|id| !model.contains(id)).unwrap();
                    prop_assert_eq!(ids.alloc_id(), lowest);
                    model.insert(lowest);
                } else {
                    let id = *model.iter().nth(choice as usize % model.len()).unwrap();
                    ids.free_id(id);
                    model.remove(&id);
                }
                prop_assert_eq!(ids.taken_count() as usize, model.len());
                let from = choice % 1100;
                let next = ids.next(from, &mut usize::MAX.clone());
                prop_assert_eq!(next.ok(), model.range(from..).next().copied());
                let (from, to) = (choice % 16 * 64, choice / 16 % 16 * 64);
                let is_empty = from >= to || model.range(from..to).next().is_none();
                prop_assert_eq!(ids.none_in(from, to), is_empty);
            }
        }
    }

    #[test]
    fn a_walk_over_free_words_ends_when_told() {
        let mut ids = Ids::new(100_000);
        (0..50_000).for_each(|_| assert!(ids.alloc_id() < 50_000));
        (0..49_999).for_each(|id| ids.free_id(id));
        assert_eq!(ids.next(0, &mut 9), Err(640));
        assert_eq!(ids.next(0, &mut 100_000), Ok(49_999));
    }

    #[test]
    fn every_number_is_given_out_and_then_none() {
        let mut ids = Ids::new(70 * 64);
        (0..70 * 64).for_each(|n| assert_eq!(ids.alloc_id(), n));
        assert!(ids.lowest_free() >= 70 * 64);
        ids.free_id(4000);
        assert_eq!(ids.alloc_id(), 4000);
    }
}
