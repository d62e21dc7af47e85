//! Good traffic: streams of numbered datagrams, and connections of TCP that must stay whole.

use super::ledger::Ledger;
use artery_rig::{Host, Result, RigError};
use rustix::net::sockopt;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What marks our datagrams among those that strangers send to the same port.
const KEY: [u8; 8] = *b"soakgood";
/// Time between looks at the clock of a sender.
const PACE: Duration = Duration::from_millis(4);
/// What a sender that lost its processor may catch up with at once: queues of virtual links are short.
const BURST: u64 = 16;
/// Socket buffers large enough for a receiver that loses its processor for a while.
const SOCKET_BUFFER: usize = 8 << 20;
/// Time between two exchanges of a connection, and how long one may take: it waits out a link that is down.
const EXCHANGE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// Datagrams from one host to another, or to some of several.
pub(super) struct Stream {
    pub(super) name: String,
    pub(super) ledger: Arc<Ledger>,
    is_over: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
    receivers: Vec<JoinHandle<()>>,
}

impl Stream {
    /// Sends so many a second from now on, until it is dropped.
    pub(super) fn start(
        (from, to): (&Host, &[&Host]),
        (address, port): (&str, u16),
        rate: u64,
        began: Instant,
    ) -> Result<Stream> {
        let target = SocketAddr::new(parse(address)?, port);
        let ledger = Arc::new(Ledger::new(began));
        let is_over = Arc::new(AtomicBool::new(false));
        let mut receivers = Vec::new();
        for host in to {
            let socket = bind(host, port)?;
            let (ledger, is_over) = (ledger.clone(), is_over.clone());
            receivers.push(thread::spawn(move || receive(&socket, &ledger, &is_over)));
        }
        let socket = bind(from, 0)?;
        let (to, over) = (ledger.clone(), is_over.clone());
        let sender = thread::spawn(move || send(&socket, target, rate, &to, &over));
        let name = format!("datagrams to {target}");
        Ok(Stream { name, ledger, is_over, sender: Some(sender), receivers })
    }

    /// Sends no more; what is under way is still received.
    pub(super) fn stop(&mut self) {
        self.is_over.store(true, Relaxed);
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stop();
        for receiver in self.receivers.drain(..) {
            let _ = receiver.join();
        }
    }
}

fn datagram_of(number: u64) -> [u8; 64] {
    let mut datagram = [0; 64];
    datagram[..8].copy_from_slice(&KEY);
    datagram[8..16].copy_from_slice(&number.to_be_bytes());
    datagram
}

fn send(socket: &UdpSocket, target: SocketAddr, rate: u64, ledger: &Ledger, is_over: &AtomicBool) {
    let (mut start, mut sent) = (Instant::now(), 0u64);
    while !is_over.load(Relaxed) {
        thread::sleep(PACE);
        let due = start.elapsed().as_micros() as u64 * rate / 1_000_000;
        if due > sent + BURST {
            // What could not be sent in time is not sent at all.
            (start, sent) = (Instant::now(), 0);
            continue;
        }
        while sent < due {
            // What the kernel refuses is lost, which the link must explain.
            let _ = socket.send_to(&datagram_of(ledger.send()), target);
            sent += 1;
        }
    }
}

/// Receives until a while after the end, so that nothing under way is missed.
fn receive(socket: &UdpSocket, ledger: &Ledger, is_over: &AtomicBool) {
    let mut datagram = [0; 2048];
    loop {
        match socket.recv(&mut datagram) {
            Ok(length) => {
                let (key, rest) = datagram[..length].split_at(length.min(8));
                if let Some(number) = rest.first_chunk().filter(|_| key == KEY) {
                    ledger.arrive(u64::from_be_bytes(*number));
                }
            }
            Err(_) if is_over.load(Relaxed) => return,
            Err(_) => {}
        }
    }
}

fn bind(host: &Host, port: u16) -> Result<UdpSocket> {
    let socket = host.enter(|| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)))?;
    let socket = socket.map_err(RigError::system(format!("cannot bind UDP port {port}")))?;
    let limit = socket.set_read_timeout(Some(Duration::from_millis(500)));
    limit.map_err(RigError::system("cannot set a socket's time limit"))?;
    let sized = sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER);
    sized.map_err(|errno| RigError::System("cannot size a socket's buffer".into(), errno.into()))?;
    Ok(socket)
}

/// The address as a socket for both families takes it.
fn parse(address: &str) -> Result<IpAddr> {
    let wanted = "an IP address, such as 10.0.1.1 or fd00::1";
    let parsed = address.parse().map_err(|_| RigError::BadAddress { text: address.into(), wanted })?;
    Ok(match parsed {
        IpAddr::V4(address) => address.to_ipv6_mapped().into(),
        address => address,
    })
}

/// A connection that exchanges a few bytes again and again.
pub(super) struct Connection {
    pub(super) exchanges: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    client: Option<JoinHandle<io::Result<()>>>,
    listeners: Vec<Arc<TcpListener>>,
}

impl Connection {
    /// Connects from one host to an address that one of others has.
    pub(super) fn start((from, to): (&Host, &[&Host]), (address, port): (&str, u16)) -> Result<Connection> {
        let mut listeners = Vec::new();
        for host in to {
            let listener = host.enter(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)))?;
            let listener = listener.map_err(RigError::system(format!("cannot bind TCP port {port}")))?;
            let listener = Arc::new(listener);
            listeners.push(listener.clone());
            thread::spawn(move || serve(&listener));
        }
        let target = SocketAddr::new(parse(address)?, port);
        let stream = from.enter(|| TcpStream::connect_timeout(&target, Duration::from_secs(10)))?;
        let stream = stream.map_err(RigError::system(format!("cannot connect to {target}")))?;
        let (exchanges, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, over) = (exchanges.clone(), is_over.clone());
        let client = Some(thread::spawn(move || exchange(stream, &count, &over)));
        Ok(Connection { exchanges, is_over, client, listeners })
    }

    /// Ends it; the error says why it broke before.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        self.is_over.store(true, Relaxed);
        let client = self.client.take();
        let ended = client.map_or(Ok(Ok(())), JoinHandle::join);
        for listener in self.listeners.drain(..) {
            // This wakes who waits for clients.
            let _ = rustix::net::shutdown(&listener, rustix::net::Shutdown::Both);
        }
        ended.unwrap_or_else(|_| Err(io::Error::other("its thread failed")))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

fn exchange(mut stream: TcpStream, count: &AtomicU64, is_over: &AtomicBool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(EXCHANGE.1))?;
    while !is_over.load(Relaxed) {
        let number = count.load(Relaxed).to_be_bytes();
        let mut answer = [0; 8];
        stream.write_all(&number)?;
        stream.read_exact(&mut answer)?;
        if answer != number {
            return Err(io::Error::other("other bytes came back than were sent"));
        }
        count.fetch_add(1, Relaxed);
        thread::sleep(EXCHANGE.0);
    }
    Ok(())
}

/// Echoes whatever a client sends. Gives up clients that fall silent.
fn serve(listener: &TcpListener) {
    while let Ok((mut stream, _)) = listener.accept() {
        thread::spawn(move || -> io::Result<()> {
            stream.set_read_timeout(Some(EXCHANGE.1))?;
            stream.set_nodelay(true)?;
            let mut bytes = [0; 64];
            loop {
                match stream.read(&mut bytes)? {
                    0 => return Ok(()),
                    length => stream.write_all(&bytes[..length])?,
                }
            }
        });
    }
}
