//! The fast layout: a cell for each /24.
//!
//! `cells` has 2^24 cells of one byte, numbered by the first 24 bits of an address. A cell has a code: 0
//! stands for the default route's group (see `fib/default.rs`); 1 to 254 for `palette[code]`; 255 says that
//! the /24 has something longer, or a group without a code. Then `blocks`, 2^16 words of 8 bytes, has for the
//! address's /16 the word of a run list of the whole /16 (see `lists.rs`). Two dependent loads: the cell and
//! the palette, or, since the place of the word does not depend on the cell, the word and the run list.
//!
//! Where every code in use is its group's number, the mark of the default route's word says so, and vector
//! code takes the cells for the answers.
//!
//! In the wide form a cell has two bytes and is the group itself; 0 is the default's, and 65,535 says "look
//! further".
//!
//! The list of a /16 is published before a cell says 255, and cells say something else before a list is
//! withdrawn: a reader that finds 255 and no list looks at the cell again. As a list is right for every
//! address of its /16, it does not matter whether it is older or newer than the cell. Each address's answer
//! changes by one store; of two neighbours one may change before the other.
use super::lists::{self, LISTED, ListWriter, Lists, Run};
use super::palette::{ESCAPE, Palette, PaletteWriter};
use super::{Fib4Options, by_block, cut_short, in_batches, turn_of_another_domain};
use crate::address::Prefix;
use crate::fib::default::{self, DefaultAtHand, DefaultRoute, DefaultWord};
use crate::fib::{ArrayBytes, BuildError, FibMemory, NeedsRebuild};
use crate::runs::{Group, Holes, NO_GROUP, Runs};
use crate::simd::v4::{Addresses, CELLS, CODES, Narrow, Wide};
use artery_rcu::{Domain, Turn};
use artery_storage::{Simd, Storage, Words};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::*, fence};

/// Bits of an address within a block with one list.
const BLOCK_BITS: u32 = 16;
const BLOCKS: usize = 1 << 16;
/// /24s of a block.
const CELLS_OF_BLOCK: usize = 256;
/// What says "look further" in a wide cell.
const WIDE_ESCAPE: u16 = u16::MAX;

/// A compiled IPv4 FIB of one byte (or two) for each /24, for its writer.
pub struct Fib4Fast {
    shared: Arc<Shared>,
    palette: PaletteWriter,
    lists: ListWriter,
    /// How many runs there are in each block with a direct array.
    dense: HashMap<usize, usize>,
    /// Whether a group went without a code since the FIB was built.
    lacks_codes: bool,
    /// Room for the runs of one block.
    scratch: Vec<Run>,
    /// Room for what cells show for each of them.
    codes: Vec<u16>,
    /// Codes that no cell shows yet and that the block under work will.
    pinned: Vec<u8>,
}

struct Shared {
    domain: Arc<Domain>,
    cells: Cells,
    blocks: Words<AtomicU64>,
    lists: Lists,
    list_bytes: usize,
    palette: Palette,
    default: DefaultRoute,
}

enum Cells {
    Narrow(Words<AtomicU8>),
    Wide(Words<AtomicU16>),
}

impl Fib4Fast {
    /// Compiles all routes of a table. Where groups are more than codes, those of most addresses get one.
    pub fn build(
        domain: &Arc<Domain>,
        source: &impl Runs<u32>,
        storage: &dyn Storage,
        options: Fib4Options,
    ) -> Result<Fib4Fast, BuildError> {
        let list_bytes = options.list_lines.max(1) * 64;
        let cells = match options.wide {
            false => Cells::Narrow(Words::new(storage, "cells", CELLS)?),
            true => Cells::Wide(Words::new(storage, "cells", CELLS)?),
        };
        let shared = Shared {
            domain: domain.clone(),
            cells,
            blocks: Words::new(storage, "blocks", BLOCKS)?,
            lists: Lists::new(Words::new(storage, lists::NAME, list_bytes / 8)?),
            list_bytes,
            palette: Palette { groups: Words::new(storage, "palette", CODES)? },
            default: DefaultRoute::new(storage)?,
        };
        let mut fib = Fib4Fast {
            shared: Arc::new(shared),
            palette: PaletteWriter::new(domain),
            lists: ListWriter::new(domain, options.list_lines, 1 << BLOCK_BITS),
            dense: HashMap::new(),
            lacks_codes: false,
            scratch: Vec::new(),
            codes: Vec::new(),
            pinned: Vec::new(),
        };
        fib.shared.default.set(source.default_group());
        fib.shared.default.mark(true);
        fib.assign_codes(source);
        let mut pinned = std::mem::take(&mut fib.pinned);
        fib.change_blocks(source, Prefix::ALL)?;
        pinned.drain(..).for_each(|code| fib.palette.remove(code, 1));
        Ok(fib)
    }

