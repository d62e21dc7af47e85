//! A router from its configuration to its end: build, run, call, replace, stop.
use crate::args::{ArgError, ArgWarning, Args, Environment};
use crate::call::{reading, writing};
use crate::class::{Class, Classes, Phase};
use crate::clock::Clock;
use crate::control::{Command, Control};
use crate::element::{Element, StartError};
use crate::events::Events;
use crate::graph::{Counts, Graph};
use crate::handler::HandlerError;
use crate::names::Names;
use crate::plan::Plan;
use crate::resources::Resources;
use crate::sink::Sink;
use crate::wiring::{wire, wire_across};
use crate::worker::Worker;
use artery_lang::{Ir, Processing};
use artery_packet::{BATCH, Pool, Time};
use artery_rcu::Domain;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How a router runs.
#[derive(Clone)]
pub struct Settings {
    /// Number of workers, at least 1. Simulated time needs exactly 1.
    pub workers: usize,
    /// Most packets in a batch, 1 to [`BATCH`]. 1 gives Click's order of events.
    pub burst: usize,
    /// Common and big frames of the pool.
    pub frames: (usize, usize),
    /// Start of simulated time; none for the machine's clock.
    pub simulated: Option<Time>,
    /// Whether to take the time of every element.
    pub profile: bool,
    /// Whether to bind each worker to a processor, the first to processor `n`.
    pub affinity: Option<usize>,
    /// Where elements print what packets make them say.
    pub chatter: Sink,
    /// Where scripts print.
    pub output: Sink,
    /// Device names of the configuration and what they are called on this machine.
    pub names: Names,
    /// Whether the handler `hotconfig` exists; see [`Handle::on_replacement`].
    pub replaceable: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            workers: 1,
            burst: BATCH,
            frames: (16384, 64),
            simulated: None,
            profile: false,
            affinity: None,
            chatter: Sink::Stderr,
            output: Sink::Stdout,
            names: Names::default(),
            replaceable: false,
        }
    }
}

/// Something wrong with one element, found while the router was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Number of the element in the configuration; none when the router itself is meant.
    pub node: Option<usize>,
    /// While the element was configured, or initialised.
    pub stage: Stage,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// Whether the router can run in spite of it.
    pub is_warning: bool,
    /// The text in the element's configuration that is meant, when it is not all of it: the first of these that is
    /// there once.
    pub texts: Vec<String>,
}

/// What a router was doing when it found a [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reading arguments.
    Configuring,
    /// Starting elements.
    Initializing,
    /// Deciding on workers.
    Placing,
}

impl Problem {
    fn of_router(message: impl Into<String>) -> Problem {
        Problem::new(None, Stage::Initializing, message.into())
    }
    fn new(node: Option<usize>, stage: Stage, message: String) -> Problem {
        Problem { node, stage, message, help: None, is_warning: false, texts: Vec::new() }
    }
    fn of_arguments(node: usize, class: &Class, error: &ArgError) -> Problem {
        let problem = Problem::new(Some(node), Stage::Configuring, error.to_string());
        Problem { help: error.help(class), texts: error.texts(), ..problem }
    }
    fn odd_arguments(node: usize, warning: ArgWarning) -> Problem {
        let problem = Problem::new(Some(node), Stage::Configuring, warning.text);
        Problem { help: warning.help, is_warning: true, ..problem }
    }
    fn of_start(node: usize, error: StartError) -> Problem {
        Problem { help: error.help, ..Problem::new(Some(node), Stage::Initializing, error.message) }
    }
    fn placing(message: String) -> Problem {
        Problem { is_warning: true, ..Problem::new(None, Stage::Placing, message) }
    }
}

/// A configuration that was built and started, but does not run yet.
pub struct Router {
    shared: Shared,
    graphs: Vec<Graph>,
    /// What should be said but does not keep the router from running.
    pub warnings: Vec<Problem>,
}

/// What stays the same when the graph is replaced.
#[derive(Clone)]
struct Shared {
    classes: Classes,
    settings: Settings,
    resources: Arc<Resources>,
    domain: Arc<Domain>,
    pool: &'static Pool,
    control: Arc<Control>,
    plan: Arc<Mutex<Arc<Plan>>>,
}

