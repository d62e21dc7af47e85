//! Probes of other machines: connections, requests and echoes that end by a deadline.
//!
//! A [`Prober`] has one socket for each pending probe and one epoll set for all of them. It starts no thread
//! and never waits: its owner watches its file, polls it when that is readable or a deadline has come
//! ([`Prober::due`]), and passes the time. Not here: when to probe, and what follows from an answer.
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

mod error;
mod http;
mod ping;
mod tcp;
#[cfg(test)]
mod tests;

pub use error::{NoProbe, ProbeError, ProbeFailure};
use http::HttpProbe;
use ping::PingProbe;
pub(crate) use ping::make_raw_socket;
use tcp::TcpProbe;

/// What a probe asks of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProbeKind {
    /// That it takes a TCP connection.
    Tcp,
    /// That it answers a GET request with a status.
    Http {
        /// What is requested, from `/` on.
        path: String,
        /// The name it is requested of; address and port where there is none.
        host: Option<String>,
        /// The first and the last status that is good.
        status: (u16, u16),
    },
    /// That it answers an ICMP or ICMPv6 echo request. The port means nothing.
    Ping,
}

/// Sockets taken from the epoll set at once.
const EVENTS: usize = 64;

/// Sends probes and receives their answers.
#[derive(Debug)]
pub struct Prober {
    epoll: OwnedFd,
    /// Pending probes by their numbers, which are never used again: an event of a closed
    /// socket finds no probe.
    probes: BTreeMap<u64, Probe>,
    /// Results that the caller has not taken yet.
    done: VecDeque<(u64, Result<(), ProbeError>)>,
    limit: usize,
    last: u64,
    /// Makes the marks by which an echo is known, so that no one can guess them.
    marks: RandomState,
}

/// One probe under way.
#[derive(Debug)]
struct Probe {
    token: u64,
    to: SocketAddr,
    socket: OwnedFd,
    talk: Talk,
    /// What its socket is watched for.
    awaits: EventFlags,
    timeout: Duration,
    until: Duration,
}

/// The protocol on a probe's socket.
#[derive(Debug)]
enum Talk {
    Tcp(TcpProbe),
    Http(HttpProbe),
    Ping(PingProbe),
}

/// How far a talk has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Goes on when the socket is ready for this.
    Awaits(EventFlags),
    /// It has ended well.
    Passed,
}

impl Prober {
    /// The most pending probes by default: each takes an open file, of which a process may often have 1024.
    pub const LIMIT: usize = 512;

    /// Makes one without probes.
    pub fn new() -> Result<Prober, NoProbe> {
        Prober::with_limit(Prober::LIMIT)
    }

