//! Which elements exist, how they are connected, and on which worker each one runs.
//!
//! A graph runs as written: one instance of each element, on the first worker or where it was placed. What is
//! connected without a queue between runs on one worker. A part whose classes all say `per_worker` and that
//! was not placed explicitly is copied to every worker instead: there it does what one instance would.
//! Elements of [`Phase::Info`] are made before workers are assigned, and stay on the first worker, with what
//! is connected to them.
use crate::class::{Class, Classes, Phase};
use crate::handler::RouterHandler;
use crate::names::Names;
use crate::resources::Resources;
use crate::scheduler::DEFAULT_TICKETS;
use artery_lang::{Edge, Ir, Mode, Processing};
use artery_rcu::Domain;
use std::sync::{Arc, OnceLock};

/// Where an element runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// On this worker alone, one instance.
    Worker(usize),
    /// On every worker, a copy each.
    Every,
}

#[derive(Clone)]
struct Node {
    name: String,
    class: &'static Class,
    config: String,
    /// Whether each input, each output is pulled through.
    inputs: Vec<bool>,
    outputs: Vec<bool>,
    placed: Option<usize>,
    /// Share of its worker's turns.
    tickets: u32,
    home: Home,
    /// Handlers of this element alone, with their flags.
    own_handlers: Vec<(String, &'static str)>,
}

/// A checked configuration and where its elements run.
#[derive(Clone)]
pub struct Plan {
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    requirements: Vec<String>,
    flat: String,
    workers: usize,
    burst: usize,
    /// What there is to know beyond the configuration; for handlers.
    circumstances: Circumstances,
    /// The configuration as written, once it is set.
    source: OnceLock<String>,
}

/// How a configuration is run, as far as its handlers report.
#[derive(Clone, Default)]
pub(crate) struct Circumstances {
    pub(crate) classes: Classes,
    pub(crate) simulated: bool,
    pub(crate) replaceable: bool,
    /// Handlers of the router beside those that every router has, and what they tell of.
    pub(crate) handlers: &'static [RouterHandler],
    pub(crate) resources: Arc<Resources>,
    /// What elements that are made later need as the first ones did; no domain where none can be made.
    pub(crate) names: Names,
    pub(crate) domain: Option<Arc<Domain>>,
}

impl Plan {
    /// Makes the plan of a configuration without errors. [`Plan::assign_workers`] completes it.
    pub fn new(ir: &Ir, processing: &Processing, classes: Classes, workers: usize, burst: usize) -> Plan {
        let nodes = ir.nodes.iter().enumerate().map(|(n, node)| Node {
            name: node.name.clone(),
            class: classes.find_class(&node.class).expect("the configuration was checked"),
            config: node.config.clone(),
            inputs: processing.inputs[n].iter().map(|mode| *mode == Mode::Pull).collect(),
            outputs: processing.outputs[n].iter().map(|mode| *mode == Mode::Pull).collect(),
            placed: None,
            tickets: DEFAULT_TICKETS,
            home: Home::Worker(0),
            own_handlers: Vec::new(),
        });
        Plan {
            nodes: nodes.collect(),
            edges: ir.edges.clone(),
            requirements: ir.requirements.clone(),
            flat: artery_lang::print_flat(ir),
            workers,
            burst,
            circumstances: Circumstances { classes, ..Circumstances::default() },
            source: OnceLock::new(),
        }
    }

    /// The plan of nothing.
    pub(crate) fn empty() -> Plan {
        Plan {
            nodes: vec![],
            edges: vec![],
            requirements: vec![],
            flat: String::new(),
            workers: 1,
            burst: 1,
            circumstances: Circumstances::default(),
            source: OnceLock::new(),
        }
    }

    /// The plan of one element alone, for the bench.
    pub(crate) fn of_one(
        class: &'static Class,
        config: &str,
        inputs: Vec<bool>,
        outputs: Vec<bool>,
        workers: usize,
    ) -> Plan {
        let home = if workers > 1 { Home::Every } else { Home::Worker(0) };
        let name = "e".to_string();
        let config = config.to_string();
        let node = Node {
            name,
            class,
            config,
            inputs,
            outputs,
            placed: None,
            tickets: DEFAULT_TICKETS,
            home,
            own_handlers: Vec::new(),
        };
        Plan {
            nodes: vec![node],
            edges: Vec::new(),
            requirements: Vec::new(),
            flat: String::new(),
            workers,
            burst: artery_packet::BATCH,
            circumstances: Circumstances::default(),
            source: OnceLock::new(),
        }
    }

