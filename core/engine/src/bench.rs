//! One element on a bench: packets in, packets out.
//!
//! ```
//! # use artery_engine::*;
//! # struct Null;
//! # impl Simple for Null {
//! #     fn process(&mut self, p: Packet, _: &mut Context<'_>) -> Option<Packet> { Some(p) }
//! # }
//! # static CLASS: Class = Class { name: "Null", build: |_| Ok(Box::new(Null)), ..Class::DEFAULT };
//! let mut bench = Bench::new(&CLASS, "");
//! bench.push(0, b"a packet");
//! bench.expect(0, b"a packet");
//! bench.expect_nothing_more();
//! ```
use crate::args::{ArgError, ArgWarning, Args, Environment};
use crate::class::Class;
use crate::clock::Clock;
use crate::context::Context;
use crate::element::{Element, StartError};
use crate::graph::Control;
use crate::graph::{Graph, Input, Node, Output, SignalSource};
use crate::handler::HandlerError;
use crate::names::Names;
use crate::plan::{Circumstances, Plan};
use crate::reason::{DropReason, Drops};
use crate::resources::Resources;
use crate::sink::Sink;
use artery_lang::flow;
use artery_packet::{Batch, Packet, Pool, Time};
use artery_rcu::{Domain, Reader};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

/// Packets that the bench offers to an element that pulls, by input.
type Offers = Arc<Mutex<Vec<VecDeque<Packet>>>>;

/// One element, with the bench where its neighbors would be. Time is simulated and starts at 1,000,000,000 s.
pub struct Bench {
    graph: Graph,
    reader: Reader,
    resources: Arc<Resources>,
    domain: Arc<Domain>,
    offers: Offers,
    received: Arc<Mutex<Vec<VecDeque<Packet>>>>,
    pool: &'static Pool,
    warnings: Vec<ArgWarning>,
    said: Sink,
    printed: Sink,
}

thread_local! {
    /// Pools are never freed, so that a thread makes one for all its benches.
    static POOL: std::cell::OnceCell<&'static Pool> = const { std::cell::OnceCell::new() };
}

/// Number of the element under test, of the bench's source and of its sink.
const ELEMENT: usize = 0;
const SOURCE: u32 = 1;
const SINK: u32 = 2;

/// Gives what the bench offers.
struct Offering(Offers);
impl Element for Offering {
    fn push(&mut self, _: usize, _: &mut Batch, _: &mut Context<'_>) {}
    fn pull(&mut self, output: usize, max: usize, into: &mut Batch, _: &mut Context<'_>) {
        let mut offers = self.0.lock().expect("the bench runs on one thread");
        let n = max.min(offers[output].len());
        into.extend(offers[output].drain(..n));
    }
}

/// Keeps what the element sends.
struct Received(Arc<Mutex<Vec<VecDeque<Packet>>>>);
impl Element for Received {
    fn push(&mut self, input: usize, batch: &mut Batch, _: &mut Context<'_>) {
        self.0.lock().expect("the bench runs on one thread")[input].extend(batch.drain());
    }
}

/// How a bench is set up, where the defaults do not fit.
pub struct Setup {
    class: &'static Class,
    config: String,
    inputs: Option<usize>,
    outputs: Option<usize>,
    pull: bool,
    burst: usize,
    names: Names,
    resources: Arc<Resources>,
    domain: Arc<Domain>,
    replacing: bool,
    copy: (usize, usize),
}

impl Setup {
    /// Connects this many inputs; the default is the least the class allows.
    pub fn inputs(mut self, inputs: usize) -> Setup {
        self.inputs = Some(inputs);
        self
    }
    /// Connects this many outputs; the default is the most the class allows, or as many as it must have.
    pub fn outputs(mut self, outputs: usize) -> Setup {
        self.outputs = Some(outputs);
        self
    }
    /// Resolves agnostic ports to pull.
    pub fn pull(mut self) -> Setup {
        self.pull = true;
        self
    }
    /// Sets how many packets make a burst.
    pub fn burst(mut self, burst: usize) -> Setup {
        self.burst = burst;
        self
    }
    /// Gives names of addresses and devices.
    pub fn names(mut self, names: Names) -> Setup {
        self.names = names;
        self
    }
    /// Gives what belongs to the router, such as ports.
    pub fn resources(mut self, resources: Arc<Resources>) -> Setup {
        self.resources = resources;
        self
    }
    /// Takes what belongs to the router, and its turns, from another bench: the two elements
    /// are of one router.
    pub fn sharing_with(self, other: &Bench) -> Setup {
        Setup { resources: other.resources.clone(), domain: other.domain.clone(), ..self }
    }
    /// Declares that another graph is running, whose element hands over its state later.
    pub fn as_replacement(mut self) -> Setup {
        self.replacing = true;
        self
    }
    /// Makes one of several copies: that of this worker, of so many.
    pub fn as_copy(mut self, worker: usize, workers: usize) -> Setup {
        self.copy = (worker, workers);
        self
    }
    /// Builds and starts the element; the error is its configuration's.
    pub fn build(self) -> Result<Bench, Vec<ArgError>> {
        Bench::build(self)
    }
}

impl Bench {
    /// An element with this configuration, all ports that its class allows connected. Panics
    /// when it is refused.
    #[track_caller]
    pub fn new(class: &'static Class, config: &str) -> Bench {
        Bench::setup(class, config)
            .build()
            .unwrap_or_else(|errors| panic!("{}({config}): {errors:?}", class.name))
    }
    /// A bench to be adapted before it is built.
    pub fn setup(class: &'static Class, config: &str) -> Setup {
        let names = Names::default();
        let config = config.to_string();
        Setup {
            class,
            config,
            inputs: None,
            outputs: None,
            pull: false,
            burst: artery_packet::BATCH,
            names,
            resources: Arc::default(),
            domain: Domain::new(),
            replacing: false,
            copy: (0, 1),
        }
    }
    /// The first mistake in a configuration, as a user reads it.
    #[track_caller]
    pub fn config_error(class: &'static Class, config: &str) -> String {
        match Bench::setup(class, config).build() {
            Ok(_) => panic!("{}({config}) was accepted", class.name),
            Err(errors) => errors[0].to_string(),
        }
    }

