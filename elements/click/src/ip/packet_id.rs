//! Identification numbers for the IP headers that an element creates.
use artery_engine::{Args, Context};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How many numbers a worker takes at a time.
const CHUNK: u32 = 256;
/// How far ahead of its predecessor the first successor begins: other workers may still take numbers from the
/// old counter for a moment.
const AHEAD: u32 = 64 * CHUNK;

/// Consecutive numbers, taken in chunks from a counter that the element's copies on all workers share.
pub(crate) struct PacketIds {
    shared: Arc<AtomicU32>,
    next: u32,
    left: u32,
}

impl PacketIds {
    /// Numbers from `first` on.
    pub(crate) fn starting_at(first: u16, args: &mut Args<'_>) -> PacketIds {
        PacketIds { shared: args.shared_value(|| AtomicU32::new(first.into())), next: 0, left: 0 }
    }

    /// Continues where `old` would have, for an element that replaces another.
    pub(crate) fn resume_from(&mut self, old: &mut PacketIds, cx: &Context<'_>) {
        if !cx.is_replacing() {
            // The other workers' copies still share their counter with it.
            std::mem::swap(self, old);
            return;
        }
        // A replacement may have copies on other workers than before, so the successors share a counter of
        // their own.
        advance_counter(&self.shared, old.shared.load(Relaxed).wrapping_add(AHEAD));
        (self.next, self.left) = (old.next, std::mem::take(&mut old.left));
    }

    #[inline]
    pub(crate) fn next_id(&mut self) -> u16 {
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

/// Advances a counter to `to`, if that lies ahead of it; the shorter distance modulo 2^32
/// decides which is ahead.
fn advance_counter(counter: &AtomicU32, to: u32) {
    let ahead = |now: u32| (to.wrapping_sub(now).cast_signed() > 0).then_some(to);
    // An error is a counter that is there already.
    let _ = counter.fetch_update(Relaxed, Relaxed, ahead);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_only_go_ahead() {
        for (from, to, result) in [(5, 900, 900), (900, 5, 900), (u32::MAX - 3, 9, 9), (9, u32::MAX - 3, 9)] {
            let counter = AtomicU32::new(from);
            advance_counter(&counter, to);
            assert_eq!(counter.into_inner(), result, "{from} to {to}");
        }
    }
}
