//! Packets of one worker that wait for the link address of a neighbor.
//!
//! The queue of each neighbor is bounded, and drops its oldest packet. All workers together share a budget,
//! and a neighbor without budget can replace only its own packets. So a scan of a large network takes neither
//! memory nor queues from live neighbors.
use super::verdict::IngressInfo;
use artery_engine::Packet;
use artery_l3::PortId;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// A neighbor: the port on whose link it is, and its address.
pub(crate) type Neighbor = (PortId, IpAddr);

/// A pending packet and its ingress.
pub(crate) struct PendingPacket {
    pub(crate) packet: Packet,
    pub(crate) ingress: IngressInfo,
}

/// The number of packets that all workers together may still hold.
#[derive(Debug)]
pub(crate) struct PacketBudget(AtomicUsize);

impl PacketBudget {
    /// A budget of so many packets.
    pub(crate) fn new(packets: usize) -> PacketBudget {
        PacketBudget(AtomicUsize::new(packets))
    }
    fn try_acquire(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }
    fn release_many(&self, packets: usize) {
        self.0.fetch_add(packets, Relaxed);
    }
    #[cfg(test)]
    fn left(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// The pending packets of a neighbor, the oldest first.
struct NeighborQueue<T> {
    items: VecDeque<T>,
    since: Duration,
    /// When control was last asked to resolve the neighbor.
    last_requested: Duration,
}

pub(crate) struct PendingQueue<T> {
    queues: HashMap<Neighbor, NeighborQueue<T>>,
    each: usize,
    room: Arc<PacketBudget>,
}

/// The result of an attempt to hold a packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EnqueueOutcome<T> {
    /// It waits, and no other packet was dropped.
    All,
    /// It waits, and this one, the oldest, was dropped.
    Replaced(T),
    /// The budget is used up.
    Refused(T),
}

/// What a neighbor's queue is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Keep the packets waiting.
    Wait,
    /// Ask control again to resolve the neighbor.
    Request,
    /// Send the packets: the neighbor is known.
    Release,
    /// Stop waiting: resolution failed or took too long.
    Fail,
}

impl<T> PendingQueue<T> {
    /// A queue of at most `each` packets for one neighbor, and as many in all as the budget allows.
    pub(crate) fn new(each: usize, room: &Arc<PacketBudget>) -> PendingQueue<T> {
        PendingQueue { queues: HashMap::new(), each: each.max(1), room: room.clone() }
    }

    /// Holds a packet for a neighbor.
    pub(crate) fn enqueue_packet(&mut self, neighbor: Neighbor, item: T, now: Duration) -> EnqueueOutcome<T> {
        let Some(queue) = self.queues.get_mut(&neighbor) else {
            if !self.room.try_acquire() {
                return EnqueueOutcome::Refused(item);
            }
            let items = VecDeque::from([item]);
            self.queues.insert(neighbor, NeighborQueue { items, since: now, last_requested: now });
            return EnqueueOutcome::All;
        };
        if queue.items.len() < self.each && self.room.try_acquire() {
            queue.items.push_back(item);
            return EnqueueOutcome::All;
        }
        let oldest = queue.items.pop_front();
        queue.items.push_back(item);
        oldest.map_or(EnqueueOutcome::All, EnqueueOutcome::Replaced)
    }

    /// Whether packets wait for a neighbor.
    pub(crate) fn contains(&self, neighbor: &Neighbor) -> bool {
        self.queues.contains_key(neighbor)
    }
    /// Whether none wait at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
    /// For how many neighbors they do.
    pub(crate) fn queue_count(&self) -> usize {
        self.queues.len()
    }
    #[cfg(test)]
    fn len(&self) -> usize {
        self.queues.values().map(|queue| queue.items.len()).sum()
    }

