use super::carried::{FilterAnnotation, annotate_plain, ip_payload, plain_state, state_of};
use super::exports::StateExports;
use super::routes::RouterRoutes;
use super::shared::SharedFilter;
use super::unfiltered::is_unfiltered;
use super::worker::{WorkerFilter, link_header};
use super::{answers, ask, explain, interfaces, ports, runs};
use artery_common::frame_filter::{PF, PF_LOAD, PF_WORKER};
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, Read, Write, anno,
};
use artery_filter::dissect::{FilterDropReason, HookContext};
use artery_filter::engine::{Filter, ParsedKey};
use artery_filter::facts::{Direction, Interface};
use artery_packet::Packet;
use std::any::Any;
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "PacketFilter",
    group: "filter",
    summary: "lets packets pass by the rules of a pf.conf",
    manual: "
Filters packets as OpenBSD's pf does, by the rules of FILE, a pf.conf(5); without FILE all pass until rules
are loaded. PORT is `NAME [ADDRESS/LENGTH…]`: an interface that rules can name, and its addresses; ports are
numbered in their order. With N ports, input I takes Ethernet frames that come in by port I and output I is
where they go on; input N + I takes those that are to leave by it, and output N + I leads there. What holds no
IP passes untouched. Inputs that are not connected need not be: a filter of what comes in only is asked once
for each packet.

A packet that has a state passes by it, and no rule is asked. States belong to the worker that sees their
packets; FromDevice gives both directions of a connection to the same one. What the filter sends itself, such
as a reset for a connection that is blocked with `return`, leaves by the port that the packet came by; what it
says to the receiver goes where the packet would have gone.

A packet gets the tag and the state that it had where it came in as annotations, by which rules with `tagged`
know it where it leaves, and which spare a search. `route-to` sets the destination annotation, which IPForward
follows. Packets that a network card was to finish pass whole, unless rules may change addresses or more of
packets.

Packets of rules with `log` are added to LOG, as pflog(4) shows them; tcpdump reads it. A thread of its own
writes them: of each worker 1024 may wait, and more are lost and counted. The file has mode 0600 if it is new.
When the file can't be written, as on a full disk, a message says so once a minute, with what was lost. Files
that rules name are looked for in ETC if they are in /etc or have no folder. ROUTER is the IPRouter that the
filter is around, whose ports have the names of PORT. `no-route` and `urpf-failed` go by its routes; without
it rules that say so are refused. The group `egress` is the ports of its default routes, and is updated within
100 ms of a change. Two kinds of frames are not filtered around a router: frames for other Ethernet addresses
than the port's, which the router drops, and Neighbor Discovery of the link. Rules, tables and states are
shown and changed by `artery pfctl`.",
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
        Arg::keyword(
            "LOG_MAX",
            "bytes",
            "1G",
            "most bytes of that file, after which it is renamed to FILE.old and a new one is started; 0 for \
             no limit",
        ),
        Arg::keyword("ROUTER", "element", "", "the IPRouter that it is around, whose routes rules mean"),
        Arg::keyword("ETC", "folder", "", "what rules mean by /etc where they name files"),
    ],
    handlers: &[
        Handler::write(
            "pf_load",
            PF_LOAD,
            &Write(|p: &mut PacketFilter, text, cx| p.half.load_rules(text, cx)),
        )
        .once(),
        Handler::read(
            "pf_worker",
            PF_WORKER,
            &Read(|p: &mut PacketFilter, text, cx| p.half.query_worker(text, cx)),
        )
        .parameters()
        .join(),
        Handler::read(
            "explain_json",
            explain::EXPLAIN,
            &Read(|p: &mut PacketFilter, text, cx| p.half.explain_frame(text, cx)),
        )
        .parameters()
        .join(),
        Handler::read(
            "pf",
            PF,
            &Read(|p: &mut PacketFilter, text, cx| ask::query_shared(&p.half.shared().clone(), text, cx)),
        )
        .parameters(),
    ],
    build: |args| Ok(Box::new(PacketFilter::new(args)?)),
    ..Class::PER_WORKER
};

/// How many packets ahead the memory of a packet is prefetched.
const AHEAD: usize = 6;

