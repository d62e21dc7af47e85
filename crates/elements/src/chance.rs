//! The router's source of chance, which RandomSeed makes repeatable.
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard};

/// Pseudo-random numbers for all elements of a router: splitmix64. Elements that need one per packet seed a
/// generator of their own from it.
pub(crate) struct Chance(Mutex<u64>);

impl Default for Chance {
    fn default() -> Chance {
        Chance(Mutex::new(unpredictable()))
    }
}

/// A number that differs from run to run.
fn unpredictable() -> u64 {
    RandomState::new().hash_one(0u64)
}

/// Largest number that scripts call random; C's RAND_MAX.
pub(crate) const MAX: u32 = 0x7fff_ffff;

impl Chance {
    fn state(&self) -> MutexGuard<'_, u64> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
    /// Starts the sequence that belongs to `seed`, or an unpredictable one.
    pub(crate) fn seed(&self, seed: Option<u32>) {
        *self.state() = seed.map_or_else(unpredictable, u64::from);
    }
    /// 64 random bits.
    pub(crate) fn bits(&self) -> u64 {
        let mut state = self.state();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&self, low: u32, high: u32) -> u32 {
        let span = u64::from(high.saturating_sub(low)) + 1;
        low + ((u128::from(self.bits()) * u128::from(span)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_sequence_repeatable() {
        let chance = Chance::default();
        let sequence = |seed| {
            chance.seed(Some(seed));
            (0..10).map(|_| chance.bits()).collect::<Vec<_>>()
        };
        assert_eq!(sequence(1), sequence(1));
        assert_ne!(sequence(1), sequence(2));
    }

    #[test]
    fn every_number_of_a_span_occurs_and_no_other() {
        let chance = Chance::default();
        chance.seed(Some(7));
        let mut seen = [0; 3];
        (0..300).for_each(|_| seen[chance.between(5, 7) as usize - 5] += 1);
        assert!(seen.iter().all(|n| *n > 50), "{seen:?}");
    }
}
