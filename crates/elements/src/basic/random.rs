//! Random numbers for samplers: quick, good enough for statistics, no secret.
use std::hash::{BuildHasher, RandomState};

/// A xorshift64* generator.
pub(crate) struct Random(u64);

impl Random {
    /// A generator that starts anywhere.
    pub(crate) fn new() -> Random {
        Random::from_seed(RandomState::new().hash_one(0))
    }
    /// A generator that always gives the same numbers.
    pub(crate) fn from_seed(seed: u64) -> Random {
        Random(seed | 1)
    }
    /// 32 random bits.
    #[inline]
    pub(crate) fn bits(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_set_half_of_the_time() {
        let mut random = Random::from_seed(7);
        let ones: u32 = (0..10_000).map(|_| random.bits().count_ones()).sum();
        assert!((158_000..162_000).contains(&ones), "{ones}");
    }
}
