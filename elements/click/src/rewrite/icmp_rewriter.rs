use super::apply::{self, ChecksumChange, ICMP, RewriteKind};
use super::flows::Flows;
use super::pattern::FlowId;
use super::shared_flows::{Seen, SharedFlows};
use artery_engine::{
    Annotation, Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Packet, Phase, StartError,
};
use artery_lang::args as text;
use artery_wire::{IcmpType, checksum};
use std::net::Ipv4Addr;
use std::sync::Arc;

pub static CLASS: Class = Class {
    name: "ICMPRewriter",
    group: "rewrite",
    summary: "rewrites ICMP errors about packets of other rewriters",
    manual: "
Expects ICMP packets with marked headers. An error (destination unreachable, time exceeded, parameter problem,
source quench, redirect) quotes the packet that it is about. When a rewriter of MAPS has rewritten that
packet, the error is made one about the packet as it was: the quoted packet gets its old addresses, ports or
identifier, the error goes to the old source if it went to the new one, and all checksums are adapted.
Rewriters are asked in their order, and keep their flows as they are: an error does not make one live on.

Errors that belong to a flow leave by output 0; where MAPS says `NAME:OFFSET`, by the output that many after
the one by which the rewriter sends replies to the quoted packet. Other errors and other ICMP packets leave by
output 1 if there are two outputs and no offsets, and are dropped otherwise. Packets that are not ICMP are
dropped.

MAPS may name IPRewriter, TCPRewriter, UDPRewriter, ICMPPingRewriter, IPAddrRewriter and IPAddrPairRewriter
elements. They should run on this element's worker, or each waits while the other looks at flows.",
    example: "Idle -> rw :: IPRewriter(pattern 1.0.0.1 1024-65535# - - 0 1) -> Discard;\nrw[1] -> Discard;\n\
        Idle -> ICMPRewriter(rw) -> Discard;",
    ports: "1/1-",
    processing: "h/h",
    args: ARGS,
    // Before the rewriters that it names, which share their flows only if another element needs them.
    phase: Phase::Privileged,
    finished: true,
    build: |args| {
        let rewriter = IcmpRewriter::new(args)?;
        rewriter.maps.iter().for_each(|map| rewriter.shared.request_sharing(&map.name));
        Ok(Box::new(rewriter))
    },
    ..Class::DEFAULT
};

const ARGS: &[Arg] = &[
    Arg::required(
        "MAPS",
        "rewriters",
        "names of rewriters, each with `:OFFSET` behind it if outputs are to differ",
    ),
    Arg::keyword(
        "DST_ANNO",
        "bool",
        "true",
        "whether to set the destination annotation where the destination changes",
    ),
    Arg::keyword(
        "REPLY_ANNO",
        "annotation",
        "",
        "an annotation that errors about rewritten packets get from the flow's first packet",
    ),
];

/// Bytes of an ICMP error in front of the packet that it quotes.
const ICMP_HEADER: usize = 8;
const IP_HEADER: usize = 20;

struct IcmpRewriter {
    maps: Vec<Map>,
    shared: Arc<SharedFlows>,
    set_annotation: bool,
    reply_annotation: Option<usize>,
}

/// A rewriter whose flows are searched.
struct Map {
    name: String,
    offset: Option<usize>,
    /// None until the element starts.
    seen: Option<Seen>,
}

impl IcmpRewriter {
    fn new(args: &mut Args<'_>) -> Result<IcmpRewriter, ArgError> {
        let words = text::split_words(&args.read::<String>("MAPS")?);
        if words.is_empty() {
            return Err(ArgError::wrong("no IP rewriters supplied"));
        }
        let mut maps = Vec::new();
        for word in &words {
            match Map::parse_map(word, args) {
                Some(map) => maps.push(map),
                None => args.record_error(ArgError::wrong_at(word, not_a_rewriter(word))),
            }
        }
        Ok(IcmpRewriter {
            maps,
            shared: args.resource(),
            set_annotation: args.read("DST_ANNO")?,
            reply_annotation: args.read::<Option<Annotation<1>>>("REPLY_ANNO")?.map(|anno| anno.offset),
        })
    }

