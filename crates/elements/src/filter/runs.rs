//! Whether packets of a batch come in runs, one flow's behind one another: then it pays to look for that.
use artery_engine::Batch;
use artery_filter::engine::are_of_one_flow;
use artery_packet::Packet;

/// Neighbors that are looked at.
const LOOKED_AT: usize = 4;

/// Whether they seem to, by what they carry: a few neighbors throughout the batch are of one flow each. To guess wrong costs time, no
/// more.
#[inline]
pub(super) fn seem_to_come(batch: &Batch, carried: impl Fn(&Packet) -> &[u8]) -> bool {
    let packets = batch.iter().as_slice();
    let step = packets.len() / LOOKED_AT;
    let is_run = |n: usize| match packets.get(n * step..) {
        Some([one, other, ..]) => are_of_one_flow(carried(one), carried(other)),
        _ => false,
    };
    step >= 2 && (0..LOOKED_AT).all(is_run)
}
