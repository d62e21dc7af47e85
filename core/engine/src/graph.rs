//! The elements of one worker, their connections, and the order in which packets move between them.
//!
//! Sends go to a stack of (edge, batch). An element that was handed a batch finishes its call first; then
//! each of its sends is carried to its end before the next one starts, so that with a burst of 1 events
//! happen in Click's order: depth first. An element is taken out of its slot while it runs; whatever tries to
//! reach it then finds the slot empty, so nothing aliases and a loop without a queue can't recurse.
use crate::clock::Clock;
use crate::context::Context;
use crate::control;
use crate::element::Element;
use crate::events::Events;
use crate::handler_error::HandlerError;
use crate::handover::{self, PortRef, Receiver};
use crate::layout::Layout;
use crate::monitor::Monitors;
use crate::reason::{DropReason, Drops};
use crate::scheduler::Scheduler;
use crate::trace::Tracer;
use artery_packet::{BATCH, Batch, Pool};
use artery_rcu::Turn;
use std::any::Any;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A state that an element signals to others (Click's notifiers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// There is something to pull.
    NonEmpty,
    /// There is room to push.
    NonFull,
}

/// What the workers of a router share.
pub(crate) type Control = control::Control<Graph>;

/// The way to an element of another worker.
pub(crate) type Sender = handover::Sender<Graph>;

/// The plan of a router as its graphs see it: where elements are, and calls of their handlers. Classes, which
/// say what handlers do, stand above the graph.
pub(crate) trait RouterPlan: Any + Deref<Target = Layout> + Send + Sync {
    /// Whether `full` is a handler that can be read, or with `write` written.
    fn has_handler(&self, full: &str, prefix: &str, write: bool) -> bool;
    /// Reads a handler of any worker's element.
    fn read_handler(
        self: Arc<Self>,
        graph: &mut Graph,
        call: HandlerCall<'_>,
        turn: &Turn<'_>,
    ) -> Result<String, HandlerError>;
    /// Writes a handler of any worker's element.
    fn write_handler(
        self: Arc<Self>,
        graph: &mut Graph,
        call: HandlerCall<'_>,
        turn: &Turn<'_>,
    ) -> Result<(), HandlerError>;
    /// Reads a handler of an element of the graph's own worker.
    fn read_here(
        &self,
        graph: &mut Graph,
        element: (usize, &str),
        parameters: &str,
        turn: &Turn<'_>,
    ) -> Result<String, HandlerError>;
    /// Writes a handler of an element of the graph's own worker.
    fn write_here(
        &self,
        graph: &mut Graph,
        element: (usize, &str),
        value: &str,
        turn: &Turn<'_>,
    ) -> Result<(), HandlerError>;
}

/// A call of a handler by its name, looked up from `prefix` outwards, with parameters or a value.
#[derive(Clone, Copy)]
pub(crate) struct HandlerCall<'a> {
    pub(crate) full: &'a str,
    pub(crate) prefix: &'a str,
    pub(crate) text: &'a str,
}

/// Where a signal comes from: an element, or a place that gives none and so counts as always active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalSource {
    Element(u32),
    Unknown,
}

/// What a node has seen.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Packets that arrived, were pulled through, or began here.
    pub packets: u64,
    /// Packets that ended here, by reason.
    pub drops: Drops,
    /// Nanoseconds spent in the element itself; counted when profiling.
    pub nanos: u64,
}

impl Counts {
    /// Adds the counts of `other`.
    pub(crate) fn merge(&mut self, other: &Counts) {
        self.packets += other.packets;
        self.nanos += other.nanos;
        self.drops.merge(&other.drops);
    }
}

pub(crate) struct Output {
    /// Where packets are pushed; none for outputs that are pulled from or not connected.
    pub(crate) to: Option<PortRef>,
    /// Whether packets wait here to be pulled.
    pub(crate) is_pull: bool,
    /// The way to an element of another worker.
    pub(crate) remote: Option<Sender>,
    pub(crate) batch: Batch,
    /// Who says whether there is room downstream.
    pub(crate) sinks: Vec<SignalSource>,
}

#[derive(Default)]
pub(crate) struct Input {
    /// From where packets are pulled; none for inputs that are pushed to.
    pub(crate) from: Option<PortRef>,
    /// Who says whether there is something upstream.
    pub(crate) sources: Vec<SignalSource>,
}

pub(crate) struct Node {
    pub(crate) inputs: Vec<Input>,
    pub(crate) outputs: Vec<Output>,
    /// Whether an input is pushed to.
    pub(crate) is_pushed_to: bool,
    /// Whether its packets are finished before it sees them.
    pub(crate) finished: bool,
    pub(crate) counts: Counts,
    /// Values of its [`Signal`]s.
    pub(crate) signals: [bool; 2],
    /// While there is room to push: for how many packets.
    pub(crate) room: usize,
    /// Tasks to schedule when a signal becomes active.
    pub(crate) listeners: [Vec<u32>; 2],
}

