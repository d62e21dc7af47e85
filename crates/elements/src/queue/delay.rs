//! What DelayShaper and DelayUnqueue share: one packet that waits until its time has come.
use crate::basic::timed_source::interval;
use crate::value::value;
use artery_engine::{Context, DropReason, HandlerError, Packet, Time};
use std::time::Duration;

/// The packet that waits, and how long packets do.
pub(super) struct Delay {
    delay: Duration,
    /// Its timestamp says when it may go.
    held: Option<Packet>,
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
        Delay { delay, held: None }
    }
    /// Pulls a packet unless one is held, and says what is to be done with it.
    pub(super) fn next(&mut self, cx: &mut Context<'_>) -> Next {
        let Some(packet) = self.held.take().or_else(|| self.pull(cx)) else { return Next::Nothing };
        let due = packet.timestamp();
        if due <= cx.now() {
            return Next::Send(packet);
        }
        self.held = Some(packet);
        Next::Wait(due)
    }
    /// When the held packet may go.
    pub(super) fn due(&self) -> Option<Time> {
        self.held.as_ref().map(Packet::timestamp)
    }
    fn pull(&self, cx: &mut Context<'_>) -> Option<Packet> {
        let mut batch = cx.spare();
        cx.pull(0, 1, &mut batch);
        let packet = batch.drain().next();
        cx.give_spare(batch);
        let mut packet = packet?;
        let arrived = if packet.timestamp().seconds() == 0 { cx.now() } else { packet.timestamp() };
        packet.set_timestamp(arrived + self.delay);
        Some(packet)
    }
    /// Takes over the packet that another holds.
    pub(super) fn take_from(&mut self, old: &mut Delay) {
        self.held = self.held.take().or(old.held.take());
    }
    /// What no heir took over is lost when the graph is replaced.
    pub(super) fn stop(&mut self, cx: &mut Context<'_>) {
        if cx.is_replacing() {
            self.held.take().into_iter().for_each(|packet| cx.discard(packet, DropReason::Replaced));
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
