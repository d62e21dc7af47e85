//! Numbers that nobody guesses who doesn't know the key.
use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};

/// A source of random numbers: a keyed hash of a counter.
#[derive(Clone, Debug)]
pub struct Random {
    key: [u64; 2],
    count: u64,
}

impl Random {
    /// With a key of the system's choice.
    pub fn system() -> Random {
        Random { key: [0_u8, 1].map(|word| RandomState::new().hash_one(word)), count: 0 }
    }

    /// With a key that makes the same numbers each time.
    pub fn of(seed: u64) -> Random {
        Random { key: [seed, !seed], count: 0 }
    }

    /// The next number.
    pub fn word(&mut self) -> u64 {
        self.count += 1;
        let mut hasher = DefaultHasher::new();
        self.key.iter().chain([&self.count]).for_each(|word| hasher.write_u64(*word));
        hasher.finish()
    }

    /// The next number, of 32 bits.
    pub fn half(&mut self) -> u32 {
        self.word() as u32
    }

    /// The next number, of 128 bits.
    pub fn wide(&mut self) -> u128 {
        u128::from(self.word()) << 64 | u128::from(self.word())
    }

    /// A key for a hash.
    pub fn pair(&mut self) -> [u64; 2] {
        [self.word(), self.word()]
    }
}
