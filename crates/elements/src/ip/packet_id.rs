//! Identification numbers for the IP headers that an element makes.
use artery_engine::{Args, Context};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How many numbers a worker takes at a time.
const CHUNK: u32 = 256;
/// How far ahead of its predecessors the first heir begins: other workers may go on with theirs for a moment.
const AHEAD: u32 = 64 * CHUNK;

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
    pub(crate) fn go_on(&mut self, old: &mut PacketIds, cx: &Context<'_>) {
        if !cx.is_replacing() {
            // The other workers' copies keep what they share with it.
            std::mem::swap(self, old);
            return;
        }
        // A replacement may have copies on other workers than before, so what the heirs share is theirs.
        advance(&self.shared, old.shared.load(Relaxed).wrapping_add(AHEAD));
        (self.next, self.left) = (old.next, std::mem::take(&mut old.left));
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

/// Lets a counter go on from `to` if that lies ahead of it; the shorter way around the circle says which is ahead.
fn advance(counter: &AtomicU32, to: u32) {
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
            advance(&counter, to);
            assert_eq!(counter.into_inner(), result, "{from} to {to}");
        }
    }
}
