//! The thread of a server: it listens, reads, installs routes in tables, answers, and removes stale routes.
//!
//! One connection feeds the router. Another one is refused while the first lasts: two senders would undo each
//! other's routes. Keepalives detect a peer that vanished without a FIN within half a minute.
use super::answers::Answers;
use super::broken::FpmProtocolError;
use super::frames::{Frames, READ};
use super::reason::RejectReason;
use super::session::{Received, Session};
use super::shared::{Shared, engine_clock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long stale routes are kept after one of them was sent again: more may follow.
const QUIET: Duration = Duration::from_secs(5);
/// Routes removed under one lock of the tables.
const SWEPT_AT_ONCE: usize = 1024;
/// How often the status is published while messages keep coming.
const STATUS_INTERVAL: Duration = Duration::from_millis(100);
/// Shortest time between two messages about refused connections.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(10);
/// Time until a connection is tried again that could not be accepted.
const ACCEPT_RETRY: Duration = Duration::from_millis(10);
/// After how much silence a peer is probed, how often, and how many times.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 3);

pub(super) struct Server {
    shared: Arc<Shared>,
    listener: TcpListener,
    connection: Option<Connection>,
    received: Received,
    connections: u64,
    refused_connections: u64,
    said_refused: Option<Instant>,
    last_disconnect: Option<String>,
    /// Answers of connections that have ended: sent, and lost.
    answered: (u64, u64),
    swept: u64,
    published: Instant,
}

struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    /// Whether the peer is on this host, and its numbers of interfaces are ours.
    is_local: bool,
    frames: Frames,
    answers: Answers,
    since: Instant,
    /// When a stale route was sent again.
    confirmed: Option<Instant>,
}

/// The sources of events that are ready.
#[derive(Default)]
struct ReadyEvents {
    listener: bool,
    stream: bool,
}

/// Why a connection ends.
enum DisconnectReason {
    Closed,
    Broken(FpmProtocolError),
    Failed(io::Error),
}

impl Server {
    pub(super) fn new(shared: Arc<Shared>, listener: TcpListener) -> Server {
        Server {
            shared,
            listener,
            connection: None,
            received: Received::default(),
            connections: 0,
            refused_connections: 0,
            said_refused: None,
            last_disconnect: None,
            answered: (0, 0),
            swept: 0,
            published: Instant::now(),
        }
    }

    /// Serves until no element needs it.
    pub(super) fn run_server(mut self) {
        while !self.shared.is_over() {
            let ready = self.wait_ready();
            if ready.listener {
                self.accept_connection();
            }
            let has_more = ready.stream && self.serve_connection();
            self.sweep_if_due();
            // A client that has its answer must find the new status.
            self.publish_status(!has_more);
            self.write_answers();
        }
    }

