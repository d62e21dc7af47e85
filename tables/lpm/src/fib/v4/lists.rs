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
//! A line has 64 bytes and shows ten runs: u16 starts\[12\], the last two unused, then u32 groups\[10\].
//! Starts are offsets in the block and ascend over all lines; the first is 0. Places after the last run
//! repeat its group with the start 0xffff. The run of an address is the last whose start is not above it;
//! since the word alone tells where all lines are, no load of a line waits for that of another. When there
//! are too many runs, a direct array has the u32 group of each address of the block. Group 0 stands for the
//! default route.
//!
//! A list of lines never changes once its word is published; a new one takes its place, if it differs. In a
//! direct array each address has a place of its own: it is changed in place, address by address. So routes
//! that come and go in a dense block need no memory, however long the grace period is.
use crate::fib::NeedsRebuild;
use crate::fib::blocks::Blocks;
use crate::runs::Group;
use artery_rcu::Domain;
use artery_storage::Words;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Neighbouring addresses with the same group, from an offset in their block to the next run's.
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
/// Runs from which a direct array stays one: half of what makes one, so that a route that comes
/// and goes does not.
pub(super) const DENSE: usize = (RUNS_OF_LINE << LARGEST) / 2;
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
    pub(super) fn find_group(&self, word: u64, offset: u32) -> Group {
        let (size, first) = (size_of_list(word), (word >> 32) as usize * LINE);
        let group = if size == DIRECT {
            self.0.get(first + offset as usize / 2).map(|two| half_word(two, offset as usize))
        } else {
            let lines = self.0.get(first..first + (LINE << size)).unwrap_or_default();
            find_in_lines(lines.as_chunks().0, offset)
        };
        group.unwrap_or_default()
    }
}

fn find_in_lines(lines: &[Line], offset: u32) -> Option<Group> {
    let begun = lines.iter().filter(|line| run_start(line, 0) <= offset).count();
    let line = lines.get(begun.checked_sub(1)?)?;
    Some(run_group(line, begun_in(line, offset).checked_sub(1)?))
}

/// How many runs of a line begin at an offset or before it; four starts are compared at a time,
/// two in each half.
#[inline]
fn begun_in(line: &Line, offset: u32) -> usize {
    const EVEN: u64 = 0xffff_0000_ffff;
    const ABOVE: u64 = 0x1_0000_0001_0000;
    let upto = u64::from(offset) << 32 | u64::from(offset) | ABOVE;
    let begun = |word: usize| {
        let starts = line[word].load(Relaxed);
        (upto - (starts & EVEN)) & ABOVE | ((upto - (starts >> 16 & EVEN)) & ABOVE) << 1
    };
    // The last word has two starts, in its lower half.
    (begun(0) | begun(1) << 2 | (begun(2) & u64::from(u32::MAX)) << 4).count_ones() as usize
}

fn run_start(line: &Line, run: usize) -> u32 {
    u32::from((line[run / 4].load(Relaxed) >> (16 * (run % 4))) as u16)
}

fn run_group(line: &Line, run: usize) -> Group {
    half_word(&line[STARTS + run / 2], run)
}

/// The lower half for even numbers, the upper half for others.
fn half_word(word: &AtomicU64, number: usize) -> u32 {
    (word.load(Acquire) >> (32 * (number % 2))) as u32
}

fn size_of_list(word: u64) -> u32 {
    (word >> 1) as u32 & 31
}

/// The runs of a block of which a part, which ends before `end`, consists of other ones now.
pub(super) fn splice(old: &[Run], part: &[Run], end: u32, span: u32) -> Vec<Run> {
    let first = part.first().map_or(end, |run| run.start);
    let behind = old.iter().rev().find(|run| run.start <= end).filter(|_| end < span);
    let behind = behind.map(|run| Run { start: end, group: run.group });
    let before = old.iter().take_while(|run| run.start < first);
    let after = old.iter().filter(|run| run.start > end);
    let mut runs: Vec<Run> = Vec::with_capacity(old.len() + part.len() + 1);
    for run in before.chain(part).chain(&behind).chain(after) {
        if runs.last().is_none_or(|last| last.group != run.group) {
            runs.push(*run);
        }
    }
    runs
}

