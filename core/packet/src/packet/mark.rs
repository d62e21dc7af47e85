//! A mark by which a packet can be recognised later, wherever it is.
//!
//! It stays with the packet through queues, other workers and bigger frames, until the packet ends. A copy, a
//! segment and whatever else is made from a marked packet bears the same number, and says that it is a copy,
//! until it gets a number of its own. Packets without a mark pay nothing for it: the number lies in the word
//! that links descriptors when they are free, and one bit of the flags says whether it means anything.
use super::{MARKED, Packet};

/// Says that the number is that of the packet which this one was made from.
const COPY: u32 = 1 << 31;

/// What a marked packet bears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The number that was set, of the packet or of the one it was made from.
    pub number: u32,
    /// Whether the number is that of the packet which this one was made from.
    pub is_copy: bool,
}

impl Packet {
    /// Whether the packet bears a mark.
    #[inline]
    pub fn is_marked(&self) -> bool {
        self.meta().flags & MARKED != 0
    }
    /// The mark; none of nearly all packets.
    #[inline]
    pub fn mark(&self) -> Option<Mark> {
        let word = self.meta().next;
        self.is_marked().then_some(Mark { number: word & !COPY, is_copy: word & COPY != 0 })
    }
    /// Marks the packet as itself, with the lower 31 bits of `number`.
    pub fn set_mark(&mut self, number: u32) {
        let d = self.meta_mut();
        d.next = number & !COPY;
        d.flags |= MARKED;
    }
    /// Takes the mark away.
    pub fn unmark(&mut self) {
        self.meta_mut().flags &= !MARKED;
    }
    /// Marks the packet as made from `from`, if that one is marked.
    #[inline]
    pub fn copy_mark(&mut self, from: &Packet) {
        if from.is_marked() {
            let d = self.meta_mut();
            d.next = from.meta().next | COPY;
            d.flags |= MARKED;
        }
    }
    /// Takes the mark of a packet whose place this one takes.
    pub(super) fn inherit_mark(&mut self, from: &Packet) {
        if from.is_marked() {
            self.meta_mut().next = from.meta().next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BIG_FRAME, Pool};

    const ITSELF: Option<Mark> = Some(Mark { number: 7, is_copy: false });
    const COPIED: Option<Mark> = Some(Mark { number: 7, is_copy: true });

    fn marked(pool: &'static Pool) -> Packet {
        let mut packet = pool.packet_from(&[1; 100]).unwrap();
        packet.set_mark(7);
        packet
    }

    #[test]
    fn a_mark_stays_through_new_metadata_and_a_bigger_frame() {
        let mut packet = marked(Pool::new(4, 1).unwrap());
        packet.clear_metadata();
        assert_eq!(packet.mark(), ITSELF);
        packet.append(BIG_FRAME / 2).unwrap();
        assert_eq!(packet.mark(), ITSELF);
        packet.unmark();
        assert_eq!(packet.mark(), None);
    }

    #[test]
    fn what_is_made_from_a_marked_packet_says_so_until_it_is_marked_itself() {
        let pool = Pool::new(8, 1).unwrap();
        let packet = marked(pool);
        let mut copy = packet.duplicate().unwrap();
        assert_eq!((packet.mark(), copy.mark()), (ITSELF, COPIED));
        assert_eq!(copy.duplicate().unwrap().mark(), COPIED);
        copy.set_mark(8);
        assert_eq!(copy.mark(), Some(Mark { number: 8, is_copy: false }));
        let mut fragment = pool.alloc_packet().unwrap();
        fragment.copy_mark(&packet);
        assert_eq!(fragment.mark(), COPIED);
        let plain = pool.packet_from(b"plain").unwrap();
        fragment.copy_mark(&plain);
        assert_eq!((fragment.mark(), plain.duplicate().unwrap().mark()), (COPIED, None));
    }

    #[test]
    fn a_frame_that_is_used_again_bears_no_mark() {
        let pool = Pool::new(1, 1).unwrap();
        drop(marked(pool));
        assert_eq!(pool.alloc_packet().unwrap().mark(), None);
    }
}
