//! Handler calls: finding the element, on this worker or another, and the handlers that every element has.
use crate::control::Command;
use crate::graph::Graph;
use crate::handler::{Handler, HandlerError};
use crate::plan::{Home, Plan};
use artery_rcu::Turn;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// How long a call to another worker may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// Handlers that every element has.
const STANDARD: &[(&str, &str)] =
    &[("name", "r"), ("class", "r"), ("config", "r"), ("ports", "r"), ("handlers", "r"), ("drops", "r")];
/// Handlers of elements that can have a task.
const TASK: &[(&str, &str)] = &[("scheduled", "r"), ("tickets", "rw"), ("home_thread", "r")];
/// Handlers of the router.
const GLOBAL: &[(&str, &str)] = &[
    ("version", "r"),
    ("list", "r"),
    ("classes", "r"),
    ("config", "r"),
    ("flatconfig", "r"),
    ("requirements", "r"),
    ("packages", "r"),
    ("handlers", "r"),
    ("stop", "wb"),
];

/// What a handler name means.
enum Target {
    Global(String),
    Element(usize, String),
}

impl Plan {
    fn target(&self, full: &str, prefix: &str) -> Result<Target, HandlerError> {
        match full.rsplit_once('.') {
            None | Some(("", _)) => Ok(Target::Global(full.trim_start_matches('.').to_string())),
            Some((element, handler)) => match self.resolve(element, prefix) {
                Some(node) => Ok(Target::Element(node, handler.to_string())),
                None => Err(HandlerError::NoElement(element.to_string())),
            },
        }
    }

    /// Whether `full` leads to a handler that can be read, or with `write` written.
    pub fn has_handler(&self, full: &str, prefix: &str, write: bool) -> bool {
        let letter = if write { 'w' } else { 'r' };
        match self.target(full, prefix) {
            Ok(Target::Global(name)) => GLOBAL.iter().any(|(n, flags)| *n == name && flags.contains(letter)),
            Ok(Target::Element(node, name)) => {
                self.handlers_of(node).any(|(n, flags)| n == name && flags.contains(letter))
            }
            Err(_) => false,
        }
    }

    /// Names and flags of an element's handlers.
    pub fn handlers_of(&self, node: usize) -> impl Iterator<Item = (&'static str, String)> + '_ {
        let own = self.class(node).handlers.iter().map(|h| (h.name, h.flags()));
        let standard = STANDARD.iter().chain(TASK).map(|(name, flags)| (*name, (*flags).to_string()));
        own.chain(standard.filter(move |(name, _)| self.class(node).handler(name).is_none()))
    }

    fn read_global(&self, name: &str) -> Option<String> {
        let lines = |names: Vec<&str>| names.iter().map(|n| format!("{n}\n")).collect::<String>();
        Some(match name {
            "version" => env!("CARGO_PKG_VERSION").to_string(),
            "list" => format!("{}\n{}", self.len(), lines((0..self.len()).map(|n| self.name(n)).collect())),
            "classes" => {
                let mut names: Vec<_> = (0..self.len()).map(|n| self.class(n).name).collect();
                names.sort_unstable();
                names.dedup();
                lines(names)
            }
            "config" | "flatconfig" => self.flat().to_string(),
            "requirements" | "packages" => lines(self.requirements().iter().map(String::as_str).collect()),
            "handlers" => GLOBAL.iter().map(|(name, flags)| format!("{name}\t{flags}\n")).collect(),
            _ => return None,
        })
    }

    fn read_ports(&self, node: usize) -> String {
        let line = |pulls: &[bool]| {
            let kinds: String = pulls.iter().map(|p| if *p { "pull\n" } else { "push\n" }).collect();
            format!("{} {}\n{kinds}", pulls.len(), if pulls.len() == 1 { "port" } else { "ports" })
        };
        format!("input {}output {}", line(self.inputs(node)), line(self.outputs(node)))
    }
}

/// Adds up values of several workers; those that are no integers can't be, and the first stands.
fn sum(values: Vec<String>) -> String {
    let numbers: Option<Vec<i128>> = values.iter().map(|v| v.trim().parse().ok()).collect();
    match numbers {
        Some(numbers) => numbers.iter().sum::<i128>().to_string(),
        None => values.into_iter().next().unwrap_or_default(),
    }
}

impl Graph {
    /// Reads a handler of any worker's element.
    pub(crate) fn read_handler(
        &mut self,
        full: &str,
        prefix: &str,
        parameters: &str,
        turn: &Turn<'_>,
    ) -> Result<String, HandlerError> {
        let (node, name) = match self.plan.target(full, prefix)? {
            Target::Global(name) => return self.plan.read_global(&name).ok_or(HandlerError::NoHandler(name)),
            Target::Element(node, name) => (node, name),
        };
        let handler = self.plan.class(node).handler(&name);
        if let Some(Handler { read: None, .. }) = handler {
            return Err(HandlerError::NotReadable(full.to_string()));
        }
        let every = handler.is_none_or(|h| h.sums);
        let mut values = Vec::new();
        for worker in self.workers_of(node, every) {
            let (name, parameters) = (name.clone(), parameters.to_string());
            let call =
                move |graph: &mut Graph, turn: &Turn<'_>| graph.read_here(node, &name, &parameters, turn);
            values.push(self.on_worker(worker, full, turn, call)?);
        }
        Ok(sum_or_only(values))
    }

