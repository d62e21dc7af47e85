//! Everything measured, and how to ask for it.

use super::case::{LADDER, Run};
use artery_bench::cachegrind::Count;
use artery_bench::results::Summary;
use std::collections::BTreeMap;

/// What packets are like when they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CacheState {
    /// Their header is in the cache.
    Hot,
    /// Their header is not in the cache.
    Cold,
    /// The same, but the driver asked for them.
    Prefetched,
}

impl CacheState {
    pub(super) fn name(self) -> &'static str {
        match self {
            CacheState::Hot => "hot",
            CacheState::Cold => "cold",
            CacheState::Prefetched => "cold, prefetched",
        }
    }
}

/// Which of the free buffers is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Order {
    /// The last to be freed: the pool's own.
    Lifo,
    /// The first to be freed.
    Fifo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    /// The counters of the processor.
    Processor,
    /// Cachegrind, for the caches of this name.
    Cachegrind(&'static str),
}

impl By {
    pub(super) fn name(self) -> &'static str {
        match self {
            By::Processor => "processor",
            By::Cachegrind(caches) => caches,
        }
    }
}

/// Misses of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Misses {
    pub(super) d1: f64,
    pub(super) last: Option<f64>,
}

impl From<Count> for Misses {
    fn from(count: Count) -> Misses {
        Misses { d1: count.d1, last: Some(count.last) }
    }
}

/// Whether ports counted what they were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Audit {
    pub(super) runs: usize,
    pub(super) exact: usize,
    pub(super) packets: u64,
    /// Packets that were examined behind the router, all as they must be.
    pub(super) examined: u64,
}

/// A depth: an index into [`LADDER`].
pub(super) type Rung = usize;
/// The rung that includes the whole path.
pub(super) const OFF: Rung = LADDER.len() - 1;

#[derive(Default)]
pub(super) struct Figures {
    /// Nanoseconds of a packet.
    pub(super) times: BTreeMap<(CacheState, Rung), Vec<f64>>,
    /// Percent of idle time and packets a second, by thousand packets a second that were wanted.
    pub(super) idle: BTreeMap<(u32, Rung), Vec<(f64, f64)>>,
    /// Misses of a packet, by depth: also `card`.
    pub(super) misses: BTreeMap<(By, CacheState, &'static str), Misses>,
    /// Nanoseconds of a packet with the taking of its buffer.
    pub(super) buffers: BTreeMap<Order, Vec<f64>>,
    /// Misses of a packet on the whole way.
    pub(super) buffer_misses: BTreeMap<(By, Order), Misses>,
    /// Nanoseconds of a load that misses, of a page that the processor knows.
    pub(super) miss: Vec<f64>,
    /// The same, but the page has to be found as well.
    pub(super) far: Vec<f64>,
    pub(super) audit: Audit,
}

impl Figures {
    /// Takes note of what the ports counted in a run, which handed `packets` over to the router.
    pub(super) fn audit(&mut self, run: &Run) {
        let handed = run.card.handed;
        self.audit.runs += 1;
        self.audit.exact += usize::from(run.received == (handed.packets, handed.bytes));
        self.audit.packets += handed.packets;
        self.audit.examined += run.card.examined.packets;
    }

    /// The least time: what disturbs only adds.
    pub(super) fn least(&self, way: CacheState, rung: Rung) -> Option<f64> {
        Some(Summary::of(self.times.get(&(way, rung))?).min)
    }
    /// The median of the times.
    pub(super) fn time(&self, way: CacheState, rung: Rung) -> Option<f64> {
        Some(Summary::of(self.times.get(&(way, rung))?).median)
    }
    /// The median of idle time.
    pub(super) fn idle(&self, rate: u32, rung: Rung) -> Option<f64> {
        let runs: Vec<f64> = self.idle.get(&(rate, rung))?.iter().map(|(idle, _)| *idle).collect();
        Some(Summary::of(&runs).median)
    }
    /// Nanoseconds of a miss: the median.
    pub(super) fn miss(&self) -> Option<f64> {
        let runs = if self.miss.is_empty() { &self.far } else { &self.miss };
        (!runs.is_empty()).then(|| Summary::of(runs).median)
    }
    /// Misses of the first-level data cache per packet.
    pub(super) fn d1(&self, by: By, way: CacheState, rung: Rung) -> Option<f64> {
        Some(self.misses.get(&(by, way, LADDER[rung]))?.d1)
    }
    /// All who counted misses.
    pub(super) fn counters(&self) -> Vec<By> {
        let mut all: Vec<By> = self.misses.keys().map(|(by, ..)| *by).collect();
        all.dedup();
        all
    }
    /// What a row of the ladder is, from l0 up; none unless all of it was measured.
    pub(super) fn ladder(&self, of: impl Fn(Rung) -> Option<f64>) -> Option<Vec<f64>> {
        (0..LADDER.len()).map(of).collect()
    }
}