    /// Sets how the configuration is run.
    pub(crate) fn set_circumstances(&mut self, circumstances: Circumstances) {
        self.circumstances = circumstances;
    }
    /// What elements need that are made while the router runs.
    pub(crate) fn circumstances(&self) -> &Circumstances {
        &self.circumstances
    }
    pub(crate) fn is_simulated(&self) -> bool {
        self.circumstances.simulated
    }
    pub(crate) fn is_replaceable(&self) -> bool {
        self.circumstances.replaceable
    }
    /// Handlers of the router beside those that every router has.
    pub(crate) fn router_handlers(&self) -> &'static [RouterHandler] {
        self.circumstances.handlers
    }
    /// What outlives the graph.
    pub(crate) fn resources(&self) -> &Resources {
        &self.circumstances.resources
    }
    /// All classes that configurations can use.
    pub(crate) fn classes(&self) -> Classes {
        self.circumstances.classes
    }
    /// Names of all classes that configurations can use, other names that these have too.
    pub(crate) fn class_names(&self) -> Vec<&'static str> {
        let names = |class: &&'static Class| std::iter::once(class.name).chain(class.aliases.iter().copied());
        self.classes().0.iter().flat_map(names).collect()
    }
    /// Sets the text of the configuration, for the handler `config`. Only the first call counts.
    pub fn set_source(&self, text: impl Into<String>) {
        let _ = self.source.set(text.into());
    }
    /// The configuration as written, or flattened if it was not set.
    pub fn source(&self) -> &str {
        self.source.get().unwrap_or(&self.flat)
    }
    /// Number of elements in the flattened configuration.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }
    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
    /// An element's name, with that of its compounds.
    pub fn name(&self, node: usize) -> &str {
        &self.nodes[node].name
    }
    /// The name of the compound an element is in, with the slash; empty at top level.
    pub fn prefix(&self, node: usize) -> &str {
        let name = self.name(node);
        name.rfind('/').map_or("", |at| &name[..=at])
    }
    /// The class of an element, by its node number.
    pub fn class(&self, node: usize) -> &'static Class {
        self.nodes[node].class
    }
    /// An element's configuration string.
    pub fn config(&self, node: usize) -> &str {
        &self.nodes[node].config
    }
    /// Whether each of an element's inputs is pulled through.
    pub fn inputs(&self, node: usize) -> &[bool] {
        &self.nodes[node].inputs
    }
    /// Whether each of an element's outputs is pulled from.
    pub fn outputs(&self, node: usize) -> &[bool] {
        &self.nodes[node].outputs
    }
    /// All connections of the flattened configuration.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }
    /// Packages the configuration asked for.
    pub fn requirements(&self) -> &[String] {
        &self.requirements
    }
    /// The configuration, flattened: without compounds.
    pub fn flat(&self) -> &str {
        &self.flat
    }
    /// Number of workers that run the graph.
    pub fn workers(&self) -> usize {
        self.workers
    }
    /// Most packets in a batch.
    pub fn burst(&self) -> usize {
        self.burst
    }
    /// Where an element runs.
    pub fn home(&self, node: usize) -> Home {
        self.nodes[node].home
    }
    /// The first worker that has an instance of an element.
    pub(crate) fn first_home(&self, node: usize) -> usize {
        if let Home::Worker(worker) = self.home(node) { worker } else { 0 }
    }
    /// Whether `worker` has an instance of an element.
    pub fn is_on(&self, node: usize, worker: usize) -> bool {
        matches!(self.home(node), Home::Every) || self.home(node) == Home::Worker(worker)
    }

    /// The number of the element called `name`, looked up from `prefix` outwards; `name` may be
    /// a number from 1.
    pub fn find_node(&self, name: &str, prefix: &str) -> Option<usize> {
        let mut prefix = prefix;
        loop {
            let found = self.nodes.iter().position(|node| node.name.strip_prefix(prefix) == Some(name));
            if found.is_some() {
                return found;
            }
            if prefix.is_empty() {
                let number = name.parse::<usize>().ok()?;
                return number.checked_sub(1).filter(|n| *n < self.nodes.len());
            }
            prefix = prefix[..prefix.len() - 1].rfind('/').map_or("", |at| &prefix[..=at]);
        }
    }

    /// The number of the element with exactly this flattened name.
    pub fn resolve_exact(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// Gives an element a handler that its class does not list.
    pub(crate) fn declare_handler(&mut self, node: usize, name: &str, flags: &'static str) {
        let own = &mut self.nodes[node].own_handlers;
        if !own.iter().any(|(known, _)| known == name) {
            own.push((name.to_string(), flags));
        }
    }
    /// The handlers that an element declared for itself, with their flags.
    pub(crate) fn own_handlers(&self, node: usize) -> &[(String, &'static str)] {
        &self.nodes[node].own_handlers
    }

    /// Sets how many tickets an element's task starts with.
    pub fn set_tickets(&mut self, node: usize, tickets: u32) {
        self.nodes[node].tickets = tickets;
    }
    /// How many tickets an element's task starts with.
    pub fn tickets(&self, node: usize) -> u32 {
        self.nodes[node].tickets
    }

    /// Requests that an element run on a worker. Has no effect on elements of [`Phase::Info`].
    pub fn place_node(&mut self, node: usize, worker: usize) {
        if !self.is_made_early(node) {
            self.nodes[node].placed = Some(worker % self.workers);
        }
    }

    /// Decides where every element runs, when all wishes are known. Returns a sentence for each
    /// wish that contradicts another.
    pub fn assign_workers(&mut self) -> Vec<String> {
        let mut complaints = Vec::new();
        for part in self.connected_parts() {
            let mut wishes: Vec<(usize, usize)> =
                part.iter().filter_map(|&n| Some((n, self.wanted_worker(n)?))).collect();
            wishes.sort_by_key(|&(n, _)| !self.is_made_early(n));
            let home = match wishes.first() {
                Some(&(_, worker)) => Home::Worker(worker),
                None if self.workers > 1 && part.iter().all(|&n| self.class(n).per_worker) => Home::Every,
                None => Home::Worker(0),
            };
            if let Some((other, worker)) = wishes.iter().find(|(_, worker)| home != Home::Worker(*worker)) {
                let (first, at) = wishes[0];
                complaints.push(format!(
                    "'{}' wants worker {at} and '{}' worker {worker}, but they are connected; both run on \
                     worker {at}",
                    self.name(first),
                    self.name(*other),
                ));
            }
            part.iter().for_each(|&n| self.nodes[n].home = home);
        }
        complaints
    }

    /// Where an element must run, or is requested to.
    fn wanted_worker(&self, node: usize) -> Option<usize> {
        if self.is_made_early(node) { Some(0) } else { self.nodes[node].placed }
    }
    /// Whether an element is made while it is not yet settled where elements run.
    fn is_made_early(&self, node: usize) -> bool {
        self.class(node).phase == Phase::Info
    }

    /// Whether the configuration says where an element runs.
    pub fn is_placed(&self, node: usize) -> bool {
        self.nodes[node].placed.is_some()
    }

    /// The parts of the graph that are connected otherwise than by pushing to a queue.
    pub fn connected_parts(&self) -> Vec<Vec<usize>> {
        let mut part_of: Vec<usize> = (0..self.nodes.len()).collect();
        let joins = |edge: &&Edge| self.inputs(edge.to.0)[edge.to.1] || !self.class(edge.to.0).boundary;
        for edge in self.edges.iter().filter(joins) {
            let (from, to) = (part_of[edge.from.0], part_of[edge.to.0]);
            part_of.iter_mut().filter(|part| **part == from).for_each(|part| *part = to);
        }
        let mut parts = vec![Vec::new(); self.nodes.len()];
        part_of.iter().enumerate().for_each(|(node, &part)| parts[part].push(node));
        parts.retain(|part| !part.is_empty());
        parts
    }
}
