//! Packets on their way from one worker to another: a ring for each connection that crosses.
//!
//! Only a class that says `boundary` (a queue) can be pushed to from another worker; it belongs to the worker
//! that pulls from it. A packet that finds the ring full is discarded as if the queue were full.
use crate::control::Control;
use crate::graph::{Graph, PortRef};
use crate::reason::DropReason;
use artery_packet::{BATCH, Batch, Packet};
use artery_rcu::Turn;
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;

/// Packets that one ring holds.
const RING: usize = 1024;

/// The sending end, in place of a connection within the graph.
pub(crate) struct Sender {
    ring: Producer<Packet>,
    control: Arc<Control>,
    /// The worker that receives.
    worker: usize,
}

pub(crate) struct Receiver {
    ring: Consumer<Packet>,
    to: PortRef,
}

/// Makes a ring to the input `to`, whose element is on `worker`.
pub(crate) fn new_ring(control: &Arc<Control>, worker: usize, to: PortRef) -> (Sender, Receiver) {
    let (producer, consumer) = RingBuffer::new(RING);
    (Sender { ring: producer, control: control.clone(), worker }, Receiver { ring: consumer, to })
}

impl Sender {
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
    fn receive_batch(&mut self, max: usize, into: &mut Batch) {
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
    fn is_done(&self) -> bool {
        self.ring.is_abandoned() && self.ring.is_empty()
    }
}

impl Graph {
    /// Takes in what a ring that leads here holds, as much as it can hold at once: its sender may
    /// still be at work.
    pub(crate) fn drain_ring(&mut self, ring: &mut Receiver, turn: &Turn<'_>) {
        let mut batch = self.scratch_batch();
        for _ in 0..RING.div_ceil(self.burst) {
            ring.receive_batch(self.burst, &mut batch);
            if batch.is_empty() {
                break;
            }
            self.deliver_batch(ring.to, &mut batch, turn);
        }
        self.recycle_batch(batch);
    }

    /// Ends the packets that are still on their way to this worker. To be called when no worker runs any
    /// more: what is handed over later is counted nowhere.
    pub(crate) fn discard_incoming(&mut self) {
        let mut batch = self.scratch_batch();
        for at in 0..self.incoming.len() {
            while self.incoming[at].has_packets() {
                self.incoming[at].receive_batch(BATCH, &mut batch);
                self.discard_all(self.incoming[at].node(), &mut batch, DropReason::Ended);
            }
        }
        self.recycle_batch(batch);
    }

    /// Takes in up to a burst of packets from each ring; forgets rings of replaced graphs when
    /// they have run dry.
    pub(crate) fn receive_incoming(&mut self, turn: &Turn<'_>) {
        self.poll_trace();
        for at in 0..self.incoming.len() {
            if !self.incoming[at].has_packets() {
                continue;
            }
            let (to, mut batch) = (self.incoming[at].to, self.scratch_batch());
            self.incoming[at].receive_batch(self.burst, &mut batch);
            self.deliver_batch(to, &mut batch, turn);
            self.recycle_batch(batch);
        }
        if self.has_inherited {
            self.incoming.retain(|receiver| !receiver.is_done());
            self.has_inherited = self.incoming.len() > self.own_incoming;
        }
    }
}
