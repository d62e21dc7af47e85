//! A server of TCP for balancers: it says its number to each client, and then sends back what comes.

use crate::{Host, Result, RigError};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

/// How often its only thread looks whether it has to end.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// What the listener is called among events; clients are called by their descriptors.
const LISTENER: u64 = u64::MAX;

/// A thread of this process with sockets of a host. It ends when this is dropped, and the host's kernel
/// refuses connections from then on.
pub struct EchoServer {
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl EchoServer {
    /// Listens at all IPv4 addresses of a host.
    pub fn start(host: &Host, port: u16, number: u8) -> Result<EchoServer> {
        let mut clients = host.enter(|| Clients::listen(port, number))??;
        let has_ended = Arc::new(AtomicBool::new(false));
        let ends = has_ended.clone();
        let thread = std::thread::spawn(move || clients.serve(&ends));
        Ok(EchoServer { has_ended, thread: Some(thread) })
    }

    /// The same in the namespace of this thread, until the process ends: for a program of its own, which may
    /// have a higher limit of open files.
    pub fn run(port: u16, number: u8) -> Result<()> {
        Clients::listen(port, number)?.serve(&AtomicBool::new(false));
        Ok(())
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.has_ended.store(true, Relaxed);
        // A server that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Clients {
    listener: TcpListener,
    epoll: OwnedFd,
    streams: HashMap<u64, TcpStream>,
    number: u8,
}

impl Clients {
    fn listen(port: u16, number: u8) -> Result<Clients> {
        let failed = RigError::system(format!("a server can't listen at port {port}"));
        TcpListener::bind(("0.0.0.0", port))
            .and_then(|listener| Clients::new(listener, number))
            .map_err(failed)
    }

    fn new(listener: TcpListener, number: u8) -> io::Result<Clients> {
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, listener.as_fd(), EventData::new_u64(LISTENER), EventFlags::IN)?;
        Ok(Clients { listener, epoll, streams: HashMap::new(), number })
    }

    fn serve(&mut self, has_ended: &AtomicBool) {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 256];
        while !has_ended.load(Relaxed) {
            let count = epoll::wait(&self.epoll, &mut events[..], Some(&LOOK)).unwrap_or(0);
            for event in &events[..count] {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    client => self.send_back(client),
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Ok((mut stream, _)) = self.listener.accept() {
            let name = stream.as_raw_fd() as u64;
            let watched = epoll::add(&self.epoll, stream.as_fd(), EventData::new_u64(name), EventFlags::IN);
            let is_greeted = stream.write_all(&[self.number]).and_then(|()| stream.set_nonblocking(true));
            if watched.is_ok() && is_greeted.is_ok() {
                self.streams.insert(name, stream);
            }
        }
    }

    fn send_back(&mut self, client: u64) {
        let Some(stream) = self.streams.get_mut(&client) else { return };
        let mut buffer = [0; 512];
        let goes_on = match stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(length) => stream.write_all(&buffer[..length]).is_ok(),
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        };
        if !goes_on {
            self.streams.remove(&client);
        }
    }
}
