//! Handler calls: finding the element, on this worker or another, and the handlers that every element has.
use crate::control::WorkerCommand;
use crate::graph::{Control, Counts, Graph, HandlerCall, RouterPlan};
use crate::handler::{Handler, HandlerError};
use crate::handler_error::CALL_TIMEOUT;
use crate::handler_names::{CONFIG, HOTCONFIG, STOP, TRACE};
use crate::layout::{Home, ReadEffect};
use crate::plan::Plan;
use crate::reconfigure::{reconfigure_element, record_argument};
use crate::scheduler::MAX_TICKETS;
use crate::standard::is_standard;
use crate::trace::Tracer;
use artery_rcu::Turn;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// How long an answer may take once the run has ended: the call itself may have ended it.
const FAREWELL: Duration = Duration::from_millis(50);

/// What a handler name means.
enum HandlerTarget {
    Global(String),
    Element(usize, String),
}

impl Plan {
    fn resolve_target(&self, full: &str, prefix: &str) -> Result<HandlerTarget, HandlerError> {
        match full.rsplit_once('.') {
            None | Some(("", _)) => Ok(HandlerTarget::Global(full.trim_start_matches('.').to_string())),
            Some((element, handler)) => match self.find_node(element, prefix) {
                Some(node) => Ok(HandlerTarget::Element(node, handler.to_string())),
                None => Err(HandlerError::NoElement(element.to_string())),
            },
        }
    }

    /// Whether `full` is a handler that can be read, or with `write` written.
    pub fn has_handler(&self, full: &str, prefix: &str, write: bool) -> bool {
        let letter = if write { 'w' } else { 'r' };
        match self.resolve_target(full, prefix) {
            Ok(HandlerTarget::Global(name)) => {
                self.global_flags(&name).is_some_and(|flags| flags.contains(letter))
            }
            Ok(HandlerTarget::Element(node, name)) => {
                self.handlers_of(node).any(|(n, flags)| (n == name || n == "*") && flags.contains(letter))
            }
            Err(_) => false,
        }
    }

    /// Whether `full` is a handler that refuses calls from outside.
    pub fn is_private(&self, full: &str) -> bool {
        match self.resolve_target(full, "") {
            Ok(HandlerTarget::Element(node, name)) => self.has_private(node, &name),
            _ => false,
        }
    }
    /// Whether a read of `full` changes something, by itself or by what it calls.
    pub fn is_acting_read(&self, full: &str) -> bool {
        self.acts_when_read(full, "", &mut Vec::new())
    }
    fn acts_when_read(&self, full: &str, prefix: &str, seen: &mut Vec<(usize, String)>) -> bool {
        let Ok(HandlerTarget::Element(node, name)) = self.resolve_target(full, prefix) else { return false };
        let is_own = self.class(node).handler(&name).is_none() && !is_standard(&name);
        let of = (node, name);
        if seen.contains(&of) {
            return false;
        }
        seen.push(of.clone());
        let effects = self.read_effects(node).iter();
        effects.filter(|(name, _)| *name == of.1 || *name == "*" && is_own).any(|(_, effect)| match effect {
            ReadEffect::Acts => true,
            ReadEffect::Calls(calls) => {
                calls.iter().any(|call| self.acts_when_read(call, self.prefix(node), seen))
            }
        })
    }
    fn has_private(&self, node: usize, name: &str) -> bool {
        self.class(node).handler(name).is_some_and(|handler| handler.private)
    }

    /// The function behind an element's handler, and the text to call it with. `None` when it
    /// is a standard one.
    fn find_handler<'a>(
        &self,
        node: usize,
        name: &str,
        text: &'a str,
    ) -> Option<(&'static Handler, Cow<'a, str>)> {
        if let Some(handler) = self.class(node).handler(name) {
            return Some((handler, Cow::Borrowed(text)));
        }
        let handler = self.class(node).own_handlers?;
        let is_own = |(own, _): &(String, _)| own == name || own == "*" && !is_standard(name);
        let found = self.own_handlers(node).iter().any(is_own);
        found.then(|| (handler, Cow::Owned(format!("{name} {text}"))))
    }
}

/// Adds up values of several workers; those that are no integers can't be, and the first stands.
fn sum_values(values: Vec<String>) -> String {
    let numbers: Option<Vec<i128>> = values.iter().map(|v| v.trim().parse().ok()).collect();
    match numbers {
        Some(numbers) => numbers.iter().sum::<i128>().to_string(),
        None => values.into_iter().next().unwrap_or_default(),
    }
}

