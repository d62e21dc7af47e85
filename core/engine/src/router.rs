//! A router from its configuration to its end: build, run, call, replace, stop.
use crate::args::{ArgError, ArgWarning};
use crate::building::{Built, WorkerPart};
use crate::call::{read_call, write_call};
use crate::class::{Class, Classes};
use crate::control::{EndReason, WorkerCommand};
use crate::element::StartError;
use crate::graph::{Control, Counts, Graph, RouterPlan as _};
use crate::handler::{HandlerError, RouterHandler};
use crate::names::Names;
use crate::plan::Plan;
use crate::resources::Resources;
use crate::sink::Sink;
use crate::worker_threads::WorkerThreads;
use artery_lang::{Ir, Processing};
use artery_packet::{BATCH, Pool, Time};
use artery_rcu::Domain;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How a router runs.
#[derive(Clone)]
pub struct RouterSettings {
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
    /// For how long a worker with nothing to do waits awake, asking its files and rings, before it sleeps:
    /// packets are met at once, at the price of a processor. None leaves it to the worker, which waits awake
    /// for moments at most, when packets have lately come in quick succession. A worker that neither packets
    /// nor timers can reach sleeps.
    pub awake: Option<Duration>,
    /// Whether to bind each worker to a processor, the first to processor `n`.
    pub affinity: Option<usize>,
    /// Where elements print what packets make them say.
    pub chatter: Sink,
    /// Where scripts (`Script`, `print`) print.
    pub output: Sink,
    /// Device names of the configuration and what they are called on this machine.
    pub names: Names,
    /// Whether the handler `hotconfig` exists; see [`Handle::on_replacement`].
    pub replaceable: bool,
    /// Handlers of the router beside those that every router has.
    pub handlers: &'static [RouterHandler],
}

impl Default for RouterSettings {
    fn default() -> RouterSettings {
        RouterSettings {
            workers: 1,
            burst: BATCH,
            frames: (16384, 1024),
            simulated: None,
            profile: false,
            awake: None,
            affinity: None,
            chatter: Sink::Stderr,
            output: Sink::Stdout,
            names: Names::default(),
            replaceable: false,
            handlers: &[],
        }
    }
}

/// Something wrong with one element, found while the router was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Number of the element in the configuration; none when the router itself is meant.
    pub node: Option<usize>,
    /// While the element was configured, or initialised.
    pub stage: BuildStage,
    /// What is wrong, without the remedy.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// Whether the router can run in spite of it.
    pub is_warning: bool,
    /// The text in the element's configuration that is meant, when it is not all of it: the first of these
    /// that is there once.
    pub texts: Vec<String>,
}

/// What a router was doing when it found a [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildStage {
    /// Arguments of elements are parsed.
    Configuring,
    /// Elements are started, in the order of their phases.
    Initializing,
    /// Elements are assigned to workers.
    Placing,
}

impl Problem {
    pub(crate) fn of_router(message: impl Into<String>) -> Problem {
        Problem::new(None, BuildStage::Initializing, message.into())
    }
    fn new(node: Option<usize>, stage: BuildStage, message: String) -> Problem {
        Problem { node, stage, message, help: None, is_warning: false, texts: Vec::new() }
    }
    pub(crate) fn of_arguments(node: usize, class: &Class, error: &ArgError) -> Problem {
        let problem = Problem::new(Some(node), BuildStage::Configuring, error.to_string());
        Problem { help: error.remedy_for(class), texts: error.wrong_texts(), ..problem }
    }
    pub(crate) fn argument_warning(node: usize, warning: ArgWarning) -> Problem {
        let problem = Problem::new(Some(node), BuildStage::Configuring, warning.text);
        Problem { help: warning.help, is_warning: true, ..problem }
    }
    pub(crate) fn of_start(node: usize, error: StartError) -> Problem {
        Problem { help: error.help, ..Problem::new(Some(node), BuildStage::Initializing, error.message) }
    }
    fn worker_late(worker: usize, what: &str) -> Problem {
        Problem::of_router(format!("worker {worker} {what}"))
    }
    pub(crate) fn of_placing(message: String) -> Problem {
        Problem { is_warning: true, ..Problem::new(None, BuildStage::Placing, message) }
    }
}

