//! Forwarding whole frames in place, in one pass over a batch: check all, decide about all, rewrite all, send.
//!
//! What is done to one frame is in `plain.rs`. Nothing here answers, counts reasons or discards: a frame with which there is
//! more to do than to forward it leaves unchanged, for the router's slow path, which judges it anew. So what is tested here
//! need only never let pass what should not.
use super::flow::Flows;
use super::led::Led;
use super::plain::{self, Forwarded, Gate};
use super::shared::{self, SharedRouter};
use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Level, Packet, anno};
use artery_rcu::{Published, Turn};
use artery_table::PortId;
use artery_table::path::{Decision, Outcome, PathReader};
use artery_table::router::{PortView, ReversePath};
use std::sync::Arc;

/// Arguments of the elements.
pub(super) const ARGS: &[Arg] =
    &[Arg::required("ROUTER", "element", "the IPRouter that has the ports, routes and neighbors")];

/// Most ports of a router: the one that a frame came by is its paint.
const MOST_PORTS: usize = 1 << 8;

/// The frame passed the check. No port has this number, of which all bits are set.
const PLAIN: u16 = u16::MAX;

/// The element of a family.
pub(super) struct Forward<A: Forwarded> {
    ports: Arc<Published<Vec<PortView>>>,
    work: Work<A>,
    router: Arc<SharedRouter>,
    worker: usize,
}

/// What is known of a batch on its way through the element; kept for its storage.
struct Work<A: Forwarded> {
    path: PathReader<A>,
    flows: Flows,
    /// The output for what is not forwarded.
    odd: u16,
    /// Of all frames.
    outputs: Vec<u16>,
    /// Of the frames that passed the check: where they are in the batch, if there are others too, ...
    places: Vec<usize>,
    /// ... where they go, and what was decided.
    addresses: Vec<A>,
    decisions: Vec<Decision>,
    /// Whether all of the frames go by their annotation, and what is known of where these lead.
    are_led: bool,
    led: Led<A>,
}

impl<A: Forwarded> Forward<A> {
    pub(super) fn new(args: &mut Args<'_>, class: &Class) -> Result<Forward<A>, ArgError> {
        let router = shared::router(args)?;
        let ports = router.ports();
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
        let work = Work::new(A::path(readers).clone(), ports as u16);
        Ok(Forward { ports: readers.ports.clone(), work, worker: args.worker().0, router })
    }
}

impl<A: Forwarded> Work<A> {
    fn new(path: PathReader<A>, odd: u16) -> Work<A> {
        let (outputs, places, addresses, decisions) = Default::default();
        let (flows, led) = (Flows::default(), Led::default());
        Work { path, flows, odd, outputs, places, addresses, decisions, are_led: false, led }
    }

    /// Finds the destinations of all frames that can be forwarded as far as they say themselves.
    #[inline]
    fn check(&mut self, batch: &Batch, gate: &Gate<'_>) {
        self.addresses.resize(batch.len(), A::ZERO);
        self.outputs.resize(batch.len(), self.odd);
        self.places.clear();
        let (odd, mut are_plain, mut are_led) = (self.odd, true, true);
        for ((packet, output), to) in batch.iter().zip(&mut self.outputs).zip(&mut self.addresses) {
            let (address, is_plain) = A::check(packet.data(), gate);
            *to = led_to(packet, address);
            let is_led = *to != address;
            *output = odd | (PLAIN * u16::from(is_plain));
            are_plain &= is_plain;
            are_led &= is_led;
        }
        self.are_led = are_led;
        if !are_plain {
            self.check_again(batch, gate);
        }
    }

    /// Looks closer at the frames that did not pass, and leaves out those that still don't.
    fn check_again(&mut self, batch: &Batch, gate: &Gate<'_>) {
        let mut are_plain = true;
        for (packet, output) in batch.iter().zip(&mut self.outputs).filter(|(_, output)| **output != PLAIN) {
            match A::check_again(packet.data(), gate) {
                true => *output = PLAIN,
                false => are_plain = false,
            }
        }
        if !are_plain {
            self.find_places();
            let mut plain = self.outputs.iter().map(|output| *output == PLAIN);
            self.addresses.retain(|_| plain.next().unwrap_or(false));
        }
    }