    fn build(setup: Setup) -> Result<Bench, Vec<ArgError>> {
        let class = setup.class;
        let count =
            |used| flow::port_counts(class.ports, used).expect("a test checks the port codes of all classes");
        let inputs = setup.inputs.unwrap_or(count([0, 0])[0]);
        let outputs = setup.outputs.unwrap_or(count([inputs, 16])[1]);
        let pulls = |codes: &str, n: usize| -> Vec<bool> {
            let codes: Vec<char> = codes.chars().collect();
            let code = |i: usize| codes.get(i).or(codes.last()).copied().unwrap_or('a');
            (0..n).map(|i| code(i) == 'l' || code(i) == 'a' && setup.pull).collect()
        };
        let (before, after) =
            class.processing.split_once('/').unwrap_or((class.processing, class.processing));
        let (pulls_in, pulls_out) = (pulls(before, inputs), pulls(after, outputs));
        let pool = POOL.with(|pool| *pool.get_or_init(|| Pool::new(256, 8).expect("a small pool")));
        let domain = setup.domain.clone();
        let (worker, workers) = setup.copy;
        let mut plan = Plan::of_one(class, &setup.config, pulls_in.clone(), pulls_out.clone(), workers);
        let mut warnings = Vec::new();
        let environment = Environment {
            names: &mut setup.names.clone(),
            resources: &setup.resources,
            pool,
            domain: &domain,
            plan: &mut plan,
            shared: &mut HashMap::new(),
            warnings: &mut warnings,
        };
        let ports = (inputs, outputs);
        let element =
            Args::parse(class, ELEMENT, &setup.config, ports, worker, environment).build_element()?;

        let offers: Offers = Arc::new(Mutex::new((0..inputs).map(|_| VecDeque::new()).collect()));
        let received = Arc::new(Mutex::new((0..outputs).map(|_| VecDeque::new()).collect()));
        let node = |inputs, outputs| Node {
            inputs,
            outputs,
            counts: Default::default(),
            is_pushed_to: true,
            finished: class.finished,
            signals: [false; 2],
            room: 0,
            listeners: Default::default(),
        };
        let input = |(i, pull): (usize, &bool)| Input {
            from: pull.then_some((SOURCE, i as u16)),
            sources: vec![SignalSource::Unknown],
        };
        let output = |(i, pull): (usize, &bool)| Output {
            to: (!pull).then_some((SINK, i as u16)),
            is_pull: *pull,
            remote: None,
            batch: Batch::default(),
            sinks: vec![SignalSource::Unknown],
        };
        let nodes = vec![
            node(
                pulls_in.iter().enumerate().map(input).collect(),
                pulls_out.iter().enumerate().map(output).collect(),
            ),
            node(vec![], vec![]),
            node(vec![], vec![]),
        ];
        let slots: Vec<Option<Box<dyn Element>>> = vec![
            Some(element),
            Some(Box::new(Offering(offers.clone()))),
            Some(Box::new(Received(received.clone()))),
        ];
        let (said, printed) = (Sink::buffer(), Sink::buffer());
        let control = Arc::new(Control::new(1, said.clone(), printed.clone()).expect("a file for the waker"));
        control.set_replacing(setup.replacing);
        let clock = Clock::simulated(Time::new(1_000_000_000, 0));
        plan.set_circumstances(Circumstances {
            resources: setup.resources.clone(),
            names: setup.names.clone(),
            domain: Some(domain.clone()),
            ..Circumstances::default()
        });
        let mut graph = Graph::new(Arc::new(plan), control, 0, nodes, slots, pool, clock);
        graph.burst = setup.burst;
        graph.monitors = setup.resources.get();
        let reader = domain.reader();
        let resources = setup.resources.clone();
        let mut bench =
            Bench { graph, reader, resources, domain, offers, received, pool, warnings, said, printed };
        bench
            .visit_element(|element, cx| element.start(cx))
            .map_err(|e: StartError| vec![ArgError::Wrong(e.message)])?;
        Ok(bench)
    }

