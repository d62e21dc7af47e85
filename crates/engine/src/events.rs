//! What a worker sleeps on: the files its elements watch, its mailbox, and time.
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// What a file must be ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something to read.
    Readable,
    /// Room to write.
    Writable,
}

/// Wakes a worker from its sleep, from any thread.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> Result<Bell, Errno> {
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }
    pub(crate) fn ring(&self) {
        // The only error is a counter at its limit, which wakes just as well.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
    fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

/// The number that stands for the bell; elements have theirs.
const BELL: u64 = u64::MAX;

/// One worker's epoll set.
#[derive(Debug)]
pub(crate) struct Events {
    epoll: OwnedFd,
}

impl Events {
    pub(crate) fn new(bell: &Bell) -> Result<Events, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, bell.0.as_fd(), EventData::new_u64(BELL), EventFlags::IN)?;
        Ok(Events { epoll })
    }

    /// Tells of `node` once when the file is ready.
    pub(crate) fn watch(&self, file: BorrowedFd<'_>, node: usize, interest: Interest) -> Result<(), Errno> {
        let flags = EventFlags::ONESHOT
            | match interest {
                Interest::Readable => EventFlags::IN,
                Interest::Writable => EventFlags::OUT,
            };
        let data = EventData::new_u64(node as u64);
        match epoll::modify(&self.epoll, file, data, flags) {
            Err(Errno::NOENT) => epoll::add(&self.epoll, file, data, flags),
            done => done,
        }
    }

    /// Waits up to `limit` (for ever without one) and calls `ready` with each node whose file is ready. Silences the
    /// bell, and returns whether it was rung: whoever waits looks afterwards for what it was rung for.
    pub(crate) fn wait(&self, bell: &Bell, limit: Option<Duration>, ready: impl FnMut(usize)) -> bool {
        let is_rung = self.collect(limit, ready);
        if is_rung {
            bell.silence();
        }
        is_rung
    }
    /// Calls `ready` with each node whose file is ready now. The bell stays rung: a worker that goes to sleep after
    /// this look must still hear it.
    pub(crate) fn look(&self, ready: impl FnMut(usize)) {
        self.collect(Some(Duration::ZERO), ready);
    }

    /// Returns whether the bell was rung.
    fn collect(&self, limit: Option<Duration>, mut ready: impl FnMut(usize)) -> bool {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 64];
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: limit.subsec_nanos().into(),
        });
        // An interrupted wait is one that was short.
        let count = epoll::wait(&self.epoll, &mut events[..], limit.as_ref()).unwrap_or(0);
        let mut is_rung = false;
        for event in &events[..count] {
            match event.data.u64() {
                BELL => is_rung = true,
                node => ready(node as usize),
            }
        }
        is_rung
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_at_the_files_leaves_the_bell_to_be_heard_and_a_wait_silences_it() {
        let bell = Bell::new().unwrap();
        let events = Events::new(&bell).unwrap();
        bell.ring();
        events.look(|_| unreachable!("no file is watched"));
        assert!(events.collect(Some(Duration::ZERO), |_| ()), "the look silenced the bell");
        assert!(events.wait(&bell, None, |_| unreachable!("no file is watched")));
        assert!(!events.collect(Some(Duration::ZERO), |_| ()));
    }
}
