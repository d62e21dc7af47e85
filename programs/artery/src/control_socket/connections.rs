//! Open connections: how many there may be, which one makes room for another, and how long reading and
//! writing may take.
use super::access::Peer;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Most connections at a time of one kind of peer, and by TCP of those that gave the token and of the others.
pub(super) const MAX_CONNECTIONS: usize = 32;
/// How long a connection must have been idle, or read nothing, to make room for another.
const LEAST_IDLE: Duration = Duration::from_secs(2);
/// How long what a client sends is thrown away when its connection is ended, and how often it
/// is read for that.
const LINGER: Duration = Duration::from_secs(1);
const MOST_READ_IN_VAIN: usize = 256;
/// How long a program that ends waits for replies that are being sent.
const FAREWELL: Duration = Duration::from_secs(1);

/// A socket of either family.
pub(super) trait Stream: Read + Write + Send {
    fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()>;
    fn shut_down(&self, how: Shutdown);
    fn duplicate(&self) -> io::Result<Box<dyn Stream>>;
}

macro_rules! stream {
    ($kind:ty) => {
        impl Stream for $kind {
            fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
                self.set_read_timeout(read)?;
                self.set_write_timeout(write)
            }
            fn shut_down(&self, how: Shutdown) {
                // One that its client closed is shut down already.
                let _ = self.shutdown(how);
            }
            fn duplicate(&self) -> io::Result<Box<dyn Stream>> {
                Ok(Box::new(self.try_clone()?))
            }
        }
    };
}
stream!(TcpStream);
stream!(UnixStream);

/// The connections of one kind of peer.
#[derive(Default)]
pub(super) struct Pool {
    connections: Mutex<Vec<Entry>>,
    admitted: AtomicU64,
    answered: Condvar,
}

struct Entry {
    /// In the order in which they were admitted.
    number: u64,
    /// Whether it is of the router's user, or gave the token: one without never displaces it.
    trusted: bool,
    /// Whether a request of it has been answered.
    served: bool,
    phase: Phase,
    since: Instant,
    stream: Box<dyn Stream>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// For a request, or the rest of one.
    Waiting,
    Answering,
    Sending,
}

impl Pool {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.connections.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Admits a connection. Where there are too many, [`longest_idle`] ends, or [`oldest_unprotected`].
    pub(super) fn enter(
        self: &Arc<Self>,
        stream: Box<dyn Stream>,
        peer: Peer,
    ) -> Result<Connection, Refused> {
        let duplicate = match stream.duplicate() {
            Ok(duplicate) => duplicate,
            Err(_) => return Err(Refused(stream)),
        };
        let trusted = peer == Peer::Owner;
        let mut entries = self.entries();
        let mut displaced_unserved = false;
        if count(&entries, trusted) >= MAX_CONNECTIONS {
            let oldest = || if trusted { None } else { oldest_unprotected(&entries) };
            let Some(at) = longest_idle(&entries, trusted).or_else(oldest) else {
                return Err(Refused(stream));
            };
            let ended = entries.swap_remove(at);
            displaced_unserved = !ended.served && ended.since.elapsed() < LEAST_IDLE;
            ended.stream.shut_down(Shutdown::Both);
        }
        let number = self.admitted.fetch_add(1, Relaxed);
        let (phase, since) = (Phase::Waiting, Instant::now());
        entries.push(Entry { number, trusted, served: false, phase, since, stream: duplicate });
        drop(entries);
        Ok(Connection { stream, peer, number, displaced_unserved, pool: self.clone() })
    }

    /// Waits until no request is being answered, with a limit: the client that requested the end
    /// shall get its reply.
    pub(super) fn wait(&self) {
        let busy = |entries: &mut Vec<Entry>| entries.iter().any(|entry| entry.phase != Phase::Waiting);
        drop(self.answered.wait_timeout_while(self.entries(), FAREWELL, busy));
    }
}

/// Connections of this kind.
fn count(entries: &[Entry], trusted: bool) -> usize {
    entries.iter().filter(|entry| entry.trusted == trusted).count()
}

/// Where the connection is that has been idle for longest, or has read nothing, if that is long; not one that
/// is just being answered.
fn longest_idle(entries: &[Entry], trusted: bool) -> Option<usize> {
    let is_idle = |e: &Entry| e.phase != Phase::Answering && e.since.elapsed() >= LEAST_IDLE;
    let idle = (0..entries.len()).filter(|at| entries[*at].trusted == trusted && is_idle(&entries[*at]));
    idle.min_by_key(|at| entries[*at].since)
}

