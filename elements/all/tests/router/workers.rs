//! A router on two workers, whose copies share what they learn without disturbing each other.
use super::rig::{GATEWAY, PEER, STATION_A, STATION_B, station, stations};
use artery_elements::CLASSES;
use artery_engine::{
    Arg, Batch, Class, Classes, Context, Element, Home, Router, RouterSettings, Running, Sink,
};
use artery_engine::{DropReason, StartError};
use artery_lang::{Options, Sources, check, compile};
use artery_wire::build::{Ip4, arp_reply, ether, ip4};
use artery_wire::{Arp, EtherType, Ethernet};
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Frames that the ports receive, by worker and port, and frames that were sent, with worker and port.
#[derive(Default)]
struct Wires {
    heard: [[Mutex<VecDeque<Vec<u8>>>; 2]; 2],
    sent: Mutex<Vec<(usize, usize, Vec<u8>)>>,
}

/// By the name of a test.
static WIRES: Mutex<BTreeMap<String, Arc<Wires>>> = Mutex::new(BTreeMap::new());

fn wires(name: &str) -> Arc<Wires> {
    WIRES.lock().unwrap().entry(name.to_string()).or_default().clone()
}

const ARGS: &[Arg] =
    &[Arg::required("TEST", "word", "the wires"), Arg::required("PORT", "number", "which of them")];

static FROM_WIRE: Class = Class {
    name: "FromWire",
    ports: "0/1",
    processing: "/h",
    args: ARGS,
    build: |args| Ok(Box::new(Wire::new(args)?)),
    ..Class::PER_WORKER
};
static TO_WIRE: Class = Class { name: "ToWire", ports: "1/0", processing: "h/", ..FROM_WIRE };

struct Wire {
    wires: Arc<Wires>,
    port: usize,
    worker: usize,
}

impl Wire {
    fn new(args: &mut artery_engine::Args<'_>) -> Result<Wire, artery_engine::ArgError> {
        let (wires, port) = (wires(&args.read::<String>("TEST")?), args.read::<u32>("PORT")? as usize);
        Ok(Wire { wires, port, worker: args.worker().0 })
    }
}

impl Element for Wire {
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if cx.inputs() == 0 {
            cx.schedule();
        }
        Ok(())
    }
    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let frames: Vec<_> = {
            let mut heard = self.wires.heard[self.worker][self.port].lock().unwrap();
            let most = heard.len().min(cx.burst());
            heard.drain(..most).collect()
        };
        for frame in &frames {
            match cx.pool().packet_from(frame) {
                Some(packet) => cx.send(0, packet),
                None => cx.count_discarded(DropReason::PoolEmpty, 1),
            }
        }
        cx.schedule();
        !frames.is_empty()
    }
    fn push(&mut self, _input: usize, batch: &mut Batch, _cx: &mut Context<'_>) {
        let mut sent = self.wires.sent.lock().unwrap();
        sent.extend(batch.drain().map(|packet| (self.worker, self.port, packet.data().to_vec())));
    }
}

/// A running router on two workers.
struct Rig {
    wires: Arc<Wires>,
    running: Option<Running>,
}

