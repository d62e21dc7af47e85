//! Which words of the IPv6 FIB are in use: blocks of 2^class words, each at a multiple of its size, so that a
//! list of up to 16 entries never reaches into a second cache line.
use super::word::{MAX_WORDS, UNIT};
use artery_rcu::Domain;
use artery_storage::RetireList;
use std::sync::Arc;

/// Classes of blocks: from one unit to the largest array.
const CLASSES: usize = 16;

/// A block that readers may still see.
struct Block {
    at: u32,
    class: u8,
}

/// Hands out blocks and takes them back; what is given back is reused after a grace period.
pub(super) struct Blocks {
    free: [Vec<u32>; CLASSES],
    /// Words before this one have been handed out at least once.
    end: usize,
    capacity: usize,
    /// Words in use or retired.
    held: usize,
    retired: RetireList<Block>,
}

impl Blocks {
    /// All words from `start` to `capacity` are free.
    pub(super) fn new(domain: &Arc<Domain>, start: usize, capacity: usize) -> Blocks {
        let capacity = capacity.min(MAX_WORDS);
        Blocks { free: Default::default(), end: start, capacity, held: 0, retired: RetireList::new(domain) }
    }

    /// A block of 2^class words, with whatever it held before; None if the array is full.
    pub(super) fn alloc_block(&mut self, class: u8) -> Option<usize> {
        let Blocks { free, retired, .. } = self;
        if free[usize::from(class)].is_empty() {
            retired.reclaim_ready(|block| free[usize::from(block.class)].push(block.at));
        }
        let at = match self.free[usize::from(class)].pop() {
            Some(at) => at as usize,
            None => self.alloc_fresh(class).or_else(|| self.split_larger(class))?,
        };
        self.held += 1 << class;
        Some(at)
    }

    /// Takes back a block that new turns can't reach.
    pub(super) fn free_block(&mut self, at: usize, class: u8) {
        self.held -= 1 << class;
        self.retired.retire(Block { at: at as u32, class });
    }

    pub(super) fn held_words(&self) -> usize {
        self.held
    }

    /// Words that have ever been written, and so have memory.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    fn alloc_fresh(&mut self, class: u8) -> Option<usize> {
        let at = self.end.next_multiple_of(1 << class);
        let next = at + (1 << class);
        if next > self.capacity {
            return None;
        }
        self.free_range(self.end, at);
        self.end = next;
        Some(at)
    }

    /// Adds the words from `start` to `end`, which no reader has seen, to the free blocks.
    fn free_range(&mut self, mut start: usize, end: usize) {
        while end - start >= UNIT {
            let class = start.trailing_zeros().min((end - start).ilog2()).min(CLASSES as u32 - 1);
            self.free[class as usize].push(start as u32);
            start += 1 << class;
        }
    }

    fn split_larger(&mut self, class: u8) -> Option<usize> {
        let larger = (usize::from(class) + 1..CLASSES).find(|&larger| !self.free[larger].is_empty())?;
        let at = self.free[larger].pop()? as usize;
        self.free_range(at + (1 << class), at + (1 << larger));
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_at_multiples_of_their_size_and_never_overlap() {
        let mut blocks = Blocks::new(&Domain::new(), 4, 4096);
        let mut taken = Vec::new();
        for class in [2, 5, 3, 8, 2, 4, 2, 10].into_iter().cycle().take(24) {
            let Some(at) = blocks.alloc_block(class) else { break };
            assert_eq!(at % (1 << class), 0);
            taken.push(at..at + (1 << class));
        }
        taken.sort_by_key(|range| range.start);
        assert!(taken.windows(2).all(|pair| pair[0].end <= pair[1].start));
        assert!(taken.last().unwrap().end <= 4096 && taken[0].start >= 4);
    }

    #[test]
    fn all_words_can_be_used_and_no_more() {
        let mut blocks = Blocks::new(&Domain::new(), 4, 64);
        let mut words = 0;
        for class in [5, 4, 3, 2] {
            while blocks.alloc_block(class).is_some() {
                words += 1 << class;
            }
        }
        assert_eq!((words, blocks.held_words(), blocks.alloc_block(2)), (60, 60, None));
    }

    #[test]
    fn a_block_is_not_reused_while_a_turn_may_see_it() {
        let domain = Domain::new();
        let mut reader = domain.reader();
        let mut blocks = Blocks::new(&domain, 0, 4096);
        let all: Vec<_> = std::iter::from_fn(|| blocks.alloc_block(2)).collect();
        assert_eq!(all.len(), 1024);
        let turn = reader.turn();
        all.iter().for_each(|&at| blocks.free_block(at, 2));
        assert_eq!(blocks.alloc_block(2), None);
        let _ = turn;
        reader.turn();
        assert!(blocks.alloc_block(2).is_some());
        assert_eq!(blocks.held_words(), 4);
    }
}
