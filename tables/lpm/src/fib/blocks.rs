//! Room within one array: blocks of any size, reused after a grace period.
//!
//! Blocks are handed out from the front of the array, so that what was never used stays untouched memory. A
//! freed block is kept for requests of its size; when the array is used up, a larger one is cut. Free
//! neighbours are not joined: a rebuild does that.
use artery_rcu::Domain;
use artery_storage::RetireList;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which units of an array are in use; the array itself is the owner's.
pub(crate) struct Blocks {
    /// Units that have ever been in use.
    touched: u32,
    capacity: u32,
    free: BTreeMap<u32, Vec<u32>>,
    retired: RetireList<Block>,
}

#[derive(Clone, Copy)]
struct Block {
    start: u32,
    size: u32,
}

impl Blocks {
    /// Blocks of the units from `first` to `capacity` of an array that readers of `domain` see.
    pub(crate) fn new(domain: &Arc<Domain>, first: usize, capacity: usize) -> Blocks {
        let capacity = capacity.try_into().unwrap_or(u32::MAX);
        let touched = first.try_into().unwrap_or(capacity);
        Blocks { touched, capacity, free: BTreeMap::new(), retired: RetireList::new(domain) }
    }

    /// The first unit of a block of `size`, which is at least 1; None if the array is full.
    pub(crate) fn alloc_block(&mut self, size: u32) -> Option<u32> {
        if let Some(start) = self.pop(size) {
            return Some(start);
        }
        self.reclaim_blocks();
        self.pop(size).or_else(|| self.extend_end(size)).or_else(|| self.split_block(size))
    }

    /// Takes back a block that new turns can't reach.
    pub(crate) fn free_block(&mut self, start: u32, size: u32) {
        self.retired.retire(Block { start, size });
    }

    /// Takes back a block that no reader has ever seen.
    pub(crate) fn free_unseen(&mut self, start: u32, size: u32) {
        self.free.entry(size).or_default().push(start);
    }

    /// Units that have ever been in use, and those before the first.
    pub(crate) fn touched(&self) -> usize {
        self.touched as usize
    }

    fn pop(&mut self, size: u32) -> Option<u32> {
        self.free.get_mut(&size)?.pop()
    }

    fn reclaim_blocks(&mut self) {
        let free = &mut self.free;
        self.retired.reclaim_ready(|block| free.entry(block.size).or_default().push(block.start));
    }

    fn extend_end(&mut self, size: u32) -> Option<u32> {
        let end = self.touched.checked_add(size).filter(|end| *end <= self.capacity)?;
        Some(std::mem::replace(&mut self.touched, end))
    }

    fn split_block(&mut self, size: u32) -> Option<u32> {
        let (found, starts) = self.free.range_mut(size..).find(|(_, starts)| !starts.is_empty())?;
        let (found, start) = (*found, starts.pop()?);
        if found > size {
            self.free_unseen(start + size, found - size);
        }
        Some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_never_overlap_and_are_reused_when_no_reader_can_see_them() {
        let domain = Domain::new();
        let mut blocks = Blocks::new(&domain, 10, 10_000);
        let mut taken: Vec<(u32, u32)> = Vec::new();
        let mut random = 1u64;
        for step in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let size = (random >> 60) as u32 + 1;
            if taken.len() > 60 || step % 3 == 2 {
                let (start, size) = taken.swap_remove((random >> 33) as usize % taken.len());
                blocks.free_block(start, size);
            } else if let Some(start) = blocks.alloc_block(size) {
                assert!(start >= 10 && start + size <= 10_000);
                assert!(taken.iter().all(|(other, len)| start + size <= *other || other + len <= start));
                taken.push((start, size));
            }
        }
        assert!(taken.len() > 30, "step by step the room was lost: {} blocks", taken.len());
    }

    #[test]
    fn a_reader_in_its_turn_keeps_a_block_from_reuse() {
        let domain = Domain::new();
        let mut blocks = Blocks::new(&domain, 0, 512);
        let mut reader = domain.reader();
        let all: Vec<u32> = (0..512).map(|_| blocks.alloc_block(1).unwrap()).collect();
        reader.turn();
        all.iter().for_each(|start| blocks.free_block(*start, 1));
        assert_eq!(blocks.alloc_block(1), None);
        reader.turn();
        assert!(blocks.alloc_block(1).is_some());
    }

    #[test]
    fn a_larger_block_is_cut_when_nothing_else_is_left() {
        let mut blocks = Blocks::new(&Domain::new(), 0, 8);
        let start = blocks.alloc_block(8).unwrap();
        blocks.free_unseen(start, 8);
        let (a, b) = (blocks.alloc_block(3).unwrap(), blocks.alloc_block(5).unwrap());
        assert_eq!((a.abs_diff(b), blocks.alloc_block(1)), (3, None));
    }
}
