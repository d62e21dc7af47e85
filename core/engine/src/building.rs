//! From a plan to started elements: each worker's part is made, connected and started
//! on that worker's thread.
//!
//! The parts are made in turn, so that the order of events is that of the configuration; see
//! [`crate::worker_threads`] for why each is on a thread of its own.
use crate::args::{ArgWarning, Args, Environment};
use crate::class::Phase;
use crate::clock::Clock;
use crate::element::Element;
use crate::events::Events;
use crate::graph::Graph;
use crate::names::{Names, UnusedDevice};
use crate::plan::{Circumstances, Plan};
use crate::router::{Problem, Shared};
use crate::wiring::{CrossingEnds, connect_workers, wire_nodes};
use crate::worker::Worker;
use crate::worker_threads::WorkerThreads;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

/// What was built, with warnings, or what was wrong.
pub(crate) type Built<T> = Result<(T, Vec<Problem>), Vec<Problem>>;

impl Shared {
    /// Starts the threads that build. Those that are to run the router, too, have `affinity`.
    pub(crate) fn start_workers(
        &self,
        name: &str,
        affinity: Option<usize>,
    ) -> Result<WorkerThreads, Vec<Problem>> {
        let parts = (0..self.settings.workers).map(|worker| WorkerPart::new(worker, self.clone()));
        WorkerThreads::new(parts, name, affinity).map_err(|error| {
            vec![Problem::of_router(format!("can't start a thread for each worker: {error}"))]
        })
    }

    /// Makes all elements, joins them, and starts them in the order of their phases.
    pub(crate) fn build_graph(&self, threads: &mut WorkerThreads, plan: Plan) -> Built<Arc<Plan>> {
        let ((mut plan, names), warnings) = self.make_elements(threads, plan)?;
        plan.set_circumstances(Circumstances {
            classes: self.classes,
            simulated: self.settings.simulated.is_some(),
            replaceable: self.settings.replaceable,
            handlers: self.settings.handlers,
            resources: self.resources.clone(),
            names,
            domain: Some(self.domain.clone()),
        });
        let plan = Arc::new(plan);
        self.control.clear_driver();
        for (worker, mut ends) in connect_workers(&plan, &self.control).into_iter().enumerate() {
            let plan = plan.clone();
            let join = move |part: &mut WorkerPart| (part.join_graph(plan, &mut ends), ends);
            let (joined, _emptied) = threads.run_on(worker, join);
            joined.map_err(|problem| vec![problem])?;
        }
        start_elements(threads, plan.workers())?;
        Ok((plan, warnings))
    }

    /// Makes all elements, and decides where they run as soon as all that have a say are made. Gives the
    /// names that they have declared, too.
    pub(crate) fn make_elements(&self, threads: &mut WorkerThreads, plan: Plan) -> Built<(Plan, Names)> {
        let workers = plan.workers();
        let mut making = BuildState::new(plan, self.settings.names.clone());
        for &phase in Phase::ALL {
            for worker in 0..workers {
                let make = move |part: &mut WorkerPart| {
                    part.make_phase(phase, &mut making);
                    making
                };
                making = threads.run_on(worker, make);
            }
            if phase == Phase::Info {
                let contradictions = making.plan.assign_workers();
                making.warnings.extend(contradictions.into_iter().map(Problem::of_placing));
            }
        }
        let BuildState { plan, names, mut problems, mut warnings, .. } = making;
        // An element that could not be made may have failed before it asked for its device.
        if problems.is_empty() {
            let told = if self.settings.replaceable { &mut warnings } else { &mut problems };
            told.extend(self.unused_devices());
        }
        if problems.is_empty() {
            Ok(((plan, names), sort_problems(warnings)))
        } else {
            Err(sort_problems(problems))
        }
    }

    /// Renamed devices that no element asked for. A later configuration may be what they are for: they are
    /// reported at the first build only, and as warnings where the configuration can be replaced.
    fn unused_devices(&self) -> Vec<Problem> {
        if self.control.is_replacing() {
            return Vec::new();
        }
        let unused = self.settings.names.unused_devices().into_iter();
        let is_warning = self.settings.replaceable;
        let problem = |device: UnusedDevice| Problem {
            help: Some(device.help),
            is_warning,
            ..Problem::of_router(device.message)
        };
        unused.map(problem).collect()
    }
}