    #[cold]
    fn find_places(&mut self) {
        self.places.clear();
        let plain = self.outputs.iter().enumerate().filter(|(_, output)| **output == PLAIN);
        self.places.extend(plain.map(|(place, _)| place));
    }

    /// Decides about all frames that passed the check, after so many changes of the tables. Returns the port that these are
    /// forwarded by, if it is the same.
    #[inline]
    fn decide(&mut self, batch: &Batch, turn: &Turn<'_>, changes: u64) -> Option<PortId> {
        if !self.are_led {
            return self.decide_by_tables(batch, turn).0;
        }
        if let Some(port) = self.led.decide(changes, &self.addresses, &mut self.decisions) {
            return port;
        }
        let (port, are_single) = self.decide_by_tables(batch, turn);
        if are_single {
            self.led.learn(&self.addresses, &self.decisions);
        }
        port
    }

    /// The same by the tables, and whether all go by the only way there is.
    #[inline]
    fn decide_by_tables(&mut self, batch: &Batch, turn: &Turn<'_>) -> (Option<PortId>, bool) {
        let Work { path, flows, places, addresses, decisions, .. } = self;
        let packets = batch.iter().as_slice();
        let frame =
            |at: usize| packets.get(places.get(at).copied().unwrap_or(at)).map_or(&[][..], Packet::data);
        let mut are_single = true;
        let number = |at, method| {
            are_single = false;
            flows.number(frame(at), method)
        };
        let port = path.decide_batch(turn, addresses, number, decisions);
        (port, are_single)
    }

    /// Whether every frame of the batch passed the check.
    fn are_all_plain(&self) -> bool {
        self.addresses.len() == self.outputs.len()
    }

    /// Turns aside frames that came by another port than that by which packets go to their source (RFC 3704).
    #[cold]
    fn check_sources(&mut self, batch: &Batch, check: ReversePath, came_by: PortId, turn: &Turn<'_>) {
        self.gather(batch, |packet| A::ends(packet.data()).0);
        self.decide_by_tables(batch, turn);
        let plain = self.outputs.iter_mut().filter(|output| **output == PLAIN);
        for (output, way) in plain.zip(&self.decisions) {
            let leads = matches!(way.outcome, Outcome::Forward | Outcome::Unresolved | Outcome::Failed);
            if !leads || check == ReversePath::Strict && way.port != came_by {
                *output = self.odd;
            }
        }
        self.find_places();
        self.gather(batch, |packet| led_to(packet, A::ends(packet.data()).1));
    }
    fn gather(&mut self, batch: &Batch, which: impl Fn(&Packet) -> A) {
        let plain = batch.iter().zip(&self.outputs).filter(|(_, output)| **output == PLAIN);
        self.addresses.clear();
        self.addresses.extend(plain.map(|(packet, _)| which(packet)));
    }

    /// Turns all frames aside, behind those that wait in the slow path; see [`super::order`].
    #[cold]
    fn turn_all_aside(&mut self) {
        self.outputs.fill(self.odd);
    }

    /// Rewrites all frames, each of which is forwarded by this port, and finds their outputs unless all take the port's.
    /// Returns whether they do.
    #[inline]
    fn rewrite_all(&mut self, batch: &mut Batch, port: PortId, view: &PortView) -> bool {
        let exit = Exit::new(port, view);
        let mut are_sent = true;
        for ((packet, output), decision) in batch.iter_mut().zip(&mut self.outputs).zip(&self.decisions) {
            if !exit.forward::<A>(packet, decision) {
                *output = self.odd;
                are_sent = false;
            }
        }
        if !are_sent {
            self.outputs.iter_mut().filter(|output| **output == PLAIN).for_each(|output| *output = port.0);
        }
        are_sent
    }