/// A configuration that was built and started, but does not run yet.
pub struct Router {
    shared: Shared,
    threads: WorkerThreads,
    /// What should be said but does not keep the router from running.
    pub warnings: Vec<Problem>,
}

/// What stays the same when the graph is replaced.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) classes: Classes,
    pub(crate) settings: RouterSettings,
    pub(crate) resources: Arc<Resources>,
    pub(crate) domain: Arc<Domain>,
    pub(crate) pool: &'static Pool,
    pub(crate) control: Arc<Control>,
    plan: Arc<Mutex<Arc<Plan>>>,
}

impl Router {
    /// Builds and starts all elements of a checked configuration.
    pub fn build(
        ir: &Ir,
        processing: &Processing,
        classes: Classes,
        settings: RouterSettings,
    ) -> Result<Router, Vec<Problem>> {
        let plan = Plan::new(ir, processing, classes, settings.workers, settings.burst.clamp(1, BATCH));
        let shared = Shared::new(classes, settings)?;
        let mut threads = shared.start_workers("worker", shared.settings.affinity)?;
        let (plan, warnings) = shared.build_graph(&mut threads, plan)?;
        shared.set_plan(plan);
        Ok(Router { shared, threads, warnings })
    }

    /// Makes all elements and starts none: what is wrong with arguments shows although no device is opened.
    /// Gives where the elements would run, and warnings.
    pub fn configure(
        ir: &Ir,
        processing: &Processing,
        classes: Classes,
        settings: RouterSettings,
    ) -> Result<(Plan, Vec<Problem>), Vec<Problem>> {
        let plan = Plan::new(ir, processing, classes, settings.workers, settings.burst.clamp(1, BATCH));
        let shared = Shared::with_pool(classes, checked_pool(settings.frames)?, settings)?;
        let ((plan, _), warnings) =
            shared.make_elements(&mut shared.start_workers("builder", None)?, plan)?;
        Ok((plan, warnings))
    }

    /// Says before the start that handler calls can come from outside at
    /// any time; see [`Handle::accept_calls`].
    pub fn accept_calls(&self) {
        self.shared.control.set_open();
    }

    /// Stops the elements without having run them; their handlers can be read.
    pub fn finish(self) -> Finished {
        let Router { shared, mut threads, .. } = self;
        (0..shared.settings.workers).for_each(|worker| threads.run_on(worker, WorkerPart::stop_all));
        let graphs = threads.join_all().into_iter().map(WorkerPart::into_graph).collect();
        Finished { shared, graphs, ran: Duration::ZERO }
    }

    /// Which elements there are and where they run.
    pub fn plan(&self) -> Arc<Plan> {
        self.shared.plan()
    }

    /// Starts the worker threads; returns at once.
    pub fn start(self) -> Running {
        let Router { shared, threads, .. } = self;
        let workers = threads.release_threads(WorkerPart::run_worker);
        Running { handle: Handle { shared }, workers, started: Instant::now() }
    }
}

fn new_pool(frames: (usize, usize)) -> Result<&'static Pool, Vec<Problem>> {
    Pool::new(frames.0, frames.1).map_err(|error| vec![Problem::of_router(error.to_string())])
}

/// The pool of all routers that are only checked: pools are never freed, and each refused configuration of a
/// running router is checked.
fn checked_pool(frames: (usize, usize)) -> Result<&'static Pool, Vec<Problem>> {
    static CHECKED: Mutex<Option<&'static Pool>> = Mutex::new(None);
    let mut checked = CHECKED.lock().unwrap_or_else(|e| e.into_inner());
    let pool = checked.map_or_else(|| new_pool(frames), Ok)?;
    Ok(*checked.insert(pool))
}

impl Shared {
    fn new(classes: Classes, settings: RouterSettings) -> Result<Shared, Vec<Problem>> {
        Shared::with_pool(classes, new_pool(settings.frames)?, settings)
    }

