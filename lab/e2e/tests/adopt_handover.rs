//! Adopted ports change hands while packets pass: only a few may be lost, with any
//! forwarder before and after.

use crate::support::adopting::{Net, by_kernel, on_the_net};
use crate::support::{SOON, until};
use artery_rig::program::artery;
use artery_rig::{Host, Process, Result, Signal};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Datagrams of a flow that may be lost at each change.
const HANDFUL: u64 = 10;
const PORT: u16 = 2000;

/// A flow of a thousand datagrams in a second.
struct Flow {
    is_over: Arc<AtomicBool>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<u64>,
}

impl Flow {
    fn start(from: &Host, to: &Host, address: &str) -> Result<Flow> {
        let bind = |host: &Host, port| host.enter(|| UdpSocket::bind(("0.0.0.0", port)).expect("a port"));
        let (source, sink) = (bind(from, 0)?, bind(to, PORT)?);
        source.connect((address, PORT)).expect("an address");
        let is_over = Arc::new(AtomicBool::new(false));
        let until = is_over.clone();
        let receiver = std::thread::spawn(move || receive(&sink));
        let sender = std::thread::spawn(move || send(&source, &until));
        Ok(Flow { is_over, sender, receiver })
    }

    /// Ends the flow, and gives how many were sent and how many of them lost.
    fn end(self) -> (u64, u64) {
        self.is_over.store(true, Ordering::Relaxed);
        let sent = self.sender.join().expect("it sends to the end");
        (sent, sent - self.receiver.join().expect("it receives to the end"))
    }
}

/// Numbers datagrams from 1; the last, number 0, is sent several times.
fn send(socket: &UdpSocket, is_over: &AtomicBool) -> u64 {
    let start = Instant::now();
    let mut sent = 0u64;
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
        // A thread that was held up sends no burst, which queues might not hold.
        let due = (start.elapsed().as_millis() as u64).min(sent + 20);
        while sent < due {
            socket.send(&(sent + 1).to_be_bytes()).expect("the way out is there");
            sent += 1;
        }
    }
    // Whatever is under way arrives before these.
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(20));
        // The receiver stops at the first of these, so that sending may fail.
        let _ = socket.send(&0u64.to_be_bytes());
    }
    sent
}

/// Counts datagrams, each once.
fn receive(socket: &UdpSocket) -> u64 {
    socket.set_read_timeout(Some(3 * SOON)).expect("a limit");
    let mut seen = std::collections::HashSet::new();
    loop {
        let mut number = [0; 8];
        socket.recv(&mut number).expect("datagrams come until the last");
        match u64::from_be_bytes(number) {
            0 => return seen.len() as u64,
            number => seen.insert(number),
        };
    }
}

fn adopt(net: &Net, path: &str) -> Result<Process> {
    let adopted = net.r.command([artery()?]).args(["adopt", "--path", path, "eth0", "eth1"]).spawn()?;
    // Work on tables and programs, which others may hold up.
    adopted.wait_for("forwarding", 6 * SOON)?;
    Ok(adopted)
}

/// Waits until packets pass that the kernel does not forward.
fn until_fast(net: &Net) -> Result<()> {
    until(SOON, || {
        let before = [by_kernel(&net.r)?, net.r.counters("eth1")?.tx_packets];
        std::thread::sleep(Duration::from_millis(200));
        Ok(by_kernel(&net.r)? == before[0] && net.r.counters("eth1")?.tx_packets > before[1] + 50)
    })
}

/// Runs `change` while a flow passes; says and checks what that cost.
fn costs_a_handful(net: &Net, what: &str, change: impl FnOnce() -> Result<()>) -> Result<()> {
    let flow = Flow::start(&net.a, &net.b, "10.0.2.2")?;
    std::thread::sleep(Duration::from_millis(200));
    let changed = change();
    std::thread::sleep(Duration::from_millis(200));
    let (sent, lost) = flow.end();
    changed?;
    eprintln!("{what}: {lost} of {sent} datagrams lost");
    assert!(sent > 100 && lost <= HANDFUL, "{what}: {lost} of {sent} lost");
    Ok(())
}

fn no_more_than_a_handful_is_lost(path: &str) {
    on_the_net(&format!("adopt-hand-over-{path}"), |net| {
        for host in [&net.a, &net.b] {
            // What XDP sends on must be whole.
            host.offloads("eth0", false)?.run(["ethtool", "-K", "eth0", "gro", "on"])?;
        }
        let routes = || net.r.run(["ip", "route", "show", "table", "all"]).map(|routes| routes.stdout);
        let before = routes()?;
        // The kernel learns both neighbors first.
        assert_eq!(net.a.ping("10.0.2.2", 1)?.received, 1);
        let mut adopted = None;
        costs_a_handful(net, &format!("{path}, start"), || {
            adopted = Some(adopt(net, path)?);
            until_fast(net)
        })?;
        let mut first = adopted.take().expect("it was started");
        costs_a_handful(net, &format!("{path}, stop"), || first.stop(SOON).map(drop))?;
        let mut second = adopt(net, path)?;
        costs_a_handful(net, &format!("{path}, kill -9"), || {
            until_fast(net)?;
            second.signal(Signal::KILL);
            second.wait(SOON).map(drop)
        })?;
        let mut third = adopt(net, path)?;
        costs_a_handful(net, &format!("{path}, restart"), || {
            until_fast(net)?;
            third.stop(SOON)?;
            adopted = Some(adopt(net, path)?);
            until_fast(net)
        })?;
        let mut fourth = adopted.take().expect("it was started");
        costs_a_handful(net, &format!("{path}, upgrade"), || {
            until_fast(net)?;
            // At tc's hook both may be; at XDP's there is room for one.
            if path == "xdp" {
                fourth.stop(SOON)?;
            }
            let next = adopted.insert(adopt(net, path)?);
            fourth.stop(SOON)?;
            next.wait_for("nothing keeps traffic", SOON)?;
            until_fast(net)
        })?;
        adopted.take().expect("it was started").stop(SOON)?;
        assert_eq!(routes()?, before, "no route is lost, and none is left behind");
        Ok(())
    });
}

#[test]
fn no_more_than_a_handful_is_lost_by_tc() {
    no_more_than_a_handful_is_lost("tc");
}

#[test]
fn no_more_than_a_handful_is_lost_by_xdp() {
    no_more_than_a_handful_is_lost("xdp");
}
