//! One worker: turn after turn of commands, tasks and timers, with one quiescent point each.
use crate::control::{Command, Control};
use crate::graph::Graph;
use crate::handover::Receiver;
use crate::patience::Patience;
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
    patience: Patience,
}

impl Worker {
    pub(crate) fn new(graph: Graph, reader: Reader) -> Worker {
        let patience = graph.control.patience();
        Worker { graph, reader, turns: 0, patience }
    }

    /// Runs until the router ends; gives the graph back with what it counted.
    pub(crate) fn run(mut self) -> Graph {
        let control = self.graph.control.clone();
        let _guard = EndOnPanic(control.clone());
        while !control.has_ended() {
            self.turn();
            if !control.has_ended() && !self.graph.scheduler.has_ready() {
                let start = Instant::now();
                if !self.wait_awake(start) {
                    self.rest();
                }
                self.learn(start);
            }
        }
        if control.drains() {
            self.drain();
        }
        self.stop_elements();
        self.graph
    }

    /// Lets what the graph holds leave: until nothing has moved for a while, it takes too long, or nobody wants it any
    /// more.
    fn drain(&mut self) {
        let control = self.graph.control.clone();
        let end = Instant::now() + DRAIN;
        self.graph.is_draining = true;
        let mut quiet = 0;
        while control.drains() && quiet < QUIET && Instant::now() < end {
            self.turn();
            if self.graph.scheduler.has_ready() {
                quiet = 0;
                continue;
            }
            self.reader.park();
            std::thread::sleep(STEP);
            look(&mut self.graph);
            quiet += 1;
        }
    }

    fn turn(&mut self) {
        let turn = self.reader.turn();
        let graph = &mut self.graph;
        while let Some(command) = graph.control.clone().mailbox(graph.worker).take() {
            match command {
                Command::Call(call) => call(graph, &turn),
                Command::Replace(next) => replace(graph, *next, &turn),
            }
        }
        answer_stop_requests(graph);
        graph.take_in(&turn);
        let ran = graph.run_tasks(TASKS, TURN, &turn);
        if graph.scheduler.next_timer().is_some() {
            graph.clock.forget();
            let now = graph.clock.now();
            graph.scheduler.expire(now);
        }
        self.turns = self.turns.wrapping_add(1);
        let is_due = ran.out_of_time || self.turns.is_multiple_of(POLL_EVERY);
        if is_due && graph.watching.contains(&true) {
            look(graph);
        }
    }

    /// Waits without sleeping, where that is likely to be enough or wanted; returns whether it was enough.
    fn wait_awake(&mut self, start: Instant) -> bool {
        let graph = &mut self.graph;
        let timer = next_timer_in(graph);
        let awake = self.patience.awake(is_dormant(graph) && graph.incoming.is_empty(), timer);
        if awake.is_zero() || graph.clock.is_simulated() {
            return false;
        }
        self.reader.park();
        let mut last = Duration::ZERO;
        loop {
            // The bell is heard as in sleep: it is rung for more than commands, such as requests to stop.
            if wait(graph, Some(Duration::ZERO)) || is_needed(graph) {
                return true;
            }
            let waited = start.elapsed();
            if waited >= awake || !self.patience.goes_on(waited - last) {
                return false;
            }
            if self.patience.yields(waited) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
            last = waited;
        }
    }

    /// Learns from a wait that began at `start`.
    fn learn(&mut self, start: Instant) {
        let graph = &self.graph;
        let is_reached = graph.scheduler.has_ready()
            || graph.incoming.iter().any(Receiver::has_packets)
            || graph.control.has_command(graph.worker);
        self.patience.learn(start.elapsed(), !is_reached);
    }

    /// Sleeps until a file, a timer or a command needs the worker; in simulated time jumps to the next timer.
    fn rest(&mut self) {
        let graph = &mut self.graph;
        let next = graph.scheduler.next_timer();
        if let Some(time) = next.filter(|_| graph.clock.is_simulated()) {
            graph.clock.jump(time);
            graph.scheduler.expire(time);
            return;
        }
        self.reader.park();
        let limit = next_timer_in(graph);
        let dormant = is_dormant(graph);
        let control = graph.control.clone();
        control.mailbox(graph.worker).set_asleep(true);
        if !graph.incoming.iter().any(Receiver::has_packets) {
            if dormant {
                control.fall_dormant();
            }
            wait(graph, limit);
            if dormant {
                control.rouse();
            }
        }
        control.mailbox(graph.worker).set_asleep(false);
    }

    fn stop_elements(&mut self) {
        let turn = self.reader.turn();
        for node in 0..self.graph.slots.len() {
            self.graph.enter(node, &turn, |element, cx| element.stop(cx));
        }
    }
}