/// How often expired states are searched for, and how many slots at a time.
const SWEEP: Duration = Duration::from_millis(100);
pub(super) const MOST_SWEPT: usize = 4096;

struct PacketFilter {
    half: WorkerFilter,
    ports: usize,
    /// Whether its rules are those of a file; otherwise those that were loaded last.
    has_file: bool,
    keys: Vec<ParsedKey>,
    answers: Vec<(usize, Vec<u8>)>,
}

impl PacketFilter {
    fn new(args: &mut Args<'_>) -> Result<PacketFilter, ArgError> {
        let shared = match args.already_shared::<SharedFilter>() {
            Some(shared) => shared,
            None => {
                let shared = ports::shared_filter(args, ports::of_arguments(args)?)?;
                args.shared_value(|| shared)
            }
        };
        let names: Vec<String> = ports::of_arguments(args)?.into_iter().map(|record| record.name).collect();
        let routes = args
            .is_given("ROUTER")
            .then(|| RouterRoutes::new(args, &names, interfaces::FIRST))
            .transpose()?;
        let ports = names.len();
        if ports == 0 || args.inputs() > 2 * ports || args.outputs() > 2 * ports {
            let why = format!(
                "{ports} ports have as many inputs and outputs for what comes in, and for what leaves"
            );
            return Err(ArgError::wrong(why));
        }
        let half = WorkerFilter::new(&shared, args.copy_index().0)
            .map_err(|error| ArgError::wrong(format!("cannot allocate memory for states: {error}")))?;
        let has_file = args.read::<Option<String>>("FILE")?.is_some();
        let exports = StateExports::new(args.resource(), &names);
        let half = half.with_routes(routes).with_exports(exports);
        Ok(PacketFilter { half, ports, has_file, keys: Vec::new(), answers: Vec::new() })
    }

