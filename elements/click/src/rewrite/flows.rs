//! The flows of a rewriter, found by the ends of packets in either direction, and removed when they expire.
use super::pattern::FlowId;
use artery_engine::Time;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, TryReserveError};
use std::time::Duration;

/// A flow that is rewritten.
pub(super) struct Flow {
    /// Which of the rewriter's tables it is in.
    pub(super) table: usize,
    /// What packets have that go forth, and what replies have.
    pub(super) ids: [FlowId; 2],
    pub(super) outputs: [usize; 2],
    /// The input whose rule created it.
    pub(super) input: usize,
    /// The annotation value of replies.
    pub(super) reply_annotation: u8,
    /// Bits of a TCP connection's state.
    pub(super) state: u8,
    /// How long it lives on after a packet.
    pub(super) timeout: Duration,
    pub(super) used: Time,
}

impl Flow {
    /// The rewritten flow of packets in a direction.
    pub(super) fn rewritten_id(&self, direction: usize) -> FlowId {
        self.ids[1 - direction].reverse()
    }
    pub(super) fn expiry_time(&self) -> Time {
        self.used + self.timeout
    }
}

/// Flows by number, found by table and id.
pub(super) struct Flows {
    slots: Vec<Option<Flow>>,
    free: Vec<usize>,
    places: HashMap<(usize, FlowId), (usize, usize)>,
    /// One entry for each flow, with a possibly outdated expiry: flows are used more often than expired ones
    /// are searched for here.
    oldest: BinaryHeap<Reverse<(Time, usize)>>,
    capacity: usize,
}

impl Flows {
    /// An empty table with memory reserved for `capacity` flows, so that adding one allocates nothing. An
    /// error if memory for them is lacking.
    pub(super) fn new(capacity: usize) -> Result<Flows, TryReserveError> {
        let (slots, free, places, oldest) = Default::default();
        let mut flows = Flows { slots, free, places, oldest, capacity };
        flows.reserve_flows(capacity)?;
        Ok(flows)
    }

    /// Sets how many there may be; those that are too many go when they are reaped.
    pub(super) fn set_capacity(&mut self, capacity: usize) -> Result<(), TryReserveError> {
        self.reserve_flows(capacity)?;
        self.capacity = capacity;
        Ok(())
    }

    fn reserve_flows(&mut self, capacity: usize) -> Result<(), TryReserveError> {
        self.slots.try_reserve(capacity.saturating_sub(self.slots.len()))?;
        self.free.try_reserve(capacity.saturating_sub(self.free.len()))?;
        self.places.try_reserve(capacity.saturating_mul(2).saturating_sub(self.places.len()))?;
        self.oldest.try_reserve(capacity.saturating_sub(self.oldest.len()))
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }
    pub(super) fn len(&self) -> usize {
        self.oldest.len()
    }

    /// The number of the flow that has this id in one direction, and that direction: 0 forth, 1 back.
    pub(super) fn find_flow(&self, table: usize, id: FlowId) -> Option<(usize, usize)> {
        self.places.get(&(table, id)).copied()
    }

    pub(super) fn get_mut(&mut self, number: usize) -> &mut Flow {
        self.slots[number].as_mut().expect("numbers that were found are those of flows")
    }

