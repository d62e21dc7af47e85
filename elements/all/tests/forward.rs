//! IPForward and IP6Forward against the chain of small elements that does the same: each frame must leave by
//! the same output with the same bytes, whatever it is, alone and among others. The same of FlowBalancer's
//! shortcut against IPForward and IP6Forward behind it.
use artery_elements::CLASSES;
use artery_engine::{
    Batch, Class, Classes, Context, DropReason, Element, Router, RouterSettings, Sink, StartError, Time, anno,
};
use artery_lang::{Ir, Options, Processing, Sources, check, compile};
use artery_packet::{PacketOffload, SegmentKind, Segments};
use artery_wire::Random;
use artery_wire::TcpFlags;
use artery_wire::build::{Ip4, Ip6, ether, ip4, ip6};
use std::sync::{Arc, Mutex};

const FRAMES: usize = 100_000;
const PORTS: usize = 3;
/// The output of exceptions, and after it those of the shortcut, one for each port.
const ODD: usize = PORTS;
const SHORTCUT: usize = ODD + 1;

/// A frame, the port it comes by, and whether it is to be cut into segments.
#[derive(Clone)]
struct Sent {
    port: usize,
    bytes: Vec<u8>,
    left: Option<PacketOffload>,
}

/// The result for a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Came {
    times: usize,
    output: usize,
    bytes: Vec<u8>,
    paint: u8,
    /// The destination annotation of either family.
    towards: [u8; 16],
}

#[derive(Default)]
struct Exchange {
    sent: Mutex<Arc<Vec<Sent>>>,
    came: Mutex<Vec<Came>>,
    /// By output: the numbers of frames in the order in which they came.
    order: Mutex<Vec<Vec<u32>>>,
}

/// Where a frame's number is, among annotations that no element here touches.
const NUMBER: usize = 20;

static FRAMES_CLASS: Class = Class {
    name: "Frames",
    ports: "0/-",
    processing: "/h",
    build: |args| {
        let sent = args.resource::<Exchange>().sent.lock().unwrap().clone();
        Ok(Box::new(Frames { sent, next: 0 }))
    },
    ..Class::DEFAULT
};
struct Frames {
    sent: Arc<Vec<Sent>>,
    next: usize,
}

impl Element for Frames {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        cx.discard_all(batch, DropReason::Discarded);
    }
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        cx.schedule();
        Ok(())
    }
    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        for _ in 0..cx.burst() {
            let Some(frame) = self.sent.get(self.next) else {
                cx.end_run();
                return true;
            };
            let mut packet = cx.pool().packet_from(&frame.bytes).expect("frames are given back");
            if let Some(left) = frame.left {
                packet.set_offload(left).unwrap();
            }
            packet.set_annotation(NUMBER, (self.next as u32).to_ne_bytes());
            self.next += 1;
            cx.send(frame.port, packet);
        }
        cx.schedule();
        true
    }
}

static ARRIVED_CLASS: Class = Class {
    name: "Arrived",
    ports: "1/0",
    processing: "h/",
    args: &[artery_engine::Arg::required("OUTPUT", "number", "the output")],
    build: |args| {
        Ok(Box::new(Arrived { output: args.read::<u32>("OUTPUT")? as usize, exchange: args.resource() }))
    },
    ..Class::DEFAULT
};
struct Arrived {
    output: usize,
    exchange: Arc<Exchange>,
}

impl Element for Arrived {
    fn push(&mut self, _input: usize, batch: &mut Batch, _cx: &mut Context<'_>) {
        let mut came = self.exchange.came.lock().unwrap();
        let mut order = self.exchange.order.lock().unwrap();
        for packet in batch.drain() {
            let number = u32::from_ne_bytes(packet.annotation(NUMBER));
            let this = &mut came[number as usize];
            let (output, bytes) = (self.output, packet.data().to_vec());
            let (paint, towards) = (packet.paint(), packet.annotation(anno::DST_IP6));
            *this = Came { times: this.times + 1, output, bytes, paint, towards };
            order[self.output].push(number);
        }
    }
}

