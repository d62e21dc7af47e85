//! The node of the graph.
use crate::context::Context;
use artery_packet::{Batch, Packet};
use std::any::Any;

/// What every element can do. Most implement [`Simple`] instead, or `push` alone.
pub trait Element: Any + Send {
    /// Takes the packets that arrived on `input`. Each is sent, discarded with a reason, or kept. The
    /// default passes all on by output 0.
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let _ = input;
        cx.send_all(0, batch);
    }

    /// Adds up to `max` packets to `into` for the element that pulls from `output`. The
    /// default, right for every agnostic element with one input, pulls from upstream and passes
    /// the packets through [`Element::push`].
    fn pull(&mut self, output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        let mut batch = cx.scratch_batch();
        if cx.pull(0, max, &mut batch) > 0 {
            self.push(0, &mut batch, cx);
            cx.collect_sent(output, into);
        }
        cx.recycle_batch(batch);
    }

    /// Runs the element's task: scheduled by [`Context::schedule`], by a timer ([`Context::wake_at`]), by a
    /// signal it listens to, or by a file it watches. Returns whether there was something to do.
    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let _ = cx;
        false
    }

    /// Called once when the whole graph is made, before packets move.
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        let _ = cx;
        Ok(())
    }

    /// Takes over what `old`, the element of the same name and class in the graph being replaced, holds.
    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        let _ = (old, cx);
    }

    /// Called once when the graph ends, while its packets and counters are still there.
    fn stop(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
}

/// One packet in, the same or none out (Click's simple_action): most elements.
pub trait Simple: Any + Send {
    /// Returns the packet to send it by output 0; or sends it by another output, or discards
    /// it, and returns none.
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet>;

    /// Takes over from the replaced instance; see [`Element::take_state`].
    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        let _ = (old, cx);
    }
}

impl<S: Simple> Element for S {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        batch.filter_map(|packet| self.process(packet, cx));
        cx.send_all(0, batch);
    }
    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        Simple::take_state(self, old, cx);
    }
}

/// Why an element could not start: a sentence, and the remedy when there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError {
    /// What is wrong, and where.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl StartError {
    /// An error without a remedy of its own.
    pub fn new(message: impl Into<String>) -> StartError {
        StartError { message: message.into(), help: None }
    }
    /// Adds what to do about it.
    pub fn with_help(mut self, help: impl Into<String>) -> StartError {
        self.help = Some(help.into());
        self
    }
}