impl Router {
    /// Builds and starts all elements of a checked configuration.
    pub fn build(
        ir: &Ir,
        processing: &Processing,
        classes: Classes,
        settings: Settings,
    ) -> Result<Router, Vec<Problem>> {
        let plan = Plan::new(ir, processing, classes, settings.workers, settings.burst.clamp(1, BATCH));
        let mut shared = Shared::new(classes, settings)?;
        let (graphs, warnings) = shared.graphs(plan)?;
        *shared.plan.lock().unwrap_or_else(|e| e.into_inner()) = graphs[0].plan.clone();
        Ok(Router { shared, graphs, warnings })
    }

    /// Makes all elements and starts none: what is wrong with arguments shows although no device is opened. Gives
    /// where the elements would run, and warnings.
    pub fn configure(
        ir: &Ir,
        processing: &Processing,
        classes: Classes,
        settings: Settings,
    ) -> Result<(Plan, Vec<Problem>), Vec<Problem>> {
        let mut plan = Plan::new(ir, processing, classes, settings.workers, settings.burst.clamp(1, BATCH));
        let (_, warnings) = Shared::new(classes, settings)?.build_elements(&mut plan)?;
        Ok((plan, warnings))
    }

    /// Says before the start that handler calls can come from outside at any time; see [`Handle::keep_open`].
    pub fn keep_open(&self) {
        self.shared.control.set_open();
    }

    /// Stops the elements without having run them; their handlers can be read.
    pub fn finish(self) -> Finished {
        let Router { shared, mut graphs, .. } = self;
        let mut reader = shared.domain.reader();
        let turn = reader.turn();
        for graph in &mut graphs {
            for node in 0..graph.plan.len() {
                graph.enter(node, &turn, |element, cx| element.stop(cx));
            }
        }
        Finished { shared, graphs, ran: Duration::ZERO }
    }

    /// Which elements there are and where they run.
    pub fn plan(&self) -> Arc<Plan> {
        self.graphs[0].plan.clone()
    }

    /// Starts the workers.
    pub fn start(self) -> Running {
        let Router { shared, graphs, .. } = self;
        let affinity = shared.settings.affinity;
        let spawn = |(index, graph): (usize, Graph)| {
            let worker = Worker::new(graph, shared.domain.reader());
            let body = move || {
                affinity.into_iter().for_each(|first| bind_to_processor(first + index));
                worker.run()
            };
            let thread = std::thread::Builder::new().name(format!("worker-{index}"));
            thread.spawn(body).expect("the system can start a thread for each worker")
        };
        let workers = graphs.into_iter().enumerate().map(spawn).collect();
        Running { handle: Handle { shared }, workers, started: Instant::now() }
    }
}

