//! The memory that a limit of states takes at once.
use super::HotLines;
use artery_storage::HugePages;
use artery_storage::{Fill, TagIndex};
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
    /// Reserves the memory for `limit` states. Fails if the system refuses it.
    pub fn new(limit: u32) -> io::Result<Reservation> {
        Ok(Reservation { index: index(limit)?, hot: HotLines::with_room(reserved_states(limit))? })
    }

    /// How many bytes it has.
    pub fn memory_size(limit: u32) -> u64 {
        TagIndex::room(key_count(limit), FILL) + HotLines::memory_size(reserved_states(limit))
    }
}

/// An index of the keys of so many states.
pub(super) fn index(limit: u32) -> io::Result<TagIndex> {
    TagIndex::new(key_count(limit), FILL, &HugePages)
}

/// How many of so many states room is made for at once.
pub(super) fn reserved_states(limit: u32) -> usize {
    limit.min(MOST_RESERVED) as usize
}

fn key_count(limit: u32) -> u32 {
    limit.saturating_mul(2)
}