    /// The output of an error that was rewritten; none, and it is unchanged, if it is about no flow.
    fn rewrite_error(&self, packet: &mut Packet) -> Option<usize> {
        let about = QuotedPacket::parse_quoted(packet)?;
        let (offset, flow) = self.maps.iter().find_map(|map| {
            let seen = map.seen.as_ref()?;
            Some((map.offset, about.find_flow(seen.ends, &mut seen.lock_flows())?))
        })?;
        let went_to = apply::read_ipv4(packet.network()?, 16);
        if went_to == about.src {
            set_destination(packet.network_mut()?, flow.src);
            if self.set_annotation {
                packet.set_dst_ip(flow.src);
            }
        }
        if let Some((at, value)) = self.reply_annotation.zip(flow.reply_annotation) {
            packet.set_annotation(at, [value]);
        }
        about.restore_quoted(packet.transport_mut()?, &flow);
        Some(offset.map_or(0, |offset| offset + flow.output))
    }

    fn send_rewritten(&self, mut packet: Packet, cx: &mut Context<'_>) {
        match self.rewrite_error(&mut packet) {
            Some(output) => cx.send_or_discard(output, packet, DropReason::NoOutput),
            None if self.has_output_for_others(cx) && is_icmp(&packet) => cx.send(1, packet),
            None => cx.discard(packet, DropReason::NoMatch),
        }
    }
    fn has_output_for_others(&self, cx: &Context<'_>) -> bool {
        cx.outputs() == 2 && self.maps.iter().all(|map| map.offset.is_none())
    }
}

impl Map {
    /// Reads `NAME` or `NAME:OFFSET`; none if there is no such element.
    fn parse_map(word: &str, args: &Args<'_>) -> Option<Map> {
        let (name, offset) = match word.split_once(':') {
            Some((name, offset)) => (name, Some(offset.parse().ok()?)),
            None => (word, None),
        };
        let element = args.find_element(name)?;
        let (_, name) = args.elements().find(|(number, _)| *number == element)?;
        Some(Map { name: name.to_string(), offset, seen: None })
    }

    /// Finds the rewriter among those of the router.
    fn find_rewriter(&mut self, shared: &SharedFlows, outputs: usize) -> Result<(), StartError> {
        let seen = shared.find_shared(&self.name).ok_or_else(|| {
            StartError::new(not_a_rewriter(&self.name)).with_help(
                "MAPS wants IPRewriter, TCPRewriter, UDPRewriter, ICMPPingRewriter, IPAddrRewriter or \
                 IPAddrPairRewriter elements",
            )
        })?;
        if let Some(offset) = self.offset.filter(|offset| offset.saturating_add(seen.outputs) > outputs) {
            let (name, noun) = (&self.name, if outputs == 1 { "output" } else { "outputs" });
            let wrong = format!("{name}:{offset} port offset requires more than {outputs} {noun}");
            let wanted = offset.saturating_add(seen.outputs);
            return Err(StartError::new(wrong)
                .with_help(format!("connect {wanted} outputs, or take a smaller offset")));
        }
        self.seen = Some(seen);
        Ok(())
    }
}

fn not_a_rewriter(name: &str) -> String {
    format!("{name} not an IP rewriter")
}

/// The packet that an error quotes.
struct QuotedPacket {
    protocol: u8,
    src: Ipv4Addr,
    dst: Ipv4Addr,
    /// None where so much is not quoted, or another protocol.
    ports: Option<[u16; 2]>,
    header_len: usize,
}

/// A flow, as far as it matters to an error about one of its packets.
struct QuotedFlow {
    /// What the quoted packet had before it was rewritten.
    src: Ipv4Addr,
    dst: Ipv4Addr,
    ports: Option<[u16; 2]>,
    /// Where the rewriter sends replies to it.
    output: usize,
    /// If a reply to it would get one.
    reply_annotation: Option<u8>,
}

impl QuotedPacket {
    fn parse_quoted(packet: &Packet) -> Option<QuotedPacket> {
        let ip = packet.network().filter(|_| is_icmp(packet))?;
        let icmp = packet.transport().filter(|_| apply::is_first_fragment(ip))?;
        let is_error = icmp.first().is_some_and(|icmp_type| IcmpType(*icmp_type).is_error());
        let quoted = icmp.get(ICMP_HEADER..).filter(|quoted| is_error && quoted.len() >= IP_HEADER)?;
        let header_len = usize::from(quoted[0] & 0xf) * 4;
        if quoted[0] >> 4 != 4 || header_len < IP_HEADER {
            return None;
        }
        let protocol = quoted[9];
        let header = quoted.get(header_len..).filter(|_| apply::is_first_fragment(quoted));
        Some(QuotedPacket {
            protocol,
            src: apply::read_ipv4(quoted, 12),
            dst: apply::read_ipv4(quoted, 16),
            ports: header.and_then(|header| apply::read_ports(protocol, header)),
            header_len,
        })
    }

