//! The order in which Click lists the routes of a table: that of its slots.
use artery_lpm::{Address, Prefix};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Which slot a route gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotOrder {
    /// The one that became free last; a route that is replaced moves (RadixIPLookup).
    LastFreed,
    /// The first free slot; a replaced route frees its slot before the search (LookupIP6Route).
    FirstFree,
}

/// A slot for each route.
pub(crate) struct Slots<A> {
    order: SlotOrder,
    slots: Vec<Option<Prefix<A>>>,
    last_freed: Vec<u32>,
    first_free: BinaryHeap<Reverse<u32>>,
    of: HashMap<Prefix<A>, u32>,
}

impl<A: Address> Slots<A> {
    pub(crate) fn new(order: SlotOrder) -> Slots<A> {
        let (last_freed, first_free) = (Vec::new(), BinaryHeap::new());
        Slots { order, slots: Vec::new(), last_freed, first_free, of: HashMap::new() }
    }

    /// No routes, in the same order.
    pub(crate) fn clear(&mut self) {
        *self = Slots::new(self.order);
    }

    /// Assigns a new slot to a prefix.
    pub(crate) fn assign_slot(&mut self, prefix: Prefix<A>) {
        if self.order == SlotOrder::FirstFree {
            self.free_slot(prefix);
        }
        let free = match self.order {
            SlotOrder::LastFreed => self.last_freed.pop(),
            SlotOrder::FirstFree => self.first_free.pop().map(|Reverse(slot)| slot),
        };
        let slot = free.unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some(prefix);
        if let Some(old) = self.of.insert(prefix, slot) {
            self.vacate_slot(old);
        }
    }

    pub(crate) fn free_slot(&mut self, prefix: Prefix<A>) {
        if let Some(slot) = self.of.remove(&prefix) {
            self.vacate_slot(slot);
        }
    }

    fn vacate_slot(&mut self, slot: u32) {
        self.slots[slot as usize] = None;
        match self.order {
            SlotOrder::LastFreed => self.last_freed.push(slot),
            SlotOrder::FirstFree => self.first_free.push(Reverse(slot)),
        }
    }

    /// All prefixes, by slot.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = Prefix<A>> {
        self.slots.iter().copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(n: u32) -> Prefix<u32> {
        Prefix::of(n << 24, 8)
    }

    /// Four routes; the third and then the first removed; two added; the second replaced.
    fn history(order: SlotOrder) -> Vec<Prefix<u32>> {
        let mut slots = Slots::new(order);
        (1..=4).for_each(|n| slots.assign_slot(prefix(n)));
        slots.free_slot(prefix(1));
        slots.free_slot(prefix(3));
        slots.assign_slot(prefix(5));
        slots.assign_slot(prefix(2));
        slots.assign_slot(prefix(6));
        slots.prefixes().collect()
    }

    #[test]
    fn a_route_takes_the_slot_that_became_free_last() {
        assert_eq!(history(SlotOrder::LastFreed), [2, 6, 5, 4].map(prefix));
    }

    #[test]
    fn a_route_takes_the_first_free_slot() {
        assert_eq!(history(SlotOrder::FirstFree), [5, 2, 6, 4].map(prefix));
    }
}