/// A configuration that the language finds nothing wrong with.
fn compiled(text: &str, classes: &Classes) -> (Ir, Processing) {
    let mut sources = Sources::default();
    let file = sources.add_file("test", text);
    let (ir, mut diagnostics) = compile(&mut sources, file, &Options::default(), classes);
    let (processing, more) = check(&ir, classes);
    diagnostics.extend(more);
    assert!(diagnostics.is_empty(), "{}", diagnostics.iter().map(|d| d.render(&sources)).collect::<String>());
    (ir, processing)
}

/// The results for frames in a router with this text behind them, in which `fast` and `sure` are
/// connected to the outputs.
fn outcome(text: &str, sent: &Arc<Vec<Sent>>, burst: usize) -> (Vec<Came>, Vec<Vec<u32>>) {
    let classes = Classes(Vec::leak([CLASSES.0, &[&FRAMES_CLASS, &ARRIVED_CLASS]].concat()));
    let (ir, processing) = compiled(text, &classes);
    let settings = RouterSettings {
        chatter: Sink::buffer(),
        simulated: Some(Time::new(1000, 0)),
        frames: (4096, 256),
        burst,
        ..RouterSettings::default()
    };
    // Elements find what they exchange when they are made, by a router that runs already.
    let (idle, idle_processing) = compiled("Idle -> Discard;", &classes);
    let router =
        Router::build(&idle, &idle_processing, classes, settings).unwrap_or_else(|e| panic!("{e:?}"));
    router.accept_calls();
    let running = router.start();
    let handle = running.handle();
    let exchange = handle.resources().get::<Exchange>();
    *exchange.sent.lock().unwrap() = sent.clone();
    *exchange.came.lock().unwrap() = vec![Came::default(); sent.len()];
    *exchange.order.lock().unwrap() = vec![Vec::new(); SHORTCUT + PORTS];
    handle.replace_graph(&ir, &processing).unwrap_or_else(|e| panic!("{e:?}"));
    running.wait().expect("no worker panics");
    let (came, order) = (exchange.came.lock().unwrap().clone(), exchange.order.lock().unwrap().clone());
    (came, order)
}

const ROUTER: &str = "ip :: IPRouter(
    PORT a 10.0.0.1/24 2001:db8:0::1/64 ETHER 2:0:0:0:0:1,
    PORT b 10.0.1.1/24 2001:db8:1::1/64 ETHER 2:0:0:0:0:2 MTU 1400,
    PORT c 10.0.2.1/30 2001:db8:2::1/64 ETHER 2:0:0:0:0:3,
    NEIGHBOR b 10.0.1.2 2:0:0:0:1:2, NEIGHBOR b 10.0.1.3 2:0:0:0:1:3, NEIGHBOR c 10.0.2.2 2:0:0:0:2:2,
    NEIGHBOR a 10.0.0.7 2:0:0:0:0:7,
    NEIGHBOR b 2001:db8:1::2 2:0:0:0:1:2, NEIGHBOR b 2001:db8:1::3 2:0:0:0:1:3,
    NEIGHBOR c 2001:db8:2::2 2:0:0:0:2:2, NEIGHBOR a 2001:db8:0::7 2:0:0:0:0:7,
    ROUTE 20.0.0.0/8 10.0.1.2, ROUTE 20.1.0.0/16 10.0.2.2, ROUTE 20.2.0.0/16 10.0.1.2 10.0.1.3 10.0.2.2,
    ROUTE 20.3.0.0/16 blackhole, ROUTE 20.4.0.0/16 unreachable, ROUTE 20.5.0.0/16 10.0.1.99,
    ROUTE 20.6.0.0/16 10.0.0.7, ROUTE 20.7.0.0/16 2001:db8:1::2,
    ROUTE 2400::/16 2001:db8:1::2, ROUTE 2400:1::/32 2001:db8:2::2,
    ROUTE 2400:2::/32 2001:db8:1::2 2001:db8:1::3 2001:db8:2::2, ROUTE 2400:3::/32 prohibited,
    ROUTE 2400:5::/32 2001:db8:1::99, ROUTE 2400:6::/32 2001:db8:0::7);
