//! The first lines of all states, two and two belonging together.
//!
//! A state with an even number and the next one are a pair. Those with even numbers lie side by side, and so
//! do the others: of two [merged](super::joined) states only the first line is needed, and an unneeded line
//! would take as much of a cache where processors fetch lines in twos.
use super::Hot;
use artery_storage::prefer_huge_pages;
use std::io;
use std::ops::{Index, IndexMut};

/// Lines by the numbers of their states.
#[derive(Debug, Default)]
pub(crate) struct HotLines {
    first_lines: Vec<Hot>,
    second_lines: Vec<Hot>,
}

impl HotLines {
    /// None, and room for so many pairs.
    pub(super) fn with_room(pairs: usize) -> io::Result<HotLines> {
        let mut lines = HotLines::default();
        lines.make_room(pairs)?;
        Ok(lines)
    }

    /// How many bytes so many pairs have.
    pub(super) fn memory_size(pairs: usize) -> u64 {
        2 * pairs as u64 * size_of::<Hot>() as u64
    }

    /// Has room for so many pairs in all.
    pub(super) fn make_room(&mut self, pairs: usize) -> io::Result<()> {
        for lines in [&mut self.first_lines, &mut self.second_lines] {
            lines.try_reserve_exact(pairs.saturating_sub(lines.len()))?;
            prefer_huge_pages(lines);
        }
        Ok(())
    }

    /// How many lines there are.
    pub(crate) fn len(&self) -> usize {
        2 * self.first_lines.len()
    }

    /// Adds a pair without states; returns the number of the first.
    pub(super) fn add_pair(&mut self) -> u32 {
        self.first_lines.push(Hot::FREE);
        self.second_lines.push(Hot::FREE);
        self.len() as u32 - 2
    }

    /// The lines of a pair, by the number of one of them.
    #[inline(always)]
    pub(super) fn get_pair(&self, number: u32) -> Option<[&Hot; 2]> {
        let place = number as usize / 2;
        Some([self.first_lines.get(place)?, self.second_lines.get(place)?])
    }

    /// A line, and that of the other state of its pair.
    #[inline(always)]
    pub(crate) fn pair_from(&mut self, number: u32) -> Option<[&mut Hot; 2]> {
        let place = number as usize / 2;
        let (even, odd) = (self.first_lines.get_mut(place)?, self.second_lines.get_mut(place)?);
        Some(if number.is_multiple_of(2) { [even, odd] } else { [odd, even] })
    }

    /// The line of the first of a pair, by the number of one of them.
    #[inline(always)]
    pub(crate) fn first_of_pair(&self, number: u32) -> Option<&Hot> {
        self.first_lines.get(number as usize / 2)
    }

    /// The same, to change.
    #[inline(always)]
    pub(crate) fn first_mut(&mut self, number: u32) -> Option<&mut Hot> {
        self.first_lines.get_mut(number as usize / 2)
    }

    #[inline(always)]
    pub(crate) fn get(&self, number: u32) -> Option<&Hot> {
        self.lines_of_side(number as usize).get(number as usize / 2)
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Hot> {
        self.side_mut(number as usize).get_mut(number as usize / 2)
    }

    #[inline(always)]
    fn lines_of_side(&self, number: usize) -> &Vec<Hot> {
        if number.is_multiple_of(2) { &self.first_lines } else { &self.second_lines }
    }

    #[inline(always)]
    fn side_mut(&mut self, number: usize) -> &mut Vec<Hot> {
        if number.is_multiple_of(2) { &mut self.first_lines } else { &mut self.second_lines }
    }
}

impl Index<usize> for HotLines {
    type Output = Hot;

    #[inline(always)]
    fn index(&self, number: usize) -> &Hot {
        &self.lines_of_side(number)[number / 2]
    }
}

impl IndexMut<usize> for HotLines {
    #[inline(always)]
    fn index_mut(&mut self, number: usize) -> &mut Hot {
        &mut self.side_mut(number)[number / 2]
    }
}
