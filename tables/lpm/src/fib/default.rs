//! The group of addresses that nothing but the route of all addresses covers.
//!
//! FIBs show such addresses as group 0, so that a change of that route is one store. The group must be that
//! of the moment when the 0 was read: if the default route changes and then a route goes, a reader with the
//! old default and the new 0 in its hand would answer what was never right. So the word counts its changes,
//! and a reader loads it before and after the rest: if it is the same, it was so in between.
//! [`crate::layout`] describes it for readers outside.
use crate::runs::Group;
use artery_storage::{Storage, Words};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Words of the array; only the first is used, the others keep it off the cache lines of other arrays.
const WORDS: usize = 8;
/// The name of the array.
pub(crate) const NAME: &str = "default";

/// Where the mark stands in the word.
const MARK: u64 = 1 << 63;

/// The default route of a FIB: `default[0]` has its group in the lower half and the number of its changes
/// above, except the highest bit, which is a mark that changes under the same protocol.
pub(crate) struct DefaultRoute(Words<AtomicU64>);

/// The default route at a moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct DefaultWord(u64);

impl DefaultWord {
    #[inline]
    pub(crate) fn group(self) -> Group {
        self.0 as u32
    }
    #[inline]
    pub(crate) fn is_marked(self) -> bool {
        self.0 & MARK != 0
    }
}

impl DefaultRoute {
    pub(crate) fn new(storage: &dyn Storage) -> io::Result<DefaultRoute> {
        Words::new(storage, NAME, WORDS).map(DefaultRoute)
    }

    /// Bytes of the array.
    pub(crate) const BYTES: usize = WORDS * size_of::<u64>();

    /// Replaces the group; for the one writer.
    pub(crate) fn set(&self, group: Group) {
        self.change(group, self.0[0].load(Relaxed) & MARK);
    }

    /// Sets or clears the mark; for the one writer.
    pub(crate) fn mark(&self, is_marked: bool) {
        self.change(self.0[0].load(Relaxed) as u32, if is_marked { MARK } else { 0 });
    }

    fn change(&self, group: Group, mark: u64) {
        let changes = ((self.0[0].load(Relaxed) & !MARK) >> 32) + 1;
        self.0[0].store(mark | changes << 32 & !MARK | u64::from(group), Release);
    }

    /// The word as it is now; loads before it stay before it, and those after it after it, if they acquire.
    #[inline]
    pub(crate) fn load(&self) -> DefaultWord {
        self.at_hand().load()
    }

    /// The word's place, for callers that load it often.
    #[inline]
    pub(crate) fn at_hand(&self) -> DefaultAtHand<'_> {
        DefaultAtHand(&self.0[0])
    }

    /// What `lookup` finds, with the default route's group in the place of 0: right as of one moment of the
    /// call. It repeats only when the default route changes meanwhile. The loads of `lookup` must acquire.
    #[inline]
    pub(crate) fn complete(&self, lookup: impl Fn() -> Group) -> Group {
        let before = self.load();
        let group = lookup();
        if self.load() != before {
            return self.complete_again(lookup);
        }
        if group == 0 { before.group() } else { group }
    }

    #[cold]
    #[inline(never)]
    fn complete_again(&self, lookup: impl Fn() -> Group) -> Group {
        loop {
            let before = self.load();
            let group = lookup();
            if group != 0 || self.load() == before {
                return if group == 0 { before.group() } else { group };
            }
        }
    }
}

/// The place of a default route's word.
#[derive(Clone, Copy)]
pub(crate) struct DefaultAtHand<'a>(&'a AtomicU64);

impl DefaultAtHand<'_> {
    /// The word as it is now; loads before it stay before it, and those after it after it, if they acquire.
    #[inline]
    pub(crate) fn load(self) -> DefaultWord {
        DefaultWord(self.0.load(Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::NO_GROUP;
    use artery_storage::Pages;
    use std::cell::Cell;

    #[test]
    fn a_default_that_changes_during_a_lookup_is_looked_at_again() {
        let default = DefaultRoute::new(&Pages).unwrap();
        default.set(7);
        let calls = Cell::new(0);
        let group = default.complete(|| {
            calls.set(calls.get() + 1);
            if calls.get() < 3 {
                default.set(7 + calls.get());
            }
            0
        });
        assert_eq!((group, calls.get()), (9, 3));
        assert_eq!(default.complete(|| 5), 5);
    }

    #[test]
    fn the_mark_and_the_group_change_the_word_and_not_each_other() {
        let default = DefaultRoute::new(&Pages).unwrap();
        default.0[0].store(!MARK & !0xffff_ffff | 3, Relaxed);
        let mut seen = vec![default.load()];
        for (group, is_marked) in [(3, true), (4, true), (4, false), (NO_GROUP, false)] {
            default.mark(is_marked);
            default.set(group);
            let word = default.load();
            assert_eq!((word.group(), word.is_marked()), (group, is_marked));
            assert!(!seen.contains(&word));
            seen.push(word);
        }
    }
}