    /// Parses the keys of packets, and prefetches the memory of the states that they may have. Returns how
    /// many packets ahead it is to be prefetched again before use.
    #[inline(always)]
    fn parse_keys<'p>(&mut self, direction: Direction, packets: impl Iterator<Item = &'p Packet>) -> usize {
        let PacketFilter { half: WorkerFilter { filter, .. }, keys, .. } = self;
        keys.clear();
        keys.extend(packets.map(|packet| filter.parse_key(ip_payload(packet), direction)));
        filter.prefetch_states(keys)
    }

    /// Passes inbound packets that have states, up to the first that the fast path can't decide
    /// about; returns how many.
    #[inline(never)]
    fn pass_ingress(&mut self, batch: &mut Batch, at: HookContext) -> usize {
        let ahead = self.parse_keys(Direction::In, prefetch_packets(batch));
        let PacketFilter { half: WorkerFilter { filter, .. }, keys, .. } = self;
        let mut passed = 0;
        for (packet, key) in batch.iter_mut().zip(&*keys) {
            filter.prefetch_again(keys.get(passed + ahead));
            let Some(state) = filter.pass_fast(|| ip_payload(packet), key, at) else { break };
            annotate_plain(packet, state);
            passed += 1;
        }
        passed
    }

    /// The same where packets come in runs of one flow: the result for the first applies to the others.
    #[inline(never)]
    fn enter_runs(&mut self, batch: &mut Batch, at: HookContext) -> usize {
        let filter = &mut self.half.filter;
        let packets = batch.iter_mut().into_slice();
        let mut passed = 0;
        while let Some(packet) = packets.get(passed) {
            let key = filter.parse_keys(ip_payload(packet), at.direction);
            let Some(state) = filter.pass_fast(|| ip_payload(packet), &key, at) else { break };
            let followers = packets[passed + 1..].iter().map(ip_payload);
            let end = passed + 1 + filter.enter_run(followers, &key, (state, at));
            packets[passed..end].iter_mut().for_each(|packet| annotate_plain(packet, state));
            passed = end;
        }
        passed
    }

    /// Passes outbound packets that had states on ingress, up to the first that the fast path can't decide
    /// about; returns how many.
    #[inline(never)]
    fn pass_egress(&mut self, batch: &Batch, at: HookContext) -> usize {
        let filter = &mut self.half.filter;
        let packets = batch.iter().as_slice();
        // Data loaded on ingress may have left the cache by now.
        let approach = |filter: &Filter, packet: &Packet| {
            packet.prefetch();
            filter.prefetch_behind(plain_state(packet));
        };
        packets.iter().take(AHEAD).for_each(|packet| approach(filter, packet));
        for (n, packet) in packets.iter().enumerate() {
            if let Some(soon) = packets.get(n + AHEAD) {
                approach(filter, soon);
            }
            let state = state_of(packet).and_then(|came| filter.pass_linked(ip_payload(packet), came, at));
            if state.is_none() {
                return n;
            }
        }
        packets.len()
    }

    /// Tests the packets of a batch, except the first `passed`, which have already passed.
    #[inline(never)]
    fn pass_others(&mut self, passed: usize, batch: &mut Batch, place: PacketPoint, cx: &mut Context<'_>) {
        let PacketPoint { at: HookContext { direction, .. }, .. } = place;
        let is_plain = self.half.is_fast_path_at(place.at);
        let came = |packet: &Packet| match direction {
            Direction::In => None,
            Direction::Out => state_of(packet),
        };
        if is_plain {
            self.parse_keys(direction, batch.iter().skip(passed).filter(|packet| came(packet).is_none()));
        }
        let keys = std::mem::take(&mut self.keys);
        let (mut strangers, mut number) = (keys.iter(), 0);
        batch.filter_map(|mut packet| {
            number += 1;
            if number <= passed {
                return Some(packet);
            }
            let filter = &mut self.half.filter;
            let state = match came(&packet) {
                _ if !is_plain => None,
                Some(came) => filter.pass_linked(ip_payload(&packet), came, place.at),
                None => {
                    strangers.next().and_then(|key| filter.pass_fast(|| ip_payload(&packet), key, place.at))
                }
            };
            match state {
                Some(state) => {
                    if direction == Direction::In {
                        annotate_plain(&mut packet, state);
                    }
                    Some(packet)
                }
                None => self.test_packet(packet, place, cx),
            }
        });
        self.keys = keys;
    }

    /// Passes on the frames of a batch that are not filtered.
    fn send_unfiltered(&mut self, input: usize, at: HookContext, batch: &mut Batch, cx: &mut Context<'_>) {
        let Some(routes) = self.half.routes() else { return };
        let Some(port) = routes.port_view(at.interface, cx.turn()) else { return };
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

    /// Tests a packet that the fast path did not pass; None if it ends here.
    #[inline(never)]
    fn test_packet(
        &mut self,
        mut packet: Packet,
        place: PacketPoint,
        cx: &mut Context<'_>,
    ) -> Option<Packet> {
        let Some(header) = link_header(packet.data()) else { return Some(packet) };
        let came = if place.at.direction == Direction::In {
            FilterAnnotation::default()
        } else {
            FilterAnnotation::from_packet(&packet)
        };
        let at = HookContext { has_partial_checksum: packet.needs_checksum(), tag: came.tag, ..place.at };
        let passed = self.half.test_frame(&mut packet, header, (at, came.state), &mut None, cx);
        if self.half.has_news() {
            self.collect_replies(&packet, header, place, cx);
        }
        match passed {
            Ok(passed) => {
                FilterAnnotation { state: passed.state, tag: passed.tag }.store_in(&mut packet);
                if passed.has_way
                    && let Some(gateway) = self.half.filter.route_to().gateway
                {
                    redirect_to(&mut packet, gateway);
                }
                Some(packet)
            }
            Err(reason) => {
                cx.discard(packet, reason.map_or(DropReason::Consumed, drop_reason));
                None
            }
        }
    }

    /// Collects the packets that the filter sends itself about a packet.
    #[cold]
    fn collect_replies(&mut self, packet: &Packet, header: usize, place: PacketPoint, cx: &mut Context<'_>) {
        for answer in &self.half.handle_events(cx) {
            let output = place.answers_by(answer.towards, self.ports);
            self.answers
                .extend(answers::reply_frame(answer, packet.data(), header).map(|frame| (output, frame)));
        }
    }

    /// Sends the packets that the filter generates itself.
    fn send_answers(&mut self, cx: &mut Context<'_>) {
        for (output, frame) in self.answers.drain(..) {
            match cx.pool().packet_from(&frame) {
                Some(packet) => cx.send_or_discard(output, packet, DropReason::NoOutput),
                None => cx.count_discarded(DropReason::PoolEmpty, 1),
            }
        }
    }
}

