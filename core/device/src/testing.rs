//! What tests of ports have in common: frames, queues, time limits, cables and hosts at their ends, and
//! processes that hold a port.
use crate::af_packet::{AfPacketRx, AfPacketTx, FanoutGroup, find};
use crate::namespace::{Host, in_namespace, run};
use crate::{RxCounters, RxQueue, RxSettings, TxQueue, TxSettings};
use artery_packet::{BATCH, Batch, Pool};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) const BROADCAST: [u8; 6] = [0xff; 6];

/// A frame of a protocol that no kernel answers.
pub(crate) fn frame(destination: [u8; 6], number: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![number; len];
    frame[..6].copy_from_slice(&destination);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// A batch of such packets.
pub(crate) fn batch_of(pool: &'static Pool, frames: impl IntoIterator<Item: AsRef<[u8]>>) -> Batch {
    let mut batch = Batch::default();
    batch.extend(frames.into_iter().map(|frame| pool.packet_from(frame.as_ref()).unwrap()));
    batch
}

/// Whether a frame is of that protocol.
pub(crate) fn is_ours(frame: &[u8]) -> bool {
    frame[12..14] == [0x88, 0xb5]
}

/// Waits at most `seconds` seconds until a descriptor is readable.
pub(crate) fn is_ready(fd: impl AsFd, seconds: i64) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

/// Receives until `done` says so of a packet, for five seconds at most; returns what came.
pub(crate) fn receive_until(
    rx: &mut dyn RxQueue,
    pool: &'static Pool,
    done: impl Fn(&[u8]) -> bool,
) -> Batch {
    let (mut got, end) = (Batch::default(), Instant::now() + Duration::from_secs(5));
    while !got.iter().any(|packet| done(packet.data())) {
        assert!(Instant::now() < end, "nothing came within five seconds; had {got:?}; {:?}", rx.counters());
        if rx.receive(pool, 64, &mut got).unwrap() == 0 {
            is_ready(rx.fd().unwrap(), 1);
        }
    }
    got
}

/// A pool with room for all that a test has under way.
pub(crate) fn pool() -> &'static Pool {
    Pool::new(4096, 64).unwrap()
}

/// How many frames of the pool can be had at once.
pub(crate) fn free_frames(pool: &'static Pool) -> usize {
    std::iter::from_fn(|| pool.alloc_packet()).collect::<Vec<_>>().len()
}

/// A receive queue by a packet socket, of port 3.
pub(crate) fn packet_rx(name: &str, settings: RxSettings) -> AfPacketRx {
    AfPacketRx::open(&find(name).unwrap(), &settings, 3, &FanoutGroup::default()).unwrap()
}

/// A transmit queue by a packet socket.
pub(crate) fn packet_tx(name: &str) -> AfPacketTx {
    let interface = find(name).unwrap();
    let mtu = Arc::new(AtomicU32::new(interface.mtu));
    AfPacketTx::open(&interface, &TxSettings::default(), mtu).unwrap()
}

/// Lays a cable in this namespace, whose ends are `left` and `right`.
pub(crate) fn cable() {
    run("ip link add left type veth peer name right");
    bring_up();
}

/// Runs `test` in a fresh namespace with such a cable; skips it where none may be made.
pub(crate) fn on_a_cable(test: impl FnOnce(&'static Pool) + Send) {
    in_namespace(|| {
        cable();
        test(pool());
    });
}

/// Brings both ends up.
pub(crate) fn bring_up() {
    run("ip link set left up");
    run("ip link set right up");
}

/// A host at 10.1.0.2, on a cable to `left` of this namespace, which has 10.1.0.1.
pub(crate) fn neighbor() -> Host {
    let host = Host::new();
    host.cable("left", "right");
    run("ip address add 10.1.0.1/24 dev left");
    host.run("ip address add 10.1.0.2/24 dev right");
    host
}

/// Whether this namespace answers that host, if perhaps not at once.
pub(crate) fn is_answered(neighbor: &Host) -> bool {
    (0..5).any(|_| neighbor.pings("10.1.0.1"))
}

/// Set for a process that runs one test alone.
const ALONE: &str = "ARTERY_TEST_ALONE";
/// What a process says as soon as it holds a queue.
const HOLDING: &str = "received nothing yet";

/// Whether this process runs the calling test alone.
pub(crate) fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

/// Runs a test in a process of its own, in this thread's namespace; it must succeed.
pub(crate) fn succeeds_alone<F: Fn()>(test: F) {
    let output = alone(test).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Starts a process that runs a test which holds a queue, and waits until it does.
pub(crate) fn start_holder<F: Fn()>(test: F) -> Child {
    let mut holder = alone(test).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(HOLDING)), "the process holds no queue");
    holder
}

