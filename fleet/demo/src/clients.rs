//! Clients: connections that are in use all the time, and short ones.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use artery_rig::Host;
use rustix::net::{AddressFamily, SocketType};

use crate::network::{CLIENTS, PORT, SERVICE, client};

/// After so long without progress of any connection, those without an answer are lost. TCP sends again what
/// is lost after 0.2, 0.6, 1.4, 3 and 6.2 s.
const PATIENCE: Duration = Duration::from_secs(10);

/// Long connections, none of which ends by itself.
pub(crate) struct Clients(Vec<TcpStream>);

impl Clients {
    /// Opens connections from all addresses of clients.
    pub(crate) fn open(host: &Host, count: usize) -> Result<Clients> {
        Ok(Clients(open_all(host, count)?.into_iter().map(|(stream, _)| stream).collect()))
    }

    /// Has each connection exchange two messages, and says how many were reset or got no answer; those are
    /// closed.
    pub(crate) fn harmed(&mut self) -> usize {
        let before = self.0.len();
        for round in 0..2 {
            let streams = std::mem::take(&mut self.0);
            self.0 = exchange(streams, round);
        }
        before - self.0.len()
    }
}

/// Sends a message on each connection; returns those that it came back on.
fn exchange(streams: Vec<TcpStream>, message: u8) -> Vec<TcpStream> {
    let send = |mut stream: TcpStream| stream.write_all(&[message]).is_ok().then_some(stream);
    let mut waiting: Vec<TcpStream> = streams.into_iter().filter_map(send).collect();
    let (mut sound, mut progress) = (Vec::new(), Instant::now());
    while !waiting.is_empty() && progress.elapsed() < PATIENCE {
        let before = waiting.len();
        let mut left = Vec::new();
        for mut stream in waiting {
            let mut answer = [0];
            match stream.read(&mut answer) {
                Ok(1) if answer == [message] => sound.push(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => left.push(stream),
                _ => {}
            }
        }
        waiting = left;
        if waiting.len() < before {
            progress = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    sound
}

/// Opens connections from all addresses of clients; each with its server's number.
pub(crate) fn open_all(host: &Host, count: usize) -> Result<Vec<(TcpStream, u8)>> {
    host.enter(|| (0..count).map(|n| connect(1 + (n % usize::from(CLIENTS)) as u8)).collect())?
}

/// Connects from an address of clients, and waits for the server's number.
fn connect(from: u8) -> Result<(TcpStream, u8)> {
    let stream = open_socket(from)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut server = [0];
    (&stream).read_exact(&mut server).context("a server does not say who it is")?;
    stream.set_nonblocking(true)?;
    Ok((stream, server[0]))
}

fn open_socket(from: u8) -> Result<TcpStream> {
    let address = |text: &str, port| text.parse().map(|ip| SocketAddr::from(SocketAddrV4::new(ip, port)));
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &address(&client(from), 0)?)?;
    // Connections close at once, at both ends.
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    rustix::net::connect(&socket, &address(SERVICE, PORT)?).context("can't connect to the service")?;
    Ok(socket.into())
}

/// Connections that come and end, from all addresses of clients, one after the other in each thread.
pub(crate) struct ShortConnections {
    has_ended: Arc<AtomicBool>,
    counts: Arc<ShortCounts>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct ShortCounts {
    all: AtomicU64,
    failed: AtomicU64,
    longest_micros: AtomicU64,
}

/// What became of short connections.
#[derive(Clone, Copy, Default)]
pub(crate) struct ShortReport {
    pub(crate) all: u64,
    pub(crate) failed: u64,
    pub(crate) longest: Duration,
}

impl ShortConnections {
    /// So many threads for each address of clients begin one in each period, or later while they wait.
    pub(crate) fn start(host: &Host, threads: usize, period: Duration) -> ShortConnections {
        let (has_ended, counts) = (Arc::new(AtomicBool::new(false)), Arc::<ShortCounts>::default());
        let mut all = Vec::new();
        for from in (1..=CLIENTS).flat_map(|from| std::iter::repeat_n(from, threads)) {
            let (host, has_ended, counts) = (host.clone(), has_ended.clone(), counts.clone());
            all.push(std::thread::spawn(move || {
                let work = host.enter(|| {
                    while !has_ended.load(Relaxed) {
                        let begun = Instant::now();
                        counts.note(ask_once(from).is_ok(), begun.elapsed());
                        std::thread::sleep(period.saturating_sub(begun.elapsed()));
                    }
                });
                work.expect("a host is entered");
            }));
        }
        ShortConnections { has_ended, counts, threads: all }
    }

    /// What became of them since the last call.
    pub(crate) fn report(&self) -> ShortReport {
        let ShortCounts { all, failed, longest_micros } = &*self.counts;
        let longest = Duration::from_micros(longest_micros.swap(0, Relaxed));
        ShortReport { all: all.swap(0, Relaxed), failed: failed.swap(0, Relaxed), longest }
    }

    pub(crate) fn stop(mut self) -> ShortReport {
        self.end();
        self.report()
    }

    fn end(&mut self) {
        self.has_ended.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Drop for ShortConnections {
    fn drop(&mut self) {
        self.end();
    }
}

impl ShortCounts {
    fn note(&self, is_sound: bool, time: Duration) {
        self.all.fetch_add(1, Relaxed);
        self.failed.fetch_add(u64::from(!is_sound), Relaxed);
        self.longest_micros.fetch_max(time.as_micros() as u64, Relaxed);
    }
}

fn ask_once(from: u8) -> Result<()> {
    let stream = open_socket(from)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut answer = [0];
    (&stream).read_exact(&mut answer)?;
    (&stream).write_all(&[42])?;
    (&stream).read_exact(&mut answer)?;
    if answer == [42] { Ok(()) } else { Err(anyhow!("another answer than what was sent")) }
}
