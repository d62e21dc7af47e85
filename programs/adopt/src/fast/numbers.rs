//! Places of arrays that come and go while programs read them.

/// Runs of numbers below a bound, of lengths that are powers of two. What is given back is handed out
/// again only after [`reclaim_waiting`](Self::reclaim_waiting): when no run of a program is left that
/// may have seen it.
#[derive(Debug, Default)]
pub(super) struct IndexPool {
    next: u32,
    end: u32,
    /// By the logarithm of the length.
    free: [Vec<u32>; CLASSES],
    waiting: Vec<(u32, usize)>,
}

/// Runs have up to 2^(CLASSES - 1) numbers.
const CLASSES: usize = 10;

impl IndexPool {
    /// The numbers from `first` up to `end`, which is not one of them.
    pub(super) fn new(first: u32, end: u32) -> IndexPool {
        IndexPool { next: first, end, free: Default::default(), waiting: Vec::new() }
    }

    /// The first of `count` numbers, if there are as many.
    pub(super) fn allocate(&mut self, count: u32) -> Option<u32> {
        let class = class(count);
        if let Some(first) = self.free.get_mut(class)?.pop() {
            return Some(first);
        }
        let first = self.next;
        let next = first.checked_add(1 << class).filter(|next| *next <= self.end)?;
        self.next = next;
        Some(first)
    }

    /// Gives back what was taken.
    pub(super) fn free_range(&mut self, first: u32, count: u32) {
        self.waiting.push((first, class(count)));
    }

    /// Whether something waits for runs to end.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// All runs have ended that had begun before the last number was given back.
    pub(super) fn reclaim_waiting(&mut self) {
        self.waiting.drain(..).for_each(|(first, class)| self.free[class].push(first));
    }
}

fn class(count: u32) -> usize {
    count.max(1).next_power_of_two().ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_do_not_overlap_and_come_back_after_a_settlement() {
        let mut numbers = IndexPool::new(1, 40);
        let taken: Vec<u32> = [1, 3, 8, 16].iter().filter_map(|count| numbers.allocate(*count)).collect();
        assert_eq!(taken, [1, 2, 6, 14]);
        assert_eq!((numbers.allocate(16), numbers.allocate(1 << 9)), (None, None));
        numbers.free_range(14, 16);
        assert!(numbers.allocate(16).is_none() && numbers.is_waiting());
        numbers.reclaim_waiting();
        assert_eq!((numbers.allocate(9), numbers.is_waiting()), (Some(14), false));
    }
}
