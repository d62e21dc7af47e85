//! All that was measured, to be judged and printed.

use super::case::Run;
use super::deletion::Population;
use super::engine::EngineName;
use super::workload::{Verified, Workload};
use super::writes::Writes;
use artery_bench::cachegrind::Count;
use artery_bench::results::Summary;
use std::collections::BTreeMap;

/// A point of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    pub(super) workload: Workload,
    pub(super) driver: u32,
    pub(super) threads: usize,
    pub(super) engine: EngineName,
}

/// What misses were counted of.
pub(super) type Counted = (Workload, u32, EngineName);

/// Everything that was measured.
#[derive(Default)]
pub(super) struct Figures {
    /// Million packets a second.
    pub(super) rates: BTreeMap<Point, Vec<f64>>,
    /// Runs with locks that were watched.
    pub(super) watched: BTreeMap<Point, Run>,
    /// What the packets of the fourth workload were found to be.
    pub(super) verified: BTreeMap<EngineName, Verified>,
    /// Million packets a second of one thread, with locks and without.
    pub(super) alone: BTreeMap<EngineName, [Vec<f64>; 2]>,
    /// Cache misses, by the name of the caches.
    pub(super) misses: BTreeMap<(&'static str, Counted), Count>,
    /// Nodes of the tree on the way.
    pub(super) nodes: BTreeMap<Counted, f64>,
    /// Milliseconds of each deletion.
    pub(super) deletions: Vec<(EngineName, Population, Vec<f64>)>,
    pub(super) writes: BTreeMap<EngineName, Writes>,
    /// Nanoseconds one by one, and in batches.
    pub(super) hand_over: Option<(f64, f64)>,
    /// Lines of the unified design, of routes, and of neighbors.
    pub(super) lines: [usize; 3],
}

/// The mean, as the paper has it.
pub(super) fn mean(runs: &[f64]) -> f64 {
    runs.iter().sum::<f64>() / runs.len().max(1) as f64
}

impl Figures {
    /// The mean rate at a point.
    pub(super) fn rate(&self, point: Point) -> Option<f64> {
        self.rates.get(&point).map(|runs| mean(runs))
    }
    /// That of the first workload.
    pub(super) fn w1(&self, engine: EngineName, threads: usize, driver: u32) -> Option<f64> {
        self.rate(Point { workload: Workload::W1, driver, threads, engine })
    }
    /// Percent of time in locks, in the first workload.
    pub(super) fn locked(&self, engine: EngineName, threads: usize, driver: u32) -> Option<f64> {
        let point = Point { workload: Workload::W1, driver, threads, engine };
        self.watched.get(&point).map(|run| run.locked)
    }
    /// Numbers of threads of the first workload.
    pub(super) fn threads(&self) -> Vec<usize> {
        let mut threads: Vec<usize> =
            self.rates.keys().filter(|p| p.workload == Workload::W1).map(|p| p.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        threads
    }
    /// The least time to delete a network: what disturbs only adds.
    pub(super) fn deletion(&self, engine: EngineName, population: Population) -> Option<f64> {
        let mut all = self.deletions.iter();
        let found = all.find(|(name, people, _)| (*name, *people) == (engine, population))?;
        Some(Summary::of(&found.2).min)
    }
}