    /// Calls `next` for each neighbor, with the time that packets have waited, and the time since control was
    /// last asked. Returns the neighbors for which there is something to do.
    pub(crate) fn poll_queues(
        &mut self,
        now: Duration,
        mut next: impl FnMut(&Neighbor, Duration, Duration) -> NextStep,
    ) -> Vec<(Neighbor, NextStep)> {
        let mut ends = Vec::new();
        for (neighbor, queue) in &mut self.queues {
            let waited = |since: Duration| now.saturating_sub(since);
            match next(neighbor, waited(queue.since), waited(queue.last_requested)) {
                NextStep::Wait => {}
                NextStep::Request => {
                    queue.last_requested = now;
                    ends.push((*neighbor, NextStep::Request));
                }
                end => ends.push((*neighbor, end)),
            }
        }
        ends
    }

    /// Removes all packets to a neighbor, the oldest first.
    pub(crate) fn release_neighbor(&mut self, neighbor: &Neighbor) -> VecDeque<T> {
        let items = self.queues.remove(neighbor).map(|queue| queue.items).unwrap_or_default();
        self.room.release_many(items.len());
        items
    }

    /// Removes the packets of all neighbors.
    pub(crate) fn drain(&mut self) -> Vec<(Neighbor, VecDeque<T>)> {
        let all: Vec<_> = self.queues.drain().map(|(neighbor, queue)| (neighbor, queue.items)).collect();
        self.room.release_many(all.iter().map(|(_, items)| items.len()).sum());
        all
    }
}

impl<T> Drop for PendingQueue<T> {
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
    fn hold(held: &mut PendingQueue<u32>, to: u32, item: u32) -> EnqueueOutcome<u32> {
        held.enqueue_packet(neighbor(to), item, NOW)
    }

    #[test]
    fn packets_go_in_the_order_in_which_they_came_and_the_oldest_gives_way() {
        let mut held = PendingQueue::new(3, &Arc::new(PacketBudget::new(100)));
        let kept: Vec<_> = (1..=5).map(|item| hold(&mut held, 7, item)).collect();
        assert_eq!(
            kept,
            [
                EnqueueOutcome::All,
                EnqueueOutcome::All,
                EnqueueOutcome::All,
                EnqueueOutcome::Replaced(1),
                EnqueueOutcome::Replaced(2)
            ]
        );
        assert_eq!(held.release_neighbor(&neighbor(7)), [3, 4, 5]);
        assert!(held.is_empty() && !held.contains(&neighbor(7)));
    }

    #[test]
    fn a_scan_fills_no_more_than_the_room_for_all_workers() {
        let room = Arc::new(PacketBudget::new(10));
        let (mut one, mut other) = (PendingQueue::new(3, &room), PendingQueue::new(3, &room));
        let kept = (0..1000).filter(|n| hold(&mut one, *n, *n) == EnqueueOutcome::All).count();
        assert_eq!((kept, one.len(), room.left()), (10, 10, 0));
        assert_eq!(hold(&mut other, 1, 5), EnqueueOutcome::Refused(5));
        // A pending packet's share of the budget passes to a later packet.
        assert_eq!(hold(&mut one, 3, 99), EnqueueOutcome::Replaced(3));
        one.release_neighbor(&neighbor(4));
        assert_eq!(hold(&mut other, 1, 5), EnqueueOutcome::All);
        drop((one, other));
        assert_eq!(room.left(), 10);
    }

    #[test]
    fn a_look_tells_how_long_packets_wait_and_since_when_nobody_was_asked() {
        let mut held = PendingQueue::new(3, &Arc::new(PacketBudget::new(10)));
        hold(&mut held, 1, 1);
        let later = NOW + Duration::from_secs(2);
        let asked = held.poll_queues(later, |_, waited, silent| {
            assert_eq!((waited.as_secs(), silent.as_secs()), (2, 2));
            NextStep::Request
        });
        assert_eq!(asked, [(neighbor(1), NextStep::Request)]);
        let ends = held.poll_queues(later + Duration::from_secs(1), |_, waited, silent| {
            assert_eq!((waited.as_secs(), silent.as_secs()), (3, 1));
            NextStep::Release
        });
        assert_eq!(ends, [(neighbor(1), NextStep::Release)]);
        assert_eq!(held.release_neighbor(&neighbor(1)), [1]);
    }
}
