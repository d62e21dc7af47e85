//! Keeps packets to a neighbor in order where some of them take the slow path and some the fast
//! path of one worker.
//!
//! Earlier packets wait in the slow path for a neighbor; on the fast path later packets would overtake them.
//! So whoever makes a neighbor known counts that, before and after. While the slow path of a worker holds
//! packets, it publishes up to which change it has processed all. While there are later changes, the fast
//! path of this worker sends everything to the slow path, behind the packets that wait. Where none wait that
//! costs a batch one load of a word that only this worker writes.
use std::sync::atomic::{AtomicU64, Ordering::*, fence};

pub struct ReorderGuard {
    /// Counts the start and the end of each change that makes a neighbor known, so it
    /// is even between changes.
    changes: AtomicU64,
    workers: Box<[WorkerProgress]>,
}

/// The count of changes that the slow path of a worker has processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeMark(u64);

impl ChangeMark {
    /// The mark of a worker that has processed no change; the count of changes never reaches it.
    pub const NOTHING: ChangeMark = ChangeMark(u64::MAX - 1);
}

/// 0 where no packets wait, else one more than the changes that the worker has processed.
#[derive(Default)]
#[repr(align(128))]
struct WorkerProgress(AtomicU64);

impl ReorderGuard {
    /// A guard for so many workers.
    pub fn new(workers: usize) -> ReorderGuard {
        ReorderGuard {
            changes: AtomicU64::new(0),
            workers: (0..workers).map(|_| WorkerProgress::default()).collect(),
        }
    }

    /// Makes a neighbor known. The caller holds the tables.
    pub fn make_known<T>(&self, what: impl FnOnce() -> T) -> T {
        self.changes.fetch_add(1, Relaxed);
        // A reader that sees what is stored from here on also sees that a change is under way.
        fence(Release);
        let done = what();
        self.changes.fetch_add(1, Release);
        done
    }

    /// The changes so far. A caller that looks at neighbors after this sees those that became known by then.
    pub fn up_to(&self) -> ChangeMark {
        ChangeMark(self.changes.load(Acquire) & !1)
    }

    /// Publishes up to which change the slow path of a worker has processed all, if packets wait there.
    pub fn record_progress(&self, worker: usize, waiting: Option<ChangeMark>) {
        if let Some(heard) = self.workers.get(worker) {
            heard.0.store(waiting.map_or(0, |ChangeMark(changes)| changes + 1), Relaxed);
        }
    }

    /// Whether packets that wait on a worker may be for neighbors that are known by now. The caller has read
    /// the neighbors' state before.
    #[inline]
    pub fn is_behind(&self, worker: usize) -> bool {
        let heard = self.workers.get(worker).map_or(0, |heard| heard.0.load(Relaxed));
        heard != 0 && self.is_more_than(heard)
    }
    #[cold]
    fn is_more_than(&self, heard: u64) -> bool {
        fence(Acquire);
        self.changes.load(Relaxed) + 1 != heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_on_which_packets_wait_is_behind_from_the_change_on_until_it_has_heard() {
        let order = ReorderGuard::new(2);
        let heard = order.up_to();
        order.record_progress(0, Some(heard));
        assert!(!order.is_behind(0));
        order.make_known(|| {
            assert!(order.is_behind(0), "what is under way may be seen already");
            order.record_progress(0, Some(order.up_to()));
            assert!(order.is_behind(0), "and need not be seen yet");
        });
        assert!(order.is_behind(0) && !order.is_behind(1), "nothing waits on the other worker");
        order.record_progress(0, Some(order.up_to()));
        assert!(!order.is_behind(0));
        order.record_progress(0, Some(ChangeMark::NOTHING));
        assert!(order.is_behind(0));
        order.record_progress(0, None);
        assert!(!order.is_behind(0) && !order.is_behind(2));
    }
}