fn bind_to_processor(n: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(n % std::thread::available_parallelism().map_or(1, usize::from));
    // A worker that may not choose its processor runs all the same.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// The elements of one worker, by number.
type Slots = Vec<Option<Box<dyn Element>>>;

/// What the elements of a graph have in common while they are made.
#[derive(Default)]
struct Making {
    /// Whether it is known which element runs where.
    settled: bool,
    names: Names,
    shared: HashMap<(usize, TypeId), Arc<dyn Any + Send + Sync>>,
    /// Of the element that is being made.
    warnings: Vec<ArgWarning>,
}

/// What was built, with warnings, or what was wrong.
type Built<T> = Result<(T, Vec<Problem>), Vec<Problem>>;

impl Shared {
    fn new(classes: Classes, settings: Settings) -> Result<Shared, Vec<Problem>> {
        let problem = |message: String| vec![Problem::of_router(message)];
        let pool = Pool::new(settings.frames.0, settings.frames.1).map_err(|e| problem(e.to_string()))?;
        let control = Control::new(settings.workers, settings.chatter.clone(), settings.output.clone())
            .map_err(|error| problem(format!("can't make a file to wake workers by: {error}")))?;
        control.set_profile(settings.profile);
        Ok(Shared {
            classes,
            settings,
            resources: Arc::default(),
            domain: Domain::new(),
            pool,
            control: Arc::new(control),
            plan: Arc::new(Mutex::new(Arc::new(Plan::empty()))),
        })
    }

    /// Makes all elements, joins them, and starts them in the order of their phases.
    fn graphs(&mut self, mut plan: Plan) -> Built<Vec<Graph>> {
        let (mut slots, warnings) = self.build_elements(&mut plan)?;
        plan.set_circumstances(self.settings.simulated.is_some(), self.settings.replaceable);
        let plan = Arc::new(plan);
        self.control.clear_driver();
        let mut graphs = Vec::new();
        for worker in 0..plan.workers() {
            let clock = self.settings.simulated.map_or_else(Clock::real, Clock::simulated);
            let slots = std::mem::take(&mut slots[worker]);
            let (plan, control) = (plan.clone(), self.control.clone());
            let mut graph = Graph::new(plan.clone(), control, worker, wire(&plan), slots, self.pool, clock);
            graph.events = Some(Events::new(&self.control.mailbox(worker).bell).map_err(|error| {
                vec![Problem::of_router(format!("can't watch files for worker {worker}: {error}"))]
            })?);
            graphs.push(graph);
        }
        wire_across(&plan, &self.control, &mut graphs);
        self.start_elements(&plan, &mut graphs)?;
        Ok((graphs, warnings))
    }

    fn build_elements(&self, plan: &mut Plan) -> Built<Vec<Slots>> {
        let mut slots: Vec<Slots> =
            (0..plan.workers()).map(|_| (0..plan.len()).map(|_| None).collect()).collect();
        let mut making = Making { names: self.settings.names.clone(), ..Making::default() };
        let mut problems: Vec<Problem> = Vec::new();
        let mut warnings = Vec::new();
        for phase in Phase::ALL {
            if *phase > Phase::Info && !std::mem::replace(&mut making.settled, true) {
                warnings.extend(plan.settle_homes().into_iter().map(Problem::placing));
            }
            // Worker by worker, so that elements of different workers do not share cache lines.
            for (worker, slots) in slots.iter_mut().enumerate() {
                for (node, slot) in slots.iter_mut().enumerate() {
                    let is_next = plan.class(node).phase == *phase && plan.is_on(node, worker);
                    if !is_next || problems.iter().any(|problem| problem.node == Some(node)) {
                        continue;
                    }
                    making.warnings.clear();
                    match self.build_element(plan, node, worker, &mut making) {
                        Ok(element) => *slot = Some(element),
                        Err(found) => problems.extend(found),
                    }
                    // All copies find the same odd.
                    if plan.first_home(node) == worker {
                        let odd = making.warnings.drain(..);
                        warnings.extend(odd.map(|warning| Problem::odd_arguments(node, warning)));
                    }
                }
            }
        }
        if problems.is_empty() { Ok((slots, sorted(warnings))) } else { Err(sorted(problems)) }
    }

    fn build_element(
        &self,
        plan: &mut Plan,
        node: usize,
        worker: usize,
        making: &mut Making,
    ) -> Result<Box<dyn Element>, Vec<Problem>> {
        let class = plan.class(node);
        let config = plan.config(node).to_string();
        let ports = (plan.inputs(node).len(), plan.outputs(node).len());
        let environment = Environment {
            names: &mut making.names,
            resources: &self.resources,
            pool: self.pool,
            domain: &self.domain,
            plan,
            shared: &mut making.shared,
            warnings: &mut making.warnings,
        };
        Args::parse(class, node, &config, ports, worker, environment)
            .and_then(|mut args| (class.build)(&mut args).map_err(|error| vec![error]))
            .map_err(|errors| errors.iter().map(|error| Problem::of_arguments(node, class, error)).collect())
    }

    /// Starts elements until the first that can't; then those that were started are stopped.
    fn start_elements(&self, plan: &Plan, graphs: &mut [Graph]) -> Result<(), Vec<Problem>> {
        let mut reader = self.domain.reader();
        let turn = reader.turn();
        let mut started = Vec::new();
        for node in in_phases(plan) {
            for worker in (0..graphs.len()).filter(|&worker| plan.is_on(node, worker)) {
                let result = graphs[worker].enter(node, &turn, |element, cx| element.start(cx));
                let Some(Err(error)) = result else {
                    started.push((worker, node));
                    continue;
                };
                for (worker, node) in started.into_iter().rev() {
                    graphs[worker].enter(node, &turn, |element, cx| element.stop(cx));
                }
                return Err(vec![Problem::of_start(node, error)]);
            }
        }
        Ok(())
    }

    fn plan(&self) -> Arc<Plan> {
        self.plan.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

/// Element numbers by phase, within a phase as in the configuration.
fn in_phases(plan: &Plan) -> Vec<usize> {
    let mut nodes: Vec<usize> = (0..plan.len()).collect();
    nodes.sort_by_key(|&node| plan.class(node).phase);
    nodes
}

fn sorted(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort_by_key(|problem| problem.node);
    problems
}

/// A router at work.
pub struct Running {
    handle: Handle,
    workers: Vec<JoinHandle<Graph>>,
    started: Instant,
}

/// Reaches a running router from any thread.
#[derive(Clone)]
pub struct Handle {
    shared: Shared,
}

impl Handle {
    /// Which elements there are and where they run.
    pub fn plan(&self) -> Arc<Plan> {
        self.shared.plan()
    }
    /// What belongs to the router.
    pub fn resources(&self) -> Arc<Resources> {
        self.shared.resources.clone()
    }
    /// Says that handler calls can come from outside at any time: a router with nothing to do then waits for them.
    pub fn keep_open(&self) {
        self.shared.control.set_open();
    }
    /// Reads a handler.
    pub fn read(&self, full: &str, parameters: &str) -> Result<String, HandlerError> {
        let plan = self.plan();
        plan.read_with(full, "", |worker, node, name| {
            self.shared.control.call(worker, full, reading(&plan, node, name, parameters), || ())
        })
    }
    /// Writes a handler.
    pub fn write(&self, full: &str, value: &str) -> Result<(), HandlerError> {
        let plan = self.plan();
        plan.write_with(full, "", |element, name| {
            let Some((worker, node)) = element else { return self.shared.control.write_global(name, value) };
            self.shared.control.call(worker, full, writing(&plan, node, name, value), || ())
        })
    }
    /// What each element has seen on all workers, by number.
    pub fn counts(&self) -> Result<Vec<Counts>, HandlerError> {
        let control = &self.shared.control;
        let mut sums = vec![Counts::default(); self.plan().len()];
        for worker in 0..self.shared.settings.workers {
            let counts = |graph: &mut Graph, _: &artery_rcu::Turn<'_>| {
                Ok((0..graph.plan.len()).map(|node| graph.counts(node).clone()).collect::<Vec<_>>())
            };
            add_counts(&mut sums, &control.call(worker, "counts", counts, || ())?);
        }
        Ok(sums)
    }
    /// Packets that replacements of the graph have cost so far.
    pub fn lost_to_replacement(&self) -> u64 {
        self.shared.control.lost_to_replacement()
    }
    /// Asks the router to stop; its driver script, if it has one, decides.
    pub fn request_stop(&self) {
        self.shared.control.request_stop();
    }
    /// Ends the run.
    pub fn end(&self) {
        self.shared.control.end();
    }
    /// Whether the run has ended.
    pub fn has_ended(&self) -> bool {
        self.shared.control.has_ended()
    }
    /// Says what to do with the text that is written to `hotconfig`. It is called on a worker and must not wait.
    pub fn on_replacement(&self, serve: impl Fn(String) + Send + Sync + 'static) {
        self.shared.control.on_replacement(Box::new(serve));
    }
    /// Puts another configuration in the place of the running one. On an error the old one goes on.
    pub fn replace(&self, ir: &Ir, processing: &Processing) -> Result<Vec<Problem>, Vec<Problem>> {
        let control = &self.shared.control;
        let Settings { workers, burst, .. } = self.shared.settings;
        let plan = Plan::new(ir, processing, self.shared.classes, workers, burst.clamp(1, BATCH));
        let driver = control.driver();
        control.set_replacing(true);
        let built = self.shared.clone().graphs(plan);
        let (graphs, warnings) = built.inspect_err(|_| {
            control.clear_driver();
            let restored = driver.is_none_or(|(worker, node)| control.set_driver(worker, node));
            debug_assert!(restored, "the driver was just cleared");
            control.set_replacing(false);
        })?;
        let plan = graphs[0].plan.clone();
        for (worker, graph) in graphs.into_iter().enumerate() {
            let mut command = Command::Replace(Box::new(graph));
            while let Err(back) = control.mailbox(worker).post(command) {
                command = back;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        for worker in 0..workers {
            // Commands are carried out in order: an answer means that the worker has the new graph.
            let _ = control.call(worker, "replace", |_, _| Ok(()), || ());
        }
        *self.shared.plan.lock().unwrap_or_else(|e| e.into_inner()) = plan;
        control.set_replacing(false);
        Ok(warnings)
    }
}

fn add_counts(sums: &mut [Counts], counts: &[Counts]) {
    sums.iter_mut().zip(counts).for_each(|(sum, count)| sum.merge(count));
}

impl Running {
    /// Reaches the router from other threads.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
    /// Waits for the end. The error is the name of a worker that panicked, which is a defect.
    pub fn wait(self) -> Result<Finished, String> {
        let mut graphs = Vec::new();
        for thread in self.workers {
            let name = thread.thread().name().unwrap_or("worker").to_string();
            let joined = thread.join();
            if joined.is_err() {
                self.handle.end();
            }
            graphs.push(joined.map_err(|_| name)?);
        }
        Ok(Finished { shared: self.handle.shared, graphs, ran: self.started.elapsed() })
    }
}

/// A router that has ended, with its elements and what they counted.
pub struct Finished {
    shared: Shared,
    graphs: Vec<Graph>,
    /// How long it ran.
    pub ran: Duration,
}

impl Finished {
    /// Whether an element said that it could not do its work.
    pub fn has_failed(&self) -> bool {
        self.shared.control.has_failed()
    }
    /// Whether the run ended because nobody read any more what scripts printed.
    pub fn was_unread(&self) -> bool {
        self.shared.control.is_unread()
    }
    /// Which elements there were.
    pub fn plan(&self) -> Arc<Plan> {
        self.graphs[0].plan.clone()
    }
    /// Reads a handler.
    pub fn read(&mut self, full: &str, parameters: &str) -> Result<String, HandlerError> {
        let mut reader = self.shared.domain.reader();
        let turn = reader.turn();
        self.plan().read_with(full, "", |worker, node, name| {
            self.graphs[worker].read_here(node, name, parameters, &turn)
        })
    }
    /// What each element has seen on all workers, by number.
    pub fn counts(&self) -> Vec<Counts> {
        let mut sums = vec![Counts::default(); self.plan().len()];
        for graph in &self.graphs {
            let counts: Vec<Counts> = (0..sums.len()).map(|node| graph.counts(node).clone()).collect();
            add_counts(&mut sums, &counts);
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Simple;
    use artery_lang::{Options, Sources, check, compile};
    use artery_packet::Packet;

    static IDLE: Class =
        Class { name: "Idle", ports: "0/0", build: |_| Ok(Box::new(Idle)), ..Class::DEFAULT };
    struct Idle;
    impl Simple for Idle {
        fn process(&mut self, packet: Packet, _: &mut crate::Context<'_>) -> Option<Packet> {
            Some(packet)
        }
    }

    fn router(text: &str) -> Router {
        static CLASSES: &[&Class] = &[&IDLE];
        let classes = Classes(CLASSES);
        let mut sources = Sources::default();
        let file = sources.add("test", text);
        let (ir, _) = compile(&mut sources, file, &Options::default(), &classes);
        let (processing, _) = check(&ir, &classes);
        let settings = Settings { frames: (64, 1), ..Settings::default() };
        Router::build(&ir, &processing, classes, settings).unwrap()
    }

    #[test]
    fn a_call_made_by_the_plan_of_another_graph_reaches_the_element_of_that_name_or_none() {
        let (other, mut here) = (router("a, b, c, d :: Idle"), router("x, d :: Idle"));
        let mut reader = here.shared.domain.reader();
        let turn = reader.turn();
        let mut name = |node| reading(&other.plan(), node, "name", "")(&mut here.graphs[0], &turn);
        assert_eq!(name(3), Ok("d".into()));
        assert_eq!(name(0), Err(HandlerError::NoElement("a".into())));
    }
}