impl Plan {
    /// Reads a handler, wherever its element is: `read` is called with the worker, the element and the
    /// handler's name, once for each copy that counts.
    pub(crate) fn read_with(
        &self,
        full: &str,
        prefix: &str,
        parameters: &str,
        mut read: impl FnMut(usize, usize, &str) -> Result<String, HandlerError>,
    ) -> Result<String, HandlerError> {
        let (node, name) = match self.resolve_target(full, prefix)? {
            HandlerTarget::Global(name) => {
                let writable = self.global_flags(&name).is_some();
                let error = if writable { HandlerError::NotReadable } else { HandlerError::NoHandler };
                return match self.read_global(&name) {
                    Some(_) if !parameters.is_empty() => Err(HandlerError::NoParameters(name)),
                    value => value.ok_or_else(|| error(name)),
                };
            }
            HandlerTarget::Element(node, name) => (node, name),
        };
        let handler = self.class(node).handler(&name);
        if let Some(Handler { read: None, .. }) = handler {
            return Err(HandlerError::NotReadable(full.to_string()));
        }
        let sums = handler.map_or(name == "drops", |h| h.sums);
        let joins = handler.is_some_and(|h| h.joins);
        let values: Result<Vec<_>, _> =
            self.workers_of(node, sums || joins).map(|worker| read(worker, node, &name)).collect();
        values.map(if joins { |values: Vec<String>| values.concat() } else { sum_or_only })
    }

    /// Reads a handler on this thread, if it has what reads aside of its element.
    pub(crate) fn read_aside(&self, full: &str, parameters: &str) -> Option<Result<String, HandlerError>> {
        let Ok(HandlerTarget::Element(node, name)) = self.resolve_target(full, "") else { return None };
        let aside = self.class(node).handler(&name)?.aside?;
        Some(aside(self.resources(), self.name(node), parameters))
    }

    /// Writes a handler, wherever its element is; of all copies where there are several, unless they share
    /// what it is for. `None` for the router's own.
    pub(crate) fn write_with(
        &self,
        full: &str,
        prefix: &str,
        mut write: impl FnMut(Option<(usize, usize)>, &str) -> Result<(), HandlerError>,
    ) -> Result<(), HandlerError> {
        match self.resolve_target(full, prefix)? {
            HandlerTarget::Global(name) => match self.global_flags(&name) {
                Some(flags) if flags.contains('w') => write(None, &name),
                Some(_) => Err(self.unwritable_global(name)),
                None => Err(HandlerError::NoHandler(name)),
            },
            HandlerTarget::Element(node, name) => {
                let once = self.class(node).handler(&name).is_some_and(|handler| handler.once);
                self.workers_of(node, !once).try_for_each(|worker| write(Some((worker, node)), &name))
            }
        }
    }

    fn workers_of(&self, node: usize, every: bool) -> std::ops::Range<usize> {
        match self.home(node) {
            Home::Worker(worker) => worker..worker + 1,
            Home::Every if every => 0..self.workers(),
            Home::Every => 0..1,
        }
    }
}

/// A call that is under way to another worker.
pub(crate) struct PendingCall<R> {
    answer: Receiver<Result<R, HandlerError>>,
    deadline: Instant,
}

impl Control {
    /// Runs `call` on the graph of another worker and waits for its answer, calling `meanwhile` now and then.
    pub(crate) fn call_worker<R: Send + 'static>(
        &self,
        worker: usize,
        full: &str,
        call: impl FnOnce(&mut Graph, &Turn<'_>) -> Result<R, HandlerError> + Send + 'static,
        meanwhile: impl FnMut(),
    ) -> Result<R, HandlerError> {
        let called = self.begin_call(worker, full, call)?;
        self.wait_answer(called, full, meanwhile)
    }

    /// Has a worker run `call` on its graph; [`wait_answer`](Self::wait_answer) gets the answer.
    pub(crate) fn begin_call<R: Send + 'static>(
        &self,
        worker: usize,
        full: &str,
        call: impl FnOnce(&mut Graph, &Turn<'_>) -> Result<R, HandlerError> + Send + 'static,
    ) -> Result<PendingCall<R>, HandlerError> {
        let (reply, answer) = sync_channel(1);
        let command = WorkerCommand::Call(Box::new(move |graph, turn| drop(reply.send(call(graph, turn)))));
        self.mailbox(worker).post_command(command).map_err(|_| HandlerError::Timeout(full.to_string()))?;
        Ok(PendingCall { answer, deadline: Instant::now() + CALL_TIMEOUT })
    }

