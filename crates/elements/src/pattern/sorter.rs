//! Batches sent where a classifier says.
use artery_engine::{Batch, Context, DropReason, Packet};

/// Sends packets by the outputs that a function gives. Keeps its storage between batches.
#[derive(Default)]
pub(crate) struct Sorter {
    outputs: Vec<Option<usize>>,
}

impl Sorter {
    /// Sends each packet by its output; one that has none is discarded.
    #[inline]
    pub(crate) fn sort(
        &mut self,
        batch: &mut Batch,
        cx: &mut Context<'_>,
        classify: impl Fn(&Packet) -> Option<usize>,
    ) {
        self.outputs.clear();
        self.outputs.extend(batch.iter().map(classify));
        let Some(&first) = self.outputs.first() else { return };
        if self.outputs.iter().all(|output| *output == first) {
            return match first {
                Some(output) => cx.send_all(output, batch),
                None => cx.discard_all(batch, DropReason::NoMatch),
            };
        }
        for (packet, output) in batch.drain().zip(&self.outputs) {
            match output {
                Some(output) => cx.send(*output, packet),
                None => cx.discard(packet, DropReason::NoMatch),
            }
        }
    }
}
