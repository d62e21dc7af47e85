//! The flows that are not proven yet, in the order in which they came.

/// A queue of entries and of the versions that their flows have for as long as they are young: another
/// version means that the flow was proven or forgotten meanwhile, and that the entry may be another's.
pub(super) struct Young {
    places: Vec<u64>,
    first: usize,
    count: usize,
}

impl Young {
    /// Room for twice as many as may be young at a time: those that are young no more leave
    /// only at the front.
    pub(super) fn new(most: u32) -> Young {
        Young { places: vec![0; (most as usize * 2).max(2)], first: 0, count: 0 }
    }

    /// Says whether a flow must leave before another comes.
    pub(super) fn is_full(&self) -> bool {
        self.count == self.places.len()
    }

    /// Appends a flow; there must be room.
    pub(super) fn push(&mut self, id: u32, version: u16) {
        debug_assert!(!self.is_full());
        let at = self.ring_index(self.count);
        self.places[at] = u64::from(id) | u64::from(version) << 32;
        self.count += 1;
    }

    /// Takes the oldest out: its entry and its version.
    pub(super) fn pop(&mut self) -> Option<(u32, u16)> {
        let oldest = self.peek(0)?;
        self.first = self.ring_index(1);
        self.count -= 1;
        Some(oldest)
    }

    /// The flow behind the `n` oldest.
    pub(super) fn peek(&self, n: usize) -> Option<(u32, u16)> {
        (n < self.count)
            .then(|| self.places[self.ring_index(n)])
            .map(|place| (place as u32, (place >> 32) as u16))
    }

    fn ring_index(&self, n: usize) -> usize {
        let at = self.first + n;
        if at >= self.places.len() { at - self.places.len() } else { at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_leave_in_the_order_in_which_they_came() {
        let mut young = Young::new(2);
        for round in 0..10_u32 {
            (0..4).for_each(|n| young.push(round * 10 + n, 7));
            assert!(young.is_full());
            assert_eq!(young.peek(3), Some((round * 10 + 3, 7)));
            (0..4).for_each(|n| assert_eq!(young.pop(), Some((round * 10 + n, 7))));
            assert_eq!(young.pop(), None);
            young.push(0, 0);
            assert_eq!((young.pop(), young.is_full()), (Some((0, 0)), false));
        }
    }
}
