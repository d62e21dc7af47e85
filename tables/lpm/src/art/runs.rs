//! A table as runs of addresses with the same group.
use super::heaps::{DEFAULT, Entry, Heaps, ROOT};
use super::{Art, Strides};
use crate::address::{Address, Prefix};
use crate::runs::{Group, Holes, NO_GROUP, Runs};

impl<A: Address> Runs<A> for Art<A> {
    fn for_each_run(&self, within: Prefix<A>, each: impl FnMut(A, A, Group)) {
        let (first, last) = (within.first(), within.last());
        let mut walk = Walk { heaps: &self.heaps, each, run: None };
        let level = level_within(&self.heaps.strides, within);
        match self.descend_to_level(first, level) {
            Reached::Slot(group) => walk.push_run(first, last, group),
            Reached::Table { heap, group } => {
                let bits = self.heaps.levels()[level];
                let (from, to) = (bits.slot_index(first), bits.slot_index(last));
                walk.walk_slots(heap, level, first.network(bits.offset), from..to + 1, group);
            }
        }
        walk.flush_run();
    }

    fn default_group(&self) -> Group {
        self.heaps.entry_at(ROOT + DEFAULT).group()
    }
}

impl<A: Address> Holes<A> for Art<A> {
    fn for_each_hole(&self, within: Prefix<A>, each: impl FnMut(A, A)) {
        let (first, last) = (within.first(), within.last());
        let mut search = Search { heaps: &self.heaps, each, hole: None };
        let number = level_within(&self.heaps.strides, within);
        match self.descend_to_level(first, number) {
            Reached::Slot(_) => search.push_hole(first, last),
            Reached::Table { heap, .. } => {
                let level = self.heaps.levels()[number];
                let slots = level.slot_index(first)..level.slot_index(last) + 1;
                search.search_slots(
                    heap,
                    number,
                    first.network(level.offset),
                    slots,
                    within.len() - level.offset,
                );
            }
        }
        search.flush_hole();
    }
}

/// The level whose slots a prefix consists of.
fn level_within<A: Address>(strides: &Strides<A>, within: Prefix<A>) -> usize {
    if within.len() == 0 { 0 } else { strides.level_of(within.len()) }
}

/// Where the descent to a prefix ends.
enum Reached {
    /// Above its table, at a slot that shows this group.
    Slot(Group),
    /// At its table, whose empty slots show this group.
    Table { heap: usize, group: Group },
}

impl<A: Address> Art<A> {
    /// Goes down to the table of this level on the way to an address. The default of the root does not count.
    fn descend_to_level(&self, address: A, level: usize) -> Reached {
        let (mut heap, mut group) = (ROOT, NO_GROUP);
        for level in &self.heaps.levels()[..level] {
            let entry = self.heaps.entry_at(heap + level.slot_index(address));
            let Some(child) = entry.child() else {
                return Reached::Slot(group_or(entry, group));
            };
            heap = child;
            group = group_or(self.heaps.entry_at(heap + DEFAULT), group);
        }
        Reached::Table { heap, group }
    }
}

#[inline]
fn group_or(entry: Entry, group: Group) -> Group {
    if entry.is_none() { group } else { entry.group() }
}

/// Puts neighbouring slots of one group together.
struct Walk<'a, A, F> {
    heaps: &'a Heaps<A>,
    each: F,
    /// The last run, which the next slot may prolong.
    run: Option<(A, A, Group)>,
}

impl<A: Address, F: FnMut(A, A, Group)> Walk<'_, A, F> {
    /// The slots of a table whose first address is `base`, and what is below them.
    fn walk_slots(
        &mut self,
        heap: usize,
        number: usize,
        base: A,
        slots: std::ops::Range<usize>,
        group: Group,
    ) {
        let level = self.heaps.levels()[number];
        let words = &self.heaps.words()[heap..heap + level.words()];
        let first_of =
            |slot: usize| base.or(A::from_field(slot - level.fringe(), level.offset, level.stride));
        let mut slot = slots.start;
        while slot < slots.end {
            let entry = Heaps::<A>::load_entry(&words[slot]);
            let start = slot;
            slot += 1;
            if let Some(child) = entry.child() {
                let child_group = group_or(self.heaps.entry_at(child + DEFAULT), group);
                let child_level = self.heaps.levels()[number + 1];
                let below = child_level.fringe()..child_level.words();
                self.walk_slots(child, number + 1, first_of(start), below, child_group);
                continue;
            }
            while slot < slots.end && Heaps::<A>::load_entry(&words[slot]) == entry {
                slot += 1;
            }
            let last = first_of(slot - 1).broadcast(level.offset + level.stride);
            self.push_run(first_of(start), last, group_or(entry, group));
        }
    }

    #[inline]
    fn push_run(&mut self, first: A, last: A, group: Group) {
        match &mut self.run {
            Some(run) if run.2 == group => run.1 = last,
            run => {
                if let Some((first, last, group)) = run.replace((first, last, group)) {
                    (self.each)(first, last, group);
                }
            }
        }
    }

    fn flush_run(mut self) {
        if let Some((first, last, group)) = self.run {
            (self.each)(first, last, group);
        }
    }
}

/// Puts neighbouring slots together that nothing longer covers.
struct Search<'a, A, F> {
    heaps: &'a Heaps<A>,
    each: F,
    /// The last hole, which the next slot may prolong.
    hole: Option<(A, A)>,
}

impl<A: Address, F: FnMut(A, A)> Search<'_, A, F> {
    /// The slots of a table whose first address is `base`, and what is below them. Routes that end within the
    /// first `len` bits of the table leave holes; below it, none does.
    fn search_slots(&mut self, heap: usize, number: usize, base: A, slots: std::ops::Range<usize>, len: u8) {
        let level = self.heaps.levels()[number];
        let words = &self.heaps.words()[heap..heap + level.words()];
        let first_of =
            |slot: usize| base.or(A::from_field(slot - level.fringe(), level.offset, level.stride));
        let is_open = |entry: Entry| entry.is_none() || entry.len() <= len;
        for slot in slots {
            let entry = Heaps::<A>::load_entry(&words[slot]);
            let first = first_of(slot);
            match entry.child() {
                Some(child) if is_open(self.heaps.entry_at(child + DEFAULT)) => {
                    let below = self.heaps.levels()[number + 1];
                    self.search_slots(child, number + 1, first, below.fringe()..below.words(), 0);
                }
                None if is_open(entry) => self.push_hole(first, first.broadcast(level.offset + level.stride)),
                _ => {}
            }
        }
    }

    #[inline]
    fn push_hole(&mut self, first: A, last: A) {
        match &mut self.hole {
            Some(hole) if hole.1.next() == Some(first) => hole.1 = last,
            hole => {
                if let Some((first, last)) = hole.replace((first, last)) {
                    (self.each)(first, last);
                }
            }
        }
    }

    fn flush_hole(mut self) {
        if let Some((first, last)) = self.hole {
            (self.each)(first, last);
        }
    }
}