    /// Takes over what has changed in `changed`, a prefix whose route came, went or got another group. The
    /// route of all addresses is one word.
    pub fn update_prefix(
        &mut self,
        source: &impl Runs<u32>,
        changed: Prefix<u32>,
    ) -> Result<(), NeedsRebuild> {
        match changed.len() {
            0 => {
                self.shared.default.set(source.default_group());
                Ok(())
            }
            // A list is for a whole /16.
            17.. if self.shared.block_word(changed.first()).load(Relaxed) != 0 => {
                match self.change_in_place(source, changed)? {
                    true => Ok(()),
                    false => self.change_blocks(source, Prefix::of(changed.first(), 16)),
                }
            }
            len => self.change_blocks(source, Prefix::of(changed.first(), len.min(24))),
        }
    }

    /// The same for a prefix that covers many blocks, whose addresses now go to `group` where nothing longer
    /// covers them: looks at those only.
    pub fn replace_prefix(
        &mut self,
        source: &impl Holes<u32>,
        changed: Prefix<u32>,
        group: impl FnOnce() -> Group,
    ) -> Result<(), NeedsRebuild> {
        if !(1..=BLOCK_BITS as u8).contains(&changed.len()) {
            return self.update_prefix(source, changed);
        }
        let Some(code) = self.cell_of(group()) else { return self.update_prefix(source, changed) };
        let mut by_list = Vec::new();
        source.for_each_hole(changed, |first, last| {
            for block in first >> BLOCK_BITS..=last >> BLOCK_BITS {
                let first = first.max(block << BLOCK_BITS);
                let last = last.min(Prefix::of(block << BLOCK_BITS, 16).last());
                let is_whole = first.is_multiple_of(256) && last & 255 == 255;
                if is_whole && self.shared.blocks[block as usize].load(Relaxed) == 0 {
                    let cells = first as usize >> 8..(last as usize >> 8) + 1;
                    show_in(&self.shared.cells, cells, code, &mut self.palette);
                } else if by_list.last() != Some(&block) {
                    by_list.push(block);
                }
            }
        });
        self.pinned.drain(..).for_each(|code| self.palette.remove(code, 1));
        by_list
            .into_iter()
            .try_for_each(|block| self.change_blocks(source, Prefix::of(block << BLOCK_BITS, 16)))
    }

    /// What cells show for a group, if any can.
    fn cell_of(&mut self, group: Group) -> Option<u16> {
        match self.shared.cells {
            Cells::Narrow(_) => self.code_of(group).map(u16::from),
            Cells::Wide(_) => u16::try_from(group).ok().filter(|code| *code != WIDE_ESCAPE),
        }
    }

    /// The code of a group, pinned until cells show it.
    #[inline]
    fn code_of(&mut self, group: Group) -> Option<u8> {
        let code = self.palette.code_for(&self.shared.palette, group, &mut self.pinned)?;
        if group != code.into() && self.shared.default.load().is_marked() {
            self.shared.default.mark(false);
        }
        Some(code)
    }

    /// Whether some group had no code, so that its addresses took the slow path: time to build the wide form.
    pub fn wants_wide(&self) -> bool {
        self.lacks_codes && matches!(self.shared.cells, Cells::Narrow(_))
    }

    /// A reader; it may be cloned and sent to other threads.
    pub fn reader(&self) -> Fib4FastReader {
        Fib4FastReader { shared: self.shared.clone(), simd: Simd::detect_best() }
    }

    /// Memory of each array, in bytes.
    pub fn memory(&self) -> FibMemory {
        let array = |name, used, reserved| ArrayBytes { name, used, reserved };
        let all = |name, bytes| array(name, bytes, bytes);
        let cells = match self.shared.cells {
            Cells::Narrow(_) => CELLS,
            Cells::Wide(_) => 2 * CELLS,
        };
        FibMemory {
            arrays: vec![
                all("cells", cells),
                all("blocks", 8 * BLOCKS),
                array(lists::NAME, self.lists.touched_bytes(), self.shared.list_bytes),
                all("palette", 4 * CODES),
                all(default::NAME, DefaultRoute::BYTES),
            ],
        }
    }