/// Starts the elements in the order of their phases and reports all that fail to. Those that look at others,
/// or that write or act, come last and are not tried when others fail, so that nothing is overwritten for a
/// run that can't start. On an error all that were started are stopped.
fn start_elements(threads: &mut WorkerThreads, workers: usize) -> Result<(), Vec<Problem>> {
    let mut problems: Vec<Problem> = Vec::new();
    for &phase in Phase::ALL {
        if phase >= Phase::Last && !problems.is_empty() {
            break;
        }
        for worker in 0..workers {
            // All copies fail alike.
            let failed: Vec<usize> = problems.iter().filter_map(|problem| problem.node).collect();
            problems.extend(threads.run_on(worker, move |part| part.start_phase(phase, &failed)));
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    (0..workers).rev().for_each(|worker| threads.run_on(worker, WorkerPart::stop_started));
    Err(sort_problems(problems))
}

fn sort_problems(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort_by_key(|problem| problem.node);
    problems
}

/// What the elements of a graph have in common while they are made. It goes from worker to worker.
struct BuildState {
    plan: Plan,
    names: Names,
    shared: HashMap<(usize, TypeId), Arc<dyn Any + Send + Sync>>,
    /// Of the element that is being made.
    arg_warnings: Vec<ArgWarning>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl BuildState {
    fn new(plan: Plan, names: Names) -> BuildState {
        // Room enough that no worker's thread makes room and frees what another's allocated.
        let shared = HashMap::with_capacity(2 * plan.len());
        BuildState {
            plan,
            names,
            shared,
            arg_warnings: Vec::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// One worker's part of the router, on that worker's thread: first elements by number, then their graph.
pub(crate) struct WorkerPart {
    worker: usize,
    shared: Shared,
    slots: Vec<Option<Box<dyn Element>>>,
    graph: Option<Graph>,
    started: Vec<usize>,
}

impl WorkerPart {
    fn new(worker: usize, shared: Shared) -> WorkerPart {
        WorkerPart { worker, shared, slots: Vec::new(), graph: None, started: Vec::new() }
    }

    /// Makes this worker's elements of a phase.
    fn make_phase(&mut self, phase: Phase, making: &mut BuildState) {
        self.slots.resize_with(making.plan.len(), || None);
        for node in 0..making.plan.len() {
            let is_next = making.plan.phase(node) == phase && making.plan.is_on(node, self.worker);
            // All copies find the same fault.
            if is_next && !making.problems.iter().any(|problem| problem.node == Some(node)) {
                self.make_element(node, making);
            }
        }
    }

    fn make_element(&mut self, node: usize, making: &mut BuildState) {
        making.arg_warnings.clear();
        match self.build_element(node, making) {
            Ok(element) => self.slots[node] = Some(element),
            Err(found) => making.problems.extend(found),
        }
        // All copies report the same warnings: take those of the first worker only.
        if making.plan.first_home(node) == self.worker {
            let arg_warnings = making.arg_warnings.drain(..);
            making.warnings.extend(arg_warnings.map(|warning| Problem::argument_warning(node, warning)));
        }
    }

    fn build_element(&self, node: usize, making: &mut BuildState) -> Result<Box<dyn Element>, Vec<Problem>> {
        let BuildState { plan, names, shared, arg_warnings, .. } = making;
        let class = plan.class(node);
        let config = plan.config(node).to_string();
        let ports = (plan.inputs(node).len(), plan.outputs(node).len());
        let Shared { resources, pool, domain, .. } = &self.shared;
        let environment =
            Environment { names, resources, pool, domain, plan, shared, warnings: arg_warnings };
        Args::parse(class, node, &config, ports, self.worker, environment)
            .build_element()
            .map_err(|errors| errors.iter().map(|error| Problem::of_arguments(node, class, error)).collect())
    }

    /// Makes the graph of this worker's elements. `ends` keeps its memory, which is not this thread's.
    fn join_graph(&mut self, plan: Arc<Plan>, ends: &mut CrossingEnds) -> Result<(), Problem> {
        let Shared { settings, control, pool, resources, .. } = &self.shared;
        let clock = settings.simulated.map_or_else(Clock::real, Clock::simulated);
        let (nodes, slots) = (wire_nodes(&plan), std::mem::take(&mut self.slots));
        let mut graph = Graph::new(plan, control.clone(), self.worker, nodes, slots, pool, clock);
        graph.monitors = resources.get();
        graph.tracer = resources.get();
        graph.poll_trace();
        let events = Events::new(&control.mailbox(self.worker).waker).map_err(|error| {
            Problem::of_router(format!("can't watch files for worker {}: {error}", self.worker))
        })?;
        graph.events = Some(events);
        ends.move_into(&mut graph);
        self.graph = Some(graph);
        Ok(())
    }

    fn graph_mut(&mut self) -> &mut Graph {
        self.graph.as_mut().expect("elements are joined before they start, run and stop")
    }

    /// Starts this worker's elements of a phase but those in `failed`; gives what is wrong
    /// with those that can't.
    fn start_phase(&mut self, phase: Phase, failed: &[usize]) -> Vec<Problem> {
        let mut reader = self.shared.domain.reader();
        let turn = reader.turn();
        let plan = self.graph_mut().plan.clone();
        let mut problems = Vec::new();
        for node in (0..plan.len()).filter(|&node| plan.phase(node) == phase && !failed.contains(&node)) {
            match self.graph_mut().enter_element(node, &turn, |element, cx| element.start(cx)) {
                Some(Err(error)) => problems.push(Problem::of_start(node, error)),
                Some(Ok(())) => self.started.push(node),
                None => {}
            }
        }
        problems
    }

    /// Stops the elements that were started, the last first.
    fn stop_started(&mut self) {
        let started = std::mem::take(&mut self.started);
        self.stop_nodes(started.into_iter().rev());
    }

    pub(crate) fn stop_all(&mut self) {
        let all = 0..self.graph_mut().plan.len();
        self.stop_nodes(all);
    }

    fn stop_nodes(&mut self, nodes: impl Iterator<Item = usize>) {
        let mut reader = self.shared.domain.reader();
        let turn = reader.turn();
        for node in nodes {
            self.graph_mut().enter_element(node, &turn, |element, cx| element.stop(cx));
        }
    }

    /// Runs the graph until the router ends.
    pub(crate) fn run_worker(&mut self) {
        if let Some(graph) = self.graph.take() {
            self.graph = Some(Worker::new(graph, self.shared.domain.reader()).run_worker());
        }
    }

    /// The graph with its elements.
    pub(crate) fn into_graph(self) -> Graph {
        self.graph.expect("what is asked for its graph was joined")
    }
}
