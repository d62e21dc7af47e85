//! Codes of one byte for groups.
//!
//! Code 0 is the default route's group, 255 means "look further". A code in between stands for one group as
//! long as any cell may show it; when no cell does, it can be given to another group after a grace period,
//! since a reader looks at the cell first and at the palette after that.
use crate::runs::{Group, NO_GROUP};
use crate::simd::v4::CODES;
use artery_rcu::{Domain, Ticket};
use artery_storage::Words;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The code that says "look further".
pub(super) const ESCAPE: u8 = 255;
/// When no more than so many codes are free, those that no cell shows are taken back, so that their grace
/// period is over when the last one is gone.
const SPARE: usize = 64;

/// Groups by code, for readers.
pub(super) struct Palette {
    pub(super) groups: Words<AtomicU32>,
}

impl Palette {
    fn set_group(&self, code: u8, group: Group) {
        self.groups[usize::from(code)].store(group, Relaxed);
    }
}

/// Which group has which code, for the writer.
pub(super) struct PaletteWriter {
    domain: Arc<Domain>,
    codes: HashMap<Group, u8, BuildHasherDefault<GroupHasher>>,
    /// What was found last, by the lowest byte of the group: most groups are found here.
    recent: Box<[(Group, u8); CODES]>,
    /// By code: cells that show it, and pins.
    uses: Box<[u32; CODES]>,
    free: FreeCodes,
    /// Codes that no cell shows any more, and since when.
    leaving: Option<(Ticket, Vec<u8>)>,
}

impl PaletteWriter {
    pub(super) fn new(domain: &Arc<Domain>) -> PaletteWriter {
        PaletteWriter {
            domain: domain.clone(),
            codes: HashMap::default(),
            recent: Box::new([(NO_GROUP, 0); CODES]),
            uses: Box::new([0; CODES]),
            free: FreeCodes::ALL,
            leaving: None,
        }
    }

    /// The code of a group; none if all are in use. A code that no cell shows is pinned, so that it stays
    /// that of the group, and put into `pinned`, for whom to [`remove`](Self::remove) when cells show it.
    #[inline]
    pub(super) fn code_for(&mut self, palette: &Palette, group: Group, pinned: &mut Vec<u8>) -> Option<u8> {
        let (known, code) = self.recent[group as usize % CODES];
        let code = if known == group { code } else { self.find_code(palette, group)? };
        if self.uses[usize::from(code)] == 0 && code != 0 {
            self.add_uses(code, 1);
            pinned.push(code);
        }
        Some(code)
    }

    fn find_code(&mut self, palette: &Palette, group: Group) -> Option<u8> {
        let code = match self.codes.get(&group) {
            _ if group == NO_GROUP => 0,
            Some(code) => *code,
            None => self.assign_code(palette, group)?,
        };
        self.recent[group as usize % CODES] = (group, code);
        Some(code)
    }

    /// Counts cells that show a code from now on.
    pub(super) fn add_uses(&mut self, code: u8, cells: u32) {
        self.uses[usize::from(code)] = self.uses[usize::from(code)].wrapping_add(cells);
    }

    /// Counts cells that show a code no more. For the codes 0 and 255 the number means nothing.
    pub(super) fn remove(&mut self, code: u8, cells: u32) {
        self.uses[usize::from(code)] = self.uses[usize::from(code)].wrapping_sub(cells);
    }

    fn assign_code(&mut self, palette: &Palette, group: Group) -> Option<u8> {
        if self.free.len() < SPARE {
            self.free_unused();
        }
        let code = self.free.alloc_code(group)?;
        palette.set_group(code, group);
        self.codes.insert(group, code);
        Some(code)
    }

    /// Takes codes that no cell shows from their groups, and hands out those whose grace period is over.
    fn free_unused(&mut self) {
        if self.leaving.is_none() {
            let mut unused = Vec::new();
            let uses = &self.uses;
            self.codes.retain(|_, code| {
                let is_used = uses[usize::from(*code)] > 0;
                if !is_used {
                    unused.push(*code);
                }
                is_used
            });
            if !unused.is_empty() {
                self.recent.fill((NO_GROUP, 0));
                self.leaving = Some((self.domain.ticket(), unused));
            }
        }
        if let Some((_, codes)) = self.leaving.take_if(|(since, _)| self.domain.is_over(*since)) {
            codes.into_iter().for_each(|code| self.free.free_code(code));
        }
    }
}

