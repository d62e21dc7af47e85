//! What tests of ports have in common: frames, patience, and two hosts with a router of two ports between them.
use crate::namespace::Host;
use crate::{RxCounters, RxQueue, TxQueue};
use artery_packet::{BATCH, Batch, Pool};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Whether a frame is of that protocol.
pub(crate) fn is_ours(frame: &[u8]) -> bool {
    frame[12..14] == [0x88, 0xb5]
}

/// Waits until a descriptor is readable, at most so many seconds.
pub(crate) fn is_ready(fd: impl AsFd, seconds: i64) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

/// Receives until `done` says so of a packet, with patience for five seconds; returns what came.
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

/// Has the client send that much to the server while `router` forwards until it is told; returns whether all was sent,
/// how much arrived, and what the router tells.
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
