use super::carried::{Note, carried, note_plainly, plain_state, state_of};
use super::routes::RouterRoutes;
use super::shared::SharedFilter;
use super::unfiltered::is_unfiltered;
use super::worker::{WorkerFilter, link_header};
use super::{answers, ask, ask_worker, ports, runs};
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, Read, Write, anno,
};
use artery_filter::dissect::{At, Reason};
use artery_filter::engine::{Filter, Glance};
use artery_filter::facts::{Direction, Interface};
use artery_packet::Packet;
use std::any::Any;
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "PacketFilter",
    group: "filter",
    summary: "lets packets pass by the rules of a pf.conf",
    manual: "
Filters packets as OpenBSD's pf does, by the rules of FILE, a pf.conf(5); without FILE all pass until rules are loaded. PORT is
`NAME [ADDRESS/LENGTH…]`: an interface that rules can name, and its addresses; ports are numbered in their order. With N
ports, input I takes Ethernet frames that come in by port I and output I is where they go on; input N + I takes those that are
to leave by it, and output N + I leads there. What holds no IP passes untouched. Inputs that are not connected need not be:
a filter of what comes in only is asked once for each packet.

A packet that has a state passes by it, and no rule is asked. States belong to the worker that sees their packets; FromDevice
gives both directions of a connection to the same one. What the filter sends itself, such as a reset for a connection that is
blocked with `return`, leaves by the port that the packet came by; what it says to the receiver goes where the packet would have gone.

A packet gets the tag and the state that it had where it came in as annotations, by which rules with `tagged` know it where it
leaves, and which spare a search. `route-to` sets the destination annotation, which IPForward follows. Packets that
a network card was to finish pass whole, unless rules may change addresses or more of packets.

Packets of rules with `log` are added to LOG, as pflog(4) shows them; tcpdump reads it. A thread of its own writes them: of each worker
1024 may wait, and more are lost and counted. The file has mode 0600 if it is new. A file that can't be written, as on a full disk,
is told of once a minute with what was lost. Files that rules name are looked for in ETC if they are in /etc or have no folder.
ROUTER is the IPRouter that the filter is around, whose ports have the names of PORT. `no-route` and `urpf-failed` go by its
routes; without it rules that say so are refused. The group `egress` is the ports of its default routes,
and is updated within 100 ms of a change. Two kinds of frames are not filtered around a router: frames for other Ethernet
addresses than the port's, which the router drops, and Neighbor Discovery of the link.
Rules, tables and states are shown and changed by `artery pfctl`.",
    example: "
pf :: PacketFilter(PORT eth0 192.0.2.1/24, PORT eth1 10.0.0.1/24);
Idle -> pf; Idle -> [1] pf; Idle -> [2] pf; Idle -> [3] pf;
pf[0], pf[1], pf[2], pf[3] -> Discard;",
    ports: "1-/1-",
    processing: "h/h",
    args: &[
        Arg::keyword("PORT", "name, addresses", "", "an interface; any number of them"),
        Arg::keyword("FILE", "filename", "", "the rules"),
        Arg::keyword("LOG", "filename", "", "where packets of rules with `log` are written"),
        Arg::keyword("LOG_MAX", "bytes", "1G", "most bytes of that file, after which it is renamed to FILE.old and begun anew; 0 for no limit"),
        Arg::keyword("ROUTER", "element", "", "the IPRouter that it is around, whose routes rules mean"),
        Arg::keyword("ETC", "folder", "", "what rules mean by /etc where they name files"),
    ],
    handlers: &[
        Handler::write("pf_load", ask::LOAD, &Write(|p: &mut PacketFilter, text, cx| p.half.load(text, cx))).once(),
        Handler::read("pf_worker", ask_worker::WORKER, &Read(|p: &mut PacketFilter, text, cx| p.half.ask_worker(text, cx)))
            .parameters()
            .join(),
        Handler::read("pf", ask::ALL, &Read(|p: &mut PacketFilter, text, cx| ask::all(&p.half.shared().clone(), text, cx)))
            .parameters(),
    ],
    per_worker: true,
    build: |args| Ok(Box::new(PacketFilter::new(args)?)),
    ..Class::DEFAULT
};

