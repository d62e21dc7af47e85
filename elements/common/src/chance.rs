//! Random numbers for statistics, not for secrets; RandomSeed makes them repeatable.
use artery_engine::{ArgError, Args};
use artery_lang::args as text;
use artery_wire::Random;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard};

/// Bits behind the point of SAMPLE.
pub const SAMPLE_BITS: u32 = 28;

/// Reads SAMPLE, the share of packets to send; warns when it is zero, or reduced to 1.
pub fn read_sample(args: &mut Args<'_>) -> Result<u32, ArgError> {
    let sample: String = args.read("SAMPLE")?;
    let sample = text::parse_fixed(&sample, SAMPLE_BITS)
        .map_err(|_| ArgError::wrong("SAMPLE: parse error, wants a number from 0 to 1"))?;
    match sample {
        0 => args.warn("SAMPLE probability is 0; emitting no packets", None),
        1..=0x1000_0000 => {}
        _ => args.warn("SAMPLE probability reduced to 1", None),
    }
    Ok(sample.min(1 << SAMPLE_BITS) as u32)
}

/// A generator for the element that is being created, seeded from the router's random numbers.
pub fn new_random(args: &Args<'_>) -> Random {
    Random::new(args.resource::<Chance>().next_u64())
}

/// The router's source of chance, for scripts and for the seeds of elements that draw a
/// number for each packet.
pub struct Chance(Mutex<Random>);

impl Default for Chance {
    fn default() -> Chance {
        Chance(Mutex::new(new_unseeded()))
    }
}

/// A generator that differs from run to run.
fn new_unseeded() -> Random {
    Random::new(RandomState::new().hash_one(0u64))
}

/// Largest number that scripts call random; C's RAND_MAX.
pub const MAX: u32 = 0x7fff_ffff;

impl Chance {
    fn lock_random(&self) -> MutexGuard<'_, Random> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
    /// Starts the sequence that belongs to `seed`, or an unpredictable one.
    pub fn set_seed(&self, seed: Option<u32>) {
        *self.lock_random() = seed.map_or_else(new_unseeded, |seed| Random::new(seed.into()));
    }
    pub fn next_u64(&self) -> u64 {
        self.lock_random().next()
    }
    /// A number from `low` to `high`, both included.
    pub fn random_between(&self, low: u32, high: u32) -> u32 {
        let span = u64::from(high.saturating_sub(low)) + 1;
        low + ((u128::from(self.next_u64()) * u128::from(span)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_sequence_repeatable() {
        let chance = Chance::default();
        let sequence = |seed| {
            chance.set_seed(Some(seed));
            (0..10).map(|_| chance.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(sequence(1), sequence(1));
        assert_ne!(sequence(1), sequence(2));
    }

    #[test]
    fn every_number_of_a_span_occurs_and_no_other() {
        let chance = Chance::default();
        chance.set_seed(Some(7));
        let mut seen = [0; 3];
        (0..300).for_each(|_| seen[chance.random_between(5, 7) as usize - 5] += 1);
        assert!(seen.iter().all(|n| *n > 50), "{seen:?}");
    }

    #[test]
    fn bits_are_set_half_of_the_time() {
        let mut random = Random::new(7);
        let ones: u32 = (0..10_000).map(|_| random.next_u32().count_ones()).sum();
        assert!((158_000..162_000).contains(&ones), "{ones}");
    }
}
