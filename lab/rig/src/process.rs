//! A program running on a host: reading what it writes, waiting for it, ending it.

use std::io::{Read, Write};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use super::error::{Failure, Result, RigError};
use super::host::Host;
use super::output::CommandOutput;

/// How long output may come after a program's end: its children can hold the pipe open for ever.
const STRAGGLERS: Duration = Duration::from_secs(1);

/// A running program. It is killed, with its children, and reaped when this value is dropped.
pub struct Process {
    child: Child,
    /// Becomes readable when the program ends, so that waiting needs no polling.
    ended: OwnedFd,
    status: Option<ExitStatus>,
    written: Arc<Written>,
    command: String,
    // Keeps the rig while the process lives.
    host: Host,
}

/// What a program has written so far, filled by two reading threads.
#[derive(Default)]
pub(super) struct Written {
    streams: Mutex<Streams>,
    news: Condvar,
}

#[derive(Default)]
pub(super) struct Streams {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    open: u8,
}

impl Process {
    pub(super) fn adopt(mut child: Child, command: String, host: Host, input: Vec<u8>) -> Result<Process> {
        let written = Arc::new(Written::default());
        read_along(&written, child.stdout.take(), |streams| &mut streams.stdout);
        read_along(&written, child.stderr.take(), |streams| &mut streams.stderr);
        if let Some(mut pipe) = child.stdin.take() {
            // A program may stop reading its input; that is not an error. Its output shows it.
            thread::spawn(move || pipe.write_all(&input));
        }
        let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let ended = ended.map_err(|errno| RigError::System("cannot watch a process".into(), errno.into()));
        match ended {
            Ok(ended) => Ok(Process { child, ended, status: None, written, command, host }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// The process id, as this process sees it.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the program has written to standard output up to now.
    pub fn stdout_so_far(&self) -> String {
        text(&self.written.lock().stdout)
    }

    /// What the program has written to standard error up to now.
    pub fn stderr_so_far(&self) -> String {
        text(&self.written.lock().stderr)
    }

    /// Waits until `wanted` has appeared on standard output or standard error.
    pub fn wait_for(&self, wanted: &str, limit: Duration) -> Result<()> {
        let shows = |bytes: &[u8]| text(bytes).contains(wanted);
        let seen = self.written.wait_until(limit, |streams| shows(&streams.stdout) || shows(&streams.stderr));
        if seen {
            Ok(())
        } else {
            Err(RigError::NotSeen(self.failure(), format!("{wanted:?} within {limit:?}")))
        }
    }

    /// Waits for the program's end; at the limit it is killed and the result is an error.
    pub fn wait(&mut self, limit: Duration) -> Result<CommandOutput> {
        if self.status.is_none() && !self.ends_within(limit) {
            let failure = self.failure();
            self.kill();
            return Err(RigError::TimedOut(failure, limit));
        }
        self.reap();
        self.written.wait_until(STRAGGLERS, |_| false);
        Ok(self.output())
    }

    /// Whether the program has not ended yet.
    pub fn is_running(&mut self) -> bool {
        if self.status.is_none() && self.ends_within(Duration::ZERO) {
            self.reap();
        }
        self.status.is_none()
    }

    /// Sends a signal to the program; nothing happens if it has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.is_running() {
            // It may end between the question and the signal, but stays ours until reaped.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Asks the program to end (SIGTERM) and waits for that.
    pub fn stop(&mut self, limit: Duration) -> Result<CommandOutput> {
        self.signal(Signal::TERM);
        self.wait(limit)
    }

    /// Kills the program and its process group at once.
    pub fn kill(&mut self) {
        // After the process is reaped, its number may belong to another process.
        if self.status.is_none() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            self.reap();
        }
    }

    pub(super) fn written(&self) -> &Written {
        &self.written
    }

    /// Who runs what, and what it has said so far: what an error about it should show.
    pub fn failure(&self) -> Box<Failure> {
        Failure::new(self.host.label(), self.command.clone(), self.output())
    }

    fn output(&self) -> CommandOutput {
        let streams = self.written.lock();
        CommandOutput { status: self.status, stdout: text(&streams.stdout), stderr: text(&streams.stderr) }
    }

    fn ends_within(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.ended, PollFlags::IN)], Some(&timeout)) {
                Ok(ready) => return ready > 0,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    fn reap(&mut self) {
        if self.status.is_none() {
            self.status = self.child.wait().ok();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Written {
    pub(super) fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `enough`, the end of both streams, or the limit; says whether it was enough.
    pub(super) fn wait_until(&self, limit: Duration, enough: impl Fn(&Streams) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        let mut streams = self.lock();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if enough(&streams) {
                return true;
            }
            if streams.open == 0 || left.is_zero() {
                return false;
            }
            streams = self.news.wait_timeout(streams, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Starts a thread that collects one stream of a program until it closes.
fn read_along(
    written: &Arc<Written>,
    pipe: Option<impl Read + Send + 'static>,
    of: fn(&mut Streams) -> &mut Vec<u8>,
) {
    let Some(mut pipe) = pipe else { return };
    written.lock().open += 1;
    let written = written.clone();
    thread::spawn(move || {
        let mut chunk = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = pipe.read(&mut chunk) {
            of(&mut written.lock()).extend_from_slice(&chunk[..length]);
            written.news.notify_all();
        }
        written.lock().open -= 1;
        written.news.notify_all();
    });
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
