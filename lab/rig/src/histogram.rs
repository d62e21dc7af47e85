//! A histogram of times: every figure is right to a thousandth, and recording allocates nothing.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// What longer times are counted as, in nanoseconds: a minute.
const LONGEST: u64 = 60_000_000_000;

/// Counts of times by size.
#[derive(Clone)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

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
        Histogram(hdrhistogram::Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are valid"))
    }
}

impl Histogram {
    /// Counts one value, in nanoseconds.
    pub fn record(&mut self, value: u64) {
        self.0.saturating_record(value);
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// The figures that reports show.
    pub fn latency(&self) -> Latency {
        if self.0.is_empty() {
            return Latency::default();
        }
        Latency {
            min_ns: self.0.min(),
            mean_ns: self.0.mean() as u64,
            p50_ns: self.0.value_at_quantile(0.5),
            p99_ns: self.0.value_at_quantile(0.99),
            p999_ns: self.0.value_at_quantile(0.999),
            max_ns: self.0.max(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_histogram_has_zero_figures() {
        assert_eq!(Histogram::default().latency(), Latency::default());
    }

    proptest! {
        #[test]
        fn figures_are_those_of_the_sorted_values(mut values in prop::collection::vec(any::<u32>(), 1..300)) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.record(u64::from(*value)));
            values.sort_unstable();
            let Latency { min_ns, p50_ns, p99_ns, p999_ns, max_ns, .. } = histogram.latency();
            let figures = [(min_ns, 0.0), (p50_ns, 0.5), (p99_ns, 0.99), (p999_ns, 0.999), (max_ns, 1.0)];
            for (told, share) in figures {
                let rank = ((values.len() as f64 * share).ceil() as usize).max(1);
                let (told, exact) = (told as f64, f64::from(values[rank - 1]));
                prop_assert!((told - exact).abs() <= exact / 1000.0, "{} for {} at {}", told, exact, share);
            }
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