    fn with_pool(
        classes: Classes,
        pool: &'static Pool,
        settings: RouterSettings,
    ) -> Result<Shared, Vec<Problem>> {
        let problem = |message: String| vec![Problem::of_router(message)];
        let control = Control::new(settings.workers, settings.chatter.clone(), settings.output.clone())
            .map_err(|error| problem(format!("can't make a file to wake workers by: {error}")))?;
        control.set_profile(settings.profile);
        settings.awake.into_iter().for_each(|awake| control.set_awake(awake));
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

    fn set_plan(&self, plan: Arc<Plan>) {
        *self.plan.lock().unwrap_or_else(|e| e.into_inner()) = plan;
    }
    fn plan(&self) -> Arc<Plan> {
        self.plan.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

/// A router at work.
pub struct Running {
    handle: Handle,
    workers: Vec<JoinHandle<WorkerPart>>,
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
    /// Says that handler calls can come from outside at any time: a router with nothing to do
    /// then waits for them.
    pub fn accept_calls(&self) {
        self.shared.control.set_open();
    }
    /// Calls the read handler `full` (`element.handler`, or a handler of the router), on its worker
    /// if it needs one.
    pub fn read_handler(&self, full: &str, parameters: &str) -> Result<String, HandlerError> {
        let plan = self.plan();
        if let Some(answer) = plan.read_aside(full, parameters) {
            return answer;
        }
        plan.read_with(full, "", parameters, |worker, node, name| {
            self.shared.control.call_worker(worker, full, read_call(&plan, node, name, parameters), || ())
        })
    }
    /// Writes a handler. Where several workers have copies, they do it at the same time.
    pub fn write_handler(&self, full: &str, value: &str) -> Result<(), HandlerError> {
        let (plan, control, mut called) = (self.plan(), &self.shared.control, Vec::new());
        let begun = plan.write_with(full, "", |element, name| {
            let Some((worker, node)) = element else { return control.write_global(&plan, name, value) };
            called.push(control.begin_call(worker, full, write_call(&plan, node, name, value))?);
            Ok(())
        });
        // All are waited for, also behind one that refuses or can't be asked: what comes next
        // finds it done everywhere.
        let answers: Vec<_> =
            called.into_iter().map(|called| control.wait_answer(called, full, || ())).collect();
        answers.into_iter().collect::<Result<(), _>>().and(begun)
    }
    /// What each element has seen on all workers, by number.
    pub fn counts(&self) -> Result<Vec<Counts>, HandlerError> {
        let control = &self.shared.control;
        let mut sums = vec![Counts::default(); self.plan().len()];
        for worker in 0..self.shared.settings.workers {
            let counts = |graph: &mut Graph, _: &artery_rcu::Turn<'_>| {
                Ok((0..graph.plan.len()).map(|node| graph.counts(node).clone()).collect::<Vec<_>>())
            };
            add_counts(&mut sums, &control.call_worker(worker, "counts", counts, || ())?);
        }
        Ok(sums)
    }
    /// Packets that replacements of the graph have cost so far.
    pub fn lost_to_replacement(&self) -> u64 {
        self.shared.control.lost_to_replacement()
    }
    /// Whether all workers answer, each within a second.
    pub fn is_responsive(&self) -> bool {
        self.wait_for_workers("does not answer").is_ok()
    }
    /// Whether a replacement of the graph is being built, which requests to stop wait for.
    pub fn is_replacing(&self) -> bool {
        self.shared.control.is_replacing()
    }
    /// Asks the router to stop; its driver script, if it has one, decides.
    pub fn request_stop(&self) {
        self.shared.control.request_stop();
    }
    /// Asks the router to stop; when it does, it receives nothing more, and has a second to
    /// send what it holds.
    pub fn request_drained_stop(&self) {
        self.shared.control.set_drains(true);
        self.request_stop();
    }
    /// Records the reason of the stop request, or of the end, that follows.
    pub fn record_end(&self, why: &str) {
        self.shared.control.record_end(why);
    }
    /// Why the run has ended, or the reason of the last request to end it.
    pub fn end_reason(&self) -> Option<EndReason> {
        self.shared.control.end_reason()
    }
    /// Ends the run at once.
    pub fn end_run(&self) {
        self.shared.control.set_drains(false);
        self.shared.control.end_run();
    }
    /// Whether the run has ended.
    pub fn has_ended(&self) -> bool {
        self.shared.control.has_ended()
    }
    /// Says what to do with the text that is written to `hotconfig`. It is called on a worker
    /// and must not wait.
    pub fn on_replacement(&self, serve: impl Fn(String) + Send + Sync + 'static) {
        self.shared.control.on_replacement(Box::new(serve));
    }
    /// Puts another configuration in the place of the running one. On an error the old one goes on. A worker
    /// that is late takes it when it goes on, and is warned of.
    pub fn replace_graph(&self, ir: &Ir, processing: &Processing) -> Result<Vec<Problem>, Vec<Problem>> {
        let control = &self.shared.control;
        let RouterSettings { workers, burst, .. } = self.shared.settings;
        // Before anything is touched: one that does not answer now would not take the new graph either.
        self.wait_for_workers("does not answer; nothing was replaced")?;
        let plan = Plan::new(ir, processing, self.shared.classes, workers, burst.clamp(1, BATCH));
        let driver = control.driver();
        control.set_replacing(true);
        let ((graphs, plan), mut warnings) = self.build_replacement(plan).inspect_err(|_| {
            control.clear_driver();
            let restored = driver.is_none_or(|(worker, node)| control.set_driver(worker, node));
            debug_assert!(restored, "the driver was just cleared");
            control.set_replacing(false);
        })?;
        warnings.extend(self.hand_over(graphs));
        self.shared.set_plan(plan);
        control.set_replacing(false);
        Ok(warnings)
    }

    /// Builds the graphs of a plan on threads of their own, while the old ones run.
    fn build_replacement(&self, plan: Plan) -> Built<(Vec<Graph>, Arc<Plan>)> {
        let mut threads = self.shared.start_workers("builder", None)?;
        let (plan, warnings) = self.shared.build_graph(&mut threads, plan)?;
        let graphs = threads.join_all().into_iter().map(WorkerPart::into_graph).collect();
        Ok(((graphs, plan), warnings))
    }

    /// Gives each worker its graph; says which did not take it in time.
    fn hand_over(&self, graphs: Vec<Graph>) -> Vec<Problem> {
        let mut late = Vec::new();
        for (worker, graph) in graphs.into_iter().enumerate() {
            if !self.shared.control.post_with_retry(worker, WorkerCommand::Replace(Box::new(graph))) {
                late.push(Problem::worker_late(
                    worker,
                    "has no room for commands and keeps its old configuration",
                ));
            }
        }
        // Commands are carried out in order: an answer means that the worker has the new graph.
        late.extend(
            self.wait_for_workers("has not taken the new configuration yet").err().unwrap_or_default(),
        );
        late.into_iter().map(|problem| Problem { is_warning: true, ..problem }).collect()
    }

    /// Waits until each worker answers; says which do not, and `what` that means.
    fn wait_for_workers(&self, what: &str) -> Result<(), Vec<Problem>> {
        let answers = |worker: &usize| {
            self.shared.control.call_worker(*worker, "replace", |_, _| Ok(()), || ()).is_ok()
        };
        let silent = (0..self.shared.settings.workers).filter(|worker| !answers(worker));
        let problems: Vec<Problem> = silent.map(|worker| Problem::worker_late(worker, what)).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems) }
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
    /// Whether a worker has ended.
    pub fn has_ended(&self) -> bool {
        self.workers.iter().any(JoinHandle::is_finished)
    }
    /// Waits for the end. The error is the name of a worker that panicked, which is a defect.
    pub fn wait(self) -> Result<Finished, String> {
        let mut graphs = Vec::new();
        for thread in self.workers {
            let name = thread.thread().name().unwrap_or("worker").to_string();
            let joined = thread.join();
            if joined.is_err() {
                self.handle.end_run();
            }
            graphs.push(joined.map_err(|_| name)?.into_graph());
        }
        graphs.iter_mut().for_each(Graph::discard_incoming);
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
    /// Whether the run ended because the reader of the scripts' output went away.
    pub fn was_unread(&self) -> bool {
        self.shared.control.is_unread()
    }
    /// Which elements there were.
    pub fn plan(&self) -> Arc<Plan> {
        // A replacement that came too late has set another plan than that of these graphs.
        self.graphs[0].whole_plan()
    }
    /// Calls the read handler `full` (`element.handler`, or a handler of the router).
    pub fn read_handler(&mut self, full: &str, parameters: &str) -> Result<String, HandlerError> {
        let mut reader = self.shared.domain.reader();
        let turn = reader.turn();
        let plan = self.plan();
        plan.read_with(full, "", parameters, |worker, node, name| {
            plan.read_here(&mut self.graphs[worker], (node, name), parameters, &turn)
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
    use crate::Context;
    use crate::element::{Element, Simple};
    use artery_lang::{Options, Sources, check, compile};
    use artery_packet::{Batch, Packet};
    use std::sync::mpsc::channel;

    static IDLE: Class =
        Class { name: "Idle", ports: "0/0", build: |_| Ok(Box::new(Idle)), ..Class::DEFAULT };
    struct Idle;
    impl Simple for Idle {
        fn process(&mut self, packet: Packet, _: &mut Context<'_>) -> Option<Packet> {
            Some(packet)
        }
    }

    /// Has a timer that goes off when no test runs any more.
    static LATE: Class =
        Class { name: "Late", ports: "0/0", build: |_| Ok(Box::new(Late)), ..Class::DEFAULT };
    struct Late;
    impl Element for Late {
        fn push(&mut self, _: usize, _: &mut Batch, _: &mut Context<'_>) {}
        fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
            let late = cx.now() + Duration::from_secs(1000);
            cx.wake_at(late);
            Ok(())
        }
    }

    /// Says who reads it.
    static ASIDE: Class = Class {
        name: "Aside",
        ports: "0/0",
        handlers: &[crate::Handler::read(
            "who",
            "who reads",
            &crate::Read(|_: &mut Late, _, _| Ok("worker".into())),
        )
        .parameters()
        .with_aside(|_, element, text| Ok(format!("{element} {text}")))],
        build: |_| Ok(Box::new(Late)),
        ..Class::DEFAULT
    };

    fn router(text: &str) -> Router {
        router_with(text, RouterSettings { frames: (64, 1), ..RouterSettings::default() })
    }
    fn router_with(text: &str, settings: RouterSettings) -> Router {
        static CLASSES: &[&Class] = &[&IDLE, &LATE, &ASIDE];
        let classes = Classes(CLASSES);
        let mut sources = Sources::default();
        let file = sources.add_file("test", text);
        let (ir, _) = compile(&mut sources, file, &Options::default(), &classes);
        let (processing, _) = check(&ir, &classes);
        Router::build(&ir, &processing, classes, settings).unwrap()
    }

    #[test]
    fn a_call_made_by_the_plan_of_another_graph_reaches_the_element_of_that_name_or_none() {
        let (other, mut here) = (router("a, b, c, d :: Idle"), router("x, d :: Idle").finish());
        let mut reader = here.shared.domain.reader();
        let turn = reader.turn();
        let mut name = |node| read_call(&other.plan(), node, "name", "")(&mut here.graphs[0], &turn);
        assert_eq!(name(3), Ok("d".into()));
        assert_eq!(name(0), Err(HandlerError::NoElement("a".into())));
    }

    #[test]
    fn a_worker_that_waits_awake_holds_up_no_writer() {
        let awake = Some(Duration::from_secs(1000));
        let running =
            router_with("Late", RouterSettings { frames: (64, 1), awake, ..RouterSettings::default() })
                .start();
        let handle = running.handle();
        // Its answer shows that the worker has begun a turn.
        handle.counts().unwrap();
        let (said, hears) = channel();
        let domain = handle.shared.domain.clone();
        std::thread::spawn(move || {
            domain.synchronize();
            said.send(()).expect("the test listens");
        });
        assert_eq!(hears.recv_timeout(Duration::from_secs(10)), Ok(()));
        handle.end_run();
        running.wait().unwrap();
    }

    #[test]
    fn what_is_read_aside_asks_no_worker_once_somebody_calls_from_outside() {
        let running = router("a :: Aside").start();
        let handle = running.handle();
        handle.accept_calls();
        assert_eq!(handle.read_handler("a.who", "knows").unwrap(), "a knows");
        handle.end_run();
        assert_eq!(running.wait().unwrap().read_handler("a.who", "").unwrap(), "worker");
    }
}
