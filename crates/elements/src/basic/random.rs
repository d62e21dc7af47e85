//! Random numbers for samplers: quick, good enough for statistics, no secret.

use crate::chance::Chance;
use artery_engine::Args;

/// A xorshift64* generator.
pub(crate) struct Random(u64);

impl Random {
    /// A generator for the element that is being made, seeded from the router's source of chance.
    pub(crate) fn new(args: &Args<'_>) -> Random {
        Random::from_seed(args.resource::<Chance>().bits())
    }
    /// A generator that gives the same numbers for the same seed.
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
