//! Forwarding whole frames in place, in one pass over a batch: check all, decide about
//! all, rewrite all, send.
//!
//! Changes to a single frame are in `fast_path.rs`. Nothing here answers, counts reasons or discards:
//! exceptions leave unchanged for the router's slow path, which classifies them again. So the checks here may
//! reject a valid frame, but must never pass an invalid one.
use crate::decision_cache::DecisionCache;
use crate::fast_path::{self, ForwardFamily, FrameCheck};
use crate::flow::FlowHasher;
use crate::samples::PortSampler;
use crate::shared::{self, SharedRouter};
use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Level, Packet, anno};
use artery_l3::PortId;
use artery_l3::path::{ForwardDecision, Outcome, PathReader};
use artery_l3::router::{PortView, ReversePath};
use artery_rcu::{Published, Turn};
use std::sync::Arc;

/// Arguments of the elements.
pub(crate) const ARGS: &[Arg] =
    &[Arg::required("ROUTER", "element", "the IPRouter that has the ports, routes and neighbors")];

/// Most ports of a router: the paint annotation holds the ingress port.
const MOST_PORTS: usize = 1 << 8;

/// The frame passed the check. No port has this number, of which all bits are set.
const FAST_PATH: u16 = u16::MAX;

/// The element of a family.
pub(crate) struct Forward<A: ForwardFamily> {
    ports: Arc<Published<Vec<PortView>>>,
    work: BatchState<A>,
    router: Arc<SharedRouter>,
    worker: usize,
    sampler: PortSampler,
}

/// State of one batch; kept to reuse its memory.
struct BatchState<A: ForwardFamily> {
    path: PathReader<A>,
    flows: FlowHasher,
    /// The output for exceptions, after those of the ports.
    exception_output: u16,
    /// The output of each frame.
    outputs: Vec<u16>,
    /// For the frames that passed the check: their places in the batch, if others failed, ...
    frame_indexes: Vec<usize>,
    /// ... where they go, and what was decided.
    addresses: Vec<A>,
    decisions: Vec<ForwardDecision>,
    /// Whether all frames are redirected by their annotation, and the cached decisions for those.
    are_redirected: bool,
    decision_cache: DecisionCache<A>,
}

impl<A: ForwardFamily> Forward<A> {
    pub(crate) fn new(args: &mut Args<'_>, class: &Class) -> Result<Forward<A>, ArgError> {
        let router = shared::find_router(args)?;
        let ports = router.port_count();
        if ports > MOST_PORTS {
            let message =
                format!("{} has {ports} ports, and frames remember {MOST_PORTS} at most", router.name());
            return Err(ArgError::wrong(message));
        }
        if args.inputs() > ports || args.outputs() > ports + 1 {
            let (class, name) = (class.name, router.name());
            let message =
                format!("{name} has {ports} ports: {class} has as many inputs, and one output more");
            return Err(ArgError::wrong(message));
        }
        let readers = router.readers();
        let work = BatchState::new(A::path_reader(readers).clone(), ports as u16);
        let sampler = PortSampler::new(args.resource(), &router);
        Ok(Forward { ports: readers.ports.clone(), work, worker: args.worker().0, router, sampler })
    }
}

impl<A: ForwardFamily> BatchState<A> {
    fn new(path: PathReader<A>, exception: u16) -> BatchState<A> {
        let (outputs, places, addresses, decisions) = Default::default();
        let (flows, decision_cache) = (FlowHasher::default(), DecisionCache::default());
        BatchState {
            path,
            flows,
            exception_output: exception,
            outputs,
            frame_indexes: places,
            addresses,
            decisions,
            are_redirected: false,
            decision_cache,
        }
    }

    /// Collects the destinations of all frames that pass the fast check.
    #[inline]
    fn check_frames(&mut self, batch: &Batch, gate: &FrameCheck<'_>) {
        self.addresses.resize(batch.len(), A::ZERO);
        self.outputs.resize(batch.len(), self.exception_output);
        self.frame_indexes.clear();
        let (exception, mut are_plain, mut are_led) = (self.exception_output, true, true);
        for ((packet, output), to) in batch.iter().zip(&mut self.outputs).zip(&mut self.addresses) {
            let (address, is_plain) = A::check_header(packet.data(), gate);
            *to = effective_destination(packet, address);
            let is_led = *to != address;
            *output = exception | (FAST_PATH * u16::from(is_plain));
            are_plain &= is_plain;
            are_led &= is_led;
        }
        self.are_redirected = are_led;
        if !are_plain {
            self.recheck_frames(batch, gate);
        }
    }

    /// Checks the frames that did not pass with the full rules, and drops those that still
    /// fail from the list.
    fn recheck_frames(&mut self, batch: &Batch, gate: &FrameCheck<'_>) {
        let mut are_plain = true;
        for (packet, output) in
            batch.iter().zip(&mut self.outputs).filter(|(_, output)| **output != FAST_PATH)
        {
            if A::recheck_header(packet.data(), gate) { *output = FAST_PATH } else { are_plain = false }
        }
        if !are_plain {
            self.record_indexes();
            let mut plain = self.outputs.iter().map(|output| *output == FAST_PATH);
            self.addresses.retain(|_| plain.next().unwrap_or(false));
        }
    }

