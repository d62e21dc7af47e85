//! The first lines of all states, two and two side by side.
use super::Hot;
use artery_table::prefer_huge_pages;
use std::io;
use std::ops::{Index, IndexMut};

/// The lines of two states, which processors that fetch lines by twos fetch together.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
struct Pair([Hot; 2]);

/// Lines by the numbers of their states: an even number and the next one are a pair.
#[derive(Debug, Default)]
pub(crate) struct HotLines(Vec<Pair>);

impl HotLines {
    /// None, and room for so many pairs.
    pub(super) fn with_room(pairs: usize) -> io::Result<HotLines> {
        let mut lines = HotLines::default();
        lines.make_room(pairs)?;
        Ok(lines)
    }

    /// How many bytes so many pairs have.
    pub(super) fn bytes(pairs: usize) -> u64 {
        pairs as u64 * size_of::<Pair>() as u64
    }

    /// Has room for so many pairs in all.
    pub(super) fn make_room(&mut self, pairs: usize) -> io::Result<()> {
        self.0.try_reserve_exact(pairs.saturating_sub(self.0.len()))?;
        prefer_huge_pages(&mut self.0);
        Ok(())
    }

    /// How many lines there are.
    pub(crate) fn len(&self) -> usize {
        2 * self.0.len()
    }

    /// Adds a pair without states; returns the number of the first.
    pub(super) fn add_pair(&mut self) -> u32 {
        self.0.push(Pair([Hot::FREE; 2]));
        self.len() as u32 - 2
    }

    #[inline(always)]
    pub(super) fn pair(&self, number: u32) -> Option<&[Hot; 2]> {
        Some(&self.0.get(number as usize / 2)?.0)
    }

    /// A line, and that beside it.
    #[inline(always)]
    pub(crate) fn pair_from(&mut self, number: u32) -> Option<[&mut Hot; 2]> {
        let [even, odd] = &mut self.0.get_mut(number as usize / 2)?.0;
        Some(if number.is_multiple_of(2) { [even, odd] } else { [odd, even] })
    }

    #[inline(always)]
    pub(crate) fn get(&self, number: u32) -> Option<&Hot> {
        Some(&self.pair(number)?[number as usize % 2])
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Hot> {
        Some(&mut self.0.get_mut(number as usize / 2)?.0[number as usize % 2])
    }
}

impl Index<usize> for HotLines {
    type Output = Hot;

    #[inline(always)]
    fn index(&self, number: usize) -> &Hot {
        &self.0[number / 2].0[number % 2]
    }
}

impl IndexMut<usize> for HotLines {
    #[inline(always)]
    fn index_mut(&mut self, number: usize) -> &mut Hot {
        &mut self.0[number / 2].0[number % 2]
    }
}
