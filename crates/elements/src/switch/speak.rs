//! What a switch says to other bridges.
use artery_engine::{Context, DropReason};
use artery_table::stp::Outgoing;
use artery_table::switch::counts::Counts;

/// Sends messages, each by its port.
pub(super) fn send_all(outgoing: &Outgoing, counts: &Counts, cx: &mut Context<'_>) {
    for (port, frame) in outgoing {
        let Some(packet) = cx.pool().packet_from(frame) else {
            cx.count_discarded(DropReason::PoolEmpty, 1);
            continue;
        };
        if let Some(counts) = counts.ports.get(usize::from(*port)) {
            counts.sent[0].add(1);
            counts.sent[1].add(frame.len() as u64);
        }
        cx.send_or_discard(usize::from(*port), packet, DropReason::NoOutput);
    }
}
