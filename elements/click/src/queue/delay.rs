//! The common part of DelayShaper and DelayUnqueue: a packet held until its time.
use crate::basic::timed_source::format_interval;
use artery_engine::{Context, DropReason, HandlerError, Packet, Time, parse_value};
use std::collections::VecDeque;
use std::time::Duration;

/// The packet that waits, and how long packets do.
pub(super) struct Delay {
    delay: Duration,
    /// One packet, or the segments that one was cut into before. Their timestamps are their send times.
    held: VecDeque<Packet>,
}

/// The next step of the element.
pub(super) enum DelayStep {
    /// Send this packet now.
    Send(Packet),
    /// Wait until this time.
    Wait(Time),
    /// Nothing to pull upstream now.
    Nothing,
}

impl Delay {
    pub(super) fn new(delay: Duration) -> Delay {
        Delay { delay, held: VecDeque::new() }
    }
    /// Pulls a packet unless one is held, and returns the next step.
    pub(super) fn next(&mut self, cx: &mut Context<'_>) -> DelayStep {
        if self.held.is_empty() {
            self.pull_packet(cx);
        }
        let Some(packet) = self.held.pop_front() else { return DelayStep::Nothing };
        let due = packet.timestamp();
        if due <= cx.now() {
            return DelayStep::Send(packet);
        }
        self.held.push_front(packet);
        DelayStep::Wait(due)
    }
    /// The send time of the held packet.
    pub(super) fn due_time(&self) -> Option<Time> {
        self.held.front().map(Packet::timestamp)
    }
    fn pull_packet(&mut self, cx: &mut Context<'_>) {
        let mut batch = cx.scratch_batch();
        cx.pull(0, 1, &mut batch);
        for mut packet in batch.drain() {
            let arrived = if packet.timestamp().seconds() == 0 { cx.now() } else { packet.timestamp() };
            packet.set_timestamp(arrived + self.delay);
            self.held.push_back(packet);
        }
        cx.recycle_batch(batch);
    }
    /// Takes over the held packets of another instance.
    pub(super) fn absorb_held(&mut self, old: &mut Delay) {
        self.held.append(&mut old.held);
    }
    /// When the graph is replaced, discards what no successor took over.
    pub(super) fn discard_held(&mut self, cx: &mut Context<'_>) {
        if cx.is_replacing() {
            self.held.drain(..).for_each(|packet| cx.discard(packet, DropReason::Replaced));
        }
    }
    pub(super) fn delay_text(&self) -> Result<String, HandlerError> {
        Ok(format_interval(self.delay))
    }
    pub(super) fn set_delay(&mut self, text: &str) -> Result<(), HandlerError> {
        self.delay = parse_value(text).map_err(|_| HandlerError::refused("delay must be a timestamp"))?;
        Ok(())
    }
}
