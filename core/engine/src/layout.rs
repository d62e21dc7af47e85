//! Which elements exist, how they are connected, and on which worker each one runs.
//!
//! A graph runs as written: one instance of each element, on the first worker or where it was placed. What is
//! connected without a queue between runs on one worker. A part whose classes all say `per_worker` and that
//! was not placed explicitly is copied to every worker instead: there it does what one instance would.
//! Elements of [`Phase::Info`] are made before workers are assigned, and stay on the first worker, with what
//! is connected to them.
use crate::scheduler::DEFAULT_TICKETS;
use artery_lang::Edge;
use std::sync::OnceLock;

/// Where an element runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// On this worker alone, one instance.
    Worker(usize),
    /// On every worker, a copy each.
    Every,
}

/// When elements are made and started: lower phases first, within a phase in the order of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Names and placement that others use while they are made. There is one instance, on the first worker.
    Info,
    /// What needs rights that the program drops later.
    Privileged,
    /// The phase of nearly all classes.
    Default,
    /// What looks at other elements, or writes over files.
    Last,
    /// What acts as soon as it starts: scripts.
    Acting,
}

impl Phase {
    /// All phases in their order.
    pub const ALL: &'static [Phase] =
        &[Phase::Info, Phase::Privileged, Phase::Default, Phase::Last, Phase::Acting];
}

/// What is known of an element's class where classes themselves are not.
#[derive(Clone, Copy)]
pub(crate) struct ClassTraits {
    pub(crate) name: &'static str,
    pub(crate) phase: Phase,
    pub(crate) per_worker: bool,
    pub(crate) boundary: bool,
}

#[derive(Clone)]
struct Node {
    name: String,
    class: ClassTraits,
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
    /// Handlers whose reads do more than show a value; `*` stands for any that it declared for itself.
    read_effects: Vec<(&'static str, ReadEffect)>,
}

/// What a read of a handler may do besides showing a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadEffect {
    /// It changes the router, files or processes.
    Acts,
    /// It reads these handlers, by their names as the element knows them.
    Calls(Vec<String>),
}

/// The elements of a configuration by their numbers, their connections, and where they run.
#[derive(Clone, Default)]
pub struct Layout {
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    requirements: Vec<String>,
    flat: String,
    workers: usize,
    burst: usize,
    /// The configuration as written, once it is set.
    source: OnceLock<String>,
}

impl Layout {
    /// The layout of no elements.
    pub(crate) fn new(workers: usize, burst: usize) -> Layout {
        Layout { workers, burst, ..Layout::default() }
    }
    /// Adds an element, which runs on the first worker until workers are assigned.
    pub(crate) fn add_node(
        &mut self,
        name: &str,
        class: ClassTraits,
        config: &str,
        inputs: Vec<bool>,
        outputs: Vec<bool>,
    ) {
        self.nodes.push(Node {
            name: name.to_string(),
            class,
            config: config.to_string(),
            inputs,
            outputs,
            placed: None,
            tickets: DEFAULT_TICKETS,
            home: Home::Worker(0),
            own_handlers: Vec::new(),
            read_effects: Vec::new(),
        });
    }
    /// Sets how the elements are connected, what the configuration requires, and its flattened text.
    pub(crate) fn connect(&mut self, edges: Vec<Edge>, requirements: Vec<String>, flat: String) {
        (self.edges, self.requirements, self.flat) = (edges, requirements, flat);
    }
    /// Sets where an element runs.
    pub(crate) fn set_home(&mut self, node: usize, home: Home) {
        self.nodes[node].home = home;
    }
    /// When an element is made and started.
    pub fn phase(&self, node: usize) -> Phase {
        self.nodes[node].class.phase
    }
    /// The name of an element's class.
    pub fn class_name(&self, node: usize) -> &'static str {
        self.nodes[node].class.name
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

    /// Says what a read of an element's handler may do.
    pub(crate) fn declare_read_effect(&mut self, node: usize, name: &'static str, effect: ReadEffect) {
        self.nodes[node].read_effects.push((name, effect));
    }
    /// What reads of an element's handlers may do.
    pub(crate) fn read_effects(&self, node: usize) -> &[(&'static str, ReadEffect)] {
        &self.nodes[node].read_effects
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
                None if self.workers > 1 && part.iter().all(|&n| self.nodes[n].class.per_worker) => {
                    Home::Every
                }
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
        self.phase(node) == Phase::Info
    }

    /// Whether the configuration says where an element runs.
    pub fn is_placed(&self, node: usize) -> bool {
        self.nodes[node].placed.is_some()
    }

    /// The parts of the graph that are connected otherwise than by pushing to a queue.
    pub fn connected_parts(&self) -> Vec<Vec<usize>> {
        let joins = |edge: &&Edge| self.inputs(edge.to.0)[edge.to.1] || !self.nodes[edge.to.0].class.boundary;
        let mut next: Vec<usize> = (0..self.nodes.len()).collect();
        for edge in self.edges.iter().filter(joins) {
            let (from, to) = (end_of(&mut next, edge.from.0), end_of(&mut next, edge.to.0));
            next[from] = to;
        }
        let mut parts = vec![Vec::new(); self.nodes.len()];
        (0..next.len()).for_each(|node| parts[end_of(&mut next, node)].push(node));
        parts.retain(|part| !part.is_empty());
        parts
    }
}

/// Where the chain from `node` ends: each leads to its `next`, the last to itself. Shortens the chain.
fn end_of(next: &mut [usize], mut node: usize) -> usize {
    while next[node] != node {
        next[node] = next[next[node]];
        node = next[node];
    }
    node
}
