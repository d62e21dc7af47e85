//! Many connections to a service, all of which exchange data all the time, and what becomes of them.

use super::server::{HELLO, PORT};
use artery_rig::{Host, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketType};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often each connection says something, as long as it is answered.
const PACE: Duration = Duration::from_millis(20);
/// After so many more answers a connection is sound.
const ENOUGH: u64 = 5;
/// For how long nothing may get better before what isn't sound has stalled: longer than TCP waits to send
/// again what was lost five times (6.2 s), since others may have the processors.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a server may take to say who it is.
const SOON: Duration = Duration::from_secs(10);
/// Lengths of messages: all in a segment, and in several. Every tenth connection has the long ones.
const LENGTHS: [usize; 2] = [64, 16 * 1024];

/// Connections to a service that exchange messages.
pub(crate) struct Load {
    client: Host,
    service: SocketAddrV4,
    open: Vec<Open>,
    /// Ports from here on have not been used: a server that missed the end of a connection still has it.
    next_port: Arc<AtomicU16>,
    sender: Option<Sender<Exchange>>,
    thread: Option<JoinHandle<()>>,
}

/// A connection, as it is known while another thread uses it.
pub(crate) struct Open {
    /// The number of its server.
    pub(crate) server: u8,
    /// The address by which its server was reached.
    pub(crate) reached: Ipv4Addr,
    watch: Arc<Watch>,
}

#[derive(Default)]
struct Watch {
    answers: AtomicU64,
    has_ended: AtomicBool,
}

/// What became of connections, by the numbers of their servers.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    pub(crate) reset: BTreeMap<u8, usize>,
    pub(crate) stalled: BTreeMap<u8, usize>,
}

impl Load {
    pub(crate) fn new(client: &Host, service: Ipv4Addr, next_port: Arc<AtomicU16>) -> Load {
        let (sender, receiver) = channel();
        let thread = Some(thread::spawn(|| exchange(receiver)));
        let service = SocketAddrV4::new(service, PORT);
        Load { client: client.clone(), service, open: Vec::new(), next_port, sender: Some(sender), thread }
    }

    /// Opens connections, by one source port after the other, until there are so many.
    pub(crate) fn fill(&mut self, count: usize) -> Result<()> {
        let (service, count) = (self.service, count.saturating_sub(self.open.len()) as u16);
        let first = self.next_port.fetch_add(count, Relaxed);
        let opened = self
            .client
            .enter(|| (first..first + count).map(|port| connect(port, service)).collect::<Vec<_>>())?;
        for stream in opened {
            self.add(stream);
        }
        Ok(())
    }

    fn add(&mut self, mut stream: TcpStream) {
        let mut hello = [0; HELLO];
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.read_exact(&mut hello).unwrap_or_else(|error| panic!("no server says who it is: {error}"));
        stream.set_nonblocking(true).unwrap();
        let watch = Arc::new(Watch::default());
        let length = LENGTHS[usize::from(self.open.len() % 10 == 9)];
        let exchange =
            Exchange { stream, watch: watch.clone(), length, sent: 0, received: 0, due: Instant::now() };
        self.sender.as_ref().unwrap().send(exchange).unwrap();
        let [server, reached @ ..] = hello;
        self.open.push(Open { server, reached: reached.into(), watch });
    }

    pub(crate) fn open(&self) -> &[Open] {
        &self.open
    }
    /// How many connections each server has.
    pub(crate) fn shares(&self) -> BTreeMap<u8, usize> {
        count(&self.open)
    }

    /// Waits until it is clear what becomes of all connections, and forgets those that have ended.
    pub(crate) fn settle(&mut self) -> Fates {
        self.settle_but(0)
    }

    /// The same, but doesn't wait for those of a server that is known to be dead.
    pub(crate) fn settle_but(&mut self, dead: u8) -> Fates {
        let marks: Vec<u64> = self.open.iter().map(|open| open.watch.answers.load(Relaxed)).collect();
        let is_clear = |open: &Open, mark: u64| {
            open.watch.has_ended.load(Relaxed) || open.watch.answers.load(Relaxed) >= mark + ENOUGH
        };
        let is_waited_for = |open: &Open, mark: u64| open.server != dead && !is_clear(open, mark);
        let (mut left, mut since) = (usize::MAX, Instant::now());
        while left > 0 && since.elapsed() < PATIENCE {
            let unclear = self.open.iter().zip(&marks).filter(|(open, mark)| is_waited_for(open, **mark));
            let unclear = unclear.count();
            if unclear < left {
                (left, since) = (unclear, Instant::now());
            }
            thread::sleep(Duration::from_millis(10));
        }
        let (mut sound, mut reset, mut stalled) = (Vec::new(), Vec::new(), Vec::new());
        for (open, mark) in self.open.drain(..).zip(marks) {
            match (open.watch.has_ended.load(Relaxed), is_clear(&open, mark)) {
                (true, _) => reset.push(open),
                (false, true) => sound.push(open),
                (false, false) => stalled.push(open),
            }
        }
        let fates = Fates { reset: count(&reset), stalled: count(&stalled) };
        self.open = sound;
        self.open.extend(stalled);
        fates
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.sender = None;
        let ended = self.thread.take().map(JoinHandle::join);
        if let Some(Err(cause)) = ended
            && !thread::panicking()
        {
            std::panic::resume_unwind(cause);
        }
    }
}

