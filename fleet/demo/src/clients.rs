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
        let open = || (0..count).map(|n| connect(1 + (n % usize::from(CLIENTS)) as u8)).collect();
        let streams: Result<Vec<TcpStream>> = host.enter(open)?;
        Ok(Clients(streams?))
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

/// Connects from an address of clients, and waits for the server's number.
fn connect(from: u8) -> Result<TcpStream> {
    let stream = open_socket(from)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    (&stream).read_exact(&mut [0]).context("a server does not say who it is")?;
    stream.set_nonblocking(true)?;
    Ok(stream)
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

/// Connections that come and end, one after the other from each address of clients.
pub(crate) struct ShortConnections {
    has_ended: Arc<AtomicBool>,
    all: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl ShortConnections {
    pub(crate) fn start(host: &Host) -> Result<ShortConnections> {
        let (has_ended, all, failed) =
            (Arc::new(AtomicBool::new(false)), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let mut threads = Vec::new();
        for from in 1..=CLIENTS {
            let (host, has_ended) = (host.clone(), has_ended.clone());
            let (all, failed) = (all.clone(), failed.clone());
            threads.push(std::thread::spawn(move || {
                let work = host.enter(|| {
                    while !has_ended.load(Relaxed) {
                        all.fetch_add(1, Relaxed);
                        failed.fetch_add(u64::from(ask_once(from).is_err()), Relaxed);
                        std::thread::sleep(Duration::from_millis(50));
                    }
                });
                work.expect("a host is entered");
            }));
        }
        Ok(ShortConnections { has_ended, all, failed, threads })
    }

    /// How many there were, and how many of them failed.
    pub(crate) fn stop(self) -> (u64, u64) {
        self.has_ended.store(true, Relaxed);
        for thread in self.threads {
            // One that panicked has said so.
            let _ = thread.join();
        }
        (self.all.load(Relaxed), self.failed.load(Relaxed))
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