    /// Gives codes, which stay pinned, to the groups of most addresses.
    fn assign_codes(&mut self, source: &impl Runs<u32>) {
        if matches!(self.shared.cells, Cells::Wide(_)) {
            return;
        }
        let mut sizes: HashMap<Group, u64> = HashMap::new();
        let mut last_group = (NO_GROUP, 0u64);
        source.for_each_run(Prefix::ALL, |first, last, group| {
            if group != last_group.0 {
                *sizes.entry(last_group.0).or_default() += last_group.1;
                last_group = (group, 0);
            }
            last_group.1 += u64::from(last - first) + 1;
        });
        *sizes.entry(last_group.0).or_default() += last_group.1;
        sizes.remove(&NO_GROUP);
        let mut groups: Vec<(Group, u64)> = sizes.into_iter().collect();
        groups.sort_unstable_by_key(|(group, size)| (std::cmp::Reverse(*size), *group));
        for (group, _) in groups {
            if self.code_of(group).is_none() {
                break;
            }
        }
    }

    /// Compiles the /24s that a prefix within one /16 touches, where that has a list, and leaves the rest as
    /// it is: a table with many hosts of a /16 is gone through for long. Says whether it could.
    fn change_in_place(
        &mut self,
        source: &impl Runs<u32>,
        changed: Prefix<u32>,
    ) -> Result<bool, NeedsRebuild> {
        let block = (changed.first() >> BLOCK_BITS) as usize;
        let word = self.shared.blocks[block].load(Relaxed);
        let within = Prefix::of(changed.first(), changed.len().min(24));
        let end = (within.last() & ((1 << BLOCK_BITS) - 1)) + 1;
        let mut part = std::mem::take(&mut self.scratch);
        let mut result = Ok(false);
        by_block(source, within, BLOCK_BITS, &mut part, |_, runs| {
            result = match lists::is_direct(word) {
                true => Ok(self.change_directly(block, runs, end)),
                false => {
                    let old = self.lists.runs(&self.shared.lists, word);
                    self.change_block(block, &lists::splice(&old, runs, end, 1 << BLOCK_BITS), None)
                }
            };
        });
        self.scratch = part;
        result
    }

    /// Changes a part of a direct array; says whether the array is to stay one.
    fn change_directly(&mut self, block: usize, runs: &[Run], end: u32) -> bool {
        let word = self.shared.blocks[block].load(Relaxed);
        let Some(count) = self.dense.get_mut(&block) else { return false };
        let (before, after) = self.lists.write_part(&self.shared.lists, runs, end, word);
        *count = (*count + after).saturating_sub(before);
        let is_dense = *count > lists::DENSE;
        self.find_codes(runs);
        self.write_cells(block, runs, end as usize / 256);
        self.pinned.drain(..).for_each(|code| self.palette.remove(code, 1));
        is_dense
    }

