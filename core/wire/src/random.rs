//! Random numbers for tests, jitter and choices that need no secrecy.

/// A stream of numbers that look random and depend on the seed alone.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }
    /// The next 64 bits, by the mixing function of SplitMix64.
    #[inline]
    #[allow(clippy::should_implement_trait)] // endless, so no Iterator
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    /// The upper half of the next 64 bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }
    /// A number below `bound`, which is not zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
    /// An index of something that has `len` parts, which is not zero.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
    /// Whether something of this chance, in percent, happens.
    #[inline]
    pub fn percent(&mut self, chance: u8) -> bool {
        self.below(100) < u64::from(chance)
    }
}