/// Whether a word leads to a direct array.
pub(super) fn is_direct(word: u64) -> bool {
    word & LISTED != 0 && size_of_list(word) == DIRECT
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

    /// Makes a list of the runs and returns its word: that of the list there is, `old`, where that can say
    /// the same; else one to publish, after which the old one is to be [freed](Self::free_list) back.
    pub(super) fn write_list(&mut self, lists: &Lists, runs: &[Run], old: u64) -> Result<u64, NeedsRebuild> {
        let old_size = (old & LISTED != 0).then(|| size_of_list(old));
        let size = size_for(runs.len(), old_size);
        if old_size == Some(size) && size == DIRECT {
            write_directly(self.list_words(lists, old), runs, self.span);
            return Ok(old);
        }
        if old_size == Some(size) && are_lines(self.list_words(lists, old).as_chunks().0, runs) {
            return Ok(old);
        }
        let first = self.blocks.alloc_block(self.lines_of(size)).ok_or(NeedsRebuild { array: NAME })?;
        let word = u64::from(first) << 32 | u64::from(size) << 1 | LISTED;
        let words = self.list_words(lists, word);
        if size == DIRECT {
            write_directly(words, runs, self.span)
        } else {
            write_lines(words.as_chunks().0, runs)
        }
        Ok(word)
    }

    /// The runs of a list that is not a direct array.
    pub(super) fn runs(&self, lists: &Lists, word: u64) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for line in self.list_words(lists, word).as_chunks().0 {
            for place in 0..RUNS_OF_LINE {
                let group = run_group(line, place);
                // Unused places repeat the last group.
                if runs.last().is_none_or(|run| run.group != group) {
                    runs.push(Run { start: run_start(line, place), group });
                }
            }
        }
        runs
    }

    /// Changes a part of a direct array: from the start of the first run to `end`. Returns how many runs of
    /// its block there were before that begin in the part or just behind it, and how many there are now.
    pub(super) fn write_part(&self, lists: &Lists, runs: &[Run], end: u32, word: u64) -> (usize, usize) {
        let words = self.list_words(lists, word);
        let first = runs.first().map_or(end, |run| run.start);
        let group = |offset: u32| half_word(&words[offset as usize / 2], offset as usize);
        let begun =
            || (first.max(1)..(end + 1).min(self.span)).filter(|at| group(*at) != group(at - 1)).count();
        let before = begun();
        write_directly(words, runs, end);
        (before, begun())
    }

    /// The words of the list that a word leads to.
    fn list_words<'l>(&self, lists: &'l Lists, word: u64) -> &'l [AtomicU64] {
        let lines = self.lines_of(size_of_list(word)) as usize;
        &lists.0[(word >> 32) as usize * LINE..][..lines * LINE]
    }

    /// Takes back the list of a word that was published and no longer is; does nothing for other words.
    pub(super) fn free_list(&mut self, word: u64) {
        if word & LISTED != 0 {
            self.blocks.free_block((word >> 32) as u32, self.lines_of(size_of_list(word)));
        }
    }

    /// Bytes that have ever been in use.
    pub(super) fn touched_bytes(&self) -> usize {
        self.blocks.touched() * LINE * size_of::<u64>()
    }

    fn lines_of(&self, size: u32) -> u32 {
        if size == DIRECT { self.span / GROUPS_OF_LINE } else { 1 << size }
    }
}

/// The size of a list of this many runs, in the place of one of this size.
fn size_for(runs: usize, old: Option<u32>) -> u32 {
    let size = runs.div_ceil(RUNS_OF_LINE).next_power_of_two().trailing_zeros();
    let stays_direct = old == Some(DIRECT) && runs > DENSE;
    if size > LARGEST || stays_direct { DIRECT } else { size }
}

/// The words of each line of a list.
fn words_of_lines(runs: &[Run]) -> impl Fn(usize) -> [u64; LINE] {
    let last = runs.last().map_or(0, |run| run.group);
    move |number| {
        let mut words = [0u64; LINE];
        words[STARTS - 1] = 0xffff_ffff << 32;
        for place in 0..RUNS_OF_LINE {
            let unused = Run { start: 0xffff, group: last };
            let run = runs.get(number * RUNS_OF_LINE + place).unwrap_or(&unused);
            words[place / 4] |= u64::from(run.start) << (16 * (place % 4));
            words[STARTS + place / 2] |= u64::from(run.group) << (32 * (place % 2));
        }
        words
    }
}

fn write_lines(lines: &[Line], runs: &[Run]) {
    let words_of = words_of_lines(runs);
    for (number, line) in lines.iter().enumerate() {
        line.iter().zip(words_of(number)).for_each(|(to, word)| to.store(word, Relaxed));
    }
}

fn are_lines(lines: &[Line], runs: &[Run]) -> bool {
    let words_of = words_of_lines(runs);
    let is_same = |(number, line): (usize, &Line)| {
        line.iter().zip(words_of(number)).all(|(is, word)| is.load(Relaxed) == word)
    };
    lines.iter().enumerate().all(is_same)
}

/// Stores what differs; readers may be at it. The last run goes on to `end`.
fn write_directly(words: &[AtomicU64], runs: &[Run], end: u32) {
    let ends = runs.iter().skip(1).map(|run| run.start).chain([end]);
    for (run, end) in runs.iter().zip(ends) {
        fill_groups(words, run.start as usize..end as usize, run.group);
    }
}

