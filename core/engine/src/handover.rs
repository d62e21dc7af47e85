//! Packets on their way from one worker to another: a ring for each connection that crosses.
//!
//! Only a class that says `boundary` (a queue) can be pushed to from another worker; it belongs to the worker
//! that pulls from it. A packet that finds the ring full is discarded as if the queue were full.
use crate::control::Control;
use artery_packet::{Batch, Packet};
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;

/// One connection, seen from its end: an element and its input.
pub(crate) type PortRef = (u32, u16);

/// Packets that one ring holds.
pub(crate) const RING: usize = 1024;

/// The sending end, in place of a connection within the graph.
pub(crate) struct Sender<G> {
    ring: Producer<Packet>,
    control: Arc<Control<G>>,
    /// The worker that receives.
    worker: usize,
}

pub(crate) struct Receiver {
    ring: Consumer<Packet>,
    pub(crate) to: PortRef,
}

/// Makes a ring to the input `to`, whose element is on `worker`.
pub(crate) fn new_ring<G>(control: &Arc<Control<G>>, worker: usize, to: PortRef) -> (Sender<G>, Receiver) {
    let (producer, consumer) = RingBuffer::new(RING);
    (Sender { ring: producer, control: control.clone(), worker }, Receiver { ring: consumer, to })
}

impl<G> Sender<G> {
    /// Hands over what there is room for, and leaves the rest.
    pub(crate) fn send_batch(&mut self, batch: &mut Batch) {
        // Once the receiver is gone, packets put into the ring would not be counted as dropped.
        let room = if self.ring.is_abandoned() { 0 } else { self.ring.slots() };
        let n = batch.len().min(room);
        if let Ok(chunk) = self.ring.write_chunk_uninit(n) {
            chunk.fill_from_iter(batch.drain_front(n));
        }
        self.control.mailbox(self.worker).wake_if_asleep();
    }
}

impl Receiver {
    pub(crate) fn receive_batch(&mut self, max: usize, into: &mut Batch) {
        let n = max.min(self.ring.slots());
        if let Ok(chunk) = self.ring.read_chunk(n) {
            into.extend(chunk);
        }
    }
    /// The same ring, leading to another graph's element.
    pub(crate) fn redirect_to(self, node: usize) -> Receiver {
        Receiver { to: (node as u32, self.to.1), ..self }
    }
    /// The element that it feeds.
    pub(crate) fn node(&self) -> usize {
        self.to.0 as usize
    }
    pub(crate) fn has_packets(&self) -> bool {
        !self.ring.is_empty()
    }
    /// Whether nothing waits and nothing will come.
    pub(crate) fn is_done(&self) -> bool {
        self.ring.is_abandoned() && self.ring.is_empty()
    }
}
