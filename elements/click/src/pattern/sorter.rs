//! Sends the packets of a batch by the outputs of a classifier.
use super::program::PatternVerdict;
use artery_engine::{Batch, Context, DropReason, Packet};

/// Sends packets by the outputs that a function returns. Its memory is reused between batches.
#[derive(Default)]
pub(crate) struct Sorter {
    verdicts: Vec<PatternVerdict>,
}

impl Sorter {
    /// Sends each packet by its output; one that has none is discarded.
    #[inline]
    pub(crate) fn sort_batch(
        &mut self,
        batch: &mut Batch,
        cx: &mut Context<'_>,
        classify: impl Fn(&Packet) -> PatternVerdict,
    ) {
        self.verdicts.clear();
        self.verdicts.extend(batch.iter().map(classify));
        let Some(&first) = self.verdicts.first() else { return };
        if self.verdicts.iter().all(|verdict| *verdict == first) {
            return match first.output() {
                Some(output) => cx.send_all(output, batch),
                None => cx.discard_all(batch, DropReason::NoMatch),
            };
        }
        for (packet, verdict) in batch.drain().zip(&self.verdicts) {
            match verdict.output() {
                Some(output) => cx.send(output, packet),
                None => cx.discard(packet, DropReason::NoMatch),
            }
        }
    }
}
