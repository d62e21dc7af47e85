//! Run lists: where a /16 or a /19 is cut into pieces that a layout's ordinary form can't show.
//!
//! A list covers its whole block. A word of 8 bytes tells where it is:
//!
//! | bits | |
//! |---|---|
//! | 0 | 1: there is a list |
//! | 1 to 5 | its size: lines 2^size, or 31 for a direct array |
//! | 32 to 63 | its first line |
//!
//! A line has 64 bytes and shows ten runs: u16 starts\[12\], of which the last two are unused, then u32 groups\[10\].
//! Starts are offsets in the block and ascend over all lines; the first is 0. Places after the last run repeat its
//! group with the start 0xffff. The run of an address is the last whose start is not above it; since the word alone
//! tells where all lines are, no load of a line waits for that of another. When there are too many runs, a direct
//! array has the u32 group of each address of the block. Group 0 stands for the default route.
//!
//! A list never changes once its word is published; a new one takes its place.
use crate::fib::NeedsRebuild;
use crate::fib::blocks::Blocks;
use crate::{Group, Words};
use artery_rcu::Domain;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Neighbouring addresses that go the same way, from an offset in their block to the next run's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u32,
    pub(super) group: Group,
}

/// The bit of a word that says that there is a list.
pub(super) const LISTED: u64 = 1;
const DIRECT: u32 = 31;
/// Words of a line.
const LINE: usize = 8;
const RUNS_OF_LINE: usize = 10;
/// Words of a line that hold starts.
const STARTS: usize = 3;
/// Groups of a direct array in one line.
const GROUPS_OF_LINE: u32 = 16;
/// Lists of up to 2^this lines: the most whose loads a processor can have under way at once, about.
const LARGEST: u32 = 5;
/// The name of the array.
pub(super) const NAME: &str = "lists";

type Line = [AtomicU64; LINE];

/// The lists, for readers.
pub(super) struct Lists(Words<AtomicU64>);

impl Lists {
    pub(super) fn new(words: Words<AtomicU64>) -> Lists {
        Lists(words)
    }

    /// The group of the address at `offset` in the block that `word` is for; it must say [`LISTED`].
    pub(super) fn find(&self, word: u64, offset: u32) -> Group {
        let (size, first) = (size_of_list(word), (word >> 32) as usize * LINE);
        let group = if size == DIRECT {
            self.0.get(first + offset as usize / 2).map(|two| half(two, offset as usize))
        } else {
            let lines = self.0.get(first..first + (LINE << size)).unwrap_or_default();
            find_in_lines(lines.as_chunks().0, offset)
        };
        group.unwrap_or_default()
    }
}

fn find_in_lines(lines: &[Line], offset: u32) -> Option<Group> {
    let begun = lines.iter().filter(|line| start(line, 0) <= offset).count();
    let line = lines.get(begun.checked_sub(1)?)?;
    let begun: usize = (0..RUNS_OF_LINE).map(|run| usize::from(start(line, run) <= offset)).sum();
    Some(group(line, begun.checked_sub(1)?))
}

fn start(line: &Line, run: usize) -> u32 {
    u32::from((line[run / 4].load(Relaxed) >> (16 * (run % 4))) as u16)
}

fn group(line: &Line, run: usize) -> Group {
    half(&line[STARTS + run / 2], run)
}

/// The lower half for even numbers, the upper for odd ones.
fn half(word: &AtomicU64, number: usize) -> u32 {
    (word.load(Relaxed) >> (32 * (number % 2))) as u32
}

fn size_of_list(word: u64) -> u32 {
    (word >> 1) as u32 & 31
}

/// The lists, for the writer.
pub(super) struct ListWriter {
    blocks: Blocks,
    /// Addresses of a block.
    span: u32,
}

impl ListWriter {
    /// Room for lists in `lines` lines, each list for `span` addresses.
    pub(super) fn new(domain: &Arc<Domain>, lines: usize, span: u32) -> ListWriter {
        ListWriter { blocks: Blocks::new(domain, 0, lines), span }
    }

