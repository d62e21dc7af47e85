//! Packets that wait for the link address of a neighbor, of one worker.
//!
//! Bounded for each neighbor, where the oldest gives way, and for all workers together, where only a neighbor's own
//! packets do: a scan of a big network then keeps no memory from live neighbors, and no queue from them either.
use artery_table::PortId;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// A neighbor: the port on whose link it is, and its address.
pub(crate) type Neighbor = (PortId, IpAddr);

/// How many packets all workers together may still hold.
#[derive(Debug)]
pub(crate) struct Room(AtomicUsize);

impl Room {
    /// For so many packets.
    pub(crate) fn new(packets: usize) -> Room {
        Room(AtomicUsize::new(packets))
    }
    fn take(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }
    fn give(&self, packets: usize) {
        self.0.fetch_add(packets, Relaxed);
    }
    /// What is left.
    #[cfg(test)]
    fn left(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// What waits for a neighbor, the oldest first.
struct Queue<T> {
    items: VecDeque<T>,
    since: Duration,
    /// When control was last told that something waits.
    asked: Duration,
}

/// See the module.
pub(crate) struct Held<T> {
    queues: HashMap<Neighbor, Queue<T>>,
    each: usize,
    room: Arc<Room>,
}

/// What became of a packet to be held.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kept<T> {
    /// It waits, and nothing else had to go.
    All,
    /// It waits, and this one, the oldest, does no more.
    InsteadOf(T),
    /// There is no room for it.
    Refused(T),
}

/// What a neighbor's queue is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Go on waiting.
    Wait,
    /// Tell control again that something waits.
    Ask,
    /// Go: the neighbor is known.
    Go,
    /// Give up.
    Fail,
}

impl<T> Held<T> {
    /// Holds at most `each` packets for one neighbor, and as many in all as there is room for.
    pub(crate) fn new(each: usize, room: &Arc<Room>) -> Held<T> {
        Held { queues: HashMap::new(), each: each.max(1), room: room.clone() }
    }

    /// Keeps a packet for a neighbor.
    pub(crate) fn hold(&mut self, neighbor: Neighbor, item: T, now: Duration) -> Kept<T> {
        let Some(queue) = self.queues.get_mut(&neighbor) else {
            if !self.room.take() {
                return Kept::Refused(item);
            }
            let items = VecDeque::from([item]);
            self.queues.insert(neighbor, Queue { items, since: now, asked: now });
            return Kept::All;
        };
        if queue.items.len() < self.each && self.room.take() {
            queue.items.push_back(item);
            return Kept::All;
        }
        let oldest = queue.items.pop_front();
        queue.items.push_back(item);
        oldest.map_or(Kept::All, Kept::InsteadOf)
    }

    /// Whether packets wait for a neighbor.
    pub(crate) fn has(&self, neighbor: &Neighbor) -> bool {
        self.queues.contains_key(neighbor)
    }
    /// Whether none wait at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
    /// For how many neighbors they do.
    pub(crate) fn queues(&self) -> usize {
        self.queues.len()
    }
    /// How many do.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.queues.values().map(|queue| queue.items.len()).sum()
    }

    /// Asks `next` what to do about each neighbor: it is given the neighbor, since when packets wait, and since
    /// when control was not told. Returns those that end their wait.
    pub(crate) fn look(
        &mut self,
        now: Duration,
        mut next: impl FnMut(&Neighbor, Duration, Duration) -> Next,
    ) -> Vec<(Neighbor, Next)> {
        let mut ends = Vec::new();
        for (neighbor, queue) in &mut self.queues {
            let waited = |since: Duration| now.saturating_sub(since);
            match next(neighbor, waited(queue.since), waited(queue.asked)) {
                Next::Wait => {}
                Next::Ask => {
                    queue.asked = now;
                    ends.push((*neighbor, Next::Ask));
                }
                end => ends.push((*neighbor, end)),
            }
        }
        ends
    }

    /// Lets all packets to a neighbor go, the oldest first.
    pub(crate) fn release(&mut self, neighbor: &Neighbor) -> VecDeque<T> {
        let items = self.queues.remove(neighbor).map(|queue| queue.items).unwrap_or_default();
        self.room.give(items.len());
        items
    }

    /// Lets all packets go.
    pub(crate) fn drain(&mut self) -> Vec<(Neighbor, VecDeque<T>)> {
        let all: Vec<_> = self.queues.drain().map(|(neighbor, queue)| (neighbor, queue.items)).collect();
        self.room.give(all.iter().map(|(_, items)| items.len()).sum());
        all
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        self.drain();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const NOW: Duration = Duration::from_secs(9);
    fn neighbor(n: u32) -> Neighbor {
        (PortId(0), Ipv4Addr::from_bits(n).into())
    }
    fn hold(held: &mut Held<u32>, to: u32, item: u32) -> Kept<u32> {
        held.hold(neighbor(to), item, NOW)
    }

    #[test]
    fn packets_go_in_the_order_in_which_they_came_and_the_oldest_gives_way() {
        let mut held = Held::new(3, &Arc::new(Room::new(100)));
        let kept: Vec<_> = (1..=5).map(|item| hold(&mut held, 7, item)).collect();
        assert_eq!(kept, [Kept::All, Kept::All, Kept::All, Kept::InsteadOf(1), Kept::InsteadOf(2)]);
        assert_eq!(held.release(&neighbor(7)), [3, 4, 5]);
        assert!(held.is_empty() && !held.has(&neighbor(7)));
    }

    #[test]
    fn a_scan_fills_no_more_than_the_room_for_all_workers() {
        let room = Arc::new(Room::new(10));
        let (mut one, mut other) = (Held::new(3, &room), Held::new(3, &room));
        let kept = (0..1000).filter(|n| hold(&mut one, *n, *n) == Kept::All).count();
        assert_eq!((kept, one.len(), room.left()), (10, 10, 0));
        assert_eq!(hold(&mut other, 1, 5), Kept::Refused(5));
        // Who waits already keeps its place, for a later packet.
        assert_eq!(hold(&mut one, 3, 99), Kept::InsteadOf(3));
        one.release(&neighbor(4));
        assert_eq!(hold(&mut other, 1, 5), Kept::All);
        drop((one, other));
        assert_eq!(room.left(), 10);
    }

    #[test]
    fn a_look_tells_how_long_packets_wait_and_since_when_nobody_was_asked() {
        let mut held = Held::new(3, &Arc::new(Room::new(10)));
        hold(&mut held, 1, 1);
        let later = NOW + Duration::from_secs(2);
        let asked = held.look(later, |_, waited, silent| {
            assert_eq!((waited.as_secs(), silent.as_secs()), (2, 2));
            Next::Ask
        });
        assert_eq!(asked, [(neighbor(1), Next::Ask)]);
        let ends = held.look(later + Duration::from_secs(1), |_, waited, silent| {
            assert_eq!((waited.as_secs(), silent.as_secs()), (3, 1));
            Next::Go
        });
        assert_eq!(ends, [(neighbor(1), Next::Go)]);
        assert_eq!(held.release(&neighbor(1)), [1]);
    }
}