    fn visit_element<R>(&mut self, f: impl FnOnce(&mut dyn Element, &mut Context<'_>) -> R) -> R {
        let turn = self.reader.turn();
        self.graph.clock.invalidate();
        self.graph.enter_element(ELEMENT, &turn, f).expect("the element is in its slot between calls")
    }

    /// Sets how far packets that a port received come: `off`, or `l0` to `l4`.
    #[track_caller]
    pub fn set_monitor(&mut self, port: u16, level: &str) {
        self.graph.monitors.set_monitor(port, level.parse().expect("a level"));
    }
    /// A packet with these bytes.
    pub fn packet(&self, bytes: impl AsRef<[u8]>) -> Packet {
        self.try_packet(bytes).expect("the bench's pool is big enough for a test")
    }
    /// The same; `None` while elements hold all packets of the bench's pool.
    pub fn try_packet(&self, bytes: impl AsRef<[u8]>) -> Option<Packet> {
        self.pool.packet_from(bytes.as_ref())
    }
    /// Pushes a packet with these bytes to an input.
    pub fn push(&mut self, input: usize, bytes: impl AsRef<[u8]>) {
        let packet = self.packet(bytes);
        self.push_packets(input, [packet]);
    }
    /// The same, of a packet that was changed before.
    pub fn push_with(&mut self, input: usize, bytes: impl AsRef<[u8]>, change: impl FnOnce(&mut Packet)) {
        let mut packet = self.packet(bytes);
        change(&mut packet);
        self.push_packets(input, [packet]);
    }
    /// Pushes packets to an input as one batch. Panics when the element leaves some there.
    #[track_caller]
    pub fn push_packets(&mut self, input: usize, packets: impl IntoIterator<Item = Packet>) {
        let mut batch = Batch::default();
        batch.extend(packets);
        if self.graph.nodes[ELEMENT].finished {
            self.graph.apply_offloads(ELEMENT, &mut batch);
        }
        self.visit_element(|element, cx| element.push(input, &mut batch, cx));
        assert!(batch.is_empty(), "the element left packets in its input");
    }
    /// Offers a packet to an input that pulls.
    pub fn offer(&mut self, input: usize, bytes: impl AsRef<[u8]>) {
        let packet = self.packet(bytes);
        self.offer_packet(input, packet);
    }
    /// Offers a packet to an input that pulls.
    pub fn offer_packet(&mut self, input: usize, packet: Packet) {
        self.offers.lock().expect("one thread")[input].push_back(packet);
    }
    /// Number of offered packets that were not pulled.
    pub fn offered_count(&self, input: usize) -> usize {
        self.offers.lock().expect("one thread")[input].len()
    }
    /// Pulls up to `max` packets from an output.
    pub fn pull(&mut self, output: usize, max: usize) -> Vec<Packet> {
        let mut batch = Batch::default();
        self.visit_element(|element, cx| element.pull(output, max, &mut batch, cx));
        batch.drain().collect()
    }
    /// Runs the element's task until it is no longer scheduled, 1000 times at most; returns how often it ran.
    pub fn run(&mut self) -> usize {
        (0..1000).take_while(|_| self.run_once()).count()
    }
    /// Runs the element's task if it is scheduled.
    pub fn run_once(&mut self) -> bool {
        let turn = self.reader.turn();
        self.graph.run_tasks(1, std::time::Duration::MAX, &turn).tasks == 1
    }
    /// Lets time pass, running the task at each of its timers on the way.
    pub fn advance_time(&mut self, time: std::time::Duration) {
        let end = self.graph.clock.now() + time;
        while let Some(next) = self.graph.scheduler.next_timer().filter(|next| *next <= end) {
            self.graph.clock.advance_to(next);
            self.graph.scheduler.expire_timers(next);
            self.run();
        }
        self.graph.clock.advance_to(end);
        self.run();
    }
    /// Lets time pass as for a process that stood still: all timers on the way expire at the end, and the
    /// task runs once if it is scheduled then.
    pub fn skip_time(&mut self, time: std::time::Duration) {
        let end = self.graph.clock.now() + time;
        self.graph.clock.advance_to(end);
        self.graph.scheduler.expire_timers(end);
        self.run_once();
    }
    /// The time on the bench.
    pub fn now(&mut self) -> Time {
        self.graph.clock.now()
    }
    /// Whether the element's task is scheduled.
    pub fn is_scheduled(&self) -> bool {
        self.graph.scheduler.is_scheduled(ELEMENT)
    }
    /// Whether the element says there is something to pull, and room to push.
    pub fn signals(&self) -> (bool, bool) {
        let [non_empty, non_full] = self.graph.nodes[ELEMENT].signals;
        (non_empty, non_full)
    }

    /// Takes the next packet that the element sent by an output.
    pub fn next_sent(&mut self, output: usize) -> Option<Packet> {
        self.received.lock().expect("one thread")[output].pop_front()
    }
    /// Takes all packets that the element sent by an output.
    pub fn drain_sent(&mut self, output: usize) -> Vec<Packet> {
        self.received.lock().expect("one thread")[output].drain(..).collect()
    }
    /// Takes the next packet of an output and compares its bytes.
    #[track_caller]
    pub fn expect(&mut self, output: usize, bytes: impl AsRef<[u8]>) -> Packet {
        let packet = self.next_sent(output).unwrap_or_else(|| panic!("no packet at output {output}"));
        let describe = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x} ")).collect::<String>();
        assert_eq!(describe(packet.data()), describe(bytes.as_ref()));
        packet
    }
    /// Checks that no output holds a packet.
    #[track_caller]
    pub fn expect_nothing_more(&mut self) {
        let left: Vec<_> = self.received.lock().expect("one thread").iter().map(VecDeque::len).collect();
        assert!(left.iter().all(|n| *n == 0), "packets left at the outputs: {left:?}");
    }
    /// Checks how many packets ended for this reason.
    #[track_caller]
    pub fn expect_dropped(&self, reason: DropReason, count: u64) {
        assert_eq!(self.drops().count(reason), count, "{:?}", self.drops());
    }
    /// Packets that ended here, by reason.
    pub fn drops(&self) -> &Drops {
        &self.graph.nodes[ELEMENT].counts.drops
    }
    /// Calls one of the element's read handlers.
    pub fn read(&mut self, name: &str, parameters: &str) -> Result<String, HandlerError> {
        let turn = self.reader.turn();
        let plan = self.graph.plan.clone();
        plan.read_here(&mut self.graph, (ELEMENT, name), parameters, &turn)
    }
    /// Calls one of the element's write handlers.
    pub fn write(&mut self, name: &str, value: &str) -> Result<(), HandlerError> {
        let turn = self.reader.turn();
        let plan = self.graph.plan.clone();
        plan.write_here(&mut self.graph, (ELEMENT, name), value, &turn)
    }
    /// The warnings about the element's arguments, one a line.
    pub fn warnings(&self) -> String {
        self.warnings.iter().map(|warning| format!("{}\n", warning.text)).collect()
    }
    /// Takes what the element said on standard error.
    pub fn stderr_text(&self) -> String {
        self.said.drain_text()
    }
    /// Takes what the element printed on standard output.
    pub fn stdout_text(&self) -> String {
        self.printed.drain_text()
    }
    /// Asks the router to stop, as a signal or another element would; a driver's task runs then.
    pub fn request_stop(&mut self) {
        self.graph.control.request_stop();
        if self.graph.control.driver().is_some() {
            self.graph.scheduler.schedule_task(ELEMENT);
        }
    }
    /// Whether the element ended the run.
    pub fn has_ended(&self) -> bool {
        self.graph.control.has_ended()
    }
    /// Whether something asked the router to stop.
    pub fn stop_requested(&self) -> bool {
        self.graph.control.has_stop_requests()
    }
    /// Stops the element as when the graph is replaced by one without a successor for it.
    pub fn stop_without_successor(&mut self) {
        self.graph.control.set_replacing(true);
        self.visit_element(|element, cx| element.stop(cx));
        self.graph.control.set_replacing(false);
    }
    /// Lets the element take over what the one on `old` holds, as when a graph is replaced.
    pub fn take_state(&mut self, old: &mut Bench) {
        let mut element = old.graph.slots[ELEMENT].take().expect("the element is in its slot between calls");
        let was_replacing = self.graph.control.is_replacing();
        self.graph.control.set_replacing(true);
        self.visit_element(|new, cx| new.take_state(&mut *element, cx));
        self.graph.control.set_replacing(was_replacing);
        old.graph.slots[ELEMENT] = Some(element);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_packet::{PacketOffload, SegmentKind, Segments};
    use artery_wire::build::ip4;

    /// Passes packets on, and wants them as they go over a wire.
    static FINISHED: Class =
        Class { name: "Finished", finished: true, build: |_| Ok(Box::new(Passing)), ..Class::DEFAULT };
    /// Passes packets on as they are.
    static ANY: Class = Class { name: "Any", build: |_| Ok(Box::new(Passing)), ..Class::DEFAULT };
    struct Passing;
    impl crate::Simple for Passing {
        fn process(&mut self, packet: Packet, _: &mut Context<'_>) -> Option<Packet> {
            Some(packet)
        }
    }

    const LEFT: PacketOffload = PacketOffload {
        transport: 20,
        checksum: 16,
        segments: Some(Segments { network: 0, kind: SegmentKind::Tcp4, size: 1000 }),
    };

    /// A packet to be cut into this many segments.
    fn long(bench: &Bench, segments: usize) -> Packet {
        let mut packet = bench.packet(ip4().tcp(1, 2).payload(vec![7; 1000 * segments]).bytes());
        packet.set_offload(LEFT).unwrap();
        packet
    }

    fn expected(segments: usize) -> Vec<Vec<u8>> {
        let segment = |n: usize| ip4().id(n as u16).tcp(1, 2).seq(1000 * n as u32).payload([7; 1000]).bytes();
        (0..segments).map(segment).collect()
    }

    fn bytes(packets: Vec<Packet>) -> Vec<Vec<u8>> {
        packets.iter().map(|packet| packet.data().to_vec()).collect()
    }

    #[test]
    fn a_class_that_wants_finished_packets_gets_segments_pushed_and_pulled() {
        let mut bench = Bench::new(&FINISHED, "");
        bench.push_packets(0, [long(&bench, 3)]);
        assert_eq!(bytes(bench.drain_sent(0)), expected(3));
        let mut bench = Bench::setup(&FINISHED, "").pull().build().unwrap();
        bench.offer_packet(0, long(&bench, 3));
        assert_eq!(bytes(bench.pull(0, 1)), expected(3), "more than were asked for");
        assert!(bench.pull(0, 1).is_empty());
    }

    #[test]
    fn any_other_class_gets_packets_as_they_are() {
        let mut bench = Bench::new(&ANY, "");
        bench.push_packets(0, [long(&bench, 3)]);
        let packet = bench.next_sent(0).unwrap();
        assert_eq!((packet.len(), packet.offload()), (3040, Some(LEFT)));
        bench.expect_nothing_more();
    }

    #[test]
    fn what_can_not_be_finished_is_dropped_and_counted() {
        let mut bench = Bench::new(&FINISHED, "");
        let mut packets: Vec<Packet> = (0..3).map(|_| long(&bench, 2)).collect();
        packets[1].truncate(30);
        bench.push_packets(0, packets);
        assert_eq!(bytes(bench.drain_sent(0)), [expected(2), expected(2)].concat());
        bench.expect_dropped(DropReason::Malformed, 1);
        // The pool has 256 frames for segments.
        let held: Vec<Packet> = (0..250).map(|_| bench.packet([])).collect();
        bench.push_packets(0, [long(&bench, 10)]);
        assert_eq!(bench.drain_sent(0).len(), 256 - held.len());
        bench.expect_dropped(DropReason::PoolEmpty, 1);
    }
}
