//! The memory that a limit of states takes at once.
use super::HotLines;
use artery_table::HugePages;
use artery_table::flow::{Fill, TagIndex};
use std::io;

/// States that room is made for at once; more than these are moved when they become more.
const MOST_RESERVED: u32 = 1 << 20;

/// Every packet looks a key up, and what is in overflow lines is waited for by itself.
const FILL: Fill = Fill::LOOSE;

/// What a worker takes to allow so many states. The system gives the pages when they are first written.
pub struct Reservation {
    pub(super) index: TagIndex,
    pub(super) hot: HotLines,
}

impl Reservation {
    /// Takes it.
    pub fn new(limit: u32) -> io::Result<Reservation> {
        Ok(Reservation { index: index(limit)?, hot: HotLines::with_room(reserved(limit))? })
    }

    /// How many bytes it has.
    pub fn bytes(limit: u32) -> u64 {
        TagIndex::room(keys(limit), FILL) + HotLines::bytes(reserved(limit))
    }
}

/// An index of the keys of so many states.
pub(super) fn index(limit: u32) -> io::Result<TagIndex> {
    TagIndex::new(keys(limit), FILL, &HugePages)
}

/// How many of so many states room is made for at once.
pub(super) fn reserved(limit: u32) -> usize {
    limit.min(MOST_RESERVED) as usize
}

fn keys(limit: u32) -> u32 {
    limit.saturating_mul(2)
}