Idle -> ip; Idle -> [1] ip; Idle -> [2] ip;
ip[0] -> Discard; ip[1] -> Discard; ip[2] -> Discard; ip[3] -> Discard;
frames :: Frames; o0 :: Arrived(0); o1 :: Arrived(1); o2 :: Arrived(2); odd :: Arrived(3);
";

fn fast(class: &str) -> String {
    format!(
        "{ROUTER}f :: {class}(ip); frames[0] -> f; frames[1] -> [1] f; frames[2] -> [2] f;
f[0] -> o0; f[1] -> o1; f[2] -> o2; f[3] -> odd;"
    )
}

/// The same behind a balancer, with a shortcut or without.
fn balanced(class: &str, sharing: &str, has_shortcut: bool) -> String {
    let (router, shortcut) = match has_shortcut {
        true => (", ROUTER ip", "b[3] -> Arrived(4); b[4] -> Arrived(5); b[5] -> Arrived(6);"),
        false => ("", ""),
    };
    format!(
        "{ROUTER}f :: {class}(ip); b :: FlowBalancer(FRAMES true, {sharing}{router});
frames[0] -> b -> f; frames[1] -> [1] b [1] -> [1] f; frames[2] -> [2] b [2] -> [2] f;
{shortcut} f[0] -> o0; f[1] -> o1; f[2] -> o2; f[3] -> odd;"
    )
}

/// The same made of small elements. `pattern` matches the frames that are forwarded.
fn chain(pattern: &str, checker: &str, decrement: &str) -> String {
    let way_in = |n: usize| {
        format!(
            "frames[{n}] -> k{n} :: Classifier(0/02000000000{} {pattern}, -)
    -> Strip(14) -> ch{n} :: {checker} -> [{n}] hop; k{n}[1] -> odd; ch{n}[1] -> odd;\n",
            n + 1
        )
    };
    let way_out = |(n, name): (usize, &str)| {
        format!("hop[{n}] -> d{n} :: {decrement} -> LinkHeader(ip, {name}) -> o{n}; d{n}[1] -> odd;\n")
    };
    let ports: String = (0..PORTS).map(way_in).chain((0..).zip(["a", "b", "c"]).map(way_out)).collect();
    format!("{ROUTER}hop :: LookupNextHop(ip); hop[3] -> odd;\n{ports}")
}

fn of<'a>(random: &mut Random, all: &[&'a str]) -> &'a str {
    all[random.below(all.len() as u64) as usize]
}

const SOURCES4: [&str; 12] = [
    "1.2.3.4",
    "1.2.3.4",
    "20.1.0.9",
    "10.0.0.7",
    "10.0.0.8",
    "10.0.0.1",
    "10.0.0.255",
    "0.0.0.0",
    "127.0.0.1",
    "224.0.0.1",
    "169.254.0.1",
    "255.255.255.255",
];
const DESTINATIONS4: [&str; 22] = [
    "20.0.0.1",
    "20.0.9.1",
    "20.1.0.1",
    "20.1.2.3",
    "20.2.0.1",
    "20.2.3.4",
    "20.2.5.6",
    "20.3.0.1",
    "20.4.0.1",
    "20.5.0.1",
    "20.6.0.1",
    "20.7.0.1",
    "10.0.1.2",
    "10.0.1.3",
    "10.0.1.77",
    "10.0.0.1",
    "10.0.1.255",
    "10.0.2.2",
    "224.0.0.5",
    "255.255.255.255",
    "127.0.0.1",
    "99.0.0.1",
];