    /// Writes a list and returns the word to publish.
    pub(super) fn write(&mut self, lists: &Lists, runs: &[Run]) -> Result<u64, NeedsRebuild> {
        let lines = runs.len().div_ceil(RUNS_OF_LINE).next_power_of_two();
        let size = if lines.trailing_zeros() <= LARGEST { lines.trailing_zeros() } else { DIRECT };
        let first = self.blocks.take(self.lines_of(size)).ok_or(NeedsRebuild { array: NAME })?;
        let words = &lists.0[first as usize * LINE..][..self.lines_of(size) as usize * LINE];
        if size == DIRECT {
            write_directly(words, runs, self.span)
        } else {
            write_lines(words.as_chunks().0, runs)
        }
        Ok(u64::from(first) << 32 | u64::from(size) << 1 | LISTED)
    }

    /// Takes back the list of a word that was published and no longer is; does nothing for other words.
    pub(super) fn put(&mut self, word: u64) {
        if word & LISTED != 0 {
            self.blocks.put((word >> 32) as u32, self.lines_of(size_of_list(word)));
        }
    }

    /// Bytes that have ever been in use.
    pub(super) fn touched(&self) -> usize {
        self.blocks.touched() * LINE * size_of::<u64>()
    }

    fn lines_of(&self, size: u32) -> u32 {
        if size == DIRECT { self.span / GROUPS_OF_LINE } else { 1 << size }
    }
}

fn write_lines(lines: &[Line], runs: &[Run]) {
    let last = runs.last().map_or(0, |run| run.group);
    for (number, line) in lines.iter().enumerate() {
        let mut words = [0u64; LINE];
        words[STARTS - 1] = 0xffff_ffff << 32;
        for place in 0..RUNS_OF_LINE {
            let unused = Run { start: 0xffff, group: last };
            let run = runs.get(number * RUNS_OF_LINE + place).unwrap_or(&unused);
            words[place / 4] |= u64::from(run.start) << (16 * (place % 4));
            words[STARTS + place / 2] |= u64::from(run.group) << (32 * (place % 2));
        }
        line.iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
    }
}

fn write_directly(words: &[AtomicU64], runs: &[Run], span: u32) {
    let mut runs = runs.iter().peekable();
    let mut group = 0;
    let mut group_at = |offset: u32| {
        while let Some(run) = runs.next_if(|run| run.start <= offset) {
            group = run.group;
        }
        u64::from(group)
    };
    for (word, offset) in words.iter().zip((0..span).step_by(2)) {
        let low = group_at(offset);
        word.store(low | group_at(offset + 1) << 32, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pages;

    #[test]
    fn lists_of_every_length_say_what_was_written() {
        let lists = Lists::new(Words::new(&Pages, NAME, LINE << 16).unwrap());
        for span in [1 << 13, 1 << 16] {
            let mut writer = ListWriter::new(&Domain::new(), 1 << 16, span);
            for count in [1, 2, 9, 10, 11, 20, 21, 100, 320, 321, 1000] {
                let runs: Vec<Run> =
                    (0..count).map(|n| Run { start: n * span / count, group: n * 7 % 1000 }).collect();
                let word = writer.write(&lists, &runs).unwrap();
                for offset in 0..span {
                    let run = runs.partition_point(|run| run.start <= offset) - 1;
                    assert_eq!(lists.find(word, offset), runs[run].group, "{offset} of {count} runs");
                }
                writer.put(word);
            }
        }
    }

    #[test]
    fn a_word_that_points_out_of_the_array_finds_nothing() {
        let lists = Lists::new(Words::new(&Pages, NAME, LINE).unwrap());
        for size in [0, 5, DIRECT] {
            let word = u64::from(u32::MAX) << 32 | u64::from(size) << 1 | LISTED;
            assert_eq!(lists.find(word, 8000), 0);
        }
        assert_eq!(lists.find(20 << 1 | LISTED, 0), 0);
    }

    #[test]
    fn a_full_array_is_an_error() {
        let lists = Lists::new(Words::new(&Pages, NAME, LINE).unwrap());
        let mut writer = ListWriter::new(&Domain::new(), 1, 1 << 13);
        let run = [Run { start: 0, group: 1 }];
        assert!(writer.write(&lists, &run).is_ok());
        assert_eq!(writer.write(&lists, &run), Err(NeedsRebuild { array: NAME }));
    }
}
