//! One worker: turn after turn of commands, tasks and timers, with one quiescent point each.
use crate::control::WorkerCommand;
use crate::graph::Control;
use crate::graph::Graph;
use crate::handover::Receiver;
use crate::idle_policy::IdlePolicy;
use crate::reason::DropReason;
use crate::scheduler::Scheduler;
use artery_rcu::{Reader, Turn};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most tasks that run in one turn.
const TASKS: usize = 128;
/// How long tasks may run in one turn, and so about how long what arrives by another file, from another
/// worker or from control waits for a busy worker. A full batch takes a router about as long.
const TURN: Duration = Duration::from_micros(100);
/// Turns of a busy worker, none of which took that long, between two looks at the files its elements watch.
const POLL_EVERY: u32 = 4;
/// How long a router that ends may go on sending what it holds.
const DRAIN: Duration = Duration::from_secs(1);
/// How many steps without a task to run show that nothing moves by itself, such as a packet that is delayed.
const QUIET: u32 = 20;
/// How long a step is. It is slept through, so that a step on a busy machine is one too.
const STEP: Duration = Duration::from_millis(1);

/// A thread of the router, with the graph it runs.
pub(crate) struct Worker {
    graph: Graph,
    reader: Reader,
    turns: u32,
    idle: IdlePolicy,
}

impl Worker {
    pub(crate) fn new(graph: Graph, reader: Reader) -> Worker {
        let idle = graph.control.idle_policy();
        Worker { graph, reader, turns: 0, idle }
    }

    /// Runs until the router ends; gives the graph back with what it counted.
    pub(crate) fn run_worker(mut self) -> Graph {
        let control = self.graph.control.clone();
        let _guard = EndOnPanic(control.clone());
        while !control.has_ended() {
            self.run_turn();
            if !control.has_ended() && !self.graph.scheduler.has_ready() {
                let start = Instant::now();
                if !self.wait_awake(start) {
                    self.wait_for_work();
                }
                self.record_wait(start);
            }
        }
        if control.drains() {
            self.drain_graph();
        }
        self.stop_elements();
        self.graph
    }

    /// Lets packets that the graph holds leave, until none has moved for a while, the time limit is over, or
    /// draining is no longer wanted.
    fn drain_graph(&mut self) {
        let control = self.graph.control.clone();
        let end = Instant::now() + DRAIN;
        self.graph.is_draining = true;
        let mut quiet = 0;
        while control.drains() && quiet < QUIET && Instant::now() < end {
            self.run_turn();
            if self.graph.scheduler.has_ready() {
                quiet = 0;
                continue;
            }
            self.reader.park();
            std::thread::sleep(STEP);
            poll_files(&mut self.graph);
            quiet += 1;
        }
    }

    fn run_turn(&mut self) {
        let turn = self.reader.turn();
        let graph = &mut self.graph;
        while let Some(command) = graph.control.clone().mailbox(graph.worker).next_command() {
            match command {
                WorkerCommand::Call(call) => call(graph, &turn),
                WorkerCommand::Replace(next) => replace_graph(graph, *next, &turn),
            }
        }
        answer_stop_requests(graph);
        graph.receive_incoming(&turn);
        let ran = graph.run_tasks(TASKS, TURN, &turn);
        if graph.scheduler.next_timer().is_some() {
            graph.clock.invalidate();
            let now = graph.clock.now();
            graph.scheduler.expire_timers(now);
        }
        self.turns = self.turns.wrapping_add(1);
        let is_due = ran.out_of_time || self.turns.is_multiple_of(POLL_EVERY);
        if is_due && graph.watching.contains(&true) {
            poll_files(graph);
        }
    }

    /// Waits without sleeping, where that is likely to be enough or wanted; returns whether it was enough.
    fn wait_awake(&mut self, start: Instant) -> bool {
        let graph = &mut self.graph;
        let timer = next_timer_in(graph);
        let awake = self.idle.awake_time(is_dormant(graph) && graph.incoming.is_empty(), timer);
        if awake.is_zero() || graph.clock.is_simulated() {
            return false;
        }
        self.reader.park();
        let mut last = Duration::ZERO;
        loop {
            // The waker is checked as in sleep: it signals more than commands, such as requests to stop.
            if wait_files(graph, Some(Duration::ZERO)) || is_needed(graph) {
                return true;
            }
            let waited = start.elapsed();
            if waited >= awake || !self.idle.goes_on(waited - last) {
                return false;
            }
            if self.idle.should_yield(waited) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
            last = waited;
        }
    }

    /// Learns from a wait that began at `start`.
    fn record_wait(&mut self, start: Instant) {
        let graph = &self.graph;
        let is_reached = graph.scheduler.has_ready()
            || graph.incoming.iter().any(Receiver::has_packets)
            || graph.control.has_command(graph.worker);
        self.idle.record_wait(start.elapsed(), !is_reached);
    }

    /// Sleeps until a file, a timer or a command needs the worker; in simulated time jumps to the next timer.
    fn wait_for_work(&mut self) {
        let graph = &mut self.graph;
        let next = graph.scheduler.next_timer();
        if let Some(time) = next.filter(|_| graph.clock.is_simulated()) {
            graph.clock.advance_to(time);
            graph.scheduler.expire_timers(time);
            return;
        }
        self.reader.park();
        let limit = next_timer_in(graph);
        let dormant = is_dormant(graph);
        let control = graph.control.clone();
        control.mailbox(graph.worker).set_asleep(true);
        if !graph.incoming.iter().any(Receiver::has_packets) {
            if dormant {
                control.enter_dormant();
            }
            wait_files(graph, limit);
            if dormant {
                control.exit_dormant();
            }
        }
        control.mailbox(graph.worker).set_asleep(false);
    }