fn frame4(random: &mut Random) -> Vec<u8> {
    frame4_to(random, &DESTINATIONS4, u16::MAX)
}
/// A frame to one of these, from a port that is a part of `ports`.
fn frame4_to(random: &mut Random, destinations: &[&str], ports: u16) -> Vec<u8> {
    let size = if random.percent(10) { random.below(1600) } else { random.below(80) } as usize;
    let sources = if random.percent(80) { &SOURCES4[..2] } else { &SOURCES4 };
    let mut ip: Ip4 = ip4()
        .src(of(random, sources))
        .dst(of(random, destinations))
        .id(random.next() as u16)
        .tos(random.next() as u8)
        .ttl(of(random, &["0", "1", "2", "64", "64", "255"]).parse().unwrap());
    if random.percent(5) {
        ip = ip.options([7, 7, 4, 0, 0, 0, 0]);
    }
    if random.percent(10) {
        ip = ip.fragment(8 * random.below(100) as usize, random.percent(50));
    }
    let (port, payload) = (random.next() as u16 & ports, vec![random.next() as u8; size]);
    let ip = match random.below(4) {
        0 => ip.tcp(port, 80).flags(TcpFlags(random.next() as u8)).payload(&payload),
        1 => ip.raw(200, &payload),
        _ => ip.udp(port, 53).payload(&payload),
    };
    ether(station(random), "02:00:00:00:09:09").ip4(ip).bytes()
}

const SOURCES6: [&str; 9] =
    ["2600::4", "2600::4", "2400::9", "2001:db8:0::7", "::", "::1", "fe80::1", "ff02::1", "::ffff:1.2.3.4"];
const DESTINATIONS6: [&str; 17] = [
    "2400::1",
    "2400::9:1",
    "2400:1::1",
    "2400:1:2::3",
    "2400:2::1",
    "2400:2::2",
    "2400:2:3::4",
    "2400:3::1",
    "2400:5::1",
    "2400:6::1",
    "2001:db8:1::2",
    "2001:db8:1::77",
    "2001:db8::1",
    "2001:db8:2::2",
    "ff0e::1",
    "fe80::2",
    "99::1",
];

fn frame6(random: &mut Random) -> Vec<u8> {
    frame6_to(random, &DESTINATIONS6, u16::MAX)
}
/// A frame to one of these, from a port that is a part of `ports`.
fn frame6_to(random: &mut Random, destinations: &[&str], ports: u16) -> Vec<u8> {
    let size = if random.percent(10) { random.below(1600) } else { random.below(80) } as usize;
    let sources = if random.percent(80) { &SOURCES6[..2] } else { &SOURCES6 };
    let mut ip: Ip6 = ip6()
        .src(of(random, sources))
        .dst(of(random, destinations))
        .traffic_class(random.next() as u8)
        .flow_label(random.below(1 << 20) as u32)
        .hop_limit(of(random, &["0", "1", "2", "64", "64", "255"]).parse().unwrap());
    if random.percent(5) {
        ip = ip.extension(if random.percent(50) { 0 } else { 60 }, [1, 4, 0, 0, 0, 0]);
    }
    let (port, payload) = (random.next() as u16 & ports, vec![random.next() as u8; size]);
    let ip = match random.below(4) {
        0 => ip.tcp(port, 80).flags(TcpFlags(random.next() as u8)).payload(&payload),
        1 => ip.raw(200, &payload),
        _ => ip.udp(port, 53).payload(&payload),
    };
    ether(station(random), "02:00:00:00:09:09").ip6(ip).bytes()
}

