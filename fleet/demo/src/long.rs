//! Connections that are open for long: a thread sends a message on each now and then, and waits for answers.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;

use crate::balancers::Client;

/// How often each connection has a message.
pub(crate) const PERIOD: Duration = Duration::from_secs(3);
/// A connection without an answer for so long is lost: TCP sends again after 0.2, 0.6, 1.4, 3 and 6.2 s.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the thread waits for events at a time.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// The connections, and the thread that uses them.
pub(crate) struct LongConnections {
    shared: Arc<Shared>,
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    coming: Mutex<Vec<(TcpStream, u8)>>,
    tally: Mutex<Tally>,
}

/// What became of connections since the last report.
#[derive(Default, Clone)]
pub(crate) struct Tally {
    pub(crate) open: usize,
    pub(crate) answers: u64,
    /// The longest time until an answer.
    pub(crate) longest: Duration,
    /// Clients of connections that were reset, and their servers.
    pub(crate) resets: Vec<(Client, u8)>,
    pub(crate) lost: Vec<(Client, u8)>,
    /// How long the oldest message without an answer has waited.
    pub(crate) oldest: Duration,
}

impl Tally {
    /// Connections to these servers that came to harm by the client: resets, and those without an answer.
    pub(crate) fn harmed(&self, servers: &[u8]) -> [BTreeSet<Client>; 2] {
        let of = |all: &[(Client, u8)]| {
            let concerned = all.iter().filter(|(_, server)| servers.contains(server));
            concerned.map(|(client, _)| client.clone()).collect()
        };
        [of(&self.resets), of(&self.lost)]
    }
}

impl LongConnections {
    pub(crate) fn start() -> Result<LongConnections> {
        let (shared, has_ended) = (Arc::<Shared>::default(), Arc::new(AtomicBool::new(false)));
        let mut worker = Worker::new(shared.clone())?;
        let ends = has_ended.clone();
        let thread = std::thread::spawn(move || worker.run(&ends));
        Ok(LongConnections { shared, has_ended, thread: Some(thread) })
    }

    /// Takes connections, each with its server's number.
    pub(crate) fn add(&self, streams: Vec<(TcpStream, u8)>) {
        lock(&self.shared.tally).open += streams.len();
        lock(&self.shared.coming).extend(streams);
    }

    pub(crate) fn open(&self) -> usize {
        lock(&self.shared.tally).open
    }

    /// What became of them since the last call, once each was used again and no answer is missing.
    pub(crate) fn settle(&self) -> Tally {
        std::thread::sleep(PERIOD + PERIOD / 2);
        let begun = Instant::now();
        while lock(&self.shared.tally).oldest > Duration::from_millis(500) && begun.elapsed() < 2 * PATIENCE {
            std::thread::sleep(Duration::from_millis(100));
        }
        let mut tally = lock(&self.shared.tally);
        let next = Tally { open: tally.open, oldest: tally.oldest, ..Tally::default() };
        std::mem::replace(&mut tally, next)
    }
}

impl Drop for LongConnections {
    fn drop(&mut self) {
        self.has_ended.store(true, Relaxed);
        // A thread that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Worker {
    shared: Arc<Shared>,
    epoll: OwnedFd,
    all: Vec<Option<Connection>>,
    /// Which one has its message next.
    cursor: usize,
    /// Messages that are due, in parts.
    due: f64,
}

struct Connection {
    stream: TcpStream,
    client: Client,
    server: u8,
    asked: Option<Instant>,
}

enum End {
    Reset,
    Lost,
}

impl Worker {
    fn new(shared: Arc<Shared>) -> Result<Worker> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Worker { shared, epoll, all: Vec::new(), cursor: 0, due: 0.0 })
    }

    fn run(&mut self, has_ended: &AtomicBool) {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 1024];
        let mut before = Instant::now();
        while !has_ended.load(Relaxed) {
            self.take_new();
            let passed = before.elapsed();
            before = Instant::now();
            self.due += self.all.len() as f64 * passed.as_secs_f64() / PERIOD.as_secs_f64();
            self.send_due();
            let count = epoll::wait(&self.epoll, &mut events[..], Some(&TICK)).unwrap_or(0);
            events[..count].iter().for_each(|event| self.read(event.data.u64() as usize));
            self.record_oldest();
        }
    }

    fn take_new(&mut self) {
        for (stream, server) in std::mem::take(&mut *lock(&self.shared.coming)) {
            let at = self.all.len();
            let added = Connection::new(stream, server).and_then(|connection| {
                let (file, name) = (connection.stream.as_fd(), EventData::new_u64(at as u64));
                epoll::add(&self.epoll, file, name, EventFlags::IN)?;
                Ok(connection)
            });
            self.all.push(added.inspect_err(|error| eprintln!("a connection is left out: {error:#}")).ok());
        }
    }

    /// Has those whose turn it is send a message, unless an answer is missing.
    fn send_due(&mut self) {
        while self.due >= 1.0 {
            self.due -= 1.0;
            let at = self.cursor % self.all.len();
            self.cursor += 1;
            let Some(connection) = &mut self.all[at] else { continue };
            match connection.asked {
                None => {
                    connection.asked = Some(Instant::now());
                    if connection.stream.write_all(&[0]).is_err() {
                        self.end(at, &End::Reset);
                    }
                }
                Some(asked) if asked.elapsed() > PATIENCE => self.end(at, &End::Lost),
                Some(_) => {}
            }
        }
    }

    fn read(&mut self, at: usize) {
        let Some(connection) = &mut self.all[at] else { return };
        match connection.stream.read(&mut [0; 64]) {
            Ok(1..) => {
                let time = connection.asked.take().map_or(Duration::ZERO, |asked| asked.elapsed());
                let mut tally = lock(&self.shared.tally);
                tally.answers += 1;
                tally.longest = tally.longest.max(time);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => self.end(at, &End::Reset),
        }
    }

    fn end(&mut self, at: usize, how: &End) {
        let Some(Connection { client, server, .. }) = self.all[at].take() else { return };
        let mut tally = lock(&self.shared.tally);
        tally.open -= 1;
        match how {
            End::Reset => tally.resets.push((client, server)),
            End::Lost => tally.lost.push((client, server)),
        }
    }

    fn record_oldest(&self) {
        let asked = self.all.iter().flatten().filter_map(|connection| connection.asked).min();
        lock(&self.shared.tally).oldest = asked.map_or(Duration::ZERO, |asked| asked.elapsed());
    }
}

impl Connection {
    fn new(stream: TcpStream, server: u8) -> Result<Connection> {
        let own = stream.local_addr().context("a connection has no address")?;
        let client = (own.ip().to_string(), own.port().into());
        Ok(Connection { stream, client, server, asked: None })
    }
}
