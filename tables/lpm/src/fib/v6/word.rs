//! What one word of the IPv6 FIB says; [`crate::layout`] describes it for it to readers outside.
//!
//! ```text
//!  31      30     29     28     27..24  23..0
//!  0       group of the addresses that lead here, 31 bits
//!  node=1  list   wide   deep   class   place
//! ```
//!
//! *Place* counts units of four words from the start of the array. A node without *list* is an array: the
//! next *class* bits of the address choose one of its 2^class words. A list has 2^class entries: first the
//! keys, two to a word, the first in the lower half, then the values. A key is the last value of the next 16
//! bits of the address that its entry holds for; keys rise, the last is 0xffff, and entries past the first
//! 0xffff are filling. The values of a narrow list are groups, two to a word like the keys; those of a *wide*
//! list are words like this one, for an address whose first bits, the 16 of the key included, are used up.
//! *Deep* is set on nodes that need address bits after the 48th.
use crate::runs::Group;

/// Words in a unit of place; blocks begin and end on units.
pub(super) const UNIT: usize = 4;
/// Entries of the longest list, as a power of two.
pub(super) const LIST_CLASS: u8 = 5;
/// Entries of the longest list.
pub(super) const LIST_ENTRIES: usize = 1 << LIST_CLASS;
/// Bits that a list's key holds.
pub(super) const KEY_BITS: u8 = 16;

const NODE: u32 = 1 << 31;
const LIST: u32 = 1 << 30;
const WIDE: u32 = 1 << 29;
const DEEP: u32 = 1 << 28;
const PLACE: u32 = (1 << 24) - 1;
/// The largest group that a word can hold.
pub(super) const MAX_GROUP: Group = NODE - 1;
/// Words that a place can name.
pub(super) const MAX_WORDS: usize = (PLACE as usize + 1) * UNIT;

/// One word, as read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(pub(super) u32);

/// What a word leads to if it is not a group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeKind {
    /// Words by the next bits.
    Array,
    /// Groups by ranges of the next 16 bits.
    Narrow,
    /// Words by ranges of the next 16 bits.
    Wide,
}

impl Word {
    pub(super) fn from_group(group: Group) -> Word {
        debug_assert!(group <= MAX_GROUP);
        Word(group)
    }

    pub(super) fn from_node(kind: NodeKind, is_deep: bool, class: u8, at: usize) -> Word {
        debug_assert!(class < 16 && at.is_multiple_of(UNIT) && at < MAX_WORDS);
        let kind = match kind {
            NodeKind::Array => 0,
            NodeKind::Narrow => LIST,
            NodeKind::Wide => LIST | WIDE,
        };
        let deep = if is_deep { DEEP } else { 0 };
        Word(NODE | kind | deep | u32::from(class) << 24 | (at / UNIT) as u32)
    }

    /// The group, where the word is one.
    #[inline]
    pub(super) fn leaf_group(self) -> Option<Group> {
        (self.0 & NODE == 0).then_some(self.0)
    }

    /// The kind of node, or None if the word is a group.
    pub(super) fn node_kind(self) -> Option<NodeKind> {
        (self.0 & NODE != 0).then(|| self.kind())
    }

    #[inline]
    pub(super) fn kind(self) -> NodeKind {
        match self.0 & (LIST | WIDE) {
            0 | WIDE => NodeKind::Array,
            LIST => NodeKind::Narrow,
            _ => NodeKind::Wide,
        }
    }

    /// Bits that choose a word of an array; a list's number of entries as a power of two.
    #[inline]
    pub(super) fn class(self) -> u8 {
        (self.0 >> 24 & 15) as u8
    }

    /// Where the node begins.
    #[inline]
    pub(super) fn place(self) -> usize {
        (self.0 & PLACE) as usize * UNIT
    }

    /// Size of the node's block, as a power of two of words.
    pub(super) fn block_class(self) -> u8 {
        match self.kind() {
            NodeKind::Array | NodeKind::Narrow => self.class(),
            NodeKind::Wide => self.class() + 1,
        }
    }
}