/// The codes that stand for no group: a bit for each.
struct FreeCodes([u64; 4]);

impl FreeCodes {
    /// All codes from 1 to 254.
    const ALL: FreeCodes = FreeCodes([!1, !0, !0, !0 >> 1]);

    fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// A code for a group: its own number if it can be that, else the highest, which groups with
    /// such numbers get last.
    fn alloc_code(&mut self, group: Group) -> Option<u8> {
        let own =
            u8::try_from(group).ok().filter(|code| self.0[usize::from(code / 64)] >> (code % 64) & 1 == 1);
        let highest = || {
            let (number, word) = self.0.iter().enumerate().rfind(|(_, word)| **word != 0)?;
            Some(64 * number as u8 + word.ilog2() as u8)
        };
        let code = own.or_else(highest)?;
        self.0[usize::from(code / 64)] &= !(1 << (code % 64));
        Some(code)
    }

    fn free_code(&mut self, code: u8) {
        self.0[usize::from(code / 64)] |= 1 << (code % 64);
    }
}

/// Spreads group numbers, which their owner chooses and no stranger does.
#[derive(Default)]
pub(super) struct GroupHasher(u64);

impl Hasher for GroupHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }
    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_storage::Pages;

    fn palette() -> Palette {
        let groups = Words::new(&Pages, "palette", CODES).unwrap();
        Palette { groups }
    }

    #[test]
    fn a_code_is_not_given_to_another_group_while_a_turn_may_see_it() {
        let (domain, palette) = (Domain::new(), palette());
        let mut reader = domain.reader();
        let mut writer = PaletteWriter::new(&domain);
        let mut pinned = Vec::new();
        (1..=254).for_each(|group| assert!(writer.code_for(&palette, group, &mut pinned).is_some()));
        assert_eq!(writer.code_for(&palette, 1000, &mut pinned), None);
        reader.turn();
        let code = pinned[7];
        writer.remove(code, 1);
        assert_eq!(writer.code_for(&palette, 1000, &mut pinned), None);
        assert_eq!(palette.groups[usize::from(code)].load(Relaxed), 8);
        reader.turn();
        assert_eq!(writer.code_for(&palette, 1000, &mut pinned), Some(code));
        assert_eq!(palette.groups[usize::from(code)].load(Relaxed), 1000);
        assert_eq!(writer.code_for(&palette, 8, &mut pinned), None);
    }

    #[test]
    fn groups_that_come_and_go_never_lack_a_code_while_readers_turn() {
        let (domain, palette) = (Domain::new(), palette());
        let mut reader = domain.reader();
        let mut writer = PaletteWriter::new(&domain);
        let mut shown = std::collections::VecDeque::new();
        for group in 1..5000 {
            reader.turn();
            let mut pinned = Vec::new();
            assert!(writer.code_for(&palette, group, &mut pinned).is_some(), "group {group}");
            shown.extend(pinned);
            if shown.len() > 190 {
                shown.pop_front().into_iter().for_each(|code| writer.remove(code, 1));
            }
        }
    }

    #[test]
    fn a_group_keeps_its_code_while_it_is_pinned() {
        let (domain, palette) = (Domain::new(), palette());
        let mut writer = PaletteWriter::new(&domain);
        let mut pinned = Vec::new();
        let code = writer.code_for(&palette, 70_000, &mut pinned).unwrap();
        (1..254).for_each(|group| assert_ne!(writer.code_for(&palette, group, &mut pinned), Some(code)));
        assert_eq!(writer.code_for(&palette, 254, &mut pinned), None);
        assert_eq!(writer.code_for(&palette, 70_000, &mut pinned), Some(code));
        assert_eq!(writer.code_for(&palette, NO_GROUP, &mut pinned), Some(0));
        assert_eq!(pinned.len(), 254);
    }
}