    #[cold]
    fn record_indexes(&mut self) {
        self.frame_indexes.clear();
        let plain = self.outputs.iter().enumerate().filter(|(_, output)| **output == FAST_PATH);
        self.frame_indexes.extend(plain.map(|(place, _)| place));
    }

    /// Decides about all frames that passed the check, after so many changes of the tables. Returns the
    /// egress port, if it is the same for all.
    #[inline]
    fn decide_frames(&mut self, batch: &Batch, turn: &Turn<'_>, changes: u64) -> Option<PortId> {
        if !self.are_redirected {
            return self.decide_by_tables(batch, turn).0;
        }
        if let Some(port) = self.decision_cache.decide_batch(changes, &self.addresses, &mut self.decisions) {
            return port;
        }
        let (port, are_single) = self.decide_by_tables(batch, turn);
        if are_single {
            self.decision_cache.insert_batch(&self.addresses, &self.decisions);
        }
        port
    }

    /// Decides by the tables. Returns the egress port if it is the same for all, and whether every route that
    /// was used has a single next hop.
    #[inline]
    fn decide_by_tables(&mut self, batch: &Batch, turn: &Turn<'_>) -> (Option<PortId>, bool) {
        let BatchState { path, flows, frame_indexes: places, addresses, decisions, .. } = self;
        let packets = batch.iter().as_slice();
        let frame =
            |at: usize| packets.get(places.get(at).copied().unwrap_or(at)).map_or(&[][..], Packet::data);
        let mut are_single = true;
        let number = |at, method| {
            are_single = false;
            flows.flow_number(frame(at), method)
        };
        let port = path.lookup_path_batch(turn, addresses, number, decisions);
        (port, are_single)
    }

    /// Whether every frame of the batch passed the check.
    fn are_all_fast_path(&self) -> bool {
        self.addresses.len() == self.outputs.len()
    }

    /// Makes exceptions of frames whose ingress port is not on the route to their source (RFC 3704).
    #[cold]
    fn check_sources(&mut self, batch: &Batch, check: ReversePath, came_by: PortId, turn: &Turn<'_>) {
        self.collect_addresses(batch, |packet| A::source_and_destination(packet.data()).0);
        self.decide_by_tables(batch, turn);
        let plain = self.outputs.iter_mut().filter(|output| **output == FAST_PATH);
        for (output, way) in plain.zip(&self.decisions) {
            let leads = matches!(way.outcome, Outcome::Forward | Outcome::Unresolved | Outcome::Failed);
            if !leads || check == ReversePath::Strict && way.port != came_by {
                *output = self.exception_output;
            }
        }
        self.record_indexes();
        self.collect_addresses(batch, |packet| {
            effective_destination(packet, A::source_and_destination(packet.data()).1)
        });
    }
    fn collect_addresses(&mut self, batch: &Batch, which: impl Fn(&Packet) -> A) {
        let plain = batch.iter().zip(&self.outputs).filter(|(_, output)| **output == FAST_PATH);
        self.addresses.clear();
        self.addresses.extend(plain.map(|(packet, _)| which(packet)));
    }

    /// Samples the frames whose turn it is, as they arrived. Those that are redirected are of flows that are
    /// exported as such.
    #[cold]
    fn sample_frames(&self, batch: &Batch, input: usize, sampler: &mut PortSampler) {
        let packets = batch.iter().as_slice();
        let is_fast = |place: &usize| self.outputs.get(*place) == Some(&FAST_PATH);
        sampler.sample_batch(packets.len(), |place| {
            let packet = packets.get(place).filter(|packet| A::destination_annotation(packet) == A::ZERO)?;
            // Decisions are of frames that passed the check alone.
            let decision = is_fast(&place)
                .then(|| self.decisions.get((0..place).filter(is_fast).count()))
                .flatten()
                .filter(|decision| decision.outcome == Outcome::Forward);
            Some((packet.data(), input, decision.map(|decision| usize::from(decision.port.0))))
        });
    }

    /// Makes exceptions of all frames, so that they follow those that wait in the
    /// slow path; see [`crate::order`].
    #[cold]
    fn punt_all(&mut self) {
        self.outputs.fill(self.exception_output);
    }

    /// Rewrites all frames, each of which leaves by this port, and sets their outputs unless all take the
    /// port's. Returns whether they do.
    #[inline]
    fn rewrite_all(&mut self, batch: &mut Batch, port: PortId, view: &PortView) -> bool {
        let exit = EgressPort::new(port, view);
        let mut are_sent = true;
        for ((packet, output), decision) in batch.iter_mut().zip(&mut self.outputs).zip(&self.decisions) {
            if !exit.forward_frame::<A>(packet, decision) {
                *output = self.exception_output;
                are_sent = false;
            }
        }
        if !are_sent {
            self.outputs
                .iter_mut()
                .filter(|output| **output == FAST_PATH)
                .for_each(|output| *output = port.0);
        }
        are_sent
    }

