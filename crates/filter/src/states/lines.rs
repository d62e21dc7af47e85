//! The first lines of all states, two and two belonging together.
//!
//! A state with an even number and the next one are a pair. Those with even numbers lie side by side, and so do the others: of
//! two states that are [joined](super::joined) only the first one's line is wanted, and one that nobody wants would take as much
//! of a cache where processors fetch lines by twos.
use super::Hot;
use artery_table::prefer_huge_pages;
use std::io;
use std::ops::{Index, IndexMut};

/// Lines by the numbers of their states.
#[derive(Debug, Default)]
pub(crate) struct HotLines {
    even: Vec<Hot>,
    odd: Vec<Hot>,
}

impl HotLines {
    /// None, and room for so many pairs.
    pub(super) fn with_room(pairs: usize) -> io::Result<HotLines> {
        let mut lines = HotLines::default();
        lines.make_room(pairs)?;
        Ok(lines)
    }

    /// How many bytes so many pairs have.
    pub(super) fn bytes(pairs: usize) -> u64 {
        2 * pairs as u64 * size_of::<Hot>() as u64
    }

    /// Has room for so many pairs in all.
    pub(super) fn make_room(&mut self, pairs: usize) -> io::Result<()> {
        for lines in [&mut self.even, &mut self.odd] {
            lines.try_reserve_exact(pairs.saturating_sub(lines.len()))?;
            prefer_huge_pages(lines);
        }
        Ok(())
    }

    /// How many lines there are.
    pub(crate) fn len(&self) -> usize {
        2 * self.even.len()
    }

    /// Adds a pair without states; returns the number of the first.
    pub(super) fn add_pair(&mut self) -> u32 {
        self.even.push(Hot::FREE);
        self.odd.push(Hot::FREE);
        self.len() as u32 - 2
    }

    /// The lines of a pair, by the number of one of them.
    #[inline(always)]
    pub(super) fn pair(&self, number: u32) -> Option<[&Hot; 2]> {
        let place = number as usize / 2;
        Some([self.even.get(place)?, self.odd.get(place)?])
    }

    /// A line, and that of the other state of its pair.
    #[inline(always)]
    pub(crate) fn pair_from(&mut self, number: u32) -> Option<[&mut Hot; 2]> {
        let place = number as usize / 2;
        let (even, odd) = (self.even.get_mut(place)?, self.odd.get_mut(place)?);
        Some(if number.is_multiple_of(2) { [even, odd] } else { [odd, even] })
    }

    /// The line of the first of a pair, by the number of one of them.
    #[inline(always)]
    pub(crate) fn first(&self, number: u32) -> Option<&Hot> {
        self.even.get(number as usize / 2)
    }

    /// The same, to change.
    #[inline(always)]
    pub(crate) fn first_mut(&mut self, number: u32) -> Option<&mut Hot> {
        self.even.get_mut(number as usize / 2)
    }

    #[inline(always)]
    pub(crate) fn get(&self, number: u32) -> Option<&Hot> {
        self.side(number as usize).get(number as usize / 2)
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Hot> {
        self.side_mut(number as usize).get_mut(number as usize / 2)
    }

    #[inline(always)]
    fn side(&self, number: usize) -> &Vec<Hot> {
        if number.is_multiple_of(2) { &self.even } else { &self.odd }
    }

    #[inline(always)]
    fn side_mut(&mut self, number: usize) -> &mut Vec<Hot> {
        if number.is_multiple_of(2) { &mut self.even } else { &mut self.odd }
    }
}

impl Index<usize> for HotLines {
    type Output = Hot;

    #[inline(always)]
    fn index(&self, number: usize) -> &Hot {
        &self.side(number)[number / 2]
    }
}

impl IndexMut<usize> for HotLines {
    #[inline(always)]
    fn index_mut(&mut self, number: usize) -> &mut Hot {
        &mut self.side_mut(number)[number / 2]
    }
}