fn fill_groups(words: &[AtomicU64], offsets: std::ops::Range<usize>, group: Group) {
    const LOWER: u64 = 0xffff_ffff;
    let both = u64::from(group) << 32 | u64::from(group);
    let set = |word: &AtomicU64, mask: u64| {
        let old = word.load(Relaxed);
        if (old ^ both) & mask != 0 {
            word.store(old & !mask | both & mask, Release);
        }
    };
    if !offsets.start.is_multiple_of(2) {
        set(&words[offsets.start / 2], !LOWER);
    }
    if let Some(whole) = words.get(offsets.start.div_ceil(2)..offsets.end / 2) {
        whole.iter().for_each(|word| set(word, u64::MAX));
    }
    if !offsets.end.is_multiple_of(2) {
        set(&words[offsets.end / 2], LOWER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_storage::Pages;
    use artery_wire::Random;

    #[test]
    fn lists_of_every_length_say_what_was_written() {
        let lists = Lists::new(Words::new(&Pages, NAME, LINE << 16).unwrap());
        for span in [1 << 13, 1 << 16] {
            let mut writer = ListWriter::new(&Domain::new(), 1 << 16, span);
            for count in [1, 2, 9, 10, 11, 20, 21, 100, 320, 321, 1000] {
                let runs: Vec<Run> =
                    (0..count).map(|n| Run { start: n * span / count, group: n * 7 % 1000 }).collect();
                let word = writer.write_list(&lists, &runs, 0).unwrap();
                for offset in 0..span {
                    let run = runs.partition_point(|run| run.start <= offset) - 1;
                    assert_eq!(lists.find_group(word, offset), runs[run].group, "{offset} of {count} runs");
                }
                writer.free_list(word);
            }
        }
    }

    #[test]
    fn a_word_that_points_out_of_the_array_finds_nothing() {
        let lists = Lists::new(Words::new(&Pages, NAME, LINE).unwrap());
        for size in [0, 5, DIRECT] {
            let word = u64::from(u32::MAX) << 32 | u64::from(size) << 1 | LISTED;
            assert_eq!(lists.find_group(word, 8000), 0);
        }
        assert_eq!(lists.find_group(20 << 1 | LISTED, 0), 0);
    }

    #[test]
    fn a_full_array_is_an_error() {
        let lists = Lists::new(Words::new(&Pages, NAME, LINE).unwrap());
        let mut writer = ListWriter::new(&Domain::new(), 1, 1 << 13);
        let run = [Run { start: 0, group: 1 }];
        assert!(writer.write_list(&lists, &run, 0).is_ok());
        assert_eq!(writer.write_list(&lists, &run, 0), Err(NeedsRebuild { array: NAME }));
    }

    #[test]
    fn a_list_that_changes_many_times_says_what_was_written_last_and_takes_room_only_where_it_differs() {
        let lists = Lists::new(Words::new(&Pages, NAME, LINE << 14).unwrap());
        let span = 1 << 13;
        let mut writer = ListWriter::new(&Domain::new(), 1 << 14, span);
        let mut random = Random::new(0x0dd_5eed);
        let mut word = 0;
        for count in [5, 5, 321, 400, 200, 161, 160, 320, 321, 500, 1] {
            for _ in 0..3 {
                let mut starts: Vec<u32> =
                    (1..count).map(|_| random.below(u64::from(span) - 1) as u32 + 1).collect();
                starts.extend([0]);
                starts.sort_unstable();
                starts.dedup();
                let runs: Vec<Run> =
                    starts.into_iter().map(|start| Run { start, group: random.below(9) as u32 }).collect();
                let new = writer.write_list(&lists, &runs, word).unwrap();
                if new != word {
                    writer.free_list(word);
                }
                word = new;
                for offset in 0..span {
                    let run = runs.partition_point(|run| run.start <= offset) - 1;
                    assert_eq!(lists.find_group(word, offset), runs[run].group, "{offset} of {count} runs");
                }
                assert_eq!(writer.write_list(&lists, &runs, word), Ok(word));
            }
        }
    }

    #[test]
    fn a_dense_block_changes_without_taking_room() {
        let lists = Lists::new(Words::new(&Pages, NAME, LINE << 10).unwrap());
        let span = 1 << 13;
        let mut writer = ListWriter::new(&Domain::new(), 512, span);
        let runs = |group| (0..400).map(|n| Run { start: n * 20, group: n % 7 + group }).collect::<Vec<_>>();
        let word = writer.write_list(&lists, &runs(1), 0).unwrap();
        for group in 2..1000 {
            assert_eq!(writer.write_list(&lists, &runs(group), word), Ok(word));
        }
    }
}
