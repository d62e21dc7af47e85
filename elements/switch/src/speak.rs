//! Frames that a switch sends itself: to other bridges, and to hosts.
use artery_engine::{Context, DropReason};
use artery_l2::counts::Counts;

/// Sends frames, each by its port.
pub(super) fn send_all<F: AsRef<[u8]>>(outgoing: &[(u16, F)], counts: &Counts, cx: &mut Context<'_>) {
    for (port, frame) in outgoing {
        let frame = frame.as_ref();
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
