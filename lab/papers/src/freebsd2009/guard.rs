//! A sequence counter: it shows whether data changed meanwhile, and its lowest bit is set while its one
//! writer is at work.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering::*, fence};

/// The guard of a table: it has a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct SeqCounter(AtomicU64);

impl SeqCounter {
    /// Copies something that no writer changed meanwhile.
    #[inline]
    pub(super) fn copy<T>(&self, copy: impl Fn() -> T) -> T {
        loop {
            if let Some(before) = self.settled() {
                let copied = copy();
                fence(Acquire);
                if self.0.load(Relaxed) == before {
                    return copied;
                }
            }
            spin_loop();
        }
    }

    /// The number, unless a writer is at work.
    #[inline]
    pub(super) fn settled(&self) -> Option<u64> {
        let now = self.0.load(Acquire);
        (now & 1 == 0).then_some(now)
    }

    /// Changes something. There is one writer at a time.
    pub(super) fn change<T>(&self, change: impl FnOnce() -> T) -> T {
        let before = self.0.load(Relaxed);
        self.0.store(before + 1, Relaxed);
        fence(Release);
        let changed = change();
        self.0.store(before + 2, Release);
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_has_a_number_of_its_own_and_none_while_it_is_made() {
        let guard = SeqCounter::default();
        let before = guard.settled();
        assert_eq!((before, guard.change(|| guard.settled())), (Some(0), None));
        assert!(guard.settled() > before);
    }
}