/// Most batches that one call may set in motion. Only packets that go round in a circle reach it.
const HOPS: u32 = 1 << 20;

struct Hop {
    to: PortRef,
    batch: Batch,
}

/// The part of a configuration that one worker runs.
pub struct Graph {
    pub(crate) plan: Arc<dyn RouterPlan>,
    pub(crate) control: Arc<Control>,
    pub(crate) worker: usize,
    pub(crate) nodes: Vec<Node>,
    /// Elements of other workers are absent here, as is the one that is running.
    pub(crate) slots: Vec<Option<Box<dyn Element>>>,
    /// Configuration strings of elements that were reconfigured.
    pub(crate) reconfigured: HashMap<usize, String>,
    stack: Vec<Hop>,
    /// What comes from other workers; first this graph's own, then what it inherited.
    pub(crate) incoming: Vec<Receiver>,
    pub(crate) own_incoming: usize,
    pub(crate) has_inherited: bool,
    spares: Vec<Batch>,
    pub(crate) scheduler: Scheduler,
    pub(crate) events: Option<Events>,
    /// Elements that wait for a file.
    pub(crate) watching: Vec<bool>,
    pub(crate) clock: Clock,
    pub(crate) pool: &'static Pool,
    pub(crate) burst: usize,
    /// Which ports are monitored, in the whole router.
    pub(crate) monitors: Arc<Monitors>,
    /// Whether packets are followed; and how far that is, in the whole router.
    pub(crate) tracing: bool,
    pub(crate) tracer: Arc<Tracer>,
    /// Whether to take the time of every element; nanoseconds of the elements it called, while one runs.
    pub(crate) profile: bool,
    /// Whether nothing new is taken in: elements without inputs do not run.
    pub(crate) is_draining: bool,
    inner_nanos: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskRun {
    /// Number of tasks that ran.
    pub(crate) tasks: usize,
    /// Whether the time was up while others may have been ready.
    pub(crate) out_of_time: bool,
}

impl Graph {
    pub(crate) fn new(
        plan: Arc<dyn RouterPlan>,
        control: Arc<Control>,
        worker: usize,
        nodes: Vec<Node>,
        slots: Vec<Option<Box<dyn Element>>>,
        pool: &'static Pool,
        clock: Clock,
    ) -> Graph {
        let slots_len = slots.len();
        let mut scheduler = Scheduler::new(nodes.len());
        (0..plan.len()).for_each(|node| scheduler.set_tickets(node, plan.tickets(node)));
        let edges: usize = nodes.iter().map(|node| node.outputs.len()).sum();
        Graph {
            worker,
            scheduler,
            stack: Vec::with_capacity(2 * edges + BATCH),
            spares: (0..edges + 4).map(|_| Batch::default()).collect(),
            burst: plan.burst(),
            profile: control.profile(),
            is_draining: false,
            reconfigured: HashMap::new(),
            incoming: Vec::new(),
            own_incoming: 0,
            has_inherited: false,
            plan,
            control,
            nodes,
            slots,
            events: None,
            watching: vec![false; slots_len],
            clock,
            pool,
            monitors: Arc::default(),
            tracing: false,
            tracer: Arc::default(),
            inner_nanos: 0,
        }
    }

    /// What each element of this worker has seen, by number.
    pub(crate) fn counts(&self, node: usize) -> &Counts {
        &self.nodes[node].counts
    }

    pub(crate) fn scratch_batch(&mut self) -> Batch {
        self.spares.pop().unwrap_or_default()
    }

    pub(crate) fn recycle_batch(&mut self, mut batch: Batch) {
        batch.free_packets();
        self.spares.push(batch);
    }

    /// Sends what waits at an output that is pushed from. Returns at once when it is one that is pulled from.
    #[inline]
    pub(crate) fn flush_output(&mut self, node: usize, output: usize) {
        let Node { inputs, outputs, counts, .. } = &mut self.nodes[node];
        let out = &mut outputs[output];
        if out.is_pull || out.batch.is_empty() {
            return;
        }
        if inputs.is_empty() {
            counts.packets += out.batch.len() as u64;
            if self.tracing {
                self.trace_begin(node, output);
            }
        }
        let out = &mut self.nodes[node].outputs[output];
        let reason = match (&mut out.remote, out.to) {
            (Some(remote), _) => {
                remote.send_batch(&mut out.batch);
                DropReason::QueueFull
            }
            (None, Some(to)) => {
                let fresh = self.spares.pop().unwrap_or_default();
                let batch = std::mem::replace(&mut out.batch, fresh);
                return self.stack.push(Hop { to, batch });
            }
            (None, None) => DropReason::NoOutput,
        };
        if !out.batch.is_empty() {
            self.discard_unsent(node, output, reason);
        }
    }