    /// Rewrites the frames that are forwarded, and finds the output of each frame.
    /// None may leave by `not_by`.
    fn rewrite(&mut self, batch: &mut Batch, ports: &[PortView], not_by: Option<PortId>) {
        let mut exit = None;
        let mut decisions = self.decisions.iter();
        for (packet, output) in batch.iter_mut().zip(&mut self.outputs) {
            if *output != PLAIN {
                continue;
            }
            let decision = decisions.next();
            let sent = decision.filter(|to| Exit::lead(&mut exit, to, ports, not_by)).zip(exit.as_ref());
            *output = match sent {
                Some((decision, exit)) if exit.forward::<A>(packet, decision) => exit.port.0,
                _ => self.odd,
            };
        }
    }

    /// Sends all frames by their outputs.
    fn send(&self, batch: &mut Batch, input: usize, cx: &mut Context<'_>) {
        for (mut packet, output) in batch.drain().zip(&self.outputs) {
            if *output == self.odd {
                packet.set_annotation(anno::PAINT, [input as u8]);
            }
            if cx.exits(Level::L3, &packet) {
                cx.discard(packet, DropReason::Monitored);
            } else {
                cx.send(usize::from(*output), packet);
            }
        }
    }
}

/// Where a packet to a destination goes: there, if it is not led elsewhere.
#[inline(always)]
fn led_to<A: Forwarded>(packet: &Packet, destination: A) -> A {
    let towards = A::towards(packet);
    if towards == A::ZERO { destination } else { towards }
}

/// A port that frames leave by.
struct Exit {
    port: PortId,
    /// Its part of a link header, as [`plain::write_link`] wants it.
    header: (u64, u32),
}

impl Exit {
    fn new(port: PortId, view: &PortView) -> Exit {
        Exit { port, header: (view.source_head, view.source_tail) }
    }

    /// Leads to where a frame is to be forwarded, if it is, and not by the port that it may not leave by. Most leave by
    /// the port that the last one left by.
    #[inline]
    fn lead(exit: &mut Option<Exit>, to: &Decision, ports: &[PortView], not_by: Option<PortId>) -> bool {
        if to.outcome != Outcome::Forward || Some(to.port) == not_by {
            return false;
        }
        if exit.as_ref().is_none_or(|exit| exit.port != to.port) {
            *exit = ports.get(usize::from(to.port.0)).map(|view| Exit::new(to.port, view));
        }
        exit.is_some()
    }

    /// Rewrites a frame, unless it is too long.
    #[inline]
    fn forward<A: Forwarded>(&self, packet: &mut Packet, to: &Decision) -> bool {
        let header = (to.link.bits() | self.header.0, self.header.1);
        plain::forward::<A>(packet, header, to.mtu)
    }
}

impl<A: Forwarded> Element for Forward<A> {
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let (turn, came_by) = (cx.turn(), PortId(input as u16));
        let changes = self.router.changes();
        let Forward { ports, work, router, worker } = self;
        let ports = ports.read(turn);
        let Some(port) = ports.get(input) else { return cx.discard_all(batch, DropReason::DeviceDown) };
        let gate = Gate::new(port);
        let arrived = batch.len();
        work.check(batch, &gate);
        cx.exit(Level::L2, batch);
        if batch.len() < arrived {
            work.check(batch, &gate);
        }
        if port.settings.rpf != ReversePath::Off {
            work.check_sources(batch, port.settings.rpf, came_by, turn);
        }
        // Where senders are told of better first hops, the slow path does so.
        let may_turn_back = !port.settings.redirects || work.are_led;
        let port = work
            .decide(batch, turn, changes)
            .filter(|port| (may_turn_back || *port != came_by) && work.are_all_plain());
        if router.order().is_behind(*worker) {
            work.turn_all_aside();
        } else if let Some((port, view)) = port.and_then(|port| Some((port, ports.get(usize::from(port.0))?)))
        {
            if work.rewrite_all(batch, port, view) {
                cx.exit(Level::L3, batch);
                return cx.send_all(port.0.into(), batch);
            }
        } else {
            work.rewrite(batch, ports, (!may_turn_back).then_some(came_by));
        }
        work.send(batch, input, cx);
    }
}
