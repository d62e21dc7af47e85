//! Whether the router answers: asked over and over by a connection of its own, so that nothing delays it.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use artery_control::{ControlClient, ControlError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

/// The pause after an answer.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);
/// How much longer than asked for a wait may take before this process was the one that stood still.
const OWN_DELAY: Duration = Duration::from_millis(50);
/// How long the rest of an answer may take that has begun.
const REST: Duration = Duration::from_secs(1);

/// What is known of the router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RouterHealth {
    /// Since this process started.
    NotYetAsked,
    Answers,
    DoesNotAnswer,
    /// It runs, and has no such balancer.
    Refuses(String),
}

/// Where the probe leaves what it knows.
#[derive(Default)]
pub(crate) struct Health {
    state: Mutex<Option<RouterHealth>>,
    changed: Condvar,
}

impl Health {
    pub(crate) fn get(&self) -> RouterHealth {
        self.lock().clone().unwrap_or(RouterHealth::NotYetAsked)
    }

    /// Waits until it changes from what was known, or for so long.
    pub(crate) fn wait_for_change(&self, known: &RouterHealth, limit: Duration) {
        let state = self.lock();
        let is_known =
            |state: &mut Option<RouterHealth>| state.as_ref().unwrap_or(&RouterHealth::NotYetAsked) == known;
        // What it is, is read next.
        drop(self.changed.wait_timeout_while(state, limit, is_known));
    }

    fn set(&self, health: RouterHealth) {
        let mut state = self.lock();
        if state.as_ref() != Some(&health) {
            *state = Some(health);
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<RouterHealth>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the router without end. It answers later than `timeout` after its last answer: it does not answer.
pub(crate) fn probe_router(socket: &Path, balancer: &str, timeout: Duration, health: &Health) {
    let limit = timeout.saturating_sub(PAUSE).max(PAUSE);
    // Each worker has to answer this one, and does so at once.
    let question = format!("{balancer}.exchange");
    loop {
        // A router ends connections to make room for others. One that lives answers a new one.
        match Connection::open(socket, limit).and_then(|mut connection| {
            ensure!(connection.ask(&question, limit, health)?, "no answer in time");
            Ok(connection)
        }) {
            Ok(connection) => drop(ask_on(connection, &question, limit, health)),
            Err(_) => {
                health.set(RouterHealth::DoesNotAnswer);
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Asks until the connection ends. A router that stands still is waited for on the same one.
fn ask_on(
    mut connection: Connection,
    question: &str,
    limit: Duration,
    health: &Health,
) -> Result<std::convert::Infallible> {
    loop {
        // It becomes readable when it ends.
        ensure!(!connection.is_readable(PAUSE)?, "the router sent an answer without a question, or is gone");
        if !connection.ask(question, limit, health)? {
            health.set(RouterHealth::DoesNotAnswer);
            while !connection.is_readable(REST)? {}
            connection.finish(health)?;
        }
    }
}

struct Connection {
    stream: UnixStream,
    client: ControlClient<UnixStream>,
}

impl Connection {
    fn open(socket: &Path, limit: Duration) -> Result<Connection> {
        let stream = connect(socket, limit)?;
        stream.set_write_timeout(Some(limit))?;
        stream.set_read_timeout(Some(limit))?;
        let client = ControlClient::new(stream.try_clone()?)?;
        stream.set_read_timeout(Some(REST))?;
        Ok(Connection { stream, client })
    }

    /// Whether the router answered in time; if so, the answer is in `health`.
    fn ask(&mut self, question: &str, limit: Duration, health: &Health) -> Result<bool> {
        self.client.begin_read(question)?;
        let asked = Instant::now();
        let mut is_there = self.is_readable(limit)?;
        if !is_there && asked.elapsed() > limit + OWN_DELAY {
            // This machine or this process stood still, perhaps the router with it.
            is_there = self.is_readable(limit)?;
        }
        if is_there {
            self.finish(health)?;
        }
        Ok(is_there)
    }

    fn finish(&mut self, health: &Health) -> Result<(), ControlError> {
        health.set(match self.client.finish_read()? {
            Ok(_) => RouterHealth::Answers,
            Err(refusal) => RouterHealth::Refuses(refusal.text.replace('\n', " ")),
        });
        Ok(())
    }

    fn is_readable(&self, limit: Duration) -> Result<bool> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&left)) {
                Ok(count) => return Ok(count > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => bail!(error),
            }
        }
    }
}

/// Connects; a router that stands still and has no room for connections is not waited for.
fn connect(path: &Path, limit: Duration) -> Result<UnixStream> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    let address = SocketAddrUnix::new(path).context("not the name of a socket")?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket.into())
}