    /// The flow that a reply to the quoted packet would be of.
    fn find_flow(&self, ends: RewriteKind, flows: &mut Flows) -> Option<QuotedFlow> {
        let swapped = self.ports.map(|[sport, dport]| [dport, sport]);
        let (table, id, reverse) = ends.of_ends(self.protocol, self.dst, self.src, swapped)?;
        let found = flows.find_flow(table, id).or_else(|| flows.find_flow(table, reverse?));
        let (number, direction) = found?;
        let flow = flows.get_mut(number);
        let FlowId { src, sport, dst, dport } = flow.rewritten_id(direction).reverse();
        let (src, dst) = match (ends, direction) {
            (RewriteKind::Source, 0) => (self.src, dst),
            (RewriteKind::Source, _) => (src, self.dst),
            _ => (src, dst),
        };
        Some(QuotedFlow {
            src,
            dst,
            ports: self.ports.filter(|_| ends.have_ports()).map(|_| [sport, dport]),
            output: flow.outputs[direction],
            reply_annotation: (direction == 1).then_some(flow.reply_annotation),
        })
    }

    /// Restores the original ends of the quoted packet in an error.
    fn restore_quoted(&self, icmp: &mut [u8], told: &QuotedFlow) {
        let Some((head, quoted)) = icmp.split_at_mut_checked(ICMP_HEADER) else { return };
        let header_len = self.header_len.min(quoted.len());
        let (ip, transport) = quoted.split_at_mut(header_len);
        let mut change = ChecksumChange::default();
        change.replace_bytes(ip, 12, &told.src.octets());
        change.replace_bytes(ip, 16, &told.dst.octets());
        let ip_sum = change.update_checksum(apply::read_u16(ip, 10));
        self.restore_transport(transport, told, &mut change);
        // The error's own checksum covers those of the quoted packet.
        change.replace_bytes(ip, 10, &ip_sum.to_be_bytes());
        let sum = change.update_checksum(apply::read_u16(head, 2));
        head[2..4].copy_from_slice(&sum.to_be_bytes());
    }

    /// Restores ports, or an echo's identifier, and the checksum as far as it is quoted.
    fn restore_transport(&self, transport: &mut [u8], told: &QuotedFlow, change: &mut ChecksumChange) {
        match told.ports {
            Some([sport, dport]) if self.protocol == ICMP => {
                let id = FlowId { src: told.src, sport, dst: told.dst, dport };
                let identifier = apply::echo_identifier(id);
                let (sum, old) = (apply::read_u16(transport, 2), apply::read_u16(transport, 4));
                change.replace_bytes(transport, 4, &identifier.to_be_bytes());
                change.replace_bytes(transport, 2, &checksum::update(sum, old, identifier).to_be_bytes());
                return;
            }
            Some([sport, dport]) => {
                change.replace_bytes(transport, 0, &sport.to_be_bytes());
                change.replace_bytes(transport, 2, &dport.to_be_bytes());
            }
            None if self.ports.is_none() => return,
            None => {}
        }
        // Without ports of their own, addresses are covered all the same.
        if let Some(at) = apply::checksum_of_ends(self.protocol, transport) {
            let sum = change.update_checksum(apply::read_u16(transport, at));
            change.replace_bytes(transport, at, &sum.to_be_bytes());
        }
    }
}

fn is_icmp(packet: &Packet) -> bool {
    packet.network().is_some_and(|ip| ip.len() >= IP_HEADER && ip[0] >> 4 == 4 && ip[9] == ICMP)
}

/// Sets the destination of an IP header.
fn set_destination(ip: &mut [u8], dst: Ipv4Addr) {
    let mut change = ChecksumChange::default();
    change.replace_bytes(ip, 16, &dst.octets());
    let sum = change.update_checksum(apply::read_u16(ip, 10));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
}

