//! What Bruce Evans measured in July 2008.

/// A line of his figures.
pub(super) struct Published {
    /// Version of the FreeBSD kernel.
    pub(super) system: &'static str,
    /// Interface and thousand packets a second.
    pub(super) load: (&'static str, u32),
    /// As he called it.
    pub(super) mode: &'static str,
    /// The level of monitor mode that is the same.
    pub(super) depth: &'static str,
    /// Idle time, in percent.
    pub(super) idle: f64,
    /// First-level data cache, by the counters of an AMD K8 (bge0) or K7 (em0).
    pub(super) misses: f64,
}

const fn row(
    (system, load): (&'static str, (&'static str, u32)),
    (mode, depth): (&'static str, &'static str),
    idle: f64,
    misses: f64,
) -> Published {
    Published { system, load, mode, depth, idle, misses }
}

const OLD: (&str, (&str, u32)) = ("~5.2", ("bge0", 397));
const CURRENT: (&str, (&str, u32)) = ("8-current", ("bge0", 397));
const EM0: (&str, (&str, u32)) = ("~5.2", ("em0", 580));
const FULL: (&str, &str) = ("-monitor", "off");
const MONITOR: (&str, &str) = ("monitor", "l1");
const EARLY: (&str, &str) = ("+monitor", "l0");

/// All seven of his measurements.
pub(super) const TABLE: [Published; 7] = [
    row(OLD, FULL, 17.0, 19.0),
    row(OLD, MONITOR, 66.0, 8.0),
    row(OLD, EARLY, 71.0, 7.0),
    row(CURRENT, FULL, 35.0, 13.6),
    row(CURRENT, MONITOR, 83.0, 5.8),
    row(EM0, FULL, 5.0, 12.5),
    row(EM0, MONITOR, 65.0, 4.8),
];

/// Thousand packets a second at which they were taken.
pub(super) const RATES: [u32; 2] = [OLD.1.1, EM0.1.1];
/// Nanoseconds of a miss by lmbench2, on the machine with bge0.
pub(super) const MISS: f64 = 42.0;

impl Published {
    /// Microseconds of a packet: what was not idle, by the rate.
    pub(super) fn busy(&self) -> f64 {
        (100.0 - self.idle) / 100.0 * 1000.0 / f64::from(self.load.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_from_idle_time_and_rate() {
        let busy = TABLE.map(|row| (row.busy() * 100.0).round() / 100.0);
        assert_eq!(busy, [2.09, 0.86, 0.73, 1.64, 0.43, 1.64, 0.6]);
    }
}
