//! How much is run.

use super::case::Case;
use super::engine::EngineName;
use super::workload::Workload;

/// How much is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Samples of a point of the figures, and milliseconds of each.
    pub(super) samples: usize,
    pub(super) millis: u64,
    /// Numbers of threads that send.
    pub(super) threads: &'static [usize],
    /// Milliseconds of a sample where locks are watched.
    pub(super) watched: u64,
    /// The same of other workloads.
    pub(super) others: u64,
    /// Repetitions with locks and without, and of deletions.
    pub(super) repetitions: usize,
    /// Packets of the shorter of two runs whose misses are counted.
    pub(super) counted: u64,
    /// Whether stores are traced with the FIB that forwards otherwise, which takes minutes.
    pub(super) whole: bool,
}

impl Plan {
    /// Samples as many as in the paper, but shorter: theirs take two and a half hours.
    pub(super) const FULL: Plan = Plan {
        samples: 5,
        millis: 300,
        threads: &[1, 2, 3, 4, 5, 6, 7, 8],
        watched: 600,
        others: 150,
        repetitions: 9,
        counted: 50_000,
        whole: true,
    };
    /// Enough to see whether something is wrong.
    pub(super) const QUICK: Plan = Plan {
        samples: 3,
        millis: 60,
        threads: &[1, 2, 4, 8],
        watched: 150,
        others: 60,
        repetitions: 5,
        counted: 20_000,
        whole: false,
    };

    /// Threads where other workloads are measured: one, and as many as there are processors.
    pub(super) fn few_threads(&self, cores: usize) -> Vec<usize> {
        let mut threads = vec![1, cores.min(self.threads.last().copied().unwrap_or(1))];
        threads.dedup();
        threads
    }
}

/// Nanoseconds of the driver beside its copying: switched off, and about what one takes.
pub(super) const DRIVERS: [u32; 2] = [0, 100];

/// Neighbors beside when misses of the trees are counted.
pub(super) const NEIGHBORS: [u32; 3] = [0, 1000, 64_000];

/// What misses are counted of: every engine in the first workload, those of the third that are about memory,
/// and both trees with neighbors in them, on the path to a router and to a neighbor.
pub(super) fn counted(plan: &Plan) -> Vec<(Case, u64)> {
    let case = Case::new;
    let single = EngineName::ALL.into_iter().filter(|engine| *engine != EngineName::D);
    let mut all: Vec<(Case, u64)> = single.map(|engine| (case(engine, Workload::W1), plan.counted)).collect();
    // Every destination once: so all have been seen when the second half is counted.
    all.extend(
        [EngineName::F, EngineName::E, EngineName::G].map(|engine| (case(engine, Workload::W3), 1 << 20)),
    );
    for engine in [EngineName::L, EngineName::S] {
        for neighbors in NEIGHBORS {
            if neighbors > 0 {
                let near = Case { neighbors, ..case(engine, Workload::Near) };
                let far = Case { neighbors, ..case(engine, Workload::W1) };
                all.extend([(near, plan.counted), (far, plan.counted)]);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_of_the_figures_is_in_the_plan() {
        assert_eq!(Plan::FULL.threads, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((Plan::FULL.samples, Plan::QUICK.threads), (5, &[1, 2, 4, 8][..]));
        assert_eq!((Plan::QUICK.few_threads(2), Plan::QUICK.few_threads(1)), (vec![1, 2], vec![1]));
        assert!(counted(&Plan::QUICK).iter().all(|(case, _)| case.engine != EngineName::D));
    }
}
