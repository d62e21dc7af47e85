//! How much is run.

use super::card::PLACES;
use super::case::Buffers;
use super::figures::CacheState;
use artery_bench::cachegrind::{Caches, E5_2620V2, K8, L5420};
use artery_bench::fib::timing::last_level_cache;
use std::time::Duration;

/// How much is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Runs of each case.
    pub(super) rounds: usize,
    /// Packets of a run.
    pub(super) packets: u64,
    /// How long packets are sent at a rate.
    pub(super) paced: Duration,
    /// Packets of the shorter of two runs whose misses are counted.
    pub(super) counted: u64,
    /// Caches to simulate beside those of this machine.
    pub(super) caches: &'static [Caches],
    /// Steps of the walk through memory.
    pub(super) steps: u32,
}

impl Plan {
    /// Enough for figures to be quoted.
    pub(super) const FULL: Plan = Plan {
        rounds: 9,
        packets: 3_000_000,
        paced: Duration::from_secs(1),
        counted: 50_000,
        caches: &[K8, L5420, E5_2620V2],
        steps: 4_000_000,
    };
    /// Enough to see whether something is wrong.
    pub(super) const QUICK: Plan = Plan {
        rounds: 3,
        packets: 400_000,
        paced: Duration::from_millis(250),
        counted: 20_000,
        caches: &[K8],
        steps: 1_000_000,
    };

    /// Packets to be counted: so many that nothing is left in the last level of what was there before.
    pub(super) fn counted(&self, caches: &Caches) -> u64 {
        self.counted.max(2 * (caches.last.bytes / caches.last.line) as u64)
    }
}

/// Bytes of lines that one big frame has for packets in turn.
const LINES: usize = PLACES * 64;
/// Bytes of a descriptor.
const DESCRIPTOR: usize = 128;

/// Buffers whose descriptors fit into every first level, and whose lines don't.
pub(super) const FEW: usize = 64;

/// Buffers for cachegrind: cold ones go through more than twice the last level, and at least 4 MB.
pub(super) fn simulated(way: CacheState, caches: &Caches) -> Buffers {
    match way {
        CacheState::Hot => Buffers::Hot,
        CacheState::Cold | CacheState::Prefetched => {
            Buffers::Cycled((2 * caches.last.bytes).div_ceil(LINES).max(FEW))
        }
    }
}

/// Buffers for the processor.
pub(super) fn real(way: CacheState) -> Buffers {
    match way {
        CacheState::Hot => Buffers::Hot,
        CacheState::Cold | CacheState::Prefetched => Buffers::Flushed,
    }
}

/// As many buffers as have descriptors of twice the last level, within what a pool may take of a machine.
pub(super) fn many() -> usize {
    (2 * last_level_cache() / DESCRIPTOR).clamp(1 << 14, 1 << 19)
}

/// The same for simulated caches.
pub(super) fn many_simulated(caches: &Caches) -> usize {
    (2 * caches.last.bytes / DESCRIPTOR).clamp(1 << 12, 1 << 19)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_buffers_do_not_fit_into_the_last_level() {
        for caches in [K8, L5420, E5_2620V2] {
            let Buffers::Cycled(count) = simulated(CacheState::Cold, &caches) else {
                panic!("cold ones cycle")
            };
            assert!(count * LINES >= 2 * caches.last.bytes, "{}", caches.name);
            assert!(many_simulated(&caches) * DESCRIPTOR >= 2 * caches.last.bytes);
            assert!(Plan::QUICK.counted(&caches) * 64 > caches.last.bytes as u64);
        }
    }
}
