//! Detects whether the packets of a batch come in runs of one flow, which is worth using, and
//! how long they are.
use artery_engine::Batch;
use artery_filter::engine::are_of_one_flow;
use artery_packet::Packet;

/// Adjacent packets that are compared.
const LOOKED_AT: usize = 4;
/// Numbers that are compared at once.
const AT_A_TIME: usize = 8;

/// Whether packets seem to come in runs: a few adjacent pairs throughout the batch are of one flow each. A
/// wrong guess costs only time.
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

/// How many values at the front equal this one. Usually all do, so several are compared at a time.
#[inline]
pub(super) fn run_length<T: Copy + PartialEq>(all: &[T], first: T) -> usize {
    let is_alike =
        |chunk: &&[T; AT_A_TIME]| chunk.iter().fold(true, |alike, other| alike & (*other == first));
    let (chunks, _) = all.as_chunks::<AT_A_TIME>();
    let alike = AT_A_TIME * chunks.iter().take_while(is_alike).count();
    alike + all[alike..].iter().take_while(|other| **other == first).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_with_the_first_other_number() {
        for end in 0..40 {
            let mut numbers = [7; 40];
            numbers[end..].iter_mut().step_by(3).for_each(|number| *number = 8);
            (0..40).for_each(|len| assert_eq!(run_length(&numbers[..len], 7), len.min(end), "{end}, {len}"));
        }
        assert_eq!((run_length(&[], 7), run_length(&[7; 256], 7)), (0, 256));
    }
}
