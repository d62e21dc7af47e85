//! Rates of ports on veth pairs:
//! `ARTERY_RATES=1 cargo test --release -p artery-device --lib rates -- --nocapture`.
//!
//! Not a test: without the variable it measures nothing. Frames come from an XDP program that is run on a
//! buffer, on a processor of its own, faster than any socket sends; the port under load has another
//! processor.
use super::*;
use crate::namespace::{in_namespace, may_make_namespaces, run};
use crate::{Interface, PortSpec, Ports, RxQueue, RxSettings, TxQueue, TxSettings, bpf};
use artery_packet::{Batch, Pool};
use artery_wire::build::{ether, ip4};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::ops::DerefMut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const WARM_UP: Duration = Duration::from_millis(50);
const WINDOW: Duration = Duration::from_millis(100);
/// Rounds; the best one counts, as other work on the machine only slows a round down.
const ROUNDS: usize = 30;

/// A queue, or the handle to one that was taken from a port.
type Half<Q> = Box<dyn DerefMut<Target = Q>>;
type Halves = (Half<dyn RxQueue>, Half<dyn TxQueue>);

fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).unwrap();
}

fn frame() -> Vec<u8> {
    ether("02:00:00:00:00:01", "02:00:00:00:00:02").ip4(ip4().udp(7, 9).payload([0; 18])).bytes()
}

/// Sends frames into the interface until `stop` is set.
fn generate(interface: u32, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        bpf::send_live(interface, &frame(), 100_000).unwrap();
    }
}

/// Calls `turn`, which says how many packets it moved, while frames are generated; returns millions
/// a second, of all the time and of that spent in turns that moved any: what the port could do if
/// there were always some.
fn rate(turn: &mut dyn FnMut() -> usize) -> [f64; 2] {
    let (start, mut counted, mut busy) = (Instant::now(), 0, Duration::ZERO);
    let (mut from, mut last) = (None, Duration::ZERO);
    loop {
        let moved = turn();
        let now = start.elapsed();
        let took = now - std::mem::replace(&mut last, now);
        if now < WARM_UP {
            continue;
        }
        let from = *from.get_or_insert(now);
        if now - from >= WINDOW {
            return [now - from, busy].map(|time| counted as f64 / time.as_secs_f64() / 1e6);
        }
        counted += moved;
        busy += if moved > 0 { took } else { Duration::ZERO };
    }
}

fn packet_port(rx: &str, tx: &str, pool: &'static Pool) -> Halves {
    let ports = Ports::default();
    let receive = RxSettings { promiscuous: true, hide: crate::Hide::All, ..RxSettings::default() };
    let bypass = TxSettings { qdisc_bypass: true, ..TxSettings::default() };
    let spec = |name: &str, receive, transmit| PortSpec::Interface { name: name.into(), receive, transmit };
    let rx = ports.open(spec(rx, Some(receive), None), pool).unwrap().rx(0).unwrap();
    let tx = ports.open(spec(tx, None, Some(bypass)), pool).unwrap().tx(0).unwrap();
    (Box::new(rx), Box::new(tx))
}

fn xdp_port(attach: Attach, rx: &str, tx: &str, pool: &'static Pool) -> Halves {
    let settings = XdpSettings { attach, ..XdpSettings::default() };
    let open = |name| XdpPort::open(&Interface::find(name).unwrap(), &settings, 1, pool).unwrap();
    let rx: Box<dyn RxQueue> = Box::new(open(rx).rx(0, &RxSettings::default()).unwrap());
    let tx: Box<dyn TxQueue> = Box::new(open(tx).tx(0).unwrap());
    (Box::new(rx), Box::new(tx))
}

/// Receives and drops, sends the same packets over and over, forwards: millions a second each.
fn measure(pool: &'static Pool, open: &dyn Fn() -> Halves) -> [[f64; 2]; 3] {
    let generator = Interface::find("gen0").unwrap().index;
    let loaded = |turn: &mut dyn FnMut() -> usize| {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pin(1);
                generate(generator, &stop);
            });
            let rate = rate(turn);
            stop.store(true, Ordering::Relaxed);
            rate
        })
    };
    let (mut rx, mut tx) = open();
    let mut batch = Batch::default();
    let received = loaded(&mut || {
        let count = rx.receive(pool, 64, &mut batch).unwrap();
        batch.free_packets();
        count
    });
    let forwarded = loaded(&mut || {
        let room = 64 - batch.len();
        rx.receive(pool, room, &mut batch).unwrap();
        tx.transmit(&mut batch).unwrap()
    });
    let bytes = frame();
    let sent = rate(&mut || {
        batch.extend((batch.len()..64).map_while(|_| pool.packet_from(&bytes)));
        tx.transmit(&mut batch).unwrap()
    });
    [received, sent, forwarded]
}

#[test]
fn rates() {
    if std::env::var_os("ARTERY_RATES").is_none() || !may_make_namespaces() {
        return;
    }
    in_namespace(|| {
        pin(0);
        for (router, other) in [("art0", "gen0"), ("art1", "sink")] {
            run(&format!("ip link add {router} type veth peer name {other}"));
            run(&format!("ip link set {router} up"));
            run(&format!("ip link set {other} up"));
            // So that frames from XDP programs are taken without one at this end.
            run(&format!("ethtool -K {router} gro on"));
        }
        let pool = Pool::new(16384, 64).unwrap();
        let mut best = [[[0.0_f64; 2]; 3]; 3];
        for _ in 0..ROUNDS {
            let rates = [
                measure(pool, &|| packet_port("art0", "art1", pool)),
                measure(pool, &|| xdp_port(Attach::Native, "art0", "art1", pool)),
                measure(pool, &|| xdp_port(Attach::Generic, "art0", "art1", pool)),
            ];
            let best = best.as_flattened_mut().as_flattened_mut();
            best.iter_mut()
                .zip(rates.as_flattened().as_flattened())
                .for_each(|(best, now)| *best = best.max(*now));
        }
        println!("Mpps of all time and of busy time: receive and drop, transmit, forward");
        for (name, rates) in ["AF_PACKET", "AF_XDP in the driver", "AF_XDP generic"].iter().zip(best) {
            let rates = rates.map(|[all, busy]| format!("{all:.2} {busy:5.2}")).join("   ");
            println!("{name:24} {rates}");
        }
    });
}
