//! Keeps packets to a neighbor in order where some of them take the slow path and some the fast path of one worker.
//!
//! Those that came before the neighbor was known wait in the slow path, and in the fast path later ones would pass them
//! by. So whoever makes a neighbor known says so, before and after; the slow path of a worker says, while it holds
//! packets, up to where it has heard of that; and as long as there is more to hear, the fast path of this worker turns
//! everything aside, behind the packets that wait. Where none wait that is a load for a batch, of a word that only this
//! worker writes.
use std::sync::atomic::{AtomicU64, Ordering::*, fence};

/// See the module.
pub(crate) struct Order {
    /// How often a neighbor began to become known, or had become so: odd in between.
    changes: AtomicU64,
    workers: Box<[Heard]>,
}

/// What the slow path of a worker has heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UpTo(u64);

impl UpTo {
    /// Nothing, ever.
    pub(crate) const NOTHING: UpTo = UpTo(u64::MAX - 1);
}

/// 0 where no packets wait, else one more than the changes that the worker has heard of.
#[derive(Default)]
#[repr(align(128))]
struct Heard(AtomicU64);

impl Order {
    /// For so many workers.
    pub(crate) fn new(workers: usize) -> Order {
        Order { changes: AtomicU64::new(0), workers: (0..workers).map(|_| Heard::default()).collect() }
    }

    /// Makes a neighbor known. For who holds the tables.
    pub(crate) fn make_known<T>(&self, what: impl FnOnce() -> T) -> T {
        self.changes.fetch_add(1, Relaxed);
        // Who sees what is stored from here on sees that something is under way.
        fence(Release);
        let done = what();
        self.changes.fetch_add(1, Release);
        done
    }

    /// What there is to hear of. Neighbors that became known up to there are seen by who looks after this.
    pub(crate) fn up_to(&self) -> UpTo {
        UpTo(self.changes.load(Acquire) & !1)
    }

    /// Says up to where the slow path of a worker has heard of all, if packets wait there.
    pub(crate) fn heard(&self, worker: usize, waiting: Option<UpTo>) {
        if let Some(heard) = self.workers.get(worker) {
            heard.0.store(waiting.map_or(0, |UpTo(changes)| changes + 1), Relaxed);
        }
    }

    /// Whether packets that wait on a worker may be for neighbors that are known by now. For who has looked at what is
    /// known of neighbors before.
    #[inline]
    pub(crate) fn is_behind(&self, worker: usize) -> bool {
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
        let order = Order::new(2);
        let heard = order.up_to();
        order.heard(0, Some(heard));
        assert!(!order.is_behind(0));
        order.make_known(|| {
            assert!(order.is_behind(0), "what is under way may be seen already");
            order.heard(0, Some(order.up_to()));
            assert!(order.is_behind(0), "and need not be seen yet");
        });
        assert!(order.is_behind(0) && !order.is_behind(1), "nothing waits on the other worker");
        order.heard(0, Some(order.up_to()));
        assert!(!order.is_behind(0));
        order.heard(0, Some(UpTo::NOTHING));
        assert!(order.is_behind(0));
        order.heard(0, None);
        assert!(!order.is_behind(0) && !order.is_behind(2));
    }
}
