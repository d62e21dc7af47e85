//! How elements that read and write files pass packets on: what their classes have in common.
use artery_engine::{Batch, Context, DropReason, Element, Signal};

/// A source of packets, which are pushed or pulled.
pub(super) trait Source {
    /// Adds up to `max` packets to `into`; returns whether there may be more at once.
    fn fill_batch(&mut self, max: usize, into: &mut Batch, cx: &mut Context<'_>) -> bool;
}

/// Adds up to `max` packets of a source to `into`, for the element that pulls.
pub(super) fn pull_from(source: &mut impl Source, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
    let mut batch = cx.scratch_batch();
    let more = source.fill_batch(max, &mut batch, cx);
    into.append(&mut batch);
    cx.recycle_batch(batch);
    cx.set_signal(Signal::NonEmpty, more);
}

/// Sends a burst of a source's packets, or lets the next one be pulled.
pub(super) fn run_source(source: &mut impl Source, cx: &mut Context<'_>) -> bool {
    if cx.output_is_pull(0) {
        // The next packet is due.
        cx.set_signal(Signal::NonEmpty, true);
        return true;
    }
    let mut batch = cx.scratch_batch();
    if source.fill_batch(cx.burst(), &mut batch, cx) {
        cx.schedule();
    }
    let sent = !batch.is_empty();
    cx.send_all(0, &mut batch);
    cx.recycle_batch(batch);
    sent
}

/// Has an active source go on.
pub(super) fn resume_source(is_active: bool, cx: &mut Context<'_>) {
    if is_active {
        if cx.output_is_pull(0) { cx.set_signal(Signal::NonEmpty, true) } else { cx.schedule() }
    }
}

/// Which part of all packets is sampled, of 2 to the power of `bits`.
pub(super) fn probability_text(sample: u32, bits: u32) -> String {
    let text = format!("{:.9}", f64::from(sample) / f64::from(1u32 << bits));
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Sends what was written on, or ends it where nothing follows.
pub(super) fn send_or_end(batch: &mut Batch, cx: &mut Context<'_>) {
    if cx.outputs() > 0 {
        cx.send_all(0, batch);
    } else {
        cx.discard_all(batch, DropReason::Discarded);
    }
}

/// Pulls a burst, and has the element take it as if it were pushed.
pub(super) fn pull_and_push(element: &mut impl Element, cx: &mut Context<'_>) -> bool {
    let mut batch = cx.scratch_batch();
    let pulled = cx.pull(0, cx.burst(), &mut batch);
    element.push(0, &mut batch, cx);
    cx.recycle_batch(batch);
    if pulled > 0 || !cx.upstream_idle(0) {
        cx.schedule();
    }
    pulled > 0
}