    /// Rewrites the frames that are forwarded, and finds the output of each frame.
    /// None may leave by `not_by`.
    fn rewrite_frames(&mut self, batch: &mut Batch, ports: &[PortView], not_by: Option<PortId>) {
        let mut exit = None;
        let mut decisions = self.decisions.iter();
        for (packet, output) in batch.iter_mut().zip(&mut self.outputs) {
            if *output != FAST_PATH {
                continue;
            }
            let decision = decisions.next();
            let sent = decision
                .filter(|to| EgressPort::select_port(&mut exit, to, ports, not_by))
                .zip(exit.as_ref());
            *output = match sent {
                Some((decision, exit)) if exit.forward_frame::<A>(packet, decision) => exit.port.0,
                _ => self.exception_output,
            };
        }
    }

    /// Sends all frames by their outputs.
    fn send_frames(&self, batch: &mut Batch, input: usize, cx: &mut Context<'_>) {
        for (mut packet, output) in batch.drain().zip(&self.outputs) {
            if *output == self.exception_output {
                packet.set_annotation(anno::PAINT, [input as u8]);
            }
            if cx.is_monitored_at(Level::L3, &packet) {
                cx.discard(packet, DropReason::Monitored);
            } else {
                cx.send(usize::from(*output), packet);
            }
        }
    }
}

/// The address that a packet is routed by: its redirect target, or else its destination.
#[inline(always)]
fn effective_destination<A: ForwardFamily>(packet: &Packet, destination: A) -> A {
    let towards = A::destination_annotation(packet);
    if towards == A::ZERO { destination } else { towards }
}

/// A port that frames leave by.
struct EgressPort {
    port: PortId,
    /// The port's part of a link header, in the format of [`fast_path::write_link`].
    header: (u64, u32),
}

impl EgressPort {
    fn new(port: PortId, view: &PortView) -> EgressPort {
        EgressPort { port, header: (view.source_head, view.source_tail) }
    }

    /// Sets the egress port of a frame, if it is forwarded, and not by the port that it may not leave by.
    /// Most leave by the port of the frame before.
    #[inline]
    fn select_port(
        exit: &mut Option<EgressPort>,
        to: &ForwardDecision,
        ports: &[PortView],
        not_by: Option<PortId>,
    ) -> bool {
        if to.outcome != Outcome::Forward || Some(to.port) == not_by {
            return false;
        }
        if exit.as_ref().is_none_or(|exit| exit.port != to.port) {
            *exit = ports.get(usize::from(to.port.0)).map(|view| EgressPort::new(to.port, view));
        }
        exit.is_some()
    }

    /// Rewrites a frame, unless it is too long.
    #[inline]
    fn forward_frame<A: ForwardFamily>(&self, packet: &mut Packet, to: &ForwardDecision) -> bool {
        let header = (to.link.bits() | self.header.0, self.header.1);
        fast_path::rewrite_frame::<A>(packet, header, to.mtu)
    }
}

impl<A: ForwardFamily> Element for Forward<A> {
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let (turn, came_by) = (cx.turn(), PortId(input as u16));
        let changes = self.router.change_count();
        let Forward { ports, work, router, worker, sampler } = self;
        let ports = ports.read(turn);
        let Some(port) = ports.get(input) else { return cx.discard_all(batch, DropReason::DeviceDown) };
        let gate = FrameCheck::new(port);
        let arrived = batch.len();
        work.check_frames(batch, &gate);
        cx.drop_monitored(Level::L2, batch);
        if batch.len() < arrived {
            work.check_frames(batch, &gate);
        }
        if port.settings.rpf != ReversePath::Off {
            work.check_sources(batch, port.settings.rpf, came_by, turn);
        }
        let decided = work.decide_frames(batch, turn, changes);
        if sampler.is_due(batch.len()) {
            work.sample_frames(batch, input, sampler);
        }
        // Where senders get ICMP redirects, the slow path sends them.
        let may_turn_back = !port.settings.redirects || work.are_redirected;
        let port = decided.filter(|port| (may_turn_back || *port != came_by) && work.are_all_fast_path());
        if router.reorder_guard().is_behind(*worker) {
            work.punt_all();
        } else if let Some((port, view)) = port.and_then(|port| Some((port, ports.get(usize::from(port.0))?)))
        {
            if work.rewrite_all(batch, port, view) {
                cx.drop_monitored(Level::L3, batch);
                return cx.send_all(port.0.into(), batch);
            }
        } else {
            work.rewrite_frames(batch, ports, (!may_turn_back).then_some(came_by));
        }
        work.send_frames(batch, input, cx);
    }
}
