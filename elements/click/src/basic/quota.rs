//! How many packets an element may still send: a LIMIT that its copies on all workers share.
use artery_engine::{Args, Limit};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// State shared by all copies, on cache lines of its own: adjacent memory may be written by another worker.
#[derive(Default)]
#[repr(align(128))]
struct Shared {
    /// Packets that copies have sent or are about to send.
    taken: AtomicU64,
    /// Packets that copies have made, so that they can be sent.
    made: AtomicU64,
    /// Whether a copy has already run the action at the end of the limit.
    ended: AtomicBool,
}

/// A limit and what is left of it.
pub(crate) struct Quota {
    limit: Limit,
    shared: Arc<Shared>,
}

impl Quota {
    /// The limit of the element that is being created.
    pub(crate) fn new(limit: Limit, args: &mut Args<'_>) -> Quota {
        Quota { limit, shared: args.shared_value(Shared::default) }
    }
    /// Takes up to `n` packets of what is left; returns how many. Report
    /// the result with [`Quota::return_unused`].
    pub(crate) fn reserve_packets(&self, n: usize) -> usize {
        let Some(limit) = self.limit.0 else { return n };
        let grow = |taken: u64| (taken < limit).then(|| taken.saturating_add(n as u64).min(limit));
        let before = self.shared.taken.fetch_update(Relaxed, Relaxed, grow);
        before.map_or(0, |before| (limit - before).min(n as u64) as usize)
    }
    /// Reports that of `granted` packets only so many were `made`, and returns the others to the limit.
    pub(crate) fn return_unused(&self, granted: usize, made: usize) {
        if self.limit.0.is_none() || granted == 0 {
            return;
        }
        if made < granted {
            // A reset by another copy may have come between: then less was taken than is returned.
            let shrink = |taken: u64| Some(taken.saturating_sub((granted - made) as u64));
            let _ = self.shared.taken.fetch_update(Relaxed, Relaxed, shrink);
        } else {
            // More, when a long packet came as several segments: they count against what is left.
            self.shared.taken.fetch_add((made - granted) as u64, Relaxed);
        }
        self.shared.made.fetch_add(made as u64, Relaxed);
    }
    /// Whether all packets that the limit allows were made. A copy that finds nothing left while
    /// this is false looks again: another copy is running and may return packets, and nothing would
    /// wake a sleeping copy.
    pub(crate) fn is_done(&self) -> bool {
        self.is_used_up() && self.limit.0.is_some_and(|limit| self.shared.made.load(Relaxed) >= limit)
    }
    /// Whether all packets were made and no copy has claimed that before: true once.
    pub(crate) fn claim_end(&self) -> bool {
        self.is_done() && !self.shared.ended.swap(true, Relaxed)
    }
    /// Lets [`Self::claim_end`] succeed once more.
    pub(crate) fn rearm_end(&self) {
        self.shared.ended.store(false, Relaxed);
    }
    /// Whether nothing is left.
    pub(crate) fn is_used_up(&self) -> bool {
        self.limit.0.is_some_and(|limit| self.shared.taken.load(Relaxed) >= limit)
    }
    /// Sets the count of packets to zero.
    pub(crate) fn reset(&self) {
        self.count_from(0);
    }
    fn count_from(&self, n: u64) {
        self.shared.taken.store(n, Relaxed);
        self.shared.made.store(n, Relaxed);
    }
    /// Changes the limit. Where there was none, `sent` packets count as taken.
    pub(crate) fn set_limit(&mut self, limit: Limit, sent: u64) {
        if self.limit.0.is_none() {
            self.count_from(sent);
        }
        self.limit = limit;
    }
    /// The limit as Click prints it: -1 when there is none.
    pub(crate) fn limit_text(&self) -> String {
        self.limit.0.map_or("-1".to_string(), |limit| limit.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copies() -> (Quota, Quota) {
        let shared = Arc::new(Shared::default());
        let copy = || Quota { limit: Limit(Some(10)), shared: shared.clone() };
        (copy(), copy())
    }

    #[test]
    fn two_copies_together_take_no_more_than_the_limit() {
        let (a, b) = copies();
        assert_eq!((a.reserve_packets(6), b.reserve_packets(6), a.reserve_packets(6)), (6, 4, 0));
        assert!(a.is_used_up());
        b.return_unused(4, 3);
        assert_eq!(a.reserve_packets(6), 1);
        a.reset();
        assert_eq!(b.reserve_packets(64), 10);
        a.reset();
        b.return_unused(64, 0);
        assert!(!a.is_used_up());
    }

    #[test]
    fn the_end_comes_once_and_not_before_all_is_made_that_a_copy_may_give_back() {
        let (a, b) = copies();
        assert_eq!((a.reserve_packets(6), b.reserve_packets(6)), (6, 4));
        a.return_unused(6, 6);
        assert!(a.is_used_up() && !a.claim_end(), "b is at work");
        b.return_unused(4, 1);
        assert!(!a.claim_end() && !b.claim_end());
        assert!(!a.is_used_up() && !a.is_done());
        assert_eq!(a.reserve_packets(6), 3, "any copy can have what another gave back");
        assert!(b.is_used_up() && !b.is_done());
        a.return_unused(3, 3);
        assert_eq!((b.claim_end(), a.claim_end(), b.claim_end()), (true, false, false));
        a.reset();
        a.rearm_end();
        assert_eq!(a.reserve_packets(64), 10);
        a.return_unused(10, 10);
        assert!(b.claim_end());
    }

    #[test]
    fn without_a_limit_everything_is_granted() {
        let quota = Quota { limit: Limit(None), shared: Arc::default() };
        assert_eq!(quota.reserve_packets(64), 64);
        assert_eq!(quota.limit_text().as_str(), "-1");
        assert!(!quota.is_used_up());
    }
}
