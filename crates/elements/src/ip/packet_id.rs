//! Identification numbers for the IP headers that an element makes.
use artery_engine::Args;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How many numbers a worker takes at a time.
const CHUNK: u32 = 256;

/// Consecutive numbers, taken in chunks from what the element's copies on all workers share.
pub(crate) struct PacketIds {
    shared: Arc<AtomicU32>,
    next: u32,
    left: u32,
}

impl PacketIds {
    /// Numbers from `first` on.
    pub(crate) fn starting_at(first: u16, args: &mut Args<'_>) -> PacketIds {
        PacketIds { shared: args.shared(|| AtomicU32::new(first.into())), next: 0, left: 0 }
    }

    /// Goes on where `old` would have: for an element that takes another's place.
    pub(crate) fn go_on(&mut self, old: &mut PacketIds) {
        std::mem::swap(self, old);
    }

    /// The next number.
    #[inline]
    pub(crate) fn next(&mut self) -> u16 {
        if self.left == 0 {
            self.next = self.shared.fetch_add(CHUNK, Relaxed);
            self.left = CHUNK;
        }
        let id = self.next as u16;
        self.next = self.next.wrapping_add(1);
        self.left -= 1;
        id
    }
}