    #[cold]
    fn discard_unsent(&mut self, node: usize, output: usize, reason: DropReason) {
        let mut lost =
            std::mem::replace(&mut self.nodes[node].outputs[output].batch, Batch::without_storage());
        self.discard_all(node, &mut lost, reason);
        self.nodes[node].outputs[output].batch = lost;
    }

    /// Ends packets in an element and counts why.
    #[inline]
    pub(crate) fn discard_all(&mut self, node: usize, batch: &mut Batch, reason: DropReason) {
        self.nodes[node].counts.drops.add(reason, batch.len() as u64);
        if self.tracing {
            self.trace_discards(node, &mut *batch, reason);
        }
        batch.free_packets();
    }

    /// Counts packets that one element has pulled out of another.
    #[inline]
    pub(crate) fn count_pulled(&mut self, from: usize, by: usize, packets: u64) {
        // What was pushed to a queue was counted then.
        if !self.nodes[from].is_pushed_to {
            self.nodes[from].counts.packets += packets;
        }
        // Where the pulling begins; whom others pull from, they count.
        if !self.nodes[by].outputs.iter().any(|output| output.is_pull) {
            self.nodes[by].counts.packets += packets;
        }
    }

    fn flush_outputs(&mut self, node: usize) {
        for output in 0..self.nodes[node].outputs.len() {
            self.flush_output(node, output);
        }
    }