/// By how many packets the memory of a packet is asked for before it is looked at.
const AHEAD: usize = 6;

/// How often states are looked at whether they are over, and how many.
const SWEEP: Duration = Duration::from_millis(100);
pub(super) const MOST_SWEPT: usize = 4096;

struct PacketFilter {
    half: WorkerFilter,
    ports: usize,
    /// Whether its rules are those of a file; otherwise those that were loaded last.
    has_file: bool,
    glances: Vec<Glance>,
    answers: Vec<(usize, Vec<u8>)>,
}

impl PacketFilter {
    fn new(args: &mut Args<'_>) -> Result<PacketFilter, ArgError> {
        let shared = match args.already_shared::<SharedFilter>() {
            Some(shared) => shared,
            None => {
                let shared = ports::shared(args, ports::of_arguments(args)?)?;
                args.shared(|| shared)
            }
        };
        let names: Vec<String> = ports::of_arguments(args)?.into_iter().map(|record| record.name).collect();
        let routes =
            args.is_given("ROUTER").then(|| RouterRoutes::new(args, &names, ports::FIRST)).transpose()?;
        let ports = names.len();
        if ports == 0 || args.inputs() > 2 * ports || args.outputs() > 2 * ports {
            let why = format!(
                "{ports} ports have as many inputs and outputs for what comes in, and for what leaves"
            );
            return Err(ArgError::wrong(why));
        }
        let half = WorkerFilter::new(&shared, args.copy().0)
            .map_err(|error| ArgError::wrong(format!("there is no memory for states: {error}")))?;
        let has_file = args.read::<Option<String>>("FILE")?.is_some();
        let half = half.with_routes(routes);
        Ok(PacketFilter { half, ports, has_file, glances: Vec::new(), answers: Vec::new() })
    }