impl Element for IcmpRewriter {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        for packet in batch.drain() {
            self.send_rewritten(packet, cx);
        }
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        let outputs = cx.outputs();
        self.maps.iter_mut().try_for_each(|map| map.find_rewriter(&self.shared, outputs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::classes;
    use artery_engine::{Bench, Resources};
    use artery_wire::build::{icmp_echo, ip4};

    /// The class, but with a rewriter that is created before it.
    static LATE: Class = Class {
        name: "ICMPRewriter",
        ports: "1/1-",
        processing: "h/h",
        args: ARGS,
        finished: true,
        build: |args| Ok(Box::new(IcmpRewriter::new(args)?)),
        ..Class::DEFAULT
    };

    const INSIDE: &str = "10.0.0.1";
    const PUBLIC: &str = "1.0.0.1";
    const OUTSIDE: &str = "2.0.0.2";
    const HOP: &str = "9.0.0.9";

    /// A rewriter with two outputs, and an ICMPRewriter beside it. Elements on benches are called `e`.
    fn benches(class: &'static Class, config: &str, own: &str, outputs: usize) -> (Bench, Bench) {
        let resources = Arc::new(Resources::default());
        resources.get::<SharedFlows>().request_sharing("e");
        let rewriter = Bench::setup(class, config).outputs(2).resources(resources).build().unwrap();
        let bench = Bench::setup(&LATE, own).outputs(outputs).sharing_with(&rewriter).build().unwrap();
        (rewriter, bench)
    }
    fn push(bench: &mut Bench, bytes: Vec<u8>) {
        bench.push_with(0, bytes, |packet| packet.set_headers(0, 20));
    }
    /// An error of a router about what it quotes.
    fn error(icmp_type: u8, to: &str, quoted: &[u8]) -> Vec<u8> {
        let mut message = [&[icmp_type, 1, 0, 0, 0, 0, 0, 0], quoted].concat();
        let sum = checksum::checksum(&message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
        ip4().src(HOP).dst(to).raw(1, message).bytes()
    }
    fn udp(src: &str, sport: u16, dst: &str, dport: u16) -> Vec<u8> {
        ip4().src(src).dst(dst).udp(sport, dport).payload("data").bytes()
    }
    fn tcp(src: &str, sport: u16, dst: &str, dport: u16) -> Vec<u8> {
        ip4().src(src).dst(dst).tcp(sport, dport).payload("data").bytes()
    }

    const NAT: &str = "pattern 1.0.0.1 5000-6000# - - 0 1";

    #[test]
    fn an_error_about_a_rewritten_packet_becomes_one_about_what_it_was() {
        for make in [udp, tcp] {
            let (mut rewriter, mut bench) = benches(&classes::IP, NAT, "e", 2);
            push(&mut rewriter, make(INSIDE, 1111, OUTSIDE, 53));
            rewriter.expect(0, make(PUBLIC, 5000, OUTSIDE, 53));
            for icmp_type in [3, 4, 5, 11, 12] {
                push(&mut bench, error(icmp_type, PUBLIC, &make(PUBLIC, 5000, OUTSIDE, 53)));
                let expected = error(icmp_type, INSIDE, &make(INSIDE, 1111, OUTSIDE, 53));
                assert_eq!(bench.expect(0, expected).dst_ip().to_string(), INSIDE);
            }
            // The quote may end behind eight bytes of the transport header.
            push(&mut bench, error(11, PUBLIC, &make(PUBLIC, 5000, OUTSIDE, 53)[..28]));
            bench.expect(0, error(11, INSIDE, &make(INSIDE, 1111, OUTSIDE, 53)[..28]));
        }
    }

    #[test]
    fn an_error_about_a_rewritten_reply_goes_to_where_the_reply_came_from() {
        let (mut rewriter, mut bench) = benches(&classes::IP, NAT, "e", 2);
        push(&mut rewriter, udp(INSIDE, 1111, OUTSIDE, 53));
        push(&mut bench, error(3, OUTSIDE, &udp(OUTSIDE, 53, INSIDE, 1111)));
        bench.expect(0, error(3, OUTSIDE, &udp(OUTSIDE, 53, PUBLIC, 5000)));
    }

    #[test]
    fn errors_about_echoes_get_the_old_identifier() {
        let (mut rewriter, mut bench) = benches(&classes::ICMP_PING, NAT, "e", 2);
        push(&mut rewriter, icmp_echo(INSIDE, OUTSIDE, 7, 1).bytes());
        rewriter.expect(0, icmp_echo(PUBLIC, OUTSIDE, 5000, 1).bytes());
        push(&mut bench, error(11, PUBLIC, &icmp_echo(PUBLIC, OUTSIDE, 5000, 1).bytes()));
        bench.expect(0, error(11, INSIDE, &icmp_echo(INSIDE, OUTSIDE, 7, 1).bytes()));
        let reply = |src, dst, identifier| {
            let mut bytes = icmp_echo(src, dst, identifier, 1).bytes();
            bytes[20] = 0;
            bytes[22..24].fill(0);
            let sum = checksum::checksum(&bytes[20..]).to_be_bytes();
            bytes[22..24].copy_from_slice(&sum);
            bytes
        };
        push(&mut bench, error(3, OUTSIDE, &reply(OUTSIDE, INSIDE, 7)));
        bench.expect(0, error(3, OUTSIDE, &reply(OUTSIDE, PUBLIC, 5000)));
    }

    #[test]
    fn where_only_addresses_are_rewritten_ports_stay() {
        let (mut rewriter, mut bench) = benches(&classes::ADDRESS, "pattern 1.0.0.1 - 0 1", "e", 2);
        push(&mut rewriter, udp(INSIDE, 1111, OUTSIDE, 53));
        push(&mut bench, error(11, PUBLIC, &udp(PUBLIC, 1111, OUTSIDE, 53)));
        bench.expect(0, error(11, INSIDE, &udp(INSIDE, 1111, OUTSIDE, 53)));
        let later = |src| ip4().src(src).dst(OUTSIDE).fragment(64, false).raw(17, [1; 16]).bytes();
        push(&mut bench, error(11, PUBLIC, &later(PUBLIC)));
        bench.expect(0, error(11, INSIDE, &later(INSIDE)));
    }

    #[test]
    fn what_is_about_no_flow_leaves_by_output_1_unchanged() {
        let (mut rewriter, mut bench) = benches(&classes::IP, NAT, "e", 2);
        push(&mut rewriter, udp(INSIDE, 1111, OUTSIDE, 53));
        let quoted = udp(PUBLIC, 5000, OUTSIDE, 53);
        for other in [
            error(11, PUBLIC, &udp(PUBLIC, 5001, OUTSIDE, 53)),
            error(11, PUBLIC, &udp(PUBLIC, 5000, OUTSIDE, 53)[..24]),
            error(11, PUBLIC, &quoted[..19]),
            error(13, PUBLIC, &quoted),
            icmp_echo(HOP, PUBLIC, 1, 1).bytes(),
        ] {
            push(&mut bench, other.clone());
            bench.expect(1, other);
        }
        push(&mut bench, quoted);
        bench.expect_nothing_more();
        bench.expect_dropped(DropReason::NoMatch, 1);
    }

    #[test]
    fn with_one_output_or_with_offsets_it_is_dropped() {
        for (own, outputs) in [("e", 1), ("e:0", 2)] {
            let (_rewriter, mut bench) = benches(&classes::IP, NAT, own, outputs);
            push(&mut bench, error(11, PUBLIC, &udp(PUBLIC, 5001, OUTSIDE, 53)));
            bench.expect_dropped(DropReason::NoMatch, 1);
        }
    }

    #[test]
    fn offsets_tell_the_rewriters_outputs_apart_and_annotations_are_set_when_told() {
        let own = "e:1, DST_ANNO false, REPLY_ANNO PAINT";
        let (mut rewriter, mut bench) = benches(&classes::IP, "keep 0 1, REPLY_ANNO PAINT", own, 3);
        let mut first = rewriter.packet(udp(INSIDE, 1111, OUTSIDE, 53));
        first.set_headers(0, 20);
        first.set_annotation(16, [9]);
        rewriter.push_packets(0, [first]);
        push(&mut bench, error(11, INSIDE, &udp(INSIDE, 1111, OUTSIDE, 53)));
        let packet = bench.next_sent(2).unwrap();
        assert_eq!((packet.annotation(16), packet.dst_ip().to_string()), ([9], "0.0.0.0".to_string()));
        push(&mut bench, error(11, OUTSIDE, &udp(OUTSIDE, 53, INSIDE, 1111)));
        assert_eq!(bench.next_sent(1).unwrap().annotation(16), [0]);
    }

    #[test]
    fn an_error_does_not_make_a_flow_live_on() {
        let (mut rewriter, mut bench) = benches(&classes::IP, NAT, "e", 1);
        push(&mut rewriter, udp(INSIDE, 1111, OUTSIDE, 53));
        rewriter.advance_time(std::time::Duration::from_secs(100));
        let before = rewriter.read("udp_table", "").unwrap();
        push(&mut bench, error(11, PUBLIC, &udp(PUBLIC, 5000, OUTSIDE, 53)));
        assert_eq!((bench.drain_sent(0).len(), rewriter.read("udp_table", "").unwrap()), (1, before));
    }

    #[test]
    fn names_must_be_those_of_rewriters_and_outputs_be_enough() {
        let refused = |own: &str| Bench::setup(&CLASS, own).build().err().unwrap()[0].to_string();
        assert_eq!(refused("\"\""), "no IP rewriters supplied");
        assert_eq!(refused("lost"), "lost not an IP rewriter");
        assert_eq!(refused("e:x"), "e:x not an IP rewriter");
        assert_eq!(refused("e"), "e not an IP rewriter");
        let resources = Arc::new(Resources::default());
        resources.get::<SharedFlows>().request_sharing("e");
        let rewriter = Bench::setup(&classes::IP, NAT).outputs(2).resources(resources).build().unwrap();
        let late = Bench::setup(&LATE, "e:1").outputs(2).sharing_with(&rewriter).build();
        assert_eq!(late.err().unwrap()[0].to_string(), "e:1 port offset requires more than 2 outputs");
    }

    #[test]
    fn a_router_that_names_its_rewriter_before_it_starts() {
        use artery_engine::router::{Router, RouterSettings};
        let bytes = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let about = error(11, PUBLIC, &udp(PUBLIC, 5000, OUTSIDE, 53));
        let text = format!(
            "Idle -> ICMPRewriter(c/rw) -> Discard;
             c :: {{ RatedSource(DATA \\<{}>, LIMIT 1) -> CheckIPHeader -> rw :: IPRewriter({NAT}) -> \
             Discard; rw[1] -> Discard; }};
             e :: RatedSource(DATA \\<{}>, LIMIT 1, ACTIVE false) -> CheckIPHeader -> er :: ICMPRewriter(c/rw)
               -> CheckIPHeader -> IPFilter(allow icmp type 11 and dst host {INSIDE}) -> c2 :: Counter -> \
             Discard;
             DriverManager(wait_time 1, write e.active true, wait_time 1, stop)",
            bytes(&udp(INSIDE, 1111, OUTSIDE, 53)),
            bytes(&about)
        );
        let mut sources = artery_lang::Sources::default();
        let file = sources.add_file("test", &text);
        let (ir, wrong) = artery_lang::compile(&mut sources, file, &Default::default(), &crate::TEST_CLASSES);
        let (processing, more) = artery_lang::check(&ir, &crate::TEST_CLASSES);
        assert!(wrong.is_empty() && more.is_empty(), "{wrong:?} {more:?}");
        let simulated = Some(artery_engine::Time::new(1000, 0));
        let settings = RouterSettings { simulated, frames: (256, 4), ..RouterSettings::default() };
        let router = Router::build(&ir, &processing, crate::TEST_CLASSES, settings).unwrap();
        let mut router = router.start().wait().unwrap();
        assert_eq!(router.read_handler("c2.count", "").unwrap(), "1");
    }

    #[test]
    fn nothing_that_comes_panics() {
        use crate::testing::{Random, noise};
        let (mut rewriter, mut bench) = benches(&classes::ADDRESS, "keep 0 1", "e", 2);
        push(&mut rewriter, udp(INSIDE, 1111, OUTSIDE, 53));
        let mut random = Random::new(7);
        let whole = error(11, INSIDE, &udp(INSIDE, 1111, OUTSIDE, 53));
        for round in 0..4000 {
            let mut bytes = whole[..random.index(whole.len() + 1)].to_vec();
            let length = bytes.len().min(4);
            let at = random.index(bytes.len() - length + 1);
            bytes[at..at + length].copy_from_slice(&noise(&mut random, length));
            let mut packet = bench.packet(bytes);
            let headers = if round % 3 > 0 { (0, 20) } else { (random.index(40), random.index(40)) };
            packet.set_headers(headers.0, headers.1);
            bench.push_packets(0, [packet]);
            (0..2).for_each(|output| drop(bench.drain_sent(output)));
        }
    }
}