    /// Writes a handler of any worker's element; of all copies where there are several.
    pub(crate) fn write_handler(
        &mut self,
        full: &str,
        prefix: &str,
        value: &str,
        turn: &Turn<'_>,
    ) -> Result<(), HandlerError> {
        let (node, name) = match self.plan.target(full, prefix)? {
            Target::Global(name) => return self.write_global(&name),
            Target::Element(node, name) => (node, name),
        };
        for worker in self.workers_of(node, true) {
            let (name, value) = (name.clone(), value.to_string());
            let call = move |graph: &mut Graph, turn: &Turn<'_>| graph.write_here(node, &name, &value, turn);
            self.on_worker(worker, full, turn, call)?;
        }
        Ok(())
    }

    fn write_global(&mut self, name: &str) -> Result<(), HandlerError> {
        match name {
            "stop" => Ok(self.control.request_stop()),
            _ if self.plan.read_global(name).is_some() => Err(HandlerError::NotWritable(name.to_string())),
            _ => Err(HandlerError::NoHandler(name.to_string())),
        }
    }

    fn workers_of(&self, node: usize, every: bool) -> std::ops::Range<usize> {
        match self.plan.home(node) {
            Home::Worker(worker) => worker..worker + 1,
            Home::Every if every => 0..self.plan.workers(),
            Home::Every => 0..1,
        }
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
        let (reply, answer) = sync_channel(1);
        let command = Command::Call(Box::new(move |graph, turn| drop(reply.send(call(graph, turn)))));
        let control = self.control.clone();
        let late = || HandlerError::Timeout(full.to_string());
        control.mailbox(worker).post(command).map_err(|_| late())?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match answer.recv_timeout(Duration::from_millis(1)) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline && !control.has_ended() => {}
                Err(_) => return Err(late()),
            }
            while let Some(Command::Call(call)) = control.mailbox(self.worker).take_call() {
                call(self, turn);
            }
        }
    }

    /// Reads a handler of an element of this worker.
    pub(crate) fn read_here(
        &mut self,
        node: usize,
        name: &str,
        parameters: &str,
        turn: &Turn<'_>,
    ) -> Result<String, HandlerError> {
        let full = || format!("{}.{name}", self.plan.name(node));
        match self.plan.class(node).handler(name) {
            Some(handler) => {
                let read = handler.read.ok_or_else(|| HandlerError::NotReadable(full()))?;
                let busy = full();
                self.enter(node, turn, |element, cx| read.call(element, parameters, cx))
                    .unwrap_or(Err(HandlerError::Busy(busy)))
            }
            None => self.read_standard(node, name).ok_or_else(|| HandlerError::NoHandler(name.to_string())),
        }
    }

    fn read_standard(&self, node: usize, name: &str) -> Option<String> {
        Some(match name {
            "name" => self.plan.name(node).to_string(),
            "class" => self.plan.class(node).name.to_string(),
            "config" => self.plan.config(node).to_string(),
            "ports" => self.plan.read_ports(node),
            "handlers" => {
                self.plan.handlers_of(node).map(|(name, flags)| format!("{name}\t{flags}\n")).collect()
            }
            "drops" => self.counts(node).drops.total().to_string(),
            "scheduled" => self.scheduler.is_scheduled(node).to_string(),
            "tickets" => self.scheduler.tickets(node).to_string(),
            "home_thread" => self.worker.to_string(),
            _ => return None,
        })
    }

    /// Writes a handler of an element of this worker.
    pub(crate) fn write_here(
        &mut self,
        node: usize,
        name: &str,
        value: &str,
        turn: &Turn<'_>,
    ) -> Result<(), HandlerError> {
        let full = || format!("{}.{name}", self.plan.name(node));
        match self.plan.class(node).handler(name) {
            Some(handler) => {
                let write = handler.write.ok_or_else(|| HandlerError::NotWritable(full()))?;
                let busy = full();
                self.enter(node, turn, |element, cx| write.call(element, value, cx))
                    .unwrap_or(Err(HandlerError::Busy(busy)))
            }
            None if name == "tickets" => {
                let tickets =
                    value.trim().parse().map_err(|_| HandlerError::refused("tickets is a number"))?;
                self.scheduler.set_tickets(node, tickets);
                Ok(())
            }
            None if self.read_standard(node, name).is_some() => Err(HandlerError::NotWritable(full())),
            None => Err(HandlerError::NoHandler(name.to_string())),
        }
    }
}

fn sum_or_only(mut values: Vec<String>) -> String {
    if values.len() == 1 { values.remove(0) } else { sum(values) }
}