    fn wait_ready(&self) -> ReadyEvents {
        let wait = match self.sweep_at() {
            Some(at) => at.saturating_duration_since(Instant::now()),
            // The status is published once a second at least.
            None => Duration::from_secs(1),
        };
        let timeout = Timespec { tv_sec: wait.as_secs().min(60) as i64, tv_nsec: wait.subsec_nanos().into() };
        let wakes = self.shared.wake_fd();
        let mut files = vec![PollFd::new(&wakes, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        if let Some(connection) = &self.connection {
            let writes =
                if connection.answers.pending_bytes() > 0 { PollFlags::OUT } else { PollFlags::empty() };
            files.push(PollFd::new(&connection.stream, PollFlags::IN | writes));
        }
        if poll(&mut files, Some(&timeout)).is_err() {
            return ReadyEvents::default();
        }
        let is_ready = |at: usize| files.get(at).is_some_and(|file| !file.revents().is_empty());
        if is_ready(0) {
            self.shared.has_woken();
        }
        ReadyEvents { listener: is_ready(1), stream: is_ready(2) }
    }

    fn accept_connection(&mut self) {
        let Ok((stream, peer)) = self.listener.accept() else {
            // Without descriptors the peer waits, and the listener stays ready.
            std::thread::sleep(ACCEPT_RETRY);
            return;
        };
        // A peer that is gone makes room for the next one, in whichever order the two are noticed.
        self.serve_connection();
        if let Some(connection) = &self.connection {
            self.refused_connections += 1;
            let now = Instant::now();
            if self.said_refused.is_none_or(|said| now.duration_since(said) >= REFUSAL_INTERVAL) {
                self.said_refused = Some(now);
                self.shared.push_line(format!("{peer} refused: {} feeds the router", connection.peer));
            }
            return;
        }
        match Connection::new(stream, peer) {
            Ok(connection) => {
                self.connections += 1;
                self.shared.push_line(format!("{peer} connected"));
                self.connection = Some(connection);
            }
            Err(error) => self.shared.push_line(format!("{peer} refused: {error}")),
        }
    }

    /// Reads once and processes the messages; returns whether there may be more.
    fn serve_connection(&mut self) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        let end = match connection.frames.read_stream(&mut connection.stream) {
            Ok(0) => DisconnectReason::Closed,
            Ok(count) => match connection.process_messages(&self.shared, &mut self.received) {
                Ok(()) => return count == READ,
                Err(broken) => DisconnectReason::Broken(broken),
            },
            Err(error) if is_temporary(&error) => return false,
            Err(error) => DisconnectReason::Failed(error),
        };
        self.close_connection(&end);
        false
    }

    fn write_answers(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        if let Err(error) = connection.answers.write_pending(&mut connection.stream) {
            self.close_connection(&DisconnectReason::Failed(error));
        }
    }

    fn close_connection(&mut self, end: &DisconnectReason) {
        let Some(connection) = self.connection.take() else { return };
        let why = match end {
            DisconnectReason::Closed => "the peer closed the connection".to_string(),
            DisconnectReason::Broken(broken) => broken.to_string(),
            DisconnectReason::Failed(error) => error.to_string(),
        };
        self.answered.0 += connection.answers.sent;
        self.answered.1 += connection.answers.lost;
        let mut rib = self.shared.lock_rib();
        rib.begin_session();
        let stale = rib.counts().stale;
        drop(rib);
        let peer = connection.peer;
        self.shared
            .push_line(format!("{peer} disconnected: {why}; {} kept as stale", format_route_count(stale)));
        self.last_disconnect = Some(why);
    }

    /// When stale routes are removed: not before a connection had time to send them again.
    fn sweep_at(&self) -> Option<Instant> {
        let connection = self.connection.as_ref()?;
        let stale = self.shared.lock_rib().counts().stale;
        let held = connection.since + self.shared.hold_time();
        let quiet = connection.confirmed.map_or(held, |confirmed| confirmed + QUIET);
        (stale > 0).then(|| held.max(quiet))
    }

    fn sweep_if_due(&mut self) {
        if self.sweep_at().is_none_or(|at| at > Instant::now()) {
            return;
        }
        let mut rib = self.shared.lock_rib();
        let (stale, routers) = (rib.stale_prefixes(), rib.routers());
        for some in stale.chunks(SWEPT_AT_ONCE) {
            let mut tables: Vec<_> = routers.iter().map(|router| router.lock_tables()).collect();
            let now = engine_clock();
            some.iter().for_each(|prefix| _ = rib.remove_route(*prefix, &mut tables, now));
        }
        drop(rib);
        self.swept += stale.len() as u64;
        self.shared
            .push_line(format!("{} removed: not sent again by the peer", format_route_count(stale.len())));
    }

    /// Publishes the status, at once or when that is due.
    fn publish_status(&mut self, at_once: bool) {
        let now = Instant::now();
        if !at_once && now.duration_since(self.published) < STATUS_INTERVAL {
            return;
        }
        self.published = now;
        let sweep = self.sweep_at();
        let rib = self.shared.lock_rib();
        let mut status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = self.connection.as_ref();
        let answers = connection.map(|connection| &connection.answers);
        status.peer = connection.map(|connection| (connection.peer, connection.since));
        status.connections = self.connections;
        status.refused_connections = self.refused_connections;
        status.last_disconnect.clone_from(&self.last_disconnect);
        status.received.clone_from(&self.received);
        status.answers = (
            self.answered.0 + answers.map_or(0, |answers| answers.sent),
            self.answered.1 + answers.map_or(0, |answers| answers.lost),
            answers.map_or(0, Answers::pending_bytes),
        );
        status.families = rib.family_counts();
        status.counts.clone_from(rib.counts());
        let refusal = |reason: &RejectReason| Some((*reason, rib.last_refusal(*reason)?.to_string()));
        status.refusals = RejectReason::ALL.iter().filter_map(refusal).collect();
        status.paths = rib.path_count();
        status.next_hops = rib.next_hops.count_kinds();
        status.sweep = sweep;
        status.swept = self.swept;
        status.hold = self.shared.hold_time().as_secs_f64();
    }
}

impl Connection {
    fn new(stream: TcpStream, peer: SocketAddr) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let (idle, interval, count) = KEEPALIVE;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, idle)?;
        sockopt::set_tcp_keepintvl(&stream, interval)?;
        sockopt::set_tcp_keepcnt(&stream, count)?;
        let is_local = peer.ip().to_canonical().is_loopback() || stream.local_addr()?.ip() == peer.ip();
        Ok(Connection {
            stream,
            peer,
            is_local,
            frames: Frames::default(),
            answers: Answers::default(),
            since: Instant::now(),
            confirmed: None,
        })
    }

    /// Does what was read.
    fn process_messages(&mut self, shared: &Shared, received: &mut Received) -> Result<(), FpmProtocolError> {
        let mut rib = shared.lock_rib();
        let stale = rib.counts().stale;
        let routers = rib.routers();
        let mut tables: Vec<_> = routers.iter().map(|router| router.lock_tables()).collect();
        let mut session = Session {
            rib: &mut rib,
            tables: &mut tables,
            answers: &mut self.answers,
            received,
            is_local: self.is_local,
            now: engine_clock(),
        };
        let done = loop {
            match self.frames.next_payload() {
                Ok(Some(payload)) => {
                    if let Err(broken) = session.process_frame(payload) {
                        break Err(broken);
                    }
                }
                Ok(None) => break Ok(()),
                Err(broken) => break Err(broken),
            }
        };
        if rib.counts().stale < stale {
            self.confirmed = Some(Instant::now());
        }
        done
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn format_route_count(count: usize) -> String {
    format!("{count} route{}", if count == 1 { "" } else { "s" })
}