/// The packets of a batch, with the memory of each prefetched some packets ahead.
#[inline(always)]
fn prefetch_packets(batch: &Batch) -> impl Iterator<Item = &Packet> {
    let packets = batch.iter().as_slice();
    packets.iter().take(AHEAD).for_each(Packet::prefetch);
    packets.iter().enumerate().map(move |(n, packet)| {
        packets.get(n + AHEAD).into_iter().for_each(Packet::prefetch);
        packet
    })
}

/// Where a packet is.
#[derive(Clone, Copy)]
struct PacketPoint {
    at: HookContext,
    port: usize,
}

impl PacketPoint {
    /// The output for an answer. The answer to an outbound packet comes from the packet's port, as its
    /// receiver would send it.
    fn answers_by(self, towards: artery_filter::engine::ReplyDirection, ports: usize) -> usize {
        use artery_filter::engine::ReplyDirection::{Receiver, Sender};
        match (self.at.direction, towards) {
            (Direction::In, Sender) | (Direction::Out, Receiver) => ports + self.port,
            (Direction::In, Receiver) | (Direction::Out, Sender) => self.port,
        }
    }
}

/// Why a packet ends that the filter drops.
pub(super) fn drop_reason(reason: FilterDropReason) -> DropReason {
    match reason {
        FilterDropReason::Match => DropReason::Filtered,
        FilterDropReason::Short | FilterDropReason::BadOffset => DropReason::TooShort,
        FilterDropReason::Fragment => DropReason::BadFragment,
        FilterDropReason::IpOption => DropReason::BadOption,
        FilterDropReason::NoRoute => DropReason::NoRoute,
        FilterDropReason::ProtocolChecksum => DropReason::BadChecksum,
        _ => DropReason::FilterState,
    }
}

/// Redirects a packet to a gateway by its destination annotation.
#[cold]
fn redirect_to(packet: &mut Packet, gateway: std::net::IpAddr) {
    match gateway {
        std::net::IpAddr::V4(gateway) => packet.set_dst_ip(gateway),
        std::net::IpAddr::V6(gateway) => packet.set_annotation(anno::DST_IP6, gateway.octets()),
    }
}

impl Element for PacketFilter {
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        self.half.begin_batch(cx);
        if self.half.may_change() {
            cx.apply_offloads(batch);
        }
        let direction = if input < self.ports { Direction::In } else { Direction::Out };
        let port = input % self.ports;
        let at = HookContext::new(Interface(port as u16 + interfaces::FIRST), direction);
        self.send_unfiltered(input, at, batch, cx);
        let passed = match direction {
            _ if !self.half.is_fast_path_at(at) => 0,
            Direction::In if runs::seem_to_come(batch, ip_payload) => self.enter_runs(batch, at),
            Direction::In => self.pass_ingress(batch, at),
            Direction::Out => self.pass_egress(batch, at),
        };
        if passed < batch.len() {
            self.pass_others(passed, batch, PacketPoint { at, port }, cx);
        }
        self.half.filter.end_batch();
        cx.send_all(input, batch);
        if !self.answers.is_empty() {
            self.send_answers(cx);
        }
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), artery_engine::StartError> {
        self.half.start_filter(cx);
        let then = cx.now() + SWEEP;
        cx.wake_at(then);
        Ok(())
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        self.half.begin_batch(cx);
        self.half.purge_expired(MOST_SWEPT);
        self.half.export_states(cx.now().since_epoch());
        self.half.follow_routes();
        let then = cx.now() + SWEEP;
        cx.wake_at(then);
        true
    }

    /// Inherits the states and the rules of the filter that this one replaces.
    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<PacketFilter>() {
            self.half.inherit_from(&mut old.half, !self.has_file, cx);
        }
    }
}

#[cfg(test)]
mod tests;
