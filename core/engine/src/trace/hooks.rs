//! Where the graph records what happens to packets. Nothing here runs while no trace is armed.
use super::TraceEvent;
use super::scene::Scene;
use crate::context::Context;
use crate::graph::Graph;
use crate::handover::PortRef;
use crate::reason::DropReason;
use artery_packet::{Batch, Mark, OffloadStats, Packet};

impl Graph {
    /// Looks whether a trace is armed; once a turn.
    #[inline]
    pub(crate) fn poll_trace(&mut self) {
        self.tracing = self.tracer.is_active();
        if self.tracing {
            self.tracer.disarm_if_over();
        }
    }

    /// What waits at an output of an element without inputs is about to be sent.
    #[cold]
    #[inline(never)]
    pub(crate) fn trace_begin(&mut self, node: usize, output: usize) {
        let mut batch =
            std::mem::replace(&mut self.nodes[node].outputs[output].batch, Batch::without_storage());
        self.scene().begin_packets(node, output, batch.iter_mut().into_slice());
        self.nodes[node].outputs[output].batch = batch;
    }

    /// A batch is about to be handed to an input.
    #[cold]
    #[inline(never)]
    pub(crate) fn trace_push(&mut self, to: PortRef, batch: &mut Batch) {
        self.scene().record_entry(to, batch.iter_mut().into_slice());
    }

    /// All of a batch but the first `before` packets were pulled out of an output, for an input.
    #[cold]
    #[inline(never)]
    pub(crate) fn trace_pull(&mut self, from: PortRef, to: PortRef, batch: &mut Batch, before: usize) {
        if let Some(pulled) = batch.iter_mut().into_slice().get_mut(before..) {
            let (node, output) = (from.0 as usize, usize::from(from.1));
            if self.nodes[node].inputs.is_empty() {
                self.scene().begin_packets(node, output, pulled);
            }
            self.scene().record_entry(to, pulled);
        }
    }

    /// Packets are about to be discarded by an element.
    #[cold]
    #[inline(never)]
    pub(crate) fn trace_discards<'a>(
        &mut self,
        node: usize,
        packets: impl IntoIterator<Item = &'a mut Packet>,
        reason: DropReason,
    ) {
        let scene = self.scene();
        let marked = packets.into_iter().filter(|packet| packet.is_marked());
        marked.for_each(|packet| scene.record_drop(node, packet, reason));
    }

    /// Finishes a batch of which packets may be followed.
    #[cold]
    #[inline(never)]
    pub(crate) fn trace_finish(&mut self, node: usize, batch: &mut Batch) -> OffloadStats {
        let before = batch_marks(batch);
        let finished = batch.apply_offloads();
        let scene = self.scene();
        for mark in missing_marks(&before, batch) {
            let is_cut = batch.iter().any(|packet| packet.mark().is_some_and(|m| m.number == mark.number));
            let event = match finished {
                _ if is_cut => TraceEvent::Cut,
                OffloadStats { malformed: 0, .. } => TraceEvent::Dropped(DropReason::PoolEmpty),
                _ => TraceEvent::Dropped(DropReason::Malformed),
            };
            scene.record_end(node, mark, event);
        }
        finished
    }

    fn scene(&mut self) -> Scene<'_> {
        let time = self.clock.now();
        Scene { layout: &self.plan, tracer: &self.tracer, worker: self.worker, time }
    }
}

/// Packets that are followed.
impl Context<'_> {
    /// The marks of packets in a batch that are followed, for a later [`Context::record_sent`]; none, and no
    /// work, while no trace is armed.
    #[inline]
    pub fn followed_marks(&self, batch: &Batch) -> Vec<Mark> {
        if self.graph().tracing { batch_marks(batch) } else { Vec::new() }
    }
    /// Says that a port has taken those of the marked packets to be sent that are no longer in the batch, and
    /// how many of all it was given it refused.
    #[inline]
    pub fn record_sent(&mut self, marks: &[Mark], rest: &Batch, port: &str, refused: u64) {
        if !marks.is_empty() {
            let node = self.number();
            let scene = self.graph_mut().scene();
            for mark in missing_marks(marks, rest) {
                scene.record_end(node, mark, TraceEvent::Sent(port.to_string(), refused));
            }
        }
    }
}

#[cold]
#[inline(never)]
fn batch_marks(batch: &Batch) -> Vec<Mark> {
    batch.iter().filter_map(Packet::mark).collect()
}

/// Those marks whose packets are no longer in a batch.
fn missing_marks(marks: &[Mark], batch: &Batch) -> Vec<Mark> {
    let is_gone = |mark: &&Mark| batch.iter().all(|packet| packet.mark() != Some(**mark));
    marks.iter().filter(is_gone).copied().collect()
}
