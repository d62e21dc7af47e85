//! A histogram of times whose buckets grow with the value: every figure is right to about 3 %, in 15 kB.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// Buckets per doubling, as a power of two.
const PRECISION: u32 = 5;
const STEPS: u64 = 1 << PRECISION;
/// One linear run up to `STEPS`, then `STEPS` buckets for each further bit of a u64.
const BUCKETS: usize = ((64 - PRECISION + 1) << PRECISION) as usize;

/// Counts of values by size, with exact extremes and mean.
#[derive(Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    total: u128,
    min: u64,
    max: u64,
}

/// The figures of a histogram of latencies, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Latency {
    /// The smallest latency, in nanoseconds.
    pub min_ns: u64,
    /// The mean latency, in nanoseconds.
    pub mean_ns: u64,
    /// Half are at most this.
    pub p50_ns: u64,
    /// 99 in 100 are at most this.
    pub p99_ns: u64,
    /// 999 in 1000 are at most this.
    pub p999_ns: u64,
    /// The largest latency, in nanoseconds.
    pub max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; BUCKETS], count: 0, total: 0, min: u64::MAX, max: 0 }
    }
}

impl Histogram {
    /// Counts one value, in nanoseconds.
    pub fn record(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.count += 1;
        self.total += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.total += other.total;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The value that the given share of all values does not exceed; 0 if there are none.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut passed = 0;
        let reached = |count: &u64| {
            passed += count;
            passed >= rank
        };
        match self.counts.iter().position(reached) {
            Some(bucket) => last_value(bucket).clamp(self.min, self.max),
            None => 0,
        }
    }

    /// The figures that reports show.
    pub fn latency(&self) -> Latency {
        if self.count == 0 {
            return Latency::default();
        }
        Latency {
            min_ns: self.min,
            mean_ns: (self.total / u128::from(self.count)) as u64,
            p50_ns: self.quantile(0.5),
            p99_ns: self.quantile(0.99),
            p999_ns: self.quantile(0.999),
            max_ns: self.max,
        }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [min, p50, p99, p999, max] =
            [self.min_ns, self.p50_ns, self.p99_ns, self.p999_ns, self.max_ns].map(Duration::from_nanos);
        write!(f, "min {min:.1?}, p50 {p50:.1?}, p99 {p99:.1?}, p99.9 {p999:.1?}, max {max:.1?}")
    }
}

fn bucket(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let doubling = value.ilog2() - PRECISION;
    let step = (value >> doubling) & (STEPS - 1);
    (((u64::from(doubling) + 1) << PRECISION) + step) as usize
}

/// The largest value that falls into a bucket.
fn last_value(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let doubling = (bucket >> PRECISION) - 1;
    let first = (STEPS + (bucket & (STEPS - 1))) << doubling;
    first + ((1 << doubling) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_cover_every_value_once() {
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(last_value(BUCKETS - 1), u64::MAX);
        for at in 0..BUCKETS - 1 {
            assert_eq!(bucket(last_value(at)), at);
            assert_eq!(bucket(last_value(at) + 1), at + 1);
        }
    }

    #[test]
    fn an_empty_histogram_has_zero_figures() {
        assert_eq!(Histogram::default().latency(), Latency::default());
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_sorted_values(
            mut values in prop::collection::vec(any::<u32>(), 1..300),
            share in 0.0..1.0f64,
        ) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.record(u64::from(*value)));
            values.sort_unstable();
            let rank = ((values.len() as f64 * share).ceil() as usize).max(1);
            let exact = f64::from(values[rank - 1]);
            let told = histogram.quantile(share) as f64;
            prop_assert!(
                told >= exact && told <= exact * (1.0 + 1.0 / STEPS as f64),
                "{} for {}",
                told,
                exact
            );
        }

        #[test]
        fn merging_is_recording_both(
            left in prop::collection::vec(any::<u64>(), 0..50),
            right in prop::collection::vec(any::<u64>(), 0..50),
        ) {
            let (mut parts, mut whole, mut other) =
                (Histogram::default(), Histogram::default(), Histogram::default());
            left.iter().for_each(|value| parts.record(*value));
            right.iter().for_each(|value| other.record(*value));
            left.iter().chain(&right).for_each(|value| whole.record(*value));
            parts.merge(&other);
            prop_assert_eq!(parts.latency(), whole.latency());
        }
    }
}