    /// Makes one that has at most `limit` probes under way, those included whose result was not taken yet.
    pub fn with_limit(limit: usize) -> Result<Prober, NoProbe> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(NoProbe::System)?;
        let (probes, done) = (BTreeMap::new(), VecDeque::new());
        Ok(Prober { epoll, probes, done, limit, last: 0, marks: RandomState::new() })
    }

    /// How many probes are under way, or have a result that was not taken yet.
    pub fn under_way(&self) -> usize {
        self.probes.len() + self.done.len()
    }

    /// When to poll at the latest, even if the file is not readable; `None` without pending probes.
    pub fn due(&self) -> Option<Duration> {
        if !self.done.is_empty() {
            return Some(Duration::ZERO);
        }
        self.probes.values().map(|probe| probe.until).min()
    }

    /// Sends a probe whose result [`poll`](Prober::poll) returns with `token`, at the
    /// latest `timeout` after `now`.
    ///
    /// An error means that nothing was sent, for a local reason: it says nothing about the machine.
    pub fn start(
        &mut self,
        kind: &ProbeKind,
        to: SocketAddr,
        token: u64,
        now: Duration,
        timeout: Duration,
    ) -> Result<(), NoProbe> {
        if self.under_way() >= self.limit {
            return Err(NoProbe::TooMany { limit: self.limit });
        }
        self.last += 1;
        let number = self.last;
        let to = place(kind, to);
        let (socket, talk) = self.open(kind, to, number)?;
        let awaits = EventFlags::IN;
        epoll::add(&self.epoll, &socket, EventData::new_u64(number), awaits).map_err(NoProbe::System)?;
        let until = now.saturating_add(timeout);
        self.probes.insert(number, Probe { token, to, socket, talk, awaits, timeout, until });
        self.advance(number);
        Ok(())
    }

    /// Forgets the probes with this token: their results are not reported.
    pub fn cancel(&mut self, token: u64) {
        let theirs = self.probes.iter().filter(|(_, probe)| probe.token == token);
        let numbers: Vec<u64> = theirs.map(|(number, _)| *number).collect();
        for number in numbers {
            self.take(number);
        }
        self.done.retain(|(done, _)| *done != token);
    }

    /// Reads the answers that have come and returns the tokens of the probes that have ended, with their
    /// results. Each is returned once; what is left in the iterator comes with the next call.
    ///
    /// An answer that has arrived counts, even if it is read only after the deadline: a router that was busy
    /// for long must not blame others for it. Callers with a deadline of their own poll here first.
    pub fn poll(&mut self, now: Duration) -> impl Iterator<Item = (u64, Result<(), ProbeError>)> {
        self.hear();
        self.end_overdue(now);
        std::iter::from_fn(|| self.done.pop_front())
    }

    fn open(&self, kind: &ProbeKind, to: SocketAddr, number: u64) -> Result<(OwnedFd, Talk), NoProbe> {
        Ok(match kind {
            ProbeKind::Tcp => (tcp::open(to)?, Talk::Tcp(TcpProbe::to(to))),
            ProbeKind::Http { path, host, status } => {
                let talk = HttpProbe::to(to, path, host.as_deref(), *status)?;
                (tcp::open(to)?, Talk::Http(talk))
            }
            ProbeKind::Ping => {
                let (socket, talk) = PingProbe::open(to, number as u16, self.marks.hash_one(number))?;
                (socket, Talk::Ping(talk))
            }
        })
    }

    /// Advances the probes whose sockets are ready. It ends in bounded time, whatever is sent to them.
    fn hear(&mut self) {
        for _ in 0..=self.probes.len() / EVENTS {
            let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            // An interrupted wait is repeated at the next call: the file stays readable.
            let count = epoll::wait(&self.epoll, &mut events[..], Some(&at_once)).unwrap_or(0);
            for event in &events[..count] {
                self.advance(event.data.u64());
            }
            if count < EVENTS {
                return;
            }
        }
    }

    fn advance(&mut self, number: u64) {
        let Some(probe) = self.probes.get_mut(&number) else { return };
        let result = match probe.advance() {
            Ok(Progress::Awaits(awaits)) => match probe.watch(&self.epoll, number, awaits) {
                Ok(()) => return,
                Err(error) => Err(error.into()),
            },
            Ok(Progress::Passed) => Ok(()),
            Err(why) => Err(why),
        };
        self.end(number, result);
    }

    fn end_overdue(&mut self, now: Duration) {
        let mut overdue = Vec::new();
        for (number, probe) in &mut self.probes {
            // A clock that was set back makes no probe wait longer.
            probe.until = probe.until.min(now.saturating_add(probe.timeout));
            if probe.until <= now {
                overdue.push((*number, probe.timeout));
            }
        }
        for (number, within) in overdue {
            self.end(number, Err(ProbeFailure::NoAnswer { within }));
        }
    }

    fn end(&mut self, number: u64, result: Result<(), ProbeFailure>) {
        if let Some(probe) = self.take(number) {
            self.done.push_back((probe.token, result.map_err(|why| ProbeError { to: probe.to, why })));
        }
    }

    fn take(&mut self, number: u64) -> Option<Probe> {
        let probe = self.probes.remove(&number)?;
        // A closed socket leaves the set on its own, except while a child that was just forked holds it too.
        let _ = epoll::delete(&self.epoll, &probe.socket);
        Some(probe)
    }
}

/// One file for all probes: readable when [`Prober::poll`] has something to read.
impl AsFd for Prober {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Probe {
    fn advance(&mut self) -> Result<Progress, ProbeFailure> {
        match &mut self.talk {
            Talk::Tcp(tcp) => tcp.advance(&self.socket),
            Talk::Http(http) => http.advance(&self.socket),
            Talk::Ping(ping) => ping.advance(&self.socket),
        }
    }

    fn watch(&mut self, epoll: &OwnedFd, number: u64, awaits: EventFlags) -> Result<(), Errno> {
        if awaits == self.awaits {
            return Ok(());
        }
        self.awaits = awaits;
        epoll::modify(epoll, &self.socket, EventData::new_u64(number), awaits)
    }
}

/// Where a probe goes: an IPv4 address that is written as an IPv6 one is one, and an echo has no port.
fn place(kind: &ProbeKind, mut to: SocketAddr) -> SocketAddr {
    if let ip @ IpAddr::V4(_) = to.ip().to_canonical() {
        to = SocketAddr::new(ip, to.port());
    }
    if *kind == ProbeKind::Ping {
        to.set_port(0);
    }
    to
}