    /// Compiles the /16s that a prefix touches, or of one /16 the part that it covers.
    fn change_blocks(&mut self, source: &impl Runs<u32>, within: Prefix<u32>) -> Result<(), NeedsRebuild> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut result = Ok(());
        let mut becomes_listed = false;
        by_block(source, within, BLOCK_BITS, &mut scratch, |block, runs| {
            if result.is_ok() {
                let part = if within.len() > 16 { Some(within) } else { None };
                match self.change_block(block as usize, runs, part) {
                    Ok(changed) => becomes_listed |= !changed,
                    Err(full) => result = Err(full),
                }
            }
        });
        self.scratch = scratch;
        result?;
        // A list is for a whole /16.
        if becomes_listed { self.change_blocks(source, Prefix::of(within.first(), 16)) } else { Ok(()) }
    }

    /// Compiles a /16, or `part` of it that is shorter than the whole; returns whether it could: a part with
    /// a list can't go alone.
    fn change_block(
        &mut self,
        block: usize,
        runs: &[Run],
        part: Option<Prefix<u32>>,
    ) -> Result<bool, NeedsRebuild> {
        let is_listed = self.find_codes(runs);
        let could = if part.is_some() && is_listed {
            Ok(false)
        } else {
            let end = part.map_or(CELLS_OF_BLOCK, |part| (part.last() as usize >> 8) % CELLS_OF_BLOCK + 1);
            self.publish_block(block, runs, end, is_listed).map(|()| true)
        };
        self.pinned.drain(..).for_each(|code| self.palette.remove(code, 1));
        could
    }

    fn publish_block(
        &mut self,
        block: usize,
        runs: &[Run],
        end: usize,
        is_listed: bool,
    ) -> Result<(), NeedsRebuild> {
        let word = &self.shared.blocks[block];
        let old = word.load(Relaxed);
        let new = if is_listed { self.lists.write_list(&self.shared.lists, runs, old)? } else { 0 };
        match lists::is_direct(new) {
            true => drop(self.dense.insert(block, runs.len())),
            false => drop(self.dense.remove(&block)),
        }
        if is_listed && new != old {
            word.store(new, Release);
        }
        self.write_cells(block, runs, end);
        if old != 0 && !is_listed {
            self.shared.blocks[block].store(0, Release);
        }
        if new != old {
            self.lists.free_list(old);
        }
        Ok(())
    }

    /// Finds what cells show for each run, and whether anything needs a list.
    fn find_codes(&mut self, runs: &[Run]) -> bool {
        self.codes.clear();
        let Cells::Narrow(_) = self.shared.cells else {
            self.codes.extend(runs.iter().map(|run| u16::try_from(run.group).unwrap_or(WIDE_ESCAPE)));
            return cut_short(runs) || self.codes.contains(&WIDE_ESCAPE);
        };
        let mut is_lacking = false;
        for run in runs {
            let code = self.code_of(run.group);
            is_lacking |= code.is_none();
            self.codes.push(code.unwrap_or(ESCAPE).into());
        }
        self.lacks_codes |= is_lacking;
        is_lacking || cut_short(runs)
    }

    /// Makes the cells of a block, from that of the first run up to `end`, show what was found.
    fn write_cells(&mut self, block: usize, runs: &[Run], end: usize) {
        let escape = self.shared.cells.escape_code();
        for (number, (run, code)) in runs.iter().zip(&self.codes).enumerate() {
            let next = runs.get(number + 1).map_or(end, |next| next.start as usize / 256);
            let start = run.start as usize;
            let place = block * CELLS_OF_BLOCK;
            if !start.is_multiple_of(256) {
                show_in(
                    &self.shared.cells,
                    place + start / 256..place + start / 256 + 1,
                    escape,
                    &mut self.palette,
                );
            }
            let whole = place + start.div_ceil(256)..place + next;
            if !whole.is_empty() {
                show_in(&self.shared.cells, whole, *code, &mut self.palette);
            }
        }
    }
}

/// Makes cells show a code, and counts its uses.
#[inline]
fn show_in(cells: &Cells, range: std::ops::Range<usize>, code: u16, palette: &mut PaletteWriter) {
    match cells {
        Cells::Wide(cells) => cells[range].iter().for_each(|cell| {
            if cell.load(Relaxed) != code {
                cell.store(code, Release);
            }
        }),
        Cells::Narrow(cells) => {
            let (code, mut changed) = (code as u8, 0);
            for cell in &cells[range] {
                let old = cell.load(Relaxed);
                if old != code {
                    cell.store(code, Release);
                    palette.remove(old, 1);
                    changed += 1;
                }
            }
            palette.add_uses(code, changed);
        }
    }
}

impl Cells {
    #[inline]
    fn escape_code(&self) -> u16 {
        match self {
            Cells::Narrow(_) => ESCAPE.into(),
            Cells::Wide(_) => WIDE_ESCAPE,
        }
    }
}

/// Looks up addresses in a [`Fib4Fast`].
#[derive(Clone)]
pub struct Fib4FastReader {
    shared: Arc<Shared>,
    simd: Simd,
}

impl Fib4FastReader {
    /// The same reader with other instructions for batches than the widest.
    pub fn with_simd(self, simd: Simd) -> Fib4FastReader {
        Fib4FastReader { simd, ..self }
    }

    /// The group of the longest prefix that covers `address`; [`NO_GROUP`] if there is none.
    ///
    /// # Panics
    /// When `turn` is of another domain than the FIB.
    #[inline]
    pub fn lookup(&self, turn: &Turn<'_>, address: u32) -> Group {
        self.view_at(turn).lookup(address)
    }

    /// The FIB for the rest of a turn, for callers that look many addresses up one by one: it costs half as
    /// much as [`lookup`](Self::lookup) with the turn for each.
    ///
    /// # Panics
    /// When `turn` is of another domain than the FIB.
    #[inline]
    pub fn view_at<'a>(&'a self, turn: &'a Turn<'_>) -> Fib4FastView<'a> {
        if !turn.is_of(&self.shared.domain) {
            turn_of_another_domain();
        }
        self.shared.view()
    }

    /// Looks up all `addresses`; `out` is as long.
    ///
    /// # Panics
    /// When `turn` is of another domain than the FIB, or the lengths differ.
    pub fn lookup_batch(&self, turn: &Turn<'_>, addresses: &[u32], out: &mut [Group]) {
        let (view, simd) = (self.view_at(turn), self.simd);
        match view.cells {
            CellArray::Narrow(cells, palette) => {
                view.lookup_batch(addresses, out, |default, addresses, out| {
                    let palette = (!default.is_marked()).then_some(palette);
                    Narrow { cells, palette, default: default.group() }.lookup_batch(simd, addresses, out)
                });
            }
            CellArray::Wide(cells) => view.lookup_batch(addresses, out, |default, addresses, out| {
                Wide { cells, default: default.group() }.lookup_batch(simd, addresses, out)
            }),
        }
    }
}