/// Ends the run when a worker panics: the others would go on without its part, and nobody would be told.
struct EndOnPanic(Arc<Control>);

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end();
        }
    }
}

/// Hands a request to stop to the driver, or ends the run when there is none.
fn answer_stop_requests(graph: &mut Graph) {
    // While a replacement is under way the driver may be one of the new graph's; its end rings the bell.
    if !graph.control.has_stop_requests() || graph.control.is_replacing() {
        return;
    }
    match graph.control.driver() {
        Some((worker, node)) if worker == graph.worker => graph.scheduler.schedule(node),
        Some(_) => {}
        None => graph.control.end(),
    }
}

/// Schedules the elements whose files are ready.
fn look(graph: &mut Graph) {
    let Graph { events, scheduler, watching, .. } = graph;
    let Some(events) = events else { return };
    events.look(|node| file_is_ready(node, watching, scheduler));
}

/// Waits until a file is ready or the bell rings, and schedules the elements whose files are ready; returns whether the
/// bell was rung.
fn wait(graph: &mut Graph, limit: Option<Duration>) -> bool {
    let Graph { events, scheduler, watching, worker, control, .. } = graph;
    let Some(events) = events else { return false };
    let bell = &control.mailbox(*worker).bell;
    events.wait(bell, limit, |node| file_is_ready(node, watching, scheduler))
}

/// Whether there is no timer and no file that could wake the worker.
fn is_dormant(graph: &mut Graph) -> bool {
    graph.scheduler.next_timer().is_none() && !graph.watching.contains(&true)
}

/// How long it is until the next timer goes off, if there is one.
fn next_timer_in(graph: &mut Graph) -> Option<Duration> {
    let next = graph.scheduler.next_timer()?;
    graph.clock.forget();
    Some(next.since(graph.clock.now()))
}

/// Whether there is something to do in a turn.
fn is_needed(graph: &mut Graph) -> bool {
    graph.clock.forget();
    graph.scheduler.has_ready()
        || graph.incoming.iter().any(Receiver::has_packets)
        || graph.control.has_command(graph.worker)
        || graph.scheduler.next_timer().is_some_and(|time| time <= graph.clock.now())
}

fn file_is_ready(node: usize, watching: &mut [bool], scheduler: &mut Scheduler) {
    if let Some(watching) = watching.get_mut(node) {
        *watching = false;
        scheduler.schedule(node);
    }
}

/// Makes `next` the worker's graph. Elements of the same name and class hand over what they hold; no packet is
/// under way between two turns.
fn replace(graph: &mut Graph, next: Graph, turn: &Turn<'_>) {
    let mut old = std::mem::replace(graph, next);
    // Simulated time goes on where it was; real time needs no telling.
    graph.clock.jump(old.clock.now());
    let mut heirs = vec![None; old.plan.len()];
    let mut lost = 0;
    for node in 0..graph.plan.len() {
        let Some(was) = old.plan.resolve_exact(graph.plan.name(node)) else { continue };
        if old.plan.class(was).name != graph.plan.class(node).name || graph.slots[node].is_none() {
            continue;
        }
        heirs[was] = Some(node);
        if let Some(mut element) = old.slots[was].take() {
            graph.enter(node, turn, |new, cx| new.take_state(&mut *element, cx));
            old.slots[was] = Some(element);
        }
        // What the heir could not take over is discarded by it, and counts as lost.
        lost += graph.nodes[node].counts.drops.count(DropReason::Replaced);
        graph.nodes[node].counts.merge(&std::mem::take(&mut old.nodes[was].counts));
    }
    // What earlier replacements cost the elements without an heir was counted then.
    let before = replaced(&old);
    inherit_rings(graph, &mut old, &heirs, turn);
    for node in 0..old.slots.len() {
        old.enter(node, turn, |element, cx| element.stop(cx));
    }
    lost += replaced(&old) - before;
    graph.control.note_replaced(lost);
}

/// Packets that elements have discarded because of replacements.
fn replaced(graph: &Graph) -> u64 {
    graph.nodes.iter().map(|node| node.counts.drops.count(DropReason::Replaced)).sum()
}

/// Lets packets that other workers still hand over to the old graph arrive: at the new element where there is one,
/// else at the old one, which will count them.
fn inherit_rings(graph: &mut Graph, old: &mut Graph, heirs: &[Option<usize>], turn: &Turn<'_>) {
    for mut ring in std::mem::take(&mut old.incoming) {
        match heirs[ring.node()] {
            Some(heir) => graph.incoming.push(ring.redirect(heir)),
            None => old.drain_ring(&mut ring, turn),
        }
    }
    graph.has_inherited = graph.incoming.len() > graph.own_incoming;
}