    /// Looks at packets, and asks for the memory of the states that they may have. Returns by how many packets it is to be asked for
    /// again before it is needed.
    #[inline(always)]
    fn look<'p>(&mut self, direction: Direction, packets: impl Iterator<Item = &'p Packet>) -> usize {
        let PacketFilter { half: WorkerFilter { filter, .. }, glances, .. } = self;
        glances.clear();
        glances.extend(packets.map(|packet| filter.glance(carried(packet), direction)));
        filter.approach_all(glances)
    }

    /// Lets packets in that have states, up to the first for which that is not quickly done; returns how many.
    #[inline(never)]
    fn enter(&mut self, batch: &mut Batch, at: At) -> usize {
        let ahead = self.look(Direction::In, prefetched(batch));
        let PacketFilter { half: WorkerFilter { filter, .. }, glances, .. } = self;
        let mut passed = 0;
        for (packet, glance) in batch.iter_mut().zip(&*glances) {
            filter.approach_again(glances.get(passed + ahead));
            let Some(state) = filter.pass_quickly(|| carried(packet), glance, at) else { break };
            note_plainly(packet, state);
            passed += 1;
        }
        passed
    }

    /// The same where packets come in runs of one flow: what is found for the first holds for the others.
    #[inline(never)]
    fn enter_runs(&mut self, batch: &mut Batch, at: At) -> usize {
        let filter = &mut self.half.filter;
        let packets = batch.iter_mut().into_slice();
        let mut passed = 0;
        while let Some(packet) = packets.get(passed) {
            let glance = filter.glance_at_once(carried(packet), at.direction);
            let Some(state) = filter.pass_quickly(|| carried(packet), &glance, at) else { break };
            let followers = packets[passed + 1..].iter().map(carried);
            let end = passed + 1 + filter.enter_run(followers, &glance, (state, at));
            packets[passed..end].iter_mut().for_each(|packet| note_plainly(packet, state));
            passed = end;
        }
        passed
    }

    /// Lets packets out that had states where they came in, up to the first for which that is not quickly done; returns how
    /// many.
    #[inline(never)]
    fn leave(&mut self, batch: &Batch, at: At) -> usize {
        let filter = &mut self.half.filter;
        let packets = batch.iter().as_slice();
        // What came in long ago, as processors see it, may be far away by now.
        let approach = |filter: &Filter, packet: &Packet| {
            packet.prefetch();
            filter.approach_behind(plain_state(packet));
        };
        packets.iter().take(AHEAD).for_each(|packet| approach(filter, packet));
        for (n, packet) in packets.iter().enumerate() {
            if let Some(soon) = packets.get(n + AHEAD) {
                approach(filter, soon);
            }
            let state = state_of(packet).and_then(|came| filter.pass_behind(carried(packet), came, at));
            if state.is_none() {
                return n;
            }
        }
        packets.len()
    }

    /// Lets packets pass as the rules say, but for the first of a batch, which have passed.
    #[inline(never)]
    fn pass_others(&mut self, passed: usize, batch: &mut Batch, place: Place, cx: &mut Context<'_>) {
        let Place { at: At { direction, .. }, .. } = place;
        let is_plain = self.half.is_plain_at(place.at);
        let came = |packet: &Packet| match direction {
            Direction::In => None,
            Direction::Out => state_of(packet),
        };
        if is_plain {
            self.look(direction, batch.iter().skip(passed).filter(|packet| came(packet).is_none()));
        }
        let glances = std::mem::take(&mut self.glances);
        let (mut strangers, mut number) = (glances.iter(), 0);
        batch.filter_map(|mut packet| {
            number += 1;
            if number <= passed {
                return Some(packet);
            }
            let filter = &mut self.half.filter;
            let state = match came(&packet) {
                _ if !is_plain => None,
                Some(came) => filter.pass_behind(carried(&packet), came, place.at),
                None => strangers
                    .next()
                    .and_then(|glance| filter.pass_quickly(|| carried(&packet), glance, place.at)),
            };
            match state {
                Some(state) => {
                    if direction == Direction::In {
                        note_plainly(&mut packet, state);
                    }
                    Some(packet)
                }
                None => self.test(packet, place, cx),
            }
        });
        self.glances = glances;
    }

    /// Passes on the frames of a batch that are not filtered.
    fn send_unfiltered(&mut self, input: usize, at: At, batch: &mut Batch, cx: &mut Context<'_>) {
        let Some(routes) = self.half.routes() else { return };
        let Some(port) = routes.port(at.interface, cx.turn()) else { return };
        let is_unfiltered = |packet: &Packet| is_unfiltered(packet.data(), port, at.direction);
        if batch.iter().any(is_unfiltered) {
            let mut unfiltered = Batch::default();
            batch.filter_map(|packet| match is_unfiltered(&packet) {
                true => {
                    unfiltered.push(packet);
                    None
                }
                false => Some(packet),
            });
            cx.send_all(input, &mut unfiltered);
        }
    }

    /// Says what becomes of a packet that is not quickly let pass; None if it ends here.
    #[inline(never)]
    fn test(&mut self, mut packet: Packet, place: Place, cx: &mut Context<'_>) -> Option<Packet> {
        let Some(header) = link_header(packet.data()) else { return Some(packet) };
        let came = if place.at.direction == Direction::In { Note::default() } else { Note::of(&packet) };
        let at = At { is_unfinished: packet.leaves_checksum(), tag: came.tag, ..place.at };
        let passed = self.half.test_frame(&mut packet, header, at, came.state, cx);
        if self.half.has_news() {
            self.hear(&packet, header, place, cx);
        }
        match passed {
            Ok(passed) => {
                Note { state: passed.state, tag: passed.tag }.write(&mut packet);
                if passed.has_way
                    && let Some(gateway) = self.half.filter.way().gateway
                {
                    lead(&mut packet, gateway);
                }
                Some(packet)
            }
            Err(reason) => {
                cx.discard(packet, reason.map_or(DropReason::Consumed, drop_reason));
                None
            }
        }
    }

    /// Takes what the filter says itself about a packet.
    #[cold]
    fn hear(&mut self, packet: &Packet, header: usize, place: Place, cx: &mut Context<'_>) {
        for answer in &self.half.news(cx) {
            let output = place.answers_by(answer.towards, self.ports);
            self.answers.extend(answers::frame(answer, packet.data(), header).map(|frame| (output, frame)));
        }
    }

    /// Sends what the filter says itself.
    fn send_answers(&mut self, cx: &mut Context<'_>) {
        for (output, frame) in self.answers.drain(..) {
            match cx.pool().packet_from(&frame) {
                Some(packet) => cx.send_or_discard(output, packet, DropReason::NoOutput),
                None => cx.count_discarded(DropReason::PoolEmpty, 1),
            }
        }
    }
}

