//! The order in which Click lists the routes of a table: that of the slots it keeps them in.
use artery_table::{Address, Prefix};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Which slot a route gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The one that became free last; a route that is replaced moves (RadixIPLookup).
    LastFreed,
    /// The first that is free; a route that is replaced leaves its slot before it looks for one (LookupIP6Route).
    FirstFree,
}

/// A slot for each route.
pub(crate) struct Slots<A> {
    order: Order,
    slots: Vec<Option<Prefix<A>>>,
    last_freed: Vec<u32>,
    first_free: BinaryHeap<Reverse<u32>>,
    of: HashMap<Prefix<A>, u32>,
}

impl<A: Address> Slots<A> {
    pub(crate) fn new(order: Order) -> Slots<A> {
        let (last_freed, first_free) = (Vec::new(), BinaryHeap::new());
        Slots { order, slots: Vec::new(), last_freed, first_free, of: HashMap::new() }
    }

    /// No routes, in the same order.
    pub(crate) fn clear(&mut self) {
        *self = Slots::new(self.order);
    }

    /// Gives a prefix a new slot.
    pub(crate) fn add(&mut self, prefix: Prefix<A>) {
        if self.order == Order::FirstFree {
            self.remove(prefix);
        }
        let free = match self.order {
            Order::LastFreed => self.last_freed.pop(),
            Order::FirstFree => self.first_free.pop().map(|Reverse(slot)| slot),
        };
        let slot = free.unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some(prefix);
        if let Some(old) = self.of.insert(prefix, slot) {
            self.vacate(old);
        }
    }

    pub(crate) fn remove(&mut self, prefix: Prefix<A>) {
        if let Some(slot) = self.of.remove(&prefix) {
            self.vacate(slot);
        }
    }

    fn vacate(&mut self, slot: u32) {
        self.slots[slot as usize] = None;
        match self.order {
            Order::LastFreed => self.last_freed.push(slot),
            Order::FirstFree => self.first_free.push(Reverse(slot)),
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
    fn history(order: Order) -> Vec<Prefix<u32>> {
        let mut slots = Slots::new(order);
        (1..=4).for_each(|n| slots.add(prefix(n)));
        slots.remove(prefix(1));
        slots.remove(prefix(3));
        slots.add(prefix(5));
        slots.add(prefix(2));
        slots.add(prefix(6));
        slots.prefixes().collect()
    }

    #[test]
    fn a_route_takes_the_slot_that_became_free_last() {
        assert_eq!(history(Order::LastFreed), [2, 6, 5, 4].map(prefix));
    }

    #[test]
    fn a_route_takes_the_first_free_slot() {
        assert_eq!(history(Order::FirstFree), [5, 2, 6, 4].map(prefix));
    }
}
