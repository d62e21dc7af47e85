//! Replacing one route by another in the words of a table.
use super::heaps::{DEFAULT, Entry, Heaps};
use super::strides::Level;
use crate::address::Address;

/// One change of one table.
pub(super) struct Painting<'a, A> {
    pub(super) heaps: &'a Heaps<A>,
    pub(super) level: Level,
    pub(super) heap: usize,
    /// What is painted over; words that show something else stay.
    pub(super) old: Entry,
    pub(super) new: Entry,
}

impl<A: Address> Painting<'_, A> {
    /// Paints an index and all below it.
    ///
    /// The indices below one are a run in each row of the heap. So this goes through rows from the fringe up:
    /// that has fewer surprises for the processor than the climb that leaves out longer prefixes' parts.
    #[inline]
    pub(super) fn paint_subtree(&self, index: usize) {
        let fringe = self.level.fringe();
        let mut announced = false;
        if index >= fringe {
            self.paint_slot(index, &mut announced);
        } else {
            self.paint_rows(index, fringe, &mut announced);
        }
        self.heaps.conclude_change(announced);
    }

    fn paint_rows(&self, index: usize, fringe: usize, announced: &mut bool) {
        let rows = fringe.ilog2() - index.ilog2();
        for slot in index << rows..(index + 1) << rows {
            self.paint_slot(slot, announced);
        }
        for row in (0..rows).rev() {
            for inner in index << row..(index + 1) << row {
                if self.heaps.entry_at(self.heap + inner) == self.old {
                    self.heaps.store_entry(self.heap + inner, self.new);
                }
            }
        }
    }

    #[inline]
    fn paint_slot(&self, index: usize, announced: &mut bool) {
        let at = self.heap + index;
        let entry = self.heaps.entry_at(at);
        if entry == self.old {
            self.heaps.store_entry(at, self.new);
        } else if let Some(child) = entry.child()
            && self.heaps.entry_at(child + DEFAULT) == self.old
        {
            self.heaps.announce_change(announced);
            self.heaps.store_entry(child + DEFAULT, self.new);
        }
    }
}
