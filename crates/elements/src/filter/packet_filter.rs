use super::carried::{Note, carried};
use super::routes::RouterRoutes;
use super::shared::SharedFilter;
use super::worker::{WorkerFilter, link_header};
use super::{answers, ask, ask_worker, ports};
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
1024 may wait, and more are lost and counted. Files that rules name are looked for in ETC if they are in /etc or have no folder.
`no-route` and `urpf-failed` go by the routes of ROUTER, whose ports have the names of PORT; without it rules that say so are refused.
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
        Arg::keyword("ROUTER", "element", "", "the IPRouter whose routes `no-route` and `urpf-failed` mean"),
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

    /// Looks at packets, and asks for the memory of the states that they may have.
    #[inline(always)]
    fn look<'p>(&mut self, direction: Direction, packets: impl Iterator<Item = &'p Packet> + Clone) {
        let PacketFilter { half: WorkerFilter { filter, .. }, glances, .. } = self;
        glances.clear();
        let mut ahead = packets.clone();
        ahead.by_ref().take(AHEAD).for_each(Packet::prefetch);
        glances.extend(packets.map(|packet| {
            ahead.next().into_iter().for_each(Packet::prefetch);
            filter.glance(carried(packet), direction)
        }));
        glances.iter_mut().for_each(|glance| filter.approach_likely(glance));
    }

    /// Lets packets in that have states, up to the first for which that is not quickly done; returns how many.
    fn enter(&mut self, batch: &mut Batch, at: At) -> usize {
        self.look(Direction::In, batch.iter());
        let PacketFilter { half: WorkerFilter { filter, .. }, glances, .. } = self;
        let mut passed = 0;
        for (packet, glance) in batch.iter_mut().zip(&*glances) {
            let Some(state) = filter.pass_quickly(|| carried(packet), glance, at) else { break };
            Note::of_state(state).write_plainly(packet);
            passed += 1;
        }
        passed
    }

    /// Lets packets out that had states where they came in, up to the first for which that is not quickly done; returns how
    /// many.
    fn leave(&mut self, batch: &Batch, at: At) -> usize {
        let filter = &mut self.half.filter;
        let mut ahead = batch.iter();
        // What came in long ago, as processors see it, may be far away by now.
        let mut approach = |filter: &Filter| {
            if let Some(packet) = ahead.next() {
                packet.prefetch();
                filter.approach_behind(Note::plain(packet).state);
            }
        };
        (0..AHEAD).for_each(|_| approach(filter));
        let leaves = |packet: &&Packet| {
            approach(filter);
            let came = Note::of(packet).state;
            came.is_some_and(|came| filter.pass_behind(carried(packet), came, at).is_some())
        };
        batch.iter().take_while(leaves).count()
    }

    /// Lets packets pass as the rules say, but for the first of a batch, which have passed.
    #[inline(never)]
    fn pass_others(&mut self, passed: usize, batch: &mut Batch, place: Place, cx: &mut Context<'_>) {
        let Place { at: At { direction, .. }, .. } = place;
        let is_plain = self.half.is_plain_at(place.at);
        let came = |packet: &Packet| match direction {
            Direction::In => None,
            Direction::Out => Note::of(packet).state,
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
                        Note::of_state(state).write_plainly(&mut packet);
                    }
                    Some(packet)
                }
                None => self.test(packet, place, cx),
            }
        });
        self.glances = glances;
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
        let passed = match direction {
            _ if !self.half.is_plain_at(at) => 0,
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
        let then = cx.now() + SWEEP;
        cx.wake_at(then);
        true
    }

    /// Keeps the states and the rules of a filter that this one takes the place of.
    fn take_state(&mut self, old: &mut dyn Any, _cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<PacketFilter>() {
            self.half.take_over(&mut old.half, !self.has_file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_packet::Unfinished;
    use artery_wire::build::{ether, ip4};
    use artery_wire::{EtherType, IpProtocol, Ipv4Fragments, TcpFlags, checksum};

    const HOST: &str = "02:00:00:00:00:0a";
    const ROUTER: &str = "02:00:00:00:00:01";

    /// A filter of two ports, with rules.
    fn bench(rules: &str) -> Bench {
        let ports = "PORT em0 192.0.2.1/24, PORT em1 10.0.0.1/24";
        let mut bench = Bench::setup(&CLASS, ports).inputs(4).outputs(4).build().unwrap();
        bench.write("pf_load", &format!("\n{rules}\n")).unwrap();
        bench
    }

    fn udp(source: &str, destination: &str) -> Vec<u8> {
        let packet = ip4().src(source).dst(destination).ttl(64).udp(1000, 53).payload([7; 18]);
        ether(ROUTER, HOST).ip4(packet).bytes()
    }

    fn back(source: &str, destination: &str) -> Vec<u8> {
        let packet = ip4().src(source).dst(destination).ttl(64).udp(53, 1000).payload([7; 18]);
        ether(HOST, ROUTER).ip4(packet).bytes()
    }

    fn passes(bench: &mut Bench, input: usize, frame: &[u8]) -> bool {
        bench.push(input, frame);
        !bench.take_all(input).is_empty()
    }

    #[test]
    fn the_last_rule_decides_and_what_has_a_state_passes_without_rules() {
        let mut bench = bench("block\npass in on em0 proto udp to port 53\npass out on em1");
        let (query, answer) = (udp("192.0.2.9", "10.0.0.9"), back("10.0.0.9", "192.0.2.9"));
        assert!(!passes(&mut bench, 1, &answer));
        assert!(passes(&mut bench, 0, &query) && passes(&mut bench, 3, &query));
        assert!(passes(&mut bench, 1, &answer) && passes(&mut bench, 2, &answer));
        assert!(!passes(&mut bench, 0, &udp("192.0.2.9", "10.0.0.9")[..30]));
        let states = bench.read("pf_worker", "states 0 -").unwrap();
        assert!(states.starts_with("0 2\n") && states.lines().count() == 3, "{states}");
        assert!(states.contains("MULTIPLE"));
        assert_eq!(bench.read("pf_worker", "states 0 em0"), Ok("0 0\n".into()));
    }

    #[test]
    fn what_is_not_ip_passes_and_ports_with_set_skip_ask_nobody() {
        let mut bench = bench("set skip on em1\nblock");
        let mut arp = udp("192.0.2.9", "10.0.0.9");
        arp[12..14].copy_from_slice(&[8, 6]);
        assert!(passes(&mut bench, 0, &arp));
        let frame = udp("192.0.2.9", "10.0.0.9");
        assert!(!passes(&mut bench, 0, &frame) && passes(&mut bench, 1, &frame));
        bench.expect_dropped(DropReason::Filtered, 1);
    }

    #[test]
    fn a_blocked_connection_is_reset_by_the_port_that_it_came_by() {
        let mut bench = bench("block return");
        let segment = ip4().src("192.0.2.9").dst("10.0.0.9").ttl(64).tcp(1000, 80).flags(TcpFlags::SYN);
        bench.push(0, ether(ROUTER, HOST).ip4(segment).bytes());
        let answers = bench.take_all(2);
        let bytes = answers[0].data();
        assert_eq!((&bytes[..6], &bytes[6..12]), (&[2, 0, 0, 0, 0, 10][..], &[2, 0, 0, 0, 0, 1][..]));
        assert_eq!((&bytes[26..30], bytes[47]), (&[10, 0, 0, 9][..], 0x14));
    }

    #[test]
    fn what_a_card_was_to_finish_is_answered_as_what_is_finished() {
        let mut bench = bench("block return");
        let (source, destination) = ([192, 0, 2, 9], [10, 0, 0, 9]);
        let packet = ip4().src(source).dst(destination).ttl(64);
        for (packet, at) in [(packet.clone().tcp(1000, 80), 16_u16), (packet.udp(1000, 53), 6)] {
            let frame = ether(ROUTER, HOST).ip4(packet).bytes();
            bench.push(0, &frame);
            let expected = bench.take_all(2);
            let mut unfinished = bench.packet(&frame);
            let (protocol, length) = (IpProtocol(frame[23]), frame.len() as u16 - 34);
            let sum = checksum::pseudo_v4(source.into(), destination.into(), protocol, length);
            unfinished.data_mut()[34 + usize::from(at)..][..2].copy_from_slice(&sum.to_be_bytes());
            unfinished.set_unfinished(Unfinished { transport: 34, checksum: at, segments: None }).unwrap();
            bench.push_packets(0, [unfinished]);
            assert_eq!(bench.take_all(2)[0].data(), expected[0].data());
        }
    }

    #[test]
    fn a_packet_of_fragments_passes_whole_and_is_cut_again_where_it_leaves() {
        let mut bench = bench("block\npass in on em0 proto udp to port 53\npass out on em1");
        let whole = ip4().src("192.0.2.9").dst("10.0.0.9").ttl(64).id(7).udp(1000, 53).payload([7; 3000]);
        let bytes = whole.bytes();
        let fragments = Ipv4Fragments::of(&bytes, 1400).unwrap().map(|part| part.bytes());
        let frames: Vec<_> =
            fragments.map(|bytes| ether(ROUTER, HOST).raw(EtherType::IPV4, bytes).bytes()).collect();
        frames.iter().for_each(|frame| bench.push(0, frame));
        let packets = bench.take_all(0);
        assert_eq!(packets.iter().map(|packet| packet.segment_len(14)).collect::<Vec<_>>(), [1396]);
        assert_eq!(packets[0].data(), ether(ROUTER, HOST).ip4(whole).bytes());
        bench.push_packets(3, packets);
        let mut left = Batch::default();
        left.extend(bench.take_all(3));
        assert_eq!(left.finish().cut, 1);
        assert_eq!(left.iter().map(|packet| packet.data().to_vec()).collect::<Vec<_>>(), frames);
    }

    #[test]
    fn a_tag_goes_from_where_a_packet_came_in_to_where_it_leaves() {
        let mut bench =
            bench("block\npass in on em0 tag inside no state\npass out on em1 tagged inside no state");
        bench.push(0, udp("192.0.2.9", "10.0.0.9"));
        let packets = bench.take_all(0);
        bench.push_packets(3, packets);
        assert_eq!(bench.take_all(3).len(), 1);
        assert!(!passes(&mut bench, 3, &udp("192.0.2.9", "10.0.0.9")));
    }

    #[test]
    fn rules_with_mistakes_change_nothing_and_say_all_of_them() {
        let mut bench = bench("pass in on em0");
        let why = bench.write("pf_load", "\npass on\nblock from <\n").unwrap_err().to_string();
        assert!(why.contains("pf.conf:1: ") && why.contains("pf.conf:2: "), "{why}");
        let why = bench.write("pf_load", "\npass in proto tcp user root\n").unwrap_err().to_string();
        assert!(why.contains("pf.conf:1: not supported: user"), "{why}");
        assert_eq!(bench.read("pf", "rules").as_deref(), Ok("pass in on em0 all flags S/SA\n"));
    }

    #[test]
    fn tables_are_limited_as_rules_say_and_as_before_where_these_are_refused() {
        let tables = "table <a> { 192.0.2.1 192.0.2.2 }\ntable <b> persist\npass from <a>";
        let mut bench = bench(&format!("set limit table-entries 2\n{tables}"));
        let why = bench.write("pf_load", &format!("\nset limit table-entries 1\n{tables}\n")).unwrap_err();
        assert!(why.to_string().contains("too many table entries"), "{why}");
        let mut add = |address| bench.read("pf", &format!("table b - add {address}")).unwrap();
        assert!(add("192.0.2.7").contains("Cannot allocate memory"));
        bench.write("pf_load", &format!("\nset limit {{ table-entries 3 tables 2 }}\n{tables}\n")).unwrap();
        let mut add = |table, address| bench.read("pf", &format!("table {table} - add {address}")).unwrap();
        assert!(add("b", "192.0.2.7").contains("1/1 addresses added"));
        assert!(add("c", "192.0.2.8").contains("Cannot allocate memory"));
    }

    #[test]
    fn rules_of_several_anchors_are_loaded_together_or_not_at_all() {
        let mut bench = bench("pass in on em0");
        let why =
            bench.write("pf_load", "\nanchor a\nblock\n\x0c\na\npass proto tcp user root\n").unwrap_err();
        assert!(why.to_string().contains("pf.conf:1: not supported: user"), "{why}");
        assert_eq!(bench.read("pf", "rules").as_deref(), Ok("pass in on em0 all flags S/SA\n"));
        bench.write("pf_load", "\nanchor a\nblock\n\x0c\na\npass quick proto udp\n").unwrap();
        assert_eq!(bench.read("pf", "rules").as_deref(), Ok("anchor \"a\" all\nblock drop all\n"));
        assert!(passes(&mut bench, 0, &udp("192.0.2.9", "10.0.0.9")));
    }

    #[test]
    fn states_outlive_their_rules() {
        let mut bench = bench("block\npass in on em0");
        let (query, answer) = (udp("192.0.2.9", "10.0.0.9"), back("10.0.0.9", "192.0.2.9"));
        assert!(passes(&mut bench, 0, &query));
        bench.write("pf_load", "\nblock\n").unwrap();
        assert!(passes(&mut bench, 0, &query) && passes(&mut bench, 2, &answer));
        assert!(!passes(&mut bench, 0, &udp("192.0.2.8", "10.0.0.9")));
        assert_eq!(bench.read("pf_worker", "kill 0 - hosts 192.0.2.9"), Ok("0 1\n1\n".into()));
        assert!(!passes(&mut bench, 0, &query));
    }

    #[test]
    fn addresses_are_translated_and_back() {
        let mut bench = bench("match out on em0 from 10.0.0.0/24 nat-to 192.0.2.1\npass");
        bench.push(2, udp("10.0.0.9", "192.0.2.9"));
        let out = bench.take_all(2);
        let bytes = out[0].data();
        assert_eq!(&bytes[26..30], [192, 0, 2, 1]);
        let port = u16::from_be_bytes([bytes[34], bytes[35]]);
        assert!(port >= 50001, "{port}");
        let answer = ip4().src("192.0.2.9").dst("192.0.2.1").ttl(64).udp(53, port).payload([7; 18]);
        bench.push(0, ether(ROUTER, HOST).ip4(answer).bytes());
        let back = bench.take_all(0);
        let expected = ip4().src("192.0.2.9").dst("10.0.0.9").ttl(64).udp(53, 1000).payload([7; 18]);
        assert_eq!(back[0].data(), ether(ROUTER, HOST).ip4(expected).bytes());
    }

    #[test]
    fn who_goes_too_far_comes_into_the_table_that_rules_of_the_anchor_ask() {
        let mut bench = bench("table <bad> persist\nblock\nanchor inner");
        let rules = "table <bad> persist\npass in from ! <bad> keep state (max-src-conn 1, overload <bad>)";
        bench.write("pf_load", &format!("inner\n{rules}\n")).unwrap();
        let segment = |from: u16| ip4().src("192.0.2.9").dst("10.0.0.9").ttl(64).tcp(from, 80);
        for from in [1000, 1001] {
            let (syn, ack) = (TcpFlags::SYN, TcpFlags::ACK);
            let answer = ip4().src("10.0.0.9").dst("192.0.2.9").ttl(64).tcp(80, from);
            bench.push(0, ether(ROUTER, HOST).ip4(segment(from).seq(10).flags(syn)).bytes());
            bench.push(2, ether(HOST, ROUTER).ip4(answer.seq(50).ack(11).flags(syn | ack)).bytes());
            bench.push(0, ether(ROUTER, HOST).ip4(segment(from).seq(11).ack(51).flags(ack)).bytes());
        }
        let mut shown = |anchor: &str| bench.read("pf", &format!("table {anchor}bad - show")).unwrap();
        assert_eq!([shown("-a inner "), shown("")], ["0 0\n   192.0.2.9\n", "0 0\n"]);
    }

    #[test]
    fn what_pfctl_asks_is_answered_and_what_it_may_not_ask_refused() {
        let mut bench = bench("table <friends> { 192.0.2.9 }\nblock label none\npass from <friends>");
        assert!(passes(&mut bench, 0, &udp("192.0.2.9", "10.0.0.9")));
        bench.read("pf_worker", "count").unwrap();
        let info = bench.read("pf", "info").unwrap();
        assert!(
            info.starts_with("Status: Enabled for 0 days 00:00:00") && info.contains("current entries"),
            "{info}"
        );
        let rules = bench.read("pf", "rules v").unwrap();
        assert!(rules.contains("[ Evaluations: 1"), "{rules}");
        assert_eq!(bench.read("pf", "tables"), Ok("friends\n".into()));
        let tables = bench.read("pf", "tables v v").unwrap();
        assert!(tables.contains("In/Pass:     [ Packets: 1 "), "{tables}");
        assert_eq!(
            bench.read("pf", "table friends - add 192.0.2.7 192.0.2.9"),
            Ok("0 1\n1/2 addresses added.\n".into())
        );
        assert_eq!(bench.read("pf", "table friends - show").unwrap().lines().count(), 3);
        assert_eq!(bench.read("pf", "disable"), Ok("pf disabled\n".into()));
        assert!(passes(&mut bench, 0, &udp("192.0.2.1", "10.0.0.9")));
        assert_eq!(bench.read("pf", "timeouts").unwrap().lines().count(), 20);
        for wrong in ["", "nonsense", "flush", "table x", "table x - sing", "debug", "debug loud"] {
            assert!(bench.read("pf", wrong).is_err(), "{wrong}");
        }
        let wrong =
            ["", "nonsense", "kill", "kill 0 - hosts x", "kill 0 - id z", "states", "states x -", "dump -1"];
        for wrong in
            wrong.into_iter().chain(["restore with-rules !", "restore with-rules AAEA", "flush-states 0"])
        {
            assert!(bench.read("pf_worker", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ports_and_files_must_make_sense() {
        assert!(Bench::refuses(&CLASS, "").contains("0 ports"));
        assert!(Bench::refuses(&CLASS, "PORT em0 10.0.0.1").contains("is no ADDRESS/LENGTH"));
        assert!(
            Bench::refuses(&CLASS, "PORT em0, FILE /nonexistent/pf.conf")
                .contains("can't read /nonexistent/pf.conf")
        );
        assert!(
            Bench::refuses(&CLASS, "PORT em0, LOG /nonexistent/log").contains("can't write /nonexistent/log")
        );
        assert!(Bench::refuses(&CLASS, "PORT em0, ETC /nonexistent").contains("there is no such folder"));
    }
}