/// The packets of a batch, the memory of each of which was asked for a while before.
#[inline(always)]
fn prefetched(batch: &Batch) -> impl Iterator<Item = &Packet> {
    let packets = batch.iter().as_slice();
    packets.iter().take(AHEAD).for_each(Packet::prefetch);
    packets.iter().enumerate().map(move |(n, packet)| {
        packets.get(n + AHEAD).into_iter().for_each(Packet::prefetch);
        packet
    })
}

/// Where a packet is.
#[derive(Clone, Copy)]
struct Place {
    at: At,
    port: usize,
}

impl Place {
    /// The output of an answer. What leaves by a port and is answered comes from there, as its receiver would.
    fn answers_by(self, towards: artery_filter::engine::Towards, ports: usize) -> usize {
        use artery_filter::engine::Towards::{Receiver, Sender};
        match (self.at.direction, towards) {
            (Direction::In, Sender) | (Direction::Out, Receiver) => ports + self.port,
            (Direction::In, Receiver) | (Direction::Out, Sender) => self.port,
        }
    }
}

/// Why a packet ends that the filter drops.
pub(super) fn drop_reason(reason: Reason) -> DropReason {
    match reason {
        Reason::Match => DropReason::Filtered,
        Reason::Short | Reason::BadOffset => DropReason::TooShort,
        Reason::Fragment => DropReason::BadFragment,
        Reason::IpOption => DropReason::BadOption,
        Reason::NoRoute => DropReason::NoRoute,
        Reason::ProtocolChecksum => DropReason::BadChecksum,
        _ => DropReason::FilterState,
    }
}

/// Has a packet led to a gateway.
#[cold]
fn lead(packet: &mut Packet, gateway: std::net::IpAddr) {
    match gateway {
        std::net::IpAddr::V4(gateway) => packet.set_dst_ip(gateway),
        std::net::IpAddr::V6(gateway) => packet.set_annotation(anno::DST_IP6, gateway.octets()),
    }
}

impl Element for PacketFilter {
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        self.half.begin(cx);
        if self.half.may_change() {
            cx.finish(batch);
        }
        let direction = if input < self.ports { Direction::In } else { Direction::Out };
        let port = input % self.ports;
        let at = At::new(Interface(port as u16 + ports::FIRST), direction);
        self.send_unfiltered(input, at, batch, cx);
        let passed = match direction {
            _ if !self.half.is_plain_at(at) => 0,
            Direction::In if runs::seem_to_come(batch, carried) => self.enter_runs(batch, at),
            Direction::In => self.enter(batch, at),
            Direction::Out => self.leave(batch, at),
        };
        if passed < batch.len() {
            self.pass_others(passed, batch, Place { at, port }, cx);
        }
        self.half.filter.end();
        cx.send_all(input, batch);
        if !self.answers.is_empty() {
            self.send_answers(cx);
        }
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), artery_engine::StartError> {
        self.half.start(cx);
        let then = cx.now() + SWEEP;
        cx.wake_at(then);
        Ok(())
    }

    fn run(&mut self, cx: &mut Context<'_>) -> bool {
        self.half.begin(cx);
        self.half.maintain(MOST_SWEPT);
        self.half.follow_routes();
        let then = cx.now() + SWEEP;
        cx.wake_at(then);
        true
    }

    /// Keeps the states and the rules of a filter that this one takes the place of.
    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<PacketFilter>() {
            self.half.take_over(&mut old.half, !self.has_file, cx);
        }
    }
}

#[cfg(test)]
mod tests;
