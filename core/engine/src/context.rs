//! What an element can do during a call.
//!
//! A packet handed to an element is sent, discarded with a reason, or kept by it; nothing else can be
//! done with one but dropping it silently, which review does not let pass. Nothing here locks or
//! allocates on a packet's way.
use crate::events::Interest;
use crate::graph::{Counts, Graph, HandlerCall, Signal};
use crate::handler_error::HandlerError;
use crate::handler_names::STOP;
use crate::monitor::{Level, Monitor};
use crate::reason::DropReason;
use artery_packet::{Batch, Packet, Pool, Time};
use artery_rcu::Turn;
use std::os::fd::BorrowedFd;

/// An element's access to the graph, for the time of one call.
pub struct Context<'a> {
    graph: &'a mut Graph,
    node: usize,
    turn: &'a Turn<'a>,
}

/// Packets: output, storage, drops, and offloads.
impl<'a> Context<'a> {
    pub(crate) fn new(graph: &'a mut Graph, node: usize, turn: &'a Turn<'a>) -> Context<'a> {
        Context { graph, node, turn }
    }

    pub(crate) fn graph(&self) -> &Graph {
        self.graph
    }
    pub(crate) fn graph_mut(&mut self) -> &mut Graph {
        self.graph
    }

    /// Sends a packet by an output. It moves on when this call returns, or when a batch is full.
    #[inline]
    pub fn send(&mut self, output: usize, packet: Packet) {
        match self.graph.nodes[self.node].outputs.get_mut(output) {
            Some(out) => {
                out.batch.push(packet);
                if out.batch.len() >= self.graph.burst {
                    self.graph.flush_output(self.node, output);
                }
            }
            None => self.discard(packet, DropReason::NoOutput),
        }
    }
    /// Sends all packets of a batch by an output.
    #[inline]
    pub fn send_all(&mut self, output: usize, batch: &mut Batch) {
        match self.graph.nodes[self.node].outputs.get_mut(output) {
            Some(out) if out.batch.is_empty() && batch.len() <= self.graph.burst => {
                std::mem::swap(&mut out.batch, batch);
            }
            Some(_) => batch.drain().for_each(|packet| self.send(output, packet)),
            None => self.discard_all(batch, DropReason::NoOutput),
        }
    }
    /// Sends a packet by an output if it is connected, else discards it.
    #[inline]
    pub fn send_or_discard(&mut self, output: usize, packet: Packet, reason: DropReason) {
        if output < self.outputs() { self.send(output, packet) } else { self.discard(packet, reason) }
    }
    /// The packet as `edit` leaves it; where it can't be edited, it is discarded for the reason given.
    #[inline]
    pub fn edit_or_discard(
        &mut self,
        mut packet: Packet,
        edit: impl FnOnce(&mut Packet) -> Result<(), DropReason>,
    ) -> Option<Packet> {
        if let Err(reason) = edit(&mut packet) {
            self.discard(packet, reason);
            return None;
        }
        Some(packet)
    }
    /// Ends a packet and counts why.
    #[inline]
    pub fn discard(&mut self, mut packet: Packet, reason: DropReason) {
        self.graph.nodes[self.node].counts.drops.add(reason, 1);
        if self.graph.tracing {
            self.graph.trace_discards(self.node, [&mut packet], reason);
        }
        drop(packet);
    }
    /// Ends all packets of a batch and counts why.
    #[inline]
    pub fn discard_all(&mut self, batch: &mut Batch, reason: DropReason) {
        self.graph.discard_all(self.node, batch, reason);
    }
    /// Ends those packets of a batch whose port is monitored and that have come as far as they should; the
    /// others stay. One load for a batch while no port is.
    #[inline]
    pub fn drop_monitored(&mut self, at: Level, batch: &mut Batch) {
        if self.graph.monitors.end_any(at) {
            self.exit_monitored(at, batch);
        }
    }
    fn exit_monitored(&mut self, at: Level, batch: &mut Batch) {
        if self.graph.tracing {
            let monitors = self.graph.monitors.clone();
            let ending = batch.iter_mut().filter(|packet| monitors.ends_at(packet.in_port(), at));
            self.graph.trace_discards(self.node, ending, DropReason::Monitored);
        }
        let (before, monitors) = (batch.len(), &self.graph.monitors);
        batch.filter_map(|packet| (!monitors.ends_at(packet.in_port(), at)).then_some(packet));
        let ended = before - batch.len();
        self.graph.nodes[self.node].counts.drops.add(DropReason::Monitored, ended as u64);
    }
    /// Whether a packet is to end at this point because its port is monitored, as [`DropReason::Monitored`];
    /// where packets are looked at one by one.
    #[inline]
    pub fn is_monitored_at(&self, at: Level, packet: &Packet) -> bool {
        let monitors = &self.graph.monitors;
        monitors.end_any(at) && monitors.ends_at(packet.in_port(), at)
    }
    /// Where packets that this port receives end.
    #[inline]
    pub fn port_monitor(&self, port: u16) -> Monitor {
        self.graph.monitors.monitor_of(port)
    }
    /// Sets where packets that this port receives end, on all workers.
    pub fn set_monitor(&mut self, port: u16, monitor: Monitor) {
        self.graph.monitors.set_monitor(port, monitor);
    }
    /// Counts packets that ended without ever being in a frame, such as one that a device could not receive.
    pub fn count_discarded(&mut self, reason: DropReason, n: u64) {
        self.graph.nodes[self.node].counts.drops.add(reason, n);
    }
    /// Pulls up to `max` packets from an input into `into`; returns how many came. They may be more where
    /// packets are finished first, and long ones cut.
    pub fn pull(&mut self, input: usize, max: usize, into: &mut Batch) -> usize {
        let Some((node, output)) = self.graph.nodes[self.node].inputs.get(input).and_then(|i| i.from) else {
            return 0;
        };
        let before = into.len();
        let max = max.min(self.graph.burst);
        let up = node as usize;
        self.graph
            .visit_element(up, self.turn, |element, cx| element.pull(usize::from(output), max, into, cx));
        if self.graph.nodes[self.node].finished {
            self.graph.apply_offloads(self.node, into);
        }
        if self.graph.tracing {
            self.graph.trace_pull((node, output), (self.node as u32, input as u16), into, before);
        }
        let pulled = into.len().saturating_sub(before);
        self.graph.count_pulled(up, self.node, pulled as u64);
        pulled
    }
    /// Takes what this element has sent to an output that is pulled from; see [`crate::Element::pull`].
    pub fn collect_sent(&mut self, output: usize, into: &mut Batch) {
        if let Some(out) = self.graph.nodes[self.node].outputs.get_mut(output) {
            into.append(&mut out.batch);
        }
    }
    /// In a task's run: carries what was sent so far to its end before going on. Elsewhere it
    /// must not be called.
    pub fn flush_sends(&mut self) {
        self.graph.deliver_sent(self.node, self.turn);
    }
    /// An empty batch to work with; return it with [`Context::recycle_batch`].
    pub fn scratch_batch(&mut self) -> Batch {
        self.graph.scratch_batch()
    }
    /// Gives a batch back; packets still in it go back to their pool.
    pub fn recycle_batch(&mut self, batch: Batch) {
        self.graph.recycle_batch(batch);
    }
    /// Number of connected outputs.
    #[inline]
    pub fn outputs(&self) -> usize {
        self.graph.nodes[self.node].outputs.len()
    }
    /// Number of connected inputs.
    #[inline]
    pub fn inputs(&self) -> usize {
        self.graph.nodes[self.node].inputs.len()
    }
    /// Whether packets are pulled from this output, rather than pushed.
    pub fn output_is_pull(&self, output: usize) -> bool {
        self.graph.nodes[self.node].outputs.get(output).is_some_and(|out| out.is_pull)
    }
    /// Whether packets are pulled through this input, rather than pushed to it.
    pub fn input_is_pull(&self, input: usize) -> bool {
        self.graph.nodes[self.node].inputs.get(input).is_some_and(|input| input.from.is_some())
    }
    /// Most packets to send or pull at a time.
    #[inline]
    pub fn burst(&self) -> usize {
        self.graph.burst
    }
    /// Where packets come from.
    #[inline]
    pub fn pool(&self) -> &'static Pool {
        self.graph.pool
    }
    /// Applies the offloads (checksums, segmentation) that senders left to do for the packets of a batch,
    /// which may become longer than a burst; see [`Batch::apply_offloads`].
    pub fn apply_offloads(&mut self, batch: &mut Batch) {
        self.graph.apply_offloads(self.node, batch);
    }
    /// A copy of a packet; `None`, counted as [`DropReason::PoolEmpty`], when the pool is empty.
    pub fn duplicate_packet(&mut self, packet: &Packet) -> Option<Packet> {
        let copy = packet.duplicate();
        if copy.is_none() {
            self.count_discarded(DropReason::PoolEmpty, 1);
        }
        copy
    }
}

