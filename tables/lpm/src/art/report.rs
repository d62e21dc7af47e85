//! How much memory a table takes.
use super::heaps::Space;
use super::strides::Level;

/// The memory of an [`Art`](super::Art), in bytes where nothing else is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryReport {
    /// The tables of each level, from the root on.
    pub levels: Vec<LevelReport>,
    /// The heaps of all tables. Routes take no memory beside them.
    pub heaps: usize,
    /// The part of the heaps that lookups never read: what lies before the fringe.
    pub interior: usize,
    /// Heaps that belong to no table now: waiting for readers, or ready to be used again.
    pub free: usize,
    /// Words lost between heaps of different sizes.
    pub gaps: usize,
    /// The writer's own lists.
    pub side: usize,
}

/// The tables of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelReport {
    /// Bits of an address that are decided before this level.
    pub offset: u8,
    /// Bits that this level decides.
    pub stride: u8,
    /// How many tables there are.
    pub tables: usize,
    /// What their heaps take, in bytes.
    pub heaps: usize,
}

impl MemoryReport {
    pub(super) fn new(levels: &[Level], tables: &[usize], space: &Space) -> MemoryReport {
        let report = |(level, &tables): (&Level, &usize)| {
            let heaps = tables * level.words() * size_of::<u32>();
            LevelReport { offset: level.offset, stride: level.stride, tables, heaps }
        };
        let levels: Vec<LevelReport> = levels.iter().zip(tables).map(report).collect();
        let heaps = levels.iter().map(|level| level.heaps).sum();
        let gaps = space.gap_bytes();
        let free = space.free_bytes(heaps + gaps);
        MemoryReport { levels, heaps, interior: heaps / 2, free, gaps, side: space.side_bytes() }
    }

    /// Sum over all parts, in bytes.
    pub fn total(&self) -> usize {
        self.heaps + self.free + self.gaps + self.side
    }
}
