//! How many packets an element may still send: a LIMIT that its copies on all workers share.
use artery_engine::{Args, Limit};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What all copies share, on cache lines of its own: what lies beside it in memory may be another worker's.
#[derive(Default)]
#[repr(align(128))]
struct Taken(AtomicU64);

/// A limit and what is left of it.
pub(crate) struct Quota {
    limit: Limit,
    taken: Arc<Taken>,
}

impl Quota {
    /// The limit of the element that is being made.
    pub(crate) fn new(limit: Limit, args: &mut Args<'_>) -> Quota {
        Quota { limit, taken: args.shared(Taken::default) }
    }
    /// Takes up to `n` packets of what is left; returns how many.
    pub(crate) fn take(&self, n: usize) -> usize {
        let Some(limit) = self.limit.0 else { return n };
        let taken = &self.taken.0;
        let grow = |taken: u64| (taken < limit).then(|| taken.saturating_add(n as u64).min(limit));
        taken.fetch_update(Relaxed, Relaxed, grow).map_or(0, |before| (limit - before).min(n as u64) as usize)
    }
    /// Gives back what was taken and not sent.
    pub(crate) fn give_back(&self, n: usize) {
        if self.limit.0.is_some() && n > 0 {
            // A reset by another copy may have come between: then less was taken than is given back.
            let shrink = |taken: u64| Some(taken.saturating_sub(n as u64));
            let _ = self.taken.0.fetch_update(Relaxed, Relaxed, shrink);
        }
    }
    /// Whether nothing is left.
    pub(crate) fn is_used_up(&self) -> bool {
        self.limit.0.is_some_and(|limit| self.taken.0.load(Relaxed) >= limit)
    }
    /// Starts anew.
    pub(crate) fn reset(&self) {
        self.taken.0.store(0, Relaxed);
    }
    /// Changes the limit. Where there was none, `sent` packets count as taken.
    pub(crate) fn set_limit(&mut self, limit: Limit, sent: u64) {
        if self.limit.0.is_none() {
            self.taken.0.store(sent, Relaxed);
        }
        self.limit = limit;
    }
    /// The limit as Click prints it: -1 when there is none.
    pub(crate) fn limit(&self) -> String {
        self.limit.0.map_or("-1".to_string(), |limit| limit.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_copies_together_take_no_more_than_the_limit() {
        let taken = Arc::new(Taken::default());
        let copy = || Quota { limit: Limit(Some(10)), taken: taken.clone() };
        let (a, b) = (copy(), copy());
        assert_eq!((a.take(6), b.take(6), a.take(6)), (6, 4, 0));
        assert!(a.is_used_up());
        b.give_back(1);
        assert_eq!(a.take(6), 1);
        a.reset();
        assert_eq!(b.take(64), 10);
        a.reset();
        b.give_back(64);
        assert!(!a.is_used_up());
    }

    #[test]
    fn without_a_limit_everything_is_granted() {
        let quota = Quota { limit: Limit(None), taken: Arc::default() };
        assert_eq!((quota.take(64), quota.limit().as_str(), quota.is_used_up()), (64, "-1", false));
    }
}
