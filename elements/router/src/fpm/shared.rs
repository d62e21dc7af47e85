//! FPM servers of a router. They outlive its graphs: a configuration that replaces another one keeps the
//! connection and the routes.
use super::rib::Rib;
use super::server::Server;
use super::status::Status;
use super::target::Target;
use artery_engine::Clock;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Most log lines waiting for an element.
const MOST_LINES: usize = 64;

/// A server with its thread, which ends with the last of these.
pub(crate) struct FpmServer(Arc<Shared>);

impl FpmServer {
    /// The server at an address: the one that is there, or a new one.
    pub(crate) fn open_server(all: &FpmServers, listen: SocketAddr) -> io::Result<Arc<FpmServer>> {
        let mut servers = all.0.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|_, server| server.strong_count() > 0);
        if let Some(server) = servers.get(&listen).and_then(Weak::upgrade) {
            return Ok(server);
        }
        let listener = artery_device::privsep::listen(listen)?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared::new(listener.local_addr()?)?);
        let server = Server::new(shared.clone(), listener);
        std::thread::Builder::new().name("fpm".into()).spawn(move || server.run_server())?;
        let server = Arc::new(FpmServer(shared));
        servers.insert(listen, Arc::downgrade(&server));
        Ok(server)
    }

    /// A router gets all routes from now on, those that there are at once.
    pub(crate) fn add_router(&self, router: Target, hold: Duration) {
        self.0.hold.store(hold.as_millis().try_into().unwrap_or(u64::MAX), Relaxed);
        self.0.lock_rib().add_target(router, engine_clock());
        self.0.wake_thread();
    }

    /// The last published status of the server's thread, as JSON.
    pub(crate) fn status_json(&self) -> String {
        let status = self.0.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        status.to_json()
    }

    /// Readable when there are lines for the log.
    pub(crate) fn lines_fd(&self) -> BorrowedFd<'_> {
        self.0.news.as_fd()
    }

    /// The lines for the log since the last call.
    pub(crate) fn drain_lines(&self) -> Vec<String> {
        drain_event(&self.0.news);
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

impl Drop for FpmServer {
    fn drop(&mut self) {
        self.0.is_over.store(true, Relaxed);
        self.0.wake_thread();
    }
}

/// Servers by the requested listening addresses.
#[derive(Default)]
pub(crate) struct FpmServers(Mutex<HashMap<SocketAddr, Weak<FpmServer>>>);

/// State that the thread shares with elements.
pub(super) struct Shared {
    rib: Mutex<Rib>,
    pub(super) status: Mutex<Status>,
    lines: Mutex<VecDeque<String>>,
    hold: AtomicU64,
    is_over: AtomicBool,
    wake: OwnedFd,
    news: OwnedFd,
}

impl Shared {
    fn new(listen: SocketAddr) -> io::Result<Shared> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let mut rib = Rib::default();
        rib.begin_session();
        Ok(Shared {
            rib: Mutex::new(rib),
            status: Mutex::new(Status::new(listen)),
            lines: Mutex::default(),
            hold: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            wake: event()?,
            news: event()?,
        })
    }

    /// The routes. Lock order: this first, then tables.
    pub(super) fn lock_rib(&self) -> MutexGuard<'_, Rib> {
        self.rib.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long stale routes are kept after a connection has begun.
    pub(super) fn hold_time(&self) -> Duration {
        Duration::from_millis(self.hold.load(Relaxed))
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// Becomes readable when the thread has something to do.
    pub(super) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub(super) fn has_woken(&self) {
        drain_event(&self.wake);
    }

    fn wake_thread(&self) {
        signal_event(&self.wake);
    }

    /// Has an element write a line to the log.
    pub(super) fn push_line(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_back(line);
        if lines.len() > MOST_LINES {
            lines.pop_front();
        }
        drop(lines);
        signal_event(&self.news);
    }
}

/// The time as elements have it, which does not follow when a user sets the machine's time of day.
pub(crate) fn engine_clock() -> Duration {
    Clock::real().now().since_epoch()
}

fn signal_event(event: &OwnedFd) {
    // Full is as good: it is readable.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

fn drain_event(event: &OwnedFd) {
    let _ = rustix::io::read(event, &mut [0; 8]);
}