impl Rig {
    fn new(test: &str) -> Rig {
        let text = format!(
            "ip :: IPRouter(PORT a 10.0.1.1/24 ETHER {STATION_A}, PORT b 10.0.2.1/24 30.0.0.1/8 ETHER \
             {STATION_B},
                 NEIGHBOR b 10.0.2.254 {GATEWAY}, ROUTE 20.0.0.0/8 10.0.2.254, DAD false, HOLD 500);
             f4 :: IPForward(ip);
             FromWire({test}, 0) -> ca :: Classifier(12/0800, -); ca[0] -> f4; ca[1] -> ip;
             FromWire({test}, 1) -> cb :: Classifier(12/0800, -); cb[0] -> [1] f4; cb[1] -> [1] ip;
             f4[2] -> slow :: PaintSwitch; slow[0] -> ip; slow[1] -> [1] ip;
             a :: ToWire({test}, 0); f4[0] -> a; ip[0] -> a;
             b :: ToWire({test}, 1); f4[1] -> b; ip[1] -> b;"
        );
        let classes = Classes(Vec::leak([CLASSES.0, &[&FROM_WIRE, &TO_WIRE]].concat()));
        let mut sources = Sources::default();
        let file = sources.add_file("test", &text);
        let (ir, mut diagnostics) = compile(&mut sources, file, &Options::default(), &classes);
        let (processing, more) = check(&ir, &classes);
        diagnostics.extend(more);
        assert!(diagnostics.is_empty(), "{}", diagnostics[0].render(&sources));
        let settings = RouterSettings {
            workers: 2,
            frames: (1 << 14, 4),
            chatter: Sink::buffer(),
            ..RouterSettings::default()
        };
        let router =
            Router::build(&ir, &processing, classes, settings).unwrap_or_else(|why| panic!("{why:?}"));
        assert_eq!(router.plan().home(0), Home::Every);
        Rig { wires: wires(test), running: Some(router.start()) }
    }

    /// Makes the port of a worker receive frames.
    fn hear(&self, worker: usize, port: usize, frames: impl IntoIterator<Item = Vec<u8>>) {
        self.wires.heard[worker][port].lock().unwrap().extend(frames);
    }
    /// Waits until `which` accepts so many of the frames that were sent, and removes all that were sent.
    #[track_caller]
    fn wait<T>(&self, count: usize, which: impl Fn(usize, &[u8]) -> Option<T>) -> Vec<T> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let mut sent = self.wires.sent.lock().unwrap();
            let found: Vec<T> = sent.iter().filter_map(|(worker, _, frame)| which(*worker, frame)).collect();
            if found.len() >= count {
                sent.clear();
                return found;
            }
            drop(sent);
            assert!(Instant::now() < deadline, "{} of {count}", found.len());
            std::thread::yield_now();
        }
    }
    /// Waits until it is asked for an address.
    #[track_caller]
    fn wait_for_question(&self, address: Ipv4Addr) {
        let asks = |_, frame: &[u8]| {
            let arp = Arp::new(frame.get(14..)?).ok().filter(|_| is(frame, EtherType::ARP))?;
            (arp.target_ip() == address && arp.is_request()).then_some(())
        };
        self.wait(1, asks);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let running = self.running.take().expect("it runs until here");
        running.handle().end_run();
        let ended = running.wait();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

fn is(frame: &[u8], kind: EtherType) -> bool {
    Ethernet::new(frame).is_ok_and(|ethernet| ethernet.ether_type() == kind)
}
/// The worker that sent an IPv4 packet to a MAC address, and the packet's number.
fn number(to: &'static str) -> impl Fn(usize, &[u8]) -> Option<(usize, u16)> {
    move |worker, frame| {
        let is_it = is(frame, EtherType::IPV4) && stations(frame).0 == station(to);
        is_it.then(|| (worker, u16::from_be_bytes([frame[18], frame[19]])))
    }
}
fn frame(dst: impl Into<Ipv4Addr>, number: u16) -> Vec<u8> {
    let packet: Ip4 = ip4().src("10.0.1.9").dst(dst.into()).ttl(9).id(number).udp(1, 2).payload([7; 20]);
    ether(STATION_A, PEER).ip4(packet).bytes()
}
const NEIGHBOR: &str = "2:0:0:0:2:5";
fn reply(from: Ipv4Addr) -> Vec<u8> {
    arp_reply(NEIGHBOR, from, STATION_B, "10.0.2.1").bytes()
}

#[test]
fn packets_that_wait_on_one_worker_go_when_the_other_hears_the_answer() {
    let rig = Rig::new("answer");
    let to = Ipv4Addr::new(10, 0, 2, 5);
    rig.hear(0, 0, (1..=3).map(|n| frame(to, n)));
    rig.wait_for_question(to);
    rig.hear(1, 1, [reply(to)]);
    assert_eq!(rig.wait(3, number(NEIGHBOR)), [(0, 1), (0, 2), (0, 3)]);
    rig.hear(1, 0, [frame(to, 4)]);
    assert_eq!(rig.wait(1, number(NEIGHBOR)), [(1, 4)]);
}

#[test]
fn packets_of_one_worker_keep_their_order_when_the_other_hears_the_answer_meanwhile() {
    let rig = Rig::new("order");
    for round in 10..110 {
        let to = Ipv4Addr::new(10, 0, 2, round);
        rig.hear(0, 0, [frame(to, 0)]);
        rig.wait_for_question(to);
        rig.hear(1, 1, [reply(to)]);
        // One by one, so that the answer comes between any two of them.
        (1..200).for_each(|n| rig.hear(0, 0, [frame(to, n)]));
        let sent = rig.wait(200, number(NEIGHBOR));
        assert!(sent.is_sorted(), "round {round}: {sent:?}");
    }
}

#[test]
fn a_scan_on_one_worker_takes_nothing_from_the_other() {
    let rig = Rig::new("scan");
    let unknown = |n: u32| Ipv4Addr::from_bits(0x1e00_1000 + 100 * n);
    rig.hear(0, 0, (0..20_000).map(|n| frame(unknown(n), 0)));
    rig.hear(1, 0, (0..2_000).map(|n| frame([20, 0, 0, 1], n)));
    let passed = rig.wait(2_000, number(GATEWAY));
    assert!(passed.iter().all(|(worker, _)| *worker == 1) && passed.is_sorted());
    let to = Ipv4Addr::new(10, 0, 2, 7);
    rig.hear(1, 0, [frame(to, 1)]);
    rig.wait_for_question(to);
    rig.hear(0, 1, [reply(to)]);
    // Whether the first one found room to wait in is the scan's affair.
    let deadline = Instant::now() + Duration::from_secs(20);
    while rig
        .wires
        .sent
        .lock()
        .unwrap()
        .iter()
        .all(|(worker, _, frame)| number(NEIGHBOR)(*worker, frame).is_none())
    {
        assert!(Instant::now() < deadline);
        rig.hear(1, 0, [frame(to, 2)]);
        std::thread::yield_now();
    }
}