    /// Runs `f` on an element with its context. What it sent still waits at its outputs. `None` when the
    /// element is not here or is running already.
    fn call_element<R>(
        &mut self,
        node: usize,
        turn: &Turn<'_>,
        f: impl FnOnce(&mut dyn Element, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let mut element = self.slots[node].take()?;
        let timer = self.profile.then(|| (Instant::now(), std::mem::take(&mut self.inner_nanos)));
        let result = f(&mut *element, &mut Context::new(self, node, turn));
        self.slots[node] = Some(element);
        if let Some((start, outer)) = timer {
            let spent = start.elapsed().as_nanos() as u64;
            self.nodes[node].counts.nanos += spent.saturating_sub(self.inner_nanos);
            self.inner_nanos = outer + spent;
        }
        Some(result)
    }

    /// Runs `f` on an element with its context, then puts what it sent on the stack.
    pub(crate) fn visit_element<R>(
        &mut self,
        node: usize,
        turn: &Turn<'_>,
        f: impl FnOnce(&mut dyn Element, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let result = self.call_element(node, turn, f);
        self.flush_outputs(node);
        result
    }

    /// Hands a batch to an input and follows it for as long as all that came of it goes one way. Where it
    /// parts, the ways go on the stack, first send on top. Returns the number of hops.
    fn push(&mut self, mut to: PortRef, batch: &mut Batch, turn: &Turn<'_>) -> u32 {
        let mark = self.stack.len();
        for hops in 1.. {
            let node = to.0 as usize;
            if self.nodes[node].finished {
                self.apply_offloads(node, batch);
            }
            if self.tracing {
                self.trace_push(to, batch);
            }
            self.nodes[node].counts.packets += batch.len() as u64;
            let found =
                self.call_element(node, turn, |element, cx| element.push(usize::from(to.1), batch, cx));
            if !batch.is_empty() {
                self.discard_leftovers(node, batch, found.is_some());
            }
            match self.single_output(node, mark) {
                Some((output, next)) if hops < HOPS => {
                    std::mem::swap(batch, &mut self.nodes[node].outputs[output].batch);
                    to = next;
                }
                _ => {
                    self.flush_outputs(node);
                    self.stack[mark..].reverse();
                    return hops;
                }
            }
        }
        unreachable!("the loop returns at its last hop")
    }

    /// Applies the offloads of the packets of a batch before an element gets it.
    pub(crate) fn apply_offloads(&mut self, node: usize, batch: &mut Batch) {
        let finished = if self.tracing { self.trace_finish(node, batch) } else { batch.apply_offloads() };
        let drops = &mut self.nodes[node].counts.drops;
        drops.add(DropReason::Malformed, finished.malformed);
        drops.add(DropReason::PoolEmpty, finished.pool_empty);
    }

    /// The one output at which packets wait, when there is no other and nothing was sent
    /// on from full outputs.
    #[inline]
    fn single_output(&self, node: usize, mark: usize) -> Option<(usize, PortRef)> {
        let outputs = &self.nodes[node].outputs;
        let first = outputs.iter().position(|out| !out.batch.is_empty())?;
        let is_only = self.stack.len() == mark && outputs[first + 1..].iter().all(|out| out.batch.is_empty());
        let out = &outputs[first];
        out.to.filter(|_| is_only && !out.is_pull && out.remote.is_none()).map(|to| (first, to))
    }

    #[cold]
    fn discard_leftovers(&mut self, node: usize, batch: &mut Batch, was_called: bool) {
        let reason = if was_called { DropReason::LeftBehind } else { DropReason::Loop };
        self.discard_all(node, batch, reason);
    }

    /// Carries everything that was sent since `mark` to its end.
    pub(crate) fn deliver_since(&mut self, mark: usize, turn: &Turn<'_>) {
        let mut hops = 0;
        while self.stack.len() > mark {
            let Some(Hop { to, mut batch }) = self.stack.pop() else { return };
            if hops >= HOPS {
                self.discard_leftovers(to.0 as usize, &mut batch, false);
            } else {
                hops += self.push(to, &mut batch, turn);
            }
            self.spares.push(batch);
        }
    }

    /// Hands a batch to an input as the outermost call.
    pub(crate) fn deliver_batch(&mut self, to: PortRef, batch: &mut Batch, turn: &Turn<'_>) {
        let mark = self.stack.len();
        self.push(to, batch, turn);
        self.deliver_since(mark, turn);
    }

    /// Runs `f` on an element as the outermost call, and carries what it sends to its end.
    pub(crate) fn enter_element<R>(
        &mut self,
        node: usize,
        turn: &Turn<'_>,
        f: impl FnOnce(&mut dyn Element, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let mark = self.stack.len();
        let result = self.visit_element(node, turn, f);
        self.stack[mark..].reverse();
        self.deliver_since(mark, turn);
        result
    }

    /// Carries what a running element has sent so far to its end, before it goes on.
    pub(crate) fn deliver_sent(&mut self, node: usize, turn: &Turn<'_>) {
        // What lies deeper belongs to calls that are still running; a task's own run is outermost.
        self.flush_outputs(node);
        self.stack.reverse();
        self.deliver_since(0, turn);
    }

    /// Runs up to `limit` scheduled tasks, and no more once they have taken `time`.
    ///
    /// Elements that receive ask for the time whenever they run, so the bound in time costs no further look
    /// at the clock. A graph whose elements never ask is bound by `limit` alone.
    pub(crate) fn run_tasks(&mut self, limit: usize, time: Duration, turn: &Turn<'_>) -> TaskRun {
        let mut start = None;
        for tasks in 0..limit {
            let Some(task) = self.scheduler.next() else { return TaskRun { tasks, out_of_time: false } };
            if self.is_draining && self.nodes[task].inputs.is_empty() {
                continue;
            }
            self.clock.invalidate();
            let worked = self.enter_element(task, turn, |element, cx| element.run_task(cx)).unwrap_or(false);
            if !worked {
                self.scheduler.was_idle(task);
            }
            if let Some(now) = self.clock.last_read()
                && now.since(*start.get_or_insert(now)) >= time
            {
                return TaskRun { tasks: tasks + 1, out_of_time: true };
            }
        }
        TaskRun { tasks: limit, out_of_time: false }
    }

    /// Changes a signal and schedules who listens when it becomes active.
    pub(crate) fn set_signal(&mut self, node: usize, signal: Signal, active: bool) {
        let was = std::mem::replace(&mut self.nodes[node].signals[signal as usize], active);
        if active && !was {
            for &listener in &self.nodes[node].listeners[signal as usize] {
                self.scheduler.schedule_task(listener as usize);
            }
        }
    }

    /// For how many packets there is room in each of `sinks`, or for one when there is in some of them only.
    pub(crate) fn least_room(nodes: &[Node], sinks: &[SignalSource]) -> usize {
        if !sinks.is_empty() && !Graph::any_active(nodes, sinks, Signal::NonFull) {
            return 0;
        }
        let room = |sink: &SignalSource| match sink {
            SignalSource::Element(node) => nodes[*node as usize].room,
            SignalSource::Unknown => usize::MAX,
        };
        sinks.iter().map(room).min().unwrap_or(usize::MAX).max(1)
    }

    /// Whether one of `sources` is active, or gives no signal.
    pub(crate) fn any_active(nodes: &[Node], sources: &[SignalSource], signal: Signal) -> bool {
        sources.iter().any(|source| match source {
            SignalSource::Element(node) => nodes[*node as usize].signals[signal as usize],
            SignalSource::Unknown => true,
        })
    }
}