/// A [`Fib4Fast`] during a turn: where its arrays are, so that no lookup needs to find them.
#[derive(Clone, Copy)]
pub struct Fib4FastView<'a> {
    shared: &'a Shared,
    cells: CellArray<'a>,
    default: DefaultAtHand<'a>,
}

/// The cells, and what is needed to read them.
#[derive(Clone, Copy)]
enum CellArray<'a> {
    Narrow(&'a [AtomicU8; CELLS], &'a [AtomicU32; CODES]),
    Wide(&'a [AtomicU16; CELLS]),
}

impl Fib4FastView<'_> {
    /// The group of the longest prefix that covers `address`; [`NO_GROUP`] if there is none.
    ///
    /// The straight path is short, so that many lookups are under way at once; all else is a
    /// call in its place.
    #[inline]
    pub fn lookup(&self, address: u32) -> Group {
        let default = self.default.load();
        match self.find_in_cells(address) {
            Some(group) if self.default.load() == default => {
                if group == NO_GROUP {
                    default.group()
                } else {
                    group
                }
            }
            _ => self.shared.lookup_slowly(address),
        }
    }

    /// The group, if the address's cell tells it; 0 where only the default route covers it.
    #[inline]
    fn find_in_cells(&self, address: u32) -> Option<Group> {
        let cell = (address >> 8) as usize;
        match self.cells {
            CellArray::Narrow(cells, palette) => {
                let code = cells[cell].load(Acquire);
                let group = palette[usize::from(code)].load(Acquire);
                (code != ESCAPE).then_some(group)
            }
            CellArray::Wide(cells) => {
                let code = cells[cell].load(Acquire);
                (code != WIDE_ESCAPE).then_some(code.into())
            }
        }
    }

    /// Looks up by vector code, which is given the default route's word.
    #[inline(always)]
    fn lookup_batch(
        &self,
        addresses: &[u32],
        out: &mut [Group],
        vector: impl Fn(DefaultWord, &Addresses, &mut Addresses) -> u64,
    ) {
        let vector = |addresses: &_, out: &mut _| {
            let default = self.default.load();
            let undone = vector(default, addresses, out);
            fence(Acquire); // what was gathered was read before this
            if self.default.load() == default { undone } else { u64::MAX }
        };
        in_batches(addresses, out, |address| self.lookup(address), vector);
    }
}

/// An array with its length in its type, so that no index needs a check.
#[inline]
fn fixed_array<W: artery_storage::Word, const N: usize>(words: &Words<W>) -> &[W; N] {
    (&**words).try_into().expect("the array was made with this length")
}

impl Shared {
    #[inline]
    fn block_word(&self, address: u32) -> &AtomicU64 {
        &fixed_array::<_, BLOCKS>(&self.blocks)[(address >> BLOCK_BITS) as usize]
    }

    #[inline]
    fn view(&self) -> Fib4FastView<'_> {
        let cells = match &self.cells {
            Cells::Narrow(cells) => CellArray::Narrow(fixed_array(cells), fixed_array(&self.palette.groups)),
            Cells::Wide(cells) => CellArray::Wide(fixed_array(cells)),
        };
        Fib4FastView { shared: self, cells, default: self.default.at_hand() }
    }

    #[cold]
    #[inline(never)]
    fn lookup_slowly(&self, address: u32) -> Group {
        self.default
            .complete(|| self.view().find_in_cells(address).unwrap_or_else(|| self.find_in_list(address)))
    }

    /// The group of an address whose cell said "look further" a moment ago.
    fn find_in_list(&self, address: u32) -> Group {
        loop {
            let word = self.block_word(address).load(Acquire);
            if word & LISTED != 0 {
                return self.lists.find_group(word, address & 0xffff);
            }
            // The list was withdrawn since, and before that the cell was changed.
            if let Some(group) = self.view().find_in_cells(address) {
                return group;
            }
        }
    }
}