    /// All flows, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Flow> {
        self.slots.iter().flatten()
    }

    /// Removes all flows, the oldest number first.
    pub(super) fn drain_flows(&mut self) -> impl Iterator<Item = Flow> + use<> {
        self.free.clear();
        self.places.clear();
        self.oldest.clear();
        std::mem::take(&mut self.slots).into_iter().flatten()
    }

    /// Adds a flow, and removes the one that would expire first if there are too many. None, without adding
    /// it, if that one is within its guaranteed time.
    pub(super) fn insert_flow(&mut self, flow: Flow, now: Time, guarantee: Duration) -> Option<usize> {
        while self.len() >= self.capacity {
            let first = self.first_to_expire()?;
            let is_guaranteed = !guarantee.is_zero() && self.get_mut(first).used + guarantee > now;
            if is_guaranteed {
                return None;
            }
            self.remove_first(first);
        }
        // A reply that another flow had is this one's.
        if let Some((other, _)) = self.find_flow(flow.table, flow.ids[1]) {
            self.remove(other);
        }
        let number = self.free.pop().unwrap_or(self.slots.len());
        for direction in [0, 1] {
            self.places.insert((flow.table, flow.ids[direction]), (number, direction));
        }
        self.oldest.push(Reverse((flow.expiry_time(), number)));
        if number == self.slots.len() {
            self.slots.push(Some(flow));
        } else {
            self.slots[number] = Some(flow);
        }
        Some(number)
    }

    /// The flow that ends first.
    fn first_to_expire(&mut self) -> Option<usize> {
        loop {
            let Reverse((told, number)) = *self.oldest.peek()?;
            let expiry = self.get_mut(number).expiry_time();
            if expiry <= told {
                return Some(number);
            }
            self.oldest.pop();
            self.oldest.push(Reverse((expiry, number)));
        }
    }

    fn remove_first(&mut self, number: usize) {
        self.oldest.pop();
        self.remove_flow(number);
    }

    fn remove(&mut self, number: usize) {
        self.oldest.retain(|Reverse((_, other))| *other != number);
        self.remove_flow(number);
    }

    fn remove_flow(&mut self, number: usize) {
        let Some(flow) = self.slots[number].take() else { return };
        for direction in [0, 1] {
            let key = (flow.table, flow.ids[direction]);
            if self.places.get(&key) == Some(&(number, direction)) {
                self.places.remove(&key);
            }
        }
        self.free.push(number);
    }

    /// Removes expired flows, and further ones beyond the capacity.
    pub(super) fn expire_flows(&mut self, now: Time) {
        while let Some(first) = self.first_to_expire() {
            if self.get_mut(first).expiry_time() > now && self.len() <= self.capacity {
                return;
            }
            self.remove_first(first);
        }
    }

    /// Removes all flows for which this is true.
    pub(super) fn remove_if(&mut self, is_meant: impl Fn(&Flow) -> bool) {
        let meant: Vec<usize> =
            (0..self.slots.len()).filter(|n| self.slots[*n].as_ref().is_some_and(&is_meant)).collect();
        self.oldest.retain(|Reverse((_, number))| meant.binary_search(number).is_err());
        meant.into_iter().for_each(|number| self.remove_flow(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(port: u16) -> FlowId {
        FlowId { src: [1, 0, 0, 1].into(), sport: port, dst: [2, 0, 0, 2].into(), dport: 80 }
    }
    fn flow(port: u16, used: u64) -> Flow {
        Flow {
            table: 0,
            ids: [id(port), id(port + 1000).reverse()],
            outputs: [0, 1],
            input: 0,
            reply_annotation: 0,
            state: 0,
            timeout: Duration::from_secs(10),
            used: Time::new(used, 0),
        }
    }
    const NONE: Duration = Duration::ZERO;

    #[test]
    fn flows_are_found_in_both_directions() {
        let mut flows = Flows::new(10).unwrap();
        let number = flows.insert_flow(flow(1, 0), Time::ZERO, NONE).unwrap();
        assert_eq!(flows.find_flow(0, id(1)), Some((number, 0)));
        assert_eq!(flows.find_flow(0, id(1001).reverse()), Some((number, 1)));
        assert_eq!((flows.find_flow(1, id(1)), flows.get_mut(number).rewritten_id(0)), (None, id(1001)));
        assert_eq!(flows.get_mut(number).rewritten_id(1), id(1).reverse());
    }

    #[test]
    fn the_one_that_ends_first_makes_room_unless_it_is_guaranteed() {
        let mut flows = Flows::new(2).unwrap();
        for port in [1, 2] {
            flows.insert_flow(flow(port, port.into()), Time::ZERO, NONE).unwrap();
        }
        let (first, _) = flows.find_flow(0, id(1)).unwrap();
        flows.get_mut(first).used = Time::new(5, 0);
        flows.insert_flow(flow(3, 6), Time::new(6, 0), NONE).unwrap();
        assert_eq!((flows.find_flow(0, id(2)), flows.len()), (None, 2));
        assert_eq!(flows.insert_flow(flow(4, 7), Time::new(7, 0), Duration::from_secs(5)), None);
        assert!(flows.find_flow(0, id(1)).is_some());
    }

    #[test]
    fn old_flows_are_reaped_and_meant_ones_removed() {
        let mut flows = Flows::new(10).unwrap();
        for port in [1, 2, 3] {
            flows.insert_flow(flow(port, port.into()), Time::ZERO, NONE).unwrap();
        }
        flows.expire_flows(Time::new(12, 0));
        assert_eq!((flows.len(), flows.find_flow(0, id(3)).is_some()), (1, true));
        flows.remove_if(|flow| flow.input == 0);
        assert_eq!((flows.len(), flows.iter().count()), (0, 0));
        // A number is used again.
        assert_eq!(flows.insert_flow(flow(9, 1), Time::ZERO, NONE), Some(2));
    }
}
