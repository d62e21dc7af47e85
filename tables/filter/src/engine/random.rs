//! Random numbers that can't be predicted without the key.
use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};

/// A source of random numbers: a keyed hash of a counter.
#[derive(Clone, Debug)]
pub struct Random {
    key: [u64; 2],
    count: u64,
}

impl Random {
    /// With a key of the system's choice.
    pub fn from_entropy() -> Random {
        Random { key: [0_u8, 1].map(|word| RandomState::new().hash_one(word)), count: 0 }
    }

    /// With a key that makes the same numbers each time.
    pub fn from_seed(seed: u64) -> Random {
        Random { key: [seed, !seed], count: 0 }
    }

    /// The next number, of 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.count += 1;
        let mut hasher = DefaultHasher::new();
        self.key.iter().chain([&self.count]).for_each(|word| hasher.write_u64(*word));
        hasher.finish()
    }

    /// The next number, of 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        self.next_u64() as u32
    }

    /// The next number, of 128 bits.
    pub fn next_u128(&mut self) -> u128 {
        u128::from(self.next_u64()) << 64 | u128::from(self.next_u64())
    }

    /// A key for a hash.
    pub fn next_key(&mut self) -> [u64; 2] {
        [self.next_u64(), self.next_u64()]
    }
}