/// Where the oldest connection is that gave no token: clients that never pause can't keep the others out. One
/// that had an answer ends before one that had none, one that is reading its answer after both, and one that
/// is being answered never.
fn oldest_unprotected(entries: &[Entry]) -> Option<usize> {
    let may_end = |e: &Entry| !e.trusted && e.phase != Phase::Answering;
    let all = (0..entries.len()).filter(|at| may_end(&entries[*at]));
    all.min_by_key(|at| {
        let entry = &entries[*at];
        (entry.phase == Phase::Sending, !entry.served, entry.number)
    })
}

/// A connection that is not admitted.
pub(super) struct Refused(pub(super) Box<dyn Stream>);

/// A connection that was admitted, until it is dropped.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    peer: Peer,
    number: u64,
    displaced_unserved: bool,
    pool: Arc<Pool>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.pool.entries().retain(|entry| entry.number != self.number);
        self.pool.answered.notify_all();
    }
}

impl Connection {
    /// Whether one ended for it that had just come and had no answer yet.
    pub(super) fn displaced_unserved(&self) -> bool {
        self.displaced_unserved
    }

    /// The peer of the connection.
    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// Keeps its place beside those that gave no token, now that it has given it. Where too many did, the one
    /// of them that has been idle for longest ends. If none has been for long this one is as it was, and the
    /// result is false.
    pub(crate) fn trust(&self) -> bool {
        let mut entries = self.pool.entries();
        if count(&entries, true) >= MAX_CONNECTIONS {
            let Some(at) = longest_idle(&entries, true) else { return false };
            entries.swap_remove(at).stream.shut_down(Shutdown::Both);
        }
        let own = entries.iter_mut().find(|entry| entry.number == self.number);
        own.into_iter().for_each(|entry| entry.trusted = true);
        true
    }

    /// Enters a phase; an error if the connection had to make room.
    fn enter(&self, phase: Phase) -> io::Result<()> {
        let mut entries = self.pool.entries();
        let entry = entries.iter_mut().find(|entry| entry.number == self.number);
        let entry = entry.ok_or(ErrorKind::ConnectionAborted)?;
        // A client that sends a request byte by byte stays in the waiting phase.
        entry.served |= phase == Phase::Answering;
        if entry.phase != phase {
            (entry.phase, entry.since) = (phase, Instant::now());
        }
        drop(entries);
        self.pool.answered.notify_all();
        Ok(())
    }

