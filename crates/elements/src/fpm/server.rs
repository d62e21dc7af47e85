//! The thread of a server: it listens, reads, has routes put into tables, answers, and
//! removes what has become stale.
//!
//! One connection feeds the router. Another one is refused while the first lasts: of two senders each would
//! undo what the other says. A peer that vanished without a word is found out by
//! keepalives within half a minute.
use super::answers::Answers;
use super::broken::Broken;
use super::frames::{Frames, READ};
use super::reason::Reason;
use super::session::{Received, Session};
use super::shared::{Shared, clock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long stale routes are kept after one of them was sent again: more may be on their way.
const QUIET: Duration = Duration::from_secs(5);
/// Routes removed while tables are held.
const SWEPT_AT_ONCE: usize = 1024;
/// How often the status is published while messages keep coming.
const STATUS_INTERVAL: Duration = Duration::from_millis(100);
/// How often it is said that a connection was refused.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(10);
/// When a silent peer is asked whether it is there, how often, and for how many times.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 3);

/// See the module.
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

/// What there is to do.
#[derive(Default)]
struct Ready {
    listener: bool,
    stream: bool,
}

/// Why a connection ends.
enum End {
    Closed,
    Broken(Broken),
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
    pub(super) fn run(mut self) {
        while !self.shared.is_over() {
            let ready = self.wait();
            if ready.listener {
                self.accept();
            }
            let has_more = ready.stream && self.serve();
            self.sweep_if_due();
            // Who has an answer finds what it says.
            self.publish_status(!has_more);
            self.answer();
        }
    }

    fn wait(&self) -> Ready {
        let wait = match self.sweep_at() {
            Some(at) => at.saturating_duration_since(Instant::now()),
            // The status is published once a second at least.
            None => Duration::from_secs(1),
        };
        let timeout = Timespec { tv_sec: wait.as_secs().min(60) as i64, tv_nsec: wait.subsec_nanos().into() };
        let wakes = self.shared.wakes();
        let mut files = vec![PollFd::new(&wakes, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        if let Some(connection) = &self.connection {
            let writes = if connection.answers.waiting() > 0 { PollFlags::OUT } else { PollFlags::empty() };
            files.push(PollFd::new(&connection.stream, PollFlags::IN | writes));
        }
        if poll(&mut files, Some(&timeout)).is_err() {
            return Ready::default();
        }
        let is_ready = |at: usize| files.get(at).is_some_and(|file| !file.revents().is_empty());
        if is_ready(0) {
            self.shared.has_woken();
        }
        Ready { listener: is_ready(1), stream: is_ready(2) }
    }

    fn accept(&mut self) {
        let Ok((stream, peer)) = self.listener.accept() else { return };
        // A peer that has gone makes room for the next one, whichever was noticed first.
        self.serve();
        if let Some(connection) = &self.connection {
            self.refused_connections += 1;
            let now = Instant::now();
            if self.said_refused.is_none_or(|said| now.duration_since(said) >= REFUSAL_INTERVAL) {
                self.said_refused = Some(now);
                self.shared.say(format!("{peer} refused: {} feeds the router", connection.peer));
            }
            return;
        }
        match Connection::new(stream, peer) {
            Ok(connection) => {
                self.connections += 1;
                self.shared.say(format!("{peer} connected"));
                self.connection = Some(connection);
            }
            Err(error) => self.shared.say(format!("{peer} refused: {error}")),
        }
    }

    /// Reads once, and does what was read; says whether there may be more.
    fn serve(&mut self) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        let end = match connection.frames.read(&mut connection.stream) {
            Ok(0) => End::Closed,
            Ok(count) => match connection.process(&self.shared, &mut self.received) {
                Ok(()) => return count == READ,
                Err(broken) => End::Broken(broken),
            },
            Err(error) if is_temporary(&error) => return false,
            Err(error) => End::Failed(error),
        };
        self.disconnect(&end);
        false
    }

    /// Writes answers.
    fn answer(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        if let Err(error) = connection.answers.write(&mut connection.stream) {
            self.disconnect(&End::Failed(error));
        }
    }

    fn disconnect(&mut self, end: &End) {
        let Some(connection) = self.connection.take() else { return };
        let why = match end {
            End::Closed => "the peer closed the connection".to_string(),
            End::Broken(broken) => broken.to_string(),
            End::Failed(error) => error.to_string(),
        };
        self.answered.0 += connection.answers.sent;
        self.answered.1 += connection.answers.lost;
        let mut rib = self.shared.rib();
        rib.begin_session();
        let stale = rib.counts().stale;
        drop(rib);
        let peer = connection.peer;
        self.shared.say(format!("{peer} disconnected: {why}; {} kept as stale", routes(stale)));
        self.last_disconnect = Some(why);
    }

    /// When stale routes are removed: not before a connection had time to send them again.
    fn sweep_at(&self) -> Option<Instant> {
        let connection = self.connection.as_ref()?;
        let stale = self.shared.rib().counts().stale;
        let held = connection.since + self.shared.hold();
        let quiet = connection.confirmed.map_or(held, |confirmed| confirmed + QUIET);
        (stale > 0).then(|| held.max(quiet))
    }

    fn sweep_if_due(&mut self) {
        if self.sweep_at().is_none_or(|at| at > Instant::now()) {
            return;
        }
        let mut rib = self.shared.rib();
        let (stale, routers) = (rib.stale(), rib.routers());
        for some in stale.chunks(SWEPT_AT_ONCE) {
            let mut tables: Vec<_> = routers.iter().map(|router| router.tables()).collect();
            let now = clock();
            some.iter().for_each(|prefix| _ = rib.remove_route(*prefix, &mut tables, now));
        }
        drop(rib);
        self.swept += stale.len() as u64;
        self.shared.say(format!("{} removed: not sent again by the peer", routes(stale.len())));
    }

    /// Publishes what is known, at once or when that is due.
    fn publish_status(&mut self, at_once: bool) {
        let now = Instant::now();
        if !at_once && now.duration_since(self.published) < STATUS_INTERVAL {
            return;
        }
        self.published = now;
        let sweep = self.sweep_at();
        let rib = self.shared.rib();
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
            answers.map_or(0, Answers::waiting),
        );
        status.families = rib.families();
        status.counts.clone_from(rib.counts());
        let refusal = |reason: &Reason| Some((*reason, rib.refusal(*reason)?.to_string()));
        status.refusals = Reason::ALL.iter().filter_map(refusal).collect();
        status.paths = rib.paths();
        status.next_hops = rib.next_hops.counts();
        status.sweep = sweep;
        status.swept = self.swept;
        status.hold = self.shared.hold().as_secs_f64();
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
    fn process(&mut self, shared: &Shared, received: &mut Received) -> Result<(), Broken> {
        let mut rib = shared.rib();
        let stale = rib.counts().stale;
        let routers = rib.routers();
        let mut tables: Vec<_> = routers.iter().map(|router| router.tables()).collect();
        let mut session = Session {
            rib: &mut rib,
            tables: &mut tables,
            answers: &mut self.answers,
            received,
            is_local: self.is_local,
            now: clock(),
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

fn routes(count: usize) -> String {
    format!("{count} route{}", if count == 1 { "" } else { "s" })
}
