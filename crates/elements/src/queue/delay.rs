//! What DelayShaper and DelayUnqueue share: a packet that waits until its time has come.
use crate::basic::timed_source::interval;
use crate::value::value;
use artery_engine::{Context, DropReason, HandlerError, Packet, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// The packet that waits, and how long packets do.
pub(super) struct Delay {
    delay: Duration,
    /// One packet, or the segments that one was cut into on its way here. Their timestamps say when they may go.
    held: VecDeque<Packet>,
}

/// What there is to do.
pub(super) enum Next {
    /// Send this packet.
    Send(Packet),
    /// Wait until then.
    Wait(Time),
    /// Nothing came from upstream.
    Nothing,
}

impl Delay {
    pub(super) fn new(delay: Duration) -> Delay {
        Delay { delay, held: VecDeque::new() }
    }
    /// Pulls a packet unless one is held, and says what is to be done with it.
    pub(super) fn next(&mut self, cx: &mut Context<'_>) -> Next {
        if self.held.is_empty() {
            self.pull(cx);
        }
        let Some(packet) = self.held.pop_front() else { return Next::Nothing };
        let due = packet.timestamp();
        if due <= cx.now() {
            return Next::Send(packet);
        }
        self.held.push_front(packet);
        Next::Wait(due)
    }
    /// When the held packet may go.
    pub(super) fn due(&self) -> Option<Time> {
        self.held.front().map(Packet::timestamp)
    }
    fn pull(&mut self, cx: &mut Context<'_>) {
        let mut batch = cx.spare();
        cx.pull(0, 1, &mut batch);
        for mut packet in batch.drain() {
            let arrived = if packet.timestamp().seconds() == 0 { cx.now() } else { packet.timestamp() };
            packet.set_timestamp(arrived + self.delay);
            self.held.push_back(packet);
        }
        cx.give_spare(batch);
    }
    /// Takes over the packet that another holds.
    pub(super) fn take_from(&mut self, old: &mut Delay) {
        self.held.append(&mut old.held);
    }
    /// What no heir took over is lost when the graph is replaced.
    pub(super) fn stop(&mut self, cx: &mut Context<'_>) {
        if cx.is_replacing() {
            self.held.drain(..).for_each(|packet| cx.discard(packet, DropReason::Replaced));
        }
    }
    pub(super) fn print(&self) -> Result<String, HandlerError> {
        Ok(interval(self.delay))
    }
    pub(super) fn set(&mut self, text: &str) -> Result<(), HandlerError> {
        self.delay = value(text).map_err(|_| HandlerError::refused("delay must be a timestamp"))?;
        Ok(())
    }
}