    /// Reads some bytes; `None` at `deadline`, 0 at the end.
    pub(crate) fn read(&mut self, bytes: &mut [u8], deadline: Instant) -> io::Result<Option<usize>> {
        self.enter(Phase::Waiting)?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.set_timeouts(Some(left), None)?;
            match self.stream.read(bytes) {
                Ok(count) => {
                    // What was read of a connection that had to make room may be half a request.
                    self.enter(Phase::Waiting)?;
                    return Ok(Some(count));
                }
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Answers a request; the end of the program waits for it, and a new connection does not end it.
    pub(crate) fn answer<R>(&mut self, answer: impl FnOnce() -> R) -> io::Result<R> {
        self.enter(Phase::Answering)?;
        Ok(answer())
    }

    /// Writes all of a reply by `deadline`.
    pub(crate) fn write(&mut self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        self.enter(Phase::Sending)?;
        while !bytes.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.stream.set_timeouts(None, Some(left))?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Connection {
    /// Ends it from this side. What the client still sends is read and discarded for a moment: closing a
    /// socket with unread data has TCP discard what was sent last (RFC 1122 section 4.2.2.13).
    pub(crate) fn end(mut self) {
        self.stream.shut_down(Shutdown::Write);
        let deadline = Instant::now() + LINGER;
        let mut rest = [0; 65536];
        for _ in 0..MOST_READ_IN_VAIN {
            if !matches!(self.read(&mut rest, deadline), Ok(Some(1..))) {
                break;
            }
        }
    }
}

/// Whether it is only that time has passed, or a signal came.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair_of(pool: &Arc<Pool>, peer: Peer) -> (UnixStream, Result<Connection, Refused>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (theirs, pool.enter(Box::new(ours), peer))
    }
    fn pair(pool: &Arc<Pool>) -> (UnixStream, Result<Connection, Refused>) {
        pair_of(pool, Peer::Owner)
    }

    #[test]
    fn the_connection_that_is_idle_for_longest_makes_room_and_those_at_work_do_not() {
        let pool = Arc::new(Pool::default());
        let mut all: Vec<_> = (0..MAX_CONNECTIONS).map(|_| pair(&pool)).collect();
        assert!(pair(&pool).1.is_err(), "all have just come");
        let long_ago = Instant::now().checked_sub(2 * LEAST_IDLE).unwrap();
        pool.entries().iter_mut().for_each(|entry| entry.since = long_ago);
        let first = all[0].1.as_mut().ok().unwrap();
        first.answer(|| ()).unwrap();
        pool.entries()[0].since = long_ago;
        pool.entries()[3].since = long_ago.checked_sub(LEAST_IDLE).unwrap();
        let (_theirs, admitted) = pair(&pool);
        assert!(admitted.is_ok());
        let soon = Instant::now() + Duration::from_secs(10);
        let read = |at: usize, all: &mut Vec<(UnixStream, Result<Connection, Refused>)>| {
            all[at].0.write_all(b"x").map(|()| all[at].1.as_mut().ok().unwrap().read(&mut [0], soon).is_ok())
        };
        assert!(!read(3, &mut all).unwrap_or(false), "the fourth had been idle for longest");
        assert!(read(0, &mut all).unwrap(), "the first was at work");
    }

    /// Clients of a TCP port: the client's end of each, and ours.
    struct Clients(Arc<Pool>, Vec<(UnixStream, Connection)>);

    impl Clients {
        fn new(count: usize) -> Clients {
            let mut clients = Clients(Arc::default(), Vec::new());
            (0..count).for_each(|_| clients.add());
            clients
        }
        fn add(&mut self) {
            let (theirs, connection) = pair_of(&self.0, Peer::Tcp);
            self.1.push((theirs, connection.ok().expect("it is admitted")));
        }
        fn serve(&mut self, at: usize, then: Phase) {
            self.1[at].1.answer(|| ()).unwrap();
            self.1[at].1.enter(then).unwrap();
        }
        /// Whether its connection goes on.
        fn has(&self, at: usize) -> bool {
            self.0.entries().iter().any(|entry| entry.number == at as u64)
        }
        fn is_trusted(&self, at: usize) -> bool {
            self.0.entries().iter().any(|entry| entry.number == at as u64 && entry.trusted)
        }
    }

    #[test]
    fn clients_that_never_pause_keep_no_other_out_and_take_no_place_of_one_that_gave_the_token() {
        let mut clients = Clients::new(MAX_CONNECTIONS);
        assert!(clients.1[0].1.trust());
        (0..3 * MAX_CONNECTIONS).for_each(|_| clients.add());
        assert_eq!(clients.0.entries().len(), MAX_CONNECTIONS + 1);
        let mut goes_on = |at: usize| {
            let soon = Instant::now() + Duration::from_secs(10);
            let (theirs, connection) = &mut clients.1[at];
            theirs.write_all(b"x").is_ok() && connection.read(&mut [0], soon).is_ok()
        };
        assert!(goes_on(0), "it gave the token");
        assert!(!goes_on(1), "the oldest of the others has ended");
    }

    #[test]
    fn one_that_had_an_answer_ends_first_and_one_that_reads_it_last() {
        let mut clients = Clients::new(MAX_CONNECTIONS);
        clients.serve(3, Phase::Sending);
        clients.serve(5, Phase::Waiting);
        clients.add();
        assert!(clients.has(0) && clients.has(3) && !clients.has(5));
        assert!(!clients.1.last().unwrap().1.displaced_unserved());
        (0..MAX_CONNECTIONS - 1).for_each(|_| clients.add());
        assert!(clients.has(3) && !clients.has(0));
        assert!(clients.1.last().unwrap().1.displaced_unserved());
    }

    #[test]
    fn those_that_gave_the_token_are_limited_and_one_that_is_idle_gives_way() {
        let mut clients = Clients::new(MAX_CONNECTIONS);
        assert!(clients.1.iter().all(|(_, connection)| connection.trust()));
        clients.add();
        let last = MAX_CONNECTIONS;
        assert!(!clients.1[last].1.trust() && !clients.is_trusted(last), "none has been idle for long");
        let long_ago = Instant::now().checked_sub(2 * LEAST_IDLE).unwrap();
        clients.0.entries()[7].since = long_ago;
        assert!(clients.1[last].1.trust() && clients.is_trusted(last) && !clients.has(7));
        assert_eq!(count(&clients.0.entries(), true), MAX_CONNECTIONS);
    }

    #[test]
    fn reading_and_writing_end_at_their_deadlines() {
        let pool = Arc::new(Pool::default());
        let (mut theirs, connection) = pair(&pool);
        let mut connection = connection.ok().unwrap();
        let soon = || Instant::now() + Duration::from_millis(20);
        assert_eq!(connection.read(&mut [0; 8], soon()).unwrap(), None);
        let refused = connection.write(&vec![0; 16 << 20], soon()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TimedOut);
        theirs.write_all(b"abc").unwrap();
        assert_eq!(connection.read(&mut [0; 8], soon()).unwrap(), Some(3));
        drop(connection);
        assert!(pool.entries().is_empty());
    }
}