/// Holds a queue until killed, or until its parent is gone.
pub(crate) fn hold(rx: &mut dyn RxQueue) {
    assert_eq!(rx.receive(pool(), 1, &mut Batch::default()), Ok(0));
    println!("{HOLDING}");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn alone<F: Fn()>(_: F) -> Command {
    let (_, name) = std::any::type_name::<F>().split_once("::").expect("a function has a path");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(ALONE, "");
    command
}

/// Two hosts, at 10.1.0.1 and 10.1.0.2, and the ends of their cables in this namespace: `art0` and `art1`.
pub(crate) fn two_hosts() -> (Host, Host) {
    let (client, server) = (Host::new(), Host::new());
    client.cable("art0", "eth0");
    server.cable("art1", "eth0");
    client.run("ip address add 10.1.0.1/24 dev eth0");
    server.run("ip address add 10.1.0.2/24 dev eth0");
    (client, server)
}

/// Forwards frames from each of two ports to the other until `done`; returns what they have counted.
pub(crate) fn bridge(
    rx: &mut [impl RxQueue; 2],
    tx: &mut [impl TxQueue; 2],
    pool: &'static Pool,
    done: &AtomicBool,
) -> [RxCounters; 2] {
    let mut waiting = [Batch::default(), Batch::default()];
    while !done.load(Ordering::Relaxed) {
        let mut moved = 0;
        for ((rx, tx), batch) in rx.iter_mut().zip(tx.iter_mut().rev()).zip(&mut waiting) {
            moved += rx.receive(pool, BATCH.saturating_sub(batch.len()), batch).unwrap();
            tx.transmit(batch).unwrap();
        }
        if moved == 0 {
            std::thread::yield_now();
        }
    }
    [0, 1].map(|n| rx[n].counters())
}

/// Takes one connection, if it comes within ten seconds; returns how many right bytes came by it.
pub(crate) fn serve(listener: TcpListener) -> usize {
    if !is_ready(&listener, 10) {
        return 0;
    }
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let (mut chunk, mut total) = (vec![0; 1 << 20], 0);
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        assert!(chunk[..count].iter().all(|byte| *byte == 0x5a));
        total += count;
    }
    total
}

/// Megabytes that a TCP test moves.
pub(crate) const MEGABYTES: usize = 32;

/// Has the client send that much to the server while `router` forwards until its flag is set; returns whether
/// all was sent, how much arrived, and what `router` returned.
pub(crate) fn tcp<R: Send>(
    (client, server): &(Host, Host),
    router: impl FnOnce(&AtomicBool) -> R + Send,
) -> (bool, usize, R) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let router = scope.spawn(|| router(&done));
        let listener = server.call(|| TcpListener::bind("10.1.0.2:5000").unwrap());
        let (served, uploaded) = (server.start(|| serve(listener)), client.start(|| upload().is_ok()));
        let uploaded = uploaded.recv_timeout(Duration::from_secs(30));
        let served = served.recv_timeout(Duration::from_secs(30));
        done.store(true, Ordering::Relaxed);
        (uploaded == Ok(true), served.unwrap_or(0), router.join().unwrap())
    })
}

fn upload() -> std::io::Result<()> {
    let server = "10.1.0.2:5000".parse().expect("an address");
    let mut stream = TcpStream::connect_timeout(&server, Duration::from_secs(8))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    let chunk = vec![0x5a; 1 << 20];
    (0..MEGABYTES).try_for_each(|_| stream.write_all(&chunk))
}