    fn stop_elements(&mut self) {
        let turn = self.reader.turn();
        for node in 0..self.graph.slots.len() {
            self.graph.enter_element(node, &turn, |element, cx| element.stop(cx));
        }
    }
}

/// Ends the run when a worker panics: the others would go on without its part, unnoticed.
struct EndOnPanic(Arc<Control>);

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end_run();
        }
    }
}

/// Hands a request to stop to the driver, or ends the run when there is none.
fn answer_stop_requests(graph: &mut Graph) {
    // While a replacement is under way the driver may be one of the new graph's; its end signals the waker.
    if !graph.control.has_stop_requests() || graph.control.is_replacing() {
        return;
    }
    match graph.control.driver() {
        Some((worker, node)) if worker == graph.worker => graph.scheduler.schedule_task(node),
        Some(_) => {}
        None => graph.control.end_run(),
    }
}

/// Schedules the elements whose files are ready.
fn poll_files(graph: &mut Graph) {
    let Graph { events, scheduler, watching, .. } = graph;
    let Some(events) = events else { return };
    events.poll_ready(|node| file_is_ready(node, watching, scheduler));
}

/// Waits until a file is ready or the waker is signalled, and schedules the elements whose files are ready.
/// Returns whether the waker was signalled.
fn wait_files(graph: &mut Graph, limit: Option<Duration>) -> bool {
    let Graph { events, scheduler, watching, worker, control, .. } = graph;
    let Some(events) = events else { return false };
    let waker = &control.mailbox(*worker).waker;
    events.wait_ready(waker, limit, |node| file_is_ready(node, watching, scheduler))
}

/// Whether the worker has neither a timer nor a file that could wake it.
fn is_dormant(graph: &mut Graph) -> bool {
    graph.scheduler.next_timer().is_none() && !graph.watching.contains(&true)
}

/// How long it is until the next timer goes off, if there is one.
fn next_timer_in(graph: &mut Graph) -> Option<Duration> {
    let next = graph.scheduler.next_timer()?;
    graph.clock.invalidate();
    Some(next.since(graph.clock.now()))
}

/// Whether there is something to do in a turn.
fn is_needed(graph: &mut Graph) -> bool {
    graph.clock.invalidate();
    graph.scheduler.has_ready()
        || graph.incoming.iter().any(Receiver::has_packets)
        || graph.control.has_command(graph.worker)
        || graph.scheduler.next_timer().is_some_and(|time| time <= graph.clock.now())
}

fn file_is_ready(node: usize, watching: &mut [bool], scheduler: &mut Scheduler) {
    if let Some(watching) = watching.get_mut(node) {
        *watching = false;
        scheduler.schedule_task(node);
    }
}

/// Makes `next` the worker's graph. Elements of the same name and class hand over what they hold; no packet
/// is under way between two turns.
fn replace_graph(graph: &mut Graph, next: Graph, turn: &Turn<'_>) {
    let mut old = std::mem::replace(graph, next);
    // Simulated time goes on where it was; real time needs no telling.
    graph.clock.advance_to(old.clock.now());
    let mut successors = vec![None; old.plan.len()];
    let mut lost = 0;
    for node in 0..graph.plan.len() {
        let Some(was) = old.plan.resolve_exact(graph.plan.name(node)) else { continue };
        if old.plan.class_name(was) != graph.plan.class_name(node) || graph.slots[node].is_none() {
            continue;
        }
        successors[was] = Some(node);
        if let Some(mut element) = old.slots[was].take() {
            graph.enter_element(node, turn, |new, cx| new.take_state(&mut *element, cx));
            old.slots[was] = Some(element);
        }
        // What the successor could not take over it discards, and counts as lost.
        lost += graph.nodes[node].counts.drops.count(DropReason::Replaced);
        graph.nodes[node].counts.merge(&std::mem::take(&mut old.nodes[was].counts));
    }
    // What earlier replacements cost elements without a successor was counted then.
    let before = replaced_packets(&old);
    inherit_rings(graph, &mut old, &successors, turn);
    for node in 0..old.slots.len() {
        old.enter_element(node, turn, |element, cx| element.stop(cx));
    }
    lost += replaced_packets(&old) - before;
    graph.control.count_replaced(lost);
}

/// Packets that elements have discarded because of replacements.
fn replaced_packets(graph: &Graph) -> u64 {
    graph.nodes.iter().map(|node| node.counts.drops.count(DropReason::Replaced)).sum()
}

/// Lets packets that other workers still hand over to the old graph arrive: at the new element where there is
/// one, else at the old one, which will count them.
fn inherit_rings(graph: &mut Graph, old: &mut Graph, successors: &[Option<usize>], turn: &Turn<'_>) {
    for mut ring in std::mem::take(&mut old.incoming) {
        match successors[ring.node()] {
            Some(successor) => graph.incoming.push(ring.redirect_to(successor)),
            None => old.drain_ring(&mut ring, turn),
        }
    }
    graph.has_inherited = graph.incoming.len() > graph.own_incoming;
}