impl Fates {
    /// How many connections of servers with such numbers came to an end or to a halt.
    pub(crate) fn harmed(&self, is_meant: impl Fn(u8) -> bool) -> usize {
        let both = self.reset.iter().chain(&self.stalled);
        both.filter(|(server, _)| is_meant(**server)).map(|(_, count)| count).sum()
    }
}

fn count(connections: &[Open]) -> BTreeMap<u8, usize> {
    let mut counts = BTreeMap::new();
    connections.iter().for_each(|open| *counts.entry(open.server).or_insert(0) += 1);
    counts
}

fn connect(port: u16, service: SocketAddrV4) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)).unwrap();
    // Who waits for an answer of a server that has died gets to know by asking whether it lives.
    rustix::net::sockopt::set_socket_keepalive(&socket, true).unwrap();
    rustix::net::sockopt::set_tcp_keepidle(&socket, Duration::from_secs(1)).unwrap();
    rustix::net::sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(1)).unwrap();
    // What is closed ends at once, at both ends.
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
    let connected = rustix::net::connect(&socket, &service);
    connected.unwrap_or_else(|error| panic!("port {port} can't connect to {service}: {error}"));
    socket.into()
}

/// A connection in use.
struct Exchange {
    stream: TcpStream,
    watch: Arc<Watch>,
    /// Bytes of each of its messages.
    length: usize,
    /// Bytes of this message that were sent.
    sent: usize,
    received: usize,
    /// When the next message may begin.
    due: Instant,
}

/// Keeps all connections busy until the channel for further ones is closed.
fn exchange(more: Receiver<Exchange>) {
    let mut all: Vec<Exchange> = Vec::new();
    loop {
        loop {
            match more.try_recv() {
                Ok(exchange) => all.push(exchange),
                Err(std::sync::mpsc::TryRecvError::Empty) => break,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            }
        }
        all.retain_mut(|exchange| match exchange.goes_on() {
            true => true,
            false => {
                exchange.watch.has_ended.store(true, Relaxed);
                false
            }
        });
        let mut waits: Vec<_> =
            all.iter().map(|exchange| PollFd::new(&exchange.stream, exchange.waits_for())).collect();
        // What has become due in the meantime is looked after then, whatever came.
        let _ = poll(&mut waits, Some(&Timespec { tv_sec: 0, tv_nsec: 5_000_000 }));
    }
}

impl Exchange {
    fn waits_for(&self) -> PollFlags {
        if self.sent > 0 && self.sent < self.length { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }
    }

    /// Sends and receives what it can. False if the connection has come to its end.
    fn goes_on(&mut self) -> bool {
        let mut buffer = [0; 4096];
        loop {
            let wanted = buffer.len().min(self.length - self.sent);
            let may_send = wanted > 0 && (self.sent > 0 || Instant::now() >= self.due);
            if may_send {
                let from = self.sent;
                buffer[..wanted].iter_mut().enumerate().for_each(|(n, byte)| *byte = self.byte(from + n));
                match self.stream.write(&buffer[..wanted]) {
                    Ok(sent) => self.sent += sent,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return false,
                }
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(length) => self.take(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
    }

    /// Takes a part of an answer, which must be what was sent.
    fn take(&mut self, part: &[u8]) {
        for (n, byte) in part.iter().enumerate() {
            assert_eq!(*byte, self.byte(self.received + n), "another answer than what was sent");
        }
        self.received += part.len();
        if self.received == self.length {
            (self.sent, self.received, self.due) = (0, 0, Instant::now() + PACE);
            self.watch.answers.fetch_add(1, Relaxed);
        }
    }

    /// A byte of the message that is under way: another in each message, and at each place.
    fn byte(&self, at: usize) -> u8 {
        (self.watch.answers.load(Relaxed) as usize * 31 + at * 7 + (at >> 8)) as u8
    }
}