/// Mostly the first port's MAC address, which is later replaced by that of the ingress port.
fn station(random: &mut Random) -> &'static str {
    if random.percent(90) {
        return "02:00:00:00:00:01";
    }
    of(random, &["02:00:00:00:00:02", "02:00:00:00:00:03", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:05"])
}

/// Frames that are whole, and others that are broken in all of their fields.
fn frames(seed: u64, frame: fn(&mut Random) -> Vec<u8>, kind: SegmentKind) -> Arc<Vec<Sent>> {
    let mut random = Random::new(seed);
    let make = |_| {
        let mut bytes = frame(&mut random);
        let mut left = None;
        match random.below(20) {
            0 => {
                let at = random.below(bytes.len().min(60) as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            1 => bytes.truncate(random.below(bytes.len() as u64 + 1) as usize),
            2 | 3 => bytes.resize(bytes.len() + random.below(30) as usize, 0xee),
            4 => left = Some(long(&mut bytes, kind)),
            _ => {}
        }
        let port = random.below(PORTS as u64) as usize;
        if bytes.len() > 5 && bytes[5] == 1 {
            bytes[5] += port as u8;
        }
        Sent { port, bytes, left }
    };
    Arc::new((0..FRAMES).map(make).collect())
}

/// Makes a frame a long one that a host has not cut, with segments that fit or don't.
fn long(bytes: &mut Vec<u8>, kind: SegmentKind) -> PacketOffload {
    let payload = vec![7; 3000];
    let size = if bytes.len().is_multiple_of(2) { 1000 } else { 1448 };
    let (frame, header) = match kind {
        SegmentKind::Tcp6 => (ip6().src("2600::4").dst("2400::1").tcp(1, 80).payload(&payload).bytes(), 40),
        _ => (ip4().src("1.2.3.4").dst("20.0.0.1").tcp(1, 80).payload(&payload).bytes(), 20),
    };
    bytes.truncate(14.min(bytes.len()));
    bytes.resize(14, 0);
    bytes.extend(frame);
    let segments = Some(Segments { network: 14, kind, size });
    PacketOffload { transport: 14 + header, checksum: 16, segments }
}

/// Compares the element with the chain of small elements on the same frames.
#[track_caller]
fn agree(class: &str, sure: &str, sent: &Arc<Vec<Sent>>) {
    let (wanted, _) = outcome(sure, sent, 64);
    // One frame alone, few that may all have one target, and many that don't.
    for burst in [1, 3, 64] {
        let (got, order) = outcome(&fast(class), sent, burst);
        for (number, (frame, (got, wanted))) in sent.iter().zip(got.iter().zip(&wanted)).enumerate() {
            let what = format!("burst {burst}, frame {number} by port {}: {:02x?}", frame.port, frame.bytes);
            assert_eq!((got.times, wanted.times), (1, 1), "{what}");
            assert_eq!(got.output, wanted.output, "{what}");
            if got.output == ODD {
                assert_eq!((&got.bytes, usize::from(got.paint)), (&frame.bytes, frame.port), "{what}");
            } else {
                assert_eq!(got.bytes, wanted.bytes, "{what}");
            }
        }
        for numbers in &order[..=ODD] {
            assert!(numbers.len() > FRAMES / 200, "{class}: {} frames by one output", numbers.len());
            let of_port = |port| numbers.iter().copied().filter(move |n| sent[*n as usize].port == port);
            assert!((0..PORTS).all(|port| of_port(port).is_sorted()), "frames of a port keep their order");
        }
    }
}

#[test]
fn ip_forward_makes_of_frames_what_the_chain_of_small_elements_makes_of_them() {
    let seed = 0x0e1f;
    println!("seed {seed}");
    let sure = chain("12/0800 14/45", "CheckIPHeader", "DecIPTTL");
    agree("IPForward", &sure, &frames(seed, frame4, SegmentKind::Tcp4));
}

#[test]
fn ip6_forward_makes_of_frames_what_the_chain_of_small_elements_makes_of_them() {
    let seed = 0x0e1f;
    println!("seed {seed}");
    let sure = chain("12/86dd !20/00", "CheckIP6Header", "DecIP6HLIM");
    agree("IP6Forward", &sure, &frames(seed, frame6, SegmentKind::Tcp6));
}

/// Services and members with every kind of adjacency: known neighbors on all ports, routes, several next
/// hops, an unknown neighbor, and none. Some services have the address of a member.
const SHARING4: &str =
    "SERVICE 20.0.0.1, SERVICE 10.0.1.2, SERVICE 10.0.0.7:53, MEMBER a 10.0.1.2, MEMBER b 10.0.2.2,
    MEMBER c 10.0.0.7, MEMBER d 20.0.9.9, MEMBER e 20.1.0.9, MEMBER f 20.2.0.9, MEMBER g 20.5.0.1, MEMBER h \
     20.3.0.1";
const SHARING6: &str =
    "SERVICE 2400::1, SERVICE 2001:db8:1::2, SERVICE [2001:db8:0::7]:53, MEMBER a 2001:db8:1::2,
    MEMBER b 2001:db8:2::2, MEMBER c 2001:db8:0::7, MEMBER d 2400::99, MEMBER e 2400:1::9, MEMBER f 2400:2::9,
    MEMBER g 2400:5::1, MEMBER h 2400:3::1";

/// Frames of few flows, most of them to services.
fn served4(random: &mut Random) -> Vec<u8> {
    frame4_to(random, &["20.0.0.1", "20.0.0.1", "10.0.1.2", "10.0.0.7", "20.1.0.1"], 0x1ff)
}
fn served6(random: &mut Random) -> Vec<u8> {
    frame6_to(random, &["2400::1", "2400::1", "2001:db8:1::2", "2001:db8:0::7", "2400:1::1"], 0x1ff)
}

/// Compares the results of a balancer with and without a shortcut.
#[track_caller]
fn shortcut_agrees(class: &str, sharing: &str, sent: &Arc<Vec<Sent>>) {
    let (wanted, _) = outcome(&balanced(class, sharing, false), sent, 1);
    for burst in [1, 3, 64] {
        let (got, order) = outcome(&balanced(class, sharing, true), sent, burst);
        for (number, (frame, (got, wanted))) in sent.iter().zip(got.iter().zip(&wanted)).enumerate() {
            let what = format!("burst {burst}, frame {number} by port {}: {:02x?}", frame.port, frame.bytes);
            let port = got.output.checked_sub(SHORTCUT).unwrap_or(got.output);
            // The fast path sends a frame back by its ingress port only if all frames of
            // its batch are redirected.
            let is_turned_aside = got.output == ODD && wanted.output == frame.port && burst > 1;
            assert_eq!((got.times, port), (1, if is_turned_aside { ODD } else { wanted.output }), "{what}");
            assert_eq!(got.bytes, if is_turned_aside { &frame.bytes } else { &wanted.bytes }[..], "{what}");
            if got.output == ODD {
                let before = (usize::from(got.paint), got.towards);
                assert_eq!(before, (frame.port, wanted.towards), "{what}");
            }
        }
        for (port, numbers) in order[SHORTCUT..].iter().enumerate() {
            assert!(
                numbers.len() > FRAMES / 60,
                "{class}: {} frames by the shortcut to {port}",
                numbers.len()
            );
            let of_port = |port| numbers.iter().copied().filter(move |n| sent[*n as usize].port == port);
            assert!((0..PORTS).all(|port| of_port(port).next().is_some() && of_port(port).is_sorted()));
        }
    }
}

#[test]
fn by_the_shortcut_frames_leave_as_they_would_behind_the_balancer_in_ipv4() {
    let seed = 0x51c0;
    println!("seed {seed}");
    shortcut_agrees("IPForward", SHARING4, &frames(seed, served4, SegmentKind::Tcp4));
}

#[test]
fn by_the_shortcut_frames_leave_as_they_would_behind_the_balancer_in_ipv6() {
    let seed = 0x51c0;
    println!("seed {seed}");
    shortcut_agrees("IP6Forward", SHARING6, &frames(seed, served6, SegmentKind::Tcp6));
}

#[test]
fn a_router_of_more_ports_than_a_frame_remembers_and_inputs_without_a_port_are_refused() {
    let port = |n: usize| {
        format!("PORT p{n} 10.{}.{}.1/24 ETHER 2:0:0:0:{:x}:{:x}", n / 256, n % 256, n / 256, n % 256)
    };
    let ports: Vec<String> = (0..257).map(port).collect();
    let idle = |count: usize, to: &str| {
        (0..count).map(|n| format!("Idle -> [{n}] {to}; {to}[{n}] -> Discard;\n")).collect::<String>()
    };
    for (ports, inputs, said) in
        [(&ports[..], 1, "frames remember 256 at most"), (&ports[..2], 3, "as many inputs")]
    {
        let text = format!(
            "ip :: IPRouter({}); {} ip[{}] -> Discard; f :: IPForward(ip); {}",
            ports.join(", "),
            idle(ports.len(), "ip"),
            ports.len(),
            idle(inputs, "f"),
        );
        let (ir, processing) = compiled(&text, &CLASSES);
        let errors = Router::build(&ir, &processing, CLASSES, RouterSettings::default()).err().expect(said);
        assert!(errors.iter().any(|error| error.message.contains(said)), "{errors:?}");
    }
}