    /// Waits for the answer to a call.
    pub(crate) fn wait_answer<R>(
        &self,
        PendingCall { answer, mut deadline }: PendingCall<R>,
        full: &str,
        mut meanwhile: impl FnMut(),
    ) -> Result<R, HandlerError> {
        loop {
            match answer.recv_timeout(Duration::from_millis(1)) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => meanwhile(),
                Err(_) => return Err(HandlerError::Timeout(full.to_string())),
            }
            if self.has_ended() {
                deadline = deadline.min(Instant::now() + FAREWELL);
            }
        }
    }

    /// Puts a command in a worker's mailbox, waiting for room as long as a call may take and the router runs.
    /// Returns whether it is there.
    pub(crate) fn post_with_retry(&self, worker: usize, mut command: WorkerCommand<Graph>) -> bool {
        let deadline = Instant::now() + CALL_TIMEOUT;
        while let Err(back) = self.mailbox(worker).post_command(command) {
            if self.has_ended() || Instant::now() >= deadline {
                return false;
            }
            command = back;
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    pub(crate) fn write_global(&self, plan: &Plan, name: &str, value: &str) -> Result<(), HandlerError> {
        match name {
            TRACE => plan
                .resources()
                .get::<Tracer>()
                .arm_trace(value, |name| plan.find_node(name, "").map(|node| plan.name(node).to_string())),
            HOTCONFIG => {
                self.request_replacement(value);
                Ok(())
            }
            STOP => {
                self.record_end("the handler 'stop' was written");
                self.request_stop();
                Ok(())
            }
            _ => Err(HandlerError::NoHandler(name.to_string())),
        }
    }
}

/// A call that reads a handler of the element that `plan` calls `node`, on whatever graph
/// its worker then has.
pub(crate) fn read_call(
    plan: &Arc<Plan>,
    node: usize,
    name: &str,
    parameters: &str,
) -> impl FnOnce(&mut Graph, &Turn<'_>) -> Result<String, HandlerError> + Send + 'static {
    let (plan, name, parameters) = (plan.clone(), name.to_string(), parameters.to_string());
    move |graph, turn| {
        let node = graph.number_of(&*plan, node)?;
        graph.plan.clone().read_here(graph, (node, &name), &parameters, turn)
    }
}

/// The same for a handler that is written.
pub(crate) fn write_call(
    plan: &Arc<Plan>,
    node: usize,
    name: &str,
    value: &str,
) -> impl FnOnce(&mut Graph, &Turn<'_>) -> Result<(), HandlerError> + Send + 'static {
    let (plan, name, value) = (plan.clone(), name.to_string(), value.to_string());
    move |graph, turn| {
        let node = graph.number_of(&*plan, node)?;
        graph.plan.clone().write_here(graph, (node, &name), &value, turn)
    }
}

impl Graph {
    /// The number here of the element that `plan` calls `node`. While a graph is replaced, the plan by which
    /// a call is made may be another than that of the worker it reaches.
    fn number_of(&self, plan: &dyn RouterPlan, node: usize) -> Result<usize, HandlerError> {
        if std::ptr::addr_eq(plan, Arc::as_ptr(&self.plan)) {
            return Ok(node);
        }
        let name = plan.name(node);
        self.plan.resolve_exact(name).ok_or_else(|| HandlerError::NoElement(name.to_string()))
    }

    /// What each element has seen on all workers, by number.
    pub(crate) fn all_counts(&mut self, turn: &Turn<'_>) -> Result<Vec<Counts>, HandlerError> {
        let mut sums = vec![Counts::default(); self.plan.len()];
        for worker in 0..self.plan.workers() {
            let plan = self.plan.clone();
            let counts = move |graph: &mut Graph, _: &Turn<'_>| -> Result<Vec<Counts>, HandlerError> {
                let of = |node| graph.number_of(&*plan, node).map(|node| graph.counts(node).clone());
                (0..plan.len()).map(of).collect()
            };
            let counts = self.on_worker(worker, "counts", turn, counts)?;
            sums.iter_mut().zip(&counts).for_each(|(sum, counts)| sum.merge(counts));
        }
        Ok(sums)
    }

    /// Runs `call` on a worker's graph: at once on this one, else by its mailbox, serving our own meanwhile.
    fn on_worker<R: Send + 'static>(
        &mut self,
        worker: usize,
        full: &str,
        turn: &Turn<'_>,
        call: impl FnOnce(&mut Graph, &Turn<'_>) -> Result<R, HandlerError> + Send + 'static,
    ) -> Result<R, HandlerError> {
        if worker == self.worker {
            return call(self, turn);
        }
        let control = self.control.clone();
        control.call_worker(worker, full, call, || {
            while let Some(WorkerCommand::Call(call)) = control.mailbox(self.worker).next_call() {
                call(self, turn);
            }
        })
    }
}

impl RouterPlan for Plan {
    fn has_handler(&self, full: &str, prefix: &str, write: bool) -> bool {
        Plan::has_handler(self, full, prefix, write)
    }

    fn read_handler(
        self: Arc<Self>,
        graph: &mut Graph,
        HandlerCall { full, prefix, text }: HandlerCall<'_>,
        turn: &Turn<'_>,
    ) -> Result<String, HandlerError> {
        self.read_with(full, prefix, text, |worker, node, name| {
            graph.on_worker(worker, full, turn, read_call(&self, node, name, text))
        })
    }

    fn write_handler(
        self: Arc<Self>,
        graph: &mut Graph,
        HandlerCall { full, prefix, text }: HandlerCall<'_>,
        turn: &Turn<'_>,
    ) -> Result<(), HandlerError> {
        self.write_with(full, prefix, |element, name| {
            let Some((worker, node)) = element else { return graph.control.write_global(&self, name, text) };
            graph.on_worker(worker, full, turn, write_call(&self, node, name, text))
        })
    }

    fn read_here(
        &self,
        graph: &mut Graph,
        (node, name): (usize, &str),
        parameters: &str,
        turn: &Turn<'_>,
    ) -> Result<String, HandlerError> {
        let full = || format!("{}.{name}", self.name(node));
        match self.find_handler(node, name, parameters) {
            Some((handler, text)) => {
                let read = handler.read.ok_or_else(|| HandlerError::NotReadable(full()))?;
                if !parameters.is_empty()
                    && !handler.takes_parameters
                    && self.class(node).handler(name).is_some()
                {
                    return Err(HandlerError::NoParameters(full()));
                }
                let busy = full();
                graph
                    .enter_element(node, turn, |element, cx| read.call_handler(element, &text, cx))
                    .unwrap_or(Err(HandlerError::Busy(busy)))
            }
            None if !parameters.is_empty() && is_standard(name) => Err(HandlerError::NoParameters(full())),
            None => {
                self.read_standard(graph, node, name).ok_or_else(|| HandlerError::NoHandler(name.to_string()))
            }
        }
    }

    fn write_here(
        &self,
        graph: &mut Graph,
        (node, name): (usize, &str),
        value: &str,
        turn: &Turn<'_>,
    ) -> Result<(), HandlerError> {
        let full = || format!("{}.{name}", self.name(node));
        if name == CONFIG && self.class(node).live {
            return reconfigure_element(self, graph, node, value, turn);
        }
        match self.find_handler(node, name, value) {
            Some((handler, text)) => {
                let write = handler.write.ok_or_else(|| HandlerError::NotWritable(full()))?;
                let busy = full();
                graph
                    .enter_element(node, turn, |element, cx| write.call_handler(element, &text, cx))
                    .unwrap_or(Err(HandlerError::Busy(busy)))?;
                if let Some(argument) = handler.sets {
                    record_argument(self, graph, node, (argument, number_in(name)), value);
                }
                Ok(())
            }
            None if name == "tickets" => {
                graph.scheduler.set_tickets(node, parse_tickets(value)?);
                Ok(())
            }
            None if self.read_standard(graph, node, name).is_some() => Err(HandlerError::NotWritable(full())),
            None => Err(HandlerError::NoHandler(name.to_string())),
        }
    }
}

impl Plan {
    fn read_standard(&self, graph: &Graph, node: usize, name: &str) -> Option<String> {
        Some(match name {
            "name" => self.name(node).to_string(),
            "class" => self.class(node).name.to_string(),
            CONFIG => graph.config(node).to_string(),
            "ports" => self.read_ports(node),
            "handlers" => {
                let public = self.handlers_of(node).filter(|(name, _)| !self.has_private(node, name));
                public.map(|(name, flags)| format!("{name}\t{flags}\n")).collect()
            }
            "drops" => graph.counts(node).drops.total().to_string(),
            "scheduled" => graph.scheduler.is_scheduled(node).to_string(),
            "tickets" => graph.scheduler.tickets(node).to_string(),
            "home_thread" => graph.worker.to_string(),
            _ => return None,
        })
    }
}

/// The number at the end of a handler's name, such as `pattern2`; zero for none.
fn number_in(name: &str) -> usize {
    name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0)
}

/// A number of tickets that a task can have. One that it can't have is no other number.
fn parse_tickets(value: &str) -> Result<u32, HandlerError> {
    let number = value.trim().parse().ok().filter(|n| (1..=MAX_TICKETS).contains(n));
    number.ok_or_else(|| {
        HandlerError::refused(format!("tickets: an integer from 1 to {MAX_TICKETS} is wanted"))
    })
}

fn sum_or_only(mut values: Vec<String>) -> String {
    if values.len() == 1 { values.remove(0) } else { sum_values(values) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::Sink;

    #[test]
    fn a_command_for_a_full_mailbox_is_given_up_once_the_router_has_ended() {
        let control = Control::new(1, Sink::buffer(), Sink::buffer()).unwrap();
        let nothing = || WorkerCommand::Call(Box::new(|_, _| ()));
        while control.mailbox(0).post_command(nothing()).is_ok() {}
        control.end_run();
        assert!(!control.post_with_retry(0, nothing()));
        assert!(control.mailbox(0).next_command().is_some());
        assert!(control.post_with_retry(0, nothing()));
    }
}