/// Time, tasks, signals, and requests to stop.
impl<'a> Context<'a> {
    /// The time; the same all through one task run.
    #[inline]
    pub fn now(&mut self) -> Time {
        self.graph.clock.now()
    }
    /// Lets this element's task run again when its turn comes.
    #[inline]
    pub fn schedule(&mut self) {
        self.graph.scheduler.schedule_task(self.node);
    }
    /// Lets this element's task run at `time`; replaces what was set before. [`Time::NEVER`] takes it back.
    pub fn wake_at(&mut self, time: Time) {
        self.graph.scheduler.wake_at(self.node, time);
    }
    /// Lets this element's task run once when the file is ready. Ask again after each run
    /// that leaves it waiting.
    pub fn watch_file(&mut self, file: BorrowedFd<'_>, interest: Interest) {
        let watched = self.graph.events.as_ref().map(|events| events.watch_file(file, self.node, interest));
        match watched {
            Some(Ok(())) => self.graph.watching[self.node] = true,
            // Where readiness is unknown, the task has to look.
            _ => self.schedule(),
        }
    }
    /// Tells others that this element's signal changed. Tasks that listen run when it becomes active.
    #[inline]
    pub fn set_signal(&mut self, signal: Signal, active: bool) {
        self.graph.set_signal(self.node, signal, active);
    }
    /// Sets for how many packets there is room, and [`Signal::NonFull`] accordingly.
    #[inline]
    pub fn signal_room(&mut self, packets: usize) {
        self.graph.nodes[self.node].room = packets;
        self.graph.set_signal(self.node, Signal::NonFull, packets > 0);
    }
    /// How many packets can be pushed to this output of which none need be discarded for want of room; at
    /// least one unless [`Context::downstream_full`].
    pub fn downstream_room(&self, output: usize) -> usize {
        let nodes = &self.graph.nodes;
        let sinks = nodes[self.node].outputs.get(output).map_or(&[][..], |output| &output.sinks);
        Graph::least_room(nodes, sinks)
    }
    /// Whether nothing can be pulled from this input until a signal wakes this element's task.
    pub fn upstream_idle(&self, input: usize) -> bool {
        let nodes = &self.graph.nodes;
        let sources = nodes[self.node].inputs.get(input).map_or(&[][..], |input| &input.sources);
        !Graph::any_active(nodes, sources, Signal::NonEmpty)
    }
    /// Whether whatever is pushed to this output would be discarded until a signal wakes this element's task.
    pub fn downstream_full(&self, output: usize) -> bool {
        let nodes = &self.graph.nodes;
        let sinks = nodes[self.node].outputs.get(output).map_or(&[][..], |output| &output.sinks);
        !sinks.is_empty() && !Graph::any_active(nodes, sinks, Signal::NonFull)
    }
    /// This turn, to read published values with.
    #[inline]
    pub fn turn(&self) -> &'a Turn<'a> {
        self.turn
    }
    /// The worker this runs on.
    pub fn worker(&self) -> usize {
        self.graph.worker
    }
}

