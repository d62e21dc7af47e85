//! Flows that came from elsewhere and of which no packet was seen here yet, in the order in which they came:
//! the first of them are the first to go where a table is full.

/// A queue of entries. One whose flow was seen, or has gone, stays in it until it is at its front.
///
/// What is put in is numbered, and each entry remembers the last number that it was put in under: by another
/// number the queue means a flow that had the entry before. Of numbers 16 bits are remembered. Where those
/// are the same by chance, a flow goes before its turn and nothing worse happens.
pub(super) struct Elsewhere {
    /// The entry of each number, as far as the queue reaches.
    entries: Vec<u32>,
    numbers: Vec<u16>,
    /// The number of the first, and of the next to come.
    first: u64,
    next: u64,
}

impl Elsewhere {
    /// For a table of this many entries; the memory is the system's until it is used.
    pub(super) fn new(entries: u32) -> Elsewhere {
        let room = entries as usize;
        Elsewhere { entries: vec![0; room], numbers: vec![0; room], first: 0, next: 0 }
    }

    /// Appends an entry; says whether there was room.
    pub(super) fn push(&mut self, id: u32) -> bool {
        let has_room = self.next - self.first < self.entries.len() as u64;
        if has_room {
            let at = self.ring_index(self.next);
            self.entries[at] = id;
            self.numbers[id as usize] = self.next as u16;
            self.next += 1;
        }
        has_room
    }

    /// The first entry, and whether it is still meant, as far as is known here.
    pub(super) fn peek(&self) -> Option<(u32, bool)> {
        if self.first == self.next {
            return None;
        }
        let id = self.entries[self.ring_index(self.first)];
        Some((id, self.numbers[id as usize] == self.first as u16))
    }

    /// Takes the first entry out.
    pub(super) fn pop(&mut self) {
        self.first += u64::from(self.first < self.next);
    }

    fn ring_index(&self, number: u64) -> usize {
        (number % self.entries.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_leave_in_the_order_in_which_they_came_and_an_entry_is_meant_once() {
        let mut queue = Elsewhere::new(4);
        for round in 0..5 {
            assert!([3, 1, 2, 1].into_iter().all(|id| queue.push(id)));
            assert!(!queue.push(0), "{round}");
            for expected in [(3, true), (1, false), (2, true), (1, true)] {
                assert_eq!(queue.peek(), Some(expected));
                queue.pop();
            }
            assert_eq!(queue.peek(), None);
            queue.pop();
            assert!(queue.push(0));
            queue.pop();
        }
    }
}
