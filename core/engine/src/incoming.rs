//! Packets that come from other workers.
use crate::graph::Graph;
use crate::handover::{RING, Receiver};
use crate::reason::DropReason;
use artery_packet::BATCH;
use artery_rcu::Turn;

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