/// The router: names, counts, and output.
impl Context<'_> {
    /// The element's name in the configuration, with that of its compounds.
    pub fn name(&self) -> &str {
        self.graph.plan.name(self.node)
    }
    /// The element's number in the configuration.
    pub fn number(&self) -> usize {
        self.node
    }
    /// The number of the element called `name` here: in this compound, or further out.
    pub fn find_element(&self, name: &str) -> Option<usize> {
        self.graph.plan.find_node(name, self.graph.plan.prefix(self.node))
    }
    /// The full name of an element.
    pub fn name_of(&self, element: usize) -> &str {
        self.graph.plan.name(element)
    }
    /// Calls a read handler; `name` is looked up from where this element stands.
    pub fn read_handler(&mut self, name: &str, parameters: &str) -> Result<String, HandlerError> {
        let prefix = self.graph.plan.prefix(self.node).to_string();
        let call = HandlerCall { full: name, prefix: &prefix, text: parameters };
        self.graph.plan.clone().read_handler(self.graph, call, self.turn)
    }
    /// Calls a write handler; `name` is looked up from where this element stands.
    pub fn write_handler(&mut self, name: &str, value: &str) -> Result<(), HandlerError> {
        let prefix = self.graph.plan.prefix(self.node).to_string();
        let call = HandlerCall { full: name, prefix: &prefix, text: value };
        self.graph.plan.clone().write_handler(self.graph, call, self.turn)?;
        if name.trim_start_matches('.') == STOP {
            self.graph.control.record_stop_by(self.name());
        }
        Ok(())
    }
    /// What each element has seen on all workers, by number.
    pub fn element_counts(&mut self) -> Result<Vec<Counts>, HandlerError> {
        self.graph.all_counts(self.turn)
    }
    /// Whether `name` is a handler that can be read, or with `write` written.
    pub fn has_handler(&self, name: &str, write: bool) -> bool {
        self.graph.plan.has_handler(name, self.graph.plan.prefix(self.node), write)
    }
    /// Asks the router to stop; its driver script, if it has one, decides.
    pub fn request_stop(&mut self) {
        self.graph.control.record_stop_by(self.name());
        self.graph.control.request_stop();
    }
    /// Ends the run for good.
    pub fn end_run(&mut self) {
        self.graph.control.record_driver_end(self.name());
        self.graph.control.end_run();
    }
    /// Makes this element the one that decides what happens when something asks the router to stop. Its task
    /// runs then. False when there is one already.
    pub fn become_driver(&mut self) -> bool {
        self.graph.control.set_driver(self.graph.worker, self.node)
    }
    /// Number of requests to stop since the last call; for the driver.
    pub fn drain_stop_requests(&mut self) -> u32 {
        self.graph.control.drain_stop_requests()
    }
    /// Prints what packets make an element say: a line on standard error.
    pub fn print_message(&mut self, line: &str) {
        self.graph.control.print_message(line);
    }
    /// Says that this element can't do its work, as a file is damaged or a disk full. The router goes on, and
    /// its run counts as failed.
    pub fn report_failure(&mut self, line: &str) {
        self.graph.control.set_failed();
        self.print_message(line);
    }
    /// Prints what a script prints: text on standard output, as it is. The run ends when that fails.
    pub fn print(&mut self, text: &str) {
        self.graph.control.print(text);
    }
    /// Whether this graph takes the place of a running one, whose ports are still in use.
    pub fn is_replacing(&self) -> bool {
        self.graph.control.is_replacing()
    }
}
